"""Proofs: a Capture's own results against the original program's, on the captured inputs, the recipe's, and fresh ones.

The oracle is the program in eager. While it lives, it runs here; from disk, the witness kept at save (digests, norms
and leading values of its results on the recipe's inputs) stands for it. Autograd of the saved forward is a second
opinion, asked only where no opaque edge lies in the way.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from backprint import settings
from backprint.errors import BackprintError, GuardError, ReplayError
from backprint.graph.claims import lies
from backprint.graph.links import free_ports, held_exact, mutated, specs
from backprint.graph.nouns import OUT_ROLES, Capture, Pair, TensorSpec
from backprint.replay.annotations import Notes, checked
from backprint.replay.compare import (
    AUTOGRAD,
    DIGESTS,
    PROGRAM,
    REDRAWN,
    TOLERANCE,
    PortVerdict,
    Verdict,
    compare,
    worst,
)
from backprint.replay.linked import Played
from backprint.replay.power import Base, Power, Trial, other_values, power_of, unseen, with_power
from backprint.replay.resize import CHANGES, SMALLER, other_sizes, resized
from backprint.replay.run import AS_WRITTEN, key_of, trace_through
from backprint.replay.strides import laid_as, strides
from backprint.replay.whole import Replayed, replay_values
from backprint.sample.recipes import digest
from backprint.sample.redraws import disturbed
from backprint.tree import alias_groups, copy_values, join_sparse, ones_tangent, strided_parts

Row = dict[str, Any]
"""What a witness keeps of one port."""

DRAWS = ("captured", "recipe", "fresh", "resized")
FRESH = 0x5EED

FAKE = "fake: captured without values, so the program gave nothing to compare with"
"""Why no fake Capture is proven by itself."""


@dataclass(frozen=True, slots=True)
class Results:
    """Everything one step gives, by `role name`."""

    ports: dict[str, Tensor | None]


@dataclass(frozen=True, slots=True)
class Draw:
    """One set of inputs: what it is called, the values, the tangents, and the seed of the program's own draws.

    `anew` gives the program other tensors with these values, where they would go into its own.
    """

    name: str
    values: dict[str, Tensor]
    tangents: dict[str, Tensor] | None
    seed: int
    anew: bool = False


Outcome = tuple[Results, list[PortVerdict], tuple[Played, ...]]
"""What a run on one draw gave: the results, their verdicts, and the Pairs' runs."""


def verify(capture: Capture, draws: tuple[str, ...] = DRAWS) -> list[Verdict]:
    """A Verdict for each Pair: the worst of its ports over all inputs that could be tried."""
    unknown = set(draws) - set(DRAWS)
    if unknown:
        raise ReplayError(f"draws={sorted(unknown)} are none of {', '.join(DRAWS)}")
    if capture.fake:
        return [Verdict("unproven", capture.name, FAKE)]
    recorded = dict(capture.environment)
    with settings.ONE_AT_A_TIME, settings.quiet_random(), settings.restored(recorded), program_kept(capture):
        return [named_differences(verdict, recorded) for verdict in prove(capture, draws)]


def program_kept(capture: Capture) -> Any:
    """Everything that the program reaches is put back at the end, once for all its runs."""
    kept = getattr(capture.origin, "kept", None)
    return kept() if callable(kept) else contextlib.nullcontext()  # of a recorded step it is the values it took


def named_differences(verdict: Verdict, recorded: Mapping[str, str]) -> Verdict:
    """A Verdict that is not bitwise, with what is other now than at capture."""
    if verdict.verdict in ("bitwise", "undifferentiable") or not (other := settings.settings_differences(recorded)):
        return verdict
    return replace(verdict, detail="; ".join(filter(None, (verdict.detail, *other))))


@dataclass(slots=True)
class Tally:
    """What the draws so far showed of a whole Capture, or of one of its linked Pairs."""

    name: str
    backward: bool
    guards_alone: bool = False
    found: dict[str, PortVerdict] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    seen: dict[str, Results] = field(default_factory=dict)
    powers: Mapping[str, float] = field(default_factory=dict)

    def note(self, draw: str, results: Results, verdicts: list[PortVerdict]) -> None:
        """One draw's verdicts: of each port the worst counts."""
        self.seen[draw] = results
        keep_worst(self.found, draw, verdicts)

    def verdict(self) -> Verdict:
        """The Verdict."""
        if self.guards_alone and self.seen:
            return Verdict("undifferentiable", self.name, "gives no tensor: its guards hold")
        return summed_up(self.name, self.backward, self.found, self.said, self.powers)


def tallies(capture: Capture) -> tuple[Tally, list[Tally]]:
    """A Tally for the whole, and one for each Pair where links join several."""
    whole = Tally(capture.name, any(pair.backward is not None for pair in capture.pairs))
    pairs = capture.pairs if len(capture.pairs) > 1 else ()
    named = [(f"{capture.name} {pair.name}", pair) for pair in pairs]
    return whole, [Tally(name, pair.backward is not None, not pair.forward.outputs) for name, pair in named]


