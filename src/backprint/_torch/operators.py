"""Operators: overloads and their schemas, kernels in the dispatcher, libraries, decompositions.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x`. `@uses` says which other private names a function needs, and `needed_by` for which commands: a
call raises PrivateApiError if this torch lacks one (`private`). Each function under *Probes* tries what this file takes
a private name to do, and returns whether it does that on this torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from backprint._torch import private
from backprint._torch.private import Private, Probe, look_up, probes_of, uses

if TYPE_CHECKING:  # the types of what `__getattr__` returns
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket

    def schema_of(operator: Any, /) -> Any: ...
    def name_of(operator: Any, /) -> str: ...
    def overload_name_of(operator: Any, /) -> str: ...


def schema_if_any(function: Any) -> Any:
    """Return an overload's schema; None for any other callable."""
    return getattr(function, "_schema", None)


def name_if_any(operator: Any) -> str:
    """Return the name in the dispatcher of an overload, or of a packet of overloads; '' for any other callable."""
    return str(getattr(operator, "_name", getattr(operator, "_qualified_op_name", "")))


def is_registration(value: Any) -> bool:
    """Whether an object registers operators, which a process does once."""
    return str(type(value).__module__).startswith(("torch.library", "torch._library"))


WAIT = "_c10d_functional.wait_tensor.default"
"""The operator that waits for a collective."""


def is_wait(operator: Any) -> bool:
    """Whether an operator waits for a collective. It returns the tensor that it takes."""
    return str(operator) == WAIT


CONTEXT = "context"
"""The key under which autograd's threads find the context variables of the thread that called it."""


@uses("torch._C._is_key_in_tls", "torch._C._get_obj_in_tls", needed_by=(private.CAPTURE,))
def callers_context() -> Any:
    """Return the context variables of the thread that called the backward which runs here. Return None outside of a
    backward, and on torch 2.11."""
    if not torch._C._is_key_in_tls(CONTEXT):
        return None
    return torch._C._get_obj_in_tls(CONTEXT)


# ---- While a program is traced


@uses("torch._library.simple_registry.singleton.find", needed_by=(private.AOT,))
@contextmanager
def without_effects_of_checks() -> Iterator[None]:
    """Do not treat error checks of linear algebra as effects, which would thread tokens through the graph."""
    holder = torch._library.simple_registry.singleton.find("aten::_linalg_check_errors").effect
    before = holder.effect
    holder.register(None)  # no effect
    try:
        yield
    finally:
        holder.register(before)


@contextmanager
def without_python_decompositions(operators: Any) -> Iterator[None]:
    """In this block, trace these operators (overloads) as eager runs them: without the kernels in Python that decompose
    them. Tracing goes by an overload's Python kernels before its C++ ones; eager never reads them."""
    removed = []
    for operator in operators:
        # The two keys under which torch registers a decomposition as a kernel.
        for key in (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd):
            if key in operator.py_kernels:
                removed.append((operator, key, operator.py_kernels.pop(key)))
        # An overload remembers the kernel that it found for a key.
        operator._dispatch_cache.clear()
    try:
        yield
    finally:
        for operator, key, kernel in removed:
            operator.py_kernels[key] = kernel
            operator._dispatch_cache.clear()


# ---- Probes

SIN = torch.ops.aten.sin.default
"""The operator on which probes try names."""


def overloads_are_known() -> bool:
    return isinstance(SIN, NAMES["OpOverload"].value())


def schemas_are_read() -> bool:
    schema = NAMES["schema_of"].value()(torch.ops.aten.add_.Tensor)
    return (
        schema.name == "aten::add_"
        and schema.is_mutable
        and [argument.name for argument in schema.arguments][:1] == ["self"]
    )


def names_are_read() -> bool:
    return bool(NAMES["name_of"].value()(torch.ops.aten.add.Tensor) == "aten::add.Tensor")


def names_of_packets_are_read() -> bool:
    return name_if_any(torch.ops.aten.add) == "aten::add"


def overload_names_are_read() -> bool:
    return bool(NAMES["overload_name_of"].value()(torch.ops.aten.add.Tensor) == "Tensor")


def composites_are_known() -> bool:
    can_decompose = NAMES["can_decompose"].value()
    return can_decompose(torch.ops.aten.matmul.default) and not can_decompose(torch.ops.aten.mm.default)


def operators_are_found_by_name() -> bool:
    return NAMES["lookup_op"].value()("aten::sin") is SIN


def python_kernels_are_listed() -> bool:
    """Whether a kernel that is registered in Python is in torch's list; it is removed again."""
    listed = NAMES["registered_kernels"].value()
    library = torch.library.Library("backprint_probe", "FRAGMENT")
    try:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        return "backprint_probe/twice/CPU" in listed
    finally:
        NAMES["destroy_library"].value()(library)


