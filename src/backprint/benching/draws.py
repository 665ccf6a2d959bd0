"""Graphs that draw random numbers: their draws become inputs, so that results are judged exactly.

A compiler may draw in its own way. What it drew is then a result of its graph, as the mask of a dropout that the
backward needs: eager runs again with these numbers as inputs, and every other result must be eager's. The numbers
themselves are judged by their distribution (`distributions`). A graph that does not return what it draws is compared
under eager's own random state; a compiler that draws otherwise is given the graph once more, *opened*: with its draws
as further results.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from backprint._torch.operators import schema_if_any
from backprint.benching.outside_draws import draws, is_draw, nodes_of_draws, nodes_without_values
from backprint.fx.operators import resolve
from backprint.fx.to_fx import to_fx
from backprint.graph.nouns import Graph, Port, Ref, Step, TensorSpec
from backprint.graph.steps import SAVING, needed, used
from backprint.graph.table import operators

DROPOUT = "aten.native_dropout.default"


@dataclass(frozen=True, slots=True)
class LiftedDraws:
    """A graph whose last inputs are what was drawn, and the places of these among the graph's results."""

    graph: Graph
    places: tuple[int, ...]
    free: bool
    """Whether what is drawn depends on no input, so that draws on other inputs have the same distribution."""


def steps_that_draw(graph: Graph) -> tuple[Step, ...]:
    """Return the steps of a graph that draw random numbers."""
    if not any(step.target == SAVING or may_draw(resolve(step.target)) for step in graph.steps if not step.is_guard):
        return ()  # most graphs: the module that tells exactly takes a tenth of a second to make
    names = {node.name for node in to_fx(graph).graph.nodes if node.op == "call_function" and draws(node)}
    return tuple(step for step in graph.steps if step.name in names or step.target == SAVING)


def may_draw(target: Any) -> bool:
    """Whether a step's function draws, or calls others that are not looked into here."""
    return is_draw(target) or not (schema_if_any(target) is not None or isinstance(target, types.BuiltinFunctionType))


def lifted_draws(graph: Graph) -> LiftedDraws | None:
    """Return a graph with the draws that it returns as inputs; None if it draws what it does not return."""
    shown = {value.name: place for place, value in reversed(list(enumerate(graph.results))) if isinstance(value, Ref)}
    names = [name for name in drawn_names(graph) if name in shown]
    specs = {step.name: step.spec for step in graph.steps}
    names = [name for name in names if isinstance(specs[name], TensorSpec)]
    lifted = with_inputs(graph, names)
    taken = {name for step in lifted.steps for name in used(step)} | {
        v.name for v in lifted.results if isinstance(v, Ref)
    }
    written = {base.name for step in graph.steps if step.name in names for base in written_by(step)}
    return (
        None
        if steps_that_draw(lifted) or written & taken
        else LiftedDraws(lifted, tuple(shown[name] for name in names), set(names) <= free_names(graph))
    )


def free_names(graph: Graph) -> set[str]:
    """Return the names of values that depend on no input's values; a dropout's mask is one."""
    nodes = list(to_fx(graph).graph.nodes)
    masks = {node.name for node in nodes if is_item(node, 1) and str(node.args[0].target) == DROPOUT}
    return masks | {node.name for node in nodes_without_values(nodes)}


def written_by(step: Step) -> list[Ref]:
    """Return the value that a step writes into."""
    base = step.args[0] if step.args and "m" in operators().get(step.target, "") else None
    return [base] if isinstance(base, Ref) else []


def opened_graph(graph: Graph) -> Graph | None:
    """Return a graph that returns what it draws too; None where that is not one tensor a draw."""
    nodes = list(to_fx(graph).graph.nodes)
    pure = [node for node in nodes if node.name in set(drawn_names(graph))]
    kept = [node.name for node in pure if not pure_users(node, pure)]
    steps = {step.name: step for step in graph.steps}
    shown = {value.name for value in graph.results if isinstance(value, Ref)}
    more = [name for name in kept if name not in shown and isinstance(steps[name].spec, TensorSpec)]
    ports = tuple(Port(f"draw of {name}", "saved", steps[name].spec, name) for name in more)
    opened = replace(graph, outputs=(*graph.outputs, *ports), results=(*graph.results, *map(Ref, more)))
    return opened if more and lifted_draws(opened) is not None else None


def pure_users(node: fx.Node, pure: Sequence[fx.Node]) -> bool:
    """Whether all that uses a drawn value is drawn too, so that it need not be returned."""
    return bool(node.users) and all(user in pure for user in node.users)


def drawn_names(graph: Graph) -> list[str]:
    """Return the names of values that are drawn: of draws, of what is computed of draws alone, and a dropout's mask."""
    nodes = list(to_fx(graph).graph.nodes)
    free, drawn = nodes_without_values(nodes), nodes_of_draws(nodes)
    found = []
    for node in nodes:
        if node.op != "call_function":
            continue
        is_mask = is_item(node, 1) and str(node.args[0].target) == DROPOUT
        if is_mask or (node in drawn and node in free) or (draws(node) and str(node.target) != DROPOUT):
            found.append(node.name)
    return found


def is_item(node: fx.Node, place: int) -> bool:
    """Whether a node takes one of another node's results."""
    return getattr(node.target, "__name__", "") == "getitem" and node.args[1] == place


def with_inputs(graph: Graph, names: Sequence[str]) -> Graph:
    """Return a graph in which these values are inputs, and what is not needed then is gone."""
    steps = {step.name: step for step in graph.steps}
    ports = tuple(Port(f"draw of {name}", "rng", steps[name].spec, name) for name in names)
    masks = {base.name: step.name for step in graph.steps if step.name in names for base in dropout_of(step, steps)}
    body = [part for step in graph.steps if step.name not in names for part in without_dropout(step, steps, masks)]
    wanted = [value.name for value in graph.results if isinstance(value, Ref)]
    kept = needed(body, wanted, stays)
    return replace(graph, inputs=(*graph.inputs, *ports), steps=tuple(kept))


def stays(step: Step, names: Collection[str]) -> bool:
    """Whether a step is needed though nothing uses its result: it writes into a value; that of a draw is used."""
    flags = operators().get(step.target, "")
    base = step.args[0] if step.args else None
    return "m" in flags and ("r" not in flags or (isinstance(base, Ref) and base.name in names))


def dropout_of(step: Step, steps: dict[str, Step]) -> list[Ref]:
    """Return the dropout whose mask a step takes."""
    match step.target, step.args:
        case "operator.getitem", (Ref(name) as dropout, 1) if name in steps and steps[name].target == DROPOUT:
            return [dropout]
    return []


def without_dropout(step: Step, steps: dict[str, Step], masks: dict[str, str]) -> list[Step]:
    """Return a step; in the place of what a dropout leaves, that of its mask, as eager computes it."""
    match step.target, step.args:
        case "operator.getitem", (Ref(name), 0) if name in masks:
            value, p = steps[name].args[:2]
            scale = 1.0 / (1.0 - p) if isinstance(p, int | float) and p != 1 else 0.0
            left = f"{step.name}_left"
            multiplied = replace(step, name=left, target="aten.mul.Tensor", args=(value, Ref(masks[name])))
            return [multiplied, replace(step, target="aten.mul.Tensor", args=(Ref(left), scale))]
    return [step]
