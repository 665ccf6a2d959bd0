"""A run of a program whose operators round in another way, as another order of additions may.

A *unit* is one in the last place of a result's dtype: `finfo.eps` of the number. An operator that adds products up
(`summed`) has a larger error, of the size of its *terms*. Exported files have the functions of it that they need, so it
imports only torch and the standard library.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

SUMMED = 16.0  # how far sums of some thousand terms, added up in another order, may differ, in units in the last place
TERMS = 4.0  # how far a sum may differ, in units in the last place of the sum of its terms' sizes
EXACT = re.compile(
    r"(_to_copy|_?(new_)?(empty|zeros|ones|full|rand|randn|randint|randperm|arange|eye|scalar_tensor|lift_fresh).*|clone|"
    r"cat|stack|index(_select)?|gather|take.*|embedding|.*slice.*|select.*|where|masked_(fill|select|scatter)|.*pad.*|flip|"
    r"roll|repeat.*|scatter|index_(put|copy|fill)|sort|topk|max.*|min.*|amax|amin|clamp.*|relu.*|threshold.*|hardtanh|abs|"
    r"neg|sign|sgn|floor|ceil|round|trunc|bernoulli.*|.*dropout|tril|triu|diag.*|detach|alias|copy|cummax|cummin|mode|"
    r"median|nan_to_num|fill|uniform.*|normal.*|exponential.*|view_as_.*|real|imag|split.*|unbind.*|expand.*|_?unsafe_.*)"
)
"""Operators whose results are elements of their inputs, constants or draws."""

SUMS = re.compile(r"sum|mean|mm|addmm|bmm|baddbmm|addmv|mv|dot|cumsum|linear|.*convolution.*")
"""Operators that add up products of their inputs: of the sizes of the inputs they give the size of the terms."""

NORMS = re.compile(r"(var|std)_mean|(_?native|cudnn|miopen)_(batch|layer|group)_norm.*|_batch_norm_with_update.*")
"""Operators whose second result is a mean of their first input. `_native_batch_norm_legit_functional` takes the
momentum as its seventh argument, and returns the new running mean as its fourth result."""


class OtherRounding(TorchDispatchMode):
    """Moves the results of each operator by up to some units in the last place, and by more where it adds elements up:
    by SUMMED times that of the root mean square of its results, and by TERMS times that of the terms of its sums, which
    may be much larger. Sums of 16-bit numbers are added up in float32. Operators that only choose or move elements are
    exact."""

    def __init__(self, seed: int, units: float) -> None:
        super().__init__()
        self.units, self.seed = units, seed
        self.sources: dict[str, torch.Generator] = {}  # one for each device

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        schema = function._schema
        name = schema.name.partition("::")[2]
        if EXACT.fullmatch(name) or any(value.alias_info for value in schema.returns):
            return found
        summed = torch.Tag.pointwise not in function.tags
        terms = _terms_of(function, name, args, kwargs or {})
        if isinstance(found, (tuple, list)):
            return type(found)(self.move_elements(value, summed, terms(place)) for place, value in enumerate(found))
        return self.move_elements(found, summed, terms(0))

    def move_elements(self, value: Any, summed: bool, terms: Any) -> Any:
        """Return a tensor whose elements are moved."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.layout is not torch.strided:
            return value
        by = self.draw_noise(value.shape, value) + self.draw_noise(_shared_shape(value), value)
        unit = torch.finfo(value.dtype).eps
        size = value.abs()
        if summed and value.numel():
            sums = SUMMED * _mean_square(value).nan_to_num(0.0, 0.0, 0.0) + TERMS * terms
            size = size + (sums * min(1.0, torch.finfo(torch.float32).eps / unit)).to(value)
        moved = value + by * size * self.units * unit
        return torch.where(torch.isfinite(moved), moved, value)

    def draw_noise(self, shape: Any, value: torch.Tensor) -> torch.Tensor:
        """Return random numbers from -1 to 1."""
        place = str(value.device)
        if place not in self.sources:
            self.sources[place] = torch.Generator(value.device).manual_seed(self.seed)
        return 2 * torch.rand(shape, generator=self.sources[place], device=value.device).to(value) - 1


def _shared_shape(value: torch.Tensor) -> list[int]:
    """Return the shape of numbers that all elements of a channel share: a constant that rounds otherwise moves all."""
    kept = 1 if value.dim() > 2 else 0
    return [size if place == kept else 1 for place, size in enumerate(value.shape)]


def _terms_of(function: Any, name: str, args: Any, kwargs: Any) -> Callable[[int], Any]:
    """Return, for the place of each result, the size of the terms of its sums; 0 where it is not known."""
    if SUMS.fullmatch(name):
        sizes = function(*map(_term_size, args), **{key: _term_size(value) for key, value in kwargs.items()})
        found = sizes if isinstance(sizes, (tuple, list)) else (sizes,)
        return lambda place: 0.0 if found[place] is None else found[place].abs()
    if NORMS.fullmatch(name) and isinstance(args[0], torch.Tensor) and args[0].numel():
        size = float(_mean_square(args[0]))
        running = size * args[6] if "functional" in name and len(args) > 6 else 0.0
        return lambda place: {1: size, 3: running}.get(place, 0.0)  # the mean, and the momentum's share of it
    return lambda place: 0.0


def _term_size(value: Any) -> Any:
    """Return the absolute values of a floating-point tensor; any other argument as it is."""
    return value.abs() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _mean_square(value: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of a tensor."""
    return value.double().square().mean().sqrt()
