"""`resin serve` up to the point where Ray would be started, and `resin serve --check`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

from resin_core.cli import serve as serve_command
from resin_core.config import ResinConfig
from resin_core.errors import ResinError
from tests.unit.cli.conftest import Run

SHIPPED = Path(__file__).parents[3] / "configs" / "serve.yaml"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A runner that only notes what it is called with, and raises `error` if there is one."""
    called: dict[str, Any] = {}

    def run(config: ResinConfig, say: Callable[[str], None], env: Any) -> None:
        called.update(config=config, env=env)
        if "error" in called:
            raise called["error"]
        say("ready at http://127.0.0.1:1")

    def runner(name: str) -> Any:
        called["runner"] = name
        return run

    monkeypatch.setattr(serve_command, "runner", runner)
    return called


def test_flags_win_over_the_configuration(resin: Run, served: dict[str, Any]) -> None:
    settings = ("--set", "index.uri=a", "--set", "serving.host=10.0.0.1", "--set", "serving.port=1")
    assert resin("serve", *settings) == (0, "", "resin: ready at http://127.0.0.1:1\n")
    config = served["config"]
    assert served["runner"] == "serve"
    assert (config.index.uri, config.serving.host, config.serving.port) == ("a", "10.0.0.1", 1)
    resin("serve", *settings, "--index", "s3://b/i", "--host", "::1", "--port", "0")
    config = served["config"]
    assert (config.index.uri, config.serving.host, config.serving.port) == ("s3://b/i", "::1", 0)


def test_without_flags_it_listens_on_loopback(resin: Run, served: dict[str, Any]) -> None:
    resin("serve")
    config = served["config"]
    assert (config.index.uri, config.serving.host, config.serving.port) == (None, "127.0.0.1", 8000)


def test_an_application_that_does_not_start_is_one_line_and_a_failure(resin: Run, served: dict[str, Any]) -> None:
    served["error"] = ResinError("the application did not start: planner: no GPU")
    assert resin("serve", "--index", "x") == (1, "", "resin: the application did not start: planner: no GPU\n")


@pytest.mark.parametrize(
    "arguments",
    [["--port", "65536"], ["--port", "-1"], ["--port", "http"], ["--set", "serving.prt=1"], ["--check"], ["x"]],
)
def test_bad_usage(resin: Run, served: dict[str, Any], arguments: list[str]) -> None:
    ran = resin("serve", *arguments)
    assert (ran.status, ran.out, "config" in served) == (2, "", False)


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        ([], 2, "no index is named; give --index FOLDER"),
        (["--index", "{here}/absent"], 1, "no index at"),
        (["--index", "{here}", "--host", "0.0.0.0"], 2, "resin key NAME"),
        (["--index", "{here}", "--set", "serving.keys_file={here}/absent"], 2, "No such file"),
        (["--index", "{here}", "--set", "serving.indexes.b@c=x"], 2, "'b@c' may hold letters"),
    ],
)
def test_what_is_refused_before_anything_is_started(
    resin: Run, tmp_path: Path, arguments: list[str], status: int, word: str
) -> None:
    ran = resin("serve", *(argument.format(here=tmp_path) for argument in arguments))
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1)
    assert word in ran.err


def test_without_what_it_runs(resin: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: EntryPoints())
    for arguments in ([], ["--check", str(SHIPPED)]):
        ran = resin("serve", *arguments)
        assert ran.status == 1 and "is not installed" in ran.err
    broken = EntryPoints([EntryPoint("serve", "no_such_library.serving:run", "resin.runners")])
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: broken)
    ran = resin("serve")
    assert ran.status == 1 and "no_such_library" in ran.err and ran.err.count("\n") == 1


def test_a_file_that_is_right(resin: Run) -> None:
    assert resin("serve", "--check", str(SHIPPED)) == (0, f"{SHIPPED}: nothing is wrong\n", "")


def test_a_check_serves_nothing_and_reads_no_configuration(resin: Run) -> None:
    ran = resin("serve", "--check", str(SHIPPED), "--index", "absent", "--host", "0.0.0.0", "--config", "absent.yaml")
    assert ran.status == 0


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("http_option: {}\napplications: []\n", "http_option: unknown key; did you mean http_options?"),
        ("applications:\n- {name: a, import_path: 'deployments.app:build', args: {confg: x}}\n", "did you mean config"),
        ("applications: {\n", "is not valid YAML (line 2"),
        ("", "expected a mapping with applications"),
    ],
)
def test_a_file_that_is_wrong(resin: Run, tmp_path: Path, content: str, word: str) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(content, encoding="utf-8")
    ran = resin("serve", "--check", str(file))
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert word in ran.err and str(file) in ran.err


def test_a_file_that_is_not_there(resin: Run, tmp_path: Path) -> None:
    ran = resin("serve", "--check", str(tmp_path / "absent.yaml"))
    assert (ran.status, ran.out) == (2, "")
    assert "absent.yaml: No such file" in ran.err
