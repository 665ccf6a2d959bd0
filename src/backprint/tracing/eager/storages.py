"""The current value of every storage: its base, of which each tensor in it is a view.

A write makes a new base (scattered along the views that led to the written tensor), and each later read returns views
of the new base. So views, updates through views and tensors that share memory need no special cases elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import torch

from backprint.errors import CaptureError
from backprint.graph.nouns import Ref
from backprint.tracing.eager.page import Page
from backprint.tracing.eager.placement import Placement, dense, geometry, overlaps, reach, spanned
from backprint.tracing.eager.views import INVERSE, LAZY, REAL, SCATTER, ViewOrigin, strided_view

aten = torch.ops.aten


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
