"""Which processes descend from one that we started: read from /proc, so that nothing is ever found by name alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process as /proc shows it; `title` is its command line, which Ray's workers set to what they run."""

    pid: int
    parent: int
    title: str


def below(ancestor: int) -> list[Process]:
    """All living descendants of a process, parents before children."""
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (process := _read(int(entry.name))) is not None:
            children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    wanted = [ancestor]
    while wanted:
        for process in children.get(wanted.pop(0), []):
            found.append(process)
            wanted.append(process.pid)
    return found


def holding(folder: str) -> list[int]:
    """Processes with an open file below the folder, wherever they stand in the tree by now.

    Not by their environment: Ray writes its workers' titles over it.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                files = [str(link.readlink()) for link in (entry / "fd").iterdir()]
            except OSError:
                continue
            if any(file.startswith(f"{folder}/") for file in files) and alive(int(entry.name)):
                found.append(int(entry.name))
    return found


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    return _read(pid) is not None


def title_of(pid: int) -> str:
    """The command line; empty for a process that is gone."""
    process = _read(pid)
    return process.title if process else ""


def until_gone(pids: Iterable[int], timeout_s: float, over: Callable[[int], bool] | None = None) -> float:
    """Waits until no process of these runs, or `over` says of those left that they are done; the monotonic time then.

    After `timeout_s` it stops waiting.
    """
    end = time.monotonic() + timeout_s
    left = list(pids)
    while left := [pid for pid in left if alive(pid) and not (over and over(pid))]:
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return time.monotonic()


def _read(pid: int) -> Process | None:
    folder = Path(f"/proc/{pid}")
    try:
        # The name stands in parentheses and may hold any character.
        state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else Process(pid, int(parent), title)
