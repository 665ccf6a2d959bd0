"""Small sizes for any configuration of transformers: one table, by the names of fields.

A configuration's fields say what they are by their names (`n_embd`, `num_hidden_layers`), directly or through its
`attribute_map`. Each of these names is a row of a table with the size that it gets; the configuration is then made anew
with these sizes, so that what it derives (layer types, head dimensions) fits them. Nested ones are made first.

In CONSTRAINTS are functions of a configuration, the `changes` of its fields so far, and the sizes: each changes them
where fields must fit together. A *default* is the value that a field has in the configuration of full size.

    >>> small_config(AutoConfig.for_model("gpt2"), Sizes(layers=3))
    GPT2Config {"n_embd": 64, "n_layer": 3, "n_head": 4, ...}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a small model: how many layers, features of a token, heads of attention, words of the vocabulary,
    tokens of a text, and the height and width of an image. `given` names those that the user gave."""

    layers: int = 2
    hidden: int = 64
    heads: int = 4
    vocab: int = 99
    tokens: int = 16
    image: int = 32
    given: frozenset[str] = frozenset()

    @property
    def head(self) -> int:
        """The features of a head."""
        return self.hidden // self.heads

    def of(self, word: str, default: int) -> int:
        """Return the size of this name; the default, where that is smaller and the user has not given the size."""
        size: int = getattr(self, word)
        return size if word in self.given else min(size, default)


SMALL = Sizes()
"""The sizes of a name that says none."""

Rule = Callable[[Sizes, int], int]
"""A field's small value, from the sizes and its own default."""


def _rules(rule: Rule, names: str) -> dict[str, Rule]:
    """Return one rule for each of these names of fields."""
    return dict.fromkeys(names.split(), rule)


def _at_most(most: int) -> Rule:
    """Return the rule of a size that is the default, or `most` if that is smaller."""
    return lambda sizes, default: min(most, default)


