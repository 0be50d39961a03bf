"""Extraction with real vLLM engines inside Ray Data, on CPUs: ten documents, and the same records as over HTTP.

The 0.5B model writes poor claims, so nothing here judges what it says: only that every reply has the form asked for,
lies under its key, and that whatever was said is grounded or accounted for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jobs import rows, session
from jobs.vllm_engine import Filled, fill
from resin_core import sample
from resin_core.config import ResinConfig, load_config
from resin_core.ids import content_hash
from resin_core.indexing.document import Indexed, index_document
from resin_core.llm.kept import call_key
from resin_core.llm.pending import FAILED, TOO_LONG
from resin_core.llm.protocol import Reply, Request
from resin_core.records import Document, Usage
from resin_core.store.replies import ReplyFolder
from tests.integration.engine_rounds import dataset, one_pass, replies_at, row
from tests.scripted_llm import FakeChatModel
from tests.vllm.weights import MODEL, folder

pytestmark = [pytest.mark.model, pytest.mark.ray, pytest.mark.timeout(1500)]

SETTINGS = (
    f"llm.model={MODEL}",
    "llm.context_tokens=4096",
    "indexing.engine=vllm",
    "indexing.repair_attempts=0",
    "llm.vllm.device=cpu",
    "llm.vllm.gpu_memory_share=0.3",
    "llm.vllm.max_sequences=16",
    "llm.vllm.batch_size=8",
    "llm.vllm.dtype=bfloat16",
    "llm.vllm.enforce_eager=true",
)
ODD = "odd"


class Rounds(NamedTuple):
    """What the fixture's two rounds did."""

    config: ResinConfig
    replies: ReplyFolder
    asked: dict[str, Request]
    odd: dict[str, Request]
    filled: list[Filled]
    done: list[Indexed]
    two_calls: list[Indexed]


def settings(*more: str) -> ResinConfig:
    return load_config(None, [*SETTINGS, f"llm.vllm.model_path={folder()}", *more], env={})


def documents() -> list[Document]:
    files = sorted(Path(str(sample.corpus())).rglob("*.md"))
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    return [Document(doc_id=i, title=i, text=t, uri="u", content_hash=content_hash(t)) for i, t in texts.items()]


def odd_requests(like: Request) -> dict[str, Request]:
    """One that cannot fit, one whose schema is no schema."""
    last = like.messages[-1]
    long = last.model_copy(update={"content": last.content + " many words" * 4000})
    return {
        TOO_LONG: like.model_copy(update={"messages": (*like.messages[:-1], long)}),
        FAILED: like.model_copy(update={"json_schema": {"type": "no-such-type"}}),
    }


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    config, replies = settings(), replies_at(tmp_path_factory.mktemp("index"))
    paired = settings("indexing.single_call=false")
    with session.opened(config, {}):
        _, first = one_pass(documents(), config, replies)
        _, passages = one_pass(documents()[:1], paired, replies)
        asked = {one["key"]: Request.model_validate_json(one["request"]) for one in first}
        odd = odd_requests(next(iter(asked.values())))
        keyed = [row(ODD, call_key(config.llm.model, config.llm.seed, request), request) for request in odd.values()]
        filled = [fill(dataset([*first, *passages, *keyed]), config, replies)]
        _, units = one_pass(documents()[:1], paired, replies)
        if units:
            filled.append(fill(dataset(units), paired, replies))
        done, still = one_pass(documents(), config, replies)
        two_calls, left = one_pass(documents()[:1], paired, replies)
        assert (still, left) == ([], [])
        yield Rounds(config, replies, asked, odd, filled, done, two_calls)


def stored(rounds: Rounds, doc_id: str) -> dict[str, Reply]:
    return rounds.replies.of(doc_id).all()


def test_every_request_of_the_documents_is_answered_under_its_key(rounds: Rounds) -> None:
    assert len(rounds.done) == 10
    kept = {key: reply for one in rounds.done for key, reply in stored(rounds, one.document.doc_id).items()}
    assert rounds.asked.keys() <= kept.keys()
    for key, request in rounds.asked.items():
        reply = kept[key]
        assert call_key(rounds.config.llm.model, rounds.config.llm.seed, request) == key
        assert reply.model == MODEL
        assert 0 < reply.usage.completion_tokens <= request.max_tokens
        assert reply.usage.prompt_tokens > 500, "the worked examples are part of each prompt"
        assert reply.seconds > 0


def test_whole_replies_have_exactly_the_form_their_own_schema_asks_for(rounds: Rounds) -> None:
    whole = 0
    for one in rounds.done:
        for key, reply in stored(rounds, one.document.doc_id).items():
            if key not in rounds.asked or reply.finish_reason != "stop":
                continue
            schema: Any = rounds.asked[key].json_schema
            value = json.loads(reply.text)
            assert list(value) == ["units", "passages"]
            assert list(value["units"]) == list(schema["properties"]["units"]["properties"])
            whole += 1
    assert whole >= len(rounds.asked) // 2


def test_the_counts_are_those_of_the_replies(rounds: Rounds) -> None:
    assert len(rounds.filled) == 2, "units are asked for when the passages are known"
    first = rounds.filled[0]
    assert (first.requests, first.too_long) == (len(rounds.asked) + 3, 1)
    used = sum((one.usage for one in [*rounds.done, *rounds.two_calls]), Usage())
    assert sum((one.usage for one in rounds.filled), Usage()) == used


def test_what_the_engine_cannot_do_is_kept_as_a_refusal_with_its_reason(rounds: Rounds) -> None:
    kept = stored(rounds, ODD)
    found = {name: kept[call_key(MODEL, rounds.config.llm.seed, request)] for name, request in rounds.odd.items()}
    assert {name: reply.finish_reason for name, reply in found.items()} == {TOO_LONG: TOO_LONG, FAILED: FAILED}
    assert "llm.context_tokens is 4096" in found[TOO_LONG].text
    (failure,) = rounds.filled[0].failures
    assert failure.doc_id == ODD and found[FAILED].text == failure.message
    assert "no-such-type" in failure.message or "schema" in failure.message.lower() or "grammar" in failure.message


def test_units_are_grounded_and_nothing_is_lost(rounds: Rounds) -> None:
    assert sum(len(one.units) for one in rounds.done) > 0
    for one in [*rounds.done, *rounds.two_calls]:
        text = one.document.text
        assert {sentence for p in one.passages for sentence in p.sentence_ids} == {s.sentence_id for s in one.sentences}
        for unit in one.units:
            assert text[unit.char_start : unit.char_end] == unit.evidence_quote
        assert not [reject for reject in one.rejects if reject.reason == "llm-engine"]


def test_rows_have_the_columns_of_the_endpoint_engine(rounds: Rounds) -> None:
    over_http = asyncio.run(index_document(documents()[0], FakeChatModel(), rounds.config.indexing))
    one = rounds.done[0]
    assert rows.indexed_row("k", one, "e", 1).schema == rows.indexed_row("k", over_http, "e", 1).schema
    assert [p.text for p in one.passages] and one.sentences == over_http.sentences
