"""TorchScript functions, whose interpreter reads values below all modes.

The function under *Probes* tries what this file takes a private name to do, and returns whether it does that on this
torch (`private`).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from backprint._torch.private import CAPTURE, Probe

SCRIPTS = (torch._C.ScriptFunction, torch._C.ScriptMethod)
"""The classes of scripted functions and of methods of scripted modules."""


def is_method(function: Any) -> bool:
    """Whether a scripted function is a method of a scripted module, which has tensors of its own."""
    return isinstance(function, torch._C.ScriptMethod)


@contextlib.contextmanager
def scripts_seen(note: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Iterator[None]:
    """In this block, call `note(function, args, kwargs)` before each scripted function runs that reads values with
    `tolist`.

    It is the one operator of TorchScript that reads a tensor's values without calling an operator of ATen.
    """
    before = [kind.__call__ for kind in SCRIPTS]  # replaced on the classes, because Python looks `__call__` up there

    def noted(plain: Any) -> Any:
        """Return a `__call__` that notes such a function and calls `plain`, torch's own `__call__`."""

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            """Note a call of a script that reads values with `tolist`, and run it."""
            try:
                # With the functions that it calls, where torch can inline them.
                graph = self.inlined_graph if hasattr(self, "inlined_graph") else self.graph
            except RuntimeError:  # a method of a class of C++, such as a reduction's: it has no graph
                return plain(self, *args, **kwargs)
            if graph.findAllNodes("prim::tolist"):
                note(self, args, kwargs)
            return plain(self, *args, **kwargs)

        return call

    for kind, plain in zip(SCRIPTS, before, strict=True):
        kind.__call__ = noted(plain)
    try:
        yield
    finally:
        for kind, plain in zip(SCRIPTS, before, strict=True):
            kind.__call__ = plain


# ---- Probes


def scripts_are_seen() -> bool:
    """Whether a scripted function that reads values by `tolist` is noted when it is called."""

    def doubled(x: torch.Tensor) -> list[float]:
        values: list[float] = x.tolist()
        return values

    seen: list[object] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        scripted = torch.jit.script(doubled)
    with scripts_seen(lambda function, args, kwargs: seen.append(function)):
        scripted(torch.zeros(1))
    return seen == [scripted]


PROBES = (Probe("torch._C.ScriptFunction", scripts_are_seen, (CAPTURE,)),)
