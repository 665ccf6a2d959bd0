"""A Pair cut into smaller ones: passes over graphs, no values.

Where to cut is a list of places between forward steps (`cuts.plan` makes one, by ranges, operators, modules or what
crosses). `forwards` cuts the forward there. The backward has no places of its own: what belongs to a part is what lies
between the gradients of the part's results and the gradients of what the part takes, so `backward_of` needs to be told
which values of the backward those are; whoever has run both knows. What cannot be separated is refused by name.
`joined` links the parts again, and then they are the Capture that they came from.

Left out: symbolic sizes (`fixed.at_capture` first), and cuts through an update in place.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from backprint.errors import GraphError, RefusedError
from backprint.graph.links import name_of, role_of
from backprint.graph.nouns import (
    Capture,
    Graph,
    Link,
    Pair,
    Port,
    Ref,
    Spec,
    Step,
    Sub,
    TensorSpec,
    Value,
    leaves,
    refs,
)
from backprint.graph.steps import free, live, mapped, used
from backprint.graph.table import operators
from backprint.graph.text import show_step

FOLLOWS = ("operator.getitem", "aten.detach.default", "aten.alias.default")
"""Steps that stay with what they are of: an item of a result, and another name for it."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a forward: its steps, what it takes by local name, and what it gives.

    `gives` are the values that later parts take, `results` the whole's own outputs and mutations that end here.
    """

    index: int
    start: int
    stop: int
    steps: tuple[Step, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    results: tuple[tuple[Port, Value], ...]

    @property
    def holds(self) -> frozenset[str]:
        """The values that are there in this part: what it takes and what it makes."""
        return frozenset((*self.takes, *(step.name for step in self.steps if not step.is_guard)))


@dataclass(frozen=True, slots=True)
class Flow:
    """Which values of the whole's backward are the gradients at one part's border, by local names.

    `tangents` has the backward's value for the gradient of each result that takes one, under every name that value has;
    `gradients` has the value that is the part's share in the gradient of each thing that it takes.
    """

    tangents: Mapping[str, str]
    gradients: Mapping[str, str]


# ------------------------------------------------------------------ the forward


def forwards(graph: Graph, cuts: Sequence[int]) -> tuple[Part, ...]:
    """The forward, cut before the steps with these numbers."""
    if graph.symbols:
        raise GraphError("a graph with symbolic sizes has no parts of its own: take it at its sizes first")
    places = sorted({0, len(graph.steps), *(cut for cut in cuts if 0 < cut < len(graph.steps))})
    home = homes(graph, places)
    kept = [(number, step) for number, step in enumerate(graph.steps) if step.is_guard or step.name in home]
    stands = [home_of(number, step, home, places) for number, step in kept]
    taken: dict[int, dict[str, None]] = {index: {} for index in range(len(places) - 1)}
    for (_, step), index in zip(kept, stands, strict=True):
        for name in used(step):
            if home.get(name, -1) != index:
                taken[index][name] = None
    check_updates(kept, home, stands)
    check_numbers(graph, home, taken)
    owner = dict(home)
    for index, names in taken.items():
        for name in names:
            owner.setdefault(name, index)
    parts = []
    for index, (start, stop) in enumerate(pairwise(places)):
        steps = tuple(step for (_, step), there in zip(kept, stands, strict=True) if there == index)
        results = tuple(
            (port, result)
            for port, result in zip(graph.outputs, graph.results, strict=True)
            if port.role != "saved" and max((owner.get(name, 0) for name in refs(result)), default=0) == index
        )
        takes = dict(taken[index])
        for _, result in results:
            takes |= {name: None for name in refs(result) if home.get(name, -1) != index}
        parts.append(Part(index, start, stop, steps, tuple(takes), (), results))
    return given(parts)


def homes(graph: Graph, places: Sequence[int]) -> dict[str, int]:
    """The part of each value that a step makes: where the step stands, but an item is where its whole is.

    What is made for the backward alone has none: it is made in whichever part's backward needs it.
    """
    needed = {step.name for step in ahead(graph).steps}
    home: dict[str, int] = {}
    for number, step in enumerate(graph.steps):
        if not step.is_guard and step.name in needed:
            names = used(step)
            follows = step.target in FOLLOWS and len(names) == 1 and names[0] in home
            home[step.name] = home[names[0]] if follows else bisect(places, number) - 1
    return home


def ahead(graph: Graph) -> Graph:
    """The forward without what it keeps for the backward."""
    kept = [(port, result) for port, result in zip(graph.outputs, graph.results, strict=True) if port.role != "saved"]
    return live(replace(graph, outputs=tuple(port for port, _ in kept), results=tuple(result for _, result in kept)))


def home_of(number: int, step: Step, home: Mapping[str, int], places: Sequence[int]) -> int:
    """The part of a step; a guard is where it stands."""
    return bisect(places, number) - 1 if step.is_guard else home[step.name]


def given(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts with what each gives: the values that it makes and later ones take."""
    made = {step.name: part.index for part in parts for step in part.steps if not step.is_guard}
    gives: dict[int, dict[str, None]] = {part.index: {} for part in parts}
    for part in parts:
        for name in part.takes:
            if name in made:
                gives[made[name]][name] = None
    return tuple(replace(part, gives=tuple(gives[part.index])) for part in parts)


