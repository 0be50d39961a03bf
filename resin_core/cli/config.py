"""`resin config`: what is set."""

from __future__ import annotations

import typer

from resin_core.cli import show
from resin_core.cli.options import ConfigOption, DebugOption, SetOption, configured
from resin_core.config import effective

app = typer.Typer(help="The configuration.")


@app.callback()
def _group() -> None:
    """The configuration."""


@app.command("show")
def show_(config: ConfigOption = None, settings: SetOption = None, debug: DebugOption = False) -> None:
    """Print every setting with its value, as YAML; secrets are masked."""
    show.write(effective(configured(config, settings, debug)))
