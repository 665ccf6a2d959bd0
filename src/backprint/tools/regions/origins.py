"""The sources of NaN and Inf in a forward: the operator that made them, or the tensor with which they came in.

While a block that watches numbers is open, each operator's results are checked: one sum, and every element if the sum
is not finite. A tensor with NaN or Inf is remembered, weakly, with its NonfiniteSource, so that operators that take it
later have the same source. Uninitialized memory, and memory that an operator only overwrites, are not checked.

Words of this file: a core is a RegionCore, the state of one region; `cores` are those whose blocks are open. A Frame is
a line of the program: a code object and an instruction. An OperatorRun is the record of an operator that ran. A kind is
`NaN`, `Inf` or '' for neither.
"""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from backprint._torch.operators import schema_of
from backprint._torch.tensors import base_of
from backprint.tools.regions.nouns import NonfiniteOrigin
from backprint.tools.regions.records import Frame, OperatorRun, stack_line
from backprint.trace import frames
from backprint.trace.frames import is_users
from backprint.values.statistics import NARROW_DTYPES
from backprint.values.tree import plain_leaves

UNINITIALIZED = ("empty", "resize", "set_")
"""Parts of the names of operators whose results are memory that nothing has written."""

WRITES = {"copy", "fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential", "log_normal", "geometric"}
"""In-place operators that do not read the tensor that they overwrite."""


@dataclass(slots=True, eq=False, repr=False)
class NonfiniteSource:
    """Where NaN or Inf come from: the operator that made them, or the first operator that took them from outside.

    `what` is `NaN` or `Inf`, `op` the name of the operator, and `frame` the line that called it. `born` is whether the
    operator made them, and `cores` are the regions whose blocks were open there. `of` is the source of the Inf that an
    operator turned into NaN. `taken` is the tensor that brought them in, and `title` the name of its variable.
    `from_number` says that the program passed NaN or Inf to the operator as a number.
    """

    what: str
    op: str
    frame: Frame | None
    cores: tuple[weakref.ref[Any], ...]
    born: bool = True
    from_number: bool = False
    taken: weakref.ref[Tensor] | None = None
    title: str = ""
    of: NonfiniteSource | None = None

    def is_in(self, core: Any) -> bool:
        """Whether the block of this region was open when the operator ran."""
        return any(reference() is core for reference in self.cores)


_known: Any = WeakTensorKeyDictionary()  # the NonfiniteSource of each tensor that was seen with NaN or Inf
_origins_lock = threading.RLock()


def _nonfinite_values(tensor: Tensor) -> str:
    """Return `NaN` if a tensor has any, else `Inf` if it has any, else ''; '' too where it cannot be looked at.

    A finite sum proves that there are none, in one reduction. A sum that overflows does not prove that there are some,
    so the elements are looked at then.
    """
    if not _can_hold_nonfinite(tensor) or not tensor.numel():
        return ""
    values = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    if tensor.dtype in NARROW_DTYPES:  # a sum of float16 overflows at 65504, and float8 has no sum
        values = values.float()
    if math.isfinite(float(values.sum())):
        return ""
    if bool(torch.isnan(values).any()):
        return "NaN"
    return "Inf" if bool(torch.isinf(values).any()) else ""


