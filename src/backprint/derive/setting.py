"""One Pair in float64, on inputs near the captured ones: its values, its gradients, and the product of both with a
direction.

For tangents g and a direction v of the inputs, a backward that is the derivative of its forward satisfies
⟨g, J·v⟩ = ⟨Jᵀ·g, v⟩. The left side is the forward's derivative along v, the right side has the backward's gradients.
The *gap* is how far the two sides are apart, relative to the sizes of their terms.

- `source` is the torch.Generator from which tangents, directions and moves of inputs are drawn. The program's own draws
  use torch's global generator, seeded with `program_seed`.
- `values` are the captured inputs by name, in their own dtypes; `inputs` are those in float64, moved a little.
- A port's key (`PortKey`) is its role and its name: one name may be that of an output and of a saved value.
- A DualRun runs a graph by forward-mode AD (`duals`); `in_memory_like` copies a tensor with the strides of another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint.derive.duals import (
    FINER,
    WEIGHTS,
    DualRun,
    Watch,
    first_step,
    in_memory_like,
    is_random,
    relative_change,
)
from backprint.errors import BackprintError, GraphError, GuardError, ReplayError
from backprint.graph.fx.values import resolve
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Graph, Pair, Port, Ref, Step, TensorSpec, Value
from backprint.graph.sizes import at_example_sizes
from backprint.graph.steps import mapped, with_names
from backprint.prove.power import graph_in_float64
from backprint.prove.run import check_saved

NUDGES = (0.1, 1e-3, 0.0)
"""How far inputs are moved from the captured ones, relative to their values: so that no input is 0, 1 or equal to
another by chance. The first nudge at which the program runs is used."""

FLOOR = 1e-4
"""The direction of an input has the size 1/‖its gradient‖, so that no gradient hides behind another. A gradient that is
smaller than this part of the largest counts as having that size: one that is 0 but for rounding must not be blown
up."""

SYMMETRIC = 1e-5
"""A matrix whose parts below and above the diagonal differ by less than this part of its largest value is symmetric."""

CORNER = 32
"""The rows and columns of a matrix that are looked at first."""


class CannotTell(Exception):
    """Raised where nothing can be said about a Pair, with the reason as its message."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A Pair in float64 with inputs, tangents, the values that the forward returned, and the backward's gradients.

    Inputs, tangents g of outputs, gradients and the direction v of inputs are by the names of ports, `results` by their
    keys. `left_out` says of each gradient that is not compared why. `program_seed` is the seed of the program's own
    draws, and `nudge` how far inputs were moved (NUDGES), with `absolute` from the absolute values of the
    captured ones. `refuted` are operators whose formula for tangents is wrong.
    """

    forward: Graph
    backward: Graph
    inputs: dict[str, Any]
    results: dict[PortKey, Any]
    tangents: dict[str, Tensor]
    gradients: dict[str, Tensor]
    left_out: dict[str, str]
    direction: dict[str, Tensor]
    program_seed: int
    nudge: float
    absolute: bool = False
    refuted: frozenset[str] = frozenset()
    is_half: bool = False
    """Whether the backward has values of float16: then no tangent may be larger than 65504, the most that it holds."""

    @property
    def backward_inputs(self) -> dict[PortKey, Any]:
        """The inputs of the backward."""
        return inputs_of_backward(self.backward, self.inputs, self.results, self.tangents)


def with_one_name(pair: Pair, same: Sequence[tuple[str, str]]) -> Pair:
    """Return a Pair in which a tensor that was passed under two names is one input with one gradient. `same` has these
    names in pairs, as tied weights have two.

    In a capture both names have the gradient of the tensor, which is no derivative by either name alone.
    """
    if not same or pair.backward is None:
        return pair
    first_names = {other: first for first, other in same}
    return Pair(pair.name, _one_input_each(pair.forward, first_names), _one_input_each(pair.backward, first_names))


def _one_input_each(graph: Graph, first_names: Mapping[str, str]) -> Graph:
    """Return a graph in which the first name of a tensor stands for its others too, as inputs and as gradients.
    `first_names` has the first name for each other name, as the program has them; `first_locals` is the same for the
    names of the graph's values."""
    local_of = {port.name: port.local for port in graph.inputs if port.role not in ("saved", "tangent")}
    first_locals = {
        local_of[other]: local_of[first]
        for other, first in first_names.items()
        if other in local_of and first in local_of
    }

    def first_of(name: str) -> Value:
        """Return the value that stands for the value of a name."""
        return Ref(first_locals.get(name, name))

    # Each name has the gradient of the whole tensor, so the gradient of the first name is the one that is kept.
    kept_outputs = [
        (port, with_names(result, first_of))
        for port, result in zip(graph.outputs, graph.results, strict=True)
        if port.role != "gradient" or port.name not in first_names
    ]
    return replace(
        graph,
        inputs=tuple(port for port in graph.inputs if port.local not in first_locals),
        steps=tuple(mapped(step, first_of) for step in graph.steps),
        outputs=tuple(port for port, _ in kept_outputs),
        results=tuple(result for _, result in kept_outputs),
    )


