"""A folder on any pyarrow filesystem, and how a file comes to stand in it whole.

Knows nothing of what the files hold. Paths handed in and out are relative to the folder, with forward slashes.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from resin_core.errors import StoreError
from resin_core.store.location import flat, resolve

Location = str | os.PathLike[str]
_THREADS = 16  # of waiting for a remote filesystem
_LIST_BEYOND = 16  # so many files asked for one by one cost more than listing their folder
_FRESH_S = 3600.0
_REWRITE_BYTES = 64 << 20


class Stored(NamedTuple):
    """A file that is there; `modified_s` is seconds since the epoch, or None where the filesystem does not say."""

    path: str
    bytes: int
    modified_s: float | None


class IndexFolder:
    """The folder of one index. Picklable, so that workers may carry it."""

    def __init__(self, filesystem: Any, root: str) -> None:
        """`filesystem` is a pyarrow.fs.FileSystem, `root` the folder's path on it."""
        self.filesystem = filesystem
        self.root = root.rstrip("/") or "/"
        self.is_local = isinstance(filesystem, pafs.LocalFileSystem)

    @classmethod
    def at(cls, location: Location | IndexFolder) -> IndexFolder:
        """The folder at a path (relative and `~` are fine) or a URI such as file:///data/index or s3://bucket/index.

        Raises StoreError when the URI's scheme is unknown or its filesystem cannot be reached.
        """
        return location if isinstance(location, IndexFolder) else cls(*resolve(os.fspath(location)))

    def __str__(self) -> str:
        return self.root if self.is_local else f"{self.filesystem.type_name}:{self.root}"

    def full(self, path: str) -> str:
        """The path on the filesystem."""
        return f"{self.root.rstrip('/')}/{path}"

    def local(self, path: str) -> Path | None:
        """The path for programs that need a local file, or None on other filesystems."""
        return Path(self.full(path)) if self.is_local else None

    def open(self, path: str) -> Any:
        """A random access file (pyarrow.NativeFile). Raises FileNotFoundError or OSError."""
        return self.filesystem.open_input_file(self.full(path))

    def read(self, path: str) -> bytes:
        """A small file whole. Raises FileNotFoundError or OSError."""
        with self.open(path) as file:
            return bytes(file.read())

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """Bytes of each file, None where there is no such file. Raises StoreError when the filesystem fails."""
        wanted = list(paths)
        if not self.is_local and len(wanted) > _LIST_BEYOND:
            folders = sorted({path.rpartition("/")[0] for path in wanted})
            found = {stored.path: stored.bytes for folder in folders for stored in self.files(folder, deep=False)}
            return {path: found.get(path) for path in wanted}
        infos = self._infos([self.full(path) for path in wanted]) if wanted else []
        return {
            path: int(info.size) if info.type == pafs.FileType.File else None
            for path, info in zip(wanted, infos, strict=True)
        }

    def names(self, folder: str) -> list[str]:
        """Names of the files in a sub-folder, sorted; none when it is missing. Raises StoreError on failure."""
        return sorted(info.base_name for info in self._listed(folder) if info.type == pafs.FileType.File)

    def folders(self, folder: str) -> list[str]:
        """Names of the folders in a sub-folder, sorted; none when it is missing. Raises StoreError on failure."""
        return sorted(info.base_name for info in self._listed(folder) if info.type == pafs.FileType.Directory)

    def files(self, folder: str, deep: bool = True) -> list[Stored]:
        """The files below a sub-folder (or "", this folder), at any depth when `deep`. Raises StoreError on failure."""
        base = self.full(folder).rstrip("/")
        return [
            Stored(f"{folder}/{info.path[len(base) + 1 :]}".lstrip("/"), int(info.size), _modified(info))
            for info in self._listed(folder, deep)
            if info.type == pafs.FileType.File
        ]

    def remove(self, paths: Iterable[str]) -> None:
        """Delete these files; one that is not there is fine. Raises StoreError when one cannot be deleted."""

        def delete(path: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                self.filesystem.delete_file(self.full(path))

        try:
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(delete, paths))
        except OSError as error:
            raise StoreError(f"cannot delete in {self}: {flat(error)}; check the folder's rights") from None

    def remove_folder(self, path: str) -> None:
        """Delete a sub-folder and all in it; one that is not there is fine. Raises StoreError."""
        try:
            self.filesystem.delete_dir(self.full(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot delete {self.full(path)}: {flat(error)}; check the folder's rights") from None

    def put(self, path: str, write: Callable[[Any], Any], size: int | None = None) -> None:
        """Let `write` fill a stream that becomes the file at `path` in one step, replacing one that is there.

        Locally a temporary name is renamed; object stores show an object only when its upload is complete.
        `size` is given for a file named by its content. Raises StoreError when it cannot be written.
        """
        target = self.full(path)
        try:
            if not self.is_local:
                self._upload(target, write, size)
                return
            folder, _, name = target.rpartition("/")
            self.filesystem.create_dir(folder, recursive=True)
            temporary = f"{folder}/.{name}.{uuid.uuid4().hex}.tmp"
            try:
                with self.filesystem.open_output_stream(temporary) as stream:
                    write(stream)
                self.filesystem.move(temporary, target)
            except BaseException:
                with contextlib.suppress(OSError):
                    self.filesystem.delete_file(temporary)
                raise
        except OSError as error:
            raise StoreError(f"cannot write {target}: {flat(error)}; check the folder's rights and space") from None

    def sync(self, paths: Iterable[str]) -> None:
        """Have the local disk keep these files and their names before anything that points to them is written."""
        if not self.is_local:
            return
        files = [Path(self.full(path)) for path in paths]
        try:
            for file in [*files, *sorted({file.parent for file in files})]:
                descriptor = os.open(file, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        except OSError as error:
            raise StoreError(f"cannot secure the files of the index at {self}: {flat(error)}") from None

    def _upload(self, target: str, write: Callable[[Any], Any], size: int | None) -> None:
        if size is not None:
            (info,) = self._infos([target])
            if info.type == pafs.FileType.File and info.size == size:
                modified = _modified(info)
                if modified is None or time.time() - modified < _FRESH_S or size > _REWRITE_BYTES:
                    return
                # It may be about to be collected as unused. Written again it is new, and so left alone.
            else:
                self._stream(target, write)
                return
        # A stream that an error closes leaves a short object. What is written in one piece is there whole or not at
        # all, so that one that is served already is at no risk.
        sink = pa.BufferOutputStream()
        write(sink)
        content = sink.getvalue()
        with self.filesystem.open_output_stream(target) as stream:
            stream.write(content)

    def _stream(self, target: str, write: Callable[[Any], Any]) -> None:
        try:
            with self.filesystem.open_output_stream(target) as stream:
                write(stream)
        except BaseException:
            with contextlib.suppress(OSError):
                self.filesystem.delete_file(target)
            raise

    def _listed(self, folder: str, deep: bool = False) -> list[Any]:
        return self._infos(pafs.FileSelector(self.full(folder).rstrip("/"), allow_not_found=True, recursive=deep))

    def _infos(self, wanted: Any) -> list[Any]:
        try:
            return list(self.filesystem.get_file_info(wanted))
        except OSError as error:
            raise StoreError(f"index at {self} cannot be read: {flat(error)}") from None


def _modified(info: Any) -> float | None:
    return None if info.mtime_ns is None else float(info.mtime_ns) / 1e9
