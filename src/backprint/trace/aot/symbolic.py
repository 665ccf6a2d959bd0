"""Symbolic sizes while a program is traced: which dimensions are symbolic, and the conditions that tracing derives.

A place here is a dimension of an input: the input's name and the dimension's index. A symbol is torch's, of a ShapeEnv
(`s77`); our name of it is the user's, or `s0`, `s1`, … `sizes.replace(expression)` puts into an expression what torch
has found symbols to be equal to; `free(sizes, place)` are the symbols that a dimension then depends on. A `sloc` is
what torch notes of the line that derived a guard.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import Tensor

from backprint._torch.fake import FakeTensorMode, code_of_convolutions
from backprint._torch.shapes import DimDynamic, LocalSource, ShapeEnv, SLoc, StatelessSymbolicContext, is_always
from backprint.errors import CaptureError, GraphError, RefusedError, UsageError
from backprint.graph.nouns import Guard, Source, Symbol, check_local
from backprint.graph.sizes import FUNCTIONS, evaluate
from backprint.trace import frames
from backprint.trace.program import ObservedProgram

Dims = dict[str, dict[int, str]]
"""For each input with symbolic sizes: its dimensions, each with the user's name for it or ''."""

RESERVED_NAMES = re.compile(r"[su]\d+|inf|int_oo")
"""Names that a dimension cannot have, because Backprint uses them."""


