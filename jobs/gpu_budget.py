"""GPUs and their memory, counted before anything is started. Pure.

A GPU too full shows itself late and obscurely: an engine that never starts, or an embedding actor that dies in the
middle of a run. What is asked of Ray (shares of a GPU) and what is taken of its memory are two accounts; both must fit.
"""

from __future__ import annotations

import math

from resin_core.config import ResinConfig
from resin_core.errors import ConfigError

_ENGINE_CPUS = 1.0
# More than half: two engines never meet on one GPU.
_LEAST_SHARE = 0.51
# Sums of shares written as decimals, such as 0.7 + 0.2 + 0.1.
_SLACK = 1e-6


def engine_bundle(config: ResinConfig) -> dict[str, float]:
    """What one engine worker asks Ray for. It leaves room on its GPU for embedding actors only where they ask for a
    share of one; an engine over several GPUs takes all of each."""
    if config.llm.vllm.device == "cpu":
        return {"CPU": _ENGINE_CPUS}
    return {"CPU": _ENGINE_CPUS, "GPU": _engine_share(config)}


def shares_a_gpu(config: ResinConfig) -> bool:
    """Whether engines and embedding actors may meet on one GPU."""
    engine = config.llm.vllm
    return (
        config.indexing.engine == "vllm"
        and engine.device == "cuda"
        and engine.tensor_parallel == 1
        and engine.gpu_memory_share < 1
        and _encodes_on_gpu(config)
        and config.encoder.gpus < 1
    )


def check(config: ResinConfig, gpu_total_gib: float | None, gpus: float | None = None) -> None:
    """Raises ConfigError, naming keys and values, when the indexing job's GPU settings cannot hold.

    `gpu_total_gib` is the memory of the smallest GPU, `gpus` how many there are (for a cluster that grows: at most);
    what is None is not checked.
    """
    encoder = config.encoder
    if _encodes_on_gpu(config) and encoder.gpus == 0:
        raise ConfigError(
            f"encoder.device is {encoder.device} but encoder.gpus is 0, so that Ray shows an embedding actor no GPU; "
            "set encoder.gpus, for example to 0.1, or encoder.device to cpu"
        )
    if encoder.device == "cpu" and encoder.gpus > 0:
        raise ConfigError(
            f"encoder.gpus is {encoder.gpus:g} but encoder.device is cpu, so that a GPU would lie idle; "
            "set encoder.gpus to 0 or encoder.device to cuda"
        )
    if _encodes_on_gpu(config):
        _check_memory(config, gpu_total_gib)
    if gpus is not None:
        _check_count(config, gpus)


def _encodes_on_gpu(config: ResinConfig) -> bool:
    return config.encoder.device != "cpu"


def _check_memory(config: ResinConfig, total_gib: float | None) -> None:
    encoder, engine = config.encoder, config.llm.vllm
    if shares_a_gpu(config) and _engine_share(config) + encoder.gpus > 1 + _SLACK:
        raise ConfigError(
            f"llm.vllm.gpu_memory_share {engine.gpu_memory_share:g} (counted as {_LEAST_SHARE:g} at least) and "
            f"encoder.gpus {encoder.gpus:g} are more than one GPU together; lower one of them, or set encoder.gpus to "
            "1 for a GPU of its own"
        )
    if total_gib is None:
        return
    if encoder.gpu_memory_gib > encoder.gpus * total_gib + _SLACK:
        raise ConfigError(
            f"encoder.gpu_memory_gib {encoder.gpu_memory_gib:g} is more than encoder.gpus {encoder.gpus:g} of a GPU of "
            f"{total_gib:g} GiB; raise encoder.gpus to {_up(encoder.gpu_memory_gib / total_gib)} or more"
        )


def _check_count(config: ResinConfig, gpus: float) -> None:
    engine, encoder, actors = config.llm.vllm, config.encoder, config.indexing.encoder_actors
    engines = engine.replicas * engine.tensor_parallel if _runs_on_gpu(config) else 0
    if engines > gpus + _SLACK:
        raise ConfigError(
            f"llm.vllm.replicas {engine.replicas} times llm.vllm.tensor_parallel {engine.tensor_parallel} is {engines} "
            f"GPUs, and the cluster has {gpus:g}; lower one of them"
        )
    if not _encodes_on_gpu(config):
        return
    each = math.floor(1 / encoder.gpus + _SLACK)
    beside = 0
    if shares_a_gpu(config):
        beside = engines * math.floor((1 - _engine_share(config)) / encoder.gpus + _SLACK)
    room = beside + math.floor(gpus - engines + _SLACK) * each
    if actors > room:
        raise ConfigError(
            f"indexing.encoder_actors {actors} with encoder.gpus {encoder.gpus:g} each find room for {room} on "
            f"{gpus:g} GPUs, {engines} of them taken by llm.vllm; lower indexing.encoder_actors, encoder.gpus or "
            "llm.vllm.gpu_memory_share"
        )


def _engine_share(config: ResinConfig) -> float:
    return max(_LEAST_SHARE, config.llm.vllm.gpu_memory_share) if shares_a_gpu(config) else 1.0


def _runs_on_gpu(config: ResinConfig) -> bool:
    return config.indexing.engine == "vllm" and config.llm.vllm.device == "cuda"


def _up(share: float) -> str:
    return f"{math.ceil(share * 100 - _SLACK) / 100:g}"
