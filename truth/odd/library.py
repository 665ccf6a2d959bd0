"""Layers, losses and tools of the library that are known to be delicate."""

from typing import Any

import torch
from case import Case, attributes, bare, ints, leaf, many, rand, randn
from torch import nn
from torch.ao import quantization
from torch.nn import functional as F

LABELS = (0, 2, 1)


def labels() -> Any:
    """Three labels."""
    return torch.tensor(LABELS)


def attention(**more: Any) -> Any:
    """Multi-head attention on (batch, length, width)."""
    return nn.MultiheadAttention(4, 2, batch_first=True, **more)


def wrap(net: Any, forward: Any) -> Any:
    """A module around another."""
    return bare(lambda s: attributes(s, net=net), forward)


def ragged(cell: Any, enforce: bool = True) -> Case:
    """A recurrent layer on packed sequences whose lengths are a list."""

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, [4, 2], batch_first=True, enforce_sorted=enforce)
        out, state = self.net(packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True)[0], state

    return Case(wrap(cell, forward), randn(2, 4, 3))


def masked(pad: bool, causal: bool, need: bool) -> Case:
    """Attention with masks."""

    def forward(self, x, keep):
        mask = nn.Transformer.generate_square_subsequent_mask(3) if causal else None
        return self.net(
            x,
            x,
            x,
            key_padding_mask=~keep if pad else None,
            attn_mask=mask,
            need_weights=need,
            is_causal=causal and not need,
        )

    keep = torch.tensor([[True, True, True], [True, True, False]])
    return Case(wrap(attention(), forward), (randn(2, 3, 4), keep), others=[(randn(2, 3, 4), keep.flip(0))])


