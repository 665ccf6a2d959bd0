"""A part as a Capture of its own, with recipes for the values that it had in the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from backprint.graph.keys import with_tangents
from backprint.graph.nouns import Capture, Guard, OpaqueEdge, Pair, Signature, custom_operators
from backprint.graph.steps import behind, used
from backprint.parts.borders import Borders, tangent_name
from backprint.parts.flow import PartRun
from backprint.parts.forwards import ForwardPart
from backprint.parts.origin import PartOrigin
from backprint.parts.pieces import Piece
from backprint.replaying.draws import drawn
from backprint.sample.fit import exact_data, fit_all
from backprint.sample.inputs import Inputs, fit_inputs
from backprint.sample.recipes import derive


@dataclass(frozen=True, slots=True)
class PartOfWhole:
    """One part of one Pair of a Capture: where it was cut, and its values when the whole ran.

    `number` is the Pair's. With `exact`, the part's Capture keeps these values instead of recipes fitted to them.
    """

    whole: Capture
    number: int
    piece: Piece
    part: ForwardPart
    borders: Borders
    ran: PartRun
    exact: bool

    @property
    def pair(self) -> Pair:
        """The Pair that was cut."""
        return self.whole.pairs[self.number]

    @property
    def opaque(self) -> tuple[OpaqueEdge, ...]:
        """The opaque edges in the part: those at a line of one of its steps, and those without a line."""
        lines = {(step.source.file, step.source.line) for step in self.part.steps if step.source}
        edges = self.whole.opaque
        return tuple(each for each in edges if each.source is None or (each.source.file, each.source.line) in lines)

    @property
    def values(self) -> dict[str, Any]:
        """The part's inputs, by their names at its borders."""
        return {self.borders.names.of(local): value for local, value in self.ran.values.items()}

    @property
    def tangents(self) -> dict[str, Tensor]:
        """The part's tangents, by the names of its output ports."""
        return {tangent_name(self.part, self.borders.names, local): each for local, each in self.ran.tangents.items()}


def capture_of_part(of: PartOfWhole, pair: Pair, why: str) -> Capture:
    """Return the Capture of a part with this Pair; `why` says where its backward is from."""
    whole, number = of.whole, of.number
    values = values_of(of, pair)
    outputs = [port.name for port in pair.forward.by_role("output")]
    asked = [port.name for port in pair.backward.by_role("tangent")] if pair.backward is not None else []
    differentiable = tuple(name for name in outputs if name in asked)
    several = len(whole.pairs) > 1
    within = f" of {of.pair.name}" if several else ""
    place = f"forward steps {of.part.start} to {of.part.stop}{within} of {whole.name}: {of.piece.label}"
    made = Capture(
        name=f"{whole.name}.{number}.{of.part.index}" if several else f"{whole.name}.{of.part.index}",
        engine=whole.engine,
        pairs=(pair,),
        signature=Signature(
            arguments=tuple(port.name for port in pair.forward.by_role("input")),
            output={"tuple": [{"port": name} for name in outputs]},
            differentiable=differentiable,
        ),
        why=(place, why),
        notes=whole.notes,
        guards=guards_of(pair, whole.name),
        opaque=of.opaque,
        environment=whole.environment,
        requires=required(pair),
        seed=whole.seed,
        origin=PartOrigin(pair, values, differentiable, bool(of.opaque)),
    )
    tangents = of.tangents
    return replace(made, recipes=recipes_of(made, values, {name: tangents[name] for name in differentiable}, of.exact))


def values_of(of: PartOfWhole, pair: Pair) -> dict[str, Any]:
    """Return the values of a part's inputs: those it had in the whole, and from recipes those that only its backward
    takes."""
    known = of.values
    taken = {port.name: known[port.name] for port in pair.forward.inputs if port.name in known}
    beside = pair.backward.by_role("constant") if pair.backward is not None else ()
    missing = [port.name for port in (*pair.forward.inputs, *beside) if port.name not in taken]
    if not missing:
        return taken
    made = drawn(of.whole, "recipe", None).values
    return taken | {name: made[name] for name in missing if name in made}


def recipes_of(made: Capture, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor], exact: bool) -> Inputs:
    """Return recipes for a part's inputs and tangents, fitted to their values in the whole, or with `exact` those
    values."""
    inputs = fit_inputs(made, values, "exact" if exact else "seed")
    named = with_tangents({}, {name: value.contiguous() for name, value in tangents.items()})
    recipes = fit_all(named, derive(made.seed, "tangents"), list(named) if exact else ())
    kept = exact_data(named, recipes)
    return Inputs({**inputs.recipes, **recipes}, {**inputs.exact, **kept}, made.seed)


def guards_of(pair: Pair, whole: str) -> tuple[Guard, ...]:
    """Return a guard for each value that a part's steps check, with the inputs that it depends on."""
    made = {step.name: step for step in pair.forward.steps}
    ports = {port.local: port.name for port in pair.forward.inputs}
    found = []
    for step in pair.forward.steps:
        if not step.is_guard:
            continue
        seen = set(behind(used(step), made))
        names = tuple(name for local, name in ports.items() if local in seen)
        found.append(Guard("value", f"step {step.name} of {whole}", names, step.source))
    return tuple(found)


def required(pair: Pair) -> tuple[str, ...]:
    """Return the custom operators that a Pair calls."""
    graphs = [graph for graph in (pair.forward, pair.backward) if graph is not None]
    return tuple(sorted({target for graph in graphs for _, target in custom_operators(graph)}))
