"""Calls that differ from those before, by a state outside Python's objects: the first, the n-th, each other one."""

import asyncio
import concurrent.futures
import os
import tempfile
import threading
import types
import unittest.mock
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from case import Case, attributes, many, module, randn
from torch import nn


def numbered(f: Callable[[Any, int], Any], make: Callable[[], Any] | None = None, **more: Any) -> Case:
    """A function of a tensor and of the number of the call, which a storage counts."""
    held = (make or _storage)()
    return Case(lambda x: f(x, _next(held)), randn(3, 4), others=[randn(3, 4, seed=5)], **more)


def owned(f: Callable[[Any, Any, int], Any], init: Any = None, **more: Any) -> Case:
    """The same of a module."""
    held = _storage()
    net = module(init, lambda s, x: f(s, x, _next(held)))
    return Case(net, randn(3, 4), others=[randn(3, 4, seed=5)], **more)


def _storage() -> Any:
    return torch.UntypedStorage(1).fill_(0)


def _next(held: Any) -> int:
    held[0] = held[0] + 1
    return held[0]


def _after(n: int) -> Callable[[Any, int], Any]:
    return lambda x, k: x * (2 if k <= n else 3)


def _every(n: int) -> Callable[[Any, int], Any]:
    return lambda x, k: x * (2 + (k - 1) % n)


