"""A program in Inductor's kernels as a file that stands alone: kernels, two functions that launch them, an
autograd.Function, and a function.

Words of this file:

- direction: the forward or the backward in Inductor's code (Direction). Its `inputs` and `outputs` are CodePorts:
  `port.port` is the captured graph's port, with its name and role there, `port.name` its name in the file, and
  `port.shape` and `port.stride` are expressions.
- `file.texts[direction.name]`: the function of a direction as text (FusedText): `lines` are its body, and `results` an
  expression for each output. `layout_inputs` are the inputs whose layout matters, and `other_strides` the places of
  results that Inductor laid out otherwise than the program, with the program's strides.
- tangent: the gradient of an output, which the backward takes.
- helpers: functions of PyTorch (`triton_helpers`) and of CUDA's libdevice that kernels call; a file defines them
  itself.
- "lines" are those of a body, without its indent; a "text" is complete. `break_lines` breaks long statements.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backprint.tools.kernels.alone import (
    ASSEMBLY_CALL,
    ATOMIC_PATCH,
    PTX_PATCH,
    NeededHelpers,
    helper_lines,
    libdevice_lines,
)
from backprint.tools.kernels.alone_file import template
from backprint.tools.kernels.fused.kernel_text import FusedKernel, FusedText, break_lines
from backprint.tools.kernels.fused.nouns import CodePort, Direction, unique
from backprint.tools.kernels.fused.wrapper_text import evaluate_size
from backprint.tools.kernels.loops.nouns import INPUTS


@dataclass(frozen=True, slots=True)
class FusedFile:
    """What a file is made of. `name` is that of its function, `origin` where the program is from, and `compiler` and
    `target` are what wrote the kernels, and for which GPU. `inputs` are in the order of the function's arguments:
    inputs, then parameters, … `conditions` are what must hold of the symbolic sizes, `texts` has the FusedText of
    "forward" and of "backward", and `without_grad` the ports that have no gradient."""

    name: str
    origin: str
    compiler: str
    target: str
    forward: Direction
    backward: Direction | None
    texts: dict[str, FusedText]
    conditions: tuple[str, ...]
    symbols: dict[str, str]
    """The name of each symbolic size in the file -> where it is read: `x.shape[0]`."""
    without_grad: tuple[str, ...]

    @property
    def inputs(self) -> list[CodePort]:
        """The arguments of the function, in the order of their roles; a constant may be the backward's alone."""
        names = {port.port.name for port in self.forward.inputs}
        only_backward = [
            port for port in self.backward_values if port.port.role != "saved" and port.port.name not in names
        ]
        return sorted((*self.forward.inputs, *only_backward), key=lambda port: (*INPUTS, "rng").index(port.port.role))

    @property
    def outputs(self) -> list[CodePort]:
        """What the function returns."""
        return [port for port in self.forward.outputs if port.port.role == "output"]

    @property
    def backward_values(self) -> list[CodePort]:
        """What the backward takes besides gradients of outputs: values of the forward, and arguments."""
        return [port for port in (self.backward.inputs if self.backward else ()) if port.port.role != "tangent"]

    @property
    def tangents(self) -> dict[str, CodePort]:
        """The gradient of each output that has one, by the output's port."""
        ports = self.backward.inputs if self.backward else ()
        return {port.port.name: port for port in ports if port.port.role == "tangent"}

    @property
    def gradients(self) -> dict[str, CodePort]:
        """The gradient of each input that has one, by the input's port."""
        ports = self.backward.outputs if self.backward else ()
        return {port.port.name: port for port in ports if port.port.role == "gradient"}

    def accepted_sizes(self, sizes: Sequence[int]) -> list[int]:
        """Return those of `sizes` that the file takes; all of them, where that is not known, as of a file of several
        symbols."""
        if len(self.symbols) != 1:
            return list(sizes)
        (name,) = self.symbols
        return [size for size in sizes if all(evaluate_size(text, {name: size}) for text in self.conditions)]

    @property
    def kernels(self) -> list[FusedKernel]:
        """The kernels of both directions."""
        return [kernel for text in self.texts.values() for kernel in text.kernels]

    @property
    def class_name(self) -> str:
        """The name of the autograd.Function."""
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("_")) + "Function"


