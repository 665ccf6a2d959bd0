"""What `bp.lower` returns of a program that walks time: one Triton kernel a direction.

`parts` is what the file is made of (FileParts), and `parts.layout` has the facts and the name in the file of each
tensor. A Loop writes `before` its iterations, in them, and `after` them; `start` are the first values of what it
carries from step to step, in registers; `peeled` is how many steps are outside of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from backprint.errors import UsageError
from backprint.tools.kernels.loops.build import compile_kernels
from backprint.tools.kernels.loops.file_text import FileParts, shapes_text, steps_text
from backprint.tools.kernels.loops.limits import MAX_STEPS_RUN
from backprint.tools.kernels.loops.nouns import Loop
from backprint.tools.kernels.loops.traffic import Traffic, traffic_of
from backprint.tools.kernels.loops.triton_text import KernelText
from backprint.tools.kernels.loops.words import functions_text
from backprint.tools.kernels.lowered import Lowered, counted
from backprint.tools.kernels.lowered_build import BuiltFunction
from backprint.tools.kernels.lowered_check import LoweredCheck, case_of_function, compare_with_eager

CHECKED = (1, 2, 7, 64)
"""Numbers of steps at which a loop is compared with eager."""


@dataclass(frozen=True)
class LoweredLoop(Lowered):
    """A program that walks time, as one Triton kernel a direction.

    `least` is the fewest steps that it takes, and `seen` are the numbers of steps at which it was captured. More than
    the largest of them are refused: a program may do something else from a later step on. `takes` says of a number
    whether the kernels take it. `forward` and `backward` are its two directions as Loops.
    """

    least: int
    seen: tuple[int, ...]
    forward: Loop = field(repr=False)
    backward: Loop | None = field(repr=False)
    parts: FileParts = field(repr=False)

    @property
    def most(self) -> int:
        """The most steps that it takes."""
        return max(self.seen)

    def takes(self, length: int) -> bool:
        """Whether the kernels take this number of steps."""
        limits = self.parts.limits
        ranges = limits.steps if limits else ((self.least, self.most),)
        return any(first <= length <= last for first, last in ranges)

    def inputs_of(self, length: int) -> Any:
        """Return the inputs for a number of steps."""
        assert self.make_inputs is not None
        return self.make_inputs(length)

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
        return compile_kernels(self, capability)

    def traffic(self, steps: int = 64) -> dict[str, Traffic]:
        """Return the bytes of each direction for a number of steps and the captured shape of the state."""
        layout, sums = self.parts.layout, self.parts.sums
        loops = {"forward": self.forward, **({"backward": self.backward} if self.backward else {})}
        return {name: traffic_of(loop, layout.facts, layout.state, steps, sums) for name, loop in loops.items()}

    def explain(self, steps: int = 64) -> str:
        """Return in words what is one kernel, what each direction reads and writes, and the bytes that it moves in a
        program of so many steps."""
        layout = self.parts.layout
        lines = [
            f"{self.name}: {'two kernels, one a direction' if self.backward else 'one kernel'}, for "
            f"{steps_text(self.parts)} and {shapes_text(self.parts)}",
        ]
        traffic = self.traffic(steps)
        lines += self._direction_lines("forward", self.forward, self.parts.forward, traffic["forward"], steps)
        if self.backward is not None and self.parts.backward is not None:
            lines += self._direction_lines("backward", self.backward, self.parts.backward, traffic["backward"], steps)
        # gradients of what is broadcast
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
        halves = {
            str(facts.dtype).removeprefix("torch.") for facts in layout.facts.values() if facts.dtype.itemsize == 2
        }
        if halves:
            lines.append(
                f"{', '.join(sorted(halves))} is computed in float32; what is kept is rounded before it is used"
            )
        lines += [
            f"captured at {', '.join(map(str, self.seen[:-1]))} and {self.most} steps, and run at the others up to "
            f"{min(self.most, MAX_STEPS_RUN)}; more than {self.most} are refused: pass `lengths` for more",
        ]
        lines.append(
            "inputs that are not contiguous are copied first; fewer steps, other dtypes and no elements are refused"
        )
        return "\n".join(lines)

    def _direction_lines(self, name: str, loop: Loop, text: KernelText, traffic: Traffic, steps: int) -> list[str]:
        """Return in words what the kernel `text` of a direction reads and writes, and the bytes that it moves in a
        program of so many steps (`traffic`)."""
        layout = self.parts.layout
        written = {write.tensor for write in (*loop.before, *loop.writes, *loop.after)}
        reads = [layout.name(tensor) for tensor in text.tensors if tensor not in written]
        writes = [layout.name(tensor) for tensor in text.tensors if tensor in written]
        bytes_of_state = torch.Size(layout.state).numel() * 4  # in float32
        states_a_step = traffic.moved / bytes_of_state / steps
        lines = [
            f"{name}: one loop over t with {counted(len(loop.start), 'value')} in registers; reads "
            f"{', '.join(reads)}; writes {', '.join(writes)}",
            f"  of {steps} steps: {traffic.moved:,} bytes, {traffic.ratio:.3f} of the least possible "
            f"({states_a_step:.2f} float32 states a step)",
        ]
        # the first of a loop's iterations is the last in time where it walks down
        counts = (loop.first.count, loop.last.count)[:: loop.step]
        named = zip(("the first", "the last"), counts, strict=True)
        ends = [f"{end} {count}" if count > 1 else end for end, count in named if count]
        if ends:
            lines.append(f"  steps outside of the loop, of other programs: {', '.join(ends)}")
        return lines

    def check(self, sizes: Sequence[int] = (), timeout: float = 600.0) -> LoweredCheck:
        """Run the file in a process of its own, and compare outputs and gradients with the program in eager.

        `sizes` are numbers of steps, by default 1, 2, 7 and 64 as far as it takes them. On a CPU the kernels run in
        Triton's interpreter. In float32 the largest difference may be 1e-5 of a tensor's largest value; a gradient that
        is 0 but for rounding is compared with the size of its terms. Halves are compared with the program in float32,
        and their error with that of eager.
        """
        if others := [length for length in sizes if length >= self.least and not self.takes(length)]:
            # at 6, 7 and 8 steps a loop can be found, and 9 is more than these
            raise UsageError(
                f"{self.name} takes {steps_text(self.parts)}, not {others[0]}: pass lengths=(6, 7, 8, "
                f"{max(others[0], 9)}) to bp.lower"
            )
        lengths = [length for length in sizes or CHECKED if self.takes(length)] or [self.least]
        # nudges=0: no further runs of eager, which say how far rounding alone moves results
        cases = [case_of_function(self, counted(steps, "step"), self.inputs_of(steps), nudges=0) for steps in lengths]
        return compare_with_eager(self, cases, timeout)

    def __repr__(self) -> str:
        kernels = "forward and backward" if self.backward else "forward"
        return f"LoweredLoop({self.name}: {kernels}, {self.least} to {self.most} steps; print(lowered.explain()))"
