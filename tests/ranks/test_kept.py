"""What a program assigns and changes where it sets up its groups is each rank's own; the rest is the process's."""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
import sys
import threading
import weakref
from argparse import Namespace
from array import array
from collections import Counter, OrderedDict, deque
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import backprint as bp

if not dist.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

from face import Globals, Items, Kept, assigned_in, put_back, with_values

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.distributed's own deprecations

PLACE: Any = None
"""What a rank sets up: its group, and its place in it."""

COUNT = 0


def set_up() -> None:
    global PLACE
    PLACE = dist.new_group(range(dist.get_world_size())), dist.get_rank()


class Gathered(torch.autograd.Function):
    """Gathers columns, and hands each rank the gradient of its own."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        group, _ = PLACE
        parts = [torch.empty_like(part) for _ in range(group.size())]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        group, place = PLACE
        return grad.chunk(group.size(), 1)[place].contiguous()


class Columns(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return (Gathered.apply(y) if PLACE is not None else y).square().mean()


def shard(model: Columns, x: Tensor) -> None:
    set_up()
    group, place = PLACE
    for parameter in (model.weight, model.bias):
        parameter.data = parameter.data.chunk(group.size())[place].clone()


def test_each_rank_has_the_groups_that_it_keeps_in_globals(tmp_path: Path) -> None:
    world = bp.capture(Columns(4, 6), torch.randn(3, 4), world=3, shard=shard)
    assert PLACE is None
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 3
    assert [capture.verify()[0].verdict for capture in world.ranks] == ["bitwise"] * 3
    assert world.against_whole().verdict == "equal to the whole"
    assert PLACE is None
    world.save(tmp_path / "world", data="exact")
    assert [verdict.verdict for verdict in bp.load_world(tmp_path / "world").verify()] == ["bitwise"] * 3


def test_a_fake_rank_leaves_globals_as_they_were() -> None:
    capture = bp.capture(Columns(4, 6), torch.randn(3, 4), world=3, shard=shard, fake=True, ranks=(2,)).ranks[0]
    assert "all_gather_into_tensor" in str(capture.pairs[0].forward)
    assert PLACE is None


def module_of(text: str) -> ModuleType:
    module = ModuleType("of_a_program")
    exec(text, module.__dict__)
    return module


def test_of_installed_packages_globals_count_that_functions_assign_where_torch_distributed_is_used() -> None:
    text = """
import functools

def plain():
    global group
    group = 1

@functools.lru_cache
def cached():
    global never  # its code is not the module's own function

def wrapped(function):
    return functools.wraps(function)(lambda: function())

@wrapped
def decorated():
    def inner():
        global of_inner
        of_inner = 1

class Manager:
    @staticmethod
    def make():
        global of_static
        of_static = 1
    @property
    def place(self):
        global of_property
        of_property = 1

