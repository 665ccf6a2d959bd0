"""`inference_graph` and `forward_backward_graphs`: fx.Graphs for kernel authors, which can be called and printed.

A KernelGraph is an fx.Graph, and a KernelPair is a tuple of two, so they can be passed wherever these are expected.
Nodes have fx's own metadata (`val`, `seq_nr`, …) and the program's names; a saved value has one name in both graphs.
Dead code is removed. `detach` is removed from a pair, whose gradient is already taken; in an inference graph it stays
where it matters if the graph is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx, nn

from backprint._torch import pytree
from backprint.errors import UsageError
from backprint.fx.convert import Names, Side, spec_of
from backprint.graph.cost import each_storage, held_storages, storages_of
from backprint.graph.nouns import Graph, Port
from backprint.tracing.aot.from_fx import note_of, read_fx
from backprint.tracing.aot.trace import Traced, trace
from backprint.tracing.assembly import gradient_names, names_of
from backprint.tracing.program import ScoutedProgram, read_call
from backprint.tracing.running import restoring_state
from backprint.tracing.scout import scout
from backprint.values.settings import outside_modes, preserving_random_states


class KernelGraph(fx.Graph):
    """An fx.Graph of ATen operators. `graph(*inputs)` runs it; `print(graph)` shows it as code, with shapes and lines.

    `own` has the tensors that the program brings along, such as parameters, by the names of inputs: a call may leave
    them out.
    """

    title: str = "program"
    roles: tuple[str, ...] = ()
    own: Mapping[str, Tensor] = {}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(node.name for node in self.find_nodes(op="placeholder"))

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the results, in order; of one that is no tensor, its text."""
        return tuple(map(str, self.returned))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the results that are the program's own."""
        return self.by_role("output")

    @property
    def returned(self) -> tuple[Any, ...]:
        """The results: nodes, or values that are no tensors."""
        results = self.output_node().args[0]
        assert isinstance(results, (tuple, list))
        return tuple(results)

    def by_role(self, role: str) -> tuple[str, ...]:
        """Return the names of the results with a role: `output`, `mutation`, `saved` or `gradient`."""
        return tuple(name for name, result_role in zip(self.results, self.roles, strict=True) if result_role == role)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the results for the tensors in these inputs, in whatever containers they are."""
        results: tuple[Any, ...] = self.module()(*self.arguments(inputs))
        return results

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> KernelGraph:
        copy = super().__deepcopy__(memo)
        copy.__class__ = KernelGraph
        copy.title, copy.roles, copy.own = self.title, self.roles, dict(self.own)
        copy.owning_module = self.owning_module
        return copy

    def module(self) -> fx.GraphModule:
        """Return a GraphModule that runs the graph."""
        return fx.GraphModule(self.owning_module or nn.Module(), self)

    def arguments(self, inputs: Sequence[Any]) -> list[Tensor]:
        """Return a tensor for each input: those of a call, and the program's own where it leaves them out."""
        tensors = pytree.tree_leaves(list(inputs))
        for leaf in tensors:
            if not isinstance(leaf, Tensor):
                raise UsageError(
                    f"{self.title}: {leaf!r:.80} is no tensor: pass tensors for {', '.join(self.inputs)}; other "
                    "arguments are constants of the graph"
                )
        required = [name for name in self.inputs if name not in self.own]
        distinct = list({id(leaf): leaf for leaf in tensors}.values())
        wanted = (len(self.inputs), len(required))
        if len(tensors) not in wanted and len(distinct) in wanted:  # a tensor that was passed twice is one input
            tensors = distinct
        names = self.inputs if len(tensors) == len(self.inputs) else required
        if len(tensors) != len(names):
            own = f", with or without its own {', '.join(self.own)}" if self.own else ""
            raise UsageError(f"{self.title}: {len(tensors)} tensors for the inputs {', '.join(required)}{own}")
        by_name = {**self.own, **dict(zip(names, tensors, strict=True))}
        return [by_name[name] for name in self.inputs]

    def as_graph(self) -> Graph:
        """Return the graph as a Graph of Backprint's, which has a text."""
        side = Side(self.module(), Names())
        inputs, saved = [], "saved" if "gradient" in self.roles else "input"
        for node in self.find_nodes(op="placeholder"):
            local = side.locals[node.name] = side.names.free(node.name)
            role = "tangent" if saved == "saved" and node.name.startswith("tangent_") else saved
            inputs.append(Port(str(node.target), role, spec_of(node.meta.get("val")), local))
        steps = side.steps(self.nodes, {node.name: (note_of(node), None) for node in self.nodes})
        inputs += [Port(name, "constant", spec_of(tensor), name) for name, (_, tensor) in side.constants.items()]
        outputs = tuple(
            Port(name, role, spec_of(result.meta.get("val")) if isinstance(result, fx.Node) else None)
            for name, role, result in zip(self.results, self.roles, self.returned, strict=True)
        )
        results = tuple(map(side.pack, self.returned))
        return Graph(tuple(inputs), tuple(steps), outputs, results, tuple(side.subgraphs.items()), title=self.title)

    def __str__(self) -> str:
        return str(self.as_graph())

    def __repr__(self) -> str:
        return (
            f"KernelGraph({self.title}: {self.steps()} steps, {len(self.inputs)} inputs, {len(self.results)} results)"
        )

    def steps(self) -> int:
        """Return how many operators it calls."""
        return sum(node.op == "call_function" for node in self.nodes)


