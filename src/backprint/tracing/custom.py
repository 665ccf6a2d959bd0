"""Custom operators with a Python body: every engine sees the operators of the body, forward and backward.

The dispatcher does this: while a program is captured, each such operator has a kernel for the key of dispatch modes
(`Python`), which redispatches to the operator's own kernel: its autograd formula has run by then, autocast and grad
mode are as in an ordinary run, and the modes see the operators of the body. An operator stays whole if the user allows
it by name, if its body leaves torch (numpy, a pointer), if it cannot run without values in a fake capture, and if its
kernel is not in Python.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from backprint._torch import pytree
from backprint._torch.dynamo import TracingContext
from backprint._torch.fake import FakeTensor
from backprint._torch.operators import (
    DispatchKey,
    HigherOrderOperator,
    callers_context,
    can_decompose,
    destroy_library,
    get_decompositions,
    has_kernel,
    kernel_for_key,
    key_of_device,
    keys_after,
    lookup_op,
    name_if_any,
    name_of,
    registered_kernels,
)
from backprint.errors import DataDependentError, UsageError, for_program, is_defect
from backprint.graph.nouns import BUILT_IN, Capture, allowed
from backprint.tracing import frames
from backprint.values import settings

P = ParamSpec("P")

KEYS_AFTER_PYTHON = keys_after(DispatchKey.Python)
"""The dispatch keys after the one of dispatch modes."""


@dataclass(slots=True, eq=False)
class ThreadMark:
    """Marks the thread of a capture while it is on, and the threads that autograd runs for it.

    Torch's own thread-local objects would do too, but one that a thread still holds when it ends crashes an interpreter
    that ends at the same time.
    """

    on: bool


MARK: ContextVar[ThreadMark | None] = ContextVar("backprint: bodies of custom operators are captured", default=None)

GENERAL = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
"""Dispatch keys of kernels for every device."""

COMPUTING = frozenset((*GENERAL, *"CPU CUDA HIP XLA MPS XPU HPU MTIA IPU Lazy MAIA VE PrivateUse1".split()))
"""Dispatch keys of kernels that compute."""

TORCH_NAMESPACES = BUILT_IN | frozenset(
    "_c10d_functional _c10d_functional_autograd _dtensor _inductor_test _native c10d c10d_functional debug_mode_ops "
    "debugprims export flex_lib fsdp inductor mkl mkldnn onednn onnx onnx_symbolic quantized rngprims streams "
    "symm_mem".split()
)
"""Torch's own namespaces; all others belong to libraries."""


ALLOW = "allow="
"""The option that keeps an operator whole."""


class LeavesTorch(BaseException):
    """Raised where the body of an operator leaves torch. It is a BaseException, so that no `except Exception` in the
    body catches it."""


@dataclass(slots=True, eq=False)
class OpenedOperators:
    """The operators whose bodies a capture records.

    `kept_whole` has those that stay operators, with the reason, and `leaving_torch` those that turned out to have to.
    """

    kept_whole: dict[str, str]
    leaving_torch: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, Any] = field(default_factory=dict)

    def run_body(self, operator: Any, keys: Any, args: Any, kwargs: Any) -> Any:
        """Run the operator's body instead of the operator, or the operator as a whole."""
        name = name_of(operator)
        if (
            name not in self.kept_whole
            and name not in self.leaving_torch
            and is_capturing()
            and is_python(operator, args, kwargs)
        ):
            try:
                with entering_handling_modes():
                    return for_program(operator.redispatch, keys & KEYS_AFTER_PYTHON, *args, **kwargs)
            except LeavesTorch as leaving:
                self.leaving_torch[name] = str(leaving)
            except Exception as error:
                if is_defect(error):
                    raise
                if any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves((args, kwargs))):
                    reason = (str(error).splitlines() or [""])[0].partition(" (it depends on")[0][:300]
                    self.leaving_torch[name] = f"its body does not run without values: {reason}"
                elif isinstance(error, DataDependentError) and ALLOW not in str(error):
                    raise DataDependentError(f"{error}, or {ALLOW}({name!r},) to keep that operator whole") from error
                else:
                    raise
        return for_program(KERNELS_BEFORE[name].call_boxed, keys, *args, **kwargs)

    def register_kernels(self) -> None:
        """Register a kernel of ours for every operator that another capture has not opened already."""
        for operator in operators():
            name = name_of(operator)
            KERNELS_BEFORE[name] = kernel_for_key(name, "Python")
            self.libraries[name] = torch.library.Library(operator.namespace, "IMPL")
            self.libraries[name].impl(
                operator, functools.partial(run_opened_operator, operator), "Python", with_keyset=True
            )

    def remove_kernels(self) -> None:
        """Remove the kernels again."""
        for name in list(self.libraries):
            destroy_library(self.libraries.pop(name))
            del KERNELS_BEFORE[name]


