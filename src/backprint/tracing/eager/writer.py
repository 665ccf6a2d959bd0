"""Write a tape as straight-line code without updates in place: each becomes a new value.

The way of one call: `Writer.take` passes it to `updates`, or writes it as it ran; `calls` makes its Step, `page` writes
that with the line and the echo of the call, and `values` enters the results, so that later calls can read them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from backprint.fx.convert import Names
from backprint.graph.nouns import Ref, Spec, Step
from backprint.tracing.assembly import Note
from backprint.tracing.eager.calls import CallSteps
from backprint.tracing.eager.echoes import Echoes
from backprint.tracing.eager.forms import changes_arguments
from backprint.tracing.eager.page import Page
from backprint.tracing.eager.placement import Placement, placement_spec, placements
from backprint.tracing.eager.sparse import OPENED
from backprint.tracing.eager.tape import Tape, TapedCall
from backprint.tracing.eager.updates import Updates
from backprint.tracing.eager.values import CurrentValues
from backprint.tracing.eager.views import ViewOrigin
from backprint.tracing.facts import reads_values

aten = torch.ops.aten

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
