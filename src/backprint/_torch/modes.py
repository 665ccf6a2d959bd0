"""Modes that are active. Tried on torch 2.13.0 and 2.15.0."""

from __future__ import annotations

from torch.utils import _python_dispatch


def dispatch_modes() -> list[object]:
    """Return the `TorchDispatchMode`s that are active in this thread, the outermost first."""
    return list(_python_dispatch._get_current_dispatch_mode_stack())
