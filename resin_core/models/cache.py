"""The folder of verified weights: where a file lies, when it is trusted, how a new one gets there whole.

A file is trusted by its size and a marker beside it which says that this very file (size, time of change) once had
the trusted hash, so that a gigabyte is not hashed at each start. A file without a marker is hashed once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from resin_core.config.sections import EmbeddedSection
from resin_core.errors import ModelError, ModelIntegrityError
from resin_core.models.registry import ModelSpec

Progress = Callable[[int, int, str], None]
"""Called with bytes done, bytes in all, and a short label."""

_log = logging.getLogger(__name__)
_BLOCK = 1 << 20
_SPARE_BYTES = 64 << 20


def cache_folder(settings: EmbeddedSection) -> Path:
    """`llm.embedded.cache_dir`, else `resin` in the user's cache folder. It need not exist."""
    if settings.cache_dir:
        return Path(settings.cache_dir).expanduser()
    root = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a relative value is to be ignored.
    return (Path(root) if Path(root).is_absolute() else Path.home() / ".cache") / "resin"


def cached(spec: ModelSpec, folder: Path, progress: Progress | None = None) -> Path | None:
    """The trusted file of that model, or None. Hashes a file of the right size that has no marker yet."""
    file = folder / spec.file_name
    try:
        state = file.stat()
    except OSError:
        return None
    if state.st_size != spec.size_bytes:
        _log.warning("%s has %d bytes, expected %d: fetching it again", file, state.st_size, spec.size_bytes)
        return None
    if _marker_of(file) == _marker(spec, state):
        return file
    found = _hash_file(file, spec, progress)
    if found != spec.sha256:
        _log.warning("%s has hash %s, expected %s: fetching it again", file, found, spec.sha256)
        return None
    _write_marker(file, spec, state)
    return file


def present(spec: ModelSpec, folder: Path) -> Path | None:
    """The model's file when one of the right size lies there; nothing is hashed (for listings)."""
    file = folder / spec.file_name
    return file if file.is_file() and file.stat().st_size == spec.size_bytes else None


def put(spec: ModelSpec, folder: Path, pieces: Iterable[bytes], progress: Progress | None, label: str) -> Path:
    """Write the pieces to a temporary file, check the hash, move it into place.

    Raises ModelIntegrityError, naming the file and both hashes; the temporary file is removed whatever happens.
    """
    file = folder / spec.file_name
    part = file.with_suffix(".part")
    digest, done = hashlib.sha256(), 0
    try:
        with part.open("wb") as out:
            for piece in pieces:
                done += len(piece)
                if done > spec.size_bytes:
                    raise ModelIntegrityError(
                        f"{file.name}: {label} gave more than the {spec.size_bytes} bytes of sha256 {spec.sha256}; "
                        "nothing was kept: try again, or set llm.embedded.model_path"
                    )
                digest.update(piece)
                out.write(piece)
                if progress:
                    progress(done, spec.size_bytes, label)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != spec.sha256:
            raise ModelIntegrityError(
                f"{file.name}: {done} bytes from {label} have sha256 {digest.hexdigest()}, expected {spec.sha256} "
                f"({spec.size_bytes} bytes); nothing was kept: try again, or set llm.embedded.model_path"
            )
        _write_marker(file, spec, part.stat())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return file


@contextmanager
def locked(spec: ModelSpec, folder: Path, progress: Progress | None) -> Iterator[Path]:
    """Hold the model's lock; yields an empty staging folder that is removed at the end.

    Of two processes that want the same weights the second waits. The lock goes with its process, so it is never stale;
    a staging folder found under it is what a killed process left, and is removed. Raises ModelError when the cache
    folder cannot be written.
    """
    staging = folder / f".{spec.file_name}.staging"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f".{spec.file_name}.lock").open("wb")
    except OSError as error:
        raise ModelError(
            f"cache folder {folder} cannot be written ({error.strerror or error}); set llm.embedded.cache_dir"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if progress:
                progress(0, spec.size_bytes, "waiting for another process")
            fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def check_space(folder: Path, needed_bytes: int) -> None:
    """Raises ModelError when the disk of `folder` lacks the bytes (and a little to spare)."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes + _SPARE_BYTES:
        raise ModelError(
            f"{folder} has {free / 1e6:.0f} MB free, {(needed_bytes + _SPARE_BYTES) / 1e6:.0f} MB are needed; "
            "make room or set llm.embedded.cache_dir to another disk"
        )


def _marker(spec: ModelSpec, state: os.stat_result) -> dict[str, object]:
    return {"sha256": spec.sha256, "size_bytes": state.st_size, "mtime_ns": state.st_mtime_ns}


def _marker_file(file: Path) -> Path:
    return file.with_suffix(".verified.json")


def _marker_of(file: Path) -> object:
    try:
        return json.loads(_marker_file(file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write_marker(file: Path, spec: ModelSpec, state: os.stat_result) -> None:
    marker = _marker_file(file)
    part = marker.with_suffix(f".{os.getpid()}.part")
    try:
        part.write_text(json.dumps(_marker(spec, state)), encoding="utf-8")
        part.replace(marker)
    except OSError as error:  # a read-only cache in an image: the file is hashed at each start, and works
        _log.info("cannot note that %s is verified (%s)", file, error)


def _hash_file(file: Path, spec: ModelSpec, progress: Progress | None) -> str:
    digest, done = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            done += len(block)
            if progress:
                progress(done, spec.size_bytes, "verifying")
    return digest.hexdigest()
