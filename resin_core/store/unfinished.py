"""What runs leave in an index's folder besides generations: finding it by document or by age, and removing it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from resin_core.ids import digest
from resin_core.store.filesystem import IndexFolder, Stored
from resin_core.store.work_paths import REPLIES, STAGED, WORK, replies_of


def stale(files: Iterable[Stored], before_s: float) -> list[Stored]:
    """The files last written before a time (seconds since the epoch); one of unknown age is not among them."""
    return [stored for stored in files if stored.modified_s is not None and stored.modified_s < before_s]


def drop_staged(folder: IndexFolder, before_s: float) -> list[Stored]:
    """Remove the staged documents of every run that has staged nothing since; returns the files. Raises StoreError."""
    dropped = []
    for name in folder.folders(WORK):
        if name.startswith(STAGED):
            files = folder.files(f"{WORK}/{name}")
            if files and len(stale(files, before_s)) == len(files):
                folder.remove_folder(f"{WORK}/{name}")
                dropped += files
    return dropped


def drop_kept(folder: IndexFolder, before_s: float) -> list[Stored]:
    """Remove what is kept for later runs (replies, paid for) and is older; returns the files. Raises StoreError."""
    dropped = []
    for name in folder.folders(WORK):
        if not name.startswith(STAGED):
            files = folder.files(f"{WORK}/{name}")
            old = stale(files, before_s)
            if files and len(old) == len(files):
                folder.remove_folder(f"{WORK}/{name}")
            else:
                folder.remove(stored.path for stored in old)
            dropped += old
    return dropped


def drop_replies(folder: IndexFolder, doc_ids: Sequence[str]) -> None:
    """Remove the replies kept for these documents, whatever they were made with. Raises StoreError."""
    for name in folder.folders(WORK):
        if name.startswith(REPLIES):
            wanted = {replies_of(name.removeprefix(REPLIES), doc_id) for doc_id in doc_ids}
            starts = {digest((doc_id,))[:2] for doc_id in doc_ids} & set(folder.folders(f"{WORK}/{name}"))
            for parent in (f"{WORK}/{name}/{start}" for start in sorted(starts)):
                for path in (f"{parent}/{one}" for one in folder.folders(parent)):
                    if path in wanted:
                        folder.remove_folder(path)
