"""How a process ended, in words that are the same wherever they are shown: `killed by SIGSEGV`, `exit 3`, `timeout`.

An exit code is negative for the number of a signal, as `subprocess` has it. `again` of a ChildEnd says that another
process may be to blame, so that another try is fair.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

from backprint.errors import BackprintError

TIMEOUT, NO_MEMORY, TOO_MANY, DISK_FULL = "timeout", "out of memory", "too many processes", "disk full"

AT_LIMIT = (TIMEOUT, NO_MEMORY, TOO_MANY, DISK_FULL)
"""Causes of a process that was ended at a limit."""

RAISED = "raised"
"""The cause where the function that was called raised; the detail is its error."""


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The end of a process, or of a call in it: a value, or a cause and its detail.

    The cause is one of `AT_LIMIT`, `killed by SIGSEGV`, `exit 3` or `raised`. As text it is both:
    `out of memory: 2.10 GiB in use, 2.00 are allowed (--memory)`.
    """

    value: Any = None
    cause: str = ""
    detail: str = ""
    printed: str = ""
    """The last of what the process printed, if that was kept."""
    again: bool = False
    """Whether another may be to blame, so that another try is fair."""

    @property
    def ended_well(self) -> bool:
        """Whether the function returned."""
        return not self.cause

    @property
    def at_limit(self) -> bool:
        """Whether the process was ended at a limit."""
        return self.cause in AT_LIMIT

    @property
    def kind(self) -> str:
        """The cause, or `crashed` for every end by a signal or without an answer."""
        return self.cause if self.cause in (TIMEOUT, NO_MEMORY, RAISED) else "crashed"

    @property
    def reason(self) -> str:
        """What a reader who knows the `kind` does not know yet."""
        return str(self) if self.kind == "crashed" else self.detail

    @property
    def account(self) -> str:
        """The text, with the last that the process printed unless a limit says why it ended."""
        return str(self) if self.at_limit else "; ".join(filter(None, (str(self), last_words(self.printed))))

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.cause, self.detail)))


class ChildDied(BackprintError):
    """A process ended that was to answer; `end` and the message say how."""

    def __init__(self, end: ChildEnd) -> None:
        super().__init__(str(end))
        self.end = end


def end_of_code(code: int | None) -> ChildEnd:
    """Return the end of a process that ended by itself, and not at a limit, from its exit code."""
    if code is None:  # somebody else took its status
        return ChildEnd(cause="killed", detail="its process could not be waited for")
    if code >= 0:
        return ChildEnd(cause=f"exit {code}", detail="ended before it was done")
    # Killed, and not at a limit: the machine was short of memory, and may have chosen a bystander.
    return ChildEnd(cause=f"killed by {_signal_name(-code)}", again=-code == signal.SIGKILL)


def _signal_name(number: int) -> str:
    """Return SIGSEGV, or the number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_words(printed: str) -> str:
    """Return, of what a process printed, the line of a crash and the place that `faulthandler` prints below it; else
    its last line."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    crash = next((index for index, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if crash is None:
        return f"last printed: {lines[-1][-MOST:]}" if lines else ""
    place = next((line for line in lines[crash:] if line.startswith("File ")), "")
    return " in ".join(filter(None, (lines[crash], place)))[:MOST]


MOST = 500
"""How much of a line is shown."""
