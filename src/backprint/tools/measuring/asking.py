"""The errors of a stranger's code, which works in a process of its own: what it raises, and how it cheats."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from backprint.errors import BackprintError
from backprint.tools.export.judged import first_line
from backprint.tools.jobs.task import one_line
from backprint.tools.measuring.clocks import CheatFound, TimingWithheld


class CompilerFailed(BackprintError):
    """A compiler, the function that it returned, or a solution raised; the message is its error."""


TOLD: Mapping[str, type[Exception]] = {"raised": CompilerFailed, "cheat": CheatFound, "withheld": TimingWithheld}
"""The errors that the process of a stranger's code sends, and that are raised where it is asked."""


@contextlib.contextmanager
def compiler_errors() -> Any:
    """Raise CompilerFailed in place of whatever the block raises."""
    try:
        yield
    except BaseException as error:  # KeyboardInterrupt and SystemExit too: nothing else in this process raises them
        raise CompilerFailed(reason_of(error)) from None


def reason_of(error: BaseException) -> str:
    """Return an error as one line; where torch.compile wraps it, the compiler's own error."""
    try:
        inner = getattr(error, "inner_exception", None) or error
        return one_line(f"{type(inner).__name__}: {first_line(inner)}")
    except BaseException as second:  # a stranger's exception may raise where it is read
        return f"{type(error).__name__}, whose message raises {type(second).__name__}"
