"""JSON Lines, read line by line as bytes: a bad line rejects itself and no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from resin_core.readers.opening import open_regular
from resin_core.readers.rejects import ReadDocument, ReadFailure, make_reject, named
from resin_core.readers.rows import DECODING_KEY, row_document, row_id
from resin_core.readers.sources import SourceFile
from resin_core.records import Reject
from resin_core.text.decode import Decoded, decode

_SKIP_BYTES: Final = 1 << 20
_WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")


def read_jsonl(file: SourceFile, max_document_bytes: int) -> Iterator[ReadDocument | Reject]:
    """One document or Reject for each line that is not blank. Lines count from 1. Raises OSError."""
    with open_regular(file.path) as stream:
        for number, line in enumerate(_lines(stream, max_document_bytes), start=1):
            uri = f"{file.path}#line={number}"
            place = f"{file.path} line {number}"
            if line is None:
                detail = f"{place}: the line is over {max_document_bytes} bytes"
                yield make_reject("", uri, "too-large", detail)
                continue
            if number == 1 and line.startswith(_WIDE_MARKS):
                detail = f"{place}: the file is UTF-16 or UTF-32; JSON Lines must be UTF-8, convert it"
                yield make_reject(file.doc_id, file.path, "wrong-encoding", detail)
                return
            decoded = decode(line)
            if decoded.text.strip():
                yield _line_row(decoded, uri, place, max_document_bytes)


def _lines(stream: BinaryIO, max_bytes: int) -> Iterator[bytes | None]:
    """The lines; None stands for one that is too long, which is skipped without being held in memory."""
    while line := stream.readline(max_bytes + 2):  # Room for the line's end.
        if len(line.rstrip(b"\r\n")) > max_bytes:
            while not line.endswith(b"\n") and (line := stream.readline(_SKIP_BYTES)):
                pass
            yield None
        else:
            yield line


def _line_row(decoded: Decoded, uri: str, place: str, max_bytes: int) -> ReadDocument | Reject:
    row: Any = None
    try:
        try:
            row = json.loads(decoded.text)
        except (ValueError, RecursionError) as error:
            raise ReadFailure("invalid-json", named(error)) from error
        if not isinstance(row, dict):
            raise ReadFailure("invalid-record", f"{type(row).__name__} where an object is needed")
        if decoded.notes and isinstance(row.get("metadata") or {}, dict):
            row["metadata"] = {DECODING_KEY: "; ".join(decoded.notes), **(row.get("metadata") or {})}
        return row_document(row, uri, place, max_bytes)
    except ReadFailure as failure:
        doc_id = row_id(row) if isinstance(row, dict) else ""
        return make_reject(doc_id, uri, failure.reason, f"{place}: {failure.detail}", decoded.text.strip())
