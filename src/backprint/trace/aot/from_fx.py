"""Read AOTAutograd's graphs as a Joint: the program's own names, and the line and the echo of each step.

An echo is how a step of the backward relates to the forward: `gradient of mm_3`. The local of an fx node is its name in
the Joint; a Side is one direction (forward or backward) that is being converted, with the local of each of its nodes.
In functions that take both Sides, `ahead` is the forward's. `side.pack(node)` is a node as a value of the Joint, and
`names.free(wanted)` a name like `wanted` that nothing has yet.

A Traced (`trace.py`) has the joint fx graph, and the `forward` and `backward` that the partition made of it; its
`outputs` has the name and role of each result of the traced function, in order. A head is the forward node that an
autograd node was made for; both have one `seq_nr`. A Source is a line of the user with its module. A shard is the
sharding of a DTensor, as text.

A Reading is a read of a value by the program: what read it, where, and what it got. A Result is a port and its value.
A draw is a call of a random operator. Where the backward repeats one, the partition writes the forward's as SAVING,
which returns the generator's state too, and the backward's as REPEATING, which takes that state.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from backprint._torch.aot import TangentAOTInput
from backprint._torch.distributed import NAMESPACES, label_of, members_of, passes_on
from backprint._torch.operators import OpOverload
from backprint._torch.pytree import tree_leaves
from backprint.errors import CaptureError
from backprint.graph.fx.convert import Names, Side, spec_of
from backprint.graph.nouns import COLLECTIVES, WAIT, Echo, Port, Ref, Source, Step
from backprint.graph.steps import READING, used
from backprint.trace import frames
from backprint.trace.aot.trace import NOTE_KEY, OWN_LINE_KEY, Traced
from backprint.trace.assembly import Joint, Note, Result
from backprint.trace.program import ObservedProgram
from backprint.trace.watch import Reading

SIZES = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""The classes of symbolic numbers."""


Notes = dict[str, tuple[Source | None, Echo | None]]
"""The line and the echo of each fx node, by its name."""


@dataclass(frozen=True, slots=True)
class ReadJoint:
    """A Joint, and for the fx nodes of each direction, by name, their names in the Joint."""

    joint: Joint
    forward: dict[str, str]
    backward: dict[str, str]


def read_fx(program: ObservedProgram, traced: Traced) -> ReadJoint:
    """Return the Joint of a traced program, with the names that fx nodes have in it."""
    names = Names()
    # The forward: ports, steps, results, guards, notes.
    lines = forward_lines(traced)
    forward_side, backward_side = Side(traced.forward, names), None
    inputs = input_ports(program, traced, forward_side)
    nodes = _with_lost_draws(traced)
    steps = forward_side.steps(nodes, lines)
    results = results_of(traced, forward_side)
    steps = _with_guards(forward_side, steps, checks_of(traced))
    notes = notes_of(forward_side, nodes)
    tangents: tuple[Port, ...] = ()
    gradients: tuple[Result, ...] = ()
    backward_steps: list[Step] = []
    # The backward shares the namespace, so that saved values keep their names.
    if traced.backward is not None:
        backward_side = Side(traced.backward, names, subgraphs=forward_side.subgraphs)
        tangents = backward_inputs(traced, forward_side, backward_side)
        # Nodes that the partition has moved or copied from the forward have the forward's lines, unless
        # `backward_lines` has their own.
        backward_steps = backward_side.steps(
            traced.backward.graph.nodes, {**lines, **backward_lines(traced, forward_side)}
        )
        notes |= notes_of(backward_side, traced.backward.graph.nodes)
        gradients = gradients_of(program, traced, backward_side)
    constants = {**forward_side.constants, **(backward_side.constants if backward_side else {})}
    groups: dict[str, tuple[int, ...]] = {}
    joint = Joint(
        inputs=inputs,
        forward=tuple(_with_labels(steps, groups)),
        results=results,
        tangents=tangents,
        backward=tuple(_with_labels(backward_steps, groups)),
        gradients=gradients,
        groups=groups,
        same={named.name: named.other_names for named in program.tensors if named.other_names},
        constants=constants,
        notes=notes,
        subgraphs=forward_side.subgraphs,
        symbols=traced.sizes.symbols,
        sizes=traced.sizes.names,
    )
    return ReadJoint(joint, forward_side.locals, backward_side.locals if backward_side else {})


