"""No mutation of a kernel merges with it: a constant, an operator, a mask, a type, an argument, a target."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import pytest
from kernels.inductor_sources import inductor_kernels

from face import Kernel, RefusedError

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.BitAnd: ast.BitOr,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.USub: ast.Invert,
}

WORDS = {
    "float32": "float16",
    "int64": "int32",
    "sum": "max",
    "load": "loads",
    "store": "atomic_add",
    "exp": "exp2",
    "rsqrt": "sqrt",
    "pointwise": "reduction",
    "persistent_reduction": "reduction",
    "INNER": "OUTER",
}
"""Attributes and what to write in their place."""

TEXTS = {
    "*fp32": "*fp16",
    "*i64": "*i32",
    "i32": "i64",
    "constexpr": "i32",
    "Grid1D": "Grid2D",
    "evict_last": "evict_first",
    "tt.divisibility": "tt.equal_to",
}
"""Texts in metadata and calls, and what to write in their place."""

LEFT_OUT = {"filename"}
COUNTED = {"grid_type", "mutated_arg_names", "config_args", "fixed_grid", "extra_launcher_args"}


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that are part of the program: not those of which metadata only says how a kernel was made."""
    waiting: list[ast.AST] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case ast.keyword(arg=str(name)) if name in LEFT_OUT:
                continue
            case ast.keyword(arg="inductor_meta", value=ast.Dict(keys=keys, values=values)):
                named = zip(keys, values, strict=True)
                waiting += [value for key, value in named if ast.literal_eval(key or ast.Constant("")) in COUNTED]
            case ast.Call(func=ast.Name(id="DeviceProperties"), keywords=options):
                waiting += [option.value for option in options if option.arg == "type"]
            case _:
                waiting += ast.iter_child_nodes(node)


def change_node(node: ast.AST, others: list[str]) -> str:
    """Change a node in place and say how; '' if there is nothing to change."""
    match node:
        case ast.Constant(value=bool(value)):
            node.value = not value
            return "flag"
        case ast.Constant(value=int(value)) | ast.Constant(value=float(value)):
            node.value = value + 1
            return "constant"
        case ast.Constant(value=str(value)) if value in TEXTS:
            node.value = TEXTS[value]
            return "text"
        case ast.BinOp(op=operator) | ast.UnaryOp(op=operator) if type(operator) in OPERATORS:
            node.op = OPERATORS[type(operator)]()  # type: ignore[attr-defined]
            return "operator"
        case ast.Compare(ops=[operator]) if type(operator) in OPERATORS:
            node.ops = [OPERATORS[type(operator)]()]  # type: ignore[list-item]
            return "comparison"
        case ast.Attribute(attr=name) if name in WORDS:
            node.attr = WORDS[name]
            return "name of torch or Triton"
        case ast.Name(id=name, ctx=ast.Load()) if name in others:
            node.id = others[(others.index(name) + 1) % len(others)]
            return "another variable"
        case _:
            return ""


def change_more(node: ast.AST) -> str:
    """Change the arguments of a call, a function or a body in place and say how."""
    match node:
        case ast.Call(func=ast.Attribute(attr="load" | "store"), args=[_, *_, mask]) if isinstance(
            mask, ast.Name | ast.BinOp
        ):
            node.args = node.args[:-1]
            return "mask"
        case ast.Call(args=[first, second, *_]) if ast.dump(first) != ast.dump(second):
            node.args[:2] = [second, first]
            return "order of a call's arguments"
        case ast.Call(keywords=[first, *rest], func=ast.Attribute(value=ast.Name(id="tl"))):
            node.keywords = rest
            return "keyword"
        case ast.FunctionDef(args=ast.arguments(args=[_, _, *_] as parameters)):
            parameters[:2] = [parameters[1], parameters[0]]
            return "order of parameters"
        case _:
            return ""


Mutants = Iterator[tuple[str, str]]


def triton_mutants(source: str, start: int = 0, every: int = 1) -> Mutants:
    """Yield (kind, source) of mutations of a Triton kernel, one of so many."""
    kernel = kernel_of(ast.parse(source))
    stored = [node.id for node in ast.walk(kernel) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    others = sorted(set(stored))
    count = sum(1 for _ in places(ast.parse(source)))
    for change in (lambda node: change_node(node, others), change_more):
        for number in range(start, count, every):
            mutant = ast.parse(source)
            if kind := change(list(places(mutant))[number]):
                yield kind, ast.unparse(mutant)
    for number in range(start, len(kernel.body), every):
        mutant = ast.parse(source)
        del kernel_of(mutant).body[number]
        yield "statement left out", ast.unparse(mutant)


def kernel_of(tree: ast.Module) -> ast.FunctionDef:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)][-1]


