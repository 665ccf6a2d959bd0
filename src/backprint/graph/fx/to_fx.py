"""Make a torch.fx.GraphModule of a Graph: it runs, can be traced again, and its nodes have the metadata that passes
use.

The `meta` of each node has `val` (a fake tensor, or a size, of one FakeTensorMode) and `tensor_meta`, from its
annotation, and `stack_trace`; also our own `port`, `spec`, `source` and `echo`. A guard is a call of a function below:
it raises GuardError on values, and where it is traced again becomes an assertion that stays in the graph.

An *annotation*, or *spec*, is the type of a value in the text of a Graph: dtype, shape, strides, device. The *source*
of a step is the line of the user's program that called the operator. `value_evaluator(env, subs)` (`values`) returns a
function that turns an argument of a step into one of an fx node, with the nodes in `env` and `subs` for the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from backprint._torch import shapes as torch_shapes
from backprint._torch.fake import FakeTensor, FakeTensorMode, FunctionalTensor
from backprint._torch.graphs import side_effectful, tensor_metadata, tracing_mode
from backprint._torch.shapes import DimDynamic, ShapeEnv, check_size
from backprint._torch.tensors import assert_async
from backprint.errors import BackprintError, GraphError
from backprint.graph.fx.values import check_guard, line_text, resolve, value_evaluator
from backprint.graph.nouns import Graph, Ref, ScalarSpec, Size, Spec, Step, Symbol, TensorSpec, refs
from backprint.graph.sizes import evaluate
from backprint.graph.steps import READING, used
from backprint.graph.text import show_step


def to_fx(graph: Graph, examples: Examples | None = None) -> fx.GraphModule:
    """Return a torch.fx.GraphModule that computes the same, node by node; the arguments of its calls are not
    checked. `examples` makes the fake values of nodes; by default new ones are made, for the symbols of the graph."""
    try:
        return _build_module(graph, examples or Examples(graph.symbols))
    except BackprintError:
        raise
    except Exception as error:  # a call with too few arguments, an operator where fx allows only values
        message = f"{type(error).__name__}: {str(error)[:200]}"
        raise GraphError(f"torch.fx cannot hold this graph, whose calls no run has checked: {message}") from error


def _build_module(graph: Graph, examples: Examples) -> fx.GraphModule:
    """Return a GraphModule of a Graph; raise whatever torch.fx raises. `examples` makes the fake values of nodes."""
    root, module_graph = nn.Module(), fx.Graph()
    for name, sub in graph.subgraphs:
        setattr(root, name, to_fx(sub, examples))
    env: dict[str, Any] = {}  # the node of each value so far, by name
    for port in graph.inputs:
        node = module_graph.create_node("placeholder", port.local, name=port.local)
        node.meta |= {"port": port, "spec": port.spec, **examples.meta(port.spec)}
        env[port.local] = node
    # After the placeholders, which fx expects first.
    subs = {name: module_graph.create_node("get_attr", name) for name, _ in graph.subgraphs}
    evaluate = value_evaluator(env, subs)
    read = _read_by_guards(graph)
    for step in graph.steps:
        # The guard gets the tensor instead of the number read from it: the read is left out.
        if step.name in read and not step.is_guard:
            env[step.name] = evaluate(step.args[0])
            continue
        node = _add_step(module_graph, step, evaluate)
        node.meta |= {"spec": step.spec, "source": step.source, "echo": step.echo, **examples.meta(step.spec)}
        if step.source is not None:
            # In the form of a Python traceback, as torch.fx has it.
            line = f'  File "{step.source.file}", line {step.source.line}, in {step.source.function}'
            node.meta["stack_trace"] = f"{line}\n    {step.source.code}\n"
        if not step.is_guard:
            env[step.name] = node
    module_graph.output(evaluate(graph.results)).meta["ports"] = graph.outputs
    return fx.GraphModule(root, module_graph)


def _add_step(graph: fx.Graph, step: Step, evaluate: Callable[[Any], Any]) -> fx.Node:
    """Add a step to an fx.Graph, and return its node. `evaluate` turns a Value into an argument of a node."""
    if step.is_guard:
        value, *expected = map(evaluate, step.args)
        args = (value, *expected, show_step(step), line_text(step.source))
        return graph.create_node("call_function", GUARDS[step.target], args, name=step.name)
    kwargs = {key: evaluate(value) for key, value in step.kwargs}
    return graph.create_node("call_function", resolve(step.target), evaluate(step.args), kwargs, name=step.name)


def _read_by_guards(graph: Graph) -> set[str]:
    """Return the names of the numbers that only guards use: the guard checks the tensor that they are read from
    instead.

    Where the module is traced again, a tensor has no number to read, and an assertion on the tensor stays in the graph.
    """
    guards: set[str] = set()
    others = {name for result in graph.results for name in refs(result)}
    for step in graph.steps:
        if step.is_guard:
            guards.update(used(step))
        else:
            others.update(used(step))
    # READING reads a number from a tensor, as `.item()` does.
    items = {step.name for step in graph.steps if step.target == READING and tuple(map(type, step.args)) == (Ref,)}
    return items & guards - others


# ---- What passes look for


class Examples:
    """Makes fake values for annotations, in one FakeTensorMode; symbolic sizes are SymInts of its own ShapeEnv."""

    def __init__(self, symbols: tuple[Symbol, ...]) -> None:
        shapes = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
        self.sizes: Mapping[str, Any] = {symbol.name: symbolic(shapes, symbol) for symbol in symbols}

    def meta(self, spec: Spec) -> dict[str, Any]:
        """Return `val` and, for tensors, `tensor_meta` for the metadata of a node with this annotation; nothing if the
        annotation is not enough."""
        try:
            value = self.value(spec)
        except GraphError:  # a size that depends on computed values, or a symbolic one on another device than the CPU
            return {}
        if value is None:
            return {}
        tensors = value if isinstance(value, tuple) else (value,)
        if not all(isinstance(tensor, Tensor) for tensor in tensors):
            return {"val": value}
        described = tuple(map(tensor_metadata, tensors))
        return {"val": value, "tensor_meta": described if isinstance(value, tuple) else described[0]}

    def value(self, spec: Spec) -> Any:
        """Return a fake value for an annotation; None if the annotation is not enough to make one."""
        match spec:
            case TensorSpec(layout="strided"):
                shape = [self.size(size) for size in spec.shape]
                strides = None if spec.stride is None else [self.size(size) for size in spec.stride]
                return self.tensor(spec, shape, strides)
            case ScalarSpec("SymInt", expression) if expression:
                return self.size(expression)
            case tuple():
                values = tuple(self.value(part) for part in spec)
                return None if any(value is None for value in values) else values
        return None

    def tensor(self, spec: TensorSpec, shape: list[Any], strides: list[Any] | None) -> Tensor:
        """Return a fake tensor of a spec, with its sizes as ints or SymInts in `shape` and `strides`, on its device,
        whether this machine has it or not. GraphError for symbolic sizes on another device than the CPU."""
        dtype = getattr(torch, spec.dtype)
        if any(not isinstance(size, int) for size in (*shape, *(strides or ()))):
            if spec.device != "cpu":
                raise GraphError("symbolic sizes on another device")
            with self.mode, torch.no_grad():
                example: Tensor = _empty(shape, strides, dtype, "cpu")
                return example
        # Around a meta tensor: no device is asked for memory, so this machine need not have it.
        return FakeTensor(self.mode, _empty(shape, strides, dtype, "meta"), torch.device(spec.device))

    def size(self, size: Size) -> Any:
        """Return a size as an int or a SymInt."""
        return evaluate(size, self.sizes)


def _empty(shape: list[Any], strides: list[Any] | None, dtype: Any, device: str) -> Tensor:
    """Return a tensor with these strides; contiguous if they are None."""
    if strides is None:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def symbolic(shapes: Any, symbol: Symbol) -> Any:
    """Return a SymInt for a symbol of the graph, with its value at capture as the hint."""
    source = torch_shapes.ConstantSource(symbol.name)  # looked up here, as that loads Dynamo
    created = shapes.create_symbol(symbol.hint, source, dynamic_dim=DimDynamic.DYNAMIC)
    return shapes.create_symintnode(created, hint=symbol.hint, source=source)


# ---- Guards


def assert_equal(value: Any, expected: Any, text: str = "", where: str = "") -> None:
    """Raise GuardError unless a number, or a tensor with one element, is `expected`; where the tensor is traced, add an
    assertion to what is traced. `text` is the guard and `where` the line of the program, for the message."""
    if not isinstance(value, Tensor):
        check_guard("assert_equal", value, expected, text, where)
    elif _is_traced(value):
        assert_async((value == expected).all(), f"guard `{text}` does not hold{where}")
    else:
        check_guard("assert_equal", value.item(), expected, text, where)


def assert_nan(value: Any, text: str = "", where: str = "") -> None:
    """Raise GuardError, or assert where it is traced, as `assert_equal` does, unless a number is NaN."""
    if not isinstance(value, Tensor):
        check_guard("assert_nan", value, expected=None, text=text, where=where)
    elif _is_traced(value):
        assert_async((value != value).all(), f"guard `{text}` does not hold{where}")
    else:
        check_guard("assert_nan", value.item(), expected=None, text=text, where=where)


def assert_shape(value: Any, expected: Any, text: str = "", where: str = "") -> None:
    """Raise GuardError unless a tensor has the `expected` shape. Where a size of it is symbolic, because it depends on
    values in what is traced, it is fixed to the guard's from here on."""
    if len(value.shape) == len(expected) and any(isinstance(size, torch.SymInt) for size in value.shape):
        for size, wanted in zip(value.shape, expected, strict=True):
            check_size(size == wanted)
        return
    check_guard("assert_shape", value, expected, text, where)


def _is_traced(value: Tensor) -> bool:
    """Whether a graph is being traced, so that this tensor has no values to read."""
    if torch.compiler.is_compiling():
        return True
    return isinstance(value, (FakeTensor, FunctionalTensor)) or value.is_meta or tracing_mode() is not None


GUARDS = {"assert_equal": assert_equal, "assert_nan": assert_nan, "assert_shape": assert_shape}
# Nothing uses the result of a guard: `eliminate_dead_code` of torch.fx would remove its node.
for _function in GUARDS.values():
    side_effectful.add(_function)
