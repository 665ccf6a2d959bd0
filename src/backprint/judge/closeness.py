"""Whether a result is right: as near to the exact one as rounding explains.

Of a result (`ours`), four kinds of results of its reference are known, or some of them:

- `exact`: in float64, with which `ours` is compared;
- `own`: in the dtype of `ours`;
- `rounded`: in its dtype, with operators that round otherwise, as another order of additions does;
- `moved`: on inputs that are moved by as much as rounding moves them.

`ours` may be TIMES as far from `exact` as rounding explains: as far as `own` is, as `rounded` are from `own`, as
`moved` are up to a limit (MOST_MOVED), and a few units in the last place (LEAST). Three measures are compared, because
each sees what others do not: the largest difference sees one wrong element, the norm sees many that are a little off,
and the factor sees a result that is 1% too large below rounding that is larger than that.

The result is compared in float64, where it is finite: `right` is `exact` there, `eager` is `own`, and `alternatives`
are `moved` and `rounded`. `unit` is the largest value, by which differences are divided, `largest` that of all results
of a kind (all gradients, all outputs), and `root` the square root of how many elements count. `tiny` and `tiny_norm`
are what LEAST and LEAST_OF_ALL have for the dtype, and `times` is TIMES, or what a caller allows in its place. How far
a result is off is said by the three measures, `most`, `norm` and `factor` (Off): of `errors`, `result` is `ours`, and
`own`, `moved` and `rounded` are as above.

A Closeness begins with its word, how far the result is off, how far it may be, and why it is wrong or not known.
`_alike` returns where two tensors are equal, NaN to NaN, `REAL` has the dtype of the parts of a complex number, and
`_beside_fill` returns a mask of what is left without the huge values that a mask is filled with.

The last three arguments of `_compare_finite` are `largest`, `times` and the least that the largest value is taken to
be: 0, and 1 for what `_beside_fill` leaves.

A change of the rule, or of one of its numbers, changes `judge.VERSION`. Exported files (`tools/export/export`) have the
functions of it that they need, so it imports only torch and the standard library.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

TIMES = 2.0
"""How many times as far from the exact result as rounding explains a result may be."""

LEAST = {torch.float64: 5e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""How far off the reference is taken to be at least, relative to the largest value, however exact it is by chance. A
dtype that is not listed has two units in the last place."""

LEAST_OF_ALL = {torch.float64: 5e-12, torch.float32: 2e-6}
"""The same for the norm and the factor. In other dtypes it is an eighth of the distance between two numbers, because
what is rounded up and what is rounded down make up for one another."""

OF_NORM = 2.0
"""How many times more the norm may be off: the reference's largest error is seldom matched, its norm often exceeded by
another way to compute the same, as flash attention is."""

CHANCE = 4.0
"""How many times the norm over the root of the count the factor may be off by: the fewer elements there are, the more
often all of them are off in one direction by chance."""

MOST_MOVED = 8.0
"""How many times LEAST the movement of a result explains: an ill-conditioned one may move without bound."""

SMALL = 0.1
"""A result of the reference whose error is more than this part of it is nothing but rounding."""

OF_ROUNDING = 8.0
"""How many times as far such a result may be off: it is chance how much rounding is left."""

NOISE = 0.01
"""The part of LEAST, relative to the largest of all results of its kind, that such a result may be off in any case."""

SEEN = 5e-3
"""A comparison that would let pass a result which is 1% off proves little: half of that is the most it may allow."""

PROVES = 1e-4
"""A result that is nothing but rounding proves little if more than this part of the largest one is allowed."""

REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The dtype of the parts of a complex number."""

NO_ELEMENTS = "it has no elements"
NOT_FINITE = "the reference has no finite element"
OWN_NOT_FINITE = "the reference has NaN or Inf in this dtype, and not in float64"
OTHER_PLACES = "NaN or Inf where the reference has none, or the reverse"
UNSTEADY = "rounding the inputs once more moves the reference as far, as where a spike flips"
TOO_COARSE = "the reference is itself so far from float64 that 1% would not be seen"
ALL_ZERO = "it is 0 everywhere, as all others of its kind, and proves nothing"
MEASURES = "in the norm", "too large or too small as a whole"
"""What the two measures beside the largest difference say."""


class Off(NamedTuple):
    """How far a result is from another: the largest difference relative to the largest value, the norm of the
    difference relative to the norm, and by which part of itself the other would have to grow to be nearest."""

    most: float
    norm: float
    factor: float


class Closeness(NamedTuple):
    """The outcome of a comparison.

    `word` is `close`, `wrong`, `unsteady` (the result moves as far if its inputs are rounded once more) or `unknown`
    (nothing could be compared). `error` and `allowed` are relative to `unit`, the largest value; where the norm or the
    factor decides, to the norm, and `unit` is 1. `weak` says why a result that is close proves little; '' if it proves
    what it says.
    """

    word: str
    error: float
    allowed: float
    detail: str = ""
    weak: str = ""
    unit: float = 1.0


def compare(
    ours: Tensor,
    exact: Tensor,
    own: Tensor | None = None,
    *,
    moved: Sequence[Tensor] = (),
    rounded: Sequence[Tensor] = (),
    dtype: torch.dtype | None = None,
    largest: float = 0.0,
    times: float = TIMES,
) -> Closeness:
    """Compare a result with the exact one.

    `dtype` is the one in which it was computed, if not its own. `largest` is the largest value of all results of its
    kind: beside it, a result may be nothing but rounding.
    """
    if ours.shape != exact.shape:
        return Closeness("wrong", math.inf, 0.0, f"its shape is {list(ours.shape)}, and {list(exact.shape)} is right")
    if not exact.numel():
        return Closeness("unknown", math.nan, math.nan, NO_ELEMENTS)
    dtype = dtype or ours.dtype
    result, right = precise(ours).flatten(), precise(exact).flatten()
    eager = right if own is None else precise(own).flatten()
    alternatives = [[precise(value).flatten() for value in values] for values in (moved, rounded)]
    finite = right.isfinite()
    if not bool(finite.all()):
        same, eager_same = (_alike(value, right) for value in (result, eager))
        if bool((~finite & eager_same & ~same).any()):
            return Closeness("wrong", math.inf, 0.0, OTHER_PLACES)
        if not bool(finite.any()):
            return Closeness("unknown", math.nan, math.nan, NOT_FINITE)
    finite = finite & eager.isfinite()  # what overflows in the reference's own dtype has no right value there
    if not bool(finite.any()):
        return Closeness("unknown", math.nan, math.nan, OWN_NOT_FINITE)
    if not bool(finite.all()):
        result, right, eager = result[finite], right[finite], eager[finite]
        alternatives = [[value[finite] for value in values] for values in alternatives]
    if not bool(result.isfinite().all()):
        return Closeness("wrong", math.inf, 0.0, OTHER_PLACES)
    closeness = _compare_finite(result, right, eager, alternatives, REAL.get(dtype, dtype), largest, times, 0.0)
    # A mask has zeros and a huge number, and scores that it was added to have it too. What rounding does to that number
    # would explain anything elsewhere, so the other elements are compared once more without it.
    while closeness.word == "close" and (places := _beside_fill(right)) is not None:
        result, right, eager = result[places], right[places], eager[places]
        alternatives = [[value[places] for value in values] for values in alternatives]
        closeness = _compare_finite(result, right, eager, alternatives, REAL.get(dtype, dtype), 0.0, times, 1.0)
    return closeness


def _compare_finite(
    result: Tensor,
    right: Tensor,
    eager: Tensor,
    alternatives: Sequence[Sequence[Tensor]],
    dtype: torch.dtype,
    largest: float,
    times: float,
    least_scale: float,
) -> Closeness:
    """Compare finite numbers in float64. `least_scale` is the least size that they are taken to have."""
    eps = torch.finfo(dtype).eps
    tiny, tiny_norm = LEAST.get(dtype, 2 * eps), LEAST_OF_ALL.get(dtype, eps / 8)
    scale = max(float(right.abs().max()), least_scale)
    largest = max(largest, scale)
    unit = scale or largest or 1.0
    moved, rounded = alternatives
    errors = _Errors(
        result=off_by(result, right, unit),
        own=off_by(eager, right, unit),
        moved=_largest_errors(moved, right, unit),
        rounded=_largest_errors(rounded, eager, unit),
    )
    if errors.own.most > SMALL or scale <= tiny * largest:  # the right result is nothing but rounding
        rounding = max(errors.own.most, min(errors.moved.most, MOST_MOVED * tiny))
        by_rounding = times * (OF_ROUNDING * rounding + NOISE * tiny * largest / unit)
        limit = max(by_rounding, times * errors.rounded.most)
        weak = ALL_ZERO if not largest else TOO_COARSE if limit * unit > PROVES * largest else ""
        word = "close" if errors.result.most <= limit else "wrong"
        return Closeness(word, errors.result.most, limit, "", weak, unit)
    allowed = _allowed_errors(errors, right, times, tiny, tiny_norm)
    measures = zip(errors.result, allowed, ("", *MEASURES), (unit, 1.0, 1.0), strict=True)
    for measured, limit, detail, measure_unit in measures:
        if not measured <= limit:  # of NaN, too
            if errors.move_as_far(times):
                return Closeness("unsteady", measured, limit, UNSTEADY, "", measure_unit)
            return Closeness("wrong", measured, limit, detail, "", measure_unit)
    weak = TOO_COARSE if min(allowed.norm, allowed.factor) > SEEN else ""
    return Closeness("close", errors.result.most, allowed.most, "", weak, unit)


@dataclass(frozen=True, slots=True)
class _Errors:
    """How far a result is from the right one, and how far others are: eager's `own`, and the farthest of eager on
    inputs that are `moved` by rounding; `rounded` is how far eager is from itself if operators round otherwise."""

    result: Off
    own: Off
    moved: Off
    rounded: Off

    def move_as_far(self, times: float) -> bool:
        """Whether eager's own error, or that on moved inputs, is as large as the result's by difference and by norm."""
        eager = zip(self.own[:2], self.moved[:2], strict=True)
        return all(error <= times * max(of_eager) for error, of_eager in zip(self.result[:2], eager, strict=True))


def _allowed_errors(errors: _Errors, right: Tensor, times: float, tiny: float, tiny_norm: float) -> Off:
    """Return how far a result may be off by each measure: `times` as far as eager is, on inputs that are moved by
    rounding too, and some rounding in any case (`tiny`, and `tiny_norm` for the norm)."""
    # Elements that are small beside the others do not count: of one-hot tangents, one row of a gradient is not 0.
    squares = (right.abs() / (float(right.abs().max()) or 1.0)).square()
    root = float(squares.sum()) / math.sqrt(float(squares.square().sum()) or 1.0) or 1.0
    # Of few elements it is chance whether their errors make up for one another: of one, the norm is its error.
    tiny_norm = max(tiny_norm, tiny / OF_NORM / root)
    own, moved = errors.own, errors.moved
    by_movement = min(moved.factor, MOST_MOVED * tiny_norm) / root
    allowed = Off(
        times * (max(own.most, min(moved.most, MOST_MOVED * tiny)) + tiny),
        OF_NORM * times * (max(own.norm, min(moved.norm, MOST_MOVED * tiny_norm)) + tiny_norm),
        times * (max(own.factor, by_movement) + CHANCE * OF_NORM * own.norm / root + tiny_norm),
    )
    # Operators that round otherwise move a result further than most other orders of additions do: that far, not TIMES.
    by_chance = CHANCE * errors.rounded.norm / root
    rounded = errors.rounded._replace(factor=max(errors.rounded.factor, by_chance))
    return Off(*map(max, allowed, rounded))


def off_by(result: Tensor, right: Tensor, unit: float) -> Off:
    """Return how far finite numbers in float64 are from others, whose largest value is `unit`."""
    difference, right = (result - right) / unit, right / unit  # so that no square overflows
    norm = float(torch.linalg.vector_norm(right)) or 1.0
    product = float(torch.vdot(right, difference).real)
    most = float(difference.abs().max())
    return Off(most, float(torch.linalg.vector_norm(difference)) / norm, abs(product) / norm / norm)


def _largest_errors(values: Sequence[Tensor], reference: Tensor, unit: float) -> Off:
    """Return the largest of each measure over those of the values that are finite; zeros without any."""
    errors = [off_by(value, reference, unit) for value in values if bool(value.isfinite().all())]
    return Off(*map(max, zip(*errors, strict=True))) if errors else Off(0.0, 0.0, 0.0)


HUGE = 1e3
"""A number that masks are filled with is at least as large, and so many times larger than all others of its tensor."""

FEWEST = 8
"""The fewest elements beside a fill value that are compared alone: of fewer, the reference's error is chance."""


