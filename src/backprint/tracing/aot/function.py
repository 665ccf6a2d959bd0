"""The function that AOTAutograd traces: named tensors in, copies of the outputs out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.fake import FakeTensor
from backprint._torch.tensors import version_of
from backprint.errors import CaptureError
from backprint.result_tree import NOTHING
from backprint.tracing.aot import symbolic
from backprint.tracing.aot.answers import RecordedFakes, Told
from backprint.tracing.aot.lines import LineNotes, mark
from backprint.tracing.facts import SEED
from backprint.tracing.fake import fake_like
from backprint.tracing.keep import kept
from backprint.tracing.program import A_TENSOR, ScoutedProgram, objects_given
from backprint.tracing.reach import module_paths, tensors_of
from backprint.tracing.running import named_outputs, result_of, shielded, with_values
from backprint.tracing.watch import Reading


class TracedFunction:
    """The traced function: named tensors in, copies of the outputs out, and notes about each output."""

    def __init__(
        self, program: ScoutedProgram, readings: Sequence[Reading], specialize: bool, real: bool, dynamic: Any = False
    ) -> None:
        self.program, self.specialize = program, specialize
        self.readings = tuple(readings)
        self.paths = module_paths(program.target())
        self.sizes = symbolic.sizes(program, dynamic, self.paths)
        self.fake = RecordedFakes(real, program.world, self.sizes)
        self.names = tuple(named.name for named in program.tensors)
        self.table: dict[int, Tensor] = {}
        self.open = contextlib.ExitStack()
        self.outputs: list[tuple[str, str]] = []
        self.guards: list[Reading] = []
        self.told = bool(self.readings) or program.world is not None
        self.tree = NOTHING
        self.leaves: tuple[Any, ...] = ()

    def fakes(self) -> tuple[Tensor, ...]:
        """Return a fake leaf for every named tensor; tensors that share memory get separate memory."""
        values = self.program.current(keep=False)
        known = {} if self.program.world is None else self.program.world.reals(self.program.held())
        apart = {name for group in self.program.assembled for name in group}
        made = []
        for named in self.program.tensors:
            value = values[named.name].detach()
            with self.fake.mode:
                if self.sizes and named.name in self.sizes.dims:
                    fake = self.sizes.fake(self.fake.mode, named.name, value)
                else:
                    fake = fake_like(value) if named.name in apart else self.faked(value)
            fake = fake.detach().requires_grad_(named.requires_grad)
            real = value if self.program.world is None else known.get(named.name)
            if self.fake.reals is not None and real is not None:
                self.fake.reals[fake] = real
            made.append(fake)
        return tuple(made)

    def faked(self, value: Tensor) -> Tensor:
        """Return a fake tensor for a real one; a fake one itself."""
        if isinstance(value, FakeTensor):
            return value
        made: Tensor = self.fake.mode.from_tensor(value, static_shapes=True)
        return made

    def __call__(self, flat: Sequence[Tensor]) -> list[Tensor]:
        program = self.program
        given = dict(zip(self.names, flat, strict=True))
        told = Told(self.readings, self.fake, self.specialize, self.paths)
        if self.fake.reals is not None:
            torch.manual_seed(SEED)  # the values that a backward reads are those of the program's own run
        ready = sharing_memory(program, shielded(program, given, mark))
        versions = {name: version_of(ready[name]) for name in (*program.shields, *_assembled(program))}
        self.open.close()
        self.open.enter_context(
            kept(program.target(), objects_given(program))
        )  # AOTAutograd runs the program more than once
        self.open.enter_context(with_values(program, ready, self.table))
        reached = dict(tensors_of(program.target()))
        lines = LineNotes(self.paths, program.world is not None, {} if program.outside else self.table)
        modes = lines, told if self.told else contextlib.nullcontext()
        with modes[0], modes[1], symbolic.noting(self.sizes):
            result = result_of(program, ready)
        self.told = told.used
        named, self.tree = named_outputs(program, result)
        self.leaves = tuple(_still(leaf) for _, leaf in named)
        produced = [(name, "output", mark(leaf)) for name, leaf in named if isinstance(leaf, Tensor)]
        for name, version in versions.items():
            if version_of(ready[name]) != version:
                produced.append((name, "mutation", mark(ready[name].detach())))
        own = {id(tensor): name for name, tensor in {**program.own(), **ready}.items()}
        for name, tensor in tensors_of(program.target()):
            if (before := reached.get(name)) is not tensor:
                produced.append((own.get(id(before), name), "mutation", mark(tensor.detach())))
        for tensor, _ in told.guards:
            produced.append(("guard", "guard", mark(tensor.detach())))
        self.guards = [reading for _, reading in told.guards]
        self.outputs = [(name, role) for name, role, _ in produced]
        return [tensor for _, _, tensor in produced]


class StatelessModule(nn.Module):
    """The module that AOTAutograd traces: a function of flat tensors, without state."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["body"] = body

    def forward(self, *flat: Tensor) -> list[Tensor]:
        found: list[Tensor] = self.__dict__["body"](flat)
        return found


def _still(leaf: Any) -> Any:
    """Replace a tensor by `A_TENSOR`; a symbolic size becomes its number, with a guard."""
    if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
        return symbolic.fixed(leaf)
    return A_TENSOR if isinstance(leaf, Tensor) else leaf


def _assembled(program: ScoutedProgram) -> tuple[str, ...]:
    return tuple(name for group in program.assembled for name in group)


def sharing_memory(program: ScoutedProgram, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Make tensors share memory as in the caller's program: views of one base, filled from each tensor."""
    real = program.values
    for group in program.assembled:
        itemsize = real[group[0]].element_size()
        if len({real[name].dtype for name in group}) > 1:
            raise CaptureError(
                f"inputs {', '.join(group)} share memory under different dtypes and one is changed: pass copies"
            )
        extent = real[group[0]].untyped_storage().nbytes() // itemsize
        base = values[group[0]].new_empty(extent)
        views = {
            name: base.as_strided(real[name].shape, real[name].stride(), real[name].storage_offset()) for name in group
        }
        for name in group:
            views[name].copy_(values[name])
        values.update(views)
    return values
