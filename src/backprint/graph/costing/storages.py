"""Whose memory a value uses: a view uses that of its base, each other tensor has its own.

Of a storage, what counts is from its first element to the last that its tensor reaches; what an operator takes while it
runs and gives back before it returns is not in the text. An input is a storage of its own here: that two inputs share
one, or that one is a slice of something larger, the caller knows alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import TypeAlias

from backprint.graph.costing.products import Specs, argument, operator_name, shape, specs_of
from backprint.graph.nouns import Graph, Op, Ref, Spec, Step, TensorSpec, refs
from backprint.graph.specs import ITEMSIZE
from backprint.graph.table import operators

Storages: TypeAlias = "str | tuple[Storages, ...] | None"
"""The storage of a value, by the name of the value that it was made for (`split[1]` for the second of a tuple); a tuple
for a tuple, and None for what has no memory, such as numbers."""


def storages_of(graph: Graph) -> tuple[dict[str, Storages], dict[str, int]]:
    """Return the storages of each value of a graph, and the bytes of each storage."""
    specs = types_with_items(graph)
    found = {port.local: fresh(port.local, port.spec) for port in graph.inputs}
    sizes = dict(pair for port in graph.inputs for pair in sizes_in(port.local, port.spec))
    for made in graph.steps:
        storages = storages_made(made, found, specs)
        if storages is NEW:
            storages = fresh(made.name, specs.get(made.name))
            sizes.update(sizes_made(made, found, specs, sizes))
        found[made.name] = storages
    return found, sizes


def held_storages(graph: Graph, storages: Mapping[str, Storages]) -> set[str]:
    """Return the storages that the caller holds anyway: of inputs, and of what is written back into an input."""
    ends = zip(graph.outputs, graph.results, strict=True)
    updated = [name for port, result in ends if port.role == "mutation" for name in refs(result)]
    return {key for name in (*(port.local for port in graph.inputs), *updated) for key in each_storage(storages[name])}


def types_with_items(graph: Graph) -> dict[str, Spec]:
    """Return the type of each value; of one whose type is not written, that of the items that are taken from it."""
    specs = specs_of(graph)
    items: dict[str, dict[int, Spec]] = {}
    for made in graph.steps:
        match made.target, made.args:
            case "operator.getitem", (Ref(name), int(index)) if specs.get(name) is None and index >= 0:
                items.setdefault(name, {})[index] = made.spec
    for name, known in items.items():
        specs[name] = tuple(known.get(index) for index in range(min(max(known) + 1, MOST_ITEMS)))
    return specs


MOST_ITEMS = 1024
"""The items of a value whose type is not written."""


NEW = "(new)"
"""Of a value with memory of its own."""


def storages_made(made: Step, known: Mapping[str, Storages], specs: Specs) -> Storages:
    """Return the storages of what a step returns, or NEW."""
    first = argument(made, 0)
    base = known.get(first.name) if isinstance(first, Ref) else None
    if made.target == "operator.getitem":
        index = argument(made, 1)
        if isinstance(base, tuple) and isinstance(index, int) and -len(base) <= index < len(base):
            return base[index]
        return None
    if isinstance(first, Ref) and uses_first(made, specs):
        return spread_over(specs.get(made.name), base)
    match made.target, made.args:
        case "torch.ops.higher_order.run_with_rng_state", (_, Op(target), Ref(name), *_) if updates_first(target):
            return known.get(name)
    return NEW


def fresh(name: str, spec: Spec) -> Storages:
    """Return storages of its own for each tensor of a value."""
    if isinstance(spec, tuple):
        return tuple(fresh(f"{name}[{index}]", part) for index, part in enumerate(spec))
    return name if isinstance(spec, TensorSpec) else None


def spread_over(spec: Spec, base: Storages) -> Storages:
    """Return the same storage for each tensor of a value."""
    if isinstance(spec, tuple):
        return tuple(spread_over(part, base) for part in spec)
    return base


def each_storage(storages: Storages) -> Iterator[str]:
    """Yield the storages of a value."""
    if isinstance(storages, tuple):
        for part in storages:
            yield from each_storage(part)
    elif storages is not None:
        yield storages


def sizes_in(name: str, spec: Spec) -> Iterator[tuple[str, int]]:
    """Yield the storages of a value that shares none, each with its bytes."""
    if isinstance(spec, tuple):
        for index, part in enumerate(spec):
            yield from sizes_in(f"{name}[{index}]", part)
    elif isinstance(spec, TensorSpec):
        yield name, storage_bytes(spec)


def sizes_made(
    made: Step, known: Mapping[str, Storages], specs: Specs, sizes: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """Yield the storages that a step makes, each with its bytes."""
    name, first = operator_name(made.target), argument(made, 0)
    given = specs.get(first.name) if isinstance(first, Ref) else None
    if name in WHOLE and isinstance(first, Ref) and isinstance(given, TensorSpec) and not overlaps(given):
        yield made.name, max(sizes.get(key, 0) for key in (*each_storage(known[first.name]), ""))
    elif name in UNREDUCED and isinstance(made.spec, TensorSpec):
        sides = [reversed(shape(argument(made, place), specs)) for place in range(2)]
        each = math.prod(max(pair) for pair in zip_longest(*sides, fillvalue=1))
        yield made.name, each * ITEMSIZE[made.spec.dtype]
    else:
        yield from sizes_in(made.name, specs.get(made.name))


WHOLE = frozenset("copy slice_scatter select_scatter diagonal_scatter as_strided_scatter".split())
"""Operators that copy the whole storage of their first argument, and not the part that the argument is a view of."""

UNREDUCED = frozenset("mse_loss smooth_l1_loss soft_margin_loss binary_cross_entropy".split())
"""Losses whose result lies in the memory of the losses of each element."""


def overlaps(spec: TensorSpec) -> bool:
    """Whether several elements are certain to lie at one place: a dimension is expanded."""
    return any(stride == 0 and size != 1 for size, stride in zip(spec.shape, strides_of(spec), strict=True))


def storage_bytes(spec: TensorSpec) -> int:
    """Return the bytes of memory that a tensor spans, gaps between its elements included; 0 if it is not strided."""
    if spec.layout != "strided" or not spec.numel:
        return 0
    if spec.stride is None or not all(isinstance(each, int) for each in (*spec.shape, *spec.stride, spec.offset)):
        return spec.nbytes
    return (int(spec.offset) + places_spanned(spec.shape, spec.stride)) * ITEMSIZE[spec.dtype]


def places_spanned(shape: Iterable[int | str], stride: Iterable[int | str]) -> int:
    """Return the number of places of memory from the first to the last element."""
    return 1 + sum((int(size) - 1) * int(step) for size, step in zip(shape, stride, strict=True))


# ------------------------------------------------------------------ which operators return a view


def uses_first(made: Step, specs: Specs) -> bool:
    """Whether a step returns the memory of its first argument: as a view, unchanged, or updated in place."""
    return is_view(made, specs) or ("m" in operators().get(made.target, "") and updates_first(made.target))


def is_view(made: Step, specs: Specs) -> bool:
    """Whether a step's result uses the memory of its first argument, and writes nothing into it."""
    name = operator_name(made.target)
    if name in UNDECLARED:
        return True
    if "v" not in operators().get(made.target, ""):
        return False
    given = specs.get(next(refs(argument(made, 0)), ""))
    if name not in SOMETIMES or not isinstance(given, TensorSpec) or not isinstance(made.spec, TensorSpec):
        return True
    return SOMETIMES[name](made, given, made.spec)


