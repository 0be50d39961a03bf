"""The whole path with a real model: documents -> index -> verify -> question -> answer with exact spans.

The 0.5B model writes poor claims, so nothing here judges what it says: only that whatever it says is grounded,
cited to exact spans and accounted for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from resin_core import sample

pytestmark = [pytest.mark.model, pytest.mark.ray, pytest.mark.timeout(600)]

MODEL = "llm.model=qwen2.5-coder-0.5b-instruct"
SOURCES = ("commute/bus-14.md", "commute/metro-blue-line.md")


def resin(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("RESIN_LLM")}
    command = [sys.executable, "-m", "resin_core", *arguments, "--set", MODEL]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=500, check=False)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    for name in SOURCES:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((Path(str(sample.corpus())) / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def index(documents: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    folder = str(tmp_path_factory.mktemp("index") / "index")
    done = resin("index", str(documents), "--index", folder, "--json")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_the_report_accounts_for_the_run(index: tuple[str, dict[str, Any]]) -> None:
    _, report = index
    assert report["documents"] == len(SOURCES)
    assert report["llm_calls"] >= len(SOURCES)
    assert report["completion_tokens"] > 20
    assert sum(report["units"].values()) > 0


def test_the_index_verifies_and_every_unit_is_its_source(documents: Path, index: tuple[str, dict[str, Any]]) -> None:
    folder, _ = index
    assert resin("verify", "--index", folder).returncode == 0
    listed = resin("inspect", "--index", folder, "--units", "--json").stdout.splitlines()
    assert listed
    for line in listed:
        unit = json.loads(line)
        text = (documents / unit["doc_id"]).read_text(encoding="utf-8")
        assert text[unit["char_start"] : unit["char_end"]] == unit["evidence_quote"]


def test_an_unchanged_corpus_costs_no_call(documents: Path, index: tuple[str, dict[str, Any]]) -> None:
    folder, _ = index
    done = resin("index", str(documents), "--index", folder, "--json")
    report = json.loads(done.stdout)
    assert (report["reused"], report["llm_calls"]) == (len(SOURCES), 0)


def test_an_answer_cites_exact_spans(documents: Path, index: tuple[str, dict[str, Any]]) -> None:
    folder, _ = index
    done = resin("ask", "What does a ticket for bus 14 cost?", "--index", folder, "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["answer"].strip()
    assert answer["evidence"]
    assert answer["usage"]["llm_calls"] >= 2
    shown = {sentence for item in answer["evidence"] for sentence in item["sentence_ids"]}
    for citation in answer["citations"]:
        text = (documents / citation["doc_id"]).read_text(encoding="utf-8")
        assert text[citation["char_start"] : citation["char_end"]] == citation["text"]
        assert set(citation["sentence_ids"]) <= shown
