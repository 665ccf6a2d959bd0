"""What a replay depends on besides its inputs: recorded at capture, put back for a proof, named when it differs."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import platform
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from backprint.version import __version__

ONE_AT_A_TIME = threading.RLock()
"""Held while a program is traced or proved: both touch what torch keeps process-wide, so threads take turns."""

Setting = tuple[Callable[[], object], Callable[[str], object]]


def _set_mkldnn(text: str) -> None:
    torch.backends.mkldnn.set_flags(text == "True")


SETTINGS: Mapping[str, Setting] = {
    "default_dtype": (
        lambda: str(torch.get_default_dtype())[6:],
        lambda text: torch.set_default_dtype(getattr(torch, text)),
    ),
    "threads": (torch.get_num_threads, lambda text: torch.set_num_threads(int(text))),
    "deterministic": (
        torch.are_deterministic_algorithms_enabled,
        lambda text: torch.use_deterministic_algorithms(text == "True"),
    ),
    "float32_matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "flash_sdp": (
        torch.backends.cuda.flash_sdp_enabled,
        lambda text: torch.backends.cuda.enable_flash_sdp(text == "True"),
    ),
    "math_sdp": (
        torch.backends.cuda.math_sdp_enabled,
        lambda text: torch.backends.cuda.enable_math_sdp(text == "True"),
    ),
    "mkldnn": (lambda: torch.backends.mkldnn.enabled, _set_mkldnn),
}
"""What can be put back: how to read it, and how to set it from its text."""

FACTS: Mapping[str, Callable[[], object]] = {
    "backprint": lambda: __version__,
    "torch": lambda: torch.__version__,
    "python": platform.python_version,
    "machine": platform.machine,
    "cpu_capability": torch.backends.cpu.get_cpu_capability,
    "autocast": lambda: torch.is_autocast_enabled("cpu"),
}
"""What is as it is."""


def read_settings() -> tuple[tuple[str, str], ...]:
    """Everything as it is now."""
    readers = {**FACTS, **{name: read for name, (read, _) in SETTINGS.items()}}
    return tuple((name, str(read())) for name, read in readers.items())


@contextlib.contextmanager
def restored(recorded: Mapping[str, str]) -> Iterator[None]:
    """The settings as they were recorded, and back afterwards. A value that this torch refuses stays as it is."""
    before = {name: str(read()) for name, (read, _) in SETTINGS.items()}
    try:
        for name, (_, put) in SETTINGS.items():
            if name in recorded and recorded[name] != before[name]:
                with contextlib.suppress(ValueError, RuntimeError):
                    put(recorded[name])
        yield
    finally:
        for name, (read, put) in SETTINGS.items():
            if str(read()) != before[name]:
                put(before[name])


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No search for garbage: tracing makes objects by the million and keeps them, and each search walks them all."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def settings_differences(recorded: Mapping[str, str]) -> list[str]:
    """What is other now than recorded, in words; the settings among it could not be put back."""
    now = dict(read_settings())
    return [f"{name} {then}, now {now[name]}" for name, then in recorded.items() if name in now and now[name] != then]


# ------------------------------------------------------------------ random states


@contextlib.contextmanager
def quiet_random() -> Iterator[None]:
    """Every random state as it was: torch's on every device, numpy's, Python's."""
    cpu = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    foreign = foreign_states()
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        put_foreign(foreign)


def foreign_states() -> dict[str, Any]:
    """The states of Python's random numbers, and of numpy's where it is imported."""
    numpy = sys.modules.get("numpy")
    return {"random": random.getstate()} | ({} if numpy is None else {"numpy.random": numpy.random.get_state()})


def put_foreign(states: Mapping[str, Any]) -> None:
    """Set the states of Python's and numpy's random numbers."""
    random.setstate(states["random"])
    if "numpy.random" in states:
        sys.modules["numpy"].random.set_state(states["numpy.random"])


def random_state_digest(state: Any) -> str:
    """A random state in 16 hex digits."""
    return hashlib.sha256(repr(hashable_state(state)).encode()).hexdigest()[:16]


def hashable_state(state: Any) -> Any:
    """A random state with bytes in the place of its arrays: numpy's states have some."""
    if isinstance(state, Mapping):
        return {key: hashable_state(item) for key, item in state.items()}
    if isinstance(state, (tuple, list)):
        return tuple(map(hashable_state, state))
    return state.tobytes() if hasattr(state, "tobytes") else state


STATE_OF = "the state of "
"""How the name of a pin begins that holds a generator of numbers, and no input: no port has such a name."""

OWN = "generator "
"""How the name of a generator begins that a program reaches itself; it lives no longer than the program."""
