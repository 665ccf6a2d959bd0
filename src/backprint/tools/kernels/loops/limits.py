"""For which calls a loop is the program: numbers of steps, and shapes of the state, beyond the captures it is from.

A program may branch on how long or how wide its inputs are. So the program itself runs at every number of steps up to
`MAX_STEPS_RUN`, and its outputs and gradients must be those of the loop. Where they are not, that length is captured
and must be the loop, element for element. Sizes of the state are symbolic in one more capture: a size that the program
branches on, or computes with, is a number of the program, and the file refuses others. States of fewer and of more
dimensions are run too. What was not found to be the loop is refused by the file.

Words of this file; those of the package are in `nouns`:

- `lowered`: the LoweredLoop whose file gets limits. `lowered.function` is the program, `lowered.inputs_of(length)`
  makes its arguments, `lowered.parts` is what the file is made of, and `lowered.face` has the ports of its arguments
  and results. `lowered.seen` are the numbers of steps at which it was captured. `lowered.parts.least` is the fewest
  steps of the loop, and `lowered.least` that of the file, with the kernels of so few steps that they have no loop.
- call: the arguments of the program (Call). `named_inputs` returns its inputs by port, parameters and buffers among
  them, and `run_eager` runs it with its backward.
- tensor: a key of `layout.facts`, which say of each tensor what the file knows. A port is the program's name of it.
- dimension: one of the state, counted from the end: -1 is the last. A size is fixed if the file must refuse another.
- rank: how many dimensions the state has.
- defect: an error that is a bug of this package (`is_defect`), and none of the program or of torch, nor a refusal.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from backprint._torch.operators import OpOverload, schema_of
from backprint._torch.pytree import tree_map
from backprint.api import capture
from backprint.errors import RefusedError, is_defect
from backprint.graph.fx.values import resolve
from backprint.graph.nouns import Capture, Graph, Pair, Ref, ScalarSpec, TensorSpec
from backprint.graph.sizes import names_in
from backprint.tools.kernels.loops.call import Call, call_of
from backprint.tools.kernels.loops.file_text import Limits, file_text
from backprint.tools.kernels.loops.nouns import TensorFacts
from backprint.tools.kernels.loops.triton_text import HALVES, Layout
from backprint.tools.kernels.lowered_check import named_inputs, run_eager, to_float64

if TYPE_CHECKING:
    from backprint.tools.kernels.loops.lowered import LoweredLoop

MAX_STEPS_RUN = 256
"""Up to how many steps each number of them is run. Of more, those are taken at which the program was captured."""

MAX_CAPTURES = 16
"""At how many lengths at most the program is captured, where it did not give what the loop gives, but for rounding."""

MAX_DIMENSIONS = 4
"""Up to how many dimensions of the state are run."""

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}
"""How far results may be apart, relative to the largest of a tensor. What is further apart may be rounding, so it
is run in float64, and else captured."""

TOLERANCE_IN_DOUBLE = 1e-6
"""The same for a run in float64, where rounding is far below this."""

SYMBOL_NAME = re.compile(r"[su]\d+")
"""The name that torch gives a symbolic size; other names of an expression are functions, as `Max`."""


def with_limits(lowered: LoweredLoop, check: Callable[[int], None]) -> LoweredLoop:
    """Return a LoweredLoop whose file takes what was found to be the program. `check` raises RefusedError unless the
    program of a length is the loop."""
    runs = Runs(lowered)
    steps = to_ranges(_known_lengths(lowered, runs, check))
    # shapes of the state are looked at with few steps; 3: a first step, a last, and one between them
    length = max(lowered.least, min(3, lowered.most))
    sizes = _sizes_of_program(lowered, runs, length)
    limits = Limits(steps, _known_dimensions(lowered, runs, length), sizes)
    parts = replace(lowered.parts, limits=limits)
    return replace(lowered, parts=parts, source=file_text(parts))


# ---- Numbers of steps


def _known_lengths(lowered: LoweredLoop, runs: Runs, check: Callable[[int], None]) -> set[int]:
    """Return the numbers of steps at which the file gives what the program gives. Where a run shows a difference,
    `check` captures the program and compares it, and raises if it is another; after MAX_CAPTURES such lengths, others
    are left out. So are those at which the program does not run."""
    known = {length for length in lowered.seen if length >= lowered.least}
    captured = 0  # how many lengths
    for length in range(lowered.least, min(lowered.most, MAX_STEPS_RUN) + 1):
        if length in known or length < lowered.parts.least:  # fewer steps have kernels of their own
            continue
        is_same = runs.agrees(call_of(lowered.inputs_of(length)))
        if is_same is False and captured < MAX_CAPTURES:
            check(length)
            captured, is_same = captured + 1, True
        if is_same:
            known.add(length)
    return known


def to_ranges(lengths: Collection[int]) -> tuple[tuple[int, int], ...]:
    """Return numbers as ranges, the first and the last of each: {1, 2, 3, 7} -> ((1, 3), (7, 7))."""
    ranges: list[tuple[int, int]] = []
    for length in sorted(lengths):
        if ranges and ranges[-1][1] == length - 1:
            ranges[-1] = (ranges[-1][0], length)
        else:
            ranges.append((length, length))
    return tuple(ranges)


class ProgramRun(NamedTuple):
    """What the program itself was given and gave: its inputs by the file's tensors, its outputs and gradients by
    "output " or "gradient " and their port, and the tangents, one an output, None for one that has none."""

    inputs: dict[str, Tensor]
    results: Mapping[str, Tensor]
    tangents: Sequence[Tensor | None]


class Runs:
    """Runs the program beside its loop in plain PyTorch. `namespaces` has both directions, compiled: by whether they
    compute in float64. `halves` says whether a tensor of the program is a half."""

    def __init__(self, lowered: LoweredLoop) -> None:
        self.lowered = lowered
        program = lowered.function
        self.program = copy.deepcopy(program) if isinstance(program, nn.Module) else program
        self.namespaces: dict[bool, dict[str, Any]] = {}
        self.halves = any(facts.dtype in HALVES for facts in lowered.parts.layout.facts.values())

    def agrees(self, call: Call) -> bool | None:
        """Whether the program gives what its loop gives; None if it does not run in its own dtype. An error says
        nothing else: what cannot be compared in one dtype is compared in the other, and False if it cannot be there
        either."""
        # halves differ by rounding anyway; of others, a difference that float64 does not show is rounding
        for double in (True,) if self.halves else (False, True):
            try:
                with torch.random.fork_rng(devices=()), torch.enable_grad():
                    program_run = self.run_program(call, double)
            except Exception:  # in float64 what the program makes itself may be of another dtype
                if not double:
                    return None
                continue
            try:
                if all(
                    is_close(loop_result, program_result, double)
                    for program_result, loop_result in self.compared_pairs(program_run, double)
                ):
                    return True
            except Exception:  # the loop is for other shapes
                continue
        return False

    def functions(self, double: bool) -> dict[str, Any]:
        """Return the functions of both directions in PyTorch by name, from their texts; if `double`, with all numbers
        in float64."""
        if double not in self.namespaces:
            namespace: dict[str, Any] = {"torch": torch}
            for side in self.lowered.parts.torch_texts:
                source = side.source
                if double:
                    for name in ("float32", "bfloat16", "float16"):
                        source = source.replace(f"torch.{name}", "torch.float64")
                    source = source.replace(".float()", ".double()")
                exec(compile(source, f"<{side.name}>", "exec"), namespace)  # a text of this package's own
            self.namespaces[double] = namespace
        return self.namespaces[double]

    def run_program(self, call: Call, double: bool) -> ProgramRun:
        """Run the program itself on a call, and its backward for random tangents; if `double`, in float64."""
        lowered, program = self.lowered, self.program
        args, kwargs = tree_map(detached_copy, (call.args, dict(call.kwargs)))
        if double:
            args, kwargs, program = (to_float64(item) for item in (args, kwargs, program))
        named = named_inputs(lowered, program, args, kwargs)
        if double:  # what requires grad stays the very tensor that the program uses, to get a gradient
            named = {name: x if x.requires_grad else to_float64(x) for name, x in named.items()}
        results, tangents = run_eager(lowered, program, args, kwargs, named, tangents=None)  # None: drawn
        tensors_and_ports = zip(lowered.parts.inputs, lowered.face.inputs, strict=True)
        inputs = {key: named[port].detach() for key, port in tensors_and_ports}
        return ProgramRun(inputs, results, tangents)

    def compared_pairs(self, run: ProgramRun, double: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each output and gradient of a run of the program, and what the loop in PyTorch gives for it on the same
        inputs; if `double`, in float64."""
        values, results, tangents = run
        parts, face = self.lowered.parts, self.lowered.face
        facts, functions = parts.layout.facts, self.functions(double)
        # values of rows get the last dimension of the state, to broadcast with the others
        broadcast_values = {key: value[..., None] if facts[key].by_row else value for key, value in values.items()}
        steps = next(value.shape[0] for key, value in broadcast_values.items() if facts[key].timed)
        state = torch.broadcast_shapes(*(value.shape[facts[key].timed :] for key, value in broadcast_values.items()))
        device = next(iter(values.values())).device
        values_by_tensor = dict(values)
        values_by_tensor |= {
            parts.tangents[key]: tangent
            for key, tangent in zip(parts.outputs, tangents, strict=True)
            if tangent is not None and key in parts.tangents
        }
        with torch.no_grad():
            for side in parts.torch_texts:  # the backward takes what the forward returns, too
                returned = functions[side.name](*(values_by_tensor[key] for key in side.takes), steps, state, device)
                values_by_tensor |= zip(
                    side.returns, returned if isinstance(returned, tuple) else (returned,), strict=True
                )
        for key, port in zip(parts.outputs, face.outputs, strict=True):
            yield results[f"output {port}"], values_by_tensor[key]
        for key, port, gradient in zip(parts.inputs, face.inputs, parts.gradients, strict=True):
            if gradient:  # as large as the state, where the input is broadcast to it
                yield results[f"gradient {port}"], values_by_tensor[gradient].sum_to_size(values[key].shape)


