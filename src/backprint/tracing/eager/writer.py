"""Write one Step for one call of a tape, with the generator states that random draws start from.

A draw that continues the one before it is an ordinary step: a replay draws from its caller's generator alike. Any other
draw has its start state as an argument: saved by an earlier draw, or a port.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from backprint._torch.operators import schema_if_any, schema_of
from backprint.errors import CaptureError
from backprint.fx.convert import Names, pack, target_name
from backprint.graph.nouns import Ref, Spec, Step, TensorSpec
from backprint.graph.steps import SAVING
from backprint.tracing.assembly import Note
from backprint.tracing.eager.page import (
    BUILTINS,
    Echoes,
    Page,
    changed_arguments,
    changes_arguments,
    functional_of,
    has_out,
    one_by_one,
    plain_form,
    stem,
    turned_form,
    without_generator,
)
from backprint.tracing.eager.tape import (
    GeneratorState,
    NoPlainForm,
    Placement,
    Tape,
    TapedCall,
    dense,
    gapless,
    geometry,
    meta_tensor,
    overlaps,
    placement_of,
    placement_spec,
    placements,
)
from backprint.tracing.eager.values import OPENED, PARTS, CurrentValues, ViewOrigin
from backprint.tracing.watch import CHECKS, reads_values


class CallSteps:
    """Writes calls as Steps, and tracks the caller's stream of random numbers through them.

    `stream` is the state of each device's own generator after the steps so far, `states` the name of each state that a
    later draw needs, by the draw that saved it or by its bytes, and `fixed` those that are ports.
    """

    def __init__(self, page: Page, start: Mapping[str, bytes]) -> None:
        self.page, self.stream = page, dict(start)
        self.draws: dict[GeneratorState, tuple[str, Any, list[Step]]] = {}
        self.states: dict[str, str] = {}
        self.fixed: dict[str, Tensor] = {}

    def put_call(self, call: TapedCall, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Write the step of a call, with this operator on these values; return the name of its result."""
        page = self.page
        named = {key: value for key, value in kwargs.items() if not isinstance(value, torch.Generator)}
        page.last = name = page.names.free(stem(func), avoid=BUILTINS)
        packed = tuple([pack(v) for v in args if not isinstance(v, torch.Generator)])
        spec = placement_spec(call.result) if func is call.func else None
        values = tuple((key, pack(value)) for key, value in (named | dtype_taken(func, named, spec)).items())
        step = Step(name, target_name(func), packed, values, spec)
        if call.state is None:
            page.put(step)
            if func in CHECKS:
                page.mark(name, stays=True)
        elif not call.own and call.state.state == self.stream.get(call.state.device):
            if call.after is not None:
                self.stream[call.after.device] = call.after.state
            page.put(step)
            page.mark(name, draws=True)
            self.draws.setdefault(call.state, (name, func, page.steps))
        else:
            drawn = (self.state_before(call), pack(without_generator(func)), *packed)
            page.put(Step(name, "torch.ops.higher_order.run_with_rng_state", drawn, values, spec))
        return name

    def state_before(self, call: TapedCall) -> Ref:
        """Return the generator's state before a draw: saved by an earlier draw, or a port."""
        assert call.state is not None
        first = self.draws.get(call.state)
        if first is not None and not call.own:
            return Ref(self.state_kept_by(len(call.state.state), *first))
        key = call.state.state.hex()
        if key not in self.states:
            local = self.page.names.free(f"rng_{len(self.fixed)}")
            self.states[key] = local
            self.fixed[local] = torch.frombuffer(bytearray(call.state.state), dtype=torch.uint8).clone()
            self.page.places[local] = placement_of(self.fixed[local])
        return Ref(self.states[key])

    def state_kept_by(self, length: int, name: str, func: Any, steps: list[Step]) -> str:
        """Return the name under which a draw among these steps saves its start state, of `length` bytes."""
        if name not in self.states:
            at = next(index for index, each in enumerate(steps) if each.name == name)
            both, state = self.page.names.free("drawn"), self.page.names.free("rng_state")
            args = (pack(func), *steps[at].args)
            draw = replace(steps[at], name=both, target=SAVING, args=args, spec=None)
            spec = TensorSpec("uint8", (length,))
            item = replace(steps[at], target="operator.getitem", args=(Ref(both), 1), kwargs=())
            steps[at : at + 1] = [draw, Step(state, "operator.getitem", (Ref(both), 0), (), spec), item]
            self.page.notes[both] = self.page.notes.pop(name)
            self.states[name] = state
            self.page.places[state] = placement_of(torch.empty(length, dtype=torch.uint8, device="meta"))
        return self.states[name]


