"""What a Program does with its inputs: which are indices and of what, which are masks, which have to be positive.

One walk over the lines follows each input through what only looks at it otherwise: names, casts, views, items, a plain
number added. What arithmetic makes of an input is another value, and is not followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from backprint.sample.graphnet.code import (
    Assign,
    Augment,
    Call,
    Const,
    Expr,
    Item,
    Items,
    Method,
    Name,
    Operation,
    Program,
    Slice,
    expressions,
)
from backprint.sample.graphnet.meta import Meta, Use

LOOKS = frozenset(
    "to type type_as float double half bfloat16 long int short bool view reshape view_as reshape_as flatten unflatten "
    "squeeze unsqueeze expand expand_as repeat repeat_interleave transpose permute swapaxes t contiguous clone detach "
    "cpu select narrow chunk split unbind tensor_split broadcast_to flip roll index_select".split()
)
"""Methods whose result has the values of the tensor that they look at."""

ARGUMENTS: Mapping[str, Mapping[str, tuple[tuple[int, str], ...]]] = {
    "Tensor": {
        "masked_fill": ((0, "mask"),),
        "masked_fill_": ((0, "mask"),),
        "masked_select": ((0, "mask"),),
        "where": ((0, "mask"),),
        "gather": ((1, "index"),),
        "index_select": ((1, "index"),),
        "index_add": ((1, "index"),),
        "index_add_": ((1, "index"),),
        "index_copy": ((1, "index"),),
        "index_copy_": ((1, "index"),),
        "index_fill": ((1, "index"),),
        "take_along_dim": ((0, "index"),),
        "scatter": ((1, "index"),),
        "scatter_": ((1, "index"),),
        "scatter_add": ((1, "index"),),
        "scatter_add_": ((1, "index"),),
        "scatter_reduce": ((1, "index"),),
        "scatter_reduce_": ((1, "index"),),
        "item": ((-1, "read"),),
        "tolist": ((-1, "read"),),
        "log": ((-1, "positive"),),
        "sqrt": ((-1, "positive"),),
        "rsqrt": ((-1, "positive"),),
        "div": ((0, "positive"),),
    },
    "torch": {
        "embedding": ((0, "index"),),
        "embedding_bag": ((1, "index"),),
        "one_hot": ((0, "index"),),
        "where": ((0, "mask"),),
        "masked_fill": ((1, "mask"),),
        "gather": ((2, "index"),),
        "index_select": ((2, "index"),),
        "scatter": ((2, "index"),),
        "scatter_add": ((2, "index"),),
        "take_along_dim": ((1, "index"),),
        "scaled_dot_product_attention": ((3, "additive"),),
        "batch_norm": ((1, "average"), (2, "variance")),
        "instance_norm": ((1, "average"), (2, "variance")),
        "log": ((0, "positive"),),
        "sqrt": ((0, "positive"),),
        "rsqrt": ((0, "positive"),),
        "div": ((1, "positive"),),
        "cross_entropy": ((1, "target"),),
        "nll_loss": ((1, "target"),),
        "cross_entropy_loss": ((1, "target"),),
        "_local_scalar_dense": ((0, "read"),),
    },
}
"""Which argument of which method or function is what; -1 is the tensor that a method is called on."""

KEYWORDS = {
    "attn_mask": "additive",
    "mask": "mask",
    "key_padding_mask": "mask",
    "running_mean": "average",
    "running_var": "variance",
    "index": "index",
}
"""What an argument that is passed by keyword is, whatever takes it."""


@dataclass(frozen=True, slots=True)
class Way:
    """A value that is an input's own, and what was added to it on the way."""

    raw: str
    added: int = 0


@dataclass(slots=True)
class Seen:
    """What has been seen of one input."""

    kinds: set[str]
    below: int | None = None


def uses_of(program: Program, metas: Mapping[str, Meta]) -> dict[str, Use]:
    """What the Program does with each argument, by its name in the code."""
    seen = {argument.name: Seen(set()) for argument in program.arguments}
    ways: dict[str, tuple[Way, ...]] = {name: (Way(name),) for name in seen}
    for line in program.lines:
        for value in expressions(line.value):
            note(value, ways, seen, metas)
        if isinstance(line, Assign):
            made = tuple(way_of(line.value, ways))
            for target in line.targets:
                for name in bound(target):
                    ways[name] = made
        if isinstance(line, Augment) and isinstance(line.target, Name):
            ways[line.target.id] = tuple(way_of(Operation(line.kind, line.target, line.value), ways))
    return {name: Use(frozenset(each.kinds), each.below) for name, each in seen.items()}


