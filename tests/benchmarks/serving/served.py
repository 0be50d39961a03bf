"""`resin serve` as a process, seen from outside: its address, its replicas' processes, and how one is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.killing import processes
from tests.benchmarks.killing.model import ModelProcess

_READY = re.compile(r"ready at (http://\S+)")
_REPLICA = re.compile(r"ray::ServeReplica:resin:(\w+)")


class Served:
    """Start with `with`; the index is made before by `indexed`. What the process says goes to `log`."""

    def __init__(self, index: Path, model: ModelProcess, serving: Mapping[str, Any], log: Path) -> None:
        self.url = ""
        self._log = log
        llm = {"base_url": model.base_url, "model": "scripted", "max_concurrency": model.slots or 64}
        values = {
            "index": {"uri": str(index)},
            "llm": llm | {"backoff_base_s": 0.1, "connect_timeout_s": 30.0},
            "serving": dict(serving),
            "strategies": {"resin": {"hop_solvers": "never"}},
        }
        self._config = log.with_suffix(".config.yaml")
        self._config.write_text(json.dumps(values, indent=2), encoding="utf-8")  # JSON is YAML

    def __enter__(self) -> Served:
        command = [sys.executable, "-m", "resin_core", "serve", "--config", str(self._config), "--port", "0"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RESIN_", "RAY_"))}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=kept, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 180
        while not (ready := _READY.search(self._log.read_text(errors="replace"))):
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError(f"resin serve did not become ready; see {self._log}")
            time.sleep(0.1)
        self.url = ready[1]
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def replicas(self) -> dict[str, list[int]]:
        """Process ids of the living replicas by deployment."""
        found: dict[str, list[int]] = {}
        for process in processes.below(self._process.pid):
            name = _REPLICA.match(process.title)
            if name:
                found.setdefault(name[1], []).append(process.pid)
        return found

    def memory(self) -> int:
        """Bytes that all of its processes hold in memory, pages shared between them counted once for each."""
        pids = [self._process.pid, *(process.pid for process in processes.below(self._process.pid))]
        return sum(_resident(pid) for pid in pids)


def indexed(folder: Path, documents: int, name: str = "index", edition: str = "") -> Path:
    """An index of made-up documents in `folder`; run again, it publishes a new generation of it."""
    source = folder / f"{name}.jsonl"
    with source.open("w", encoding="utf-8") as out:
        for number in range(documents):
            names = [f"Basin {number}-{at}" for at in range(5)]
            text = " ".join(
                f"{basin} holds {number + 7 * at} cubic metres of water{edition}." for at, basin in enumerate(names)
            )
            out.write(json.dumps({"id": f"b{number:06}", "title": f"Basin {number}", "text": text}) + "\n")
    model = ModelProcess(64)
    model.start(folder / f"{name}.calls", 0.0)
    try:
        command = [sys.executable, "-m", "resin_core", "index", str(source), "--index", str(folder / name), "--json"]
        settings = (f"llm.base_url={model.base_url}", "llm.model=scripted", "llm.max_concurrency=64")
        done = subprocess.run(
            [*command, *(part for one in settings for part in ("--set", one))],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        model.stop()
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return folder / name


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0
