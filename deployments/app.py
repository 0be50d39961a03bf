"""The Serve application: `deployments.app:build` is its import path.

Everything that can be wrong with the configuration is said here, before anything is bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray import serve
from ray.serve import Application

from deployments.access import Access
from deployments.hosting import engine
from deployments.ingress import Ingress
from deployments.replicas.composer import ComposerReplica
from deployments.replicas.encoder import EncoderReplica
from deployments.replicas.planner import PlannerReplica
from deployments.replicas.retriever import RetrieverReplica
from deployments.replicas.server import ModelServer
from deployments.replicas.slots import Slots
from deployments.service import DEFAULT
from resin_core.config import ResinConfig, ServingSection, load_config
from resin_core.errors import ConfigError
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import read_manifest

_ROLES: tuple[Literal["planner", "composer"], ...] = ("planner", "composer")


class ServeArgs(BaseModel):
    """Arguments of the application in a Serve configuration file; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")

    config: str | None = Field(None, description="A configuration file of Resin, on every node; unset: RESIN_CONFIG.")
    set: tuple[str, ...] = Field((), description="Further settings, as section.key=value.")


def build(args: dict[str, Any]) -> Application:
    """The application as `serve deploy` builds it, from ServeArgs. Raises ConfigError and StoreError kinds."""
    # Checked here: Serve itself would do it for an annotation that is a class, and here all are texts.
    try:
        given = ServeArgs.model_validate(args)
    except ValidationError as error:
        wrong = (f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors())
        raise ConfigError(f"args of the application: {'; '.join(wrong)}") from None
    return bound(load_config(Path(given.config) if given.config else None, given.set))


def bound(config: ResinConfig) -> Application:
    """The application of a configuration. Raises ConfigError and StoreError kinds before anything is bound."""
    indexes = served_indexes(config)
    Access.of(config.serving)
    stamps = {name: read_manifest(IndexFolder.at(location)).stamp for name, location in indexes.items()}
    if len({(stamp.encoder, stamp.dimension) for stamp in stamps.values()}) > 1:
        made = ", ".join(f"{name}: {stamp.encoder}" for name, stamp in stamps.items())
        raise ConfigError(f"the indexes were made with different encoders ({made}); serve them apart")
    serving = config.serving
    slots = _one(Slots).bind()
    hosted = _hosted(config)
    encoder = _scaled(EncoderReplica, serving, "encoder").bind(
        config.encoder, serving.encoder_batch, serving.encoder_wait_s
    )
    retriever = _scaled(RetrieverReplica, serving, "retriever").bind(config, indexes, encoder)
    planner = _scaled(PlannerReplica, serving, "planner").bind(config, slots, hosted["planner"])
    composer = _scaled(ComposerReplica, serving, "composer").bind(config, slots, hosted["composer"])
    ingress = _scaled(serve.ingress()(Ingress), serving, "ingress")
    spare_calls = serving.engine == "vllm" or not any(hosted.values())
    application: Application = ingress.bind(config, indexes, planner, retriever, composer, slots, spare_calls)
    return application


def _hosted(config: ResinConfig) -> dict[str, Application | None]:
    """By role the deployment of the model that the application hosts for it; None: it has an endpoint."""
    serving = config.serving
    own = {role: config.llm.for_role(role) for role in _ROLES}
    without = {role: settings for role, settings in own.items() if settings.base_url is None}
    made: dict[Any, Application] = {}
    if serving.engine == "vllm":
        if not without:
            raise ConfigError("serving.engine is vllm, but llm.base_url names an endpoint that is to answer; unset one")
        wanted = {(settings.model, settings.vllm.model_path): settings for settings in without.values()}
        made = {weights: engine(settings, serving) for weights, settings in wanted.items()}
        if len({model for model, _ in made}) < len(made):
            raise ConfigError("llm.planner and llm.composer name one model, but two folders of weights")
    elif without:
        server = _one(ModelServer).bind(config.llm)
        made = {(settings.model, settings.vllm.model_path): server for settings in without.values()}
    return {
        role: made[settings.model, settings.vllm.model_path] if role in without else None
        for role, settings in own.items()
    }


def _scaled(replica: type, serving: ServingSection, name: str) -> Any:
    """A deployment that scales as configured."""
    return serve.deployment(replica).options(name=name, **serving.options(name))


def _one(replica: type) -> Any:
    """A deployment of one replica that does no work worth counting."""
    options = {"num_replicas": 1, "max_ongoing_requests": 1000, "ray_actor_options": {"num_cpus": 0}}
    return serve.deployment(replica).options(name=replica.__name__.lower(), **options)


def served_indexes(config: ResinConfig) -> dict[str, str]:
    """Locations by name, the default one first. Raises ConfigError when there is none, or a name cannot be used."""
    named = config.serving.indexes
    if DEFAULT in named and config.index.uri:
        raise ConfigError(f"serving.indexes: {DEFAULT!r} is the name of index.uri; give this one another name")
    for name in named:
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise ConfigError(f"serving.indexes: the name {name!r} may hold letters, digits, - and _ only")
    places = {**({DEFAULT: config.index.uri} if config.index.uri else {}), **named}
    # Replicas need not have this process's working folder.
    found = {name: at if "://" in at else str(Path(at).expanduser().absolute()) for name, at in places.items()}
    if not found:
        raise ConfigError("no index is named; give --index FOLDER, or set index.uri in the configuration")
    return found
