"""Engine `aot`: AOTAutograd's joint graph, cut into forward and backward.

The program is traced as a function of its named tensors that returns fresh copies of its outputs, so AOTAutograd sees
no aliases; the copies are taken out again. Private torch APIs of this module, tried on torch 2.13:
`torch._functorch.aot_autograd.aot_export_joint_with_descriptors`, its descriptors,
`torch._subclasses.FakeTensorMode`, `FunctionalTensor`, `torch.fx.traceback`, and `torch.fx._lazy_graph_module`, which
neither writes nor compiles the code of graphs that nobody runs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch import Tensor, nn
from torch._functorch._aot_autograd import descriptors
from torch._functorch._aot_autograd.functional_utils import from_fun
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, UnsupportedOperatorException
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from backprint.capture import frames, symbolic
from backprint.capture.custom import is_composite, taken_apart, through
from backprint.capture.cut import split
from backprint.capture.fake import (
    UNKNOWN_VALUES,
    World,
    absent,
    dispatching,
    fake_like,
    on_present_devices,
    shapes_of,
)
from backprint.capture.keep import kept
from backprint.capture.program import (
    Program,
    Substitute,
    modes_reach_backward,
    named_outputs,
    placed,
    result_of,
    shielded,
    with_others,
)
from backprint.capture.reach import tensors_of
from backprint.capture.scout import (
    CHECK,
    CHECKS,
    SEED,
    Reading,
    Sighting,
    module_paths,
    reads_values,
    rewritten,
    unknown,
)
from backprint.errors import BackprintError, CaptureError, DataDependentError
from backprint.fx.convert import pin_dtypes
from backprint.graph.nouns import Source

OURS = "backprint"
"""The key under which a node's metadata carries our Source; True marks a copy to take out again."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced program: fx graphs, and what each of their outputs, gradients and tangents is."""

    forward: torch.fx.GraphModule
    backward: torch.fx.GraphModule | None
    joint: torch.fx.GraphModule
    outputs: tuple[tuple[str, str], ...]
    gradients: tuple[str, ...]
    tangents: tuple[str, ...]
    readings: tuple[Reading, ...]
    unforeseen: tuple[str, ...]
    tree: Any
    leaves: tuple[Any, ...]
    sizes: symbolic.Found
    casts: int = 0


READ = torch.ops.aten._local_scalar_dense.default
"""The operator that reads a number."""


def place_of(tensor: Tensor) -> tuple[Any, ...]:
    """Where a number lies. Traced tensors are never written to: two reads of one place read the same."""
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.dtype


