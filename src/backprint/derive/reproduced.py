"""A fault of a function as one Python file that shows it with PyTorch alone.

The file imports the function, makes its inputs and tangents, calls it, and prints the result beside the expected one.
Here its lines are put together; `texts` has for each tensor the Python expression that makes it, by names such as
`input x`, `tangent output`, `direction x` and `expected`.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint.common.text import printable
from backprint.derive.called import Call, Place, Program
from backprint.errors import UsageError
from backprint.values.geometry import span
from backprint.values.tensor_files import bytes_in_memory, write_safetensors


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fault:
    """A wrong output or gradient, the one called `name`, with the values and tangents that show it, and what was
    expected.

    `check` is the row's check in the table of `bp.check`. `tangents` is empty for an output. `directions` are the
    tangents of the gradients, for a gradient of a gradient, and `outputs` the names of all tensors that the function
    returns, in order.
    """

    program: Program
    call: Call
    values: Mapping[str, Tensor]
    tangents: Mapping[str, Tensor] = field(default_factory=dict)
    name: str
    expected: Tensor
    check: str
    outputs: tuple[str, ...]
    directions: Mapping[str, Tensor] = field(default_factory=dict)


# ---- How the function is imported


@dataclass(frozen=True, slots=True)
class Import:
    """Where a function is: the folder that has its module, the module, and the name in it."""

    folder: str
    module: str
    name: str


def _import_of(function: Callable[..., Any]) -> Import:
    """Return how another process imports a function. Raise UsageError if it cannot: a module instance, a function that
    is defined inside another, or a name that does not lead back to the function."""
    owner = getattr(function, "__self__", None)
    # What has a name in a module: the class of a classmethod such as `Function.apply`, else the function itself.
    named = owner if isinstance(owner, type) else function
    name = getattr(named, "__qualname__", type(named).__qualname__)
    if isinstance(function, nn.Module):
        raise UsageError(
            f"a file cannot make the module {type(function).__name__} again: check a function that makes it, or that "
            "takes its parameters"
        )
    if "<" in name:  # `make.<locals>.silu`
        raise UsageError(
            f"a file cannot import {name}, which is defined inside a function: move it to the top of its module"
        )
    module = getattr(named, "__module__", None) or ""
    if named is not function:
        name += f".{getattr(function, '__name__', '')}"
    # The name must lead back to this very function: a decorator may have replaced it in its module.
    known = sys.modules.get(module)
    if known is None or _resolved(known, name) != function:
        raise UsageError(f"a file cannot import {name}: the module {module or 'None'} has no such name")
    path = getattr(known, "__file__", None)
    if path is None:
        return Import("", module, name)
    # A script is imported by the name of its file.
    if module == "__main__":
        return Import(str(Path(path).resolve().parent), Path(path).stem, name)
    # The number of folders from the file up to the one on sys.path: a package's `__init__.py` lies one deeper.
    up = module.count(".") + (Path(path).stem == "__init__")
    return Import(str(Path(path).resolve().parents[up]), module, name)


def _resolved(module: Any, name: str) -> Any:
    """Return the object that a dotted name stands for in a module; None if there is none."""
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def folders_of(place: Import) -> list[str]:
    """Return the folders of modules that are not installed: the function's, and others from which it may import."""
    installed = tuple({sys.prefix, sys.base_prefix})
    others = [str(Path(folder).resolve()) for folder in sys.path if Path(folder).is_dir()]
    return [folder for folder in dict.fromkeys([place.folder, *others]) if folder and not folder.startswith(installed)]


# ---- The file


MOST_NUMBERS, MOST_BYTES = 64, 1 << 16
"""Up to how many elements a tensor is written as numbers, and up to how many bytes of all as text in the file."""


