"""Views of a storage: how one tensor was made from another, and how a new value of a view makes one of its parent."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from backprint.errors import CaptureError
from backprint.graph.nouns import Ref
from backprint.tracing.eager.page import Page
from backprint.tracing.eager.tape import (
    Placement,
    Tape,
    TapedCall,
    dense,
    geometry,
    overlaps,
    placements,
    reach,
    spanned,
)

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class ViewOrigin:
    """How a tensor was made from another of the same storage; without a `func`, by no known operator."""

    parent: Placement
    func: Any = None
    args: tuple[Any, ...] = ()


def strided_view(parent: Placement, place: Placement) -> ViewOrigin:
    """Return a tensor by its geometry, as a view of a contiguous tensor."""
    return ViewOrigin(parent, aten.as_strided.default, (place.shape, place.stride, place.offset))


def view_origin(call: TapedCall, place: Placement, given: Sequence[Placement]) -> ViewOrigin:
    """Return how a view that a call returned was made from the tensor it views, usually the first argument."""
    parent = next(each for each in given if each.memory == place.memory)
    if call.func is not aten.as_strided.default and call.args and call.args[0] == parent and not call.kwargs:
        return ViewOrigin(parent, call.func, tuple(call.args[1:]))
    return ViewOrigin(parent)


def part_origin(call: TapedCall, index: int, place: Placement, given: Sequence[Placement]) -> ViewOrigin:
    """Return how one of several views that a call returned was made: as a slice or a selection."""
    parent = next(each for each in given if each.memory == place.memory)
    if call.func is aten.unbind.int:
        dim = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)
        return ViewOrigin(parent, aten.select.int, (dim, index))
    if call.func in (aten.split.Tensor, aten.split_with_sizes.default):
        dim = call.args[2] if len(call.args) > 2 else call.kwargs.get("dim", 0)
        sizes = [each.shape[dim] for each in call.result]
        start = sum(sizes[:index])
        return ViewOrigin(parent, aten.slice.Tensor, (dim, start, start + sizes[index]))
    return ViewOrigin(parent)


# ------------------------------------------------------------------ tables


SCATTER: dict[Any, Any] = {
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
    aten.as_strided.default: aten.as_strided_scatter.default,
}
"""For views of a part, the operator that puts a new value in that part's place."""

Inverse = tuple[Any, tuple[Any, ...]]


def _as_parent(view: ViewOrigin, value: Ref) -> Inverse:
    return aten.view.default, (value, list(view.parent.shape))


def _unpermuted(view: ViewOrigin, value: Ref) -> Inverse:
    dims = view.args[0]
    order = [dim % len(dims) for dim in dims]
    return aten.permute.default, (value, [order.index(index) for index in range(len(order))])


