"""Tables from an operator's name, without namespace and overload, to the formula of its floating-point operations."""

from __future__ import annotations

from collections.abc import Mapping

from backprint.graph.costing.formulas import (
    Formula,
    causal,
    contracted,
    convolution_gradients,
    convolved,
    distances,
    einsum,
    elements_of,
    factored,
    later_weights,
    layer,
    listed_weights,
    of_products,
    pooled,
    recurrent,
    rows_of,
    solved,
    spread,
    times_result,
    transformed,
)
from backprint.graph.costing.products import FLOPS, product

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


def for_all(names: str, formula: Formula) -> dict[str, Formula]:
    """Return the same formula for each of these operators."""
    return dict.fromkeys(names.split(), formula)


PRODUCTS: Mapping[str, Formula] = {
    **FLOPS,
    **{name: causal(name, place) for name, place in CAUSAL.items()},
    "convolution_backward": convolution_gradients,
    "_int_mm": product(0, 1),
    **for_all("addbmm _addmm_activation", product(1, 2)),
    **for_all("addmv", elements_of(1, 2)),
    **for_all("mv dot vdot linalg_vecdot", elements_of(0, 2)),
    **for_all("linear mkldnn_linear", layer(1)),
    **for_all("matmul inner", contracted),
    "einsum": einsum,
    "_trilinear": of_products,
    **for_all(
        "conv1d conv2d conv3d mkldnn_convolution _slow_conv2d_forward thnn_conv2d slow_conv3d slow_conv3d_forward "
        "slow_conv_dilated2d slow_conv_dilated3d _conv_depthwise2d conv_depthwise3d",
        convolved,
    ),
    **for_all("conv_transpose1d conv_transpose2d conv_transpose3d slow_conv_transpose2d slow_conv_transpose3d", spread),
    **for_all("lstm gru rnn_tanh rnn_relu _cudnn_rnn", recurrent(listed_weights)),
    **for_all("lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell", recurrent(later_weights)),
    "mkldnn_rnn_layer": recurrent(later_weights),
    "mkldnn_rnn_layer_backward": recurrent(later_weights, 2),
    **for_all("linalg_cholesky linalg_cholesky_ex cholesky", factored(lambda m, n: n**3 / 3)),
    **for_all(
        "linalg_lu linalg_lu_factor linalg_lu_factor_ex linalg_det _linalg_det _linalg_slogdet linalg_slogdet "
        "_lu_with_info linalg_ldl_factor linalg_ldl_factor_ex",
        factored(lambda m, n: m * n**2 - n**3 / 3),
    ),
    **for_all("linalg_inv linalg_inv_ex inverse linalg_matrix_exp matrix_exp", factored(lambda m, n: 2 * n**3)),
    **for_all("cholesky_inverse", factored(lambda m, n: 2 * n**3 / 3)),
    **for_all("linalg_qr qr", factored(lambda m, n: 4 * m * n**2 - 4 * n**3 / 3)),
    **for_all(
        "geqrf linalg_householder_product orgqr linalg_lstsq", factored(lambda m, n: 2 * m * n**2 - 2 * n**3 / 3)
    ),
    **for_all("_linalg_svd linalg_svd svd", factored(lambda m, n: 14 * m * n**2 + 8 * n**3)),
    **for_all("linalg_svdvals", factored(lambda m, n: 4 * m * n**2 - 4 * n**3 / 3)),
    **for_all("_linalg_eigh linalg_eigh", factored(lambda m, n: 9 * n**3)),
    **for_all("linalg_eigvalsh", factored(lambda m, n: 4 * n**3 / 3)),
    **for_all("linalg_eig", factored(lambda m, n: 25 * n**3)),
    **for_all("linalg_eigvals _linalg_eigvals", factored(lambda m, n: 10 * n**3)),
    **for_all("_linalg_solve_ex linalg_solve linalg_solve_ex", solved(0, 1, 2 / 3, 2)),
    **for_all("linalg_solve_triangular", solved(0, 1, 0, 1)),
    **for_all("triangular_solve", solved(1, 0, 0, 1)),
    **for_all("cholesky_solve _cholesky_solve_helper", solved(1, 0, 0, 2)),
    **for_all("linalg_lu_solve linalg_ldl_solve", solved(0, 2, 0, 2)),
    "ormqr": solved(0, 2, 0, 4),
}
"""Products, where a complex operation takes four of real numbers."""


