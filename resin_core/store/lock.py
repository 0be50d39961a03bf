"""One at a time on a local disk: whoever moves the pointer of an index, or deletes what it may be about to point to.

The lock is held by an open file and so let go by the operating system when its holder dies; the file itself stays. On
object stores there is no such lock, and on disks that know none the block runs without one: callers check again, just
before the step that counts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resin_core.errors import IndexBusyError, StoreError
from resin_core.store.filesystem import IndexFolder

LOCK = ".lock"
_POLL_S = 0.02
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def exclusive(folder: IndexFolder, wait_s: float = 300.0) -> Iterator[None]:
    """Holds the index's lock. Raises IndexBusyError when another process holds it for longer than `wait_s`."""
    path = folder.local(LOCK)
    if path is None:
        yield
        return
    descriptor = _opened(path)
    try:
        deadline = time.monotonic() + wait_s
        while not _locked(path, descriptor):
            if time.monotonic() >= deadline:
                raise IndexBusyError(
                    f"another process has held {path} for {wait_s:g} s; see what runs on this index, then try again"
                )
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StoreError(f"cannot open {path}: {error.strerror}; check the folder's rights") from None


def _locked(path: Path, descriptor: int) -> bool:
    try:
        # Of the open file and not of the process, so that two threads keep each other out too.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise StoreError(f"cannot lock {path}: {error.strerror}; check the folder's rights") from None
    return True