CPP_RULES: tuple[tuple[str, str, str], ...] = (
    ("constant", r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?=L?\b)", r"7\g<0>"),
    ("operator", r" \+ ", " - "),
    ("operator", r" \* ", " / "),
    ("operator", r"\+=", "-="),
    ("operator", r" && ", " || "),
    ("comparison", r" < ", " <= "),
    ("type", r"\bfloat\b", "double"),
    ("function", r"\bloadu\b", "load"),
    ("function", r"\.(exp|rsqrt|tanh|erf|sqrt)\(", ".sin("),
    ("another variable", r"\btmp0\b(?! =)", "tmp1"),
    ("target", r"\bout_ptr0\b", "out_ptr1"),
    ("flag", r"\bfalse\b", "true"),
    ("pragma", r"#pragma GCC ivdep\n", "\n"),
    ("statement left out", r"\n *tmp\d+\.store\([^\n]*", "\n"),
    ("order of arguments", r"(\w+_ptr\d+),\n([^\n,]*?)(\w+_ptr\d+)(?=[,)])", r"\3,\n\2\1"),
)
"""Kind, pattern and text in its place, for each occurrence by itself."""


def cpp_mutants(source: str, start: int = 0, every: int = 1) -> Mutants:
    """Yield (kind, source) of mutations of a C++ kernel, one of so many."""
    return islice(all_cpp_mutants(source), start, None, every)


def all_cpp_mutants(source: str) -> Mutants:
    start = source.index('extern "C"')
    for kind, pattern, instead in CPP_RULES:
        for found in re.finditer(pattern, source):
            mutant = source[: found.start()] + found.expand(instead) + source[found.end() :]
            if found.start() >= start and mutant != source:
                yield kind, mutant


MUTANTS: dict[str, Callable[..., Mutants]] = {"triton": triton_mutants, "cpp": cpp_mutants}
EVERY = {"triton": 5, "cpp": 2}
"""One of how many mutants is tried; `BACKPRINT_EVERY_MUTANT=1` in the environment has all of them tried."""


def hash_or_refusal(kernel: Kernel) -> str:
    try:
        return kernel.hash
    except RefusedError as error:
        return f"refused: {error}"


@pytest.mark.slow
@pytest.mark.parametrize("language", MUTANTS)
def test_no_mutation_merges(language: str) -> None:
    every = 1 if os.environ.get("BACKPRINT_EVERY_MUTANT") else EVERY[language]
    kernels = inductor_kernels(language)
    originals = {kernel.hash for kernel in kernels}
    kinds: Counter[str] = Counter()
    merged = []
    for start, kernel in enumerate(kernels):
        for kind, source in MUTANTS[language](kernel.source, start % every, every):
            kinds[kind] += 1
            if hash_or_refusal(replace(kernel, source=source)) in originals:
                merged.append((kernel.name, kind, difference(kernel.source, source)))
    assert merged == []
    assert kinds.total() >= 300, kinds
    print(language, kinds.total(), dict(kinds))
    assert len(kinds) >= 8, kinds


@pytest.mark.slow
def test_mutants_of_one_kernel_are_programs_of_their_own() -> None:
    """Two mutants merge only if their texts are the same."""
    for language in MUTANTS:
        kernel = inductor_kernels(language)[1]
        found: dict[str, set[str]] = {}
        for _, source in MUTANTS[language](kernel.source, 0, 3):
            text = re.sub(r"\s+", " ", source)
            found.setdefault(hash_or_refusal(replace(kernel, source=source)), set()).add(text)
        merged = [texts for key, texts in found.items() if len(texts) > 1 and not key.startswith("refused")]
        assert merged == []
        assert len(found) > 50


def test_the_coarse_hash_would_not_pass() -> None:
    """The test above can fail: without constants, mutants of constants merge."""
    kernel = inductor_kernels("triton")[0]
    changed = [source for kind, source in triton_mutants(kernel.source, every=5) if kind == "constant"]
    assert any(replace(kernel, source=source).structure == kernel.structure for source in changed)


def difference(before: str, after: str) -> str:
    """The lines of a mutant that its original does not have."""
    try:
        old = set(ast.unparse(ast.parse(before)).splitlines())
    except SyntaxError:
        old = set(before.splitlines())
    return " | ".join(line.strip() for line in after.splitlines() if line not in old)[:300]
