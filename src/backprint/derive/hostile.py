"""Tangents and inputs that a backward meets in a model and not in its test.

A backward that is right for tangents of ones in new memory may be wrong for an expanded, transposed or sliced one, for
a zero, for two equal values, for a row that a mask hides, for an index that is repeated. Here inputs and values of
tangents are checked in the captured graphs; `live` runs the program itself. The *gap* is how far the two products of a
Setting are apart. A *kink* is a place where a function is not differentiable, as `relu` at 0: PyTorch's gradient there
may be any subgradient, a number between the derivatives to both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.derive.duals import DualRun, in_memory_like
from backprint.derive.setting import (
    CannotTell,
    NotFinite,
    Setting,
    backward_product,
    changes_along,
    drawn_like,
    forward_product,
    gap_by_accuracy,
    gap_of,
    has_finite_derivative,
    inner_product,
    inputs_of,
    make_setting,
    output_of,
    own_source,
    product_by_differences,
    product_with,
    products_to_both_sides,
    results_at,
    run_setting,
    scaled_directions,
    symmetric_like,
    values_of,
    widened_pair,
    with_tangents,
)
from backprint.errors import BackprintError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Graph, Pair, refs
from backprint.judge.closeness import distance, size_of
from backprint.judge.occasions import OCCASIONS, TANGENTS, changed_masks, repeated_indices, with_edge

# ---- Tangents with other values


def tangents_of_kinds(tangents: Mapping[str, Tensor], source: torch.Generator) -> dict[str, dict[str, Tensor]]:
    """Return, by the names of occasions, tangents of all outputs: of this kind for each output for which it is
    possible, and as in `tangents` for the others."""
    kinds: dict[str, dict[str, Tensor]] = {}
    for row in TANGENTS[1:]:  # not random ones, which `tangents` are
        unusual = {name: row.make(drawn_like(tangent, source)) for name, tangent in tangents.items()}
        changed = {name: tangent for name, tangent in unusual.items() if tangent is not None}
        if changed:
            kinds[row.name] = {**tangents, **changed}
    return kinds


MAX_OUTPUTS_ALONE = 64
"""The most outputs that are tried alone."""


SMALLEST = 1e-3
"""A gradient that is smaller than this part of the largest counts as having that size: it may be 0 but for rounding."""


def relative_difference(gradient: Any, expected: Tensor, least: float = 0.0) -> float:
    """Return the difference of two gradients relative to their size, which is at least `least`; 1 if one is missing."""
    if not isinstance(gradient, Tensor):
        return 1.0 if bool((expected != 0).any()) else 0.0
    if expected.layout is not torch.strided:
        return 0.0
    error = distance(gradient, expected, max(size_of(gradient), least))
    # A NaN in the gradient counts as missing, unless the expected one has NaN too.
    return error if math.isfinite(error) else 0.0 if bool(expected.isnan().any()) else 1.0


# ---- Inputs and tangents at which a backward may go wrong


AS_CAPTURED = "the captured inputs"

INPUTS = ("zeros among inputs", "equal inputs")
"""The occasions at which floats are tried."""


@dataclass(frozen=True, slots=True)
class InputFault:
    """A kind of inputs or tangents at which the backward is neither the derivative nor a subgradient.

    The gap is infinite where a gradient is NaN or Inf and the derivative is finite. `invented` says that the caller did
    not pass these inputs, `of_tangents` that the tangents are unusual and not the inputs. `at_kinks` says that rounding
    moves the inputs off kinks, so that it is no measure of the gap, and `by_values` that the backward is the derivative
    by PyTorch's formulas for tangents, but not by differences of the forward's values.
    """

    kind: str
    setting: Setting
    gap: float
    invented: bool = True
    of_tangents: bool = False
    at_kinks: bool = False
    by_values: bool = False


GROSS = 1e-8
"""A gap above this is a fault, whatever rounding of unusual inputs does."""


def input_faults(pair: Pair, values: Mapping[str, Any], program_seed: int) -> Iterator[InputFault]:
    """Yield the kinds of inputs and tangents at which the backward of a Pair is wrong."""
    yield from _tangent_faults(pair, values, program_seed)
    yield from _float_faults(pair, values, program_seed)
    for kind, changed in _other_inputs(pair, values):
        try:
            setting = make_setting(pair, {**values, **changed}, 0, program_seed)
            fault = _fault_of_products(kind, setting)
        except NotFinite as error:
            fault = _not_finite_fault(kind, error.setting)
        except (CannotTell, BackprintError, RuntimeError):
            continue  # the program does not run on such inputs
        if fault is not None:
            yield fault


def _not_finite_fault(kind: str, setting: Setting, invented: bool = True) -> InputFault | None:
    """Return a fault if a gradient has NaN or Inf, and the derivative of the forward is finite."""
    return InputFault(kind, setting, math.inf, invented) if has_finite_derivative(setting) else None


def _fault_of_products(kind: str, setting: Setting) -> InputFault | None:
    """Return a fault if the two products of a Setting differ. Its inputs were moved by chance, so they lie at no
    kink."""
    left, size, run = forward_product(setting)
    if not math.isfinite(left):
        if not has_finite_derivative(setting):
            return None
        gap = gap_of(product_by_differences(setting), backward_product(setting))
        return InputFault(kind, setting, gap) if gap > GROSS_OF_DIFFERENCES else None
    gap = gap_of((left, size), backward_product(setting))
    # Where an operator has no formula, the gap may be the error of its differences.
    if gap > GROSS and not run.by_differences:
        gap, setting = gap_by_accuracy(setting)
        if gap > GROSS:
            return InputFault(kind, setting, gap)
    return None


GROSS_OF_DIFFERENCES = 1e-5
"""The same where differences of the whole forward stand for its derivative."""


def _tangent_faults(pair: Pair, values: Mapping[str, Any], program_seed: int) -> Iterator[InputFault]:
    """Yield the kinds of tangents at which the backward is wrong, on inputs near the captured ones."""
    try:
        setting = make_setting(pair, values, 0, program_seed)
    except (CannotTell, NotFinite, BackprintError, RuntimeError):
        return
    source = own_source(0)
    kinds = tangents_of_kinds(setting.tangents, source)
    zeros = {name: torch.zeros_like(tangent) for name, tangent in setting.tangents.items()}
    # One test for all kinds: the backward is linear in its tangents exactly if gradients add up.
    if _gradients_add_up(setting, {**kinds, ZEROS: zeros}):
        kinds = {}  # no kind is wrong, if all together are right
    else:
        kinds[ZEROS] = zeros
    kinds |= _tangents_of_each_output_alone(setting)
    for kind, tangents in kinds.items():
        try:
            setting_of_kind = with_tangents(setting, tangents)
            total = with_tangents(
                setting, {name: tangent + tangents[name] for name, tangent in setting.tangents.items()}
            )
            fault = _sum_fault(kind, setting, setting_of_kind, total, source)
        except (CannotTell, BackprintError, RuntimeError):
            continue  # the backward takes another branch, and the program itself is run with such tangents
        if fault is not None:
            yield fault


ZEROS = "tangents of zeros"


def _gradients_add_up(
    setting: Setting, kinds: Mapping[str, Mapping[str, Tensor]], whole: Setting | None = None
) -> bool:
    """Whether the gradients of these tangents add up to the gradients of `whole`, to within a quarter of GROSS, as in
    `live._group_fault`.

    Without `whole`, the Setting's own tangents are one of the terms, and `whole` has the sum of all tangents.
    """
    try:
        parts = [with_tangents(setting, tangents).gradients for tangents in kinds.values()]
        if whole is None:
            total = {
                name: torch.stack([tangent, *(tangents[name] for tangents in kinds.values())]).sum(0)
                for name, tangent in setting.tangents.items()
            }
            whole, parts = with_tangents(setting, total), [setting.gradients, *parts]
    except (CannotTell, BackprintError, RuntimeError):
        return False
    largest = max((size_of(gradient) for gradient in whole.gradients.values()), default=0.0)
    return all(
        bool(gradient.isfinite().all())
        and relative_difference(torch.stack([part[name] for part in parts]).sum(0), gradient, SMALLEST * largest)
        < GROSS / 4
        for name, gradient in whole.gradients.items()
    )


def _tangents_of_each_output_alone(setting: Setting) -> dict[str, dict[str, Tensor]]:
    """Return tangents of each output alone; none if all of their gradients add up to the gradient of the whole."""
    names = list(setting.tangents)[:MAX_OUTPUTS_ALONE]
    if len(setting.tangents) < 2:
        return {}
    alone = {
        f"tangents of {output} alone": {
            name: tangent if name == output else torch.zeros_like(tangent) for name, tangent in setting.tangents.items()
        }
        for output in names
    }
    return {} if len(names) == len(setting.tangents) and _gradients_add_up(setting, alone, setting) else alone


def _sum_fault(
    kind: str, setting: Setting, other: Setting, total: Setting, source: torch.Generator
) -> InputFault | None:
    """Return a fault if the gradients for the sum of two sets of tangents (`total`) are not the sums of the gradients
    for each (`setting` has random ones, `other` those of a kind): what is right for random tangents is then wrong for
    others. `source` draws the directions. `live._sum_fault` asks the program itself."""
    for candidate in (other, total):
        if not all(bool(gradient.isfinite().all()) for gradient in candidate.gradients.values()):
            return _not_finite_fault(kind, candidate, invented=False)
    largest = max((size_of(gradient) for gradient in total.gradients.values()), default=0.0)
    if all(
        relative_difference(gradient, setting.gradients[name] + other.gradients[name], SMALLEST * largest) < GROSS
        for name, gradient in total.gradients.items()
    ):
        return None
    for candidate in (other, total):
        directed = replace(candidate, direction=scaled_directions(candidate.inputs, candidate.gradients, source))
        if (fault := _fault_of_products(kind, directed)) is not None:
            return replace(fault, of_tangents=True)
    return None


def _float_faults(pair: Pair, values: Mapping[str, Any], program_seed: int) -> Iterator[InputFault]:
    """Yield the kinds of floats at which the backward is wrong: at the captured values, at zeros, ties and thresholds.

    The direction is the same for equal values, and 0 is moved like any other: along such a direction a maximum of equal
    values has a derivative. Where the function has a kink all the same, any number between its derivatives to both
    sides is right.
    """
    forward, backward = widened_pair(pair)
    inputs = inputs_of(forward, backward, values)
    wanted = {port.name for port in backward.outputs}
    floats = {
        name: value
        for name, value in inputs.items()
        if name in wanted and isinstance(value, Tensor) and value.is_floating_point()
        if value.layout is torch.strided
    }
    for kind, changed in _kinds_of_floats(floats, _thresholds_of(forward, backward)):
        invented = kind != AS_CAPTURED
        try:
            # The inputs as they are: a nudge would move them off the zeros and ties.
            setting = run_setting(
                forward, backward, inputs | changed, own_source(0), program_seed, nudge=0.0, ones=False
            )
        except NotFinite as error:
            fault = _not_finite_fault(kind, error.setting, invented)
        except (CannotTell, BackprintError, RuntimeError):
            continue  # the program does not run on such inputs
        else:
            setting = replace(setting, direction=_direction_equal_for_equals(setting))
            fault = _fault_at_kinks(kind, setting, invented)
        if fault is not None:
            yield fault


def _kinds_of_floats(
    floats: Mapping[str, Tensor], thresholds: Sequence[tuple[str, float]]
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the kinds of floats to be tried, each with the inputs that are changed for it: none of them, zeros and ties
    in all of them, and each number that one of them is compared with, as `0.5 in x`."""
    yield AS_CAPTURED, {}
    for kind in INPUTS:
        unusual = {name: OCCASIONS[kind].make(value) for name, value in floats.items()}
        yield kind, {name: in_memory_like(value, floats[name]) for name, value in unusual.items() if value is not None}
    for name, number in thresholds:
        if name in floats:
            yield f"{number:g} in {name}", {name: with_edge(floats[name], number)}


