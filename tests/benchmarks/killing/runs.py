"""The whole experiment: one undisturbed run, then runs under fire until every kill was dealt, each compared with it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.benchmarks.killing import corpus
from tests.benchmarks.killing.calls import STORED_WITHIN_S, Account, Call, Kill, account, read_log
from tests.benchmarks.killing.cluster import RayCluster
from tests.benchmarks.killing.compare import counts, differences
from tests.benchmarks.killing.job import IndexJob, verified, write_config
from tests.benchmarks.killing.killer import Killer, deal, until
from tests.benchmarks.killing.model import ModelProcess

Tell = Callable[[str], None]
_MAX_FALLS = 5
_WORK_S = 30.0


@dataclass(frozen=True)
class Plan:
    """What to do. A kill comes `gap_s` (least, most) after the one before.

    Of the kills a share `at_work` counts its gap from when the model was called again, so that they do not all fall on
    a job that is only starting; one that calls no more (all replies are kept, it embeds) is waited for 30 s.
    `calm_latency_s` is the model's latency in the undisturbed run; unset: as under fire.
    """

    documents: int = 1000
    kills: int = 50
    seed: int = 7
    gap_s: tuple[float, float] = (1.0, 7.0)
    at_work: float = 0.75
    latency_s: float = 0.5
    calm_latency_s: float | None = None
    slots: int = 12
    node_cpus: int = 4
    patience_s: float = 900.0
    stored_within_s: float = STORED_WITHIN_S
    indexing: Mapping[str, Any] = field(default_factory=lambda: {"window_sentences": 6})


@dataclass
class JobRun:
    """One job from its first start to its end. `fell`: last words of drivers that ended by themselves and badly."""

    index: Path
    kills: list[Kill] = field(default_factory=list)
    starts: int = 0
    fell: list[str] = field(default_factory=list)
    finished: bool = False
    seconds: float = 0.0
    account: Account = field(default_factory=Account)
    unequal: list[str] = field(default_factory=list)
    unsound: str = ""
    strange_calls: int = 0
    unasked_calls: int = 0

    def problems(self) -> list[str]:
        """All that is off, one line each."""
        found = [f"the job fell by itself: {words}" for words in self.fell]
        if not self.finished:
            return [*found, "the job did not finish", *self.account.problems()]
        found += self.account.problems() + self.unequal
        if self.unsound:
            found.append(f"resin verify: {self.unsound}")
        if self.strange_calls:
            found.append(f"{self.strange_calls} calls that the undisturbed run did not make")
        if self.unasked_calls:
            found.append(f"{self.unasked_calls} calls of the undisturbed run were never made")
        return found


@dataclass
class Outcome:
    """The reference first, then every job under fire."""

    plan: Plan
    reference: JobRun
    counts: dict[str, int]
    jobs: list[JobRun] = field(default_factory=list)

    def problems(self) -> list[str]:
        """All that is off, with the job's number."""
        found = [f"undisturbed: {problem}" for problem in self.reference.problems()]
        for at, job in enumerate(self.jobs, start=1):
            found += [f"job {at}: {problem}" for problem in job.problems()]
        dealt = sum(len(job.kills) for job in self.jobs)
        if self.reference.finished and dealt < self.plan.kills:
            found.append(f"only {dealt} of {self.plan.kills} kills were dealt")
        return found


