"""Engine `eager`: the operators that one real step ran, forward and backward.

The step runs once, live: a dispatch mode records every operator below autograd, so branches on data, custom Functions,
hooks, both kinds of checkpoint, double backward and optimizer steps need no special handling. Values that the program
reads become guards. The backward begins where autograd is called.

A Joint is the forward and the backward in one namespace of values, before it is divided into the two graphs of a Pair.
The Writer's local name of a value may differ from the program's name of the port. An external tensor, here also one
"from outside", is read by the program but not passed to it.

A StorageView is the storage and the geometry of a tensor, by which a tape knows it; `recorder.place(tensor)` returns
that of a tensor, and `writer.value_at(place)` the value that the tensor has in the graph at this point. `recorder.seen`
has the Observations of the run: reads, opaque edges, external tensors. A Staged (`forward.stage`) is a program that is
ready to run: `unwrapped` are its tensors by name, and `leaves` those whose gradients autograd computes; `unwrap` opens
a DTensor. `grad_by_default` says that no tensor of the call required grad, so that all floating-point inputs do in the
capture. A shard is the sharding of a DTensor, as text.

A CalledProgram is a callable with the named tensors of one call; an ObservedProgram has the findings of a first run
too. CaptureOptions are the user's options of a capture. An EngineResult has the Pair of a program, and what a Capture
needs besides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint._torch.distributed import sharding_text
from backprint._torch.dynamo import eager_stance, is_loaded
from backprint._torch.script import scripts_seen
from backprint._torch.tensors import storages_filled
from backprint.common.collector import collector_paused
from backprint.errors import BackprintError, CaptureError, DataDependentError, is_defect
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.keys import PortKey, keyed, tangent_name
from backprint.graph.nouns import Guard, LivedOn, Pair, Port, Step, refs
from backprint.graph.steps import is_in_own_backward, used
from backprint.trace import frames
from backprint.trace.assembly import Joint, Result, assemble
from backprint.trace.eager.tape import Recorder, StorageView, placement_spec
from backprint.trace.eager.writer import Writer
from backprint.trace.hooks_after import HookEffects, watching_hooks
from backprint.trace.non_operator_effects import BodyRecorder, flag_guards, noting_overlap_checks, noting_threads
from backprint.trace.observe import ObservingMode
from backprint.trace.partition import repartition
from backprint.trace.program import CalledProgram, ObservedProgram, free_name
from backprint.trace.reach import module_paths, restoring_gradients
from backprint.trace.request import CONTROL_FLOW, VIEW_UPDATE, Doubt, EngineResult
from backprint.trace.running import run_backward, staged
from backprint.trace.warm_up import (
    add_external_tensors,
    hooks_as_edges,
    names_sharing_written_memory,
    without_default_grad_of_shared,
)
from backprint.trace.watch import SEED, Observations
from backprint.trace.witness import ForwardRun, run_forward, run_step
from backprint.values.results import ResultTree
from backprint.values.settings import preserving_random_states, seed_torch
from backprint.values.tree import alias_groups, ones_tangent
from backprint.values.wrappers import unwrap


@dataclass(frozen=True, slots=True)
class _RecordedStep:
    """A recorded step: the program with its external tensors, and the StorageView of each result.

    `keys` has the program's name for each key of the tape's ports: a tensor of the call has its name as key, an
    external one `outside 0` and so on. `mutations` has every named tensor after the forward, and `changed_names` names
    those among them that the forward wrote to. `gradients` has None where autograd returns None, and `tangents` the
    ones that the backward began with. `tree` and `leaves` are the structure of the program's result. `shards` has the
    sharding of tensors, outputs and gradients that are DTensors. `hooks` has the effects of post-accumulate-grad hooks.
    """

    program: ObservedProgram
    recorder: Recorder
    keys: dict[str, str]
    outputs: dict[str, StorageView]
    mutations: dict[str, StorageView]
    changed_names: frozenset[str]
    gradients: dict[str, StorageView | None]
    tangents: dict[str, Tensor]
    tree: ResultTree
    leaves: tuple[Any, ...]
    shards: dict[PortKey, str]
    hooks: HookEffects


def by_eager(program: CalledProgram, options: CaptureOptions) -> EngineResult:
    """Capture a program by engine `eager`; with `specialize=False`, refuse a program that reads values."""
    with collector_paused():
        result = result_of_step(_record_or_refuse(program), options)
    if options.specialize is False and result.guards:
        raise DataDependentError(_refusal_of_guard(result.guards[0]))
    return result


def _refusal_of_guard(guard: Guard) -> str:
    """Return the message for a program that reads a value, although the user passed `specialize=False`."""
    where = guard.source
    place = f" at {where.file}:{where.line} in {where.function}: {where.code!r}" if where else ""
    return (
        f"the program reads a value{place} ({guard.text}, which depends on {', '.join(guard.inputs[:6])}), and "
        "specialize=False refuses that: leave it out to keep the value as a guard"
    )


# ---- The recorded run


def _record_or_refuse(program: CalledProgram) -> _RecordedStep:
    """Record one live step; refuse a program that raises an error only while it is recorded.

    Errors that the untouched program raises too, and defects of Backprint, are raised as they are.
    """
    try:
        return record_step(program)
    except (BackprintError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        if is_defect(error) or not _runs_untouched(program):
            raise
        text = f"{program.title} runs, but not while a dispatch mode records it: {type(error).__name__}: {error}"
        raise CaptureError(text) from error


def _runs_untouched(program: CalledProgram) -> bool:
    """Whether one eager step of the untouched program ends without an error."""
    try:
        run_step(program)
    except Exception:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt to record a program: its recorded step (`run`), or the error that ended it. `loaded_dynamo` says that
    the program imported Dynamo meanwhile."""

    program: CalledProgram
    loaded_dynamo: bool
    run: _RecordedStep | None = None
    error: Exception | None = None