def prove(capture: Capture, draws: tuple[str, ...]) -> list[Verdict]:
    """A Verdict for each Pair where links join several, and the whole's last."""
    whole, parts = tallies(capture)
    keep_worst(whole.found, "", seen_at_capture(capture))
    base: Base | None = None
    try:
        for tries in inputs(capture, draws):
            draw, outcome = first(capture, tries, whole.said)
            if outcome is None:
                continue
            if draw.name == "recipe":
                base = base_of(draw, outcome[0], outcome[2])
            whole.note(draw.name, *outcome[:2])
            for index, tally in enumerate(parts):
                tally.note(draw.name, *part(capture, index, outcome[2][index], draw.name, tally.said))
        if "resized" in draws and capture.recipes is not None and not capture.recipes.missing:
            keep_worst(whole.found, "resized", resize(capture, drawn(capture, "fresh", FRESH), whole.said))
        if "fresh" in draws and base is not None:
            power = power_of(capture, "quick", base=base)
            whole.said += unseen(power)
            for tally, most in zip((whole, *parts), (power.most, *power.parts), strict=False):
                tally.powers = dict(most)
    except BackprintError as error:
        failed = Verdict("failed", capture.name, f"{type(error).__name__}: {error}")
        return [*(Verdict("unproven", tally.name, "the whole failed") for tally in parts), failed]
    return [tally.verdict() for tally in (*parts, whole)]


def keep_worst(found: dict[str, PortVerdict], draw: str, verdicts: Sequence[PortVerdict]) -> None:
    """Add the verdicts of one draw: a port keeps its worst."""
    for verdict in verdicts:
        key = f"{verdict.role} {verdict.name}"
        verdict = replace(
            verdict, detail=f"{draw} inputs: {verdict.detail}" if verdict.detail and draw else verdict.detail
        )
        if key not in found or worst([found[key].verdict, verdict.verdict]) != found[key].verdict:
            found[key] = verdict


def summed_up(
    name: str, backward: bool, found: Mapping[str, PortVerdict], said: list[str], powers: Mapping[str, float]
) -> Verdict:
    """One Verdict from those of the ports, and their powers."""
    ports = tuple(with_power(port, powers) for port in found.values())
    verdict = worst([port.verdict for port in ports])
    moved = [port.power for port in ports if port.power is not None]
    still = tuple(f"{port.role} {port.name}" for port in ports if port.power is not None and port.power < 1)
    if not backward and verdict in ("bitwise", "close"):
        said = ["no output asks for a gradient; the forward is " + verdict, *said]
        verdict = "undifferentiable"
    bad = [f"{port.role} {port.name}: {port.detail}" for port in ports if port.verdict == verdict and port.detail]
    detail = "; ".join([*bad[:3], *(["…"] if len(bad) > 3 else []), *dict.fromkeys(said)])
    if not ports and not detail:
        detail = "nothing was compared"
    return Verdict(verdict, name, detail, ports, min(moved, default=None), still)


def base_of(draw: Draw, results: Results, played: Sequence[Played]) -> Base:
    """A run on the recipe's inputs, that its power is measured from."""
    tangents = {f"tangent {name}": value for name, value in (draw.tangents or {}).items()}
    parts = (keyed(each.outputs, each.mutations, each.gradients or {}).ports for each in played)
    return Base({**draw.values, **tangents}, results.ports, tuple(parts))


def good(port: PortVerdict) -> bool:
    """Whether a port is as its oracle says."""
    return port.verdict in ("bitwise", "close")


# ------------------------------------------------------------------ inputs to try


def inputs(capture: Capture, draws: tuple[str, ...]) -> Iterator[tuple[Draw, ...]]:
    """The inputs that a Capture can be tried on; of several the first that the program runs on counts."""
    alive = capture.origin is not None and capture.origin.alive
    if "captured" in draws and alive:
        yield (Draw("captured", capture.origin.values(), None, capture.seed),)
    if capture.recipes is None or capture.recipes.missing:
        return
    if "recipe" in draws:
        yield (drawn(capture, "recipe", None),)
    recorded = getattr(capture.origin, "partial", False)  # it cannot run on other inputs
    if "fresh" in draws and not recorded and (alive or capture.witness is None):
        yield otherwise(capture), drawn(capture, "fresh", FRESH)


def first(capture: Capture, tries: Sequence[Draw], said: list[str]) -> tuple[Draw, Outcome | None]:
    """The first of several draws that the program runs on, and what came of it; of the last, why it does not."""
    for draw in tries:
        why: list[str] = []
        if (outcome := one(capture, draw, why)) is not None:
            break
    said += why
    return draw, outcome


def otherwise(capture: Capture) -> Draw:
    """Other inputs than the recipes make, be these drawn or kept: parameters, buffers and tangents among them."""
    made = capture.recipes.make()
    values = made | other_values(capture, made, FRESH)
    tangents = {key.removeprefix("tangent "): values.pop(key) for key in list(values) if key.startswith("tangent ")}
    return Draw(
        "fresh", values | {right: values[left] for left, right in capture.signature.same}, tangents, capture.seed
    )


def drawn(capture: Capture, name: str, seed: int | None) -> Draw:
    """A draw of the recipes: as they are, or fresh."""
    values = capture.recipes.make(seed)
    tangents = {key.removeprefix("tangent "): values.pop(key) for key in list(values) if key.startswith("tangent ")}
    values |= {right: values[left] for left, right in capture.signature.same}
    return Draw(name, values, tangents, capture.seed)


