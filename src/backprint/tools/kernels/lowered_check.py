"""A file that was lowered, compared with the program in eager: in a process of its own, at several sizes.

Words of this file:

- `lowered`: what `bp.lower` returned. `lowered.function` is the program, None if it was lowered from a Capture;
  `lowered.capture` is its Capture, and `lowered.face` has the ports of the file's function: of its inputs, with whether
  each has a gradient, and of its outputs, with whether each has a tangent.
- port: the name that the Capture gives an input or an output. Results are by "output " or "gradient " and their port.
- tangent: the gradient of an output that is passed to the backward; None for an output that has none.
- `named`, `inputs`: the tensors that the program is called with, by port, parameters and buffers among them.
- to nudge: to move numbers by up to their last bit, to see how far results move for rounding alone.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.pytree import tree_map
from backprint.child.child import Start, start_interpreter
from backprint.child.ends import ChildDied
from backprint.child.limits import limited
from backprint.child.tensors import SharedMemory, TensorChild
from backprint.errors import RefusedError, UsageError
from backprint.graph.nouns import Graph, Pair
from backprint.judge.closeness import NUDGES, compare, rounded_again, size_of
from backprint.prove.run import RunOptions, run_graph
from backprint.tools.kernels.loops.call import Call, call_of, inputs_by_port
from backprint.tools.kernels.lowered import Lowered

SEED = 7
"""The seed before every run of eager, so that a program draws the same numbers in each."""


@dataclass(frozen=True, slots=True)
class LoweredRow:
    """One output or gradient at one size: its difference, and the largest that is right."""

    size: str
    port: str
    difference: float
    allowed: float

    @property
    def ok(self) -> bool:
        """Whether it is right."""
        return self.difference <= self.allowed


@dataclass(frozen=True, slots=True)
class LoweredCheck:
    """The comparison of a Lowered with eager, a row for each output and gradient at each size."""

    rows: tuple[LoweredRow, ...]

    @property
    def ok(self) -> bool:
        """Whether all are right."""
        return bool(self.rows) and all(row.ok for row in self.rows)

    @property
    def worst(self) -> LoweredRow:
        """The row that is furthest from eager, for what is allowed."""
        return max(
            self.rows,
            # a difference that is NaN is the furthest; where no difference is allowed, it counts as it is
            key=lambda row: float("inf") if row.difference != row.difference else row.difference / (row.allowed or 1.0),
        )

    def __str__(self) -> str:
        wrong = [row for row in self.rows if not row.ok]
        shown = wrong or [self.worst]
        lines = [f"{len(self.rows)} outputs and gradients compared with eager: {len(wrong)} wrong"]
        lines += [f"  {row.size}: {row.port}: {row.difference:.2e}, allowed {row.allowed:.2e}" for row in shown[:8]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from backprint.table.notebook import html_of
        from backprint.table.nouns import Report, Table

        columns = {"size": "name", "of": "name", "difference": "number", "allowed": "number", "verdict": "word"}
        rows = [(r.size, r.port, r.difference, r.allowed, "ok" if r.ok else "wrong") for r in self.rows]
        answer = f"{len(rows)} outputs and gradients compared with eager: {sum(not row.ok for row in self.rows)} wrong"
        return html_of(Report(title="", answer=answer, tables=(), rows=Table(title="", columns=columns, rows=rows)))


@dataclass(frozen=True, slots=True)
class Case:
    """A program at one size: inputs by port, tangents, and the results of eager by port."""

    size: str
    inputs: Mapping[str, Tensor]
    tangents: tuple[Tensor | None, ...]
    results: Mapping[str, Tensor]
    nudged: tuple[Mapping[str, Tensor], ...] = ()
    """The results of eager on inputs that differ in their last bit: what is further apart for rounding alone."""
    exact: Mapping[str, Tensor] = field(default_factory=dict)
    """The results in float64; none where the program does not run in it."""


def compare_with_eager(lowered: Lowered, cases: Sequence[Case], timeout: float) -> LoweredCheck:
    """Return the comparison of a Lowered with these cases; its file may run for `timeout` seconds."""
    answers = run_in_child(lowered, cases, timeout)
    rows: list[LoweredRow] = []
    for case, answer in zip(cases, answers, strict=True):
        rows += [compare_port(case, port, answer.get(port), value) for port, value in case.results.items()]
    return LoweredCheck(tuple(rows))


def compare_port(case: Case, port: str, result: Tensor | None, eager: Tensor) -> LoweredRow:
    """Return how far a result is from eager in float64, where that is known, and else from eager. A missing result, or
    one of another shape or dtype, is infinitely far."""
    if result is None or result.shape != eager.shape or result.dtype != eager.dtype:
        return LoweredRow(case.size, port, difference=float("inf"), allowed=0.0)
    if not (eager.is_floating_point() or eager.is_complex()):
        return LoweredRow(case.size, port, difference=float((result != eager).any()), allowed=0.0)
    # "output" or "gradient": the largest number of all tensors of that kind
    kind = port.partition(" ")[0]
    largest = max(size_of(value) for name, value in case.results.items() if name.partition(" ")[0] == kind)
    rounded = [results[port] for results in case.nudged if port in results]
    closeness = compare(result, case.exact.get(port, eager), eager, rounded=rounded, largest=largest)
    if closeness.word == "unknown":  # no element, or none that is a number in eager
        return LoweredRow(case.size, port, difference=0.0, allowed=0.0)
    return LoweredRow(case.size, port, closeness.error, closeness.allowed)


# ---- Cases of a function or a module


def case_of_function(lowered: Lowered, size: str, given: Any, nudges: int = NUDGES) -> Case:
    """Return the results of eager on the inputs `given` (a tuple, a dict of keywords, or one tensor), on `nudges`
    others that differ in their last bit, and in float64 where the program runs in it. `size` is the name of the
    case."""
    call = call_of(given)
    args, kwargs = copy.deepcopy((call.args, dict(call.kwargs)))
    named = named_inputs(lowered, lowered.function, args, kwargs)
    results, tangents = run_eager(lowered, lowered.function, args, kwargs, named, tangents=None)
    nudged = tuple(_nudged_results(lowered, call, tangents, seed) for seed in range(nudges))
    exact: Mapping[str, Tensor] = {}
    with contextlib.suppress(RuntimeError, TypeError):  # the program has another dtype inside
        exact = _results_in_float64(lowered, call, tangents)
    return Case(size, named, tuple(tangents), results, nudged, exact)


def _nudged_results(lowered: Lowered, call: Call, tangents: Sequence[Tensor | None], seed: int) -> Mapping[str, Tensor]:
    """Return the results of eager where parameters, arguments and tangents are nudged; `seed` chooses in which way."""
    function = lowered.function
    if isinstance(function, nn.Module):
        function = copy.deepcopy(function)
        for parameter in function.parameters():
            parameter.data = nudge(parameter.data, seed)
    args, kwargs = tree_map(lambda value: nudge(value, seed), (call.args, dict(call.kwargs)))
    inputs = named_inputs(lowered, function, args, kwargs)
    nudged_tangents = [None if item is None else nudge(item, seed) for item in tangents]
    results, _ = run_eager(lowered, function, args, kwargs, inputs, nudged_tangents)
    return results


def _results_in_float64(lowered: Lowered, call: Call, tangents: Sequence[Tensor | None]) -> Mapping[str, Tensor]:
    """Return the results of eager in float64; raise what the program raises if it does not run in it."""
    function = to_float64(lowered.function)
    args, kwargs = to_float64(call.args), to_float64(dict(call.kwargs))
    inputs = named_inputs(lowered, function, args, kwargs)
    wide_tangents = [to_float64(item) for item in tangents]
    results, _ = run_eager(lowered, function, args, kwargs, inputs, wide_tangents)
    return results


def nudge(value: Any, seed: int) -> Any:
    """Return a float32 or float64 tensor whose elements moved by up to a last bit; another value as it is."""
    if not isinstance(value, Tensor) or value.dtype not in (torch.float32, torch.float64):
        return value
    nudged = rounded_again(value.detach(), value.dtype, seed, units=1.0)
    return nudged.requires_grad_(value.requires_grad)


def to_float64(value: Any) -> Any:
    """Return a copy of arguments or of a module with all floating-point tensors in float64; other values as they
    are."""
    if isinstance(value, Tensor):
        wide = value.detach().to(torch.float64) if value.is_floating_point() else value.detach().clone()
        return wide.requires_grad_(value.requires_grad)
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).to(torch.float64)
    if isinstance(value, (tuple, list)):
        return type(value)(to_float64(item) for item in value)
    return {key: to_float64(item) for key, item in value.items()} if isinstance(value, dict) else value


def named_inputs(lowered: Lowered, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the inputs of the file's function by port, in its order: those of `args` and `kwargs`, and the parameters
    and buffers of `function`, which is the program or a copy of it."""
    named = inputs_by_port(function, lowered.capture, args, kwargs)
    return {port: named[port] for port in lowered.face.inputs}


