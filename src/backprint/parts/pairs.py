"""Make a Pair of a part: its forward Graph, which saves the values that its backward needs, and its backward Graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from backprint.graph.costing.products import specs_of
from backprint.graph.nouns import Graph, Pair, Port, Ref, Spec, Step, Sub, TensorSpec, Value, leaves
from backprint.graph.steps import free, live, mapped, used
from backprint.parts.backwards import BorderGradients, PartBackward, saved_side
from backprint.parts.borders import BorderNames, tangent_name
from backprint.parts.forwards import ForwardPart


def pair_of(
    pair: Pair,
    part: ForwardPart,
    names: BorderNames,
    title: str,
    flow: BorderGradients | None = None,
    cut: PartBackward | None = None,
) -> Pair:
    """Return a part of a Pair as a Pair; without `flow` and `cut` it has no backward."""
    specs = specs_of(pair.forward)
    saved: tuple[tuple[Port, Value], ...] = ()
    backward = None
    if cut is not None and flow is not None:
        saved, backward = saved_side(pair, cut.saved), backward_graph(pair, part, names, flow, cut, specs, title)
    return Pair(title, forward_graph(pair.forward, part, names, saved, specs, title), backward)


def forward_graph(
    graph: Graph,
    part: ForwardPart,
    names: BorderNames,
    saved: Sequence[tuple[Port, Value]],
    specs: Mapping[str, Spec],
    title: str,
) -> Graph:
    """Return the forward of a part."""
    locals_of = {port.local: port for port in graph.inputs}
    inputs = []
    for local in in_order_of(graph, part.takes):
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
    subgraphs = tuple((name, sub) for name, sub in graph.subgraphs if name in subgraphs_in(part.steps))
    ports, results = tuple(port for port, _ in ranked), tuple(result for _, result in ranked)
    return live(Graph(tuple(inputs), part.steps, ports, results, subgraphs, (), title))


def in_order_of(graph: Graph, names: Collection[str]) -> list[str]:
    """Return these values in the order of the whole: its inputs, then its steps."""
    known = [*(port.local for port in graph.inputs), *(step.name for step in graph.steps if not step.is_guard)]
    return [name for name in known if name in names]


def subgraphs_in(steps: Sequence[Step]) -> set[str]:
    """Return the subgraphs that steps use."""
    values = [value for step in steps for value in (*step.args, *(value for _, value in step.kwargs))]
    return {leaf.name for value in values for leaf in leaves(value) if isinstance(leaf, Sub)}


def backward_graph(
    pair: Pair,
    part: ForwardPart,
    names: BorderNames,
    flow: BorderGradients,
    cut: PartBackward,
    specs: Mapping[str, Spec],
    title: str,
) -> Graph:
    """Return the backward of a part: from saved values and the tangents of its results to the gradients of its
    inputs."""
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

    def or_tangent(name: str) -> Value:
        return Ref(tangent_of.get(name, name))

    steps = tuple(mapped(step, or_tangent) for step in cut.steps)
    rows = [(local, value) for local, value in flow.gradients.items()]
    rank = {local: number for number, local in enumerate(in_order_of(pair.forward, part.takes))}
    rows.sort(key=lambda row: rank[row[0]])
    outputs = tuple(Port(names.of(local), "gradient", dense(specs[local])) for local, _ in rows)
    results = tuple(or_tangent(value) for _, value in rows)
    subgraphs = tuple((name, sub) for name, sub in whole.subgraphs if name in subgraphs_in(steps))
    return Graph(tuple(inputs), steps, outputs, results, subgraphs, (), title)


def dense(spec: Spec) -> TensorSpec:
    """Return the spec of a value's gradient: the value's without its strides, which the gradient need not have."""
    assert isinstance(spec, TensorSpec)
    return replace(spec, stride=None, offset=0)


def identifier(name: str) -> str:
    """Return a name with all characters except letters, digits and _ replaced, for use in a local name."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)[:200]
