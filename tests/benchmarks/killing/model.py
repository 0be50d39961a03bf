"""The scripted model's process, as the harness starts, kills and starts it again on the same port."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

# Below the range from which systems give out ports of their own: nobody takes it while the server is down.
_PORTS = range(21_000, 31_000)


class ModelProcess:
    """One server at a time. `base_url` stays the same over all starts."""

    def __init__(self, slots: int | None = None) -> None:
        self.port = _free_port()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        self.slots = slots
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the running server."""
        if self._process is None:
            raise RuntimeError("the scripted model is not running; start it first")
        return self._process.pid

    def start(self, log: Path, latency_s: float, slow: tuple[str, float] | None = None) -> None:
        """Starts a server and waits until it accepts connections. Raises RuntimeError when it does not.

        `slow`: a task (plan or compose) whose calls take so many seconds more.
        """
        command = [sys.executable, "-m", "tests.scripted_llm.serve", "--port", str(self.port)]
        command += ["--latency", str(latency_s), "--log", str(log)]
        if self.slots is not None:
            command += ["--slots", str(self.slots)]
        if slow is not None:
            command += ["--slow-task", slow[0], "--slow-latency", str(slow[1])]
        root = Path(__file__).parents[3]
        self._process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"the scripted model did not start on port {self.port}")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL, and waits for its end."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and waits for its end; nothing when none runs."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


def _free_port() -> int:
    for port in random.sample(_PORTS, 50):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port among 50 tried from {_PORTS.start} to {_PORTS.stop}")
