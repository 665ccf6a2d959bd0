"""`backprint lower FILE:FACTORY -o kernels.py`."""

from __future__ import annotations

from pathlib import Path

import click

from backprint.cli.say import echo


@click.command("lower")
@click.argument("target", metavar="FILE:FACTORY")
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
    default="6,7,8",
    show_default=True,
    metavar="A,B,C",
    help="Numbers of steps to capture: three, of 6 or more.",
)
@click.option(
    "--sums",
    type=click.Choice(("stages", "atomics")),
    default="stages",
    show_default=True,
    help="How gradients of parameters are added up over elements.",
)
@click.option("--check", is_flag=True, help="Run the file, and compare outputs and gradients with eager.")
def command(target: str, out: Path, lengths: str, sums: str, check: bool) -> None:
    """Write a program that loops over time as one Triton kernel a direction, in a file that needs torch and triton.

    The factory, in `file.py:factory` or `package.module:factory`, is called with a number of steps, and returns
    (model, args) or (model, args, kwargs) of as many: time is the first dimension. No GPU is needed, to check the file
    neither: Triton's interpreter runs it. What cannot be a loop is refused by name. Exit code 1 if it is refused, or
    a check finds a difference.
    """
    from backprint.errors import UsageError
    from backprint.kernels import lower
    from backprint.kernels.loops.lower import ONE_LENGTH
    from backprint.target import find_factory

    if Path(target).is_dir():
        raise UsageError(f"{target}: {ONE_LENGTH}")
    factory = find_factory(target)

    def called(steps: int) -> tuple[object, object]:
        model, args, *rest = factory(steps)
        if rest and args:
            raise UsageError(f"{target} returns positional and keyword arguments: lower takes one kind")
        return model, rest[0] if rest else args

    numbers = [int(word) for word in lengths.split(",") if word.strip().isdigit()]
    if len(numbers) != len(lengths.split(",")):
        raise UsageError(f"--lengths {lengths}: pass numbers, such as 6,7,8")
    model, _ = called(max(numbers, default=6))
    lowered = lower(model, lambda steps: called(steps)[1], numbers, sums=sums)  # type: ignore[arg-type]  # a factory's
    lowered.save(out)
    echo(f"{out}: {lowered.explain()}", lines=True)
    if check:
        comparison = lowered.check()
        echo(str(comparison), lines=True)
        if not comparison.ok:
            raise SystemExit(1)
