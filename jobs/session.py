"""A Ray for the length of a run: settings, quiet, and errors as the stages raised them."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout

from jobs import quiet
from resin_core.config import ResinConfig
from resin_core.errors import ResinError

_CONNECT_S = 10.0
_RAY_ADVICE = "\nFailed to apply UDF transform after "


@contextmanager
def opened(config: ResinConfig, env: Mapping[str, str]) -> Iterator[None]:
    """A local Ray unless one is there or RAY_ADDRESS names one. Raises ResinError when that one does not answer."""
    # A thread that is left behind must not start a Ray of its own after this one has ended. Read when ray is imported.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    # Results go to standard output, and so would Ray's words on a lost node.
    with redirect_stdout(sys.stderr), _ray(config, env), _data_settings(), _readable_errors():
        yield


@contextmanager
def _ray(config: ResinConfig, env: Mapping[str, str]) -> Iterator[None]:
    import ray

    if ray.is_initialized():
        yield
        return
    with quiet.starting():
        if address := env.get("RAY_ADDRESS"):
            _connect(address)
        else:
            # Logical CPUs: stages that wait for the model must not keep others from being placed.
            ray.init(
                num_cpus=config.indexing.cpus or max(4, os.cpu_count() or 1),
                log_to_driver=False,
                include_dashboard=False,
                logging_level="ERROR",
            )
    try:
        quiet.data_messages()
        yield
    finally:
        ray.shutdown()


@contextmanager
def _data_settings() -> Iterator[None]:
    """Ray Data as the job needs it, also in a process whose Ray and settings are someone else's."""
    import ray

    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Wrapped by Ray Data, a stage's error would lose its class on the way here: causes are not pickled.
    context.raise_original_map_exception = True
    with ray.data.DataContext.current(context):
        yield


def _connect(address: str) -> None:
    import ray

    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        # Ray itself would wait for minutes for an address at which nothing answers.
        if host and port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        raise ResinError(
            f"no Ray cluster answers at RAY_ADDRESS={address!r} ({error}); unset it for a local one"
        ) from None


@contextmanager
def _readable_errors() -> Iterator[None]:
    """A stage's own error instead of Ray's wrapping of it."""
    import ray.exceptions

    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause: BaseException | None = error
        while cause is not None and not (
            isinstance(cause, ResinError) and not isinstance(cause, ray.exceptions.RayError)
        ):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if not isinstance(cause, ResinError):
            raise
        # Ray Data writes advice on its own settings into the message.
        if cause.args and isinstance(cause.args[0], str):
            cause.args = (cause.args[0].partition(_RAY_ADVICE)[0], *cause.args[1:])
        raise cause from None