def updates_first(target: str) -> bool:
    """Whether an operator that changes an argument changes its first: `add_`, and not `add.out`."""
    name = target.split(".")[1] if "." in target else target
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


@functools.cache
def view_operators() -> frozenset[str]:
    """The names of operators that return a view, without namespace and overload."""
    return UNDECLARED | {operator_name(target) for target, flags in operators().items() if "v" in flags}


UNDECLARED = frozenset("_unsafe_view unsafe_split unsafe_split_with_sizes unsafe_chunk".split())
"""Operators whose results use the memory of their first argument, though their schemas do not say so."""


def strides_of(spec: TensorSpec) -> tuple[int | str, ...]:
    """Return the strides of a tensor, those of a contiguous one too."""
    if spec.stride is not None:
        return spec.stride
    sizes = [size if isinstance(size, int) else 1 for size in spec.shape]
    return tuple(math.prod(max(size, 1) for size in sizes[index + 1 :]) for index in range(len(sizes)))


def same_memory(given: TensorSpec, made: TensorSpec) -> bool:
    """Whether two tensors lie in memory alike: strides of dimensions of one element do not count."""
    if given.shape != made.shape:
        return False
    steps = zip(made.shape, strides_of(given), strides_of(made), strict=True)
    return all(left == right for size, left, right in steps if size != 1) or not made.numel


