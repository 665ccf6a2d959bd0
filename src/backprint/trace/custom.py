"""Custom operators with a Python body: every engine sees the operators of the body, forward and backward.

While a program is captured, a kernel is registered for each such operator under the dispatch key `Python`, which is the
key of dispatch modes. That kernel redispatches to the operator's own Python kernel, and the active modes see the
operators that run in it. The keys before `Python` have run by then, so the operator's autograd formula, autocast and
grad mode are as in an ordinary run.

An operator is recorded as one call (it "stays whole") if the user allows it by name, if its body uses a tensor's memory
outside of torch (numpy, a data pointer), if its body cannot run on fake tensors in a fake capture, or if its kernel is
not in Python. A body "leaves torch" where it uses a tensor's memory outside of torch.

`name_of(operator)` is the operator's name, `ns::op`. `for_program(f, ...)` calls f, whose errors are the program's and
no defects of Backprint.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

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
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import BUILT_IN, Capture, allowed
from backprint.trace import frames
from backprint.values import settings
from backprint.values.tree import plain_leaves

KEYS_AFTER_PYTHON = keys_after(DispatchKey.Python)
"""The dispatch keys that come after `Python`."""


@dataclass(slots=True, eq=False)
class _ThreadMark:
    """Marks a thread that captures a program, while `on` is true. The mark is in a context variable, so that a device
    thread of autograd can read it from the thread that called the backward (`callers_context`).

    Torch has thread-local objects that autograd passes to its threads. They are not used: if a thread ends while it
    holds such an object and the interpreter ends at the same time, the process crashes.
    """

    on: bool


_MARK: ContextVar[_ThreadMark | None] = ContextVar("backprint: bodies of custom operators are captured", default=None)
"""The mark of this thread. It cannot be an argument: the dispatcher calls kernels with the operator's arguments."""

COMPOSITE_KEYS = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
"""Dispatch keys of kernels that serve every device."""

BACKEND_KEYS = frozenset((*COMPOSITE_KEYS, *"CPU CUDA HIP XLA MPS XPU HPU MTIA IPU Lazy MAIA VE PrivateUse1".split()))
"""Dispatch keys of kernels that compute a result. Kernels of other keys, such as Autograd and Autocast, do something
else and redispatch."""

TORCH_NAMESPACES = BUILT_IN | frozenset(
    "_c10d_functional _c10d_functional_autograd _dtensor _inductor_test _native c10d c10d_functional debug_mode_ops "
    "debugprims export flex_lib fsdp inductor mkl mkldnn onednn onnx onnx_symbolic quantized rngprims streams "
    "symm_mem".split()
)
"""Torch's own namespaces; all others belong to libraries."""

ALLOW = "allow="
"""The option of a capture that keeps an operator whole."""


class _LeavesTorch(BaseException):
    """Raised where the body of an operator accesses a tensor's memory outside of torch, as `Tensor.numpy` does. It is a
    BaseException, so that no `except Exception` in the body catches it."""


@dataclass(slots=True, eq=False)
class _BodyCapture:
    """Which operators a capture records as their bodies: all that have a Python kernel, except those that stay whole.

    `kept_whole` has the operators that stay whole from the start, by name, each with the reason. `not_recordable` has
    the operators whose bodies turned out, during the capture, to be impossible to record, each with the reason.
    `libraries` has the torch.library.Library with which each operator's kernel for `Python` was registered.
    """

    kept_whole: dict[str, str]
    not_recordable: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, Any] = field(default_factory=dict)

    def run_body(self, operator: Any, keys: Any, args: Any, kwargs: Any) -> Any:
        """Run the operator's body under the active modes, or, for an operator that stays whole, the operator; return
        its result. `keys` are the dispatch keys of the call, which the dispatcher passes to the kernel that
        `register_kernels` registers. An operator whose body cannot be recorded is noted in `not_recordable`."""
        name = name_of(operator)
        stays_whole = name in self.kept_whole or name in self.not_recordable
        if not stays_whole and _is_capturing() and _has_python_kernel(operator, args, kwargs):
            try:
                with _modes_enabled_for_body():
                    # `for_program` marks a call whose errors are the program's, and not defects of Backprint. The keys
                    # up to `Python` are left out: they have run, and `Python` would call this kernel again.
                    return for_program(operator.redispatch, keys & KEYS_AFTER_PYTHON, *args, **kwargs)
            except _LeavesTorch as leaving:
                # This run goes on with the operator whole. `with_operator_bodies` then captures again from the start.
                self.not_recordable[name] = str(leaving)
            except Exception as error:
                if is_defect(error):
                    raise
                # As for `_LeavesTorch`, this run goes on with the operator whole where its body needs values.
                if any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves((args, kwargs))):
                    # `watch.py` appends the program's inputs that a value depends on; they say nothing about the body
                    reason = (str(error).splitlines() or [""])[0].partition(" (it depends on")[0][:300]
                    self.not_recordable[name] = f"its body does not run without values: {reason}"
                # Bodies may be nested: the operator whose body raises adds its name, and those around it do not.
                elif isinstance(error, DataDependentError) and ALLOW not in str(error):
                    raise DataDependentError(f"{error}, or {ALLOW}({name!r},) to keep that operator whole") from error
                else:
                    raise
        # As one call: by the kernel that calls the dispatch modes.
        return for_program(REPLACED_KERNELS[name].call_boxed, keys, *args, **kwargs)

    def register_kernels(self) -> None:
        """Register a kernel under the key `Python` for every operator of `_operators_with_body`. An operator for which
        an enclosing capture has registered one is not among these, and keeps that kernel."""
        for operator in _operators_with_body():
            name = name_of(operator)
            REPLACED_KERNELS[name] = kernel_for_key(name, "Python")
            self.libraries[name] = torch.library.Library(operator.namespace, "IMPL")
            self.libraries[name].impl(
                operator, functools.partial(_run_for_innermost_capture, operator), "Python", with_keyset=True
            )

    def remove_kernels(self) -> None:
        """Remove the registered kernels."""
        for name in list(self.libraries):
            destroy_library(self.libraries.pop(name))
            del REPLACED_KERNELS[name]


