"""What commands do that need neither an index nor a model."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest
import yaml

from resin_core import __version__
from resin_core.cli import index as index_command
from resin_core.cli import show
from resin_core.indexing.report import IndexProgress, IndexReport
from resin_core.records import Citation
from tests.unit.cli.conftest import Run

REPORT: dict[str, Any] = {
    "documents": 2,
    "passages": 3,
    "units": {"entity-fact": 4, "rule": 1},
    "rejects": {"ground:not-in-source": 2},
    "reused": 5,
    "carried": 0,
    "failed": 0,
    "resumed": 1,
    "llm_calls": 7,
    "prompt_tokens": 1200,
    "completion_tokens": 300,
    "cost": 0.0,
    "seconds": 1.5,
    "generation": "g1-0123456789ab",
    "total_documents": 7,
    "total_passages": 9,
    "total_units": 20,
    "source_tokens": 200,
}


@pytest.fixture
def ran_with(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A runner that reports what `changes` say, and what it was called with."""
    called: dict[str, Any] = {"changes": {}}

    def run(sources: Any, index: str, config: Any, progress: Any, env: Any) -> IndexReport:
        called.update(sources=sources, index=index, config=config)
        progress(IndexProgress(stage="reading", done=1, total=0, detail="documents"))
        return IndexReport(**{**REPORT, **called["changes"]})

    monkeypatch.setattr(index_command, "runner", lambda name: run)
    return called


def test_help_names_every_command(resin: Run) -> None:
    ran = resin("--help")
    assert ran.status == 0
    for name in ("index", "ask", "search", "inspect", "verify", "rejects", "models", "config", "demo", "serve", "key"):
        assert f" {name} " in ran.out
        assert resin(name, "--help").status == 0


@pytest.mark.parametrize(
    "command", [[name] for name in ("index", "ask", "search", "inspect", "verify", "demo", "serve", "key")]
    + [["config", "show"]]
    + [["rejects", name] for name in ("list", "retry")]
    + [["models", name] for name in ("list", "pull", "path")],
)  # fmt: skip
def test_every_command_takes_the_shared_options(resin: Run, command: list[str]) -> None:
    out = resin(*command, "--help").out
    assert "--config" in out and "--set" in out and "--debug" in out


def test_version(resin: Run) -> None:
    assert resin("--version") == (0, f"resin {__version__}\n", "")


def test_config_show_prints_what_is_set_and_no_secret(resin: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("retrieval:\n  top_k: 3\n")
    ran = resin("config", "show", "--config", str(file), "--set", "llm.api_key=sesame", "--set", "planner.max_hops=2")
    shown = yaml.safe_load(ran.out)
    assert (ran.status, shown["retrieval"]["top_k"], shown["planner"]["max_hops"]) == (0, 3, 2)
    assert "sesame" not in ran.out


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["--help"], set()),
        (["config", "show"], set()),
        (["models", "list"], set()),
        (["serve", "--help"], set()),
        (["key", "somebody"], set()),
        (["ask", "", "--index", "x"], {"pyarrow"}),
    ],
)
def test_nothing_heavy_is_imported(arguments: list[str], allowed: set[str]) -> None:
    code = (
        "import sys\nfrom resin_core.cli.main import main\n"
        f"main({arguments!r})\n"
        "print(*(name for name in sys.modules if '.' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "resin_core" in loaded
    assert loaded & {"torch", "ray", "openai", "faiss", "pyarrow", "sentence_transformers", "transformers"} <= allowed


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "resin_core", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"resin {__version__}\n")


def test_index_prints_a_report_and_its_progress_apart(resin: Run, ran_with: dict[str, Any]) -> None:
    ran = resin("index", "a", "b.md", "--index", "s3://x/y", "--set", "indexing.window_sentences=7")
    assert ran.status == 0
    assert (ran_with["sources"], ran_with["index"]) == (["a", "b.md"], "s3://x/y")
    assert ran_with["config"].indexing.window_sentences == 7
    assert ran.err == "resin: reading: 1 document\n"
    for row in ("2 indexed, 5 unchanged, 1 resumed", "5: entity-fact 4, rule 1", "2: ground:not-in-source 2", "1.50"):
        assert row in ran.out
    assert "g1-0123456789ab" in ran.out


