"""`resin rejects` and `resin index --dry-run`, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from resin_core.cli import rejects as rejects_command
from resin_core.indexing.report import IndexReport
from resin_core.records import Reject
from resin_core.store.manifest import Stamp
from resin_core.store.schema import to_table
from resin_core.store.writer import IndexWriter
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_cli_commands import REPORT


@pytest.fixture
def place(tmp_path: Path) -> Path:
    rows = [
        ("a", "ground", "not-in-source"),
        ("b", "ground", "not-in-source"),
        ("c", "index_document", "llm-http-500"),
        ("d.pdf", "read", "corrupt"),
    ]
    made = [
        Reject(reject_id=f"r{n}", doc_id=doc, uri=f"/x/{doc}", stage=stage, reason=reason, detail=f"why {doc}")
        for n, (doc, stage, reason) in enumerate(rows)
    ]
    writer = IndexWriter(tmp_path / "index")
    entry = writer.write_table("rejects", to_table("rejects", made))
    writer.publish([entry], Stamp(encoder="e", dimension=4, resin_version="0"))
    return tmp_path / "index"


def test_rejects_are_counted_by_reason(resin: Run, place: Path) -> None:
    ran = resin("rejects", "list", "--index", str(place))
    assert ran.status == 0
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["ground", "not-in-source", "2", "no", "a:", "why", "a"] in lines
    assert ["index_document", "llm-http-500", "1", "yes", "c:", "why", "c"] in lines
    assert ["read", "corrupt", "1", "yes", "d.pdf:", "why", "d.pdf"] in lines


def test_one_reason_alone_and_as_records(resin: Run, place: Path) -> None:
    ran = resin("rejects", "list", "--index", str(place), "--reason", "not-in-source", "--json")
    assert [json.loads(line)["doc_id"] for line in ran.out.splitlines()] == ["a", "b"]
    assert resin("rejects", "list", "--index", str(place), "--reason", "unheard-of").out == "no rejects\n"


def test_retry_hands_reasons_to_the_job(resin: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[str, Any] = {}

    def run(reasons: Any, index: str, config: Any, progress: Any, env: Any) -> IndexReport:
        called.update(reasons=list(reasons), index=index)
        return IndexReport(**REPORT)

    monkeypatch.setattr(rejects_command, "runner", lambda name: called.update(name=name) or run)
    ran = resin("rejects", "retry", "--index", str(place), "--reason", "corrupt", "--json")
    assert ran.status == 0
    assert called == {"name": "retry", "reasons": ["corrupt"], "index": str(place)}
    assert json.loads(ran.out)["documents"] == 2
    assert "documents" in resin("rejects", "retry", "--index", str(place)).out
    assert called["reasons"] == []


def test_a_dry_run_says_what_a_run_would_take_and_indexes_nothing(resin: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The mast weighs 4 tonnes. The kiln holds 9 litres.")
    command = ("index", str(tmp_path / "a.txt"), "--index", str(tmp_path / "i"), "--dry-run", "--sample", "0")
    ran = resin(*command)
    assert ran.status == 0
    assert "about 1" in ran.out
    assert "unknown: no document was read by the model (--sample)" in ran.out
    found = json.loads(resin(*command, "--json").out)
    assert (found["documents"], found["llm_calls"], found["seconds"]) == (1, 1, None)
    assert not (tmp_path / "i").exists()


def test_without_a_source_there_is_nothing_to_do(resin: Run, tmp_path: Path) -> None:
    ran = resin("index", "--index", str(tmp_path / "i"))
    assert (ran.status, ran.out) == (2, "")
    assert "indexing.sources" in ran.err
