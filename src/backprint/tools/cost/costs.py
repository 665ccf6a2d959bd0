"""What a graph costs: floating-point operations, bytes, and the memory that lives. Nothing here needs torch.

- FLOPs of matrix products, convolutions and attention, two for each multiply-add; other operators count none.
- Storages: which values share memory, and how large a storage is.
- Bytes that a step reads and writes, the cost of each step, and the time line of memory over a Pair.
- A Pair's Summary, and the operators that graphs call.

A Step is one call of an operator: a name, `target` (`aten.mm.default`), arguments, and a `spec`, the type of what it
returns: a TensorSpec, a tuple of specs, or None where the type is not known. `specs` is the spec of each value by its
name. An argument is a number, a `Ref` (another value, by its name), or a `List` of arguments. A Graph's `results` are
such arguments too, one for each port of its `outputs`. Sizes are integers or, in a graph with symbolic sizes, texts.

The graphs of a training step follow one another as Runs, and their steps are numbered from 0 on through all of them. A
Link says that the result `port` (a role and a name) of Pair `source` feeds the input `name` of Pair `target`; None
in the place of a Pair is the caller. The `echo` of a backward's step names values of the forward: if it is of kind
`gradient of`, the step belongs to the node of autograd that computes their gradients.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, zip_longest
from typing import TypeAlias

from backprint.graph.keys import number_of
from backprint.graph.nouns import (
    ITEMSIZE,
    WAIT,
    Capture,
    Graph,
    Link,
    List,
    Op,
    Pair,
    Port,
    Ref,
    Spec,
    Step,
    Sub,
    TensorSpec,
    Value,
    leaves,
    refs,
)
from backprint.graph.operators import operators
from backprint.graph.sizes import at_example_sizes
from backprint.graph.steps import UNWRITTEN, is_in_own_backward, operator_name, specs_of, tensors_in, used

# ---- FLOPs of products, as `torch.utils.flop_counter.FlopCounterMode` counts them
# Two numbers of torch's counter are more than what is computed, and are kept so that both tools agree: causal attention
# counts in full, and the weight gradient of a grouped convolution counts as if there were one group.


Shape = tuple[int, ...]
Specs = Mapping[str, Spec]
Formula = Callable[[Step, Specs], int]


def flops_of(step: Step, specs: Specs) -> int:
    """Return the FLOPs of a step; 0 if it is no product. `specs` has the types of its arguments."""
    space, _, rest = step.target.partition(".")
    # `mm` of `aten.mm.default`, `flex_attention` of `torch.ops.higher_order.flex_attention`
    name = rest.split(".")[0] if space == "aten" else step.target.removeprefix("torch.ops.higher_order.")
    return min(FLOPS[name](step, specs), MOST_FLOPS) if name in FLOPS else 0


def flops_of_steps(steps: Iterable[Step], specs: Specs) -> int:
    """Return the FLOPs of some steps."""
    return min(sum(flops_of(step, specs) for step in steps), MOST_FLOPS)


MOST_FLOPS = 2**63 - 1
"""As many as a column of a table can count; sizes next to a size of 0 may be any."""


def argument(step: Step, index: int) -> Value:
    """Return an argument by its position; None if the call has fewer, because a sample from disk may have any call."""
    return step.args[index] if index < len(step.args) else None


def shape(value: Value, specs: Specs) -> Shape:
    """Return the shape of an argument, () if it is no tensor; symbolic sizes count as one."""
    spec = specs.get(value.name) if isinstance(value, Ref) else None
    return tuple(s if isinstance(s, int) else 1 for s in spec.shape) if isinstance(spec, TensorSpec) else ()


def arguments_of(step: Step) -> Iterator[Value]:
    """Yield the arguments, by position and by keyword."""
    yield from step.args
    yield from (value for _, value in step.kwargs)


def numel_of(value: Value, specs: Specs) -> int:
    """Return the number of elements of an argument, or of a list of arguments."""
    return sum(spec.numel for name in refs(value) for spec in tensors_in(specs.get(name)))


# Positions of arguments below are those of the operators' schemas: the numbers 6, 7 and 9 of a convolution are
# `transposed`, `transposed` of its backward, and `groups` of its backward.


def product(left: int, right: int) -> Formula:
    """Return the formula of a matrix product of the arguments at positions `left` and `right`: each element of the left
    one meets a row of the right one, of `b[-1]` elements."""

    def cost(step: Step, specs: Specs) -> int:
        a, b = shape(argument(step, left), specs), shape(argument(step, right), specs)
        return 2 * math.prod(a) * b[-1] if a and b else 0

    return cost


def convolution(step: Step, specs: Specs) -> int:
    """Return the FLOPs of a convolution: a multiply-add for each element of the output and of a row of the weight; if
    it is transposed, for each element of the input."""
    weight, spec = shape(argument(step, 1), specs), step.spec
    out = tuple(s if isinstance(s, int) else 1 for s in spec.shape) if isinstance(spec, TensorSpec) else ()
    if argument(step, 6) is True:  # transposed
        return 2 * math.prod(shape(step.args[0], specs)) * math.prod(weight[1:])
    return 2 * math.prod(out) * math.prod(weight[1:])


def convolution_backward(step: Step, specs: Specs, groups: int = 1) -> int:
    """Return the FLOPs of the gradients of the input and of the weight that the output mask, the last argument, asks
    for; 0 if there is no such mask. torch counts the weight's gradient as if there were one group, so `groups` is 1
    here; `least_flops` in work.py passes the real number."""
    gradient, input, weight = (shape(argument(step, place), specs) for place in range(3))
    mask = step.args[-1] if step.args else None  # whether the gradient of the input, the weight, the bias is computed
    if not isinstance(mask, List) or not (len(gradient) > 1 and len(input) > 1):
        return 0
    # The multiply-adds for each pair of an input's and an output's channel: all positions at which the kernel is put,
    # of all samples, times its size.
    transposed = argument(step, 7) is True
    positions = math.prod((input if transposed else gradient)[2:]) * gradient[0] * math.prod(weight[2:])
    channels_for_input, channels_for_weight = math.prod(weight[:2]), input[1] * gradient[1] // groups
    return sum(
        2 * positions * channel_count
        # Not strict: the mask's third item is the bias, whose gradient is a sum and counts no FLOPs.
        for channel_count, wanted in zip((channels_for_input, channels_for_weight), mask.items, strict=False)
        if wanted is True
    )


def attention(step: Step, specs: Specs) -> int:
    """Return the FLOPs of two matrix products: of queries with keys, and of the weights that this makes with values.
    `k[-2]` is the number of keys; `q[-1]` and `v[-1]` are the widths of a query and of a value."""
    q, k, v = (shape(argument(step, place), specs) for place in range(3))
    return 2 * math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1]) if q and v and len(k) > 1 else 0


def attention_backward(step: Step, specs: Specs, query: int = 1) -> int:
    """Return the FLOPs of five matrix products: three as wide as a query (queries with keys once more, the gradients of
    both) and two as wide as a value. `query` is the position of the queries among the arguments, where keys and values
    follow: mostly 1, after the incoming gradient."""
    q, k, v = (shape(argument(step, place), specs) for place in range(query, query + 3))
    return 2 * math.prod(q[:-1]) * k[-2] * (3 * q[-1] + 2 * v[-1]) if q and v and len(k) > 1 else 0


ATTENTIONS = tuple(
    f"_scaled_dot_product_{kind}"
    for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
)

FLOPS: Mapping[str, Formula] = {
    "mm": product(0, 1),
    "bmm": product(0, 1),
    "addmm": product(1, 2),
    "baddbmm": product(1, 2),
    "_scaled_mm": product(0, 1),
    **dict.fromkeys(
        "convolution _convolution cudnn_convolution convolution_overrideable _slow_conv2d_forward".split(), convolution
    ),
    "convolution_backward": convolution_backward,
    **dict.fromkeys(
        (*ATTENTIONS, "_flash_attention_forward", "_efficient_attention_forward", "flex_attention"), attention
    ),
    **dict.fromkeys(
        (
            *(f"{name}_backward" for name in ATTENTIONS),
            "_flash_attention_backward",
            "_efficient_attention_backward",
        ),
        attention_backward,
    ),
    "flex_attention_backward": functools.partial(attention_backward, query=0),
}
"""The operators that PyTorch's own FLOP counter counts, by name, and attention on a CPU as that on a GPU."""