def record_step(program: CalledProgram) -> _RecordedStep:
    """Record one live step, and again as long as a function in RETRIES has a reason. The caller's objects are restored.

    A step that was recorded without post-accumulate-grad hooks has the hooks' effects from the attempt with them.
    """
    hooks: HookEffects | None = None  # the effects of the hooks, once the step is to be recorded without them
    while True:
        was_loaded = is_loaded()  # Dynamo
        try:
            run = record_once(program)
        except Exception as error:
            loaded_dynamo = is_loaded() and not was_loaded
            changed_program = _program_to_retry(_Attempt(program, loaded_dynamo, error=error))
            if changed_program is None:
                raise
        else:
            changed_program = _program_to_retry(_Attempt(program, is_loaded() and not was_loaded, run))
            if changed_program is None:
                break
            if program.runs_post_accumulate_hooks and not changed_program.runs_post_accumulate_hooks:
                hooks = run.hooks
        program = changed_program
    if hooks is None:
        return run
    # Hooks that changed nothing stay a part of the program, so that the comparisons on other values see what they do.
    return replace(run, program=replace(run.program, runs_post_accumulate_hooks=not hooks.uncapturable), hooks=hooks)


def _program_to_retry(attempt: _Attempt) -> CalledProgram | None:
    """Return the program as it is to be recorded again; None if no function in RETRIES asks for that."""
    return next(filter(None, (retry(attempt) for retry in RETRIES)), None)


def _with_dynamo_loaded(attempt: _Attempt) -> CalledProgram | None:
    """Return the same program if it imported Dynamo during the run, else None: `eager_stance`, which runs compiled
    parts as eager code, could not be set before."""
    return attempt.program if attempt.loaded_dynamo else None


def _with_clones_of_leaves(attempt: _Attempt) -> CalledProgram | None:
    """Return the program on clones of its leaves if it writes to leaves that require grad, which autograd forbids; else
    None."""
    program = attempt.program
    requiring_grad = frozenset(named.name for named in program.tensors if named.requires_grad)
    # Autograd's text for an update in place of a leaf that requires grad.
    forbidden = isinstance(attempt.error, RuntimeError) and "leaf Variable" in str(attempt.error)
    if not forbidden or requiring_grad <= program.cloned_when_eager:
        return None
    return replace(
        program,
        cloned_when_traced=program.cloned_when_traced | requiring_grad,
        cloned_when_eager=program.cloned_when_eager | requiring_grad,
    )


def _without_gradients_of_shared(attempt: _Attempt) -> CalledProgram | None:
    """Return the program without the gradients of tensors that share memory to which it writes, if these require grad
    only because no tensor of the call did; else None. Clones of them as leaves would not share memory."""
    if attempt.run is None or not attempt.program.grad_by_default:
        return None
    shared = names_sharing_written_memory(attempt.run.program, attempt.run.changed_names)
    return without_default_grad_of_shared(attempt.program, shared)