many(
    __name__,
    rnn=lambda: Case(nn.RNN(3, 4, 2), randn(5, 2, 3)),
    rnn_relu=lambda: Case(nn.RNN(3, 4, nonlinearity="relu"), randn(5, 2, 3)),
    lstm=lambda: Case(nn.LSTM(3, 4), randn(5, 2, 3)),
    lstm_both_ways=lambda: Case(nn.LSTM(3, 4, 2, bidirectional=True), randn(5, 2, 3)),
    lstm_projected=lambda: Case(nn.LSTM(3, 4, proj_size=2), randn(5, 2, 3)),
    lstm_with_state=lambda: Case(nn.LSTM(3, 4), (randn(5, 2, 3), (randn(1, 2, 4), randn(1, 2, 4, seed=2)))),
    lstm_unbatched=lambda: Case(nn.LSTM(3, 4), randn(5, 3)),
    gru_batch_first=lambda: Case(nn.GRU(3, 4, batch_first=True), randn(2, 5, 3)),
    gru_both_ways=lambda: Case(nn.GRU(3, 4, bidirectional=True), randn(5, 2, 3)),
    lstm_cell_loop=lambda: Case(wrap(nn.LSTMCell(3, 4), _cell_loop), randn(5, 2, 3)),
    lstm_packed=lambda: ragged(nn.LSTM(3, 4, batch_first=True)),
    gru_packed=lambda: ragged(nn.GRU(3, 4, batch_first=True), False),
    gru_packed_both_ways=lambda: ragged(nn.GRU(3, 4, batch_first=True, bidirectional=True)),
    sequences_packed_and_unpacked=lambda: Case(wrap(nn.GRU(3, 4), _unpacks), (randn(3, 3), randn(5, 3))),
    transformer_layer=lambda: Case(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), randn(2, 3, 4)),
    transformer_layer_dropout=lambda: Case(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), randn(2, 3, 4)),
    transformer_layer_eval=lambda: Case(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), randn(2, 3, 4)),
    transformer_layer_eval_frozen=lambda: Case(
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval().requires_grad_(False), randn(2, 3, 4)
    ),
    transformer_decoder_layer=lambda: Case(
        nn.TransformerDecoderLayer(4, 2, 8, 0.0, batch_first=True), (randn(2, 3, 4), randn(2, 5, 4, seed=2))
    ),
    transformer_whole=lambda: Case(
        nn.Transformer(4, 2, 1, 1, 8, 0.0, batch_first=True), (randn(2, 3, 4), randn(2, 2, 4, seed=2))
    ),
    transformer_padding=lambda: Case(
        wrap(
            nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), lambda s, x, m: s.net(x, src_key_padding_mask=m)
        ),
        (randn(2, 3, 4), torch.tensor([[False, False, True], [False, False, False]])),
        others=[(randn(2, 3, 4), torch.tensor([[False, False, False], [False, True, True]]))],
    ),
    attention_plain=lambda: Case(wrap(attention(), lambda s, x: s.net(x, x, x)), randn(2, 3, 4)),
    attention_eval=lambda: Case(
        wrap(attention(), lambda s, x: s.net(x, x, x, need_weights=False)).eval(), randn(2, 3, 4)
    ),
    attention_padded=lambda: masked(True, False, True),
    attention_causal=lambda: masked(False, True, False),
    attention_padded_and_causal=lambda: masked(True, True, True),
    attention_of_other_widths=lambda: Case(
        wrap(attention(kdim=3, vdim=5), lambda s, q, k, v: s.net(q, k, v)),
        (randn(2, 3, 4), randn(2, 6, 3), randn(2, 6, 5)),
    ),
    attention_with_bias_and_zero=lambda: Case(
        wrap(attention(add_bias_kv=True, add_zero_attn=True), lambda s, x: s.net(x, x, x)), randn(2, 3, 4)
    ),
    attention_by_function=lambda: Case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (randn(1, 2, 3, 4), randn(1, 2, 3, 4, seed=2), randn(1, 2, 3, 4, seed=3)),
    ),
    attention_grouped=lambda: Case(
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (randn(1, 4, 3, 4), randn(1, 2, 3, 4, seed=2)),
    ),
    attention_float_mask=lambda: Case(
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        (randn(1, 2, 3, 4), torch.zeros(3, 3).masked_fill(torch.eye(3) > 0, float("-inf"))),
        variants=False,
    ),
    bag_of_embeddings=lambda: Case(
        nn.EmbeddingBag(5, 3),
        (ints(6, high=5), torch.tensor([0, 2, 4])),
        others=[(ints(6, high=5), torch.tensor([0, 1, 5]))],
    ),
    bag_of_maxima=lambda: Case(nn.EmbeddingBag(5, 3, mode="max"), (ints(6, high=5), torch.tensor([0, 2, 4]))),
    bag_weighted=lambda: Case(
        lambda w, i, p: F.embedding_bag(i, w, torch.tensor([0, 3]), mode="sum", per_sample_weights=p),
        (leaf(5, 3), ints(6, high=5), leaf(6, seed=2)),
    ),
    bag_two_dimensional=lambda: Case(nn.EmbeddingBag(5, 3), ints(2, 3, high=5)),
    bag_with_an_empty=lambda: Case(nn.EmbeddingBag(5, 3), (ints(4, high=5), torch.tensor([0, 2, 2]))),
    embedding_padding=lambda: Case(
        nn.Embedding(5, 3, padding_idx=1), ints(4, high=5), others=[torch.tensor([1, 1, 0, 2])]
    ),
    embedding_renormalised=lambda: Case(
        nn.Embedding(5, 3, max_norm=0.5), ints(4, high=5), others=[torch.tensor([4, 0, 4, 2])]
    ),
    embedding_scaled_by_frequency=lambda: Case(
        nn.Embedding(5, 3, scale_grad_by_freq=True), torch.tensor([1, 1, 2, 4]), others=[torch.tensor([4, 0, 4, 4])]
    ),
    norm_of_layers=lambda: Case(nn.LayerNorm(4), randn(3, 4)),
    norm_of_groups=lambda: Case(nn.GroupNorm(2, 4), randn(2, 4, 3)),
    norm_of_instances=lambda: Case(nn.InstanceNorm2d(3), randn(2, 3, 2, 2)),
    norm_local_response=lambda: Case(nn.LocalResponseNorm(2), randn(2, 4, 3, 3)),
    norm_root_mean_square=lambda: Case(nn.RMSNorm(4), randn(3, 4)),
    norm_of_batches_2d=lambda: Case(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), randn(2, 3, 5, 5)),
    norm_of_batches_channels_last=lambda: Case(
        nn.BatchNorm2d(3).to(memory_format=torch.channels_last), randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    ),
    cross_entropy_ignoring=lambda: Case(
        lambda x, y: F.cross_entropy(x, y, ignore_index=1),
        (leaf(3, 4), labels()),
        others=[(leaf(3, 4), torch.tensor([1, 1, 1]))],
    ),
    cross_entropy_weighted=lambda: Case(
        lambda x, y: F.cross_entropy(x, y, weight=torch.tensor([1.0, 2, 3, 4])), (leaf(3, 4), labels())
    ),
    cross_entropy_smoothed=lambda: Case(
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), (leaf(3, 4), labels())
    ),
    cross_entropy_of_probabilities=lambda: Case(
        lambda x, y: F.cross_entropy(x, y.softmax(1)), (leaf(3, 4), randn(3, 4, seed=2))
    ),
    cross_entropy_ignoring_and_weighted=lambda: Case(
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2, 3, 4]), ignore_index=2, label_smoothing=0.1),
        (leaf(3, 4), labels()),
    ),
    cross_entropy_of_images=lambda: Case(lambda x, y: F.cross_entropy(x, y), (leaf(2, 4, 3, 3), ints(2, 3, 3))),
    likelihood_unreduced=lambda: Case(
        lambda x, y: F.nll_loss(x.log_softmax(1), y, reduction="none"), (leaf(3, 4), labels())
    ),
    loss_of_ctc=lambda: Case(
        lambda x, y: F.ctc_loss(x.log_softmax(-1), y, torch.tensor([8, 6]), torch.tensor([4, 3])),
        (leaf(8, 2, 5), ints(2, 4) + 1),
    ),
    loss_of_ctc_infinite=lambda: Case(
        lambda x, y: F.ctc_loss(x.log_softmax(-1), y, torch.tensor([2, 6]), torch.tensor([4, 3]), zero_infinity=True),
        (leaf(8, 2, 5), ints(2, 4) + 1),
    ),
    loss_huber=lambda: Case(lambda x, y: F.huber_loss(x, y) + F.smooth_l1_loss(x, y), (leaf(3), randn(3, seed=2))),
    loss_binary_weighted=lambda: Case(
        lambda x, y: F.binary_cross_entropy_with_logits(x, (y > 0).float(), pos_weight=torch.tensor(2.0)),
        (leaf(3), randn(3, seed=2)),
    ),
    loss_divergence=lambda: Case(
        lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), (leaf(3, 4), randn(3, 4, seed=2))
    ),
    loss_triplet=lambda: Case(
        lambda a, b, c: F.triplet_margin_loss(a, b, c, swap=True), (leaf(3, 4), leaf(3, 4, seed=2), leaf(3, 4, seed=3))
    ),
    loss_cosine_embedding=lambda: Case(
        lambda a, b: F.cosine_embedding_loss(a, b, torch.tensor([1, -1, 1])), (leaf(3, 4), leaf(3, 4, seed=2))
    ),
    loss_margin=lambda: Case(
        lambda x, y: F.multi_margin_loss(x, y) + F.multilabel_margin_loss(x, torch.tensor([[0, 2, -1, 1]] * 3)),
        (leaf(3, 4), labels()),
    ),
    loss_poisson=lambda: Case(
        lambda x, y: F.poisson_nll_loss(x, y.abs()) + F.gaussian_nll_loss(x, y, y.exp()), (leaf(3), randn(3, seed=2))
    ),
    loss_l1=lambda: Case(lambda x, y: F.l1_loss(x, y, reduction="sum"), (leaf(3), randn(3, seed=2))),
    loss_adaptive=lambda: Case(
        nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4]),
        (leaf(3, 4), torch.tensor([0, 5, 3])),
        others=[(leaf(3, 4), torch.tensor([0, 1, 0]))],
    ),
    loss_broadcasting=lambda: Case(lambda x, y: (x - y).square().mean(), (leaf(3, 1), randn(3, seed=2))),
    pool_with_indices=lambda: Case(lambda x: F.max_pool2d(x, 2, return_indices=True), leaf(1, 2, 4, 4)),
    pool_and_unpool=lambda: Case(
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), leaf(1, 2, 4, 4)
    ),
    pool_ceil=lambda: Case(
        lambda x: F.max_pool2d(x, 2, ceil_mode=True) + F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False),
        leaf(1, 2, 5, 5),
    ),
    pool_adaptive=lambda: Case(
        lambda x: (F.adaptive_avg_pool2d(x, (2, 3)), F.adaptive_max_pool2d(x, 2)), leaf(1, 2, 5, 5)
    ),
    pool_power=lambda: Case(lambda x: F.lp_pool2d(x, 2.0, 2), leaf(1, 2, 4, 4)),
    pool_dilated=lambda: Case(lambda x: F.max_pool1d(x, 2, dilation=2, padding=1), leaf(1, 2, 8)),
    convolution_grouped=lambda: Case(nn.Conv2d(4, 4, 3, groups=2, padding=1, dilation=2, stride=2), randn(1, 4, 7, 7)),
    convolution_circular=lambda: Case(nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), randn(1, 2, 6)),
    convolution_transposed=lambda: Case(nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), randn(1, 2, 3, 3)),
    convolution_same=lambda: Case(nn.Conv2d(2, 3, 4, padding="same"), randn(1, 2, 5, 5)),
    convolution_three=lambda: Case(nn.Conv3d(2, 3, 2), randn(1, 2, 3, 3, 3)),
    convolution_channels_last=lambda: Case(
        nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last),
        randn(1, 3, 5, 5).to(memory_format=torch.channels_last),
    ),
    convolution_unbatched=lambda: Case(nn.Conv2d(3, 4, 3), randn(3, 5, 5)),
    grid_sampled=lambda: Case(
        lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), (leaf(1, 2, 4, 4), leaf(1, 3, 3, 2, seed=2))
    ),
    grid_nearest=lambda: Case(
        lambda x, g: F.grid_sample(x, g.tanh(), mode="nearest", padding_mode="border", align_corners=True),
        (leaf(1, 2, 4, 4), leaf(1, 3, 3, 2, seed=2)),
    ),
    grid_affine=lambda: Case(
        lambda x, t: F.grid_sample(x, F.affine_grid(t, (1, 2, 3, 3), align_corners=False), align_corners=False),
        (leaf(1, 2, 4, 4), leaf(1, 2, 3, seed=2)),
    ),
    interpolated=lambda: Case(
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", align_corners=False), leaf(1, 2, 4, 4)
    ),
    interpolated_bicubic=lambda: Case(
        lambda x: F.interpolate(x, size=(3, 7), mode="bicubic", antialias=True), leaf(1, 2, 4, 4)
    ),
    interpolated_nearest=lambda: Case(
        lambda x: (F.interpolate(x, 3, mode="nearest"), F.interpolate(x, 3, mode="nearest-exact")), leaf(1, 2, 4)
    ),
    interpolated_recomputed=lambda: Case(
        lambda x: F.interpolate(x, scale_factor=0.6, recompute_scale_factor=True), leaf(1, 2, 7)
    ),
    pixels_shuffled=lambda: Case(lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2) * 2, 2), leaf(1, 4, 3, 3)),
    channels_shuffled=lambda: Case(lambda x: F.channel_shuffle(x, 2) * 2, leaf(1, 4, 3, 3)),
    folded=lambda: Case(lambda x: F.fold(F.unfold(x, 2) * 2, (4, 4), 2), leaf(1, 2, 4, 4)),
    cosine=lambda: Case(lambda a, b: F.cosine_similarity(a, b), (leaf(3, 4), leaf(3, 4, seed=2))),
    pairwise=lambda: Case(
        lambda a, b: F.pairwise_distance(a, b) + torch.cdist(a, b)[0], (leaf(3, 4), leaf(3, 4, seed=2))
    ),
    distances_to_itself=lambda: Case(lambda a: torch.cdist(a, a), leaf(3, 4)),
    normalised=lambda: Case(lambda a: F.normalize(a, dim=-1), leaf(3, 4)),
    bilinear=lambda: Case(nn.Bilinear(3, 4, 2), (randn(5, 3), randn(5, 4, seed=2))),
    activations=lambda: Case(
        lambda x: F.gelu(x) + F.gelu(x, approximate="tanh") + F.silu(x) + F.mish(x) + F.elu(x) + F.celu(x) + F.selu(x),
        leaf(3, 4),
    ),
    activations_hard=lambda: Case(
        lambda x: F.hardswish(x) + F.hardtanh(x) + F.hardsigmoid(x) + F.relu6(x) + F.softshrink(x) + F.tanhshrink(x),
        leaf(3, 4),
    ),
    activations_gated=lambda: Case(
        lambda x: F.glu(x) * F.logsigmoid(x[:, :2]) + F.softplus(x[:, 2:]) + F.threshold(x[:, :2], 0.1, 0.5), leaf(3, 4)
    ),
    activation_with_parameter=lambda: Case(nn.PReLU(4), randn(3, 4)),
    unflattened=lambda: Case(nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 4)), nn.Softmax(-1)), randn(3, 2, 4)),
    padding_layers=lambda: Case(
        nn.Sequential(nn.ReflectionPad2d(1), nn.ReplicationPad2d(1), nn.ZeroPad2d(1), nn.CircularPad2d(1)),
        randn(1, 2, 3, 3),
    ),
    upsampled=lambda: Case(nn.Upsample(scale_factor=2, mode="trilinear"), randn(1, 2, 2, 2, 2)),
    observers_for_quantization=lambda: Case(quantization.FusedMovingAvgObsFakeQuantize(), randn(3, 4)),
    observer_minmax=lambda: Case(quantization.MinMaxObserver(), randn(3, 4)),
    observer_moving=lambda: Case(
        quantization.FakeQuantize(observer=quantization.MovingAverageMinMaxObserver), randn(3, 4)
    ),
    observer_histogram=lambda: Case(quantization.HistogramObserver(), randn(3, 4)),
    learnable_quantization=lambda: Case(_learnable(), randn(3, 4)),
    mixture_of_experts=lambda: Case(_experts(), randn(6, 4), others=[randn(6, 4, seed=7)]),
    mixture_dense=lambda: Case(_dense_experts(), randn(6, 4)),
    message_passing=lambda: Case(
        lambda x, e: torch.zeros(4, 2).index_add(0, e[1], x[e[0]]),
        (leaf(4, 2), ints(2, 7)),
        others=[(leaf(4, 2), ints(2, 7, seed=3))],
    ),
    scatter_mean=lambda: Case(
        lambda x, i: torch.zeros(4, 2).scatter_reduce(0, i[:, None].expand(6, 2), x, "mean", include_self=False),
        (leaf(6, 2), ints(6)),
        others=[(leaf(6, 2), ints(6, seed=3))],
    ),
    segment_reduced=lambda: Case(lambda x: torch.segment_reduce(x, "mean", lengths=torch.tensor([2, 3])), leaf(5, 2)),
    beam_search=lambda: Case(_beam, randn(3, 5), others=[-randn(3, 5)]),
    greedy_decoding=lambda: Case(_greedy(), torch.tensor([1]), others=[torch.tensor([3])]),
    non_maximum_suppression=lambda: Case(
        _suppress, (rand(5, 2), rand(5, seed=2)), others=[(rand(5, 2, seed=4), rand(5, seed=5))]
    ),
    positional_table=lambda: Case(_positions(), ints(2, 3, high=5)),
    windowed_attention=lambda: Case(_windows, leaf(1, 8, 4)),
    nested_tensor_inside=lambda: Case(
        lambda x: torch.nested.nested_tensor([x[:1], x]).to_padded_tensor(0.0).sum() * x, randn(3, 4)
    ),
    jagged_inside=lambda: Case(
        lambda x: torch.nested.nested_tensor([x[:1], x], layout=torch.jagged).sum(1) * 2, randn(3, 4)
    ),
    masked_library=lambda: Case(
        lambda x: torch.masked.masked_tensor(x.detach(), x.detach() > 0).sum().get_data() * x, randn(3, 4)
    ),
    matrix_norms=lambda: Case(
        lambda x: torch.linalg.matrix_norm(x) + torch.linalg.vector_norm(x, 3) + torch.linalg.cond(x), leaf(3, 3)
    ),
    least_squares=lambda: Case(lambda a, b: torch.linalg.lstsq(a, b).solution, (leaf(5, 3), leaf(5, 2, seed=2))),
    qr_decomposition=lambda: Case(lambda x: torch.linalg.qr(x), leaf(4, 3)),
    eigenvectors=lambda: Case(lambda x: torch.linalg.eigh(x @ x.t() + torch.diag(torch.arange(3.0)))[0], leaf(3, 3)),
    complex_eigenvalues=lambda: Case(lambda x: torch.linalg.eigvals(x).abs().sum(), leaf(3, 3)),
    determinant=lambda: Case(lambda x: torch.linalg.slogdet(x), leaf(3, 3)),
    triangular=lambda: Case(
        lambda x: torch.linalg.solve_triangular(x.tril() + 3 * torch.eye(3), x, upper=False), leaf(3, 3)
    ),
    median_and_mode=lambda: Case(
        lambda x: (x.median(), x.mode(0).values, x.kthvalue(2, 0).values, x.nanmedian()), leaf(3, 4)
    ),
    quantiles=lambda: Case(lambda x: torch.quantile(x, torch.tensor([0.2, 0.7]), dim=0), leaf(3, 4)),
    special_functions=lambda: Case(
        lambda x: (
            torch.special.erfinv(x.tanh())
            + torch.lgamma(x.abs() + 1)
            + torch.special.i0(x)
            + torch.digamma(x.abs() + 1)
        ),
        leaf(3),
    ),
    trapezoid=lambda: Case(
        lambda x: torch.trapezoid(x) + torch.cumulative_trapezoid(x)[..., 0] + torch.diff(x)[..., 0], leaf(3, 4)
    ),
    gradient_of_torch=lambda: Case(lambda x: torch.gradient(x)[0] + torch.kron(x, x)[:4], leaf(4)),
    convolution_by_function=lambda: Case(lambda x, w: F.conv1d(x, w, groups=2), (leaf(1, 4, 6), leaf(4, 2, 3, seed=2))),
    mesh=lambda: Case(lambda a, b: torch.stack(torch.meshgrid(a, b, indexing="ij")), (leaf(3), leaf(2, seed=2))),
    loops_over_layers=lambda: Case(_layers(), (randn(3, 4), 2), others=[(randn(3, 4), 3), (randn(3, 4), 1)]),
    tree_recursive=lambda: Case(
        _tree(), ((randn(4), (randn(4, seed=2), randn(4, seed=3))),), others=[(((randn(4), randn(4)), randn(4)),)]
    ),
    unused_layers=lambda: Case(_layers(), (randn(3, 4), 0)),
    skips_by_training=lambda: Case(_auxiliary(), randn(3, 4)),
    skips_by_training_eval=lambda: Case(_auxiliary().eval(), randn(3, 4)),
)


