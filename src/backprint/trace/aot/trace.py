"""Trace a program with AOTAutograd to one joint graph, with the user's lines, and partition it.

AOTAutograd needs a function of flat tensors without aliases among its results. So the traced function returns clones,
which carry a mark (the note True on a node) and are removed from the joint graph. Values that the program reads are
those of a run before the trace (the warm-up run), and become guards. A Reading is one such read: the operator, the
line, the inputs that the value depends on, and the result. A number is read by `.item()`.

An ObservedProgram is the callable (`program.target()`) with the named tensors of one call and the findings of the
warm-up run. In a fake capture it has a `world`: a FakeTensorMode (`world.mode`) that knows the values of small
constants. `written_alias_groups` are the names of inputs that share memory which the program writes to, group by group,
and `cloned_when_traced` names the tensors that it writes to or that have hooks: it gets clones of these. A wrapper is a
DTensor, and a shard its sharding as text.

`frames.here(paths)` returns the user's line and module that run now; `paths` has the path of each module by its
identity. `for_program(f, ...)` calls f, whose errors are the program's and no defects of Backprint.

Leaf casts are those that autocast makes of parameters and inputs. In eager it casts a leaf once for several uses, and
in a trace for each use, which would round the gradient otherwise; so those of a trace are counted.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.fx.traceback as fx_traceback
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from backprint._torch import aot as descriptors
from backprint._torch import pytree
from backprint._torch.aot import export_joint, from_functional
from backprint._torch.autograd import current_node
from backprint._torch.distributed import form_of, shapes_computed_apart, sharding_text
from backprint._torch.fake import (
    FakeTensor,
    FakeTensorMode,
    FunctionalTensor,
    UnsupportedOperatorException,
    errors_not_logged,
)
from backprint._torch.graphs import lazy_code
from backprint._torch.modes import DisableTorchFunction, TorchDispatchMode, without_modes
from backprint._torch.operators import schema_of, without_effects_of_checks, without_python_decompositions
from backprint._torch.tensors import storage_id, version_of
from backprint.errors import BackprintError, CaptureError, DataDependentError, for_program, is_defect
from backprint.graph.fx.convert import pin_dtypes
from backprint.graph.nouns import Source
from backprint.trace import frames
from backprint.trace.aot import symbolic
from backprint.trace.custom import call_for_mode, decompose_under_mode, is_composite
from backprint.trace.fake import (
    UNKNOWN_VALUES,
    FakeWorld,
    dispatch_with_rules,
    fake_like,
    is_missing_device,
    on_available_devices,
    replaced_dispatch,
)
from backprint.trace.non_operator_effects import rewrite_for_tracing
from backprint.trace.partition import partition_joint
from backprint.trace.program import A_TENSOR, ObservedProgram, nontensor_arguments
from backprint.trace.reach import module_paths, tensors_of
from backprint.trace.running import (
    SubstituteTensors,
    clone_written_tensors,
    modes_reach_backward,
    named_outputs,
    replace_tensors,
    result_of,
    with_values,
    wrap_values,
)
from backprint.trace.state.restore import restoring_everything_reachable
from backprint.trace.warm_up import Findings
from backprint.trace.watch import CHECK, CHECKS, SEED, Reading, describe_reading_without_values, reads_values
from backprint.values.results import NO_RESULT, ResultTree
from backprint.values.settings import seed_torch
from backprint.values.wrappers import is_wrapper_class, unwrap, unwrap_by_autograd

NOTE_KEY = "backprint"
"""The key in a node's `custom` metadata of our note: the Source of the node, True for a clone of ours, or ALIAS."""


ALIAS = "alias"
"""The note of an alias that the traced function makes (`_marked_alias`)."""

OWN_LINE_KEY = "backprint own line"
"""The key in a node's `custom` metadata of the line of a custom autograd.Function's own backward. AOTAutograd gives a
node of the backward the note of the forward's node as well, so it has a key of its own."""


# ---- Notes on nodes


VIEWS = ("T", "mT", "H", "mH", "real", "imag")
"""Attributes of a tensor that an operator computes."""