def _fault_at_kinks(kind: str, setting: Setting, invented: bool) -> InputFault | None:
    """Return a fault if the gradients are neither the derivative along the direction nor a subgradient, for the
    tangents of a Setting or for their absolute values."""
    changes: tuple[dict[PortKey, Any], DualRun] | None = None  # the same for all tangents
    nearby = _NearbyResults(setting)
    for is_absolute in (False, True):
        if is_absolute and sum(tangent.numel() for tangent in setting.tangents.values()) == 1:
            continue  # the absolute value of one number is the same but for the sign
        try:
            # Tangents of one sign, so that what is wrong at several kinks adds up.
            absolute_tangents = {name: tangent.abs() for name, tangent in setting.tangents.items()}
            other = with_tangents(setting, absolute_tangents) if is_absolute else setting
            changes = changes or changes_along(setting)
            left, size = product_with(changes[0], other.tangents)
        except (CannotTell, BackprintError, RuntimeError):
            continue
        run = changes[1]
        right = backward_product(other)
        gap = gap_of((left, size), right)
        if gap > GROSS:
            gap, _ = gap_by_accuracy(other)  # a gradient may be 0 but for rounding
        # By the formulas of forward-mode AD.
        if gap > GROSS and not run.by_differences and not _is_subgradient(other, right):
            return InputFault(kind, other, gap, invented, at_kinks=True)
        if gap > GROSS or run.by_differences:
            continue
        # By the values of the forward, which a formula may not know of, such as a branch for `x == 0`.
        gap = _distance_to_differences(other, right, nearby)
        if gap > 0 and not _is_subgradient(other, right):
            return InputFault(kind, other, gap, invented, by_values=True)
    return None


