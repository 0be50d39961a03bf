"""Which rejects another try may mend."""

from __future__ import annotations

_SETTLED = frozenset({"parse", "ground"})


def is_retried(stage: str) -> bool:
    """Whether something failed on the way; claims that were read and found wanting stay rejected."""
    return stage not in _SETTLED