class _LineNotes(TorchFunctionMode):
    """While AOTAutograd traces, notes the user's line and module path on every node that a torch call makes.

    `fake` says that the capture is of a program without values, which may name devices that this machine does not have.
    `table` has the traced tensor for each of the program's own by identity: the program may reach its own outside its
    module. It is empty where another mode replaces tensors.
    """

    def __init__(self, paths: Mapping[int, str], fake: bool, table: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.paths, self.fake, self.table = paths, fake, table

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a torch function with the user's line noted on the nodes that it makes. The program's own tensors among
        the arguments are replaced by traced ones, and the call is put into a form that can be traced."""
        if self.table:
            args, kwargs = replace_tensors(self.table, args), replace_tensors(self.table, kwargs or {})
        if func.__name__ == "__get__":  # a read of an attribute
            # `x.shape` makes no node, and is read far more often than `x.T`.
            makes_node = getattr(func.__self__, "__name__", "") in VIEWS
            with _node_note(frames.here(self.paths)) if makes_node else contextlib.nullcontext():
                return for_program(func, *args)
        func, args, kwargs = rewrite_for_tracing(func, args, kwargs)
        if self.fake:
            func, args, kwargs = on_available_devices(func, args, kwargs)  # the CPU for a device that is not here
        with _node_note(frames.here(self.paths)):
            return call_for_mode(self, func, args, kwargs)


class _OwnBackwardNotes(TorchFunctionMode):
    """While AOTAutograd traces, notes the user's line on every node that the code of a custom autograd.Function's
    backward makes."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        where = frames.line_in_backward() if current_node() is not None else None
        with contextlib.nullcontext() if where is None else _node_note(where, OWN_LINE_KEY):
            return call_for_mode(self, func, args, kwargs or {})


@contextlib.contextmanager
def _node_note(note: Any, key: str = NOTE_KEY) -> Iterator[None]:
    """Put a note, under a key, on the nodes that are made in this block: torch copies `current_meta` to each node."""
    meta = fx_traceback.current_meta
    previous = meta.get("custom")
    meta["custom"] = {key: note}
    try:
        yield
    finally:
        if previous is None:
            meta.pop("custom", None)
        else:
            meta["custom"] = previous


def _marked_clone(tensor: Tensor) -> Tensor:
    """Return a clone of a tensor that `remove_marked_clones` removes from the joint graph."""
    with DisableTorchFunction(), _node_note(True):
        return tensor.clone()


def _marked_alias(tensor: Tensor) -> Tensor:
    """Return a detached tensor of the same memory, which `remove_marked_clones` removes from the joint graph."""
    with DisableTorchFunction(), _node_note(ALIAS):
        return tensor.detach()


# ---- Patches of torch while AOTAutograd traces


@contextlib.contextmanager
def _without_cuda() -> Iterator[None]:
    """Make `x.cuda()` return `x` on the CPU while a fake capture is traced on a machine without CUDA."""
    original = FunctionalTensor.cuda
    FunctionalTensor.cuda = lambda self, *_, **__: self.cpu()
    try:
        yield
    finally:
        FunctionalTensor.cuda = original


KEPT_WHOLE = tuple(
    "upsample_ _upsample_ multi_margin_loss multilabel_margin_loss hardshrink softshrink lstm gru rnn_".split()
)
"""Beginnings of the names of operators that tracing would decompose in Python into other operators than eager runs,
with slightly different results. They are kept as they are."""

STATIC = ("aten::hardshrink", "aten::softshrink")
"""Operators of KEPT_WHOLE whose backward torch cannot trace with symbolic sizes: there they are decomposed after
all."""


@contextlib.contextmanager
def _as_eager_runs(symbolic: bool) -> Iterator[None]:
    """Trace the operators of KEPT_WHOLE as eager runs them, not as their Python decompositions; those of STATIC only if
    no size is symbolic."""
    static = STATIC if symbolic else ()
    with without_python_decompositions(
        [operator for operator in _python_decomposed() if schema_of(operator).name not in static]
    ):
        yield


@functools.cache
def _python_decomposed() -> tuple[Any, ...]:
    """Return all overloads of the operators of KEPT_WHOLE."""
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten) if name.startswith(KEPT_WHOLE)]
    return tuple(getattr(packet, kind) for packet in packets for kind in packet.overloads())


# ---- Values that the program reads

READ = torch.ops.aten._local_scalar_dense.default
"""The operator that reads a number."""


def _number_place(tensor: Tensor) -> tuple[Any, ...]:
    """Return the memory in which a number lies. Traced tensors are never written to: two reads of one place return the
    same number."""
    return storage_id(tensor.untyped_storage()), tensor.storage_offset(), tensor.dtype


class _RealResult(NamedTuple):
    """The result of an operator with values, or None if it is not known."""

    known: bool
    value: Any = None