def dispatch_keys_are_there() -> bool:
    keys = NAMES["DispatchKey"].value()
    names = ("Python", "Autograd", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return all(hasattr(keys, name) for name in names)


def kernels_are_called() -> bool:
    kernel = NAMES["kernel_for_key"].value()("aten::sin", "CPU")
    keys = NAMES["keys_after"].value()(NAMES["DispatchKey"].value().Python)
    return bool(kernel.call_boxed(keys, torch.zeros(1)).item() == 0)


def operators_are_redispatched() -> bool:
    keys = torch._C._dispatch_keys(torch.zeros(1)) & NAMES["keys_after"].value()(NAMES["DispatchKey"].value().Python)
    return bool(SIN.redispatch(keys, torch.zeros(1)).item() == 0)


def keys_of_devices_are_known() -> bool:
    return NAMES["key_of_device"].value()("cpu") == "CPU" and NAMES["has_kernel"].value()("aten::sin", "CPU")


def decompositions_are_found() -> bool:
    operator = torch.ops.aten.silu_backward.default
    return operator in NAMES["get_decompositions"].value()([operator])


def waits_return_their_argument() -> bool:
    if not torch.distributed.is_available():
        return True
    wait, tensor = torch.ops._c10d_functional.wait_tensor.default, torch.zeros(1)
    return is_wait(wait) and bool(wait(tensor).data_ptr() == tensor.data_ptr())


def contexts_are_read() -> bool:
    return callers_context() is None


def effects_are_turned_off() -> bool:
    with without_effects_of_checks():
        return torch._library.simple_registry.singleton.find("aten::_linalg_check_errors").effect.effect is None


def python_decompositions_are_taken_out() -> bool:
    operator = torch.ops.aten.upsample_nearest2d.vec
    before = dict(operator.py_kernels)
    with without_python_decompositions([operator]):
        fewer = len(operator.py_kernels) < len(before)
    return fewer and operator.py_kernels == before


# ---- Names

NAMES = {
    "OpOverload": Private(
        "torch._ops.OpOverload",
        "The class of one overload of an operator, as `torch.ops.aten.sin.default`.",
        (private.REPLAY,),
        holds=overloads_are_known,
    ),
    "OpOverloadPacket": Private(
        "torch._ops.OpOverloadPacket",
        "The class of an operator with all of its overloads, as `torch.ops.aten.sin`.",
        (private.CAPTURE,),
    ),
    "HigherOrderOperator": Private(
        "torch._ops.HigherOrderOperator",
        "The class of operators that take functions, such as `torch.cond`'s.",
        (private.CAPTURE,),
    ),
    "schema_of": Private(
        "torch._ops.OpOverload._schema",
        "Return an overload's schema: its name, arguments, returns, and `is_mutable`.",
        (private.REPLAY,),
        of=lambda: torch.ops.aten.sin.default,
        holds=schemas_are_read,
    ),
    "name_of": Private(
        "torch._ops.OpOverload._name",
        "Return an overload's name in the dispatcher, as `aten::add.Tensor`.",
        (private.CAPTURE,),
        of=lambda: torch.ops.aten.sin.default,
        holds=names_are_read,
    ),
    "overload_name_of": Private(
        "torch._ops.OpOverload._overloadname",
        "Return the name of an overload alone, as `Tensor` or `default`.",
        (private.EAGER,),
        of=lambda: torch.ops.aten.sin.default,
        holds=overload_names_are_read,
    ),
    "can_decompose": Private(
        "torch._ops.OpOverload._can_decompose",
        "Whether an overload has a composite kernel, which calls other operators only.",
        (private.CAPTURE,),
        holds=composites_are_known,
    ),
    "lookup_op": Private(
        "torch._library.utils.lookup_op",
        "Return the overload that has a name in the dispatcher.",
        (private.CAPTURE,),
        holds=operators_are_found_by_name,
    ),
    "registered_kernels": Private(
        "torch.library._impls",
        "The kernels that are registered in Python, as `namespace/operator/DispatchKey`.",
        (private.CAPTURE,),
        holds=python_kernels_are_listed,
    ),
    "destroy_library": Private(
        "torch.library.Library._destroy", "Remove what a Library has registered.", (private.CAPTURE,)
    ),
    "DispatchKey": Private(
        "torch._C.DispatchKey", "The keys of the dispatcher.", (private.CAPTURE,), holds=dispatch_keys_are_there
    ),
    "keys_after": Private(
        "torch._C._dispatch_keyset_full_after", "Return the set of the dispatch keys after one.", (private.CAPTURE,)
    ),
    "kernel_for_key": Private(
        "torch._C._dispatch_get_computed_kernel_for_dispatch_key",
        "Return the kernel that the dispatcher calls for an operator and a key; its `call_boxed` runs it.",
        (private.CAPTURE,),
        holds=kernels_are_called,
    ),
    "has_kernel": Private(
        "torch._C._dispatch_has_kernel_for_dispatch_key",
        "Whether a kernel is registered for an operator and a key.",
        (private.CAPTURE,),
    ),
    "key_of_device": Private(
        "torch._C._dispatch_key_for_device",
        "Return the dispatch key of a type of device, by its name.",
        (private.CAPTURE,),
        holds=keys_of_devices_are_known,
    ),
    "core_decompositions": Private(
        "torch._decomp.core_aten_decompositions",
        "Return the decompositions to the operators of Core ATen.",
        (private.BENCH,),
    ),
    "decomposition_table": Private(
        "torch._decomp.decomposition_table", "The decompositions of every operator that has one.", (private.BENCH,)
    ),
    "get_decompositions": Private(
        "torch._decomp.get_decompositions",
        "Return the decompositions of the operators in a list.",
        (private.AOT,),
        holds=decompositions_are_found,
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    Probe("torch._ops.OpOverloadPacket._qualified_op_name", names_of_packets_are_read, (private.CAPTURE,)),
    Probe("torch._ops.OpOverload.redispatch", operators_are_redispatched, (private.CAPTURE,)),
    Probe("torch._C._get_obj_in_tls", contexts_are_read, (private.CAPTURE,)),
    Probe("torch.ops._c10d_functional.wait_tensor", waits_return_their_argument, (private.EAGER,)),
    Probe("torch._library.simple_registry", effects_are_turned_off, (private.AOT,)),
    Probe("torch._ops.OpOverload._dispatch_cache", python_decompositions_are_taken_out, (private.AOT,)),
)
