from __future__ import annotations

from typing import Any

import pytest

from resin_core.config.sections import IndexingSection
from resin_core.ids import content_hash
from resin_core.indexing import extract, keys
from resin_core.indexing.keys import document_key, extraction_key
from resin_core.prompts.base import Prompt
from resin_core.records import Document

BASE = {"doc_id": "d", "title": "t", "text": "x", "uri": "u", "metadata": {"a": "b"}, "content_hash": content_hash("x")}


def key_of(**values: Any) -> str:
    return document_key(Document(**BASE | values))


@pytest.mark.parametrize(
    "values",
    [
        {"doc_id": "e"},
        {"title": "s"},
        {"uri": "v"},
        {"content_hash": content_hash("y"), "text": "y"},
        {"metadata": {}},
        {"metadata": {"a": "c"}},
        {"metadata": {"ab": ""}},
        {"title": "tu", "uri": ""},
    ],
)
def test_whatever_the_model_sees_or_the_index_stores_changes_the_key(values: dict[str, Any]) -> None:
    assert key_of(**values) != key_of()


def test_the_order_of_metadata_does_not() -> None:
    assert key_of(metadata={"a": "1", "b": "2"}) == key_of(metadata={"b": "2", "a": "1"})


@pytest.mark.parametrize(
    "values",
    [
        {"window_sentences": 11},
        {"window_chars": 4001},
        {"single_call": False},
        {"max_sentence_chars": 900},
        {"max_units_per_sentence": 3},
        {"repair_attempts": 0},
    ],
)
def test_settings_that_change_what_is_extracted_change_the_key(values: dict[str, Any]) -> None:
    assert extraction_key(IndexingSection(**values), "m") != extraction_key(IndexingSection(), "m")


@pytest.mark.parametrize(
    "values",
    [{"llm_actors": 3}, {"encoder_actors": 2}, {"documents_per_task": 1}, {"cpus": 2}, {"max_document_bytes": 9999}],
)
def test_settings_of_the_machine_do_not(values: dict[str, Any]) -> None:
    assert extraction_key(IndexingSection(**values), "m") == extraction_key(IndexingSection(), "m")


def test_another_model_or_prompt_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = extraction_key(IndexingSection(), "m")
    assert extraction_key(IndexingSection(), "n") != before
    monkeypatch.setattr(extract.index_document, "PROMPT", Prompt("index_document", "another text"))
    assert extraction_key(IndexingSection(), "m") != before


def test_other_rules_of_grounding_make_other_results(monkeypatch: pytest.MonkeyPatch) -> None:
    before = extraction_key(IndexingSection(), "m")
    monkeypatch.setattr(keys, "RULES", keys.RULES + 1)
    assert extraction_key(IndexingSection(), "m") != before
