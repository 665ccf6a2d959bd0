"""Watch one eager run before a program is traced, for facts that tracing needs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from backprint._torch.distributed import shapes_computed_apart
from backprint._torch.dynamo import ERRORS_OF_DYNAMO
from backprint.errors import CaptureError
from backprint.graph.nouns import OpaqueEdge, Source
from backprint.trace.non_operator_effects import watching_program
from backprint.trace.program import (
    CalledProgram,
    NamedTensor,
    ObservedProgram,
    Outcome,
    free_name,
    hooks_of,
    observed_program,
)
from backprint.trace.reach import compiled_parts, module_paths, names_of_outside, restoring_gradients, roots
from backprint.trace.refusals import (
    real_own_tensors,
    refuse_aliases,
    refuse_layouts,
    refuse_shared,
    refuse_unknown_origin,
    refuse_untraced_effects,
)
from backprint.trace.running import staged
from backprint.trace.watch import SEED, Observations, Reading, Watch
from backprint.trace.witness import run_forward
from backprint.values.settings import preserving_random_states, seed_torch
from backprint.values.tree import alias_groups


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a watched run.

    `readings` are reads of values by operators, and `reads_without_operator` other reads, each by function and line.
    `casts` counts the leaves that autocast casts. `checkpoints` says whether the program packs the tensors that
    autograd saves, as checkpoints do.
    """

    outcome: Outcome
    readings: tuple[Reading, ...]
    opaque: tuple[OpaqueEdge, ...]
    reads_without_operator: tuple[tuple[str, Source | None], ...]
    flags: Mapping[tuple[str, str], tuple[Any, Source | None]]
    casts: int
    checkpoints: bool


def warm_up(program: CalledProgram, kind: Callable[..., Watch] = Watch) -> tuple[ObservedProgram, Findings]:
    """Run a program once under a Watch (or a subclass, `kind`); return the program with its outside and changed
    tensors, and the other findings."""
    watch, outcome = _watched_step(program, kind)
    seen, with_outside_tensors = watch.seen, with_outside(program, watch.seen)
    # Refuse the effects that a trace would lose.
    refuse_untraced_effects(program, seen, outcome.left_behind)
    refuse_aliases(program, outcome)
    refuse_layouts(program, outcome.outputs)
    shared = shared_and_written(with_outside_tensors, outcome.mutations)
    # Requiring grad by default would separate shared memory: run again without it.
    if fewer := without_gradients_of_shared(program, shared):
        return warm_up(fewer, kind)
    wanted = {named.name for named in with_outside_tensors.tensors if named.requires_grad}
    refuse_shared(program, shared, wanted)
    # The program with its findings.
    changed = frozenset(name for name in outcome.mutations if name in wanted)
    written = {name for name, tensor in with_outside_tensors.outside.items() if id(tensor) in seen.written}
    observed = replace(
        with_outside_tensors,
        cloned_when_traced=changed | outcome.written_with_grad | frozenset(with_outside_tensors.hooks),
        cloned_in_eager=changed | outcome.written_with_grad,
        accumulates=seen.reentrant,
        changed=frozenset(outcome.mutations) | written,
        written_alias_groups=tuple(group for group in alias_groups(program.values) if set(group) & shared),
    )
    names = {
        f"outside {index}": named.name
        for index, named in enumerate(with_outside_tensors.tensors[len(program.tensors) :])
    }
    return observed, Findings(
        outcome,
        tuple(_with_names_of_outside(reading, names) for reading in seen.readings),
        (*seen.opaque, *hooks_as_edges(with_outside_tensors)),
        tuple(seen.reads_without_operator),
        seen.flags,
        seen.casts,
        seen.checkpoints,
    )


def shared_and_written(program: CalledProgram, changed: Collection[str]) -> set[str]:
    """Return the names of the program's tensors that share memory with a tensor in `changed`."""
    groups = [group for group in alias_groups(real_own_tensors(program)) if set(group) & set(changed)]
    return {name for group in groups for name in group}


def without_gradients_of_shared(program: CalledProgram, shared: Collection[str]) -> CalledProgram | None:
    """Return the program without the default `requires_grad` of tensors that share memory to which it writes; None if
    no such tensor has it. Leaves that require grad would be cloned, and the clones would share no memory."""
    losing = {named.name for named in program.tensors if named.requires_grad} & set(shared)
    if not program.grad_by_default or not losing:
        return None
    tensors = tuple(replace(named, requires_grad=False) if named.name in losing else named for named in program.tensors)
    return replace(
        program,
        tensors=tensors,
        cloned_when_traced=program.cloned_when_traced - losing,
        cloned_in_eager=program.cloned_in_eager - losing,
    )


