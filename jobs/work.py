"""The unfinished work of an index: staged documents of one run, and the replies that were paid for.

It lies in the index's own folder, so that a run on any machine that reaches the index takes it up again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from resin_core.ids import digest
from resin_core.store.filesystem import IndexFolder, Location
from resin_core.store.replies import ReplyFolder
from resin_core.store.work_paths import WORK, replies_of


class WorkFolder:
    """Picklable; `run` names this run's staging, `results` the extraction key that its replies depend on."""

    def __init__(self, location: Location | IndexFolder, run: str, results: str) -> None:
        self.folder = IndexFolder.at(location)
        self._staging = f"{WORK}/staged-{run}"
        self.results = results
        self.replies = ReplyFolder(self.folder, results)

    def stage(self, name: str, table: pa.Table) -> str:
        """Writes staged documents; returns the path for `read`."""
        path = f"{self._staging}/{digest((name,))}.parquet"
        self.folder.put(path, lambda stream: pq.write_table(table, stream, write_page_checksum=True))
        return path

    def open(self, path: PurePosixPath | str) -> Any:
        """A staged part."""
        return self.folder.open(str(path))

    def drop_staging(self) -> None:
        """Removes this run's staged documents."""
        self._drop(self._staging)

    def drop_replies(self, doc_ids: Iterable[str]) -> None:
        """Removes the replies of documents that a published generation holds; those of others stay paid for."""
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda doc_id: self._drop(replies_of(self.results, doc_id)), doc_ids))
        self._prune()

    def _prune(self) -> None:
        """Empty folders, which only a local disk has, go; one that is not empty cannot be removed."""
        root = self.folder.local(WORK)
        if root is None:
            return
        results = root / f"replies-{self.results}"
        for path in (*results.glob("*"), results, root):
            with contextlib.suppress(OSError):
                path.rmdir()

    def _drop(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, OSError):
            self.folder.filesystem.delete_dir(self.folder.full(path))
