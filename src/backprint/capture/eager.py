"""Engine `eager`: the operators that one real step ran, forward and backward, as they ran.

The step runs once, live: a dispatch mode writes down every operator below autograd, so branches on data, custom
Functions, hooks, both kinds of checkpoint, double backward and optimizer steps need no understanding. What the program
read of its values becomes a guard. The boundary between the directions is where autograd is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.capture import frames
from backprint.capture.convert import tensor_spec
from backprint.capture.functional import Draft, Writer, needed, spec_of
from backprint.capture.made import Made, Options
from backprint.capture.program import Program, free_name, named_outputs, pull_back, result_of
from backprint.capture.reach import kept_gradients
from backprint.capture.scout import (
    RANDOM,
    SEED,
    SIZED,
    Opener,
    flag_guards,
    module_paths,
    seeing_threads,
    with_outside,
)
from backprint.capture.tape import Place, Recorder
from backprint.capture.witness import staged
from backprint.errors import CaptureError, DataDependentError
from backprint.graph.nouns import Dict, Graph, Guard, List, OpaqueEdge, Pair, Port, Ref, Step, Value, refs
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
    if options.fake:
        raise CaptureError("engine 'eager' runs the program, so it needs its values: fake=True takes engine 'aot'")
    if options.dynamic:
        raise CaptureError("engine 'eager' sees this run's sizes alone: dynamic=True takes engine 'aot' or 'dynamo'")
    if options.decompose:
        raise CaptureError("engine 'eager' keeps the operators that ran: decompose= takes engine 'aot'")
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
    """The Pair of a recorded step."""
    program, tape = run.program, run.recorder.tape
    ports = dict(run.keys)
    ports |= {f"tangent {name}": f"tangent_{name}" for name in run.tangents}
    count = [0]
    fresh = {key: free_name(f"constant_{_next(count)}", program.tensors) for key in tape.constants}
    writer = Writer(tape, ports | fresh, list(run.keys), keep_updates=not options.functional)
    writer.write()
    outputs = [(Port(name, "output", spec_of(place)), writer.read(place)) for name, place in run.outputs]
    mutations = {}
    for name, place in run.mutations.items():
        value = writer.read(place)
        if name in run.changed or value.name != writer.locals.get(_key(run.keys, name), value.name):
            mutations[name] = (Port(name, "mutation", spec_of(place)), value)
    results = [*outputs, *mutations.values()]
    gradients: list[tuple[Port, Value]] = []
    if run.tangents:
        writer.write_backward()
        for name, found in run.gradients.items():
            gradients.append((Port(name, "gradient", spec_of(found)), None if found is None else writer.read(found)))
    pair, constants, guards = Assembly(run, writer, fresh).pair(results, gradients)
    return Made(
        program=replace(
            program,
            changed=frozenset(mutations),
            assembled=tuple(group for group in alias_groups(program.own()) if set(group) & set(mutations)),
        ),
        pairs=(pair,),
        outputs=tuple(name for name, _ in run.outputs),
        differentiable=tuple(run.tangents),
        tree=run.tree,
        leaves=run.leaves,
        constants=constants,
        guards=(*guards, *flag_guards(program, run.recorder.seen)),
        tangents={name: each for name, each in run.tangents.items() if each.layout is not torch.strided},
        opaque=tuple(dict.fromkeys(run.recorder.seen.opaque))
        + tuple(OpaqueEdge("hook", f"{name} has a gradient hook") for name in program.hooks),
    )


def _next(count: list[int]) -> int:
    count[0] += 1
    return count[0] - 1


def _key(keys: Mapping[str, str], name: str) -> str:
    return next((key for key, each in keys.items() if each == name), name)


def decider(draft: Draft, ahead: Mapping[str, Draft]) -> Value:
    """What a guard is about: a value that was read, or what alone decides a size."""
    value: Value = draft.args[0]
    maker = ahead.get(value.name) if isinstance(value, Ref) and draft.target == "assert_shape" else None
    if maker is not None and maker.target == "operator.getitem" and isinstance(maker.args[0], Ref):
        maker = ahead.get(maker.args[0].name)
    place = DECIDERS.get(maker.target) if maker is not None else None
    return value if maker is None or place is None else maker.args[place]


DECIDERS = {str(operator): place for operator, place in SIZED.items()}

Results = Sequence[tuple[Port, Any]]


class Assembly:
    """Drafts of both directions to two Graphs: dead code out, saved values found, names of gradients given."""

    def __init__(self, run: Run, writer: Writer, fresh: Mapping[str, str]) -> None:
        self.run, self.writer = run, writer
        self.port_of = {local: key for key, local in writer.locals.items()}
        self.fresh = fresh
        self.made = {draft.name for draft in writer.forward}
        self.constants: dict[str, Tensor] = {}
        self.guards: list[Guard] = []

    def pair(self, results: Results, gradients: Results) -> tuple[Pair, dict[str, Tensor], tuple[Guard, ...]]:
        """The Pair, the constants its ports need, and its guards."""
        ahead = {draft.name: draft for draft in self.writer.forward}
        back = self.checked(self.writer.backward, {**ahead, **{d.name: d for d in self.writer.backward}}, gradients)
        saved = self.saved(back, gradients)
        wanted = [name for _, value in results for name in refs(value)] + saved
        front = needed(self.checked(self.writer.forward, ahead, ()), iter(wanted))
        forward = self.forward(front, results, saved)
        backward = self.back(back, gradients, saved) if self.run.tangents else None
        return Pair("pair_0", forward, backward), self.constants, tuple(self.guards)

    def checked(self, drafts: Sequence[Draft], ahead: Mapping[str, Draft], results: Results) -> list[Draft]:
        """The drafts without the guards that hang on nothing; with results, without dead code too."""
        kept = []
        for draft in drafts:
            if draft.target.startswith("assert"):
                hangs = self.hangs(draft, ahead)
                if not hangs:
                    continue
                self.guards.append(Guard(kind_of(draft), said(draft), hangs, draft.source))
            kept.append(draft)
        if not results:
            return kept
        return needed(kept, iter([name for _, value in results for name in refs(value)]))

    def hangs(self, draft: Draft, ahead: Mapping[str, Draft]) -> tuple[str, ...]:
        """The inputs that a value hangs on, the random seed among them; a size, on those that decide it."""
        queue, visited, found = list(refs(decider(draft, ahead))), set(), set()
        while queue:
            name = queue.pop()
            if name in visited:
                continue
            visited.add(name)
            maker = ahead.get(name)
            if maker is None:
                key = self.port_of.get(name, name)
                if key in self.run.keys:
                    found.add(self.run.keys[key])
                elif key.startswith("tangent "):
                    found.add(key)
                continue
            if maker.keep:
                found.add(RANDOM)
            queue += [each for value in maker.values for each in refs(value)]
        return tuple(sorted(found))

    def saved(self, back: Sequence[Draft], gradients: Results) -> list[str]:
        """The forward's values that the backward reads, in the order it reads them."""
        own = {draft.name for draft in back}
        names = [name for draft in back for value in draft.values for name in refs(value)]
        names += [name for _, value in gradients for name in refs(value)]
        return [name for name in dict.fromkeys(names) if name not in own and self.is_forwards(name)]

    def is_forwards(self, name: str) -> bool:
        """Whether a value is the forward's, an input of it among them."""
        return name in self.made or self.port_of.get(name, "") in self.run.keys

    def forward(self, drafts: Sequence[Draft], results: Results, saved: Sequence[str]) -> Graph:
        """The forward Graph."""
        program, writer = self.run.program, self.writer
        local = {name: writer.locals[key] for key, name in self.run.keys.items()}
        specs = {key: root.place for roots in writer.tape.roots.values() for root in roots for key in [root.key]}
        by_name = {name: specs.get(key) for key, name in self.run.keys.items()}
        ports = [Port(n.name, n.role, spec_of(by_name[n.name]), local[n.name]) for n in program.tensors]
        ports += [
            Port(twin, n.role, spec_of(by_name[n.name]), writer.names.free(twin))
            for n in program.tensors
            for twin in n.same
        ]
        used = {name for draft in drafts for value in draft.values for name in refs(value)}
        used |= {name for _, value in results for name in refs(value)} | set(saved)
        ports += self.constant_ports(used, "")
        own = {writer.locals[key]: name for key, name in self.run.keys.items()}
        kept = [(Port(own.get(name, name), "saved", spec_of(writer.places[name])), Ref(name)) for name in saved]
        every = [*results, *kept]
        return Graph(
            tuple(ports),
            tuple(steps(drafts, {})),
            tuple(port for port, _ in every),
            tuple(value for _, value in every),
        )

    def constant_ports(self, used: set[str], prefix: str) -> Iterator[Port]:
        """Ports for the constants among these locals."""
        tape = self.writer.tape
        for key, name in self.fresh.items():
            local = self.writer.locals.get(key)
            if local in used:
                self.constants[prefix + name] = tape.constants[key]
                yield Port(prefix + name, "constant", tensor_spec(tape.constants[key]), local)
        for local, state in self.writer.fixed.items():
            if local in used:
                self.constants[prefix + local] = state
                yield Port(prefix + local, "constant", tensor_spec(state), local)

    def back(self, drafts: Sequence[Draft], gradients: Results, saved: Sequence[str]) -> Graph:
        """The backward Graph."""
        writer = self.writer
        own = {writer.locals[key]: name for key, name in self.run.keys.items()}
        ports = [Port(own.get(name, name), "saved", spec_of(writer.places[name]), name) for name in saved]
        specs = {root.key: root.place for roots in writer.tape.roots.values() for root in roots}
        for name in self.run.tangents:
            key = f"tangent {name}"
            ports.append(Port(name, "tangent", spec_of(specs[key]), writer.locals[key]))
        used = {name for draft in drafts for value in draft.values for name in refs(value)}
        used |= {name for _, value in gradients for name in refs(value)}
        ports += self.constant_ports(used, "backward.")
        renamed = self.gradient_names(drafts, gradients)
        outputs, results = [], []
        twins = {named.name: named.same for named in self.run.program.tensors}
        by_name = {port.name: (port, value) for port, value in gradients}
        for named in self.run.program.tensors:
            if named.name not in by_name:
                continue
            port, value = by_name[named.name]
            for name in (named.name, *twins[named.name]):
                outputs.append(replace(port, name=name))
                results.append(rename(value, renamed))
        return Graph(tuple(ports), tuple(steps(drafts, renamed)), tuple(outputs), tuple(results))

    def gradient_names(self, drafts: Sequence[Draft], gradients: Results) -> dict[str, str]:
        """A step that gives a gradient is called after it: `grad_layer1_0_conv1_weight`."""
        steps_made = {draft.name for draft in drafts}
        renamed: dict[str, str] = {}
        for port, value in gradients:
            if isinstance(value, Ref) and value.name in steps_made and value.name not in renamed:
                renamed[value.name] = self.writer.names.free(f"grad_{port.name}")
        return renamed