def file_source(file: FusedFile) -> str:
    """Return the source of a file: its parts, without those that it does not need, which are ''."""
    helpers = [kernel.helpers for kernel in file.kernels]
    libdevice = list(dict.fromkeys(name for item in helpers for name in item.libdevice))
    parts = [
        head_text(file, calls_libdevice=bool(libdevice)),
        _tuned_text(file),
        *_merged_helpers(helpers),
        *(kernel.text.rstrip() for kernel in file.kernels),
        _direction_text(file, file.forward),
        *([_direction_text(file, file.backward)] if file.backward else []),
        function_text(file),
        helpers_text(),
        call_text(file),
        _interpreter_text(file, libdevice),
    ]
    return "\n\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def head_text(file: FusedFile, calls_libdevice: bool) -> str:
    """Return the docstring and the imports."""
    counts = [f"{len(file.texts['forward'].kernels)} in the forward"]
    if file.backward is not None:
        counts.append(f"{len(file.texts['backward'].kernels)} in the backward")
    sizes = f", for every {' and '.join(file.symbols)}" * bool(file.symbols)
    arguments = ", ".join(port.name for port in file.inputs)
    bodies = "\n".join(kernel.text for kernel in file.kernels)
    imports = ["import torch", "import triton", "import triton.language as tl"]
    if "tl_math." in bodies:
        imports.append("from triton.language import math as tl_math")
    paragraph = (
        f"Written by Backprint from {file.origin}; the kernels are those of {file.compiler} for {file.target}, with "
        f"names of the program. This file needs torch and triton alone. `{file.name}({arguments})` is the program, and "
        "gradients flow through it. What the forward keeps for the backward is what it returns after its outputs."
    )
    lines = [
        f'"""{file.name} in Triton kernels of Inductor: {", ".join(counts)}{sizes}.',
        "",
        *wrap_paragraph(paragraph),
        '"""',
    ]
    # modules that stand for libdevice and `triton_helpers`, and patches of the interpreter, are made with `types`
    needs_types = calls_libdevice or any(word in bodies for word in ("triton_helpers", "tl.atomic", ASSEMBLY_CALL))
    launch_lines = [line for text in file.texts.values() for line in (*text.lines, *text.results)]
    needs_math = any(re.search(r"\bmath\.", line) for line in (*launch_lines, *file.conditions))
    setup = [*(["import math"] if needs_math else []), "import os", *(["import types"] if needs_types else []), ""]
    lines += ["", *setup, *imports, ""]
    lines.append('INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"')
    if calls_libdevice:
        lines += ["", "if not INTERPRETED:", "    from triton.language.extra import libdevice"]
    return "\n".join(lines)


def _tuned_text(file: FusedFile) -> str:
    """Return the function that chooses configurations, if a kernel has several."""
    if not any("tuned(" in kernel.text for kernel in file.kernels):
        return ""
    return '''def tuned(*configurations):
    """Return the configurations that Triton's autotuner tries; its interpreter takes the first."""
    return list(configurations[:1] if INTERPRETED else configurations)'''


def _merged_helpers(helpers: Sequence[NeededHelpers]) -> list[str]:
    """Return the functions of PyTorch that kernels call, once each, in one text; no text if they call none. `helpers`
    has those of each kernel, whose source has definitions with two empty lines between them."""
    functions = tuple(dict.fromkeys(name for item in helpers for name in item.functions))
    if not functions:
        return []
    texts: dict[str, None] = {}
    for item in helpers:
        texts.update(dict.fromkeys(text for text in item.source.split("\n\n\n") if text.strip()))
    return [helper_lines(NeededHelpers(functions, source="\n\n\n".join(texts), libdevice=()))]


def _interpreter_text(file: FusedFile, libdevice: Sequence[str]) -> str:
    """Return what Triton's interpreter needs: functions in the place of those of `libdevice`, and of PTX, and mends of
    the interpreter; '' if it needs nothing."""
    bodies = "\n".join(kernel.text for kernel in file.kernels)
    parts: list[str] = []
    if libdevice or ASSEMBLY_CALL in bodies:
        parts.append(template("interpreter").strip())
    if libdevice:
        lines = libdevice_lines(NeededHelpers(functions=(), source="", libdevice=tuple(libdevice))).split("\n")
        # `libdevice_lines` is an if and an else: the else has the functions for the interpreter
        start = next(place for place, line in enumerate(lines) if line.startswith("else:"))
        parts.append("\n".join(line.strip() for line in lines[start + 1 :]))
    for text, mend in (("tl.atomic", ATOMIC_PATCH), (ASSEMBLY_CALL, PTX_PATCH)):
        if text in bodies:
            # without its first line, an `if`: all of this is in one
            parts.append(textwrap.dedent("\n".join(mend.strip().split("\n")[1:])))
    if not parts:
        return ""
    indented_text = "\n".join(f"    {line}".rstrip() for line in "\n\n\n".join(parts).split("\n"))
    return f"if INTERPRETED:  # what Triton's interpreter has not, or computes otherwise than a GPU\n\n{indented_text}"


