"""The current value of every tensor of a tape, so that a graph without updates in place can be written for it.

Each storage has a base, a value of which every tensor in it is a view. A write makes a new base: the new value is
scattered along the views that led to the written tensor. A later read of any tensor of that storage returns a view of
the new base. So views, updates through views and tensors that share memory need no special cases in the writer.

A tensor is known by its StorageView, here a `place`: the number of its storage (`memory`) and its geometry there
(`geometry` returns it: dtype, shape, strides and lazy bits). A value is a named result in the graph; `Ref(name)` stands
for it. A flat value is a one-dimensional one with all elements of a storage. A ViewOrigin says how a view was made from
its parent; for a write, its operator needs a row in SCATTER (it writes a part of the parent) or in INVERSE. A root is a
tensor that began as no known view. A _DatedName is current if no write came after its `write_count`.

Steps are written on a Page: `page.append_call` appends a call and returns the name of its value, whose StorageView is
`place`; without `place`, it is computed on meta tensors. `page.places` has the StorageView of every value by name. A
TapedCall is an operator call on the tape, in which StorageViews stand for the tensors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import torch

from backprint.errors import CaptureError
from backprint.graph.nouns import Ref
from backprint.trace import frames
from backprint.trace.eager.page import Page
from backprint.trace.eager.tape import (
    StorageView,
    Tape,
    TapedCall,
    bytes_spanned,
    elements_spanned,
    geometry,
    placements,
)
from backprint.values.geometry import contiguous_strides, is_dense, overlaps_itself

aten = torch.ops.aten


# ---- How a view was made, and how a new value of a view becomes one of its parent


@dataclass(frozen=True, slots=True)
class ViewOrigin:
    """How a tensor was made from another of the same storage: `func(parent, *args)`. Without a `func`, only the parent
    is known, and the view is derived from the storage by its geometry."""

    parent: StorageView
    func: Any = None
    args: tuple[Any, ...] = ()


def _strided_view(parent: StorageView, place: StorageView) -> ViewOrigin:
    """Return the ViewOrigin of a tensor that `as_strided` makes from `parent`, which is flat: one dimension, offset
    0."""
    return ViewOrigin(parent, aten.as_strided.default, (place.shape, place.stride, place.offset))


def _view_origin(call: TapedCall, place: StorageView, arguments: Sequence[StorageView]) -> ViewOrigin:
    """Return the ViewOrigin of a view that a call returned. Its parent is the argument with the same memory;
    `arguments` are the call's tensors."""
    parent = next(place_ for place_ in arguments if place_.memory == place.memory)
    # `as_strided` reads the whole storage and not its argument, so it is derived from the flat value instead. A
    # ViewOrigin has no keyword arguments.
    if call.func is not aten.as_strided.default and call.args and call.args[0] == parent and not call.kwargs:
        return ViewOrigin(parent, call.func, tuple(call.args[1:]))
    return ViewOrigin(parent)


def _part_origin(call: TapedCall, index: int, place: StorageView, arguments: Sequence[StorageView]) -> ViewOrigin:
    """Return the ViewOrigin of the view at `index` among several that a call returned: of `unbind` as a `select`, of
    `split` as a `slice`, which have a row in SCATTER; of any other operator, only the parent. `arguments` are the
    call's tensors."""
    parent = next(place_ for place_ in arguments if place_.memory == place.memory)
    if call.func is aten.unbind.int:
        dim = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", 0)
        return ViewOrigin(parent, aten.select.int, (dim, index))
    if call.func in (aten.split.Tensor, aten.split_with_sizes.default):
        # Before `dim` they take the tensor and the sizes.
        dim = call.args[2] if len(call.args) > 2 else call.kwargs.get("dim", 0)
        sizes = [place_.shape[dim] for place_ in call.result]
        start = sum(sizes[:index])
        return ViewOrigin(parent, aten.slice.Tensor, (dim, start, start + sizes[index]))
    return ViewOrigin(parent)


SCATTER: dict[Any, Any] = {
    aten.select.int: aten.select_scatter.default,
    aten.slice.Tensor: aten.slice_scatter.default,
    aten.diagonal.default: aten.diagonal_scatter.default,
    aten.as_strided.default: aten.as_strided_scatter.default,
}
"""For views of a part, the operator that returns the parent with a new value in the part's place."""