def _beside_fill(right: Tensor) -> Tensor | None:
    """Return a mask of the elements that are smaller by far than a fill value; None if there is no fill value: a number
    of at least HUGE such that each element is either near it or HUGE times smaller."""
    sizes = right.abs()
    largest = float(sizes.max())
    if largest < HUGE or right.numel() <= FEWEST:
        return None
    small = sizes <= largest / HUGE
    if int(small.sum()) < FEWEST or not bool((small | (sizes >= largest / 2)).all()):
        return None
    return small


def _alike(left: Tensor, right: Tensor) -> Tensor:
    """Return where two tensors are equal, NaN to NaN."""
    return (left == right) | (left.isnan() & right.isnan())


def precise(value: Tensor) -> Tensor:
    """Return a strided tensor, detached, in float64; a complex one in complex128."""
    value = value.detach()
    return value.to(torch.complex128) if value.is_complex() else value.to(torch.float64)


def size_of(value: Tensor | None) -> float:
    """Return the largest finite absolute value of a strided tensor; 0 without any."""
    if value is None or not value.numel() or value.layout is not torch.strided:
        return 0.0
    return float(precise(value).abs().nan_to_num(0.0, 0.0, 0.0).max())


# ---- Inputs that are moved by a rounding


def rounded_again(value: Tensor, dtype: torch.dtype, seed: int, units: float = 0.5) -> Tensor:
    """Return numbers moved by at most half a unit in the last place of a dtype, as rounding to it moves them, or by so
    many `units`. Equal numbers stay equal, and zeros stay zeros: how far one moves depends on its bits and the seed."""
    if not (value.is_floating_point() or value.is_complex()) or value.layout is not torch.strided:
        return value
    if value.is_complex():
        parts = torch.view_as_real(value.resolve_conj())
        return torch.view_as_complex(rounded_again(parts, REAL.get(dtype, dtype), seed, units).contiguous())
    by_seed = ((seed + 1) * 0x1E3779B97F4A7C15 + 2**63) % 2**64 - 2**63  # as int64 wraps: a seed may be any number
    mixed = value.double().contiguous().view(torch.int64) + by_seed
    for factor in (0x3F58476D1CE4E5B9, 0x14D049BB133111EB):  # as splitmix64 mixes bits
        mixed = (mixed ^ (mixed >> 29)) * factor
    fraction = ((mixed ^ (mixed >> 32)) & 0xFFFFFF).to(torch.float64) / 0x800000 - 1  # from -1 to 1
    return (value.double() * (1 + torch.finfo(dtype).eps * units * fraction)).to(value.dtype)


