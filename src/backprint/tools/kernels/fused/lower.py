"""A program that is no loop, from a capture to a LoweredGraph.

Words of this file:

- direction: the forward or the backward of a Pair in Inductor's code (Direction). Its ports are CodePorts: `port` is
  the one of the captured graph, with its name and role there, and `name` the one in the file.
- target: the name of the GPU that Inductor writes for, `cuda:90`.
- `make_inputs(size)` returns the program's arguments for a number; None for a program of captured sizes.
- symbol: a size that stays symbolic; a condition is what must hold of symbols, as an expression of Python.
- partition "min-cut": what a forward saves for its backward is chosen as torch.compile chooses it.
- a FusedText is a direction as a function of Python, with its kernels. `text.results` are expressions of what the
  function returns, one for each output of the direction.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from backprint.api import capture
from backprint.errors import BackprintError, RefusedError
from backprint.graph.nouns import Capture, Pair, ScalarSpec, Spec, TensorSpec
from backprint.graph.sizes import example_sizes, known
from backprint.graph.steps import used
from backprint.graph.text import show_step
from backprint.tools.kernels.compilers import inductor_version
from backprint.tools.kernels.fused.directions import lower_pair, with_file_names
from backprint.tools.kernels.fused.file_text import FusedFile, file_source
from backprint.tools.kernels.fused.kernel_text import FusedText, fused_text
from backprint.tools.kernels.fused.lowered import LoweredGraph
from backprint.tools.kernels.fused.nouns import RESERVED, Direction, identifier
from backprint.tools.kernels.fused.wrapper_text import WrapperReader, names_in
from backprint.tools.kernels.loops.call import call_of
from backprint.tools.kernels.loops.lower import name_of
from backprint.tools.kernels.lowered import UNCHECKED_GUARDS, Face
from backprint.tools.kernels.lowered_check import case_of_function, compare_port, results_of_graphs
from backprint.tools.kernels.nouns import target_named

SIZES = (64, 128)
"""Sizes at which a program of a free size is captured."""


def lower_inputs(function: Callable[..., Any], inputs: Any, name: str | None, target: str = "cuda:90") -> LoweredGraph:
    """Return a function or a module in Inductor's kernels, for the sizes of these inputs; `name` is that of the
    function in the file, None for the program's own."""
    call = call_of(inputs)
    captured = capture(function, args=call.args, kwargs=dict(call.kwargs), partition="min-cut")
    return lower_capture(captured, name or name_of(function, "program"), target, function)


def lower_sized(
    function: Callable[..., Any],
    make_inputs: Callable[[int], Any],
    sizes: Sequence[int] = SIZES,
    name: str | None = None,
    target: str = "cuda:90",
) -> LoweredGraph:
    """Return a function or a module in Inductor's kernels, for every number that `make_inputs` takes.

    It is captured at the largest of `sizes`, with the dimensions that change as symbols; Inductor chooses its kernels
    for that size. A file that would be wrong for a size of one is for two and more.
    """
    largest = max(sizes)
    call = call_of(make_inputs(largest))
    captured = capture(
        function,
        args=call.args,
        kwargs=dict(call.kwargs),
        partition="min-cut",
        dynamic=changing_dimensions(function, make_inputs, sorted(set(sizes))),
    )
    name = name or name_of(function, "program")
    lowered = lower_capture(captured, name, target, function, make_inputs)
    if _is_right_at_one(lowered, make_inputs(1)):
        return lowered
    return lower_capture(captured, name, target, function, make_inputs, smallest_size=2)


