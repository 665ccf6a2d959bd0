"""The process in which a stranger's code works: it answers requests, and sends what the stranger's code raises as an
error of its own kind; any other error is Backprint's own.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from backprint.tools.export.judged import first_line
from backprint.tools.jobs.task import one_line
from backprint.tools.measuring.clocks import CheatFound, TimingWithheld


class CompilerRaised(Exception):
    """A compiler, the function that it returned, or a solution raised; the text is the error."""


@contextlib.contextmanager
def compiler_errors() -> Any:
    """Raise CompilerRaised in place of whatever the block raises."""
    try:
        yield
    except BaseException as error:  # KeyboardInterrupt and SystemExit too: nothing else in this process raises them
        raise CompilerRaised(reason_of(error)) from None


def reason_of(error: BaseException) -> str:
    """Return an error as one line; where torch.compile wraps it, the compiler's own error."""
    try:
        inner = getattr(error, "inner_exception", None) or error
        return one_line(f"{type(inner).__name__}: {first_line(inner)}")
    except BaseException as second:  # a stranger's exception may raise where it is read
        return f"{type(error).__name__}, whose message raises {type(second).__name__}"


class Answering:
    """What answers requests: each method `do_…` answers one kind."""

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run a request; return its results, or the error as a value."""
        name = request["do"]
        values = {key: value for key, value in request.items() if key != "do"}
        try:
            answer: Mapping[str, Any] = getattr(self, f"do_{name}")(**values)
            return answer
        except CompilerRaised as error:
            return {"raised": str(error)}
        except CheatFound as error:
            return {"cheat": str(error)}
        except TimingWithheld as error:
            return {"withheld": str(error)}
        except BaseException:
            return {"defect": traceback.format_exc()}


def serve(performer: Callable[[], Answering], line: socket.socket) -> NoReturn:
    """Answer requests until the socket is closed; then end this process."""
    try:
        gc.freeze()  # collecting what is older would copy every page of the process that this was forked from
        work = performer()
        with line.makefile("rwb") as both:
            for request in both:
                both.write(json.dumps(work.answer(json.loads(request))).encode() + b"\n")
                both.flush()
    finally:
        os._exit(0)
