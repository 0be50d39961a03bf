"""`resin models`: the language models Resin can bring itself."""

from __future__ import annotations

from typing import Annotated

import typer

from resin_core.cli import progress, show
from resin_core.cli.options import ConfigOption, DebugOption, SetOption, configured
from resin_core.config import EmbeddedSection, ResinConfig
from resin_core.errors import ModelNotFoundError

app = typer.Typer(help="Language models that Resin brings itself: list, fetch, find.")

NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Name of the model; default: llm.model of the configuration.")
]


@app.command("list")
def list_(config: ConfigOption = None, settings: SetOption = None, debug: DebugOption = False) -> None:
    """Show the known models, and which of them are on this machine."""
    from rich.text import Text

    from resin_core.models.resolve import available

    effective = configured(config, settings, debug)
    table = show.table("name", "size", "licence", "state", "title")
    for spec, file in available(effective.llm.embedded):
        state = f"here: {file}" if file else "not fetched"
        cells = (spec.name, f"{spec.size_bytes / 1e6:,.0f} MB", spec.licence, state, spec.title)
        table.add_row(*(Text(cell) for cell in cells))
    show.render(table)


@app.command()
def pull(
    name: NameArgument = None, config: ConfigOption = None, settings: SetOption = None, debug: DebugOption = False
) -> None:
    """Fetch a model and check it; nothing is fetched twice."""
    from resin_core.models.resolve import resolve

    wanted, embedded = _chosen(configured(config, settings, debug), name)
    with progress.shown() as shown:
        file = resolve(wanted, embedded, shown.model)
    show.line(str(file))


@app.command()
def path(
    name: NameArgument = None, config: ConfigOption = None, settings: SetOption = None, debug: DebugOption = False
) -> None:
    """Show where a model's file is; status 1 when it is not on this machine."""
    from resin_core.models import resolve
    from resin_core.models.cache import cache_folder

    wanted, embedded = _chosen(configured(config, settings, debug), name)
    file = resolve.resolve(wanted, embedded) if embedded.model_path else resolve.path(wanted, embedded)
    if file is None:
        raise ModelNotFoundError(
            f"the model {wanted!r} is not in {cache_folder(embedded)}; run `resin models pull {wanted}`"
        )
    show.line(str(file))


def _chosen(config: ResinConfig, name: str | None) -> tuple[str, EmbeddedSection]:
    """A model that is named here is meant, whatever file the configuration names."""
    if name is None:
        return config.llm.model, config.llm.embedded
    return name, config.llm.embedded.model_copy(update={"model_path": None})
