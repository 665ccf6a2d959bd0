"""A Capture cut into parts, each a Capture of its own with values of its own, proven against the whole.

The whole runs once on its recipe's inputs. Autograd of each part's forward then says which values of the whole's
backward are the gradients at the part's borders (`Sought`), and the steps between those are the part's backward: the
whole's own steps. Where they do not come apart (`Tangled`), or do not prove to be what autograd gives on fresh inputs,
the part's forward is captured again, and its `why` says so. An opaque edge has no such way out and is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint import api, settings
from backprint.errors import BackprintError, RefusedError
from backprint.fx.to_fx import to_fx
from backprint.fx.values import maker
from backprint.graph.cuts import Piece, plan
from backprint.graph.fixed import at_capture, held_constant
from backprint.graph.links import results
from backprint.graph.nouns import (
    Capture,
    Graph,
    Guard,
    OpaqueEdge,
    Pair,
    Port,
    Ref,
    Signature,
    Value,
    custom_operators,
    refs,
)
from backprint.graph.split import (
    Divided,
    Flow,
    Names,
    Part,
    Tangled,
    backward_of,
    forward_graph,
    forwards,
    homes,
    joined,
    names_at_borders,
    pair_of,
    saved_side,
    specs_of,
)
from backprint.graph.steps import live, used
from backprint.graph.table import operators
from backprint.replay.compare import GOOD, TOLERANCE, Verdict, compare, distance, same_bits
from backprint.replay.linked import Play, Played, added
from backprint.replay.run import perform, run, subgraphs
from backprint.replay.strides import tangent_as
from backprint.replay.verify import drawn
from backprint.sample.fit import exact_data, fit_all
from backprint.sample.inputs import Inputs, fit_inputs
from backprint.sample.recipes import derive

SLICED = "its backward is the whole's own steps"
DERIVED = "its backward is captured again from its forward"


@dataclass(frozen=True, slots=True)
class Cutting:
    """One part of a split: its place, its Capture, and the verdict on the whole's own values."""

    pair: int
    index: int
    label: str
    wanted: bool
    capture: Capture
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Split:
    """All parts of a Capture, in order, and the Capture that they are when linked again."""

    parts: tuple[Cutting, ...]
    joined: Capture


def split(capture: Capture, by: str, data: str = "seed") -> Split:
    """Cut a Capture; `data="exact"` keeps the whole's own values at the borders instead of recipes fitted to them."""
    if capture.fake:
        raise RefusedError(f"{capture.name} was captured without values, and a split proves its parts with them")
    fixed = replace(capture, pairs=tuple(map(fixed_pair, capture.pairs)))
    cuts = [plan(pair.forward, by) for pair in fixed.pairs]
    with settings.ONE_AT_A_TIME, settings.quiet_random(), settings.restored(dict(capture.environment)):
        played = played_parts(fixed)
        borders = [border(fixed, index, cuts[index]) for index in range(len(fixed.pairs))]
        shares = [sought(pair, edge, run_) for pair, edge, run_ in zip(fixed.pairs, borders, played, strict=True)]
        found: list[Divided] = []
        cuttings: list[Cutting] = []
        for index, (pair, edge, share) in enumerate(zip(fixed.pairs, borders, shares, strict=True)):
            made = [
                one(fixed, index, pair, edge, part, piece, share[part.index], data)
                for part, piece in zip(edge.parts, cuts[index], strict=True)
            ]
            cuttings += made
            found.append(Divided(edge.parts, tuple(cutting.capture.pairs[0] for cutting in made), edge.names))
    return Split(tuple(cuttings), joined(fixed, found))


def fixed_pair(pair: Pair) -> Pair:
    """A Pair at the sizes of its capture, with the numbers that guards hold in their places."""
    return Pair(
        pair.name,
        held_constant(at_capture(pair.forward)),
        at_capture(pair.backward) if pair.backward is not None else None,
    )


def played_parts(capture: Capture) -> list[Played]:
    """The whole, run on its recipe's inputs: what each Pair got, gave and saved."""
    draw = drawn(capture, "recipe", None)
    torch.manual_seed(draw.seed)
    play = Play(replace(capture, links=capture.links or results(capture)), draw.values, draw.tangents)
    play.forward()
    play.gradients()
    return play.played


@dataclass(frozen=True, slots=True)
class Border:
    """One Pair's forward, cut: the parts, where each value is made, and how what crosses is called."""

    parts: tuple[Part, ...]
    home: Mapping[str, int]
    names: Names


