"""From candidates per hop to source passages within the evidence budget: each hop gets its share first.

Source: RESIN section 3.6; shares are ours: no hop may starve another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from resin_core.llm.context import count_tokens_estimate
from resin_core.prompts.base import shown
from resin_core.prompts.compose import heading, sentence_text
from resin_core.records import Candidate, Record, Sentence, SourcePassage

T = TypeVar("T")

_LABEL_TOKENS = 4


class Packed(Record):
    """All passages that were found, best first hop by hop; those that are strong enough; those that fit the budget.

    `fitting` is in composing order: the passages of one document together, as they stand in it.
    """

    pool: tuple[SourcePassage, ...]
    strong: tuple[SourcePassage, ...]
    fitting: tuple[SourcePassage, ...]

    @property
    def all_fit(self) -> bool:
        """No strong passage was left out or shortened."""
        return {s.passage.passage_id: s.sentences for s in self.strong} == {
            s.passage.passage_id: s.sentences for s in self.fitting
        }


def pack(
    candidates: Sequence[Sequence[Candidate]],
    passages: Mapping[str, SourcePassage],
    budget_tokens: int,
    min_share: float = 0.0,
    max_passages: int | None = None,
) -> Packed:
    """Takes turns over the hops: a passage that another hop brought already costs nothing again.

    A passage is strong when one of its units scores at least `min_share` of a hop's best. First every hop may fill its
    share of the budget with whole passages; then a hop that has nothing takes its best, from all but the shares of
    others that have nothing; then what is left goes round again. After the first round a passage too long for its room
    is shortened to the sentences its units stand in. `max_passages` bounds how many fit, whatever their length.
    """
    pool = tuple(_merge(_by_hop(candidates, passages)))
    near = [[c for c in row if c.score >= min(min_share * row[0].score, row[0].score)] for row in candidates]
    ranked = [list(hop) for hop in _by_hop(near, passages)]
    merged = {source.passage.passage_id: source for source in pool}
    strong = tuple(source for source in pool if any(source.passage.passage_id in hop for hop in ranked))
    share = budget_tokens / max(1, len(ranked))
    spent = [0] * len(ranked)
    taken: dict[str, SourcePassage] = {}

    def take(number: int, pid: str, room: float, shorten: bool = True) -> bool:
        if max_passages is not None and len(taken) >= max_passages:
            return False
        fitted = _fit(merged[pid], candidates, room, shorten)
        if fitted is not None:
            taken[pid] = fitted
            spent[number] += tokens(fitted)
        return fitted is not None

    full: set[int] = set()
    for number, pid in _turns(ranked):
        # What is too long for the share ends a hop's turns, so that it may have what the others leave.
        if not (pid in taken or number in full or take(number, pid, share - spent[number], shorten=False)):
            full.add(number)
    bare = [number for number, hop in enumerate(ranked) if hop and taken.keys().isdisjoint(hop)]
    for behind, number in zip(reversed(range(len(bare))), bare, strict=True):
        if taken.keys().isdisjoint(ranked[number]):
            room = budget_tokens - sum(spent) - behind * share
            any(take(number, pid, room) for pid in ranked[number])
    for number, pid in _turns([[pid for pid in hop if pid not in taken] for hop in ranked]):
        if pid not in taken:
            take(number, pid, budget_tokens - sum(spent))
    return Packed(pool=pool, strong=strong, fitting=_in_reading_order(taken, merged))


def _turns(queues: Sequence[Sequence[T]]) -> Iterator[tuple[int, T]]:
    """The first of each queue, then each one's second, and so on, with the queue's place."""
    for depth in range(max(map(len, queues), default=0)):
        for number, queue in enumerate(queues):
            if depth < len(queue):
                yield number, queue[depth]


def _in_reading_order(
    taken: Mapping[str, SourcePassage], merged: Mapping[str, SourcePassage]
) -> tuple[SourcePassage, ...]:
    kept = [taken[pid] for pid in merged if pid in taken]
    documents = list(dict.fromkeys(source.passage.doc_id for source in kept))
    return tuple(sorted(kept, key=lambda s: (documents.index(s.passage.doc_id), s.passage.char_start)))


def within(passages: Sequence[SourcePassage], budget_tokens: int) -> tuple[SourcePassage, ...]:
    """The passages, in order, as far as the budget goes."""
    kept, left = [], budget_tokens
    for source in passages:
        cost = tokens(source)
        if cost <= left:
            kept.append(source)
            left -= cost
    return tuple(kept)


def tokens(source: SourcePassage) -> int:
    """Estimated cost of a passage as the composer sees it."""
    return _heading_tokens(source) + sum(_sentence_tokens(source, sentence) for sentence in source.sentences)


def _heading_tokens(source: SourcePassage) -> int:
    return count_tokens_estimate(heading(source)) + _LABEL_TOKENS


def _sentence_tokens(source: SourcePassage, sentence: Sentence) -> int:
    return count_tokens_estimate(shown(sentence_text(source, sentence))) + _LABEL_TOKENS


def _by_hop(
    candidates: Sequence[Sequence[Candidate]], passages: Mapping[str, SourcePassage]
) -> list[dict[str, SourcePassage]]:
    hops: list[dict[str, SourcePassage]] = []
    for number, row in enumerate(candidates, start=1):
        hop: dict[str, SourcePassage] = {}
        for candidate in row:
            pid = candidate.unit.passage_id
            if pid not in passages:
                continue
            if pid in hop:
                ids = (*hop[pid].unit_ids, candidate.unit.unit_id)
                hop[pid] = hop[pid].model_copy(update={"unit_ids": ids})
            else:
                hop[pid] = passages[pid].model_copy(
                    update={"hops": (number,), "unit_ids": (candidate.unit.unit_id,), "score": candidate.score}
                )
        hops.append(hop)
    return hops


def _merge(ranked: Sequence[dict[str, SourcePassage]]) -> list[SourcePassage]:
    """Best of each hop first, then second best, ...: the order of the pool and of composition."""
    merged: dict[str, SourcePassage] = {}
    for _, source in _turns([list(hop.values()) for hop in ranked]):
        pid = source.passage.passage_id
        if pid not in merged:
            merged[pid] = source
            continue
        known = merged[pid]
        merged[pid] = known.model_copy(
            update={
                "hops": tuple(sorted({*known.hops, *source.hops})),
                "unit_ids": tuple(dict.fromkeys((*known.unit_ids, *source.unit_ids))),
                "score": max(known.score, source.score),
            }
        )
    return list(merged.values())


def _fit(
    source: SourcePassage, candidates: Sequence[Sequence[Candidate]], room: float, shorten: bool
) -> SourcePassage | None:
    """The passage whole, or, if it may, shortened; None when it does not fit."""
    if tokens(source) <= room:
        return source
    if not shorten:
        return None
    stated = [
        sentence_id
        for row in candidates
        for candidate in row
        if candidate.unit.passage_id == source.passage.passage_id
        for sentence_id in candidate.unit.sentence_ids
    ]
    left = room - _heading_tokens(source)
    by_id = {sentence.sentence_id: sentence for sentence in source.sentences}
    kept: set[str] = set()
    for sentence_id in dict.fromkeys(stated):
        if sentence_id not in by_id:
            continue
        cost = _sentence_tokens(source, by_id[sentence_id])
        if cost <= left:
            kept.add(sentence_id)
            left -= cost
    if not kept:
        return None
    return source.model_copy(update={"sentences": tuple(s for s in source.sentences if s.sentence_id in kept)})
