"""From a question and its options to a strategy at work: the one place where the command line and the server meet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from resin_core.config import ResinConfig
from resin_core.errors import ConfigError, QuestionError
from resin_core.llm.protocol import Deadline
from resin_core.prompts.base import shown
from resin_core.strategies import resin
from resin_core.strategies.ports import Event
from resin_core.strategies.recorder import Recorder
from resin_core.text.decode import scrub

STRATEGIES = (resin.NAME,)


class Options(NamedTuple):
    """What one question may override; None: as configured."""

    strategy: str | None = None
    top_k: int | None = None
    max_hops: int | None = None
    passage_budget: int | None = None


class Asked(NamedTuple):
    """A question under way: its events as they come, and the recorder that holds its trace."""

    events: AsyncIterator[Event]
    recorder: Recorder


def start(
    config: ResinConfig,
    question: str,
    options: Options,
    ports: resin.Ports,
    deadline: Deadline,
    spare_calls: bool = True,
) -> Asked:
    """Starts on a question. Raises QuestionError and ConfigError at once; LLMError kinds come with the events.

    `spare_calls`: the model has room for calls that no answer waits for, such as hop answers for the audit.
    """
    strategy = options.strategy or config.strategies.default
    if strategy not in STRATEGIES:
        raise ConfigError(f"unknown strategy {strategy!r}; there are: {', '.join(STRATEGIES)}")
    question = checked_question(question, config.strategies.max_question_chars)
    recorder = Recorder(question, strategy, ports.retriever.generation)
    settings = config.strategies.resin
    run = resin.ResinRun(
        top_k=bounded("top_k", options.top_k, config.retrieval.top_k, 1000),
        max_hops=bounded("max_hops", options.max_hops, config.planner.max_hops, 16),
        kinds=config.retrieval.kinds,
        evidence_tokens=config.retrieval.evidence_tokens,
        min_share=config.retrieval.min_share,
        decompose=config.planner.decompose,
        include_question=config.planner.include_question,
        select=settings.select,
        hop_solvers=settings.hop_solvers == "always" or (settings.hop_solvers == "auto" and spare_calls),
        derivation=settings.derivation,
        passage_budget=options.passage_budget or config.retrieval.max_passages,
    )
    return Asked(resin.answer(question, ports, run, recorder, deadline), recorder)


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


def bounded(name: str, given: int | None, configured: int, most: int) -> int:
    """The value given, else the configured one. Raises ConfigError when it is not from 1 to `most`."""
    value = configured if given is None else given
    if not 1 <= value <= most:
        raise ConfigError(f"{name} is {value}; it must be from 1 to {most}")
    return value
