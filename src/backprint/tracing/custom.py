"""Custom operators with a body in Python: the body is what every engine sees, forward and backward.

The dispatcher itself does it. While a program is captured, each such operator has a kernel where dispatch modes stand
(the key `Python`), which goes on to the operator's own kernel below: its autograd formula has run by then, autocast and
grad mode are as in a plain run, and the modes see what the body does. An operator stays whole if the user allows it by
name, if its body leaves torch (numpy, a pointer), if it cannot run without values where there are none, and where its
kernel is not Python's.

Private torch APIs of this module, tried on torch 2.13: `torch.library._impls`, `Library._destroy`,
`torch._library.utils.lookup_op`, `torch._C._dispatch_get_computed_kernel_for_dispatch_key` and its `call_boxed`,
`OpOverload.redispatch`, `torch._C._get_obj_in_tls` (what threads that run a backward inherit), and
`torch._guards.TracingContext`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec

import torch
from torch import Tensor
from torch._guards import TracingContext
from torch._library.utils import lookup_op
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from backprint import settings
from backprint.errors import DataDependentError
from backprint.graph.nouns import BUILT_IN, Capture, allowed
from backprint.tracing import frames

Asked = ParamSpec("Asked")

BELOW = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.Python)
"""The keys that come after the one where dispatch modes stand."""


@dataclass(slots=True, eq=False)
class Mark:
    """What the thread of a capture carries while it is on, and the threads that autograd runs for it.

    Torch's own thread-local objects would do too, but one that a thread still holds when it ends takes the interpreter
    with it if that ends as well.
    """

    on: bool


MARK: ContextVar[Mark | None] = ContextVar("backprint: bodies of custom operators are captured", default=None)

GENERAL = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
"""The keys of kernels for every device."""

COMPUTING = frozenset((*GENERAL, *"CPU CUDA HIP XLA MPS XPU HPU MTIA IPU Lazy MAIA VE PrivateUse1".split()))
"""The keys under which kernels compute."""

TORCHS = BUILT_IN | frozenset(
    "_c10d_functional _c10d_functional_autograd _dtensor _inductor_test _native c10d c10d_functional debug_mode_ops "
    "debugprims export flex_lib fsdp inductor mkl mkldnn onednn onnx onnx_symbolic quantized rngprims streams "
    "symm_mem".split()
)
"""Namespaces of torch's own, whose operators are no library's."""


ALLOW = "allow="
"""The option by which an operator stays whole."""


class Leaving(BaseException):
    """A body is about to leave torch. No `except Exception` of the body's may swallow it."""


@dataclass(slots=True, eq=False)
class Book:
    """The operators that are opened, with the kernel that each would have; those that are kept `whole`, and why."""

    whole: dict[str, str]
    found: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, Any] = field(default_factory=dict)

    def run(self, operator: Any, keys: Any, args: Any, kwargs: Any) -> Any:
        """The operator's body in the place of the operator, or the operator as a whole."""
        name = operator._name
        if name not in self.whole and name not in self.found and watching() and is_python(operator, args, kwargs):
            try:
                with under_modes():
                    return operator.redispatch(keys & BELOW, *args, **kwargs)
            except Leaving as leaving:
                self.found[name] = str(leaving)
            except Exception as error:
                if any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves((args, kwargs))):
                    said = (str(error).splitlines() or [""])[0].partition(" (it depends on")[0][:300]
                    self.found[name] = f"its body does not run without values: {said}"
                elif isinstance(error, DataDependentError) and ALLOW not in str(error):
                    raise DataDependentError(f"{error}, or {ALLOW}({name!r},) to keep that operator whole") from error
                else:
                    raise
        return PLAIN[name].call_boxed(keys, *args, **kwargs)

    def open(self) -> None:
        """Put a kernel in front of every operator that has none of ours yet."""
        for operator in operators():
            name = operator._name
            PLAIN[name] = torch._C._dispatch_get_computed_kernel_for_dispatch_key(name, "Python")
            self.libraries[name] = torch.library.Library(operator.namespace, "IMPL")
            self.libraries[name].impl(operator, functools.partial(stand_in, operator), "Python", with_keyset=True)

    def close(self) -> None:
        """Take the kernels away again."""
        for name in list(self.libraries):
            self.libraries.pop(name)._destroy()
            del PLAIN[name]