def stretched(capture: Capture, draw: Draw) -> Iterator[Draw]:
    """A draw at other sizes than the captured ones, larger and smaller, where inputs can have any."""
    if capture.pairs[0].forward.symbols:
        for changes in (CHANGES, SMALLER):
            if (sizes := other_sizes(capture, changes)) is not None:
                values, tangents = resized(capture, draw.values, draw.tangents, sizes)
                yield replace(draw, name="resized", values=values, tangents=tangents)


def resize(capture: Capture, draw: Draw, said: list[str]) -> list[PortVerdict]:
    """The verdicts at the first other sizes that the program runs on; none where there are none, and why in `said`."""
    why: list[str] = []
    for other in stretched(capture, draw):
        if (outcome := one(capture, other, why)) is not None:
            return outcome[1]
    said += why
    return []


def redrawn(capture: Capture, draw: Draw) -> Draw:
    """A draw with fresh program inputs and tangents; parameters and buffers, the bulk of the numbers, stay."""
    names = {port.name for port in free_ports(capture) if port.role == "input"} | {
        f"tangent {name}" for name in capture.signature.differentiable
    }
    values = capture.recipes.make(FRESH, names)
    tangents = {key.removeprefix("tangent "): values.pop(key) for key in list(values) if key.startswith("tangent ")}
    values |= {right: values[left] for left, right in capture.signature.same if left in values}
    return Draw("fresh", draw.values | values, tangents, draw.seed)


# ------------------------------------------------------------------ one set of inputs


def one(capture: Capture, draw: Draw, said: list[str]) -> Outcome | None:
    """The results on one set of inputs, their verdicts, and the Pairs' runs; None where these prove nothing."""
    try:
        got = replayed(capture, draw)
    except GuardError as error:
        if draw.name == "captured" or (draw.name == "recipe" and capture.witness is not None):
            raise
        said.append(f"{draw.name} inputs break a guard ({error})")
        return None
    except ReplayError as error:
        if draw.name == "captured" or not program_fails(capture, draw):
            raise
        said.append(f"the program itself does not run on {draw.name} inputs ({str(error)[:160]})")
        return None
    results = keyed(got.named, got.mutations, got.gradients)
    if capture.origin is not None and capture.origin.alive:
        witness = PROGRAM if draw.name == "captured" else REDRAWN
        return results, [*witnessed(against_program(capture, draw, results, said), witness), *got.lies], got.parts
    if draw.name == "recipe" and capture.witness is not None:
        return results, [*witnessed(against_witness(capture, results), DIGESTS), *got.lies], got.parts
    if draw.name == "recipe" or capture.witness is None:
        return results, [*against_autograd(capture, draw, results, said), *got.lies], got.parts
    return results, list(got.lies), got.parts


def witnessed(verdicts: Sequence[PortVerdict], witness: str) -> list[PortVerdict]:
    """The verdicts of ports that were compared with this witness."""
    return [replace(port, witness=witness) for port in verdicts]


def program_fails(capture: Capture, draw: Draw) -> bool:
    """Whether the original program raises on these inputs too; without the program, whether they are a fresh draw."""
    if capture.origin is None or not capture.origin.alive:
        return draw.name == "fresh"
    try:
        eager(capture, draw)
    except Exception:  # whatever the program raises, it raises: the inputs prove nothing
        return True
    return False


def replayed(capture: Capture, draw: Draw) -> Replayed:
    """The Capture's own results, and on the draws that every proof has, where it contradicts itself."""
    torch.manual_seed(draw.seed)
    asked = capture.origin is None or draw.name in ("captured", "recipe")
    notes = None
    with contextlib.ExitStack() as stack:
        if asked:
            notes = stack.enter_context(checked(dict(capture.environment), draw.name != "resized"))
        got = replay_values(capture, draw.values, draw.tangents)
    found = list(lies(capture)) if asked else []
    if notes is not None and capture.origin is None:  # what tracing noted of values is put right when it is saved
        found += notes.lies()
    told = tuple(PortVerdict(lie.name, lie.role, "wrong", lie.text) for lie in found)
    return replace(got, lies=told, notes=notes)


def eager(capture: Capture, draw: Draw) -> Results:
    """The original program's results. What the graph writes and the program left alone stands as it was given."""
    torch.manual_seed(draw.seed)
    outcome = capture.origin.step(draw.values, draw.tangents, **({"anew": True} if draw.anew else {}))
    written = {name: draw.values[name] for name in mutated(capture) if name in draw.values}
    return keyed(outcome.outputs, written | outcome.mutations, outcome.gradients)


def keyed(outputs: Mapping[str, Any], mutations: Mapping[str, Any], gradients: Mapping[str, Any]) -> Results:
    """Results by `role name`."""
    named = {f"output {name}": value for name, value in outputs.items()}
    named |= {f"mutation {name}": value for name, value in mutations.items()}
    return Results(named | {f"gradient {name}": value for name, value in gradients.items()})


