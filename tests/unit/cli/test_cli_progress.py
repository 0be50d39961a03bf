"""Progress: few lines where nobody watches, bars on a terminal, never anything on standard output."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from resin_core.cli.progress import Bars, Lines, shown
from resin_core.indexing.report import IndexProgress


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def lines() -> tuple[Lines, list[str], Clock]:
    written: list[str] = []
    clock = Clock()
    return Lines(5.0, written.append, clock), written, clock


def test_lines_are_few() -> None:
    progress, written, clock = lines()
    for done in range(1000):
        clock.now_s += 0.01
        progress.index(IndexProgress(stage="extracting", done=done, total=1000, detail="7 units, 1 rejects"))
    progress.index(IndexProgress(stage="publishing", done=0, total=1))
    progress.index(IndexProgress(stage="publishing", done=1, total=1, detail="g1"))
    assert written == [
        "resin: extracting: 0 of 1,000 documents, 7 units, 1 rejects",
        "resin: extracting: 500 of 1,000 documents, 7 units, 1 rejects",
        "resin: publishing",
    ]


def test_a_download_is_told_in_megabytes() -> None:
    progress, written, clock = lines()
    progress.model(0, 1_117_320_768, "packages")
    clock.now_s += 6
    progress.model(558_000_000, 1_117_320_768, "packages")
    progress.index(IndexProgress(stage="hub", done=2_000_000, total=0, detail="bytes"))
    assert written == [
        "resin: packages: 0 of 1,117 MB",
        "resin: packages: 558 of 1,117 MB",
        "resin: hub: 2 MB",
    ]


def test_a_wait_that_cannot_be_counted_is_no_line() -> None:
    progress, written, _ = lines()
    progress.stage("planning")
    assert written == []


def test_bars_hold_the_last_state_and_give_the_screen_back() -> None:
    screen = io.StringIO()
    rich = Progress(
        TextColumn("{task.description} {task.fields[amount]}"),
        console=Console(file=screen, force_terminal=True, width=80),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bars = Bars(rich)
    bars.index(IndexProgress(stage="reading", done=3, total=0, detail="documents"))
    bars.index(IndexProgress(stage="reading", done=4, total=0, detail="documents"))
    bars.model(1_000_000, 2_000_000, "hub")
    assert [(task.description, task.completed, task.total) for task in rich.tasks] == [
        ("reading", 4, None),
        ("hub", 1_000_000, 2_000_000),
    ]
    assert rich.live.is_started
    bars.stage("planning")
    assert [task.description for task in rich.tasks] == ["planning"]
    bars.stage("")
    assert rich.tasks == []
    assert not rich.live.is_started
    bars.index(IndexProgress(stage="extracting", done=1, total=2, detail="documents"))
    rich.refresh()
    assert rich.live.is_started
    assert "extracting 1 of 2 documents" in screen.getvalue()
    bars.stage("")


@pytest.mark.parametrize(
    ("terminal", "term", "kind"), [(True, "xterm", Bars), (True, "dumb", Lines), (False, "", Lines)]
)
def test_bars_are_for_terminals(monkeypatch: pytest.MonkeyPatch, terminal: bool, term: str, kind: type) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(stderr, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", term)
    out = sys.stdout
    with shown() as progress:
        assert isinstance(progress, kind)
        progress.model(1, 2, "hub")
        assert sys.stdout is out