# ---- Storages: a view uses the memory of its base, each other tensor has its own
# The size of a storage is from its first element to the last that its tensor reaches. The memory that an operator takes
# while it runs, and gives back before it returns, is not in a graph. Each input is a storage of its own here: only the
# caller knows whether two inputs share one, or one is a slice of something larger.

Storages: TypeAlias = "str | tuple[Storages, ...] | None"
"""The storage of a value, by the name of the value that it was made for (`split[1]` for the second of a tuple); a tuple
for a tuple, and None for what has no memory, such as numbers."""


def storages_of(graph: Graph) -> tuple[dict[str, Storages], dict[str, int]]:
    """Return the storages of each value of a graph by its name, and the bytes of each storage. `Lives.follow` makes
    them in the same way, and follows how long they live."""
    specs = _types_with_items(graph)
    storages_by_value = {port.local: fresh(port.local, port.spec) for port in graph.inputs}
    sizes = dict(pair for port in graph.inputs for pair in sizes_in(port.local, port.spec))
    for made in graph.steps:
        storages = _storages_made(made, storages_by_value, specs)
        if storages is NEW:
            storages = fresh(made.name, specs.get(made.name))
            sizes.update(_sizes_made(made, storages_by_value, specs, sizes))
        storages_by_value[made.name] = storages
    return storages_by_value, sizes


def held_storages(graph: Graph, storages: Mapping[str, Storages]) -> set[str]:
    """Return the storages that the caller holds anyway: of inputs, and of what is written back into an input, which is
    a result of role `mutation`. `storages` is the first result of `storages_of`."""
    ends = zip(graph.outputs, graph.results, strict=True)
    updated = [name for port, result in ends if port.role == "mutation" for name in refs(result)]
    return {key for name in (*(port.local for port in graph.inputs), *updated) for key in each_storage(storages[name])}


def _types_with_items(graph: Graph) -> dict[str, Spec]:
    """Return the type of each value. Where a step has no spec, as one with several results may, its type is the tuple
    of those items that `operator.getitem` takes from it, None for an item between them that nothing takes."""
    specs = specs_of(graph)
    items: dict[str, dict[int, Spec]] = {}
    for step in graph.steps:
        match step.target, step.args:
            case "operator.getitem", (Ref(name), int(index)) if specs.get(name) is None and index >= 0:
                items.setdefault(name, {})[index] = step.spec
    for name, known in items.items():
        specs[name] = tuple(known.get(index) for index in range(min(max(known) + 1, MOST_ITEMS)))
    return specs


MOST_ITEMS = 1024
"""The most items that are counted of a value whose type is not written: a sample from disk may name item 10**9."""


NEW = "(new)"
"""Of a value with memory of its own."""


def _storages_made(step: Step, known: Mapping[str, Storages], specs: Specs) -> Storages:
    """Return the storages of what a step returns: those of its argument where it returns an item or a view of it or
    updates it in place (`known` has the storages of the values before), or NEW where it makes memory of its own."""
    first = argument(step, 0)
    base = known.get(first.name) if isinstance(first, Ref) else None
    if step.target == "operator.getitem":
        index = argument(step, 1)
        if isinstance(base, tuple) and isinstance(index, int) and -len(base) <= index < len(base):
            return base[index]
        return None  # an item of a value whose items are not known
    if isinstance(first, Ref) and uses_first(step, specs):
        return _spread_over(specs.get(step.name), base)
    match step.target, step.args:
        # Its arguments are the random state, an operator, and that operator's own arguments.
        case "torch.ops.higher_order.run_with_rng_state", (_, Op(target), Ref(name), *_) if updates_first(target):
            return known.get(name)
    return NEW


def fresh(name: str, spec: Spec) -> Storages:
    """Return storages of its own for each tensor of a value, named as `Storages` says."""
    if isinstance(spec, tuple):
        return tuple(fresh(f"{name}[{index}]", part) for index, part in enumerate(spec))
    return name if isinstance(spec, TensorSpec) else None


def _spread_over(spec: Spec, base: Storages) -> Storages:
    """Return storages in the form of a value's spec, `base` for each of its tensors: the parts of a `split` are views
    of one storage."""
    if isinstance(spec, tuple):
        return tuple(_spread_over(part, base) for part in spec)
    return base


def each_storage(storages: Storages) -> Iterator[str]:
    """Yield the names of the storages of a value, those of a tuple one by one."""
    if isinstance(storages, tuple):
        for part in storages:
            yield from each_storage(part)
    elif storages is not None:
        yield storages


def sizes_in(name: str, spec: Spec) -> Iterator[tuple[str, int]]:
    """Yield (storage, bytes) for each tensor of a value that shares no memory, named as `fresh` names them."""
    if isinstance(spec, tuple):
        for index, part in enumerate(spec):
            yield from sizes_in(f"{name}[{index}]", part)
    elif isinstance(spec, TensorSpec):
        yield name, storage_bytes(spec)


