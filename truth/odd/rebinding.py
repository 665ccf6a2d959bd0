"""Programs that bind names anew while they run: methods, classes, modules, code, forwards, patched functions."""

import abc
import contextlib
import enum
import functools
import importlib
import os
import sys
import tempfile
import types
import typing
import unittest.mock
from collections.abc import Iterator
from typing import Any

import torch
from case import Case, attributes, bare, many, module, program, randn
from torch import nn
from torch.nn import functional as F

SCALE = 2.0


class Base(nn.Module):
    """Counts in its class."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        """Scaled by the number of the call."""
        type(self).calls += 1
        return self.layer(x) * type(self).calls


class Other(Base):
    """Another behaviour of the same layout."""

    def forward(self, x: Any) -> Any:
        """And back."""
        self.__class__ = Base
        return self.layer(x) * 10


class Registry(type):
    """Every class is known by its name."""

    known: typing.ClassVar[dict] = {}

    def __new__(mcs, name: str, bases: tuple, space: dict) -> Any:
        made = super().__new__(mcs, name, bases, space)
        mcs.known[name] = made
        return made

    def __len__(cls) -> int:
        return len(cls.known)


class Strategy(metaclass=Registry):
    """In the registry."""

    scale = 2.0


class Tight(type):
    """What an instance is, a global says."""

    answer = True

    def __instancecheck__(cls, instance: Any) -> bool:
        Tight.answer = not Tight.answer
        return not Tight.answer


class Checked(metaclass=Tight):
    """Has as instances what its metaclass says."""


class Plug:
    """Subclasses register."""

    plugs: typing.ClassVar[list] = []

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        Plug.plugs.append(cls.__name__)


@typing.runtime_checkable
class Scales(typing.Protocol):
    """Has a scale."""

    scale: float


def _reset() -> None:
    global SCALE
    SCALE = 2.0
    Base.calls = 0
    Registry.known.clear()
    Registry.known["Strategy"] = Strategy
    Tight.answer = True
    Plug.plugs.clear()
    Strategy.scale = 2.0
    sys.modules.pop("odd_scratch_fake", None)


def of(f: Any, **more: Any) -> Case:
    """A function of a tensor; what is global begins anew."""
    _reset()
    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)], reset=_reset, **more)


def _patched(x: Any) -> Any:
    with unittest.mock.patch.object(F, "relu", lambda v, inplace=False: v * 3):
        y = F.relu(x)
    return y + F.relu(x)


def _patched_torch(x: Any) -> Any:
    with unittest.mock.patch("torch.sin", torch.cos):
        return torch.sin(x)


def _patched_dict(x: Any) -> Any:
    with unittest.mock.patch.dict(os.environ, {"ODD_SCALE": "3"}):
        return x * float(os.environ["ODD_SCALE"])


def _global_moves(x: Any) -> Any:
    global SCALE
    SCALE = SCALE + 1
    return x * SCALE


def _global_deleted(x: Any) -> Any:
    global SCALE
    held = SCALE
    del SCALE
    try:
        return x * SCALE
    except NameError:
        return x * held * 5
    finally:
        globals()["SCALE"] = held


def _class_made(x: Any) -> Any:
    name = f"S{len(Strategy)}"
    Registry(name, (), {"scale": float(len(Strategy))})
    return x * Registry.known[name].scale


def _plugged(x: Any) -> Any:
    class Mine(Plug):
        pass

    return x * len(Plug.plugs)


def _protocol(x: Any) -> Any:
    has = isinstance(Strategy, Scales)
    if has:
        del Strategy.scale
    return x * (2 if has else 3)


def _cell_moved() -> Case:
    scale = 2.0

    def f(x: Any) -> Any:
        nonlocal scale
        scale += 1
        return x * scale

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


def _cell_written() -> Case:
    scale = 2.0

    def work(x: Any) -> Any:
        return x * scale

    def f(x: Any) -> Any:
        y = work(x)
        work.__closure__[0].cell_contents = 7.0
        return y

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


def _accelerated() -> nn.Module:
    """As libraries wrap the forward of a module in hooks of their own."""
    net = nn.Linear(4, 4)
    net._old_forward = net.forward
    net._hook = attributes(types.SimpleNamespace(), {"calls": 0})

    def forward(self: Any, *args: Any, **more: Any) -> Any:
        self._hook.calls += 1
        return self._old_forward(*args, **more) * self._hook.calls

    net.forward = functools.update_wrapper(functools.partial(forward, net), net._old_forward)
    return net


def _offloaded(self: Any, x: Any) -> Any:
    """Weights come and go around the call, as with offloading."""
    kept = self.layer.weight
    self.layer._parameters["weight"] = nn.Parameter(kept.detach() * 1.0)
    try:
        return self.layer(x) + x @ kept.t()
    finally:
        self.layer._parameters["weight"] = kept


def _unregistered(self: Any, x: Any) -> Any:
    """As weight normalisation by hand does: a parameter becomes an attribute."""
    weight = self.layer._parameters.pop("weight")
    self.layer.weight = weight / weight.norm()
    try:
        return self.layer(x)
    finally:
        del self.layer.weight
        self.layer.register_parameter("weight", weight)


def _replaces_child(self: Any, x: Any) -> Any:
    y = self.layer(x)
    self.layer = self.spare
    return y


def _pops_layer(self: Any, x: Any) -> Any:
    for layer in self.layers:
        x = layer(x)
    self.layers.append(self.layers.pop(0))
    return x


def _hooks_around(self: Any, x: Any) -> Any:
    kept: list[Any] = []
    handles = [m.register_forward_hook(lambda m, i, o: kept.append(o)) for m in self.children()]
    try:
        y = self.b(self.a(x))
    finally:
        for handle in handles:
            handle.remove()
    return y + sum(k.mean() for k in kept)


@contextlib.contextmanager
def _scaled(layer: Any, by: float) -> Iterator[None]:
    old = layer.forward
    layer.forward = lambda x: old(x) * by
    try:
        yield
    finally:
        del layer.forward


def _in_context(self: Any, x: Any) -> Any:
    with _scaled(self.layer, 3.0):
        y = self.layer(x)
    return y + self.layer(x)


def _fake_module(x: Any) -> Any:
    if "odd_scratch_fake" not in sys.modules:
        made = types.ModuleType("odd_scratch_fake")
        made.SCALE = 2.0
        sys.modules["odd_scratch_fake"] = made
    here = importlib.import_module("odd_scratch_fake")
    here.SCALE += 1
    return x * here.SCALE


def _super_moves() -> Case:
    class One(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    class Two(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 3

    class Net(One):
        def forward(self, x: Any) -> Any:
            y = super().forward(x)
            Net.__bases__ = (Two,) if Net.__bases__ == (One,) else (One,)
            return y

    return Case(Net(), randn(3, 4), others=[randn(3, 4, seed=5)])


def _abstract_filled() -> Case:
    class Plan(abc.ABC):
        @abc.abstractmethod
        def scale(self) -> float: ...

    class Mine(Plan):
        pass

    def f(x: Any) -> Any:
        if Mine.__abstractmethods__:
            Mine.scale = lambda self: 2.0
            abc.update_abstractmethods(Mine)
            return x * Mine().scale()
        return x * 9

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


def _member_missing() -> Case:
    class Kind(enum.Enum):
        ONE = 1

        @classmethod
        def _missing_(cls, value: Any) -> Any:
            made = object.__new__(cls)
            made._name_, made._value_ = f"M{value}", value
            return cls._value2member_map_.setdefault(value, made)

    def f(x: Any) -> Any:
        known = len(Kind._value2member_map_)
        return x * Kind(known + 1).value

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


def _dunder_replaced() -> Case:
    class Box:
        def __init__(self) -> None:
            self.n = 2

        def __mul__(self, x: Any) -> Any:
            return x * self.n

    box = Box()

    def f(x: Any) -> Any:
        y = box * x
        Box.__mul__ = lambda self, v: v * 11
        return y

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


def _descriptor_counts() -> Case:
    class Counting:
        def __init__(self) -> None:
            self.reads = 0

        def __get__(self, owner: Any, kind: Any = None) -> Any:
            self.reads += 1
            return self.reads

    class Holder:
        value = Counting()

    return Case(lambda x: x * Holder().value, randn(3, 4), others=[randn(3, 4, seed=5)])


def _module_property_cached() -> Case:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 4))

        @functools.cached_property
        def table(self) -> Any:
            return self.w.detach() * 2

        def forward(self, x: Any) -> Any:
            fresh = "table" not in self.__dict__
            return x @ self.w + self.table * (1 if fresh else 5)

    return Case(Net(), randn(4, 4), others=[randn(4, 4, seed=5)])


def _getattr_makes() -> Case:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 4))

        def __getattr__(self, name: str) -> Any:
            if name == "scale":
                self.scale = torch.tensor(2.0)
                return torch.tensor(1.0)
            return super().__getattr__(name)

        def forward(self, x: Any) -> Any:
            return x @ self.w * self.scale

    return Case(Net(), randn(3, 4), others=[randn(3, 4, seed=5)])


def _setattr_watches() -> Case:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 4))
            self.writes: Any = []

        def __setattr__(self, name: str, value: Any) -> None:
            if "writes" in self.__dict__:
                self.writes.append(name)
            super().__setattr__(name, value)

        def forward(self, x: Any) -> Any:
            self.last = x.detach().sum()
            return x @ self.w * len(self.writes)

    return Case(Net(), randn(3, 4), others=[randn(3, 4, seed=5)])


@program
def rebinds_by_reload() -> Case:
    """A module is written, imported, written again and loaded again by the program."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "odd_scratch_reloaded.py")
    sys.modules.pop("odd_scratch_reloaded", None)

    def write(n: int) -> None:
        with open(path, "w") as file:
            file.write(f"SCALE = {n}\n\n\ndef f(x):\n    return x * SCALE\n" + "#" * n)

    def f(x: Any) -> Any:
        sys.path.insert(0, folder)
        try:
            write(2)
            importlib.invalidate_caches()
            sys.dont_write_bytecode, old = True, sys.dont_write_bytecode
            made = importlib.import_module("odd_scratch_reloaded")
            early = made.f
            y = made.f(x)
            write(5)
            importlib.invalidate_caches()
            importlib.reload(made)
            sys.dont_write_bytecode = old
            return y + made.f(x) + early(x)
        finally:
            sys.path.remove(folder)
            sys.modules.pop("odd_scratch_reloaded", None)

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