def widened_pair(pair: Pair) -> tuple[Graph, Graph]:
    """Return forward and backward in float64, at the captured sizes, without guards on numbers (`without_reads`); raise
    CannotTell if there is no backward."""
    if pair.backward is None:
        raise CannotTell("it has no backward")
    forward, backward = at_example_sizes(widened_graph(pair.forward)), at_example_sizes(widened_graph(pair.backward))
    return without_reads(forward), without_reads(backward)


def without_reads(graph: Graph) -> Graph:
    """Return a graph without the guards on floating-point numbers that the program read out of tensors.

    Such a number is a constant of the graph, and in float64 it is rounded otherwise. Whether a derivative is lost by it
    is seen by running the program (`reads`).
    """
    return replace(graph, steps=tuple(step for step in graph.steps if not is_read_guard(step)))


def is_read_guard(step: Step) -> bool:
    """Whether a step is a guard on a floating-point number: `assert_equal(value, number)`, or `assert_nan(value)`: NaN
    equals no number."""
    return step.target in ("assert_equal", "assert_nan") and (len(step.args) < 2 or type(step.args[1]) is float)


def widened_graph(graph: Graph) -> Graph:
    """Return a graph in float64 whose random numbers are drawn as captured."""
    # Random steps stay in the dtype of the capture: in float64 they would draw other numbers.
    wide_graph = graph_in_float64(graph)
    steps = zip(graph.steps, wide_graph.steps, strict=True)
    kept = tuple(
        step if isinstance(step.spec, TensorSpec) and is_random(resolve(step.target)) else wide_step
        for step, wide_step in steps
    )
    return replace(wide_graph, steps=kept)


def to_float64(value: Any) -> Any:
    """Return a tensor of floats as float64, of complex numbers as complex128; anything else itself."""
    if not isinstance(value, Tensor) or not (value.is_floating_point() or value.is_complex()):
        return value
    return value.detach().to(torch.complex128 if value.is_complex() else torch.float64)


def make_setting(pair: Pair, values: Mapping[str, Any], seed: int, program_seed: int, ones: bool = False) -> Setting:
    """Return a Setting on inputs drawn near these values; near their absolute values, where the forward returns NaN or
    Inf for these. `seed` is for inputs, tangents and direction, `program_seed` for the program's own draws. With
    `ones`, all tangents are 1. Raise CannotTell where neither runs, and NotFinite where a gradient has NaN or Inf; if
    the forward is finite in one of the two, NotFinite is about that one, because there the backward is to blame."""
    try:
        return _setting_near(pair, values, seed, program_seed, ones)
    except NotFinite as error:
        if error.is_forward_finite:
            raise
        try:
            # Draws near the inputs may leave the domain, as of a logarithm. Their absolute values are often inside.
            return replace(
                _setting_near(pair, with_absolute_inputs(pair, values), seed, program_seed, ones), absolute=True
            )
        except CannotTell:
            raise error from None
        except NotFinite as other:
            raise (other if other.is_forward_finite else error) from None