class Recorded:
    """Fake tensors that answer what only values can tell with what the scouting run read.

    The mode stays a plain FakeTensorMode with its `dispatch` wrapped: higher-order operators know modes by their type.
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
                self.follow(result, reading.result)  # in place of the unwritten memory that `fake_like` was followed by
                return result
            known, real = self.really(func, args, kwargs or {})
            if not known:
                raise
            if func is not READ or place_of(args[0]) not in self.held:
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
        """A number that the forward has read: where a backward reads it again, it is the one that was checked."""
        self.held[place_of(tensor)] = tensor

    def really(self, func: Any, args: Any, kwargs: Any) -> tuple[bool, Any]:
        """The operator on the real values behind these fake tensors, where all are known."""
        if self.reals is None:
            return False, None
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        if any(leaf not in self.reals for leaf in given):
            return False, None
        args, kwargs = pytree.tree_map_only(FakeTensor, lambda leaf: self.reals[leaf], (args, kwargs))
        with _disable_current_modes(), torch.no_grad():
            return True, func(*args, **kwargs)

    def follow(self, fake: Any, real: Any) -> None:
        """Remember the real values behind a result."""
        if self.reals is None:
            return
        for left, right in zip(pytree.tree_leaves(fake), pytree.tree_leaves(real), strict=False):
            if isinstance(left, FakeTensor) and isinstance(right, Tensor):
                self.reals[left] = right


class Told(TorchDispatchMode):
    """Meets the operators that read values in the order of the scouting run, and tells what they read there."""

    def __init__(self, readings: Sequence[Reading], fake: Recorded, specialise: bool, paths: Mapping[int, str]) -> None:
        super().__init__()
        self.paths = paths
        self.waiting = [reading for reading in readings if fake.world is None or reading.inputs]
        self.fake, self.specialise = fake, specialise
        self.guards: list[tuple[Tensor, Reading]] = []
        self.used = bool(self.waiting)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not reads_values(func) or (func in CHECKS and self.fake.world is not None):
            return func(*args, **(kwargs or {}))
        if is_composite(func):
            return taken_apart(self, func, args, kwargs)
        self.used = True
        if self.fake.world is not None:
            inner = pytree.tree_map_only(Tensor, from_fun, (args, kwargs or {}))
            if self.fake.world.able(func, pytree.tree_leaves(inner)):
                found = self.fake.world.really(func, *inner)
                return func(*args, **(kwargs or {})) if isinstance(first_leaf(found), Tensor) else found
            if not self.waiting:
                raise DataDependentError(unknown(Reading(str(func), frames.here({}), (), None)))
        reading = self.meet(func)
        if not isinstance(first_leaf(reading.result), Tensor):
            self.take(func, args, reading)
            return reading.result
        self.fake.expected = reading
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            needed, self.fake.expected = self.fake.expected is None, None
        if needed:
            self.take(func, pytree.tree_leaves(result), reading)
        return result

    def meet(self, func: Any) -> Reading:
        """The next reading of the scouting run in this place: what was read elsewhere is not its value.

        Readings that are passed over are checks which an operator makes of real values alone, as `one_hot` does.
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
            "it does not do the same twice, or looks whether it is traced"
        )

    def take(self, func: Any, values: Sequence[Any], reading: Reading) -> None:
        """Go on with what the scouting run read: as a guard, where it hangs on an input."""
        if func is READ:
            self.fake.hold(from_fun(values[0]))
        if not reading.inputs:
            return
        if func in CHECKS:
            bad = values[0] != 0 if func is CHECK else values[0] == 0
            self.guards.append((mark(bad.any()), replace(reading, result=False)))
            return
        if not self.specialise:
            raise DataDependentError(refusal(reading))
        if func is READ or isinstance(first_leaf(reading.result), Tensor):
            self.guards.append((mark(values[0].detach()), reading))  # now: the program may write to it later
        else:
            self.fake.unforeseen.append(str(func))


def spot(source: Source | None) -> str:
    """A place in few words."""
    return f"{source.file}:{source.line}" if source else "no line of the program"


def first_leaf(value: Any) -> Any:
    """The first leaf of a result; None where there is none."""
    return next(iter(pytree.tree_leaves(value)), None)


def refusal(reading: Reading) -> str:
    """Why a program that reads values is not traced, where it does, and what to do."""
    where = reading.source
    place = f" at {where.file}:{where.line} in {where.function}: {where.code!r}" if where else ""
    hangs = f" (it hangs on {', '.join(reading.inputs[:6])})"
    return (
        f"{reading.operator} reads values that tracing does not have{place}{hangs}. "
        "Pass specialise=True to take this run's value and keep it as a guard"
    )


