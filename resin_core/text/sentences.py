"""Sentences with exact offsets, in any script.

Every character that is not white space lies in exactly one sentence; a sentence has no white space at its ends;
sentences are in order. Boundaries within a block of text come from the `sentencex` library, on a copy in which each
white-space character is one plain space, so that its offsets are ours. Time is linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from resin_core.ids import sentence_id
from resin_core.records import Sentence
from resin_core.text.blocks import MARKER, blocks
from resin_core.text.decode import scrub
from resin_core.text.joins import joined

Span = tuple[int, int]

_SPACE: Final = re.compile(r"\s")
_SENTENCE_END: Final = re.compile(r"[.!?。！？।؟…][\"'”’»)\]}]*(?=\s)|[。！？]")
# The library does not cut between such a sign and a number (a year often begins a Chinese sentence).
_FULL_WIDTH_END_BEFORE_DIGIT: Final = re.compile(r"[。！？](?=\d)")
# The library takes more than linear time on some texts (quotes without end), so it sees at most this many characters.
_WINDOW_CHARS: Final = 20_000
_LANGUAGE_SAMPLE_CHARS: Final = 2_000
_SCRIPTS: Final = (
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("zh", re.compile("[\u3400-\u9fff\U00020000-\U0002fa1f]")),
    ("ko", re.compile("[\uac00-\ud7af]")),
    ("ar", re.compile("[\u0600-\u06ff]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("he", re.compile("[\u0590-\u05ff]")),
    ("hi", re.compile("[\u0900-\u097f]")),
    ("km", re.compile("[\u1780-\u17ff]")),
    ("my", re.compile("[\u1000-\u109f]")),
)
_JOINERS: Final = "\u200c\u200d"


def split_sentences(doc_id: str, text: str, max_chars: int = 1200) -> tuple[Sentence, ...]:
    """The sentences of a document, numbered from 1; offsets are code points into `text`.

    `max_chars` is the longest sentence; a longer one is cut. Blank text gives no sentences.
    """
    return tuple(
        Sentence(sentence_id=sentence_id(doc_id, number), number=number, char_start=start, char_end=end)
        for number, (start, end) in enumerate(sentence_spans(text, max_chars), start=1)
    )


def sentence_spans(text: str, max_chars: int = 1200) -> list[Span]:
    """Half-open (start, end) spans of the sentences of `text`, in order. Raises ValueError if `max_chars` < 1."""
    if max_chars < 1:
        raise ValueError(f"max_chars is {max_chars}; give at least 1")
    flat = _SPACE.sub(" ", scrub(text))
    spans: list[Span] = []
    for start, end in blocks(text):
        for span in _block_sentences(flat, start, end, max_chars):
            spans.extend(_cut(flat, *span, max_chars))
    return spans


def language_of(text: str) -> str:
    """Language code whose rules suit the main script of `text`; "en" for Latin and for scripts not told apart."""
    sample = text[:_LANGUAGE_SAMPLE_CHARS]
    if sample.isascii():
        return "en"
    letters = sum(character.isalpha() for character in sample)
    counts = {language: len(pattern.findall(sample)) for language, pattern in _SCRIPTS}
    if counts["ja"]:
        counts["ja"] += counts["zh"]  # Kana never stand in Chinese text, Chinese characters do in Japanese.
    best = max(counts, key=lambda language: counts[language])
    return best if counts[best] * 3 >= letters and counts[best] else "en"


def _block_sentences(flat: str, start: int, end: int, max_chars: int) -> list[Span]:
    """Sentences of one block, joined where the library cut too early."""
    language = language_of(flat[start : min(end, start + _LANGUAGE_SAMPLE_CHARS)])
    spans: list[Span] = []
    position = start
    while position < end:
        window_end = _window_end(flat, position, end)
        pieces = _pieces(flat, position, window_end, language)
        if window_end < end and len(pieces) > 1:
            # The last piece may go on behind the window: it is read again with what follows.
            window_end = pieces.pop()[0]
        for piece in pieces:
            span = _trim(flat, *piece)
            if span is None:
                continue
            if spans and span[1] - spans[-1][0] <= max_chars and joined(flat, spans[-1], span):
                spans[-1] = (spans[-1][0], span[1])
            else:
                spans.append(span)
        position = window_end
    return spans


def _window_end(flat: str, start: int, end: int) -> int:
    if end - start <= _WINDOW_CHARS:
        return end
    return _cut_point(flat, start, start + _WINDOW_CHARS)


def _pieces(flat: str, start: int, end: int, language: str) -> list[Span]:
    """The library's pieces of one window, end to end. A list marker is held back: it would stop all splitting."""
    pieces: list[Span] = []
    for piece_start, piece_end in _split_after_marker(flat, start, end, language):
        if piece_start != start and MARKER.match(flat, piece_start, piece_end):
            pieces.extend(_split_after_marker(flat, piece_start, piece_end, language))
        else:
            pieces.append((piece_start, piece_end))
    return pieces


def _split_after_marker(flat: str, start: int, end: int, language: str) -> list[Span]:
    marker = MARKER.match(flat, start, end)
    body = marker.end() if marker else start
    boundaries = [body + stop for stop in _library_stops(flat[body:end], language)]
    starts = [start, *boundaries[:-1]]
    return list(zip(starts, [*boundaries[:-1], end], strict=True))


def _library_stops(text: str, language: str) -> list[int]:
    """End offsets of the library's sentences; the last one is the end of `text`."""
    import sentencex

    try:
        found = sentencex.get_sentence_boundaries(language, text)
    except BaseException as error:
        # A panic inside the library (it is Rust) is no Exception. One whole piece is then the safe answer.
        if type(error).__name__ != "PanicException":
            raise
        return [len(text)]
    stops = {int(boundary["end_index"]) for boundary in found}
    stops.update(match.end() for match in _FULL_WIDTH_END_BEFORE_DIGIT.finditer(text))
    return sorted(stops | {len(text)})


def _trim(flat: str, start: int, end: int) -> Span | None:
    piece = flat[start:end]
    body = piece.strip(" ")
    if not body:
        return None
    start += len(piece) - len(piece.lstrip(" "))
    return start, start + len(body)


def _cut(flat: str, start: int, end: int, max_chars: int) -> list[Span]:
    """Parts of at most `max_chars`: cut behind a sentence's end, else at white space, else at a safe code point."""
    parts: list[Span] = []
    while end - start > max_chars:
        stop = _cut_point(flat, start, start + max_chars)
        span = _trim(flat, start, stop)
        if span is not None:
            parts.append(span)
        start = stop
    span = _trim(flat, start, end)
    if span is not None:
        parts.append(span)
    return parts


def _cut_point(flat: str, start: int, limit: int) -> int:
    """The best place in (start, limit] to cut; `flat` goes on behind `limit`."""
    stop = 0
    for match in _SENTENCE_END.finditer(flat, start, limit):
        stop = match.end()
    if stop > start:
        return stop
    space = flat.rfind(" ", start + 1, limit + 1)
    if space > start and flat[start:space].strip(" "):
        return space
    for place in range(limit, max(start, limit - 32), -1):
        if not _binds(flat[place - 1], flat[place]):
            return place
    return limit


def _binds(left: str, right: str) -> bool:
    """Whether a cut between the two would part a character from its mark, or an emoji from its modifier."""
    return (
        left in _JOINERS
        or right in _JOINERS
        or unicodedata.category(right).startswith("M")
        or "\U0001f3fb" <= right <= "\U0001f3ff"
    )
