"""Where the NaN and Inf of a forward come from: which operator made them, or with which tensor they came in.

While a block that watches numbers is open, each operator's results are looked at: one sum, and a closer look where it
is not finite. A tensor that is bad is remembered, weakly, with the Source of it, so that what takes it later has the
same Source. Uninitialised memory is no one's fault, and what an operator only writes over is not looked at.
"""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from backprint.capture.frames import is_users
from backprint.regions.stats import NARROW

Frame = tuple[CodeType, int]

UNINITIALISED = ("empty", "resize", "set_")
WRITES = {"copy", "fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential", "log_normal", "geometric"}
"""Operators that do not read what they change."""


class Source:
    """Where numbers went bad: the operator and its line, or, of those that came in, the first one that took them.

    `born` says which of the two, `cores` are the blocks that were open there, and `of` is the Source of the Inf that an
    operator made NaN of. `taken` is the tensor that they came in with, and `title` what that was called.
    """

    __slots__ = ("born", "cores", "frame", "given", "of", "op", "taken", "title", "what")

    def __init__(self, what: str, op: str, frame: Frame | None, cores: Sequence[Any]) -> None:
        self.what, self.op, self.frame = what, op, frame
        self.cores = tuple(weakref.ref(core) for core in cores)
        self.born = True
        self.given = False
        self.taken: weakref.ref[Tensor] | None = None
        self.title = ""
        self.of: Source | None = None

    def is_in(self, core: Any) -> bool:
        """Whether a block was open there."""
        return any(each() is core for each in self.cores)


_known: Any = WeakTensorKeyDictionary()
_lock = threading.RLock()


def bad(tensor: Tensor) -> str:
    """`NaN` or `Inf`, where a tensor has them, else ''. The sum of what is finite is finite, or else too large."""
    if not can_be(tensor) or not tensor.numel():
        return ""
    values = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    if tensor.dtype in NARROW:
        values = values.float()
    if math.isfinite(float(values.sum())):
        return ""
    if bool(torch.isnan(values).any()):
        return "NaN"
    return "Inf" if bool(torch.isinf(values).any()) else ""


def can_be(tensor: Tensor) -> bool:
    """Whether a tensor has numbers that can be looked at."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta or tensor.layout is not torch.strided:
        return False
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors of arguments or results, those in lists too."""
    for value in values if isinstance(values, (tuple, list)) else (values,):
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)


@functools.cache
def kind_of(func: Any) -> tuple[bool, bool, tuple[tuple[int, str], ...]]:
    """Of an operator: whether to look at its results, whether it reads what it changes, and what that is."""
    schema = func._schema
    packet = schema.name.partition("::")[2]
    written = tuple(
        (place, each.name)
        for place, each in enumerate(schema.arguments)
        if each.alias_info is not None and each.alias_info.is_write
    )
    looked = not func.is_view and not any(word in packet for word in UNINITIALISED)
    out = bool(written) and all(schema.arguments[place].is_out for place, _ in written)
    return looked, not out and packet.rstrip("_") not in WRITES, written


class Look:
    """One operator's run: what was bad of what it takes, and then, of what it gives."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.looked, reads, places = kind_of(func)
        self.changed = [
            tensor
            for place, name in places
            for tensor in tensors_in(args[place] if place < len(args) else kwargs.get(name))
        ]
        self.same: Tensor | None = None
        self.before = {id(tensor): bad(tensor) if reads else "" for tensor in self.changed} if self.looked else {}

    def taken(self) -> Iterator[tuple[Tensor, str]]:
        """The tensors that it took, as they were."""
        for tensor in tensors_in((*self.args, *self.kwargs.values())):
            known = self.before.get(id(tensor))
            yield tensor, bad(tensor) if known is None else known

    def source(self, result: Any, cores: Sequence[Any], frame: Frame | None) -> tuple[Source | None, bool]:
        """Where what it gives, or else takes, went bad; and whether it gives it on."""
        given = [*tensors_in(result), *self.changed] if self.looked else []
        kinds = [(tensor, kind) for tensor in given if (kind := bad(tensor))]
        if not kinds:
            return self.met(given), False
        what = "NaN" if any(kind == "NaN" for _, kind in kinds) else "Inf"
        source = self.born(what, cores, frame)
        for tensor, _ in kinds:
            remember(tensor, source)
        return source, True

    def met(self, fine: Sequence[Tensor]) -> Source | None:
        """Of an operator that gives good numbers: the Source of what it took, where that is known to be bad."""
        if not _known:
            return None
        taken = tensors_in((*self.args, *self.kwargs.values()))
        found = next((known for each in taken if (known := recall(each))), None)
        for tensor in fine:
            forget(tensor)
        return found

    def born(self, what: str, cores: Sequence[Any], frame: Frame | None) -> Source:
        """The Source of what it gives: that of what it took, or itself."""
        taken = [(tensor, kind) for tensor, kind in self.taken() if kind]
        same = next((tensor for tensor, kind in taken if kind == what), None)
        if same is not None:
            self.same = same if same._base is None else same._base
            return recall(same) or self.outside(same, what, cores, frame)
        source = Source(what, str(self.func), frame, cores)
        source.given = any(type(each) is float and not math.isfinite(each) for each in scalars(self.args, self.kwargs))
        if taken:
            source.of = recall(taken[0][0]) or self.outside(*taken[0], cores, frame)
        return source

    def outside(self, tensor: Tensor, what: str, cores: Sequence[Any], frame: Frame | None) -> Source:
        """Of a tensor that nobody saw being made: it came in, unless a node of an open block made it unseen."""
        node = tensor.grad_fn if tensor._base is None else tensor._base.grad_fn
        record: Any = node.metadata.get("traceback_") if node is not None else None
        if node is not None and any(core in getattr(record, "cores", ()) for core in cores):
            place = next((each for each in record.made.frames if is_users(each[0].co_filename)), None)
            found = Source(what, node.name(), place, record.cores)
        else:
            found = Source(what, str(self.func), frame, cores)
            found.born = False
        remember(tensor, found)
        return found


def called(tensor: Tensor, frame: FrameType | None) -> str:
    """What the innermost of the user's functions that has a tensor in a variable calls it."""
    from backprint.regions.names import locals_of  # which imports `watch`, and that this module

    while frame is not None:
        if is_users(frame.f_code.co_filename):
            found = next((name for name, value in locals_of(frame).items() if value is tensor), "")
            if found:
                return found
        frame = frame.f_back
    return ""


def scalars(args: Any, kwargs: dict[str, Any]) -> Iterator[Any]:
    """The numbers among arguments."""
    yield from (each for each in (*args, *kwargs.values()) if not isinstance(each, Tensor))


def remember(tensor: Tensor, source: Source) -> None:
    """A tensor is bad, and with it the one that it is a view of."""
    with _lock:
        _known[tensor] = source
        if tensor._base is not None:
            _known.setdefault(tensor._base, source)


def forget(tensor: Tensor) -> None:
    """A tensor is good again."""
    with _lock:
        _known.pop(tensor, None)


def recall(tensor: Tensor) -> Source | None:
    """The Source of a bad tensor, or of the one that it is a view of."""
    with _lock:
        found = _known.get(tensor)
        if found is None and tensor._base is not None:
            found = _known.get(tensor._base)
        return found
