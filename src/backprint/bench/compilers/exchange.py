"""What compilers that take an exchange format share: the lowered core as a torch.export program, and numpy arrays.

A core is lowered twice if need be: first with the operators that a format may have, which its compiler knows best;
then with torch's core operators alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from backprint.bench.performer import Build, bordered, core_of
from backprint.errors import RefusedError
from backprint.lowering.operators import NONE, lower, refuse_draws
from backprint.lowering.subjects import with_draws_outside
from backprint.sample.rerun import copies


def exchanged(
    module: fx.GraphModule, inputs: Sequence[Any], build: Build, more: Mapping[Any, Any] = NONE
) -> Callable[..., Any]:
    """Compile the core of the lowered graph, with contiguous inputs; a compiler that refuses it gets it lowered on.

    `more` has forms for this compiler in place of the usual ones.
    """
    outside = with_draws_outside(module)
    if outside is not None:
        call = exchanged(outside.module, [*inputs, *outside.draw()], build, more)
        return lambda *values: call(*values, *outside.draw())
    refuse_draws(module)
    refuse_layouts(inputs)

    def laid(core: fx.GraphModule, given: list[Tensor]) -> Callable[..., Sequence[Tensor]]:
        try:
            return build_lowered(core, given, build, more, False)
        except RefusedError:
            raise
        except Exception as error:
            try:
                return build_lowered(core, given, build, more, True)
            except Exception:
                raise error from None

    return bordered(module, inputs, laid)


def build_lowered(
    core: fx.GraphModule, given: list[Tensor], build: Build, more: Mapping[Any, Any], thorough: bool
) -> Callable[..., Sequence[Tensor]]:
    """Return a compiled core; it may hand inputs through once it is lowered, so what it computes is taken anew."""
    again = core_of(lower(core, given, thorough, more), given)
    if not again.computes:
        return again.around(tuple, len(given))
    values = again.given(copies(given))
    laying = {place: laid_out for place, value in enumerate(values) if not is_laid_out(value)}
    return again.around(build(again.module, [laid_out(value) for value in values]), len(given), laying)


def is_laid_out(value: Tensor) -> bool:
    """Whether a tensor is as exchange formats take it; those of later calls are like it."""
    return value.is_contiguous() and not (value.is_conj() or value.is_neg() or value.requires_grad)


def laid_out(value: Tensor) -> Tensor:
    """Return a tensor as exchange formats take it: detached and contiguous."""
    return value.detach().resolve_conj().resolve_neg().contiguous()


def refuse_layouts(inputs: Sequence[Any]) -> None:
    """Raise for an input that is not strided."""
    for place, value in enumerate(inputs):
        if isinstance(value, Tensor) and (value.layout is not torch.strided or value.is_quantized):
            raise RefusedError(
                f"input {place} has layout {value.layout}, dtype {value.dtype}: no exchange format has it"
            )


def exported(core: fx.GraphModule, given: Sequence[Tensor]) -> torch.export.ExportedProgram:
    """Return a core as torch.export's program."""
    with torch.no_grad():
        return torch.export.export(core, tuple(given), strict=False)


def core_ports(core: fx.GraphModule) -> list[str]:
    """Return the names of a core's inputs."""
    return [node.name for node in core.graph.nodes if node.op == "placeholder"]


def kinds_of(core: fx.GraphModule, given: Sequence[Tensor]) -> list[tuple[torch.dtype, list[int]]]:
    """Return dtype and sizes of each result, from one run in eager."""
    with torch.no_grad():
        return [(value.dtype, list(value.shape)) for value in core(*copies(given))]


def refuse_dtypes(what: str, dtypes: Sequence[torch.dtype], known: Sequence[torch.dtype]) -> None:
    """Raise for a dtype that a compiler's tensors cannot have."""
    for dtype in dtypes:
        if dtype not in known:
            raise RefusedError(f"{what} takes no tensor of dtype {dtype}")


NUMPY = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
"""The dtypes that numpy and every exchange format have."""
