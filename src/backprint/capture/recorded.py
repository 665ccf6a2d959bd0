"""One step of a script that goes on: a Capture of linked Pairs, forward, backward, optimizer.

A dispatch mode writes down every operator from the end of one optimizer step to the end of the next, and `enter` and
`leave` mark where a backward begins and ends. What the step took from outside is copied before it changes. The step
itself cannot be run again, so what it gave is kept too, and is what the Capture is proved against. `recording` says
when a step begins and ends.

The script must not notice: an error of ours, and whatever cannot be followed, loses the step and nothing else.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType, MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from backprint import settings
from backprint.capture import frames
from backprint.capture.assembly import Joint, Result, assemble
from backprint.capture.custom import is_composite, taken_apart
from backprint.capture.eager import constants_of
from backprint.capture.entry import requirements
from backprint.capture.functional import Memory, Writer, dense, spanned, spec_of
from backprint.capture.program import Outcome
from backprint.capture.reach import children, state_of_optimizer
from backprint.capture.scout import Sighting, is_number_read, storages
from backprint.capture.tape import PLAIN, Call, Place, Recorder, Tape, flat
from backprint.errors import CaptureError, ReplayError
from backprint.graph.nouns import Capture, Guard, Link, Pair, Port, Ref, Signature, Step, refs
from backprint.graph.steps import used

aten = torch.ops.aten

SETTERS = (aten.set_.source_Storage, aten.set_.source_Storage_storage_offset)
"""What puts a tensor on memory that no operator made, as a DataLoader's does on what a worker shares."""

UNLIKE: dict[Any, str] = {
    **dict.fromkeys((aten.prod.default, aten.prod.dim_int), "prod"),
    aten.masked_fill.Tensor: "masked_fill",
}
"""Operators whose backward formula is another where a dispatch mode is on (`isTensorSubclassLike` in torch's
FunctionsManual.cpp), with other rounding: of all that `op_db` has, these, on torch 2.13."""

UNLIKE_TWICE = {aten.cumprod.default: "cumprod", aten._linalg_det.default: "det"}
"""Operators that so differ in a backward with `create_graph=True`."""


@dataclass(slots=True)
class Backward:
    """One `backward()` of a step: where in the tape it ran, from which tensors, and the gradients it gave.

    `before` and `after` are where the leaves' gradients lay, `terms` what autograd added to those that were there.
    `given` is what the leaves got of this backward, `tangents` whether the script gave it some.
    """

    begin: int
    roots: list[Place]
    losses: list[Tensor]
    tangents: bool
    before: dict[int, Place] = field(default_factory=dict)
    terms: dict[Place, Tensor] = field(default_factory=dict)
    end: int = 0
    after: dict[int, Place] = field(default_factory=dict)
    given: dict[int, Tensor] = field(default_factory=dict)


