"""The inputs of timed calls: the same tensors throughout, whose contents are drawn anew before every call.

A timed call must get inputs that are new, and not nearly those of an earlier call, or a compiler that remembers results
would be fast. So before each call some inputs get elements of their own, drawn from what they held and each
multiplied by a factor from 0.5 to 1: results move by more than a tolerance. Tangents and the program's own inputs are
rewritten as a whole, of one large tensor a window. The sign, the range and an index's bounds stay. Torch sees these
writes, so a cache that asks for a tensor's version is no cheat. Contents are a function of a seed, so that the process
that judges has them too.

Not all of the inputs change in every call (`WAYS`). In some calls a single input changes, or all elements but the first
ones, or all but every eighth; or the elements only change places, so that sums stay. A compiled function that
recognizes inputs by a part of them, or by a sum, is wrong in one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.tools.export.rerun import copies
from backprint.values.closeness import WHOLE, same_bits
from backprint.values.tree import strided_parts

WINDOW = 256
"""Elements of a large tensor that are rewritten at a time."""

SMALL = 2**16
"""A tensor of so many elements is rewritten as a whole; and one that has no more than a quarter of all."""

ALL, ONE_INPUT, NOT_FIRST, NOT_EVERY_EIGHTH, ORDER, SMALLER, LARGER = WAYS = (
    "all",
    "one input",
    "not the first elements",
    "not every eighth element",
    "order",
    "smaller",
    "larger",
)
"""What differs between the contents of a call and those that the inputs have."""

SIZES = {SMALLER: 2.0**-8, LARGER: 2.0}
"""About how many times as large all numbers are: an epsilon, or what is flushed to zero, shows in small ones; what
saturates, in large ones. They too are drawn anew for every call, or a compiler that remembers would meet them again."""

SMALLER_IN_16 = 2.0**-4
"""The least factor for float16, which has few smaller numbers."""

FIRST_ELEMENTS = 8
"""How many elements of an input stay, at most, where the first do."""

MEAN_FACTOR = 0.75
"""The mean of the factors by which elements are multiplied."""

BANK = 2**16
"""The least number of offsets in the bank from which the elements of a call are taken."""

MOST_WHOLE = 8
"""How many inputs are rewritten as a whole at every call, at most."""

MOST_IN_TURNS = 16
"""How many others are rewritten as a whole in turns, at most: writing them all takes longer than a small call."""

FIRST = ("tangent", "input")
"""The roles of inputs that are varied before others."""

STRIDES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)

INDEXING = frozenset(
    "aten.embedding.default aten.embedding_dense_backward.default aten.nll_loss_forward.default "
    "aten.nll_loss_backward.default aten.index.Tensor aten.gather.default aten.index_select.default".split()
)
"""Operators for which an index is as good as another of the same tensor."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An input that is varied: its place, whether as a whole or in a window, and whether in turns with others."""

    place: int
    whole: bool
    in_turns: bool = False


