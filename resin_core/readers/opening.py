"""Opening a source file without ever waiting for one that is not a regular file."""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

from resin_core.readers.rejects import ReadFailure


def open_regular(path: str) -> BinaryIO:
    """The file opened for reading bytes. Raises OSError, also for a pipe or a device (which could block for ever)."""
    stream = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - handed to the caller
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "not a regular file", path)
    return stream


def read_bytes(path: str, max_bytes: int) -> bytes:
    """All bytes of the file. Raises OSError, and ReadFailure "too-large" before more than `max_bytes` are held."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        raw = stream.read(max_bytes + 1) if size <= max_bytes else b""
    if size > max_bytes or len(raw) > max_bytes:
        raise ReadFailure("too-large", f"{max(size, len(raw))} bytes; at most {max_bytes} are read")
    return raw


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
