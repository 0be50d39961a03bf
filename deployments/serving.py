"""`resin serve`: the application on this machine, or on the cluster that RAY_ADDRESS names, until it is told to end."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress

from resin_core.config import ResinConfig
from resin_core.errors import ConfigError, ResinError

NAME = "resin"
_POLL_S = 0.25
# Every call crosses four deployments, and none of them blocks its event loop: one loop in a process instead of three,
# and calls between replicas over gRPC, halve what Serve itself takes of an answer (tests/benchmarks/bench_serve.py).
# Replicas read these when they start; what the environment says already is kept.
FAST = {
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1000",
}
_LEAST_CPUS = 4


def run(config: ResinConfig, say: Callable[[str], None], env: Mapping[str, str]) -> None:
    """Serves until SIGINT or SIGTERM. Raises ConfigError, StoreError kinds and ResinError before it is ready.

    `say` is told what happens, last the address. On loopback no key is needed unless some are configured.
    """
    loopback = is_loopback(config.serving.host)
    if loopback and not config.serving.keys and not config.serving.keys_file:
        serving = config.serving.model_copy(update={"allow_anonymous": True})
        config = config.model_copy(update={"serving": serving})
    ended = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # Read when ray is imported: a thread left behind must not start a Ray of its own.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    for name, value in FAST.items():
        os.environ.setdefault(name, value)
    import ray
    from ray import serve

    from deployments.app import bound

    if not logging.getLogger().isEnabledFor(logging.INFO):
        # Serve tells the terminal of every step; its replicas' logs stay in the session's folder.
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
    application = bound(config)
    port = config.serving.port or _free_port(config.serving.host)
    say("starting")
    _start_ray(config, env)
    try:
        # After ray.init, which sets handlers of its own.
        for number in before:
            signal.signal(number, lambda *_: ended.set())
        serve.start(proxy_location="HeadOnly", http_options={"host": config.serving.host, "port": port})
        target = serve.RunTarget(application, name=NAME, route_prefix="/")
        serve.run_many([target], wait_for_applications_running=False)
        _wait_ready(config.serving.host, port, ended, say)
        if not ended.is_set():
            say(f"ready at {_url(config.serving.host, port)}")
        ended.wait()
        say("ending")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        with suppress(Exception):
            # A cluster may serve other applications too.
            serve.delete(NAME) if env.get("RAY_ADDRESS") else serve.shutdown()
        ray.shutdown()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _start_ray(config: ResinConfig, env: Mapping[str, str]) -> None:
    import ray

    address = env.get("RAY_ADDRESS")
    try:
        if address:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        else:
            cpus = config.serving.cpus or max(_LEAST_CPUS, os.cpu_count() or 1)
            ray.init(num_cpus=cpus, log_to_driver=False, include_dashboard=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        where = f"at RAY_ADDRESS={address!r}; unset it for a local one" if address else "on this machine"
        raise ResinError(f"no Ray could be had {where}: {error}") from None


def _wait_ready(host: str, port: int, ended: threading.Event, say: Callable[[str], None]) -> None:
    """Until the smoke question is answered; says what is missing, and gives up when the application has failed."""
    from ray import serve

    said = ""
    while not ended.wait(_POLL_S):
        missing = _missing(host, port)
        if missing is None:
            return
        application = serve.status().applications.get(NAME)
        if application is not None and application.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            parts = [f"{name}: {part.message}" for name, part in application.deployments.items() if part.message]
            raise ResinError("the application did not start: " + ("; ".join(parts) or application.message))
        if missing and missing != said:
            said = missing
            say(missing)


def _missing(host: str, port: int) -> str | None:
    """What readiness still lacks, in the server's words; None when it lacks nothing."""
    try:
        # Not through a proxy, whatever the environment says: this is our own address.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"{_url(host, port)}/readyz", timeout=5):
            return None
    except urllib.error.HTTPError as error:
        import json

        with suppress(ValueError, KeyError):
            return str(json.loads(error.read())["detail"])
    except (OSError, TimeoutError):
        time.sleep(_POLL_S)
    return ""


def _url(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host and host[0] != "[" else host)  # noqa: S104
    return f"http://{shown}:{port}"


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
        try:
            tried.bind((host, 0))
        except OSError as error:
            raise ConfigError(f"serving.host {host!r} cannot be listened at: {error.strerror or error}") from None
        return int(tried.getsockname()[1])
