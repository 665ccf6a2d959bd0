"""From a traced program to a Pair: ports with the program's own names, steps with their lines, links to the forward."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from backprint.capture.aot import OURS, Traced
from backprint.capture.convert import Names, Side, spec_of, tensor_spec
from backprint.capture.program import Program
from backprint.capture.scout import Reading
from backprint.errors import CaptureError
from backprint.graph.nouns import Echo, Graph, Guard, Pair, Port, Ref, Source, Step, Value
from backprint.graph.sizes import with_symbols

SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)

Notes = dict[str, tuple[Source | None, Echo | None]]


def build(program: Program, traced: Traced) -> tuple[Pair, dict[str, Tensor], tuple[Guard, ...]]:
    """The Pair, the constant tensors its ports need, and the guards it took."""
    notes = forward_notes(traced)
    side, forward, guards, saved = build_forward(program, traced, notes)
    constants = dict(side.constants.values())
    backward = None
    if traced.backward is not None:
        back = build_backward(program, traced, side, notes, saved)
        backward = back[1]
        constants |= dict(back[0].constants.values())
    found = traced.sizes
    forward = with_symbols(forward, found.symbols, found.names)
    backward = with_symbols(backward, found.symbols, found.names) if backward is not None else None
    return Pair("pair_0", forward, backward), constants, (*guards, *found.guards)


# ------------------------------------------------------------------ forward


def build_forward(
    program: Program, traced: Traced, notes: Notes
) -> tuple[Side, Graph, tuple[Guard, ...], dict[str, tuple[str, str]]]:
    """The forward Graph, and for each saved fx node its port name and local."""
    side = Side(traced.forward, Names())
    ports = input_ports(program, traced, side)
    nodes = with_lost_draws(traced)
    steps = side.steps(nodes, notes)
    returned = traced.forward.graph.output_node().args[0]
    count = len(traced.outputs)
    plain, kept = returned[:count], returned[count:]
    outputs: list[Port] = []
    results: list[Value] = []
    checks: list[tuple[Any, Reading]] = []
    readings = iter(traced.readings)
    for (name, role), node in sorted(zip(traced.outputs, plain, strict=True), key=lambda item: _ORDER[item[0][1]]):
        if role == "guard":
            checks.append((node, next(readings)))
            continue
        outputs.append(Port(name, role, spec_of(node.meta.get("val")) if isinstance(node, fx.Node) else None))
        results.append(side.pack(node))
    saved: dict[str, tuple[str, str]] = {}
    own = {port.local: port.name for port in ports}
    known: set[str] = set()
    for node in kept:
        local = side.locals[node.name]
        saved[node.name] = (own.get(local, local), local)
        if local not in known:
            known.add(local)
            outputs.append(Port(own.get(local, local), "saved", spec_of(node.meta.get("val"))))
            results.append(Ref(local))
    steps, guards = with_checks(side, steps, checks)
    ports += [Port(name, "constant", tensor_spec(tensor), local) for local, (name, tensor) in side.constants.items()]
    graph = Graph(tuple(ports), tuple(steps), tuple(outputs), tuple(results), tuple(side.subgraphs.items()))
    return side, graph, guards, saved


_ORDER = {"output": 0, "mutation": 1, "guard": 2}


def input_ports(program: Program, traced: Traced, side: Side) -> list[Port]:
    """One port for each named tensor, then one for each further name of a tensor passed twice."""
    ports, twins = [], []
    placeholders = traced.forward.graph.find_nodes(op="placeholder")
    present = {str(node.target): node for node in placeholders}
    for node in traced.joint.graph.find_nodes(op="placeholder"):
        index = getattr(node.meta["desc"], "idx", None)
        if index is None:
            continue
        named = program.tensors[index]
        local = side.names.free(named.name)
        spec = spec_of(node.meta["val"])
        side.locals[present.get(str(node.target), node).name] = side.locals[node.name] = local
        ports.append(Port(named.name, named.role, spec, local))
        twins += [(other, named.role, spec) for other in named.same]
    return ports + [Port(name, role, spec, side.names.free(name)) for name, role, spec in twins]


def with_lost_draws(traced: Traced) -> list[fx.Node]:
    """The forward's nodes, and the random draws that cutting dropped because nothing uses them: they move the seed."""
    nodes = list(traced.forward.graph.nodes)
    present = {node.name for node in nodes}
    order = {node.name: index for index, node in enumerate(traced.joint.graph.nodes)}
    after = of_tangents(traced.joint)
    lost = [
        node
        for node in traced.joint.graph.nodes
        if is_draw(node) and not is_backward(node) and node.name not in present | after and not is_kept(node, nodes)
    ]
    if traced.backward is None or not lost:
        return nodes
    for node in lost:
        needed = [node]
        for each in needed:
            needed += [used for used in each.all_input_nodes if used.name not in present]
        nodes += [each for each in needed if each.op != "placeholder" and each.name not in present]
        present |= {each.name for each in needed}
    places: dict[str, int] = {"output": len(order)}
    at = -1
    for node in traced.forward.graph.nodes:  # what cutting has put in stands after what it follows
        at = max(at, -1 if node.op == "placeholder" else order.get(node.name, at))
        places.setdefault(node.name, at)
    return sorted(nodes, key=lambda node: places.get(node.op, places.get(node.name, order.get(node.name, len(order)))))