def write_fault(title: str, fault: Fault | None, path: Path) -> Path:
    """Write the file for a fault; UsageError if there is none, or it cannot be written."""
    if fault is None:
        raise UsageError(
            "there is no fault with inputs to write: nothing is wrong, or one call does not show it, or only the "
            "derivative of the function's own forward is wrong, which bp.derivative locates"
        )
    place = _import_of(fault.program.function)
    strange = [leaf for leaf in fault.call.leaves if not isinstance(leaf, (Place, *PLAIN)) and leaf is not None]
    if strange:
        raise UsageError(f"a file cannot write the argument {strange[0]!r:.60}, a {type(strange[0]).__name__}")
    tensors = {f"input {name}": fault.values[name] for name in fault.call.inputs}
    tensors |= {f"tangent {name}": value for name, value in fault.tangents.items()}
    tensors |= {f"direction {name}": value for name, value in fault.directions.items()}
    tensors["expected"] = fault.expected
    memories = {name: memory_of(value) for name, value in tensors.items()}
    beside = None  # the file with the tensors, if they are too large for the text
    if sum(memory.nbytes for memory in memories.values()) > MOST_BYTES:
        beside = path.with_suffix(".safetensors")
        write_safetensors(beside, {name: memory.clone() for name, memory in memories.items()})
    texts = {
        name: text_of(tensors[name], memory, None if beside is None else name) for name, memory in memories.items()
    }
    path.write_text(file_text(title, fault, place, texts, beside), encoding="utf-8")
    return path


PLAIN = (bool, int, float, str)
"""The classes of arguments that are no tensors and are written as Python writes them."""


def memory_of(value: Tensor) -> Tensor:
    """Return the part of memory from the first to the last element of a tensor, as a flat tensor: with the gaps between
    elements, which are zeros here, so that `text_of` can lay the tensor's strides over it."""
    shape, strides = value.shape, value.stride()
    value = value.detach().cpu().resolve_conj().resolve_neg()  # which may have other strides then
    memory = torch.zeros(span(shape, strides), dtype=value.dtype)  # `span`: as many elements as the strides reach
    view = memory.as_strided(shape, strides)
    for dim, step in enumerate(strides):
        if step == 0 and shape[dim]:  # expanded: one element in memory, which `copy_` refuses to write more than once
            view, value = view.narrow(dim, 0, 1), value.narrow(dim, 0, 1)
    view.copy_(value)
    return memory


def text_of(value: Tensor, memory: Tensor, key: str | None) -> str:
    """Return an expression of Python that makes a tensor with its strides from its `memory` (`memory_of`): from the
    entry `key` of the file beside, or, if there is none, from numbers or, for more than a few, from bytes."""
    dtype = str(value.dtype)
    if key is not None:
        expression = f"STORED[{key!r}]"
    elif memory.numel() <= MOST_NUMBERS and not value.is_complex():
        numbers = ", ".join(_number_text(number) for number in memory.tolist())
        expression = f"torch.tensor([{numbers}], dtype={dtype})"
    else:
        text = base64.b64encode(bytes(bytes_in_memory(memory))).decode()
        expression = f"torch.frombuffer(bytearray(base64.b64decode({text!r})), dtype={dtype})"
    expression += (
        f".as_strided({tuple(value.shape)}, {tuple(value.stride())})"
        if value.numel()
        else f".reshape({tuple(value.shape)})"
    )
    return expression if value.device.type == "cpu" else f"{expression}.to({str(value.device)!r})"


def _number_text(number: float | int | bool) -> str:
    """Return a number as Python reads it; `nan` and `inf` are no literals."""
    text = repr(number)
    return f"float({text!r})" if text in ("nan", "inf", "-inf") else text


