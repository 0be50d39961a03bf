"""Where expected evidence was lost on a question's way, read from its trace and its answer.

Tells a miss of retrieval from a loss in packing, in selection and in composition. Pure; knows neither the index nor
whether an answer is right. What a trace does not hold, such as the sentences of passages that were not packed, is
said to be unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from resin_core.prompts.compose import NO_ANSWER
from resin_core.records import Answer, Record, Trace

Stage = Literal["not retrieved", "too weak", "no room", "shortened away", "not chosen", "not cited", "cited"]
_STAGES: tuple[Stage, ...] = get_args(Stage)
_SENTENCE = re.compile(r"(.+)#s([0-9]{1,9})", re.DOTALL)
_PASSAGE = re.compile(r"p[0-9a-f]{16}")


class Lost(Record):
    """The first step that the id did not pass, "cited" when it passed all; `reason` is one sentence."""

    id: str
    stage: Stage
    reason: str


class _Hit(NamedTuple):
    """A unit that a hop found."""

    hop: int
    passage_id: str
    doc_id: str
    sentence_ids: tuple[str, ...]
    score: float | None
    rank: int | None

    @property
    def place(self) -> str:
        known = [
            *([f"rank {self.rank}"] if self.rank is not None else []),
            *([f"score {self.score:g}"] if self.score is not None else []),
        ]
        return f"hop {self.hop}" + (f" ({', '.join(known)})" if known else "")


class _Wanted(NamedTuple):
    """An expected id and the passages of the trace that hold it; `sentence` is empty for passages and documents.

    `doc_id` is empty for a passage that the trace does not know.
    """

    doc_id: str
    sentence: str
    passages: tuple[str, ...]


def lost(trace: Trace, answer: Answer | None, expected: Iterable[str]) -> list[Lost]:
    """For each id of a document, a passage or a sentence where it was lost, in the order given.

    A document went as far as the passage of it that went furthest. `answer` is None when there is none, or it is not
    at hand: then nothing counts as cited.
    """
    way = _Way(trace, answer)
    return [Lost(id=name, stage=stage, reason=reason) for name in expected for stage, reason in [way.end_of(name)]]


class _Way:
    """What trace and answer say together, whatever stages there are."""

    def __init__(self, trace: Trace, answer: Answer | None) -> None:
        self.answer = answer
        plan, retrieve, select, compose = (_stage(trace, name) for name in ("plan", "retrieve", "select", "compose"))
        rows = [row for data in retrieve for row in data.get("hops", ())]
        self.fallback = any(data.get("fallback") for data in plan)
        self.retrieved, self.hops = bool(retrieve), len(rows)
        self.hits = [hit for number, row in enumerate(rows, start=1) for hit in _hits(number, row)]
        self.by_passage: dict[str, list[_Hit]] = {}
        for hit in self.hits:
            self.by_passage.setdefault(hit.passage_id, []).append(hit)
        pool = [item for data in retrieve for item in data.get("pool", ())]
        self.listed = {item["passage_id"]: set(item["sentence_ids"]) for item in pool if "sentence_ids" in item}
        evidence = list(select[-1].get("kept", ())) if select else []
        if answer is not None:
            pool += [item.model_dump() for item in answer.pool]
            evidence = [item.model_dump() for item in answer.evidence]
        # What the composer saw is known from either; without both nobody knows what it would have seen.
        self.decided = bool(select) or answer is not None
        self.kept = {item["passage_id"]: set(item["sentence_ids"]) for item in evidence}
        acquired = {item["passage_id"]: item["doc_id"] for item in [*pool, *evidence]}
        self.documents = {hit.passage_id: hit.doc_id for hit in self.hits} | acquired
        self.unread = self.documents.keys() - acquired.keys() if pool else set()
        self.spans = {passage_id: self._span(passage_id) for passage_id in self.documents}
        self.weak, self.no_room, self.shortened, self.not_chosen = (
            {passage_id for data in select for passage_id in data.get(name, ())}
            for name in ("weak", "no_room", "shortened", "not_chosen")
        )
        self.choice = str(select[-1].get("reason", "")) if select else ""
        self.composed = bool(compose)
        self.withdrawn = any(data.get("derivation", {}).get("withdrawn") for data in compose)
        self.failure = next((e.failure for e in trace.events if e.stage == "compose" and e.failure), "")

    def end_of(self, name: str) -> tuple[Stage, str]:
        """Stage and reason of one expected id."""
        wanted = self._wanted(name)
        ends = [(*self._end(wanted, passage_id), passage_id) for passage_id in wanted.passages]
        if not ends:
            return "not retrieved", self._missed(wanted)
        stage, why, passage_id = max(ends, key=lambda end: _STAGES.index(end[0]))
        what = "It" if wanted.sentence or name == passage_id else f"Its passage {passage_id}"
        return stage, f"{what} {self._found_by(wanted, passage_id)}{why}."

    def _wanted(self, name: str) -> _Wanted:
        if name in self.documents:
            return _Wanted(self.documents[name], "", (name,))
        inside = tuple(passage_id for passage_id, doc_id in self.documents.items() if doc_id == name)
        match = _SENTENCE.fullmatch(name)
        if inside or not match:
            return _Wanted("" if _PASSAGE.fullmatch(name) else name, "", inside)
        doc_id, number = match[1], int(match[2])
        near = (passage_id for passage_id, document in self.documents.items() if document == doc_id)
        return _Wanted(doc_id, name, tuple(passage_id for passage_id in near if number in self.spans[passage_id]))

    def _span(self, passage_id: str) -> range:
        """Numbers of the sentences that are known to stand in a passage: they follow on one another."""
        stated = (sentence_id for hit in self._of(passage_id) for sentence_id in hit.sentence_ids)
        known = self.listed.get(passage_id) or {*self.kept.get(passage_id, ()), *stated}
        numbers = [int(match[2]) for match in map(_SENTENCE.fullmatch, known) if match]
        return range(min(numbers), max(numbers) + 1) if numbers else range(0)

    def _of(self, passage_id: str) -> list[_Hit]:
        return self.by_passage.get(passage_id, [])

    def _end(self, wanted: _Wanted, passage_id: str) -> tuple[Stage, str]:
        if passage_id in self.kept:
            return self._end_of_kept(wanted, passage_id)
        if passage_id in self.unread:
            return "not retrieved", ", but its passage could not be read from the index"
        if passage_id in self.not_chosen:
            was = " and packed in a shortened form" if passage_id in self.shortened else " and packed"
            who = "the model's selection" if self.choice == "selected" else f"the selection ({self.choice})"
            return "not chosen", f"{was}, but {who} left it out"
        if passage_id in self.no_room:
            return "no room", ", strong enough, but the room for evidence (tokens or passages) went to others"
        if passage_id in self.weak:
            return "too weak", f", too weak beside the best that was found there, {self._best_of(passage_id)}"
        if self.decided:
            return "not chosen", ", but it did not reach the composer, and the trace does not say why"
        return "not chosen", ", but the question ended before evidence was selected"

    def _end_of_kept(self, wanted: _Wanted, passage_id: str) -> tuple[Stage, str]:
        if wanted.sentence and wanted.sentence not in self.kept[passage_id]:
            return "shortened away", ", but its passage was too long for the room left and was shortened to others"
        cited = self.answer.citations if self.answer else ()
        here = [citation for citation in cited if citation.passage_id == passage_id]
        numbers = [f"[{c.number}]" for c in here if not wanted.sentence or wanted.sentence in c.sentence_ids]
        if numbers:
            return "cited", f", reached the composer, and the answer cites it as {''.join(numbers)}"
        short = " in a shortened form" if passage_id in self.shortened and not wanted.sentence else ""
        document = any(citation.doc_id == wanted.doc_id for citation in cited)
        instead = "sentences of its passage" if here else "passages of its document" if document else "documents"
        why = f"the answer cites only other {instead}" if cited else self._uncited()
        return "not cited", f" and reached the composer{short}, but {why}"

    def _uncited(self) -> str:
        """Why there is no citation at all."""
        if self.failure:
            return f"the composition ended early ({self.failure.rstrip('.')})"
        if self.answer is None:
            return "the answer is not at hand" if self.composed else "the question ended before it was answered"
        if self.withdrawn:
            return "the answer was withdrawn, as the documents that it cited have none of its names"
        if self.answer.answer == NO_ANSWER:
            return "the composer found no answer in the evidence"
        return "the answer cites nothing"

    def _found_by(self, wanted: _Wanted, passage_id: str) -> str:
        hits = self._of(passage_id)
        stating = [hit for hit in hits if wanted.sentence in hit.sentence_ids]
        if not hits:
            return "was found, by which hop the trace does not say"
        if wanted.sentence and not stating:
            return f"was found only through other sentences of its passage, by {_best_per_hop(hits)}"
        return f"was found by {_best_per_hop(stating or hits)}"

    def _best_of(self, passage_id: str) -> str:
        hops = {hit.hop for hit in self._of(passage_id)}
        return _best_per_hop([hit for hit in self.hits if hit.hop in hops])

    def _missed(self, wanted: _Wanted) -> str:
        if not self.retrieved:
            if self.answer is None:
                return "The question ended before anything was retrieved."
            return "It is not among what the answer was made from, and the trace tells of no retrieval."
        hops = f"None of the {self.hops} hops found it" if self.hops else "No query found it"
        hops = "The only hop did not find it" if self.hops == 1 else hops
        plan = ", which was the question itself as no plan could be made," if self.fallback and self.hops == 1 else ""
        queries = f"its query{plan}" if self.hops == 1 else "the queries"
        holds = "no unit states it" if wanted.sentence else "the index holds no unit of it"
        return f"{hops}: either {holds} or {queries} did not reach it{self._nearest(wanted)}."

    def _nearest(self, wanted: _Wanted) -> str:
        """What of a sentence's document was found; of whole documents and unknown passages there is nothing to say."""
        if not wanted.sentence:
            return ""
        near = [hit for hit in self.hits if hit.doc_id == wanted.doc_id]
        others = [passage_id for passage_id, doc_id in self.documents.items() if doc_id == wanted.doc_id]
        if not others:
            return "; no passage of its document was found"
        best = max(near, key=_worth) if near else None
        passage_id = best.passage_id if best else others[0]
        whole = passage_id in self.listed or (passage_id in self.kept and passage_id not in self.shortened)
        may = "" if whole else ", which may hold it as the trace does not list all its sentences"
        return f"; nearest came {best.place + ' with ' if best else ''}passage {passage_id} of its document{may}"


def _stage(trace: Trace, name: str) -> list[dict[str, Any]]:
    return [event.data for event in trace.events if event.stage == name]


def _hits(number: int, row: Mapping[str, Any]) -> list[_Hit]:
    return [
        _Hit(
            hop=row.get("hop", number),
            passage_id=found["passage_id"],
            doc_id=found["doc_id"],
            sentence_ids=tuple(found.get("sentence_ids", ())),
            score=found.get("score"),
            rank=found.get("rank"),
        )
        for found in row.get("candidates", ())
    ]


def _worth(hit: _Hit) -> tuple[float, int]:
    """Higher is better; ranks decide where there is no score."""
    return (float("-inf") if hit.score is None else hit.score, -(hit.rank or 0))


def _best_per_hop(hits: Sequence[_Hit]) -> str:
    best: dict[int, _Hit] = {}
    for hit in sorted(hits, key=_worth, reverse=True):
        best.setdefault(hit.hop, hit)
    return ", ".join(best[hop].place for hop in sorted(best))
