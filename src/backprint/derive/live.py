"""Tries of the program itself: its own backward, with tangents of many kinds and sizes, and several calls in a row.

The captured graphs cannot show these faults: sizes and strides of a tangent are constants of a graph, and so are the
branch that a backward takes and what it keeps from one call to the next. Most backwards run on the graph of one
forward. Each kind of tangents or calls is a Try: it was compared, with a fault or without, or it says why it was not.

- `program`, a LiveProgram: the program that a Capture was traced from, which runs again. In a block
  `with program.calls(values, seed) as call:`, each `call()` runs its forward; the result (`forward`) has copies of the
  `outputs()`, and `gradients(tangents)` runs the backward. What the calls change is restored after the block.
- `values`: the program's inputs, parameters and buffers by name. `names`: the names of outputs that require grad.
- `backward`: a function that runs the program's backward for tangents (`Backward`).
- `word` of a Try goes before its name in a sentence: `with tangents times 2^16`, `for a second call`.
- `base`: random tangents with their gradients, with which all others are compared (`Base`).
- `meant`: the names of Functions, or `hook`, whose backward is meant to differ from the derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint._torch.modes import TorchDispatchMode, pop_mode, push_mode
from backprint.derive.called import error_text
from backprint.derive.hostile import (
    MAX_OUTPUTS_ALONE,
    SMALLEST,
    indices_of,
    relative_difference,
    tangents_of_kinds,
)
from backprint.derive.setting import drawn_like, is_inexact, nudge_values, own_source, to_float64
from backprint.errors import is_defect
from backprint.graph.nouns import Capture
from backprint.graph.steps import UNWRITTEN
from backprint.judge.closeness import size_of, tolerance_of
from backprint.judge.occasions import FACTORS, MEMORIES_OF_TANGENTS
from backprint.trace.captured import LiveProgram
from backprint.values.tree import plain_leaves

Gradients = Mapping[str, Tensor | None]

Backward = Callable[[Gradients], Gradients]
"""Runs a backward of the program for tangents by output, and returns its gradients by input. An output whose tangent is
None takes no part."""


@dataclass(frozen=True, slots=True)
class ProgramFault:
    """A wrong gradient of the program itself: its port, its relative error, and in words the gradient that it was
    compared with, for a sentence: `… differs from that of a first call`."""

    port: str
    error: float
    compared: str


@dataclass(frozen=True, slots=True)
class Try:
    """One kind of tangents or of calls for which the program itself ran. It has a fault, or the reason why nothing was
    compared, or nothing is wrong. `word` goes before the name in a sentence. `function` is the name of a custom
    autograd.Function if only calls of this Function ran, and not the whole program."""

    name: str
    fault: ProgramFault | None = None
    why_not: str = ""
    word: str = "with"
    function: str = ""


class Difference(NamedTuple):
    """The port of a gradient that differs from the expected one, and its relative error."""

    port: str
    error: float


class NotTried(Exception):
    """Raised by a comparison of which nothing can be said, with the reason as its message."""


def attempt(name: str, compare: Callable[[], ProgramFault | None], word: str = "with") -> Try:
    """Call `compare`, and return its result as a Try. An error that the program raises is the reason why nothing was
    compared, and no wrong gradient; a defect of our own is raised again."""
    try:
        return Try(name, compare(), word=word)
    except NotTried as error:
        return Try(name, why_not=str(error), word=word)
    except Exception as error:
        return Try(name, why_not=why_raised(error), word=word)


def why_raised(error: Exception) -> str:
    """Return why nothing was compared where the program raised an error; raise a defect of our own again."""
    if is_defect(error):
        raise error
    return f"it raised {error_text(error)}"


def faults_of(tries: Sequence[Try]) -> list[Try]:
    """Return the tries that have a fault."""
    return [try_ for try_ in tries if try_.fault is not None]


# ---- Runs


def run_whole_step(capture: Capture, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None) -> Any:
    """Run one step of the program itself, under the capture's seed; return its Outcome, with `outputs` and `gradients`.
    Without tangents, the backward starts from ones."""
    torch.manual_seed(capture.seed)
    return capture.origin.run_step(values, tangents)


def gradients_for(capture: Capture, values: Mapping[str, Tensor], tangents: Gradients) -> Gradients:
    """Return the gradients of the program itself, under the capture's seed, for copies of these tangents."""
    assert isinstance(capture.origin, LiveProgram)
    with capture.origin.calls(values, capture.seed) as call:
        return call().gradients(copy_contiguous(tangents))


def copy_contiguous(tangents: Gradients) -> dict[str, Tensor | None]:
    """Return the tangents with copies of those that are sparse or contiguous, because a backward may write into them.
    Expanded, transposed and sliced tangents are passed as they are: a copy would not have the strides that are
    tried."""
    return {
        name: tangent.clone()
        if tangent is not None and 0 not in tangent.stride() and is_sparse_or_contiguous(tangent)
        else tangent
        for name, tangent in tangents.items()
    }


def is_sparse_or_contiguous(tangent: Tensor) -> bool:
    """Whether a tangent is sparse or fills its memory in order, so that `clone` returns the same layout."""
    return tangent.layout is not torch.strided or tangent.is_contiguous()


