"""Modules: the registries of `nn.Module`, and the functions that its calls go through.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x`. `@uses` says which other private names a function needs, and `needed_by` for which commands: a
call raises PrivateApiError if this torch lacks one (`private`). Each function under *Probes* tries what this file takes
a private name to do, and returns whether it does that on this torch.
"""

from __future__ import annotations

import inspect
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from backprint._torch import private
from backprint._torch.private import Private, Probe, look_up, probes_of, uses

if TYPE_CHECKING:  # the types of what `__getattr__` returns

    def own_parameters(module: nn.Module, /) -> dict[str, Any]: ...
    def own_buffers(module: nn.Module, /) -> dict[str, Any]: ...
    def own_modules(module: nn.Module, /) -> dict[str, Any]: ...


PARAMETERS, BUFFERS, MODULES = REGISTRIES = ("_parameters", "_buffers", "_modules")
"""The attributes of a module in which it has its parameters, buffers and submodules."""

COMPILED = "_orig_mod"
"""The attribute in which a module that `torch.compile` has made has the plain module."""

INLINED = "_torchdynamo_inline"
"""The attribute in which a function that `torch.compile` has made has the plain function."""

CALL = "_call_impl"
"""The method of `nn.Module` that every call of a module goes through."""


@uses("torch.nn.Module._call_impl", needed_by=(private.REGIONS,))
def code_of_calls() -> CodeType:
    """Return the code of the frame in which a module's hooks and forward run."""
    return nn.Module._call_impl.__code__


# ---- Probes


def registries_are_read() -> bool:
    module = nn.Sequential(nn.BatchNorm1d(1))
    inner = NAMES["own_modules"].value()(module)["0"]
    buffers, parameters = NAMES["own_buffers"].value()(inner), NAMES["own_parameters"].value()(inner)
    return "running_mean" in buffers and "weight" in parameters and set(REGISTRIES) <= set(vars(module))


def codes_of_callers() -> list[CodeType]:
    """Return the code of each frame that is running."""
    frame, codes = inspect.currentframe(), []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    return codes


def calls_go_through() -> bool:
    """Whether a call of a module goes through the method CALL, where another function can be put, and has the frame of
    `code_of_calls`."""
    codes: list[Any] = []
    module = nn.Identity()
    module.register_forward_hook(lambda *_: codes.extend(codes_of_callers()))
    before = getattr(nn.Module, CALL)
    called: list[bool] = []

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(True)
        return before(self, *args, **kwargs)

    try:
        setattr(nn.Module, CALL, noted)
        module(torch.zeros(1))
    finally:
        setattr(nn.Module, CALL, before)
    module(torch.zeros(1))
    return called == [True] and code_of_calls() in codes


def hooks_for_every_module_are_noticed() -> bool:
    noticed = NAMES["has_any_global_hook"].value()
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    try:
        return bool(noticed())
    finally:
        handle.remove()


def compiled_modules_are_known() -> bool:
    module = nn.Identity()
    return getattr(torch.compile(module, backend="eager"), COMPILED) is module


def compiled_functions_are_known() -> bool:
    return hasattr(torch.compile(lambda x: x, backend="eager"), INLINED)


# ---- Names

NAMES = {
    "own_parameters": Private(
        "torch.nn.Module._parameters",
        "Return a module's own parameters by name; setting an item of it runs no hook.",
        (private.REPLAY,),
        of=lambda: nn.Module(),
    ),
    "own_buffers": Private(
        "torch.nn.Module._buffers",
        "Return a module's own buffers by name; setting an item of it runs no hook.",
        (private.REPLAY,),
        of=lambda: nn.Module(),
    ),
    "own_modules": Private(
        "torch.nn.Module._modules",
        "Return a module's own submodules by name; setting an item of it runs no hook.",
        (private.REPLAY,),
        of=lambda: nn.Module(),
        holds=registries_are_read,
    ),
    "compiled_call": Private(
        "torch.nn.Module._compiled_call_impl",
        "Return the call that `Module.compile` has made for a module, or None.",
        (private.CAPTURE,),
        of=lambda: nn.Module(),
    ),
    "has_any_global_hook": Private(
        "torch.nn.modules.module._has_any_global_hook",
        "Whether a hook is registered for every module.",
        (private.CAPTURE,),
        holds=hooks_for_every_module_are_noticed,
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    Probe("torch.nn.Module._call_impl", calls_go_through, (private.RECORD, private.REGIONS)),
    Probe("torch._dynamo.OptimizedModule._orig_mod", compiled_modules_are_known, (private.CAPTURE,)),
    Probe("torch._dynamo's _torchdynamo_inline", compiled_functions_are_known, (private.CAPTURE,)),
)
