"""`resin delete`: documents out of the index."""

from __future__ import annotations

from typing import Annotated

import typer

from resin_core.cli import show
from resin_core.cli.options import ConfigOption, DebugOption, IndexOption, JsonOption, SetOption, configured, index_of


def delete(
    doc_ids: Annotated[
        list[str], typer.Argument(metavar="DOC_ID...", help="Ids as `resin inspect --documents` lists them.")
    ],
    index: IndexOption = None,
    json: JsonOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Publish the next generation without these documents, and forget unfinished work on them."""
    place = index_of(configured(config, settings, debug), index)
    from resin_core.store.revise import delete_documents

    done = delete_documents(place, doc_ids)
    if json:
        show.json_line(done.model_dump(mode="json"))
    else:
        show.rows(
            [
                ("deleted", f"{done.deleted:,} documents, {done.passages:,} passages, {done.units:,} units"),
                ("generation", f"{done.generation}, after {done.former_generation}"),
                ("index now", f"{done.total_documents:,} documents, {done.total_units:,} units"),
            ]
        )
    show.note(
        "older generations still hold the text until gc: `resin gc --keep 1` frees what is older than the grace "
        "period, with `--grace 0` all of it at once (only while no run writes to the index)"
    )
