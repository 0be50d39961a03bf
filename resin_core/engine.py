"""An open index with its encoder and language model in one process: what the command line asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Literal

from resin_core.config import LLMSection, ResinConfig
from resin_core.errors import ModelError
from resin_core.llm.build import OpenChatModel, open_chat_model
from resin_core.llm.protocol import Deadline
from resin_core.models.cache import Progress
from resin_core.models.host import ModelHost
from resin_core.online.composer import LLMComposer
from resin_core.online.planner import LLMPlanner
from resin_core.online.retriever import EncodingRetriever
from resin_core.records import UnitKind
from resin_core.strategies import resin
from resin_core.strategies.ports import Retrieved
from resin_core.strategies.start import Asked, Options, bounded, checked_question, start


class Engine:
    """Answers questions over one open generation. Use one engine in one event loop."""

    def __init__(self, config: ResinConfig, retriever: EncodingRetriever, host: ModelHost | None) -> None:
        self._config, self._retriever, self._host = config, retriever, host
        self._models: dict[LLMSection, OpenChatModel] = {}

    @property
    def generation(self) -> str:
        """The generation that is answered from."""
        return self._retriever.generation

    def ask(self, question: str, options: Options | None = None) -> Asked:
        """Starts on a question. Raises QuestionError and ConfigError at once; LLMError kinds come with the events."""
        planning, composing = self._model_for("planner"), self._model_for("composer")
        ports = resin.Ports(LLMPlanner(planning), self._retriever, LLMComposer(composing))
        deadline = Deadline.after(self._config.strategies.deadline_s)
        spare = self._host is not None and not self._host.embedded
        return start(self._config, question, options or Options(), ports, deadline, spare)

    def search(self, query: str, kinds: Sequence[UnitKind] = (), top_k: int | None = None) -> Retrieved:
        """Candidates for one query, without the language model."""
        query = checked_question(query, self._config.strategies.max_question_chars)
        return self._retriever.search_now(
            [query], kinds or self._config.retrieval.kinds, bounded("top_k", top_k, self._config.retrieval.top_k, 1000)
        )

    async def aclose(self) -> None:
        """Closes the models' connections; call it in the loop that asked."""
        while self._models:
            await self._models.popitem()[1].aclose()

    def _model_for(self, role: Literal["planner", "composer"]) -> OpenChatModel:
        """One model for both roles unless they are configured apart: they share its limit on calls."""
        if self._host is None:
            raise RuntimeError("the engine was opened for search only")
        settings = self._host.settings.for_role(role)
        if settings not in self._models:
            self._models[settings] = open_chat_model(settings, settings.base_url or self._host.base_url)
        return self._models[settings]


@contextmanager
def open_engine(
    config: ResinConfig, index: str, with_model: bool = True, progress: Progress | None = None
) -> Iterator[Engine]:
    """Opens index, encoder and language model side by side, and closes them.

    Raises StoreError, EncoderError, ModelError and LLMError kinds before any question is asked.
    """
    from resin_core.encoder import SentenceEncoder
    from resin_core.store.reader import IndexReader

    # The index first, alone: what is wrong with it is known in a moment, and nothing else was started.
    reader = IndexReader.open(index, device=config.retrieval.device)
    given_up = threading.Event()

    def unless_given_up(done: int, total: int, label: str) -> None:
        if given_up.is_set():
            raise ModelError("the model is no longer wanted")
        if progress:
            progress(done, total, label)

    host = ModelHost(config.llm, unless_given_up) if with_model else None
    with ThreadPoolExecutor(1) as pool:
        entered = pool.submit(host.__enter__) if host else None
        try:
            encoder = SentenceEncoder(config.encoder)
            retriever = EncodingRetriever(reader, encoder, config.retrieval.min_score)
            if entered:
                entered.result()
            yield Engine(config, retriever, host)
        finally:
            # Ends a download of weights that nobody waits for any more.
            given_up.set()
            if host is not None and entered is not None and entered.exception() is None:
                host.__exit__(None, None, None)
