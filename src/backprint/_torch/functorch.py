"""The levels of torch.func's transforms.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x` (`private`). Each function under *Probes* tries what this file takes a private name to do, and
returns whether it does that on this torch.
"""

from __future__ import annotations

from typing import Any

import torch

from backprint._torch import private
from backprint._torch.private import Private, look_up, probes_of

# ---- Probes


def tensors_of_transforms_are_known() -> bool:
    """Whether a tensor inside of vmap is told from a plain one."""
    is_wrapped = NAMES["is_functorch_tensor"].value()
    seen: list[bool] = []

    def row_read(row: torch.Tensor) -> torch.Tensor:
        seen.append(is_wrapped(row))
        return row

    torch.func.vmap(row_read)(torch.zeros(2))
    return seen == [True] and not is_wrapped(torch.zeros(2))


def levels_are_counted() -> bool:
    """Whether the level of a transform is a number inside of vmap, and None outside."""
    level = NAMES["current_level"].value()
    seen: list[Any] = []

    def row_read(row: torch.Tensor) -> torch.Tensor:
        seen.append(level())
        return row

    torch.func.vmap(row_read)(torch.zeros(2))
    return level() is None and isinstance(seen[0], int)


# ---- Names

NAMES = {
    "is_functorch_tensor": Private(
        "torch._C._functorch.is_functorch_wrapped_tensor",
        "Whether a tensor belongs to a level of vmap or grad.",
        (private.REPLAY,),
        holds=tensors_of_transforms_are_known,
    ),
    "current_level": Private(
        "torch._C._functorch.maybe_current_level",
        "Return the number of transforms of torch.func that are open; None if none is.",
        (private.GRAPHNET,),
        holds=levels_are_counted,
    ),
    "close_vmap_level": Private(
        "torch._C._functorch._vmap_decrement_nesting", "Close the innermost level of vmap.", (private.GRAPHNET,)
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(__name__, NAMES)