class _RecordedFakes:
    """A FakeTensorMode in which operators that need values return the readings of the warm-up run.

    With `real`, the values of fake tensors are computed too, where the values of all arguments are known
    (`real_values`). The mode stays an ordinary FakeTensorMode whose `dispatch` is replaced, because higher-order
    operators recognise modes by type. In a fake capture it is the mode of `world`.

    `plain_dispatch` is the mode's dispatch without the readings. `expected` is the reading that `_ReadingReplay`
    announces for the operator that it calls next. `unforeseen` names operators whose reads no guard checks, and
    `numbers_read` has the tensors of the numbers that the forward has read, by `_number_place`.
    """

    def __init__(self, real: bool, world: FakeWorld | None = None, sizes: symbolic.Sizes | None = None) -> None:
        """With `real`, values are computed beside fake tensors. `world` is the FakeWorld of a fake capture, and `sizes`
        the ShapeEnv of symbolic sizes."""
        self.expected: Reading | None = None
        self.real_values: Any = WeakIdKeyDictionary() if real else None
        self.unforeseen: list[str] = []
        self.numbers_read: dict[tuple[Any, ...], Tensor] = {}
        self.world = world
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=sizes) if world is None else world.mode
        self.plain_dispatch = dispatch_with_rules(self.mode) if world is None else world.dispatch

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator on fake tensors, in the place of the mode's own `dispatch`. Where the operator needs values
        (torch then raises one of UNKNOWN_VALUES), return a fake of the result that is known; raise if none is."""
        try:
            result = self.plain_dispatch(func, types, args, kwargs or {})
        except UNKNOWN_VALUES:
            real = self.result_of_read(func, args, kwargs or {})
            if not real.known:
                raise
            with self.mode:
                result = pytree.tree_map(fake_like, real.value)
            self.set_values(result, real.value)  # replaces the uninitialised values that `fake_like` left
            return result
        # Compute the real values beside the fake result, for reads that may follow.
        if self.real_values is not None and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(result)):
            real = self.run_on_real_values(func, args, kwargs or {})
            if real.known:
                self.set_values(result, real.value)
        return result

    def result_of_read(self, func: Any, args: Any, kwargs: Any) -> _RealResult:
        """Return the result of an operator that reads values: the one that the warm-up run got, if `_ReadingReplay`
        announced the read; else the one on the real values, if these are known. Then no mode saw the read, inside of an
        operator or in the backward, and no guard checks it unless the forward read the same number."""
        if self.expected is not None and self.expected.operator == str(func):
            reading, self.expected = self.expected, None
            return _RealResult(known=True, value=reading.result)
        real = self.run_on_real_values(func, args, kwargs)
        if real.known and (func is not READ or _number_place(args[0]) not in self.numbers_read):
            self.unforeseen.append(str(func))
        return real

    def note_number_read(self, tensor: Tensor) -> None:
        """Remember a number that the forward has read: if a backward reads it again, it has been checked. The tensor is
        kept alive, so that no other gets its memory."""
        self.numbers_read[_number_place(tensor)] = tensor

    def run_on_real_values(self, func: Any, args: Any, kwargs: Any) -> _RealResult:
        """Return an operator's result on the real values behind the fake tensors among its arguments, if all of these
        are known."""
        if self.real_values is None:
            return _RealResult(known=False)
        fakes = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        if any(leaf not in self.real_values for leaf in fakes):
            return _RealResult(known=False)
        args, kwargs = pytree.tree_map_only(FakeTensor, lambda leaf: self.real_values[leaf], (args, kwargs))
        with without_modes(), torch.no_grad():
            return _RealResult(known=True, value=for_program(func, *args, **kwargs))

    def set_values(self, fake: Any, real: Any) -> None:
        """Remember the real values behind the fake tensors of a result. `fake` and `real` are the result on fake
        tensors and with values."""
        if self.real_values is None:
            return
        # Not strict: a leaf without a partner has no values to remember.
        for fake_leaf, real_leaf in zip(pytree.tree_leaves(fake), pytree.tree_leaves(real), strict=False):
            if isinstance(fake_leaf, FakeTensor) and isinstance(real_leaf, Tensor):
                self.real_values[fake_leaf] = real_leaf


class _ReadingReplay(TorchDispatchMode):
    """A dispatch mode that answers operators that read values with the readings of the warm-up run, in order.

    It is no observer: it answers calls. Whether an operator reads values is asked before whether it is composite,
    because a composite operator that reads none must reach AOTAutograd as it is, which decomposes it itself.

    `remaining` are the readings that have not been returned yet; in a fake capture those that depend on no input are
    left out, because the FakeWorld knows their values. `guards` has the tensors that were read (marked clones, which
    the traced function returns), each with its Reading. `used` says that the mode has been needed. Without
    `specialize`, a read that depends on an input is refused. `fake` is the fake mode below, to which a read is
    announced.
    """

    def __init__(
        self, readings: Sequence[Reading], fake: _RecordedFakes, specialize: bool, paths: Mapping[int, str]
    ) -> None:
        """`readings` are those of the warm-up run, in order, and `fake` is the fake mode below. Without `specialize`, a
        read that depends on an input is refused. `paths` has the path of each module by its identity."""
        super().__init__()
        self.paths = paths
        self.remaining = [reading for reading in readings if fake.world is None or reading.inputs]
        self.fake, self.specialize = fake, specialize
        self.guards: list[tuple[Tensor, Reading]] = []
        self.used = bool(self.remaining)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator; answer one that reads values (CHECKS, `.item()`, sizes that depend on values) with the
        reading of the warm-up run. A collective that writes into its argument runs as its functional form (`form_of`),
        and a composite operator as the operators that it calls."""
        if any(map(is_wrapper_class, types)):
            return NotImplemented  # the wrapper calls operators on the tensor inside
        # A collective that writes into its argument is traced as the functional form, which returns the result.
        if self.fake.world is not None and (form := form_of(func)) is not None:
            self.used = True
            with self, torch.no_grad():  # autograd does not record the collective, in the program as here
                return form(*args, **(kwargs or {}))
        if not reads_values(func) or (func in CHECKS and self.fake.world is not None):
            return for_program(func, *args, **(kwargs or {}))
        if is_composite(func, args, kwargs):
            return decompose_under_mode(self, func, args, kwargs)
        self.used = True
        # In a fake capture, a value that follows from constants is known, and needs no guard.
        if self.fake.world is not None:
            inner = pytree.tree_map_only(Tensor, from_functional, (args, kwargs or {}))
            if self.fake.world.follows_from_constants(func, pytree.tree_leaves(inner)):
                real_result = self.fake.world.run_on_real_values(func, *inner)
                if isinstance(_first_leaf(real_result), Tensor):
                    # The world makes the fake tensor of that size, below autograd.
                    return for_program(func, *args, **(kwargs or {}))
                return real_result
            if not self.remaining:
                # Only for the message: which inputs the value depends on, and the value itself, are not known.
                reading = Reading(str(func), source=frames.here(paths={}), inputs=(), result=None)
                raise DataDependentError(describe_reading_without_values(reading))
        reading = self.next_reading(func)
        # A number is answered at once. A tensor's size is answered in `_RecordedFakes.dispatch`, below autograd.
        if not isinstance(_first_leaf(reading.result), Tensor):
            self.add_guard(func, args, reading)
            return reading.result
        self.fake.expected = reading
        try:
            result = for_program(func, *args, **(kwargs or {}))
        finally:
            # `dispatch` clears it when it returns the reading. An operator whose size needed no values does not use it.
            was_used, self.fake.expected = self.fake.expected is None, None
        if was_used:
            self.add_guard(func, pytree.tree_leaves(result), reading)
        return result

    def next_reading(self, func: Any) -> Reading:
        """Return the next reading of the warm-up run by this operator at the present line; raise if there is none.

        Readings that are skipped are checks that an operator runs on real values only, as `one_hot` does.
        """
        here = frames.here(self.paths)
        expected = self.remaining[0] if self.remaining else None
        while self.remaining:
            reading = self.remaining.pop(0)
            if (reading.operator, reading.source) == (str(func), here):
                return reading
        raise CaptureError(
            f"while traced the program runs {func} ({line_text(here)}) where its first run had "
            f"{f'{expected.operator} ({line_text(expected.source)})' if expected else 'nothing'}: "
            "its runs differ, or it checks whether it is traced"
        )

    def add_guard(self, func: Any, values: Sequence[Any], reading: Reading) -> None:
        """Add a guard on a value that was read, if it depends on an input: on the first of `values`, the operator's
        arguments where it read a number, else its results. Without `specialize`, raise a DataDependentError, except for
        an operator of CHECKS, which returns no value."""
        if func is READ:
            self.fake.note_number_read(from_functional(values[0]))
        if not reading.inputs:
            return
        if func in CHECKS:
            # `_linalg_check_errors` fails on an error code other than 0, `_assert_async` on a value that is 0.
            failed = values[0] != 0 if func is CHECK else values[0] == 0
            self.guards.append((_marked_clone(failed.any()), replace(reading, result=False)))
            return
        if not self.specialize:
            raise DataDependentError(_refusal_of_reading(reading))
        if func is READ or isinstance(_first_leaf(reading.result), Tensor):
            # A clone is made now, because the program may write to the tensor later.
            self.guards.append((_marked_clone(values[0].detach()), reading))
        else:
            # Another operator that read a number: no step of the graph can check it.
            self.fake.unforeseen.append(str(func))