def _setting_near(pair: Pair, values: Mapping[str, Any], seed: int, program_seed: int, ones: bool) -> Setting:
    """Return a Setting on inputs drawn near these values, by the first nudge at which neither graph fails and no result
    is NaN; else the first whose results have NaN and whose gradients do not. If every nudge fails, raise the last
    NotFinite, or CannotTell if there was none."""
    forward, backward = widened_pair(pair)
    names_with_gradient = {port.name for port in backward.outputs}
    reason, not_finite, outside_domain = "it does not run in float64", None, None
    for nudge in NUDGES:
        source = own_source(seed)
        inputs = inputs_of(forward, backward, values)
        inputs |= {
            name: nudge_values(value, nudge, source) for name, value in inputs.items() if name in names_with_gradient
        }
        try:
            setting = run_setting(forward, backward, inputs, source, program_seed, nudge, ones)
            setting = replace(setting, is_half=pair.backward is not None and _has_half(pair.backward))
            if not any(bool(output_of(setting.results, name).isnan().any()) for name in setting.tangents):
                return setting
            outside_domain = outside_domain or setting  # these inputs are outside of the forward's domain
        except NotFinite as error:
            not_finite = error
        except (ReplayError, GuardError, GraphError, RuntimeError) as error:
            reason = str(error)
    if outside_domain is not None:
        return outside_domain
    if not_finite is not None:
        raise not_finite
    raise CannotTell(reason)


def _has_half(graph: Graph) -> bool:
    """Whether a value of a graph has the dtype float16."""
    specs = [*(port.spec for port in graph.inputs), *(step.spec for step in graph.steps)]
    return any(isinstance(spec, TensorSpec) and spec.dtype == "float16" for spec in specs)


