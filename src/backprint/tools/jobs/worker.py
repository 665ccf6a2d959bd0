"""One worker: a process that keeps PyTorch loaded, and forks a process for each sample.

`python -m backprint.tools.jobs.worker IN OUT` reads JSON lines from one descriptor and answers on the other. The worker
itself runs no code of a sample: it forks, watches, ends remaining processes, and answers with a row. Whatever a sample
does to its process (settings, hooks, descriptors, a crash) ends with it, and a worker is hardly ever lost. Forking is
safe because a worker has one thread: PyTorch starts its own in the forked process.

    in    {"verb", "options", "limits", "parent"} once, then {"task", "options", "staging", "alone"} for each sample
    out   {"ready": versions} once, then {"stage": name}, {"beat": seconds}, and at last {"row", "again", "log"}
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from backprint.common import at_work, memory
from backprint.tools.jobs import processes
from backprint.tools.jobs.ledger import row_or_failure
from backprint.tools.jobs.processes import FREE, GIB, Limits
from backprint.tools.jobs.task import Task, begin_clock, failure, failure_of, one_line, write_line
from backprint.tools.jobs.verbs import Verb, verb_of

POLL = 0.05
"""Seconds between two checks of a sample's processes."""

BEAT = 2.0
"""Seconds between two messages while a sample runs."""

LOG = 64 * 1024
"""How many bytes of a sample's last output are kept."""

MESSAGE = 64 << 20
"""The longest row, in bytes."""


def main(arguments: list[str]) -> None:
    """Work until the parent closes the pipe."""
    source, sink = map(int, arguments)
    processes.adopt_orphans()
    parent = os.fdopen(source, "rb", buffering=0)
    setup = json.loads(_next_line(parent))
    processes.die_with_parent(setup["parent"])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # these are for the parent, which closes the pipe
    verb = verb_of(setup["verb"])
    send(sink, {"ready": warm_up(verb, setup["options"])})
    limits = Limits(**setup["limits"])
    while line := _next_line(parent):
        request = json.loads(line)
        sample_limits = limits.undivided() if request["alone"] else limits
        task = replace(Task(**request["task"]), memory=sample_limits.memory, most=limits.undivided().memory)
        answer = _SampleWatch(task, Path(request["staging"]), sample_limits, sink).work(
            verb, setup["options"] | request["options"]
        )
        send(sink, answer)


def _next_line(file: Any) -> bytes:
    """Read one line; empty at the end."""
    parts = []
    while part := file.read(1):
        if part == b"\n":
            break
        parts.append(part)
    return b"".join(parts)


def send(sink: int, message: Mapping[str, Any]) -> None:
    """Send one JSON line to the parent; end if the parent is gone."""
    try:
        write_line(sink, message)
    except BrokenPipeError:
        processes.end_descendants()
        os._exit(1)


def warm_up(verb: Verb, options: Mapping[str, Any]) -> dict[str, str]:
    """Load and try everything that samples need, once; return the versions of loaded packages."""
    versions = verb.warm(options)
    gc.collect()
    gc.freeze()  # so that collecting in a forked process does not copy every page
    return versions