INTEGERS: Mapping[str, Rule] = {
    **_rules(
        lambda sizes, default: sizes.of("layers", default),
        "num_hidden_layers n_layer n_layers num_layers layers depth encoder_layers decoder_layers "
        "num_encoder_layers num_decoder_layers decoder_num_hidden_layers encoder_num_hidden_layers "
        "decoder_num_layers l_layers x_layers r_layers speech_encoder_layers t2u_encoder_layers "
        "t2u_decoder_layers num_blocks conf_num_hidden_layers num_spatial_layers num_temporal_layers "
        "text_encoder_num_layers pred_num_hidden_layers num_self_attends_per_block memory_attention_num_layers "
        "resampler_depth aligner_num_add_layers num_attention_layers num_loops prompt_num_hidden_layers "
        "mit_num_hidden_layers cross_layers num_layers_per_stack",
    ),
    **_rules(
        lambda sizes, default: sizes.hidden,
        "hidden_size n_embd d_model dim hidden_dim emb_dim d_embed out_hidden_size text_hidden_size "
        "vision_hidden_size encoder_hidden_size decoder_hidden_size output_hidden_size pooler_output_size "
        "pooler_hidden_size word_embed_proj_dim attention_hidden_size cross_hidden_size encoder_hidden_dim "
        "decoder_hidden_dim hidden_size_global lru_width backbone_hidden_size projection_size project_dim "
        "embedding_size image_text_hidden_size d_latents memory_attention_hidden_size memory_encoder_hidden_size "
        "fpn_hidden_size merged_hidden_size true_hidden_size moe_hidden_size vision_output_dim output_dim vit_dim "
        "class_embed_dim head_hidden_size adapter_out_dim projector_output_dim qformer_hidden_size "
        "text_encoder_width fusion_hidden_size pred_hidden_size image_token_embed_dim mit_hidden_size conv_dim "
        "mask_dim mask_feature_size output_proj_dims mm_embed_dim audio_embed_dim",
    ),
    **_rules(
        lambda sizes, default: sizes.heads,
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
        "attention_heads num_encoder_attention_heads num_decoder_attention_heads decoder_num_attention_heads "
        "encoder_num_attention_heads speech_encoder_attention_heads t2u_encoder_attention_heads "
        "t2u_decoder_attention_heads swa_num_attention_heads num_self_attention_heads num_cross_attention_heads "
        "cross_num_attention_heads conf_num_attention_heads decoder_self_attention_heads "
        "decoder_cross_attention_heads decoder_num_heads resampler_heads resampler_n_heads "
        "pred_num_attention_heads prompt_num_attention_heads mit_num_attention_heads num_sliding_attention_heads "
        "index_n_heads",
    ),
    **_rules(
        lambda sizes, default: default if default == 1 else max(1, sizes.heads // 2),
        "num_key_value_heads swa_num_key_value_heads num_kv_heads kv_n_heads num_query_groups "
        "num_key_value_attention_heads",
    ),
    **_rules(
        lambda sizes, default: sizes.heads,
        "cross_num_key_value_heads decoder_num_key_value_heads encoder_num_key_value_heads linear_num_value_heads "
        "linear_num_heads",
    ),
    **_rules(lambda sizes, default: max(1, sizes.heads // 2), "linear_num_key_heads"),
    **_rules(
        lambda sizes, default: 2 * sizes.hidden,
        "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim d_inner mlp_dim "
        "intermediate_size_mlp ffn_hidden_size decoder_intermediate_size speech_encoder_intermediate_size "
        "t2u_encoder_ffn_dim t2u_decoder_ffn_dim encoder_feedforward_dim dim_feedforward encoder_dim_feedforward "
        "decoder_dim_feedforward dff dim_ff projector_hidden_size projection_hidden_size "
        "memory_attention_feed_forward_hidden_size expert_ffn_hidden_size feed_forward_size "
        "dense_intermediate_size mit_intermediate_size resampler_mlp_size memory_fuser_intermediate_dim "
        "projection_intermediate_size projection_intermediate_dim",
    ),
    **_rules(
        lambda sizes, default: min(default, sizes.hidden),
        "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size projection_dim "
        "embedding_dim classifier_proj_size xvector_output_dim codevector_dim proj_codevector_dim "
        "moe_shared_expert_intermediate_size head_hidden_dim iou_head_hidden_dim share_expert_dim "
        "shared_experts_intermediate_size hidden_size_per_layer_input lqe_hidden_dim subsampling_conv_channels "
        "conv_channels neck_out_channels kernel_predictor_hidden_channels entity_emb_size aspp_out_channels "
        "mask_downsampler_embed_dim memory_fuser_embed_dim memory_encoder_output_channels "
        "duration_predictor_channels energy_predictor_channels pitch_predictor_channels "
        "speech_decoder_prenet_units speech_decoder_postnet_units upsample_initial_channel adapter_rank "
        "bottleneck_features bin_embedding_dim num_filters base_channels",
    ),
    **_rules(
        lambda sizes, default: sizes.head,
        "head_dim d_kv d_head swa_head_dim cross_head_dim attention_head_size kv_channels dim_head "
        "resampler_head_dim resampler_dim_head linear_key_head_dim linear_value_head_dim linear_head_dim "
        "mamba_d_head index_head_dim",
    ),
    **_rules(lambda sizes, default: min(default, sizes.head // 2), "qk_rope_head_dim qk_nope_head_dim rotary_dim"),
    **_rules(lambda sizes, default: sizes.head, "qk_head_dim v_head_dim"),
    **_rules(lambda sizes, default: sizes.hidden // 2, "q_lora_rank kv_lora_rank o_lora_rank"),
    **_rules(
        lambda sizes, default: sizes.of("vocab", default),
        "vocab_size text_vocab_size decoder_vocab_size src_vocab_size tgt_vocab_size vocab_size_per_layer_input "
        "t2u_vocab_size unpadded_vocab_size entity_vocab_size char_vocab_size text_encoder_vocab_size",
    ),
    **_rules(
        lambda sizes, default: min(default, max(64, 4 * sizes.tokens)),
        "max_position_embeddings n_positions max_seq_len n_ctx seq_length max_target_positions context_length "
        "max_encoder_position_embeddings max_decoder_position_embeddings max_text_positions max_speech_positions "
        "max_2d_position_embeddings t2u_max_position_embeddings seq_len",
    ),
    **_rules(_at_most(64), "max_source_positions num_position_embeddings"),
    **_rules(
        _at_most(4),
        "mm_tokens_per_image num_local_experts num_experts n_routed_experts moe_num_experts num_routed_experts n_group",
    ),
    **_rules(
        _at_most(2),
        "num_experts_per_tok num_experts_per_token moe_topk moe_k moe_top_k topk_group encoder_sparse_step "
        "decoder_sparse_step num_codebooks num_quantizers n_group num_conv_pos_embedding_groups attn_layer_period "
        "mask_time_length",
    ),
    **_rules(
        _at_most(1),
        "num_sparse_encoder_layers num_sparse_decoder_layers first_k_dense_replace attn_layer_offset "
        "num_dense_layers n_shared_experts moe_num_shared_experts moe_layer_start_index",
    ),
    **_rules(_at_most(8), "expert_capacity sliding_window attention_window local_attention attention_chunk_size"),
    **_rules(_at_most(8), "state_size mamba_d_state mamba_dt_rank time_step_rank ssm_state_size index_topk chunk_size"),
    **_rules(_at_most(8), "mamba_chunk_size attention_window_size local_attention_window_len"),
    **_rules(_at_most(16), "num_conv_pos_embeddings codebook_size num_codevectors_per_group"),
    **_rules(_at_most(4), "mask_feature_length num_frames frames_per_clip num_negatives"),
    **_rules(
        lambda sizes, default: sizes.image if default > sizes.image or "image" in sizes.given else default,
        "image_size input_size pretrain_image_size img_size",
    ),
    **_rules(_at_most(8), "patch_size"),
    **_rules(_at_most(4), "window_size"),
    **_rules(_at_most(16), "num_queries num_query_tokens num_denoising num_detection_tokens num_latents"),
    **_rules(_at_most(16), "embed_dim"),
    **_rules(_at_most(32), "stem_channels depth_divisor input_embedding_size"),
}
"""The small value of a field that is a number."""

Lists = Callable[[tuple[int, ...]], list[int]]


def _widths(values: tuple[int, ...]) -> list[int]:
    """Return widths of stages in the same proportions, the narrowest 16, all multiples of 8; widths that are so narrow
    already stay."""
    least = min(values)
    return list(values) if least <= 16 else [max(16, round(value / least * 2) * 8) for value in values]


def _heads(values: tuple[int, ...]) -> list[int]:
    """Return heads of stages in the same proportions, the fewest 1; as they are, if that makes no whole numbers."""
    least = min(values)
    return [value // least for value in values] if all(value % least == 0 for value in values) else list(values)


LISTS: Mapping[str, Lists] = {
    "depths": lambda values: [1 for _ in values],
    "hidden_sizes": _widths,
    "neck_hidden_sizes": lambda values: [min(value, 32) for value in values],
    "embed_dim": _widths,
    "embed_dims": _widths,
    "encoder_hidden_sizes": _widths,
    "num_heads": _heads,
    "num_attention_heads": _heads,
    "conv_dim": lambda values: [32 for _ in values],
    "tdnn_dim": lambda values: [32 for _ in values],
    "eos_token_id": lambda values: [2],
    "block_sizes": lambda values: [1 for _ in values],
    "num_block_repeats": lambda values: [1 for _ in values],
    "stage_num_blocks": lambda values: [1 for _ in values],
    "blocks_per_stage": lambda values: [1 for _ in values],
    "conv_depths": lambda values: [1 for _ in values],
}
"""The small value of a field that is a list of numbers."""

SET: Mapping[str, Any] = {
    "use_cache": False,
    "use_pretrained_backbone": False,
    "ctc_zero_infinity": True,
    "use_mamba_kernels": False,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_eos_token_id": None,
    "forced_bos_token_id": None,
}
"""Fields that get the same value in each configuration, small or not: no weights, no caches of generation."""

STAGES = ("num_stages", "num_encoder_blocks")
"""Counts of stages stay: the lists of what each stage has are as long."""

MISSING: Mapping[str, Callable[[Sizes], int]] = {
    "vocab_size": lambda sizes: sizes.vocab,
    "num_experts_per_tok": lambda sizes: 2,
}
"""Fields that some configurations leave open, and that a model needs."""

SPECIAL = ("pad", "bos", "eos", "sep", "mask", "cls")
"""Tokens with a meaning of their own, by the beginning of `…_token_id`: beyond the words they get the first ids."""


def small_config(config: Any, sizes: Sizes, own: Mapping[str, Any] | None = None) -> Any:
    """Return a configuration of the same class with small sizes, and with the fields in `own`, which are taken as they
    are.

    A BertConfig has 12 layers of 768 numbers; with the default sizes it gets 2 of 64. Its `model_type` stays.
    """
    count_of_types = len(_layer_types_of(config))
    if count_of_types > sizes.layers and "layers" not in sizes.given:
        sizes = replace(sizes, layers=count_of_types)  # one layer of each type
    changes = _small_fields(config, sizes)
    for constraint in CONSTRAINTS:
        constraint(config, changes, sizes)
    small = type(config)(**{**changes, **(own or {})})
    if small.is_encoder_decoder:
        _set_tokens_of_decoder(small)
    return small


def _small_fields(config: Any, sizes: Sizes) -> dict[str, Any]:
    """Return the fields of a configuration that get another value, each by the first rule that it falls under. A field
    is looked up by its own name, then by the usual one that `attribute_map` has for it."""
    changes: dict[str, Any] = {}
    canonical_names = {name: canonical for canonical, name in getattr(config, "attribute_map", {}).items()}
    vocab = sizes.of("vocab", getattr(config, "vocab_size", None) or sizes.vocab)
    # Ids beyond the small vocabulary get others: SPECIAL ones the first, all others the last, from here downwards.
    next_id = vocab - 1
    for name, value in vars(config).items():
        if name.startswith("_"):
            continue
        rule = INTEGERS.get(name) or INTEGERS.get(canonical_names.get(name, ""))
        if name in SET:
            changes[name] = SET[name]
        elif name in STAGES:  # as many as the lists of what each stage has
            continue
        elif value is None and name in MISSING:
            changes[name] = MISSING[name](sizes)
        elif is_config(value):
            changes[name] = small_config(value, sizes)
        elif name.endswith(("_token_id", "_token_index")) and type(value) is int and value >= vocab:
            kind_of_token = name.partition("_")[0]
            if kind_of_token in SPECIAL:
                changes[name] = SPECIAL.index(kind_of_token)
            else:
                changes[name], next_id = next_id, next_id - 1
        elif type(value) is int and rule is not None:
            changes[name] = rule(sizes, value)
        elif name in LISTS and _is_list_of_integers(value):
            changes[name] = LISTS[name](tuple(value))
    return changes


def _is_list_of_integers(value: Any) -> bool:
    """Whether a value is a list or a tuple of integers, with one at least."""
    return isinstance(value, (list, tuple)) and bool(value) and all(type(item) is int for item in value)


def _set_tokens_of_decoder(config: Any) -> None:
    """Give a model with a decoder the token that it begins with, and the one that fills short rows, where its
    configuration names none."""
    pad = getattr(config, "pad_token_id", None)
    if getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = pad or 0
    if pad is None:
        config.pad_token_id = 0


def is_config(value: Any) -> bool:
    """Return whether a value is a configuration of transformers."""
    return hasattr(type(value), "sub_configs") and hasattr(value, "to_dict")


# ---- What fields must be together


def _layer_types_of(config: Any) -> list[str]:
    """Return the different types of layers that a configuration names, in its order: attention of a window, of all."""
    return list(dict.fromkeys(getattr(config, "layer_types", None) or ()))


def _layer_types(config: Any, changes: dict[str, Any], sizes: Sizes) -> None:
    """One layer is of each type, in order, and all layers after these are of the last type."""
    types = _layer_types_of(config)
    if len(types) > 1 and "layer_types" in vars(config):
        changes["layer_types"] = [types[min(layer, len(types) - 1)] for layer in range(sizes.layers)]


def _heads_that_share_nothing(config: Any, changes: dict[str, Any], sizes: Sizes) -> None:
    """Attention whose heads have keys and values of their own stays so, where the table would let heads share them."""
    share_nothing = getattr(config, "num_key_value_heads", 0) == getattr(config, "num_attention_heads", None)
    if share_nothing and "num_key_value_heads" in changes:
        changes["num_key_value_heads"] = changes["num_attention_heads"]


def _mamba_heads(config: Any, changes: dict[str, Any], sizes: Sizes) -> None:
    """In a Mamba layer, the number of heads times the features of a head is the expanded width (`expand` times the
    hidden size). All heads are one group."""
    if "state_size" in changes and "head_dim" in changes and hasattr(config, "expand"):
        changes["num_heads"] = config.expand * changes["hidden_size"] // changes["head_dim"]
        changes["n_groups"] = 1
    if "mamba_d_head" in changes and hasattr(config, "mamba_expand"):
        changes["mamba_n_heads"] = config.mamba_expand * changes["hidden_size"] // changes["mamba_d_head"]
        changes["mamba_n_groups"] = 1


def _attention_types(config: Any, changes: dict[str, Any], sizes: Sizes) -> None:
    """GPT-Neo lists the kinds of its layers with how often they follow each other."""
    if isinstance(types := getattr(config, "attention_types", None), list) and types:
        kinds, *_ = types[0]  # of `types`, such as [[["global", "local"], 12]]
        changes["attention_types"] = [[[kinds[layer % len(kinds)]], 1] for layer in range(changes["num_layers"])]


def _latent_heads(config: Any, changes: dict[str, Any], sizes: Sizes) -> None:
    """In multi-head latent attention, a head has a part with positions (`rope`) and one without (`nope`), and heads
    share no keys."""
    if changes.get("qk_rope_head_dim"):
        if "head_dim" in changes:
            changes["head_dim"] = changes["qk_rope_head_dim"]
        if "qk_head_dim" in changes:
            changes["qk_head_dim"] = changes["qk_rope_head_dim"] + changes["qk_nope_head_dim"]
        if "num_key_value_heads" in changes:
            changes["num_key_value_heads"] = changes["num_attention_heads"]


def _stages(config: Any, changes: dict[str, Any], sizes: Sizes) -> None:
    """Each stage halves the image, and the last has to have more than one place, or its attention has no gradient: so
    images and patches of a model of several stages are not as small as others."""
    depths = getattr(config, "depths", None)  # the layers of each stage; some have one number for all
    stages = 0 if isinstance(depths, int) else len(depths or ())
    # MobileViT has no `depths`, and its attention takes 2 × 2 places of the last stage as one.
    image = {"mobilevit": 128, "mobilevitv2": 128}.get(config.model_type, 64 if stages > 2 else 0)
    if image and "image" not in sizes.given and "image_size" in changes:
        changes["image_size"] = image
    if hasattr(config, "width_coefficient"):  # widths and depths of EfficientNet follow from these two
        changes.pop("hidden_dim", None)
        changes |= {"width_coefficient": 1.0, "depth_coefficient": 1.0}
    if stages > 2 and "window_size" in changes and isinstance(changes.get("patch_size"), int):
        changes["patch_size"] = 2


def _rotary_sections(config: Any, changes: dict[str, Any], sizes: Sizes) -> None:
    """The sections of a rotary embedding in several dimensions (time, height, width) are half a head together; they
    keep their proportions, and the last takes what rounding leaves."""
    rope = getattr(config, "rope_parameters", None)
    if isinstance(rope, dict) and (sections := rope.get("mrope_section")):
        half, whole = sizes.head // 2, sum(sections)
        scaled = [max(1, section * half // whole) for section in sections[:-1]]
        changes["rope_parameters"] = {**rope, "mrope_section": [*scaled, half - sum(scaled)]}


def _layout(config: Any, changes: dict[str, Any], sizes: Sizes) -> None:
    """The embeddings of a box's four sides, its width and its height are as wide as a token together."""
    if isinstance(getattr(config, "coordinate_size", None), int) and hasattr(config, "shape_size"):
        changes["coordinate_size"] = sizes.hidden // 6
        changes["shape_size"] = (sizes.hidden - 4 * changes["coordinate_size"]) // 2


CONSTRAINTS: tuple[Callable[[Any, dict[str, Any], Sizes], None], ...] = (
    _layer_types,
    _heads_that_share_nothing,
    _mamba_heads,
    _attention_types,
    _latent_heads,
    _stages,
    _rotary_sections,
    _layout,
)
