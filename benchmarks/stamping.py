"""Stamped captures against traces in full: Llama-3.1-405B, and architectures of `transformers` with many small layers.

Each architecture is captured twice without values, with loss and backward: as by default, and with `stamp=False`. Both
must have the same graphs, by hash and as text. 405B is captured from the command line, in a process of its own. Needs
`transformers`. Bars for 405B: 6 s and 1 GiB, missed ones are printed. Exits with 1 if a capture is stamped wrong.

    python benchmarks/stamping.py [DIRECTORY] [--only NAME] [--skip-large]
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import backprint as bp

LAYERS, WORDS, TOKENS = 14, 96, 8

BARS = {"seconds": 6.0, "gibibytes": 1.0}

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "vocab_size": WORDS,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

FEW = {"num_key_value_heads": 1}
GPT = {"n_embd": 16, "n_layer": LAYERS, "n_head": 2, "vocab_size": WORDS, "n_positions": 32}
BOTH = {
    "d_model": 16,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "vocab_size": WORDS,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
}
SEEN = {"image_size": 16, "patch_size": 8}

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": SIZES | FEW,
    "MistralForCausalLM": SIZES | FEW,
    "Qwen2ForCausalLM": SIZES | FEW,
    "Qwen3ForCausalLM": SIZES | FEW | {"head_dim": 8},
    "GemmaForCausalLM": SIZES | FEW | {"head_dim": 8},
    "Gemma2ForCausalLM": SIZES | FEW | {"head_dim": 8},
    "Gemma3ForCausalLM": SIZES | FEW | {"head_dim": 8},
    "PhiForCausalLM": SIZES | FEW,
    "Phi3ForCausalLM": SIZES | FEW,
    "StableLmForCausalLM": SIZES | FEW,
    "OlmoForCausalLM": SIZES | FEW,
    "Olmo2ForCausalLM": SIZES | FEW,
    "GraniteForCausalLM": SIZES | FEW,
    "CohereForCausalLM": SIZES | FEW,
    "Starcoder2ForCausalLM": SIZES | FEW,
    "GPTNeoXForCausalLM": SIZES,
    "OPTForCausalLM": SIZES | {"ffn_dim": 32, "word_embed_proj_dim": 16},
    "BloomForCausalLM": SIZES | {"n_layer": LAYERS, "n_head": 2},
    "FalconForCausalLM": SIZES | {"multi_query": False},
    "GPT2LMHeadModel": GPT,
    "GPTJForCausalLM": GPT | {"rotary_dim": 4},
    "GPTBigCodeForCausalLM": GPT,
    "BertForMaskedLM": SIZES,
    "RobertaForMaskedLM": SIZES,
    "ElectraForMaskedLM": SIZES | {"embedding_size": 16},
    "DistilBertForMaskedLM": {"dim": 16, "hidden_dim": 32, "n_layers": LAYERS, "n_heads": 2, "vocab_size": WORDS},
    "AlbertForMaskedLM": SIZES | {"embedding_size": 16},
    "T5ForConditionalGeneration": {
        "d_model": 16,
        "d_ff": 32,
        "d_kv": 8,
        "num_layers": LAYERS,
        "num_heads": 2,
        "vocab_size": WORDS,
        "decoder_start_token_id": 0,
    },
    "BartForConditionalGeneration": BOTH,
    "MarianMTModel": BOTH,
    "ViTForImageClassification": SIZES | SEEN,
    "DeiTForImageClassification": SIZES | SEEN,
    "BeitForImageClassification": SIZES | SEEN | {"drop_path_rate": 0.2},
}
"""The model -> what its configuration has."""


@dataclass(frozen=True, slots=True)
class StampRow:
    """One architecture: what became of it, and how long both captures took."""

    name: str
    outcome: str
    seconds: float
    in_full: float
    why: str = ""


def main() -> None:
    """All architectures, then 405B."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("directory", nargs="?", type=Path, default=Path("stamping"))
    options.add_argument("--only")
    options.add_argument("--skip-large", action="store_true")
    asked = options.parse_args()
    quiet()
    print("| model | outcome | by default | in full | why |\n|---|---|---:|---:|---|")
    rows = []
    for name in [asked.only] if asked.only else CONFIGURATIONS:
        rows.append(compared_row(name))
        print(shown_row(rows[-1]), flush=True)
    counts = {
        outcome: sum(row.outcome == outcome for row in rows) for outcome in dict.fromkeys(r.outcome for r in rows)
    }
    print(f"{len(rows)} architectures:", ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    wrong = any(row.outcome == "WRONG" for row in rows)
    if not asked.skip_large:
        wrong |= not large(asked.directory)
    raise SystemExit(wrong)


def quiet() -> None:
    """No messages of libraries."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def compared_row(name: str) -> StampRow:
    """Capture one architecture both ways, and compare."""
    model, inputs = built(name)
    captures, seconds = [], []
    for stamp in (True, False):
        start = time.perf_counter()
        options = {"fake": True, "mode": "train", "loss": lambda output: output.loss, "stamp": stamp}
        captures.append(bp.capture(model, kwargs=inputs, **options))
        seconds.append(time.perf_counter() - start)
    made, full = captures
    note = next(iter(made.notes), "nothing to stamp: no list of twelve equal layers")
    if texts(made) != texts(full):
        return StampRow(name, "WRONG", *seconds, note)
    stamped = note.startswith("stamped: ")
    return StampRow(name, "stamped" if stamped else "in full", *seconds, "" if stamped else note.partition(": ")[2])


def texts(capture: bp.Capture) -> list[tuple[str, str]]:
    """The hash and the text of every graph."""
    graphs = [graph for pair in capture.pairs for graph in (pair.forward, pair.backward) if graph is not None]
    return [(graph.hash(), graph.code) for graph in graphs]


def built(name: str) -> tuple[Any, dict[str, Any]]:
    """A model without values, and its inputs."""
    import torch
    import transformers

    kind: Callable[..., Any] = getattr(transformers, name)
    with bp.fake():
        model = kind(kind.config_class(**CONFIGURATIONS[name]))  # type: ignore[attr-defined]  # set by each class
        if "Image" in name:
            return model, {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.zeros(2, dtype=torch.long)}
        words = torch.ones(2, TOKENS, dtype=torch.long)
        return model, {"input_ids": words, "labels": words}


def shown_row(row: StampRow) -> str:
    """A row as Markdown."""
    return f"| {row.name} | {row.outcome} | {row.seconds:.1f} s | {row.in_full:.1f} s | {row.why[:160]} |"


# ------------------------------------------------------------------ 405B


def factory() -> tuple[Any, tuple[()], dict[str, Any]]:
    """Llama-3.1-405B with its loss, for the command line."""
    import torch
    from scale import CONFIG, TOKENS
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=126, **CONFIG))
    torch.set_default_dtype(torch.float32)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    return model, (), {"input_ids": tokens, "labels": tokens}


def loss(output: Any) -> Any:
    """The loss of a model of `transformers`."""
    return output.loss


def large(place: Path) -> bool:
    """Capture 405B from the command line, stamped and in full; return whether both have the same graphs."""
    place.mkdir(parents=True, exist_ok=True)
    hashes = []
    for name, more in (("stamped", ()), ("in_full", ("--no-stamp",))):
        target, folder = f"{__file__}:factory", str(place / name)
        command = ["-m", "backprint", "capture", target, "--fake", "--loss", f"{__file__}:loss", "--overwrite"]
        start = time.perf_counter()
        child = subprocess.Popen([sys.executable, *command, "-o", folder, *more], stdout=subprocess.DEVNULL)
        _, code, used = os.wait4(child.pid, 0)
        seconds, gibibytes = time.perf_counter() - start, used.ru_maxrss / 2**20
        if code:
            raise SystemExit(f"{name}: the command line ended with {code}")
        bars = "" if name == "in_full" else f"; bars {BARS}"
        processor = used.ru_utime + used.ru_stime
        print(f"405B {name}: {seconds:.1f} s, {processor:.1f} s of processor, {gibibytes:.2f} GiB{bars}", flush=True)
        hashes.append(
            [side for pair in bp.load(folder).pairs for side in (pair.forward.hash(), hash_of(pair.backward))]
        )
    print(
        f"405B: {'the same graphs' if hashes[0] == hashes[1] else 'WRONG'} {' '.join(each[:16] for each in hashes[0])}"
    )
    return hashes[0] == hashes[1]


def hash_of(graph: Any) -> str:
    """The hash of a graph."""
    return "none" if graph is None else str(graph.hash())


if __name__ == "__main__":
    main()