def _can_hold_nonfinite(tensor: Tensor) -> bool:
    """Whether a tensor has floating-point values that can be looked at: not those of a subclass, of a meta or sparse
    tensor, or while a CUDA graph is captured, which allows no copy to the host."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta or tensor.layout is not torch.strided:
        return False
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _nested_tensors(values: Any) -> Iterator[Tensor]:
    """Return the tensors of arguments or results, also those in lists."""
    return (leaf for leaf in plain_leaves(values) if isinstance(leaf, Tensor))


class _Inspection(NamedTuple):
    """How to look at an operator: whether its results are looked at, whether it reads the arguments that it writes, and
    the place and the name of each of these arguments."""

    looks_at_results: bool
    reads_written: bool
    written: tuple[tuple[int, str], ...]


@functools.cache
def _inspection_of(func: Any) -> _Inspection:
    """Return how to look at an operator, by its schema. Results that are views of an argument, or memory that nothing
    has written, are not looked at. `out=` arguments, and those of `copy_` and its like, are written and not read."""
    schema = schema_of(func)
    packet = schema.name.partition("::")[2]
    written = tuple(
        (place, argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    looks_at_results = not func.is_view and not any(word in packet for word in UNINITIALIZED)
    only_writes = bool(written) and all(schema.arguments[place].is_out for place, _ in written)
    return _Inspection(looks_at_results, not only_writes and packet.rstrip("_") not in WRITES, written)


class OperatorLook:
    """One run of an operator: the NaN and Inf in its arguments, and then in its results.

    It is made before the run, because an operator in place overwrites what it took: `changed` are the tensors that it
    writes, and `before` has, by the id of each, the kind that it had (`NaN`, `Inf` or ''). `same` is the argument from
    which the results have NaN or Inf, as far as `source` has found one.
    """

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        inspection = _inspection_of(func)
        self.looks_at_results = inspection.looks_at_results
        self.changed = [
            tensor
            for place, name in inspection.written
            for tensor in _nested_tensors(args[place] if place < len(args) else kwargs.get(name))
        ]
        self.same: Tensor | None = None
        self.before: dict[int, str] = {}
        if self.looks_at_results:
            for tensor in self.changed:
                self.before[id(tensor)] = _nonfinite_values(tensor) if inspection.reads_written else ""

    def nonfinite_arguments(self) -> Iterator[tuple[Tensor, str]]:
        """Yield the operator's tensor arguments, each with the kind that it had before the run: `NaN`, `Inf` or ''."""
        for tensor in _nested_tensors((*self.args, *self.kwargs.values())):
            known = self.before.get(id(tensor))
            yield tensor, _nonfinite_values(tensor) if known is None else known

    def source(self, result: Any, cores: Sequence[Any], frame: Frame | None) -> tuple[NonfiniteSource | None, bool]:
        """Return the source of the NaN or Inf in its results, or else in its arguments; and whether its results have
        any. It is called after the run; `frame` is the line that called the operator. What the operator wrote in place
        counts as a result."""
        results = [*_nested_tensors(result), *self.changed] if self.looks_at_results else []
        kinds = [(tensor, kind) for tensor in results if (kind := _nonfinite_values(tensor))]
        if not kinds:
            return self.source_of_arguments(results), False
        what = "NaN" if any(kind == "NaN" for _, kind in kinds) else "Inf"
        source = self.new_source(what, cores, frame)
        for tensor, _ in kinds:
            _remember_source(tensor, source)
        return source, True

    def source_of_arguments(self, results: Sequence[Tensor]) -> NonfiniteSource | None:
        """Return the source of the first argument that is known to have NaN or Inf; None if no argument is.

        This is for an operator whose results are finite. One of them may be a tensor that had NaN or Inf before and
        was overwritten, so the sources of `results` are forgotten.
        """
        if not _known:
            return None
        arguments = _nested_tensors((*self.args, *self.kwargs.values()))
        source = next((known for argument in arguments if (known := _recall_source(argument))), None)
        with _origins_lock:
            for tensor in results:
                _known.pop(tensor, None)
        return source

    def new_source(self, what: str, cores: Sequence[Any], frame: Frame | None) -> NonfiniteSource:
        """Return the source of `what`, NaN or Inf, in its results.

        If an argument has the same, it is the source of that argument, and `same` is set to the argument, or to the
        tensor that the argument is a view of. Else the operator itself is the source; if an argument has the other of
        NaN and Inf, as in `inf - inf`, the source says so in its `of`.
        """
        bad_arguments = [(tensor, kind) for tensor, kind in self.nonfinite_arguments() if kind]
        same = next((tensor for tensor, kind in bad_arguments if kind == what), None)
        if same is not None:
            self.same = same if base_of(same) is None else base_of(same)
            return _recall_source(same) or self.outside(same, what, cores, frame)
        values = (*self.args, *self.kwargs.values())
        from_number = any(type(value) is float and not math.isfinite(value) for value in values)
        source = NonfiniteSource(what, str(self.func), frame, _weakly(cores), from_number=from_number)
        if bad_arguments:
            argument, kind = bad_arguments[0]
            source.of = _recall_source(argument) or self.outside(argument, kind, cores, frame)
        return source

    def outside(self, tensor: Tensor, what: str, cores: Sequence[Any], frame: Frame | None) -> NonfiniteSource:
        """Return the source of the NaN or Inf (`what`) in an argument that no operator was seen to make, and remember
        the source for later.

        The argument came from outside, unless its grad_fn is a node of an open block, which `watch.py` has tagged in
        its metadata: then that node made it, by an operator that was not looked at.
        """
        node = tensor.grad_fn if base_of(tensor) is None else base_of(tensor).grad_fn
        tag: Any = node.metadata.get("traceback_") if node is not None else None
        if node is not None and any(core in getattr(tag, "cores", ()) for core in cores):
            frames_of_node = tag.made.frames  # innermost first
            frame_of_user = next(((code, at) for code, at in frames_of_node if is_users(code.co_filename)), None)
            source = NonfiniteSource(what, node.name(), frame_of_user, _weakly(tag.cores))
        else:
            source = NonfiniteSource(what, str(self.func), frame, _weakly(cores), born=False)
        _remember_source(tensor, source)
        return source


