"""Audits an index: every byte against its hash, then what the files say against each other.

Reads part by part; over the whole index it holds ids and offsets only, never texts or vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from resin_core.errors import IndexCorruptError, StoreError
from resin_core.records import Record
from resin_core.store.checks import content_problems
from resin_core.store.filesystem import IndexFolder, Location
from resin_core.store.manifest import POINTER, FileEntry, Manifest, manifest_path, read_current, read_manifest

_BLOCK_BYTES = 1 << 20
_MAX_PER_FILE = 20


class Problem(Record):
    """What is wrong with one file; `path` is relative to the index folder."""

    path: str
    message: str


def verify(location: Location | IndexFolder) -> list[Problem]:
    """Everything wrong with the index at a path or URI; an empty list when it is sound.

    Checked first: the pointer, every manifest against its own name, every listed file's size and sha256. When the
    generation that is served is whole so far, its content is checked too: quotes and passages against their documents,
    units within their passages, sentences, units against vectors and FAISS, counts. At most 20 problems are listed for
    one file. Raises StoreError only when the location itself cannot be opened.
    """
    folder = IndexFolder.at(location)
    problems: list[Problem] = []
    current = _pointer(folder, problems)
    manifests = _manifests(folder, current, problems)
    entries = {entry.path: entry for manifest in manifests.values() for entry in manifest.files}
    with ThreadPoolExecutor(max_workers=4) as pool:
        for found in pool.map(lambda entry: _integrity(folder, entry), entries.values()):
            problems += found
    broken = {problem.path for problem in problems}
    served = manifests.get(current or "")
    if served is not None and not broken & {entry.path for entry in served.files}:
        problems += _limited(content_problems(folder, served))
    return problems


def _pointer(folder: IndexFolder, problems: list[Problem]) -> str | None:
    try:
        return read_current(folder)
    except StoreError as error:
        problems.append(Problem(path=POINTER, message=str(error)))
        return None


def _manifests(folder: IndexFolder, current: str | None, problems: list[Problem]) -> dict[str, Manifest]:
    names = [name.removesuffix(".json") for name in folder.names("generations") if name.endswith(".json")]
    manifests: dict[str, Manifest] = {}
    for generation in names:
        if generation.startswith("."):  # what a killed run left of a file it had not finished
            continue
        try:
            manifests[generation] = read_manifest(folder, generation)
        except StoreError as error:
            problems.append(Problem(path=manifest_path(generation), message=str(error)))
    if current is not None and current not in names:
        message = (
            f"{POINTER} names generation {current}, but {manifest_path(current)} is missing; run resin index again"
        )
        problems.append(Problem(path=POINTER, message=message))
    return manifests


def _integrity(folder: IndexFolder, entry: FileEntry) -> list[Problem]:
    digest, size = hashlib.sha256(), 0
    try:
        with folder.filesystem.open_input_stream(folder.full(entry.path)) as stream:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
                size += len(block)
    except FileNotFoundError:
        return [Problem(path=entry.path, message="the file is missing; restore it or run resin index again")]
    except OSError as error:
        return [Problem(path=entry.path, message=f"cannot be read: {' '.join(str(error).split())}")]
    if size != entry.bytes:
        return [Problem(path=entry.path, message=f"has {size} bytes, the manifest says {entry.bytes}")]
    if digest.hexdigest() != entry.sha256:
        return [Problem(path=entry.path, message="was altered: its sha256 is not the manifest's")]
    return []


def _limited(found: Iterable[tuple[str, str]]) -> list[Problem]:
    problems: list[Problem] = []
    counts: dict[str, int] = {}
    try:
        for path, message in found:
            counts[path] = counts.get(path, 0) + 1
            if counts[path] <= _MAX_PER_FILE:
                problems.append(Problem(path=path, message=message))
    except IndexCorruptError as error:
        problems.append(Problem(path=error.path, message=str(error)))
    problems += [
        Problem(path=path, message=f"and {count - _MAX_PER_FILE} more problems in this file")
        for path, count in counts.items()
        if count > _MAX_PER_FILE
    ]
    return problems
