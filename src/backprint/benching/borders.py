"""Give a compiler only tensors that it computes with, and give its caller the graph's own results.

Exchange formats drop an input that nothing reads, rename or lose an output that is an input, and have no form for None
and for numbers. `core_of` takes such values out of a graph; `Core.around` puts them back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from backprint._torch import pytree
from backprint.benching.calling import arguments_of, tuple_text, written
from backprint.sample.rerun import copies

NOTHING: Mapping[int, Any] = {}

Build: TypeAlias = Callable[[fx.GraphModule, list[Tensor]], Callable[..., Sequence[Tensor]]]
"""A compiler of cores: a function of a graph and its inputs that returns a function of such inputs, one by one."""

Laying: TypeAlias = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Core:
    """The part of a graph that computes: tensors that are read go in, distinct computed tensors come out."""

    module: fx.GraphModule
    taken: tuple[int, ...]
    """The places of the graph's inputs that the core takes."""
    plan: tuple[tuple[str, Any], ...]
    """Where each result comes from: `core` or `input` with a place, or `constant` with the value."""
    structure: Any

    def given(self, values: Sequence[Any]) -> list[Tensor]:
        """Return the core's inputs among the graph's."""
        return [values[place] for place in self.taken]

    def around(
        self, call: Callable[..., Sequence[Tensor]], count: int, laying: Mapping[int, Laying] = NOTHING
    ) -> Callable[..., Any]:
        """Return a function of the graph's `count` inputs that calls a compiled core: the core itself where it takes
        and gives what the graph does. `laying` lays out some of the core's inputs first."""
        names, flat = arguments_of(count), [restored_text(*each, place) for place, each in enumerate(self.plan)]
        results = pytree.tree_unflatten(flat, self.structure)
        given = [f"lay{place}({names[at]})" if place in laying else names[at] for place, at in enumerate(self.taken)]
        in_order = [f"r[{place}]" for place in range(len(flat))]
        if given == names and isinstance(results, (tuple, list)) and list(results) == in_order:
            return call
        kept = {f"c{place}": value for place, (kind, value) in enumerate(self.plan) if kind == "constant"}
        body = [f"r = core({', '.join(given)})" if self.computes else "r = ()", f"return {structure_text(results)}"]
        return written(names, body, {"core": call, **kept, **{f"lay{place}": lay for place, lay in laying.items()}})

    @property
    def computes(self) -> bool:
        """Whether any result is computed from the inputs."""
        return any(kind == "core" for kind, _ in self.plan)


def restored_text(kind: str, value: Any, place: int) -> str:
    """Return the expression of one result of a graph."""
    match kind:
        case "core":
            return f"r[{value}]"
        case "input":
            return f"v{value}"
        case _:
            return f"c{place}.clone()" if isinstance(value, Tensor) else f"c{place}"


def structure_text(value: Any) -> str:
    """Return nested results of expressions as one expression."""
    match value:
        case tuple():
            return tuple_text([structure_text(each) for each in value])
        case list():
            return f"[{', '.join(map(structure_text, value))}]"
        case dict():
            return "{" + ", ".join(f"{key!r}: {structure_text(each)}" for key, each in value.items()) + "}"
    return str(value)


def core_of(module: fx.GraphModule, inputs: Sequence[Any]) -> Core:
    """Return the core of a graph for inputs whose numbers and None stay as they are."""
    core = with_values_baked(module, inputs)
    nodes = list(core.graph.nodes)
    ports = [node for node in nodes if node.op == "placeholder"]
    end = nodes[-1]
    flat, structure = pytree.tree_flatten(plainly(end.args[0]), is_leaf=lambda value: value is None)
    end.args = (tuple(flat),)
    fixed = constants(core, inputs)
    kept: list[fx.Node] = []
    plan = [planned(value, ports, inputs, fixed, kept) for value in flat]
    end.args = (tuple(kept),)
    core.graph.eliminate_dead_code()
    taken = tuple(place for place, port in enumerate(ports) if port.users)
    for port in ports:
        if not port.users:
            core.graph.erase_node(port)
    core.graph.lint()
    core.recompile()
    return Core(core, taken, tuple(plan), structure)


def plainly(value: Any) -> Any:
    """Return fx's own lists and dictionaries as plain ones, which a graph returns."""
    match value:
        case tuple() | list():
            kind = tuple if isinstance(value, tuple) else list
            return kind(map(plainly, value))
        case dict():
            return {key: plainly(each) for key, each in value.items()}
    return value


def planned(
    value: Any, ports: list[fx.Node], inputs: Sequence[Any], fixed: dict[fx.Node, Any], kept: list[fx.Node]
) -> tuple[str, Any]:
    """Return where one result comes from; a computed one is added to those that the core keeps."""
    if not isinstance(value, fx.Node):
        return "constant", value
    value = source_of(value)
    if value in fixed:
        return "constant", fixed[value]
    if value in ports:
        return "input", ports.index(value)
    if value not in kept:
        kept.append(value)
    return "core", kept.index(value)


def source_of(node: fx.Node) -> fx.Node:
    """Return the node that a node hands through."""
    while node.target in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
        (node,) = node.all_input_nodes
    return node


def with_values_baked(module: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """Return a copy of a graph in which the inputs that are not tensors are written as constants."""
    made = fx.GraphModule(module, copy.deepcopy(module.graph))
    ports = [node for node in made.graph.nodes if node.op == "placeholder"]
    for port, value in zip(ports, inputs, strict=True):
        if isinstance(value, Tensor):
            continue
        values = {port: value}
        for user in list(port.users):
            user.args, user.kwargs = (
                fx.node.map_arg(part, lambda node: values.get(node, node))  # noqa: B023  # called at once
                for part in (user.args, user.kwargs)
            )
    made.recompile()
    return made


class Constants(fx.Interpreter):
    """Computes the results that depend on no input; every other value is UNKNOWN."""

    UNKNOWN = object()

    def run_node(self, n: fx.Node) -> Any:
        known = all(self.env[each] is not self.UNKNOWN for each in n.all_input_nodes)
        draws = torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ())
        if n.op == "placeholder" or not known or draws:
            return self.UNKNOWN
        return super().run_node(n) if n.op != "output" else None


def constants(module: fx.GraphModule, inputs: Sequence[Any]) -> dict[fx.Node, Any]:
    """Return the nodes that depend on no input, with their values."""
    found = Constants(module, garbage_collect_values=False)
    with torch.no_grad():
        found.run(*inputs)
    return {node: value for node, value in found.env.items() if value is not Constants.UNKNOWN and node.op != "output"}


def bordered(module: fx.GraphModule, inputs: Sequence[Any], build: Build) -> Callable[..., Any]:
    """Compile the core of a graph; return a function of the graph's inputs that returns its results."""
    core = core_of(module, inputs)
    call = build(core.module, core.given(copies(inputs))) if core.computes else tuple
    return core.around(call, len(inputs))