def against_program(capture: Capture, draw: Draw, results: Results, said: list[str]) -> list[PortVerdict]:
    """Every port against the original program, run now."""
    try:
        wanted = eager(capture, draw)
    except Exception as error:  # the user's program may raise anything on redrawn inputs
        if draw.name == "captured":
            raise ReplayError(
                f"the original program failed on its captured inputs: {type(error).__name__}: {error}"
            ) from error
        said.append(
            f"the program itself does not run on {draw.name} inputs ({type(error).__name__}: {str(error)[:160]})"
        )
        return []
    verdicts = against(known(capture.origin, results, wanted), wanted)
    if all(port.verdict == "bitwise" for port in verdicts):
        return verdicts
    again = eager(capture, draw)
    return [unsteady(port, wanted, again) for port in verdicts]


def unsteady(port: PortVerdict, wanted: Results, again: Results) -> PortVerdict:
    """A port that the program itself does not repeat is unproven, not wrong."""
    key = f"{port.role} {port.name}"
    left, right = wanted.ports.get(key), again.ports.get(key)
    if port.verdict == "bitwise" or left is None or right is None or compare("", "", left, right).verdict == "bitwise":
        return port
    if port.verdict == "close":
        return port
    return replace(port, verdict="unproven", detail="the program does not give the same twice under one seed")


def against(results: Results, wanted: Results) -> list[PortVerdict]:
    """Each port that either side has."""
    return [
        compare(key.partition(" ")[2], key.partition(" ")[0], results.ports.get(key), wanted.ports.get(key))
        for key in dict.fromkeys([*results.ports, *wanted.ports])
    ]


def against_autograd(capture: Capture, draw: Draw, results: Results, said: list[str]) -> list[PortVerdict]:
    """The second opinion: gradients against autograd of the saved forward. Outputs have no oracle left."""
    if capture.links:
        said.append("no oracle: the program is gone, and each pair is checked alone")
        return no_oracle(results)
    if capture.opaque:
        edge = capture.opaque[0]
        said.append(
            f"no oracle: the program is gone, and autograd of its forward would not see {edge.text} ({edge.kind})"
        )
        return no_oracle(results)
    pair = capture.pairs[0]
    said.append("the program is gone: checked against autograd of the saved forward alone")
    torch.manual_seed(draw.seed)
    same = {right: left for left, right in capture.signature.same}
    return by_autograd(pair, capture.signature.differentiable, same, draw.values, draw.tangents, results, said)


def by_autograd(
    pair: Pair,
    differentiable: Sequence[str],
    same: Mapping[str, str],
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor] | None,
    results: Results,
    said: list[str],
) -> list[PortVerdict]:
    """The gradients as autograd of the saved forward says; nothing is compared where it cannot differentiate that."""
    try:
        wanted = second_opinion(pair, differentiable, same, values, tangents)
    except RuntimeError as error:  # also of a kernel in autograd's own backward
        said.append(f"no oracle: autograd of the forward of {pair.name} fails ({str(error)[:160]})")
        return no_oracle(results)
    return gradients_alone(against(results, wanted))


def gradients_alone(verdicts: Sequence[PortVerdict]) -> list[PortVerdict]:
    """Gradients as autograd of the forward says; what the forward itself gives was compared with nothing."""
    return [
        replace(port, witness=AUTOGRAD)
        if port.role == "gradient"
        else PortVerdict(port.name, port.role, "unproven", "compared with nothing: the program is gone")
        for port in verdicts
    ]


def no_oracle(results: Results) -> list[PortVerdict]:
    """Every port, with nothing to compare it with."""
    split = [key.partition(" ") for key in results.ports]
    return [PortVerdict(name, role, "unproven", "no oracle") for role, _, name in split]


def second_opinion(
    pair: Pair,
    differentiable: Sequence[str],
    same: Mapping[str, str],
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor] | None,
) -> Results:
    """Autograd of the saved forward on these inputs."""
    asking = {port.name for port in pair.backward.outputs} if pair.backward is not None else set()
    leaves = {
        name: tensor.detach().clone().requires_grad_(name in asking and name not in same)
        for name, tensor in values.items()
    }
    with torch.enable_grad(), AS_WRITTEN():
        results = dict(zip(map(key_of, pair.forward.outputs), trace_through(pair.forward, leaves), strict=True))
    outputs = {name: results[f"output {name}"] for name in differentiable}
    given = [ones_tangent(o) if tangents is None else tangents[n] for n, o in outputs.items()]
    wanted = [name for name in leaves if leaves[name].requires_grad]
    with AS_WRITTEN():
        gradients = (
            torch.autograd.grad(list(outputs.values()), [leaves[name] for name in wanted], given, allow_unused=True)
            if wanted
            else ()
        )
    named = dict(zip(wanted, gradients, strict=True))
    named |= {right: named[left] for right, left in same.items() if left in named}
    plain = {key.partition(" ")[2]: value.detach() for key, value in results.items() if key.startswith("output ")}
    return keyed(plain, {}, named)


# ------------------------------------------------------------------ what an engine made, held against the program


@dataclass(frozen=True, slots=True)
class Proof:
    """How a Capture compared with the program when it was made: of each port the worst, over what it was tried on.

    `captured` says what differs on the captured values, `redrawn` what differs on others, '' where nothing does;
    `pins` are the inputs that were other than captured then, with the digests of the captured values; all of them where
    the program draws from generators of its own, which are `drawn`: a sample cannot hold their states.
    `identity` says what the program itself gives otherwise with other tensors of the same values.
    """

    ports: tuple[PortVerdict, ...]
    captured: str = ""
    redrawn: str = ""
    pins: tuple[tuple[str, str], ...] = ()
    drawn: str = ""
    identity: str = ""


