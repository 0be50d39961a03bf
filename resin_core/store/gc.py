"""Frees what no kept generation needs: old manifests first, then files, so that a crash leaves only unused files.

A running job writes parts long before it publishes them, so a file is collected only when it is older than a grace
period, which must be longer than the longest run; a job whose parts were collected all the same is refused at its
publication. On a local disk nothing is published while this works. An object store cannot keep others out: there a
run that has had to do with a file within the last hour has made it new.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from resin_core.errors import IndexCorruptError, IndexFormatError, IndexMissingError
from resin_core.records import Record
from resin_core.store.filesystem import IndexFolder, Location, Stored
from resin_core.store.lock import exclusive
from resin_core.store.manifest import generation_number, manifest_path, read_current, read_manifest
from resin_core.store.unfinished import drop_kept, drop_staged, stale

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


class GcReport(Record):
    """What went and what stays. `files_removed` counts all but manifests; `bytes_freed` counts everything."""

    generations_removed: tuple[str, ...]
    generations_kept: tuple[str, ...]
    files_removed: int
    bytes_freed: int


def collect(
    location: Location | IndexFolder, keep: int, grace_s: float, now: float | None = None, work: bool = False
) -> GcReport:
    """Drop generations beyond the newest `keep` (at least 1), and files older than `grace_s` that nothing needs.

    The generation that is served is kept in any case. Collected are: files of no kept generation, what killed runs
    left of unfinished files and of staged documents; with `work` also kept replies, which were paid for. `now` is in
    seconds since the epoch. A reader of a dropped generation that was opened before may miss documents.

    Raises IndexMissingError when there is no index. Raises IndexCorruptError or IndexFormatError, and deletes
    nothing, when a manifest to keep cannot be read: what it needs is not known.
    """
    if keep < 1 or grace_s < 0:
        raise ValueError(f"keep is {keep}, grace_s is {grace_s}; keep at least 1 and no grace below 0")
    folder = IndexFolder.at(location)
    before_s = (time.time() if now is None else now) - grace_s
    read_current(folder)  # before the lock, which would make a folder of a mistyped name
    with exclusive(folder):
        current = read_current(folder)
        manifests = _manifests(folder)
        newest = sorted(manifests, key=lambda generation: (generation_number(generation) or 0, generation))
        kept = [generation for generation in newest if generation in newest[-keep:] or generation == current]
        removed = [generation for generation in newest if generation not in kept]
        needed = _needed(folder, {*kept, current})
        folder.remove(manifest_path(generation) for generation in removed)
        # Without a lock another run may have published meanwhile.
        needed |= _needed(folder, _manifests(folder).keys() - manifests.keys())
        gone = [stored for stored in stale(folder.files("files"), before_s) if stored.path not in needed]
        gone += _temporaries([*folder.files("", deep=False), *folder.files("generations")], before_s)
        folder.remove(stored.path for stored in gone)
        gone += drop_staged(folder, before_s)
        if work:
            gone += drop_kept(folder, before_s)
    return GcReport(
        generations_removed=tuple(removed),
        generations_kept=tuple(kept),
        files_removed=len(gone),
        bytes_freed=sum(stored.bytes for stored in gone) + sum(manifests[generation] for generation in removed),
    )


def _manifests(folder: IndexFolder) -> dict[str, int]:
    """Every generation and its manifest's size. Raises IndexCorruptError for a manifest under a name that is none."""
    found = {}
    for stored in folder.files("generations", deep=False):
        name = stored.path.rpartition("/")[2]
        if name.endswith(".json") and not name.startswith("."):
            generation = name.removesuffix(".json")
            if generation_number(generation) is None:
                raise _refusal(folder, stored.path, "its name is no generation's; move it away")
            found[generation] = stored.bytes
    return found


def _needed(folder: IndexFolder, generations: Iterable[str]) -> set[str]:
    needed: set[str] = set()
    for generation in generations:
        try:
            needed |= {entry.path for entry in read_manifest(folder, generation).files}
        except (IndexCorruptError, IndexMissingError) as error:
            raise _refusal(folder, manifest_path(generation), str(error)) from None
        except IndexFormatError as error:
            raise IndexFormatError(f"nothing was deleted: {error}") from None
    return needed


def _refusal(folder: IndexFolder, path: str, why: str) -> IndexCorruptError:
    return IndexCorruptError(
        path, f"nothing was deleted in the index at {folder}: what {path} needs is not known ({why}); see resin verify"
    )


def _temporaries(files: Iterable[Stored], before_s: float) -> list[Stored]:
    return [stored for stored in stale(files, before_s) if _TEMPORARY.fullmatch(stored.path.rpartition("/")[2])]
