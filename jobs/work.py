"""The unfinished work of an index: staged documents of one run, and results of documents kept for the next.

It lies in the index's own folder, so that a run on any machine that reaches the index takes it up again.
"""

from __future__ import annotations

import contextlib
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from resin_core.ids import digest
from resin_core.store.filesystem import IndexFolder, Location

_WORK = "work"


class WorkFolder:
    """Picklable; `run` names this run's staging, `results` the extraction key its results depend on."""

    def __init__(self, location: Location | IndexFolder, run: str, results: str) -> None:
        self.folder = IndexFolder.at(location)
        self._staging = f"{_WORK}/staged-{run}"
        self._results = f"{_WORK}/results-{results}"

    def stage(self, name: str, table: pa.Table) -> str:
        """Writes staged documents; returns the path for `open`."""
        path = f"{self._staging}/{digest((name,))}.parquet"
        self._put(path, table)
        return path

    def open(self, path: PurePosixPath) -> Any:
        """A staged part."""
        return self.folder.open(str(path))

    def keep(self, key: str, row: pa.Table) -> None:
        """Keeps one document's result: from here on it is never paid for again."""
        self._put(self._kept_path(key), row)

    def kept(self, key: str) -> pa.Table | None:
        """A kept result, or None. One that cannot be read, or was altered, is made again."""
        try:
            with self.folder.open(self._kept_path(key)) as file:
                return pq.read_table(file, page_checksum_verification=True)
        except (FileNotFoundError, pa.ArrowInvalid, OSError):
            return None

    def drop_staging(self) -> None:
        """Removes this run's staged documents."""
        self._drop(self._staging)

    def drop_all(self) -> None:
        """Removes all unfinished work: after a publish nothing of it is needed."""
        self._drop(_WORK)

    def _kept_path(self, key: str) -> str:
        return f"{self._results}/{key[:2]}/{key}.parquet"

    def _put(self, path: str, table: pa.Table) -> None:
        self.folder.put(path, lambda stream: pq.write_table(table, stream, write_page_checksum=True))

    def _drop(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, OSError):
            self.folder.filesystem.delete_dir(self.folder.full(path))
