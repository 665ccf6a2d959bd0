"""Counts the bytes that the blocks of a Triton kernel ask memory for, from its syntax tree: no code of it is run.

Sizes, masks and addresses of Inductor's kernels are integers that follow from the block's place in the grid, so they
are computed here, by a small evaluator of the operators that occur in them. Values that are loaded are not known: where
they decide an address, each lane counts as an element of its own; where they decide a mask, every lane counts; both are
named. Of a large grid the blocks at its edges and some between are counted, and stand for the others.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

BLOCKS = 32
"""How many blocks stand for those of a grid that are alike: inside, or at the same edges."""

STEPS = 100_000
"""The statements that are followed for a block; a kernel with more is not counted."""

LANES = 1 << 22
"""The lanes that an array may have here."""


def array(value: Any) -> Tensor:
    """Return a value as an array of 64 bits, on the CPU whatever the default device and dtype are."""
    if isinstance(value, Tensor):
        return value
    kinds = {bool: torch.bool, int: torch.int64, float: torch.float64}
    if type(value) not in kinds:
        raise NotFollowed(f"a {type(value).__name__} where a number is expected")
    return torch.tensor(value, dtype=kinds[type(value)], device="cpu")


def divided(one: Any, other: Any) -> Any:
    """Return a quotient as Python has it: in 64 bits."""
    return operator.truediv(*(value.double() if isinstance(value, Tensor) else value for value in (one, other)))


def chosen(condition: Any, one: Any, other: Any) -> Any:
    """Return `tl.where`: of numbers a number, as addresses and loops need it."""
    if not any(isinstance(value, Tensor) for value in (condition, one, other)):
        return one if condition else other
    return torch.where(array(condition).bool(), array(one), array(other))


def smaller(one: Any, other: Any) -> Any:
    """Return the minimum of numbers or arrays."""
    return chosen(operator.lt(one, other), one, other)


def larger(one: Any, other: Any) -> Any:
    """Return the maximum of numbers or arrays."""
    return chosen(operator.gt(one, other), one, other)


OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = MappingProxyType(
    {
        ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod, ast.Div: divided, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
        ast.BitXor: operator.xor, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
        ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.USub: operator.neg,
    }
)  # fmt: skip
"""The operators of addresses and masks; shifts and powers do not occur, and their numbers have no limit."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "where": chosen,
        "minimum": smaller,
        "maximum": larger,
        "cdiv": lambda one, other: -(-one // other),
        "div_floor_integer": operator.floordiv,
        "remainder_integer": operator.mod,
    }
)
"""Functions of Triton and of PyTorch's helpers that addresses have."""


@dataclass(frozen=True, slots=True)
class UnknownData:
    """A value that is loaded, or follows from one; its shape is None where that is not known either."""

    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class AskedBytes:
    """What the blocks of a grid ask for, by parameter."""

    read: Mapping[str, int]
    written: Mapping[str, int]
    exact: bool
    complete: bool
    """Whether all of the code was followed."""
    unknown: tuple[str, ...]

    @property
    def total(self) -> int:
        """Bytes that are read or written."""
        return sum(self.read.values()) + sum(self.written.values())


class NotFollowed(Exception):
    """Code that the evaluator does not follow."""


NOT_FOLLOWED = (
    NotFollowed, ValueError, TypeError, ZeroDivisionError, OverflowError, IndexError, RecursionError, RuntimeError,
)  # fmt: skip
"""Errors of a stranger's arithmetic. A RuntimeError is torch's, for shapes that do not go together or a zero."""


def asked_bytes(
    function: ast.FunctionDef, known: Mapping[str, Any], sizes: Mapping[str, int], grid: Sequence[int]
) -> AskedBytes:
    """Return what a grid of blocks asks for; `known` has parameters that are numbers, `sizes` the bytes of elements."""
    totals: dict[str, dict[str, float]] = {"read": defaultdict(float), "written": defaultdict(float)}
    unknown: dict[str, None] = {}
    exact = True
    try:
        for blocks, count in blocks_alike(grid):
            exact &= len(blocks) == count
            for block in blocks:
                follower = BlockFollower(function, known, sizes, block, grid)
                follower.follow(function.body)
                unknown.update(follower.unknown)
                for (direction, name), number in follower.counts.items():
                    totals[direction][name] += number * count / len(blocks)
    except NOT_FOLLOWED as error:
        return AskedBytes({}, {}, False, False, (f"code that is not followed: {error}",))
    read, written = ({name: round(value) for name, value in totals[one].items()} for one in ("read", "written"))
    return AskedBytes(read, written, exact, True, tuple(unknown))


