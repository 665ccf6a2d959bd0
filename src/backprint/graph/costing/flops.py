"""The floating-point operations that the results of a graph take, by dtype. Needs no torch.

Products are those of the direct algorithm (`products`, as PyTorch's FLOP counter counts them), with two numbers that
PyTorch's counter has too large: causal attention counts the keys that each query meets, and the weight gradient of a
grouped convolution counts its groups. Recurrent layers count their products too. Any other operator counts one for each
element of its results or of its first argument, whichever has more; what only moves, creates or picks elements counts
nothing, and nor does arithmetic of integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from backprint.graph.costing.products import (
    ATTENTIONS,
    FLOPS,
    Specs,
    argument,
    arguments_of,
    convolution,
    dtype_of,
    numel_of,
    operator_name,
    product,
    shape,
    shapes_taken,
    specs_of,
    tensors_in,
)
from backprint.graph.nouns import Graph, List, Ref, Step, Sub, Value, leaves, refs
from backprint.graph.sizes import at_hints
from backprint.graph.table import operators

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


# ------------------------------------------------------------------ formulas


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
