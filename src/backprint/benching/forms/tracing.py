"""Compute a value while a graph is traced, so that the graph has it as a constant.

Private torch APIs of this module, tried on torch 2.11 to 2.14.1:
`torch.fx.experimental.proxy_tensor.disable_proxy_modes_tracing`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing


def untraced() -> AbstractContextManager[None]:
    """Return a context in which torch.fx's tracing records no call."""
    return disable_proxy_modes_tracing()
