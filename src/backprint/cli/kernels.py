"""`backprint kernels SAMPLE... -o DIR`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from backprint.cli.corpus import carry_out
from backprint.cli.options import ALLOW, TRUST, choice, run_options, split_names
from backprint.cli.say import echo
from backprint.graph.verdicts import NOT_THE_DERIVATIVE

if TYPE_CHECKING:
    from backprint.tools.jobs import CorpusRun


@click.command("kernels")
@click.argument("samples", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "out",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder to write kernels and kernels.jsonl to.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    default=("cpu",),
    show_default=True,
    metavar="NAME[,NAME…]",
    help="cpu, cpu:avx2, cpu:avx512, cpu:neon, cuda:75, cuda:80, cuda:90, cuda:100, cuda:120.",
)
@choice("direction", "Which graphs.", "both")
@click.option(
    "--compiler",
    default="inductor",
    show_default=True,
    metavar="NAME",
    help="inductor, inductor:SETTING=VALUE[,…], or a function of yours: file.py:function.",
)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="That C++ is written for.")
@click.option("--build", is_flag=True, help="Compile Triton kernels, each configuration, to PTX and cubin.")
@click.option("--check", is_flag=True, help="Run the kernels and compare their results with the graphs'.")
@run_options()
@ALLOW
@TRUST
@click.option("--json", "as_json", is_flag=True, help="One JSON object a sample, as it finishes.")
def command(
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

    SAMPLE is a sample, or a folder of samples or of a corpus; each is processed in a process of its own. DIR gets the
    kernels of their forwards and backwards as files, and kernels.jsonl, with a row for each kernel: where it came from,
    and a hash that equal programs share. Samples of GraphNet are captured first. No kernel is run, and no C++ compiler
    is needed, unless --check asks for it. If the command is ended at any moment, the same command continues. Exit code
    1 if a graph is refused, a kernel's results are wrong, or, with --check, a captured backward is not the derivative.
    """
    from backprint.tools.bench.compilers.table import absolute_compiler
    from backprint.tools.jobs.find import begin_several

    source, listed = begin_several(samples, out, "kernels", given["restart"])
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
    carry_out("kernels", source, out, chosen, list=listed, allow_unproven=not check, close=close_run, **given)


def close_run(done: CorpusRun, as_json: bool) -> None:
    """Print how many samples have kernels, and which have none; exit with 1 if a captured backward is wrong."""
    rows = list(done.rows())
    if not as_json:
        print_rows(done, rows)
    if any(row["derivative"] == NOT_THE_DERIVATIVE for row in rows):
        raise SystemExit(1)


def print_rows(done: CorpusRun, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each sample, and how many programs the kernels are."""
    from backprint.tools.kernels.rows import FILE, read_rows, summary_lines

    for row in rows:
        word = ", ".join(filter(None, (row["cause"] or row["verdict"], row["derivative"])))
        echo(f"{row['id']}: {word}: {row['detail']}")
    for line in summary_lines(list(read_rows(done.out))):
        echo(line)
    echo(f"a row for each kernel: {done.out / FILE}")
