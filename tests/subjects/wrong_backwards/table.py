"""The table of wrong backwards, its rows, and their inputs, tangents and gradients."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

Program = Callable[..., Any]
Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Row:
    """One wrong backward that shipped: where it is from, what is wrong, and the program in its three forms."""

    name: str
    origin: str
    """The project, and the number of the issue or pull request."""
    fault: str
    shows: str
    """With which tangents, for which inputs: "any" where the gradient is wrong for nearly all."""
    operator: str
    """The name of the Function whose backward is wrong."""
    wrong: Program
    mended: Program
    plain: Program
    inputs: Callable[[], Inputs]
    tangents: str = "random"
    """The kind of tangents with which it shows, a key of TANGENTS."""
    ordinary: Callable[[], Inputs] | None = None
    """Inputs with which it does not show, where that depends on the inputs."""
    order: int = 1
    """2 where the gradient is right, and the gradient of the gradient is wrong."""
    function: type[Function] = Function
    """The Function whose backward is wrong."""

    @property
    def file(self) -> str:
        """The file of the Function."""
        return inspect.getfile(self.function)

    @property
    def line(self) -> int:
        """The line of that file that is wrong.

        Operators may be of another line: where this one calls a function, as a Function calls a kernel, they are of
        that function, and where it binds a name or returns None, there are none.
        """
        lines, first = inspect.getsourcelines(self.function)
        (marked,) = (first + i for i, text in enumerate(lines) if re.search(r"# wrong\b", text))
        return marked


ROWS: list[Row] = []


def row(name: str, origin: str, fault: str, **options: Any) -> Callable[[type[Function]], type[Function]]:
    """Put a Function with a fault into the table; its base class is the mended one.

    `program` makes the program of a function, and is used for the three forms alike.
    """
    program: Callable[[Program], Program] = options.pop("program", lambda function: function)
    plain: Program = options.pop("plain")

    def enter(shipped: type[Function]) -> type[Function]:
        forms = {
            "wrong": program(shipped.apply),
            "mended": program(shipped.__bases__[0].apply),
            "plain": program(plain),
        }
        about = dict(name=name, origin=origin, fault=fault, operator=shipped.__name__, function=shipped)
        ROWS.append(Row(**about, **forms, **options))
        return shipped

    return enter


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normally distributed values, the same in every process."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return draw(*shape, seed=seed).requires_grad_()


def leaf_of(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).requires_grad_()


def sliced(value: Tensor) -> Tensor:
    """A part of a wider tensor: what the backward of `cat` passes on."""
    return torch.cat([value, value.flip(-1)], -1)[..., : value.shape[-1]] if value.dim() else value


def strided(value: Tensor) -> Tensor:
    """Every second column of a wider tensor: what the backward of an interleaving passes on."""
    return torch.stack([value, value.flip(-1)], -1)[..., 0] if value.dim() else value


def transposed(value: Tensor) -> Tensor:
    """The same values in memory as if the last two dimensions were exchanged."""
    return value.mT.contiguous().mT if value.dim() > 1 else value


def expanded(value: Tensor) -> Tensor:
    """The first value at every place, with all strides 0: what the backward of `sum` passes on."""
    return value.reshape(-1)[:1].clone().view([1] * value.dim()).expand(value.shape)


TANGENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "ones": torch.ones_like,
    "random": lambda value: value,
    "expanded": expanded,
    "sliced": sliced,
    "strided": strided,
    "transposed": transposed,
}
"""Kinds of tangents, each made of normally distributed ones."""


def tensors_of(outputs: Any) -> list[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)


def as_dtype(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Copies of the inputs that are leaves, floating point ones in this type, with strides and flags as they were."""
    copies = [value.detach().clone().to(dtype if value.is_floating_point() else value.dtype) for value in inputs]
    return tuple(new.requires_grad_(old.requires_grad) for new, old in zip(copies, inputs, strict=True))


def tangents_for(outputs: Sequence[Tensor], kind: str, seed: int = 0) -> list[Tensor]:
    """One tangent for each output, of this kind."""
    drawn = [draw(*output.shape, seed=100 + seed + i).to(output.dtype) for i, output in enumerate(outputs)]
    return [TANGENTS[kind](value) for value in drawn]


def gradients(program: Program, inputs: Inputs, kind: str = "random", order: int = 1, seed: int = 0) -> list[Tensor]:
    """Gradients of a program for each input that requires grad, zeros for None; of order 2, the gradients of these."""
    wanted = [value for value in inputs if value.requires_grad]
    results = tensors_of(program(*inputs))
    for degree in range(order):
        last = degree == order - 1
        tangents = tangents_for(results, kind if degree == 0 else "random", seed)
        gradients_or_none = torch.autograd.grad(results, wanted, tangents, create_graph=not last, allow_unused=True)
        results = [
            torch.zeros_like(value) if result is None else result
            for result, value in zip(gradients_or_none, wanted, strict=True)
        ]
    return [result.detach() for result in results]


def read(tensor: Tensor, strides: Sequence[int]) -> Tensor:
    """What a kernel reads that takes these for the strides of a tensor, and zeros behind the tensor's last element."""
    have, want = (
        1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, some, strict=True))
        for some in (tensor.stride(), strides)
    )
    memory = tensor.as_strided((min(have, want),), (1,))
    return F.pad(memory, (0, max(0, want - have))).as_strided(tensor.shape, strides)


def dense(tensor: Tensor) -> Tensor:
    """What a kernel reads that takes a tensor for contiguous."""
    return read(tensor, torch.empty(tensor.shape, device="meta").stride())
