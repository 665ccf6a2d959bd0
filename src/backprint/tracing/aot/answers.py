"""While a program is traced without values, operators that need values return what the scouting run read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from backprint._torch import pytree
from backprint._torch.aot import from_functional
from backprint._torch.fake import FakeTensor, FakeTensorMode
from backprint._torch.modes import TorchDispatchMode, without_modes
from backprint._torch.tensors import storage_id
from backprint.defects import for_program
from backprint.errors import CaptureError, DataDependentError
from backprint.graph.nouns import Source
from backprint.tracing import frames
from backprint.tracing.aot import symbolic
from backprint.tracing.aot.lines import mark
from backprint.tracing.custom import is_composite, taken_apart
from backprint.tracing.facts import CHECK, CHECKS, reads_values
from backprint.tracing.fake import UNKNOWN_VALUES, World, fake_like, shapes_of
from backprint.tracing.watch import Reading, unknown

READ = torch.ops.aten._local_scalar_dense.default
"""The operator that reads a number."""


def number_place(tensor: Tensor) -> tuple[Any, ...]:
    """Return the memory of a number. Traced tensors are never written to: two reads of one place return the same
    number."""
    return storage_id(tensor.untyped_storage()), tensor.storage_offset(), tensor.dtype


class RecordedFakes:
    """Fake tensors; operators that need values return what the scouting run read.

    The mode stays an ordinary FakeTensorMode with its `dispatch` wrapped: higher-order operators recognise modes by
    type.
    """

    def __init__(self, real: bool, world: World | None = None, sizes: symbolic.Sizes | None = None) -> None:
        self.expected: Reading | None = None
        self.reals: Any = WeakIdKeyDictionary() if real else None
        self.unforeseen: list[str] = []
        self.held: dict[tuple[Any, ...], Tensor] = {}
        self.world = world
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=sizes) if world is None else world.mode
        self.plain = shapes_of(self.mode) if world is None else world.dispatch

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            result = self.plain(func, types, args, kwargs or {})
        except UNKNOWN_VALUES:
            if self.expected is not None and self.expected.operator == str(func):
                reading, self.expected = self.expected, None
                with self.mode:
                    result = pytree.tree_map(fake_like, reading.result)
                self.follow(result, reading.result)  # replaces the uninitialised values that `fake_like` left
                return result
            known, real = self.really(func, args, kwargs or {})
            if not known:
                raise
            if func is not READ or number_place(args[0]) not in self.held:
                self.unforeseen.append(str(func))
            with self.mode:
                result = pytree.tree_map(fake_like, real)
            self.follow(result, real)
            return result
        if self.reals is not None and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(result)):
            known, real = self.really(func, args, kwargs or {})
            if known:
                self.follow(result, real)
        return result

    def hold(self, tensor: Tensor) -> None:
        """Remember a number that the forward has read: if a backward reads it again, it has been checked."""
        self.held[number_place(tensor)] = tensor

    def really(self, func: Any, args: Any, kwargs: Any) -> tuple[bool, Any]:
        """Run an operator on the real values behind these fake tensors, if all are known."""
        if self.reals is None:
            return False, None
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        if any(leaf not in self.reals for leaf in given):
            return False, None
        args, kwargs = pytree.tree_map_only(FakeTensor, lambda leaf: self.reals[leaf], (args, kwargs))
        with without_modes(), torch.no_grad():
            return True, for_program(func, *args, **kwargs)

    def follow(self, fake: Any, real: Any) -> None:
        """Remember the real values behind a result."""
        if self.reals is None:
            return
        for left, right in zip(pytree.tree_leaves(fake), pytree.tree_leaves(real), strict=False):
            if isinstance(left, FakeTensor) and isinstance(right, Tensor):
                self.reals[left] = right


class Told(TorchDispatchMode):
    """Matches operators that read values with the readings of the scouting run, in order, and returns those results."""

    def __init__(
        self, readings: Sequence[Reading], fake: RecordedFakes, specialize: bool, paths: Mapping[int, str]
    ) -> None:
        super().__init__()
        self.paths = paths
        self.waiting = [reading for reading in readings if fake.world is None or reading.inputs]
        self.fake, self.specialize = fake, specialize
        self.guards: list[tuple[Tensor, Reading]] = []
        self.used = bool(self.waiting)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not reads_values(func) or (func in CHECKS and self.fake.world is not None):
            return for_program(func, *args, **(kwargs or {}))
        if is_composite(func):
            return taken_apart(self, func, args, kwargs)
        self.used = True
        if self.fake.world is not None:
            inner = pytree.tree_map_only(Tensor, from_functional, (args, kwargs or {}))
            if self.fake.world.able(func, pytree.tree_leaves(inner)):
                found = self.fake.world.really(func, *inner)
                return for_program(func, *args, **(kwargs or {})) if isinstance(first_leaf(found), Tensor) else found
            if not self.waiting:
                raise DataDependentError(unknown(Reading(str(func), frames.here({}), (), None)))
        reading = self.meet(func)
        if not isinstance(first_leaf(reading.result), Tensor):
            self.take(func, args, reading)
            return reading.result
        self.fake.expected = reading
        try:
            result = for_program(func, *args, **(kwargs or {}))
        finally:
            needed, self.fake.expected = self.fake.expected is None, None
        if needed:
            self.take(func, pytree.tree_leaves(result), reading)
        return result

    def meet(self, func: Any) -> Reading:
        """Return the next reading of the scouting run at this line.

        Readings that are skipped are checks that an operator runs on real values only, as `one_hot` does.
        """
        here = frames.here(self.paths)
        then = self.waiting[0] if self.waiting else None
        while self.waiting:
            reading = self.waiting.pop(0)
            if (reading.operator, reading.source) == (str(func), here):
                return reading
        raise CaptureError(
            f"while traced the program runs {func} ({spot(here)}) where its first run had "
            f"{f'{then.operator} ({spot(then.source)})' if then else 'nothing'}: "
            "its runs differ, or it checks whether it is traced"
        )

    def take(self, func: Any, values: Sequence[Any], reading: Reading) -> None:
        """Continue with the result of the scouting run, with a guard if it depends on an input."""
        if func is READ:
            self.fake.hold(from_functional(values[0]))
        if not reading.inputs:
            return
        if func in CHECKS:
            bad = values[0] != 0 if func is CHECK else values[0] == 0
            self.guards.append((mark(bad.any()), replace(reading, result=False)))
            return
        if not self.specialize:
            raise DataDependentError(refused_reading(reading))
        if func is READ or isinstance(first_leaf(reading.result), Tensor):
            self.guards.append((mark(values[0].detach()), reading))  # now: the program may write to it later
        else:
            self.fake.unforeseen.append(str(func))


def spot(source: Source | None) -> str:
    """Return a file and line for a message."""
    return f"{source.file}:{source.line}" if source else "no line of the program"


def first_leaf(value: Any) -> Any:
    """Return the first leaf of a result, or None."""
    return next(iter(pytree.tree_leaves(value)), None)


def refused_reading(reading: Reading) -> str:
    """Say why a program that reads values is not traced, where it reads, and what to do."""
    where = reading.source
    place = f" at {where.file}:{where.line} in {where.function}: {where.code!r}" if where else ""
    hangs = f" (it depends on {', '.join(reading.inputs[:6])})"
    return (
        f"{reading.operator} reads values that tracing does not have{place}{hangs}. "
        "Pass specialize=True to take this run's value and keep it as a guard"
    )
