"""The harness of kills where it handles processes: the model's server, the choice of victims, the order of a run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.killing import processes
from tests.benchmarks.killing.calls import Kill, read_log
from tests.benchmarks.killing.cluster import RayCluster, stage_of
from tests.benchmarks.killing.job import IndexJob
from tests.benchmarks.killing.killer import Killer
from tests.benchmarks.killing.model import ModelProcess
from tests.benchmarks.killing.processes import Process
from tests.benchmarks.killing.runs import Plan, _Fire


@pytest.fixture
def model() -> Iterator[ModelProcess]:
    server = ModelProcess(slots=4)
    yield server
    server.stop()


def ask(model: ModelProcess, content: str) -> str:
    body = {"model": "scripted", "messages": [{"role": "user", "content": content}]}
    request = urllib.request.Request(
        f"{model.base_url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "connection": "close"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        return str(json.loads(reply.read())["choices"][0]["message"]["content"])


def until(condition: Callable[[], Any], timeout_s: float = 20.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "not so in time"
        time.sleep(0.01)


# The model's server


def test_a_call_leaves_its_start_and_its_end(model: ModelProcess, tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    before = time.monotonic()
    model.start(log, 0.0)
    assert ask(model, "title: One\n[1] x") == "The shown sentence says it [1]."
    ask(model, "title: Two\n[1] x")
    until(lambda: log.read_text().count("\n") == 4)
    (one, two), torn = read_log(log)
    assert (one.title, two.title, one.outcome, torn) == ("One", "Two", "done", 0)
    assert one.digest != two.digest and one.call != two.call
    assert before < one.started_s < one.ended_s < two.started_s < time.monotonic()


def test_a_killed_server_leaves_starts_and_the_next_goes_on_in_the_same_log(
    model: ModelProcess, tmp_path: Path
) -> None:
    log = tmp_path / "calls.jsonl"
    model.start(log, 30.0)
    failed: list[Exception] = []

    def hopeless() -> None:
        try:
            ask(model, "title: Lost\n[1] x")
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=hopeless)
    thread.start()
    until(lambda: log.stat().st_size)
    first = model.pid
    model.kill()
    thread.join(10)
    assert len(failed) == 1
    model.start(log, 0.0)
    assert model.pid != first
    ask(model, "title: Lost\n[1] x")
    until(lambda: log.read_text().count("\n") == 3)
    lost, again = read_log(log)[0]
    assert (lost.outcome, again.outcome) == ("lost", "done")
    assert lost.digest == again.digest and lost.call != again.call


def test_a_client_that_leaves_is_in_the_log(model: ModelProcess, tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    model.start(log, 30.0)
    asking = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import urllib.request as u; u.urlopen('{model.base_url}/chat/completions', b'{BODY}')",
        ],
        stderr=subprocess.DEVNULL,
    )
    until(lambda: log.stat().st_size)
    asking.kill()
    asking.wait()
    until(lambda: log.read_text().count("\n") == 2)
    assert [call.outcome for call in read_log(log)[0]] == ["cancelled"]


BODY = '{"messages": [{"role": "user", "content": "x"}]}'


def test_a_server_that_cannot_start_says_so(model: ModelProcess, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=f"did not start on port {model.port}"):
        model.start(tmp_path / "no such folder" / "calls.jsonl", 0.0)


# Processes


TREE = "bash -c 'exec -a \"ray::IDLE\" sleep 60' & bash -c 'exec -a \"{title}\" sleep 60' & echo $$; wait"


class Host:
    """A process with two children, one of which looks like a worker of Ray that holds a stage."""

    def __init__(self, title: str = "ray::MapWorker(MapBatches(Extract)).submit") -> None:
        self.process = subprocess.Popen(["bash", "-c", TREE.format(title=title)], stdout=subprocess.PIPE)
        until(lambda: sum(one.title.startswith("ray::") for one in processes.below(self.process.pid)) == 2)

    def stop(self) -> None:
        for process in processes.below(self.process.pid):
            subprocess.run(["kill", "-9", str(process.pid)], check=False)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def host() -> Iterator[Host]:
    started = Host()
    yield started
    started.stop()


@pytest.fixture
def cluster(host: Host, tmp_path: Path) -> RayCluster:
    """A cluster as the killer sees it: its host is the process above."""
    made = RayCluster([{}], tmp_path / "cluster.log")
    made._host = host.process  # type: ignore[assignment]
    return made


def test_descendants_are_found_and_others_are_not(host: Host) -> None:
    stranger = Host()
    try:
        mine = {process.pid for process in processes.below(host.process.pid)}
        theirs = {process.pid for process in processes.below(stranger.process.pid)}
        assert len(mine) >= 2 and not mine & theirs
        assert host.process.pid not in mine
    finally:
        stranger.stop()


def test_the_dead_are_not_alive_even_before_they_are_buried() -> None:
    child = subprocess.Popen(["sleep", "60"])
    until(lambda: processes.title_of(child.pid) == "sleep 60")
    assert processes.alive(child.pid)
    child.kill()
    processes.until_gone([child.pid], 10)
    assert not processes.alive(child.pid), "a zombie"
    child.wait()
    assert processes.title_of(child.pid) == ""


def test_an_orphan_is_known_by_the_files_it_holds(tmp_path: Path) -> None:
    # The parent ends at once; its child stands below nobody of ours.
    script = f"sleep 60 > '{tmp_path}/orphan.log' 2>&1 & echo $!"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    orphan = int(done.stdout)
    until(lambda: processes.holding(str(tmp_path)) == [orphan])
    assert processes.holding(f"{tmp_path}-other") == []
    os.kill(orphan, signal.SIGKILL)
    processes.until_gone([orphan], 10)
    assert processes.holding(str(tmp_path)) == []


def test_waiting_for_the_end_ends() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        began = time.monotonic()
        assert processes.until_gone([child.pid], 0.2) - began >= 0.2
        assert processes.until_gone([child.pid], 20, over=lambda pid: True) - began < 10
    finally:
        child.kill()
        child.wait()


def test_only_stages_are_victims(cluster: RayCluster) -> None:
    (worker,) = cluster.stage_workers()
    assert worker.title.startswith("ray::MapWorker(MapBatches(Extract)).submit")


@pytest.mark.parametrize(
    ("title", "stage"),
    [
        ("ray::MapWorker(MapBatches(Extract)).submit", "MapWorker(MapBatches(Extract))"),
        ("ray::MapWorker(MapBatches(Extract))", "MapWorker(MapBatches(Extract))"),
        ("ray::Tally.read", "Tally"),
        ("ray::to_do", "to_do"),
    ],
)
def test_a_stage_has_one_name_whatever_it_does_just_now(title: str, stage: str) -> None:
    assert stage_of(Process(1, 1, title)) == stage


SLEEP = "import time; time.sleep(60)"


class Command(IndexJob):
    """Programs in the place of `resin index`, one for each start; the last again and again."""

    def __init__(self, folder: Path, *codes: str) -> None:
        super().__init__(folder, folder, folder, {}, folder)
        self._codes = codes

    def start(self) -> None:
        self._command = [sys.executable, "-c", self._codes[min(self.starts, len(self._codes) - 1)]]
        super().start()


def killer(cluster: RayCluster, model: ModelProcess) -> Killer:
    return Killer(cluster, model, {}, 0, random.Random(1))


def test_a_worker_is_killed(cluster: RayCluster, model: ModelProcess, tmp_path: Path) -> None:
    job = Command(tmp_path, SLEEP)
    job.start()
    try:
        done = killer(cluster, model).strike("worker", job, tmp_path, 0.0)
        assert done is not None and "Extract" in done.victim and done.settled_s >= done.at_s
        assert cluster.stage_workers() == []
        assert job.status() is None
    finally:
        job.end()


def test_where_there_is_no_worker_none_is_killed(model: ModelProcess, tmp_path: Path) -> None:
    host = Host("ray::ActorLocationTracker")
    cluster = RayCluster([{}], tmp_path / "cluster.log")
    cluster._host = host.process  # type: ignore[assignment]
    job = Command(tmp_path, "")
    try:
        job.start()
        assert job.wait(30) == 0
        assert killer(cluster, model).strike("worker", job, tmp_path, 0.0) is None
        assert len(processes.below(host.process.pid)) >= 2
    finally:
        host.stop()


def test_a_killed_driver_settles_when_its_workers_are_gone(
    cluster: RayCluster, model: ModelProcess, tmp_path: Path
) -> None:
    (worker,) = cluster.stage_workers()
    job = Command(tmp_path, SLEEP)
    job.start()
    later = threading.Timer(0.5, lambda: subprocess.run(["kill", "-9", str(worker.pid)], check=False))
    later.start()
    done = killer(cluster, model).strike("driver", job, tmp_path, 0.0)
    later.join()
    assert done is not None and done.settled_s - done.at_s > 0.3
    assert job.status() == -signal.SIGKILL


def test_a_driver_that_ended_by_itself_was_not_killed(cluster: RayCluster, model: ModelProcess, tmp_path: Path) -> None:
    job = Command(tmp_path, "print('{\"documents\": 3}')")
    job.start()
    until(lambda: not processes.alive(job.pid))
    assert killer(cluster, model).strike("driver", job, tmp_path, 0.0) is None
    assert job.report() == {"documents": 3}


@pytest.mark.parametrize("said", ["", "(raylet) a word of Ray's"])
def test_a_report_stands_alone_on_standard_output(tmp_path: Path, said: str) -> None:
    job = Command(tmp_path, f"print({said!r}); import sys; print('last', file=sys.stderr)")
    job.start()
    assert job.wait(60) == 0
    with pytest.raises(ValueError, match=r"holds no report but .*; last"):
        job.report()


def test_a_killed_model_comes_back(cluster: RayCluster, model: ModelProcess, tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    model.start(log, 0.0)
    before = model.pid
    done = killer(cluster, model).strike("model", Command(tmp_path, ""), log, 0.0)
    assert done is not None and done.kind == "model"
    assert model.pid != before
    assert ask(model, "x")


# The order of a run


class Striker:
    """Kills as a test says, and writes down what it was asked for."""

    def __init__(self, *results: bool) -> None:
        self.asked: list[str] = []
        self._results = list(results)

    def strike(self, kind: str, job: IndexJob, log: Path, latency_s: float) -> Kill | None:
        self.asked.append(kind)
        if kind == "driver":
            job.kill()
        now = time.monotonic()
        return Kill(kind, "x", now, now) if not self._results or self._results.pop(0) else None


def fire(tmp_path: Path, model: ModelProcess, striker: Any, job: IndexJob, **plan: Any) -> Any:
    settings = Plan(**{"gap_s": (0.0, 0.05), "at_work": 0.0, "latency_s": 0.0, "patience_s": 30.0} | plan)
    log = tmp_path / "calls.jsonl"
    return _Fire(settings, job, model, striker, log, random.Random(1), lambda said: None)


def test_a_killed_driver_is_started_again_until_the_job_is_done(
    model: ModelProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.benchmarks.killing.runs.verified", lambda index: "")
    job, striker = Command(tmp_path, SLEEP, SLEEP, ""), Striker()
    kinds = ["driver", "worker", "driver"]
    run = fire(tmp_path, model, striker, job).run(kinds)
    assert run.finished and run.starts == 3 and run.fell == []
    assert [one.kind for one in run.kills] == ["driver", "worker", "driver"] == striker.asked
    assert kinds == []
    assert run.problems() == []


def test_kills_left_over_are_for_the_next_job(
    model: ModelProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.benchmarks.killing.runs.verified", lambda index: "")
    kinds = ["worker", "raylet"]
    run = fire(tmp_path, model, Striker(), Command(tmp_path, ""), gap_s=(20.0, 20.0)).run(kinds)
    assert run.finished and run.kills == []
    assert kinds == ["worker", "raylet"]


def test_a_strike_that_hit_nothing_is_tried_again(
    model: ModelProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.benchmarks.killing.runs.verified", lambda index: "")
    striker = Striker(False, True)
    job = Command(tmp_path, "import time; time.sleep(3)")
    run = fire(tmp_path, model, striker, job).run(["raylet"])
    assert striker.asked == ["raylet", "raylet"]
    assert len(run.kills) == 1


def test_a_job_that_falls_by_itself_is_given_up_after_five_starts(model: ModelProcess, tmp_path: Path) -> None:
    job = Command(tmp_path, "import sys; sys.exit('resin: no')")
    run = fire(tmp_path, model, Striker(), job).run([])
    assert not run.finished and run.starts == 5
    assert run.problems() == ["the job fell by itself: resin: no"] * 5 + ["the job did not finish"]


def test_a_job_that_hangs_is_ended(model: ModelProcess, tmp_path: Path) -> None:
    job = Command(tmp_path, SLEEP)
    run = fire(tmp_path, model, Striker(), job, patience_s=0.3).run([])
    assert run.problems() == ["the job did not finish"]
    assert job.status() == -signal.SIGKILL


def test_a_kill_at_work_waits_for_a_call(model: ModelProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.benchmarks.killing.runs.verified", lambda index: "")
    calling = f"""
import time, urllib.request as u
time.sleep(1.5)
u.urlopen('{model.base_url}/chat/completions', b'{BODY}')
time.sleep(4)
"""
    striker = Striker()
    run = fire(tmp_path, model, striker, Command(tmp_path, calling), at_work=1.0).run(["raylet"])
    (done,), ((asked,), _) = run.kills, read_log(tmp_path / "calls.jsonl")
    assert done.at_s > asked.started_s