@dataclass(slots=True)
class _SampleWatch:
    """The watch over one sample's process: its messages, output, peak memory and status."""

    task: Task
    staging: Path
    limits: Limits
    sink: int
    started: float = field(default_factory=time.monotonic)
    stage: str = "read"
    stage_started: float = field(default_factory=time.monotonic)
    stages: dict[str, float] = field(default_factory=dict)
    row: dict[str, Any] | None = None
    buffer: bytearray = field(default_factory=bytearray)
    log: bytearray = field(default_factory=bytearray)
    peak: int = 0
    status: int | None = None
    disk_checked: float = 0.0
    fault: tuple[str, str] = ("", "")
    again: bool = False

    def work(self, verb: Verb, options: Mapping[str, Any]) -> dict[str, Any]:
        """Fork the sample's process, watch it, end its descendants; return the answer for the parent."""
        messages, message_sink = os.pipe()
        output, output_sink = os.pipe()
        tmp = self.staging / "tmp"
        tmp.mkdir()
        pid = os.fork()
        if not pid:
            _run_isolated(verb, self.task, options, self.staging, self.limits, message_sink, output_sink)
        os.close(message_sink)
        os.close(output_sink)
        handle = os.pidfd_open(pid)
        for descriptor in (messages, output):
            os.set_blocking(descriptor, False)
        try:
            self.watch(pid, handle, messages, output)
        finally:
            remaining, statuses = processes.end_descendants()
            self.drain(messages, self.read_messages)
            self.drain(output, self.keep_output)
            for descriptor in (handle, messages, output):
                os.close(descriptor)
        return self.answer(self.status if self.status is not None else statuses.get(pid), remaining)

    def watch(self, pid: int, handle: int, messages: int, output: int) -> None:
        """Watch until the sample's process has ended, or must be ended."""
        poller = select.poll()
        readers: dict[int, Callable[[bytes], None]] = {messages: self.read_messages, output: self.keep_output}
        for descriptor in (handle, *readers):
            poller.register(descriptor, select.POLLIN)
        look = beat = time.monotonic()
        while self.status is None:
            for descriptor, _ in poller.poll(max(0.0, look - time.monotonic()) * 1000):
                if descriptor in readers and not self.drain(descriptor, readers[descriptor]):
                    poller.unregister(descriptor)
            self.status = processes.reap().get(pid)
            now = time.monotonic()
            if now >= look and self.status is None:
                look = now + POLL
                self.fault = self.exceeded_limit(now)
                if self.fault[0]:
                    return
            if now >= beat:
                beat = now + BEAT
                send(self.sink, {"beat": now - self.started})

    def drain(self, descriptor: int, into: Callable[[bytes], None]) -> bool:
        """Pass what a pipe has to `into`, at most 16 pieces, because limits must be checked too; return False at the
        end."""
        for _ in range(16):
            try:
                piece = os.read(descriptor, 1 << 16)
            except BlockingIOError:
                return True
            if not piece:
                return False
            into(piece)
        return True

    def read_messages(self, piece: bytes) -> None:
        """Read the messages of the sample's process."""
        self.buffer += piece
        while (end := self.buffer.find(b"\n")) >= 0:
            line = bytes(self.buffer[:end])
            del self.buffer[: end + 1]
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue  # a sample wrote to this descriptor: ignore it
            match message:
                case {"stage": str(name)}:
                    self.begin_stage(name)
                case {"row": dict(row)}:
                    self.row = row_or_failure(row)
        if len(self.buffer) > MESSAGE:
            self.buffer.clear()

    def begin_stage(self, name: str) -> None:
        """Begin a stage."""
        self.end_stage()
        self.stage = name
        send(self.sink, {"stage": name})

    def end_stage(self) -> None:
        """Add the time of the current stage."""
        now = time.monotonic()
        self.stages[self.stage] = self.stages.get(self.stage, 0.0) + now - self.stage_started
        self.stage_started = now

    def keep_output(self, piece: bytes) -> None:
        """Keep the last output of the sample."""
        self.log += piece
        if len(self.log) > 2 * LOG:
            del self.log[:-LOG]

    def exceeded_limit(self, now: float) -> tuple[str, str]:
        """Return the cause and both numbers of the limit that the sample exceeds; empty texts if it exceeds none."""
        limits = self.limits
        if now - self.started > limits.timeout:
            return "timeout", f"still at work after {limits.timeout:g} s (--timeout)"
        alive = processes.descendants(os.getpid())
        if len(alive) > limits.processes:
            return "too many processes", f"{len(alive)} processes, {limits.processes} are allowed"
        held = processes.memory_in_use(alive, limits.memory)
        self.peak = max(self.peak, held)
        if held > limits.memory:
            return "out of memory", f"{held / GIB:.2f} GiB in use, {limits.memory / GIB:.2f} are allowed (--memory)"
        return self.exceeded_disk(now)

    def exceeded_disk(self, now: float) -> tuple[str, str]:
        """Return the limit of disk space that is exceeded, if any; it is checked less often, because that is slower."""
        if now - self.disk_checked < 0.5:
            return "", ""
        self.disk_checked = now
        used = processes.size_of(self.staging)
        if used > self.limits.disk:
            return "disk full", f"{used / GIB:.2f} GiB written, {self.limits.disk / GIB:.2f} are allowed (--disk)"
        disk = os.statvfs(self.staging)
        free = disk.f_bavail * disk.f_frsize
        if free < FREE:
            self.again = used < FREE  # it may be another that fills it
            return "disk full", f"{free / GIB:.2f} GiB are left on the disk, {FREE / GIB:.2f} have to be"
        return "", ""

    def answer(self, status: int | None, remaining: int) -> dict[str, Any]:
        """Return the row of a sample that has ended."""
        log = bytes(self.log[-LOG:]).decode("utf-8", "backslashreplace")
        row = self.row
        if row is None or self.fault[0]:
            cause, detail = self.fault if self.fault[0] else _cause_of_end(status)
            if not self.fault[0]:
                called = at_work.last(self.staging)
                where = f"while running {one_line(called)}" if called else ""
                detail = "; ".join(filter(None, (detail, where, _last_output(log))))
            self.end_stage()
            row = failure(cause, detail, self.stage, stages=self.stages)
            # Killed, and not by us: the machine was short of memory, and may have chosen a bystander.
            self.again = self.again or (cause == "killed by SIGKILL")
        elif remaining:
            row["notes"] = [*(row.get("notes") or []), f"left {remaining} processes behind, which were ended"]
        row["seconds"] = time.monotonic() - self.started
        row["peak_bytes"] = max(self.peak, row.get("peak_bytes") or 0)
        return {"row": row, "again": self.again, "log": log}