def variable_holding(tensor: Tensor, frame: FrameType | None) -> str:
    """Return the name of the variable that holds a tensor, in the innermost of the user's functions that has one; ''
    if none has. `frame` is where the search begins, and goes on to its callers."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            for name, value in frames.variables(frame).items():
                if value is tensor:
                    return name
        frame = frame.f_back
    return ""


def _weakly(cores: Sequence[Any]) -> tuple[weakref.ref[Any], ...]:
    return tuple(map(weakref.ref, cores))


def _remember_source(tensor: Tensor, source: NonfiniteSource) -> None:
    """Remember the source of a tensor's NaN or Inf; also for the tensor that it is a view of, if that has none yet."""
    with _origins_lock:
        _known[tensor] = source
        if base_of(tensor) is not None:
            _known.setdefault(base_of(tensor), source)


def _recall_source(tensor: Tensor) -> NonfiniteSource | None:
    """Return the source of a tensor's NaN or Inf, else of those in the tensor that it is a view of; None if neither is
    known to have some."""
    with _origins_lock:
        known = _known.get(tensor)
        if known is None and base_of(tensor) is not None:
            known = _known.get(base_of(tensor))
        return known


# ---- The origin, as a pass has it


def origin_of(core: Any, run: OperatorRun) -> NonfiniteOrigin:
    """Return where the NaN or Inf of an operator come from: an operator of the region's forward, or a tensor from
    outside of the region. `run` is the operator, which has a source."""
    source = run.source
    assert source is not None
    at = stack_line(source.frame) if source.frame is not None else None
    if source.born and source.is_in(core):  # an operator of the region made them
        return NonfiniteOrigin(source.what, "forward", source.op, at, detail=_describe_inf(source.of))
    # They came in with a tensor, and the source is the first operator that took this tensor. If that operator is in the
    # region, it is named; else the operator of `run` is.
    taken_in_region = source if source.is_in(core) else None
    line_of_run = stack_line(run.frame) if run.frame is not None else None
    op, line = (source.op, at) if taken_in_region else (run.name, line_of_run)
    name = _tensor_title(core, taken_in_region or run)
    detail = f"born in {source.op}" + (f" at {at}" if at is not None else "") if source.born else ""
    return NonfiniteOrigin(source.what, "inputs", op, line, name, detail=detail)


def _tensor_title(core: Any, holder: NonfiniteSource | OperatorRun) -> str:
    """Return the region's name for the tensor with which NaN or Inf came to an operator. `taken` is a weak reference to
    it: a parameter has its path, any other tensor the title that it had then."""
    tensor = holder.taken() if holder.taken is not None else None
    return (core.names.parameter(tensor) if tensor is not None else "") or holder.title


def _describe_inf(source: NonfiniteSource | None) -> str:
    """Return a text that says from which Inf an operator made a NaN (as `inf - inf` does), and where that Inf came
    from; '' if there was none."""
    if source is None:
        return ""
    if not source.born:
        return f"of {source.what} that came in from outside"
    at = f" at {stack_line(source.frame)}" if source.frame is not None else ""
    return f"of {source.what} from {source.op}{at}"
