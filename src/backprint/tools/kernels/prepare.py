"""A captured graph, prepared for a compiler and a target: ATen operators on fake tensors of the target's device.

The steps get an order that the results alone decide, so that equal graphs give equal kernels. Guards are left out: they
are a precondition of the kernels. Operators that only a CPU has (its attention, its LSTM) are written with common ones
on a GPU. Tensors that a forward saves may have another dtype or stride on the target than on the device of the capture,
so a forward is prepared first, and its backward takes the tensors that it saves.

Words of this file:

- target: what kernels are for (KernelTarget): a processor, or a GPU that need not be there.
- form: a function of common operators that stands for another operator.
- spec: the annotation of a port or step: TensorSpec (dtype, shape, stride, which may be symbolic or not known),
  ScalarSpec (a number, `expression` if it is computed of sizes), or None.
- symbols (Examples): makes the SymInts of a graph's symbolic sizes, in one FakeTensorMode; None for the captured sizes.
- effect: a step that is there for more than its result, as an assertion or a draw of random numbers.
- In an fx node, `meta["spec"]` is the annotation, and `meta["val"]` a fake tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx

from backprint._torch import pytree
from backprint._torch.fake import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from backprint._torch.graphs import make_fx
from backprint._torch.operators import OpOverload, schema_if_any
from backprint.errors import BackprintError, RefusedError, is_defect
from backprint.graph.canonical import is_effect, mutated
from backprint.graph.fx.to_fx import Examples, to_fx
from backprint.graph.nouns import Graph, Port, ScalarSpec, Step, TensorSpec, Value, refs
from backprint.graph.sizes import at_example_sizes, evaluate, example_sizes, known
from backprint.tools.kernels.nouns import KernelTarget
from backprint.tools.lowering.operators import replace_views

# ------------------------------------------------------------------ the order of steps


def in_canonical_order(graph: Graph) -> Graph:
    """Return the graph with its effects in their order, and then the other steps, depth first from its results.

    Guards and steps that nothing needs are left out. A graph that writes into tensors keeps its order, because a read
    must not move past a write.
    """
    steps = {step.name: step for step in graph.steps if not step.is_guard}
    if any(mutated(step) for step in steps.values()):
        return replace(graph, steps=tuple(steps.values()))
    ordered: dict[str, Step] = {}
    roots = [step.name for step in steps.values() if is_effect(step)]
    for name in (*roots, *(name for result in graph.results for name in refs(result))):
        _add_after_inputs(name, steps, ordered)
    return replace(graph, steps=tuple(ordered.values()))


def _add_after_inputs(name: str, steps: Mapping[str, Step], ordered: dict[str, Step]) -> None:
    """Add a step after the steps whose values it uses. The stack replaces recursion: graphs have thousands of steps."""
    waiting = [(name, False)]
    while waiting:
        name, inputs_added = waiting.pop()
        if name in ordered or name not in steps:
            continue
        step = steps[name]
        if inputs_added:
            ordered[name] = step
            continue
        waiting.append((name, True))
        values: list[Value] = [*step.args, *(value for _, value in step.kwargs)]
        waiting.extend((name, False) for value in reversed(values) for name in reversed(list(refs(value))))


# ------------------------------------------------------------------ sizes that depend on values
#
# A capture holds a size that depends on values by a guard, so the kernels are right wherever the guards hold. `nonzero`
# becomes `nonzero_static`, whose result has a given size; selections by a mask become selections by the mask's places.

aten = torch.ops.aten

MASKS = ("bool", "uint8")
"""Dtypes of an index that is a mask and not places."""


def use_captured_sizes(module: fx.GraphModule) -> str:
    """Replace the operators in SIZED_FORMS by functions that take the shape that the result had at capture; return a
    note that names them, or ''. An index without a mask has no size that depends on values, and stays."""
    operators: dict[str, None] = {}  # a set that keeps the order
    for node in module.graph.nodes:
        spec = node.meta.get("spec")
        if node.op == "call_function" and node.target in SIZED_FORMS and isinstance(spec, TensorSpec):
            if node.target is aten.index.Tensor and not _has_one_mask(node):
                continue
            operators[str(node.target)] = None
            node.target, node.kwargs = SIZED_FORMS[node.target], {**node.kwargs, "shape": tuple(map(int, spec.shape))}
    module.recompile()
    return f"{', '.join(operators)}: the size is that of the capture, which its guards hold" if operators else ""


def _has_one_mask(node: fx.Node) -> bool:
    """Whether a mask is the only index of a call, but for indices of one element, which broadcast: then the result's
    shape says how many places the mask has."""
    specs = [argument.meta.get("spec") for argument in node.args[1] if isinstance(argument, fx.Node)]
    kinds = [spec.dtype in MASKS for spec in specs if isinstance(spec, TensorSpec) and math.prod(spec.shape) != 1]
    return kinds == [True]


def nonzero(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the places that are not zero: `shape[0]` of them."""
    return aten.nonzero_static(value, size=shape[0])