def check_numbers(graph: Graph, home: Mapping[str, int], taken: Mapping[int, Mapping[str, None]]) -> None:
    """Refuse to hand a number that the forward reads from a tensor over a border: parts take tensors."""
    specs = {step.name: step.spec for step in graph.steps}
    for names in taken.values():
        for name in names:
            if name in home and not isinstance(specs[name], TensorSpec):
                raise RefusedError(
                    f"{name!r} is no tensor, and a cut parts it from the steps that take it: cut before it or after "
                    "them"
                )


def check_updates(steps: Sequence[tuple[int, Step]], home: Mapping[str, int], stands: Sequence[int]) -> None:
    """Refuse to part an update in place from the value that it changes."""
    for (_, step), index in zip(steps, stands, strict=True):
        if "m" not in operators().get(step.target, ""):
            continue
        changed = next(iter(used(step)), "")
        if home.get(changed, index) != index:
            raise RefusedError(
                f"a cut between {changed!r} and step {step.name!r} ({step.target}), which changes it in place: "
                "cut before both or after both"
            )


# ------------------------------------------------------------------ the backward


class Tangled(GraphError):
    """A part's backward cannot be separated from the others'."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part's backward before it is a graph: its steps, the saved values it needs, and whose steps it took."""

    steps: tuple[Step, ...]
    saved: tuple[str, ...]
    strays: tuple[str, ...]


def backward_of(pair: Pair, part: Part, home: Mapping[str, int], flow: Flow) -> Slice:
    """The steps of the backward between the gradients at a part's border. Raises Tangled where it would go beyond.

    A value that the backward recomputes from an earlier part's is not recomputed here: it is saved instead.
    """
    backward = pair.backward
    assert backward is not None
    steps = {step.name: step for step in backward.steps if not step.is_guard}
    ports = {port.local: port for port in backward.inputs}
    saved_as, again = saved_values(pair), recomputed(pair)
    wanted = list(flow.gradients.values())
    seen: set[str] = set()
    saved: dict[str, None] = {}
    while wanted:
        name = wanted.pop()
        if name in seen or name in flow.tangents:
            continue
        seen.add(name)
        if name in steps:
            step = steps[name]
            if home.get(again.get(name, ""), part.index) < part.index:
                saved[name] = None
                continue
            wanted += used(step)
            continue
        port = ports[name]
        if port.role == "tangent":
            raise Tangled(f"its backward takes the tangent of {port.name!r}, which is none of its results")
        value = saved_as.get(port.name, "") if port.role == "saved" else ""
        if home.get(value, -1) > part.index:
            raise Tangled(f"its backward takes {value!r}, which a later part makes")
        saved[name] = None
    kept = tuple(step for step in backward.steps if step.name in seen and step.name not in saved and not step.is_guard)
    return Slice(kept, tuple(saved), tuple(strays(kept, part, home)))


def saved_values(pair: Pair) -> dict[str, str]:
    """The forward's value behind each saved port."""
    forward = pair.forward
    return {
        port.name: result.name
        for port, result in zip(forward.outputs, forward.results, strict=True)
        if port.role == "saved" and isinstance(result, Ref)
    }


def recomputed(pair: Pair) -> dict[str, str]:
    """The backward's values that are the forward's, made again: by what they are made of, and the forward's names."""
    forward, backward = pair.forward, pair.backward
    assert backward is not None
    known = {call(step, {}): step.name for step in forward.steps if remakes(step)}
    saved_as = saved_values(pair)
    found = {
        port.local: saved_as[port.name] for port in backward.inputs if port.name in saved_as and port.role == "saved"
    }
    made: dict[str, str] = {}
    for step in backward.steps:
        same = known.get(call(step, found)) if remakes(step) and set(used(step)) <= found.keys() else None
        if same is not None:
            found[step.name] = made[step.name] = same
    return made


def remakes(step: Step) -> bool:
    """Whether a step gives the same each time it runs: no guard, nothing that draws or changes something."""
    return not step.is_guard and not set(operators().get(step.target, "")) & {"r", "m"}


def call(step: Step, called: Mapping[str, str]) -> str:
    """What a step computes, as text, with values under other names."""
    other = mapped(step, lambda name: Ref(called.get(name, name)))
    return show_step(replace(other, name="_", spec=None))