class Lines(TorchFunctionMode):
    """While AOT traces, notes the user's line and module path on every node a torch call makes.

    With a `table`, the program's own tensors, which it may reach past its module, have others in their place.
    """

    def __init__(self, paths: Mapping[int, str], fake: bool, table: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.paths, self.fake, self.table = paths, fake, table

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.table:
            args, kwargs = with_others(self.table, args), with_others(self.table, kwargs or {})
        if func.__name__ == "__get__":
            return func(*args)
        func, args, kwargs = rewritten(func, args, kwargs)
        if self.fake:
            func, args, kwargs = on_present_devices(func, args, kwargs)
        with noted(frames.here(self.paths)):
            return through(self, func, args, kwargs)


@contextlib.contextmanager
def noted(what: Any) -> Iterator[None]:
    """Nodes made inside carry this note."""
    meta = fx_traceback.current_meta
    before = meta.get("custom")
    meta["custom"] = {OURS: what}
    try:
        yield
    finally:
        if before is None:
            meta.pop("custom", None)
        else:
            meta["custom"] = before


class _Function(nn.Module):
    """What AOTAutograd is given: a module without state, around a function of flat tensors."""

    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.__dict__["body"] = body

    def forward(self, *flat: Tensor) -> list[Tensor]:
        found: list[Tensor] = self.__dict__["body"](flat)
        return found


def trace(
    program: Program,
    seen: Sighting,
    specialise: bool = False,
    partition: str | Callable[..., Any] | None = None,
    decompose: Mapping[Any, Callable[..., Any]] | None = None,
    dynamic: Any = False,
) -> Traced:
    """Trace a program with AOTAutograd and cut the joint graph."""
    traced = trace_values(program, seen, specialise, partition, decompose, dynamic)
    if program.world is None and traced.casts > seen.casts:
        raise CaptureError(
            f"autocast casts a leaf of {program.title} once for several uses, and tracing casts it anew for each, so "
            "gradients would be rounded otherwise: switch the cache off (torch.autocast(..., cache_enabled=False)), or "
            "use engine 'eager'"
        )
    return traced


def casts(program: Program, joint: torch.fx.GraphModule) -> int:
    """How many casts of a program's own leaves a traced forward has."""
    asking = {index for index, named in enumerate(program.tensors) if named.requires_grad}
    found = joint.graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default)
    ahead = [node.args[0] for node in found if node.meta.get("partitioner_tag") != "is_backward"]
    return sum(node.op == "placeholder" and getattr(node.meta["desc"], "idx", None) in asking for node in ahead)


def trace_values(
    program: Program, seen: Sighting, specialise: bool, partition: Any, decompose: Any, dynamic: Any
) -> Traced:
    """Trace without values, or where that will not do and the user specialises, beside them."""
    try:
        return trace_once(_Run(program, seen.readings, specialise, False, dynamic), partition, decompose)
    except DataDependentError as error:
        if not specialise or error.__cause__ is None:
            raise
    return trace_once(_Run(program, seen.readings, specialise, True, dynamic), partition, decompose)


