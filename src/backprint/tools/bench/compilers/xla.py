"""XLA on jax's default device, by torchax and jax.jit, with 64-bit numbers and torch's number of threads.

torchax 0.0.13 computes a transposed convolution of groups wrong, unless each group has one channel. A backward of a
convolution is written without one; in a forward it is the user's own operator, and stays.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from backprint.derive.forms import APART
from backprint.tools.bench.compilers.exchange import exchanged, exported

LIBRARIES: list[Any] = []
"""What declares overloads; they last as long as it does."""

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"

NAMED = re.compile(r"ops\.aten\.(\w+)\.(\w*(?:[dD]imname|names)\w*)")
"""How torchax names such an overload: `ops.aten.sort.dimname`."""


def declare_named_overloads() -> None:
    """Declare the overloads of named tensors, which torch 2.13 dropped and torchax names when it is imported."""
    place = importlib.util.find_spec("torchax")
    if place is None or place.origin is None or LIBRARIES:  # not installed, or declared already
        return
    for path in Path(place.origin).parent.rglob("*.py"):
        for operator, overload in NAMED.findall(path.read_text(encoding="utf-8")):
            packet = getattr(torch.ops.aten, operator, None)
            if packet is not None and overload not in packet.overloads():
                library = torch.library.Library("aten", "FRAGMENT")
                library.define(f"{operator}.{overload}(Tensor self) -> Tensor")  # nobody calls it: the name is enough
                LIBRARIES.append(library)


def build_xla(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile with XLA."""
    return exchanged(module, inputs, jitted, APART)  # APART: no transposed convolution of groups (module's docstring)


def limit_threads() -> None:
    """Give XLA torch's number of threads; it reads this when jax first computes."""
    threads = torch.get_num_threads()
    os.environ["NPROC"] = str(threads)
    if threads == 1:
        flags = os.environ.get("XLA_FLAGS", "").replace(ONE_THREAD, "").split()
        os.environ["XLA_FLAGS"] = " ".join([*flags, ONE_THREAD])


def jitted(core: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
    """Return a core as a function that XLA compiled."""
    declare_named_overloads()
    limit_threads()
    import jax
    from torchax.export import exported_program_to_jax

    jax.config.update("jax_enable_x64", True)  # else jax makes 64-bit numbers 32-bit ones
    states, function = exported_program_to_jax(exported(core, inputs))
    examples = [jax.dlpack.from_dlpack(value) for value in inputs]
    call = jax.jit(lambda *values: function(states, values)).lower(*examples).compile()

    def called(*values: Tensor) -> Sequence[Tensor]:
        results = call(*(jax.dlpack.from_dlpack(value) for value in values))
        return [torch.from_dlpack(value) for value in jax.block_until_ready(results)]

    return called
