"""Whether an answer to a sample question is right, by rules strict enough that a wrong one does not pass by luck."""

from __future__ import annotations

import re

from resin_core.records import Answer, Record
from resin_core.sample import Choice, SampleQuestion
from resin_core.text.sentences import sentence_spans

_ADVICE = r"(?:take|taking|choose|choosing|use|using|pick|prefer|recommend|recommended is|with|go for|opt for|is)"
_PRAISE = r"(?:right|better|best|correct|preferred|recommended|only|one|option|choice|answer)"
# What turns down a name that comes next, and what makes it the lesser one of a comparison.
_NOT = re.compile(r"(?:\b(?:not|never|avoid|against|unlike|instead of|rather than)\b|n't\b)[\w\s]{0,24}$")
_LESSER = re.compile(r"\b(?:than|over|compared (?:to|with))\b[\w\s]{0,24}$")
# What turns down the name before it; "does not exceed" does not.
_AFTER = re.compile(
    r"^[^.!?;]{0,60}?(?:(?:\b(?:not|cannot)|n't)\b(?! (?:exceed|go over|cost more|take longer|only))"
    r"|(?<!not )(?<!n't )\b(?:exceed(?:s|ing)?\b|too\b|fails?\b|over the\b|above the\b|(?:longer|more) than \d"
    r"|out of\b|less\b|shorter\b|fewer\b|only \d))"
)


class Verdict(Record):
    """`found` of `gold` sentences were in the buffer; `right` says whether the answer is, else `why` not."""

    gold: int
    found: int
    missing: tuple[str, ...]
    right: bool
    why: str = ""

    @property
    def passed(self) -> bool:
        """All evidence, and the right answer."""
        return self.right and not self.missing


def judge(question: SampleQuestion, answer: Answer) -> Verdict:
    """Evidence by sentence ids, the answer by its words."""
    buffer = {sentence for item in answer.evidence for sentence in item.sentence_ids}
    missing = tuple(sentence for sentence in question.gold_sentences if sentence not in buffer)
    gold = len(question.gold_sentences)
    why = wrong(question, answer.answer)
    return Verdict(gold=gold, found=gold - len(missing), missing=missing, right=not why, why=why)


def wrong(question: SampleQuestion, text: str) -> str:
    """Why the text is no right answer; empty when it is one."""
    absent = [word for word in question.expected if not _names(word, text)]
    if absent:
        return f"it does not say {', '.join(map(repr, absent))}"
    said = [word for word in question.rejected if _names(word, text)]
    if said:
        return f"it says {', '.join(map(repr, said))}"
    if question.choice is not None and (taken := chosen(question.choice, text)) != question.choice.right:
        return f"it chooses {taken!r}" if taken else f"it does not choose {question.choice.right!r}"
    return ""


def chosen(choice: Choice, text: str) -> str:
    """Which of the two the text settles on; empty when on neither, or on both.

    Plain advice ("take X", "X is the better choice") counts first, anywhere; else the first of the two that the first
    sentence naming one of them does not turn down.
    """
    words = " ".join(text.split()).casefold()
    advised = [word for word in (choice.right, choice.wrong) if _advised(word.casefold(), words)]
    if advised:
        return advised[0] if len(advised) == 1 else ""
    for start, end in sentence_spans(words):
        sentence = words[start:end]
        places = [
            (match.start(), word)
            for word in (choice.right, choice.wrong)
            for match in re.finditer(rf"\b{re.escape(word.casefold())}\b", sentence)
        ]
        if not places:
            continue
        left = [(at, word) for at, word in sorted(places) if not _turned_down(sentence, at, len(word))]
        better = [word for at, word in left if not _LESSER.search(sentence[:at])]
        return (better or [word for _, word in left] or [""])[0]
    return ""


def _advised(word: str, text: str) -> bool:
    name = re.escape(word)
    patterns = (rf"\b{_ADVICE} (?:the )?{name}\b", rf"\b{name}(?: [\w-]+)? (?:is|would be|'s) (?:the |a )?{_PRAISE}\b")
    for pattern in patterns:
        for match in re.finditer(pattern, text):
            if not _NOT.search(text[: match.start()]):
                return True
    return False


def _turned_down(sentence: str, at: int, length: int) -> bool:
    return bool(_NOT.search(sentence[:at]) or _AFTER.search(sentence[at + length :]))


def _names(word: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None
