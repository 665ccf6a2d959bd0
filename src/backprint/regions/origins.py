"""Where the NaN and Inf of a forward come from: which operator made them, or with which tensor they came in.

While a block that watches numbers is open, each operator's results are looked at: one sum, and a closer look where it
is not finite. A tensor with NaN or Inf is remembered, weakly, with its NonfiniteSource, so that operators that take it
later have the same source. Uninitialized memory, and memory that an operator only overwrites, are not looked at.
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

from backprint._torch.operators import schema_of
from backprint._torch.tensors import base_of
from backprint.tensor_stats import NARROW
from backprint.tracing.frames import is_users
from backprint.tree import plain_leaves

Frame = tuple[CodeType, int]

UNINITIALIZED = ("empty", "resize", "set_")
WRITES = {"copy", "fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential", "log_normal", "geometric"}
"""In-place operators that do not read the tensor that they overwrite."""


class NonfiniteSource:
    """Where NaN or Inf come from: the operator that made them, or the first operator that took them from outside.

    `born` says which of the two, `cores` are the blocks that were open there, and `of` is the source of the Inf that an
    operator turned into NaN. `taken` is the tensor that brought them in, and `title` its name.
    """

    __slots__ = ("born", "cores", "frame", "given", "of", "op", "taken", "title", "what")

    def __init__(self, what: str, op: str, frame: Frame | None, cores: Sequence[Any]) -> None:
        self.what, self.op, self.frame = what, op, frame
        self.cores = tuple(weakref.ref(core) for core in cores)
        self.born = True
        self.given = False
        self.taken: weakref.ref[Tensor] | None = None
        self.title = ""
        self.of: NonfiniteSource | None = None

    def is_in(self, core: Any) -> bool:
        """Whether a block was open there."""
        return any(each() is core for each in self.cores)


_known: Any = WeakTensorKeyDictionary()
_lock = threading.RLock()


def nonfinite_values(tensor: Tensor) -> str:
    """`NaN` or `Inf` where a tensor has them, else ''. A finite sum proves that there are none."""
    if not can_hold_nonfinite(tensor) or not tensor.numel():
        return ""
    values = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    if tensor.dtype in NARROW:
        values = values.float()
    if math.isfinite(float(values.sum())):
        return ""
    if bool(torch.isnan(values).any()):
        return "NaN"
    return "Inf" if bool(torch.isinf(values).any()) else ""


def can_hold_nonfinite(tensor: Tensor) -> bool:
    """Whether a tensor has floating-point values that can be looked at."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta or tensor.layout is not torch.strided:
        return False
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def nested_tensors(values: Any) -> Iterator[Tensor]:
    """The tensors of arguments or results, also those in lists."""
    return (leaf for leaf in plain_leaves(values) if isinstance(leaf, Tensor))


@functools.cache
def how_to_look(func: Any) -> tuple[bool, bool, tuple[tuple[int, str], ...]]:
    """Whether to look at an operator's results, whether it reads the arguments it writes, and which these are."""
    schema = schema_of(func)
    packet = schema.name.partition("::")[2]
    written = tuple(
        (place, each.name)
        for place, each in enumerate(schema.arguments)
        if each.alias_info is not None and each.alias_info.is_write
    )
    looked = not func.is_view and not any(word in packet for word in UNINITIALIZED)
    out = bool(written) and all(schema.arguments[place].is_out for place, _ in written)
    return looked, not out and packet.rstrip("_") not in WRITES, written