def _without_default_gradients(attempt: _Attempt) -> CalledProgram | None:
    """Return the program without the gradients that inputs have by default if a tensor from outside the call requires
    grad, else None: then the default does not hold."""
    program, run = attempt.program, attempt.run
    # The tensors of the call come first in the observed program; `add_external_tensors` has cleared their
    # `requires_grad` if a tensor from outside requires grad.
    if run is None or not program.grad_by_default or run.program.tensors[: len(program.tensors)] == program.tensors:
        return None
    return replace(program, tensors=run.program.tensors[: len(program.tensors)], grad_by_default=False)


def _without_post_accumulate_hooks(attempt: _Attempt) -> CalledProgram | None:
    """Return the program without post-accumulate-grad hooks if it has some that cannot be a part of the capture, else
    None."""
    hooks = None if attempt.run is None else attempt.run.hooks
    if hooks is None or not attempt.program.runs_post_accumulate_hooks or hooks.are_captured or not hooks.exist:
        return None
    return replace(attempt.program, runs_post_accumulate_hooks=False)


RETRIES = (
    _with_dynamo_loaded,
    _with_clones_of_leaves,
    _without_gradients_of_shared,
    _without_default_gradients,
    _without_post_accumulate_hooks,
)
"""Reasons to record a program again. Each returns the program as it runs then, or None where it does not apply."""


def record_once(program: CalledProgram) -> _RecordedStep:
    """Record one live step. The `__torch_function__` mode is slow, so it is on only while the program's forward and
    backward run."""
    paths = module_paths(program.target())
    with preserving_random_states(), restoring_gradients(program.target()):
        seed_torch(SEED)
        # A cast that is cached from before would be a tensor that no recorded operator makes.
        torch.clear_autocast_cache()
        recorder = Recorder(paths, program.world)
        # Without a world of fake tensors, the program runs on its own tensors.
        values = None if program.world is None else program.current_tensors()
        # The function mode, which runs the bodies of `torch.cond` and the like; and the dispatch mode, which records.
        # `rewrite=False`: functions are not called in another form, as a trace needs it.
        opener = BodyRecorder(recorder.seen, paths, rewrite=False)
        mode = ObservingMode(recorder, world=program.world)

        @contextlib.contextmanager
        def recording() -> Iterator[None]:
            with opener, mode:
                yield

        @contextlib.contextmanager
        def recording_forward(ready: dict[str, Tensor]) -> Iterator[None]:
            recorder.begin(ready)
            # TorchScript's `tolist` reads values by no operator that the mode sees.
            with scripts_seen(opener.read_by_script), recording():
                yield

        try:
            with (
                eager_stance(),  # compiled parts run as eager code, whose operators the mode sees
                noting_threads(recorder.seen, paths),
                noting_overlap_checks(recorder.seen, paths),
                frames.noting_prints(),  # a number that is only printed needs no guard
                storages_filled(recorder.note_filled),  # storages that the program resizes from 0 bytes
                staged(program, values) as stage,
            ):
                return record_backward(run_forward(stage, recording_forward), recorder, recording)
        finally:
            recorder.restore()  # the caller's tensors that the run has changed


Recording = Callable[[], contextlib.AbstractContextManager[None]]
"""Returns a context manager in which everything that runs is recorded."""


