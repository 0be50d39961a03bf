"""The heavier shells, installed beside the core and found by name: the core imports none of them."""

from __future__ import annotations

from typing import Any

from resin_core.errors import ResinError

_GROUP = "resin.runners"


def runner(name: str) -> Any:
    """What stands behind a command (index, retry, serve).

    Raises ResinError when it is not installed, or cannot be loaded.
    """
    from importlib.metadata import entry_points

    found = list(entry_points(group=_GROUP, name=name))
    if not found:
        raise ResinError(
            f"what `resin {name}` runs is not installed (no entry point {name!r} in {_GROUP!r}); install the whole of "
            "resin, for example with `pip install resin`"
        )
    try:
        return found[0].load()
    except ImportError as error:
        raise ResinError(
            f"what `resin {name}` runs, {found[0].value}, cannot be loaded: {error}; install what is missing"
        ) from error
