"""Write a Capture as one Python file that needs only torch: its graphs, its inputs, and what compares them.

The file is for a bug report. Below its graphs and its inputs it has those functions of `exported`, and of the modules
that this imports, which it needs. Its inputs are those of the sample, bit for bit. Graphs are written without guards,
which hold on these inputs, and at the sizes of the capture. Exact data up to MOST_INSIDE are in the file, more are in a
safetensors file beside it. No graph is run to write the file, and its text is emitted from the parsed graph.

A *recipe* says how an input is made again: `exact` data, a draw from a seed, or (`view`, `sparse`) from other inputs,
its bases. A *tangent* is the gradient of an output with which a backward begins. A *link* passes a value of one Pair to
another. The *definitions* are the functions, classes and constants of MODULES.
"""

from __future__ import annotations

import ast
import base64
import functools
import os
import pprint
import symtable
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from backprint.errors import PlaceError, RefusedError, UsageError
from backprint.graph.keys import is_tangent, tangent_name
from backprint.graph.links import feeds, names_held_exact, result_links
from backprint.graph.nouns import Capture, Graph, InputRecipes, TensorSpec, refuse_collectives
from backprint.graph.sizes import at_example_sizes, unguarded_graph
from backprint.graph.text import emit_class, title_text
from backprint.run_sample import DRAWS, RANKS, Recipe, restore
from backprint.sample.inputs import Inputs, fitted_facts, geometry
from backprint.sample.recipes import bases_of, derive, to_json
from backprint.sample.save import write_tensors

MODULES = (
    "run_sample.py",
    "judge/closeness.py",
    "values/rounding.py",
    "tools/export/rerun.py",
    "tools/export/judged.py",
    "tools/export/exported.py",
)
"""The modules whose functions a file may have, each after those that it imports; a later one's name goes before that of
an earlier one."""

MOST_INSIDE = 64 * 1024
"""The largest exact data, in characters of base64, that is written into the file itself."""

MOST_WRITTEN_NUMBERS = 32
"""Exact numbers of so many elements are written as numbers."""

DIGITS = {torch.float64: 17, **dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), 9)}
"""How many digits tell the numbers of a dtype apart."""

Graphs: TypeAlias = Mapping[str, tuple[int, Graph]]
"""Graphs by their titles (`pair_0 forward`), each with the number of its Pair."""

SIDES = ("forward", "backward")

SEPARATOR = "# --- Below: makes the inputs, runs the graphs and compares them, with torch and nothing else ".ljust(
    118, "-"
)


def write_export(
    capture: Capture,
    path: str | os.PathLike[str],
    inputs: InputRecipes,
    backend: str | None,
    direction: str,
    about: Sequence[str] = (),
) -> Path:
    """Write the file, and large exact data beside it; return its path. Its docstring has the lines `about` it. Refuse
    collectives, a direction that the Capture lacks, and an input without a recipe. `inputs` are the recipes and the
    exact data to write, and `backend` is the default of the file's `--backend`."""
    refuse_collectives(capture, "an exported file")
    place = Path(path)
    graphs = {
        title: (index, unguarded_graph(graph)) for title, (index, graph) in graphs_needed(capture, direction).items()
    }
    # A title is the name of a Pair and a direction, `pair_0 forward`.
    shown = [title for title in graphs if direction in ("both", title.partition(" ")[2])]
    if not shown:
        raise UsageError(f"{capture.name} has no {direction}: no output of the program requires grad")
    recipes = recipes_needed(capture, graphs, inputs.recipes)
    exact = {name: inputs.exact[name] for name, recipe in recipes.items() if recipe.kind == "exact"}
    # Base64 writes three bytes as four characters.
    fits_inside = 4 * sum(tensor.nbytes for tensor in exact.values()) <= 3 * MOST_INSIDE
    data_file = data_beside(place)
    text = file_text(capture, graphs, shown, recipes, exact, "" if fits_inside else data_file.name, backend, about)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if not fits_inside:
            write_tensors(data_file, exact)
        _write_atomically(place, text)
    except OSError as error:
        raise PlaceError(f"{place}: the file could not be written: {error}") from error
    return place


