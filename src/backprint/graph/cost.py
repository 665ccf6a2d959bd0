"""What a graph costs: floating-point operations, bytes, and the memory that lives. Nothing here needs torch.

- FLOPs: of the direct algorithm, two for each multiply-add, for each step and by dtype.
- Storages: which values share memory, and how large a storage is.
- Bytes that a step reads and writes, the cost of each step, and the time line of memory over a Pair.
- A Pair's Summary, and the operators that graphs call.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest
from typing import TypeAlias

from backprint.graph.keys import number_of
from backprint.graph.nouns import (
    COLLECTIVES,
    ITEMSIZE,
    WAIT,
    Capture,
    Graph,
    List,
    Op,
    Pair,
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
from backprint.graph.sizes import at_hints
from backprint.graph.steps import used

# ---- FLOPs of products, as `torch.utils.flop_counter.FlopCounterMode` counts them
# Two numbers of torch's counter are more than what is computed, and are kept so that both tools agree: causal attention
# counts in full, and the weight gradient of a grouped convolution counts as if there were one group.


Shape = tuple[int, ...]
Specs = Mapping[str, Spec]


def specs_of(graph: Graph) -> dict[str, Spec]:
    """Return the spec of each value."""
    return {port.local: port.spec for port in graph.inputs} | {step.name: step.spec for step in graph.steps}


def flops_of_steps(steps: Iterable[Step], specs: Mapping[str, Spec]) -> int:
    """Return the FLOPs of the products among some steps, where the types of their values are given."""
    total = 0
    for step in steps:
        name = step.target.split(".")[1] if step.target.startswith("aten.") else ""
        if name in FLOPS:
            total += FLOPS[name](step, specs)
    return min(total, MOST_FLOPS)


MOST_FLOPS = 2**63 - 1
"""As many as a column of a table can count; sizes next to a size of 0 may be any."""


def argument(step: Step, index: int) -> Value:
    """Return an argument by its position; None if the call has fewer: arguments are checked when calls run."""
    return step.args[index] if index < len(step.args) else None


def shape(value: Value, specs: Mapping[str, Spec]) -> Shape:
    """Return the shape of an argument; symbolic sizes count as one."""
    spec = specs.get(value.name) if isinstance(value, Ref) else None
    return tuple(s if isinstance(s, int) else 1 for s in spec.shape) if isinstance(spec, TensorSpec) else ()


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
    argument_specs = (specs.get(name) for value in arguments_of(step) for name in refs(value))
    dtypes = (tensor.dtype for spec in (step.spec, *argument_specs) for tensor in tensors_in(spec))
    return next((dtype for dtype in dtypes if dtype.startswith(("float", "bfloat", "complex"))), "")


def numel_of(value: Value, specs: Specs) -> int:
    """Return the number of elements of an argument, or of a list of arguments."""
    return sum(spec.numel for name in refs(value) for spec in tensors_in(specs.get(name)))


def int_of(size: int | str) -> int:
    return size if isinstance(size, int) else 1


def product(left: int, right: int) -> Callable[[Step, Mapping[str, Spec]], int]:
    """Return a function for the FLOPs of a matrix product of these arguments."""

    def cost(step: Step, specs: Mapping[str, Spec]) -> int:
        a, b = shape(argument(step, left), specs), shape(argument(step, right), specs)
        return 2 * math.prod(a) * b[-1] if a and b else 0

    return cost


def convolution(step: Step, specs: Mapping[str, Spec]) -> int:
    """Count a row of the weight for each output element."""
    weight, spec = shape(argument(step, 1), specs), step.spec
    out = tuple(s if isinstance(s, int) else 1 for s in spec.shape) if isinstance(spec, TensorSpec) else ()
    if argument(step, 6) is True:  # transposed
        return 2 * math.prod(shape(step.args[0], specs)) * math.prod(weight[1:])
    return 2 * math.prod(out) * math.prod(weight[1:])


def convolution_backward(step: Step, specs: Mapping[str, Spec]) -> int:
    """Count the FLOPs of the gradients that are computed: the input's as many as the forward's, the weight's as many as
    without groups."""
    gradient, input, weight = (shape(argument(step, place), specs) for place in range(3))
    mask = step.args[-1] if step.args else None
    if not isinstance(mask, List) or not (len(gradient) > 1 and len(input) > 1):
        return 0
    positions = math.prod((input if argument(step, 7) is True else gradient)[2:]) * gradient[0] * math.prod(weight[2:])
    channels = (math.prod(weight[:2]), input[1] * gradient[1])
    return sum(
        2 * positions * channel_count
        for channel_count, wanted in zip(channels, mask.items, strict=False)
        if wanted is True
    )


def attention(step: Step, specs: Mapping[str, Spec]) -> int:
    """Count two matrix products: of queries with keys, and of what they weigh with values."""
    q, k, v = (shape(argument(step, place), specs) for place in range(3))
    return 2 * math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1]) if q and v and len(k) > 1 else 0


def attention_backward(step: Step, specs: Mapping[str, Spec]) -> int:
    """Count five matrix products, of which the first is the forward's again."""
    q, k, v = (shape(argument(step, place), specs) for place in range(1, 4))
    return 2 * math.prod(q[:-1]) * k[-2] * (3 * q[-1] + 2 * v[-1]) if q and v and len(k) > 1 else 0


