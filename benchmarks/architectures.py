"""Sixty published architectures and more mixtures of experts, built small: captured in training, saved, proved.

The rows are Hugging Face `transformers` models with random weights, made from configurations: nothing is downloaded.
They were chosen before any of them was captured, for their kinds; each trains (dropout on, labels given) and is proved
on its own inputs and on redrawn ones (`verify`), once more against autograd by this script itself (`autograd`), and
once more from disk: it is saved as users save, and a process of its own proves the folder (`disk`).

    pip install '.[models]'
    python benchmarks/architectures.py [--engine auto] [--only NAME] [--set sixty] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from results import Figure, keep
from torch import Tensor, nn

import backprint as bp

BATCH, TOKENS, WORDS, CLASSES = 2, 16, 99, 3

# ------------------------------------------------------------------ inputs, by the kind of model


def ids(*shape: int, low: int = 5) -> Tensor:
    """Token numbers above those with a meaning of their own."""
    return torch.randint(low, WORDS, shape)


def tokens(length: int = TOKENS) -> dict[str, Tensor]:
    """Text, of which the second row ends in padding."""
    mask = torch.ones(BATCH, length, dtype=torch.long)
    mask[1, -length // 4 :] = 0
    return {"input_ids": ids(BATCH, length), "attention_mask": mask}


def text(length: int = TOKENS) -> dict[str, Tensor]:
    """Text, and a label for every token that is no padding."""
    given = tokens(length)
    return given | {"labels": given["input_ids"].masked_fill(given["attention_mask"] == 0, -100)}


def classified() -> dict[str, Tensor]:
    """Text, and a class for each."""
    return tokens() | {"labels": torch.randint(CLASSES, (BATCH,))}


def everywhere() -> dict[str, Tensor]:
    """Which tokens attend to all others: the first."""
    return {"global_attention_mask": torch.eye(1, TOKENS, dtype=torch.long).repeat(BATCH, 1)}


def answered() -> dict[str, Tensor]:
    """Text, and where an answer starts and ends in it."""
    return tokens() | {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([4, 9])}


def translated() -> dict[str, Tensor]:
    """Text and its translation."""
    return tokens() | {"labels": ids(BATCH, TOKENS // 2)}


def images(size: int = 32) -> Tensor:
    return torch.randn(BATCH, 3, size, size)


def pictured(size: int = 32) -> dict[str, Tensor]:
    """Images, and a class for each."""
    return {"pixel_values": images(size), "labels": torch.randint(CLASSES, (BATCH,))}


def segmented() -> dict[str, Tensor]:
    """Images, and a class for each pixel."""
    return {"pixel_values": images(), "labels": torch.randint(CLASSES, (BATCH, 32, 32))}


def spoken() -> dict[str, Tensor]:
    """Sound, the second row padded, and its words."""
    mask = torch.ones(BATCH, 1600, dtype=torch.long)
    mask[1, 1200:] = 0
    return {"input_values": torch.randn(BATCH, 1600), "attention_mask": mask, "labels": ids(BATCH, 4)}


def spectral() -> dict[str, Tensor]:
    """A spectrum over time and its words."""
    return {"input_features": torch.randn(BATCH, 40, 16), "labels": ids(BATCH, 8)}


def heard() -> dict[str, Tensor]:
    """A spectrum over time, time last, and its words."""
    return {"input_features": torch.randn(BATCH, 16, 64), "labels": ids(BATCH, 8)}


def paired() -> dict[str, Any]:
    """Images and texts that belong together."""
    return tokens() | {"pixel_values": images(), "return_loss": True}


def captioned() -> dict[str, Any]:
    """Images and their captions."""
    return text() | {"pixel_values": images()}


def asked() -> dict[str, Any]:
    """Images, questions, and how well each answer does."""
    return tokens() | {"pixel_values": images(), "labels": torch.rand(BATCH, CLASSES)}


def shown() -> dict[str, Any]:
    """Text with places for an image's patches."""
    given = text(32)
    given["input_ids"][:, 1:17] = WORDS
    return given | {"pixel_values": images(), "labels": given["labels"].index_fill(1, torch.arange(1, 17), -100)}


