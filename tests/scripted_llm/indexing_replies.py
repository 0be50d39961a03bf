"""A scripted model that plays its part in indexing and asking: replies are made from what the request shows.

Its claims are cut from the shown sentences by a rule, so they are always grounded; it tests plumbing, not quality.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

from tests.scripted_llm.actions import Action, Reply

_SHOWN = re.compile(r"^\[(\d+)\] (.+)$", re.MULTILINE)
_VERB = re.compile(
    r"^(?P<subject>.{3,80}?) (?P<verb>is|was|costs|takes|holds|weighs|stays|runs|goes|crosses|connects|closed|made|has)"
    r" (?P<value>.{1,120}?)[.]?$"
)


UNSTATED = "reportedly"


def play(request: dict[str, Any], passages: int = 1) -> Action:
    """The reply to one request of any of Resin's prompts.

    A window gives up to `passages` passages, as many as its schema allows. A sentence with the word UNSTATED gives a
    claim that it does not make, so that there are rejects.
    """
    asked = request["messages"][-1]["content"]
    if "response_format" not in request:
        return Reply("The shown sentence says it [1].")
    schema = request["response_format"]["json_schema"]["schema"]["properties"]
    value: dict[str, Any]
    if "hops" in schema:
        question = asked.rpartition("QUESTION: ")[2]
        # Another query than the question, as a model's plan has.
        hop = f"{question} | thing | what is said | fact | "
        value = {"mode": "lookup", "answer": "fact", "entities": [], "properties": [], "limits": [], "hops": [hop]}
    elif "units" in schema:
        sentences = dict(_SHOWN.findall(asked))
        numbers = list(schema["units"]["properties"])
        value = {
            "units": {number: [claim(sentences[number])] for number in numbers},
            "passages": runs(numbers, min(passages, schema.get("passages", {}).get("maxItems", 1))),
        }
    elif "records" in schema:
        value = {"answer": "unknown", "records": []}
    else:
        value = {"keep": [1]}
    return Reply(json.dumps(value))


def title_of(request: dict[str, Any]) -> str:
    """The title of the document that an indexing request shows; empty for other requests."""
    first, _, rest = request["messages"][-1]["content"].partition("\n")
    return first.removeprefix("title: ") if first.startswith("title: ") and rest else ""


def runs(numbers: list[str], count: int) -> list[str]:
    """Passage lines of nearly equal length over the sentences of these numbers, in order."""
    cuts = [len(numbers) * at // count for at in range(count + 1)]
    spans = [numbers[start:end] for start, end in pairwise(cuts) if end > start]
    return [f"{span[0]}-{span[-1]} | thing | thing | what is said | description" for span in spans]


def claim(sentence: str) -> str:
    """A claim in the words of the sentence."""
    if UNSTATED in sentence.split():
        return "fact | Zanzibar | number of gates | 7319"
    match = _VERB.match(sentence)
    if match:
        return f"fact | {match['subject']} | {match['verb']} | {match['value']}"
    words = sentence.rstrip(".").split()
    cut = max(1, len(words) // 3)
    return f"rel | {' '.join(words[:cut])} | {words[cut]} | {' '.join(words[cut + 1 :]) or words[-1]}"