class KernelPair(tuple[KernelGraph, KernelGraph]):
    """The forward and the backward as fx.Graphs: `forward, backward = pair`. `pair(*inputs)` runs the forward, and
    `pair.run(*inputs).backward(*tangents)` both; `print(pair)` shows both as code."""

    __slots__ = ()

    def __new__(cls, forward: KernelGraph, backward: KernelGraph) -> KernelPair:
        return super().__new__(cls, (forward, backward))

    def __getnewargs__(self) -> tuple[KernelGraph, KernelGraph]:
        return self.forward, self.backward

    @property
    def forward(self) -> KernelGraph:
        """The forward: it returns outputs, mutations, and what it saves."""
        return self[0]

    @property
    def backward(self) -> KernelGraph:
        """The backward: it takes what is saved, then a tangent for each differentiable output."""
        return self[1]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the program's own results."""
        return self.forward.outputs

    @property
    def saved(self) -> tuple[str, ...]:
        """The names of the values that the forward saves for the backward: the same in both graphs."""
        return self.forward.by_role("saved")

    @property
    def saved_bytes(self) -> int:
        """The bytes that live from the forward to the backward: storages of intermediate values, each once."""
        graph = self.forward.as_graph()
        storages, sizes = storages_of(graph)
        saved = {key for name in self.saved for key in each_storage(storages[name])}
        return sum(sizes[key] for key in saved - held_storages(graph, storages))

    def run(self, *inputs: Any) -> KernelRun:
        """Run the forward, and keep what it saves for the backward."""
        arguments = [tensor.detach() for tensor in self.forward.arguments(inputs)]
        with torch.enable_grad():  # some kernels compute what their backward needs only then
            values = self.forward(*arguments)
        values_by_role: dict[str, list[Any]] = {role: [] for role in ("output", "mutation", "saved")}
        for role, value in zip(self.forward.roles, values, strict=True):
            values_by_role[role].append(value)
        saved = dict(zip(self.saved, values_by_role["saved"], strict=True))
        return KernelRun(self, tuple(values_by_role["output"]), tuple(values_by_role["mutation"]), saved)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the program's own results for these inputs."""
        return self.run(*inputs).outputs

    def __str__(self) -> str:
        return f"{self.forward}\n\n{self.backward}"

    def __repr__(self) -> str:
        steps = f"{self.forward.steps()} steps forward, {self.backward.steps()} backward"
        return f"KernelPair({self.forward.title}: {steps}, {len(self.saved)} saved, {self.saved_bytes:,} bytes)"


