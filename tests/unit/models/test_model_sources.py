"""The model hub, played by a local HTTP server; packages are tested with `resolve`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from resin_core.models import sources
from resin_core.models.registry import ModelSpec


class Hub(ThreadingHTTPServer):
    """Sends on to its storage, as real hubs do. `tag`, `body`, `pause_s`, `status` and `cut` are what tests turn."""

    daemon_threads = True

    def __init__(self, tag: str, body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.tag, self.body, self.pause_s, self.cut, self.status = tag, body, 0.0, 0, 200
        self.asked: list[str] = []


class HubHandler(BaseHTTPRequestHandler):
    """HEAD and GET."""

    server: Hub

    def do_HEAD(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        time.sleep(self.server.pause_s)
        stored = self.path == "/storage"
        self.send_response(self.server.status if stored else 302)
        if not stored:
            self.send_header("Location", "/storage")
            self.send_header("X-Linked-ETag", f'"{self.server.tag}"')
            self.send_header("X-Linked-Size", str(len(self.server.body)))
        self.send_header("ETag", '"storage-tag"')
        self.send_header("Content-Length", str(len(self.server.body) if stored else 0))
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        if self.path == "/storage":
            self.wfile.write(self.server.body[: len(self.server.body) - self.server.cut])

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def hub_spec(spec: ModelSpec) -> ModelSpec:
    return spec.model_copy(update={"hub_repo": "someone/tiny", "hub_file": "tiny.gguf"})


@pytest.fixture
def hub(spec: ModelSpec, content: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    server = Hub(spec.sha256, content)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()


def test_hub_gives_the_file(hub: Hub, hub_spec: ModelSpec, content: bytes) -> None:
    assert b"".join(sources.hub_pieces(hub_spec)) == content
    place = "/someone/tiny/resolve/main/tiny.gguf"
    assert hub.asked == [f"HEAD {place}", "HEAD /storage", f"GET {place}", "GET /storage"]


def test_hub_with_another_build_is_not_downloaded(hub: Hub, hub_spec: ModelSpec) -> None:
    hub.tag = "f" * 64
    with pytest.raises(sources.SourceUnusable, match=r"not there \(status 200, .* tag f{64}\)"):
        next(iter(sources.hub_pieces(hub_spec)))
    assert {line.split()[0] for line in hub.asked} == {"HEAD"}


def test_hub_without_the_file(hub: Hub, hub_spec: ModelSpec) -> None:
    hub.status = 404
    with pytest.raises(sources.SourceUnusable, match="status 404"):
        next(iter(sources.hub_pieces(hub_spec)))


def test_hub_that_does_not_answer_costs_little(hub: Hub, hub_spec: ModelSpec) -> None:
    hub.pause_s = 5.0
    begin = time.monotonic()
    with pytest.raises(sources.SourceUnusable, match=r"no answer within 0\.3 s|not to be had"):
        next(iter(sources.hub_pieces(hub_spec, probe_s=0.3)))
    assert time.monotonic() - begin < 2.0


def test_hub_gone(hub: Hub, hub_spec: ModelSpec) -> None:
    hub.shutdown()
    hub.server_close()
    with pytest.raises(sources.SourceUnusable, match="not to be had"):
        next(iter(sources.hub_pieces(hub_spec)))


def test_hub_breaks_off(hub: Hub, hub_spec: ModelSpec) -> None:
    hub.cut = 1000
    with pytest.raises(sources.SourceUnusable, match="broke off"):
        list(sources.hub_pieces(hub_spec))


def test_offline_setting_is_honoured(hub: Hub, hub_spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(sources.SourceUnusable, match="HF_HUB_OFFLINE"):
        next(iter(sources.hub_pieces(hub_spec)))
    assert hub.asked == []


def test_model_on_no_hub(spec: ModelSpec) -> None:
    with pytest.raises(sources.SourceUnusable, match="on no hub"):
        next(iter(sources.hub_pieces(spec)))
