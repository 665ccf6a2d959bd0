"""One direction as a loop of plain PyTorch: what a lowered file compares its kernels with.

The loop is that of the kernel, with its names, its numbers in float32 for halves, and its roundings. Only the words are
PyTorch's, and a tensor of a step is `x[t]`. So the comparison is of the kernels with operators of PyTorch; that the
loop is the program was proven when the file was written.

Words of this file, which are those of `triton_text`: a tensor is a key of `layout.facts`, and `layout.name` its name in
the file; `facts.dims` are the dimensions over which a gradient of what is broadcast is summed, None of other tensors;
`facts.by_row` says that it has one value for each row of the state, without the last dimension; a text has a level, how
tightly it binds; halves are float16 and bfloat16. A slot is Now (time t), an Edge, near the first or the last step, or
None for a tensor without time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from backprint.errors import RefusedError
from backprint.tools.kernels.loops.nouns import Edge, Element, Loop, Now, Slot, Write
from backprint.tools.kernels.loops.triton_text import (
    HALVES,
    TYPES,
    Layout,
    Writer,
    bracket,
    folded_text,
    literal,
    wrap_arguments,
)
from backprint.tools.kernels.loops.words import NAME_OR_CALL, SUM

TORCH_CALLS: Mapping[str, str] = {
    "where": "torch.where({}, {}, {})",
    "mod": "torch.fmod({}, {})",
    "floordiv": 'torch.div({}, {}, rounding_mode="floor")',
    "fma": "({}) * ({}) + ({})",
    "row_sum": "torch.sum({}, -1, keepdim=True)",
    "row_max": "torch.amax({}, -1, keepdim=True)",
    "row_min": "torch.amin({}, -1, keepdim=True)",
    "row_any": "torch.any({}, -1, keepdim=True)",
    "modified_bessel_i0": "torch.special.i0({})",
    "modified_bessel_i1": "torch.special.i1({})",
    **{
        name: f"torch.special.{name}({{}})"
        for name in ("erfcx", "i0", "i1", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")
    },
}
"""Operations that PyTorch has by another name than Inductor, or with other arguments."""


@dataclass(frozen=True, slots=True)
class TorchText:
    """A direction in PyTorch: its name, its source, the tensors that it takes, and those that it returns."""

    name: str
    source: str
    takes: tuple[str, ...]
    returns: tuple[str, ...]


def torch_loop(name: str, loop: Loop, layout: Layout, read_later: frozenset[str] = frozenset()) -> TorchText:
    """Return one direction in PyTorch; `read_later` as in `kernel_text`. Its sums are left to the caller in any
    case."""
    writer = _TorchWriter(name, loop, layout, "stages", read_later)
    writer.write()
    return writer.torch_text()


def _assigns_itself(line: str) -> bool:
    """Whether a line assigns a variable to itself, `x = x`: an input that is read as it is."""
    left, _, right = line.strip().partition(" = ")
    return left == right and left.isidentifier()


def type_text(dtype: torch.dtype) -> str:
    """Return the dtype in which a kernel computes, as torch names it: TYPES has Triton's names."""
    return {"tl.int1": "torch.bool"}.get(TYPES[dtype]) or TYPES[dtype].replace("tl", "torch")


def _edge_text(slot: Slot) -> str:
    """Return the time of a slot at an end, as text."""
    assert isinstance(slot, Edge)
    return f"T - {slot.count + 1}" if slot.last else str(slot.count)


