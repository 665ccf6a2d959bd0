"""Modes: dispatch modes, function modes, grad mode and autocast.

A `TorchDispatchMode` that is entered by `with` also sets a flag of the process that makes Dynamo and Inductor behave
differently. `push_mode` and `pop_mode` do not set it.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x` (`private`). Each function under *Probes* tries what this file takes a private name to do, and
returns whether it does that on this torch.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _python_dispatch

from backprint._torch import private
from backprint._torch.private import Private, Probe, look_up, probes_of

if TYPE_CHECKING:  # the types of what `__getattr__` returns
    from torch._C import DisableTorchFunction as DisableTorchFunction
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

MODES = "torch.utils._python_dispatch"
"""The module of dispatch modes."""


def dispatch_modes() -> list[object]:
    """Return the `TorchDispatchMode`s that are active in this thread, the outermost first."""
    return list(_python_dispatch._get_current_dispatch_mode_stack())


def users_dispatch_mode() -> str | None:
    """Return the class of an active dispatch mode that is neither torch's nor Backprint's; None if there is none."""
    for mode in dispatch_modes():
        if type(mode).__module__.partition(".")[0] not in ("torch", "backprint"):
            return type(mode).__qualname__
    return None


@contextlib.contextmanager
def hidden_from_higher_order_operators() -> Iterator[None]:
    """Hide dispatch modes from higher-order operators, whose eager forms refuse to run under a mode."""
    # The modules of higher-order operators have imported the function by name, so it is replaced in each of them.
    name, own_thread = "_get_current_dispatch_mode", threading.get_ident()
    modules = [
        module for key, module in list(sys.modules.items()) if key.startswith(("torch._higher_order_ops", MODES))
    ]
    before = [(module, getattr(module, name)) for module in modules if hasattr(module, name)]
    for module, function in before:
        # Other threads keep their modes.
        setattr(module, name, lambda plain=function: None if threading.get_ident() == own_thread else plain())
    try:
        yield
    finally:
        for module, function in before:
            setattr(module, name, function)


# ---- Probes


def operators_seen(block: Any) -> list[str]:
    """Return the operators that a new dispatch mode sees of a call of `sin` in the context that `block()` returns."""

    seen: list[str] = []

    class Noting(_python_dispatch.TorchDispatchMode):  # not NAMES's own, which is a global here only once imported
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    tensor = torch.zeros(1)
    with Noting(), block():
        tensor.sin()
    return seen


def dispatch_modes_see_operators() -> bool:
    return operators_seen(contextlib.nullcontext) == ["aten.sin.default"]


def operators_are_not_seen() -> bool:
    return operators_seen(NAMES["DisableTorchDispatch"].value()) == []


def modes_are_turned_off() -> bool:
    return operators_seen(NAMES["without_modes"].value()) == []


def dispatch_modes_are_read() -> bool:
    with NAMES["TorchDispatchMode"].value()() as mode:
        return dispatch_modes()[-1:] == [mode] and NAMES["innermost_dispatch_mode"].value()() is mode


def modes_are_pushed_and_popped() -> bool:
    mode = NAMES["TorchDispatchMode"].value()()
    NAMES["push_mode"].value()(mode)
    return NAMES["pop_mode"].value()() is mode and mode not in dispatch_modes()


def keys_of_tracing_are_there() -> bool:
    keys = NAMES["ModeKey"].value()
    return all(NAMES["mode_of_key"].value()(key) is None for key in (keys.PROXY, keys.FUNCTIONAL))


def functions_are_not_seen() -> bool:
    """Whether `DisableTorchFunction` turns off `__torch_function__` of a subclass."""

    class Seen(torch.Tensor):
        seen = 0

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.seen += 1
            return super().__torch_function__(func, types, args, kwargs)

    tensor = torch.zeros(1).as_subclass(Seen)
    with NAMES["DisableTorchFunction"].value()():
        tensor.sin()
    return Seen.seen == 0


def autocast_is_turned_off() -> bool:
    with torch.autocast("cpu", torch.bfloat16), NAMES["DisableAutocast"].value()():
        return torch.ones(1, 1).mm(torch.ones(1, 1)).dtype == torch.float32


def grad_mode_is_set() -> bool:
    before, set_grad_mode = torch.is_grad_enabled(), NAMES["set_grad_mode"].value()
    try:
        set_grad_mode(not before)
        return torch.is_grad_enabled() is not before
    finally:
        set_grad_mode(before)


def modes_are_hidden() -> bool:
    with NAMES["TorchDispatchMode"].value()(), hidden_from_higher_order_operators():
        return _python_dispatch._get_current_dispatch_mode() is None


# ---- Names

NAMES = {
    "TorchDispatchMode": Private(
        "torch.utils._python_dispatch.TorchDispatchMode",
        "A mode that sees each operator of ATen below autograd.",
        (private.REPLAY,),
        holds=dispatch_modes_see_operators,
    ),
    "without_modes": Private(
        "torch.utils._python_dispatch._disable_current_modes",
        "Turn off all dispatch modes of this thread for a block.",
        (private.REPLAY,),
        holds=modes_are_turned_off,
    ),
    "innermost_dispatch_mode": Private(
        "torch.utils._python_dispatch._get_current_dispatch_mode",
        "Return the innermost dispatch mode of this thread, or None.",
        (private.REGIONS,),
    ),
    "pop_mode": Private(
        "torch.utils._python_dispatch._pop_mode",
        "Take the innermost dispatch mode off the stack, and leave the process's flag of modes as it is.",
        (
            private.RECORD,
            private.REGIONS,
        ),
    ),
    "push_mode": Private(
        "torch.utils._python_dispatch._push_mode",
        "Put a dispatch mode on the stack, and leave the process's flag of modes as it is.",
        (
            private.RECORD,
            private.REGIONS,
        ),
        holds=modes_are_pushed_and_popped,
    ),
    "ModeKey": Private(
        "torch._C._TorchDispatchModeKey",
        "The keys of the modes that torch itself uses: PROXY and FUNCTIONAL are those of tracing.",
        (private.REGIONS,),
        holds=keys_of_tracing_are_there,
    ),
    "mode_of_key": Private(
        "torch._C._get_dispatch_mode",
        "Return the mode of torch's own that is active under a ModeKey, or None.",
        (private.REGIONS,),
    ),
    "DisableTorchFunction": Private(
        "torch._C.DisableTorchFunction",
        "Turn off `__torch_function__` of tensors and modes for a block.",
        (private.CAPTURE,),
        holds=functions_are_not_seen,
    ),
    "DisableTorchDispatch": Private(
        "torch._C._DisableTorchDispatch",
        "Turn off `__torch_dispatch__` of tensors and modes, from when it is made until its block ends.",
        (private.REGIONS,),
        holds=operators_are_not_seen,
    ),
    "DisableAutocast": Private(
        "torch._C._DisableAutocast",
        "Turn off autocast on every device for a block.",
        (private.REPLAY,),
        holds=autocast_is_turned_off,
    ),
    "enter_autocast": Private(
        "torch.amp.autocast_mode._enter_autocast",
        "The function by which a graph of torch.export or Dynamo enters autocast.",
        (private.DYNAMO,),
    ),
    "set_grad_mode": Private(
        "torch._C._set_grad_enabled",
        "Set grad mode at once, with no block.",
        (private.CAPTURE,),
        holds=grad_mode_is_set,
    ),
    "reparametrized": Private(
        "torch.nn.utils.stateless._reparametrize_module",
        "Give a module other parameters and buffers for a block.",
        (private.CAPTURE,),
        passed=("tie_weights",),
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    Probe("torch.utils._python_dispatch._get_current_dispatch_mode_stack", dispatch_modes_are_read, (private.CAPTURE,)),
    Probe(
        "torch.utils._python_dispatch._get_current_dispatch_mode of higher-order operators",
        modes_are_hidden,
        (private.CAPTURE,),
    ),
)
