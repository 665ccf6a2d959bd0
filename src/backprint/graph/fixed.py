"""Replace a graph's symbolic sizes by those of its capture, also on its ports.

A graph that is taken out of its Capture (another tool's sample, a part of a split) has one set of sizes, and no caller
who would pass sizes. Numbers that are read from a tensor's values (`.item()`) stay steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backprint.graph.nouns import Atom, Graph, List, Port, Ref, ScalarSpec, Spec, Step, TensorSpec, Value
from backprint.graph.sizes import at, at_hints, evaluate, hints, known
from backprint.graph.steps import free, live, mapped, with_names


def at_capture(graph: Graph) -> Graph:
    """Return the graph with every size that it takes, computes or returns as a constant; other values stay."""
    sizes = hints(graph)
    constants: dict[str, Value] = {}

    def learn(name: str, spec: Spec) -> bool:
        if isinstance(spec, ScalarSpec) and spec.expression and known(spec.expression, sizes):
            constants[name] = evaluate(spec.expression, sizes)
        return name in constants

    inputs = [port for port in graph.inputs if not learn(port.local, port.spec)]
    steps: list[Step] = []
    for step in graph.steps:
        if not step.is_guard and learn(step.name, step.spec):
            continue
        made = mapped(step, lambda name: constants.get(name, Ref(name)))
        if not step.is_guard or type(made.args[0]) is Ref:
            steps.append(replace(made, spec=at(step.spec, sizes)))
    ports = tuple(port_at(port, sizes) for port in inputs)
    outputs = tuple(port_at(port, sizes) for port in graph.outputs)
    results = tuple(with_names(result, lambda name: constants.get(name, Ref(name))) for result in graph.results)
    return replace(graph, inputs=ports, steps=tuple(steps), outputs=outputs, results=results, symbols=())


def held_constant(graph: Graph) -> Graph:
    """Return the graph with numbers that guards fix as constants, from each guard on."""
    constants: dict[str, Value] = {}
    steps = []
    for step in graph.steps:
        steps.append(step if step.is_guard else mapped(step, lambda name: constants.get(name, Ref(name))))
        if step.target == "assert_equal" and isinstance(step.args[0], Ref):
            constants[step.args[0].name] = step.args[1]
    results = tuple(with_names(result, lambda name: constants.get(name, Ref(name))) for result in graph.results)
    return replace(graph, steps=tuple(steps), results=results)


def port_at(port: Port, sizes: Mapping[str, int]) -> Port:
    """Return a port at these sizes."""
    return replace(port, spec=at(port.spec, sizes))


def tensors_alone(graph: Graph) -> Graph:
    """Return the graph without results that are not tensors or have no elements, and without steps that nothing then
    needs."""
    kept = [
        (port, result)
        for port, result in zip(graph.outputs, graph.results, strict=True)
        if isinstance(result, Ref) and isinstance(port.spec, TensorSpec) and port.spec.numel
    ]
    return live(replace(graph, outputs=tuple(p for p, _ in kept), results=tuple(r for _, r in kept)))


def permuted(spec: Spec) -> tuple[int, ...] | None:
    """Return the dimensions of a tensor from the outermost in memory to the innermost, if its strides are those of a
    permuted contiguous tensor; else None."""
    if not isinstance(spec, TensorSpec) or spec.stride is None:
        return None
    shape, stride = spec.shape, spec.stride
    if not all(isinstance(size, int) for size in (*shape, *stride)):
        return None
    order = sorted(range(len(shape)), key=lambda index: (-int(stride[index]), -int(shape[index])))
    step = 1
    for index in reversed(order):
        if shape[index] != 1 and stride[index] != step:
            return None
        step *= int(shape[index])
    return tuple(order) if order != sorted(order) else None


def contiguous_inputs(graph: Graph) -> Graph:
    """Return the graph for contiguous inputs: permuted inputs get their strides first, because views may rely on
    them."""
    taken = {*(port.local for port in graph.inputs), *(step.name for step in graph.steps)}
    inputs, first = [], []
    renamed: dict[str, Value] = {}
    for port in graph.inputs:
        order = permuted(port.spec)
        if order is None:
            inputs.append(port)
            continue
        assert isinstance(port.spec, TensorSpec)
        back = tuple(sorted(range(len(order)), key=order.__getitem__))
        turned = replace(port.spec, shape=tuple(port.spec.shape[index] for index in order), stride=None, offset=0)
        names = [free(f"{port.local}_{what}", taken) for what in ("turned", "laid", "back")]
        taken |= set(names)
        first += [
            Step(names[0], "aten.permute.default", (Ref(port.local), List(order)), (), None),
            Step(
                names[1],
                "aten.clone.default",
                (Ref(names[0]),),
                (("memory_format", Atom("contiguous_format")),),
                turned,
            ),
            Step(names[2], "aten.permute.default", (Ref(names[1]), List(back)), (), replace(port.spec, offset=0)),
        ]
        inputs.append(replace(port, spec=replace(port.spec, stride=None, offset=0)))
        renamed[port.local] = Ref(names[2])
    steps = tuple(mapped(step, lambda name: renamed.get(name, Ref(name))) for step in graph.steps)
    results = tuple(with_names(result, lambda name: renamed.get(name, Ref(name))) for result in graph.results)
    return replace(graph, inputs=tuple(inputs), steps=(*first, *steps), results=results)


def unguarded_graph(graph: Graph) -> Graph:
    """Return the graph that compilers are given: at its captured sizes, without guards and dead code."""
    fixed = at_hints(graph)
    return live(replace(fixed, steps=tuple(step for step in fixed.steps if not step.is_guard)))
