"""The normal form of a kernel: its source without names, comments and layout, and two hashes of it.

    tmp0 = tl.load(in_ptr0 + (x0), xmask)   # a comment      ->     %7 = triton.language.load(%0 + %5, %6)

Two kernels are the same program if their normal forms are the same text. A name that the kernel declares becomes a
number, in the order in which names are declared; every other name, such as that of a function that it calls, stays. In
doubt a name stays, so that two programs are rather kept apart than merged. The order of statements counts: Backprint
puts the steps of a graph in one order before a compiler sees them (`prepare`), so equal graphs have equal statements.

Triton is parsed and written again by `ast.unparse`, C++ is split into tokens by Pygments. Nothing is run.

A Triton kernel is in a module that Inductor wrote: imports, jitted helpers, and the kernel (`main`), whose decorator
has metadata: `size_hints`, `triton_meta` and `inductor_meta`. To declare a name is to give it a number.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pygments.lexers.c_cpp import CppLexer
from pygments.token import Comment, Keyword, Name, String, Whitespace

from backprint.errors import RefusedError
from backprint.tools.kernels.read import find_kernel, parse_module

VERSION = "2"
"""Of normal forms; hashes of two versions are never the same."""

WORD = re.compile(r"[A-Za-z_]\w*")
"""A name in a text."""

NUMBER = re.compile(r"(?<![%\w.])\.?\d(?:[eE][-+]|[\w.])*")
"""A number in a normal form. `%7` is a name, and so is `int64_t`."""


@dataclass(frozen=True, slots=True)
class NormalForm:
    """A kernel's program without its names, comments and layout."""

    language: str
    program: str
    sizes: str = ""
    """Of Triton: what depends on sizes alone, the compiler's hints of sizes and the divisibility of arguments."""

    @property
    def program_hash(self) -> str:
        """A hash that two kernels share only if they are the same program."""
        return _digest(self.language, self.program, self.sizes)

    @property
    def structure_hash(self) -> str:
        """A hash that programs share if they differ in sizes and constants alone."""
        return _digest(self.language, NUMBER.sub("#", self.program))


def _digest(*texts: str) -> str:
    """Return a hash of texts and VERSION; they are joined by a character that no source has."""
    return hashlib.sha256("\0".join((VERSION, *texts)).encode("utf-8", "surrogatepass")).hexdigest()


@lru_cache(maxsize=64)
def normal_form(language: str, source: str, name: str) -> NormalForm:
    """Return the normal form of a kernel's source; `name` is the compiler's name of the kernel."""
    if language == "cpp":
        return NormalForm("cpp", _cpp_program(source))
    if language == "triton":
        return _triton_form(source, name)
    raise RefusedError(f"{name}: the language {language!r:.40} is not triton or cpp")


# ------------------------------------------------------------------ Triton

PROGRAM_KEYS = (
    "grid_type",
    "mutated_arg_names",
    "config_args",
    "combo_grid_meta",
    "precomputed_grids",
    "extra_launcher_args",
    "fixed_grid",
    "RSPLIT_SIZE",
    "no_x_dim",
)
"""Keys of `inductor_meta` that change the program or its grid. The others say how the kernel was made and tuned."""

LAUNCHER_PARAMETER = re.compile(r"\w*numel(_\d+)?")
"""Parameters that the launcher finds by name, to compute the grid. So it finds those that are `tl.constexpr`."""

SETUP = "set_driver_to_gpu"
"""A function of Inductor that a module calls before it defines its kernel."""


def _triton_form(source: str, name: str) -> NormalForm:
    """Return the normal form of a Triton kernel's module; refuse a source without a kernel."""
    tree = parse_module(source, name)
    main = find_kernel([node for node in tree.body if isinstance(node, ast.FunctionDef)], name)
    if main is None:
        raise RefusedError(f"{name}: there is no Triton kernel in this source")
    # this also takes metadata out of the tree
    sizes = [text for mark in main.decorator_list if isinstance(mark, ast.Call) for text in _strip_metadata(mark)]
    body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom) and not is_setup(node)]
    module = ast.Module(body, [])
    program = ast.unparse(ast.fix_missing_locations(_Renamer(tree, module, main).visit(module)))
    return NormalForm("triton", program, "\n".join(sizes))


