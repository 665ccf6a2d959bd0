"""What the process keeps in registries of its own: a program changes an entry, or reads one that changes later."""

import asyncio
import builtins
import calendar
import codecs
import contextlib
import copyreg
import csv
import decimal
import enum
import gc
import linecache
import logging
import mimetypes
import os
import socket
import sys
import threading
import tracemalloc
import warnings
from abc import ABC
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from case import Case, many, module, randn
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree


class Wild:
    """Registers as a subclass of another."""


class Holder:
    """Copied by a function that a registry has."""

    def __init__(self, n: Any) -> None:
        self.n = n


class Lazy(enum.Flag):
    """Members are made when they are asked for."""

    A = 1
    B = 2
    C = 4


def counts(get: Callable[[], Any], put: Callable[[Any], Any], first: Any, step: Callable[[Any], Any], to: Any) -> Case:
    """A program that moves a setting on in each call and scales by it."""
    put(first)

    def f(x: Any) -> Any:
        put(step(get()))
        return x * to(get())

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)], reset=lambda: put(first))


def reads(get: Callable[[], Any], put: Callable[[Any], Any], value: Any, to: Callable[[Any], float]) -> Case:
    """A program that scales by a setting, which has another value once it is captured."""

    @contextlib.contextmanager
    def later() -> Iterator[None]:
        old = get()
        put(value)
        try:
            yield
        finally:
            put(old)

    return Case(lambda x: x * to(get()), randn(3, 4), others=[randn(3, 4, seed=5)], later=later)


def plus(n: int) -> Callable[[int], int]:
    """Adds to a number."""
    return lambda value: value + n


def _umask() -> int:
    old = os.umask(0o22)
    os.umask(old)
    return old


def _virtual() -> Case:
    class Own(ABC):  # noqa: B024
        pass

    def f(x: Any) -> Any:
        known = issubclass(Wild, Own)
        Own.register(Wild)
        return x * (3 if known else 2)

    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


def _copier(x: Any) -> Any:
    scale = 3.0 if Holder in copyreg.dispatch_table else 2.0
    copyreg.pickle(Holder, lambda o: (Holder, (o.n,)))
    return x * scale


NUMBERS = iter(range(10**6))


def _codec_error() -> Case:
    name = f"odd_scale_{next(NUMBERS)}"  # no entry of this registry is ever removed

    def f(x: Any) -> Any:
        try:
            codecs.lookup_error(name)
            scale = 3
        except LookupError:
            scale = 2
            codecs.register_error(name, codecs.ignore_errors)
        return x * scale

    return Case(f, randn(3, 4), variants=False)


def _dialect(x: Any) -> Any:
    scale = 2 + len(csv.list_dialects())
    csv.register_dialect(f"odd{scale}")
    return x * scale


def _undialect() -> None:
    for name in csv.list_dialects():
        if name.startswith("odd"):
            csv.unregister_dialect(name)


def _line_cache(x: Any) -> Any:
    scale = len(linecache.getlines("<odd>")) + 2
    linecache.cache["<odd>"] = (1, None, ["a"] * (scale - 1), "<odd>")
    return x * scale


def _node_registered(x: Any) -> Any:
    known = Holder in pytree.SUPPORTED_NODES
    if not known:
        pytree.register_pytree_node(Holder, lambda o: ([o.n], None), lambda values, _: Holder(*values))
    return x * (3 if known else 2)


def _node_unregistered() -> None:
    if Holder in pytree.SUPPORTED_NODES:
        pytree._deregister_pytree_node(Holder)


def _divergence(x: Any) -> Any:
    class Mine(torch.distributions.Normal):
        pass

    table = torch.distributions.kl._KL_REGISTRY
    scale = 2 + sum(getattr(a, "__qualname__", "").endswith("Mine") for a, _ in table)
    torch.distributions.kl.register_kl(Mine, Mine)(lambda p, q: p.loc)
    return x * scale


def _divergence_gone() -> None:
    table = torch.distributions.kl._KL_REGISTRY
    for key in [k for k in table if k[0].__qualname__.endswith("Mine")]:
        del table[key]


def _safe_class(x: Any) -> Any:
    scale = 2 + (Holder in torch.serialization.get_safe_globals())
    torch.serialization.add_safe_globals([Holder])
    return x * scale


def _tensor_patched(x: Any) -> Any:
    scale = 3 if hasattr(torch.Tensor, "odd_scale") else 2
    torch.Tensor.odd_scale = lambda self: self * 2
    return x.odd_scale() * scale


def _tensor_unpatched() -> None:
    if hasattr(torch.Tensor, "odd_scale"):
        del torch.Tensor.odd_scale


