"""Bytes to text, without ever failing: byte order marks, UTF-8, broken UTF-8, and older encodings by a guess.

Valid text is kept as it is, line ends and NUL included, so that offsets mean the same everywhere.
"""

from __future__ import annotations

import re
from typing import Final

from resin_core.records import Record

REPLACEMENT: Final = "\ufffd"

# UTF-32 LE begins with the bytes of UTF-16 LE's mark, so the longer marks come first.
_MARKS: Final = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
# The encodings still met in real corpora. Left free, the guesser prefers rare ones (mac_latin2 for French).
_CANDIDATES: Final = [
    "cp1252", "cp1254", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1255", "cp1256",
    "gb18030", "big5", "cp932", "euc_jp", "cp949", "cp874",
]  # fmt: skip
_SAMPLE_BYTES: Final = 65_536
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MULTIBYTE: Final = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}", re.DOTALL
)


class Decoded(Record):
    """Text, the encoding it was read with, and what had to be assumed or replaced (empty when nothing)."""

    text: str
    encoding: str
    notes: tuple[str, ...] = ()


def scrub(text: str) -> str:
    """Lone surrogates become U+FFFD, one for one: length and offsets stay. Everything else, NUL too, is kept."""
    return _SURROGATE.sub(REPLACEMENT, text)


def decode(raw: bytes) -> Decoded:
    """Decode any bytes; the same bytes always give the same text. Never raises.

    A byte order mark decides and is dropped. Else valid UTF-8 is kept exactly. Bytes that are UTF-8 with a few
    faults keep their sound parts and get U+FFFD for the rest; anything else is read in the encoding that
    charset-normalizer finds most likely on a sample, or cp1252.
    """
    for mark, encoding in _MARKS:
        if raw.startswith(mark) and not (encoding == "utf-32-le" and len(raw) % 4):
            return _with_replacement(raw[len(mark) :], encoding)
    try:
        return Decoded(text=raw.decode("utf-8"), encoding="utf-8")
    except UnicodeDecodeError as error:
        first_fault = error.start
    if _mostly_utf8(raw):
        return _with_replacement(raw, "utf-8")
    encoding = _guess(raw, first_fault)
    decoded = _with_replacement(raw, encoding)
    note = f"not UTF-8 (byte {first_fault}); read as {encoding}, a guess"
    return decoded.model_copy(update={"notes": (note, *decoded.notes)})


def _with_replacement(raw: bytes, encoding: str) -> Decoded:
    try:
        return Decoded(text=scrub(raw.decode(encoding)), encoding=encoding)
    except UnicodeDecodeError as error:
        text = scrub(raw.decode(encoding, errors="replace"))
        note = f"bytes that are not {encoding} (first at {error.start}) were replaced by U+FFFD"
        return Decoded(text=text, encoding=encoding, notes=(note,))


def _mostly_utf8(raw: bytes) -> bool:
    """More sound multi-byte characters than stray bytes; text of an older encoding has next to none."""
    rest, sound = _MULTIBYTE.subn(b"", raw)
    stray = len(rest) - len(rest.translate(None, bytes(range(0x80, 0x100))))
    return sound > stray


def _guess(raw: bytes, first_fault: int) -> str:
    from charset_normalizer import from_bytes

    # The sample starts shortly before the first fault: what stands far before it is plain ASCII or valid UTF-8.
    start = max(0, first_fault - 1024)
    sample = raw[start : start + _SAMPLE_BYTES]
    matches = from_bytes(sample, cp_isolation=_CANDIDATES)
    names = [match.encoding for match in matches]
    if not names:
        return "cp1252"
    # Western text fits cp1250 as well, letter for letter in look and wrong in a few: the commoner one wins.
    if names[0] == "cp1250" and ("cp1252" in names or _same(sample, "cp1250", "cp1252")):
        return "cp1252"
    return names[0]


def _same(sample: bytes, one: str, other: str) -> bool:
    return sample.decode(one, errors="replace") == sample.decode(other, errors="replace")
