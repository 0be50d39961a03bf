"""The indexing job under fire: driver, worker, node and model server die while it runs, and nothing of it shows.

A small case of `python -m tests.benchmarks.bench_kills`, which kills fifty times.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.benchmarks.killing.killer import KINDS
from tests.benchmarks.killing.report import as_text
from tests.benchmarks.killing.runs import Plan, experiment

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

PLAN = Plan(
    documents=60,
    kills=len(KINDS),
    seed=11,
    gap_s=(0.5, 2.5),
    at_work=1.0,
    latency_s=0.6,
    calm_latency_s=0.02,
    slots=4,
    node_cpus=4,
    patience_s=240.0,
    indexing={"window_sentences": 6, "documents_per_task": 8},
)


def test_one_kill_of_each_kind_changes_nothing_and_repeats_only_calls_in_flight(tmp_path: Path) -> None:
    said: list[str] = []
    outcome = experiment(PLAN, tmp_path / "fire", said.append)
    assert outcome.problems() == [], "\n".join([as_text(outcome), *said])
    assert Counter(kill.kind for job in outcome.jobs for kill in job.kills) == Counter(KINDS)
    assert outcome.counts["documents"] == PLAN.documents
    assert outcome.counts["passages"] >= 2 * PLAN.documents
    assert outcome.counts["rejects"] >= 6
    assert any(most for job in outcome.jobs for most in job.account.in_flight), "no kill came while the model was asked"
    calm = outcome.reference.account
    assert calm.calls == calm.distinct > PLAN.documents, "long documents take several calls"
