"""A program that was lowered, as a file that stands alone: its kernels, an autograd.Function, and a function.

Words of this file; those of the package are in `nouns`:

- `parts`: all that a file is made of (FileParts). `parts.forward` and `parts.backward` are KernelTexts: the source of a
  kernel, and the names of the tensors and sizes that it takes. `parts.layout` has the facts of each tensor
  (`layout.facts`), its name in the file (`layout.name`) and its kind (`layout.kind`): "whole" if it has all elements of
  the state, "row" if one number for each row, "one" if a single number, and "some" if it is broadcast otherwise.
- tensor, name: a key of `layout.facts`. Of inputs, it is the name in the file too.
- tangent: the gradient of an output, which the backward takes. kept: of a tensor, written by the forward kernel for the
  backward; its role is "saved".
- shared: of a gradient, that elements of the state add up to it, because its input is broadcast (`facts.dims` are the
  dimensions). `parts.sums` says how: in "stages", the kernel writes partial sums, one a program of the grid or one an
  element, and torch adds them up; with "atomics", the programs of the grid add to the same numbers in memory.
- a short: a number of steps that the loop does not describe, with kernels of its own (Short).
- formulas: functions in Triton that kernels call (FORMULAS of `words`), by name.
- "lines" are those of a body, without its indent; a "text" is complete.

Functions in strings are functions of the file: `check`, `sizes`, `spread`, `fitted`, `compare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from backprint.tools.kernels.loops.nouns import TensorFacts
from backprint.tools.kernels.loops.torch_text import TorchText
from backprint.tools.kernels.loops.triton_text import HALVES, KernelText, Layout, wrap_arguments
from backprint.tools.kernels.loops.words import FORMULAS
from backprint.tools.kernels.lowered import counted


@dataclass(frozen=True, slots=True)
class Short:
    """The kernels of a number of steps that the loop does not describe, without a loop. `gradients` are the tensors of
    the inputs' gradients, None where there is none at this length."""

    length: int
    forward: KernelText
    backward: KernelText | None
    gradients: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """For which calls a file is, because the program was found to be the loop there. `steps` are ranges of numbers of
    steps, the first and the last of each, and `dimensions` the fewest and the most of the state. `sizes` of the state
    are numbers of the program, by their dimension, counted from the end."""

    steps: tuple[tuple[int, int], ...]
    dimensions: tuple[int, int]
    sizes: Mapping[int, int]

    @property
    def steps_in_words(self) -> str:
        """The numbers of steps in words."""
        texts = [f"{first} to {last}" if last > first else str(first) for first, last in self.steps]
        return " and ".join([", ".join(texts[:-1]), texts[-1]] if texts[1:] else texts) + " steps"


@dataclass(frozen=True, slots=True)
class FileParts:
    """What a file is made of. `name` is that of its function, and `origin` where the program is from. `inputs` and
    `outputs` are names of tensors in the program's order, and `gradients` the tensor of the gradient of each input, or
    None. `tangents` has the tensor of the gradient of each output that has one. The loop is for `least` steps or more.
    `short` is not 0 in the parts of a Short: its number of steps."""

    name: str
    origin: str
    layout: Layout
    forward: KernelText
    backward: KernelText | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tangents: Mapping[str, str]
    gradients: tuple[str | None, ...]
    least: int
    most: int
    """The most steps that the kernels take: the largest number at which the program was compared with the loop."""
    sums: str
    shorts: tuple[Short, ...] = ()
    short: int = 0
    without_grad: tuple[int, ...] = ()
    """The places of the inputs that did not require grad."""
    torch_texts: tuple[TorchText, ...] = ()
    """Both directions in PyTorch."""
    positive: frozenset[str] = frozenset()
    """The inputs that had no negative number, so none is drawn for the comparison: a root may be taken of them."""
    limits: Limits | None = None

    @property
    def library(self) -> tuple[str, ...]:
        """The functions of CUDA's libdevice that kernels call, which Triton's interpreter does not run."""
        kernels = [
            self.forward,
            self.backward,
            *(part for short in self.shorts for part in (short.forward, short.backward)),
        ]
        return tuple(sorted(set().union(*(kernel.library for kernel in kernels if kernel))))


