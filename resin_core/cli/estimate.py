"""`resin index --dry-run`: what a run would take."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from resin_core.cli import progress, show
from resin_core.config import ResinConfig
from resin_core.errors import IndexMissingError

if TYPE_CHECKING:
    from resin_core.indexing.estimate import IndexEstimate

_DOCUMENTS = 200


def dry_run(sources: Sequence[str], place: str, config: ResinConfig, read: int, json: bool) -> None:
    """Prints the estimate; `read` documents are extracted for it, and kept for the run."""
    from resin_core.indexing.estimate import estimate
    from resin_core.indexing.keys import extraction_key
    from resin_core.models.host import ModelHost
    from resin_core.store.filesystem import IndexFolder
    from resin_core.store.replies import ReplyFolder

    key = extraction_key(config.indexing, config.llm.model)
    with ExitStack() as stack, progress.shown() as shown:

        def base_url() -> str:
            return stack.enter_context(ModelHost(config.llm, shown.model)).base_url

        found = estimate(
            sources,
            config,
            _known(place, key),
            _DOCUMENTS,
            base_url,
            ReplyFolder(IndexFolder.at(place), key),
            read,
        )
    if json:
        show.json_line(found.model_dump(mode="json"))
    else:
        _show(found)


def _known(place: str, key: str) -> frozenset[str]:
    from resin_core.indexing.keys import document_key
    from resin_core.store.reader import IndexReader

    try:
        reader = IndexReader.open(place)
    except IndexMissingError:
        return frozenset()
    return frozenset(document_key(document) for document in reader.iter_documents() if document.extraction == key)


def _show(found: IndexEstimate) -> None:
    seconds = "unknown: no document was read by the model (--sample)" if found.seconds is None else _time(found.seconds)
    rows = [
        ("documents", f"{found.documents:,}, {found.sampled:,} of them looked at"),
        ("unchanged", f"{found.unchanged_share:.0%} of those looked at"),
        ("model calls", f"about {found.llm_calls:,}"),
        ("tokens", f"about {found.prompt_tokens:,} prompt, {found.completion_tokens:,} output"),
        ("time", seconds),
    ]
    if found.cost:
        rows.append(("cost", f"about {found.cost:,.2f}, at llm.prompt_price and llm.completion_price"))
    if found.measured is not None:
        used = found.measured
        rows.append(
            ("spent on this", f"{used.llm_calls:,} calls, {used.completion_tokens:,} output tokens; kept for the run")
        )
    show.rows(rows)


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 7200 else f"about {seconds / 3600:.1f} h"
