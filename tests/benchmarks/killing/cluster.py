"""A local Ray cluster in a process of its own, seen from the harness."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.killing import processes
from tests.benchmarks.killing.processes import Process

# Ray's own actors and agents, beside the stages of a job.
_OWN = (
    "ray::IDLE",
    "ray::DashboardAgent",
    "ray::RuntimeEnvAgent",
    "ray::_StatsActor",
    "ray::_StatsSummaryActor",
    "ray::AutoscalingRequester",
    "ray::_AutoscalingCoordinatorActor",
    "ray::ActorLocationTracker",
)


def stage_of(worker: Process) -> str:
    """What a worker runs, without the method it is in just now: MapWorker(MapBatches(Extract))."""
    name = worker.title.removeprefix("ray::")
    return name.rpartition(").")[0] + ")" if ")." in name else name.partition(".")[0]


class RayCluster:
    """Start with `with`; nodes are numbered in the order of their starts, 0 is the head.

    `nodes` holds the arguments of ray.cluster_utils.Cluster.add_node for each. Its temporary files lie in a folder of
    their own, so that a ray.init() of somebody else's does not find it.
    """

    def __init__(self, nodes: Sequence[Mapping[str, Any]], log: Path) -> None:
        self._nodes, self._log = nodes, log
        self.address = ""
        self.raylets: list[int] = []

    def __enter__(self) -> RayCluster:
        self._folder = tempfile.mkdtemp(prefix="rk-", dir="/tmp")  # short: Ray makes socket paths below it
        command = [sys.executable, "-m", "tests.benchmarks.killing.cluster_host", json.dumps(list(self._nodes))]
        with self._log.open("ab") as log:
            self._host = subprocess.Popen(
                command,
                cwd=Path(__file__).parents[3],
                env=self._host_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            started = self._answer()
        except BaseException:
            self.__exit__()
            raise
        self.address, self.raylets = started["address"], started["raylets"]
        return self

    def __exit__(self, *error: object) -> None:
        assert self._host.stdin is not None
        self._host.stdin.close()
        try:
            self._host.wait(60)
        except subprocess.TimeoutExpired:
            self._host.kill()
            self._host.wait()
        # Those whose parents died before them are below nobody of ours; the folder's name is ours alone.
        processes.until_gone(processes.holding(self._folder), 5)
        for pid in processes.holding(self._folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """What a driver needs in its environment to work on this cluster."""
        return {"RAY_ADDRESS": self.address, **self._settings()}

    def add(self, node: Mapping[str, Any]) -> int:
        """Starts one more node and waits until the cluster knows it; its number."""
        self.raylets.append(self._order({"do": "add", "args": dict(node)})["raylet"])
        return len(self.raylets) - 1

    def remove(self, node: int) -> None:
        """Kills what is left of a node: all of it, or the rest after its raylet was killed."""
        self._order({"do": "remove", "node": node})

    def stage_workers(self, node: int | None = None) -> list[Process]:
        """Worker processes that hold a stage of a job just now, of one node or of all."""
        found = processes.below(self._host.pid if node is None else self.raylets[node])
        return [
            process for process in found if process.title.startswith("ray::") and not process.title.startswith(_OWN)
        ]

    def _settings(self) -> dict[str, str]:
        return {"RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": self._folder, "RAY_USAGE_STATS_ENABLED": "0"}

    def _host_environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RESIN_", "RAY_"))}
        return {**kept, **self._settings()}

    def _order(self, order: dict[str, Any]) -> Any:
        assert self._host.stdin is not None
        self._host.stdin.write(json.dumps(order) + "\n")
        self._host.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._host.stdout is not None
        line = self._host.stdout.readline()
        if not line:
            raise RuntimeError(f"the Ray cluster's process ended; see {self._log}")
        return json.loads(line)