def run_eager(
    lowered: Lowered,
    function: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    inputs: Mapping[str, Tensor],
    tangents: Sequence[Tensor | None] | None,
) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """Run the program and its backward; return its outputs and gradients by "output " or "gradient " and their port,
    and the tangents, which are drawn if None. `inputs` are the tensors among the arguments and parameters by port; the
    leaves among them that have a gradient are made to require grad. An input that nothing depends on gets zeros."""
    face = lowered.face
    torch.manual_seed(SEED)  # a program that draws makes the same numbers in each run
    differentiable = {port: inputs[port] for port, gradient in zip(inputs, face.gradients, strict=True) if gradient}
    for tensor in differentiable.values():
        if tensor.is_leaf:
            tensor.requires_grad_(True)
    outputs = tensors_in(function(*args, **kwargs))
    if len(outputs) != len(face.outputs):
        raise UsageError(f"the program returned {len(outputs)} tensors, and was captured with {len(face.outputs)}")
    if tangents is None:
        tangents = list(_random_tangents(lowered, outputs))
    results = {f"output {port}": output.detach() for port, output in zip(face.outputs, outputs, strict=True)}
    outputs_and_tangents = [
        (output, tangent) for output, tangent in zip(outputs, tangents, strict=True) if tangent is not None
    ]
    if differentiable and outputs_and_tangents:
        gradients = torch.autograd.grad(
            [output for output, _ in outputs_and_tangents],
            list(differentiable.values()),
            [tangent for _, tangent in outputs_and_tangents],
            materialize_grads=True,
        )
        results |= {f"gradient {port}": gradient for port, gradient in zip(differentiable, gradients, strict=True)}
    return results, list(tangents)


