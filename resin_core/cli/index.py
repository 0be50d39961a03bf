"""`resin index`: sources to a new published generation."""

from __future__ import annotations

import os
from typing import Annotated, cast

import typer

from resin_core.cli import estimate, progress, show
from resin_core.cli.options import ConfigOption, DebugOption, IndexOption, JsonOption, SetOption, configured, index_of
from resin_core.errors import ConfigError, ResinError
from resin_core.indexing.report import IndexReport, IndexRunner

_GROUP = "resin.runners"


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
    run = runner("index")
    with progress.shown() as shown:
        done = run(named, place, effective, shown.index, os.environ)
    if json:
        show.json_line(done.model_dump(mode="json"))
    else:
        show.report(done)
    refuse_zero_yield(done)


def runner(name: str) -> IndexRunner:
    """A job, which is installed beside the core. Raises ResinError when it is not, or cannot be loaded."""
    from importlib.metadata import entry_points

    found = list(entry_points(group=_GROUP, name=name))
    if not found:
        raise ResinError(
            f"the indexing job is not installed (no entry point {name!r} in {_GROUP!r}); install the whole of resin, "
            "for example with `pip install resin`"
        )
    try:
        return cast(IndexRunner, found[0].load())
    except ImportError as error:
        raise ResinError(
            f"the indexing job {found[0].value} cannot be loaded: {error}; install what is missing"
        ) from error


def refuse_zero_yield(done: IndexReport) -> None:
    """Raises NothingIndexedError for a run without documents, or with documents and not one unit."""
    where = "`resin inspect --rejects` shows why"
    if not done.documents + done.reused:
        raise NothingIndexedError(
            f"no document could be read from the sources; {where}" if done.rejects else "the sources hold no documents"
        )
    if done.documents and not sum(done.units.values()):
        raise NothingIndexedError(f"no unit was extracted from {done.documents:,} documents; {where}")
