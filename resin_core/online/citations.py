"""From sentence labels in the composer's text to checked, renumbered citations.

A label that no sentence of the buffer has is removed, with the blank before it, never passed on. Labels are renumbered
in the order of their first use, also while the text streams.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rapidfuzz import fuzz

from resin_core.indexing.words import tokens
from resin_core.prompts.base import shown
from resin_core.prompts.compose import sentence_text
from resin_core.records import Citation, Sentence, SourcePassage
from resin_core.text.sentences import sentence_spans

Labels = Mapping[int, tuple[SourcePassage, Sentence]]

_BLANKS = " \t\u00a0\u202f"
# All the blanks before a label; tried once for a run of them, so that a long run costs no more than its length.
_GROUP = re.compile(rf"((?<![{_BLANKS}])[{_BLANKS}]+)?\[([^\[\]]{{0,60}})\]")
# What wants no blank before it.
_CLOSING = frozenset(".,;:!?)]}%…»”’。，、；：！？）」")
_NUMBERS = re.compile(r"\s*\d+(?:\s*(?:[,;]?\s*(?:and|&)|[,;]|-|–)\s*\d+)*\s*")
_HELD_CHARS = 64
_LIKENESS = 70.0


class CitationStream:
    """Rewrites `[label]` groups piece by piece; holds back text only while a bracket is open, and blanks at the end."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._order: dict[int, int] = {}
        self._held = ""
        # The blank of a removed label: it still parts the words around it, but is not left before a full stop.
        self._parting = ""
        self.removed: list[str] = []

    @property
    def used(self) -> list[int]:
        """Labels in the order of their numbers."""
        return list(self._order)

    def feed(self, piece: str) -> str:
        """What may be shown after this piece."""
        self._held += piece
        opened = self._held.rfind("[")
        closed = opened >= 0 and "]" in self._held[opened:]
        if opened < 0 or closed or len(self._held) - opened > _HELD_CHARS:
            opened = len(self._held)
        at = len(self._held[:opened].rstrip(_BLANKS))
        ready, self._held = self._held[:at], self._held[at:]
        return self._rewritten(ready)

    def finish(self) -> str:
        """What was still held back."""
        ready, self._held = self._held, ""
        return self._rewritten(ready)

    def number_of(self, label: int) -> int:
        """The citation number of a label, given on first use."""
        return self._order.setdefault(label, len(self._order) + 1)

    def citations(self) -> tuple[Citation, ...]:
        """One citation a label used, with the exact span of its sentence."""
        return tuple(_citation(number, *self._labels[label]) for label, number in self._order.items())

    def _rewritten(self, ready: str) -> str:
        pieces, at = [], 0
        for match in _GROUP.finditer(ready):
            pieces.append(self._parted(ready[at : match.start()]))
            blank, inside = match[1] or "", match[2]
            labels = self._numbered(inside) if _NUMBERS.fullmatch(inside) else f"[{inside}]"
            if labels:
                pieces.append(self._parted(blank + labels))
            else:
                self._parting = self._parting or blank
            at = match.end()
        pieces.append(self._parted(ready[at:]))
        return "".join(pieces)

    def _parted(self, text: str) -> str:
        """The text after the blank that a removed label left, where it needs one."""
        if not text:
            return ""
        parting, self._parting = self._parting, ""
        return text if text[0].isspace() or text[0] in _CLOSING else parting + text

    def _numbered(self, inside: str) -> str:
        known = []
        for label in _expand(inside):
            if label in self._labels:
                known.append(label)
            else:
                self.removed.append(str(label))
        return "".join(f"[{self.number_of(label)}]" for label in dict.fromkeys(known))


def attribute(text: str, labels: Labels, stream: CitationStream) -> str:
    """For an answer without any reference: adds to each sentence the source sentence it plainly repeats, if any."""
    pieces, at = [], 0
    plain = {label: shown(sentence_text(*pair)) for label, pair in labels.items()}
    # A heading repeats names and states nothing.
    plain = {
        label: line
        for label, line in plain.items()
        if not line.startswith("#") and line != shown(labels[label][0].title)
    }
    for start, end in sentence_spans(text):
        said = text[start:end]
        scored = [(fuzz.token_set_ratio(said, source), -label) for label, source in plain.items()]
        best, label = max(scored, default=(0.0, 0))
        pieces.append(text[at:end])
        if best >= _LIKENESS:
            pieces.append(f" [{stream.number_of(-label)}]")
        at = end
    return "".join(pieces) + text[at:]


def is_unsupported(text: str, stream: CitationStream, labels: Labels) -> bool:
    """Whether no document that is cited has any name of what is said: the answer took another thing's value.

    Names only: wording is free, and a document that links two others need not name both. An answer without names
    cannot be judged so.
    """
    names = {token.key for token in tokens(_GROUP.sub(" ", text)) if token.kind == "name"}
    if not names or not stream.used:
        return False
    cited = {id(labels[label][0]): labels[label][0] for label in stream.used}.values()
    known = {token.key for s in cited for token in tokens(f"{shown(s.title)}. {shown(s.passage.text)}")}
    return not names & known


def _expand(inside: str) -> list[int]:
    found: list[int] = []
    for part in re.split(r"[,;&]|and", inside):
        ends = [int(number) for number in re.findall(r"\d+", part)]
        if len(ends) == 2 and 0 <= ends[1] - ends[0] <= 10:
            found += range(ends[0], ends[1] + 1)
        else:
            found += ends
    return found


def _citation(number: int, source: SourcePassage, sentence: Sentence) -> Citation:
    return Citation(
        number=number,
        passage_id=source.passage.passage_id,
        doc_id=source.passage.doc_id,
        title=source.title,
        uri=source.uri,
        sentence_ids=(sentence.sentence_id,),
        char_start=sentence.char_start,
        char_end=sentence.char_end,
        text=sentence_text(source, sentence),
    )