BODY_CAPTURES: list[_BodyCapture] = []
"""The `_BodyCapture`s of the running captures, outermost first: a program may capture another one."""

REPLACED_KERNELS: dict[str, Any] = {}
"""The kernel that the dispatcher chose for the key `Python` before `register_kernels` registered one: the fallback of
torch for all operators, which calls the dispatch modes."""


def _run_for_innermost_capture(operator: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator for the innermost capture. This is the kernel that `register_kernels` registers."""
    return BODY_CAPTURES[-1].run_body(operator, keys, args, kwargs)


# ---- Which operators have a body


def _operators_with_body() -> list[Any]:
    """Return the custom operators that have a Python kernel for a backend, and no kernel of their own under the key
    `Python`. A library may have registered one, or an enclosing capture.
    """
    names = set()
    # torch.library's own list of the kernels that were registered from Python, as `namespace/name/key`.
    for entry in registered_kernels:
        space, name, key = entry.split("/")
        if space not in TORCH_NAMESPACES and key in BACKEND_KEYS and f"{space}/{name}/Python" not in registered_kernels:
            names.add(f"{space}::{name}")
    return [lookup_op(name) for name in sorted(names)]


def _has_python_kernel(operator: Any, args: Any, kwargs: Any) -> bool:
    """Whether the kernel that the dispatcher would choose for these arguments is in Python."""
    leaves = pytree.tree_leaves((args, kwargs))
    device = next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), None)
    # An operator without tensors, such as one that makes a tensor, is dispatched by its `device=`, else to the CPU.
    device = device or next((leaf for leaf in leaves if isinstance(leaf, torch.device)), torch.device("cpu"))
    return _has_body(operator, key_of_device(device.type))


def _has_body(operator: Any, key: str) -> bool:
    """Whether an operator's kernel for a backend key is in Python: its own kernel, else the composite one."""
    prefix = f"{operator.namespace}/{name_of(operator).partition('::')[2]}/"
    if has_kernel(name_of(operator), key):
        return prefix + key in registered_kernels
    return any(prefix + composite in registered_kernels for composite in COMPOSITE_KEYS)


# ---- While a body runs


class _Handling(threading.local):
    """This thread's TorchFunctionModes whose `__torch_function__` runs now.

    Torch disables a mode while its `__torch_function__` runs. An operator's body must be seen by these modes too. The
    mode that was entered last handles a function first, so it is the first in `modes`.
    """

    def __init__(self) -> None:
        self.modes: list[Any] = []


HANDLING = _Handling()


def call_for_mode(mode: Any, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function from the `__torch_function__` of a mode, which torch disables meanwhile.

    If the function runs a custom operator whose body is recorded, the mode is enabled again for that body.
    """
    handling = HANDLING.modes
    handling.append(mode)
    try:
        return for_program(func, *args, **kwargs)
    finally:
        handling.pop()


@contextlib.contextmanager
def _modes_enabled_for_body() -> Iterator[None]:
    """Enable, for an operator's body, the function modes that are handling the operator; and inside of them a
    `_BodyMode`, which sees the functions of the body first."""
    # Modes that are entered again here are not handling anything while the body runs.
    handling, HANDLING.modes = HANDLING.modes, []
    try:
        with contextlib.ExitStack() as stack:
            # The mode that was entered last handles a function first, so they are entered in reverse of that order.
            for mode in reversed(handling):
                stack.enter_context(mode)
            stack.enter_context(_BodyMode())
            yield
    finally:
        HANDLING.modes = handling


class _BodyMode(TorchFunctionMode):
    """A function mode that raises `_LeavesTorch` where the body of an operator accesses a tensor's memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a torch function of an operator's body; raise `_LeavesTorch` if it returns a tensor's memory."""
        if func in MEMORY_ACCESS:
            raise _LeavesTorch(f"its body leaves torch by Tensor.{func.__name__}{frames.place(frames.here({}))}")
        if func is Tensor.tolist:
            return tolist_by_items(*args)  # by operators, which the modes of the capture see
        return call_for_mode(self, func, args, kwargs or {})


MEMORY_ACCESS = (
    Tensor.numpy,
    Tensor.__array__,
    Tensor.data_ptr,
    Tensor.__dlpack__,
    Tensor.untyped_storage,
    Tensor.storage,
)
"""Functions that return a tensor's memory, which the body of an operator can use without calling an operator."""


def tolist_by_items(tensor: Tensor) -> Any:
    """Return `tensor.tolist()`, but call `item` for each number: modes see `item`, and do not see `tolist`."""
    return [tolist_by_items(part) for part in tensor.unbind()] if tensor.dim() else tensor.item()


def is_composite(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operator has no kernel of its own for the devices of these arguments, and only calls other operators.

    The dispatcher decomposes such an operator at the key `Autograd`. Where autograd is off, as in a custom operator's
    kernel, dispatch modes get it undecomposed, and must decompose it themselves. On a GPU, some have kernels, which
    round otherwise than their decomposition (`_fused_rms_norm`).
    """
    if not _is_composite_on_cpu(func):
        return False
    devices = {leaf.device.type for leaf in plain_leaves(args, kwargs) if isinstance(leaf, Tensor)}
    return not any(has_kernel(name_of(func), key_of_device(device)) for device in devices - {"cpu", "meta"})


@functools.cache
def _is_composite_on_cpu(func: Any) -> bool:
    """Whether an operator has no kernel of its own for the CPU, and only calls other operators."""
    if isinstance(func, HigherOrderOperator) or func.namespace != "aten":
        return False
    try:
        has_cpu_kernel = has_kernel(name_of(func), "CPU")
    except RuntimeError:  # operators that read a nested tensor's sizes are unknown to the dispatcher
        return False
    return not has_cpu_kernel and bool(can_decompose(func))


def decompose_under_mode(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a composite operator as its decomposition, whose operators the mode sees. This is called by the mode, which
    torch disables meanwhile, so it is entered again."""
    with mode:
        return func.decompose(*args, **(kwargs or {}))


# ---- While a program is captured


def _is_capturing() -> bool:
    """Whether this thread captures a program. It is False while `torch.compile` compiles a part of that program,
    because Dynamo and AOTAutograd trace a custom operator as one call."""
    return is_marked() and TracingContext.try_get() is None


@contextlib.contextmanager
def operator_bodies_captured(kept_whole: dict[str, str]) -> Iterator[_BodyCapture]:
    """Run custom operators as their bodies in this thread, except those in `kept_whole`, which has the reason for
    each."""
    body_capture = _BodyCapture(kept_whole)
    BODY_CAPTURES.append(body_capture)
    try:
        body_capture.register_kernels()
        with marking_thread(on=True):
            yield body_capture
    finally:
        body_capture.remove_kernels()
        BODY_CAPTURES.remove(body_capture)


def without_operator_bodies() -> contextlib.AbstractContextManager[None]:
    """Run custom operators as single calls in this thread, as if no program were captured."""
    return marking_thread(on=False)


@contextlib.contextmanager
def marking_thread(on: bool) -> Iterator[None]:
    """Set or clear this thread's mark (_ThreadMark: it captures a program), and restore it afterwards.

    A recording may be closed in another thread than the one that opened it. The context variable of the opening thread
    cannot be reset from there, but its mark is turned off, which both threads see.
    """
    mark = _ThreadMark(on)
    token = _MARK.set(mark)
    try:
        yield
    finally:
        mark.on = False
        with contextlib.suppress(ValueError):  # the token was made in another thread's context
            _MARK.reset(token)


def is_marked() -> bool:
    """Whether this thread is marked (_ThreadMark). A device thread of autograd counts as marked if the thread that
    called the backward is."""
    mark = _MARK.get()
    if mark is None and (context := callers_context()) is not None:
        mark = context.get(_MARK)
    return mark is not None and mark.on


def _operators_kept_whole(allow: Iterable[str], decompose: Iterable[Any] = ()) -> dict[str, str]:
    """Return the operators that stay whole because the arguments `allow=` or `decompose=` name them, each with the
    reason."""
    # By the name of each operator with a body, `ns::op`, its target in a graph, `torch.ops.ns.op.default`. Operators
    # whose kernel an enclosing capture has replaced have a body too.
    targets = {
        name: f"torch.ops.{lookup_op(name)}"
        for name in (*REPLACED_KERNELS, *(name_of(operator) for operator in _operators_with_body()))
    }
    allow = tuple(name.removeprefix("torch.ops.") for name in allow)
    reasons = {name: "allowed" for name, target in targets.items() if allowed(target, allow)}
    decomposed = {name_if_any(key) for key in decompose}
    # `decompose=` may name an operator without its overload.
    return reasons | {name: "decompose= has it" for name in targets if {name, name.partition(".")[0]} & decomposed}


def with_operator_bodies(capture: Callable[[], Capture], options: CaptureOptions) -> Capture:
    """Return what `capture` captures, with the bodies of custom operators in place of their calls.

    A body is known to leave torch only after a part of it has run and was recorded, so the capture then starts again,
    with that operator whole. It also starts again if an operator was registered while the program ran, because that
    operator has no kernel for `Python` yet. The Capture has a note for each operator that stays whole and that no
    option names.
    """
    # Kernels are registered for the whole process.
    with settings.ONE_AT_A_TIME:
        reasons = _operators_kept_whole(options.allow or (), options.decompose or ())
        kept_by_user, must_repeat = set(reasons), True
        while must_repeat:
            with operator_bodies_captured(reasons) as body_capture:
                try:
                    result = capture()
                    # An operator that still has no kernel for `Python` was registered meanwhile.
                    new_names = {name_of(operator) for operator in _operators_with_body()}
                    called_and_new = (_custom_operators_called(result) - set(reasons)) & new_names
                    must_repeat = bool(body_capture.not_recordable or called_and_new)
                except Exception:
                    # The error may follow from the part of a body that ran. The next attempt has that operator whole.
                    if not body_capture.not_recordable:
                        raise
            reasons = reasons | body_capture.not_recordable
    names = _custom_operators_called(result)
    notes = [f"{name} stays whole: {reason}" for name, reason in reasons.items() if name in names - kept_by_user]
    return replace(result, why=(*result.why, *notes)) if notes else result


def _custom_operators_called(capture: Capture) -> set[str]:
    """Return the names, `ns::op`, of the custom operators that a Capture calls."""
    # A target is `torch.ops.ns.op.default`; another overload stays in the name, `ns::op.overload`.
    names = (target.removeprefix("torch.ops.") for target in capture.requires)
    return {name.replace(".", "::", 1).removesuffix(".default") for name in names}


# ---- PyTorch's own decompositions, by operator name


def decompositions_of(names: Sequence[str]) -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of these operators, named `ns::op` or `ns::op.overload`: a function by each
    overload."""
    return {key: function for name in names for key, function in _decompositions_of_operator(name).items()}


def _decompositions_of_operator(name: str) -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of one operator, by overload; raise a UsageError if there are none."""
    operator = _operator_named(name)
    decompositions = dict(get_decompositions([operator]))
    if not decompositions:
        raise UsageError(
            f"decompose: PyTorch has no decomposition of {name}: pass your own, decompose={{torch.ops."
            f"{name.replace('::', '.')}: function}}"
        )
    return decompositions


def _operator_named(name: str) -> Any:
    """Return the operator `ns::op`, or its overload `ns::op.overload`; raise a UsageError for anything else."""
    match = re.fullmatch(r"([A-Za-z]\w*)::(\w+)(?:\.(\w+))?", name) if isinstance(name, str) else None
    if match is None:
        raise UsageError(f"decompose: {name!r} is not an operator's name: write 'aten::gelu' or 'aten::gelu.default'")
    # A packet has all overloads of an operator: `torch.ops.aten.gelu`.
    packet = getattr(getattr(torch.ops, match[1]), match[2], None)
    operator = packet if match[3] is None else getattr(packet, match[3], None)
    if operator is None:
        raise UsageError(f"decompose: there is no operator {name!r}")
    return operator
