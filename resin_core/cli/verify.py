"""`resin verify`: every byte and every reference of an index."""

from __future__ import annotations

import typer

from resin_core.cli import show
from resin_core.cli.options import ConfigOption, DebugOption, IndexOption, SetOption, configured, index_of
from resin_core.errors import IndexMissingError, StoreError


def verify(
    index: IndexOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Check an index: files, quotes at their spans, vectors, counts."""
    place = index_of(configured(config, settings, debug), index)
    from resin_core.store.filesystem import IndexFolder
    from resin_core.store.manifest import read_manifest
    from resin_core.store.verify import verify as problems_of

    folder = IndexFolder.at(place)
    try:
        manifest = read_manifest(folder)
    except IndexMissingError:
        raise
    except StoreError:
        manifest = None  # what is wrong with it is found again below, with everything else
    problems = problems_of(folder)
    if not problems and manifest is not None:
        held = ", ".join(f"{count:,} {name}" for name, count in manifest.counts.items())
        show.line(f"ok: {len(manifest.files):,} files, generation {manifest.generation}: {held}")
        return
    for problem in problems:
        show.line(show.one_line(f"{problem.path}: {problem.message}"))
    show.note(f"{len(problems)} problem{'s' if len(problems) != 1 else ''} in the index at {folder}")
    raise typer.Exit(1)
