"""Every way to call the command line wrongly: its status, one line on standard error, nothing on standard output."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from resin_core.cli import config as config_commands
from resin_core.cli import search as search_command
from resin_core.errors import IndexMissingError
from tests.unit.cli.conftest import Run

MISSING = "/nowhere/at/all"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "Missing command"),
        (["frobnicate"], 2, "frobnicate"),
        (["--frobnicate"], 2, "--frobnicate"),
        (["models"], 2, "`resin models --help`"),
        (["ask"], 2, "QUESTION"),
        (["ask", "why?", "--frob"], 2, "--frob"),
        (["ask", "why?", "--index"], 2, "--index"),
        (["ask", "why?", "--index", MISSING, "--top-k", "0"], 2, "--top-k"),
        (["ask", "why?", "--index", MISSING, "--top-k", "many"], 2, "--top-k"),
        (["ask", "why?", "--index", MISSING, "--max-hops", "17"], 2, "--max-hops"),
        (["ask", "why?"], 2, "--index"),
        (["ask", "why?", "--index", ""], 2, "--index"),
        (["ask", "", "--index", MISSING], 2, "the question is empty"),
        (["ask", " \t\n\x00 ", "--index", MISSING], 2, "the question is empty"),
        (["ask", "a" * 100_000, "--index", MISSING], 2, "100,000 characters"),
        (["ask", "why?", "--index", MISSING, "--strategy", "magic"], 2, "unknown strategy 'magic'; there are: resin"),
        (["ask", "why?", "--index", MISSING, "--set", "strategies.default=magic"], 2, "unknown strategy 'magic'"),
        (["ask", "why?", "--index", MISSING, "--set", "llm.modl=x"], 2, "llm.model"),
        (["ask", "why?", "--index", MISSING, "--set", "nonsense"], 2, "section.key=value"),
        (["ask", "why?", "--index", MISSING, "--config", "/nowhere.yaml"], 2, "/nowhere.yaml"),
        (["ask", "why?", "--index", MISSING], 1, f"no index at {MISSING}"),
        (["ask", "why?", "--index", "gopher://x"], 1, "gopher://x"),
        (["search", "", "--index", MISSING], 2, "the question is empty"),
        (["search", "x", "--index", MISSING, "--kind", "hunch"], 2, "hunch"),
        (["search", "x", "--index", MISSING, "--top-k", "1001"], 2, "--top-k"),
        (["search", "x", "--index", MISSING], 1, f"no index at {MISSING}"),
        (["inspect", "--index", MISSING], 1, f"no index at {MISSING}"),
        (["inspect", "--index", MISSING, "--units", "--passages"], 2, "--passages and --units"),
        (["inspect", "u1", "--index", MISSING, "--units"], 2, "--units and ID 'u1'"),
        (["verify", "--index", MISSING], 1, f"no index at {MISSING}"),
        (["verify"], 2, "--index"),
        (["index", "--index", MISSING], 2, "SOURCE"),
        (["index", "/nowhere.txt"], 2, "--index"),
        (["index", "/nowhere.txt", "--index", "/tmp/never-made"], 1, "/nowhere.txt"),
        (["models", "pull", "gpt-9"], 1, "gpt-9"),
        (["models", "path", "gpt-9"], 1, "gpt-9"),
        (["demo", "--set", "llm.max_retries=-1"], 2, "llm.max_retries"),
        (["config", "show", "--set", "llm.max_retries=many"], 2, "llm.max_retries"),
    ],
)
def test_one_line_says_what_is_wrong(resin: Run, arguments: list[str], status: int, said: str) -> None:
    ran = resin(*arguments)
    assert ran.status == status, ran.err
    assert ran.out == ""
    assert ran.err.startswith("resin: ")
    assert ran.err.count("\n") == 1
    assert said in ran.err


def test_nothing_is_left_behind_by_sources_that_do_not_exist(resin: Run, tmp_path: Path) -> None:
    assert resin("index", str(tmp_path / "none.txt"), "--index", str(tmp_path / "index")).status == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["missing/trace.json", "."])
def test_a_trace_that_cannot_be_written_is_known_before_the_index_is_opened(
    resin: Run, tmp_path: Path, place: str
) -> None:
    ran = resin("ask", "why?", "--index", MISSING, "--trace", str(tmp_path / place))
    assert ran.status == 2
    assert "--trace" in ran.err
    assert MISSING not in ran.err


def test_a_failed_question_leaves_no_half_written_trace(resin: Run, tmp_path: Path) -> None:
    old = tmp_path / "trace.json"
    old.write_text("kept")
    assert resin("ask", "why?", "--index", MISSING, "--trace", str(old)).status == 1
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]
    assert old.read_text() == "kept"


def test_the_question_comes_from_standard_input(resin: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("  \n"))
    assert "the question is empty" in resin("ask", "-", "--index", MISSING).err
    monkeypatch.setattr(sys, "stdin", io.StringIO("Why is it so?\n"))
    assert "no index at" in resin("ask", "-", "--index", MISSING).err


def test_an_unexpected_error_is_one_line_and_names_the_way_to_more(resin: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise KeyError("some\nthing")

    monkeypatch.setattr(config_commands, "configured", fail)
    ran = resin("config", "show")
    assert ran.status == 1
    assert ran.err == "resin: internal error: KeyError: 'some\\nthing' (run again with --debug)\n"
    assert "Traceback" in resin("config", "show", "--debug").err


@pytest.mark.parametrize("kind", [BrokenPipeError, PermissionError])
def test_a_system_error_is_told_and_not_taken_for_a_closed_output(
    resin: Run, monkeypatch: pytest.MonkeyPatch, kind: type[OSError]
) -> None:
    def fail(*_: object) -> object:
        raise kind(32, "of a socket")

    monkeypatch.setattr(config_commands, "configured", fail)
    ran = resin("config", "show")
    assert ran.status == 1
    assert f"internal error: {kind.__name__}" in ran.err


def test_an_error_of_ours_has_a_trace_only_with_debug(resin: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> object:
        raise IndexMissingError("no index:\n  none")

    monkeypatch.setattr(search_command, "configured", fail)
    ran = resin("search", "x")
    assert (ran.status, ran.err) == (1, "resin: no index: none\n")
    assert "Traceback" in resin("search", "x", "--debug").err


def test_an_interrupt_ends_with_130(resin: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(config_commands, "configured", interrupt)
    ran = resin("config", "show")
    assert (ran.status, ran.out, ran.err) == (130, "", "resin: interrupted\n")
