"""What is refused before anything is bound, and what Serve is told of each deployment. No Ray is started."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import serve
from ray.serve import Application
from ray.serve._private.api import call_user_app_builder_with_args_if_necessary as built_by_serve

from deployments.app import bound, build, served_indexes
from deployments.checking import IMPORT_PATH
from deployments.replicas.slots import Slots
from resin_core.config import LLMSection, ServingSection, load_config
from resin_core.config.serving import ReplicasSection
from resin_core.errors import ConfigError, IndexCorruptError, IndexMissingError, StoreError
from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import Manifest, Stamp, manifest_path, write_current

DEPLOYMENTS = ("ingress", "planner", "retriever", "composer", "encoder")
OPEN = "serving.allow_anonymous=true"
ENDPOINT = "llm.base_url=http://127.0.0.1:1/v1"
Make = Callable[..., str]


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("RESIN_CONFIG", "RESIN_LLM_BASE_URL", "RESIN_LLM_MODEL", "RESIN_LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    yield
    assert not ray.is_initialized()


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes an index whose manifest says so much, and returns where it is."""

    def index(name: str = "index", encoder: str = "all-MiniLM-L6-v2", dimension: int = 384) -> str:
        manifest = Manifest(
            number=1,
            created_at="2026-01-02T03:04:05+00:00",
            stamp=Stamp(encoder=encoder, dimension=dimension, resin_version="0.1.0"),
            counts={},
            units_by_kind={},
            files=(),
        ).sealed()
        folder = IndexFolder.at(tmp_path / name)
        folder.put(manifest_path(manifest.generation), lambda stream: stream.write(manifest.to_bytes()))
        write_current(folder, manifest.generation)
        return str(tmp_path / name)

    return index


def bound_with(*settings: str) -> Application:
    return bound(load_config(None, settings, env={}))


def parts(application: Application) -> dict[str, Any]:
    """The deployments that are reached from an application, by name."""
    deployment = application._bound_deployment
    found = {deployment.name: deployment}
    for argument in deployment.init_args:
        if isinstance(argument, Application):
            found |= parts(argument)
    return found