def _random_tangents(lowered: Lowered, outputs: Sequence[Tensor]) -> Iterator[Tensor | None]:
    """Yield a tangent for each output that has one, None for the others; always the same ones for the same shapes."""
    generator = torch.Generator().manual_seed(1)
    for output, has_tangent in zip(outputs, lowered.face.tangents, strict=True):
        yield torch.randn(output.shape, generator=generator).to(output) if has_tangent else None


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors of a program's result, in order, from tuples, lists and dicts in one another."""
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for item in items for tensor in tensors_in(item)]


# ---- Cases of a capture


def case_of_capture(lowered: Lowered, size: str, values: Mapping[str, Tensor], use_graphs: bool = False) -> Case:
    """Return the results of the captured program on these values, by port, and on others that differ in their last bit:
    of the program itself, if it is still alive in this process, and else, or if `use_graphs`, of the captured graphs.
    `size` is the name of the case."""
    results_of = results_of_graphs if use_graphs or not lowered.capture.origin.alive else _results_of_program
    pair, face = lowered.capture.pairs[0], lowered.face
    inputs = [values[port.name] for port in pair.forward.inputs]
    results = zip(pair.forward.outputs, run_graph(pair.forward, inputs), strict=True)
    outputs = {port.name: value for port, value in results if port.role == "output"}  # for the shapes of tangents
    tangents = tuple(_random_tangents(lowered, [outputs[name] for name in face.outputs]))
    nudged = [
        results_of(
            lowered,
            {name: nudge(value, seed) for name, value in values.items()},
            [nudge(item, seed) for item in tangents],
        )
        for seed in range(NUDGES)
    ]
    function_inputs = {name: values[name] for name in face.inputs}
    # without `exact`: the values and the graphs have the captured dtypes
    return Case(size, function_inputs, tangents, results_of(lowered, values, tangents), tuple(nudged))


def _results_of_program(
    lowered: Lowered, values: Mapping[str, Tensor], tangents: Sequence[Tensor | None]
) -> dict[str, Tensor]:
    """Return outputs and gradients of the captured program on these values: twin of `results_of_graphs`."""
    origin, face = lowered.capture.origin, lowered.face
    tangents_by_output = {name: value for name, value in zip(face.outputs, tangents, strict=True) if value is not None}
    step = origin.run_step(values, tangents_by_output or None)  # None: no gradient is wanted of it
    results = {f"output {name}": step.outputs[name].detach() for name in face.outputs}
    return results | dict(_wanted_gradients(lowered, values, step.gradients))


def results_of_graphs(
    lowered: Lowered, values: Mapping[str, Tensor], tangents: Sequence[Tensor | None]
) -> dict[str, Tensor]:
    """Return outputs and gradients of the captured graphs on these values, by port: twin of `_results_of_program`. The
    values may have other sizes than the captured ones."""
    pair, face = lowered.capture.pairs[0], lowered.face
    tangents_by_output = {name: value for name, value in zip(face.outputs, tangents, strict=True) if value is not None}
    keys = ((port.role, port.name) for port in pair.forward.outputs)
    torch.manual_seed(SEED)
    # not strict: `run_graph` would refuse other dtypes and shapes than those of the ports
    results = run_graph(pair.forward, [values[port.name].detach() for port in pair.forward.inputs], strict=False)
    forward = dict(zip(keys, results, strict=True))
    gradients = dict(_gradients_of_graph(pair, forward, tangents_by_output))
    outputs = {f"output {name}": forward["output", name] for name in face.outputs}
    return outputs | dict(_wanted_gradients(lowered, values, gradients))


