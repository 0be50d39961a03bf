"""A round's rules without a cluster: what is kept at once, what only when the round is over, and what ends it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs import vllm_rows
from jobs.vllm_engine import Failure, Filled, Keep, fill, watched
from resin_core.config import ResinConfig
from resin_core.errors import JobError, StoreError
from resin_core.llm.pending import FAILED, TOO_LONG
from resin_core.llm.protocol import Message, Request
from resin_core.records import Usage
from resin_core.store.filesystem import IndexFolder
from resin_core.store.replies import DocumentReplies, ReplyFolder

ASK = Request(messages=(Message(role="user", content="hi"),), max_tokens=50, prompt_id="p@1")


class Blocks:
    """As much of a Dataset as a round uses: blocks, a stage over them, and the rows of what it gives."""

    def __init__(self, *blocks: pa.Table) -> None:
        self.blocks = list(blocks)
        self.stages: list[Any] = []

    def map_batches(self, stage: Any, fn_constructor_args: tuple[Any, ...], **options: Any) -> Blocks:
        assert (options["batch_size"], options["batch_format"]) == (None, "pyarrow")
        after = Blocks(*self.blocks)
        after.stages = [*self.stages, stage(*fn_constructor_args)]
        return after

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        for given in self.blocks:
            done = given
            for stage in self.stages:
                done = stage(done)
            yield from done.to_pylist()


class FullReplies(ReplyFolder):
    """A ledger that takes nothing."""

    def of(self, doc_id: str) -> DocumentReplies:
        raise StoreError(f"cannot write for {doc_id}: the disk is full")


def good(doc_id: str, key: str, text: str = "{}") -> dict[str, Any]:
    return {
        "doc_id": doc_id, "key": key, "max_tokens": 50, "generated_text": text, "num_input_tokens": 30,
        "num_generated_tokens": 5, "time_taken_llm": 0.1, vllm_rows.ERROR: "",
    }  # fmt: skip


def bad(doc_id: str, key: str) -> dict[str, Any]:
    return {"doc_id": doc_id, "key": key, "prompt": "x", vllm_rows.ERROR: f"ValueError: no grammar for {key}"}


def too_long(doc_id: str, key: str) -> dict[str, Any]:
    return vllm_rows.engine_row(doc_id, key, ASK, 7, [1] * 100, 120)


def block(*rows: dict[str, Any]) -> pa.Table:
    """As Ray makes a block of rows that differ: what a row lacks is null."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])


def config(**indexing: Any) -> ResinConfig:
    return ResinConfig.model_validate({"llm": {"model": "m", "vllm": {"stall_s": 20}}, "indexing": indexing})


def answered(place: Path, settings: ResinConfig, *blocks: pa.Table, **more: Any) -> tuple[Filled, ReplyFolder]:
    replies = ReplyFolder(IndexFolder.at(place), "r")
    return fill("requests", settings, replies, lambda requests: Blocks(*blocks), **more), replies


def kept(place: Path) -> dict[str, str]:
    """Finish reasons by document and key."""
    found = {}
    replies = ReplyFolder(IndexFolder.at(place), "r")
    for doc_id in ("a", "b"):
        found |= {f"{doc_id}/{key}": reply.finish_reason for key, reply in replies.of(doc_id).all().items()}
    return found


