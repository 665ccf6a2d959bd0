"""Convert fx graphs to Graphs: names, specs, sources, echoes. Anything unknown (a node, an argument, an operator) is
refused by name.

A *local* is the identifier of a value in the text of a Graph, a *spec* its type (dtype, shape, strides), a *source* the
line of the user's program that called an operator, and an *echo* how a step of a backward relates to the forward
(`gradient of mm_3`). A node of fx has an example value of its result in `meta["val"]`: a fake tensor, or a size.

Of the Side that is converted, `module` is the fx.GraphModule, `names` gives out locals that are not taken, `locals` has
the local of each node by the node's name, `constants` the tensors that become ports, and `subgraphs` the bodies of
higher-order operators, by their attribute of the module.
"""

from __future__ import annotations

import keyword
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import Tensor, fx

from backprint._torch.operators import HigherOrderOperator, OpOverload, name_of, schema_of
from backprint.errors import CaptureError
from backprint.graph.nouns import (
    HIGHER,
    RESERVED,
    Atom,
    Device,
    Dict,
    Echo,
    Graph,
    List,
    Op,
    Port,
    Ref,
    ScalarSpec,
    Slice,
    Source,
    Spec,
    Step,
    Sub,
    TensorSpec,
    Value,
)
from backprint.graph.operators import operators

PYTHON_FUNCTIONS = {
    getattr(module, name): f"{module.__name__}.{name}"
    for module, names in (
        (operator, "getitem add sub mul truediv floordiv mod pow neg pos abs eq ne lt le gt ge"),
        (operator, "and_ or_ xor not_ lshift rshift invert"),
        (torch, "sym_max sym_min sym_float sym_int sym_not sym_ite sym_sum"),
        (math, "ceil floor trunc sqrt log2 pow"),
    )
    for name in names.split()
}
"""Python functions that graphs of symbolic sizes call."""


@dataclass(slots=True)
class Names:
    """The locals used so far in one graph: unique, and none reserved. `numbers` has the last number of each stem."""

    used: set[str] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)

    def free(self, wanted: str, *, avoid: Collection[str] = ()) -> str:
        """Return the wanted name, with a number appended if needed. Names in `avoid` count as used."""
        stem = re.sub(r"\W", "_", wanted, flags=re.ASCII).strip("_") or "value"
        stem = f"_{stem}" if stem[0].isdigit() else stem
        stem = name = stem[:200]  # a local has at most 256 characters: a number still fits behind it
        while (
            name in self.used or name in RESERVED or name in avoid or keyword.iskeyword(name) or name.startswith("__")
        ):
            # Counted on from the last one: a graph may have thousands of `view`, and to try each number again would be
            # quadratic.
            self.numbers[stem] = self.numbers.get(stem, 0) + 1
            name = f"{stem}_{self.numbers[stem]}"
        self.used.add(name)
        return name


def target_name(target: Any) -> str:
    """Return the target of a Step for a callable of an fx node; CaptureError if a graph cannot hold it."""
    if isinstance(target, OpOverload):
        name = str(target)
        return name if name in operators() else f"torch.ops.{name}"
    if isinstance(target, HigherOrderOperator):
        name = f"torch.ops.higher_order.{name_of(target)}"
        if name not in HIGHER:
            raise CaptureError(f"the higher-order operator {name_of(target)!r} is not one that a graph can hold")
        return name
    if target in PYTHON_FUNCTIONS:
        return PYTHON_FUNCTIONS[target]
    raise CaptureError(
        f"{getattr(target, '__module__', '')}.{getattr(target, '__qualname__', target)} "
        "is not an operator that a graph can hold"
    )


def spec_of(value: Any) -> Spec:
    """Return the spec of an example value, as nodes of fx have it in `meta['val']`; None for a value of another
    type."""
    match value:
        case Tensor():
            return tensor_spec(value)
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return ScalarSpec(type(value).__name__, str(value.node.expr))
        case bool() | int() | float() | complex() | str():
            return ScalarSpec(type(value).__name__)
        case list() | tuple():
            return tuple(map(spec_of, value))
    return None


def tensor_spec(tensor: Tensor) -> TensorSpec:
    """Return a tensor's spec: dtype, shape, strides if not contiguous, device, and a layout that is not strided. Where
    it begins in its memory does not count: the offset is 0."""
    # [6:] cuts the `torch.` of `torch.float32`.
    dtype, device, layout = str(tensor.dtype)[6:], str(tensor.device), str(tensor.layout)[6:]
    shape = tuple(map(size_of, tensor.shape))
    if tensor.layout is not torch.strided:
        return TensorSpec(dtype, shape, stride=None, offset=0, device=device, layout=layout)
    stride = None if _has_contiguous_strides(tensor) else tuple(map(size_of, tensor.stride()))
    return TensorSpec(dtype, shape, stride, offset=0, device=device)


