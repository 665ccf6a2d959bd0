"""Occasions: other inputs and tangents than the captured ones, at which programs and backwards go wrong.

A result that is right once proves little. A kernel that ignores strides is right for inputs in new memory, a backward
that reads one element of its tangent is right for tangents of ones, and a comparison of floats that drops NaN is right
for numbers. So each verb that judges chooses rows of one table by their names:

    >>> import torch
    >>> from backprint.judge.occasions import OCCASIONS
    >>> OCCASIONS["transposed inputs"].make(torch.randn(2, 3)).stride()
    (1, 2)

A row makes one tensor of another: of an input, or of a tangent that was drawn at random; it returns None where it is
not possible. A verb that has a reference runs it on the same tensors; where it raises, or does not say the same in
float64, the occasion says nothing. Occasions that are no change of a tensor are the verbs' own: contents that are drawn
anew (`sample/redraws`), other sizes (`prove/other_inputs`), frozen inputs, a second call, a second backward.

A *tangent* is the gradient of an output with which a backward starts, and an *edge* a value such as 0 or NaN among the
inputs (EDGES). Of the results there, `ours` is the one that is judged; `exact`, `own` and `moved` are the reference's:
in float64, in its own dtype, and with other rounding. `precise` makes a tensor float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from backprint.judge.closeness import compare, precise

Make = Callable[[Tensor], Tensor | None]


@dataclass(frozen=True, slots=True)
class Occasion:
    """One row: its name in reports, why programs meet it, and what it makes of a tensor."""

    name: str
    why: str
    make: Make


# ---- The same numbers in other memory


def transposed(value: Tensor) -> Tensor | None:
    """Return the same values with the last two dimensions the other way round in memory; None where one of these has
    the size 1, or is missing."""
    if value.dim() < 2 or min(value.shape[-2:]) < 2:
        return None
    return value.mT.clone(memory_format=torch.contiguous_format).mT


def sliced(value: Tensor) -> Tensor | None:
    """Return the same values in the middle of a wider tensor; None for a number alone."""
    if not value.dim() or not value.numel():
        return None
    return torch.cat([value, value, value], -1).narrow(-1, value.shape[-1], value.shape[-1])


def strided(value: Tensor) -> Tensor | None:
    """Return the same values with a last stride of 2; None for a number alone."""
    return torch.stack([value, value], -1)[..., 0] if value.dim() and value.numel() else None


# ---- Memory in which several elements are one, as those of a tangent may be


def expanded(value: Tensor) -> Tensor | None:
    """Return a tensor in which the first part along a dimension stands for all of that dimension, with stride 0; None
    for one element."""
    if not value.dim() or value.numel() < 2:
        return None
    dim = next(dim for dim in range(value.dim()) if value.shape[dim] > 1)  # the first that can be expanded
    return value.narrow(dim, 0, 1).clone().expand_as(value)


def _expanded_rows(value: Tensor) -> Tensor | None:
    """Return one number a row, with stride 0 in the last dimension alone; None for a single row."""
    if value.dim() < 2 or value.shape[-1] < 2 or value.numel() == value.shape[-1]:
        return None
    return value.narrow(-1, 0, 1).clone().expand_as(value)


def _one_number(value: Tensor) -> Tensor | None:
    """Return one number everywhere, with all strides 0."""
    return value.flatten()[0].clone().expand_as(value) if value.dim() and value.numel() else None


# ---- Other numbers


def one_hot(value: Tensor) -> Tensor | None:
    """Return 1 at one place and 0 elsewhere."""
    if value.numel() < 2:
        return None
    flat = value.new_zeros(value.numel())
    flat[value.numel() // 2] = 1
    return flat.reshape(value.shape)


def with_zero_row(value: Tensor) -> Tensor | None:
    """Return numbers whose first row, `value[0, …, 0, :]`, is 0; the first number, if there is one dimension."""
    if not value.dim() or not value.numel():
        return None
    changed = value.detach().clone()
    changed[(0,) * max(1, value.dim() - 1)] = 0
    return changed.requires_grad_(value.requires_grad)


def _with_one_zero_row(tangent: Tensor) -> Tensor | None:
    """Return `with_zero_row`; None where that would be all: a tangent of zeros says little."""
    return with_zero_row(tangent) if tangent.dim() and tangent.shape[0] > 1 else None


def with_edge(value: Tensor, edge: float) -> Tensor:
    """Return numbers of which every third is `edge`; if that is NaN or infinite, only the middle one is, because with
    many of them every sum would be NaN or infinite, right or wrong."""
    places = torch.arange(value.numel(), device=value.device).reshape(value.shape)
    chosen = places % 3 == 0 if math.isfinite(edge) else places == value.numel() // 2
    return value.masked_fill(chosen, edge)


def _with_ties(value: Tensor) -> Tensor | None:
    """Return numbers with many equal ones: rounded to halves of their mean size."""
    size = float(value.abs().mean()) if value.numel() else 0.0
    return (value * (2 / size)).round() * (size / 2) if size else None


MEANS = {torch.float64: 2.0**20, torch.float32: 2.0**10, torch.float16: 2.0**4, torch.bfloat16: 2.0**3}
"""How many times as large as its standard deviation a mean is made: half of the digits are left for the deviation."""


def _with_large_mean(value: Tensor) -> Tensor | None:
    """Return numbers plus a constant that is large beside their deviation (MEANS); None if they do not deviate."""
    if value.dtype not in MEANS or value.numel() < 2:
        return None
    deviation = float(value.detach().double().std(correction=0))
    return value + MEANS[value.dtype] * deviation if deviation and math.isfinite(deviation) else None


# ---- Masks and indices


def _by_rows(change: Callable[[Tensor], Tensor]) -> Make:
    """Return `change`, which changes a row of a mask (dimension -2), for masks of one dimension too: each element of
    these is taken for a row."""
    return lambda mask: change(mask[..., None])[..., 0] if mask.dim() == 1 else change(mask)


def _last_row_hidden(mask: Tensor) -> Tensor:
    """Return a mask whose last row is False: in a mask of attention, what the last query may see."""
    other = mask.clone()
    other[..., -1:, :] = False
    return other


def _first_row_shown(mask: Tensor) -> Tensor:
    """Return a mask whose first row is True."""
    other = mask.clone()
    other[..., :1, :] = True
    return other


def _with_repeats(indices: Tensor) -> Tensor | None:
    """Return integers of which each second one is the one before it: only values that occur already. None for an order,
    all of 0, 1, 2, … once each, in which nothing may be twice."""
    flat = indices.flatten()
    places = torch.arange(flat.numel(), device=flat.device)
    if flat.numel() < 2 or bool((flat.sort().values == places).all()):  # an order
        return None
    repeated = flat[places // 2 * 2].reshape(indices.shape)  # [5, 3, 8] -> [5, 5, 8]
    return None if torch.equal(repeated, indices) else repeated


# ---- The table

TANGENTS = (
    Occasion("random tangents", "no two elements are alike", lambda tangent: tangent),
    Occasion("tangents of ones", "`sum().backward()` makes them, and most tests", torch.ones_like),
    Occasion("one-hot tangents", "the gradient of one number", one_hot),
    Occasion("zero-row tangents", "no loss depends on a padded row", _with_one_zero_row),
)
"""Tangents in new memory."""

MEMORIES_OF_TANGENTS = (
    Occasion("expanded tangents", "the backward of `sum` and of `expand` makes them: stride 0", expanded),
    Occasion("one number a row, expanded tangents", "the backward of `sum(-1)` makes them", _expanded_rows),
    Occasion("one number, expanded tangents", "the backward of `sum()` makes them: all strides 0", _one_number),
    Occasion("transposed tangents", "the backward of `.mT` makes them", transposed),
    Occasion("sliced tangents", "the backward of `cat` makes them", sliced),
    Occasion("strided tangents", "the backward of an interleaving makes them", strided),
)


FACTORS: Mapping[str, float] = {
    "2^16": 2.0**16,
    "2^-20": 2.0**-20,
    "2^-24": 2.0**-24,
    "2^12": 2.0**12,
    "2^8": 2.0**8,
    "2^-8": 2.0**-8,
    "2^-10": 2.0**-10,
}
"""What tangents are multiplied with: a loss is scaled by 65,536, and the mean over a million tokens makes them small.
Powers of two, so that a right gradient is exactly so many times larger. float16, whose numbers end at 65,504 and have
fewer digits below 2^-14, has those nearer to 1."""

INPUTS = (
    Occasion("zeros among inputs", "padding and ReLU make them, and a quotient has none", partial(with_edge, edge=0.0)),
    Occasion("equal inputs", "a maximum of them has several places", _with_ties),
    Occasion("a row of zeros", "padding; its length is 0", with_zero_row),
    Occasion("a large mean", "activations have one beside which they hardly differ", _with_large_mean),
)

MEMORIES_OF_INPUTS = (
    Occasion("transposed inputs", "`.mT` before the call", transposed),
    Occasion("sliced inputs", "a part of a larger tensor, as `chunk` returns", sliced),
    Occasion("strided inputs", "every second element, as rotary embeddings take", strided),
)

EDGES: Mapping[str, float] = {
    "zeros": 0.0,
    "NaN": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "1e4": 1e4,
    "-1e4": -1e4,
    "a denormal": 1e-40,
}
"""Values among inputs that a program need not take."""

MASKS = (
    Occasion("a row that a mask hides", "a sequence of padding alone", _by_rows(_last_row_hidden)),
    Occasion("a row that a mask shows", "the mask hides nothing there", _by_rows(_first_row_shown)),
    Occasion("masks that are all False", "everything is hidden", torch.zeros_like),
    Occasion("masks that are all True", "nothing is hidden", torch.ones_like),
)

INDICES = (Occasion("repeated indices", "a token that comes twice: two gradients for one row", _with_repeats),)

OCCASIONS: Mapping[str, Occasion] = {
    row.name: row
    for row in (
        *TANGENTS,
        *MEMORIES_OF_TANGENTS,
        *INPUTS,
        *MEMORIES_OF_INPUTS,
        *MASKS,
        *INDICES,
        *(
            Occasion(word, "a value that a program need not take", partial(with_edge, edge=edge))
            for word, edge in EDGES.items()
        ),
        *(
            Occasion(f"tangents times {word}", "a scaled loss, or a mean", partial(torch.mul, other=by))
            for word, by in FACTORS.items()
        ),
    )
}


# ---- Occasions of several inputs


def changed_masks(masks: Mapping[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield kinds of masks, the names of the rows of MASKS, each with the masks changed to that kind, by name, if one
    of them then differs. A mask of no dimension, and one for which the row is not possible, is not among them."""
    for row in MASKS:
        changed = {name: other for name, mask in masks.items() if mask.dim() and (other := row.make(mask)) is not None}
        if any(not torch.equal(other, masks[name]) for name, other in changed.items()):
            yield row.name, changed