def _sizes_made(
    step: Step, known: Mapping[str, Storages], specs: Specs, sizes: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """Yield (storage, bytes) for each storage that a step makes: that of each result, but for the operators of WHOLE
    and UNREDUCED, whose storages are larger than their results. `known` has the storages of the values before, and
    `sizes` their bytes."""
    name, first = operator_name(step.target), argument(step, 0)
    first_spec = specs.get(first.name) if isinstance(first, Ref) else None
    # An argument with an expanded dimension is not copied as it lies, but into a tensor of its full shape: the last
    # case.
    if name in WHOLE and isinstance(first, Ref) and isinstance(first_spec, TensorSpec) and not overlaps(first_spec):
        # The key "", which no storage has, stands for 0 bytes where the argument has no storage.
        yield step.name, max(sizes.get(key, 0) for key in (*each_storage(known[first.name]), ""))
    elif name in UNREDUCED and isinstance(step.spec, TensorSpec):
        # The two arguments broadcast: the larger of their sizes in each dimension, from the last on.
        sides = [reversed(shape(argument(step, place), specs)) for place in range(2)]
        elements = math.prod(max(pair) for pair in zip_longest(*sides, fillvalue=1))
        yield step.name, elements * ITEMSIZE[step.spec.dtype]
    else:
        yield from sizes_in(step.name, specs.get(step.name))


WHOLE = frozenset("copy slice_scatter select_scatter diagonal_scatter as_strided_scatter".split())
"""Operators that copy the whole storage of their first argument, and not the part that the argument is a view of. In
functional graphs they stand for an update of a view, which has no value of its own in eager mode."""

UNREDUCED = frozenset("mse_loss smooth_l1_loss soft_margin_loss binary_cross_entropy".split())
"""Losses whose result lies in the memory of the losses of each element."""


def overlaps(spec: TensorSpec) -> bool:
    """Whether several elements are certain to lie at one place: a dimension is expanded."""
    return any(stride == 0 and size != 1 for size, stride in zip(spec.shape, _strides_of(spec), strict=True))


def storage_bytes(spec: TensorSpec) -> int:
    """Return the bytes of memory that a tensor spans, gaps between its elements included; 0 if it is not strided."""
    if spec.layout != "strided" or not spec.numel:
        return 0
    if spec.stride is None or not all(isinstance(size, int) for size in (*spec.shape, *spec.stride, spec.offset)):
        return spec.nbytes
    places = 1 + sum((int(size) - 1) * int(stride) for size, stride in zip(spec.shape, spec.stride, strict=True))
    return (int(spec.offset) + places) * ITEMSIZE[spec.dtype]


# ---- Which operators return a view


def uses_first(step: Step, specs: Specs) -> bool:
    """Whether a step returns the memory of its first argument: as a view, unchanged, or updated in place. In
    `operators.txt` the flag `m` is of operators that change an argument, and `v` of those that may return a view."""
    return is_view(step, specs) or ("m" in operators().get(step.target, "") and updates_first(step.target))


def is_view(step: Step, specs: Specs) -> bool:
    """Whether a step's result uses the memory of its first argument, and writes nothing into it: by the flags of
    `operators.txt`, and by the specs for operators that return a view only SOMETIMES."""
    name = operator_name(step.target)
    if name in UNDECLARED:
        return True
    if "v" not in operators().get(step.target, ""):
        return False
    source = specs.get(next(refs(argument(step, 0)), ""))
    if name not in SOMETIMES or not isinstance(source, TensorSpec) or not isinstance(step.spec, TensorSpec):
        return True
    return SOMETIMES[name](step, source, step.spec)


def updates_first(target: str) -> bool:
    """Whether an operator that changes an argument changes its first: `add_` and `__iand__`, and not `add.out`."""
    name = target.split(".")[1] if "." in target else target
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


@functools.cache
def view_operators() -> frozenset[str]:
    """Return the names of operators that return a view, without namespace and overload."""
    return UNDECLARED | {operator_name(target) for target, flags in operators().items() if "v" in flags}


UNDECLARED = frozenset(["_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", WAIT])
"""Operators whose results use the memory of their first argument, though their schemas do not say so."""


def _strides_of(spec: TensorSpec) -> tuple[int | str, ...]:
    """Return the strides of a tensor; a spec without strides is of a contiguous one, for which they are computed."""
    if spec.stride is not None:
        return spec.stride
    sizes = [size if isinstance(size, int) else 1 for size in spec.shape]
    return tuple(math.prod(max(size, 1) for size in sizes[index + 1 :]) for index in range(len(sizes)))


def same_memory(source: TensorSpec, result: TensorSpec) -> bool:
    """Whether two tensors lie in memory alike: equal shapes and strides. Strides of dimensions of one element do not
    count, and strides of a tensor without elements neither."""
    if source.shape != result.shape:
        return False
    steps = zip(result.shape, _strides_of(source), _strides_of(result), strict=True)
    return all(left == right for size, left, right in steps if size != 1) or not result.numel


def _returns_argument(step: Step, source: TensorSpec, result: TensorSpec) -> bool:
    """Whether a conversion has nothing to convert, and was not asked for a copy: then it returns its argument."""
    # Position 99 is behind all arguments, for an operator without a `copy` by position: `argument` returns None.
    copy_flag = dict(step.kwargs).get("copy", argument(step, COPY.get(step.target, 99)))
    same_type = (source.dtype, source.device, source.layout) == (result.dtype, result.device, result.layout)
    return same_type and copy_flag is not True and same_memory(source, result)


COPY = {"aten.to.device": 4, "aten.to.dtype": 3, "aten.to.other": 3}
"""Where `copy` stands in the arguments of a conversion."""


def _viewable(source: TensorSpec, shape: tuple[int | str, ...]) -> bool:
    """Whether a tensor can be seen in another shape without a copy: as torch's `computeStride` decides. Dimensions that
    lie one after the other in memory may be joined and split anew, others may not. With symbolic sizes it is taken for
    a view."""
    if not all(isinstance(size, int) for size in (*source.shape, *_strides_of(source), *shape)):
        return True
    if not source.numel:
        return True
    dims = [
        (int(size), int(stride)) for size, stride in zip(source.shape, _strides_of(source), strict=True) if size != 1
    ]
    # The sizes of dimensions, with a 0 after each run of those that lie one after the other: a contiguous (2, 3) is
    # [2, 3, 0], its transpose [3, 0, 2, 0].
    runs: list[int] = []
    for (size, stride), after in zip_longest(dims, dims[1:]):
        joined = after is not None and stride == after[0] * after[1]
        runs.append(size)
        if not joined:
            runs.append(0)  # a border
    return _splits_into(runs, [int(size) for size in shape if size != 1])


def _splits_into(runs: list[int], shape: list[int]) -> bool:
    """Whether each run of dimensions, up to a 0, has as many elements as the next dimensions of a shape together:
    [2, 3, 0] splits into [6], and [3, 0, 2, 0] does not."""
    left = list(shape)  # the dimensions of the shape that no run has filled yet
    count = 1  # the elements of a run that such dimensions still have to hold
    for size in runs:
        if size:
            count *= size
            continue
        while count > 1:
            if not left or count % left[0]:
                return False
            count //= left.pop(0)
    return not left


Decision: TypeAlias = Callable[[Step, TensorSpec, TensorSpec], bool]

SOMETIMES: Mapping[str, Decision] = {
    **dict.fromkeys(
        "to as_tensor cpu cuda _autocast_to_full_precision _autocast_to_reduced_precision".split(), _returns_argument
    ),
    **dict.fromkeys("reshape reshape_as flatten".split(), lambda step, source, result: _viewable(source, result.shape)),
    "ravel": lambda step, source, result: same_memory(source, replace(source, stride=None)),
    **dict.fromkeys(["contiguous", "_grad_sum_to_size"], lambda step, source, result: same_memory(source, result)),
}
"""Operators that return a view where they can, else a copy, and how the specs say which."""


# ---- Bytes that a step reads and writes, from the specs of its arguments and results


def distinct_bytes(spec: Spec) -> int:
    """Return the bytes of the elements that lie at different places of memory, 0 for what is no strided tensor. Unlike
    `storage_bytes` it leaves out gaps, which no kernel reads; an expanded dimension (stride 0) counts once. Where
    strides are not known or symbolic, every element counts."""
    if not isinstance(spec, TensorSpec) or spec.layout != "strided":
        return 0
    strides = spec.stride
    if strides is None or not spec.numel or not all(isinstance(number, int) for number in (*spec.shape, *strides)):
        return spec.nbytes
    dims = [(int(size), int(stride)) for size, stride in zip(spec.shape, strides, strict=True) if stride]
    # No more than there are elements, and than there are places from the first to the last: elements of windows that
    # overlap (`unfold`) share places.
    element_count = math.prod(size for size, _ in dims)
    extent = 1 + sum((size - 1) * stride for size, stride in dims)
    return min(element_count, extent) * ITEMSIZE[spec.dtype]


def values_read(step: Step) -> Iterator[tuple[int | str, str]]:
    """Yield (position or keyword, name) for each value that a step takes."""
    for place, value in enumerate(step.args):
        yield from ((place, name) for name in refs(value))
    for key, value in step.kwargs:
        yield from ((key, name) for name in refs(value))


def read_at(step: Step, place: int | str, name: str, specs: Specs) -> int:
    """Return the bytes that a step reads of the value `name`, its argument at `place`, a position or a keyword: all,
    but for operators that need only its shape (UNREAD) or some of its elements (PICKED), and for a convolution's
    backward that does not compute the gradient for which it takes the argument."""
    operator, spec = operator_name(step.target), specs.get(name)
    most = distinct_bytes(spec)
    if place in UNREAD.get(operator, ()):
        return 0
    if operator == "convolution_backward" and _is_for_unwanted_gradient(step, place):
        return 0
    if place != 0 or operator not in PICKED or not isinstance(spec, TensorSpec):
        return most
    index_place = PICKED[operator]
    if index_place is None:
        count = sum(tensor.numel for tensor in tensors_in(step.spec))
    else:
        count = numel_of(argument(step, index_place), specs)
    if operator in BAGS:  # a row for each index
        count *= shape(argument(step, 0), specs)[-1]
    return min(most, count * ITEMSIZE[spec.dtype])


def _is_for_unwanted_gradient(step: Step, place: int | str) -> bool:
    """Whether a convolution's backward takes this argument only for a gradient that its mask leaves out. The input, at
    position 1, is for the gradient of the weight, and the weight, at position 2, for that of the input."""
    if place not in (1, 2):
        return False
    mask = step.args[-1]  # whether the gradient of the input, the weight, the bias is computed
    return isinstance(mask, List) and len(mask.items) > 1 and not mask.items[2 - int(place)]


UNREAD: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        "zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full "
        "new_empty new_empty_strided fill zero copy bernoulli uniform normal exponential random geometric cauchy "
        "log_normal sym_size sym_stride sym_numel sym_storage_offset".split(),
        (0,),
    ),
    **dict.fromkeys(
        "nll_loss_backward nll_loss2d_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
        "adaptive_max_pool2d_backward adaptive_max_pool3d_backward avg_pool2d_backward avg_pool3d_backward "
        "_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward expand_as view_as reshape_as type_as".split(),
        (1,),
    ),
}
"""Arguments whose shape alone counts, or that are overwritten, by position."""

