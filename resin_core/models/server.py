"""The embedded language model server as a context manager: an OpenAI-compatible HTTP server on the loopback address.

The server is a child process, so that a fault in native code cannot take the caller with it. It is never left
behind: it ends on `stop`, at the caller's exit, and by itself when the caller is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import http.client
import json
import math
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO

from resin_core.config.sections import EmbeddedSection
from resin_core.errors import ModelError, ServerStartError
from resin_core.models.cache import Progress
from resin_core.models.resolve import resolve

_CHILD = Path(__file__).with_name("server_child.py")
_KEPT_LINES = 50
_SHOWN_LINES = 6
_STOP_S = 5.0


class EmbeddedServer:
    """One model served from a child process; start and stop are synchronous and may be called from any thread.

    From async code: `await asyncio.to_thread(server.start)`. Use as a context manager, or call `start` and `stop`.
    """

    def __init__(self, settings: EmbeddedSection, model_name: str, progress: Progress | None = None) -> None:
        self._settings, self._model_name, self._progress = settings, model_name, progress
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner_pid = os.getpid()
        self._address = ""
        self._api_key = ""
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._readers: list[threading.Thread] = []

    @property
    def model_name(self) -> str:
        """The name the server answers to."""
        return self._model_name

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:PORT/v1`. Raises ModelError when the server does not run."""
        self._require_running()
        return f"{self._address}/v1"

    @property
    def api_key(self) -> str:
        """Bearer key of this start; other users of the machine cannot call the server without it."""
        self._require_running()
        return self._api_key

    @property
    def pid(self) -> int:
        """Process id of the server. Raises ModelError when it does not run."""
        self._require_running()
        assert self._process is not None  # noqa: S101 - said above
        return self._process.pid

    def alive(self) -> bool:
        """Whether the server process runs."""
        process = self._process
        return process is not None and process.poll() is None

    def fault(self) -> str:
        """Why a started server is gone, with its last lines; empty while it runs, before a start and after a stop."""
        process = self._process
        if process is None or process.poll() is None:
            return ""
        return f"the embedded server of {self._model_name!r} ended with status {process.returncode}{self._last_lines()}"

    def start(self) -> EmbeddedServer:
        """Fetch the weights if need be, start the server, wait until it is healthy. Nothing happens when it runs.

        Raises ServerStartError (with the server's last lines and the way to mend it) and what `resolve` raises.
        """
        with self._lock:
            if self.alive():
                return self
            self.stop()
            if find_spec("xllamacpp") is None:
                raise ServerStartError(
                    "the embedded server needs the package xllamacpp, which is not installed; "
                    'run `pip install "resin[cpu]"`, or set llm.base_url to a running server'
                )
            weights = resolve(self._model_name, self._settings, self._progress)
            give_up_at = time.monotonic() + self._settings.start_timeout_s
            try:
                self._address = self._launch(weights, give_up_at)
                self._await_health(give_up_at)
            except BaseException:
                self.stop()
                raise
            return self

    def stop(self) -> None:
        """End the server and wait until it is gone; its port is free afterwards. May be called more than once."""
        with self._lock:
            process, self._process = self._process, None
            # A fork of the owner has a copy of this object, and must not end its parent's server.
            if process is None or os.getpid() != self._owner_pid:
                return
            atexit.unregister(self.stop)
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            for reader in self._readers:
                reader.join(_STOP_S)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._readers, self._address, self._api_key = [], "", ""

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, weights: Path, give_up_at: float) -> str:
        """Start the child; returns the address it listens on."""
        self._owner_pid = os.getpid()
        self._api_key = secrets.token_urlsafe(24)
        self._lines.clear()
        job = {
            "model_path": str(weights),
            "alias": self._model_name,
            "slots": self._settings.slots,
            "slot_context_tokens": self._settings.slot_context_tokens,
            "threads": self._settings.threads or default_threads(),
            "api_key": self._api_key,
            "parent_pid": os.getpid(),
            # The kernel's death signal is tied to the thread that starts the child: a worker thread may end long
            # before this process does.
            "die_with_thread": threading.current_thread() is threading.main_thread(),
        }
        process = self._process = subprocess.Popen(  # noqa: S603 - this interpreter, a file of this package
            [sys.executable, "-P", str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # an interrupt at the terminal is for the caller, who then stops the server
        )
        atexit.register(self.stop)
        answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert process.stdin and process.stdout and process.stderr  # noqa: S101 - pipes, as asked for
        self._readers = [
            threading.Thread(target=_read_answers, args=(process.stdout, answers), daemon=True),
            threading.Thread(target=_keep_lines, args=(process.stderr, self._lines), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        with contextlib.suppress(BrokenPipeError):  # a child that died at once shows below
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        try:
            answer = answers.get(timeout=max(0.0, give_up_at - time.monotonic()))
        except queue.Empty:
            raise self._too_slow(weights) from None
        if answer is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            self._readers[1].join(_STOP_S)
            raise ServerStartError(
                f"the embedded server could not serve {weights} (status {process.returncode}){self._last_lines()}\n"
                "check llm.embedded.model_path and the free memory, lower llm.embedded.slots or "
                "llm.embedded.slot_context_tokens, or set llm.base_url to a running server"
            )
        return str(json.loads(answer)["address"])

    def _await_health(self, give_up_at: float) -> None:
        host = self._address.removeprefix("http://")
        while time.monotonic() < give_up_at and self.alive():
            # Not through a proxy, whatever the environment says: this is the loopback address.
            connection = http.client.HTTPConnection(host, timeout=5.0)
            try:
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.05)
        if not self.alive():
            raise ServerStartError(self.fault())
        raise self._too_slow(Path(self._address))

    def _too_slow(self, what: Path) -> ServerStartError:
        return ServerStartError(
            f"the embedded server of {what} was not healthy within {self._settings.start_timeout_s:g} s"
            f"{self._last_lines()}\nraise llm.embedded.start_timeout_s, or use a smaller model"
        )

    def _require_running(self) -> None:
        if not self.alive():
            raise ModelError(
                self.fault() or f"the embedded server of {self._model_name!r} is not started; call start()"
            )

    def _last_lines(self) -> str:
        lines = list(self._lines)[-_SHOWN_LINES:]
        return "; its last lines:\n  " + "\n  ".join(lines) if lines else ""


def default_threads(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores this process may use: its affinity, and the CPU limit of its container; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = limit.read_text(encoding="ascii").split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no such limit: the file is missing or says "max"
        pass
    return max(1, cores)


def _read_answers(stream: IO[bytes], answers: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        answers.put(line.decode("utf-8", "replace"))
    answers.put(None)


def _keep_lines(stream: IO[bytes], lines: deque[str]) -> None:
    """Read on, so that the child can never block on a full pipe."""
    for line in stream:
        if text := line.decode("utf-8", "replace").strip():
            lines.append(text)