def detached_copy(value: Any) -> Any:
    """Return a tensor as a copy of it, a leaf that requires grad as it does; other values as they are."""
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


def is_close(loop_result: Tensor, program_result: Tensor, double: bool) -> bool:
    """Whether two tensors are the same but for rounding: as far apart as TOLERANCES allows, of the largest number. NaN
    equals NaN, and Inf equals Inf. `double` says whether they were computed in float64."""
    if loop_result.shape != program_result.shape:
        return False
    loop_result, program_result = loop_result.detach(), program_result.detach()
    same = (loop_result == program_result) | (loop_result.isnan() & program_result.isnan())
    if same.all() or not program_result.is_floating_point():
        return bool(same.all())
    allowed = TOLERANCE_IN_DOUBLE if double else TOLERANCES.get(program_result.dtype, 0.0)
    largest = program_result.double().nan_to_num(nan=0, posinf=0, neginf=0).abs().max()
    return bool((same | ((loop_result.double() - program_result.double()).abs() <= allowed * largest)).all())


# ---- Dimensions of the state


def _known_dimensions(lowered: LoweredLoop, runs: Runs, length: int) -> tuple[int, int]:
    """Return the fewest and the most dimensions of a state at which the program of `length` steps was the loop."""
    # a state of rows keeps its last dimension, so it has one at least
    fewest = 1 if lowered.parts.layout.columns else 0
    return (
        _rank_reached(lowered, runs, length, more=False, limit=fewest),
        _rank_reached(lowered, runs, length, more=True, limit=MAX_DIMENSIONS),
    )