def _with_labels(steps: Iterable[Step], groups: dict[str, tuple[int, ...]]) -> Iterator[Step]:
    """Yield the steps, in which collectives have the label of their process group in the place of torch's name for it.
    `groups` gets the ranks of each group, by its label.

    Refuse a step that reads a collective's result before the wait for it, and collectives that a graph has no step for.
    """
    under_way: set[str] = set()  # results of collectives that have not been waited for
    for step in steps:
        _refuse_other_collectives(step)
        if step.target == WAIT:
            under_way -= set(used(step))
        elif read := under_way & set(used(step)):
            raise CaptureError(
                f"{step.target} reads {min(read)}, the result of a collective, before it has ended"
                f"{frames.place(step.source)}: what it reads depends on time; wait for it first",
                every_engine=True,
            )
        if step.target in COLLECTIVES:
            *args, group = step.args  # a group by torch's name
            label = label_of(group)
            groups[label] = members_of(group)
            step = replace(step, args=(*args, label))
            under_way.add(step.name)
        yield step


def _refuse_other_collectives(step: Step) -> None:
    """Refuse an operator of `torch.distributed` that a graph has no step for. The program's own calls of such operators
    were replaced while it was traced (`form_of`), so autograd has called this one. One that only returns the tensor
    that it takes (`passes_on`) is no collective."""
    namespace = step.target.removeprefix("torch.ops.").partition(".")[0]
    if namespace in NAMESPACES and step.target not in (*COLLECTIVES, WAIT) and not passes_on(step.target):
        raise CaptureError(
            f"autograd calls {step.target}{frames.place(step.source)}, which a graph has no step for: use collectives "
            "of one tensor",
            every_engine=True,
        )


# ---- Forward


def input_ports(program: ObservedProgram, traced: Traced, side: Side) -> tuple[Port, ...]:
    """Return a port for each named tensor of the program, and set the local of its placeholders in the joint graph and
    in the forward."""
    ports = []
    placeholders = traced.forward.graph.find_nodes(op="placeholder")
    in_forward = {str(node.target): node for node in placeholders}
    for node in traced.joint.graph.find_nodes(op="placeholder"):
        # A placeholder with the index of an input; those of tangents have none.
        index = getattr(node.meta["desc"], "idx", None)
        if index is None:
            continue
        named = program.tensors[index]
        local = side.names.free(named.name)
        # The partition may have given the forward's placeholder another node name: both have this local.
        side.locals[in_forward.get(str(node.target), node).name] = side.locals[node.name] = local
        wrapping = program.wrappings.get(named.name)
        shard = wrapping.text if wrapping is not None else ""
        ports.append(Port(named.name, named.role, spec_of(node.meta["val"]), local, shard))
    return tuple(ports)


def results_of(traced: Traced, side: Side) -> tuple[Result, ...]:
    """Return the results of the program: outputs, then mutations."""
    results = []
    for (name, role), node in returned(traced):
        if role != "guard":
            spec = spec_of(node.meta.get("val")) if isinstance(node, fx.Node) else None
            shard = traced.shards_of_outputs.get(name, "") if role == "output" else ""
            results.append((Port(name, role, spec, shard=shard), side.pack(node)))
    return tuple(sorted(results, key=lambda result: result[0].role == "mutation"))


def returned(traced: Traced) -> list[tuple[tuple[str, str], Any]]:
    """Return the name and role of each result of the traced function, with its node. The forward's outputs after these
    are saved values."""
    return list(zip(traced.outputs, traced.forward.graph.output_node().args[0][: len(traced.outputs)], strict=True))


def checks_of(traced: Traced) -> list[tuple[Any, Reading]]:
    """Return the nodes whose values the program read, each with its Reading: what read it, where, and what it got."""
    nodes = [_before_detach(node) for (_, role), node in returned(traced) if role == "guard"]
    return list(zip(nodes, traced.readings, strict=True))


def _before_detach(node: fx.Node) -> fx.Node:
    """Return the node before a chain of `detach`, which has the same values."""
    while node.target is torch.ops.aten.detach.default:
        node = node.args[0]
    return node


def notes_of(side: Side, nodes: Sequence[fx.Node]) -> dict[str, Note]:
    """Return, by local, a Note for each node that stays although nothing uses it: a random draw, or a node with an
    effect."""
    notes = {}
    for node in nodes:
        draws = is_draw(node) or node.target is SAVING
        if node.op == "call_function" and (draws or node.is_impure()):
            notes[side.locals[node.name]] = Note(draws=draws, stays=not draws)
    return notes


