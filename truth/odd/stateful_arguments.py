"""Arguments with a state that no comparison of values sees: locks, positions, generators, tables, flags, C objects."""

import array
import asyncio
import collections
import contextvars
import ctypes
import decimal
import enum
import hashlib
import io
import mmap
import queue
import random
import re
import sqlite3
import struct
import threading
import weakref
import xml.etree.ElementTree as ET
from typing import Any, ClassVar

import numpy as np
import torch
from case import Case, attributes, many, randn
from torch import nn

LEVEL = contextvars.ContextVar("odd_argument_level", default=1)


def given(f: Any, first: Any, second: Any, **more: Any) -> Case:
    """A function of a tensor and an object, tried with an object of another state."""
    return Case(f, (randn(3, 4), first), others=[(randn(3, 4, seed=5), first), (randn(3, 4), second)], **more)


def done(value: Any, *_: Any) -> Any:
    """The value; what else there is has been done."""
    return value


def _lock(held: bool) -> Any:
    made = threading.Lock()
    if held:
        made.acquire()
    return made


def _event(is_set: bool, kind: Any = threading.Event) -> Any:
    made = kind()
    if is_set:
        made.set()
    return made


def _queue(*items: Any) -> Any:
    made: Any = queue.Queue()
    for item in items:
        made.put(item)
    return made


def _text(place: int) -> Any:
    made = io.StringIO("23456")
    made.seek(place)
    return made


def _hash(text: bytes) -> Any:
    return hashlib.sha1(text)


def _base(n: int) -> Any:
    made = sqlite3.connect(":memory:")
    made.execute("create table t (n integer)")
    made.execute("insert into t values (?)", (n,))
    return made


def _map(n: int) -> Any:
    made = mmap.mmap(-1, 4)
    made[0] = n
    return made


def _context(n: int) -> Any:
    made = contextvars.Context()
    made.run(LEVEL.set, n)
    return made


def _element(n: int) -> Any:
    return ET.Element("a", {"n": str(n)})


def _scripted(n: int) -> Any:
    class Scale(nn.Module):
        by: int

        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.by

    return torch.jit.script(Scale(n))


def _sparse(whole: bool) -> Any:
    made = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1]]), torch.ones(3), (3,))
    return made.coalesce() if whole else made


def _dead(alive: bool) -> Any:
    class Owner:
        pass

    owner = Owner()
    ref = weakref.ref(owner)
    KEPT.append(owner if alive else None)
    return ref


KEPT: list[Any] = []


def _shared_arrays(same: bool) -> Any:
    a = np.arange(4.0)
    return (a, a[:]) if same else (a, a.copy())


def _array_and_tensor(same: bool) -> Any:
    a = np.ones(4, np.float32)
    return a, torch.from_numpy(a if same else a.copy())


def _writes_array(x: Any, pair: Any) -> Any:
    a, t = pair
    a[0] += 1
    y = x * t
    a[0] -= 1
    return y


def _read_only_view(writable: bool) -> Any:
    return memoryview(bytearray(b"\x02")) if writable else memoryview(b"\x02")


class Sparse(enum.Flag):
    """Flags."""

    A = 1
    B = 2


class Tuned(np.ndarray):
    """An array with an attribute."""

    scale = 1.0


def _tuned(scale: float) -> Any:
    return attributes(np.ones(2).view(Tuned), {"scale": scale})


def _objects(n: int) -> Any:
    made = np.empty(2, object)
    made[:] = [[n], {"a": n}]
    return made


def _with_metadata(n: int) -> Any:
    return np.zeros(1, np.dtype("f4", metadata={"n": n}))


def _tensor_with(n: int) -> Any:
    return attributes(randn(4, seed=9), {"n": n})


def _tensor_hooked(by: float) -> Any:
    made = randn(4, seed=9).requires_grad_()
    made.register_hook(lambda g: g * by)
    return made


