"""A program that walks time, from captures of a few lengths to a LoweredLoop: `lower_loop` is the whole way.

Words of this file; those of the package are in `nouns`:

- `make_inputs(length)` returns the program's arguments for a number of steps. A length is captured with these.
- `elements`, an Elements, makes the elements of all lengths, so that equal ones are one object, and a program and what
  a loop writes are compared with `==`.
- Program: what each direction of one length writes, element by element. Loop: one direction of it, rolled up for all
  lengths. A short program is that of a length of SHORT at which it is not the loop.
- `timed`: the keys (`port_key`) of ports whose first dimension is time.
- `edge`: how many iterations at either end may be outside of a loop.
- History: the values of a forward, which are known when its backward is looked at.
- `symbolic_steps`: whether a number that is the number of steps is an element `steps`, as the divisor of a mean over
  time, so that it is the same program at all lengths.
- kept: of a value, written by the forward to a tensor of its own, because the backward reads it.
- Face: the arguments and results of the file's function by port, and which of them have a gradient.
- defect: an error that is a bug of this package (`is_defect`), and none of the program or of torch, nor a refusal.
- Layout: the shape, the dtype and the name in the file of each tensor (`layout.facts`, by tensor).
- `least`, `seen`: the fewest steps at which the loop is the program, and all numbers at which it was compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backprint.api import capture
from backprint.common.names import free_name
from backprint.errors import BackprintError, RefusedError, UsageError, is_defect
from backprint.graph.nouns import Capture, Pair, Port
from backprint.tools.kernels.loops.call import Call, call_of, inputs_by_port
from backprint.tools.kernels.loops.elements import identifier, port_key, program_of, shape_of
from backprint.tools.kernels.loops.file_text import FileParts, Short, file_text
from backprint.tools.kernels.loops.keeping import choose_kept
from backprint.tools.kernels.loops.limits import with_limits
from backprint.tools.kernels.loops.lowered import LoweredLoop
from backprint.tools.kernels.loops.nouns import (
    INPUTS,
    ROW_REDUCTIONS,
    Edge,
    Elements,
    Loop,
    Program,
    TensorFacts,
    Write,
    in_dependency_order,
)
from backprint.tools.kernels.loops.rolling import (
    Edges,
    History,
    NoMatchError,
    NumberChanges,
    find_loop,
    writes_at_length,
)
from backprint.tools.kernels.loops.torch_text import TorchText, torch_loop
from backprint.tools.kernels.loops.triton_text import KernelText, Layout, kernel_text
from backprint.tools.kernels.lowered import UNCHECKED_GUARDS, Face

SUMS = ("stages", "atomics")
"""How gradients of parameters are added up over elements."""

LENGTHS = (6, 7, 8, 256)
"""Numbers of steps at which a program is captured. The loop is looked for at the first three. At the others it must be
the program too: what a step does may depend on its number, as in `if t < 100`. The largest is the most steps that the
kernels take."""

SHORT = (1, 2)
"""Lengths that are too short to find a loop in. The loop is compared with the program there; where it is another,
the file has kernels for that length alone (`Short`)."""


def loops_over(function: Callable[..., Any], make_inputs: Callable[[int], Any], lengths: Sequence[int]) -> bool:
    """Whether the captures of two lengths have different numbers of operators: then the program loops over the
    length. A guard is a step that checks a value, and no operator."""
    counts: list[int] = []
    for length in lengths:
        call = call_of(make_inputs(length))
        captured = capture(function, args=call.args, kwargs=dict(call.kwargs))
        graphs = [graph for pair in captured.pairs for graph in pair.graphs]
        counts.append(sum(not step.is_guard for graph in graphs for step in graph.steps))
    return len(set(counts)) > 1


def lower_loop(
    function: Callable[..., Any],
    make_inputs: Callable[[int], Any],
    lengths: Sequence[int] | None = None,
    sums: str = "stages",
    name: str | None = None,
) -> LoweredLoop:
    """Return a program that walks time as one Triton kernel a direction; `lengths`, `sums` and `name` are those of
    `bp.lower`. Refuse a program that is no loop, or not the same one at all lengths."""
    if sums not in SUMS:
        raise UsageError(f"sums={sums!r}: one of {', '.join(SUMS)}")
    lengths = lengths or LENGTHS
    # 6: the 4 iterations of `find_loops`, and one at either end that may be outside of the loop
    if len(set(lengths)) < 3 or min(lengths) < 6:
        raise UsageError(f"lengths={tuple(lengths)}: pass three or more different numbers of steps, each of 6 or more")
    sorted_lengths = sorted(set(lengths))
    compared_lengths, longer_lengths = sorted_lengths[:3], sorted_lengths[3:]
    captures = {length: capture_length(function, make_inputs, length) for length in compared_lengths}
    pairs = {length: captured.pairs[0] for length, captured in captures.items()}
    timed = _timed_ports(pairs)
    elements = Elements()
    try:
        loops = find_loops(pairs, timed, elements, symbolic_steps=False)
    except RefusedError as error:
        try:
            # a number that is not the same at all lengths may be the number of steps, as in a mean
            loops = find_loops(pairs, timed, elements, symbolic_steps=True)
        except RefusedError:
            raise _changing_number(pairs, timed) or error from None
    least, short_programs = fewest_steps(function, make_inputs, timed, elements, loops, min(lengths))
    lowered = build_lowered_loop(
        function,
        make_inputs,
        name or name_of(function),
        captures[compared_lengths[0]],
        loops,
        elements,
        least,
        short_programs,
        seen=(*SHORT, *sorted_lengths),
        sums=sums,
    )

    def check_length(length: int) -> None:
        _check_length(function, make_inputs, timed, elements, loops, length, compared_lengths)

    for length in longer_lengths:  # at the end: all that is done with elements takes longer after so many of them
        check_length(length)
    return with_limits(lowered, check_length)


def _check_length(
    function: Callable[..., Any],
    make_inputs: Callable[[int], Any],
    timed: frozenset[str],
    elements: Elements,
    loops: _Directions,
    length: int,
    compared_lengths: Sequence[int],
) -> None:
    """Raise RefusedError unless the program of another number of steps is the loop too, which was found at
    `compared_lengths`."""
    advice = (
        f"pass lengths={(*compared_lengths, 'N')}".replace("'", "")
        + " for kernels of at most N steps, if it is up to there"
    )
    try:
        program = program_of(capture_length(function, make_inputs, length).pairs[0], elements, length, timed)
    except Exception as error:  # the program may not run for so many steps, as one with a table of numbers
        if is_defect(error):
            raise
        reason = str(error) if isinstance(error, BackprintError) else f"it raises {type(error).__name__}: {error}"
        raise RefusedError(
            f"the program of {length} steps cannot be compared with the loop: {reason}; {advice}"
        ) from error
    if not loops_describe(loops, program, elements):
        steps = ", ".join(map(str, compared_lengths[:-1]))
        raise RefusedError(
            f"the program of {length} steps is not the loop that it is for {steps} and {compared_lengths[-1]} steps: "
            f"what a step does depends on its number, as in `if t < 100`, or on how many there are; {advice}"
        )


def _changing_number(pairs: Mapping[int, Pair], timed: frozenset[str]) -> RefusedError | None:
    """Return the error of a number that changes from step to step, as a state that depends on no input does; None if a
    program is no loop for another reason. Such a state is an operation on numbers, and with constants folded a
    number."""
    elements = Elements()
    elements.folds_constants = True
    try:
        find_loops(pairs, timed, elements, symbolic_steps=False)
    except NumberChanges as error:
        return error
    except RefusedError:
        pass
    return None


def find_loops(
    pairs: Mapping[int, Pair], timed: frozenset[str], elements: Elements, symbolic_steps: bool
) -> _Directions:
    """Return the loops of a program, found at each length: refuse if they are not the same."""
    # so that 4 iterations are left of the fewest steps: the body, two to compare it with, and the last (`find_loop`)
    edge = (min(pairs) - 4) // 2
    first: _Directions | None = None
    for length, pair in pairs.items():
        program = _read_program(pair, elements, length, timed, symbolic_steps)
        directions = _Directions.of(program, elements, symbolic_steps, edge)
        first = first or directions
        if (directions.forward, directions.backward) != (first.forward, first.backward):
            raise RefusedError(f"the loop of {length} steps is not that of {min(pairs)}: pass other lengths")
    assert first is not None
    return first


def _read_program(pair: Pair, elements: Elements, length: int, timed: frozenset[str], symbolic_steps: bool) -> Program:
    """Return a Pair as writes of elements; with `symbolic_steps`, with elements `steps` for its number of steps."""
    elements.steps = length if symbolic_steps else None
    try:
        return program_of(pair, elements, length, timed)
    finally:
        elements.steps = None


def capture_length(function: Callable[..., Any], make_inputs: Callable[[int], Any], length: int) -> Capture:
    """Return the capture of a length, which has one Pair; refuse a program of several graphs, and guards on values or
    memory, which kernels could not check."""
    call = call_of(make_inputs(length))
    captured = capture(function, args=call.args, kwargs=dict(call.kwargs))
    if len(captured.pairs) != 1:
        raise RefusedError(
            f"the program is {len(captured.pairs)} graphs, not one: it reads a value of a tensor in between"
        )
    guards = [guard for guard in captured.guards if guard.kind in UNCHECKED_GUARDS]
    if guards:
        raise RefusedError(f"the program depends on {guards[0].text}: the kernels could not know")
    return captured


def name_of(function: Any, unnamed: str = "loop_program") -> str:
    """Return the name of a function, or of a module's class in snake case, as a Python identifier; `unnamed` for a
    lambda."""
    name = getattr(function, "__name__", type(function).__name__)
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    name = re.sub(r"\W+", "_", name).strip("_")
    return identifier(name) if name and name != "lambda" and not name[0].isdigit() else unnamed


def _timed_ports(pairs: Mapping[int, Pair]) -> frozenset[str]:
    """Return the keys (`port_key`) of the ports whose first dimension is the number of steps; refuse a port in which
    another dimension changes with it."""
    timed: set[str] = set()
    ports_by_length = {length: {port_key(port): port for port in inputs_of(pair)} for length, pair in pairs.items()}
    keys: list[set[str]] = [set(ports) for ports in ports_by_length.values()]
    if any(keys_of_length != keys[0] for keys_of_length in keys):
        raise RefusedError(
            f"inputs differ with the length: {sorted(keys[0].union(*keys) - keys[0].intersection(*keys))}"
        )
    for key in next(iter(ports_by_length.values())):  # in the program's order
        shapes = {length: shape_of(ports[key]) for length, ports in ports_by_length.items()}
        sizes_by_dimension = zip(*shapes.values(), strict=True)
        changing_dimensions = [place for place, sizes in enumerate(sizes_by_dimension) if len(set(sizes)) > 1]
        if not changing_dimensions:
            continue
        if changing_dimensions != [0] or any(shape[0] != length for length, shape in shapes.items()):
            raise _time_not_first(key, shapes, changing_dimensions[0])
        timed.add(key)
    if not any(not key.startswith("tangent ") for key in timed):
        raise RefusedError(
            "no argument has a length that changes with the number of steps: nothing says how long it is"
        )
    return frozenset(timed)


def _time_not_first(key: str, shapes: Mapping[int, Sequence[int]], dimension: int) -> RefusedError:
    """Return the error of a port whose first dimension is not the number of steps, with its shape by that number;
    `dimension` changes with it. A tangent has the shape of its output, which is named instead."""
    if key.startswith("tangent "):
        known = ", ".join(f"{list(shape)} after {length} steps" for length, shape in shapes.items())
        return RefusedError(
            f"the result {key.removeprefix('tangent ')!r} has the shapes {known}: "
            "time must be its first dimension, and no other may change with it, so that a step writes one slice"
        )
    return RefusedError(
        f"time must be the first dimension of {key!r}, whose shapes are {[list(s) for s in shapes.values()]}: "
        f"pass {key}.movedim({dimension}, 0), a tensor of one slice a step"
    )


def inputs_of(pair: Pair) -> list[Port]:
    """Return the inputs of both directions that come from outside: arguments, parameters, and tangents of outputs."""
    graphs = [pair.forward, *([pair.backward] if pair.backward else [])]
    return [port for graph in graphs for port in graph.inputs if port.role != "saved"]


@dataclass(frozen=True, slots=True)
class _Directions:
    """A program of a length, and the loops of its two directions."""

    program: Program
    forward: Loop
    backward: Loop | None
    symbolic_steps: bool = False

    @staticmethod
    def of(program: Program, elements: Elements, symbolic_steps: bool, edge: int) -> _Directions:
        """Return the loops of a program: of its forward, up or down, and of its backward, the other way."""
        no_history = History(elements, loop=None, length=program.length, edge=edge)  # a forward uses no other's values
        try:
            forward = find_loop(program.forward, elements, program.length, step=1, history=no_history)
        except RefusedError as error:  # a program may walk from the last step to the first
            try:
                forward = find_loop(program.forward, elements, program.length, step=-1, history=no_history)
            except RefusedError:
                raise error from None
        if not program.backward:
            return _Directions(program, forward, None, symbolic_steps)
        history = history_of(forward, program, elements, edge)
        backward = find_loop(program.backward, elements, program.length, step=-forward.step, history=history)
        return _Directions(program, forward, backward, symbolic_steps)


def history_of(forward: Loop, program: Program, elements: Elements, edge: int = 1) -> History:
    """Return the values of a forward, as the backward of `program` uses them; `forward` may have been found in a
    program of another length."""
    tangents = [name for name, facts in program.tensors.items() if facts.role == "tangent"]
    return History(elements, forward, program.length, tangents, edge)


def fewest_steps(
    function: Callable[..., Any],
    make_inputs: Callable[[int], Any],
    timed: frozenset[str],
    elements: Elements,
    loops: _Directions,
    fewest_found: int,
) -> tuple[int, tuple[Program, ...]]:
    """Return the fewest steps at which the loop is the program, and the programs of SHORT at which it is not: kernels
    of their own are written for these. There are none if lengths between them and the loop were not compared.
    `fewest_found` is the fewest steps at which the loop was found."""
    least = fewest_found
    others: list[Program] = []
    for length in sorted(SHORT, reverse=True):
        program = program_of(capture_length(function, make_inputs, length).pairs[0], elements, length, timed)
        if not others and loops_describe(loops, program, elements):
            least = length
        else:  # below a length at which the loop is another program, it is not asked any more
            others.append(program)
    # between 2 and `fewest_found` nothing is compared: if the loop is neither the program of 2 nor found at 3, it is
    # for `fewest_found` on
    is_without_gap = least <= max(SHORT) or fewest_found == max(SHORT) + 1
    return (least, tuple(others)) if is_without_gap else (fewest_found, ())


def loops_describe(loops: _Directions, program: Program, elements: Elements) -> bool:
    """Whether loops write, element for element, what a program of another length writes."""
    length = program.length
    history = history_of(loops.forward, program, elements)
    history.symbolic_steps = False  # `program` was read at one length, with numbers in the place of `steps`
    sides = [(loops.forward, program.forward), *([(loops.backward, program.backward)] if loops.backward else [])]
    for loop, writes in sides:
        if loop.peeled > length:
            return False
        try:
            stores = writes_at_length(loop, elements, length, history)
        except NoMatchError:  # the backward uses an iteration that a forward of this length has not
            return False
        actual = {(write.tensor, write.slot): write.element for write in writes}
        # a gradient that is `zero` is written by the loop, and not there in the program
        written = {key: item for key, item in stores.items() if item.op != "zero" or key in actual}
        if written != actual:
            return False
    return True


def _without_loop(writes: Sequence[Write], elements: Elements, length: int) -> Loop:
    """Return the writes of a short program as a Loop without iterations: all of them are `before`."""
    # `edge`: so that every slot may be an Edge
    edges = Edges(elements, length, History(elements, loop=None, length=length, edge=length))
    before = tuple(
        Write(
            write.tensor,
            edges.edge(write.slot) if isinstance(write.slot, int) else write.slot,
            edges.with_edges(write.element, replacements={}),
        )
        for write in writes
    )
    return Loop(
        step=1,
        first=Edge(0),
        last=Edge(0, last=True),
        start=(),
        following=(),
        writes=(),
        before=before,
        after=(),
    )


def build_lowered_loop(
    function: Callable[..., Any],
    make_inputs: Callable[[int], Any],
    name: str,
    captured: Capture,
    loops: _Directions,
    elements: Elements,
    least: int,
    short_programs: Sequence[Program],
    seen: tuple[int, ...],
    sums: str,
) -> LoweredLoop:
    """Return the LoweredLoop of loops, which were the program at the `seen` numbers of steps: choose what is kept,
    write both kernels, and the file around them. `captured` is the Capture of the fewest steps, `least` and
    `short_programs` are those of `fewest_steps`."""
    forward, backward, pair = loops.forward, loops.backward, captured.pairs[0]
    layout = _layout_of(loops.program, short_programs)
    if backward is not None:
        kept = choose_kept(forward, backward, elements, layout.facts, layout.state, layout.is_row, least)
        forward, backward = kept.forward, kept.backward
        layout.facts = {**layout.facts, **{facts.name: facts for facts in kept.tensors}}
    texts = _kernel_texts(name, forward, backward, layout, sums)
    ports = _tensors_of_ports(pair, layout.facts)
    source_files = sorted({step.source.file for step in pair.forward.steps if step.source is not None})
    parts = FileParts(
        name=name,
        origin=", ".join(source_files[:3]) or name,
        layout=layout,
        forward=texts.forward,
        backward=texts.backward,
        inputs=ports.inputs,
        outputs=ports.outputs,
        tangents=ports.tangents,
        gradients=ports.gradients,
        least=least,
        most=max(seen),
        sums=sums,
        shorts=tuple(_short_of(short, name, ports.gradients, elements, layout, sums) for short in short_programs),
        without_grad=_inputs_without_grad(ports.inputs, pair, layout.facts),
        torch_texts=texts.in_torch(name, forward, backward, layout),
        positive=_inputs_without_negatives(
            function, call_of(make_inputs(loops.program.length)), captured, ports.inputs, layout.facts
        ),
    )
    return LoweredLoop(
        source=file_text(parts),
        name=name,
        function=function,
        make_inputs=make_inputs,
        capture=captured,
        face=Face(
            inputs=tuple(layout.facts[tensor].port for tensor in ports.inputs),
            gradients=tuple(gradient is not None for gradient in ports.gradients),
            outputs=tuple(layout.facts[tensor].port for tensor in ports.outputs),
            tangents=tuple(tensor in ports.tangents for tensor in ports.outputs),
        ),
        forward=forward,
        backward=backward,
        parts=parts,
        least=min([least, *(short.length for short in short_programs)]),
        seen=seen,
    )


def _inputs_without_negatives(
    function: Callable[..., Any],
    call: Call,
    captured: Capture,
    inputs: Sequence[str],
    tensors: Mapping[str, TensorFacts],
) -> frozenset[str]:
    """Return those of the `inputs` that have no negative number in a call: the file draws none for its comparison."""
    values = inputs_by_port(function, captured, call.args, dict(call.kwargs))
    return frozenset(tensor for tensor in inputs if bool((values[tensors[tensor].port] >= 0).all()))


def _layout_of(program: Program, short_programs: Sequence[Program]) -> Layout:
    """Return how the tensors of a program lie in memory, with those that only its short programs have, as a gradient
    that the loop has not. Tensors that hold kept values are not chosen yet."""
    tensors = dict(program.tensors)
    for short in short_programs:
        tensors = short.tensors | tensors  # of a tensor that both have, the facts of the loop's program
    layout = Layout(tensors, program.state)
    if _has_rows(layout, program, *short_programs):
        layout.columns = program.state[-1]
    return layout


@dataclass(frozen=True, slots=True)
class _KernelTexts:
    """The kernels of both directions. `read_later` are the tensors that the backward reads: values of halves are
    rounded as memory rounds them before the forward uses them, too."""

    forward: KernelText
    backward: KernelText | None
    read_later: frozenset[str]

    def in_torch(self, name: str, forward: Loop, backward: Loop | None, layout: Layout) -> tuple[TorchText, ...]:
        """Return the same directions as functions of plain PyTorch, with which the file compares its kernels."""
        forward_text = torch_loop(f"{name}_forward_in_torch", forward, layout, self.read_later)
        if backward is None:
            return (forward_text,)
        return (forward_text, torch_loop(f"{name}_backward_in_torch", backward, layout))


def _kernel_texts(name: str, forward: Loop, backward: Loop | None, layout: Layout, sums: str) -> _KernelTexts:
    """Return the kernels of both directions, and name the kept tensors in `layout.shown`.

    Each direction is written twice, because each needs what only the other's text tells. The forward rounds what the
    backward reads as memory does, so the backward comes first. The kept tensors are named after variables of the
    forward, `h_1` -> `kept_h`, so both are written again with these names, which `layout` has by then.
    """

    def backward_text() -> KernelText | None:
        return kernel_text(f"{name}_backward", backward, layout, sums) if backward is not None else None

    def forward_text() -> KernelText:
        return kernel_text(f"{name}_forward", forward, layout, sums, read_later)

    unnamed_backward = backward_text()
    read_later = frozenset(unnamed_backward.tensors if unnamed_backward is not None else ())
    _rename_kept(layout, forward_text().named)
    return _KernelTexts(forward_text(), backward_text(), read_later)


@dataclass(frozen=True, slots=True)
class _PortTensors:
    """The tensors of a program's ports, by their names in the kernels; the same as in `FileParts`. `tangents` maps an
    output to the tensor of its gradient, and `gradients` has the tensor of the gradient of each input, or None."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tangents: Mapping[str, str]
    gradients: tuple[str | None, ...]


