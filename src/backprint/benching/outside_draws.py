"""Take random draws out of a graph: torch draws before each call, and the graph gets what was drawn as further inputs.

No exchange format draws as torch does. A draw that needs only the form of a tensor, such as the mask of a dropout, can
happen before the graph runs, from the same random state and in the same order, so the numbers are eager's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from backprint._torch.operators import schema_if_any
from backprint.benching.lowering import OWN
from backprint.errors import RefusedError

FORM_ONLY = {
    "rand_like", "randn_like", "randint_like", "empty_like", "zeros_like", "ones_like", "full_like", "new_empty",
    "new_zeros", "new_ones", "new_full", "new_empty_strided", "bernoulli.p",
}  # fmt: skip
"""Operators that read of their first argument only its form; by name, or by name and overload."""


@dataclass(frozen=True, slots=True)
class OutsideDraws:
    """A graph whose last inputs are drawn, and the function that draws them."""

    module: fx.GraphModule
    draw: Callable[[], Sequence[Tensor]]


def with_draws_outside(module: fx.GraphModule) -> OutsideDraws | None:
    """Return a graph with its draws taken out; None if nothing is drawn, or a draw depends on computed values."""
    made = fx.GraphModule(module, copy.deepcopy(module.graph))
    nodes = list(made.graph.nodes)
    free = nodes_without_values(nodes)
    drawn = nodes_of_draws(nodes)
    if not any(map(draws, nodes)) or any(draws(node) and node not in free for node in nodes):
        return None
    outside = [node for node in nodes if node in free and node in drawn]
    kept = [node for node in outside if any(user not in outside for user in node.users)]
    prelude = prelude_of(made, [node for node in nodes if node in free], kept)
    last = [node for node in nodes if node.op == "placeholder"][-1:]
    for place, node in enumerate(kept):
        with made.graph.inserting_after(*last) if last else made.graph.inserting_before(nodes[0]):
            port = made.graph.placeholder(f"drawn_{place}")
        port.meta = dict(node.meta)
        node.replace_all_uses_with(port)
        last = [port]
    for node in reversed(outside):
        made.graph.erase_node(node)
    made.graph.lint()
    made.recompile()
    return OutsideDraws(made, prelude)


def draws(node: fx.Node) -> bool:
    """Whether a node's operator draws random numbers. Attention is lowered by a form of ours, which refuses dropout."""
    return is_draw(node.target)


def is_draw(target: Any) -> bool:
    """Whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) and target not in OWN


def nodes_without_values(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Return the nodes that depend on no value of an input, only on forms."""
    free: set[fx.Node] = set()
    for node in nodes:
        if node.op == "call_function" and all(each in free for each in values_read(node)):
            free.add(node)
    return free


def values_read(node: fx.Node) -> list[fx.Node]:
    """Return the nodes whose values a node reads."""
    form = node.args[0] if node.args and reads_a_form(node) else None
    return [each for each in node.all_input_nodes if each is not form]


def reads_a_form(node: fx.Node) -> bool:
    """Whether a node reads only the form of its first argument."""
    schema = schema_if_any(node.target)
    if schema is None:
        return False
    name = str(schema.name).partition("::")[2]
    return name in FORM_ONLY or f"{name}.{schema.overload_name}" in FORM_ONLY


def nodes_of_draws(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Return the nodes that draw or depend on a draw, and tensors that a draw is written into."""
    found: set[fx.Node] = set()
    for node in nodes:
        if draws(node) or any(each in found for each in values_read(node)):
            found.add(node)
            if getattr(schema_if_any(node.target), "is_mutable", False):
                found |= {each for each in node.args[:1] if isinstance(each, fx.Node)}
    return found


def prelude_of(module: fx.GraphModule, free: Sequence[fx.Node], kept: Sequence[fx.Node]) -> Callable[[], Any]:
    """Return a function that computes the kept nodes, in the order of the graph."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}

    def given(node: fx.Node) -> fx.Node:
        return env[node] if node in env else graph.call_function(torch.empty_strided, *form_of(node))

    for node in free:
        env[node] = graph.node_copy(node, given)
    graph.output(tuple(env[node] for node in kept))
    graph.eliminate_dead_code(is_impure_node=lambda node: node.is_impure() or draws(node))
    return fx.GraphModule(module, graph).forward


def form_of(node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of empty_strided for a tensor of a node's form."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        raise RefusedError(f"a draw needs the form of {node.name}, which is not known")
    return (tuple(value.shape), tuple(value.stride())), {"dtype": value.dtype, "device": value.device}
