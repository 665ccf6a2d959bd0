"""Observe one eager run before a program is traced, for facts that tracing needs.

A trace runs the program on stand-ins. Before it, one forward on real values (on fake tensors, for a program without
values) shows which tensors the program uses from outside its call, which it writes to, where it reads values, and what
it does that no operator shows. The run is a warm-up, and its findings make the ObservedProgram that the engines trace.
A tensor from outside is neither a parameter nor a buffer nor an argument (`external.py`).

`program.tensors` are NamedTensors: name, role and `requires_grad` of each tensor. `grad_by_default` says that no tensor
of the call required grad, so that all floating-point inputs do in the capture. Observations (`seen`) are what is noted
while the run goes on, and an Outcome has its results by name. A program without values has a `world`, a FakeTensorMode
that knows the values of small constants. Memory is known by the id of its storage.

A CalledProgram is a callable with the named tensors of one call; an Observer is told about each operator (`Call`)
before and after it runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from backprint._torch import pytree
from backprint._torch.autograd import current_node
from backprint._torch.distributed import shapes_computed_apart
from backprint._torch.dynamo import ERRORS_OF_DYNAMO
from backprint._torch.fake import UnsupportedOperatorException
from backprint._torch.operators import HigherOrderOperator
from backprint._torch.tensors import storage_id
from backprint.errors import CaptureError, DataDependentError
from backprint.graph.nouns import OpaqueEdge, Source
from backprint.trace import frames
from backprint.trace.edges import OpaqueEdges
from backprint.trace.external import ExternalTensors
from backprint.trace.fake import UNKNOWN_VALUES, FakeWorld
from backprint.trace.non_operator_effects import watching_program
from backprint.trace.observe import Call, Observer, ObservingMode
from backprint.trace.program import (
    SPARSE,
    CalledProgram,
    NamedTensor,
    ObservedProgram,
    Outcome,
    free_name,
    gradient_hooks_of,
    observed_program,
)
from backprint.trace.reach import compiled_parts, module_paths, names_of_outside, restoring_gradients, roots
from backprint.trace.refusals import (
    real_own_tensors,
    refuse_aliases,
    refuse_layouts,
    refuse_shared_written_memory,
    refuse_unknown_origin,
    refuse_untraced_effects,
)
from backprint.trace.running import staged
from backprint.trace.watch import (
    RANDOM,
    SEED,
    SIZED,
    Observations,
    Reading,
    describe_reading_without_values,
    facts_of,
    reads_values,
    refuse_nested,
)
from backprint.trace.witness import run_forward
from backprint.values.settings import preserving_random_states, seed_torch
from backprint.values.tree import alias_groups, plain_leaves


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a warm-up, besides the ObservedProgram.

    `outcome` has the results of the run. `readings` are reads of values by operators, and `reads_without_operator`
    other reads, each by function and line. `opaque` are the opaque edges: where autograd of the plain forward would not
    give the program's gradient. `flags` are the tensor flags (`requires_grad`, `is a view`) that the user's code has
    read: the value and the line, by tensor name and flag. `cast_leaf_count` counts the leaves that autocast casts.
    `checkpoints` says whether the program packs the tensors that autograd saves (`saved_tensors_hooks`), as checkpoints
    do, and `reads_grad_fn` whether it reads `grad_fn`.
    """

    outcome: Outcome
    readings: tuple[Reading, ...]
    opaque: tuple[OpaqueEdge, ...]
    reads_without_operator: tuple[tuple[str, Source | None], ...]
    flags: Mapping[tuple[str, str], tuple[Any, Source | None]]
    cast_leaf_count: int
    checkpoints: bool
    reads_grad_fn: bool