def masked_select(value: Tensor, mask: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the values at the places of a mask: `shape[0]` of them."""
    value, mask = torch.broadcast_tensors(value, mask)
    return value.reshape(-1)[nonzero(mask.reshape(-1), shape).squeeze(1)]


def index(value: Tensor, indices: Sequence[Tensor | None], shape: Sequence[int]) -> Tensor:
    """Return the values at indices, with the places of the mask among them, one index for each of its dimensions, in
    the place of the mask. `shape` is the result's at capture: it says how many places the mask has."""
    positions: list[Tensor | None] = []
    for one_index in indices:
        if one_index is not None and one_index.dtype in (torch.bool, torch.uint8):
            positions += nonzero(one_index, [shape[_first_indexed(indices)]]).unbind(1)
        else:
            positions.append(one_index)
    return aten.index.Tensor(value, positions)


def _first_indexed(indices: Sequence[Tensor | None]) -> int:
    """Return the dimension of a result in which the indices' own dimensions begin: that of the first index, and 0 if
    the indices are not next to one another, as in NumPy."""
    positions = [place for place, one_index in enumerate(indices) if one_index is not None]
    return positions[0] if positions[-1] - positions[0] == len(positions) - 1 else 0


def repeat_interleave(repeats: Tensor, shape: Sequence[int], output_size: int | None = None) -> Tensor:
    """Return each place as often as `repeats` says, `shape[0]` in all; `output_size` of the call is not needed."""
    return aten.repeat_interleave.Tensor(repeats, output_size=shape[0])


SIZED_FORMS: Mapping[Any, Callable[..., Tensor]] = MappingProxyType(
    {
        aten.nonzero.default: nonzero,
        aten.masked_select.default: masked_select,
        aten.index.Tensor: index,
        aten.repeat_interleave.Tensor: repeat_interleave,
    }
)
"""Operator -> a function that computes it with the shape of its result as a further argument."""


# ------------------------------------------------------------------ the graph on a target


def bernoulli(value: Tensor, p: float = 0.5) -> Tensor:
    """Return ones and zeros in the dtype of the argument: torch's own decomposition returns booleans, and eager does
    not."""
    return (torch.rand_like(value, dtype=torch.float32) < p).to(value.dtype)


RANDOM_FORMS: Mapping[Any, Any] = {aten.bernoulli.p: bernoulli}
"""Operators that draw, with results of eager's dtype."""


NUMBER_KINDS: Mapping[str, Callable[[Any], int | float | bool]] = {"SymInt": int, "SymFloat": float, "SymBool": bool}
"""Kinds of numbers in a ScalarSpec, which are computed of sizes -> Python's types."""


@dataclass(frozen=True, slots=True)
class PortLayout:
    """The dtype, shape and strides of a tensor on a target."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PreparedGraph:
    """A graph of ATen operators for a target, its inputs (fake tensors of `mode`, or numbers), and notes on its
    changes."""

    module: fx.GraphModule
    inputs: Sequence[Any]
    mode: FakeTensorMode
    saved: Mapping[str, PortLayout]
    """Of a forward: each saved tensor as it is on the target."""
    notes: tuple[str, ...] = ()


def prepare_graph(
    graph: Graph,
    target: KernelTarget,
    forms: Mapping[Any, Any],
    saved: Mapping[str, PortLayout] | None = None,
    symbols: Examples | None = None,
) -> PreparedGraph:
    """Prepare a graph for a target; `forms` has what stands for operators that only a CPU has, and `saved` the layouts
    on the target of the tensors that the graph's forward saves.

    Sizes are those of the capture. With `symbols`, they stay symbolic: the graph is then prepared for all sizes.
    """
    from backprint._torch.inductor import load_inductor, select_decompositions

    load_inductor("lowering")  # what follows needs it, and does not load it

    sizes, sized_graph = ({}, graph) if symbols else (example_sizes(graph), at_example_sizes(graph))
    module = to_fx(in_canonical_order(sized_graph), symbols)
    device = torch.device("cuda", 0) if target.device == "cuda" else torch.device("cpu")
    remarks = _sizes_note(sizes), _guards_note(graph), move_to_device(module, device), use_captured_sizes(module)
    notes = [note for note in remarks if note]
    rewritten = sorted({str(node.target) for node in module.graph.nodes if node.target in forms})
    notes += [f"{name} is written with other operators" for name in rewritten]
    _draw_into_new_tensors(module)
    replace_views(module)  # results on the target, and those of a form, may have other strides
    _name_sources(module)
    # An operator without a rule for fake tensors may run on zeros, where that needs no GPU.
    shape_env = symbols.mode.shape_env if symbols else None
    mode = FakeTensorMode(
        allow_non_fake_inputs=True, allow_fallback_kernels=target.device == "cpu", shape_env=shape_env
    )
    decompositions = {**select_decompositions(), **(RANDOM_FORMS if target.device == "cuda" else {}), **forms}

    def input_of(port: Port) -> Any:
        """Return an input of the graph on the target."""
        if symbols:
            return _symbolic_input(port, device, saved or {}, symbols)
        return _fake_input(port, device, saved or {}, sizes)

    # `_name_sources` put the names of steps into the metadata of nodes, which new nodes get
    with mode, torch.no_grad(), fx.traceback.preserve_node_meta():
        inputs = [input_of(port) for port in sized_graph.inputs]
        # "real": the inputs are fake already
        trace = make_fx(TracingInterpreter(module).run, decomposition_table=decompositions, tracing_mode="real")
        lowered = trace(*inputs)
    return PreparedGraph(lowered, inputs, mode, _saved_layouts(graph, lowered), tuple(notes))


class TracingInterpreter(fx.Interpreter):
    """Runs a graph on fake tensors; raises RefusedError for an operator that does not run on the target's."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.extra_traceback = False  # the message has the node

    def run_node(self, n: fx.Node) -> Any:
        """Run a node; raise RefusedError with the node's name in the place of an error."""
        call_text = f"{operator_of(n)} ({n.name})"
        try:
            return super().run_node(n)
        except BackprintError:
            raise
        except (DynamicOutputShapeException, DataDependentOutputException) as error:
            raise RefusedError(
                f"{call_text}: its result has a size or a value that depends on values, and no form with the "
                "size of the capture here: compute it outside of what is captured"
            ) from error
        except UnsupportedOperatorException as error:
            raise RefusedError(
                f"{call_text} has no rule for the sizes and strides of its results on the target: "
                "capture the program without it"
            ) from error
        except Exception as error:  # what an operator asks of a device is in its own code
            if is_defect(error):
                raise
            message = str(error).strip().partition("\n")[0][:300]
            raise RefusedError(
                f"{call_text} does not run on the target's tensors: {type(error).__name__}: {message}; capture "
                "the program on such a device, or extract for another target"
            ) from error


def operator_of(node: fx.Node) -> str:
    """Return the name of the operator that a node calls, or of the function that stands for it."""
    return str(node.target) if isinstance(node.target, OpOverload) else getattr(node.target, "__name__", "")


def _name_sources(module: fx.GraphModule) -> None:
    """Name each node as the source of the nodes that it is decomposed into: `steps_of` in inductor reads the names
    back."""
    for node in module.graph.nodes:
        if node.op == "call_function":
            # those nodes get all of this, and a spec would be another node's
            node.meta = {name: value for name, value in node.meta.items() if name == "stack_trace"}
            node.meta["source_fn_stack"] = [(node.name, node.target)]


FUNCTIONAL: Mapping[Any, Any] = {
    aten.bernoulli_.float: aten.bernoulli.p,
    aten.uniform_.default: aten.uniform.default,
    aten.normal_.default: aten.normal_functional.default,
    aten.exponential_.default: aten.exponential.default,
}
"""Draws into a tensor -> draws that return a new one."""

DEFAULT_ARGUMENTS: Mapping[Any, tuple[float, ...]] = {aten.bernoulli_.float: (0.5,)}
"""Arguments that a call may leave out, but not a call of the operator in FUNCTIONAL: the probability."""


ALLOCATING_OPERATORS = frozenset(
    "clone empty empty_like empty_strided new_empty zeros zeros_like new_zeros ones ones_like full full_like".split()
)
"""Operators whose result is a new tensor: nothing else has its memory."""


def _draw_into_new_tensors(module: fx.GraphModule) -> None:
    """Replace draws into a tensor, under a saved random state, by draws that return a new tensor; refuse those whose
    tensor was there before.

    Inductor takes the result of such a call for a new tensor, and reuses the memory of its argument.
    """
    with_state, saving_state = torch.ops.higher_order.run_with_rng_state, torch.ops.higher_order.run_and_save_rng_state
    # where the operator is: the arguments are (state, operator, tensor, ...) under a saved state, and
    # (operator, tensor, ...) where the state is saved
    operator_positions = {with_state: 1, saving_state: 0}
    order = {node: index for index, node in enumerate(module.graph.nodes)}
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target not in operator_positions:
            continue
        operator, base, *rest = node.args[operator_positions[node.target] :]  # base: the tensor that is drawn into
        if not getattr(schema_if_any(operator), "is_mutable", False):
            continue  # it returns a new tensor already
        others = [user for user in base.users if user is not node]
        base_operator = operator_of(base).removeprefix("aten.").partition(".")[0]
        is_new = base.op == "call_function" and base_operator in ALLOCATING_OPERATORS
        is_read_before = any(order[user] < order[node] for user in others)
        # a draw that saves its state returns that too, so it cannot stand for the tensor
        if node.target is saving_state or operator not in FUNCTIONAL or not is_new or is_read_before:
            raise RefusedError(
                f"{operator} ({node.name}) draws into a tensor that was there before, with a random state that is "
                "kept: capture the program without it"
            )
        node.args = (node.args[0], FUNCTIONAL[operator], base, *(rest or DEFAULT_ARGUMENTS.get(operator, ())))
        for user in others:  # what read the tensor after the draw reads the draw
            user.replace_input_with(base, node)
    module.recompile()


def _sizes_note(sizes: Mapping[str, int]) -> str:
    """Return a note with the sizes for which a graph with symbols is lowered; '' if it has none."""
    if not sizes:
        return ""
    return f"sizes are those of the capture: {', '.join(f'{name} = {size}' for name, size in sizes.items())}"


def _guards_note(graph: Graph) -> str:
    """Return a note with the number of guards, which the kernels do not check; '' if there are none."""
    count = sum(step.is_guard for step in graph.steps)
    return f"{count} guards are left out: check them before these kernels are called" if count else ""


def move_to_device(module: fx.GraphModule, device: torch.device) -> str:
    """Make a graph create its tensors on a device; return a note with the number of calls that named another, or ''."""
    count = 0
    for node in module.graph.nodes:
        args, kwargs = pytree.tree_map(lambda value: on_device(value, device), (node.args, dict(node.kwargs)))
        count += (args, kwargs) != (node.args, dict(node.kwargs))
        node.args, node.kwargs = args, kwargs
    module.recompile()
    return f"{count} calls make their tensors on {device.type}" if count else ""


def on_device(value: Any, device: torch.device) -> Any:
    """Return the device for another device than meta; other values as they are."""
    return device if isinstance(value, torch.device) and value.type != "meta" else value


def _fake_input(port: Port, device: torch.device, saved: Mapping[str, PortLayout], sizes: Mapping[str, int]) -> Any:
    """Return an input of a graph as a fake tensor on the device, or as a number if it is one that sizes make; refuse
    others."""
    spec = port.spec
    if isinstance(spec, ScalarSpec) and spec.kind in NUMBER_KINDS and spec.expression and known(spec.expression, sizes):
        return NUMBER_KINDS[spec.kind](evaluate(spec.expression, sizes))
    if isinstance(spec, ScalarSpec) or spec is None:
        raise RefusedError(f"input {port.name} is {'a number' if spec else 'None'}: kernels take tensors only")
    if not isinstance(spec, TensorSpec):
        raise RefusedError(f"input {port.name} is no tensor: {spec!r:.80}")
    if port.role == "saved" and port.name in saved:
        layout = saved[port.name]
        return torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=device)
    shape, dtype = tuple(map(int, spec.shape)), getattr(torch, spec.dtype)
    if spec.stride is None:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.empty_strided(shape, tuple(map(int, spec.stride)), dtype=dtype, device=device)