def file_text(parts: FileParts) -> str:
    """Return the source of a file: its head, the kernels and the functions that they call, the autograd.Functions, the
    function that users call, and the comparison with PyTorch."""
    kernels = [parts.forward, *([parts.backward] if parts.backward else [])]
    short_kernels = [kernel for short in parts.shorts for kernel in (short.forward, short.backward) if kernel]
    formulas = sorted(set().union(*(kernel.formulas for kernel in [*kernels, *short_kernels])))
    return "\n\n".join(
        [
            head_text(parts),
            *(FORMULAS[name].strip("\n") + "\n" for name in formulas),
            *(kernel.source for kernel in kernels),
            function_text(parts),
            *(text for short in parts.shorts for text in _short_texts(parts, short)),
            helpers_text(parts),
            call_text(parts),
            *_comparison_texts(parts),
        ]
    )


def _short_texts(parts: FileParts, short: Short) -> list[str]:
    """Return the kernels and the autograd.Function of a number of steps that the loop does not describe."""
    kernels = [short.forward, *([short.backward] if short.backward else [])]
    short_parts = replace(
        parts, forward=short.forward, backward=short.backward, gradients=short.gradients, short=short.length, shorts=()
    )
    return [*(kernel.source for kernel in kernels), function_text(short_parts)]


def head_text(parts: FileParts) -> str:
    """Return the docstring of the file, its imports, and BLOCK."""
    name = parts.name
    shapes = shapes_text(parts)
    return f'''"""{name} as one Triton kernel a direction, for {steps_text(parts)} and
{shapes}.

Written by Backprint from {parts.origin}. This file needs torch and triton alone. `{name}({", ".join(parts.inputs)})` is
the program, and gradients flow through it. A kernel walks time with its state in registers: an element of the state is
one lane. Halves are computed in float32. `kept_` tensors are what the forward keeps for the backward.
"""

import os

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the kernels are compared on a CPU

import triton
import triton.language as tl
{_library_text(parts)}
{_block_text(parts.layout)}
'''


def _least_steps(parts: FileParts) -> int:
    """Return the fewest steps that the kernels take."""
    return min([parts.least, *(short.length for short in parts.shorts)])


def steps_text(parts: FileParts) -> str:
    """Return in words for which numbers of steps a file is."""
    return parts.limits.steps_in_words if parts.limits else f"{_least_steps(parts)} to {parts.most} steps"


def shapes_text(parts: FileParts) -> str:
    """Return in words for which shapes of the state kernels are."""
    columns, limits = parts.layout.columns, parts.limits
    text = f"every number of rows of {columns} elements" if columns else "every shape of the state"
    if limits is None:
        return text
    first, last = limits.dimensions
    text = f"{text}, of {f'{first} to ' * (first < last)}{counted(last, 'dimension')}"
    if not limits.sizes:
        return text
    sizes = ", ".join(f"state[{place}] == {size}" for place, size in sorted(limits.sizes.items()))
    return f"{text}, with {sizes}"


def _library_text(parts: FileParts) -> str:
    """Return the import of CUDA's libdevice, if a kernel calls it, or ''."""
    return "from triton.language.extra import libdevice\n" if parts.library else ""


def _block_text(layout: Layout) -> str:
    """Return the definition of BLOCK, the number of elements of a program of the grid: twin of `_module_block` in
    `build`."""
    if layout.columns:
        size = f"BLOCK = triton.next_power_of_2({layout.columns})"
        return f'{size}\n"""A program of the grid is a row of {layout.columns} elements."""'
    return 'BLOCK = 128\n"""Elements of a program of the grid."""'


def grid_text(layout: Layout) -> str:
    """Return the grid of a launch."""
    return f"(n // {layout.columns},)" if layout.columns else "(triton.cdiv(n, BLOCK),)"


def class_name(parts: FileParts) -> str:
    """Return the name of the autograd.Function of a program: `my_cell` -> `MyCellLoop`, and `MyCellOf1` for one
    step."""
    name = "".join(part[:1].upper() + part[1:] for part in parts.name.split("_"))
    return f"{name}Of{parts.short}" if parts.short else f"{name}Loop"


def dtype_text(facts: TensorFacts) -> str:
    """Return the dtype of a tensor in memory; a kept bool is stored as int8, as Triton writes it."""
    return "torch.int8" if facts.role == "saved" and str(facts.dtype) == "torch.bool" else str(facts.dtype)


