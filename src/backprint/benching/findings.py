"""Why a compiler's time is not reported: it cheats, or the time would not hold."""

from __future__ import annotations

from backprint.errors import BackprintError


class CheatFound(BackprintError):
    """What was compiled does not do for every call what it did when it was checked; the message says what it does."""


class TimingWithheld(BackprintError):
    """The times would not hold; the message says why. This is no fault of the results."""