def line_text(source: Source | None) -> str:
    """Return a file and line for a message."""
    return source.at if source else "no line of the program"


def _first_leaf(value: Any) -> Any:
    """Return the first leaf of a result, or None."""
    return next(iter(pytree.tree_leaves(value)), None)


def _refusal_of_reading(reading: Reading) -> str:
    """Return the message for a program that reads values without `specialize=True`, which would keep them as guards."""
    where = reading.source
    place = f" at {where.file}:{where.line} in {where.function}: {where.code!r}" if where else ""
    depends = f" (it depends on {', '.join(reading.inputs[:6])})"
    return (
        f"{reading.operator} reads values that tracing does not have{place}{depends}. "
        "Pass specialize=True to take this run's value and keep it as a guard"
    )


# ---- The function that AOTAutograd traces


class _FlatResult(NamedTuple):
    """One result of the traced function: the name of an output or of a tensor that was written to or replaced, its role
    (`output`, `mutation` or `guard`), and the marked clone that is returned."""

    name: str
    role: str
    tensor: Tensor


class _TracedFunction:
    """The function that AOTAutograd traces: it takes the program's tensors and returns marked clones of its results.

    AOTAutograd calls it more than once; the attributes are those of the last call. `readings` are those of the warm-up
    run. `names` has the names of the tensors that it takes, and `table` the tensor that replaces each of the program's
    own, by identity. `open` holds contexts that stay open after a call. `outputs` has the name and role of each result,
    and `guards` the Readings of those with the role `guard`. `tree` and `leaves` are the structure of the program's
    result. `shards_of_outputs` and `shards_of_gradients` have the sharding of DTensors, by name. `reads_values` says
    whether `_ReadingReplay` is needed. With `real`, the values of fake tensors are computed too. `dynamic` is the
    user's option, and `sizes` the ShapeEnv of the symbolic sizes that it asks for, or None.
    """

    def __init__(
        self, program: ObservedProgram, readings: Sequence[Reading], specialize: bool, real: bool, dynamic: Any = False
    ) -> None:
        """`readings` are those of the warm-up run. With `specialize`, reads that depend on an input become guards; else
        they are refused. With `real`, values are computed beside the fake tensors. `dynamic` is the user's option."""
        self.program, self.specialize = program, specialize
        self.readings = tuple(readings)
        self.paths = module_paths(program.target())
        self.sizes = symbolic.sizes(program, dynamic, self.paths)
        self.fake = _RecordedFakes(real, program.world, self.sizes)
        self.names = tuple(named.name for named in program.tensors)
        self.table: dict[int, Tensor] = {}
        self.open = contextlib.ExitStack()
        self.outputs: list[tuple[str, str]] = []
        self.guards: list[Reading] = []
        self.reads_values = bool(self.readings) or program.world is not None
        self.tree = NO_RESULT
        self.leaves: tuple[Any, ...] = ()
        self.shards_of_outputs: dict[str, str] = {}
        self.shards_of_gradients: dict[str, str] = {}

    def fakes(self) -> tuple[Tensor, ...]:
        """Return a fake leaf for every named tensor. Tensors that share memory which the program writes to get separate
        memory here."""
        # Without values: those that are known are put beside the fake tensors below, if values are computed.
        values = self.program.current_tensors(keep_values=False)
        # In a fake capture, the values that the world knows.
        known = {} if self.program.world is None else self.program.world.real_values_by_name(self.program.all_tensors())
        names_apart = set(_names_sharing_memory(self.program))
        fakes = []
        for named in self.program.tensors:
            value = values[named.name].detach()
            with self.fake.mode:
                if self.sizes and named.name in self.sizes.dims:
                    fake = self.sizes.fake(self.fake.mode, named.name, value)
                else:
                    # `sharing_memory` makes the separate arguments views of one base again.
                    fake = fake_like(value) if named.name in names_apart else self.to_fake(value)
            fake = fake.detach().requires_grad_(named.requires_grad)
            # Where values are computed too, those behind this fake tensor.
            real = value if self.program.world is None else known.get(named.name)
            if self.fake.real_values is not None and real is not None:
                self.fake.real_values[fake] = real
            fakes.append(fake)
        return tuple(fakes)

    def to_fake(self, value: Tensor) -> Tensor:
        """Return a fake tensor for a real one; a fake one itself."""
        if isinstance(value, FakeTensor):
            return value
        fake: Tensor = self.fake.mode.from_tensor(value, static_shapes=True)
        return fake

    def __call__(self, flat: Sequence[Tensor]) -> list[Tensor]:
        """Run the program's forward on these tensors; return marked clones of its outputs, of the tensors that it wrote
        to or replaced, and of the values that it read. `outputs` then has the name and the role of each: of a module
        that returns one tensor and counts its calls, ("output", "output") and ("calls", "mutation").
        """
        program = self.program
        values = dict(zip(self.names, flat, strict=True))
        replay = _ReadingReplay(self.readings, self.fake, self.specialize, self.paths)
        if self.fake.real_values is not None:
            seed_torch(SEED)  # the values that a backward reads are those of the program's own run
        # `ready` are the program's tensors without wrappers, `passed` the same as the program takes them (DTensors).
        ready = sharing_memory(program, clone_written_tensors(program, values, _marked_clone))
        versions = {
            name: version_of(ready[name]) for name in (*program.cloned_when_traced, *_names_sharing_memory(program))
        }
        passed = self.let_program_have(ready)
        attributes_before = dict(tensors_of(program.target()))
        # Where there are external tensors, `tracing` has entered a mode that replaces tensors in the backward too.
        lines = _LineNotes(self.paths, program.world is not None, {} if program.external_tensors else self.table)
        answers = replay if self.reads_values else contextlib.nullcontext()
        with lines, answers, symbolic.noting_user_lines(self.sizes):
            result = result_of(program, passed)
        # If nothing was read, the next call runs without the mode.
        self.reads_values = replay.used
        named, self.tree = named_outputs(program, result)
        self.leaves = tuple(_leaf_without_tensor(leaf) for _, leaf in named)
        tensors = {name: leaf for name, leaf in named if isinstance(leaf, Tensor)}
        self.shards_of_outputs = {name: sharding_text(leaf) for name, leaf in tensors.items()}
        flat_results = [
            _FlatResult(name, "output", _marked_clone(unwrap_by_autograd(leaf, _marked_alias)))
            for name, leaf in tensors.items()
        ]
        # A new version says that the program has written to the tensor.
        written = [name for name, version in versions.items() if version_of(ready[name]) != version]
        flat_results += [_FlatResult(name, "mutation", _marked_clone(ready[name].detach())) for name in written]
        name_by_id = {id(tensor): name for name, tensor in {**program.own_tensors(), **ready, **passed}.items()}
        flat_results += _replaced_attributes(program, attributes_before, name_by_id)
        for tensor, _ in replay.guards:
            flat_results.append(_FlatResult("guard", "guard", _marked_clone(tensor.detach())))
        self.guards = [reading for _, reading in replay.guards]
        self.outputs = [(name, role) for name, role, _ in flat_results]
        return [tensor for _, _, tensor in flat_results]

    def let_program_have(self, ready: dict[str, Tensor]) -> dict[str, Tensor]:
        """Put the tensors `ready` in the place of the program's own, and return them as the program takes them: a
        wrapper (a DTensor) around a tensor where it takes one. Fills `table`.

        This holds until the next call, or until `tracing` ends: AOTAutograd runs the backward after a call has
        returned. What a call changes is restored then, because AOTAutograd runs the program more than once.
        """
        self.open.close()
        self.open.enter_context(
            restoring_everything_reachable(self.program.target(), nontensor_arguments(self.program))
        )
        note_shard_of_gradient = self.shards_of_gradients.__setitem__  # called in the backward, by name
        passed = wrap_values(self.program, ready, alias=_marked_alias, note=note_shard_of_gradient)
        self.open.enter_context(with_values(self.program, ready, self.table, passed))
        return passed


