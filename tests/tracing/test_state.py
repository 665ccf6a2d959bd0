"""State of Python's that a program changes: afterwards it is as before, it is named in a warning, or it is refused."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import enum
import functools
import io
import os
import queue
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import backprint as bp

Program = Callable[..., Any]


def then(_: Any, value: Any) -> Any:
    """The second of two values."""
    return value


def captured(program: Program, *args: Any, **options: Any) -> bp.Capture:
    """A capture that is proved."""
    capture = bp.capture(program, *args, **options)
    assert [each.verdict for each in capture.verify()] == ["bitwise"]
    return capture


# ------------------------------------------------------------------ iterators


ITERATORS: dict[str, Callable[[], Iterator[Any]]] = {
    "list": lambda: iter([2, 3]),
    "zip": lambda: map(sum, zip([1, 1], [1, 2], strict=True)),
    "one iterator twice": lambda: map(lambda a, b: a + b, *[iter([1, 1, 1, 2])] * 2),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_is_refused_before_it_runs(name: str) -> None:
    def program(x: Tensor, factors: Iterator[int]) -> Tensor:
        for factor in factors:
            x = x * factor
        return x + 0

    factors = ITERATORS[name]()
    with pytest.raises(
        bp.errors.CaptureError, match=r"holds an iterator \(\w+ factors\).* pass its items as an argument"
    ):
        bp.capture(program, torch.ones(3), factors)
    assert list(factors) == [2, 3]


class Net(nn.Module):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: Tensor) -> Tensor:
        return x * sum(self.held[0])


def test_an_iterator_is_refused_wherever_it_is() -> None:
    one = iter([2.0, 3.0])
    with pytest.raises(bp.errors.CaptureError, match=r"holds an iterator \(list_iterator held\.0\)"):
        bp.capture(Net({0: one}), torch.ones(2))
    assert list(one) == [2.0, 3.0]


@pytest.mark.parametrize("fake", [False, True])
def test_a_generator_is_refused_before_it_runs(fake: bool) -> None:
    factors = (k for k in [2, 3])
    with pytest.raises(bp.errors.CaptureError, match=r"holds an iterator .* pass its items as an argument"):
        bp.capture(lambda x, given: x * sum(given), torch.ones(3), factors, fake=fake)
    assert list(factors) == [2, 3]


# ------------------------------------------------------------------ functools.lru_cache


@pytest.mark.parametrize("options", [{}, {"fake": True}, {"engine": "aot"}, {"engine": "dynamo"}])
def test_a_cache_has_no_tensor_of_a_capture(options: dict[str, Any]) -> None:
    @functools.lru_cache(None)
    def table(n: int) -> Tensor:
        return torch.arange(float(n))

    bp.capture(lambda x: x * table(3), torch.ones(3), **options)
    assert table.cache_info().currsize == 0
    assert type(table(3)) is Tensor


def test_a_cache_whose_entries_were_dropped_is_named() -> None:
    @functools.lru_cache
    def table(n: int) -> Tensor:
        return torch.arange(float(n))

    held = table(2)
    bp.capture(lambda x: x * table(2)[1], torch.ones(3))
    assert table(2) is held
    with pytest.warns(UserWarning, match=r"table \(_lru_cache_wrapper\): it was emptied"):
        bp.capture(lambda x: x * table(3), torch.ones(3))
    assert table.cache_info().currsize == 0


# ------------------------------------------------------------------ everything else that is restored


class Slots:
    __slots__ = ("late", "n")

    def __init__(self) -> None:
        self.n = 1


class Counted:
    n = 1


class Other(Counted):
    pass


COUNTED = Counted()


class Local(threading.local):
    n = 1


def of(change: Callable[[Any], Any], state: Callable[[Any], Any]) -> Callable[[Any], tuple[Program, Callable[[], Any]]]:
    """A program that changes an object, and what there is to see of the object."""
    return lambda thing: (lambda x: then(change(thing), x * 2), lambda: state(thing))


def hooked(register: Callable[[nn.Module, Any], Any]) -> tuple[Program, Callable[[], Any]]:
    log: list[Any] = []
    net = nn.Linear(3, 3)
    register(net, lambda *given: log.append(1))
    return net, lambda: len(log)


def slots_change(slots: Slots) -> None:
    slots.late, slots.n = 1, slots.n + 1


def set_new_variable(variable: contextvars.ContextVar[int]) -> None:
    variable.set(variable.get(0) + 1)


def queued(made: Any) -> Any:
    made.put(1)
    return made


STATE: dict[str, Callable[[], tuple[Program, Callable[[], Any]]]] = {
    "hook on a tensor": lambda: hooked(lambda net, hook: net.weight.register_hook(hook)),
    "hook that is a method": lambda: hooked_by_method(),
    "hook after accumulation": lambda: hooked(lambda net, hook: net.weight.register_post_accumulate_grad_hook(hook)),
    "OrderedDict": lambda: of(lambda d: d.move_to_end("a"), list)(collections.OrderedDict(a=1, b=2)),
    "Queue": lambda: of(lambda q: q.put(q.get()), lambda q: (q.qsize(), q.unfinished_tasks))(queued(queue.Queue())),
    "ContextVar": lambda: of(lambda v: v.set(v.get() + 1), lambda v: v.get())(contextvars.ContextVar("v", default=1)),
    "thread local": lambda: of(lambda t: setattr(t, "n", t.n + 1), lambda t: t.n)(Local()),
    "Event": lambda: of(lambda e: e.set(), lambda e: e.is_set())(threading.Event()),
    "array": lambda: of(lambda a: a.append(1), list)(array.array("d", [1])),
    "slots": lambda: of(slots_change, lambda s: (s.n, hasattr(s, "late")))(Slots()),
    "weak proxy": lambda: of(lambda p: setattr(p, "n", p.n + 1), lambda p: p.n)(weakref.proxy(COUNTED)),
    "class": lambda: of(lambda c: setattr(c, "__class__", Other), type)(Counted()),
    "WeakSet": lambda: of(lambda s: s.add(Slots), len)(weakref.WeakSet()),
}


def hooked_by_method() -> tuple[Program, Callable[[], Any]]:
    log: list[Any] = []
    net = nn.Linear(3, 3)
    net.weight.register_hook(log.append)
    return net, lambda: len(log)


@pytest.mark.parametrize("name", STATE)
def test_state_is_as_before(name: str) -> None:
    program, state = STATE[name]()
    before = state()
    captured(program, torch.ones(3, requires_grad=True))
    assert state() == before


def lines(folder: Path) -> Any:
    (folder / "lines").write_text("2\n3\n5\n" * 9)
    return (folder / "lines").open()


NAMED: dict[str, tuple[Callable[[Path], Any], Callable[[Any], Any], str]] = {
    "SimpleQueue": (lambda _: queue.SimpleQueue(), lambda q: q.put(1), "it has more items or fewer"),
    "Lock": (lambda _: threading.Lock(), lambda lock: lock.acquire(blocking=False), "it was taken or released"),
    "StringIO": (lambda _: io.StringIO("abc" * 9), lambda f: f.read(1), "it is at another position"),
    "file": (lines, lambda f: f.readline(), "it is at another position"),
}


@pytest.mark.parametrize("name", NAMED)
def test_state_that_is_not_restored_is_named(name: str, tmp_path: Path) -> None:
    make, change, words = NAMED[name]
    thing = make(tmp_path)
    with (
        contextlib.closing(thing) if isinstance(thing, io.IOBase) else contextlib.nullcontext(),
        pytest.warns(UserWarning, match=rf"has changed what cannot be restored: thing \(\w+\): {words}"),
    ):
        bp.capture(lambda x: then(change(thing), x * 2), torch.ones(3))


def test_settings_of_the_process_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path.cwd())
    other = tmp_path / "other"
    other.mkdir()

    def program(x: Tensor) -> Tensor:
        os.chdir(other)
        torch.autograd.set_detect_anomaly(True)
        return x * 2

    try:
        with pytest.warns(UserWarning, match="cannot be restored: the working directory; anomaly detection"):
            bp.capture(program, torch.ones(3))
    finally:
        torch.autograd.set_detect_anomaly(False)


def test_a_module_of_the_users_is_as_before() -> None:
    helpers = types.ModuleType("helpers_of_a_user")
    helpers.n = 1  # type: ignore[attr-defined]

    def program(x: Tensor) -> Tensor:
        helpers.n += 1
        helpers.new = 1
        return x * helpers.n

    captured(program, torch.ones(3))
    assert helpers.n == 1
    assert not hasattr(helpers, "new")


# ------------------------------------------------------------------ storages that were freed


FREED = """
import torch, backprint as bp
from torch import nn

