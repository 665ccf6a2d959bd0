"""The functions of torch that a region replaces for the whole process, and puts back.

While a block is open anomaly mode is on, so that torch calls `torch.fx.traceback.format_stack` for each new autograd
node; that function is replaced, and users read and set anomaly mode as if it were their own. While a recorded node is
alive, backward calls go through a function of ours. Who counts blocks and nodes, and so when to install, is `watch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx.traceback as fx_traceback

from backprint._torch.autograd import (
    ENGINES,
    anomaly_mode,
    anomaly_mode_checks_nan,
    engine_of,
    set_anomaly_mode,
    set_engine_of,
)

_replaced: dict[str, Any] = {}
_users_anomaly = (False, True)
_follow: Callable[..., Any] | None = None


# ------------------------------------------------------------------ custom functions


def apply_from_python(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Stand for `Function.apply` where that is a builtin (torch 2.14), which has no Python frame to be known by."""
    return BUILTIN.__get__(None, function)(*args, **kwargs)


BUILTIN: Any = None if hasattr(torch.autograd.Function.apply, "__code__") else vars(torch.autograd.Function)["apply"]
OURS: Any = classmethod(apply_from_python)
APPLY = (apply_from_python.__code__, getattr(torch.autograd.Function.apply, "__code__", None))
"""The code of a frame in which a custom function's node is made, and its forward runs."""


# ------------------------------------------------------------------ anomaly mode


def install_anomaly_hooks(format_stack: Callable[[], list[str]]) -> None:
    """Turn anomaly mode on, unseen by the user, and have torch call `format_stack` for each new autograd node."""
    global _users_anomaly
    _users_anomaly = (anomaly_mode(), anomaly_mode_checks_nan())
    ours = {
        "set_anomaly_enabled": set_users_anomaly,
        "is_anomaly_enabled": lambda: _users_anomaly[0],
        "is_anomaly_check_nan_enabled": lambda: _users_anomaly[1],
    }
    for name, function in ours.items():
        _replaced[name] = (getattr(torch, name), function)
        setattr(torch, name, function)
    _replaced["format_stack"] = (fx_traceback.format_stack, format_stack)
    fx_traceback.format_stack = format_stack
    if BUILTIN is not None:
        torch.autograd.Function.apply = OURS
    turn_anomaly_on()


def uninstall_anomaly_hooks() -> None:
    """Put torch's functions back, except where someone else has replaced them since."""
    set_anomaly_mode(*_users_anomaly)
    theirs, ours = _replaced["format_stack"]
    if fx_traceback.format_stack is ours:
        fx_traceback.format_stack = theirs
    if vars(torch.autograd.Function).get("apply") is OURS:
        torch.autograd.Function.apply = BUILTIN
    for name in ("set_anomaly_enabled", "is_anomaly_enabled", "is_anomaly_check_nan_enabled"):
        theirs, ours = _replaced.pop(name)
        if getattr(torch, name) is ours:
            setattr(torch, name, theirs)


def set_users_anomaly(enabled: bool, check_nan: bool = True) -> None:
    """Stand for `torch.set_anomaly_enabled` while a block is open: keep what the user wants, leave the mode on."""
    global _users_anomaly
    _users_anomaly = (bool(enabled), bool(check_nan))
    turn_anomaly_on()


def turn_anomaly_on() -> None:
    """Turn anomaly mode on; it checks for NaN only where the user has it on."""
    set_anomaly_mode(True, _users_anomaly[0] and _users_anomaly[1])


def original_stack_texts() -> list[str]:
    """The texts that torch would keep of a new node: its stack in the user's anomaly mode or in tracing, else none."""
    if not (_users_anomaly[0] or fx_traceback.should_preserve_node_meta):
        return []
    texts: list[str] = _replaced["format_stack"][0]()
    return [text for text in texts if __file__ not in text]


# ------------------------------------------------------------------ backward calls


def install_engine_hooks() -> None:
    """Have backward calls go through `followed_engine`."""
    for module in ENGINES:
        key = f"run {module.__name__}"
        if key not in _replaced:
            _replaced[key] = engine_of(module)
            set_engine_of(module, followed_engine(_replaced[key]))


def uninstall_engine_hooks() -> None:
    """Put torch's engine back, except where someone else has replaced it since."""
    for module in ENGINES:
        key = f"run {module.__name__}"
        if key in _replaced and getattr(engine_of(module), "is_backprints", False):
            set_engine_of(module, _replaced.pop(key))


def followed_engine(engine: Callable[..., Any]) -> Callable[..., Any]:
    """The engine, its calls passed to the function that `follow_backward_with` was given."""

    def run_backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
        if _follow is None:
            return engine(roots, *args, **kwargs)
        return _follow(engine, roots, *args, **kwargs)

    run_backward.is_backprints = True  # type: ignore[attr-defined]  # so that another's patch over it is left alone
    return run_backward


def follow_backward_with(follow: Callable[..., Any]) -> None:
    """Set the function that runs backward calls: `follow(engine, roots, ...)`."""
    global _follow
    _follow = follow