def _direction_text(file: FusedFile, direction: Direction) -> str:
    """Return the function that launches the kernels of a direction."""
    text = file.texts[direction.name]
    names = [port.name for port in direction.inputs]
    results = function_results(file, direction)
    first_tensor = next(port.name for port in direction.inputs if port.is_tensor)
    lines = [
        *break_lines([f"def {file.name}_{direction.name}({', '.join(names)}):"], ""),
        f'    """Return {first_names(results)}."""',
    ]
    body = list(text.lines)
    if any("device" in line for line in body):  # allocations name it
        body.insert(0, f"device = {first_tensor}.device")
    values = ", ".join(value for _, value in results)
    return "\n".join([*lines, *break_lines(body, "    "), *break_lines([f"return {values}"], "    ")])


def first_names(results: Iterable[tuple[str, str]]) -> str:
    """Return the names of results in words: six of them at most, and how many more there are."""
    names = [name for name, _ in results]
    return ", ".join(names[:6]) + f" and {len(names) - 6} more" * (len(names) > 6) if names else "nothing"


def function_results(file: FusedFile, direction: Direction) -> list[tuple[str, str]]:
    """Return the results of a direction's function, name and expression: each once, and none that is an input. No name
    is that of an input, whose value is read after the call."""
    values = file.texts[direction.name].results
    input_names = {port.name for port in direction.inputs}
    names_taken = input_names | {port.name for port in file.inputs} | {*file.symbols}
    expressions: dict[str, str] = {}
    for port, value in zip(direction.outputs, values, strict=True):
        if value not in input_names and value not in expressions.values() and value != "None":
            # a variable's own name, and that of the port for another expression
            name = unique(value if re.fullmatch(r"[A-Za-z_]\w*", value) else port.name, names_taken)
            names_taken.add(name)
            expressions[name] = value
    return list(expressions.items())


def result_expression(file: FusedFile, direction: Direction, port: CodePort) -> str:
    """Return the expression of a result after a direction's function was called: its name there; an output of the
    forward that Inductor laid out otherwise gets the program's strides."""
    text, index = file.texts[direction.name], direction.outputs.index(port)
    names = {expression: name for name, expression in function_results(file, direction)}
    value = names.get(text.results[index], text.results[index])  # an input, or None, is no result of the function
    if direction.name == "forward" and index in text.other_strides:
        return _restrided_expression(value, port.shape, text.other_strides[index])
    return value


def _restrided_expression(value: str, shape: Sequence[str], stride: Sequence[str]) -> str:
    """Return the expression that gives a result the program's strides. A stride of 0 is a dimension that the program
    expanded: its first element stands for all."""
    strides = f"({', '.join(stride)},)"
    if "0" not in stride:
        return f"laid({value}, {strides})"
    first = ", ".join(":1" if step == "0" else ":" for step in stride)
    return f"laid({value}[{first}], {strides}).expand({', '.join(shape)})"


def function_text(file: FusedFile) -> str:
    """Return the autograd.Function: its forward, which calls the kernel and saves what the backward needs, and its
    backward, if it has one."""
    names = ", ".join(port.name for port in file.inputs)
    directions = "in kernels of both directions" if file.backward else "in kernels"
    backward = backward_lines(file, file.backward) if file.backward is not None else []
    body = [*(f"ctx.{symbol} = {symbol}" for symbol in _symbols_in(file, backward)), *_body_of_forward(file)]
    body = [*(f"{symbol} = {file.symbols[symbol]}" for symbol in _symbols_in(file, body)), *body]
    lines = [
        f"class {file.class_name}(torch.autograd.Function):",
        f'    """{file.name} {directions}."""',
        "",
        "    @staticmethod",
        f"    def forward(ctx, {names}):",
        *indent_body(body),
    ]
    return "\n".join([*lines, *([""] if backward else []), *backward])


def _symbols_in(file: FusedFile, lines: Iterable[str]) -> list[str]:
    """Return the symbolic sizes that lines name, as in the stride of a transposed tensor."""
    words = {word for line in lines for word in re.findall(r"\w+", line)}
    return [symbol for symbol in file.symbols if symbol in words]


