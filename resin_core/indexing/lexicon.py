"""The few word tables that comparison of texts needs. English, and small on purpose: a word is listed only where it
holds in any subject.
"""

from __future__ import annotations

from typing import Final

STOPWORDS: Final = frozenset({
    "a", "about", "above", "across", "after", "all", "also", "among", "an", "and", "any", "are", "as", "at",
    "be", "because", "been", "before", "being", "below", "between", "both", "but", "by", "can", "could", "did",
    "do", "does", "done", "during", "each", "either", "for", "from", "had", "has", "have", "having", "he",
    "her", "here", "hers", "him", "his", "how", "i", "if", "in", "into", "is", "it", "its", "itself", "may",
    "me", "might", "more", "most", "must", "my", "of", "off", "on", "one", "only", "onto", "or", "other", "our",
    "out", "over", "own", "per", "shall", "she", "should", "since", "so", "some", "such", "than", "that", "the",
    "their", "theirs", "them", "themselves", "then", "there", "these", "they", "this", "those", "through",
    "thus", "to", "too", "under", "until", "up", "upon", "used", "using", "very", "via", "was", "we", "were",
    "what", "when", "where", "which", "while", "who", "whom", "whose", "why", "will", "with", "within", "would",
    "you", "your", "however",
})  # fmt: skip
# Words by which a property is named, not stated: "number of pumps" for "has three pumps".
NAMING: Final = frozenset({
    "number", "amount", "count", "quantity", "total", "type", "kind", "name", "value", "property", "year", "date",
})  # fmt: skip
NEGATORS: Final = frozenset({"not", "no", "never", "without", "neither", "nor"})
# Words that make a negated claim plausible for a sentence without any of those, and beginnings of such words.
NEGATIVE: Final = frozenset({
    "fail", "lack", "unable", "hardly", "rarely", "absent", "absence", "free", "prevent", "stop", "avoid",
    "out", "than", "little", "few",
})  # fmt: skip
NEGATIVE_PREFIXES: Final = ("un", "non", "in", "im", "dis")
# Words that stand for something named before: the thing itself, and all that point to it.
PERSONAL: Final = frozenset({
    "he", "her", "him", "his", "it", "its", "itself", "she", "their", "them", "they", "there",
})  # fmt: skip
PRONOUNS: Final = PERSONAL | {"these", "this", "those", "both", "such"}
PREPOSITIONS: Final = frozenset({
    "in", "on", "at", "by", "of", "to", "for", "from", "with", "into", "as", "than", "under", "over", "after",
    "before", "through", "about", "against", "between", "via", "near", "within", "upon", "onto", "around",
    "across", "along",
})  # fmt: skip
AUXILIARIES: Final = frozenset({
    "is", "are", "was", "were", "be", "been", "being", "has", "have", "had", "do", "does", "did", "not",
    "never", "can", "cannot", "could", "may", "might", "must", "shall", "should", "will", "would", "also",
    "only", "often", "remains", "remain",
})  # fmt: skip

IRREGULAR: Final = {
    "began": "begin", "begun": "begin", "bound": "bind", "bought": "buy", "brought": "bring", "built": "build",
    "drawn": "draw", "drew": "draw", "fallen": "fall", "fell": "fall", "fed": "feed", "found": "find", "gave": "give",
    "given": "give", "goes": "go", "grew": "grow", "grown": "grow", "held": "hold", "kept": "keep", "knew": "know",
    "known": "know", "led": "lead", "left": "leave", "lost": "lose", "made": "make", "meant": "mean", "ran": "run",
    "risen": "rise", "rose": "rise", "seen": "see", "sent": "send", "shown": "show", "sold": "sell", "spoken": "speak",
    "spread": "spread", "taken": "take", "took": "take", "went": "go", "won": "win", "written": "write",
    "wrote": "write",
}  # fmt: skip

# Number words to nineteen, and the tens from twenty.
ONES: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")

# Words that may stand for each other; the first of each group is the canonical one.
GROUPS: Final = (
    ("cost", "price", "fare", "fee"),
    ("weight", "weigh"),
    ("height", "high", "tall"),
    ("length", "long"),
    ("build", "construct"),
    ("found", "establish"),
    ("locate", "situate"),
    ("start", "begin", "commence"),
    ("end", "finish"),
    ("need", "require"),
)
INCREASE: Final = frozenset({
    "increase", "rise", "raise", "elevate", "enhance", "boost", "promote", "improve", "higher", "upregulate",
    "accelerate", "strengthen", "up", "grow", "stimulate",
})  # fmt: skip
DECREASE: Final = frozenset({
    "decrease", "lower", "reduce", "fall", "drop", "decline", "inhibit", "suppress", "slow", "downregulate",
    "weaken", "hinder", "down", "diminish", "impair", "cut", "lose",
})  # fmt: skip