def bound(target: Expr) -> Iterator[str]:
    """The names that a target binds."""
    match target:
        case Name(id=name):
            yield name
        case Items(items=items):
            for item in items:
                yield from bound(item)


def way_of(value: Expr, ways: Mapping[str, tuple[Way, ...]]) -> Iterable[Way]:
    """The inputs whose values an expression has."""
    match value:
        case Name(id=name):
            return ways.get(name, ())
        case Item(of=of):
            return way_of(of, ways)
        case Method(of=of, name=name) if name in LOOKS:
            return way_of(of, ways)
        case Call(target="torch.nn.functional.pad" | "torch._C._nn.pad" | "torch.roll", args=(first, *_)):
            return way_of(first, ways)
        case Call(target="torch.cat" | "torch.stack" | "torch.concat", args=(Items(items=items), *_)):
            return tuple(way for item in items for way in way_of(item, ways))
        case Operation(kind="Add", left=left, right=Const(value=int(count))):
            return tuple(Way(way.raw, way.added + count) for way in way_of(left, ways))
        case Operation(kind="Sub", left=left, right=Const(value=int(count))):
            return tuple(Way(way.raw, way.added - count) for way in way_of(left, ways))
    return ()


def note(value: Expr, ways: Mapping[str, tuple[Way, ...]], seen: Mapping[str, Seen], metas: Mapping[str, Meta]) -> None:
    """Write down what one call does with the inputs among its arguments."""
    match value:
        case Method(of=of, name=name, args=args, kwargs=kwargs):
            table, given = ARGUMENTS["Tensor"], args
            whole: tuple[Expr, ...] = (of, *args)
        case Call(target=target, args=args, kwargs=kwargs):
            name, table, given, whole = target.split(".")[-1], ARGUMENTS["torch"], args, args
            name = target.split(".")[-2] if name in ("default", "int") else name
        case Operation(kind="Div", right=right):
            mark(right, "positive", None, ways, seen)
            return
        case Item(of=of, index=index):
            parts = index.items if isinstance(index, Items) else (index,)
            for place, part in enumerate(parts):
                if not isinstance(part, (Slice, Const)):
                    mark(part, "index", size_of(of, place, ways, metas), ways, seen)
            return
        case _:
            return
    for place, kind in table.get(name, ()):
        if place == -1 and isinstance(value, Method):
            mark(value.of, kind, None, ways, seen)
        elif place < len(given):
            mark(given[place], kind, limit(name, kind, whole, ways, metas), ways, seen)
    for key, item in kwargs:
        if key in KEYWORDS:
            mark(item, KEYWORDS[key], limit(name, KEYWORDS[key], whole, ways, metas), ways, seen)


def mark(
    value: Expr,
    kind: str,
    below: int | None,
    ways: Mapping[str, tuple[Way, ...]],
    seen: Mapping[str, Seen],
) -> None:
    """Write down a use of the inputs whose values an expression has."""
    for way in way_of(value, ways):
        one = seen[way.raw]
        one.kinds.add(kind)
        if below is not None and kind in ("index", "target"):
            one.below = min(one.below or below, max(1, below - way.added))


def limit(
    name: str, kind: str, whole: tuple[Expr, ...], ways: Mapping[str, tuple[Way, ...]], metas: Mapping[str, Meta]
) -> int | None:
    """What an index stays below: the size of what it is an index of, where that is an input of known shape."""
    if kind not in ("index", "target"):
        return None
    if name == "embedding" and len(whole) > 1:
        return size_of(whole[1], 0, ways, metas)
    if name == "embedding_bag" and whole:
        return size_of(whole[0], 0, ways, metas)
    if name in ("gather", "index_select", "scatter", "scatter_", "scatter_add", "scatter_add_", "take_along_dim"):
        match whole:
            case (of, Const(value=int(dimension)), *_):
                return size_of(of, dimension, ways, metas)
    return None


def size_of(value: Expr, dimension: int, ways: Mapping[str, tuple[Way, ...]], metas: Mapping[str, Meta]) -> int | None:
    """The size of an input that stands there itself."""
    if not isinstance(value, Name):
        return None
    for way in ways.get(value.id, ()):
        shape = metas[way.raw].shape if way.raw in metas else ()
        if -len(shape) <= dimension < len(shape):
            return shape[dimension]
    return None
