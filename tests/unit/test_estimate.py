"""An estimate is made of the sources' own prompts, and scaled to all documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resin_core.config import load_config
from resin_core.errors import SourceError
from resin_core.indexing.estimate import estimate
from resin_core.indexing.keys import document_key, extraction_key
from resin_core.readers.read import read_source
from resin_core.readers.rejects import ReadDocument
from resin_core.readers.sources import SourceFile, list_sources
from resin_core.store.filesystem import IndexFolder
from resin_core.store.replies import ReplyFolder
from tests.scripted_llm import ScriptedServer
from tests.scripted_llm.indexing_replies import play

NOTHING: frozenset[str] = frozenset()


def corpus(path: Path, documents: int, sentences: int = 3) -> Path:
    texts = [" ".join(f"Mast {n}-{at} weighs {n + at} tonnes." for at in range(sentences)) for n in range(documents)]
    lines = [json.dumps({"id": f"d{n}", "title": f"d{n}", "text": text}) for n, text in enumerate(texts)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def config(*settings: str):  # type: ignore[no-untyped-def]
    return load_config(None, ["llm.model=scripted", *settings], env={})


def test_calls_are_counted_on_a_sample_and_scaled(tmp_path: Path) -> None:
    source = corpus(tmp_path / "c.jsonl", 40, sentences=25)
    found = estimate([str(source)], config(), NOTHING, documents=10)
    assert (found.documents, found.sampled, found.llm_calls) == (40, 10, 120)
    assert found.prompt_tokens > found.completion_tokens > 0
    assert (found.seconds, found.measured, found.cost) == (None, None, 0.0)
    whole = estimate([str(source)], config(), NOTHING, documents=1000)
    assert whole.llm_calls == 120
    assert whole.prompt_tokens == pytest.approx(found.prompt_tokens, rel=0.02)


def test_prices_make_a_cost(tmp_path: Path) -> None:
    source = corpus(tmp_path / "c.jsonl", 5)
    found = estimate([str(source)], config("llm.prompt_price=2", "llm.completion_price=10"), NOTHING, 10)
    assert found.cost == pytest.approx((2 * found.prompt_tokens + 10 * found.completion_tokens) / 1e6, abs=1e-4)


def test_what_the_index_holds_costs_nothing(tmp_path: Path) -> None:
    source = corpus(tmp_path / "c.jsonl", 10)
    (file,) = (item for item in list_sources([str(source)]) if isinstance(item, SourceFile))
    read = [item.document for item in read_source(file, 10**6) if isinstance(item, ReadDocument)]
    known = frozenset(document_key(document) for document in read[:6])
    found = estimate([str(source)], config(), known, 100)
    assert (found.unchanged_share, found.llm_calls) == (0.6, 4)


def test_files_of_every_kind_are_counted(tmp_path: Path) -> None:
    corpus(tmp_path / "a.jsonl", 3)
    pq.write_table(pa.table({"id": ["x", "y"], "text": ["One thing.", "Two things."]}), tmp_path / "b.parquet")
    (tmp_path / "c.txt").write_text("Some text.")
    (tmp_path / "broken.parquet").write_bytes(b"no parquet")
    assert estimate([str(tmp_path)], config(), NOTHING, 100).documents == 6


def test_sources_without_a_document_cannot_be_estimated(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("  \n")
    with pytest.raises(SourceError, match="nothing can be estimated"):
        estimate([str(tmp_path)], config(), NOTHING, 100)


def test_documents_read_by_the_model_give_time_and_are_kept(
    tmp_path: Path, scripted_llm: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    scripted_llm.script(play)
    scripted_llm.latency_s = 0.2
    source = corpus(tmp_path / "c.jsonl", 40)
    settings = config("llm.max_concurrency=4")
    replies = ReplyFolder(IndexFolder.at(tmp_path / "index"), extraction_key(settings.indexing, "scripted"))
    base_url: Callable[[], str] = lambda: scripted_llm.base_url  # noqa: E731
    found = estimate([str(source)], settings, NOTHING, 20, base_url, replies, read=4)
    assert len(scripted_llm.chats) == 4
    assert found.measured is not None
    assert found.measured.llm_calls == 4
    assert found.llm_calls == 40
    assert found.seconds is not None
    # Ten rounds of four calls, 0.2 s each, and what the machine adds.
    assert 2.0 <= found.seconds < 20
    assert sum(bool(replies.of(f"d{n}").all()) for n in range(40)) == 4
    again = estimate([str(source)], settings, NOTHING, 20, base_url, replies, read=4)
    assert len(scripted_llm.chats) == 4, "kept replies are not asked for again"
    assert again.seconds is None
