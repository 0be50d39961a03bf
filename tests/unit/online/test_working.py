from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resin_core.online.working import Worked, work_out
from resin_core.prompts import derive
from resin_core.prompts.derive import Limit, parse

QUESTION = "Should I order the Alba or the Brio to have a lamp with bulb within 5 days for at most $19?"
SOURCES = {
    1: "The Alba lamp costs $12 and weighs 900 g.",
    2: "Its bulb costs $6 and is sold apart.",
    3: "It takes 4 days to build.",
    4: "The parcel with the Alba takes 2 days.",
    5: "The shop opens at 9 and closes at 18.",
    6: "The Brio lamp costs $15 with its bulb.",
    7: "It takes 1 day to build.",
    8: "The parcel with the Brio takes 2 days.",
}
TITLES = {n: "Lamp Alba" if n <= 4 else "Lamp Brio" if n >= 6 else "Shop hours" for n in SOURCES}


def worked(*lines: str, question: str = QUESTION) -> Worked:
    return work_out("\n".join(lines), SOURCES, TITLES, question)


class Many(NamedTuple):
    """Options with a price and a time each, more than the JSON form of a derivation could hold."""

    lines: list[str]
    sources: dict[int, str]
    names: list[str]


def many(count: int) -> Many:
    names = ["Alba", "Brio", "Cato", "Dora", "Elia", "Fina", "Gala", "Hera"][:count]
    sources, lines = {}, []
    for n, name in enumerate(names):
        sources |= {2 * n + 1: f"The {name} costs ${10 + n}.", 2 * n + 2: f"The {name} takes {20 + n} days."}
        lines += [f"{name}, price: ${10 + n} [{2 * n + 1}]", f"{name}, time: {20 + n} days [{2 * n + 2}]"]
    return Many(lines, sources, names)


@pytest.mark.parametrize(
    ("row", "fact", "expression", "claimed"),
    [
        ("Alba, price: $12 [1]", [("Alba: $12", 1)], "$12", ""),
        ("- Alba,  price :  $12[1] + $6 [2]", [("Alba: $12", 1), ("Alba: $6", 2)], "$12 + $6", ""),
        ("* Alba, price: $12 [1] + $6 [2] = $20", [("Alba: $12", 1), ("Alba: $6", 2)], "$12 + $6", "$20"),
        ("Alba [1], price: $12 [1]", [("Alba: $12", 1)], "$12", ""),
        ("Alba, price: about $12 [1] and more", [("Alba: about $12", 1)], "about $12 and more", ""),
        ("Alba, price: $12 + $6 [2]", [("Alba: $6", 2)], "$12 + $6", ""),
        ("Alba: $12 [1]", [("Alba: $12", 1)], "$12", ""),
        ("Alba, price: {0} 12 [1]", [("Alba: {0} 12", 1)], "{0} 12", ""),
    ],
)
def test_lines(row: str, fact: list[tuple[str, int]], expression: str, claimed: str) -> None:
    (line,), limits = parse(row)
    assert [(f.fact, f.source) for f in line.facts] == fact
    assert (line.expression, line.claimed, limits) == (expression, claimed, [])


@pytest.mark.parametrize(
    "row",
    [
        "", "Here are the values:", "Alba: $12", "Alba, price: $12", "Alba, price: cheap [1]", "Alba, price: [1]",
        "limit, price: cheap", "limit: cheap", f"{'a' * 81}, price: $1 [1]", f"Alba, price: {'1' * 301}",
    ],
)  # fmt: skip
def test_lines_of_another_form_are_passed_over(row: str) -> None:
    assert parse(row) == ([], [])


@pytest.mark.parametrize(
    ("row", "limit"),
    [
        ("limit, price: <= $19", Limit("price", "<=", "$19")),
        ("Limit, time: ≥ 5 days [3]", Limit("time", "≥", "5 days")),
        ("- limit, time: < 5 days", Limit("time", "<", "5 days")),
        ("limit, time: =5", Limit("time", "=", "5")),
    ],
)
def test_limit_lines(row: str, limit: Limit) -> None:
    assert parse(f"{row}\n{row}") == ([], [limit])


def test_repeats_and_endless_replies_are_cut() -> None:
    values, _ = parse(
        "Alba, price: $12 [1]\nALBA, Price: $13 [2]\n" + "\n".join(f"x{n}, y: {n} [1]" for n in range(99))
    )
    assert [line.name for line in values] == ["Alba, price", *(f"x{n}, y" for n in range(derive.MAX_LINES - 2))]


def test_wrong_totals_are_put_right() -> None:
    found = worked("Alba, price: $12 [1] + $6 [2] = $20", "limit, price: <= $19")
    assert found.text == "Alba: price $18 [1][2], which is within $19"
    assert [(c.kind, c.old, c.new) for c in found.checked.corrections] == [("result", "$20", "$18")]