def _cause_of_end(status: int | None) -> tuple[str, str]:
    """Return cause and detail of a process that ended without a row."""
    if status is None:
        return "killed", "its process could not be waited for"
    if os.WIFSIGNALED(status):
        return f"killed by {_signal_name(os.WTERMSIG(status))}", ""
    return f"exit {os.WEXITSTATUS(status)}", "ended before it was done"


def _signal_name(number: int) -> str:
    """Return SIGSEGV, or the number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_output(log: str) -> str:
    """Return the place of a crash in a log, else its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    crash = next((index for index, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if crash is None:
        return f"last printed: {one_line(lines[-1])}" if lines else ""
    place = next((line for line in lines[crash:] if line.startswith("File ")), "")
    return one_line(" in ".join(filter(None, (lines[crash], place))))


# ------------------------------------------------------------------ in the sample's own process


def _run_isolated(
    verb: Verb,
    task: Task,
    options: Mapping[str, Any],
    staging: Path,
    limits: Limits,
    message_sink: int,
    output_sink: int,
) -> NoReturn:
    """Run the sample's own process: isolate it, run the verb, send its row. It never returns into the worker's code."""
    code = 70
    try:
        worker = os.getppid()
        message_sink = _isolate_process(staging, limits, message_sink, output_sink)
        processes.die_with_parent(worker)
        at_work.begin(staging)
        memory.limit_memory(limits.memory)
        row = run_verb(verb, task, options, staging / "sample", limits.threads, message_sink)
        write_line(message_sink, {"row": row})
        code = 0
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(2, f"{type(error).__name__}: {one_line(str(error))}\n".encode())
    finally:
        os._exit(code)  # without atexit handlers and threads, which may deadlock


def _isolate_process(staging: Path, limits: Limits, message_sink: int, output_sink: int) -> int:
    """Separate this process from the worker's: session, descriptors, limits, folder. Return the new descriptor of
    `message_sink`."""
    os.setsid()
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory runs out, this process ends before workers and parent
    message_sink = fcntl.fcntl(message_sink, fcntl.F_DUPFD_CLOEXEC, 500)
    silent = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((silent, 0), (output_sink, 1), (output_sink, 2)):
        os.dup2(old, new)
    os.closerange(3, message_sink)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # A huge allocation fails at once instead of taking the machine's memory. Reserved memory counts too, such as the
    # stacks of threads, so this is above the limit that is measured.
    data = processes.status("VmData") + limits.memory + limits.memory // 4 + GIB + limits.threads * (64 << 20)
    for kind, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, limits.disk), (resource.RLIMIT_DATA, data)):
        resource.setrlimit(kind, (most, most))
    os.chdir(staging / "tmp")
    os.environ |= {"TMPDIR": os.getcwd(), "OMP_NUM_THREADS": str(limits.threads)}
    return message_sink


def run_verb(
    verb: Verb, task: Task, options: Mapping[str, Any], place: Path, threads: int, message_sink: int
) -> dict[str, Any]:
    """Return the verb's row for a sample, or the row of its failure."""
    import faulthandler
    import traceback

    faulthandler.enable(file=2)
    sys.stdout = os.fdopen(1, "w", errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False, buffering=1)
    watch = begin_clock(lambda name: write_line(message_sink, {"stage": name}))
    processes.reset_peak()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    try:
        row = {"stage": "done", **verb.run(task, options, place)}
        row["stages"] = {**watch.seconds, **(row.get("stages") or {})}
        json.dumps(row)  # the worker, which reads it, checks the columns
    except BaseException as error:
        traceback.print_exc()
        row = failure_of(error, watch.stage) | {"stages": watch.seconds}
    row["peak_bytes"] = processes.status("VmHWM")
    if place.is_dir():
        row["disk_bytes"] = processes.size_of(place)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    return row


if __name__ == "__main__":
    main(sys.argv[1:])
