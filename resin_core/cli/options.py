"""Options that every command has, and the configuration they lead to."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from resin_core.config import ResinConfig, load_config
from resin_core.errors import ConfigError


@dataclass
class Invocation:
    """What `main` has to know of one call of the command line before and after its command runs."""

    debug: bool = False


def _note_debug(context: typer.Context, value: bool) -> bool:
    if value and isinstance(context.obj, Invocation):
        context.obj.debug = True
    return value


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Configuration file (YAML); default: RESIN_CONFIG, else defaults."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one setting for this run; may be repeated."),
]
DebugOption = Annotated[
    bool,
    typer.Option("--debug", is_eager=True, callback=_note_debug, help="Show stack traces and the libraries' messages."),
]
IndexOption = Annotated[
    str | None,
    typer.Option("--index", metavar="URI", help="Folder or URI of the index; default: index.uri of the configuration."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


def configured(file: Path | None, settings: Sequence[str] | None, debug: bool = False) -> ResinConfig:
    """The effective configuration; with `debug` the libraries' messages are let through. Raises ConfigError."""
    if debug:
        logging.getLogger().setLevel(logging.INFO)
    return load_config(file, settings or ())


def index_of(config: ResinConfig, given: str | None) -> str:
    """The index a command works on. Raises ConfigError when neither flag nor configuration names one."""
    named = config.index.uri if given is None else given
    if not named:
        raise ConfigError("no index is named; give --index FOLDER, or set index.uri in the configuration")
    return named
