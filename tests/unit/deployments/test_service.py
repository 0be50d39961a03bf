"""How a replica of the ingress begins and ends, without Ray."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deployments.access import Access
from deployments.http.app import build_http
from deployments.http.running import Running
from deployments.service import Handles, Service
from resin_core.config import load_config
from tests.unit.deployments.handles import Handle, Method


def service_over(place: Path, anonymous: bool) -> Service:
    config = load_config(None, [f"serving.allow_anonymous={str(anonymous).lower()}"], env={})
    handle: Any = Handle(Method("nothing"))
    return Service(config, {"default": str(place)}, Handles(handle, handle, handle, handle), True, lambda served: None)


@pytest.mark.parametrize("anonymous", [True, False])
async def test_where_keys_are_needed_readiness_names_no_folder(tmp_path: Path, anonymous: bool) -> None:
    service = service_over(tmp_path / "nowhere", anonymous)
    before = service.missing
    service.begin()
    try:
        async with asyncio.timeout(10):
            while service.missing == before:  # noqa: ASYNC110 - nothing tells of a change
                await asyncio.sleep(0.01)
    finally:
        service.end()
    assert ("nowhere" in service.missing) is anonymous
    assert ("IndexMissingError; the log says more" in service.missing) is not anonymous


async def test_what_waits_is_sent_when_the_application_ends(tmp_path: Path) -> None:
    service = service_over(tmp_path / "nowhere", True)
    ended: list[str] = []
    access = Access.of(service.config.serving)
    app = build_http(service, access, Running(lambda *_: None), {}, lambda seen: None, lambda: ended.append("spans"))
    async with app.router.lifespan_context(app):
        assert ended == []
    assert ended == ["spans"]
