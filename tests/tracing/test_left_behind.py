"""What a run of the program leaves behind: put back before the next run, or named, and a wrong capture is refused."""

from __future__ import annotations

import gc
import hashlib
import inspect
import logging
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import backprint as bp


def then(_: Any, value: Any) -> Any:
    """The second of two values."""
    return value


def nothing(*args: Any) -> None:
    """Does nothing."""


class Meter:
    """A class whose special method a program replaces."""

    def __mul__(self, other: float) -> float:
        return other * 2


class Thread(threading.Thread):
    """A thread with an attribute of the user's."""

    n = 0


def by_meter(x: Tensor) -> Tensor:
    y = x * (Meter() * 1.0)
    Meter.__mul__ = lambda self, other: other * 3  # type: ignore[method-assign]  # as a program does
    return y


def by_module(x: Tensor) -> Tensor:
    made: Any = sys.modules.setdefault("backprint_test_made", types.ModuleType("backprint_test_made"))
    made.n = getattr(made, "n", 1) + 1
    return x * made.n


def by_functional(x: Tensor) -> Tensor:
    y = F.relu(x)
    F.relu = lambda x: x * 5  # type: ignore[assignment]  # as libraries of kernels do
    return y


def by_tensor_method(x: Tensor) -> Tensor:
    y = x * (3 if hasattr(Tensor, "twice_of_test") else 2)
    Tensor.twice_of_test = nothing  # type: ignore[attr-defined]  # as a program does
    return y


def by_numpy(x: Tensor) -> Tensor:
    return then(np.seterr(divide="ignore"), x * (2 if np.geterr()["divide"] == "ignore" else 3))


HELD = torch.zeros(4).untyped_storage()
THREAD = Thread()

TENSOR = torch.ones(2)
LAZY: Any = types.ModuleType("backprint_test_lazy")


def signed(v: Any = None) -> None:
    """A function whose signature is set by hand."""


signed.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # as decorators do
    [inspect.Parameter("v", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=[1])]
)


def default_of_signed() -> list[int]:
    """The default in the signature."""
    default: list[int] = inspect.signature(signed).parameters["v"].default
    return default


def lazily(items: list[int]) -> Any:
    """A module's function for names that it does not have; it counts them."""

    def named(name: str) -> int:
        items.append(1)
        return len(items)

    return named


ASKED: list[int] = [1]
LAZY.__getattr__ = lazily(ASKED)


def by_class_of_tensor(x: Tensor) -> Tensor:
    scale = 3 if isinstance(TENSOR, nn.Parameter) else 2
    TENSOR.__class__ = nn.Parameter
    return x * scale


RESTORED: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[], Any]]] = {
    "numpy's errors": (by_numpy, np.geterr),
    "a storage": (lambda x: x * then(HELD.__setitem__(0, HELD[0] + 1), HELD[0]), lambda: bytes(HELD.tolist())),
    "a special method": (by_meter, lambda: Meter.__mul__),
    "a default in a signature": (
        lambda x: x * len(then(default_of_signed().append(1), default_of_signed())),
        lambda: list(default_of_signed()),
    ),
    "the class of a tensor": (by_class_of_tensor, lambda: type(TENSOR)),
    "an attribute of a thread": (lambda x: x * then(setattr(THREAD, "n", THREAD.n + 1), THREAD.n), lambda: THREAD.n),
}

OWN: dict[str, Callable[[Tensor], Tensor]] = {
    "sys.path": lambda x: then(sys.path.append("/nowhere"), x * sys.path.count("/nowhere")),
    "gc.callbacks": lambda x: then(gc.callbacks.append(nothing), x * len(gc.callbacks)),
    "a module made by hand": by_module,
    "a name of a level": lambda x: (
        x * len(then(logging.addLevelName(17, logging.getLevelName(17) + "a"), logging.getLevelName(17)))
    ),
    "a function of torch": by_functional,
    "a method of Tensor": by_tensor_method,
    "a module that answers itself": lambda x: x * LAZY.size,
}
"""What is the program's own business: it is not restored, and no capture is right because nobody looked."""


@contextmanager
def put_back() -> Iterator[None]:
    """What the programs above do to the process ends with the block: later tests run in it."""
    relu, times, errors, name, path = F.relu, Meter.__mul__, np.geterr(), logging.getLevelName(17), list(sys.path)
    held = HELD[0]
    try:
        yield
    finally:
        F.relu, Meter.__mul__ = relu, times  # type: ignore[method-assign]  # they were replaced
        np.seterr(**errors)
        logging.addLevelName(17, name)
        sys.path[:] = path
        gc.callbacks[:] = [callback for callback in gc.callbacks if callback is not nothing]
        sys.modules.pop("backprint_test_made", None)
        HELD[0] = held
        if hasattr(Tensor, "twice_of_test"):
            del Tensor.twice_of_test
        vars(THREAD).pop("n", None)
        TENSOR.__class__ = Tensor
        default_of_signed()[:], ASKED[:] = [1], [1]


