"""Stop a run by Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class Stopped(BaseException):
    """A signal has stopped the run."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


IMPATIENT = 3
"""So many signals end a run whatever it is doing."""


class Asked:
    """The signals that the run has received.

    A signal raises at once, or with `waits` at the next `go_on`: Ray's own C code must not be interrupted, because it
    then ends in a SystemError of its own.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.waits = False

    def stop(self, number: int, _: object) -> None:
        """Handle a signal."""
        self.numbers.append(number)
        if not self.waits or len(self.numbers) >= IMPATIENT:
            raise Stopped(number)

    def go_on(self) -> None:
        """Raise if a signal has come; other code may have swallowed the exception raised then."""
        if self.numbers:
            raise Stopped(self.numbers[0])


@contextlib.contextmanager
def signals() -> Iterator[Asked]:
    """Stop the run in order at Ctrl-C and SIGTERM."""
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
