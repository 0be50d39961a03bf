"""From the spans a model names to passages that cover every sentence once (RESIN section 3.3).

Overlaps go to the earlier span; sentences that no span covers become remainder passages, so that nothing of a
document is lost; a heading joins the passage below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from resin_core import ids
from resin_core.prompts.extraction import Span
from resin_core.records import Document, Passage, Sentence

REMAINDER = "remainder"


def partition(spans: Sequence[Span], first: int, last: int, headings: frozenset[int] = frozenset()) -> list[Span]:
    """Spans over first..last without overlap or gap, in order. Numbers outside are clipped away."""
    cut: list[Span] = []
    at = first
    for span in sorted(spans, key=lambda s: (s.first, s.last)):
        start, end = max(span.first, at), min(span.last, last)
        if start > end:
            continue
        if start > at:
            cut.append(Span(at, start - 1, "", "", "", REMAINDER))
        cut.append(span._replace(first=start, last=end))
        at = end + 1
    if at <= last:
        cut.append(Span(at, last, "", "", "", REMAINDER))
    return _join_headings(cut, headings)


def chunks(sentences: Sequence[Sentence], max_sentences: int, max_chars: int) -> list[Span]:
    """Fixed-size spans at sentence borders, for windows whose passages no model gave."""
    found: list[Span] = []
    start = 0
    for i in range(1, len(sentences) + 1):
        if i == len(sentences) or (
            i - start >= max_sentences or sentences[i].char_end - sentences[start].char_start > max_chars
        ):
            found.append(Span(sentences[start].number, sentences[i - 1].number, "", "", "", REMAINDER))
            start = i
    return found


def build_passages(document: Document, sentences: Sequence[Sentence], spans: Sequence[Span]) -> list[Passage]:
    """Passages in document order; equal texts get ordinals, so that an edit elsewhere changes no id."""
    by_number = {sentence.number: sentence for sentence in sentences}
    seen: Counter[str] = Counter()
    passages = []
    for span in sorted(spans):
        inside = [by_number[n] for n in range(span.first, span.last + 1)]
        start, end = inside[0].char_start, inside[-1].char_end
        text = document.text[start:end]
        passages.append(
            Passage(
                passage_id=ids.passage_id(document.doc_id, text, seen[text]),
                doc_id=document.doc_id,
                sentence_ids=tuple(sentence.sentence_id for sentence in inside),
                char_start=start,
                char_end=end,
                text=text,
                main_entity=span.entity,
                entity_type=span.entity_type,
                semantic_focus=span.focus,
                evidence_role=span.role,
                semantic=span.role != REMAINDER,
            )
        )
        seen[text] += 1
    return passages


def _join_headings(spans: list[Span], headings: frozenset[int]) -> list[Span]:
    joined: list[Span] = []
    for span in reversed(spans):
        bare = all(number in headings for number in range(span.first, span.last + 1))
        if bare and joined:
            joined[-1] = joined[-1]._replace(first=span.first)
        else:
            joined.append(span)
    joined.reverse()
    if len(joined) > 1 and all(n in headings for n in range(joined[-1].first, joined[-1].last + 1)):
        tail = joined.pop()
        joined[-1] = joined[-1]._replace(last=tail.last)
    return joined