@dataclass(frozen=True, slots=True)
class SizeFindings:
    """The findings of a trace about sizes: the symbols, the guards, and our name for each of torch's symbols by its
    name."""

    symbols: tuple[Symbol, ...] = ()
    guards: tuple[Guard, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


# ---- Which dimensions


def dimensions(program: ObservedProgram, dynamic: Any) -> Dims:
    """Return the dimensions that the user's option `dynamic` requests: all of every input (True), or the named ones.
    Inputs that share memory which the program changes have none, because their geometry in it is fixed; to name one is
    refused, and so is a name that is no tensor input."""
    if not dynamic:
        return {}
    inputs = {named.name: program.values[named.name] for named in program.tensors if named.role == "input"}
    if dynamic is True:
        apart = {name for group in program.written_alias_groups for name in group}
        return {name: dict.fromkeys(range(value.dim()), "") for name, value in inputs.items() if name not in apart}
    if not isinstance(dynamic, Mapping):
        raise UsageError(
            f"dynamic={dynamic!r:.80} is not one of True, False, a mapping as {{'x': [0]}} or {{'x': {{0: 'n'}}}}"
        )
    for name in dynamic:
        if name not in inputs:
            raise UsageError(f"dynamic names {name!r}, which is not a tensor input of this call: {', '.join(inputs)}")
        if any(name in group for group in program.written_alias_groups):
            raise CaptureError(f"input {name!r} shares memory with one that is changed: its sizes cannot be symbolic")
    return {name: _requested_dimensions(name, inputs[name], requested) for name, requested in dynamic.items()}


def _requested_dimensions(name: str, value: Tensor, requested: Any) -> dict[int, str]:
    """Return the requested dimensions of one input, counted from the front, with their names ('' for none). `requested`
    is an index, several, or a mapping of indices to names; `value` is the captured input. Refuse an index that the
    input does not have, and a size of 0 or 1."""
    if isinstance(requested, int):
        requested = (requested,)
    rows = dict(requested) if isinstance(requested, Mapping) else dict.fromkeys(requested, "")
    names: dict[int, str] = {}
    for index, name_of_size in rows.items():
        if not isinstance(index, int) or not -value.dim() <= index < value.dim():
            raise UsageError(f"dynamic: input {name!r} has {value.dim()} dimensions; {index!r} is not one of them")
        if value.shape[index] < 2:
            raise UsageError(
                f"dynamic: size {index} of {name!r} is {value.shape[index]}, which tracing always makes a constant: "
                "capture with a size of 2 or more"
            )
        names[index % value.dim()] = _check_name(str(name_of_size or ""))
    return names


def _check_name(name: str) -> str:
    """Return a name that the user gives to a size ('' for none); refuse one that a sample cannot have."""
    if name:
        try:
            check_local(name)
        except RefusedError as error:
            raise UsageError(f"dynamic: {error}") from None
        if RESERVED_NAMES.fullmatch(name) or name in FUNCTIONS:
            raise UsageError(f"dynamic: {name!r} cannot name a size: Backprint uses that name for sizes or functions")
    return name


# ---- While tracing


_SYMBOLIC = tuple(f"{name}.py" for name in ("symbolic_shapes", "sym_node", "recording", "symbolic"))
"""Files of torch, and this one, whose frames stand between code that compares sizes and `Sizes.evaluate_expr`."""


def _chooses_kernel() -> bool:
    """Whether a convolution's fake kernel is comparing sizes to choose a real kernel: `batch < 16` is no guard then.

    The fake kernel needs the real one for the output's layout, which follows the input's layout for every real kernel.
    """
    frame: Any = sys._getframe(1)
    # The frame of the code that compares the sizes.
    while frame is not None and frame.f_code.co_filename.endswith(_SYMBOLIC):
        frame = frame.f_back
    return frame is not None and frame.f_code is code_of_convolutions()


class Sizes(ShapeEnv):
    """torch's ShapeEnv with symbols in the order of the inputs, and the user's line on each guard.

    Two sizes that are equal by chance are two symbols; programs that read values are refused as without symbols.
    `dims` has the requested dimensions, and `places` torch's expression for each. `forward` is true while the user's
    own lines run, `chosen` if the user named the dimensions. `count` is how many symbols there are. `paths` has the
    path of each module by its identity.
    """

    def __init__(self, dims: Dims, paths: Mapping[int, str]) -> None:
        # duck_shape would make two sizes one symbol because they are equal in this call.
        super().__init__(duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
        self.dims, self.paths = dims, paths
        self.forward = self.chosen = False
        self.count = 0
        self.places: dict[tuple[str, int], Any] = {}

    def _get_sloc(self, framework_loc: str | None = None) -> SLoc:
        """torch's hook for the place of a guard: the user's line, which `_user_line` reads."""
        return SLoc(framework_loc, frames.here(self.paths) if self.forward else None)

    def evaluate_expr(self, *args: Any, **kwargs: Any) -> Any:
        """Decide a condition on sizes, which becomes a guard unless a convolution's fake kernel asks."""
        if not _chooses_kernel():
            return super().evaluate_expr(*args, **kwargs)
        with self.suppress_guards():
            return super().evaluate_expr(*args, **kwargs)

    def _generate_unique_id(self, source_name: str) -> int:
        """torch's hook for the number in a symbol's name: in the order of the inputs."""
        self.count += 1
        return self.count - 1

    def fake(self, mode: FakeTensorMode, name: str, value: Tensor) -> Tensor:
        """Return a fake tensor for the input `name`, with the requested symbolic sizes; note their expressions."""
        requested = self.dims[name]
        # DUCK is a symbolic size; with `duck_shape=False`, above, equal sizes are two symbols all the same.
        kinds = [DimDynamic.DUCK if index in requested else DimDynamic.STATIC for index in range(value.dim())]
        without_constraints = [None] * value.dim()
        context = StatelessSymbolicContext(dynamic_sizes=kinds, constraint_sizes=without_constraints)
        fake = mode.from_tensor(value, symbolic_context=context, source=LocalSource(name))
        for index in requested:
            if isinstance(fake.shape[index], torch.SymInt):  # torch makes a size of 0 or 1 a number
                self.places[name, index] = fake.shape[index].node.expr
        self.equate_dimensions_of_one_name(name, fake)
        return fake

    def equate_dimensions_of_one_name(self, name: str, fake: Tensor) -> None:
        """Make dimensions to which the user gave one name equal; refuse them if they are not. `fake` stands for the
        input `name`."""
        for index, name_of_size in self.dims[name].items():
            for other, symbol in self.places.items():
                if name_of_size and self.name_of_dimension(other) == name_of_size and other != (name, index):
                    # The other dimension as a SymInt, with its size in this call.
                    left = self.create_symintnode(symbol, hint=int(self.backed_var_to_val[symbol]))
                    # The comparison itself is a guard, by which torch makes the two symbols one.
                    if not bool(left == fake.shape[index]):
                        both = f"{other[0]}.shape[{other[1]}] and {name}.shape[{index}]"
                        raise UsageError(f"dynamic: {both} are both called {name_of_size!r}, but their sizes differ")

    def name_of_dimension(self, place: tuple[str, int]) -> str:
        """Return the user's name for a dimension, or ''."""
        return self.dims[place[0]][place[1]]


def sizes(program: ObservedProgram, dynamic: Any, paths: Mapping[int, str]) -> Sizes | None:
    """Return the ShapeEnv of the symbols that `dynamic` requests; None if no size is symbolic."""
    if not dynamic:
        return None
    symbols = Sizes(dimensions(program, dynamic), paths)
    symbols.chosen = dynamic is not True
    return symbols


@contextlib.contextmanager
def noting_user_lines(sizes: Sizes | None) -> Iterator[None]:
    """Note the user's line on guards that are derived inside, while the program itself runs."""
    if sizes is not None:
        sizes.forward = True
    try:
        yield
    finally:
        if sizes is not None:
            sizes.forward = False


def specialize_number(leaf: Any) -> Any:
    """Return a symbolic number as a plain number; tracing adds a guard."""
    match leaf:
        case torch.SymInt():
            return int(leaf)
        case torch.SymFloat():
            return float(leaf)
    return bool(leaf)


# ---- Symbols and guards after tracing


def findings_of(sizes: Sizes | None) -> SizeFindings:
    """Return the symbols that are left after tracing, and the guards; refuse a dimension that the user named and the
    program makes a constant."""
    if sizes is None:
        return SizeFindings()
    # Our name of each symbol, and the inputs whose sizes have it.
    names = names_of(sizes)
    inputs_with = {
        symbol: sorted({name for name, dim in sizes.places if symbol in free(sizes, (name, dim))}) for symbol in names
    }
    symbols = tuple(_symbol_of(sizes, symbol, name) for symbol, name in names.items())
    name_by_torchs_name = {symbol.name: name for symbol, name in names.items()}

    def text(expression: Any) -> str:
        """Return an expression or a condition in our names."""
        return re.sub(
            r"[A-Za-z_]\w*",
            lambda match: name_by_torchs_name.get(match[0], match[0]),
            _condition_text(expression),
        )

    guards = []
    for place, symbol in sizes.places.items():
        # A size that tracing has found to be a number, or equal to another size.
        value = sizes.replace(symbol)
        if value == symbol:
            continue
        line = _user_line(sizes.replacements_slocs.get(symbol))
        _refuse_constant_dimension(sizes, place, value, text(value), line)
        guards.append(Guard("size", f"{place[0]}.shape[{place[1]}] == {text(value)}", (place[0],), line))
    for guard in sizes.guards:
        if (condition := _what_guard_adds(sizes, guard)) is not None:
            inputs = dict.fromkeys(
                name for symbol in names if symbol in condition.free_symbols for name in inputs_with[symbol]
            )
            guards.append(Guard("size", text(condition), tuple(inputs), _user_line(guard.sloc)))
    # Of guards with equal texts the first counts, which has the first of the user's lines.
    by_text = {guard.text: guard for guard in reversed(guards)}
    for guard in by_text.values():
        check_guard(guard, {symbol.name: symbol.hint for symbol in symbols})
    return SizeFindings(symbols, tuple(reversed(by_text.values())), name_by_torchs_name)


def check_guard(guard: Guard, example_sizes: Mapping[str, int]) -> None:
    """Check that a replay can evaluate a guard, and that the captured sizes meet it; else raise a CaptureError.
    `example_sizes` has the captured size of each symbol, by our name."""
    # Of `x.shape[0] == 2*s0` the expression on the right, which is not 0; of any other guard its whole text.
    condition = guard.text.rpartition("] == ")[2]
    try:
        holds = bool(evaluate(condition, example_sizes))
    except GraphError as error:
        raise CaptureError(f"tracing found the condition {guard.text}, which a sample cannot keep: {error}") from None
    if not holds:
        raise CaptureError(
            f"tracing found the condition {guard.text}, which the captured sizes do not meet: {example_sizes}"
        )


def names_of(sizes: Sizes) -> dict[Any, str]:
    """Return torch's symbols that sizes depend on, in the order of the inputs, each with the user's name, else s0, s1,
    …"""
    # The symbols in the order of the inputs, each still without a name.
    names: dict[Any, str] = {}
    for place in sizes.places:
        # A symbol of torch's is a letter and its number.
        for symbol in sorted(free(sizes, place), key=lambda symbol_: int(symbol_.name[1:])):
            names.setdefault(symbol, "")
    # The user's names; of two for one symbol, the first counts.
    for place, symbol in sizes.places.items():
        now = sizes.replace(symbol)
        if now in names and sizes.name_of_dimension(place):
            names[now] = names[now] or sizes.name_of_dimension(place)
    for symbol in sizes.backed_var_to_val:  # strides that no size explains
        if sizes.replace(symbol) == symbol:
            names.setdefault(symbol, "")
    numbers = iter(range(len(names)))
    return {symbol: name or f"s{next(numbers)}" for symbol, name in names.items()}


def free(sizes: Sizes, place: tuple[str, int]) -> set[Any]:
    """Return the symbols that a dimension depends on."""
    return set(sizes.replace(sizes.places[place]).free_symbols)


def _symbol_of(sizes: Sizes, symbol: Any, name: str) -> Symbol:
    """Return torch's symbol as a Symbol with this name, its size in this call, and its range."""
    bounds = sizes.var_to_range[symbol]
    ends = (bounds.lower, bounds.upper)
    # A bound of 2**62 or more counts as none.
    low, high = (str(int(end)) if end.is_Integer and abs(end) < 2**62 else "inf" for end in ends)
    return Symbol(name, int(sizes.backed_var_to_val[symbol]), low, high)


def _user_line(place: Any) -> Source | None:
    """Return the user's line that `_get_sloc` noted."""
    line = getattr(place, "maybe_user_loc", None)
    return line if isinstance(line, Source) else None


def _refuse_constant_dimension(sizes: Sizes, place: tuple[str, int], now: Any, text: str, line: Source | None) -> None:
    """Refuse a program that makes a dimension chosen by the user a constant. `now` is the size as torch has it, `text`
    the same with our names of symbols."""
    if len(now.free_symbols) or not sizes.chosen:
        return
    where = f" at {line.file}:{line.line} in {line.function}: {line.code!r}" if line else ""
    raise CaptureError(
        f"size {place[1]} of input {place[0]!r} cannot be symbolic: the program takes it as {text}{where}. "
        "Leave it out of `dynamic`, or make the program work for any size"
    )


def _what_guard_adds(sizes: Sizes, guard: Any) -> Any:
    """Return the condition that a guard adds to the sizes' ranges, or None. A range that one of the user's lines
    narrowed counts as added."""
    # Neither always true nor always false in the ranges that torch knows, without any other guard.
    if is_always(sizes, guard.expr, axioms=()) is None:
        return sizes.simplify(guard.expr)
    expression = sizes.replace(guard.expr)
    if _user_line(guard.sloc) is None or not expression.free_symbols:
        return None
    # A range such as `2 <= s0` holds for every size that a symbol can have (2 or more), and is no guard. Two sizes are
    # tried: the least, and one that is larger than any real one.
    usual = all(_holds_everywhere(expression, size) for size in (2, 2**40))
    return None if usual else expression


def _holds_everywhere(expression: Any, size: int) -> bool:
    """Whether a condition holds where every symbol has this size."""
    return bool(evaluate(str(expression), {symbol.name: size for symbol in expression.free_symbols}))


def _condition_text(expression: Any) -> str:
    """Return a condition in Python's notation."""
    match expression:
        case sympy.Eq(lhs=left, rhs=right):
            return f"{left} == {right}"
        case sympy.Ne(lhs=left, rhs=right):
            return f"{left} != {right}"
    return str(expression)