ATTENTIONS = tuple(
    f"_scaled_dot_product_{kind}"
    for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
)

FLOPS: Mapping[str, Callable[[Step, Mapping[str, Spec]], int]] = {
    "mm": product(0, 1),
    "bmm": product(0, 1),
    "addmm": product(1, 2),
    "baddbmm": product(1, 2),
    "_scaled_mm": product(0, 1),
    **dict.fromkeys("convolution _convolution cudnn_convolution convolution_overrideable".split(), convolution),
    "convolution_backward": convolution_backward,
    **dict.fromkeys((*ATTENTIONS, "_flash_attention_forward", "_efficient_attention_forward"), attention),
    **{f"{name}_backward": attention_backward for name in ATTENTIONS},
    **dict.fromkeys(["_flash_attention_backward", "_efficient_attention_backward"], attention_backward),
}
"""What counts as arithmetic, as PyTorch's own FLOP counter counts it."""


# ---- FLOPs by dtype
# Products are those above, with torch's two numbers put right: causal attention counts the keys that each query meets,
# and the weight gradient of a grouped convolution counts its groups. Recurrent layers count their products too. Any
# other operator counts one for each element of its results or of its first argument, whichever has more. Operators that
# only move, create or pick elements count nothing, nor does arithmetic of integers.

Formula = Callable[[Step, Specs], int]

FlopsByDtype = tuple[tuple[str, int], ...]
"""Floating-point operations by the dtype that they compute in."""

COMPLEX = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
"""Complex dtypes, and the dtype of their parts."""


def sum_by_dtype(parts: Iterable[FlopsByDtype]) -> FlopsByDtype:
    """Return the sum of FLOPs, dtype by dtype."""
    total: dict[str, int] = {}
    for part in parts:
        for dtype, count in part:
            total[dtype] = total.get(dtype, 0) + count
    return tuple(total.items())


def step_flops(step: Step, specs: Specs, subgraphs: Mapping[str, Graph]) -> FlopsByDtype:
    """Return the FLOPs of a step, by dtype."""
    subs = [leaf.name for value in arguments_of(step) for leaf in leaves(value) if type(leaf) is Sub]
    if subs:
        return flops_of_subgraphs(step, specs, [subgraphs[name] for name in subs])
    name = operator_name(step.target)
    if name in MOVES or step.target.startswith("math.") or "v" in operators().get(step.target, ""):
        return ()
    if step.target in COLLECTIVES or step.target == WAIT:
        return ()  # the links move them, and add as they do
    dtype = dtype_of(step, specs)
    count = PRODUCTS.get(name, each_element)(step, specs) if dtype else 0
    if dtype in COMPLEX:
        count *= 4 if name in PRODUCTS else 2
    return ((COMPLEX.get(dtype, dtype), count),) if count else ()


def graph_flops(graph: Graph) -> FlopsByDtype:
    """Return the FLOPs of all steps of a graph, at its captured sizes."""
    fixed = at_hints(graph)
    specs, subgraphs = specs_of(fixed), dict(fixed.subgraphs)
    return sum_by_dtype(step_flops(step, specs, subgraphs) for step in fixed.steps if not step.is_guard)


def flops_of_subgraphs(step: Step, specs: Specs, graphs: list[Graph]) -> FlopsByDtype:
    """Return the FLOPs of a step that calls subgraphs: of `cond`, the branch with fewer; of `scan`, once for each
    slice; of attention that a graph modifies, its products. How often a loop runs is not known: it counts nothing."""
    name = step.target.rpartition(".")[2]
    inside = [graph_flops(graph) for graph in graphs]
    if name == "cond":
        return min(inside, key=lambda part: sum(count for _, count in part))
    if name in FLEXIBLE:
        dtype, count = dtype_of(step, specs), FLOPS[FLEXIBLE[name]](step, specs)
        return ((dtype, count),) if count and dtype else ()
    if name == "while_loop":
        return ()
    times = next((sizes[0] for sizes in shapes_taken(step, specs) if sizes), 1) if name in SLICED else 1
    return tuple((dtype, count * times) for dtype, count in sum_by_dtype(inside))


FLEXIBLE = {"flex_attention": ATTENTIONS[0], "flex_attention_backward": f"{ATTENTIONS[0]}_backward"}
SLICED = ("scan", "associative_scan", "map_impl")


# ---- Formulas


def each_element(step: Step, specs: Specs) -> int:
    """Count one for each element of the results or of the first argument, whichever has more: a sum reads them all."""
    return max(sum(spec.numel for spec in tensors_in(step.spec)), numel_of(argument(step, 0), specs))


def inner(place: int) -> Formula:
    """Return a formula for a product with a vector: two for each element of the argument at a place."""
    return lambda step, specs: 2 * numel_of(argument(step, place), specs)


