"""Write a Capture as a short Python file: the program, its inputs, and as much comparison as they need.

This is `export` for a bug report. A file has the functions of `short_text` that its case uses, and makes the same
inputs as the full file, bit for bit. `in_short` says what is not written in short: several Pairs, guards,
symbolic sizes, custom operators, layouts and dtypes that a short comparison does not know. `short_check` runs the file.
"""

from __future__ import annotations

import ast
import base64
import functools
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from backprint.graph.isolation import needs_isolation
from backprint.graph.keys import tangent_name
from backprint.graph.nouns import Capture, Graph, Port, Spec, TensorSpec
from backprint.graph.operators import operators
from backprint.graph.text import emit_class, title_text
from backprint.sample.generator import Recipe, restore
from backprint.sample.standalone import names_bound
from backprint.values.closeness import same_bits

LARGEST = 2**26
"""A tensor of more elements is not drawn in one step, as short files draw."""

FEW = 32
"""Exact floats of so many elements are written as numbers."""

ODD_DTYPES = re.compile(r"complex|float8|float4|quint|qint|uint16|uint32|uint64|bits")
"""Dtypes of which a short file knows neither draws nor distances."""

FLOATS = re.compile(r"\btorch\.(float32|float16|bfloat16)\b")


class LongForm(Exception):
    """A short file cannot have this."""


@dataclass(frozen=True, slots=True)
class ShortFiles:
    """The texts of a short file with each of RULES, which were not run yet."""

    texts: tuple[str, ...]


RULES = (("wide",), ("wide", "rounded"), ("rounded",))
"""What a short comparison looks at beside the tolerance: a float64 run, and runs whose operators round otherwise. The
first that agrees with the full rule is written."""


def in_short(
    capture: Capture,
    graphs: Mapping[str, tuple[int, Graph]],
    shown: Sequence[str],
    content: Mapping[str, Any],
    recipes: Mapping[str, Recipe],
    exact: Mapping[str, Tensor],
    backend: str | None,
    about: Sequence[str],
) -> ShortFiles | str:
    """Return the short file, or why the case needs the full one."""
    try:
        check(capture, graphs, content)
        inputs = "".join(input_lines(graphs, content, recipes, exact))
    except LongForm as cause:
        return str(cause)
    names = {title: title.partition(" ")[2].title() for title in graphs}
    program = "".join("\n\n" + class_text(graph, names[title]) + "\n" for title, (_, graph) in graphs.items())
    title = f"{content['name']}: captured with torch {title_text(str(content['torch']))}"
    facts = {
        "GRAPHS": "{" + ", ".join(f"{title!r}: {name}" for title, name in names.items()) + "}",
        **({"SHOWN": repr(list(shown))} if len(shown) < len(graphs) else {}),
        "NAME, SEED, BACKEND": f"{title!r}, {content['seed']!r}, {backend!r}",
    }
    own = f"\n\ndef make_inputs():\n    return {{\n{inputs}    }}\n"
    own += "\n\n" + "".join(f"{line}\n" for line in setting_lines(content["environment"]))
    own += "\n".join(f"{name} = {text}" for name, text in facts.items())
    blocks = []
    for rule in RULES:
        parts = parts_needed(f"{own}\nmain()", needs_of(program, graphs, inputs, len(shown) < len(graphs), rule))
        body = f'{program}{own}\n\n{BELOW}\n\n\n{parts}\n\nif __name__ == "__main__":\n    main()\n'
        blocks.append(docstring(capture, backend, about) + imports(body) + body)
    return ShortFiles(tuple(blocks))


# ---- What it cannot have


