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
import time
import types
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import backprint as bp
from backprint.values.likeness import DescribeState, describe_value, without_reach
from backprint.values.memory import memory_spans, overlapping_pairs

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


class Mode(enum.Enum):
    ADD = 1
    MUL = 2


Pair = namedtuple("Pair", "a b")


def adder(n: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x + n


def looped(n: int) -> list[Any]:
    found: list[Any] = [n]
    found.append(Plain(found))
    return found


def function(text: str, **names: Any) -> Any:
    """A function of these global variables; functions among them are called by name."""
    return eval(text, {"__name__": "users", **names})


def kind(body: dict[str, Any] | None = None, bases: tuple[type, ...] = (), meta: type = type) -> type:
    return meta("Kind", bases, {"__module__": "users", **(body or {})})


class Meta(type):
    """Another metaclass."""


def recursive(k: int) -> Any:
    names: dict[str, Any] = {"__name__": "users", "K": k}
    exec("def even(n): return n == K or odd(n - 1)\ndef odd(n): return n != K and even(n - 1)", names)
    return names["even"]


def module(**names: Any) -> types.ModuleType:
    found = types.ModuleType("users.settings")
    vars(found).update(names)
    return found


def annotated(what: Any) -> Any:
    found = function("lambda x: x")
    found.__annotations__ = {"x": what}
    return found


NAN = float("nan")

DEFINED: dict[str, Callable[[int], Any]] = {
    "global variable": lambda k: function("lambda x: x * K", K=k),
    "global list": lambda k: function("lambda x: x * K[0]", K=[k]),
    "global of a function inside": lambda k: function("lambda x: (lambda y: y * K)(x)", K=k),
    "global of a function that is called": lambda k: function("lambda x: f(x)", f=function("lambda x: x * K", K=k)),
    "attribute of a module that is named": lambda k: function("lambda x: x * settings.K", settings=module(K=k)),
    "functions that call one another": recursive,
    "how it is called": lambda k: function("lambda a, b: a" if k == 2 else "lambda a, *, b: a"),
    "annotations": lambda k: annotated({2: int, 3: list[int]}[k]),
    "cached function": lambda k: functools.lru_cache(function("lambda x: x * K", K=k)),
    "class attribute": lambda k: kind({"k": k}),
    "method": lambda k: kind({"f": function("lambda self: K", K=k)}),
    "property": lambda k: kind({"f": property(function("lambda self: K", K=k))}),
    "static method": lambda k: kind({"f": staticmethod(function("lambda: K", K=k))}),
    "base": lambda k: kind({}, (kind({"k": k}),)),
    "metaclass": lambda k: kind(meta={2: type, 3: Meta}[k]),
    "attribute of an instance's class": lambda k: kind({"k": k})(),
    "class of an instance inside": lambda k: Plain([kind({"k": k})()]),
    "class of a subclass of dict": lambda k: kind({"k": k}, (dict,))(a=1),
    "class of a named tuple": lambda k: kind({"k": k}, (Pair,))(1, 2),
    "class of a field": lambda k: dataclass(kind({"__annotations__": {"k": {2: int, 3: str}[k]}})),
    "class of an instance that lies about it": lambda k: kind({"__class__": int, "k": k})(),
    "value of a member": lambda k: enum.Enum("Mode", {"ADD": k}, module="users").ADD,
    "module of the user's": lambda k: module(K=k),
    "function in a method's closure": lambda k: functools.partial(function("lambda f, x: f(x)"), kind({"k": k})),
}
"""Values that have equal names for every number, and are equal for equal numbers alone."""

SAME: dict[str, tuple[Any, Any]] = {
    "int": (3, 3),
    "long text": ("a" * 9000, "a" * 9000),
    "nan": (NAN, -(NAN * 2)),
    "list": ([1, [2, "b"]], [1, [2, "b"]]),
    "set": ({"a", "b", "c"}, {"c", "b", "a"}),
    "array": (np.arange(5000), np.arange(5000)),
    "object": (Plain([1]), Plain([1])),
    "slots": (Slotted(1), Slotted(1)),
    "dataclass": (Config(2, ["a"]), Config(2, ["a"])),
    "closure": (adder(2), adder(2)),
    "partial": (functools.partial(math.pow, 2), functools.partial(math.pow, 2)),
    "cycle": (looped(1), looped(1)),
    "dtype": (torch.float16, torch.float16),
    "path": (Path("a/b"), Path("a") / "b"),
    "fraction": (Fraction(1, 3), Fraction(2, 6)),
    "generator": (torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)),
    "large": (list(range(9000)), list(range(9000))),
    "tensor inside": (Plain(torch.ones(2)), Plain(torch.ones(2))),
}

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
    "keys": ({"a": 1}, {"b": 1}),
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "class of a mapping": ({"a": 1}, OrderedDict(a=1)),
    "array": (np.zeros(5000), np.r_[np.zeros(2500), 1, np.zeros(2499)]),
    "dtype of an array": (np.zeros(3), np.zeros(3, "f4")),
    "shape of an array": (np.zeros((2, 3)), np.zeros((3, 2))),
    "object": (Plain(2), Plain(3)),
    "object inside": (Plain([Plain(2)]), Plain([Plain(3)])),
    "slots": (Slotted(1), Slotted(2)),
    "dataclass": (Config(2, ["a"]), Config(2, ["b"])),
    "closure": (adder(2), adder(3)),
    "code": (lambda x: x + 1, lambda x: x + 2),
    "partial": (functools.partial(math.pow, 2), functools.partial(math.pow, 3)),
    "enum": (Mode.ADD, Mode.MUL),
    "dtype": (torch.float16, torch.bfloat16),
    "device": (torch.device("cpu"), torch.device("meta")),
    "class": (Plain, Slotted),
    "cycle": (looped(1), looped(2)),
    "generator": (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)),
    "large": (list(range(9000)), [*range(8999), 0]),
    "tensor inside": (Plain(torch.ones(2)), Plain(torch.zeros(2))),
    "lock": (threading.Lock(), threading.Lock()),
    "module": (nn.Linear(2, 2), nn.Linear(2, 2)),
    "none": (3, None),
    "tensor": (3, torch.tensor(3)),
}


