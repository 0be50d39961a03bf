"""`resin serve`: the online endpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from resin_core.cli import show
from resin_core.cli.options import ConfigOption, DebugOption, IndexOption, SetOption, configured
from resin_core.cli.runners import runner


def serve(
    index: IndexOption = None,
    host: Annotated[str | None, typer.Option("--host", metavar="H", help="Default: serving.host.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="P", min=0, max=65535, help="0: a free one; default: serving.port.")
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="FILE", help="Check a file for `serve deploy`; serve nothing.")
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Serve an index over HTTP until interrupted: answers with citations, and an OpenAI-compatible endpoint."""
    if check is not None:
        runner("check_serve")(check)
        show.line(f"{check}: nothing is wrong")
        return
    effective = configured(config, settings, debug)
    if index is not None:
        effective = effective.model_copy(update={"index": effective.index.model_copy(update={"uri": index})})
    given: dict[str, Any] = {"host": host, "port": port}
    serving = effective.serving.model_copy(update={key: value for key, value in given.items() if value is not None})
    run = runner("serve")
    run(effective.model_copy(update={"serving": serving}), show.note, os.environ)
