"""Proofs: compare a Capture's results with the original program's, on every possible draw of inputs.

The reference is the program in eager. While it lives, it runs here; from disk, the witness kept at save (digests, norms
and leading values of its results on the recipe's inputs) replaces it. A fake Capture has nothing to be compared with; a
stamped one can be compared with a trace of the whole program.

A *draw* is a set of inputs with tangents and a seed, named by its kind: `captured`, `recipe`, `fresh`, `resized`, or
SECOND. A PortVerdict is the outcome for one port on one draw, a Verdict that of a Pair or a Capture; `details` is a
list to which functions add reasons for a Verdict's text. `capture.origin` is the program, `alive` or gone, and
`traced_here` says that it was captured in this process and not read from a sample. A *guard* is a condition on inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from backprint.errors import BackprintError, DeviceAssertError, GuardError, ReplayError
from backprint.graph.keys import PortKey, with_tangents
from backprint.graph.links import compared_alone, contradictions
from backprint.graph.nouns import Capture, left_out_of, stamp_of
from backprint.graph.verdicts import (
    DIGESTS,
    PROGRAM,
    PROVED,
    REDRAWN,
    PortVerdict,
    Verdict,
    least_power,
    unmoved_ports,
    worst,
)
from backprint.prove.annotations import Notes, notes_in
from backprint.prove.draws import DRAWS, Draw, draws_at_other_sizes, draws_of
from backprint.prove.nonfinite import nonfinite_text
from backprint.prove.other_inputs import SECOND, unchecked_inputs, why_unchecked
from backprint.prove.power import Base, power_of, why_without_power, with_power
from backprint.prove.references import (
    compare_with_autograd,
    compare_with_kept,
    compare_with_program,
    part_verdicts,
    program_fails,
)
from backprint.prove.results import Results, with_witness
from backprint.prove.run import RunOptions
from backprint.prove.whole import Replayed, refuse_users_mode, replay_values
from backprint.values import settings
from backprint.values.settings import seed_torch

# ---- Proofs of a Capture


FAKE = "fake: captured without values, so the program returned nothing to compare with"
"""Why a fake Capture cannot be proven by itself."""


class _Attempt(NamedTuple):
    """A run of a Capture on one draw of inputs, and the verdicts of its results."""

    replayed: Replayed
    verdicts: list[PortVerdict]


def verify_capture(capture: Capture, draws: tuple[str, ...] = DRAWS) -> list[Verdict]:
    """Return a Verdict for each of several linked Pairs, then one for the whole Capture: the worst of its ports over
    all draws of these names."""
    unknown = set(draws) - set(DRAWS)
    if unknown:
        raise ReplayError(f"draws={sorted(unknown)} are none of {', '.join(DRAWS)}")
    refuse_users_mode("verify")
    if capture.fake:
        return [Verdict("unproven", capture.name, "; ".join(filter(None, (FAKE, stamp_of(capture.notes)))))]
    # Settings of the capture, such as the matmul precision, would else make a difference of their own.
    recorded = dict(capture.environment)
    with (
        settings.ONE_AT_A_TIME,
        settings.preserving_random_states(),
        settings.with_settings(recorded),
        capture.origin.restoring(),
    ):
        return [_named_differences(verdict, recorded) for verdict in prove(capture, draws)]


def _named_differences(verdict: Verdict, recorded: Mapping[str, str]) -> Verdict:
    """Return a Verdict that, unless it is bitwise or of a forward alone (`undifferentiable`), names the settings that
    differ from those recorded at capture."""
    if verdict.verdict in ("bitwise", "undifferentiable") or not (
        differences := settings.settings_differences(recorded)
    ):
        return verdict
    return replace(verdict, detail="; ".join(filter(None, (verdict.detail, *differences))))


@dataclass(slots=True)
class Tally:
    """The verdicts so far of a whole Capture, or of one of its linked Pairs.

    `backward` says whether there is a backward, and `guards_alone` whether a Pair has no results, so that only its
    guards are proved. `details` are reasons for the Verdict's text, `seen_draws` the draws that ran so far, `powers`
    the power of each port by its key as text, and `nonfinite` says where NaN and Inf come from.
    """

    name: str
    backward: bool
    guards_alone: bool = False
    verdicts: dict[PortKey, PortVerdict] = field(default_factory=dict)
    details: list[str] = field(default_factory=list)
    seen_draws: set[str] = field(default_factory=set)
    powers: Mapping[str, float] = field(default_factory=dict)
    nonfinite: str = ""

    def note(self, draw: str, verdicts: Sequence[PortVerdict]) -> None:
        """Add one draw's verdicts: of each port the worst counts."""
        self.seen_draws.add(draw)
        keep_worst(self.verdicts, draw, verdicts)

    def verdict(self) -> Verdict:
        """Return one Verdict for all draws."""
        # A draw is among them only if it ran, and a guard that does not hold raises.
        if self.guards_alone and self.seen_draws:
            return Verdict("undifferentiable", self.name, "returns no tensor: its guards hold")
        return make_verdict(self.name, self.backward, self.verdicts, self.details, self.powers, self.nonfinite)