def _rank_reached(lowered: LoweredLoop, runs: Runs, length: int, more: bool, limit: int) -> int:
    """Return the last number of dimensions of the state, up from the captured one if `more` and else down, up to which
    the program is the loop; a `limit` at most."""
    rank, call = len(lowered.parts.layout.state), call_of(lowered.inputs_of(length))
    while rank < limit if more else rank > limit:
        try:
            call = with_rank_changed(lowered, call, rank, more)
        except Exception as error:  # there is no such call of this program
            if is_defect(error):
                raise
            break
        if not runs.agrees(call):
            break
        rank += 1 if more else -1
    return rank


def with_rank_changed(lowered: LoweredLoop, call: Call, rank: int, more: bool) -> Call:
    """Return a call whose state, of `rank` dimensions, has one more in front, of size 2, if `more`, or else lacks its
    first, of which index 0 is taken."""

    def change_dimension(value: Tensor, facts: TensorFacts) -> Tensor:
        """Return a tensor with that dimension of the state, which is behind time, added or taken away."""
        dimension = int(facts.timed)
        changed = value.unsqueeze(dimension) if more else value.select(dimension, 0)
        return changed.expand(*changed.shape[:dimension], 2, *changed.shape[dimension + 1 :]) if more else changed

    return replace_state_tensors(lowered, call, rank, change_dimension)


