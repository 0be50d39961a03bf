"""Wire forms shared by the extraction prompts: numbered sentences in, claim lines per sentence out.

A claim is one line, "kind | subject | property | value | limits", because output tokens are the cost of indexing and
field names and quotes would double them. The reply's keys are the numbers of the sentences shown, fixed by the
schema: a number that was not shown cannot come back, and no sentence can be passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from resin_core.prompts.base import fields, shown

UNIT_RULES = """"units": for each sentence, the one or two claims that this sentence states, each as \
"kind | subject | property | value", with " | when, where or under which condition" added if the sentence limits the \
claim so. kind is one of
fact: a named thing has a property with a value
type: all things of a type have a property
isa: a thing belongs to a type
rel: a link between two things
cause: a state or action | leads to, raises, lowers, ... | another state
rule: condition | then | conclusion
Subjects are full names, never pronouns. Numbers, units and names stay exactly as in the sentence. Add nothing that \
the sentence does not say."""

PASSAGE_RULES = """"passages": runs of sentences about one main entity, as \
"first-last | entity | type of entity | what is said | role"; role is description, property, method, mechanism, \
result, comparison, condition or event. Together they cover all sentences."""

PUMP = """title: Halden pump station
[1] The Halden station lifts water from the river Eme.
[2] It has three pumps, and each moves 40 litres a second.
[3] Kessel built the pumps in 1987.
[4] If the basin level falls below 2 m, the second pump starts."""
PUMP_UNITS = {
    "1": ["rel | Halden station | lifts water from | river Eme"],
    "2": [
        "fact | Halden station | number of pumps | three",
        "fact | each pump of Halden station | flow | 40 litres a second",
    ],
    "3": ["rel | Kessel | built | pumps of Halden station | 1987"],
    "4": ["rule | basin level falls below 2 m | then | second pump starts"],
}
PUMP_PASSAGES = [
    "1-3 | Halden station | pump station | purpose and pumps | description",
    "4-4 | Halden station | pump station | when a pump starts | condition",
]
BARLEY = """title: Leaf wax in drought-stressed barley
[1] Barley loses yield in dry years, but the part of leaf wax is unclear.
[2] We grew 14 barley lines with and without water for 21 days and measured wax by gas chromatography.
[3] In the dry plots, wax load rose by 38% in the line Tolva, which slowed water loss.
[4] Genes such as CER1 and KCS6 were more active, suggesting that they may drive wax growth.
[5] Thus leaf wax helps barley to keep water."""
BARLEY_UNITS = {
    "1": ["cause | dry years | lower | yield of barley"],
    "2": ["fact | barley study | number of lines | 14", "rel | wax | measured by | gas chromatography"],
    "3": [
        "fact | line Tolva | rise of wax load | 38% | in the dry plots",
        "cause | wax load of line Tolva | slowed | water loss",
    ],
    "4": ["fact | genes CER1 and KCS6 | activity | higher", "cause | genes CER1 and KCS6 | may drive | wax growth"],
    "5": ["cause | leaf wax | helps to keep | water in barley"],
}
BARLEY_PASSAGES = [
    "1-2 | barley study | experiment | question and method | method",
    "3-5 | leaf wax | plant trait | effect of drought on wax and water loss | result",
]

_RANGE = re.compile(r"\D*(\d{1,7})(?!\d)(?:\D+(\d{1,7})(?!\d))?")

# Not str.isdigit: a superscript is a digit to it, and to int an error.
_KEY = re.compile(r"\d{1,7}")


class Line(NamedTuple):
    """A sentence as shown: its number, its text, and whether it is a heading (which states nothing by itself)."""

    number: int
    text: str
    heading: bool = False


class Span(NamedTuple):
    """A passage as the model names it: first and last sentence, and what it is about."""

    first: int
    last: int
    entity: str
    entity_type: str
    focus: str
    role: str


def render(title: str, lines: Sequence[Line]) -> str:
    """Title and numbered sentences, a line each; a heading that repeats the title is left out."""
    name = shown(title)
    rows = [f"title: {name}"]
    for line in lines:
        text = shown(line.text)
        if line.heading and text.lstrip("# ") == name:
            continue
        rows.append(f"[{line.number}] {text}")
    return "\n".join(rows)


def compact(value: Any) -> str:
    """JSON without spaces, as examples show it and models then write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def units_schema(lines: Sequence[Line], per_sentence: int) -> dict[str, Any]:
    """One required list of claim lines for each sentence that is no heading."""
    keys = [str(line.number) for line in lines if not line.heading]
    claims = {"type": "array", "minItems": 1, "maxItems": per_sentence, "items": {"type": "string"}}
    return {
        "type": "object",
        "properties": dict.fromkeys(keys, claims),
        "required": keys,
        "additionalProperties": False,
    }


def passages_schema(lines: Sequence[Line]) -> dict[str, Any]:
    """A short list of passage lines: at most one for every three sentences."""
    most = max(1, min(8, (len(lines) + 2) // 3))
    return {"type": "array", "minItems": 1, "maxItems": most, "items": {"type": "string"}}


def spans(rows: Sequence[str]) -> list[Span]:
    """Passage lines as spans; a line without a number is passed over (its sentences go to a remainder passage)."""
    found = []
    for row in rows:
        place, *rest = fields(row)
        match = _RANGE.match(place)
        if match is None:
            continue
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        entity, entity_type, focus, role = (*rest, "", "", "", "")[:4]
        found.append(Span(min(first, last), max(first, last), entity, entity_type, focus, role))
    return found


def claims(units: dict[str, list[str]]) -> list[tuple[int, str]]:
    """Claim lines with the number of the sentence they were given for."""
    return [(int(key), row) for key, rows in units.items() if _KEY.fullmatch(key) for row in rows]
