"""The lines of a derivation: as they are read from what a model wrote, and as they are after the check."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator

from resin_core.prompts.base import WireReply
from resin_core.records import Record

MAX_TEXT: Final = 200
MAX_FACTS: Final = 12
MAX_SUMS: Final = 8
MAX_CHECKS: Final = 8


def _text(value: object) -> object:
    """One line of at most MAX_TEXT characters; what is longer ends in "…", which no sum can be read with."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return "" if value is None else value
    line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", " ", value).split())
    return line if len(line) <= MAX_TEXT else re.sub(r"\d[\d.,]*$", "", line[: MAX_TEXT - 1]) + "…"


def _first(most: int) -> BeforeValidator:
    return BeforeValidator(lambda value: value[:most] if isinstance(value, list | tuple) else value or ())


Text = Annotated[str, BeforeValidator(_text)]


class FactLine(WireReply):
    """A fact in the model's words and the number of the source it is from."""

    fact: Text
    source: int


class SumLine(WireReply):
    """A named expression over numbers, and its result with a unit."""

    name: Text = ""
    sum: Text
    result: Text = ""


class CheckLine(WireReply):
    """A comparison in words and in two operands: numbers, expressions, or names of earlier sums or facts."""

    check: Text = ""
    left: Text
    relation: Text
    right: Text
    holds: bool = False


class DerivationReply(WireReply):
    """The derivation as it was read; longer lists and texts than allowed are cut."""

    facts: Annotated[tuple[FactLine, ...], _first(MAX_FACTS)] = ()
    sums: Annotated[tuple[SumLine, ...], _first(MAX_SUMS)] = ()
    checks: Annotated[tuple[CheckLine, ...], _first(MAX_CHECKS)] = ()


CorrectionKind = Literal["source", "number", "result", "operand", "holds"]


class Dropped(Record):
    """A line that was left out, and why."""

    kind: Literal["fact", "sum", "check"]
    text: str
    reason: str


class Correction(Record):
    """A part of a line that was put right: `text` names the line, `old` is what the model wrote."""

    kind: CorrectionKind
    text: str
    old: str
    new: str


class Checked(Record):
    """What is left of a derivation, all of it right, and what was changed."""

    facts: tuple[FactLine, ...] = ()
    sums: tuple[SumLine, ...] = ()
    checks: tuple[CheckLine, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    corrections: tuple[Correction, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain lists and values, for the trace."""
        return self.model_dump(mode="json")