BAGS = ("_embedding_bag", "_embedding_bag_forward_only")
"""Operators of PICKED that read a row of their first argument for each index, not one element."""

PICKED: Mapping[str, int | None] = {
    **dict.fromkeys(
        "embedding index _unsafe_index index_select gather take take_along_dim select_copy slice_copy narrow_copy "
        "diagonal_copy as_strided_copy".split()
    ),
    **dict.fromkeys(BAGS, 1),
    **dict.fromkeys("nll_loss_forward nll_loss2d_forward nll_loss nll_loss2d".split(), 1),
}
"""Operators that read elements of their first argument: as many as their result has, or as the argument at this
position has."""


# ---- The cost of each step
# Each step counts as a kernel of its own: it reads its arguments from memory and writes its results. A compiler that
# fuses steps moves less. Views read and write nothing; an argument that is passed twice is read once.


@dataclass(frozen=True, slots=True)
class StepCost:
    """The FLOPs of a step, or of several, and the bytes that they read and write."""

    flops: int = 0
    read: int = 0
    written: int = 0

    @property
    def moved(self) -> int:
        """The bytes that are read and written."""
        return self.read + self.written


FREE = StepCost()


def step_costs(graph: Graph) -> tuple[StepCost, ...]:
    """Return the cost of each step of a graph, at its captured sizes."""
    fixed = at_example_sizes(graph)
    specs, subgraphs = specs_of(fixed), dict(fixed.subgraphs)
    return tuple(_step_cost(step, specs, subgraphs) for step in fixed.steps)


def total_cost(costs: Iterable[StepCost]) -> StepCost:
    """Return the sum of costs, FREE of none; each number at most as large as a table can hold."""
    rows = [(cost.flops, cost.read, cost.written) for cost in costs]
    return StepCost(*(min(sum(column), MOST_FLOPS) for column in zip(*rows, strict=True)))


def _step_cost(step: Step, specs: Specs, subgraphs: Mapping[str, Graph]) -> StepCost:
    """Return the cost of one step. Guards, arithmetic on numbers and views are FREE.

    One that runs subgraphs (`subgraphs` are those of its graph, by name) costs what they do: of `cond`, the branch that
    costs more, as torch counts it; of a `scan`, all slices; of a loop, one iteration, because how often it runs is not
    known. `flex_attention` has subgraphs too, and FLOPs of its own: it counts as any other operator.
    """
    if step.is_guard or step.target.startswith(("operator.", "math.")) or is_view(step, specs):
        return FREE
    flops, inside = flops_of(step, specs), graphs_in(step, subgraphs)
    if inside and not flops:
        costs = [total_cost(step_costs(graph)) for graph in inside]
        if step.target.endswith(".cond"):
            return max(costs, key=lambda cost: (cost.flops, cost.moved))
        total, times = total_cost(costs), slices_of(step, specs)
        return StepCost(total.flops * times, total.read * times, total.written * times)
    read: dict[str, int] = {}
    for place, name in values_read(step):
        read[name] = max(read.get(name, 0), read_at(step, place, name, specs))
    written = 0 if operator_name(step.target) in UNWRITTEN else sum(map(distinct_bytes, tensors_in(step.spec)))
    return StepCost(flops, sum(read.values()), written)


def graphs_in(step: Step, subgraphs: Mapping[str, Graph]) -> list[Graph]:
    """Return the subgraphs that a step runs: a `Sub` among its arguments names one."""
    return [subgraphs[leaf.name] for value in arguments_of(step) for leaf in leaves(value) if type(leaf) is Sub]


def slices_of(step: Step, specs: Specs) -> int:
    """Return how often a step runs its subgraph: a `scan` once for each slice of its first tensor."""
    if not step.target.endswith((".scan", ".associative_scan", ".map_impl")):
        return 1
    shapes = (shape(Ref(name), specs) for value in arguments_of(step) for name in refs(value))
    return next((sizes[0] for sizes in shapes if sizes), 1)


# ---- The time line of memory: the bytes that live during each step of a forward, then of its backward
# Storages count, not tensors: a view has no memory of its own. A storage lives from the step that makes it to the last
# step that uses a value in it. A saved value lives until its last use in the backward. Mutations live to the end of
# their graph, when they are written back; outputs, gradients and tangents live to the end, because the caller holds
# them. Parameters, buffers, inputs and constants live throughout: they are counted apart, in `held`, and the curve
# leaves them out.
#
# A training step, which a Capture has, is one or several Pairs; the steps of its graphs, which are calls of operators,
# are numbered from 0 through all graphs, in the order in which these run. A Link says that a port of one Pair feeds an
# input of a later one, so that both are one storage.