@contextlib.contextmanager
def quiet_log() -> Iterator[None]:
    """What fails under fake tensors is raised; torch would log it, with its stack, as well."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


@contextlib.contextmanager
def without_effects() -> Iterator[None]:
    """Error checks of linear algebra are no effects to keep: as such they would thread tokens through the graph."""
    holder = torch._library.simple_registry.singleton.find("aten::_linalg_check_errors").effect
    before = holder.effect
    holder.register(None)
    try:
        yield
    finally:
        holder.register(before)


@contextlib.contextmanager
def without_cuda() -> Iterator[None]:
    """`x.cuda()` gives `x` on the CPU while a fake capture is traced on a machine that has no such device."""
    before = FunctionalTensor.cuda
    FunctionalTensor.cuda = lambda self, *_, **__: self.cpu()
    try:
        yield
    finally:
        FunctionalTensor.cuda = before


REAL = tuple(
    "upsample_ _upsample_ multi_margin_loss multilabel_margin_loss hardshrink softshrink lstm gru rnn_".split()
)
"""Operators that tracing would take apart in Python into others than eager runs, with results near, not the same."""


STATIC = ("aten::hardshrink", "aten::softshrink")
"""Those whose own backward torch cannot trace with symbolic sizes: with these they are taken apart."""


@contextlib.contextmanager
def as_eager_runs(symbolic: bool) -> Iterator[None]:
    """Trace these operators as the ones that eager runs, not as their Python decompositions."""
    taken = []
    for operator in python_decomposed():
        if symbolic and operator._schema.name in STATIC:
            continue
        for key in (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd):
            if key in operator.py_kernels:
                taken.append((operator, key, operator.py_kernels.pop(key)))
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, key, kernel in taken:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()


@functools.cache
def python_decomposed() -> tuple[Any, ...]:
    """The operators of REAL."""
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten) if name.startswith(REAL)]
    return tuple(getattr(packet, kind) for packet in packets for kind in packet.overloads())


def trace_once(
    run: _Run, partition: str | Callable[..., Any] | None, decompose: Mapping[Any, Callable[..., Any]] | None
) -> Traced:
    """One try at tracing."""
    program = run.program
    with contextlib.ExitStack() as stack:
        stack.enter_context(dispatching(run.fake.mode, run.fake.dispatch))
        if program.world is not None and absent("cuda"):
            stack.enter_context(without_cuda())
        stack.enter_context(_use_lazy_graph_module(True))
        stack.enter_context(without_effects())
        stack.enter_context(quiet_log())
        stack.enter_context(as_eager_runs(run.sizes is not None))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="Error detected in")
        warnings.filterwarnings("ignore", message="The .grad attribute of a Tensor that is not a leaf")
        stack.enter_context(kept(program.target()))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(fx_traceback.preserve_node_meta())
        stack.enter_context(modes_reach_backward())
        if program.outside:
            stack.enter_context(Substitute(run.table))
        stack.callback(lambda: run.open.close())
        try:
            joint = aot_export_joint_with_descriptors(
                stack,
                _Function(run),
                run.fakes(),
                decompositions=dict(decompose or {}),
                _disable_torch_fn_metadata_mode=True,
            )
        except UNKNOWN_VALUES as error:
            raise DataDependentError(_late(program, error)) from error
        except UnsupportedOperatorException as error:
            raise CaptureError(
                f"{error.func} has no fake kernel, so it cannot be traced: "
                "register one with torch.library.register_fake"
            ) from error
        except BackprintError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:1000]}"
            raise CaptureError(f"{program.title} runs, but AOTAutograd cannot trace it: {said}") from error
        graph_module = joint.graph_module
        take_out_copies(graph_module)
        pin_dtypes(graph_module)
        found = casts(program, graph_module)  # before the graph is cut: that merges casts that are alike
        return replace(traced(run, graph_module, partition), casts=found)


def _late(program: Program, error: Any) -> str:
    place = frames.place(frames.raised(error, module_paths(program)))
    return (
        f"{error.func} reads values that tracing does not have{place}, inside an operator or its backward. "
        "Pass specialise=True to take this run's values and keep them as guards"
    )


class _Run:
    """The traced function: named tensors in, copies of the outputs out, and notes of what they are."""

    def __init__(
        self, program: Program, readings: Sequence[Reading], specialise: bool, real: bool, dynamic: Any = False
    ) -> None:
        self.program, self.specialise = program, specialise
        self.readings = tuple(readings)
        self.paths = module_paths(program)
        self.sizes = symbolic.sizes(program, dynamic, self.paths)
        self.fake = Recorded(real, program.world, self.sizes)
        self.names = tuple(named.name for named in program.tensors)
        self.table: dict[int, Tensor] = {}
        self.open = contextlib.ExitStack()
        self.outputs: list[tuple[str, str]] = []
        self.guards: list[Reading] = []
        self.told = bool(self.readings) or program.world is not None
        self.tree: Any = None
        self.leaves: tuple[Any, ...] = ()

    def fakes(self) -> tuple[Tensor, ...]:
        """Fake leaves for every named tensor; tensors that share memory get memory of their own."""
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
        """A fake tensor for a real one; a fake one itself."""
        if isinstance(value, FakeTensor):
            return value
        made: Tensor = self.fake.mode.from_tensor(value, static_shapes=True)
        return made

    def __call__(self, flat: Sequence[Tensor]) -> list[Tensor]:
        program = self.program
        given = dict(zip(self.names, flat, strict=True))
        told = Told(self.readings, self.fake, self.specialise, self.paths)
        if self.fake.reals is not None:
            torch.manual_seed(SEED)  # what a backward reads beside the trace is what the program's own run drew
        ready = assemble(program, shielded(program, given, mark))
        versions = {name: ready[name]._version for name in (*program.shields, *_assembled(program))}
        self.open.close()
        self.open.enter_context(kept(program.target()))  # AOTAutograd runs the program more than once
        self.open.enter_context(placed(program, ready, self.table))
        reached = dict(tensors_of(program.target()))
        lines = Lines(self.paths, program.world is not None, {} if program.outside else self.table)
        modes = lines, told if self.told else contextlib.nullcontext()
        with modes[0], modes[1], symbolic.noting(self.sizes):
            result = result_of(program, ready)
        self.told = told.used
        named, self.tree = named_outputs(program, result)
        self.leaves = tuple(_still(leaf) for _, leaf in named)
        produced = [(name, "output", mark(leaf)) for name, leaf in named if isinstance(leaf, Tensor)]
        for name, version in versions.items():
            if ready[name]._version != version:
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


def _still(leaf: Any) -> Any:
    """A leaf of the result without its tensor; a size stays the number it is, which becomes a guard."""
    if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
        return symbolic.fixed(leaf)
    return Tensor if isinstance(leaf, Tensor) else leaf


def mark(tensor: Tensor) -> Tensor:
    """A copy that `take_out_copies` will find."""
    with torch._C.DisableTorchFunction(), noted(True):
        return tensor.clone()


def _assembled(program: Program) -> tuple[str, ...]:
    return tuple(name for group in program.assembled for name in group)


def assemble(program: Program, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share memory in the caller's program share it here too: views of one base, filled from each."""
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


