"""State of Python's that a program changes: afterwards it is as before, or a refusal or a warning names it."""

from __future__ import annotations

import array
import collections
import contextlib
import contextvars
import ctypes
import decimal
import enum
import functools
import io
import itertools
import logging
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
    "tuple": lambda: iter((2, 3)),
    "range": lambda: iter(range(2, 4)),
    "dict": lambda: iter({2: 0, 3: 0}),
    "set": lambda: iter({2, 3}),
    "deque": lambda: iter(collections.deque([2, 3])),
    "reversed": lambda: reversed([3, 2]),
    "zip": lambda: map(sum, zip([1, 1], [1, 2], strict=True)),
    "islice of cycle": lambda: itertools.islice(itertools.cycle([2, 3]), 2),
    "one iterator twice": lambda: map(lambda a, b: a + b, *[iter([1, 1, 1, 2])] * 2),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_that_is_used_up_is_as_before(name: str) -> None:
    def program(x: Tensor, factors: Iterator[int]) -> Tensor:
        for factor in factors:
            x = x * factor
        return x + 0

    factors = ITERATORS[name]()
    capture = captured(program, torch.ones(3), factors)
    assert torch.equal(bp.replay(capture).outputs, torch.full((3,), 6.0))
    assert list(factors) == [2, 3]


def test_an_iterator_is_given_back_to_every_place() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.box = iter([2.0, 3.0]), [iter([5.0])]

        def forward(self, x: Tensor) -> Tensor:
            return x * sum(self.one) * next(self.box[0])

    net = Net()
    one, other = net.one, net.box[0]
    capture = captured(net, torch.ones(2))
    assert torch.equal(bp.replay(capture).outputs, torch.full((2,), 25.0))
    assert net.one is one
    assert net.box[0] is other
    assert list(one) == [2.0, 3.0]
    assert list(other) == [5.0]


@pytest.mark.parametrize("make", [lambda: (k for k in [2, 3]), lambda: itertools.tee([2, 3])[0]])
@pytest.mark.parametrize("fake", [False, True])
def test_an_iterator_without_a_copy_is_refused_before_it_runs(make: Callable[[], Any], fake: bool) -> None:
    factors = make()
    with pytest.raises(bp.errors.CaptureError, match=r"holds an iterator .* pass its items as an argument"):
        bp.capture(lambda x, given: x * sum(given), torch.ones(3), factors, fake=fake)
    assert list(factors) == [2, 3]


def test_an_iterator_in_a_place_that_holds_no_copy_is_refused() -> None:
    held = (iter([2, 3]),)
    with pytest.raises(bp.errors.CaptureError, match="cannot hold a copy"):
        bp.capture(lambda x: x * sum(held[0]), torch.ones(3))
    assert list(held[0]) == [2, 3]


# ------------------------------------------------------------------ functools.lru_cache


@pytest.mark.parametrize("options", [{}, {"fake": True}, {"engine": "aot"}, {"engine": "dynamo"}])
@pytest.mark.parametrize("size", [None, 4])
def test_a_cache_has_the_entries_of_before(size: int | None, options: dict[str, Any]) -> None:
    @functools.lru_cache(size)
    def table(n: int) -> Tensor:
        return torch.arange(float(n))

    before = table(2)
    bp.capture(lambda x: x * table(3), torch.ones(3), **options)
    assert table.cache_info().currsize == 1
    assert table(2) is before
    assert type(table(3)) is Tensor


def test_entries_that_were_pushed_out_are_named() -> None:
    @functools.lru_cache(1)
    def table(n: int) -> Tensor:
        return torch.arange(float(n))

    table(2)
    with pytest.warns(UserWarning, match="table .*pushed out"):
        bp.capture(lambda x: x * table(3), torch.ones(3))
    assert table.cache_info().currsize == 0


# ------------------------------------------------------------------ everything else that is restored


class Slots:
    __slots__ = ("late", "n")

    def __init__(self) -> None:
        self.n = 1


