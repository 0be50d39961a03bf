"""The embedded server with the smallest packaged model: it serves, it ends, it is never left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

import resin_core
from resin_core.config.sections import EmbeddedSection
from resin_core.errors import ModelError
from resin_core.models.resolve import resolve
from resin_core.models.server import EmbeddedServer

pytestmark = pytest.mark.model

NAME = "smollm2-135m-instruct"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(resin_core.__file__).parents[1])}

OWNER = """
import os, sys, threading, time
from resin_core.config.sections import EmbeddedSection
from resin_core.models.server import EmbeddedServer
server = EmbeddedServer(EmbeddedSection(model_path=sys.argv[1], slots=1, slot_context_tokens=512, threads=1), "small")
if sys.argv[2] == "main":
    server.start()
else:
    worker = threading.Thread(target=server.start)
    worker.start()
    worker.join()
    time.sleep(1)
fork = 0
if sys.argv[2] == "fork":
    fork = os.fork()
    if fork == 0:
        server.stop()
        time.sleep(60)
        os._exit(0)
    time.sleep(1)
print(server.pid, fork, server.alive(), flush=True)
if sys.argv[3] == "exit":
    sys.exit(0)
time.sleep(60)
"""


@pytest.fixture(scope="session")
def weights() -> Path:
    """The model's file, fetched into the user's cache the first time."""
    return resolve(NAME, EmbeddedSection())


@pytest.fixture(scope="session")
def settings(weights: Path) -> EmbeddedSection:
    return EmbeddedSection(model_path=str(weights), slots=2, slot_context_tokens=512, threads=1)


@pytest.fixture(scope="module")
def served(settings: EmbeddedSection) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(settings, NAME) as server:
        yield server


def chat(server: EmbeddedServer, key: str | None = None, **extra: object) -> httpx.Response:
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 64,
        "temperature": 0,
        **extra,
    }
    headers = {"authorization": f"Bearer {server.api_key if key is None else key}"}
    with httpx.Client(trust_env=False, timeout=60) as client:
        return client.post(f"{server.base_url}/chat/completions", json=body, headers=headers)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return holds()


def refuses(url: str) -> bool:
    place = urlsplit(url)
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((str(place.hostname), int(place.port or 0))) != 0


def test_chat(served: EmbeddedServer) -> None:
    reply = chat(served)
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["message"]["content"].strip()
    assert reply.json()["model"] == NAME
    assert reply.json()["usage"]["completion_tokens"] > 0


def test_structured_output(served: EmbeddedServer) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
    text = chat(served, response_format=form).json()["choices"][0]["message"]["content"]
    assert json.loads(text) in ({"colour": "red"}, {"colour": "blue"})


def test_key_is_asked_for_and_is_not_in_the_arguments(served: EmbeddedServer) -> None:
    assert chat(served, key="wrong").status_code == 401
    assert served.api_key not in Path(f"/proc/{served.pid}/cmdline").read_text()
    assert served.api_key not in Path(f"/proc/{served.pid}/environ").read_text()


def test_listens_on_the_loopback_address_only(served: EmbeddedServer) -> None:
    place = urlsplit(served.base_url)
    assert (place.hostname, place.path) == ("127.0.0.1", "/v1")
    listening = [
        line.split()[1]
        for line in Path(f"/proc/{served.pid}/net/tcp").read_text().splitlines()
        if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == place.port
    ]
    assert [address.split(":")[0] for address in listening] == ["0100007F"]


def test_heavy_libraries_stay_out(served: EmbeddedServer) -> None:
    maps = Path(f"/proc/{served.pid}/maps").read_text()
    assert "xllamacpp" in maps
    assert "libtorch" not in maps
    assert "_raylet" not in maps


def test_starting_twice_changes_nothing(served: EmbeddedServer) -> None:
    before = served.pid, served.base_url, served.api_key
    assert (served.start().pid, served.base_url, served.api_key) == before


def test_two_servers_side_by_side(served: EmbeddedServer, settings: EmbeddedSection) -> None:
    with EmbeddedServer(settings, NAME) as other:
        assert other.base_url != served.base_url
        assert other.api_key != served.api_key
        assert chat(other, key=served.api_key).status_code == 401
        assert chat(other).status_code == 200


async def test_stop_and_start_again_from_async_code(settings: EmbeddedSection) -> None:
    server = EmbeddedServer(settings, NAME)
    await asyncio.to_thread(server.start)
    url, pid = server.base_url, server.pid
    await asyncio.to_thread(server.stop)
    assert gone(pid)
    assert refuses(url)
    assert not server.alive()
    assert server.fault() == ""
    server.stop()
    await asyncio.to_thread(server.start)
    assert (await asyncio.to_thread(chat, server)).status_code == 200
    await asyncio.to_thread(server.stop)


def test_killed_server_is_noticed_and_can_be_started_again(settings: EmbeddedSection) -> None:
    server = EmbeddedServer(settings, NAME).start()
    try:
        os.kill(server.pid, signal.SIGKILL)
        assert within(5, lambda: not server.alive())
        assert "ended with status -9" in server.fault()
        with pytest.raises(ModelError, match="ended with status -9"):
            _ = server.base_url
        assert chat(server.start()).status_code == 200
    finally:
        server.stop()


@pytest.mark.parametrize("started_from", ["main", "thread", "fork"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_server_ends_with_its_owner(weights: Path, started_from: str, end: signal.Signals) -> None:
    """Also when it was started by a thread that has ended, and when a fork of the owner lives on with its pipes."""
    command = [sys.executable, "-W", "ignore", "-c", OWNER, str(weights), started_from, "wait"]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    fork = 0
    try:
        assert owner.stdout is not None
        pid, fork, alive = (int(word) if word.isdigit() else word == "True" for word in owner.stdout.readline().split())
        assert alive
        assert not gone(pid)
        owner.send_signal(end)
        owner.wait(10)
        if fork:
            assert not gone(fork)
        assert within(5, lambda: gone(pid))
    finally:
        owner.kill()
        if fork:
            os.kill(fork, signal.SIGKILL)


def test_server_ends_when_its_owner_exits_without_stopping_it(weights: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(weights), "main", "exit"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert within(5, lambda: gone(int(done.stdout.split()[0])))