class LiveRecorder(Recorder):
    """A recorder of a step that goes on for good: nothing is put back, but what is overwritten is kept first.

    `lost` says why it gave the step up; from then on every operator runs as if there were no recorder.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return True

    def __init__(self) -> None:
        super().__init__({})
        self.lost, self.twice = "", ""
        self.pid, self.thread = os.getpid(), threading.get_ident()
        self.backwards: list[Backward] = []
        self.begun: list[Tensor] = []
        self.known: dict[int, list[Place]] = {}

    def lose(self, why: str) -> None:
        """Give the step up, and let go of everything that was kept of it."""
        self.lost = self.lost or why
        self.tape, self.seen = Tape(), Sighting()
        self.undo, self.callers, self.known, self.backwards, self.begun = {}, {}, {}, [], []

    # -------------------------------------------------------------- operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(kind not in PLAIN for kind in types):
            return NotImplemented
        if is_number_read(func, args):
            return args[0]
        if is_composite(func):
            return taken_apart(self, func, args, kwargs)
        about = self.tried(self.before, func, args, kwargs)
        result = func(*args, **kwargs)  # outside of what is ours: what it raises, and what it runs, is the script's
        if about is not None:
            self.tried(self.after, about, args, kwargs, result)
        return result

    def tried(self, act: Callable[..., Any], *args: Any) -> Any:
        """What a part of ours gives; an error in it costs the step. In a forked child there is no step."""
        if self.lost or os.getpid() != self.pid:
            return None
        try:
            with torch._C.DisableTorchFunction():
                return act(*args)
        except Exception as error:  # whatever it is, the script goes on
            self.lose(f"{type(error).__name__}: {error}")
            return None

    def before(self, func: Any, args: Any, kwargs: Any) -> Call | None:
        asked = func in UNLIKE and torch.is_grad_enabled()
        if asked and any(isinstance(arg, Tensor) and arg.requires_grad for arg in (args[0], *args[2:3])):
            self.lose(f"the backward of {UNLIKE[func]} rounds otherwise while it is watched{place_of_script()}")
            return None
        if func in UNLIKE_TWICE:
            self.twice = UNLIKE_TWICE[func]
        return super().before(func, args, kwargs)

    def after(self, about: Call, args: Any, kwargs: Any, result: Any) -> None:
        if about.func in SETTERS and storages(result)[-1]._cdata not in self.taint:
            self.encounter(None, args[0], False)
            return
        if is_sum(about) and about.args[0] in self.backwards[-1].before.values():
            terms, term = self.backwards[-1].terms, args[1].detach()
            terms[about.args[0]] = terms[about.args[0]] + term if about.args[0] in terms else term.clone()
        super().after(about, args, kwargs, result)
        for place in flat(self.tape.calls[-1].result):
            if type(place) is Place and place.memory in self.known:
                self.known[place.memory].append(place)

    def taken(self, func: Any, tensor: Tensor, writes: bool) -> Place:
        if not self.is_known(tensor):
            self.encounter(func, tensor, writes)
        return super().taken(func, tensor, writes)

    def is_known(self, tensor: Tensor) -> bool:
        """Whether a tensor was made in the step or lies in what is known of the memory that came from outside.

        Of a batch, a part may come first: then the whole, when it comes, is another input.
        """
        if storages(tensor)[-1]._cdata not in self.taint:
            return False
        place = self.place(tensor)
        known = self.known.get(place.memory)
        return known is None or any(holds(each, place) for each in known)

    def meet(self, func: Any, tensor: Tensor, written: bool) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        self.callers[key] = storage
        self.seen.outside.append(tensor)
        self.begun.append(tensor.detach())  # a tensor may be put on other memory while the step runs
        self.learn(tensor, frozenset())
        place = self.place(tensor)
        self.known.setdefault(place.memory, []).append(place)
        if written and key not in self.undo:
            self.undo[key] = storage.clone()

    def meet_sparse(self, tensor: Tensor) -> None:
        raise CaptureError(f"the step takes a {str(tensor.layout)[6:]} tensor from outside{place_of_script()}")

    def judge(self, func: Any, given: list[Tensor]) -> None:
        """What is opaque is found from the nodes behind each loss."""

    def know_parameters(self, frame: FrameType) -> None:
        """The script's parameters are known from the start, by the variables of its frames."""
        for _, tensor in names_in_frames(frame).values():
            if isinstance(tensor, nn.Parameter):
                self.found(tensor)

    def found(self, tensor: Tensor) -> Place:
        """Where a tensor lies; one of unknown memory comes from outside."""
        if not self.is_known(tensor):
            self.encounter(None, tensor, False)
        return self.place(tensor)

    # -------------------------------------------------------------- backwards

    def gradients(self) -> dict[int, Place]:
        """Where the gradients of the tensors met so far lie."""
        every = list(enumerate(self.seen.outside))
        leaves = [(index, tensor) for index, tensor in every if tensor.is_leaf and tensor.requires_grad]
        return {index: self.found(leaf.grad) for index, leaf in leaves if leaf.grad is not None}

    def enter(self, roots: Sequence[Tensor], tangents: bool) -> None:
        """A call of `torch.autograd.backward` begins; one inside another belongs to the outer one."""
        places = [self.found(root) for root in roots]
        mark = Backward(len(self.tape.calls), places, [root.detach().clone() for root in roots], tangents)
        self.judge_outputs({str(index): root for index, root in enumerate(roots)})
        mark.before = self.gradients()
        self.backwards.append(mark)

    def leave(self) -> None:
        """It has ended."""
        mark = self.backwards[-1]
        mark.end, mark.after = len(self.tape.calls), self.gradients()
        for index, place in mark.after.items():
            if index not in mark.before:
                mark.given[index] = self.seen.outside[index].grad.detach().clone()
            elif place in mark.terms:
                mark.given[index] = mark.terms[place]

    def kept(self) -> list[Tensor]:
        """The tensors from outside as they were when the step began."""
        found = []
        for tensor in self.begun:
            storage = self.undo.get(tensor.untyped_storage()._cdata)
            with torch.no_grad():
                if storage is None:
                    found.append(tensor.detach().clone())
                    continue
                empty = torch.empty((), dtype=tensor.dtype, device=tensor.device)
                found.append(empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride()).clone())
        return found


