"""From a tape to straight-line code in which nothing changes: each update in place becomes a new value.

A storage has a current value, its base; every tensor in it is a view of that base. A write makes a new base (scattered
along the views that led to what was written), and whoever reads the storage afterwards reads views of the new one. So
views, updates through views and tensors that share memory need no special cases further on. With `functional=False` the
operators stay as they ran, and inputs that they would change are copied first.

A sparse tensor has a value of its own, good as long as none of its parts is written to; then it is joined again from
the current ones.

Private torch APIs of this module, tried on torch 2.13: `torch._ops` (schemas).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from backprint.capture.assembly import Note
from backprint.capture.scout import CHECKS, SILENT_WRITERS, reads_values
from backprint.capture.tape import Call, Place, Root, Tape, flat
from backprint.errors import CaptureError
from backprint.fx.convert import Names, pack, target_name
from backprint.graph.nouns import Echo, List, Ref, ScalarSpec, Spec, Step, TensorSpec, Value
from backprint.graph.steps import SAVING

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class View:
    """How a tensor came from another of the same storage."""

    parent: Place
    func: Any
    args: tuple[Any, ...]


@dataclass(slots=True)
class Memory:
    """One storage: the tensor that holds it all, the current names of its views, and how each came from another."""

    base: Place
    tick: int = 0
    names: dict[Place, tuple[str, int]] = field(default_factory=dict)
    made: dict[Place, View] = field(default_factory=dict)
    roots: list[Place] = field(default_factory=list)


@dataclass(slots=True)
class Sparse:
    """A sparse tensor's current name, and how often each part's storage had been written to when it got it.

    `loose` says that where its values are hangs on values that a recipe may draw again, `sized` that how many it has
    does.
    """

    name: str
    ticks: tuple[int, ...]
    loose: bool = False
    sized: bool = False


class Writer:
    """Writes the calls of a tape as Steps, forward then backward."""

    def __init__(self, tape: Tape, ports: Mapping[str, str], taken: Sequence[str], keep_updates: bool = False) -> None:
        self.tape, self.keep_updates = tape, keep_updates
        self.names = Names()
        self.forward: list[Step] = []
        self.backward: list[Step] = []
        self.steps = self.forward
        self.notes: dict[str, Note] = {}
        self.places: dict[str, Place] = {}
        self.memory: dict[int, Memory] = {}
        self.sparse: dict[Place, Sparse] = {}
        self.closed: dict[int, int] = {}
        self.still = still(tape)
        self.locals = {key: self.names.free(ports[key]) for key in taken}
        self.ports = ports
        self.heads: dict[int, tuple[str, Call]] = {}
        self.ahead: list[tuple[str, Call]] = []
        self.firsts: dict[str, tuple[str, Call]] = {}
        self.twins: dict[int, int] = {}
        self.born: dict[str, int | None] = {}
        self.terms: dict[str, frozenset[str]] = {}
        self.draws: dict[bytes, tuple[str, Any]] = {}
        self.states: dict[str, str] = {}
        self.stream = tape.start
        self.fixed: dict[str, Tensor] = {}
        self.outlooks: dict[Any, Any] = {}
        self.call: Call | None = None
        self.last = ""
        for memory, roots in tape.roots.items():
            self.open(memory, roots)
        if keep_updates:
            self.copy_what_changes()

    # -------------------------------------------------------------- storages

    def open(self, memory: int, roots: Sequence[Root]) -> None:
        """A storage that ports lie in."""
        made = Memory(roots[0].place)
        if roots[0].place.layout is torch.strided:
            self.memory[memory] = made
        for root in roots:
            if root.key not in self.locals:
                self.locals[root.key] = self.names.free(self.ports[root.key])
            if root.place.layout is not torch.strided:
                self.sparse.setdefault(root.place, Sparse(self.locals[root.key], self.ticks(root.place)))
            elif root.place not in made.names:
                made.names[root.place] = (self.locals[root.key], 0)
                made.roots.append(root.place)
            self.places[self.locals[root.key]] = root.place

    def forget_views(self, but: Collection[Place] = ()) -> None:
        """From here on, views are made anew from what they are views of, `but` some that have names of their own."""
        for memory in self.memory.values():
            made = memory.made
            memory.names = {
                place: name
                for place, name in memory.names.items()
                if place == memory.base or place in but or place not in made or made[place].func is None
            }

    def read(self, place: Place) -> Ref:
        """The current value of a tensor."""
        if place.layout is not torch.strided:
            return self.read_sparse(place)
        memory = self.memory.get(place.memory) or self.taken_out(place)
        found = memory.names.get(place)
        if found is not None and (found[1] == memory.tick or self.keep_updates):
            return Ref(found[0])
        view = memory.made.get(place)
        view = view if view is not None and view.func is not None else self.placed(memory, place)
        parent = self.read(view.parent)
        name = self.emit(view.func, (parent, *view.args), place=place)
        memory.names[place] = (name, memory.tick)
        return Ref(name)

    def read_sparse(self, place: Place) -> Ref:
        """The current value of a sparse tensor: its own, or joined again from its parts."""
        found = self.sparse.get(place)
        if found is not None and (found.ticks == self.ticks(place) or self.keep_updates):
            return Ref(found.name)
        given = [self.read(part) for part in place.parts]
        if place.layout is torch.sparse_coo:
            name = self.emit(
                aten._sparse_coo_tensor_unsafe.default,
                (*given, list(place.shape)),
                (("is_coalesced", place.coalesced),),
                place,
            )
        else:
            options = (("dtype", place.dtype), ("layout", place.layout), ("device", place.device))
            name = self.emit(aten._sparse_compressed_tensor_unsafe.default, (*given, list(place.shape)), options, place)
        self.enter_sparse(name, place, [place])
        return Ref(name)

    def ticks(self, place: Place) -> tuple[int, ...]:
        """How often each part's storage has been written to."""
        return tuple([self.tick(part.memory) for part in place.parts])

    def tick(self, memory: int) -> int:
        """How often a storage has been written to."""
        found = self.memory.get(memory)
        return self.closed.get(memory, 0) if found is None else found.tick

    def taken_out(self, place: Place) -> Memory:
        """A storage that is known only as a part of a sparse tensor: that part becomes a value."""
        for whole, sparse in list(self.sparse.items()):
            for index, part in enumerate(whole.parts):
                if part.memory == place.memory and sparse.ticks[index] == self.tick(place.memory):
                    name = self.emit(PARTS[whole.layout][index], (Ref(sparse.name),), place=part)
                    self.enter(name, part, (), functools.partial(View, part, None, ()))
                    return self.memory[place.memory]
        raise CaptureError(f"a tensor of shape {list(place.shape)} appears that no operator made")

    def placed(self, memory: Memory, place: Place) -> View:
        """A tensor of known storage that no seen operator made: by its geometry, from one flat value."""
        if place.dtype == memory.base.dtype and place.lazy in LAZY:
            memory.made[place] = View(place._replace(lazy=(False, False)), LAZY[place.lazy], ())
            return memory.made[place]
        if place.dtype == REAL.get(memory.base.dtype) and not any(place.lazy):
            return self.placed_in_real(memory, place)
        if place.dtype != memory.base.dtype and not any((*place.lazy, *memory.base.lazy)):
            return self.placed_in_bytes(memory, place)
        if any(place.lazy):
            raise CaptureError(f"memory is seen as lazily changed {str(place.dtype)[6:]} by no known view: pass a copy")
        flat_place = self.flatten(memory, place)
        view = View(flat_place, aten.as_strided.default, (place.shape, place.stride, place.offset))
        memory.made[place] = view
        return view

    def placed_in_real(self, memory: Memory, place: Place) -> View:
        """A real tensor of complex memory: by its geometry, from the flat value seen as pairs."""
        whole = self.flatten(memory, memory.base)
        pairs = whole._replace(dtype=place.dtype, shape=(*whole.shape, 2), stride=(2, 1))
        memory.made[pairs] = View(whole, aten.view_as_real.default, ())
        if place != pairs:
            memory.made[place] = View(pairs, aten.as_strided.default, (place.shape, place.stride, place.offset))
        return memory.made[place]

    def placed_in_bytes(self, memory: Memory, place: Place) -> View:
        """A tensor of another dtype than its storage's, as a copy of a storage has: the flat value, read anew."""
        old, new = memory.base.dtype.itemsize, place.dtype.itemsize
        span = math.ceil(max(reach(place) * new, reach(memory.base) * old) / max(old, new)) * max(old, new)
        also = memory.base._replace(shape=(span // old,), stride=(1,), offset=0)
        whole = self.flatten(memory, also)
        if whole.shape[0] * old % new:
            raise CaptureError(
                f"{whole.shape[0] * old} bytes of memory are seen as {str(place.dtype)[6:]}: pass a copy"
            )
        cast = whole._replace(dtype=place.dtype, shape=(whole.shape[0] * old // new,))
        memory.made[cast] = View(whole, aten.view.dtype, (place.dtype,))
        if place != cast:
            memory.made[place] = View(cast, aten.as_strided.default, (place.shape, place.stride, place.offset))
        return memory.made[place]

    def flatten(self, memory: Memory, also: Place) -> Place:
        """One flat value for a storage, filled from the tensors that are known of it."""
        roots = [place for place in dict.fromkeys((memory.base, *memory.roots)) if place not in memory.made]
        extent = max(reach(place) for place in (*roots, also))
        wanted = memory.base._replace(shape=(extent,), stride=(1,), offset=0)
        if memory.base == wanted:
            return wanted
        if len({place.dtype for place in roots}) > 1:
            raise CaptureError("tensors share memory under different dtypes and one is changed: pass copies")
        options = (("dtype", wanted.dtype), ("device", wanted.device))
        name = self.emit(aten.zeros.default, ([extent],), options, place=wanted)
        for place in roots:
            value = self.read(place)
            args = (Ref(name), value, place.shape, place.stride, place.offset)
            name = self.emit(aten.as_strided_scatter.default, args, place=wanted)
            memory.made[place] = View(wanted, aten.as_strided.default, (place.shape, place.stride, place.offset))
        memory.base = wanted
        memory.made.pop(wanted, None)  # the program may have seen the memory so, as a view of what was its base
        memory.names[wanted] = (name, memory.tick)
        return wanted

    def prepare(self, place: Place) -> None:
        """Make sure that a write to this tensor can be carried over to its whole storage."""
        memory, written = self.memory[place.memory], place
        if sum(root not in memory.made for root in memory.roots) > 1:
            self.flatten(memory, place)
        while place != memory.base:
            view = memory.made.get(place)
            if view is None or not (view.func in SCATTER or view.func in INVERSE):
                self.placed(memory, place)
                return
            place = view.parent
            if overlaps(place):  # a value of the parent would say twice what lies in one spot
                self.placed(memory, written)
                return

    def assign(self, place: Place, name: str) -> None:
        """A tensor has a new value: so has all that shares its storage."""
        memory = self.memory[place.memory]
        fresh: dict[Place, str] = {}
        while True:
            if self.fits(name, place):
                fresh[place] = name
            if place == memory.base:
                break
            view = memory.made[place]
            name = self.scattered(view, name)
            place = view.parent
        memory.tick += 1
        for each, value in fresh.items():
            memory.names[each] = (value, memory.tick)

    def scattered(self, view: View, name: str) -> str:
        """The parent of a view, with this value in the view's place."""
        parent = self.read(view.parent)
        if view.func in SCATTER:
            func, args = SCATTER[view.func], (parent, Ref(name), *view.args)
        else:
            func, args = INVERSE[view.func](view, Ref(name))
        return self.fitted(self.emit(func, args), view.parent, parent)

    def fits(self, name: str, place: Place) -> bool:
        """Whether a value lies as a tensor does. One that is conjugated already stands for one that is when read."""
        have = lie(self.places[name])
        return have in (lie(place), lie(place._replace(lazy=(False, False))))

    def fitted(self, name: str, place: Place, old: Ref) -> str:
        """A value with the dtype, shape and strides of the tensor that it is written to."""
        if self.fits(name, place):
            return name
        have = self.places[name]
        if (have.dtype, have.shape) == (place.dtype, place.shape) and not dense(place) and place != self.base(place):
            return name
        return self.emit(aten.copy.default, (old, Ref(name)), place=place)

    def base(self, place: Place) -> Place:
        return self.memory[place.memory].base

    # -------------------------------------------------------------- steps

    def emit(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Sequence[tuple[str, Any]] = (),
        place: Place | None = None,
    ) -> str:
        """One step of ours; without a Place, what it gives is worked out on meta tensors."""
        place = place or self.worked_out(func, args, dict(kwargs))
        name = self.names.free(stem(func))
        packed = tuple([pack(value) for value in args])
        named = tuple([(key, pack(value)) for key, value in kwargs])
        self.put(Step(name, target_name(func), packed, named, spec_of(place)))
        self.places[name] = place
        return name

    def put(self, step: Step) -> None:
        """The next step, with the line and the echo of the call that it belongs to."""
        if self.call is not None and step.source is None and step.echo is None:
            source, echo = self.call.source, self.echo(self.call)
            if echo is not None and source is None:
                source = self.heads[self.call.node or 0][1].source
            if source is not None or echo is not None:
                step = replace(step, source=source, echo=echo)
        self.born[step.name] = None if self.call is None else self.call.node
        self.steps.append(step)

    def put_guard(self, target: str, *args: Value, structure: bool = False) -> None:
        """A guard on a value; `structure` where it is about how a sparse tensor is built."""
        name = self.names.free("guard")
        self.put(Step(name, target, args))
        if structure:
            self.mark(name, structure=True)

    def mark(self, name: str, **fields: Any) -> None:
        """Add to the note of a step."""
        self.notes[name] = replace(self.notes.get(name, Note()), **fields)

    def amend(self, **fields: Any) -> None:
        """Other fields for the step that was written last."""
        self.steps[-1] = replace(self.steps[-1], **fields)

    def worked_out(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Place:
        """Where the result of a step would lie."""
        found = self.foreseen(func, tuple(args), kwargs)
        assert type(found) is Place
        return found

    def foreseen(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Where the results of a step would lie, as Places: worked out once for tensors that lie alike."""
        kwargs = {key: value for key, value in kwargs.items() if not isinstance(value, torch.Generator)}
        alike = (func, self.lies(args), self.lies(kwargs))
        if alike not in self.outlooks:
            metas = self.metas({**kwargs, "device": torch.device("meta")} if "device" in kwargs else kwargs)
            try:
                self.outlooks[alike] = place_tree(func(*self.metas(tuple(args)), **metas))
            except (RuntimeError, TypeError, ValueError, IndexError) as error:  # whatever a meta kernel raises
                raise NoPlainForm(f"{func} cannot be foreseen: {type(error).__name__}: {str(error)[:300]}") from error
        return self.outlooks[alike]

    def lies(self, value: Any) -> Any:
        """Arguments as a key: tensors by how they lie, and numbers by their kind too."""
        match value:
            case Ref(name):
                return self.places[name]._replace(memory=-1)
            case tuple() | list():
                return tuple([self.lies(item) for item in value])
            case dict():
                return tuple([(key, self.lies(item)) for key, item in value.items()])
        return type(value), repr(value)

    def metas(self, value: Any) -> Any:
        """Arguments with meta tensors for values."""
        match value:
            case Ref(name):
                return meta(self.places[name])
            case tuple():
                return tuple([self.metas(item) for item in value])
            case list():
                return [self.metas(item) for item in value]
            case dict():
                return {
                    key: torch.device("meta") if key == "device" else self.metas(item) for key, item in value.items()
                }
        return value

    def packed(self, value: Any) -> Any:
        """Arguments with the current values of tensors."""
        kind = type(value)
        if kind is Place:
            return self.read(value)
        if kind is tuple:
            return tuple([self.packed(item) for item in value])
        if kind is list:
            return [self.packed(item) for item in value]
        return value

    # -------------------------------------------------------------- calls

    def write(self) -> None:
        """Every call before the boundary."""
        end = len(self.tape.calls) if self.tape.boundary is None else self.tape.boundary
        for call in self.tape.calls[:end]:
            self.take(call)
        self.call = None

    def write_backward(self) -> None:
        """Every call after it."""
        self.steps = self.backward
        for call in self.tape.calls[self.tape.boundary or 0 :]:
            self.take(call)
        self.call = None

    def take(self, call: Call) -> None:
        """One call: a view in place, an update, or plain."""
        self.call = call
        self.last = ""
        schema = call.func._schema
        before = len(self.steps)
        if torch.Tag.inplace_view in call.func.tags:
            self.turn(call)
        elif schema.is_mutable or self.is_silent(call):
            self.update(call)
        else:
            self.plain(call)
        if len(self.steps) > before:
            name = self.last or self.steps[-1].name
            self.note(call, name)

    def note(self, call: Call, name: str) -> None:
        """Remember a call that has been written, and where the results of one that is made again lay at first."""
        if self.steps is self.forward:
            self.ahead.append((name, call))
        elif (first := self.first(call)) is not None:
            name = first[0]
            places = zip(flat(call.result), flat(first[1].result), strict=False)
            self.twins |= {a.memory: b.memory for a, b in places if type(a) is Place is type(b)}
        self.heads.setdefault(call.seq - 1, (name, call))

    def first(self, call: Call) -> tuple[str, Call] | None:
        """The forward's call that a call of the backward makes again, as a checkpoint does; None where none."""
        if self.steps is self.forward or not call.grad:
            return None
        if not self.firsts:
            for name, each in self.ahead:
                self.firsts.setdefault(self.said(each), (name, each))
        return self.firsts.get(self.said(call))

    def said(self, call: Call) -> str:
        """A call as text, with what is computed again in its first place."""
        return repr((call.func, self.at_first(call.args), self.at_first(call.kwargs), call.state))

    def at_first(self, value: Any) -> Any:
        """Arguments with the Places where their values lay at first."""
        if type(value) is Place:
            return value._replace(memory=self.twins.get(value.memory, value.memory))
        if isinstance(value, (tuple, list)):
            return [self.at_first(item) for item in value]
        return {key: self.at_first(item) for key, item in value.items()} if isinstance(value, dict) else value

    def is_silent(self, call: Call) -> bool:
        """Whether the call changes running statistics that its schema does not name."""
        return call.func._schema.name in SILENT_WRITERS and bool(self.argument(call, "training"))

    def argument(self, call: Call, name: str) -> Any:
        """An argument by its name in the schema."""
        for index, each in enumerate(call.func._schema.arguments):
            if each.name == name:
                if name in call.kwargs:
                    return call.kwargs[name]
                return call.args[index] if index < len(call.args) else each.default_value
        return None

    def plain(self, call: Call) -> None:
        """A call that changes nothing."""
        given = {leaf for leaf in flat(call.args, call.kwargs) if type(leaf) is Place}
        if type(call.result) is Place and call.result in given:
            return
        if call.func is aten.as_strided.default and not self.keep_updates and self.memory[call.result.memory].tick:
            memory = self.memory[call.result.memory]
            if call.result != memory.base:
                self.placed(memory, call.result)  # it goes by the storage, and a new value has one of its own
            self.last = self.read(call.result).name
        if call.func in ASKED:
            self.asked(call)
            return
        name = self.step(call, call.func, self.packed(call.args), self.packed_kwargs(call))
        self.born_as(name, call.result, [place for place in flat(call.args, call.kwargs) if type(place) is Place], call)
        if reads_values(call.func) and not places_alone(call):
            self.guard(name, call.result)
        elif any(place.layout is not torch.strided for place in given):
            self.guard_structure(call, name)

    def asked(self, call: Call) -> None:
        """A call that fills what its backward needs only where an argument asks for a gradient: so that one asks."""
        args = list(self.packed(call.args))
        bare = self.emit(aten.detach.default, (args[ASKED[call.func]],), place=call.args[ASKED[call.func]])
        args[ASKED[call.func]] = Ref(self.emit(aten.requires_grad_.default, (Ref(bare),), place=self.places[bare]))
        name = self.step(call, call.func, args, self.packed_kwargs(call))
        for index, place in enumerate(call.result):
            each = self.emit(aten.detach.default, (Ref(self.item(name, index, place)),), place=place)
            self.enter(each, place, (), functools.partial(View, place, None, ()))

    def guard_structure(self, call: Call, name: str) -> None:
        """What the program saw of how a sparse tensor is built: how many values it has, whether it is coalesced."""
        if call.func is aten.is_coalesced.default:
            self.put_guard("assert_equal", Ref(name), call.result, structure=True)
        elif call.func is aten._nnz.default:
            self.put_guard("assert_equal", Ref(name), call.result, structure=not self.sparse[call.args[0]].sized)
        elif call.func in OPENED:
            value = self.read(call.result)
            self.put_guard("assert_shape", value, call.result.shape, structure=not self.sparse[call.args[0]].sized)

    def packed_kwargs(self, call: Call) -> dict[str, Any]:
        """Keyword arguments with the current values of tensors."""
        return {key: self.packed(value) for key, value in call.kwargs.items()}

    def step(self, call: Call, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """One step for one call; a random draw from another state than the caller's stream takes that state along."""
        named = {key: value for key, value in kwargs.items() if not isinstance(value, torch.Generator)}
        self.last = name = self.names.free(stem(func))
        packed = tuple([pack(v) for v in args if not isinstance(v, torch.Generator)])
        values = tuple((key, pack(value)) for key, value in named.items())
        spec = spec_of(call.result) if func is call.func else None
        step = Step(name, target_name(func), packed, values, spec)
        if call.state is None:
            self.put(step)
            if func in CHECKS:
                self.mark(name, stays=True)
            return name
        if not call.own and call.state == self.stream:
            self.stream = call.after or self.stream
            self.put(step)
            self.mark(name, draws=True)
            self.draws.setdefault(call.state, (name, func))
            return name
        state = self.state_ref(call)
        self.put(
            Step(
                name,
                "torch.ops.higher_order.run_with_rng_state",
                (state, pack(without_generator(func)), *packed),
                values,
                spec,
            )
        )
        return name

    def state_ref(self, call: Call) -> Ref:
        """The generator's state before a draw: an earlier draw's, kept by it, or a port."""
        assert call.state is not None
        first = self.draws.get(call.state)
        if first is not None and not call.own:
            return Ref(self.kept_state(*first))
        key = f"state {len(self.fixed)}"
        if call.state.hex() not in self.states:
            local = self.names.free(f"rng_{len(self.fixed)}")
            self.states[call.state.hex()] = local
            self.fixed[local] = torch.frombuffer(bytearray(call.state), dtype=torch.uint8).clone()
            self.places[local] = place_of(self.fixed[local])
            self.locals[key] = local
        return Ref(self.states[call.state.hex()])

    def kept_state(self, name: str, func: Any) -> str:
        """The name under which a draw of the forward keeps the state that it drew from."""
        if name not in self.states:
            steps = self.forward if any(each.name == name for each in self.forward) else self.backward
            at = next(index for index, each in enumerate(steps) if each.name == name)
            both, state = self.names.free("drawn"), self.names.free("rng_state")
            args = (pack(func), *steps[at].args)
            draw = replace(steps[at], name=both, target=SAVING, args=args, spec=None)
            spec = TensorSpec("uint8", (len(self.tape.start),))
            item = replace(steps[at], target="operator.getitem", args=(Ref(both), 1), kwargs=())
            steps[at : at + 1] = [draw, Step(state, "operator.getitem", (Ref(both), 0), (), spec), item]
            self.notes[both] = self.notes.pop(name)
            self.states[name] = state
            self.places[state] = place_of(torch.empty(len(self.tape.start), dtype=torch.uint8, device="meta"))
        return self.states[name]

    def born_as(self, name: str, result: Any, given: Sequence[Place], call: Call) -> None:
        """Enter what a call gave: new storages, or views of the ones it was given."""
        if type(result) is Place:
            self.places[name] = result
            self.enter(name, result, given, lambda: View(*self.way(call, result, given)))
        elif isinstance(result, (tuple, list)):
            for index, item in enumerate(result):
                if type(item) is Place:
                    each = self.item(name, index, item)
                    self.enter(each, item, given, functools.partial(self.part, call, index, item, given))
                elif isinstance(item, (tuple, list)) and any(type(leaf) is Place for leaf in item):
                    inner = self.item(name, index, item)
                    self.born_as(inner, item, given, call)

    def item(self, name: str, index: int, item: Any) -> str:
        """An item of a step's tuple."""
        local = self.names.free(f"{name}_{index}")
        self.put(Step(local, "operator.getitem", (Ref(name), index), (), spec_of(item)))
        if type(item) is Place:
            self.places[local] = item
        return local

    def enter(self, name: str, place: Place, given: Sequence[Place], view: Callable[[], View]) -> None:
        """A value has a Place."""
        if place.layout is not torch.strided:
            self.enter_sparse(name, place, given)
            return
        memory = self.memory.get(place.memory)
        if memory is None:
            tick = self.tick(place.memory)
            self.memory[place.memory] = Memory(place, tick, {place: (name, tick)}, {}, [place])
            return
        known = any(each.memory == place.memory for each in given)
        if place != memory.base and place not in memory.made:
            if known:
                memory.made[place] = view()
            else:
                memory.roots.append(place)
        if memory.names.get(place, ("", -1))[1] != memory.tick:
            memory.names[place] = (name, memory.tick)

    def enter_sparse(self, name: str, place: Place, given: Sequence[Place]) -> None:
        """A sparse value has a Place."""
        found = self.sparse.get(place)
        if found is None or found.ticks != self.ticks(place):
            self.places[name] = place
            self.sparse[place] = Sparse(name, self.ticks(place), *self.built(place, given))

    def built(self, place: Place, given: Sequence[Place]) -> tuple[bool, bool]:
        """Whether where a sparse result has its values hangs on values, and whether how many it has does."""
        func = None if self.call is None else self.call.func
        known = [self.sparse[each] for each in given if each in self.sparse]
        known = known[-1:] if func is aten.sparse_mask.default else known
        if not known:
            return any(part.memory not in self.still for part in place.parts[:-1]), func in FROM_DENSE
        loose = any(each.loose for each in known)
        merged = len(known) > 1 or func is aten._coalesce.default
        return loose, any(each.sized for each in known) or (merged and loose)

    def way(self, call: Call, place: Place, given: Sequence[Place]) -> tuple[Place, Any, tuple[Any, ...]]:
        """How a view came from the tensor it is of: the first argument, as a rule."""
        parent = next(each for each in given if each.memory == place.memory)
        if call.func is not aten.as_strided.default and call.args and call.args[0] == parent and not call.kwargs:
            return parent, call.func, tuple(call.args[1:])
        return parent, None, ()

    def part(self, call: Call, index: int, place: Place, given: Sequence[Place]) -> View:
        """One of several views: as a slice or a selection."""
        parent = next(each for each in given if each.memory == place.memory)
        dim = next((value for value in (call.kwargs.get("dim"), *call.args[1:][-1:]) if isinstance(value, int)), 0)
        if call.func is aten.unbind.int:
            dim = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)
            return View(parent, aten.select.int, (dim, index))
        if call.func in (aten.split.Tensor, aten.split_with_sizes.default):
            dim = call.args[2] if len(call.args) > 2 else call.kwargs.get("dim", 0)
            sizes = [each.shape[dim] for each in call.result]
            start = sum(sizes[:index])
            return View(parent, aten.slice.Tensor, (dim, start, start + sizes[index]))
        return View(parent, None, ())

    # -------------------------------------------------------------- updates

    def turn(self, call: Call) -> None:
        """A tensor that is from now on seen another way: `t_`, `squeeze_`, `set_`, `resize_`, `detach_`."""
        before, after = call.args[0], call.result
        if after == before:
            return
        if after.layout is not torch.strided:
            self.update_sparse(call, before, functional_of(call.func) or outer(call.func))
            return
        if call.func._schema.name in ("aten::set_", "aten::resize_") or after.memory != before.memory:
            self.resized(call, before, after)
            return
        plain_func = functional_of(call.func) or outer(call.func)
        if plain_func is None:
            raise CaptureError(f"{call.func} turns a tensor in place and has no plain form")
        memory = self.memory[after.memory]
        name = self.emit(plain_func, (self.read(before), *call.args[1:]), tuple(call.kwargs.items()), place=after)
        if after != memory.base and after not in memory.made:
            memory.made[after] = View(before, plain_func, tuple(call.args[1:]))
        memory.names[after] = (name, memory.tick)

    def resized(self, call: Call, before: Place, after: Place) -> None:
        """A tensor with another size, or with another's memory."""
        memory = self.memory.get(after.memory)
        if memory is not None and after in memory.names:
            return
        known = () if memory is None else (memory.base, *(each for each in [before] if each.memory == after.memory))
        if spanned(after) > max(map(spanned, known), default=-1):
            options = (("dtype", after.dtype), ("device", after.device))
            name = self.emit(aten.empty_strided.default, (list(after.shape), list(after.stride or ())), options, after)
            tick = 0 if memory is None else memory.tick + 1
            self.memory[after.memory] = Memory(after, tick, {after: (name, tick)}, {}, [after])

    def update(self, call: Call) -> None:
        """A call that changes some of its arguments."""
        changed = [place for place in self.changed(call) if type(place) is Place]
        if any(place.layout is not torch.strided for place in changed):
            if len(changed) != 1 or type(call.result) is not Place:
                raise CaptureError(f"{call.func} changes several tensors, sparse ones among them: pass copies")
            self.update_sparse(call, changed[0], functional_of(call.func))
            return
        written = self.given_out(call) or changed
        if not self.keep_updates and len({place.memory for place in written}) < len(written):
            for each in one_by_one(call):
                self.update(each)
            return
        if self.keep_updates:
            self.kept(call, written)
            return
        if any(map(overlaps, written)):
            self.overlapped(call, written)
            return
        for place in written:
            self.prepare(place)
        func = functional_of(call.func) if not self.is_silent(call) else silent_functional(call)
        begun, stream = len(self.steps), self.stream
        try:
            self.rewritten(call, func, written)
        except NoPlainForm:
            for tried in self.steps[begun:]:
                self.notes.pop(tried.name, None)
            self.stream = stream
            self.copied(call, written)

    def update_sparse(self, call: Call, before: Place, func: Any) -> None:
        """A call that changes a sparse tensor: its values in place, or it has other parts from now on.

        The plain form of an update of a COO tensor may give it coalesced where the update does not: it runs on a copy.
        """
        place, old = call.result, self.read(before)
        given = [each for each in flat(call.args, call.kwargs) if type(each) is Place]
        built = self.built(place, given)
        if self.keep_updates:
            self.kept(call, [before])
            self.sparse[place] = Sparse(old.name, self.ticks(place), *built)
            self.places[old.name] = place
            return
        turned = torch.Tag.inplace_view in call.func.tags
        exact = turned or call.func is aten._coalesced_.default or place.layout is not torch.sparse_coo
        if func is not None and exact and all(each.dtype == before.dtype for each in given):
            names = {each.name for each in func._schema.arguments}
            kwargs = {key: value for key, value in self.packed_kwargs(call).items() if key in names}
            name = self.step(call, func, self.packed(call.args), kwargs)
            self.amend(spec=spec_of(place))
        else:
            name = self.emit(aten.clone.default, (old,), place=before)
            self.step(call, call.func, *self.with_copies(call, {before: name}))
            self.mark(self.steps[-1].name, writes=(name,))
        self.places[name] = place
        if call.func is not aten._coalesced_.default:
            for index, (part, was) in enumerate(zip(place.parts, before.parts, strict=True)):
                if part.memory == was.memory and (turned or index == len(place.parts) - 1):
                    self.assign_part(part, PARTS[place.layout][index], name)
        self.sparse[place] = Sparse(name, self.ticks(place), *built)

    def assign_part(self, part: Place, func: Any, name: str) -> None:
        """A part of a sparse tensor has a new value: so has all that shares its storage."""
        if part.memory not in self.memory:
            self.closed[part.memory] = self.tick(part.memory) + 1
            return
        self.prepare(part)
        self.assign(part, self.emit(func, (Ref(name),), place=part))

    def given_out(self, call: Call) -> list[Place]:
        """The results of an `out=` call, which may have given its tensors another size."""
        if not any(each.is_out for each in call.func._schema.arguments):
            return []
        results = flat_places(call.result)
        for place in results:
            memory = self.memory[place.memory]
            if place != memory.base and place not in memory.made and place not in memory.names:
                options = (("dtype", place.dtype), ("device", place.device))
                args = (list(place.shape), list(place.stride or ()))
                name = self.emit(aten.empty_strided.default, args, options, place)
                self.memory[place.memory] = Memory(place, 0, {place: (name, 0)}, {}, [place])
        return results

    def changed(self, call: Call) -> Iterator[Any]:
        """The tensors that a call writes to."""
        schema = call.func._schema
        silent = ("running_mean", "running_var") if self.is_silent(call) else ()
        for index, each in enumerate(schema.arguments):
            if each.name in silent or (each.alias_info is not None and each.alias_info.is_write):
                value = call.kwargs.get(each.name, call.args[index] if index < len(call.args) else None)
                yield from value if isinstance(value, (list, tuple)) and type(value) is not Place else [value]

    def rewritten(self, call: Call, func: Any, written: Sequence[Place]) -> None:
        """An update as the operator that gives the new value instead."""
        if func is None:
            raise NoPlainForm(f"{call.func} has no form that gives the new value")
        if call.func is aten.copy_.default and self.replaced(call):
            return
        names = {each.name for each in func._schema.arguments}
        args = self.packed(call.args)
        kwargs = {key: value for key, value in self.packed_kwargs(call).items() if key in names}
        found = gapless(self.foreseen(func, args, kwargs))
        given = flat_places(found)[-len(written) :]
        if call.state is not None and any(lie(one) != lie(place) for one, place in zip(given, written, strict=False)):
            raise NoPlainForm(f"{func} would draw in another order of memory")
        name = self.step(call, func, args, kwargs)
        lain = self.places.get(args[0].name) if func is aten.copy.default else None  # a copy lies as what it is over
        self.amend(spec=spec_of(found if lain is None else lain))
        fresh = [place for place in flat_places(call.result) if place not in written]
        values = self.spread(name, found)
        taken = [place for place in flat(call.args, call.kwargs) if type(place) is Place]
        for place, (value, _) in zip(fresh, values, strict=False):
            if value:
                self.places[value] = place
                self.enter(value, place, taken, functools.partial(View, taken[0], None, ()))
        updates = [pair for pair in values[len(fresh) :] if pair[0]]
        if len(updates) != len(written):
            raise NoPlainForm(f"{func} gives {len(updates)} tensors for the {len(written)} that {call.func} changes")
        for place, (value, lies) in zip(written, updates, strict=True):
            self.places[value] = lies
            old = self.read(place)
            self.assign(place, self.fitted(value, place, old))

    def spread(self, name: str, found: Any) -> list[tuple[str, Any]]:
        """A name for each tensor among what a step gives, lists opened; what is no tensor stands as ''."""
        if type(found) is Place:
            return [(name, found)]
        made: list[tuple[str, Any]] = []
        for index, item in enumerate(found):
            if type(item) is Place:
                made.append((self.item(name, index, item), item))
            elif isinstance(item, tuple):
                inner = self.item(name, index, item)
                made += [(self.item(inner, i, each), each) for i, each in enumerate(item)]
            else:
                made.append(("", None))
        return made

    def replaced(self, call: Call) -> bool:
        """A copy over all of a tensor that lies as its source does: a clone."""
        place, source = call.args[:2]
        if type(source) is not Place or place.shape != source.shape or place.dtype != source.dtype:
            return False
        if place.device != source.device or place.lazy != source.lazy or place.layout is not torch.strided:
            return False
        value = self.read(source)
        if place_of(meta(source).clone()).stride != place.stride:
            return False
        self.assign(place, self.emit(aten.clone.default, (value,), place=place._replace(offset=0)))
        return True

    def copied(self, call: Call, written: Sequence[Place]) -> None:
        """An update that only exists in place: on a copy, which then takes the tensor's part."""
        copies: dict[Place, str] = {}
        for place in written:
            old = self.read(place)
            if place not in copies:
                name = self.emit(aten.clone.default, (old,))
                copies[place] = self.fitted(name, place, old) if dense(place) else name
        name = self.step(call, call.func, *self.with_copies(call, copies))
        self.mark(self.steps[-1].name, writes=tuple(copies.values()))
        fresh = [place for place in flat(call.result) if type(place) is Place and place not in copies]
        if fresh:
            given = [place for place in flat(call.args, call.kwargs) if type(place) is Place]
            self.born_as(name, call.result, [place for place in given if place not in copies], call)
        for place, copy in copies.items():
            self.assign(place, copy)

    def with_copies(self, call: Call, copies: Mapping[Place, str]) -> tuple[Any, dict[str, Any]]:
        """A call's arguments with copies in the place of what it changes."""

        def pack(value: Any) -> Any:
            if type(value) is Place:
                return Ref(copies[value]) if value in copies else self.read(value)
            if type(value) in (tuple, list):
                return type(value)([pack(item) for item in value])
            return value

        return pack(call.args), {key: pack(value) for key, value in call.kwargs.items()}

    def on_copies(self, call: Call, copies: Mapping[Place, str]) -> str:
        """The call as it ran, with copies for some of its arguments."""
        return self.step(call, call.func, *self.with_copies(call, copies))

    def overlapped(self, call: Call, written: Sequence[Place]) -> None:
        """An update of a tensor that meets itself in memory: in place, on a view of a copy of all that memory."""
        wholes, views = {}, {}
        for place in written:
            whole = self.flatten(self.memory[place.memory], place)
            wholes[whole] = self.emit(aten.clone.default, (self.read(whole),), place=whole)
            geometry = (place.shape, place.stride, place.offset)
            views[place] = self.emit(aten.as_strided.default, (Ref(wholes[whole]), *geometry), place=place)
        self.on_copies(call, views)
        self.mark(self.steps[-1].name, writes=(*wholes.values(), *views.values()))
        for whole, copy in wholes.items():
            self.assign(whole, copy)

    def kept(self, call: Call, written: Sequence[Place]) -> None:
        """An update as it ran."""
        names = tuple(self.read(place).name for place in written)
        name = self.step(call, call.func, self.packed(call.args), self.packed_kwargs(call))
        self.mark(name, writes=names, stays=True)
        if any(type(leaf) is Place and leaf not in written for leaf in flat(call.result)):
            self.born_as(name, call.result, [p for p in flat(call.args, call.kwargs) if type(p) is Place], call)

    def copy_what_changes(self) -> None:
        """Copies of the ports that updates in place would change."""
        for call in self.tape.calls:
            if not (call.func._schema.is_mutable or self.is_silent(call)):
                continue
            for place in self.changed(call):
                self.copy_sparse(place)
                memory = self.memory.get(place.memory) if type(place) is Place else None
                if memory is None or memory.tick:
                    continue
                if len(memory.roots) > 1:
                    raise CaptureError(
                        "inputs share memory and one is changed in place: pass copies, or leave functional=True"
                    )
                name = self.emit(aten.clone.default, (Ref(memory.names[memory.base][0]),), place=memory.base)
                memory.tick, memory.names[memory.base] = 1, (name, 1)

    def copy_sparse(self, written: Any) -> None:
        """Copies of the sparse ports that an update in place would change, themselves or through their parts."""
        for place, sparse in list(self.sparse.items()):
            memories = {place.memory, *(part.memory for part in place.parts)}
            if type(written) is Place and written.memory in memories and sparse.name in self.locals.values():
                name = self.emit(aten.clone.default, (Ref(sparse.name),), place=place)
                self.sparse[place] = Sparse(name, sparse.ticks)

    # -------------------------------------------------------------- guards and echoes

    def guard(self, name: str, result: Any) -> None:
        """What the program read of this value is taken for granted."""
        if type(result) is Place or isinstance(result, (tuple, list)):
            items = [result] if type(result) is Place else [item for item in result if type(item) is Place]
            for item in items:
                value = self.read(item)
                self.put_guard("assert_shape", value, tuple(item.shape))
        elif isinstance(result, float) and math.isnan(result):
            self.put_guard("assert_nan", Ref(name))
        elif isinstance(result, (bool, int, float, complex)):
            self.put_guard("assert_equal", Ref(name), result)

    def echo(self, call: Call) -> Echo | None:
        """What a call of the backward answers to in the forward."""
        if (first := self.first(call)) is not None:
            return Echo("recomputes", (first[0],))
        if call.node is None or call.node not in self.heads:
            return None
        name = self.heads[call.node][0]
        if call.func in (aten.add.Tensor, aten.add_.Tensor):
            summed = self.summed(call)
            if summed:
                return Echo("sum of gradients of", (summed,))
        return Echo("gradient of", (name,))

    def summed(self, call: Call) -> str:
        """The forward value that two nodes' gradients are added up for; empty where this is no such sum."""
        sides = []
        for place in call.args[:2]:
            if type(place) is not Place:
                return ""
            node = self.born.get(self.known(place))
            if node is None or node not in self.heads:
                return ""
            sides.append((node, {each for each in flat(self.heads[node][1].args) if type(each) is Place}))
        if sides[0][0] == sides[1][0] and sides[0][0] != call.node:
            return ""
        common = [place for place in sides[0][1] & sides[1][1] if place.shape == call.args[0].shape]
        if not common and call.source is None:  # a gradient handed on as it is was born further up
            own = [places for node, places in sides if node == call.node]
            common = [place for places in own for place in places if place.shape == call.args[0].shape]
            common = common if len(common) == 1 else []
        return next((name for name in sorted(map(self.known, common)) if name), "")

    def known(self, place: Place) -> str:
        """A tensor's latest name, or ''."""
        if place in self.sparse:
            return self.sparse[place].name
        memory = self.memory.get(place.memory)
        return memory.names.get(place, ("", 0))[0] if memory else ""


class NoPlainForm(CaptureError):
    """An update has no operator that gives the new value instead, so it runs in place, on a copy."""


# ------------------------------------------------------------------ tables


_ROWS = (aten.crow_indices.default, aten.col_indices.default, aten.values.default)
_COLUMNS = (aten.ccol_indices.default, aten.row_indices.default, aten.values.default)

PARTS: dict[torch.layout, tuple[Any, ...]] = {
    torch.sparse_coo: (aten._indices.default, aten._values.default),
    torch.sparse_csr: _ROWS,
    torch.sparse_bsr: _ROWS,
    torch.sparse_csc: _COLUMNS,
    torch.sparse_bsc: _COLUMNS,
}
"""What takes out each part of a sparse tensor, in the order in which it is joined from them."""

OPENED = frozenset({func for row in PARTS.values() for func in row} | {aten.indices.default})
"""Operators whose result's size is how many values a sparse tensor has."""

ASKED = {aten._sparse_mm_reduce_impl.default: 1}
"""Operators that leave memory unwritten where no argument asks for a gradient, and the argument that then does."""

FROM_DENSE = (
    aten._to_sparse.default,
    aten._to_sparse.sparse_dim,
    aten._to_sparse_csr.default,
    aten._to_sparse_csc.default,
    aten._to_sparse_bsr.default,
    aten._to_sparse_bsc.default,
)
"""Operators that look where a dense tensor is not zero."""


def places_alone(call: Call) -> bool:
    """Whether a call indexes by whole numbers alone: how many it takes is in their shapes, as it is not of a mask."""
    if call.func is not aten.index.Tensor:
        return False
    return not any(each.dtype in (torch.bool, torch.uint8) for each in flat(call.args[1:], {}) if type(each) is Place)


def still(tape: Tape) -> frozenset[int]:
    """The storages whose content a recipe keeps: indices of sparse ports, and constants."""
    roots = [root for each in tape.roots.values() for root in each]
    found = {part.memory for root in roots for part in root.place.parts[:-1]}
    return frozenset(found | {root.place.memory for root in roots if root.key in tape.constants})


SCATTER: dict[Any, Any] = {
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
    aten.as_strided.default: aten.as_strided_scatter.default,
}
"""Views of a part, and what puts a new value in that part's place."""


def _as_parent(view: View, value: Ref) -> tuple[Any, tuple[Any, ...]]:
    return aten.view.default, (value, list(view.parent.shape))


INVERSE: dict[Any, Callable[[View, Ref], tuple[Any, tuple[Any, ...]]]] = {
    aten.transpose.int: lambda view, value: (aten.transpose.int, (value, *view.args)),
    aten.t.default: lambda view, value: (aten.t.default, (value,)),
    aten.permute.default: lambda view, value: (aten.permute.default, (value, unpermuted(view.args[0]))),
    aten.unsqueeze.default: lambda view, value: (aten.squeeze.dim, (value, *view.args)),
    aten.squeeze.default: _as_parent,
    aten.squeeze.dim: _as_parent,
    aten.squeeze.dims: _as_parent,
    aten.view.default: _as_parent,
    aten._reshape_alias.default: _as_parent,
    aten.view.dtype: lambda view, value: (aten.view.dtype, (value, view.parent.dtype)),
    aten.view_as_real.default: lambda view, value: (aten.view_as_complex.default, (value,)),
    aten.view_as_complex.default: lambda view, value: (aten.view_as_real.default, (value,)),
    aten._conj.default: lambda view, value: (aten._conj_physical.default, (value,)),
    aten._neg_view.default: lambda view, value: (aten.neg.default, (value,)),
}
"""Views of the whole, and how the whole comes back from a new value of the view."""


LAZY: dict[tuple[bool, bool], Any] = {(True, False): aten._conj.default, (False, True): aten._neg_view.default}
"""Views that are conjugated or negated when they are read."""


REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The kind of the two parts of a complex number."""


def unpermuted(dims: Sequence[int]) -> list[int]:
    """The permutation that undoes another."""
    order = [dim % len(dims) for dim in dims]
    return [order.index(index) for index in range(len(order))]


def one_by_one(call: Call) -> Iterator[Call]:
    """A call on lists of tensors, some of which share memory, as one call for each: so it is what the others see."""
    count = len(call.args[0]) if call.args and type(call.args[0]) is list else 0
    if count < 2 or not call.func._schema.name.startswith("aten::_foreach_"):
        raise CaptureError(f"{call.func} changes several tensors that share memory: keep that part outside")
    for index in range(count):
        each = [[item[index]] if type(item) is list and len(item) == count else item for item in call.args]
        named = {
            key: [item[index]] if type(item) is list and len(item) == count else item
            for key, item in call.kwargs.items()
        }
        yield call._replace(args=tuple(each), kwargs=named)


RENAMED: dict[Any, Any] = {aten.bernoulli_.float: aten.bernoulli.p}
"""Updates in place whose plain form has another name."""


@functools.cache
def functional_of(func: Any) -> Any:
    """The operator that gives what another writes in place; None where there is none."""
    if func in RENAMED:
        return RENAMED[func]
    schema = func._schema
    space, name = schema.name.split("::")
    wanted = [(each.name, str(each.type)) for each in schema.arguments if not each.is_out]
    stems = [name.removesuffix("_"), name, f"{name}_functional", f"{name.removesuffix('_')}_functional"]
    for candidate in dict.fromkeys(stems):
        packet = getattr(getattr(torch.ops, space), candidate, None)
        for kind in packet.overloads() if packet is not None else ():
            found = getattr(packet, kind)
            given = [(each.name, str(each.type)) for each in found._schema.arguments]
            if given == wanted and not found._schema.is_mutable and target_known(found):
                return found
    return None


def target_known(func: Any) -> bool:
    """Whether a graph may call this operator."""
    from backprint.graph.table import operators

    return str(func) in operators()


def without_generator(func: Any) -> Any:
    """The draw that takes no generator, where another operator does that."""
    kind = func._overloadname.replace("generator_with_", "").replace("_generator", "").replace("generator", "")
    return func if "generator" not in func._overloadname else getattr(func.overloadpacket, kind or "default")


def outer(func: Any) -> Any:
    """The plain form of an operator that turns a tensor in place: `t_` as `t`."""
    name = func._schema.name.split("::")[1].removesuffix("_")
    return getattr(getattr(aten, name, None), func._overloadname or "default", None)


def silent_functional(call: Call) -> Any:
    """The operator that gives the running statistics that another changes without saying so."""
    if call.func is aten.native_batch_norm.default and all(type(place) is Place for place in call.args[3:5]):
        return aten._native_batch_norm_legit_functional.default
    return None


# ------------------------------------------------------------------ where things lie


def meta(place: Place) -> Tensor:
    """A tensor without memory that lies as the Place says."""
    if place.layout is not torch.strided:
        raise NoPlainForm(f"a {str(place.layout)[6:]} tensor has no place to foresee")
    made = torch.empty_strided(place.shape, place.stride or (), dtype=place.dtype, device="meta")
    made = made.conj() if place.lazy[0] else made
    return torch._neg_view(made) if place.lazy[1] else made


def place_of(tensor: Tensor) -> Place:
    """Where a tensor of no recorded storage lies."""
    if tensor.layout is not torch.strided:
        raise NoPlainForm(f"a {str(tensor.layout)[6:]} tensor has no place to foresee")
    return Place(
        -1,
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        torch.device("cpu") if tensor.device.type == "meta" else tensor.device,
        tensor.layout,
        (tensor.is_conj(), tensor.is_neg()),
    )


def lie(value: Any) -> tuple[Any, ...]:
    """How a tensor lies, without which storage it lies in."""
    place = value if type(value) is Place else place_of(value if isinstance(value, Tensor) else value[0])
    return place.dtype, place.shape, place.stride, place.lazy


def place_tree(found: Any) -> Any:
    """`place_of` for tensors inside tuples."""
    if isinstance(found, Tensor):
        return place_of(found)
    if isinstance(found, (tuple, list)):
        return tuple([place_tree(item) for item in found])
    return found


def gapless(found: Any) -> Any:
    """New tensors as they lie: without gaps, also where an operator's meta kernel gives them another's."""
    if type(found) is Place:
        return found if dense(found) else place_of(meta(found).clone())
    return tuple([gapless(item) for item in found]) if isinstance(found, tuple) else found


def spanned(place: Place) -> int:
    """The bytes of a storage up to the last that a tensor touches."""
    return reach(place) * place.dtype.itemsize


def reach(place: Place) -> int:
    """One past the last element of a storage that a tensor touches."""
    if 0 in place.shape:
        return place.offset
    stride = place.stride or ()
    return place.offset + sum((size - 1) * step for size, step in zip(place.shape, stride, strict=True)) + 1


def dense(place: Place) -> bool:
    """Whether a tensor's elements fill their part of the storage, each once."""
    count = math.prod(place.shape)
    if count == 0 or place.stride is None:
        return True
    sizes = sorted((step, size) for size, step in zip(place.shape, place.stride, strict=True) if size != 1)
    expected = 1
    for step, size in sizes:
        if step != expected:
            return False
        expected *= size
    return True


def overlaps(place: Place) -> bool:
    """Whether two elements of a tensor lie in one spot."""
    if place.stride is None or 0 in place.shape:
        return False
    span = 0
    for step, size in sorted((step, size) for step, size in zip(place.stride, place.shape, strict=True) if size > 1):
        if step <= span:
            return True
        span += (size - 1) * step
    return False


def flat_places(result: Any) -> list[Place]:
    """The tensors among what a call gave."""
    if type(result) is Place:
        return [result]
    return [place for item in result for place in flat_places(item)] if isinstance(result, (tuple, list)) else []


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor of this shape."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@functools.lru_cache(maxsize=65536)
def spec_at(place: Place) -> TensorSpec:
    """The spec of a tensor that lies so."""
    dtype, device, layout = str(place.dtype)[6:], str(place.device), str(place.layout)[6:]
    if place.stride is None:
        return TensorSpec(dtype, place.shape, None, 0, device, layout)
    stride = None if place.stride == contiguous(place.shape) else place.stride
    return TensorSpec(dtype, place.shape, stride, place.offset, device)


def spec_of(result: Any) -> Spec:
    """The spec of what a call gave."""
    match result:
        case Place():
            return spec_at(result._replace(memory=-1))
        case bool() | int() | float() | complex() | str():
            return ScalarSpec(type(result).__name__)
        case list() | tuple():
            return tuple(map(spec_of, result))
    return None


def stem(func: Any) -> str:
    """What a step's value would like to be called."""
    return str(func._schema.name.split("::")[1]).strip("_")


__all__ = ["List", "Writer"]
