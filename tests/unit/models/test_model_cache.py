"""The cache of verified weights."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from resin_core.config.sections import EmbeddedSection
from resin_core.errors import ModelError, ModelIntegrityError
from resin_core.models import cache
from resin_core.models.registry import ModelSpec


def put(spec: ModelSpec, folder: Path, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    pieces = [content[at : at + 100_000] for at in range(0, len(content), 100_000)]
    return cache.put(spec, folder, pieces, None, "test")


def no_hashing(*_: object) -> str:
    raise AssertionError("the file was hashed again")


def test_folder_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_folder(EmbeddedSection(cache_dir="/weights")) == Path("/weights")
    assert cache.cache_folder(EmbeddedSection()) == tmp_path / "xdg" / "resin"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.cache_folder(EmbeddedSection()) == Path.home() / ".cache" / "resin"


def test_put_then_cached_without_hashing(
    spec: ModelSpec, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    tmp_path.joinpath("c").mkdir()
    file = cache.put(
        spec, tmp_path / "c", [content[:10], content[10:]], lambda done, total, label: seen.append(done), "test"
    )
    assert file.read_bytes() == content
    assert seen == [10, len(content)]
    monkeypatch.setattr(cache, "_hash_file", no_hashing)
    assert cache.cached(spec, tmp_path / "c") == file


def test_wrong_hash_names_file_and_both_hashes(spec: ModelSpec, tmp_path: Path, content: bytes) -> None:
    wrong = b"X" + content[1:]
    with pytest.raises(ModelIntegrityError) as caught:
        put(spec, tmp_path, wrong)
    message = str(caught.value)
    assert spec.file_name in message
    assert spec.sha256 in message
    assert hashlib.sha256(wrong).hexdigest() in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("extra", [-1, 1])
def test_wrong_length_leaves_nothing(spec: ModelSpec, tmp_path: Path, content: bytes, extra: int) -> None:
    with pytest.raises(ModelIntegrityError, match=spec.sha256):
        put(spec, tmp_path, content[:extra] if extra < 0 else content + b"x")
    assert list(tmp_path.iterdir()) == []


def test_break_off_leaves_nothing(spec: ModelSpec, tmp_path: Path) -> None:
    def pieces() -> object:
        yield b"GGUF"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.put(spec, tmp_path, pieces(), None, "test")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_file_without_marker_is_hashed_once(
    spec: ModelSpec, tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / spec.file_name
    file.write_bytes(content)
    labels: set[str] = set()
    assert cache.cached(spec, tmp_path, lambda done, total, label: labels.add(label)) == file
    assert labels == {"verifying"}
    monkeypatch.setattr(cache, "_hash_file", no_hashing)
    assert cache.cached(spec, tmp_path) == file


def test_altered_file_is_not_trusted(spec: ModelSpec, tmp_path: Path, content: bytes) -> None:
    file = put(spec, tmp_path, content)
    file.write_bytes(b"X" + content[1:])
    os.utime(file, ns=(1, 1))
    assert cache.cached(spec, tmp_path) is None


def test_wrong_size_is_not_trusted_even_with_a_marker(spec: ModelSpec, tmp_path: Path, content: bytes) -> None:
    file = put(spec, tmp_path, content)
    file.write_bytes(content[:-1])
    assert cache.cached(spec, tmp_path) is None
    assert cache.present(spec, tmp_path) is None


def test_damaged_marker_means_hash_again(spec: ModelSpec, tmp_path: Path, content: bytes) -> None:
    file = put(spec, tmp_path, content)
    marker = file.with_suffix(".verified.json")
    marker.write_text("{not json")
    assert cache.cached(spec, tmp_path) == file
    assert spec.sha256 in marker.read_text()


def test_marker_that_cannot_be_written_does_not_matter(spec: ModelSpec, tmp_path: Path, content: bytes) -> None:
    (tmp_path / spec.file_name).with_suffix(".verified.json").mkdir()
    file = tmp_path / spec.file_name
    file.write_bytes(content)
    assert cache.cached(spec, tmp_path) == file


def test_lock_clears_what_a_killed_process_left(spec: ModelSpec, tmp_path: Path) -> None:
    with cache.locked(spec, tmp_path, None) as staging:
        (staging / "half").write_bytes(b"x")
        kept = tmp_path / "copy"
        shutil.copytree(staging, kept)
    assert not staging.exists()
    kept.rename(staging)
    with cache.locked(spec, tmp_path, None) as again:
        assert list(again.iterdir()) == []


def test_folder_that_cannot_be_made(spec: ModelSpec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(ModelError, match=r"cache folder .* cannot be written .*cache_dir"),
        cache.locked(spec, tmp_path / "file" / "below", None),
    ):
        pass


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda path: usage(100, 0, 70 << 20))
    cache.check_space(tmp_path, 1 << 20)
    with pytest.raises(ModelError, match=r"MB free, .* MB are needed; .*cache_dir"):
        cache.check_space(tmp_path, 10 << 20)
