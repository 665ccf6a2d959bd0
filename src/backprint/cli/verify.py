"""`backprint verify SAMPLE...`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from backprint.cli.options import ALLOW, ALLOW_UNPROVEN, MODE, TRUST
from backprint.cli.say import echo, echo_styled, ending, limits, print_table, working
from backprint.errors import BackprintError, UsageError
from backprint.graph.verdicts import (
    GOOD,
    NOT_THE_DERIVATIVE,
    derivative_json,
    proved_ports,
    reasons_of_derivative,
)
from backprint.judge import VERSION
from backprint.tools.jobs.apart import Answer, run_apart, write_answer
from backprint.tools.jobs.find import missing_rank, missing_sample, samples_in
from backprint.tools.jobs.task import Task
from backprint.tools.jobs.verbs import load_only


@click.command("verify")
@click.argument("samples", nargs=-1, required=True, type=click.Path(path_type=Path))
@ALLOW_UNPROVEN
@ALLOW
@MODE
@TRUST
@click.option("--trace", metavar="TARGET", help="Trace this program in full, and compare stamped samples with it.")
@click.option(
    "--derivative/--no-derivative",
    default=None,
    help="Say too whether each backward is the derivative of its forward; without either, if that costs less than the "
    "proof.",
)
@click.option("--loss", help="With --trace: the loss that the samples were captured with.")
@limits
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object a line: sample, verdict, judge, name, detail, nonfinite, power, vacuous, proof, derivative.",
)
def command(
    samples: tuple[Path, ...],
    allow_unproven: bool,
    allow: tuple[str, ...],
    mode: str | None,
    trust: bool,
    trace: str | None,
    derivative: bool | None,
    loss: str | None,
    timeout: float,
    memory: float | None,
    as_json: bool,
) -> None:
    """Replay samples and prove them: compare every output, mutation and gradient with the original program's.

    A SAMPLE is a folder with capture.json, or a folder with samples somewhere below. Nothing in a sample is run but
    known tensor operators, each sample in a process of its own: one that crashes or hangs is `failed`. A GraphNet
    sample is captured first, in memory.

    With `--trace TARGET`, the graphs of stamped samples are compared with those of TARGET, which is executed here,
    captured with `--fake` and traced in full.

    Each backward is compared with the derivative of its forward too, if that costs less than the proof: `bitwise,
    derivative`. One that is not the derivative is named with its line.

    The exit code is 0 if every verdict is good, and 1 if one is not, or if a backward is not the derivative.
    """
    rows: list[dict[str, Any]] = []
    places = list(samples_in(samples))
    wrong = missing_sample(samples) or missing_rank(samples)
    with ending(lambda: f"{len({row['sample'] for row in rows})} of {len(places)} samples were checked, as above"):
        try:
            with working() as at:
                options = {"allow": list(allow), "mode": mode, "trust": trust, "derivative": derivative}
                arguments = (places, options, (timeout, memory), numbered(places, at))
                answers = (
                    (
                        (answer.place, answer.content or [ended_row(answer)])
                        for answer in run_apart(VERIFIED, *arguments)
                    )
                    if trace is None
                    else rows_beside_trace(places, trace, mode, loss, tuple(allow))
                )
                for place, verdicts_of_place in answers:
                    for row in verdicts_of_place:
                        row = {"sample": str(place), **row}
                        rows.append(row)
                        if as_json:
                            echo(json.dumps(row))
        finally:
            if rows and not as_json:
                print_verdicts(rows)
    if wrong:
        raise UsageError(wrong)
    good = GOOD | ({"unproven"} if allow_unproven else set())
    if not rows or any(row["verdict"] not in good or is_not_derivative(row) for row in rows):
        raise SystemExit(1)


def is_not_derivative(row: Mapping[str, Any]) -> bool:
    """Whether the backward of a row is not the derivative of its forward."""
    return (row.get("derivative") or {}).get("word") == NOT_THE_DERIVATIVE


def numbered(places: Sequence[Path], at: Callable[[str], None]) -> Callable[[Path], None]:
    """Return a function that shows which of the samples is being checked."""
    count = itertools.count(1)
    return lambda place: at(f"{next(count)}/{len(places)} {place}")


VERIFIED = "backprint.cli.verify:verified"
"""The function that verifies in a sample's own process."""


