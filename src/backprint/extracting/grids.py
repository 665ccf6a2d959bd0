"""The configurations of a Triton kernel that Inductor wrote, and the grids that its calls launch.

A kernel's source is run to get its configurations: only kernels that were extracted in this process come here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from backprint.extracting.build_triton import loaded_kernel, read_configuration
from backprint.extracting.nouns import Kernel, KernelCall


def with_grids(kernel: Kernel) -> Kernel:
    """Return a Triton kernel with its configurations, and with the grids of its calls for each of them."""
    tuner = loaded_kernel(kernel)
    configurations = tuple(map(read_configuration, tuner.configs))
    calls = tuple(replace(call, grids=grids_of(tuner, call)) for call in kernel.calls)
    return replace(kernel, configurations=configurations, calls=calls)


def grids_of(tuner: Any, call: KernelCall) -> tuple[tuple[int, int, int], ...]:
    """Return the grid of a call for each configuration of its kernel."""
    numbers = [argument.value for argument in call.arguments]
    return tuple(grid_of(tuner, configuration, numbers) for configuration in tuner.configs)


def grid_of(tuner: Any, configuration: Any, numbers: Sequence[Any]) -> tuple[int, int, int]:
    """Return the grid of a call; `numbers` are its arguments, None of a tensor."""
    from backprint._torch.inductor import GridExpr

    sizes = {**configuration.kwargs, "num_warps": configuration.num_warps, "num_stages": configuration.num_stages}
    expression = GridExpr.from_meta(tuner.inductor_meta, sizes, mode="python")
    named = dict(zip(tuner.fn.arg_names, numbers, strict=False))
    x, y, z = expression.eval_slow(named)
    return int(x), int(y), int(z)
