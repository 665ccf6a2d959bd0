"""See what a step runs from its first call of the model to its backward: cheap while it runs, a program when asked.

While a step runs, calls and operators are only put into a list, with the tensors that they took and returned. All stay
alive until the next step begins, so the identity of a tensor is its own. Tensors that the step did not make are copied,
because the training may write to them before the step is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.modes import TorchDispatchMode, dispatch_modes, pop_mode, push_mode
from backprint._torch.operators import schema_of
from backprint._torch.pytree import tree_leaves, tree_map
from backprint._torch.tensors import storage_id
from backprint.errors import CaptureError
from backprint.graph.nouns import Source
from backprint.tools.watch.program import Call, Operation, Own, Program, Ref
from backprint.trace import frames
from backprint.values.settings import RandomStates

MOST_OPERATORS = 400
"""The most operators outside of the model's modules that a step may run: each costs some microseconds."""


@dataclass(slots=True)
class Event:
    """A call of a module, or of an operator, as it ran. `names` are those of the arguments of a module."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any = None
    with_grad: bool = True
    source: Source | None = None
    names: Sequence[str] = ()
    autocast: tuple[tuple[str, torch.dtype], ...] = ()


@dataclass(slots=True)
class Taped:
    """The events of a step, and the state that it began in: `buffers` by name, and how often each weight was written to
    before. `copies` has each tensor that the step did not make, by identity, and its value. The backward begins at
    `losses`."""

    random: RandomStates
    buffers: Mapping[str, Tensor]
    versions: tuple[int, ...]
    events: list[Event] = field(default_factory=list)
    copies: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    losses: tuple[Tensor, ...] = ()
    why_not: str = ""

    def note_arguments(self, values: Any) -> None:
        """Copy the tensors among some arguments that this step did not make."""
        for value in values:
            if isinstance(value, Tensor):
                if id(value) not in self.made and id(value) not in self.copies and type(value) is not nn.Parameter:
                    self.copies[id(value)] = value, value.detach().clone()
            elif isinstance(value, (list, tuple)):
                self.note_arguments(value)

    def note_result(self, result: Any) -> None:
        """Note the tensors that an operator has made."""
        if isinstance(result, Tensor):
            self.made.add(id(result))
        elif isinstance(result, (list, tuple)):
            for value in result:
                self.note_result(value)


class Tape(TorchDispatchMode):
    """The mode that sees the operators between a model and its loss, from `begin` to `end`. It changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.taped: Taped | None = None
        self.is_on = False

    def begin(self, taped: Taped) -> None:
        """See what runs from now on in this thread."""
        self.taped = taped
        if not self.is_on:
            push_mode(self)
            self.is_on = True

    def end(self) -> None:
        """See nothing more. Where the program has entered a mode of its own and not left it, ours stays below, idle."""
        self.taped = None
        if self.is_on and dispatch_modes()[-1] is self:
            pop_mode()
            self.is_on = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        taped = self.taped
        if taped is None or taped.why_not:
            return func(*args, **kwargs)
        if len(taped.events) >= MOST_OPERATORS:
            taped.why_not = (
                f"more than {MOST_OPERATORS} operators ran between the model and the backward: give bp.watch the "
                "module that runs most of them"
            )
            return func(*args, **kwargs)
        taped.note_arguments(args)
        if kwargs:
            taped.note_arguments(kwargs.values())
        source = frames.here({}, sys._getframe(1))
        result = func(*args, **kwargs)
        taped.note_result(result)
        taped.events.append(Event(func, args, kwargs, result, torch.is_grad_enabled(), source))
        return result


# ---- The program


