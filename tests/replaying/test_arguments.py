"""What a replay must share with the captured call: values, containers, strides, memory; and whose weights it uses."""

from __future__ import annotations

import collections
import enum
import functools
import json
import math
import subprocess
import sys
import threading
import types
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import backprint as bp
from face import DescribeState, describe_value, memory_spans, overlapping_pairs

X = torch.arange(12.0).reshape(3, 4)


class Plain:
    """Two of these print alike, whatever they hold."""

    def __init__(self, k: Any) -> None:
        self.k = k

    def __repr__(self) -> str:
        return "Plain()"


class Slotted:
    __slots__ = ("__hidden", "k")

    def __init__(self, k: int) -> None:
        self.k, self.__hidden = k, k + 1


@dataclass
class Config:
    k: int = 1
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    k: int
    modes: tuple[Any, ...]


@dataclass
class Mapped(dict[str, int]):
    """Its items are no fields."""

    def __init__(self, **items: int) -> None:
        super().__init__(items)


class Equal(Plain):
    """It says that it is equal to any other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 1


class Listed(list[int]):
    pass


class Mode(enum.Enum):
    ADD = "add"
    MUL = "mul"


Pair = namedtuple("Pair", "a b")


class Named(Pair):
    """A named tuple whose objects have attributes too."""


def hung(value: Any, attribute: int) -> Any:
    value.hung = attribute
    return value


def adder(n: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x + n


def looped(n: int) -> list[Any]:
    found: list[Any] = [n]
    found.append(Config(found))
    return found


def function(text: str, **names: Any) -> Any:
    """A function of these global variables; functions among them are called by name."""
    return eval(text, {"__name__": "users", **names})


NAN = float("nan")

SAME: dict[str, tuple[Any, Any]] = {
    "int": (3, 3),
    "long text": ("a" * 9000, "a" * 9000),
    "nan": (NAN, -(NAN * 2)),
    "list": ([1, [2, "b"]], [1, [2, "b"]]),
    "slice": (slice(1, None), slice(1, None)),
    "number of numpy": (np.float32(0.1), np.float32(0.1)),
    "dataclass": (Config(2, ["a"]), Config(2, ["a"])),
    "frozen dataclass with slots": (Frozen(2, (Mode.ADD,)), Frozen(2, (Mode.ADD,))),
    "named tuple": (Pair(1, Config(3)), Pair(1, Config(3))),
    "dict of lists": (collections.defaultdict(list, a=[1]), collections.defaultdict(list, a=[1])),
    "enum": (Mode("add"), Mode.ADD),
    "function of torch": (F.gelu, F.gelu),
    "method of a text": ("a".join, "a".join),
    "cycle": (looped(1), looped(1)),
    "dtype": (torch.float16, torch.float16),
    "generator": (torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)),
    "large": (list(range(9000)), list(range(9000))),
    "tensor inside": (Config(torch.ones(2)), Config(torch.ones(2))),
}
"""What is compared by value: it may be another object."""

OTHER: dict[str, tuple[Any, Any]] = {
    "int": (3, 4),
    "bool and int": (True, 1),
    "int and float": (1, 1.0),
    "sign of zero": (0.0, -0.0),
    "last bit": (0.1 + 0.2, 0.3),
    "long text": ("a" * 300, "a" * 250 + "b" * 50),
    "very long text": ("a" * 9000, "a" * 8999 + "b"),
    "shorter list": ([1, 2], [1]),
    "longer list": ([1], [1, 2]),
    "list and tuple": ([1, 2], (1, 2)),
    "tuple and its class": ((1, 2), Pair(1, 2)),
    "attribute of a named tuple": (hung(Named(1, 2), 1), hung(Named(1, 2), 2)),
    "keys": ({"a": 1}, {"b": 1}),
    "keys spelled alike": ({1: 2}, {"1": 2}),
    "values of keys spelled alike": ({1: 2, "1": 3}, {1: 3, "1": 3}),
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "class of a mapping": ({"a": 1}, OrderedDict(a=1)),
    "default of a mapping": (collections.defaultdict(list), collections.defaultdict(dict)),
    "number of numpy": (np.float32(0.1), np.float64(0.1)),
    "slice": (slice(1, None), slice(2, None)),
    "dataclass": (Config(2, ["a"]), Config(2, ["b"])),
    "frozen dataclass with slots": (Frozen(2, ()), Frozen(3, ())),
    "attribute of a dataclass that is no field": (hung(Config(), 1), hung(Config(), 2)),
    "enum": (Mode.ADD, Mode.MUL),
    "enum of another value": (Mode.ADD, enum.Enum("Mode", {"ADD": "sum"}, module=__name__).ADD),
    "function of torch": (F.gelu, F.relu),
    "method of a text": ("a".join, "b".join),
    "dtype": (torch.float16, torch.bfloat16),
    "device": (torch.device("cpu"), torch.device("meta")),
    "cycle": (looped(1), looped(2)),
    "generator": (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)),
    "large": (list(range(9000)), [*range(8999), 0]),
    "tensor inside": (Config(torch.ones(2)), Config(torch.zeros(2))),
    "none": (3, None),
    "tensor": (3, torch.tensor(3)),
}

IDENTICAL: dict[str, Callable[[], Any]] = {
    "object": lambda: Plain([1]),
    "object that is equal to others": lambda: Equal(1),
    "list of a class of its own": lambda: Listed([1, 2]),
    "dataclass that is a dict": lambda: Mapped(a=1),
    "dataclass with an object": lambda: Config(Plain(1)),
    "set": lambda: {"a", "b"},
    "array": lambda: np.arange(3),
    "partial": lambda: functools.partial(math.pow, 2),
    "closure": lambda: adder(2),
    "class": lambda: type("Kind", (), {"k": 2}),
    "lock": threading.Lock,
    "module": lambda: nn.Linear(2, 2),
}
"""What is compared by identity: equal ones are others."""


def ignoring(x: Tensor, value: Any) -> Tensor:
    return x * 2


@pytest.fixture(params=["live", "loaded"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., bp.Capture]:
    """Captures a call, and gives the Capture or the sample that was made of it."""

    def keep(*args: Any, **kwargs: Any) -> bp.Capture:
        capture = bp.capture(*args, **kwargs)
        return capture if request.param == "live" else bp.load(capture.save(tmp_path / "sample", power="none"))

    return keep


def ignoring_all(x: Tensor, *values: Any) -> Tensor:
    return x * 2


def test_an_equal_value_is_the_captured_one(kept: Callable[..., bp.Capture]) -> None:
    capture = kept(ignoring_all, X, *(value for value, _ in SAME.values()), engine="aot")
    assert torch.equal(bp.replay(capture, X, *(equal for _, equal in SAME.values())).outputs, X * 2)


def test_another_value_is_refused(kept: Callable[..., bp.Capture]) -> None:
    values = [value for value, _ in OTHER.values()]
    capture = kept(ignoring_all, X, *values, engine="aot")
    assert torch.equal(bp.replay(capture, X, *values).outputs, X * 2)
    for index, (_, other) in enumerate(OTHER.values()):
        with pytest.raises(bp.errors.GuardError, match=rf"^argument 'values\.{index}\b"):
            bp.replay(capture, X, *values[:index], other, *values[index + 1 :])


@pytest.mark.slow
@pytest.mark.parametrize("name", IDENTICAL)
def test_an_object_is_the_captured_one_or_refused(name: str, tmp_path: Path) -> None:
    value, equal = IDENTICAL[name](), IDENTICAL[name]()
    capture = bp.capture(ignoring, X, [value], engine="aot")
    assert torch.equal(bp.replay(capture, X, [value]).outputs, X * 2)
    with pytest.raises(bp.errors.GuardError, match=r"^argument 'value' has another .* in it than at capture: pass the"):
        bp.replay(capture, X, [equal])
    loaded = bp.load(capture.save(tmp_path / "sample", power="none"))
    with pytest.raises(bp.errors.GuardError, match=r"^argument 'value' has an? .* in it, which .* dataclasses and the"):
        bp.replay(loaded, X, [value])


CHANGED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "attribute": (lambda: Plain(1), lambda value: setattr(value, "k", 2)),
    "attribute of an attribute": (lambda: Plain([Plain(1)]), lambda value: setattr(value.k[0], "k", 2)),
    "slot": (lambda: Slotted(1), lambda value: setattr(value, "k", 2)),
    "item of a list of a class of its own": (lambda: Listed([1]), lambda value: value.append(2)),
    "item of a dict of a class of its own": (lambda: Mapped(a=1), lambda value: value.update(a=2)),
    "item of a set": (lambda: {1}, lambda value: value.add(2)),
    "element of an array": (lambda: np.zeros(3), lambda value: value.fill(1)),
    "mask of an array": (lambda: np.ma.array([1.0, 2.0], mask=[0, 1]), lambda value: value.mask.fill(False)),
    "item of a deque": (lambda: Plain(collections.deque([1])), lambda value: value.k.append(2)),
    "one of many": (lambda: Plain(list(range(900))), lambda value: value.k.append(2)),
    "variable of a closure": (lambda: adder(1), lambda value: setattr(value.__closure__[0], "cell_contents", 2)),
    "tensor": (lambda: Plain(torch.ones(2)), lambda value: value.k.fill_(3)),
}


@pytest.mark.parametrize("name", CHANGED)
def test_an_object_that_was_changed_since_is_another(name: str) -> None:
    make, change = CHANGED[name]
    value = make()
    capture = bp.capture(ignoring, X, value, engine="aot")
    assert torch.equal(bp.replay(capture, X, value).outputs, X * 2)
    change(value)
    with pytest.raises(bp.errors.GuardError, match=r"^argument 'value.* at capture"):
        bp.replay(capture, X, value)


def test_classes_of_one_name_are_two() -> None:
    for make in (
        lambda k: dataclass(type("Config", (), {"__annotations__": {"k": int}, "k": 1, "double": k}))(),
        lambda k: enum.Enum("Mode", {"ADD": 1}, module="users").ADD,
        lambda k: namedtuple("Pair", "a b")(1, 2),
    ):
        capture = bp.capture(ignoring, X, make(2), engine="aot")
        with pytest.raises(bp.errors.GuardError, match=r"has another class (Config|Mode|Pair) in it than at"):
            bp.replay(capture, X, make(3))


def test_one_object_twice_is_not_two() -> None:
    one, two = Plain(1), Plain(1)
    for captured, replayed in (([one, two], [one, one]), ([one, one], [one, two])):
        capture = bp.capture(ignoring, X, captured, engine="aot")
        assert torch.equal(bp.replay(capture, X, captured).outputs, X * 2)
        with pytest.raises(bp.errors.GuardError, match=r"^argument 'value' has"):
            bp.replay(capture, X, replayed)


def test_a_default_that_is_an_object_may_be_passed_or_left_out() -> None:
    default = Plain(1)

    def f(x: Tensor, value: Any = default) -> Tensor:
        return x * 2

    for call in ((), (default,)):
        capture = bp.capture(f, X, *call, engine="aot")
        assert torch.equal(bp.replay(capture, X, default).outputs, X * 2)
        with pytest.raises(bp.errors.GuardError, match="argument 'value' has another Plain in it"):
            bp.replay(capture, X, Plain(1))
    assert torch.equal(bp.replay(bp.capture(f, X, engine="aot"), X).outputs, X * 2)


def test_attributes_may_have_the_names_of_a_fingerprint() -> None:
    value = types.SimpleNamespace(tensor=1, live=2, of=[3], keys=4)
    for argument in (value, Config(value), {"tensor": "x", "live": 1}):
        capture = bp.capture(ignoring, X, argument, engine="aot")
        assert torch.equal(bp.replay(capture, X, argument).outputs, X * 2)


def test_a_value_that_nothing_can_be_said_of_is_the_very_one(tmp_path: Path) -> None:
    lock = threading.Lock()
    capture = bp.capture(ignoring, X, [lock])
    assert torch.equal(bp.replay(capture, X, [lock]).outputs, X * 2)
    loaded = bp.load(capture.save(tmp_path / "sample"))
    with pytest.raises(
        bp.errors.GuardError, match="only with the one that the program was captured with, and that is gone"
    ):
        bp.replay(loaded, X, [lock])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("was", "now", "text"),
    [
        ([1, 2], [1], r"argument 'value\.1' was 2 at capture and is missing now: capture again with it"),
        ([1], [1, 2], r"argument 'value\.1' was not there at capture and is 2 now"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, r"'value' had the keys a, b in this order at capture and has b, a now"),
        (Plain(2), Plain(3), r"argument 'value\.k' was 2 at capture and is 3 now"),
        (Config(torch.zeros(3)), Config(torch.ones(3)), r"'value\.k' was a float32\[3\] \(.* and is a float32\[3\] \("),
    ],
)
def test_what_differs_is_named(was: Any, now: Any, text: str) -> None:
    with pytest.raises(bp.errors.GuardError, match=text):
        bp.replay(bp.capture(ignoring, X, was), X, now)


def scaled(x: Tensor, k: int = 1, *, flag: bool = False) -> Tensor:
    return x * k * (2 if flag else 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("captured", "replayed"),
    [((), ()), ((), (1,)), ((1,), ()), ((3,), (3,))],
    ids=["left out", "passed now", "passed then", "the same"],
)
def test_a_default_is_a_value_like_any(captured: Any, replayed: Any, kept: Callable[..., bp.Capture]) -> None:
    assert torch.equal(bp.replay(kept(scaled, X, *captured), X, *replayed).outputs, scaled(X, *captured))


@pytest.mark.slow
def test_an_argument_that_is_left_out_is_missing(kept: Callable[..., bp.Capture]) -> None:
    capture = kept(scaled, X, 3, flag=True)
    with pytest.raises(bp.errors.GuardError, match="argument 'k' was 3 at capture and is missing now"):
        bp.replay(capture, X, flag=True)
    with pytest.raises(bp.errors.GuardError, match="argument 'flag' was True at capture and is missing now"):
        bp.replay(capture, X, 3)
    with pytest.raises(bp.errors.GuardError, match="'k' was 1 at capture and is 3 now"):
        bp.replay(bp.capture(scaled, X), X, 3)
    with pytest.raises(bp.errors.ReplayError, match="takes x, k, flag; 3 were given"):
        bp.replay(capture, X, 3, True)
    with pytest.raises(bp.errors.ReplayError, match="'x' twice"):
        bp.replay(capture, X, 3, x=X, flag=True)


@pytest.mark.slow
def test_stars_take_what_they_took(kept: Callable[..., bp.Capture]) -> None:
    def f(x: Tensor, *more: Any, **named: Any) -> Tensor:
        return x * sum(more) + named["bias"]

    capture = kept(f, X, 1, 2, bias=X + 1, style="a")
    assert torch.equal(bp.replay(capture, X, 1, 2, bias=X + 1, style="a").outputs, X * 3 + X + 1)
    with pytest.raises(bp.errors.GuardError, match=r"'more\.1' was 2 at capture and is missing now"):
        bp.replay(capture, X, 1, bias=X + 1, style="a")
    with pytest.raises(bp.errors.GuardError, match="'style' was 'a' at capture and is missing now"):
        bp.replay(capture, X, 1, 2, bias=X + 1)
    with pytest.raises(bp.errors.GuardError, match="'other' was not there at capture"):
        bp.replay(capture, X, 1, 2, bias=X + 1, style="a", other=3)


@pytest.mark.slow
def test_what_a_user_hung_on_a_tensor_is_part_of_the_call(kept: Callable[..., bp.Capture]) -> None:
    x, y, z = X.clone(), X.clone(), X.clone()
    x.lengths, y.lengths = [3, 2], [3, 1]
    capture = kept(lambda t: t * 2, x)
    with pytest.raises(bp.errors.GuardError, match=r"argument 't\.lengths\.1' was 2 at capture and is 1 now"):
        bp.replay(capture, y)
    with pytest.raises(
        bp.errors.GuardError, match=r"argument 't\.lengths' was a list of 2 at capture and is missing now"
    ):
        bp.replay(capture, z)
    z.lengths = [3, 2]
    assert torch.equal(bp.replay(capture, z).outputs, X * 2)


# ------------------------------------------------------------------ names


@pytest.mark.slow
def test_a_buffer_and_an_argument_of_one_name(kept: Callable[..., bp.Capture]) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.full((4,), 3.0))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x * mask * self.mask

    model, other = Masked(), torch.full((4,), 5.0)
    capture = kept(model, X, torch.ones(4))
    for found in (
        bp.replay(capture, X, other, state=model.state_dict()),
        bp.replay(capture, X, mask=other, state=model.state_dict()),
    ):
        assert torch.equal(found.outputs, model(X, other))


@pytest.mark.slow
def test_inputs_whose_paths_are_spelled_alike(kept: Callable[..., bp.Capture]) -> None:
    def f(d: dict[str, Any]) -> Tensor:
        return d["a.b"] * 2 + d["a"]["b"] * 3

    capture = kept(f, {"a.b": X, "a": {"b": X + 1}})
    assert torch.equal(bp.replay(capture, {"a.b": X + 2, "a": {"b": X}}).outputs, (X + 2) * 2 + X * 3)


@pytest.mark.slow
def test_outputs_whose_paths_are_spelled_alike(kept: Callable[..., bp.Capture]) -> None:
    def f(x: Tensor) -> dict[Any, Any]:
        return {"a.b": x * 2, "a": {"b": x * 3}, 1: x * 4, "1": x * 5}

    x = X.clone().requires_grad_()
    capture = kept(f, x)
    assert capture.verify()[-1].verdict == "bitwise"
    found = bp.replay(capture, x).outputs
    assert list(found) == ["a.b", "a", 1, "1"]
    for left, right in ((found["a.b"], 2), (found["a"]["b"], 3), (found[1], 4), (found["1"], 5)):
        assert torch.equal(left, X * right)


# ------------------------------------------------------------------ strides and memory


@pytest.mark.slow
@pytest.mark.parametrize(
    ("captured", "now", "advice"),
    [
        (X, torch.empty(4, 3).t(), r"strides \[4, 1\] at capture and has \[1, 3\] now: pass x\.contiguous\(\)"),
        (torch.empty(4, 3).t(), X, r"strides \[1, 3\] at capture and has \[4, 1\] now: pass torch\.empty_strided"),
        (torch.empty(1, 4).expand(3, 4), X, r"\[0, 1\] at capture .* pass it expanded as it was"),
        (
            torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last),
            torch.zeros(2, 3, 4, 4),
            r"x\.contiguous\(memory_format=torch\.channels_last\)",
        ),
    ],
    ids=["turned now", "turned then", "expanded", "channels last"],
)
def test_inputs_lie_as_they_did(captured: Tensor, now: Tensor, advice: str, kept: Callable[..., bp.Capture]) -> None:
    with pytest.raises(bp.errors.GuardError, match=advice):
        bp.replay(kept(lambda x: x * 2, captured), now)


@pytest.mark.slow
def test_strides_of_sizes_that_are_symbols() -> None:
    capture = bp.capture(lambda x: (x * 2).sum(), torch.randn(4, 6).t(), dynamic=True)
    assert bp.replay(capture, torch.ones(5, 7).t()).outputs == 70
    with pytest.raises(bp.errors.GuardError, match=r"strides \[1, 7\] at capture and has \[5, 1\] now"):
        bp.replay(capture, torch.ones(7, 5))


def test_strides_of_single_and_empty_dimensions_say_nothing() -> None:
    capture = bp.capture(lambda x: x * 2, torch.randn(1, 4))
    assert bp.replay(capture, torch.ones(4, 1).t()).outputs.shape == (1, 4)


def test_parameters_are_laid_out_as_their_ports_say() -> None:
    model = nn.Linear(4, 3)
    state = {"weight": torch.randn(4, 3).t(), "bias": torch.randn(3)}
    found = bp.replay(bp.capture(model, X), X, state=state).outputs
    assert torch.equal(found, nn.functional.linear(X, state["weight"].contiguous(), state["bias"]))


def in_place(a: Tensor, b: Tensor) -> Tensor:
    return a.mul_(2) * b


def apart() -> tuple[Tensor, Tensor]:
    return torch.ones(3), torch.ones(3)


def equal() -> tuple[Tensor, Tensor]:
    return (one := torch.ones(3)), one


def overlapping() -> tuple[Tensor, Tensor]:
    base = torch.ones(4)
    return base[:3], base[1:]


def turned() -> tuple[Tensor, Tensor]:
    base = torch.ones(4)
    return base[1:], base[:3]


def interleaved() -> tuple[Tensor, Tensor]:
    base = torch.ones(6)
    return base[::2], base[1::2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "now", "text"),
    [
        (apart, equal, "'a' and 'b' were two tensors at capture and are one now"),
        (apart, overlapping, "shared no memory at capture and shared memory 4 bytes from each other now"),
        (overlapping, apart, "shared memory 4 bytes from each other at capture and shared no memory now"),
        (overlapping, turned, "'a' and 'b' shared memory 4 bytes"),
        (equal, apart, "were one tensor at capture"),
    ],
)
def test_memory_is_shared_as_it_was(
    then: Callable[[], Any], now: Callable[[], Any], text: str, kept: Callable[..., bp.Capture]
) -> None:
    capture = kept(in_place, *then(), requires_grad=False)
    assert torch.equal(bp.replay(capture, *then()).outputs, in_place(*then()))
    with pytest.raises(bp.errors.GuardError, match=text):
        bp.replay(capture, *now())


def test_memory_that_nothing_is_written_to_may_be_shared() -> None:
    capture = bp.capture(lambda a, b: a * b, *apart())
    assert torch.equal(bp.replay(capture, *overlapping()).outputs, torch.ones(3))


READING: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "is_set_to": lambda a, b: a.is_set_to(b),
    "data_ptr": lambda a, b: a.data_ptr() == b.data_ptr(),
    "view": lambda a, b: b._is_view(),
    "overlaps": lambda a, b: torch._C._overlaps(a, b),
    "numpy": lambda a, b: np.shares_memory(a.detach().numpy(), b.detach().numpy()),
    "identity": lambda a, b: a is b,
    "hash": lambda a, b: len({a, b}) == 1,
}
"""What a program can ask about the memory or the identity of two arguments."""


@pytest.mark.slow
@pytest.mark.parametrize("name", READING)
def test_memory_that_is_read_is_shared_as_it_was(name: str) -> None:
    def program(a: Tensor, b: Tensor) -> Tensor:
        return a * 2 if READING[name](a, b) else a + 3 * b

    t, u = torch.ones(3), torch.ones(3)
    calls = [(t, t.clone()), (t, t), (t, t.view(3))]
    for captured in calls[:2]:
        capture = bp.capture(program, *captured)
        for call in calls:
            found = replayed(capture, *call)
            assert found is None or torch.equal(found, program(*call))
        assert replayed(capture, *((u, u) if captured[0] is captured[1] else (u, u.clone()))) is not None


def replayed(capture: bp.Capture, *call: Any) -> Any:
    """The output; None if a guard does not hold."""
    try:
        return bp.replay(capture, *call).outputs
    except bp.errors.GuardError:
        return None


@pytest.mark.slow
def test_the_line_that_reads_memory_is_named(kept: Callable[..., bp.Capture]) -> None:
    t = torch.ones(3)
    capture = kept(lambda a, b: a * 2 if a.is_set_to(b) else a + b, t, t.clone())
    with pytest.raises(
        bp.errors.GuardError, match=r"'a' and 'b' shared no memory at .*reads where a is in memory at .*is_set_to"
    ):
        bp.replay(capture, t, t.view(3))
    assert torch.equal(bp.replay(capture, t, torch.ones(3)).outputs, t + 1)


def test_tensors_between_each_others_elements_share_nothing() -> None:
    assert list(overlapping_pairs(memory_spans(dict(zip("ab", interleaved(), strict=True))))) == []
    assert list(overlapping_pairs(memory_spans(dict(zip("ab", overlapping(), strict=True))))) == [("a", "b", 4)]
    x, y = interleaved()
    capture = bp.capture(in_place, *apart(), requires_grad=False)
    with pytest.raises(bp.errors.GuardError, match="strides"):
        bp.replay(capture, x, y)


def test_an_input_that_lies_in_a_buffer_which_is_written_to() -> None:
    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.mean.add_(1)
            return x * 2

    model = Running()
    capture = bp.capture(model, torch.ones(3))
    with pytest.raises(bp.errors.GuardError, match="writes to mean"):
        bp.replay(capture, model.mean)


def test_a_parameter_that_is_passed_as_an_argument_too() -> None:
    model = nn.Bilinear(3, 3, 3, bias=False)
    capture = bp.capture(lambda w, x: (w * x).sum(), model.weight, model.weight)
    with pytest.raises(bp.errors.GuardError, match="one tensor at capture"):
        bp.replay(capture, model.weight, nn.Parameter(model.weight.detach().clone()))


# ------------------------------------------------------------------ whose parameters


def sample(tmp_path: Path, data: str = "seed") -> tuple[nn.Module, bp.Capture]:
    model = nn.Linear(4, 2)
    return model, bp.load(bp.capture(model, X).save(tmp_path / "sample", data))


def test_a_samples_weights_are_never_redrawn_without_a_word(tmp_path: Path) -> None:
    model, loaded = sample(tmp_path)
    with pytest.raises(
        bp.errors.ReplayError, match=r"no values of weight, bias.*state=model\.state_dict\(\).*state='recipe'"
    ):
        bp.replay(loaded, X)
    assert torch.equal(bp.replay(loaded, X, state=model.state_dict()).outputs, model(X))
    made = loaded.inputs()
    assert list(made) == ["weight", "bias", "input"]
    redrawn = bp.replay(loaded, X, state="recipe").outputs
    assert torch.equal(redrawn, nn.functional.linear(X, made["weight"], made["bias"]))
    assert not torch.equal(redrawn, model(X))
    own = bp.replay(loaded).outputs
    assert torch.equal(own, nn.functional.linear(made["input"], made["weight"], made["bias"]))
    with pytest.raises(bp.errors.ReplayError, match="state has no bias"):
        bp.replay(loaded, X, state={"weight": model.weight})
    with pytest.raises(bp.errors.ReplayError, match="did you mean 'weight'"):
        bp.replay(loaded, X, state={"wieght": model.weight, "bias": model.bias})


def test_a_sample_with_exact_data_has_the_programs_own_weights(tmp_path: Path) -> None:
    model, loaded = sample(tmp_path, "exact")
    assert torch.equal(bp.replay(loaded, X).outputs, model(X))


def test_a_sample_runs_on_its_own_inputs_and_tangents(tmp_path: Path) -> None:
    _, loaded = sample(tmp_path)
    made = loaded.recipes.make()
    found, plain = bp.replay(loaded), bp.replay(loaded, tangents=[torch.ones(3, 2)])
    assert torch.equal(found.gradients["bias"], made["tangent output"].sum(0))
    assert torch.equal(plain.gradients["bias"], torch.full((2,), 3.0))


def test_a_live_capture_runs_on_its_captured_inputs() -> None:
    model = nn.Linear(4, 2)
    capture = bp.capture(model, X)
    assert torch.equal(bp.replay(capture).outputs, model(X))
    assert capture.inputs()["input"].shape == X.shape


# ------------------------------------------------------------------ fingerprints


@pytest.mark.slow
def test_a_fingerprint_is_json_and_the_same_in_another_process() -> None:
    text = (
        "[{'a': 1.5, 'b': ('x', None)}, range(3), b'z', slice(1, None), enum.Enum('K', {'A': 1}).A, "
        "np.float32(0.1), torch.relu, math.pow, collections.OrderedDict(k=2**5000), [[1]] * 600]"
    )
    names = {"__name__": "users", "np": np, "torch": torch, "math": math, "collections": collections, "enum": enum}
    here = describe_value(eval(text, names), DescribeState(lambda index: index)).like
    code = (
        "import collections, enum, json, math, torch, numpy as np; "
        "from backprint.values.fingerprint import DescribeState, describe_value; "
        f"value = eval({text!r}, {{**globals(), '__name__': 'users'}}); "
        "print(json.dumps(describe_value(value, DescribeState(lambda index: index)).like))"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(there) == json.loads(json.dumps(here))


def test_what_contains_itself_or_is_shared_over_and_over_ends() -> None:
    shared: Any = [1]
    for _ in range(60):
        shared = [shared, shared]
    assert describe_value(shared, DescribeState(lambda index: index)).like


def test_state_may_not_name_an_argument() -> None:
    def f(x: Tensor, weight: Tensor) -> Tensor:
        return x * weight

    capture = bp.capture(f, X, X + 1)
    with pytest.raises(bp.errors.UsageError, match="state has 'weight', which is an argument and is given"):
        bp.replay(capture, X, X + 1, state={"weight": X + 2})
    with pytest.raises(bp.errors.UsageError, match="state has 'x'"):
        bp.replay(capture, X, weight=X + 1, state={"x": X + 2})
    assert torch.equal(bp.replay(capture, X, X + 1, state={"x": X}).outputs, X * (X + 1))


@pytest.mark.slow
def test_what_a_program_does_to_its_argument_is_no_demand_on_it() -> None:
    def f(x: Tensor) -> Tensor:
        (x * x).sum().backward()
        assert x.grad is not None
        return x.grad * 2

    def g(x: Tensor) -> Tensor:
        x.add_(1)
        return x * x._version

    x = X.clone().requires_grad_()
    capture = bp.capture(f, x)
    assert torch.equal(bp.replay(capture, x).outputs, 4 * X)
    x.grad = torch.ones_like(x)
    with pytest.raises(
        bp.errors.GuardError, match=r"'has a gradient' of its argument 'x'.*False at capture, True here"
    ):
        bp.replay(capture, x)
    capture = bp.capture(g, X.clone())
    assert torch.equal(bp.replay(capture, X.clone()).outputs, g(X.clone()))
    with pytest.raises(bp.errors.GuardError, match=r"'version' of its argument 'x'.*\d at capture"):
        bp.replay(capture, X.clone().add_(1))


# ------------------------------------------------------------------ arguments named like options of replay


class Recurrent(nn.Module):
    """A model whose parameters have the names of two options of replay."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: Tensor, state: Tensor, tangents: float = 1.0) -> Tensor:
        return torch.tanh(x @ self.weight + state) * tangents


