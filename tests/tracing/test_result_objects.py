"""Tensors inside results that pytree does not know are outputs: a replay returns the object with its own tensors."""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import backprint as bp


@dataclasses.dataclass
class Out:
    logits: Tensor
    extra: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class SlottedOut:
    logits: Tensor
    extra: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", self.logits * 2)


class Slotted:
    __slots__ = ("logits", "unset")

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


class Plain:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def scaled(self) -> Tensor:
        return self.logits * 2


class Ordered(collections.OrderedDict):  # type: ignore[type-arg]  # as a model's output is: attributes are items too
    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__.update(items)


class Keyed(dict[Any, Any]):
    pass


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


class PairAndMore(Pair):
    more: Tensor


def pair_and_more(y: Tensor) -> PairAndMore:
    found = PairAndMore(y, y + 1)
    found.more = y * 2
    return found


def cyclic(y: Tensor) -> Out:
    found = Out(y)
    found.extra = [found]
    return found


def with_parent(y: Tensor) -> Plain:
    root, child = Plain(y), Plain(y * 2)
    root.child, child.parent = child, weakref.ref(root)  # type: ignore[attr-defined]  # no field of Plain's
    return root


def linear(y: Tensor) -> nn.Module:
    made = nn.Linear(4, 1, bias=False)
    made.weight = nn.Parameter(y.detach()[:1])
    return made


Look = Callable[[Any], list[Tensor]]

MADE: dict[str, tuple[Callable[[Tensor], Any], Look]] = {
    "dataclass": (lambda y: Out(y, extra="kept"), lambda out: [out.logits]),
    "frozen dataclass": (Frozen, lambda out: [out.logits]),
    "namespace": (lambda y: types.SimpleNamespace(y=y, n=3), lambda out: [out.y]),
    "slots": (Slotted, lambda out: [out.logits]),
    "own class": (Plain, lambda out: [out.logits, out.scaled()]),
    "distribution": (lambda y: torch.distributions.Normal(y, 1 + y * y), lambda out: [out.mean, out.stddev]),
    "ordered": (lambda y: Ordered(logits=y, loss=y.sum()), lambda out: [out["logits"], out.logits, out["loss"]]),
    "named tuple with more": (pair_and_more, lambda out: [*out, out.more]),
    "default dict": (lambda y: collections.defaultdict(list, a=[Plain(y)]), lambda out: [out["a"][0].logits]),
    "ordered dict": (lambda y: collections.OrderedDict(a=Plain(y)), lambda out: [out["a"].logits]),
    "user dict": (lambda y: collections.UserDict(a=y), lambda out: [out["a"]]),
    "deque": (lambda y: collections.deque([Plain(y)], maxlen=4), lambda out: [out[0].logits]),
    "slots of a dataclass": (SlottedOut, lambda out: [out.logits, out.extra]),
    "result of a torch function": (lambda y: Out(torch.linalg.qr(y[:, :3])), lambda out: [out.logits.R]),
    "list subclass": (lambda y: type("Rows", (list,), {})([y, y + 1]), list),
    "nested": (lambda y: [Out(y, extra={"a": Plain(y.sum())})], lambda out: [out[0].logits, out[0].extra["a"].logits]),
    "twice": (lambda y: Out(y, extra=y), lambda out: [out.logits, out.extra]),
    "cyclic": (cyclic, lambda out: [out.extra[0].extra[0].logits]),
    "with a parent": (with_parent, lambda out: [out.child.parent().logits, out.child.logits]),
    "module": (linear, lambda out: [out.weight, out(torch.ones(2, 4))]),
}
"""How an object is made of a tensor, and which tensors a user would find in it."""