HELD = ("parameter", "buffer", "input", "constant", "rng")
"""Roles of inputs that the caller holds throughout."""

RANKS = ("temporary", "saved", "mutation", "gradient", "output", "tangent")
"""Roles of what lives for a while: of a storage that has several, the last counts."""


@dataclass(frozen=True, slots=True)
class LiveSpan:
    """A storage, and the steps during which it lives, counted from the forward's first on through the backward.

    `value` is the value that it was made for (`split[1]`: the second of a tuple). `role` is one of `temporary`,
    `saved`, `mutation`, `gradient`, `output`, `tangent`; of what the caller holds, that of its port. A `last` equal to
    the number of steps says that it is still there after the last of them.
    """

    value: str
    direction: str
    bytes: int
    first: int
    last: int
    role: str
    pair: int = 0


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """The memory time line of a Pair. `during` and `after` have the bytes that live while each step runs and after it:
    the forward's `forward_steps` steps, then the backward's; `held`, which the caller holds throughout, not counted."""

    forward_steps: int
    spans: tuple[LiveSpan, ...]
    held: tuple[LiveSpan, ...]
    during: tuple[int, ...]
    after: tuple[int, ...]

    def __repr__(self) -> str:
        spans, steps = number_of(len(self.spans), "span"), number_of(len(self.during), "step")
        return f"MemoryLine({steps}, {spans}, peak of {self.peak_bytes:,} bytes at step {self.peak})"

    @property
    def peak(self) -> int:
        """The first step during which most bytes live; 0 where there is no step."""
        return self.during.index(max(self.during)) if self.during else 0

    @property
    def peak_bytes(self) -> int:
        """The bytes that live during the peak."""
        return max(self.during, default=0)

    @property
    def held_bytes(self) -> int:
        """The bytes of parameters, buffers, inputs and constants."""
        return sum(span.bytes for span in self.held)

    def holders(self, index: int) -> tuple[LiveSpan, ...]:
        """Return what lives while the step `index` runs, the largest first."""
        living = (span for span in self.spans if span.first <= index <= span.last)
        return tuple(sorted(living, key=lambda span: -span.bytes))


@dataclass(frozen=True, slots=True)
class Run:
    """A graph of a training step at its captured sizes, and when it runs: `start` is the number of its first call,
    `stop` the number after its last. `pair` is the number of its Pair."""

    pair: int
    direction: str
    graph: Graph
    start: int
    stop: int


def memory_line(pair: Pair, eager: bool = False) -> MemoryLine:
    """Return the memory time line of a Pair, at its captured sizes; `eager` as `memory_line_of_step` has it."""
    runs = _runs_in_order([(0, "forward", pair.forward), (0, "backward", pair.backward)])
    return _line_of_runs(runs, (), eager, (pair,))


def memory_line_of_step(capture: Capture, eager: bool = False) -> MemoryLine:
    """Return the memory time line of a whole training step: of all Pairs, in the order in which they run.

    A value ends with its last use. With `eager`, values live as long as autograd keeps them when PyTorch runs the step
    in eager mode, and updates in place need no memory of their own.
    """
    return _line_of_runs(runs_of(capture), capture.links, eager, capture.pairs)


def runs_of(capture: Capture) -> list[Run]:
    """Return the graphs of a training step in the order in which they run. The Pairs of one call (engine dynamo) run
    forward one after the other, then backward from the last to the first; a recorded training step runs each backward
    after its forward."""
    forwards = [(index, "forward", pair.forward) for index, pair in enumerate(capture.pairs)]
    backwards = [(index, "backward", pair.backward) for index, pair in enumerate(capture.pairs)]
    if capture.engine == "dynamo":
        return _runs_in_order([*forwards, *reversed(backwards)])
    return _runs_in_order([run for both in zip(forwards, backwards, strict=True) for run in both])


def _runs_in_order(graphs: Iterable[tuple[int, str, Graph | None]]) -> list[Run]:
    """Return Runs of these (Pair's number, direction, graph), one after the other; a graph that is None has no Run."""
    runs: list[Run] = []
    for pair, direction, graph in graphs:
        if graph is not None:
            start = runs[-1].stop if runs else 0
            runs.append(Run(pair, direction, at_example_sizes(graph), start, start + len(graph.steps)))
    return runs


def _line_of_runs(runs: Sequence[Run], links: Sequence[Link], eager: bool, pairs: Sequence[Pair]) -> MemoryLine:
    """Return the memory time line of graphs that run one after the other; `links` and `pairs` are of their Capture, and
    `eager` is as `memory_line_of_step` has it."""
    end = runs[-1].stop
    lives = Lives(pairs, links, eager, end)
    for run in runs:
        lives.follow(run)
    if eager:
        lives.extend_lives(runs)
    spans = lives.living.values()
    graph_spans = tuple(span for span in spans if span.role in RANKS and span.bytes)
    caller_spans = tuple(span for span in spans if span.role not in RANKS and span.bytes)
    forward_steps = sum(len(run.graph.steps) for run in runs if run.direction == "forward")
    return MemoryLine(forward_steps, graph_spans, caller_spans, *bytes_over_steps(graph_spans, end))


