"""Engine `eager`: the operators that one real step ran, forward and backward, as they ran.

The step runs once, live: a dispatch mode writes down every operator below autograd, so branches on data, custom
Functions, hooks, both kinds of checkpoint, double backward and optimizer steps need no understanding. What the program
read of its values becomes a guard. The boundary between the directions is where autograd is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.capture import frames
from backprint.capture.assembly import Joint, Result, assemble
from backprint.capture.cut import cut
from backprint.capture.functional import Writer, spec_of
from backprint.capture.made import Made, Options
from backprint.capture.program import Program, free_name, named_outputs, pull_back, result_of
from backprint.capture.reach import kept_gradients
from backprint.capture.scout import (
    SEED,
    Opener,
    flag_guards,
    module_paths,
    seeing_threads,
    with_outside,
)
from backprint.capture.tape import Place, Recorder
from backprint.capture.witness import staged
from backprint.errors import DataDependentError
from backprint.graph.nouns import Guard, OpaqueEdge, Port
from backprint.settings import quiet_random, uncollected
from backprint.tree import alias_groups, ones_like


@dataclass(slots=True)
class Run:
    """A recorded step: the Program with its outside tensors, and the Place of everything it gave."""

    program: Program
    recorder: Recorder
    keys: dict[str, str]
    outputs: list[tuple[str, Place]]
    mutations: dict[str, Place]
    changed: frozenset[str]
    gradients: dict[str, Place | None]
    tangents: dict[str, Tensor]
    tree: Any
    leaves: tuple[Any, ...]


def by_eager(program: Program, options: Options) -> Made:
    """Engine `eager`: what one real step ran."""
    with uncollected():
        found = made(recorded(program), options)
    if options.specialise is False and found.guards:
        raise DataDependentError(refusal(found.guards[0]))
    return found


def refusal(guard: Guard) -> str:
    """Why a program that reads values is not captured where the user wants none taken for granted."""
    where = guard.source
    place = f" at {where.file}:{where.line} in {where.function}: {where.code!r}" if where else ""
    return (
        f"the run hangs on a value that it read{place} ({guard.text}, from {', '.join(guard.inputs[:6])}). "
        "Leave specialise=False out to take this run's value and keep it as a guard"
    )


# ------------------------------------------------------------------ the run


def recorded(program: Program) -> Run:
    """One live step, written down; everything of the caller's is put back."""
    try:
        run = run_once(program)
    except RuntimeError as error:
        asking = frozenset(named.name for named in program.tensors if named.requires_grad)
        if "leaf Variable" not in str(error) or asking <= program.cloned:
            raise
        return recorded(replace(program, shields=program.shields | asking, cloned=program.cloned | asking))
    own = run.program.tensors[: len(program.tensors)]
    if program.defaulted and own != program.tensors:
        return recorded(replace(program, tensors=own, defaulted=False))  # a tensor from outside asks, so no input does
    return run


def run_once(program: Program) -> Run:
    """One try at it."""
    paths = module_paths(program)
    with quiet_random(), kept_gradients(program.target()):
        torch.manual_seed(SEED)
        torch.clear_autocast_cache()
        recorder = Recorder(paths)
        try:
            stance = torch.compiler.set_stance("force_eager")
            with stance, seeing_threads(recorder.seen, paths), frames.seeing_prints():
                return stepped(program, recorder, Opener(recorder.seen, paths, rewrite=False))
        finally:
            recorder.restore()


def stepped(program: Program, recorder: Recorder, opener: Opener) -> Run:
    """Forward, then backward, both under the recorder. Function modes see the program alone: they cost."""
    with staged(replace(program, changed=frozenset())) as stage:
        leaves, ready = dict(stage.leaves), stage.ready
        recorder.know(ready, tuple(ready))
        with torch.enable_grad(), opener, recorder:
            result = result_of(program, ready)
        named, tree = named_outputs(program, result)
        tensors = {name: leaf for name, leaf in named if isinstance(leaf, Tensor)}
        recorder.judge_outputs(tensors)
        recorder.note_written()
        live = dict(
            zip((f"outside {i}" for i in range(len(recorder.seen.outside))), recorder.seen.outside, strict=True)
        )
        whole = with_outside(program, recorder.seen)
        names = [each.name for each in whole.tensors[len(program.tensors) :]]
        outside = dict(zip(names, live.values(), strict=True))
        by_id = {id(tensor): name for name, tensor in outside.items()}
        left = {by_id.get(id(stage.reached.get(name)), name): each for name, each in stage.made().items()}
        left |= stage.left({name: tensor for name, tensor in outside.items() if not recorder.had_gradient(tensor)})
        changed = stage.changed(left)
        changed |= {name for name, tensor in outside.items() if id(tensor) in recorder.seen.written}
        after = {**ready, **outside, **left}
        outputs = [(name, recorder.place(tensor)) for name, tensor in tensors.items()]
        mutations = {name: recorder.place(tensor) for name, tensor in after.items()}
        asking = {named.name for named in whole.tensors if named.requires_grad}
        leaves |= {name: tensor for name, tensor in outside.items() if name in asking}
        whole = replace(whole, accumulates=recorder.seen.reentrant)
        grads, tangents = backward(whole, recorder, opener, leaves, tensors)
    keys = {**{name: name for name in ready}, **dict(zip(live, names, strict=True))}
    whole = replace(whole, silent=recorder.seen.silent, outside=outside)
    return Run(
        whole, recorder, keys, outputs, mutations, frozenset(changed | set(left)), grads, tangents,
        tree, tuple(Tensor if isinstance(leaf, Tensor) else leaf for _, leaf in named),
    )  # fmt: skip