@pytest.mark.parametrize("name", MADE)
def test_a_replay_returns_the_object_with_its_own_tensors(name: str) -> None:
    make, look = MADE[name]

    def program(x: Tensor) -> Any:
        return x.sum(), make(x * 3)

    cap = bp.capture(program, torch.randn(3, 4))
    assert all(verdict.proof for verdict in cap.verify()), cap.verify()
    given = torch.randn(3, 4)
    wanted, replay = program(given)[1], bp.replay(cap, given)
    found = replay.outputs[1]
    assert type(found).__qualname__ == type(wanted).__qualname__
    assert all(map(torch.equal, look(found), look(wanted)))
    outputs = [port for port in cap.pairs[0].forward.outputs if port.role == "output"]
    asking = sum(port.name in cap.signature.differentiable for port in outputs)
    assert len(outputs) > 1
    assert asking == len(outputs) or name == "module"
    assert not torch.equal(replay.gradients["x"], torch.ones(3, 4)) or name == "module"


@pytest.mark.parametrize("engine", ["eager", "aot", "dynamo"])
def test_every_engine_looks_into_results(engine: str) -> None:
    model = nn.Linear(4, 2)

    def program(x: Tensor) -> Any:
        return {"out": Out(model(x), extra=[Plain(model.bias * 2)])}

    cap = bp.capture(program, torch.randn(3, 4), engine=engine)
    given = torch.randn(3, 4)
    found, wanted = bp.replay(cap, given).outputs["out"], program(given)["out"]
    assert all(verdict.proof for verdict in cap.verify())
    assert torch.equal(found.logits, wanted.logits)
    assert torch.equal(found.extra[0].logits, wanted.extra[0].logits)
    assert cap.signature.differentiable == ("output.out.logits", "output.out.extra.0.logits")


def test_a_loss_of_an_object_and_the_second_order() -> None:
    def program(x: Tensor) -> Out:
        return Out(x.sin(), extra="kept")

    cap = bp.capture(program, torch.randn(3), loss=lambda out: out.logits.sum())
    given = torch.randn(3)
    replay = bp.replay(cap, given)
    assert torch.equal(replay.outputs.logits, given.sin())
    assert replay.outputs.extra == "kept"
    assert torch.allclose(replay.gradients["x"], given.cos())
    second = bp.capture(program, torch.randn(3), order=2)
    twice = bp.replay(second, given, **{"tangent.output.logits": torch.ones(3)}).outputs
    assert torch.equal(twice["output"].logits, given.sin())
    assert torch.allclose(twice["gradient"]["x"], given.cos())


def test_what_has_no_tensors_stays_as_it_is() -> None:
    config = Plain(torch.ones(1))
    note = types.SimpleNamespace(text="x")
    cap = bp.capture(lambda x: Out(x * 2, extra=note), torch.randn(3))
    assert bp.replay(cap, torch.randn(3)).outputs.extra is note
    for held in ({"a"}, frozenset({1}), functools.partial(torch.add, alpha=2), lambda: note, note.__repr__, len):
        cap = bp.capture(lambda x, held=held: (x * 2, [Out(x, held)]), torch.randn(3))
        assert bp.replay(cap, torch.randn(3)).outputs[1][0].extra == held
    cap = bp.capture(lambda x: (x * config.logits, config), torch.randn(3))
    found = bp.replay(cap, torch.ones(3)).outputs[1]
    assert found is not config
    assert torch.equal(found.logits, config.logits)


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "generator": (lambda y: (row for row in y), "used up when it is read; .*: return a list of its items"),
    "iterator": (lambda y: iter([y]), "used up when it is read"),
    "iterator inside": (lambda y: Out(y, extra=map(str, [1])), r"output\.1\.extra as a map, which is used up"),
    "weak reference": (lambda y: Out(y, extra=weakref.ref(y)), "a weak reference to a tensor.*: return the tensor"),
    "storage": (lambda y: y.untyped_storage(), "the memory of a tensor"),
    "node": (lambda y: Out(y, extra=y.grad_fn), "a node of the autograd graph"),
    "cache": (lambda y: cached(y), "lru_cache_wrapper with tensors or iterators inside"),
    "set": (
        lambda y: Out({y}),
        r"output\.1\.logits as a set with tensors or iterators inside; .*: return its tensors in a tuple, a ",
    ),
    "closure": (lambda y: lambda: y * 2, "a function with tensors or iterators inside"),
    "defaults": (lambda y: lambda z=y: z, "a function with tensors or iterators inside"),
    "partial": (
        lambda y: functools.partial(torch.add, y, alpha=2),
        r"a functools\.partial with tensors or iterators inside",
    ),
    "bound method": (lambda y: Plain(y).scaled, "a method with tensors or iterators inside"),
    "tensor's method": (lambda y: y.exp, "a builtin_function_or_method with tensors or iterators inside"),
    "values of a dict": (lambda y: {"a": y, "b": y + 1}.values(), "a dict_values with tensors or iterators inside"),
    "proxy": (lambda y: types.MappingProxyType({"a": y}), "a mappingproxy with tensors or iterators inside"),
    "large set": (lambda y: Out(y, {Plain(y) for _ in range(100_001)}), "a set with tensors or iterators inside"),
    "key": (lambda y: {y: 1}, "a dict with tensors or iterators in its keys; .*: make them values"),
    "key with a tensor": (lambda y: Out({Plain(y): 1}), "a dict with tensors or iterators in its keys"),
}


