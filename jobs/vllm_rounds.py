"""The job's model work with vLLM engines of its own: rounds of requests until the ledger answers every document.

Each round runs the extraction of all documents against the replies kept so far, notes what it still asks for, and has
that answered in one go. Repairs of bad replies, second calls and halves of windows that were too long come in the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyarrow as pa

from jobs import former, policy, rows
from jobs.vllm_engine import Filled, fill
from jobs.vllm_processor import COLUMNS
from jobs.work import WorkFolder
from resin_core.config import IndexingSection, LLMSection, ResinConfig
from resin_core.errors import BudgetError, JobError, LLMReplyError, StoppedError
from resin_core.indexing.document import index_document
from resin_core.llm.patient import GAVE_UP
from resin_core.llm.pending import NotYetError, PendingModel
from resin_core.llm.protocol import Deadline, Reply, Request
from resin_core.records import Usage

_MAX_ROUNDS = 24
"""Two calls, repairs of both, and windows halved down to one sentence stay well below."""


def answer(
    staged: Any, work: WorkFolder, config: ResinConfig, tell: Callable[[int, int], None], halted: Callable[[], str]
) -> tuple[Usage, int]:
    """Answers all that the documents of `staged` ask for; gives the usage, and how many documents asked for anything.

    `staged` is a Dataset as `stages.Staged` gives it; it is read once a round. `tell` hears of requests answered and
    asked, `halted` gives a reason to stop, or "". Raises JobError, BudgetError, StoppedError; replies are kept.
    """
    usage, documents = Usage(), 0
    for number in range(1, _MAX_ROUNDS + 1):
        asked = staged.map_batches(
            Ask,
            fn_constructor_args=(work, config.llm, config.indexing),
            batch_size=None,
            batch_format="pyarrow",
            compute=_readers(),
            num_cpus=0.5,
        ).materialize()
        counted = asked.map_batches(_count, batch_format="pyarrow", batch_size=None).take_all()
        total = sum(row["requests"] for row in counted)
        if not total:
            return usage, documents
        if number == 1:
            documents = sum(row["documents"] for row in counted)
        before = usage

        def heard(done: Filled, before: Usage = before, total: int = total) -> None:
            tell(done.requests, total)
            _check(before + done.usage, config, halted())

        usage = before + fill(asked, config, work.replies, progress=heard).usage
    raise JobError(f"documents still ask for replies after {_MAX_ROUNDS} rounds; {policy.KEPT}")


class Ask:
    """Staged documents to the requests that the ledger cannot answer yet."""

    def __init__(self, work: WorkFolder, llm: LLMSection, settings: IndexingSection) -> None:
        self._work, self._llm, self._settings = work, llm, settings

    def __call__(self, batch: pa.Table) -> pa.Table:
        """One row a request: doc_id, key, request (JSON)."""
        return asyncio.run(self._all(batch))

    async def _all(self, batch: pa.Table) -> pa.Table:
        found: list[tuple[str, str, str]] = []
        for at, document in enumerate(rows.documents_of(batch)):
            replies = self._work.replies.of(document.doc_id).all()
            pending = PendingModel(self._llm.model, self._llm.seed, replies)
            with contextlib.suppress(NotYetError):
                await index_document(document, pending, self._settings, former.former_of(batch, at))
            found += [(document.doc_id, key, request.model_dump_json()) for key, request in pending.open.items()]
        columns = list(zip(*found, strict=True)) if found else [()] * len(COLUMNS)
        return pa.table({name: pa.array(column, pa.string()) for name, column in zip(COLUMNS, columns, strict=True)})


class KeptOnly:
    """The end of the stack where all replies are in the ledger: one that is missing is a call given up."""

    usage = Usage()
    in_use = waiting = overloads = 0

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    async def complete(self, request: Request, deadline: Deadline | None = None) -> Reply:  # noqa: ARG002
        """Raises LLMReplyError."""
        raise LLMReplyError(f"{GAVE_UP}missing", f"no reply to prompt {request.prompt_id!r} was kept", "")

    async def stream(self, request: Request, deadline: Deadline | None = None) -> AsyncIterator[str | Reply]:
        """Raises LLMReplyError."""
        yield await self.complete(request, deadline)

    def resize(self, limit: int) -> None:
        """No calls, no limit."""

    async def models(self, timeout_s: float) -> list[Any]:  # noqa: ARG002
        """Always there."""
        return []


def _check(used: Usage, config: ResinConfig, reason: str) -> None:
    if reason:
        raise StoppedError(reason)
    if policy.price_of(config.indexing, config.llm)(used) >= 1.0:
        raise BudgetError(policy.spent(used, config.indexing, config.llm))


def _count(block: pa.Table) -> pa.Table:
    asking = len(block.column("doc_id").unique())
    return pa.table({"requests": pa.array([block.num_rows]), "documents": pa.array([asking])})


def _readers() -> Any:
    import ray

    return ray.data.ActorPoolStrategy(min_size=1, max_size=2)