def test_serve_builds_the_application_from_the_arguments_of_its_file(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "resin.yaml"
    file.write_text("serving: {planner: {min_replicas: 2, max_replicas: 2}}\n", encoding="utf-8")
    arguments = {"config": str(file), "set": [f"index.uri={make()}", OPEN, ENDPOINT]}
    module, _, name = IMPORT_PATH.partition(":")
    application = built_by_serve(getattr(import_module(module), name), arguments)
    assert parts(application).keys() == {*DEPLOYMENTS, "slots"}
    assert parts(application)["planner"].num_replicas == 2


def test_without_arguments_the_environment_names_the_configuration(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "resin.yaml"
    file.write_text(f"index: {{uri: {make()}}}\nserving: {{allow_anonymous: true}}\n", encoding="utf-8")
    monkeypatch.setenv("RESIN_CONFIG", str(file))
    assert "ingress" in parts(built_by_serve(build, {}))
    monkeypatch.delenv("RESIN_CONFIG")
    with pytest.raises(ConfigError, match="no index is named"):
        built_by_serve(build, {})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"confg": "x.yaml"}, ["confg", "Extra inputs"]),
        ({"config": 5}, ["config", "string"]),
        ({"set": "a=b"}, ["set", "tuple"]),
        ({"set": ["serving.prt=1"]}, ["serving.prt", "did you mean serving.port"]),
        ({"config": "absent.yaml"}, ["absent.yaml", "No such file"]),
    ],
)
def test_arguments_that_are_unknown_or_wrong_are_refused(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        built_by_serve(build, arguments)
    for word in words:
        assert word in str(caught.value)


def test_a_model_server_of_its_own_only_where_a_role_has_no_endpoint(make: Make) -> None:
    given = (f"index.uri={make()}", OPEN)
    assert "modelserver" in parts(bound_with(*given))
    assert "modelserver" in parts(bound_with(*given, "llm.planner.base_url=http://127.0.0.1:1/v1"))
    assert "modelserver" not in parts(bound_with(*given, ENDPOINT))


def test_engines_are_shared_by_the_roles_that_use_the_same_model(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    hosted: list[tuple[str, str | None]] = []

    def engine(settings: LLMSection, serving: ServingSection) -> Application:
        hosted.append((settings.model, settings.vllm.model_path))
        return serve.deployment(Slots).options(name=f"llm:{settings.model}").bind()

    monkeypatch.setattr("deployments.app.engine", engine)
    given = (f"index.uri={make()}", OPEN, "serving.engine=vllm", "llm.model=a", "llm.vllm.model_path=/a")
    assert {"llm:a"} == parts(bound_with(*given)).keys() - {*DEPLOYMENTS, "slots"}
    own = ("llm.planner.model=b", "llm.planner.model_path=/b")
    assert {"llm:a", "llm:b"} <= parts(bound_with(*given, *own)).keys()
    assert {"llm:a"} == parts(bound_with(*given, "llm.planner.base_url=http://h/v1")).keys() - {*DEPLOYMENTS, "slots"}
    assert hosted == [("a", "/a"), ("b", "/b"), ("a", "/a"), ("a", "/a")]
    with pytest.raises(ConfigError, match="two folders of weights"):
        bound_with(*given, "llm.planner.model_path=/c")
    with pytest.raises(ConfigError, match=r"serving\.engine is vllm, but llm\.base_url names an endpoint"):
        bound_with(*given, ENDPOINT)


def test_an_index_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"no index is named; give --index FOLDER, or set index\.uri"):
        bound_with(OPEN)


def test_the_index_must_be_there(tmp_path: Path, make: Make) -> None:
    with pytest.raises(IndexMissingError, match="nowhere"):
        bound_with(OPEN, f"index.uri={tmp_path / 'nowhere'}")
    with pytest.raises(IndexMissingError, match="nowhere"):
        bound_with(OPEN, f"index.uri={make()}", f"serving.indexes.b={tmp_path / 'nowhere'}")
    with pytest.raises(StoreError, match="nowhere"):
        bound_with(OPEN, "index.uri=nowhere://index")
    (tmp_path / "index" / "CURRENT").write_text("half")
    with pytest.raises(IndexCorruptError):
        bound_with(OPEN, f"index.uri={tmp_path / 'index'}")


@pytest.mark.parametrize("other", [{"encoder": "another"}, {"dimension": 768}])
def test_indexes_of_different_encoders_are_refused(make: Make, other: dict[str, Any]) -> None:
    given = (OPEN, f"index.uri={make('a')}")
    with pytest.raises(ConfigError, match="different encoders") as caught:
        bound_with(*given, f"serving.indexes.second={make('b', **other)}")
    assert "default: all-MiniLM-L6-v2" in str(caught.value) and "second: " in str(caught.value)
    bound_with(*given, f"serving.indexes.second={make('c')}")


def test_keys_are_needed_unless_anybody_may_ask(make: Make, tmp_path: Path) -> None:
    given = (f"index.uri={make()}", ENDPOINT)
    with pytest.raises(ConfigError, match="resin key NAME"):
        bound_with(*given)
    with pytest.raises(ConfigError, match="No such file"):
        bound_with(*given, f"serving.keys_file={tmp_path / 'keys'}")
    bound_with(*given, f"serving.keys=[{{name: a, sha256: {'0a' * 32}}}]")
    bound_with(*given, OPEN)


def indexed(*settings: str) -> dict[str, str]:
    return served_indexes(load_config(None, settings, env={}))


def test_the_default_index_comes_first_and_the_others_as_listed() -> None:
    found = indexed("serving.indexes.z=1z", "serving.indexes.a=1a", "serving.indexes.m_2-x=1m", "index.uri=i")
    places = [("default", "i"), ("z", "1z"), ("a", "1a"), ("m_2-x", "1m")]
    assert list(found.items()) == [(name, str(Path(place).absolute())) for name, place in places]
    assert indexed("index.uri=s3://bucket/i") == {"default": "s3://bucket/i"}


def test_without_a_default_the_first_that_is_listed_is_it() -> None:
    assert list(indexed("serving.indexes.z=1z", "serving.indexes.default=1d")) == ["z", "default"]


def test_two_indexes_called_default_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"serving\.indexes: 'default'"):
        indexed("index.uri=i", "serving.indexes.default=other")


