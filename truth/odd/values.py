"""Kinds of numbers and shapes: halves, doubles, whole numbers, no dimensions, no elements, NaN, Inf, signs of zero."""

from typing import Any

import torch
from case import Case, attributes, bare, ints, leaf, many, randn
from torch import nn
from torch.nn import functional as F

NAN, INF = float("nan"), float("inf")
ODD = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-40, -1e-40, 3.4e38]


def odd(f: Any) -> Case:
    """A function of odd numbers, compared to the bit."""
    return Case(f, torch.tensor(ODD), exact=True, gradients=False)


def typed(dtype: Any, f: Any = None) -> Case:
    """A small net in one type of numbers."""
    return Case(f or (lambda x: (x * 2 + 1) * x), randn(3, 4).to(dtype))


many(
    __name__,
    halves=lambda: typed(torch.float16),
    brain_halves=lambda: typed(torch.bfloat16),
    doubles=lambda: typed(torch.float64),
    complexes=lambda: typed(torch.complex64),
    big_complexes=lambda: typed(torch.complex128),
    bytes_signed=lambda: Case(lambda i: i * 2 + 1, ints(3, 4).to(torch.int8)),
    bytes_unsigned=lambda: Case(lambda i: i * 200, ints(3, 4).to(torch.uint8)),
    shorts=lambda: Case(lambda i: i // 2, ints(3, 4).to(torch.int16)),
    bools=lambda: Case(lambda m: m & ~m.flip(0), ints(3, 4) > 1),
    bools_and_floats=lambda: Case(lambda m, x: torch.where(m, x, -x), (ints(3, 4) > 1, randn(3, 4))),
    eighths=lambda: Case(lambda x: x.to(torch.float8_e4m3fn).to(torch.float32) * x, randn(3, 4)),
    mixed_types=lambda: Case(lambda a, b: a * b, (randn(3), randn(3).double()), variants=False),
    mixed_half_and_single=lambda: Case(
        lambda a, b: (a.float() @ b).to(torch.bfloat16), (randn(3, 4).bfloat16(), randn(4, 2))
    ),
    promoted_by_number=lambda: Case(lambda i: i * 2.5, ints(3, 4)),
    promoted_by_zero_dimensional=lambda: Case(
        lambda x, k: x * k, (randn(3), torch.tensor(2.0, dtype=torch.float64)), variants=False
    ),
    converted_and_back=lambda: Case(lambda x: x.double().half().float() * x, randn(3)),
    converted_to_integers=lambda: Case(lambda x: (x * 3).long() * x, randn(3)),
    module_in_halves=lambda: Case(nn.Linear(4, 2).to(torch.bfloat16), randn(3, 4).bfloat16()),
    module_in_doubles=lambda: Case(nn.Linear(4, 2).double(), randn(3, 4).double()),
    module_of_mixed_types=lambda: Case(_mixed(), randn(3, 4)),
    no_dimensions=lambda: Case(lambda x: x * 2, torch.tensor(3.0)),
    no_dimensions_added=lambda: Case(lambda a, b: a[None] + b, (torch.tensor(3.0), randn(3))),
    no_elements=lambda: Case(lambda x: x * 2, torch.zeros(0, 4)),
    no_elements_summed=lambda: Case(lambda x: x.sum() + x.mean(), torch.zeros(0, 4)),
    no_elements_multiplied=lambda: Case(lambda x, y: x @ y, (torch.zeros(3, 0), torch.zeros(0, 2))),
    no_elements_among=lambda: Case(lambda x, y: torch.cat([x, y]), (torch.zeros(0, 4), randn(2, 4))),
    one_element=lambda: Case(lambda x: x.squeeze() * 2, torch.ones(1, 1, 1)),
    ones_broadcast=lambda: Case(lambda a, b: a * b, (randn(3, 1), randn(1, 4, seed=2))),
    many_dimensions=lambda: Case(lambda x: x.sum((1, 3, 5)), randn(1, 2, 1, 2, 1, 2)),
    odd_identity=lambda: odd(lambda x: x.clone()),
    odd_added=lambda: odd(lambda x: x + 0.0),
    odd_subtracted=lambda: odd(lambda x: 0.0 - x),
    odd_negated=lambda: odd(lambda x: -x),
    odd_multiplied=lambda: odd(lambda x: x * -0.0),
    odd_absolute=lambda: odd(lambda x: x.abs()),
    odd_relu=lambda: odd(lambda x: x.relu()),
    odd_clamped=lambda: odd(lambda x: x.clamp(-1, 1)),
    odd_maximum=lambda: odd(lambda x: torch.maximum(x, x.flip(0))),
    odd_fmax=lambda: odd(lambda x: torch.fmax(x, x.flip(0))),
    odd_sign=lambda: odd(lambda x: (x.sign(), x.sgn(), x.signbit())),
    odd_rounded=lambda: odd(lambda x: (x.round(), x.floor(), x.trunc(), (x * 0.3).ceil())),
    odd_nan_to_num=lambda: odd(lambda x: torch.nan_to_num(x)),
    odd_divided=lambda: odd(lambda x: (x / 0.0, 1.0 / x, torch.fmod(x, 2.0))),
    odd_powers=lambda: odd(lambda x: (x**2, x**0.5, x**-1, x**0)),
    odd_compared=lambda: odd(lambda x: (x == x, x > 0, x.isnan(), x.isinf(), x.isfinite())),
    odd_sorted=lambda: odd(lambda x: x[torch.isfinite(x)].sort(stable=True).values),
    odd_copysign=lambda: odd(lambda x: torch.copysign(torch.ones(10), x)),
    odd_softmax=lambda: Case(lambda x: x.softmax(0), torch.tensor([-INF, 0.0, 1.0])),
    odd_masked_softmax=lambda: Case(lambda x: x.softmax(-1), torch.full((2, 3), -INF)),
    odd_log_sum=lambda: Case(lambda x: x.logsumexp(0), torch.tensor([-INF, -INF])),
    odd_constant_baked=lambda: odd(lambda x: x + torch.tensor([-0.0, NAN, INF, 1e-40, 0.1]).repeat(2)),
    odd_numbers_baked=lambda: odd(lambda x: (x * float("inf"), x + float("nan"), x * 1e-40, x * -0.0, x + 0.1)),
    nan_inputs_of_a_net=lambda: Case(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.full((2, 4), NAN)),
    huge_integers=lambda: Case(lambda i: i + 1, torch.tensor([2**62, -(2**63), 2**63 - 1])),
    integer_overflow=lambda: Case(lambda i: i * i, torch.tensor([2**40, 3])),
    integer_division=lambda: Case(
        lambda i: (i // 3, i % 3, torch.div(i, 3, rounding_mode="trunc")), torch.tensor([-7, 7, 0])
    ),
    integer_mean=lambda: Case(lambda i: i.float().mean(), ints(5)),
    integer_shift=lambda: Case(lambda i: (i << 2) ^ (i >> 1), ints(5)),
    integer_mutated=lambda: Case(lambda i: i.add_(5), ints(5)),
    large_constant=lambda: Case(lambda x: x + torch.arange(3000.0), randn(3000)),
    constant_from_list=lambda: Case(lambda x: x * torch.tensor([[1.5, 2.5, 3.5]]), randn(2, 3)),
    constant_from_numpy=lambda: Case(
        lambda x: x * torch.from_numpy(__import__("numpy").arange(3.0, dtype="float32")), randn(2, 3)
    ),
    constant_of_halves=lambda: Case(lambda x: x * torch.tensor([0.1, 0.2], dtype=torch.bfloat16), randn(3, 2)),
    constant_of_complexes=lambda: Case(lambda x: (x * torch.tensor([0.1j, 0.2])).abs(), randn(3, 2)),
    constant_of_nothing=lambda: Case(lambda x: torch.cat([x, torch.tensor([])]), randn(3)),
    uninitialised_filled=lambda: Case(lambda x: torch.empty(3).copy_(x) * 2, randn(3)),
    new_like_inputs=lambda: Case(
        lambda x: x.new_full((2, 3), 7) + x.new_zeros(3) + torch.full_like(x, 2) * x, randn(3)
    ),
    eye_and_tri=lambda: Case(lambda x: x * torch.eye(3) + torch.tril(torch.ones(3, 3)), randn(3, 3)),
    strided_made=lambda: Case(lambda x: torch.empty_strided((2, 3), (1, 2)).fill_(2) * x, randn(2, 3)),
    float_precision_of_numbers=lambda: Case(lambda x: x * (1 / 3) + 0.1 + 1e-30, randn(3).double()),
    big_sum_in_order=lambda: Case(lambda x: x.sum() + x.cumsum(0)[-1], randn(10000)),
    quantized_inside=lambda: Case(
        lambda x: torch.quantize_per_tensor(x.detach(), 0.1, 0, torch.qint8).dequantize() * x, randn(3)
    ),
    fake_quantized=lambda: Case(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), leaf(3)),
    fake_quantized_per_channel=lambda: Case(
        lambda x: torch.fake_quantize_per_channel_affine(
            x, torch.ones(3) * 0.1, torch.zeros(3, dtype=torch.int32), 0, -128, 127
        ),
        leaf(3, 4),
    ),
    searched_sorted=lambda: Case(lambda x: torch.searchsorted(torch.arange(-2.0, 2.0, 0.5), x) * x, randn(5)),
    bucketized=lambda: Case(lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), randn(5)),
    strings_of_einsum=lambda: Case(
        lambda a, b: torch.einsum("bij,bjk->bik", a, b), (randn(2, 3, 4), randn(2, 4, 2, seed=2))
    ),
    einsum_with_dots=lambda: Case(lambda a: torch.einsum("...ii->...", a), randn(2, 3, 3)),
    tensordot=lambda: Case(lambda a, b: torch.tensordot(a, b, dims=([0], [1])), (randn(3, 2), randn(4, 3, seed=2))),
)


def _mixed() -> Any:
    def forward(self, x):
        return self.b(self.a(x).to(torch.bfloat16)).float()

    return bare(lambda s: attributes(s, a=nn.Linear(4, 4), b=nn.Linear(4, 2).bfloat16()), forward)


many(
    __name__,
    type_is_read_from_module=lambda: Case(
        bare(lambda s: attributes(s, l=nn.Linear(4, 2).double()), lambda s, x: s.l(x.to(next(s.parameters()).dtype))),
        randn(3, 4),
    ),
    finfo_as_mask=lambda: Case(
        lambda x: x.masked_fill(torch.eye(3) > 0, torch.finfo(x.dtype).min).softmax(-1), randn(3, 3)
    ),
    padded=lambda: Case(lambda x: F.pad(x, (1, 2), value=NAN), randn(3)),
    padded_reflecting=lambda: Case(lambda x: F.pad(x[None], (1, 2), mode="reflect"), randn(2, 4)),
)
