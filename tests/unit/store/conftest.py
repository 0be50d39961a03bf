"""A small corpus with awkward text, and an index of it written in part files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from resin_core.ids import content_hash, passage_id, sentence_id, unit_id
from resin_core.records import Document, Passage, ReasoningUnit, Reject, Sentence, UnitKind
from resin_core.store.manifest import FileEntry, Manifest, Stamp
from resin_core.store.schema import sentences_table, to_table, vectors_table
from resin_core.store.writer import IndexWriter

DIMENSION = 24
ODD = (
    "Plain words stand here.",
    "A NUL \x00 stands inside.",
    "Replaced \ufffd and emoji \U0001f468\u200d\U0001f469\u200d\U0001f467 follow.",
    "Combining e\u0301 and \u00e9 differ; \u202eright to left\u202c.",
    "Braces {0} {name} and 'quotes' \"stay\".",
    "Line\r\nends\u2028and\ttabs.",
)


@dataclass
class Corpus:
    documents: list[Document] = field(default_factory=list)
    sentences: list[tuple[str, list[Sentence]]] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)
    units: list[ReasoningUnit] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    vectors: np.ndarray = field(default_factory=lambda: np.empty((0, DIMENSION), np.float32))


def normal(rng: np.random.Generator, rows: int, dimension: int = DIMENSION) -> np.ndarray:
    drawn = rng.standard_normal((rows, dimension)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def make_corpus(documents: int, seed: int = 3) -> Corpus:
    rng, corpus = np.random.default_rng(seed), Corpus()
    for number in range(documents):
        doc_id = f"notes/{number}.md" if number % 2 else f"dok-\u00fc\U0001f600-{number}"
        pieces = [f"{ODD[(number + i) % len(ODD)]} Item {number}.{i}." for i in range(4)]
        text, sentences, at = "  ".join(pieces) + "\n", [], 0
        for i, piece in enumerate(pieces, start=1):
            sentences.append(
                Sentence(sentence_id=sentence_id(doc_id, i), number=i, char_start=at, char_end=at + len(piece))
            )
            at += len(piece) + 2
        corpus.documents.append(
            Document(
                doc_id=doc_id,
                title=f"Title {number}\x00",
                text=text,
                uri=f"file:///{number}",
                metadata={"b": "2", "a": "\ufffd"} if number % 2 else {},
                content_hash=content_hash(text),
            )
        )
        corpus.sentences.append((doc_id, sentences))
        for pair in (sentences[:2], sentences[2:]):
            start, end = pair[0].char_start, pair[1].char_end
            passage = Passage(
                passage_id=passage_id(doc_id, text[start:end], 0),
                doc_id=doc_id,
                sentence_ids=tuple(s.sentence_id for s in pair),
                char_start=start,
                char_end=end,
                text=text[start:end],
                main_entity="Item",
                semantic=bool(number % 2),
            )
            corpus.passages.append(passage)
            for s in pair:
                quote = text[s.char_start : s.char_end]
                kind = list(UnitKind)[len(corpus.units) % 6]
                corpus.units.append(
                    ReasoningUnit(
                        unit_id=unit_id(kind, quote, passage.passage_id),
                        kind=kind,
                        subject="Item",
                        predicate="says",
                        canonical_predicate="say",
                        object=quote[:9],
                        conditions=("if {x}", "or \U0001f600"),
                        confidence=0.25,
                        aliases=() if number % 2 else ("alias",),
                        evidence_quote=quote,
                        char_start=s.char_start,
                        char_end=s.char_end,
                        passage_id=passage.passage_id,
                        doc_id=doc_id,
                        sentence_ids=(s.sentence_id,),
                        retrieval_text=f"Item says {quote}",
                    )
                )
        corpus.rejects.append(
            Reject(
                reject_id=f"r{number}", doc_id=doc_id, uri="", stage="units", reason="loop", detail="d", raw='{"\x00'
            )
        )
    corpus.vectors = normal(rng, len(corpus.units))
    return corpus


STAMP = Stamp(
    encoder="all-MiniLM-L6-v2",
    dimension=DIMENSION,
    prompts={"extract": "3"},
    models=("qwen2.5-coder-1.5b-instruct",),
    resin_version="0.1.0",
)


def write_parts(writer: IndexWriter, corpus: Corpus, parts: int = 3) -> list[FileEntry]:
    """Every table in part files; vectors are cut and ordered otherwise than units."""

    def cut(rows: Sequence) -> list[Sequence]:
        return [rows[i::parts] for i in range(parts)]

    entries = [
        writer.write_table(name, to_table(name, part))
        for name in ("documents", "passages", "units", "rejects")
        for part in cut(getattr(corpus, name))
    ]
    entries += [writer.write_table("sentences", sentences_table(part)) for part in cut(corpus.sentences)]
    order = np.random.default_rng(1).permutation(len(corpus.units))
    for rows in np.array_split(order, parts + 1):
        ids = [corpus.units[i].unit_id for i in rows]
        entries.append(writer.write_table("vectors", vectors_table(ids, corpus.vectors[rows])))
    return entries


@dataclass
class Built:
    uri: Path
    corpus: Corpus
    entries: list[FileEntry]
    manifest: Manifest


def build_index(uri: Path, documents: int = 7) -> Built:
    writer, corpus = IndexWriter(uri), make_corpus(documents)
    entries = write_parts(writer, corpus)
    return Built(uri, corpus, entries, writer.publish(entries, STAMP))


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return build_index(tmp_path / "index")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """An index that no test changes."""
    return build_index(tmp_path_factory.mktemp("store") / "index")


@pytest.fixture
def build() -> Callable[..., Built]:
    return build_index


@pytest.fixture
def stamp() -> Stamp:
    return STAMP


@pytest.fixture
def corpus_of() -> Callable[[int], Corpus]:
    return make_corpus


@pytest.fixture
def parts_of() -> Callable[..., list[FileEntry]]:
    return write_parts
