"""One extraction actor's model and what it tells the watch: calls kept, budgeted, patient, within its share."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from jobs.orders import SILENT_S, ActorReport
from jobs.policy import price_of
from jobs.vllm_rounds import KeptOnly
from resin_core.config import IndexingSection, LLMSection
from resin_core.errors import LLMError, LLMRequestError, ResinError
from resin_core.indexing.carry import Former
from resin_core.indexing.document import Indexed, index_document
from resin_core.llm.budget import BudgetModel
from resin_core.llm.build import OpenChatModel
from resin_core.llm.kept import KeptModel
from resin_core.llm.patient import GAVE_UP, PatientModel
from resin_core.llm.pending import AnsweredModel
from resin_core.records import Document
from resin_core.store.replies import ReplyFolder

_BEAT_S = 0.5
_SILENCE_S = 10.0
_PROBE_S = 10.0
_CAUSES = 3


class Extractor:
    """Made on first use inside the loop that owns its connections; lives as long as its actor."""

    def __init__(
        self,
        llm: LLMSection,
        settings: IndexingSection,
        replies: ReplyFolder,
        watch: Any,
        model: OpenChatModel | KeptOnly,
    ) -> None:
        """`watch` is the handle of a jobs.watch.Watch."""
        self._llm, self._settings, self._replies, self._watch = llm, settings, replies, watch
        self._open = model
        self._patient = PatientModel(model, self._probe, settings.call_attempts)
        self._budget = BudgetModel(self._patient, price_of(settings, llm))
        self._client = uuid.uuid4().hex
        self._documents = self._units = self._failed = 0
        self._causes: list[str] = []
        self._busy = 0
        self._telling = asyncio.Lock()
        self.stopped = False
        # A limited budget grants nothing before the watch has been heard.
        if settings.max_llm_tokens is not None or settings.max_cost is not None:
            self._budget.allow(0.0)
        # Until the watch gives a share, other actors may hold all of the limit.
        model.resize(0)
        self._heard_s = time.monotonic()
        self._beating = asyncio.create_task(self._beat())

    async def index(self, document: Document, former: Former | None) -> tuple[Indexed, bool]:
        """The document's tables, and whether its replies were all kept by an earlier run.

        Raises StoppedError when the watch stops the run, LLMRequestError for a key or model that the endpoint refuses,
        StoreError when a reply cannot be kept.
        """
        kept = KeptModel(self._budget, self._replies.of(document.doc_id), seed=self._llm.seed)
        model = AnsweredModel(kept)
        self._busy += 1
        try:
            found = await index_document(document, model, self._settings, former)
        except LLMRequestError:
            # At once, since the run may be over before the next beat.
            await self._tell()
            raise
        finally:
            self._busy -= 1
        self._documents += 1
        self._units += len(found.units)
        if causes := [reject.detail for reject in found.rejects if reject.reason.startswith(GAVE_UP)]:
            self._failed += 1
            self._causes = [*self._causes, f"{document.doc_id}: {causes[0]}"][:_CAUSES]
            await self._tell()
        return found, kept.hits > 0 and found.usage.llm_calls == 0

    def report(self) -> ActorReport:
        """How this actor stands."""
        usage, health = self._open.usage, self._patient.health
        return ActorReport(
            client=self._client,
            documents=self._documents,
            units=self._units,
            failed=self._failed,
            llm_calls=usage.llm_calls,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            spent=self._budget.spent,
            starved=self._budget.starved,
            in_use=self._open.in_use,
            # Calls that pause between tries will want a slot again.
            waiting=max(self._open.waiting, self._budget.running - self._open.in_use),
            overloads=self._open.overloads,
            silent_s=health.silent_s(),
            failing_s=health.failing_s(),
            refused_s=health.refused_s(),
            cause=health.cause,
            fatal=health.fatal,
            causes=tuple(self._causes),
        )

    async def _beat(self) -> None:
        probing: asyncio.Task[None] | None = None
        while not self.stopped:
            await self._tell()
            # A model that is slow and one that hangs look the same from here; one that answers nothing at all is down.
            if self._busy and self._patient.health.silent_s() > _SILENCE_S and (probing is None or probing.done()):
                probing = asyncio.create_task(self._look())
            await asyncio.sleep(_BEAT_S)

    async def _tell(self) -> None:
        """Reports and obeys, one report at a time.

        A watch that does not answer (its node died) leaves the last orders in force for as long as it would itself
        count on them.
        """
        import ray.exceptions

        async with self._telling:
            try:
                orders = await self._watch.report.remote(self.report())
            except ray.exceptions.RayError:
                if time.monotonic() - self._heard_s > SILENT_S:
                    self._open.resize(0)
                return
            self._heard_s = time.monotonic()
            self._open.resize(orders.limit)
            if orders.allowance != float("inf"):
                self._budget.allow(orders.allowance)
            if orders.stop:
                self.stopped = True
                self._budget.stop()
                if orders.stop not in ("budget", "told"):
                    self._patient.stop()

    async def _look(self) -> None:
        cause = f"{self._llm.base_url} does not answer within {_PROBE_S:g} s"
        if not await self._probe():
            self._patient.health.bad(cause)
        else:
            # A busy server may miss one look; what calls say of it stands until a reply comes.
            self._patient.health.better(cause)
        await asyncio.sleep(1.0)

    async def _probe(self) -> bool:
        """Whether the endpoint answers at all, an error of its own included."""
        try:
            await self._open.models(timeout_s=_PROBE_S)
        except LLMError as error:
            return not error.retryable
        except ResinError:
            return False
        return True