Inverse = tuple[Any, tuple[Any, ...]]
"""An operator and its arguments, which make a new value of a view's parent from a new value of the view."""


def _as_parent(view: ViewOrigin, value: Ref) -> Inverse:
    """Undo a view that only changes the shape."""
    return aten.view.default, (value, list(view.parent.shape))


def _unpermuted(view: ViewOrigin, value: Ref) -> Inverse:
    """Undo a `permute`, whose dimensions may count from the end."""
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
"""For views that have all elements of their parent, the Inverse that makes the parent from a new value of the view."""

LAZY: dict[tuple[bool, bool], Any] = {(True, False): aten._conj.default, (False, True): aten._neg_view.default}
"""The operators of views that torch conjugates or negates only when it reads them, by `StorageView.lazy`: the conjugate
bit, then the negative bit."""

REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The dtype of the parts of a complex number."""


# ---- Storages of strided tensors


class _DatedName(NamedTuple):
    """The name of a tensor's value, and how many writes to its storage there had been when the name was set."""

    name: str
    write_count: int


@dataclass(slots=True)
class _Storage:
    """One storage: its base, and the tensors in it.

    `write_count` counts the writes to the storage so far. `names` has the latest name of each tensor: it is current if
    no write to the storage came after it. `origins` has the ViewOrigin of each view. `roots` are tensors that began as
    no known view: ports, and results of operators that hide how they were made.
    """

    base: StorageView
    write_count: int = 0
    names: dict[StorageView, _DatedName] = field(default_factory=dict)
    origins: dict[StorageView, ViewOrigin] = field(default_factory=dict)
    roots: list[StorageView] = field(default_factory=list)

    def sources(self) -> list[StorageView]:
        """Return the tensors that are not known as views of others, the base first."""
        return [place for place in dict.fromkeys((self.base, *self.roots)) if place not in self.origins]