class Local(threading.local):
    n = 1


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: Any) -> None:
        self.records.append(record)


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
    "hook on a module": lambda: hooked(lambda net, hook: net.register_full_backward_pre_hook(hook)),
    "hook after accumulation": lambda: hooked(lambda net, hook: net.weight.register_post_accumulate_grad_hook(hook)),
    "OrderedDict": lambda: of(lambda d: d.move_to_end("a"), list)(collections.OrderedDict(a=1, b=2)),
    "Queue": lambda: of(lambda q: q.put(q.get()), lambda q: (q.qsize(), q.unfinished_tasks))(queued(queue.Queue())),
    "SimpleQueue": lambda: of(lambda q: q.put(1), lambda q: q.qsize())(queued(queue.SimpleQueue())),
    "new ContextVar": lambda: of(set_new_variable, lambda v: v.get(None))(contextvars.ContextVar("new")),
    "ContextVar": lambda: of(lambda v: v.set(v.get() + 1), lambda v: v.get())(contextvars.ContextVar("v", default=1)),
    "thread local": lambda: of(lambda t: setattr(t, "n", t.n + 1), lambda t: t.n)(Local()),
    "Event": lambda: of(lambda e: e.set(), lambda e: e.is_set())(threading.Event()),
    "array": lambda: of(lambda a: a.append(1), list)(array.array("d", [1])),
    "ctypes": lambda: of(lambda c: setattr(c, "value", 3), lambda c: c.value)(ctypes.c_int(1)),
    "memoryview": lambda: of(lambda m: m.__setitem__(0, 3), lambda m: m[0])(memoryview(bytearray(8))),
    "StringIO": lambda: of(lambda f: (f.read(1), f.write("z")), lambda f: (f.getvalue(), f.tell()))(io.StringIO("abc")),
    "BytesIO": lambda: of(lambda f: f.read(1), lambda f: f.tell())(io.BytesIO(b"abcd")),
    "slots": lambda: of(slots_change, lambda s: (s.n, hasattr(s, "late")))(Slots()),
    "WeakSet": lambda: of(lambda s: s.add(Slots), len)(weakref.WeakSet()),
    "defaultdict": lambda: of(lambda d: d["k"].append(1), dict)(collections.defaultdict(list)),
    "subclass of Random": lambda: of(lambda r: r.random(), lambda r: r.getstate())(type("R", (random.Random,), {})(0)),
    "exception": lambda: of(lambda e: e.args[0].append(1), lambda e: len(e.args[0]))(ValueError([1])),
    "logger": lambda: logged(),
}


def hooked_by_method() -> tuple[Program, Callable[[], Any]]:
    log: list[Any] = []
    net = nn.Linear(3, 3)
    net.weight.register_hook(log.append)
    return net, lambda: len(log)


def logged() -> tuple[Program, Callable[[], Any]]:
    logger, handler = logging.getLogger("backprint-test.state"), Kept()
    logger.parent.addHandler(handler) if logger.parent else None
    logger.propagate = True
    return lambda x: then(logger.warning("it runs"), x * 2), lambda: len(handler.records)


@pytest.mark.parametrize("name", STATE)
def test_state_is_as_before(name: str) -> None:
    handlers = list(logging.getLogger().handlers)
    program, state = STATE[name]()
    try:
        before = state()
        captured(program, torch.ones(3, requires_grad=True))
        assert state() == before
    finally:
        logging.getLogger().handlers[:] = handlers  # every later capture in this process would look into one's own


def test_a_module_that_the_program_imports_is_as_after_its_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_late.py").write_text("n = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def program(x: Tensor) -> Tensor:
        import imported_late

        imported_late.n += 1
        return x * imported_late.n

    capture = captured(program, torch.ones(3))
    assert sys.modules.pop("imported_late").n == 1
    assert torch.equal(bp.replay(capture).outputs, torch.full((3,), 2.0))


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