def border(capture: Capture, index: int, pieces: Sequence[Piece]) -> Border:
    """Cut one Pair's forward at the pieces."""
    forward = capture.pairs[index].forward
    cuts = [piece.start for piece in pieces[1:]]
    parts = forwards(forward, cuts)
    prefix = f"{capture.pairs[index].name}." if len(capture.pairs) > 1 else ""
    return Border(parts, homes(forward, [0, *cuts, len(forward.steps)]), names_at_borders(forward, parts, prefix))


# ------------------------------------------------------------------ what the gradients at the borders are


@dataclass(slots=True)
class Sought:
    """One part as the whole ran it: what it took and gave, the gradients at its border, and their names, or why not."""

    values: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    random: Tensor | None = None
    tangents: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    flow: Flow | None = None
    why: str = ""


def sought(pair: Pair, edge: Border, played: Played) -> list[Sought]:
    """Every part as the whole ran it, its gradients by autograd, and which values of the whole's backward these are."""
    forward, backward = pair.forward, pair.backward
    given = {port.local: played.values[port.name] for port in forward.inputs}
    asking = {port.name for port, value in gradient_results(backward) if value is not None}
    flags = {port.local: port.name in asking for port in forward.inputs}
    torch.set_rng_state(played.random)
    traced = []
    make_subs = subgraphs(forward)
    for part in edge.parts:
        traced.append(trace(part, given, flags, make_subs))
    found = [each[0] for each in traced]
    if backward is None:
        return found
    index = Values(
        backward, {**{f"saved {n}": v for n, v in played.saved.items()}, **constants(played), **tangents(played)}
    )
    shares: list[dict[str, Tensor]] = [{} for _ in edge.parts]
    for part in reversed(edge.parts):
        each, leaf, scope = traced[part.index]
        for local in dict.fromkeys((*part.gives, *(n for _, value in part.results for n in refs(value)))):
            if not isinstance(scope.get(local), Tensor) or not scope[local].requires_grad:
                continue
            asked = [
                played.tangents[port.name]
                for port, value in part.results
                if port.role == "output" and value == Ref(local) and port.name in played.tangents
            ]
            later = [
                shares[number][local]
                for number in reversed(range(part.index + 1, len(shares)))
                if local in shares[number]
            ]
            total = added([*asked, *later])
            if total is not None:
                each.tangents[local] = total
        wanted = {
            local: tensor for local, tensor in leaf.items() if isinstance(tensor, Tensor) and tensor.requires_grad
        }
        if each.tangents and wanted:
            outs = [scope[local] for local in each.tangents]
            given_back = [total.reshape(out.shape) for total, out in zip(each.tangents.values(), outs, strict=True)]
            got = torch.autograd.grad(outs, list(wanted.values()), given_back, allow_unused=True)
            for local, gradient in zip(wanted, got, strict=True):
                if gradient is not None:
                    each.gradients[local] = gradient
        scope.clear()
        name(each, part, index)
        shares[part.index] = each.gradients
    return found


def gradient_results(backward: Graph | None) -> list[tuple[Port, Value]]:
    """A backward's ports and what stands at each."""
    return [] if backward is None else list(zip(backward.outputs, backward.results, strict=True))


def constants(played: Played) -> dict[str, Any]:
    """The inputs that a backward takes as constants."""
    return {f"constant {name}": value for name, value in played.values.items()}


def tangents(played: Played) -> dict[str, Any]:
    """The tangents that a backward took."""
    return {f"tangent {name}": value for name, value in played.tangents.items()}


def trace(
    part: Part, given: dict[str, Any], flags: dict[str, bool], subs: Mapping[str, Any]
) -> tuple[Sought, dict[str, Any], dict[str, Any]]:
    """One part's forward under autograd, from leaves of its own; what it gives goes on in `given` and `flags`."""
    writes = any("m" in operators().get(step.target, "") for step in part.steps)
    leaf: dict[str, Any] = {}
    for local in part.takes:
        value = given[local]
        tracked = isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
        leaf[local] = value.detach().requires_grad_(flags.get(local, False)) if tracked else value
    scope = {local: value.clone() if writes and isinstance(value, Tensor) else value for local, value in leaf.items()}
    each = Sought(values={local: given[local] for local in part.takes}, random=torch.get_rng_state())
    make = maker(scope, dict(subs))
    with torch.enable_grad():
        for step in part.steps:
            perform(step, scope, make)
    for local in dict.fromkeys((*part.gives, *(n for _, value in part.results for n in refs(value)))):
        value = scope[local]
        given[local] = each.given[local] = value.detach() if isinstance(value, Tensor) else value
        flags[local] = isinstance(value, Tensor) and value.requires_grad
    return each, leaf, {local: scope[local] for local in each.given}