def test_an_option_that_fails_one_limit_is_not_within_all() -> None:
    found = worked(
        "Alba, price: $12 [1]", "Alba, time: 4 days [3] + 2 days [4]", "limit, price: <= $19", "limit, time: <= 5 days"
    )
    price, time = "price $12 [1], which is within $19", "time 6 days [3][4], which is over 5 days"
    assert found.text == f"Alba: {price}; {time}. Ruled out"


def test_wrong_sentence_numbers_are_put_right_in_what_is_written_too() -> None:
    found = worked("Alba, weight: weighs 900 g [7]", "Alba, price: costs $12 [1]", question="How heavy is the Alba?")
    assert found.written == "Alba, weight: weighs 900 g [1]\nAlba, price: costs $12 [1]"
    assert ("source", "7", "1") in [(c.kind, c.old, c.new) for c in found.checked.corrections]


def test_equal_values_keep_their_own_sentences() -> None:
    sources = {1: "The Alba takes 4 days to build.", 2: "The parcel with the Alba takes 4 days."}
    found = work_out("Alba, build: 4 days [1]\nAlba, parcel: 4 days [2]", sources, {}, "How long for the Alba?")
    assert found.written == "Alba, build: 4 days [1]\nAlba, parcel: 4 days [2]"


def test_values_that_no_source_states_are_dropped() -> None:
    found = worked("Alba, price: $12 [1] + $777 [2]", "Alba, time: 44 days [99]")
    assert found.written == "Alba, price: $12 [1]"
    assert [line.text for line in found.checked.dropped] == ["Alba: $777", "Alba: 44 days"]
    assert "777" not in found.text


@pytest.mark.parametrize("limit", ["<= $25", "<= 3 days", "<= cheap"])
def test_a_limit_that_the_question_does_not_set_is_dropped(limit: str) -> None:
    found = worked("Alba, price: $12 [1]", f"limit, price: {limit}")
    assert limit.removeprefix("<= ") not in [check.right for check in found.checked.checks]
    (gone,) = found.checked.dropped
    assert (gone.kind, gone.reason) == ("check", "the question sets no such limit")


def test_limits_that_the_model_leaves_out_are_read_from_the_question() -> None:
    found = worked("Brio, price: $15 [6]", "Brio, time: 1 day [7] + 2 days [8]")
    assert (
        found.text == "Brio: price $15 [6], which is within $19; time 3 days [7][8], which is within 5 days. "
        "Keeps all limits"
    )


def test_parts_under_names_of_their_own_are_added_up_for_a_limit_on_the_whole() -> None:
    found = worked("Alba, building: 4 days [3]", "Alba, parcel: 2 days [4]", "limit, time: <= 5 days")
    assert "time 6 days [3][4], which is over 5 days" in found.text


def test_a_value_from_another_options_document_is_dropped() -> None:
    found = worked("Alba, time: 4 days [3] + 2 days [8]", "Brio, time: 1 day [7] + 2 days [8]")
    assert found.written.splitlines() == ["Alba, time: 4 days [3]", "Brio, time: 1 day [7] + 2 days [8]"]
    (gone,) = found.checked.dropped
    assert (gone.text, gone.reason) == ("Alba: 2 days", "source 8 is not about it")


def test_options_that_the_question_does_not_name_are_set_aside_when_it_names_others() -> None:
    lines = ("Alba, price: $12 [1]", "Brio, price: $15 [6]")
    assert worked(*lines, question="What does the alba cost?").written == lines[0]
    assert worked(*lines, question="Which lamp is cheaper?").written == "\n".join(lines)
    gone = worked(*lines, question="What does the alba cost?").checked.dropped
    assert [(line.text, line.reason) for line in gone] == [("Brio, price", "the question does not name this option")]


def test_differences_are_worked_out_only_without_limits_and_of_few_options() -> None:
    lines = ("Alba, price: $12 [1] + $6 [2]", "Brio, price: $15 [6]", "Brio, time: 1 day [7]")
    compared = worked(*lines, question="Is the Alba or the Brio cheaper, and by how much?").text
    assert compared.splitlines()[-1] == "price, Alba minus Brio: ($12 + $6) - $15 = $3"
    assert "time, " not in compared
    assert worked(*reversed(lines), question="Which is cheaper?").text.endswith(
        "price, Alba minus Brio: ($12 + $6) - $15 = $3"
    )
    assert "minus" not in worked(*lines, "limit, price: <= $19").text
    assert "minus" not in work_out("\n".join(many(5).lines), many(5).sources, {}, "Which is cheapest?").text


def test_no_line_is_lost_however_many_options_there_are() -> None:
    given_ = many(8)
    question = f"Which of {', '.join(given_.names)} costs at most $50 and takes at most 25 days?"
    lines = [*given_.lines, "limit, price: <= $50", "limit, time: <= 25 days"]
    found = work_out("\n".join(lines), given_.sources, {}, question)
    assert found.written.splitlines() == given_.lines
    assert len(found.checked.checks) == 16
    assert found.text.count("Keeps all limits") == 6
    assert [line.partition(":")[0] for line in found.text.splitlines() if "Ruled out" in line] == ["Gala", "Hera"]


