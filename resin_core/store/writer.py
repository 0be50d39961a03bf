"""Writes an index: part files from any number of workers, then one published generation from the driver."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from resin_core.errors import IndexBusyError, IndexMissingError, StoreError
from resin_core.records import UnitKind
from resin_core.store import vectors as faiss_store
from resin_core.store.filesystem import IndexFolder, Location
from resin_core.store.lock import exclusive
from resin_core.store.manifest import (
    FileEntry,
    Manifest,
    Stamp,
    generation_number,
    manifest_path,
    read_current,
    write_current,
)
from resin_core.store.parts import parquet_bytes, positions, read_column, read_part
from resin_core.store.schema import TABLES, conform, vectors_of

NORM_TOLERANCE = 1e-3
_NUMBER_TRIES = 20


class Based(Enum):
    """What a run began from, when that is no generation's id and not None (there was no index)."""

    ON_ANYTHING = auto()


Base = str | None | Literal[Based.ON_ANYTHING]


class IndexWriter:
    """Writes into the index at a path or URI. Holds no state, so workers may each have their own or a copy."""

    def __init__(self, location: Location | IndexFolder) -> None:
        self.folder = IndexFolder.at(location)

    def write_table(self, name: str, table: pa.Table) -> FileEntry:
        """One part of a table as an immutable file named by its content; the same content again is the same file.

        `name` is one of schema.TABLES; columns are brought to its schema. Raises StoreError when the table does not
        fit or the file cannot be written.
        """
        if name not in TABLES:
            raise StoreError(f"unknown table {name!r}; the tables of an index are {', '.join(TABLES)}")
        return self._write(name, table)

    def publish(self, entries: Iterable[FileEntry], stamp: Stamp, based_on: Base = Based.ON_ANYTHING) -> Manifest:
        """Make these parts the generation that is served; the last step is the pointer, so readers see all or nothing.

        Parts are put in the order of their table and name, so that the order in which workers finished leaves no
        trace, and the same part given twice counts once. Row i of FAISS is row i over the vectors parts; the table
        `unit_rows` carries its unit's row, matched by unit id. No units at all is an index that finds nothing.

        `based_on` is the generation that the run began from, None when there was no index: with another one served
        by now IndexBusyError is raised and nothing is published. By default it is not asked. On a local disk check
        and swap are one step under a lock. An object store has no such step: there the check is repeated just before
        the swap, and of two runs that swap within the same moment the later one wins.

        Raises StoreError: ids that repeat, a vector without its unit or the other way round, a dimension other than
        the stamp's, vectors that are not finite and L2-normalised. Then, as after a crash, the former generation is
        still served.
        """
        self._refuse_other_base(based_on)
        parts = self._ordered(entries)
        if not stamp.normalised:
            raise StoreError("stamp.normalised is false: scores are cosines, so encode with L2-normalised vectors")
        chosen = {name: [entry for entry in parts if entry.name == name] for name in TABLES}
        for name, column in (("documents", "doc_id"), ("passages", "passage_id"), ("units", "unit_id")):
            self._refuse_repeats(chosen[name], column)
        files = (*parts, self._unit_rows(chosen), self._faiss(chosen["vectors"], stamp))
        draft = Manifest(
            number=1,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            stamp=stamp,
            counts={name: sum(entry.rows for entry in chosen[name]) for name in TABLES},
            units_by_kind=self._units_by_kind(chosen["units"]),
            files=files,
        )
        self.folder.sync(entry.path for entry in files)
        with exclusive(self.folder):
            self._refuse_other_base(based_on)
            manifest = self._numbered(draft)
            try:
                # Last: what was collected as unused while this run worked must not be pointed to.
                self._refuse_missing({entry.path: entry for entry in files})
                self._refuse_other_base(based_on)
            except StoreError:
                self.folder.remove([manifest_path(manifest.generation)])
                raise
            write_current(self.folder, manifest.generation)
        return manifest

    def _refuse_other_base(self, based_on: Base) -> None:
        if based_on is Based.ON_ANYTHING:
            return
        try:
            current = read_current(self.folder)
        except IndexMissingError:
            current = None
        if current != based_on:
            met = f"published generation {current}" if current else f"removed generation {based_on}"
            raise IndexBusyError(
                f"another run {met} of the index at {self.folder} while this one worked; run the same command again: "
                "nothing that was paid for is lost"
            )

    def _numbered(self, draft: Manifest) -> Manifest:
        """The manifest under a number that no other has, written down."""
        for _ in range(_NUMBER_TRIES):
            number = self._next_number()
            manifest = draft.model_copy(update={"number": number}).sealed()
            path = manifest_path(manifest.generation)
            self._put(path, manifest.to_bytes())
            if list(self._numbers().values()).count(number) == 1:
                self.folder.sync([path])
                return manifest
            # Only without a lock. Of two that took the number, at least the later one sees the other and moves on.
            self.folder.remove([path])
            time.sleep(random.uniform(0, 0.5))  # noqa: S311
        raise IndexBusyError(f"too many runs publish to the index at {self.folder} at once; run this one again")

    def _put(self, path: str, content: bytes) -> None:
        self.folder.put(path, lambda stream: stream.write(content))

    def _write(self, name: str, table: pa.Table) -> FileEntry:
        table = conform(name, table)
        content = parquet_bytes(name, table)
        sha = hashlib.sha256(content).hexdigest()
        path = f"files/{name}-{sha[:32]}.parquet"
        # Locally written even when it is there: a damaged file of that name is mended by the run that makes it again.
        self.folder.put(path, lambda stream: stream.write(content), content.size)
        return FileEntry(name=name, path=path, sha256=sha, bytes=content.size, rows=table.num_rows)

    def _ordered(self, entries: Iterable[FileEntry]) -> list[FileEntry]:
        unique = {entry.path: entry for entry in entries}
        unknown = sorted({entry.name for entry in unique.values()} - set(TABLES))
        if unknown:
            raise StoreError(f"cannot publish files of {', '.join(unknown)}; the tables are {', '.join(TABLES)}")
        self._refuse_missing(unique)
        return sorted(unique.values(), key=lambda entry: (TABLES.index(entry.name), entry.path))

    def _refuse_missing(self, entries: Mapping[str, FileEntry]) -> None:
        sizes = self.folder.sizes(entries)
        for path, entry in entries.items():
            if sizes[path] != entry.bytes:
                found = "is missing" if sizes[path] is None else f"has {sizes[path]} bytes, expected {entry.bytes}"
                raise StoreError(f"cannot publish: {self.folder.full(path)} {found}; write that part again")

    def _refuse_repeats(self, entries: Sequence[FileEntry], column: str) -> None:
        ids = read_column(self.folder, entries, column)
        first = positions(ids, ids)
        repeats = np.flatnonzero(first != np.arange(len(first)))
        if len(repeats):
            raise StoreError(
                f"cannot publish: {len(repeats)} repeated {column} in table {entries[0].name}, the first is "
                f"{ids[int(repeats[0])].as_py()!r}; each id may stand once, drop the repeats before writing"
            )

    def _unit_rows(self, chosen: dict[str, list[FileEntry]]) -> FileEntry:
        units = read_column(self.folder, chosen["units"], "unit_id")
        carried = read_column(self.folder, chosen["vectors"], "unit_id")
        rows = positions(carried, units)
        if len(stray := np.flatnonzero(rows < 0)):
            raise StoreError(f"cannot publish: vector of {carried[int(stray[0])].as_py()!r} has no unit of that id")
        counts = np.bincount(rows, minlength=len(units))
        if len(wrong := np.flatnonzero(counts != 1)):
            at = int(wrong[0])
            raise StoreError(
                f"cannot publish: unit {units[at].as_py()!r} has {counts[at]} vectors, expected one; "
                "embed every unit once"
            )
        return self._write("unit_rows", pa.table({"unit_row": rows}))

    def _faiss(self, entries: Sequence[FileEntry], stamp: Stamp) -> FileEntry:
        def blocks() -> Iterator[faiss_store.Vectors]:
            for entry in entries:
                table = read_part(self.folder, entry)
                width = table.schema.field("vector").type.list_size
                if width != stamp.dimension:
                    raise StoreError(
                        f"cannot publish: {entry.path} holds vectors of {width} dimensions, the stamp says "
                        f"{stamp.dimension} (encoder {stamp.encoder!r}); embed again with that encoder"
                    )
                block = vectors_of(table["vector"], width)
                norms = np.linalg.norm(block, axis=1)
                # Written so that NaN counts as wrong.
                wrong = np.flatnonzero(~(np.abs(norms - 1) <= NORM_TOLERANCE))
                if len(wrong):
                    unit = table["unit_id"][int(wrong[0])].as_py()
                    raise StoreError(
                        f"cannot publish: the vector of unit {unit!r} in {entry.path} has length "
                        f"{norms[wrong[0]]:.4g}, expected 1; L2-normalise vectors before writing"
                    )
                yield block

        rows = sum(entry.rows for entry in entries)
        return faiss_store.write(self.folder, faiss_store.build(blocks(), rows, stamp.dimension))

    def _units_by_kind(self, entries: Sequence[FileEntry]) -> dict[str, int]:
        counted = pc.value_counts(read_column(self.folder, entries, "kind")).to_pylist()
        found = {item["values"]: int(item["counts"]) for item in counted}
        if unknown := sorted(set(found) - set(UnitKind)):
            raise StoreError(f"cannot publish: unknown unit kind {unknown[0]!r}; the kinds are {', '.join(UnitKind)}")
        return {kind.value: found.get(kind.value, 0) for kind in UnitKind}

    def _next_number(self) -> int:
        return max(self._numbers().values(), default=0) + 1

    def _numbers(self) -> dict[str, int]:
        names = self.folder.names("generations")
        return {name: generation_number(name.removesuffix(".json")) or 0 for name in names}
