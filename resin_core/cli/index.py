"""`resin index`: sources to a new published generation."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from resin_core.cli import estimate, progress, show
from resin_core.cli.options import ConfigOption, DebugOption, IndexOption, JsonOption, SetOption, configured, index_of
from resin_core.cli.runners import runner
from resin_core.errors import ConfigError, ResinError
from resin_core.indexing.report import IndexReport, IndexRunner


class NothingIndexedError(ResinError):
    """The run went through and brought nothing."""


def index(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="Files, folders, JSONL or Parquet; types by their endings. Default: indexing.sources.",
        ),
    ] = None,
    index: IndexOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Estimate calls, tokens and time; index nothing.")] = False,
    sample: Annotated[
        int, typer.Option("--sample", min=0, help="With --dry-run: documents that the model reads for the estimate.")
    ] = 4,
    json: JsonOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Index documents: only what is new or changed is read by the model."""
    effective = configured(config, settings, debug)
    place = index_of(effective, index)
    named = list(sources or effective.indexing.sources)
    if not named:
        raise ConfigError(
            "no source is named; give SOURCE (files or folders), or set indexing.sources in the configuration"
        )
    if dry_run:
        estimate.dry_run(named, place, effective, sample, json)
        return
    run: IndexRunner = runner("index")
    with progress.shown() as shown:
        done = run(named, place, effective, shown.index, os.environ)
    if json:
        show.json_line(done.model_dump(mode="json"))
    else:
        show.report(done)
    refuse_zero_yield(done)


def refuse_zero_yield(done: IndexReport) -> None:
    """Raises NothingIndexedError for a run without documents, or with documents and not one unit."""
    where = "`resin inspect --rejects` shows why"
    if not done.documents + done.reused:
        raise NothingIndexedError(
            f"no document could be read from the sources; {where}" if done.rejects else "the sources hold no documents"
        )
    if done.documents and not sum(done.units.values()):
        raise NothingIndexedError(f"no unit was extracted from {done.documents:,} documents; {where}")
