"""Stable identifiers: every id is a hash of content, so a rerun writes the same ids.

Source: RESIN section 3.3 (stable unit ids) and appendix A.5 (normaliser).
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable

_SEPARATOR = b"\x1f"


def digest(parts: Iterable[str], length: int = 16) -> str:
    """Hex digest of the parts, each ended by a separator so that ("ab", "c") and ("a", "bc") differ."""
    h = hashlib.sha256()
    for part in parts:
        h.update(part.encode("utf-8", "surrogatepass"))
        h.update(_SEPARATOR)
    return h.hexdigest()[:length]


def content_hash(text: str) -> str:
    """SHA-256 (hex) of a document's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sentence_id(doc_id: str, number: int) -> str:
    """`doc_id#s12`; numbers count from 1 in document order."""
    return f"{doc_id}#s{number}"


def passage_id(doc_id: str, text: str, ordinal: int) -> str:
    """From the document's id and the passage's text; `ordinal` counts repeats of one text from 0."""
    return "p" + digest((doc_id, text, str(ordinal)))


def unit_id(kind: str, claim: str, passage: str) -> str:
    """From the kind, the normalised claim and the passage."""
    return "u" + digest((kind, claim, passage))


def normalise_claim(text: str) -> str:
    """Case, width and white space folded away: two spellings of one claim give one id."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
