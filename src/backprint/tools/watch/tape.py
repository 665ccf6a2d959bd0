"""See what a step runs from its first call of the model to its backward: cheap while it runs, a program when asked.

While a step runs, calls and operators are only put into a list, with the tensors that they took and returned. All stay
alive until the next step begins, so no two of them have one id. Tensors that the step did not make are copied, because
the training may write to them before the step is kept.

A *step* of a Program is a Call of a module or an Operation, an operator outside of the modules; there a Ref stands for
a tensor by its number, and an Own for one of the model's own by its name.
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
    """A call of a module or of an operator, as it ran: `target` is the path of the module in the model, or the
    operator. A module has the `names` of its forward's parameters, and the `autocast` that was on, as dtypes by the
    kind of device; an operator whether gradients were on (`with_grad`), and the line of the program (`source`)."""

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
    """The events of a step, and the state that it began in: the random states, the model's `buffers` by name, and how
    often each parameter was written to before (`versions`).

    By its id, `copies` has each tensor that the step did not make, with a copy of its value; `made` has the ids of
    those that it made. The backward begins at `losses`. `why_not` says why there can be no program, '' if there can.
    """

    random: RandomStates
    buffers: Mapping[str, Tensor]
    versions: tuple[int, ...]
    events: list[Event] = field(default_factory=list)
    copies: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    made: set[int] = field(default_factory=set)
    losses: tuple[Tensor, ...] = ()
    why_not: str = ""

    def note_arguments(self, values: Any) -> None:
        """Copy the tensors among some arguments that this step did not make; parameters are the model's, and are not
        copied."""
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
        """Run an operator as it is called, and note it, if a step is seen of which there can be a program."""
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
        source = frames.here({}, sys._getframe(1))  # the user's line, without the paths of modules
        result = func(*args, **kwargs)
        taped.note_result(result)
        taped.events.append(Event(func, args, kwargs, result, with_grad=torch.is_grad_enabled(), source=source))
        return result


# ---- The program


def program_of(taped: Taped, own: Mapping[int, str]) -> Program:
    """Return the program of a step: what its losses depend on. `own` names the model's tensors, by id. Raise if there
    can be none, or if a loss is no result of the step."""
    if taped.why_not:
        raise CaptureError(taped.why_not)
    numbering = _Numbering(taped, own)
    steps = [numbering.step(event) for event in taped.events]
    losses = tuple(numbering.number_of(loss) for loss in taped.losses)
    if not all(losses):  # a tensor without a number has 0
        raise CaptureError("its loss is not computed from results of the model")
    kept = _steps_behind(losses, steps, numbering.tensors)
    used = {number for step in kept for number in _numbers_in((step.args, step.kwargs))}
    names = {number: name for number, name in numbering.names.items() if number in used}
    inputs: dict[str, Tensor] = {}
    for number, name in names.items():
        _, inputs[name] = taped.copies[id(numbering.tensors[number - 1])]
    values = tuple(loss.detach().clone() for loss in taped.losses)
    return Program(taped.random, taped.buffers, tuple(kept), names, inputs, losses, values)


def _steps_behind(
    losses: Sequence[int], steps: Sequence[Call | Operation], tensors: Sequence[Tensor]
) -> list[Call | Operation]:
    """Return the steps on which losses depend, and all calls of modules, in order. Losses are numbers of `tensors`,
    from 1 on. A step is one of them if it makes or writes to memory that a later one reads: a view has no own."""
    memory = {number: storage_id(tensor.untyped_storage()) for number, tensor in enumerate(tensors, 1)}
    wanted = {memory[number] for number in losses}
    kept: list[Call | Operation] = []
    for step in reversed(steps):
        numbers = set(_numbers_in((step.args, step.kwargs)))
        written = {memory[number] for number in step.results}
        if isinstance(step, Operation) and step.is_mutable:
            written |= {memory[number] for number in numbers}  # which argument it writes to is not asked
        # A call of a module may also change a buffer, or draw random numbers.
        if isinstance(step, Call) or written & wanted:
            kept.append(step)
            wanted |= {memory[number] for number in numbers}
    kept.reverse()
    return kept


class _Numbering:
    """Numbers the tensors of a step, from 1 on. A tensor is known by its id or, as autograd makes some anew, by its
    place in memory.

    `tensors` has them in the order of their numbers, and `names` the name of each that is an input, by its number.
    `own` names the model's tensors, by id; they have no numbers.
    """

    def __init__(self, taped: Taped, own: Mapping[int, str]) -> None:
        self.taped, self.own = taped, own
        self.tensors: list[Tensor] = []
        self.by_identity: dict[int, int] = {}
        self.by_place: dict[Any, int] = {}
        self.names: dict[int, str] = {}

    def step(self, event: Event) -> Call | Operation:
        """Return an event as a step of the program. Tensors among its arguments that are not known yet become inputs,
        named as the parameters that they are passed for."""
        is_call = isinstance(event.target, str)
        # Not strict: parameters with a default may have no argument, and `*args` takes several.
        if is_call:
            named = {**dict(zip(event.names, event.args, strict=False)), **event.kwargs}
        else:
            parameters = (argument.name for argument in schema_of(event.target).arguments)
            named = dict(zip(parameters, event.args, strict=False))
        for name, value in named.items():
            leaves = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
            for index, leaf in enumerate(leaves):
                self.reference(leaf, name if len(leaves) == 1 else f"{name}_{index}")
        args, kwargs = self.references(event.args), self.references(event.kwargs)
        # By id alone: a result in the place of an argument (a view of it, or the argument updated) is a new value.
        results = tuple(
            self.by_identity.get(id(leaf)) or self.add(leaf)
            for leaf in tree_leaves(event.result)
            if isinstance(leaf, Tensor)
        )
        if is_call:
            return Call(event.target, args, kwargs, results, event.autocast)
        return Operation(str(event.target), args, kwargs, results, event.with_grad, event.source)

    def references(self, value: Any) -> Any:
        """Return arguments with a Ref or Own in the place of each tensor."""
        return tree_map(lambda leaf: self.reference(leaf, "value") if isinstance(leaf, Tensor) else leaf, value)

    def reference(self, tensor: Tensor, name: str) -> Ref | Own:
        """Return the Own of a tensor of the model's, or the Ref of another. One that has no number yet is an input of
        the program: it gets this name, or `name_1` and so on if that is taken."""
        own = self.own.get(id(tensor))
        if own is not None:
            return Own(own)
        number = self.number_of(tensor)
        if not number:
            number = self.add(tensor)
            taken = {"self", *self.names.values()}  # `self`, because inputs are passed to a `forward` by name
            others = (f"{name}_{index}" for index in range(1, len(taken) + 2))
            self.names[number] = next(candidate for candidate in (name, *others) if candidate not in taken)
        return Ref(number)

    def number_of(self, tensor: Tensor) -> int:
        """Return the number of a tensor, 0 if it has none."""
        return self.by_identity.get(id(tensor)) or self.by_place.get(_place_of(tensor), 0)

    def add(self, tensor: Tensor) -> int:
        """Give a tensor the next number, and return it."""
        self.tensors.append(tensor)
        number = len(self.tensors)
        self.by_identity[id(tensor)] = self.by_place[_place_of(tensor)] = number
        return number


def _place_of(tensor: Tensor) -> Any:
    """Return a key that two tensors of one step have in common if they are the same part of the same memory."""
    layout = tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype
    return storage_id(tensor.untyped_storage()), *layout


def _numbers_in(arguments: Any) -> Iterator[int]:
    """Yield the numbers of the tensors in arguments."""
    for leaf in tree_leaves(arguments):
        if isinstance(leaf, Ref):
            yield leaf.number
