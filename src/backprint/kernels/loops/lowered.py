"""What `bp.lower` returns of a program that walks time: one Triton kernel a direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from backprint.kernels.loops.build import built
from backprint.kernels.loops.file_text import FileParts, shapes_text
from backprint.kernels.loops.nouns import Loop
from backprint.kernels.loops.traffic import Traffic, traffic_of
from backprint.kernels.loops.words import functions_text
from backprint.kernels.lowered import Lowered, counted
from backprint.kernels.lowered_build import BuiltFunction
from backprint.kernels.lowered_check import LoweredCheck, case_of_function, compared


@dataclass(frozen=True)
class LoweredLoop(Lowered):
    """A program that walks time, as one Triton kernel a direction.

    `least` is the fewest steps that it takes.
    """

    least: int
    forward: Loop = field(repr=False)
    backward: Loop | None = field(repr=False)
    parts: FileParts = field(repr=False)

    @property
    def jitted(self) -> str:
        """The name of one of the kernels in the file."""
        return f"{self.name}_forward"

    @property
    def library(self) -> str:
        """The functions of libdevice that the kernels call, which Triton's interpreter has not."""
        return functions_text(self.parts.library)

    def build(self, capability: int = 90) -> tuple[BuiltFunction, ...]:
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
        if self.library:
            lines.append(f"calls {self.library} of CUDA's libdevice, which Triton's interpreter has not: needs a GPU")
        halves = {str(facts.dtype)[6:] for facts in layout.facts.values() if facts.dtype.itemsize == 2}
        if halves:
            lines.append(
                f"{', '.join(sorted(halves))} is computed in float32; what is kept is rounded before it is used"
            )
        lines.append(
            "inputs that are not contiguous are copied first; fewer steps, other dtypes and no elements are refused"
        )
        return "\n".join(lines)

    def check(self, sizes: Sequence[int] = (1, 2, 7, 64), timeout: float = 600.0) -> LoweredCheck:
        """Run the file in a process of its own, and compare outputs and gradients with the program in eager.

        `sizes` are numbers of steps. On a CPU the kernels run in Triton's interpreter. In float32 the largest
        difference may be 1e-5 of a tensor's largest value. Halves are compared with the program in float32, and their
        error with that of eager.
        """
        assert self.make_inputs is not None
        lengths = [length for length in sizes if length >= self.least] or [self.least]
        cases = [case_of_function(self, counted(steps, "step"), self.make_inputs(steps), nudges=0) for steps in lengths]
        return compared(self, cases, timeout)

    def __repr__(self) -> str:
        kernels = "forward and backward" if self.backward else "forward"
        return f"LoweredLoop({self.name}: {kernels}, {self.least} steps or more; print(lowered.explain()))"