def record_backward(forward: ForwardRun, recorder: Recorder, recording: Recording) -> _RecordedStep:
    """Record the backward of a forward that `recorder` has just recorded, and return both as one step. `recording`
    returns the context in which operators are recorded.

    What the forward did is read before the backward runs: edges, writes, external tensors, effects.
    """
    # Both note it in `recorder.seen`.
    recorder.edges.note_edges_behind_outputs(forward.tensors)
    recorder.external.note_written()
    program = forward.stage.program
    observed = replace(
        add_external_tensors(program, recorder.seen),
        accumulates_gradients=recorder.seen.reentrant or program.accumulates_gradients,
    )
    # External tensors come after the tensors of the call.
    external_names = [named.name for named in observed.tensors[len(program.tensors) :]]
    external_tensors = dict(zip(external_names, recorder.seen.external_tensors, strict=True))
    # The program's name of each port, by the port's key on the tape.
    keys = {name: name for name in forward.stage.unwrapped}
    keys |= {f"outside {index}": name for index, name in enumerate(external_names)}
    # The tensors that the forward wrote to (`changed`), and those that it made or left behind (`new`).
    with_same_gradient = [name for name, tensor in external_tensors.items() if recorder.external.had_gradient(tensor)]
    effects = forward.effects(external_tensors, with_same_gradient)
    written = {name for name, tensor in external_tensors.items() if id(tensor) in recorder.seen.written}
    tensors_after_forward = {**forward.stage.unwrapped, **external_tensors, **effects.new}
    # The StorageViews of the results. The writer later reads the value that each has at the end of the forward.
    outputs = {name: recorder.place(unwrap(tensor)) for name, tensor in forward.tensors.items()}
    mutations = {name: recorder.place(tensor) for name, tensor in tensors_after_forward.items()}
    requiring_grad = {named.name for named in observed.tensors if named.requires_grad}
    leaves = forward.stage.leaves | {
        name: tensor for name, tensor in external_tensors.items() if name in requiring_grad
    }
    shards_of_gradients: dict[str, str] = {}
    # Hooks by which a module such as DDP reduces gradients are not watched: they are a part of every distributed step.
    leaves_with_watched_hooks = (
        leaves if program.runs_post_accumulate_hooks and not program.accumulates_gradients else {}
    )
    with watching_hooks(leaves_with_watched_hooks, recorder.tape.calls) as hooks:
        gradients, tangents = _record_gradients(
            observed, recorder, recording, leaves, forward.tensors, shards_of_gradients
        )
    return _RecordedStep(
        program=observed,
        recorder=recorder,
        keys=keys,
        outputs=outputs,
        mutations=mutations,
        changed_names=effects.changed | written | frozenset(effects.new),
        gradients=gradients,
        tangents=tangents,
        tree=forward.tree,
        leaves=forward.leaves,
        shards=_shards_of(observed, forward, shards_of_gradients),
        hooks=hooks,
    )


def _shards_of(program: ObservedProgram, forward: ForwardRun, gradients: Mapping[str, str]) -> dict[PortKey, str]:
    """Return the sharding of each tensor, output and gradient, by the role and the name of its port; '' for an output
    that is no DTensor. The role '' is for all inputs. `gradients` has the shardings of gradients by name."""
    return {
        **keyed("", {name: wrapping.text for name, wrapping in program.wrappings.items()}),
        **keyed("output", {name: sharding_text(tensor) for name, tensor in forward.tensors.items()}),
        **keyed("gradient", gradients),
    }


def _record_gradients(
    program: ObservedProgram,
    recorder: Recorder,
    recording: Recording,
    leaves: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    shards: dict[str, str],
) -> tuple[dict[str, StorageView | None], dict[str, Tensor]]:
    """Record autograd's own backward. Return the StorageViews of the gradients of `leaves`, and the tangents of the
    outputs that have one, which are ones; both by name. The shardings of gradients that are DTensors are put into
    `shards`.

    Both results are empty if nothing requires grad, or if the program has run this backward itself.
    """
    roots = {name: tensor for name, tensor in outputs.items() if tensor.requires_grad}
    wanted = [named for named in program.tensors if named.requires_grad]
    if not roots or not wanted:
        return {}, {}
    tangents = {name: ones_tangent(unwrap(tensor)) for name, tensor in roots.items()}
    for name, tensor in tangents.items():
        recorder.add_memory(tensor)
        recorder.add_port(tangent_name(name), tensor)
    # A program without values runs under its FakeTensorMode.
    fake_mode: Any = contextlib.nullcontext() if program.world is None else program.world.running()
    recorder.begin_backward()
    with fake_mode, recording():
        gradients = run_backward(program, leaves, outputs, tangents, shards)
    # Nothing ran: the program itself has run the backward from these outputs, so the tangents are no inputs.
    if not gradients:
        recorder.remove_ports([tangent_name(name) for name in tangents])
        return {}, {}
    places = {name: None if gradient is None else recorder.place(gradient) for name, gradient in gradients.items()}
    return places, tangents


# ---- From the tape to a Pair