@dataclass(frozen=True, slots=True, eq=False)
class KernelRun:
    """One run of a KernelPair's forward. `saved` has the saved tensors by name."""

    pair: KernelPair
    outputs: tuple[Any, ...]
    mutations: tuple[Any, ...]
    saved: Mapping[str, Any]

    def backward(self, *tangents: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of each input that requires grad, for the tangents of the differentiable outputs; without
        tangents, for ones."""
        graph = self.pair.backward
        wanted = [node for node in graph.find_nodes(op="placeholder") if node.name not in self.saved]
        grad_outputs = tangents or tuple(ones(node.meta["val"]) for node in wanted)
        if len(grad_outputs) != len(wanted):
            names = ", ".join(node.name for node in wanted)
            raise UsageError(
                f"{graph.title}: {len(grad_outputs)} tangents for {len(wanted)} differentiable outputs ({names})"
            )
        values = {**self.saved, **{node.name: value for node, value in zip(wanted, grad_outputs, strict=True)}}
        gradients: tuple[Tensor | None, ...] = graph(*(values[name] for name in graph.inputs))
        return gradients

    def __repr__(self) -> str:
        return f"KernelRun({self.pair.forward.title}: {len(self.outputs)} outputs, {len(self.saved)} saved)"


def ones(example: Tensor) -> Tensor:
    """Return ones of the size of a fake tensor."""
    return torch.ones(example.shape, dtype=example.dtype, device=example.device)


# ---- The two functions

DETACH = torch.ops.aten.detach.default


Partition = str | Callable[..., Any] | None


def inference_graph(fn: Callable[..., Any], inputs: Sequence[Any]) -> KernelGraph:
    """Return the forward of `fn(*inputs)` alone, as an fx.Graph of ATen operators."""
    program, traced = traced_call(fn, inputs, False)
    names = read_fx(program, traced).forward
    drop_detach(traced.forward.graph, lambda node: not may_carry_gradient(node.args[0]))
    order_outputs(traced.forward.graph, traced.outputs, saves=False)
    graph = copy_with_names(traced.forward, names)
    return set_facts(graph, program, "", roles_of_results(graph, traced, "output"))


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
        requiring_grad = [named.name for named in program.tensors if named.requires_grad]
        reason = f"none of them depends on {', '.join(requiring_grad)}" if requiring_grad else "no input requires grad"
        raise UsageError(f"{program.title} has no differentiable output ({reason}): there is no backward to return")
    read = read_fx(program, traced)
    order_outputs(traced.forward.graph, traced.outputs)
    keep_gradients(traced)
    saved_before = saved_nodes(traced)
    names = [node.name for node in saved_before]
    for module in (traced.forward, traced.backward):
        drop_detach(module.graph, lambda node: True)
    saved_after = dict(zip(names, saved_nodes(traced), strict=True))
    forward = copy_with_names(traced.forward, read.forward, unique=len(traced.outputs))
    grads = gradient_names(read.joint, read.joint.backward, names_of(read.joint))
    titles = {node: grads.get(local, local) for node, local in read.backward.items()}
    name_saved_inputs(
        traced.backward.graph, {name: read.forward[node.name] for name, node in saved_after.items()}, titles
    )
    set_facts(forward, program, "forward of ", roles_of_results(forward, traced, "saved"))
    backward = copy_with_names(traced.backward, titles)
    set_facts(backward, program, "backward of ", ("gradient",) * len(backward.results))
    return KernelPair(forward, backward)


def roles_of_results(graph: KernelGraph, traced: Traced, rest: str) -> tuple[str, ...]:
    """Return the role of each result: outputs, then mutations, as `order_outputs` has put them, then the rest."""
    roles = [role for wanted in ("output", "mutation") for _, role in traced.outputs if role == wanted]
    return (*roles, *[rest] * (len(graph.results) - len(roles)))


def set_facts(graph: KernelGraph, program: ScoutedProgram, side: str, roles: tuple[str, ...]) -> KernelGraph:
    """Set a graph's title, the roles of its results, and the program's own tensors; return the graph."""
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


def name_saved_inputs(graph: fx.Graph, saved: Mapping[str, str], names: dict[str, str]) -> None:
    """Give the backward's saved inputs their names in the forward, and merge inputs that occur twice."""
    first: dict[str, fx.Node] = {}
    used_names = {local for name, local in names.items() if name not in saved}
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
    used_names |= set(first)
    clashes = {name: local for name, local in names.items() if name not in saved and local in first}
    for name, local in clashes.items():
        names[name] = next(f"{local}_{index}" for index in range(1, 10**6) if f"{local}_{index}" not in used_names)
        used_names.add(names[name])


def traced_call(
    fn: Callable[..., Any], inputs: Sequence[Any], requires_grad: Any, partition: Partition = None
) -> tuple[ScoutedProgram, Traced]:
    """Trace a call; the caller's tensors and random state stay as they are."""
    if isinstance(inputs, Tensor) or not isinstance(inputs, Sequence):
        raise UsageError(f"inputs must be a tuple of arguments, not a {type(inputs).__name__}: write (x,)")
    program_called = read_call(fn, tuple(inputs), {}, flags_of_tensors(inputs, requires_grad))
    with preserving_random_states(), outside_modes(), restoring_state(program_called):
        program, seen = scout(program_called)
        traced = trace(program, seen, partition=partition)
    if not any(role == "output" for _, role in traced.outputs):
        raise UsageError(f"{program.title} returns no tensor, so it has no graph")
    return program, traced


def flags_of_tensors(inputs: Sequence[Any], requires_grad: Any) -> Any:
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


# ---- Outputs, detach nodes and names


def order_outputs(graph: fx.Graph, outputs: Sequence[tuple[str, str]], saves: bool = True) -> None:
    """Put the outputs first, then mutations, then saved values if the graph `saves` any, each once."""
    node = graph.output_node()
    returned = list(node.args[0])
    own_results, saved = returned[: len(outputs)], returned[len(outputs) :]
    in_order = [
        value
        for role in ("output", "mutation")
        for (_, role_), value in zip(outputs, own_results, strict=True)
        if role_ == role
    ]
    node.args = ((*in_order, *(saved if saves else ())),)


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


def may_carry_gradient(value: Any) -> bool:
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


def copy_with_names(module: fx.GraphModule, names: Mapping[str, str], unique: int | None = None) -> KernelGraph:
    """Return the graph with the program's names and no dead code; from `unique` on, each result once."""
    graph = KernelGraph(owning_module=module)
    module.graph.eliminate_dead_code()
    copies: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), copies.__getitem__)
        if node.op == "output":
            (results,) = args
            cut = len(results) if unique is None else unique
            copies[node] = graph.output((*results[:cut], *dict.fromkeys(results[cut:])))
        else:
            name = names.get(node.name, node.name)
            target = name if node.op == "placeholder" else node.target
            copies[node] = graph.create_node(node.op, target, args, kwargs, name)
        copies[node].meta = dict(node.meta)
    graph.lint()
    return graph
