"""`backprint verify SAMPLE...`: is each result right, is the backward the derivative, and could a check see it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backprint.cli.named import at_places
from backprint.cli.options import (
    ALLOW,
    ALLOW_UNPROVEN,
    COUNTS,
    HOW,
    LIMITS,
    MODE,
    SAMPLES,
    TRUST,
    Words,
    command,
    json_lines,
    option,
)
from backprint.cli.say import echo, echo_styled, ending, print_table, working
from backprint.common.words import CHOICES, PowerWord
from backprint.graph.verdicts import (
    GOOD,
    NOT_THE_DERIVATIVE,
    derivative_json,
    has_proof,
    ports_without_power,
    proved_ports,
    reasons_of_derivative,
)
from backprint.judge import VERSION
from backprint.table.nouns import Table
from backprint.tools.jobs.apart import run_apart, write_answer
from backprint.tools.jobs.find import check_samples, missing_rank, samples_in
from backprint.tools.jobs.task import Task
from backprint.tools.jobs.verbs import load_only


@command("verify")
@SAMPLES
@option(
    HOW,
    "--derivative/--no-derivative",
    default=None,
    help="Say too whether each backward is the derivative of its forward; without either, if that costs less than the "
    "proof.",
)
@option(
    HOW,
    "--power",
    type=Words(CHOICES["power"]),
    is_flag=False,
    flag_value="own",
    default="none",
    help="Redraw inputs, and say how far that moves the results. A bare --power, at the end, is own: one by one; all "
    "does so with parameters and buffers, too.",
)
@option(
    COUNTS, "--strict", is_flag=True, help="A sample without a proof of every port is a reason to exit with 1, too."
)
@ALLOW_UNPROVEN
@MODE
@ALLOW
@TRUST
@LIMITS
@json_lines("sample, or Pair of one: verdict, judge, name, detail, nonfinite, power, vacuous, proof, derivative")
def verify_command(
    samples: tuple[Path, ...],
    strict: bool,
    allow_unproven: bool,
    timeout: float,
    memory: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Replay samples and prove them: compare every output, mutation and gradient with the original program's.

    A SAMPLE is a folder with capture.json, or a folder with samples somewhere below. Nothing in a sample is run but
    known tensor operators, each sample in a process of its own: one that crashes or hangs is `failed`. A GraphNet
    sample is captured first, in memory.

    Each backward is compared with the derivative of its forward too, if that costs less than the proof: `bitwise,
    derivative`. One that is not the derivative is named with its line.

    With --power, inputs are redrawn. Figures are in tolerances: below 1, a check of that port would not notice another
    value of the input.

    The exit code is 0 if every verdict is good; 1 if one is not, if a backward is not the derivative, and, with
    --strict, if a port is not proved, or a redraw is not seen; 3 if there is no sample. A gradient that is meant to
    differ is named when the sample is captured (`backprint capture --meant NAME`); --no-derivative does not ask.
    """
    targets, samples = samples, at_places(samples)
    target_at = dict(zip(samples, targets, strict=True))  # a factory or a model's name is shown as it was written
    check_samples(samples)
    rows: list[dict[str, Any]] = []
    places = list(dict.fromkeys(samples_in(samples)))
    count = itertools.count(1)
    with ending(lambda: f"{len({row['sample'] for row in rows})} of {len(places)} samples were checked, as above"):
        try:
            with working() as show_status:
                for answer in run_apart(
                    "backprint.cli.verify:verify_in_own_process",
                    places,
                    {**options, "allow": list(options["allow"])},
                    (timeout, memory),
                    lambda place: show_status(f"{next(count)}/{len(places)} {place}"),
                ):
                    for row in answer.content or [failed_row(answer.place.name, answer.ended)]:
                        rows.append({"sample": str(target_at.get(answer.place, answer.place)), **row})
                        if as_json:
                            echo(json.dumps(rows[-1]))
        finally:
            if rows and not as_json:
                print_verdicts(rows)
    incomplete = missing_rank(samples)
    if incomplete:
        echo(f"backprint: {incomplete}", err=True)
    allowed = GOOD | ({"unproven"} if allow_unproven else set())
    bad = (row["verdict"] not in allowed or _is_not_derivative(row) or (strict and not _is_seen(row)) for row in rows)
    if incomplete or any(bad):
        raise SystemExit(1)