def pretrained() -> dict[str, Any]:
    """Images and texts with holes, and what was in the holes."""
    given = tokens()
    holes = torch.rand(BATCH, TOKENS) < 0.3
    patches = torch.rand(BATCH, 8, 8) < 0.4
    return given | {
        "input_ids_masked": given["input_ids"].masked_fill(holes, 4),
        "pixel_values": images(),
        "codebook_pixel_values": torch.rand(BATCH, 3, 64, 64),
        "bool_masked_pos": patches,
        "mlm_labels": given["input_ids"].masked_fill(~holes, -100),
        "itm_labels": torch.ones(BATCH, dtype=torch.long),
        "return_loss": True,
    }


# ------------------------------------------------------------------ the table


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model: its name, its family, the class with the loss, its configuration, and what makes its inputs."""

    name: str
    family: str
    head: str
    inputs: Callable[[], dict[str, Any]]
    config: Mapping[str, Any] = field(default_factory=dict)


SMALL: dict[str, Any] = dict(
    vocab_size=WORDS,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
"""The names that most configurations share."""
GROUPED: dict[str, Any] = dict(SMALL, num_key_value_heads=2, attention_dropout=0.1, use_cache=False)
"""Decoders with fewer heads for keys and values."""
GPT: dict[str, Any] = dict(
    vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2, use_cache=False
)
ENCODER: dict[str, Any] = dict(SMALL, num_labels=CLASSES)
BOTH: dict[str, Any] = dict(
    vocab_size=WORDS,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    max_position_embeddings=64,
    dropout=0.1,
    attention_dropout=0.1,
    activation_dropout=0.1,
    encoder_layerdrop=0.1,
    decoder_layerdrop=0.1,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=2,
    forced_eos_token_id=2,
    use_cache=False,
)
"""Encoders and decoders after BART, with layer drop."""
IMAGE: dict[str, Any] = dict(
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    image_size=32,
    patch_size=8,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    num_labels=CLASSES,
)
SWIN: dict[str, Any] = dict(
    image_size=32,
    patch_size=2,
    embed_dim=16,
    depths=[2, 2],
    num_heads=[2, 4],
    window_size=4,
    drop_path_rate=0.1,
    hidden_dropout_prob=0.1,
    num_labels=CLASSES,
)
SOUND: dict[str, Any] = dict(
    SMALL,
    conv_dim=(16, 16, 16),
    conv_kernel=(10, 3, 3),
    conv_stride=(5, 4, 4),
    num_feat_extract_layers=3,
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=2,
    mask_time_length=2,
    mask_time_prob=0.2,
    mask_feature_length=4,
    mask_feature_prob=0.1,
    mask_feature_min_masks=0,
    layerdrop=0.1,
    ctc_zero_infinity=True,
)
"""Sound after wav2vec2: layer drop, and spans of time and features masked by numpy's random numbers."""
TOWER: dict[str, Any] = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, attention_dropout=0.1
)
WORDY: dict[str, Any] = dict(SMALL, attention_dropout=0.1)
EYES: dict[str, Any] = dict(TOWER, image_size=32, patch_size=8)