def test_an_option_with_an_unknown_quantity_is_not_said_to_be_within_all_limits() -> None:
    limits = ("limit, price: <= $19", "limit, time: <= 5 days")
    some = worked("Alba, price: $12 [1]", "Brio, price: $15 [6]", "Brio, time: 1 day [7]", *limits)
    assert some.text.splitlines()[1].endswith("Keeps all limits")
    assert "limits" not in some.text.splitlines()[0]
    none = worked("Alba, price: $12 [1]", "Brio, time: 1 day [7]", *limits)
    assert "Keeps all limits" not in none.text


LINE = st.builds(
    "{}, {}: {}{}".format,
    st.sampled_from(["Alba", "Brio", "limit", "- Alba", "", "{0}"]),
    st.sampled_from(["price", "time", "", "p\\1"]),
    st.sampled_from(["$12 [1]", "<= $19", "4 days [3] + 2 days [4]", "x", "1/0 [1]", "((9 [2]", "9e9 [77]", "٣ [1]"]),
    st.sampled_from(["", " = $5", " + $6 [2] = 1 = 2", "\x00", " [1"]),
)


@given(
    st.one_of(st.text(max_size=200), st.lists(LINE, max_size=8).map("\n".join)), st.sampled_from([QUESTION, "", "?"])
)
def test_any_reply_is_worked_out_and_rests_on_the_sources(reply: str, question: str) -> None:
    found = work_out(reply, SOURCES, TITLES, question)
    assert all(fact.source in SOURCES for fact in found.checked.facts)
    assert len(found.written.splitlines()) <= derive.MAX_LINES
    assert found.text or not found.written
    # What was put right needs no putting right: the same facts stand, from the same sentences.
    again = work_out(found.written, SOURCES, TITLES, question)
    assert set(again.checked.facts) == set(found.checked.facts)


def test_values_without_a_quantity_are_sorted_by_their_kind_of_unit() -> None:
    mixed = worked("Alba: $12 [1] + 4 days [3]", "Alba: 2 days [4]", "limit, time: <= 5 days", "limit, price: <= $19")
    assert mixed.written.splitlines() == ["Alba, price: $12 [1]", "Alba, time: 4 days [3] + 2 days [4]"]
    assert "time 6 days [3][4], which is over 5 days" in mixed.text


def test_a_reply_in_the_form_of_worked_values_is_read_too() -> None:
    assert worked("Brio: time 1 day [7] + 2 days [8] = 3 days [7]").written == "Brio, time: 1 day [7] + 2 days [8]"
    row = "Brio, time: 1 day [7] + 2 days [8] = 3 days, which is within 5 days; price $15 [6]. Keeps all limits"
    assert worked(row).written == "Brio, time: 1 day [7] + 2 days [8]\nBrio, price: $15 [6]"


def test_only_values_in_the_units_that_are_asked_for_are_compared() -> None:
    lines = ("Alba, time: 4 days [3]", "Alba, price: $12 [1]", "Brio, time: 1 day [7]", "Brio, price: $15 [6]")
    compared = worked(*lines, question="Which lamp is built faster, the Alba or the Brio, and by how many days?")
    assert "price" not in compared.text
    assert compared.text.endswith("time, Alba minus Brio: 4 days - 1 day = 3 days")


def test_a_total_without_sentence_numbers_is_worked_out_from_known_values_only() -> None:
    lines = ("Alba, price: $12 [1]", "Brio, price: $15 [6]")
    question = "What do the Alba and the Brio cost together?"
    assert worked(*lines, "Total: $12 + $15 = $20", question=question).text.endswith("Total: $12 + $15 = $27")
    assert "99" not in worked(*lines, "Total: $12 + $99 = $20", question=question).text


@pytest.mark.parametrize(
    ("titles", "documents"),
    [
        # One title begins another, holds a colon, or stands over two documents.
        ({1: "Bus 1", 2: "Bus 14"}, {1: "bus-1", 2: "bus-14"}),
        ({1: "Line: Bus 1", 2: "Line: Bus 14"}, {1: "bus-1", 2: "bus-14"}),
        ({1: "Timetable", 2: "Timetable"}, {1: "bus-1", 2: "bus-14"}),
        ({1: "Bus 1", 2: "Bus 14"}, None),
    ],
)
def test_a_value_is_of_its_own_document_whatever_the_titles(
    titles: dict[int, str], documents: dict[int, str] | None
) -> None:
    sources = {1: "The ride with the Alba takes 40 minutes.", 2: "The ride with the Brio takes 55 minutes."}
    question = "Is the Alba or the Brio faster?"
    found = work_out("Alba, time: 40 minutes [1]\nBrio, time: 40 minutes [1]", sources, titles, question, documents)
    assert [(fact.fact, fact.source) for fact in found.checked.facts] == [("Alba: 40 minutes", 1)]
    assert [one.reason for one in found.checked.dropped] == ["source 1 is not about it"]
