"""The normal form of a Triton kernel: its syntax tree, with independent statements in one order, and the parts of its
metadata that change the program.

It leaves out names of functions and variables, comments, docstrings, layout, `filename`, the device's properties, and
the entries of `inductor_meta` about tuning, names and statistics. A parameter's name counts only if the launcher finds
the parameter by it (`xnumel`, `XBLOCK`). Numbers, size hints and divisibility are written as `#`, and in full among the
constants. Tried on the sources of Inductor 2.13.0.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator

from backprint.errors import RefusedError
from backprint.graph.text import count_tokens
from backprint.tools.kernels.normal_order import is_setup, ordered_body
from backprint.tools.kernels.nouns import Kernel, NormalForm

TOKENS = 200_000
"""The words and signs that a source may have: its tree needs some 300 bytes for each."""

SMALL = 1 << 16
"""The characters of a source below which its words are not counted."""

LEXEME = re.compile(
    r"""\#[^\n]*+
    |(?<!\w)(?P<prefix>\w{0,2}+)(?:\"\"\"(?:[^"\\]|\\[\s\S]|"(?!""))*+(?:\"\"\")?
        |'''(?:[^'\\]|\\[\s\S]|'(?!''))*+(?:''')?
        |"[^"\\\n]*+(?:\\[\s\S][^"\\\n]*+)*+"?
        |'[^'\\\n]*+(?:\\[\s\S][^'\\\n]*+)*+'?)
    |(?P<word>\w++|[^\w\s])""",
    re.VERBOSE,
)
"""A comment, a string or a word, as Python 3.11 tells them apart; from 3.12 on a string with an `f` may hold others."""

MAX_HOLES = 2_000
"""How many braces a string with an `f` may have: Python 3.11 parses it in a time that grows with their square."""

UNWRITTEN = {"ctx", "type_comment", "kind", "type_params"}
"""Fields of a syntax tree that are no part of the program, or that older versions of Python do not have."""

PARTS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(field for field in kind._fields if field not in UNWRITTEN)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}

NUMBERS = (int, float, complex)

BY_NAME = re.compile(r"\w*numel(_\d+)?|in_out_ptr\d*|ws_ptr\d*")
"""Parameters, beside those that are constexpr, whose names matter: to the launcher, or for aliasing."""

NO_OPTION = {"filename", "triton_meta", "inductor_meta"}
"""Keywords of a heuristic that are left out, or written on their own."""

SIZES = {"size_hints", "configs"}
"""Keywords of a heuristic, and keys of `triton_meta`, that depend on sizes: constants as a whole."""

USUAL: dict[str, tuple[object, ...]] = {
    "native_matmul": (False,),
    "enable_fp_fusion": (True,),
    "launch_pdl": (False,),
    "disable_ftz": (False,),
}
"""Options in `triton_meta` that versions of torch write or leave out, with the value that they then have."""

MATTERS = (
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
"""Keys of `inductor_meta` that change the program or its grid; empty values count as absent."""

GRID_TEXT = "precomputed_grids"
"""Metadata that computes a grid from parameters by their names, inside texts."""

WORD = re.compile(r"[A-Za-z_]\w*")

BY_TEXT = {"globals", "locals", "vars", "eval", "exec", "getattr", "setattr", "sys", "__import__"}
"""Names with which a source may read a variable by a name in a text; such a module's own names are kept."""


def normal_triton(kernel: Kernel) -> NormalForm:
    """Return the normal form of a Triton kernel's module."""
    tree = parse_module(kernel.source, kernel.name or kernel.place or "a kernel")
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    main = find_kernel(functions, kernel.name)
    if main is None:
        raise RefusedError(f"{kernel.name or kernel.place}: there is no Triton kernel in this source")
    writer = _TreeWriter(GRID_TEXT in kernel.source)
    writer.bind_module(tree, main)
    writer.write_statement(main, main)
    writer.write_used(main)
    for statement in tree.body:
        if not isinstance(statement, ast.Import | ast.ImportFrom) and not is_setup(statement):
            writer.write_statement(statement, main)
            writer.write_used(main)
    return NormalForm("triton", "\n".join(writer.out), "\n".join(writer.constants))


# ------------------------------------------------------------------ parsing, within limits


def parse_module(source: str, called: str) -> ast.Module:
    """Parse a Python source without running it; what Python cannot read raises RefusedError."""
    if len(source) > SMALL and count_tokens(source) > TOKENS:
        _check_words(source, called)
    if source.count("{") > MAX_HOLES:
        _check_holes(source, called)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # strangers' invalid escapes are no concern of the caller's
            return ast.parse(source)
    except SyntaxError as error:
        raise RefusedError(f"{called}: line {error.lineno}: not Python ({error.msg})") from error
    except ValueError as error:
        raise RefusedError(f"{called}: not Python ({error})") from error
    except (RecursionError, MemoryError) as error:
        raise RefusedError(f"{called}: nested too deeply to be read ({type(error).__name__})") from error


def _check_words(source: str, called: str) -> None:
    """Raise if a source has too many words and signs outside comments and strings."""
    count = 0
    for lexeme in LEXEME.finditer(source):
        count += lexeme["word"] is not None
        if count > TOKENS or "f" in (lexeme["prefix"] or "").lower():
            why = f"more than {TOKENS} words and signs of code" if count > TOKENS else "a large source with an f-string"
            raise RefusedError(f"{called}: {why}; the limit is {TOKENS} words and signs")


def _check_holes(source: str, called: str) -> None:
    """Raise if a string with an `f` has so many holes that Python is slow to parse it."""
    for lexeme in LEXEME.finditer(source):
        holes = lexeme[0].count("{") if "f" in (lexeme["prefix"] or "").lower() else 0
        if holes > MAX_HOLES:
            raise RefusedError(f"{called}: an f-string with {holes} braces; the limit is {MAX_HOLES}")


# ------------------------------------------------------------------ kernels and definitions of a module


def find_kernel(functions: Iterable[ast.FunctionDef], name: str) -> ast.FunctionDef | None:
    """Return the kernel of a name among a module's functions; without one of that name, the last kernel."""
    kernels = find_kernels(functions)
    named = [function for function in kernels if function.name == name]
    candidates = named or kernels
    return candidates[-1] if candidates else None


def find_kernels(functions: Iterable[ast.FunctionDef]) -> list[ast.FunctionDef]:
    """Return the kernels among functions: those with a heuristic, or in Triton and called by no other in Triton."""
    jitted = [function for function in functions if function.decorator_list and is_jitted(function)]
    if len(jitted) < 2:
        return jitted
    used = {
        node.id
        for function in jitted
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id != function.name
    }
    with_heuristic = [function for function in jitted if len(function.decorator_list) > 1]
    return with_heuristic or [function for function in jitted if function.name not in used] or jitted


def is_jitted(function: ast.FunctionDef) -> bool:
    """Whether a function has the decorator `triton.jit`, called or not."""
    for mark in function.decorator_list:
        match mark.func if isinstance(mark, ast.Call) else mark:
            case ast.Attribute(value=ast.Name(id="triton"), attr="jit") | ast.Name(id="jit"):
                return True
    return False


def _single_definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """Return the helpers and constants of a module by name: those that are bound once, and read by that name alone."""
    bound: Counter[str] = Counter()
    definitions: dict[str, ast.stmt] = {}
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name):
                definitions[name] = statement
                bound[name] += 1
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if is_plain(statement.value):
                    definitions[name] = statement
                bound[name] += 1
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound.update(alias.asname or alias.name.partition(".")[0] for alias in names)
            case _:
                bound.update(_bound_names(statement))
    for statement in tree.body:
        for node in ast.walk(statement):
            # A name that is read by its text must stay: numbered, two programs that read different variables would be
            # one.
            if isinstance(node, ast.Name) and node.id in BY_TEXT:
                return {}
            if isinstance(node, ast.Global):
                bound.update(node.names)
    return {name: statement for name, statement in definitions.items() if bound[name] == 1}


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module may bind, if it is no function and no assignment to a single
    name."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name.partition(".")[0] for alias in names)


def is_plain(value: ast.expr | None) -> bool:
    """Whether a value is a number or a text, or one that is marked as constexpr: it depends on nothing before it."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr="constexpr"), args=[inner], keywords=[]):
            return is_plain(inner)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner):
            return is_plain(inner)
        case _:
            return isinstance(value, ast.Constant)


def _is_launched_by_place(function: ast.FunctionDef) -> bool:
    """Whether no decorator knows a kernel's parameters by name: Triton's own alone, with no texts."""
    return len(function.decorator_list) == 1 and not any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) for node in ast.walk(function.decorator_list[0])
    )


# ------------------------------------------------------------------ the writer of the normal form


class _TreeWriter:
    """Writes syntax trees as tokens, numbers apart; variables are numbered in the order in which they are bound."""

    def __init__(self, keeps_names: bool) -> None:
        self.keeps_names = keeps_names
        self.out: list[str] = []
        self.constants: list[str] = []
        self.globals: dict[str, str] = {}
        """Global name -> an import's full name, `@kernel`, or the number of a definition of the module."""
        self.definitions: dict[str, ast.stmt] = {}
        """Name -> definition that the module makes once. It is numbered where it is first used, and written in that
        order."""
        self.numbered: list[str] = []
        """Definitions that have a number, in its order."""
        self.used: list[str] = []
        """Definitions that were used, and are not yet written."""
        self.written: set[int] = set()
        """The statements of the module that were written, by id."""
        self.variables: dict[str, str] = {}
        """The number of each variable of the function being written."""
        self.numbers = False
        """Whether variables get numbers where they are bound."""

    def bind_module(self, tree: ast.Module, main: ast.FunctionDef) -> None:
        """Enter the imports and definitions of a module."""
        for statement in tree.body:
            match statement:
                case ast.Import(names=names):
                    for alias in names:
                        whole = alias.name if alias.asname else alias.name.partition(".")[0]
                        self.globals[alias.asname or whole] = whole
                case ast.ImportFrom(module=module, names=names, level=level):
                    for alias in names:
                        self.globals[alias.asname or alias.name] = f"{'.' * level}{module or ''}.{alias.name}"
                case ast.FunctionDef(name=name) if statement is not main:
                    self.globals.pop(name, None)  # bound anew
        self.globals[main.name] = "@kernel"
        self.definitions = _single_definitions(tree)
        self.definitions.pop(main.name, None)

    def global_name(self, name: str) -> str:
        """Return the normal form of a global name; if it is a definition of the module, queue it to be written."""
        if name in self.definitions and name not in self.globals:
            self.globals[name] = f"@{len(self.numbered)}"
            self.numbered.append(name)
            self.used.append(name)
        return self.globals.get(name, name)

    def write_used(self, main: ast.FunctionDef) -> None:
        """Write the definitions that were used, and those that they use."""
        for name in self.used:  # grows
            self.write_statement(self.definitions[name], main)
        self.used = []

    def write_statement(self, statement: ast.stmt, main: ast.FunctionDef) -> None:
        """Write a statement of the module, once."""
        if id(statement) in self.written:
            return
        self.written.add(id(statement))
        if isinstance(statement, ast.FunctionDef):
            self.write_function(statement, statement is main)
        else:
            self.variables, self.numbers = {}, False
            self.write(statement)

    def write_function(self, function: ast.FunctionDef, is_kernel: bool) -> None:
        """Write a function of the module. The kernel's parameters are numbers, but for names that matter (BY_NAME)."""
        self.numbers = True
        arguments = function.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self.variables = {parameter.arg: f"%{number}" for number, parameter in enumerate(parameters)}
        self.out += ("function", self.global_name(function.name))
        by_place = is_kernel and not self.keeps_names and _is_launched_by_place(function)
        for parameter in parameters:
            constexpr = parameter.annotation is not None and not by_place
            says = self.keeps_names or not is_kernel or constexpr or BY_NAME.fullmatch(parameter.arg) is not None
            name = parameter.arg.rstrip("0123456789") if parameter.arg.startswith(("in_out", "ws")) else parameter.arg
            self.out.append(name if says else "parameter")
            self.write_value(parameter.annotation)
        counts = map(len, (arguments.posonlyargs, arguments.args, arguments.kwonlyargs))
        self.out.append(" ".join(map(str, counts)))
        for value in (arguments.vararg, arguments.kwarg, arguments.defaults, arguments.kw_defaults, function.returns):
            self.write_value(value)
        self.out.append(str(len(function.decorator_list)))
        for mark in function.decorator_list:
            self.write_decorator(mark)
        self.write_value(ordered_body(function, self.globals))

    # -------------------------------------------------------------- metadata

    def write_decorator(self, mark: ast.expr) -> None:
        """Write a decorator; for a heuristic, its keywords by name and the metadata that changes the program."""
        if not isinstance(mark, ast.Call):
            self.write(mark)
            return
        self.out.append("decorator")
        self.write(mark.func)
        self.write_value(mark.args)
        options = {keyword.arg or "**": keyword.value for keyword in mark.keywords}
        if len(options) < len(mark.keywords):
            raise RefusedError("a decorator unpacks several mappings")
        for name in sorted(options.keys() - NO_OPTION):
            self.out.append(name)
            self.write_aside(options[name]) if name in SIZES else self.write(options[name])
        self.write_meta("triton_meta", options.get("triton_meta"), drops_usual=True)
        self.write_meta("inductor_meta", options.get("inductor_meta"), drops_usual=False)

    def write_meta(self, title: str, meta: ast.expr | None, drops_usual: bool) -> None:
        """Write the entries of `triton_meta` or `inductor_meta` that change the program, by key."""
        if meta is None:
            return
        if not isinstance(meta, ast.Dict):
            self.out.append(title)
            self.write(meta)
            return
        self.out.append(title)
        entries: dict[str, ast.expr] = {}
        for key, value in zip(meta.keys, meta.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or key.value in entries:
                raise RefusedError(f"line {meta.lineno}: a key of {title} is not a name, or is there twice")
            entries[key.value] = value
        for name, entry in sorted(entries.items()):
            if drops_usual and not is_usual(name, entry):
                self.write_triton_entry(name, entry)
            elif not drops_usual and name in MATTERS and not _is_empty(entry):
                self.out.append(name)
                self.write_named(entry)
        self.out.append("end")

    def write_triton_entry(self, key: str, value: ast.expr) -> None:
        """Write an entry of `triton_meta`; for the device, its type alone."""
        self.out.append(key)
        if key == "device":
            kinds = (
                [keyword.value for keyword in value.keywords if keyword.arg == "type"]
                if isinstance(value, ast.Call)
                else []
            )
            self.write_value(kinds if kinds else value)
        elif key in SIZES:
            self.write_aside(value)
        else:
            self.write_named(value)

    def write_named(self, value: ast.expr) -> None:
        """Write metadata in which a text that is a parameter's name becomes the parameter's number."""
        match value:
            case ast.Constant(value=str(text)) if text in self.variables:
                self.out.append(self.variables[text])
            case ast.Dict(keys=keys, values=values):
                self.out.append(f"Dict {len(keys)}")
                for key, item in zip(keys, values, strict=True):
                    self.out.append("**") if key is None else self.write_named(key)
                    self.write_named(item)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                self.out.append(f"{type(value).__name__} {len(elements)}")
                for element in elements:
                    self.write_named(element)
            case _:
                self.write(value)

    def write_aside(self, value: ast.expr) -> None:
        """Write a value among the constants."""
        self.out.append("#")
        structure, self.out = self.out, self.constants
        self.write(value)
        self.out = structure

    # -------------------------------------------------------------- trees

    def write(self, node: ast.AST) -> None:
        """Write a node and its descendants."""
        kind = type(node)
        out = self.out
        if kind is ast.Name:
            name: str = node.id  # type: ignore[attr-defined]  # `kind` says so
            number = self.variables.get(name)
            if number is None:
                if self.numbers and type(node.ctx) is ast.Store:  # type: ignore[attr-defined]  # `kind` says so
                    number = self.variables[name] = f"%{len(self.variables)}"
                else:
                    number = "$" + self.global_name(name)
            out.append(number)
        elif kind is ast.Constant:
            value = node.value  # type: ignore[attr-defined]  # `kind` says so
            if type(value) in NUMBERS:
                out.append("#")
                self.constants.append(repr(value))
            else:
                out.append(f"={value!r}")
        elif kind is ast.Call and _is_assert(node.func):  # type: ignore[attr-defined]  # `kind` says so
            self.write_assert(node)  # type: ignore[arg-type]  # `kind` says so
        elif kind is ast.arg:
            self.write_inner_parameter(node)  # type: ignore[arg-type]  # `kind` says so
        else:
            out.append(kind.__name__)
            for part in PARTS[kind]:
                self.write_value(getattr(node, part))

    def write_assert(self, node: ast.Call) -> None:
        """Write an assertion, its message among the constants and with numbers for the variables that it names."""
        self.out.append(f"assert {len(node.args)} {len(node.keywords)}")
        for value in (node.func, *node.args, *node.keywords):
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                self.out.append("#")
                message = WORD.sub(lambda word: self.variables.get(word[0], word[0]), value.value)
                self.constants.append(f"={message!r}")
            else:
                self.write(value)

    def write_inner_parameter(self, node: ast.arg) -> None:
        """Write a parameter of a function in a function, which callers may name."""
        number = self.variables.setdefault(node.arg, f"%{len(self.variables)}")
        self.out.append(f"{node.arg} {number}")
        self.write_value(node.annotation)

    def write_value(self, value: object) -> None:
        """Write the value of a field of a node."""
        if isinstance(value, ast.AST):
            self.write(value)
        elif isinstance(value, list):
            self.out.append(str(len(value)))
            for item in value:
                self.write_value(item)
        else:
            self.out.append(str(value))


def _is_assert(function: ast.expr) -> bool:
    """Whether a function asserts; Inductor's messages name variables."""
    return type(function) is ast.Attribute and function.attr == "device_assert"


def is_usual(key: str, value: ast.expr) -> bool:
    """Whether an option has the value that it has if it is not written."""
    return isinstance(value, ast.Constant) and value.value in USUAL.get(key, ())


def _is_empty(value: ast.expr) -> bool:
    """Whether metadata is empty: None, False, an empty list."""
    match value:
        case ast.Constant(value=None) | ast.Constant(value=False):
            return True
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name(id="set"), args=[], keywords=[]):
            return True
        case _:
            return False
