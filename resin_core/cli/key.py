"""`resin key`: a new key for the HTTP endpoint, and what the configuration has to hold of it."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated

import typer

from resin_core.cli import show
from resin_core.cli.options import ConfigOption, DebugOption, JsonOption, SetOption, configured
from resin_core.config.serving import KeySection, Scope
from resin_core.errors import ConfigError

_RANDOM_BYTES = 32
_MAX_NAME_CHARS = 100


def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who is to use the key; stands in logs and metrics.")],
    scope: Annotated[
        list[Scope] | None,
        typer.Option("--scope", help="What the key is for; may be repeated. None includes another. Default: ask."),
    ] = None,
    per_minute: Annotated[
        int | None, typer.Option("--per-minute", metavar="N", min=1, help="Requests a minute; default: no limit.")
    ] = None,
    json: JsonOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Make a key for the HTTP endpoint. It is shown this once; only its hash goes into the configuration."""
    taken = {given.name for given in configured(config, settings, debug).serving.keys}
    if not name or len(name) > _MAX_NAME_CHARS or name != show.one_line(name):
        raise ConfigError(
            f"the name {show.one_line(name, 40)!r} of the key: expected 1 to {_MAX_NAME_CHARS} characters on one line, "
            "with white space only as single spaces between words"
        )
    if name in taken:
        raise ConfigError(f"serving.keys has a key called {name!r} already; give another name, or take that one out")
    made = f"resin-{secrets.token_urlsafe(_RANDOM_BYTES)}"
    entry = KeySection(
        name=name,
        sha256=hashlib.sha256(made.encode("ascii")).hexdigest(),
        scopes=tuple(dict.fromkeys(scope or [Scope.ASK])),
        per_minute=per_minute,
    ).model_dump(mode="json", exclude_none=True)
    if json:
        show.json_line({"key": made, "entry": entry})
        key_is, entry_is = "key", "entry"
    else:
        import yaml

        # As it stands in a file of keys; below serving.keys any indent will do.
        block = yaml.safe_dump([entry], sort_keys=False, default_flow_style=None)
        show.write(f"{made}\n\n{block}")
        key_is, entry_is = "the first line", "the rest"
    show.note(
        f"{key_is} is the key, shown this once: give it to who uses it; "
        f"{entry_is} goes below serving.keys or into the file serving.keys_file"
    )