def _cell_loop(self: Any, x: Any) -> Any:
    h = c = torch.zeros(2, 4)
    out = []
    for step in x:
        h, c = self.net(step, (h, c))
        out.append(h)
    return torch.stack(out), c


def _unpacks(self: Any, *xs: Any) -> Any:
    out, _ = self.net(nn.utils.rnn.pack_sequence(xs, enforce_sorted=False))
    return nn.utils.rnn.unpack_sequence(out)


def _learnable() -> Any:
    def init(self):
        self.l, self.scale = nn.Linear(4, 4), nn.Parameter(torch.tensor([0.1]))

    def forward(self, x):
        zero = torch.zeros(1)
        weight = torch._fake_quantize_learnable_per_tensor_affine(self.l.weight, self.scale, zero, -8, 7, 1.0)
        return F.linear(x, weight, self.l.bias)

    return bare(init, forward)


def _experts() -> Any:
    def init(self):
        self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).topk(1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (chosen[:, 0] == i).nonzero(as_tuple=True)[0]
            if rows.numel():
                out = out.index_add(0, rows, expert(x[rows]) * weight[rows])
        return out

    return bare(init, forward)


def _dense_experts() -> Any:
    def init(self):
        self.gate, self.experts = nn.Linear(4, 3), nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        weight = self.gate(x).softmax(-1)
        return sum(weight[:, i : i + 1] * e(x) for i, e in enumerate(self.experts))

    return bare(init, forward)


def _beam(x: Any) -> Any:
    score, index = x[0].log_softmax(0).topk(2)
    for step in x[1:]:
        total = (score[:, None] + step.log_softmax(0)).flatten()
        score, index = total.topk(2)
    return score, index % 5


def _greedy() -> Any:
    def init(self):
        self.e, self.d = nn.Embedding(5, 4), nn.Linear(4, 5)

    def forward(self, token):
        out = [int(token)]
        total = 0.0
        for _ in range(3):
            logits = self.d(self.e(torch.tensor([out[-1]])))
            out.append(int(logits.argmax()))
            total = total + logits.logsumexp(1)
        return total, out

    return bare(init, forward)


def _suppress(boxes: Any, scores: Any) -> Any:
    order, kept = scores.argsort(descending=True).tolist(), []
    while order:
        best = order.pop(0)
        kept.append(best)
        order = [o for o in order if (boxes[o] - boxes[best]).abs().max() > 0.3]
    return boxes[kept] * scores[kept, None]


def _positions() -> Any:
    def init(self):
        self.e, self.p = nn.Embedding(5, 4), nn.Embedding(8, 4)
        self.register_buffer("ids", torch.arange(8)[None], persistent=False)

    def forward(self, i):
        return self.e(i) + self.p(self.ids[:, : i.shape[1]])

    return bare(init, forward)


def _windows(x: Any) -> Any:
    b, n, c = x.shape
    y = torch.roll(x, -1, 1).view(b, n // 4, 4, c)
    y = F.scaled_dot_product_attention(y, y, y)
    return torch.roll(y.reshape(b, n, c), 1, 1)


def _layers() -> Any:
    def forward(self, x, n):
        for layer in self.layers[:n]:
            x = torch.tanh(layer(x))
        return x * 1

    return bare(lambda s: attributes(s, layers=nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])), forward)


def _tree() -> Any:
    def forward(self, node):
        if isinstance(node, tuple):
            return torch.tanh(self.net(torch.cat([self(child) for child in node])))
        return node * 2

    return wrap(nn.Linear(8, 4), forward)


def _auxiliary() -> Any:
    def init(self):
        self.l, self.head = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        y = self.l(x)
        return (y, self.head(y)) if self.training else y

    return bare(init, forward)
