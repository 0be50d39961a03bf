"""`resin ask`: one answer, cited to the sentence."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from resin_core.cli import progress, show
from resin_core.cli.options import ConfigOption, DebugOption, IndexOption, JsonOption, SetOption, configured, index_of
from resin_core.errors import ConfigError

if TYPE_CHECKING:
    from resin_core.cli.asking import Asking
    from resin_core.cli.progress import Shown
    from resin_core.engine import Engine
    from resin_core.strategies.start import Options

_MAX_STDIN_CHARS = 4_000_000


def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question; - reads it from standard input.")],
    index: IndexOption = None,
    strategy: Annotated[str | None, typer.Option("--strategy", help="Default: strategies.default.")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, max=1000, help="Units kept for each hop.")] = None,
    max_hops: Annotated[
        int | None, typer.Option("--max-hops", min=1, max=16, help="Hops of the plan, at most.")
    ] = None,
    json: JsonOption = False,
    trace: Annotated[Path | None, typer.Option("--trace", metavar="FILE", help="Write the whole trace there.")] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Answer a question from an index, with citations."""
    effective = configured(config, settings, debug)
    place = index_of(effective, index)
    if question == "-":
        question = sys.stdin.read(_MAX_STDIN_CHARS)
    from resin_core.cli.asking import Asking
    from resin_core.engine import open_engine
    from resin_core.strategies.start import STRATEGIES, Options, checked_question

    # All that can be wrong with the call itself is known before anything is loaded.
    checked = checked_question(question, effective.strategies.max_question_chars)
    chosen = strategy or effective.strategies.default
    if chosen not in STRATEGIES:
        raise ConfigError(f"unknown strategy {chosen!r}; there are: {', '.join(STRATEGIES)}")
    options = Options(chosen, top_k, max_hops)
    asking = Asking()
    with _trace_file(trace, asking):
        with progress.shown() as shown:
            shown.stage("starting")
            with open_engine(effective, place, progress=shown.model) as engine:
                asyncio.run(_ask(engine, checked, options, asking, shown, json))
        if json:
            show.json_line(asking.as_json())


async def _ask(engine: Engine, question: str, options: Options, asking: Asking, shown: Shown, json: bool) -> None:
    from resin_core.cli.asking import follow

    try:
        await follow(asking, engine, question, options, shown, quiet=json)
    finally:
        await engine.aclose()


@contextmanager
def _trace_file(target: Path | None, asking: Asking) -> Iterator[None]:
    """Writes the trace at the end, also that of a question that failed.

    Raises ConfigError at once when the file could not be written: the model's work must not be lost to that.
    """
    if target is None:
        yield
        return
    if target.is_dir():
        raise ConfigError(f"--trace {str(target)!r} is a folder; name a file")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        file = temporary.open("x", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(
            f"--trace {str(target)!r} cannot be written: {error.strerror or error}; name a file in a writable folder"
        ) from None
    try:
        with file:
            try:
                yield
            finally:
                if asking.trace is not None:
                    file.write(asking.trace.model_dump_json(indent=1) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
                    temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