def rows_beside_trace(
    places: Sequence[Path], target: str, mode: str | None, loss: str | None, allow: tuple[str, ...]
) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Yield the rows of stamped samples, compared with a trace of their program in full."""
    import backprint as bp
    from backprint.tools.target import capture_target, read_target

    full = capture_target(read_target(target, fake=True, mode=mode), stamp=False, loss=loss, allow=allow)
    for place in places:
        try:
            rows = [verdict_row(verdict) for verdict in bp.verify(bp.load(place, allow=allow), trace=full)]
        except BackprintError as error:  # a row for every sample
            rows = [failed_row(place.name, f"{type(error).__name__}: {error}")]
        yield place, rows


def ended_row(answer: Answer) -> dict[str, Any]:
    """Return the row of a sample whose process returned none."""
    return failed_row(answer.place.name, answer.ended)


def failed_row(name: str, detail: str) -> dict[str, Any]:
    """Return the row of a sample that failed."""
    return {
        "verdict": "failed",
        "judge": VERSION,
        "name": name,
        "detail": detail,
        "nonfinite": "",
        "power": None,
        "vacuous": [],
        "proof": False,
        "derivative": None,
    }


def verified(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Verify in the sample's own process, and write its rows as the answer."""
    return write_answer(
        staging,
        list(
            rows_of_sample(task.path, tuple(options["allow"]), options["mode"], options["trust"], options["derivative"])
        ),
    )


verified.warm = load_only  # type: ignore[attr-defined]  # what its worker loads first


def rows_of_sample(
    place: Path, allow: tuple[str, ...], mode: str | None = None, trust: bool = False, derivative: bool | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each Pair of a sample; a sample that cannot be read has a row too."""
    import backprint as bp
    from backprint.tools.target import read_capture

    try:
        capture = read_capture(place, mode, trust, allow)
        verdicts = bp.verify(capture, derivative=derivative)
    except Exception as error:  # a row for every sample, whatever is wrong with one
        yield failed_row(place.name, f"{type(error).__name__}: {error}")
        return
    hidden = unseen_ports(capture.verdict)
    for verdict in verdicts:
        last = hidden and verdict is verdicts[-1]
        parts = [
            missing(verdict),
            verdict.detail,
            f"no proof of {first_three(hidden)}: hidden when it was saved" if last else "",
        ]
        yield verdict_row(verdict) | {"detail": "; ".join(filter(None, parts))}


def verdict_row(verdict: Any) -> dict[str, Any]:
    """Return a Verdict as a row."""
    return {
        "verdict": verdict.verdict,
        "judge": VERSION,
        "name": verdict.name,
        "detail": verdict.detail,
        "nonfinite": verdict.nonfinite,
        "power": verdict.power if verdict.power is None or verdict.power < float("inf") else "inf",
        "vacuous": list(verdict.vacuous),
        "proof": verdict.proof,
        "derivative": None if verdict.derivative is None else derivative_json(verdict.derivative),
    }


def missing(verdict: Any) -> str:
    """Say why a good Verdict is not a proof, with the ports; '' if it is one, or is not good."""
    if not verdict.good or verdict.proof:
        return ""
    if not verdict.vacuous:
        return "no proof: no result could move"
    return proved_ports(len(verdict.ports), verdict.vacuous)


def unseen_ports(verdict: Any) -> tuple[str, ...]:
    """Return what a check did not see when the sample was saved; one saved with `power="none"` has no such table."""
    rows = ((verdict or {}).get("powers") or {}).get("redrawn", {})
    return tuple(name for name, row in rows.items() if row.get("hidden"))


def first_three(names: Sequence[str]) -> str:
    """Return the first three names as text."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def print_verdicts(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table, and below it a line for each row that there is more to say of."""
    from backprint.table.nouns import Table

    shown, details = [], []
    for row in rows:
        derivative = row.get("derivative")
        words = f"{row['verdict']}, {derivative['word']}" if derivative else row["verdict"]
        power = None if row["power"] is None else float(row["power"])
        shown.append((row["sample"], row["name"], words, power))
        name = f" · {row['name']}" if row["name"] != Path(row["sample"]).name else ""
        details += [
            f"{row['sample']}{name}: {text}" for text in (row["detail"], *reasons_of_derivative(derivative)) if text
        ]
    for row in rows:
        if row["nonfinite"]:
            echo_styled("", f"{row['sample']}: {row['nonfinite']}", fg="yellow")
    print_table(Table("", {"sample": "name", "name": "text", "verdict": "word", "power": "number"}, shown))
    for line in details:
        echo(line)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    text = ", ".join(f"{count} {name}" for name, count in counts.items())
    good = [row for row in rows if row["verdict"] in GOOD]
    empty, ports = sum(bool(row["vacuous"]) for row in good), sum(len(row["vacuous"]) for row in good)
    wrong = sum(map(is_not_derivative, rows))
    text += f"; {wrong} of them not the derivative" if wrong else ""
    some = "1 port" if ports == 1 else f"{ports} ports"
    text += f"; {empty} of them not proved whole: {some} that no redraw of the inputs moves" if empty else ""
    echo(f"{len(rows)} checked: {text}")
