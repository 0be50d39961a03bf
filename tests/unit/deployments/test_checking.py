from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.checking import IMPORT_PATH, check, check_file
from resin_core.config import load_config
from resin_core.errors import ConfigError

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "configs" / "serve.yaml"
SECRET = "sk-do-not-show-7731"
GOOD: dict[str, Any] = {
    "proxy_location": "EveryNode",
    "http_options": {"host": "0.0.0.0", "port": 8000},
    "logging_config": {"encoding": "JSON"},
    "applications": [
        {
            "name": "other",
            "route_prefix": "/other",
            "import_path": "elsewhere:build",
            "args": {"anything": {"goes": 1}},
        },
        {
            "name": "resin",
            "route_prefix": "/",
            "import_path": IMPORT_PATH,
            "runtime_env": {"env_vars": {"ANY_NAME": "x"}},
            "args": {"config": "not/here.yaml", "set": ["serving.allow_anonymous=true", "index.uri=${NOT_SET_HERE}"]},
            "deployments": [
                {
                    "name": "planner",
                    "user_config": {"free": {"as": "air"}},
                    "autoscaling_config": {
                        "min_replicas": 2,
                        "max_replicas": 8,
                        "target_ongoing_requests": 4,
                    },
                    "ray_actor_options": {"num_cpus": 1, "resources": {"any_name": 1}},
                    "request_router_config": {"request_router_kwargs": {"free": 1}},
                },
                {"name": "composer", "num_replicas": "auto", "autoscaling_config": {"min_replicas": 3}},
            ],
        },
    ],
}

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(content: str | bytes) -> Path:
        file = tmp_path / "serve.yaml"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return to_file


def changed(path: Sequence[str | int], value: Any) -> dict[str, Any]:
    """GOOD with the value put at the path."""
    values = copy.deepcopy(GOOD)
    at: Any = values
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return values


def refused(values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        check(values, "mine.yaml")
    said = str(caught.value)
    assert said.startswith("mine.yaml: ") and "\n" not in said
    return said.removeprefix("mine.yaml: ")


def test_the_shipped_file_is_right_and_so_is_what_it_names() -> None:
    schema = check_file(SHIPPED)
    (application,) = schema.applications
    assert (application.import_path, application.route_prefix) == (IMPORT_PATH, "/")
    file = ROOT / application.args["config"]
    env = {"RESIN_INDEX_URI": "s3://bucket/index", "RESIN_LLM_URL": "http://models:8000/v1"}
    config = load_config(file, application.args["set"], env=env)
    assert config.llm.base_url == "http://models:8000/v1", "an embedded server would keep all of it on one node"
    assert config.serving.keys_file == "/etc/resin/keys.yaml" and not config.serving.allow_anonymous
    assert schema.http_options.request_timeout_s > config.strategies.deadline_s


def test_a_file_with_everything_in_it_is_right(write: Write) -> None:
    schema = check_file(write(yaml.safe_dump(GOOD)))
    assert [application.name for application in schema.applications] == ["other", "resin"]


@pytest.mark.parametrize(
    ("path", "near"),
    [
        (("http_option",), "http_options"),
        (("target_capacitys",), "target_capacity"),
        (("http_options", "prt"), "port"),
        (("logging_config", "encodng"), "encoding"),
        (("applications", 1, "routeprefix"), "route_prefix"),
        (("applications", 0, "runtime_envs"), "runtime_env"),
        (("applications", 1, "args", "configs"), "config"),
        (("applications", 1, "deployments", 0, "numreplicas"), "num_replicas"),
        (("applications", 1, "deployments", 1, "max_ongoing_request"), "max_ongoing_requests"),
        (("applications", 1, "deployments", 0, "autoscaling_config", "max_replica"), "max_replicas"),
        (("applications", 1, "deployments", 1, "autoscaling_config", "upscale_delay"), "upscale_delay_s"),
        (("applications", 1, "deployments", 0, "ray_actor_options", "num_cpu"), "num_cpus"),
        (("applications", 1, "deployments", 0, "request_router_config", "request_router_clas"), "request_router_class"),
    ],
)
def test_an_unknown_key_is_refused_wherever_it_stands(path: Sequence[str | int], near: str) -> None:
    where = ".".join(str(part) for part in path)
    assert refused(changed(path, 1)) == f"{where}: unknown key; did you mean {near}?"


def test_a_key_like_no_other_gets_no_suggestion() -> None:
    assert refused(changed(("zzz",), 1)) == "zzz: unknown key"
    assert refused(changed((True,), 1)) == "True: unknown key"


@pytest.mark.parametrize(
    ("path", "value", "word"),
    [
        (("http_options", "port"), "many", "integer"),
        (("proxy_location",), "Somewhere", "EveryNode"),
        (("applications", 1, "import_path"), "nothing", "import path"),
        (("applications", 1, "deployments", 0, "max_ongoing_requests"), 0, "greater than 0"),
        (("applications", 1, "deployments", 0, "autoscaling_config", "min_replicas"), "two", "integer"),
        (("applications", 1, "deployments", 0, "autoscaling_config", "target_ongoing_requests"), -1, "greater than 0"),
        (("applications", 1, "deployments", 0, "ray_actor_options", "num_cpus"), "one", "number"),
        (("applications", 1, "args", "config"), 5, "string"),
        (("applications", 1, "args", "set"), "a=b", "tuple"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(path: Sequence[str | int], value: Any, word: str) -> None:
    said = refused(changed(path, value))
    assert said.startswith(".".join(str(part) for part in path)) and word in said


def test_fewer_replicas_at_most_than_at_least() -> None:
    at = ("applications", 1, "deployments", 0, "autoscaling_config")
    assert "max_replicas (1) must be" in refused(changed(at, {"min_replicas": 2}))
    assert "max_replicas (1) must be" in refused(changed((*at, "max_replicas"), 1))
    # With num_replicas auto, Serve's most is 100 unless the file says otherwise.
    check(changed((*at[:3], 1, at[4]), {"min_replicas": 100}), "mine.yaml")
    assert "max_replicas (100) must be" in refused(changed((*at[:3], 1, at[4]), {"min_replicas": 101}))


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("serving.keyfile=x", "did you mean serving.keys_file"),
        ("retrieval.top_k=none", "retrieval.top_k"),
        ("serving", "section.key=value"),
    ],
)
def test_a_wrong_setting_among_the_arguments_is_named(setting: str, word: str) -> None:
    said = refused(changed(("applications", 1, "args", "set", 0), setting))
    assert said.startswith("applications.1.args.set.0: ") and word in said


def test_arguments_of_other_applications_are_not_ours_to_judge() -> None:
    check(changed(("applications", 0, "args"), {"confg": 1, "set": ["no setting"]}), "mine.yaml")


def test_everything_that_is_wrong_is_said_at_once() -> None:
    values = changed(("http_options", "prt"), 1)
    values["applications"][1]["args"]["confg"] = "x"
    values["applications"][1]["args"]["set"] = ["serving.prt=1"]
    values["applications"][1]["deployments"][0]["max_ongoing_requests"] = -1
    said = refused(values)
    assert [part.partition(":")[0] for part in said.split("; ") if not part.startswith("did you")] == [
        "http_options.prt",
        "applications.1.args.confg",
        "applications.1.args.set.0",
        "applications.1.deployments.0.max_ongoing_requests",
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("applications",), 5),
        (("applications",), "resin"),
        (("applications",), None),
        (("applications",), {"name": "resin"}),
        (("applications", 0), "resin"),
        (("applications", 1, "args"), "config"),
        (("applications", 1, "args"), ["config"]),
        (("applications", 1, "deployments"), ["planner"]),
        (("applications", 1, "deployments"), {"planner": {"num_replicas": 2}}),
        (("applications", 1, "deployments", 0, "autoscaling_config"), [2, 8]),
        (("applications", 1, "deployments", 0, "ray_actor_options"), 1),
        (("http_options",), [8000]),
    ],
)
def test_a_value_of_another_shape_is_refused_where_it_stands(path: Sequence[str | int], value: Any) -> None:
    assert refused(changed(path, value)).startswith(".".join(str(part) for part in path))