def of_tangents(joint: fx.GraphModule) -> set[str]:
    """The names of the nodes that depend on a tangent; in a custom Function of Dynamo's nothing else marks them."""
    found: set[str] = set()
    for node in joint.graph.nodes:
        tangent = node.op == "placeholder" and node.meta["desc"].is_tangent()
        if tangent or any(each.name in found for each in node.all_input_nodes):
            found.add(node.name)
    return found


SAVING, AGAIN = torch.ops.higher_order.run_and_save_rng_state, torch.ops.higher_order.run_with_rng_state
"""What stands in the place of a draw that the backward draws again: in the forward, and in the backward."""


def is_state(node: fx.Node) -> bool:
    """Whether a forward node is a random state that was kept for the backward, which calls it by a number."""
    return node.target is operator.getitem and getattr(node.args[0], "target", None) is SAVING and node.args[1] == 0


def is_kept(node: fx.Node, nodes: Sequence[fx.Node]) -> bool:
    """Whether a random draw is in the forward all the same, with its random state."""
    given = [each.name for each in node.all_input_nodes]
    return any(
        each.target is SAVING and each.args[0] is node.target and [n.name for n in each.all_input_nodes] == given
        for each in nodes
    )


def is_draw(node: fx.Node) -> bool:
    """Whether a node draws random numbers."""
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def is_backward(node: fx.Node) -> bool:
    """Whether AOT made the node while autograd ran."""
    return bool(node.meta.get("partitioner_tag") == "is_backward" or node.meta.get("autograd_backward"))


def is_sum(node: fx.Node) -> bool:
    """Whether autograd adds gradients up in this node, between two of its own.

    Where the forward has no line of the user's, torch 2.11 marks what follows as well; there only additions count.
    """
    known = node.meta.get("autograd_backward") or node.target is torch.ops.aten.add.Tensor
    return bool(node.meta.get("is_gradient_acc") and known)


def with_checks(
    side: Side, steps: list[Step], checks: Sequence[tuple[Any, Reading]]
) -> tuple[list[Step], tuple[Guard, ...]]:
    """Guard steps right after the values they check."""
    guards: list[Guard] = []
    after: dict[str, list[Step]] = {}
    for node, reading in checks:
        local = side.locals[node.name]
        added, text = check(side, local, reading)
        after.setdefault(local, []).extend(added)
        guards.append(
            Guard("shape" if isinstance(first(reading), Tensor) else "value", text, reading.inputs, reading.source)
        )
    made = [
        each
        for added in (after.pop(local) for local in list(after) if local not in {s.name for s in steps})
        for each in added
    ]
    for step in steps:
        made += [step, *after.get(step.name, ())]
    numbered, count = [], 0
    for step in made:
        if step.is_guard:
            step, count = replace(step, name=f"guard_{count}"), count + 1
        numbered.append(step)
    return numbered, tuple(guards)


def first(reading: Reading) -> Any:
    """The result that a reading's guard is about."""
    return torch.utils._pytree.tree_leaves(reading.result)[0]


def check(side: Side, local: str, reading: Reading) -> tuple[list[Step], str]:
    """The steps that check one reading, and the guard in words."""
    result = first(reading)
    if isinstance(result, Tensor):
        shape = tuple(result.shape)
        return [
            Step("guard_0", "assert_shape", (Ref(local), shape), source=reading.source)
        ], f"{local}.shape == {shape}"
    name = side.names.free("item")
    item = Step(name, "aten._local_scalar_dense.default", (Ref(local),), source=reading.source)
    if result != result:
        return [item, Step("guard_0", "assert_nan", (Ref(name),), source=reading.source)], f"{local} is nan"
    return [item, Step("guard_0", "assert_equal", (Ref(name), result), source=reading.source)], f"{local} == {result!r}"


# ------------------------------------------------------------------ backward