def function_text(parts: FileParts) -> str:
    """Return the autograd.Function: its forward, and its backward if the program has one."""
    steps = f" of {counted(parts.short, 'step')}" if parts.short else ""
    kernels = "both directions are one kernel each" if parts.backward else "one kernel"
    lines = [
        f"class {class_name(parts)}(torch.autograd.Function):",
        f'    """{parts.name}{steps}: {kernels}."""',
        "",
        "    @staticmethod",
        f"    def forward(ctx, {', '.join(parts.inputs)}):",
        *(f"        {line}".rstrip() for line in forward_lines(parts)),
    ]
    if parts.backward is not None:
        # an output without a tangent has an argument too, which nothing reads: autograd passes one for each output
        tangents = [parts.tangents.get(name, f"_{name}") for name in parts.outputs]
        lines += [
            "",
            "    @staticmethod",
            "    @torch.autograd.function.once_differentiable",
            f"    def backward(ctx, {', '.join(map(parts.layout.name, tangents))}):",
            *(f"        {line}".rstrip() for line in backward_lines(parts)),
        ]
    return "\n".join(lines) + "\n"


def layout_lines(parts: FileParts, name: str) -> list[str]:
    """Return the lines that lay an input out as the kernels read it, for its kind (`Layout.kind`)."""
    layout, facts = parts.layout, parts.layout.facts[name]
    kind, shown = layout.kind(name), layout.name(name)
    if kind == "whole":
        size = "(T, *state)" if facts.timed else "state"
        return [f"{shown} = {shown}.expand({size}).contiguous()"]
    if kind == "row":
        return [f"{shown} = {shown}.expand({layout.row_shape(name)}).contiguous()  # a number a row"]
    if kind == "one":
        size = "(T,)" if facts.timed else "()"
        return [
            f"{shown} = {shown}.reshape({size}).contiguous()  # a number{' a step' if facts.timed else ''}, as captured"
        ]
    timed = ", timed=True" if facts.timed else ""
    return [f"{shown}, {shown}_size, {shown}_inner = spread({shown}, state{timed})"]


def launch_lines(parts: FileParts, kernel: KernelText, save: str) -> list[str]:
    """Return the lines that launch a kernel; `save` is the text that is passed for SAVE, if it has that flag. Without
    `enable_fp_fusion`, products and sums round one by one, as PyTorch's operators do."""
    # sizes that are no variables of the file: the offset of the last step, and the number of rows
    computed = {"last": "(T - 1) * n", "rows": f"n // {parts.layout.columns}"}
    names = [computed.get(name, name) for name in [*map(parts.layout.name, kernel.tensors), *kernel.sizes]]
    flags = [f"SAVE={save}"] if kernel.saves else []
    arguments = wrap_arguments([*names, *flags, "BLOCK=BLOCK", "enable_fp_fusion=False"])
    text = f"    {kernel.name}[grid]({arguments})".split("\n")
    return [text[0], *(f"    {line}" for line in text[1:])]


def forward_lines(parts: FileParts) -> list[str]:
    """Return the body of the autograd.Function's `forward`: checks, layouts, allocations, the launch, and what is
    saved."""
    layout = parts.layout
    used = {name for kernel in (parts.forward, parts.backward) if kernel for name in kernel.tensors}
    lines = [
        *check_lines(parts),
        f"T, state, n = {_sizes_text(parts)}",
    ]
    if parts.backward is not None and parts.without_grad:
        names_by_index = ", ".join(f"{index}: {parts.inputs[index]!r}" for index in parts.without_grad)
        lines += [
            f"for index, name in {{{names_by_index}}}.items():",
            "    if ctx.needs_input_grad[index]:",
            '        raise ValueError(f"{name} requires grad, and did not when this file was written")',
        ]
    if parts.backward is not None:  # gradients get the shapes of the inputs as they were passed
        lines.append(f"ctx.shapes = {tuple_text([f'{name}.shape' for name in parts.inputs])}")
    for name in parts.inputs:
        if name in used:
            lines += layout_lines(parts, name)
    kept_tensors = [name for name, facts in layout.facts.items() if facts.role == "saved" and name in used]
    if parts.backward is not None:
        lines.append("save = any(ctx.needs_input_grad)")
    lines += [_allocation_line(parts, name) for name in (*parts.outputs, *kept_tensors)]
    lines += [f"grid = {grid_text(layout)}", f"with torch.cuda.device_of({parts.inputs[0]}):"]
    lines += launch_lines(parts, parts.forward, "save")
    results = ", ".join(map(layout.name, parts.outputs))
    if parts.backward is None:
        lines.append(f"ctx.mark_non_differentiable({results})")
    else:
        lines += _saving_lines(parts)
    return [*lines, f"return {results}"]


