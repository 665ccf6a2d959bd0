"""What PyTorch keeps for the whole process and has no public getter for.

Tried on torch 2.13.0 and 2.15.0.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.utils.parametrize
from torch.distributions import Distribution

_HOOKS = "_global_"


def distributions_validate() -> bool:
    """Whether `torch.distributions` validates arguments by default, as `set_default_validate_args` says."""
    return Distribution._validate_args


def parametrization_cache() -> tuple[int, dict[Any, Any]]:
    """Return how many `parametrize.cached()` blocks are open, and the tensors that they keep."""
    return torch.nn.utils.parametrize._cache_enabled, dict(torch.nn.utils.parametrize._cache)


def set_parametrization_cache(state: tuple[int, dict[Any, Any]]) -> None:
    """Set what `parametrization_cache` returned."""
    torch.nn.utils.parametrize._cache_enabled = state[0]
    torch.nn.utils.parametrize._cache.clear()
    torch.nn.utils.parametrize._cache.update(state[1])


def module_hooks() -> dict[str, Any]:
    """Return the hooks that run for every module (`register_module_forward_hook`), and the flag beside them."""
    kept = {name: each for name, each in vars(torch.nn.modules.module).items() if name.startswith(_HOOKS)}
    return {name: dict(each) if isinstance(each, dict) else each for name, each in kept.items()}


def set_module_hooks(state: dict[str, Any]) -> None:
    """Set what `module_hooks` returned."""
    registries = vars(torch.nn.modules.module)
    for name, hooks in state.items():
        if isinstance(hooks, dict):
            registries[name].clear()
            registries[name].update(hooks)
        else:
            registries[name] = hooks


def hub_folder() -> str | None:
    """Return the folder that `torch.hub.set_dir` has set; None for the default."""
    return torch.hub._hub_dir


def set_hub_folder(folder: str | None) -> None:
    """Set what `hub_folder` returned."""
    torch.hub._hub_dir = folder
