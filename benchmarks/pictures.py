"""Pictures of one model by torchviz, torchview, PyTorch's FxGraphDrawer, torchlens and Backprint: seconds and sizes.

    python benchmarks/pictures.py [--docs docs/pictures] [--limit SECONDS] [--model NAME]

Each tool draws each model in a process of its own, from the model in memory to an SVG file; imports are not counted.
A tool that takes longer than the limit is stopped. With `--docs` the pictures of the smallest model are kept there.
Needs the packages torchviz, torchview, torchlens and pydot, and the system's Graphviz, for all but Backprint's own.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import backprint as bp

EXAMPLES = Path(__file__).parents[1] / "examples"
LIMIT = 300.0
LAYERS = 24

Model = tuple[nn.Module, tuple[Tensor, ...]]


def example(name: str) -> Any:
    """Import a file of `examples/`."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def deep_gpt() -> Model:
    """Return the example's GPT with 24 layers, and its inputs."""
    gpt = example("gpt")
    return gpt.GPT(gpt.Config(n_layer=LAYERS)).train(), gpt.factory()[1]


MODELS: dict[str, Callable[[], Model]] = {
    "ConvNet": lambda: example("convnet").factory(),
    "ResNet-18": lambda: example("resnet18").factory(),
    f"GPT of {LAYERS} layers": deep_gpt,
}


def draw_block(place: Path) -> None:
    """Draw a block of the example's GPT, without dropout."""
    gpt = example("gpt")
    torch.manual_seed(0)
    config = gpt.Config(dropout=0.0)
    bp.capture(gpt.Block(config), torch.randn(2, config.block, config.n_embd), name="GPT block").draw(place)


def loss_of(result: object) -> Tensor:
    """Return what is differentiated: the loss, or the sum of what the model returns."""
    last = result[-1] if isinstance(result, tuple) else result
    assert isinstance(last, Tensor)
    return last if last.ndim == 0 else last.sum()


# ------------------------------------------------------------------ tools


def by_torchviz(model: nn.Module, inputs: tuple[Tensor, ...], place: Path) -> None:
    """Draw the autograd nodes, with what they save."""
    import torchviz

    drawn = torchviz.make_dot(
        loss_of(model(*inputs)), params=dict(model.named_parameters()), show_attrs=True, show_saved=True
    )
    place.write_bytes(drawn.pipe("svg"))


def by_torchview(model: nn.Module, inputs: tuple[Tensor, ...], place: Path) -> None:
    """Draw the forward, with modules as frames."""
    import torchview

    drawn = torchview.draw_graph(model, input_data=inputs, expand_nested=True, depth=8, mode="train")
    place.write_bytes(drawn.visual_graph.pipe("svg"))