DECODER, CODER, PAIR, VISION = "decoder", "encoder", "encoder-decoder", "vision"
SPEECH, EXPERTS, STATE, SEVERAL = "speech", "mixture of experts", "state space", "multimodal"

ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("gpt2", DECODER, "GPT2LMHeadModel", text, GPT),
    Architecture(
        "gpt_neo",
        DECODER,
        "GPTNeoForCausalLM",
        text,
        dict(
            SMALL,
            num_layers=2,
            num_heads=4,
            attention_types=[[["global", "local"], 1]],
            window_size=8,
            attention_dropout=0.1,
            resid_dropout=0.1,
            embed_dropout=0.1,
            use_cache=False,
        ),
    ),
    Architecture("gpt_neox", DECODER, "GPTNeoXForCausalLM", text, dict(GROUPED, hidden_dropout=0.1)),
    Architecture(
        "opt",
        DECODER,
        "OPTForCausalLM",
        text,
        dict(SMALL, ffn_dim=64, word_embed_proj_dim=16, attention_dropout=0.1, layerdrop=0.1, use_cache=False),
    ),
    Architecture(
        "bloom",
        DECODER,
        "BloomForCausalLM",
        text,
        dict(SMALL, n_layer=2, n_head=4, hidden_dropout=0.1, attention_dropout=0.1, use_cache=False),
    ),
    Architecture("llama", DECODER, "LlamaForCausalLM", text, GROUPED),
    Architecture("mistral", DECODER, "MistralForCausalLM", text, dict(GROUPED, sliding_window=8)),
    Architecture("qwen3", DECODER, "Qwen3ForCausalLM", text, dict(GROUPED, head_dim=8)),
    Architecture("gemma2", DECODER, "Gemma2ForCausalLM", text, dict(GROUPED, head_dim=8, sliding_window=8)),
    Architecture("phi3", DECODER, "Phi3ForCausalLM", text, dict(GROUPED, resid_pdrop=0.1, embd_pdrop=0.1)),
    Architecture(
        "falcon",
        DECODER,
        "FalconForCausalLM",
        text,
        dict(SMALL, alibi=True, hidden_dropout=0.1, attention_dropout=0.1, use_cache=False),
    ),
    Architecture(
        "codegen",
        DECODER,
        "CodeGenForCausalLM",
        text,
        dict(GPT, rotary_dim=4, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1),
    ),
    Architecture("bert", CODER, "BertForMaskedLM", text, ENCODER),
    Architecture("roberta", CODER, "RobertaForSequenceClassification", classified, ENCODER),
    Architecture("albert", CODER, "AlbertForMaskedLM", text, dict(ENCODER, embedding_size=16, hidden_dropout_prob=0.1)),
    Architecture(
        "electra",
        CODER,
        "ElectraForTokenClassification",
        lambda: tokens() | {"labels": torch.randint(CLASSES, (BATCH, TOKENS))},
        dict(ENCODER, embedding_size=16),
    ),
    Architecture(
        "deberta",
        CODER,
        "DebertaForMaskedLM",
        text,
        dict(ENCODER, relative_attention=True, pos_att_type=["c2p", "p2c"]),
    ),
    Architecture(
        "deberta_v2",
        CODER,
        "DebertaV2ForSequenceClassification",
        classified,
        dict(
            ENCODER,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            position_buckets=8,
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            conv_kernel_size=3,
        ),
    ),
    Architecture(
        "distilbert",
        CODER,
        "DistilBertForQuestionAnswering",
        answered,
        dict(vocab_size=WORDS, dim=32, hidden_dim=64, n_layers=2, n_heads=4, max_position_embeddings=64),
    ),
    Architecture("mpnet", CODER, "MPNetForMaskedLM", text, ENCODER),
    Architecture(
        "xlnet", CODER, "XLNetLMHeadModel", text, dict(vocab_size=WORDS, d_model=32, n_layer=2, n_head=4, d_inner=64)
    ),
    Architecture(
        "funnel",
        CODER,
        "FunnelForMaskedLM",
        text,
        dict(vocab_size=WORDS, block_sizes=[1, 1], num_decoder_layers=1, d_model=32, n_head=4, d_head=8, d_inner=64),
    ),
    Architecture(
        "big_bird",
        CODER,
        "BigBirdForMaskedLM",
        lambda: text(64),
        dict(ENCODER, attention_type="block_sparse", block_size=4, num_random_blocks=2, max_position_embeddings=128),
    ),
    Architecture(
        "longformer", CODER, "LongformerForMaskedLM", lambda: text() | everywhere(), dict(ENCODER, attention_window=4)
    ),
    Architecture(
        "modernbert",
        CODER,
        "ModernBertForMaskedLM",
        text,
        dict(
            ENCODER,
            embedding_dropout=0.1,
            mlp_dropout=0.1,
            attention_dropout=0.1,
            local_attention=8,
            cls_token_id=1,
            sep_token_id=2,
        ),
    ),
    Architecture(
        "t5",
        PAIR,
        "T5ForConditionalGeneration",
        translated,
        dict(
            vocab_size=WORDS,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            pad_token_id=0,
            decoder_start_token_id=0,
            use_cache=False,
        ),
    ),
    Architecture("bart", PAIR, "BartForConditionalGeneration", translated, BOTH),
    Architecture("pegasus", PAIR, "PegasusForConditionalGeneration", translated, BOTH),
    Architecture("marian", PAIR, "MarianMTModel", translated, BOTH),
    Architecture(
        "led",
        PAIR,
        "LEDForConditionalGeneration",
        lambda: translated() | everywhere(),
        dict(BOTH, attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64),
    ),
    Architecture(
        "prophetnet",
        PAIR,
        "ProphetNetForConditionalGeneration",
        translated,
        dict(
            vocab_size=WORDS,
            hidden_size=32,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            num_encoder_layers=2,
            num_decoder_layers=2,
            num_encoder_attention_heads=4,
            num_decoder_attention_heads=4,
            max_position_embeddings=64,
            ngram=2,
            num_buckets=8,
            relative_max_distance=32,
            use_cache=False,
        ),
    ),
    Architecture("m2m_100", PAIR, "M2M100ForConditionalGeneration", translated, BOTH),
    Architecture("vit", VISION, "ViTForImageClassification", pictured, IMAGE),
    Architecture("swin", VISION, "SwinForImageClassification", pictured, SWIN),
    Architecture("swinv2", VISION, "Swinv2ForImageClassification", pictured, SWIN),
    Architecture(
        "convnext",
        VISION,
        "ConvNextForImageClassification",
        pictured,
        dict(hidden_sizes=[16, 32], depths=[1, 1], num_stages=2, drop_path_rate=0.1, num_labels=CLASSES),
    ),
    Architecture(
        "beit",
        VISION,
        "BeitForImageClassification",
        pictured,
        dict(IMAGE, use_relative_position_bias=True, drop_path_rate=0.1),
    ),
    Architecture(
        "resnet",
        VISION,
        "ResNetForImageClassification",
        pictured,
        dict(embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], num_labels=CLASSES),
    ),
    # a smaller image would leave the last attention one place, and its queries and keys no gradient
    Architecture(
        "mobilevit",
        VISION,
        "MobileViTForImageClassification",
        lambda: pictured(128),
        dict(
            image_size=128,
            hidden_sizes=[16, 24, 32],
            neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32],
            num_attention_heads=4,
            hidden_dropout_prob=0.1,
            num_labels=CLASSES,
        ),
    ),
    Architecture(
        "segformer",
        VISION,
        "SegformerForSemanticSegmentation",
        segmented,
        dict(
            num_encoder_blocks=2,
            depths=[1, 1],
            hidden_sizes=[16, 32],
            sr_ratios=[2, 1],
            num_attention_heads=[2, 4],
            patch_sizes=[7, 3],
            strides=[4, 2],
            mlp_ratios=[2, 2],
            decoder_hidden_size=16,
            hidden_dropout_prob=0.1,
            num_labels=CLASSES,
        ),
    ),
    Architecture("dinov2", VISION, "Dinov2ForImageClassification", pictured, dict(IMAGE, drop_path_rate=0.1)),
    Architecture("wav2vec2", SPEECH, "Wav2Vec2ForCTC", spoken, SOUND),
    Architecture("hubert", SPEECH, "HubertForCTC", spoken, SOUND),
    Architecture("wavlm", SPEECH, "WavLMForCTC", spoken, SOUND),
    Architecture("sew", SPEECH, "SEWForCTC", spoken, dict(SOUND, squeeze_factor=2)),
    Architecture(
        "whisper",
        SPEECH,
        "WhisperForConditionalGeneration",
        heard,
        dict(
            BOTH,
            num_mel_bins=16,
            max_source_positions=32,
            max_target_positions=32,
            suppress_tokens=None,
            begin_suppress_tokens=None,
            apply_spec_augment=True,
            mask_time_prob=0.2,
            mask_time_length=2,
            mask_feature_prob=0.2,
            mask_feature_length=2,
        ),
    ),
    Architecture(
        "speech_to_text",
        SPEECH,
        "Speech2TextForConditionalGeneration",
        spectral,
        dict(
            BOTH,
            input_feat_per_channel=16,
            input_channels=1,
            conv_channels=32,
            num_conv_layers=2,
            max_source_positions=64,
            max_target_positions=64,
        ),
    ),
    Architecture(
        "mixtral",
        EXPERTS,
        "MixtralForCausalLM",
        text,
        dict(GROUPED, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True, router_jitter_noise=0.1),
    ),
    Architecture(
        "qwen2_moe",
        EXPERTS,
        "Qwen2MoeForCausalLM",
        text,
        dict(
            GROUPED,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            output_router_logits=True,
        ),
    ),
    Architecture(
        "switch_transformers",
        EXPERTS,
        "SwitchTransformersForConditionalGeneration",
        translated,
        dict(
            vocab_size=WORDS,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_decoder_layers=2,
            num_heads=4,
            num_sparse_encoder_layers=1,
            num_sparse_decoder_layers=1,
            num_experts=4,
            expert_capacity=8,
            router_jitter_noise=0.1,
            pad_token_id=0,
            decoder_start_token_id=0,
            use_cache=False,
        ),
    ),
    Architecture(
        "deepseek_v3",
        EXPERTS,
        "DeepseekV3ForCausalLM",
        text,
        dict(
            GROUPED,
            num_key_value_heads=4,
            moe_intermediate_size=32,
            n_routed_experts=8,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            first_k_dense_replace=1,
            kv_lora_rank=16,
            q_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
        ),
    ),
    Architecture(
        "mamba",
        STATE,
        "MambaForCausalLM",
        text,
        dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, state_size=8, time_step_rank=4, use_cache=False),
    ),
    Architecture(
        "mamba2",
        STATE,
        "Mamba2ForCausalLM",
        text,
        dict(
            vocab_size=WORDS,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=8,
            head_dim=8,
            num_heads=8,
            n_groups=2,
            chunk_size=8,
            use_cache=False,
        ),
    ),
    Architecture(
        "jamba",
        STATE,
        "JambaForCausalLM",
        text,
        dict(
            GROUPED,
            num_hidden_layers=4,
            attn_layer_period=2,
            attn_layer_offset=1,
            expert_layer_period=2,
            expert_layer_offset=1,
            num_experts=2,
            num_experts_per_tok=1,
            mamba_d_state=8,
            mamba_dt_rank=4,
            use_mamba_kernels=False,
        ),
    ),
    Architecture(
        "rwkv",
        STATE,
        "RwkvForCausalLM",
        text,
        dict(
            vocab_size=WORDS,
            hidden_size=32,
            num_hidden_layers=2,
            attention_hidden_size=32,
            intermediate_size=64,
            context_length=64,
            use_cache=False,
        ),
    ),
    Architecture("clip", SEVERAL, "CLIPModel", paired, dict(text_config=WORDY, vision_config=EYES, projection_dim=16)),
    Architecture(
        "blip",
        SEVERAL,
        "BlipForConditionalGeneration",
        captioned,
        dict(
            text_config=dict(SMALL, encoder_hidden_size=32, sep_token_id=3, is_decoder=True),
            vision_config=EYES,
            projection_dim=16,
        ),
    ),
    Architecture(
        "vilt",
        SEVERAL,
        "ViltForQuestionAnswering",
        asked,
        dict(ENCODER, image_size=32, patch_size=8, max_image_length=-1),
    ),
    Architecture(
        "flava",
        SEVERAL,
        "FlavaForPreTraining",
        pretrained,
        dict(
            text_config=SMALL,
            image_config=dict(IMAGE, patch_size=4, mask_token=True, vocab_size=WORDS),
            multimodal_config=TOWER,
            hidden_size=32,
            projection_dim=16,
            image_codebook_config=dict(num_groups=4, hidden_size=8, vocab_size=WORDS, num_blocks_per_group=1),
        ),
    ),
    Architecture(
        "llava",
        SEVERAL,
        "LlavaForConditionalGeneration",
        shown,
        dict(
            text_config=dict(GROUPED, model_type="llama", vocab_size=WORDS + 1),
            vision_config=dict(EYES, model_type="clip_vision_model"),
            image_token_index=WORDS,
            vision_feature_layer=-1,
        ),
    ),
)


