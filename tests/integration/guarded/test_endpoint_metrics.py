"""The metrics of the endpoint, read where Prometheus reads them, after a question and a refusal."""

from __future__ import annotations

import time

from tests.integration.guarded.application import KEYS, Guarded, bearer
from tests.integration.ray_metrics import samples

WITHIN_S = 40.0
QUESTION = "What does Mill 0-1 weigh?"


def measured() -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Values of the project's own metrics by name and by those tags that Ray does not add."""
    own = ("route", "outcome", "index", "strategy", "stage", "prompt_id", "model", "generation")
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for sample in samples():
        if sample.name.startswith("ray_resin_"):
            tags = tuple((name, sample.labels[name]) for name in own if name in sample.labels)
            found.setdefault(sample.name, {})[tags] = sample.value
    return found


def test_what_was_asked_is_measured(guarded: Guarded) -> None:
    asked = guarded.endpoint.post("/v1/answer", {"question": QUESTION}, headers=bearer("ask"))
    assert asked.status_code == 200, asked.text
    assert guarded.endpoint.post("/v1/answer", {"question": QUESTION}).status_code == 401
    answers = (("outcome", "ok"), ("index", "default"), ("strategy", "resin"))
    end = time.monotonic() + WITHIN_S
    # Ray hands metrics on every few seconds.
    while not (
        (found := measured()).get("ray_resin_answers_total", {}).get(answers) and "unauthorised" in outcomes(found)
    ):
        assert time.monotonic() < end, (outcomes(found), found.get("ray_resin_answers_total"))
        time.sleep(1)
    stages = {dict(tags)["stage"] for tags in found["ray_resin_stage_seconds_count"]}
    assert {"plan", "retrieve", "select", "compose", "total"} <= stages
    assert sum(found["ray_resin_llm_calls_total"].values()) >= 2
    assert sum(found["ray_resin_llm_prompt_tokens_total"].values()) > 0
    generation = asked.json()["generation"]
    assert any(dict(tags).get("generation") == generation for tags in found["ray_resin_generation"])


def outcomes(found: dict[str, dict[tuple[tuple[str, str], ...], float]]) -> set[str]:
    """Of all requests."""
    return {dict(tags)["outcome"] for tags in found.get("ray_resin_requests_total", {})}


def test_no_metric_names_a_key_or_a_question(guarded: Guarded) -> None:
    texts = [QUESTION, *KEYS.values()]
    for sample in samples():
        assert not any(text in value for value in sample.labels.values() for text in texts)