def changing_dimensions(
    function: Callable[..., Any], make_inputs: Callable[[int], Any], sizes: Sequence[int]
) -> dict[str, dict[int, str]]:
    """Return the dimensions of the inputs that change with the size, port -> dimension -> name: `n` where it is the
    size, and `n_2`, … where it is another number, one name for each way to change. Refuse a program in which none does,
    or that has another number of inputs or dimensions at another size."""
    shapes: dict[str, dict[int, Sequence[int]]] = {}
    for size in sizes:
        call = call_of(make_inputs(size))
        # only for the shapes of the inputs
        captured = capture(function, args=call.args, kwargs=dict(call.kwargs), engine="aot")
        for port in captured.pairs[0].forward.inputs:
            if isinstance(port.spec, TensorSpec):
                shapes.setdefault(port.name, {})[size] = tuple(map(int, port.spec.shape))
    # what a dimension is at each of `sizes` -> its name
    names_by_lengths: dict[tuple[int, ...], str] = {tuple(sizes): "n"}
    dimension_names: dict[str, dict[int, str]] = {}
    for name, shapes_by_size in shapes.items():
        if len(shapes_by_size) < len(sizes) or len({len(shape) for shape in shapes_by_size.values()}) > 1:
            raise RefusedError(
                f"the number of dimensions of {name} changes with the size: {list(shapes_by_size.values())}"
            )
        for dimension, sizes_of_dimension in enumerate(zip(*shapes_by_size.values(), strict=True)):
            if len(set(sizes_of_dimension)) > 1:
                dimension_names.setdefault(name, {})[dimension] = names_by_lengths.setdefault(
                    tuple(sizes_of_dimension), f"n_{len(names_by_lengths) + 1}"
                )
    if not dimension_names:
        raise RefusedError("no argument has a size that changes with the number that `make_inputs` was given")
    return dimension_names


def _is_right_at_one(lowered: LoweredGraph, inputs: Any) -> bool:
    """Whether the graphs of a free size give what the program gives where the size is one: such a dimension broadcasts,
    so a program may do something else with it."""
    case = case_of_function(lowered, "one", inputs)  # eager's results on these inputs
    constants = dict(lowered.capture.origin.constants)
    try:
        results = results_of_graphs(lowered, constants | dict(case.inputs), case.tangents)
    except BackprintError:
        return False
    return all(compare_port(case, port, results.get(port), value).ok for port, value in case.results.items())


def lower_capture(
    captured: Capture,
    name: str | None = None,
    target: str = "cuda:90",
    function: Callable[..., Any] | None = None,
    make_inputs: Callable[[int], Any] | None = None,
    smallest_size: int = 1,
) -> LoweredGraph:
    """Return a Capture in Inductor's kernels; symbolic sizes are `smallest_size` or more. Refuse what a file cannot be:
    several graphs, branches on values, changed or returned inputs, no kernel at all. `function` and `make_inputs` are
    what the Capture was made of, as far as they are known, for the checks of the result."""
    pair = only_pair(captured)
    name = identifier(name or captured.name)  # a file has functions of its own, such as `laid`
    directions, conditions = lower_pair(pair, target_named(target))
    _refuse_mutations(directions[0])
    if not any(port.is_tensor for port in directions[0].inputs):
        raise RefusedError(f"{name} takes no tensor, whose device the kernels would run on: pass what it makes to it")
    names_taken = {name, f"{name}_forward", f"{name}_backward", *RESERVED}
    texts: dict[str, FusedText] = {}
    for index, direction in enumerate(directions):  # the forward is first
        if direction.name == "backward":
            directions[index] = direction = _with_saved_names(direction, directions[0], texts["forward"])
        texts[direction.name] = fused_text(direction, WrapperReader(direction).read(), names_taken, name)
    if not any(text.kernels for text in texts.values()):
        raise RefusedError(f"{name}: Inductor writes no kernel for it: all of it is calls of libraries, or views")
    _refuse_returned_inputs(directions[0], texts["forward"])
    symbols = _symbol_expressions(directions[0])
    file_names = {symbol.name: identifier(symbol.name) for graph in pair.graphs for symbol in graph.symbols}
    guards = [with_file_names(guard.text, file_names) for guard in captured.guards if guard.kind == "size"]
    conditions = bounds([*(f"{symbol} >= {smallest_size}" for symbol in symbols), *conditions, *guards], symbols)
    file = FusedFile(
        name=name,
        origin=origin_of(captured),
        compiler=inductor_version().replace("inductor", "Inductor of PyTorch"),
        target=target,
        forward=directions[0],
        backward=directions[1] if len(directions) > 1 else None,
        texts=texts,
        conditions=tuple(conditions),
        symbols=symbols,
        without_grad=tuple(without_grad(pair)),
    )
    lower_again = partial(lower_capture, name=name, target=target, function=function, make_inputs=make_inputs)
    return LoweredGraph(
        source=file_source(file),
        name=name,
        function=function,
        make_inputs=make_inputs,
        capture=captured,
        face=_face_of(file),
        file=file,
        again=lower_again,
    )