def _tensor_shared(shared: bool) -> Any:
    made = randn(4, seed=9)
    return made.share_memory_() if shared else made


def _module_hooked(by: float) -> Any:
    made = nn.Linear(4, 4)
    with torch.no_grad():
        made.weight.fill_(0.5)
        made.bias.zero_()
    made.register_forward_hook(lambda m, i, o: o * by)
    return made


def _module_mode(training: bool) -> Any:
    return nn.Dropout(0.5).train(training)


def _optimizer(lr: float) -> Any:
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=lr)


def _transform(loc: float) -> Any:
    return torch.distributions.AffineTransform(loc, 2.0)


def _decimals(prec: int) -> Any:
    return decimal.Context(prec=prec)


def _storage(n: int) -> Any:
    return torch.UntypedStorage(2).fill_(n)


def _random(seed: int) -> Any:
    return random.Random(seed)


def _gen(seed: int) -> Any:
    return torch.Generator().manual_seed(seed)


class Cell:
    """Its state is in a closure only."""

    def __init__(self, n: float) -> None:
        self.get = lambda: n


class Counted:
    """Its state is in an own dict by identity."""

    table: ClassVar[Any] = weakref.WeakKeyDictionary()

    def __init__(self, n: float) -> None:
        self.table[self] = n

    @property
    def n(self) -> float:
        """From the table."""
        return self.table[self]


