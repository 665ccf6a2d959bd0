"""Whether the gradients that a compiled forward and backward return are those of the forward.

What was compiled runs elsewhere: `call` runs it on the inputs and tangents of a Setting, in float64. Its results are
compared with the captured forward's on the same inputs. If they agree, its derivative is the captured forward's, which
forward-mode AD of the captured graph computes: two functions that are equal at inputs drawn from a distribution are
equal, and so are their derivatives. Its gradients then take the place of the captured backward's in the two products.

- `Setting` (`derive/setting`): a Pair in float64 with drawn inputs, tangents g of outputs and a direction v of inputs,
  and the captured results and gradients on them. One Setting is a draw.
- The two products are ⟨g, J·v⟩ by forward-mode AD and ⟨Jᵀ·g, v⟩ by gradients; their distance relative to the sizes of
  their terms is the gap, which is rounding below a limit.
- `CannotTell` is raised where nothing can be said of the derivative, with the reason.
- `program_seed` is the seed of the program's own draws, such as those of a dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.derive.check import (
    LIMIT,
    LIMIT_BY_DIFFERENCES,
    NO_ROUNDING,
    ROUNDING,
    SCALE,
    check_pair,
    inputs_of_pairs,
    rounding_of_product,
)
from backprint.derive.duals import WEIGHTS
from backprint.derive.setting import (
    FLOOR,
    CannotTell,
    InnerProduct,
    NotFinite,
    Setting,
    backward_product,
    forward_product,
    gap_by_accuracy,
    gap_of,
    inner_product,
    make_setting,
    output_of,
    results_at,
    values_of,
    widened_pair,
    with_one_name,
)
from backprint.errors import BackprintError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Capture, Graph, OpaqueEdge, Pair
from backprint.graph.sizes import unguarded_graph
from backprint.graph.verdicts import CANNOT_TELL, DERIVATIVE, NOT_THE_DERIVATIVE, Derivative
from backprint.judge.closeness import distance, size_of
from backprint.prove.power import spec_in_float64
from backprint.tools.lowering.subjects import lifted_draws, steps_that_draw
from backprint.values.settings import preserving_random_states

APART = 1e-6
"""Outputs that differ by more than this part of their largest value are not those of the captured forward."""

SAME = 1e-9
"""Gradients that differ by less than this part of their largest value are the same in float64."""


@dataclass(frozen=True, slots=True)
class CompiledDerivative:
    """Whether the gradients of a compiled function are those of its forward.

    `gap` is the distance of ⟨g, J·v⟩ and ⟨Jᵀ·g, v⟩ relative to their terms, `forward` that of the compiled forward's
    outputs from the captured one's, relative to the largest value of an output; None where it was not measured.
    `captured` is the word for the captured backward where the compiled one is not the derivative.
    """

    word: str
    detail: str = ""
    gap: float | None = None
    forward: float | None = None
    captured: str = ""


@dataclass(frozen=True, slots=True)
class Returned:
    """What a compiled forward and backward returned: results by port, and gradients by name."""

    results: Mapping[PortKey, Any]
    gradients: Mapping[str, Any]


Call = Callable[[Setting], Returned]
"""Runs what was compiled on the inputs and tangents of a Setting, from the random state of its `program_seed`."""


def wide_pairs(capture: Capture) -> list[Pair | None]:
    """Return the Pairs of a Capture in float64 as a compiler takes them: without guards, a tensor that was passed under
    two names as one input; None for one without a backward."""
    pairs = [with_one_name(pair, capture.signature.same) for pair in capture.pairs]
    return [
        None if pair.backward is None else Pair(pair.name, *map(_for_compiler, widened_pair(pair))) for pair in pairs
    ]


def _for_compiler(graph: Graph) -> Graph:
    """Return a graph in float64 without guards, in which the specs of the steps say float64 too."""
    steps = tuple(replace(step, spec=spec_in_float64(step.spec)) for step in graph.steps)
    return unguarded_graph(replace(graph, steps=steps))


def values_for_pairs(capture: Capture) -> list[Mapping[str, Any]]:
    """Return the inputs of each Pair, near which compiled functions are called; raise CannotTell if there are none."""
    with preserving_random_states():
        return inputs_of_pairs(capture)


def setting_for(pair: Pair, values: Mapping[str, Any], seed: int, program_seed: int) -> Setting:
    """Return a Setting near the inputs of a Pair, `values` by name, drawn from a seed; raise CannotTell if its captured
    backward does not run or is not finite there."""
    try:
        return make_setting(pair, values, seed, program_seed)
    except (NotFinite, BackprintError, RuntimeError) as error:
        raise CannotTell(str(error)) from error


def derivative_of_compiled(
    pair: Pair,
    values: Mapping[str, Any],
    program_seed: int,
    opaque: Sequence[OpaqueEdge],
    meant: tuple[str, ...],
    call: Call,
    seeds: Sequence[int],
) -> CompiledDerivative:
    """Return whether the gradients of a compiled Pair are those of its forward, at inputs near these values; raise
    CannotTell if it stays open.

    Inputs, tangents and directions are drawn from each of the `seeds` until a gap is rounding; the least gap counts,
    and one that no rounding makes (NO_ROUNDING) counts before all. Errors of `call` are the caller's. `check_pair` does
    the same for the captured backward, and tells here whether a gap is the compiler's or was there before it: `opaque`
    and `meant` are the Capture's, and say where its author means another gradient.
    """
    measured: list[Measured] = []
    for seed in seeds:
        setting = setting_for(pair, values, seed, program_seed)
        measured.append(measure(setting, call(setting)))
        if measured[-1].gap < measured[-1].limit:
            break
    least, largest = (choose(measured, key=lambda draw: draw.gap) for choose in (min, max))
    draw = largest if largest.gap > NO_ROUNDING else least
    forward_distance = max(draw.forward for draw in measured)
    if draw.gap < draw.limit:
        other = not_linear(draw, call)
        if other is None:
            return CompiledDerivative(DERIVATIVE, draw.left_out, draw.gap, forward_distance)
        draw, reason = other, "its backward is not linear in its tangents"
    else:
        explained = _explained_gap(draw, forward_distance)
        if explained is not None:
            return explained
        reason = draw.reason
    captured = check_pair(pair, values, program_seed, opaque, meant)
    return _beside_captured(draw, reason, forward_distance, captured)


def _explained_gap(draw: Measured, forward_distance: float) -> CompiledDerivative | None:
    """Return the verdict on a gap beyond the limit that is no fault of the gradients: rounding explains it, or
    differences, which need no formulas, agree with the gradients and not with forward-mode AD, whose formulas may be
    wrong themselves. None for any other gap. `forward_distance` is the largest distance of the forwards in all draws,
    which the verdict has."""
    if draw.gap <= ROUNDING * max(_rounding_of(draw.setting), draw.forward):
        why = f"gap {draw.gap:.0e}, which rounding of the inputs and of the compiled forward explains"
        return CompiledDerivative(CANNOT_TELL, why, draw.gap, forward_distance)
    by_differences = _gap_by_differences(draw.setting, draw.gradients)
    if by_differences < min(LIMIT_BY_DIFFERENCES, AGREEING * draw.gap):
        why = f"by differences; gap {draw.gap:.0e} to PyTorch's forward-mode AD, which they refute"
        return CompiledDerivative(DERIVATIVE, why, by_differences, forward_distance)
    return None


def _beside_captured(draw: Measured, reason: str, forward_distance: float, captured: Derivative) -> CompiledDerivative:
    """Return the verdict on a draw whose gap is a fault: the compiler's if its gradients differ from the captured ones,
    else that of the captured backward, of which `captured` is the verdict. `reason` is what is wrong with the draw."""
    gap = draw.gap if math.isfinite(draw.gap) else None  # JSON has no infinity
    verdict = CompiledDerivative(NOT_THE_DERIVATIVE, reason, gap, forward_distance, captured.word)
    if draw.differing:
        if captured.word == DERIVATIVE:
            return verdict
        return replace(verdict, detail=f"{reason}, which is {captured.word} ({captured.detail})")
    # A gap that no rounding makes, and `check_pair` has refuted it: a formula of forward-mode AD is wrong.
    if captured.word == DERIVATIVE and draw.gap > NO_ROUNDING:
        return replace(verdict, word=DERIVATIVE, gap=captured.gap, detail=captured.detail, captured="")
    if captured.word == DERIVATIVE:
        why = f"gap {draw.gap:.0e}: its gradients are the captured ones, in fewer digits"
        return replace(verdict, word=CANNOT_TELL, detail=why)
    return replace(
        verdict, word=captured.word, detail=f"its gradients are those of the captured backward: {captured.detail}"
    )


AGREEING = 0.1
"""Differences that are nearer to the gradients than this part of the gap refute the formulas of forward-mode AD."""

STEPS = (2e-3, 2.5e-4)
"""The steps of central differences of eighth order (`derive.duals.WEIGHTS`), relative to the inputs. Where a kink is
nearer than a step, the two estimates differ."""


def _gap_by_differences(setting: Setting, gradients: Mapping[str, Tensor]) -> float:
    """Return the gap of gradients to the captured forward's derivative by differences, or how far two estimates of that
    derivative are apart, if this is more; infinite where the forward does not run, or where there is no direction."""
    # `step * direction` is to move the largest input by STEPS times its size.
    largest_direction = max(map(size_of, setting.direction.values()), default=0.0)
    largest_input = max((size_of(setting.inputs[name]) for name in setting.direction), default=0.0)
    product, terms = backward_product(setting, gradients)
    estimates = []
    for step in STEPS if largest_direction else ():
        step *= largest_input / largest_direction
        estimate = 0.0
        for steps_away, weight in enumerate(WEIGHTS, 1):
            # the two sides of a central difference
            ahead, behind = (_product_at(setting, sign * steps_away * step) for sign in (1, -1))
            if ahead is None or behind is None:
                return math.inf
            estimate += (ahead - behind) * weight / step
        estimates.append(estimate)
    if len(estimates) < 2 or not terms or not all(map(math.isfinite, (*estimates, product))):
        return math.inf
    return max(abs(estimates[0] - estimates[1]), abs(estimates[1] - product)) / terms


def _product_at(setting: Setting, step: float) -> float | None:
    """Return ⟨tangents, results⟩ of the captured forward where the inputs are moved by `step` times the direction, for
    a difference quotient; None if the forward does not run there."""
    try:
        results = results_at(setting, step)
    except (BackprintError, RuntimeError):
        return None
    return sum(inner_product(tangent, output_of(results, name)).value for name, tangent in setting.tangents.items())


def _rounding_of(setting: Setting) -> float:
    """Return how far the difference of the two products moves if the inputs are rounded otherwise; raise CannotTell if
    the graphs do not run there."""
    try:
        return rounding_of_product(setting)
    except (BackprintError, RuntimeError) as error:
        raise CannotTell(str(error)) from error


@dataclass(frozen=True, slots=True)
class Measured:
    """One draw: the Setting with what was compiled returned on it, and the figures. `limit` is the largest gap that is
    rounding, `forward` the distance of the compiled outputs from the captured ones, `differing` the names of gradients
    that are not the captured ones, and `reason` says what is wrong with the gradients."""

    setting: Setting
    gradients: Mapping[str, Tensor]
    results: Mapping[PortKey, Any]
    gap: float
    limit: float
    forward: float
    differing: tuple[str, ...]
    reason: str

    @property
    def left_out(self) -> str:
        """The gradients that were not compared, in words."""
        rows = self.setting.left_out.items()
        return "left out: " + "; ".join(f"{port}: {why}" for port, why in rows) if rows else ""


def measure(setting: Setting, returned: Returned) -> Measured:
    """Return the figures of one draw; raise CannotTell if the compiled forward is not the captured one in float64. One
    that has drawn other random numbers, and returns them, is compared with the captured forward on these numbers."""
    try:
        forward = _forward_distance(setting, returned.results)
    except CannotTell:  # it may have drawn other random numbers
        if not steps_that_draw(setting.forward):
            raise
        setting = _with_compiled_draws(setting, returned.results)
        forward = _forward_distance(setting, returned.results)
    gradients = gradients_of(setting, returned.gradients)
    try:
        forward_side, run = forward_product(setting)
        limit = LIMIT_BY_DIFFERENCES if run.by_differences else LIMIT
        gap = _gap_with(setting, forward_side, gradients)
        if limit <= gap < math.inf:
            # Inputs whose gradients are less accurate get less weight in the direction of this Setting.
            _, setting = gap_by_accuracy(setting)
            forward_side, _ = forward_product(setting)
            # As in `gap_by_accuracy`: a direction has the size 1/‖its gradient‖ (`setting.FLOOR`), so the terms of a
            # gradient that is not 0 have the size 1 before they are weighted.
            least = 1.0 if any(bool((gradient != 0).any()) for gradient in setting.gradients.values()) else 0.0
            gap = _gap_with(setting, forward_side._replace(size=max(forward_side.size, least)), gradients)
    except (BackprintError, RuntimeError) as error:
        raise CannotTell(str(error)) from error
    differing = differing_gradients(gradients, setting.gradients)
    names = ", ".join(differing[:4]) + (" …" if len(differing) > 4 else "")
    reason = f"it differs from the captured backward in the gradient of {names}" if differing else ""
    if bad := [name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())]:
        reason = f"its gradient of {', '.join(bad[:4])} has NaN or Inf; {reason}"
    return Measured(setting, gradients, returned.results, gap, limit, forward, differing, reason)


def differing_gradients(gradients: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the names of gradients that are not the expected ones. One that is smaller than the part FLOOR of the
    largest is compared as if it were that large: it may be 0 but for rounding."""
    least = FLOOR * max(map(size_of, expected.values()), default=0.0)
    return tuple(name for name, gradient in gradients.items() if _distance(gradient, expected[name], least) > SAME)


