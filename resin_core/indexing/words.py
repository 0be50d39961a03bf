"""Words of claims and sentences in a form that can be compared: markup, width, case, endings and number forms folded.

Everything here is pure and knows nothing of documents. Tables of words are English and small on purpose; text in other
languages is compared by its letters, and scripts without spaces by pairs of characters.
"""

from __future__ import annotations

import html
import re
import unicodedata
from decimal import Decimal
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from resin_core.indexing.lexicon import GROUPS, IRREGULAR, NAMING, NEGATORS, ONES, STOPWORDS, TENS

_INLINE_TAG: Final = re.compile(
    r"</?(?:a|b|em|font|i|mark|scp|small|span|strong|sub|sup|u)\b[^<>]{0,200}>", re.IGNORECASE
)
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_POWER: Final = re.compile(r"(?<=\d)\s?<sup\b[^<>]{0,80}>\s?(?=[-−+]?\d)|(?<=\d)(?=[⁰¹²³⁴-⁹⁻])", re.IGNORECASE)
_SPACED_THOUSANDS: Final = re.compile(r"(?<![\w.,])\d{1,3}(?:[ \u00a0\u2009\u202f]\d{3})+(?![\w])")
_POSSESSIVE: Final = re.compile(r"(?<=\w)['’]s\b")
_NOT: Final = re.compile(r"(?<=[a-z])n['’]t\b|(?<=\bcan)not\b", re.IGNORECASE)
_ACCENTS: Final = re.compile("[\u0300-\u036f]")

# Chinese, Japanese, Thai, Lao, Khmer, Burmese: no spaces between words.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
)
# Vowel signs count as part of a word; they are no letters to the `re` module.
_MARKS: Final = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_NUMBER_WORDS: Final = {word: number for number, word in enumerate(ONES)} | {
    word: 10 * number for number, word in enumerate(TENS, start=2)
}
_TOKEN: Final = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+)"
    r"|(?P<number>(?:(?<![^\s(\[=<>~≈±$€£¥])[-−–])?\d+(?:[.,]\d+)*)"
    rf"|(?P<compound>\b(?:{'|'.join(TENS)})[- ](?:{'|'.join(ONES[1:10])})\b)"
    rf"|(?P<word>(?:(?![{_UNSPACED}])(?:[^\W_]|[{_MARKS}]))+)",
    re.IGNORECASE,
)
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3}){2,}")
_CLAUSE_END: Final = re.compile(r"[,;:.!?()\[\]—]|\s[-–]\s")


class Token(NamedTuple):
    """One word. `key` is its folded form; `clause` counts the clauses of the text, from 0."""

    text: str
    key: str
    kind: Literal["word", "name", "number", "unit"]
    clause: int


def strip_markup(text: str) -> str:
    """Character references resolved, HTML tags dropped, white space made single; wording and letters are kept."""
    text = _POWER.sub("^", html.unescape(text))
    return " ".join(_TAG.sub(" ", _INLINE_TAG.sub("", text)).split())


@lru_cache(maxsize=4096)
def tokens(text: str) -> tuple[Token, ...]:
    """The words of a text, in order. A name is a word with a capital or with digits; a unit stands behind a number.

    Number words up to ninety-nine are numbers ("one" is a plain word: it is seldom a count).
    """
    text = _SPACED_THOUSANDS.sub(lambda match: re.sub(r"\s", ",", match[0]), strip_markup(text))
    text = _NOT.sub(" not", _POSSESSIVE.sub("", unicodedata.normalize("NFKC", text)))
    found: list[Token] = []
    clause, end = 0, 0
    for match in _TOKEN.finditer(text):
        clause += bool(_CLAUSE_END.search(text, end, match.start())) if found else 0
        end = match.end()
        after_number = bool(found) and found[-1].kind == "number" and found[-1].clause == clause
        found += [token._replace(clause=clause) for token in _read(match, after_number)]
    return tuple(found)


def _read(match: re.Match[str], after_number: bool) -> list[Token]:
    text = match[0]
    if match["unspaced"]:
        pairs = [text[i : i + 2] for i in range(len(text) - 1)] or [text]
        return [Token(pair, pair, "word", 0) for pair in pairs]
    if match["number"]:
        return [Token(text, canonical_number(text), "number", 0)]
    lower = text.casefold()
    if match["compound"]:
        tens, ones = re.split("[- ]", lower)
        return [Token(text, str(_NUMBER_WORDS[tens] + _NUMBER_WORDS[ones]), "number", 0)]
    if lower in _NUMBER_WORDS and lower != "one":
        return [Token(text, str(_NUMBER_WORDS[lower]), "number", 0)]
    if after_number and len(text) <= 3 and lower not in STOPWORDS:
        return [Token(text, fold(text), "unit", 0)]
    return [Token(text, fold(text), "name" if _is_name(text) else "word", 0)]


def _is_name(text: str) -> bool:
    if text.casefold() in STOPWORDS:
        return False
    return text[0].isupper() or sum(map(str.isupper, text)) > 1 or any(map(str.isdigit, text))


def canonical_number(text: str) -> str:
    """One spelling for a number: 1,000 and 1000; 3.50 and 3.5; 3,5 and 3.5; digits of any script."""
    text = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)
    negative = text[0] in "-−–"
    text = text.lstrip("-−–")
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "") if "," in text else text.replace(".", "")
    elif text.count(",") == 1 and "." not in text:
        text = text.replace(",", ".")
    if text.count(".") > 1 or "," in text or len(text) > 40:
        return text  # A version, a list without spaces, a very long code: compared as it stands.
    plain = format(Decimal(text), "f")
    plain = (plain.rstrip("0").rstrip(".") if "." in plain else plain) or "0"
    return f"-{plain}" if negative and plain != "0" else plain


def number_readings(token: Token) -> set[str]:
    """All numbers that a number of a source may stand for: "3,5" is 3.5, or 3 and 5 in a list."""
    parts = token.text.lstrip("-−–").split(",")
    if len(parts) == 1 or _THOUSANDS.fullmatch(token.text.lstrip("-−–")):
        return {token.key}
    return {token.key} | {canonical_number(part) for part in parts}


def fold(word: str) -> str:
    """Case and accents folded; for Latin script also plural s, -ed and -ing, and a few irregular verbs."""
    word = word.casefold()
    word = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", word))) or word
    word = IRREGULAR.get(word, word)
    if not (word.isascii() and word.isalpha()) or len(word) < 4:
        return word[:-1] if len(word) == 3 and word.endswith("s") and word.isascii() and word[1] != "s" else word
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and re.search("[aeiouy]", word[: -len(ending)]):
            word = word[: -len(ending)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def content(words: tuple[Token, ...], or_all: bool = True) -> tuple[Token, ...]:
    """The words that carry the meaning; with `or_all`, all words but negations when there is no such word."""
    empty = STOPWORDS | NAMING | NEGATORS
    kept = tuple(t for t in words if t.kind != "word" or t.text.casefold() not in empty)
    return kept or tuple(t for t in words if or_all and t.text.casefold() not in NEGATORS)


_CONCEPTS: Final = {fold(word): fold(group[0]) for group in GROUPS for word in group}


def concept(key: str) -> str:
    """The folded word that stands for this folded word in its group, or the word itself."""
    return _CONCEPTS.get(key, key)
