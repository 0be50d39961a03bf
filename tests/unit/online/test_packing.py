from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resin_core.online.packing import Packed, pack, tokens, within
from resin_core.records import Candidate, SourcePassage
from tests.evidence import candidate, row, source


def words(count: int) -> str:
    return "word " * (count - 1) + "end."


def packed(
    rows: Sequence[Sequence[Candidate]], sources: Sequence[SourcePassage], budget: int, min_share: float = 0.0
) -> Packed:
    return pack(rows, {of.passage.passage_id: of for of in sources}, budget, min_share)


def names(sources: Sequence[SourcePassage]) -> list[str]:
    return [of.passage.doc_id for of in sources]


LONG = [source(f"long{n}", words(40)) for n in range(6)]
SHORT = [source(f"short{n}", words(8)) for n in range(6)]


def test_all_that_fits_is_packed_as_it_was_found() -> None:
    found = packed([row(*SHORT[:2]), row(*SHORT[2:4])], SHORT, 1000)
    assert found.all_fit
    assert names(found.fitting) == names(found.pool) == ["short0", "short2", "short1", "short3"]
    assert [of.hops for of in found.pool] == [(1,), (2,), (1,), (2,)]
    assert [of.score for of in found.pool] == [0.9, 0.9, 0.8, 0.8]


def test_a_passage_of_two_hops_keeps_both_and_costs_once() -> None:
    shared, own = SHORT[0], SHORT[1]
    rows = [
        [candidate(shared, 1, rank=1, score=0.5, text="a"), candidate(shared, 1, rank=2, score=0.4, text="b")],
        [candidate(own, 1, rank=1, score=0.8), candidate(shared, 1, rank=2, score=0.7, text="a")],
    ]
    found = packed(rows, [shared, own], tokens(shared) + tokens(own))
    assert found.all_fit
    first = found.pool[0]
    assert names(found.pool) == ["short0", "short1"]
    assert first.hops == (1, 2)
    assert first.unit_ids == (rows[0][0].unit.unit_id, rows[0][1].unit.unit_id)
    assert first.score == 0.7


def test_many_long_passages_of_one_hop_do_not_starve_another() -> None:
    budget = 2 * tokens(LONG[0])
    found = packed([row(*LONG), row(*SHORT[:3])], [*LONG, *SHORT], budget)
    assert names(found.fitting) == ["long0", "short0", "short1", "short2"]
    assert names(found.pool) == ["long0", "short0", "long1", "short1", "long2", "short2", "long3", "long4", "long5"]
    assert not found.all_fit


def test_what_one_hop_leaves_over_goes_to_the_others() -> None:
    budget = 3 * tokens(LONG[0]) + tokens(SHORT[0])
    found = packed([row(*LONG), row(SHORT[0])], [*LONG, *SHORT], budget)
    assert names(found.fitting) == ["long0", "short0", "long1", "long2"]


def test_a_hop_whose_best_passage_is_too_long_still_gets_its_share() -> None:
    huge = source("huge", words(400))
    budget = 3 * tokens(SHORT[0])
    found = packed([row(*SHORT[:4]), row(huge, SHORT[5]), row(SHORT[4])], [huge, *SHORT], budget)
    assert sorted(names(found.fitting)) == ["short0", "short4", "short5"]


def test_hops_with_only_long_passages_share_what_is_left_by_shortening() -> None:
    wide = [source(f"wide{n}", words(60), f"Price {n} is $4.", words(60), words(9)) for n in range(2)]
    rows = [row(*SHORT[:6]), [candidate(wide[0], 2)], [candidate(wide[1], 2), candidate(wide[1], 4, rank=2)]]
    found = packed(rows, [*SHORT, *wide], 6 * tokens(SHORT[0]))
    kept = {of.passage.doc_id: [s.number for s in of.sentences] for of in found.fitting}
    assert kept["wide0"] == [2]
    assert kept["wide1"] == [2, 4]
    assert {"short0", "short1"} <= kept.keys()


def test_a_long_passage_stays_whole_when_the_others_leave_room() -> None:
    found = packed([row(SHORT[0]), row(LONG[0])], [*SHORT, *LONG], tokens(SHORT[0]) + tokens(LONG[0]))
    assert found.all_fit


def test_passages_of_one_document_stand_together_as_they_stand_in_it() -> None:
    late, early = source("d", words(5)), source("d", words(6))
    early = early.model_copy(update={"passage": early.passage.model_copy(update={"char_start": 0, "char_end": 28})})
    found = packed([row(late, SHORT[0], early)], [late, early, *SHORT], 1000)
    assert [of.passage.char_start for of in found.fitting] == [0, 7, 7]
    assert names(found.fitting) == ["d", "d", "short0"]
    assert names(found.pool) == ["d", "short0", "d"]
    assert found.all_fit


@pytest.mark.parametrize(("min_share", "strong"), [(0.0, 3), (0.5, 2), (0.51, 1), (1.0, 1)])
def test_weak_passages_are_in_the_pool_but_not_packed(min_share: float, strong: int) -> None:
    scores = [0.8, 0.4, 0.2]
    rows = [[candidate(of, 1, score=score) for of, score in zip(SHORT, scores, strict=False)]]
    found = packed(rows, SHORT, 1000, min_share)
    assert (len(found.pool), len(found.strong), len(found.fitting)) == (3, strong, strong)
    assert found.all_fit