INVERSE: dict[Any, Callable[[ViewOrigin, Ref], Inverse]] = {
    aten.transpose.int: lambda view, value: (aten.transpose.int, (value, *view.args)),
    aten.t.default: lambda view, value: (aten.t.default, (value,)),
    aten.permute.default: _unpermuted,
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
"""For views of the whole tensor, the operator that makes the whole from a new value of the view."""

LAZY: dict[tuple[bool, bool], Any] = {(True, False): aten._conj.default, (False, True): aten._neg_view.default}
"""Views that are conjugated or negated when they are read."""

REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The dtype of the parts of a complex number."""


# ----------------------------------------------------------------------------
# The current value of every storage: its base, of which each tensor in it is a view.
#
# A write makes a new base (scattered along the views that led to the written tensor), and each later read returns
#  views of the new base. So views, updates through views and tensors that share memory need no special cases
#  elsewhere.
# ----------------------------------------------------------------------------


@dataclass(slots=True)
class Storage:
    """One storage: the tensor that covers it, the current names of its views, and how each was made from another.

    `tick` counts the writes to it; a name is current if it was set at this tick.
    """

    base: Placement
    tick: int = 0
    names: dict[Placement, tuple[str, int]] = field(default_factory=dict)
    made: dict[Placement, ViewOrigin] = field(default_factory=dict)
    roots: list[Placement] = field(default_factory=list)


class Storages:
    """Every storage of strided tensors, by its number.

    With `as_ran` updates stay in place, and a name stays current after a write to its storage. `elsewhere` makes a
    value of a storage that is known only as a part of a sparse tensor, or raises. `closed` counts the writes to such a
    storage.
    """

    def __init__(self, page: Page, as_ran: bool, elsewhere: Callable[[Placement], None]) -> None:
        self.page, self.as_ran, self.elsewhere = page, as_ran, elsewhere
        self.by_number: dict[int, Storage] = {}
        self.closed: dict[int, int] = {}

    def of(self, place: Placement) -> Storage:
        """Return the storage of a tensor."""
        return self.by_number[place.memory]

    def tick(self, memory: int) -> int:
        """Return how often a storage has been written to."""
        found = self.by_number.get(memory)
        return self.closed.get(memory, 0) if found is None else found.tick

    # -------------------------------------------------------------- what lies in them

    def begin(self, name: str, place: Placement, tick: int = 0) -> None:
        """Start a storage whose content is one value."""
        self.by_number[place.memory] = Storage(place, tick, {place: (name, tick)}, {}, [place])

    def begin_port(self, name: str, place: Placement) -> None:
        """Enter a port into a storage, alone or with others."""
        storage = self.by_number.setdefault(place.memory, Storage(place))
        if place not in storage.names:
            storage.names[place] = (name, 0)
            storage.roots.append(place)

    def enter_value(
        self, name: str, place: Placement, given: Sequence[Placement], view: Callable[[], ViewOrigin]
    ) -> None:
        """Enter a value that a call has returned: it starts a storage, or is a view into one."""
        storage = self.by_number.get(place.memory)
        if storage is None:
            self.begin(name, place, self.tick(place.memory))
            return
        if place != storage.base and place not in storage.made:
            if any(each.memory == place.memory for each in given):
                storage.made[place] = view()
            else:
                storage.roots.append(place)
        if storage.names.get(place, ("", -1))[1] != storage.tick:
            storage.names[place] = (name, storage.tick)

    def write_base(self, storage: Storage, name: str) -> None:
        """Set the new value of a whole storage."""
        storage.tick += 1
        storage.names[storage.base] = (name, storage.tick)

    def enter_turned(self, name: str, place: Placement, view: ViewOrigin) -> None:
        """Enter a tensor that has become another view of its storage, under this name."""
        storage = self.of(place)
        if place != storage.base and place not in storage.made:
            storage.made[place] = view
        storage.names[place] = (name, storage.tick)

    def forget_views(self, but: Collection[Placement] = ()) -> None:
        """Make views again from what they are views of, except those in `but`, which have names of their own."""
        for storage in self.by_number.values():
            made = storage.made
            storage.names = {
                place: name
                for place, name in storage.names.items()
                if place == storage.base or place in but or place not in made or made[place].func is None
            }

    def latest(self, place: Placement) -> str:
        """Return a tensor's latest name, or ''."""
        storage = self.by_number.get(place.memory)
        return storage.names.get(place, ("", 0))[0] if storage else ""

    # -------------------------------------------------------------- reading

    def value_at(self, place: Placement) -> Ref:
        """Return the current value of a tensor."""
        if place.memory not in self.by_number:
            self.elsewhere(place)
        storage = self.by_number[place.memory]
        found = storage.names.get(place)
        if found is not None and (found[1] == storage.tick or self.as_ran):
            return Ref(found[0])
        view = storage.made.get(place)
        view = view if view is not None and view.func is not None else self.place_view(place)
        parent = self.value_at(view.parent)
        name = self.page.emit(view.func, (parent, *view.args), place=place)
        storage.names[place] = (name, storage.tick)
        return Ref(name)

    def place_view(self, place: Placement) -> ViewOrigin:
        """Make a view, by geometry, of a tensor in a known storage that no recorded operator made."""
        storage = self.of(place)
        if place.detached:
            storage.made[place] = ViewOrigin(place._replace(detached=False), aten.detach.default)
        elif place.dtype == storage.base.dtype and place.lazy in LAZY:
            storage.made[place] = ViewOrigin(place._replace(lazy=(False, False)), LAZY[place.lazy])
        elif place.dtype == REAL.get(storage.base.dtype) and not any(place.lazy):
            self.place_in_real(storage, place)
        elif place.dtype != storage.base.dtype and not any((*place.lazy, *storage.base.lazy)):
            self.place_in_bytes(storage, place)
        elif any(place.lazy):
            raise CaptureError(f"a conjugated or negated {str(place.dtype)[6:]} view has no known base: pass a copy")
        else:
            storage.made[place] = strided_view(self.flatten(place), place)
        return storage.made[place]

    def place_in_real(self, storage: Storage, place: Placement) -> None:
        """Make a real view of complex memory, by geometry, from the flat value as pairs."""
        whole = self.flatten(storage.base)
        pairs = whole._replace(dtype=place.dtype, shape=(*whole.shape, 2), stride=(2, 1))
        storage.made[pairs] = ViewOrigin(whole, aten.view_as_real.default)
        if place != pairs:
            storage.made[place] = strided_view(pairs, place)

    def place_in_bytes(self, storage: Storage, place: Placement) -> None:
        """Make a view with another dtype than its storage's: the flat value, viewed as that dtype."""
        old, new = storage.base.dtype.itemsize, place.dtype.itemsize
        span = math.ceil(max(reach(place) * new, reach(storage.base) * old) / max(old, new)) * max(old, new)
        also = storage.base._replace(shape=(span // old,), stride=(1,), offset=0)
        whole = self.flatten(also)
        if whole.shape[0] * old % new:
            raise CaptureError(
                f"{whole.shape[0] * old} bytes of memory are viewed as {str(place.dtype)[6:]}: pass a copy"
            )
        cast = whole._replace(dtype=place.dtype, shape=(whole.shape[0] * old // new,))
        storage.made[cast] = ViewOrigin(whole, aten.view.dtype, (place.dtype,))
        if place != cast:
            storage.made[place] = strided_view(cast, place)

    def flatten(self, also: Placement) -> Placement:
        """Return one flat value for the storage of a tensor, filled from its known tensors."""
        storage = self.of(also)
        roots = [place for place in dict.fromkeys((storage.base, *storage.roots)) if place not in storage.made]
        extent = max(reach(place) for place in (*roots, also))
        wanted = storage.base._replace(shape=(extent,), stride=(1,), offset=0)
        if storage.base == wanted:
            return wanted
        if len({place.dtype for place in roots}) > 1:
            raise CaptureError("tensors share memory under different dtypes and one is changed: pass copies")
        options = (("dtype", wanted.dtype), ("device", wanted.device))
        name = self.page.emit(aten.zeros.default, ([extent],), options, place=wanted)
        for place in roots:
            value = self.value_at(place)
            args = (Ref(name), value, place.shape, place.stride, place.offset)
            name = self.page.emit(aten.as_strided_scatter.default, args, place=wanted)
            storage.made[place] = strided_view(wanted, place)
        storage.base = wanted
        storage.made.pop(wanted, None)  # the program may have such a view of the former base
        storage.names[wanted] = (name, storage.tick)
        return wanted

    # -------------------------------------------------------------- writing

    def prepare(self, place: Placement) -> None:
        """Make sure that a write to this tensor can be extended to its whole storage."""
        storage, written = self.of(place), place
        if sum(root not in storage.made for root in storage.roots) > 1:
            self.flatten(place)
        while place != storage.base:
            view = storage.made.get(place)
            if view is None or not (view.func in SCATTER or view.func in INVERSE):
                self.place_view(place)
                return
            place = view.parent
            if overlaps(place):  # a value of the parent would have two elements for one place in memory
                self.place_view(written)
                return

    def assign(self, place: Placement, name: str) -> None:
        """Set the new value of a tensor, and of all tensors that share its storage."""
        storage = self.of(place)
        fresh: dict[Placement, str] = {}
        while True:
            if self.fits(name, place):
                fresh[place] = name
            if place == storage.base:
                break
            view = storage.made[place]
            name = self.scattered(view, name)
            place = view.parent
        storage.tick += 1
        for each, value in fresh.items():
            storage.names[each] = (value, storage.tick)

    def scattered(self, view: ViewOrigin, name: str) -> str:
        """Return the parent of a view with this value in the view's place."""
        parent = self.value_at(view.parent)
        if view.func in SCATTER:
            func, args = SCATTER[view.func], (parent, Ref(name), *view.args)
        else:
            func, args = INVERSE[view.func](view, Ref(name))
        return self.fitted(self.page.emit(func, args), view.parent, parent)

    def fits(self, name: str, place: Placement) -> bool:
        """Whether a value has a tensor's geometry. A conjugated value also stands for a tensor that is conjugated when
        read."""
        have = geometry(self.page.places[name])
        return have in (geometry(place), geometry(place._replace(lazy=(False, False))))

    def fitted(self, name: str, place: Placement, old: Ref) -> str:
        """Return a value with the dtype, shape and strides of the tensor that it is written to."""
        if self.fits(name, place):
            return name
        have = self.page.places[name]
        if (have.dtype, have.shape) == (place.dtype, place.shape) and not dense(place) and place != self.of(place).base:
            return name
        return self.page.emit(aten.copy.default, (old, Ref(name)), place=place)

    def resize(self, before: Placement, after: Placement) -> None:
        """Enter a tensor that has another size, or another tensor's memory."""
        storage = self.by_number.get(after.memory)
        if storage is not None and after in storage.names:
            return
        known = [] if storage is None else [storage.base, *storage.roots]
        known += [before] if before.memory == after.memory else []
        if spanned(after) > max(map(spanned, known), default=-1):
            self.begin_unwritten(after, 0 if storage is None else storage.tick + 1)

    def begin_unwritten(self, place: Placement, tick: int) -> None:
        """Start a storage of a new size, whose content is undefined until written."""
        options = (("dtype", place.dtype), ("device", place.device))
        args = (list(place.shape), list(place.stride or ()))
        self.begin(self.page.emit(aten.empty_strided.default, args, options, place), place, tick)


# ----------------------------------------------------------------------------
# The current value of every sparse tensor.
#
#
# It has a value of its own, which is valid until one of its parts is written to. Then it is rebuilt from its parts.
# ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SparseValue:
    """A sparse tensor's current name, and each part's write count (tick) at that time.

    `loose` says that the positions of its values depend on values that a recipe may resample, `sized` that their number
    does.
    """

    name: str
    ticks: tuple[int, ...]
    loose: bool = False
    sized: bool = False


class SparseValues:
    """Every sparse tensor by its Placement, over the `storages` of its parts.

    `still` are storages whose content a recipe keeps: a tensor built from these alone is always built alike.
    """

    def __init__(self, page: Page, storages: Storages, still: frozenset[int]) -> None:
        self.page, self.storages, self.still = page, storages, still
        self.values: dict[Placement, SparseValue] = {}

    def value_at(self, place: Placement) -> Ref:
        """Return the current value of a sparse tensor: its own, or rebuilt from its parts."""
        found = self.values.get(place)
        if found is not None and (found.ticks == self.ticks(place) or self.storages.as_ran):
            return Ref(found.name)
        given = [self.storages.value_at(part) for part in place.parts]
        if place.layout is torch.sparse_coo:
            func = aten._sparse_coo_tensor_unsafe.default
            options: tuple[tuple[str, Any], ...] = (("is_coalesced", place.coalesced),)
        else:
            func = aten._sparse_compressed_tensor_unsafe.default
            options = (("dtype", place.dtype), ("layout", place.layout), ("device", place.device))
        name = self.page.emit(func, (*given, list(place.shape)), options, place)
        self.enter_value(name, place, [place])
        return Ref(name)

    def ticks(self, place: Placement) -> tuple[int, ...]:
        """Return how often each part's storage has been written to."""
        return tuple([self.storages.tick(part.memory) for part in place.parts])

    def begin(self, name: str, place: Placement) -> None:
        """Enter a port that is a sparse tensor."""
        self.values.setdefault(place, SparseValue(name, self.ticks(place)))

    def enter_value(self, name: str, place: Placement, given: Sequence[Placement]) -> None:
        """Enter a sparse tensor that a call has returned."""
        found = self.values.get(place)
        if found is None or found.ticks != self.ticks(place):
            self.renew(name, place, self.built(place, given))

    def renew(self, name: str, place: Placement, built: tuple[bool, bool] = (False, False)) -> None:
        """Set a sparse tensor's new value."""
        self.page.places[name] = place
        self.values[place] = SparseValue(name, self.ticks(place), *built)

    def rename(self, place: Placement, name: str) -> None:
        """Let a copy stand for a sparse tensor."""
        self.values[place] = replace(self.values[place], name=name)

    def built(self, place: Placement, given: Sequence[Placement]) -> tuple[bool, bool]:
        """Whether the positions of a sparse result's values depend on values, and whether their number does."""
        func = None if self.page.call is None else self.page.call.func
        known = [self.values[each] for each in given if each in self.values]
        known = known[-1:] if func is aten.sparse_mask.default else known
        if not known:
            return any(part.memory not in self.still for part in place.parts[:-1]), func in FROM_DENSE
        loose = any(each.loose for each in known)
        merged = len(known) > 1 or func is aten._coalesce.default
        return loose, any(each.sized for each in known) or (merged and loose)

    def lying_in(self, memory: int) -> Iterator[tuple[Placement, SparseValue]]:
        """Yield the sparse tensors that use a storage, themselves or in a part."""
        for place, value in list(self.values.items()):
            if memory in {place.memory, *(part.memory for part in place.parts)}:
                yield place, value

    # -------------------------------------------------------------- their parts

    def take_out(self, place: Placement) -> None:
        """Make a value of a storage that is known only as a part of a sparse tensor."""
        for whole, sparse in list(self.values.items()):
            for index, part in enumerate(whole.parts):
                if part.memory == place.memory and sparse.ticks[index] == self.storages.tick(place.memory):
                    name = self.page.emit(PARTS[whole.layout][index], (Ref(sparse.name),), place=part)
                    self.storages.enter_value(name, part, (), lambda: ViewOrigin(place))
                    return
        raise CaptureError(f"a tensor of shape {list(place.shape)} appears that no operator made")

    def assign_part(self, part: Placement, func: Any, name: str) -> None:
        """Set the new value of a part of a sparse tensor, and of all tensors that share its storage."""
        if part.memory not in self.storages.by_number:
            self.storages.closed[part.memory] = self.storages.tick(part.memory) + 1
            return
        self.storages.prepare(part)
        self.storages.assign(part, self.page.emit(func, (Ref(name),), place=part))


def still_memories(tape: Tape) -> frozenset[int]:
    """Return the storages whose content a recipe keeps: indices of sparse ports, and constants."""
    roots = [root for each in tape.roots.values() for root in each]
    found = {part.memory for root in roots for part in root.place.parts[:-1]}
    return frozenset(found | {root.place.memory for root in roots if root.key in tape.constants})


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
"""Operators that return the parts of a sparse tensor, in the order in which it is built from them."""

OPENED = frozenset({func for row in PARTS.values() for func in row} | {aten.indices.default})
"""Operators whose result's size is a sparse tensor's number of values."""

FROM_DENSE = (
    aten._to_sparse.default,
    aten._to_sparse.sparse_dim,
    aten._to_sparse_csr.default,
    aten._to_sparse_csc.default,
    aten._to_sparse_bsr.default,
    aten._to_sparse_bsc.default,
)
"""Operators whose result depends on where a dense tensor is not zero."""


# ----------------------------------------------------------------------------
# The current value of every tensor of a tape, strided or sparse.
# ----------------------------------------------------------------------------


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