def file_text(title: str, fault: Fault, place: Import, texts: Mapping[str, str], beside: Path | None) -> str:
    """Return the text of the file; `texts` has the expression of each tensor, and `beside` the file of large ones."""
    gradient = bool(fault.tangents)
    what = ("the gradient of " if gradient else "") + fault.name
    head = f"{printable(title)}: {what} is wrong ({fault.check}). This needs PyTorch and the function."
    lines = [
        f'"""{head}"""'.replace("\\", "\\\\"),
        "",
        "import base64",
        "import importlib",
        "import sys",
        "",
        "import torch",
        *TENSORS_OF.splitlines(),
        "",
    ]
    lines.append(f"sys.path[:0] = {folders_of(place)!r}  # where the process that wrote this file found its modules")
    lines.append(f"fn = importlib.import_module({place.module!r}).{place.name}")
    if beside is not None:
        lines += [
            "from pathlib import Path",
            "from safetensors.torch import load_file",
            f"STORED = load_file(Path(__file__).with_name({beside.name!r}))",
        ]
    lines.append("values = {")
    lines += [f"    {name!r}: {texts[f'input {name}']}," for name in fault.call.inputs]
    lines += ["}", f"expected = {texts['expected']}", ""]
    lines.append(f"for name in {tuple(name for name in fault.call.wanted if name in fault.call.inputs)!r}:")
    lines.append("    values[name].requires_grad_()")
    lines += [f"torch.manual_seed({fault.program.seed})", f"result = fn({_call_text(fault.call)})"]
    if not gradient:
        lines.append(f"actual = tensors_of(result)[{fault.outputs.index(fault.name)}].detach()")
    else:
        lines += _gradient_lines(fault, texts)
    lines += [
        "if actual is None:",
        "    print('the function returns no gradient')",
        "    actual = torch.zeros_like(expected)",
        "",
        f"print({what!r}, 'by the function:')",
        "print(actual)",
        "print('expected:')",
        "print(expected)",
        "print('largest difference:', float((actual.to(expected.dtype) - expected).abs().max()))",
        "",
    ]
    return "\n".join(lines)


# The source of a function that each file has: the tensors in a result, in order.
TENSORS_OF = """
def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for part in parts for tensor in tensors_of(part)]

"""


def _gradient_lines(fault: Fault, texts: Mapping[str, str]) -> list[str]:
    """Return the lines that compute `actual`: the gradient called `fault.name`, or, with directions, a gradient of the
    gradients, by an input or by a tangent."""
    tangents = ", ".join(texts[f"tangent {name}"] for name in fault.tangents)
    outputs = ", ".join(f"tensors_of(result)[{fault.outputs.index(name)}]" for name in fault.tangents)
    lines = [f"outputs = [{outputs}]", f"tangents = [{tangents}]"]
    if not fault.directions:
        lines.append(f"leaves = [values[{fault.name!r}]]")
        return [*lines, "(actual,) = torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)"]
    wanted = ", ".join(f"values[{name!r}]" for name in fault.directions)
    directions = ", ".join(texts[f"direction {name}"] for name in fault.directions)
    of_tangent = fault.name.removeprefix("tangent of ")  # the output whose tangent it is, if it is a tangent
    leaf = (
        f"tangents[{list(fault.tangents).index(of_tangent)}]" if of_tangent != fault.name else f"values[{fault.name!r}]"
    )
    return [
        *lines,
        "for tangent in tangents:",
        "    tangent.requires_grad_()",
        f"directions = [{directions}]",
        "gradients = torch.autograd.grad(",
        f"    outputs, [{wanted}], tangents, create_graph=True, allow_unused=True",
        ")",
        "ends = [(g, d.to(g.dtype)) for g, d in zip(gradients, directions) if g is not None and g.requires_grad]",
        "actual = None",
        "if ends:",
        f"    (actual,) = torch.autograd.grad([g for g, _ in ends], [{leaf}], [d for _, d in ends], allow_unused=True)",
    ]


def _call_text(call: Call) -> str:
    """Return the arguments of a call as Python writes them, with `values[NAME]` in the place of each tensor."""
    texts = [Text(f"values[{leaf.name!r}]" if isinstance(leaf, Place) else repr(leaf)) for leaf in call.leaves]
    args, kwargs = pytree.tree_unflatten(texts, call.tree)
    return ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])


@dataclass(frozen=True, slots=True)
class Text:
    """A text whose `repr` is itself: in a container, it stands for a name."""

    text: str

    def __repr__(self) -> str:
        return self.text