def _is_not_derivative(row: Mapping[str, Any]) -> bool:
    """Whether the backward of a row is not the derivative of its forward."""
    return (row.get("derivative") or {}).get("word") == NOT_THE_DERIVATIVE


def _is_seen(row: Mapping[str, Any]) -> bool:
    """Whether a row has a proof, and a check sees every redraw that was tried alone; where power was not measured, the
    proof decides."""
    return row["proof"] and row.get("powers", {"reacts": True})["reacts"]


# ---- A sample's rows, made in its own process


def verify_in_own_process(task: Task, options: Mapping[str, Any], staging: Path) -> dict[str, Any]:
    """Verify in the sample's own process, and write its rows as the answer."""
    return write_answer(staging, list(rows_of_sample(task.path, **{**options, "allow": tuple(options["allow"])})))


verify_in_own_process.warm = load_only  # type: ignore[attr-defined]  # what its worker loads first


def rows_of_sample(
    place: Path,
    allow: tuple[str, ...],
    mode: str | None = None,
    trust: bool = False,
    derivative: bool | None = None,
    power: PowerWord = "none",
) -> Iterator[dict[str, Any]]:
    """Yield a row for each Pair of a sample; a sample that cannot be read has a row too. The last is of the whole, and
    has the redraws of its inputs, if they are asked for."""
    import backprint as bp
    from backprint.tools.target import read_capture

    try:
        capture = read_capture(place, mode, trust, allow)
        verdicts = bp.verify(capture, derivative=derivative)
        measured = bp.power(capture, power) if power != "none" else None
    except Exception as error:  # a row for every sample, whatever is wrong with one
        yield failed_row(place.name, f"{type(error).__name__}: {error}")
        return
    redrawn = ((capture.verdict or {}).get("powers") or {}).get("redrawn", {})  # none with power="none"
    unseen = [name for name, row in redrawn.items() if row.get("hidden")]
    for verdict in verdicts:
        last = verdict is verdicts[-1]
        parts = [
            _why_no_proof(verdict),
            verdict.detail,
            f"no proof of {_first_three(unseen)}: hidden when it was saved" if last and unseen else "",
        ]
        row = {
            "verdict": verdict.verdict,
            "judge": VERSION,
            "name": verdict.name,
            "detail": "; ".join(filter(None, parts)),
            "nonfinite": verdict.nonfinite,
            "power": _json_number(verdict.power),
            "vacuous": list(verdict.vacuous),
            "proof": verdict.proof,
            "derivative": None if verdict.derivative is None else derivative_json(verdict.derivative),
        }
        yield row | (power_row(verdict.verdict, measured) if last and measured is not None else {})


def failed_row(name: str, detail: str) -> dict[str, Any]:
    """Return the row of a sample that failed."""
    row: dict[str, Any] = {"verdict": "failed", "judge": VERSION, "name": name, "detail": detail, "nonfinite": ""}
    return row | {"power": None, "vacuous": [], "proof": False, "derivative": None}


def power_row(verdict: str, power: Any) -> dict[str, Any]:
    """Return what a row has of its Power: that of all redraws, and each of them."""
    from backprint.prove.attest import power_json
    from backprint.prove.power import why_without_power

    return {
        "power": _json_number(power.value),
        "vacuous": list(power.vacuous),
        "proof": has_proof(verdict, power.value, power.vacuous),
        "powers": {
            "reacts": power.reacts,
            "hidden": list(power.hidden),
            "dead_ports": list(power.dead_ports),
            "why": why_without_power(power),
            **power_json(power),
        },
    }


def _json_number(power: float | None) -> float | str | None:
    """Return a power as JSON has it: an infinite one as text."""
    return power if power is None or math.isfinite(power) else str(power)


def _why_no_proof(verdict: Any) -> str:
    """Say why a good Verdict is not a proof, with the ports; '' if it is one, or is not good."""
    if not verdict.good or verdict.proof:
        return ""
    if not verdict.vacuous:
        return "no proof: no result could move"
    return proved_ports(len(verdict.ports), verdict.vacuous)