def linear(step: Step, specs: Specs) -> int:
    """Count two for each element of the input and row of the weight."""
    rows = shape(argument(step, 1), specs)
    return 2 * numel_of(argument(step, 0), specs) * (rows[0] if len(rows) > 1 else 1)


def contracted(step: Step, specs: Specs) -> int:
    """Count two for each element of the result and of the summed dimension."""
    first = shape(argument(step, 0), specs)
    return 2 * sum(spec.numel for spec in tensors_in(step.spec)) * (first[-1] if first else 1)


def causal(name: str, place: int) -> Formula:
    """Return a formula for attention whose argument at a place says whether it is causal: then a query meets only the
    keys up to its own position."""
    query = 1 if name.endswith("_backward") else 0

    def cost(step: Step, specs: Specs) -> int:
        full = FLOPS[name](step, specs)
        q, k = (shape(argument(step, query + index), specs) for index in range(2))
        if argument(step, place) is not True or not (len(q) > 1 and len(k) > 1 and q[-2] and k[-2]):
            return full
        met = sum(min(position + 1, k[-2]) for position in range(q[-2]))
        return full * met // (q[-2] * k[-2])

    return cost


def convolution_gradients(step: Step, specs: Specs) -> int:
    """Count the forward's FLOPs for each of the two gradients that is computed; torch's counter has more for groups."""
    gradient, weight = shape(argument(step, 0), specs), shape(argument(step, 2), specs)
    mask = step.args[-1] if step.args else None
    wanted = sum(map(bool, mask.items[:2])) if isinstance(mask, List) else 0
    base = shape(step.args[1], specs) if argument(step, 7) is True else gradient
    return 2 * math.prod(base) * math.prod(weight[1:]) * wanted


def recurrent(weights: Callable[[Step], Iterable[Value]], times: int = 1) -> Formula:
    """Return a formula for recurrent layers: two for each weight and position of each sequence."""

    def cost(step: Step, specs: Specs) -> int:
        positions = math.prod(shape(argument(step, 0), specs)[:-1])
        matrices = (shape(Ref(name), specs) for value in weights(step) for name in refs(value))
        return times * 2 * positions * sum(math.prod(sizes) for sizes in matrices if len(sizes) == 2)

    return cost


def listed_weights(step: Step) -> Iterable[Value]:
    """Return the arguments that are lists: states and weights of `lstm`; states have 3 dimensions."""
    return (value for value in step.args if isinstance(value, List | tuple))


def weights_of_mkldnn(step: Step) -> Iterable[Value]:
    return (value for value in step.args[1:5] if isinstance(value, Ref))


CAUSAL = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_flash_attention_backward": 11,
    "_scaled_dot_product_flash_attention_for_cpu_backward": 7,
    "_scaled_dot_product_efficient_attention_backward": 11,
    "_scaled_dot_product_cudnn_attention_backward": 14,
}
"""Where an attention's arguments say that it is causal."""

PRODUCTS: Mapping[str, Formula] = {
    **FLOPS,
    **{name: causal(name, place) for name, place in CAUSAL.items()},
    "convolution_backward": convolution_gradients,
    **dict.fromkeys("conv1d conv2d conv3d mkldnn_convolution".split(), convolution),
    "_int_mm": product(0, 1),
    **dict.fromkeys("addbmm _addmm_activation".split(), product(1, 2)),
    "addmv": inner(1),
    **dict.fromkeys("mv dot vdot linalg_vecdot".split(), inner(0)),
    **dict.fromkeys("linear mkldnn_linear".split(), linear),
    **dict.fromkeys("matmul inner".split(), contracted),
    **dict.fromkeys("lstm gru rnn_tanh rnn_relu _cudnn_rnn".split(), recurrent(listed_weights)),
    "mkldnn_rnn_layer": recurrent(weights_of_mkldnn),
    "mkldnn_rnn_layer_backward": recurrent(weights_of_mkldnn, 2),
}
"""Products by the operator's name, without namespace and overload. One of complex numbers takes four of real ones."""

MOVES = frozenset(
    """
    cat concat stack hstack vstack pad constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
    replication_pad1d replication_pad2d replication_pad3d clone copy _to_copy _unsafe_view repeat tile flip roll
    rot90 repeat_interleave gather index _unsafe_index _unsafe_masked_index index_select take take_along_dim
    embedding masked_select index_copy index_fill scatter masked_scatter put select_scatter slice_scatter
    diagonal_scatter select_backward slice_backward diagonal_backward index_select_backward fill full full_like
    zeros zeros_like ones ones_like empty empty_like empty_strided empty_permuted new_zeros new_ones new_full
    new_empty new_empty_strided eye arange iota range scalar_tensor zero tril_indices triu_indices getitem sym_size
    sym_stride sym_numel sym_storage_offset _local_scalar_dense item lift_fresh_copy view_copy expand_copy
    permute_copy transpose_copy t_copy select_copy slice_copy unsqueeze_copy squeeze_copy split_copy
    split_with_sizes_copy unbind_copy diagonal_copy detach_copy as_strided_copy alias_copy _reshape_copy
    unsafe_split unsafe_chunk unsafe_split_with_sizes narrow_copy pixel_shuffle pixel_unshuffle channel_shuffle
    native_channel_shuffle upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d max_unpool2d max_unpool3d complex diag_embed diag one_hot
    nonzero_static block_diag _pack_padded_sequence _pack_padded_sequence_backward _assert_async
    _assert_tensor_metadata _functional_assert_async lu_unpack _linalg_check_errors _functional_sym_constrain_range
    _functional_sym_constrain_range_for_size sym_max sym_min sym_float sym_int sym_not sym_ite sym_sum resize
    """.split()
)
"""Operators that only move, create or pick elements: no arithmetic."""


