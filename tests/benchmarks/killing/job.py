"""One `resin index` command as a process: started, killed, started again, until it ends by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class IndexJob:
    """The same command each time. `starts` counts them; output of each start is kept in `folder`."""

    def __init__(self, sources: Path, index: Path, config: Path, env: Mapping[str, str], folder: Path) -> None:
        self.index = index
        self.starts = 0
        self._command = [sys.executable, "-m", "resin_core", "index", str(sources)]
        self._command += ["--index", str(index), "--config", str(config), "--json"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RESIN_", "RAY_"))}
        self._env = {**kept, **env}
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the command; the one before must have ended."""
        self.starts += 1
        with self._path("json").open("wb") as out, self._path("err").open("wb") as err:
            self._process = subprocess.Popen(
                self._command, env=self._env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    @property
    def pid(self) -> int:
        """Of the driver."""
        assert self._process is not None
        return self._process.pid

    def status(self) -> int | None:
        """The exit status, or None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        """The exit status, or None when it still runs after that time."""
        assert self._process is not None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> int:
        """SIGKILL, and waits; the exit status, which is 0 when the job had ended well just before."""
        assert self._process is not None
        self._process.kill()
        return self._process.wait()

    def end(self) -> None:
        """Kills it if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def report(self) -> dict[str, Any]:
        """The report that the last start printed. Raises ValueError when it printed none, or more."""
        said = self._path("json").read_text(encoding="utf-8")
        try:
            value: dict[str, Any] = json.loads(said)
        except ValueError:
            raise ValueError(f"standard output holds no report but {said[:300]!r}; {self.last_words()}") from None
        return value

    def last_words(self) -> str:
        """The last line that the last start wrote to standard error."""
        lines = self._path("err").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "(nothing on standard error)"

    def _path(self, ending: str) -> Path:
        return self._folder / f"start-{self.starts}.{ending}"


def verified(index: Path) -> str:
    """Runs `resin verify`; empty when the index is sound, else what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "resin_core", "verify", "--index", str(index)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"exit {done.returncode}"


def write_config(path: Path, base_url: str, slots: int, indexing: Mapping[str, Any]) -> Path:
    """A configuration for the scripted model, patient enough for a server that is away for seconds."""
    llm = {"base_url": base_url, "model": "scripted", "max_concurrency": slots, "max_retries": 12}
    llm |= {"backoff_base_s": 0.2, "backoff_max_s": 1.5, "connect_timeout_s": 30.0}
    # JSON is YAML.
    path.write_text(json.dumps({"llm": llm, "indexing": dict(indexing)}, indent=2), encoding="utf-8")
    return path
