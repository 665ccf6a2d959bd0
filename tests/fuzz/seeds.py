"""The samples that the fuzz of the loader mutates: small, and between them everything that a sample can hold.

    PYTHONPATH=tests python tests/fuzz/seeds.py

writes tests/fuzz/corpus/*.json again, one sample a file: its texts by their paths.

They are kept, because what a seed number of the fuzz makes of them has to be the same with every torch. Numbers are
added by hand: a seed that changes, changes what all numbers mean. The lines that a `model.py` of ours ends with are
not kept, `<FOOTER>` stands for them; bytes are kept as base64.
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

import backprint as bp
from backprint.errors import BackprintError
from backprint.graph.nouns import Graph
from backprint.graph.text import parse
from backprint.sample.ending import MARKER, RUNNER, ending

CORPUS = Path(__file__).parent / "corpus"
MARK = "<FOOTER>"
Files = dict[str, Any]
"""A sample: what its files hold, texts or bytes, by their paths."""

FOR_GRAPHNET = ("graph_hash.txt", "input_tensor_constraints.py", "weight_meta.py", "input_meta.py", "graph_net.json")
LEFT_OUT = (*FOR_GRAPHNET, RUNNER)
"""What is there for GraphNet's tools, and to run a graph alone: reading a sample of ours does not look at it."""


def seeds() -> dict[str, Files]:
    """Every kept sample by its name."""
    found = {path.stem: unpacked(path.read_text("utf-8")) for path in sorted(CORPUS.glob("*.json"))}
    golden = (CORPUS.parent.parent / "golden").glob("format_*")
    return found | {f"ours_{path.name}": read(path, whole=False) for path in sorted(golden)}


def packed(files: Files) -> str:
    """A sample as a text."""
    rows: dict[str, Any] = {}
    for name, content in sorted(files.items()):
        if isinstance(content, bytes):
            rows[name] = {"base64": base64.b64encode(content).decode()}
        elif isinstance(content, str):
            graph, marker, _ = content.partition(MARKER)
            rows[name] = {"lines": (content.replace(end_of(graph), MARK) if marker else content).split("\n")}
        else:
            rows[name] = {"odd": content}
    return json.dumps(rows, indent=0, ensure_ascii=True)


def unpacked(text: str) -> Files:
    """The sample of a text."""
    return {name: content_of(row) for name, row in json.loads(text).items()}


def content_of(row: Mapping[str, Any]) -> Any:
    match row:
        case {"base64": said}:
            return base64.b64decode(said)
        case {"lines": lines}:
            text = "\n".join(lines)
            return text.replace(MARK, end_of(text.partition(MARK)[0])) if MARK in text else text
    return row["odd"]


def end_of(text: str) -> str:
    """The lines below a graph's text; those of a graph without ports where the text is none that is read."""
    try:
        return ending(parse(text))
    except (BackprintError, RecursionError, MemoryError, ValueError):
        return ending(Graph((), (), (), ()))


def read(folder: Path, whole: bool) -> Files:
    """The files of a sample on disk; of one of ours, with `whole`, those that only GraphNet reads too."""
    found: Files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc" and (whole or path.name not in LEFT_OUT):
            data = path.read_bytes()
            found[path.relative_to(folder).as_posix()] = data if path.suffix == ".safetensors" else data.decode()
    return found


# ------------------------------------------------------------------ what they are made of


