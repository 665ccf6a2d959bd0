"""Calls that would end the process, write where a stranger likes or never end: each is refused; right ones are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import backprint as bp
from backprint.checks.asserting import check_on_gpu, gpu_assert_complaint
from backprint.checks.schema import bound_by_schema
from backprint.checks.sizes import MOST_ITEMS
from backprint.checks.table import check_by_name
from backprint.common import memory
from backprint.errors import RefusedError, ReplayError
from backprint.fx.values import check_call, resolve
from backprint.graph.isolation import needs_isolation
from backprint.graph.nouns import Graph, Op, Port, Ref, Step
from backprint.graph.operators import STANDINGS, table
from backprint.replaying.run import run_graph

CRASHED = Path(__file__).parent / "fuzz" / "crashed.jsonl"
"""Calls that ended a process before arguments were checked: operator, signal, arguments."""


def arguments(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call's arguments."""
    return args, kwargs


def refused(name: str, *args: Any, **kwargs: Any) -> str:
    """What is said of a call; '' where it may run."""
    try:
        check_call(name, resolve(name), args, kwargs)
    except RefusedError as error:
        return str(error)
    return ""


def full(shape: list[int], value: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.full(shape, value, dtype=dtype)


IMAGE, GRAD = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2)
SCORES = torch.randn(4, 1, 4).log_softmax(2)
LOWEST = torch.tensor([-(2**63)])


BAGGED, BAGS = torch.tensor([1, 2, 9]), (full([2], 1), full([2], 0))
LSTM_BACKWARD = (
    *(torch.ones(2, 5, 3), torch.ones(16, 3), torch.ones(16, 4), torch.ones(16), torch.ones(16)),
    *(torch.ones(5, 4), torch.ones(5, 4), torch.ones(2, 5, 4), torch.ones(5, 4), torch.ones(5, 4)),
    *(torch.ones(2, 5, 4), None, None, False, 2, 4, 1, True, True, False, [], False),
)


