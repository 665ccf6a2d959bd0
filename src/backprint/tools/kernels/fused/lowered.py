"""What `bp.lower` returns of a program that is no loop: Inductor's kernels as a file.

A direction is the forward or the backward in Inductor's code (Direction): its ports, `inputs` and `outputs`, and what
Inductor said of it. `file.texts[direction.name]` is its FusedText: the kernels, and the expressions of its results. A
case is eager's results on some inputs, with which the file is compared. A program draws if an operator of it makes
random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from backprint.errors import RefusedError, UsageError
from backprint.graph.nouns import Capture, Pair
from backprint.graph.sizes import example_sizes
from backprint.sample.inputs import Inputs
from backprint.sample.recipes import redraw
from backprint.tools.kernels.checking.check import lift_draws
from backprint.tools.kernels.fused.file_text import FusedFile, first_names, function_results
from backprint.tools.kernels.fused.kernel_text import FusedKernel, FusedText
from backprint.tools.kernels.fused.nouns import Direction
from backprint.tools.kernels.loops.traffic import Traffic
from backprint.tools.kernels.lowered import Lowered, counted
from backprint.tools.kernels.lowered_build import BuiltFunction, compile_function
from backprint.tools.kernels.lowered_check import (
    Case,
    LoweredCheck,
    case_of_capture,
    case_of_function,
    compare_with_eager,
    values_of_steps,
)
from backprint.tools.lowering.subjects import steps_that_draw
from backprint.values.settings import preserving_random_states

SIZES = (1, 2, 17, 128)
"""The sizes at which a program of a free size is compared."""


@dataclass(frozen=True)
class LoweredGraph(Lowered):
    """A program in Inductor's kernels, as a file that needs torch and triton alone.

    It is for the captured sizes, or for every number of what `make_inputs` was given.
    """

    file: FusedFile = field(repr=False)
    again: Callable[[Capture], LoweredGraph] = field(repr=False)
    """Lowers another Capture of the program in the same way."""

    @property
    def jitted(self) -> str:
        """The name of one of the kernels in the file."""
        return self.file.kernels[0].name

    def directions(self) -> list[Direction]:
        """Return the forward, and the backward if there is one."""
        return [self.file.forward, *([self.file.backward] if self.file.backward else [])]

    def traffic(self) -> dict[str, Traffic]:
        """Return the bytes that each direction moves at the captured sizes, and the fewest."""
        return {
            direction.name: Traffic(direction.bytes_moved, minimum_bytes_of(direction, self.file.texts[direction.name]))
            for direction in self.directions()
        }

    def explain(self) -> str:
        """Return in words what is one kernel, why others are not one with it, and the bytes that each direction
        moves."""
        kernels = [counted(len(self.file.texts[item.name].kernels), "kernel") for item in self.directions()]
        sizes = f"every {' and '.join(self.file.symbols)}" if self.file.symbols else "the captured sizes"
        # "2 kernels forward, 1 kernel backward", or "2 kernels forward"
        lines = [
            f"{self.name}: {' forward, '.join(kernels)} {'backward' if self.file.backward else 'forward'}, of "
            f"{self.file.compiler}, for {sizes}"
        ]
        for direction in self.directions():
            text, traffic = self.file.texts[direction.name], self.traffic()[direction.name]
            results = function_results(self.file, direction)
            lines.append(
                f"{direction.name}: reads {', '.join(sorted(text.used)) or 'nothing'}; writes {first_names(results)}"
            )
            lines.append(f"  {traffic.moved:,} bytes at the captured sizes, {traffic.ratio:.3f} of the least possible")
            lines += [f"  {line}" for line in _kernel_lines(direction, text.kernels)]
            if direction.extern_counts:
                calls = ", ".join(f"{name} × {count}" for name, count in direction.extern_counts.items())
                lines.append(f"  beside the kernels: {calls}")
            lines += [f"  {note}" for note in direction.notes]
        if self.file.conditions:
            lines.append(f"only where {' and '.join(self.file.conditions)}")
        lines.append("inputs in another layout are copied first; other dtypes and shapes are refused")
        return "\n".join(lines)

    def build(self, capability: int = 90) -> tuple[BuiltFunction, ...]:
        """Return PTX and cubin of the kernels for a GPU of a compute capability, 80 or 90, that need not be there."""
        module = self.load()
        # `fn`: the kernel inside of its autotuner
        return tuple(
            compile_function(getattr(module, kernel.name).fn, kernel.name, *_compile_arguments(kernel), capability)
            for kernel in self.file.kernels
        )

    def check(self, sizes: Sequence[int] = (), timeout: float = 600.0) -> LoweredCheck:
        """Run the file in a process of its own, and compare outputs and gradients with the program in eager.

        A program of a free size is compared at `sizes`, and one of captured sizes on the captured inputs and on others
        that were drawn anew. On a CPU the kernels run in Triton's interpreter. In float32 the largest difference may be
        1e-5 of a tensor's largest value. A half may be about as far from the program in float32 as eager is. Kernels
        draw other numbers than eager does: of a program that draws, the same kernels are compared with eager's draws as
        further inputs.
        """
        if self.make_inputs is None and sizes:
            raise UsageError(f"{self.name} is for the captured sizes: pass a function of a size to bp.lower for others")
        if others := set(sizes) - set(self.file.accepted_sizes(sizes)):
            raise UsageError(f"{self.name} is not for {min(others)}: only where {' and '.join(self.file.conditions)}")
        subject, cases = self.compared_with(sizes)
        return compare_with_eager(subject, cases, timeout)

    def compared_with(self, sizes: Sequence[int] = ()) -> tuple[LoweredGraph, list[Case]]:
        """Return the file that is compared, which is another one if the program draws, and eager's results to compare
        with."""
        with preserving_random_states():
            cases = self.cases(sizes)
            if not self.draws:
                return self, cases
            subject = self.with_draws()
            return subject, [with_drawn_inputs(case, self, subject) for case in cases]

    @property
    def draws(self) -> bool:
        """Whether the program draws random numbers, forward or backward."""
        return any(steps_that_draw(graph) for graph in self.capture.pairs[0].graphs)

    def with_draws(self) -> LoweredGraph:
        """Return the program lowered with the numbers that it draws as further inputs; refuse one whose backward
        draws."""
        pair = self.capture.pairs[0]
        if pair.backward is not None and steps_that_draw(pair.backward):
            raise RefusedError(f"the backward of {self.name} draws random numbers, so nothing can be compared with it")
        # the forward with an input of role "rng" in the place of each draw
        lifted, _ = lift_draws(pair.forward, at_captured_sizes=False)
        return self.again(replace(self.capture, pairs=(Pair(pair.name, lifted, pair.backward),)))

    def cases(self, sizes: Sequence[int]) -> list[Case]:
        """Return eager's results on several inputs: at each size, or on the captured inputs and on others, which the
        Capture's recipes make with another seed. Of a program that draws, they are those of the captured graphs, whose
        draws can be read."""
        if self.make_inputs is not None:
            captured_size = max(example_sizes(self.capture.pairs[0].forward).values(), default=1)
            taken = sizes or self.file.accepted_sizes(SIZES) or [captured_size]
            return [case_of_function(self, f"size {size}", self.make_inputs(size)) for size in taken]
        known = self.capture.recipes
        values = known.make()
        redrawn = {name: redraw(recipe, self.capture.seed + 1) for name, recipe in known.recipes.items()}
        others = Inputs(redrawn, known.exact, known.seed).make()
        return [
            case_of_capture(self, "the captured inputs", values, use_graphs=self.draws),
            case_of_capture(self, "other inputs", others, use_graphs=self.draws),
        ]

    def __repr__(self) -> str:
        return f"LoweredGraph({self.name}: {counted(len(self.file.kernels), 'kernel')}; print(lowered.explain()))"


def with_drawn_inputs(case: Case, lowered: LoweredGraph, subject: LoweredGraph) -> Case:
    """Return a case of a program that draws as one of `subject`, which has the numbers that it drew as inputs. They are
    those of the captured forward, run again with the seed of the case."""
    forward = lowered.capture.pairs[0].forward
    # the step that drew -> the name of its input in `subject`
    names = {port.local: port.name for port in subject.capture.pairs[0].forward.inputs if port.role == "rng"}
    values = dict(lowered.capture.origin.constants) | dict(case.inputs)
    drawn = values_of_steps(forward, [values[port.name].detach() for port in forward.inputs], names)
    inputs = values | {names[local]: value for local, value in drawn.items()}
    return replace(case, inputs={name: inputs[name] for name in subject.face.inputs})


def minimum_bytes_of(direction: Direction, text: FusedText) -> int:
    """Return the fewest bytes that a direction could move at the captured sizes: those of each input that its kernels
    read, and of each result that is no input, once."""
    input_names = {port.name for port in direction.inputs}
    bytes_read = sum(port.nbytes for port in direction.inputs if port.name in text.used)
    results = zip(direction.outputs, text.results, strict=True)
    bytes_by_result = {value: port.nbytes for port, value in results if value not in input_names}
    return bytes_read + sum(bytes_by_result.values())


def _compile_arguments(kernel: FusedKernel) -> tuple[dict[str, str], dict[str, object], int]:
    """Return the types of a kernel's arguments, its constants, and its number of warps, in the first configuration:
    arguments of `compile_function`."""
    configuration = kernel.kernel.configurations[0]
    sizes = dict(configuration.sizes)
    return dict(kernel.signature), {**kernel.constants, **sizes}, configuration.num_warps


def _kernel_lines(direction: Direction, kernels: Sequence[FusedKernel]) -> list[str]:
    """Return a line for each kernel: what it computes, and why it is not one with the kernel before."""
    lines: list[str] = []
    for index, kernel in enumerate(kernels):
        operators = (operator.operator.removeprefix("aten.").partition(".")[0] for operator in kernel.kernel.operators)
        names = list(dict.fromkeys(operators))
        computed = ", ".join(names[:6]) + f" and {len(names) - 6} more" * (len(names) > 6)
        lines.append(f"{kernel.name}: {computed}; {_element_counts(kernel)}")
        if index:
            before = kernels[index - 1]
            reason = _reason_not_fused(direction, before.kernel.name, kernel.kernel.name)
            lines.append(
                f"  is not one with the kernel before, which has {_element_counts(before)}"
                + f" (Inductor: {reason})" * bool(reason)
            )
    return lines


def _element_counts(kernel: FusedKernel) -> str:
    """Return how many elements a kernel computes at capture, and of how many it reduces each, in words."""
    call = kernel.kernel.calls[0]
    # the parameters that a call passes, in its order: all but the sizes of a configuration
    names = [name for name in kernel.module.parameters if name not in dict(kernel.kernel.configurations[0].sizes)]
    values = {name: argument.value for name, argument in zip(names, call.arguments, strict=False)}
    # Inductor's names of parameters: what a kernel computes has up to three dimensions, and what it reduces up to two
    computed_sizes = [value for name in ("xnumel", "ynumel", "znumel") if isinstance(value := values.get(name), int)]
    reduced_sizes = [value for name in ("r0_numel", "r1_numel") if isinstance(value := values.get(name), int)]
    elements = f"{prod(computed_sizes):,} elements" if computed_sizes else "one element"
    return f"{elements}, each of {prod(reduced_sizes):,}" if reduced_sizes else elements


def _reason_not_fused(direction: Direction, first: str, second: str) -> str:
    """Return the last reason that Inductor gave for not making one kernel of two, named `first` and `second`; '' if it
    gave none."""
    # the nodes of Inductor's schedule in each kernel; a refusal is of two sets of nodes, and why they are not one
    left, right = (frozenset(direction.code.nodes.get(name, ())) for name in (first, second))
    reasons = [
        reason
        for one_side, other_side, reason in direction.code.fusion_refusals
        if (one_side <= left and other_side <= right) or (one_side <= right and other_side <= left)
    ]
    return reasons[-1] if reasons else ""