def seen_at_capture(capture: Capture) -> tuple[PortVerdict, ...]:
    """The ports that were not bitwise when the Capture was made: no later verdict may be better."""
    proof = getattr(capture.origin, "proof", None)
    return () if proof is None else tuple(port for port in proof.ports if port.verdict != "bitwise")


LIGHT = 2**20
"""Up to how many numbers among a Capture's values it is tried under another seed, and with signs turned, apart."""


def held_against_program(capture: Capture) -> Proof:
    """A Capture against the untouched program: on the captured values, and again with other inputs and another seed."""
    found: dict[str, PortVerdict] = {}
    values = capture.origin.values()
    with settings.quiet_random():
        captured = tried(capture, Draw("captured", values, random_tangents(capture, 1), capture.seed), found)
        if captured and reads_tangents(capture):  # then with those that the backward was recorded with
            captured = tried(capture, Draw("captured", values, None, capture.seed), found)
        captured = captured or capture.origin.differs()
        if captured:
            return Proof(tuple(found.values()), captured, identity=by_identity(capture, values))
        if capture.origin.unheld:
            return Proof(tuple(found.values()), "", capture.origin.unheld[0], every_input(capture, values))
        light = sum(value.numel() for value in values.values()) <= LIGHT
        if light and capture.origin.aliased and (identity := by_identity(capture, values)):
            return Proof(tuple(found.values()), identity=identity)
        others = list(redraws(capture, values, light))
        reseeded = Draw("reseeded", values, None, capture.seed + 1, anew=True)
        unseen = tried(capture, reseeded, {}) if light or not others else ""
        for name, moved in others if not unseen else ():
            draw = Draw(name, {**values, **moved}, random_tangents(capture, 2), capture.seed + 1)
            if redrawn := tried(capture, draw, found if name == "redrawn" else {}):
                if identity := by_identity(capture, values):
                    return Proof(tuple(found.values()), identity=identity)
                if not light and (unseen := tried(capture, reseeded, {})):
                    break
                redrawn = f"the program reads them as nothing here sees: on others, {redrawn}"
                pins = tuple((each, digest(values[each])) for each in to_blame(capture, values, draw, moved))
                return Proof(tuple(found.values()), "", redrawn, pins)
        if unseen:
            unseen = f"under another seed, {unseen}: random numbers are drawn unseen"
            return Proof(tuple(found.values()), unseen, identity=by_identity(capture, values))
    drawn = capture.origin.drawn_from()
    return Proof(tuple(found.values()), pins=every_input(capture, values) if drawn else (), drawn=drawn)


def by_identity(capture: Capture, values: Mapping[str, Tensor]) -> str:
    """What the program gives otherwise where it gets other tensors with the captured values; '' where nothing."""
    own, other, again = (program_alone(capture, values, anew) for anew in (False, True, False))
    if own is None or other is None or again is None:
        return ""
    verdicts = [unsteady(port, own, again) for port in against(other, own)]
    bad = [port for port in verdicts if port.verdict in ("wrong", "failed")]
    return "; ".join(f"{port.role} {port.name}: {port.detail}" for port in bad[:2])


def program_alone(capture: Capture, values: Mapping[str, Tensor], anew: bool) -> Results | None:
    """What the program gives in its own tensors with these values, or in other ones; None where it raises."""
    torch.manual_seed(capture.seed)
    try:
        outcome = capture.origin.step_alone(values, anew)
    except Exception:  # whatever the program raises, there is nothing to compare
        return None
    return keyed(outcome.outputs, outcome.mutations, outcome.gradients)


def every_input(capture: Capture, values: Mapping[str, Tensor]) -> tuple[tuple[str, str], ...]:
    """The program's inputs and constants, with the digests of their values."""
    names = [port.name for port in free_ports(capture) if port.role in ("input", "constant")]
    return tuple((name, digest(values[name])) for name in names if name in values)


def reads_tangents(capture: Capture) -> bool:
    """Whether a guard depends on a tangent."""
    return any(name.startswith("tangent ") for guard in capture.guards for name in guard.inputs)


MOST_BLAMED = 16
"""Up to how many inputs are redrawn alone, to find which of them the program reads."""


def to_blame(capture: Capture, values: Mapping[str, Tensor], draw: Draw, moved: Mapping[str, Tensor]) -> list[str]:
    """The inputs on which alone a Capture and the program differ; all that were moved where none does so alone."""
    if len(moved) > MOST_BLAMED:
        return list(moved)
    groups = {name: set(group) for group in alias_groups(dict(moved)) for name in group}
    alone = []
    for name in moved:
        one_moved = {each: moved[each] for each in groups.get(name, {name})}
        if tried(capture, replace(draw, values={**values, **one_moved}), {}):
            alone.append(name)
    return alone or list(moved)