def warm_up(program: CalledProgram, *others: Observer) -> tuple[ObservedProgram, Findings]:
    """Run a program once, observed also by `others`. Return the program with the tensors that it uses from outside and
    that it changes, and the other findings. Refuse a program of which a trace would lose a part."""
    seen, outcome = _observed_step(program, *others)
    # The external tensors follow the program's own.
    with_outside_tensors = add_external_tensors(program, seen)
    # Refuse the effects that a trace would lose.
    refuse_untraced_effects(program, seen, outcome.left_behind)
    refuse_aliases(program, outcome)
    refuse_layouts(program, outcome.outputs)
    names_sharing = names_sharing_written_memory(with_outside_tensors, outcome.mutations)
    # A trace would clone the tensors that share written memory if they require grad, and the clones share no memory. If
    # they require grad only by default, they do not have to: run again without that default.
    if without_default := without_default_grad_of_shared(program, names_sharing):
        return warm_up(without_default, *others)
    names_with_grad = {named.name for named in with_outside_tensors.tensors if named.requires_grad}
    refuse_shared_written_memory(program, names_sharing, names_with_grad)
    # The program with its findings. Autograd refuses writes to leaves that require grad, so later runs pass clones of
    # those that the program writes to.
    written_with_grad = outcome.written_with_grad | {name for name in outcome.mutations if name in names_with_grad}
    written_outside = {
        name for name, tensor in with_outside_tensors.external_tensors.items() if id(tensor) in seen.written
    }
    observed = replace(
        with_outside_tensors,
        cloned_when_traced=written_with_grad | frozenset(with_outside_tensors.hooks),
        cloned_when_eager=written_with_grad,
        accumulates_gradients=seen.reentrant,
        changed_names=frozenset(outcome.mutations) | written_outside,
        written_alias_groups=tuple(group for group in alias_groups(program.values) if set(group) & names_sharing),
    )
    # During the run a tensor from outside has the name `outside N`.
    names = {
        f"outside {index}": named.name
        for index, named in enumerate(with_outside_tensors.tensors[len(program.tensors) :])
    }
    return observed, Findings(
        outcome=outcome,
        readings=tuple(_rename_external_inputs(reading, names) for reading in seen.readings),
        opaque=(*seen.opaque, *hooks_as_edges(with_outside_tensors)),
        reads_without_operator=tuple(seen.reads_without_operator),
        flags=seen.flags,
        cast_leaf_count=seen.cast_leaf_count,
        checkpoints=seen.checkpoints,
        reads_grad_fn=seen.reads_grad_fn,
    )


def names_sharing_written_memory(program: CalledProgram, changed: Collection[str]) -> set[str]:
    """Return the names of the program's tensors that share memory with others, one of which is in `changed`."""
    groups = [group for group in alias_groups(real_own_tensors(program)) if set(group) & set(changed)]
    return {name for group in groups for name in group}


def without_default_grad_of_shared(program: CalledProgram, shared: Collection[str]) -> CalledProgram | None:
    """Return the program without the default `requires_grad` of the tensors in `shared`, which share memory to which it
    writes; None if none of them requires grad by default. Leaves that require grad would be cloned, and the clones
    would share no memory."""
    names_without_grad = {named.name for named in program.tensors if named.requires_grad} & set(shared)
    if not program.grad_by_default or not names_without_grad:
        return None
    tensors = tuple(
        replace(named, requires_grad=False) if named.name in names_without_grad else named for named in program.tensors
    )
    return replace(
        program,
        tensors=tensors,
        cloned_when_traced=program.cloned_when_traced - names_without_grad,
        cloned_when_eager=program.cloned_when_eager - names_without_grad,
    )


def _rename_external_inputs(reading: Reading, names: Mapping[str, str]) -> Reading:
    """Return a reading in which the inputs from outside have their names in the program. `names` has the name in the
    program by the name of the run, `outside N`."""
    return replace(reading, inputs=tuple(names.get(name, name) for name in reading.inputs))


def hooks_as_edges(program: CalledProgram) -> tuple[OpaqueEdge, ...]:
    """Return the gradient hooks on a program's tensors as opaque edges."""
    return tuple(OpaqueEdge("hook", f"{name} has a gradient hook") for name in program.hooks)