def _body_of_forward(file: FusedFile) -> list[str]:
    """Return the body of the Function's forward: it refuses inputs that require grad now and did not then, calls the
    kernel, saves for the backward, and returns the outputs."""
    first_tensor = next(port.name for port in file.inputs if port.is_tensor)
    results = [name for name, _ in function_results(file, file.forward)]
    arguments = ", ".join(port.name for port in file.forward.inputs)
    outputs, assignments = _returned(file)
    not_differentiable = [
        value for port, value in zip(file.outputs, outputs, strict=True) if port.port.name not in file.tangents
    ]
    body = _refusals_of_grad(file) if file.backward is not None else []
    body += [line for port in file.forward.inputs if (line := layout_line(port, file.texts["forward"].layout_inputs))]
    body.append(f"with torch.cuda.device_of({first_tensor}):")
    body.append(f"    {', '.join(results)} = {file.name}_forward({arguments})")
    body += _saving_lines(file) if file.backward is not None else []
    body += assignments
    if not_differentiable:
        body.append(f"ctx.mark_non_differentiable({', '.join(not_differentiable)})")
    body.append(f"return {', '.join(outputs)}")
    return body


def _refusals_of_grad(file: FusedFile) -> list[str]:
    """Return the lines that refuse an input that requires grad, and did not when the file was written."""
    return [
        f"if ctx.needs_input_grad[{index}]:\n"
        f'    raise ValueError("{port.name} requires grad, and did not when this file was written")'
        for index, port in enumerate(file.inputs)
        if port.port.name in file.without_grad and port.dtype is not None and port.dtype.is_floating_point
    ]


def _saving_lines(file: FusedFile) -> list[str]:
    """Return the lines that keep for the backward what it reads of the forward: tensors, and numbers as attributes of
    `ctx`."""
    expressions = {port.port.name: port.name for port in file.inputs}
    expressions |= {
        port.port.name: result_expression(file, file.forward, port) for port in file.forward.outputs if _is_saved(port)
    }
    tensors = [expressions[port.port.name] for port in file.backward_values if port.is_tensor]
    numbers = [(port.name, expressions[port.port.name]) for port in file.backward_values if not port.is_tensor]
    return [f"ctx.save_for_backward({', '.join(tensors)})", *(f"ctx.{name} = {value}" for name, value in numbers)]


def _returned(file: FusedFile) -> tuple[list[str], list[str]]:
    """Return the variables of the outputs, and the lines that assign those which are not a kernel's result itself."""
    expressions = [result_expression(file, file.forward, port) for port in file.outputs]
    names_taken = {name for name, _ in function_results(file, file.forward)}
    variables: list[str] = []
    assignments: list[str] = []
    for index, (port, expression) in enumerate(zip(file.outputs, expressions, strict=True)):
        if expression in expressions[:index]:  # returned twice: autograd has one tangent for each tensor
            name, value = unique(f"{port.name}_again", names_taken), f"{expression}.clone()"
        elif not expression.isidentifier():  # laid out as in the program; what is kept for the backward stays as it is
            name, value = unique(f"{port.name}_laid", names_taken), expression
        else:
            variables.append(expression)
            continue
        names_taken.add(name)
        variables.append(name)
        assignments.append(f"{name} = {value}")
    return variables, assignments


def _is_saved(port: CodePort) -> bool:
    """Whether a port is a value that the forward keeps for the backward."""
    return port.port.role == "saved"


def backward_lines(file: FusedFile, backward: Direction) -> list[str]:
    """Return the backward of the autograd.Function: it lays tangents out as the kernels read them, calls the function
    of the backward, and returns a gradient, or None, for each input."""
    # an output without a tangent has an argument too, since autograd passes one for each output
    arguments = [
        file.tangents[port.port.name].name if port.port.name in file.tangents else f"_{port.name}"
        for port in file.outputs
    ]
    tensors = [port.name for port in file.backward_values if port.is_tensor]
    body = [f"{', '.join(tensors)}{',' * (len(tensors) == 1)} = ctx.saved_tensors"] if tensors else []
    layout_inputs = file.texts["backward"].layout_inputs
    body += [line for port in file.tangents.values() if (line := layout_line(port, layout_inputs))]
    values = [port.name if port.is_tensor else f"ctx.{port.name}" for port in backward.inputs]
    results = [name for name, _ in function_results(file, backward)]
    first_tangent = next(iter(file.tangents.values())).name
    call = f"{file.name}_backward({', '.join(values)})"
    statement = f"{', '.join(results)} = {call}" if results else "pass"
    body += [f"with torch.cuda.device_of({first_tangent}):", f"    {statement}"]
    gradients = [
        result_expression(file, backward, file.gradients[port.port.name])
        if port.port.name in file.gradients
        else "None"
        for port in file.inputs
    ]
    body.append(f"return {', '.join(gradients)}")
    body = [*(f"{symbol} = ctx.{symbol}" for symbol in _symbols_in(file, body)), *body]  # the forward reads them
    return [
        "    @staticmethod",
        "    @torch.autograd.function.once_differentiable",
        f"    def backward(ctx, {', '.join(arguments)}):",
        *indent_body(body),
    ]


