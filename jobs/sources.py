"""The source files of a run as Arrow blocks: a list of any length without an object a file on the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from resin_core.readers.sources import SourceFile, list_sources
from resin_core.records import Reject
from resin_core.store.manifest import FileEntry
from resin_core.store.schema import to_table
from resin_core.store.writer import IndexWriter

_BLOCK_FILES = 64
_BLOCK_BYTES = 32_000_000


class Listed:
    """Files in blocks for one reading task each; what cannot be read is set aside. Raises SourceError when made."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._take(list_sources(sources))

    @classmethod
    def again(cls, places: Mapping[str, str]) -> Listed:
        """Files, each under the document id that it had below the folder it was found in."""
        found = cls.__new__(cls)
        items = (item for path in sorted(places) for item in list_sources([path]))
        found._take(
            item.model_copy(update={"doc_id": places[item.path]}) if isinstance(item, SourceFile) else item
            for item in items
        )
        return found

    def _take(self, items: Iterable[SourceFile | Reject]) -> None:
        self._rejected: list[Reject] = []
        self._blocks: list[pa.Table] = []
        lines: list[str] = []
        size = 0
        for item in items:
            if not isinstance(item, SourceFile):
                self._rejected.append(item)
                continue
            if lines and (len(lines) >= _BLOCK_FILES or size + item.size_bytes > _BLOCK_BYTES):
                self._blocks.append(_block(lines))
                lines, size = [], 0
            lines.append(item.model_dump_json())
            size += item.size_bytes
        if lines:
            self._blocks.append(_block(lines))

    @property
    def reasons(self) -> Counter[str]:
        """Why files were set aside, counted."""
        return Counter(f"{reject.stage}:{reject.reason}" for reject in self._rejected)

    def blocks(self) -> Iterator[pa.Table]:
        """Tables with the column `file`, a SourceFile as JSON; each is given once and then forgotten."""
        while self._blocks:
            yield self._blocks.pop(0)

    def write_rejects(self, writer: IndexWriter) -> list[FileEntry]:
        """The files that were set aside, as a part."""
        return [writer.write_table("rejects", to_table("rejects", self._rejected))] if self._rejected else []


def _block(lines: list[str]) -> pa.Table:
    return pa.table({"file": pa.array(lines, pa.string())})