many(
    __name__,
    stateful_lock=lambda: given(lambda x, o: x * (3 if o.locked() else 2), _lock(False), _lock(True)),
    stateful_event=lambda: given(lambda x, o: x * (3 if o.is_set() else 2), _event(False), _event(True)),
    stateful_async_event=lambda: given(
        lambda x, o: x * (3 if o.is_set() else 2), _event(False, asyncio.Event), _event(True, asyncio.Event)
    ),
    stateful_queue=lambda: given(lambda x, o: x * (o.qsize() + 2), _queue(1), _queue(1, 2)),
    stateful_queue_item=lambda: given(lambda x, o: x * o.get(), _queue(2, 3), _queue(4, 5), variants=False),
    stateful_text_place=lambda: given(lambda x, o: x * (o.tell() + 2), _text(0), _text(2)),
    stateful_text_read=lambda: given(lambda x, o: x * int(o.read(1)), _text(0), _text(2)),
    stateful_hash=lambda: given(lambda x, o: x * (o.digest()[0] % 7 + 1), _hash(b"a"), _hash(b"bb")),
    stateful_database=lambda: given(lambda x, o: x * o.execute("select n from t").fetchone()[0], _base(2), _base(3)),
    stateful_memory_map=lambda: given(lambda x, o: x * o[0], _map(2), _map(3)),
    stateful_context=lambda: given(lambda x, o: x * o[LEVEL], _context(2), _context(3)),
    stateful_element=lambda: given(lambda x, o: x * float(o.get("n")), _element(2), _element(3)),
    stateful_script_module=lambda: given(lambda x, o: o(x), _scripted(2), _scripted(3)),
    stateful_script_list=lambda: given(lambda x, o: x * o[0], torch.jit.script([2, 1]), torch.jit.script([3, 1])),
    stateful_sparse=lambda: given(
        lambda x, o: x * (o._nnz() if not o.is_coalesced() else 7), _sparse(False), _sparse(True), gradients=False
    ),
    stateful_weak_reference=lambda: given(lambda x, o: x * (2 if o() is None else 3), _dead(True), _dead(False)),
    stateful_shared_arrays=lambda: given(
        lambda x, o: x * (2 if np.shares_memory(*o) else 3), _shared_arrays(True), _shared_arrays(False)
    ),
    stateful_array_and_tensor=lambda: given(_writes_array, _array_and_tensor(True), _array_and_tensor(False)),
    stateful_view_readonly=lambda: given(
        lambda x, o: x * (3 if o.readonly else 2), _read_only_view(True), _read_only_view(False)
    ),
    stateful_flag=lambda: given(lambda x, o: x * len(bin(o.value)), Sparse.A, Sparse.A | Sparse.B),
    stateful_array_attribute=lambda: given(lambda x, o: x * o.scale, _tuned(2.0), _tuned(3.0)),
    stateful_array_class=lambda: given(lambda x, o: x * (2 if isinstance(o, Tuned) else 3), _tuned(1.0), np.ones(2)),
    stateful_array_of_objects=lambda: given(lambda x, o: x * o[0][0] + o[1]["a"], _objects(2), _objects(3)),
    stateful_array_metadata=lambda: given(lambda x, o: x * o.dtype.metadata["n"], _with_metadata(2), _with_metadata(3)),
    stateful_array_base=lambda: given(lambda x, o: x * (2 if o.base is None else 3), np.ones(2), np.ones(4)[:2]),
    stateful_tensor_attribute=lambda: given(lambda x, o: x * o * o.n, _tensor_with(2), _tensor_with(3), variants=False),
    stateful_tensor_hook=lambda: given(lambda x, o: x * o, _tensor_hooked(2.0), _tensor_hooked(3.0), variants=False),
    stateful_tensor_shared=lambda: given(
        lambda x, o: x * o * (2 if o.is_shared() else 3), _tensor_shared(False), _tensor_shared(True)
    ),
    stateful_module_hook=lambda: given(lambda x, o: o(x), _module_hooked(2.0), _module_hooked(3.0)),
    stateful_module_mode=lambda: given(lambda x, o: o(x), _module_mode(False), _module_mode(True)),
    stateful_optimizer=lambda: given(
        lambda x, o: x * o.param_groups[0]["lr"], _optimizer(2.0), _optimizer(3.0), gradients=False
    ),
    stateful_transform=lambda: given(lambda x, o: o(x), _transform(2.0), _transform(3.0)),
    stateful_decimals=lambda: given(
        lambda x, o: x * float(o.divide(decimal.Decimal(1), decimal.Decimal(3))), _decimals(2), _decimals(1)
    ),
    stateful_storage=lambda: given(lambda x, o: x * o[0], _storage(2), _storage(3)),
    stateful_random=lambda: given(lambda x, o: x * o.random(), _random(2), _random(3)),
    stateful_numpy_generator=lambda: given(
        lambda x, o: x * float(o.random()), np.random.default_rng(2), np.random.default_rng(3)
    ),
    stateful_torch_generator=lambda: given(lambda x, o: x * torch.rand(4, generator=o), _gen(2), _gen(3)),
    stateful_torch_generator_read=lambda: given(lambda x, o: x * o.initial_seed(), _gen(2), _gen(3)),
    stateful_closure=lambda: given(lambda x, o: x * o.get(), Cell(2.0), Cell(3.0)),
    stateful_side_table=lambda: given(lambda x, o: x * o.n, Counted(2.0), Counted(3.0)),
    stateful_ctypes=lambda: given(lambda x, o: x * o.value, ctypes.c_float(2.0), ctypes.c_float(3.0)),
    stateful_struct=lambda: given(lambda x, o: x * o.size, struct.Struct("b"), struct.Struct("q")),
    stateful_match=lambda: given(lambda x, o: x * int(o.group()), re.search(r"\d", "a2"), re.search(r"\d", "a3")),
    stateful_local=lambda: given(
        lambda x, o: x * o.n, attributes(threading.local(), n=2), attributes(threading.local(), n=3)
    ),
    stateful_exhausted_deque=lambda: given(
        lambda x, o: x * (next(o, 5)), iter(collections.deque([2, 3])), iter(collections.deque())
    ),
    stateful_buffer=lambda: given(
        lambda x, o: x * o[0], memoryview(array.array("b", [2])), memoryview(array.array("b", [3]))
    ),
)