def _wanted_gradients(
    lowered: Lowered, values: Mapping[str, Tensor], gradients: Mapping[str, Tensor | None]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the gradient of each input that has one: zeros for None."""
    for name, has_gradient in zip(lowered.face.inputs, lowered.face.gradients, strict=True):
        if has_gradient:
            gradient = gradients.get(name)
            yield f"gradient {name}", torch.zeros_like(values[name]) if gradient is None else gradient


def _gradients_of_graph(
    pair: Pair, forward: Mapping[tuple[str, str], Any], tangents: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Yield the gradients of the captured backward, by the input's port; `forward` has the forward's results by role
    and name."""
    if pair.backward is None:
        return
    values = [
        tangents[port.name] if port.role == "tangent" else forward["saved", port.name] for port in pair.backward.inputs
    ]
    for port, value in zip(pair.backward.outputs, run_graph(pair.backward, values, strict=False), strict=True):
        if port.role == "gradient":
            yield port.name, value


def values_of_steps(graph: Graph, inputs: Sequence[Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """Return the values of some steps of a graph, which draws with the seed of the cases, so that these are the numbers
    that eager drew there."""
    values: dict[str, Tensor] = {}

    def record(which: Graph, name: str, value: Any) -> None:
        """Keep the value of a step; `run_graph` calls this after each, of graphs inside of the graph too."""
        if which is graph and name in names:
            values[name] = (value[1] if isinstance(value, tuple) else value).clone()  # a dropout's mask is its second

    torch.manual_seed(SEED)
    run_graph(graph, inputs, strict=False, options=RunOptions(watch=record))
    return values


# ---- The process


RUNNER = "backprint.tools.kernels.lowered_run"
"""The module that the process runs: it has the inputs, and nothing of eager's results."""


def run_in_child(lowered: Lowered, cases: Sequence[Case], timeout: float) -> list[dict[str, Tensor]]:
    """Run the file on cases in a process of its own, for `timeout` seconds at most; return for each case what the file
    returned, by port. Refuse where the process does not finish."""
    face = lowered.face
    is_cpu = all(tensor.device.type == "cpu" for case in cases for tensor in case.inputs.values())
    for package in ("triton", *(("numpy",) if is_cpu else ())):  # numpy for Triton's interpreter
        if importlib.util.find_spec(package) is None:
            raise RefusedError(f"running the kernels needs {package}, which is not installed: pip install {package}")
    with tempfile.TemporaryDirectory(prefix="backprint_lowered_") as folder:
        file = Path(folder) / "lowered.py"
        lowered.save(file)
        arguments = os.fspath(file), lowered.name
        environment = {"TRITON_INTERPRET": "1"} if is_cpu else {}

        def start(inputs: SharedMemory, results: SharedMemory) -> Start:
            """Return what starts the process, with the two memories in which it is sent tensors and sends some."""
            memories = inputs.file, results.file
            return start_interpreter(
                RUNNER, *arguments, *map(str, memories), environment=environment, inherited=memories
            )

        child = TensorChild(start, limited(timeout), captured=True)
        try:
            answers = [_answer_to(child, case, face.gradients) for case in cases]
        except ChildDied as error:
            raise RefusedError(f"{lowered.name}: its file: {error}\n{error.end.printed[-2000:]}".rstrip()) from None
        finally:
            child.close()
    outputs = [f"output {name}" for name in face.outputs]
    gradients = [f"gradient {name}" for name, item in zip(face.inputs, face.gradients, strict=True) if item]
    return [
        dict(zip(outputs, results[: len(outputs)], strict=True))
        # none if no output requires grad in the file: `compare_port` calls a missing gradient wrong
        | dict(zip(gradients, results[len(outputs) :], strict=False))
        for results in answers
    ]


def _answer_to(child: TensorChild, case: Case, gradients: Sequence[bool]) -> list[Tensor]:
    """Return the outputs and then the gradients of the file for a case. `gradients` says of each input whether it has
    one. The child gets one list of tensors, the inputs and then the tangents, and the places of the latter in it."""
    pairs = zip(case.inputs.values(), gradients, strict=True)
    inputs = [tensor.detach().clone().requires_grad_(has_gradient) for tensor, has_gradient in pairs]
    tangent_positions, values = [], list(inputs)
    for tangent in case.tangents:
        tangent_positions.append(None if tangent is None else len(values))
        values += [] if tangent is None else [tangent]
    answer = child.request("run", inputs=child.send_inputs(values), tangents=tangent_positions)
    return child.results_in(answer)