def by_fx_graph_drawer(model: nn.Module, inputs: tuple[Tensor, ...], place: Path) -> None:
    """Draw the two graphs that AOTAutograd gives a compiler: the backward's is a second file."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.fx.passes.graph_drawer import FxGraphDrawer

    def keeps(way: str) -> Callable[[torch.fx.GraphModule, object], torch.fx.GraphModule]:
        def keep(graph: torch.fx.GraphModule, given: object) -> torch.fx.GraphModule:
            drawn = FxGraphDrawer(graph, way).get_dot_graph()
            place.with_stem(f"{place.stem}_{way}").write_bytes(drawn.create_svg())
            return graph

        return keep

    partition = min_cut_rematerialization_partition
    backend = aot_autograd(fw_compiler=keeps("forward"), bw_compiler=keeps("backward"), partition_fn=partition)
    loss_of(torch.compile(model, backend=backend)(*inputs)).backward()


def by_torchlens(model: nn.Module, inputs: tuple[Tensor, ...], place: Path) -> None:
    """Draw forward and backward in one picture, with modules as frames."""
    import torchlens

    log = torchlens.trace(model, list(inputs), capture=torchlens.options.CaptureOptions(save_grads=True))
    log.log_backward(loss_of(tuple(log[each].out for each in log.output_layers)))
    log.draw_combined(vis_outpath=str(place.with_suffix("")), vis_fileformat="svg", vis_save_only=True)


def by_backprint(model: nn.Module, inputs: tuple[Tensor, ...], place: Path) -> None:
    """Capture both directions, with proof, and draw them."""
    capture = bp.capture(model, *inputs)
    start = time.perf_counter()
    capture.draw(place)
    print(json.dumps({"draw": time.perf_counter() - start}))


TOOLS: dict[str, Callable[[nn.Module, tuple[Tensor, ...], Path], None]] = {
    "torchviz": by_torchviz,
    "torchview": by_torchview,
    "fx_graph_drawer": by_fx_graph_drawer,
    "torchlens": by_torchlens,
    "backprint": by_backprint,
}


# ------------------------------------------------------------------ processes


def draw_alone(tool: str, name: str, place: Path) -> None:
    """Draw in this process, and print the seconds."""
    model, inputs = MODELS[name]()
    loss_of(model(*inputs)).backward()  # what is slow only the first time is not the tool's
    model.zero_grad()
    importlib.import_module({"fx_graph_drawer": "torch._dynamo.backends.common"}.get(tool, tool))
    start = time.perf_counter()
    TOOLS[tool](model, inputs, place)
    print(json.dumps({"seconds": time.perf_counter() - start}))


def measured(tool: str, name: str, place: Path, limit: float) -> dict[str, float] | str:
    """Draw in a process of its own; return its figures, or why there are none."""
    command = [sys.executable, __file__, "--one", tool, name, str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return f"stopped after {limit:.0f} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no message"])[-1][:90]
    figures: dict[str, float] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            figures |= json.loads(line)
    return figures


def files_of(place: Path) -> list[Path]:
    """Return what a tool wrote: one file, or one a direction."""
    return sorted(place.parent.glob(f"{place.stem}*.svg"))


def size_of(path: Path) -> str:
    """Return how many points an SVG is wide and high."""
    found = re.search(r'viewBox="0(?:\.0+)? 0(?:\.0+)? ([\d.]+) ([\d.]+)"', path.read_text(errors="replace"))
    return " × ".join(f"{float(each):,.0f}" for each in found.groups()) if found else "?"


def rows(names: list[str], limit: float, docs: Path | None) -> Iterator[str]:
    """Yield the rows of the table, and keep the pictures of the first model."""
    for name in names:
        for tool in TOOLS:
            with tempfile.TemporaryDirectory() as work:
                place = Path(work) / f"{tool}.svg"
                figures = measured(tool, name, place, limit)
                if isinstance(figures, str):
                    yield f"| {name} | {tool} | {figures} | | |"
                    continue
                files = files_of(place)
                seconds = f"{figures['seconds']:.2f}"
                seconds += f", {figures['draw']:.2f} of them to draw" if "draw" in figures else ""
                size = sum(each.stat().st_size for each in files) / 1000
                yield f"| {name} | {tool} | {seconds} | {size:,.0f} | {' and '.join(map(size_of, files))} |"
                if docs is not None and name == next(iter(MODELS)):
                    for each in files:
                        shutil.copy(each, docs / each.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--docs", type=Path, help="keep the pictures of the smallest model in this folder")
    parser.add_argument("--limit", type=float, default=LIMIT, help="the most seconds of a tool on a model")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="draw only this model")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.one:
        draw_alone(given.one[0], given.one[1], Path(given.one[2]))
        return
    if given.docs is not None:
        draw_block(given.docs / "gpt_block.svg")
    print("| model | tool | seconds | kB of SVG | points |\n|---|---|---:|---:|---:|")
    for row in rows(given.model or list(MODELS), given.limit, given.docs):
        print(row, flush=True)


if __name__ == "__main__":
    main()