def replace_state_tensors(
    lowered: LoweredLoop, call: Call, rank: int, make_other: Callable[[Tensor, TensorFacts], Tensor]
) -> Call:
    """Return a call with `make_other(tensor, facts)` for each tensor that has all `rank` dimensions of the state; those
    with fewer are broadcast and stay, and so do parameters, which are no arguments of the call."""
    args, kwargs = tree_map(detached_copy, (call.args, dict(call.kwargs)))
    named = named_inputs(lowered, lowered.function, args, kwargs)
    facts = {
        id(named[port]): lowered.parts.layout.facts[key]
        for key, port in zip(lowered.parts.inputs, lowered.face.inputs, strict=True)
    }

    def replace_one(value: Any) -> Any:
        """Return the other tensor for one that has all dimensions of the state, else the value as it is."""
        tensor_facts = facts.get(id(value))
        # time is no dimension of the state, and values of rows lack its last
        if tensor_facts is None or value.dim() - tensor_facts.timed < rank - tensor_facts.by_row:
            return value
        return make_other(value.detach(), tensor_facts).clone().requires_grad_(value.requires_grad)

    return Call(*tree_map(replace_one, (args, kwargs)))


# ---- Sizes of the state


def _without_ones(lowered: LoweredLoop, runs: Runs, call: Call) -> Call:
    """Return a call whose state has 2 in the place of each size of 1, which torch does not make symbolic; the call
    itself if the loop is not the program there."""
    state = lowered.parts.layout.state
    if 1 not in state:
        return call

    def widen_ones(value: Tensor, facts: TensorFacts) -> Tensor:
        """Return a tensor expanded to 2 in each dimension of the state that is 1."""
        sizes = state[: len(state) - facts.by_row]
        return value.expand(*value.shape[: facts.timed], *(2 if size == 1 else -1 for size in sizes))

    wider = replace_state_tensors(lowered, call, len(state), widen_ones)
    return wider if runs.agrees(wider) else call


def _sizes_of_program(lowered: LoweredLoop, runs: Runs, length: int) -> Mapping[int, int]:
    """Return the sizes of the state that the file must refuse to change: dimension, counted from the end (-1 is the
    last), -> size. They are all of them if the program cannot be traced with symbolic sizes."""
    state = lowered.parts.layout.state
    all_sizes = {place - len(state): size for place, size in enumerate(state)}
    try:
        captured, ports = capture_symbolic(lowered, _without_ones(lowered, runs, call_of(lowered.inputs_of(length))))
        fixed = set(_fixed_sizes(lowered, captured, ports))
    except Exception as error:  # what cannot be traced with symbolic sizes is for the captured sizes
        if is_defect(error):
            raise
        fixed = set(all_sizes)
    columns = {-1} if lowered.parts.layout.columns else set()  # a file of rows checks the last size by itself
    return {place: size for place, size in all_sizes.items() if place in fixed - columns}


def capture_symbolic(lowered: LoweredLoop, call: Call) -> tuple[Capture, dict[str, str]]:
    """Return a capture of the program with symbolic sizes of all its inputs, parameters too, and the file's tensor of
    each of its ports. All inputs are passed in one dict, with the names `i0`, `i1`, …, since sizes of arguments alone
    become symbols, and those of parameters do not."""
    args, kwargs = tree_map(detached_copy, (call.args, dict(call.kwargs)))
    function: Any = lowered.function
    named = named_inputs(lowered, function, args, kwargs)
    constants = {id(value) for value in lowered.capture.origin.constants.values()}
    inputs_by_name = {f"i{index}": value for index, value in enumerate(named.values()) if id(value) not in constants}
    names_by_id = {id(value): name for name, value in inputs_by_name.items()}
    own_tensors = {}  # parameters and buffers
    if isinstance(function, nn.Module):
        own_tensors = {**dict(function.named_parameters()), **dict(function.named_buffers())}

    def program(tensors: dict[str, Tensor]) -> Any:
        """Run the program on a dict of its inputs, its parameters and buffers among them."""
        passed_instead = {
            key: tensors[names_by_id[id(value)]] for key, value in own_tensors.items() if id(value) in names_by_id
        }
        call_arguments = tree_map(
            lambda value: tensors[names_by_id[id(value)]] if id(value) in names_by_id else value, (args, kwargs)
        )
        if isinstance(function, nn.Module):
            return functional_call(function, passed_instead, *call_arguments)
        return function(*call_arguments[0], **call_arguments[1])

    captured = capture(
        program, args=({name: detached_copy(value) for name, value in inputs_by_name.items()},), dynamic=True
    )
    ports = {}
    for port in captured.pairs[0].forward.inputs:
        if port.role == "input":
            # a port of an item of the dict ends in its key
            index = next(index for index in range(len(named)) if port.name.endswith(f"i{index}"))
            ports[port.name] = lowered.parts.inputs[index]
    return captured, ports


