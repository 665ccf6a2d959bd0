"""Call a function in a forked process, under a limit of time, and learn how that ended: compilers crash and hang.

The calling process must have one thread and must not have loaded a compiler: what a compiler starts ends with its own
process. The function returns plain values, which come back as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a call in a process of its own ended: with a value, or with a cause and its detail.

    The cause is `timeout`, `crashed` (by a signal, or without an answer) or `raised`.
    """

    value: Any = None
    cause: str = ""
    detail: str = ""

    @property
    def ended_well(self) -> bool:
        """Whether the function returned."""
        return not self.cause


def in_child(function: Callable[[], Any], timeout: float) -> ChildEnd:
    """Call a function in a forked process; end it and all that it started after `timeout` seconds."""
    answers, tell = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(answers)
        answer_and_end(function, tell)
    os.close(tell)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    try:
        text, in_time = everything_told(answers, time.monotonic() + timeout)
    finally:
        os.close(answers)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return ended_child(text, in_time, status, timeout)


def everything_told(answers: int, until: float) -> tuple[bytes, bool]:
    """Return what a child wrote until it closed the pipe, and whether that was in time."""
    text = bytearray()
    poller = select.poll()
    poller.register(answers, select.POLLIN)
    while (left := until - time.monotonic()) > 0:
        if poller.poll(left * 1000):
            piece = os.read(answers, PIECE)
            if not piece:
                return bytes(text), True
            text += piece
            if text.endswith(b"\n"):
                return bytes(text), True
    return bytes(text), False


def ended_child(text: bytes, in_time: bool, status: int, timeout: float) -> ChildEnd:
    """Say how a child ended that has told this."""
    if not in_time:
        return ChildEnd(cause="timeout", detail=f"still at work after {timeout:g} s")
    if text.endswith(b"\n"):
        return ChildEnd(**json.loads(text))
    if os.WIFSIGNALED(status):
        return ChildEnd(cause="crashed", detail=f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
    return ChildEnd(cause="crashed", detail=f"its process ended with exit code {os.WEXITSTATUS(status)}")


def answer_and_end(function: Callable[[], Any], tell: int) -> NoReturn:
    """Call the function, write its answer as one line of JSON, and end this process."""
    try:
        os.setpgid(0, 0)
        try:
            end: dict[str, Any] = {"value": function()}
        except BaseException as error:
            traceback.print_exc()
            end = {"cause": "raised", "detail": f"{type(error).__name__}: {error}"}
        content = json.dumps(end).encode() + b"\n"
        while content:
            content = content[os.write(tell, content) :]
    finally:
        os._exit(0)  # without exit handlers and threads, which may wait for each other
