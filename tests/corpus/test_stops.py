"""Where the end of a run that was asked for is raised."""

from __future__ import annotations

import os
import signal

import pytest

from backprint.corpus.stops import Stopped, deferred, signals


def ask() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_raises_where_the_run_is() -> None:
    with signals(), pytest.raises(Stopped, match="SIGTERM"):
        ask()


def test_in_code_that_would_make_another_error_of_it_it_waits() -> None:
    done = []

    @deferred()
    def called() -> None:
        with deferred():
            ask()
            done.append("inner")
        done.append("outer")

    with signals() as go_on, pytest.raises(Stopped, match="SIGTERM"):
        called()
    assert done == ["inner", "outer"]
    with pytest.raises(Stopped):
        go_on()


def test_it_is_raised_whatever_else_came_of_the_code() -> None:
    @deferred()
    def called() -> None:
        ask()
        raise SystemError("returned a result with an exception set")

    with signals(), pytest.raises(Stopped) as raised:
        called()
    assert isinstance(raised.value.__context__, SystemError)


def test_a_run_begins_unasked_and_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals(), pytest.raises(Stopped):
        ask()
    with signals() as go_on:
        go_on()
    assert signal.getsignal(signal.SIGTERM) is before
