from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resin_core.indexing.align import in_order

ITEMS = st.lists(st.sampled_from("abcde"), max_size=30)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", []),
        ("ab", "", [None, None]),
        ("", "ab", []),
        ("abc", "abc", [0, 1, 2]),
        ("abc", "xabc", [1, 2, 3]),
        ("abc", "abxc", [0, 1, 3]),
        ("abc", "ac", [0, None, 1]),
        ("abcdef", "xbydzf", [None, 1, None, 3, None, 5]),
        ("xaaay", "zaaaw", [None, 1, 2, 3, None]),
        ("xaay", "zaaaw", [None, 1, 2, None]),
        ("abcxy", "xyabc", [2, 3, 4, None, None]),
        ("abc", "xyz", [None, None, None]),
        # Between the anchors b and e the repeated a is found once on each side.
        ("xabacey", "zabaceaw", [None, 1, 2, 3, 4, 5, None]),
    ],
)
def test_what_stands_in_order(old: str, new: str, expected: list[int | None]) -> None:
    assert in_order(old, new) == expected


@settings(deadline=None)
@given(ITEMS, ITEMS)
def test_any_two_sequences(old: list[str], new: list[str]) -> None:
    found = in_order(old, new)
    places = [place for place in found if place is not None]
    assert len(found) == len(old)
    assert all(a < b for a, b in pairwise(places))
    assert all(place is None or old[i] == new[place] for i, place in enumerate(found))
    assert bool(places) == bool(set(old) & set(new))


@settings(deadline=None)
@given(st.lists(st.integers(), unique=True, max_size=30), st.sets(st.integers(0, 29)), ITEMS)
def test_nothing_is_lost_by_insertions_and_deletions_among_unlike_items(
    old: list[int], gone: set[int], extra: list[str]
) -> None:
    new: list[int | str] = [item for i, item in enumerate(old) if i not in gone]
    for i, item in enumerate(extra):
        new.insert(i * 7 % (len(new) + 1), item)
    assert [place is None for place in in_order(old, new)] == [i in gone for i in range(len(old))]


class Counted:
    """An item that counts how often it is looked at."""

    looks = 0

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        Counted.looks += 1
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        Counted.looks += 1
        return isinstance(other, Counted) and self.value == other.value


SIZE = 2000


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([1] * SIZE, [2, *[1] * SIZE, 2]),
        (range(SIZE), range(SIZE, 0, -1)),
        ([0, 1] * (SIZE // 2), [1, 1, 0] * (SIZE // 3)),
        (random.Random(1).sample(range(SIZE), SIZE), random.Random(2).sample(range(SIZE), SIZE)),
        (random.Random(3).choices(range(SIZE // 3), k=SIZE), random.Random(4).choices(range(SIZE // 3), k=SIZE)),
        # Every level finds one anchor: the lone item in the middle of what is left.
        ([x for i in range(SIZE // 2) for x in (i, i)], [x for i in range(SIZE // 2, 0, -1) for x in (i, -i, i)]),
    ],
)  # fmt: skip
def test_the_work_is_not_quadratic(old: list[int], new: list[int]) -> None:
    Counted.looks = 0
    in_order([Counted(value) for value in old], [Counted(value) for value in new])
    assert Counted.looks < 32 * 4 * (len(old) + len(new))