def test_index_takes_its_place_from_the_configuration(resin: Run, ran_with: dict[str, Any]) -> None:
    assert resin("index", "a", "--set", "index.uri=here").status == 0
    assert ran_with["index"] == "here"


def test_index_json_is_one_object_with_the_report(resin: Run, ran_with: dict[str, Any]) -> None:
    ran = resin("index", "a", "--index", "x", "--json")
    assert json.loads(ran.out) == REPORT
    assert ran.out.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"units": {}}, "no unit was extracted from 2 documents; `resin inspect --rejects` shows why"),
        ({"documents": 0, "reused": 0, "units": {}}, "no document could be read from the sources; `resin inspect"),
        ({"documents": 0, "reused": 0, "units": {}, "rejects": {}}, "the sources hold no documents"),
    ],
)
def test_zero_yield_is_a_failure_after_its_report(
    resin: Run, ran_with: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    ran_with["changes"] = changes
    ran = resin("index", "a", "--index", "x", "--json")
    assert ran.status == 1
    assert json.loads(ran.out)["documents"] == changes.get("documents", 2)
    assert said in ran.err


def test_only_known_documents_is_no_failure(resin: Run, ran_with: dict[str, Any]) -> None:
    ran_with["changes"] = {"documents": 0, "units": {}, "source_tokens": 0}
    ran = resin("index", "a", "--index", "x")
    assert ran.status == 0
    assert "0 indexed, 5 unchanged" in ran.out


def test_index_without_the_job(resin: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: EntryPoints())
    ran = resin("index", "a", "--index", "x")
    assert ran.status == 1
    assert "what `resin index` runs is not installed" in ran.err


def test_index_with_a_job_that_lacks_a_library(resin: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoints([EntryPoint("index", "no_such_library.index:run", "resin.runners")])
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: broken)
    ran = resin("index", "a", "--index", "x")
    assert ran.status == 1
    assert "no_such_library" in ran.err and ran.err.count("\n") == 1


def test_models_list_says_what_is_here(resin: Run, tmp_path: Path) -> None:
    ran = resin("models", "list", "--set", f"llm.embedded.cache_dir={tmp_path}")
    assert ran.status == 0
    assert ran.out.count("not fetched") == 3
    assert "1,117 MB  Apache-2.0" in ran.out


def test_models_path_says_how_to_fetch(resin: Run, tmp_path: Path) -> None:
    ran = resin("models", "path", "--set", f"llm.embedded.cache_dir={tmp_path}")
    assert ran.status == 1
    assert "resin models pull qwen2.5-coder-1.5b-instruct" in ran.err


def test_models_path_of_an_own_file(resin: Run, tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.write_bytes(b"GGUF....")
    setting = f"llm.embedded.model_path={file}"
    assert resin("models", "path", "--set", setting) == (0, f"{file}\n", "")
    assert resin("models", "pull", "--set", setting) == (0, f"{file}\n", "")
    # A model that is named is meant, not the file.
    cache = f"llm.embedded.cache_dir={tmp_path}"
    ran = resin("models", "path", "smollm2-135m-instruct", "--set", setting, "--set", cache)
    assert ran.status == 1


def test_text_of_documents_cannot_steer_a_terminal() -> None:
    assert show.one_line("a\x1b[2Jb\r\nc\u202ed\x9b0m") == "a\ufffd[2Jb\ufffd c\ufffdd\ufffd0m"
    assert show.plain("tab\tand\nline") == "tab\tand\nline"


def test_a_long_line_is_cut_with_a_mark() -> None:
    assert show.one_line("word " * 50, 12) == "word word w…"


def test_json_is_escaped_where_the_output_cannot_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    citation = Citation(
        number=1, passage_id="p", doc_id="d", title="Ö", uri="u", sentence_ids=(), char_start=0, char_end=1, text="ü"
    )
    for encoding in ("ascii", "latin-1", "utf-8"):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace"))
        show.json_line({**citation.model_dump(mode="json"), "query": "\udcff"})
        sys.stdout.flush()
        assert json.loads(raw.getvalue().decode(encoding))["title"] == "Ö"