def result_of_step(run: _RecordedStep, options: CaptureOptions) -> EngineResult:
    """Return the engine's result for a recorded step: its Pair, and the program with what the run has shown of it."""
    program, seen = run.program, run.recorder.seen
    # The tape as a Joint, then as a Pair.
    joint, writer = joint_of(run, in_place=not options.functional)
    if options.partition is not None:
        joint = repartition(joint, options.partition)
    assembled = assemble(joint)
    pair = assembled.pair
    if options.partition is None:  # otherwise the values that are saved are not those of the run
        pair = Pair(pair.name, pair.forward, pair.backward, lives=tuple(_delayed_frees_of(pair, run, writer)))
    # The program with the tensors that it writes to, and the groups of its tensors that share memory written to.
    changed = frozenset(port.name for port, _ in joint.results if port.role == "mutation")
    groups = tuple(group for group in alias_groups(program.own_tensors()) if set(group) & changed)
    return EngineResult(
        program=replace(program, changed_names=changed, written_alias_groups=groups),
        pairs=(pair,),
        outputs=tuple(run.outputs),
        differentiable=tuple(run.tangents),
        tree=run.tree,
        leaves=run.leaves,
        constants=assembled.constants,
        guards=(*assembled.guards, *flag_guards(program, seen.flags)),
        # Of a sparse tangent the spec does not say where its values are: an example does.
        tangents={name: tangent for name, tangent in run.tangents.items() if tangent.layout is not torch.strided},
        opaque=(*dict.fromkeys(seen.opaque), *hooks_as_edges(program), *run.hooks.edges()),
        # No other engine has these hooks in its backward, so none may express the capture better.
        doubts=() if run.hooks.are_captured else tuple(_doubts(pair, seen)),
        notes=run.hooks.notes(),
        groups=dict(run.recorder.tape.groups),
    )


def _delayed_frees_of(pair: Pair, run: _RecordedStep, writer: Writer) -> Iterator[LivedOn]:
    """Yield the names of the values that were freed later than right after their last use in the graphs, each with the
    name of the last step before its memory was freed.

    Only values count whose life is decided by code in Python: those of the forward, of a custom Function's backward,
    and, with a reentrant checkpoint, of the whole backward. Results, and values that are updated in place, are left
    out.
    """
    graphs = list(pair.graphs)
    steps = [step for graph in graphs for step in graph.steps]
    step_index = {step.name: index for index, step in enumerate(steps)}
    # The last graph is the backward, if there is one.
    steps_of_own_backwards = [step for step in graphs[-1].steps if is_in_own_backward(step)]
    steps_of_python = steps if run.recorder.seen.reentrant else [*pair.forward.steps, *steps_of_own_backwards]
    # By the name of a value, the index of the last step that makes or uses it.
    last_use = {name: step_index[step.name] for step in steps_of_python for name in (step.name, *used(step))}
    results = {name for graph in graphs for result in graph.results for name in refs(result)}
    # For each call of the tape, the step of the Pair that was written last for it (`Writer.ends`); for a call whose
    # step is dead code, the step of the next call that has one. '' stands for the end of the tape.
    step_of_call = [""]
    for name in reversed(writer.ends):
        step_of_call.append(name if name in step_index else step_of_call[-1])
    step_of_call.reverse()
    # `Writer.made` has the first value in each memory.
    for memory, name in writer.made.items():
        if name not in last_use or name in results or memory in writer.written:
            continue
        # The number of calls that had run when the memory was freed; all, if it was not freed. Calls that follow the
        # step do not count.
        call_count = len(writer.ends)
        calls_before_free = min(run.recorder.freed.get(memory, call_count), call_count)
        last_step = step_of_call[max(calls_before_free - 1, 0)]
        if last_step and step_index[last_step] > last_use[name]:
            yield name, last_step


SCATTERS = "aten.as_strided_scatter.default"
"""The operator that puts a view's new value, or its gradient, into the whole storage."""


def _doubts(pair: Pair, seen: Observations) -> Iterator[Doubt]:
    """Yield a Doubt for each part of a capture that another engine may express better: control flow, view updates."""
    # The higher-order operators whose bodies were recorded, each with its line.
    for name, source in seen.opened:
        yield Doubt(CONTROL_FLOW, f"{name}{frames.place(source)} is captured as the operators that its body ran")
    steps = () if pair.backward is None else pair.backward.steps
    # Only the backward scatters into a storage: autograd's node `CopySlices` does so, and no call of the program.
    if any(step.target == SCATTERS for step in steps) and all(step.target != SCATTERS for step in pair.forward.steps):
        reason = "the program updates a view in place, and autograd's own backward of that scatters into the storage"
        yield Doubt(VIEW_UPDATE, reason)


