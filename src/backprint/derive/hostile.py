"""Tangents and inputs that a backward meets in a model and not in its test.

A backward that is right for tangents of ones in new memory may be wrong for an expanded, transposed or sliced one, for
a zero, for two equal values, for a row that a mask hides, for an index that is repeated. Here inputs and values of
tangents are checked in the captured graphs; `live` runs the program itself. The *gap* is how far the two products of a
Setting are apart. A *kink* is a place where a function is not differentiable, as `relu` at 0: PyTorch's gradient there
may be any subgradient, a number between the derivatives to both sides.

- An *occasion* is a row of `judge/occasions`: it has a name, and `make`, which returns a tensor with these values or
  this memory, or None where that is not possible.
- `kind` is the name of one kind of inputs or tangents, as a message has it: `zeros among inputs`.
- A Setting is a Pair in float64 with inputs, tangents and gradients. The *two products* are ⟨g, J·v⟩ by its forward and
  ⟨Jᵀ·g, v⟩ by its backward, for tangents g and a direction v of the inputs.
- CannotTell, NotFinite (a gradient has NaN or Inf), BackprintError and RuntimeError, caught together: the graphs do not
  run on such numbers, so nothing is said about them. `run_setting` and `make_setting` raise the first two.
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
    InnerProduct,
    NotFinite,
    Setting,
    backward_product,
    changes_along,
    drawn_like,
    forward_product,
    gap_by_accuracy,
    gap_of,
    has_finite_derivative,
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
    sum_of_inner_products,
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
    """Return the difference of two gradients relative to their size, which is at least `least`; 1 if `gradient` is
    missing (None) and not expected to be zeros. Sparse gradients are not compared: their difference counts as 0."""
    if not isinstance(gradient, Tensor):
        return 1.0 if bool((expected != 0).any()) else 0.0
    if expected.layout is not torch.strided:
        return 0.0
    error = distance(gradient, expected, max(size_of(gradient), least))
    # A NaN in the gradient counts as missing, unless the expected one has NaN too.
    if not math.isfinite(error):
        return 0.0 if bool(expected.isnan().any()) else 1.0
    return error


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
            setting = make_setting(pair, {**values, **changed}, seed=0, program_seed=program_seed)
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
    left, run = forward_product(setting)
    if not math.isfinite(left.value):  # forward-mode AD returns NaN, as for a value that is masked later
        if not has_finite_derivative(setting):
            return None
        gap = gap_of(product_by_differences(setting), backward_product(setting))
        return InputFault(kind, setting, gap) if gap > GROSS_OF_DIFFERENCES else None
    gap = gap_of(left, backward_product(setting))
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
        setting = make_setting(pair, values, seed=0, program_seed=program_seed)
    except (CannotTell, NotFinite, BackprintError, RuntimeError):
        return
    source = own_source(0)
    kinds = tangents_of_kinds(setting.tangents, source)
    zeros = {name: torch.zeros_like(tangent) for name, tangent in setting.tangents.items()}
    kinds[ZEROS] = zeros
    # One test for all kinds: the backward is linear in its tangents exactly if gradients add up.
    if _gradients_add_up(setting, kinds):
        kinds = {}  # no kind is wrong, if all together are right
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
    """Whether the gradients for these tangents add up to the gradients of `whole`, a Setting whose tangents are their
    sum. Without it, the Setting's own tangents are one more term, and the sum of all tangents is computed here.

    To within a quarter of GROSS, because beside a sum of many kinds the fault of one is smaller; `live._group_fault`
    does the same.
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
    """Return, by its name in messages, each kind of tangents in which one output alone has a tangent that is not 0; no
    kind if the gradients of all of them add up to the gradients of the Setting, which has all tangents."""
    names = list(setting.tangents)[:MAX_OUTPUTS_ALONE]
    if len(setting.tangents) < 2:
        return {}
    alone = {
        f"tangents of {output} alone": {
            name: tangent if name == output else torch.zeros_like(tangent) for name, tangent in setting.tangents.items()
        }
        for output in names
    }
    return {} if len(names) == len(setting.tangents) and _gradients_add_up(setting, alone, whole=setting) else alone


