"""What clients send and get: pydantic models of the routes under /v1, the OpenAI ones apart."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from resin_core.records import Answer, Candidate, Passage, SourcePassage, Trace, UnitKind
from resin_core.strategies.start import Options


class Body(BaseModel):
    """Base of request bodies: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


EXAMPLE = "Who built the harbour, and when?"


def example(**body: Any) -> ConfigDict:
    """What the OpenAPI document shows as a body that works: left to itself, a reader's tool fills in every field."""
    return ConfigDict(json_schema_extra={"examples": [body]})


# Exactly as the document says: neither "5" nor true is a number, neither 0 nor "no" is false.
Count = Annotated[int, Field(strict=True, ge=1)]
Flag = Annotated[bool, Field(strict=True)]


class AnswerRequest(Body):
    """POST /v1/answer."""

    model_config = example(question=EXAMPLE)
    question: str = Field(min_length=1, description="The question, in words.")
    strategy: str | None = Field(None, description="Default: as configured.")
    top_k: Count | None = Field(None, description="Units kept for each hop.")
    max_hops: Count | None = Field(None, description="Hops of the plan, at most.")
    passage_budget: Count | None = Field(None, description="Passages the composer sees, at most.")
    stream: Flag = Field(False, description="Server-sent events instead of one document.")
    include_trace: Flag = Field(False, description="The whole trace with the answer.")
    index: str = Field("", max_length=100, description="Name of the index; empty: the default one.")

    def options(self) -> Options:
        """What the request overrides."""
        return Options(self.strategy, self.top_k, self.max_hops, self.passage_budget)


class SearchRequest(Body):
    """POST /v1/search."""

    model_config = example(query=EXAMPLE)
    query: str = Field(min_length=1, description="What to look for.")
    top_k: Count | None = Field(None, description="Units found.")
    kinds: tuple[UnitKind, ...] = Field((), description="Only units of these kinds; empty: as configured.")
    index: str = Field("", max_length=100, description="Name of the index; empty: the default one.")


class AnswerResponse(Answer):
    """The answer, with the trace when it was asked for."""

    index: str
    trace: Trace | None = None


class FoundPassage(Passage):
    """A passage with its document's name."""

    title: str
    uri: str

    @classmethod
    def of(cls, source: SourcePassage) -> FoundPassage:
        """From a passage as the retriever resolves it."""
        return cls(**dict(source.passage), title=source.title, uri=source.uri)


class FoundCandidate(Candidate):
    """A candidate with its passage."""

    passage: FoundPassage


class SearchResponse(BaseModel):
    """Candidates, best first."""

    query: str
    index: str
    generation: str
    candidates: list[FoundCandidate]


class IndexResponse(BaseModel):
    """The generation served: what it holds and what it was made with."""

    index: str
    indexes: list[str]
    generation: str
    created_at: str
    counts: dict[str, int]
    units_by_kind: dict[str, int]
    encoder: str
    models: list[str]
    prompts: dict[str, str]


class DocumentResponse(BaseModel):
    """A document's text with its passages; every offset points into `text`."""

    index: str
    generation: str
    doc_id: str
    title: str
    text: str
    uri: str
    metadata: dict[str, Any]
    content_hash: str
    passages: list[Passage]


class TraceResponse(BaseModel):
    """A trace as it was kept, and for expected ids where each was lost."""

    index: str
    trace: Trace
    answer: Answer | None = None
    failure: str = ""
    lost: list[dict[str, str]] = []
