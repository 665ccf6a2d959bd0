"""`backprint export SAMPLE -o repro.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from backprint.cli.options import ALLOW, choice
from backprint.cli.say import echo


@click.command("export")
@click.argument("sample", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The Python file to write.")
@click.option("--backend", metavar="NAME", help="What the file compares with eager where it is not told otherwise.")
@choice("direction", "Which graphs are shown and compared.", "both")
@choice("data", "seed: draw the inputs that the sample keeps as bytes; else inputs are as the sample keeps them.")
@ALLOW
@click.option("--overwrite", is_flag=True, help="Replace a file that exists already.")
def command(
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
    from backprint.errors import UsageError
    from backprint.tools.export.export import data_beside
    from backprint.tools.jobs.find import missing_sample

    if wrong := missing_sample((sample,)):
        raise UsageError(wrong)
    capture = bp.load(sample, allow=allow)
    options: dict[str, Any] = dict(direction=direction, data=data, allow=allow, overwrite=overwrite)
    place = bp.export(capture, output, backend=backend, **options)
    beside = data_beside(place).name
    reads = f"data_beside(__file__, {beside!r})" in place.read_text("utf-8")
    needs = f", with its data in {beside} beside it" if reads else ""
    echo(f"{place}: {capture.name}{needs}; run it with python {place}{'' if backend else ' [--backend NAME]'}")