def experiment(plan: Plan, out: Path, tell: Tell) -> Outcome:
    """Runs all of the plan in a new or empty folder `out`; what the processes wrote stays there."""
    out.mkdir(parents=True, exist_ok=True)
    sources = corpus.write(out / "sources", plan.documents, plan.seed)
    model = ModelProcess(plan.slots)
    config = write_config(out / "config.yaml", model.base_url, plan.slots, plan.indexing)
    node = {"num_cpus": plan.node_cpus}
    kinds = deal(plan.kills, plan.seed)
    rng = random.Random(plan.seed)
    with RayCluster([node, node], out / "cluster.log") as cluster:
        killer = Killer(cluster, model, node, victim=1, rng=rng)

        def job_at(name: str, latency_s: float = plan.latency_s) -> _Fire:
            folder = out / name
            folder.mkdir()
            job = IndexJob(sources, folder / "index", config, cluster.environment(), folder)
            settings = replace(plan, latency_s=latency_s)
            return _Fire(settings, job, model, killer, folder / "calls.jsonl", rng, tell)

        tell("the undisturbed run")
        calm_s = plan.latency_s if plan.calm_latency_s is None else plan.calm_latency_s
        reference = job_at("undisturbed", calm_s).run([])
        outcome = Outcome(plan, reference, counts(reference.index) if reference.finished else {})
        asked = _digests(out / "undisturbed" / "calls.jsonl")
        while reference.finished and kinds:
            number = len(outcome.jobs) + 1
            tell(f"job {number}, {len(kinds)} kills to deal")
            run = job_at(f"job-{number}").run(kinds)
            outcome.jobs.append(run)
            if not run.finished:
                break
            again = _digests(out / f"job-{number}" / "calls.jsonl")
            run.strange_calls, run.unasked_calls = len(again - asked), len(asked - again)
            run.unequal = differences(reference.index, run.index)
    return outcome


class _Fire:
    """One job, and the kills that come down on it."""

    def __init__(
        self,
        plan: Plan,
        job: IndexJob,
        model: ModelProcess,
        killer: Killer,
        log: Path,
        rng: random.Random,
        tell: Tell,
    ) -> None:
        self._plan, self._job, self._model = plan, job, model
        self._killer, self._log, self._rng, self._tell = killer, log, rng, tell
        self._run = JobRun(job.index)

    def run(self, kinds: list[str]) -> JobRun:
        """Until the job ends well, or falls too often, or is not heard of any more. Takes dealt kills off `kinds`."""
        began = time.monotonic()
        self._model.start(self._log, self._plan.latency_s)
        try:
            self._job.start()
            while (ended := self._one(kinds)) is None:
                pass
            self._run.finished = ended
        finally:
            self._job.end()
            self._model.stop()
        self._run.seconds = time.monotonic() - began
        self._run.starts = self._job.starts
        calls, torn = read_log(self._log)
        self._run.account = account(calls, self._run.kills, self._plan.stored_within_s, torn)
        if self._run.finished:
            self._run.unsound = verified(self._job.index)
        return self._run

    def _one(self, kinds: list[str]) -> bool | None:
        """The next kill, or the end of the driver: True when the job is done, False when it is given up."""
        status = self._job.wait(self._plan.patience_s) if not kinds else self._pause()
        if status == 0:
            return True
        if status is not None:
            self._run.fell.append(self._job.last_words())
            self._tell(f"the driver fell by itself: {self._run.fell[-1]}")
            if len(self._run.fell) >= _MAX_FALLS:
                return False
            self._job.start()
            return None
        if not kinds:
            self._tell(f"the job was not done after {self._plan.patience_s:g} s without a kill")
            return False
        kill = self._killer.strike(kinds[0], self._job, self._log, self._plan.latency_s)
        if kill is not None:
            kinds.pop(0)
            self._run.kills.append(kill)
            self._tell(f"killed {kill.kind}: {kill.victim} ({kill.settled_s - kill.at_s:.2f} s to settle)")
            if kill.kind == "driver":
                time.sleep(self._rng.uniform(0.0, 1.0))
                self._job.start()
        return None

    def _pause(self) -> int | None:
        """A random while, mostly counted from when the model is called; the driver's status if it ends meanwhile."""
        if self._rng.random() < self._plan.at_work:
            size = self._log.stat().st_size
            until(lambda: self._log.stat().st_size > size, _WORK_S, unless=lambda: self._job.status() is not None)
        return self._job.wait(self._rng.uniform(*self._plan.gap_s))


def _digests(log: Path) -> set[str]:
    calls: list[Call] = read_log(log)[0]
    return {call.digest for call in calls}