def _make_tallies(capture: Capture) -> tuple[Tally, list[Tally]]:
    """Return a Tally, which collects the verdicts of all draws, for the whole Capture, and one for each of several
    linked Pairs. A Pair whose forward returns nothing is proved by its guards alone; the whole returns something."""
    whole = Tally(capture.name, any(pair.backward is not None for pair in capture.pairs))
    pairs = capture.pairs if len(capture.pairs) > 1 else ()
    named = [(f"{capture.name} {pair.name}", pair) for pair in pairs]
    return whole, [
        Tally(name, pair.backward is not None, guards_alone=not pair.forward.outputs) for name, pair in named
    ]


def prove(capture: Capture, draws: tuple[str, ...]) -> list[Verdict]:
    """Return a Verdict for each of several linked Pairs, and at the end one for the whole Capture: `failed`, if the
    Capture does not run (BackprintError)."""
    whole, parts = _make_tallies(capture)
    keep_worst(whole.verdicts, draw="", verdicts=capture.origin.not_bitwise)  # what differed in the proof at capture
    whole.details += left_out_of(capture.notes)
    base: Base | None = None  # the run on the recipes' inputs, from which power is measured
    try:
        for candidates in draws_of(capture, draws):
            draw, attempted = _first_attempt(capture, candidates, whole.details)
            if attempted is None:  # the inputs prove nothing; the reasons are in `details`
                continue
            if draw.name == "recipe":
                base = base_of(draw, attempted.replayed)
            # NaN and Inf are looked for once, on the inputs that every proof has.
            if draw.name == ("captured" if capture.origin.alive else "recipe"):
                whole.nonfinite = nonfinite_text(capture, draw, attempted.replayed)
            whole.note(draw.name, attempted.verdicts)
            for index, tally in enumerate(parts):
                pair_run = attempted.replayed.parts[index]
                tally.note(draw.name, part_verdicts(capture, index, pair_run, draw.name, tally.details))
            del draw, attempted  # all inputs and all results, which may be gigabytes
        if "resized" in draws and capture.recipes.complete:
            keep_worst(whole.verdicts, "resized", resize(capture, whole.details))
        if "fresh" in draws and base is not None:
            power = power_of(capture, "quick", base=base)
            whole.details += [*why_without_power(power), *why_unchecked(unchecked_inputs(capture, base.values))]
            whole.details += [guard.text for guard in compared_alone(capture)]
            # On no other inputs was anything compared, so no power is reported.
            if _not_redrawn(capture, draws, whole):
                return [replace(tally.verdict(), power=None) for tally in (*parts, whole)]
            # One Pair alone has no power of its own: it would be the whole Capture's.
            for tally, most in zip((whole, *parts), (power.most, *power.parts), strict=False):
                tally.powers = dict(most)
    except BackprintError as error:
        failed = Verdict("failed", capture.name, f"{type(error).__name__}: {error}")
        return [*(Verdict("unproven", tally.name, "the whole failed") for tally in parts), failed]
    return [tally.verdict() for tally in (*parts, whole)]


def _not_redrawn(capture: Capture, draws: tuple[str, ...], whole: Tally) -> bool:
    """Whether the program could be compared on other inputs, and was not, as it ran on none of them: then a power would
    say that a check sees what no check has seen."""
    could_run = capture.origin.alive and not capture.origin.partial and capture.recipes.complete
    return could_run and "fresh" in draws and "fresh" not in whole.seen_draws


def keep_worst(worst_by_port: dict[PortKey, PortVerdict], draw: str, verdicts: Sequence[PortVerdict]) -> None:
    """Add the verdicts of the draw of this name to `worst_by_port`, in which a port keeps its worst verdict."""
    for verdict in verdicts:
        key = verdict.key
        # Each detail names the draw that it is about, because a port keeps one of several.
        if verdict.detail and draw:
            verdict = replace(verdict, detail=f"{draw} inputs: {verdict.detail}")
        if (
            key not in worst_by_port
            or worst([worst_by_port[key].verdict, verdict.verdict]) != worst_by_port[key].verdict
        ):
            worst_by_port[key] = verdict


def make_verdict(
    name: str,
    backward: bool,
    verdicts: Mapping[PortKey, PortVerdict],
    details: list[str],
    powers: Mapping[str, float],
    nonfinite: str = "",
) -> Verdict:
    """Return one Verdict, called `name`, for the verdicts of all ports and their powers, by the ports' keys as text.
    `backward` says whether there is a backward: without one, what is proved is `undifferentiable`. `nonfinite` says
    where NaN and Inf come from."""
    ports = tuple(with_power(port, powers) for port in verdicts.values())
    verdict = worst([port.verdict for port in ports])
    measured = [(str(port.key), port.power) for port in ports if port.power is not None]
    if not backward and verdict in PROVED:
        details = ["no output requires grad; the forward is " + verdict, *details]
        verdict = "undifferentiable"
    worst_ports = [str(port) for port in ports if port.verdict == verdict and port.detail]
    detail = "; ".join([*worst_ports[:3], *(["…"] if len(worst_ports) > 3 else []), *dict.fromkeys(details)])
    if not ports and not detail:
        detail = "nothing was compared"
    vacuous = unmoved_ports(measured)
    return Verdict(verdict, name, detail, ports, least_power(measured), vacuous, nonfinite=nonfinite)