def build_backward(
    program: Program, traced: Traced, ahead: Side, notes: Notes, saved: Mapping[str, tuple[str, str]]
) -> tuple[Side, Graph]:
    """The backward Graph: saved values and tangents in, gradients out."""
    assert traced.backward is not None
    side = Side(traced.backward, Names())
    ports: list[Port] = []
    tangents = iter(traced.tangents)
    states = (node.name for node in traced.forward.graph.nodes if is_state(node) and node.name in saved)
    held: dict[str, str] = {}
    for node in traced.backward.graph.find_nodes(op="placeholder"):
        spec = spec_of(node.meta.get("val"))
        if node.name in saved or node.name.startswith("rng_state_output"):
            name, wanted = saved[node.name if node.name in saved else next(states)]
            if wanted in held:
                side.locals[node.name] = held[wanted]
                continue
            side.locals[node.name] = held[wanted] = side.names.free(wanted)
            ports.append(Port(name, "saved", spec, side.locals[node.name]))
        elif isinstance(node.meta.get("desc"), torch._functorch._aot_autograd.descriptors.TangentAOTInput):
            name = next(tangents)
            side.locals[node.name] = side.names.free(f"tangent_{name}")
            ports.append(Port(name, "tangent", spec, side.locals[node.name]))
        else:
            raise CaptureError(f"the backward takes {node.name}, which the forward does not give")
    name_gradients(traced, side)
    both = {**notes, **backward_notes(traced, ahead, notes)}
    steps = side.steps(traced.backward.graph.nodes, both)
    outputs, results = gradients(program, traced, side)
    side.constants = {local: (f"backward.{name}", tensor) for local, (name, tensor) in side.constants.items()}
    ports += [Port(name, "constant", tensor_spec(tensor), local) for local, (name, tensor) in side.constants.items()]
    graph = Graph(tuple(ports), tuple(steps), tuple(outputs), tuple(results), tuple(side.subgraphs.items()))
    return side, graph


def name_gradients(traced: Traced, side: Side) -> None:
    """A step that gives a gradient is called after it: `grad_layer1_0_conv1_weight`."""
    assert traced.backward is not None
    for name, node in zip(traced.gradients, traced.backward.graph.output_node().args[0], strict=True):
        if isinstance(node, fx.Node) and node.name not in side.locals and node.op == "call_function":
            side.locals[node.name] = side.names.free(f"grad_{name}")


def gradients(program: Program, traced: Traced, side: Side) -> tuple[list[Port], list[Value]]:
    """The gradient ports in input order; a tensor under two names gives its total under both."""
    assert traced.backward is not None
    twins = {named.name: named.same for named in program.tensors}
    asking = {named.name for named in program.tensors if named.requires_grad}
    outputs, results = [], []
    for name, node in zip(traced.gradients, traced.backward.graph.output_node().args[0], strict=True):
        if name not in asking:
            continue
        spec = spec_of(node.meta.get("val")) if isinstance(node, fx.Node) else None
        for each in (name, *twins[name]):
            outputs.append(Port(each, "gradient", spec))
            results.append(side.pack(node))
    return outputs, results


# ------------------------------------------------------------------ sources and links


def note_of(node: fx.Node) -> Source | None:
    """The user's line that a node carries."""
    found = (node.meta.get("custom") or {}).get(OURS)
    return found if isinstance(found, Source) else None


def forward_notes(traced: Traced) -> Notes:
    """The source of each forward node; a size has the line of what first uses it.

    What autograd computes may stand in the forward too: it has the line of what it answers to.
    """
    found: Notes = {}
    heads = heads_by_seq(traced)
    for node in reversed(list(traced.joint.graph.nodes)):
        if node.op == "call_function":
            note = note_of(node)
            head = heads.get(node.meta.get("seq_nr", -1))
            if note is None and head is not None and is_backward(node) and not is_sum(node):
                note = note_of(head)
            if note is None and isinstance(node.meta.get("val"), SIZES):  # arithmetic on sizes is no torch call
                note = next((found[user.name][0] for user in node.users if user.name in found), None)
            found[node.name] = (note, None)
    return found


def backward_notes(traced: Traced, ahead: Side, notes: Notes) -> Notes:
    """What each backward node answers to in the forward, and that node's source."""
    assert traced.backward is not None
    heads = heads_by_seq(traced)
    order = {each.name: (index, each) for index, each in enumerate(traced.joint.graph.nodes)}
    draws = saved_draws(traced)
    found: Notes = {}
    links: dict[str, str] = {}
    sums: dict[str, str] = {}
    for node in traced.backward.graph.nodes:
        if node.op != "call_function":
            continue
        if (again := recomputed(node, order)) is not None:
            found[node.name] = again_note(again, draws.get(node.name) or heads.get(again.meta.get("seq_nr", -1)), ahead)
            continue
        if is_sum(node):
            continue
        head = heads.get(node.meta.get("seq_nr", -1))
        if head is None or not is_backward(node):
            continue
        links[node.name] = head.name
        if head.name in ahead.locals:
            found[node.name] = (note_of(head), Echo("gradient of", (ahead.locals[head.name],)))
    for node in traced.backward.graph.nodes:
        if node.op == "call_function" and is_sum(node):
            name = summed(node, links, order, sums, ahead) or summed(node, links, order, {}, ahead)
            found[node.name] = (None, Echo("sum of gradients of", (ahead.locals[name],)) if name else None)
            sums |= {node.name: name} if name else {}
    return found