@dataclass(slots=True)
class Lives:
    """The storages of a training step, while its graphs are followed one after the other.

    `living` has each storage by its key (`key_of`), as it is known so far. The others have the storages of values of
    the graphs that have been followed: `inputs` of a forward's inputs by Pair and name, `results` of results by Pair,
    role and name, `values` of all values by Pair and name, and `callers` of what the caller holds by name. `end` is the
    number after the last step of all graphs.
    """

    pairs: Sequence[Pair]
    links: Sequence[Link]
    eager: bool
    end: int
    living: dict[str, LiveSpan] = field(default_factory=dict)
    inputs: dict[tuple[int, str], Storages] = field(default_factory=dict)
    results: dict[tuple[int, str, str], Storages] = field(default_factory=dict)
    callers: dict[str, Storages] = field(default_factory=dict)
    values: dict[tuple[int, str], Storages] = field(default_factory=dict)

    def follow(self, run: Run) -> None:
        """Add the storages of a graph, which runs after those that were followed before, and when each is used."""
        graph, specs = run.graph, _types_with_items(run.graph)
        values = {port.local: self.storages_of_input(run, port) for port in graph.inputs}
        reused = _reused_memory(graph) if self.eager else {}
        for index, step in enumerate(graph.steps):
            if step.is_guard:
                continue
            time = run.start + index
            storages = _storages_made(step, values, specs)
            if storages is NEW:
                storages = self.add_new_storages(run, step, time, specs, values, reused)
            values[step.name] = storages
            for name in (*used(step), step.name):
                self.use(values[name], time, "temporary")
        if self.eager and run.direction == "backward":
            # With `Pair.lives` it was seen how long Python keeps the values of a custom Function's backward
            # (`extend_lives`).
            for name, last in _kept_by_nodes(graph, lives_known=bool(self.pairs[run.pair].lives)).items():
                if name in values:  # a guard has no memory
                    self.use(values[name], run.start + last, "temporary")
        for port, result in zip(graph.outputs, graph.results, strict=True):
            for name in refs(result):
                self.enter_result(run, port, values[name])
        self.values.update(((run.pair, name), storages) for name, storages in values.items())

    def add_new_storages(
        self,
        run: Run,
        step: Step,
        time: int,
        specs: Specs,
        values: Mapping[str, Storages],
        reused: Mapping[str, str],
    ) -> Storages:
        """Add the storages that a step makes at `time`, and return them. In eager mode it may take the memory of an
        earlier value in the place of new memory: `reused`, by `_reused_memory`. `values` has the storages of the
        values before."""
        sizes = {key: self.living[key].bytes for key in each_storage(values.get(first_of(step)))}
        rows = _sizes_made(step, values, specs, sizes)
        # `add` puts in the name and the bytes of each.
        like = LiveSpan("", run.direction, 0, first=time, last=time, role="temporary", pair=run.pair)
        self.add(((label, size) for label, size in rows if label not in reused), like)
        storages = fresh(key_of(like, step.name), specs.get(step.name))
        if reused:
            storages = _with_memory_taken(step.name, specs.get(step.name), storages, reused, values)
        return storages

    def extend_lives(self, runs: Sequence[Run]) -> None:
        """Let values live as long as was seen when the program ran: `Pair.lives` has the name of a value, and the name
        of the last step at which it still lived."""
        times = {(run.pair, step.name): run.start + i for run in runs for i, step in enumerate(run.graph.steps)}
        for number, pair in enumerate(self.pairs):
            for value, last in pair.lives:
                if (number, last) in times and (number, value) in self.values:
                    self.use(self.values[number, value], times[number, last], "temporary")

    def storages_of_input(self, run: Run, port: Port) -> Storages:
        """Return the storages of an input: those of the earlier result that feeds it, or else those that the caller
        holds, which are added when the first graph takes them.

        A forward's input comes along a link, a tangent from the gradients of later Pairs. Any other input of a backward
        is what its forward saved, an input of that forward, or what the caller holds.
        """
        storages: Storages = None
        if run.direction == "forward":
            storages = self.storages_from_link(run.pair, port.name) or self.callers.get(port.name)
        elif port.role == "tangent":
            storages = self.tangent(run, port.name)
        else:
            storages = self.results.get((run.pair, "saved", port.name)) if port.role == "saved" else None
            storages = storages or self.inputs.get((run.pair, port.name)) or self.callers.get(port.name)
        if storages is None:
            role = port.role if port.role in ("tangent", *HELD) else "input"
            # A tangent of the caller's is there when the backward begins; what the caller holds throughout, from 0 on.
            first = run.start if role == "tangent" else 0
            like = LiveSpan("", run.direction, 0, first, last=self.end, role=role, pair=run.pair)
            self.add(sizes_in(port.local, port.spec), like)
            storages = fresh(key_of(like, port.local), port.spec)
            if role != "tangent":
                self.callers[port.name] = storages
        if run.direction == "forward":
            self.inputs[run.pair, port.name] = storages
        return storages

    def storages_from_link(self, pair: int, name: str) -> Storages:
        """Return the storages of the result of an earlier Pair that feeds an input of a Pair; None if no link does. A
        mutation has been written back into the input of its name, whose storages count. Of several gradients the first
        counts, to which autograd adds the others."""
        for link in self.links:
            # A source of None is an input of the whole Capture: no result.
            if (link.target, link.name) == (pair, name) and link.source is not None:
                written_input = self.inputs.get((link.source, link.port.name)) if link.port.role == "mutation" else None
                if storages := written_input or self.results.get((link.source, link.port.role, link.port.name)):
                    return storages
        return None

    def tangent(self, run: Run, name: str) -> Storages:
        """Return the storages of a tangent that later Pairs have computed, as the gradients of the inputs that take the
        output `name`; several are added to the first. None if the tangent is the caller's."""
        gradients = [
            self.results.get((link.target, "gradient", link.name))
            for link in self.links
            if link.target is not None and (link.source, *link.port) == (run.pair, "output", name)
        ]
        for storages in gradients:
            self.use(storages, run.start, "temporary")
        return next((storages for storages in gradients if storages is not None), None)

    def enter_result(self, run: Run, port: Port, storages: Storages) -> None:
        """Note a result of a graph, and how long it lives: outputs and gradients to the end, because the caller holds
        them. What only passes to another Pair, or is added to an earlier gradient, ends with the graph, unless it is a
        result of the whole Capture, too."""
        # A `target` of None is the caller.
        is_returned = any(
            link.target is None and (link.source, *link.port) == (run.pair, *port.key) for link in self.links
        )
        is_added = port.role == "gradient" and any(
            (role, name) == ("gradient", port.name) for _, role, name in self.results
        )
        lives_on = port.role in ("output", "gradient") and (
            is_returned or not (self.passes_to_other_pair(run.pair, port) or is_added)
        )
        self.use(storages, self.end if lives_on else run.stop - 1, port.role)
        self.results[run.pair, port.role, port.name] = storages

    def passes_to_other_pair(self, pair: int, port: Port) -> bool:
        """Whether a result of a Pair, an output or a gradient, is an input of another Pair. A gradient goes back along
        the link on which the output came: from the input that took the output."""
        links = [link for link in self.links if link.target is not None]
        if port.role == "output":
            return any((link.source, *link.port) == (pair, "output", port.name) for link in links)
        return any(link.port.role == "output" and (link.target, link.name) == (pair, port.name) for link in links)

    def add(self, sizes: Iterable[tuple[str, int]], like: LiveSpan) -> None:
        """Add storages, given as name and bytes, that otherwise live as `like` does."""
        for label, size in sizes:
            self.living[key_of(like, label)] = replace(like, value=label, bytes=size)

    def use(self, storages: Storages, time: int, role: str) -> None:
        """Let the storages of a value live to the step `time` at least, and have the higher of two roles (RANKS). What
        the caller holds keeps its role."""
        for key in each_storage(storages):
            span = self.living[key]
            is_higher = span.role in RANKS and RANKS.index(role) > RANKS.index(span.role)
            if is_higher or time > span.last:
                self.living[key] = replace(span, last=max(span.last, time), role=role if is_higher else span.role)


def key_of(like: LiveSpan, label: str) -> str:
    """Return the key of a storage among those of all graphs of a training step: names are unique in one graph alone.
    `like` is a span of the graph that the storage is from, and `label` the storage's name there."""
    return f"{like.pair} {like.direction} {label}"


def first_of(step: Step) -> str:
    """Return the name of a step's first argument; '' if it is none."""
    first = argument(step, 0)
    return first.name if isinstance(first, Ref) else ""


# ---- How long autograd keeps values in eager mode
# A node of autograd holds the gradients that it gets, and what the forward saved for it, until its formula has run. The
# temporaries of a formula end with its expression, not with their last use. The steps of one node follow each other and
# have one echo (`gradient of mm_3`: the value of the forward that a step of the backward belongs to); those that are
# computed from each other are an expression. Where a graph says no node (what a checkpoint runs again, a step without
# an echo) a value ends with its last use.


def _kept_by_nodes(graph: Graph, lives_known: bool) -> dict[str, int]:
    """Return the values of a backward that nodes of autograd keep, each with the index of the last step for which a
    node keeps it: temporaries to the end of their expression, and what the node takes from outside to its end.

    What the backward of a custom Function computes ends when Python frees it. With `lives_known` the capture has seen
    when that was, so nothing is said of it here.
    """
    kept: dict[str, int] = {}
    for node in nodes_of(graph.steps):
        steps = [graph.steps[index] for index in node]
        inside = {step.name for step in steps}
        if not (lives_known and any(map(is_in_own_backward, steps))):
            for expression in _expressions_of(steps):
                last = max(index for index, step in zip(node, steps, strict=True) if step.name in expression)
                kept.update(dict.fromkeys(expression, last))
        for step in steps:
            for name in used(step):
                if name not in inside:
                    kept[name] = max(kept.get(name, 0), node[-1])
    return kept