def is_setup(statement: ast.stmt) -> bool:
    """Whether a statement computes nothing: a docstring, or Inductor's choice of a driver."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[])):
            return name == SETUP
        case _:
            return False


def _strip_metadata(decorator: ast.Call) -> Iterator[str]:
    """Leave in Inductor's decorator what changes the program, and take out the rest. Of the rest, yield what depends on
    sizes, as texts: the hints of sizes, and `configs`, which says by what arguments are divisible."""
    kept_keywords = []
    for keyword in decorator.keywords:
        match keyword:
            case ast.keyword(arg="filename"):
                continue
            case ast.keyword(arg="size_hints"):
                yield ast.unparse(keyword.value)
                continue
            case ast.keyword(arg="triton_meta" | "inductor_meta", value=ast.Dict(keys=keys, values=values)):
                # name -> (its expression, that of the value)
                entries = {getattr(key, "value", ""): (key, value) for key, value in zip(keys, values, strict=True)}
                if keyword.arg == "inductor_meta":
                    entries = {key: entries[key] for key in PROGRAM_KEYS if key in entries}
                if configs := entries.pop("configs", None):
                    _, configs_value = configs
                    yield ast.unparse(configs_value)
                match entries.get("device"):
                    case key, ast.Call(keywords=facts):  # a kernel is the same for an A100 and an H100
                        entries["device"] = (key, next(fact.value for fact in facts if fact.arg == "type"))
                keyword = ast.keyword(keyword.arg, ast.Dict(*map(list, zip(*entries.values(), strict=True))))
        kept_keywords.append(keyword)
    decorator.keywords = kept_keywords


class _Renamer(ast.NodeTransformer):
    """Numbers the names that a module declares, in the order in which it declares them.

    These keep their names: the kernel's parameters that its launcher finds by name (`LAUNCHER_PARAMETER`), parameters
    that a call of a helper names, and words in texts of the metadata. An imported name becomes the full name of what it
    stands for. `tree` is the whole module, `module` the same without its imports, and `main` the kernel's function;
    `names` has the new name of each name, and `unchanged` those that keep theirs.
    """

    def __init__(self, tree: ast.Module, module: ast.Module, main: ast.FunctionDef) -> None:
        self.main = main
        self.names: dict[str, str] = {}
        self.count = 0
        for node in tree.body:
            match node:
                case ast.Import(names=aliases):
                    self.names.update({alias.asname: alias.name for alias in aliases if alias.asname})
                case ast.ImportFrom(module=package, names=aliases):
                    self.names.update({alias.asname or alias.name: f"{package}.{alias.name}" for alias in aliases})
        keywords = {node.arg for node in ast.walk(module) if isinstance(node, ast.keyword)}
        nodes = [node for mark in main.decorator_list for node in ast.walk(mark) if isinstance(node, ast.Constant)]
        texts = {node.value for node in nodes if isinstance(node.value, str)}
        # a text that is one word is the name of a parameter; in longer texts, words stay
        self.unchanged = keywords | {word for text in texts for word in WORD.findall(text) if word != text}
        for node in module.body:
            match node:
                case ast.FunctionDef(name=name):
                    self.declare(name)
                case ast.Assign() | ast.AnnAssign():
                    self.declare_all(node)

    def declare(self, name: str) -> None:
        """Give a name its number."""
        self.names[name] = f"%{self.count}"
        self.count += 1

    def declare_all(self, node: ast.AST) -> None:
        """Give a number to each name that a statement binds."""
        inner = (child for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store))
        for name in dict.fromkeys(child.id for child in inner):
            self.declare(name)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:  # the name is ast's
        """Number a function's parameters and variables, which are names inside of it alone, and rename it."""
        outside, count = dict(self.names), self.count
        arguments = node.args
        inside = (child for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store))
        bound = dict.fromkeys(child.id for child in inside)  # a set that keeps the order
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            bound.pop(argument.arg, None)
            # an annotated parameter is a `tl.constexpr`
            launcher_finds_it = node is self.main and (
                argument.annotation is not None or LAUNCHER_PARAMETER.fullmatch(argument.arg)
            )
            if launcher_finds_it or argument.arg in self.unchanged:
                self.names[argument.arg] = argument.arg
            else:
                self.declare(argument.arg)
        for name in bound:
            self.declare(name)
        node.body = [statement for statement in node.body if not is_setup(statement)] or [ast.Pass()]
        self.generic_visit(node)
        node.name = outside.get(node.name, node.name)
        self.names, self.count = outside, count  # the next function's variables have these numbers again
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Rename a parameter."""
        self.generic_visit(node)
        node.arg = self.names.get(node.arg, node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Rename a name that has a number or a full name."""
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Number the names in a text, too: of parameters in the metadata, of variables in the message of an
        assertion."""
        if not isinstance(node.value, str):
            return node
        return ast.Constant(WORD.sub(lambda word: self.names.get(word[0], word[0]), node.value))


# ------------------------------------------------------------------ C++

INCLUDE = re.compile(r"^\s*#\s*include\b.*$", re.MULTILINE)
"""A line that is left out: where Inductor's headers lie is no part of the program."""

