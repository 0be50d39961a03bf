"""The embedded language model server: a small program of its own, run as a file by `EmbeddedServer`.

It imports nothing of Resin, so that it starts fast and takes no memory for what it does not use. One line of JSON on
stdin says what to serve (the key is never in the arguments, which every user of the machine can read). When the
server listens, one line of JSON on stdout says where. It ends when stdin closes or its parent is gone.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import threading
from typing import Any

_PR_SET_PDEATHSIG = 1
_WATCH_S = 1.0
# Prefixes kept by the server for later prompts; the runtime's own default of 8 GiB is more than a laptop can give.
_PROMPT_CACHE_MIB = 1024


def main() -> int:
    """Serve until told to end. Exit status 1 when the model cannot be served; why stands on stderr."""
    # The runtime may print: only the answer to the parent may go to the real stdout.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.buffer.readline())
    if job["die_with_thread"]:
        _die_with_parent()
    threading.Thread(target=_watch, args=(job["parent_pid"],), daemon=True).start()
    try:
        server = _serve(job)
    except Exception as error:
        print(f"cannot serve {job['model_path']}: {error}", file=sys.stderr, flush=True)
        return 1
    print(json.dumps({"address": server.listening_address}), file=answers, flush=True)
    while True:
        signal.pause()


def _serve(job: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.verbosity = 2  # warnings and errors
    params.offline = True
    params.model.path = job["model_path"]
    params.model_alias = {job["alias"]}
    params.n_parallel = job["slots"]
    params.n_ctx = job["slot_context_tokens"] * job["slots"]
    params.kv_unified = False  # each slot has its own share of the context
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = job["threads"]
        cpu.poll = 0  # spinning threads starve each other on a busy machine
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the system chooses a free one
    params.api_keys = [job["api_key"]]
    params.ui = False
    params.endpoint_slots = False
    params.cors_origins = ""  # no web page may call it
    return xllamacpp.Server(params)


def _die_with_parent() -> None:
    """Have the kernel end this process with the thread that started it (Linux); elsewhere the watch is enough."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch(parent_pid: int) -> None:
    """End at once when stdin closes, and also when the parent is gone while a fork of it holds the other end open."""
    while os.getppid() == parent_pid:
        ready, _, _ = select.select([0], [], [], _WATCH_S)
        if ready and not os.read(0, 4096):
            break
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