def _has_contiguous_strides(tensor: Tensor) -> bool:
    """Whether a tensor has the strides of a contiguous tensor of its shape, wherever no symbolic size is 0."""
    step: Any = 1  # the stride that this dimension must have, from the last one on
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        expression = _size_expression(stride)
        if expression != step and not _are_same_size(expression, step):
            return False
        # With `max`, as torch does, so that a size of 0 makes no stride of 0.
        step = step * (max(size, 1) if isinstance(size, int) else _size_expression(size))
    return True


def _are_same_size(left: Any, right: Any) -> bool:
    """Whether two sizes, numbers or expressions, are equal wherever no size is 0."""
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    # torch multiplies strides by Max(1, size), so that a size of 0 makes no stride of 0. Where no size is 0, that is
    # the size.
    without_maxima = sympy.sympify(left).replace(
        lambda part: type(part).__name__ == "Max" and len(part.args) == 2 and 1 in part.args,
        lambda maximum: next(argument for argument in maximum.args if argument != 1),
    )
    return bool(sympy.expand(without_maxima - right) == 0)


def _size_expression(size: Any) -> Any:
    """Return a size as a number, or as the sympy expression of a symbolic size: computing with that adds no guards to
    torch's ShapeEnv, as computing with a SymInt does."""
    if isinstance(size, int):
        return size
    return int(size.node.expr) if size.node.expr.is_Integer else size.node.expr


def size_of(size: Any) -> int | str:
    """Return a size as a number, or as the text of its expression."""
    size = _size_expression(size)
    return size if isinstance(size, int) else str(size)


def pack(value: Any, named: Callable[[fx.Node], Value] | None = None) -> Value:
    """Return an argument of an operator as a Value; `named` returns the Value of an fx node. CaptureError for a value
    of a type that a graph cannot hold, and for an fx node without `named`."""
    match value:
        # The arguments of an fx node are immutable_list and immutable_dict: subclasses, which match list and dict.
        case fx.Node() if named is not None:
            return named(value)
        case None | bool() | int() | str() | Ref():
            return value
        case float():
            # The one NaN object of `math`: tuples compare by identity first, so graphs that hold it can be equal.
            return math.nan if math.isnan(value) else value
        case complex():
            return value
        case torch.dtype() | torch.layout() | torch.memory_format():
            return Atom(str(value)[6:])  # without `torch.`
        case torch.device():
            return Device(str(value))
        case slice():
            return Slice(pack(value.start, named), pack(value.stop, named), pack(value.step, named))
        case list() | torch.Size():
            return List(tuple([pack(item, named) for item in value]))
        case tuple():
            return tuple([pack(item, named) for item in value])
        case dict():
            return Dict(tuple([(pack(key, named), pack(item, named)) for key, item in value.items()]))
        case OpOverload() | HigherOrderOperator():
            return Op(target_name(value))
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    raise CaptureError(f"an operator has an argument of type {kind}, which a graph cannot hold: {value!r:.80}")


