"""The order of the statements of a Triton function: one that does not depend on how independent steps were written.

A step that only computes or loads stands before the first statement that needs it, in the order in which that statement
reads its operands; a second name that nobody reads is left out. Statements with effects keep their order, loads do not
pass them, and a step that is not known to be without effects is one that has them.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

SETUP = "set_driver_to_gpu"

NOT_ORDERED = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.NamedExpr, ast.Global, ast.Nonlocal, ast.Try, ast.With, ast.AsyncWith, ast.AsyncFor,
    ast.Delete, ast.Import, ast.ImportFrom, ast.Match, ast.Await, ast.Yield, ast.YieldFrom,
)  # fmt: skip
"""What no Inductor kernel has: a function with one of these stays in the order in which it was written."""

COMPUTING = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Tuple, ast.List,
    ast.Subscript, ast.Slice, ast.Attribute, ast.keyword,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
"""Expressions without effects, if their operands have none."""

LANGUAGE = "triton.language."
LOAD = LANGUAGE + "load"

PURE = frozenset(
    LANGUAGE + name
    for name in (
        "abs", "arange", "argmax", "argmin", "broadcast", "broadcast_to", "cast", "cdiv", "ceil", "clamp", "cos",
        "cumprod", "cumsum", "div_rn", "dot", "erf", "exp", "exp2", "expand_dims", "fdiv", "flip", "floor", "fma",
        "full", "interleave", "join", "log", "log2", "max", "maximum", "min", "minimum",
        "num_programs", "permute", "pointer_type", "program_id", "rand", "randint", "randint4x",
        "randn", "ravel", "reshape", "rsqrt", "sigmoid", "sin", "softmax", "sort", "split", "sqrt", "sqrt_rn", "sum",
        "swizzle2d", "trans", "umulhi", "view", "where", "xor_sum", "zeros", "zeros_like",
    )
) | frozenset(
    "torch._inductor.runtime.triton_helpers." + name
    for name in (
        "any", "div_floor_integer", "max2", "max_with_index", "maximum", "min2", "min_with_index", "minimum", "prod",
        "promote_to_tensor", "remainder_integer", "welford", "welford_reduce",
    )
)  # fmt: skip
"""Functions that compute and do nothing else."""

PURE_MODULES = tuple(
    f"{module}."
    for module in (
        "torch._inductor.runtime.triton_helpers.libdevice",
        "torch._inductor.runtime.triton_helpers.math",
        "triton.language.extra.libdevice",
        "triton.language.extra.cuda.libdevice",
        "triton.language.math",
    )
)
"""Modules of nothing but such functions."""

PURE_METHODS = {"to"}

LAST_OF_LOAD = 3
"""The operands that a load may have by position: one that is `volatile`, the eighth, has effects."""


def ordered_body(function: ast.FunctionDef, names: Mapping[str, str]) -> list[ast.stmt]:
    """Return a function's statements in their order; `names` has the full name of what the module imports."""
    body = [statement for statement in function.body if not is_setup(statement)]
    if any(isinstance(node, NOT_ORDERED) for statement in body for node in ast.walk(statement)):
        return body
    arguments = function.args
    parameters = {parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    parameters |= {parameter.arg for parameter in (arguments.vararg, arguments.kwarg) if parameter is not None}
    uses = Uses(parameters)
    uses.count_block(body)
    imports = {name: whole for name, whole in names.items() if name not in uses.stores and name not in parameters}
    return _ordered_block(body, uses, imports)[0]


@dataclass(slots=True)
class Uses:
    """Where the names of a function are stored and read, as places in its text."""

    parameters: set[str]
    stores: Counter[str] = field(default_factory=Counter)
    first_read: dict[str, int] = field(default_factory=dict)
    last_read: dict[str, int] = field(default_factory=dict)
    stored_at: dict[str, int] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    """The position of each statement, by its id."""
    ends: dict[int, int] = field(default_factory=dict)
    """The last place in each block, by the id of its first statement."""
    place: int = 0

    def count_block(self, block: Sequence[ast.stmt]) -> None:
        """Count the statements of a block, and those in them."""
        for statement in block:
            self.place += 1
            self.places[id(statement)] = self.place
            inner: list[Sequence[ast.stmt]] = []
            for part in statement._fields:
                value = getattr(statement, part)
                if is_block(value):
                    inner.append(value)
                else:
                    self.count_names(value if isinstance(value, list) else [value])
            for inner_block in inner:
                self.count_block(inner_block)
        if block:
            self.ends[id(block[0])] = self.place

    def count_names(self, values: Sequence[object]) -> None:
        """Count the names in expressions of the statement at work."""
        for value in values:
            for name in names_of(value):
                if isinstance(name.ctx, ast.Store):
                    self.stores[name.id] += 1
                    self.stored_at[name.id] = self.place
                else:
                    self.first_read.setdefault(name.id, self.place)
                    self.last_read[name.id] = self.place

    def is_stable(self, name: str) -> bool:
        """Whether a name has one value wherever it is read in one pass over its block."""
        count = self.stores[name] + (name in self.parameters)
        return count < 2 and (not self.stores[name] or self.first_read.get(name, self.place + 1) > self.stored_at[name])

    def is_given_before(self, name: str, statement: ast.stmt) -> bool:
        """Whether a name has its one value where a statement reads it."""
        return self.is_stable(name) and self.stored_at.get(name, 0) < self.places[id(statement)]


@dataclass(frozen=True, slots=True)
class Step:
    """A statement of a block."""

    statement: ast.stmt
    reads: tuple[str, ...]
    """The names that it reads, in order."""
    gives: str = ""
    """The name that it computes, of a step that may be moved."""
    stays: bool = False
    """Whether it must come before the next statement with effects: it loads, or reads what may be stored anew."""


def _ordered_block(
    block: Sequence[ast.stmt], uses: Uses, imports: Mapping[str, str]
) -> tuple[list[ast.stmt], tuple[str, ...]]:
    """Return the statements of a block in their order, and the names that they read."""
    steps = [step_of(statement, block, uses, imports) for statement in block]
    steps = live_steps(steps, uses)
    given = {step.gives: place for place, step in enumerate(steps) if step.gives}
    needs = [[given[name] for name in step.reads if given.get(name, place) < place] for place, step in enumerate(steps)]
    rank: dict[int, int] = {}
    for place, step in enumerate(steps):
        if not step.gives:
            _rank_needs(place, needs, rank)
    order: list[int] = []
    written: set[int] = set()
    waiting: list[int] = []
    for place, step in enumerate(steps):
        if step.gives:
            waiting += [place] if step.stays else []
            continue
        order += sorted(unwritten([*waiting, *needs[place]], needs, written), key=rank.__getitem__)
        order.append(place)
        waiting = []
    statements = [steps[place].statement for place in order]
    return statements, tuple(dict.fromkeys(name for place in order for name in steps[place].reads))


def _rank_needs(root: int, needs: Sequence[Sequence[int]], rank: dict[int, int]) -> None:
    """Number a step after the steps that it needs, which are numbered in the order in which it reads them."""
    stack = [(root, 0)]
    while stack:
        place, number = stack.pop()
        if place in rank:
            continue
        if number < len(needs[place]):
            stack += [(place, number + 1), (needs[place][number], 0)]
        else:
            rank[place] = len(rank)


def unwritten(roots: Sequence[int], needs: Sequence[Sequence[int]], written: set[int]) -> list[int]:
    """Return steps and what they need, without those that were written; they count as written then."""
    places: list[int] = []
    stack = list(roots)
    while stack:
        place = stack.pop()
        if place not in written:
            written.add(place)
            places.append(place)
            stack += needs[place]
    return places


def live_steps(steps: Sequence[Step], uses: Uses) -> list[Step]:
    """Leave out the second names that nobody needs, of what has a value; any other such step stays where it is."""
    needed: set[str] = set()
    kept: list[Step] = []
    for step in reversed(steps):
        if step.gives and step.gives not in needed:
            match step.statement:
                case ast.Assign(value=ast.Name(id=other)) if uses.is_given_before(other, step.statement):
                    continue
            kept.append(Step(step.statement, step.reads))
        else:
            kept.append(step)
        needed.update(step.reads)
    return kept[::-1]


def step_of(statement: ast.stmt, block: Sequence[ast.stmt], uses: Uses, imports: Mapping[str, str]) -> Step:
    """Return a statement as a step; blocks in it are put in order."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            nodes = list(ast.walk(value))
            reads = tuple(dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name)))
            place = uses.places[id(statement)]
            read_here = uses.first_read.get(name, place + 1) > place
            last = uses.last_read.get(name, 0) <= uses.ends[id(block[0])]
            if uses.stores[name] == 1 and name not in uses.parameters and read_here and last:
                calls = [node for node in nodes if isinstance(node, ast.Call)]
                kinds = [_called_name(call, imports) for call in calls]
                if all(kinds) and all(isinstance(node, (*COMPUTING, ast.Call)) for node in nodes):
                    return Step(statement, reads, name, LOAD in kinds or not all(map(uses.is_stable, reads)))
            return Step(statement, reads)
    reads_of: dict[str, None] = {}
    parts: dict[str, object] = {}
    for part in statement._fields:
        value = getattr(statement, part)
        if is_block(value):
            parts[part], inner = _ordered_block(value, uses, imports)
            parts[part] = parts[part] or [ast.Pass()]
            reads_of.update(dict.fromkeys(inner))
        else:
            parts[part] = value
            values = value if isinstance(value, list) else [value]
            reads_of.update(dict.fromkeys(name.id for item in values for name in names_of(item)))
    ordered = copy(statement)
    for part, content in parts.items():
        setattr(ordered, part, content)
    return Step(ordered, tuple(reads_of))


def _called_name(call: ast.Call, imports: Mapping[str, str]) -> str:
    """Return the full name of a function without effects, or of a load; "" for any other."""
    words: list[str] = []
    function = call.func
    while isinstance(function, ast.Attribute):
        words.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name) and function.id in imports:
        whole = ".".join([imports[function.id], *reversed(words)])
        if whole == LOAD:
            plain = len(call.args) <= LAST_OF_LOAD and all(
                keyword.arg not in (None, "volatile") for keyword in call.keywords
            )
            return whole if plain else ""
        return whole if whole in PURE or whole.startswith(PURE_MODULES) else ""
    return f".{words[0]}" if words and words[0] in PURE_METHODS else ""


def is_setup(statement: ast.stmt) -> bool:
    """Whether a statement computes nothing: a docstring, or Inductor's choice of a driver."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[])):
            return name == SETUP
        case _:
            return False


def names_of(value: object) -> list[ast.Name]:
    """Return the names in an expression."""
    return [node for node in ast.walk(value) if isinstance(node, ast.Name)] if isinstance(value, ast.AST) else []


def is_block(value: object) -> bool:
    """Whether a field of a statement is statements."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], ast.stmt)
