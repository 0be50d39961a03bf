"""An open index with its encoder and language model in one process: what the command line asks."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from resin_core.config import ResinConfig
from resin_core.errors import ConfigError, ModelError, QuestionError
from resin_core.llm.build import OpenChatModel
from resin_core.llm.protocol import Deadline
from resin_core.models.cache import Progress
from resin_core.models.host import ModelHost
from resin_core.online.composer import LLMComposer
from resin_core.online.planner import LLMPlanner
from resin_core.online.retriever import IndexRetriever
from resin_core.prompts.base import shown
from resin_core.records import UnitKind
from resin_core.strategies import resin
from resin_core.strategies.ports import Event, Retrieved
from resin_core.strategies.recorder import Recorder
from resin_core.text.decode import scrub

STRATEGIES = (resin.NAME,)


class Options(NamedTuple):
    """What one question may override; None: as configured."""

    strategy: str | None = None
    top_k: int | None = None
    max_hops: int | None = None


class Asked(NamedTuple):
    """A question under way: its events as they come, and the recorder that holds its trace."""

    events: AsyncIterator[Event]
    recorder: Recorder


class Engine:
    """Answers questions over one open generation. Use one engine in one event loop."""

    def __init__(self, config: ResinConfig, retriever: IndexRetriever, host: ModelHost | None) -> None:
        self._config, self._retriever, self._host = config, retriever, host
        self._model: OpenChatModel | None = None

    @property
    def generation(self) -> str:
        """The generation that is answered from."""
        return self._retriever.generation

    def ask(self, question: str, options: Options | None = None) -> Asked:
        """Starts on a question. Raises QuestionError and ConfigError at once; LLMError kinds come with the events."""
        options = options or Options()
        strategy = options.strategy or self._config.strategies.default
        if strategy not in STRATEGIES:
            raise ConfigError(f"unknown strategy {strategy!r}; there are: {', '.join(STRATEGIES)}")
        question = checked_question(question, self._config.strategies.max_question_chars)
        recorder = Recorder(question, strategy, self.generation)
        model = self._open_model()
        ports = resin.Ports(LLMPlanner(model), self._retriever, LLMComposer(model))
        deadline = Deadline.after(self._config.strategies.deadline_s)
        return Asked(resin.answer(question, ports, self._run(options), recorder, deadline), recorder)

    def search(self, query: str, kinds: Sequence[UnitKind] = (), top_k: int | None = None) -> Retrieved:
        """Candidates for one query, without the language model."""
        query = checked_question(query, self._config.strategies.max_question_chars)
        return self._retriever.search_now(
            [query], kinds or self._config.retrieval.kinds, _bounded("top_k", top_k, self._config.retrieval.top_k, 1000)
        )

    async def aclose(self) -> None:
        """Closes the model's connections; call it in the loop that asked."""
        if self._model is not None:
            await self._model.aclose()
            self._model = None

    def _open_model(self) -> OpenChatModel:
        if self._host is None:
            raise RuntimeError("the engine was opened for search only")
        if self._model is None:
            self._model = OpenChatModel(self._host.settings, self._host.base_url)
        return self._model

    def _run(self, options: Options) -> resin.ResinRun:
        config, settings = self._config, self._config.strategies.resin
        embedded = self._host is not None and self._host.embedded
        return resin.ResinRun(
            top_k=_bounded("top_k", options.top_k, config.retrieval.top_k, 1000),
            max_hops=_bounded("max_hops", options.max_hops, config.planner.max_hops, 16),
            kinds=config.retrieval.kinds,
            evidence_tokens=config.retrieval.evidence_tokens,
            min_share=config.retrieval.min_share,
            decompose=config.planner.decompose,
            include_question=config.planner.include_question,
            select=settings.select,
            hop_solvers=settings.hop_solvers == "always" or (settings.hop_solvers == "auto" and not embedded),
            derivation=settings.derivation,
        )


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
    reader = IndexReader.open(index)
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
            retriever = IndexRetriever(reader, encoder, config.retrieval.min_score)
            if entered:
                entered.result()
            yield Engine(config, retriever, host)
        finally:
            # Ends a download of weights that nobody waits for any more.
            given_up.set()
            if host is not None and entered is not None and entered.exception() is None:
                host.__exit__(None, None, None)


def checked_question(text: str, max_chars: int) -> str:
    """The question without lone surrogates and outer blanks.

    Raises QuestionError when it is too long, or when a model would be shown nothing of it (blanks, mere markup).
    """
    question = scrub(text).strip()
    if not shown(question):
        raise QuestionError("the question is empty; give one in words")
    if len(question) > max_chars:
        raise QuestionError(
            f"the question has {len(question):,} characters, the limit is {max_chars:,} "
            "(strategies.max_question_chars); shorten it or raise the limit"
        )
    return question


def _bounded(name: str, given: int | None, configured: int, most: int) -> int:
    value = configured if given is None else given
    if not 1 <= value <= most:
        raise ConfigError(f"{name} is {value}; it must be from 1 to {most}")
    return value
