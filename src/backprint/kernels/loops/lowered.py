"""What `bp.lower` returns: the source, the program as a module that runs it, what it does, and its check."""

from __future__ import annotations

import copy
import linecache
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from backprint.errors import UsageError
from backprint.graph.nouns import Capture
from backprint.kernels.loops.build import BuiltLoop, built
from backprint.kernels.loops.check import LoopCheck, checked, functions_text
from backprint.kernels.loops.file_text import FileParts, shapes_text
from backprint.kernels.loops.nouns import Loop
from backprint.kernels.loops.traffic import Traffic, traffic_of
from backprint.replaying.arguments import arguments


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program that walks time, as one Triton kernel a direction.

    `source` is a file that needs torch and triton alone; `name` is its function. `least` is the fewest steps that it
    takes. `print(lowered.explain())` says what is one kernel, and how many bytes it moves.
    """

    source: str
    name: str
    least: int
    function: Callable[..., Any] = field(repr=False)
    make_inputs: Callable[[int], Any] = field(repr=False)
    capture: Capture = field(repr=False)
    forward: Loop = field(repr=False)
    backward: Loop | None = field(repr=False)
    parts: FileParts = field(repr=False)

    def save(self, path: str | Path) -> Path:
        """Write the source into a file."""
        place = Path(path)
        place.write_text(self.source, encoding="utf-8")
        return place

    def load(self) -> types.ModuleType:
        """Return the source as a Python module."""
        file = f"<lowered {self.name} {abs(hash(self.source)):x}>"
        linecache.cache[file] = (len(self.source), None, self.source.splitlines(keepends=True), file)
        module = types.ModuleType(f"lowered_{self.name}")
        module.__file__ = file
        sys.modules.setdefault(module.__name__, module)
        exec(compile(self.source, file, "exec"), vars(module))
        return module

    def module(self) -> nn.Module:
        """Return the program as a module that runs the kernels: a drop-in, with the parameters of the program.

        It takes the arguments that the program takes. On a GPU it runs there; on a CPU, in Triton's interpreter, where
        TRITON_INTERPRET=1 is set before triton is imported.
        """
        file = self.load()
        run = getattr(file, self.name)
        compiled = isinstance(getattr(file, f"{self.name}_forward"), file.triton.JITFunction)  # else it is interpreted
        program = self.function if isinstance(self.function, nn.Module) else None
        ports = [self.parts.layout.facts[name] for name in self.parts.inputs]
        signature = self.capture.signature
        outputs = [self.parts.layout.facts[name].port for name in self.parts.outputs]

        def forward(*args: Any, **kwargs: Any) -> Any:
            named = state_of(module) | dict(self.capture.origin.constants) | arguments(self.capture, args, kwargs)
            missing = [facts.port for facts in ports if facts.port not in named]
            if missing:
                raise UsageError(f"{self.name} needs {', '.join(missing)}")
            if compiled and all(named[facts.port].device.type == "cpu" for facts in ports):
                raise UsageError(
                    f"{self.name}: the inputs are on a CPU, where Triton's interpreter runs the kernels: set "
                    "TRITON_INTERPRET=1 before triton is imported"
                )
            if not compiled and self.parts.library:
                functions = functions_text(self.parts.library)
                raise UsageError(
                    f"{self.name}: Triton's interpreter does not run {functions} of libdevice: call it on a GPU, "
                    "without TRITON_INTERPRET=1"
                )
            results = run(*(named[facts.port] for facts in ports))
            results = results if isinstance(results, tuple) else (results,)
            return self.capture.origin.rebuild(signature.output, dict(zip(outputs, results, strict=True)))

        module = copy.copy(program) if program is not None else nn.Module()
        module.forward = forward  # an instance's own, which nn.Module calls
        return module

    def build(self, capability: int = 90) -> tuple[BuiltLoop, ...]:
        """Return PTX and cubin of both kernels for a GPU of a compute capability, 80 or 90, that need not be there."""
        return built(self, capability)

    def traffic(self, steps: int = 64) -> dict[str, Traffic]:
        """Return the bytes of each direction for a number of steps and the captured shape of the state."""
        layout, sums = self.parts.layout, self.parts.sums
        loops = {"forward": self.forward, **({"backward": self.backward} if self.backward else {})}
        return {name: traffic_of(loop, layout.facts, layout.state, steps, sums) for name, loop in loops.items()}

    def explain(self, steps: int = 64) -> str:
        """Return in words what is one kernel, what each direction reads and writes, and the bytes that it moves."""
        layout = self.parts.layout
        element = torch.Size(layout.state).numel() * 4
        lines = [
            f"{self.name}: {'two kernels, one a direction' if self.backward else 'one kernel'}, for {self.least} "
            f"or more steps and {shapes_text(layout)}"
        ]
        traffic = self.traffic(steps)
        for name, loop in (("forward", self.forward), ("backward", self.backward)):
            if loop is None:
                continue
            text = self.parts.forward if name == "forward" else self.parts.backward
            assert text is not None
            written = {write.tensor for write in (*loop.before, *loop.writes, *loop.after)}
            reads = [layout.name(tensor) for tensor in text.tensors if tensor not in written]
            writes = [layout.name(tensor) for tensor in text.tensors if tensor in written]
            count = traffic[name]
            lines += [
                f"{name}: one loop over t with {counted(len(loop.start), 'value')} in registers; reads "
                f"{', '.join(reads)}; writes {', '.join(writes)}",
                f"  of {steps} steps: {count.moved:,} bytes, {count.ratio:.3f} of the least possible "
                f"({count.moved / element / steps:.2f} float32 states a step)",
            ]
            if loop.peeled:
                end = "last" if (loop.step > 0) == bool(loop.last.count) else "first"
                lines.append(f"  {loop.peeled} step outside of the loop: the {end} is another program")
        sums = [layout.name(name) for name, facts in layout.facts.items() if facts.dims is not None]
        if sums:
            ways = {
                "stages": "over elements by torch",
                "atomics": "over elements by atomics",
            }
            lines.append(f"sums of {', '.join(sums)}: over t in registers, then {ways[self.parts.sums]}")
        lines += [
            f"{counted(short.length, 'step')}: kernels of their own, without a loop" for short in self.parts.shorts
        ]
        if self.parts.library:
            functions = functions_text(self.parts.library)
            lines.append(f"calls {functions} of CUDA's libdevice: .build() compiles it, .check() needs a GPU")
        halves = {str(facts.dtype)[6:] for facts in layout.facts.values() if facts.dtype.itemsize == 2}
        if halves:
            lines.append(
                f"{', '.join(sorted(halves))} is computed in float32; what is kept is rounded before it is used"
            )
        lines.append(
            "inputs that are not contiguous are copied first; fewer steps, other dtypes and no elements are refused"
        )
        return "\n".join(lines)

    def check(self, lengths: Sequence[int] = (1, 2, 7, 64), timeout: float = 600.0) -> LoopCheck:
        """Run the file in a process of its own, and compare outputs and gradients with the program in eager.

        On a CPU the kernels run in Triton's interpreter. In float32 the largest difference may be 1e-5 of a tensor's
        largest value. Halves are compared with the program in float32, and their error with that of eager.
        """
        return checked(self, [length for length in lengths if length >= self.least] or [self.least], timeout)

    def __repr__(self) -> str:
        kernels = "forward and backward" if self.backward else "forward"
        return f"Lowered({self.name}: {kernels}, {self.least} steps or more; print(lowered.explain()))"


def counted(count: int, noun: str) -> str:
    """Return a number of things in words."""
    return f"{count} {noun}{'s' * (count != 1)}"


def state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a module by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