def tangents_of(outputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, Tensor]:
    """Return random tangents of the outputs with these names, of those that are dense floats."""
    source = own_source(0)
    return {
        name: drawn_like(output, source)
        for name in names
        if isinstance(output := outputs.get(name), Tensor) and output.layout is torch.strided and is_inexact(output)
    }


# ---- Tangents


@dataclass(frozen=True, slots=True)
class Base:
    """Random tangents of the program's outputs with their gradients, which all others are compared with.

    `noise` is the rounding of each gradient, relative to its size: how far the gradient for tangents times 3 is from 3
    times the gradient.
    """

    tangents: Mapping[str, Tensor]
    gradients: Gradients
    noise: Mapping[str, float]
    has_all_outputs: bool
    """Whether all outputs that require grad have a tangent among them."""


def measure_base(
    backward: Backward, tangents: Mapping[str, Tensor], gradients: Gradients, names: Sequence[str]
) -> Base:
    """Return the Base of these tangents and their gradients; run one more backward to measure the rounding. `names` are
    all outputs that require grad."""
    # Times 3, because a product with a power of two is exact and has no rounding to measure.
    thrice = backward({name: 3 * tangent for name, tangent in tangents.items()})
    noise = {
        name: relative_difference(thrice.get(name), 3 * gradient)
        for name, gradient in gradients.items()
        if gradient is not None
    }
    return Base(tangents, gradients, noise, len(tangents) == len(names))


AGAIN = "a second backward"

CHANGES_ALONE = "the program does not return the same gradients twice"


def tries_of_step(capture: Capture, values: Mapping[str, Tensor]) -> list[Try]:
    """Return the tries of a program that runs whole steps only: with tangents in other memory. None, if its outputs are
    numbers, or if it refuses such tangents or does not repeat its gradients."""
    names = capture.signature.differentiable
    base_tangents = tangents_of(run_whole_step(capture, values, tangents=None).outputs, names)
    if not any(tangent.dim() for tangent in base_tangents.values()):
        return []  # a number alone has no other memory

    def backward(tangents: Gradients) -> Gradients:
        """Run the whole step on its values, with copies of these tangents."""
        dense_tangents = {name: tangent for name, tangent in copy_contiguous(tangents).items() if tangent is not None}
        gradients: Gradients = run_whole_step(capture, values, dense_tangents).gradients
        return gradients

    try:
        gradients, gradients_again = (backward(base_tangents) for _ in range(2))
        base = measure_base(backward, base_tangents, gradients, names)
    except RuntimeError:
        return []
    return [] if first_difference(gradients_again, gradients) else list(layout_tries(backward, base))


def tangent_tries(
    capture: Capture, program: LiveProgram, values: Mapping[str, Tensor], meant: Sequence[str]
) -> list[Try]:
    """Return the tries of tangents of other kinds, and of a second backward of the same graph (AGAIN); none if no
    output can have a tangent.

    First all backwards run on the graph of one forward. If one raises or is wrong there, each runs again on a forward
    of its own: a fault that only the shared graph shows is one of AGAIN, because that backward spoils its graph. A
    fault on both is one of that kind of tangents.
    """
    with program.calls(values, capture.seed) as call:
        forward = call()
        tangents = tangents_of(forward.outputs(), capture.signature.differentiable)
        if not tangents:
            return []
        on_one_graph = _tries_on_one_graph(capture, forward, tangents, meant)
    if not on_one_graph.why_not and not on_one_graph.second_differs and not faults_of(on_one_graph.tries):
        return [Try(AGAIN, word="for"), *on_one_graph.tries]
    return _tries_on_own_graphs(capture, values, tangents, on_one_graph, meant)


class _OnOneGraph(NamedTuple):
    """What the backwards of one graph showed: the tries of kinds of tangents; how a second backward for the same
    tangents differs from the first, if it does; and why nothing was tried, if the program raised. There are tries only
    if the second backward was right."""

    tries: list[Try]
    second_differs: Difference | None = None
    why_not: str = ""


def _tries_on_one_graph(
    capture: Capture, forward: Any, tangents: Mapping[str, Tensor], meant: Sequence[str]
) -> _OnOneGraph:
    """Try all kinds of tangents with backwards of the graph of one `forward`."""

    def backward(tangents_given: Gradients) -> Gradients:
        """Return the gradients by another backward of the graph."""
        return forward.gradients(copy_contiguous(tangents_given), again=True)

    try:
        gradients, gradients_again = (backward(tangents) for _ in range(2))
        if second_differs := first_difference(gradients_again, gradients):
            return _OnOneGraph([], second_differs)
        return _OnOneGraph(list(_tries_of_tangent_kinds(capture, backward, tangents, gradients, meant)))
    except Exception as error:  # of the program: `why_raised` raises a defect of our own again
        return _OnOneGraph([], why_not=why_raised(error))


