"""`resin gc`: space back from what no kept generation needs."""

from __future__ import annotations

from typing import Annotated

import typer

from resin_core.cli import show
from resin_core.cli.options import ConfigOption, DebugOption, IndexOption, JsonOption, SetOption, configured, index_of

_STEP = 1000


def gc(
    index: IndexOption = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=1, help="Newest generations to keep; default: index.keep_generations."),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option("--grace", metavar="SECONDS", min=0, help="Leave younger files alone; default: index.gc_grace_s."),
    ] = None,
    work: Annotated[
        bool, typer.Option("--work", help="Also kept replies of unfinished runs, which would be paid for again.")
    ] = False,
    json: JsonOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Drop older generations and files that nothing needs. The generation that is served stays in any case."""
    effective = configured(config, settings, debug)
    place = index_of(effective, index)
    from resin_core.store.gc import collect

    done = collect(
        place,
        keep=effective.index.keep_generations if keep is None else keep,
        grace_s=effective.index.gc_grace_s if grace is None else grace,
        work=work,
    )
    if json:
        show.json_line(done.model_dump(mode="json"))
        return
    show.rows(
        [
            ("generations dropped", _listed(done.generations_removed)),
            ("generations kept", _listed(done.generations_kept)),
            ("freed", f"{done.files_removed:,} files, {size(done.bytes_freed)}"),
        ]
    )


def size(count: int) -> str:
    """`1.2 MB`: bytes in steps of a thousand, whole below one kB."""
    if count < _STEP:
        return f"{count} bytes"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= _STEP
        if value < _STEP - 0.05 or unit == "TB":
            break
    return f"{value:,.1f} {unit}"


def _listed(generations: tuple[str, ...]) -> str:
    return f"{len(generations):,}" + (f": {', '.join(generations)}" if generations else "")
