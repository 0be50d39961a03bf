"""Whether two indexes hold the same: every field of every row, in any order and any division into files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from resin_core.store.filesystem import IndexFolder
from resin_core.store.manifest import Manifest, read_manifest
from resin_core.store.parts import read_parts
from resin_core.store.schema import vectors_of

TABLES = ("documents", "sentences", "passages", "units", "rejects")
NEAR = 1e-6
_SHOWN = 200


def differences(reference: Path, other: Path) -> list[str]:
    """One line for each table that differs: how many rows, and the first of them; none when the indexes are equal."""
    left, right = _open(reference), _open(other)
    found = [line for name in TABLES if (line := _table_difference(name, left, right))]
    return found + _vector_differences(left, right)


def counts(index: Path) -> dict[str, int]:
    """Rows of each table of the index, as its manifest says."""
    return dict(_open(index)[1].counts)


def _open(index: Path) -> tuple[IndexFolder, Manifest]:
    folder = IndexFolder.at(str(index))
    return folder, read_manifest(folder)


def _table_difference(name: str, left: tuple[IndexFolder, Manifest], right: tuple[IndexFolder, Manifest]) -> str:
    ours, theirs = _rows(name, *left), _rows(name, *right)
    lost, added = ours - theirs, theirs - ours
    if not lost and not added:
        return ""
    parts = []
    for word, rows in (("missing", lost), ("not in the reference", added)):
        if rows:
            parts.append(f"{rows.total()} {word}, first {min(rows)[:_SHOWN]}")
    return f"{name}: {'; '.join(parts)}"


def _rows(name: str, folder: IndexFolder, manifest: Manifest) -> Counter[str]:
    rows: Counter[str] = Counter()
    for table in read_parts(folder, manifest.entries(name)):
        rows.update(json.dumps(row, sort_keys=True, ensure_ascii=False) for row in table.to_pylist())
    return rows


def _vector_differences(left: tuple[IndexFolder, Manifest], right: tuple[IndexFolder, Manifest]) -> list[str]:
    (ids, ours), (other_ids, theirs) = _vectors(*left), _vectors(*right)
    if ids != other_ids:
        lost, added = Counter(ids) - Counter(other_ids), Counter(other_ids) - Counter(ids)
        return [f"vectors: {lost.total()} unit ids missing, {added.total()} not in the reference"]
    if ours.shape != theirs.shape:
        return [f"vectors: of shape {theirs.shape}, in the reference {ours.shape}"]
    apart = np.abs(ours - theirs).max(axis=1, initial=0.0)
    far = np.flatnonzero(~(apart <= NEAR))
    if not len(far):
        return []
    return [f"vectors: {len(far)} more than {NEAR} apart, first {ids[far[0]]} by {apart[far[0]]:.2e}"]


def _vectors(folder: IndexFolder, manifest: Manifest) -> tuple[list[str], npt.NDArray[np.float32]]:
    """Unit ids in order, and their vectors beside them."""
    dimension = manifest.stamp.dimension
    parts: list[tuple[str, Any]] = []
    for table in read_parts(folder, manifest.entries("vectors")):
        vectors = vectors_of(table.column("vector"), dimension)
        parts += zip(table.column("unit_id").to_pylist(), vectors, strict=True)
    parts.sort(key=lambda part: str(part[0]))
    rows = np.array([vector for _, vector in parts], np.float32).reshape(-1, dimension)
    return [unit_id for unit_id, _ in parts], rows