def _tries_on_own_graphs(
    capture: Capture,
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor],
    on_one_graph: _OnOneGraph,
    meant: Sequence[str],
) -> list[Try]:
    """Try all kinds of tangents, each with a forward of its own, after something was wrong `on_one_graph`."""

    def backward(tangents_given: Gradients) -> Gradients:
        """Return the gradients by the backward of a forward that runs for it alone."""
        return gradients_for(capture, values, tangents_given)

    tries, second_differs, why_not = on_one_graph
    try:
        gradients, gradients_again = (backward(tangents) for _ in range(2))
    except Exception as error:
        return [Try("tangents of other kinds", why_not=why_raised(error))]
    if first_difference(gradients_again, gradients):
        if why_not or second_differs:
            return [Try("tangents of other kinds", why_not=CHANGES_ALONE)]
        # Two forwards do not repeat each other, so they tell nothing. Two backwards of one graph did: its faults stand.
        return [Try(AGAIN, word="for"), *tries]
    tries_on_own_graphs = list(_tries_of_tangent_kinds(capture, backward, tangents, gradients, meant))
    if why_not:
        return [Try(AGAIN, why_not=why_not, word="for"), *tries_on_own_graphs]
    first_fault = next((try_.fault for try_ in faults_of(tries)), None)
    # Only the shared graph shows a fault: a backward before it has spoiled the graph.
    if second_differs is None and first_fault is not None and not faults_of(tries_on_own_graphs):
        second_differs = Difference(first_fault.port, first_fault.error)
    fault = None if second_differs is None else ProgramFault(*second_differs, "the first backward of the same graph")
    return [Try(AGAIN, fault, word="for"), *tries_on_own_graphs]


def _tries_of_tangent_kinds(
    capture: Capture,
    backward: Backward,
    tangents: Mapping[str, Tensor],
    gradients: Gradients,
    meant: Sequence[str],
) -> Iterator[Try]:
    """Yield a Try for each kind of tangents: in other memory, of other sizes, with other values. `gradients` are those
    for `tangents`, with which all are compared; what is in `meant` need not be linear in its tangents."""
    base = measure_base(backward, tangents, gradients, capture.signature.differentiable)
    yield from layout_tries(backward, base)
    if capture.rank is not None:
        yield Try("tangents of other values", why_not="what the other ranks send is that of the captured step")
    elif not base.has_all_outputs:
        yield Try("tangents of other values", why_not="an output is not dense")
    else:
        functions = {edge.function for edge in capture.opaque if edge.function}
        not_linear = sorted({*meant} & {*functions, "hook"})
        for try_ in (*size_tries(backward, base), *sum_tries(backward, base)):
            if try_.fault is not None and not_linear:
                yield Try(try_.name, why_not=f"{', '.join(not_linear)} is meant to differ, and need not be linear")
            else:
                yield try_


def first_difference(gradients: Gradients, expected: Gradients, times: float = 1.0) -> Difference | None:
    """Return the first gradient that differs from `times` the expected one by more than rounding; None if there is
    none. An expected gradient of None stands for zeros."""
    largest = max((size_of(right) for right in expected.values() if right is not None), default=0.0)
    for name, right in expected.items():
        gradient = gradients.get(name)
        if right is None and gradient is None:
            continue
        if right is None:
            assert gradient is not None
            right = torch.zeros_like(gradient)
        scaled = None if gradient is None else to_float64(gradient) / times
        error = relative_difference(scaled, to_float64(right), SMALLEST * largest)
        if error > tolerance_of(right.dtype):  # of its own dtype, not of float64
            return Difference(name, error)
    return None


# ---- Tangents in other memory


def layout_tries(backward: Backward, base: Base) -> Iterator[Try]:
    """Yield a Try for each kind of memory of tangents: the gradient must be that for the same numbers in new memory."""
    for row in MEMORIES_OF_TANGENTS:
        # None for a tangent that cannot have this memory, as a number cannot be transposed.
        tangents_or_none = {name: row.make(tangent) for name, tangent in base.tangents.items()}
        unusual = {name: tangent for name, tangent in tangents_or_none.items() if tangent is not None}
        if unusual:
            yield attempt(row.name, partial(_layout_fault, backward, base, unusual))


def _layout_fault(backward: Backward, base: Base, unusual: Mapping[str, Tensor]) -> ProgramFault | None:
    """Return a fault if the gradient for tangents in `unusual` memory is not the gradient for the same numbers in new
    memory. The outputs that are not in `unusual` have the tangents of the base."""
    expected = base.gradients
    tangents = {**base.tangents, **unusual}
    # An expanded tangent has other numbers than the base, so its gradient in new memory is not known yet.
    if any(0 in tangent.stride() for tangent in unusual.values()):
        expected = backward({name: tangent.contiguous() for name, tangent in tangents.items()})
    gradients = backward(tangents)
    # For tangents with one number a row, the gradient of a norm is 0 but for rounding, which is small beside the
    # gradient for random tangents.
    all_gradients = [*expected.values(), *base.gradients.values()]
    largest = max((size_of(gradient) for gradient in all_gradients if gradient is not None), default=0.0)
    for name, right in expected.items():
        if right is None:
            continue
        error = relative_difference(gradients.get(name), right, SMALLEST * largest)
        if error > tolerance_of(right.dtype) and error > ROUNDING * base.noise.get(name, 0.0):
            return ProgramFault(name, error, "that for the same numbers in new memory")
    return None


