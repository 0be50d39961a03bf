"""One question from its first event to its last, on the screen or in silence; `ask` and `demo` share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from resin_core.cli import show
from resin_core.cli.progress import Shown
from resin_core.engine import Engine
from resin_core.llm.streams import closing
from resin_core.records import Answer, Trace, Usage
from resin_core.strategies.ports import Event
from resin_core.strategies.start import Options

_STAGES = {"plan": "searching", "candidates": "choosing sources", "evidence": "composing"}


@dataclass
class Asking:
    """What is known of a question so far; `usage` at its end counts the hop solvers too."""

    answer: Answer | None = None
    usage: Usage = field(default_factory=Usage)
    hops: list[dict[str, Any]] = field(default_factory=list)
    passages: list[dict[str, Any]] = field(default_factory=list)
    trace: Trace | None = None

    def take(self, event: Event) -> None:
        """Keeps what an event tells."""
        if event.kind == "candidates":
            self.hops = event.data["hops"]
        elif event.kind == "evidence":
            self.passages = event.data["passages"]
        elif event.kind == "answer" and event.answer is not None:
            self.answer, self.usage = event.answer, event.answer.usage
        elif event.kind == "done":
            self.usage = Usage.model_validate(event.data["usage"])

    def as_json(self) -> dict[str, Any]:
        """The answer's fields, with the usage of all calls."""
        found = {} if self.answer is None else self.answer.model_dump(mode="json")
        return found | {"usage": self.usage.model_dump(mode="json")}


async def follow(
    asking: Asking, engine: Engine, question: str, options: Options, shown: Shown | None, quiet: bool = False
) -> None:
    """Asks and takes all events; unless `quiet` the answer is printed as it comes, then its sources.

    Leaves what is known in `asking` also when it raises (LLMError kinds, DeadlineError, ConfigError, QuestionError).
    """
    asked = engine.ask(question, options)
    streamed = ""
    try:
        _stage(shown, "planning")
        async with closing(asked.events) as events:
            async for event in events:
                asking.take(event)
                if event.kind == "token" and not quiet:
                    _stage(shown, "")
                    show.piece(event.text)
                    streamed += event.text
                elif event.kind == "answer" and event.answer is not None and not quiet:
                    _stage(shown, "")
                    _finish(event.answer, streamed)
                    evidence(asking.hops, asking.passages, event.answer)
                else:
                    _stage(shown, _STAGES.get(event.kind, ""))
    finally:
        _stage(shown, "")
        asking.trace = asked.recorder.trace()
        if streamed and asking.answer is None:
            show.line()
    if not quiet and asking.answer is not None:
        totals(asking)


def _stage(shown: Shown | None, name: str) -> None:
    if shown is not None:
        shown.stage(name)


def _finish(answer: Answer, streamed: str) -> None:
    """Ends the streamed text; references that were only found at its end are shown with the text again."""
    if not streamed:
        show.line(show.plain(answer.answer))
    else:
        show.line()
        if streamed.strip() != answer.answer:
            show.line(f"\nwith its sources: {show.plain(answer.answer)}")
    show.line()
    if not answer.citations:
        show.line("no citations")
        return
    for citation in answer.citations:
        place = f"{show.short(citation.sentence_ids)}, chars {citation.char_start}-{citation.char_end}"
        head = show.one_line(f"{citation.title} ({citation.doc_id}, sentence {place})")
        show.line(f"[{citation.number}] {head}: {show.one_line(citation.text)}")


def evidence(hops: Sequence[dict[str, Any]], passages: Sequence[dict[str, Any]], answer: Answer) -> None:
    """Per hop what it asked and which sentences of the buffer it found."""
    buffer = {passage["passage_id"]: set(passage["sentence_ids"]) for passage in passages}
    show.line("\nevidence")
    for hop in hops:
        show.line(f"  hop {hop['hop']}: {show.one_line(hop['subquestion'], 160)}")
        found: dict[str, dict[str, None]] = {}
        for candidate in hop["candidates"]:
            kept = [s for s in candidate["sentence_ids"] if s in buffer.get(candidate["passage_id"], ())]
            if kept:
                found.setdefault(candidate["doc_id"], {}).update(dict.fromkeys(kept))
        for doc_id, sentences in found.items():
            show.line(f"    {show.one_line(doc_id)}: {show.short(sorted(sentences, key=_number))}")
        if not found:
            show.line("    nothing")
    if not hops and not answer.evidence:
        show.line("  none")


def totals(asking: Asking) -> None:
    """Calls, tokens and time."""
    usage, answer = asking.usage, asking.answer
    seconds = answer.timings_s.get("total", 0.0) if answer else 0.0
    show.line(
        f"\n{usage.llm_calls} model call{'s' if usage.llm_calls != 1 else ''}, {usage.prompt_tokens:,} prompt and "
        f"{usage.completion_tokens:,} output tokens, {seconds:.1f} s"
    )


def _number(sentence_id: str) -> int:
    digits = sentence_id.rpartition("#s")[2]
    return int(digits) if digits.isdigit() else 0