def holds(whole: Place, part: Place) -> bool:
    """Whether every element of a tensor is one of another."""
    if whole == part or whole.stride is None or part.stride is None:
        return whole == part
    begin, first = whole.offset * whole.dtype.itemsize, part.offset * part.dtype.itemsize
    return dense(whole) and begin <= first and spanned(part) <= spanned(whole)


def place_of_script() -> str:
    """The script's line, in a message."""
    return frames.place(frames.here({}))


# ------------------------------------------------------------------ names


Named = dict[int, tuple[str, Tensor]]
"""Tensors with their names, by identity."""


def names_in_frames(frame: Any) -> Named:
    """Names for tensors from the variables of the user's frames: a model's own names first."""
    roots: list[tuple[str, Any]] = []
    while frame is not None:
        if frames.is_users(frame.f_code.co_filename):
            roots += variables(frame).items()
        frame = frame.f_back
    named: Named = {}
    every = list(spread(roots))
    for prefix, value in every:
        if isinstance(value, nn.Module):
            for name, tensor in (*value.named_parameters(), *value.named_buffers()):
                named.setdefault(id(tensor), (f"{prefix}.{name}", tensor))
    for prefix, value in every:
        if isinstance(value, torch.optim.Optimizer):
            for name, tensor in state_of_optimizer(value).items():
                named.setdefault(id(tensor), (f"{prefix}.state.{name}", tensor))
    for prefix, value in every:
        if isinstance(value, Tensor):
            named.setdefault(id(value), (prefix, value))
    return named


def variables(frame: FrameType) -> dict[str, Any]:
    """A frame's variables. The snapshot that Python makes of a function's is emptied: it would hold tensors alive."""
    if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return dict(frame.f_locals)
    before = {id(held) for held in gc.get_referents(frame) if type(held) is dict}
    snapshot = frame.f_locals
    found = dict(snapshot)
    if type(snapshot) is dict and id(snapshot) not in before:
        snapshot.clear()
    return found


