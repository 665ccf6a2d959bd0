"""Numbers that a program reads out of tensors that require grad, as `x.abs().max().item()` does: a *read*.

Autograd takes such a number for a constant, and so do the captured graphs, with a guard on its value. So the graphs
agree with each other where the program's gradient is not its derivative; only the program itself shows it: near the
captured inputs it computes something else than the graphs do, unless the number only decides what is computed.

`capture.origin` is the program: a LiveProgram while it can run, and `partial` if it is a recorded step, which has
results for its own inputs alone. A Derivative is the verdict on a Pair's backward, and `meant` has the names of what is
meant to differ, such as ITEM.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from backprint.derive.live import gradients_for, run_whole_step
from backprint.derive.setting import drawn_like, inner_product, is_read_guard, own_source
from backprint.errors import BackprintError
from backprint.graph.nouns import Capture, Graph, Pair, Source, Step, TensorSpec, refs
from backprint.graph.steps import needed_steps, used
from backprint.graph.verdicts import CANNOT_TELL, DERIVATIVE, NOT_THE_DERIVATIVE, Derivative, WrongGradient
from backprint.prove.whole import CaptureRun
from backprint.trace.captured import LiveProgram
from backprint.values.settings import preserving_random_states

ITEM = "item"
"""The name of such a read in `meant`."""

STEPS = (1e-2, 2.5e-3, 6e-4)
"""Steps of central differences of the program in its own dtype, relative to the inputs."""

SETTLED, APART = 1e-2, 5e-2
"""How far two differences may be apart to be taken for the derivative, and from where on it is another number than the
gradients say; both are relative to the sizes of the terms, and larger than rounding in float32 is."""


def check_reads(capture: Capture, results: Sequence[Derivative], meant: Sequence[str]) -> list[Derivative]:
    """Return the results, one for each Pair with a backward, changed where the program reads a number of its inputs,
    and its derivative is lost."""
    pairs = [pair for pair in capture.pairs if pair.backward is not None]
    changed = []
    # A Capture without a backward has no Pair here, and one result that says so.
    for result, pair in zip(results, pairs, strict=False):
        source = first_read(pair) if result.good else None
        changed.append(result if source is None else _verdict_on_read(capture, result, source, meant))
    return [*changed, *results[len(changed) :]]


def _verdict_on_read(capture: Capture, result: Derivative, source: Source, meant: Sequence[str]) -> Derivative:
    """Return the verdict where the program reads a number at the line `source`: CANNOT_TELL or NOT_THE_DERIVATIVE, or
    `derivative but for item` if that is meant; `result` as it is if the number only decides what is computed."""
    at = source.at
    # The graphs hold the read number constant. If they compute what the program does at other inputs, it only decides.
    # Bits of a tensor the graphs read anew, as the program does, so there this says nothing.
    reads_bits = any(_is_of_bits(step) for pair in capture.pairs for step in pair.forward.steps)
    if not reads_bits and _graphs_agree_nearby(capture):
        return result
    gap = _gap_of_program(capture)
    # In few digits, differences that are near the gradients do not prove that nothing is lost.
    if gap is None or gap < APART:
        detail = f"it reads a number of its inputs at {at}, and whether a derivative is lost there was not found out"
        return replace(result, word=CANNOT_TELL, detail=detail)
    # `aten._local_scalar_dense` is the operator of `item()`.
    operators = ("aten._local_scalar_dense.default",)
    wrong = WrongGradient(operators, at, source.code, lines=(at,), gradients=(), function=ITEM)
    if ITEM in meant:
        names = sorted({*result.meant, ITEM})
        word = f"{DERIVATIVE} but for {', '.join(names)}"
        return replace(result, word=word, meant=tuple(names), wrong=(*result.wrong, wrong))
    detail = f"it reads a number of its inputs at {at}, which has no gradient; by differences of the program {gap:.1e}"
    return replace(result, word=NOT_THE_DERIVATIVE, detail=detail, wrong=(*result.wrong, wrong))


def first_read(pair: Pair) -> Source | None:
    """Return the line where the forward reads a floating-point number, or all elements or bits of a tensor, that depend
    on an input with a gradient; None if there is no such line, or nothing is computed after it, as after a loss that is
    printed."""
    assert pair.backward is not None
    names_with_gradient = {port.name for port in pair.backward.outputs}
    depending = {port.local for port in pair.forward.inputs if port.name in names_with_gradient}
    # A number that is read after the last result is only printed or logged.
    for step in pair.forward.steps[: _count_computing_steps(pair.forward)]:
        names = set(used(step))
        if names & depending:
            if is_read_guard(step) or step.target == WHOLE_TENSOR or _is_of_bits(step):
                # A guard without a line has that of the step whose value it checks.
                sources = (other.source for other in pair.forward.steps if other.name in {step.name, *names})
                return step.source or next((source for source in sources if source is not None), None)
            depending.add(step.name)
    return None


def _count_computing_steps(graph: Graph) -> int:
    """Return how many steps there are up to the last that an output or a mutation depends on."""
    results = zip(graph.outputs, graph.results, strict=True)
    wanted = [name for port, result in results if port.role != "saved" for name in refs(result)]
    steps = [step for step in graph.steps if not step.is_guard]
    # `needed_steps` drops dead code; the function says which steps stay though nothing needs them: none.
    computing = {step.name for step in needed_steps(steps, wanted, stays=lambda *_: False)}
    return max((number for number, step in enumerate(graph.steps, 1) if step.name in computing), default=0)


WHOLE_TENSOR = "aten.equal.default"
"""The step before a guard on a whole tensor, which a program takes as numpy's."""