def _tensors_of_ports(pair: Pair, tensors: Mapping[str, TensorFacts]) -> _PortTensors:
    """Return the tensors of a program's ports. For `h = tanh(x @ w)` whose x has no gradient: inputs (x, w), outputs
    (h,), tangents {h: the tangent of h}, gradients (None, the gradient of w)."""
    tensor_by_port = {(facts.role, facts.port): name for name, facts in tensors.items()}
    inputs = tuple(tensor_by_port[port.role, port.name] for port in pair.forward.inputs if port.role in INPUTS)
    outputs = tuple(tensor_by_port[port.role, port.name] for port in pair.forward.outputs if port.role == "output")
    tangents = {
        name: tensor_by_port["tangent", facts.port]
        for name, facts in tensors.items()
        if facts.role == "output" and ("tangent", facts.port) in tensor_by_port
    }
    gradients = tuple(tensor_by_port.get(("gradient", tensors[name].port)) for name in inputs)
    return _PortTensors(inputs, outputs, tangents, gradients)


def _inputs_without_grad(inputs: Sequence[str], pair: Pair, tensors: Mapping[str, TensorFacts]) -> tuple[int, ...]:
    """Return the places of the inputs of floating point that have no gradient in a Pair: the file refuses calls in
    which they require grad."""
    backward_outputs = pair.backward.outputs if pair.backward else ()
    differentiable = {port.name for port in backward_outputs if port.role == "gradient"}
    facts_of_inputs = [tensors[name] for name in inputs]
    return tuple(
        place
        for place, facts in enumerate(facts_of_inputs)
        if facts.port not in differentiable and facts.dtype.is_floating_point
    )


