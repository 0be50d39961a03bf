"""`resin delete` and `resin gc`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from resin_core.cli.gc import size
from resin_core.ids import content_hash
from resin_core.records import Document, ReasoningUnit, UnitKind
from resin_core.store.manifest import Stamp
from resin_core.store.reader import IndexReader
from resin_core.store.schema import to_table, vectors_table
from resin_core.store.writer import IndexWriter
from tests.unit.cli.conftest import Run

STAMP = Stamp(encoder="e", dimension=4, resin_version="0")


@pytest.fixture
def index(tmp_path: Path) -> str:
    """Documents a, b and "two words", each with one unit."""
    writer = IndexWriter(tmp_path / "index")
    documents = [
        Document(doc_id=doc_id, title="", text=doc_id, uri="", content_hash=content_hash(doc_id))
        for doc_id in ("a", "b", "two words")
    ]
    units = [
        ReasoningUnit(
            unit_id=f"u{number}", kind=UnitKind.RULE, subject="", predicate="", canonical_predicate="", object="",
            evidence_quote=document.text, char_start=0, char_end=len(document.text), passage_id="p",
            doc_id=document.doc_id, sentence_ids=(), retrieval_text="",
        )
        for number, document in enumerate(documents)
    ]  # fmt: skip
    writer.publish(
        [
            writer.write_table("documents", to_table("documents", documents)),
            writer.write_table("units", to_table("units", units)),
            writer.write_table("vectors", vectors_table([u.unit_id for u in units], np.eye(4, dtype=np.float32)[:3])),
        ],
        STAMP,
    )
    return str(tmp_path / "index")


def held(index: str) -> list[str]:
    return sorted(document.doc_id for document in IndexReader.open(index).iter_documents())


def test_delete_says_what_went_and_what_still_holds_the_text(resin: Run, index: str) -> None:
    former = IndexReader.open(index).generation
    ran = resin("delete", "a", "two words", "--index", index)
    assert ran.status == 0
    assert held(index) == ["b"]
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines == [
        "deleted 2 documents, 0 passages, 2 units",
        f"generation {IndexReader.open(index).generation}, after {former}",
        "index now 1 documents, 1 units",
    ]
    assert "older generations still hold the text until gc" in ran.err
    assert "--keep 1" in ran.err


def test_delete_as_json(resin: Run, index: str) -> None:
    ran = resin("delete", "b", "--index", index, "--json")
    found = json.loads(ran.out)
    assert (found["deleted"], found["units"], found["total_documents"]) == (1, 1, 2)
    assert found["generation"] == IndexReader.open(index).generation != found["former_generation"]
    assert "still hold the text" in ran.err


def test_delete_of_an_unknown_id(resin: Run, index: str) -> None:
    before = IndexReader.open(index).generation
    ran = resin("delete", "a", "nowhere", "--index", index)
    assert (ran.status, ran.out) == (1, "")
    assert "no document 'nowhere'" in ran.err and "1 of 2 ids" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert IndexReader.open(index).generation == before


def test_delete_twice(resin: Run, index: str) -> None:
    assert resin("delete", "a", "--index", index).status == 0
    ran = resin("delete", "a", "--index", index)
    assert ran.status == 1
    assert "no document 'a'" in ran.err


@pytest.mark.parametrize("command", [("delete", "a"), ("gc",)])
def test_no_index_is_named_or_there(resin: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    ran = resin(*command)
    assert ran.status == 2
    assert "no index is named" in ran.err
    ran = resin(*command, "--index", str(tmp_path / "none"))
    assert ran.status == 1
    assert "no index at" in ran.err
    assert not (tmp_path / "none").exists()


def test_delete_needs_an_id(resin: Run, index: str) -> None:
    ran = resin("delete", "--index", index)
    assert ran.status == 2
    assert "DOC_ID" in ran.err


def test_gc_drops_what_the_configuration_does_not_keep(resin: Run, index: str) -> None:
    generations = [IndexReader.open(index).generation]
    for doc_id in ("a", "b"):
        assert resin("delete", doc_id, "--index", index).status == 0
        generations.append(IndexReader.open(index).generation)
    ran = resin("gc", "--set", f"index.uri={index}")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert ran.status == 0
    assert lines[:2] == [
        f"generations dropped 1: {generations[0]}",
        f"generations kept 2: {generations[1]}, {generations[2]}",
    ]
    assert lines[2].startswith("freed 0 files, ")  # all are younger than a day
    assert resin("gc", "--index", index, "--set", "index.keep_generations=1", "--set", "index.gc_grace_s=0").status == 0
    assert len(list((Path(index) / "generations").iterdir())) == 1
    assert len(list((Path(index) / "files").iterdir())) == len(IndexReader.open(index).manifest.files)
    assert resin("verify", "--index", index).status == 1  # these units name passages that never were


def test_gc_flags_and_json(resin: Run, index: str) -> None:
    assert resin("delete", "a", "--index", index).status == 0
    reply = Path(index) / "work/replies-k/ab/abc/1.json"
    reply.parent.mkdir(parents=True)
    reply.write_text("paid")
    ran = resin("gc", "--index", index, "--keep", "1", "--grace", "0", "--json")
    found = json.loads(ran.out)
    assert set(found) == {"generations_removed", "generations_kept", "files_removed", "bytes_freed"}
    assert (len(found["generations_removed"]), len(found["generations_kept"])) == (1, 1)
    assert found["files_removed"] > 0 and found["bytes_freed"] > 0
    assert reply.exists()
    assert json.loads(resin("gc", "--index", index, "--grace", "0", "--work", "--json").out)["files_removed"] == 1
    assert not reply.exists()


@pytest.mark.parametrize("flags", [("--keep", "0"), ("--grace", "-1"), ("--keep", "x")])
def test_gc_refuses_odd_numbers(resin: Run, index: str, flags: tuple[str, str]) -> None:
    ran = resin("gc", "--index", index, *flags)
    assert ran.status == 2
    assert flags[0] in ran.err


def test_gc_of_a_garbled_index_deletes_nothing(resin: Run, index: str) -> None:
    (manifest,) = (Path(index) / "generations").iterdir()
    manifest.write_text("garbled")
    before = sorted((Path(index) / "files").iterdir())
    ran = resin("gc", "--index", index, "--grace", "0")
    assert ran.status == 1
    assert "nothing was deleted" in ran.err
    assert sorted((Path(index) / "files").iterdir()) == before


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1_250_000_000, "1.2 GB"),
        (5_000_000_000_000_000, "5,000.0 TB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
