"""Formulas for the floating-point operations of a step, from the specs of its arguments and its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from backprint.graph.costing.products import FLOPS, Shape, argument, shape
from backprint.graph.nouns import List, Ref, Spec, Step, TensorSpec, Value, leaves, refs

Specs = Mapping[str, Spec]
Formula = Callable[[Step, Specs], float]


def operator_name(target: str) -> str:
    """Return an operator's name without its namespace and overload, the same for its in-place form and for lists."""
    space, _, rest = target.partition(".")
    if space in ("operator", "math"):
        return rest
    if target.startswith("torch.ops."):
        return target
    name = rest.split(".")[0].removeprefix("special_").removeprefix("_foreach_")
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def arguments_of(step: Step) -> Iterator[Value]:
    """Yield the arguments, by position and by keyword."""
    yield from step.args
    yield from (value for _, value in step.kwargs)


def tensors_in(spec: Spec) -> Iterator[TensorSpec]:
    """Yield the tensors of a spec."""
    if isinstance(spec, TensorSpec):
        yield spec
    elif isinstance(spec, tuple):
        for part in spec:
            yield from tensors_in(part)


def shapes_taken(step: Step, specs: Specs) -> Iterator[Shape]:
    """Yield the shapes of the tensors that a step takes, in order."""
    for value in arguments_of(step):
        for name in refs(value):
            if isinstance(specs.get(name), TensorSpec):
                yield shape(Ref(name), specs)


def dtype_of(step: Step, specs: Specs) -> str:
    """Return the floating-point dtype of the results, else of the arguments; '' where all are integers."""
    taken = (specs.get(name) for value in arguments_of(step) for name in refs(value))
    found = (spec.dtype for each in (step.spec, *taken) for spec in tensors_in(each))
    return next((dtype for dtype in found if dtype.startswith(("float", "bfloat", "complex"))), "")


def numel_of(value: Value, specs: Specs) -> int:
    """Return the number of elements of an argument, or of a list of arguments."""
    return sum(spec.numel for name in refs(value) for spec in tensors_in(specs.get(name)))


# ------------------------------------------------------------------ formulas


def each_result(step: Step, specs: Specs) -> int:
    """Count one for each element of the results."""
    return sum(spec.numel for spec in tensors_in(step.spec))


def first_result(step: Step, specs: Specs) -> int:
    return next((spec.numel for spec in tensors_in(step.spec)), 0)


def elements_of(place: int, times: float = 1) -> Formula:
    """Return a formula that counts the elements of the argument at a place."""

    def cost(step: Step, specs: Specs) -> float:
        return times * numel_of(argument(step, place), specs)

    return cost


def times_result(times: float) -> Formula:
    """Return a formula that counts so many for each element of the first result."""
    return lambda step, specs: times * first_result(step, specs)


def rows_of(place: int) -> Formula:
    """Return a formula for sums of rows: one for each index and element of a row of the argument at a place."""

    def cost(step: Step, specs: Specs) -> int:
        table = shape(argument(step, place), specs)
        return numel_of(argument(step, 1), specs) * (table[-1] if table else 1)

    return cost


def pooled(step: Step, specs: Specs) -> int:
    """Count a window for each element of the result."""
    window = argument(step, 1)
    sizes = [size for size in leaves(window) if isinstance(size, int)]
    tensor = shape(argument(step, 0), specs)
    spatial = max(1, len(tensor) - 2)
    return first_result(step, specs) * (sizes[0] ** spatial if len(sizes) == 1 else math.prod(sizes))


def causal(name: str, place: int) -> Formula:
    """Return a formula for attention whose argument at a place says whether it is causal: then a query meets only the
    keys up to its own position."""
    query = 1 if name.endswith("_backward") else 0

    def cost(step: Step, specs: Specs) -> int:
        every = FLOPS[name](step, specs)
        q, k = (shape(argument(step, query + index), specs) for index in range(2))
        if argument(step, place) is not True or not (len(q) > 1 and len(k) > 1 and q[-2] and k[-2]):
            return every
        met = sum(min(position + 1, k[-2]) for position in range(q[-2]))
        return every * met // (q[-2] * k[-2])

    return cost


def layer(weight: int) -> Formula:
    """Return a formula for a linear layer: two for each element of the input and row of the weight."""

    def cost(step: Step, specs: Specs) -> int:
        rows = shape(argument(step, weight), specs)
        return 2 * numel_of(argument(step, 0), specs) * (rows[0] if len(rows) > 1 else 1)

    return cost


def contracted(step: Step, specs: Specs) -> int:
    """Count two for each element of the result and of the summed dimension."""
    first = shape(argument(step, 0), specs)
    return 2 * first_result(step, specs) * (first[-1] if first else 1)


