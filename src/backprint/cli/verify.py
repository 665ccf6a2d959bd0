"""`backprint verify SAMPLE...`: is each result right, is the backward the derivative, and could a check see it.

`option(SECTION, ...)` adds an option in a section of the help; names in capitals such as ALLOW are options that several
commands have, and sections (`options`). `echo` prints a text with control characters escaped, `working(text)` shows a
line of progress and yields a function that sets its text, and `ending(what_exists)` says at Ctrl-C what is kept
(`say`). SystemExit carries the exit code: 1 something is not good, NOTHING (3) nothing was looked at.

A *row* is what `--json` prints of a Pair, or of a whole sample. The *power* of a port is how far it moves when inputs
are redrawn, in tolerances: below 1, a check of it proves nothing. `vacuous` names the ports without power. `powers` of
a row, where power was measured: `reacts` says whether a check sees every redraw that was tried alone, `hidden` names
the inputs whose redraw it does not see, `tried` and `of` say how many inputs were redrawn, of how many, and `redrawn`
has a *trial* for each redraw.
"""

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
    """Yield a row for each of several Pairs of a sample, and one for the whole, which is the last, with the redraws of
    the inputs if `power` asks for them. A sample that cannot be read or run has one row, `failed`."""
    import backprint as bp
    from backprint.tools.target import read_capture

    try:
        capture = read_capture(place, mode, trust, allow)
        verdicts = bp.verify(capture, derivative=derivative)
        measured = bp.power(capture, power) if power != "none" else None
    except Exception as error:  # a row for every sample, whatever is wrong with one
        yield failed_row(place.name, f"{type(error).__name__}: {error}")
        return
    # What the sample says of redraws when it was saved; nothing if its power was not measured.
    redrawn = ((capture.verdict or {}).get("powers") or {}).get("redrawn", {})
    unseen = [name for name, row in redrawn.items() if row.get("hidden")]
    for verdict in verdicts:
        is_whole = verdict is verdicts[-1]
        parts = [
            _why_no_proof(verdict),
            verdict.detail,
            f"no proof of {_first_three(unseen)}: hidden when it was saved" if is_whole and unseen else "",
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
        yield row | (power_row(verdict.verdict, measured) if is_whole and measured is not None else {})


def failed_row(name: str, detail: str) -> dict[str, Any]:
    """Return the row of a sample that failed."""
    row: dict[str, Any] = {"verdict": "failed", "judge": VERSION, "name": name, "detail": detail, "nonfinite": ""}
    return row | {"power": None, "vacuous": [], "proof": False, "derivative": None}


def power_row(verdict: str, power: Any) -> dict[str, Any]:
    """Return what the row of a sample with this verdict has of its Power, measured now: the power of its ports, whether
    that makes a proof, and each redraw."""
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
    """Return a power as JSON has it: an infinite one as text, and None, if there is none, as null."""
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
    """Print where NaN and Inf come from, the rows as a table, details and reasons that do not fit into it, the redraws,
    and how many samples have each verdict."""
    for row in rows:
        if row["nonfinite"]:
            echo_styled("", f"{row['sample']}: {row['nonfinite']}", fg="yellow")
    columns = {"sample": "name", "name": "text", "verdict": "word", "power": "number"}
    print_table(Table("", columns, list(map(_cells_of, rows))))
    for row in rows:
        name = f" · {row['name']}" if row["name"] != Path(row["sample"]).name else ""
        for text in filter(None, (row["detail"], *reasons_of_derivative(row["derivative"]))):
            echo(f"{row['sample']}{name}: {text}")
    for row in rows:
        if "powers" in row:
            print_power(row)
    echo(f"{len(rows)} checked: {_counts_of(rows)}")


def _cells_of(row: Mapping[str, Any]) -> tuple[str, str, str, float | None]:
    """Return the cells of a row in the table: sample, name, verdict with the derivative's word, and power."""
    derivative = row["derivative"]
    verdict = f"{row['verdict']}, {derivative['word']}" if derivative else row["verdict"]
    power = None if row["power"] is None else float(row["power"]) + 0.0  # + 0.0: never -0
    return row["sample"], row["name"], verdict, power


def _counts_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how many rows have each verdict, how many backwards are not the derivative, and how many rows that are
    good have ports without power."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    text = ", ".join(f"{count} {name}" for name, count in counts.items())
    if wrong := sum(map(_is_not_derivative, rows)):
        text += f"; {wrong} of them not the derivative"
    good = [row for row in rows if row["verdict"] in GOOD]
    if not_proved := sum(bool(row["vacuous"]) for row in good):
        ports = sum(len(row["vacuous"]) for row in good)
        ports_text = "1 port" if ports == 1 else f"{ports} ports"
        text += f"; {not_proved} of them not proved whole: {ports_text} that no redraw of the inputs moves"
    return text


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
    """Return the cells of a redraw after its name: how many ports it moves, how far the one that moves least, which
    that is, how far the one that moves most, and a remark. `untried` says why it was not tried; `silent` names the
    directions of which no port shows it."""
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