TYPES = re.compile(r"auto|half|bfloat16|float8_\w+|Half|BFloat16")
"""Types that are no keywords of C++."""

BETWEEN_TYPE_AND_NAME = frozenset(("*", "&", "const", "__restrict", "__restrict__"))
"""What may stand between a type and the name that it declares."""

BEFORE_MEMBER = frozenset((".", "->", "::"))
"""What stands before the name of a member, which is in another space of names."""


class Token(NamedTuple):
    """A token of C++, and its kind in Pygments."""

    kind: Any
    text: str


def _cpp_program(source: str) -> str:
    """Return the tokens of a C++ kernel with the names that it declares as numbers, in the order of their first use."""
    tokens: list[Token] = []
    for kind, text in CppLexer().get_tokens(INCLUDE.sub("", source)):
        if text == ":" and tokens and tokens[-1].text == ":":
            tokens[-1] = Token(kind, "::")  # Pygments splits it
        # Pygments counts lines for the preprocessor as comments: these stay
        elif kind in Comment.Preproc or not (kind in Whitespace or kind in Comment or not text.strip()):
            tokens.append(Token(kind, text))
    names: dict[str, str] = {}
    seen: set[str] = set()
    output: list[str] = []
    for index, (kind, text) in enumerate(tokens):
        if kind in Name and not (index and tokens[index - 1].text in BEFORE_MEMBER):
            # a name that was used before it is declared stands for something else, and stays
            if text not in seen and _is_declared(tokens, index, names):
                names[text] = f"%{len(names)}"
            seen.add(text)
            text = names.get(text, text)
        elif kind in Comment.Preproc or kind in String:  # a pragma, or the message of an assertion
            text = WORD.sub(lambda word: names.get(word[0], word[0]), text)
        output.append(text)
    return " ".join(output)


def _is_declared(tokens: Sequence[Token], index: int, names: dict[str, str]) -> bool:
    """Whether the name at a place is declared there: a type stands before it. `names` are declared already, so they are
    no types."""
    before = index - 1
    while before > 0 and tokens[before].text in BETWEEN_TYPE_AND_NAME:
        before -= 1
    kind, text = tokens[before] if before >= 0 else (None, "")
    if kind in Keyword.Type or TYPES.fullmatch(text):
        return True
    return text == ">" and _is_template(tokens, before, names)


def _is_template(tokens: Sequence[Token], place: int, names: dict[str, str]) -> bool:
    """Whether a `>` ends the arguments of a template, as in `Vectorized<float> tmp0`, and is no comparison: before the
    `<` that it belongs to is a name that is no variable, and nothing between them that no template has."""
    depth = 0
    for index in range(place, 0, -1):
        text = tokens[index].text
        depth += (text == ">") - (text == "<")
        if not depth:
            kind, name = tokens[index - 1]
            return kind in Name and name not in names
        if text in (";", "{", "}", "=", "&", "|"):
            return False
    return False