def tried(capture: Capture, draw: Draw, found: dict[str, PortVerdict]) -> str:
    """One draw, its verdicts into `found`; what differs there, '' where nothing does.

    On other inputs than the captured, a Capture may refuse to run: what raises is not silently wrong.
    """
    try:
        outcome = one(capture, draw, [])
    except ReplayError as error:
        if draw.name != "captured":
            return ""
        if error.__cause__ is not None and "the original program failed" in str(error):
            raise error.__cause__ from None
        return str(error)[:300]
    if outcome is None:
        return ""
    keep_worst(found, draw.name, outcome[1])
    bad = [port for port in outcome[1] if port.verdict in ("wrong", "failed")]
    return "; ".join(f"{port.role} {port.name}: {port.detail}" for port in bad[:2])


def random_tangents(capture: Capture, seed: int) -> dict[str, Tensor] | None:
    """Normals for every differentiable output, in its memory order, as far as its spec says what they are."""
    source = torch.Generator().manual_seed(seed)
    known = specs(capture)
    found = {}
    for name in capture.signature.differentiable:
        spec = known.get(name)
        if not isinstance(spec, TensorSpec) or spec.layout != "strided" or any(type(n) is not int for n in spec.shape):
            return None
        dtype = getattr(torch, spec.dtype)
        shape = tuple(int(size) for size in spec.shape)
        part = torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32
        drawn = torch.randn(shape, dtype=part, generator=source)
        found[name] = laid_as(drawn.to(dtype).to(spec.device), strides(spec, drawn, {}) or drawn.stride())
    return found


def redraws(capture: Capture, values: Mapping[str, Tensor], light: bool) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Other values for the program's inputs: of the same kind, and with their signs turned."""
    held = held_exact(capture)
    same = {right for _, right in capture.signature.same}
    names = [port.name for port in free_ports(capture) if port.role == "input" and port.name not in same]
    own = {name: values[name] for name in names if name in values}
    free = {name: tensor for name, tensor in own.items() if name not in held}
    if not free:
        return
    yield "redrawn", joined_again(own, free, disturbed)
    floats = {name: tensor for name, tensor in free.items() if tensor.is_floating_point() or tensor.is_complex()}
    if len(floats) < len(free) and floats:
        yield "redrawn", joined_again(own, floats, disturbed)
    if light and floats:
        yield "turned", joined_again(own, floats, lambda tensor, seed: -2 * tensor)


def joined_again(
    own: Mapping[str, Tensor], free: Mapping[str, Tensor], change: Callable[[Tensor, int], Tensor | None]
) -> dict[str, Tensor]:
    """These tensors changed, in copies that share memory as they do; those of no plain layout stay."""
    copies = copy_values(own)
    groups = {name: group for group in alias_groups(dict(own)) for name in group}
    done: set[str] = set()
    for seed, (name, tensor) in enumerate(free.items()):
        group = groups.get(name, (name,))
        if name in done or not set(group) <= set(free) or tensor.layout is not torch.strided or tensor.is_conj():
            continue
        widest = max(group, key=lambda each: copies[each].numel())
        fresh = change(own[widest].detach(), seed)
        done |= set(group)
        if fresh is not None and 0 not in copies[widest].stride():
            copies[widest].copy_(fresh)
    return {name: copies[name] for name in free if name in done}


# ------------------------------------------------------------------ one Pair of several


def part(capture: Capture, index: int, played: Played, draw: str, said: list[str]) -> tuple[Results, list[PortVerdict]]:
    """One Pair's own results on the values it got, and their verdicts."""
    results = keyed(played.outputs, played.mutations, played.gradients or {})
    alive = capture.origin is not None and capture.origin.alive
    if alive and capture.origin.parts:
        return results, witnessed(part_against_program(capture, index, played, results), PROGRAM)
    rows = part_rows(capture, index)
    if rows and draw == "recipe":
        spoken = {key: value for key, value in results.ports.items() if key in rows}
        return results, witnessed(against_rows(rows, Results(spoken)), DIGESTS)
    if rows:
        return results, []
    pair = capture.pairs[index]
    if capture.opaque or pair.backward is None:
        said.append("no oracle: the program is gone, and autograd of this pair's forward alone would not do")
        return results, [
            PortVerdict(key.partition(" ")[2], key.partition(" ")[0], "unproven", "no oracle") for key in results.ports
        ]
    said.append("the program is gone: checked against autograd of the saved forward alone")
    with quiet_generator(played.random):
        same = {right: left for left, right in capture.signature.same if left in played.values}
        told = by_autograd(pair, tuple(played.tangents), same, played.values, played.tangents, results, said)
    return results, told


def known(oracle: Any, results: Results, wanted: Results) -> Results:
    """The results that an oracle speaks of: a recorded step's kept only some of what it gave."""
    if not getattr(oracle, "partial", False):
        return results
    return Results({key: value for key, value in results.ports.items() if key in wanted.ports})


def part_against_program(capture: Capture, index: int, played: Played, results: Results) -> list[PortVerdict]:
    """One Pair against the program that it was traced from, run now."""
    wanted = part_eager(capture, index, played)
    verdicts = against(known(capture.origin.parts[index], results, wanted), wanted)
    if all(port.verdict == "bitwise" for port in verdicts):
        return verdicts
    again = part_eager(capture, index, played)
    return [unsteady(port, wanted, again) for port in verdicts]


