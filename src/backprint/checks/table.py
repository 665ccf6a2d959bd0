"""The check of each operator whose kernel trusts its arguments, by name."""

from __future__ import annotations

import functools
from typing import Any

import torch

from backprint.checks.arguments import (
    Check,
    adaptive_windows,
    aligned,
    attended,
    averaged,
    bagged,
    begun,
    classed,
    combined,
    combined_all,
    compressed,
    convolved,
    coo,
    decimal,
    distant,
    divided,
    embedded,
    enumerated,
    factored,
    factored_symmetric,
    factored_whole,
    finite_matrix,
    grouped,
    headed,
    layered,
    margined,
    normed,
    paired,
    pieces,
    places_to_rows,
    pooled,
    ranged,
    recurrent,
    recurrent_back,
    repeated,
    resized,
    rounded,
    rounds,
    rows_to_places,
    sampled,
    scaled_weight,
    segmented,
    sobol,
    softened,
    some,
    spanned,
    transformed,
    unbagged,
    unbatched,
    unfolded,
    unpooled,
    windowed,
)


@functools.cache
def check_of(function: Any) -> Check | None:
    """Return the own check of an operator, if any."""
    return check_by_name(str(function))


def check_by_name(name: str) -> Check | None:
    """Return the check of the operator `namespace.name.overload`, or of its family."""
    packet = name.rpartition(".")[0]
    return CHECKS.get(packet) or family_check(packet)


def every(check: Check, names: str) -> dict[str, Check]:
    """Return rows for operators that share one check."""
    return dict.fromkeys(names.split(), check)


