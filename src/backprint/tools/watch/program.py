"""What a step ran from the first call of the model to its loss: calls of modules, and the operators between them.

A module's call is kept by its arguments, and is called again; operators outside of it are kept one by one, each with
its line in the program. So the code between the model and the loss, which is nobody's function, is kept too:

    logits = model(x)                  Call("", (Ref(1),), ...)
    loss = F.cross_entropy(logits, y)  Operation("aten._log_softmax.default", ...), Operation("aten.nll_loss_forward…)

A *step* of a program is one such Call or Operation. `results` has the numbers of the tensors that it returned, in the
order of the leaves of its result; a Ref names one of them by its number.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.operators import schema_of
from backprint._torch.pytree import tree_leaves, tree_map
from backprint.graph.nouns import Source
from backprint.trace import frames
from backprint.values.settings import RandomStates


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor in the arguments of a step, by its number: an input of the program, or the result of an earlier step."""

    number: int


@dataclass(frozen=True, slots=True)
class Own:
    """A parameter or buffer of the model in the arguments of a step, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a module of the model, by its path ('' for the model itself), in the autocast that it ran in: the kinds
    of devices for which it was on, each with its dtype."""

    path: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[int, ...]
    autocast: tuple[tuple[str, torch.dtype], ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator that ran outside of the modules, by its name (`aten.add.Tensor`), with its line. It was noted below
    autocast, with arguments that are cast already. `with_grad` says whether gradients were on."""

    operator: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[int, ...]
    with_grad: bool
    source: Source | None

    @property
    def is_mutable(self) -> bool:
        """Whether the operator writes to its arguments."""
        return bool(schema_of(operator_named(self.operator)).is_mutable)


@dataclass(frozen=True, slots=True)
class Program:
    """The steps in their order, the state that they ran in (random states, and the model's buffers by name), and the
    tensors that are their inputs: the `names` by number, and the values by name (`inputs`). The backward begins at
    `losses`, which are numbers of results, and which had these `values`."""

    random: RandomStates
    buffers: Mapping[str, Tensor]
    steps: tuple[Call | Operation, ...]
    names: Mapping[int, str]
    inputs: Mapping[str, Tensor]
    losses: tuple[int, ...]
    values: tuple[Tensor, ...]


class WatchedStep(nn.Module):
    """A program of a model as a module: `forward` takes its inputs by name."""

    def __init__(self, model: nn.Module, program: Program) -> None:
        super().__init__()
        self.model = model
        self.program = program
        self.training = model.training

    def forward(self, **inputs: Tensor) -> Any:
        """Run the steps of the program, and return its loss, or a tuple of several."""
        program = self.program
        # By number what a Ref stands for, and by name what an Own does.
        values: dict[int | str, Tensor] = {number: inputs[name] for number, name in program.names.items()}
        values |= dict(self.model.named_buffers()) | dict(self.model.named_parameters())
        for step in program.steps:
            args, kwargs = _filled(step.args, values), _filled(step.kwargs, values)
            if isinstance(step, Call):
                with autocast(step.autocast):
                    result = self.model.get_submodule(step.path)(*args, **kwargs)
            else:
                # The graph says the line at which the operator ran in the training. No autocast: the arguments were
                # noted as it had cast them, and these casts are steps of their own.
                with frames.at(step.source), autocast(on=()), torch.set_grad_enabled(step.with_grad):
                    result = operator_named(step.operator)(*args, **kwargs)
            tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            values.update(zip(step.results, tensors, strict=True))
        losses = tuple(values[number] for number in program.losses)
        return losses[0] if len(losses) == 1 else losses


def _filled(arguments: Any, values: Mapping[Any, Tensor]) -> Any:
    """Return arguments with the tensor in the place of each Ref and Own; `values` has it by the Ref's number or the
    Own's name."""

    def tensor_or_leaf(leaf: Any) -> Any:
        return values[leaf.number] if isinstance(leaf, Ref) else values[leaf.name] if isinstance(leaf, Own) else leaf

    return tree_map(tensor_or_leaf, arguments)


@functools.cache
def operator_named(name: str) -> Any:
    """Return an operator by its name, `namespace.name.overload`."""
    return functools.reduce(getattr, name.split("."), torch.ops)


DEVICES = ("cpu", "cuda")
"""The kinds of devices whose autocast is kept."""


def autocast_now() -> tuple[tuple[str, torch.dtype], ...]:
    """Return the kinds of devices for which autocast is on, each with its dtype."""
    return tuple((kind, torch.get_autocast_dtype(kind)) for kind in DEVICES if torch.is_autocast_enabled(kind))


@contextlib.contextmanager
def autocast(on: Iterable[tuple[str, torch.dtype]]) -> Iterator[None]:
    """Run a block in this autocast and no other: `on` has the kinds of devices for which it is on, with its dtypes."""
    wanted = dict(on)
    with contextlib.ExitStack() as stack:
        for kind in DEVICES:
            if kind in wanted or torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, wanted.get(kind), enabled=kind in wanted))
        yield