def _allocation_line(parts: FileParts, name: str) -> str:
    """Return the line that allocates an output, or a kept tensor, which is empty if no gradient is needed."""
    layout, facts = parts.layout, parts.layout.facts[name]
    size = "(T, *state)" if facts.timed else "state"
    size = layout.row_shape(name) if layout.is_row(name) else size
    size = f"{size} if save else (0,)" if facts.role == "saved" else size
    return f"{layout.name(name)} = torch.empty({size}, dtype={dtype_text(facts)}, device={parts.inputs[0]}.device)"


def _saving_lines(parts: FileParts) -> list[str]:
    """Return the lines of `forward` that save in `ctx` what `backward` takes."""
    layout = parts.layout
    lines = [f"ctx.save_for_backward({', '.join(map(layout.name, saved_names(parts)))})"]
    not_differentiable = [name for name in parts.outputs if name not in parts.tangents]
    if not_differentiable:
        lines.append(f"ctx.mark_non_differentiable({', '.join(map(layout.name, not_differentiable))})")
    if names := _broadcast_sizes(parts):
        lines.append(f"ctx.spread = {tuple_text(names)}")
    return [*lines, "ctx.T, ctx.state = T, state"]


def saved_names(parts: FileParts) -> list[str]:
    """Return the tensors that the backward kernel takes and `backward` does not get or make: inputs, outputs and kept
    values."""
    assert parts.backward is not None
    got_or_made = {*parts.tangents.values(), *(name for name in parts.gradients if name)}
    return [name for name in parts.backward.tensors if name not in got_or_made]


def _broadcast_sizes(parts: FileParts) -> list[str]:
    """Return the sizes of broadcast inputs that the backward kernel takes: the others can be computed from T and the
    state."""
    assert parts.backward is not None
    return [name for name in parts.backward.sizes if name not in ("n", "last", "rows", "T")]


def backward_lines(parts: FileParts) -> list[str]:
    """Return the body of the autograd.Function's `backward`: allocations of gradients, the launch, and sums in
    torch."""
    assert parts.backward is not None
    layout = parts.layout
    saved = saved_names(parts)
    lines = []
    if saved:
        lines.append(f"{tuple_text([layout.name(name) for name in saved])} = ctx.saved_tensors")
    lines.append("T, state = ctx.T, ctx.state")
    if _broadcast_sizes(parts):
        lines.append(f"{tuple_text(_broadcast_sizes(parts))} = ctx.spread")
    lines += ["n = state.numel()", f"grid = {grid_text(layout)}"]
    tangents = [name for name in parts.tangents.values() if name in parts.backward.tensors]
    for name in tangents:  # autograd may pass any strides
        lines.append(f"{layout.name(name)} = {layout.name(name)}.contiguous()")
    first = layout.name(next(iter(parts.tangents.values())))
    lines += [_allocation_of_gradient(parts, name, f"{first}.device") for name in parts.gradients if name is not None]
    lines.append(f"with torch.cuda.device_of({first}):")
    lines += launch_lines(parts, parts.backward, save="")  # a backward keeps nothing, and has no such flag
    results = [
        "None" if name is None else _returned_gradient(parts, name, f"ctx.shapes[{index}]")
        for index, name in enumerate(parts.gradients)
    ]
    text = wrap_arguments(results)
    # brackets around several, and around what `wrap_arguments` breaks into lines: a text of more than 96 characters
    returned = f"return ({text})" if len(text) > 96 or len(results) > 1 else f"return {text}"
    return [*lines, *returned.split("\n")]


def _allocation_of_gradient(parts: FileParts, name: str, device: str) -> str:
    """Return the line that allocates what the kernel writes of a gradient: `grad_x = torch.empty(state, …)`. If it is
    shared, these are partial sums, in float32 if it is a half. `device` is the text of the device."""
    layout, facts = parts.layout, parts.layout.facts[name]
    is_shared = facts.dims is not None
    dtype = "torch.float32" if is_shared and facts.dtype in HALVES else str(facts.dtype)
    # Stages write all of it, and atomics add to zeros.
    factory = "zeros" if is_shared and not layout.is_row(name) and parts.sums != "stages" else "empty"
    if layout.is_row(name):
        size = layout.row_shape(name)
    elif not is_shared:
        size = "(T, *state)" if facts.timed else "state"
    elif layout.kind(name) == "one":
        size = "grid" if parts.sums == "stages" else "()"
    else:
        size = "state" if parts.sums == "stages" else f"({layout.name(layout.input_of(name))}_size,)"
    return f"{layout.name(name)} = torch.{factory}({size}, dtype={dtype}, device={device})"