def _replaced_attributes(
    program: ObservedProgram, before: Mapping[str, Tensor], name_by_id: Mapping[int, str]
) -> list[_FlatResult]:
    """Return the attributes that now hold another tensor than `before`, as flat results: a mutation of the program's
    tensor that the attribute held, if it held one (`name_by_id`)."""
    return [
        _FlatResult(name_by_id.get(id(before.get(name)), name), "mutation", _marked_clone(unwrap(tensor).detach()))
        for name, tensor in tensors_of(program.target())
        if before.get(name) is not tensor
    ]


class _StatelessModule(nn.Module):
    """The module that AOTAutograd traces: a function of flat tensors, without state."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["body"] = body

    def forward(self, *flat: Tensor) -> list[Tensor]:
        results: list[Tensor] = self.__dict__["body"](flat)
        return results


def _leaf_without_tensor(leaf: Any) -> Any:
    """Replace a tensor by `A_TENSOR`; a symbolic size becomes its number, with a guard."""
    if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
        return symbolic.specialize_number(leaf)
    return A_TENSOR if isinstance(leaf, Tensor) else leaf


def _names_sharing_memory(program: ObservedProgram) -> tuple[str, ...]:
    """Return the names of tensors that share memory to which the program writes."""
    return tuple(name for group in program.written_alias_groups for name in group)


def sharing_memory(program: ObservedProgram, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return `values` with the tensors of each group that the program writes to as views of one base, into which each
    value is written: they share memory, as the caller's do. Other tensors stay as they are. Refuse a group of several
    dtypes."""
    real = program.values
    for group in program.written_alias_groups:
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


