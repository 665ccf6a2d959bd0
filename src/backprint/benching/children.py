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

from backprint.corpus import processes
from backprint.corpus.limits import GIB

PIECE = 1 << 16

POLL = 100
"""Milliseconds between two looks at a child."""


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """How a call in a process of its own ended: with a value, or with a cause and its detail.

    The cause is `timeout`, `out of memory`, `crashed` (by a signal, or without an answer) or `raised`.
    """

    value: Any = None
    cause: str = ""
    detail: str = ""

    @property
    def ended_well(self) -> bool:
        """Whether the function returned."""
        return not self.cause


def in_child(
    function: Callable[[], Any], timeout: float, memory: int = 0, spent: Callable[[], float] | None = None
) -> ChildEnd:
    """Call a function in a forked process; end it and all that it started after `timeout` seconds (those that it has
    `spent`, if it says), or when they use more `memory` (0: as much as there is)."""
    answers, tell = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(answers)
        answer_and_end(function, tell)
    os.close(tell)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    try:
        began = time.monotonic()
        limits = ChildLimits(pid, timeout, memory, spent or (lambda: time.monotonic() - began))
        text, blame = everything_told(answers, limits)
    finally:
        os.close(answers)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return blame or ended_child(text, status)


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """What a child may use, and how many seconds it has spent."""

    pid: int
    timeout: float
    memory: int
    spent: Callable[[], float]

    def overstepped(self) -> ChildEnd | None:
        """Return the end of a child that used too much."""
        if self.spent() > self.timeout:
            return ChildEnd(cause="timeout", detail=f"still at work after {self.timeout:g} s (--timeout)")
        if not self.memory:
            return None
        held = processes.held_by([self.pid, *processes.descendants(self.pid)], self.memory)
        both = f"{held / GIB:.2f} GiB in use, {self.memory / GIB:.2f} are allowed (--memory)"
        return ChildEnd(cause="out of memory", detail=both) if held > self.memory else None


def everything_told(answers: int, limits: ChildLimits) -> tuple[bytes, ChildEnd | None]:
    """Return what a child wrote until it closed the pipe, or how it has to end."""
    text = bytearray()
    poller = select.poll()
    poller.register(answers, select.POLLIN)
    while (blame := limits.overstepped()) is None:
        if poller.poll(POLL):
            piece = os.read(answers, PIECE)
            text += piece
            if not piece or text.endswith(b"\n"):
                return bytes(text), None
    return bytes(text), blame


def ended_child(text: bytes, status: int) -> ChildEnd:
    """Say how a child ended that has told this."""
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
