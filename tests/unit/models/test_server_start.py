"""What the embedded server says when it cannot start; no model is needed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from resin_core.config.sections import EmbeddedSection
from resin_core.errors import ModelError, ModelIntegrityError, ModelNotFoundError, ServerStartError
from resin_core.models import server
from resin_core.models.server import EmbeddedServer, default_threads


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """Begins like a model and is none."""
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF\x03\x00\x00\x00 and nothing that fits")
    return file


def children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


def test_bad_model_file(broken: Path) -> None:
    before = children()
    embedded = EmbeddedServer(EmbeddedSection(model_path=str(broken)), "tiny")
    with pytest.raises(ServerStartError) as caught:
        embedded.start()
    message = str(caught.value)
    assert str(broken) in message
    assert "status 1" in message
    assert "failed to load model" in message
    assert "llm.embedded.model_path" in message
    assert not embedded.alive()
    assert embedded.fault() == ""
    assert children() == before


def test_too_slow_a_start_is_ended(broken: Path) -> None:
    before = children()
    embedded = EmbeddedServer(EmbeddedSection(model_path=str(broken), start_timeout_s=0.001), "tiny")
    with pytest.raises(
        ServerStartError, match=r"not healthy within 0\.001 s[\s\S]*raise llm\.embedded\.start_timeout_s"
    ):
        embedded.start()
    assert children() == before


def test_file_of_another_kind_and_no_file(tmp_path: Path) -> None:
    other = tmp_path / "x.gguf"
    other.write_text("a text")
    with pytest.raises(ModelIntegrityError):
        EmbeddedServer(EmbeddedSection(model_path=str(other)), "tiny").start()
    with pytest.raises(ModelNotFoundError):
        EmbeddedServer(EmbeddedSection(model_path=str(tmp_path / "absent")), "tiny").start()


def test_missing_runtime_names_the_fix(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    with pytest.raises(ServerStartError, match=r'pip install "resin\[cpu\]".*llm\.base_url'):
        EmbeddedServer(EmbeddedSection(model_path=str(broken)), "tiny").start()


def test_not_started(broken: Path) -> None:
    embedded = EmbeddedServer(EmbeddedSection(model_path=str(broken)), "tiny")
    embedded.stop()
    assert not embedded.alive()
    for wanted in ("base_url", "api_key", "pid"):
        with pytest.raises(ModelError, match="is not started"):
            getattr(embedded, wanted)


def test_a_flood_on_stderr_cannot_block_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child.py"
    child.write_text("import sys\nfor n in range(200000): print('line', n, file=sys.stderr)\nsys.exit(3)\n")
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    monkeypatch.setattr(server, "_CHILD", child)
    begin = time.monotonic()
    with pytest.raises(ServerStartError, match=r"status 3[\s\S]*line 199999\n"):
        EmbeddedServer(EmbeddedSection(model_path=str(model), start_timeout_s=60), "tiny").start()
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(
    ("limit", "threads"), [("max 100000", 4), ("150000 100000", 2), ("1000 100000", 1), ("800000 100000", 4)]
)
def test_threads_follow_affinity_and_container_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    (tmp_path / "cpu.max").write_text(limit)
    assert default_threads(tmp_path / "cpu.max") == threads
    assert default_threads(tmp_path / "absent") == 4