ROUNDING = 30.0
"""Memory may change a gradient by so many times what rounding changes: its terms may cancel."""


# ---- Tangents of other sizes

NEGATIVE = {"negative tangents": -2.0}

SIZES, SIZES_OF_HALF = ("2^16", "2^-20", "2^-24"), ("2^12", "2^-10")
"""The factors of tangents, and those in float16: a gradient is then multiplied by the same factor, to the bit."""


def size_tries(backward: Backward, base: Base) -> Iterator[Try]:
    """Yield a Try for each size of tangents."""
    is_half = any(tangent.dtype is torch.float16 for tangent in base.tangents.values())
    factors = {f"tangents times {word}": FACTORS[word] for word in (SIZES_OF_HALF if is_half else SIZES)}
    for name, scale in (NEGATIVE | factors).items():
        yield attempt(name, partial(_size_fault, backward, base, scale))


def _size_fault(backward: Backward, base: Base, scale: float) -> ProgramFault | None:
    """Return a fault if the gradient for tangents times `scale` is not the base's gradient times `scale`.

    It is no fault if numbers on the way overflow or underflow. Then factors nearer to 1 are tried, at which a backward
    that clips or drops may show all the same; NotTried says that none of them is small enough, or that the first that
    is shows no fault.
    """
    wrong = first_difference(backward(_scaled_by(base, scale)), base.gradients, scale)
    if wrong is None:
        return None
    sizes = sizes_in(backward, base.tangents)
    if not _has_other_range(backward, base, scale, sizes):
        return ProgramFault(*wrong, "that for the tangents themselves, times as much")
    # A power of 16 comes down to 13, 10, 7, 4, 1; one of -20 comes up to -17, …, -2.
    farthest_power = round(math.log2(abs(scale)))
    for power in range(farthest_power, 0, -NEARER if farthest_power > 0 else NEARER):
        nearer = math.copysign(2.0**power, scale)
        if not _has_other_range(backward, base, nearer, sizes):
            if wrong := first_difference(backward(_scaled_by(base, nearer)), base.gradients, nearer):
                return ProgramFault(*wrong, f"that for the tangents themselves, where both are times 2^{power}")
            raise NotTried(f"{BEYOND}; times 2^{power} it is right")
    raise NotTried(BEYOND)


BEYOND = "numbers on the way are beyond those of their dtype"

NEARER = 3
"""By how many powers of two sizes come nearer to 1."""


def _scaled_by(base: Base, scale: float) -> dict[str, Tensor]:
    """Return the tangents of a Base, multiplied by a number."""
    return {name: tangent * scale for name, tangent in base.tangents.items()}


@dataclass(frozen=True, slots=True)
class Size:
    """How large the elements of an operator's result are, without their signs: the largest, the mean of all, and the
    5th percentile of those that are not 0 (`small`; 0 if all are)."""

    operator: str
    dtype: torch.dtype
    largest: float
    mean: float
    small: float


class Sizes(TorchDispatchMode):
    """Notes the size of each floating-point result of an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[Size] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in UNWRITTEN:  # what is in new memory by chance is no number of the program
            return results
        for leaf in plain_leaves((results,), {}):
            if isinstance(leaf, Tensor) and leaf.layout is torch.strided and is_inexact(leaf) and leaf.numel():
                sizes = to_float64(leaf.detach()).abs().flatten()
                nonzero = sizes[sizes > 0]
                # The 5th percentile is a twentieth of the way up; kthvalue counts from 1.
                small = float(nonzero.kthvalue(len(nonzero) // 20 + 1).values) if len(nonzero) else 0.0
                self.sizes.append(Size(str(func), leaf.dtype, float(sizes.max()), float(sizes.mean()), small))
        return results


def sizes_in(backward: Backward, tangents: Mapping[str, Tensor]) -> list[Size]:
    """Run a backward for these tangents, and return the sizes of the results of all operators in it, in order."""
    mode = Sizes()
    push_mode(mode)  # not `with mode`, which sets a flag by which compiled code runs otherwise: `_torch.modes`
    try:
        backward(tangents)
    finally:
        pop_mode()
    return mode.sizes


def _has_other_range(backward: Backward, base: Base, scale: float, sizes_before: Sequence[Size]) -> bool:
    """Whether a result in a backward for tangents times `scale` leaves the range of its dtype, up to the first one that
    is not scaled by a power of `scale`: then the backward need not be wrong. `sizes_before` has the sizes of the
    results for the base's tangents, in the order in which they were computed."""
    sizes_after = sizes_in(backward, _scaled_by(base, scale))
    # A backward that takes another branch may have fewer operators or more.
    for size_before, size_after in zip(sizes_before, sizes_after, strict=False):
        if size_before.operator != size_after.operator or size_before.dtype != size_after.dtype:
            return False  # it took another branch
        limits = torch.finfo(size_before.dtype)
        if _is_scaled_by(size_before, size_after, 1.0):  # it does not depend on the tangents
            continue
        # A result may grow with the tangents, shrink with them as a quotient does, or, if it is 0 or Inf now, have
        # grown with their square.
        powers = (1, -1) if math.isfinite(size_after.largest) and size_after.largest else (1, -1, 2)
        for power in powers:
            factor = abs(scale) ** power
            if size_before.largest * factor > limits.max or 0 < size_before.small * factor < limits.smallest_normal:
                return True
        if not any(_is_scaled_by(size_before, size_after, abs(scale) ** power) for power in (1, 2, -1)):
            return False  # from here on, the backward computes something that is not linear, in any range
    return False


