"""A document's title when none is given."""

from __future__ import annotations

import re
from typing import Final

MAX_TITLE_CHARS: Final = 200
_HEADING: Final = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*[ \t\r]*$", re.MULTILINE)
_LOOK_CHARS: Final = 20_000


def first_line(text: str, fallback: str) -> str:
    """The first line with a letter or digit if it is short enough for a title (200 characters), else `fallback`."""
    for line in text[:_LOOK_CHARS].splitlines():
        if any(map(str.isalnum, line)):
            title = line.strip()
            return title if len(title) <= MAX_TITLE_CHARS else fallback
    return fallback


def markdown_title(text: str, fallback: str) -> str:
    """The first `#` heading, else the first line, else `fallback`."""
    match = _HEADING.search(text[:_LOOK_CHARS])
    if match is not None and len(match.group(1)) <= MAX_TITLE_CHARS:
        return match.group(1).strip()
    return first_line(text, fallback)
