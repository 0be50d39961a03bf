"""Model calls answered by vLLM engines inside the job, through `ray.data.llm`: requests in, replies into the ledger.

Workers keep the replies of a batch before the driver hears of it, so a job that is killed repeats no more than the
batches in flight.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from jobs import vllm_rows
from jobs.vllm_processor import Engine, vllm_engine
from resin_core.config import IndexingSection, ResinConfig
from resin_core.errors import JobError, ResinError
from resin_core.indexing.extract import together
from resin_core.llm.kept import ReplyStore
from resin_core.llm.pending import FAILED, TOO_LONG, refusal
from resin_core.records import Usage

_CAUSES = 3


class Replies(Protocol):
    """Where replies lie, document by document; picklable, because it goes to workers."""

    def of(self, doc_id: str) -> ReplyStore:
        """The store of one document's replies."""
        ...


class Failure(NamedTuple):
    """A request that the engine could not answer, and why."""

    doc_id: str
    key: str
    message: str


@dataclass
class Filled:
    """What one round did. `too_long`: prompts that do not fit; the next round asks for halves of their windows."""

    requests: int = 0
    too_long: int = 0
    usage: Usage = field(default_factory=Usage)
    failures: list[Failure] = field(default_factory=list)


def fill(
    requests: Any,
    config: ResinConfig,
    replies: Replies,
    engine: Engine | None = None,
    progress: Callable[[Filled], None] | None = None,
) -> Filled:
    """Has every request answered, and its reply kept under its key in the store of its document.

    `requests` is a Ray Dataset of `vllm_processor.COLUMNS`, in any order; `engine` is the configured one unless given.
    `progress` is called after each batch; what it raises ends the round. Prompts that are too long are kept as
    refusals at once, requests that fail alone when the round is over (see `pending.answered`). Not to be called from
    an event loop.

    Raises JobError when no batch ends within `llm.vllm.stall_s`, when an engine cannot be kept alive, and when more
    than `indexing.max_error_ratio` of at least `indexing.judge_after` requests failed: those are then not kept, so
    that the next run asks again. ConfigError for settings that vLLM does not take.
    """
    answers = (engine or vllm_engine(config))(requests).map_batches(
        Keep,
        fn_constructor_args=(replies, config.llm.model, config.llm.context_tokens),
        batch_size=None,
        batch_format="pyarrow",
        compute=_pool(config.llm.vllm.replicas),
        num_cpus=0.25,
    )
    filled = Filled()
    for row in watched(answers.iter_rows, config.llm.vllm.stall_s):
        filled.requests += row["requests"]
        filled.too_long += row["too_long"]
        filled.usage += Usage(**{name: row[name] for name in Usage.model_fields})
        filled.failures += [Failure(**one) for one in row["failures"]]
        _judge(filled, config.indexing)
        if progress is not None:
            progress(filled)
    refused = [
        vllm_rows.Outcome(one.doc_id, one.key, refusal(FAILED, one.message, config.llm.model), one.message)
        for one in filled.failures
    ]
    asyncio.run(_put(replies, refused))
    return filled


class Keep:
    """Puts a block's replies into the store; the row it gives holds counts and failures.

    A failure is not kept here: a fault of the engine must not stand in the ledger as the answer to every request.
    """

    def __init__(self, replies: Replies, model: str, context_tokens: int | None) -> None:
        self._replies, self._model, self._context = replies, model, context_tokens

    def __call__(self, block: pa.Table) -> pa.Table:
        """One row: requests, too_long, the fields of Usage, failures."""
        outcomes = [vllm_rows.outcome(row, self._model, self._context) for row in block.to_pylist()]
        good = [one for one in outcomes if not one.failure]
        asyncio.run(_put(self._replies, good))
        usage = sum((one.reply.usage for one in good), Usage())
        too_long = sum(one.reply.finish_reason == TOO_LONG for one in good)
        counts = {"requests": len(outcomes), "too_long": too_long, **usage.model_dump()}
        failures = [Failure(one.doc_id, one.key, one.failure)._asdict() for one in outcomes if one.failure]
        kind = pa.list_(pa.struct([(name, pa.string()) for name in Failure._fields]))
        columns = {name: pa.array([value], pa.int64()) for name, value in counts.items()}
        return pa.table({**columns, "failures": pa.array([failures], kind)})


def watched(rows: Callable[[], Iterable[dict[str, Any]]], stall_s: float) -> Iterator[dict[str, Any]]:
    """The rows, read in a thread of their own. Raises JobError when the next one takes longer than `stall_s`, and for
    Ray's errors; others pass through. A reader that is left goes on until its next row, or until Ray ends."""
    import ray.exceptions

    given: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    left = threading.Event()

    def read() -> None:
        try:
            for row in rows():
                if left.is_set():
                    return
                given.put(("row", row))
        except BaseException as error:  # handed on to the caller's thread, whatever it is
            given.put(("error", error))
        else:
            given.put(("end", None))

    threading.Thread(target=read, name="resin-vllm-rows", daemon=True).start()
    try:
        while True:
            try:
                kind, value = given.get(timeout=stall_s)
            except queue.Empty:
                raise JobError(
                    f"no vLLM engine has finished a batch for {stall_s:g} s (llm.vllm.stall_s); it may wait for GPUs "
                    "or memory that are not there, or hang: see Ray's logs of vLLMEngineStageUDF. What was done is "
                    "kept, and the same command goes on from there"
                ) from None
            if kind == "end":
                return
            if kind == "row":
                yield value
            elif isinstance(value, ray.exceptions.RayError) and not _is_ours(value):
                raise JobError(f"a vLLM engine could not be kept running: {_last_line(value)}") from value
            else:
                raise value
    finally:
        left.set()


def _judge(filled: Filled, settings: IndexingSection) -> None:
    failed = len(filled.failures)
    if filled.requests < settings.judge_after or failed <= settings.max_error_ratio * filled.requests:
        return
    causes = "; ".join(dict.fromkeys(one.message for one in filled.failures[:_CAUSES]))
    raise JobError(
        f"{failed} of {filled.requests} requests failed in the vLLM engine, more than indexing.max_error_ratio "
        f"{settings.max_error_ratio:g}; first: {causes}"
    )


def _pool(replicas: int) -> Any:
    import ray

    return ray.data.ActorPoolStrategy(min_size=1, max_size=max(2, replicas))


async def _put(replies: Replies, outcomes: Sequence[vllm_rows.Outcome]) -> None:
    stores: dict[str, ReplyStore] = {}
    for one in outcomes:
        if one.doc_id not in stores:
            stores[one.doc_id] = replies.of(one.doc_id)
    await together([stores[one.doc_id].put(one.key, one.reply) for one in outcomes])


def _is_ours(error: BaseException | None) -> bool:
    """Whether one of Resin's errors is behind it: `session` brings that to light."""
    while error is not None:
        if isinstance(error, ResinError):
            return True
        error = getattr(error, "cause", None) or error.__cause__
    return False


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:500]
