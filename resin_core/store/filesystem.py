"""A folder on any pyarrow filesystem, and how a file comes to stand in it whole.

Knows nothing of what the files hold. Paths handed in and out are relative to the folder, with forward slashes.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from resin_core.errors import StoreError

Location = str | os.PathLike[str]


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
        if isinstance(location, IndexFolder):
            return location
        text = os.fspath(location)
        if not text.strip():
            raise StoreError("the index location is empty; give a folder or a URI, for example index.uri=./index")
        if "://" in text:
            try:
                filesystem, root = pafs.FileSystem.from_uri(text)
            except (OSError, ValueError, pa.ArrowException) as error:
                raise StoreError(
                    f"index location {text!r} cannot be opened: {_flat(error)}; give a path, file://, s3:// or gs://"
                ) from None
            return cls(filesystem, root)
        try:
            path = Path(text).expanduser().absolute()
        except RuntimeError as error:
            raise StoreError(f"index location {text!r}: {error}; write the home folder out") from None
        return cls(pafs.LocalFileSystem(), path.as_posix())

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
        try:
            infos = self.filesystem.get_file_info([self.full(path) for path in wanted]) if wanted else []
        except OSError as error:
            raise StoreError(f"index at {self} cannot be read: {_flat(error)}") from None
        return {
            path: int(info.size) if info.type == pafs.FileType.File else None
            for path, info in zip(wanted, infos, strict=True)
        }

    def names(self, folder: str) -> list[str]:
        """Names of the files in a sub-folder, sorted; none when it is missing. Raises StoreError on failure."""
        try:
            infos = self.filesystem.get_file_info(pafs.FileSelector(self.full(folder), allow_not_found=True))
        except OSError as error:
            raise StoreError(f"index at {self} cannot be read: {_flat(error)}") from None
        return sorted(info.base_name for info in infos if info.type == pafs.FileType.File)

    def put(self, path: str, write: Callable[[Any], Any], size: int | None = None) -> None:
        """Let `write` fill a stream that becomes the file at `path` in one step, replacing one that is there.

        Locally a temporary name is renamed; object stores show an object only when its upload is complete.
        `size` is given for a file named by its content. Raises StoreError when it cannot be written.
        """
        target = self.full(path)
        try:
            if not self.is_local:
                # A stream that is closed by an error may leave a short object; one that is served already must not
                # be put at that risk.
                if size is not None and self.sizes([path])[path] == size:
                    return
                with self.filesystem.open_output_stream(target) as stream:
                    write(stream)
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
            raise StoreError(f"cannot write {target}: {_flat(error)}; check the folder's rights and space") from None

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
            raise StoreError(f"cannot secure the files of the index at {self}: {_flat(error)}") from None


def _flat(error: BaseException) -> str:
    return " ".join(str(error).split())