EXPERT: dict[str, Any] = dict(GROUPED, moe_intermediate_size=32, num_experts_per_tok=2, output_router_logits=True)

MIXTURES: tuple[Architecture, ...] = (
    Architecture("qwen3_moe", EXPERTS, "Qwen3MoeForCausalLM", text, dict(EXPERT, num_experts=4, head_dim=8)),
    Architecture(
        "qwen3_next",
        EXPERTS,
        "Qwen3NextForCausalLM",
        text,
        dict(
            EXPERT,
            num_experts=4,
            head_dim=8,
            shared_expert_intermediate_size=32,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            layer_types=["linear_attention", "full_attention"],
        ),
    ),
    Architecture(
        "deepseek_v2",
        EXPERTS,
        "DeepseekV2ForCausalLM",
        text,
        dict(
            GROUPED,
            num_key_value_heads=4,
            moe_intermediate_size=32,
            n_routed_experts=8,
            n_shared_experts=1,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            first_k_dense_replace=1,
            topk_method="group_limited_greedy",
            kv_lora_rank=16,
            q_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
        ),
    ),
    Architecture(
        "granitemoe",
        EXPERTS,
        "GraniteMoeForCausalLM",
        text,
        dict(GROUPED, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True),
    ),
    Architecture(
        "granitemoeshared",
        EXPERTS,
        "GraniteMoeSharedForCausalLM",
        text,
        dict(GROUPED, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=32),
    ),
    Architecture("olmoe", EXPERTS, "OlmoeForCausalLM", text, dict(EXPERT, num_experts=4)),
    Architecture(
        "jetmoe",
        EXPERTS,
        "JetMoeForCausalLM",
        text,
        dict(GROUPED, num_key_value_heads=4, kv_channels=8, num_local_experts=4, num_experts_per_tok=2),
    ),
    Architecture(
        "dbrx",
        EXPERTS,
        "DbrxForCausalLM",
        text,
        dict(
            d_model=32,
            n_heads=4,
            n_layers=2,
            max_seq_len=64,
            vocab_size=WORDS,
            resid_pdrop=0.1,
            attn_config=dict(kv_n_heads=2, attn_pdrop=0.1, clip_qkv=8, rope_theta=1e4),
            ffn_config=dict(ffn_hidden_size=64, moe_num_experts=4, moe_top_k=2, hidden_size=32),
            use_cache=False,
            pad_token_id=0,
        ),
    ),
    Architecture(
        "phimoe",
        EXPERTS,
        "PhimoeForCausalLM",
        text,
        dict(GROUPED, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True),
    ),
    Architecture(
        "gpt_oss",
        EXPERTS,
        "GptOssForCausalLM",
        text,
        dict(GROUPED, num_local_experts=4, num_experts_per_tok=2, head_dim=8, sliding_window=8),
    ),
    Architecture(
        "ernie4_5_moe",
        EXPERTS,
        "Ernie4_5_MoeForCausalLM",
        text,
        dict(EXPERT, moe_num_experts=4, moe_k=2, moe_layer_start_index=1, moe_num_shared_experts=1),
    ),
    Architecture(
        "glm4_moe",
        EXPERTS,
        "Glm4MoeForCausalLM",
        text,
        dict(EXPERT, n_routed_experts=4, n_shared_experts=1, head_dim=8, first_k_dense_replace=1),
    ),
    Architecture(
        "dots1",
        EXPERTS,
        "Dots1ForCausalLM",
        text,
        dict(
            EXPERT, n_routed_experts=4, n_shared_experts=1, head_dim=8, first_k_dense_replace=1, n_group=1, topk_group=1
        ),
    ),
    Architecture(
        "hunyuan_v1_moe",
        EXPERTS,
        "HunYuanMoEV1ForCausalLM",
        text,
        dict(GROUPED, num_experts=4, moe_topk=[2, 2], head_dim=8),
    ),
    Architecture(
        "minimax",
        EXPERTS,
        "MiniMaxForCausalLM",
        text,
        dict(GROUPED, num_local_experts=4, num_experts_per_tok=2, head_dim=8, block_size=8),
    ),
    Architecture(
        "lfm2_moe",
        EXPERTS,
        "Lfm2MoeForCausalLM",
        text,
        dict(EXPERT, num_experts=4, num_dense_layers=1, layer_types=["conv", "full_attention"]),
    ),
    Architecture(
        "llama4_text",
        EXPERTS,
        "Llama4ForCausalLM",
        text,
        dict(
            GROUPED,
            num_local_experts=4,
            num_experts_per_tok=1,
            head_dim=8,
            intermediate_size_mlp=64,
            attention_chunk_size=8,
        ),
    ),
    Architecture(
        "nllb_moe",
        EXPERTS,
        "NllbMoeForConditionalGeneration",
        translated,
        dict(BOTH, num_experts=4, expert_capacity=8, encoder_sparse_step=2, decoder_sparse_step=2),
    ),
)
"""Further mixtures of experts, as `transformers` 5.23 ships them."""