def _fixed_sizes(lowered: LoweredLoop, captured: Capture, ports: Mapping[str, str]) -> Iterator[int]:
    """Yield the dimensions of the state, counted from the end, whose size the program takes as a number: a size that
    the symbolic capture `captured` fixed, bounded, tied to another, or computed with."""
    layout = lowered.parts.layout
    if len(captured.pairs) != 1:
        raise RefusedError("the program is several graphs with symbolic sizes")
    pair = captured.pairs[0]
    sizes = _sizes_of_inputs(pair, ports, layout)
    symbols: dict[str, int | None] = {}  # the dimension that a symbol was first seen in; None: time
    for dimension, size in sizes:
        if isinstance(size, int):
            if dimension is not None and size != 1:  # fixed to a number
                yield dimension
        # one symbol for two dimensions, or an expression of symbols: the program needs them equal, or tied so
        elif symbols.setdefault(size, dimension) != dimension or not size.isidentifier():
            yield from (tied for tied in (dimension, symbols.get(size)) if tied is not None)
    # a dimension that is 1 in every input was no symbol: nothing is known of it
    known = {dimension for dimension, size in sizes if size != 1}
    yield from (dimension for dimension in range(-len(layout.state), 0) if dimension not in known)
    for symbol in pair.forward.symbols:
        # a bound that the program set; torch itself takes sizes from 2 on as symbols
        if symbol.low not in ("0", "1", "2") or symbol.high != "inf":
            yield from _dimensions_in(symbol.name, symbols)
    for guard in captured.guards:
        left, is_equal, right = guard.text.partition(" == ")
        if guard.kind == "size" and ".shape[" not in left:  # a size that is a number is one in the port, too
            # that a dimension has one size in all inputs is no condition on it
            one, other = symbols.get(left, left), symbols.get(right, right)
            if not is_equal or one != other:
                yield from _dimensions_in(guard.text, symbols)
    for graph in (pair.forward, *([pair.backward] if pair.backward else [])):
        yield from _sizes_as_numbers(graph, symbols)


def _sizes_of_inputs(pair: Pair, ports: Mapping[str, str], layout: Layout) -> list[tuple[int | None, int | str]]:
    """Return all sizes of the inputs, each with the dimension of the state that it is of, counted from the end, or None
    for time: of `x[T, B, 8]`, (None, "T"), (-2, "B"), (-1, 8). `ports` has the tensor of each port."""
    sizes: list[tuple[int | None, int | str]] = []
    for port in pair.forward.inputs:
        if port.name in ports and isinstance(port.spec, TensorSpec):
            facts, shape = layout.facts[ports[port.name]], port.spec.shape
            for place, size in enumerate(shape):
                dimension = place - len(shape) - facts.by_row if place >= facts.timed else None
                sizes.append((dimension, size))
    return sizes


def _dimensions_in(text: str, symbols: Mapping[str, int | None]) -> Iterator[int]:
    """Yield the dimensions of the state whose sizes an expression has. `symbols` has the dimension of each symbol, None
    for the number of steps, which is no size of the state.

    A number without an expression (`text` is empty), and a symbol that is not the size of an input, may come from any
    size: all dimensions.
    """
    all_dimensions = [dimension for dimension in symbols.values() if dimension is not None]
    if not text:
        yield from all_dimensions
        return
    for name in names_in(text):
        if name in symbols:
            dimension = symbols[name]
            if dimension is not None:
                yield dimension
        elif SYMBOL_NAME.fullmatch(name):  # other names are functions, as `Mod` and `Max`
            yield from all_dimensions


def _sizes_as_numbers(graph: Graph, symbols: Mapping[str, int | None]) -> Iterator[int]:
    """Yield the dimensions of the state whose size the program computes with, as in `x / x.shape[-1]`. In a shape, as
    in `torch.zeros(x.shape[1:])`, a size is no number."""
    specs = {port.local: port.spec for port in graph.inputs} | {step.name: step.spec for step in graph.steps}
    for step in graph.steps:
        operator = resolve(step.target) if not step.is_guard else None
        if not isinstance(operator, OpOverload):
            continue
        declared = schema_of(operator).arguments
        types = {argument.name: str(argument.type) for argument in declared}
        # a call may leave out arguments, or pass them as keywords
        arguments = [*zip((argument.name for argument in declared), step.args, strict=False), *step.kwargs]
        for name, value in arguments:
            spec = specs.get(value.name) if isinstance(value, Ref) else None
            # an argument of int or SymInt is a size in a shape, a dimension or an index
            if isinstance(spec, ScalarSpec) and not ("int" in types[name] or "Int" in types[name]):
                yield from _dimensions_in(spec.expression, symbols)
