"""A fuzz of the whole loader: mutated samples, ours and GraphNet's, of which nothing may crash, hang or grow.

    python tests/fuzz/loader.py --count 20000 --seed 1 -o findings
    PYTHONPATH=tests python tests/fuzz/loader.py --of pages --count 20000 --seed 1 -o findings

Each sample is a kept one (`seeds`) with a few changes (`mutate`), and goes through all that Backprint does with a
stranger's folder before anything of it runs (`whole`), in a forked child. Findings are what is raised that is not an
error of Backprint's, more than SECONDS of the processor, more than GROWTH of memory, a hang, a death. Each is made
small and kept in a file below `-o`, which `--again FILE` looks at once more; number `i` of a seed is always the same
sample. The run goes on where it was ended, as `-o` has its state. 100,000 samples take about eight minutes on one
core. `--of pages` makes pictures, pages and differences of samples that are read (`pages`).
"""

from __future__ import annotations

import argparse
import difflib
import faulthandler
import gc
import importlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from mutate import mutated, tree_of
from seeds import Files, packed, seeds, unpacked
from whole import SHALLOW, STAGES, look

OTHERS = {"pages": "pages"}
"""Modules with a `corpus` and a `look` of their own: other folders than samples, or what is made of samples that are
read."""

SECONDS = 5.0
"""How long one sample may keep the processor."""

ENOUGH = 15.0
"""How long a sample is given by the processor before it counts as one that hangs."""

PATIENCE = 120
"""How long by the clock, on a machine that does other things too."""

GROWTH = 1 << 30
"""How much memory one sample may take."""

ROOM = 3 << 30
"""How much address space a child may take beyond what it begins with: it ends before the machine does."""

BATCH = 500
KEPT = 3
"""How many findings of one kind at one place are kept."""

SMALLER = 60.0
"""Seconds in which a finding is made as small as it gets."""

GONE_ON = 20
"""How many of them are told of."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What went wrong with a sample: what kind of thing, where, and in which words."""

    kind: str
    where: str
    said: str

    @property
    def place(self) -> str:
        """What tells findings apart."""
        return f"{self.kind} at {self.where}"


# ------------------------------------------------------------------ one sample


def made(seed: int, number: int, corpus: Mapping[str, Files]) -> tuple[str, Files]:
    """The sample of a number."""
    return mutated(random.Random(f"{seed}:{number}"), corpus)


def write(files: Files, folder: Path) -> None:
    """The files of a sample in a folder of their own."""
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        match content:
            case bytes():
                place.write_bytes(content)
            case str():
                place.write_bytes(content.encode("utf-8", "surrogatepass"))
            case {"kind": "folder"}:
                place.mkdir(exist_ok=True)
            case {"kind": "link"}:
                place.symlink_to("/dev/zero")
            case {"kind": "pipe"}:
                os.mkfifo(place)


def tried(files: Files, work: Path, number: int = 0) -> tuple[str, Finding | None]:
    """Where the loader ends with a sample, and what went wrong, in this process."""
    source = work / "source"
    shutil.rmtree(source, ignore_errors=True)  # of a child that died
    try:
        write(files, source / "s")
    except OSError as error:  # a sample that no disk can hold
        shutil.rmtree(source, ignore_errors=True)
        return "files", None if isinstance(error, (FileExistsError, NotADirectoryError)) else raised(error)
    before, peak = time.process_time(), peak_bytes()
    stage, finding = "", None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nobody has asked for what Python has to say of a stranger's text
            warnings.filterwarnings("ignore", message="ComplexHalf")  # torch's, of any such tensor
            stage = look(source, number)
    except Exception as error:
        stage, finding = "raised", raised(error)
    seconds, grown = time.process_time() - before, peak_bytes() - peak
    shutil.rmtree(source)
    if finding is None and seconds > SECONDS:
        finding = Finding("slow", stage, f"{seconds:.1f} s")
    if finding is None and grown > GROWTH:
        finding = Finding("large", stage, f"{grown / 2**20:.0f} MiB")
    return stage, finding


def patience() -> None:
    """End this process where the next sample takes for ever."""
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    signal.setitimer(signal.ITIMER_PROF, ENOUGH)


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def raised(error: BaseException) -> Finding:
    """A finding of what was raised: its class, and the last line of ours that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "backprint" in frame.filename] or frames
    last = ours[-1]
    where = f"{type(error).__name__} in {Path(last.filename).name}:{last.name}"
    path = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-8:]))
    return Finding("raised", where, f"{type(error).__name__}: {str(error)[:300]!r} ({path})")


# ------------------------------------------------------------------ a batch, in a child

Row = tuple[int, str, Finding | None]
"""A sample's number, where it ended, and what went wrong with it."""

Report = Callable[[Any], None]
"""What a child tells with."""


