"""Write a tape as straight-line code without updates in place: each update becomes a new value.

`Writer.write_call` passes a call to `Updates` if it changes arguments, and otherwise writes it as it ran. `CallSteps`
makes its Step, `Page` appends the Step with the line and the echo of the call, and `CurrentValues` enters the results,
so that later calls can read them.

A `place` is the StorageView of a tensor: its storage and its geometry; `placements` returns the StorageViews among
nested arguments. An echo says how a step of the backward relates to the forward. A note (`Page.set_note`) has facts
about a step that its text does not show, for example that it must stay.

A value of the graph has a name, and `Ref(name)` stands for it among arguments. `page.append_call` appends a Step and
returns the name of its value. `values.value_at(place)` returns the current value of a tensor, and
`values.refs_for_tensors` does that for nested arguments. A storage has a base, a value of which all of its tensors are
views; `storages.assign(place, name)` makes a value the new value of a tensor and so of all that share its storage. A
generator is a random generator, and its state the bytes from which it draws. A TapedCall is an operator call on the
tape, in which StorageViews stand for the tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backprint._torch.distributed import PASSING, is_collective
from backprint._torch.operators import is_wait, schema_if_any, schema_of
from backprint.errors import CaptureError
from backprint.graph.fx.convert import Names, pack, target_name
from backprint.graph.nouns import Ref, Spec, Step, TensorSpec
from backprint.graph.steps import SAVING
from backprint.trace import frames
from backprint.trace.assembly import Note
from backprint.trace.eager.page import (
    BUILTINS,
    Echoes,
    Page,
    changed_arguments,
    changes_arguments,
    functional_form,
    has_out,
    is_foreach,
    name_of_result,
    split_foreach_call,
    view_form,
    without_generator,
)
from backprint.trace.eager.tape import (
    GeneratorState,
    NoFunctionalForm,
    StorageView,
    Tape,
    TapedCall,
    are_apart,
    geometry,
    meta_tensor,
    placement_of,
    placement_spec,
    placements,
    without_gaps,
)
from backprint.trace.eager.values import SIZE_DEPENDS_ON_VALUES, CurrentValues, ViewOrigin
from backprint.trace.watch import CHECKS, reads_values
from backprint.values.geometry import is_dense, overlaps_itself

# ---- One Step for one call


class _Draw(NamedTuple):
    """A random draw that is an ordinary step: the step's name, its operator, and the list of steps that it is in."""

    name: str
    func: Any
    steps: list[Step]