# ---- Storages: a view uses the memory of its base, each other tensor has its own
# The size of a storage is from its first element to the last that its tensor reaches. The memory that an operator takes
# while it runs, and gives back before it returns, is not in a graph. Each input is a storage of its own here: only the
# caller knows whether two inputs share one, or one is a slice of something larger.

Storages: TypeAlias = "str | tuple[Storages, ...] | None"
"""The storage of a value, by the name of the value that it was made for (`split[1]` for the second of a tuple); a tuple
for a tuple, and None for what has no memory, such as numbers."""


def storages_of(graph: Graph) -> tuple[dict[str, Storages], dict[str, int]]:
    """Return the storages of each value of a graph, and the bytes of each storage."""
    specs = types_with_items(graph)
    storages_by_value = {port.local: fresh(port.local, port.spec) for port in graph.inputs}
    sizes = dict(pair for port in graph.inputs for pair in sizes_in(port.local, port.spec))
    for made in graph.steps:
        storages = storages_made(made, storages_by_value, specs)
        if storages is NEW:
            storages = fresh(made.name, specs.get(made.name))
            sizes.update(sizes_made(made, storages_by_value, specs, sizes))
        storages_by_value[made.name] = storages
    return storages_by_value, sizes


def held_storages(graph: Graph, storages: Mapping[str, Storages]) -> set[str]:
    """Return the storages that the caller holds anyway: of inputs, and of what is written back into an input."""
    ends = zip(graph.outputs, graph.results, strict=True)
    updated = [name for port, result in ends if port.role == "mutation" for name in refs(result)]
    return {key for name in (*(port.local for port in graph.inputs), *updated) for key in each_storage(storages[name])}


def types_with_items(graph: Graph) -> dict[str, Spec]:
    """Return the type of each value; of one whose type is not written, that of the items that are taken from it."""
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
"""The items of a value whose type is not written."""


NEW = "(new)"
"""Of a value with memory of its own."""


def storages_made(step: Step, known: Mapping[str, Storages], specs: Specs) -> Storages:
    """Return the storages of what a step returns, or NEW."""
    first = argument(step, 0)
    base = known.get(first.name) if isinstance(first, Ref) else None
    if step.target == "operator.getitem":
        index = argument(step, 1)
        if isinstance(base, tuple) and isinstance(index, int) and -len(base) <= index < len(base):
            return base[index]
        return None
    if isinstance(first, Ref) and uses_first(step, specs):
        return spread_over(specs.get(step.name), base)
    match step.target, step.args:
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
    step: Step, known: Mapping[str, Storages], specs: Specs, sizes: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """Yield the storages that a step makes, each with its bytes."""
    name, first = operator_name(step.target), argument(step, 0)
    first_spec = specs.get(first.name) if isinstance(first, Ref) else None
    if name in WHOLE and isinstance(first, Ref) and isinstance(first_spec, TensorSpec) and not overlaps(first_spec):
        yield step.name, max(sizes.get(key, 0) for key in (*each_storage(known[first.name]), ""))
    elif name in UNREDUCED and isinstance(step.spec, TensorSpec):
        sides = [reversed(shape(argument(step, place), specs)) for place in range(2)]
        elements = math.prod(max(pair) for pair in zip_longest(*sides, fillvalue=1))
        yield step.name, elements * ITEMSIZE[step.spec.dtype]
    else:
        yield from sizes_in(step.name, specs.get(step.name))


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
    if spec.stride is None or not all(isinstance(size, int) for size in (*spec.shape, *spec.stride, spec.offset)):
        return spec.nbytes
    return (int(spec.offset) + places_spanned(spec.shape, spec.stride)) * ITEMSIZE[spec.dtype]


def places_spanned(shape: Iterable[int | str], stride: Iterable[int | str]) -> int:
    """Return the number of places of memory from the first to the last element."""
    return 1 + sum((int(size) - 1) * int(step) for size, step in zip(shape, stride, strict=True))


# ---- Which operators return a view


def uses_first(step: Step, specs: Specs) -> bool:
    """Whether a step returns the memory of its first argument: as a view, unchanged, or updated in place."""
    return is_view(step, specs) or ("m" in operators().get(step.target, "") and updates_first(step.target))