class Values:
    """Every value of a backward on the whole's inputs, to be found by what it is."""

    def __init__(self, backward: Graph, feed: Mapping[str, Any]) -> None:
        self.backward = backward
        self.values: dict[str, Tensor] = {}
        self.kinds: dict[Any, list[str]] = {}
        self.echoes = {step.name: step.echo.names if step.echo else () for step in backward.steps}
        env = {port.local: feed[f"{port.role} {port.name}"] for port in backward.inputs}
        for port in backward.by_role("tangent"):
            self.keep(port.local, env[port.local])
        make = maker(env, subgraphs(backward))
        with torch.no_grad():
            for step in backward.steps:
                perform(step, env, make)
                if not step.is_guard:
                    self.keep(step.name, env[step.name])

    def keep(self, local: str, value: Any) -> None:
        """One value of the backward."""
        if isinstance(value, Tensor) and value.layout is torch.strided:
            self.values[local] = value = value.resolve_conj().resolve_neg()
            self.kinds.setdefault((value.dtype, tuple(value.shape)), []).append(local)

    def like(self, wanted: Tensor) -> list[str]:
        """The names of the values that are equal to this one; if none is, the nearest that counts as close."""
        if wanted.layout is not torch.strided:
            return []
        wanted = wanted.resolve_conj().resolve_neg()
        names = self.kinds.get((wanted.dtype, tuple(wanted.shape)), [])
        equal = [local for local in names if same_bits(self.values[local], wanted)]
        if equal:
            return equal
        near = [(distance(self.values[local], wanted), local) for local in names]
        error, local = min(near, default=(float("inf"), ""))
        return [local] if error <= TOLERANCE.get(str(wanted.dtype)[6:], 0.0) else []


def name(each: Sought, part: Part, index: Values) -> None:
    """Which values of the whole's backward the gradients at one part's border are; why not, where one is none."""
    ours = {step.name for step in part.steps}
    names: dict[str, str] = {}
    for local, total in each.tangents.items():
        alike = index.like(total)
        if not alike:
            each.why = each.why or f"the gradient of {local!r} is no value of the whole's backward"
        names |= {one_: local for one_ in alike if one_ not in names}
    shares: dict[str, str] = {}
    for local, gradient in each.gradients.items():
        alike = index.like(gradient)
        if not alike:
            each.why = each.why or f"its share in the gradient of {local!r} is no value of the whole's backward"
            continue
        answering = [one_ for one_ in alike if set(index.echoes.get(one_, ())) & ours]
        shares[local] = (answering or alike)[0]
        each.gradients[local] = index.values[shares[local]]
    each.flow = Flow(names, shares)


# ------------------------------------------------------------------ one part


def one(
    capture: Capture, number: int, pair: Pair, edge: Border, part: Part, piece: Piece, share: Sought, data: str
) -> Cutting:
    """One part as a Capture, and its verdict on the whole's own values and on values made again."""
    edges = opaque_in(capture, part)
    if not part.gives and not part.results:
        made = pair_of(pair, part, edge.names, None, None, piece.label)
        found = captured(capture, number, part, piece, edge, share, made, "it gives no tensor", edges, data)
        verdict = Verdict("undifferentiable", found.name, "gives no tensor")
        return Cutting(number, part.index, piece.label, False, found, verdict)
    tries: list[tuple[str, Pair]] = []
    why = share.why
    if not why:
        try:
            tries.append((SLICED, sliced(pair, edge, part, share, piece.label)))
        except Tangled as error:
            why = str(error)
    for said, made in tries:
        found, verdict = tested(capture, number, part, piece, edge, share, made, said, edges, data)
        if verdict.good:
            return Cutting(number, part.index, piece.label, piece.wanted, found, verdict)
        why = f"as the whole's own steps it is {verdict.verdict}: {verdict.detail}"
    if edges or (capture.opaque and share.why):
        edge_ = (edges or capture.opaque)[0]
        raise RefusedError(
            f"{capture.name}, {piece.label}: the backward does not come apart here ({why}), and autograd of the "
            f"forward would not see {edge_.text} ({edge_.kind}): cut elsewhere, or leave that part whole"
        )
    try:
        made = derived(pair.forward, edge, part, share, piece.label)
    except BackprintError as error:
        made = pair_of(pair, part, edge.names, None, None, piece.label)
        said = f"{why}; and its forward alone cannot be captured: {error}"
        found = captured(capture, number, part, piece, edge, share, made, said, edges, data)
        verdict = Verdict("failed", found.name, said)
        return Cutting(number, part.index, piece.label, piece.wanted, found, verdict)
    found, verdict = tested(capture, number, part, piece, edge, share, made, f"{DERIVED}: {why}", edges, data)
    return Cutting(number, part.index, piece.label, piece.wanted, found, verdict)


