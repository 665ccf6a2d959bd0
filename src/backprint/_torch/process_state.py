"""State that PyTorch keeps for the whole process and has no public getter for.

`@uses` says which private names a function needs, and `needed_by` for which commands: a call raises PrivateApiError if
this torch lacks one (`private`). Each function under *Probes* tries what this file takes a private name to do, and
returns whether it does that on this torch.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch.distributions import Distribution
from torch.nn.utils import parametrize

from backprint._torch.private import CAPTURE, Probe, probes_of, uses

_HOOKS = "_global_"
"""How the names begin under which `torch.nn.modules.module` has the hooks for every module."""


@uses("torch.distributions.Distribution._validate_args", needed_by=(CAPTURE,))
def distributions_validate() -> bool:
    """Whether `torch.distributions` validates arguments by default, as `set_default_validate_args` says."""
    return Distribution._validate_args


@uses("torch.nn.utils.parametrize._cache_enabled", "torch.nn.utils.parametrize._cache", needed_by=(CAPTURE,))
def parametrization_cache() -> tuple[int, dict[Any, Any]]:
    """Return how many `parametrize.cached()` blocks are open, and the tensors that they keep."""
    return parametrize._cache_enabled, dict(parametrize._cache)


def set_parametrization_cache(state: tuple[int, dict[Any, Any]]) -> None:
    """Set the state that `parametrization_cache` returned."""
    parametrize._cache_enabled, tensors = state
    parametrize._cache.clear()
    parametrize._cache.update(tensors)


def module_hooks() -> list[dict[Any, Any]]:
    """Return the tables of the hooks that run for every module (`register_module_forward_hook`)."""
    # Flags have names of this kind too, such as `_global_is_full_backward_hook`: only the tables are returned.
    names = vars(torch.nn.modules.module)
    return [table for name, table in names.items() if name.startswith(_HOOKS) and type(table) is OrderedDict]


@uses("torch._GLOBAL_DEVICE_CONTEXT", needed_by=(CAPTURE,))
def default_device_context() -> Any:
    """Return the mode that `torch.set_default_device` has set; None for the default. Its `device` is the device."""
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


# ---- Probes


def validation_is_read() -> bool:
    before = distributions_validate()
    try:
        Distribution.set_default_validate_args(not before)
        return distributions_validate() is not before
    finally:
        Distribution.set_default_validate_args(before)


def parametrization_is_read() -> bool:
    open_before, _ = parametrization_cache()
    with parametrize.cached():
        return parametrization_cache()[0] == open_before + 1


def module_hooks_are_read() -> bool:
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    try:
        return any(handle.id in table for table in module_hooks())
    finally:
        handle.remove()


def default_device_is_read() -> bool:
    before = default_device_context()
    try:
        torch.set_default_device("meta")
        return default_device_context().device.type == "meta"
    finally:
        torch.set_default_device(None if before is None else before.device)


PROBES = probes_of(
    __name__,
    {},
    Probe("torch.distributions.Distribution._validate_args", validation_is_read, (CAPTURE,)),
    Probe("torch.nn.utils.parametrize._cache", parametrization_is_read, (CAPTURE,)),
    Probe("torch.nn.modules.module._global_*", module_hooks_are_read, (CAPTURE,)),
    Probe("torch._GLOBAL_DEVICE_CONTEXT", default_device_is_read, (CAPTURE,)),
)