def einsum(step: Step, specs: Specs) -> int:
    """Count two for each combination of indices of a product of two; one for each element that one tensor has."""
    equation = argument(step, 0)
    terms = [term.strip() for term in str(equation).replace(" ", "").split("->")[0].split(",")]
    given = [shape(Ref(name), specs) for name in refs(argument(step, 1))]
    sizes: dict[str, int] = {}
    for term, each in zip(terms, given, strict=False):
        sizes |= dict(zip(term, each, strict=False))
    return math.prod(sizes.values()) * (2 if len(given) > 1 else 1)


def convolution_gradients(step: Step, specs: Specs) -> int:
    """Count the forward's FLOPs for each of the two gradients that is computed; torch's counter has more for groups."""
    gradient, weight = shape(argument(step, 0), specs), shape(argument(step, 2), specs)
    mask = step.args[-1] if step.args else None
    wanted = sum(map(bool, mask.items[:2])) if isinstance(mask, List) else 0
    base = shape(step.args[1], specs) if argument(step, 7) is True else gradient
    return 2 * math.prod(base) * math.prod(weight[1:]) * wanted


def convolved(step: Step, specs: Specs) -> int:
    """Count a row of the weight for each element of the result, for operators without a flag `transposed`."""
    return 2 * first_result(step, specs) * math.prod(shape(argument(step, 1), specs)[1:])


def spread(step: Step, specs: Specs) -> int:
    """Count a row of the weight for each element of the input of a transposed convolution."""
    return 2 * numel_of(argument(step, 0), specs) * math.prod(shape(argument(step, 1), specs)[1:])


def recurrent(weights: Callable[[Step], Iterable[Value]], times: int = 1) -> Formula:
    """Return a formula for recurrent layers: two for each weight and position of each sequence."""

    def cost(step: Step, specs: Specs) -> int:
        first = shape(argument(step, 0), specs)
        positions = math.prod(first[:-1])
        matrices = (shape(Ref(name), specs) for value in weights(step) for name in refs(value))
        return times * 2 * positions * sum(math.prod(each) for each in matrices if len(each) == 2)

    return cost


def listed_weights(step: Step) -> Iterator[Value]:
    """Yield the arguments that are lists: `lstm` has its states and its weights there, and states have 3 dimensions."""
    return (value for value in step.args if isinstance(value, List | tuple))


def later_weights(step: Step) -> Iterator[Value]:
    return (value for value in step.args[1:5] if isinstance(value, Ref))


def distances(first: int) -> Formula:
    """Return a formula for distances of the rows of two arguments: three for each pair and each of their elements."""

    def cost(step: Step, specs: Specs) -> int:
        left, right = (shape(argument(step, first + index), specs) for index in range(2))
        return 3 * math.prod(left) * right[-2] if len(right) > 1 else 0

    return cost


def of_products(step: Step, specs: Specs) -> int:
    """Count two for each element of the broadcast product of all tensors (`_trilinear`)."""
    given = [shape(argument(step, place), specs) for place in range(3)]
    expands = [argument(step, place) for place in range(3, 6)]
    sizes: list[int] = []
    for each, expand in zip(given, expands, strict=True):
        dims = list(each)
        for index in sorted(size for size in leaves(expand) if isinstance(size, int)):
            dims.insert(index, 1)
        sizes = [max(pair) for pair in zip(dims, sizes or dims, strict=False)]
    return 2 * math.prod(sizes)


def transformed(times: float) -> Formula:
    """Return a formula for a Fourier transform: n log2(n) so many times, of the larger side."""

    def cost(step: Step, specs: Specs) -> float:
        sides = [shape(argument(step, 0), specs), *(tuple(map(int_of, spec.shape)) for spec in tensors_in(step.spec))]
        side = max(sides, key=math.prod)
        places = [size for size in leaves(argument(step, 1)) if isinstance(size, int)]
        length = math.prod(side[place] for place in places if -len(side) <= place < len(side))
        return times * math.prod(side) * math.log2(max(length, 1))

    return cost


def int_of(size: int | str) -> int:
    return size if isinstance(size, int) else 1


def factored(count: Callable[[int, int], float], place: int = 0) -> Formula:
    """Return a formula for matrices at a place, by their larger and their smaller side."""

    def cost(step: Step, specs: Specs) -> float:
        found = shape(argument(step, place), specs)
        if len(found) < 2:
            return 0
        return math.prod(found[:-2]) * count(max(found[-2:]), min(found[-2:]))

    return cost


def solved(matrix: int, right: int, factor: float, each: float) -> Formula:
    """Return a formula for a solve with square matrices: `factor` n³ once, and `each` n² for each column."""

    def cost(step: Step, specs: Specs) -> float:
        a, b = shape(argument(step, matrix), specs), numel_of(argument(step, right), specs)
        return factor * math.prod(a) * a[-1] + each * b * a[-1] if len(a) > 1 else 0

    return cost
