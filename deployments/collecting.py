"""Python's garbage collector in replicas: what was loaded at the start is not looked at again and again."""

from __future__ import annotations

import gc

# Objects of a call are freed by their reference counts; cycles are few, so they may wait longer than by default.
_THRESHOLDS = (20_000, 20, 20)


def freeze() -> None:
    """Call it once, when a replica holds what it will hold: models, indexes, libraries."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
