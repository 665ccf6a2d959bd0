"""`backprint lower FILE:FACTORY -o kernels.py`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backprint.cli.options import ALLOW, TIMEOUT
from backprint.cli.say import echo
from backprint.tools.jobs.apart import ask, write_result
from backprint.tools.jobs.task import Task
from backprint.tools.jobs.verbs import load_only

if TYPE_CHECKING:
    from backprint.tools.kernels.lowered import Lowered


@click.command("lower")
@click.argument("target", metavar="FILE:FACTORY|SAMPLE")
@click.option(
    "-o",
    "--output",
    "out",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The Python file to write.",
)
@click.option(
    "--lengths",
    metavar="A,B,C",
    help="The numbers to capture: of a loop three or more numbers of steps, of 6 or more, and the kernels take no more "
    "steps than the largest [default: 6,7,8,256]; else two sizes.",
)
@click.option(
    "--sums",
    type=click.Choice(("stages", "atomics")),
    default="stages",
    show_default=True,
    help="How a loop adds up gradients of parameters over elements.",
)
@click.option("--gpu", default="cuda:90", show_default=True, help="The GPU that Inductor writes kernels for.")
@ALLOW
@TIMEOUT
@click.option("--check", is_flag=True, help="Run the file, and compare outputs and gradients with eager.")
def command(
    target: str,
    out: Path,
    lengths: str | None,
    sums: str,
    gpu: str,
    allow: tuple[str, ...],
    timeout: float,
    check: bool,
) -> None:
    """Write a program as Triton kernels, in a file that needs torch and triton alone.

    The factory, in `file.py:factory` or `package.module:factory`, returns (model, args) or (model, args, kwargs). If it
    takes a number and the program loops over the first dimension of its arguments, it becomes one kernel a direction,
    for every number of steps. If it does not loop, the kernels are Inductor's, for every such number. If the factory
    takes no number, or the target is a sample, they are Inductor's, for the captured sizes. No GPU is needed, to check
    the file neither: Triton's interpreter runs it. What cannot be lowered is refused by name. A sample runs in a
    process of its own, for at most --timeout seconds. Exit code 1 if the target is refused, or a check finds a
    difference.
    """
    if Path(target).is_dir():
        written = _of_sample(Path(target), {"gpu": gpu, "allow": allow, "check": check}, timeout)
    else:
        written = _written(lowered_factory(target, lengths, sums, gpu), check)
    out.write_text(written["source"], encoding="utf-8")
    echo(f"{out}: {written['explained']}", lines=True)
    if check:
        echo(written["compared"], lines=True)
        if not written["ok"]:
            raise SystemExit(1)


def _written(lowered: Lowered, check: bool) -> dict[str, Any]:
    """Return the text of a file of kernels, what is said of it, and how it compares with eager if it is to be run."""
    comparison = lowered.check() if check else None
    return {
        "source": lowered.source,
        "explained": lowered.explain(),
        "compared": str(comparison),
        "ok": comparison is None or comparison.ok,
    }


def _of_sample(place: Path, options: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """Return what `_written` does of a sample, which a process of its own runs."""
    from backprint.errors import ReplayError

    answer = ask("backprint.cli.lower:lowered_apart", place, {**options, "allow": list(options["allow"])}, timeout)
    if answer.content is None:
        raise ReplayError(f"{place} could not be lowered: {answer.ended}")
    result: dict[str, Any] = answer.content["result"]
    return result


def lowered_apart(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Lower a sample to Inductor's kernels, in its own process, and write the result as the answer."""
    from backprint.api import load
    from backprint.tools.kernels import lower

    def result() -> dict[str, Any]:
        return _written(lower(load(task.path, allow=options["allow"]), target=options["gpu"]), options["check"])

    return write_result(staging, result)


lowered_apart.warm = load_only  # type: ignore[attr-defined]  # what its worker loads first


def lowered_factory(target: str, lengths: str | None, sums: str, gpu: str) -> Lowered:
    """Return the program of a factory in kernels."""
    from backprint.common.factories import find_factory
    from backprint.errors import UsageError
    from backprint.tools.kernels import lower

    factory = find_factory(target)

    def called(*size: int) -> tuple[object, object]:
        model, args, *rest = factory(*size)
        if rest and args:
            raise UsageError(f"{target} returns positional and keyword arguments: lower takes one kind")
        return model, rest[0] if rest else args

    words = lengths.split(",") if lengths else []
    numbers = [int(word) for word in words if word.strip().isdigit()]
    if len(numbers) != len(words):
        raise UsageError(f"--lengths {lengths}: pass numbers, such as 6,7,8")
    if not inspect.signature(factory).parameters:
        if numbers:
            raise UsageError(f"--lengths {lengths}: {target} takes no number")
        model, inputs = called()
        return lower(model, inputs, sums=sums, target=gpu)  # type: ignore[arg-type]  # a factory's
    model, _ = called(max(numbers, default=6))
    return lower(model, lambda size: called(size)[1], numbers or None, sums=sums, target=gpu)  # type: ignore[arg-type]  # as above