def sliced(pair: Pair, edge: Border, part: Part, share: Sought, title: str) -> Pair:
    """A part with the steps of the whole's backward."""
    flow = share.flow
    if pair.backward is None or flow is None or not flow.gradients:
        return pair_of(pair, part, edge.names, None, None, title)
    cut = backward_of(pair, part, edge.home, flow)
    return pair_of(pair, whole_part(pair, part, cut.saved, edge), edge.names, flow, cut, title)


def whole_part(pair: Pair, part: Part, saved: Sequence[str], edge: Border) -> Part:
    """The part with what its backward alone needs: steps that make saved values, and inputs of the whole. Raises
    Tangled where another part makes what it needs."""
    steps = {step.name: step for step in pair.forward.steps}
    inputs = {port.local for port in pair.forward.inputs}
    holds = part.holds
    extra: dict[str, None] = {}
    waiting = [local for _, value in saved_side(pair, saved) for local in refs(value)]
    while waiting:
        local = waiting.pop()
        if local in holds or local in extra:
            continue
        if local in steps and local in edge.home:
            raise Tangled(f"its backward takes {local!r}, which its forward does not")
        extra[local] = None
        waiting += used(steps[local]) if local in steps else ()
    made = tuple(step for step in pair.forward.steps if step.name in extra and not step.is_guard)
    takes = tuple(local for local in extra if local in inputs)
    return replace(part, steps=(*part.steps, *made), takes=(*part.takes, *takes))


def derived(forward: Graph, edge: Border, part: Part, share: Sought, title: str) -> Pair:
    """A part whose forward is captured again, under its own names."""
    graph = forward_graph(forward, part, edge.names, (), specs_of(forward), title)
    graph = live(replace(graph, steps=tuple(step for step in graph.steps if not step.is_guard)))
    module = to_fx(graph)
    asked = {edge.names.of(local) if local in part.gives else "" for local in share.tangents}
    asked |= {port.name for port, value in part.results if isinstance(value, Ref) and value.name in share.tangents}
    pulled = [port.role == "output" and port.name in asked for port in graph.outputs]

    def again(*inputs: Any) -> tuple[Any, ...]:
        return tuple(
            value if pull or not isinstance(value, Tensor) else value.detach()
            for value, pull in zip(module(*inputs), pulled, strict=True)
        )

    values = []
    for port in graph.inputs:
        value = share.values[port.local]
        tracked = isinstance(value, Tensor) and port.local in share.gradients
        values.append(value.detach().clone().requires_grad_(tracked) if isinstance(value, Tensor) else value)
    asks = any(port.local in share.gradients for port in graph.inputs)
    asking: list[str] | None = None if asks else []
    whole = tuple(target for _, target in custom_operators(graph))
    taken = api.capture(again, args=tuple(values), engine="auto", requires_grad=asking, allow=whole, name="part")
    return renamed(taken.pairs[0], graph, title)


def renamed(pair: Pair, graph: Graph, title: str) -> Pair:
    """A Pair of a function of numbered inputs and outputs, with the ports of the graph that the function ran."""
    ports = dict(enumerate(graph.inputs))

    def at(text: str) -> int:
        found = re.search(r"\d+$", text)
        return int(found[0]) if found else 0

    def incoming(port: Port) -> Port:
        if port.role == "tangent":
            return replace(port, name=graph.outputs[at(port.name)].name)
        if port.role == "saved":
            return replace(port, name=saved_name(port.name))
        if port.role == "constant":
            return port
        return replace(ports[at(port.name)], local=port.local)

    def saved_name(text: str) -> str:
        return graph.inputs[at(text)].name if re.fullmatch(r"inputs\.\d+", text) else text

    def outgoing(port: Port) -> Port:
        if port.role == "gradient":
            return replace(port, name=ports[at(port.name)].name)
        if port.role == "saved":
            return replace(port, name=saved_name(port.name))
        own = graph.outputs[at(port.name)]
        return replace(own, spec=port.spec)

    def side(was: Graph) -> Graph:
        inputs, outputs = tuple(map(incoming, was.inputs)), tuple(map(outgoing, was.outputs))
        return replace(was, inputs=inputs, outputs=outputs, title=title)

    return Pair(title, side(pair.forward), side(pair.backward) if pair.backward is not None else None)