class VariedPart:
    """A tensor, or windows of it, and the bank that new elements come from."""

    def __init__(self, tensor: Tensor, whole: bool, seed: int) -> None:
        flat = tensor.detach().reshape(-1)
        self.whole, count = whole, flat.numel()
        self.size = count if whole else WINDOW
        source = torch.Generator().manual_seed(seed)
        length = self.size + max(BANK, count if whole else 0)
        if whole:
            bank = flat.repeat(-(-length // count))[:length]
        else:
            bank = flat[torch.randint(count, (length,), generator=source).to(flat.device)]
        if bank.is_floating_point():
            bank.mul_(torch.rand(length, generator=source).add_(1).mul_(0.5).to(bank))
        else:
            bank = bank[torch.randperm(length, generator=source).to(bank.device)]
        self.bank, self.span = bank, length - self.size
        memory = _dense_memory(tensor)
        self.before = (flat if memory is None else memory).clone()
        self.start = 0
        self.targets = [(tensor, memory)]
        """The tensor and its mirror, if there is one, each with its elements in the order of memory."""

    def put(self, number: int, way: str) -> None:
        """Write new elements, by a number, in one of the WAYS."""
        if not self.whole:
            self.start = (number // self.span) % (self.before.numel() - self.size)
        self.write(self.elements(number, way))

    def elements(self, number: int, way: str) -> Tensor:
        """Return new elements; the way decides which of them stay as they were."""
        before = self.before.narrow(0, self.start, self.size)
        if way == ORDER:
            source = torch.Generator().manual_seed(number)
            return before[torch.randperm(self.size, generator=source).to(before.device)]
        new = self.bank.narrow(0, number % self.span, self.size)
        if way in SIZES and before.is_floating_point():
            return new * (max(SIZES[way], SMALLER_IN_16 if before.dtype is torch.float16 else 0.0) / MEAN_FACTOR)
        if way in (NOT_FIRST, NOT_EVERY_EIGHTH):
            kept = slice(min(FIRST_ELEMENTS, self.size // 2)) if way == NOT_FIRST else slice(None, None, 8)
            new = new.clone()
            new[kept] = before[kept]
        return new

    def restore(self) -> None:
        """Restore the first contents of the tensor, or of its window."""
        self.write(self.before.narrow(0, self.start, self.size))

    def write(self, elements: Tensor) -> None:
        for tensor, memory in self.targets:
            if memory is None:
                tensor.copy_(elements.view(tensor.shape))
            elif self.whole:
                memory.copy_(elements)
            else:
                memory.narrow(0, self.start, self.size).copy_(elements)


class VariedInputs:
    """The inputs of one graph, and the parts of them that are varied.

    While they are `mirrored`, copies get the same contents, so that `changed` shows whether a call wrote into the
    inputs.
    """

    def __init__(self, values: Sequence[Any], pieces: Sequence[Piece], seed: int, ways: Sequence[str] = (ALL,)) -> None:
        self.values = list(values)
        self.original = copies(values)
        self.parts = {
            piece.place: VariedPart(self.values[piece.place], piece.whole, seed + number)
            for number, piece in enumerate(pieces)
        }
        self.dirty: VariedPart | None = None
        self.mirror: list[Any] = []
        self.watched: list[Callable[[], bool]] = []
        self.mirrored = False
        self.vary(pieces, ways)

    def vary(self, pieces: Sequence[Piece], ways: Sequence[str]) -> None:
        """Vary these of the pieces, in these ways."""
        self.ways = ways
        self.always = [self.parts[piece.place] for piece in pieces if piece.whole and not piece.in_turns]
        self.in_turns = [self.parts[piece.place] for piece in pieces if not piece.whole or piece.in_turns]

    def put_seed(self, seed: int) -> None:
        """Write the contents of a seed into the inputs; the seed modulo the number of ways chooses the way."""
        seed, turn = divmod(seed, len(self.ways))
        way = self.ways[turn]
        parts = [*self.always, *self.in_turns]
        alone = parts[seed % len(parts)] if way == ONE_INPUT and parts else None
        for place, part in enumerate(self.always):
            if alone in (None, part):
                part.put((seed * STRIDES[place % len(STRIDES)] >> (11 + place)) & 0x7FFFFFFFFFFF, way)
            else:
                part.restore()
        # One input in turns differs from the sample's at a time. Writing all of them takes longer than a small call.
        if self.dirty is not None:
            self.dirty.restore()
            self.dirty = None
        if self.in_turns and alone not in self.always:
            self.dirty = self.in_turns[seed % len(self.in_turns)] if alone is None else alone
            self.dirty.put(seed >> 3, way)

    def put(self, contents: Sequence[Any]) -> None:
        """Copy contents into every tensor, from tensors of the same shapes and strides."""
        for values in (self.values, self.mirror) if self.mirrored else (self.values,):
            for value, other in zip(values, contents, strict=True):
                if isinstance(value, Tensor):
                    _copy_contents(value, other)
        self.dirty = None

    def set_mirrored(self, mirrored: bool) -> None:
        """Begin or stop writing the mirror too; when it begins, inputs and mirror get the first contents."""
        if mirrored is self.mirrored:
            return
        self.mirrored = mirrored
        if mirrored and not self.mirror:
            self.mirror = copies(self.original)
            self.watched = [watched(*pair) for pair in zip(self.values, self.mirror, strict=True)]
        for place, part in self.parts.items():
            mirror = self.mirror[place]
            part.targets[1:] = [(mirror, _dense_memory(mirror))] if mirrored else []
        if mirrored:
            self.put(self.original)

    def changed(self) -> list[int]:
        """Return the places of inputs that differ from their mirror."""
        return [place for place, is_same in enumerate(self.watched) if not is_same()]


def watched(value: Any, mirror: Any) -> Callable[[], bool]:
    """Return a function that says whether a value equals its mirror to the bit; it compares whole memories where it
    can."""

    def is_same() -> bool:
        return unchanged(value, mirror)

    own, other = (_memory_as_integers(tensor) for tensor in (value, mirror))
    if own is None or other is None:
        return is_same
    equal, address, shape, stride = torch.equal, value.data_ptr(), value.shape, value.stride()

    def is_same_memory() -> bool:
        still = value.data_ptr() == address and value.shape == shape and value.stride() == stride
        return (still and equal(own, other)) or is_same()

    return is_same_memory


def _memory_as_integers(value: Any) -> Tensor | None:
    """Return a dense tensor's memory as integers, of which each equals itself; None of another tensor."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.is_quantized or not value.numel():
        return None
    memory = None if value.is_conj() or value.is_neg() else _dense_memory(value)
    if memory is None or value.is_complex():
        return None
    return memory.view(WHOLE[value.dtype.itemsize]) if value.is_floating_point() else memory


def candidates(values: Sequence[Any], roles: Sequence[str], indices: Collection[int]) -> list[Piece]:
    """Return the inputs that can be varied, those first that results depend on most; `indices` are places of integers
    whose elements may change places."""
    total = sum(value.numel() for value in values if isinstance(value, Tensor))
    pointers = [
        strided_parts(value)[-1].untyped_storage().data_ptr() if isinstance(value, Tensor) else 0 for value in values
    ]
    sharing: dict[int, list[int]] = {}
    for place, pointer in enumerate(pointers):
        sharing.setdefault(pointer, []).append(place)
    pieces = []
    for place, value in enumerate(values):
        others = sharing[pointers[place]]
        if not isinstance(value, Tensor) or (len(others) > 1 and place != _filling_place(values, others)):
            continue
        if not (writable(value) or (place in indices and own_memory(value) and value.numel())):
            continue
        whole = value.numel() <= max(SMALL, total // 4)
        if whole or (value.numel() > 2 * WINDOW and value.is_floating_point() and _dense_memory(value) is not None):
            pieces.append(Piece(place, whole))
    rank = {role: number for number, role in enumerate(FIRST)}
    return sorted(pieces, key=lambda piece: (rank.get(roles[piece.place], len(FIRST)), piece.place))


def _filling_place(values: Sequence[Any], places: Sequence[int]) -> int | None:
    """Return the place of a value that fills the memory that these share as elements of one dtype; None without one."""
    shared = [values[place] for place in places]
    if any(not isinstance(tensor, Tensor) or tensor.layout is not torch.strided for tensor in shared):
        return None
    if len({tensor.dtype for tensor in shared}) > 1:
        return None
    filling = (
        place
        for place in places
        if _dense_memory(values[place]) is not None and values[place].nbytes == values[place].untyped_storage().nbytes()
    )
    return next(filling, None)


def varied_pieces(
    pieces: Sequence[Piece], runs: Callable[[Sequence[Piece]], bool], moves: Callable[[Sequence[Piece]], bool]
) -> tuple[Piece, ...]:
    """Choose pieces with which eager `runs`: as few wholes as move all results, and others in turns."""
    usable = list(pieces) if runs(pieces) else [piece for piece in pieces if runs([piece])]
    if not runs(usable):
        return ()
    wholes, windows = ([piece for piece in usable if piece.whole is whole] for whole in (True, False))
    count = 2
    while count < min(len(wholes), MOST_WHOLE) and not moves([*wholes[:count], *windows]):
        count += 2
    count = min(count, MOST_WHOLE)
    others = [replace(piece, in_turns=True) for piece in wholes[count : count + MOST_IN_TURNS]]
    return (*wholes[:count], *others, *windows)


def _dense_memory(tensor: Tensor) -> Tensor | None:
    """Return a dense tensor's elements as they lie in memory; None if there are gaps between them."""
    room = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != room:
                return None
            room *= size
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def writable(tensor: Tensor) -> bool:
    """Whether single elements of a tensor can be written: it is of plain real numbers, with memory for each."""
    plain = tensor.layout is torch.strided and tensor.is_floating_point() and not tensor.is_neg()
    return plain and tensor.numel() > 0 and own_memory(tensor)


def own_memory(tensor: Tensor) -> bool:
    """Whether every element has memory of its own, by the strides."""
    room = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < room:
                return False
            room = stride * size
    return True


def _copy_contents(tensor: Tensor, other: Tensor) -> None:
    """Copy a tensor's contents into another; where elements share memory, copy the memory as it is."""
    if tensor.layout is torch.strided and not own_memory(tensor):
        tensor.untyped_storage().copy_(other.untyped_storage())
    else:
        tensor.copy_(other)


def fits_inputs(values: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether the contents of other inputs can be put into these: equal numbers, tensors of the same kind and place."""
    return len(values) == len(others) and all(map(_fits_tensor, values, others))


def _fits_tensor(value: Any, other: Any) -> bool:
    if not isinstance(value, Tensor) or not isinstance(other, Tensor):
        return type(value) is type(other) and (value == other or value != value)
    if (value.dtype, value.shape, value.layout, value.device) != (other.dtype, other.shape, other.layout, other.device):
        return False
    if value.layout is not torch.strided:
        return value.layout is torch.sparse_coo
    if own_memory(value):
        return True
    sizes = [tensor.untyped_storage().nbytes() for tensor in (value, other)]
    return (
        value.stride() == other.stride() and sizes[0] == sizes[1] and value.storage_offset() == other.storage_offset()
    )


def changed_places(values: Sequence[Any], before: Sequence[Any]) -> list[int]:
    """Return the places of inputs that differ in any bit."""
    return [place for place, pair in enumerate(zip(values, before, strict=True)) if not unchanged(*pair)]


def unchanged(value: Any, before: Any) -> bool:
    """Whether two values are the same tensor to the bit, or the same number."""
    if not isinstance(value, Tensor):
        return type(value) is type(before) and (value == before or value != value)
    if value.dtype != before.dtype or value.shape != before.shape:
        return False
    pairs = zip(strided_parts(value.detach()), strided_parts(before.detach()), strict=True)
    return all(
        same_bits(left.resolve_conj().resolve_neg(), right.resolve_conj().resolve_neg()) for left, right in pairs
    )
