"""`backprint record SCRIPT [ARGS]`, `backprint record -m MODULE [ARGS]`."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import click

from backprint.cli.options import choice
from backprint.common.text import printable
from backprint.graph.verdicts import nonfinite_of, verdict_text


@click.command("record", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-o", "--output", default="recorded", show_default=True, type=click.Path(path_type=Path), help="Where samples go."
)
@click.option("--steps", default="1:2", show_default=True, metavar="A:B", help="Steps from A to before B, from 0 on.")
@choice("data", "How the step's input values are kept; only exact ones are sure to run again.", "exact")
@click.option("--overwrite", is_flag=True, help="Replace existing samples.")
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module's name, as for `python -m`.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    output: Path, steps: str, data: str, overwrite: bool, module: bool, script: str, arguments: tuple[str, ...]
) -> None:
    """Run a training script unmodified, and keep its steps: forward, backward and optimizer, linked.

    `record -m pkg.train` runs a module as `python -m pkg.train` does. Options come before SCRIPT; everything after it
    belongs to the script, as do its output, results and exit code. Messages of Backprint go to standard error, also
    about a step that it could not keep. A step ends with an optimizer's step, or, if a script has no optimizer, with a
    backward.

    Under a launcher (`torchrun --nproc-per-node 2 -m backprint record train.py`) every process keeps its rank's sample,
    rank_0 and so on, in the folder of the step.
    """
    from backprint.cli import Ended
    from backprint.errors import CaptureError
    from backprint.sample.place import check_place
    from backprint.tools.record.script import check_steps, script_at, script_of_module, show_without_own_frames

    first, last = read_steps(steps)
    check_steps((first, last))
    program = script_of_module(script) if module else script_at(script)
    output = output.absolute()
    places = {number: output if last - first == 1 else output / f"step_{number}" for number in range(first, last)}
    launched = rank_of_launcher()
    for place in places.values():
        check_place(place_of_rank(place, launched), overwrite)
    if launched is not None:
        atexit.register(wait_for_gloo)  # before PyTorch and the script register theirs, so that it runs after them
    import backprint as bp

    def keep(number: int, capture: Any) -> None:
        rank = launched if capture.rank is None else capture.rank.number
        place = bp.save(capture, place_of_rank(places[number], rank), data, overwrite=overwrite)
        kept = bp.load(place).verdict or {}
        if (verdict := kept.get("verdict")) in ("wrong", "failed"):
            shutil.rmtree(place)
            raise CaptureError(f"the verdict of its sample was {verdict}")
        where = os.path.relpath(place, start)
        facts = f"{len(capture.pairs)} pairs, verdict {verdict_text(kept)}, in {where}"
        print_line(f"step {number}: {'; '.join(filter(None, (nonfinite_of(kept), facts)))}")

    start = os.getcwd()  # the script may change the directory
    try:
        bp.record(script, arguments, (first, last), keep, module=module, tell=print_line, stay=True)
    except SystemExit as leaving:
        raise Ended(leaving) from None
    except BaseException as error:  # the script's own: the process ends with it
        show_without_own_frames(error, program.path)
        raise Ended(error) from None


def rank_of_launcher() -> int | None:
    """Return the rank that a launcher has given this process; None if it has started no other."""
    rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return int(rank) if rank.isdigit() and size.isdigit() and int(size) > 1 else None


def wait_for_gloo() -> None:
    """Let Gloo's threads release the tensors of the last collectives, for which they need Python.

    One that asks for it while Python ends is ended, and PyTorch aborts the process, with or without us: its issue
    190489. Nothing tells when a thread is done; it needs some milliseconds.
    """
    time.sleep(0.2)


def place_of_rank(place: Path, rank: int | None) -> Path:
    """Return where a sample goes: in the folder of the step, if it is that of one rank of several."""
    return place if rank is None else place / f"rank_{rank}"


def read_steps(text: str) -> tuple[int, int]:
    """Return `A:B` as two numbers, `A` alone as that step."""
    from backprint.errors import UsageError

    first, colon, last = text.partition(":")
    if not first.isdigit() or (colon and not last.isdigit()):
        raise UsageError(f"--steps {text}: write A:B, as 1:2 for the second step, or A")
    return int(first), int(last) if colon else int(first) + 1


def print_line(text: str) -> None:
    """Write a line to standard error, whatever the script has done to it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed, or gone
        sys.stderr.flush()
    with contextlib.suppress(OSError):
        os.write(2, f"backprint: {printable(text, True)}\n".encode(errors="replace"))