def _symbolic_input(port: Port, device: torch.device, saved: Mapping[str, PortLayout], symbols: Examples) -> Any:
    """Return an input of a graph with symbolic sizes: a fake tensor on the device, or a size; refuse others."""
    spec = port.spec
    if isinstance(spec, ScalarSpec) and spec.kind == "SymInt" and spec.expression:
        return symbols.size(spec.expression)
    if not isinstance(spec, TensorSpec):
        raise RefusedError(f"input {port.name} is no tensor: {spec!r:.80}")
    shape = [*map(symbols.size, spec.shape)]
    stride = spec.stride and [*map(symbols.size, spec.stride)]  # None: not known; () of a tensor of no dimensions
    dtype = getattr(torch, spec.dtype)
    if port.role == "saved" and port.name in saved:
        layout = saved[port.name]
        shape, stride, dtype = list(layout.shape), list(layout.stride), layout.dtype
    if stride is None:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.empty_strided(shape, stride, dtype=dtype, device=device)


def _saved_layouts(graph: Graph, lowered: fx.GraphModule) -> dict[str, PortLayout]:
    """Return the tensors that a forward saves, as they are on the target."""
    (results,) = lowered.graph.output_node().args
    layouts = {}
    for port, result in zip(graph.outputs, results, strict=True):
        value = result.meta.get("val") if isinstance(result, fx.Node) else None
        if port.role == "saved" and isinstance(value, Tensor):
            layouts[port.name] = PortLayout(value.dtype, tuple(value.shape), tuple(value.stride()))
    return layouts