def part_eager(capture: Capture, index: int, played: Played) -> Results:
    """Eager autograd of the program behind one Pair, on the values that the Pair got."""
    with quiet_generator(played.random):
        try:
            outcome = capture.origin.parts[index].step(played.values, played.tangents)
        except BackprintError:
            raise
        except Exception as error:  # whatever the graph raises on these inputs, its Pair did not
            name = capture.pairs[index].name
            raise ReplayError(f"the program behind {name} failed: {type(error).__name__}: {error}") from error
    written = {name: played.values[name] for name in played.mutations if name in played.values}
    partial = getattr(capture.origin.parts[index], "partial", False)
    asked: dict[str, Tensor | None] = {} if partial else dict.fromkeys(played.gradients or {})
    return keyed(outcome.outputs, written | outcome.mutations, asked | outcome.gradients)


@contextlib.contextmanager
def quiet_generator(state: Tensor) -> Iterator[None]:
    """The random state that a Pair started from; and back afterwards."""
    before = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(before)


def part_rows(capture: Capture, index: int) -> dict[str, Row]:
    """What the witness keeps of one Pair."""
    head = f"{capture.pairs[index].name} "
    return {key.removeprefix(head): kept for key, kept in (capture.witness or {}).items() if key.startswith(head)}


# ------------------------------------------------------------------ what a sample keeps


@dataclass(frozen=True, slots=True)
class Attested:
    """What `save` keeps of a proof on the recipe's inputs, and for each Pair the values that stood on its ports."""

    witness: dict[str, Row] | None
    verdict: Verdict
    values: tuple[dict[str, Any], ...]
    power: Power
    notes: Notes | None = None


POWER_SECONDS, POWER_TRIALS = 20.0, 12
"""When enough inputs of a sample that is saved were drawn again alone: after so long, or so many."""


def attest(capture: Capture, power: str = "quick") -> Attested:
    """Prove a Capture on its recipe's inputs, and keep the original program's numbers for later.

    `power` says how much of it is measured: see `power_of`; `"none"` is nothing.
    """
    alive = capture.origin is not None and capture.origin.alive
    draw = drawn(capture, "recipe", None)
    again = redrawn(capture, draw)
    said: list[str] = []
    recorded = dict(capture.environment)
    kept = program_kept(capture)
    with settings.ONE_AT_A_TIME, settings.quiet_random(), settings.restored(recorded), kept:
        wanted = eager(capture, draw) if alive else None
        got = replayed(capture, draw)
        results = keyed(got.named, got.mutations, got.gradients)
        if wanted is not None:
            verdicts = witnessed(against(results, wanted), REDRAWN)
        elif capture.witness is not None:
            verdicts = witnessed(against_witness(capture, results), DIGESTS)
        else:
            verdicts = against_autograd(capture, draw, results, said)
        if wanted is not None and any(port.verdict != "bitwise" for port in verdicts):
            repeated = eager(capture, draw)
            verdicts = [unsteady(port, wanted, repeated) for port in verdicts]
        verdicts = [*verdicts, *got.lies]
        parts = part_witness(capture, got) if alive else {}
        found = {f"{port.role} {port.name}": port for port in verdicts}
        keep_worst(found, "", seen_at_capture(capture))
        if alive:
            keep_worst(found, "resized", resize(capture, again, said))
    backward = any(pair.backward is not None for pair in capture.pairs)
    seen = Power(())
    if power != "none":
        base = base_of(draw, results, got.parts)
        seen = power_of(capture, power, seconds=POWER_SECONDS, count=POWER_TRIALS, base=base)
    verdict = summed_up(capture.name, backward, found, [*said, *unseen(seen)], dict(seen.most))
    rows = (
        {key: row(value) for key, value in wanted.ports.items()} | parts
        if wanted is not None
        else dict(capture.witness or {}) or None
    )
    return Attested(rows, verdict, port_values(capture, got), seen, got.notes)


def part_witness(capture: Capture, got: Replayed) -> dict[str, Row]:
    """The numbers of each Pair's own program, on the values that the Pair got."""
    if capture.origin is None or not capture.origin.parts:
        return {}
    wanted = [part_eager(capture, index, played) for index, played in enumerate(got.parts)]
    named = zip(capture.pairs, wanted, strict=False)
    return {f"{pair.name} {key}": row(value) for pair, results in named for key, value in results.ports.items()}


def port_values(capture: Capture, got: Replayed) -> tuple[dict[str, Any], ...]:
    """For each Pair, the values on its inputs by `role name`."""
    found = []
    for pair, played in zip(capture.pairs, got.parts, strict=True):
        values = {f"{port.role} {port.name}": played.values[port.name] for port in pair.forward.inputs}
        values |= {f"constant {name}": value for name, value in played.values.items()}
        values |= {f"tangent {name}": value for name, value in played.tangents.items()}
        found.append(values | {f"saved {name}": value for name, value in played.saved.items()})
    return tuple(found)


def verdict_json(verdict: Verdict, power: Power | None = None) -> dict[str, Any]:
    """A Verdict as a sample keeps it, with its power where that was measured."""
    return {
        "verdict": verdict.verdict,
        "name": verdict.name,
        "detail": verdict.detail[:2000],
        "power": None if verdict.power is None else safe(verdict.power),
        "vacuous": list(verdict.vacuous),
        "ports": {f"{port.role} {port.name}": port.verdict for port in verdict.ports},
        **({"powers": power_json(power)} if power is not None else {}),
    }