def again_note(again: fx.Node, head: fx.Node | None, ahead: Side) -> tuple[Source | None, Echo | None]:
    """The line of a forward node that the backward computes again, and the value that it is, or is a part of."""
    first = again if again.name in ahead.locals else head
    local = ahead.locals.get(first.name) if first is not None else None
    return note_of(first if first is not None else again), Echo("recomputes", (local,)) if local else None


def saved_draws(traced: Traced) -> dict[str, fx.Node]:
    """For each draw that the backward makes again, the forward's: their random states stand in one order."""
    assert traced.backward is not None
    first = [node for node in traced.forward.graph.nodes if node.target is SAVING]
    again = [node for node in traced.backward.graph.nodes if node.target is AGAIN]
    return {node.name: first[int(str(node.args[0]).rpartition("_")[2])] for node in again}


def recomputed(node: fx.Node, order: Order) -> fx.Node | None:
    """The forward node that a node of the backward computes once more; None where it is the backward's own.

    Cutting marks all that it puts into the backward, so the joint graph is asked; what it copies there anew keeps the
    tag that tracing gave it.
    """
    joint = order[node.name][1] if node.name in order else node
    if joint is node:
        return node if node.meta.get("partitioner_tag") == "is_forward" or node.target is AGAIN else None
    return None if is_backward(joint) else joint


def heads_by_seq(traced: Traced) -> dict[int, fx.Node]:
    """For each autograd sequence number, the forward node that made it: the first one that is no getitem
    and no size."""
    heads: dict[int, fx.Node] = {}
    for node in traced.joint.graph.nodes:
        counts = node.op == "call_function" and not isinstance(node.meta.get("val"), SIZES)
        if counts and not is_backward(node) and node.target is not operator.getitem:
            heads.setdefault(node.meta.get("seq_nr", -1), node)
    return heads


PASSING = (
    torch.ops.aten.add.Tensor,
    torch.ops.aten.sub.Tensor,
    torch.ops.aten.clone.default,
    torch.ops.aten.alias.default,
)
"""Operators whose input's gradient is their output's, unchanged: autograd leaves no step for them."""


Order = Mapping[str, tuple[int, fx.Node]]
"""The joint graph's nodes by name, with their places."""


def summed(node: fx.Node, links: Mapping[str, str], order: Order, sums: Mapping[str, str], ahead: Side) -> str:
    """The forward value whose gradients a sum adds up: the last one that every term is a gradient of.

    `sums` are the values of the sums before it: in a deep residual stream each sum takes up where the last one was.
    """
    shape = getattr(node.meta.get("val"), "shape", None)
    walks = [reached(start, shape, order) for start in starts(node, links, order, sums)]
    fronts = [next(walk, None) for walk in walks]
    while fronts and None not in fronts:
        low = min(front for front in fronts if front)
        together = all(front == low for front in fronts)
        if together and low[1] in ahead.locals:
            return low[1]
        pairs = zip(walks, fronts, strict=True)
        fronts = [next(walk, None) if together or front != low else front for walk, front in pairs]
    return ""


def reached(start: Sequence[fx.Node], shape: Any, order: Order) -> Iterator[tuple[int, str]]:
    """The values of this shape among these, and those that came to them through passing operators; the last first."""
    found: set[str] = set()
    queue: list[tuple[int, str]] = []
    waiting = start
    while True:
        for node in waiting:
            if node.name not in found and getattr(node.meta.get("val"), "shape", None) == shape:
                found.add(node.name)
                heapq.heappush(queue, (-order[node.name][0], node.name))
        if not queue:
            return
        index, name = heapq.heappop(queue)
        yield -index, name
        waiting = order[name][1].all_input_nodes if order[name][1].target in PASSING else []


def starts(
    node: fx.Node, links: Mapping[str, str], order: Order, sums: Mapping[str, str]
) -> Iterator[Sequence[fx.Node]]:
    """For each term of a chain of sums, what the forward node that it is the gradient of takes."""
    for each in node.all_input_nodes:
        if each.name in sums:
            yield [order[sums[each.name]][1]]
        elif is_sum(each):
            yield from starts(each, links, order, sums)
        else:
            terms = each.all_input_nodes if each.target is operator.getitem else [each]
            for term in terms:
                if links.get(term.name) in order:
                    yield order[links[term.name]][1].all_input_nodes
