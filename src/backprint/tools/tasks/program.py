"""A task's reference: a captured Pair as one function of its inputs, with the captured backward.

The program's own random draws are inputs of it, and what it writes into its inputs are further results. It runs in the
captured dtypes, in others, and in float64: then every dtype in its graphs is float64 too.

Words of this file: a Graph is one direction, straight-line ATen operators (steps). A port is one of its inputs or
outputs: a name, a role (`input`, `parameter`, `saved`, `tangent`, …) and a spec with dtype, shape and strides; its
`key` is role and name. A draw is a step that returns random numbers. A recipe says how an input is made again. Sizes
may be symbols, if the program was captured with dynamic shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from backprint._torch import pytree
from backprint.derive.called import Call, Place
from backprint.derive.setting import inputs_of_backward, is_inexact, widened_graph, without_reads
from backprint.errors import BackprintError, RefusedError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Capture, Graph, Pair, Port, TensorSpec
from backprint.graph.sizes import evaluate, implied_sizes, known, symbol_out_of_range
from backprint.prove.other_inputs import STEPS, redrawn
from backprint.prove.run import run_graph
from backprint.tools.export.rerun import laid
from backprint.tools.lowering.subjects import lifted_draws, opened_graph, steps_that_draw
from backprint.values.settings import seed_torch


@dataclass(frozen=True, slots=True)
class TaskProgram:
    """The two graphs of a task, and the names of its ports in order.

    The draws of `forward` are inputs of it. `drawing` is the forward before that, which returns them: `draws` has, by
    the name of the input, the place of the draw among its results.
    """

    capture: Capture
    forward: Graph
    backward: Graph
    drawing: Graph
    draws: Mapping[str, int]
    inputs: tuple[Port, ...]
    outputs: tuple[tuple[str, Port], ...]
    """The name of each result, and its port: outputs, and new values of inputs that the program writes into."""
    wanted: tuple[str, ...]
    """The inputs that have a gradient."""
    tangents: tuple[str, ...]
    """The results that have a tangent."""

    @property
    def sized(self) -> bool:
        """Whether the program takes other sizes than the captured ones."""
        return bool(self.forward.symbols)

    @property
    def call(self) -> Call:
        """The call of the program, as `bp.check` takes it, with no values yet."""
        names = tuple(port.name for port in self.inputs)
        leaves, tree = pytree.tree_flatten((tuple(map(Place, names)), {}))
        return Call(tuple(leaves), tree, {}, names, self.wanted)


def program_of(capture: Capture) -> TaskProgram:
    """Return the program of a Capture with one Pair; RefusedError says why there is none."""
    if capture.fake:
        raise RefusedError(f"{capture.name} was captured without values: a task has inputs that are drawn")
    if len(capture.pairs) != 1:
        raise RefusedError(f"{capture.name} has {len(capture.pairs)} Pairs, and a task has one: pass part=, a module")
    (pair,) = capture.pairs
    if pair.backward is None:
        raise RefusedError(f"{capture.name} has no backward: nothing in it is differentiable")
    forward, drawing, draws = _with_draws_outside(pair.forward)
    forward = replace(forward, inputs=tuple(sorted(forward.inputs, key=lambda port: AS_CALLED.index(port.role))))
    if steps_that_draw(pair.backward):
        raise RefusedError(f"the backward of {capture.name} draws random numbers, which are no inputs of it")
    _check_ports(capture.name, forward, pair)
    # An output of the backward is the gradient of the input that has its name.
    inputs = {port.name: port for port in forward.inputs}
    wanted = tuple(
        port.name
        for port in pair.backward.outputs
        if port.name in inputs and isinstance(spec := inputs[port.name].spec, TensorSpec) and is_float(spec)
    )
    if not wanted:
        raise RefusedError(f"{capture.name} has no gradient of an input")
    return TaskProgram(
        capture=capture,
        forward=forward,
        backward=pair.backward,
        drawing=drawing,
        draws=draws,
        inputs=forward.inputs,
        outputs=results_of(forward),
        wanted=wanted,
        tangents=tuple(port.name for port in pair.backward.by_role("tangent")),
    )


AS_CALLED = ("input", "parameter", "buffer", "constant", "rng")
"""The order in which a solution takes its inputs: as `bp.swap` passes them; draws, which it does not pass, are last."""


def _with_draws_outside(forward: Graph) -> tuple[Graph, Graph, dict[str, int]]:
    """Return a forward with its draws as inputs, the forward that returns them, and their places among its results, by
    the names of these inputs; RefusedError if a draw cannot be an input. A forward without draws is both."""
    if not steps_that_draw(forward):
        return forward, forward, {}
    opened = opened_graph(forward) or forward  # with its draws as further results; None if it returns them already
    lifted = lifted_draws(opened)  # the graph with its draws as inputs, and their places among the results of `opened`
    if lifted is None:
        targets = ", ".join(sorted({step.target for step in steps_that_draw(forward)}))
        raise RefusedError(f"the forward draws random numbers that cannot be inputs of it: {targets}")
    added_results = len(opened.outputs) - len(forward.outputs)  # results that `opened_graph` has added, at the end
    graph = lifted.graph
    if added_results:
        graph = replace(graph, outputs=graph.outputs[:-added_results], results=graph.results[:-added_results])
    names = [port.name for port in graph.inputs[len(forward.inputs) :]]  # `lifted_draws` puts draws behind the inputs
    return graph, opened, dict(zip(names, lifted.places, strict=True))


def _check_ports(name: str, forward: Graph, pair: Pair) -> None:
    """Raise RefusedError for inputs that a solution could not have, no dense tensors, and for graphs with subgraphs.
    `name` is the Capture's, for the message."""
    for port in forward.inputs:
        if not isinstance(port.spec, TensorSpec):
            raise RefusedError(f"{name}: its input {port.name!r} is no tensor")
        if port.spec.layout != "strided":
            raise RefusedError(f"{name}: its input {port.name!r} is {port.spec.layout}, and a task's are dense")
    for graph in (forward, pair.backward):
        if graph is not None and graph.subgraphs:
            raise RefusedError(f"{name}: it has subgraphs (loops or branches over tensors), which no task has yet")


