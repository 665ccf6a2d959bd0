"""What a program does with each of its inputs, as far as that limits their values.

An input is followed through operations that keep its values (views, casts, copies, slices, added numbers) to the calls
of the table. Left out: values that are computed from several inputs, except sums that go into a softmax.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from backprint.errors import RefusedError
from backprint.graphnet.code import (
    Assign,
    Augment,
    Const,
    Expr,
    FunctionCall,
    Item,
    Items,
    MethodCall,
    ModelProgram,
    Name,
    Operation,
    SliceExpr,
    Unary,
    subexpressions,
)
from backprint.graphnet.meta import Meta, Use


@dataclass(frozen=True, slots=True)
class ShownInput:
    """An input whose values an expression has: plus `added`, in its `own_shape` or not, `summed` with others or not."""

    name: str
    added: float = 0.0
    own_shape: bool = True
    summed: bool = False


KEEPS = frozenset(
    "view reshape to long int float double half bfloat16 type type_as contiguous expand expand_as unsqueeze squeeze "
    "flatten transpose permute t clone detach repeat view_as reshape_as narrow chunk split unbind tensor_split "
    "swapaxes movedim ravel unflatten cpu requires_grad_ repeat_interleave tile select index_select "
    "swapdims flip roll masked_select requires_grad".split()
)
"""Methods whose results have only values of their first argument; likewise functions of these names."""

OWN_SHAPE = frozenset("to long int float double half bfloat16 type type_as contiguous clone detach cpu".split())
"""Methods of KEEPS that keep the shape as well."""

UseRule = tuple[tuple[int | str, ...], str, int | None]
"""The positions and keywords of an argument, the use that it is put to, and the argument that it indexes."""

INDEXED: Mapping[str, tuple[int, int]] = {
    "index_select": (2, 1), "gather": (2, 1), "take_along_dim": (1, 2), "scatter": (2, 1), "scatter_add": (2, 1),
    "scatter_": (2, 1), "scatter_add_": (2, 1), "index_add": (2, 1), "index_add_": (2, 1), "index_copy_": (2, 1),
    "index_fill_": (2, 1), "scatter_reduce": (2, 1), "scatter_reduce_": (2, 1),
}  # fmt: skip
"""Calls that index their first argument: the position of the index, and of the dimension."""

TAKES: Mapping[str, tuple[UseRule, ...]] = {
    "embedding": (((0, "input"), "index", 1),),
    "torch.embedding": (((1, "indices"), "index", 0),),
    "embedding_bag": (((0, "input"), "index", 1),),
    "torch.embedding_bag": (((1, "indices"), "index", 0),),
    "batch_norm": (((1, "running_mean"), "average", None), ((2, "running_var"), "variance", None)),
    "instance_norm": (((1, "running_mean"), "average", None), ((2, "running_var"), "variance", None)),
    "masked_fill": (((1, "mask"), "mask", None),),
    "masked_fill_": (((1, "mask"), "mask", None),),
    "masked_select": (((1, "mask"), "mask", None),),
    "masked_scatter": (((1, "mask"), "mask", None),),
    "where": (((0, "condition"), "mask", None),),
    "Tensor.where": (((1, "condition"), "mask", None),),
    "multi_head_attention_forward": ((("key_padding_mask",), "mask", None), (("attn_mask",), "additive", None)),
    "scaled_dot_product_attention": (((3, "attn_mask"), "additive", None),),
    "cross_entropy": (((1, "target"), "target", None),),
    "cross_entropy_loss": (((1, "target"), "target", None),),
    "nll_loss": (((1, "target"), "target", None),),
    "log": (((0, "input"), "positive", None),),
    "log2": (((0, "input"), "positive", None),),
    "log10": (((0, "input"), "positive", None),),
    "sqrt": (((0, "input"), "positive", None),),
    "sqrt_": (((0, "input"), "positive", None),),
    "rsqrt": (((0, "input"), "positive", None),),
    "reciprocal": (((0, "input"), "positive", None),),
    "div": (((1, "other"), "positive", None),),
    "div_": (((1, "other"), "positive", None),),
    "true_divide": (((1, "other"), "positive", None),),
    "item": (((0,), "read", None),),
    "tolist": (((0,), "read", None),),
    "_local_scalar_dense": (((0,), "read", None),),
    "one_hot": (((0,), "index", None),),
}
"""The uses of calls' arguments, by the last part of a function's name; a row of the full name takes precedence."""

SOFTMAX = ("softmax", "log_softmax", "_softmax")


def uses_of(program: ModelProgram, metas: Mapping[str, Meta]) -> dict[str, Use]:
    """Find what the program does with each argument, by its name in the code."""
    walk = UseWalk([argument.name for argument in program.arguments], metas)
    for line in program.lines:
        seen = walk.visit(line.value)
        if isinstance(line, Assign):
            for target in line.targets:
                walk.bind(target, line.value, seen)
        elif isinstance(line, Augment):
            walk.take(Operation(line.kind, line.target, line.value))
            if isinstance(line.target, Name):
                walk.env[line.target.id] = walk.result(Operation(line.kind, line.target, line.value))
    return {argument.name: walk.use(argument.name) for argument in program.arguments}


MOST_SEEN = 64
"""The most ShownInputs of one value; beyond it, equal ones are merged, with the largest `added`."""

MOST_STEPS = 5_000_000
"""The most ShownInputs of all expressions of a program together."""


def merge_shown(seen: Iterable[ShownInput]) -> tuple[ShownInput, ...]:
    """Merge duplicates, so that a value that is joined to itself again and again does not grow."""
    found = dict.fromkeys(seen)
    if len(found) <= MOST_SEEN:
        return tuple(found)
    most: dict[tuple[str, bool, bool], ShownInput] = {}
    for each in found:
        key = (each.name, each.own_shape, each.summed)
        if key not in most or most[key].added < each.added:
            most[key] = each
    return tuple(most.values())


class UseWalk:
    """The state of one walk through a program's lines."""

    def __init__(self, names: Iterable[str], metas: Mapping[str, Meta]) -> None:
        self.env: dict[str, tuple[ShownInput, ...]] = {name: (ShownInput(name),) for name in names}
        self.metas = metas
        self.kinds: dict[str, set[str]] = {}
        self.below: dict[str, int] = {}
        self.steps = 0

    def use(self, name: str) -> Use:
        """The Use found for an input."""
        return Use(frozenset(self.kinds.get(name, ())), self.below.get(name))

    def bind(self, target: Expr, value: Expr, seen: tuple[ShownInput, ...]) -> None:
        """Bind a target to the inputs that a value shows."""
        match target, value:
            case Name(name), _:
                self.env[name] = seen
            case Items(items=targets), Items(items=values) if len(targets) == len(values):
                for one, other in zip(targets, values, strict=True):
                    self.bind(one, other, self.result(other))
            case Items(items=targets), _:
                for one in targets:
                    self.bind(one, value, tuple(replace(each, own_shape=False) for each in seen))
            case Item(of=of, index=index), _:
                self.take(Item(of, index))

    def visit(self, value: Expr) -> tuple[ShownInput, ...]:
        """Note what an expression does with inputs, inner expressions first; returns the inputs that it shows."""
        for part in subexpressions(value):
            self.visit(part)
        self.take(value)
        return self.result(value)

    # -------------------------------------------------------------- what a value shows

    def result(self, value: Expr) -> tuple[ShownInput, ...]:
        """The inputs whose values an expression has, merged and counted."""
        found = self.shown(value)
        if len(found) > 1:
            found = merge_shown(found)
        self.steps += 1 + len(found)
        if self.steps > MOST_STEPS:
            raise RefusedError(f"following the inputs through the lines takes more than {MOST_STEPS:,} steps")
        return found

    def shown(self, value: Expr) -> tuple[ShownInput, ...]:
        """The inputs whose values an expression has, as often as they occur in it."""
        match value:
            case Name(name):
                return self.env.get(name, ())
            case MethodCall(of=of, name=name) if name in KEEPS:
                return self.kept(of, name)
            case FunctionCall(target=target, args=(of, *_)) if last_name(target) in KEEPS:
                return self.kept(of, last_name(target))
            case Item(of=of) | FunctionCall(target="torch.nn.functional.pad" | "torch._C._nn.pad", args=(of, *_)):
                return tuple(replace(each, own_shape=False) for each in self.result(of))
            case FunctionCall(target="torch.cat" | "torch.stack" | "torch.concat", args=(Items(items=items), *_)):
                return tuple(replace(each, own_shape=False) for item in items for each in self.result(item))
            case Operation(kind="Add" | "Sub" as kind, left=left, right=Const(value=int() | float() as number)):
                more = number if kind == "Add" else -number
                return tuple(replace(each, added=each.added + more) for each in self.result(left))
            case Operation(kind="Add", right=right):
                return tuple(replace(each, summed=True) for each in self.result(right))
        return ()

    def kept(self, of: Expr, name: str) -> tuple[ShownInput, ...]:
        """The inputs of an argument that a method or function of KEEPS rearranges."""
        own = name in OWN_SHAPE
        return tuple(replace(each, own_shape=each.own_shape and own) for each in self.result(of))

    # -------------------------------------------------------------- what is done with it

    def take(self, value: Expr) -> None:
        """Note what one expression does with the inputs in its operands."""
        match value:
            case MethodCall(of=of, name=name, args=args, kwargs=kwargs):
                self.called(f"Tensor.{name}", (of, *args), dict(kwargs))
            case FunctionCall(target=target, args=args, kwargs=kwargs):
                self.called(target, args, dict(kwargs))
            case Operation(kind="Div" | "FloorDiv" | "Mod", right=right):
                self.note(right, "positive")
            case Operation(kind="Pow", left=left, right=Const(value=float() as power)) if not power.is_integer():
                self.note(left, "positive")
            case Operation(kind="Sub", left=Const(value=1 | 1.0), right=right):
                self.note(right, "flag")
            case Unary(kind="Invert", of=of):
                self.note(of, "mask")
            case Item(of=of, index=index):
                self.indexed(of, index)

    def called(self, target: str, args: tuple[Expr, ...], kwargs: Mapping[str, Expr]) -> None:
        """Note what a call does with its arguments, by the tables."""
        name = last_name(target)
        for places, kind, of in TAKES.get(target, TAKES.get(name, ())):
            for given in given_at(places, args, kwargs):
                self.note(given, kind)
                if of is not None and of < len(args):
                    self.bound(given, self.size(args[of], 0))
        if name == "one_hot" and len(args) > 1 and isinstance(args[1], Const) and isinstance(args[1].value, int):
            self.bound(args[0], args[1].value if args[1].value > 0 else None)
        if name in INDEXED:
            place, dim = INDEXED[name]
            for given in given_at((place, "index"), args, kwargs):
                self.note(given, "index")
                for where in given_at((dim, "dim"), args, kwargs):
                    if isinstance(where, Const) and isinstance(where.value, int):
                        self.bound(given, self.size(args[0], where.value))
        if name in SOFTMAX and args:
            for each in self.result(args[0]):
                if each.summed:
                    self.kinds.setdefault(each.name, set()).add("additive")

    def indexed(self, of: Expr, index: Expr) -> None:
        """Note the indices in brackets."""
        items = index.items if isinstance(index, Items) else (index,)
        for dim, item in enumerate(items):
            if not isinstance(item, (Const, SliceExpr)):
                self.note(item, "index")
                self.bound(item, self.size(of, dim))

    def note(self, value: Expr, kind: str) -> None:
        """Note a use of the inputs that a value shows."""
        for each in self.result(value):
            if not each.summed:
                self.kinds.setdefault(each.name, set()).add(kind)

    def bound(self, value: Expr, size: int | None) -> None:
        """Bound the inputs that a value shows by `size`, less what was added to them."""
        for each in self.result(value):
            if size is not None and not each.summed and math.isfinite(each.added):
                most = size - int(each.added)
                self.below[each.name] = min(most, self.below.get(each.name, most))

    def size(self, value: Expr, dim: int) -> int | None:
        """The size of a dimension, where the value has the shape of an input."""
        own = [self.metas[each.name] for each in self.result(value) if each.own_shape and each.name in self.metas]
        shapes = [meta.shape for meta in own]
        return shapes[0][dim] if len(shapes) == 1 and -len(shapes[0]) <= dim < len(shapes[0]) else None


def last_name(target: str) -> str:
    """The last part of a function's name; an operator's name without its overload."""
    *rest, name = target.split(".")
    return rest[-1] if name == "default" and rest else name


def given_at(places: tuple[int | str, ...], args: tuple[Expr, ...], kwargs: Mapping[str, Expr]) -> Iterator[Expr]:
    """The arguments given at any of these positions and keywords."""
    for place in places:
        if isinstance(place, int) and place < len(args):
            yield args[place]
        elif place in kwargs:
            yield kwargs[str(place)]
