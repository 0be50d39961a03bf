"""SIGTERM: at once outside of draining, politely within it, and not a third way."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from jobs.stopping import on_sigterm
from resin_core.errors import StoppedError


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.05)


def test_outside_of_draining_the_signal_ends_the_run_at_once() -> None:
    with pytest.raises(StoppedError, match="stopped by SIGTERM"), on_sigterm(60):
        terminate()


def test_while_draining_it_is_a_wish_and_the_second_signal_an_order() -> None:
    with on_sigterm(60) as stopping, stopping.draining():
        assert not stopping.reason
        terminate()
        assert "stopped by SIGTERM" in stopping.reason
        with pytest.raises(StoppedError):
            terminate()


def test_after_the_grace_nothing_is_waited_for() -> None:
    with pytest.raises(StoppedError), on_sigterm(0.2) as stopping, stopping.draining():
        terminate()
        time.sleep(5)


def test_a_run_that_ends_in_time_is_not_killed_after_all() -> None:
    with on_sigterm(0.2) as stopping, stopping.draining():
        terminate()
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        time.sleep(0.5)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == []


def test_the_former_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with on_sigterm(1):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_sets_no_handler() -> None:
    seen: list[object] = []

    def work() -> None:
        with on_sigterm(1) as stopping:
            seen.append(stopping.reason)

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [""]
    assert signal.getsignal(signal.SIGTERM) is before
