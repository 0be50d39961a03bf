"""`resin search`: candidates for one query, without the language model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from resin_core.cli import show
from resin_core.cli.options import ConfigOption, DebugOption, IndexOption, JsonOption, SetOption, configured, index_of
from resin_core.records import Candidate, SourcePassage, UnitKind


def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    index: IndexOption = None,
    kind: Annotated[list[UnitKind] | None, typer.Option("--kind", help="Only this kind; may be repeated.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, max=1000, help="How many, at most.")] = None,
    json: JsonOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Show the units that are found for a query."""
    effective = configured(config, settings, debug)
    place = index_of(effective, index)
    from resin_core.engine import open_engine
    from resin_core.strategies.start import checked_question

    checked = checked_question(query, effective.strategies.max_question_chars)
    with open_engine(effective, place, with_model=False) as engine:
        found = engine.search(checked, tuple(kind or ()), top_k)
    (candidates,) = found.candidates
    if json:
        listed = [_as_json(candidate, found.passages[candidate.unit.passage_id]) for candidate in candidates]
        show.json_line({"query": checked, "candidates": listed})
        return
    _print(candidates, found.passages)


def _as_json(candidate: Candidate, source: SourcePassage) -> dict[str, Any]:
    passage = source.passage.model_dump(mode="json") | {"title": source.title, "uri": source.uri}
    return {**candidate.model_dump(mode="json", include={"rank", "score", "unit"}), "passage": passage}


def _print(candidates: tuple[Candidate, ...], passages: dict[str, SourcePassage]) -> None:
    from rich.text import Text

    if not candidates:
        show.note("nothing was found; a lower retrieval.min_score finds more")
        return
    table = show.table("rank", "score", "kind", "claim", "document", "sentence", "unit")
    for candidate in candidates:
        unit, source = candidate.unit, passages[candidate.unit.passage_id]
        document = f"{source.title} ({unit.doc_id})"
        cells = (
            str(candidate.rank),
            f"{candidate.score:.3f}",
            unit.kind.value,
            unit.retrieval_text,
            document,
            show.short(unit.sentence_ids),
            unit.unit_id,
        )
        table.add_row(*(Text(show.one_line(cell)) for cell in cells))
    show.render(table)