class CallSteps:
    """Writes calls as Steps, and follows the state of random generators through them.

    A draw that continues the draw before it is an ordinary step: a replay draws from its caller's generator in the same
    order. Any other draw (after a seed was set, from a generator of the program's own, or again in a checkpoint's
    backward) has its start state as an argument: saved by an earlier draw, or a port.

    `start` and `stream` are the state of each device's default generator, before the first step and after the steps so
    far. `draws` has the ordinary draw that began with each state. `states` has the name of each state that a later draw
    needs, by the name of the draw that saved the state or by its bytes in hexadecimal. `port_states` has the states
    that are ports, by name.
    """

    def __init__(self, page: Page, start: Mapping[str, bytes]) -> None:
        self.page, self.stream = page, dict(start)
        self.draws: dict[GeneratorState, _Draw] = {}
        self.states: dict[str, str] = {}
        self.port_states: dict[str, Tensor] = {}

    def write_call_as(self, call: TapedCall, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Write a call as a step of `func` on these values; return the name of its result. `func` is the call's
        operator or its functional form, which returns the new values of the arguments that the operator changes.

        Generators are no arguments of a step: the state of a draw is either that of the caller's generator, or an
        argument of the step.
        """
        page = self.page
        kwargs_without_generator = {
            key: value for key, value in kwargs.items() if not isinstance(value, torch.Generator)
        }
        page.last = name = page.names.free(name_of_result(func), avoid=BUILTINS)
        packed_args = tuple([pack(v) for v in args if not isinstance(v, torch.Generator)])
        # A functional form returns something else than the call; its spec is set in `write_new_values`.
        spec = placement_spec(call.result) if func is call.func else None
        all_kwargs = kwargs_without_generator | _dtype_of_factory(func, kwargs_without_generator, spec)
        packed_kwargs = tuple((key, pack(value)) for key, value in all_kwargs.items())
        step = Step(name, target_name(func), packed_args, packed_kwargs, spec)
        # No draw.
        if call.state is None:
            page.append_step(step)
            if func in CHECKS or is_collective(func):  # they act although nothing may use their result
                page.set_note(name, stays=True)
        elif not call.own and call.state.state == self.stream.get(call.state.device):
            # A draw that continues the stream.
            if call.state_after is not None:
                self.stream[call.state_after.device] = call.state_after.state
            page.append_step(step)
            page.set_note(name, draws=True)
            self.draws.setdefault(call.state, _Draw(name, func, page.steps))
        else:
            # A draw from another state, which the step has as its first argument.
            args_with_state = (self.state_before(call), pack(without_generator(func)), *packed_args)
            page.append_step(
                Step(name, "torch.ops.higher_order.run_with_rng_state", args_with_state, packed_kwargs, spec)
            )
        return name

    def state_before(self, call: TapedCall) -> Ref:
        """Return the value of the generator's state before a draw: saved by an earlier draw that began with the same
        state, or a port. A draw from a generator of the program's own (`call.own`) always has a port."""
        assert call.state is not None
        earlier_draw = self.draws.get(call.state)
        if earlier_draw is not None and not call.own:
            return Ref(self.name_of_saved_state(earlier_draw, len(call.state.state)))
        key = call.state.state.hex()
        if key not in self.states:
            local = self.page.names.free(f"rng_{len(self.port_states)}")
            self.states[key] = local
            self.port_states[local] = torch.frombuffer(bytearray(call.state.state), dtype=torch.uint8).clone()
            self.page.places[local] = placement_of(self.port_states[local])
        return Ref(self.states[key])

    def name_of_saved_state(self, earlier_draw: _Draw, length: int) -> str:
        """Return the name under which an earlier draw saves its start state of `length` bytes; let it save the state,
        if it does not yet.

        Three steps then replace the draw: `run_and_save_rng_state` (SAVING), which returns the start state and the
        drawn value, and an item step for each. The drawn value keeps its name, so its uses stay.
        """
        name, func, steps = earlier_draw
        if name not in self.states:
            index_of_draw = next(index for index, step in enumerate(steps) if step.name == name)
            draw = steps[index_of_draw]
            pair, state = self.page.names.free("drawn"), self.page.names.free("rng_state")
            steps[index_of_draw : index_of_draw + 1] = [
                replace(draw, name=pair, target=SAVING, args=(pack(func), *draw.args), spec=None),
                Step(state, "operator.getitem", (Ref(pair), 0), (), TensorSpec("uint8", (length,))),
                replace(draw, target="operator.getitem", args=(Ref(pair), 1), kwargs=()),
            ]
            self.page.notes[pair] = self.page.notes.pop(name)
            self.states[name] = state
            self.page.places[state] = placement_of(torch.empty(length, dtype=torch.uint8, device="meta"))
        return self.states[name]


def _dtype_of_factory(func: Any, kwargs: Mapping[str, Any], spec: Any) -> dict[str, torch.dtype]:
    """Return `{"dtype": dtype}` for the call of a factory whose result has the program's own default dtype
    (`torch.set_default_dtype`), because a graph that runs alone has torch's usual one; else an empty dict.

    A factory has no tensor among its arguments. `spec` is the spec of the result. When steps are written, the program's
    own default dtype is no longer set: the run has ended.
    """
    arguments = getattr(schema_if_any(func), "arguments", ())
    if not isinstance(spec, TensorSpec) or any("Tensor" in str(argument.type) for argument in arguments):
        return {}
    if kwargs.get("dtype") is not None or all(argument.name != "dtype" for argument in arguments):
        return {}
    dtype: torch.dtype = getattr(torch, spec.dtype.removeprefix("torch."))
    default = torch.get_default_dtype()
    # The default dtype is that of floating-point results; complex ones have the one that belongs to it.
    depends_on_default = dtype.is_floating_point or dtype.is_complex
    return {"dtype": dtype} if depends_on_default and dtype not in (default, default.to_complex()) else {}


# ---- Calls that change arguments

aten = torch.ops.aten


class Updates:
    """Writes calls that change arguments: each update in place becomes a new value of a storage.

    With `in_place` the operators stay in place, and inputs that they would change are copied first.
    """

    def __init__(self, page: Page, values: CurrentValues, calls: CallSteps, in_place: bool) -> None:
        self.page, self.values, self.calls, self.in_place = page, values, calls, in_place
        self.storages = values.storages

    def copy_ports(self, tape: Tape) -> None:
        """Clone the ports that updates in place would change, so that the caller's tensors stay as they are."""
        for call in tape.calls:
            for place in changed_arguments(call) if changes_arguments(call) else ():
                if type(place) is StorageView:
                    self.values.copy_port(place)

    # ---- A tensor that becomes another view

    def write_view_in_place(self, call: TapedCall) -> None:
        """Write a call that turns a tensor into another view: `t_`, `squeeze_`, `set_`, `resize_`, `detach_`. Raise a
        CaptureError for a sparse tensor, or if the call has no form that returns the view."""
        before, after = call.args[0], call.result
        if after == before:
            return
        func = view_form(call)
        if after.layout is not torch.strided:
            raise self.values.sparse.refusal_of_update(call, after)
        if schema_of(call.func).name in ("aten::set_", "aten::resize_") or after.memory != before.memory:
            self.storages.resize(before, after)
        elif func is None:
            raise CaptureError(f"{call.func} changes a tensor's view in place and has no functional form")
        else:
            args, kwargs = tuple(call.args[1:]), tuple(call.kwargs.items())
            name = self.page.append_call(func, (self.values.value_at(before), *args), kwargs, place=after)
            self.storages.enter_view(name, after, ViewOrigin(before, func, args))

    # ---- Updates of strided tensors

    def write_update(self, call: TapedCall) -> None:
        """Write a call that changes some of its arguments: with `in_place` as it ran, else in one of these ways:

        - as a call for each tensor of a `_foreach_` operator, if two of them share memory: as one step, the second
          would not see the update of the first. Tensors of other operators may lie apart in one memory;
        - as the same operator, in place, on a copy of the whole storage, if a tensor overlaps itself (`expand`): no
          functional result has two elements in one place of memory;
        - else as its functional form (`add` for `add_`), whose result becomes the new value of the tensor and,
          scattered, of all tensors that share its memory; without such a form, in place on copies of the tensors.
        """
        changed = [place for place in changed_arguments(call) if type(place) is StorageView]
        for place in changed:
            if place.layout is not torch.strided:
                raise self.values.sparse.refusal_of_update(call, place)
        # An `out=` call may resize its arguments, so the values are at the StorageViews of its results.
        written = self.results_of_out_call(call) if has_out(call) else []
        written = written or changed
        some_share_memory = len({place.memory for place in written}) < len(written)
        if self.in_place:
            self.write_as_ran(call, written)
        elif some_share_memory and (is_foreach(call) or not are_apart(written)):
            for single_call in split_foreach_call(call):
                self.write_update(single_call)
        elif any(overlaps_itself(place.shape, place.stride) for place in written):
            self.write_on_whole_copies(call, written)
        else:
            self.write_functional(call, written)
        for place in changed:
            self.values.sparse.note_update(call, place)

    def results_of_out_call(self, call: TapedCall) -> list[StorageView]:
        """Return the StorageViews of the results of an `out=` call; start a storage for each that the call resized."""
        results, before = placements(call.result), set(changed_arguments(call))
        for place in results:
            if place in before:
                continue  # it was not resized, and other tensors in its memory keep their values
            storage = self.storages.of(place)
            if place != storage.base and place not in storage.origins and place not in storage.names:
                self.storages.begin_uninitialized(place, write_count=0)
        return results

    def write_as_ran(self, call: TapedCall, written: Sequence[StorageView]) -> None:
        """Write an update in place as it ran, with a note of the values that it changes: those of the tensors in
        `written`."""
        names = tuple(self.values.value_at(place).name for place in written)
        name = self.calls.write_call_as(
            call, call.func, self.values.refs_for_tensors(call.args), self.values.kwargs_with_refs(call)
        )
        self.page.set_note(name, writes=names, stays=True)
        if any(leaf not in written for leaf in placements(call.result)):
            self.values.enter_results(call, name)

    def write_functional(self, call: TapedCall, written: Sequence[StorageView]) -> None:
        """Write an update as the operator that returns the new values of the tensors in `written`, or in place on
        copies if there is no such operator.

        Whether the operator will do is known only when it is tried: a meta kernel may fail, or return another geometry.
        The steps that were written until then are dead code, which assembly removes unless a note keeps it. So their
        notes are dropped, and the state of the generators is set back.
        """
        for place in written:
            self.storages.prepare(place)
        steps_before, stream_before = len(self.page.steps), dict(self.calls.stream)
        try:
            if call.func is not aten.copy_.default or not self.write_clone(call):
                self.write_new_values(call, functional_form(call), written)
        except NoFunctionalForm:
            self.page.drop_notes_after(steps_before)
            self.calls.stream = stream_before
            self.write_on_copies(call, written)

    def write_clone(self, call: TapedCall) -> bool:
        """Write `x.copy_(y)` as `y.clone()`, if the clone has the geometry of x; return whether it has.

        `aten.copy` would do for every copy, but it takes the old value of x too, which would be kept alive for nothing.
        """
        place, source = call.args[:2]
        # A `copy_` that broadcasts or converts is no clone.
        if type(source) is not StorageView or place.shape != source.shape or place.dtype != source.dtype:
            return False
        if place.device != source.device or place.lazy != source.lazy or place.layout is not torch.strided:
            return False
        value = self.values.value_at(source)
        if placement_of(meta_tensor(source).clone()).stride != place.stride:
            return False
        name = self.page.append_call(aten.clone.default, (value,), place=place._replace(offset=0))  # in new memory
        self.storages.assign(place, name)
        return True

    def write_new_values(self, call: TapedCall, func: Any, written: Sequence[StorageView]) -> None:
        """Write an update as its functional form `func`, which returns first the results that the call has too, then
        the new values of the changed arguments.

        So `_native_batch_norm_legit_functional` returns the three results of a batch norm, then the two new running
        statistics. Raise NoFunctionalForm if there is no such form (`func` is None), or if it does not do for this
        call.
        """
        if func is None:
            raise NoFunctionalForm(f"{call.func} has no form that returns the new value")
        names = {argument.name for argument in schema_of(func).arguments}
        args = self.values.refs_for_tensors(call.args)
        # `out=` is no argument of the functional form.
        kwargs = {key: value for key, value in self.values.kwargs_with_refs(call).items() if key in names}
        results = without_gaps(self.page.geometry.results(func, args, kwargs))
        # If there are fewer results than changed arguments, this is refused below.
        new_values = placements(results)[-len(written) :]
        same_geometry = all(
            geometry(new_value) == geometry(place) for new_value, place in zip(new_values, written, strict=False)
        )
        if call.state is not None and not same_geometry:
            # Draws fill memory in order: `x.t().normal_()` puts its numbers in other places than a contiguous result.
            raise NoFunctionalForm(f"{func} would draw in another order of memory")
        name = self.calls.write_call_as(call, func, args, kwargs)
        # The result of `copy` has the strides of its first argument.
        copied_over = self.page.places.get(args[0].name) if func is aten.copy.default else None
        self.page.replace_last_step(spec=placement_spec(results if copied_over is None else copied_over))
        # First the results that the call has too, with the StorageViews that they had when it ran; then the new values.
        other_results = [place for place in placements(call.result) if place not in written]
        items = self.page.append_getitems(name, results)
        arguments = placements(call.args, call.kwargs)
        for place, item in zip(other_results, items, strict=False):
            if item.name:
                self.page.places[item.name] = place
                self.values.enter_value(item.name, place, arguments, lambda: ViewOrigin(arguments[0]))
        updates = [item for item in items[len(other_results) :] if item.name]
        if len(updates) != len(written):
            raise NoFunctionalForm(
                f"{func} returns {len(updates)} tensors for the {len(written)} that {call.func} changes"
            )
        for place, update in zip(written, updates, strict=True):
            self.page.places[update.name] = update.place
            old = self.values.value_at(place)
            self.storages.assign(place, self.storages.with_geometry_of(update.name, place, old))

    # ---- Updates without a functional form

    def write_on_copies(self, call: TapedCall, written: Sequence[StorageView]) -> None:
        """Write an update in place on clones of the tensors in `written`, which become their new values."""
        copies: dict[StorageView, str] = {}
        for place in written:
            old = self.values.value_at(place)
            if place not in copies:
                name = self.page.append_call(aten.clone.default, (old,))
                # The clone of a tensor with gaps has none, and needs none: `assign` scatters its elements.
                copies[place] = (
                    self.storages.with_geometry_of(name, place, old) if is_dense(place.shape, place.stride) else name
                )
        name = self.write_with_copies(call, copies)
        self.page.set_note(self.page.steps[-1].name, writes=tuple(copies.values()))  # the last step is the call's
        if any(place not in copies for place in placements(call.result)):
            self.values.enter_results(call, name, copies)
        for place, copy in copies.items():
            self.storages.assign(place, copy)

    def write_on_whole_copies(self, call: TapedCall, written: Sequence[StorageView]) -> None:
        """Write an update of a tensor that overlaps itself: in place, on a view of a clone of its storage's flat value,
        which is one-dimensional and has all elements of the storage."""
        # The clone of each flat value, and the view of such a clone in the place of each written tensor, by name.
        clones: dict[StorageView, str] = {}
        views: dict[StorageView, str] = {}
        for place in written:
            flat = self.storages.flatten(place)
            clones[flat] = self.page.append_call(aten.clone.default, (self.values.value_at(flat),), place=flat)
            args = (Ref(clones[flat]), place.shape, place.stride, place.offset)
            views[place] = self.page.append_call(aten.as_strided.default, args, place=place)
        self.write_with_copies(call, views)
        self.page.set_note(self.page.steps[-1].name, writes=(*clones.values(), *views.values()))
        for flat, clone in clones.items():
            self.storages.assign(flat, clone)

    def write_with_copies(self, call: TapedCall, copies: Mapping[StorageView, str]) -> str:
        """Write the call in place, with the copies in the place of the arguments that it changes; return the name of
        its result."""
        args, kwargs = self.values.refs_for_tensors(call.args, copies), self.values.kwargs_with_refs(call, copies)
        return self.calls.write_call_as(call, call.func, args, kwargs)


# ---- The writer of a tape

NEEDS_REQUIRES_GRAD = {aten._sparse_mm_reduce_impl.default: 1}
"""Operators that fill some results only if an argument requires grad, with the index of that argument."""


class Writer:
    """Writes the calls of a tape as Steps, one segment after another: the forward, then the backward.

    `ports` has the wanted name of each port by its key, the port's name on the tape. Keys in `always_ports` are ports
    whether a call uses them or not. With `in_place` the operators stay in place, and inputs that they would change are
    copied first. `start` has the state of each device's default generator before the first draw.

    `locals` has the name of each port's value by key. To tell later how long values lived, `ends` has for each call the
    name of the last step so far, `made` for each memory the name of the first value in it, and `written` the memories
    that an update in place changed. `under_way` are the memories of collectives' results that have not been waited for.
    """

    def __init__(
        self,
        tape: Tape,
        ports: Mapping[str, str],
        always_ports: Sequence[str],
        start: Mapping[str, bytes],
        in_place: bool = False,
    ) -> None:
        """`ports` has the wanted name of each port by its key on the tape; keys in `always_ports` are ports whether a
        call uses them or not. `start` has the state of each device's default generator before the first draw. With
        `in_place`, operators stay in place."""
        self.in_place = in_place
        names = Names()
        keys = dict.fromkeys((*always_ports, *(port.key for in_memory in tape.ports.values() for port in in_memory)))
        self.locals = {key: names.free(ports[key]) for key in keys}
        # A lambda, because `values` is made below, on a page that needs the echoes.
        self.echoes = Echoes(lambda place: self.values.latest_name(place))
        self.page = Page(names, self.echoes)
        self.values = CurrentValues(self.page, tape, in_place)
        self.calls = CallSteps(self.page, start)
        self.updates = Updates(self.page, self.values, self.calls, in_place)
        self.under_way: set[int] = set()
        self.made: dict[int, str] = {}
        self.written: set[int] = set()
        self.ends: list[str] = []
        self.values.open_ports(tape, self.locals)

    # ---- For the engine and for `tools/record`

    def write_into(self, steps: list[Step], calls: Iterable[TapedCall] = ()) -> None:
        """Append all steps from here on to the list `steps`, beginning with the steps of these calls. Steps that are
        written after them belong to no call."""
        self.page.steps = steps
        for call in calls:
            self.write_call(call)
            self.note_memory(call)
        self.end_calls()

    def end_calls(self) -> None:
        """Attribute the steps that follow to no call."""
        self.page.set_call(None)

    def begin_backward(self) -> None:
        """Count the calls that follow as the backward's."""
        self.echoes.begin_backward()

    def copy_ports(self, tape: Tape) -> None:
        """Clone the ports that updates in place would change."""
        self.updates.copy_ports(tape)

    def value_at(self, place: StorageView) -> Ref:
        """Return the current value of a tensor."""
        return self.values.value_at(place)

    def add(self, call: TapedCall, left: str | None, place: StorageView) -> str:
        """Write the sum of the value `left` and a tensor's current value as a step of this call, and return its name;
        without `left`, return the name of the tensor's value."""
        self.page.set_call(call)
        term = self.value_at(place)
        return term.name if left is None else self.page.append_call(aten.add.Tensor, (Ref(left), term))

    def begin_value(self, wanted: str, place: StorageView) -> str:
        """Make a tensor an input of the graph from here on, with a name like `wanted`; return that name."""
        local = self.page.names.free(wanted)
        self.values.storages.begin(local, place)
        self.page.places[local] = place
        return local

    def forget_views(self, kept: Collection[StorageView]) -> None:
        """Forget the names of views, so that the graph that is written next derives them itself. Views in `kept` keep
        their names."""
        self.values.storages.forget_views(kept)

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
        """Return the constants and generator states that are used, by local name, each with its port name. `titles` has
        the port name of each constant by its key on the tape."""
        by_local_name = ((self.locals.get(key), title, tape.constants[key]) for key, title in titles.items())
        constants = {local: (title, tensor) for local, title, tensor in by_local_name if local is not None}
        return constants | {local: (local, state) for local, state in self.calls.port_states.items()}

    # ---- One call

    def write_call(self, call: TapedCall) -> None:
        """Write one call: one that turns a tensor into another view, a wait for a collective, an update in place, or a
        call that changes nothing."""
        self.page.set_call(call)  # the steps that follow are this call's
        steps_before = len(self.page.steps)
        self.note_collective(call)
        if torch.Tag.inplace_view in call.func.tags:
            self.updates.write_view_in_place(call)
        elif is_wait(call.func):
            self.write_wait(call)
            return  # it makes no autograd node, so no step of the backward has it as an echo
        elif changes_arguments(call):
            self.updates.write_update(call)
        else:
            self.write_plain(call)
        if len(self.page.steps) > steps_before:
            # `last` is the name of the call's own result, if a step has it as it ran.
            self.echoes.note_call(call, self.page.last or self.page.steps[-1].name)

    def note_memory(self, call: TapedCall) -> None:
        """Note the last step so far, the first value in each memory, and the memories that the call writes to (`ends`,
        `made` and `written`)."""
        self.ends.append(self.page.steps[-1].name if self.page.steps else "")
        if changes_arguments(call):
            self.written |= {place.memory for place in placements(list(changed_arguments(call)))}
        for place in placements(call.result):
            self.made.setdefault(place.memory, self.values.latest_name(place))

    def note_collective(self, call: TapedCall) -> None:
        """Note the memory of a collective's result until the collective is waited for; refuse a call that reads it
        before."""
        if is_collective(call.func):
            self.under_way |= {place.memory for place in placements(call.result)}
        elif is_wait(call.func):
            self.under_way -= {place.memory for place in placements(call.args)}
        elif self.under_way and not _returns_views(call.func):
            read = {place.memory for place in placements(call.args, call.kwargs)}
            if read & self.under_way:
                raise CaptureError(
                    f"{call.func} reads the result of a collective before it has ended{frames.place(call.source)}: "
                    "what it reads depends on time; call torch.ops._c10d_functional.wait_tensor on the result first",
                    every_engine=True,
                )

    def write_wait(self, call: TapedCall) -> None:
        """Write the wait for a collective. It returns its argument, whose value is defined only from here on."""
        name = self.calls.write_call_as(call, call.func, self.values.refs_for_tensors(call.args), {})
        self.page.places[name] = call.result
        self.values.storages.assign(call.result, name)

    def write_plain(self, call: TapedCall) -> None:
        """Write a call that changes nothing, with a guard if it reads values."""
        arguments = placements(call.args, call.kwargs)
        if type(call.result) is StorageView and call.result in arguments:
            return  # it returned its argument, or an alias, which has the same value
        if call.func is aten.as_strided.default:
            self.restride_after_write(call.result)
        if call.func in NEEDS_REQUIRES_GRAD:
            self.write_requiring_grad(call)
            return
        name = self.calls.write_call_as(
            call, call.func, self.values.refs_for_tensors(call.args), self.values.kwargs_with_refs(call)
        )
        self.values.enter_results(call, name)
        if reads_values(call.func) and not _indexes_by_integers_only(call):
            self.guard_result(name, call.result)
        elif any(place.layout is not torch.strided for place in arguments):
            self.guard_structure(call, name)

    def restride_after_write(self, place: StorageView) -> None:
        """Enter the view that `as_strided` returns, if its storage was written to.

        `as_strided` sees the whole storage and not only its argument. In the graph, a value after a write has a storage
        of its own, so the view is derived from the flat value that has all elements of the program's storage.
        """
        storage = self.values.storages.of(place)
        if self.in_place or not storage.write_count:
            return
        if place != storage.base:
            self.values.storages.derive_view(place)
        # The value that echoes name for this call.
        self.page.last = self.value_at(place).name

    def write_requiring_grad(self, call: TapedCall) -> None:
        """Write a call whose kernel fills some results only if an argument requires grad (NEEDS_REQUIRES_GRAD), with
        `requires_grad_` on an alias of this argument, and `detach` on the results: graphs run without autograd."""
        page, args = self.page, list(self.values.refs_for_tensors(call.args))
        index = NEEDS_REQUIRES_GRAD[call.func]
        # On an alias: `requires_grad_` must not change the value that other steps read.
        alias = page.append_call(aten.detach.default, (args[index],), place=call.args[index])
        args[index] = Ref(page.append_call(aten.requires_grad_.default, (Ref(alias),), place=page.places[alias]))
        name = self.calls.write_call_as(call, call.func, args, self.values.kwargs_with_refs(call))
        for number, place in enumerate(call.result):
            item = page.append_getitem(name, number, place)
            detached = page.append_call(aten.detach.default, (Ref(item),), place=place)
            # Without arguments, no result counts as a view of one.
            self.values.enter_value(detached, place, arguments=(), view=functools.partial(ViewOrigin, place))

    # ---- Guards

    def guard_result(self, name: str, result: Any) -> None:
        """Guard the value that the program read, the result of the step `name`: of a tensor its shape, which depended
        on values; of a number the number itself."""
        if type(result) is StorageView or isinstance(result, (tuple, list)):
            items = [result] if type(result) is StorageView else [item for item in result if type(item) is StorageView]
            for item in items:
                self.page.append_guard("assert_shape", self.value_at(item), tuple(item.shape))
        # No NaN equals another, so it has a guard of its own.
        elif isinstance(result, float) and math.isnan(result):
            self.page.append_guard("assert_nan", Ref(name))
        elif isinstance(result, (bool, int, float, complex)):
            self.page.append_guard("assert_equal", Ref(name), result)

    def guard_structure(self, call: TapedCall, name: str) -> None:
        """Guard the structure of a sparse tensor that a call read, whose step is `name`: its number of values, or
        whether it is coalesced; nothing if it read something else.

        `structure=True` marks a guard on how a sparse tensor is built: inputs that are drawn again keep that.
        """
        if call.func is aten.is_coalesced.default:
            self.page.append_guard("assert_equal", Ref(name), call.result, structure=True)
        elif call.func is aten._nnz.default or call.func in SIZE_DEPENDS_ON_VALUES:
            structure = not self.values.sparse.values[call.args[0]].count_varies
            if call.func is aten._nnz.default:
                self.page.append_guard("assert_equal", Ref(name), call.result, structure=structure)
            else:
                self.page.append_guard(
                    "assert_shape", self.value_at(call.result), call.result.shape, structure=structure
                )


@functools.cache
def _returns_views(func: Any) -> bool:
    """Whether an operator returns views of its arguments, or the arguments themselves, and reads no element."""
    schema = schema_of(func)
    if str(func) in PASSING:  # of a collective's result
        return True
    return not schema.is_mutable and any(part.alias_info is not None for part in schema.returns)


def _indexes_by_integers_only(call: TapedCall) -> bool:
    """Whether a call indexes by integers only. Their shapes determine the result's size; the size of an index by a mask
    depends on the mask's values."""
    if call.func is not aten.index.Tensor:
        return False
    return not any(place.dtype in (torch.bool, torch.uint8) for place in placements(call.args[1:]))