def _returned_gradient(parts: FileParts, name: str, shape: str) -> str:
    """Return the expression of a gradient in the shape of its input, of which `shape` is the text: the sum of what the
    kernel wrote, if it is shared, cast to a half if the input is one."""
    layout, facts = parts.layout, parts.layout.facts[name]
    written, is_shared = layout.name(name), facts.dims is not None
    if is_shared and layout.kind(name) == "one":
        value = f"{written}.sum().reshape({shape})"
    elif is_shared and parts.sums == "atomics" and not layout.is_row(name):
        value = f"fitted({written}, {shape}, state)"
    else:
        value = f"{written}.sum_to_size({shape})"
    return f"{value}.to({facts.dtype})" if facts.dtype in HALVES and is_shared else value


def helpers_text(parts: FileParts) -> str:
    """Return the functions that the autograd.Function calls: `check` and `sizes`, and `spread` and `fitted` where they
    are needed."""
    layout = parts.layout
    kinds = {layout.kind(name) for name in parts.inputs}
    columns = layout.columns  # 0 if the kernels do not work on rows
    row_check = ""
    if columns:
        row_check = (
            f"    if state[-1] != {columns}:\n"
            f'        raise ValueError(f"a row has {{state[-1]}} elements: this file was written for {columns}")\n'
        )
    least, most = _least_steps(parts), parts.most
    limit_lines = _limit_lines(parts)
    texts = [
        f'''def check(dtype, **tensors):
    """Raise unless tensors have the dtype that the kernels were written for."""
    for name, tensor in tensors.items():
        if tensor.dtype != dtype:
            raise TypeError(f"{{name}} is {{tensor.dtype}}: this file was written for {{dtype}}")


def sizes(timed, others):
    """Return the number of steps, the shape of the state, and how many elements it has."""
    T = timed[0].shape[0] if timed[0].dim() else 0
    if any(tensor.shape[:1] != (T,) for tensor in timed) or T < {least}:
        raise ValueError(f"time is the first dimension, of {least} or more steps: {{[tuple(x.shape) for x in timed]}}")
    if T > {most}:  # a program may do something else from a later step on
        raise ValueError(f"{{T}} steps: this loop was compared with the program up to {most} steps; lower it with more")
    state = torch.broadcast_shapes(*(x.shape[1:] for x in timed), *(x.shape for x in others))
    if state.numel() == 0:
        raise ValueError(f"the state has no elements: {{tuple(state)}}")
{row_check}{limit_lines}    return T, state, state.numel()
'''
    ]
    if "some" in kinds:
        texts.append('''def spread(tensor, state, timed=False):
    """Return a tensor that is broadcast to the state, and its place of an element e: e // inner % size."""
    lead, shape = tensor.shape[: int(timed)], tensor.shape[int(timed) :]
    padded = (1,) * (len(state) - len(shape)) + tuple(shape)
    wide = [dim for dim, size in enumerate(padded) if size != 1]
    first, last = (wide[0], wide[-1]) if wide else (0, -1)
    if padded[first : last + 1] != tuple(state[first : last + 1]):  # wide, narrow and wide again: copied to all
        tensor, padded, first, last = tensor.expand(*lead, *state), tuple(state), 0, len(state) - 1
    return tensor.contiguous(), torch.Size(padded).numel(), max(1, torch.Size(state[last + 1 :]).numel())
''')
    if parts.backward is not None and "some" in kinds and parts.sums == "atomics":
        texts.append('''def fitted(gradient, shape, state):
    """Return a sum in the shape of its input."""
    if gradient.numel() == shape.numel():
        return gradient.reshape(shape)
    return gradient.reshape(state).sum_to_size(shape)
''')
    return "\n\n".join(texts)