def _gap_with(setting: Setting, left: InnerProduct, gradients: Mapping[str, Tensor]) -> float:
    """Return the gap of a Setting with these gradients; infinite if one is not finite. `left` is ⟨g, J·v⟩."""
    gap = gap_of(left, backward_product(setting, gradients))
    return gap if math.isfinite(gap) else math.inf


def _with_compiled_draws(setting: Setting, results: Mapping[PortKey, Any]) -> Setting:
    """Return the Setting with the random numbers that the compiled forward drew, among its `results`: they are inputs
    of the Setting's forward then, and the captured results and gradients are computed anew with them. Return the
    Setting as it is if nothing is drawn or the draws are not returned; raise CannotTell if the graphs do not run."""
    if not steps_that_draw(setting.forward):
        return setting
    graph_with_draws = lifted_draws(unguarded_graph(setting.forward))
    if graph_with_draws is None:
        return setting
    # The last inputs of the lifted graph are the draws, in the order of their places among the results.
    ports = [setting.forward.outputs[place] for place in graph_with_draws.places]
    names = [port.name for port in graph_with_draws.graph.inputs[len(setting.forward.inputs) :]]
    inputs = setting.inputs | {name: results[port.key] for name, port in zip(names, ports, strict=True)}
    try:
        with_draws = replace(
            setting, forward=graph_with_draws.graph, inputs=inputs, results=values_of(graph_with_draws.graph, inputs)
        )
        captured_gradients = {
            key.name: value for key, value in values_of(with_draws.backward, with_draws.backward_inputs).items()
        }
    except (BackprintError, RuntimeError) as error:
        raise CannotTell(f"with what it drew, the captured graph does not run: {error}") from error
    gradients = {
        name: zeros if captured_gradients[name] is None else captured_gradients[name]
        for name, zeros in zeros_like(setting).items()
    }
    return replace(with_draws, gradients=gradients)


