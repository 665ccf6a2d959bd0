"""Write the pages that the browser tests open, and what independent counts say of them.

    python tests/draw/browser_pages.py FOLDER

`expected.json` has numbers that Backprint did not count: FLOPs as torch's FlopCounterMode counts them, and the bytes of
tensors that autograd saves, from its hooks.
"""

from __future__ import annotations

import copy
import itertools
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import backprint as bp
from backprint.tools.diff.page import diff_data
from backprint.tools.draw.page import page_data, page_html

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&amp;\u202egpj.exe\u05d0\u05d1"


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.act: Callable[[torch.Tensor], torch.Tensor] = torch.nn.functional.gelu
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class Stack(torch.nn.Module):
    def __init__(self, layers: int = 8, width: int = 16) -> None:
        super().__init__()
        self.inp = torch.nn.Linear(8, width)
        self.layers = torch.nn.ModuleList(Block(width) for _ in range(layers))
        self.head = torch.nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inp(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Chain(torch.nn.Module):
    """Sixty layers of which none is like its neighbors: no loop."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [4 + 7 * place % 5 for place in range(61)]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(*ends) for ends in itertools.pairwise(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start = x = self.layers[0](x)
        for place, layer in enumerate(self.layers[1:], 1):
            x = (torch.tanh, torch.exp, torch.sin)[place * place % 7 % 3](layer(x))
        return x.sum() * start.sum()


def chain() -> dict[str, Any]:
    """Of a sample, which has a verdict."""
    with tempfile.TemporaryDirectory() as folder:
        place = bp.capture(Chain(), torch.randn(3, 4)).save(Path(folder) / "chain")
        return plain(page_data(bp.load(place)))


def counted(model: torch.nn.Module, x: torch.Tensor) -> dict[str, int]:
    """Count what the page says, without Backprint."""
    held = {each.untyped_storage().data_ptr() for each in (*model.parameters(), x)}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in held:
            saved[storage.data_ptr()] = storage
        return tensor

    with FlopCounterMode(display=False) as forward, torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = model(x)
    with FlopCounterMode(display=False) as backward:
        out.backward(torch.ones_like(out))
    return {
        "forward_flops": forward.get_total_flops(),
        "backward_flops": backward.get_total_flops(),
        "saved": sum(storage.nbytes() for storage in saved.values()),
    }


def plain(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data as the page reads them: lists, which can be damaged."""
    read_back: dict[str, Any] = json.loads(json.dumps(data))
    return read_back


def stack() -> dict[str, Any]:
    torch.manual_seed(0)
    return plain(page_data(bp.capture(Stack(), torch.randn(32, 8), engine="eager")))


class Halved(Stack):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 0.5


def difference() -> dict[str, Any]:
    """Before, the result is halved. After, a layer has another activation, and one has one step more."""
    before, after, x = Halved(), Stack(), torch.randn(32, 8)
    after.layers[5].act = torch.nn.functional.silu
    after.layers[6].act = lambda y: torch.nn.functional.gelu(y).tanh()
    return plain(diff_data(bp.diff.compare(*(bp.capture(each, x, engine="eager") for each in (before, after)))))


def hostile_difference(data: dict[str, Any]) -> dict[str, Any]:
    data = hostile(data)
    for pair in data["pairs"]:
        pair["marks"]["text"] = [f"{text}{HOSTILE}".replace("\n", f"{HOSTILE}\n") for text in pair["marks"]["text"]]
    return {**data, "changes": [f"{line}{HOSTILE}" for line in data["changes"]]}


def with_stats(data: dict[str, Any]) -> dict[str, Any]:
    """Add statistics of values: every step is measured, one has NaN, one Inf."""
    data = copy.deepcopy(data)
    pair = data["pairs"][0]
    steps = len(pair["nodes"]["name"])
    rows: list[list[Any]] = [[16, -1.5, 2.0, 0.25, 1.0, 4.0, 0, 0, 1] for _ in range(steps)]
    rows[steps - 3] = [16, None, None, None, None, 0.0, 5, 0, 0]
    rows[2] = [16, -1.0, 1.0, 0.0, 1.0, 2.0, 0, 3, 0]
    pair["stats"] = {"value": list(range(steps)), "rows": rows}
    return data


def hostile(data: dict[str, Any]) -> dict[str, Any]:
    """Put a name that tries to leave its place into every text of a page."""
    data = copy.deepcopy(data)
    for pair in data["pairs"]:
        pair["name"] = HOSTILE
        pair["strings"] = ["", *(f"{text}{HOSTILE}" for text in pair["strings"][1:])]
        pair["code"]["forward"] = [HOSTILE]
    data["facts"], data["notes"] = [[HOSTILE, HOSTILE]], [HOSTILE]
    data["verdict"] |= {"word": HOSTILE, "meaning": HOSTILE}
    return {**data, "title": HOSTILE}


class Largest(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.argmax()


def one_direction() -> dict[str, Any]:
    return plain(page_data(bp.capture(Largest(), torch.randn(3))))


def two_pairs(data: dict[str, Any]) -> dict[str, Any]:
    other = one_direction()["pairs"][0]
    return {**data, "pairs": [data["pairs"][0], {**other, "name": "the second"}]}


DAMAGE: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "format": lambda page, pair: page.update(format=2),
    "pairs": lambda page, pair: page["pairs"].clear(),
    "nodes.op": lambda page, pair: pair["nodes"]["op"].pop(),
    "nodes.name[0]": lambda page, pair: pair["nodes"]["name"].__setitem__(0, 10**6),
    "nodes.inputs[3]": lambda page, pair: pair["nodes"]["inputs"].__setitem__(3, [-1]),
    "nodes.flags": lambda page, pair: pair["nodes"].update(flags="many"),
    "forward": lambda page, pair: pair.update(forward=10**6),
    "in no frame": lambda page, pair: next(f for f in pair["frames"] if f["units"][0] >= 0)["units"].clear(),
    "in two frames": lambda page, pair: pair["frames"][1]["units"].append(pair["frames"][0]["units"][0]),
    "inside itself": lambda page, pair: inside_itself(pair["frames"]),
    "its layout": lambda page, pair: pair["layouts"][0]["rows"][0][0].append(0),
    "layouts[0].left": lambda page, pair: pair["layouts"][0]["left"].append([0, 99, -1, 0, 1]),
    "memory.live": lambda page, pair: pair["memory"]["live"].pop(),
    "memory.spans[0]": lambda page, pair: pair["memory"]["spans"].__setitem__(0, [0, 0, 1, -5, 0]),
    "ports[0].value": lambda page, pair: pair["ports"][0].update(value=0),
    "strings": lambda page, pair: pair["strings"].__setitem__(0, "x"),
    "verdict.tone": lambda page, pair: page["verdict"].update(tone="fine"),
    "stats": lambda page, pair: pair.update(stats={"value": [0], "rows": []}),
    "code.ends": lambda page, pair: pair["code"].update(ends=[]),
    "on the side of the": lambda page, pair: pair.update(forward=pair["forward"] + 1),
    "FLOPs forward, and its steps add up to": lambda page, pair: pair["frames"][0]["counts"].__setitem__(3, 1),
    "saved bytes, and its steps add up to": lambda page, pair: next(row for row in pair["saved"] if row[3]).__setitem__(
        3, 1
    ),
    "memory.live[5]": lambda page, pair: pair["memory"]["live"].__setitem__(5, 1),
    "memory.peak": lambda page, pair: pair["memory"]["peak"].__setitem__(1, 1),
    "saved[0]": lambda page, pair: pair["saved"].__setitem__(0, [0, 0, 0, 0]),
}
"""What the page has to say where the data are damaged in this way."""

DAMAGED_MARKS: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "the page has no changes": lambda page, pair: page.pop("changes"),
    "has no marks": lambda page, pair: pair.pop("marks"),
    "changes[0]": lambda page, pair: page["changes"].__setitem__(0, 3),
    "marks.pair": lambda page, pair: pair["marks"].update(pair=0),
    "marks.node[1]": lambda page, pair: pair["marks"]["node"].__setitem__(1, pair["marks"]["node"][0]),
    "marks.node[0]": lambda page, pair: pair["marks"]["node"].__setitem__(0, 10**6),
    "none of added, removed, changed": lambda page, pair: pair["marks"]["kind"].__setitem__(0, "renamed"),
    "two lines with": lambda page, pair: pair["marks"]["text"].__setitem__(0, "+ x"),
    "marks.text[0]": lambda page, pair: pair["marks"]["text"].__setitem__(0, "x\ny"),
    "marks.text: ": lambda page, pair: pair["marks"]["text"].pop(),
    "is not marked as": lambda page, pair: pair["marks"]["other"].__setitem__(0, 0),
}
"""The same, of the page of a difference."""