HOSTILE = {
    "a dtype as a number": ("aten.arange.default", arguments(1, dtype=-1), "dtype=-1 (int) where"),
    "a dtype as a number, by place": ("aten.to.prim_Device", arguments(IMAGE, None, 6), "dtype=6 (int) where"),
    "a memory format": ("aten.clone.default", arguments(IMAGE, memory_format=4), "memory_format=4 (int)"),
    "a layout": ("aten.eye.default", arguments(1, layout=4), "layout=4 (int) where"),
    "a number of 65 bits": ("aten.select.int", arguments(IMAGE, 0, 2**63), "where the schema wants int"),
    "a list of another length": (
        "aten.reflection_pad1d_backward.default",
        arguments(IMAGE, IMAGE, []),
        "a list of nothing",
    ),
    "too many arguments": ("aten.relu.default", arguments(IMAGE, 1), "2 arguments where"),
    "an argument twice": ("aten.relu.default", arguments(IMAGE, self=IMAGE), "self is given twice"),
    "forged pool indices": (
        "aten.max_pool2d_with_indices_backward.default",
        arguments(GRAD, IMAGE, [2, 2], [2, 2], [0, 0], [1, 1], False, full([1, 1, 2, 2], 16)),
        "indices holds 16, which is not in [-1, 16)",
    ),
    "adaptive pool indices": (
        "aten.adaptive_max_pool2d_backward.default",
        arguments(GRAD, IMAGE, full([1, 1, 2, 2], -1)),
        "indices holds -1, which is not in [0, 16)",
    ),
    "pool indices of another shape": (
        "aten.adaptive_max_pool2d_backward.default",
        arguments(GRAD, IMAGE, full([1, 1, 1, 1], 0)),
        "indices has the shape [1, 1, 1, 1]",
    ),
    "unpooled indices": (
        "aten.max_unpool2d.default",
        arguments(GRAD, full([1, 1, 2, 2], 99), [4, 4]),
        "indices holds 99",
    ),
    "rows of an embedding": (
        "aten.embedding_dense_backward.default",
        arguments(torch.ones(2, 3), full([2], 10), 10, -1, False),
        "indices holds 10, which is not in [0, 10)",
    ),
    "classes": (
        "aten.nll_loss_backward.default",
        arguments(torch.ones(()), torch.ones(2, 3), full([2], 3), None, 1, -100, torch.ones(())),
        "target holds 3, which is not in [0, 3)",
    ),
    "targets of ctc": ("aten._ctc_loss.default", arguments(SCORES, full([1, 2], 6), [4], [2]), "targets holds 6"),
    "what ctc saved": (
        "aten._ctc_loss_backward.default",
        arguments(torch.ones(1), SCORES, full([1, 2], 1), [4], [2], torch.ones(1), torch.ones(1, 4, 3), 0),
        "log_alpha has the shape [1, 4, 3], which should be [1, 4, 5]",
    ),
    "indices of a sparse tensor": (
        "aten._convert_indices_from_coo_to_csr.default",
        arguments(full([4], -5), 4),
        "self holds -5, which is not in [0, 4)",
    ),
    "places that go back": (
        "aten._convert_indices_from_csr_to_coo.default",
        arguments(torch.tensor([0, 3, 1]), torch.tensor([0, 1, 2])),
        "crow_indices go back",
    ),
    "an unsafe sparse tensor": (
        "aten._sparse_coo_tensor_unsafe.default",
        arguments(full([1, 1], 9), torch.ones(1), [3]),
        "size is inconsistent with indices",
    ),
    "segments": (
        "aten.segment_reduce.default",
        arguments(torch.ones(4), "sum", lengths=full([1], 10**6), unsafe=True),
        "lengths holds 1000000",
    ),
    "the smallest number by -1": (
        "aten.div.Tensor_mode",
        arguments(LOWEST, full([1], -1), rounding_mode="trunc"),
        "by -1 has no result",
    ),
    "its remainder": ("aten.remainder.Scalar", arguments(LOWEST, -1), "by -1 has no result"),
    "its multiple": ("aten.lcm.default", arguments(LOWEST, full([1], 5)), "self holds -9223372036854775808"),
    "lists that are not as long": (
        "aten._foreach_copy.default",
        arguments([IMAGE], [IMAGE, IMAGE]),
        "self has 1, src has 2",
    ),
    "running statistics of other channels": (
        "aten._native_batch_norm_legit_functional.default",
        arguments(IMAGE, None, None, torch.ones(8), torch.ones(8), True, 0.1, 1e-5),
        "running_mean has 8 elements, which should be 1",
    ),
    "no running statistics": (
        "aten._native_batch_norm_legit.no_stats",
        arguments(IMAGE, None, None, False, 0.1, 1e-5),
        "running_mean is not there",
    ),
    "means of other rows": (
        "aten.native_layer_norm_backward.default",
        arguments(IMAGE, IMAGE, [4], torch.ones(1), torch.ones(4), None, None, [True, True, True]),
        "mean has 1 elements, which should be 4",
    ),
    "swapped states of an LSTM": (
        "aten.mkldnn_rnn_layer.default",
        arguments(
            *(torch.ones(2, 1, 3), torch.ones(16, 4), torch.ones(16, 3), torch.ones(16), torch.ones(16)),
            *(torch.ones(1, 4), torch.ones(1, 4), False, [], 2, 4, 1, True, False, False, True),
        ),
        "weight0 has the shape [16, 4], which should be [16, 3]",
    ),
    "an alias out of its storage": (
        "aten._reshape_alias.default",
        arguments(torch.ones(4), [10**6], [1]),
        "lead out of the tensor's storage",
    ),
    "a dimension from the end": (
        "aten._fft_r2c.default",
        arguments(IMAGE, [-2], 0, True),
        "dim=[-2] are not dimensions",
    ),
    "a kernel of another size": (
        "aten.slow_conv_transpose2d.default",
        arguments(IMAGE, torch.ones(1, 1, 2, 2), [3000, 3000]),
        "kernel_size=[3000, 3000]",
    ),
    "a state of Sobol's": (
        "aten._sobol_engine_initialize_state_.default",
        arguments(full([1, 1], 0), 10**6),
        "dimension=",
    ),
    "bags that are not there": (
        "aten._embedding_bag_dense_backward.default",
        arguments(torch.ones(2, 3), BAGGED, torch.tensor([0, 0, 2]), *BAGS, 10, False, 0, None),
        "offset2bag holds 2, which is not in [0, 2)",
    ),
    "offsets of bags": (
        "aten._embedding_bag_backward.default",
        arguments(torch.ones(2, 3), BAGGED, torch.tensor([0, 9]), full([0], 0), *BAGS, 10, False, 0, False, None),
        "offsets holds 9, which is not in [0, 4)",
    ),
    "classes of a margin": (
        "aten.multi_margin_loss_backward.default",
        arguments(torch.ones(()), torch.ones(2, 3), full([2], 3), 1, 1.0),
        "target holds 3, which is not in [0, 3)",
    ),
    "labels of a margin": (
        "aten.multilabel_margin_loss_backward.default",
        arguments(torch.ones(()), torch.ones(2, 3), full([2, 3], -2), 1, torch.ones(2, 3)),
        "target holds -2, which is not in [-1, 3)",
    ),
    "half a pivot": (
        "aten.linalg_ldl_solve.default",
        arguments(torch.eye(3), torch.tensor([-1, 2, 3], dtype=torch.int32), torch.ones(3, 1)),
        "a negative number without its other half",
    ),
    "a workspace of another size": (
        "aten.mkldnn_rnn_layer_backward.default",
        arguments(*LSTM_BACKWARD, torch.zeros(7, dtype=torch.uint8)),
        "the workspace has 7 elements, which should be",
    ),
    "memory for one number": (
        "aten.native_group_norm_backward.default",
        arguments(
            *(torch.ones(1).expand(2, 6, 3), torch.ones(2, 6, 3), torch.ones(2, 2), torch.ones(2, 2)),
            *(torch.ones(6), 2, 6, 3, 2, [True, True, True]),
        ),
        "grad_out has 36 elements, and memory for fewer",
    ),
    "scales that lie": (
        "aten._upsample_bilinear2d_aa.default",
        arguments(torch.ones(1, 1, 10, 20), [17, 18], False, 1.0, 0.9),
        "a scale of 1.0 makes no 17 of 10",
    ),
    "a step of nothing": ("aten.range.step", arguments(-1.0, 2, 0.5, dtype=torch.uint8), "is 0 in torch.uint8"),
    "numbers without an end": ("aten.random.from", arguments(IMAGE, 2**63 - 1, None), "more than 2^53"),
    "combinations": ("aten.combinations.default", arguments(full([8], 1), 8, True), "r=8 of 8 reads 134,217,728"),
    "decimals": ("aten.round.decimals", arguments(IMAGE, decimals=2**62), "a float has 1,100 at most"),
    "coefficients of another dtype": (
        "aten._compute_linear_combination.default",
        arguments(torch.ones(2, 2, 2), torch.ones(2, 2, dtype=torch.half)),
        "coefficients are torch.float16, and input torch.float32",
    ),
    "what is repeated by a value": (
        "aten.repeat_interleave.self_Tensor",
        arguments(IMAGE, full([1], 2**40)),
        "and there is room for",
    ),
    "a place for each number": ("aten.bincount.default", arguments(full([1], 2**40)), "and there is room for"),
    "an outer product": (
        "aten.outer.default",
        arguments(torch.ones(2**20), torch.ones(2**20)),
        "a result of 4,096.0 GiB, and there is room for",
    ),
    "a loop": (
        "aten.special_laguerre_polynomial_l.n_scalar",
        arguments(IMAGE, 1e12),
        "a graph may have 65,536",
    ),
    "a power": ("operator.pow", arguments(3, 10**8), "a power of 200,000,000 bits"),
    "a shift": ("operator.lshift", arguments(True, 10**11), "bits; a graph's numbers have at most 4,096"),
    "a product": ("operator.mul", arguments(2**4000, 2**4000), "a product of 8,002 bits"),
    "a text": ("operator.mul", arguments("a", 10**10), "a text cannot be an operand of operator.mul"),
    "a text that is filled in": ("operator.mod", arguments("%2147483640d", 1), "a text cannot be an operand"),
    "a list many times": ("operator.mul", arguments([0], 10**9), "1,000,000,000 times"),
    "two lists": ("operator.add", arguments([0] * MOST_ITEMS, [0]), "a list of more than 65,536 items"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_call_is_refused_and_says_why(case: str) -> None:
    name, (args, kwargs), words = HOSTILE[case]
    assert words in refused(name, *args, **kwargs)


RIGHT = {
    "pool": (
        "aten.max_pool2d_with_indices_backward.default",
        arguments(GRAD, IMAGE, [2, 2], [], [0], [1, 1], False, full([1, 1, 2, 2], 15)),
    ),
    "padded targets": ("aten._ctc_loss.default", arguments(SCORES, torch.tensor([[1, 2, -1]]), [4], [2])),
    "ignored class": (
        "aten.nll_loss_backward.default",
        arguments(torch.ones(()), torch.ones(2, 3), torch.tensor([2, -100]), None, 1, -100, torch.ones(())),
    ),
    "a layer of several": (
        "aten.mkldnn_rnn_layer.default",
        arguments(
            *(torch.ones(2, 5, 3), torch.ones(16, 3), torch.ones(16, 4), torch.ones(16), torch.ones(16)),
            *(torch.ones(5, 4), torch.ones(5, 4), False, [], 2, 4, 2, True, True, True, True),
        ),
    ),
    "a number for a tensor": ("aten.add.Tensor", arguments(IMAGE, 1)),
    "the smallest number by 2": ("aten.floor_divide.default", arguments(LOWEST, 2)),
    "true division": ("aten.div.Tensor", arguments(LOWEST, full([1], -1))),
    "half of them": ("aten.lcm.default", arguments(full([2], -8), full([2], 6))),
    "values that are not there": (
        "aten._convert_indices_from_coo_to_csr.default",
        arguments(torch.empty(4, dtype=torch.int64, device="meta"), 4),
    ),
    "arithmetic": ("operator.pow", arguments(2, 64)),
    "a short list": ("operator.add", arguments([1, [2, 3]], [4])),
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_call_is_not_refused(case: str) -> None:
    name, (args, kwargs) = RIGHT[case]
    assert refused(name, *args, **kwargs) == ""


def test_a_list_that_holds_itself_or_one_list_often_is_too_long() -> None:
    nested: list[Any] = [0]
    for _ in range(40):
        nested = [nested, nested]
    assert "more than 65,536 items" in refused("operator.add", nested, [0])
    nested.append(nested)
    assert "more than 65,536 items" in refused("operator.add", [nested], [0])


@pytest.mark.parametrize("line", CRASHED.read_text().splitlines(), ids=lambda line: json.loads(line)[0])
def test_what_once_ended_a_process_is_refused_or_isolated(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backprint.common.memory._allowed", 1 << 30)
    name, _, text = json.loads(line)
    _, _, call = text.partition(" ")
    try:
        args, kwargs = eval(f"arguments({call})", {"torch": torch, "arguments": arguments})  # our own file of calls
    except SyntaxError:  # the line was cut
        args, kwargs = (), {}
    standing = table()[name].standing
    assert standing == "isolated" or refused(name, *args, **kwargs)


# ------------------------------------------------------------------ ordinary programs


class Losses(torch.nn.Module):
    """Losses whose backwards trust what their forwards saved."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = torch.nn.functional.multi_margin_loss(x, torch.tensor([1, 0, 2]))
        two = torch.nn.functional.multilabel_margin_loss(x, torch.tensor([[1, 0, -1, 0]] * 3))
        y = x.detach()
        return one + two + torch.linalg.ldl_solve(*torch.linalg.ldl_factor(y[:, :3] + y[:, :3].T), y).sum()


ORDINARY = {
    "LSTM": lambda: (torch.nn.LSTM(3, 4, 2, bidirectional=True), (torch.randn(5, 2, 3),)),
    "bfloat16 LSTM": lambda: (torch.nn.LSTM(3, 4).bfloat16(), (torch.randn(5, 2, 3).bfloat16(),)),
    "GRU": lambda: (torch.nn.GRU(3, 4), (torch.randn(5, 2, 3),)),
    "bags": lambda: (torch.nn.EmbeddingBag(10, 4, mode="max"), (BAGGED, torch.tensor([0, 2]))),
    "sums of bags": lambda: (torch.nn.EmbeddingBag(10, 4, mode="sum"), (BAGGED, torch.tensor([0, 2]))),
    "losses": lambda: (Losses(), (torch.randn(3, 4, requires_grad=True),)),
    "resizing": lambda: (
        lambda x: torch.nn.functional.interpolate(x, scale_factor=0.7, mode="bilinear", antialias=True),
        (torch.randn(1, 1, 10, 9),),
    ),
    "groups": lambda: (torch.nn.GroupNorm(2, 4), (torch.randn(2, 4, 3).transpose(0, 2).reshape(2, 4, 3),)),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_programs_are_verified_from_disk_in_this_process(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, args = ORDINARY[name]()
    bp.capture(model, *args, mode="train" if isinstance(model, torch.nn.Module) else None).save(tmp_path / "s")
    assert [verdict.good for verdict in bp.load(tmp_path / "s").verify()] == [True]


# ------------------------------------------------------------------ where a graph runs


def graph_of(*steps: Step) -> Graph:
    """A graph of one input."""
    port = Port("x", "input", None, "x")
    return Graph((port,), steps, (Port("out", "output"),), (Ref(steps[-1].name),))


def test_a_graph_stops_before_the_call_and_names_it() -> None:
    graph = graph_of(Step("y", "operator.pow", (9, 9)), Step("z", "operator.pow", (Ref("y"), Ref("y"))))
    with pytest.raises(ReplayError, match=r"while running `z = operator.pow\(y, y\)`: RefusedError: a power of"):
        run_graph(graph, {"x": torch.ones(1)})


# ------------------------------------------------------------------ the table


def test_the_table_says_of_each_operator_how_it_stands() -> None:
    for name, row in table().items():
        assert row.standing in STANDINGS, name
        assert bool(row.reason) == (row.standing == "isolated"), name
        assert set(row.flags) <= set("rmv"), name
        if row.standing == "checked":
            assert check_by_name(name) is not None, name
        if row.standing == "safe":
            assert check_by_name(name) is None, name


def test_common_operators_want_no_process_of_their_own() -> None:
    for name in ("convolution_backward", "native_batch_norm_backward", "max_pool2d_with_indices_backward", "mm"):
        assert table()[f"aten.{name}.default"].standing != "isolated", name


def test_a_graph_says_what_it_is_isolated_for() -> None:
    plain = Step("y", "aten.relu.default", (Ref("x"),))
    assert needs_isolation(graph_of(plain)) == []
    cell = Step("z", "aten._thnn_fused_gru_cell.default", (Ref("x"),) * 3)
    assert needs_isolation(graph_of(plain, cell)) == [
        "aten._thnn_fused_gru_cell.default (trusts the shapes of gates and states)"
    ]
    handed = Step("z", "aten.add.Tensor", (Ref("x"), Op("aten._thnn_fused_gru_cell.default")))
    assert needs_isolation(graph_of(cell))[0] in needs_isolation(graph_of(handed))
    custom = Step("z", "torch.ops.mylib.f.default", (Ref("x"),))
    assert needs_isolation(graph_of(custom))[0].startswith("torch.ops.mylib.f.default (an operator of a library")
    assert needs_isolation(graph_of(custom), allow=["mylib.f"]) == []
    loop = Step("z", "torch.ops.higher_order.while_loop", (Ref("x"),))
    assert "for ever" in needs_isolation(graph_of(loop))[0]
    seen = Step("z", "torch.ops.higher_order.run_and_save_rng_state", (Op("aten.relu.default"), Ref("x")))
    assert needs_isolation(graph_of(seen)) == []
    unseen = Step("z", "torch.ops.higher_order.wrap", (Op("aten.relu.default"), Ref("x")))
    assert needs_isolation(graph_of(unseen)) == [
        "torch.ops.higher_order.wrap (calls an operator with arguments that nothing looks at)"
    ]


# ------------------------------------------------------------------ room


def test_there_is_room_for_what_is_allowed_free_and_in_the_address_space(monkeypatch: pytest.MonkeyPatch) -> None:
    ones = ("aten.ones.default", [2**28])
    assert refused(*ones) == ""
    monkeypatch.setattr("backprint.common.memory._allowed", memory.held_bytes() + (1 << 29))
    assert "a result of 1.0 GiB, and there is room for 0.5" in refused(*ones)
    monkeypatch.setattr("backprint.common.memory._allowed", 0)
    monkeypatch.setattr("resource.getrlimit", lambda kind: (memory.held_bytes(0) + (1 << 28), -1))
    assert "a result of 1.0 GiB, and there is room for 0.2" in refused(*ones)
    monkeypatch.undo()
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 27)
    assert "a result of 1.0 GiB, and there is room for 0.1" in refused(*ones)


def test_what_is_known_of_a_result_without_making_it() -> None:
    expanded = torch.ones(1).expand(2**40)
    for name, args in {
        "aten.expand.default": (torch.ones(1), [2**40]),  # a view of one number
        "aten.select.int": (expanded, 0, 5),
        "aten.slice.Tensor": (torch.ones(2**14), 0, 0, 2**63 - 1),
        "aten.mm.default": (torch.ones(2**14, 2), torch.ones(2, 2)),
        "aten.add.Tensor": (torch.ones(2**15), torch.ones(2**15)),
        "operator.mul": (torch.ones(2**15), 2**40),
        "aten.nonzero.default": (torch.ones(2**14),),
    }.items():
        assert refused(name, *args) == "", name
    for name, args in {
        "aten.clone.default": (expanded,),
        "aten.mm.default": (torch.ones(2**17, 1), torch.ones(1, 2**17)),
        "aten.add.Tensor": (torch.ones(2**17, 1), torch.ones(2**17)),
        "operator.mul": (torch.ones(2**17, 1), torch.ones(2**17)),
        "aten.arange.start_step": (0.0, 1.0, 1e-12),
        "aten.cat.default": ([expanded, expanded],),
        "aten.constant_pad_nd.default": (torch.ones(2), [2**40, 0]),
        "aten.linspace.default": (0, 1, 2**40),
    }.items():
        assert "and there is room for" in refused(name, *args), name


# ------------------------------------------------------------------ kernels that assert on a GPU

aten = torch.ops.aten
x, i = torch.rand(3, 4), torch.tensor
ASSERTED = {
    "index_select": (aten.index_select.default, (x, 1, i([0, 3])), (x, 1, i([0, 4]))),
    "index_fill from the end": (aten.index_fill.int_Scalar, (x, 1, i([-4]), 1), (x, 1, i([-5]), 1)),
    "gather": (aten.gather.default, (x, 0, i([[2]])), (x, 0, i([[3]]))),
    "scatter": (aten.scatter.src, (x, 0, i([[2]]), x), (x, 0, i([[3]]), x)),
    "take": (aten.take.default, (x, i([11, -12])), (x, i([12]))),
    "index": (aten.index.Tensor, (x, [None, i([3, -4])]), (x, [None, i([4])])),
    "index behind a mask": (
        aten.index.Tensor,
        (x[None], [i([[True, False, False]]), i([3])]),
        (x[None], [i([[True, False, False]]), i([4])]),
    ),
    "index_put": (aten.index_put.default, (x, [i([2])], x[0]), (x, [i([3])], x[0])),
    "embedding": (aten.embedding.default, (x, i([2])), (x, i([3]))),
    "nll_loss": (aten.nll_loss_forward.default, (x, i([0, -100, 3]), None, 1, -100), (x, i([0, 1, 4]), None, 1, -100)),
    "bernoulli": (aten.bernoulli.default, (x,), (x + 1,)),
    "bernoulli_": (aten.bernoulli_.Tensor, (x * 9, x), (x, x - 1)),
    "binary_cross_entropy": (aten.binary_cross_entropy.default, (x, x), (x - 1, x)),
    "multinomial": (aten.multinomial.default, (x, 2), (x - 2, 2)),
    "_assert_async": (aten._assert_async.default, (i(1),), (i(0),)),
}


@pytest.mark.parametrize("name", ASSERTED)
def test_what_a_gpu_would_assert_is_what_the_cpu_raises(name: str) -> None:
    function, good, bad = ASSERTED[name]
    check = check_on_gpu(function)
    assert check is not None
    function(*good)
    assert check(bound_by_schema(function, good, {})[0]) == ""
    with pytest.raises((RuntimeError, IndexError)):
        function(*bad)
    assert check(bound_by_schema(function, bad, {})[0])
    assert gpu_assert_complaint(function, bad, {}) == ""  # on the CPU the kernel itself says so
