"""One row {id, title, text, uri?, metadata?} of a JSONL or Parquet source to a document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from resin_core.ids import content_hash
from resin_core.readers.rejects import ReadDocument, ReadFailure
from resin_core.readers.sources import MAX_DOC_ID_CHARS
from resin_core.readers.titles import first_line
from resin_core.records import Document
from resin_core.text.decode import decode, scrub

FIELDS: Final = ("id", "title", "text", "uri", "metadata")
DECODING_KEY: Final = "decoding"


def row_id(row: Mapping[str, Any]) -> str:
    """The row's id as text, or "" where it has no usable one; for Reject rows."""
    value = row.get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() <= 1024 else ""
    if isinstance(value, bytes):
        value = decode(value).text
    return value if isinstance(value, str) and len(value) <= MAX_DOC_ID_CHARS else ""


def row_document(row: Mapping[str, Any], default_uri: str, place: str, max_bytes: int) -> ReadDocument:
    """The row as a document; fields other than id, title, text, uri and metadata are left out.

    A whole number is allowed as id. Without a title, the text's first line or the id stands in. Metadata values that
    are not text become compact JSON; null values are left out. Raises ReadFailure with the reason.
    """
    notes: list[str] = []
    doc_id = _doc_id(row)
    text = _text(row, "text", notes)
    if text is None:
        raise ReadFailure("missing-text", "the field 'text' is missing")
    if len(text) > max_bytes or len(text.encode("utf-8", "replace")) > max_bytes:
        raise ReadFailure("too-large", f"the text is over {max_bytes} bytes")
    if not text.strip():
        raise ReadFailure("empty", "the text is empty or only white space")
    title = (_text(row, "title", notes) or "").strip()
    uri = (_text(row, "uri", notes) or "").strip()
    metadata = _metadata(row)
    if notes:
        metadata.setdefault(DECODING_KEY, "; ".join(notes))
    document = Document(
        doc_id=doc_id,
        title=title or first_line(text, doc_id),
        text=text,
        uri=uri or default_uri,
        metadata=metadata,
        content_hash=content_hash(text),
    )
    return ReadDocument(document=document, place=place)


def _doc_id(row: Mapping[str, Any]) -> str:
    value = row.get("id")
    if isinstance(value, bool) or not isinstance(value, (str, int, bytes, type(None))):
        raise ReadFailure("wrong-type", f"the field 'id' is {type(value).__name__}; give text or a whole number")
    if isinstance(value, int):
        doc_id = row_id(row)
        if not doc_id:
            raise ReadFailure("id-too-long", "the field 'id' is a number of more than 300 digits")
        return doc_id
    doc_id = _text(row, "id", []) or ""
    if not doc_id.strip():
        raise ReadFailure("missing-id", "the field 'id' is missing or empty")
    if len(doc_id) > MAX_DOC_ID_CHARS:
        raise ReadFailure("id-too-long", f"the id has {len(doc_id)} characters; at most {MAX_DOC_ID_CHARS}")
    return doc_id


def _text(row: Mapping[str, Any], field: str, notes: list[str]) -> str | None:
    """The field as text; Parquet hands over bytes, which need not be sound UTF-8."""
    value = row.get(field)
    if value is None:
        return None
    if isinstance(value, bytes):
        decoded = decode(value)
        notes.extend(f"{field}: {note}" for note in decoded.notes)
        return decoded.text
    if not isinstance(value, str):
        raise ReadFailure("wrong-type", f"the field {field!r} is {type(value).__name__}; give text")
    return scrub(value)


def _metadata(row: Mapping[str, Any]) -> dict[str, str]:
    value = row.get("metadata")
    if value is None:
        return {}
    if isinstance(value, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        value = dict(value)  # An Arrow map.
    if not isinstance(value, dict):
        raise ReadFailure("wrong-type", f"the field 'metadata' is {type(value).__name__}; give an object")
    return {scrub(str(key)): _plain(entry) for key, entry in value.items() if entry is not None}


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, bytes):
        return decode(value).text
    if value is None or isinstance(value, (bool, int, float, list, tuple, dict)):
        return scrub(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
    return scrub(str(value))