def _with_lost_draws(traced: Traced) -> list[fx.Node]:
    """Return the forward's nodes with the unused random draws that the partition dropped: they advance the
    generator. The order is that of the joint graph."""
    nodes = list(traced.forward.graph.nodes)
    present = {node.name for node in nodes}
    # Draws of the forward that the partition removed as dead code. (It may have kept one in another form, which saves
    # the generator's state.)
    depending_on_tangents = _nodes_depending_on_tangents(traced.joint)
    lost = [
        node
        for node in traced.joint.graph.nodes
        if is_draw(node)
        and not is_backward(node)
        and node.name not in present | depending_on_tangents
        and not _is_kept_with_state(node, nodes)
    ]
    if traced.backward is None or not lost:
        return nodes
    # Put them back, with their inputs.
    for draw in lost:
        needed = [draw]
        for node in needed:  # grows while it is read
            needed += [input_node for input_node in node.all_input_nodes if input_node.name not in present]
        nodes += [node for node in needed if node.op != "placeholder" and node.name not in present]
        present |= {node.name for node in needed}
    # Sort by the order of the joint graph, in which the draws advance the generator.
    order = {node.name: index for index, node in enumerate(traced.joint.graph.nodes)}
    return _in_order_of_joint(nodes, traced.forward, order)


def _in_order_of_joint(nodes: Sequence[fx.Node], forward: fx.GraphModule, order: Mapping[str, int]) -> list[fx.Node]:
    """Return the nodes, those of the forward and others of the joint graph, in the order of the joint graph; `order`
    has each node's place there by name. Placeholders come first, the output last, and a node that the partition
    inserted follows the node before it."""
    places: dict[str, int] = {}
    place = -1
    for node in forward.graph.nodes:
        place = max(place, -1 if node.op == "placeholder" else order.get(node.name, place))
        places[node.name] = place

    def place_of(node: fx.Node) -> int:
        if node.op == "output":
            return len(order)
        return places.get(node.name, order.get(node.name, len(order)))

    return sorted(nodes, key=place_of)


def _nodes_depending_on_tangents(joint: fx.GraphModule) -> set[str]:
    """Return the names of nodes that depend on a tangent. In the backward of a custom autograd.Function that Dynamo has
    traced, nothing else marks nodes as the backward's."""
    names: set[str] = set()
    for node in joint.graph.nodes:
        tangent = node.op == "placeholder" and node.meta["desc"].is_tangent()
        if tangent or any(input_node.name in names for input_node in node.all_input_nodes):
            names.add(node.name)
    return names


SAVING, REPEATING = torch.ops.higher_order.run_and_save_rng_state, torch.ops.higher_order.run_with_rng_state
"""The operators that replace a draw that the backward repeats: in the forward, and in the backward."""


def _is_state(node: fx.Node) -> bool:
    """Whether a forward node is a generator's state that is saved for the backward: the first result of SAVING."""
    return node.target is operator.getitem and getattr(node.args[0], "target", None) is SAVING and node.args[1] == 0


def _is_kept_with_state(node: fx.Node, nodes: Sequence[fx.Node]) -> bool:
    """Whether the random draw `node` is among these nodes of the forward in the form that saves its generator's
    state."""
    input_names = [input_node.name for input_node in node.all_input_nodes]
    return any(
        other.target is SAVING
        and other.args[0] is node.target
        and [input_node.name for input_node in other.all_input_nodes] == input_names
        for other in nodes
    )


