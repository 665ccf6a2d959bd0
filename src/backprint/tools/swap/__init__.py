"""A solution in the place of modules of a model: guarded, proven, timed, and taken out again.

This module is the face: `swap`.

- `patterns`: which modules a pattern names. `solutions`: how a solution is called. `guards`: what it is for.
- `places`: one module whose forward is replaced. `swapped`: all of them, put in and taken out.
- `steps`: a model's step, and the values that it runs on. `watched`: the places during a proof. `proving`: the step
  before and after, and each place alone. `proved`: the rows, and their text.
- `gain`: the times of both in turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from backprint.tools.swap.swapped import Swapped


def swap(
    model: nn.Module,
    patterns: str | Sequence[str] | Mapping[str, Any],
    solution: Any = None,
    *,
    for_: Any = None,
    like: Any = None,
    fixed: Any = (),
    order: int = 1,
    prove: Any = None,
) -> Swapped:
    """Run a solution in the place of modules of a model: `with bp.swap(model, "blocks.*.mlp", Fused):`, or for good
    with `bp.swap(model, "blocks.*.mlp", Fused).keep()`.

    `patterns` are wildcards over the paths of modules: `*` is any part of one name, `**` any number of names. Several
    are a list, and a mapping from patterns to solutions has a solution for each. A solution is a
    `torch.autograd.Function` or any callable, which is called with the tensors among the module's arguments, in the
    order of the forward's signature, then its parameters and then its buffers, in the order of `named_parameters()` and
    `named_buffers()`; with `for_`, only with those that the captured part takes. It returns what the module returns. An
    `nn.Module` class runs its forward with the replaced module as `self`; an instance runs with the parameters and
    buffers of the replaced module that have the same names as its own.

    The module, its parameters and its keys stay where they are; only its forward is replaced. The solution runs where
    its inputs and parameters have the number of dimensions, dtype, device and layout that it is for, require grad where
    those that it is for do, and the module is in the same mode, inside or outside of autocast. Everywhere else the
    original runs, and a warning says so once. What it is for comes from `for_`, a Capture of the part or a part of
    `bp.split`; from `like`, arguments of the part (a tensor, or a tuple of positional ones); from a proof; or from the
    first call. Sizes that are `fixed` are compared too: `fixed=True` all sizes of inputs, `fixed=(-1,)` the last of
    each, `fixed={"x": (-1,)}` the last of `x`.

    `.prove(*inputs)` compares the loss and all gradients of the whole model before and after; with `prove=inputs` that
    is done at once, and CheckError is raised unless it is good. A gradient of a gradient is refused unless `order=2`,
    which is proven too.
    """
    from backprint.tools.swap.swapped import swapped_of

    return swapped_of(model, patterns, solution, for_=for_, like=like, fixed=fixed, order=order, prove=prove)
