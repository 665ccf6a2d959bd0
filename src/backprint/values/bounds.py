"""Limits on results, checked before a call is made, so that a sample cannot fill the memory or run without end.

- Numbers, lists and texts: Python's arithmetic has no limit, so `operator.pow(3, 10**8)` or a list that is doubled line
  by line fills the memory.
- Tensors: `kron`, `ones(5000000000)` and outer sums do too; and `norm` of a view of 2**40 elements takes no memory and
  never ends. A call whose tensors' sizes and numbers have a small product has a small result. Any other call is run on
  meta tensors of the same shapes, once for each combination of shapes. If a result's shape depends on values, its size
  is unknown.

A *target* is an operator as text, such as `operator.pow`. A *complaint*, and what the functions named `why_…` return,
is the reason why a call is refused, as text; '' if it may run.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.dynamo import not_loading
from backprint._torch.functorch import is_functorch_tensor
from backprint._torch.modes import TorchDispatchMode, without_modes
from backprint._torch.operators import OpOverload, schema_of
from backprint.common.memory import SMALL, why_too_large
from backprint.values.tree import plain_leaves

MOST_BITS = 4096
"""The most bits of an integer that a graph computes."""

MOST_ITEMS = 2**16
"""The most items of a list that a graph makes; items of nested lists count as often as they occur."""


def growth_complaint(target: str, args: Sequence[Any]) -> str:
    """Return why a call of plain arithmetic, such as `operator.pow`, is refused: its result could have any size; '' if
    it may run."""
    for argument in args:
        if isinstance(argument, str) and target in GROWS:
            return f"a text cannot be an operand of {target} in a graph"
        if isinstance(argument, (list, tuple, dict)) and tree_size(argument) > MOST_ITEMS:
            return f"a list of more than {MOST_ITEMS:,} items; no graph needs one"
    # With another number of arguments, the call itself raises.
    return GROWS[target](*args) if target in GROWS and len(args) == 2 else ""


def tree_size(value: Any) -> int:
    """Return the number of items of a nested value and of itself, each as often as it is reached; at most
    MOST_ITEMS + 1, where counting stops."""
    if isinstance(value, (list, tuple)) and not any(isinstance(item, (list, tuple, dict)) for item in value):
        return len(value) + 1
    return _tree_size(value, known={})


def _tree_size(value: Any, known: dict[int, int]) -> int:
    """Return what `tree_size` returns. `known` has the sizes of the containers so far, by id, so that one that is held
    many times is walked once."""
    if not isinstance(value, (list, tuple, dict)):
        return 1
    size = known.get(id(value))
    if size is None:
        known[id(value)] = MOST_ITEMS + 1  # what holds itself is endless
        items: Iterable[Any] = (*value, *value.values()) if isinstance(value, dict) else value
        size = min(1 + sum(_tree_size(item, known) for item in items), MOST_ITEMS + 1)
        known[id(value)] = size
    return size


def _sum_growth(left: Any, right: Any) -> str:
    """Return the complaint about a sum: two lists may be joined."""
    if isinstance(left, (list, tuple)) and tree_size(left) + tree_size(right) > MOST_ITEMS:
        return f"a list of more than {MOST_ITEMS:,} items; no graph needs one"
    return ""


def _product_growth(left: Any, right: Any) -> str:
    """Return the complaint about a product: a list may be repeated."""
    for items, times in ((left, right), (right, left)):
        if isinstance(items, (list, tuple)) and isinstance(times, int) and tree_size(items) * times > MOST_ITEMS:
            return f"a list of {len(items):,} items {times:,} times: more than {MOST_ITEMS:,} items; no graph needs one"
    if isinstance(left, int) and isinstance(right, int):
        return _bits_complaint(left.bit_length() + right.bit_length(), "a product")
    return ""


def _power_growth(left: Any, right: Any) -> str:
    """Return the complaint about a power of integers; floats do not grow."""
    if isinstance(left, int) and isinstance(right, int):
        return _bits_complaint(left.bit_length() * abs(right), "a power")
    return ""


def _shift_growth(left: Any, right: Any) -> str:
    """Return the complaint about a shift to the left; by a negative number, it raises by itself."""
    if isinstance(left, int) and isinstance(right, int):
        return _bits_complaint(left.bit_length() + max(right, 0), "a shift")
    return ""


def _bits_complaint(bits: int, what: str) -> str:
    """Return the complaint about an integer of that many bits; '' if a graph may have it."""
    return f"{what} of {bits:,} bits; a graph's numbers have at most {MOST_BITS:,}" if bits > MOST_BITS else ""


GROWS: Mapping[str, Callable[[Any, Any], str]] = {
    "operator.add": _sum_growth,
    "operator.mul": _product_growth,
    "operator.pow": _power_growth,
    "operator.lshift": _shift_growth,
    "operator.mod": lambda left, right: "",
}
"""The operators whose results may have any size, each with the complaint about its two operands; '' for none. A text is
refused as an operand of any of them: `%` formats it."""


# ---- The size of a call's result

SURE = SMALL // 16
"""A result of so few elements takes less than SMALL bytes, whatever its dtype."""


def why_outgrown(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why a call may not run: its result does not fit in memory, or it visits the elements of a view of more
    than that; '' if it may, or if the size is unknown."""
    # No operator makes more elements than the product of its arguments' elements and numbers.
    bound = math.prod(map(_growth_factor, (*args, *kwargs.values())))
    if bound <= SURE or not all(map(_has_own_values, plain_leaves(args, kwargs))):
        return ""
    try:
        result_bytes, visited_bytes = _largest_result(function, call_key(args), call_key(kwargs))
    except TypeError:  # an argument that cannot be a key of the cache
        return ""
    return why_too_large(result_bytes) or why_too_large(visited_bytes, "it visits the elements of a view of")