def inside_itself(frames: list[dict[str, Any]]) -> None:
    inner = next(place for place, frame in enumerate(frames) if place and any(unit < 0 for unit in frame["units"]))
    child = next(-unit - 1 for unit in frames[inner]["units"] if unit < 0)
    around = frames[frames[inner]["parent"]]["units"]
    around.remove(-inner - 1)
    frames[inner]["parent"] = child
    frames[child]["units"].append(-inner - 1)


def write(folder: Path, name: str, data: dict[str, Any]) -> None:
    (folder / f"{name}.html").write_text("".join(page_html(data)), "utf-8")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    x, data = torch.randn(32, 8), stack()
    pages = {
        "stack": data,
        "stats": with_stats(data),
        "hostile": hostile(with_stats(data)),
        "one": one_direction(),
        "chain": chain(),
        "two": two_pairs(data),
        "diff": (changed := difference()),
        "hostile_diff": hostile_difference(changed),
    }
    for name, page in pages.items():
        write(folder, name, page)
    damages = [(data, *item) for item in DAMAGE.items()] + [(changed, *item) for item in DAMAGED_MARKS.items()]
    for place, (whole, _, damage) in enumerate(damages):
        broken = copy.deepcopy(whole)
        damage(broken, broken["pairs"][0])
        write(folder, f"broken{place}", broken)
    expected = {"counts": counted(Stack(), x), "damage": [words for _, words, _ in damages]}
    (folder / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