def is_draw(node: fx.Node) -> bool:
    """Whether a node draws random numbers from a generator."""
    return isinstance(node.target, OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags


def is_backward(node: fx.Node) -> bool:
    """Whether AOTAutograd made the node while autograd ran."""
    return bool(node.meta.get("partitioner_tag") == "is_backward" or node.meta.get("autograd_backward"))


def is_sum(node: fx.Node) -> bool:
    """Whether autograd adds gradients in this node.

    Where the forward has no line of the user, torch 2.11 marks the following nodes too; there only additions count.
    """
    known = node.meta.get("autograd_backward") or node.target is torch.ops.aten.add.Tensor
    return bool(node.meta.get("is_gradient_acc") and known)


def _with_guards(side: Side, steps: Sequence[Step], checks: Sequence[tuple[fx.Node, Reading]]) -> list[Step]:
    """Return the steps with a guard right after each value that was read; guards on inputs come first."""
    guards_after: dict[str, list[Step]] = {}
    for node, reading in checks:
        local = side.locals[node.name]
        guards_after.setdefault(local, []).extend(guard(side.names, local, reading))
    step_names = {step.name for step in steps}
    result = [guard_step for local, added in guards_after.items() if local not in step_names for guard_step in added]
    for step in steps:
        result += [step, *guards_after.get(step.name, ())]
    return result


def guard(names: Names, local: str, reading: Reading) -> list[Step]:
    """Return the steps that check one reading of the value `local`: the size of a tensor, or a number itself."""
    result = tree_leaves(reading.result)[0]
    name = names.free("guard")
    if isinstance(result, Tensor):
        return [Step(name, "assert_shape", (Ref(local), tuple(result.shape)), source=reading.source)]
    item = Step(names.free("item"), READING, (Ref(local),), source=reading.source)
    # Only NaN is not equal to itself.
    if result != result:
        return [item, Step(name, "assert_nan", (Ref(item.name),), source=reading.source)]
    return [item, Step(name, "assert_equal", (Ref(item.name), result), source=reading.source)]


# ---- Backward


def backward_inputs(traced: Traced, ahead: Side, side: Side) -> tuple[Port, ...]:
    """Return the ports of the tangents, and set the local of each input of the backward in its Side: a saved value has
    its local of the forward. Refuse an input that is neither saved nor a tangent."""
    assert traced.backward is not None
    ports: list[Port] = []
    # The forward returns the results of the traced function, then the saved values.
    saved_nodes = traced.forward.graph.output_node().args[0][len(traced.outputs) :]
    saved = {node.name: ahead.locals[node.name] for node in saved_nodes}
    states = (node.name for node in traced.forward.graph.nodes if _is_state(node) and node.name in saved)
    tangents = iter(traced.tangents)
    for node in traced.backward.graph.find_nodes(op="placeholder"):
        # The partition names saved random states by a number of its own, in the order of the forward's states.
        if node.name in saved or node.name.startswith("rng_state_output"):
            side.locals[node.name] = saved[node.name if node.name in saved else next(states)]
        elif isinstance(node.meta.get("desc"), TangentAOTInput):
            name = next(tangents)
            side.locals[node.name] = side.names.free(f"tangent_{name}")
            # An output that is a partial sum over ranks has the same gradient on every rank.
            shard = traced.shards_of_outputs.get(name, "").replace("Partial(sum)", "Replicate")
            ports.append(Port(name, "tangent", spec_of(node.meta.get("val")), side.locals[node.name], shard))
        else:
            raise CaptureError(f"the backward takes {node.name}, which the forward does not return")
    return tuple(ports)


def gradients_of(program: ObservedProgram, traced: Traced, side: Side) -> tuple[Result, ...]:
    """Return the gradients of the tensors that require grad, in input order."""
    assert traced.backward is not None
    requiring_grad = {named.name for named in program.tensors if named.requires_grad}
    gradients: list[Result] = []
    for name, node in zip(traced.gradients, traced.backward.graph.output_node().args[0], strict=True):
        if name in requiring_grad:
            spec = spec_of(node.meta.get("val")) if isinstance(node, fx.Node) else None
            shard = traced.shards_of_gradients.get(name, "")
            gradients.append((Port(name, "gradient", spec, shard=shard), side.pack(node)))
    return tuple(gradients)


# ---- Sources and echoes


def _noted_line(node: fx.Node) -> Source | None:
    """Return the user's line that tracing noted on a node (`trace._LineNotes`)."""
    note = (node.meta.get("custom") or {}).get(NOTE_KEY)
    return note if isinstance(note, Source) else None


def forward_lines(traced: Traced) -> Notes:
    """Return the line of each forward node, by the node's name; a symbolic size has the line of its first user.

    Nodes that autograd made may be in the forward too: they have the line of the node they are the gradient of.
    """
    lines: Notes = {}
    heads = _forward_nodes_by_seq(traced)
    # In reverse, because a size takes the line of a later node.
    for node in reversed(list(traced.joint.graph.nodes)):
        if node.op == "call_function":
            line = _noted_line(node)
            head = heads.get(node.meta.get("seq_nr", -1))
            if line is None and head is not None and is_backward(node) and not is_sum(node):
                line = _noted_line(head)
            if line is None and isinstance(node.meta.get("val"), SIZES):  # arithmetic on sizes is not a torch call
                line = next((lines[user.name][0] for user in node.users if user.name in lines), None)
            lines[node.name] = (line, None)  # a forward node has no echo
    return lines


def backward_lines(traced: Traced, ahead: Side) -> Notes:
    """Return the line and the echo of each backward node, by the node's name."""
    assert traced.backward is not None
    heads = _forward_nodes_by_seq(traced)
    # The nodes of the joint graph by name, each after its position; and the forward's draw of each repeated one.
    order = {node_.name: (index, node_) for index, node_ in enumerate(traced.joint.graph.nodes)}
    draws = _saved_draws(traced)
    lines: Notes = {}
    links: dict[str, str] = {}  # for each gradient the forward node whose gradient it is, by name
    for node in traced.backward.graph.nodes:
        if node.op != "call_function":
            continue
        if (original := _recomputed_node(node, order)) is not None:
            # The forward node that stands in for it, if the partition has left it out of the forward.
            stand_in = draws.get(node.name) or heads.get(original.meta.get("seq_nr", -1))
            lines[node.name] = _line_and_echo_of_recomputed(original, stand_in, ahead)
            continue
        if is_sum(node):
            continue
        head = heads.get(node.meta.get("seq_nr", -1))
        own = _own_line(node, head)
        if own is None and head is None and _noted_line(node) is None:
            own = _line_under_dynamo(node)
        if own is not None:
            lines[node.name] = (own, None)
        if head is None or not is_backward(node):  # no gradient of a forward value: it has no echo
            continue
        links[node.name] = head.name
        if head.name in ahead.locals:
            lines[node.name] = (own or _noted_line(head), Echo("gradient of", (ahead.locals[head.name],)))
    # Sums last: they are named by the echoes of their terms.
    return lines | _lines_of_sums(traced.backward, links, order, ahead)


def _lines_of_sums(backward: fx.GraphModule, links: Mapping[str, str], order: Order, ahead: Side) -> Notes:
    """Return the echo of each sum of gradients in the backward, by the node's name; autograd makes sums at no line.
    `links` has, by name, the forward node whose gradient each backward node is."""
    lines: Notes = {}
    sums: dict[str, str] = {}  # for each earlier sum, the forward value whose gradients it adds
    for node in backward.graph.nodes:
        if node.op == "call_function" and is_sum(node):
            # First by the values of earlier sums, which is fast; else by the terms of those sums too.
            name = summed_gradients_of(node, links, order, sums, ahead) or summed_gradients_of(
                node, links, order, sums={}, ahead=ahead
            )
            lines[node.name] = (None, Echo("sum of gradients of", (ahead.locals[name],)) if name else None)
            if name:
                sums[node.name] = name
    return lines


def _own_line(node: fx.Node, head: fx.Node | None) -> Source | None:
    """Return the line in a custom autograd.Function's own backward that makes a node, in the module of the Function's
    forward node `head`; None if autograd makes the node."""
    note = (node.meta.get("custom") or {}).get(OWN_LINE_KEY)
    if not isinstance(note, Source):
        return None
    line_of_head = _noted_line(head) if head is not None else None
    return replace(note, module=line_of_head.module) if line_of_head is not None else note


def _line_under_dynamo(node: fx.Node) -> Source | None:
    """Return the line of a node that a custom autograd.Function's backward makes, where Dynamo has traced the
    Function: the line in the stack that Dynamo noted; None without one."""
    place = frames.place_in_trace(node.meta.get("stack_trace") or "")
    return frames.source(*place, "") if place is not None else None


def _line_and_echo_of_recomputed(
    original: fx.Node, head: fx.Node | None, ahead: Side
) -> tuple[Source | None, Echo | None]:
    """Return the line of a forward node that the backward recomputes, and the echo of its value. `head` stands in for
    the node if the partition has left it out of the forward."""
    in_forward = original if original.name in ahead.locals else head
    local = ahead.locals.get(in_forward.name) if in_forward is not None else None
    line = _noted_line(in_forward if in_forward is not None else original) or _line_under_dynamo(original)
    return line, Echo("recomputes", (local,)) if local else None


def _saved_draws(traced: Traced) -> dict[str, fx.Node]:
    """Return, for each draw that the backward repeats, by the node's name, the forward's draw. The backward's input
    with the random state has the number of the forward's draw in its name: `rng_state_output_0`."""
    assert traced.backward is not None
    saving = [node for node in traced.forward.graph.nodes if node.target is SAVING]
    repeating = [node for node in traced.backward.graph.nodes if node.target is REPEATING]
    return {node.name: saving[int(str(node.args[0]).rpartition("_")[2])] for node in repeating}


def _recomputed_node(node: fx.Node, order: Order) -> fx.Node | None:
    """Return the forward node that a backward node recomputes; None if the node is the backward's own.

    The partition marks every node that it puts into the backward, so the tag of the joint graph's node decides; nodes
    that the partition creates keep the tag from tracing.
    """
    # A node that the partition created is not in the joint graph.
    joint_node = order[node.name][1] if node.name in order else node
    if joint_node is node:
        return node if node.meta.get("partitioner_tag") == "is_forward" or node.target is REPEATING else None
    return None if is_backward(joint_node) else joint_node


def _forward_nodes_by_seq(traced: Traced) -> dict[int, fx.Node]:
    """Return, for each autograd sequence number, the first forward node that is not a getitem or a size."""
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
"""Operators whose input's gradient equals their output's: autograd adds no step for them."""


Order = Mapping[str, tuple[int, fx.Node]]
"""The joint graph's nodes by name, with their positions."""


def summed_gradients_of(
    node: fx.Node, links: Mapping[str, str], order: Order, sums: Mapping[str, str], ahead: Side
) -> str:
    """Return the name of the forward value whose gradients a sum adds, or ''. It is the last value that every term is a
    gradient of, and has the shape of the sum.

    `links` has the forward node whose gradient each backward node is. `sums` has the values of earlier sums: in a deep
    residual stream each sum continues the one before. One walk for each term begins at the inputs of the forward node
    that the term is a gradient of, and goes from later to earlier values through operators whose gradient is the one
    that they get (PASSING); where all walks meet, the value is found.
    """
    shape = getattr(node.meta.get("val"), "shape", None)
    walks = [_nodes_passed_back_to(start, shape, order) for start in starts(node, links, order, sums)]
    # Where each walk is: the position and the name of a value; None at its end.
    fronts = [next(walk, None) for walk in walks]
    while fronts and None not in fronts:
        low = min(front for front in fronts if front)
        together = all(front == low for front in fronts)
        if together and low[1] in ahead.locals:
            return low[1]
        # The walks that are at a later value than the earliest one go on; if all are at one value that the forward does
        # not have, all do.
        pairs = zip(walks, fronts, strict=True)
        fronts = [next(walk, None) if together or front != low else front for walk, front in pairs]
    return ""


def _nodes_passed_back_to(start: Sequence[fx.Node], shape: Any, order: Order) -> Iterator[tuple[int, str]]:
    """Yield position and name, in the joint graph, of each value of this shape among the nodes `start` and, through
    operators in PASSING, their inputs; the last first."""
    names: set[str] = set()
    queue: list[tuple[int, str]] = []
    waiting = start
    while True:
        for node in waiting:
            if node.name not in names and getattr(node.meta.get("val"), "shape", None) == shape:
                names.add(node.name)
                heapq.heappush(queue, (-order[node.name][0], node.name))
        if not queue:
            return
        negative_index, name = heapq.heappop(queue)  # heapq pops the smallest first
        yield -negative_index, name
        waiting = order[name][1].all_input_nodes if order[name][1].target in PASSING else []


def starts(
    node: fx.Node, links: Mapping[str, str], order: Order, sums: Mapping[str, str]
) -> Iterator[Sequence[fx.Node]]:
    """Yield, for each term of the sum `node` and of the sums that it adds, the inputs of the forward node that the term
    is the gradient of; for an earlier sum in `sums`, the value whose gradients it adds. The parameters are those of
    `summed_gradients_of`."""
    for input_node in node.all_input_nodes:
        if input_node.name in sums:
            yield [order[sums[input_node.name]][1]]
        elif is_sum(input_node):
            yield from starts(input_node, links, order, sums)
        else:
            # An item of a tuple is a gradient of the node that the tuple's operator is linked to.
            terms = input_node.all_input_nodes if input_node.target is operator.getitem else [input_node]
            for term in terms:
                if links.get(term.name) in order:
                    yield order[links[term.name]][1].all_input_nodes
