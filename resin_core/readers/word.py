"""Word files (.docx): paragraphs, lists, tables and content controls in the order of the document."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any, Final

from resin_core.readers.rejects import ReadFailure, named
from resin_core.text.decode import scrub

_W: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_BREAKS: Final = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
# Elements that hold blocks and are no block themselves: content controls, inserted text, custom markup.
_SKIPPED: Final = frozenset({f"{_W}del", f"{_W}moveFrom", _FALLBACK})


def word_text(raw: bytes, max_bytes: int) -> tuple[str, str]:
    """(text, title); blocks are parted by a blank line, a table row is one line "| a | b |". The title may be empty.

    Raises ReadFailure: "corrupt", and "too-large" where the unpacked XML is over `max_bytes`.
    """
    from docx import Document

    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            unpacked = sum(
                entry.file_size for entry in archive.infolist() if entry.filename.endswith((".xml", ".rels"))
            )
        if unpacked > max_bytes:
            raise ReadFailure("too-large", f"{unpacked} bytes of XML when unpacked; at most {max_bytes} are read")
        document = Document(io.BytesIO(raw))
        text = "\n\n".join(_blocks(document.element.body))
        title = " ".join((document.core_properties.title or "").split())
    except ReadFailure:
        raise
    except Exception as error:
        raise ReadFailure("corrupt", named(error)) from error
    return scrub(text), scrub(title)


def _blocks(parent: Any) -> Iterator[str]:
    """Texts of the blocks below an element, blank ones left out."""
    for child in parent:
        if child.tag == f"{_W}p":
            text = _inline(child).strip()
            if text:
                yield text
        elif child.tag == f"{_W}tbl":
            rows = [line for line in map(_row, _within(child, "tr")) if line]
            if rows:
                yield "\n".join(rows)
        elif isinstance(child.tag, str) and child.tag not in _SKIPPED:
            yield from _blocks(child)


def _row(row: Any) -> str:
    cells = [" ".join(" ".join(_blocks(cell)).split()) for cell in _within(row, "tc")]
    return f"| {' | '.join(cells)} |" if any(cells) else ""


def _within(parent: Any, name: str) -> Iterator[Any]:
    """Elements `name` below `parent`, also inside content controls, but not inside a nested table."""
    for child in parent:
        if child.tag == f"{_W}{name}":
            yield child
        elif child.tag != f"{_W}tbl" and isinstance(child.tag, str) and child.tag not in _SKIPPED:
            yield from _within(child, name)


def _inline(element: Any) -> str:
    """Text of a paragraph: runs, links, inserted text and text boxes; deleted text stays out."""
    parts: list[str] = []
    for child in element:
        if child.tag == f"{_W}t":
            parts.append(child.text or "")
        elif child.tag in _BREAKS:
            parts.append(_BREAKS[child.tag])
        elif child.tag == f"{_W}tabs" or child.tag in _SKIPPED:
            continue
        elif isinstance(child.tag, str):
            parts.append(_inline(child))
            if child.tag == f"{_W}p":
                parts.append("\n")
    return "".join(parts)