def nodes_of(steps: Sequence[Step]) -> Iterator[list[int]]:
    """Yield the indices of the steps of each node of autograd: steps in a row that have one echo. Sums that autograd
    makes of the gradients of several nodes may have the echo of the node before, and are left out."""
    node: list[int] = []
    for index, step in enumerate(steps):
        if node and step.echo != steps[node[-1]].echo:
            yield _without_sums(node, steps)
            node = []
        if step.echo is not None and step.echo.kind == "gradient of":
            node.append(index)
    if node:
        yield _without_sums(node, steps)


def _without_sums(node: list[int], steps: Sequence[Step]) -> list[int]:
    """Return the steps of a node without those at its end that add the gradient of another node to what it returns."""
    while len(node) > 1:
        step = steps[node[-1]]
        # An `add` of a value that the steps of this node neither take nor make is such a sum.
        before = {name for index in node[:-1] for name in (*used(steps[index]), steps[index].name)}
        if step.target != "aten.add.Tensor" or step.kwargs or before.issuperset(used(step)):
            break
        node = node[:-1]
    return node


def _expressions_of(steps: Sequence[Step]) -> list[set[str]]:
    """Return the names of the values of each expression of a node: those that are computed from each other. The sum to
    the shape of an argument that was broadcast is not in it: autograd makes it when the formula has ended."""
    expressions: list[set[str]] = []
    for step in steps:
        names = {step.name}
        for before in [expression for expression in expressions if not expression.isdisjoint(used(step))]:
            # A sum that no step of the node computes with is that of a broadcast.
            if step.target != "aten.sum.dim_IntList" or is_used(step.name, steps):
                expressions.remove(before)
                names |= before
        expressions.append(names)
    return expressions


def is_used(name: str, steps: Sequence[Step]) -> bool:
    """Whether some of these steps takes a value for more than a view of it."""
    return any(name in used(step) and step.target != "aten.view.default" for step in steps)


# ---- Updates in place in eager mode
# A functional graph has a new value for each update. In eager mode, what is written back into an input was computed in
# its memory, and optimizers update the lists of their tensors in place.


def _reused_memory(graph: Graph) -> dict[str, str]:
    """Return the storages that the graph has and eager mode does not, because there a step updates a value in place:
    from the name of the storage (`add_1`, `_foreach_add[2]`) to the name of the value whose memory it is.

    That is so for lists of tensors that optimizers update, for a copy (WHOLE) that is the last use of what it copies,
    and for what leads from an input to the value that is written back into it, its `mutation`.
    """
    steps = {step.name: step for step in graph.steps}
    locals_of_inputs = {port.name: port.local for port in graph.inputs}
    last_uses = {name: index for index, step in enumerate(graph.steps) for name in used(step)}
    returned = {name for value in graph.results for name in refs(value)}
    taken: dict[str, str] = {}
    for index, step in enumerate(graph.steps):
        name = step.target.split(".")[1] if step.target.startswith("aten.") else ""
        if name.startswith(("_foreach_", "_fused_")):
            for label, reused in _lists_of(step):
                is_last_use = last_uses.get(reused) == index and reused in steps and reused not in returned
                # A `_fused_` operator updates all its lists. A `_foreach_` operator may return new tensors: it is taken
                # for an update of an intermediate list, as optimizers write it, if nothing else needs the item.
                if name.startswith("_fused_") or (is_last_use and _is_of_list(steps[reused], steps)):
                    taken[label] = reused
        elif name in WHOLE and last_uses.get(first_of(step)) == index and first_of(step) not in returned:
            taken[step.name] = first_of(step)
            taken.update(_part_written(step, steps, last_uses, index))
    for port, result in zip(graph.outputs, graph.results, strict=True):
        if port.role == "mutation" and isinstance(result, Ref) and port.name in locals_of_inputs:
            taken.update(_updates_back(result.name, locals_of_inputs[port.name], steps))
    return taken


def _part_written(
    step: Step, steps: Mapping[str, Step], last_uses: Mapping[str, int], index: int
) -> Iterator[tuple[str, str]]:
    """Yield the value that step number `index` writes into a part of its first argument, and the view of that part in
    whose memory the value is computed: `x[0].mul_(2)` is a view, a product and a `select_scatter`, and the product is
    computed in the memory of the view. Yield nothing if the value was computed otherwise."""
    written = next(refs(argument(step, 1)), "")
    view = first_of(steps[written]) if written in steps else ""
    if last_uses.get(written) == index and view in steps and first_of(steps[view]) == first_of(step):
        yield written, view


def _lists_of(step: Step) -> Iterator[tuple[str, str]]:
    """Yield (storage, value that it is computed from) for each storage that a call on lists of tensors makes. A
    `_foreach_` returns one list, of its first argument (`_foreach_add[2]`); a `_fused_` returns one for each argument
    that is a list (`_fused_adam[0][2]`)."""
    fused = step.target.partition(".")[2].startswith("_fused_")
    lists = [value.items if isinstance(value, List) else () for value in step.args]
    for position, items in enumerate(lists if fused else lists[:1]):
        for index, item in enumerate(items):
            if isinstance(item, Ref):
                yield f"{step.name}[{position}][{index}]" if fused else f"{step.name}[{index}]", item.name


def _is_of_list(step: Step, steps: Mapping[str, Step]) -> bool:
    """Whether a value is an item of what a call on lists returned."""
    return step.target == "operator.getitem" and "_foreach_" in steps.get(first_of(step), step).target


def _updates_back(name: str, local: str, steps: Mapping[str, Step]) -> list[tuple[str, str]]:
    """Return (storage, value before it) for each value on the way from an input, `local`, to the value `name` that is
    written back into it, where each is the first argument of the next. Empty if `name` is not computed from the input
    in this way."""
    chain: list[tuple[str, str]] = []
    while name != local:
        label, before = name, first_of(steps[name]) if name in steps else ""
        if name in steps and steps[name].target == "operator.getitem":
            label, before = _item_and_its_value(steps[name], steps)
        if not before:
            return []
        chain.append((label, before))
        name = before
    return chain


def _item_and_its_value(step: Step, steps: Mapping[str, Step]) -> tuple[str, str]:
    """Return the storage that `getitem` steps, one on the other, take from a tuple, such as `_fused_adam_[0][2]`, and
    the value that it was computed from; '' if that is not known."""
    path: list[int] = []
    while step.target == "operator.getitem":
        path.insert(0, int(str(step.args[1])))
        step = steps[first_of(step)]
    label = step.name + "".join(f"[{index}]" for index in path)
    # Of a call on no lists, the first result is taken to be that of the first argument.
    return label, dict(_lists_of(step)).get(label, first_of(step) if path == [0] else "")


def _with_memory_taken(
    name: str, spec: Spec, storages: Storages, taken: Mapping[str, str], values: Mapping[str, Storages]
) -> Storages:
    """Return the storages of a step's result `name`, where each storage of `taken` is replaced by the storages of the
    earlier value whose memory it is, which `values` has."""
    if isinstance(spec, tuple) and isinstance(storages, tuple):
        items = zip(spec, storages, strict=True)
        return tuple(
            _with_memory_taken(f"{name}[{index}]", part, storage, taken, values)
            for index, (part, storage) in enumerate(items)
        )
    return values[taken[name]] if name in taken else storages