def strays(steps: Sequence[Step], part: Part, home: Mapping[str, int]) -> Iterator[str]:
    """The steps of a backward that say they answer to a forward step of another part."""
    for step in steps:
        if (
            step.echo
            and step.echo.kind == "gradient of"
            and all(home.get(n, part.index) != part.index for n in step.echo.names)
        ):
            yield step.name


@dataclass(frozen=True, slots=True)
class Names:
    """How values at borders are called: the whole's own name where a port has it, else the value's."""

    inputs: Mapping[str, Port]
    labels: Mapping[str, str]

    def of(self, local: str) -> str:
        """The name of a value."""
        return self.inputs[local].name if local in self.inputs else self.labels[local]


def names_at_borders(forward: Graph, parts: Sequence[Part], prefix: str = "") -> Names:
    """A name for each value that crosses: the output port's where it is one of the whole's, else its local."""
    inputs = {port.local: port for port in forward.inputs}
    taken = {port.name for port in (*forward.inputs, *forward.outputs) if port.role != "saved"}
    own: dict[str, str] = {}
    for part in parts:
        for port, result in part.results:
            if port.role == "output" and isinstance(result, Ref) and port.name not in {p.name for p in forward.inputs}:
                own.setdefault(result.name, port.name)
    labels: dict[str, str] = {}
    for part in parts:
        for name in part.gives:
            label = own.get(name, prefix + name)
            while name not in own and label in taken:
                label += "~"
            labels[name] = label
            taken.add(label)
    return Names(inputs, labels)


def pair_of(pair: Pair, part: Part, names: Names, flow: Flow | None, cut: Slice | None, title: str) -> Pair:
    """A part as a Pair: its forward saves what its backward needs."""
    specs = specs_of(pair.forward)
    saved: tuple[tuple[Port, Value], ...] = ()
    backward = None
    if cut is not None and flow is not None:
        saved, backward = saved_side(pair, cut.saved), backward_graph(pair, part, names, flow, cut, specs, title)
    return Pair(title, forward_graph(pair.forward, part, names, saved, specs, title), backward)


def specs_of(graph: Graph) -> dict[str, Spec]:
    """The spec of each value of a graph."""
    return {port.local: port.spec for port in graph.inputs} | {step.name: step.spec for step in graph.steps}


def saved_side(pair: Pair, names: Sequence[str]) -> tuple[tuple[Port, Value], ...]:
    """The saved ports for what a part's backward needs, by the backward's locals, each with the forward's value."""
    forward, backward = pair.forward, pair.backward
    assert backward is not None
    given = {
        port.name: value for port, value in zip(forward.outputs, forward.results, strict=True) if port.role == "saved"
    }
    ports = {port.local: port for port in backward.inputs}
    steps = {step.name: step for step in backward.steps}
    found: list[tuple[Port, Value]] = []
    for local in names:
        if local in ports and ports[local].role == "saved":
            port = ports[local]
            found.append((Port(port.name, "saved", port.spec), given[port.name]))
        elif local in steps:
            found.append((Port(local, "saved", steps[local].spec), Ref(recomputed(pair)[local])))
    return tuple(found)


def forward_graph(
    graph: Graph,
    part: Part,
    names: Names,
    saved: Sequence[tuple[Port, Value]],
    specs: Mapping[str, Spec],
    title: str,
) -> Graph:
    """The forward of a part."""
    locals_of = {port.local: port for port in graph.inputs}
    inputs = []
    for local in ordered(graph, part.takes):
        if local in locals_of:
            inputs.append(locals_of[local])
        else:
            inputs.append(Port(names.of(local), "input", specs[local], local))
    own = {result.name for port, result in part.results if port.role == "output" and isinstance(result, Ref)}
    outputs: list[tuple[Port, Value]] = list(part.results)
    outputs += [
        (Port(names.of(local), "output", specs[local]), Ref(local))
        for local in part.gives
        if local not in own or names.of(local) not in {port.name for port, _ in part.results}
    ]
    ranked = sorted(outputs, key=lambda item: ("output", "mutation").index(item[0].role))
    ranked += saved
    subgraphs = tuple((name, sub) for name, sub in graph.subgraphs if name in subs(part.steps))
    ports, results = tuple(port for port, _ in ranked), tuple(result for _, result in ranked)
    return live(Graph(tuple(inputs), part.steps, ports, results, subgraphs, (), title))


def ordered(graph: Graph, names: Collection[str]) -> list[str]:
    """Values in the order that the whole has them: its inputs, then what its steps make."""
    known = [*(port.local for port in graph.inputs), *(step.name for step in graph.steps if not step.is_guard)]
    return [name for name in known if name in names]