constant = 3
"""
    names = ("group", "of_inner", "of_static", "of_property")
    assert assigned_in(module_of("import torch.distributed as dist" + text)) == names
    assert assigned_in(module_of("from torch.distributed import ProcessGroup" + text)) == names
    assert assigned_in(module_of("import torch\ndef use():\n    torch.distributed.barrier()\n" + text)) == names
    assert assigned_in(module_of("import torch" + text)) == ()
    assert assigned_in(torch.distributed) == assigned_in(functools) == ()


class Meta(type):
    pass


class Held(metaclass=Meta):
    rank = -1

    class Inner:
        rank = -1


@dataclass(slots=True)
class WithSlots:
    rank: int = -1


class Property:
    _rank = -1

    @property
    def rank(self) -> int:
        return Property._rank

    @rank.setter
    def rank(self, value: int) -> None:
        Property._rank = value


class OwnDict(dict[str, int]):
    pass


class OwnModule(nn.Module):
    rank = -1


def with_default(value: int | None, held: dict[str, int] = {"rank": -1}) -> int:  # noqa: B006  # which is what is tested
    if value is not None:
        held["rank"] = value
    return held["rank"]


@functools.cache
def cached() -> int:
    return dist.get_rank() if dist.is_initialized() else -1


NAMESPACE, DEEP = Namespace(rank=-1, many=list(range(1000))), SimpleNamespace(a={"b": [SimpleNamespace(rank=-1)]})
SLOTS, PROPERTY, MODULE, LOCAL = WithSlots(), Property(), OwnModule(), threading.local()
LOCAL.rank = -1
DICT, ORDERED, COUNTER, OWN_DICT = {"rank": -1}, OrderedDict(rank=-1), Counter(rank=-1), OwnDict(rank=-1)
IN_TUPLE, DEQUE, BYTES, ARRAY = (0, [-1]), deque([-1]), bytearray(1), array("i", [-1])
WEAK: WeakKeyDictionary[Any, int] = WeakKeyDictionary({Held: -1})
PARTIAL = functools.partial(dict, rank=-1)
VARIABLE = ContextVar("VARIABLE", default=-1)
TENSOR = {"rank": torch.tensor(-1)}
RANK = -1


def attribute(owner: Any) -> tuple[Any, Any]:
    return functools.partial(setattr, owner, "rank"), lambda: owner.rank


def item(owner: Any, key: Any = "rank") -> tuple[Any, Any]:
    return functools.partial(owner.__setitem__, key), lambda: owner[key]


def in_closure() -> tuple[Any, Any]:
    rank, held = -1, {"rank": -1}

    def put(value: int) -> None:
        nonlocal rank
        rank = held["rank"] = value

    return put, lambda: rank if held["rank"] == rank else None


PLACES = {
    "class": attribute(Held),
    "namespace": attribute(NAMESPACE),
    "slots": attribute(SLOTS),
    "module": attribute(MODULE),
    "threading.local": attribute(LOCAL),
    "function": attribute(in_closure),
    "dict": item(DICT),
    "list in tuple": item(IN_TUPLE[1], 0),
    "deque": item(DEQUE, 0),
    "weak dict": item(WEAK, Held),
    "partial": item(PARTIAL.keywords),
    "default": (with_default, lambda: with_default(None)),
    "closure": in_closure(),
    "context variable": (VARIABLE.set, VARIABLE.get),
    "tensor": (TENSOR["rank"].fill_, lambda: int(TENSOR["rank"])),
    "module attribute": (functools.partial(setattr, sys.modules[__name__], "RANK"), lambda: RANK),
    "environment": (lambda rank: os.environ.update(OWN_RANK=str(rank)), lambda: int(os.environ.get("OWN_RANK", "-1"))),
    "cache": (lambda rank: cached(), cached),
}
setattr(in_closure, "rank", -1)  # noqa: B010  # a function has no such attribute for a type checker


class Read(nn.Linear):
    get: Any = None

    def forward(self, x: Tensor) -> Tensor:
        return (super().forward(x) * (11 + Read.get())).square().mean()


@pytest.mark.parametrize("name", PLACES)
def test_each_rank_has_what_a_program_keeps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put, get = PLACES[name]
    monkeypatch.setattr(Read, "get", get)

    def shard(model: Read, x: Tensor) -> None:
        put(dist.get_rank())
        dist.all_reduce(torch.ones(1))  # where the others go on

    world = bp.capture(Read(3, 3), torch.randn(2, 3), world=2, shard=shard)
    factors = [re.search(r"mul.Tensor\(addmm, (\d+)\)", str(capture.pairs[0].forward)) for capture in world.ranks]
    assert [factor and factor[1] for factor in factors] == ["11", "12"]
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    assert [capture.verify()[0].verdict for capture in world.ranks] == ["bitwise"] * 2
    assert get() == -1


def test_what_is_in_a_container_before_is_there_in_its_order_afterwards() -> None:
    places = [place for place in Kept((in_closure,)).places if isinstance(place, Items)]
    assert len([place for place in places if place.owner is DICT]) == 1
    before = [(place, place.value()) for place in places]
    try:
        DICT.clear()
        DICT.update(other=1, rank=-1)
        with with_values(before):
            assert list(DICT.items()) == [("rank", -1)]
        assert list(DICT.items()) == [("other", 1), ("rank", -1)]
    finally:
        put_back(before)


def test_an_operator_that_a_rank_registers_is_registered_once() -> None:
    """Names of what the process has once, such as a module that is imported, are not put back."""
    module: Any = module_of("x = 1")
    place = Globals(vars(module))
    before = place.value()
    module.x, module.os, module.library = 2, os, torch.library.Library("of_a_rank", "FRAGMENT")
    place.value()
    place.put(before)
    assert (module.x, module.os) == (1, os)
    assert module.library.ns == "of_a_rank"


STATE: dict[str, Any] = {}


class Grouped(nn.Linear):
    """The rank of a process, and its group, are in a dictionary."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        if STATE:
            y = y * (STATE["place"] + 1)
            dist.all_reduce(y.detach(), group=STATE["group"])
        return y.square().mean()


def keep_in_a_dictionary(model: Grouped, x: Tensor) -> None:
    STATE["place"] = dist.get_rank()
    for members in ((0, 1), (2, 3)):
        group = dist.new_group(list(members), group_desc="pair")
        if STATE["place"] in members:
            STATE["group"] = group