def _sum_fault(
    kind: str, setting: Setting, other: Setting, total: Setting, source: torch.Generator
) -> InputFault | None:
    """Return a fault if the gradients for the sum of two sets of tangents (`total`) are not the sums of the gradients
    for each (`setting` has random tangents, `other` those of a kind): a backward that is right for random tangents is
    then wrong for `other` or `total`. From `source` the directions are drawn. `live._sum_fault` asks the program
    itself."""
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
        # A direction is scaled by the sizes of the gradients, which differ from those of `setting`.
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
            changes_by_port, run = changes
            left = product_with(changes_by_port, other.tangents)
        except (CannotTell, BackprintError, RuntimeError):  # the graphs do not run for these tangents
            continue
        right = backward_product(other)
        gap = gap_of(left, right)
        if gap > GROSS:
            gap, _ = gap_by_accuracy(other)  # a gradient may be 0 but for rounding
        # By the formulas of forward-mode AD.
        if gap > GROSS and not run.by_differences and not _is_subgradient(other, right):
            return InputFault(kind, other, gap, invented, at_kinks=True)
        # It is a subgradient, or an operator has no formula, and its differences are no measure at a kink.
        if gap > GROSS or run.by_differences:
            continue
        # By the values of the forward, which a formula may not know of, such as a branch for `x == 0`.
        gap = _distance_to_differences(other, right, nearby)
        if gap > 0 and not _is_subgradient(other, right):
            return InputFault(kind, other, gap, invented, by_values=True)
    return None


# ---- Which inputs index something, and which numbers inputs are compared with


def _other_inputs(pair: Pair, values: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield kinds of masks and indices, each with the inputs that are changed for it. Constants of a graph stay as they
    are: the backward may have constants that were computed from them, and would no longer fit."""
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
    """Return the input's name for each value of a graph that is an input, or has the same elements as one (a view or a
    copy of it)."""
    origins = {port.local: port.name for port in graph.inputs if port.role != "tangent"}
    for step in graph.steps:
        if step.target in SAME_VALUES and (arguments := list(refs(step.args))) and arguments[0] in origins:
            origins[step.name] = origins[arguments[0]]
    return origins


def indices_of(forward: Graph) -> tuple[str, ...]:
    """Return the inputs with which the forward reads or adds at indices, and does nothing else."""
    origins = _origins_of(forward)
    used_as_index, used_otherwise = dict[str, None](), set[str]()
    for step in forward.steps:
        if step.is_guard or step.target in SAME_VALUES:
            continue
        place_of_indices = READ_BY_INDEX.get(step.target)
        for place, value in enumerate(step.args):
            inputs = [origins[name] for name in refs(value) if name in origins]
            if place == place_of_indices:
                used_as_index |= dict.fromkeys(inputs)
            else:
                used_otherwise.update(inputs)
    return tuple(name for name in used_as_index if name not in used_otherwise)


COMPARISONS = ("aten.gt.", "aten.ge.", "aten.lt.", "aten.le.", "aten.eq.", "aten.ne.")

LIMITS = ("aten.clamp.default", "aten.clamp_min.default", "aten.clamp_max.default", "aten.threshold.default")
"""Operators with a kink at numbers that they take, as comparisons have; so have `hardtanh` and `threshold`."""

MAX_THRESHOLDS = 8
"""How many numbers that inputs are compared with are tried."""


def _thresholds_of(*graphs: Graph) -> tuple[tuple[str, float], ...]:
    """Return the numbers that inputs are compared with or limited by in graphs, each after the name of the input:
    `("x", 0.5)`."""
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
        if value.numel() and not value.is_complex():  # `torch.unique` takes no complex numbers
            # `place_of_value` has for each element the place of its value among the distinct ones: elements that are
            # equal have the same number of the direction.
            distinct, place_of_value = torch.unique(value, return_inverse=True)
            directions[name] = symmetric_like(value, direction.flatten()[: len(distinct)][place_of_value])
    return directions


STEP = 1e-6
"""How far inputs are moved along the direction for differences to one side."""

NEARBY = 8
"""How often inputs are moved off a kink, to see which gradients there are around it."""


def _is_subgradient(setting: Setting, right: InnerProduct) -> bool:
    """Whether the gradients are right for a kink, or nothing can be said because the forward does not run there.

    They are right if their product `right` lies between the derivatives to both sides, by differences, added up element
    by element; or if there is a kink, and each element of the gradients lies between those of gradients at inputs
    nearby. `compared.is_kink` asks the same of a function and its reference.
    """
    try:
        here, ahead, behind = (results_at(setting, step) for step in (0.0, STEP, -STEP))
    except (BackprintError, RuntimeError):
        return True
    # At a kink each element of an output has two derivatives, and any number between them is right.
    low = high = size = 0.0
    for name, tangent in setting.tangents.items():
        middle = output_of(here, name)
        # Two rows: the terms ahead and the terms behind.
        sides = products_to_both_sides(tangent, middle, output_of(ahead, name), output_of(behind, name), STEP)
        if not bool(sides.isfinite().all()):
            return True
        low, high = low + float(sides.min(0).values.sum()), high + float(sides.max(0).values.sum())
        size += float(sides.abs().max(0).values.sum())
    slack = 1e-4 * max(right.size, size)  # differences with STEP are off by less, as below and in `compared.is_kink`
    if low - slack <= right.value <= high + slack:
        return True
    return high - low > slack and _is_among_gradients_nearby(setting)


def _is_among_gradients_nearby(setting: Setting) -> bool:
    """Whether each element of the gradients lies between the least and the largest that it has in gradients at inputs
    nearby, which lie at no kink. True too where nothing can be said: the graphs do not run there, or gradients are
    complex, which have no order."""
    source = own_source(1)
    # The range of each element. The gradients at the kink itself are no part of it: they are what is asked about.
    low: dict[str, Tensor] = {}
    high: dict[str, Tensor] = {}
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
                low[name] = torch.minimum(low.get(name, gradient), gradient)
                high[name] = torch.maximum(high.get(name, gradient), gradient)
    return all(
        bool(((gradient >= low[name] - slack) & (gradient <= high[name] + slack)).all())
        for name, gradient in setting.gradients.items()
        if (slack := 1e-4 * max(size_of(low[name]), size_of(high[name]), 1e-300))
    )


class _NearbyResults:
    """The results of a Setting's forward where its inputs are moved along the direction. They do not depend on the
    tangents, so they are computed once for all."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.results: list[dict[PortKey, Any]] | None = None

    def all(self) -> list[dict[PortKey, Any]]:
        """Return the results here, ahead and behind by STEP, and ahead and behind by a quarter of it. They are computed
        when they are asked for first."""
        if self.results is None:
            self.results = [results_at(self.setting, step) for step in (0.0, STEP, -STEP, STEP / 4, -STEP / 4)]
        return self.results