def freed(tensor):
    tensor.untyped_storage().resize_(0)
    return tensor

def as_fsdp(x):
    y = x.detach() * 2
    freed(y).untyped_storage().resize_(48)
    y.copy_(x.detach())
    return x * y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(4, 4))
    def forward(self, x):
        before = self.w.detach().clone()
        freed(self.w.data).untyped_storage().resize_(64)
        self.w.data.copy_(before)
        return x @ self.w

x = torch.randn(3, 4, requires_grad=True)
for program in (as_fsdp, Net()):
    print([each.verdict for each in bp.capture(program, x).verify()])

outside = freed(torch.ones(3, 4))
net = nn.Linear(4, 4)
capture = bp.capture(net, x)
with bp.region({folder!r}, gradients="values"):
    as_fsdp(x).sum().backward()
for call in (
    lambda: bp.capture(lambda x: x * 2, freed(torch.ones(3, 4))),
    lambda: bp.capture(lambda x: x * outside.detach().untyped_storage().resize_(48).nbytes(), x),
    lambda: bp.capture(lambda x: (x * 2, freed(x.detach() * 2)), x),
    lambda: bp.replay(capture, freed(torch.ones(3, 4))),
    lambda: bp.run(capture.pairs[0].forward, {{"input": freed(torch.ones(3, 4)), **dict(net.named_parameters())}}),
    lambda: (freed(net.weight.data), bp.replay(capture, x)),
    lambda: bp.capture(net, x),
):
    try:
        call()
        print("no error")
    except bp.errors.BackprintError as error:
        print("storage was resized" if "storage" in str(error) else error)