# ------------------------------------------------------------------ a part's Capture, and its proof


def tested(
    capture: Capture, number: int, part: Part, piece: Piece, edge: Border, share: Sought, pair: Pair, said: str,
    opaque: tuple[OpaqueEdge, ...], data: str,
) -> tuple[Capture, Verdict]:  # fmt: skip
    """A part as a Capture, held against the whole's own values, and then against autograd on values made again."""
    found = captured(capture, number, part, piece, edge, share, pair, said, opaque, data)
    try:
        first = against_whole(found, pair, part, edge, share)
        if not first.good:
            return found, first
        last = api.verify(found, ("recipe", "fresh"))[-1]
    except BackprintError as error:
        return found, Verdict("failed", found.name, f"{type(error).__name__}: {error}")
    worse = first if first.verdict == "close" and last.verdict == "bitwise" else last
    return found, worse


def against_whole(found: Capture, pair: Pair, part: Part, edge: Border, share: Sought) -> Verdict:
    """A part on the whole's own values: what it gives, and its shares in the gradients, as the whole had them."""
    assert share.random is not None
    torch.set_rng_state(share.random)
    named = {edge.names.of(local): value for local, value in share.values.items()}
    played = dict(zip(pair.forward.outputs, run(pair.forward, named), strict=True))
    ports = [
        compare(port.name, port.role, value, share.given[local])
        for port, value in played.items()
        if port.role != "saved" and isinstance(value, Tensor)
        for local in [local_of(part, edge, port)]
        if local in share.given
    ]
    if pair.backward is not None:
        feed: dict[str, Any] = {f"saved {port.name}": value for port, value in played.items() if port.role == "saved"}
        feed |= {f"constant {name_}": value for name_, value in found.origin.values().items()}
        by_name = {tangent_port(part, edge, local): total for local, total in share.tangents.items()}
        outputs = {port.name: value for port, value in played.items() if port.role == "output"}
        for port in pair.backward.by_role("tangent"):
            feed[f"tangent {port.name}"] = tangent_as(by_name[port.name], outputs[port.name], port.spec, {})
        got = run(pair.backward, feed, strict=False)
        wanted = {edge.names.of(local): gradient for local, gradient in share.gradients.items()}
        ports += [
            compare(port.name, "gradient", value, wanted.get(port.name))
            for port, value in zip(pair.backward.outputs, got, strict=True)
        ]
    bad = [port for port in ports if port.verdict != "bitwise"]
    worst = max((port.verdict for port in bad), key=("bitwise", "close", "wrong").index, default="bitwise")
    detail = "; ".join(f"on the whole's own values {port.role} {port.name}: {port.detail}" for port in bad[:3])
    return Verdict(
        worst if ports else "unproven", found.name, detail if ports else "nothing was compared", tuple(ports)
    )


def local_of(part: Part, edge: Border, port: Port) -> str:
    """The value at a part's output port."""
    for own, value in part.results:
        if (own.name, own.role) == (port.name, port.role):
            return value.name if isinstance(value, Ref) else ""
    return next((local for local in part.gives if edge.names.of(local) == port.name), "")


def tangent_port(part: Part, edge: Border, local: str) -> str:
    """The name of the output port whose tangent a value has."""
    if local in part.gives:
        return edge.names.of(local)
    own = (port.name for port, value in part.results if port.role == "output" and value == Ref(local))
    return next(own, "")


