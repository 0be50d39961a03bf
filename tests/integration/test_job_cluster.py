"""The indexing job on a cluster of unlike nodes: each stage where its resources are, and a node lost on the way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.killing import corpus, processes
from tests.benchmarks.killing.calls import Kill, account, ends, read_log
from tests.benchmarks.killing.cluster import RayCluster, stage_of
from tests.benchmarks.killing.compare import counts
from tests.benchmarks.killing.job import IndexJob, verified, write_config
from tests.benchmarks.killing.model import ModelProcess

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

DOCUMENTS = 80
MODEL, ENCODER, LOST = 0, 1, 2
NODES = [
    {"num_cpus": 2, "resources": {"llm": 2}},
    {"num_cpus": 2, "resources": {"encode": 1}},
    {"num_cpus": 2, "resources": {"llm": 1}},
]
INDEXING = {
    "window_sentences": 6,
    "documents_per_task": 8,
    "llm_actors": 2,
    "llm_resources": {"llm": 1.0},
    "encoder_resources": {"encode": 1.0},
}


@pytest.fixture
def model() -> Iterator[ModelProcess]:
    server = ModelProcess(slots=4)
    yield server
    server.stop()


def test_stages_run_where_their_resources_are_and_outlive_a_node(model: ModelProcess, tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    sources = corpus.write(tmp_path / "sources", DOCUMENTS, seed=3)
    config = write_config(tmp_path / "config.yaml", model.base_url, 4, INDEXING)
    seen: set[tuple[int, str]] = set()
    lost: Kill | None = None
    with RayCluster(NODES, tmp_path / "cluster.log") as cluster:
        model.start(log, 0.5)
        job = IndexJob(sources, tmp_path / "index", config, cluster.environment(), tmp_path)
        job.start()
        try:
            end = time.monotonic() + 400
            while (status := job.wait(0.1)) is None and time.monotonic() < end:
                for node in (MODEL, ENCODER, LOST):
                    seen |= {(node, stage_of(worker)) for worker in cluster.stage_workers(node)}
                if lost is None and ends(read_log(log)[0]) >= DOCUMENTS // 4:
                    dependents = [process.pid for process in processes.below(cluster.raylets[LOST])]
                    at_s = time.monotonic()
                    cluster.remove(LOST)
                    lost = Kill("raylet", "the third node", at_s, processes.until_gone(dependents, 15))
        finally:
            job.end()
    assert status == 0, job.last_words()
    assert lost is not None

    def nodes_of(stage: str) -> set[int]:
        return {node for node, name in seen if stage in name}

    assert nodes_of("Embed") == {ENCODER}, seen
    assert nodes_of("Extract") - {LOST} == {MODEL}, seen

    calls, _ = read_log(log)
    assert any(call.started_s > lost.settled_s for call in calls), "the node was lost before the work was done"
    assert account(calls, [lost]).problems() == []
    assert job.report()["documents"] == DOCUMENTS == counts(tmp_path / "index")["documents"]
    assert verified(tmp_path / "index") == ""