def _growth_factor(value: Any) -> int:
    """Return the factor by which one argument can enlarge a result: the elements of a tensor, a number itself, or, of a
    list, the product of the factors of its items."""
    kind = type(value)
    if kind is Tensor or kind is nn.Parameter:
        return value.numel() or 1
    if kind is int:
        return abs(value) or 1
    if kind is list or kind is tuple:
        return math.prod(map(_growth_factor, value))
    if kind is float and value and abs(value) < float("inf"):
        # A size may be divided by a number below 1. The inverse of a number below 1e-300 may be infinite.
        return int(max(abs(value), 1 / abs(value), 1)) if abs(value) > 1e-300 else 2**63
    return 1


def _has_own_values(leaf: Any) -> bool:
    """Whether an argument has values of its own: it is neither a symbol nor a tracer's tensor."""
    kind = type(leaf)
    if kind is not Tensor and not isinstance(leaf, Tensor):
        return not isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool))
    return (
        (kind is Tensor or kind is nn.Parameter)
        and not leaf.is_meta
        and leaf.layout is torch.strided
        and not leaf.is_quantized
        and not is_functorch_tensor(leaf)
    )


def call_key(value: Any) -> Any:
    """Return a call's arguments, or one of them, as a hashable key, from which `_call_from_key` makes them again: a
    tensor as shape, stride and dtype, and another value with its type, as 1, 1.0 and True are equal."""
    kind = type(value)
    if kind is Tensor or isinstance(value, Tensor):
        return (_TensorMark, value.shape, value.stride(), value.dtype)
    if kind in PLAIN_KINDS:
        return (kind, value)
    if isinstance(value, list):
        return (_ListMark, *map(call_key, value))
    if isinstance(value, tuple):
        return tuple(map(call_key, value))
    if isinstance(value, Mapping):
        return tuple((key, call_key(item)) for key, item in value.items())
    return (kind, value)


PLAIN_KINDS = frozenset({int, float, bool, str, type(None), torch.dtype})
"""Types whose values are their own key."""


class _ListMark:
    """Stands first in the key of a list, so that it is not the key of a tuple."""


class _TensorMark:
    """Stands first in the key of a tensor."""


def _call_from_key(value: Any) -> Any:
    """Return the arguments that a key of `call_key` stands for, with meta tensors."""
    if value and value[0] is _TensorMark:
        _, shape, stride, dtype = value
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    if value and value[0] is _ListMark:
        return [_call_from_key(item) for item in value[1:]]
    if len(value) == 2 and isinstance(value[0], type):  # a plain value after its type
        return torch.device("meta") if isinstance(value[1], torch.device) else value[1]
    return tuple(map(_call_from_key, value))


@functools.lru_cache(maxsize=4096)
def _largest_result(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[int, int]:
    """Return the bytes of the largest result of a call with the arguments of these keys, 0 if its shape depends on
    values, and the most bytes of one argument that it visits. The call is run on meta tensors, below all modes of the
    caller, because it is no call of the program."""
    visits = _VisitedBytes()
    try:
        # `not_loading`: a meta kernel in Python would else import Dynamo at its first call.
        with not_loading(), torch.no_grad(), without_modes(), visits, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            keywords = {key: _call_from_key(item) for key, item in kwargs}
            positional = _call_from_key(args)
            if isinstance(function, OpOverload):  # a factory must make a meta tensor too
                remaining_arguments = schema_of(function).arguments[len(positional) :]
                keywords |= {
                    argument.name: torch.device("meta") for argument in remaining_arguments if argument.name == "device"
                }
            result = function(*positional, **keywords)
    except Exception:  # no meta kernel, or an error: the real call reports it
        return 0, visits.most
    return max(map(storage_nbytes, plain_leaves(result)), default=0), visits.most


VISITS_FEW_ELEMENTS = frozenset(
    "new_zeros new_ones new_full new_empty new_empty_strided is_same_size sym_size sym_stride sym_numel size stride "
    "gather index_select index _unsafe_index embedding take".split()
)
"""Operators that visit only some elements of an argument, or none."""


class _VisitedBytes(TorchDispatchMode):
    """A dispatch mode that notes in `most` the most bytes of one argument that an operator visits: the bytes of all of
    its elements, which a view of little memory may have in any number. Operators that return views visit none."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not func.is_view and func.overloadpacket.__name__ not in VISITS_FEW_ELEMENTS:
            for leaf in plain_leaves(args, kwargs or {}):
                if isinstance(leaf, Tensor) and leaf.layout is torch.strided:
                    self.most = max(self.most, leaf.numel() * leaf.element_size())
        return func(*args, **(kwargs or {}))


def storage_nbytes(leaf: Any) -> int:
    """Return the bytes of a result's storage, not of its shape: a view of a small tensor may have any shape."""
    if not isinstance(leaf, Tensor) or leaf.layout is not torch.strided:
        return 0
    return leaf.untyped_storage().nbytes()
