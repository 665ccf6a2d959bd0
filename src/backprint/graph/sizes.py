"""Symbolic sizes: their expressions, the sizes that shapes imply, and graphs at given sizes or on another device.

An expression is parsed with `ast` and evaluated by the tables below; nothing of it is run as Python. Anything that is
not in a table is refused by name, and so is a number that is too large for a size.

A *size* is a number, or the text of an expression of *symbols*, such as `s0 + 1`; `sizes` has the value of each symbol.
A *spec* is the type of a value: a TensorSpec has sizes in its shape, strides and offset, and a ScalarSpec one
expression, if it is the type of a size. `mapped(step, among(values))` (`steps`) is a step in which `values` stand for
the names among its arguments, and `with_names` the same for one argument; other names stay. `without_dead_code` leaves
out the steps that no result needs.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from backprint.errors import GraphError, RefusedError
from backprint.graph.nouns import (
    Atom,
    Device,
    Graph,
    Leaf,
    List,
    Port,
    Ref,
    ScalarSpec,
    Size,
    Spec,
    Step,
    Symbol,
    TensorSpec,
    Value,
    check_expression,
    leaves,
)
from backprint.graph.steps import among, free, mapped, mapped_leaves, with_names, without_dead_code

# ---- Expressions


Number = int | float | bool
"""What an expression of sizes may evaluate to; a condition to a bool."""

Sizes = Mapping[str, int]
"""The values of symbols, by name."""

MAX_NUMBER = 2**128
"""The largest number that is met on the way to a size."""

MAX_POWER = 128
"""The largest exponent of an expression."""


def _bounded_power(base: Number, exponent: Number) -> Number:
    """Return a power; raise if the exponent or the result is larger than a size can need."""
    if abs(exponent) > MAX_POWER:
        raise GraphError(f"an exponent of {exponent} is not an exponent of a size")
    return base**exponent


BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _bounded_power,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
UNARY: Mapping[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.not_,  # as conditions are printed: ~(s0 > 3)
}
COMPARE: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Max": max,
    "Min": min,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "CeilDiv": lambda left, right: -(-left // right),
    "ModularIndexing": lambda base, divisor, modulus: base // divisor % modulus,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "PowByNatural": _bounded_power,
    "FloatPow": _bounded_power,
    "ToFloat": float,
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "TruncToInt": math.trunc,
    "RoundToInt": round,
    "TruncToFloat": lambda number: float(math.trunc(number)),
    "OpaqueUnaryFn_sqrt": math.sqrt,
    "OpaqueUnaryFn_log2": math.log2,
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceiling": math.ceil,
    "Abs": abs,
    "Identity": lambda number: number,
    "Where": lambda condition, left, right: left if condition else right,
    "Eq": operator.eq,
    "Ne": operator.ne,
    "And": lambda *conditions: all(conditions),
    "Or": lambda *conditions: any(conditions),
    "Not": operator.not_,
}
"""What sizes may be computed with, as torch and sympy call it."""


INFINITE = ("inf", "int_oo")
"""How sympy and torch print a bound that is infinite."""


def evaluate(size: Size, sizes: Sizes) -> Number:
    """Return the value of a size or a condition where symbols have these values; GraphError if it has none there, or
    its subclass RefusedError for an expression that is not read."""
    if type(size) is int:
        return size
    try:
        return _value(_parsed(str(size)), sizes)
    except GraphError as error:
        raise type(error)(f"{size!r:.80}: {error}") from None
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise GraphError(
            f"{size!r:.80} has no value for {sizes_in_words(sizes)}: {type(error).__name__}: {error}"
        ) from None


def sizes_in_words(sizes: Sizes) -> str:
    """Return sizes as text: `s0 = 4, s1 = 6`."""
    return ", ".join(f"{name} = {size}" for name, size in sizes.items()) or "no sizes"


@functools.lru_cache(4096)
def _parsed(text: str) -> ast.expr:
    """Return Python's tree of an expression of sizes."""
    check_expression(text)
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise RefusedError(f"no expression of sizes ({type(error).__name__})") from None


