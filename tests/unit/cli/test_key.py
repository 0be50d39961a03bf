"""`resin key`."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import yaml

from deployments.access import Access
from resin_core.config import load_config
from resin_core.config.serving import KeySection, Scope
from tests.unit.cli.conftest import Run

KEY = re.compile(r"resin-[A-Za-z0-9_-]{43}")


def test_the_key_stands_once_and_its_hash_in_the_block(resin: Run) -> None:
    ran = resin("key", "alice")
    assert ran.status == 0
    key, empty, block = ran.out.split("\n", 2)
    assert KEY.fullmatch(key) and empty == ""
    assert (ran.out + ran.err).count(key) == 1
    assert yaml.safe_load(block) == [
        {"name": "alice", "sha256": hashlib.sha256(key.encode()).hexdigest(), "scopes": ["ask"]}
    ]
    assert "shown this once" in ran.err and len(ran.err.splitlines()) == 1


def test_as_json(resin: Run) -> None:
    ran = resin(
        "key", "bob", "--scope", "traces", "--scope", "ask", "--scope", "traces", "--per-minute", "30", "--json"
    )
    found = json.loads(ran.out)
    assert found == {
        "key": found["key"],
        "entry": {
            "name": "bob",
            "sha256": hashlib.sha256(found["key"].encode()).hexdigest(),
            "scopes": ["traces", "ask"],
            "per_minute": 30,
        },
    }
    assert KEY.fullmatch(found["key"]) and found["key"] not in ran.err


def test_no_key_is_like_another(resin: Run) -> None:
    keys = {resin("key", "a").out.split("\n")[0] for _ in range(20)}
    assert len(keys) == 20


@pytest.mark.parametrize(
    "name", ["alice", "no", "1.5", "a: b", "- x", "é ☃ 🙂", "'quoted' \"twice\"", "#", "x" * 100, "x " * 49 + "x"]
)
async def test_what_it_prints_is_accepted_where_it_goes(resin: Run, tmp_path: Path, name: str) -> None:
    ran = resin("key", "--scope", "traces", "--", name)
    assert ran.status == 0, ran.err
    key, _, block = ran.out.split("\n", 2)
    wanted = KeySection(name=name, sha256=hashlib.sha256(key.encode()).hexdigest(), scopes=(Scope.TRACES,))
    indented = "".join(f"    {line}\n" for line in block.splitlines())
    file = tmp_path / "resin.yaml"
    file.write_text(f"serving:\n  keys:\n{indented}", encoding="utf-8")
    serving = load_config(file, env={}).serving
    assert serving.keys == (wanted,)
    keys_file = tmp_path / "keys"
    keys_file.write_text(block, encoding="utf-8")
    for accepted in (serving, serving.model_copy(update={"keys": (), "keys_file": str(keys_file)})):
        caller = await Access.of(accepted).check(f"Bearer {key}", Scope.TRACES)
        assert caller == (name, frozenset({Scope.TRACES}))


@pytest.mark.parametrize("name", ["é 🙂", "plain"])
async def test_the_json_entry_is_accepted_in_a_file_of_keys(resin: Run, tmp_path: Path, name: str) -> None:
    found = json.loads(resin("key", name, "--json").out)
    keys_file = tmp_path / "keys"
    keys_file.write_text(json.dumps([found["entry"]], indent="\t"), encoding="ascii")
    serving = load_config(overrides=[f"serving.keys_file={keys_file}"], env={}).serving
    assert (await Access.of(serving).check(f"Bearer {found['key']}", Scope.ASK)).name == name


@pytest.mark.parametrize("name", ["", " ", " a", "a ", "a  b", "a\nb", "a\tb", "\x1b[31m", "x" * 101])
def test_a_name_that_would_spoil_a_log(resin: Run, name: str) -> None:
    ran = resin("key", name)
    assert (ran.status, ran.out) == (2, "")
    assert "of the key: expected 1 to 100 characters on one line" in ran.err and len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["key"], "NAME"),
        (["key", "a", "--scope", "all"], "--scope"),
        (["key", "a", "--per-minute", "0"], "--per-minute"),
    ],
)
def test_wrong_usage(resin: Run, arguments: list[str], said: str) -> None:
    ran = resin(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err


def test_a_name_that_the_configuration_has_already(resin: Run, tmp_path: Path) -> None:
    file = tmp_path / "resin.yaml"
    file.write_text(f"serving: {{keys: [{{name: alice, sha256: {'0' * 63}a}}]}}", encoding="utf-8")
    ran = resin("key", "alice", "--config", str(file))
    assert (ran.status, ran.out) == (2, "")
    assert "'alice' already" in ran.err
    assert resin("key", "bob", "--config", str(file)).status == 0


def test_it_takes_the_shared_options(resin: Run) -> None:
    out = resin("key", "--help").out
    assert "--config" in out and "--set" in out and "--debug" in out and "--json" in out