def test_each_rank_has_what_it_keeps_in_a_dictionary() -> None:
    world = bp.capture(Grouped(3, 3), torch.randn(2, 3), world=4, shard=keep_in_a_dictionary)
    assert STATE == {}
    factors = [re.search(r"mul.Tensor\(addmm, (\d)\)", str(capture.pairs[0].forward)) for capture in world.ranks]
    assert [factor and factor[1] for factor in factors] == ["1", "2", "3", "4"]
    assert [capture.rank.groups for capture in world.ranks if capture.rank] == [
        (("pair", (0, 1)),),
        (("pair", (0, 1)),),
        (("pair", (2, 3)),),
        (("pair", (2, 3)),),
    ]
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 4
    assert [capture.verify()[0].verdict for capture in world.ranks] == ["bitwise"] * 4
    assert not world.against_whole().unknown
    assert STATE == {}


def test_globals_that_were_not_there_are_not_there_again() -> None:
    module = module_of("import torch.distributed as dist\ndef set_up(x):\n    global group\n    group = x\n")
    sys.modules["of_a_program"] = module
    try:
        assigned = Kept((module.set_up,))
        before = assigned.values()
        module.set_up(3)
        after = assigned.values()
        with with_values(before):
            assert not hasattr(module, "group")
            with with_values(after):
                assert module.group == 3
        assert module.group == 3
    finally:
        del sys.modules["of_a_program"]


OF_NO_MODULE = """
import torch.distributed as dist

rank = -1

def shard(model, x):
    global rank
    rank = dist.get_rank()
    dist.barrier()

def get():
    return rank
"""


@pytest.mark.parametrize("name", [None, "of_no_module"])
def test_code_that_is_executed_keeps_what_each_rank_has(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, Any] = {} if name is None else {"__name__": name}
    exec(OF_NO_MODULE, table)
    monkeypatch.setattr(Read, "get", table["get"])
    world = bp.capture(Read(3, 3), torch.randn(2, 3), world=2, shard=table["shard"])
    assert [re.findall(r"mul.Tensor\(addmm, (\d+)\)", str(capture.pairs[0].forward)) for capture in world.ranks] == [
        ["11"],
        ["12"],
    ]
    assert table["rank"] == -1


class Raising(dict[str, int]):
    """Nothing may be asked of it that its class answers."""

    def _raise(self, *args: Any) -> Any:
        raise RuntimeError("out of context")

    __len__ = __iter__ = __getitem__ = __eq__ = items = keys = values = clear = update = _raise  # type: ignore[assignment]  # of any arguments


class Proxy:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("out of context")


class WithDict:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]  # which objects in the wild have
        raise RuntimeError("out of context")


def gone() -> Any:
    class Target:
        pass

    return weakref.proxy(Target())


ODD = [Raising(a=1), Proxy(), WithDict(), gone(), mock.Mock(spec=dict), mock.MagicMock(), sys, object(), type, Raising]
COUNTER_OF_IDS, NUMBERS = itertools.count(), iter([3, 4, 5])
TEMPERATURE = nn.Parameter(torch.ones(2))


class Scaled(nn.Linear):
    scale = 1

    def forward(self, x: Tensor) -> Tensor:
        if dist.is_initialized():
            (TEMPERATURE * 2).sum().backward()
            random.random()
        return (super().forward(x) * self.scale).square().mean()


def test_odd_objects_iterators_gradients_and_random_numbers_are_as_before() -> None:
    ids: list[int] = []

    def shard(model: Any, x: Tensor) -> Any:
        dist.barrier()
        assert len(ODD) == 10
        model.scale = next(NUMBERS) + next(COUNTER_OF_IDS)
        ids.append(model.scale)
        assert ids == [3]  # of this rank alone
        return DistributedDataParallel(model), (x.chunk(2)[dist.get_rank()],)

    state = random.getstate()
    world = bp.capture(Scaled(3, 3), torch.randn(4, 3), world=2, shard=shard)
    factors = [re.findall(r"mul.Tensor\(addmm, (\d+)\)", str(capture.pairs[0].forward)) for capture in world.ranks]
    assert factors == [["3"], ["3"]]
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 2
    model = Scaled(3, 3)
    model.scale = 3
    assert not world.against_whole(model).unknown
    assert TEMPERATURE.grad is None
    assert random.getstate() == state
    assert (next(COUNTER_OF_IDS), next(NUMBERS), ids) == (0, 3, [])
