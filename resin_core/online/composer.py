"""The composer port over a language model: selection, hop answers, derivation and the cited answer.

The answer is written from the question and the evidence buffer alone: neither plan nor hop answers come in
(RESIN section 3.6).
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Sequence

from resin_core.errors import ContextLengthError, DeadlineError, LLMError, LLMReplyError, LLMTimeoutError
from resin_core.llm.protocol import ChatModel, Deadline, Reply, Request
from resin_core.llm.streams import closing
from resin_core.llm.structured import structured
from resin_core.online.citations import CitationStream, Labels, attribute, is_unsupported
from resin_core.online.packing import within
from resin_core.online.working import Worked, work_out
from resin_core.prompts import compose, select, solve
from resin_core.prompts.base import shown
from resin_core.records import Candidate, Hop, SourcePassage, Usage
from resin_core.strategies.ports import Call, Composed, Selected, Solved

_ANSWER_TOKENS = 400
_VALUES_TOKENS = 400
_SOFT = (LLMReplyError, ContextLengthError, LLMTimeoutError)
_REFERENCE = re.compile(r"\s*\[\d+\]")


class LLMComposer:
    """Selects sources, answers hops for the audit, and composes."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    async def select(
        self, question: str, passages: Sequence[SourcePassage], budget_tokens: int, deadline: Deadline
    ) -> Selected:
        """The passages the model keeps, in the order given, as far as the budget goes; all that fit on failure."""
        request = Request(
            messages=select.PROMPT.messages(select.user(question, passages)),
            max_tokens=40 + 6 * len(passages),
            json_schema=select.schema(len(passages)),
            schema_name="select",
            prompt_id=select.PROMPT.id,
        )
        try:
            got = await structured(self._model, request, select.SelectReply, deadline)
        except _SOFT as error:
            call = self._failed(request.prompt_id, error)
            return Selected(passages=within(passages, budget_tokens), reason="selection failed", calls=(call,))
        call = _call(request.prompt_id, got.reply, got.usage, got.seconds)
        chosen = {number for number in got.value.keep if 1 <= number <= len(passages)}
        kept = [source for number, source in enumerate(passages, start=1) if number in chosen]
        if not kept:
            return Selected(passages=within(passages, budget_tokens), reason="selection kept nothing", calls=(call,))
        return Selected(passages=within(kept, budget_tokens), reason="selected", calls=(call,))

    async def solve(self, number: int, hop: Hop, candidates: Sequence[Candidate], deadline: Deadline) -> Solved:
        """One hop's own answer from its candidates; a failure is kept in the call."""
        if not candidates:
            return Solved(hop=number, answer="")
        request = Request(
            messages=solve.PROMPT.messages(solve.user(hop, candidates)),
            max_tokens=120,
            json_schema=solve.schema(len(candidates)),
            schema_name="solve",
            prompt_id=solve.PROMPT.id,
        )
        try:
            got = await structured(self._model, request, solve.SolveReply, deadline, attempts=0)
        # Whatever went wrong: the audit may not fail a question that is answered.
        except (LLMError, DeadlineError) as error:
            return Solved(hop=number, answer="", calls=(self._failed(request.prompt_id, error),))
        by_rank = {candidate.rank: candidate.unit.unit_id for candidate in candidates}
        ids = tuple(by_rank[rank] for rank in dict.fromkeys(got.value.records) if rank in by_rank)
        call = _call(request.prompt_id, got.reply, got.usage, got.seconds)
        return Solved(hop=number, answer=got.value.answer, unit_ids=ids, calls=(call,))

    async def compose(
        self, question: str, evidence: Sequence[SourcePassage], derive: bool, deadline: Deadline
    ) -> AsyncIterator[str | Composed]:
        """Pieces of the answer with numbered references, then one Composed.

        With `derive`, facts, sums and comparisons come first and are checked by code. Raises LLMError kinds and
        DeadlineError.
        """
        labels = compose.labelled(evidence)
        calls: list[Call] = []
        worked = await self._values(question, evidence, labels, calls, deadline) if derive else None
        request = Request(
            messages=compose.answer_messages(question, evidence, *((worked.written, worked.text) if worked else ())),
            max_tokens=_ANSWER_TOKENS,
            prompt_id=compose.PROMPT.id,
        )
        stream = CitationStream(labels)
        shown_text: list[str] = []
        started = time.monotonic()
        async with closing(self._model.stream(request, deadline)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Reply):
                    calls.append(_call(request.prompt_id, piece, piece.usage, time.monotonic() - started))
                    ready = stream.finish()
                else:
                    ready = stream.feed(piece)
                if ready:
                    shown_text.append(ready)
                    yield ready
        text = "".join(shown_text)
        refusal = compose.NO_ANSWER.rstrip(".")
        refused = _REFERENCE.sub("", text).strip().rstrip(".") == refusal
        if refused:
            text = compose.NO_ANSWER
        elif not stream.used and not text.strip().startswith(refusal):
            text = _with_sources(text, labels, stream, worked)
        unsupported = "" if refused or not is_unsupported(text, stream, labels) else text
        if unsupported:
            text, refused = compose.NO_ANSWER, True
        yield Composed(
            text=text.strip(),
            citations=() if refused else stream.citations(),
            derivation={
                **({"worked": worked.text, **worked.checked.as_dict()} if worked else {}),
                **({"removed_labels": stream.removed} if stream.removed else {}),
                **({"withdrawn": unsupported} if unsupported else {}),
            },
            calls=tuple(calls),
        )

    async def _values(
        self, question: str, evidence: Sequence[SourcePassage], labels: Labels, calls: list[Call], deadline: Deadline
    ) -> Worked | None:
        request = Request(
            messages=compose.values_messages(question, evidence),
            max_tokens=_VALUES_TOKENS,
            prompt_id=compose.PROMPT.id,
        )
        try:
            reply = await self._model.complete(request, deadline)
        except _SOFT as error:
            calls.append(self._failed(request.prompt_id, error))
            return None
        calls.append(_call(request.prompt_id, reply, reply.usage, reply.seconds))
        sources = {label: shown(compose.sentence_text(*pair)) for label, pair in labels.items()}
        titles = {label: shown(source.title) for label, (source, _) in labels.items()}
        documents = {label: source.passage.doc_id for label, (source, _) in labels.items()}
        return work_out(reply.text, sources, titles, question, documents)

    def _failed(self, prompt_id: str, error: Exception) -> Call:
        usage = getattr(error, "usage", None) or Usage()
        raw = getattr(error, "raw", "")
        return Call(prompt_id=prompt_id, model=self._model.model_name, usage=usage, failure=str(error), raw=raw)


def _with_sources(text: str, labels: Labels, stream: CitationStream, worked: Worked | None) -> str:
    """For an answer without references: those of the values it was worked out from, else of sentences it repeats."""
    facts = dict.fromkeys(fact.source for fact in worked.checked.facts) if worked else {}
    if not facts:
        return attribute(text, labels, stream)
    return text.rstrip() + " " + "".join(f"[{stream.number_of(label)}]" for label in facts if label in labels)


def _call(prompt_id: str, reply: Reply, usage: Usage, seconds: float) -> Call:
    failure = "cut at the token limit" if reply.finish_reason == "length" else ""
    return Call(prompt_id=prompt_id, model=reply.model, usage=usage, seconds=seconds, failure=failure, raw=reply.text)