def _is_scaled_by(one: Size, other: Size, factor: float) -> bool:
    """Whether a result is `factor` times another, as far as the largest and the mean element say."""
    slack = 0.05 if one.dtype in (torch.float16, torch.bfloat16) else 1e-3  # more than rounding of a mean
    return all(
        math.isclose(right, left * factor, rel_tol=slack)
        for left, right in ((one.largest, other.largest), (one.mean, other.mean))
    )


# ---- Tangents with other values


LIMIT_OF_SUM = 0.02
"""Up to this part of the largest gradient, a gradient of a sum may differ from the sum of gradients: rounding may be
as much, and a backward that takes another branch differs by more."""

LIMIT_OF_FEW_DIGITS, ROUNDING_OF_SUM, MOST_ROUNDING = 0.05, 12.0, 0.3
"""The same where a gradient has few digits, as in 16 bits: the first number, or the second times its rounding. If this
is more than the third, nothing is compared."""


def _limit_of_sum(base: Base, name: str) -> float | None:
    """Return by which part of the largest gradient the gradient `name` of a sum may differ from the sum of gradients;
    None if its rounding (`noise`) would hide a fault."""
    noise = base.noise[name]
    if noise < LIMIT_OF_SUM / 50:  # rounding is far below the limit
        return LIMIT_OF_SUM
    limit = max(LIMIT_OF_FEW_DIGITS, ROUNDING_OF_SUM * noise)
    return limit if limit < MOST_ROUNDING else None


def sum_tries(backward: Backward, base: Base) -> Iterator[Try]:
    """Yield a Try for each kind of tangents for which the gradient of a sum must be the sum of the gradients, and one
    for all outputs alone.

    All kinds are added up first. Only if their gradients do not add up, each is looked at by itself.
    """
    kinds = tangents_of_kinds(base.tangents, own_source(1))
    if all(_limit_of_sum(base, name) is None for name in base.noise):
        why_not = "rounding of the gradients is as large as what is looked for"
        yield from (Try(name, why_not=why_not) for name in (*kinds, *([ALONE] if len(base.tangents) > 1 else [])))
        return
    try_of_all = attempt(", ".join(kinds), partial(_group_fault, backward, base, kinds))
    if try_of_all.fault is None and not try_of_all.why_not:
        yield from (Try(name) for name in kinds)
    else:
        for kind, tangents in kinds.items():
            yield attempt(kind, partial(_sum_fault, backward, base, tangents))
    if len(base.tangents) > 1:
        yield from _tries_alone(backward, base)


ALONE, LEFT_OUT = "each output alone", "each output left out"


def _tries_alone(backward: Backward, base: Base) -> Iterator[Try]:
    """Yield a Try for tangents of one output alone, and one for tangents of all but one, each for all outputs; or one
    for each output for which it is wrong. The other outputs take no part in the backward: their tangent is None."""
    names = list(base.tangents)
    outputs_tried = names[:MAX_OUTPUTS_ALONE]

    def tangents_of_some(wanted: Collection[str]) -> dict[str, Tensor | None]:
        """Return the base's tangents of the wanted outputs, and None for the others."""
        return {name: base.tangents[name] if name in wanted else None for name in names}

    kinds_by_name = {ALONE: {f"{name} alone": tangents_of_some([name]) for name in outputs_tried}}
    if len(names) > 2:  # of two, all but one is one alone
        kinds_by_name[LEFT_OUT] = {
            f"all but {name}": tangents_of_some([other for other in names if other != name]) for name in outputs_tried
        }
    for word, kinds in kinds_by_name.items():
        try_of_all = attempt(word, partial(_group_fault, backward, base, kinds))
        one_by_one = []
        if try_of_all.fault is not None or try_of_all.why_not or len(outputs_tried) < len(names):
            one_by_one = [
                attempt(kind, partial(_sum_fault, backward, base, tangents)) for kind, tangents in kinds.items()
            ]
        wrong = [try_ for try_ in one_by_one if try_.fault is not None or try_.why_not]
        yield from wrong
        if len(outputs_tried) < len(names):
            yield Try(word, why_not=f"{len(outputs_tried)} of {len(names)} outputs were tried")
        elif not wrong:
            yield Try(word)


def _group_fault(backward: Backward, base: Base, kinds: Mapping[str, Gradients]) -> ProgramFault | None:
    """Return a fault if the gradients of all these tangents do not add up to the gradient of their sum, to within a
    quarter of the limit: beside a sum of many, a fault of one kind is smaller. Then the caller looks at each kind by
    itself, with the whole limit (`_sum_fault`)."""
    return _fault_of_sum(backward, base, list(kinds.values()), share=1 / 4)


