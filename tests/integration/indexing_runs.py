"""Runs of the indexing job against a scripted model, within one Ray."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from jobs.index import run
from resin_core.config import load_config
from resin_core.indexing.report import IndexReport
from resin_core.store.reader import IndexReader
from resin_core.store.verify import verify
from tests.scripted_llm.server import ScriptedServer

PLACES = ("Harbour", "Mill", "Station", "Tower", "Bridge", "Market", "Chapel", "Quarry", "Lock", "Ferry")


def text_of(number: int, sentences: int = 3) -> str:
    """Plain sentences that the scripted model can turn into claims, different for each document."""
    names = [f"{PLACES[(number + at) % len(PLACES)]} {number}-{at}" for at in range(sentences)]
    return " ".join(f"{name} weighs {number + at + 1} tonnes." for at, name in enumerate(names))


def write_corpus(path: Path, texts: Mapping[str, str]) -> Path:
    """JSONL of these documents; a document's title is its id."""
    lines = [json.dumps({"id": name, "title": name, "text": text}) for name, text in texts.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def corpus(path: Path, documents: int, sentences: int = 3) -> Path:
    """JSONL of `documents` documents d000, d001, ..."""
    return write_corpus(path, {f"d{n:03}": text_of(n, sentences) for n in range(documents)})


@contextmanager
def local_ray() -> Iterator[None]:
    """One Ray for all runs of a module."""
    ray.init(num_cpus=4, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def index(server: ScriptedServer, sources: Sequence[Path] | Path, place: Path, *settings: str) -> IndexReport:
    """One run, the model being the scripted one. Raises as the job does."""
    named = [sources] if isinstance(sources, Path) else sources
    return run([str(source) for source in named], str(place), config_for(server, *settings), lambda step: None)


def config_for(server: ScriptedServer, *settings: str) -> Any:
    """The configuration of `index`."""
    base = ("llm.model=scripted", "llm.max_concurrency=8", "llm.max_retries=0", "llm.backoff_base_s=0.05")
    return load_config(None, [f"llm.base_url={server.base_url}", *base, *settings], env={})


def contents(place: Path) -> dict[str, set[str]]:
    """Ids of what the current generation holds."""
    reader = IndexReader.open(place)
    return {
        "documents": {document.doc_id for document in reader.iter_documents()},
        "passages": {passage.passage_id for passage in reader.iter_passages()},
        "units": {unit.unit_id for unit in reader.iter_units()},
    }


def sound(place: Path) -> bool:
    """Whether `resin verify` would pass."""
    return not verify(place)