def _functional_patched(x: Any) -> Any:
    before = F.relu

    def relu(v: Any, inplace: bool = False) -> Any:
        return before(v) + 1

    F.relu = relu
    return nn.ReLU()(x)


RELU = F.relu


def _functional_back() -> None:
    F.relu = RELU


def _linear_patched(self: Any, x: Any) -> Any:
    """As libraries of fused layers do it: once, for the class."""
    if not hasattr(nn.Linear, "odd_forward"):
        nn.Linear.odd_forward = nn.Linear.forward
        nn.Linear.forward = lambda layer, v: layer.odd_forward(v) * 2
    return self.layer(x @ self.w)


def _linear_back() -> None:
    if hasattr(nn.Linear, "odd_forward"):
        nn.Linear.forward = nn.Linear.odd_forward
        del nn.Linear.odd_forward


def _flag_members(x: Any) -> Any:
    scale = len(Lazy._value2member_map_)
    assert (Lazy.A | Lazy.C).value == 5
    return x * scale


def _flags_back() -> None:
    for value in [v for v in Lazy._value2member_map_ if v not in (1, 2, 4)]:
        del Lazy._value2member_map_[value]


def _show_warning(x: Any) -> Any:
    old = warnings.showwarning
    scale = 3 if getattr(old, "odd", False) else 2

    def show(*args: Any, **more: Any) -> None:
        old(*args, **more)

    show.odd = True
    warnings.showwarning = show
    return x * scale


SHOW = warnings.showwarning


def _attribute_of(place: Any, name: str, value: Any) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        scale = 3 if getattr(place, name, None) is value else 2
        setattr(place, name, value)
        return x * scale

    return f


def _hook(*_: Any) -> None:
    """Does nothing."""


THREAD_HOOK, UNRAISABLE = threading.excepthook, sys.unraisablehook


def _level_name(x: Any) -> Any:
    scale = 3 if logging.getLevelName(17) == "ODD" else 2
    logging.addLevelName(17, "ODD")
    return x * scale


def _level_back() -> None:
    logging._levelToName.pop(17, None)
    logging._nameToLevel.pop("ODD", None)


def _mime(x: Any) -> Any:
    scale = 3 if mimetypes.guess_type("a.oddtype")[0] else 2
    mimetypes.add_type("text/odd", ".oddtype")
    return x * scale


def _mime_back() -> None:
    for table in mimetypes._db.types_map if mimetypes._db else ():
        table.pop(".oddtype", None)
    mimetypes.types_map.pop(".oddtype", None)


def _loop(x: Any) -> Any:
    policy = asyncio.get_event_loop_policy()
    scale = 3 if getattr(policy, "odd", False) else 2
    policy.odd = True
    return x * scale


def _loop_back() -> None:
    asyncio.get_event_loop_policy().__dict__.pop("odd", None)


def _tracing(x: Any) -> Any:
    scale = 3 if tracemalloc.is_tracing() else 2
    tracemalloc.start()
    return x * scale


def _frozen(x: Any) -> Any:
    scale = 3 if gc.get_freeze_count() > 0 else 2
    gc.freeze()
    return x * scale


def _print_replaced(x: Any) -> Any:
    said: list[str] = []
    old = builtins.print
    builtins.print = lambda *values, **_: said.append(str(values))
    try:
        print(float(x.sum()))
    finally:
        builtins.print = old
    return x * len(said[0])


def with_reset(f: Any, reset: Any) -> Case:
    """A program that leaves something behind, which is put back before each call."""
    reset()
    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)], reset=reset)


