"""Minify a sample, in a process of its own: the first of its graphs on which a compiler fails, or the first of its
Pairs whose backward is not the derivative of its forward.

The calling process runs nothing of the sample and does not load torch. The sample's process (`tools/jobs/apart`) runs
its graphs in eager and forks one more for each test. It writes what it found into a folder as the graph shrinks, and
the calling process puts the last result in place, however the search ends.

A case is a result on disk: a folder with a sample, the file that shows the fault, and the row ROW, which says in plain
values what the fault is.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.errors import SampleError, UsageError
from backprint.sample.place import check_place, settle
from backprint.tools.bench.compilers.table import absolute_compiler
from backprint.tools.jobs.apart import run_apart, write_answer
from backprint.tools.jobs.task import Task, stage
from backprint.tools.jobs.verbs import gpu_option

if TYPE_CHECKING:
    from backprint.tools.bench.wrong_backward import SmallestPart

FUNCTION = "backprint.tools.bench.minify_sample:minify_task"

ROW = "row.json"
"""The file of a case that makes it whole: `case.row`."""

EVERY = 3.0
"""Seconds between two cases that are written while the search goes on."""


@dataclass(frozen=True, slots=True)
class MinifiedSample:
    """What became of a sample: the case in place, and its row; or why there is none."""

    sample: Path
    out: Path | None = None
    file: Path | None = None
    row: Mapping[str, Any] | None = None
    why: str = ""
    """Why there is no case, or why the search ended before its end."""


def minify_sample(
    sample: str | os.PathLike[str],
    compiler: str | None,
    out: str | os.PathLike[str],
    *,
    graph: str | None = None,
    tests: int = 100,
    limit: float = 60.0,
    timeout: float = 3600.0,
    memory: float | None = None,
    allow: tuple[str, ...] = (),
    overwrite: bool = False,
    on_status: Callable[[str], None] = lambda text: None,
    on_written: Callable[[MinifiedSample], None] = lambda minified: None,
) -> MinifiedSample:
    """Shrink a graph of a sample that a compiler fails on, and write it as the sample OUT and the file OUT.py. Without
    a compiler, shrink a Pair whose backward is not the derivative. Raise UsageError for what the search refuses, and
    SampleError if its process ended without a case.

    `graph` is one of its graphs (`pair_0 backward`), else the first that fails; `tests` is the number of tests at most,
    `limit` are the seconds of a test before one has failed, `timeout` those of the whole search, and `memory` the GiB
    of its process. `on_status` is called with the stages of the search, and `on_written` with the result once it is in
    place, after Ctrl-C too. A result without a case says why in `why`.
    """
    place = Path(out)
    check_place(place, overwrite)
    file = place.with_name(f"{place.name}.py")
    if file.exists() and not overwrite:
        raise UsageError(f"{file} exists already: pass overwrite=True (--overwrite), or choose another path")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", suffix=".part", dir=place.parent) as work:
        options = {
            **gpu_option(),
            "compiler": compiler,
            "compiler_lookup": None if compiler is None else absolute_compiler(compiler),  # for other folders
            "graph": graph,
            "tests": tests,
            "limit": limit,
            "allow": list(allow),
            "work": os.path.abspath(work),
            "name": place.name,
        }
        content: dict[str, str] = {}
        try:
            # An answer has `why` (reasons for no case), `usage` (wrong usage), or `error`. Without content, the process
            # has ended before it answered.
            limits = (timeout, memory)
            [answer] = run_apart(
                FUNCTION, [Path(sample)], options, limits, on_sample=lambda path: None, on_stage=on_status
            )
            content = answer.content or {"error": answer.ended}
        finally:  # what was found so far is put in place after Ctrl-C, too
            minified = put_in_place(Path(sample), Path(work), place, file)
            if minified is not None:
                # `content` is empty after Ctrl-C, which ended the search without an answer.
                minified = replace(minified, why=content.get("error", "" if content else "stopped"))
                on_written(minified)
    if "usage" in content:
        raise UsageError(content["usage"])
    if minified is None and "error" in content:
        raise SampleError(f"{sample}: {content['error']}")
    return minified or MinifiedSample(Path(sample), why=content["why"])


def put_in_place(sample: Path, work: Path, place: Path, file: Path) -> MinifiedSample | None:
    """Move the last written case to its place: the sample to `place`, its Python file, and data beside it, to `file`.
    Return what is there then; None if there is no case. Cases are folders of `work`, numbered in the order in which
    they are written, `.part` while they are incomplete."""
    cases = sorted(path for path in work.iterdir() if (path / ROW).is_file() and path.suffix != ".part")
    if not cases:
        return None
    case = cases[-1]
    row = json.loads((case / ROW).read_text("utf-8"))
    settle(case / place.name, place)
    for path in case.glob(f"{place.name}.*"):
        os.replace(path, file.with_suffix(path.suffix))
    return MinifiedSample(sample, place, file, row)


# ------------------------------------------------------------------ in the sample's process


def _loaded_compiling(options: Mapping[str, Any]) -> dict[str, str]:
    """Load PyTorch, its compilers' front end and what runs graphs, for the processes that are forked from this one, but
    start no threads; return the versions of what is loaded."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # read when Inductor is loaded
    import torch

    from backprint.tools.bench import wrong_backward
    from backprint.tools.bench.shrinking import case_of
    from backprint.tools.jobs.task import on_cpu
    from backprint.tools.jobs.verbs import versions, without_device_threads

    _ = case_of, wrong_backward  # named, so that the imports are used
    torch.set_num_threads(1)
    if on_cpu(options):  # a process that has used a GPU cannot be forked
        without_device_threads()
    if options["compiler_lookup"] is None:
        return versions(options)
    if ":" not in options["compiler_lookup"]:
        torch.compiler.list_backends(exclude_tags=())  # loads Dynamo
    if options["compiler_lookup"].partition(":")[0] == "inductor":  # or `inductor:MODE`
        from backprint._torch.inductor import load_inductor

        load_inductor()
    return versions(options)