def test_a_file_has_its_position_and_one_that_is_written_is_named(tmp_path: Path) -> None:
    place = tmp_path / "lines"
    place.write_text("2\n3\n5\n")
    with place.open() as file:
        captured(lambda x: x * float(next(file)), torch.ones(3))
        assert file.tell() == 0
    with place.open("a") as log, pytest.warns(UserWarning, match="bytes and had 6"):
        bp.capture(lambda x: then(log.write("7\n"), x * 2), torch.ones(3))


def test_a_warning_is_shown_again_after_a_capture() -> None:
    def program(x: Tensor) -> Tensor:
        warnings.warn("once", stacklevel=1)
        return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bp.capture(program, torch.ones(3))
    with pytest.warns(UserWarning, match="once"):
        program(torch.ones(3))


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


@pytest.fixture
def threads_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out threads that tests before this one left running, as Ray's driver does."""
    frames_of_threads, before = sys._current_frames, set(sys._current_frames()) - {threading.get_ident()}
    own = lambda: {ident: frame for ident, frame in frames_of_threads().items() if ident not in before}  # noqa: E731
    monkeypatch.setattr(sys, "_current_frames", own)


@pytest.mark.usefixtures("threads_of_this_test")
def test_the_process_is_as_it_was() -> None:
    torch.distributions.Distribution.set_default_validate_args(True)  # Dynamo turns it off the first time that it runs
    kind, lock = enum.Enum("Kind", {"A": 1}), threading.Lock()
    largest = functools.partial(max, 1)

    def program(x: Tensor) -> Tensor:
        vars(kind["A"])["seen"] = True
        largest.keywords["key"] = abs
        decimal.getcontext().prec = 5
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        torch.set_warn_always(True)
        torch.distributions.Distribution.set_default_validate_args(False)
        lock.acquire(blocking=False)
        return x * 2

    bp.capture(program, torch.ones(3))
    assert not hasattr(kind["A"], "seen")
    assert not largest.keywords
    assert decimal.getcontext().prec == 28
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    assert not torch.is_warn_always_enabled()
    with pytest.raises(ValueError, match="invalid values"):
        torch.distributions.Normal(0.0, -1.0)
    assert not lock.locked()


def test_a_name_among_the_builtins_is_taken_back() -> None:
    """Their dictionary is emptied and filled again, and between the two no builtin can be called."""
    names: dict[str, Any] = {}
    exec("def program(x):\n    __builtins__['added'] = 1\n    return x * 2\n", names)
    assert bp.capture(names["program"], torch.ones(3, requires_grad=True)).verify()[0].verdict == "bitwise"
    assert "added" not in names["__builtins__"]
    assert "zip" in names["__builtins__"]


@pytest.mark.usefixtures("threads_of_this_test")
@pytest.mark.parametrize("runs", [False, True])
def test_a_lock_is_released_unless_another_thread_that_runs_may_hold_it(runs: bool) -> None:
    """A worker of an executor that waits for work holds none: Inductor leaves such threads in a process."""
    lock, begun, end = threading.Lock(), threading.Event(), threading.Event()
    told: Any = pytest.warns(UserWarning, match=r"lock \(lock\): it was taken or released, while other threads ran")
    with ThreadPoolExecutor(1) as executor:
        executor.submit(begun.clear).result()
        if runs:
            executor.submit(lambda: (begun.set(), end.wait(60)))
            begun.wait(60)
        try:
            with told if runs else contextlib.nullcontext():
                bp.capture(lambda x: then(lock.acquire(blocking=False), x * 2), torch.ones(3))
        finally:
            end.set()
    assert lock.locked() is runs


def test_a_generator_in_a_closure_is_refused_by_name() -> None:
    items = (number for number in (2, 3))
    with pytest.raises(bp.errors.CaptureError, match=r"holds an iterator .generator items.*cannot"):
        bp.capture(lambda x: x * sum(items), torch.ones(3))


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
