"""The real command line in process: its status and what it wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from resin_core.cli.main import main


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def resin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `resin` with these arguments; no configuration comes in from the environment."""
    for name in ("RESIN_CONFIG", "RESIN_LLM_BASE_URL", "RESIN_LLM_MODEL", "RESIN_LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        status = main(arguments)
        return Ran(status, *capsys.readouterr())

    return run