def test_the_best_of_a_hop_is_never_weak() -> None:
    rows = [
        [candidate(SHORT[0], 1, score=0.9)],
        [candidate(SHORT[1], 1, score=0.1)],
        [candidate(SHORT[2], 1, score=-0.1)],
    ]
    assert len(packed(rows, SHORT, 1000, 0.5).strong) == 3


def test_a_passage_too_long_is_shortened_to_the_sentences_its_units_stand_in() -> None:
    of = source("d", words(30), "The price is $4.", words(30), "It is open.")
    found = packed([[candidate(of, 4, rank=1), candidate(of, 2, rank=2)]], [of], 30)
    (kept,) = found.fitting
    assert [sentence.number for sentence in kept.sentences] == [2, 4]
    assert kept.passage == of.passage
    assert [len(of.sentences) for of in found.pool] == [4]
    assert not found.all_fit


def test_of_stated_sentences_the_best_ranked_come_first() -> None:
    of = source("d", words(10), words(10), words(10))
    one = tokens(of.model_copy(update={"sentences": of.sentences[:1]}))
    found = packed([[candidate(of, 3, rank=1), candidate(of, 1, rank=2)]], [of], one)
    assert [sentence.number for sentence in found.fitting[0].sentences] == [3]


@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_nothing_found(rows: list[list[Candidate]]) -> None:
    assert packed(rows, [], 100) == Packed(pool=(), strong=(), fitting=())


def test_nothing_fits_and_unknown_passages_are_left_out() -> None:
    found = packed([row(LONG[0])], LONG, 5)
    assert (names(found.pool), found.fitting) == (["long0"], ())
    assert packed([row(LONG[0])], [], 500) == Packed(pool=(), strong=(), fitting=())


def test_within_keeps_the_order_and_passes_over_what_is_too_long() -> None:
    budget = tokens(SHORT[0]) * 2
    assert names(within([SHORT[0], LONG[0], SHORT[1], SHORT[2]], budget)) == ["short0", "short1"]
    assert within([], 10) == ()


def test_a_title_is_paid_for_as_it_is_shown() -> None:
    long, short = (source(doc, "It is so.", "And so.", title="") for doc in ("d" * 200, "d"))
    assert tokens(long) > tokens(short) + 40
    assert packed([row(long)], [long], tokens(short)).fitting == ()


PASSAGES = [
    source(f"p{n}", *(words(3 + (n * 7 + s * 5) % 23) for s in range(1 + n % 4)), title=f"Title {n}") for n in range(12)
]
SHARES = st.sampled_from([0.0, 0.3, 0.5, 1.0])
ROWS = st.lists(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 3), st.integers(0, 3)), max_size=8), min_size=1, max_size=4
)


@given(ROWS, st.integers(1, 250), SHARES)
def test_any_candidates_are_packed_within_the_budget(
    drawn: list[list[tuple[int, int, int]]], budget: int, min_share: float
) -> None:
    rows = []
    for hop in drawn:
        found = []
        for rank, (n, one, other) in enumerate(hop, start=1):
            of = PASSAGES[n]
            numbers = sorted({1 + one % len(of.sentences), 1 + other % len(of.sentences)})
            found.append(candidate(of, *numbers, rank=rank, score=1 / rank))
        rows.append(found)
    result = packed(rows, PASSAGES, budget, min_share)
    units = [(number, c.unit) for number, hop in enumerate(rows, start=1) for c in hop]
    assert sum(map(tokens, result.fitting)) <= budget
    assert {of.passage.passage_id for of in result.pool} == {unit.passage_id for _, unit in units}
    order = [of.passage.passage_id for of in result.pool]
    assert len(set(order)) == len(order)
    assert result.strong == tuple(of for of in result.pool if of in result.strong)
    fitting = [of.passage.passage_id for of in result.fitting]
    # Each passage is a document of its own here.
    assert fitting == [of.passage.passage_id for of in result.strong if of.passage.passage_id in fitting]
    pool = {of.passage.passage_id: of for of in result.pool}
    for of in result.pool:
        mine = [(number, unit) for number, unit in units if unit.passage_id == of.passage.passage_id]
        assert set(of.hops) == {number for number, _ in mine}
        assert set(of.unit_ids) == {unit.unit_id for _, unit in mine}
    stated = {sentence_id for _, unit in units for sentence_id in unit.sentence_ids}
    for of in result.fitting:
        whole = pool[of.passage.passage_id]
        assert of == whole or (of.sentences and {s.sentence_id for s in of.sentences} <= stated)
        assert of.model_copy(update={"sentences": whole.sentences}) == whole
    _check_shares(rows, result, budget / len(rows), min_share)


def _check_shares(rows: Sequence[Sequence[Candidate]], result: Packed, share: float, min_share: float) -> None:
    """Every hop that has something strong and small enough for its share has something in the buffer."""
    pool = {of.passage.passage_id: of for of in result.pool}
    fitting = {of.passage.passage_id for of in result.fitting}
    for hop in rows:
        small = [
            c.unit.passage_id
            for c in hop
            for s in pool[c.unit.passage_id].sentences
            if c.score >= min_share * hop[0].score
            and s.sentence_id in c.unit.sentence_ids
            and tokens(pool[c.unit.passage_id].model_copy(update={"sentences": (s,)})) <= share
        ]
        assert not small or fitting & {c.unit.passage_id for c in hop}