def power_json(power: Power) -> dict[str, Any]:
    """A Power as a sample keeps it: of each thing drawn again, the port that moved least, or why it was not."""
    return {
        "tried": power.tried,
        "of": power.of,
        "redrawn": {trial.name: trial_json(trial) for trial in power.trials},
    }


def trial_json(trial: Trial) -> dict[str, Any]:
    """One row."""
    if trial.untried:
        return {"untried": trial.untried[:300]}
    if trial.weakest is None:
        return {"ports": 0}
    port, by = trial.weakest
    row = {"ports": len(trial.moved), "port": port, "least": safe(by), "most": safe(max(by for _, by in trial.moved))}
    row |= {"silent": list(trial.silent)} if trial.silent else {}
    return row | ({"hidden": True} if trial.hidden else {})


def row(value: Tensor | None) -> Row:
    """One port's digest, norm, largest value and leading values; of a sparse tensor, those of its values."""
    if value is None:
        return {"none": True}
    *places, kept = strided_parts(value.detach())
    kept = kept.resolve_conj().resolve_neg()
    flat = torch.view_as_real(kept).flatten() if kept.is_complex() else kept.flatten()
    real = flat if flat.dtype in (torch.float32, torch.float64) else flat.double()
    norm = float(torch.linalg.vector_norm(real))
    kept = canonical_nan(kept) if math.isnan(norm) else kept
    sparse: Row = {}
    if places:
        sparse = {"layout": str(value.layout)[6:], "values": list(kept.shape), "places": list(map(digest, places))}
    return {
        "digest": digest(join_sparse(value, [*places, kept]) if places else kept),
        "dtype": str(value.dtype)[6:],
        "shape": list(value.shape),
        **sparse,
        "norm": safe(norm),
        "max": safe(float(torch.linalg.vector_norm(real, math.inf))) if real.numel() else 0.0,
        "leading": [safe(float(x)) for x in real[:8].double()],
    }


def canonical_nan(value: Tensor) -> Tensor:
    """The tensor with every NaN the same NaN."""
    if not value.is_floating_point() or not torch.isnan(value).any():
        return value
    return torch.where(torch.isnan(value), torch.full_like(value, math.nan), value)


def safe(number: float) -> float | str:
    """A number that JSON can hold."""
    return number if math.isfinite(number) else str(number)


def against_witness(capture: Capture, results: Results) -> list[PortVerdict]:
    """Every port of the whole against the numbers kept of the original program's."""
    return against_rows(
        {key: row for key, row in capture.witness.items() if key.partition(" ")[0] in OUT_ROLES}, results
    )


def against_rows(rows: Mapping[str, Row], results: Results) -> list[PortVerdict]:
    """Every port against kept numbers."""
    verdicts = []
    for key in dict.fromkeys([*results.ports, *rows]):
        role, _, name = key.partition(" ")
        kept, value = rows.get(key), results.ports.get(key)
        verdicts.append(judge(name, role, value, kept))
    return verdicts


def judge(name: str, role: str, value: Tensor | None, kept: Row | None) -> PortVerdict:
    """One port against its witness row."""
    if kept is None or value is None or kept.get("none"):
        same = value is None and kept is not None and bool(kept.get("none"))
        return PortVerdict(name, role, "bitwise" if same else "wrong", "" if same else "only one side has it")
    now = row(value)
    if now["digest"] == kept["digest"]:
        return PortVerdict(name, role, "bitwise")
    if kind_of(now) != kind_of(kept):
        return PortVerdict(name, role, "wrong", f"{kind_of(now)} where the program gives {kind_of(kept)}")
    if now.get("places") != kept.get("places"):
        return PortVerdict(name, role, "wrong", "its values are in other places than the program's")
    error = max(apart(now["norm"], kept["norm"], kept["norm"]), apart(now["max"], kept["max"], kept["max"]))
    for left, right in zip(now["leading"], kept["leading"], strict=True):
        error = max(error, apart(left, right, kept["max"]))
    verdict = port_from_error(name, role, error, now["dtype"])
    return replace(verdict, detail=f"digest {now['digest']} is not {kept['digest']}; {verdict.detail}")


def kind_of(row: Row) -> str:
    """A row's dtype and shape; for a sparse tensor, its layout and the shape of its values."""
    sparse = f" {row['layout']} of {row['values']} values" if "layout" in row else ""
    return f"{row['dtype']}{row['shape']}{sparse}"


def apart(left: float | str, right: float | str, scale: float | str) -> float:
    """How far two kept numbers are from each other against a scale; infinite where one alone is NaN or infinite."""
    a, b, size = float(left), float(right), abs(float(scale))
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / max(size if math.isfinite(size) else abs(b), 1e-30)


def port_from_error(name: str, role: str, error: float, dtype: str) -> PortVerdict:
    """The verdict of a port whose distance from its oracle is known."""
    tolerance = TOLERANCE.get(dtype, 0.0)
    verdict = "close" if error <= tolerance else "wrong"
    return PortVerdict(name, role, verdict, f"relative error {error:.3g}, tolerance {tolerance:.3g}", error)
