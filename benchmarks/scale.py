"""What a fake capture of Llama-3.1-405B costs if it is traced in full, by the number of its layers: time, memory, and
where the time goes.

Each depth runs in a process of its own. Needs `transformers`. Bars, for all 126 layers on two cores: 90 s, 2 GiB.

    python benchmarks/scale.py [DIRECTORY] [LAYERS...]

DIRECTORY (default: scale) gets a sample for each depth, `scale.md` and `scale.svg`.
"""

from __future__ import annotations

import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DEPTHS = (2, 8, 32, 126)
STAGES = ("construct", "trace", "partition", "build", "save")
BARS = {"seconds": 90.0, "gibibytes": 2.0}

CONFIG: dict[str, Any] = {
    "vocab_size": 128256,
    "hidden_size": 16384,
    "intermediate_size": 53248,
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
"""As published with meta-llama/Llama-3.1-405B; the number of layers is this script's to choose."""

TOKENS = 4096


def main() -> None:
    """All depths, a process each."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]), Path(sys.argv[3]))))
        return
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "scale")
    place.mkdir(parents=True, exist_ok=True)
    rows = []
    for layers in map(int, sys.argv[2:] or DEPTHS):
        command = [sys.executable, __file__, "--one", str(layers), str(place)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        rows.append(json.loads(said.splitlines()[-1]))
        print(table(rows[-1:], heading=len(rows) == 1), flush=True)
    (place / "scale.md").write_text(table(rows) + "\n", encoding="utf-8")
    (place / "scale.svg").write_text(plot(rows), encoding="utf-8")
    bad = [row for row in rows if row["seconds"] > BARS["seconds"] or row["gibibytes"] > BARS["gibibytes"]]
    print(f"{place / 'scale.md'}, {place / 'scale.svg'}; {'over' if bad else 'within'} the bars {BARS}")
    raise SystemExit(bool(bad))


def measure(layers: int, place: Path) -> dict[str, Any]:
    """One depth: forward with loss, and backward, of 1 x TOKENS tokens in bfloat16, saved as a sample."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    import backprint as bp
    from backprint.trace.aot import engine, trace

    spent = dict.fromkeys(STAGES, 0.0)
    start = time.perf_counter()
    with timed(spent, "construct"), bp.fake():
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=layers, **CONFIG))
        torch.set_default_dtype(torch.float32)
        tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    trace.partition_joint = watched(spent, "partition", trace.partition_joint)
    engine.assemble = watched(spent, "build", engine.assemble)
    with timed(spent, "trace"):
        inputs = {"input_ids": tokens, "labels": tokens}
        capture = bp.capture(model, kwargs=inputs, fake=True, stamp=False, loss=lambda output: output.loss)
    spent["trace"] -= spent["partition"] + spent["build"]
    with timed(spent, "save"):
        bp.save(capture, place / f"llama_{layers}_layers", overwrite=True)
    forward, backward = capture.pairs[0].forward, capture.pairs[0].backward
    return {
        "layers": layers,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "forward": len(forward.steps),
        "backward": len(backward.steps) if backward else 0,
        **spent,
        "seconds": time.perf_counter() - start,
        "processor": time.process_time(),
        "gibibytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


@contextlib.contextmanager
def timed(spent: dict[str, float], stage: str) -> Iterator[None]:
    """The seconds inside go to a stage."""
    start = time.perf_counter()
    yield
    spent[stage] += time.perf_counter() - start


def watched(spent: dict[str, float], stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with the seconds in it going to a stage."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with timed(spent, stage):
            return function(*args, **kwargs)

    return call


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "layers": lambda row: str(row["layers"]),
    "parameters": lambda row: f"{row['parameters'] / 1e9:.1f}e9",
    "steps forward": lambda row: f"{row['forward']:,}",
    "backward": lambda row: f"{row['backward']:,}",
    **{stage: lambda row, stage=stage: f"{row[stage]:.1f} s" for stage in STAGES},  # type: ignore[misc]
    "all": lambda row: f"{row['seconds']:.1f} s",
    "processor": lambda row: f"{row['processor']:.1f} s",
    "a layer": lambda row: f"{row['seconds'] / row['layers']:.2f} s",
    "peak memory": lambda row: f"{row['gibibytes']:.2f} GiB",
}


def table(rows: list[dict[str, Any]], heading: bool = True) -> str:
    """The rows as Markdown."""
    head = ["| " + " | ".join(COLUMNS) + " |", "|" + "---:|" * len(COLUMNS)] if heading else []
    return "\n".join([*head, *("| " + " | ".join(show(row) for show in COLUMNS.values()) + " |" for row in rows)])


def plot(rows: list[dict[str, Any]]) -> str:
    """Seconds against layers: the points, and the line from nothing to the last, as SVG."""
    wide, high, edge = 640, 400, 50
    most, longest = max(row["layers"] for row in rows), max(row["seconds"] for row in rows)

    def at(layers: float, seconds: float) -> tuple[float, float]:
        return edge + layers / most * (wide - 2 * edge), high - edge - seconds / longest * (high - 2 * edge)

    points = [(*at(row["layers"], row["seconds"]), f"{row['layers']} layers, {row['seconds']:.1f} s") for row in rows]
    (left, bottom), (right, top) = at(0, 0), at(most, longest)
    marks = [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4"/>' for x, y, _ in points]
    marks += [f'<text x="{x:.0f}" y="{y - 10:.0f}" text-anchor="middle">{said}</text>' for x, y, said in points]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif">\n'
        f'<path d="M{left:.0f} {top:.0f}V{bottom:.0f}H{right:.0f}" fill="none" stroke="black"/>\n'
        f'<path d="M{left:.0f} {bottom:.0f}L{right:.0f} {top:.0f}" stroke="silver"/>\n'
        + "\n".join(marks)
        + f'\n<text x="{wide / 2:.0f}" y="{high - 15}" text-anchor="middle">layers of Llama-3.1-405B</text>\n</svg>\n'
    )


if __name__ == "__main__":
    main()
