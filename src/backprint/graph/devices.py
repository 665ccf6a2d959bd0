"""Move a forward graph to another device: its tensors and constants, and operators that exist there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backprint.errors import RefusedError
from backprint.graph.nouns import Device, Dict, Graph, List, Port, Ref, Spec, Step, TensorSpec, Value
from backprint.graph.steps import live, mapped
from backprint.graph.values import leaves


def without_saved(graph: Graph) -> Graph:
    """Return a forward that saves nothing: without steps that only a backward needs."""
    pairs = zip(graph.outputs, graph.results, strict=True)
    kept = [(port, result) for port, result in pairs if port.role != "saved"]
    return live(replace(graph, outputs=tuple(p for p, _ in kept), results=tuple(r for _, r in kept)))


def new_devices(graph: Graph, device: str) -> dict[str, str]:
    """Return the new device of each device's tensors if a graph moves to `device`.

    If a graph has tensors on a GPU, only these move; its tensors on the CPU are there for a reason.
    """
    here = {name for name in devices_of(graph) if name != "cpu"} or {"cpu"}
    return {name: device for name in sorted(here) if name != device}


def on_device(graph: Graph, places: Mapping[str, str]) -> Graph:
    """Return a forward graph with moved tensors. It saves nothing: on another device a backward needs other values."""
    if not places:
        return graph
    graph = in_general_form(without_saved(graph))
    return replace(
        graph,
        inputs=tuple(port_on(port, places) for port in graph.inputs),
        steps=tuple(step_on(step, places) for step in graph.steps),
        outputs=tuple(port_on(port, places) for port in graph.outputs),
    )


def devices_of(graph: Graph) -> set[str]:
    """Return the devices of a graph's ports, and those in its steps."""
    specs = [port.spec for port in (*graph.inputs, *graph.outputs)]
    values = [value for step in graph.steps for value in (*step.args, *dict(step.kwargs).values())]
    named = {leaf.name for value in values for leaf in leaves(value) if isinstance(leaf, Device)}
    return {spec.device for spec in specs if isinstance(spec, TensorSpec)} | named


def port_on(port: Port, places: Mapping[str, str]) -> Port:
    """Return a port with its tensor moved."""
    return replace(port, spec=spec_on(port.spec, places))


def step_on(step: Step, places: Mapping[str, str]) -> Step:
    """Return a step with its tensors moved."""
    args = tuple(value_on(value, places) for value in step.args)
    kwargs = tuple((key, value_on(value, places)) for key, value in step.kwargs)
    return replace(step, args=args, kwargs=kwargs, spec=spec_on(step.spec, places))


def spec_on(spec: Spec, places: Mapping[str, str]) -> Spec:
    """Return a spec with its tensors moved."""
    if isinstance(spec, tuple):
        return tuple(spec_on(each, places) for each in spec)
    return replace(spec, device=places.get(spec.device, spec.device)) if isinstance(spec, TensorSpec) else spec


def value_on(value: Value, places: Mapping[str, str]) -> Value:
    """Return a value with its devices replaced."""
    match value:
        case Device(name):
            return Device(places.get(name, name))
        case tuple():
            return tuple(value_on(item, places) for item in value)
        case List(items):
            return List(tuple(value_on(item, places) for item in items))
        case Dict(pairs):
            return Dict(tuple((value_on(key, places), value_on(item, places)) for key, item in pairs))
    return value


# ------------------------------------------------------------------ operators of one device

ATTENTION = "aten.scaled_dot_product_attention.default"

GENERAL: Mapping[str, tuple[str, str]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": (ATTENTION, "query key value dropout_p is_causal"),
    "aten._scaled_dot_product_flash_attention.default": (ATTENTION, "query key value dropout_p is_causal -"),
    "aten._scaled_dot_product_efficient_attention.default": (
        ATTENTION,
        "query key value attn_mask - dropout_p is_causal",
    ),
    "aten._scaled_dot_product_cudnn_attention.default": (
        ATTENTION,
        "query key value attn_mask - dropout_p is_causal -",
    ),
}
"""Operators that are one device's own: the one that chooses among them, and which of its arguments theirs are."""

ORDER = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
USUAL: Mapping[str, Value] = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False}


def in_general_form(graph: Graph) -> Graph:
    """Replace operators that are the kernel of one device by the operator that chooses a kernel."""
    made: dict[str, Ref] = {}
    steps: list[Step] = []
    for step in graph.steps:
        step = mapped(step, lambda name: made.get(name, Ref(name)))
        if step.target in GENERAL:
            made[step.name] = Ref(step.name)
            steps.append(general(step))
        elif step.target == "operator.getitem" and step.args[0] in made.values() and isinstance(step.args[0], Ref):
            if step.args[1] != 0:
                raise RefusedError(f"{step.name!r} uses what only a kernel of one device gives: {step.args[0].name!r}")
            made[step.name] = step.args[0]
        else:
            steps.append(step)
    results = tuple(made.get(value.name, value) if isinstance(value, Ref) else value for value in graph.results)
    return replace(graph, steps=tuple(steps), results=results)


def general(step: Step) -> Step:
    """Return a call of a kernel of attention as a call of the operator that chooses one."""
    target, names = GENERAL[step.target]
    given = dict(zip(names.split(), step.args, strict=False)) | dict(step.kwargs)
    args = tuple(given[name] if name in given else USUAL[name] for name in ORDER)
    scale = tuple((key, value) for key, value in given.items() if key == "scale")
    spec = step.spec[0] if isinstance(step.spec, tuple) else step.spec
    return replace(step, target=target, args=args, kwargs=scale, spec=spec)