def layout_line(port: CodePort, layout_inputs: frozenset[str]) -> str:
    """Return the line that lays an input out as the kernels read it, or '' if none is needed."""
    if not port.is_tensor or port.name not in layout_inputs or not port.shape:
        return ""
    if is_contiguous(port):
        return f"{port.name} = {port.name}.contiguous()"
    return f"{port.name} = laid({port.name}, ({', '.join(port.stride)},))"


def is_contiguous(port: CodePort) -> bool:
    """Whether a port's layout is that of `contiguous()`, by the texts of its strides: they may have symbols."""
    contiguous_strides, stride = [], "1"  # from the last dimension on
    for size in reversed(port.shape):
        contiguous_strides.append(stride)
        stride = size if stride == "1" else f"{size}*{stride}"
    texts = [normalize_product(text) for text in contiguous_strides[::-1]]
    return texts == [normalize_product(text) for text in port.stride]


def normalize_product(text: str) -> str:
    """Return a product in a form in which equal products are the same text: `n*(2*4)` -> `8*n`."""
    constant, symbols = 1, []
    for factor in re.sub(r"[() ]", "", text).split("*"):
        if factor.isdigit():
            constant *= int(factor)
        else:
            symbols.append(factor)
    return "*".join([str(constant), *sorted(symbols)])


def indent_body(lines: Iterable[str]) -> list[str]:
    """Return statements as lines of a method's body, 8 columns in; one statement may be several lines with an indent of
    their own."""
    rows: list[str] = []
    for line in (row for text in lines for row in text.split("\n")):
        body = line.lstrip(" ")
        rows += break_lines([body], " " * (8 + len(line) - len(body)))
    return rows


def helpers_text() -> str:
    """Return the functions that are the same in every file."""
    return '''def expect(**tensors):
    """Raise unless tensors have the dtypes and the shapes that this file was written for."""
    for name, (tensor, dtype, shape) in tensors.items():
        if tensor.dtype != dtype or tuple(tensor.shape) != tuple(shape):
            raise ValueError(
                f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, and this file was written for {dtype} of "
                f"shape {tuple(shape)}"
            )


def laid(tensor, stride):
    """Return a tensor with these strides."""
    if tensor.stride() == stride:
        return tensor
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)'''


def call_text(file: FusedFile) -> str:
    """Return the function that users call: it reads the symbolic sizes, checks dtypes, shapes and conditions, and
    applies the autograd.Function."""
    names = ", ".join(port.name for port in file.inputs)
    lines = [
        f"def {file.name}({names}):",
        f'    """Return {", ".join(port.name for port in file.outputs)} of the program."""',
    ]
    lines += [f"    {name} = {expression}" for name, expression in file.symbols.items()]
    rows = [f"{port.name}=({port.name}, {port.dtype}, {tuple_text(port)})" for port in file.inputs if port.is_tensor]
    lines += break_lines([f"expect({', '.join(rows)})"], "    ")
    if file.conditions:
        condition = " and ".join(f"({text})" if " or " in text else text for text in file.conditions)
        values = ", ".join(f"{name} = {{{name}}}" for name in file.symbols)
        lines += [
            f"    if not ({condition}):",
            f'        raise ValueError(f"{values}: this file was written for {condition}")',
        ]
    return "\n".join([*lines, f"    return {file.class_name}.apply({names})"])


def tuple_text(port: CodePort) -> str:
    """Return a shape as the text of a tuple: `(n,)`, `(n, 4)`."""
    return f"({', '.join(port.shape)}{',' * (len(port.shape) == 1)})"


def wrap_paragraph(text: str) -> list[str]:
    """Return a paragraph of a file's docstring as lines."""
    return textwrap.wrap(text, 118)
