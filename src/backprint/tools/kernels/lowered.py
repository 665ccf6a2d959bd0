"""What `bp.lower` returns: a program as a file of Triton kernels. Loops and all other programs have the same face.

A port is an input or a result of the Capture `capture`, by the name that this gives it.
"""

from __future__ import annotations

import copy
import linecache
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from backprint.errors import UsageError
from backprint.graph.nouns import Capture
from backprint.prove.arguments import arguments

if TYPE_CHECKING:
    from backprint.tools.kernels.lowered_build import BuiltFunction
    from backprint.tools.kernels.lowered_check import LoweredCheck


UNCHECKED_GUARDS = ("value", "pinned", "memory", "same")
"""Kinds of guards on more than sizes: a file does not check them, so a program that has one is refused."""


@dataclass(frozen=True, slots=True)
class Face:
    """The function of a file by ports of the program: its arguments and results in order. `gradients` says of each
    argument whether it has a gradient, and `tangents` of each result whether a gradient flows back through it."""

    inputs: tuple[str, ...]
    gradients: tuple[bool, ...]
    outputs: tuple[str, ...]
    tangents: tuple[bool, ...]


@dataclass(frozen=True)
class Lowered(ABC):
    """A program as Triton kernels.

    `source` is a file that needs torch and triton alone; `name` is its function, and `face` has the ports of its
    arguments and results. `function` is the program, None if it was lowered from a Capture, and `make_inputs` returns
    its arguments for a number, None if it is for one size. `print(lowered.explain())` says what is one kernel, and how
    many bytes it moves.
    """

    source: str
    name: str
    function: Callable[..., Any] | None = field(repr=False)
    make_inputs: Callable[[int], Any] | None = field(repr=False)
    capture: Capture = field(repr=False)
    face: Face = field(repr=False)

    @property
    @abstractmethod
    def jitted(self) -> str:
        """The name of one of the kernels in the file."""

    @property
    def library(self) -> str:
        """The functions that the file lacks in Triton's interpreter, or ''."""
        return ""

    @abstractmethod
    def explain(self) -> str:
        """Return in words what is one kernel, and how many bytes it moves."""

    @abstractmethod
    def build(self, capability: int = 90) -> tuple[BuiltFunction, ...]:
        """Return PTX and cubin of the kernels for a GPU of a compute capability, 80 or 90, that need not be there."""

    @abstractmethod
    def check(self, sizes: Sequence[int] = (), timeout: float = 600.0) -> LoweredCheck:
        """Run the file in a process of its own, and compare outputs and gradients with the program in eager."""

    def save(self, path: str | Path) -> Path:
        """Write the source into a file; return its path."""
        place = Path(path)
        place.write_text(self.source, encoding="utf-8")
        return place

    def load(self) -> types.ModuleType:
        """Run the source, and return it as a Python module."""
        # a name for tracebacks, and for triton, which reads a function's source by it
        file = f"<lowered {self.name} {abs(hash(self.source)):x}>"
        # size, modification time (None: it is never checked), lines, name
        linecache.cache[file] = (len(self.source), None, self.source.splitlines(keepends=True), file)
        module = types.ModuleType(f"lowered_{self.name}")
        module.__file__ = file
        sys.modules.setdefault(module.__name__, module)  # where `inspect` looks for the module of a function
        exec(compile(self.source, file, "exec"), vars(module))
        return module

    def module(self) -> nn.Module:
        """Return the program as a module that runs the kernels: a drop-in, with the parameters of the program.

        It takes the arguments that the program takes. On a GPU it runs there; on a CPU, in Triton's interpreter, where
        TRITON_INTERPRET=1 is set before triton is imported.

        It is a shallow copy of the program, so that both have the same parameters, or an empty module for a function.
        """
        file = self.load()
        run = getattr(file, self.name)
        kernel = getattr(file, self.jitted)
        # `fn`: an autotuned kernel has the kernel itself there. With TRITON_INTERPRET=1, it is no JITFunction
        compiled = isinstance(getattr(kernel, "fn", kernel), file.triton.JITFunction)
        program = self.function if isinstance(self.function, nn.Module) else None
        signature, face = self.capture.signature, self.face

        def forward(*args: Any, **kwargs: Any) -> Any:
            """Run the kernels on the program's arguments; return its result in the program's form. Refuse inputs that
            they cannot run on."""
            # `module` is made below: its parameters are the program's
            named = state_of(module) | dict(self.capture.origin.constants) | arguments(self.capture, args, kwargs)
            if missing := [port for port in face.inputs if port not in named]:
                raise UsageError(f"{self.name} needs {', '.join(missing)}")
            if compiled and all(named[port].device.type == "cpu" for port in face.inputs):
                raise UsageError(
                    f"{self.name}: the inputs are on a CPU, where Triton's interpreter runs the kernels: set "
                    "TRITON_INTERPRET=1 before triton is imported"
                )
            if not compiled and self.library:
                raise UsageError(
                    f"{self.name}: Triton's interpreter does not run {self.library} of libdevice: call it on a GPU, "
                    "without TRITON_INTERPRET=1"
                )
            results = run(*(named[port] for port in face.inputs))
            results = results if isinstance(results, tuple) else (results,)
            return self.capture.origin.rebuild(signature.output, dict(zip(face.outputs, results, strict=True)))

        module = copy.copy(program) if program is not None else nn.Module()
        module.forward = forward  # an attribute of this instance, which nn.Module calls before that of the class
        return module


def counted(count: int, noun: str) -> str:
    """Return a number of things in words: `1 kernel`, `2 kernels`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a module by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