def check(capture: Capture, graphs: Mapping[str, tuple[int, Graph]], content: Mapping[str, Any]) -> None:
    """Raise LongForm for a Capture that a short file does not run."""
    if len(capture.pairs) != 1:
        raise LongForm("it has several Pairs")
    if content["requires"]:
        raise LongForm("it calls a custom operator")
    for _, graph in graphs.values():
        if graph.symbols or graph.subgraphs:
            raise LongForm("it has symbolic sizes, or graphs inside")
        if needs_isolation(graph):
            raise LongForm("it calls an operator that may crash the process that tries the file")
        if any(step.target.startswith("assert") for step in graph.steps):
            raise LongForm("it has guards")
        for port in (*graph.inputs, *graph.outputs):
            check_spec(port.name, port.spec)
        if draws(graph) and any(
            isinstance(port.spec, TensorSpec) and port.spec.device != "cpu" for port in graph.inputs
        ):
            raise LongForm("it draws random numbers on a device")


def check_spec(name: str, spec: Spec) -> None:
    """Raise LongForm for a port that is no plain tensor."""
    if not isinstance(spec, TensorSpec):
        raise LongForm(f"{name} is no tensor")
    if spec.layout != "strided":
        raise LongForm(f"{name} has layout {spec.layout}")
    if ODD_DTYPES.search(spec.dtype):
        raise LongForm(f"{name} has dtype {spec.dtype}")


def draws(graph: Graph) -> bool:
    """Whether a graph draws random numbers."""
    return any("r" in operators().get(step.target, "") for step in graph.steps)


def needs_of(
    program: str, graphs: Mapping[str, tuple[int, Graph]], inputs: str, hidden: bool, rule: Collection[str]
) -> set[str]:
    """Return the conditions of `short_text` that hold."""
    drawn, dtypes = any(draws(graph) for _, graph in graphs.values()), FLOATS.search(program) is not None
    held = {"draws": drawn, "double": "torch.float64" in inputs, "hidden": hidden}
    if "wide" in rule:
        held |= {"dtypes": dtypes, "floats": not dtypes, "drawnwide": drawn, "surewide": not drawn}
    return {name for name, holds in held.items() if holds} | set(rule)


# ---- Inputs


def input_lines(
    graphs: Mapping[str, tuple[int, Graph]],
    content: Mapping[str, Any],
    recipes: Mapping[str, Recipe],
    exact: Mapping[str, Tensor],
) -> Iterator[str]:
    """Yield the lines of the dictionary of inputs, each keyed as the annotation of its port."""
    ports = {f"{port.role} {port.name}": port for _, graph in graphs.values() for port in graph.inputs}
    for key, port in ports.items():
        if port.role == "saved":
            continue
        name, stride = port.name, None
        if port.role == "tangent":
            name, stride = tangent_recipe(port, content)
        yield f"        {key!r}: {laid_out(expression(recipes[name], exact.get(name)), recipes[name], stride)},\n"


def tangent_recipe(port: Port, content: Mapping[str, Any]) -> tuple[str, Sequence[int]]:
    """Return the name of the recipe that makes a tangent, and the strides that the backward expects."""
    ends = [link[4] for link in content["links"] if link[:3] == [0, "output", port.name] and link[3] is None]
    differentiable = [name for name in ends if name in content["differentiable"]]
    stride = content["strides"].get(f"0 {port.name}")
    if len(differentiable) != 1 or stride is None:
        raise LongForm(f"the tangent of {port.name} is a sum")
    return tangent_name(differentiable[0]), stride


def laid_out(text: str, recipe: Recipe, stride: Sequence[int] | None) -> str:
    """Return the expression with a tangent's strides, where the recipe has others."""
    if stride is None or all(n <= 1 or a == b for n, a, b in zip(recipe.shape, recipe.stride, stride, strict=True)):
        return text
    if any(step == 0 and size > 1 for size, step in zip(recipe.shape, stride, strict=True)):
        return text
    return f"torch.empty_strided({list(recipe.shape)}, {list(stride)}, dtype=torch.{recipe.dtype}).copy_({text})"


