"""The stages of the sample that this process works on: the current one, and the seconds of each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator


class Clock:
    """Seconds by stage. `entered` is called with each stage as it begins."""

    def __init__(self, entered: Callable[[str], None] = lambda name: None) -> None:
        self.entered = entered
        self.stage = "read"
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time a stage; one that raises stays the current one."""
        self.stage = name
        self.entered(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


_clock = Clock()


def begin(entered: Callable[[str], None]) -> Clock:
    """Start a new clock for a new sample."""
    global _clock
    _clock = Clock(entered)
    return _clock


def stage(name: str) -> contextlib.AbstractContextManager[None]:
    """Mark the next stage of a verb, for the ledger and the progress display: `with stage("capture"): …`."""
    return _clock.timed(name)


def current() -> str:
    """Return the current stage of this process."""
    return _clock.stage
