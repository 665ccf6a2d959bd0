"""State of the whole process that a program can change: random generators, and settings of torch and Python."""

from __future__ import annotations

import contextlib
import decimal
import gc
import locale
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributions import Distribution

from backprint._torch import process_state
from backprint._torch.modes import set_grad_mode
from backprint._torch.tensors import print_options, set_print_options
from backprint.tracing.state.contents import read_context, restore_context
from backprint.values.settings import flushes_denormals

# ---- Random generators: torch's, Python's and numpy's


def _numpy_state(source: Any) -> Any:
    """Return the state of a numpy generator; of a SeedSequence, from which no number is drawn, nothing."""
    if hasattr(source, "spawn_key"):
        return None
    return source.bit_generator.state if hasattr(source, "bit_generator") else getattr(source, "state", None)


def _set_numpy_state(source: Any, state: Any) -> None:
    holder = source.bit_generator if hasattr(source, "bit_generator") else source
    if state is not None:
        holder.state = state


GENERATORS: dict[Any, tuple[Callable[[Any], Any], Callable[[Any, Any], None]]] = {
    torch.Generator: (lambda source: source.get_state(), lambda source, state: source.set_state(state)),
    random.Random: (lambda source: source.getstate(), lambda source, state: source.setstate(state)),
    None: (
        lambda source: source.get_state() if hasattr(source, "get_state") else _numpy_state(source),
        lambda source, state: (
            source.set_state(state) if hasattr(source, "set_state") else _set_numpy_state(source, state)
        ),
    ),
}
"""How the state of a generator is read and set; None is for numpy's, which may not be installed."""


def is_generator(kind: Any) -> bool:
    """Whether objects of a class draw random numbers from a state of their own."""
    if issubclass(kind, random.SystemRandom):
        return False
    return issubclass(kind, (torch.Generator, random.Random)) or (kind.__module__ or "").startswith("numpy.random")


def generator_state(source: Any) -> Any:
    return GENERATORS[generator_base(source)][0](source)


def set_generator_state(source: Any, state: Any) -> None:
    GENERATORS[generator_base(source)][1](source, state)


def generator_base(source: Any) -> Any:
    return next((base for base in (torch.Generator, random.Random) if isinstance(source, base)), None)


# ---- Process-wide settings


def _autocast() -> tuple[Any, ...]:
    kinds = [kind for kind in ("cpu", "cuda", "xpu", "mps") if torch.amp.is_autocast_available(kind)]
    flags = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)
    return flags, torch.is_autocast_cache_enabled()


def _set_autocast(state: tuple[Any, ...]) -> None:
    for kind, on, dtype in state[0]:
        torch.set_autocast_enabled(kind, on)
        torch.set_autocast_dtype(kind, dtype)
    torch.set_autocast_cache_enabled(state[1])


def _set_global_device(context: Any) -> None:
    torch.set_default_device(None if context is None else context.device)


def _set_environment(wanted: dict[str, str]) -> None:
    for key in set(os.environ) - set(wanted):
        del os.environ[key]
    for key, value in wanted.items():
        if os.environ.get(key) != value:
            os.environ[key] = value


def _set_filters(wanted: list[Any]) -> None:
    filters: Any = warnings.filters
    filters[:] = wanted


def _decimal() -> tuple[decimal.Context, Any]:
    context = decimal.getcontext()
    return context, read_context(context)


def _set_decimal(wanted: tuple[decimal.Context, Any]) -> None:
    decimal.setcontext(wanted[0])
    restore_context(*wanted)


def _signals() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _set_signals(wanted: dict[int, Any]) -> None:
    """Set the handlers that differ; in another thread than the main one nobody can, the program neither."""
    if threading.current_thread() is threading.main_thread():
        for number, handler in wanted.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)


PROCESS_LISTS: dict[str, list[Any]] = {
    "sys.path": sys.path,
    "sys.path_hooks": sys.path_hooks,
    "sys.meta_path": sys.meta_path,
    "sys.argv": sys.argv,
    "gc.callbacks": gc.callbacks,
}
"""Lists that Python keeps for the whole process, which programs append to."""


def _set_lists(wanted: dict[str, list[Any]]) -> None:
    for name, items in wanted.items():
        PROCESS_LISTS[name][:] = items


HOOKS = (
    (sys, "excepthook"),
    (sys, "unraisablehook"),
    (sys, "displayhook"),
    (sys, "breakpointhook"),
    (threading, "excepthook"),
    (sys, "stdin"),
    (sys, "stdout"),
    (sys, "stderr"),
)
"""Functions and files that Python calls by these names, which a program can replace."""


def _hooks() -> list[Any]:
    return [getattr(owner, name) for owner, name in HOOKS]


def _set_hooks(wanted: list[Any]) -> None:
    for (owner, name), value in zip(HOOKS, wanted, strict=True):
        if getattr(owner, name) is not value:
            setattr(owner, name, value)


def _set_modules(wanted: tuple[int, str]) -> None:
    """Take out the modules that a run has made by hand (they have no spec), unless it imported others as well, which
    may need them. New modules are the last ones."""
    new = list(sys.modules)[wanted[0] :]
    if all(getattr(sys.modules[name], "__spec__", None) is None for name in new):
        for name in new:
            del sys.modules[name]


