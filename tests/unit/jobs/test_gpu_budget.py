"""GPU accounts: what cannot hold is refused before anything starts, with keys and values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.gpu_budget import check, engine_bundle, shares_a_gpu
from resin_core.config import ResinConfig, load_config
from resin_core.errors import ConfigError

CONFIGS = Path(__file__).parents[3] / "configs"


def config(
    vllm: dict[str, Any] | None = None, encoder: dict[str, Any] | None = None, engine: str = "vllm", actors: int = 1
) -> ResinConfig:
    return ResinConfig.model_validate(
        {
            "llm": {"vllm": vllm or {}},
            "encoder": encoder or {},
            "indexing": {"engine": engine, "encoder_actors": actors},
        }
    )


def shared(**more: Any) -> ResinConfig:
    """One GPU for an engine and embedding actors."""
    given = {"vllm": {"gpu_memory_share": 0.8}, "encoder": {"device": "cuda", "gpus": 0.1, "gpu_memory_gib": 2.0}}
    return config(**given | more)


def refused(settings: ResinConfig, total: float | None, gpus: float | None, *parts: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(settings, total, gpus)
    for part in parts:
        assert part in str(caught.value)


def test_the_defaults_need_no_gpu() -> None:
    check(ResinConfig(), None, 0)
    check(ResinConfig(), 0.5, 0)


@pytest.mark.parametrize("actors", [1, 2])
def test_an_engine_and_embedding_actors_fit_on_one_gpu(actors: int) -> None:
    settings = shared(actors=actors)
    check(settings, 24.0, 1)
    assert engine_bundle(settings) == {"CPU": 1.0, "GPU": 0.8}


def test_one_embedding_actor_too_many() -> None:
    refused(shared(actors=3), 24.0, 1, "indexing.encoder_actors 3", "encoder.gpus 0.1", "room for 2 on 1 GPUs")
    check(shared(actors=3), 24.0, 2)
    check(shared(actors=3), 24.0, None)


def test_shares_of_one_gpu_may_not_be_more_than_it() -> None:
    settings = config({"gpu_memory_share": 0.95}, {"device": "cuda", "gpus": 0.1})
    refused(settings, None, None, "llm.vllm.gpu_memory_share 0.95", "encoder.gpus 0.1", "more than one GPU")


def test_two_engines_never_meet_on_one_gpu() -> None:
    settings = config({"gpu_memory_share": 0.3, "replicas": 2}, {"device": "cuda", "gpus": 0.2})
    assert 2 * engine_bundle(settings)["GPU"] > 1
    refused(settings, None, 1, "replicas 2")
    refused(config({"gpu_memory_share": 0.3}, {"device": "cuda", "gpus": 0.6}), None, None, "0.51")


def test_memory_an_embedding_actor_needs_is_in_its_share() -> None:
    settings = shared(encoder={"device": "cuda", "gpus": 0.1, "gpu_memory_gib": 3.0})
    refused(settings, 16.0, 1, "encoder.gpu_memory_gib 3", "encoder.gpus 0.1", "16 GiB", "0.19")
    check(settings, 40.0, 1)
    check(settings, None, 1)


@pytest.mark.parametrize(("replicas", "parallel", "gpus", "fits"), [(2, 2, 4, True), (2, 2, 3, False), (1, 8, 8, True)])
def test_engines_take_no_more_gpus_than_there_are(replicas: int, parallel: int, gpus: int, fits: bool) -> None:
    settings = config({"replicas": replicas, "tensor_parallel": parallel})
    if fits:
        check(settings, 80.0, gpus)
    else:
        refused(settings, 80.0, gpus, "llm.vllm.replicas 2", "llm.vllm.tensor_parallel 2", "4 GPUs", "has 3")


def test_an_engine_over_several_gpus_shares_none_of_them() -> None:
    settings = config({"tensor_parallel": 2, "gpu_memory_share": 0.8}, {"device": "cuda", "gpus": 0.1})
    assert not shares_a_gpu(settings) and engine_bundle(settings)["GPU"] == 1.0
    refused(settings, 80.0, 2, "room for 0")
    check(settings, 80.0, 3)


def test_an_engine_that_takes_all_memory_leaves_no_room() -> None:
    settings = config({"gpu_memory_share": 1.0}, {"device": "cuda", "gpus": 0.1})
    refused(settings, None, 1, "room for 0", "llm.vllm.gpu_memory_share")
    check(settings, None, 2)


def test_an_embedding_actor_may_have_a_gpu_of_its_own() -> None:
    settings = config({"gpu_memory_share": 0.95}, {"device": "cuda", "gpus": 1.0})
    check(settings, 24.0, 2)
    refused(settings, 24.0, 1, "encoder_actors 1")


def test_an_endpoint_takes_no_gpu_of_the_job() -> None:
    settings = config({"replicas": 8}, {"device": "cuda", "gpus": 0.5}, engine="endpoint", actors=2)
    check(settings, 16.0, 1)
    refused(config(None, {"device": "cuda", "gpus": 0.5}, "endpoint", 3), 16.0, 1, "encoder_actors 3")


def test_an_engine_on_cpus_asks_for_no_gpu() -> None:
    settings = config({"device": "cpu", "replicas": 4})
    assert engine_bundle(settings) == {"CPU": 1.0}
    check(settings, None, 0)


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_an_encoder_on_a_gpu_that_ray_would_hide_is_refused(device: str) -> None:
    refused(config(encoder={"device": device}), None, None, f"encoder.device is {device}", "encoder.gpus is 0")


def test_a_gpu_that_would_lie_idle_is_refused() -> None:
    refused(config(encoder={"gpus": 0.2}), None, None, "encoder.gpus is 0.2", "encoder.device is cpu")


@pytest.mark.parametrize(("name", "total", "gpus"), [("local", None, 0), ("gpu", 24.0, 1), ("cluster", 80.0, 16)])
def test_the_shipped_configurations_fit_the_machines_they_name(name: str, total: float | None, gpus: int) -> None:
    env = {"RESIN_INDEX_URI": "s3://bucket/index"}
    check(load_config(CONFIGS / f"{name}.yaml", env=env), total, gpus)


def test_shares_that_are_sums_of_decimals_are_not_refused() -> None:
    check(config({"gpu_memory_share": 0.7}, {"device": "cuda", "gpus": 0.3}), None, 1)
    check(config({"gpu_memory_share": 0.7}, {"device": "cuda", "gpus": 0.1}, actors=3), None, 1)
