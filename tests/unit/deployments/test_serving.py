"""Where `resin serve` listens, and what it refuses before it starts Ray."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import ray

from deployments import serving
from deployments.serving import _free_port, _missing, _url, is_loopback, run
from resin_core.config import load_config
from resin_core.errors import ConfigError, IndexMissingError, StoreError

KEY = f"serving.keys=[{{name: a, sha256: {'0a' * 32}}}]"


@pytest.fixture(autouse=True)
def _left_as_it_was() -> Iterator[None]:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    level = logging.getLogger("ray.serve").level
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert not ray.is_initialized()
    logging.getLogger("ray.serve").setLevel(level)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.10", "::1"])
def test_addresses_that_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "10.0.0.1", "192.168.1.1", "2001:db8::1", "example.org", "localhost.example.org"]
)
def test_addresses_that_others_reach_or_that_nobody_knows(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:81"),
        ("localhost", "http://localhost:81"),
        ("10.1.2.3", "http://10.1.2.3:81"),
        ("0.0.0.0", "http://127.0.0.1:81"),
        ("::", "http://[::1]:81"),
        ("::1", "http://[::1]:81"),
        ("2001:db8::1", "http://[2001:db8::1]:81"),
    ],
)
def test_the_address_that_is_told_can_be_opened_here(host: str, url: str) -> None:
    assert _url(host, 81) == url


def test_port_0_is_a_free_port() -> None:
    port = _free_port("127.0.0.1")
    assert 0 < port < 65536
    with socket.create_server(("127.0.0.1", port)):
        assert _free_port("127.0.0.1") != port


def refused(*settings: str) -> Exception:
    """What `run` raises; it has said nothing by then."""
    said: list[str] = []
    with pytest.raises((ConfigError, StoreError)) as caught:
        run(load_config(None, settings, env={}), said.append, {})
    assert said == []
    return caught.value


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(serving, "_start_ray", start)


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1"])
def test_nobody_is_let_in_from_outside_without_a_key(host: str, tmp_path: Path) -> None:
    error = refused(f"serving.host={host}", f"index.uri={tmp_path}")
    assert isinstance(error, ConfigError) and "serving.keys: there is no key" in str(error)


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_on_loopback_no_key_is_needed(host: str, tmp_path: Path) -> None:
    assert isinstance(refused(f"serving.host={host}", f"index.uri={tmp_path}"), IndexMissingError)


@pytest.mark.usefixtures("no_ray")
def test_keys_that_are_configured_are_checked_on_loopback_too(tmp_path: Path) -> None:
    error = refused(f"serving.keys_file={tmp_path / 'keys'}", f"index.uri={tmp_path}")
    assert isinstance(error, ConfigError) and "serving.keys_file" in str(error)


@pytest.mark.usefixtures("no_ray")
def test_an_index_is_needed() -> None:
    assert "no index is named" in str(refused())
    assert "no index is named" in str(refused("serving.host=0.0.0.0", KEY))


def test_an_address_of_another_machine_cannot_be_listened_at() -> None:
    with pytest.raises(ConfigError, match=r"serving\.host '203\.0\.113\.9' cannot be listened at"):
        _free_port("203.0.113.9")


@pytest.fixture
def answering() -> Iterator[Callable[[int, str], int]]:
    """Has a server answer every request so; returns its port."""
    servers: list[HTTPServer] = []

    def answer(status: int, body: str) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/readyz" else 404)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                pass

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return servers[-1].server_port

    yield answer
    for server in servers:
        server.shutdown()
        server.server_close()


def test_what_readiness_lacks_is_in_the_servers_words(answering: Callable[[int, str], int]) -> None:
    assert _missing("127.0.0.1", answering(200, "{}")) is None
    assert _missing("127.0.0.1", answering(503, '{"detail": "not ready: the index"}')) == "not ready: the index"
    assert _missing("127.0.0.1", answering(503, "Service Unavailable")) == ""
    assert _missing("127.0.0.1", answering(404, "{}")) == ""


def test_a_server_that_does_not_listen_yet_lacks_something_unknown() -> None:
    assert _missing("127.0.0.1", _free_port("127.0.0.1")) == ""