def batch(numbers: range, seed: int, corpus: Mapping[str, Files], work: Path) -> Iterator[Row]:
    """Each number, where its sample ended, and what went wrong with it; in children, a new one after each finding."""
    left = list(numbers)
    while left:
        last, ended = left[0] - 1, ""
        for row in child(lambda report, left=left: samples(left, seed, corpus, work, report)):
            if isinstance(row, str):
                ended = row
                continue
            last = row[0]
            yield row[0], row[1], Finding(*row[2]) if row[2] else None
        if ended:
            last += 1
            yield last, "ended", Finding("ended", ended, "")
        left = [number for number in left if number > last]


def samples(numbers: list[int], seed: int, corpus: Mapping[str, Files], work: Path, report: Report) -> None:
    """What came of each number, told as it is known; ends after one that took too much, whose memory stays taken."""
    for number in numbers:
        _, files = made(seed, number, corpus)
        patience()
        stage, finding = tried(files, work, number)
        report((number, stage, finding and (finding.kind, finding.where, finding.said)))
        if finding and finding.kind != "raised":
            return


def child(does: Callable[[Report], None]) -> Iterator[Any]:
    """What a forked process tells, one JSON value a line; and at last, as a text, how it ended if not well."""
    end, start = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's, where there are threads
        process = os.fork()
    if process == 0:
        os.close(end)
        run_child(does, start)
    os.close(start)
    with open(end, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        yield ENDLESS.get(os.WTERMSIG(status)) or signal.Signals(os.WTERMSIG(status)).name
    elif status:
        yield f"exit code {os.waitstatus_to_exitcode(status)}"


ENDLESS = {signal.SIGPROF: "no end", signal.SIGALRM: "waits for ever"}
"""How a child ends that a timer ended."""


def run_child(does: Callable[[Report], None], start: int) -> NoReturn:
    """In the child: its limits, then its work; it leaves without what the parent would do at its end."""
    code = 1
    try:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()  # the parent tells of a death
        for number in ENDLESS:
            signal.signal(number, signal.SIG_DFL)
        does(lambda row: os.write(start, (json.dumps(row) + "\n").encode()) and None)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


# ------------------------------------------------------------------ made small


def finding_of(files: Files, work: Path, number: int) -> Finding | None:
    """What goes wrong with a sample of this number, in a child of its own."""

    def one(report: Report) -> None:
        patience()
        _, finding = tried(files, work, number)
        report(finding and (finding.kind, finding.where, finding.said))

    found = None
    for row in child(one):
        found = Finding("ended", row, "") if isinstance(row, str) else Finding(*row) if row else None
    return found


def made_small(files: Files, before: Files, wanted: Finding, work: Path, number: int) -> Files:
    """The sample with everything undone that the finding does not hang on."""
    kept, until = dict(files), time.monotonic() + SMALLER
    for path in sorted({*files, *before}):
        done = False
        while not done:
            done = True
            for undone in undoings(kept, before, path):
                if time.monotonic() > until:
                    return kept
                found = finding_of(undone, work, number)
                if found is not None and found.place == wanted.place:
                    kept, done = undone, False
                    break
    return kept


def undoings(files: Files, before: Files, path: str) -> Iterator[Files]:
    """The sample with a file as it was, or with one of its changes undone."""
    if files.get(path) == before.get(path):
        return
    without = {name: content for name, content in files.items() if name != path}
    if without or path in before:
        yield without | ({path: before[path]} if path in before else {})
    now, then = lines_of(path, files.get(path)), lines_of(path, before.get(path))
    if now and then:
        for _, i, j, k, m in difflib.SequenceMatcher(None, now, then, autojunk=False).get_opcodes():
            if now[i:j] != then[k:m]:
                yield {**files, path: "\n".join([*now[:i], *then[k:m], *now[j:]])}
            for line in range(j - i if j - i == m - k > 1 else 0):
                if now[i + line] != then[k + line]:
                    yield {**files, path: "\n".join([*now[: i + line], then[k + line], *now[i + line + 1 :]])}


def lines_of(path: str, content: Any) -> list[str]:
    """The lines of a file, of JSON one a value."""
    if not isinstance(content, str):
        return []
    tree = tree_of(content) if path.endswith(".json") else None
    return (json.dumps(tree, indent=0) if tree else content).split("\n")


# ------------------------------------------------------------------ many


class Run:
    """A run's counts and findings, kept in a folder, from which it goes on."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed, self.next = folder, seed, 0
        self.stages: Counter[str] = Counter()
        self.places: Counter[str] = Counter()
        self.seconds = 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self.state = folder / f"state_{seed}.json"
        if self.state.exists():
            state = json.loads(self.state.read_text("utf-8"))
            self.next, self.seconds = state["next"], state["seconds"]
            self.stages, self.places = Counter(state["stages"]), Counter(state["places"])

    def save(self) -> None:
        """Keep what is known."""
        state = {"next": self.next, "seconds": self.seconds, "stages": self.stages, "places": self.places}
        new = self.state.with_suffix(".new")
        new.write_text(json.dumps(state, indent=1), "utf-8")
        new.replace(self.state)

    def go(self, count: int, corpus: Mapping[str, Files], work: Path) -> None:
        """Look at samples up to number `count`."""
        said = time.monotonic()
        while self.next < count:
            began = time.monotonic()
            numbers = range(self.next, min(count, self.next + BATCH))
            for number, stage, finding in list(batch(numbers, self.seed, corpus, work)):
                self.stages[stage] += 1
                if finding is not None:
                    self.places[finding.place] += 1
                    self.keep(number, finding, corpus, work)
            self.next, self.seconds = numbers.stop, self.seconds + time.monotonic() - began
            self.save()
            if time.monotonic() - said > 30:
                said = time.monotonic()
                rate = self.next / self.seconds
                print(f"{self.next:,} of {count:,}, {rate:.0f} a second, {self.places.total()} findings", flush=True)

    def keep(self, number: int, finding: Finding, corpus: Mapping[str, Files], work: Path) -> None:
        """Write a finding, made small, unless there are enough of its kind."""
        if self.places[finding.place] > KEPT:
            return
        name, files = made(self.seed, number, corpus)
        files = made_small(files, corpus[name], finding, work, number)
        print(f"number {number}, of {name}: {finding.place}: {finding.said}", flush=True)
        changed = {path: content for path, content in files.items() if content != corpus[name].get(path)}
        absent = sorted(path for path in corpus[name] if path not in files)
        row = {
            "of": name,
            "seed": self.seed,
            "number": number,
            "found": finding.place,
            "said": finding.said,
            "without": absent,
            "changed": json.loads(packed(changed)),
        }
        place = self.folder / f"{self.seed}_{number}.json"
        place.write_text(json.dumps(row, indent=1) + "\n", "utf-8")

    def told(self) -> str:
        """The counts as a table."""
        total = self.stages.total()
        deep = total - sum(self.stages[stage] for stage in SHALLOW)
        rows = [
            f"{total:,} samples in {self.seconds:,.0f} s; {deep / max(total, 1):.0%} got beyond the parsing of files"
        ]
        for stage in (*STAGES, *sorted(set(self.stages) - set(STAGES))):
            if self.stages[stage]:
                rows.append(f"  {stage:<12}{self.stages[stage]:>10,}{self.stages[stage] / total:>7.1%}")
        rows.append(f"{self.places.total()} findings")
        rows += [f"  {count:>6}  {place}" for place, count in self.places.most_common(GONE_ON)]
        return "\n".join(rows)


def read_finding(path: Path, corpus: Mapping[str, Files]) -> tuple[int, Files]:
    """The number and the sample of a kept finding."""
    row = json.loads(path.read_text("utf-8"))
    files = {name: content for name, content in corpus[row["of"]].items() if name not in row["without"]}
    return row["number"], files | unpacked(json.dumps(row["changed"]))


def again(path: Path, corpus: Mapping[str, Files], work: Path) -> Finding | None:
    """What goes wrong with a kept finding now."""
    number, files = read_finding(path, corpus)
    return finding_of(files, work, number)


def memory_folder() -> str | None:
    """Where files are that no disk sees, if there is such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def warm(corpus: Mapping[str, Files], work: Path) -> None:
    """Load all that is loaded for any of the samples, so that no child does."""
    torch.set_num_threads(1)
    for name, files in corpus.items():
        stage, finding = tried(files, work)
        if stage not in ("function", "loaded") or finding is not None:
            raise SystemExit(f"{name}, which is not a mutation, ends at {stage}: {finding}")
    gc.collect()
    gc.freeze()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="how many samples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("findings"), help="where findings and the state are kept"
    )
    parser.add_argument("--again", type=Path, nargs="+", help="look at kept findings once more, and at nothing else")
    parser.add_argument("--of", choices=("samples", *OTHERS), default="samples", help="what is looked at")
    given = parser.parse_args(arguments)
    if given.of == "samples":
        corpus = seeds()
    else:
        global look  # the one that all children call
        module = importlib.import_module(OTHERS[given.of])
        corpus, look = module.corpus(), module.look
    with tempfile.TemporaryDirectory(prefix="fuzz_", dir=memory_folder()) as folder:
        work = Path(folder)
        warm(corpus, work)
        if given.again:
            found = {path: again(path, corpus, work) for path in given.again}
            for path, finding in found.items():
                print(f"{path}: {finding.place + ': ' + finding.said if finding else 'nothing'}")
            return 1 if any(found.values()) else 0
        run = Run(given.out, given.seed)
        run.go(given.count, corpus, work)
    print(run.told())
    return 1 if run.places else 0


if __name__ == "__main__":
    sys.exit(main())
