"""The endpoint under test: the whole Serve application on a local Ray, its model scripted, spoken to over HTTP."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import ray
from ray import serve

from deployments.app import bound
from deployments.serving import NAME
from resin_core.config import load_config

SMALL = (
    "serving.allow_anonymous=true",
    "serving.planner.max_replicas=1",
    "serving.retriever.max_replicas=1",
    "serving.composer.max_replicas=1",
    "serving.encoder.max_replicas=1",
    "serving.refresh_s=0.2",
    "strategies.resin.hop_solvers=never",
)


@dataclass
class Endpoint:
    """A running application. `url` has no slash at its end."""

    url: str

    def client(self, key: str = "", timeout_s: float = 60.0) -> httpx.AsyncClient:
        """A client of its own; use it with `async with`."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout_s, trust_env=False)

    def post(self, path: str, body: dict[str, Any], timeout_s: float = 60.0, **more: Any) -> httpx.Response:
        """One request without a client to keep."""
        return httpx.post(f"{self.url}{path}", json=body, timeout=timeout_s, trust_env=False, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        """One request without a client to keep."""
        return httpx.get(f"{self.url}{path}", timeout=60, trust_env=False, **more)


@contextmanager
def endpoint(
    base_url: str | None, index: Path | str, settings: Sequence[str] = (), ready: bool = True
) -> Iterator[Endpoint]:
    """The application over an index, on the Ray that runs; with `ready` once it answers. None: it hosts the model."""
    port = free_port()
    model = [f"llm.base_url={base_url}", "llm.model=scripted"] if base_url else []
    given = [*model, f"index.uri={index}", *SMALL, *settings]
    config = load_config(None, given, env={})
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    try:
        serve.run(bound(config), name=NAME, route_prefix="/")
        found = Endpoint(f"http://127.0.0.1:{port}")
        if ready:
            until_ready(found)
        yield found
    finally:
        serve.shutdown()


def until_ready(found: Endpoint, timeout_s: float = 60.0) -> None:
    """Raises AssertionError with the last word of /readyz when that does not come."""
    end = time.monotonic() + timeout_s
    while (said := found.get("/readyz")).status_code != 200:
        assert time.monotonic() < end, said.text
        time.sleep(0.1)


@contextmanager
def ray_for_serving(cpus: int = 8) -> Iterator[None]:
    """A Ray with CPUs on paper for all replicas."""
    ray.init(num_cpus=cpus, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as tried:
        return int(tried.getsockname()[1])