def spread(roots: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """What variables hold, breadth first, and what that holds, by dotted names."""
    queue = [(name, value, 0) for name, value in roots if not name.startswith("__")]
    visited: set[int] = set()
    for name, value, depth in queue:
        if id(value) in visited or len(visited) > 20_000:
            continue
        visited.add(id(value))
        yield name, value
        if depth < 3 and not isinstance(value, (Tensor, nn.Module, torch.optim.Optimizer, type)):
            with contextlib.suppress(Exception):  # an object of the script's may refuse to be looked at
                queue += [(f"{name}.{key}", child, depth + 1) for key, child in children(value)]


def own_names(recorder: LiveRecorder, known: Named) -> dict[str, str]:
    """A name for every tensor from outside, by its key."""
    found: dict[str, str] = {}
    names = {key: name for key, (name, _) in known.items()}
    grads = {id(t.grad): names.get(id(t)) for t in recorder.seen.outside if t.is_leaf and t.grad is not None}
    taken: set[str] = set()
    count = 0
    for index, tensor in enumerate(recorder.seen.outside):
        name = names.get(id(tensor))
        if name is None and grads.get(id(tensor)):
            name = f"{grads[id(tensor)]}.grad"
        name = name and re.sub(r"[^\w.]+", "_", name)[:200]  # keys of dicts may be any text
        if name is None or name in taken:
            name, count = f"input_{count}", count + 1
        taken.add(name)
        found[f"outside {index}"] = name
    return found


# ------------------------------------------------------------------ from the tape to linked Pairs


@dataclass(slots=True)
class Segment:
    """A stretch of the step in one direction; a backward with its roots and the gradients it gives."""

    steps: list[Step]
    mark: Backward | None = None
    tangents: dict[str, str] = field(default_factory=dict)
    losses: dict[str, str] = field(default_factory=dict)
    gradients: dict[str, str] = field(default_factory=dict)


def capture_of_step(recorder: LiveRecorder, names: Named, title: str) -> Capture:
    """The Capture of a recorded step."""
    return StepWriter(recorder, own_names(recorder, names)).capture(title)


@dataclass(frozen=True, slots=True)
class Uses:
    """Which calls of a backward add to a gradient that was there, and the last other call that uses each memory."""

    sums: frozenset[int]
    last: dict[int, int]


def uses_in(calls: Sequence[Call], gradients: Collection[Place]) -> Uses:
    """The Uses: a sum belongs to what comes after the backward, if nothing in the backward reads it later."""
    sums = frozenset(index for index, call in enumerate(calls) if is_sum(call) and call.args[0] in gradients)
    last: dict[int, int] = {}
    for index, call in enumerate(calls):
        given = call.args[1:] if index in sums else (call.args, call.kwargs)
        last |= {leaf.memory: index for leaf in flat(*given) if type(leaf) is Place}
    return Uses(sums, last)


def is_sum(call: Call) -> bool:
    """Whether autograd adds to the gradient of a leaf."""
    plain = call.func is aten.add_.Tensor and len(call.args) == 2 and not call.kwargs
    return plain and call.sums and type(call.args[1]) is Place


class StepWriter:
    """Writes a step's tape segment by segment, and ties the segments to Pairs."""

    def __init__(self, recorder: LiveRecorder, names: Mapping[str, str]) -> None:
        self.recorder, self.names = recorder, dict(names)
        tape = recorder.tape
        self.fresh = {key: f"constant_{index}" for index, key in enumerate(tape.constants)}
        self.start, tape.start = tape.start, b""  # draws go on from where the script stood, not from a seed
        self.writer = Writer(tape, self.names | self.fresh, list(self.names))
        tape.start = self.start
        self.key_of = {local: key for key, local in self.writer.locals.items()}
        self.segments: list[Segment] = []
        self.late: list[Call] = []
        self.leaving: set[Place] = set()
        self.guards: list[Guard] = []

    # -------------------------------------------------------------- segments

    def write(self) -> None:
        """Every segment in order."""
        begin = 0
        for mark in self.recorder.backwards:
            self.forward(self.recorder.tape.calls[begin : mark.begin])
            self.backward(mark)
            begin = mark.end
        self.forward(self.recorder.tape.calls[begin:])

    def forward(self, calls: Sequence[Call]) -> None:
        """What runs outside of a backward; sums that a backward made into `.grad` come first."""
        segment = self.begin(Segment([]))
        self.writer.forget_views(self.leaving)
        late, self.late = self.late, []
        for call in (*late, *calls):
            self.writer.take(call)
        self.writer.call = None
        self.segments.append(segment)

    def begin(self, segment: Segment) -> Segment:
        self.writer.steps = segment.steps
        return segment

    def backward(self, mark: Backward) -> None:
        """One backward: its roots take tangents, and each leaf's own gradient is what it gives."""
        segment = Segment([], mark)
        for index, place in enumerate(mark.roots):
            segment.losses["loss" if len(mark.roots) == 1 else f"loss.{index}"] = self.writer.read(place).name
        self.begin(segment)
        added: dict[Place, str] = {}
        calls = self.recorder.tape.calls[mark.begin : mark.end]
        uses = uses_in(calls, frozenset(mark.terms))
        for index, call in enumerate(calls):
            if self.is_tangent(call, mark, segment):
                continue
            if index in uses.sums:
                added[call.args[0]] = self.term(call, added.get(call.args[0]))
                if uses.last.get(call.args[0].memory, -1) < index:
                    self.late.append(call)
                    continue
            self.writer.take(call)
        self.writer.call = None
        self.leaving |= set(mark.after.values())
        for key in mark.given:
            value = added.get(mark.after[key]) or self.writer.read(mark.after[key]).name
            segment.gradients[self.names[f"outside {key}"]] = value
        self.segments.append(segment)

    def term(self, call: Call, before: str | None) -> str:
        """What a backward has given a leaf that has a gradient already: this sum's term, and those before it."""
        self.writer.call = call
        self.leaving.add(call.args[1])
        term = self.writer.read(call.args[1])
        return term.name if before is None else self.writer.emit(aten.add.Tensor, (Ref(before), term))

    def is_tangent(self, call: Call, mark: Backward, segment: Segment) -> bool:
        """The ones that autograd starts from: the tangent of a loss."""
        if mark.tangents or call.func is not aten.ones_like.default or call.node is not None:
            return False
        if call.args[0] not in mark.roots:
            return False
        name = list(segment.losses)[mark.roots.index(call.args[0])]
        local = self.writer.names.free(f"tangent_{name}")
        place = call.result
        self.writer.memory[place.memory] = Memory(place, 0, {place: (local, 0)}, {}, [place])
        self.writer.places[local] = place
        segment.tangents[name] = local
        return True

    # -------------------------------------------------------------- the whole

    def capture(self, title: str) -> Capture:
        """The Capture of the step."""
        self.write()
        finals = self.finals()
        kept = dict(zip(self.names.values(), self.recorder.kept(), strict=True))
        tied = Tied(self, finals)
        pairs, links = tied.pairs()
        losses = tuple(link.name for link in links if link.target is None)
        origin = Recorded(kept, tied.constants, self.given(finals, losses), pairs)
        return Capture(
            name=title,
            engine="eager",
            pairs=pairs,
            signature=Signature(
                output={"dict": {name: {"port": name} for name in losses}},
                differentiable=tuple(name for name in losses if name in tied.tangents),
                loss=losses[0] if len(losses) == 1 else "",
            ),
            links=links,
            guards=tuple(tied.guards),
            opaque=tuple(dict.fromkeys(self.recorder.seen.opaque)),
            environment=settings.record(),
            requires=tuple(sorted({target for pair in pairs for target in requirements(pair)})),
            origin=origin,
        )

    def finals(self) -> dict[str, tuple[str, Tensor]]:
        """The tensors from outside that the step changed: name -> their last value's name, and the value."""
        found = {}
        for key, tensor in zip(self.names, self.recorder.seen.outside, strict=True):
            value = self.writer.read(self.recorder.place(tensor)).name
            if value != self.writer.locals[key]:
                found[self.names[key]] = (value, tensor.detach().clone())
        return found

    def given(self, finals: Mapping[str, tuple[str, Tensor]], losses: Sequence[str]) -> Outcome:
        """What the step really gave: losses, gradients, and what it changed."""
        marks = self.recorder.backwards
        values = [loss for mark in marks for loss in mark.losses]
        gradients: dict[str, Tensor] = {}
        for mark in reversed(marks):  # a replay adds them up so, the latest first
            for index, term in mark.given.items():
                name = self.names[f"outside {index}"]
                gradients[name] = gradients[name] + term if name in gradients else term
        changed = {name: tensor for name, (_, tensor) in finals.items()}
        return Outcome(dict(zip(losses, values, strict=True)), dict(gradients), changed)


class Tied:
    """Segments as linked Pairs, from the last to the first: a later one says what it needs of those before."""

    def __init__(self, step: StepWriter, finals: Mapping[str, tuple[str, Tensor]]) -> None:
        self.step, self.writer = step, step.writer
        self.constants: dict[str, Tensor] = {}
        self.guards: list[Guard] = []
        self.tangents: set[str] = set()
        self.links: list[Link] = []
        self.groups: list[list[Segment]] = []
        for segment in step.segments:
            if segment.mark is None:
                self.groups.append([segment])
            else:
                self.groups[-1].append(segment)
        self.home = {
            each.name: (index, side)
            for index, group in enumerate(self.groups)
            for side, segment in enumerate(group)
            for each in segment.steps
        }
        self.makers = {each.name: each for segment in step.segments for each in segment.steps}
        self.changed: list[dict[str, str]] = [{} for _ in self.groups]
        for name, (value, _) in finals.items():
            index, side = self.home.get(value, (len(self.groups) - 1, 0))
            self.changed[index + side][name] = value  # what a backward changes, the forward after it hands on
        self.wanted: list[dict[str, None]] = [{} for _ in self.groups]
        self.roots = {step.writer.locals[key]: name for key, name in step.names.items()}
        self.fixed = constants_of(step.writer, step.fresh)
        self.roles = {name: role_of(name, tensor) for name, tensor in zip(
            step.names.values(), step.recorder.seen.outside, strict=True)}  # fmt: skip

    def pairs(self) -> tuple[tuple[Pair, ...], tuple[Link, ...]]:
        """The Pairs that do something, and the links between them and to the losses."""
        made = {index: self.pair(index) for index in reversed(range(len(self.groups)))}
        kept = [index for index in sorted(made) if made[index].forward.outputs]
        order = {old: new for new, old in enumerate(kept)}
        pairs = tuple(Pair(f"pair_{order[i]}", made[i].forward, made[i].backward) for i in kept)
        moved = [
            Link(order[link.source or 0], link.port, None if link.target is None else order[link.target], link.name)
            for link in self.links
        ]
        return pairs, tuple(sorted(moved, key=lambda link: (link.target is None, link.target or 0, link.source or 0)))

    def pair(self, index: int) -> Pair:
        """One group as a Pair, with links from the groups before it."""
        made = assemble(self.joint(index), f"pair_{index}")
        self.constants |= made.constants
        self.guards += made.guards
        for port in made.pair.forward.inputs:
            if port.local in self.home:
                source = self.home[port.local][0]
                self.wanted[source][port.local] = None
                self.links.append(Link(source, self.source_of(port.local)[0], index, port.name))
        self.links += [Link(index, f"output {name}", None, name) for name in self.losses(index)]
        backward = made.pair.backward
        self.tangents |= {port.name for port in (backward.inputs if backward else ()) if port.role == "tangent"}
        return made.pair

    def joint(self, index: int) -> Joint:
        """One group, and what later groups want of it."""
        forward, *rest = self.groups[index]
        segment = rest[0] if rest else Segment([])
        losses = self.losses(index)
        changed = self.changed[index]
        passed = [name for name in self.wanted[index] if self.home[name] == (index, 0)]
        passed = [name for name in passed if name not in losses.values() and name not in changed.values()]
        results = [
            *(self.result(name, "output", local) for name, local in losses.items()),
            *(self.result(local, "output", local) for local in passed),
            *(self.result(name, "mutation", local) for name, local in changed.items()),
        ]
        given = dict(segment.gradients)
        given |= {name: name for name in self.wanted[index] if self.home[name] == (index, 1)
                  and name not in given.values()}  # fmt: skip
        titles = dict(zip(segment.losses, losses, strict=True))
        return Joint(
            inputs=self.inputs(index, results),
            forward=tuple(forward.steps),
            results=tuple(results),
            tangents=tuple(
                Port(titles[name], "tangent", self.spec(local), local) for name, local in segment.tangents.items()
            ),
            backward=tuple(segment.steps),
            gradients=tuple(self.result(name, "gradient", local) for name, local in given.items()),
            constants=self.fixed,
            notes=self.writer.notes,
            specs={name: self.spec(name) for name in self.writer.places},
            before=self.makers,
            known=self.roots,
            whole=False,
        )

    def result(self, name: str, role: str, local: str) -> Result:
        return Port(name, role, self.spec(local)), Ref(local)

    # -------------------------------------------------------------- what comes in

    def inputs(self, index: int, results: Sequence[Result]) -> tuple[Port, ...]:
        """A port for each value that the group may take: the program's own tensors, and what earlier groups made."""
        group = self.groups[index]
        own = {step.name for segment in group for step in segment.steps}
        own |= {local for segment in group for local in segment.tangents.values()} | self.fixed.keys()
        taken = [name for segment in group for step in segment.steps for name in used(step)]
        taken += [name for _, value in results for name in refs(value)]
        taken += [name for segment in group for name in segment.gradients.values()]
        ports = [self.port(name) for name in dict.fromkeys(taken) if name not in own]
        return tuple(sorted(ports, key=lambda port: ROLES.index(port.role)))

    def port(self, name: str) -> Port:
        """An input: the program's own tensor, or what a link brings from an earlier Pair."""
        if name in self.roots:
            own = self.roots[name]
            return Port(own, self.roles[own], self.spec(name), name)
        if name not in self.home:
            raise CaptureError(f"a later part of the step takes {name!r}, which autograd gave a backward to start from")
        return Port(self.source_of(name)[1], "input", self.spec(name), name)

    def source_of(self, name: str) -> tuple[str, str]:
        """Where a value of an earlier group comes from: the key of a port there; and what it is called afterwards."""
        source, side = self.home[name]
        segment = self.groups[source][1] if len(self.groups[source]) > 1 else None
        if side == 1:
            if self.writer.places[name].layout is not torch.strided:
                raise CaptureError("a backward gives a sparse gradient, which no link between Pairs holds")
            gradient = next((own for own, local in segment.gradients.items() if local == name), "") if segment else ""
            return (f"gradient {gradient}", self.free(f"{gradient}.grad", source)) if gradient else (
                f"gradient {name}", name)  # fmt: skip
        key = f"output {name}"
        key = next((f"output {loss}" for loss, local in self.losses(source).items() if local == name), key)
        return next((f"mutation {own}" for own, local in self.changed[source].items() if local == name), key), name

    def free(self, name: str, source: int) -> str:
        """A name for a gradient between Pairs that is no tensor's own."""
        several = sum(name.removesuffix(".grad") in s.gradients for s in self.step.segments) > 1
        return f"{name}.{source}" if several or name in self.step.names.values() else name

    def losses(self, index: int) -> dict[str, str]:
        """The losses of a group's backward, by names of their own in the whole step."""
        back = [number for number, group in enumerate(self.groups) if len(group) > 1]
        found = self.groups[index][1].losses if len(self.groups[index]) > 1 else {}
        if len(back) == 1:
            return dict(found)
        return {name.replace("loss", f"loss_{back.index(index)}", 1): local for name, local in found.items()}

    def spec(self, name: str) -> Any:
        return spec_of(self.writer.places[name])


ROLES = ("parameter", "buffer", "input", "constant")


def role_of(name: str, tensor: Tensor) -> str:
    """A parameter, state that stays with the program, or an input of this step."""
    if isinstance(tensor, nn.Parameter):
        return "parameter"
    return "input" if name.startswith("input_") or "." not in name else "buffer"


# ------------------------------------------------------------------ what it is proved against


@dataclass(slots=True)
class Known:
    """What a recorded step gave at one Pair's ports, as far as it was kept."""

    names: frozenset[str]
    outcome: Outcome
    partial: bool = True

    def step(self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None) -> Outcome:
        """The recorded values."""
        keep = self.names
        return Outcome(
            {name: t for name, t in self.outcome.outputs.items() if f"output {name}" in keep},
            {name: t for name, t in self.outcome.gradients.items() if f"gradient {name}" in keep},
            {name: t for name, t in self.outcome.mutations.items() if f"mutation {name}" in keep},
        )


class Recorded:
    """The live side of a recorded Capture: what the step took and gave. It cannot run on other values."""

    alive = True
    partial = True
    rebuild = None
    tangents: Mapping[str, Tensor] = MappingProxyType({})

    def __init__(
        self, kept: dict[str, Tensor], constants: Mapping[str, Tensor], outcome: Outcome, pairs: Sequence[Pair]
    ) -> None:
        taken = {port.name for pair in pairs for port in pair.forward.inputs}
        own = {name: term for name, term in outcome.gradients.items() if name in taken}  # not what it overwrote first
        self.kept, self.constants, self.outcome = kept, dict(constants), replace(outcome, gradients=own)
        several = len(pairs) > 1
        self.parts = tuple(Known(self.ports(pair, pairs), outcome) for pair in pairs) if several else ()

    @staticmethod
    def ports(pair: Pair, pairs: Sequence[Pair]) -> frozenset[str]:
        """The ports of a Pair whose values are the whole's own."""
        ports = [*pair.forward.outputs, *(pair.backward.outputs if pair.backward else ())]
        others = [
            f"{port.role} {port.name}"
            for each in pairs
            if each is not pair
            for port in (*each.forward.outputs, *(each.backward.outputs if each.backward else ()))
        ]
        return frozenset(f"{port.role} {port.name}" for port in ports) - frozenset(others)

    def values(self) -> dict[str, Tensor]:
        """What the step took."""
        return {**self.kept, **self.constants}

    def step(self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None) -> Outcome:
        """What the step gave, if these are the values it took."""
        other = [name for name, tensor in self.values().items() if name in values and not same(values[name], tensor)]
        other += [f"tangent {name}" for name, tensor in (tangents or {}).items() if not bool((tensor == 1).all())]
        if other:
            raise ReplayError(f"the step was recorded, and cannot run with another {other[0]!r}")
        return self.outcome


def same(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal, NaN to NaN."""
    return left.shape == right.shape and bool(((left == right) | ((left != left) & (right != right))).all())