def joint_of(run: _RecordedStep, in_place: bool) -> tuple[Joint, Writer]:
    """Return the Joint of a recorded step, and the Writer that wrote it. With `in_place`, updates in place stay so."""
    program, tape = run.program, run.recorder.tape
    # By the key of a port, its name on the tape: the output of each tangent, and the port's name of each constant.
    tangents = {tangent_name(name): name for name in run.tangents}
    constant_names = {key: free_name(f"constant_{index}", program.tensors) for index, key in enumerate(tape.constants)}
    wanted_names = run.keys | {key: f"tangent_{name}" for key, name in tangents.items()} | constant_names
    writer = Writer(tape, wanted_names, always_ports=list(run.keys), start=tape.start, in_place=in_place)
    views_by_key = {port.key: port.place for ports in tape.ports.values() for port in ports}
    local_of_tensor = {name: writer.locals[key] for key, name in run.keys.items()}
    key_of = {name: key for key, name in run.keys.items()}
    forward, results = _write_forward(run, writer, local_of_tensor, in_place)
    backward, gradients = _write_backward(run, writer) if run.tangents else ([], [])
    joint = Joint(
        inputs=tuple(
            Port(
                named.name,
                named.role,
                placement_spec(views_by_key.get(key_of[named.name])),
                local=local_of_tensor[named.name],
                shard=run.shards.get(PortKey("", named.name), ""),
            )
            for named in program.tensors
        ),
        forward=tuple(forward),
        results=tuple(results),
        tangents=tuple(
            Port(
                name,
                "tangent",
                placement_spec(views_by_key[key]),
                local=writer.locals[key],
                # An output that is a partial sum over ranks has the same gradient on every rank.
                shard=run.shards.get(PortKey("output", name), "").replace("Partial(sum)", "Replicate"),
            )
            for key, name in tangents.items()
        ),
        backward=tuple(backward),
        gradients=tuple(gradients),
        same={named.name: named.other_names for named in program.tensors if named.other_names},
        constants=writer.constants(tape, constant_names),
        notes=writer.notes,
        specs=writer.specs(),
    )
    return joint, writer


def _write_forward(
    run: _RecordedStep, writer: Writer, local: Mapping[str, str], in_place: bool
) -> tuple[list[Step], list[Result]]:
    """Return the Steps of the forward, and its results: outputs, then mutations. `local` has the writer's name of each
    tensor's port."""
    tape = run.recorder.tape
    steps: list[Step] = []
    writer.write_into(steps)  # from here on, first without calls
    if in_place:
        writer.copy_ports(tape)  # so that the caller's tensors stay as they are
    writer.write_into(steps, tape.calls[: tape.boundary])  # the calls from the boundary on are the backward's
    results: list[Result] = [
        (
            Port(name, "output", placement_spec(place), shard=run.shards.get(PortKey("output", name), "")),
            writer.value_at(place),
        )
        for name, place in run.outputs.items()
    ]
    # The writer's names of the ports with a StorageView: several, because two inputs may have the same one.
    port_names: dict[StorageView, set[str]] = {}
    for name, place in run.mutations.items():
        port_names.setdefault(place, set()).update([local[name]] if name in local else [])
    for name, place in run.mutations.items():
        value = writer.value_at(place)
        # A tensor is a mutation too if no write to it was seen, but its memory has another value than its port.
        if name in run.changed_names or (name in local and value.name not in port_names[place]):
            results.append((Port(name, "mutation", placement_spec(place)), value))
    return steps, results


def _write_backward(run: _RecordedStep, writer: Writer) -> tuple[list[Step], list[Result]]:
    """Return the Steps of the backward, and the gradients in the order of the program's tensors (None where autograd
    returns None)."""
    tape = run.recorder.tape
    steps: list[Step] = []
    writer.begin_backward()
    writer.write_into(steps, tape.calls[tape.boundary or 0 :])
    names = dict.fromkeys(named.name for named in run.program.tensors)
    gradients: list[Result] = []
    for name in names:
        if name not in run.gradients:
            continue
        place = run.gradients[name]
        value = None if place is None else writer.value_at(place)
        shard = run.shards.get(PortKey("gradient", name), "")
        gradients.append((Port(name, "gradient", placement_spec(place), shard=shard), value))
    return steps, gradients
