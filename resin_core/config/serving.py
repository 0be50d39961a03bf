"""The serving section: the endpoint, who may use it, and how each of its parts scales."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from resin_core.config.base import Section


class Scope(StrEnum):
    """What a key may be used for."""

    ASK = "ask"
    TRACES = "traces"
    ADMIN = "admin"


class KeySection(Section):
    """One key; only its hash is kept (`resin key` makes both)."""

    name: str = Field(min_length=1, max_length=100, description="Who uses the key; stands in logs and metrics.")
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the key, in hexadecimal.")
    scopes: tuple[Scope, ...] = Field((Scope.ASK,), min_length=1, description="ask, traces, admin.")
    per_minute: int | None = Field(None, ge=1, description="Requests a minute; unset: no limit.")


class ReplicasSection(Section):
    """How one deployment scales, and when it is full."""

    min_replicas: int = Field(1, ge=1, le=1000, description="Replicas that are always there.")
    max_replicas: int = Field(1, ge=1, le=1000, description="Replicas at most.")
    target_ongoing: float = Field(16.0, gt=0, description="Requests a replica works on when replicas are added.")
    max_ongoing: int = Field(64, ge=1, description="Requests that one replica works on at once, at most.")
    max_queued: int = Field(
        1024, ge=1, description="Requests that wait for a replica in each caller; more are refused."
    )
    cpus: float = Field(0.1, ge=0, description="CPUs that a replica asks Ray for.")
    gpus: float = Field(0.0, ge=0, description="GPUs, or share of one, that a replica asks Ray for.")
    resources: dict[str, float] = Field(default_factory=dict, description="Further Ray resources a replica asks for.")
    upscale_delay_s: float = Field(5.0, ge=0, description="How long load must last before replicas are added.")
    downscale_delay_s: float = Field(300.0, ge=0, description="How long load must be low before replicas go.")
    look_back_s: float = Field(15.0, gt=0, description="Time over which load is averaged.")
    health_check_period_s: float = Field(10.0, gt=0, description="Time between health checks.")
    health_check_timeout_s: float = Field(30.0, gt=0, description="A slower health check is a failed one.")
    shutdown_s: float = Field(60.0, ge=0, description="How long a replica that is to go may finish its requests.")


class TracesSection(Section):
    """Where the traces of answers are kept, and for how long."""

    uri: str | None = Field(None, description="Folder or URI; unset: the folder traces of the index.")
    keep_days: float = Field(7.0, ge=0, description="Age at which a trace is deleted; 0: none is kept.")
    max_queued: int = Field(512, ge=1, description="Traces that wait to be written; the oldest beyond are dropped.")


class ServingSection(Section):
    """The online endpoint."""

    host: str = Field("127.0.0.1", description="Address that resin serve listens at.")
    port: int = Field(8000, ge=0, le=65535, description="Port that resin serve listens at; 0: a free one.")
    indexes: dict[str, str] = Field(
        default_factory=dict, description="Further indexes by name, beside index.uri, which is called default."
    )
    refresh_s: float = Field(2.0, gt=0, description="How often a newly published generation is looked for.")
    keep_open: int = Field(2, ge=1, description="Generations of each index that a replica keeps open.")
    max_requests: int = Field(128, ge=1, description="Answers that one ingress replica works on at once; then 429.")
    retry_after_s: int = Field(2, ge=1, description="What a 429 asks a client to wait.")
    max_body_bytes: int = Field(262_144, ge=1000, description="A larger request body is refused with 413.")
    max_top_k: int = Field(100, ge=1, le=1000, description="Most that a request may ask for as top_k.")
    max_hops: int = Field(8, ge=1, le=16, description="Most that a request may ask for as max_hops.")
    max_passage_budget: int = Field(50, ge=1, description="Most that a request may ask for as passage_budget.")
    call_attempts: int = Field(4, ge=1, le=20, description="Tries of a call whose replica died under it.")
    allow_anonymous: bool = Field(
        False, description="Answer without a key where none is configured; resin serve does so on loopback only."
    )
    keys: tuple[KeySection, ...] = Field((), description="Keys that are accepted, by their hashes.")
    keys_file: str | None = Field(None, description="YAML or JSON list of further keys, such as a mounted secret.")
    smoke: bool = Field(True, description="Ready only once a question on the index's first document was answered.")
    smoke_question: str | None = Field(None, description="The question instead of that.")
    engine: Literal["endpoint", "vllm"] = Field(
        "endpoint",
        description="Who answers the model's calls: the endpoint of llm (without llm.base_url the embedded server), or "
        "vLLM engines in the same application.",
    )
    cpus: int | None = Field(None, ge=1, description="CPUs of the local Ray; unset: what the machine has, at least 4.")
    traces: TracesSection = TracesSection()
    ingress: ReplicasSection = ReplicasSection(max_ongoing=1024, target_ongoing=64.0)
    planner: ReplicasSection = ReplicasSection(max_replicas=4)
    retriever: ReplicasSection = ReplicasSection(max_replicas=4, cpus=0.5)
    composer: ReplicasSection = ReplicasSection(max_replicas=4)
    encoder: ReplicasSection = ReplicasSection(max_replicas=2, cpus=0.5, max_ongoing=256, target_ongoing=64.0)
    llm: ReplicasSection = ReplicasSection(cpus=1, max_ongoing=256, target_ongoing=64.0, health_check_timeout_s=60.0)
    encoder_batch: int = Field(64, ge=1, description="Requests that an encoder replica takes together.")
    encoder_wait_s: float = Field(
        0.0, ge=0, description="How long an encoder replica waits to fill a batch; what came meanwhile is in it anyway."
    )
    otlp_endpoint: str | None = Field(None, description="OTLP/HTTP address that spans are sent to; unset: none.")

    def options(self, name: str) -> dict[str, Any]:
        """What Ray Serve is told of the deployment `name` (ingress, planner, retriever, composer, encoder, llm)."""
        replicas: ReplicasSection = getattr(self, name)
        scaling: dict[str, Any] = {"num_replicas": replicas.min_replicas}
        if replicas.max_replicas > replicas.min_replicas:
            scaling = {
                "autoscaling_config": {
                    "min_replicas": replicas.min_replicas,
                    "max_replicas": replicas.max_replicas,
                    "target_ongoing_requests": replicas.target_ongoing,
                    "upscale_delay_s": replicas.upscale_delay_s,
                    "downscale_delay_s": replicas.downscale_delay_s,
                    "look_back_period_s": replicas.look_back_s,
                }
            }
        return scaling | {
            "max_ongoing_requests": replicas.max_ongoing,
            "max_queued_requests": replicas.max_queued,
            "health_check_period_s": replicas.health_check_period_s,
            "health_check_timeout_s": replicas.health_check_timeout_s,
            "graceful_shutdown_timeout_s": replicas.shutdown_s,
            "ray_actor_options": {
                "num_cpus": replicas.cpus,
                "num_gpus": replicas.gpus,
                "resources": replicas.resources,
            },
        }