BOOKS: list[Book] = []
"""The Books of the captures that run, one inside of the other."""

PLAIN: dict[str, Any] = {}
"""The kernel that each opened operator has otherwise: it asks the dispatch modes."""


def stand_in(operator: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    """The kernel of an opened operator."""
    return BOOKS[-1].run(operator, keys, args, kwargs)


# ------------------------------------------------------------------ which operators have a body


def operators() -> list[Any]:
    """The operators that a library has registered a Python kernel for, but none for modes."""
    names = set()
    for entry in torch.library._impls:
        space, name, key = entry.split("/")
        if space not in TORCHS and key in COMPUTING and f"{space}/{name}/Python" not in torch.library._impls:
            names.add(f"{space}::{name}")
    return [lookup_op(name) for name in sorted(names)]


def is_python(operator: Any, args: Any, kwargs: Any) -> bool:
    """Whether the kernel that these arguments go to is Python's."""
    leaves = pytree.tree_leaves((args, kwargs))
    device = next((leaf.device for leaf in leaves if isinstance(leaf, Tensor)), None)
    device = device or next((leaf for leaf in leaves if isinstance(leaf, torch.device)), torch.device("cpu"))
    return has_body(operator, torch._C._dispatch_key_for_device(device.type))


def has_body(operator: Any, key: str) -> bool:
    """Whether the kernel for a kind of device is Python's: its own, or the one for all."""
    here = f"{operator.namespace}/{operator._name.partition('::')[2]}/"
    if torch._C._dispatch_has_kernel_for_dispatch_key(operator._name, key):
        return here + key in torch.library._impls
    return any(here + general in torch.library._impls for general in GENERAL)


# ------------------------------------------------------------------ while a body runs


class Handling(threading.local):
    """The function modes that are off just now because each is handling a function, outermost first."""

    def __init__(self) -> None:
        self.modes: list[Any] = []


HANDLING = Handling()


def through(mode: Any, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run a function that a mode of ours was handed; the body of a custom operator below it meets the mode again."""
    handling = HANDLING.modes
    handling.append(mode)
    try:
        return func(*args, **kwargs)
    finally:
        handling.pop()


@contextlib.contextmanager
def under_modes() -> Iterator[None]:
    """The function modes on that are handling the operator, for its body; and an eye on how the body reads values."""
    handling, HANDLING.modes = HANDLING.modes, []
    try:
        with contextlib.ExitStack() as stack:
            for mode in reversed(handling):
                stack.enter_context(mode)
            stack.enter_context(Body())
            yield
    finally:
        HANDLING.modes = handling


class Body(TorchFunctionMode):
    """Sees a body leave torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in LEAVES:
            raise Leaving(f"its body leaves torch by Tensor.{func.__name__}{frames.place(frames.here({}))}")
        if func is Tensor.tolist:
            return numbers_one_by_one(*args)
        return through(self, func, args, kwargs or {})


LEAVES = (Tensor.numpy, Tensor.__array__, Tensor.data_ptr, Tensor.__dlpack__, Tensor.untyped_storage, Tensor.storage)
"""How a body gets at memory, to do with it what no operator shows."""


def numbers_one_by_one(tensor: Tensor) -> Any:
    """`Tensor.tolist`, one number after the other."""
    return [numbers_one_by_one(part) for part in tensor.unbind()] if tensor.dim() else tensor.item()


@functools.cache
def is_composite(func: Any) -> bool:
    """Whether an operator is nothing but others, for every device: below autograd modes are handed it as a whole."""
    if isinstance(func, torch._ops.HigherOrderOperator) or func.namespace != "aten":
        return False
    try:
        own = torch._C._dispatch_has_kernel_for_dispatch_key(func._name, "CPU")
    except RuntimeError:  # the sizes of a nested tensor are asked for by operators that the dispatcher does not know
        return False
    return not own and bool(func._can_decompose())


def taken_apart(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A composite operator as those that it is made of, each of which the mode meets."""
    with mode:
        return func.decompose(*args, **(kwargs or {}))


# ------------------------------------------------------------------ while a program is captured


def watching() -> bool:
    """Whether this thread captures a program, and does not compile one just now."""
    return is_marked() and TracingContext.try_get() is None


@contextlib.contextmanager
def opened(whole: dict[str, str]) -> Iterator[Book]:
    """Custom operators run as their bodies in this thread, but for those that are kept whole."""
    book = Book(whole)
    BOOKS.append(book)
    try:
        book.open()
        with marking_thread(True):
            yield book
    finally:
        book.close()
        BOOKS.remove(book)


def closed() -> contextlib.AbstractContextManager[None]:
    """Custom operators run as they are in this thread."""
    return marking_thread(False)


@contextlib.contextmanager
def marking_thread(on: bool) -> Iterator[None]:
    """This thread's mark set or taken away, and as it was afterwards; another thread may end what one has begun."""
    mark = Mark(on)
    token = MARK.set(mark)
    try:
        yield
    finally:
        mark.on = False
        with contextlib.suppress(ValueError):  # of another thread's context
            MARK.reset(token)


def is_marked() -> bool:
    """Whether this thread, or the one whose backward runs here, is marked."""
    mark = MARK.get()
    if mark is None and torch._C._is_key_in_tls(CONTEXT):
        context = torch._C._get_obj_in_tls(CONTEXT)
        mark = None if context is None else context.get(MARK)
    return mark is not None and mark.on


CONTEXT = "context"
"""Where autograd's own threads find the context variables of the thread that called it; torch 2.11 has none there."""


def kept_whole(allow: Iterable[str], decompose: Iterable[Any] = ()) -> dict[str, str]:
    """The operators that the user wants kept, or taken apart otherwise, by name."""
    names = {name: f"torch.ops.{lookup_op(name)}" for name in (*PLAIN, *(each._name for each in operators()))}
    allow = tuple(one.removeprefix("torch.ops.") for one in allow)
    found = {name: "allowed" for name, target in names.items() if allowed(target, allow)}
    mapped = {getattr(key, "_name", getattr(key, "_qualified_op_name", "")) for key in decompose}
    return found | {name: "decompose= has it" for name in names if {name, name.partition(".")[0]} & mapped}


def with_bodies(capture: Callable[Asked, Capture]) -> Callable[Asked, Capture]:
    """A function that captures, made to capture the bodies of custom operators; it is given `allow` and `decompose`.

    Where a body turns out to leave torch, all begins anew with that operator whole: the body has run in part. So it
    does where the program itself has registered an operator.
    """

    @functools.wraps(capture)
    def captured(*args: Asked.args, **kwargs: Asked.kwargs) -> Capture:
        options: Any = kwargs
        with settings.ONE_AT_A_TIME:
            whole = kept_whole(options.get("allow") or (), options.get("decompose") or ())
            asked, again = set(whole), True
            while again:
                with opened(whole) as book:
                    try:
                        made = capture(*args, **kwargs)
                        late = (called(made) - set(whole)) & {operator._name for operator in operators()}
                        again = bool(book.found or late)
                    except Exception:
                        if not book.found:
                            raise
                whole = whole | book.found
        names = called(made)
        why = [f"{name} stays whole: {said}" for name, said in whole.items() if name in names - asked]
        return replace(made, why=(*made.why, *why)) if why else made

    return captured


def called(capture: Capture) -> set[str]:
    """The custom operators that a Capture calls."""
    names = (target.removeprefix("torch.ops.") for target in capture.requires)
    return {name.replace(".", "::", 1).removesuffix(".default") for name in names}
