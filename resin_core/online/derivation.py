"""The derivation before an answer: facts with sources, sums and comparisons, checked and put right by code.

It is read from the model's lines; small models add badly, mark comparisons wrongly and cite the wrong sentence.
Whatever is kept here rests on a source: numbers are compared by value, wrong results are replaced, invented numbers
are dropped, and each change is recorded for the trace. What the model wrote is data: it is never formatted, run or
looked up.
"""

from __future__ import annotations

import re
from typing import Final

from resin_core.online.derivation_check import check
from resin_core.online.derivation_records import Checked, DerivationReply
from resin_core.online.quantities import quantities

__all__ = ["Checked", "DerivationReply", "check", "has_numbers", "needs_numbers"]

_ASKS: Final = re.compile(
    r"\bhow (?:many|much|long|far|old|big|tall|heavy|fast|late)\b|\b(?:total|altogether|sum|average|difference|twice)\b"
    r"|\b(?:longer|shorter|cheaper|older|younger|bigger|larger|smaller|taller|heavier|lighter|faster|slower|fewer)\b"
    r"|\b(?:more|less|higher|lower|earlier|later) than\b|\bwhich\b.*\b(?:more|less|most|least|higher|lower)\b"
    r"|\b(?:first|earlier|later|last)\b.*\bor\b"
    # How much, in a few other languages.
    r"|\b(?:kaç|ne kadar|toplam|combien|cuánt[oa]s?|quant[oi]|wie ?viele?)\b|多少|总共",
    re.IGNORECASE,
)
_LIMIT: Final = re.compile(
    r"\b(?:within|at (?:most|least)|than|under|over|below|above|up to|between|limit|budget|before|after|maximum|minimum"
    r"|max|min|no more|enough|afford)\b|[<>≤≥]",
    re.IGNORECASE,
)


def has_numbers(text: str) -> bool:
    """Whether the text has any digit or an English number word ("one" is seldom a number)."""
    if re.search(r"\d", text):
        return True
    return any(quantity.number != 1 for quantity in quantities(text))


def needs_numbers(question: str) -> bool:
    """Whether a derivation could matter, by the question alone: it asks for an amount, compares, or sets a limit.

    Cheap and mostly English; two numbers with known units ("$10", "40 min") are enough in any language. The plan's
    reasoning mode is the other signal: a caller takes either.
    """
    found = quantities(question)
    with_unit = [quantity for quantity in found if quantity.unit]
    return bool(_ASKS.search(question) or len(with_unit) > 1 or (found and _LIMIT.search(question)))