def _observed_step(program: CalledProgram, *others: Observer) -> tuple[Observations, Outcome]:
    """Observe one run, by a WarmUp and by `others`. If the program writes to leaves that require grad, which autograd
    refuses, run again on clones of all leaves that do. Refuse a program that compiles a part of itself meanwhile."""
    try:
        with restoring_gradients(program.target()):
            return run_observed(program, *others)
    except RuntimeError as error:
        if type(error).__module__ == ERRORS_OF_DYNAMO:  # the module that has the classes of Dynamo's errors
            raise CaptureError(
                f"{program.title} compiles a part of itself with torch.compile while it runs, which cannot be watched: "
                f"{str(error)[:300]}"
            ) from error
        # Autograd's text for an update in place of a leaf that requires grad.
        if "leaf Variable" not in str(error):
            raise
        requiring_grad = frozenset(named.name for named in program.tensors if named.requires_grad)
        with restoring_gradients(program.target()):
            return run_observed(
                replace(program, cloned_when_traced=requiring_grad, cloned_when_eager=requiring_grad), *others
            )


def run_observed(program: CalledProgram, *others: Observer) -> tuple[Observations, Outcome]:
    """Run the forward of a program, observed by a WarmUp and by `others`; no backward of the capture runs. Return what
    was noted, and the Outcome, whose gradients are empty. What the run changed is restored."""
    paths = module_paths(program.target())
    # Dynamo runs higher-order operators in eager mode, so it may run under the mode, unless the user has compiled a
    # part of the program: that part then runs eagerly (`watching_program`).
    compiled = any(compiled_parts(program.target(), program.title))
    warm_up_observer = WarmUp(paths, program.world)
    mode = ObservingMode(
        warm_up_observer,
        *others,
        world=program.world,
        opens=program.world is not None,  # with values, a wrapper is refused
        without_grad=True,  # the operators that a collective is made of are no recorded ones
        lets_dynamo_in=not compiled,
        skips_dynamo=True,  # Dynamo, where it runs, passes over the frames of the mode
    )

    @contextlib.contextmanager
    def modes(ready: dict[str, Tensor]) -> Iterator[None]:
        """Observe what runs in the block; `ready` are the program's tensors by name."""
        for observer in (warm_up_observer, *others):
            observer.begin(ready)
        with watching_program(program, warm_up_observer.seen, paths, compiled), mode:
            yield

    values = None if program.world is None else program.current_tensors()
    try:
        with preserving_random_states():
            seed_torch(SEED)
            # DTensor's own computations of shapes are no operators of the program: the mode does not see them.
            with shapes_computed_apart(), staged(program, values) as stage:
                forward = run_forward(stage, modes)
                effects = forward.effects()
                mutations = forward.mutations(effects)
                # The autograd nodes that wrap a tensor in a DTensor, or open one.
                wrapper_nodes = warm_up_observer.edges.note_edges_behind_outputs(forward.tensors)
                for observer in others:
                    observer.end(forward.tensors, wrapper_nodes)
                warm_up_observer.external.note_written()
                return warm_up_observer.seen, forward.outcome(effects, mutations, gradients={})
    finally:
        warm_up_observer.external.restore()


def add_external_tensors(program: CalledProgram, seen: Observations) -> ObservedProgram:
    """Return the program with the external tensors of a run among its tensors, after its own, in the order of
    `seen.external_tensors`. They require grad as before the run. A tensor whose origin is unknown is refused."""
    # An update may have made an external tensor require grad: the flags from before the run count.
    outside, requires_grad = seen.external_tensors, seen.requires_grad_before
    tensors = list(program.tensors)
    outside_by_name: dict[str, Tensor] = {}
    # Inputs require grad by default only where no tensor of the program requires grad. An external tensor does here.
    if program.grad_by_default and any(requires_grad.get(id(tensor), tensor.requires_grad) for tensor in outside):
        tensors = [replace(named, requires_grad=False) for named in tensors]
    names = names_of_outside(program.target())  # of all tensors that the program can reach, by id
    modules = [value for _, value in roots(program.target()) if isinstance(value, nn.Module)]
    buffers = {id(buffer) for module in modules for buffer in module.buffers()}
    for tensor in outside:
        refuse_unknown_origin(program, seen, tensor, names)
        name = free_name(names.get(id(tensor), f"constant_{len(outside_by_name)}"), tensors)
        role = "parameter" if isinstance(tensor, nn.Parameter) else "buffer" if id(tensor) in buffers else "constant"
        tensors.append(NamedTensor(name, role, requires_grad.get(id(tensor), tensor.requires_grad)))
        outside_by_name[name] = tensor
    hooks = dict(program.hooks)
    for name, tensor in outside_by_name.items():
        if own_hooks := gradient_hooks_of(tensor):
            hooks[name] = tuple(own_hooks)
    return observed_program(program, tensors=tuple(tensors), external_tensors=outside_by_name, hooks=hooks)


