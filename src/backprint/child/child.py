"""A process that was started here: how it starts, what it says, its limits, and its end with all that it started.

A child has one line to its parent, a socket, on which each sends JSON, one message a line. In the child that is its
`Line`: `start_by_fork` passes it to the function that is called, and a module that `start_interpreter` runs takes it
from its arguments with `line_of`.

A Start is a function that starts a process: it takes the descriptors of the child (Ends: its end of the `line`, its
`output`, -1 if that is not kept, and those of its `parents`, which a forked child closes), and returns the id of the
process and a function that waits for it. A ChildEnd says how a process ended. Of a Child, seen from its parent:

- `process` is its id, `handle` a descriptor that is readable when it has ended (pidfd), `line` the parent's end of the
  line, `output` the descriptor of what it prints if that is captured; -1 stands for no descriptor. `open` has those of
  them that may still say something.
- `lines` are the messages that have come whole, `text` the beginning of the next one, `tail` the last of what it
  printed, and `printed` how many bytes that was in all.
- `use` is what it has used of its limits (`Use`), and `look` the time at which `check` is due.
- `end` is its ChildEnd, None while it runs, and `code` its exit code. `orphans` says that the parent
  adopts orphans and has no other child, so that all processes below the parent are the child's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from backprint.child import processes
from backprint.child.ends import RAISED, ChildDied, ChildEnd, end_of_code
from backprint.child.limits import Limits, Use, limited

POLL = 0.05
"""Seconds between two looks at what a child uses."""

MESSAGE = 64 << 20
"""The longest message, in bytes: what is longer is dropped."""

KEPT = 64 << 10
"""How many bytes of what a child printed last are kept."""

PIECE = 1 << 16
"""How many bytes are read at once."""


class Line:
    """The child's end of the line."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self.messages: Iterator[Any] = map(json.loads, self.socket.makefile("rb"))

    def send(self, message: Any) -> None:
        """Send a message; OSError if the parent is gone."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def __iter__(self) -> Iterator[Any]:
        """Return the parent's messages, until it closes the line."""
        return self.messages


# ------------------------------------------------------------------ ways to start


@dataclass(frozen=True, slots=True)
class Ends:
    """The descriptors that a child is started with: its end of the line, what it prints to (-1: what its parent
    does), and those of its parent, which a forked child closes."""

    line: int
    output: int
    parents: tuple[int, ...]


Started = tuple[int, Callable[[], int]]
"""The id of a process, and what waits for its end and returns its exit code, negative for a signal's number."""

Start = Callable[[Ends], Started]


def start_interpreter(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None, inherited: Sequence[int] = ()
) -> Start:
    """Return the Start that runs a module with `arguments` in a new interpreter, which takes its line with `line_of`.
    It has the descriptors `inherited` too, and the variables of `environment` besides those of this process."""

    def start(ends: Ends) -> Started:
        # `line_of` takes the first two arguments: the descriptor of the line, and the parent's process.
        words = [sys.executable, "-P", "-m", module, str(ends.line), str(os.getpid()), *arguments]
        return open_process(words, ends.output, (ends.line, *inherited), {**os.environ, **(environment or {})})

    return start


def line_of(arguments: Sequence[str]) -> tuple[Line, list[str]]:
    """Return the line of this process, which `start_interpreter` started with these `arguments`, and the others of
    them. From now on the process dies with its parent."""
    line, parent, *others = arguments
    processes.die_with_parent(int(parent))
    return Line(int(line)), others


def command(words: Sequence[str], folder: Path | None = None) -> Start:
    """Return the Start that runs a program, `words` being its command, in a folder or in the parent's; it knows of no
    line."""
    return lambda ends: open_process(words, ends.output, (), os.environ, folder)


def open_process(
    words: Sequence[str],
    output: int,
    descriptors: Sequence[int],
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> Started:
    """Start a program in a session of its own, so that signals of the terminal are for its parent. `words` are its
    command, `output` is what it prints to (-1: what this process does), and `descriptors` are those that it has of this
    process. No other function starts one: tests replace it by one that forks."""
    output = output if output >= 0 else 2  # both to this process's stderr
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=descriptors,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )
    return process.pid, process.wait


