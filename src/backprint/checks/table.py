"""The check of each operator whose kernel does not check its arguments itself, by name.

Without the check, a call from an untrusted graph could read or write memory outside of its tensors, divide by zero in
integers, which ends the process, or loop for hours. The docstrings in `arguments.py` say what is checked.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from backprint.checks.arguments import (
    Check,
    adaptive_pool_check,
    average_pool_backward_check,
    check_antialiased_resize,
    check_as_strided,
    check_attention_heads,
    check_batch_norm,
    check_combinations,
    check_convolution_kernel_size,
    check_coo,
    check_coo_to_csr,
    check_copied_list,
    check_csr_to_coo,
    check_ctc_loss,
    check_decimals,
    check_distance_backward,
    check_division,
    check_embedding_backward,
    check_embedding_bag,
    check_embedding_bag_backward,
    check_fft,
    check_finite_matrix,
    check_flash_attention,
    check_grid_sampler_backward,
    check_group_norm,
    check_layer_norm_backward,
    check_lcm,
    check_ldl,
    check_list_lengths,
    check_lower_bound,
    check_lu,
    check_margin_loss_backward,
    check_nll_loss_backward,
    check_not_empty,
    check_number_of_pieces,
    check_pool_window,
    check_range,
    check_recurrent_layer,
    check_recurrent_layer_backward,
    check_repeat_interleave,
    check_rounding_division,
    check_segment_reduce,
    check_size_from_largest_value,
    check_sobol,
    check_softmax_backward,
    check_sum_of_matrices,
    check_unfold_backward,
    check_vmap_dim,
    check_weight_norm,
    compressed_check,
    loop_count_check,
    max_unpool_check,
    pool_backward_check,
)


@functools.cache
def check_of(function: Any) -> Check | None:
    """Return the check of an operator, or None if the table has none for it."""
    return check_by_name(str(function))


def check_by_name(name: str) -> Check | None:
    """Return the check of the operator `namespace.name.overload`: its row in CHECKS, else the check of a family of
    operators that its name belongs to."""
    packet = name.rpartition(".")[0]
    return CHECKS.get(packet) or family_check(packet)


def rows_with_check(check: Check, names: str) -> dict[str, Check]:
    """Return rows of CHECKS in which all these operators, separated by spaces, have the same check."""
    return dict.fromkeys(names.split(), check)


CHECKS: dict[str, Check] = {
    # In these two, the index -1 is allowed: it marks an empty window.
    "aten.max_pool2d_with_indices_backward": pool_backward_check(2, -1),
    "aten.max_pool3d_with_indices_backward": pool_backward_check(3, -1),
    # The backwards of the other max pools do not allow it.
    "aten.adaptive_max_pool2d_backward": pool_backward_check(2),
    "aten.adaptive_max_pool3d_backward": pool_backward_check(3),
    "aten.fractional_max_pool2d_backward": pool_backward_check(2),
    "aten.fractional_max_pool3d_backward": pool_backward_check(3),
    "aten._adaptive_avg_pool2d_backward": average_pool_backward_check(2),
    "aten._adaptive_avg_pool3d_backward": average_pool_backward_check(3),
    "aten.adaptive_max_pool2d": adaptive_pool_check(2),
    "aten.adaptive_max_pool3d": adaptive_pool_check(3),
    "aten.max_unpool2d": max_unpool_check(2),
    "aten.max_unpool3d": max_unpool_check(3),
    "aten.embedding_dense_backward": check_embedding_backward,
    "aten.embedding_sparse_backward": check_embedding_backward,
    "aten.embedding_backward": check_embedding_backward,
    "aten._embedding_bag": check_embedding_bag,
    "aten._embedding_bag_forward_only": check_embedding_bag,
    "aten.nll_loss_backward": check_nll_loss_backward,
    "aten.nll_loss2d_backward": check_nll_loss_backward,
    "aten._ctc_loss": check_ctc_loss,
    "aten.ctc_loss": check_ctc_loss,
    "aten._ctc_loss_backward": check_ctc_loss,
    "aten._convert_indices_from_coo_to_csr": check_coo_to_csr,
    "aten._convert_indices_from_csr_to_coo": check_csr_to_coo,
    "aten.segment_reduce": check_segment_reduce,
    "aten._segment_reduce_backward": check_segment_reduce,
    "aten.native_layer_norm_backward": check_layer_norm_backward,
    "aten._fused_rms_norm_backward": check_layer_norm_backward,
    "aten.native_group_norm": check_group_norm,
    "aten.native_group_norm_backward": check_group_norm,
    "aten._scaled_dot_product_flash_attention_for_cpu": check_flash_attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": check_flash_attention,
    "aten.grid_sampler_2d_backward": check_grid_sampler_backward,
    "aten.grid_sampler_3d_backward": check_grid_sampler_backward,
    "aten._grid_sampler_2d_cpu_fallback_backward": check_grid_sampler_backward,
    "aten.unfold_backward": check_unfold_backward,
    "aten._fft_c2c": check_fft,
    "aten._fft_c2r": check_fft,
    "aten._fft_r2c": check_fft,
    "prims.fft_c2c": check_fft,
    "prims.fft_c2r": check_fft,
    "prims.fft_r2c": check_fft,
    "aten._reshape_alias": check_as_strided,
    "aten._reshape_alias_copy": check_as_strided,
    "aten._sparse_coo_tensor_unsafe": check_coo,
    "aten._sparse_coo_tensor_with_dims_and_tensors": check_coo,
    "aten._sparse_compressed_tensor_unsafe": compressed_check(None, "compressed_indices", "plain_indices"),
    "aten._sparse_csr_tensor_unsafe": compressed_check(torch.sparse_csr, "crow_indices", "col_indices"),
    "aten._sparse_csc_tensor_unsafe": compressed_check(torch.sparse_csc, "ccol_indices", "row_indices"),
    "aten._sparse_bsr_tensor_unsafe": compressed_check(torch.sparse_bsr, "crow_indices", "col_indices"),
    "aten._sparse_bsc_tensor_unsafe": compressed_check(torch.sparse_bsc, "ccol_indices", "row_indices"),
    "aten.mkldnn_rnn_layer": check_recurrent_layer,
    "aten.mkldnn_rnn_layer_backward": check_recurrent_layer_backward,
    "aten.linalg_ldl_solve": check_ldl,
    "aten._embedding_bag_backward": check_embedding_bag_backward,
    "aten._embedding_bag_dense_backward": check_embedding_bag_backward,
    "aten._embedding_bag_sparse_backward": check_embedding_bag_backward,
    "aten._embedding_bag_per_sample_weights_backward": check_embedding_bag_backward,
    "aten.multi_margin_loss_backward": check_margin_loss_backward,
    "aten.multilabel_margin_loss_backward": check_margin_loss_backward,
    "aten.lu_unpack": check_lu,
    "aten.linalg_lu_solve": check_lu,
    "aten.lu_solve": check_lu,
    "aten._pdist_backward": check_distance_backward,
    "aten._cdist_backward": check_distance_backward,
    "aten._weight_norm": check_weight_norm,
    "aten._weight_norm_interface": check_weight_norm,
    "aten._weight_norm_interface_backward": check_weight_norm,
    "aten._transform_bias_rescale_qkv": check_attention_heads,
    "aten._softmax_backward_data": check_softmax_backward,
    "aten._log_softmax_backward_data": check_softmax_backward,
    "aten.lcm": check_lcm,
    "aten.lcm_": check_lcm,
    "aten.gcd": check_lcm,
    "aten.gcd_": check_lcm,
    "aten._linalg_eigvals": check_finite_matrix,
    "aten.linalg_eigvals": check_finite_matrix,
    "aten.max_pool1d": check_pool_window,
    "aten.max_pool1d_with_indices": check_pool_window,
    "aten._stack": check_not_empty,
    "aten._remove_batch_dim": check_vmap_dim,
    "aten.repeat_interleave": check_repeat_interleave,
    "aten.bincount": check_size_from_largest_value,
    "aten.one_hot": check_size_from_largest_value,
    **rows_with_check(check_decimals, "aten.round aten.round_ aten.special_round"),
    "aten.range": check_range,
    "aten.random": check_lower_bound,
    "aten.random_": check_lower_bound,
    "aten._compute_linear_combination": check_sum_of_matrices,
    # The kernel loops as many times as the named argument says.
    "aten.mvlgamma": loop_count_check("p"),
    "aten.mvlgamma_": loop_count_check("p"),
    "aten.special_multigammaln": loop_count_check("p"),
    "aten.combinations": check_combinations,
    "aten._ncf_unsqueeze": loop_count_check("ndim", 64),
    **rows_with_check(check_number_of_pieces, "aten.tensor_split aten.hsplit aten.vsplit aten.dsplit"),
    **rows_with_check(check_rounding_division, "aten.div aten.div_ aten.divide aten.divide_"),
    **rows_with_check(
        check_division, "aten.floor_divide aten.floor_divide_ aten.remainder aten.remainder_ aten.fmod aten.fmod_"
    ),
    **rows_with_check(check_copied_list, "aten._foreach_copy aten._foreach_copy_"),
    **rows_with_check(check_division, "prims.div prims.remainder prims.fmod"),
    **rows_with_check(
        check_convolution_kernel_size, "aten.slow_conv_transpose2d aten.slow_conv_transpose3d aten.slow_conv_dilated2d"
    ),
    **rows_with_check(
        check_convolution_kernel_size,
        "aten.slow_conv_dilated3d aten.slow_conv3d aten.slow_conv3d_forward aten.conv_depthwise3d",
    ),
    **rows_with_check(
        check_convolution_kernel_size, "aten._conv_depthwise2d aten.thnn_conv2d aten._slow_conv2d_forward"
    ),
}
"""The check of an operator, by its name without the overload."""


def family_check(packet: str) -> Check | None:
    """Return the check of a family of operators that are alike in their names, or None. `packet` is the operator's name
    without the overload."""
    if "batch_norm" in packet:
        return check_batch_norm
    if packet.startswith("aten._foreach_"):
        return check_list_lengths
    if packet.startswith("aten._sobol_engine_"):
        return check_sobol
    if packet.endswith("_window"):
        return loop_count_check("window_length", 2**26)
    if packet.startswith("aten._upsample_") and "_aa" in packet:
        return check_antialiased_resize
    if packet.startswith("aten.special_") and "polynomial" in packet:
        return loop_count_check("n")
    return None
