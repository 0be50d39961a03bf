"""Which items of an old sequence stand in a new one, in the same order: a patience diff with a bound on its work.

Source: B. Cohen's patience diff. Equal ends match; between them, items found once on each side are anchors when they
keep their order; what lies between two anchors is treated the same way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

# Each level looks at every item at most once. Real texts need a few; what is deeper stays unmatched.
_MAX_LEVELS: Final = 32


class _Stretch(NamedTuple):
    """Half-open ranges of both sequences that are still to be matched with each other."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int
    level: int


def in_order(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[int | None]:
    """For each item of `old`, the index of an equal item in `new`, or None; the indexes rise strictly.

    Many but not always the most possible are matched. Time is O(n log n) for n items, repeated ones included.
    """
    found: list[int | None] = [None] * len(old)
    todo = [_Stretch(0, len(old), 0, len(new), 1)]
    while todo:
        a, a_end, b, b_end, level = todo.pop()
        while a < a_end and b < b_end and old[a] == new[b]:
            found[a] = b
            a, b = a + 1, b + 1
        while a < a_end and b < b_end and old[a_end - 1] == new[b_end - 1]:
            a_end, b_end = a_end - 1, b_end - 1
            found[a_end] = b_end
        if a == a_end or b == b_end or level == _MAX_LEVELS:
            continue
        anchors = _rising(_pairs(old, new, _Stretch(a, a_end, b, b_end, level)))
        if not anchors:
            continue
        for i, j in anchors:
            found[i] = j
            todo.append(_Stretch(a, i, b, j, level + 1))
            a, b = i + 1, j + 1
        todo.append(_Stretch(a, a_end, b, b_end, level + 1))
    return found


def _pairs(old: Sequence[Hashable], new: Sequence[Hashable], stretch: _Stretch) -> list[tuple[int, int]]:
    """Pairs of equal items by rising old index: those found once on each side, else repeats, first with first."""
    places: defaultdict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for i in range(stretch.old_start, stretch.old_end):
        places[old[i]][0].append(i)
    for j in range(stretch.new_start, stretch.new_end):
        places[new[j]][1].append(j)
    once = [(ours[0], theirs[0]) for ours, theirs in places.values() if len(ours) == len(theirs) == 1]
    return sorted(once or [pair for ours, theirs in places.values() for pair in zip(ours, theirs, strict=False)])


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest choice of pairs whose second numbers rise; the first numbers rise already."""
    ends: list[int] = []
    last_at: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        before.append(last_at[length - 1] if length else -1)
        if length == len(ends):
            ends.append(j)
            last_at.append(index)
        else:
            ends[length], last_at[length] = j, index
    chain = []
    index = last_at[-1] if last_at else -1
    while index >= 0:
        chain.append(pairs[index])
        index = before[index]
    chain.reverse()
    return chain
