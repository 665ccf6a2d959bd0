"""`backprint kernels`, `lower` and `task`: kernels that a compiler makes, and kernels that are written.

`option(SECTION, ...)` adds an option in a section of the help; names in capitals such as ALLOW are options that several
commands have, and sections (`options`). `echo` prints a text with control characters escaped, `working(text)` shows a
line of progress and yields a function that sets its text, and `ending(what_exists)` says at Ctrl-C what is kept
(`say`). SystemExit carries the exit code: 1 something is not good, NOTHING (3) nothing was looked at.

A *Lowered* is a program as the text of a Python file of kernels (`source`), with what is said of it (`explain()`) and a
comparison with eager (`check()`). `carry_out` executes a run over samples, and exits with its code (`corpus`).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backprint.cli.corpus import carry_out
from backprint.cli.named import at_place, at_places
from backprint.cli.options import (
    ALLOW,
    DEVICE,
    ENGINE,
    HOW,
    JSON,
    LIMITED,
    MEMORY,
    MODE,
    OUTPUT,
    OVERWRITE,
    PATH,
    SAMPLES,
    TIMEOUT,
    TRUST,
    WHAT,
    Commands,
    choice,
    command,
    json_lines,
    option,
    output_option,
    run_options,
    split_names,
)
from backprint.cli.say import echo, ending, working
from backprint.errors import ReplayError, UsageError
from backprint.tools.jobs.apart import ask, write_result
from backprint.tools.jobs.task import Task
from backprint.tools.jobs.verbs import load_only

if TYPE_CHECKING:
    from backprint.tools.jobs import CorpusRun
    from backprint.tools.kernels.lowered import Lowered

# ---- Kernels that a compiler makes


@command("kernels")
@SAMPLES
@output_option("The folder of the kernels and of kernels.jsonl; the same command continues it.", name="out")
@option(
    HOW,
    "--target",
    "targets",
    multiple=True,
    default=("cpu",),
    show_default=True,
    metavar="NAME[,NAME…]",
    help="cpu, cpu:avx2, cpu:avx512, cpu:neon, cuda:75, cuda:80, cuda:90, cuda:100, cuda:120.",
)
@choice(WHAT, "direction", "Which graphs.", "both")
@option(
    HOW,
    "--compiler",
    default="inductor",
    show_default=True,
    metavar="NAME",
    help="inductor, inductor:SETTING=VALUE[,…], or a function of yours: file.py:function.",
)
@option(HOW, "--threads", type=click.IntRange(1), default=1, show_default=True, help="That C++ is written for.")
@option(HOW, "--build", is_flag=True, help="Compile Triton kernels, each configuration, to PTX and cubin.")
@option(HOW, "--check", is_flag=True, help="Run the kernels and compare their results with the graphs'.")
@run_options()
@ALLOW
@TRUST
@json_lines("sample, as it finishes")
def kernels_command(
    samples: tuple[Path, ...],
    out: Path,
    targets: tuple[str, ...],
    direction: str,
    compiler: str,
    threads: int,
    build: bool,
    check: bool,
    allow: tuple[str, ...],
    trust: bool,
    **given: Any,
) -> None:
    """Collect the kernels that a compiler makes of samples, for a processor or a GPU that need not be there.

    SAMPLE is a sample, a folder of samples or of a corpus, or the name of a model such as `hf:gpt2`; each is processed
    in a process of its own. DIR gets the kernels of their forwards and backwards as files, and kernels.jsonl, with a
    row for each kernel: where it came from, and a hash that equal programs share. Samples of GraphNet are captured
    first. No kernel is run, and no C++ compiler is needed, unless --check asks for it. If the command is ended at any
    moment, the same command continues. The exit code is 1 if a graph is refused, a kernel's results are wrong, or a
    captured backward is not the derivative.
    """
    from backprint.tools.bench.compilers.table import absolute_compiler
    from backprint.tools.jobs.find import begin_several

    # The folder that all samples are below, and a file with their ids: a run has one source.
    source, listed = begin_several(at_places(samples, out), out, "kernels", given["restart"])
    chosen = {
        "targets": list(dict.fromkeys(split_names(targets))),
        "direction": direction,
        "compiler": absolute_compiler(compiler),
        "threads": threads,
        "build": build,
        "check": check,
        "allow": list(allow),
        "trust": trust,
    }
    # Kernels that are not checked are `unproven`, and then as good as was asked for.
    carry_out("kernels", source, out, chosen, list=listed, allow_unproven=not check, close=print_rows, **given)


def print_rows(done: CorpusRun, as_json: bool) -> None:
    """Print a line for each sample of a run, and how many programs the kernels are; with `as_json` nothing, because
    each sample was printed as it finished."""
    from backprint.tools.kernels.rows import FILE, read_rows, summary_lines

    if as_json:
        return
    for row in done.rows():
        word = ", ".join(filter(None, (row["cause"] or row["verdict"], row["derivative"])))
        echo(f"{row['id']}: {word}: {row['detail']}")
    for line in summary_lines(list(read_rows(done.out))):
        echo(line)
    echo(f"a row for each kernel: {done.out / FILE}")


# ---- A program as kernels


@command("lower")
@click.argument("target", metavar="FILE:FACTORY|SAMPLE")
@output_option("The Python file to write.", "FILE", name="out")
@option(
    HOW,
    "--lengths",
    metavar="A,B,C",
    help="The numbers to capture: of a loop three or more numbers of steps, of 6 or more, and the kernels take no more "
    "steps than the largest [default: 6,7,8,256]; else two sizes.",
)
@option(HOW, "--gpu", default="cuda:90", show_default=True, help="The GPU that Inductor writes kernels for.")
@ALLOW
@TIMEOUT
@option(HOW, "--check", is_flag=True, help="Run the file, and compare outputs and gradients with eager.")
@OVERWRITE
@JSON
def lower_command(
    target: str,
    out: Path,
    lengths: str | None,
    gpu: str,
    allow: tuple[str, ...],
    timeout: float,
    check: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write a program as Triton kernels, in a file that needs torch and triton alone.

    The factory, in `file.py:factory` or `package.module:factory`, returns (model, args) or (model, args, kwargs). If it
    takes a number and the program loops over the first dimension of its arguments, it becomes one kernel a direction,
    for every number of steps. If it does not loop, the kernels are Inductor's, for every such number. If the factory
    takes no number, or the target is a sample, they are Inductor's, for the captured sizes. No GPU is needed, to check
    the file neither: Triton's interpreter runs it. What cannot be lowered is refused by name. A sample runs in a
    process of its own, for at most --timeout seconds. The exit code is 1 if the target is refused, or a check finds
    a difference.
    """
    from backprint.tools.named import is_named

    if out.exists() and not overwrite:
        raise UsageError(f"{out} exists already: pass --overwrite, or choose another path")
    place = at_place(Path(target)) if is_named(target) else Path(target)
    if place.is_dir():
        written = _of_sample(place, {"gpu": gpu, "allow": allow, "check": check}, timeout)
    else:
        written = _write_lowered(lower_factory(target, lengths, gpu), check)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(written.source, encoding="utf-8")
    if as_json:
        row = {"explained": written.explained, "compared": written.compared, "ok": written.ok}
        echo(json.dumps({"file": str(out), **row}))
    else:
        echo("\n".join(filter(None, (f"{out}: {written.explained}", written.compared))), lines=True)
    if written.ok is False:
        raise SystemExit(1)


