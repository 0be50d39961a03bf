"""The scripted server as a fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scripted_llm.server import ScriptedServer


@pytest.fixture
def scripted_llm() -> Iterator[ScriptedServer]:
    """A running scripted server; it answers "ok" until told otherwise."""
    with ScriptedServer() as server:
        yield server
