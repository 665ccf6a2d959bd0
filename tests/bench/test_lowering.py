"""A lowered graph computes the same as the graph, forward and backward, operator by operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from face import OWN, RefusedError, decompositions_of, replace_views
from face import lowering_operators as operators
from face import operators_lower as lower

aten = torch.ops.aten


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


def flipped(*shape: int) -> Tensor:
    """Return a tensor whose first dimension lies innermost."""
    return torch.randn(*reversed(shape)).permute(*reversed(range(len(shape))))


def rows(*shape: int, below: int) -> Tensor:
    return torch.randint(0, below, shape)


LABELS = rows(2, 3, 3, below=4)


def pool_pair(pool: Callable[..., Any], *sizes: Any, **options: Any) -> Callable[[Tensor], Any]:
    return lambda value: pool(value, *sizes, return_indices=True, **options)[0]


def normed(training: bool) -> Callable[..., Tensor]:
    def norm(value: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        mean, var = (None, None) if training else (torch.zeros(value.shape[1]), torch.ones(value.shape[1]))
        return F.batch_norm(value, mean, var, weight, bias, training)

    return norm


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, 2, 1), (drawn(2, 4, 11), drawn(6, 4, 3), drawn(6))),
    "conv2d strided, not covering": (lambda x, w: F.conv2d(x, w, None, 3, 1), (drawn(2, 4, 9, 12), drawn(6, 4, 2, 3))),
    "conv2d dilated": (lambda x, w: F.conv2d(x, w, None, 2, 2, 2), (drawn(2, 3, 9, 10), drawn(4, 3, 3, 3))),
    "conv2d grouped": (
        lambda x, w, b: F.conv2d(x, w, b, 1, 1, 1, 2),
        (drawn(3, 4, 6, 5), drawn(6, 2, 3, 3), drawn(6)),
    ),
    "conv2d depthwise": (lambda x, w: F.conv2d(x, w, None, 2, 1, 1, 4), (flipped(3, 4, 6, 5), drawn(8, 1, 3, 3))),
    "conv3d": (lambda x, w: F.conv3d(x, w, None, (1, 2, 1), 1), (drawn(2, 2, 4, 5, 6), drawn(3, 2, 3, 3, 2))),
    "conv_transpose1d": (lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1), (drawn(2, 4, 5), drawn(4, 3, 4), drawn(3))),
    "conv_transpose2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1),
        (drawn(2, 4, 5, 6), drawn(4, 3, 3, 3), drawn(3)),
    ),
    "conv_transpose2d grouped, dilated, more than a stride": (
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 2, 2, 3),
        (drawn(2, 4, 5, 6), drawn(4, 3, 3, 2)),
    ),
    "conv_transpose3d": (lambda x, w: F.conv_transpose3d(x, w, None, 2), (drawn(1, 2, 3, 3, 2), drawn(2, 2, 2, 2, 3))),
    "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1), (drawn(2, 3, 10),)),
    "max_pool2d": (pool_pair(F.max_pool2d, 3, 2, 1), (drawn(2, 3, 9, 10),)),
    "max_pool2d dilated, ceil": (pool_pair(F.max_pool2d, 2, 3, 1, 2, ceil_mode=True), (drawn(3, 9, 10),)),
    "max_pool3d": (pool_pair(F.max_pool3d, 2, 1), (drawn(2, 2, 4, 5, 4),)),
    "adaptive_max_pool2d": (pool_pair(F.adaptive_max_pool2d, (3, 4)), (drawn(2, 3, 7, 8),)),
    "adaptive_max_pool3d": (pool_pair(F.adaptive_max_pool3d, (2, 3, 1)), (drawn(2, 3, 4, 7, 3),)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (drawn(2, 3, 9),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (3, 2), 2, 1), (drawn(2, 3, 9, 8),)),
    "avg_pool2d ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, True), (flipped(2, 3, 8, 7),)),
    "avg_pool2d without padding": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), (drawn(3, 8, 7),)),
    "avg_pool2d with a divisor": (lambda x: F.avg_pool2d(x, 3, None, 1, True, True, 5), (drawn(2, 3, 8, 7),)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, 2, 1, True, False), (drawn(2, 3, 4, 5, 6),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (drawn(2, 3, 7, 8),)),
    "adaptive_avg_pool2d even": (lambda x: F.adaptive_avg_pool2d(x, (2, 1)), (drawn(2, 3, 6, 8),)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 5, 1)), (drawn(2, 3, 4, 7, 3),)),
    "nearest1d": (lambda x: F.interpolate(x, size=7), (drawn(2, 3, 5),)),
    "nearest2d": (lambda x: F.interpolate(x, scale_factor=2), (drawn(2, 3, 5, 4),)),
    "nearest2d by a scale": (lambda x: F.interpolate(x, scale_factor=(1.7, 0.6)), (drawn(2, 3, 5, 9),)),
    "nearest3d": (lambda x: F.interpolate(x, size=(3, 4, 7)), (drawn(1, 2, 5, 4, 3),)),
    "nearest-exact": (lambda x: F.interpolate(x, size=(3, 7), mode="nearest-exact"), (drawn(2, 3, 5, 4),)),
    "linear": (lambda x: F.interpolate(x, size=9, mode="linear"), (drawn(2, 3, 5),)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=1.6, mode="bilinear"), (drawn(2, 3, 5, 4),)),
    "bilinear to corners": (
        lambda x: F.interpolate(x, size=(3, 9), mode="bilinear", align_corners=True),
        (flipped(2, 3, 5, 4),),
    ),
    "trilinear": (lambda x: F.interpolate(x, size=(3, 4, 7), mode="trilinear"), (drawn(1, 2, 5, 4, 3),)),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=1.4, mode="bicubic"), (drawn(2, 3, 5, 6),)),
    "reflection pad": (lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"), (drawn(2, 3, 5, 4),)),
    "replication pad": (lambda x: F.pad(x, (1, 2, 3, 0), mode="replicate"), (drawn(2, 3, 5, 4),)),
    "replication pad 3d": (lambda x: F.pad(x, (1, 2, 3, 0, 0, 1), mode="replicate"), (drawn(1, 2, 3, 4, 5),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (5, 6), w, b), (drawn(3, 5, 6), drawn(5, 6), drawn(5, 6))),
    "layer_norm plain": (lambda x: F.layer_norm(x, (6,)), (flipped(3, 5, 6),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (6,), w), (drawn(3, 5, 6), drawn(6))),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), (drawn(3, 6, 5, 4), drawn(6), drawn(6))),
    "batch_norm in training": (normed(True), (drawn(4, 3, 5, 6), drawn(3), drawn(3))),
    "batch_norm in eval": (normed(False), (drawn(4, 3, 5), drawn(3), drawn(3))),
    "attention": (F.scaled_dot_product_attention, (drawn(2, 3, 5, 8), drawn(2, 3, 7, 8), drawn(2, 3, 7, 8))),
    "attention, causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        (drawn(2, 3, 6, 8), drawn(2, 3, 6, 8), drawn(2, 3, 6, 8)),
    ),
    "attention, masked": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(5, 7, dtype=torch.bool).tril(1)),
        (drawn(2, 3, 5, 8), drawn(2, 3, 7, 8), drawn(2, 3, 7, 8)),
    ),
    "attention, added": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.arange(7.0).neg().expand(5, 7)),
        (drawn(2, 3, 5, 8), drawn(2, 3, 7, 8), drawn(2, 3, 7, 8)),
    ),
    "embedding": (lambda w: F.embedding(torch.tensor([[1, 2], [2, 0]]), w, 0), (drawn(5, 4),)),
    "embedding by frequency": (
        lambda w: F.embedding(torch.tensor([1, 2, 2, 0, 1]), w, scale_grad_by_freq=True),
        (drawn(5, 4),),
    ),
    "index": (lambda x: x[:, torch.tensor([1, -1, 1])], (drawn(4, 5, 3),)),
    "index twice": (lambda x: x[torch.tensor([[0], [2]]), :, torch.tensor([1, 1, 0])], (drawn(4, 5, 3),)),
    "index adjacent": (lambda x: x[:, torch.tensor([[0], [2]]), torch.tensor([1, 1, 0])], (drawn(4, 5, 3, 2),)),
    "index_put": (lambda x, v: x.index_put((torch.tensor([0, -1]),), v), (drawn(4, 5), drawn(5))),
    "index_put by a mask": (lambda x: x.index_put((torch.arange(4) > 1,), torch.tensor(2.0)), (drawn(4, 5),)),
    "index_add": (lambda x, v: x.index_add(0, torch.tensor([1, 1]), v), (drawn(4, 5), drawn(2, 5))),
    "gather": (lambda x: x.gather(1, torch.tensor([[0, 0], [1, 2]])), (drawn(2, 3),)),
    "select, slice, unfold": (lambda x: x[:, 1].sum() + x[1:, ::2].sum() + x.unfold(0, 2, 1).sum(), (drawn(4, 5),)),
    "as_strided": (lambda x: x.as_strided((2, 3), (1, 2), 1), (drawn(4, 5),)),
    "as_strided, flipped": (lambda x: x.as_strided((2, 3), (1, 2), 1), (flipped(4, 5),)),
    "cumsum, cumprod": (lambda x: x.cumsum(0) + x.cumprod(1), (drawn(4, 5),)),
    "losses": (
        lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2])) + F.smooth_l1_loss(x, x * 2) + F.huber_loss(x, x * 3),
        (drawn(3, 4),),
    ),
    "nll_loss2d": (lambda x: F.nll_loss(x.log_softmax(1), LABELS, ignore_index=2), (drawn(2, 4, 3, 3),)),
    "binary losses": (
        lambda x: (
            F.binary_cross_entropy(x.sigmoid(), x.detach().abs().clamp(0, 1)) + F.soft_margin_loss(x, x.detach().sign())
        ),
        (drawn(3, 4),),
    ),
    **{
        f"{name}": (getattr(F, name), (drawn(6, 7),))
        for name in (
            "relu gelu silu mish elu selu celu leaky_relu hardtanh hardswish hardsigmoid softplus logsigmoid relu6 "
            "hardshrink softshrink tanhshrink softsign tanh sigmoid"
        ).split()
    },
    "glu": (F.glu, (drawn(6, 8),)),
    "prelu": (F.prelu, (drawn(2, 3, 4), drawn(3))),
    "softmax": (lambda x: x.softmax(-1) + x.log_softmax(0), (flipped(4, 5),)),
    "views of strides": (lambda x: (x.t() * 2).view(20) + x.t().reshape(20), (flipped(4, 5),)),
    "std, var, norm": (lambda x: x.std(0).sum() + x.var() + x.norm() + x.norm(1.5, 1).sum(), (drawn(4, 5),)),
    "complex": (lambda x: torch.view_as_real(torch.view_as_complex(x) * 2j), (drawn(4, 5, 2),)),
    "double": (
        lambda x, w: F.conv2d(x, w),
        (drawn(1, 2, 5, 5, dtype=torch.float64), drawn(3, 2, 2, 2, dtype=torch.float64)),
    ),
    "bfloat16": (lambda x: F.gelu(F.layer_norm(x, (6,))), (drawn(5, 6, dtype=torch.bfloat16),)),
    "bfloat16 attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        tuple(drawn(2, 3, 6, 8, dtype=torch.bfloat16) for _ in range(3)),
    ),
}


def both_ways(program: Callable[..., Any], inputs: tuple[Tensor, ...]) -> fx.GraphModule:
    """Return the graph of a program's output and of its inputs' gradients."""

    def trained(*values: Tensor) -> tuple[Any, ...]:
        leaves = [value.detach().requires_grad_() for value in values]
        out = program(*leaves)
        tangent = torch.linspace(-1, 1, out.numel(), dtype=torch.float32).reshape(out.shape).to(out.dtype)
        return (out.detach(), *torch.autograd.grad(out, leaves, tangent))

    return make_fx(trained)(*inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "thorough"), [*((case, True) for case in CASES), *((case, False) for case in list(CASES)[::4])]
)
def test_a_lowered_graph_computes_the_same(case: str, thorough: bool) -> None:
    program, inputs = CASES[case]
    graph = both_ways(program, inputs)
    lowered = lower(graph, inputs, thorough)
    left = [node.target for node in lowered.graph.nodes if node.target in decompositions_of(thorough)]
    assert left == []
    with torch.no_grad():
        moved = [value + 0.5 for value in inputs]
        for given in (inputs, moved):
            for found, wanted in zip(lowered(*given), graph(*given), strict=True):
                rounding = (
                    {"atol": 3e-2, "rtol": 3e-2} if wanted.dtype == torch.bfloat16 else {"atol": 3e-5, "rtol": 1e-4}
                )
                torch.testing.assert_close(found, wanted, **rounding)


def test_every_form_of_ours_is_of_an_operator_that_formats_lack() -> None:
    assert {str(operator) for operator in OWN} >= {"aten.convolution_backward.default", "aten.as_strided.default"}
    assert set(OWN) <= set(decompositions_of(False)) <= set(decompositions_of(True))


def test_writes_into_what_the_graph_made_become_results() -> None:
    def program(value: Tensor) -> tuple[Tensor, ...]:
        made = value * 2
        made[0].add_(1)
        made.as_strided((2,), (1,), 3).mul_(3)
        return made, value + made

    graph = make_fx(program)(drawn(4, 5))
    assert operators.writing_operators(graph)
    lowered, value = lower(graph, [drawn(4, 5)]), drawn(4, 5)
    assert not operators.writing_operators(lowered)
    assert all(map(torch.equal, lowered(value), program(value)))


def test_a_write_into_an_input_is_refused_and_the_input_stays() -> None:
    value = drawn(3)
    before = value.clone()
    with pytest.raises(RefusedError, match=r"aten.copy_.default writes into an input"):
        lower(make_fx(lambda x: (x.add_(1),))(drawn(3)), [value])
    assert torch.equal(value, before)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (lambda x: F.dropout(x, 0.5), r"aten\.(bernoulli_|native_dropout|rand)"),
        (torch.rand_like, r"aten\.rand_like\.default draws random numbers"),
        (
            lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
            "draws random numbers",
        ),
    ],
)
def test_random_draws_are_refused_by_name(program: Callable[..., Any], name: str) -> None:
    value = drawn(1, 2, 4, 8)
    with pytest.raises(RefusedError, match=name):
        lower(make_fx(lambda x: (program(x),))(value), [value])


def test_attention_saves_its_logarithms_and_not_its_weights() -> None:
    query = drawn(2, 3, 5, 8)
    operator = aten._scaled_dot_product_flash_attention_for_cpu.default
    graph = make_fx(lambda q: operator(q, q, q, 0.0, True))(query)
    for found, wanted in zip(lower(graph, [query])(query), graph(query), strict=True):
        torch.testing.assert_close(found, wanted)


def test_numbers_and_none_among_the_inputs_stay() -> None:
    def program(value: Tensor, number: int, nothing: None) -> tuple[Any, ...]:
        return value * 2, None, 3

    graph = make_fx(program)(drawn(3), 4, None)
    value = drawn(3)
    assert lower(graph, [value, 4, None])(value, 4, None)[1:] == (None, 3)


def test_the_dtypes_of_what_is_made_of_numbers_are_written() -> None:
    graph = make_fx(lambda x: (x + torch.arange(3.0) + torch.ones(3) + torch.full((3,), 2),))(drawn(3))
    made = [node for node in lower(graph, [drawn(3)]).graph.nodes if not node.all_input_nodes and node.kwargs]
    assert [node.kwargs["dtype"] for node in made] == [torch.float32, torch.float32, torch.int64]


def test_a_view_of_memory_that_is_written_stays_a_view() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        memory = x.clone()
        memory.view(4, 3).view(-1).add_(1)
        return memory.mul(y.view(2, 6)).view(3, 4)

    module = make_fx(program)(torch.randn(2, 6), torch.randn(12))
    replace_views(module)
    found = [
        str(node.target) for node in module.graph.nodes if "view" in str(node.target) or "reshape" in str(node.target)
    ]
    assert found == ["aten.view.default", "aten.view.default", "aten.reshape.default", "aten.reshape.default"]
    x, y = torch.randn(2, 6), torch.randn(12)
    assert torch.equal(module(x, y), program(x, y))