def test_a_program_with_an_argument_called_state_is_replayed_by_args_and_kwargs() -> None:
    model, x, state = Recurrent(), torch.randn(2, 3), torch.randn(2, 3)
    capture = bp.capture(model, args=(x,), kwargs={"state": state, "tangents": 2.0})
    for call in ({"args": (x,), "kwargs": {"state": state, "tangents": 2.0}}, {"args": [x, state, 2.0]}):
        assert torch.equal(bp.replay(capture, **call).outputs, model(x, state, 2.0))
    other = {"weight": torch.eye(3)}
    found = bp.replay(capture, args=(x, state, 2.0), state=other, tangents=[torch.ones(2, 3)])
    assert torch.equal(found.outputs, torch.tanh(x + state) * 2)


@pytest.mark.parametrize(("name", "value"), [("state", torch.randn(2, 3)), ("tangents", [torch.ones(2, 3)])])
def test_an_option_of_replay_that_is_an_argument_of_the_program_says_how_to_call(name: str, value: Any) -> None:
    model, x, state = Recurrent(), torch.randn(2, 3), torch.randn(2, 3)
    capture = bp.capture(model, args=(x, state))
    wanted = rf"'{name}' is an option of bp.replay .* write bp.replay\(capture, args=\(\.\.\.\), kwargs="
    with pytest.raises(bp.errors.UsageError, match=wanted):
        bp.replay(capture, x, state, **{name: value})


def test_args_that_is_a_tensor_is_refused_with_the_tuple() -> None:
    capture = bp.capture(nn.Linear(4, 2), X)
    with pytest.raises(bp.errors.UsageError, match=r"write args=\(x,\)"):
        bp.replay(capture, args=X)


class Doubling(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {})) * 2


def test_a_replay_and_a_proof_under_a_dispatch_mode_of_the_users_are_refused() -> None:
    capture = bp.capture(lambda x: x.sin(), torch.ones(2))
    with Doubling():
        with pytest.raises(bp.errors.ReplayError, match=r"dispatch mode Doubling is active.*replay outside"):
            bp.replay(capture, torch.ones(2))
        with pytest.raises(bp.errors.ReplayError, match=r"dispatch mode Doubling is active.*verify outside"):
            capture.verify()
        assert bp.run(capture.pairs[0].forward, [torch.ones(2)])[0].shape == (2,)
