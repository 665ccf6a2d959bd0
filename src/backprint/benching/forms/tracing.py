"""Compute a value while a graph is traced, so that the graph has it as a constant."""

from __future__ import annotations

from contextlib import AbstractContextManager

from backprint._torch.graphs import without_tracing


def untraced() -> AbstractContextManager[None]:
    """Return a context in which torch.fx's tracing records no call."""
    return without_tracing()