def cached(y: Tensor) -> Any:
    @functools.lru_cache
    def call(n: int) -> Tensor:
        return y * n

    return call


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_given_back_is_refused_by_name(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(bp.errors.CaptureError, match=text):
        bp.capture(lambda x: (x.sum(), make(x * 3)), torch.randn(3, 4))


def test_a_loaded_sample_returns_named_values(tmp_path: Path) -> None:
    def program(x: Tensor) -> Any:
        return x.sum(), Out(x * 3, extra={"n": Plain(x + 1), "deque": collections.deque([x * 2]), "text": "t"})

    bp.capture(program, torch.randn(3)).save(tmp_path / "s", data="exact")
    given = torch.randn(3)
    found = bp.replay(bp.load(tmp_path / "s"), given).outputs
    assert torch.equal(found[1]["logits"], given * 3)
    assert torch.equal(found[1]["extra"]["n"]["logits"], given + 1)
    assert torch.equal(found[1]["extra"]["deque"][0], given * 2)
    assert found[1]["extra"]["text"] == "t"


def test_numbers_beside_the_tensors_of_an_object_are_compared() -> None:
    calls = [0]

    def count() -> int:
        calls[0] += 1
        return calls[0]

    counter = types.SimpleNamespace(next=lambda: 0)

    def program(x: Tensor) -> Out:
        return Out(x * 2, extra=counter.next())

    cap = bp.capture(program, torch.randn(3))
    counter.next = count
    assert cap.verify()[0].verdict in ("wrong", "failed")


class ModelOutput(collections.OrderedDict[str, Any]):
    """As in model libraries: a dict whose items are its attributes too."""

    def __init__(self, **values: Any) -> None:
        super().__init__(values)
        self.__dict__.update(values)


def test_an_item_that_is_an_attribute_too_is_one_output(tmp_path: Path) -> None:
    x = torch.randn(3, requires_grad=True)
    capture = bp.capture(lambda x: ModelOutput(loss=x.sum(), past=[ModelOutput(k=x * 2)]), x)
    assert [port.name for port in capture.pairs[0].forward.outputs if port.role == "output"] == [
        "output.loss",
        "output.past.0.k",
    ]
    replayed = bp.replay(capture, x)
    assert replayed.outputs.loss is replayed.outputs["loss"]
    assert torch.equal(replayed.gradients["x"], torch.full((3,), 3.0))
    capture.save(tmp_path / "s", data="exact")
    loaded = bp.replay(bp.load(tmp_path / "s")).outputs
    assert list(loaded) == ["loss", "past"]
    assert list(loaded["past"][0]) == ["k"]


@pytest.mark.parametrize(
    ("made", "change"),
    [
        (lambda: [1], lambda log: log.append(2)),
        (lambda: {"a": [1]}, lambda log: log["a"].append(2)),
        (lambda: {1}, lambda log: log.add(2)),
        (lambda: collections.deque([1]), lambda log: log.append(2)),
        (lambda: bytearray(b"a"), lambda log: log.append(98)),
    ],
)
def test_what_a_replay_returns_is_its_own(made: Callable[[], Any], change: Callable[[Any], None]) -> None:
    x = torch.randn(3)
    capture = bp.capture(lambda x: types.SimpleNamespace(y=x * 2, log=made()), x)
    change(bp.replay(capture, x).outputs.log)
    assert bp.replay(capture, x).outputs.log == made()


def test_a_constant_that_a_replay_returns_is_its_own() -> None:
    x = torch.randn(3)
    capture = bp.capture(lambda x: [x * 2, torch.tensor([1.0, 2.0])], x)
    bp.replay(capture, x).outputs[1].add_(5)
    assert bp.replay(capture, x).outputs[1].tolist() == [1, 2]
    assert capture.verify()[0].verdict == "bitwise"


def test_fields_of_a_dataclass_are_outputs_in_the_order_of_its_definition() -> None:
    @dataclasses.dataclass
    class Computed:
        x: Tensor
        scaled: Tensor = dataclasses.field(init=False)
        parts: list[Tensor] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            self.parts.append(self.x.sum())
            self.scaled = self.x * 2

    capture = bp.capture(lambda x: Computed(x * 3), torch.randn(3))
    names = [port.name for port in capture.pairs[0].forward.outputs if port.role == "output"]
    assert names == ["output.x", "output.scaled", "output.parts.0"]


def test_a_registered_class_without_names_for_its_children_numbers_them() -> None:
    class Turned(list[Any]):
        pass

    torch.utils._pytree.register_pytree_node(Turned, lambda each: (list(each), None), lambda items, _: Turned(items))
    x = torch.randn(3)
    capture = bp.capture(lambda x: Turned([x * 2, x.sin()]), x)
    replayed = bp.replay(capture, x).outputs
    assert type(replayed) is Turned
    assert torch.equal(replayed[1], x.sin())


def test_a_result_on_the_meta_device_is_refused() -> None:
    with pytest.raises(bp.errors.CaptureError, match=r"returns output\.1, a tensor on the meta device"):
        bp.capture(lambda x: [x * 2, torch.empty_like(x, device="meta")], torch.randn(3))


def test_a_result_keeps_the_order_of_an_ordered_dict() -> None:
    def program(x: Tensor) -> collections.OrderedDict[str, Tensor]:
        result = collections.OrderedDict(first=x * 2, second=x * 3)
        result.move_to_end("first")
        return result

    x = torch.ones(2)
    replayed = bp.replay(bp.capture(program, x), x).outputs
    assert list(replayed) == ["second", "first"]
    assert torch.equal(replayed["first"], x * 2)

    class Moved(collections.OrderedDict[str, Any]):
        """It is opened as an object, because it has attributes."""

        def __init__(self, x: Tensor) -> None:
            super().__init__(first=x * 2, second=x * 3)
            self.move_to_end("first")
            self.own = x

    replayed = bp.replay(bp.capture(Moved, x), x).outputs
    assert list(replayed) == ["second", "first"]


def test_a_result_that_contains_itself_is_refused_by_name() -> None:
    def program(x: Tensor, inside: bool) -> Any:
        result: list[Any] = [x * 2]
        result.append(result)
        return types.SimpleNamespace(result=result) if inside else result

    for inside in (False, True):
        with pytest.raises(bp.errors.CaptureError, match="a container that contains itself"):
            bp.capture(program, torch.ones(2), inside)
