"""A corpus run that is ended at many moments and in many ways, and taken up: is it the run that nothing ended?

    PYTHONPATH=tests python tests/corpus/ends.py --moments 40 -o ends.jsonl

Ways are `kill -9`, SIGTERM and Ctrl-C on a pool and on a Ray cluster of this machine; on the pool also a disk that is
filled, OUT removed, and a clock that is set back before the run is taken up. The moments are spread over the time
that a run takes, from its start to its end. After each: no process of the run is left, the exit code is the signal's,
`corpus status` reads OUT; and once the same command has gone on, its rows and its files are those of a run that nothing
ended, but for times. A row of the output is one end; what is there already is not done again. 40 moments take about
half an hour on one core.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import subjects
from click.testing import CliRunner
from subjects.corpora import compared, corpus, files, rows

from backprint.child.limits import FREE
from backprint.cli import main as backprint
from backprint.errors import SampleError, UsageError
from backprint.tools.jobs.ledger import NAME, Ledger
from backprint.tools.jobs.places import WORK

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

VERB = f"{Path(subjects.__file__).with_name('ray_verbs.py')}:act"
NAMES = ("a/one", "a/two", "b/three", "b/segfault", "raise", "z")
REGULAR = 1
"""The exit code of a run that nothing ends: two of its samples fail."""

SIGNALS = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM, "INT": signal.SIGINT}
ACCIDENTS = ("full disk", "OUT removed", "clock back")
"""Ends that are no signal's; the last is `kill -9`, and a resume in a time before it."""

TOKEN = "BACKPRINT_ENDS"
"""The variable by which all processes of one run are found."""

GONE = 30.0
"""Seconds within which what a run has started has to be gone."""

PATIENCE = 60.0
"""Seconds within which a run has to be over, once it was ended or taken up."""

CLOCK = """
import os, time
_now, _now_ns, _back = time.time, time.time_ns, float(os.environ.get("CLOCK_BACK") or 0)
time.time, time.time_ns = lambda: _now() - _back, lambda: _now_ns() - int(_back * 1e9)
"""
"""A `sitecustomize.py` that sets the clock of a process back."""

DAY = 86400.0


@dataclass(slots=True)
class End:
    """One end of a run: where it ran, how it was ended and when, and what was wrong with that or with what followed."""

    executor: str
    how: str
    moment: int
    resumed_on: str
    after: float = 0.0
    code: int = 0
    done: int = 0
    """Samples in the ledger when it had ended; -1 where there was no ledger."""
    wrong: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.executor} {self.how} {self.moment}"


@dataclass(frozen=True, slots=True)
class Whole:
    """A run that nothing ended: how long it took, its rows and its files."""

    seconds: float
    rows: Mapping[str, Any]
    files: Mapping[str, bytes]