SETS: dict[str, tuple[Architecture, ...]] = {"sixty": ARCHITECTURES, "mixtures": MIXTURES}
EVERY = (*ARCHITECTURES, *MIXTURES)


# ------------------------------------------------------------------ one of them


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one architecture. `verdict` may also be `refused`, `crashed` or `timeout`; `detail` says why."""

    name: str
    family: str
    verdict: str
    oracle: str = ""
    disk: str = ""
    engine: str = ""
    why: tuple[str, ...] = ()
    pairs: int = 0
    nodes: int = 0
    guards: int = 0
    took: str = ""
    seconds: float = 0.0
    detail: str = ""

    @property
    def good(self) -> bool:
        """Whether all proofs hold."""
        return {self.verdict, self.oracle, self.disk} <= GOOD


GOOD = {"bitwise", "close"}
ORDER = ("bitwise", "undifferentiable", "close", "unproven", "wrong", "failed")


def loss_of(output: Any) -> Tensor:
    """The loss that a model gives with its output."""
    loss: Tensor = output.loss
    return loss


def make(architecture: Architecture) -> tuple[nn.Module, dict[str, Any]]:
    """The model in training and its inputs, the same in every run."""
    import transformers

    transformers.logging.set_verbosity_error()
    head = getattr(transformers, architecture.head)
    torch.manual_seed(0)
    model: nn.Module = head(head.config_class(**architecture.config)).train()
    torch.manual_seed(1)
    return model, architecture.inputs()


def measure(architecture: Architecture, engine: str) -> Row:
    """Capture one architecture and prove it twice: by `verify`, and against autograd as taken here."""
    row = partial(Row, architecture.name, architecture.family)
    model, inputs = make(architecture)
    seed_all(0)
    start = time.perf_counter()
    try:
        capture = bp.capture(model, args=(), kwargs=inputs, engine=engine, loss=loss_of, specialize=True)
    except bp.errors.BackprintError as error:
        return row("refused", seconds=time.perf_counter() - start, detail=f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - start
    graphs = [graph for pair in capture.pairs for graph in (pair.forward, pair.backward) if graph is not None]
    seed_all(0)
    verdict = max(bp.verify(capture, ("captured", "recipe")), key=lambda one: ORDER.index(one.verdict))
    oracle, said = against_autograd(capture, model, inputs)
    disk, told = from_disk(capture)
    return row(
        verdict=verdict.verdict,
        oracle=oracle,
        disk=disk,
        engine=capture.engine,
        why=capture.why,
        pairs=len(capture.pairs),
        nodes=sum(len(graph.steps) for graph in graphs),
        guards=len(capture.guards),
        took=taken(capture),
        seconds=seconds,
        detail="; ".join(filter(None, (verdict.detail, said, told))),
    )


def from_disk(capture: bp.Capture) -> tuple[str, str]:
    """What `backprint verify` says in a process of its own, which has the saved folder and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "sample"
        try:
            bp.save(capture, place)
        except bp.errors.BackprintError as error:
            return "not saved", f"{type(error).__name__}: {error}"
        command = [sys.executable, "-m", "backprint", "verify", str(place), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        whole = answers[-1]  # after its Pairs, where it has several
    except (json.JSONDecodeError, IndexError):
        return "failed", f"backprint verify ended with {done.returncode}: {done.stderr[-300:]}"
    verdict = max((answer["verdict"] for answer in answers), key=ORDER.index)
    told = "" if verdict == "bitwise" and whole["proof"] else f"from disk: {whole['detail']}"
    return verdict if whole["proof"] else f"{verdict}, no proof", told


def taken(capture: bp.Capture) -> str:
    """What a capture took for granted, and what autograd of its forward alone would not give, in few words."""
    constant = " are constants of the graph"
    drawn = [guard.text.split()[0] for guard in capture.guards if guard.text.endswith(constant)]
    counts = Counter(guard.kind for guard in capture.guards if not guard.text.endswith(constant))
    counts.update(f"opaque {edge.kind}" for edge in capture.opaque)
    return ", ".join([*drawn, *(f"{count} {kind}" for kind, count in counts.items())])


def against_autograd(capture: bp.Capture, model: nn.Module, inputs: Mapping[str, Any]) -> tuple[str, str]:
    """A replay's loss, gradients and changed buffers against the model's own, run here under the same seed."""
    seed_all(capture.seed)
    got = bp.replay(capture, **inputs)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    seed_all(capture.seed)
    loss = model(**inputs).loss
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    pairs = {"loss": (got.loss, loss.detach())}
    pairs |= {name: (got.gradients.get(name), want) for name, want in zip(named, gradients, strict=True)}
    for name, buffer in model.named_buffers():
        if name in got.mutations or not torch.equal(buffer, before[name]):
            pairs[f"buffer {name}"] = (got.mutations.get(name), buffer.clone())
        buffer.copy_(before[name])
    found = {name: apart(left, right) for name, (left, right) in pairs.items()}
    off = {name: error for name, error in found.items() if error}
    if not off:
        return "bitwise", ""
    name = max(off, key=lambda key: off[key])
    said = f"{len(off)} of {len(found)} differ from autograd, most {name} by {off[name]:.2g}"
    return ("close" if off[name] < 1e-4 else "wrong"), said


def apart(left: Tensor | None, right: Tensor | None) -> float:
    """The largest difference over the largest value; 0 only where every bit is the same."""
    if left is None or right is None:
        return 0.0 if left is right else float("inf")
    if left.shape != right.shape or left.dtype != right.dtype:
        return float("inf")
    if torch.equal(left, right):
        return 0.0
    error = float((left.double() - right.double()).abs().max() / right.double().abs().max().clamp(min=1e-30))
    return error if error == error else float("inf")


def seed_all(seed: int) -> None:
    """Seed torch, numpy and Python, from all of which models draw."""
    import random

    import numpy

    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)


