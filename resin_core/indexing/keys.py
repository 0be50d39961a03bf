"""Content keys: what an extraction result depends on, and so when it may be used again."""

from __future__ import annotations

from collections.abc import Mapping

from resin_core import ids
from resin_core.config.sections import IndexingSection
from resin_core.indexing.extract import prompts_used
from resin_core.records import Document

_SETTINGS = (
    "window_sentences",
    "window_chars",
    "max_sentence_chars",
    "max_units_per_sentence",
    "repair_attempts",
    "single_call",
)

RULES = 1
"""Of splitting, grounding and normalising: raised when the same replies would give other units."""


def document_key(document: Document) -> str:
    """Of everything that the model sees or the index stores of a document."""
    return content_key(document.doc_id, document.title, document.uri, document.content_hash, document.metadata)


def content_key(doc_id: str, title: str, uri: str, content_hash: str, metadata: Mapping[str, str]) -> str:
    """`document_key` where the text itself is not at hand."""
    pairs = [part for pair in sorted(metadata.items()) for part in pair]
    return ids.digest((doc_id, title, uri, content_hash, *pairs), 32)


def extraction_key(settings: IndexingSection, model: str) -> str:
    """Of prompts, model and settings: results under another key are not mixed in."""
    values = [f"{name}={getattr(settings, name)}" for name in _SETTINGS]
    prompts = [part for pair in sorted(prompts_used(settings).items()) for part in pair]
    return ids.digest((model, f"rules={RULES}", *values, *prompts), 16)
