"""Find what a call of an operator changes, and the operator that returns the new values instead."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Iterator
from typing import Any

import torch

from backprint._torch.operators import overload_name_of, schema_of
from backprint.errors import CaptureError
from backprint.graph.table import operators
from backprint.tracing.eager.placement import Placement
from backprint.tracing.eager.tape import TapedCall
from backprint.tracing.facts import SILENT_WRITERS

aten = torch.ops.aten


# ------------------------------------------------------------------ what a call changes


def changes_arguments(call: TapedCall) -> bool:
    """Whether a call changes some of its arguments."""
    return bool(schema_of(call.func).is_mutable) or changes_statistics(call)


def changes_statistics(call: TapedCall) -> bool:
    """Whether a call changes running statistics that its schema does not mark as written."""
    return schema_of(call.func).name in SILENT_WRITERS and bool(argument_named(call, "training"))


def argument_named(call: TapedCall, name: str) -> Any:
    """Return an argument by its name in the schema."""
    for index, each in enumerate(schema_of(call.func).arguments):
        if each.name == name:
            if name in call.kwargs:
                return call.kwargs[name]
            return call.args[index] if index < len(call.args) else each.default_value
    return None


def changed_arguments(call: TapedCall) -> Iterator[Any]:
    """Yield the tensors that a call writes to; None for an optional one that was left out."""
    silent = ("running_mean", "running_var") if changes_statistics(call) else ()
    for index, each in enumerate(schema_of(call.func).arguments):
        if each.name in silent or (each.alias_info is not None and each.alias_info.is_write):
            value = call.kwargs.get(each.name, call.args[index] if index < len(call.args) else None)
            yield from value if isinstance(value, (list, tuple)) and type(value) is not Placement else [value]


def has_out(call: TapedCall) -> bool:
    """Whether a call has `out=` arguments."""
    return any(each.is_out for each in schema_of(call.func).arguments)


def one_by_one(call: TapedCall) -> Iterator[TapedCall]:
    """Yield a `_foreach_` call whose tensors share memory as one call for each: each sees the updates before it."""
    count = len(call.args[0]) if call.args and type(call.args[0]) is list else 0
    if count < 2 or not schema_of(call.func).name.startswith("aten::_foreach_"):
        raise CaptureError(f"{call.func} changes several tensors that share memory: keep that part outside")
    for index in range(count):
        each = [[item[index]] if type(item) is list and len(item) == count else item for item in call.args]
        named = {
            key: [item[index]] if type(item) is list and len(item) == count else item
            for key, item in call.kwargs.items()
        }
        yield call._replace(args=tuple(each), kwargs=named)


# ------------------------------------------------------------------ other forms of an operator


RENAMED: dict[Any, Any] = {aten.bernoulli_.float: aten.bernoulli.p}
"""In-place operators whose functional form has another name."""


def plain_form(call: TapedCall) -> Any:
    """Return the operator that returns what a call writes in place, or None."""
    if not changes_statistics(call):
        return functional_of(call.func)
    if call.func is aten.native_batch_norm.default and all(type(place) is Placement for place in call.args[3:5]):
        return aten._native_batch_norm_legit_functional.default
    return None


def turned_form(call: TapedCall) -> Any:
    """Return the operator that returns the view that a call turns its argument into, as `t` for `t_`, or None."""
    return functional_of(call.func) or outer(call.func)


@functools.cache
def functional_of(func: Any) -> Any:
    """Return the operator that returns what another writes in place, or None."""
    if func in RENAMED:
        return RENAMED[func]
    schema = schema_of(func)
    space, name = schema.name.split("::")
    wanted = [(each.name, str(each.type)) for each in schema.arguments if not each.is_out]
    stems = [name.removesuffix("_"), name, f"{name}_functional", f"{name.removesuffix('_')}_functional"]
    for candidate in dict.fromkeys(stems):
        packet = getattr(getattr(torch.ops, space), candidate, None)
        for kind in packet.overloads() if packet is not None else ():
            found = getattr(packet, kind)
            given = [(each.name, str(each.type)) for each in schema_of(found).arguments]
            if given == wanted and not schema_of(found).is_mutable and str(found) in operators():
                return found
    return None


def outer(func: Any) -> Any:
    """Return the out-of-place form of an operator that turns a tensor into a view of itself: `t` for `t_`."""
    name = schema_of(func).name.split("::")[1].removesuffix("_")
    return getattr(getattr(aten, name, None), overload_name_of(func) or "default", None)


def without_generator(func: Any) -> Any:
    """Return the overload of a draw without a generator argument."""
    kind = overload_name_of(func).replace("generator_with_", "").replace("_generator", "").replace("generator", "")
    return func if "generator" not in overload_name_of(func) else getattr(func.overloadpacket, kind or "default")


BUILTINS = frozenset(dir(builtins))
"""Names that no step has, as in torch.fx: the result of `aten.sum` is `sum_1`."""


def stem(func: Any) -> str:
    """Return the preferred name of an operator's result."""
    return str(schema_of(func).name.split("::")[1]).strip("_")