def _sum_fault(backward: Backward, base: Base, tangents: Gradients) -> ProgramFault | None:
    """Return a fault if the gradient for these tangents and the base is not the sum of their gradients."""
    return _fault_of_sum(backward, base, [tangents], share=1.0)


def _fault_of_sum(backward: Backward, base: Base, kinds: Sequence[Gradients], share: float) -> ProgramFault | None:
    """Return a fault if the gradient for the sum of the base's tangents and of all `kinds` of tangents differs from the
    sum of their gradients by more than this share of the limit (`_limit_of_sum`).

    In the sum, tangents are multiplied until their gradients are about as large as the gradient of the base: else a
    fault of one number would be small beside all others.
    """
    total: dict[str, Tensor] = dict(base.tangents)  # the sum of all tangents, of which each kind is added now
    base_gradients = _gradients_in_float64(base.gradients)
    gradients_of_parts: list[dict[str, Tensor]] = [base_gradients]
    largest = max(map(size_of, base_gradients.values()), default=0.0)
    for tangents in kinds:
        gradients = _gradients_in_float64(backward(tangents))
        scale = _scale_to_match(largest, max(map(size_of, gradients.values()), default=0.0))
        gradients_of_parts.append({name: gradient * scale for name, gradient in gradients.items()})
        total |= {name: total[name] + scale * tangent for name, tangent in tangents.items() if tangent is not None}
    gradients_of_total = _gradients_in_float64(backward(total))
    for name in base.noise:
        limit = _limit_of_sum(base, name)
        terms = [part[name] for part in gradients_of_parts if name in part]
        like = gradients_of_total.get(name, terms[0] if terms else None)  # for its shape
        # Rounding would hide a fault, no backward has the gradient, or one has a sparse one.
        if limit is None or like is None or any(term.layout is not torch.strided for term in (like, *terms)):
            continue
        expected = torch.stack([torch.zeros_like(like), *terms]).sum(0)
        of_whole = gradients_of_total.get(name, torch.zeros_like(like))
        # A gradient that is 0 for the sum is compared with the size of the terms that cancelled.
        error = relative_difference(of_whole, expected, max(map(size_of, (*terms, of_whole))))
        if error > limit * share:
            # In a sentence about the gradient for these tangents. If it is linear, its gradient for them is that for
            # the sum, less that for the other terms.
            return ProgramFault(name, error, "that for a sum of tangents, less that for the rest of it")
    return None


def _gradients_in_float64(gradients: Gradients) -> dict[str, Tensor]:
    """Return the gradients in float64, without those that are None."""
    return {name: to_float64(gradient) for name, gradient in gradients.items() if gradient is not None}


LARGEST_TIMES = 2.0**6
"""The most that tangents are multiplied by in a sum."""


def _scale_to_match(wanted: float, size: float) -> float:
    """Return the power of two, from 1 to LARGEST_TIMES, by which `size` becomes about as large as `wanted`; 1 if one of
    them is 0 or not finite."""
    if not (wanted > 0 and size > 0 and math.isfinite(wanted / size)):
        return 1.0
    return min(max(2.0 ** round(math.log2(wanted / size)), 1.0), LARGEST_TIMES)


# ---- Several calls in a row

IN_A_ROW = "calls in a row"

FROZEN = "inputs that require no grad"

MAX_FROZEN = 4
"""How many inputs are tried as the only frozen one, and as the only one that requires grad."""


def frozen_tries(capture: Capture, program: LiveProgram, values: Mapping[str, Tensor]) -> list[Try]:
    """Return the tries in which some inputs and parameters require no grad: a custom Function asks for that
    (`ctx.needs_input_grad`), and the gradients of all others must stay as they are. `usage.frozen` does so for
    `bp.check`."""

    def run() -> list[Try]:
        """Return the tries; an error of the program comes through."""
        with program.calls(values, capture.seed) as call:
            forward = call()
            tangents = tangents_of(forward.outputs(), capture.signature.differentiable)
            all_gradients = forward.gradients(copy_contiguous(tangents))
            names = [name for name, gradient in all_gradients.items() if gradient is not None and name in call.leaves]
            if len(names) < 2:  # if the only one is frozen, there is no gradient
                return []
            if first_difference(call().gradients(copy_contiguous(tangents)), all_gradients):
                return [Try(FROZEN, why_not=CHANGES_ALONE)]

            def fault_with_frozen(frozen: Sequence[str]) -> ProgramFault | None:
                """Return a fault if the gradients of the others change while these leaves require no grad."""
                with call.frozen(frozen):
                    gradients = call().gradients(copy_contiguous(tangents))
                expected = {name: gradient for name, gradient in all_gradients.items() if name not in frozen}
                wrong = first_difference(gradients, expected)
                return None if wrong is None else ProgramFault(*wrong, "that where all inputs require grad")

            tries = [
                attempt(f"{word} frozen", partial(fault_with_frozen, frozen))
                for word, frozen in _frozen_sets(capture, names)
            ]
        # One Try stands for all if nothing is wrong.
        tries_to_report = [try_ for try_ in tries if try_.fault is not None or try_.why_not]
        return tries_to_report or [Try(FROZEN)]

    try:
        return run()
    except Exception as error:
        return [Try(FROZEN, why_not=why_raised(error))]


