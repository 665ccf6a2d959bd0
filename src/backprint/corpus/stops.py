"""Ctrl-C and SIGTERM end a run in order: they raise Stopped where the run is, or, inside of `deferred`, at its end.

Code that is not Python (Ray's) may turn an exception that a signal handler raised in it into another one.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


class Stopped(BaseException):
    """The user, or whoever runs us, has asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@dataclass(slots=True)
class _State:
    asked: list[int] = field(default_factory=list)
    deferred: int = 0


_state = _State()


def go_on() -> None:
    """Raise Stopped if the end was asked for: for where other code may have swallowed it."""
    if _state.asked:
        raise Stopped(_state.asked[0])


@contextlib.contextmanager
def signals() -> Iterator[Callable[[], None]]:
    """Signals raise Stopped from here on; gives `go_on`."""

    def stop(number: int, _: object) -> None:
        _state.asked.append(number)
        if not _state.deferred:
            raise Stopped(number)

    before = {}
    _state.asked.clear()
    with contextlib.suppress(ValueError):  # only the main thread may
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, stop)
    try:
        yield go_on
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """No signal raises inside; what was asked for raises at the end, whatever else came of it."""
    _state.deferred += 1
    try:
        yield
    finally:
        _state.deferred -= 1
        if not _state.deferred:
            go_on()
