"""A synthetic corpus as JSON Lines: the same bytes for the same numbers, and no two windows alike."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.scripted_llm.indexing_replies import UNSTATED

_TOWNS = ("Brenholt", "Osmark", "Tarrow", "Velling", "Kestrup", "Ardmore", "Sillby", "Norvik", "Hallen", "Dunmere")
_THINGS = ("mast", "ferry", "kiln", "turbine", "granary", "tunnel", "foundry", "reservoir", "beacon", "quarry")
_PARTS = ("north gate", "main shaft", "old roof", "crane", "boiler", "east wall", "pump", "bell", "cable", "store")
_FORMS = (
    "The {part} of {name} weighs {number} tonnes.",
    "The {part} of {name} was rebuilt in {year}.",
    "The {part} of {name} holds {number} litres.",
    "The {part} of {name} costs {number} crowns a year.",
    "A crew of {number} runs the {part} of {name}.",
    "The {part} of {name} stays closed for {number} days each winter.",
)


def documents(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Records {id, title, text}: of twenty documents fifteen have 4-6 sentences, four 9-14, and one 20-36."""
    for number in range(count):
        rng = random.Random(f"{seed}-{number}")
        name = f"{rng.choice(_TOWNS)} {rng.choice(_THINGS)} {number}"
        least, most = (20, 36) if number % 20 == 7 else (9, 14) if number % 5 == 3 else (4, 6)
        lines = [_sentence(rng, name) for _ in range(rng.randint(least, most))]
        if number % 10 == 1:
            lines.append(f"The {name} has {UNSTATED} a second cellar.")
        paragraphs = [" ".join(lines[at : at + 8]) for at in range(0, len(lines), 8)]
        yield {"id": f"doc-{number:05d}", "title": name.capitalize(), "text": "\n\n".join(paragraphs)}


def write(folder: Path, count: int, seed: int, files: int = 4) -> Path:
    """The documents dealt to `files` files in a new folder, with a few records that cannot be read; the folder."""
    folder.mkdir(parents=True)
    streams = [(folder / f"part-{at}.jsonl").open("w", encoding="utf-8") for at in range(files)]
    try:
        for at, record in enumerate(documents(count, seed)):
            streams[at % files].write(json.dumps(record) + "\n")
        for at, stream in enumerate(streams):
            stream.write(json.dumps({"id": f"blank-{at}", "title": "Nothing", "text": " \n "}) + "\n")
    finally:
        for stream in streams:
            stream.close()
    return folder


def _sentence(rng: random.Random, name: str) -> str:
    return rng.choice(_FORMS).format(
        part=rng.choice(_PARTS), name=name, number=rng.randint(2, 900), year=rng.randint(1820, 2020)
    )