def repeated_indices(indices: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield the name of each tensor of indices that may have repeated ones, and such a tensor."""
    for name, value in indices.items():
        if (repeated := OCCASIONS["repeated indices"].make(value)) is not None:
            yield name, repeated


# ---- Edge values: where a reference is sure of its result


def fault_at_edge(check: str, ours: Tensor, exact: Tensor, own: Tensor, moved: Sequence[Tensor] = ()) -> str:
    """Return how a result is wrong at an edge value, which the name `check` begins with (a key of EDGES); '' if it is
    not. Where the reference is not sure, nothing is said: first NaN and infinities are compared by their places, then
    finite elements by their distance."""
    dtype = own.dtype
    ours, exact, own, *others = map(precise, (ours, exact, own, *moved))
    certain = certain_elements(check, exact, [own, *others])
    if detail := first_of_other_kind(certain, ours, exact):
        return detail
    certain_and_finite = certain & exact.isfinite()
    if not bool(certain_and_finite.any()):
        return ""
    ours, exact, own, *others = (torch.where(certain_and_finite, value, 0.0) for value in (ours, exact, own, *others))
    closeness = compare(ours, exact, own, rounded=others, dtype=dtype)
    text = f"off by {closeness.error:.3g}, where {closeness.allowed:.3g} is allowed"
    return text if closeness.word == "wrong" else ""


def certain_elements(check: str, exact: Tensor, others: Sequence[Tensor]) -> Tensor:
    """Return the elements for which a reference is sure of the kind of its result: in float64, in its own dtype, and
    where its inputs or its operators round otherwise. A NaN that it makes of an infinity, as inf - inf is, does not
    count: only one that was put among the inputs, which `check` says."""
    kind = _kind_of(exact)
    is_nan = kind == 1  # as `_kind_of` numbers the kinds
    certain = torch.ones_like(is_nan) if check.startswith("NaN") else ~is_nan
    for other in others:
        certain = certain & (kind == _kind_of(other))
    return certain


def first_of_other_kind(certain: Tensor, ours: Tensor, exact: Tensor) -> str:
    """Return in words the first of the `certain` elements that is of another kind than the reference's; '' if none
    is."""
    differs = certain & (_kind_of(ours) != _kind_of(exact))
    if not bool(differs.any()):
        return ""
    index = int(differs.flatten().to(torch.int8).argmax())  # the first True
    got, wanted = float(ours.flatten()[index].real), float(exact.flatten()[index].real)
    return f"element {index} is {got:g}, and the reference's {wanted:g}"


def _kind_of(value: Tensor) -> Tensor:
    """Return 0 for numbers, 1 for NaN, 2 for inf and 3 for -inf, element by element."""
    real = value.real if value.is_complex() else value
    kind = torch.zeros(real.shape, dtype=torch.int8, device=real.device)
    kind = torch.where(real.isnan(), 1, kind)
    kind = torch.where(real == math.inf, 2, kind)
    return torch.where(real == -math.inf, 3, kind)
