"""The program as the user has it: a callable, its named tensors, and how it is called.

A CalledProgram describes a call. A ScoutedProgram adds the findings of a first run: which tensors the program reads
from outside, and which it changes. Every engine traces a ScoutedProgram, and every proof compares with it (`witness`
runs it). Both are immutable; the callable and the call's own arguments are in a Held, which is released at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.tensors import backward_hooks
from backprint.errors import ReplayError
from backprint.result_tree import NOTHING, ResultTree
from backprint.tracing.chance import Chance
from backprint.tracing.fake import World
from backprint.tracing.given import Given
from backprint.tracing.picture import Picture


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """One tensor of a program: its name, its role, and whether it requires grad."""

    name: str
    role: str
    requires_grad: bool
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
    """Stands for a tensor among a call's leaves."""

    name: str


A_TENSOR = Slot("")
"""Stands for a tensor among a result's leaves."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one step: outputs by name, gradients and mutations by the program's own names.

    `tangled` are the tensors that depend on others' gradients once the program has written to them. Of the mutations,
    `made` are tensors that modules hold now and did not hold before, `left` gradients and the state of optimizers.
    `leaves` are those of the result, with `A_TENSOR` in the place of each tensor, and `tree` is its structure.
    """

    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor | None]
    mutations: dict[str, Tensor]
    tangled: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    leaves: tuple[Any, ...] = ()
    tree: ResultTree = NOTHING


# ------------------------------------------------------------------ what lives and ends


@dataclass(slots=True, eq=False)
class Held:
    """The callable of a program until it is released, and the open Picture of everything that it reaches, if any."""

    target: Any
    picture: Picture | None = None

    def __call__(self) -> Any:
        return self.target

    def release(self) -> None:
        """Drop all references."""
        self.target = None


@dataclass(slots=True, eq=False)
class OwnObjects(Held):
    """A callable with the caller's own arguments, on which it runs.

    `own` are the arguments' tensors by name; `under` are the process-wide settings at capture, `device` is the default
    device, `training` says which modules were in train mode; `reached` are the tensors, by identity, that the callable
    reaches without its arguments.
    """

    call: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    own: dict[str, Tensor] = field(default_factory=dict)
    under: dict[str, Any] = field(default_factory=dict)
    device: torch.device = field(default_factory=torch.get_default_device)
    training: tuple[tuple[nn.Module, bool], ...] = ()
    loss: Callable[[Any], Any] | None = None
    reached: frozenset[int] = frozenset()

    def release(self) -> None:
        self.target, self.call, self.own, self.training, self.loss = None, ((), {}), {}, (), None


# ------------------------------------------------------------------ the program


@dataclass(frozen=True, slots=True, eq=False)
class CalledProgram:
    """A callable with the named tensors of one call. `values` are the inputs as captured; a module's state is live.

    With a `world`, the program runs on fake tensors of that world. `shields` are arguments that require grad and are
    written to: while the program is traced, it takes a copy of each. `cloned` are those that it takes a copy of in
    eager runs too.
    """

    target: Held
    arguments: tuple[str, ...]
    structure: Any
    leaves: tuple[Any, ...]
    leaf_names: tuple[str, ...]
    tensors: tuple[NamedTensor, ...]
    values: dict[str, Tensor]
    shields: frozenset[str] = frozenset()
    cloned: frozenset[str] = frozenset()
    hooks: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    mode: str | None = None
    loss: Callable[[Any], Any] | None = None
    defaulted: bool = False
    tangents: tuple[str, ...] = ()
    chance: Chance = field(default_factory=Chance)
    title: str = "program"
    world: World | None = None
    specialize: bool = False
    given: Given | None = None

    @property
    def outside(self) -> dict[str, Tensor]:
        """The tensors that the program reads from outside its call: none is known yet."""
        return {}

    @property
    def changed(self) -> frozenset[str]:
        """The tensors that the program writes to: none is known yet."""
        return frozenset()

    @property
    def assembled(self) -> tuple[tuple[str, ...], ...]:
        """Tensors that share memory of which the program writes a part: none is known yet."""
        return ()

    @property
    def accumulates(self) -> bool:
        """Whether its backward runs another backward inside, so that gradients must be read from the leaves."""
        return False

    @property
    def alive(self) -> bool:
        """Whether the captured module still exists."""
        return self.target() is not None

    def state(self) -> dict[str, Tensor]:
        """Return the live parameters and buffers, by name."""
        target = self.target()
        if target is None:
            raise ReplayError("the captured program is gone (released): pass `state`, or capture again")
        return state_of(target) if isinstance(target, nn.Module) else {}

    def own(self) -> dict[str, Tensor]:
        """Return the caller's own tensors by name, or the captured values if there are none."""
        return self.in_order(self.target.own if isinstance(self.target, OwnObjects) else {})

    def held(self) -> dict[str, Tensor]:
        """Return every named tensor as it is now, fake or real: live state, outside tensors, and the inputs as
        captured."""
        return self.in_order({})

    def in_order(self, instead: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return every named tensor, or the one `instead` has for it."""
        found = {**self.state(), **self.outside, **self.values, **instead}
        return {named.name: found[named.name] for named in self.tensors if named.name in found}

    def current(self, keep: bool = True) -> dict[str, Tensor]:
        """Return every named tensor as it is now.

        With a world, new fake tensors stand for them. Their values may be read if the program is specialized and `keep`
        is true.
        """
        found = self.held()
        return found if self.world is None else self.world.imitate(found, keep and self.specialize)

    def known(self) -> dict[str, Tensor]:
        """Return the tensors that have values: all except fake tensors with unknown values."""
        if self.world is None:
            return self.held()
        known = {name: self.world.values_of(tensor) for name, tensor in self.held().items()}
        return {name: tensor for name, tensor in known.items() if tensor is not None}


@dataclass(frozen=True, slots=True, eq=False)
class ScoutedProgram(CalledProgram):
    """A program whose first run is known: its `tensors` and `hooks` include those of tensors from outside."""

    outside: dict[str, Tensor] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    assembled: tuple[tuple[str, ...], ...] = ()
    accumulates: bool = False


def scouted_program(program: CalledProgram, **found: Any) -> ScoutedProgram:
    """Return a program with the findings of a run."""
    known = {each.name: getattr(program, each.name) for each in fields(program)}
    return ScoutedProgram(**{**known, **found})


def called_program(program: CalledProgram, **other: Any) -> CalledProgram:
    """Return a program without the findings of a run, with `other` fields."""
    known = {each.name: getattr(program, each.name) for each in fields(CalledProgram)}
    return CalledProgram(**{**known, **other})


# ------------------------------------------------------------------ its tensors


SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
"""Layouts of sparse tensors."""


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters, then buffers, by name; a tied weight once, under its first name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def hooks_of(tensor: Tensor) -> list[Any]:
    """Return the user's hooks on a leaf tensor's gradient."""
    return list((backward_hooks(tensor) or {}).values()) if tensor.is_leaf else []


def objects_given(program: CalledProgram) -> list[Any]:
    """Return the arguments that are no tensors."""
    return [leaf for leaf in program.leaves if not isinstance(leaf, Slot)]
