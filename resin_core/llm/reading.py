"""JSON out of model text: strictly, then tolerantly; never by evaluation.

Models wrap their JSON in fences and prose, put the one object into an array, leave quotes open, and stop in the middle
when the token cap is reached. What comes out here still has to fit the response model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_THOUGHT_END = "</think>"
# What opens JSON, as opposed to brackets in prose: an object's key or end, an array's value or end.
_OPENING = re.compile(r"""\{(?=\s*["'}]|\s*\w+\s*:)|\[(?=\s*["'\[\]{\d-])""")
_DECODER = json.JSONDecoder()
_DIGIT_RUN = re.compile(r"\d+")
_WORD = re.compile(r"[^\W\d_]{2}")
_TAIL_CHARS = 4000
_REPEATS = 4
_PLAIN_LOOP_CHARS = 24
_COUNTED_LOOP_CHARS = 60


class Candidate(NamedTuple):
    """A value that the text may mean. `strict`: the text is this and nothing else; `whole`: nothing was made up."""

    value: Any
    strict: bool
    whole: bool


def candidates(text: str) -> Iterator[Candidate]:
    """Readings of the text, the most literal first; only objects and arrays.

    An array that holds one object is followed by that object. Mended text comes last and is not `whole`.
    """
    whole = text.strip()
    text = _without_thoughts(whole)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        pass
    else:
        if not isinstance(value, str):
            yield from _unwrapped(value, strict=text == whole, whole=True)
            return
        text = value  # JSON within a JSON string
    at = 0
    while opening := _OPENING.search(text, at):
        try:
            value, at = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            # Nothing inside a broken value may stand for the whole.
            yield from _unwrapped(_mended(text[opening.start() :]), strict=False, whole=False)
            return
        yield from _unwrapped(value, strict=False, whole=True)


def salvaged(text: str) -> Iterator[Any]:
    """Readings of a text that was cut off: its complete array items, most first; then the text mended as it stands."""
    text = _without_thoughts(text.strip())
    opening = _OPENING.search(text)
    if opening is None:
        return
    text = text[opening.start() :]
    for end, closers in _item_ends(text):
        try:
            yield json.loads(text[:end] + closers)
        except (ValueError, RecursionError):
            continue
    mended = _mended(text)
    if mended is not None:
        yield mended


def is_looped(text: str) -> bool:
    """Whether the text ends in one passage repeated at least four times, as models at temperature 0 may do to the cap.

    Numbers may differ between the repeats when there are words in them, so that counting loops are seen too.
    """
    tail = text[-_TAIL_CHARS:]
    if _is_periodic(tail, _PLAIN_LOOP_CHARS):
        return True
    counted = _DIGIT_RUN.sub("0", tail)
    return counted != tail and _is_periodic(counted, _COUNTED_LOOP_CHARS, words=True)


def _without_thoughts(text: str) -> str:
    """Without what a reasoning model thought aloud before its JSON; JSON may hold that mark as text."""
    if text.startswith(("{", "[")):
        return text
    return text.partition(_THOUGHT_END)[2].strip() or text


def _unwrapped(value: Any, strict: bool, whole: bool) -> Iterator[Candidate]:
    if isinstance(value, dict | list):
        yield Candidate(value, strict, whole)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        yield Candidate(value[0], False, whole)


def _mended(text: str) -> dict[str, Any] | list[Any] | None:
    import json_repair

    try:
        value = json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError, IndexError, KeyError):
        return None
    return value if isinstance(value, dict | list) and value else None


def _item_ends(text: str) -> list[tuple[int, str]]:
    """Where the last complete item of each open array ends, with the brackets to close there; the latest first."""
    stack: list[str] = []
    last: dict[int, tuple[int, str]] = {}
    in_string = escaped = False
    for at, char in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
                if stack and stack[-1] == "]":
                    last[len(stack)] = (at + 1, "".join(reversed(stack)))
            continue
        if char == '"':
            in_string = True
        elif char in "{[":
            stack.append("}" if char == "{" else "]")
            last.pop(len(stack), None)
        elif char in "}]":
            if not stack or stack.pop() != char:
                break
            if stack and stack[-1] == "]":
                last[len(stack)] = (at + 1, "".join(reversed(stack)))
    return sorted(last.values(), reverse=True)


def _is_periodic(tail: str, least_chars: int, words: bool = False) -> bool:
    for period in range(1, len(tail) // _REPEATS + 1):
        length = max(_REPEATS * period, least_chars)
        if length > len(tail):
            continue
        end = tail[-length:]
        if end[period:] == end[:-period] and (not words or _WORD.search(end)):
            return True
    return False
