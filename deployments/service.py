"""What the ingress does with a question, apart from HTTP: which index and generation, which ports, whether ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from deployments.adapters import RemoteComposer, RemotePlanner, RemoteRetriever
from deployments.calling import Calls
from resin_core.config import ResinConfig
from resin_core.errors import NotReadyError, ResinError, UnknownIdError
from resin_core.llm.protocol import Deadline
from resin_core.llm.streams import closing
from resin_core.records import Document, Passage, UnitKind
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import Manifest, read_current
from resin_core.strategies import resin
from resin_core.strategies.ports import Retrieved
from resin_core.strategies.start import Asked, Options, bounded, checked_question, start

log = logging.getLogger("resin.service")
DEFAULT = "default"
_PREPARE_S = 120.0
_READY_S = 15.0
_SMOKE_PAUSE_S = (0.5, 10.0)


class Handles(NamedTuple):
    """The deployments that answer the ports."""

    planner: Any
    retriever: Any
    composer: Any
    shared: Any


class Service:
    """One ingress replica's state. A question keeps the generation that was served when it came."""

    def __init__(
        self,
        config: ResinConfig,
        indexes: Mapping[str, str],
        handles: Handles,
        spare_calls: bool,
        serving: Callable[[Mapping[str, str]], None] = lambda _: None,
    ) -> None:
        """`indexes` are locations by name, at least one. `serving` is told every few seconds which generations are.

        Raises StoreError for a location that cannot be used.
        """
        self._serving = serving
        self.config = config
        self.calls = Calls(config.serving.call_attempts)
        self._handles, self._spare_calls = handles, spare_calls
        self._folders = {name: IndexFolder.at(location) for name, location in indexes.items()}
        self._served: dict[str, str] = {}
        self._missing = "the index has not been opened yet"
        self._ready = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def indexes(self) -> tuple[str, ...]:
        """Names of the indexes served, the default one first."""
        return tuple(self._folders)

    @property
    def missing(self) -> str:
        """What still keeps this replica from answering; empty when it is ready."""
        return self._missing

    async def until_ready(self) -> None:
        """Waits a while: the replica that takes the place of one that died is asked before it is ready.

        Raises NotReadyError when it does not become so in time.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                await self._ready.wait()
        if self._missing:
            raise NotReadyError(f"not ready: {self._missing}")

    def begin(self) -> None:
        """Opens the indexes, asks the smoke question, and follows new generations; returns at once."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._become_ready()), asyncio.create_task(self._follow())]

    def end(self) -> None:
        """Stops following."""
        for task in self._tasks:
            task.cancel()

    def generation(self, index: str = "") -> str:
        """The generation of an index that new questions are answered from.

        Raises UnknownIdError for an index that is not served, NotReadyError before it was opened.
        """
        name = self.name_of(index)
        if name not in self._served:
            raise NotReadyError(f"not ready: {self._missing}")
        return self._served[name]

    def name_of(self, index: str) -> str:
        """The index of that name, empty for the default one. Raises UnknownIdError."""
        name = index or self.indexes[0]
        if name not in self._folders:
            raise UnknownIdError(f"no index {name!r} is served here; there are: {', '.join(self.indexes)}")
        return name

    def ask(self, question: str, options: Options, index: str = "", streaming: bool = False) -> Asked:
        """As `start`, within the bounds of the configuration and one deadline.

        Raises NotReadyError before the index was opened, UnknownIdError, QuestionError, ConfigError.
        """
        serving = self.config.serving
        bounded("top_k", options.top_k, 1, serving.max_top_k)
        bounded("max_hops", options.max_hops, 1, serving.max_hops)
        bounded("passage_budget", options.passage_budget, 1, serving.max_passage_budget)
        ports = resin.Ports(
            RemotePlanner(self._handles.planner, self.calls),
            self._retriever(index),
            RemoteComposer(self._handles.composer, self.calls, streaming),
        )
        deadline = Deadline.after(self.config.strategies.deadline_s)
        return start(self.config, question, options, ports, deadline, self._spare_calls)

    async def search(self, query: str, kinds: tuple[UnitKind, ...], top_k: int | None, index: str = "") -> Retrieved:
        """Candidates of one query. Raises as `ask`, and what the replicas raise."""
        limit = self.config.serving.max_top_k
        deadline = Deadline.after(self.config.strategies.deadline_s)
        return await self._retriever(index).search(
            [checked_question(query, self.config.strategies.max_question_chars)],
            kinds or self.config.retrieval.kinds,
            bounded("top_k", top_k, self.config.retrieval.top_k, max(limit, self.config.retrieval.top_k)),
            deadline,
        )

    async def manifest(self, index: str = "") -> Manifest:
        """Of the generation served."""
        manifest: Manifest = await self._of_index("manifest", index)
        return manifest

    async def document(self, doc_id: str, index: str = "") -> tuple[Document, list[Passage]]:
        """A document and its passages, of the generation served. Raises UnknownIdError."""
        try:
            found: tuple[Document, list[Passage]] = await self._of_index("document", index, doc_id)
        except UnknownIdError:
            # The replica's message names the index's place, which is no client's business.
            name = self.name_of(index)
            raise UnknownIdError(f"no document {doc_id[:200]!r} in the index {name!r}") from None
        return found

    async def refresh(self) -> dict[str, str]:
        """Looks for new generations now; those served afterwards, by index. Raises StoreError kinds."""
        for name in self.indexes:
            await self._adopt(name)
        return dict(self._served)

    def _retriever(self, index: str) -> RemoteRetriever:
        return RemoteRetriever(self._handles.retriever, self.calls, self.name_of(index), self.generation(index))

    async def _of_index(self, method: str, index: str, *arguments: Any) -> Any:
        deadline = Deadline.after(self.config.strategies.deadline_s)
        handle = getattr(self._handles.retriever, method)
        return await self.calls.one(handle, deadline, self.name_of(index), self.generation(index), *arguments)

    async def _become_ready(self) -> None:
        """Liveness does not wait for this: only answers do."""
        pause_s, most_s = _SMOKE_PAUSE_S
        while True:
            try:
                for name in self.indexes:
                    await self._adopt(name)
                if self.config.serving.smoke:
                    await self._smoke()
                self._missing = ""
                self._ready.set()
                log.info("ready")
                return
            except Exception as error:
                # Whatever it is: it is said at /readyz, and tried again. Where keys are needed, anybody may still read
                # that page: texts that may name folders and addresses stay in the log.
                kind = type(error).__name__
                text = str(error) if isinstance(error, ResinError) else f"{kind}: {error}"
                self._missing = text if self.config.serving.allow_anonymous else f"{kind}; the log says more"
                log.warning("not ready yet: %s", text)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, most_s)

    async def _smoke(self) -> None:
        """One whole answer, of whatever content: planner, retriever, composer and their models work together."""
        deadline = Deadline.after(self.config.strategies.deadline_s)
        # Once for the application: a replica that takes another's place need not ask again.
        if await self.calls.one(self._handles.shared.answered, deadline, False):
            return
        self._missing = "the smoke question has not been answered yet"
        question = self.config.serving.smoke_question
        if not question:
            title = await self._of_index("first_title", self.indexes[0])
            question = f"What does the document {title!r} say?"
        asked = self.ask(question, Options(), self.indexes[0], streaming=False)
        async with closing(asked.events) as events:
            async for event in events:
                if event.kind == "answer":
                    await self.calls.one(self._handles.shared.answered, deadline, True)
                    return

    async def _follow(self) -> None:
        """New generations, as the pointer names them; also an older one, after a roll back."""
        while True:
            await asyncio.sleep(self.config.serving.refresh_s)
            for name in self.indexes:
                try:
                    await self._adopt(name)
                except Exception as error:
                    # The generation served goes on being served.
                    log.warning("index %s: the new generation cannot be used yet: %s", name, error)
            self._serving(self._served)

    async def _adopt(self, name: str) -> None:
        generation = await asyncio.to_thread(read_current, self._folders[name])
        if self._served.get(name) == generation:
            return
        # Opened everywhere before the first question comes for it; a replica that starts meanwhile opens it itself.
        async with asyncio.timeout(_PREPARE_S):
            await self._handles.retriever.broadcast("prepare", name, generation).results_async()
        before = self._served.get(name)
        self._served[name] = generation
        log.info("index %s: generation %s is served, before it %s", name, generation, before)
