"""The current value of every tensor of a tape, strided or sparse."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from backprint.errors import CaptureError
from backprint.graph.nouns import Ref
from backprint.tracing.eager.page import Page
from backprint.tracing.eager.placement import Placement, placements
from backprint.tracing.eager.sparse import SparseValues, still_memories
from backprint.tracing.eager.storages import Storages
from backprint.tracing.eager.tape import Tape, TapedCall
from backprint.tracing.eager.views import part_origin, view_origin

aten = torch.ops.aten


class CurrentValues:
    """The current value of each tensor, by its Placement: ports at first, then the results of calls."""

    def __init__(self, page: Page, tape: Tape, as_ran: bool) -> None:
        self.page = page
        self.storages = Storages(page, as_ran, lambda place: self.sparse.take_out(place))
        self.sparse = SparseValues(page, self.storages, still_memories(tape))

    def open_ports(self, tape: Tape, locals_: Mapping[str, str]) -> None:
        """Start the storages of ports; `locals_` has the name of each by its key."""
        for roots in tape.roots.values():
            for root in roots:
                name = locals_[root.key]
                self.page.places[name] = root.place
                if root.place.layout is not torch.strided:
                    self.sparse.begin(name, root.place)
                else:
                    self.storages.begin_port(name, root.place)

    # -------------------------------------------------------------- reading

    def value_at(self, place: Placement) -> Ref:
        """Return the current value of a tensor."""
        return self.storages.value_at(place) if place.layout is torch.strided else self.sparse.value_at(place)

    def latest(self, place: Placement) -> str:
        """Return a tensor's latest name, or ''."""
        known = self.sparse.values.get(place)
        return self.storages.latest(place) if known is None else known.name

    def packed(self, value: Any, copies: Mapping[Placement, str] | None = None) -> Any:
        """Replace tensors in arguments by their current values, or by `copies` of tensors that are changed."""
        kind = type(value)
        if kind is Placement:
            return Ref(copies[value]) if copies and value in copies else self.value_at(value)
        if kind is tuple:
            return tuple([self.packed(item, copies) for item in value])
        if kind is list:
            return [self.packed(item, copies) for item in value]
        return value

    def packed_kwargs(self, call: TapedCall, copies: Mapping[Placement, str] | None = None) -> dict[str, Any]:
        """Replace tensors in keyword arguments likewise."""
        return {key: self.packed(value, copies) for key, value in call.kwargs.items()}

    # -------------------------------------------------------------- what a call gives

    def enter_value(self, name: str, place: Placement, given: Sequence[Placement], view: Any) -> None:
        """Enter a value at a Placement; `view` returns how it was made from one of the tensors `given`, if it is a
        view."""
        if place.layout is torch.strided:
            self.storages.enter_value(name, place, given, view)
        else:
            self.sparse.enter_value(name, place, given)

    def enter_results(self, call: TapedCall, name: str, but: Collection[Placement] = ()) -> None:
        """Enter the results of a call: new storages, or views of its arguments, except those in `but`."""
        self.enter_result(
            call, name, call.result, [place for place in placements(call.args, call.kwargs) if place not in but]
        )

    def enter_result(self, call: TapedCall, name: str, result: Any, given: Sequence[Placement]) -> None:
        """Enter one result of a call, and those inside it."""
        if type(result) is Placement:
            self.page.places[name] = result
            self.enter_value(name, result, given, lambda: view_origin(call, result, given))
        elif isinstance(result, (tuple, list)):
            for index, item in enumerate(result):
                if type(item) is Placement:
                    each = self.page.put_item(name, index, item)
                    self.enter_value(each, item, given, functools.partial(part_origin, call, index, item, given))
                elif isinstance(item, (tuple, list)) and any(type(leaf) is Placement for leaf in item):
                    self.enter_result(call, self.page.put_item(name, index, item), item, given)

    # -------------------------------------------------------------- ports that updates would change

    def copy_ports(self, written: Placement, ports: Collection[str]) -> None:
        """Copy the ports that an update in place of this tensor would change, each once."""
        for place, sparse in self.sparse.lying_in(written.memory):
            if sparse.name in ports:
                self.sparse.rename(place, self.page.emit(aten.clone.default, (Ref(sparse.name),), place=place))
        storage = self.storages.by_number.get(written.memory)
        if storage is None or storage.tick:
            return
        if len(storage.roots) > 1:
            raise CaptureError("inputs share memory and one is changed in place: pass copies, or leave functional=True")
        base = Ref(storage.names[storage.base][0])
        self.storages.write_base(storage, self.page.emit(aten.clone.default, (base,), place=storage.base))
