"""Reject rows of the readers: what could not become a document, where it stands, and why."""

from __future__ import annotations

from typing import Final

from resin_core.ids import digest
from resin_core.records import Document, Record, Reject
from resin_core.text.decode import scrub

STAGE: Final = "read"
MAX_RAW_CHARS: Final = 2000
MAX_DETAIL_CHARS: Final = 500

ROW_SUFFIX: Final = r"#(line|row)=[0-9]+$"
"""How a uri names one row of its file; a regular expression."""


class ReadDocument(Record):
    """A document and the place it was read from, in words ("notes.jsonl line 12"), for messages."""

    document: Document
    place: str


class ReadFailure(Exception):  # noqa: N818 - it never leaves the readers, where it becomes a Reject row
    """Why one document cannot be read; becomes a Reject row."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def make_reject(doc_id: str, uri: str, reason: str, detail: str, raw: str = "") -> Reject:
    """A Reject of stage "read". `raw` is cut to 2,000 characters; the id comes from place, stage and reason."""
    doc_id, uri = scrub(doc_id), scrub(uri)
    return Reject(
        reject_id=digest((doc_id, uri, STAGE, reason)),
        doc_id=doc_id,
        uri=uri,
        stage=STAGE,
        reason=reason,
        detail=scrub(detail)[:MAX_DETAIL_CHARS],
        raw=scrub(raw)[:MAX_RAW_CHARS],
    )


def named(error: BaseException) -> str:
    """An exception in one line: its type and its message."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