def steps(drafts: Sequence[Draft], renamed: Mapping[str, str]) -> Iterator[Step]:
    """Drafts as Steps, guards numbered."""
    count = 0
    for draft in drafts:
        name = renamed.get(draft.name, draft.name)
        if draft.target.startswith("assert"):
            name, count = f"guard_{count}", count + 1
        args = tuple([rename(value, renamed) for value in draft.args])
        kwargs = tuple((key, rename(value, renamed)) for key, value in draft.kwargs)
        yield Step(name, draft.target, args, kwargs, draft.spec, draft.source, draft.echo)


def rename(value: Value, renamed: Mapping[str, str]) -> Value:
    """A value with other names in it."""
    if not renamed:
        return value
    match value:
        case Ref(name):
            return Ref(renamed[name]) if name in renamed else value
        case List(items):
            return List(tuple([rename(item, renamed) for item in items]))
        case Dict(pairs):
            return Dict(tuple([(rename(key, renamed), rename(item, renamed)) for key, item in pairs]))
        case tuple():
            return tuple([rename(item, renamed) for item in value])
    return value


def kind_of(draft: Draft) -> str:
    """A guard's kind."""
    if draft.inner:
        return "spec"
    return "shape" if draft.target == "assert_shape" else "value"


def said(draft: Draft) -> str:
    """A guard in words."""
    value = draft.args[0]
    name = value.name if isinstance(value, Ref) else "?"
    match draft.target:
        case "assert_shape":
            return f"{name}.shape == {draft.args[1]}"
        case "assert_nan":
            return f"{name} is nan"
    return f"{name} == {draft.args[1]!r}"
