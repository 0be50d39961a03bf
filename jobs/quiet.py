"""Ray without words of its own on the terminal: its log files in the session's folder stay, errors still raise.

With the root logger at INFO or lower (`resin --debug`) nothing is held back.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LEVEL = "RAY_BACKEND_LOG_LEVEL"


def wanted() -> bool:
    """Whether Ray is to be kept quiet."""
    return not logging.getLogger().isEnabledFor(logging.INFO)


@contextmanager
def starting() -> Iterator[None]:
    """Around `ray.init`: its C++ part takes its level from the environment once, and says so on standard error."""
    if not wanted() or _LEVEL in os.environ:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.environ[_LEVEL] = "fatal"
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
        del os.environ[_LEVEL]


def data_messages() -> None:
    """Ray Data's console handler, which logs every run and every stack trace, and warnings of versions to come."""
    if not wanted():
        return
    import ray.data  # noqa: F401 - it sets up the handlers
    from ray._private.log import PlainRayHandler

    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, PlainRayHandler):
            handler.setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", module=r"ray\.|jobs\.")
