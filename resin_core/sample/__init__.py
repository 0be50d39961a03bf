"""The sample that ships with Resin: three small corpora in one folder, and a question with gold evidence for each."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import Field

from resin_core.records import Record

_HERE = Path(__file__).parent


class Choice(Record):
    """Two things that a question chooses between, as words of an answer."""

    right: str
    wrong: str


class SampleQuestion(Record):
    """A question, the right answer in words, what any right answer must hold, and the sentences it rests on.

    `gold` maps document ids to numbers of sentences, from 1. `choice` is there where naming the right thing is not
    enough, because a wrong answer names it too.
    """

    id: str
    question: str
    answer: str
    expected: tuple[str, ...]
    rejected: tuple[str, ...] = ()
    choice: Choice | None = None
    gold: dict[str, tuple[int, ...]] = Field(min_length=1)

    @property
    def gold_sentences(self) -> tuple[str, ...]:
        """Sentence ids of the gold evidence."""
        return tuple(f"{doc_id}#s{number}" for doc_id, numbers in self.gold.items() for number in numbers)


def corpus() -> Path:
    """The folder to index."""
    return _HERE / "corpus"


def questions() -> tuple[SampleQuestion, ...]:
    """The questions, in the order of the demo."""
    listed = json.loads((_HERE / "questions.json").read_text(encoding="utf-8"))
    return tuple(SampleQuestion.model_validate(one) for one in listed)