def expression(recipe: Recipe, data: Tensor | None) -> str:
    """Return the Python that makes the tensor of a recipe."""
    if recipe.kind not in EXPRESSIONS and recipe.kind != "exact":
        raise LongForm(f"an input is of kind {recipe.kind}")
    if ODD_DTYPES.search(recipe.dtype) or recipe.extent > LARGEST:
        raise LongForm("an input is large, or has a dtype of which nothing is drawn")
    plain = recipe.offset == 0 and recipe.extent == math.prod(recipe.shape) and contiguous(recipe)
    shape = list(recipe.shape) if plain else [recipe.extent]
    if recipe.kind == "exact":
        text = exact_text(restore(recipe, data), shape, recipe.dtype)
    else:
        text = EXPRESSIONS[recipe.kind](recipe, shape, **{name: plain_fact(fact) for name, fact in recipe.facts})
    if recipe.device != "cpu":
        text += f".to({recipe.device!r})"
    return text if plain else f"{text}.as_strided({list(recipe.shape)}, {list(recipe.stride)}, {recipe.offset})"


def contiguous(recipe: Recipe) -> bool:
    """Whether a recipe's strides are those of a contiguous tensor."""
    step = 1
    for size, stride in reversed(list(zip(recipe.shape, recipe.stride, strict=True))):
        if stride != step:
            return False
        step *= size
    return True


def plain_fact(fact: Any) -> Any:
    """Return a fact as numbers and lists of them."""
    if isinstance(fact, tuple):
        return [plain_fact(item) for item in fact]
    if type(fact) not in (int, float, bool):
        raise LongForm("a recipe has a fact that is no number")
    return fact


def typed(dtype: str, usual: str = "float32") -> str:
    """Return the keyword for a dtype that is not the usual one."""
    return "" if dtype == usual else f", dtype=torch.{dtype}"


def normal_text(recipe: Recipe, shape: list[int], mean: float, std: float, low: float, high: float) -> str:
    return f"normal({recipe.seed}, {shape}, {mean!r}, {std!r}, {low!r}, {high!r}{typed(recipe.dtype)})"


def uniform_text(recipe: Recipe, shape: list[int], low: float, high: float) -> str:
    return f"uniform({recipe.seed}, {shape}, {low!r}, {high!r}{typed(recipe.dtype)})"


def integers_text(recipe: Recipe, shape: list[int], low: int, high: int) -> str:
    if high - low + 1 >= 2**32:
        raise LongForm("integers are spread widely")
    return f"integers({recipe.seed}, {shape}, {low!r}, {high!r}{typed(recipe.dtype, 'int64')})"


def choice_text(recipe: Recipe, shape: list[int], values: list[Any], weights: list[int]) -> str:
    if sum(weights) >= 2**32:
        raise LongForm("weights are large")
    return f"choice({recipe.seed}, {shape}, {values!r}, {weights!r}, torch.{recipe.dtype})"


def permutation_text(recipe: Recipe, shape: list[int], low: int) -> str:
    return f"permutation({recipe.seed}, {shape}, {low!r}{typed(recipe.dtype, 'int64')})"


def constant_text(recipe: Recipe, shape: list[int], value: Any, imag: float = 0.0) -> str:
    return f"torch.full({shape}, {value!r}, dtype=torch.{recipe.dtype})"


def arange_text(recipe: Recipe, shape: list[int], start: Any, step: Any, period: int) -> str:
    wide = ".double()" if recipe.dtype == "float64" else ".float()" if "float" in recipe.dtype else ""
    index = f"torch.arange({recipe.extent})" + (f" % {period!r}" if period < recipe.extent else "")
    return f"(({index}){wide} * {step!r} + {start!r}).to(torch.{recipe.dtype}).view({shape})"


def tril_text(recipe: Recipe, shape: list[int], rows: int, cols: int, diagonal: int, inside: Any, outside: Any) -> str:
    table = f"torch.tensor([{outside!r}, {inside!r}], dtype=torch.{recipe.dtype})"
    below = f"torch.ones({rows}, {cols}, dtype=torch.int64).tril({diagonal})"
    return f"{table}[{below}].repeat({recipe.extent // (rows * cols)}, 1).view({shape})"


def values_text(recipe: Recipe, shape: list[int], values: list[Any]) -> str:
    return f"torch.tensor({values!r}, dtype=torch.{recipe.dtype}).view({shape})"