def program_of(taped: Taped, own: Mapping[int, str]) -> Program:
    """Return the program of a step: what its losses depend on. `own` names the model's tensors, by identity."""
    if taped.why_not:
        raise CaptureError(taped.why_not)
    numbering = _Numbering(taped, own)
    steps = [numbering.step(event) for event in taped.events]
    losses = tuple(numbering.known(loss) for loss in taped.losses)
    if not all(losses):
        raise CaptureError("its loss is not computed from results of the model")
    memory = {number: storage_id(tensor.untyped_storage()) for number, tensor in enumerate(numbering.tensors, 1)}
    wanted = {memory[number] for number in losses}
    kept: list[Call | Operation] = []
    for step in reversed(steps):
        numbers = set(_numbers_in((step.args, step.kwargs)))
        writes = {memory[number] for number in step.results}
        if isinstance(step, Operation) and step.is_mutable:
            writes |= {memory[number] for number in numbers}
        if isinstance(step, Call) or writes & wanted:
            kept.append(step)
            wanted |= {memory[number] for number in numbers}
    kept.reverse()
    used = {number for step in kept for number in _numbers_in((step.args, step.kwargs))}
    names = {number: name for number, name in numbering.names.items() if number in used}
    inputs = {name: taped.copies[id(numbering.tensors[number - 1])][1] for number, name in names.items()}
    values = tuple(loss.detach().clone() for loss in taped.losses)
    return Program(taped.random, taped.buffers, tuple(kept), names, inputs, losses, values)


class _Numbering:
    """Numbers the tensors of a step. Each is known by its identity or, as autograd makes some anew, by its place."""

    def __init__(self, taped: Taped, own: Mapping[int, str]) -> None:
        self.taped, self.own = taped, own
        self.tensors: list[Tensor] = []
        self.by_identity: dict[int, int] = {}
        self.by_place: dict[Any, int] = {}
        self.names: dict[int, str] = {}

    def step(self, event: Event) -> Call | Operation:
        """Return an event as a step of the program."""
        is_call = isinstance(event.target, str)
        if is_call:
            named = {**dict(zip(event.names, event.args, strict=False)), **event.kwargs}
        else:
            named = dict(
                zip((argument.name for argument in schema_of(event.target).arguments), event.args, strict=False)
            )
        for name, value in named.items():
            leaves = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
            for index, leaf in enumerate(leaves):
                self.reference(leaf, name if len(leaves) == 1 else f"{name}_{index}")
        args, kwargs = self.references(event.args), self.references(event.kwargs)
        results = tuple(
            self.by_identity.get(id(leaf)) or self.add(leaf)
            for leaf in tree_leaves(event.result)
            if isinstance(leaf, Tensor)
        )
        if is_call:
            return Call(event.target, args, kwargs, results, event.autocast)
        return Operation(str(event.target), args, kwargs, results, event.with_grad, event.source)

    def references(self, value: Any) -> Any:
        """Return arguments with a Ref or Own for each tensor."""
        return tree_map(lambda leaf: self.reference(leaf, "value") if isinstance(leaf, Tensor) else leaf, value)

    def reference(self, tensor: Tensor, name: str) -> Ref | Own:
        """Return what stands for a tensor; one that no step has made is an input, with this name if it is free."""
        own = self.own.get(id(tensor))
        if own is not None:
            return Own(own)
        number = self.known(tensor)
        if not number:
            number = self.add(tensor)
            used = {"self", *self.names.values()}
            others = (f"{name}_{index}" for index in range(1, len(used) + 2))
            self.names[number] = next(candidate for candidate in (name, *others) if candidate not in used)
        return Ref(number)

    def known(self, tensor: Tensor) -> int:
        """Return the number of a tensor, 0 if it has none."""
        return self.by_identity.get(id(tensor)) or self.by_place.get(_place_of(tensor), 0)

    def add(self, tensor: Tensor) -> int:
        """Give a tensor a number."""
        self.tensors.append(tensor)
        number = len(self.tensors)
        self.by_identity[id(tensor)] = self.by_place[_place_of(tensor)] = number
        return number


def _place_of(tensor: Tensor) -> Any:
    """Return what two tensors of one step have in common if they are the same part of the same memory."""
    layout = tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
    return storage_id(tensor.untyped_storage()), *layout


def _numbers_in(arguments: Any) -> Iterator[int]:
    """Yield the numbers of the tensors in arguments."""
    for leaf in tree_leaves(arguments):
        if isinstance(leaf, Ref):
            yield leaf.number