def captured(
    capture: Capture, number: int, part: Part, piece: Piece, edge: Border, share: Sought, pair: Pair, said: str,
    opaque: tuple[OpaqueEdge, ...], data: str,
) -> Capture:  # fmt: skip
    """A part as a Capture of its own, with recipes of the values that it had."""
    values = {edge.names.of(local): value for local, value in share.values.items()}
    values = {port.name: values[port.name] for port in pair.forward.inputs if port.name in values} | values_beside(
        pair, edge, share, capture, values
    )
    outputs = [port.name for port in pair.forward.by_role("output")]
    asked = [port.name for port in pair.backward.by_role("tangent")] if pair.backward is not None else []
    differentiable = tuple(name_ for name_ in outputs if name_ in asked)
    named = {tangent_port(part, edge, local): total for local, total in share.tangents.items()}
    of = f" of {capture.pairs[number].name}" if len(capture.pairs) > 1 else ""
    place = f"forward steps {part.start} to {part.stop}{of} of {capture.name}: {piece.label}"
    made = Capture(
        name=f"{capture.name}.{number}.{part.index}" if len(capture.pairs) > 1 else f"{capture.name}.{part.index}",
        engine=capture.engine,
        pairs=(pair,),
        signature=Signature(
            arguments=tuple(port.name for port in pair.forward.by_role("input")),
            output={"tuple": [{"port": name_} for name_ in outputs]},
            differentiable=differentiable,
        ),
        why=(place, said),
        notes=capture.notes,
        guards=guards_of(pair, capture),
        opaque=opaque,
        environment=capture.environment,
        requires=requirements(pair),
        seed=capture.seed,
        origin=Origin(pair, values, differentiable, bool(opaque)),
    )
    return replace(made, recipes=fitted(made, values, {n: named[n] for n in differentiable}, data))