EXPRESSIONS: Mapping[str, Callable[..., str]] = {
    "normal": normal_text,
    "uniform": uniform_text,
    "integers": integers_text,
    "choice": choice_text,
    "permutation": permutation_text,
    "constant": constant_text,
    "arange": arange_text,
    "tril": tril_text,
    "values": values_text,
}
"""Kind of recipe -> the Python that makes its tensor."""


def exact_text(flat: Tensor, shape: list[int], dtype: str) -> str:
    """Return exact data as numbers where there are few, else as bytes."""
    if flat.numel() <= FEW:
        values = [shortest(value) if flat.is_floating_point() else value for value in flat.tolist()]
        if same_bits(torch.tensor(values, dtype=flat.dtype), flat):
            return f"torch.tensor({values!r}, dtype=torch.{dtype}).view({shape})"
    raw = bytes(flat.contiguous().view(torch.uint8).tolist())
    text = base64.b64encode(raw).decode("ascii")
    lines = "".join(f'            "{text[start : start + 104]}"\n' for start in range(0, len(text), 104))
    return f"exact(\n{lines or EMPTY}            , {shape}{typed(dtype)})"


EMPTY = '            ""\n'


def shortest(value: float) -> float:
    """Return a float32 with no more digits than it needs."""
    return float(f"{value:.9g}")


# ---- Settings

SETTINGS: Mapping[tuple[str, str], str] = {
    **{
        ("default_dtype", name): f"torch.set_default_dtype(torch.{name})" for name in ("float64", "float16", "bfloat16")
    },
    ("deterministic", "True"): "torch.use_deterministic_algorithms(True)",
    ("deterministic", "warn"): "torch.use_deterministic_algorithms(True, warn_only=True)",
    ("flush_denormal", "True"): "torch.set_flush_denormal(True)",
    ("float32_matmul_precision", "high"): "torch.set_float32_matmul_precision('high')",
    ("float32_matmul_precision", "medium"): "torch.set_float32_matmul_precision('medium')",
    ("flash_sdp", "False"): "torch.backends.cuda.enable_flash_sdp(False)",
    ("math_sdp", "False"): "torch.backends.cuda.enable_math_sdp(False)",
    ("efficient_sdp", "False"): "torch.backends.cuda.enable_mem_efficient_sdp(False)",
    ("cudnn_deterministic", "True"): "torch.backends.cudnn.deterministic = True",
    ("mkldnn", "False"): "torch.backends.mkldnn.set_flags(False)",
}
"""A setting that is not PyTorch's usual one -> the statement that makes it."""


def setting_lines(environment: Mapping[str, Any]) -> Iterator[str]:
    """Yield a statement for each setting of the capture that a new process does not have."""
    threads = str(environment.get("threads", ""))
    if threads.isascii() and threads.isdecimal():
        yield f"torch.set_num_threads({int(threads)})"
    for name, text in environment.items():
        if (name, text) in SETTINGS:
            yield SETTINGS[name, text]


# ---- As text


def docstring(capture: Capture, backend: str | None, about: Sequence[str]) -> str:
    """Return the docstring of the file."""
    about_text = "".join(f"{title_text(line)}\n" for line in about)
    option = f" --backend {backend or 'inductor'}"
    title = f"{capture.name}. Captured by Backprint with engine {capture.engine}; runs with PyTorch alone"
    return (
        f'"""{title_text(title)}.\n\n{about_text}{"" if not about_text else chr(10)}'
        f"    python FILE{title_text(option)}   compares each result with eager's: bitwise, close or wrong\n"
        '"""\n\n'
    )


WIDTH = 120
"""The characters of a line that holds all ports of a graph, at most."""

BELOW = "# --- Below: runs the graphs and compares them, with PyTorch alone ".ljust(119, "-")


@functools.cache
def all_parts() -> str:
    """The text of `short_text`."""
    return files("backprint").joinpath("sample/short_text.py").read_text(encoding="utf-8")


