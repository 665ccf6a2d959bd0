"""Calls with arguments of other types than the schema has, or with results of any size, are refused; right ones run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import backprint as bp
from face import (
    MOST_ITEMS,
    Graph,
    Port,
    Ref,
    RefusedError,
    ReplayError,
    Step,
    bound_by_schema,
    check_call,
    check_on_gpu,
    gpu_assert_complaint,
    memory,
    resolve,
    run_graph,
)


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
BAGGED = torch.tensor([1, 2, 9])

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
    "an outer product": (
        "aten.outer.default",
        arguments(torch.ones(2**20), torch.ones(2**20)),
        "a result of 4,096.0 GiB, and there is room for",
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
    "a layer of several": (
        "aten.mkldnn_rnn_layer.default",
        arguments(
            *(torch.ones(2, 5, 3), torch.ones(16, 3), torch.ones(16, 4), torch.ones(16), torch.ones(16)),
            *(torch.ones(5, 4), torch.ones(5, 4), False, [], 2, 4, 2, True, True, True, True),
        ),
    ),
    "a number for a tensor": ("aten.add.Tensor", arguments(IMAGE, 1)),
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
