"""Whether the private APIs of this room do on this torch what their functions promise."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.distributions import Distribution
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode

from backprint._torch import inductor, modes, process_state, script, views


def validation_is_read() -> bool:
    before = process_state.distributions_validate()
    try:
        Distribution.set_default_validate_args(not before)
        return process_state.distributions_validate() is not before
    finally:
        Distribution.set_default_validate_args(before)


def parametrization_is_read() -> bool:
    open_before, _ = process_state.parametrization_cache()
    with parametrize.cached():
        return process_state.parametrization_cache()[0] == open_before + 1


def module_hooks_are_read() -> bool:
    before = process_state.module_hooks()
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    try:
        return process_state.module_hooks() != before
    finally:
        handle.remove()


def dispatch_modes_are_read() -> bool:
    with TorchDispatchMode() as mode:
        return modes.dispatch_modes()[-1:] == [mode]


def views_are_known() -> bool:
    base = torch.zeros(2)
    return views.is_view(base[:1]) and not views.is_view(base)


def hub_folder_is_read() -> bool:
    before = process_state.hub_folder()
    try:
        torch.hub.set_dir("/nowhere")
        return process_state.hub_folder() == "/nowhere"
    finally:
        process_state.set_hub_folder(before)


def scripts_are_seen() -> bool:
    def doubled(x: torch.Tensor) -> list[float]:
        values: list[float] = x.tolist()
        return values

    seen: list[object] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        scripted = torch.jit.script(doubled)
    with script.scripts_seen(lambda function, args, kwargs: seen.append(function)):
        scripted(torch.zeros(1))
    return seen == [scripted]


def compiler_is_taken_for_gxx() -> bool:
    with inductor.as_for_gxx():
        return inductor.taken_for_gxx()


PROBES: Mapping[str, Callable[[], bool]] = {
    "default validation of distributions": validation_is_read,
    "cache of parametrizations": parametrization_is_read,
    "hooks of every module": module_hooks_are_read,
    "active dispatch modes": dispatch_modes_are_read,
    "views": views_are_known,
    "folder of torch.hub": hub_folder_is_read,
    "reads in TorchScript": scripts_are_seen,
    "the C++ compiler that Inductor writes for": compiler_is_taken_for_gxx,
}
"""By what is read: whether it can be read on this torch."""


def broken_probes() -> dict[str, str]:
    """Return what cannot be read on this torch, with the reason."""
    reasons: dict[str, str] = {}
    for name, probe in PROBES.items():
        try:
            if not probe():
                reasons[name] = "it is read, and does not follow torch's public functions"
        except (AttributeError, ImportError, TypeError) as error:
            reasons[name] = f"{type(error).__name__}: {error}"
    return reasons
