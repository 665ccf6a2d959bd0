"""`backprint export` and `backprint minify`: a sample as one file, and the smallest graph that shows a fault.

`option(SECTION, ...)` adds an option in a section of the help; names in capitals such as ALLOW are options that several
commands have, and sections (`options`). `echo` prints a text with control characters escaped, `working(text)` shows a
line of progress and yields a function that sets its text, and `ending(what_exists)` says at Ctrl-C what is kept
(`say`). SystemExit carries the exit code: 1 something is not good, NOTHING (3) nothing was looked at.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from backprint.cli.named import at_place
from backprint.cli.options import (
    ALLOW,
    GIB,
    HOW,
    JSON,
    LIMITED,
    OUTPUT,
    OVERWRITE,
    SAMPLE,
    WHAT,
    choice,
    command,
    option,
    output_option,
)
from backprint.cli.say import NOTHING, echo, ending, working
from backprint.errors import UsageError
from backprint.tools.jobs.find import check_sample

# ---- One file


@command("export")
@SAMPLE
@output_option("The Python file to write.", "FILE")
@option(HOW, "--backend", metavar="NAME", help="What the file compares with eager where it is not told otherwise.")
@choice(WHAT, "direction", "Which graphs are shown and compared.", "both")
@choice(
    OUTPUT, "data", "seed: draw the inputs that the sample keeps as bytes; else inputs are as the sample keeps them."
)
@ALLOW
@OVERWRITE
def export_command(
    sample: Path,
    output: Path,
    backend: str | None,
    direction: str,
    data: str | None,
    allow: tuple[str, ...],
    overwrite: bool,
) -> None:
    """Write a sample as one Python file that runs with PyTorch alone, for a bug report.

    `python repro.py` prints a digest of each output. `python repro.py --backend inductor` runs each graph through
    torch.compile too, and says of each output whether it is bitwise, close or wrong; exit code 1 where one is wrong.
    """
    import backprint as bp
    from backprint.tools.export.export import data_beside

    sample = at_place(sample)
    check_sample(sample)
    capture = bp.load(sample, allow=allow)
    options: dict[str, Any] = dict(direction=direction, data=data, allow=allow, overwrite=overwrite)
    place = bp.export(capture, output, backend=backend, **options)
    beside = data_beside(place).name
    # The code of the file calls `data_beside` with the name of its data, if they were too large for the file itself.
    reads = f"data_beside({beside!r})" in place.read_text("utf-8")
    needs = f", with its data in {beside} beside it" if reads else ""
    echo(f"{place}: {capture.name}{needs}; run it with python {place}{'' if backend else ' [--backend NAME]'}")


# ---- The smallest graph


@command("minify")
@SAMPLE
@option(
    HOW,
    "--compiler",
    metavar="NAME",
    help="inductor, xla, onnxruntime, …, a backend of torch.compile, or file.py:function.",
)
@option(HOW, "--derivative", is_flag=True, help="Shrink a backward that is not the derivative of its forward.")
@output_option("The sample to write; DIR.py is written beside it.")
@option(WHAT, "--graph", metavar="TITLE", help="A graph, such as 'pair_0 backward'; else the first that fails.")
@option(LIMITED, "--tests", type=click.IntRange(4), default=100, show_default=True, help="The most tests.")
@option(LIMITED, "--test-seconds", "limit", default=60.0, show_default=True, help="Of a test, before one failed.")
@option(LIMITED, "--timeout", type=float, default=3600.0, show_default=True, help="Seconds of the whole search.")
@option(LIMITED, "--memory", type=GIB, metavar="GIB", help="What the search may take; else nearly all that is free.")
@ALLOW
@OVERWRITE
@JSON
def minify_command(
    sample: Path, compiler: str | None, derivative: bool, output: Path, as_json: bool, **options: Any
) -> None:
    """Shrink a graph on which a compiler is wrong, raises, crashes or hangs, for a bug report.

    The result is the smallest graph that still fails so: as the sample DIR, and as DIR.py, which runs with PyTorch
    alone. Every test is a process of its own. Ctrl-C keeps the smallest graph so far.

    With --derivative in place of a compiler, the result is the smallest part of the sample whose backward is not the
    derivative of its forward.

    The exit code is 0 if a graph was written, 1 if the search ended before its end, and 3 if there is nothing to
    shrink: the compiler is right on every graph, or no part of the backward is wrong by itself.
    """
    from backprint.tools.bench.minify_sample import MinifiedSample, minify_sample

    if derivative == (compiler is not None):
        raise UsageError("minify needs --compiler NAME, or --derivative: one of the two")
    sample = at_place(sample)
    check_sample(sample)
    written_samples: list[MinifiedSample] = []

    def what_exists() -> str:
        """Say what exists after Ctrl-C."""
        return (
            f"the smallest graph so far is in {written_samples[0].out}"
            if written_samples
            else "no smaller graph was found yet"
        )

    with ending(what_exists), working(f"minify {sample}") as show_status:
        minified = minify_sample(
            sample, compiler, output, on_status=show_status, on_written=written_samples.append, **options
        )
    if as_json:
        places = {"out": str(minified.out or "") or None, "file": str(minified.file or "") or None}
        echo(json.dumps({"sample": str(minified.sample), **places, "why": minified.why, **(minified.row or {})}))
    else:
        print_found(minified, compiler or "derivative")
    if minified.row is None:
        raise SystemExit(NOTHING)
    if minified.why:
        raise SystemExit(1)


def print_found(minified: Any, compiler: str) -> None:
    """Print the result of a search (a MinifiedSample), and how to see it. Its `row` is that of the smallest graph, None
    if nothing fails; `why` says why the search ended early, or why there is nothing. `compiler` is `derivative` where
    none was asked for."""
    if minified.row is None:
        echo(f"nothing to minify: {compiler}: {minified.why}")
        return
    row = minified.row
    echo(f"{row['graph']}: {row['text']}")
    echo(f"{' '.join(row['calls'])}")
    if "derivative" in row:
        print_part(minified)
        return
    others = ", ".join(f"{count} {kind}" for kind, count in row["others"].items())  # tests that failed otherwise
    if others:
        echo(f"note: {others} among the tests, which is another fault")
    if not row["complete"]:
        echo("note: the tests were not enough to leave out every operator that can be left out (--tests)")
    if minified.why:
        echo(f"note: the search ended early: {minified.why}")
    if row["reproduced"] is False:
        echo(f"note: through torch.compile, {minified.file} does not show it")
    # `backend`: the compiler is one of torch.compile's; `reproduced` is None where the file was not run to its end.
    if row["backend"] and row["reproduced"] is None and row["complete"]:
        echo(f"note: {minified.file} was run through torch.compile, and did not end in time: it may show it or not")
    shown = f"python {minified.file} --backend {compiler}" if row["backend"] else f"python {minified.file}"
    echo(f"{minified.out} and {minified.file}: {shown}")


def print_part(minified: Any) -> None:
    """Print a part whose backward is not the derivative, and how to see it."""
    for place in minified.row["wrong"]:
        echo(place)
    if minified.why:
        echo(f"note: the search ended early: {minified.why}")
    echo(f"{minified.out} and {minified.file}: backprint verify --derivative {minified.out}")