OPENED_OPERATORS: list[OpenedOperators] = []
"""The OpenedOperators of the running captures, outermost first."""

KERNELS_BEFORE: dict[str, Any] = {}
"""The kernel that each opened operator has without ours: it calls the dispatch modes."""


def run_opened_operator(operator: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an opened operator: the kernel that `register_kernels` registers."""
    return OPENED_OPERATORS[-1].run_body(operator, keys, args, kwargs)


# ---- Which operators have a body


def operators() -> list[Any]:
    """Return the operators for which a library has registered a Python kernel, and none for dispatch modes."""
    names = set()
    for entry in registered_kernels:
        space, name, key = entry.split("/")
        if space not in TORCH_NAMESPACES and key in COMPUTING and f"{space}/{name}/Python" not in registered_kernels:
            names.add(f"{space}::{name}")
    return [lookup_op(name) for name in sorted(names)]


def is_python(operator: Any, args: Any, kwargs: Any) -> bool:
    """Whether the kernel for these arguments is in Python."""
    leaves = pytree.tree_leaves((args, kwargs))
    device = next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), None)
    device = device or next((leaf for leaf in leaves if isinstance(leaf, torch.device)), torch.device("cpu"))
    return has_body(operator, key_of_device(device.type))


def has_body(operator: Any, key: str) -> bool:
    """Whether the kernel for a device is in Python: the device's own kernel, or the general one."""
    here = f"{operator.namespace}/{name_of(operator).partition('::')[2]}/"
    if has_kernel(name_of(operator), key):
        return here + key in registered_kernels
    return any(here + general in registered_kernels for general in GENERAL)


# ---- While a body runs


class Handling(threading.local):
    """The function modes that are off now because each is handling a function, outermost first."""

    def __init__(self) -> None:
        self.modes: list[Any] = []


HANDLING = Handling()


def call_for_mode(mode: Any, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function for a function mode of ours, which is off while it handles the function.

    If the function runs a custom operator, the mode is entered again for the operator's body.
    """
    handling = HANDLING.modes
    handling.append(mode)
    try:
        return for_program(func, *args, **kwargs)
    finally:
        handling.pop()


@contextlib.contextmanager
def entering_handling_modes() -> Iterator[None]:
    """Enter the function modes that are handling an operator again, for its body, and a BodyMode."""
    handling, HANDLING.modes = HANDLING.modes, []
    try:
        with contextlib.ExitStack() as stack:
            for mode in reversed(handling):
                stack.enter_context(mode)
            stack.enter_context(BodyMode())
            yield
    finally:
        HANDLING.modes = handling


class BodyMode(TorchFunctionMode):
    """A function mode that raises LeavesTorch where the body of an operator leaves torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in MEMORY_ACCESS:
            raise LeavesTorch(f"its body leaves torch by Tensor.{func.__name__}{frames.place(frames.here({}))}")
        if func is Tensor.tolist:
            return tolist_by_items(*args)
        return call_for_mode(self, func, args, kwargs or {})


MEMORY_ACCESS = (
    Tensor.numpy,
    Tensor.__array__,
    Tensor.data_ptr,
    Tensor.__dlpack__,
    Tensor.untyped_storage,
    Tensor.storage,
)
"""Functions that give a body a tensor's memory, which it can use without an operator."""


def tolist_by_items(tensor: Tensor) -> Any:
    """Return `tensor.tolist()`, read with an `item` for each number, which modes see."""
    return [tolist_by_items(part) for part in tensor.unbind()] if tensor.dim() else tensor.item()


@functools.cache
def is_composite(func: Any) -> bool:
    """Whether an operator only calls others, on every device. Below autograd, modes see such an operator as a whole."""
    if isinstance(func, HigherOrderOperator) or func.namespace != "aten":
        return False
    try:
        own = has_kernel(name_of(func), "CPU")
    except RuntimeError:  # operators that read a nested tensor's sizes are unknown to the dispatcher
        return False
    return not own and bool(can_decompose(func))


def decompose_under_mode(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a composite operator as its decomposition, whose operators the mode sees."""
    with mode:
        return func.decompose(*args, **(kwargs or {}))


# ---- While a program is captured


def is_capturing() -> bool:
    """Whether this thread captures a program, and is not compiling one."""
    return is_marked() and TracingContext.try_get() is None


@contextlib.contextmanager
def operator_bodies_captured(whole: dict[str, str]) -> Iterator[OpenedOperators]:
    """Run custom operators as their bodies in this thread, except those that are kept whole."""
    opened_ = OpenedOperators(whole)
    OPENED_OPERATORS.append(opened_)
    try:
        opened_.register_kernels()
        with marking_thread(True):
            yield opened_
    finally:
        opened_.remove_kernels()
        OPENED_OPERATORS.remove(opened_)


def operators_kept_as_they_are() -> contextlib.AbstractContextManager[None]:
    """Run custom operators without their bodies recorded in this thread."""
    return marking_thread(False)


@contextlib.contextmanager
def marking_thread(on: bool) -> Iterator[None]:
    """Set or clear this thread's mark, and restore it afterwards. Another thread may end what this one began."""
    mark = ThreadMark(on)
    token = MARK.set(mark)
    try:
        yield
    finally:
        mark.on = False
        with contextlib.suppress(ValueError):  # of another thread's context
            MARK.reset(token)


def is_marked() -> bool:
    """Whether this thread is marked, or the thread whose backward runs here."""
    mark = MARK.get()
    if mark is None and (context := callers_context()) is not None:
        mark = context.get(MARK)
    return mark is not None and mark.on


def operators_kept_whole(allow: Iterable[str], decompose: Iterable[Any] = ()) -> dict[str, str]:
    """Return the operators that stay whole from the start, by name, with the reason: `allow=` or `decompose=` has
    them."""
    names = {
        name: f"torch.ops.{lookup_op(name)}"
        for name in (*KERNELS_BEFORE, *(name_of(operator) for operator in operators()))
    }
    allow = tuple(name.removeprefix("torch.ops.") for name in allow)
    reasons = {name: "allowed" for name, target in names.items() if allowed(target, allow)}
    decomposed = {name_if_any(key) for key in decompose}
    return reasons | {name: "decompose= has it" for name in names if {name, name.partition(".")[0]} & decomposed}


def captures_operator_bodies(capture: Callable[P, Capture]) -> Callable[P, Capture]:
    """Make a capturing function capture the bodies of custom operators; it takes `allow` and `decompose`.

    Where a body leaves torch, the capture starts again with that operator whole, because a part of the body has run. It
    also starts again where the program itself has registered an operator.
    """

    @functools.wraps(capture)
    def captured(*args: P.args, **kwargs: P.kwargs) -> Capture:
        options: Any = kwargs
        with settings.ONE_AT_A_TIME:
            reasons = operators_kept_whole(options.get("allow") or (), options.get("decompose") or ())
            kept_by_user, again = set(reasons), True
            while again:
                with operator_bodies_captured(reasons) as opened:
                    try:
                        result = capture(*args, **kwargs)
                        registered_meanwhile = (custom_operators_called(result) - set(reasons)) & {
                            name_of(operator) for operator in operators()
                        }
                        again = bool(opened.leaving_torch or registered_meanwhile)
                    except Exception:
                        if not opened.leaving_torch:
                            raise
                reasons = reasons | opened.leaving_torch
        names = custom_operators_called(result)
        notes = [f"{name} stays whole: {reason}" for name, reason in reasons.items() if name in names - kept_by_user]
        return replace(result, why=(*result.why, *notes)) if notes else result

    return captured


def custom_operators_called(capture: Capture) -> set[str]:
    """Return the custom operators that a Capture calls."""
    names = (target.removeprefix("torch.ops.") for target in capture.requires)
    return {name.replace(".", "::", 1).removesuffix(".default") for name in names}


# ---- PyTorch's own decompositions, by operator name


def decompositions_of(names: Sequence[str]) -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of these operators, named `ns::op` or `ns::op.overload`."""
    return {key: function for name in names for key, function in decompositions_of_operator(name).items()}


def decompositions_of_operator(name: str) -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of one operator, by overload."""
    operator = operator_named(name)
    decompositions = dict(get_decompositions([operator]))
    if not decompositions:
        raise UsageError(
            f"decompose: PyTorch has no decomposition of {name}: pass your own, decompose={{torch.ops."
            f"{name.replace('::', '.')}: function}}"
        )
    return decompositions


def operator_named(name: str) -> Any:
    """Return the operator `ns::op`, or its overload `ns::op.overload`."""
    match = re.fullmatch(r"([A-Za-z]\w*)::(\w+)(?:\.(\w+))?", name) if isinstance(name, str) else None
    if match is None:
        raise UsageError(f"decompose: {name!r} is not an operator's name: write 'aten::gelu' or 'aten::gelu.default'")
    packet = getattr(getattr(torch.ops, match[1]), match[2], None)
    operator = packet if match[3] is None else getattr(packet, match[3], None)
    if operator is None:
        raise UsageError(f"decompose: there is no operator {name!r}")
    return operator