def start_by_fork(work: Callable[[Line], Any], inherited: Sequence[int] = ()) -> Start:
    """Return the Start that calls the function `work` with the line in a process that is forked from this one, which
    must have one thread: a lock that another thread holds would stay locked in the child.

    A child whose output is kept is isolated: it has none of this process's files but the descriptors `inherited`.
    """

    def start(ends: Ends) -> Started:
        parent = os.getpid()
        pid = os.fork()
        if not pid:  # in the child
            _run_forked(work, ends, inherited, parent)

        def wait() -> int:
            _, status = os.waitpid(pid, 0)  # 0: no options
            return os.waitstatus_to_exitcode(status)

        return pid, wait

    return start


def _run_forked(work: Callable[[Line], Any], ends: Ends, inherited: Sequence[int], parent: int) -> NoReturn:
    """Be a forked child of the process `parent`: call `work` with the line, and end. It never returns into the code of
    its parent. A child whose output is kept is isolated first, and has the descriptors `inherited`."""
    code = 70  # EX_SOFTWARE of sysexits.h: it raised
    try:
        os.setsid()
        processes.die_with_parent(parent)
        for descriptor in ends.parents:
            os.close(descriptor)
        work(Line(_isolate(ends, inherited) if ends.output >= 0 else ends.line))
        code = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(code)  # without exit handlers and threads, which may wait for each other


