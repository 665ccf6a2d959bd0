"""`inference_graph` and `forward_backward_graphs`: fx.Graphs for kernel authors, which run and show themselves.

Nodes have fx's own metadata (`val`, `seq_nr`, …) and the program's names; saved values have one name in both graphs.
Dead code is removed. `detach` is removed from a pair, whose gradient is already taken; in an inference graph it stays
where it matters if someone differentiates the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx

from backprint.errors import UsageError
from backprint.settings import outside_modes, quiet_random
from backprint.tracing.aot.from_fx import read_fx
from backprint.tracing.aot.joint import Traced
from backprint.tracing.aot.trace import trace
from backprint.tracing.assembly import gradient_names, names_of
from backprint.tracing.call import read_call
from backprint.tracing.kernel_values import KernelGraph, KernelPair
from backprint.tracing.program import ScoutedProgram
from backprint.tracing.protection import protected
from backprint.tracing.scout import scout

DETACH = torch.ops.aten.detach.default


Partition = str | Callable[..., Any] | None


def inference_graph(fn: Callable[..., Any], inputs: Sequence[Any]) -> KernelGraph:
    """Return the forward of `fn(*inputs)` alone, as an fx.Graph of ATen operators."""
    program, traced = traced_call(fn, inputs, False)
    called = read_fx(program, traced).forward
    drop_detach(traced.forward.graph, lambda node: not could_carry(node.args[0]))
    order_outputs(traced.forward.graph, traced.outputs, saves=False)
    made = finished(traced.forward, called)
    return told_about(made, program, "", roles_of_results(made, traced, "output"))


def forward_backward_graphs(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    requires_grad: Sequence[bool] | None = None,
    partition: Partition = None,
) -> KernelPair:
    """Return the forward and the backward of `fn(*inputs)` as fx.Graphs of ATen operators; a saved value has one name
    in both."""
    program, traced = traced_call(fn, inputs, requires_grad, partition)
    if traced.backward is None:
        asking = [named.name for named in program.tensors if named.requires_grad]
        why = f"none of them depends on {', '.join(asking)}" if asking else "no input requires grad"
        raise UsageError(f"{program.title} has no differentiable output ({why}): there is no backward to return")
    called = read_fx(program, traced)
    order_outputs(traced.forward.graph, traced.outputs)
    keep_gradients(traced)
    before = saved_nodes(traced)
    names = [node.name for node in before]
    for module in (traced.forward, traced.backward):
        drop_detach(module.graph, lambda node: True)
    after = dict(zip(names, saved_nodes(traced), strict=True))
    forward = finished(traced.forward, called.forward, unique=len(traced.outputs))
    grads = gradient_names(called.joint, called.joint.backward, names_of(called.joint))
    titles = {node: grads.get(local, local) for node, local in called.backward.items()}
    tie(traced.backward.graph, {name: called.forward[node.name] for name, node in after.items()}, titles)
    told_about(forward, program, "forward of ", roles_of_results(forward, traced, "saved"))
    backward = finished(traced.backward, titles)
    told_about(backward, program, "backward of ", ("gradient",) * len(backward.results))
    return KernelPair(forward, backward)


def roles_of_results(graph: KernelGraph, traced: Traced, rest: str) -> tuple[str, ...]:
    """Return the role of each result: outputs, then mutations, as `order_outputs` has put them, then the rest."""
    roles = [role for wanted in ("output", "mutation") for _, role in traced.outputs if role == wanted]
    return (*roles, *[rest] * (len(graph.results) - len(roles)))


def told_about(graph: KernelGraph, program: ScoutedProgram, side: str, roles: tuple[str, ...]) -> KernelGraph:
    """Tell a graph its title, the roles of its results, and the program's own tensors."""
    graph.title, graph.roles = f"{side}{program.title}", roles
    known = {**program.state(), **program.outside}
    indexes = ((node.name, getattr(node.meta.get("desc"), "idx", None)) for node in graph.find_nodes(op="placeholder"))
    names = {local: program.tensors[index].name for local, index in indexes if index is not None}
    own = {local: known[name] for local, name in names.items() if name in known} if roles[:1] != ("gradient",) else {}
    graph.own = MappingProxyType(own)
    return graph


def saved_nodes(traced: Traced) -> list[fx.Node]:
    """Return the values that the forward saves for the backward, in order."""
    return list(traced.forward.graph.output_node().args[0][len(traced.outputs) :])