def _short_of(
    short: Program, name: str, gradients: Sequence[str | None], elements: Elements, layout: Layout, sums: str
) -> Short:
    """Return the kernels of a short program, which has no loop. It may write fewer of the `gradients` than the loop:
    in one step, the weight of a state that starts at zero has none. `gradients` has the tensor of the gradient of each
    input of the program `name`, or None."""

    def text_of(side: str, writes: Sequence[Write]) -> KernelText:
        loop = _without_loop(writes, elements, short.length)
        return kernel_text(f"{name}_{side}_{short.length}", loop, layout, sums)

    texts = [
        text_of(side, writes) for side, writes in (("forward", short.forward), ("backward", short.backward)) if writes
    ]
    forward_text, *backward_texts = texts
    written_tensors = {write.tensor for write in short.backward}
    written_gradients = tuple(gradient if gradient in written_tensors else None for gradient in gradients)
    return Short(short.length, forward_text, backward_texts[0] if backward_texts else None, written_gradients)


def _has_rows(layout: Layout, *programs: Program) -> bool:
    """Whether the kernels of programs must have a whole row of the state in one program of the grid: one reduces rows,
    or reads or writes one value for each. `layout` has no rows yet, so its kind "some" includes tensors of rows."""
    writes = [write for program in programs for write in (*program.forward, *program.backward)]
    facts = [layout.facts[write.tensor] for write in writes]
    # a result that is neither whole nor one number nor a sum: one a row
    of_rows = any(item.by_row or (item.dims is None and layout.kind(item.name) == "some") for item in facts)
    return of_rows or any(
        item.op in ROW_REDUCTIONS for item in in_dependency_order([write.element for write in writes])
    )


def _rename_kept(layout: Layout, variable_by_tensor: Mapping[str, str]) -> None:
    """Name the tensors that hold kept values after the variables of the forward, in `layout.shown`: `h_1` ->
    `kept_h`."""
    names_taken = set(layout.facts)
    for tensor, variable in variable_by_tensor.items():
        base = "kept_" + re.sub(r"_\d+$", "", variable)
        free = free_name(base, names_taken)
        names_taken.add(free)
        layout.shown[tensor] = free
