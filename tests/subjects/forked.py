"""Run Python in processes of their own without loading PyTorch in each: one process has loaded it, and forks.

A test that runs many files or commands waits for `import torch` in each, which takes longer than what it looks at.
`run_python` takes what follows `python` on a command line and gives what `subprocess.run` gives. Each process has its
own folder, environment, arguments, descriptors and `__main__`, and ends as an interpreter does. It has in common with
the others what is decided when Python starts or PyTorch loads: options of the interpreter, the seed of hashes, and the
environment that libraries read then. Tests of those start processes of their own.

Workers of a pool are forked in the same way where `workers_forked` holds: of what the tests of `corpus/` look at, their
environment in /proc is not their own, and they do not die with the process that began them but at the end of its pipe.

    python forked.py SOCKET MODULES                  loads modules and waits for calls
    python -I -S forked.py call SOCKET ARGUMENTS     is one call, with this process's descriptors
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import multiprocessing.process
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PIECE = 1 << 16

LOADED = "torch,torch._dynamo"
"""What is loaded before the first call: what a file loads that runs a graph through torch.compile."""

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "CUDA_VISIBLE_DEVICES": "",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
"""In which environment workers start: `backprint.tools.jobs.pool` has the reasons."""

SERVERS = "BACKPRINT_FORKED"
"""The environment variable with the sockets of servers that this process may call: it need not start its own."""

FILES = ("-P",), LOADED
"""The flags and the modules of the server for exported files."""

WORKERS = "workers"
"""What is loaded for the workers of a pool."""

COMMANDS = "commands"
"""What is loaded for the command line; workers of its pools are forked too."""


# ------------------------------------------------------------------ calls


LEAKS = re.compile(r"^nanobind: leaked [\s\S]*?/refleaks\.html\n?", re.MULTILINE)
"""What the Triton of torch 2.15 prints when a process ends that has imported it, whatever the process did."""


def run_python(
    arguments: Sequence[str | os.PathLike[str]],
    *,
    flags: Sequence[str] = (),
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 600.0,
    loaded: str = LOADED,
) -> subprocess.CompletedProcess[str]:
    """Run `python FLAGS ARGUMENTS` in a process that is forked from one with these flags; return how it ended."""
    place = server(tuple(flags), loaded)
    words, environment = list(map(os.fspath, arguments)), os.environ if env is None else env
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors, open(os.devnull, "rb") as nothing:
        descriptors = nothing.fileno(), out.fileno(), errors.fileno()
        code = Call(place, words, os.fspath(cwd or os.getcwd()), environment, descriptors).wait(timeout)
        texts = [LEAKS.sub("", file.seek(0) or file.read().decode("utf-8", "replace")) for file in (out, errors)]
    return subprocess.CompletedProcess(words, code, *texts)


@contextlib.contextmanager
def workers_forked() -> Iterator[None]:
    """Workers of pools are forked from one process, which has loaded and tried what they need."""

    def forks(words: Sequence[str], environment: Mapping[str, str]) -> bool:
        # A process that sees a GPU cannot be forked.
        return "backprint.tools.jobs.worker" in words and environment.get("CUDA_VISIBLE_DEVICES") == ""

    with _replaced(forks, lambda words: [WORKERS], WORKERS, {SERVERS: lambda: servers(FILES)}):
        yield


@contextlib.contextmanager
def files_forked() -> Iterator[None]:
    """Exported files that Backprint itself runs, to see that they say what they must, are forked too."""

    def forks(words: Sequence[str], environment: Mapping[str, str]) -> bool:
        return words[0] == sys.executable and words[1].endswith(".py")

    with _replaced(forks, lambda words: words[1:], FILES[1], {}):
        yield


@contextlib.contextmanager
def _replaced(
    forks: Callable[[Sequence[str], Mapping[str, str]], bool],
    words_of: Callable[[Sequence[str]], Sequence[str]],
    loaded: str,
    added: Mapping[str, Callable[[], str]],
) -> Iterator[None]:
    """Programs that Backprint starts and for which `forks` holds are forked from the server with `loaded`."""
    from backprint.child import child

    plain = child.open_process

    def open_process(
        words: Sequence[str],
        output: int,
        descriptors: Sequence[int],
        environment: Mapping[str, str],
        folder: Path | None = None,
    ) -> Any:
        if not forks(words, environment):
            return plain(words, output, descriptors, environment, folder)
        with open(os.devnull, "rb") as nothing:
            given = nothing.fileno(), output, output, *descriptors
            known = {**{name: value() for name, value in added.items()}, **environment}
            call = Call(server(("-P",), loaded), words_of(words), os.fspath(folder or os.getcwd()), known, given)
            return call.pid, call.wait

    child.open_process = open_process
    try:
        yield
    finally:
        child.open_process = plain


class Call:
    """One call of a server: what is run and where. It begins at once."""

    def __init__(
        self,
        place: str,
        arguments: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        descriptors: Sequence[int],
    ) -> None:
        self.arguments, self.returncode = list(arguments), None
        self.asked = socket.socket(socket.AF_UNIX)
        self.asked.connect(place)
        given = {"arguments": list(arguments), "folder": folder, "environment": dict(environment)}
        content = json.dumps(given).encode() + b"\n"
        sent = socket.send_fds(self.asked, [content[:PIECE]], descriptors)
        self.asked.sendall(content[sent:])
        self.answer = self.asked.makefile()
        self.pid = int(self.answer.readline())

    returncode: int | None
    """Its exit code once it was waited for, negative for a signal's number."""

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; raise TimeoutExpired, and end it, if it takes longer."""
        if self.returncode is None:
            self.asked.settimeout(timeout)
            try:
                self.returncode = int(self.answer.readline())
            except TimeoutError:
                self.kill()
                raise subprocess.TimeoutExpired(self.arguments, timeout or 0.0) from None
            finally:
                self.answer.close()
                self.asked.close()
        return self.returncode


def servers(*wanted: tuple[tuple[str, ...], str]) -> str:
    """Return the value of SERVERS for these servers, by their flags and what they have loaded."""
    return json.dumps({" ".join((*flags, loaded)): server(flags, loaded) for flags, loaded in wanted})


@functools.cache
def server(flags: tuple[str, ...], loaded: str) -> str:
    """Start a server that is ended with this process, unless there is one; return the path of its socket."""
    if known := json.loads(os.environ.get(SERVERS, "{}")).get(" ".join((*flags, loaded))):
        return str(known)
    place, owner = os.path.join(tempfile.mkdtemp(prefix="forked_"), "socket"), os.getpid()
    given = os.pipe()
    environment = {**os.environ, **(ENVIRONMENT if loaded == WORKERS else {})}
    process = subprocess.Popen([sys.executable, *flags, __file__, place, loaded], stdin=given[0], env=environment)
    os.close(given[0])

    def end() -> None:
        if os.getpid() == owner:  # a process that a test forks may end as an interpreter does
            os.close(given[1])  # the server ends when it sees that nobody can write to it
            process.wait()

    atexit.register(end)
    until = time.monotonic() + 300
    while not os.path.exists(place):
        assert process.poll() is None, "the server has ended"
        assert time.monotonic() < until, "the server is not ready"
        time.sleep(0.01)
    return place


# ------------------------------------------------------------------ the server


def serve(place: str, modules: str) -> None:
    """Load modules, and fork a process for each call, until standard input is closed."""
    import gc
    import importlib
    import select

    if modules in (WORKERS, COMMANDS):
        load_verbs()
    else:
        for name in filter(None, modules.split(",")):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that collecting in a forked process does not copy every page
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.bind(f"{place}.new")
        waiting.listen()
        os.rename(f"{place}.new", place)
        while True:
            ready, _, _ = select.select([waiting, 0], [], [])
            if 0 in ready:
                reap()
                shutil.rmtree(os.path.dirname(place))
                return
            asked, _ = waiting.accept()
            reap()
            if not os.fork():
                waiting.close()
                run = kept(asked)
                break
            asked.close()
    with contextlib.ExitStack() as stack:
        if modules == COMMANDS:
            stack.enter_context(workers_forked())
            stack.enter_context(files_forked())
        run()


def reap() -> None:
    """Wait for the processes that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def load_verbs() -> None:
    """Load and try what workers load and try, for all verbs."""
    from backprint.tools.bench.shrinking import case_of
    from backprint.tools.bench.trial import titles
    from backprint.tools.jobs import verbs
    from backprint.tools.jobs.worker import main
    from backprint.tools.kernels.work import extract_sample

    _ = case_of, titles, main, extract_sample  # loaded for the processes that are forked
    verbs.warm({})