def captures() -> Mapping[str, Callable[[], Any]]:
    """Captures of small programs, one a way of being odd."""

    def mlp() -> Any:
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2))
        return bp.capture(model, torch.randn(3, 3), name="mlp", mode="train")

    def order2() -> Any:
        return bp.capture(lambda x, w: (x @ w).tanh().sum(), torch.randn(2, 3), torch.randn(3, 2), order=2)

    def dynamic() -> Any:
        def attend(x: Any, y: Any) -> Any:
            return (torch.cat([x, y]) @ y.t()).softmax(-1).view(-1).sum()

        return bp.capture(attend, torch.randn(4, 5), torch.randn(3, 5), dynamic=True)

    def broken() -> Any:
        class Broken(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)

            def forward(self, x: Any) -> Any:
                hidden = self.first(x)
                print(end="")
                return {"out": self.second(hidden.relu()), "hidden": [hidden, None, "kept"]}

        return bp.capture(Broken(), torch.randn(2, 3), engine="dynamo")

    def in_place() -> Any:
        def updated(x: Any, steps: Any) -> Any:
            steps += 1
            y = x.clone()
            y[0] = 2.0
            y.mul_(x.t()[0])
            return y[1:], y.view(-1)

        return bp.capture(updated, torch.randn(3, 3), torch.zeros(()), engine="eager", functional=False)

    def guarded() -> Any:
        def branching(x: Any, count: int, names: dict[str, Any]) -> Any:
            if x.sum().item() > 0:
                return x * count + names["scale"]
            return x.nonzero().float().sum() + x.prod()

        return bp.capture(branching, torch.randn(4), 3, {"scale": torch.randn(4), "label": "a", "level": 1.5})

    def sparse() -> Any:
        matrix = torch.eye(3).to_sparse().coalesce()
        return bp.capture(lambda a, x: (a @ x).sum(), matrix, torch.randn(3, 2))

    def straight_through() -> Any:
        class Sign(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.sign()

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                return gradient * 2

        def program(x: Any) -> Any:
            with torch.no_grad():
                scale = x.abs().max()
            return Sign.apply(x) * scale

        return bp.capture(program, torch.randn(4))

    def complex_values() -> Any:
        return bp.capture(lambda x: torch.fft.fft(x).abs().sum(), torch.randn(4, dtype=torch.complex64))

    def chosen() -> Any:
        def conditional(x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)).sum()

        return bp.capture(conditional, torch.randn(3), engine="dynamo", requires_grad=False)

    def step() -> Any:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def train(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return bp.capture(train, torch.randn(2, 2))

    def fake() -> Any:
        with bp.fake():
            model = nn.Linear(4, 4)
        return bp.capture(model, torch.randn(2, 4), fake=True)

    def twins() -> Any:
        x = torch.randn(4)
        return bp.capture(lambda a, b, c, *rest, flag=True: (a * b + c[0], rest), x, x, [x[:1], (2, None)], 1, "s")

    def custom() -> Any:
        @torch.library.custom_op(OPERATOR, mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        twice.register_autograd(lambda ctx, gradient: twice(gradient))
        return bp.capture(lambda x: twice(x.sin()).sum(), torch.randn(4), allow=(OPERATOR,))

    made = (mlp, order2, dynamic, broken, in_place, guarded, sparse, straight_through, complex_values, chosen, step)
    return {function.__name__: function for function in (*made, fake, twins, custom)}


OPERATOR = "fuzzed::twice"
"""The custom operator that one of the samples calls."""


EXACT = ("complex_values", "guarded", "twins")
"""Those that are kept with their data."""


def write() -> None:
    """Capture, save and keep all of them; and the samples of GraphNet that tests have."""
    from subjects import graphnet_samples

    CORPUS.mkdir(exist_ok=True)
    for old in CORPUS.glob("*.json"):
        old.unlink()
    with tempfile.TemporaryDirectory() as work:
        for name, make in captures().items():
            torch.manual_seed(0)
            allow = (OPERATOR,) if name == "custom" else ()
            place = make().save(Path(work) / name, data="exact" if name in EXACT else "seed", allow=allow)
            keep(f"ours_{name}", read(place, whole=False))
        for name in graphnet_samples.SAMPLES:
            keep(f"graphnet_{name}", read(graphnet_samples.write(name, Path(work) / "g" / name), whole=True))
        parts = {
            f"subgraph_{index}/{path}": text
            for index, name in enumerate(("subgraph_3", "vmap"))
            for path, text in read(Path(work) / "g" / name, whole=True).items()
        }
        keep("graphnet_nested", parts | {"graph_net.json": '{"framework": "torch", "model_name": "nested"}'})
        untyped = read(Path(work) / "g" / "transformer", whole=True)
        keep("graphnet_untyped", {path: text for path, text in untyped.items() if path != "weight_meta.py"})


def keep(name: str, files: Files) -> None:
    (CORPUS / f"{name}.json").write_text(packed(files) + "\n", "utf-8")


if __name__ == "__main__":
    write()
