"""A source file to its documents: whatever is wrong with it becomes a Reject row and never stops a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from resin_core.ids import content_hash
from resin_core.readers.jsonl import read_jsonl
from resin_core.readers.opening import read_bytes
from resin_core.readers.pages import decode_page, page_text
from resin_core.readers.parquet import read_parquet
from resin_core.readers.pdf import pdf_text
from resin_core.readers.rejects import ReadDocument, ReadFailure, make_reject, named
from resin_core.readers.rows import DECODING_KEY
from resin_core.readers.sources import SourceFile, SourceKind
from resin_core.readers.titles import first_line, markdown_title
from resin_core.readers.word import word_text
from resin_core.records import Document, Reject
from resin_core.text.decode import Decoded, decode

_ROW_READERS: Final = {SourceKind.JSONL: read_jsonl, SourceKind.PARQUET: read_parquet}


def read_source(file: SourceFile, max_document_bytes: int) -> Iterator[ReadDocument | Reject]:
    """The documents of one file, streamed; a JSONL or Parquet file gives one result for each row, others one.

    Nothing is raised for what a file holds: it becomes a Reject of stage "read", with one of the reasons unreadable,
    too-large, empty, encrypted, no-text, corrupt, invalid-json, invalid-record, wrong-encoding, missing-column,
    missing-id, id-too-long, missing-text, wrong-type. `max_document_bytes` holds for a whole file, or for one row.
    """
    try:
        rows = _ROW_READERS.get(file.kind)
        if rows is not None:
            yield from rows(file, max_document_bytes)
        else:
            yield ReadDocument(document=_whole_file(file, max_document_bytes), place=file.path)
    except ReadFailure as failure:
        yield make_reject(file.doc_id, file.path, failure.reason, failure.detail)
    except OSError as error:
        # pyarrow reports some broken files as OSError without a number.
        reason = "corrupt" if file.kind is SourceKind.PARQUET and error.errno is None else "unreadable"
        yield make_reject(file.doc_id, file.path, reason, named(error))
    except Exception as error:  # a third-party reader may raise anything; one file is not the run
        yield make_reject(file.doc_id, file.path, "corrupt", named(error))


def _whole_file(file: SourceFile, max_bytes: int) -> Document:
    raw = read_bytes(file.path, max_bytes)
    if not raw.strip():
        raise ReadFailure("empty", "the file is empty or only white space")
    metadata: dict[str, str] = {}
    title = ""
    if file.kind is SourceKind.PDF:
        text, title, metadata = pdf_text(raw, max_bytes)
    elif file.kind is SourceKind.DOCX:
        text, title = word_text(raw, max_bytes)
    elif file.kind is SourceKind.HTML:
        decoded = decode_page(raw)
        _note(decoded, metadata)
        text, title = page_text(decoded.text)
    else:
        decoded = decode(raw)
        _note(decoded, metadata)
        text = decoded.text
    if not text.strip():
        raise ReadFailure("empty", "no text in the file")
    stem = PurePath(file.path).stem
    if not title:
        title = markdown_title(text, stem) if file.kind is SourceKind.MARKDOWN else first_line(text, stem)
    return Document(
        doc_id=file.doc_id,
        title=title,
        text=text,
        uri=file.path,
        metadata=metadata,
        content_hash=content_hash(text),
    )


def _note(decoded: Decoded, metadata: dict[str, str]) -> None:
    if decoded.notes:
        metadata[DECODING_KEY] = "; ".join(decoded.notes)