def dtype_taken(func: Any, kwargs: Mapping[str, Any], spec: Any) -> dict[str, torch.dtype]:
    """Return the dtype that a factory took from a default dtype which the program had set: a graph that runs alone has
    the usual one."""
    arguments = getattr(schema_if_any(func), "arguments", ())
    if not isinstance(spec, TensorSpec) or any("Tensor" in str(argument.type) for argument in arguments):
        return {}
    if kwargs.get("dtype") is not None or all(argument.name != "dtype" for argument in arguments):
        return {}
    made: torch.dtype = getattr(torch, spec.dtype.removeprefix("torch."))
    usual = torch.get_default_dtype()
    plain = made in (usual, usual.to_complex()) or not (made.is_floating_point or made.is_complex)
    return {} if plain else {"dtype": made}


# ----------------------------------------------------------------------------
# Write calls that change arguments as operators that return the new values instead.
# ----------------------------------------------------------------------------

aten = torch.ops.aten


class Updates:
    """Writes updates in place as new values of storages.

    With `as_ran` the operators stay in place, and inputs that they would change are copied first.
    """

    def __init__(self, page: Page, values: CurrentValues, calls: CallSteps, as_ran: bool) -> None:
        self.page, self.values, self.calls, self.as_ran = page, values, calls, as_ran
        self.storages = values.storages

    def copy_ports(self, tape: Tape, ports: Collection[str]) -> None:
        """Copy the ports that updates in place would change."""
        for call in tape.calls:
            for place in changed_arguments(call) if changes_arguments(call) else ():
                if type(place) is Placement:
                    self.values.copy_ports(place, ports)

    # -------------------------------------------------------------- tensors seen another way

    def write_turn(self, call: TapedCall) -> None:
        """Write a call that turns a tensor into another view: `t_`, `squeeze_`, `set_`, `resize_`, `detach_`."""
        before, after = call.args[0], call.result
        if after == before:
            return
        func = turned_form(call)
        if after.layout is not torch.strided:
            self.write_sparse_update(call, before, func)
        elif schema_of(call.func).name in ("aten::set_", "aten::resize_") or after.memory != before.memory:
            self.storages.resize(before, after)
        elif func is None:
            raise CaptureError(f"{call.func} changes a tensor's view in place and has no functional form")
        else:
            args, kwargs = tuple(call.args[1:]), tuple(call.kwargs.items())
            name = self.page.emit(func, (self.values.value_at(before), *args), kwargs, place=after)
            self.storages.enter_turned(name, after, ViewOrigin(before, func, args))

    # -------------------------------------------------------------- updates

    def write_update(self, call: TapedCall) -> None:
        """Write a call that changes some of its arguments."""
        changed = [place for place in changed_arguments(call) if type(place) is Placement]
        if any(place.layout is not torch.strided for place in changed):
            if len(changed) != 1 or type(call.result) is not Placement:
                raise CaptureError(f"{call.func} changes several tensors, sparse ones among them: pass copies")
            self.write_sparse_update(call, changed[0], functional_of(call.func))
            return
        written = self.given_out(call) if has_out(call) else []
        written = written or changed
        if self.as_ran:
            self.write_as_ran(call, written)
        elif len({place.memory for place in written}) < len(written):
            for each in one_by_one(call):
                self.write_update(each)
        elif any(map(overlaps, written)):
            self.write_on_whole_copies(call, written)
        else:
            self.write_plain_form(call, written)

    def given_out(self, call: TapedCall) -> list[Placement]:
        """Return the results of an `out=` call, which may have resized its tensors."""
        results = placements(call.result)
        for place in results:
            storage = self.storages.of(place)
            if place != storage.base and place not in storage.made and place not in storage.names:
                self.storages.begin_unwritten(place, 0)
        return results

    def write_as_ran(self, call: TapedCall, written: Sequence[Placement]) -> None:
        """Write an update in place."""
        names = tuple(self.values.value_at(place).name for place in written)
        name = self.calls.put_call(call, call.func, self.values.packed(call.args), self.values.packed_kwargs(call))
        self.page.mark(name, writes=names, stays=True)
        if any(leaf not in written for leaf in placements(call.result)):
            self.values.enter_results(call, name)

    def write_plain_form(self, call: TapedCall, written: Sequence[Placement]) -> None:
        """Write an update as the operator that returns the new value, or on copies if there is none."""
        for place in written:
            self.storages.prepare(place)
        begun, stream = len(self.page.steps), dict(self.calls.stream)
        try:
            if call.func is not aten.copy_.default or not self.write_clone(call):
                self.write_new_values(call, plain_form(call), written)
        except NoPlainForm:
            self.page.take_back(begun)
            self.calls.stream = stream
            self.write_on_copies(call, written)

    def write_clone(self, call: TapedCall) -> bool:
        """Write a copy over a whole tensor, from a source of equal geometry, as a clone; return whether that was
        possible."""
        place, source = call.args[:2]
        if type(source) is not Placement or place.shape != source.shape or place.dtype != source.dtype:
            return False
        if place.device != source.device or place.lazy != source.lazy or place.layout is not torch.strided:
            return False
        value = self.values.value_at(source)
        if placement_of(meta_tensor(source).clone()).stride != place.stride:
            return False
        name = self.page.emit(aten.clone.default, (value,), place=place._replace(offset=0))
        self.storages.assign(place, name)
        return True

    def write_new_values(self, call: TapedCall, func: Any, written: Sequence[Placement]) -> None:
        """Write an update as the operator that returns the new value."""
        if func is None:
            raise NoPlainForm(f"{call.func} has no form that returns the new value")
        names = {each.name for each in schema_of(func).arguments}
        args = self.values.packed(call.args)
        kwargs = {key: value for key, value in self.values.packed_kwargs(call).items() if key in names}
        found = gapless(self.page.foresight.results(func, args, kwargs))
        given = placements(found)[-len(written) :]
        alike = all(geometry(one) == geometry(place) for one, place in zip(given, written, strict=False))
        if call.state is not None and not alike:
            raise NoPlainForm(f"{func} would draw in another order of memory")
        name = self.calls.put_call(call, func, args, kwargs)
        over = self.page.places.get(args[0].name) if func is aten.copy.default else None
        self.page.amend(spec=placement_spec(found if over is None else over))  # a copy lies as its target
        fresh = [place for place in placements(call.result) if place not in written]
        values = self.page.put_items(name, found)
        taken = placements(call.args, call.kwargs)
        for place, (value, _) in zip(fresh, values, strict=False):
            if value:
                self.page.places[value] = place
                self.values.enter_value(value, place, taken, lambda: ViewOrigin(taken[0]))
        updates = [pair for pair in values[len(fresh) :] if pair[0]]
        if len(updates) != len(written):
            raise NoPlainForm(f"{func} returns {len(updates)} tensors for the {len(written)} that {call.func} changes")
        for place, (value, lies) in zip(written, updates, strict=True):
            self.page.places[value] = lies
            self.storages.assign(place, self.storages.fitted(value, place, self.values.value_at(place)))

    # -------------------------------------------------------------- updates that only exist in place

    def write_on_copies(self, call: TapedCall, written: Sequence[Placement]) -> None:
        """Write an update that exists only in place: on a copy, which then replaces the tensor."""
        copies: dict[Placement, str] = {}
        for place in written:
            old = self.values.value_at(place)
            if place not in copies:
                name = self.page.emit(aten.clone.default, (old,))
                copies[place] = self.storages.fitted(name, place, old) if dense(place) else name
        name = self.put_on_copies(call, copies)
        self.page.mark(self.page.steps[-1].name, writes=tuple(copies.values()))
        if any(place not in copies for place in placements(call.result)):
            self.values.enter_results(call, name, copies)
        for place, copy in copies.items():
            self.storages.assign(place, copy)

    def write_on_whole_copies(self, call: TapedCall, written: Sequence[Placement]) -> None:
        """Write an update of a tensor that overlaps itself: in place, on a view of a copy of its storage."""
        wholes, views = {}, {}
        for place in written:
            whole = self.storages.flatten(place)
            wholes[whole] = self.page.emit(aten.clone.default, (self.values.value_at(whole),), place=whole)
            shape = (place.shape, place.stride, place.offset)
            views[place] = self.page.emit(aten.as_strided.default, (Ref(wholes[whole]), *shape), place=place)
        self.put_on_copies(call, views)
        self.page.mark(self.page.steps[-1].name, writes=(*wholes.values(), *views.values()))
        for whole, copy in wholes.items():
            self.storages.assign(whole, copy)

    def put_on_copies(self, call: TapedCall, copies: Mapping[Placement, str]) -> str:
        """Write the call in place, with copies for some of its arguments."""
        args, kwargs = self.values.packed(call.args, copies), self.values.packed_kwargs(call, copies)
        return self.calls.put_call(call, call.func, args, kwargs)

    # -------------------------------------------------------------- updates of sparse tensors

    def write_sparse_update(self, call: TapedCall, before: Placement, func: Any) -> None:
        """Write a call that changes a sparse tensor: its values in place, or its parts.

        The functional form of an update of a COO tensor may return it coalesced where the update does not: it runs on a
        copy.
        """
        sparse, place, old = self.values.sparse, call.result, self.values.value_at(before)
        given = placements(call.args, call.kwargs)
        built = sparse.built(place, given)
        if self.as_ran:
            self.write_as_ran(call, [before])
            sparse.renew(old.name, place, built)
            return
        turned = torch.Tag.inplace_view in call.func.tags
        exact = turned or call.func is aten._coalesced_.default or place.layout is not torch.sparse_coo
        if func is not None and exact and all(each.dtype == before.dtype for each in given):
            names = {each.name for each in schema_of(func).arguments}
            kwargs = {key: value for key, value in self.values.packed_kwargs(call).items() if key in names}
            name = self.calls.put_call(call, func, self.values.packed(call.args), kwargs)
            self.page.amend(spec=placement_spec(place))
        else:
            name = self.page.emit(aten.clone.default, (old,), place=before)
            self.put_on_copies(call, {before: name})
            self.page.mark(self.page.steps[-1].name, writes=(name,))
        self.page.places[name] = place
        if call.func is not aten._coalesced_.default:
            for index, (part, was) in enumerate(zip(place.parts, before.parts, strict=True)):
                if part.memory == was.memory and (turned or index == len(place.parts) - 1):
                    sparse.assign_part(part, PARTS[place.layout][index], name)
        sparse.renew(name, place, built)