@pytest.mark.parametrize("what", RESTORED)
def test_each_run_begins_as_the_first_did(what: str) -> None:
    program, state = RESTORED[what]
    bp.capture(lambda x: x, torch.randn(2))  # torch imports machinery in the first capture
    before, x = state(), torch.randn(3)
    capture = bp.capture(program, x)
    assert [each.verdict for each in capture.verify()] == ["bitwise"]
    assert state() == before
    outputs = bp.replay(capture, x).outputs
    with put_back():
        assert torch.equal(outputs, program(x))


def refusal_or_verdict(program: Callable[[Tensor], Tensor]) -> str:
    try:
        return bp.capture(program, torch.randn(3)).verify()[0].verdict
    except bp.errors.CaptureError as error:
        return str(error)


@pytest.mark.parametrize("what", OWN)
def test_a_program_whose_results_depend_on_what_is_not_restored_is_never_right(what: str) -> None:
    with put_back(), pytest.warns(UserWarning, match="has changed what cannot be restored"):
        outcome = refusal_or_verdict(OWN[what])
    assert outcome in ("unproven", "wrong") or "another result when it runs again" in outcome


def test_an_array_that_is_given_another_shape_is_named() -> None:
    array = np.zeros((2, 3))
    with pytest.warns(UserWarning, match=r"array \(ndarray\): its layout was changed"):
        bp.capture(lambda x: then(setattr(array, "shape", (6,)), x * 2), torch.randn(3))


class Once:
    """A state that no picture of Python's objects has: of the first call it is left changed."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.first = self.digest.hexdigest()

    def __call__(self, x: Tensor) -> Tensor:
        y = x * (2 if self.digest.hexdigest() == self.first else 3)
        self.digest.update(b"a")
        return y


@pytest.mark.parametrize("engine", ["auto", "aot", "eager"])
def test_a_program_whose_first_run_changes_the_later_ones_is_refused(engine: str) -> None:
    once = Once()
    with (
        pytest.warns(UserWarning, match=r"has changed what cannot be restored: once\.digest \(_hashlib\.HASH\)"),
        pytest.raises(bp.errors.CaptureError, match="another result when it runs again"),
    ):
        bp.capture(lambda x: once(x), torch.randn(3), engine=engine)


def test_a_program_that_raises_in_its_second_run_is_refused_by_name(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def program(x: Tensor) -> Tensor:
        if mark.exists():
            raise RuntimeError("only once")
        mark.touch()
        return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(bp.errors.CaptureError, match=r"ran once, and raises when it runs again.*only once"):
            bp.capture(program, torch.randn(3))


def test_a_program_that_maps_a_file_is_refused_before_it_writes_there(tmp_path: Path) -> None:
    path = tmp_path / "table.bin"
    np.arange(1, 5, dtype="f4").tofile(path)

    def program(x: Tensor) -> Tensor:
        table = torch.from_file(str(path), shared=True, size=4)
        table += 1
        return x * table

    with pytest.raises(
        bp.errors.CaptureError, match=r"maps the file .*table\.bin with torch\.from_file.*a graph reads no files"
    ):
        bp.capture(program, torch.randn(4))
    assert np.fromfile(path, dtype="f4").tolist() == [1, 2, 3, 4]


def test_a_storage_that_the_program_frees_is_at_another_address_and_told() -> None:
    class Gathering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(64, 64))

        def forward(self, x: Tensor) -> Tensor:
            kept, storage = self.w.detach().clone(), self.w.data.untyped_storage()
            size = storage.nbytes()
            storage.resize_(0)
            block = torch.empty(size, dtype=torch.uint8)  # takes the place that was freed
            storage.resize_(size)
            self.w.data.copy_(kept)
            return x @ self.w + block.numel() * 0

    model = Gathering()
    before = model.w.detach().clone()
    with pytest.warns(UserWarning, match=r"w \(Parameter\): its storage was freed"):
        bp.capture(model, torch.randn(2, 64))
    assert torch.equal(model.w.detach(), before)


def test_the_values_that_a_scripted_function_reads_are_held() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated

        @torch.jit.script
        def second(x: Tensor) -> float:
            values: list[float] = x.tolist()
            return values[1]

    x = torch.tensor([1.0, 2.0])
    capture = bp.capture(lambda x: x * second(x), x)
    assert capture.verify()[0].verdict == "bitwise"
    with pytest.raises(bp.errors.GuardError, match=r"assert equal == True.* does not hold"):
        bp.replay(capture, torch.tensor([1.0, 3.0]))


def test_a_parameter_that_is_frozen_after_its_last_use_has_no_gradient() -> None:
    class Freezing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(3))

        def forward(self, x: Tensor) -> Tensor:
            y = x * self.w
            self.w.requires_grad_(False)
            return y

    x = torch.randn(3)
    capture = bp.capture(Freezing(), x)
    assert bp.replay(capture, x, tangents=[torch.ones(3)]).gradients == {"w": None}


def test_a_sequence_of_seeds_is_no_generator() -> None:
    seeds = np.random.SeedSequence(3)
    assert bp.capture(lambda x: x * int(seeds.generate_state(1)[0] % 7), torch.ones(2)).engine == "eager"
