"""The records that cross boundaries: frozen, extra fields forbidden.

Offsets are code points into `Document.text`, half open: `text[char_start:char_end]`. Vectors never live in a
record; they are float32 arrays (n, d) beside a list of ids. Source: RESIN tables 1 and 2, appendix A.5.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

DocId = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class Record(BaseModel):
    """Base of every record."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class UnitKind(StrEnum):
    """The six kinds of support (RESIN table 2)."""

    ENTITY_FACT = "entity-fact"
    TYPE_PROPERTY = "type-property"
    ENTITY_TYPE = "entity-type"
    RELATION = "relation"
    CAUSAL_EDGE = "causal-edge"
    RULE = "rule"


class Document(Record):
    """One source text, kept exactly as decoded. `metadata` values are strings.

    `extraction` is the key of prompts, model and settings that its passages and units were made with; empty before.
    """

    doc_id: DocId
    title: str
    text: str
    uri: str
    metadata: dict[str, str] = Field(default_factory=dict)
    content_hash: str
    extraction: str = ""


class Sentence(Record):
    """A sentence's place; its text is `document.text[char_start:char_end]`. `number` counts from 1."""

    sentence_id: str
    number: int
    char_start: int
    char_end: int


class Passage(Record):
    """Contiguous sentences around one entity and evidence role (RESIN section 3.3)."""

    passage_id: str
    doc_id: DocId
    sentence_ids: tuple[str, ...]
    char_start: int
    char_end: int
    text: str
    main_entity: str = ""
    entity_type: str = ""
    semantic_focus: str = ""
    evidence_role: str = ""
    semantic: bool = True


class ReasoningUnit(Record):
    """A typed claim with its source span (RESIN table 1). Optional fields only where the source supports them."""

    unit_id: str
    kind: UnitKind
    subject: str
    entity_type: str = ""
    predicate: str
    canonical_predicate: str
    object: str
    conditions: tuple[str, ...] = ()
    conclusion: str = ""
    source_state: str = ""
    target_state: str = ""
    modality: str = ""
    polarity: str = "positive"
    scope: str = ""
    confidence: float = 1.0
    aliases: tuple[str, ...] = ()
    evidence_quote: str
    char_start: int
    char_end: int
    passage_id: str
    doc_id: DocId
    sentence_ids: tuple[str, ...]
    retrieval_text: str


class Reject(Record):
    """Something that was not indexed, and why. `reason` is a short slug; `raw` what came back or was found."""

    reject_id: str
    doc_id: str
    uri: str
    stage: str
    reason: str
    detail: str
    raw: str = ""


class Hop(Record):
    """One focused need of a plan (RESIN section 3.5)."""

    subquestion: str
    target: str = ""
    bridge_terms: tuple[str, ...] = ()
    reasoning_type: str = ""
    depends_on: tuple[int, ...] = ()

    @property
    def query(self) -> str:
        """What is embedded for this hop: subquestion, target and bridge terms (RESIN appendix A.5)."""
        return " ".join(part for part in (self.subquestion, self.target, *self.bridge_terms) if part)


class QueryPlan(Record):
    """All hops up front. `fallback` says why the plan is the question itself, or is empty."""

    reasoning_mode: str = ""
    expected_answer_type: str = ""
    entities: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    hops: tuple[Hop, ...]
    fallback: str = ""


class Candidate(Record):
    """A retrieved unit: score is cosine (higher is better), rank counts from 1."""

    unit: ReasoningUnit
    score: float
    rank: int


class SourcePassage(Record):
    """A passage with its document's name, as packed for the composer. `hops` count from 1."""

    passage: Passage
    title: str
    uri: str
    hops: tuple[int, ...] = ()
    unit_ids: tuple[str, ...] = ()
    score: float = 0.0
    sentences: tuple[Sentence, ...] = ()


class Citation(Record):
    """A span of a source that the answer rests on."""

    number: int
    passage_id: str
    doc_id: str
    title: str
    uri: str
    sentence_ids: tuple[str, ...]
    char_start: int
    char_end: int
    text: str


class Usage(Record):
    """What the language model was asked for, summed over calls."""

    llm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            llm_calls=self.llm_calls + other.llm_calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


class TraceEvent(Record):
    """One step of a question's way: what went in, what came out, how long it took."""

    stage: str
    started_s: float
    seconds: float
    prompt_id: str = ""
    model: str = ""
    usage: Usage = Usage()
    failure: str = ""
    data: dict[str, Any] = Field(default_factory=dict)


class Trace(Record):
    """Enough to say where evidence was lost: every event of one question, in the order of their starts."""

    trace_id: str
    question: str
    strategy: str
    generation: str
    events: tuple[TraceEvent, ...]


class EvidenceItem(Record):
    """What the composer saw of one passage."""

    passage_id: str
    doc_id: str
    sentence_ids: tuple[str, ...]
    hops: tuple[int, ...]


class PoolItem(Record):
    """A passage that was acquired, whether or not it reached the composer."""

    passage_id: str
    doc_id: str
    score: float


class Answer(Record):
    """The result of one question; its JSON form is the same on the command line and over HTTP."""

    question: str
    answer: str
    citations: tuple[Citation, ...]
    evidence: tuple[EvidenceItem, ...]
    pool: tuple[PoolItem, ...]
    strategy: str
    generation: str
    trace_id: str
    usage: Usage
    timings_s: dict[str, float]