# ---- The joint graph: without our clones, partitioned, its inputs and outputs identified


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced program: fx graphs, with the names of their outputs, gradients and tangents, and the sharding of outputs
    and gradients that are DTensors.

    `joint` is the graph before it was partitioned into `forward` and `backward` (None if no output is differentiable).
    `outputs` has name and role of each result of the traced function, guarded values included, whose Readings are in
    `readings`. `gradients` has the name of the tensor of each gradient, '' for one that is None, and `tangents` the
    name of the output of each tangent. `unforeseen` are operators whose reads no guard checks. `tree` and `leaves` are
    the structure of the program's result. `sizes` has the symbols of sizes and the guards on them. `casts` counts the
    casts of the program's own leaves in the traced forward.
    """

    forward: torch.fx.GraphModule
    backward: torch.fx.GraphModule | None
    joint: torch.fx.GraphModule
    outputs: tuple[tuple[str, str], ...]
    gradients: tuple[str, ...]
    tangents: tuple[str, ...]
    readings: tuple[Reading, ...]
    unforeseen: tuple[str, ...]
    tree: ResultTree
    leaves: tuple[Any, ...]
    sizes: symbolic.SizeFindings
    shards_of_outputs: Mapping[str, str]
    shards_of_gradients: Mapping[str, str]
    casts: int = 0


ORDERED = (
    "{} calls an operator whose side effects must keep their order (a collective in place, a print, a script object), "
    "which engine 'aot' does not keep: use the functional form, or leave that call outside"
)


ALIASES = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)
"""The operators as which an alias of `_marked_alias` may be in the graph."""


def remove_marked_clones(joint: torch.fx.GraphModule) -> None:
    """Remove the clones that the traced function put around its inputs and outputs, and the marks of a profiler."""
    # In reverse, so that the users of a node are gone before it is looked at.
    for node in reversed(list(joint.graph.nodes)):
        if getattr(node.target, "namespace", "") == "profiler" and not node.users:
            joint.graph.erase_node(node)
    for node in list(joint.graph.nodes):
        note = (node.meta.get("custom") or {}).get(NOTE_KEY)
        if (
            # AOTAutograd copies the notes of forward nodes to the backward's: a marked clone in the backward is made by
            # autograd, and stays.
            note is True
            and node.target is torch.ops.aten.clone.default
            and node.meta.get("partitioner_tag") != "is_backward"
        ) or (note == ALIAS and node.target in ALIASES):
            node.replace_all_uses_with(node.args[0])
            joint.graph.erase_node(node)
    # A `detach` with our mark that now has no user.
    for node in reversed(list(joint.graph.nodes)):
        note = (node.meta.get("custom") or {}).get(NOTE_KEY)
        if note is True and node.target is torch.ops.aten.detach.default and not node.users:
            joint.graph.erase_node(node)


def _split_joint(
    run: _TracedFunction, joint: torch.fx.GraphModule, partition: str | Callable[..., Any] | None
) -> Traced:
    """Partition the joint graph, and name every tangent, output and gradient. `run` is the function that was traced,
    and `partition` the user's option (None: PyTorch's min-cut)."""
    outputs, gradients = _results_of_joint(run, joint)
    tangents = _tangents_of_joint(run, joint)
    forward, backward = joint, None
    # Without a differentiable output, the joint graph is the forward.
    if tangents:
        forward, backward = partition_joint(joint, partition or "min-cut", len(outputs))
    return Traced(
        forward=forward,
        backward=backward,
        joint=joint,
        outputs=outputs,
        gradients=gradients if tangents else (),
        tangents=tangents,
        readings=tuple(run.guards),
        unforeseen=tuple(dict.fromkeys(run.fake.unforeseen)),
        tree=run.tree,
        leaves=run.leaves,
        sizes=symbolic.findings_of(run.sizes),
        shards_of_outputs=run.shards_of_outputs,
        shards_of_gradients=run.shards_of_gradients,
    )


def _results_of_joint(
    run: _TracedFunction, joint: torch.fx.GraphModule
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return name and role of each output of the forward, and for each gradient the name of its tensor ('' for an input
    without a gradient). Raise a CaptureError for a token, which an operator with side effects has, or for a result of
    any other kind. AOTAutograd's descriptors say what each result of the joint graph is."""
    outputs, gradients = [], []
    for desc in joint.graph.output_node().meta["desc"]:
        match desc:
            case descriptors.PlainAOTOutput(idx=index):
                outputs.append(run.outputs[index])
            case descriptors.InputMutationAOTOutput(mutated_input=descriptors.PlainAOTInput(idx=index)):
                outputs.append((run.names[index], "mutation"))
            case descriptors.GradAOTOutput(grad_of=descriptors.PlainAOTInput(idx=index)):
                gradients.append(run.names[index])
            case None:
                gradients.append("")
            case descriptors.ForwardTokenAOTOutput() | descriptors.BackwardTokenAOTOutput():
                raise CaptureError(ORDERED.format(run.program.title))
            case _:
                raise CaptureError(f"the joint graph returns {desc.expr()}, which engine 'aot' does not support")
    return tuple(outputs), tuple(gradients)