class Bench:
    """Where runs are made: the corpus, the cluster, and the runs that nothing ended."""

    def __init__(self, work: Path, seconds: float) -> None:
        self.work, self.seconds = work, seconds
        self.source = corpus(work / "source", NAMES)
        self.site = work / "site"
        self.site.mkdir()
        (self.site / "sitecustomize.py").write_text(CLOCK)
        self.address = ""
        self.whole: dict[str, Whole] = {}
        self.count = itertools.count()

    def begin(self, executor: str, out: Path, token: str, back: float = 0.0) -> subprocess.Popen[str]:
        """The command, in a session of its own, with signals as a shell in front has them."""
        arguments = [
            "corpus",
            "run",
            VERB,
            self.source,
            "-o",
            out,
            "--jobs",
            "2",
            "--timeout",
            "60",
            "--memory",
            "0.25",
        ]
        arguments += ["--set", f"seconds={self.seconds}"]
        arguments += ["--ray", self.address] if executor == "ray" else []
        path = os.pathsep.join([str(self.site), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, TOKEN: token, "PYTHONPATH": path, "CLOCK_BACK": str(back)}
        return subprocess.Popen(
            [sys.executable, "-m", "backprint", *map(str, arguments)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=as_in_front,
        )

    def first(self, executor: str) -> None:
        """Runs that nothing ends. The second one counts: what the first had to load, later ones find loaded."""
        for _ in range(2):
            out = self.work / f"whole_{executor}"
            shutil.rmtree(out, ignore_errors=True)
            began = time.monotonic()
            process = self.begin(executor, out, "whole")
            _, said = process.communicate(timeout=300)
            if process.returncode != REGULAR:
                raise SystemExit(f"{executor}: a run that nothing ended ended with {process.returncode}: {said}")
            self.whole[executor] = Whole(time.monotonic() - began, compared(out), files(out))


def as_in_front() -> None:
    """Signals as they are where nobody has changed them: a shell has its background commands ignore Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


# ------------------------------------------------------------------ one end


def ended(bench: Bench, end: End, moments: int) -> End:
    """A run, ended and taken up; what was wrong is in the End."""
    whole = bench.whole[end.executor]
    chance = random.Random(end.name)
    end.after = round((end.moment + chance.random()) / moments * whole.seconds * 1.1, 3)
    number = next(bench.count)
    with place_for(bench, end, number) as out:
        token = f"{os.getpid()}.{number}"
        process = bench.begin(end.executor, out, token)
        time.sleep(end.after)
        strike(process, end.how, out)
        said = over(process, end, "the run")
        end.code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        (out.parent / "full").unlink(missing_ok=True)
        check_left(end, token, out)
        check_code(end, out, said)
        check_status(end, out)
        check_resumed(bench, end, out)
    return end


def over(process: subprocess.Popen[str], end: End, name: str) -> str:
    """What a command has said, once it is over; one that does not end is ended, and that is wrong."""
    try:
        return process.communicate(timeout=PATIENCE)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        end.wrong.append(f"{name} does not end")
        return process.communicate()[1]


@contextlib.contextmanager
def place_for(bench: Bench, end: End, number: int) -> Iterator[Path]:
    """An OUT; on a small disk of its own, where that is to be filled."""
    folder = bench.work / f"run_{number}"
    folder.mkdir()
    small = end.how == "full disk"
    if small:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={FREE + (100 << 20)}", "tmpfs", folder], check=True)
    try:
        yield folder / "out"
    finally:
        if small:
            subprocess.run(["umount", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def strike(process: subprocess.Popen[str], how: str, out: Path) -> None:
    """End a run."""
    match how:
        case "full disk":
            with open(out.parent / "full", "wb") as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * (1 << 20))
        case "OUT removed":
            while out.exists():
                shutil.rmtree(out, ignore_errors=True)
        case "clock back":
            process.kill()
        case _:
            process.send_signal(SIGNALS[how])


def check_left(end: End, token: str, out: Path) -> None:
    """No process is left of it, soon."""
    deadline = time.monotonic() + GONE
    while left := processes_of(token, out):
        if time.monotonic() > deadline:
            end.wrong.append(f"{len(left)} processes are left: {left[0]}")
            return
        time.sleep(0.05)


def processes_of(token: str, out: Path) -> list[str]:
    """The command lines of a run's processes: of the command, and of workers, which on Ray another started."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            said = Path("/proc", name, "environ").read_bytes()
            line = Path("/proc", name, "cmdline").read_bytes()
            own = f"{TOKEN}={token}\0".encode() in said + b"\0"
            if line and (own or (b"backprint.tools.jobs.worker" in line and os.fsencode(out) in said)):
                found.append(line.replace(b"\0", b" ").decode(errors="replace")[:200])
    return found


def check_code(end: End, out: Path, said: str) -> None:
    """The exit code is that of its end; the regular one where it had ended by itself before.

    While Python itself starts and imports the package, Ctrl-C is its own to tell of.
    """
    if end.how == "INT" and "Traceback" in said and "/backprint/cli/" not in said and not (out / NAME).exists():
        return
    wanted = {"full disk": 2, "OUT removed": 2, "clock back": 137}.get(end.how) or 128 + SIGNALS[end.how]
    over = end.code == REGULAR and (is_over(out) or end.how == "OUT removed")
    if end.code != wanted and not over:
        end.wrong.append(f"exit code {end.code} and not {wanted}: {said.strip()[-300:]!r}")
    if "Traceback" in said:
        end.wrong.append(f"a traceback: {said.strip()[-300:]!r}")


def is_over(out: Path) -> bool:
    """Whether the ledger says that the run is at its end."""
    with contextlib.suppress(UsageError, SampleError), Ledger.reading(out / NAME) as ledger:
        return "finished" in ledger.facts()
    return False


def check_status(end: End, out: Path) -> None:
    """OUT is readable, where there is one with a ledger."""
    done = CliRunner().invoke(backprint, ["corpus", "status", str(out), "--json"])
    end.done = -1
    if done.exit_code == 0:
        end.done = json.loads(done.stdout)["states"].get("done", 0)
    elif "no ledger here" not in done.output and "nothing is in it yet" not in done.output:
        end.wrong.append(f"corpus status: {done.output.strip()[-300:]!r} {done.exception!r}")


def check_resumed(bench: Bench, end: End, out: Path) -> None:
    """The same command goes on, to what a run has that nothing ended."""
    process = bench.begin(end.resumed_on, out, "resumed", DAY if end.how == "clock back" else 0.0)
    said = over(process, end, "the resumed run")
    if process.returncode != REGULAR:
        end.wrong.append(f"the resumed run ends with {process.returncode}: {said.strip()[-300:]!r}")
        return
    try:
        check_same(bench, end, out)
    except (SampleError, UsageError, OSError) as error:
        end.wrong.append(f"after the resume: {error}")


def check_same(bench: Bench, end: End, out: Path) -> None:
    """The run has the rows and the files of one that nothing ended, and nothing else."""
    without = ("versions",) if "ray" in (end.executor, end.resumed_on) else ()  # they have the node's name
    whole = bench.whole[end.executor]
    wanted = {id: {key: row[key] for key in row if key not in without} for id, row in whole.rows.items()}
    if (found := compared(out, without)) != wanted:
        end.wrong.append(f"other rows: {[id for id in {*found, *wanted} if found.get(id) != wanted.get(id)]}")
    same = whole.files if not without else files(bench.work / f"whole_{end.executor}", without)
    if (made := files(out, without)) != same:
        end.wrong.append(f"other files: {[name for name in {*made, *same} if made.get(name) != same.get(name)][:5]}")
    if (left := {place.name for place in (out / WORK).iterdir()}) - {"lock", "logs"}:
        end.wrong.append(f"left in {WORK}: {sorted(left)}")
    check_status(end_of := End("", "", 0, ""), out)
    end.wrong += end_of.wrong
    if end_of.done != len(rows(out)):
        end.wrong.append(f"{end_of.done} of {len(rows(out))} are done after the resume")


# ------------------------------------------------------------------ all of them


def planned(executors: list[str], hows: list[str], moments: int, ray_resumes: int) -> list[End]:
    """Every end: signals at all moments on each executor, accidents at a quarter of them on the pool."""
    found = []
    for executor, how in itertools.product(executors, hows):
        if how in ACCIDENTS and executor != "pool":
            continue
        every = 4 if how in ACCIDENTS and moments >= 4 else 1
        for moment in range(every // 2, moments, every):
            on_ray = executor == "ray" and moment % max(moments // max(ray_resumes, 1), 1) == 0 and ray_resumes > 0
            found.append(End(executor, how, moment, "ray" if on_ray else "pool"))
    return found


@contextlib.contextmanager
def cluster(bench: Bench, wanted: bool) -> Iterator[None]:
    """A Ray cluster of this machine."""
    if not wanted:
        yield
        return
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 100 << 20, "memory": 4 << 30, "node_ip_address": "127.0.0.1"}
    nodes = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    bench.address = nodes.address
    try:
        yield
    finally:
        nodes.shutdown()


def table(ends: list[End]) -> str:
    """What came of them, a line a way of ending."""
    head = f"{'executor':<10}{'end':<13}{'runs':>5}{'before':>8}{'within':>8}{'after':>7}{'on ray':>8}{'wrong':>7}"
    lines = [head]
    for executor, how in dict.fromkeys((end.executor, end.how) for end in ends):
        own = [end for end in ends if (end.executor, end.how) == (executor, how)]
        before = sum(end.done <= 0 for end in own)
        after = sum(end.done == len(NAMES) for end in own)
        counts = (len(own), before, len(own) - before - after, after)
        others = (sum(end.resumed_on == "ray" for end in own), sum(bool(end.wrong) for end in own))
        lines.append(f"{executor:<10}{how:<13}" + "".join(map("{:>{}}".format, (*counts, *others), (5, 8, 8, 7, 8, 7))))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument("--executors", nargs="+", default=["pool", "ray"], choices=["pool", "ray"])
    parser.add_argument("--ends", nargs="+", default=[*SIGNALS, *ACCIDENTS], choices=[*SIGNALS, *ACCIDENTS])
    parser.add_argument("--ray-resumes", type=int, default=10, help="how many of each end on Ray also go on there")
    parser.add_argument("--seconds", type=float, default=0.4, help="how long a sample takes")
    parser.add_argument("-o", "--out", type=Path, default=Path("ends.jsonl"))
    given = parser.parse_args(arguments)
    ends = planned(given.executors, given.ends, given.moments, given.ray_resumes)
    kept = (
        {row["name"]: row for row in map(json.loads, given.out.read_text().splitlines())} if given.out.exists() else {}
    )
    with tempfile.TemporaryDirectory(prefix="ends_") as folder:
        bench = Bench(Path(folder), given.seconds)
        with cluster(bench, "ray" in given.executors):
            for executor in given.executors:
                bench.first(executor)
                print(f"{executor}: a run that nothing ends takes {bench.whole[executor].seconds:.1f} s", flush=True)
            for index, end in enumerate(ends):
                if end.name in kept:
                    ends[index] = End(**{key: value for key, value in kept[end.name].items() if key != "name"})
                    continue
                ended(bench, end, given.moments)
                with open(given.out, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"name": end.name, **asdict(end)}) + "\n")
                if end.wrong:
                    print(f"{end.name}, after {end.after} s, {end.done} done: {'; '.join(end.wrong)}", flush=True)
    print(table(ends))
    return 1 if any(end.wrong for end in ends) else 0


if __name__ == "__main__":
    sys.exit(main())