def bytes_over_steps(spans: Iterable[LiveSpan], end: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the bytes that live during each step, and after it, of `end` steps. A span counts during its first and its
    last step, and no more after the last; one whose last step is `end` is never freed."""
    allocated_at, freed_at = [0] * (end + 1), [0] * (end + 1)
    for span in spans:
        allocated_at[span.first] += span.bytes
        freed_at[span.last] += span.bytes
    allocated, freed = list(accumulate(allocated_at[:end])), list(accumulate(freed_at[:end]))
    after = tuple(total_allocated - total_freed for total_allocated, total_freed in zip(allocated, freed, strict=True))
    during = tuple(count + freed_at[index] for index, count in enumerate(after))
    return during, after


# ---- The Summary of a Pair


@dataclass(frozen=True, slots=True)
class _SavedLine:
    """What one line of the user's program saves for the backward: the bytes, and the names of the values."""

    line: str
    bytes: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _KindCost:
    """What all calls of one operator cost together."""

    operator: str
    calls: int
    cost: StepCost


@dataclass(frozen=True, slots=True)
class Summary:
    """A Pair in numbers. `saved` counts intermediate values only; `kept_bytes` counts parameters and inputs that are
    saved too. `forward_kinds` and `backward_kinds` are the costs of each operator, `forward` and `backward` their sums:
    costs are those of each step as a kernel of its own. `peak_bytes`, and `eager_peak_bytes` as autograd keeps values
    in eager mode, leave out what the caller holds, which is `held_bytes`."""

    parameters: int
    parameter_bytes: int
    forward_kinds: tuple[_KindCost, ...]
    backward_kinds: tuple[_KindCost, ...]
    saved: tuple[_SavedLine, ...]
    kept_bytes: int
    forward: StepCost
    backward: StepCost
    peak_bytes: int
    held_bytes: int
    eager_peak_bytes: int

    @property
    def saved_bytes(self) -> int:
        """Bytes of intermediate values that live from the forward to the backward."""
        return sum(line.bytes for line in self.saved)


def summarize(pair: Pair) -> Summary:
    """Return the numbers of a Pair, at its captured sizes; those of a backward that it does not have are 0."""
    forward = at_example_sizes(pair.forward)
    backward = at_example_sizes(pair.backward) if pair.backward else None
    parameters = [spec for port in forward.by_role("parameter") if isinstance(spec := port.spec, TensorSpec)]
    saved = [result for port, result in zip(forward.outputs, forward.results, strict=True) if port.role == "saved"]
    forward_kinds = _cost_by_kind(forward)
    backward_kinds = _cost_by_kind(backward) if backward else ()
    memory = memory_line(pair)
    return Summary(
        parameters=sum(spec.numel for spec in parameters),
        parameter_bytes=sum(spec.nbytes for spec in parameters),
        forward_kinds=forward_kinds,
        backward_kinds=backward_kinds,
        saved=saved_by_line(forward, saved),
        kept_bytes=kept_bytes(forward, saved),
        forward=total_cost(kind.cost for kind in forward_kinds),
        backward=total_cost(kind.cost for kind in backward_kinds),
        peak_bytes=memory.peak_bytes,
        held_bytes=memory.held_bytes,
        eager_peak_bytes=memory_line(pair, eager=True).peak_bytes,
    )


def _cost_by_kind(graph: Graph) -> tuple[_KindCost, ...]:
    """Return what each operator of a graph costs, the most bytes first; taking an item of a tuple does not count, nor
    do guards."""
    costs_of_kind: dict[str, list[StepCost]] = {}
    for step, cost in zip(graph.steps, step_costs(graph), strict=True):
        if step.target != "operator.getitem" and not step.is_guard:
            costs_of_kind.setdefault(step.target, []).append(cost)
    rows = [_KindCost(target, len(costs), total_cost(costs)) for target, costs in costs_of_kind.items()]
    return tuple(sorted(rows, key=lambda row: (-row.cost.moved, -row.calls)))


def kept_bytes(graph: Graph, saved: Sequence[Value]) -> int:
    """Return the bytes of storages that the caller holds and the backward keeps, also those kept as a view; `saved` are
    the results of a forward that it saves."""
    storages, sizes = storages_of(graph)
    held_by_caller = held_storages(graph, storages)
    keys = {key for value in saved for name in refs(value) for key in each_storage(storages[name])}
    return sum(sizes[key] for key in keys & held_by_caller)


def saved_by_line(graph: Graph, saved: Sequence[Value]) -> tuple[_SavedLine, ...]:
    """Return the saved values of a forward by the user's line that made them, the largest first. Storages count, each
    once: a view of another saved value is free, and a view of a part saves the whole storage. What the caller holds is
    left out."""
    steps = {step.name: step for step in graph.steps}
    storages, sizes = storages_of(graph)
    held_by_caller = held_storages(graph, storages)
    counted: set[str] = set()
    lines: dict[str, list[tuple[str, int]]] = {}
    for name in (name for value in saved for name in refs(value)):
        keys = set(each_storage(storages[name])) - counted
        # An input, or only memory that the caller holds. A view of what is counted already stays, with 0 bytes.
        if name not in steps or (keys and keys <= held_by_caller):
            continue
        counted |= keys
        source = steps[name].source
        line = f"{source.at}: {source.code}" if source else "(no line)"
        lines.setdefault(line, []).append((name, sum(sizes[key] for key in keys - held_by_caller)))
    rows = [
        _SavedLine(line, sum(size for _, size in values), tuple(name for name, _ in values))
        for line, values in lines.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


# ---- Which operators graphs call, on which dtypes, and how often


def operator_calls(graph: Graph) -> Counter[tuple[str, str]]:
    """Count the calls of a graph by operator and dtypes: `("aten.gt.Scalar", "float32 -> bool")`. Taking one result of
    several is no call."""
    specs = specs_of(graph)
    calls = (step for step in graph.steps if not step.is_guard and step.target != "operator.getitem")
    return Counter((step.target, _dtypes_of_call(step, specs)) for step in calls)


def _dtypes_of_call(step: Step, specs: Specs) -> str:
    """Return the dtypes of a call's tensors, each once; `float32 -> bool` where it returns others than it takes."""
    names = (name for value in arguments_of(step) for name in refs(value))
    taken = dict.fromkeys(tensor.dtype for name in names for tensor in tensors_in(specs.get(name)))
    returned = dict.fromkeys(tensor.dtype for tensor in tensors_in(step.spec))
    if not taken or not returned or taken == returned:
        return ", ".join(returned or taken) or "no tensor"
    return f"{', '.join(taken)} -> {', '.join(returned)}"


def usage_of(sides: Mapping[str, Iterable[Graph]]) -> dict[str, int]:
    """Return how often graphs call each operator, by side, operator and dtypes: `forward aten.mm.default float32`.
    `sides` has the graphs by their direction."""
    usage: Counter[str] = Counter()
    for side, graphs in sides.items():
        for graph in graphs:
            for (target, dtypes), count in operator_calls(graph).items():
                usage[f"{side} {target} {dtypes}"] += count
    return dict(usage)
