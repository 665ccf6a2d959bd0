"""`backprint minify SAMPLE --compiler NAME -o OUT`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from backprint.cli.options import ALLOW
from backprint.cli.say import echo, ending, working


@click.command("minify")
@click.argument("sample", type=click.Path(path_type=Path))
@click.option(
    "--compiler",
    required=True,
    metavar="NAME",
    help="inductor, xla, onnxruntime, …, a backend of torch.compile, or file.py:function.",
)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The sample; OUTPUT.py beside it.")
@click.option("--graph", metavar="TITLE", help="A graph, such as 'pair_0 backward'; else the first that fails.")
@click.option("--tests", type=click.IntRange(4), default=100, show_default=True, help="The most tests.")
@click.option("--test-seconds", "limit", default=60.0, show_default=True, help="Of a test, before one failed.")
@click.option("--timeout", type=float, default=3600.0, show_default=True, help="Seconds of the whole search.")
@click.option("--memory", type=float, metavar="GIB", help="What the search may take; else nearly all that is free.")
@ALLOW
@click.option("--overwrite", is_flag=True, help="Replace an older result.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object.")
def command(sample: Path, compiler: str, output: Path, as_json: bool, **given: Any) -> None:
    """Shrink a graph on which a compiler is wrong, raises, crashes or hangs, for a bug report.

    The result is the smallest graph that still fails so: as the sample OUTPUT, and as OUTPUT.py, which runs with
    PyTorch alone. Every test is a process of its own. Exit code 1 if the compiler is right on every graph. Ctrl-C
    keeps the smallest graph so far.
    """
    from backprint.bench.minify_sample import MinifiedSample, minify_sample
    from backprint.errors import UsageError
    from backprint.jobs.find import missing_sample

    if wrong := missing_sample((sample,)):
        raise UsageError(wrong)
    kept: list[MinifiedSample] = []

    def left() -> str:
        return f"the smallest graph so far is in {kept[0].out}" if kept else "no smaller graph was found yet"

    with ending(left), working(f"minify {sample}") as at:
        found = minify_sample(sample, compiler, output, told=at, placed=kept.append, **given)
    if as_json:
        places = {"out": str(found.out or "") or None, "file": str(found.file or "") or None}
        echo(json.dumps({"sample": str(found.sample), **places, "why": found.why, **(found.row or {})}))
    else:
        print_found(found, compiler)
    if found.row is None or found.why:
        raise SystemExit(1)


def print_found(found: Any, compiler: str) -> None:
    """Print the result, and how to see it."""
    if found.row is None:
        echo(f"nothing to minify: {compiler}: {found.why}")
        return
    row = found.row
    echo(f"{row['graph']}: {row['text']}")
    echo(f"{' '.join(row['calls'])}")
    others = ", ".join(f"{count} {kind}" for kind, count in row["others"].items())
    if others:
        echo(f"note: {others} among the tests, which is another fault")
    if not row["complete"]:
        echo("note: the tests were not enough to leave out every operator that can be left out (--tests)")
    if found.why:
        echo(f"note: the search ended early: {found.why}")
    if row["reproduced"] is False:
        echo(f"note: through torch.compile, {found.file} does not show it")
    shown = f"python {found.file} --backend {compiler}" if row["reproduced"] is not None else f"python {found.file}"
    echo(f"{found.out} and {found.file}: {shown}")