def ignoring(x: Tensor, value: Any) -> Tensor:
    return x * 2


@pytest.fixture(params=["live", "loaded"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., bp.Capture]:
    """Captures a call, and gives the Capture or the sample that was made of it."""

    def keep(*args: Any, **kwargs: Any) -> bp.Capture:
        capture = bp.capture(*args, **kwargs)
        return capture if request.param == "live" else bp.load(capture.save(tmp_path / "sample", power="none"))

    return keep


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME)
def test_an_equal_value_is_the_captured_one(name: str) -> None:
    value, equal = SAME[name]
    assert torch.equal(bp.replay(bp.capture(ignoring, X, value, engine="aot"), X, equal).outputs, X * 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHER)
def test_another_value_is_refused(name: str) -> None:
    value, other = OTHER[name]
    with pytest.raises(bp.errors.GuardError, match=r"^argument 'value"):
        bp.replay(bp.capture(ignoring, X, value, engine="aot"), X, other)


@pytest.mark.slow
def test_a_sample_keeps_what_every_argument_was(tmp_path: Path) -> None:
    def f(x: Tensor, *values: Any) -> Tensor:
        return x * 2

    values = [value for name, (value, _) in SAME.items()]
    loaded = bp.load(bp.capture(f, X, *values).save(tmp_path / "sample", power="none"))
    assert torch.equal(bp.replay(loaded, X, *(equal for _, equal in SAME.values())).outputs, X * 2)
    for name, (value, _) in SAME.items():
        if name in OTHER:
            others = [OTHER[name][1] if each is value else each for each in values]
            with pytest.raises(bp.errors.GuardError, match=rf"argument 'values\.{list(SAME).index(name)}"):
                bp.replay(loaded, X, *others)


@pytest.mark.slow
def test_equal_names_do_not_make_functions_and_classes_equal(kept: Callable[..., bp.Capture]) -> None:
    capture = kept(lambda x, *values: x * 2, X, *(made(2) for made in DEFINED.values()))
    assert torch.equal(bp.replay(capture, X, *(made(2) for made in DEFINED.values())).outputs, X * 2)
    for place, name in enumerate(DEFINED):
        others = [made(3 if each == name else 2) for each, made in DEFINED.items()]
        with pytest.raises(bp.errors.GuardError, match=rf"argument 'values\.{place}[.']"):
            bp.replay(capture, X, *others)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("global variable", r"argument 'value\.K' was 2 at capture and is 3 now"),
        ("class attribute", r"argument 'value\.k' was 2 at capture and is 3 now"),
        ("method", r"argument 'value' is not the class users\.Kind of the capture, although its name is"),
        ("attribute of an instance's class", r"argument 'value' is not the users\.Kind\(\) of the capture"),
    ],
)
def test_what_differs_in_a_definition_is_named(name: str, text: str) -> None:
    with pytest.raises(bp.errors.GuardError, match=text):
        bp.replay(bp.capture(ignoring, X, DEFINED[name](2)), X, DEFINED[name](3))


@pytest.mark.slow
def test_a_definition_that_changes_is_another(kept: Callable[..., bp.Capture]) -> None:
    value = kind({"f": function("lambda self: 1")})
    capture = kept(ignoring, X, value)
    assert torch.equal(bp.replay(capture, X, value).outputs, X * 2)
    value.f = function("lambda self: 2")
    with pytest.raises(bp.errors.GuardError, match=r"argument 'value' is not the class users\.Kind"):
        bp.replay(capture, X, value)