class OperatorLook:
    """One run of an operator: the NaN and Inf in its arguments, and then in its results."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.looked, reads, places = how_to_look(func)
        self.changed = [
            tensor
            for place, name in places
            for tensor in nested_tensors(args[place] if place < len(args) else kwargs.get(name))
        ]
        self.same: Tensor | None = None
        self.before = (
            {id(tensor): nonfinite_values(tensor) if reads else "" for tensor in self.changed} if self.looked else {}
        )

    def taken(self) -> Iterator[tuple[Tensor, str]]:
        """Its tensor arguments, each with the NaN or Inf that it had before the run."""
        for tensor in nested_tensors((*self.args, *self.kwargs.values())):
            known = self.before.get(id(tensor))
            yield tensor, nonfinite_values(tensor) if known is None else known

    def source(self, result: Any, cores: Sequence[Any], frame: Frame | None) -> tuple[NonfiniteSource | None, bool]:
        """The source of the NaN or Inf in its results, or else in its arguments; and whether its results have any."""
        given = [*nested_tensors(result), *self.changed] if self.looked else []
        kinds = [(tensor, kind) for tensor in given if (kind := nonfinite_values(tensor))]
        if not kinds:
            return self.met(given), False
        what = "NaN" if any(kind == "NaN" for _, kind in kinds) else "Inf"
        source = self.born(what, cores, frame)
        for tensor, _ in kinds:
            remember_source(tensor, source)
        return source, True

    def met(self, fine: Sequence[Tensor]) -> NonfiniteSource | None:
        """For an operator with finite results: the source of an argument with NaN or Inf, if one is known."""
        if not _known:
            return None
        taken = nested_tensors((*self.args, *self.kwargs.values()))
        found = next((known for each in taken if (known := recall_source(each))), None)
        for tensor in fine:
            forget_source(tensor)
        return found

    def born(self, what: str, cores: Sequence[Any], frame: Frame | None) -> NonfiniteSource:
        """The source of NaN or Inf in its results: that of an argument, or the operator itself."""
        taken = [(tensor, kind) for tensor, kind in self.taken() if kind]
        same = next((tensor for tensor, kind in taken if kind == what), None)
        if same is not None:
            self.same = same if base_of(same) is None else base_of(same)
            return recall_source(same) or self.outside(same, what, cores, frame)
        source = NonfiniteSource(what, str(self.func), frame, cores)
        source.given = any(
            type(each) is float and not math.isfinite(each) for each in nontensors(self.args, self.kwargs)
        )
        if taken:
            source.of = recall_source(taken[0][0]) or self.outside(*taken[0], cores, frame)
        return source

    def outside(self, tensor: Tensor, what: str, cores: Sequence[Any], frame: Frame | None) -> NonfiniteSource:
        """The source of a tensor that was never seen: it came from outside, unless a node of an open block made it."""
        node = tensor.grad_fn if base_of(tensor) is None else base_of(tensor).grad_fn
        record: Any = node.metadata.get("traceback_") if node is not None else None
        if node is not None and any(core in getattr(record, "cores", ()) for core in cores):
            place = next((each for each in record.made.frames if is_users(each[0].co_filename)), None)
            found = NonfiniteSource(what, node.name(), place, record.cores)
        else:
            found = NonfiniteSource(what, str(self.func), frame, cores)
            found.born = False
        remember_source(tensor, found)
        return found


def variable_holding(tensor: Tensor, frame: FrameType | None) -> str:
    """The name of the variable that holds a tensor, in the innermost of the user's functions that has one."""
    from backprint.regions.names import locals_of  # `names` imports `watch`, which imports this module

    while frame is not None:
        if is_users(frame.f_code.co_filename):
            found = next((name for name, value in locals_of(frame).items() if value is tensor), "")
            if found:
                return found
        frame = frame.f_back
    return ""


def nontensors(args: Any, kwargs: dict[str, Any]) -> Iterator[Any]:
    """The arguments that are not tensors."""
    yield from (each for each in (*args, *kwargs.values()) if not isinstance(each, Tensor))


def remember_source(tensor: Tensor, source: NonfiniteSource) -> None:
    """Remember the source of a tensor's NaN or Inf, also for the tensor that it is a view of."""
    with _lock:
        _known[tensor] = source
        if base_of(tensor) is not None:
            _known.setdefault(base_of(tensor), source)


def forget_source(tensor: Tensor) -> None:
    """Forget a tensor whose values are finite again."""
    with _lock:
        _known.pop(tensor, None)


def recall_source(tensor: Tensor) -> NonfiniteSource | None:
    """The source of a tensor's NaN or Inf, or of the tensor that it is a view of."""
    with _lock:
        found = _known.get(tensor)
        if found is None and base_of(tensor) is not None:
            found = _known.get(base_of(tensor))
        return found