def _isolate(ends: Ends, inherited: Sequence[int]) -> int:
    """Part this process from its parent's files, but for the descriptors `inherited`, and from its output and signals;
    return the new descriptor of its line."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, this process ends before its parents
    line = fcntl.fcntl(ends.line, fcntl.F_DUPFD_CLOEXEC, 500)  # a stranger's code uses and closes the low ones
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (ends.output, 1), (ends.output, 2)):
        os.dup2(old, new)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in {0, 1, 2, line, *inherited}:
            with contextlib.suppress(OSError):
                os.close(int(name))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115  # these three may have been replaced
    sys.stdout = open(1, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # not its parent's handler
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash leaves no file
    return line


# ------------------------------------------------------------------ the child, seen from its parent


class Child:
    """A process that was started here, under limits.

    With `captured`, the last of what it prints is kept. With `orphans`, this process adopts orphans and has no other
    child: all below it is the child's. `folder` is the one that it writes to, and `spent` returns the seconds that
    count of a process; without it, all do (`Use`).
    """

    told: Mapping[str, type[Exception]] = {}
    """The errors that an answer may be, by their keys: `request` raises them here."""

    def __init__(
        self,
        start: Start,
        limits: Limits | None = None,
        *,
        captured: bool = False,
        orphans: bool = False,
        folder: Path | None = None,
        spent: Callable[[int], float] | None = None,
    ) -> None:
        """Start the process, under limits (None: no limits). If `start` raises, no descriptor stays open."""
        self.captured, self.orphans = captured, orphans
        self.line, childs_line = socket.socketpair()
        self.output, childs_output = os.pipe() if captured else (-1, -1)
        own = (self.line.fileno(), *([self.output] if captured else []))
        try:
            self.process, self._wait = start(Ends(childs_line.fileno(), childs_output, own))
        except BaseException:
            self._close_files()
            raise
        finally:
            # The child has them: here they would keep the line and the output open after its end.
            childs_line.close()
            if captured:
                os.close(childs_output)
        self.use = Use(limits or limited(), spent, folder)
        self.end: ChildEnd | None = None
        self.code: int | None = None
        self.left = 0
        """How many processes it left behind, which were ended with it."""
        self.lines: deque[bytes] = deque()
        """Messages that have come whole, and were not received yet; `text` is the beginning of the next."""
        self.text, self.tail, self.printed = bytearray(), bytearray(), 0
        self.is_too_long = self.has_dropped = False
        """Whether the beginning of the message that is coming was dropped, and whether any message was."""
        self.handle = -1
        """A descriptor of the process itself (pidfd), -1 for none."""
        if hasattr(os, "pidfd_open"):  # on Linux: readable when it has ended
            with contextlib.suppress(OSError):
                self.handle = os.pidfd_open(self.process)
        self.open = {descriptor for descriptor in (*own, self.handle) if descriptor >= 0}
        """Descriptors that may still say something."""
        self.gone = False
        """Whether it has closed its line, or ended."""
        self.look = 0.0
        """When `check` is due, by `time.monotonic`; 0 is at once."""
        if captured:
            os.set_blocking(self.output, False)

    @property
    def pid(self) -> int:
        """Its process; 0 once it has ended."""
        return 0 if self.end is not None else self.process

    def send(self, message: Any) -> None:
        """Send a message. That it is gone is told where it is listened to."""
        with contextlib.suppress(OSError):
            self.line.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float = math.inf) -> bytes | None:
        """Return the next message as text; None if it has ended, and then `end` says how, or after so many seconds."""
        until = time.monotonic() + seconds
        while not self.lines and self.end is None and (now := time.monotonic()) < until:
            self.listen(min(until, self.look) - now)
            if time.monotonic() >= self.look:
                self.check()
        return self.lines.popleft() if self.lines else None

    def request(self, do: str, **values: Any) -> dict[str, Any]:
        """Send a request, the name of what to do and its values, and return the answer, within the limit of seconds. An
        error there is raised here as `told` says; RuntimeError is a defect there, and ChildDied says that it has
        ended."""
        self.use.begin()  # of the seconds, those of this request count
        self.send({"do": do, **values})
        text = self.receive()
        if text is None:
            raise ChildDied(self.finish())
        answer: dict[str, Any] = json.loads(text)
        for key, error in self.told.items():
            if key in answer:
                raise error(str(answer[key]))
        if "defect" in answer:
            raise RuntimeError(f"a process that answers requests raised:\n{answer['defect']}")
        return answer

    def listen(self, seconds: float = 0.0) -> None:
        """Wait until it says or prints something, or ends, for so many seconds at most; keep what it said in `lines`
        and what it printed in `tail`."""
        poller = select.poll()
        for descriptor in self.open:
            poller.register(descriptor, select.POLLIN)
        milliseconds = max(0.0, seconds) * 1000 if seconds < math.inf else None
        for descriptor, _ in poller.poll(milliseconds):
            if descriptor == self.handle or not self._read_available(descriptor):
                self.open.discard(descriptor)
                self.gone = self.gone or descriptor != self.output  # it may close its output and go on
                self.look = 0.0  # it may have ended: `check` is due at once

    def check(self) -> None:
        """End it if it exceeds a limit, and take note if it has ended."""
        # A child without limits need not be looked at again until its handle says that it has ended.
        watched = self.handle < 0 or self.handle not in self.open or not self.use.limits.none
        self.look = time.monotonic() + POLL if watched else math.inf
        if self._has_ended():
            self.finish()
        elif end := self.use.exceeded(self.process, self.descendants):
            self.finish(end)

    def descendants(self) -> list[int]:
        """Return the processes that it has started."""
        pid = self.process
        return [other for other in processes.descendants(os.getpid() if self.orphans else pid) if other != pid]

    def finish(self, end: ChildEnd | None = None) -> ChildEnd:
        """End it and all that it has started, and take what it still had to say; return its end: `end` as given, for
        one that was ended at a limit, or how it ended by itself. A second time, return the same."""
        if self.end is not None:
            return self.end
        if self.orphans:
            self.left, statuses = processes.end_descendants()
            self._note(statuses)
        else:
            self.left = processes.end_tree(self.process)
            self.code = self._wait()
        for descriptor in self.open - {self.handle}:
            self._read_available(descriptor)
        printed = bytes(self.tail[-KEPT:]).decode("utf-8", "backslashreplace")
        if end is None:
            end = end_of_code(self.code)
            if self.code == 0 and self.has_dropped:
                end = replace(end, detail=f"its answer was longer than {MESSAGE >> 20} MiB")
        self.end = replace(end, printed=printed)
        return self.end

    def close(self) -> ChildEnd:
        """End it, if it has not ended; return how it did. A second time, do nothing."""
        end = self.finish()
        self._close_files()
        return end

    # -------------------------------------------------------------- inside

    def _close_files(self) -> None:
        """Close this process's descriptors of the child. It also runs before `handle` exists, if the start raised."""
        self.line.close()
        for descriptor in (self.output, getattr(self, "handle", -1)):
            if descriptor >= 0:
                os.close(descriptor)
        self.output = self.handle = -1
        self.open = set()

    def _has_ended(self) -> bool:
        """Whether it has ended. It is not waited for yet, so that the id of its group stays its own until the group is
        killed; where this process adopts orphans, it is."""
        if self.orphans:
            self._note(processes.reap())
            return self.code is not None
        if not hasattr(os, "waitid"):  # macOS has had it since Python 3.13
            return self.gone
        with contextlib.suppress(ChildProcessError):
            # WNOHANG: None if it runs. WNOWAIT: its status stays to be waited for.
            return os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return not processes.resident_bytes(self.process)  # another's child, as tests start some

    def _note(self, statuses: Mapping[int, int]) -> None:
        """Keep the exit code, if its status is among those of processes that have ended."""
        if (status := statuses.get(self.process)) is not None:
            self.code = os.waitstatus_to_exitcode(status)

    def _read_available(self, descriptor: int) -> bool:
        """Take what a descriptor has, the line or the output; return False at its end, and True if more may come. At
        most 16 pieces are taken, because limits must be checked too."""
        for _ in range(16):
            try:
                if descriptor == self.output:
                    piece = os.read(descriptor, PIECE)
                else:
                    piece = self.line.recv(PIECE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not piece:
                return False
            if descriptor == self.output:
                self._keep_printed(piece)
            else:
                self._keep_message(piece)
        return True

    def _keep_printed(self, piece: bytes) -> None:
        """Keep the last of what it printed: up to twice KEPT, so that not every piece moves all of it."""
        self.printed += len(piece)
        self.tail += piece
        if len(self.tail) > 2 * KEPT:
            del self.tail[:-KEPT]

    def _keep_message(self, piece: bytes) -> None:
        """Add a piece to the message that is coming; drop a message that is too long, to its end."""
        self.text += piece
        if b"\n" in piece:
            *lines, rest = bytes(self.text).split(b"\n")
            # Of a message that is too long, what came last is the first line here.
            self.lines.extend(lines[1:] if self.is_too_long else lines)
            self.text, self.is_too_long = bytearray(rest), False
        elif len(self.text) > MESSAGE:
            self.text.clear()
            self.is_too_long = self.has_dropped = True


# ------------------------------------------------------------------ calls


def in_child(
    function: Callable[[], Any], timeout: float, memory: int = 0, spent: Callable[[int], float] | None = None
) -> ChildEnd:
    """Call a function in a forked process; end it and what it started after `timeout` seconds, or when they use more
    than `memory` bytes (0: no limit). `spent` returns the seconds that count of a process; without it, all do.

    Compilers crash and hang, so they are called so. The calling process must have one thread and must not have loaded
    a compiler. The function returns plain values, which are sent back as JSON.
    """
    child = Child(start_by_fork(partial(_send_outcome, function)), limited(timeout, memory), spent=spent)
    try:
        answer = child.receive()
    finally:
        end = child.close()
    # Without an answer it has ended before, by itself or at a limit.
    return end if answer is None else ChildEnd(**json.loads(answer))


def _send_outcome(function: Callable[[], Any], line: Line) -> None:
    """Call a function in a child and send its value, or what it raises, as the fields of a ChildEnd."""
    try:
        answer: dict[str, Any] = {"value": function()}
    except BaseException as error:
        traceback.print_exc()
        answer = {"cause": RAISED, "detail": f"{type(error).__name__}: {error}"}
    line.send(answer)
    # The parent finds what was started here below this process, so it must be there until the parent ends it: the
    # parent closes the line only after that.
    if processes.children(os.getpid()):
        for _ in line:
            pass


def run_command(words: Sequence[str], timeout: float, folder: Path | None = None) -> ChildEnd:
    """Run a program to its end, for at most `timeout` seconds, and return its end: it has ended well with exit code 0.
    `printed` has the last of its output."""
    child = Child(command(words, folder), limited(timeout), captured=True)
    try:
        child.receive()  # a program has nothing to send: this waits for its end
    finally:
        end = child.close()
    # Without a cause, an end is one that went well; of a child, also exit code 0 has one.
    return end if child.code else replace(end, cause="", detail="")
