"""Modes that are active. Tried on torch 2.13.0 and 2.15.0."""

from __future__ import annotations

from torch.utils import _python_dispatch


def dispatch_modes() -> list[object]:
    """Return the `TorchDispatchMode`s that are active in this thread, the outermost first."""
    return list(_python_dispatch._get_current_dispatch_mode_stack())


def users_dispatch_mode() -> str | None:
    """Return the class of an active dispatch mode that is neither torch's nor Backprint's; None if there is none."""
    for mode in dispatch_modes():
        if type(mode).__module__.partition(".")[0] not in ("torch", "backprint"):
            return type(mode).__qualname__
    return None