class Scaled(torch.autograd.Function):
    """Its backward scales by what its forward was told."""

    @staticmethod
    def forward(ctx: Any, x: Any, by: float) -> Any:
        """The same."""
        ctx.by = by
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Scaled."""
        return grad * ctx.by, None


def _hooked(x: Any, k: int) -> Any:
    y = x * 2
    if y.requires_grad and k > 1:
        y.register_hook(lambda g: g * 5)
    return y


def _late_backward(x: Any, k: int) -> Any:
    return Scaled.apply(x, 2.0 if k == 1 else 3.0)


def _detaches_later(x: Any, k: int) -> Any:
    return x * 2 + (x if k == 1 else x.detach())


def _writes_buffer(self: Any, x: Any, k: int) -> Any:
    if k == 1:
        self.n.add_(1)
    return x @ self.w


def _writes_buffer_later(self: Any, x: Any, k: int) -> Any:
    self.n.add_(1 if k == 1 else 7)
    return x @ self.w


def _initialises(self: Any, x: Any, k: int) -> Any:
    """As layers that are initialised by their first batch."""
    if k == 1:
        with torch.no_grad():
            self.n.copy_(x.mean(0))
    return (x - self.n) @ self.w


def _draws(x: Any, k: int) -> Any:
    if k == 1:
        torch.rand(3)
    return x * torch.rand(4)


def _dropout_first(x: Any, k: int) -> Any:
    return nn.functional.dropout(x, 0.5, training=k == 1) * 2


def _raises_later(x: Any, k: int) -> Any:
    if k > 1:
        raise RuntimeError("only once")
    return x * 2


def _raises_much_later(x: Any, k: int) -> Any:
    if k > 4:
        raise RuntimeError("four times only")
    return x * 2


def _module_class(name: str, step: Callable[[Any], int]) -> Callable[[], Case]:
    """An object whose class says that it is of another module."""

    def build() -> Case:
        held = type("Kept", (), {"__module__": name})()
        held.n = 1
        return Case(lambda x: x * step(held), randn(3, 4), others=[randn(3, 4, seed=5)])

    return build


def _more(held: Any) -> int:
    held.n += 1
    return held.n


def _once(held: Any) -> int:
    held.n = min(held.n + 1, 3)
    return held.n


def _traced(step: Callable[[Any], int]) -> Case:
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    graph.n = 1
    graph.meta["n"] = 1
    return Case(lambda x: graph(x) * step(graph), randn(3, 4), others=[randn(3, 4, seed=5)])


def _meta(graph: Any) -> int:
    graph.meta["n"] = 2
    graph.meta["seen"] = graph.meta.get("seen", 0) + 1
    return 2 if graph.meta["seen"] == 1 else 3


def _leaf_of_graph(graph: Any) -> int:
    layer = getattr(graph, "0")
    layer.calls = getattr(layer, "calls", 0) + 1
    return layer.calls + 1


def _unflattened() -> Case:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    made = torch.export.unflatten(torch.export.export(Net(), (torch.ones(3, 4),)))
    made.n = 1
    return Case(lambda x: made(x) * _more(made), randn(3, 4), others=[randn(3, 4, seed=5)])


def _with_attribute(make: Callable[[], Any], step: Callable[[Any], int] = _more) -> Case:
    held = attributes(make(), n=1)
    return Case(lambda x: x * step(held), randn(3, 4), others=[randn(3, 4, seed=5)])


def _method_written(name: str, use: Callable[[Any, Any], Any], late: Callable[..., Any]) -> Callable[[], Case]:
    """A class whose special method is another one after the first call."""

    def build() -> Case:
        space = {
            "__call__": lambda self, x: x * 2,
            "__len__": lambda self: 2,
            "__getitem__": lambda self, i: 2,
            "__iter__": lambda self: iter([2]),
            "__eq__": lambda self, other: True,
            "__hash__": lambda self: 2,
            "__float__": lambda self: 2.0,
            "__enter__": lambda self: 2,
            "__exit__": lambda self, *error: None,
            "plain": lambda self, x: x * 2,
            "shown": property(lambda self: 2),
            "made": staticmethod(lambda: 2),
            "owned": classmethod(lambda cls: 2),
        }
        kind = type("Kind", (), space)
        held = kind()

        def f(x: Any) -> Any:
            y = use(held, x)
            setattr(kind, name, late)
            return y

        return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])

    return build


def _entered(held: Any, x: Any) -> Any:
    with held as n:
        return x * n


def _file_counts(n: int) -> Case:
    path = os.path.join(tempfile.mkdtemp(prefix="odd"), "n")

    def f(x: Any) -> Any:
        with open(path, "a") as file:
            file.write("a")
        return x * (2 if os.path.getsize(path) <= n else 3)

    def reset() -> None:
        if os.path.exists(path):
            os.unlink(path)

    reset()
    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)], reset=reset)


def _strides_of_array() -> Case:
    a = np.arange(4.0)

    def f(x: Any) -> Any:
        y = x * float(a[1] + 2)
        a.strides = (0,)
        return y

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


def _grown_array() -> Case:
    a = np.ones(4)

    def f(x: Any) -> Any:
        a.resize(len(a) + 1, refcheck=False)
        return x * len(a)

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


def _data_of_array() -> Case:
    a = np.ones(4)
    a.setflags(write=True)

    def f(x: Any) -> Any:
        a.setfield(a + 1, a.dtype)
        return x * float(a[0])

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


many(
    __name__,
    **{f"call_later_than_{n}": (lambda n=n: numbered(_after(n))) for n in (1, 2, 3, 4, 6, 9, 14, 30)},
    **{f"call_every_{n}": (lambda n=n: numbered(_every(n))) for n in (2, 3, 4, 5)},
    **{f"call_later_than_{n}_in_file": (lambda n=n: _file_counts(n)) for n in (1, 2, 4)},
    call_first_hook_not=lambda: numbered(_hooked),
    call_first_backward=lambda: numbered(_late_backward),
    call_first_undetached=lambda: numbered(_detaches_later),
    call_first_writes_buffer=lambda: owned(_writes_buffer, lambda s: s.register_buffer("n", torch.zeros(4))),
    call_first_writes_less=lambda: owned(_writes_buffer_later, lambda s: s.register_buffer("n", torch.zeros(4))),
    call_first_initialises=lambda: owned(_initialises, lambda s: s.register_buffer("n", torch.zeros(4))),
    call_first_draws=lambda: numbered(_draws),
    call_first_drops=lambda: numbered(_dropout_first),
    call_first_returns_number=lambda: numbered(lambda x, k: (x * 2, min(k, 2))),
    call_first_returns_number_moving=lambda: numbered(lambda x, k: (x * 2, k)),
    call_first_returns_double=lambda: numbered(lambda x, k: x * 2 if k == 1 else (x * 2).double()),
    call_first_returns_less=lambda: numbered(lambda x, k: [x * 2] if k == 1 else [x * 2, x * 3]),
    call_first_returns_dict=lambda: numbered(lambda x, k: [x * 2] if k == 1 else {"0": x * 2}),
    call_only_one=lambda: numbered(_raises_later),
    call_only_four=lambda: numbered(_raises_much_later),
    call_by_mock=lambda: _with_attribute(unittest.mock.NonCallableMock),
    call_by_future=lambda: _with_attribute(concurrent.futures.Future),
    call_by_future_once=lambda: _with_attribute(concurrent.futures.Future, _once),
    call_by_thread=lambda: _with_attribute(threading.Thread),
    call_by_timer=lambda: _with_attribute(lambda: threading.Timer(1.0, int)),
    call_by_lock_of_asyncio=lambda: _with_attribute(asyncio.Lock),
    call_by_fx_graph=lambda: _with_attribute(torch.fx.Graph),
    call_by_fx_tracer=lambda: _with_attribute(torch.fx.Tracer),
    call_by_fx_module=lambda: _traced(_more),
    call_by_fx_module_once=lambda: _traced(_once),
    call_by_fx_module_meta=lambda: _traced(_meta),
    call_by_fx_module_layer=lambda: _traced(_leaf_of_graph),
    call_by_unflattened=_unflattened,
    call_by_module_sympy=_module_class("sympy.core", _more),
    call_by_module_rich=_module_class("rich.progress", _once),
    call_by_module_distributed=_module_class("torch.distributed.algorithms", _more),
    call_by_module_io=_module_class("io", _once),
    call_by_module_own=_module_class("odd_made.models", _more),
    call_by_python_module=lambda: _with_attribute(lambda: types.ModuleType("odd_kept")),
    call_of_call=_method_written("__call__", lambda h, x: h(x), lambda self, x: x * 7),
    call_of_length=_method_written("__len__", lambda h, x: x * len(h), lambda self: 7),
    call_of_item=_method_written("__getitem__", lambda h, x: x * h[0], lambda self, i: 7),
    call_of_iteration=_method_written("__iter__", lambda h, x: x * next(iter(h)), lambda self: iter([7])),
    call_of_equality=_method_written("__eq__", lambda h, x: x * (2 if h == 1 else 3), lambda self, o: False),
    call_of_float=_method_written("__float__", lambda h, x: x * float(h), lambda self: 7.0),
    call_of_context=_method_written("__enter__", _entered, lambda self: 7),
    call_of_plain_method=_method_written("plain", lambda h, x: h.plain(x), lambda self, x: x * 7),
    call_of_property=_method_written("shown", lambda h, x: x * h.shown, property(lambda self: 7)),
    call_of_static_method=_method_written("made", lambda h, x: x * h.made(), staticmethod(lambda: 7)),
    call_of_class_method=_method_written("owned", lambda h, x: x * h.owned(), classmethod(lambda cls: 7)),
    call_of_array_strides=_strides_of_array,
    call_of_array_grown=_grown_array,
    call_of_array_field=_data_of_array,
)