# ------------------------------------------------------------------ all of them, each in a process of its own


def work(name: str, engine: str, answer: Any) -> None:
    """In the process of one row: whatever goes wrong is a row."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)  # torch logs what it then raises
    torch.set_num_threads(1)
    architecture = next(one for one in EVERY if one.name == name)
    start = time.perf_counter()
    try:
        row = measure(architecture, engine)
    except Exception as error:  # the world is measured: an error that is none of ours is an outcome
        detail = f"{type(error).__name__}: {error}"
        row = Row(architecture.name, architecture.family, "crashed", seconds=time.perf_counter() - start, detail=detail)
    answer.send(row)


def rows(chosen: Iterable[Architecture], engine: str, limit: float) -> Iterator[Row]:
    """One row after the other. Processes are forked from one that has imported everything and computed nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["transformers", "torch._dynamo", "torch._functorch.aot_autograd", __name__])
    for architecture in chosen:
        answers, answer = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(architecture.name, engine, answer))
        process.start()
        answer.close()
        yield waited_for(architecture, process, answers, limit)


def waited_for(architecture: Architecture, process: Any, answers: Any, limit: float) -> Row:
    """What a process answers; that it died or took too long is an answer too."""
    row = partial(Row, architecture.name, architecture.family)
    try:
        found: Row = answers.recv() if answers.poll(limit) else row("timeout", detail=f"more than {limit:.0f} s")
    except EOFError:
        process.join()
        found = row("crashed", detail=f"the process ended with {process.exitcode}")
    process.kill()
    process.join()
    return found


