"""Note the user's line and module path on every node that a torch call makes while AOTAutograd traces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch.fx.traceback as fx_traceback
from torch import Tensor
from torch.overrides import TorchFunctionMode

from backprint._torch.modes import DisableTorchFunction
from backprint.defects import for_program
from backprint.tracing import frames
from backprint.tracing.custom import through
from backprint.tracing.fake import on_present_devices
from backprint.tracing.running import with_others
from backprint.tracing.unseen import rewritten

OURS = "backprint"
"""The key of a node's metadata with our Source; True marks a copy that will be removed."""


class LineNotes(TorchFunctionMode):
    """While AOTAutograd traces, notes the user's line and module path on every node that a torch call makes.

    With a `table`, other tensors replace the program's own, which it may reach outside its module.
    """

    def __init__(self, paths: Mapping[int, str], fake: bool, table: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.paths, self.fake, self.table = paths, fake, table

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.table:
            args, kwargs = with_others(self.table, args), with_others(self.table, kwargs or {})
        if func.__name__ == "__get__":
            return for_program(func, *args)
        func, args, kwargs = rewritten(func, args, kwargs)
        if self.fake:
            func, args, kwargs = on_present_devices(func, args, kwargs)
        with noted(frames.here(self.paths)):
            return through(self, func, args, kwargs)


@contextlib.contextmanager
def noted(what: Any) -> Iterator[None]:
    """Put this note on nodes that are made inside the block."""
    meta = fx_traceback.current_meta
    before = meta.get("custom")
    meta["custom"] = {OURS: what}
    try:
        yield
    finally:
        if before is None:
            meta.pop("custom", None)
        else:
            meta["custom"] = before


def mark(tensor: Tensor) -> Tensor:
    """Copy a tensor in a way that `take_out_copies` recognises."""
    with DisableTorchFunction(), noted(True):
        return tensor.clone()