@dataclass(slots=True)
class Side:
    """One direction (a forward or a backward) while it is converted from fx: `names` has the locals that are taken,
    `locals` the local of each fx node by the node's name, `constants` the tensors that become ports, each with the name
    of its port, by local, and `subgraphs` the bodies of higher-order operators, by the attribute of `module`."""

    module: fx.GraphModule
    names: Names
    locals: dict[str, str] = field(default_factory=dict)
    constants: dict[str, tuple[str, Tensor]] = field(default_factory=dict)
    subgraphs: dict[str, Graph] = field(default_factory=dict)

    def pack(self, value: Any) -> Value:
        """Return an fx argument as a Value."""
        return pack(value, self.named)

    def named(self, node: fx.Node) -> Value:
        """Return a node as a Value: a local, or a subgraph."""
        if node.op == "get_attr" and node.target in self.subgraphs:
            return Sub(str(node.target))
        return Ref(self.locals[node.name])

    def attribute(self, node: fx.Node) -> None:
        """Convert a get_attr node: a subgraph, which is put into `subgraphs`, or a constant that becomes a port, which
        is put into `constants`. CaptureError for anything else."""
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        if isinstance(value, fx.GraphModule):
            # `named` and the GraphModule itself find the subgraph under the name that it gets.
            node.target = self.hold(re.sub(r"\W", "_", str(node.target)), value)
        elif isinstance(value, Tensor) and type(value) not in (Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise CaptureError(
                f"the graph holds a {type(value).__name__} made while it ran, which a sample cannot keep"
            )
        elif isinstance(value, Tensor):
            local = self.names.free(node.name.lstrip("_"))  # fx calls it `_tensor_constant0`
            self.locals[node.name] = local
            self.constants[local] = (local, value)  # with the name of its port, which is the same
        else:
            raise CaptureError(f"the graph holds a {type(value).__name__} ({node.target}), which a sample cannot keep")

    def hold(self, wanted: str, module: fx.GraphModule) -> str:
        """Enter a subgraph under the wanted name, or with a number behind it, and return the name: two subgraphs share
        one only if they are equal."""
        graph, name, count = _subgraph(module), wanted, 0
        while self.subgraphs.get(name, graph) != graph:
            count += 1
            name = f"{wanted}_{count}"
        setattr(self.module, name, module)
        self.subgraphs[name] = graph
        return name

    def steps(self, nodes: Iterable[fx.Node], notes: Mapping[str, tuple[Source | None, Echo | None]]) -> list[Step]:
        """Return the calls among these nodes as Steps, in order; `notes` has the source and the echo of a node by its
        name, where they are known."""
        steps = []
        for node in nodes:
            if node.op == "get_attr":
                self.attribute(node)
            elif node.op == "call_function":
                steps.append(self.step_of_node(node, *notes.get(node.name, (None, None))))
            elif node.op not in ("placeholder", "output"):
                raise CaptureError(f"{node.op} {node.target} is not a call of an operator")
        return steps

    def step_of_node(self, node: fx.Node, source: Source | None, echo: Echo | None) -> Step:
        """Return the Step of a call_function node, with this source and echo; give the node a local."""
        target = target_name(node.target)
        args = tuple([self.pack(argument) for argument in node.args])
        kwargs = tuple([(key, self.pack(value)) for key, value in node.kwargs.items()])
        # A node may have a local already: a backward names what its forward saved.
        if node.name not in self.locals:
            self.locals[node.name] = self.names.free(self.preferred_name(node, args))
        return Step(self.locals[node.name], target, args, kwargs, spec_of(node.meta.get("val")), source, echo)

    def preferred_name(self, node: fx.Node, args: tuple[Value, ...]) -> str:
        """Return the preferred name of a step: fx's own, or for an item of a tuple the tuple's with the index."""
        if node.target is operator.getitem and isinstance(args[0], Ref) and type(args[1]) is int and args[1] >= 0:
            return f"{args[0].name}_{args[1]}"
        return node.name.lstrip("_") or node.name


def pin_dtypes(module: fx.GraphModule) -> None:
    """Write `dtype=` into the calls of factories (`torch.ones`) in an fx graph where the program had changed the
    default dtype; otherwise what the graph computes would depend on the default."""
    for node in module.graph.nodes:
        node.kwargs = node.kwargs | _pinned_dtypes_of(node)


def _pinned_dtypes_of(node: fx.Node) -> dict[str, torch.dtype]:
    """Return the keyword `dtype` for the call of a factory without one that made another dtype than today's default;
    nothing for any other call."""
    example = node.meta.get("val")
    # With tensors among its arguments, a call takes the dtype from them.
    if node.all_input_nodes or not isinstance(example, Tensor) or not isinstance(node.target, OpOverload):
        return {}
    usual = torch.get_default_dtype()
    # A factory without a dtype makes the default dtype, or the complex dtype of its size.
    is_usual = example.dtype in (usual, usual.to_complex())
    follows_default = example.is_floating_point() or example.is_complex()
    takes_dtype = any(argument.name == "dtype" for argument in schema_of(node.target).arguments)
    if is_usual or not follows_default or not takes_dtype or node.kwargs.get("dtype"):
        return {}
    return {"dtype": example.dtype}


def _subgraph(module: fx.GraphModule) -> Graph:
    """Return the body of a higher-order operator, such as a branch of `cond`, as a Graph."""
    side = Side(module, Names())
    ports = []
    for node in module.graph.find_nodes(op="placeholder"):
        side.locals[node.name] = side.names.free(node.name)
        ports.append(Port(str(node.target), "input", spec_of(node.meta.get("val")), side.locals[node.name]))
    steps = side.steps(module.graph.nodes, notes={})
    value = module.graph.output_node().args[0]
    returned = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    results = side.pack(returned)
    specs = [spec_of(part.meta.get("val")) if isinstance(part, fx.Node) else None for part in returned]
    outputs = tuple(Port(f"output.{index}", "output", spec) for index, spec in enumerate(specs))
    if side.constants:
        raise CaptureError(
            f"a subgraph holds the constant tensor {next(iter(side.constants))}, which a sample cannot keep"
        )
    return Graph(tuple(ports), tuple(steps), outputs, results, tuple(side.subgraphs.items()))  # type: ignore[arg-type]  # a tuple packs to a tuple