def _interpreter() -> dict[str, Any]:
    """Return limits of the interpreter, and those of modules that are loaded."""
    state: dict[str, Any] = {
        "switch interval": sys.getswitchinterval(),
        "coroutines": sys.get_coroutine_origin_tracking_depth(),
        "frozen": gc.get_freeze_count(),
    }
    for name, (read, _) in LIMITS.items():
        if name in sys.modules:
            state[name] = read(sys.modules[name])
    return state


def _set_interpreter(wanted: dict[str, Any]) -> None:
    sys.setswitchinterval(wanted["switch interval"])
    sys.set_coroutine_origin_tracking_depth(wanted["coroutines"])
    if wanted["frozen"] == 0 and gc.get_freeze_count():
        gc.unfreeze()
    for name, (_, put) in LIMITS.items():
        if name in wanted:
            put(sys.modules[name], wanted[name])


def _set_tracing(module: Any, on: bool) -> None:
    if module.is_tracing() != on:
        (module.start if on else module.stop)()


LIMITS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "csv": (lambda csv: csv.field_size_limit(), lambda csv, limit: csv.field_size_limit(limit)),
    "socket": (lambda socket: socket.getdefaulttimeout(), lambda socket, limit: socket.setdefaulttimeout(limit)),
    "tracemalloc": (lambda module: module.is_tracing(), _set_tracing),
    "torch.hub": (lambda _: process_state.hub_folder(), lambda _, folder: process_state.set_hub_folder(folder)),
}
"""What modules keep for the process, if they are loaded: how it is read and set."""


def _numpy() -> tuple[Any, ...] | None:
    """Return how numpy handles errors and prints, and its buffer; None if it is not loaded."""
    numpy = sys.modules.get("numpy")
    return None if numpy is None else (numpy.geterr(), numpy.get_printoptions(), numpy.getbufsize())


def _set_numpy(wanted: tuple[Any, ...] | None) -> None:
    numpy = sys.modules.get("numpy")
    if numpy is not None and wanted is not None:
        numpy.seterr(**wanted[0])
        numpy.set_printoptions(**wanted[1])
        numpy.setbufsize(wanted[2])


SWITCHES = (
    "default dtype",
    "deterministic",
    "flush denormal",
    "matmul precision",
    "autocast",
    "flash",
    "math",
    "efficient",
    "mkldnn",
    "cudnn deterministic",
)
"""Settings that change a program's numbers: they are set again for each later run."""

GLOBALS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda state: torch.use_deterministic_algorithms(state[0], warn_only=state[1]),
    ),
    "flush denormal": (flushes_denormals, torch.set_flush_denormal),
    "matmul precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "autocast": (_autocast, _set_autocast),
    "anomaly": (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda state: torch.set_anomaly_enabled(*state),
    ),
    "flash": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "math": (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    "efficient": (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    "mkldnn": (lambda: torch.backends.mkldnn.enabled, lambda on: torch.backends.mkldnn.set_flags(on)),
    "cudnn deterministic": (
        lambda: torch.backends.cudnn.deterministic,
        lambda on: setattr(torch.backends.cudnn, "deterministic", on),
    ),
    "default device": (process_state.default_device_context, _set_global_device),
    "print options": (print_options, set_print_options),
    "environment": (lambda: dict(os.environ), lambda wanted: _set_environment(wanted)),
    "directory": (os.getcwd, os.chdir),
    "warning filters": (
        lambda: list(warnings.filters),
        lambda wanted: _set_filters(wanted),
    ),
    "recursion": (sys.getrecursionlimit, sys.setrecursionlimit),
    "grad mode": (torch.is_grad_enabled, set_grad_mode),
    "warning always": (torch.is_warn_always_enabled, torch.set_warn_always),
    "validation": (  # Dynamo turns it off the first time that it runs
        process_state.distributions_validate,
        Distribution.set_default_validate_args,
    ),
    "decimal context": (_decimal, _set_decimal),
    "collection": (gc.get_threshold, lambda numbers: gc.set_threshold(*numbers)),
    "collector": (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    "hooks": (_hooks, _set_hooks),
    "lists": (lambda: {name: list(items) for name, items in PROCESS_LISTS.items()}, _set_lists),
    "modules": (lambda: (len(sys.modules), next(reversed(sys.modules))), _set_modules),
    "locale": (lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    "interpreter": (_interpreter, _set_interpreter),
    "profile": (sys.getprofile, sys.setprofile),
    "numpy": (_numpy, _set_numpy),
    "signals": (_signals, _set_signals),
    "module hooks": (process_state.module_hooks, process_state.set_module_hooks),
    "parametrizations": (process_state.parametrization_cache, process_state.set_parametrization_cache),
}
"""Process-wide settings that a program can change, with how each is read and set."""


RESTORED_EACH_RUN = tuple(name for name in GLOBALS if name not in ("signals", "environment", "locale", "validation"))
"""The settings that are put back after each run; the others, which take longer to read, at the end of a capture."""


@contextlib.contextmanager
def restoring_globals() -> Iterator[None]:
    """Restore the process-wide settings afterwards."""
    values = {name: read() for name, (read, _) in GLOBALS.items()}
    try:
        yield
    finally:
        for name, (read, set_value) in GLOBALS.items():
            if read() != values[name]:
                set_value(values[name])