def _distance_to_differences(setting: Setting, right: InnerProduct, nearby: _NearbyResults) -> float:
    """Return how far the product `right` of the gradients and the direction is from the derivatives to both sides, by
    differences, relative to its terms; 0 if it lies between them, the differences depend on the step, or rounding
    explains it.

    Where a function computes something else at one point, as with `x == 0`, its derivative by formulas is not that of
    its values. A jump, or a slope that depends on the step, is no derivative.
    """
    try:
        results_nearby = nearby.all()
    except (BackprintError, RuntimeError):
        return 0.0
    # ⟨g, results⟩ at each of the five inputs; its slope along the direction is ⟨g, J·v⟩.
    products = [
        sum_of_inner_products((tangent, output_of(results, name)) for name, tangent in setting.tangents.items())
        for results in results_nearby
    ]
    here, ahead, behind, near_ahead, near_behind = (product.value for product in products)
    if not all(math.isfinite(product.value) for product in products):
        return 0.0
    slopes = [(ahead - here) / STEP, (here - behind) / STEP]
    finer_slopes = [(near_ahead - here) * 4 / STEP, (here - near_behind) * 4 / STEP]
    size = max(right.size, *map(abs, slopes))
    # The error of differences with STEP, and rounding of the values, which a division by STEP makes larger.
    slack = 1e-4 * size + 1e-6 * products[0].size
    if any(abs(slope - other) > slack for slope, other in zip(slopes, finer_slopes, strict=True)):
        return 0.0
    error = max(min(slopes) - right.value, right.value - max(slopes))
    return error / size if error > slack else 0.0
