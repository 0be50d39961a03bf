"""What goes to standard output and how it looks: results only; notices go to standard error.

Text of documents and models is shown without control characters: they could move the cursor or fake a line.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from resin_core.indexing.report import IndexReport

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_PIPE_WIDTH = 2000
# Control characters but tab and line feed, and the marks that turn the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class OutputClosedError(Exception):
    """Nobody reads standard output any more (`| head`)."""


def plain(text: str) -> str:
    """The text with control characters replaced."""
    return _CONTROL.sub("\ufffd", text)


def one_line(text: str, most: int | None = None) -> str:
    """The text on one line; cut with an ellipsis when longer than `most` characters."""
    flat = " ".join(plain(text).split())
    return flat if most is None or len(flat) <= most else flat[: most - 1].rstrip() + "…"


def write(text: str, flush: bool = False) -> None:
    """Standard output, as it is. Raises OutputClosedError."""
    try:
        sys.stdout.write(text)
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosedError from None


def line(text: str = "") -> None:
    """One line on standard output."""
    write(f"{text}\n")


def piece(text: str) -> None:
    """A part of a line, to be seen at once."""
    write(plain(text), flush=True)


def json_line(value: Any, indent: int | None = None) -> None:
    """JSON; escaped where standard output cannot hold all characters."""
    ascii_only = not (sys.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")
    line(json.dumps(value, ensure_ascii=ascii_only, indent=indent))


def note(text: str) -> None:
    """One line on standard error."""
    print(f"resin: {one_line(text)}", file=sys.stderr, flush=True)


def render(what: RenderableType) -> None:
    """Something of rich's: as wide as the terminal, or without breaks into a pipe."""
    from rich.console import Console

    if sys.stdout.isatty():
        console = Console(file=sys.stdout)
        with console.capture() as captured:
            console.print(what)
        write(captured.get())
        return
    console = Console(file=sys.stdout, width=_PIPE_WIDTH, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(what)
    for row in captured.get().splitlines():
        line(row.rstrip())


def table(*columns: str) -> Table:
    """An empty table without a frame; with names of columns it has a heading."""
    from rich.table import Table

    made = Table(box=None, show_header=bool(columns), pad_edge=False, header_style="bold")
    for name in columns:
        made.add_column(name, overflow="fold")
    return made


def rows(pairs: Iterable[tuple[str, str]]) -> None:
    """Names and values below each other."""
    from rich.text import Text

    made = table()
    for name, value in pairs:
        made.add_row(Text(name, style="bold"), Text(plain(value)))
    render(made)


def counts(values: dict[str, int]) -> str:
    """`7: rule 2, relation 5`."""
    parts = ", ".join(f"{name} {count:,}" for name, count in values.items() if count)
    return f"{sum(values.values()):,}" + (f": {parts}" if parts else "")


def marked(text: str) -> str:
    """Text that stands out: in reverse on a terminal, in [[brackets]] elsewhere."""
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return f"\x1b[7m{plain(text)}\x1b[27m"
    return f"[[{plain(text)}]]"


def short(sentence_ids: Sequence[str]) -> str:
    """`s4 s5` of sentence ids that stand below their document."""
    return " ".join(sentence_id.rpartition("#")[2] for sentence_id in sentence_ids)


def report(done: IndexReport) -> None:
    """The report of an indexing run."""
    ratio = f"{done.completion_tokens / done.source_tokens:.2f}" if done.source_tokens else "-"
    rows(
        [
            ("documents", f"{done.documents:,} indexed, {done.reused:,} unchanged, {done.resumed:,} resumed"),
            ("passages", f"{done.passages:,}" + (f", {done.carried:,} of them carried over" if done.carried else "")),
            ("units", counts(done.units)),
            ("rejects", counts(done.rejects)),
            ("model calls", f"{done.llm_calls:,}"),
            ("tokens", f"{done.prompt_tokens:,} prompt, {done.completion_tokens:,} output"),
            *([("cost", f"{done.cost:,.4g}")] if done.cost else []),
            ("output tokens per source token", ratio),
            ("seconds", f"{done.seconds:.1f}"),
            ("generation", done.generation),
            (
                "index now",
                f"{done.total_documents:,} documents, {done.total_passages:,} passages, {done.total_units:,} units",
            ),
        ]
    )