def zeros_like(setting: Setting) -> dict[str, Tensor]:
    """Return zeros for each gradient."""
    return {name: torch.zeros_like(gradient) for name, gradient in setting.gradients.items()}


def _forward_distance(setting: Setting, results: Mapping[PortKey, Any]) -> float:
    """Return how far outputs are from the captured forward's; raise CannotTell if they are those of another function,
    or not in float64. What is saved is the compiler's own matter."""
    largest = 0.0
    for key, captured in setting.results.items():
        if (
            key.role not in ("output", "mutation")
            or not isinstance(captured, Tensor)
            or captured.layout is not torch.strided
        ):
            continue
        compiled = results.get(key)
        if not isinstance(compiled, Tensor) or compiled.shape != captured.shape:
            raise CannotTell(f"the compiled forward does not return {key.name!r} as the captured one does")
        if compiled.dtype != captured.dtype:  # [6:]: without `torch.`
            raise CannotTell(f"for inputs in float64 the compiled {key.name!r} is {str(compiled.dtype)[6:]}")
        error = _distance(compiled, captured)
        if error > APART:
            drawn = setting.forward.by_role("rng") or steps_that_draw(setting.forward)
            why = ", or draws other random numbers" if drawn else ""
            raise CannotTell(
                f"the compiled forward is not the captured one{why}: {key.name!r} differs by {error:.1e} in float64"
            )
        largest = max(largest, error)
    return largest