many(
    __name__,
    rebinds_patched_functional=lambda: of(_patched),
    rebinds_patched_torch=lambda: of(_patched_torch),
    rebinds_patched_environment=lambda: of(_patched_dict),
    rebinds_global_number=lambda: of(_global_moves),
    rebinds_global_deleted=lambda: of(_global_deleted),
    rebinds_class_in_registry=lambda: of(_class_made),
    rebinds_subclass_hook=lambda: of(_plugged),
    rebinds_protocol=lambda: of(_protocol),
    rebinds_instance_check=lambda: of(lambda x: x * (2 if isinstance(x.shape, Checked) else 3)),
    rebinds_class_count=lambda: Case(Base(), randn(3, 4), others=[randn(3, 4, seed=5)], reset=_reset),
    rebinds_class_of_module=lambda: Case(Other(), randn(3, 4), others=[randn(3, 4, seed=5)], reset=_reset),
    rebinds_cell=_cell_moved,
    rebinds_cell_of_another=_cell_written,
    rebinds_wrapped_forward=lambda: Case(_accelerated(), randn(3, 4), others=[randn(3, 4, seed=5)]),
    rebinds_parameter_around=lambda: Case(
        bare(lambda s: attributes(s, layer=nn.Linear(4, 4)), _offloaded), randn(3, 4), others=[randn(3, 4, seed=5)]
    ),
    rebinds_parameter_as_attribute=lambda: Case(
        bare(lambda s: attributes(s, layer=nn.Linear(4, 4)), _unregistered), randn(3, 4), others=[randn(3, 4, seed=5)]
    ),
    rebinds_child=lambda: Case(
        bare(lambda s: attributes(s, layer=nn.Linear(4, 4), spare=nn.Linear(4, 4)), _replaces_child), randn(3, 4)
    ),
    rebinds_order_of_layers=lambda: Case(
        bare(lambda s: attributes(s, layers=nn.ModuleList([nn.Linear(4, 4), nn.Tanh()])), _pops_layer), randn(3, 4)
    ),
    rebinds_hooks_around=lambda: Case(
        bare(lambda s: attributes(s, a=nn.Linear(4, 4), b=nn.Linear(4, 4)), _hooks_around), randn(3, 4)
    ),
    rebinds_forward_in_context=lambda: Case(
        module(lambda s: attributes(s, layer=nn.Linear(4, 4)), _in_context), randn(3, 4), others=[randn(3, 4, seed=5)]
    ),
    rebinds_module_of_python=lambda: of(_fake_module),
    rebinds_base_class=_super_moves,
    rebinds_abstract_method=_abstract_filled,
    rebinds_missing_member=_member_missing,
    rebinds_operator=_dunder_replaced,
    rebinds_descriptor=_descriptor_counts,
    rebinds_cached_property=_module_property_cached,
    rebinds_attribute_when_missed=_getattr_makes,
    rebinds_attributes_watched=_setattr_watches,
)
