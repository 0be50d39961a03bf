"""`resin rejects`: what was not indexed and why, and another try at what may be mended."""

from __future__ import annotations

import os
from collections import Counter
from typing import Annotated

import typer

from resin_core.cli import progress, show
from resin_core.cli.options import ConfigOption, DebugOption, IndexOption, JsonOption, SetOption, configured, index_of
from resin_core.cli.runners import runner
from resin_core.indexing.retrying import is_retried

app = typer.Typer(help="What was not indexed and why, and another try at it.", no_args_is_help=True)

ReasonOption = Annotated[
    list[str] | None, typer.Option("--reason", metavar="REASON", help="Only this reason; may be repeated.")
]


@app.command("list")
def list_(
    index: IndexOption = None,
    reason: ReasonOption = None,
    json: JsonOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """List rejects; with --json one record a line, else counts by reason and the first of each."""
    place = index_of(configured(config, settings, debug), index)
    from resin_core.store.reader import IndexReader

    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for reject in IndexReader.open(place).iter_rejects():
        if reason and reject.reason not in reason:
            continue
        if json:
            show.json_line(reject.model_dump(mode="json"))
            continue
        key = (reject.stage, reject.reason)
        counts[key] += 1
        first.setdefault(key, f"{reject.doc_id}: {reject.detail}")
    if json:
        return
    table = show.table("stage", "reason", "count", "retried", "the first")
    for key, count in counts.most_common():
        table.add_row(
            *(show.plain(cell) for cell in key),
            f"{count:,}",
            "yes" if is_retried(key[0]) else "no",
            show.plain(first[key])[:120],
        )
    if counts:
        show.render(table)
    else:
        show.line("no rejects")


@app.command("retry")
def retry(
    index: IndexOption = None,
    reason: ReasonOption = None,
    json: JsonOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Index again what failed: unreadable files, and documents with calls that failed or replies that did not fit."""
    effective = configured(config, settings, debug)
    place = index_of(effective, index)
    run = runner("retry")
    with progress.shown() as shown:
        done = run(reason or (), place, effective, shown.index, os.environ)
    if json:
        show.json_line(done.model_dump(mode="json"))
    else:
        show.report(done)
