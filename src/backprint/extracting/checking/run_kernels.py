"""Run the wrapper of extracted kernels on tensors of a CPU: Triton's in its interpreter, C++ compiled.

A wrapper runs from its text, and its kernels from theirs: what is called is the source that a Kernel has. Extern calls
(matmuls, convolutions) run as torch's own operators. The wrapper is code that Inductor wrote, in the process before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backprint._torch.inductor import AsyncCompile  # before it is another while a wrapper is loaded
from backprint.errors import ReplayError
from backprint.extracting.build_triton import kernel_loaded_from
from backprint.extracting.checking.launch_memory import BandedMemory, launch_of
from backprint.extracting.grids import grid_of
from backprint.extracting.lowering.recorded_calls import is_workspace, loaded_wrapper, without_gpu
from backprint.extracting.nouns import Kernel, LoweredPort

CPU = torch.device("cpu")


class KernelRunError(ReplayError):
    """A kernel did not run, or was not called as it was lowered."""


@dataclass(slots=True)
class KernelRuns:
    """How often each kernel ran, how many configurations they have at most, and the memory of the run at work."""

    counts: Counter[str] = field(default_factory=Counter)
    configurations: int = 1
    memory: BandedMemory = field(default_factory=BandedMemory)

    def call(self, name: str, run: Callable[[], Any], arguments: Sequence[Any]) -> None:
        """Run a kernel, and see that it wrote no memory but its own."""
        self.counts[name] += 1
        try:
            run()
            self.memory.check(arguments)
        except Exception as error:
            raise KernelRunError(f"{name}: {told(error)}") from root_of(error)


@dataclass(frozen=True, slots=True)
class RunnableGraph:
    """The kernels of a graph, ready to run."""

    inputs: Sequence[LoweredPort]
    call: Callable[[list[Any]], Sequence[Any]]
    runs: KernelRuns

    def run(self, values: Sequence[Any]) -> list[Any]:
        """Run the wrapper on copies of these values, which must be those that it was written for."""
        self.runs.memory = BandedMemory()
        taken = [self.taken(port, value) for port, value in zip(self.inputs, values, strict=True)]
        with without_gpu():  # in the grad mode of a training step: oneDNN's LSTM asks for it
            return list(self.call(taken))

    def taken(self, port: LoweredPort, value: Any) -> Any:
        """Return a copy of an input as the kernels expect it."""
        if port.value is not None and type(value) is type(port.value):
            if value != port.value:
                raise KernelRunError(f"{port.role} {port.name} is {value}, and the kernels were made for {port.value}")
            return value
        if is_workspace(value) and port.dtype == "uint8":
            return self.runs.memory.copy(value, value.stride())
        kind = f"{port.dtype}{list(port.shape)}"
        found = f"{str(value.dtype)[6:]}{list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        if found != kind:
            raise KernelRunError(f"{port.role} {port.name} is {found}, and the kernels were made for {kind}")
        return self.runs.memory.copy(value, port.stride)


def runnable_graph(
    wrapper: str,
    kernels: Sequence[Kernel],
    inputs: Sequence[LoweredPort],
    folder: Path,
    place: int,
) -> RunnableGraph:
    """Load a wrapper and its kernels; `place` chooses a configuration, the last of those that have fewer."""
    known, runs = {kernel.name: kernel for kernel in kernels}, KernelRuns()

    def loaded(name: str, types: Any) -> Any:
        if name not in known:
            raise KernelRunError(f"the wrapper calls {name}, which is none of the kernels: {', '.join(known)}")
        kernel = known[name]
        return interpreted(kernel, folder, place, runs) if types is None else compiled(kernel, types, runs)

    space = loaded_wrapper(wrapper, loaded, lambda *args: runs.memory.empty(*args), CPU)
    return RunnableGraph(inputs, space["call"], runs)


@dataclass(frozen=True, slots=True)
class InterpretedKernel:
    """Stands for a Triton kernel in a wrapper."""

    name: str
    tuner: Any
    configuration: Any
    runs: KernelRuns

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Run the kernel in Triton's interpreter, on its whole grid."""
        names = [name for name in self.tuner.fn.arg_names if name not in self.configuration.kwargs]
        given = dict(zip(names, args, strict=False))  # an argument equal to 1 is a constant, and is passed all the same
        constants: Mapping[str, Any] = {**self.tuner.triton_meta["constants"], **self.configuration.kwargs}
        rest = {name: value for name, value in constants.items() if name not in given}
        numbers = [None if isinstance(value, Tensor) else value for value in args]

        def launched() -> None:
            grid = grid_of(self.tuner, self.configuration, numbers)
            with launch_of(args):
                self.tuner.fn[grid](**given, **rest)

        self.runs.call(self.name, launched, args)


def interpreted(kernel: Kernel, folder: Path, place: int, runs: KernelRuns) -> InterpretedKernel:
    """Load a Triton kernel for the interpreter."""
    try:
        tuner = kernel_loaded_from(folder, kernel)
    except Exception as error:
        raise KernelRunError(f"{kernel.name} cannot be loaded: {told(error)}") from error
    configurations = tuner.configs
    runs.configurations = max(runs.configurations, len(configurations))
    return InterpretedKernel(kernel.name, tuner, configurations[min(place, len(configurations) - 1)], runs)


def compiled(kernel: Kernel, types: Any, runs: KernelRuns) -> Callable[..., None]:
    """Compile a C++ kernel."""
    try:
        function = AsyncCompile().cpp_pybinding(types, kernel.source)
    except Exception as error:
        raise KernelRunError(f"{kernel.name} cannot be compiled: {told(error)}") from error

    def run(*args: Any) -> None:
        runs.call(kernel.name, lambda: function(*args), args)

    return run


def root_of(error: BaseException) -> BaseException:
    """Return what caused an error in the first place."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def told(error: BaseException) -> str:
    """Return the cause of an error in one line."""
    cause = root_of(error)
    lines = [line for line in str(cause).strip().splitlines() if line.strip()]
    wrong = next((line for line in lines if "error:" in line), "".join(lines[:1]))
    return f"{type(cause).__name__}: {wrong.strip()[:300]}".removesuffix(": ")