def class_text(graph: Graph, name: str) -> str:
    """Return the class of a graph, with its ports in one line if they fit."""
    lines = list(emit_class(graph, name, ""))
    start, end = lines.index("    def forward("), lines.index("    ):") if graph.outputs else 0
    if not end:
        return "\n".join(lines)
    *inputs, arrow = [line.strip() for line in lines[start + 1 : end] if not line.startswith('        "')]
    outputs = [line.strip() for line in lines[start + 1 : end] if line.startswith('        "')]
    parameters, results = " ".join(inputs).rstrip(","), " ".join(outputs)
    one_line = f"    def forward({parameters}) -> ({results if len(outputs) == 1 else results.rstrip(',')}):"
    return "\n".join(
        [*lines[:start], one_line, *lines[end + 1 :]] if len(one_line) <= WIDTH and arrow == ") -> (" else lines
    )


def parts_needed(calling: str, needs: Collection[str]) -> str:
    """Return the functions that a text needs, and the constants and functions that these need, as in `short_text`."""
    lines = [line for line in all_parts().splitlines() if line_needed(line, needs)]
    lines = [line.partition("  # if: ")[0] for line in lines]
    parts = {name: node for node in ast.parse("\n".join(lines)).body for name in [name_of(node)] if name}
    own = names_bound(calling)
    wanted = [name for name in names_read(calling) if name in parts and name not in own]
    for name in wanted:
        text = "\n".join(lines_of(parts[name], lines))
        wanted += [
            part_name for part_name in names_read(text) if part_name in parts and part_name not in (*wanted, *own)
        ]
    chosen = [node for name, node in parts.items() if name in wanted]
    return "\n\n\n".join("\n".join(lines_of(node, lines)) for node in chosen) + "\n"


def line_needed(line: str, needs: Collection[str]) -> bool:
    """Whether a line is in the file: it has no condition, or one that holds."""
    _, marked, need = line.partition("  # if: ")
    return not marked or need in needs


def lines_of(node: ast.stmt, lines: Sequence[str]) -> Sequence[str]:
    """Return the lines of a statement."""
    return lines[first_line(node) - 1 : node.end_lineno]


def first_line(node: ast.stmt) -> int:
    """Return the number of the first line of a statement: that of a decorator, where it has one."""
    decorators = getattr(node, "decorator_list", [])
    return decorators[0].lineno if decorators else node.lineno


def name_of(node: ast.stmt) -> str:
    """Return the name that a function, a class or a constant has; '' for any other statement."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def names_read(text: str) -> list[str]:
    """Return the names that a text uses, each once."""
    return list(dict.fromkeys(node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)))


IMPORTS: Mapping[str, str] = {
    "Counter": "from collections import Counter",
}
TORCHS: Mapping[str, str] = {
    "TorchDispatchMode": "from torch.utils._python_dispatch import TorchDispatchMode",
    "tree_map": "from torch.utils._pytree import tree_map",
}
"""A name that a file may use -> where it comes from; the others are modules, or torch's."""


def imports(body: str) -> str:
    """Return the imports of a file, and the names of operators."""
    names = names_read(body)
    plain = [f"import {name}" for name in sorted(names) if name in PLAIN]
    plain += [line for name, line in IMPORTS.items() if name in names]
    ours = [name for name in ("inf", "nan") if name in names]
    ours_line = f"from torch import {', '.join(ours)}\n" if ours else ""
    ours_line += "".join(f"{line}\n" for name, line in TORCHS.items() if name in names)
    spaces = [name for name in ("aten", "prims") if name in names]
    spaces_line = f"\n{', '.join(spaces)} = {', '.join(f'torch.ops.{name}' for name in spaces)}\n" if spaces else ""
    return "\n".join(plain) + f"\n\nimport torch\n{ours_line}{spaces_line}"


PLAIN = frozenset(
    "argparse base64 copy ctypes functools hashlib importlib inspect math operator re runpy traceback".split()
)
"""Modules of the standard library that a file imports where it uses them."""