def gradients_of(setting: Setting, gradients: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the compiled gradients of a Setting by name; None is one of zeros. Raise CannotTell for one of another
    shape or dtype than the captured one."""
    compared = {}
    for name, zeros in zeros_like(setting).items():
        value = gradients.get(name)
        if value is None:
            compared[name] = zeros
        elif not isinstance(value, Tensor) or value.shape != zeros.shape or value.dtype != zeros.dtype:
            # [6:]: without `torch.`
            kind = f"{str(value.dtype)[6:]}{list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            expected = f"{str(zeros.dtype)[6:]}{list(zeros.shape)}"
            raise CannotTell(f"for inputs in float64 the compiled gradient of {name!r} is {kind}, not {expected}")
        else:
            compared[name] = value
    return compared


def not_linear(draw: Measured, call: Call) -> Measured | None:
    """Return the draw with scaled tangents if the compiled gradients are not scaled alike; None if they are, or if the
    forward returns other random numbers than before."""
    setting = draw.setting
    scaled = replace(setting, tangents={name: tangent * SCALE for name, tangent in setting.tangents.items()})
    returned = call(scaled)
    outputs = [key for key in setting.results if key.role in ("output", "mutation")]
    if any(_distance(returned.results.get(key), draw.results.get(key)) > SAME for key in outputs):
        return None
    gradients = gradients_of(setting, returned.gradients)
    if not differing_gradients(gradients, {name: gradient * SCALE for name, gradient in draw.gradients.items()}):
        return None
    scaled_gradients = {name: gradient * SCALE for name, gradient in setting.gradients.items()}
    return measure(replace(scaled, gradients=scaled_gradients), returned)


def _distance(value: Any, expected: Any, least: float = 0.0) -> float:
    """Return how far two results are apart (`judge.closeness.distance`), relative to the larger of the expected values
    and `least`; infinity if only one is a tensor, or it has another shape or layout. Sparse tensors are not compared:
    0."""
    if not isinstance(value, Tensor) or not isinstance(expected, Tensor):
        return 0.0 if type(value) is type(expected) else math.inf
    if value.shape != expected.shape or value.layout is not expected.layout:
        return math.inf
    return distance(value, expected, least) if expected.layout is torch.strided else 0.0