def kept(asked: socket.socket) -> Callable[[], None]:
    """Fork once more: there, return what is to be run; here, tell how it ended, and end."""
    content, descriptors, _, _ = socket.recv_fds(asked, PIECE, 5)
    while not content.endswith(b"\n"):
        content += asked.recv(PIECE)
    pid = os.fork()
    if pid:
        for each in (0, *descriptors):
            os.close(each)
        with contextlib.suppress(BrokenPipeError):
            asked.sendall(b"%d\n" % pid)
            asked.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        os._exit(0)
    asked.close()
    for number, each in enumerate(descriptors[:3]):
        os.dup2(each, number)
        os.close(each)
    call: dict[str, Any] = json.loads(content)
    os.environ.clear()
    os.environ.update(call["environment"])
    os.chdir(call["folder"])
    vars(multiprocessing.process)["ORIGINAL_DIR"] = call["folder"]  # against which a new process looks for the script
    if not sys.flags.ignore_environment:
        added = call["environment"].get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [place for place in added if place and place not in sys.path]
    return functools.partial(work, descriptors[3:]) if descriptors[3:] else functools.partial(play, call["arguments"])


def work(descriptors: Sequence[int]) -> None:
    """Be a worker whose line is this descriptor."""
    from backprint.child import processes
    from backprint.tools.jobs import worker

    die_with_parent = processes.die_with_parent

    def begun_by(parent: int) -> None:
        processes.die_with_parent = (
            die_with_parent  # a sample's process dies with its worker, and the worker at the end of its pipe
        )

    os.setsid()
    processes.die_with_parent = begun_by
    with files_forked():
        worker.main([*map(str, descriptors), "0"])


def play(arguments: Sequence[str]) -> None:
    """Do what `python ARGUMENTS` does."""
    import runpy

    path = [] if sys.flags.safe_path else [os.getcwd()]
    match list(arguments):
        case ["-c", code, *rest]:
            sys.argv[:], sys.path[:0] = ["-c", *rest], [""] if path else []
            sys.modules["__main__"] = module = types.ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), vars(module))
        case ["-m", name, *rest]:
            sys.argv[:], sys.path[:0] = [name, *rest], path
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case [file, *rest]:
            sys.argv[:], sys.path[:0] = [file, *rest], [os.path.dirname(os.path.abspath(file))] if path else []
            runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1] == "call":
        raise SystemExit(Call(sys.argv[2], sys.argv[3:], os.getcwd(), os.environ, (0, 1, 2)).wait() % 256)
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != Path(__file__).resolve().parent]
    serve(*sys.argv[1:])