@pytest.mark.parametrize("name", ["", "-", "a b", "a@b", "a/b", "..", "a%b", "é", "a\nb"])
def test_a_name_that_cannot_be_part_of_a_models_name(name: str) -> None:
    config = load_config(None, ["index.uri=i"], env={})
    serving = config.serving.model_copy(update={"indexes": {name: "x"}})
    with pytest.raises(ConfigError, match="letters, digits"):
        served_indexes(config.model_copy(update={"serving": serving}))


# Every value another than the default, and no two the same.
EVERY: dict[str, Any] = {
    "min_replicas": 2,
    "max_replicas": 7,
    "target_ongoing": 3.5,
    "max_ongoing": 11,
    "max_queued": 13,
    "cpus": 0.25,
    "gpus": 0.125,
    "resources": {"big": 0.375},
    "upscale_delay_s": 17.0,
    "downscale_delay_s": 19.0,
    "look_back_s": 23.0,
    "health_check_period_s": 29.0,
    "health_check_timeout_s": 31.0,
    "shutdown_s": 37.0,
}


def test_the_table_of_all_fields_is_complete() -> None:
    defaults = ReplicasSection().model_dump()
    assert EVERY.keys() == defaults.keys()
    assert all(value != defaults[name] for name, value in EVERY.items())


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_every_field_reaches_serve(name: str) -> None:
    serving = ServingSection(**{name: ReplicasSection(**EVERY)})
    deployment = serve.deployment(ReplicasSection).options(name=name, **serving.options(name))
    config = deployment._deployment_config
    scaling = config.autoscaling_config
    assert {
        "min_replicas": scaling.min_replicas,
        "max_replicas": scaling.max_replicas,
        "target_ongoing": scaling.target_ongoing_requests,
        "max_ongoing": config.max_ongoing_requests,
        "max_queued": config.max_queued_requests,
        "cpus": deployment.ray_actor_options["num_cpus"],
        "gpus": deployment.ray_actor_options["num_gpus"],
        "resources": deployment.ray_actor_options["resources"],
        "upscale_delay_s": scaling.upscale_delay_s,
        "downscale_delay_s": scaling.downscale_delay_s,
        "look_back_s": scaling.look_back_period_s,
        "health_check_period_s": config.health_check_period_s,
        "health_check_timeout_s": config.health_check_timeout_s,
        "shutdown_s": config.graceful_shutdown_timeout_s,
    } == EVERY


@pytest.mark.parametrize(("least", "most"), [(3, 3), (3, 1)])
def test_a_deployment_scales_only_when_more_are_allowed_than_are_always_there(least: int, most: int) -> None:
    options = ServingSection(planner=ReplicasSection(min_replicas=least, max_replicas=most)).options("planner")
    assert options["num_replicas"] == least and "autoscaling_config" not in options
    options = ServingSection(planner=ReplicasSection(min_replicas=1, max_replicas=2)).options("planner")
    assert "num_replicas" not in options and options["autoscaling_config"]["max_replicas"] == 2


def test_each_deployment_scales_by_its_own_section(make: Make) -> None:
    settings = [f"serving.{name}={{min_replicas: {at}, max_replicas: {at}}}" for at, name in enumerate(DEPLOYMENTS, 2)]
    found = parts(bound_with(f"index.uri={make()}", OPEN, ENDPOINT, *settings))
    assert {name: found[name].num_replicas for name in DEPLOYMENTS} == {
        name: at for at, name in enumerate(DEPLOYMENTS, 2)
    }
    assert found["slots"].num_replicas == 1