CHECKS: dict[str, Check] = {
    "aten.max_pool2d_with_indices_backward": pooled(2, -1),
    "aten.max_pool3d_with_indices_backward": pooled(3, -1),
    "aten.adaptive_max_pool2d_backward": pooled(2),
    "aten.adaptive_max_pool3d_backward": pooled(3),
    "aten.fractional_max_pool2d_backward": pooled(2),
    "aten.fractional_max_pool3d_backward": pooled(3),
    "aten._adaptive_avg_pool2d_backward": averaged(2),
    "aten._adaptive_avg_pool3d_backward": averaged(3),
    "aten.adaptive_max_pool2d": adaptive_windows(2),
    "aten.adaptive_max_pool3d": adaptive_windows(3),
    "aten.max_unpool2d": unpooled(2),
    "aten.max_unpool3d": unpooled(3),
    "aten.embedding_dense_backward": embedded,
    "aten.embedding_sparse_backward": embedded,
    "aten.embedding_backward": embedded,
    "aten._embedding_bag": bagged,
    "aten._embedding_bag_forward_only": bagged,
    "aten.nll_loss_backward": classed,
    "aten.nll_loss2d_backward": classed,
    "aten._ctc_loss": aligned,
    "aten.ctc_loss": aligned,
    "aten._ctc_loss_backward": aligned,
    "aten._convert_indices_from_coo_to_csr": rows_to_places,
    "aten._convert_indices_from_csr_to_coo": places_to_rows,
    "aten.segment_reduce": segmented,
    "aten._segment_reduce_backward": segmented,
    "aten.native_layer_norm_backward": layered,
    "aten._fused_rms_norm_backward": layered,
    "aten.native_group_norm": grouped,
    "aten.native_group_norm_backward": grouped,
    "aten._scaled_dot_product_flash_attention_for_cpu": attended,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": attended,
    "aten.grid_sampler_2d_backward": sampled,
    "aten.grid_sampler_3d_backward": sampled,
    "aten._grid_sampler_2d_cpu_fallback_backward": sampled,
    "aten.unfold_backward": unfolded,
    "aten._fft_c2c": transformed,
    "aten._fft_c2r": transformed,
    "aten._fft_r2c": transformed,
    "prims.fft_c2c": transformed,
    "prims.fft_c2r": transformed,
    "prims.fft_r2c": transformed,
    "aten._reshape_alias": spanned,
    "aten._reshape_alias_copy": spanned,
    "aten._sparse_coo_tensor_unsafe": coo,
    "aten._sparse_coo_tensor_with_dims_and_tensors": coo,
    "aten._sparse_compressed_tensor_unsafe": compressed(None, "compressed_indices", "plain_indices"),
    "aten._sparse_csr_tensor_unsafe": compressed(torch.sparse_csr, "crow_indices", "col_indices"),
    "aten._sparse_csc_tensor_unsafe": compressed(torch.sparse_csc, "ccol_indices", "row_indices"),
    "aten._sparse_bsr_tensor_unsafe": compressed(torch.sparse_bsr, "crow_indices", "col_indices"),
    "aten._sparse_bsc_tensor_unsafe": compressed(torch.sparse_bsc, "ccol_indices", "row_indices"),
    "aten.mkldnn_rnn_layer": recurrent,
    "aten.mkldnn_rnn_layer_backward": recurrent_back,
    "aten.linalg_ldl_solve": factored_symmetric,
    "aten._embedding_bag_backward": unbagged,
    "aten._embedding_bag_dense_backward": unbagged,
    "aten._embedding_bag_sparse_backward": unbagged,
    "aten._embedding_bag_per_sample_weights_backward": unbagged,
    "aten.multi_margin_loss_backward": margined,
    "aten.multilabel_margin_loss_backward": margined,
    "aten.lu_unpack": factored,
    "aten.linalg_lu_solve": factored,
    "aten.lu_solve": factored,
    "aten._pdist_backward": distant,
    "aten._cdist_backward": distant,
    "aten._weight_norm": scaled_weight,
    "aten._weight_norm_interface": scaled_weight,
    "aten._weight_norm_interface_backward": scaled_weight,
    "aten._transform_bias_rescale_qkv": headed,
    "aten._softmax_backward_data": softened,
    "aten._log_softmax_backward_data": softened,
    "aten.lcm": factored_whole,
    "aten.lcm_": factored_whole,
    "aten.gcd": factored_whole,
    "aten.gcd_": factored_whole,
    "aten._linalg_eigvals": finite_matrix,
    "aten.linalg_eigvals": finite_matrix,
    "aten.max_pool1d": windowed,
    "aten.max_pool1d_with_indices": windowed,
    "aten._stack": some,
    "aten._remove_batch_dim": unbatched,
    "aten.repeat_interleave": repeated,
    "aten.bincount": enumerated,
    "aten.one_hot": enumerated,
    **every(decimal, "aten.round aten.round_ aten.special_round"),
    "aten.range": ranged,
    "aten.random": begun,
    "aten.random_": begun,
    "aten._compute_linear_combination": combined,
    "aten.mvlgamma": rounds("p"),
    "aten.mvlgamma_": rounds("p"),
    "aten.special_multigammaln": rounds("p"),
    "aten.combinations": combined_all,
    "aten._ncf_unsqueeze": rounds("ndim", 64),
    **every(pieces, "aten.tensor_split aten.hsplit aten.vsplit aten.dsplit"),
    **every(rounded, "aten.div aten.div_ aten.divide aten.divide_"),
    **every(divided, "aten.floor_divide aten.floor_divide_ aten.remainder aten.remainder_ aten.fmod aten.fmod_"),
    **every(divided, "prims.div prims.remainder prims.fmod"),
    **every(convolved, "aten.slow_conv_transpose2d aten.slow_conv_transpose3d aten.slow_conv_dilated2d"),
    **every(convolved, "aten.slow_conv_dilated3d aten.slow_conv3d aten.slow_conv3d_forward aten.conv_depthwise3d"),
    **every(convolved, "aten._conv_depthwise2d aten.thnn_conv2d aten._slow_conv2d_forward"),
}
"""The check of an operator, by its name without the overload."""


def family_check(packet: str) -> Check | None:
    """Return the check of a family of operators, by name."""
    if "batch_norm" in packet:
        return normed
    if packet.startswith("aten._foreach_"):
        return paired
    if packet.startswith("aten._sobol_engine_"):
        return sobol
    if packet.endswith("_window"):
        return rounds("window_length", 2**26)
    if packet.startswith("aten._upsample_") and "_aa" in packet:
        return resized
    if packet.startswith("aten.special_") and "polynomial" in packet:
        return rounds("n")
    return None
