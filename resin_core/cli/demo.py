"""`resin demo`: the sample corpus, indexed and asked about; no key, no GPU and no model hub are needed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from resin_core.cli import progress, show
from resin_core.cli.index import refuse_zero_yield
from resin_core.cli.options import ConfigOption, DebugOption, SetOption, configured
from resin_core.cli.runners import runner
from resin_core.config import LLMSection, ResinConfig

if TYPE_CHECKING:
    from resin_core.cli.progress import Shown
    from resin_core.engine import Engine


def demo(
    index: Annotated[
        str | None, typer.Option("--index", metavar="URI", help="Keep the index there; default: a temporary folder.")
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    debug: DebugOption = False,
) -> None:
    """Index the sample corpus and answer three questions that need several documents each."""
    effective = configured(config, settings, debug)
    run = runner("index")
    from resin_core.engine import open_engine
    from resin_core.models.host import ModelHost
    from resin_core.sample import corpus

    threading.Thread(target=_import_encoder, daemon=True).start()
    began = time.monotonic()
    with ExitStack() as stack:
        place = index or stack.enter_context(TemporaryDirectory(prefix="resin-demo-"))
        with progress.shown() as shown:
            shown.stage("starting the language model")
            host = stack.enter_context(ModelHost(effective.llm, shown.model))
            shown.stage("")
            started_s = time.monotonic() - began
            served = _served(effective, host.settings, host.embedded)
            done = run([str(corpus())], place, served, shown.index, os.environ)
        show.report(done)
        refuse_zero_yield(done)
        with open_engine(served, place) as engine, progress.shown() as shown:
            seconds, failed = asyncio.run(_questions(engine, shown))
    parts = {"language model": started_s, "indexing": done.seconds, **seconds, "in all": time.monotonic() - began}
    show.line("\nseconds: " + ", ".join(f"{name} {value:.1f}" for name, value in parts.items()))
    if failed:
        show.note(f"the demo failed: {', '.join(failed)}")
        raise typer.Exit(1)


def _served(config: ResinConfig, llm: LLMSection, embedded: bool) -> ResinConfig:
    """The configuration for the one model server that all of the demo shares.

    With its address set it looks like an endpoint, so what depends on an embedded model is settled here.
    """
    resin = config.strategies.resin
    if embedded and resin.hop_solvers == "auto":
        resin = resin.model_copy(update={"hop_solvers": "never"})
    strategies = config.strategies.model_copy(update={"resin": resin})
    return config.model_copy(update={"llm": llm, "strategies": strategies})


async def _questions(engine: Engine, shown: Shown) -> tuple[dict[str, float], list[str]]:
    """Seconds for each question, and the names of those that failed."""
    from resin_core.cli.asking import Asking, follow
    from resin_core.cli.verdict import judge
    from resin_core.sample import questions
    from resin_core.strategies.start import Options

    seconds: dict[str, float] = {}
    failed = []
    try:
        for question in questions():
            show.line(f"\n--- {question.id}: {question.question}\n")
            asking = Asking()
            began = time.monotonic()
            await follow(asking, engine, question.question, Options(), shown)
            seconds[question.id] = time.monotonic() - began
            if asking.answer is None:
                raise RuntimeError(f"the strategy gave no answer to {question.id!r}")
            verdict = judge(question, asking.answer)
            missing = f" (missing: {', '.join(verdict.missing)})" if verdict.missing else ""
            mark = "✗" if verdict.missing else "✓"
            show.line(f"{mark} evidence: {verdict.found} of {verdict.gold} gold sentences in the buffer{missing}")
            show.line(
                "✓ answer: right" if verdict.right else f"✗ answer: wrong, {verdict.why}; right: {question.answer}"
            )
            if not verdict.passed:
                failed.append(question.id)
    finally:
        await engine.aclose()
    return seconds, failed


def _import_encoder() -> None:
    """Imports that take seconds, while the model server loads its weights; what fails here fails again where needed."""
    with contextlib.suppress(Exception):
        import sentence_transformers  # noqa: F401
