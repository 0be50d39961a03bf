"""The command line as a whole: its commands, its errors and its exit status.

Status: 0 done; 1 it ran and the result is a failure; 2 bad usage or configuration; 130 interrupted; 141 nobody read
the output any more. An error is one line on standard error; `--debug` adds the stack trace.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from resin_core import __version__
from resin_core.cli import (
    ask,
    config,
    delete,
    demo,
    gc,
    index,
    inspect,
    key,
    models,
    rejects,
    search,
    serve,
    show,
    verify,
)
from resin_core.cli.options import Invocation
from resin_core.errors import ResinError

_INTERRUPTED = 130
_OUTPUT_CLOSED = 141


class _SystemError(Exception):
    """Carries an OSError past typer, which takes any broken pipe for that of standard output."""


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            raise _SystemError from error


app = typer.Typer(
    name="resin",
    cls=_Commands,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Answers questions from your documents, with every statement cited to its exact sentence.",
)


def _version(value: bool) -> None:
    if value:
        show.line(f"resin {__version__}")
        raise typer.Exit


@app.callback()
def _resin(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version.")
    ] = False,
) -> None:
    pass


app.command("index")(index.index)
app.command("ask")(ask.ask)
app.command("search")(search.search)
app.command("inspect")(inspect.inspect)
app.command("verify")(verify.verify)
app.command("delete")(delete.delete)
app.command("gc")(gc.gc)
app.command("serve")(serve.serve)
app.command("key")(key.key)
app.add_typer(rejects.app, name="rejects")
app.add_typer(models.app, name="models")
app.add_typer(config.app, name="config")
app.command("demo")(demo.demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status; `arguments` are those after the program's name."""
    invocation = Invocation()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=logging.WARNING, format="resin: %(name)s: %(message)s")
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        status = get_command(app).main(given, prog_name="resin", standalone_mode=False, obj=invocation)
        show.write("", flush=True)
    except Exception as error:
        return _failed(error, invocation.debug)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except SystemExit as error:
        status = error.code
    if status == _INTERRUPTED:
        show.note("interrupted")
    return status if isinstance(status, int) else 0


def _failed(error: Exception, debug: bool) -> int:
    if isinstance(error, show.OutputClosedError):
        # What is still buffered would fail again, with a message, when the interpreter flushes it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _OUTPUT_CLOSED
    if isinstance(error, _SystemError) and isinstance(error.__cause__, OSError):
        error = error.__cause__
    if debug:
        traceback.print_exception(error)
    if isinstance(error, ResinError):
        show.note(str(error))
        return error.exit_code
    # Errors of usage come from the click that typer brings or depends on, so they are known by what they can do.
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "resin"
        show.note(f"{error.format_message()} (see `{command} --help`)")
        return int(getattr(error, "exit_code", 2))
    if isinstance(error, typer.Abort):
        show.note("aborted")
        return 1
    message = str(error) or "no message"
    show.note(f"internal error: {type(error).__name__}: {message} (run again with --debug)")
    return 1
