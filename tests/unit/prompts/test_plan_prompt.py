from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resin_core.prompts import plan
from resin_core.prompts.plan import PlanReply, parse


def depends(lines: list[str], max_hops: int = 4) -> list[tuple[str, tuple[int, ...]]]:
    found = parse(PlanReply(hops=lines), max_hops)
    return [] if found is None else [(hop.subquestion, hop.depends_on) for hop in found.hops]


def test_a_whole_plan() -> None:
    reply = PlanReply(
        mode="bridge",
        answer="date",
        entities=["Orlo"],
        properties=["maker"],
        limits=["before 1900"],
        hops=["Who makes Orlo? | Orlo | maker, made by; builder | relation | ", "When? | maker | died | fact | 1"],
    )
    found = parse(reply, 4)
    assert found is not None
    assert (found.reasoning_mode, found.expected_answer_type) == ("bridge", "date")
    assert (found.entities, found.properties, found.constraints) == (("Orlo",), ("maker",), ("before 1900",))
    first, second = found.hops
    assert (first.target, first.reasoning_type) == ("Orlo", "relation")
    assert first.bridge_terms == ("maker", "made by", "builder")
    assert first.query == "Who makes Orlo? Orlo maker made by builder"
    assert second.depends_on == (1,)
    assert found.fallback == ""


@pytest.mark.parametrize(
    ("lines", "hops"),
    [
        (["a?"], [("a?", ())]),
        (["a? | t | w | fact | 1 | more | and more"], [("a?", ())]),
        (["a?", "A?", " a?  | other target"], [("a?", ())]),
        (["", " | target only", "|||||"], []),
        (["a?", "b? | | | | 1", "c? | | | | 1, 2"], [("a?", ()), ("b?", (1,)), ("c?", (1, 2))]),
        (["a? | | | | 2", "b? | | | | 2"], [("a?", ()), ("b?", ())]),
        (["a?", "b? | | | | hop 1 and hop 1"], [("a?", ()), ("b?", (1,))]),
        (["a?", "b? | | | | 0", "c? | | | | 99 -1"], [("a?", ()), ("b?", ()), ("c?", (1,))]),
        (["a?", "b? | | | | 1000000000000000000001"], [("a?", ()), ("b?", ())]),
        # The numbers are the model's, of its own lines: a dropped line shifts none of them.
        (["", "b?", "c? | | | | 2"], [("b?", ()), ("c?", (1,))]),
        (["a?", "b?", "a?", "d? | | | | 3"], [("a?", ()), ("b?", ()), ("d?", (1,))]),
        (["", "b? | | | | 1"], [("b?", ())]),
    ],
)
def test_lines(lines: list[str], hops: list[tuple[str, tuple[int, ...]]]) -> None:
    assert depends(lines) == hops


@pytest.mark.parametrize("most", [1, 2, 4])
def test_no_more_hops_than_allowed(most: int) -> None:
    assert [hop for hop, _ in depends(["a?", "b?", "c?", "d?", "e?"], most)] == ["a?", "b?", "c?", "d?"][:most]


@given(st.lists(st.text(st.sampled_from("ab?| ,;0123456789²٣"), max_size=20), max_size=6), st.integers(1, 5))
def test_any_lines_give_a_plan_whose_hops_build_on_earlier_ones(lines: list[str], most: int) -> None:
    found = parse(PlanReply.model_construct(hops=lines), most)
    if found is None:
        assert not any(line.partition("|")[0].strip() for line in lines[:most])
        return
    assert 1 <= len(found.hops) <= most
    assert len({hop.subquestion.casefold() for hop in found.hops}) == len(found.hops)
    for number, hop in enumerate(found.hops, start=1):
        assert all(1 <= earlier < number for earlier in hop.depends_on)
        assert hop.query


def test_the_examples_fit_their_own_schema() -> None:
    schema = plan.schema(4)["properties"]
    for _, given_ in plan.PROMPT.examples:
        value = json.loads(given_)
        assert list(value) == list(schema)
        assert value["mode"] in schema["mode"]["enum"]
        assert all(re.fullmatch(schema["hops"]["items"]["pattern"], hop) for hop in value["hops"])
        found = parse(PlanReply.model_validate(value), 4)
        assert found is not None
        assert len(found.hops) == len(value["hops"])