# ----------------------------------------------------------------------------
# Write a tape as straight-line code without updates in place: each becomes a new value.
#
# The way of one call: `Writer.take` passes it to `updates`, or writes it as it ran; `calls` makes its Step, `page`
#  writes that with the line and the echo of the call, and `values` enters the results, so that later calls can read
#  them.
# ----------------------------------------------------------------------------

ASKED = {aten._sparse_mm_reduce_impl.default: 1}
"""Operators that do not fill some results if no argument requires grad, with the argument to set."""


class Writer:
    """Writes the calls of a tape as Steps, one segment after another.

    `ports` has a name for the port of each key, and those in `taken` are ports whether a call uses them or not. With
    `as_ran` the operators stay in place, and inputs that they would change are copied first. `start` is the generator
    state that a replay's draws start from.
    """

    def __init__(
        self,
        tape: Tape,
        ports: Mapping[str, str],
        taken: Sequence[str],
        start: Mapping[str, bytes],
        as_ran: bool = False,
    ) -> None:
        self.as_ran = as_ran
        names = Names()
        keys = dict.fromkeys((*taken, *(root.key for roots in tape.roots.values() for root in roots)))
        self.locals = {key: names.free(ports[key]) for key in keys}
        self.echoes = Echoes(lambda place: self.values.latest(place))
        self.page = Page(names, self.echoes)
        self.values = CurrentValues(self.page, tape, as_ran)
        self.calls = CallSteps(self.page, start)
        self.updates = Updates(self.page, self.values, self.calls, as_ran)
        self.values.open_ports(tape, self.locals)

    # -------------------------------------------------------------- for the engine and the recorder

    def write_into(self, steps: list[Step], calls: Iterable[TapedCall] = ()) -> None:
        """Append the following steps to this list: first those of these calls."""
        self.page.steps = steps
        for call in calls:
            self.take(call)
        self.end_calls()

    def end_calls(self) -> None:
        """The following steps belong to no call."""
        self.page.turn_to(None)

    def begin_backward(self) -> None:
        """The following calls belong to the backward."""
        self.echoes.begin_backward()

    def copy_ports(self, tape: Tape) -> None:
        """Copy the ports that updates in place would change."""
        self.updates.copy_ports(tape, frozenset(self.locals.values()))

    def value_at(self, place: Placement) -> Ref:
        """Return the current value of a tensor."""
        return self.values.value_at(place)

    def add(self, call: TapedCall, left: str | None, place: Placement) -> str:
        """Add a tensor's current value to a value, as a part of this call; without a value, return the tensor's."""
        self.page.turn_to(call)
        term = self.value_at(place)
        return term.name if left is None else self.page.emit(aten.add.Tensor, (Ref(left), term))

    def begin_value(self, wanted: str, place: Placement) -> str:
        """Make a tensor an input from here on; return its name."""
        local = self.page.names.free(wanted)
        self.values.storages.begin(local, place)
        self.page.places[local] = place
        return local

    def forget_views(self, but: Collection[Placement]) -> None:
        """Make views again from what they are views of, except those in `but`, which have names of their own."""
        self.values.storages.forget_views(but)

    def spec(self, name: str) -> Spec:
        """Return the spec of a value."""
        return placement_spec(self.page.places[name])

    def specs(self) -> dict[str, Spec]:
        """Return the spec of every value."""
        return {name: placement_spec(place) for name, place in self.page.places.items()}

    def is_strided(self, name: str) -> bool:
        """Whether a value is a strided tensor."""
        return self.page.places[name].layout is torch.strided

    @property
    def notes(self) -> Mapping[str, Note]:
        """Facts about the steps that their text does not show."""
        return self.page.notes

    def constants(self, tape: Tape, titles: Mapping[str, str]) -> dict[str, tuple[str, Tensor]]:
        """Return the constants and generator states that are used, by local name, each with its port name."""
        known = ((self.locals.get(key), title, tape.constants[key]) for key, title in titles.items())
        found = {local: (title, tensor) for local, title, tensor in known if local is not None}
        return found | {local: (local, state) for local, state in self.calls.fixed.items()}

    # -------------------------------------------------------------- one call

    def take(self, call: TapedCall) -> None:
        """Write one call: one that makes a view in place, an update, or one that changes nothing."""
        self.page.turn_to(call)
        before = len(self.page.steps)
        if torch.Tag.inplace_view in call.func.tags:
            self.updates.write_turn(call)
        elif changes_arguments(call):
            self.updates.write_update(call)
        else:
            self.write_plain(call)
        if len(self.page.steps) > before:
            self.echoes.note(call, self.page.last or self.page.steps[-1].name)

    def write_plain(self, call: TapedCall) -> None:
        """Write a call that changes nothing."""
        given = placements(call.args, call.kwargs)
        if type(call.result) is Placement and call.result in given:
            return
        if call.func is aten.as_strided.default:
            self.see_anew(call.result)
        if call.func in ASKED:
            self.write_asked(call)
            return
        name = self.calls.put_call(call, call.func, self.values.packed(call.args), self.values.packed_kwargs(call))
        self.values.enter_results(call, name)
        if reads_values(call.func) and not places_alone(call):
            self.guard_result(name, call.result)
        elif any(place.layout is not torch.strided for place in given):
            self.guard_structure(call, name)

    def see_anew(self, place: Placement) -> None:
        """Handle `as_strided`, which uses the storage: after a write, the value has another storage."""
        storage = self.values.storages.of(place)
        if self.as_ran or not storage.tick:
            return
        if place != storage.base:
            self.values.storages.place_view(place)
        self.page.last = self.value_at(place).name

    def write_asked(self, call: TapedCall) -> None:
        """Write a call that computes what its backward needs only if an argument requires grad: set that."""
        page, args = self.page, list(self.values.packed(call.args))
        bare = page.emit(aten.detach.default, (args[ASKED[call.func]],), place=call.args[ASKED[call.func]])
        args[ASKED[call.func]] = Ref(page.emit(aten.requires_grad_.default, (Ref(bare),), place=page.places[bare]))
        name = self.calls.put_call(call, call.func, args, self.values.packed_kwargs(call))
        for index, place in enumerate(call.result):
            each = page.emit(aten.detach.default, (Ref(page.put_item(name, index, place)),), place=place)
            self.values.enter_value(each, place, (), functools.partial(ViewOrigin, place))

    # -------------------------------------------------------------- guards

    def guard_result(self, name: str, result: Any) -> None:
        """Guard the value that the program read."""
        if type(result) is Placement or isinstance(result, (tuple, list)):
            items = [result] if type(result) is Placement else [item for item in result if type(item) is Placement]
            for item in items:
                self.page.put_guard("assert_shape", self.value_at(item), tuple(item.shape))
        elif isinstance(result, float) and math.isnan(result):
            self.page.put_guard("assert_nan", Ref(name))
        elif isinstance(result, (bool, int, float, complex)):
            self.page.put_guard("assert_equal", Ref(name), result)

    def guard_structure(self, call: TapedCall, name: str) -> None:
        """Guard what the program read of a sparse tensor's structure: its number of values, whether it is coalesced."""
        if call.func is aten.is_coalesced.default:
            self.page.put_guard("assert_equal", Ref(name), call.result, structure=True)
        elif call.func is aten._nnz.default or call.func in OPENED:
            structure = not self.values.sparse.values[call.args[0]].sized
            if call.func is aten._nnz.default:
                self.page.put_guard("assert_equal", Ref(name), call.result, structure=structure)
            else:
                self.page.put_guard("assert_shape", self.value_at(call.result), call.result.shape, structure=structure)


def places_alone(call: TapedCall) -> bool:
    """Whether a call indexes by integers only: their shapes determine the result's size, unlike those of a mask."""
    if call.func is not aten.index.Tensor:
        return False
    return not any(each.dtype in (torch.bool, torch.uint8) for each in placements(call.args[1:]))