def test_a_file_without_applications() -> None:
    assert "applications: Field required" in refused({"http_options": {"port": 1}})


@pytest.mark.parametrize(
    "deployment",
    [
        {"name": "planner", "autoscaling_config": {"policy": {"policy_function": "nowhere_at_all:scale"}}},
        {"name": "planner", "request_router_config": {"request_router_class": "nowhere_at_all:Router"}},
    ],
)
def test_what_the_file_names_and_is_not_here_is_said(deployment: dict[str, Any]) -> None:
    said = refused(changed(("applications", 1, "deployments"), [deployment]))
    assert said.startswith("applications.1.deployments.0.") and "nowhere_at_all" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("applications: [}\n", ["line 1"]),
        ("a: b: c\n", ["line 1, column 5", "mapping values are not allowed"]),
        (f"applications: *{SECRET}\n", ["line 1"]),
        (f"applications:\n  - '{SECRET}\n", ["not valid YAML"]),
        ("http_options: {port: 1}\napplications: []\nhttp_options: {}\n", ["line 3", "http_options is given twice"]),
        (b"applications: \xff\n", ["not valid YAML"]),
        ("[" * 20_000, ["not valid YAML"]),
        ("applications: 2026-13-45\n", ["not valid YAML"]),
        ("!!python/object/apply:os.getcwd []\n", ["not valid YAML"]),
    ],
)
def test_what_is_not_yaml_is_refused_and_not_repeated(write: Write, content: str | bytes, words: list[str]) -> None:
    file = write(content)
    with pytest.raises(ConfigError) as caught:
        check_file(file)
    said = str(caught.value)
    assert said.startswith(f"{file} is not valid YAML") and "\n" not in said and SECRET not in said
    for word in words:
        assert word in said


@pytest.mark.parametrize(("content", "kind"), [("", "nothing"), ("- a\n", "a list"), ("text\n", "a str")])
def test_yaml_that_is_no_mapping(write: Write, content: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"expected a mapping with applications, got {kind}"):
        check_file(write(content))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: No such file"):
        check_file(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="directory"):
        check_file(tmp_path)


def test_a_file_that_is_too_long(write: Write) -> None:
    with pytest.raises(ConfigError, match="longer than 1,000,000 bytes"):
        check_file(write("# " + "x" * 1_000_000))
    with pytest.raises(ConfigError, match="longer than"):
        check_file(Path("/dev/zero"))
