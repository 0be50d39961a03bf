"""Rounds of engine calls over Ray Data with a scripted engine: replies land under their keys, faults end the round."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs import session, vllm_rows
from jobs.vllm_engine import Filled, fill
from jobs.vllm_processor import engine_settings, vllm_engine
from resin_core.config import ResinConfig, load_config
from resin_core.errors import ConfigError, JobError, StoreError
from resin_core.ids import content_hash
from resin_core.llm.pending import FAILED, TOO_LONG
from resin_core.llm.protocol import Message, Request
from resin_core.records import Document, Usage
from resin_core.store.filesystem import IndexFolder
from tests.integration.engine_rounds import FullReplies, dataset, one_pass, replies_at, scripted, silent
from tests.integration.indexing_runs import local_ray, text_of

pytestmark = pytest.mark.ray
SETTINGS = ("llm.model=scripted", "indexing.engine=vllm", "indexing.window_sentences=2", "llm.vllm.batch_size=4")


@pytest.fixture(scope="module", autouse=True)
def running() -> Iterator[None]:
    with local_ray():
        yield


def config(*more: str) -> ResinConfig:
    return load_config(None, [*SETTINGS, *more], env={})


def documents(count: int) -> list[Document]:
    texts = {f"d{n}": text_of(n, 4) for n in range(count)}
    return [Document(doc_id=i, title=i, text=t, uri="u", content_hash=content_hash(t)) for i, t in texts.items()]


def test_a_round_answers_all_documents_and_leaves_nothing_open(tmp_path: Path) -> None:
    settings, replies, found = config("indexing.single_call=true"), replies_at(tmp_path), documents(6)
    done, still = one_pass(found, settings, replies)
    assert done == []
    seen: list[int] = []
    with session.opened(settings, {}):
        filled = fill(dataset(still), settings, replies, scripted, lambda now: seen.append(now.requests))
    assert (filled.requests, filled.too_long, filled.failures) == (12, 0, [])
    assert filled.usage == Usage(llm_calls=12, prompt_tokens=360, completion_tokens=60)
    assert seen == sorted(seen) and seen[-1] == 12 and len(seen) >= 3
    done, still = one_pass(found, settings, replies)
    assert still == []
    assert [one.document.doc_id for one in done] == [document.doc_id for document in found]
    # Each reply talks of the very sentences of its own document, so nothing was given by position.
    assert all(len(one.units) == 4 and not one.rejects for one in done)
    assert sum((one.usage for one in done), Usage()) == filled.usage


def test_a_request_that_fails_alone_is_kept_as_a_refusal_and_the_rest_as_replies(tmp_path: Path) -> None:
    settings, replies, found = config("indexing.repair_attempts=0"), replies_at(tmp_path), documents(3)
    _, still = one_pass(found, settings, replies)
    with session.opened(settings, {}):
        filled = fill(dataset(still), settings, replies, functools.partial(scripted, broken="title: d1\n[1]"))
    (failure,) = filled.failures
    assert (failure.doc_id, failure.message, filled.requests) == ("d1", "ValueError: no grammar", 6)
    assert replies.of("d1").all()[failure.key].finish_reason == FAILED
    done, still = one_pass(found, settings, replies)
    assert still == []
    assert [len(one.units) for one in done] == [4, 2, 4]
    assert [reject.reason for one in done for reject in one.rejects] == ["llm-engine"]


def test_too_many_failures_end_the_round_and_are_not_kept(tmp_path: Path) -> None:
    settings, replies = config("indexing.judge_after=5"), replies_at(tmp_path)
    _, still = one_pass(documents(4), settings, replies)
    with (
        pytest.raises(JobError, match=r"max_error_ratio 0\.2; first: ValueError: no grammar"),
        session.opened(settings, {}),
    ):
        fill(dataset(still), settings, replies, functools.partial(scripted, broken="title:"))
    assert list(tmp_path.rglob("*.json")) == []


def test_an_engine_that_does_nothing_ends_the_round(tmp_path: Path) -> None:
    settings = config("llm.vllm.stall_s=3")
    _, still = one_pass(documents(1), settings, replies_at(tmp_path))
    started = time.monotonic()
    with pytest.raises(JobError, match=r"for 3 s \(llm.vllm.stall_s\)"), session.opened(settings, {}):
        fill(dataset(still), settings, replies_at(tmp_path), silent)
    assert time.monotonic() - started < 30


def test_a_store_that_fails_ends_the_round_with_its_own_error(tmp_path: Path) -> None:
    settings = config()
    _, still = one_pass(documents(1), settings, replies_at(tmp_path))
    with pytest.raises(StoreError, match="the disk is full"), session.opened(settings, {}):
        fill(dataset(still), settings, FullReplies(IndexFolder.at(tmp_path), "test"), scripted)


def test_progress_may_end_the_round(tmp_path: Path) -> None:
    settings = config()
    _, still = one_pass(documents(1), settings, replies_at(tmp_path))

    def spent(now: Filled) -> None:
        raise JobError("the budget is used up")

    with pytest.raises(JobError, match="budget"), session.opened(settings, {}):
        fill(dataset(still), settings, replies_at(tmp_path), scripted, spent)
    assert len(replies_at(tmp_path).of("d0").all()) == 2, "what was paid for is kept"


def test_ray_takes_the_settings() -> None:
    from ray.data.llm import vLLMEngineProcessorConfig

    on_gpus = engine_settings(config("llm.vllm.tensor_parallel=2", "llm.vllm.replicas=3", "llm.context_tokens=4096"))
    taken = vLLMEngineProcessorConfig(**on_gpus)
    assert taken.concurrency == (3, 3)
    assert [bundle["GPU"] for bundle in taken.placement_group_config["bundles"]] == [1.0, 1.0]
    assert taken.engine_kwargs["tensor_parallel_size"] == 2
    assert taken.engine_kwargs["gpu_memory_utilization"] == 0.9
    assert taken.engine_kwargs["max_model_len"] == 4096
    assert taken.max_concurrent_batches * taken.batch_size >= taken.engine_kwargs["max_num_seqs"]
    on_cpus = vLLMEngineProcessorConfig(**engine_settings(config("llm.vllm.device=cpu")))
    assert [bundle["GPU"] for bundle in on_cpus.placement_group_config["bundles"]] == [0.0]


def test_the_weights_are_a_folder_or_a_hub_name() -> None:
    assert engine_settings(config())["model_source"] == "scripted"
    assert engine_settings(config("llm.vllm.model_path=/models/q"))["model_source"] == "/models/q"
    assert "max_model_len" not in engine_settings(config())["engine_kwargs"]


def test_without_vllm_the_settings_to_change_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.vllm_processor.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"indexing\.engine is vllm, but vllm is not installed"):
        vllm_engine(config())


def test_settings_that_ray_does_not_take_are_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.vllm_processor.find_spec", lambda name: object())
    monkeypatch.setattr("jobs.vllm_processor.engine_settings", lambda _: {"model_source": "m", "concurrency": (2, 1)})
    with pytest.raises(ConfigError, match=r"llm\.vllm: .*min > max"):
        vllm_engine(config())


def test_the_processor_takes_our_stages_and_none_that_only_hold_cpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("jobs.vllm_processor.find_spec", lambda name: object())
    settings = config(f"llm.vllm.model_path={tmp_path}", "llm.vllm.device=cpu")
    _, still = one_pass(documents(1), settings, replies_at(tmp_path / "index"))
    plan = repr(vllm_engine(settings)(dataset(still)))
    assert "Prepare" in plan and "vLLMEngineStageUDF" in plan
    assert not any(name in plan for name in ("ChatTemplate", "Tokenize", "Detokenize"))


def test_a_prompt_that_is_too_long_passes_rays_stages_untouched() -> None:
    """Row by row beside one that fits: what Ray does with a row that is marked as failed before it comes."""
    import numpy as np
    from ray.llm._internal.batch.stages.base import StatefulStageUDF, wrap_postprocess

    class Engine(StatefulStageUDF):
        async def udf(self, rows: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
            for row in rows:
                assert row["tokenized_prompt"], "only what fits is asked"
                yield {
                    self.IDX_IN_BATCH_COLUMN: row[self.IDX_IN_BATCH_COLUMN], "generated_text": "{}",
                    "num_input_tokens": 40, "num_generated_tokens": 3, "time_taken_llm": 0.1, vllm_rows.ERROR: "",
                }  # fmt: skip

    async def through(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        batch = {"__data": np.array(rows, dtype=object)}
        return [row async for given in Engine("__data", ["sampling_params"])(batch) for row in given["__data"]]

    request = Request(messages=(Message(role="user", content="hi"),), max_tokens=50, json_schema={"type": "object"})
    sizes = {"fits": 50, "long": 51}
    rows = [vllm_rows.engine_row("d", key, request, 7, [1] * size, 100) for key, size in sizes.items()]
    last = wrap_postprocess(vllm_rows.output_row, "__data", True)
    outcomes = [vllm_rows.outcome(last({"__data": row}), "m", 100) for row in asyncio.run(through(rows))]
    assert [(one.key, one.reply.finish_reason) for one in outcomes] == [("fits", "stop"), ("long", TOO_LONG)]
