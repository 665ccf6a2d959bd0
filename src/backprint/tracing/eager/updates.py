"""Write calls that change arguments as operators that return the new values instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from backprint._torch.operators import schema_of
from backprint.errors import CaptureError
from backprint.graph.nouns import Ref
from backprint.tracing.eager.calls import CallSteps
from backprint.tracing.eager.forms import (
    changed_arguments,
    changes_arguments,
    functional_of,
    has_out,
    one_by_one,
    plain_form,
    turned_form,
)
from backprint.tracing.eager.page import Page
from backprint.tracing.eager.placement import (
    NoPlainForm,
    Placement,
    dense,
    gapless,
    geometry,
    meta_tensor,
    overlaps,
    placement_of,
    placement_spec,
    placements,
)
from backprint.tracing.eager.sparse import PARTS
from backprint.tracing.eager.tape import Tape, TapedCall
from backprint.tracing.eager.values import CurrentValues
from backprint.tracing.eager.views import ViewOrigin

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