def test_tensors_that_a_function_names_are_the_very_ones() -> None:
    weight, other = torch.ones(4), torch.full((4,), 2.0)

    def called(x: Tensor, f: Any) -> Any:
        return f(x)

    capture = bp.capture(called, X, function("lambda x: x * W", W=weight))
    weight.fill_(3)  # the same tensor, which a replay reads as it is
    assert torch.equal(bp.replay(capture, X, function("lambda x: x * W", W=weight)).outputs, X * 3)
    with pytest.raises(bp.errors.GuardError, match="argument 'f' has another Tensor in it than at capture"):
        bp.replay(capture, X, function("lambda x: x * W", W=other))


@pytest.mark.slow
def test_an_older_sample_says_what_it_does_not_know(tmp_path: Path) -> None:
    for name in ("global variable", "class attribute", "attribute of an instance's class", "value of a member"):
        path = bp.capture(ignoring, X, [DEFINED[name](2)]).save(tmp_path / "sample", power="none", overwrite=True)
        content = json.loads((path / "capture.json").read_text())
        rows = content["signature"]["call"]
        rows[1]["like"] = without_reach(rows[1]["like"])
        (path / "capture.json").write_text(json.dumps(content))
        with pytest.warns(UserWarning, match=r"argument 'value\.0' has the name that it had at capture. Whether"):
            bp.replay(bp.load(path), X, [DEFINED[name](2)])


def test_what_functions_reach_takes_time_by_its_size() -> None:
    functions: dict[str, Any] = {"__name__": "users", "f0": function("lambda: 0")}
    for n in range(1, 3000):  # each names the two before it, and all of them their common globals
        code = compile(f"def f{n}(): return f{n - 1}(), f{max(0, n - 2)}()", "users", "exec")
        exec(code, functions)
    started = time.process_time()
    like = describe_value([functions["f2999"]], DescribeState(lambda index: index)).like
    assert time.process_time() - started < 5
    assert len(json.dumps(like)) < 2000


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
        (np.zeros(3), np.ones(3), r"argument 'value' was .* at capture and is .* now"),
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
    "storage": lambda a, b: a.untyped_storage()._cdata == b.untyped_storage()._cdata,
    "base": lambda a, b: b._base is a,
    "view": lambda a, b: b._is_view(),
    "overlaps": lambda a, b: torch._C._overlaps(a, b),
    "numpy": lambda a, b: np.shares_memory(a.detach().numpy(), b.detach().numpy()),
    "derived": lambda a, b: a.view(-1).data_ptr() == b[:2].data_ptr(),
    "identity": lambda a, b: a is b,
    "id": lambda a, b: id(a) == id(b),
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


# ------------------------------------------------------------------ likenesses


def test_a_likeness_is_json_and_the_same_in_another_process() -> None:
    made = "type('K', (), {'__module__': 'users', 'k': {3, 'a'}, 'f': lambda self: Path.cwd, 'g': property(len)})"
    text = f"[{{'a': 1.5, 'b': ('x', None, {{'c', 'd', 'e'}})}}, range(3), b'z', slice(1, None), {made}, {made}()]"
    here = describe_value(eval(text, {"__name__": "users", "Path": Path}), DescribeState(lambda index: index)).like
    code = (
        "import json; from pathlib import Path; from backprint.values.likeness import DescribeState, describe_value; "
        f"value = eval({text!r}, {{'__name__': 'users', 'Path': Path}}); "
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


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


class Tabled:
    """An object whose number a table of its class keeps."""

    table: ClassVar[weakref.WeakKeyDictionary[Any, float]] = weakref.WeakKeyDictionary()

    def __init__(self, number: float) -> None:
        self.table[self] = number


NAN = float("nan")

ALIKE: dict[str, tuple[Any, Any]] = {
    "the order of a set of integers": ({0, 8}, {8, 0}),
    "an array's strides": (np.ones((3, 4)), np.asfortranarray(np.ones((3, 4)))),
    "two arrays in one memory": ([np.ones(2), np.ones(2)], [(one := np.ones(2)), one[:]]),
    "whether an array is a view": (np.ones(2), np.ones(4)[:2]),
    "whether two NaN are one object": ((NAN, [NAN]), (float("nan"), [NAN])),
    "what a table keeps for an object": (Tabled(2.0), Tabled(3.0)),
    "a sentinel": (object(), object()),
    "a storage": (torch.zeros(2).untyped_storage(), torch.ones(2).untyped_storage()),
    "what a deque holds": (Holder(collections.deque([1])), Holder(collections.deque([2]))),
    "an array's attribute": (Holder(np.ma.array([1.0, 2.0], mask=[0, 1])), Holder(np.ma.array([1.0, 2.0]))),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ALIKE)
def test_arguments_are_told_apart_by(what: str) -> None:
    left, right = ALIKE[what]
    capture = bp.capture(lambda x, o: x * 2, torch.ones(2), left)
    assert torch.equal(bp.replay(capture, torch.ones(2), left).outputs, torch.full((2,), 2.0))
    with pytest.raises(bp.errors.GuardError):
        bp.replay(capture, torch.ones(2), right)


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