# ---- The observer


class WarmUp(Observer):
    """The observer of a warm-up. It notes, in `seen`, which external tensors the run uses and changes, which values it
    reads, and its opaque edges. `paths` has the path of each module, by id."""

    def __init__(self, paths: Mapping[int, str], world: FakeWorld | None = None) -> None:
        """`paths` has the path of each module, by id, and `world` is the FakeWorld of a run without values."""
        self.seen = Observations()
        self.external = ExternalTensors(self.seen, paths, world)
        self.edges = OpaqueEdges(self.seen, paths, world)
        self._paths, self._world = paths, world
        # The names of the inputs that the content of each storage depends on, by the storage's id.
        self._dependencies: dict[int, frozenset[str]] = {}
        # Weak references keep a storage's identity from being given to a new storage; they do not keep its bytes.
        self._alive: list[StorageWeakRef] = []

    def begin(self, named: Mapping[str, Tensor]) -> None:
        self.external.add_own(named, tuple(named))
        for name, tensor in named.items():
            self._add_dependencies(tensor, frozenset((name,)))

    def before(self, call: Call) -> None:
        """Note a call before it runs: the inputs that its tensors depend on, tensors from outside, opaque edges.
        `call.kept` carries the names of the inputs to `after`."""
        func, tensors = call.func, call.tensors()
        if self._world is None and any(tensor.is_meta for tensor in tensors):
            return  # a higher-order operator computes shapes on meta tensors, which are no values of the program
        names = self._dependencies_of(func, tensors)
        if not isinstance(func, HigherOrderOperator):
            if facts_of(func).draws:
                names |= {RANDOM}
            self._note_call(call, tensors)
            # In a run without values, fake tensors for those from outside, which are real.
            call.args, call.kwargs = self.external.with_stand_ins(call.args, call.kwargs, self._add_stand_in)
        call.kept[self] = names

    def after(self, call: Call, result: Any) -> None:
        """Note what the results depend on, and whether the operator read values. Refuse nested and sparse results."""
        func, names = call.func, call.kept.get(self)
        if names is None:  # `before` has left the call out
            return
        if isinstance(func, HigherOrderOperator):  # its results may be in any containers of pytree
            for leaf in pytree.tree_leaves(result):
                if isinstance(leaf, Tensor):
                    self._add_dependencies(leaf, names)
            return
        for leaf in plain_leaves(result):
            if not isinstance(leaf, Tensor):
                continue
            refuse_nested(func, leaf, self._paths)
            if leaf.layout is not torch.strided:
                raise CaptureError(self._sparse_refusal(func, leaf, "returns"))
            self._add_dependencies(leaf, names)
            self.external.add_span(leaf)
        if reads_values(func):
            self._note_reading(call, result, names)

    def failed(self, call: Call, error: Exception) -> None:
        """Replace the error of an operator that needs values, or has no fake kernel, by one with the line. Note the
        operator of any other RuntimeError."""
        if call.kept.get(self) is None or isinstance(call.func, HigherOrderOperator):
            return
        where = frames.here(self._paths)
        if isinstance(error, UNKNOWN_VALUES):
            reading = Reading(str(call.func), where, tuple(sorted(call.kept[self])), result=None)
            raise DataDependentError(describe_reading_without_values(reading)) from error
        if isinstance(error, UnsupportedOperatorException):
            raise CaptureError(
                f"{call.func} has no fake kernel{frames.place(where)}, so it cannot run without values: "
                "register one with torch.library.register_fake, or capture without fake=True"
            ) from error
        # The program may catch the error and go on.
        if isinstance(error, RuntimeError):
            self.seen.raised.append((str(call.func), where))

    def _add_dependencies(self, tensor: Tensor, names: frozenset[str]) -> None:
        """Add `names` to the inputs that the content of a tensor's memory depends on."""
        storage = tensor.untyped_storage()
        self._alive.append(StorageWeakRef(storage))
        key = storage_id(storage)
        self._dependencies[key] = self._dependencies.get(key, frozenset()) | names

    def _add_stand_in(self, fake: Tensor, real: Tensor) -> None:
        """Remember the fake tensor that replaces a real one from outside: it depends on the same inputs."""
        self._add_dependencies(fake, self._dependencies[storage_id(real.untyped_storage())])

    def _dependencies_of(self, func: Any, tensors: list[Tensor]) -> frozenset[str]:
        """Return the names of the inputs that the tensors of a call depend on. A tensor in unknown memory is from
        outside: it is entered as an input."""
        names: frozenset[str] = frozenset()
        for tensor in tensors:
            if tensor.layout in SPARSE:
                raise CaptureError(self._sparse_refusal(func, tensor, "takes"))
            if tensor.layout is not torch.strided:
                continue  # a jagged one is refused where it is made: raising while torch reads its size would abort
            self._enter_outside_tensor(func, tensor)
            names |= self._dependencies[storage_id(tensor.untyped_storage())]
        return names

    def _enter_outside_tensor(self, func: Any, tensor: Tensor) -> None:
        """Enter a tensor, an argument of a call of `func`, as one from outside if its memory is unknown. If the call
        writes, copy memory of the caller's before the first write to it."""
        key = storage_id(tensor.untyped_storage())
        if self._world is not None and key in self._dependencies and key not in self.external.callers:
            return  # the run has made it
        self.external.refuse(tensor)
        if key not in self._dependencies and func is torch.ops.aten.lift_fresh.default:
            # `torch.tensor([...])` has made it just now, of Python numbers, so it depends on no input.
            self._add_dependencies(tensor, names=frozenset())
        if key not in self._dependencies or self.external.is_outside_span(tensor):
            self._add_dependencies(tensor, frozenset((self.external.enter(tensor),)))
        if facts_of(func).writes:
            self.external.keep_content(key)

    def _note_call(self, call: Call, tensors: list[Tensor]) -> None:
        """Note opaque edges, casts of leaves, and gradients that autograd accumulates on leaves. `tensors` are the
        tensors among the arguments of the call."""
        # The autograd node that runs, if the program runs a backward itself.
        node = current_node()
        if not torch.is_grad_enabled():
            self.edges.note_edges_without_grad(call.func, call.args, call.kwargs, tensors)
        elif node is None:
            self.edges.note_edges_of_recorded_call(call.func, call.args, call.kwargs, tensors)
        if call.func is torch.ops.aten._to_copy.default:
            self.seen.cast_leaf_count += tensors[0].is_leaf and tensors[0].requires_grad
        self.seen.accumulates |= node is not None and node.name() == "torch::autograd::AccumulateGrad"

    def _note_reading(self, call: Call, result: Any, names: frozenset[str]) -> None:
        """Note that an operator reads values. `names` are the inputs that its arguments depend on. If it is the size of
        the result that is read, and one argument determines it (SIZED), only the inputs that this argument depends on
        count."""
        if call.func in SIZED:
            sizing = [leaf for leaf in plain_leaves(call.args[SIZED[call.func]]) if isinstance(leaf, Tensor)]
            names = frozenset().union(*(self._dependencies[storage_id(leaf.untyped_storage())] for leaf in sizing))
        self.seen.readings.append(Reading(str(call.func), frames.here(self._paths), tuple(sorted(names)), result))

    def _sparse_refusal(self, func: Any, tensor: Tensor, verb: str) -> str:
        """Return the message for an operator that takes or returns (`verb`) a sparse tensor, with the line."""
        where = frames.here(self._paths)
        place = f" at {where.file}:{where.line}: {where.code!r}" if where else ""
        kind = str(tensor.layout)[6:]
        return (
            f"{func} {verb} a {kind} tensor{place}: tracing would lose its gradients; "
            "use engine='eager', which takes sparse tensors, or keep that part outside, or dense"
        )