# ------------------------------------------------------------------ the joint graph


def take_out_copies(joint: torch.fx.GraphModule) -> None:
    """Remove the copies that the traced function put around its inputs and outputs, and a profiler's marks."""
    for node in reversed(list(joint.graph.nodes)):
        if getattr(node.target, "namespace", "") == "profiler" and not node.users:
            joint.graph.erase_node(node)
    for node in list(joint.graph.nodes):
        note = (node.meta.get("custom") or {}).get(OURS)
        if (
            note is True
            and node.target is torch.ops.aten.clone.default
            and node.meta.get("partitioner_tag") != "is_backward"
        ):
            node.replace_all_uses_with(node.args[0])
            joint.graph.erase_node(node)
    for node in reversed(list(joint.graph.nodes)):
        note = (node.meta.get("custom") or {}).get(OURS)
        if note is True and node.target is torch.ops.aten.detach.default and not node.users:
            joint.graph.erase_node(node)


ORDERED = (
    "{} calls an operator whose side effects must keep their order (a collective in place, a print, a script object), "
    "which engine 'aot' does not keep: use the functional form, or leave that call outside"
)


def traced(run: _Run, joint: torch.fx.GraphModule, partition: str | Callable[..., Any] | None) -> Traced:
    """Split the joint graph, and say what every input and output is."""
    output = joint.graph.output_node()
    descs = output.meta["desc"]
    outputs, gradients = [], []
    for desc in descs:
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
                raise CaptureError(f"the joint graph gives {desc.expr()}, which engine 'aot' does not know how to keep")
    tangents = []
    for node in joint.graph.find_nodes(op="placeholder"):
        match node.meta["desc"]:
            case descriptors.TangentAOTInput(output=descriptors.PlainAOTOutput(idx=index)):
                tangents.append(run.outputs[index][0])
            case descriptors.PlainAOTInput():
                pass
            case desc:
                raise CaptureError(f"the joint graph takes {desc.expr()}, which engine 'aot' does not know how to feed")
    forward, backward = joint, None
    if tangents:
        forward, backward = split(joint, partition or "min-cut", len(outputs))
    return Traced(
        forward,
        backward,
        joint,
        tuple(outputs),
        tuple(gradients) if tangents else (),
        tuple(tangents),
        tuple(run.guards),
        tuple(dict.fromkeys(run.fake.unforeseen)),
        run.tree,
        run.leaves,
        symbolic.found(run.sizes),
    )


__all__ = ["Traced", "trace"]