class Storages:
    """Every storage of strided tensors, by its number on the tape.

    With `in_place` the graph updates tensors in place as the program did, so a name stays current after a write to its
    storage.
    """

    def __init__(self, page: Page, in_place: bool) -> None:
        self.page, self.in_place = page, in_place
        self.by_number: dict[int, _Storage] = {}

    def of(self, place: StorageView) -> _Storage:
        """Return the storage of a tensor."""
        if place.memory not in self.by_number:
            _raise_without_maker(place)
        return self.by_number[place.memory]

    # ---- Entering values

    def begin(self, name: str, place: StorageView, write_count: int = 0) -> None:
        """Start a storage whose content is one value."""
        names = {place: _DatedName(name, write_count)}
        self.by_number[place.memory] = _Storage(place, write_count, names, origins={}, roots=[place])

    def begin_port(self, name: str, place: StorageView) -> None:
        """Enter a port into its storage, in which other ports may lie too."""
        storage = self.by_number.setdefault(place.memory, _Storage(place))
        if place not in storage.names:
            storage.names[place] = _DatedName(name, write_count=0)
            storage.roots.append(place)

    def enter_value(
        self, name: str, place: StorageView, arguments: Sequence[StorageView], view: Callable[[], ViewOrigin]
    ) -> None:
        """Enter a value that a call has returned: it starts a storage, or is a tensor in a known one.

        `arguments` are the call's tensors; `view` returns the ViewOrigin if the value is a view of one of them.
        """
        storage = self.by_number.get(place.memory)
        if storage is None:
            self.begin(name, place)
            return
        # A view of an argument has its origin; any other tensor in a known memory is a root of its own.
        if not self.has_origin(storage, place):
            if any(argument.memory == place.memory for argument in arguments):
                storage.origins[place] = view()
            else:
                storage.roots.append(place)
        # A current name stays: the tensor's value has it already.
        known = storage.names.get(place)
        if known is None or known.write_count != storage.write_count:
            storage.names[place] = _DatedName(name, storage.write_count)

    def has_origin(self, storage: _Storage, place: StorageView) -> bool:
        """Whether it is known where a tensor comes from. A view of a view may have the StorageView of a root or of the
        base again, and is then that tensor."""
        return place == storage.base or place in storage.origins or place in storage.roots

    def write_base(self, storage: _Storage, name: str) -> None:
        """Set the new value of the base, so that all other names of the storage are out of date."""
        storage.write_count += 1
        storage.names[storage.base] = _DatedName(name, storage.write_count)

    def enter_view(self, name: str, place: StorageView, view: ViewOrigin) -> None:
        """Enter the tensor that an operator such as `t_` has turned into another view of its storage: `place` is its
        new StorageView, `name` the name of its value, and `view` how it was made."""
        storage = self.of(place)
        if not self.has_origin(storage, place):
            storage.origins[place] = view
        storage.names[place] = _DatedName(name, storage.write_count)

    def forget_views(self, kept: Collection[StorageView] = ()) -> None:
        """Forget the names of views, so that the next read derives them again in the graph that is written then. Views
        in `kept` keep their names, and so do tensors that no known operator derives."""
        for storage in self.by_number.values():
            origins = storage.origins
            storage.names = {
                place: name
                for place, name in storage.names.items()
                if place == storage.base or place in kept or place not in origins or origins[place].func is None
            }

    def latest_name(self, place: StorageView) -> str:
        """Return a tensor's latest name, although a write may have come after it; '' if it has none."""
        storage = self.by_number.get(place.memory)
        known = storage.names.get(place) if storage is not None else None
        return known.name if known is not None else ""

    # ---- Reading

    def value_at(self, place: StorageView) -> Ref:
        """Return the current value of a tensor; append the steps that derive it, if it has no current name."""
        storage = self.of(place)
        known = storage.names.get(place)
        if known is not None and (known.write_count == storage.write_count or self.in_place):
            return Ref(known.name)
        # No name, or one that is out of date: derive the tensor again from the current value of its parent.
        view = storage.origins.get(place)
        if view is None or view.func is None:
            view = self.derive_view(place)
        parent = self.value_at(view.parent)
        name = self.page.append_call(view.func, (parent, *view.args), place=place)
        storage.names[place] = _DatedName(name, storage.write_count)
        return Ref(name)

    def derive_view(self, place: StorageView) -> ViewOrigin:
        """Set and return the ViewOrigin of a tensor that is derived from its storage by its geometry alone, because no
        recorded operator made it, or because the operator's view has no inverse. Raise a CaptureError for a lazy view
        of which no operator is known."""
        storage = self.of(place)
        # Each branch undoes one thing that tells the tensor from the base: a mark, a lazy bit, a dtype, the geometry.
        # The parent that it names may need another branch.
        if place.detached:
            storage.origins[place] = ViewOrigin(place._replace(detached=False), aten.detach.default)
        elif place.dtype == storage.base.dtype and place.lazy in LAZY:
            storage.origins[place] = ViewOrigin(place._replace(lazy=(False, False)), LAZY[place.lazy])
        elif place.dtype == REAL.get(storage.base.dtype) and not any(place.lazy):
            self.derive_real_view(storage, place)
        elif place.dtype != storage.base.dtype and not any((*place.lazy, *storage.base.lazy)):
            self.derive_dtype_view(storage, place)
        elif any(place.lazy):
            raise CaptureError(f"a conjugated or negated {str(place.dtype)[6:]} view has no known base: pass a copy")
        # Where the base alone is known of the storage, a tensor of all its elements is a `view` of it.
        elif storage.sources() == [storage.base] and _is_reshaped(storage.base, place):
            storage.origins[place] = ViewOrigin(storage.base, aten.view.default, (list(place.shape),))
        else:
            storage.origins[place] = _strided_view(self.flatten(place), place)
        return storage.origins[place]

    def derive_real_view(self, storage: _Storage, place: StorageView) -> None:
        """Set the ViewOrigin of a real view of complex memory: `view_as_real` of the flat value, of which the view is
        taken by its geometry."""
        flat = self.flatten(storage.base)
        # `view_as_real` makes of each complex number a pair of real ones.
        pairs = flat._replace(dtype=place.dtype, shape=(*flat.shape, 2), stride=(2, 1))
        storage.origins[pairs] = ViewOrigin(flat, aten.view_as_real.default)
        if place != pairs:
            storage.origins[place] = _strided_view(pairs, place)

    def derive_dtype_view(self, storage: _Storage, place: StorageView) -> None:
        """Set the ViewOrigin of a view with another dtype than its storage's base: the flat value is viewed as that
        dtype, and the view is taken of it by its geometry. Raise a CaptureError if the flat value's bytes are no whole
        number of elements of that dtype."""
        old_size, new_size = storage.base.dtype.itemsize, place.dtype.itemsize
        # The bytes that the two tensors use, rounded up to whole elements of the larger dtype.
        larger_size = max(old_size, new_size)
        bytes_used = max(elements_spanned(place) * new_size, elements_spanned(storage.base) * old_size)
        span = math.ceil(bytes_used / larger_size) * larger_size
        covering = storage.base._replace(shape=(span // old_size,), stride=(1,), offset=0)
        flat = self.flatten(covering)
        if flat.shape[0] * old_size % new_size:
            raise CaptureError(
                f"{flat.shape[0] * old_size} bytes of memory are viewed as {str(place.dtype)[6:]}: pass a copy"
            )
        as_dtype = flat._replace(dtype=place.dtype, shape=(flat.shape[0] * old_size // new_size,))
        storage.origins[as_dtype] = ViewOrigin(flat, aten.view.dtype, (place.dtype,))
        if place != as_dtype:
            storage.origins[place] = _strided_view(as_dtype, place)

    def flatten(self, covering: StorageView) -> StorageView:
        """Make one flat value the base of a storage, large enough for the tensor `covering`; return its StorageView.

        Two inputs may be views of one memory, of which the graph knows no common tensor. The flat value begins as
        zeros, into which each input is written by `as_strided_scatter`. A single tensor that is all of the memory is
        viewed instead. From then on the inputs are views of the flat value, so that a write to one is seen by the
        others. Raise a CaptureError if the inputs have several dtypes.
        """
        storage = self.of(covering)
        sources = storage.sources()
        extent = max(elements_spanned(place) for place in (*sources, covering))
        flat = storage.base._replace(shape=(extent,), stride=(1,), offset=0)
        if storage.base == flat:
            return flat
        if len({place.dtype for place in sources}) > 1:
            raise CaptureError("tensors share memory under different dtypes and one is changed: pass copies")
        if len(sources) == 1 and is_whole(sources[0], extent):
            name = self.page.append_call(aten.view.default, (self.value_at(sources[0]), [extent]), place=flat)
            storage.origins[sources[0]] = _strided_view(flat, sources[0])
        else:
            options = (("dtype", flat.dtype), ("device", flat.device))
            name = self.page.append_call(aten.zeros.default, ([extent],), options, place=flat)
            for place in sources:
                value = self.value_at(place)
                args = (Ref(name), value, place.shape, place.stride, place.offset)
                name = self.page.append_call(aten.as_strided_scatter.default, args, place=flat)
                storage.origins[place] = _strided_view(flat, place)
        storage.base = flat
        storage.origins.pop(flat, None)  # the program may have a view like `flat` of the former base
        storage.names[flat] = _DatedName(name, storage.write_count)
        return flat

    # ---- Writing

    def prepare(self, place: StorageView) -> None:
        """Make sure that a write to this tensor can be scattered up to the base of its storage.

        Each view on the way needs a row in SCATTER or INVERSE. If one has none, it is derived by its geometry instead,
        as a view that has one.
        """
        storage, written = self.of(place), place
        # A write to one root must reach the others, so they need a common base.
        if sum(root not in storage.origins for root in storage.roots) > 1:
            self.flatten(place)
        while place != storage.base:
            view = storage.origins.get(place)
            if view is None or not (view.func in SCATTER or view.func in INVERSE):
                self.derive_view(place)  # from the base, so nothing is left on the way
                return
            place = view.parent
            # A parent such as an expanded tensor: its value would have two elements for one place in memory. The
            # written tensor is derived from the base past it.
            if overlaps_itself(place.shape, place.stride):
                self.derive_view(written)
                return

    def assign(self, place: StorageView, name: str) -> None:
        """Make the value `name` the new value of a tensor, and so of all tensors that share its storage.

        The value is scattered from view to parent until the base has a new value. Then the names of the tensors on the
        way are current, and all other names of the storage are out of date.
        """
        storage = self.of(place)
        new_names: dict[StorageView, str] = {}
        # `place` goes from the written tensor up to the base, and `name` is the new value of each.
        while True:
            if self.has_geometry_of(name, place):
                # The value can be read as this tensor later: the tensor need not be derived from the base.
                new_names[place] = name
            if place == storage.base:
                break
            view = storage.origins[place]
            name = self.scatter_into_parent(view, name)
            place = view.parent
        storage.write_count += 1
        for place_, value in new_names.items():
            storage.names[place_] = _DatedName(value, storage.write_count)

    def scatter_into_parent(self, view: ViewOrigin, name: str) -> str:
        """Append the steps of a new value of a view's parent, with the value `name` in the place of the view, and
        return its name."""
        parent = self.value_at(view.parent)
        if view.func in SCATTER:
            func, args = SCATTER[view.func], (parent, Ref(name), *view.args)
        else:
            func, args = INVERSE[view.func](view, Ref(name))
        return self.with_geometry_of(self.page.append_call(func, args), view.parent, parent)

    def has_geometry_of(self, name: str, place: StorageView) -> bool:
        """Whether the value `name` has a tensor's geometry. Lazy conjugation may be done already: the elements are the
        same."""
        conjugated_already = place._replace(lazy=(False, False))
        return geometry(self.page.places[name]) in (geometry(place), geometry(conjugated_already))

    def with_geometry_of(self, name: str, place: StorageView, old: Ref) -> str:
        """Return the name of the value `name` with the dtype, shape and strides of the tensor that it is written to: if
        it has others, of a `copy` of it onto the tensor's old value (`old`)."""
        if self.has_geometry_of(name, place):
            return name
        # A tensor with gaps is no value of its own: it is scattered into its parent, where only its elements count.
        current = self.page.places[name]
        if (
            (current.dtype, current.shape) == (place.dtype, place.shape)
            and not is_dense(place.shape, place.stride)
            and place != self.of(place).base
        ):
            return name
        return self.page.append_call(aten.copy.default, (old, Ref(name)), place=place)

    def resize(self, before: StorageView, after: StorageView) -> None:
        """Enter a tensor that `resize_` or `set_` has changed from the StorageView `before` to `after`: it has another
        size, or another tensor's memory."""
        storage = self.by_number.get(after.memory)
        if storage is not None and after in storage.names:
            return
        known = [] if storage is None else [storage.base, *storage.roots]
        known += [before] if before.memory == after.memory else []
        # In memory that the storage has already, the tensor is one more view of it. -1: nothing is known of the memory.
        if bytes_spanned(after) <= max(map(bytes_spanned, known), default=-1):
            return
        # A resize counts as a write to the storage.
        write_count = 0 if storage is None else storage.write_count + 1
        # Without elements of its own in this memory, the tensor has nothing to keep.
        if storage is None or before.memory != after.memory or not math.prod(storage.base.shape):
            self.begin_uninitialized(after, write_count)
        else:
            self.begin_larger(storage.base, after, write_count)

    def begin_larger(self, old: StorageView, place: StorageView, write_count: int) -> None:
        """Start a storage that `resize_` has made larger: it keeps its elements, those of its base `old`, and the new
        ones are undefined. `place` is the tensor after that. Raise a CaptureError unless both tensors are the beginning
        of the storage, element by element: only then is the new one the old one with more elements behind it."""
        if old.dtype is not place.dtype or not all(map(_is_contiguous_from_start, (old, place))):
            raise CaptureError(
                "resize_ makes a tensor larger that is a view, or is not contiguous from the beginning of its memory "
                "on: make a new tensor of the whole size instead, and copy into it"
            )
        count = math.prod(old.shape)
        flat = self.page.append_call(aten.view.default, (self.value_at(old), [count]))
        options = (("dtype", place.dtype), ("device", place.device))
        rest = self.page.append_call(aten.empty.memory_format, ([math.prod(place.shape) - count],), options)
        joined = self.page.append_call(aten.cat.default, ([Ref(flat), Ref(rest)],))
        self.begin(
            self.page.append_call(aten.view.default, (Ref(joined), list(place.shape)), place=place), place, write_count
        )

    def begin_uninitialized(self, place: StorageView, write_count: int) -> None:
        """Start a storage of a new size, whose content is undefined until written."""
        options = (("dtype", place.dtype), ("device", place.device))
        args = (list(place.shape), list(place.stride or ()))
        self.begin(self.page.append_call(aten.empty_strided.default, args, options, place), place, write_count)


def _is_contiguous_from_start(place: StorageView) -> bool:
    """Whether a tensor is contiguous from the beginning of its storage on."""
    return not place.offset and place.stride == contiguous_strides(place.shape)


# ---- Sparse tensors


@dataclass(frozen=True, slots=True)
class _SparseValue:
    """A sparse tensor's name, and whether the positions of its elements, and their number, may vary when a replay runs
    on resampled values."""

    name: str
    positions_vary: bool = False
    count_varies: bool = False


class _SparseValues:
    """Every sparse tensor by its StorageView. A call that changes one in place is refused.

    The indices and values of a sparse tensor are strided tensors, which may be changed. Then only a later use of the
    sparse tensor is refused, with the error in `outdated`: optimizers such as SparseAdam write to the values of a
    sparse tensor that they no longer use. A port is always in use, by the caller. `constant_memories` are the memories
    whose content is the same on every replay: a sparse tensor whose indices lie in these alone has one structure.
    """

    def __init__(self, page: Page, storages: Storages, constant_memories: frozenset[int]) -> None:
        self.page, self.storages, self.constant_memories = page, storages, constant_memories
        self.values: dict[StorageView, _SparseValue] = {}
        self.outdated: dict[StorageView, CaptureError] = {}
        self.ports: set[StorageView] = set()

    def value_at(self, place: StorageView) -> Ref:
        """Return the value of a sparse tensor; raise a CaptureError if one of its parts was changed after it was
        made."""
        if place in self.outdated:
            raise self.outdated[place]
        if place not in self.values:
            self.build_compressed(place)
        return Ref(self.values[place].name)

    def build_compressed(self, place: StorageView) -> None:
        """Build a compressed sparse tensor from its parts, where no recorded call returned it: autograd makes such
        gradients below all operators. A COO tensor is always returned by a call."""
        if place.layout is torch.sparse_coo:
            _raise_without_maker(place)
        parts = [self.storages.value_at(part) for part in place.parts]
        options = (("dtype", place.dtype), ("layout", place.layout), ("device", place.device))
        func = aten._sparse_compressed_tensor_unsafe.default
        name = self.page.append_call(func, (*parts, list(place.shape)), options, place)
        self.enter_value(name, place, arguments=())  # made of strided tensors

    def begin(self, name: str, place: StorageView) -> None:
        """Enter a port that is a sparse tensor."""
        self.ports.add(place)
        self.values.setdefault(place, _SparseValue(name))

    def enter_value(self, name: str, place: StorageView, arguments: Sequence[StorageView]) -> None:
        """Enter a sparse tensor that a call has returned; `arguments` are the call's tensors."""
        if place not in self.values or place in self.outdated:
            self.values[place] = _SparseValue(name, *self.structure_dependence(place, arguments))
            self.outdated.pop(place, None)

    def note_update(self, call: TapedCall, written: StorageView) -> None:
        """Note that a call has changed a strided tensor, so that every sparse tensor with a part in its memory is
        outdated; raise a CaptureError if such a sparse tensor is a port."""
        for place in self.values:
            if any(part.memory == written.memory for part in place.parts):
                # The values are the last part.
                part = "values" if place.parts[-1].memory == written.memory else "indices"
                self.outdated[place] = self.refusal(
                    f"{call.func} changes the {part} of a {str(place.layout)[6:]} tensor in place"
                    f"{frames.place(call.source)}, and the sparse tensor is still in use",
                    f"change a clone of the {part}, and build another sparse tensor of that",
                )
                if place in self.ports:
                    raise self.outdated[place]

    def refusal_of_update(self, call: TapedCall, place: StorageView) -> CaptureError:
        """Return the error for a call that changes a sparse tensor in place, with the line and what to do."""
        advice = "write it out of place, as `s = s * 2` for `s.mul_(2)`"
        if call.sums and call.func is aten.add_.Tensor:  # autograd adds a gradient to `.grad`
            advice = "call backward once on the sum of the losses, or zero_grad() before each backward"
        elif call.func is aten.zero_.default:
            advice = "make another with torch.zeros_like, or set a gradient to None with zero_grad(set_to_none=True)"
        layout, where = str(place.layout)[6:], frames.place(call.source)
        return self.refusal(f"{call.func} changes a {layout} tensor in place{where}", advice)

    def refusal(self, change: str, advice: str) -> CaptureError:
        """Return the error for a change in place: `change` says what changes what, `advice` what to do instead. In the
        forward no other engine is asked (`every_engine`), because the others refuse sparse tensors there."""
        return CaptureError(
            f"{change}: sparse tensors are captured where nothing changes them in place; {advice}",
            every_engine=not self.page.echoes.in_backward,
        )

    def structure_dependence(self, place: StorageView, arguments: Sequence[StorageView]) -> tuple[bool, bool]:
        """Return whether the positions of the elements of a sparse result depend on values, and whether their number
        does (`positions_vary` and `count_varies` of a _SparseValue). `arguments` are the tensors of the call that
        returned it."""
        func = None if self.page.call is None else self.page.call.func
        known = [self.values[argument] for argument in arguments if argument in self.values]  # the sparse ones
        # The result of `sparse_mask` has the structure of the mask, which is the last argument.
        known = known[-1:] if func is aten.sparse_mask.default else known
        if not known:
            # It is made of strided tensors: by its indices (all parts but the last), or of a dense tensor.
            indices_vary = any(part.memory not in self.constant_memories for part in place.parts[:-1])
            return indices_vary, func in SPARSE_FROM_DENSE
        positions_vary = any(value.positions_vary for value in known)
        # Equal positions become one element, and how many are equal depends on the positions.
        merged = len(known) > 1 or func is aten._coalesce.default
        return positions_vary, any(value.count_varies for value in known) or (merged and positions_vary)


def _raise_without_maker(place: StorageView) -> NoReturn:
    """Raise for a tensor that no recorded call returned."""
    raise CaptureError(f"a tensor of shape {list(place.shape)} appears that no operator made")


def _constant_memories_of(tape: Tape) -> frozenset[int]:
    """Return the memories whose content is the same on every replay: indices of sparse ports, which recipes keep, and
    constants."""
    ports = [port for ports_in_memory in tape.ports.values() for port in ports_in_memory]
    indices = {part.memory for port in ports for part in port.place.parts[:-1]}
    return frozenset(indices | {port.place.memory for port in ports if port.key in tape.constants})


SIZE_DEPENDS_ON_VALUES = (
    aten._indices.default,
    aten._values.default,
    aten.indices.default,
    aten.values.default,
    aten.crow_indices.default,
    aten.col_indices.default,
    aten.ccol_indices.default,
    aten.row_indices.default,
)
"""Operators whose result's size is a sparse tensor's number of values."""

SPARSE_FROM_DENSE = (
    aten._to_sparse.default,
    aten._to_sparse.sparse_dim,
    aten._to_sparse_csr.default,
    aten._to_sparse_csc.default,
    aten._to_sparse_bsr.default,
    aten._to_sparse_bsc.default,
)
"""Operators whose result depends on where a dense tensor is not zero."""


# ---- All tensors of a tape


def is_whole(place: StorageView, extent: int) -> bool:
    """Whether a tensor is contiguous and has the first `extent` elements of its storage, and no more."""
    return place.offset == 0 and place.stride == contiguous_strides(place.shape) and math.prod(place.shape) == extent


def _is_reshaped(base: StorageView, place: StorageView) -> bool:
    """Whether a tensor has all elements of its storage's base in their order, in another shape."""
    extent = elements_spanned(place)
    return is_whole(base, extent) and is_whole(place, extent)


class CurrentValues:
    """The current value of each tensor, strided or sparse, by its StorageView: ports at first, then the results of
    calls."""

    def __init__(self, page: Page, tape: Tape, in_place: bool) -> None:
        self.page = page
        self.storages = Storages(page, in_place)
        self.sparse = _SparseValues(page, self.storages, _constant_memories_of(tape))

    def open_ports(self, tape: Tape, locals_: Mapping[str, str]) -> None:
        """Start the storages of the tape's ports; `locals_` has the name of each port's value by the port's key."""
        for ports in tape.ports.values():
            for port in ports:
                name = locals_[port.key]
                self.page.places[name] = port.place
                if port.place.layout is not torch.strided:
                    self.sparse.begin(name, port.place)
                else:
                    self.storages.begin_port(name, port.place)

    # ---- Reading

    def value_at(self, place: StorageView) -> Ref:
        """Return the current value of a tensor."""
        return self.storages.value_at(place) if place.layout is torch.strided else self.sparse.value_at(place)

    def latest_name(self, place: StorageView) -> str:
        """Return a tensor's latest name, or ''."""
        sparse_value = self.sparse.values.get(place)
        return self.storages.latest_name(place) if sparse_value is None else sparse_value.name

    def refs_for_tensors(self, value: Any, copies: Mapping[StorageView, str] | None = None) -> Any:
        """Return nested arguments with Refs in the place of StorageViews: to the tensor's current value, or, where
        `copies` has the name of one, to that copy, which the call then changes in place."""
        kind = type(value)
        if kind is StorageView:
            return Ref(copies[value]) if copies and value in copies else self.value_at(value)
        if kind is tuple:
            return tuple([self.refs_for_tensors(item, copies) for item in value])
        if kind is list:
            return [self.refs_for_tensors(item, copies) for item in value]
        return value

    def kwargs_with_refs(self, call: TapedCall, copies: Mapping[StorageView, str] | None = None) -> dict[str, Any]:
        """Return a call's keyword arguments with values in the place of tensors, as `refs_for_tensors` does."""
        return {key: self.refs_for_tensors(value, copies) for key, value in call.kwargs.items()}

    # ---- The results of a call

    def enter_value(self, name: str, place: StorageView, arguments: Sequence[StorageView], view: Any) -> None:
        """Enter the value `name` of the tensor `place`, which a call with the tensors `arguments` returned. `view` is
        called for its ViewOrigin if it shares memory with one of the arguments."""
        if place.layout is torch.strided:
            self.storages.enter_value(name, place, arguments, view)
        else:
            self.sparse.enter_value(name, place, arguments)

    def enter_results(self, call: TapedCall, name: str, excluded: Collection[StorageView] = ()) -> None:
        """Enter the results of a call, whose step has this name: as new storages, or as views of its arguments.
        Arguments in `excluded` do not count: the step ran on copies of them."""
        arguments = [place for place in placements(call.args, call.kwargs) if place not in excluded]
        self.enter_result(call, name, call.result, arguments)

    def enter_result(self, call: TapedCall, name: str, result: Any, arguments: Sequence[StorageView]) -> None:
        """Enter one result of a call under this name; of a tuple or list, each tensor inside, with a step that takes
        it from the tuple. `arguments` are the call's tensors."""
        if type(result) is StorageView:
            self.page.places[name] = result
            self.enter_value(name, result, arguments, lambda: _view_origin(call, result, arguments))
        elif isinstance(result, (tuple, list)):
            for index, item in enumerate(result):
                if type(item) is StorageView:
                    item_name = self.page.append_getitem(name, index, item)
                    self.enter_value(
                        item_name, item, arguments, functools.partial(_part_origin, call, index, item, arguments)
                    )
                elif isinstance(item, (tuple, list)) and any(type(leaf) is StorageView for leaf in item):
                    self.enter_result(call, self.page.append_getitem(name, index, item), item, arguments)

    # ---- Ports that updates in place would change

    def copy_port(self, written: StorageView) -> None:
        """Append a clone of the port that an update in place of the tensor `written` would change, and let the clone be
        the storage's new base. This is for graphs that update in place. Raise a CaptureError if several ports share the
        memory: a clone of one is not in the memory of the others."""
        storage = self.storages.by_number.get(written.memory)
        if storage is None or storage.write_count:  # no port's memory, or copied already
            return
        if len(storage.roots) > 1:
            raise CaptureError("inputs share memory and one is changed in place: pass copies, or leave functional=True")
        base = Ref(storage.names[storage.base].name)
        self.storages.write_base(storage, self.page.append_call(aten.clone.default, (base,), place=storage.base))
