"""How a run is asked to end: by Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class Stopped(BaseException):
    """The run was asked to end, by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


IMPATIENT = 3
"""How many signals end a run whatever it is doing."""


class Asked:
    """The signals that asked the run to end.

    One raises where it comes, or with `waits` at the next `go_on`: what runs in Ray's own C code must not be broken
    into, because it then ends in a SystemError of its own.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.waits = False

    def stop(self, number: int, _: object) -> None:
        """A signal has come."""
        self.numbers.append(number)
        if not self.waits or len(self.numbers) >= IMPATIENT:
            raise Stopped(number)

    def go_on(self) -> None:
        """Raise where one has come; other code may have swallowed what was raised then."""
        if self.numbers:
            raise Stopped(self.numbers[0])


@contextlib.contextmanager
def signals() -> Iterator[Asked]:
    """Ctrl-C and SIGTERM end the run in order."""
    asked = Asked()
    before = {}
    with contextlib.suppress(ValueError):  # only the main thread may
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, asked.stop)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
