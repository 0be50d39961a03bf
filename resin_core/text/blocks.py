"""Blocks: stretches of text that no sentence crosses (paragraphs, headings, list items, table rows)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

Span = tuple[int, int]

# A bullet, or a number or letter as in "3.", "(3)", "b)", "iv)"; several in a row count as one.
MARKER: Final = re.compile(r"\s*(?:(?:[-*+•‣◦▪●]|\(?\d{1,3}[.)]|\(?(?:[a-zA-Z]|[ivx]{1,4})\)|[\[{(])\s*)+(?=\s*\S)")
_LIST_ITEM: Final = re.compile(r"\s*(?:[-*+•‣◦▪●]|\(?\d{1,3}[.)]|\(?(?:[a-zA-Z]|[ivx]{1,4})\))\s+\S")
_OWN_LINE: Final = re.compile(r"\s*(?:#{1,6}\s+\S|\|)")
# Text wrapped at a width has lines of about that width. In a paragraph with lines longer than this, a line of less
# than half the longest was ended on purpose (a heading over its paragraph).
_WRAP_CHARS: Final = 60


def blocks(text: str) -> Iterator[Span]:
    """Spans of the blocks of `text`, in order; what lies between them is white space.

    A blank line always ends a block. A single line end does so before and after a heading, at a list item or a table
    row, after a line of symbols only, and after a line far shorter than the paragraph's others.
    """
    run: list[Span] = []
    position = 0
    for line in text.splitlines(keepends=True):
        end = position + len(line)
        if line.isspace():
            yield from _paragraph_blocks(text, run)
            run = []
        else:
            run.append((position, end))
        position = end
    yield from _paragraph_blocks(text, run)


def _paragraph_blocks(text: str, lines: list[Span]) -> Iterator[Span]:
    """Blocks of one run of lines without a blank line."""
    if not lines:
        return
    width = max(end - start for start, end in lines)
    start = lines[0][0]
    for (line_start, line_end), (next_start, next_end) in pairwise(lines):
        if _ends_block(text[line_start:line_end], text[next_start:next_end], width):
            yield start, line_end
            start = next_start
    yield start, lines[-1][1]


def _ends_block(line: str, following: str, width: int) -> bool:
    if _OWN_LINE.match(line) or _OWN_LINE.match(following) or _LIST_ITEM.match(following):
        return True
    if not any(map(str.isalnum, following)):
        return False  # The rule under a heading belongs to it.
    if not any(map(str.isalnum, line)):
        return True
    body = line.strip()
    deliberate = width > _WRAP_CHARS and len(body) < width / 2 and not body.endswith((",", "-", "\u2010"))
    return deliberate and not following.lstrip()[0].islower()
