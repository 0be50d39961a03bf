"""Does the gold of real questions reach the evidence buffer, and if not, where is it lost?

    python -m tests.benchmarks.holisqa_gold sources OUT.jsonl        # the twelve articles, ready for `resin index`
    python -m tests.benchmarks.holisqa_gold check INDEX [--set ...]  # asks the four questions and follows their gold
    python -m tests.benchmarks.holisqa_gold units INDEX              # forty units drawn at random, with their sentences

With `--forty`, of forty articles and fifteen questions (holisqa_40.json) instead of twelve and four.

Needs the public benchmark folder (RESIN_DATA, default ../shared/data). Gold is by sentence text, so it does not depend
on where sentences are cut: a gold sentence is in the buffer when all its words stand in the evidence of its article.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from resin_core.config import load_config
from resin_core.engine import Engine, open_engine
from resin_core.records import Answer, Trace
from resin_core.store.reader import IndexReader

DATA = Path(os.environ.get("RESIN_DATA", "../shared/data")) / "holisqa" / "biology"
QUESTIONS = ("QA000002", "QA000004", "QA000005", "QA000006")


def listed(name: str) -> Any:
    return json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def chosen(forty: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of the articles, and of the questions whose gold is in them."""
    if forty:
        both = listed("holisqa_40.json")
        return tuple(both["articles"]), tuple(both["questions"])
    return tuple(listed("holisqa_ids.json")), QUESTIONS


def rows(name: str) -> list[dict[str, Any]]:
    with (DATA / name).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def squeezed(text: str) -> str:
    return "".join(text.split())


def stage_lost(gold: str, doc_id: str, reader: IndexReader, answer: Answer, trace: Trace) -> str:
    """Where a gold sentence stopped: `in buffer`, or the first stage that no longer has it."""
    text = reader.document(doc_id).text
    sentences = {s.sentence_id: squeezed(text[s.char_start : s.char_end]) for s in reader.sentences(doc_id)}
    wanted = {key for key, words in sentences.items() if squeezed(gold) in words or words in squeezed(gold)}
    if not wanted:
        return "not found in the article"

    def has(ids: Iterable[str]) -> bool:
        return wanted <= set(ids)

    if has(s for item in answer.evidence for s in item.sentence_ids):
        return "in buffer"
    passages = {p.passage_id: p for p in reader.iter_passages() if wanted & set(p.sentence_ids)}
    units = {u.passage_id for u in reader.iter_units()}
    if not passages.keys() & units:
        return "lost in extraction: its passage has no unit"
    if not passages.keys() & {item.passage_id for item in answer.pool}:
        return "lost in retrieval: no candidate leads to its passage"
    select = next(event.data for event in trace.events if event.stage == "select")
    for stage in ("weak", "no_room", "shortened", "not_chosen"):
        if passages.keys() & set(select.get(stage, ())):
            return f"lost in packing: {stage}"
    return "lost: part of its passage only"


async def ask(engine: Engine, question: str) -> tuple[Answer, Trace]:
    asked = engine.ask(question)
    answer = None
    async for event in asked.events:
        answer = event.answer or answer
    assert answer is not None
    return answer, asked.recorder.trace()


async def check(index: str, engine: Engine, articles: tuple[str, ...], questions: tuple[str, ...]) -> None:
    reader = IndexReader.open(index)
    texts = {s["id"]: (a["id"], s["text"]) for a in rows("corpus.jsonl") if a["id"] in articles for s in a["sentences"]}
    total = kept = 0
    for question in rows("questions.jsonl"):
        if question["qa_id"] not in questions:
            continue
        answer, trace = await ask(engine, question["question"])
        print(f"\n{question['qa_id']} {question['question']}\n  {answer.answer}")
        print(f"  {answer.usage.llm_calls} calls, {answer.timings_s.get('total')} s, {len(answer.citations)} citations")
        for gold in question["gold_sentence_ids"]:
            doc_id, text = texts[gold]
            where = stage_lost(text, doc_id, reader, answer, trace)
            total, kept = total + 1, kept + (where == "in buffer")
            print(f"  {gold} {where}: {text[:70]}")
    print(f"\n{kept} of {total} gold sentences in the buffers")
    await engine.aclose()


def draw(index: str, count: int = 40) -> None:
    """Units drawn at random, always the same of one index, each with the sentence it was taken from: to be read."""
    units = sorted(IndexReader.open(index).iter_units(), key=lambda unit: unit.unit_id)
    for number, unit in enumerate(random.Random(7).sample(units, min(count, len(units))), start=1):
        print(f"{number}. [{unit.kind}] {unit.retrieval_text}\n   {' '.join(unit.evidence_quote.split())}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("sources", "check", "units"))
    parser.add_argument("path")
    parser.add_argument("--forty", action="store_true")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    arguments = parser.parse_args()
    articles, questions = chosen(arguments.forty)
    if arguments.command == "units":
        draw(arguments.path)
        return
    if arguments.command == "sources":
        wanted = {row["id"]: row for row in rows("corpus.jsonl") if row["id"] in articles}
        lines = [json.dumps(wanted[key], ensure_ascii=False) for key in articles]
        Path(arguments.path).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    with open_engine(load_config(None, arguments.overrides), arguments.path) as engine:
        asyncio.run(check(arguments.path, engine, articles, questions))


if __name__ == "__main__":
    main()
