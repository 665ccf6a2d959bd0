"""The current value of every sparse tensor.

It has a value of its own, which is valid until one of its parts is written to. Then it is rebuilt from its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from backprint.errors import CaptureError
from backprint.graph.nouns import Ref
from backprint.tracing.eager.page import Page
from backprint.tracing.eager.placement import Placement
from backprint.tracing.eager.storages import Storages
from backprint.tracing.eager.tape import Tape
from backprint.tracing.eager.views import ViewOrigin

aten = torch.ops.aten


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