def only_pair(captured: Capture) -> Pair:
    """Return the one Pair of a Capture that kernels can stand for; refuse what depends on more than sizes."""
    if len(captured.pairs) != 1:
        raise RefusedError(
            f"the program is {len(captured.pairs)} graphs, not one: lower a part of it, as `bp.split` cuts one out"
        )
    if guards := [guard for guard in captured.guards if guard.kind in UNCHECKED_GUARDS]:
        raise RefusedError(f"the program depends on {guards[0].text}: the kernels could not know")
    pair = captured.pairs[0]
    for graph in pair.graphs:
        sizes = example_sizes(graph)  # the symbols of the graph, with their sizes at capture
        specs = {step.name: step.spec for step in graph.steps} | {port.local: port.spec for port in graph.inputs}
        for step in graph.steps:
            # guards on sizes are conditions of the file
            uses_sizes_only = all(_is_size(specs.get(name), sizes) for name in used(step))
            if step.is_guard and not uses_sizes_only:
                where = f" at {step.source.at}" if step.source else ""
                raise RefusedError(
                    f"the program depends on a value, `{show_step(step)}`{where}: the kernels could not know"
                )
    return pair


def _is_size(spec: Spec, sizes: Mapping[str, int]) -> bool:
    """Whether a value is a number that follows from the symbolic sizes."""
    return isinstance(spec, ScalarSpec) and bool(spec.expression) and known(spec.expression, sizes)


def _with_saved_names(backward: Direction, forward: Direction, text: FusedText) -> Direction:
    """Return a backward whose saved values have the names that they have in the function of the forward, which is
    `text`, if these are free."""
    results = zip(forward.outputs, text.results, strict=True)
    values = {port.port.name: value for port, value in results if port.port.role == "saved"}
    names_taken = {port.name for port in (*backward.inputs, *backward.outputs) if port.port.role != "saved"}
    inputs = []
    for port in backward.inputs:
        value = values.get(port.port.name, "") if port.port.role == "saved" else ""
        # an expression, as a view, is no name
        name = value if value.isidentifier() and value not in names_taken else port.name
        names_taken.add(name)
        inputs.append(replace(port, name=name))
    return replace(backward, inputs=tuple(inputs))


def _refuse_mutations(forward: Direction) -> None:
    """Raise RefusedError for a program that writes to its arguments or buffers."""
    changed = [port.port.name for port in forward.outputs if port.port.role == "mutation"]
    if changed:
        raise RefusedError(
            f"the program writes to {', '.join(changed[:3])}: return the new values, and write them outside of what is "
            "lowered (a BatchNorm does so in training)"
        )


def _refuse_returned_inputs(forward: Direction, text: FusedText) -> None:
    """Raise RefusedError for a program that returns an argument as it is, or a number."""
    input_names = {port.name for port in forward.inputs}
    values = [value for port, value in zip(forward.outputs, text.results, strict=True) if port.port.role == "output"]
    if returned := [value for value in values if value in input_names]:
        raise RefusedError(f"the program returns its argument {returned[0]} as it is: leave it out of what is lowered")
    numbers = [port.name for port in forward.outputs if port.port.role == "output" and not port.is_tensor]
    if numbers:
        raise RefusedError(f"the program returns the number {numbers[0]}: leave it out of what is lowered")


