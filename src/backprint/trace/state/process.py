"""The process-wide settings that change a program's numbers, and are restored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributions import Distribution

from backprint._torch import process_state
from backprint._torch.modes import set_grad_mode
from backprint.values.settings import flushes_denormals


def _autocast() -> tuple[Any, ...]:
    """Return the state of autocast: for each kind of device whether it is on and its dtype; and whether casts are
    cached."""
    kinds = [kind for kind in ("cpu", "cuda", "xpu", "mps") if torch.amp.is_autocast_available(kind)]
    flags = tuple((kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds)
    return flags, torch.is_autocast_cache_enabled()


def _set_autocast(state: tuple[Any, ...]) -> None:
    """Set the state that `_autocast` returned."""
    flags, caches = state
    for kind, on, dtype in flags:
        torch.set_autocast_enabled(kind, on)
        torch.set_autocast_dtype(kind, dtype)
    torch.set_autocast_cache_enabled(caches)


def _set_global_device(context: Any) -> None:
    """Set the default device that `default_device_context` returned as a mode; None for torch's own default."""
    torch.set_default_device(None if context is None else context.device)


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
"""The settings in GLOBALS that are set as at capture for each later run of the program, so that its numbers are
equal."""

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
    "flash": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "math": (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    "efficient": (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    "mkldnn": (lambda: torch.backends.mkldnn.enabled, lambda on: torch.backends.mkldnn.set_flags(on)),
    "cudnn deterministic": (
        lambda: torch.backends.cudnn.deterministic,
        lambda on: setattr(torch.backends.cudnn, "deterministic", on),
    ),
    "default device": (process_state.default_device_context, _set_global_device),
    "grad mode": (torch.is_grad_enabled, set_grad_mode),
    # `torch.distributions` validates arguments by default; Dynamo turns that off the first time that it runs.
    "validation": (
        process_state.distributions_validate,
        Distribution.set_default_validate_args,
    ),
    "parametrizations": (process_state.parametrization_cache, process_state.set_parametrization_cache),
}
"""The settings that are restored after each run, each with the functions that read and set it. Any other setting that a
program changes is not restored; a warning names a few of those (`named`)."""


@contextlib.contextmanager
def restoring_globals() -> Iterator[None]:
    """Restore the settings in GLOBALS afterwards."""
    values = {name: read() for name, (read, _) in GLOBALS.items()}
    try:
        yield
    finally:
        for name, (read, set_value) in GLOBALS.items():
            if read() != values[name]:
                set_value(values[name])
