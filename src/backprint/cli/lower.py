"""`backprint lower FILE:FACTORY -o kernels.py`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import click

from backprint.cli.options import ALLOW
from backprint.cli.say import echo

if TYPE_CHECKING:
    from backprint.kernels.lowered import Lowered


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
@click.option("--check", is_flag=True, help="Run the file, and compare outputs and gradients with eager.")
def command(
    target: str, out: Path, lengths: str | None, sums: str, gpu: str, allow: tuple[str, ...], check: bool
) -> None:
    """Write a program as Triton kernels, in a file that needs torch and triton alone.

    The factory, in `file.py:factory` or `package.module:factory`, returns (model, args) or (model, args, kwargs). If it
    takes a number and the program loops over the first dimension of its arguments, it becomes one kernel a direction,
    for every number of steps. If it does not loop, the kernels are Inductor's, for every such number. If the factory
    takes no number, or the target is a sample, they are Inductor's, for the captured sizes. No GPU is needed, to check
    the file neither: Triton's interpreter runs it. What cannot be lowered is refused by name. Exit code 1 if it is
    refused, or a check finds a difference.
    """
    lowered = (
        lowered_sample(target, gpu, allow) if Path(target).is_dir() else lowered_factory(target, lengths, sums, gpu)
    )
    lowered.save(out)
    echo(f"{out}: {lowered.explain()}", lines=True)
    if check:
        comparison = lowered.check()
        echo(str(comparison), lines=True)
        if not comparison.ok:
            raise SystemExit(1)


def lowered_sample(place: str, gpu: str, allow: tuple[str, ...]) -> Lowered:
    """Return a sample in Inductor's kernels."""
    from backprint.api import load
    from backprint.kernels import lower

    return lower(load(place, allow=allow), target=gpu)


def lowered_factory(target: str, lengths: str | None, sums: str, gpu: str) -> Lowered:
    """Return the program of a factory in kernels."""
    from backprint.common.factories import find_factory
    from backprint.errors import UsageError
    from backprint.kernels import lower

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
