"""The four kinds of kill, and how they are dealt."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.killing import processes
from tests.benchmarks.killing.calls import Kill
from tests.benchmarks.killing.cluster import RayCluster, stage_of
from tests.benchmarks.killing.job import IndexJob
from tests.benchmarks.killing.model import ModelProcess

KINDS = ("driver", "worker", "raylet", "model")
_SETTLE_S = 15.0


def deal(count: int, seed: int) -> list[str]:
    """`count` kinds, each as often as the others (but for the last few), in a random order."""
    kinds = [KINDS[at % len(KINDS)] for at in range(count)]
    random.Random(seed).shuffle(kinds)
    return kinds


class Killer:
    """Kills one process of a running job at a time, and brings back what must come back from outside.

    `node` holds the arguments of the node that is killed and replaced, `victim` its number. Only processes that
    descend from the cluster's own process, the driver and the model are ever killed.
    """

    def __init__(
        self, cluster: RayCluster, model: ModelProcess, node: Mapping[str, Any], victim: int, rng: random.Random
    ) -> None:
        self._cluster, self._model, self._node, self._victim, self._rng = cluster, model, node, victim, rng

    def strike(self, kind: str, job: IndexJob, log: Path, latency_s: float) -> Kill | None:
        """Kills, and mends what is to be mended; None when there was nothing to kill, or the job had ended by itself.

        A killed driver is not started again here: that is left to the caller, after a look at what ended.
        """
        if kind == "driver":
            return self._driver(job)
        if kind == "worker":
            return self._worker(job)
        if kind == "raylet":
            return self._raylet()
        return self._server(log, latency_s)

    def _driver(self, job: IndexJob) -> Kill | None:
        working = [process.pid for process in self._cluster.stage_workers()]
        at_s = time.monotonic()
        if job.kill() != -signal.SIGKILL:
            return None
        settled_s = processes.until_gone(working, _SETTLE_S, over=_idle)
        return Kill("driver", "resin index", at_s, settled_s)

    def _worker(self, job: IndexJob) -> Kill | None:
        workers = until(self._cluster.stage_workers, 30, unless=lambda: job.status() is not None)
        if not workers:
            return None
        # First the stage, then the process, so that a stage with many workers is not the only one that is hit.
        stage = self._rng.choice(sorted({stage_of(process) for process in workers}))
        victim = self._rng.choice([process for process in workers if stage_of(process) == stage])
        at_s = time.monotonic()
        if not _killed(victim.pid):
            return None
        return Kill("worker", stage, at_s, processes.until_gone([victim.pid], _SETTLE_S))

    def _raylet(self) -> Kill | None:
        raylet = self._cluster.raylets[self._victim]
        dependents = [process.pid for process in processes.below(raylet)]
        stages = sorted({stage_of(process) for process in self._cluster.stage_workers(self._victim)})
        at_s = time.monotonic()
        if not _killed(raylet):
            return None
        settled_s = processes.until_gone([raylet, *dependents], _SETTLE_S)
        self._cluster.remove(self._victim)
        time.sleep(self._rng.uniform(0.0, 2.0))
        self._victim = self._cluster.add(self._node)
        return Kill("raylet", f"a node with {', '.join(stages) or 'no stage'}", at_s, settled_s)

    def _server(self, log: Path, latency_s: float) -> Kill:
        at_s = time.monotonic()
        self._model.kill()
        settled_s = time.monotonic()
        time.sleep(self._rng.uniform(0.5, 3.0))
        self._model.start(log, latency_s)
        return Kill("model", "scripted model", at_s, settled_s)


def until(look: Callable[[], Any], timeout_s: float, unless: Callable[[], bool]) -> Any:
    """What `look` sees as soon as it sees something; its last view after that time, or when `unless` holds."""
    end = time.monotonic() + timeout_s
    while not (seen := look()) and time.monotonic() < end and not unless():
        time.sleep(0.05)
    return seen


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _idle(pid: int) -> bool:
    return processes.title_of(pid).startswith("ray::IDLE")
