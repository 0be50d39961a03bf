"""PDF files by pypdf: the text layer, page by page."""

from __future__ import annotations

import io
import json
from typing import Any, Final

from resin_core.readers.rejects import ReadFailure, named
from resin_core.text.decode import scrub

_PAGE_GAP: Final = "\n\n"


def pdf_text(raw: bytes, max_bytes: int) -> tuple[str, str, dict[str, str]]:
    """(text, title, metadata) of a PDF; pages are parted by a blank line, the title may be empty.

    Metadata: `pages`, `page_starts` (offset of each page's text, a JSON list), and `unreadable_pages` where single
    pages failed. Raises ReadFailure: "encrypted", "no-text" (images only), "corrupt", "too-large".
    """
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError

    try:
        reader = PdfReader(io.BytesIO(raw))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ReadFailure("encrypted", "the file needs a password; store it without one")
        pages = list(reader.pages)
    except (FileNotDecryptedError, DependencyError) as error:
        raise ReadFailure("encrypted", named(error)) from error
    except ReadFailure:
        raise
    except Exception as error:
        raise ReadFailure("corrupt", named(error)) from error
    return _join(pages, max_bytes, _title(reader))


def _join(pages: list[Any], max_bytes: int, title: str) -> tuple[str, str, dict[str, str]]:
    parts: list[str] = []
    starts: list[int] = []
    failures: dict[int, str] = {}
    length = 0
    for number, page in enumerate(pages, start=1):
        try:
            part = scrub(page.extract_text())
        except Exception as error:  # one bad page must not cost the others
            failures[number] = named(error)
            part = ""
        starts.append(length)
        parts.append(part)
        length += len(part) + len(_PAGE_GAP)
        if length > max_bytes:
            raise ReadFailure("too-large", f"the text is over {max_bytes} bytes at page {number} of {len(pages)}")
    text = _PAGE_GAP.join(parts)
    if not text.strip():
        if failures:
            number, why = next(iter(failures.items()))
            raise ReadFailure("corrupt", f"page {number}: {why}")
        raise ReadFailure("no-text", f"{len(pages)} pages without a text layer (images only?); run OCR first")
    metadata = {"pages": str(len(pages)), "page_starts": json.dumps(starts, separators=(",", ":"))}
    if failures:
        metadata["unreadable_pages"] = ", ".join(f"{number} ({why})" for number, why in failures.items())[:1000]
    return text, title, metadata


def _title(reader: Any) -> str:
    try:
        title = reader.metadata.title if reader.metadata else None
    except Exception:  # a broken information block is no reason to lose the text
        return ""
    return " ".join(scrub(title).split()) if isinstance(title, str) else ""