def _limit_lines(parts: FileParts) -> str:
    """Return the lines of `sizes` in the file that refuse calls at which the program was not found to be the loop."""
    limits, lines = parts.limits, []
    if limits is None:
        return ""
    if limits.steps != ((_least_steps(parts), parts.most),):  # else `sizes` in the file has both bounds already
        lines += [
            f"    if not any(first <= T <= last for first, last in {limits.steps}):",
            '        raise ValueError(f"{T} steps: this loop was compared with the program at '
            f'{limits.steps_in_words}; lower it with others")',
        ]
    first, last = limits.dimensions
    lines += [
        f"    if not {first} <= len(state) <= {last}:  # a program may do something else",
        '        raise ValueError(f"the state has {len(state)} dimensions: this loop was compared with the program at '
        f'{first} to {last}")',
    ]
    for place, size in sorted(limits.sizes.items()):
        lines += [
            f"    if state[{place}] != {size}:  # the program branches on it, or computes with it",
            f'        raise ValueError(f"state[{place}] is {{state[{place}]}}: this file was written for {size}")',
        ]
    return "".join(f"{line}\n" for line in lines)


def call_text(parts: FileParts) -> str:
    """Return the function that users call."""
    arguments = ", ".join(parts.inputs)
    timed = next(name for name in parts.inputs if parts.layout.facts[name].timed)
    lines = [
        f"def {parts.name}({arguments}):",
        f'    """Return {" and ".join(map(parts.layout.name, parts.outputs))} of the program."""',
    ]
    for short in parts.shorts:
        lines += [
            f"    if {timed}.shape[:1] == ({short.length},):  # its iterations are not those of more steps",
            f"        return {class_name(replace(parts, short=short.length))}.apply({arguments})",
        ]
    return "\n".join([*lines, f"    return {class_name(parts)}.apply({arguments})"]) + "\n"


TOLERANCES = {"torch.float64": 1e-12, "torch.float32": 1e-5, "torch.bfloat16": 4 * 2**-7, "torch.float16": 4 * 2**-10}
"""How far kernels may be from PyTorch when the file compares them, relative to the largest number: 4 eps for halves."""


def _comparison_texts(parts: FileParts) -> list[str]:
    """Return both directions in PyTorch, and the function that compares the kernels with them."""
    dtypes = {str(facts.dtype) for facts in parts.layout.facts.values()}
    allowed = ", ".join(f"{dtype}: {value}" for dtype, value in TOLERANCES.items() if dtype in dtypes)
    helpers = f'''def as_tuple(value):
    """Return a result as a tuple of tensors."""
    return value if isinstance(value, tuple) else (value,)


def same(name, result, plain):
    """Raise unless two tensors are the same, relative to the largest number, and have a number to compare."""
    result, plain = result.detach(), plain.sum_to_size(result.shape).to(result.dtype)
    if not plain.isfinite().any():
        raise AssertionError(f"{{name}} has no finite number to compare: pass inputs")
    allowed = {{{allowed}}}.get(result.dtype, 0.0)
    largest = plain[plain.isfinite()].abs().max().double()
    is_same = (result == plain) | (result.isnan() & plain.isnan())
    is_same |= (result.double() - plain.double()).abs() <= allowed * largest
    if not is_same.all():
        raise AssertionError(f"{{name}} differs in {{int((~is_same).sum())}} of {{is_same.numel()}} elements")
'''
    return [
        "# ---- The same loops in PyTorch, and the comparison of the kernels with them: python this_file.py\n",
        *(side.source for side in parts.torch_texts),
        helpers,
        "\n".join(_compare_lines(parts)) + "\n",
        'if __name__ == "__main__":\n    compare()\n',
    ]


def _compare_lines(parts: FileParts) -> list[str]:
    """Return the function `compare` of the file, which runs the kernels and the loops in PyTorch on the same inputs."""
    shown = parts.layout.name
    forward = parts.torch_texts[0]
    arguments = ", ".join(parts.inputs)
    outputs = list(map(shown, parts.outputs))
    steps = _steps_to_compare(parts)
    lines = [
        f"def compare({', '.join(f'{name}=None' for name in parts.inputs)}, steps={steps}):",
        '    """Raise unless the kernels give what the loops in PyTorch give, to these inputs or to random ones."""',
        f"    if {parts.inputs[0]} is None:",
        "        torch.manual_seed(0)",
        '        device = "cuda" if torch.cuda.is_available() else "cpu"',
        *(f"        {name} = {_draw_text(parts.layout.facts[name], name in parts.positive)}" for name in parts.inputs),
        f"    T, state, _ = {_sizes_text(parts)}",
        f"    device = {parts.inputs[0]}.device",
    ]
    gradient_by_input = {
        name: shown(gradient)
        for name, gradient in zip(parts.inputs, parts.gradients, strict=True)
        if gradient and parts.backward is not None
    }
    lines += [f"    {name} = {name}.detach().requires_grad_()" for name in gradient_by_input]
    lines += [f"    results = as_tuple({parts.name}({arguments}))", *_torch_call_lines(parts, forward)]
    lines += [f"    same({quoted(name)}, results[{index}], {name})" for index, name in enumerate(outputs)]
    if gradient_by_input:
        lines += _gradient_comparison_lines(parts, gradient_by_input)
    return [*lines, '    print(f"right: {T} steps of {tuple(state)}")']