many(
    __name__,
    registry_csv_field_limit=lambda: counts(
        csv.field_size_limit, csv.field_size_limit, 131072, plus(1), lambda n: n - 131070
    ),
    registry_first_weekday=lambda: counts(
        calendar.firstweekday, calendar.setfirstweekday, 0, lambda n: (n + 1) % 7, plus(2)
    ),
    registry_socket_timeout=lambda: counts(
        socket.getdefaulttimeout, socket.setdefaulttimeout, None, lambda n: (n or 1) + 1, float
    ),
    registry_file_mask=lambda: counts(_umask, os.umask, 0o22, lambda n: n ^ 1, lambda n: n + 1),
    registry_numpy_buffer=lambda: counts(np.getbufsize, np.setbufsize, 8192, plus(16), lambda n: n - 8190),
    registry_stack_size=lambda: counts(
        threading.stack_size, threading.stack_size, 0, lambda n: n + (1 << 20), lambda n: n / (1 << 20)
    ),
    registry_default_decimal=lambda: counts(
        lambda: decimal.DefaultContext.prec, lambda n: setattr(decimal.DefaultContext, "prec", n), 28, plus(1), float
    ),
    registry_einsum_strategy=lambda: counts(
        lambda: torch.backends.opt_einsum.strategy,
        lambda s: setattr(torch.backends.opt_einsum, "strategy", s),
        "auto",
        lambda s: "greedy",
        len,
    ),
    registry_hub_folder=lambda: counts(torch.hub.get_dir, torch.hub.set_dir, "/tmp/a", lambda s: s + "a", len),
    registry_sharing_strategy=lambda: counts(
        torch.multiprocessing.get_sharing_strategy,
        torch.multiprocessing.set_sharing_strategy,
        "file_descriptor",
        lambda s: "file_system",
        len,
    ),
    registry_coroutine_depth=lambda: counts(
        sys.get_coroutine_origin_tracking_depth, sys.set_coroutine_origin_tracking_depth, 0, plus(1), plus(1)
    ),
    registry_virtual_subclass=lambda: _virtual(),
    registry_codec_error=lambda: _codec_error(),
    registry_copy_function=lambda: with_reset(_copier, lambda: copyreg.dispatch_table.pop(Holder, None)),
    registry_csv_dialects=lambda: with_reset(_dialect, _undialect),
    registry_line_cache=lambda: with_reset(_line_cache, lambda: linecache.cache.pop("<odd>", None)),
    registry_tree_node=lambda: with_reset(_node_registered, _node_unregistered),
    registry_divergence=lambda: with_reset(_divergence, _divergence_gone),
    registry_safe_class=lambda: with_reset(_safe_class, torch.serialization.clear_safe_globals),
    registry_tensor_method=lambda: with_reset(_tensor_patched, _tensor_unpatched),
    registry_functional_patched=lambda: with_reset(_functional_patched, _functional_back),
    registry_linear_patched=lambda: Case(
        module(lambda s: setattr(s, "layer", nn.Linear(4, 4)), _linear_patched), randn(3, 4), reset=_linear_back
    ),
    registry_flag_members=lambda: with_reset(_flag_members, _flags_back),
    registry_show_warning=lambda: with_reset(_show_warning, lambda: setattr(warnings, "showwarning", SHOW)),
    registry_thread_hook=lambda: with_reset(
        _attribute_of(threading, "excepthook", _hook), lambda: setattr(threading, "excepthook", THREAD_HOOK)
    ),
    registry_unraisable_hook=lambda: with_reset(
        _attribute_of(sys, "unraisablehook", _hook), lambda: setattr(sys, "unraisablehook", UNRAISABLE)
    ),
    registry_numpy_error_call=lambda: with_reset(
        lambda x: (lambda old: x * (3 if old is _hook else 2))(np.seterrcall(_hook)), lambda: np.seterrcall(None)
    ),
    registry_level_name=lambda: with_reset(_level_name, _level_back),
    registry_mime_type=lambda: with_reset(_mime, _mime_back),
    registry_event_loop_policy=lambda: with_reset(_loop, _loop_back),
    registry_memory_traced=lambda: with_reset(_tracing, tracemalloc.stop),
    registry_collector_frozen=lambda: with_reset(_frozen, gc.unfreeze),
    registry_print_replaced=lambda: Case(_print_replaced, randn(3, 4), others=[randn(3, 4, seed=5) * 1000]),
    registry_read_socket_timeout=lambda: reads(
        socket.getdefaulttimeout, socket.setdefaulttimeout, 7.0, lambda v: v or 2.0
    ),
    registry_read_csv_limit=lambda: reads(csv.field_size_limit, csv.field_size_limit, 9, lambda v: v / 1000),
    registry_read_numpy_buffer=lambda: reads(np.getbufsize, np.setbufsize, 1024, lambda v: v / 1000),
    registry_read_interval=lambda: reads(sys.getswitchinterval, sys.setswitchinterval, 0.5, lambda v: v + 1),
    registry_read_interop_threads=lambda: Case(lambda x: x * torch.get_num_interop_threads(), randn(3, 4)),
    registry_read_arguments=lambda: reads(
        lambda: list(sys.argv), lambda v: sys.argv.__setitem__(slice(None), v), ["a"], len
    ),
    registry_read_mask=lambda: reads(_umask, os.umask, 0o77, lambda v: v + 1.0),
    registry_read_module_attribute=lambda: reads(
        lambda: getattr(np, "odd_scale", 2), lambda v: setattr(np, "odd_scale", v), 5, float
    ),
    registry_read_torch_attribute=lambda: reads(
        lambda: getattr(torch, "odd_scale", 2), lambda v: setattr(torch, "odd_scale", v), 5, float
    ),
    registry_read_builtin=lambda: reads(
        lambda: getattr(builtins, "odd_scale", 2), lambda v: setattr(builtins, "odd_scale", v), 5, float
    ),
)