def test_replies_refusals_and_counts_of_a_round(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    filled, replies = answered(
        tmp_path,
        config(),
        block(good("a", "1", "one"), bad("b", "2"), too_long("b", "3")),
        block(good("b", "1", "two")),
        progress=lambda now: seen.append((now.requests, len(now.failures))),
    )
    assert kept(tmp_path) == {"a/1": "stop", "b/1": "stop", "b/2": FAILED, "b/3": TOO_LONG}
    assert (replies.of("a").all()["1"].text, replies.of("b").all()["1"].text) == ("one", "two")
    assert replies.of("b").all()["2"].text == "ValueError: no grammar for 2"
    assert (filled.requests, filled.too_long) == (4, 1)
    assert filled.failures == [Failure("b", "2", "ValueError: no grammar for 2")]
    assert filled.usage == Usage(llm_calls=2, prompt_tokens=60, completion_tokens=10)
    assert seen == [(3, 1), (4, 1)]


def test_a_block_s_replies_are_kept_before_it_is_told_of_and_failures_only_at_the_end(tmp_path: Path) -> None:
    def told(now: Filled) -> None:
        assert kept(tmp_path) == {"a/1": "stop"}
        raise JobError("enough")

    with pytest.raises(JobError, match="enough"):
        answered(tmp_path, config(), block(good("a", "1"), bad("b", "2")), progress=told)
    assert kept(tmp_path) == {"a/1": "stop"}


def test_more_failures_than_allowed_end_the_round_and_are_asked_again_by_the_next_run(tmp_path: Path) -> None:
    rows = [*(good("a", str(n)) for n in range(4)), *(bad("b", str(n)) for n in range(2))]
    with pytest.raises(JobError, match=r"2 of 6 requests failed .*max_error_ratio 0\.3; first: .*no grammar for 0"):
        answered(tmp_path, config(judge_after=6, max_error_ratio=0.3), block(*rows))
    assert len(kept(tmp_path)) == 4 and FAILED not in kept(tmp_path).values()


@pytest.mark.parametrize(
    "rule", [{"judge_after": 7, "max_error_ratio": 0.3}, {"judge_after": 6, "max_error_ratio": 0.34}]
)
def test_few_requests_or_few_failures_do_not_end_the_round(tmp_path: Path, rule: dict[str, float]) -> None:
    rows = [*(good("a", str(n)) for n in range(4)), *(bad("b", str(n)) for n in range(2))]
    filled, _ = answered(tmp_path, config(**rule), block(*rows))
    assert len(filled.failures) == 2 and list(kept(tmp_path).values()).count(FAILED) == 2


def test_a_ledger_that_cannot_be_written_raises_its_own_error(tmp_path: Path) -> None:
    stage = Keep(FullReplies(IndexFolder.at(tmp_path), "r"), "m", None)
    with pytest.raises(StoreError, match="the disk is full"):
        stage(block(good("a", "1")))


def test_no_requests_are_no_error(tmp_path: Path) -> None:
    filled, _ = answered(tmp_path, config())
    assert filled == Filled()


def test_silence_ends_the_round_and_names_the_setting() -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"n": 1}
        time.sleep(30)

    read = watched(rows, 0.3)
    assert next(read) == {"n": 1}
    with pytest.raises(JobError, match=r"for 0\.3 s \(llm\.vllm\.stall_s\)"):
        next(read)


def test_an_engine_that_died_is_one_clear_error() -> None:
    import ray.exceptions

    def rows() -> Iterator[dict[str, Any]]:
        yield {"n": 1}
        raise ray.exceptions.RayActorError(error_msg="long story\nRuntimeError: CUDA out of memory")

    read = watched(rows, 20.0)
    assert next(read) == {"n": 1}
    with pytest.raises(JobError, match=r"could not be kept running: .*CUDA out of memory"):
        next(read)


def test_an_error_of_ours_inside_a_task_keeps_its_wrapping_for_the_session() -> None:
    import ray.exceptions

    wrapped = ray.exceptions.RayTaskError("f", "trace", StoreError("the disk is full"))

    def rows() -> Iterator[dict[str, Any]]:
        raise wrapped
        yield {}

    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        next(watched(rows, 20.0))
    assert caught.value is wrapped


def test_a_reader_that_is_left_stops_at_its_next_row() -> None:
    given: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        for n in range(100_000):
            given.append(n)
            time.sleep(0.01)
            yield {"n": n}

    read = watched(rows, 20.0)
    next(read)
    read.close()  # type: ignore[attr-defined]
    time.sleep(0.5)
    count = len(given)
    time.sleep(0.5)
    assert len(given) == count