def blocks_alike(grid: Sequence[int]) -> Iterator[tuple[list[tuple[int, ...]], int]]:
    """Yield blocks of a grid that are alike, sampled, and how many there are."""
    parts = [[range(size - 1), range(size - 1, size)] if size > 1 else [range(size)] for size in grid]
    for ranges in itertools.product(*parts):
        count = math.prod(len(one) for one in ranges)
        if not count:
            continue
        places = sorted({place * (count - 1) // max(1, min(BLOCKS, count) - 1) for place in range(min(BLOCKS, count))})
        blocks = []
        for place in places:
            block = []
            for one in ranges:
                place, rest = divmod(place, len(one))
                block.append(one[rest])
            blocks.append(tuple(block))
        yield blocks, count


class BlockFollower:
    """Follows the code of one block."""

    def __init__(
        self,
        function: ast.FunctionDef,
        known: Mapping[str, Any],
        sizes: Mapping[str, int],
        block: Sequence[int],
        grid: Sequence[int],
    ) -> None:
        self.values: dict[str, Any] = dict(known)
        self.sizes = sizes
        self.pointers = {one.arg: one.arg for one in function.args.args if sizes.get(one.arg)}
        self.block, self.grid = block, grid
        self.counts: dict[tuple[str, str], int] = defaultdict(int)
        self.unknown: dict[str, None] = {}
        self.steps = 0

    def follow(self, statements: Sequence[ast.stmt]) -> None:
        """Follow statements in their order."""
        for statement in statements:
            self.steps += 1
            if self.steps > STEPS:
                raise NotFollowed(f"a block has more than {STEPS} statements")
            self.follow_one(statement)

    def follow_one(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=source)) if source in self.pointers:
                self.pointers[name] = self.pointers[source]
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                self.bind(target, self.value(value))
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                self.bind(target, self.value(ast.BinOp(ast.Name(name, ast.Load()), op, value)))
            case ast.Expr(value=value):
                self.value(value)
            case ast.For(target=ast.Name() as target, iter=ast.Call(args=bounds, func=ast.Name() | ast.Attribute())):
                for number in self.numbers(bounds, statement):
                    self.bind(target, number)
                    self.follow(statement.body)
            case ast.If(test=test):
                truth = self.value(test)
                if not isinstance(truth, bool | int):
                    raise NotFollowed(f"line {statement.lineno}: a condition that the data decide")
                self.follow(statement.body if truth else statement.orelse)
            case ast.Pass():
                pass
            case _:
                raise NotFollowed(f"line {statement.lineno}: {type(statement).__name__}")

    def numbers(self, bounds: Sequence[ast.expr], loop: ast.stmt) -> range:
        """Return the numbers of a loop."""
        found = [self.value(one) for one in bounds]
        if not 1 <= len(found) <= 3 or not all(isinstance(one, int) for one in found):
            raise NotFollowed(f"line {loop.lineno}: a loop whose bounds are not known")
        return range(*map(int, found))

    def bind(self, target: ast.expr, value: Any) -> None:
        """Give a variable a value; each of several variables is unknown."""
        names = [one.id for one in ast.walk(target) if isinstance(one, ast.Name)]
        self.values.update(dict.fromkeys(names, value if isinstance(target, ast.Name) else UnknownData()))

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression."""
        match node:
            case ast.Constant(value=value):
                return value if isinstance(value, int | float | bool) else UnknownData()
            case ast.Name(id=name):
                return self.values.get(name, UnknownData())
            case ast.BinOp(left=left, op=op, right=right):
                return self.combined(type(op), self.value(left), self.value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.combined(type(op), self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                found = self.value(operand)
                return found.logical_not() if is_mask(found) else UnknownData(shape_of(found))
            case ast.UnaryOp(op=op, operand=operand):
                return self.combined(type(op), self.value(operand))
            case ast.Subscript(value=value, slice=index):
                return self.indexed(self.value(value), index)
            case ast.Call():
                return self.called(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.value(child)
        return UnknownData()

    def combined(self, kind: type[ast.AST], *values: Any) -> Any:
        """Return what an operator makes of values."""
        shape = common_shape(values)
        if kind not in OPERATORS or any(isinstance(one, UnknownData) for one in values):
            return UnknownData(shape)
        return limited(OPERATORS[kind](*values))

    def indexed(self, value: Any, index: ast.expr) -> Any:
        """Return a value with further dimensions: `[:, None]`."""
        shape = shape_of(value)
        if shape is None:
            return UnknownData()
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        if not all(isinstance(one, ast.Slice) or getattr(one, "value", 0) is None for one in parts):
            return UnknownData()
        places = tuple(slice(None) if isinstance(one, ast.Slice) else None for one in parts)
        if isinstance(value, UnknownData):
            return UnknownData(tuple(array(False).expand(shape)[places].shape))
        return array(value)[places]

    def called(self, node: ast.Call) -> Any:
        """Return the result of a call; loads and stores are counted."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        module = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)
        owner = node.func.value.id if module else ""  # type: ignore[attr-defined]
        if owner == "tl" and (name in ("load", "store") or name.startswith("atomic_")):
            return self.accessed(name, node)
        if isinstance(node.func, ast.Attribute) and owner not in ("tl", "triton_helpers", "libdevice", "tl_math"):
            found = self.value(node.func.value)  # a method of a value
            if name == "broadcast_to":
                return self.broadcast(found, node.args)
            return found if name == "to" else UnknownData()
        values = [self.value(one) for one in node.args]
        match owner, name, values:
            case "tl", "program_id", [int() as axis]:
                return self.block[axis]
            case "tl", "num_programs", [int() as axis]:
                return self.grid[axis]
            case "tl", "arange", [int() as start, int() as stop]:
                last = max(start, min(stop, start + LANES + 1))
                return limited(torch.arange(start, last, dtype=torch.int64, device="cpu"))
            case "tl", "full", [_, filled, *_]:
                return self.broadcast(filled, node.args[:1])
            case "tl", "zeros", _:
                return self.broadcast(0, node.args[:1])
            case "tl", "broadcast_to", [found, *_]:
                return self.broadcast(found, node.args[1:])
            case (("tl" | "triton_helpers"), _, _) if name in FUNCTIONS:
                shape, known = common_shape(values), not any(isinstance(one, UnknownData) for one in values)
                return limited(FUNCTIONS[name](*values)) if known else UnknownData(shape)
        return UnknownData()

    def broadcast(self, value: Any, shape: Sequence[ast.expr]) -> Any:
        """Return a value of a shape that is written as a list, or as several numbers."""
        parts = shape[0].elts if len(shape) == 1 and isinstance(shape[0], ast.List | ast.Tuple) else shape
        sizes = [self.value(one) for one in parts]
        if not all(isinstance(one, int) and 0 <= one <= LANES for one in sizes):
            return UnknownData()
        whole = tuple(map(int, sizes))
        if isinstance(value, UnknownData):
            return UnknownData(whole)
        return limited(array(value).broadcast_to(whole))

    def accessed(self, name: str, node: ast.Call) -> UnknownData:
        """Count a load, a store or an atomic operation."""
        places = {"load": 1, "store": 2}.get(name, 3 if name == "atomic_cas" else 2)
        options = {one.arg: one.value for one in node.keywords}
        for value in node.args[1:places]:
            self.value(value)
        mask_node = options.get("mask", node.args[places] if len(node.args) > places else None)
        mask = True if mask_node is None or getattr(mask_node, "value", 0) is None else self.value(mask_node)
        names = [one.id for one in ast.walk(node.args[0]) if isinstance(one, ast.Name) and one.id in self.pointers]
        if not names:
            raise NotFollowed(f"line {node.lineno}: an address that begins at no parameter")
        pointer = self.pointers[names[0]]
        address = self.value(without_pointer(node.args[0], self.pointers))
        count = self.elements(pointer, address, mask)
        if name != "store":
            self.counts["read", pointer] += count * self.sizes[pointer]
        if name != "load":
            self.counts["written", pointer] += count * self.sizes[pointer]
        return UnknownData(common_shape([address, mask]))

    def elements(self, pointer: str, address: Any, mask: Any) -> int:
        """Return how many elements an instruction asks for."""
        shape = common_shape([address, mask])
        if shape is None:
            raise NotFollowed(f"the lanes of an access of {pointer} are not known")
        if isinstance(mask, UnknownData):
            self.unknown[f"{pointer}: the data decide the mask, and every lane counts"] = None
            mask = True
        lanes = array(mask).bool().broadcast_to(shape)
        if isinstance(address, UnknownData):
            self.unknown[f"{pointer}: the data decide the addresses, and each lane counts"] = None
            return int(lanes.sum())
        return torch.unique(array(address).broadcast_to(shape)[lanes]).numel()


def without_pointer(address: ast.expr, pointers: Mapping[str, str]) -> ast.expr:
    """Return an address as a number of elements after its pointer."""
    match address:
        case ast.Name(id=name) if name in pointers:
            return ast.Constant(0)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return ast.BinOp(without_pointer(left, pointers), ast.Add(), without_pointer(right, pointers))
    return address


def is_mask(value: Any) -> bool:
    """Whether a value is an array of truths."""
    return isinstance(value, Tensor) and value.dtype == torch.bool


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape of a value."""
    return value.shape if isinstance(value, UnknownData) else tuple(value.shape) if isinstance(value, Tensor) else ()


def common_shape(values: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the shape that values have together; None where one is not known."""
    shapes = [shape_of(value) for value in values]
    if any(shape is None for shape in shapes):
        return None
    whole = tuple(torch.broadcast_shapes(*(shape for shape in shapes if shape is not None)))
    if math.prod(whole) > LANES:
        raise NotFollowed(f"an array of {math.prod(whole)} lanes")
    return whole


def limited(value: Any) -> Any:
    """Return a value that is not too large to be counted here."""
    lanes = value.numel() if isinstance(value, Tensor) else 1
    if lanes > LANES or (isinstance(value, int) and value.bit_length() > 63):
        raise NotFollowed(f"an array of {lanes} lanes, or a number beyond 64 bits")
    return value