WIDTHS = (20, 18, 7, 2, 5, 34, 9, 9, 9, 5)


def cells(row: Row) -> tuple[str, ...]:
    """A row as text."""
    return (
        row.name,
        row.family,
        row.engine or "-",
        str(row.pairs),
        str(row.nodes),
        row.took or "-",
        row.verdict,
        row.oracle or "-",
        row.disk or "-",
        f"{row.seconds:.1f}",
    )


def summary(found: Sequence[Row]) -> str:
    """How many of how many, and what the others are."""
    counts = Counter(map(outcome, found))
    said = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return f"{sum(row.good for row in found)} of {len(found)} captured, saved and proved: {said}."


def outcome(row: Row) -> str:
    """The worst of a row's proofs."""
    for name, said in (("", row.verdict), ("autograd ", row.oracle), ("disk ", row.disk)):
        if said not in GOOD:
            return name + said
    return "close" if "close" in (row.verdict, row.oracle, row.disk) else "bitwise"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--set", choices=SETS, help="these alone; else all")
    parser.add_argument("--only", action="append", metavar="NAME", help="this architecture, or family; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every row, with its details")
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS", help="for one architecture")
    return parser.parse_args()


def main() -> int:
    given = options()
    if importlib.util.find_spec("transformers") is None:
        sys.exit("the architectures are those of transformers, which is not here: pip install '.[models]'")
    those = SETS[given.set] if given.set else EVERY
    chosen = [one for one in those if not given.only or {one.name, one.family} & set(given.only)]
    if not chosen:
        sys.exit(f"--only {' '.join(given.only)} is none of: {', '.join(one.name for one in those)}")
    found = []
    for row in rows(chosen, given.engine, given.limit):
        found.append(row)
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(cells(row), WIDTHS, strict=True)), flush=True)
        for line in (*row.why, row.detail):
            if line:
                print(f"    {line[:400]}", flush=True)
    print(summary(found))
    if given.json:
        given.json.write_text("".join(json.dumps(asdict(row)) + "\n" for row in found))
    figures = [
        Figure(
            f"models captured, saved and proved, of {len(found)}", sum(row.good for row in found), at_least=len(found)
        ),
        Figure("captured by engine eager", sum(row.engine == "eager" for row in found)),
        Figure("the slowest", max(row.seconds for row in found), "s"),
    ]
    return keep("architectures", figures)


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.exit(main())
