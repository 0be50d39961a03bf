"""The scripted model as a process of its own, to be killed and started again while a job calls it.

    python -m tests.scripted_llm.serve --port P --latency S --slots N --log FILE

Runs until SIGTERM. Each chat request is one JSON line in the log when it starts and one when it ends, written to the
file at once, so a SIGKILL loses none: a call in flight at the kill has a start and no end. Times are of the monotonic
clock, which processes of one machine share. The same port and the same log can be used again by the next start.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.scripted_llm.actions import Action, Reply
from tests.scripted_llm.indexing_replies import play, title_of
from tests.scripted_llm.server import ScriptedServer, Seen

PASSAGES_PER_WINDOW = 2


def digest_of(request: dict[str, Any]) -> str:
    """The same for equal request bodies, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32]


def task_of(request: dict[str, Any]) -> str:
    """plan, compose, or empty for other calls."""
    if "response_format" not in request:
        return "compose"
    return "plan" if "hops" in request["response_format"]["json_schema"]["schema"]["properties"] else ""


class CallLog:
    """Appends lines with one write each; a line that a killed process left unfinished is ended first."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def add(self, event: str, call: str, **more: Any) -> None:
        """One line: event, id, time in seconds, and what else is known."""
        line = {"event": event, "id": call, "time": time.monotonic(), **more}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


@dataclass
class LoggedServer(ScriptedServer):
    """A scripted server that tells `log` of every chat request, and remembers none of them itself."""

    log: CallLog | None = None

    async def _exchange(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if self.log is None or not seen.path.endswith("/chat/completions"):
            return await super()._exchange(seen, reader, writer)
        self._count = getattr(self, "_count", 0) + 1
        call = f"{os.getpid()}-{self._count}"
        self.log.add("start", call, digest=digest_of(seen.body), title=title_of(seen.body))
        try:
            return await super()._exchange(seen, reader, writer)
        finally:
            self.log.add("end", call, outcome=seen.outcome)
            self.seen.clear()


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that each reply takes")
    parser.add_argument("--slots", type=int, default=None, help="requests worked on at once; unset: all")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--slow-task", choices=("plan", "compose"), default=None, help="the calls that take longer")
    parser.add_argument("--slow-latency", type=float, default=0.0, help="seconds that these take in addition")
    options = parser.parse_args()
    ending = {signal.SIGTERM, signal.SIGINT}
    # Before the server's thread starts, so that it inherits this and the signal waits for sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    log = CallLog(options.log)

    def handler(request: dict[str, Any]) -> Action:
        action = play(request, passages=PASSAGES_PER_WINDOW)
        if options.slow_task == task_of(request) and isinstance(action, Reply):
            return replace(action, latency_s=options.slow_latency)
        return action

    with LoggedServer(
        handler=handler, slots=options.slots, latency_s=options.latency, port=options.port, log=log
    ) as server:
        print(server.base_url, flush=True)
        signal.sigwait(ending)
    log.close()


if __name__ == "__main__":
    main()
