"""`backprint task TARGET -o T` and `backprint task check T solution.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from backprint.cli.groups import RUN, ShortGroup
from backprint.cli.options import ALLOW, DEVICE, ENGINE, GIB, MODE
from backprint.cli.say import echo, ending, working


@click.group("task", cls=ShortGroup)
def command() -> None:
    """Set a part of a program as a problem for people who write kernels, and judge their solutions.

    `backprint task TARGET -o T` is short for `backprint task run`, which has the options.
    """


@command.command(RUN)
@click.argument("target")
@click.option(
    "-o", "--output", "out", required=True, metavar="T", type=click.Path(path_type=Path), help="A new folder."
)
@click.option("--part", metavar="PATH", help="A module, such as blocks.0.mlp, or a part of a cut, such as fold@0.")
@click.option("--name", help="The name of the task; else that of the program and the part.")
@click.option("--dynamic", is_flag=True, help="Capture with symbolic sizes: a solution is tried at others too.")
@click.option("--measure", is_flag=True, help="Measure eager and Inductor.")
@ENGINE
@MODE
@DEVICE
@ALLOW
@click.option("--overwrite", is_flag=True, help="Replace an older task.")
@click.option("--json", "as_json", is_flag=True, help="The task as one JSON object.")
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

    TARGET is a sample, or `file.py:factory`. A solution may save for its backward what it likes; random numbers that
    the program draws are inputs. Exit code 1 if the part cannot be a task, with the reason.
    """
    import dataclasses

    from backprint.tools import tasks

    options: dict[str, Any] = {} if engine == "auto" else {"engine": engine}
    options |= {key: value for key, value in (("mode", mode), ("device", device)) if value is not None}
    options |= {"dynamic": True} if dynamic else {}
    with ending(lambda: "no task was written"), working(f"task {target}"):
        task = tasks.make(
            target, out, part=part, name=name, allow=allow, overwrite=overwrite, measure=measure, **options
        )
    if as_json:
        echo(json.dumps({"task": str(out), **dataclasses.asdict(task)}))
        return
    sizes = ", at other sizes too" if task.sized else ""
    echo(f"{out}: {task.name}: {len(task.inputs)} inputs, {len(task.outputs)} results{sizes}")
    echo(f"fill {out / 'solution.py'}, then: backprint task check {out} {out / 'solution.py'}", err=True)


@command.command("check")
@click.argument("folder", metavar="T", type=click.Path(path_type=Path))
@click.argument("solution", type=click.Path(path_type=Path))
@click.option("--no-timing", "untimed", is_flag=True, help="Judge results alone.")
@click.option("--first", is_flag=True, help="Stop at the first fault.")
@click.option("--times", type=float, default=2.0, show_default=True, help="How many times eager's error is allowed.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds for an answer.")
@click.option(
    "--warm-up", type=float, default=300.0, show_default=True, help="Seconds to load, and for the first call."
)
@click.option("--memory", type=GIB, metavar="GIB", help="What the solution may take; else nearly all that is free.")
@click.option("--json", "as_json", is_flag=True, help="The report as one JSON object.")
def check_command(folder: Path, solution: Path, untimed: bool, as_json: bool, **options: Any) -> None:
    """Judge a solution of a task: right or wrong with the first wrong element, and its time beside eager's.

    The solution works in a process of its own, with the rights of the one who calls: judge a stranger's in a
    container. Exit code 1 unless all is right.
    """
    from backprint.tools import tasks

    with ending(lambda: "nothing was judged"), working(f"task check {solution}"):
        report = tasks.check(folder, solution, timed=not untimed, **options)
    echo(json.dumps(report.as_json()) if as_json else f"{report}", lines=True)
    if not report.good:
        raise SystemExit(1)