# ---- Which inputs index something, and which numbers inputs are compared with


def _other_inputs(pair: Pair, values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield kinds of masks and indices, each with the inputs that are changed for it. Constants of a graph stay: the
    backward may have others that are made of them."""
    tensors = {
        port.name: value
        for port in pair.forward.by_role("input")
        if isinstance(value := values.get(port.name), Tensor) and value.numel() and value.layout is torch.strided
    }
    yield from changed_masks({name: value for name, value in tensors.items() if value.dtype is torch.bool})
    indices = {name: tensors[name] for name in indices_of(pair.forward) if name in tensors}
    for name, repeated in repeated_indices(indices):
        yield f"repeated indices in {name}", {name: repeated}


READ_BY_INDEX: Mapping[str, int] = {
    "aten.index.Tensor": 1,
    "aten._unsafe_index.Tensor": 1,
    "aten.index_select.default": 2,
    "aten.gather.default": 2,
    "aten.embedding.default": 1,
    "aten.take.default": 1,
    "aten.take_along_dim.default": 1,
    "aten.index_add.default": 2,
    "aten.scatter_add.default": 2,
}
"""Operators that read or add at indices, with the place of these among their arguments. One that writes at indices
may leave open which of two values is kept, so its indices must not be repeated."""

SAME_VALUES = (
    "aten.alias.default",
    "aten.detach.default",
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.unsqueeze.default",
    "aten.squeeze.dim",
    "aten.expand.default",
    "aten.clone.default",
    "aten.permute.default",
    "aten.transpose.int",
    "aten.t.default",
    "aten._to_copy.default",
    "aten.to.dtype",
)
"""Operators whose result has the same values as their argument."""


def _origins_of(graph: Graph) -> dict[str, str]:
    """Return, for each value of a graph with the values of an input, the name of that input."""
    origins = {port.local: port.name for port in graph.inputs if port.role != "tangent"}
    for step in graph.steps:
        if step.target in SAME_VALUES and (arguments := list(refs(step.args))) and arguments[0] in origins:
            origins[step.name] = origins[arguments[0]]
    return origins


def indices_of(forward: Graph) -> tuple[str, ...]:
    """Return the inputs with which the forward reads or adds at indices, and does nothing else."""
    origins = _origins_of(forward)
    indices: dict[str, bool] = {}
    for step in forward.steps:
        if step.is_guard or step.target in SAME_VALUES:
            continue
        place = READ_BY_INDEX.get(step.target)
        for argument, value in enumerate(step.args):
            for name in refs(value):
                if name in origins:
                    is_index_only = indices.get(origins[name], True)
                    indices[origins[name]] = is_index_only and argument == place
    return tuple(name for name, is_index_only in indices.items() if is_index_only)


COMPARISONS = ("aten.gt.", "aten.ge.", "aten.lt.", "aten.le.", "aten.eq.", "aten.ne.")

LIMITS = ("aten.clamp.default", "aten.clamp_min.default", "aten.clamp_max.default", "aten.threshold.default")
"""Operators with a kink at numbers that they take, as comparisons have; so have `hardtanh` and `threshold`."""

MAX_THRESHOLDS = 8
"""How many numbers that inputs are compared with are tried."""


def _thresholds_of(*graphs: Graph) -> tuple[tuple[str, float], ...]:
    """Return the numbers that inputs are compared with in graphs, each with the name of the input."""
    thresholds: dict[tuple[str, float], None] = {}
    for graph in graphs:
        origins = _origins_of(graph)
        for step in graph.steps:
            if not step.target.startswith((*COMPARISONS, *LIMITS, "aten.hardtanh.")) or not step.args:
                continue
            names = list(refs(step.args[0]))
            if len(names) == 1 and names[0] in origins:
                numbers = [float(value) for value in step.args[1:] if isinstance(value, (int, float))]
                # 0 is tried in all inputs (`INPUTS`).
                finite = [number for number in numbers if number and math.isfinite(number)]
                thresholds.update(dict.fromkeys((origins[names[0]], number) for number in finite))
    return tuple(thresholds)[:MAX_THRESHOLDS]


# ---- Kinks


def _direction_equal_for_equals(setting: Setting) -> dict[str, Tensor]:
    """Return the directions of a Setting, with one number for all elements of an input that are equal."""
    directions = {}
    for name, direction in setting.direction.items():
        value = setting.inputs[name]
        directions[name] = direction
        if value.numel() and not value.is_complex():
            # For each element, the place of its value among the distinct ones, and so of its number in the direction.
            _, value_numbers = torch.unique(value, return_inverse=True)
            directions[name] = symmetric_like(value, direction.flatten()[: int(value_numbers.max()) + 1][value_numbers])
    return directions


STEP = 1e-6
"""How far inputs are moved along the direction for differences to one side."""

NEARBY = 8
"""How often inputs are moved off a kink, to see which gradients there are around it."""


def _is_subgradient(setting: Setting, right: tuple[float, float]) -> bool:
    """Whether the gradients are right for a kink, or nothing can be said because the forward does not run there.

    They are right if their product `right` (with the sum of the sizes of its terms) lies between the derivatives to
    both sides, by differences, added up element by element; or if there is a kink, and each element of the gradients
    lies between those of gradients at inputs nearby. `compared.is_kink` asks the same of a function and its reference.
    """
    try:
        here, ahead, behind = (results_at(setting, step) for step in (0.0, STEP, -STEP))
    except (BackprintError, RuntimeError):
        return True
    # At a kink each element of an output has two derivatives, and any number between them is right.
    low = high = size = 0.0
    for name, tangent in setting.tangents.items():
        middle = output_of(here, name)
        sides = products_to_both_sides(tangent, middle, output_of(ahead, name), output_of(behind, name), STEP)
        if not bool(sides.isfinite().all()):
            return True
        low, high = low + float(sides.min(0).values.sum()), high + float(sides.max(0).values.sum())
        size += float(sides.abs().max(0).values.sum())
    slack = 1e-4 * max(right[1], size)  # differences with STEP are off by less, as below and in `compared.is_kink`
    if low - slack <= right[0] <= high + slack:
        return True
    return high - low > slack and _is_among_gradients_nearby(setting)


def _is_among_gradients_nearby(setting: Setting) -> bool:
    """Whether each element of the gradients lies between the least and the largest that it has in gradients at inputs
    nearby, which lie at no kink."""
    source = own_source(1)
    low, high = ({name: gradient.clone() for name, gradient in setting.gradients.items()} for _ in range(2))
    is_first = True
    for _ in range(NEARBY):
        draws = {name: drawn_like(setting.inputs[name], source) for name in setting.direction}
        for step in (STEP, -STEP):
            moved = {name: setting.inputs[name] + step * draw for name, draw in draws.items()}
            try:
                torch.manual_seed(setting.program_seed)
                results = values_of(setting.forward, setting.inputs | moved)
                nearby = with_tangents(
                    replace(setting, inputs=setting.inputs | moved, results=results), setting.tangents
                )
            except (BackprintError, RuntimeError):
                return True
            for name, gradient in nearby.gradients.items():
                if gradient.is_complex():
                    return True
                low[name] = gradient if is_first else torch.minimum(low[name], gradient)
                high[name] = gradient if is_first else torch.maximum(high[name], gradient)
            is_first = False
    return all(
        bool(((gradient >= low[name] - slack) & (gradient <= high[name] + slack)).all())
        for name, gradient in setting.gradients.items()
        if (slack := 1e-4 * max(size_of(low[name]), size_of(high[name]), 1e-300))
    )


class _NearbyResults:
    """The results of a forward where its inputs are moved along the direction, for all tangents that a Setting may
    have."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.results: list[dict[PortKey, Any]] | None = None

    def all(self) -> list[dict[PortKey, Any]]:
        """Return the results here, ahead and behind by STEP, and ahead and behind by a quarter of it. They are computed
        when they are asked for first."""
        if self.results is None:
            self.results = [results_at(self.setting, step) for step in (0.0, STEP, -STEP, STEP / 4, -STEP / 4)]
        return self.results


def _distance_to_differences(setting: Setting, right: tuple[float, float], nearby: _NearbyResults) -> float:
    """Return how far the product `right` is from the derivatives to both sides, by differences, relative to its terms;
    0 if it lies between them, the differences depend on the step, or rounding explains it.

    Where a function computes something else at one point, as with `x == 0`, its derivative by formulas is not that of
    its values. A jump, or a slope that depends on the step, is no derivative.
    """
    products = []
    try:
        results_nearby = nearby.all()
    except (BackprintError, RuntimeError):
        return 0.0
    for results in results_nearby:
        parts = [inner_product(tangent, output_of(results, name)) for name, tangent in setting.tangents.items()]
        products.append((sum(part for part, _ in parts), sum(size for _, size in parts)))
    (here, terms), (ahead, _), (behind, _), (near_ahead, _), (near_behind, _) = products
    if not all(math.isfinite(product) for product, _ in products):
        return 0.0
    slopes = [(ahead - here) / STEP, (here - behind) / STEP]
    finer_slopes = [(near_ahead - here) * 4 / STEP, (here - near_behind) * 4 / STEP]
    size = max(right[1], *map(abs, slopes))
    slack = 1e-4 * size + 1e-6 * terms
    if any(abs(slope - other) > slack for slope, other in zip(slopes, finer_slopes, strict=True)):
        return 0.0
    error = max(min(slopes) - right[0], right[0] - max(slopes))
    return error / size if error > slack else 0.0
