"""A process in which a stranger's code works, seen from the judging process: requests, answers, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from backprint.errors import BackprintError
from backprint.tools.measuring.clocks import CheatFound, TimingWithheld
from backprint.tools.measuring.transfer import SharedMemory, put_inputs, read_results

POLL = 100
"""Milliseconds between two looks at whether the process still lives."""

MOST_RECEIVED = 1 << 20


class PerformerDied(BackprintError):
    """The process in which a compiler or a solution worked ended; the message says how."""


class CompilerFailed(BackprintError):
    """The compiler, or the function that it returned, raised; the message is its error."""


class AskedProcess:
    """A process that answers requests. It is forked by the constructor, and so has nothing that the judging process
    computes later.

    `serve` runs in it: it takes the memory for inputs, that for results, and the socket, and does not return.
    """

    def __init__(self, serve: Callable[[SharedMemory, SharedMemory, socket.socket], NoReturn]) -> None:
        self.inputs_memory, self.results_memory = SharedMemory(), SharedMemory()
        self.line, other = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            try:
                self.line.close()
                serve(self.inputs_memory, self.results_memory, other)
            finally:
                os._exit(1)
        other.close()
        self.text = bytearray()

    def request(self, do: str, **values: Any) -> dict[str, Any]:
        """Send a request and return the answer; an error in the compiler's process is raised here as its kind says."""
        try:
            self.line.sendall(json.dumps({"do": do, **values}).encode() + b"\n")
        except OSError:
            self.raise_end()
        answer: dict[str, Any] = json.loads(self.read_line())
        for key, error in (("raised", CompilerFailed), ("cheat", CheatFound), ("withheld", TimingWithheld)):
            if key in answer:
                raise error(str(answer[key]))
        if "defect" in answer:
            raise RuntimeError(f"the process of the compiler raised:\n{answer['defect']}")
        return answer

    def read_line(self) -> bytes:
        """Return the next line that the process sends; raise PerformerDied if it ends first."""
        poller = select.poll()
        poller.register(self.line, select.POLLIN)
        self.wait_for(poller)
        while (end := self.text.find(b"\n")) < 0:
            if self.line.fileno() in [file for file, _ in poller.poll(POLL)]:
                try:
                    received = self.line.recv(MOST_RECEIVED)
                except OSError:
                    received = b""
                if not received:
                    self.raise_end()
                self.text += received
            elif os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self.raise_end()
            self.look()
        line = bytes(self.text[:end])
        del self.text[: end + 1]
        return line

    def wait_for(self, poller: select.poll) -> None:
        """Register what else is waited for while an answer is: a subclass may."""

    def look(self) -> None:
        """Do what is to be done while an answer is waited for: a subclass may raise PerformerDied."""

    def raise_end(self) -> None:
        """Raise PerformerDied with the signal or the exit code that ended the process."""
        if self.still_running():
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        if os.WIFSIGNALED(status):
            raise PerformerDied(f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
        raise PerformerDied(f"its process ended with exit code {os.WEXITSTATUS(status)}")

    def still_running(self) -> bool:
        """Whether the process still runs a second after its socket was closed."""
        for _ in range(10):
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return False
            select.select([], [], [], 0.1)
        return True

    def close(self) -> None:
        """End the process."""
        self.line.close()
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        for memory in (self.inputs_memory, self.results_memory):
            os.close(memory.file)

    # -------------------------------------------------------------- tensors

    def send_inputs(self, values: Sequence[Any]) -> list[Any]:
        """Copy inputs to the shared memory; return the headers to send."""
        return list(put_inputs(self.inputs_memory, values))

    def results_in(self, answer: Mapping[str, Any], key: str = "results") -> list[Any]:
        """Return the results of a call whose headers are in an answer."""
        return read_results(self.results_memory, answer[key])