def _value(node: ast.expr, sizes: Sizes) -> Number:
    """Return the value of a parsed expression, by the tables above."""
    match node:
        case ast.Constant(value=int() | float() as value):
            total: Number = value
        case ast.Name(id=name) if name in sizes:
            total = sizes[name]
        case ast.Name(id=name) if name in INFINITE:
            total = math.inf
        case ast.Name(id=name):
            raise GraphError(f"no size is known for {name!r:.80}")
        case ast.BinOp(left, op, right) if type(op) in BINARY:
            total = BINARY[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.UnaryOp(op, operand) if type(op) in UNARY:
            total = UNARY[type(op)](_value(operand, sizes))
        case ast.Compare(left, ops, rights) if all(type(op) in COMPARE for op in ops):
            # As Python chains them, `a < b < c`: the last value begins no pair, so it is one more than the operators.
            values = [_value(side, sizes) for side in (left, *rights)]
            total = all(COMPARE[type(op)](*pair) for op, *pair in zip(ops, values, values[1:], strict=False))
        case ast.Call(ast.Name(id=name), args, []) if name in FUNCTIONS:
            total = FUNCTIONS[name](*[_value(argument, sizes) for argument in args])
        case _:
            raise RefusedError(f"{ast.unparse(node)!r:.40} is not allowed in an expression of sizes")
    if isinstance(total, int) and not -MAX_NUMBER <= total <= MAX_NUMBER:
        raise GraphError(f"a number of {total.bit_length()} bits is not a size")
    return total


# ---- Which sizes some shapes imply

_NAME = re.compile(r"[A-Za-z_]\w*")


def names_in(size: Size) -> Iterator[str]:
    """Yield all names in an expression: of symbols, and of functions such as `Max`."""
    return (match[0] for match in _NAME.finditer(size)) if isinstance(size, str) else iter(())


def known(size: Size, sizes: Sizes) -> bool:
    """Whether every symbol of an expression has a value among these sizes."""
    return all(name in sizes or name in FUNCTIONS or name in INFINITE for name in names_in(size))


def may_equal(size: Size, now: float, sizes: Sizes) -> bool:
    """Whether a size, a number or an expression of symbols, is `now`. True if `sizes` does not have every symbol of the
    expression, and False if it has no value there, as where it divides by 0."""
    if type(size) is int:
        return size == now
    try:
        return not known(size, sizes) or evaluate(size, sizes) == now
    except GraphError:
        return False


def implied_sizes(seen: Iterable[tuple[Size, int]]) -> dict[str, int]:
    """Return the values of symbols, from sizes of specs with the numbers that real tensors have there (`seen`). Only a
    size that is a symbol by itself tells its value; of several, the first one counts."""
    values: dict[str, int] = {}
    for size, value in seen:
        if isinstance(size, str) and size.isidentifier():
            values.setdefault(size, value)
    return values


def symbol_out_of_range(symbols: Sequence[Symbol], sizes: Sizes) -> Symbol | None:
    """Return the first symbol whose value is not in its range; None if all are. A symbol is not looked at if its value,
    or a symbol in a bound of its range, is not among `sizes`."""
    for symbol in symbols:
        if all(known(size, sizes) for size in (symbol.name, symbol.low, symbol.high)):
            low, high = evaluate(symbol.low, sizes), evaluate(symbol.high, sizes)
            if not low <= sizes[symbol.name] <= high:
                return symbol
    return None


# ---- Graphs


def example_sizes(graph: Graph) -> dict[str, int]:
    """Return the value that each symbol of a graph had at capture."""
    return {symbol.name: symbol.hint for symbol in graph.symbols}


def spec_at(spec: Spec, sizes: Sizes) -> Spec:
    """Return a spec with numbers for sizes; a size that cannot be evaluated stays as it is."""

    def number(size: Size) -> Size:
        return int(evaluate(size, sizes)) if known(size, sizes) else size

    return _map_spec(spec, number)


def at_example_sizes(graph: Graph) -> Graph:
    """Return the graph with the sizes it had at capture; without symbols, itself. Its ports and steps stay;
    `with_constant_sizes` replaces sizes that are values of the graph by constants, too."""
    if not graph.symbols:
        return graph
    sizes = example_sizes(graph)
    return replace(_with_specs(graph, lambda spec: spec_at(spec, sizes)), symbols=())


def with_symbols(graph: Graph, symbols: Sequence[Symbol], names: Mapping[str, str]) -> Graph:
    """Return the graph with its symbols renamed by `names`, and those of `symbols`, which have the new names, declared
    that it uses; the same in its subgraphs."""
    if not symbols:
        return graph

    def called(size: Size) -> Size:
        """Return a size, or an expression of a scalar, with the new names."""
        return _NAME.sub(lambda match: names.get(match[0], match[0]), size) if isinstance(size, str) else size

    renamed = _with_specs(graph, lambda spec: _map_spec(spec, size=called, scalar=called))
    subgraphs = tuple((name, with_symbols(sub, symbols, names)) for name, sub in graph.subgraphs)
    used = set(_names_in_specs(renamed)) | {name for _, sub in subgraphs for name in _names_in_specs(sub)}
    declared = tuple(symbol for symbol in symbols if symbol.name in used)
    return replace(renamed, subgraphs=subgraphs, symbols=declared)


def _names_in_specs(graph: Graph) -> Iterator[str]:
    """Yield the names in the sizes of a graph's specs."""

    def look(spec: Spec) -> Iterator[str]:
        """Yield the names in the sizes of one spec."""
        match spec:
            case TensorSpec(_, shape, stride, offset):
                for size in (*shape, *(stride or ()), offset):
                    yield from names_in(size)
            case ScalarSpec(_, expression):
                yield from names_in(expression)
            case tuple():
                for part in spec:
                    yield from look(part)

    specs = (*(port.spec for port in (*graph.inputs, *graph.outputs)), *(step.spec for step in graph.steps))
    for spec in specs:
        yield from look(spec)


def _map_spec(spec: Spec, size: Callable[[Size], Size], scalar: Callable[[Size], Size] = lambda text: text) -> Spec:
    """Return a spec with `size` applied to each size of a tensor, and `scalar` to the expression of a scalar, which by
    default stays. A tensor without symbolic sizes is returned as it is."""
    match spec:
        case TensorSpec(_, shape, stride, offset) if any(
            isinstance(number, str) for number in (*shape, *(stride or ()), offset)
        ):
            strides = None if stride is None else tuple(map(size, stride))
            return replace(spec, shape=tuple(map(size, shape)), stride=strides, offset=size(offset))
        case ScalarSpec(_, expression) if expression:
            return replace(spec, expression=str(scalar(expression)))
        case tuple():
            return tuple(_map_spec(part, size, scalar) for part in spec)
    return spec


def _with_specs(graph: Graph, function: Callable[[Spec], Spec]) -> Graph:
    """Return a graph with a function from a spec to a spec applied to every spec, except those of its subgraphs."""

    def new_port(was: Port) -> Port:
        return replace(was, spec=function(was.spec))

    def new_step(was: Step) -> Step:
        return was if was.spec is None else replace(was, spec=function(was.spec))

    inputs, outputs = tuple(map(new_port, graph.inputs)), tuple(map(new_port, graph.outputs))
    return replace(graph, inputs=inputs, steps=tuple(map(new_step, graph.steps)), outputs=outputs)


# ---- Graphs at the sizes of their capture
# A graph that is taken out of its Capture (another tool's sample, a part of a split) has one set of sizes, and no
# caller who would pass sizes. Numbers that are read from a tensor's values (`.item()`) stay steps.


def with_constant_sizes(graph: Graph) -> Graph:
    """Return the graph with every size that it takes or computes as a constant, so without these inputs and steps, and
    without guards on them; other values stay."""
    sizes = example_sizes(graph)
    constants: dict[str, Value] = {}

    def learn(name: str, spec: Spec) -> bool:
        """Note the value of the size `name` in `constants`, if its spec has an expression of known symbols; return
        whether the name is there."""
        if isinstance(spec, ScalarSpec) and spec.expression and known(spec.expression, sizes):
            constants[name] = evaluate(spec.expression, sizes)
        return name in constants

    ports = [port for port in graph.inputs if not learn(port.local, port.spec)]
    inputs = tuple(replace(port, spec=spec_at(port.spec, sizes)) for port in ports)
    steps: list[Step] = []
    for step in graph.steps:
        if not step.is_guard and learn(step.name, step.spec):
            continue
        mapped_step = mapped(step, among(constants))
        # A guard on a size that is a constant now held at capture, so it holds.
        if not step.is_guard or type(mapped_step.args[0]) is Ref:
            steps.append(replace(mapped_step, spec=spec_at(step.spec, sizes)))
    outputs = tuple(replace(port, spec=spec_at(port.spec, sizes)) for port in graph.outputs)
    results = tuple(with_names(result, among(constants)) for result in graph.results)
    return replace(graph, inputs=inputs, steps=tuple(steps), outputs=outputs, results=results, symbols=())


def with_guarded_constants(graph: Graph) -> Graph:
    """Return the graph in which a number that a guard fixes (`assert n == 3`) is that constant, from the guard on."""
    constants: dict[str, Value] = {}
    steps = []
    for step in graph.steps:
        steps.append(step if step.is_guard else mapped(step, among(constants)))
        if step.target == "assert_equal" and isinstance(step.args[0], Ref):
            constants[step.args[0].name] = step.args[1]
    results = tuple(with_names(result, among(constants)) for result in graph.results)
    return replace(graph, steps=tuple(steps), results=results)


def without_saved(graph: Graph) -> Graph:
    """Return a forward that saves nothing: without steps that only a backward needs."""
    return without_dead_code(returning_results_alone(graph))


def returning_results_alone(graph: Graph) -> Graph:
    """Return a forward that computes all that it did and returns its results alone, not the values that it saves."""
    pairs = zip(graph.outputs, graph.results, strict=True)
    return _returning(graph, [(port, result) for port, result in pairs if port.role != "saved"])


def with_tensor_results_only(graph: Graph) -> Graph:
    """Return the graph without results that are not tensors or have no elements, and without steps that nothing then
    needs."""
    kept = [
        (port, result)
        for port, result in zip(graph.outputs, graph.results, strict=True)
        if isinstance(result, Ref) and isinstance(port.spec, TensorSpec) and port.spec.numel
    ]
    return without_dead_code(_returning(graph, kept))


def _returning(graph: Graph, kept: Sequence[tuple[Port, Value]]) -> Graph:
    """Return the graph with these output ports alone, each with its value."""
    return replace(graph, outputs=tuple(port for port, _ in kept), results=tuple(result for _, result in kept))


def memory_order(spec: Spec) -> tuple[int, ...] | None:
    """Return the dimensions of a permuted contiguous tensor, from the outermost in memory to the innermost; None for a
    contiguous tensor, and for any other."""
    if not isinstance(spec, TensorSpec) or spec.stride is None:
        return None
    shape, stride = spec.shape, spec.stride
    if not all(isinstance(size, int) for size in (*shape, *stride)):
        return None
    # Of dimensions with equal strides, a larger one is further out: the others have size 1.
    order = sorted(range(len(shape)), key=lambda index: (-int(stride[index]), -int(shape[index])))
    step = 1  # the stride that the next dimension further out must have
    for index in reversed(order):
        # The stride of a dimension of size 1 may be any: it is never stepped along.
        if shape[index] != 1 and stride[index] != step:
            return None
        step *= int(shape[index])
    return tuple(order) if order != sorted(order) else None


def contiguous_inputs(graph: Graph) -> Graph:
    """Return the graph for contiguous inputs: permuted inputs get their strides by its first steps, because views may
    rely on them."""
    used_names = {*(port.local for port in graph.inputs), *(step.name for step in graph.steps)}
    inputs, first = [], []
    renamed: dict[str, Value] = {}  # what stands for a permuted input in the other steps
    for port in graph.inputs:
        order = memory_order(port.spec)
        if order is None:
            inputs.append(port)
            continue
        assert isinstance(port.spec, TensorSpec)
        # Permuted to the order in memory, copied and permuted back, a tensor has the strides of the capture.
        back = tuple(sorted(range(len(order)), key=order.__getitem__))  # the inverse permutation
        copied = replace(port.spec, shape=tuple(port.spec.shape[index] for index in order), stride=None, offset=0)
        turned, laid, restored = (free(f"{port.local}_{what}", used_names) for what in ("turned", "laid", "back"))
        used_names |= {turned, laid, restored}
        contiguous = (("memory_format", Atom("contiguous_format")),)
        first += [
            Step(turned, "aten.permute.default", (Ref(port.local), List(order))),
            Step(laid, "aten.clone.default", (Ref(turned),), contiguous, spec=copied),
            Step(restored, "aten.permute.default", (Ref(laid), List(back)), spec=replace(port.spec, offset=0)),
        ]
        inputs.append(replace(port, spec=replace(port.spec, stride=None, offset=0)))
        renamed[port.local] = Ref(restored)
    steps = tuple(mapped(step, among(renamed)) for step in graph.steps)
    results = tuple(with_names(result, among(renamed)) for result in graph.results)
    return replace(graph, inputs=tuple(inputs), steps=(*first, *steps), results=results)


def unguarded_graph(graph: Graph) -> Graph:
    """Return the graph that compilers are given: at its captured sizes, without guards and dead code."""
    fixed = at_example_sizes(graph)
    return without_dead_code(replace(fixed, steps=tuple(step for step in fixed.steps if not step.is_guard)))


# ---- Graphs on another device


def new_devices(graph: Graph, device: str) -> dict[str, str]:
    """Return the new device of each device's tensors if a graph moves to `device`.

    If a graph has tensors on a GPU, only these move; its tensors on the CPU are there for a reason.
    """
    specs = [port.spec for port in (*graph.inputs, *graph.outputs)]
    values = [value for step in graph.steps for value in (*step.args, *dict(step.kwargs).values())]
    devices = {leaf.name for value in values for leaf in leaves(value) if isinstance(leaf, Device)}
    devices |= {spec.device for spec in specs if isinstance(spec, TensorSpec)}
    here = devices - {"cpu"} or {"cpu"}  # those that move
    return {name: device for name in sorted(here) if name != device}


def on_device(graph: Graph, places: Mapping[str, str]) -> Graph:
    """Return a forward graph whose tensors are on other devices: `places` has the new device by the old one, as
    `new_devices` returns it. It saves nothing: on another device a backward needs other values."""
    if not places:
        return graph

    def on(leaf: Leaf) -> Leaf:
        return Device(places.get(leaf.name, leaf.name)) if isinstance(leaf, Device) else leaf

    moved = _with_specs(in_general_form(without_saved(graph)), lambda spec: _spec_on(spec, places))
    return replace(moved, steps=tuple(mapped_leaves(step, on) for step in moved.steps))


def _spec_on(spec: Spec, places: Mapping[str, str]) -> Spec:
    """Return a spec with its tensors moved."""
    if isinstance(spec, tuple):
        return tuple(_spec_on(part, places) for part in spec)
    return replace(spec, device=places.get(spec.device, spec.device)) if isinstance(spec, TensorSpec) else spec


# ---- Operators of one device

ATTENTION = "aten.scaled_dot_product_attention.default"

GENERAL: Mapping[str, tuple[str, str]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu.default": (ATTENTION, "query key value dropout_p is_causal"),
    "aten._scaled_dot_product_flash_attention.default": (ATTENTION, "query key value dropout_p is_causal -"),
    "aten._scaled_dot_product_efficient_attention.default": (
        ATTENTION,
        "query key value attn_mask - dropout_p is_causal",
    ),
    "aten._scaled_dot_product_cudnn_attention.default": (
        ATTENTION,
        "query key value attn_mask - dropout_p is_causal -",
    ),
}
"""Operators that one device alone has: the operator that chooses among them, and the names of their positional
arguments as it calls them. `-` is an argument that it does not have."""

ORDER = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""The positional arguments of `scaled_dot_product_attention`."""

USUAL: Mapping[str, Value] = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False}
"""The defaults of the arguments that a kernel may not have."""


def in_general_form(graph: Graph) -> Graph:
    """Return the graph with each operator that is the kernel of one device (GENERAL) replaced by the operator that
    chooses a kernel. RefusedError if a step uses what only the kernel returns."""
    new_values: dict[str, Value] = {}
    steps: list[Step] = []
    for step in graph.steps:
        step = mapped(step, among(new_values))
        if step.target in GENERAL:
            # A kernel returns the output and more (log-sum-exp, random state), the general operator the output alone.
            # So its item 0 becomes the step itself.
            new_values[step.name] = Ref(step.name)
            steps.append(_general_call(step))
            continue
        value = step.args[0] if step.target == "operator.getitem" else None
        if isinstance(value, Ref) and value in new_values.values():
            if step.args[1] != 0:
                raise RefusedError(f"{step.name!r} uses what only a kernel of one device gives: {value.name!r}")
            new_values[step.name] = value
        else:
            steps.append(step)
    results = tuple(new_values.get(value.name, value) if isinstance(value, Ref) else value for value in graph.results)
    return replace(graph, steps=tuple(steps), results=results)


def _general_call(step: Step) -> Step:
    """Return a call of a kernel of attention as a call of the operator that chooses one, by the table GENERAL."""
    target, names = GENERAL[step.target]
    # A call may leave out its last positional arguments, which have defaults. `-` in `names` is not passed on.
    arguments = dict(zip(names.split(), step.args, strict=False)) | dict(step.kwargs)
    args = tuple(arguments[name] if name in arguments else USUAL[name] for name in ORDER)
    scale = tuple((key, value) for key, value in arguments.items() if key == "scale")
    spec = step.spec[0] if isinstance(step.spec, tuple) else step.spec  # of the output, the kernel's first result
    return replace(step, target=target, args=args, kwargs=scale, spec=spec)