def _steps_to_compare(parts: FileParts) -> int:
    """Return how many steps `compare` runs by default: 7, or the next number that the loop takes."""
    fewest = max(7, parts.least)
    ranges = parts.limits.steps if parts.limits else ((parts.least, parts.most),)
    return next(max(fewest, first) for first, last in ranges if last >= fewest)


def _gradient_comparison_lines(parts: FileParts, gradient_by_input: Mapping[str, str]) -> list[str]:
    """Return the lines of `compare` that compare gradients, for random tangents. `gradient_by_input` has the name in
    the file of each input's gradient."""
    shown, backward = parts.layout.name, parts.torch_texts[1]
    # the place of each output that has a tangent, and its tangent's name
    tangents = [
        (index, shown(parts.tangents[name])) for index, name in enumerate(parts.outputs) if name in parts.tangents
    ]
    tangent_names = ", ".join(tangent for _, tangent in tangents)
    return [
        *(f"    {tangent} = torch.randn_like({shown(parts.outputs[index])})" for index, tangent in tangents),
        f"    of = [{', '.join(f'results[{index}]' for index, _ in tangents)}]",
        f"    gradients = torch.autograd.grad(of, [{', '.join(gradient_by_input)}], [{tangent_names}])",
        *_torch_call_lines(parts, backward),
        *(
            f"    same({quoted(name)}, gradients[{index}], {name})"
            for index, name in enumerate(gradient_by_input.values())
        ),
    ]


def quoted(name: str) -> str:
    """Return a name as a string of Python."""
    return f'"{name}"'


def _draw_text(facts: TensorFacts, is_positive: bool) -> str:
    """Return the text that draws an input of the captured shape: no negative numbers if it had none."""
    sizes = [*["steps"] * facts.timed, *map(str, facts.shape)]
    size = tuple_text(sizes) if sizes else "()"
    if facts.dtype.is_floating_point:
        return f"torch.{'rand' if is_positive else 'randn'}({size}, dtype={facts.dtype}, device=device)"
    return f"torch.randint(0, 2, {size}, device=device).to({facts.dtype})"


def _torch_call_lines(parts: FileParts, side: TorchText) -> list[str]:
    """Return the lines that run a direction in PyTorch, and give its results the names of its tensors: `h, = …`."""
    shown = parts.layout.name
    arguments = wrap_arguments([*map(shown, side.takes), "T", "state", "device"])
    results = tuple_text(list(map(shown, side.returns)))[1:-1]  # without brackets
    text = f"        {results} = as_tuple({side.name}({arguments}))"
    first, *rest = text.split("\n")
    return ["    with torch.no_grad():", first, *(f"        {line}" for line in rest)]


def _sizes_text(parts: FileParts) -> str:
    """Return the call of `sizes` in the file; values of rows get a last dimension of one, to broadcast with the
    others."""

    def with_last_dimension(name: str) -> str:
        return f"{name}[..., None]" if parts.layout.facts[name].by_row else name

    timed = [with_last_dimension(name) for name in parts.inputs if parts.layout.facts[name].timed]
    others = [with_last_dimension(name) for name in parts.inputs if not parts.layout.facts[name].timed]
    return f"sizes({tuple_text(timed)}, {tuple_text(others)})"


def tuple_text(names: Sequence[str]) -> str:
    """Return names as the text of a tuple: `(a,)`, `(a, b)`."""
    return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"


def check_lines(parts: FileParts) -> list[str]:
    """Return the lines that check the dtypes of the inputs."""
    dtypes: dict[str, list[str]] = {}
    for name in parts.inputs:
        dtypes.setdefault(str(parts.layout.facts[name].dtype), []).append(name)
    return [f"check({dtype}, {', '.join(f'{name}={name}' for name in names)})" for dtype, names in dtypes.items()]
