"""Ask the process in which a compiler works (`performer`), and take what it tells; notice when it dies."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from backprint.bench.clocks import CheatFound, TimingWithheld
from backprint.bench.compilers.table import Compiler
from backprint.bench.transfer import CarriedMemory, put_inputs, taken_results
from backprint.errors import BackprintError
from backprint.graph.nouns import Graph

POLL = 100
"""Milliseconds between two looks at whether the process still lives."""

PIECE = 1 << 20


class PerformerDied(BackprintError):
    """The process in which the compiler worked ended; the message says how."""


class CompilerFailed(BackprintError):
    """The compiler, or what it made, raised; the message is its error."""


class AskedPerformer:
    """A process for a compiler, forked when this is made: before eager has run, so that it has no results of eager."""

    def __init__(self, compiler: Compiler, caches: Path, graphs: Mapping[str, Graph]) -> None:
        self.given, self.told = CarriedMemory(), CarriedMemory()
        self.line, other = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            self.line.close()
            from backprint.bench.performer import Performer, perform

            perform(lambda: Performer(compiler, caches, graphs, self.given, self.told), other)
        other.close()
        self.text = bytearray()

    def ask(self, do: str, **values: Any) -> dict[str, Any]:
        """Ask for something; raise what it raised there."""
        try:
            self.line.sendall(json.dumps({"do": do, **values}).encode() + b"\n")
        except OSError:
            self.ended()
        answer: dict[str, Any] = json.loads(self.told_line())
        for key, error in (("raised", CompilerFailed), ("cheat", CheatFound), ("withheld", TimingWithheld)):
            if key in answer:
                raise error(str(answer[key]))
        if "defect" in answer:
            raise RuntimeError(f"the process of the compiler raised:\n{answer['defect']}")
        return answer

    def told_line(self) -> bytes:
        """Return the next line that it tells."""
        poller = select.poll()
        poller.register(self.line, select.POLLIN)
        while (end := self.text.find(b"\n")) < 0:
            if poller.poll(POLL):
                try:
                    piece = self.line.recv(PIECE)
                except OSError:
                    piece = b""
                if not piece:
                    self.ended()
                self.text += piece
            elif os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self.ended()
        line = bytes(self.text[:end])
        del self.text[: end + 1]
        return line

    def ended(self) -> None:
        """Raise, saying how the process ended."""
        if self.still_running():
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        if os.WIFSIGNALED(status):
            raise PerformerDied(f"killed by {signal.Signals(os.WTERMSIG(status)).name}")
        raise PerformerDied(f"its process ended with exit code {os.WEXITSTATUS(status)}")

    def still_running(self) -> bool:
        """Whether the process lives on without its line, a second after it was closed."""
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
        for memory in (self.given, self.told):
            os.close(memory.file)

    # -------------------------------------------------------------- values

    def giving(self, values: Sequence[Any]) -> list[Any]:
        """Put inputs where it finds them; return what to tell it of them."""
        return list(put_inputs(self.given, values))

    def results_of(self, answer: Mapping[str, Any], key: str = "results") -> list[Any]:
        """Return the results of a call that it told."""
        return taken_results(self.told, answer[key])