# ------------------------------------------------------------------ elements

OTHERS: Mapping[str, Formula] = {
    **for_all("_fft_c2c fft_c2c", transformed(5)),
    **for_all("_fft_r2c _fft_c2r fft_r2c", transformed(2.5)),
    **for_all("avg_pool1d avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices max_pool1d", pooled),
    **for_all("max_pool2d max_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d", elements_of(0)),
    **for_all("adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d", elements_of(0)),
    **for_all("max_pool2d_with_indices_backward max_pool3d_with_indices_backward", elements_of(0)),
    **for_all("adaptive_max_pool2d_backward adaptive_max_pool3d_backward", elements_of(0)),
    **for_all("fractional_max_pool2d_backward fractional_max_pool3d_backward", elements_of(0)),
    **for_all("upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward", elements_of(0)),
    **for_all("_upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward", elements_of(0)),
    **for_all("_upsample_nearest_exact3d_backward", elements_of(0)),
    **for_all("upsample_linear1d", times_result(4)),
    **for_all("upsample_bilinear2d _upsample_bilinear2d_aa", times_result(8)),
    **for_all("upsample_trilinear3d", times_result(16)),
    **for_all("upsample_bicubic2d _upsample_bicubic2d_aa", times_result(32)),
    **for_all("upsample_linear1d_backward", elements_of(0, 4)),
    **for_all("upsample_bilinear2d_backward _upsample_bilinear2d_aa_backward", elements_of(0, 8)),
    **for_all("upsample_trilinear3d_backward", elements_of(0, 16)),
    **for_all("upsample_bicubic2d_backward _upsample_bicubic2d_aa_backward", elements_of(0, 32)),
    **for_all("grid_sampler_2d", times_result(8)),
    **for_all("grid_sampler_3d", times_result(16)),
    **for_all("grid_sampler_2d_backward", elements_of(0, 16)),
    **for_all("grid_sampler_3d_backward", elements_of(0, 32)),
    **for_all("_cdist_forward _euclidean_dist cdist", distances(0)),
    "_cdist_backward": distances(1),
    **for_all("_softmax _log_softmax softmax log_softmax _safe_softmax logsumexp", elements_of(0, 4)),
    **for_all("_softmax_backward_data _log_softmax_backward_data", elements_of(0, 4)),
    **for_all(
        "layer_norm group_norm batch_norm instance_norm native_layer_norm native_group_norm native_batch_norm "
        "_native_batch_norm_legit _fused_rms_norm rms_norm "
        "_native_batch_norm_legit_functional _batch_norm_with_update_functional _batch_norm_with_update",
        elements_of(0, 5),
    ),
    **for_all("_native_batch_norm_legit_no_training _batch_norm_no_update", elements_of(0, 2)),
    **for_all(
        "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward batch_norm_backward "
        "_fused_rms_norm_backward",
        elements_of(0, 8),
    ),
    **for_all("_weight_norm_interface", elements_of(0, 3)),
    **for_all("_weight_norm_interface_backward", elements_of(0, 5)),
    **for_all("addcmul addcdiv lerp", times_result(3)),
    **for_all("gelu gelu_backward silu_backward mish_backward", times_result(4)),
    **for_all("var std var_mean std_mean", elements_of(0, 3)),
    **for_all("binary_cross_entropy binary_cross_entropy_with_logits", elements_of(0, 4)),
    **for_all("linalg_vector_norm norm native_norm mse_loss", elements_of(0, 2)),
    **for_all("_thnn_fused_lstm_cell _thnn_fused_gru_cell", elements_of(0)),
    **for_all(
        "sum mean prod amax amin max min aminmax argmax argmin nansum nanmean all any median nanmedian mode kthvalue "
        "count_nonzero cumsum cumprod cummax cummin _cummax_helper _cummin_helper logcumsumexp _logcumsumexp trace "
        "sort argsort msort topk unique_consecutive _unique2 unique_dim searchsorted bucketize histc bincount "
        "value_selecting_reduction_backward cumprod_backward masked_scatter_backward _pdist_forward renorm "
        "embedding_dense_backward embedding_backward segment_reduce _segment_reduce_backward nonzero equal "
        "unfold_backward as_strided_scatter _embedding_bag_dense_backward linalg__powsum _aminmax quantile "
        "_unsafe_masked_index_put_accumulate avg_pool2d_backward avg_pool3d_backward kl_div l1_loss smooth_l1_loss "
        "huber_loss soft_margin_loss nll_loss nll_loss2d _adaptive_avg_pool2d_backward col2im",
        elements_of(0),
    ),
    **for_all("nll_loss_forward nll_loss2d_forward", elements_of(1)),
    **for_all("index_add scatter_add scatter_reduce index_reduce", elements_of(3)),
    **for_all("index_put _unsafe_index_put _index_put_impl", elements_of(2)),
    **for_all("_embedding_bag _embedding_bag_forward_only", rows_of(0)),
    "_embedding_bag_backward": rows_of(0),
    **for_all("reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward", elements_of(0)),
    **for_all("replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward", elements_of(0)),
}
"""Operators that count more, or others, than the elements of their results."""