class _TorchWriter(Writer):
    """Writes a direction in PyTorch. What has another text than in Triton is overridden: reads, writes, numbers, casts
    and calls; the order of statements and the names are Writer's."""

    is_triton = False

    def torch_text(self) -> TorchText:
        """Return the function, after `write` has written its lines: allocations, these lines, and the return."""
        loop = self.loop
        written = tuple(dict.fromkeys(write.tensor for write in (*loop.before, *loop.writes, *loop.after)))
        takes = tuple(name for name in self.tensors if name not in written)
        shown = self.layout.name
        allocations = []
        for name in written:
            facts = self.layout.facts[name]
            if facts.dims is None:  # a sum is assigned as a whole, and needs no memory before
                call = f"torch.empty({self.shape_text(name)}, dtype={facts.dtype}, device=device)"
                allocations.append(f"    {shown(name)} = {call}")
        head = f"def {self.name}({wrap_arguments([*map(shown, takes), 'T', 'state', 'device'])}):"
        result = f"    return {wrap_arguments([shown(name) for name in written])}"
        lines = [line for line in self.lines if not _assigns_itself(line)]
        source = "\n".join([head, *allocations, *lines, result]) + "\n"
        return TorchText(self.name, source, takes, written)

    def shape_text(self, tensor: str) -> str:
        """Return the shape of a tensor that is written."""
        facts = self.layout.facts[tensor]
        if self.layout.is_row(tensor):
            return self.layout.row_shape(tensor)
        return "(T, *state)" if facts.timed else "state"

    def moving_tensors(self, roots: Sequence[Element]) -> list[str]:
        """Return none: a step is read as `x[t]`, without an offset."""
        return []

    # ---- Reads and writes

    def read_text(self, tensor: str, slot: Slot, offset: str = "") -> str:
        """Return the text that reads a tensor at a slot, `x[t]` or with an `offset`, `x[t - 1]`; values of rows with a
        last dimension of one, to broadcast with the state."""
        self.tensors[tensor] = None
        facts, text = self.layout.facts[tensor], self.layout.name(tensor)
        if isinstance(slot, Now):
            text += f"[t{offset}]"
        elif slot is not None:
            text += f"[{_edge_text(slot)}]"
        if facts.by_row:
            text += "[..., None]"
        return f"{text}.float()" if facts.dtype in HALVES else text

    def load_text(self, element: Element) -> str:
        return self.read_text(element.args[0], element.args[1])

    def previous_text(self, element: Element) -> str:
        """Return the read of the step before: at step 0, its first value, since PyTorch would read x[-1], the last
        step."""
        tensor, start = element.args
        is_number = not isinstance(start, Element)
        first = self.constant_text(start, element.dtype) if is_number else self.expression(start)[0]
        return f"({self.read_text(tensor, Now(), ' - 1')} if t > 0 else {first})"

    def write_store(self, write: Write, depth: int) -> None:
        """Write a store. Of a gradient of what is broadcast, the terms are stored, one for each element of the state:
        whoever calls the function sums them."""
        pad = "    " * depth
        tensor, facts = write.tensor, self.layout.facts[write.tensor]
        self.tensors[tensor] = None
        value, level = self.expression(write.element)
        name = self.layout.name(tensor)
        if facts.dims is not None:
            self.lines.append(f"{pad}{name} = torch.zeros(state, device=device) + {bracket(value, level, SUM)}")
            return
        if write.slot is None:
            at = []
        else:
            at = ["t"] if isinstance(write.slot, Now) else [_edge_text(write.slot)]
        if facts.by_row:  # the value has a last dimension of one, which the tensor has not: `x[t, ..., None] = value`
            at += ["...", "None"]
        elif not at:
            at = ["..."]
        self.lines.append(f"{pad}{name}[{', '.join(at)}] = {value}")

    # ---- Expressions

    def constant_text(self, value: object, dtype: torch.dtype) -> str:
        """Return a number as a tensor."""
        return f"torch.tensor({literal(value, dtype)}, dtype={type_text(dtype)}, device=device)"

    def number_text(self, element: Element) -> str:
        """Return a constant as a tensor of no dimensions."""
        text = "0.0" if element.op == "zero" else folded_text(element)
        return f"torch.tensor({text}, dtype={type_text(element.dtype)}, device=device)"

    def zero_at(self, first: str, text: str) -> str:
        return f"torch.zeros_like({text}) if t == {first} else {text}"

    def rounding_text(self, element: Element) -> str:
        return f".to({self.rounded[element]}).float()"

    def cast_text(self, element: Element, text: str, level: int) -> tuple[str, int]:
        """Return a value in another dtype, as Writer.cast_text; a number becomes a tensor first, to have a `to`."""
        source_dtype, dtype = element.inputs[0].dtype, element.dtype
        if folded_text(element.inputs[0]) is not None:
            text, level = self.number_text(element.inputs[0]), NAME_OR_CALL
        # what is a half of this dtype is not rounded again, and 0 and 1 need no rounding
        if dtype in HALVES and source_dtype not in (dtype, torch.bool):
            return f"{bracket(text, level, NAME_OR_CALL)}.to({dtype}).float()", NAME_OR_CALL
        if TYPES[source_dtype] == TYPES[dtype]:
            return text, level
        return f"{bracket(text, level, NAME_OR_CALL)}.to({type_text(dtype)})", NAME_OR_CALL

    def call_text(self, element: Element, texts: list[str]) -> tuple[str, int]:
        """Return the call of a function of torch, and its level: by TORCH_CALLS, or of Inductor's name. `torch.where`
        alone takes numbers. Refuse an operation that torch has not."""
        if element.op != "where":
            pairs = zip(texts, element.inputs, strict=True)
            texts = [text if folded_text(item) is None else self.number_text(item) for text, item in pairs]
        if element.op in TORCH_CALLS:
            # fma is written as `a * b + c`
            return TORCH_CALLS[element.op].format(*texts), SUM if element.op == "fma" else NAME_OR_CALL
        if not hasattr(torch, element.op):
            raise RefusedError(f"{element.op} is no function of PyTorch")
        return f"torch.{element.op}({', '.join(texts)})", NAME_OR_CALL
