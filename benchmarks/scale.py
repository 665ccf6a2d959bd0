"""What a capture of Llama-3.1-405B costs without its values: forward with loss, and backward, of 1 × 4,096 tokens.

It is captured from the command line, in a process of its own, twice: as by default, where a few of the 126 equal layers
are traced and the others stamped, and with `--no-stamp`, where all are traced. Both must give the same graphs, by hash.
Needs `transformers`.

    python benchmarks/scale.py [FOLDER]

FOLDER (default: `build/scale`) gets the samples `stamped` and `in_full`. Exits with 1 if the graphs differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from results import Figure, keep

import backprint as bp

TOKENS = 4096

CONFIG: dict[str, Any] = {
    "vocab_size": 128256,
    "hidden_size": 16384,
    "intermediate_size": 53248,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": False,
    "use_cache": False,
}
"""As published with meta-llama/Llama-3.1-405B."""


def factory() -> tuple[Any, tuple[()], dict[str, Any]]:
    """The model in bfloat16 and its inputs, for the command line."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG))
    torch.set_default_dtype(torch.float32)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    return model, (), {"input_ids": tokens, "labels": tokens}


def loss(output: Any) -> Any:
    """The loss of a model of `transformers`."""
    return output.loss


def captured(folder: Path, *options: str) -> tuple[float, float]:
    """Capture it from the command line, and return the seconds and the GiB of its peak."""
    command = [
        "-m",
        "backprint",
        "capture",
        f"{__file__}:factory",
        "--fake",
        "--loss",
        f"{__file__}:loss",
        "--overwrite",
    ]
    start = time.perf_counter()
    child = subprocess.Popen([sys.executable, *command, "-o", str(folder), *options], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"the command ended with status {status}")
    return time.perf_counter() - start, used.ru_maxrss / 2**20


def graphs_of(folder: Path) -> list[Any]:
    """The graphs of a sample."""
    return [graph for pair in bp.load(folder).pairs for graph in (pair.forward, pair.backward) if graph is not None]


def main() -> int:
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "build/scale")
    seconds, gibibytes = captured(place / "stamped")
    in_full, more = captured(place / "in_full", "--no-stamp")
    graphs = graphs_of(place / "stamped")
    if [graph.hash() for graph in graphs] != [graph.hash() for graph in graphs_of(place / "in_full")]:
        raise SystemExit("WRONG: the stamped capture has other graphs than the one in full")
    return keep(
        "scale",
        [
            Figure("Llama-3.1-405B, captured and saved, stamped", seconds, "s", at_most=6.0),
            Figure("the same, peak memory", gibibytes, "GiB", at_most=1.0),
            Figure("traced in full: the same graphs", in_full, "s", at_most=90.0),
            Figure("the same, peak memory", more, "GiB", at_most=2.0),
            Figure("steps of the forward", len(graphs[0].steps)),
            Figure("steps of the backward", len(graphs[1].steps)),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
