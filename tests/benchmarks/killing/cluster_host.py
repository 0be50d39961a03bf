"""The process that holds a local Ray cluster of several nodes, so that none of them belongs to a driver.

    python -m tests.benchmarks.killing.cluster_host '[{"num_cpus": 4}, {"num_cpus": 4}]'

The list gives each node's arguments; the first is the head. It speaks JSON lines: first what it started, then an
answer to each order on standard input. {"do": "add", "args": {...}} and {"do": "remove", "node": N}; nodes are numbered
in the order of their starts. When standard input ends, the cluster does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tests.benchmarks.killing import processes


def main() -> None:
    """Serves orders until standard input ends."""
    from ray.cluster_utils import Cluster

    answers = os.fdopen(os.dup(1), "w")
    # What Ray says of its own accord must not come between the answers.
    os.dup2(2, 1)
    given: list[dict[str, Any]] = json.loads(sys.argv[1])
    cluster = _patiently(lambda: Cluster(initialize_head=True, connect=False, head_node_args=_arguments(given[0])))

    def add(node: dict[str, Any]) -> Any:
        return _patiently(lambda: cluster.add_node(**_arguments(node)))

    nodes = [cluster.head_node, *(add(node) for node in given[1:])]

    def answer(value: dict[str, Any]) -> None:
        print(json.dumps(value), file=answers, flush=True)

    answer({"address": cluster.address, "raylets": [_raylet(node) for node in nodes]})
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "add":
            nodes.append(add(order["args"]))
            answer({"raylet": _raylet(nodes[-1])})
        else:
            cluster.remove_node(nodes[order["node"]], allow_graceful=False)
            answer({"removed": order["node"]})
    cluster.shutdown()


def _arguments(given: dict[str, Any]) -> dict[str, Any]:
    return {"include_dashboard": False, "object_store_memory": 200_000_000, **given}


def _patiently(start: Callable[[], Any]) -> Any:
    """Tries a start three times: Ray gives a node 30 s, which a crowded machine may need more than once."""
    before = {process.pid for process in processes.below(os.getpid())}
    for tries_left in (2, 1, 0):
        try:
            return start()
        except Exception as error:
            if not tries_left:
                raise
            print(f"trying again: {error}", file=sys.stderr)
            for process in processes.below(os.getpid()):
                if process.pid not in before:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process.pid, signal.SIGKILL)
    return None


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


if __name__ == "__main__":
    main()
