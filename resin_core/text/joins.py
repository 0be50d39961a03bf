"""Where the sentence library cuts too early: after abbreviations, initials, ordinals and inside names with a dot."""

from __future__ import annotations

import re
from typing import Final

Span = tuple[int, int]

_LAST_WORD: Final = re.compile(r"(\w+)\.$")
_ENUMERATOR: Final = re.compile(r"\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,4})[.)]")
_LOWER_WORD: Final = re.compile(r"([^\W\d_]+)(?=[\s,;)<-]|[:.!?](?:\s|$)|$)")
_GLUED_SENTENCE: Final = re.compile(r"[\"'“‘(\[]*(?:[A-Z][a-z]|[AI] |[^\W\d_a-zA-Z]|\[\d)")
_PARENTHESIS: Final = re.compile(r"\([^()]*\)[.,;]")
_ABBREVIATIONS: Final = frozenset({
    "al", "approx", "avg", "ca", "cf", "comb", "cv", "dept", "ed", "eds", "eq", "eqs", "etc", "ex", "fig", "figs",
    "gen", "incl", "max", "min", "no", "nom", "nos", "nov", "pp", "rec", "ref", "refs", "resp", "sp", "spp", "ssp",
    "st", "subsp", "syn", "var", "vb", "vd", "viz", "vol", "vs",
})  # fmt: skip
_TAIL_CHARS: Final = 32


def joined(flat: str, left: Span, right: Span) -> bool:
    """Whether two neighbouring pieces of one block are one sentence."""
    before = flat[max(left[0], left[1] - _TAIL_CHARS) : left[1]]
    after = flat[right[0] : min(right[1], right[0] + _TAIL_CHARS)]
    if not _has_word(before) or not _has_word(after):
        return True  # Stray marks and symbols go with the sentence beside them.
    if left[1] - left[0] < _TAIL_CHARS and _ENUMERATOR.fullmatch(before):
        return True
    if _PARENTHESIS.fullmatch(after):
        return True  # "... Benth. (Lamiaceae)." belongs to what it explains.
    if not before.endswith("."):
        return False
    if left[1] == right[0]:
        # No space behind the dot: a missing one before a new sentence, or a name such as H2A.Z or osf.io.
        return _GLUED_SENTENCE.match(after) is None
    return _dot_belongs_to_word(before, after)


def _dot_belongs_to_word(before: str, after: str) -> bool:
    match = _LAST_WORD.search(before)
    if match is None:
        return False
    word = match.group(1)
    if word.casefold() in _ABBREVIATIONS and (after[0].islower() or after[0].isdigit()):
        return True
    if not _starts_lower(after):
        return False
    if word.isdigit():
        return len(word) <= 2  # An ordinal, as in Turkish and German.
    return len(word) == 1 or (len(word) <= 8 and word.istitle())


def _starts_lower(after: str) -> bool:
    """A word all in lower case; names such as mRNA or p53 do begin sentences."""
    match = _LOWER_WORD.match(after)
    return match is not None and match.group(1).islower()


def _has_word(text: str) -> bool:
    return any(map(str.isalnum, text))