def tie(graph: fx.Graph, saved: Mapping[str, str], names: dict[str, str]) -> None:
    """Name the backward's saved inputs as the forward does, and merge inputs that occur twice."""
    first: dict[str, fx.Node] = {}
    taken = {local for name, local in names.items() if name not in saved}
    for node in graph.find_nodes(op="placeholder"):
        name = saved.get(node.name)
        if name is None:
            continue
        if name in first:
            node.replace_all_uses_with(first[name])
            graph.erase_node(node)
            continue
        first[name] = node
        names[node.name] = name
    taken |= set(first)
    clashes = {name: local for name, local in names.items() if name not in saved and local in first}
    for name, local in clashes.items():
        names[name] = next(f"{local}_{index}" for index in range(1, 10**6) if f"{local}_{index}" not in taken)
        taken.add(names[name])


def traced_call(
    fn: Callable[..., Any], inputs: Sequence[Any], requires_grad: Any, partition: Partition = None
) -> tuple[ScoutedProgram, Traced]:
    """Trace a call; the caller's tensors and random state stay as they are."""
    if isinstance(inputs, Tensor) or not isinstance(inputs, Sequence):
        raise UsageError(f"inputs must be a tuple of arguments, not a {type(inputs).__name__}: write (x,)")
    called = read_call(fn, tuple(inputs), {}, mask(inputs, requires_grad))
    with quiet_random(), outside_modes(), protected(called):
        program, seen = scout(called)
        traced = trace(program, seen, partition=partition)
    if not any(role == "output" for _, role in traced.outputs):
        raise UsageError(f"{program.title} returns no tensor, so it has no graph")
    return program, traced


def mask(inputs: Sequence[Any], requires_grad: Any) -> Any:
    """Return `requires_grad` with one entry a tensor; it may have one entry an input."""
    if requires_grad is None or isinstance(requires_grad, (bool, Mapping)):
        return requires_grad
    flags = list(requires_grad)
    tensors = [isinstance(value, Tensor) for value in inputs]
    if len(flags) == len(inputs):
        return [bool(flag) for flag, tensor in zip(flags, tensors, strict=True) if tensor]
    if len(flags) == sum(tensors):
        return [bool(flag) for flag in flags]
    raise UsageError(
        f"requires_grad must have the same length as inputs: {len(flags)} entries for {len(inputs)} inputs"
    )


# ------------------------------------------------------------------ making the graphs plain


def order_outputs(graph: fx.Graph, outputs: Sequence[tuple[str, str]], saves: bool = True) -> None:
    """Put the outputs first, then mutations, then saved values if the graph `saves` any, each once."""
    node = graph.output_node()
    returned = list(node.args[0])
    plain, saved = returned[: len(outputs)], returned[len(outputs) :]
    kept = [
        value
        for role in ("output", "mutation")
        for (_, found), value in zip(outputs, plain, strict=True)
        if found == role
    ]
    node.args = ((*kept, *(saved if saves else ())),)


def keep_gradients(traced: Traced) -> None:
    """Keep only the gradients of inputs that require grad."""
    assert traced.backward is not None
    node = traced.backward.graph.output_node()
    node.args = (tuple(value for name, value in zip(traced.gradients, node.args[0], strict=True) if name),)


def drop_detach(graph: fx.Graph, droppable: Callable[[fx.Node], bool]) -> None:
    """Remove the detach nodes that are droppable."""
    for node in list(graph.nodes):
        if node.target is DETACH and droppable(node):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def could_carry(value: Any) -> bool:
    """Whether a gradient could flow through a value: it is floating-point and depends on a floating-point input."""
    queue, seen = [value], set()
    while queue:
        node = queue.pop()
        if not isinstance(node, fx.Node) or node in seen:
            continue
        seen.add(node)
        example = node.meta.get("val")
        if isinstance(example, Tensor) and not (example.is_floating_point() or example.is_complex()):
            continue
        if node.op == "placeholder":
            return True
        queue += node.all_input_nodes
    return False


def finished(module: fx.GraphModule, names: Mapping[str, str], unique: int | None = None) -> KernelGraph:
    """Return the graph with the program's names and no dead code; from `unique` on, each result once."""
    made = KernelGraph(owning_module=module)
    module.graph.eliminate_dead_code()
    new: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), new.__getitem__)
        if node.op == "output":
            (results,) = args
            cut = len(results) if unique is None else unique
            new[node] = made.output((*results[:cut], *dict.fromkeys(results[cut:])))
        else:
            name = names.get(node.name, node.name)
            target = name if node.op == "placeholder" else node.target
            new[node] = made.create_node(node.op, target, args, kwargs, name)
        new[node].meta = dict(node.meta)
    made.lint()
    return made