@dataclass(frozen=True, slots=True)
class _WrittenKernels:
    """The text of a file of kernels, what is said of it (`explained`), and how it compares with eager if it was run: as
    text, and whether it is equal (`ok`, else None)."""

    source: str
    explained: str
    compared: str = ""
    ok: bool | None = None


def _write_lowered(lowered: Lowered, check: bool) -> _WrittenKernels:
    """Return the text of a file of kernels, compared with eager if `check` says to run it."""
    written = _WrittenKernels(lowered.source, lowered.explain())
    if not check:
        return written
    comparison = lowered.check()
    return replace(written, compared=str(comparison), ok=comparison.ok)


def _of_sample(place: Path, options: Mapping[str, Any], timeout: float) -> _WrittenKernels:
    """Lower a sample in a process of its own, and return what `_write_lowered` returns there; raise what was raised
    there, or if the process ended without an answer."""
    sent = {**options, "allow": list(options["allow"])}
    answer = ask("backprint.cli.kernels:lower_in_own_process", place, sent, timeout, _WrittenKernels)
    if answer.ended:
        raise ReplayError(f"{place} could not be lowered: {answer.ended}")
    written: _WrittenKernels = answer.content
    return written


def lower_in_own_process(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Lower a sample to Inductor's kernels, in its own process, and write the result as the answer."""
    from backprint.api import load
    from backprint.tools.kernels import lower

    def result() -> dict[str, Any]:
        lowered = lower(load(task.path, allow=options["allow"]), target=options["gpu"])
        return asdict(_write_lowered(lowered, options["check"]))

    return write_result(staging, result)


lower_in_own_process.warm = load_only  # type: ignore[attr-defined]  # what its worker loads first


def lower_factory(target: str, lengths: str | None, gpu: str) -> Lowered:
    """Lower the program of a factory to kernels: for the numbers in `lengths` if the factory takes one, else for the
    sizes of its arguments. Where no numbers are given, `lower` chooses some. Refuse numbers for a factory that takes
    none, and what is no number."""
    from backprint.common.factories import find_factory
    from backprint.tools.kernels import lower

    factory = find_factory(target)

    def call_factory(*size: int) -> tuple[object, object]:
        """Call the factory; return the model, and its arguments: a tuple, or a dict of keyword arguments."""
        model, args, *rest = factory(*size)
        if rest and args:
            raise UsageError(f"{target} returns positional and keyword arguments: lower takes one kind")
        return model, rest[0] if rest else args

    texts = lengths.split(",") if lengths else []
    sizes = [int(word) for word in texts if word.strip().isdigit()]
    if len(sizes) != len(texts):
        raise UsageError(f"--lengths {lengths}: pass numbers, such as 6,7,8")
    if not inspect.signature(factory).parameters:
        if sizes:
            raise UsageError(f"--lengths {lengths}: {target} takes no number")
        model, inputs = call_factory()
        return lower(model, inputs, target=gpu)  # type: ignore[arg-type]  # a factory's

    def inputs_of(size: int) -> object:
        _, inputs = call_factory(size)
        return inputs

    model, _ = call_factory(max(sizes, default=6))  # a loop is recognized from 6 steps on
    return lower(model, inputs_of, sizes or None, target=gpu)  # type: ignore[arg-type]  # as above


# ---- A part of a program as a problem


@click.group("task", cls=Commands)
def task_command() -> None:
    """Set a part of a program as a problem for people who write kernels, and judge their solutions."""


@task_command.command("make")
@click.argument("target")
@output_option("A new folder for the task.", "T", name="out")
@option(WHAT, "--part", metavar="PATH", help="A module, such as blocks.0.mlp, or a part of a cut, such as fold@0.")
@option(OUTPUT, "--name", help="The name of the task; else that of the program and the part.")
@option(HOW, "--dynamic", is_flag=True, help="Capture with symbolic sizes: a solution is tried at others too.")
@option(HOW, "--measure", is_flag=True, help="Measure eager and Inductor.")
@ENGINE
@MODE
@DEVICE
@ALLOW
@OVERWRITE
@JSON
def make_command(
    target: str,
    out: Path,
    part: str | None,
    name: str | None,
    dynamic: bool,
    measure: bool,
    allow: tuple[str, ...],
    overwrite: bool,
    as_json: bool,
    engine: str,
    mode: str | None,
    device: str | None,
) -> None:
    """Write a task: the reference in plain PyTorch, its inputs, a stub to fill, and what a solution is judged by.

    TARGET is a sample, `file.py:factory`, or the name of a model such as `hf:gpt2`. A solution may save for its
    backward what it likes; random numbers that the program draws are inputs. The exit code is 1 if the part cannot be a
    task, with the reason.
    """
    from backprint.tools import tasks

    options: dict[str, Any] = {} if engine == "auto" else {"engine": engine}
    options |= {key: value for key, value in (("mode", mode), ("device", device)) if value is not None}
    options |= {"dynamic": True} if dynamic else {}
    with ending(lambda: "no task was written"), working(f"task {target}"):
        task = tasks.make(
            target, out, part=part, name=name, allow=allow, overwrite=overwrite, measure=measure, **options
        )
    if as_json:
        echo(json.dumps({"task": str(out), **asdict(task)}))
        return
    sizes = ", at other sizes too" if task.sized else ""
    echo(f"{out}: {task.name}: {len(task.inputs)} inputs, {len(task.outputs)} results{sizes}")
    echo(f"fill {out / 'solution.py'}, then: backprint task check {out} {out / 'solution.py'}", err=True)


@task_command.command("check")
@click.argument("folder", metavar="T", type=PATH)
@click.argument("solution", type=PATH)
@option(HOW, "--no-timing", "untimed", is_flag=True, help="Judge results alone.")
@option(HOW, "--first", is_flag=True, help="Stop at the first fault.")
@option(LIMITED, "--timeout", type=float, default=60.0, show_default=True, help="Seconds for an answer.")
@MEMORY
@JSON
def check_command(folder: Path, solution: Path, untimed: bool, as_json: bool, **options: Any) -> None:
    """Judge a solution of a task: right or wrong with the first wrong element, and its time beside eager's.

    The solution works in a process of its own, with the rights of the one who calls: judge a stranger's in a
    container. The exit code is 1 unless all is right.
    """
    from backprint.tools import tasks

    if not (folder / "task.json").is_file():
        raise UsageError(f"{folder}: no task.json here, so this is no task: `backprint task make TARGET` makes one")
    with ending(lambda: "nothing was judged"), working(f"task check {solution}"):
        report = tasks.check(folder, solution, timed=not untimed, **options)
    echo(json.dumps(report.as_json()) if as_json else f"{report}", lines=True)
    if not report.good:
        raise SystemExit(1)