def _with_names_of_outside(reading: Reading, names: Mapping[str, str]) -> Reading:
    """Return a reading with the names of its inputs from outside."""
    return replace(reading, inputs=tuple(names.get(name, name) for name in reading.inputs))


def hooks_as_edges(program: CalledProgram) -> tuple[OpaqueEdge, ...]:
    """Return the hooks on a program's own tensors as opaque edges."""
    return tuple(OpaqueEdge("hook", f"{name} has a gradient hook") for name in program.hooks)


def _watched_step(program: CalledProgram, kind: Callable[..., Watch] = Watch) -> tuple[Watch, Outcome]:
    """Watch one run. If the program writes to leaves that require grad, run again on copies of its arguments."""
    try:
        with restoring_gradients(program.target()):
            return run_watched(program, kind)
    except RuntimeError as error:
        if type(error).__module__ == ERRORS_OF_DYNAMO:
            raise CaptureError(
                f"{program.title} compiles a part of itself with torch.compile while it runs, which cannot be watched: "
                f"{str(error)[:300]}"
            ) from error
        # Autograd's text for an update in place of a leaf that requires grad.
        if "leaf Variable" not in str(error):
            raise
        requiring_grad = frozenset(named.name for named in program.tensors if named.requires_grad)
        with restoring_gradients(program.target()):
            return run_watched(
                replace(program, cloned_when_traced=requiring_grad, cloned_in_eager=requiring_grad), kind
            )


def run_watched(program: CalledProgram, kind: Callable[..., Watch] = Watch) -> tuple[Watch, Outcome]:
    """Run the forward under a Watch (or a subclass, `kind`); no backward runs."""
    paths = module_paths(program.target())
    # Dynamo runs higher-order operators in eager mode; it is let in unless code of the user's is compiled.
    compiled = any(compiled_parts(program.target(), program.title))
    watch = kind(paths, not compiled, program.world)

    @contextlib.contextmanager
    def modes(ready: dict[str, Tensor]) -> Iterator[None]:
        watch.register_tensors(ready, tuple(ready))
        with watching_program(program, watch.seen, paths, compiled), watch:
            yield

    values = None if program.world is None else program.current_tensors()
    try:
        with preserving_random_states():
            seed_torch(SEED)
            with shapes_computed_apart(), staged(program, values) as stage:
                forward = run_forward(stage, modes)
                effects = forward.effects()
                mutations = forward.mutations(effects)
                watch.note_edges_behind_outputs(forward.tensors)
                watch.note_written()
                return watch, forward.outcome(effects, mutations, {})
    finally:
        watch.restore()


def with_outside(program: CalledProgram, seen: Observations) -> ObservedProgram:
    """Add the external tensors to the program's named tensors; they require grad as before the run."""
    # An update may have made an external tensor require grad: the flags from before the run count.
    outside, requires_grad = seen.outside, seen.requires_grad_before
    tensors = list(program.tensors)
    outside_by_name: dict[str, Tensor] = {}
    # Inputs require grad by default only where no tensor of the program requires grad.
    if program.grad_by_default and any(requires_grad.get(id(tensor), tensor.requires_grad) for tensor in outside):
        tensors = [replace(named, requires_grad=False) for named in tensors]
    names = names_of_outside(program.target())
    modules = [value for _, value in roots(program.target()) if isinstance(value, nn.Module)]
    buffers = {id(buffer) for module in modules for buffer in module.buffers()}
    for tensor in outside:
        refuse_unknown_origin(program, seen, tensor, names)
        name = free_name(names.get(id(tensor), f"constant_{len(outside_by_name)}"), tensors)
        role = "parameter" if isinstance(tensor, nn.Parameter) else "buffer" if id(tensor) in buffers else "constant"
        tensors.append(NamedTensor(name, role, requires_grad.get(id(tensor), tensor.requires_grad)))
        outside_by_name[name] = tensor
    hooks = {
        **program.hooks,
        **{name: tuple(hooks_of(tensor)) for name, tensor in outside_by_name.items() if hooks_of(tensor)},
    }
    return observed_program(program, tensors=tuple(tensors), outside=outside_by_name, hooks=hooks)