def backward(
    program: Program,
    recorder: Recorder,
    opener: Opener,
    leaves: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
) -> tuple[dict[str, Place | None], dict[str, Tensor]]:
    """Autograd's own backward, recorded: the gradients' Places, and the tangents of the outputs that take some."""
    roots = {name: tensor for name, tensor in outputs.items() if tensor.requires_grad}
    wanted = [named for named in program.tensors if named.requires_grad]
    if not roots or not wanted:
        return {}, {}
    tangents = {name: ones_like(tensor) for name, tensor in roots.items()}
    for name, tensor in tangents.items():
        recorder.learn(tensor, frozenset())
        recorder.root(f"tangent {name}", tensor)
    with opener, recorder.backward():
        found = pull_back(program, leaves, outputs, tangents)
    if not found:
        recorder.forget([f"tangent {name}" for name in tangents])
        return {}, {}
    return {name: None if each is None else recorder.place(each) for name, each in found.items()}, tangents


# ------------------------------------------------------------------ from the tape to a Pair


def made(run: Run, options: Options) -> Made:
    """What the engine makes of a recorded step."""
    program = run.program
    joint = joint_of(run, keep_updates=not options.functional)
    if options.partition is not None:
        joint = cut(joint, options.partition)
    assembled = assemble(joint)
    changed = frozenset(port.name for port, _ in joint.results if port.role == "mutation")
    return Made(
        program=replace(
            program,
            changed=changed,
            assembled=tuple(group for group in alias_groups(program.own()) if set(group) & changed),
        ),
        pairs=(assembled.pair,),
        outputs=tuple(name for name, _ in run.outputs),
        differentiable=tuple(run.tangents),
        tree=run.tree,
        leaves=run.leaves,
        constants=assembled.constants,
        guards=(*assembled.guards, *flag_guards(program, run.recorder.seen)),
        tangents={name: each for name, each in run.tangents.items() if each.layout is not torch.strided},
        opaque=tuple(dict.fromkeys(run.recorder.seen.opaque))
        + tuple(OpaqueEdge("hook", f"{name} has a gradient hook") for name in program.hooks),
    )


def joint_of(run: Run, keep_updates: bool) -> Joint:
    """The tape of a recorded step as a Joint."""
    program, tape = run.program, run.recorder.tape
    tangents = {f"tangent {name}": name for name in run.tangents}
    titles = run.keys | {key: f"tangent_{name}" for key, name in tangents.items()}
    fresh = {key: free_name(f"constant_{index}", program.tensors) for index, key in enumerate(tape.constants)}
    writer = Writer(tape, titles | fresh, list(run.keys), keep_updates)
    writer.write()
    results: list[Result] = [(Port(name, "output", spec_of(place)), writer.read(place)) for name, place in run.outputs]
    key_of = {name: key for key, name in run.keys.items()}
    for name, place in run.mutations.items():
        value = writer.read(place)
        if name in run.changed or value.name != writer.locals.get(key_of.get(name, name), value.name):
            results.append((Port(name, "mutation", spec_of(place)), value))
    gradients: list[Result] = []
    if run.tangents:
        writer.write_backward()
        order = [named.name for named in program.tensors]
        for name in sorted(run.gradients.keys() & set(order), key=order.index):
            found = run.gradients[name]
            gradients.append((Port(name, "gradient", spec_of(found)), None if found is None else writer.read(found)))
    places = {root.key: root.place for roots in tape.roots.values() for root in roots}
    local = {name: writer.locals[key] for key, name in run.keys.items()}
    return Joint(
        inputs=tuple(
            Port(each.name, each.role, spec_of(places.get(key_of[each.name])), local[each.name])
            for each in program.tensors
        ),
        forward=tuple(writer.forward),
        results=tuple(results),
        tangents=tuple(
            Port(name, "tangent", spec_of(places[key]), writer.locals[key]) for key, name in tangents.items()
        ),
        backward=tuple(writer.backward),
        gradients=tuple(gradients),
        same={each.name: each.same for each in program.tensors if each.same},
        constants=constants_of(writer, fresh),
        notes=writer.notes,
        specs={name: spec_of(place) for name, place in writer.places.items()},
    )


def constants_of(writer: Writer, titles: Mapping[str, str]) -> dict[str, tuple[str, Tensor]]:
    """The constants that a writer met, and states of generators, by local, each with its port name."""
    known = ((writer.locals.get(key), title, writer.tape.constants[key]) for key, title in titles.items())
    found = {local: (title, tensor) for local, title, tensor in known if local is not None}
    return found | {local: (local, state) for local, state in writer.fixed.items()}