def _is_of_bits(step: Step) -> bool:
    """Whether a step takes the bits of a tensor for floating-point numbers (`x.view(torch.float32)`): autograd has no
    gradient of it, as of a number that is read."""
    return step.target == "aten.view.dtype" and isinstance(step.spec, TensorSpec) and "float" in step.spec.dtype


def _graphs_agree_nearby(capture: Capture) -> bool:
    """Whether the program near the captured inputs computes what the graphs do, which hold constant what was read.
    False if it cannot run there."""
    program = capture.origin
    if capture.fake or not program.alive or program.partial or not isinstance(program, LiveProgram):
        return False
    values = program.values()
    # Without guards, the graphs take all inputs of the right sizes.
    forwards = [
        (pair.name, replace(pair.forward, steps=tuple(step for step in pair.forward.steps if not step.is_guard)))
        for pair in capture.pairs
    ]
    graphs = replace(capture, pairs=tuple(Pair(name, forward, backward=None) for name, forward in forwards))
    names_with_gradient = {port.name for pair in capture.pairs if pair.backward for port in pair.backward.outputs}
    with preserving_random_states():
        source = own_source(1)
        for step in STEPS[1:]:
            moved = {
                name: value + step * float(value.detach().abs().mean()) * drawn_like(value, source)
                if name in names_with_gradient and value.is_floating_point() and value.numel()
                else value
                for name, value in values.items()
            }
            try:
                outputs_of_program = run_whole_step(capture, moved, tangents=None).outputs
                run = CaptureRun(graphs, moved, tangents=None)
                torch.manual_seed(capture.seed)
                run.forward()
            except (BackprintError, RuntimeError):
                return False
            outputs = {name: value for pair_run in run.runs for name, value in pair_run.outputs.items()}
            for name in capture.signature.differentiable:
                if name not in outputs or not _is_rounded(outputs_of_program[name], outputs[name]):
                    return False
    return True


def _is_rounded(value: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal but for the rounding of a few operators, 8 units in the last place of the largest
    element: what the program computes otherwise near the captured inputs differs by more."""
    value, other = value.detach(), other.detach()
    size = float(value.abs().max()) if value.numel() else 0.0
    allowed = 8 * torch.finfo(value.dtype).eps * size
    return bool(torch.allclose(value, other, rtol=0, atol=allowed, equal_nan=True))


def _gap_of_program(capture: Capture) -> float | None:
    """Return how far the program's gradients are from differences of its outputs, at most, along a few directions: a
    number that is read may change little along one. None if differences do not settle, or the program cannot run."""
    program = capture.origin
    if capture.fake or not program.alive or program.partial or not isinstance(program, LiveProgram):
        return None
    values = program.values()
    with preserving_random_states():
        gaps = [_gap_along(capture, values, own_source(number)) for number in range(DIRECTIONS)]
    return max((gap for gap in gaps if gap is not None), default=None)


DIRECTIONS = 3
"""Along how many directions differences of the program are taken."""


def _gap_along(capture: Capture, values: Mapping[str, Tensor], source: torch.Generator) -> float | None:
    """Return how far the product of the program's gradients with a random direction is from differences of its outputs
    along the direction, for random tangents; None if these do not settle, or the program does not run there."""
    outputs = run_whole_step(capture, values, tangents=None).outputs
    tangents = {name: drawn_like(outputs[name].detach(), source) for name in capture.signature.differentiable}
    gradients = {
        name: gradient
        for name, gradient in gradients_for(capture, values, tangents).items()
        if gradient is not None and name in values
    }
    direction = {name: drawn_like(values[name], source) for name in gradients}
    product = size = 0.0
    for name, gradient in gradients.items():
        # A step is relative to the size of each input.
        direction[name] = direction[name] * float(values[name].abs().mean())
        part, terms = inner_product(gradient, direction[name])
        product, size = product + part, size + terms
    try:
        estimates = [_difference_of(capture, values, tangents, direction, step) for step in STEPS]
    except RuntimeError:
        return None
    size = max(size, *(abs(estimate) for estimate in estimates), 1e-300)
    # Where two steps agree best. If none do, there is a kink or too much rounding.
    change, best = min((abs(fine - coarse) / size, fine) for coarse, fine in itertools.pairwise(estimates))
    if not change < SETTLED:
        return None
    gap = abs(best - product) / size
    return gap if math.isfinite(gap) else None


def _difference_of(
    capture: Capture,
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor],
    direction: Mapping[str, Tensor],
    step: float,
) -> float:
    """Return the central difference of ⟨tangents, outputs⟩ along a direction, with this step."""
    total = 0.0
    for sign in (1, -1):
        moved = {name: values[name] + sign * step * towards for name, towards in direction.items()}
        outputs = run_whole_step(capture, {**values, **moved}, tangents=None).outputs
        for name, tangent in tangents.items():
            total += sign * inner_product(tangent.double(), outputs[name].detach().double()).value
    return total / (2 * step)