def minify_task(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Minify in the sample's own process, and write the answer into `staging`: it has the reasons where there is no
    case. Without a compiler, look for a backward that is not the derivative."""
    import torch

    torch.set_num_threads(1)  # a thread pool made here would be missing in the tests' processes
    search = _SampleSearch if options["compiler"] is not None else _WrongBackward
    try:
        return write_answer(staging, {"why": "; ".join(search(task, options).minify())})
    except UsageError as error:
        return write_answer(staging, {"usage": str(error)})


minify_task.warm = _loaded_compiling  # type: ignore[attr-defined]  # a worker calls it once, before its first sample


class _SampleSearch:
    """The search in one sample: reads it, tries its graphs, and writes cases."""

    def __init__(self, task: Task, options: Mapping[str, Any]) -> None:
        from backprint.sample.load import load
        from backprint.tools.bench.shrinking import compiler_versions

        self.options = options
        self.memory = task.memory // 2  # for a test's process: the other half is for this one, which holds the values
        self.work = Path(options["work"])
        self.cases = 0
        """How many cases have been written."""
        self.written = float("-inf")
        """When `keep` wrote one last."""
        self.versions = compiler_versions(options["compiler_lookup"])
        with stage("read"):
            self.capture = load(task.path, tuple(options["allow"]))

    def minify(self) -> Iterator[str]:
        """Minify the first graph that fails, and write its case; if none is minified, return the reasons. A graph that
        takes too long comes after all others: the machine may only be slow. If a graph fails only sometimes (`flaky`),
        none is minified in its place, but one that took too long before it. Raise UsageError for an unknown compiler or
        graph."""
        from backprint.tools.bench.shrinking import UnminifiedGraph, begin_search
        from backprint.tools.lowering.subjects import bench_graphs

        self.check_compiler()
        with stage("eager"):
            graphs = bench_graphs(self.capture)
        titles = [graph.title for graph in graphs]
        wanted = self.options["graph"]
        if wanted is not None and wanted not in titles:
            raise UsageError(f"{self.capture.name} has no graph {wanted!r}; it has {', '.join(titles)}")
        reasons, slow = [], []  # slow: the searches in graphs that take too long
        for graph in graphs:
            if wanted not in (None, graph.title):
                continue
            begun = begin_search(
                graph,
                self.compiled,
                seed=self.capture.seed,
                limit=self.options["limit"],
                memory=self.memory,
                most=self.options["tests"],
                tell=self.tell,
                smaller=self.keep,
            )
            if isinstance(begun, UnminifiedGraph):
                reasons.append(f"{graph.title}: {begun.why}")
                if begun.flaky:
                    break
                continue
            search, recorded = begun
            if search.first.kind != "timeout":
                self.finish(search, recorded)
                return iter(())
            slow.append(begun)
        if not slow:
            return iter(reasons)
        self.finish(*slow[0])
        return iter(())

    def check_compiler(self) -> None:
        """Raise UsageError for an unknown compiler; its file is executed in another process."""
        from backprint.child.child import in_child
        from backprint.tools.bench.shrinking import compile_function

        def why_unknown() -> str:
            """Return why there is no such compiler; '' if there is one."""
            try:
                compile_function(self.options["compiler_lookup"])
            except UsageError as error:
                return str(error)
            return ""

        end = in_child(why_unknown, self.options["limit"])
        if why := end.value if end.ended_well else f"compiler {self.options['compiler']}: {end}":
            raise UsageError(why)

    def compiled(self, module: Any, inputs: Any) -> Any:
        """Compile in a test's process, which loads the compiler."""
        from backprint.tools.bench.shrinking import compile_function

        return compile_function(self.options["compiler_lookup"])(module, inputs)

    def tell(self, text: str) -> None:
        """Report what is being tried, as a stage of the sample."""
        with stage(text):
            pass

    def keep(self, minified: Any) -> None:
        """Write the smallest graph so far, if it is smaller than the whole, at most once in EVERY seconds."""
        if minified.cut.operators < minified.operators and time.monotonic() - self.written >= EVERY:
            from backprint.tools.bench.shrinking import exact_inputs

            self.write(minified, exact_inputs(minified.cut, self.capture.seed), finished=False)
            self.written = time.monotonic()

    def finish(self, search: Any, recorded: Any) -> None:
        """Shrink a graph, and write the result with its proof, and whether its file shows the fault. `search` and
        `recorded`, the graph with its values, are as `begin_search` returned them."""
        from backprint.tools.bench.cuts import FaultTrials
        from backprint.tools.bench.shrinking import as_program, inputs_for

        minified = search.minify(recorded)
        minified = replace(minified, cut=as_program(minified.cut))
        trials = FaultTrials(self.compiled, self.capture.seed, self.memory)
        self.tell("inputs")
        inputs = inputs_for(minified, trials, max(self.options["limit"], 2 * minified.first.seconds))
        self.tell("write")
        self.write(minified, inputs, finished=True)

    def write(self, minified: Any, inputs: Any, finished: bool) -> None:
        """Write a case into a folder of its own. If it is `finished`, and its file can run the compiler, the row says
        whether the file shows the fault."""
        from backprint.tools.bench.shrinking import backend_in_file, case_of, shows_fault, write_case

        compiler = self.options["compiler"]
        backend = compiler if backend_in_file(self.options["compiler_lookup"]) else None
        case = case_of(minified, self.capture, inputs, compiler, self.versions)
        folder = self.work / f"{self.cases:06}.part"
        folder.mkdir()
        file = write_case(case, folder, self.options["name"], backend, finished)
        shown = None
        if finished and backend is not None:
            limit = max(8 * minified.last.seconds, 60.0)  # the file also loads torch, and runs eager several times
            shown = shows_fault(file, self.options["compiler_lookup"], minified.last.kind, limit)
        (folder / ROW).write_text(json.dumps(case.row(backend, shown)), "utf-8")
        folder.rename(folder.with_suffix(""))
        self.cases += 1


class _WrongBackward:
    """The search in one sample for a backward that is not the derivative, and for the smallest part that shows it."""

    def __init__(self, task: Task, options: Mapping[str, Any]) -> None:
        from backprint.sample.load import load

        self.options = options
        with stage("read"):
            self.capture = load(task.path, tuple(options["allow"]))

    def minify(self) -> Iterator[str]:
        """Minify the first backward that is not the derivative, and write its case; if none is minified, return the
        reasons."""
        from backprint import api
        from backprint.graph.verdicts import NOT_THE_DERIVATIVE
        from backprint.tools.bench.wrong_backward import smallest_part
        from backprint.tools.lowering.subjects import bench_graphs

        titles = [f"pair_{i} backward" for i, pair in enumerate(self.capture.pairs) if pair.backward is not None]
        wanted = self.options["graph"]
        if wanted is not None and wanted not in titles:
            names = ", ".join(titles) or "none"
            raise UsageError(f"{self.capture.name} has no backward {wanted!r}; it has {names}")
        if not titles:
            return iter((f"{self.capture.name} has no backward",))
        with stage("derivative"):
            derivatives = api.derivative(self.capture)
        reasons = []
        for title, derivative in zip(titles, derivatives, strict=True):
            if wanted not in (None, title):
                continue
            why = ": ".join(filter(None, (derivative.word, derivative.detail)))
            if derivative.word == NOT_THE_DERIVATIVE:
                with stage(f"{title}: parts"):
                    number = int(title.partition(" ")[0].removeprefix("pair_"))  # `pair_3 backward` -> 3
                    part = smallest_part(self.capture, number, derivative, bench_graphs(self.capture))
                if part is not None:
                    self.write(part)
                    return iter(())
                why = f"{why}; no part of it that is wrong by itself was found"
            reasons.append(f"{title}: {why}")
        return iter(reasons)

    def write(self, part: SmallestPart) -> None:
        """Write a part as a sample and a file."""
        from backprint.tools.bench.wrong_backward import write_part

        with stage("write"):
            folder = Path(self.options["work"]) / "000000.part"
            folder.mkdir()
            write_part(part, folder, self.options["name"])
            (folder / ROW).write_text(json.dumps(part.row()), "utf-8")
            folder.rename(folder.with_suffix(""))
