"""The errors of a stranger's code: of a compiler, of the function that it returned, or of a solution."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from backprint.common.text import one_line
from backprint.errors import BackprintError


class CompilerFailed(BackprintError):
    """A compiler, the function that it returned, or a solution raised; the message is its error."""


@contextlib.contextmanager
def compiler_errors() -> Iterator[None]:
    """Raise CompilerFailed in place of whatever the block raises."""
    try:
        yield
    except BaseException as error:  # KeyboardInterrupt and SystemExit too: nothing else in this process raises them
        raise CompilerFailed(_reason_of(error)) from None


def _reason_of(error: BaseException) -> str:
    """Return an error as one line; where torch.compile wraps it, the compiler's own error."""
    try:
        inner = getattr(error, "inner_exception", None) or error
        return one_line(f"{type(inner).__name__}: {(str(inner).strip().splitlines() or [''])[0][:200]}")
    except BaseException as second:  # a stranger's exception may raise where it is read
        return f"{type(error).__name__}, whose message raises {type(second).__name__}"