ELEMENTWISE = frozenset(
    """
    abs neg negative add sub rsub mul div true_divide floor_divide remainder fmod pow square sqrt rsqrt reciprocal
    exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh sinc
    sigmoid hardsigmoid hardswish hardtanh relu relu6 leaky_relu prelu _prelu_kernel elu celu selu silu mish
    softplus softshrink hardshrink threshold log_sigmoid_forward glu rrelu rrelu_with_noise
    rrelu_with_noise_functional erf erfc erfinv lgamma digamma polygamma mvlgamma igamma igammac i0 ceil floor round
    trunc frac sign sgn signbit clamp clamp_min clamp_max clip maximum minimum fmax fmin eq ne lt le gt ge isnan
    isinf isfinite isposinf isneginf isclose nan_to_num where masked_fill logical_and logical_or logical_not
    logical_xor copysign hypot nextafter ldexp frexp logaddexp logaddexp2 xlogy heaviside logit deg2rad rad2deg
    angle polar conj_physical _conj_physical dropout native_dropout alpha_dropout bernoulli outer ger addr kron
    cross linalg_cross tril triu dist truediv floordiv mod float_power linspace logspace diff gcd lcm tanh_backward
    sigmoid_backward threshold_backward elu_backward leaky_relu_backward hardsigmoid_backward hardswish_backward
    hardtanh_backward hardshrink_backward softshrink_backward softplus_backward log_sigmoid_backward glu_backward
    logit_backward _prelu_kernel_backward native_dropout_backward mse_loss_backward smooth_l1_loss_backward
    huber_loss_backward soft_margin_loss_backward binary_cross_entropy_backward nll_loss_backward
    nll_loss2d_backward _pdist_backward rrelu_with_noise_backward _adaptive_avg_pool3d_backward multi_margin_loss
    multi_margin_loss_backward multilabel_margin_loss_forward multilabel_margin_loss_backward _masked_scale
    sum_to_size entr ndtri log_ndtr erfcx i0e i1 i1e zeta xlog1py bessel_j0 bessel_j1 bessel_y0 bessel_y1 airy_ai
    modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0
    scaled_modified_bessel_k1 spherical_bessel_j0 fake_quantize_per_tensor_affine_cachemask
    fake_quantize_per_channel_affine_cachemask _standard_gamma _standard_gamma_grad _dirichlet_grad binomial
    _sample_dirichlet im2col linalg_matrix_norm isin affine_grid_generator absolute arccos arccosh arcsin arcsinh
    arctan arctan2 arctanh multiply subtract divide greater greater_equal less less_equal not_equal dist_backward
    _fused_dropout fake_quantize_per_tensor_affine_cachemask_backward
    fake_quantize_per_channel_affine_cachemask_backward lshift rshift and_ or_ xor not_ invert is_ is_not pos
    chebyshev_polynomial_t hermite_polynomial_h legendre_polynomial_p laguerre_polynomial_l gammainc gammaincc
    gammaln psi expit ndtr bitwise_and bitwise_or bitwise_xor bitwise_not cbrt convert_element_type normal
    normal_functional randn randn_like uniform rand rand_like exponential cauchy log_normal geometric random poisson
    multinomial randint randint_like randperm
    """.split()
)
"""One for each element of the results. A random number is one too."""

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
"""No arithmetic."""


def complex_factor(name: str) -> int:
    """Return how many operations of real numbers one of complex numbers takes: transforms are counted in real ones."""
    return 1 if name.startswith("_fft") else 4 if name in PRODUCTS else 2