def values_beside(
    pair: Pair, edge: Border, share: Sought, capture: Capture, known: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of inputs that a part's forward hands to its backward alone, and of constants of its own."""
    beside = pair.backward.by_role("constant") if pair.backward is not None else ()
    missing = [port for port in (*pair.forward.inputs, *beside) if port.name not in known]
    if not missing:
        return {}
    drawn_ = drawn(capture, "recipe", None).values
    return {port.name: drawn_[port.name] for port in missing if port.name in drawn_}


def fitted(made: Capture, values: Mapping[str, Tensor], tangent: Mapping[str, Tensor], data: str) -> Inputs:
    """Recipes of a part's inputs and tangents, fitted to what they were in the whole, or those very values."""
    inputs = fit_inputs(made, values, data)
    named = {f"tangent {name_}": value.contiguous() for name_, value in tangent.items()}
    recipes = fit_all(named, derive(made.seed, "tangents"), list(named) if data == "exact" else ())
    kept = exact_data(named, recipes)
    return Inputs({**inputs.recipes, **recipes}, {**inputs.exact, **kept}, made.seed)


def guards_of(pair: Pair, capture: Capture) -> tuple[Guard, ...]:
    """A guard for what a part's steps check: a redraw must not touch the inputs that it hangs on."""
    made = {step.name: step for step in pair.forward.steps}
    ports = {port.local: port.name for port in pair.forward.inputs}
    found = []
    for step in pair.forward.steps:
        if not step.is_guard:
            continue
        seen: set[str] = set()
        waiting = list(used(step))
        while waiting:
            local = waiting.pop()
            if local not in seen:
                seen.add(local)
                waiting += used(made[local]) if local in made else ()
        hangs = tuple(name_ for local, name_ in ports.items() if local in seen)
        found.append(Guard("value", f"step {step.name} of {capture.name}", hangs, step.source))
    return tuple(found)


def requirements(pair: Pair) -> tuple[str, ...]:
    """The operators of libraries that a part calls."""
    graphs = [graph for graph in (pair.forward, pair.backward) if graph is not None]
    return tuple(sorted({target for graph in graphs for _, target in custom_operators(graph)}))


def opaque_in(capture: Capture, part: Part) -> tuple[OpaqueEdge, ...]:
    """The opaque edges that lie in a part: those of a line that one of its steps comes from, or of no line."""
    lines = {(step.source.file, step.source.line) for step in part.steps if step.source}
    return tuple(
        edge for edge in capture.opaque if edge.source is None or (edge.source.file, edge.source.line) in lines
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step of a part gave."""

    outputs: dict[str, Any]
    gradients: dict[str, Tensor | None]
    mutations: dict[str, Tensor]


class Origin:
    """The program behind a part: its forward, run eagerly, and autograd of that.

    Where an opaque edge lies in the part, autograd is no oracle, and the part, proven on the whole's own values, is its
    own on others.
    """

    alive = True
    rebuild = None
    parts = ()

    def __init__(self, pair: Pair, values: Mapping[str, Any], differentiable: tuple[str, ...], opaque: bool) -> None:
        self.pair, self.kept, self.differentiable, self.opaque = pair, values, differentiable, opaque
        graphs = [graph for graph in (pair.forward, pair.backward) if graph is not None]
        lifted = [port.name for graph in graphs for port in graph.by_role("constant")]
        self.constants = {name_: values[name_] for name_ in lifted if name_ in values}
        self.tangents: dict[str, Tensor] = {}
        self.asked: dict[str, Any] = {}

    def values(self) -> dict[str, Any]:
        """The values that the part had in the whole."""
        return dict(self.kept)

    def step(self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None) -> Outcome:
        """One eager step of the part's forward, and its gradients."""
        backward, forward = self.pair.backward, self.pair.forward
        asking = [port.name for port in backward.outputs] if backward is not None else []
        leaf = {
            name_: value.detach().clone().requires_grad_(name_ in asking) if isinstance(value, Tensor) else value
            for name_, value in values.items()
        }
        scope = {port.local: leaf[port.name] for port in forward.inputs}
        make = maker(scope, subgraphs(forward))
        with torch.enable_grad():
            for step in forward.steps:
                perform(step, scope, make)
            found = {
                f"{port.role} {port.name}": make(value)
                for port, value in zip(forward.outputs, forward.results, strict=True)
            }
        given = {
            n: torch.ones_like(found[f"output {n}"]) if tangents is None else tangents[n] for n in self.differentiable
        }
        gradients: dict[str, Tensor | None] = dict.fromkeys(asking)
        if asking and self.opaque and backward is not None:
            feed = {key: value.detach() for key, value in found.items() if isinstance(value, Tensor)}
            feed |= {f"tangent {n}": tangent for n, tangent in given.items()}
            feed |= {f"constant {n}": value for n, value in values.items()}
            gradients = dict(zip(asking, run(backward, feed, strict=False), strict=True))
        elif asking:
            outs = [found[f"output {n}"] for n in given]
            grads = torch.autograd.grad(outs, [leaf[n] for n in asking], list(given.values()), allow_unused=True)
            gradients = dict(zip(asking, grads, strict=True))

        def plain(role: str) -> dict[str, Any]:
            return {
                key.partition(" ")[2]: value.detach() if isinstance(value, Tensor) else value
                for key, value in found.items()
                if key.startswith(f"{role} ")
            }

        return Outcome(plain("output"), gradients, plain("mutation"))


# ------------------------------------------------------------------ samples


@dataclass(frozen=True, slots=True)
class Written:
    """One part on disk, or why there is none: a row of the table."""

    sample: str
    part: str
    label: str
    verdict: str
    detail: str
    forward_steps: int
    backward_steps: int
    backward: str
    of: str = ""
    key: str = ""


def split_sample(
    sample: Path,
    out: Path,
    by: str,
    data: str = "seed",
    allow: Sequence[str] = (),
    unique: dict[str, str] | None = None,
) -> Iterator[Written]:
    """Cut one sample on disk: each part that was asked for becomes a sample below `out`, whole or not at all.

    With `unique`, graph hashes to the part that was first to have them, a part that is there already is not written
    again.
    """
    capture = api.load(sample, allow=allow)
    found = split(capture, by, data)
    for cutting in found.parts:
        if not cutting.wanted:
            continue
        pair = cutting.capture.pairs[0]
        folder = out / (f"pair_{cutting.pair}" if len(capture.pairs) > 1 else "") / f"part_{cutting.index:03}"
        sizes = (len(pair.forward.steps), len(pair.backward.steps) if pair.backward is not None else 0)
        how = "derived" if any(said.startswith(DERIVED) for said in cutting.capture.why) else "sliced"
        how = how if pair.backward is not None else "none"
        row = Written(
            str(sample), str(folder), cutting.label, cutting.verdict.verdict, cutting.verdict.detail, *sizes, how
        )
        key = f"{pair.forward.hash()} {pair.backward.hash() if pair.backward is not None else ''}"
        row = replace(row, key=key)
        if unique is not None and key in unique:
            yield replace(row, part="", of=unique[key])
            continue
        if cutting.verdict.verdict in GOOD:
            api.save(cutting.capture, folder, allow=allow, overwrite=True)
            if unique is not None:
                unique[key] = str(folder)
        else:
            row = replace(row, part="")
        yield row