def check_export(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Refuse a path that is not a Python file's, or an existing one unless `overwrite`."""
    place = Path(path)
    if place.suffix != ".py" or place.is_dir():
        raise UsageError(f"{place} is not the name of a Python file: write repro.py")
    for file in (place, data_beside(place)):
        if file.exists() and not overwrite:
            raise UsageError(f"{file} exists already: pass overwrite=True (--overwrite), or choose another path")


def data_beside(place: Path) -> Path:
    """Return the path of exact data that is too large for the file."""
    return place.with_suffix(".safetensors")


def _write_atomically(place: Path, text: str) -> None:
    """Write a file completely or not at all: it gets its name by one rename."""
    handle, staging = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(staging, 0o644)
        os.replace(staging, place)
    except BaseException:
        os.unlink(staging)
        raise


# ---- What is in it


def graphs_needed(capture: Capture, direction: str) -> dict[str, tuple[int, Graph]]:
    """Return the graphs that must run for a direction, by title, each with the number of its Pair. A forward that a
    link passes a gradient to needs the backward that returns it."""
    passes_gradient = any(link.port.role == "gradient" and link.target is not None for link in capture.links)
    needs_backwards = direction != "forward" or passes_gradient
    graphs: dict[str, tuple[int, Graph]] = {}
    for index, pair in enumerate(capture.pairs):
        for side, graph in zip(SIDES, (pair.forward, pair.backward), strict=True):
            if graph is not None and (needs_backwards or side == "forward"):
                graphs[f"pair_{index} {side}"] = index, graph
    return graphs


def recipes_needed(capture: Capture, graphs: Graphs, known: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Return the recipes, of the `known` ones, of the inputs that no link feeds, of the tangents of results, and of
    what these are made of; refuse an input without one."""
    names: list[str] = []
    for index, graph in graphs.values():
        linked = {link.name for link in feeds(capture, index)}
        own = [port.name for port in graph.inputs if port.role not in ("saved", "tangent")]
        names += [name for name in own if name not in linked]
    if any(title.endswith("backward") for title in graphs):
        names += map(tangent_name, capture.signature.differentiable)
    needed: set[str] = set()
    for name in names:  # the list grows by the bases of recipes
        if name not in known or known[name].kind == "none":
            why = f" ({dict(known[name].facts).get('why', 'saved without data')})" if name in known else ""
            raise RefusedError(
                f"no recipe makes {name!r}{why}, so no file can run {capture.name} alone: save it with data='seed' or "
                "data='exact', and export that"
            )
        names += [base for base in bases_of(known[name]) if base not in needed and base not in names]
        needed.add(name)
    return {name: recipe for name, recipe in known.items() if name in needed}


def content_of(capture: Capture, graphs: Graphs, recipes: Mapping[str, Recipe]) -> dict[str, Any]:
    """Return what the file contains besides its graphs and its exact data, as plain data that `rerun.Program` reads.

    A link passes an output or a gradient of one Pair to an input of another, and is written as source, role, port,
    target and name. With the target None it is a result of the whole Capture; a Capture of one Pair, which has no
    links, gets one for each output. `strides` has what the backwards expect of their tangents, by `INDEX NAME`: the
    number of the Pair, and the tangent.
    """
    # `result_links` has those without a target, and for one Pair those that the Capture does not write down.
    links = [*(link for link in capture.links if link.target is not None), *result_links(capture)]
    environment = dict(capture.environment)
    return {
        "name": title_text(capture.name),
        "torch": environment.get("torch", ""),
        "seed": capture.seed,
        "environment": environment,
        "requires": [target.removeprefix("torch.ops.") for target in capture.requires],
        "pairs": [f"pair_{index}" for index in range(len(capture.pairs))],
        "links": [[link.source, link.port.role, link.port.name, link.target, link.name] for link in links],
        "differentiable": list(capture.signature.differentiable),
        "strides": dict(_tangent_strides(graphs)),
        "recipes": {name: to_json(recipe) for name, recipe in recipes.items()},
    }


def _tangent_strides(graphs: Graphs) -> Iterator[tuple[str, list[int]]]:
    """Yield (`INDEX NAME`, strides) of each tangent: the strides that its backward expects, at the sizes of the
    capture; none of one whose size is still symbolic."""
    for index, graph in graphs.values():
        for port in at_example_sizes(graph).by_role("tangent"):
            spec = port.spec
            if isinstance(spec, TensorSpec) and all(type(n) is int for n in (*spec.shape, *(spec.stride or ()))):
                _, strides, _ = geometry(spec)  # a contiguous spec leaves its strides out
                yield f"{index} {port.name}", list(strides)


# ---- As text


def file_text(
    capture: Capture,
    graphs: Graphs,
    shown: Sequence[str],
    recipes: Mapping[str, Recipe],
    exact: Mapping[str, Tensor],
    data_file: str,
    backend: str | None,
    about: Sequence[str],
) -> str:
    """Return the text of the file, from its top: docstring, imports, the classes of `graphs`, its own `make_inputs`,
    `prepare` and constants, then the definitions that these need. `shown` are the titles of the graphs that are
    compared; `data_file` names the file that has the exact data, '' if this one has them."""
    linked = len(capture.pairs) > 1
    class_names = {title: class_name(title, linked) for title in graphs}
    classes = "".join("\n\n" + _class_text(graph, class_names[title]) + "\n" for title, (_, graph) in graphs.items())
    torch_version = title_text(str(dict(capture.environment).get("torch", "")))
    constants = {
        "GRAPHS": "{" + ", ".join(f"{title!r}: {name}" for title, name in class_names.items()) + "}",
        "SHOWN": repr(list(shown)),
        **({"LINKS": f"(\n{_links_text(capture, graphs)}\n)"} if linked else {}),
        "NAME": repr(f"{title_text(capture.name)}: captured with torch {torch_version}"),
        "SEED": repr(capture.seed),
        "BACKEND": repr(backend),
    }
    inputs = "".join(f"    {line}\n" for line in _input_lines(capture, graphs, recipes, exact, data_file))
    settings = "".join(f"    {line}\n" for line in _prepare_lines(capture, recipes)) or "    pass\n"
    own_text = f"\n\ndef make_inputs():\n{inputs}\n\ndef prepare():\n{settings}\n\n"
    own_text += "\n".join(f"{name} = {text}" for name, text in constants.items())
    start = "main(run_linked_graphs)" if linked else "main(run_graphs)"
    definitions = _needed_definitions(f"{own_text}\n{start}", kinds={recipe.kind for recipe in recipes.values()})
    body = f'{classes}{own_text}\n\n{SEPARATOR}\n\n\n{definitions}\n\nif __name__ == "__main__":\n    {start}\n'
    return docstring(capture, backend, about) + import_text(body) + body


def class_name(title: str, linked: bool) -> str:
    """Return the name of a graph's class: with the number of its Pair, where there are several."""
    pair, _, side = title.partition(" ")
    return f"{pair.title().replace('_', '') if linked else ''}{side.title()}"


def _links_text(capture: Capture, graphs: Graphs) -> str:
    """Return what joins the graphs of several Pairs, as Python."""
    content = content_of(capture, graphs, {})
    links = {name: content[name] for name in ("pairs", "links", "differentiable", "strides")}
    return pprint.pformat(links, width=118, compact=True, sort_dicts=False)


def docstring(capture: Capture, backend: str | None, about: Sequence[str]) -> str:
    """Return the docstring of the file, with the lines `about` it. `title_text` escapes what could end it."""
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


def _class_text(graph: Graph, name: str) -> str:
    """Return the class of a graph, with its ports in one line if they fit. `emit_class` writes a port a line between
    `def forward(` and `):`, inputs before the line `) -> (`, and outputs as strings."""
    lines = list(emit_class(graph, name, ""))
    if not graph.outputs:
        return "\n".join(lines)
    start, end = lines.index("    def forward("), lines.index("    ):")
    *inputs, _ = [line.strip() for line in lines[start + 1 : end] if not line.startswith('        "')]  # _: `) -> (`
    outputs = [line.strip() for line in lines[start + 1 : end] if line.startswith('        "')]
    parameters, results = " ".join(inputs).rstrip(","), " ".join(outputs)
    if len(outputs) > 1:  # with one, the comma makes it a tuple
        results = results.rstrip(",")
    one_line = f"    def forward({parameters}) -> ({results}):"
    return "\n".join([*lines[:start], one_line, *lines[end + 1 :]] if len(one_line) <= WIDTH else lines)


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


def _prepare_lines(capture: Capture, recipes: Mapping[str, Recipe]) -> Iterator[str]:
    """Yield a statement for each operator and device that the file needs, and for each setting of the capture that a
    new process does not have."""
    yield from (f"need_operator({target.removeprefix('torch.ops.')!r})" for target in capture.requires)
    yield from (f"need_device({name!r})" for name in sorted({recipe.device for recipe in recipes.values()} - {"cpu"}))
    yield from _setting_lines(dict(capture.environment))


def _setting_lines(environment: Mapping[str, Any]) -> Iterator[str]:
    """Yield a statement for each setting of the capture that a new process does not have."""
    threads = str(environment.get("threads", ""))
    if threads.isascii() and threads.isdecimal():
        yield f"torch.set_num_threads({int(threads)})"
    for name, text in environment.items():
        if (name, text) in SETTINGS:
            yield SETTINGS[name, text]


# ---- Inputs


def _input_lines(
    capture: Capture, graphs: Graphs, recipes: Mapping[str, Recipe], exact: Mapping[str, Tensor], data_file: str
) -> Iterator[str]:
    """Yield the statements of `make_inputs`, which makes the inputs by name; what is made of others is made after
    them."""
    yield "made = {}"
    if data_file:
        yield f"data = data_beside({data_file!r})"
    for name in sorted(recipes, key=lambda name: RANKS.get(recipes[name].kind, 0)):
        data_argument = ""
        if recipes[name].kind == "exact":
            data_argument = f"data[{name!r}]" if data_file else _tensor_text(exact[name])
        elif recipes[name].kind in RANKS:
            data_argument = "bases=made"
        yield f"made[{name!r}] = make({_recipe_text(recipes[name])}{', ' * bool(data_argument)}{data_argument})"
    # With several Pairs, `rerun.Program` adds the tangents up.
    tangents = {} if len(capture.pairs) > 1 else _tangent_expressions(capture, graphs, recipes)
    if tangents:
        yield f"made.update({{{', '.join(f'{name!r}: {text}' for name, text in tangents.items())}}})"
    yield "return made"


def _tangent_expressions(capture: Capture, graphs: Graphs, recipes: Mapping[str, Recipe]) -> dict[str, str]:
    """Return, by name, the Python of each tangent of the only Pair that is not the tangent of a result as it is: the
    sum of the tangents of the results that the output is (zeros if it is none), with the strides that the backward
    expects."""
    strides, expressions = dict(_tangent_strides(graphs)), {}
    for port in (port for _, graph in graphs.values() for port in graph.by_role("tangent")):
        result_names = [
            link.name for link in result_links(capture) if (link.port.role, link.port.name) == ("output", port.name)
        ]
        names = [tangent_name(name) for name in result_names if name in capture.signature.differentiable]
        assert isinstance(port.spec, TensorSpec)
        text = " + ".join(f"made[{name!r}]" for name in names)
        if not names:
            text = f"torch.zeros({list(port.spec.shape)}, dtype=torch.{port.spec.dtype}, device={port.spec.device!r})"
        stride = strides.get(f"0 {port.name}")  # 0: the number of the only Pair
        is_made_so = len(names) == 1 and stride is not None and tuple(stride) == recipes[names[0]].stride
        if port.spec.layout == "strided" and stride is not None and not is_made_so:
            text = f"laid({text}, {stride})"
        if text != f"made[{tangent_name(port.name)!r}]":
            expressions[tangent_name(port.name)] = text
    return expressions


def _recipe_text(recipe: Recipe) -> str:
    """Return a recipe as Python, without what is as usual."""
    arguments = []
    for field in fields(recipe):
        value = getattr(recipe, field.name)
        if field.default is MISSING:
            arguments.append(repr(value))
        elif value != field.default:
            arguments.append(f"{field.name}={value!r}")
    return f"Recipe({', '.join(arguments)})"


def _tensor_text(tensor: Tensor) -> str:
    """Return exact data as Python: as numbers where these are few and have its bits, else as bytes in base64. Of
    complex data, the real and imaginary parts: `run_sample.restore` makes them complex again."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    raw = raw_bytes(tensor)
    can_be_numbers = tensor.dtype in DIGITS or tensor.dtype in (torch.int64, torch.bool)
    if 0 < tensor.numel() <= MOST_WRITTEN_NUMBERS and can_be_numbers:
        numbers = round_floats(tensor.tolist(), DIGITS.get(tensor.dtype, 0))  # integers have no digits to round
        if raw_bytes(torch.tensor(numbers, dtype=tensor.dtype)) == raw:
            return f"torch.tensor({numbers!r}, dtype={tensor.dtype})"
    text = base64.b64encode(raw).decode("ascii")
    lines = [f'        "{text[start : start + 100]}"\n' for start in range(0, len(text), 100)]
    return f"tensor_of({tensor.dtype}, {list(tensor.shape)}, (\n{''.join(lines) or EMPTY_DATA}    ))"


EMPTY_DATA = '        ""\n'


def raw_bytes(tensor: Tensor) -> bytes:
    """Return the elements of a tensor as bytes, in row-major order."""
    return bytes(tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8).tolist())


def round_floats(values: Any, digits: int) -> Any:
    """Return floats, in lists, with no more digits than they need."""
    if isinstance(values, list):
        return [round_floats(value, digits) for value in values]
    return float(f"{values:.{digits}g}") if isinstance(values, float) else values


# ---- The functions that it needs


@functools.cache
def module_text(module: str) -> str:
    """Return the text of a module of MODULES."""
    return files("backprint").joinpath(module).read_text(encoding="utf-8")


@functools.cache
def imported() -> Mapping[str, str]:
    """Return the names that MODULES import from elsewhere, and the statement that imports each."""
    statements = {"math": "import math", "operator": "import operator"}  # which graphs may use
    for node in (node for module in MODULES for node in ast.parse(module_text(module)).body):
        match node:
            case ast.Import(names=names):
                statements |= {alias.name.partition(".")[0]: f"import {alias.name}" for alias in names}
            case ast.ImportFrom(names=names, module=str(source)) if not source.startswith("backprint."):
                statements |= {alias.name: f"from {source} import {alias.name}" for alias in names}
    return statements


def _needed_definitions(caller: str, kinds: Collection[str]) -> str:
    """Return the text of the definitions that the text `caller` needs, and of those that these need, as they are in
    MODULES. DRAWS, the table of draws by the kind of a recipe, has those of these kinds alone."""
    definitions: dict[str, str] = {}
    for module in MODULES:
        lines = module_text(module).splitlines()
        for node in ast.parse(module_text(module)).body:
            # A dict keeps the place of a key: popped first, so that a later module's stands in its own place.
            definitions.pop(defined_name(node), None)
            definitions[defined_name(node)] = "\n".join(lines_of(node, lines))
    draws = "".join(f"    {kind!r}: {draw.__name__},\n" for kind, draw in DRAWS.items() if kind in kinds)
    definitions["DRAWS"] = f"DRAWS = {{\n{draws}}}"
    own_names = {defined_name(node) for node in ast.parse(caller).body}
    needed = [name for name in _globals_read(caller) if name in definitions and name not in own_names]
    for name in needed:  # the list grows by what they need
        others = [other for other in _globals_read(definitions[name]) if other in definitions]
        needed += [other for other in others if other not in (*needed, *own_names)]
    texts = [text for name, text in definitions.items() if name in needed]
    blank_lines = ["\n\n" * text.startswith(("def ", "class ", "@")) for text in texts]
    return "\n".join(map("".join, zip(blank_lines, texts, strict=True))).strip() + "\n"


def _globals_read(text: str) -> list[str]:
    """Return the names that a text takes from its module, in any of its scopes, each once."""
    tables = [symtable.symtable(text, "<text>", "exec")]
    for table in tables:  # the list grows by the scopes inside each
        tables += table.get_children()
    symbols = [(table, symbol) for table in tables for symbol in table.get_symbols()]
    return list(dict.fromkeys(symbol.get_name() for table, symbol in symbols if is_global(table, symbol)))


def is_global(table: symtable.SymbolTable, symbol: symtable.Symbol) -> bool:
    """Whether a name is read in a scope and is its module's."""
    return symbol.is_referenced() and (symbol.is_global() or table.get_type() == "module")


def lines_of(node: ast.stmt, lines: Sequence[str]) -> Sequence[str]:
    """Return the lines of a statement."""
    return lines[first_line(node) - 1 : node.end_lineno]


def first_line(node: ast.stmt) -> int:
    """Return the number of the first line of a statement: that of a decorator, where it has one."""
    decorators = getattr(node, "decorator_list", [])
    return decorators[0].lineno if decorators else node.lineno


def defined_name(node: ast.stmt) -> str:
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


def import_text(body: str) -> str:
    """Return the imports that a file's body needs, sorted, torch after the standard library; and the line that names
    `aten` and `prims`, if it uses them."""
    names = names_read(body)
    lines = {line for name, line in imported().items() if name in names}
    standard_lines = sorted(line for line in lines if line.startswith("import ") and line != "import torch")
    standard_lines += sorted(line for line in lines if line.startswith("from ") and not line.startswith("from torch"))
    constants = [name for name in ("inf", "nan") if name in names]  # as graphs write these numbers
    torch_lines = [f"from torch import {', '.join(constants)}"] if constants else []
    torch_lines += sorted(line for line in lines if line.startswith("from torch") and line.split()[-1] not in constants)
    text = "\n".join([*standard_lines, "", "import torch", *torch_lines]) + "\n"
    namespaces = [name for name in ("aten", "prims") if name in names]
    if namespaces:
        text += f"\n{', '.join(namespaces)} = {', '.join(f'torch.ops.{name}' for name in namespaces)}\n"
    return text


# ---- Less of it


def fit_exact_inputs(capture: Capture) -> Inputs:
    """Return a sample's inputs with recipes that draw, fitted to its exact data; but constants, indices, inputs of
    guards and the bases of these stay exact, because other values would change what the graph does. Tangents keep the
    recipes that they have."""
    recipes, exact = capture.recipes.recipes, capture.recipes.exact
    kept_exact = names_held_exact(capture) | {
        port.name for pair in capture.pairs for port in pair.forward.by_role("constant")
    }
    kept_exact |= {base for name in kept_exact & set(recipes) for base in bases_of(recipes[name])}
    # The indices of sparse tensors: the values are the last part.
    kept_exact |= {part for recipe in recipes.values() if recipe.kind == "sparse" for part in bases_of(recipe)[:-1]}
    fitted = {
        name: fit_recipe(recipe, exact[name], derive(capture.seed, name))
        for name, recipe in recipes.items()
        if recipe.kind == "exact" and name not in kept_exact and not is_tangent(name)
    }
    all_recipes = {**recipes, **fitted}
    return Inputs(all_recipes, {name: exact[name] for name in exact if all_recipes[name].kind == "exact"}, capture.seed)


def fit_recipe(recipe: Recipe, data: Tensor, seed: int) -> Recipe:
    """Return a recipe that draws values like those of an exact one, fitted to its data."""
    flat = restore(recipe, data)
    kind, facts = fitted_facts(flat)
    return replace(recipe, kind=kind, seed=seed, facts=tuple(sorted(facts.items())))