def _tangents_of_joint(run: _TracedFunction, joint: torch.fx.GraphModule) -> tuple[str, ...]:
    """Return the names of the outputs whose tangents are inputs of the joint graph; refuse an input that is neither a
    tangent nor a tensor of the program."""
    tangents = []
    for node in joint.graph.find_nodes(op="placeholder"):
        match node.meta["desc"]:
            case descriptors.TangentAOTInput(output=descriptors.PlainAOTOutput(idx=index)):
                tangents.append(run.outputs[index][0])
            case descriptors.PlainAOTInput():
                pass
            case desc:
                raise CaptureError(f"the joint graph takes {desc.expr()}, which engine 'aot' does not support")
    return tuple(tangents)


# ---- Tracing


def trace(
    program: ObservedProgram,
    seen: Findings,
    specialize: bool = False,
    partition: str | Callable[..., Any] | None = None,
    decompose: Mapping[Any, Callable[..., Any]] | None = None,
    dynamic: Any = False,
) -> Traced:
    """Trace a program with AOTAutograd, and partition the joint graph. `seen` has the findings of the warm-up run;
    `specialize`, `partition`, `decompose` and `dynamic` are the user's options of a capture.

    Refuse a program, unless it has no values, of which autocast casts a leaf once for several uses: the trace casts it
    for each use.
    """
    traced = _trace_values(program, seen, specialize, partition, decompose, dynamic)
    if program.world is None and traced.casts > seen.cast_leaf_count:
        raise CaptureError(
            f"autocast casts a leaf of {program.title} once for several uses, and tracing casts it again for each, so "
            "gradients would be rounded differently: turn the cache off (torch.autocast(..., cache_enabled=False)), or "
            "use engine 'eager'"
        )
    return traced