def subs(steps: Sequence[Step]) -> set[str]:
    """The subgraphs that steps mention."""
    values = [value for step in steps for value in (*step.args, *(value for _, value in step.kwargs))]
    return {leaf.name for value in values for leaf in leaves(value) if isinstance(leaf, Sub)}


def backward_graph(
    pair: Pair, part: Part, names: Names, flow: Flow, cut: Slice, specs: Mapping[str, Spec], title: str
) -> Graph:
    """The backward of a part: saved values, tangents of its results, gradients of what it takes."""
    whole = pair.backward
    assert whole is not None
    ports = {port.local: port for port in whole.inputs}
    by_name = {step.name: step for step in whole.steps}
    inputs = []
    for local in cut.saved:
        if local in ports:
            inputs.append(ports[local])
        else:
            inputs.append(Port(local, "saved", by_name[local].spec, local))
    taken = set(cut.saved) | {step.name for step in cut.steps}
    tangent_of: dict[str, str] = {}
    needed = {name for step in cut.steps for name in used(step)} | set(flow.gradients.values())
    for value, result in flow.tangents.items():
        if value not in needed or value in taken:
            continue
        label = tangent_name(part, names, result)
        known = next((port for port in inputs if port.role == "tangent" and port.name == label), None)
        if known is None:
            local = free(f"tangent_{identifier(label)}", taken | set(by_name))
            taken.add(local)
            known = Port(label, "tangent", dense(specs[result]), local)
            inputs.append(known)
        tangent_of[value] = known.local

    def named(name: str) -> Value:
        return Ref(tangent_of.get(name, name))

    steps = tuple(mapped(step, named) for step in cut.steps)
    rows = [(local, value) for local, value in flow.gradients.items()]
    rank = {local: number for number, local in enumerate(ordered(pair.forward, part.takes))}
    rows.sort(key=lambda row: rank[row[0]])
    outputs = tuple(Port(names.of(local), "gradient", dense(specs[local])) for local, _ in rows)
    results = tuple(named(value) for _, value in rows)
    subgraphs = tuple((name, sub) for name, sub in whole.subgraphs if name in subs(steps))
    return Graph(tuple(inputs), steps, outputs, results, subgraphs, (), title)


def tangent_name(part: Part, names: Names, local: str) -> str:
    """The name of the output port at which a value's tangent comes in."""
    if local in part.gives:
        return names.of(local)
    return next(
        port.name
        for port, result in part.results
        if port.role == "output" and isinstance(result, Ref) and result.name == local
    )


def dense(spec: Spec) -> TensorSpec:
    """The spec of a gradient: the value's, without a memory order that the gradient need not have."""
    assert isinstance(spec, TensorSpec)
    return replace(spec, stride=None, offset=0)


def identifier(name: str) -> str:
    """A name as part of a local."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)[:200]


# ------------------------------------------------------------------ parts, linked


@dataclass(frozen=True, slots=True)
class Divided:
    """One Pair's parts: as cut, as Pairs, and the names at their borders."""

    parts: tuple[Part, ...]
    pairs: tuple[Pair, ...]
    names: Names


def joined(capture: Capture, divided: Sequence[Divided]) -> Capture:
    """The Capture whose Pairs are the parts, linked: it gives what the whole gives."""
    first = [sum(len(each.pairs) for each in divided[:index]) for index in range(len(divided))]
    links: list[Link] = []
    for offset, each in zip(first, divided, strict=True):
        made = {name: part.index for part in each.parts for name in part.gives}
        for part in each.parts:
            for local in part.takes:
                if local in made:
                    label = each.names.of(local)
                    links.append(Link(offset + made[local], f"output {label}", offset + part.index, label))
    if not capture.links:
        names = [port.name for port in capture.pairs[0].forward.by_role("output")]
        links += [Link(source(divided[0], first[0], f"output {name}"), f"output {name}", None, name) for name in names]
    for link in capture.links:
        start = None if link.source is None else source(divided[link.source], first[link.source], link.port)
        if link.target is None:
            links.append(Link(start, link.port, None, link.name))
            continue
        takers = divided[link.target]
        for index, pair in enumerate(takers.pairs):
            if any(port.name == link.name for port in pair.forward.inputs):
                links.append(Link(start, link.port, first[link.target] + index, link.name))
    pairs = tuple(pair for each in divided for pair in each.pairs)
    return replace(capture, pairs=pairs, links=tuple(links), verdict=None)


def source(divided: Divided, offset: int, key: str) -> int:
    """The Pair of several that has a port of the whole's."""
    role = role_of(Link(0, key, None, "-"))
    name = name_of(Link(0, key, None, "-"))
    for index, pair in enumerate(divided.pairs):
        graph = pair.backward if role == "gradient" else pair.forward
        if graph is not None and any((port.role, port.name) == (role, name) for port in graph.outputs):
            return offset + index
    raise GraphError(f"no part has the port {key!r:.80}")