def _first_three(names: Sequence[str]) -> str:
    """Return the first three names as text."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# ---- What is printed


def print_verdicts(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table; below it a line for all that there is more to say of, and the redraws."""
    table_rows, details = [], []
    for row in rows:
        derivative = row["derivative"]
        verdict = f"{row['verdict']}, {derivative['word']}" if derivative else row["verdict"]
        power = None if row["power"] is None else float(row["power"]) + 0.0  # which is never -0
        table_rows.append((row["sample"], row["name"], verdict, power))
        name = f" · {row['name']}" if row["name"] != Path(row["sample"]).name else ""
        details += [
            f"{row['sample']}{name}: {text}" for text in (row["detail"], *reasons_of_derivative(derivative)) if text
        ]
    for row in rows:
        if row["nonfinite"]:
            echo_styled("", f"{row['sample']}: {row['nonfinite']}", fg="yellow")
    print_table(Table("", {"sample": "name", "name": "text", "verdict": "word", "power": "number"}, table_rows))
    for line in details:
        echo(line)
    for row in rows:
        if "powers" in row:
            print_power(row)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    text = ", ".join(f"{count} {name}" for name, count in counts.items())
    good = [row for row in rows if row["verdict"] in GOOD]
    not_proved, ports = sum(bool(row["vacuous"]) for row in good), sum(len(row["vacuous"]) for row in good)
    wrong = sum(map(_is_not_derivative, rows))
    text += f"; {wrong} of them not the derivative" if wrong else ""
    ports_text = "1 port" if ports == 1 else f"{ports} ports"
    text += (
        f"; {not_proved} of them not proved whole: {ports_text} that no redraw of the inputs moves"
        if not_proved
        else ""
    )
    echo(f"{len(rows)} checked: {text}")


MOST = 24
"""So many redraws of a sample are shown; `--json` has all."""


def print_power(row: dict[str, Any]) -> None:
    """Print whether a check of a sample sees every redraw, and how far each of the first ones moves results.

    A row is a redraw of inputs: how many output ports it moves (`ports`), how far it moves the one that moves least
    (`least`), which port that is (`of`), and how far it moves the one that moves most (`most`), both in tolerances.
    """
    powers = row["powers"]
    echo(f"{row['sample']}: {powers['tried']} of {powers['of']} inputs redrawn alone; {power_text(row)}")
    columns = {"redrawn": "name", "ports": "digits", "least": "digits", "of": "text", "most": "digits", "why": "detail"}
    trials = list(powers["redrawn"].items())
    print_table(Table("", columns, [(name, *trial_cells(trial)) for name, trial in trials[:MOST]]))
    if len(trials) > MOST:
        echo(f"… {len(trials) - MOST} more; --json has all")


def trial_cells(trial: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of a redraw after its name: how many ports it moves, the least and the most that one moves."""
    if "untried" in trial:
        return "", "", "", "", f"not tried: {trial['untried']}"
    if not trial["ports"]:
        return "0", "", "", "", "no result that is measured depends on it"
    text = f"no {' or '.join(trial['silent'])} result shows it" if "silent" in trial else ""
    return (
        str(trial["ports"]),
        f"{float(trial['least']) + 0.0:.3g}",  # + 0.0: never -0
        trial["port"],
        f"{float(trial['most']) + 0.0:.3g}",
        text,
    )


def power_text(row: dict[str, Any]) -> str:
    """Say whether a check sees all that results depend on, and what it does not see."""
    powers = row["powers"]
    hidden = f"hidden is {_first_three(powers['hidden'])}" if powers["hidden"] else ""
    if row["proof"]:
        sees = "a check sees all that results depend on" if powers["reacts"] else "every port has power"
        return "; ".join(filter(None, (sees, hidden)))
    why = [f"it is {row['verdict']}" if row["verdict"] not in GOOD else ""]
    if row["power"] is None:
        why.append("no result could move: nothing to measure")
    if row["vacuous"]:
        why.append(f"nothing moves {_first_three(row['vacuous'])} ({ports_without_power(len(row['vacuous']))})")
        why += powers["why"]
    return "no proof: " + "; ".join(filter(None, (*why, hidden)))