def inputs_of(forward: Graph, backward: Graph, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of a Pair by name in float64, the constants that the backward alone takes among them. Raise
    CannotTell where the captured elements beside a view are needed, and `values` do not have them."""
    names = [port.name for port in forward.inputs]
    names += [port.name for port in backward.by_role("constant") if port.name in values]
    # `as_strided` reads the storage of its argument, so the storage must be as it was, with the elements beside the
    # view.
    reads_storages = any("as_strided" in step.target for graph in (forward, backward) for step in graph.steps)
    if reads_storages:
        for port in forward.inputs:
            _refuse_other_place(port, values[port.name])
    return {name: _input_in_float64(values[name], reads_storages) for name in names}


def _refuse_other_place(port: Port, value: Any) -> None:
    """Raise CannotTell if a value begins elsewhere in its storage than at capture."""
    if not isinstance(port.spec, TensorSpec) or not isinstance(value, Tensor) or not _has_storage(value):
        return
    if port.spec.offset not in (0, value.storage_offset()):
        raise CannotTell(
            f"input {port.name!r} began at element {port.spec.offset} of its storage at capture, and as_strided may "
            f"read what is before; these values begin at element {value.storage_offset()}"
        )


def _input_in_float64(value: Any, with_storage: bool) -> Any:
    """Return a tensor in float64, `with_storage` at its place in a copy of its whole storage, else without the rest of
    its storage; anything else as it is."""
    widened = to_float64(value)
    if not isinstance(value, Tensor) or not _has_storage(value):
        return widened
    if with_storage:
        return in_memory_like(widened, value)
    # `to_float64` returns a float64 view as it is, with the storage of the tensor that it is a part of.
    is_part = widened.untyped_storage().nbytes() > widened.numel() * widened.element_size()
    return widened.clone() if is_part else widened


def _has_storage(value: Tensor) -> bool:
    """Whether a tensor is dense and has a memory of its own that can be read."""
    return value.layout is torch.strided and type(value) in (Tensor, torch.nn.Parameter)


def with_absolute_inputs(pair: Pair, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, with absolute ones for inputs that have a gradient."""
    names_with_gradient = {port.name for port in pair.backward.outputs} if pair.backward is not None else set()
    return {
        name: in_memory_like(value.detach().abs(), value)
        if name in names_with_gradient
        and isinstance(value, Tensor)
        and value.is_floating_point()
        and value.layout is torch.strided
        else value
        for name, value in values.items()
    }


def values_of(graph: Graph, inputs: Mapping[Any, Any]) -> dict[PortKey, Any]:
    """Run a graph; return its results by port."""
    # Along no direction, so a DualRun is a plain run, with the same forms of operators as the run that has tangents.
    plain_results = DualRun(graph).run_along(inputs, direction={}).values
    return dict(zip((port.key for port in graph.outputs), plain_results, strict=True))


def gradients_by_input(backward: Graph, inputs: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the results of a backward by the name of the input. A sparse gradient, such as an embedding's, becomes
    dense."""
    return {
        key.name: value.to_dense() if isinstance(value, Tensor) and value.layout is not torch.strided else value
        for key, value in values_of(backward, inputs).items()
    }


OF_ANOTHER_FORWARD = "its input is not among the forward's"
"""Why a gradient is not compared: in a recorded step, a backward may go through the forwards of several Pairs."""


class NotFinite(Exception):
    """Raised for a gradient with NaN or Inf; `setting` has the run."""

    def __init__(self, message: str, setting: Setting) -> None:
        super().__init__(message)
        self.setting = setting

    @property
    def is_forward_finite(self) -> bool:
        """Whether the results that have a tangent are finite."""
        results = self.setting.results
        return all(bool(output_of(results, name).isfinite().all()) for name in self.setting.tangents)


def run_setting(
    forward: Graph,
    backward: Graph,
    inputs: dict[str, Any],
    source: torch.Generator,
    program_seed: int,
    nudge: float,
    ones: bool,
) -> Setting:
    """Run forward and backward on these inputs, in float64, for random tangents (or `ones`) from `source`, and draw the
    direction. `nudge` is how far the inputs were moved already. Raise CannotTell if nothing can be compared, NotFinite
    if a gradient has NaN or Inf."""
    torch.manual_seed(program_seed)
    results = values_of(forward, inputs)
    tangents = {}
    for port in backward.by_role("tangent"):
        output = output_of(results, port.name)
        if output.layout is not torch.strided:
            raise CannotTell(f"output {port.name!r} is {_short_name(output.layout)}: only dense ones are compared")
        tangents[port.name] = torch.ones_like(output) if ones else drawn_like(output, source)
    returned = gradients_by_input(backward, inputs_of_backward(backward, inputs, results, tangents))
    gradients: dict[str, Tensor] = {}
    left_out: dict[str, str] = {}
    for name, gradient in returned.items():
        value = inputs.get(name)
        if why := _why_left_out(value):
            left_out[name] = why
        else:
            gradients[name] = torch.zeros_like(value) if gradient is None else gradient
    _refuse_empty_comparison(tangents, gradients, left_out)
    direction = scaled_directions(inputs, gradients, source)
    setting = Setting(forward, backward, inputs, results, tangents, gradients, left_out, direction, program_seed, nudge)
    not_finite = [name for name, gradient in gradients.items() if not bool(gradient.isfinite().all())]
    if not_finite:
        raise NotFinite(_why_not_finite(not_finite[0], inputs), setting)
    return setting


def _refuse_empty_comparison(
    tangents: Mapping[str, Tensor], gradients: Mapping[str, Tensor], left_out: Mapping[str, str]
) -> None:
    """Raise CannotTell if nothing would be compared: two sums of no terms agree."""
    if gradients and not any(gradient.numel() for gradient in gradients.values()):
        raise CannotTell("no gradient has an element")
    if tangents and not any(tangent.numel() for tangent in tangents.values()):
        raise CannotTell("no output that requires grad has an element")
    if not gradients:
        raise CannotTell("no gradient can be compared: " + "; ".join(f"{n}: {why}" for n, why in left_out.items()))


def _short_name(layout_or_dtype: torch.layout | torch.dtype) -> str:
    """Return the name of a layout or a dtype without `torch.`: `sparse_coo`, `int64`."""
    return str(layout_or_dtype).removeprefix("torch.")


def _why_left_out(value: Any) -> str:
    """Return why the gradient of an input is not compared; '' if it is."""
    if not isinstance(value, Tensor):
        return OF_ANOTHER_FORWARD
    if value.layout is not torch.strided:
        return f"its input is {_short_name(value.layout)}"
    return "" if is_inexact(value) else f"its input is {_short_name(value.dtype)}"


def _why_not_finite(name: str, inputs: Mapping[str, Any]) -> str:
    """Return the message of a gradient with NaN or Inf: it names the first input that has them too."""
    for input_name, value in inputs.items():
        is_dense = isinstance(value, Tensor) and value.layout is torch.strided
        if is_dense and not bool(value.isfinite().all()):
            return f"the gradient of {name!r} has NaN or Inf, as input {input_name!r} has"
    return f"the gradient of {name!r} has NaN or Inf on inputs near the captured ones"


def with_tangents(setting: Setting, tangents: Mapping[str, Tensor]) -> Setting:
    """Return the Setting with other tangents, and the gradients that the backward returns for these."""
    other = replace(setting, tangents=dict(tangents))
    returned = gradients_by_input(setting.backward, other.backward_inputs)
    gradients = {
        name: torch.zeros_like(gradient) if returned[name] is None else returned[name]
        for name, gradient in setting.gradients.items()
    }
    return replace(other, gradients=gradients)


def output_of(results: Mapping[PortKey, Any], name: str) -> Tensor:
    """Return the result that a tangent belongs to: an output, or the new value of an input that was written to
    (`mutation`); raise CannotTell if it is no tensor."""
    for role in ("output", "mutation"):
        value = results.get(PortKey(role, name))
        if isinstance(value, Tensor):
            return value
    raise CannotTell(f"the backward takes a tangent of {name!r}, which is no tensor that the forward returns")


def inputs_of_backward(
    backward: Graph, inputs: Mapping[str, Any], results: Mapping[PortKey, Any], tangents: Mapping[str, Tensor]
) -> dict[PortKey, Any]:
    """Return what the backward takes: tangents, what the forward saved, and inputs of the forward. An input that the
    forward does not have, as in a backward through several forwards, is None.

    Raise where the forward saved smaller tensors than the backward was traced for: its kernels do not check sizes.
    """
    backward_inputs = {}
    for port in backward.inputs:
        if port.role == "tangent":
            backward_inputs[port.key] = tangents[port.name]
        elif port.key in results:
            backward_inputs[port.key] = results[port.key]
        else:
            backward_inputs[port.key] = inputs.get(port.name)
    # Floats alone: a workspace of bytes may have another size, where float64 takes another kernel.
    float_inputs = {
        key: value for key, value in backward_inputs.items() if isinstance(value, Tensor) and value.is_floating_point()
    }
    check_saved(backward, float_inputs)
    return backward_inputs


def has_finite_derivative(setting: Setting) -> bool:
    """Whether the forward returns finite numbers, and its derivative along the direction is finite."""
    if not all(bool(output_of(setting.results, name).isfinite().all()) for name in setting.tangents):
        return False
    try:
        product, _ = forward_product(setting)
        if not math.isfinite(product.value):  # forward-mode AD returns NaN where differences may not
            product = product_by_differences(setting)
    except (CannotTell, BackprintError, RuntimeError):
        return False
    return math.isfinite(product.value)


def is_inexact(value: Tensor) -> bool:
    """Whether a tensor has floats or complex numbers."""
    return value.is_floating_point() or value.is_complex()


def nudge_values(value: Any, scale: float, source: torch.Generator) -> Any:
    """Return a tensor near `value`, moved by about `scale` times its values, so that nothing is 0, 1 or equal by
    chance; a symmetric matrix stays symmetric. With the scale 0, and for what is no dense tensor of floats, return
    `value` itself."""
    if not scale or not isinstance(value, Tensor) or not is_inexact(value) or value.layout is not torch.strided:
        return value
    # The second term moves zeros.
    moved = value * (1 + scale * drawn_like(value, source)) + 0.1 * scale * drawn_like(value, source)
    # A program that refused the first nudge may want its values in their range.
    if scale < NUDGES[0] and value.numel() and not value.is_complex():
        moved = moved.clamp(value.min(), value.max())
    return in_memory_like(symmetric_like(value, moved), value)


def symmetric_like(value: Tensor, other: Tensor) -> Tensor:
    """Return `other`, or its symmetric part where `value` is a symmetric (or Hermitian) matrix, or a batch of these:
    operators such as `cholesky` read one triangle of `value`, and PyTorch's gradient of them is the gradient of a
    symmetric matrix. A diagonal matrix does not count."""
    if value.dim() < 2 or value.shape[-1] != value.shape[-2] or value.shape[-1] < 2 or not value.numel():
        return other
    # A corner shows of most matrices that they are not symmetric, and costs nothing; the whole is compared after it.
    corner = value[..., :CORNER, :CORNER]
    largest = float(value.abs().max())
    if any(float((part - part.mH).abs().max()) > SYMMETRIC * largest for part in (corner, value)):
        return other
    if not bool((value.tril(-1) != 0).any()):  # zeros, or an identity matrix, as weights may begin with
        return other
    return (other + other.mH) / 2


OWN_SEEDS = 0xBACC_0000
"""This is added to a seed, so that a program that seeds torch with 0 draws other numbers than we do. A direction that
equals the inputs would hide faults: along its own inputs, the derivative of everything that a scale does not change is
0, such as a norm layer's."""


def own_source(seed: int) -> torch.Generator:
    """Return a generator for the tangents and inputs that are drawn here."""
    return torch.Generator().manual_seed(seed + OWN_SEEDS)


def drawn_like(value: Tensor, source: torch.Generator) -> Tensor:
    """Return normal numbers of the shape, the dtype and the device of a tensor."""
    # Drawn in single precision, which takes a sixth of the time: a direction needs no more digits.
    single = {torch.float64: torch.float32, torch.complex128: torch.complex64}.get(value.dtype, value.dtype)
    return torch.randn(value.shape, generator=source, dtype=single).to(value.device, value.dtype)


def scaled_directions(
    inputs: Mapping[str, Any], gradients: Mapping[str, Tensor], source: torch.Generator
) -> dict[str, Tensor]:
    """Return a random direction for each input with a gradient, divided by the size of this gradient (FLOOR): so the
    share of each input in the product ⟨gradients, direction⟩ is about as large as any other's."""
    sizes = {name: norm_of(gradient) for name, gradient in gradients.items()}
    floor = _floor_of(sizes)
    return {
        name: symmetric_like(inputs[name], drawn_like(inputs[name], source)) / max(size, floor)
        for name, size in sizes.items()
    }


def _floor_of(sizes: Mapping[str, float]) -> float:
    """Return the least size that a gradient counts as; 1 if all are so small that nothing can be divided by them."""
    largest = max(sizes.values(), default=0.0)
    return FLOOR * largest if largest > LEAST_SIZE else 1.0


def gap_by_accuracy(setting: Setting) -> tuple[float, Setting]:
    """Return the gap of a Setting in which inputs with less accurate gradients have less weight in the product, and
    this Setting.

    A gradient may be 0 but for rounding, or exact to a few digits only. How accurate it is shows when inputs and
    tangents are rounded otherwise.
    """
    noise = _noise_of_gradients(setting)
    sizes = {name: norm_of(gradient) for name, gradient in setting.gradients.items()}
    floor = _floor_of(sizes)
    direction = {}
    for name, v in setting.direction.items():
        # A gradient with much noise gets less weight: at most 1/ACCURATE of its terms may be noise. The direction was
        # divided by `size` (`scaled_directions`), and is now divided by `least_by_noise` if that is larger.
        size, least_by_noise = max(sizes[name], floor), ACCURATE * noise[name]
        direction[name] = v * (size / max(size, least_by_noise))
    setting = replace(setting, direction=direction)
    left, _ = forward_product(setting)
    # Before they were weighted, the directions were such that the product has terms of the size 1, unless all gradients
    # are 0. The gap is relative to these terms: less weight must not make rounding look large.
    least_size = 1.0 if any(sizes.values()) else 0.0
    return gap_of(left._replace(size=max(left.size, least_size)), backward_product(setting)), setting


def _noise_of_gradients(setting: Setting) -> dict[str, float]:
    """Return how far each gradient moves, as a norm, when inputs and tangents are rounded otherwise, and no more than
    rounding in float64 explains: what moves farther must stay visible in the gap."""
    noise = dict.fromkeys(setting.gradients, 0.0)
    for seed in range(ROUNDINGS):
        source = own_source(seed)
        inputs = {n: move_by_rounding(v, source) if n in setting.gradients else v for n, v in setting.inputs.items()}
        tangents = {name: move_by_rounding(tangent, source) for name, tangent in setting.tangents.items()}
        torch.manual_seed(setting.program_seed)
        other = replace(setting, inputs=inputs, tangents=tangents, results=values_of(setting.forward, inputs))
        returned = gradients_by_input(setting.backward, other.backward_inputs)
        for name, gradient in setting.gradients.items():
            if returned[name] is not None:
                noise[name] = max(noise[name], float((returned[name] - gradient).norm()))
    tensors_of_backward = [v for v in setting.backward_inputs.values() if isinstance(v, Tensor) and is_inexact(v)]
    max_noise = ROUNDED * max(
        (norm_of(value) for value in tensors_of_backward if value.layout is torch.strided), default=0.0
    )
    return {name: min(value, max_noise) for name, value in noise.items()}


LEAST_SIZE = 1e-150
"""The least size of gradients that directions are scaled by: memory that nothing wrote to may hold 1e-310."""

ROUNDINGS = 3
"""How often inputs are rounded otherwise, to see how accurate gradients are."""

ROUNDED = 1e-12
"""The most that counts as rounding of a gradient, relative to the largest of what the backward takes: a backward that
computes in fewer digits than float64 is not excused."""

ACCURATE = 1e13
"""Rounding of a gradient may have 1/ACCURATE as its share in the product, below the limit of a gap (`check.LIMIT`)."""


def move_by_rounding(value: Any, source: torch.Generator) -> Any:
    """Return a dense tensor of float64 whose elements are moved by up to 4 units in the last place; anything else as it
    is."""
    if value.layout is not torch.strided or not is_inexact(value):
        return value
    noise = torch.randint(-4, 5, value.shape, generator=source, dtype=torch.float64).to(value.device)
    return in_memory_like(value * (1 + 2**-52 * noise), value)  # 2**-52 is a unit in the last place of 1.0


def norm_of(gradient: Tensor) -> float:
    """Return the norm of a gradient; 1 if it is not finite."""
    size = float(gradient.norm())
    return size if math.isfinite(size) else 1.0


# ---- The two products


class InnerProduct(NamedTuple):
    """A sum of products of elements. `size` is the sum of the absolute values of the terms: rounding is relative to
    it, because the terms may cancel."""

    value: float
    size: float


def inner_product(left: Tensor, right: Tensor) -> InnerProduct:
    """Return the real inner product of two tensors."""
    terms = (left.conj() * right).real if left.is_complex() or right.is_complex() else left * right
    return InnerProduct(float(terms.sum()), float(terms.abs().sum()))


def sum_of_inner_products(pairs: Iterable[tuple[Tensor, Tensor]]) -> InnerProduct:
    """Return the sum of the inner products of these pairs."""
    total = size = 0.0
    for left, right in pairs:
        part = inner_product(left, right)
        total, size = total + part.value, size + part.size
    return InnerProduct(total, size)


def forward_product(
    setting: Setting, constant: Collection[str] = (), watch: Watch | None = None
) -> tuple[InnerProduct, DualRun]:
    """Return ⟨g, J·v⟩ by forward-mode AD, and the run, which knows the operators whose tangent came from another
    source. Steps in `constant` pass no tangent on; `watch` is called with the name, the value and the tangent of each
    step."""
    changes, run = changes_along(setting, constant, watch)
    return product_with(changes, setting.tangents), run


def changes_along(
    setting: Setting, constant: Collection[str] = (), watch: Watch | None = None, padding: bool = True
) -> tuple[dict[PortKey, Any], DualRun]:
    """Return J·v for each result of the forward (None where a result does not depend on the inputs), and the run. The
    tangents g of the Setting play no part in it. `constant` and `watch` are as in `forward_product`. Without `padding`,
    rows of padding of an embedding count as any other row."""
    run = DualRun(setting.forward, constant, watch, refuted=setting.refuted, padding=padding)
    torch.manual_seed(setting.program_seed)
    dual_results = run.run_along(setting.inputs, setting.direction)
    return dict(zip((port.key for port in setting.forward.outputs), dual_results.tangents, strict=True)), run


def product_with(changes_by_port: Mapping[PortKey, Any], tangents: Mapping[str, Tensor]) -> InnerProduct:
    """Return ⟨g, J·v⟩ for J·v in `changes_by_port` and g in `tangents`, which are of outputs, or of inputs that were
    written to (`output_of`). A result without J·v adds nothing."""
    changes_by_name = {}
    for name in tangents:
        keys = (PortKey(role, name) for role in ("output", "mutation"))
        key = next((key for key in keys if key in changes_by_port), None)
        changes_by_name[name] = None if key is None else changes_by_port[key]
    return sum_of_inner_products(
        (tangents[name], change) for name, change in changes_by_name.items() if change is not None
    )


def product_by_differences(setting: Setting) -> InnerProduct:
    """Return ⟨g, J·v⟩ by central differences of the whole forward; raise CannotTell where they do not settle, or the
    forward has a kink.

    Forward-mode AD returns NaN where a value that is masked later is NaN: `0 * inf`. The forward itself does not.
    """
    # As for one operator in `duals`: the largest step first, then each an eighth of the one before.
    step = first_step([setting.inputs[name] for name in setting.direction], list(setting.direction.values()))
    if not step > 0:  # a direction that a gradient of NaN or Inf has made infinite
        raise CannotTell("forward-mode AD of the forward returns NaN, and there is no direction for differences")
    estimates = [_moved_outputs(setting, step / 8**power) for power in range(FINER)]
    changes = [
        relative_change(list(before.values()), list(after.values())) for before, after in itertools.pairwise(estimates)
    ]
    if min(changes) > SETTLED:
        raise CannotTell("forward-mode AD of the forward returns NaN, and differences of it do not settle")
    # `changes[i]` is between the estimates i and i + 1: of the two that agree best, the finer one. Where they agree to
    # the bit, they are one, and the coarser stands for it.
    best = estimates[changes.index(min(changes)) + (min(changes) > 0)]
    if _has_kink(setting, best, step * ONE_SIDED):
        raise CannotTell("forward-mode AD of the forward returns NaN, and it has a kink or no finite derivative")
    return sum_of_inner_products((tangent, best[name]) for name, tangent in setting.tangents.items())


def _has_kink(setting: Setting, tangents: Mapping[str, Tensor], step: float) -> bool:
    """Whether differences to one side are others than `tangents`, the central ones: for `x.abs().sqrt()` at 0 the
    central one is 0, and hides the kink."""
    ahead = results_at(setting, step)
    for name, tangent in tangents.items():
        here = output_of(setting.results, name)
        finite = here.isfinite()
        error = ((output_of(ahead, name) - here) / step - tangent)[finite].abs()
        size = max(float(tangent.abs().max()), float(error.max())) if error.numel() else 0.0
        if size and float(error.max()) > 1e-2 * size:  # the error of a one-sided difference is far below 1e-2
            return True
    return False


ONE_SIDED = 1e-5
"""The step of a difference to one side, relative to the step of central differences."""

SETTLED = 1e-9
"""How far differences of a whole forward with two steps may be apart, relative to their size."""


def _moved_outputs(setting: Setting, step: float) -> dict[str, Tensor]:
    """Return J·v for each output with a tangent, by central differences with this step; 0 where an output is NaN or
    Inf, as a score is that is masked."""
    totals = {name: torch.zeros_like(tangent) for name, tangent in setting.tangents.items()}
    for count, weight in enumerate(WEIGHTS, 1):  # the formula of eighth order, with points up to 4 steps away
        ahead, behind = (results_at(setting, sign * count * step) for sign in (1, -1))
        for name in totals:
            finite = output_of(setting.results, name).isfinite()
            share = (output_of(ahead, name) - output_of(behind, name)) * (weight / step)
            if not bool(share[finite].isfinite().all()):
                raise CannotTell("forward-mode AD of the forward returns NaN, and so do differences of it")
            totals[name] = totals[name] + torch.where(finite, share, 0.0)
    return totals


def results_at(setting: Setting, step: float) -> dict[PortKey, Any]:
    """Return the results of the forward where the inputs are moved by `step` times the direction."""
    moved_inputs = {
        name: in_memory_like(value + step * setting.direction[name], value) if name in setting.direction else value
        for name, value in setting.inputs.items()
    }
    torch.manual_seed(setting.program_seed)
    return values_of(setting.forward, moved_inputs)


def backward_product(setting: Setting, gradients: Mapping[str, Tensor] | None = None) -> InnerProduct:
    """Return ⟨Jᵀ·g, v⟩ by the backward's gradients, or by other `gradients` in their place."""
    compared = setting.gradients if gradients is None else gradients
    return sum_of_inner_products((gradient, setting.direction[name]) for name, gradient in compared.items())


def products_to_both_sides(tangent: Tensor, here: Tensor, ahead: Tensor, behind: Tensor, step: float) -> Tensor:
    """Return the terms of ⟨tangent, derivative⟩ by differences of a result with this step, in two rows: for the
    derivative ahead along the direction, and for the derivative behind. They differ where the result has a kink."""
    slopes = ((ahead - here) / step, (here - behind) / step)
    return torch.stack([(tangent.conj() * slope).real if tangent.is_complex() else tangent * slope for slope in slopes])


def gap_of(left: InnerProduct, right: InnerProduct) -> float:
    """Return the distance of two products relative to the sizes of their terms; 0 if all terms are 0, and infinite if
    one is NaN."""
    size = max(left.size, right.size)
    distance = abs(left.value - right.value)
    if math.isnan(distance):
        return math.inf
    return distance / size if size > 0 else 0.0