def is_view(step: Step, specs: Specs) -> bool:
    """Whether a step's result uses the memory of its first argument, and writes nothing into it."""
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
    """Whether an operator that changes an argument changes its first: `add_`, and not `add.out`."""
    name = target.split(".")[1] if "." in target else target
    return (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


@functools.cache
def view_operators() -> frozenset[str]:
    """Return the names of operators that return a view, without namespace and overload."""
    return UNDECLARED | {operator_name(target) for target, flags in operators().items() if "v" in flags}


UNDECLARED = frozenset(["_unsafe_view", "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", WAIT])
"""Operators whose results use the memory of their first argument, though their schemas do not say so."""


def strides_of(spec: TensorSpec) -> tuple[int | str, ...]:
    """Return the strides of a tensor, those of a contiguous one too."""
    if spec.stride is not None:
        return spec.stride
    sizes = [size if isinstance(size, int) else 1 for size in spec.shape]
    return tuple(math.prod(max(size, 1) for size in sizes[index + 1 :]) for index in range(len(sizes)))


def same_memory(source: TensorSpec, result: TensorSpec) -> bool:
    """Whether two tensors lie in memory alike: strides of dimensions of one element do not count."""
    if source.shape != result.shape:
        return False
    steps = zip(result.shape, strides_of(source), strides_of(result), strict=True)
    return all(left == right for size, left, right in steps if size != 1) or not result.numel


def unconverted(step: Step, source: TensorSpec, result: TensorSpec) -> bool:
    """Whether a conversion has nothing to convert, and was not asked for a copy."""
    copies = dict(step.kwargs).get("copy", argument(step, COPY.get(step.target, 99)))
    alike = (source.dtype, source.device, source.layout) == (result.dtype, result.device, result.layout)
    return alike and copies is not True and same_memory(source, result)


COPY = {"aten.to.device": 4, "aten.to.dtype": 3, "aten.to.other": 3}
"""Where `copy` stands in the arguments of a conversion."""


def viewable(source: TensorSpec, shape: tuple[int | str, ...]) -> bool:
    """Whether a tensor can be seen in another shape without a copy: as torch's `computeStride` decides."""
    if not all(isinstance(size, int) for size in (*source.shape, *strides_of(source), *shape)):
        return True
    if not source.numel:
        return True
    dims = [
        (int(size), int(stride)) for size, stride in zip(source.shape, strides_of(source), strict=True) if size != 1
    ]
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


def reshaped(step: Step, source: TensorSpec, result: TensorSpec) -> bool:
    return viewable(source, result.shape)


def raveled(step: Step, source: TensorSpec, result: TensorSpec) -> bool:
    return same_memory(source, replace(source, stride=None))


def as_dense(step: Step, source: TensorSpec, result: TensorSpec) -> bool:
    return same_memory(source, result)


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


# ---- Bytes that a step reads and writes, from the specs of its arguments and results


def memory_of(spec: Spec) -> int:
    """Return the bytes of the elements that lie at different places of memory; 0 for what is no strided tensor."""
    if not isinstance(spec, TensorSpec) or spec.layout != "strided":
        return 0
    strides = spec.stride
    if strides is None or not spec.numel or not all(isinstance(number, int) for number in (*spec.shape, *strides)):
        return spec.nbytes
    dims = [(int(size), int(stride)) for size, stride in zip(spec.shape, strides, strict=True) if stride]
    apart = math.prod(size for size, _ in dims)
    reach = 1 + sum((size - 1) * stride for size, stride in dims)
    return min(apart, reach) * ITEMSIZE[spec.dtype]


def values_read(step: Step) -> Iterator[tuple[int | str, str]]:
    """Yield the values that a step takes, each with its position or keyword."""
    for place, value in enumerate(step.args):
        yield from ((place, name) for name in refs(value))
    for key, value in step.kwargs:
        yield from ((key, name) for name in refs(value))


def read_at(step: Step, place: int | str, name: str, specs: Mapping[str, Spec]) -> int:
    """Return the bytes that a step reads of an argument."""
    operator, spec = operator_name(step.target), specs.get(name)
    most = memory_of(spec)
    if place in UNREAD.get(operator, ()) or (operator == "convolution_backward" and not masked_in(step, place)):
        return 0
    if place != 0 or operator not in PICKED or not isinstance(spec, TensorSpec):
        return most
    by = PICKED[operator]
    count = (
        numel_of(argument(step, by), specs) if by is not None else sum(tensor.numel for tensor in tensors_in(step.spec))
    )
    if operator in BAGS:
        count *= int_of(spec.shape[-1])
    return min(most, count * ITEMSIZE[spec.dtype])


def masked_in(step: Step, place: int | str) -> bool:
    """Whether `convolution_backward` reads an argument: the input for the weight's gradient, the weight for the
    input's."""
    mask = step.args[-1] if step.args else None
    if not isinstance(mask, List) or len(mask.items) < 2:
        return True
    wanted = {1: mask.items[1], 2: mask.items[0]}
    return bool(wanted[place]) if place in wanted and isinstance(place, int) else True


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
    """What a step costs, or several. `product_flops` are those of matrix products, convolutions and attentions, as
    torch's FlopCounterMode counts them; `other_flops` those of everything else."""

    product_flops: int = 0
    other_flops: int = 0
    read: int = 0
    written: int = 0

    @property
    def flops(self) -> int:
        """All floating-point operations."""
        return self.product_flops + self.other_flops

    @property
    def moved(self) -> int:
        """The bytes that are read and written."""
        return self.read + self.written


FREE = StepCost()


def step_costs(graph: Graph) -> tuple[StepCost, ...]:
    """Return the cost of each step of a graph, at its captured sizes."""
    fixed = at_hints(graph)
    specs, subgraphs = specs_of(fixed), dict(fixed.subgraphs)
    return tuple(step_cost(step, specs, subgraphs) for step in fixed.steps)


def total_cost(costs: Iterable[StepCost]) -> StepCost:
    """Return the sum of costs, each number at most as large as a table can hold."""
    rows = [(cost.product_flops, cost.other_flops, cost.read, cost.written) for cost in costs]
    return StepCost(*(min(sum(column), MOST_FLOPS) for column in zip(*rows, strict=True)))


def step_cost(step: Step, specs: Specs, subgraphs: Mapping[str, Graph]) -> StepCost:
    """Return the cost of one step."""
    if step.is_guard or step.target.startswith(("operator.", "math.")) or is_view(step, specs):
        return FREE
    read, written = bytes_read(step, specs), bytes_written(step)
    subs = [subgraphs[leaf.name] for value in arguments_of(step) for leaf in leaves(value) if type(leaf) is Sub]
    if subs:
        return cost_with_subgraphs(step, specs, [total_cost(step_costs(graph)) for graph in subs], read, written)
    name = step.target.split(".")[1] if step.target.startswith("aten.") else ""
    if name in FLOPS:
        return StepCost(min(FLOPS[name](step, specs), MOST_FLOPS), 0, read, written)
    other = sum(count for _, count in step_flops(step, specs, subgraphs))
    return StepCost(0, min(other, MOST_FLOPS), read, written)


def cost_with_subgraphs(step: Step, specs: Specs, inside: list[StepCost], read: int, written: int) -> StepCost:
    """Return the cost of a step that runs subgraphs: of `cond`, the branch that costs more, as torch counts it; of a
    `scan`, once for each slice; of a loop, one iteration, because how often it runs is not known."""
    name = step.target.rpartition(".")[2]
    if name in FLEXIBLE:
        return StepCost(min(FLOPS[FLEXIBLE[name]](step, specs), MOST_FLOPS), 0, read, written)
    if name == "cond":
        return max(inside, key=lambda cost: (cost.product_flops, cost.other_flops, cost.moved))
    times = next((shape[0] for shape in shapes_taken(step, specs) if shape), 1) if name in SLICED else 1
    return times_over(total_cost(inside), times)


def times_over(cost: StepCost, times: int) -> StepCost:
    """Return so many times the cost."""
    return StepCost(cost.product_flops * times, cost.other_flops * times, cost.read * times, cost.written * times)


def bytes_read(step: Step, specs: Specs) -> int:
    """Return the bytes that a step reads, each argument once."""
    most: dict[str, int] = {}
    for place, name in values_read(step):
        most[name] = max(most.get(name, 0), read_at(step, place, name, specs))
    return sum(most.values())


def bytes_written(step: Step) -> int:
    """Return the bytes that a step writes; `empty` and its like write none."""
    if operator_name(step.target) in UNWRITTEN:
        return 0
    return sum(memory_of(spec) for spec in tensors_in(step.spec))


UNWRITTEN = frozenset("empty empty_like empty_strided empty_permuted new_empty new_empty_strided".split())


# ---- The time line of memory: the bytes that live during each step of a forward, then of its backward
# Storages count, not tensors: a view has no memory of its own. A storage lives from the step that makes it to the last
# step that uses a value in it. A saved value lives until its last use in the backward. Mutations live to the end of
# their graph, when they are written back; outputs, gradients and tangents live to the end, because the caller holds
# them. Parameters, buffers, inputs and constants live throughout: they are counted apart, in `held`, and the curve
# leaves them out.

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
        """Return what lives while a step runs, the largest first."""
        living = (span for span in self.spans if span.first <= index <= span.last)
        return tuple(sorted(living, key=lambda span: -span.bytes))


@dataclass(slots=True)
class LivingStorage:
    """A LiveSpan that is being followed: it grows with each use."""

    value: str
    direction: str
    bytes: int
    first: int
    last: int
    role: str


def memory_line(pair: Pair) -> MemoryLine:
    """Return the memory time line of a Pair, at its captured sizes."""
    forward, backward = at_hints(pair.forward), at_hints(pair.backward) if pair.backward else None
    border = len(forward.steps)
    end = border + (len(backward.steps) if backward else 0)
    living: dict[str, LivingStorage] = {}
    values = follow(forward, "forward", (0, border, end), {}, living)
    if backward is not None:
        follow(backward, "backward", (border, end, end), carried(forward, backward, values), living)
    rows = [LiveSpan(row.value, row.direction, row.bytes, row.first, row.last, row.role) for row in living.values()]
    own = tuple(span for span in rows if span.role in RANKS and span.bytes)
    held = tuple(span for span in rows if span.role not in RANKS and span.bytes)
    return MemoryLine(border, own, held, *curve(own, end))


def follow(
    graph: Graph,
    direction: str,
    times: tuple[int, int, int],
    values: Mapping[str, Storages],
    living: dict[str, LivingStorage],
) -> dict[str, Storages]:
    """Add the storages of a graph to those found, and return those of its values.

    `times` are the graph's first step, the step after its last, and the step after the last of all.
    """
    start, stop, end = times
    specs, values = types_with_items(graph), dict(values)
    for port in graph.inputs:
        if port.local not in values:
            role = port.role if port.role in ("tangent", *HELD) else "input"
            like = LivingStorage("", direction, 0, start if role == "tangent" else 0, end, role)
            values[port.local] = born(port.local, port.spec, sizes_in(port.local, port.spec), like, living)
    for time, step in enumerate(graph.steps, start):
        if step.is_guard:
            continue
        storages = storages_made(step, values, specs)
        if storages is NEW:
            sizes = {key: living[key].bytes for key in each_storage(values.get(first_of(step)))}
            like = LivingStorage("", direction, 0, time, time, "temporary")
            storages = born(step.name, specs.get(step.name), sizes_made(step, values, specs, sizes), like, living)
        values[step.name] = storages
        for name in (*used(step), step.name):
            use(values[name], time, "temporary", living)
    for port, result in zip(graph.outputs, graph.results, strict=True):
        last = end if port.role in ("output", "gradient") else stop - 1
        for name in refs(result):
            use(values[name], last, port.role, living)
    return values


def born(
    name: str, spec: Spec, sizes: Iterable[tuple[str, int]], like: LivingStorage, living: dict[str, LivingStorage]
) -> Storages:
    """Add the storages of a value, and return them."""
    for label, size in sizes:
        living[f"{like.direction} {label}"] = replace(like, value=label, bytes=size)
    return fresh(f"{like.direction} {name}", spec)


def first_of(step: Step) -> str:
    """Return the name of a step's first argument; '' if it is none."""
    first = argument(step, 0)
    return first.name if isinstance(first, Ref) else ""


def use(storages: Storages, time: int, role: str, living: Mapping[str, LivingStorage]) -> None:
    """Note that a value is used at a time, and as what."""
    for key in each_storage(storages):
        row = living[key]
        row.last = max(row.last, time)
        if row.role in RANKS and RANKS.index(role) > RANKS.index(row.role):
            row.role = role


def carried(forward: Graph, backward: Graph, values: Mapping[str, Storages]) -> dict[str, Storages]:
    """Return the storages of the backward's inputs that the forward has: what it saved, and its own inputs."""
    ends = zip(forward.outputs, forward.results, strict=True)
    saved = {port.name: name for port, result in ends if port.role == "saved" for name in refs(result)}
    locals_of_inputs = {port.name: port.local for port in forward.inputs}
    storages: dict[str, Storages] = {}
    for port in backward.inputs:
        name = saved.get(port.name) if port.role == "saved" else locals_of_inputs.get(port.name)
        if name is not None and port.role != "tangent":
            storages[port.local] = values[name]
    return storages


def curve(spans: Iterable[LiveSpan], end: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the bytes that live during each step, and after it."""
    born, gone = [0] * (end + 1), [0] * (end + 1)
    for span in spans:
        born[span.first] += span.bytes
        gone[span.last] += span.bytes
    allocated, freed = list(accumulate(born[:end])), list(accumulate(gone[:end]))
    after = tuple(here - there for here, there in zip(allocated, freed, strict=True))
    during = tuple(count + gone[index] for index, count in enumerate(after))
    return during, after


# ---- The Summary of a Pair


@dataclass(frozen=True, slots=True)
class SavedLine:
    """What one line of the user's program saves for the backward."""

    line: str
    bytes: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KindCost:
    """What all calls of one operator cost together."""

    operator: str
    calls: int
    cost: StepCost


@dataclass(frozen=True, slots=True)
class Summary:
    """A Pair in numbers. `saved` counts intermediate values only; `kept` counts parameters and inputs that are saved
    too. Costs are those of each step as a kernel of its own; `peak_bytes` leaves out what the caller holds."""

    parameters: int
    parameter_bytes: int
    forward_kinds: tuple[KindCost, ...]
    backward_kinds: tuple[KindCost, ...]
    saved: tuple[SavedLine, ...]
    kept_bytes: int
    forward: StepCost
    backward: StepCost
    peak_bytes: int
    held_bytes: int

    @property
    def saved_bytes(self) -> int:
        """Bytes of intermediate values that live from the forward to the backward."""
        return sum(line.bytes for line in self.saved)


def summarize(pair: Pair) -> Summary:
    """Return the numbers of a Pair, at its captured sizes."""
    forward, backward = at_hints(pair.forward), at_hints(pair.backward) if pair.backward else None
    parameters = [spec for port in forward.by_role("parameter") if isinstance(spec := port.spec, TensorSpec)]
    results = [result for port, result in zip(forward.outputs, forward.results, strict=True) if port.role == "saved"]
    kinds, back_kinds = cost_by_kind(forward), cost_by_kind(backward) if backward else ()
    memory = memory_line(pair)
    return Summary(
        parameters=sum(spec.numel for spec in parameters),
        parameter_bytes=sum(spec.nbytes for spec in parameters),
        forward_kinds=kinds,
        backward_kinds=back_kinds,
        saved=saved_by_line(forward, results),
        kept_bytes=kept_bytes(forward, results),
        forward=total_cost(kind.cost for kind in kinds),
        backward=total_cost(kind.cost for kind in back_kinds),
        peak_bytes=memory.peak_bytes,
        held_bytes=memory.held_bytes,
    )


def cost_by_kind(graph: Graph) -> tuple[KindCost, ...]:
    """Return what each operator costs, the most bytes first; taking an item of a tuple does not count."""
    costs_of_kind: dict[str, list[StepCost]] = {}
    for step, cost in zip(graph.steps, step_costs(graph), strict=True):
        if step.target != "operator.getitem" and not step.is_guard:
            costs_of_kind.setdefault(step.target, []).append(cost)
    rows = [KindCost(target, len(costs), total_cost(costs)) for target, costs in costs_of_kind.items()]
    return tuple(sorted(rows, key=lambda row: (-row.cost.moved, -row.calls)))


def kept_bytes(graph: Graph, saved: Sequence[Value]) -> int:
    """Return the bytes of storages that the caller holds and the backward keeps, also those kept as a view."""
    storages, sizes = storages_of(graph)
    held = held_storages(graph, storages)
    keys = {key for value in saved for name in refs(value) for key in each_storage(storages[name])}
    return sum(sizes[key] for key in keys & held)


def saved_by_line(graph: Graph, saved: Sequence[Value]) -> tuple[SavedLine, ...]:
    """Return the saved values by the user's line that made them, the largest first. Storages count, each once: a view
    of another saved value is free, and a view of a part saves the whole. What the caller holds is left out."""
    steps = {step.name: step for step in graph.steps}
    storages, sizes = storages_of(graph)
    held = held_storages(graph, storages)
    counted: set[str] = set()
    lines: dict[str, list[tuple[str, int]]] = {}
    for name in (name for value in saved for name in refs(value)):
        keys = set(each_storage(storages[name])) - counted
        if name not in steps or (keys and keys <= held):
            continue
        counted |= keys
        source = steps[name].source
        line = f"{source.file}:{source.line}: {source.code}" if source else "(no line)"
        lines.setdefault(line, []).append((name, sum(sizes[key] for key in keys - held)))
    rows = [
        SavedLine(line, sum(cost for _, cost in storages_of_line), tuple(name for name, _ in storages_of_line))
        for line, storages_of_line in lines.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def summarize_all(capture: Capture) -> tuple[Summary, ...]:
    """Return a Summary for each Pair."""
    return tuple(map(summarize, capture.pairs))


# ---- Which operators graphs call, on which dtypes, and how often

NO_TENSOR = "no tensor"
"""What a call that takes and returns numbers alone has for dtypes."""

NOT_CALLS = ("operator.getitem",)
"""Taking one result of several is no call, as in a summary."""


def operator_calls(graph: Graph) -> Counter[tuple[str, str]]:
    """Count the calls of a graph by operator and dtypes: `("aten.gt.Scalar", "float32 -> bool")`."""
    specs: dict[str, Spec] = {port.local: port.spec for port in graph.inputs}
    calls: Counter[tuple[str, str]] = Counter()
    for step in graph.steps:
        specs[step.name] = step.spec
        if not step.is_guard and step.target not in NOT_CALLS:
            calls[step.target, dtypes_of_call(step, specs)] += 1
    return calls


def dtypes_of_call(step: Step, specs: Mapping[str, Spec]) -> str:
    """Return the dtypes of a call's tensors, each once; `float32 -> bool` where it returns others than it takes."""
    values = (*step.args, *(value for _, value in step.kwargs))
    argument_dtypes = dict.fromkeys(
        dtype for value in values for name in refs(value) for dtype in dtypes_of(specs.get(name))
    )
    result_dtypes = dict.fromkeys(dtypes_of(step.spec))
    if not argument_dtypes or not result_dtypes or argument_dtypes == result_dtypes:
        return ", ".join(result_dtypes or argument_dtypes) or NO_TENSOR
    return f"{', '.join(argument_dtypes)} -> {', '.join(result_dtypes)}"


def dtypes_of(spec: Spec) -> Iterator[str]:
    """Yield the dtypes of the tensors of a spec."""
    match spec:
        case TensorSpec():
            yield spec.dtype
        case tuple():
            for part in spec:
                yield from dtypes_of(part)


def usage_of(sides: Mapping[str, Iterable[Graph]]) -> dict[str, int]:
    """Return how often graphs call each operator, by side, operator and dtypes: `forward aten.mm.default float32`."""
    usage: Counter[str] = Counter()
    for side, graphs in sides.items():
        for graph in graphs:
            for (target, dtypes), count in operator_calls(graph).items():
                usage[f"{side} {target} {dtypes}"] += count
    return dict(usage)
