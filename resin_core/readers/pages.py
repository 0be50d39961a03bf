"""HTML pages: the main text by trafilatura; all visible text of a small page, or where that finds none."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import Final

from resin_core.text.decode import REPLACEMENT, Decoded, decode, scrub

_DECLARED: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{2,40})", re.IGNORECASE)
_HEAD_BYTES: Final = 4096
_HIDDEN: Final = frozenset({"script", "style", "noscript", "template", "head"})
_BLOCKS: Final = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "dd", "div", "dl", "dt", "fieldset", "figcaption",
    "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol",
    "option", "p", "pre", "section", "table", "tr", "ul",
})  # fmt: skip
_CELLS: Final = frozenset({"td", "th"})
# A page this small has next to nothing around its text, and trafilatura runs its words together or finds none.
_SMALL_PAGE_CHARS: Final = 600
_ITEM: Final = ("- ", "|")


def decode_page(raw: bytes) -> Decoded:
    """Bytes of a page to text: a mark or sound UTF-8 first, then the page's own declaration, then a guess."""
    decoded = decode(raw)
    match = _DECLARED.search(raw[:_HEAD_BYTES])
    if not decoded.notes or match is None:
        return decoded
    name = match.group(1).decode("ascii").lower()
    name = "cp1252" if name in {"iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii"} else name
    try:
        text = raw.decode(name, errors="replace")
    except LookupError:
        return decoded
    return Decoded(text=scrub(text), encoding=name)


def page_text(html: str) -> tuple[str, str]:
    """(text, title) of a page. Paragraphs are parted by a blank line; list items and table rows are lines."""
    import trafilatura

    html = html.replace("\x00", REPLACEMENT)
    visible = _Visible()
    visible.feed(html)
    visible.close()
    shown = _apart("".join(visible.parts))
    text: str | None = None
    if len(shown) > _SMALL_PAGE_CHARS:
        text = trafilatura.extract(
            html, favor_recall=True, include_comments=False, include_tables=True, include_formatting=False
        )
    return scrub(_apart(text or "") or shown), " ".join(scrub(visible.title or visible.heading).split())


def _apart(text: str) -> str:
    """Blank lines between lines, save between list items and between table rows, so that a line ends a sentence."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line]
    parts: list[str] = lines[:1]
    for before, line in pairwise(lines):
        together = any(before.startswith(mark) and line.startswith(mark) for mark in _ITEM)
        parts.append(("\n" if together else "\n\n") + line)
    return "".join(parts)


class _Visible(HTMLParser):
    """Collects the visible text, the title and the first h1."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title = ""
        self.heading = ""
        self._hidden: list[str] = []
        self._in_title = False
        self._in_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - the parser's signature
        if tag == "title":
            self._in_title = not self.title
        elif tag == "body":
            self._hidden.clear()  # A head that was never closed ends here.
        elif tag in _HIDDEN:
            self._hidden.append(tag)
        if tag == "h1":
            self._in_heading = not self.heading
        self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag == "h1":
            self._in_heading = False
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        self._break(tag)

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._hidden:
            self.parts.append(data.replace("\n", " "))
            if self._in_heading:
                self.heading += data

    def _break(self, tag: str) -> None:
        if tag in _BLOCKS:
            self.parts.append("\n")
        elif tag in _CELLS:
            self.parts.append(" ")
