"""What `save` keeps of a proof: digests of the original program's results on the recipe's inputs, the Verdict, the
power.

A *witness* is what is kept of the program's results: a Row of digests and numbers for each, by the text of its port. A
*draw* is a set of inputs with tangents and a seed. `details` is a list to which functions add reasons for the text of
the Verdict, and `origin` is the program behind a Capture, alive or gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from backprint.errors import DeviceAssertError, ReplayError
from backprint.graph.keys import PortKey, keyed, with_tangents
from backprint.graph.links import compared_alone
from backprint.graph.nouns import Capture, left_out_of
from backprint.graph.verdicts import (
    DIGESTS,
    REDRAWN,
    PortVerdict,
    Power,
    Trial,
    Verdict,
    derivative_json,
    safe_number,
)
from backprint.judge import VERSION
from backprint.prove.annotations import Notes
from backprint.prove.draws import Draw, draw_from_recipes, second_draw
from backprint.prove.nonfinite import nonfinite_text
from backprint.prove.other_inputs import GIVEN, SECOND, given_row, second_values
from backprint.prove.power import power_of, why_without_power
from backprint.prove.references import (
    compare_other_results,
    compare_with_autograd,
    compare_with_kept,
    compare_with_results,
    run_part_of_program,
    run_program,
)
from backprint.prove.results import Row, numbers_of, with_witness
from backprint.prove.verify import CheckedRun, attempt, base_of, checked_run, keep_worst, make_verdict, resize
from backprint.prove.whole import Replayed
from backprint.values import settings


@dataclass(frozen=True, slots=True)
class Attested:
    """What `save` keeps of a proof on the inputs that the recipes make.

    `witness` has a row of digests and numbers for each result of the program, by the port's key as text; None if there
    was nothing to compare with. `values` has, for each Pair, the values of its ports in the run, and `notes` what the
    run noted about annotations.
    """

    witness: dict[str, Row] | None
    verdict: Verdict
    values: tuple[dict[PortKey, Any], ...]
    power: Power
    notes: Notes | None = None


POWER_SECONDS, POWER_TRIALS = 20.0, 12
"""Limits of the redraws of single inputs when a sample is saved: seconds, or number."""


def attest(capture: Capture, power: str = "quick") -> Attested:
    """Prove a Capture on its recipe's inputs, and return what a sample keeps of it.

    `power` says which inputs are redrawn to measure it (`inputs` of `power_of`); `"none"` skips that. The reference is
    the program while it lives; else the witness of the sample that the Capture was read from; else autograd of the
    forward.
    """
    alive = capture.origin.alive
    draw = draw_from_recipes(capture, "recipe", seed=None)
    details = left_out_of(capture.notes)  # what the capture left out of the program, in words
    recorded = dict(capture.environment)
    # One snapshot around all runs of the program, instead of one for each.
    restoring = capture.origin.restoring()
    with settings.ONE_AT_A_TIME, settings.preserving_random_states(), settings.with_settings(recorded), restoring:
        checked = _run_first(capture, draw)
        expected = run_program(capture, draw) if alive else None
        other_results = compare_other_results(capture) if alive else []  # verdicts of results that are no tensors
        replayed, results = checked.replayed, checked.replayed.results
        if expected is not None:
            # Compared with the program on redrawn inputs, or with the digests of a sample: the witness of each verdict.
            verdicts = with_witness(compare_with_results(capture, draw, results, expected), REDRAWN)
        elif capture.witness is not None:
            verdicts = with_witness(compare_with_kept(capture, draw, results), DIGESTS)
        else:
            verdicts = compare_with_autograd(capture, draw, results, details)
        verdicts = [*verdicts, *other_results, *checked.contradictions]
        nonfinite = nonfinite_text(capture, draw, replayed)
        parts = _part_witness(capture, replayed) if alive else {}
        # From here on, a port keeps its worst verdict, also of what differed at capture.
        verdict_of_port = {port.key: port for port in verdicts}
        keep_worst(verdict_of_port, draw="", verdicts=capture.origin.not_bitwise)
        second: dict[str, Row] = {}
        if alive and expected is not None:
            second = _second_witness(capture, draw, verdict_of_port, details)
            keep_worst(verdict_of_port, "resized", resize(capture, details))  # verdicts at other symbolic sizes
    backward = any(pair.backward is not None for pair in capture.pairs)
    measured = Power(trials=())  # not measured
    if power != "none":
        base = base_of(draw, replayed)
        measured = power_of(capture, power, seconds=POWER_SECONDS, count=POWER_TRIALS, base=base)
    details += [*why_without_power(measured), *(guard.text for guard in compared_alone(capture))]
    # The sample keeps the verdict, and digests by which it can be compared when the program is gone.
    verdict = make_verdict(capture.name, backward, verdict_of_port, details, dict(measured.most), nonfinite)
    witness: dict[str, Row] | None
    if expected is not None:
        witness = {str(key): numbers_of(value) for key, value in expected.items()} | parts | second
    else:  # a sample that is saved again keeps its witness
        witness = dict(capture.witness or {}) or None
    return Attested(witness, verdict, port_values(capture, replayed), measured, checked.notes)


def _second_witness(
    capture: Capture, first: Draw, verdict_of_port: dict[PortKey, PortVerdict], details: list[str]
) -> dict[str, Row]:
    """Return the witness rows of a second draw, in which inputs with one value everywhere have many: the digests of
    the inputs, and of the program's results. Add the verdicts on it to `verdict_of_port`. Empty if there is no such
    draw, or if the program does not run on it. `first` is the draw of the recipes."""
    draw = second_draw(capture, first)
    if draw is None:
        return {}
    # As a `fresh` draw, on which a program may raise or a guard break: then the sample keeps no rows.
    attempted = attempt(capture, replace(draw, name="fresh"), details)
    if attempted is None or not attempted.verdicts:
        return {}
    keep_worst(verdict_of_port, SECOND, attempted.verdicts)
    values = second_values(capture, with_tangents(first.values, first.tangents or {}))
    return {GIVEN: given_row(values)} | {
        f"{SECOND} {key}": numbers_of(value) for key, value in run_program(capture, draw).items()
    }


def _run_first(capture: Capture, draw: Draw) -> CheckedRun:
    """Return a run of the Capture on a draw. If the Capture raises and the program does too, raise the program's
    error."""
    try:
        return checked_run(capture, draw)
    except ReplayError as error:
        # After a device-side assertion nothing more runs on that GPU.
        if capture.origin.alive and not isinstance(error.__cause__, DeviceAssertError):
            run_program(capture, draw)
        raise


def _part_witness(capture: Capture, replayed: Replayed) -> dict[str, Row]:
    """Return the witness rows of each Pair's own results: of the part of the program (`origin.parts`) that the Pair was
    traced from, on the values that the Pair had in this replay (`replayed.parts`). Empty if the program has no parts
    that can run alone."""
    if not capture.origin.parts:
        return {}
    # A replay runs every Pair, in order.
    expected = [run_part_of_program(capture, index, pair_run) for index, pair_run in enumerate(replayed.parts)]
    named = zip(capture.pairs, expected, strict=True)
    return {f"{pair.name} {key}": numbers_of(value) for pair, results in named for key, value in results.items()}


def port_values(capture: Capture, replayed: Replayed) -> tuple[dict[PortKey, Any], ...]:
    """Return, for each Pair, the values of the inputs of its forward and of its backward in a replay."""
    rows = []
    for pair, pair_run in zip(capture.pairs, replayed.parts, strict=True):
        values = {port.key: pair_run.values[port.name] for port in pair.forward.inputs}
        values |= keyed("constant", pair_run.values) | keyed("tangent", pair_run.tangents)
        rows.append(values | keyed("saved", pair_run.saved))
    return tuple(rows)


def verdict_json(verdict: Verdict, power: Power | None = None) -> dict[str, Any]:
    """Return a Verdict in a sample's form, with its power if that was measured."""
    return {
        "verdict": verdict.verdict,
        "judge": VERSION,  # of the rule of closeness
        "name": verdict.name,
        "detail": verdict.detail[:2000],
        "power": None if verdict.power is None else safe_number(verdict.power),
        "vacuous": list(verdict.vacuous),
        "ports": {str(port.key): port.verdict for port in verdict.ports},
        **({"nonfinite": verdict.nonfinite[:2000]} if verdict.nonfinite else {}),
        **({"powers": power_json(power)} if power is not None else {}),
        **({"derivative": derivative_json(verdict.derivative)} if verdict.derivative is not None else {}),
    }


def power_json(power: Power) -> dict[str, Any]:
    """Return a Power in a sample's form: how many of how many inputs were redrawn one by one, and for each redraw the
    port that moved least, or why it was not tried."""
    return {
        "tried": power.tried,
        "of": power.of,
        "redrawn": {trial.name: _trial_json(trial) for trial in power.trials},
    }


def _trial_json(trial: Trial) -> dict[str, Any]:
    """Return one redraw in a sample's form: how many ports it could move, by how much it moved them at least and at
    most, and which port least; the sides (`forward`, `backward`) on which it moved none (`silent`), and whether a check
    would miss a graph that ignores the redrawn inputs (`hidden`); or why it was not tried."""
    if trial.untried:
        return {"untried": trial.untried[:300]}
    if trial.weakest is None:  # no port depends on the inputs
        return {"ports": 0}
    port, by = trial.weakest
    row = {
        "ports": len(trial.moved),
        "port": port,
        "least": safe_number(by),
        "most": safe_number(max(by for _, by in trial.moved)),
    }
    row |= {"silent": list(trial.silent)} if trial.silent else {}
    return row | ({"hidden": True} if trial.hidden else {})