def results_of(forward: Graph) -> tuple[tuple[str, Port], ...]:
    """Return name and port of the results of a forward that a solution returns: tensors, not what is saved. The new
    value of an input that the program writes into is `new NAME`."""
    return tuple(
        (port.name if port.role == "output" else f"new {port.name}", port)
        for port in forward.outputs
        if port.role in ("output", "mutation") and isinstance(port.spec, TensorSpec)
    )


def is_float(spec: TensorSpec) -> bool:
    """Whether a tensor of this spec may have a gradient."""
    return spec.dtype.startswith(("float", "bfloat", "complex"))


# ---- Running it


@dataclass(frozen=True, slots=True, eq=False)
class _GraphsInDtype:
    """The two graphs as they run for inputs of one kind: as captured, or in float64."""

    forward: Graph
    backward: Graph


@dataclass(slots=True, eq=False)
class Run:
    """A forward of a reference that was run: its inputs (`values`), copies of them from before, all of its results, and
    pairs of tangents and the gradients for them. `backward` is the graph that goes with it. Where nothing is to be
    remembered, `before` and `gradients` are empty."""

    backward: Graph
    values: dict[str, Tensor]
    before: dict[str, Tensor | None]
    results: dict[PortKey, Any]
    gradients: list[tuple[dict[str, Tensor | None], tuple[Any, ...]]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The bytes of all its tensors: tensors that share memory are counted twice."""
        tensors = [*self.values.values(), *self.before.values(), *self.results.values()]
        for tangents, gradients in self.gradients:
            tensors += [*tangents.values(), *gradients]
        return sum(value.nbytes for value in tensors if isinstance(value, Tensor))


class Reference:
    """A TaskProgram as a function that autograd differentiates by the captured backward.

    It remembers the runs of up to `most` bytes: a judge compares many calls with the results for equal inputs.
    """

    def __init__(self, program: TaskProgram, most: int = 0) -> None:
        self.program, self.most = program, most
        self.known: dict[str, _GraphsInDtype] = {}
        self.runs: list[Run] = []

    def graphs(self, kind: str) -> _GraphsInDtype:
        """Return the graphs of a kind: `captured`; `wide`, in float64, without guards on numbers that were read, which
        are rounded otherwise there; or `other`, whose results may have any dtype."""
        if kind not in self.known:
            forward, backward = self.program.forward, self.program.backward
            if kind == "wide":
                forward, backward = without_reads(widened_graph(forward)), without_reads(widened_graph(backward))
            if kind == "other":
                forward, backward = _without_specs(forward), _without_specs(backward)
            self.known[kind] = _GraphsInDtype(forward, backward)
        return self.known[kind]

    def __call__(self, *inputs: Tensor) -> dict[str, Tensor]:
        results = _ReferenceFunction.apply(self, *inputs)
        return {name: value for (name, _), value in zip(self.program.outputs, results, strict=True)}

    def run_forward(self, inputs: tuple[Tensor, ...]) -> Run:
        """Run the forward on these inputs, or return the run on equal ones: in the captured dtypes, in float64 if all
        floats are that, or in whatever dtypes they have. Inputs of other sizes than it was captured for raise
        RuntimeError; what the graph refuses, a BackprintError."""
        captured = [getattr(torch, port.spec.dtype) for port in self.program.inputs]  # type: ignore[union-attr]
        dtypes_of_floats = {value.dtype for value in inputs if is_inexact(value)}
        all_are_wide = bool(dtypes_of_floats) and dtypes_of_floats <= {torch.float64, torch.complex128}
        kind = "captured" if [value.dtype for value in inputs] == captured else "wide" if all_are_wide else "other"
        graphs = self.graphs(kind)
        values = {}
        for port, value in zip(self.program.inputs, inputs, strict=True):
            values[port.name] = laid_as(port, value, self.program.sized)
        if self.program.sized:
            check_sizes(self.program, values)
        for run in reversed(self.runs):
            if alike(run.before, values):
                return run
        before = _copied_tensors(values) if self.most else {}  # the caller may write into its inputs
        results = run_graph(graphs.forward, values, strict=kind == "captured")  # strict: dtypes are checked
        keys = (port.key for port in graphs.forward.outputs)
        run = Run(graphs.backward, values, before, dict(zip(keys, results, strict=True)))
        self.remember(run)
        return run

    def run_backward(self, run: Run, tangents: dict[str, Tensor | None]) -> tuple[Any, ...]:
        """Run the backward of a forward for these tangents, by the names of results, or return the gradients for equal
        ones: the outputs of the backward graph."""
        for earlier_tangents, gradients in run.gradients:
            if alike(earlier_tangents, tangents):
                return gradients
        before = _copied_tensors(tangents) if self.most else {}
        inputs = inputs_of_backward(run.backward, run.values, run.results, tangents)
        gradients = run_graph(run.backward, inputs, strict=False)
        if self.most:
            run.gradients.append((before, gradients))
            self.forget()
        return gradients

    def remember(self, run: Run) -> None:
        """Remember a run, if there is room for one."""
        if self.most:
            self.runs.append(run)
            self.forget()

    def forget(self) -> None:
        """Forget the oldest runs where all together are too large."""
        size = sum(run.size for run in self.runs)
        while size > self.most:
            size -= self.runs.pop(0).size


def _copied_tensors(values: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
    """Return copies of tensors."""
    return {name: None if value is None else value.detach().clone() for name, value in values.items()}


def alike(left: Mapping[str, Tensor | None], right: Mapping[str, Tensor | None]) -> bool:
    """Whether tensors have the same dtypes, shapes, strides and bits."""
    return left.keys() == right.keys() and all(_same_tensor(value, right[name]) for name, value in left.items())


def _same_tensor(left: Tensor | None, right: Tensor | None) -> bool:
    """Whether two tensors have the same dtype, shape, strides and bits."""
    if left is None or right is None:
        return left is right
    if (left.dtype, left.shape, left.stride()) != (right.dtype, right.shape, right.stride()):
        return False
    if not left.numel():
        return True
    first, other = (bits_of(value) for value in (left, right))
    return torch.equal(first, other)


def bits_of(value: Tensor) -> Tensor:
    """Return the bits of a tensor's elements as integers, which are equal where both are the same NaN."""
    plain = torch.view_as_real(value.detach().resolve_conj()) if value.is_complex() else value.detach().resolve_neg()
    return plain if plain.dtype is torch.bool else plain.view(INTEGERS[plain.itemsize])


INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _without_specs(graph: Graph) -> Graph:
    """Return a graph whose results may have any dtype."""
    return replace(graph, outputs=tuple(replace(port, spec=None) for port in graph.outputs))


def check_sizes(program: TaskProgram, values: Mapping[str, Tensor]) -> None:
    """Raise RuntimeError unless the inputs have sizes that the graphs were traced for: values of the symbols in their
    specs that fit together, and are in range."""
    specs = [(port.name, port.spec) for port in program.inputs if isinstance(port.spec, TensorSpec)]
    # Not strict: the number of dimensions is compared below.
    size_pairs = [pair for name, spec in specs for pair in zip(spec.shape, values[name].shape, strict=False)]
    sizes = implied_sizes(size_pairs)  # the value of each symbol
    for name, spec in specs:
        shape = tuple(values[name].shape)
        # Not `known`: a symbol in the size has no value, because its dimension is missing.
        if len(shape) != len(spec.shape) or not all(known(size, sizes) for size in spec.shape):
            raise RuntimeError(f"{name} has {len(shape)} dimensions, and {len(spec.shape)} were captured")
        if tuple(evaluate(size, sizes) for size in spec.shape) != shape:
            raise RuntimeError(f"{name} was captured with the shape {list(spec.shape)}, not {list(shape)}")
    if (symbol := symbol_out_of_range(program.forward.symbols, sizes)) is not None:
        raise RuntimeError(f"the size {symbol.name} is {sizes[symbol.name]}, and the graphs were traced for other ones")


def laid_as(port: Port, value: Tensor, sized: bool) -> Tensor:
    """Return an input, or a tangent, with the strides that the graph was captured for. RuntimeError if it has another
    shape. If the program is `sized`, it takes other sizes, and the tensor is returned as it is."""
    spec = port.spec
    assert isinstance(spec, TensorSpec)
    if sized:  # `check_sizes` looks at the shapes, and strides depend on them
        return value
    if tuple(value.shape) != spec.shape:
        raise RuntimeError(f"{port.name} was captured with the shape {list(spec.shape)}, not {list(value.shape)}")
    stride = spec.stride or torch.empty(spec.shape, device="meta").stride()
    return laid(value, tuple(map(int, stride)))


class ReferenceFailed(RuntimeError):
    """A captured graph does not run on some inputs and tangents; the message says why."""


class _ReferenceFunction(torch.autograd.Function):
    """The captured forward and the captured backward."""

    @staticmethod
    def forward(ctx: Any, reference: Reference, *inputs: Tensor) -> Any:
        """Run the forward, and return the program's outputs. They are copies: autograd marks what is returned here as
        results of this call, and the run may be remembered. What the graph refuses is raised as ReferenceFailed."""
        try:
            ctx.run = reference.run_forward(inputs)
        except BackprintError as error:
            raise ReferenceFailed(str(error)) from error
        ctx.reference = reference
        program = reference.program
        outputs = [ctx.run.results[port.key] for _, port in program.outputs]
        copies = [value.clone() if isinstance(value, Tensor) else value for value in outputs]
        ctx.mark_non_differentiable(
            *(value for (name, _), value in zip(program.outputs, copies, strict=True) if name not in program.tangents)
        )
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> Any:
        """Run the captured backward, and return a dense gradient for each input, None for one without; the first None
        is for the Reference itself. What the graph refuses is raised as ReferenceFailed."""
        program = ctx.reference.program
        ports = {port.name: port for port in program.backward.by_role("tangent")}
        tangent_by_output = {
            name: laid_as(ports[name], tangent, program.sized) if name in ports else tangent
            for (name, _), tangent in zip(program.outputs, tangents, strict=True)
        }
        try:
            returned = ctx.reference.run_backward(ctx.run, tangent_by_output)
        except BackprintError as error:
            raise ReferenceFailed(str(error)) from error
        gradients = dict(zip((port.name for port in ctx.run.backward.outputs), returned, strict=True))
        wanted = [gradients.get(port.name) if port.name in program.wanted else None for port in program.inputs]
        # Gradients that are remembered are copied, because autograd may add others into what is returned here.
        return (None, *(copied(gradient) if ctx.reference.most else dense(gradient) for gradient in wanted))


def copied(gradient: Any) -> Any:
    """Return a dense copy of a gradient, which its caller may write into."""
    return dense(gradient).clone() if isinstance(gradient, Tensor) else gradient


def dense(gradient: Any) -> Any:
    """Return a gradient without its sparse layout, as that of an embedding may have."""
    is_sparse = isinstance(gradient, Tensor) and gradient.layout is not torch.strided
    return gradient.to_dense() if is_sparse else gradient


# ---- Its inputs


def captured_values(program: TaskProgram) -> dict[str, Tensor]:
    """Return the inputs that the recipes make, by name; draws are those of the capture's seed."""
    drawn = program.capture.recipes.make()
    values = {port.name: drawn[port.name] for port in program.inputs if port.name in drawn}
    return with_draws(program, values, program.capture.seed)


def fresh_values(program: TaskProgram, seed: int, scale: float = 1.0) -> dict[str, Tensor]:
    """Return other inputs, drawn from a seed, with floats that have a gradient multiplied by `scale`.

    If the reference is not finite on them, or does not run, floats move from the captured ones by a small step instead,
    and then by a smaller one. If it is finite on none of these, return the first on which it runs, or else the captured
    inputs.
    """
    capture, recipes = program.capture, program.capture.recipes.recipes
    base = capture.recipes.make()
    first: dict[str, Tensor] | None = None
    for step in STEPS:  # None, for new values, and then shares of a float's size
        fresh = base | redrawn(capture, recipes, base, seed, step)
        values = {port.name: fresh[port.name] for port in program.inputs if port.name in fresh}
        if scale != 1.0:
            values = {name: scaled(value, scale) if name in program.wanted else value for name, value in values.items()}
        try:
            values = with_draws(program, values, seed)
            outputs = Reference(program)(*values.values())
        except (BackprintError, RuntimeError, IndexError, ValueError):  # an operator refuses such values
            continue
        first = first or values
        if all(bool(output.isfinite().all()) for output in outputs.values() if is_inexact(output)):
            return values
    return first or captured_values(program)


def scaled(value: Tensor, scale: float) -> Tensor:
    """Return floats times a number, in the same memory layout."""
    return value * scale if is_inexact(value) else value


def with_draws(program: TaskProgram, values: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Return the inputs in port order, with the random numbers that the program draws from a seed."""
    if not program.draws:
        return values
    seed_torch(seed)
    results = run_graph(program.drawing, values, strict=False)  # the run of the reference checks the inputs
    values = values | {name: results[place].clone() for name, place in program.draws.items()}
    return {port.name: values[port.name] for port in program.inputs}