"""


@pytest.mark.slow
def test_a_freed_storage_is_never_read(tmp_path: Path) -> None:
    """In a process of its own, which such a read ends."""
    script = FREED.format(folder=str(tmp_path / "dump"))
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[:2] == ["['bitwise']"] * 2
    assert lines[2:] == ["storage was resized"] * 7


def test_objects_and_settings_that_change_numbers_are_as_before() -> None:
    torch.distributions.Distribution.set_default_validate_args(True)  # Dynamo turns it off the first time that it runs
    kind = enum.Enum("Kind", {"A": 1})
    largest = functools.partial(max, 1)

    def program(x: Tensor) -> Tensor:
        vars(kind["A"])["seen"] = True
        largest.keywords["key"] = abs
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.backends.mkldnn.set_flags(False)
        torch.distributions.Distribution.set_default_validate_args(False)
        return x * 2

    threads = torch.get_num_threads()
    bp.capture(program, torch.ones(3))
    assert not hasattr(kind["A"], "seen")
    assert not largest.keywords
    assert torch.get_num_threads() == threads
    assert torch.backends.mkldnn.enabled
    with pytest.raises(ValueError, match="invalid values"):
        torch.distributions.Normal(0.0, -1.0)


@pytest.mark.parametrize("other", [lambda x: x[:], lambda x: x.expand(3, 4), lambda x: x.view(2, 2).t()])
def test_views_as_arguments_have_gradients_of_their_own(other: Any) -> None:
    x = torch.randn(4)
    view = other(x)
    x = x.view(2, 2) if view.shape == (2, 2) else x
    found = bp.replay(bp.capture(lambda a, b: a * b, x, view), x, view).gradients
    assert {name: None if each is None else each.shape for name, each in found.items()} == {
        "a": x.shape,
        "b": view.shape,
    }


def test_what_a_program_asks_of_the_callers_modes_is_refused() -> None:
    with torch.no_grad(), pytest.raises(bp.errors.CaptureError, match="asks whether gradients are enabled"):
        bp.capture(lambda x: x * (2 if torch.is_grad_enabled() else 3), torch.ones(3))

    class Doubling(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Doubling(), pytest.raises(bp.errors.CaptureError, match=r"the dispatch mode .*Doubling is active"):
        bp.capture(lambda x: x * 2, torch.ones(3))


def test_the_order_of_attributes_is_as_before() -> None:
    class Holder:
        def __init__(self) -> None:
            self.a, self.b = 1, 2

    holder = Holder()

    def program(x: Tensor) -> Tensor:
        del holder.a
        holder.a = 1
        return x * holder.a

    bp.capture(program, torch.ones(2))
    assert list(vars(holder)) == ["a", "b"]