def _trace_values(
    program: ObservedProgram, seen: Findings, specialize: bool, partition: Any, decompose: Any, dynamic: Any
) -> Traced:
    """Trace without values; if an operator needs some and the user passed `specialize`, trace again with values
    computed beside the fake tensors. The parameters are those of `trace`."""
    try:
        without_values = _TracedFunction(program, seen.readings, specialize, real=False, dynamic=dynamic)
        return _trace_once(without_values, partition, decompose)
    except DataDependentError as error:
        # A refusal of ours has no cause, and values would not help. The cause is torch's error where an operator needs
        # values.
        if not specialize or error.__cause__ is None:
            raise
    with_values_too = _TracedFunction(program, seen.readings, specialize, real=True, dynamic=dynamic)
    return _trace_once(with_values_too, partition, decompose)


def _trace_once(
    run: _TracedFunction, partition: str | Callable[..., Any] | None, decompose: Mapping[Any, Callable[..., Any]] | None
) -> Traced:
    """Trace a program with one call of AOTAutograd, and partition the joint graph. Raise a DataDependentError where an
    operator needs values, and a CaptureError with torch's text for any other error of the trace; defects of Backprint
    are raised as they are."""
    program = run.program
    with tracing(run) as stack:
        try:
            joint = export_joint(stack, _StatelessModule(run), run.fakes(), dict(decompose or {}))
        except UNKNOWN_VALUES as error:
            raise DataDependentError(_late_reading_message(program, error)) from error
        except UnsupportedOperatorException as error:
            raise CaptureError(
                f"{error.func} has no fake kernel, so it cannot be traced: "
                "register one with torch.library.register_fake"
            ) from error
        # A refusal, which names what to do already.
        except BackprintError:
            raise
        except Exception as error:
            if is_defect(error):
                raise
            text = f"{type(error).__name__}: {str(error)[:1000]}"
            raise CaptureError(f"{program.title} runs, but AOTAutograd cannot trace it: {text}") from error
        graph_module = joint.graph_module
        remove_marked_clones(graph_module)
        pin_dtypes(graph_module)
        leaf_casts = _count_leaf_casts(program, graph_module)  # before the partition, which merges equal casts
        return replace(_split_joint(run, graph_module, partition), casts=leaf_casts)


@contextlib.contextmanager
def tracing(run: _TracedFunction) -> Iterator[contextlib.ExitStack]:
    """Enter all patches and modes for tracing the function `run` with AOTAutograd; yield the stack, on which
    AOTAutograd enters its own."""
    with contextlib.ExitStack() as stack:
        # Fake tensors: readings of the warm-up run, and the devices of this machine.
        stack.enter_context(replaced_dispatch(run.fake.mode, run.fake.dispatch))
        if run.program.world is not None and is_missing_device("cuda"):
            stack.enter_context(_without_cuda())
        stack.enter_context(lazy_code(True))  # graphs write their Python code only when it is needed
        # Operators as eager runs them, and no code of the user's compiled.
        stack.enter_context(without_effects_of_checks())
        stack.enter_context(errors_not_logged())
        stack.enter_context(_as_eager_runs(symbolic=run.sizes is not None))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(warnings.catch_warnings())
        # Of anomaly mode, and of a read of `.grad`: in a trace they would be about its stand-ins.
        warnings.filterwarnings("ignore", message="Error detected in")
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
        # The program: its objects are restored, and its backward runs under the same function modes.
        stack.enter_context(restoring_everything_reachable(run.program.target(), nontensor_arguments(run.program)))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(fx_traceback.preserve_node_meta())
        stack.enter_context(modes_reach_backward())
        stack.enter_context(shapes_computed_apart())  # DTensor's computation of shapes is no part of the program
        stack.enter_context(_OwnBackwardNotes())
        if run.program.external_tensors:
            stack.enter_context(SubstituteTensors(run.table))
        # The block that the traced function's last call has left open; it closes before the modes above are left.
        stack.callback(lambda: run.open.close())
        yield stack


def _late_reading_message(program: ObservedProgram, error: Any) -> str:
    """Return the message for an operator that needed values where `_ReadingReplay` saw no read."""
    place = frames.place(frames.source_of_error(error, module_paths(program.target())))
    return (
        f"{error.func} reads values that tracing does not have{place}, inside an operator or its backward. "
        "Pass specialize=True to take this run's values and keep them as guards"
    )


def _count_leaf_casts(program: ObservedProgram, joint: torch.fx.GraphModule) -> int:
    """Count the casts of a program's own leaves in a traced forward: as autocast makes them, without its cache."""
    requiring_grad = {index for index, named in enumerate(program.tensors) if named.requires_grad}
    casts = joint.graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default)
    forward_arguments = [node.args[0] for node in casts if node.meta.get("partitioner_tag") != "is_backward"]
    return sum(
        node.op == "placeholder" and getattr(node.meta["desc"], "idx", None) in requiring_grad
        for node in forward_arguments
    )
