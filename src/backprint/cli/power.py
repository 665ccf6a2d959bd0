"""`backprint power SAMPLE...`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from backprint.cli.options import ALLOW, MODE, TRUST, power_option
from backprint.cli.say import console, echo, ending, limits, print_table, table_text, working
from backprint.cli.verify import first_three, numbered
from backprint.common.text import printable
from backprint.errors import UsageError
from backprint.graph.verdicts import GOOD, has_proof, ports_without_power
from backprint.tools.jobs.apart import run_apart, write_answer
from backprint.tools.jobs.find import missing_sample, samples_in
from backprint.tools.jobs.task import Task
from backprint.tools.jobs.verbs import load_only

MOST = 24
"""So many redraws of a sample are shown without `--all`."""


@click.command("power")
@click.argument("samples", nargs=-1, required=True, type=click.Path(path_type=Path))
@power_option("own")
@click.option("--seconds", type=float, help="Stop drawing again after so long; what was tried is said.")
@MODE
@TRUST
@ALLOW
@limits
@click.option("--all", "everything", is_flag=True, help="Every redraw, where a long list would be cut.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(
    samples: tuple[Path, ...],
    power: str,
    seconds: float | None,
    mode: str | None,
    trust: bool,
    allow: tuple[str, ...],
    timeout: float,
    memory: float | None,
    everything: bool,
    as_json: bool,
) -> None:
    """Measure what a check of these samples can see: how far each result moves when inputs are redrawn.

    Figures are in tolerances: below 1, a check of that port would not notice another value of the input. A SAMPLE is a
    folder with capture.json, a GraphNet sample, which is captured first, or a folder with samples below. Each is
    verified too: it has a proof if everything compares equal and every port has power, as in `verify`. Exit code 1
    unless each has a proof, and a check sees everything that results depend on.
    """
    rows: list[dict[str, Any]] = []
    places = list(samples_in(samples))
    wrong = missing_sample(samples)
    with ending(lambda: f"{len(rows)} of {len(places)} samples were measured, as above"), working() as at:
        options = {"power": power, "seconds": seconds, "mode": mode, "trust": trust, "allow": list(allow)}
        for answer in run_apart(
            "backprint.cli.power:weighed", places, options, (timeout, memory), numbered(places, at)
        ):
            row = {
                "sample": str(answer.place),
                **(answer.content or {"name": answer.place.name, "error": answer.ended}),
            }
            rows.append(row)
            if as_json:
                echo(json.dumps(row))
            else:
                print_power(row, None if everything else MOST)
    if wrong:
        raise UsageError(wrong)
    if not rows or not all(row.get("reacts") and row.get("proof") for row in rows):
        raise SystemExit(1)


def weighed(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Measure in the sample's own process, and write its row as the answer."""
    from backprint.tools.target import read_capture

    read = partial(read_capture, task.path, options["mode"], options["trust"], tuple(options["allow"]))
    return write_answer(staging, measured(task.path, options["power"], options["seconds"], read))


weighed.warm = load_only  # type: ignore[attr-defined]  # what its worker loads first


def measured(place: Path, power: str, seconds: float | None, read: Callable[[], Any]) -> dict[str, Any]:
    """Return a sample's power as data; a sample that cannot be read or run has a row too."""
    import backprint as bp

    try:
        capture = read()
        # without the program, fresh inputs show the power alone, which is measured next
        draws = None if capture.origin.alive else ("captured", "recipe", "resized")
        verdict = bp.verify(capture, draws)[-1]
        measured_power = bp.power(capture, power, seconds=seconds)
    except Exception as error:  # a row for every sample, whatever is wrong with one
        return {"name": place.name, "error": f"{type(error).__name__}: {error}"}
    from backprint.prove.attest import power_json
    from backprint.prove.power import why_without_power

    value = measured_power.value
    return {
        "name": capture.name,
        "verdict": verdict.verdict,
        "proof": has_proof(verdict.verdict, value, measured_power.vacuous),
        "reacts": measured_power.reacts,
        "power": value if value is None or math.isfinite(value) else str(value),
        "vacuous": list(measured_power.vacuous),
        "hidden": list(measured_power.hidden),
        "dead_ports": list(measured_power.dead_ports),
        "why": why_without_power(measured_power),
        **power_json(measured_power),
    }


def print_power(row: dict[str, Any], most: int | None) -> None:
    """Print whether a check of a sample sees everything, and its power in each of the first redraws."""
    from backprint.table.nouns import Table

    out = console()
    head = table_text(f"{row['sample']} · {row['name']}", "bold")
    if "error" in row:
        out.print(head)
        out.print(table_text(row["error"], "red"))
        return
    out.print(head.append(printable(f": {verdict(row)}"), "not bold"), soft_wrap=True)
    echo(f"{row['tried']} of {row['of']} inputs redrawn alone")
    trials = list(row["redrawn"].items())
    columns = {"redrawn": "name", "ports": "digits", "least": "digits", "of": "text", "most": "digits", "": "text"}
    print_table(Table("", columns, [(name, *cells(trial)) for name, trial in trials[:most]]))
    if most is not None and len(trials) > most:
        echo(f"… {len(trials) - most} more; --all")


def cells(trial: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a row after its name."""
    if "untried" in trial:
        return "", "", "", "", f"not tried: {trial['untried']}"
    if not trial["ports"]:
        return "0", "", "", "", "nothing depends on it"
    text = f"no {' or '.join(trial['silent'])} result shows it" if "silent" in trial else ""
    return str(trial["ports"]), f"{float(trial['least']):.3g}", trial["port"], f"{float(trial['most']):.3g}", text


def verdict(row: dict[str, Any]) -> str:
    """Say whether the sample has a proof, and why not."""
    sees = "a check sees all that results depend on" if row["reacts"] else ""
    hidden = f"hidden is {first_three(row['hidden'])}" if row["hidden"] else ""
    if row["proof"]:
        return "; ".join(filter(None, (sees or "every port has power", hidden)))
    why = [f"it is {row['verdict']}" if row["verdict"] not in GOOD else ""]
    if row["power"] is None:
        why.append("no result could move: nothing to measure")
    if row["vacuous"]:
        why.append(f"nothing moves {first_three(row['vacuous'])} ({ports_without_power(len(row['vacuous']))})")
        why += row["why"]
    return "no proof: " + "; ".join(filter(None, (*why, hidden)))