def unconverted(made: Step, given: TensorSpec, result: TensorSpec) -> bool:
    """Whether a conversion has nothing to convert, and was not asked for a copy."""
    copies = dict(made.kwargs).get("copy", argument(made, COPY.get(made.target, 99)))
    alike = (given.dtype, given.device, given.layout) == (result.dtype, result.device, result.layout)
    return alike and copies is not True and same_memory(given, result)


COPY = {"aten.to.device": 4, "aten.to.dtype": 3, "aten.to.other": 3}
"""Where `copy` stands in the arguments of a conversion."""


def viewable(given: TensorSpec, shape: tuple[int | str, ...]) -> bool:
    """Whether a tensor can be seen in another shape without a copy: as torch's `computeStride` decides."""
    if not all(isinstance(size, int) for size in (*given.shape, *strides_of(given), *shape)):
        return True
    if not given.numel:
        return True
    dims = [(int(size), int(stride)) for size, stride in zip(given.shape, strides_of(given), strict=True) if size != 1]
    runs: list[int] = []  # the elements of each run of dimensions that lie one after the other
    for (size, stride), after in zip_longest(dims, dims[1:]):
        joined = after is not None and stride == after[0] * after[1]
        runs.append(size)
        if not joined:
            runs.append(0)  # a border
    return splits_into(runs, [int(size) for size in shape if size != 1])


def splits_into(runs: list[int], shape: list[int]) -> bool:
    """Whether each run of dimensions, up to a 0, is the product of some dimensions of a shape, in order."""
    left = list(shape)
    count = 1
    for size in runs:
        if size:
            count *= size
            continue
        while count > 1:
            if not left or count % left[0]:
                return False
            count //= left.pop(0)
    return not left


def reshaped(made: Step, given: TensorSpec, result: TensorSpec) -> bool:
    return viewable(given, result.shape)


def raveled(made: Step, given: TensorSpec, result: TensorSpec) -> bool:
    return same_memory(given, replace(given, stride=None))


def as_dense(made: Step, given: TensorSpec, result: TensorSpec) -> bool:
    return same_memory(given, result)


Decision: TypeAlias = Callable[[Step, TensorSpec, TensorSpec], bool]

SOMETIMES: Mapping[str, Decision] = {
    **dict.fromkeys(
        "to as_tensor cpu cuda _autocast_to_full_precision _autocast_to_reduced_precision".split(), unconverted
    ),
    **dict.fromkeys("reshape reshape_as flatten".split(), reshaped),
    "ravel": raveled,
    **dict.fromkeys(["contiguous", "_grad_sum_to_size"], as_dense),
}
"""Operators that return a view where they can, else a copy, and how the specs say which."""
