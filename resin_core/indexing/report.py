"""What an indexing run did, and how it tells of its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pydantic import Field

from resin_core.config import ResinConfig
from resin_core.records import Record


class IndexReport(Record):
    """The report of one run. Counts are of this run but for `generation` and what is named `total_`."""

    documents: int
    passages: int
    units: dict[str, int]
    rejects: dict[str, int]
    reused: int
    resumed: int
    carried: int = Field(description="Unchanged passages of changed or moved documents, taken over without a call.")
    failed: int = Field(description="Documents with a call that was given up; the next run tries them again.")
    llm_calls: int
    prompt_tokens: int
    completion_tokens: int
    cost: float = Field(description="Of the tokens, at llm.prompt_price and llm.completion_price.")
    seconds: float
    generation: str
    total_documents: int
    total_passages: int
    total_units: int
    source_tokens: int = Field(description="Estimated tokens of the text that was sent to the model.")


class IndexProgress(Record):
    """One step of progress: `stage` is reading, extracting or publishing; `total` is 0 while unknown."""

    stage: str
    done: int
    total: int
    detail: str = ""


Progress = Callable[[IndexProgress], None]


class IndexRunner(Protocol):
    """The indexing job as the command line calls it."""

    def __call__(
        self, sources: Sequence[str], index: str, config: ResinConfig, progress: Progress, env: Mapping[str, str]
    ) -> IndexReport:
        """Indexes `sources` into `index`. Raises ResinError kinds; what was done is kept for the next run."""
        ...