# ---- Bits, and differences of results that cannot be run again

TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}
"""How far a port may be from its reference, relative to its largest value, and still be `close`, where neither can be
run again: results of another stack, digests. Also how far two runs of one program may be from one another."""

NOTHING = 1e-30
"""Errors are relative to this if the largest value is 0."""

NUDGES = 3
"""How many times a program runs on inputs that are rounded otherwise."""

INT_DTYPES = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integer dtypes as which floating-point numbers of a size are compared."""


def tolerance_of(dtype: torch.dtype) -> float:
    """Return the TOLERANCE of a dtype; of one with fewer bits than bfloat16, that of bfloat16."""
    return TOLERANCE.get(str(dtype)[6:], TOLERANCE["bfloat16"])


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal bit for bit; a NaN equals a NaN in the same place."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.is_complex():
        return same_bits(torch.view_as_real(left), torch.view_as_real(right))
    if not left.is_floating_point():
        return bool(torch.equal(left, right))
    int_dtype = INT_DTYPES.get(left.element_size())
    if int_dtype is not None and torch.equal(left.contiguous().view(int_dtype), right.contiguous().view(int_dtype)):
        return True
    nan = torch.isnan(left) & torch.isnan(right)
    return bool((((left == right) & (torch.signbit(left) == torch.signbit(right))) | nan).all())


def distance(left: Tensor, right: Tensor, least: float = 0.0) -> float:
    """Return the largest difference over the largest value of the second, which is at least `least`; infinity if NaN or
    inf are in different places."""
    off = largest_difference(left, right)
    return off / max(size_of(right), least, NOTHING) if off and math.isfinite(off) else off


def largest_difference(left: Tensor, right: Tensor) -> float:
    """Return the largest difference of two tensors; infinity if NaN or inf are in different places, or integers
    differ."""
    if left.numel() == 0:
        return 0.0
    if not (left.is_floating_point() or left.is_complex()):
        return 0.0 if torch.equal(left, right) else float("inf")
    if left.is_complex():
        left, right = (torch.view_as_real(each.resolve_conj().resolve_neg()) for each in (left, right))
    left, right = left.detach().double(), right.detach().double()
    nonfinite = ~(torch.isfinite(left) & torch.isfinite(right))
    if nonfinite.any():
        same_places = (left == right) | (torch.isnan(left) & torch.isnan(right))
        if not same_places[nonfinite].all():
            return float("inf")
        left, right = left[~nonfinite], right[~nonfinite]
        if left.numel() == 0:
            return 0.0
    return float((left - right).abs().max())