def _frozen_sets(capture: Capture, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield sets of leaves to freeze together, each with a name: one alone, all but one, and all arguments."""
    # Not all leaves, because then there is no gradient, and not none, which is the usual call.
    seen: set[frozenset[str]] = {frozenset(names), frozenset()}
    sets_by_word = {name: [name] for name in names[:MAX_FROZEN]}
    sets_by_word |= {f"all but {name}": [other for other in names if other != name] for name in names[:MAX_FROZEN]}
    sets_by_word["all arguments"] = [name for name in names if name in capture.signature.arguments]
    for word, frozen in sets_by_word.items():
        if frozenset(frozen) not in seen:
            seen.add(frozenset(frozen))
            yield word, frozen


SECOND_CALL = "a second call with other values"

BEFORE_BACKWARD = "two calls before a backward"

SAME_MEMORY = "a second call with other values in the same memory"

DEPENDS_ON_CALLS = "its outputs depend on the calls before"


class Results(NamedTuple):
    """The outputs of a call, and its gradients for random tangents."""

    outputs: dict[str, Tensor]
    gradients: Gradients


class _InARow(NamedTuple):
    """The results of calls in a row: of the `first` and the `last` on the program's own values, of the `second` on
    other values."""

    first: Results
    second: Results
    last: Results


@dataclass(frozen=True, slots=True)
class _OtherCall:
    """Other values for arguments and parameters, with what the program returns for these in a first call."""

    arguments: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    gradients: Gradients


def call_tries(capture: Capture, program: LiveProgram, values: Mapping[str, Tensor]) -> list[Try]:
    """Return the tries of several calls of the program: what one call, or its backward, keeps must change no gradient
    of another. All that the program reaches is restored after the last call. `usage._in_a_row` does so for `bp.check`.
    """
    names = capture.signature.differentiable
    tries: list[Try] = []
    try:
        for other in _other_calls(capture, program, values):
            why_refused = ""
            try:
                results = _calls_in_a_row(capture, program, values, other, names)
            except RuntimeError as error:  # a write into a buffer that the backward needs
                why_refused = f"it raised {error_text(error)}"
                results = _calls_in_a_row(capture, program, values, other, names, with_call_between=False)
            tries = [_try_of_repeated_call(results.first, results.last)]
            if first_difference(results.second.outputs, other.outputs):
                tries += [Try(name, why_not=DEPENDS_ON_CALLS, word="for") for name in (SECOND_CALL, BEFORE_BACKWARD)]
                continue
            tries += _tries_of_second_call(capture, program, values, other, results.second, why_refused)
            break  # one set of other values is enough, if its outputs do not depend on the calls before
    except Exception as error:
        tries = [Try(IN_A_ROW, why_not=why_raised(error), word="for")]
    return tries


def _tries_of_second_call(
    capture: Capture,
    program: LiveProgram,
    values: Mapping[str, Tensor],
    other: _OtherCall,
    second: Results,
    why_refused: str,
) -> Iterator[Try]:
    """Yield the tries of a second call with the values of `other`, which has the results of a first call with these:
    of the second call itself; of a further call before its backward; and of a call in the memory of the one before, if
    the program reads addresses. `why_refused` says why there was no further call, if the program refused it."""
    names = capture.signature.differentiable
    wrong = first_difference(second.gradients, other.gradients)
    fault = None if wrong is None else ProgramFault(*wrong, "that of a first call with these values")
    # Is the second call wrong by itself, or by the further call that came before its backward?
    is_second = fault is not None and _is_second_call_wrong(capture, program, values, other, names)
    name = SECOND_CALL if other.arguments or other.parameters else "a second call"
    yield Try(name, fault if is_second else None, word="for")
    yield Try(BEFORE_BACKWARD, None if is_second else fault, why_refused, word="for")
    if other.arguments and any(guard.kind == "memory" for guard in capture.guards):
        compare = partial(_fault_in_memory, capture, program, values, other, names)
        yield attempt(SAME_MEMORY, compare, word="for")


def _fault_in_memory(
    capture: Capture, program: LiveProgram, values: Mapping[str, Tensor], other: _OtherCall, names: Sequence[str]
) -> ProgramFault | None:
    """Return a fault if a program that reads where its inputs lie has another gradient where a call with other values
    had its inputs: what it keeps by an address is then not for these values."""
    with program.calls(values, capture.seed) as call:
        expected = results_of(call(), names)
        # The first call has the arguments of `other`, the second has `values` in the same memory.
        _, second = (
            results_of(call_in_memory, names)
            for call_in_memory in call.call_twice_in_same_memory(other.arguments, values)
        )
    if first_difference(second.outputs, expected.outputs):
        raise NotTried(DEPENDS_ON_CALLS)
    wrong = first_difference(second.gradients, expected.gradients)
    return None if wrong is None else ProgramFault(*wrong, "that of a first call with these values")


def _try_of_repeated_call(first: Results, last: Results) -> Try:
    """Return a Try for the last of several calls, which has the values of the first and must return the same."""
    if first_difference(last.outputs, first.outputs):
        return Try(IN_A_ROW, why_not=DEPENDS_ON_CALLS, word="for")
    wrong = first_difference(last.gradients, first.gradients)
    return Try(IN_A_ROW, None if wrong is None else ProgramFault(*wrong, "the run before"), word="for")


def _other_calls(capture: Capture, program: LiveProgram, values: Mapping[str, Tensor]) -> Iterator[_OtherCall]:
    """Yield calls with other values that the program accepts without NaN, the most different values first. If it
    accepts none, yield a call with its own values, whose error comes through."""
    names = capture.signature.differentiable
    for arguments, parameters in other_values(capture, program, values):
        has_own_values = not (arguments or parameters)
        try:
            with program.calls({**values, **arguments, **parameters}, capture.seed) as call:
                outputs, gradients = results_of(call(), names)
        except Exception as error:
            if is_defect(error) or has_own_values:
                raise
            continue
        results = [*outputs.values(), *(gradient for gradient in gradients.values() if gradient is not None)]
        dense = [result for result in results if result.layout is torch.strided and is_inexact(result)]
        if has_own_values or not any(bool(result.isnan().any()) for result in dense):
            yield _OtherCall(arguments, parameters, outputs, gradients)
            if not parameters:
                return
            # Else a call without other parameters follows. The caller asks for it if the program's outputs depend on
            # the calls before.


def other_values(
    capture: Capture, program: LiveProgram, values: Mapping[str, Tensor]
) -> Iterator[tuple[dict[str, Tensor], dict[str, Tensor]]]:
    """Yield other values of arguments and of parameters by name, as a dict for each of the two; the most different
    values first, and at last two empty dicts, for the program's own values.

    Floats are moved by half of their size, and then by a tenth. At first they are in reverse along the last dimension
    too, because values that are near each other have the same signs. Masks and indices are in reverse. Each set comes
    with moved parameters first, then without.
    """
    if capture.rank is not None:  # what the other ranks send is that of the captured values
        yield {}, {}
        return
    # `program.program` is the traced Program, which has the arguments in `values`, without parameters and buffers.
    roles = {named.name: named.role for named in program.program.tensors}
    arguments = {name: values[name].detach() for name in program.program.values if name in values}
    parameters = {name: values[name].detach() for name, role in roles.items() if role == "parameter" and name in values}
    indices = {name for pair in capture.pairs for name in indices_of(pair.forward)}
    reversed_values = {
        name: value.flip(-1)
        for name, value in arguments.items()
        if value.dim() and value.layout is torch.strided and (value.dtype is torch.bool or name in indices)
    }
    for amount, other_arguments, is_reversed in (
        (0.5, reversed_values, True),
        (0.5, reversed_values, False),
        (0.1, {}, False),
    ):
        source = own_source(2)
        floats = _moved_floats(arguments, amount, is_reversed, source)
        moved_parameters = _moved_floats(parameters, amount, is_reversed, source)
        if moved_parameters:
            yield {**floats, **other_arguments}, moved_parameters
        if floats or other_arguments:
            yield {**floats, **other_arguments}, {}
    yield {}, {}


def _moved_floats(
    tensors: Mapping[str, Tensor], amount: float, is_reversed: bool, source: torch.Generator
) -> dict[str, Tensor]:
    """Return the dense floats among tensors, moved by a part of their size; in reverse along the last dimension, if
    wanted."""
    floats = {name: value for name, value in tensors.items() if is_inexact(value) and value.layout is torch.strided}
    return {
        name: nudge_values(value.flip(-1) if is_reversed and value.dim() else value, amount, source)
        for name, value in floats.items()
    }


def _calls_in_a_row(
    capture: Capture,
    program: LiveProgram,
    values: Mapping[str, Tensor],
    other: _OtherCall,
    names: Sequence[str],
    with_call_between: bool = True,
) -> _InARow:
    """Call the program on its own values, on those of `other`, and on its own again. With `with_call_between`, a
    further call comes before the backward of the second."""
    with program.calls(values, capture.seed) as call:
        first = results_of(call(), names)
        before = {name: values[name].detach().clone() for name in other.parameters}
        # Parameters are written in place, as an optimizer does; arguments are passed anew.
        call.write(other.parameters)
        second_forward = call(other.arguments)
        if with_call_between:
            call(values)
        second = results_of(second_forward, names)
        call.write(before)
        last = results_of(call(values), names)
    return _InARow(first, second, last)


def _is_second_call_wrong(
    capture: Capture, program: LiveProgram, values: Mapping[str, Tensor], other: _OtherCall, names: Sequence[str]
) -> bool:
    """Whether the second call has a wrong gradient too if no further call comes before its backward."""
    results = _calls_in_a_row(capture, program, values, other, names, with_call_between=False)
    return first_difference(results.second.gradients, other.gradients) is not None


def results_of(forward: Any, names: Sequence[str]) -> Results:
    """Run the backward of a call, for random tangents of its outputs of these names; return its Results."""
    outputs = forward.outputs()
    return Results(outputs, forward.gradients(tangents_of(outputs, names)))