def _symbol_expressions(forward: Direction) -> dict[str, str]:
    """Return the name of each symbolic size in the file -> where it is read: `x.shape[0]`. Refuse a size that is no
    dimension of an input, as the stride of a slice."""
    expressions: dict[str, str] = {}
    for port in forward.inputs:
        for dimension, size in enumerate(port.shape):
            if size in forward.symbols.values():
                expressions.setdefault(size, f"{port.name}.shape[{dimension}]")
    for port in forward.inputs:
        unread = names_in((*port.shape, *port.stride)) & {*forward.symbols.values()} - {*expressions}
        if unread:
            raise RefusedError(
                f"{port.port.name} has the shape ({', '.join(port.shape)}) and the strides ({', '.join(port.stride)}), "
                f"and no dimension is {min(unread)} alone: pass it contiguous, or capture it without symbolic sizes"
            )
    return expressions


def without_grad(pair: Pair) -> list[str]:
    """Return the names of the inputs that have no gradient."""
    gradients = {port.name for port in (pair.backward.outputs if pair.backward else ()) if port.role == "gradient"}
    return [port.name for port in pair.forward.inputs if port.name not in gradients]


BOUND = re.compile(r"(?:(?P<factor>\d+) \* )?(?P<name>\w+) (?P<relation><=|<|>=|>) (?P<limit>\d+)")
"""A condition that bounds one symbol: `n >= 2`, `3 * n < 100`."""


def bounds(conditions: Iterable[str], symbols: Mapping[str, str]) -> list[str]:
    """Return conditions on symbols: the narrowest lower bound of each, other conditions, and the narrowest upper bound
    of each. Conditions on other names are left out: they are of shapes, which the file compares anyway.
    `3 * n < 100` -> `n <= 33`."""
    lower_bounds: dict[str, int] = {}
    upper_bounds: dict[str, int] = {}
    others: list[str] = []
    # each condition once, in one notation
    for text in dict.fromkeys(ast.unparse(ast.parse(text)) for text in conditions):
        names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        if not names or not names <= {*symbols, "math", "max", "min"}:
            continue
        match = BOUND.fullmatch(text)
        if match is None:
            others.append(text)
            continue
        name, factor, limit = match["name"], int(match["factor"] or 1), int(match["limit"])
        relation = match["relation"]
        if relation in ("<", "<="):
            most = limit - 1 if relation == "<" else limit
            # `limit` where there is no bound yet: `most // factor` is not above it
            upper_bounds[name] = min(most // factor, upper_bounds.get(name, limit))
        else:
            least = limit + 1 if relation == ">" else limit
            # rounded up; 0 where there is no bound yet: no size is below it
            lower_bounds[name] = max(-(least // -factor), lower_bounds.get(name, 0))
    return [
        *(f"{name} >= {limit}" for name, limit in lower_bounds.items()),
        *others,
        *(f"{name} <= {limit}" for name, limit in upper_bounds.items()),
    ]


def origin_of(captured: Capture) -> str:
    """Return the files of the program, three at most; the name of the Capture if none is known."""
    sources = sorted({step.source.file for step in captured.pairs[0].forward.steps if step.source is not None})
    return ", ".join(sources[:3]) or captured.name


def _face_of(file: FusedFile) -> Face:
    """Return the ports of the file's function."""
    names = [port.port.name for port in file.inputs]
    outputs = [port.port.name for port in file.outputs]
    return Face(
        inputs=tuple(names),
        gradients=tuple(name in file.gradients for name in names),
        outputs=tuple(outputs),
        tangents=tuple(name in file.tangents for name in outputs),
    )