def base_of(draw: Draw, replayed: Replayed) -> Base:
    """Return a run on a draw of the recipes as the Base that redraws are compared with, to measure power."""
    parts = tuple(part.results for part in replayed.parts)
    return Base(with_tangents(draw.values, draw.tangents or {}), replayed.results, parts)


def _first_attempt(capture: Capture, candidates: Iterable[Draw], details: list[str]) -> tuple[Draw, _Attempt | None]:
    """Return the first of several draws that the program runs on, with its Attempt; if none, the last draw and None.
    The reasons of the draw that is returned are added to `details`. There is at least one candidate."""
    for draw in candidates:
        reasons: list[str] = []
        if (attempted := attempt(capture, draw, reasons)) is not None:
            break
    details += reasons
    return draw, attempted


def resize(capture: Capture, details: list[str]) -> list[PortVerdict]:
    """Return the verdicts of a Capture at the first other sizes that the program runs on; if there are none, add the
    reasons to `details`."""
    reasons: list[str] = []
    for other in draws_at_other_sizes(capture):
        if (attempted := attempt(capture, other, reasons)) is not None:
            return attempted.verdicts
    details += reasons
    return []


def attempt(capture: Capture, draw: Draw, details: list[str]) -> _Attempt | None:
    """Run a Capture on one draw, compare the results, and return the Attempt. None if the inputs prove nothing, because
    they break a guard or the program raises too; then the reasons are in `details`. On inputs that the program is known
    to take, an error comes through."""
    try:
        checked = checked_run(capture, draw)
    except GuardError as error:
        # The program ran on these inputs, so the guards must hold.
        if draw.name in ("captured", SECOND) or (draw.name == "recipe" and capture.witness is not None):
            raise
        details.append(f"{draw.name} inputs break a guard ({error})")
        return None
    except ReplayError as error:
        # The program would run into the same device-side assertion, after which nothing runs on that GPU.
        asserts = isinstance(error.__cause__, DeviceAssertError)
        if draw.name == "captured" or not (asserts or program_fails(capture, draw)):
            raise
        details.append(f"the program itself does not run on {draw.name} inputs ({str(error)[:160]})")
        return None
    verdicts = compare_draw(capture, draw, checked.replayed.results, details)
    return _Attempt(checked.replayed, [*verdicts, *checked.contradictions])


def compare_draw(capture: Capture, draw: Draw, results: Results, details: list[str]) -> list[PortVerdict]:
    """Compare the results on one draw with the best reference that there is: the live program, else the digests that
    the sample keeps, else autograd of the forward. A sample keeps digests for two draws; there are no verdicts on
    another one."""
    if capture.origin.alive:
        witness = PROGRAM if draw.name == "captured" else REDRAWN
        return with_witness(compare_with_program(capture, draw, results, details), witness)
    if draw.name in ("recipe", SECOND) and capture.witness is not None:
        return with_witness(compare_with_kept(capture, draw, results), DIGESTS)
    if capture.witness is None:
        return compare_with_autograd(capture, draw, results, details)
    return []


class CheckedRun(NamedTuple):
    """A run of a Capture, a `wrong` verdict for each place where the Capture contradicts itself or the values of the
    run, and what the run noted about annotations; None if they were not compared."""

    replayed: Replayed
    contradictions: tuple[PortVerdict, ...]
    notes: Notes | None


def checked_run(capture: Capture, draw: Draw) -> CheckedRun:
    """Run a Capture on a draw, under the draw's seed; its contradictions are those between its parts (graphs, claims of
    `capture.json`), and in a sample those of its annotations. A Capture of this process is checked for them only on the
    draws that every proof has; a sample always."""
    seed_torch(draw.seed)
    if capture.origin.traced_here and draw.name not in ("captured", "recipe"):
        return CheckedRun(replay_values(capture, draw.values, draw.tangents), contradictions=(), notes=None)
    # At other sizes, constant sizes of annotations are not compared (`numbers`).
    notes = notes_in(dict(capture.environment), numbers=draw.name != "resized")
    replayed = replay_values(capture, draw.values, draw.tangents, RunOptions(annotations=notes))
    # Tracing infers annotations, and `save` corrects them. In a sample they are claims that must be true.
    rows = [*contradictions(capture), *(() if capture.origin.traced_here else notes.contradictions())]
    return CheckedRun(
        replayed,
        tuple(
            PortVerdict(contradiction.name, contradiction.role, "wrong", contradiction.text) for contradiction in rows
        ),
        notes,
    )
