"""Power, side by side: GraphNet's own regeneration of its samples' inputs against the recipes that Backprint makes.

Both sides run the same captured forward and backward. Of each sample, the same random part of its inputs is drawn again
on both sides, one alone at a time: on GraphNet's by its own `replay_tensor`, and where that draws nothing, by the same
definite step that Backprint takes there. A sample reacts where its outputs and its gradients each move by a tolerance
or more for every input tried that they depend on mathematically.

    python benchmarks/power.py --graphnet DIR [--mode train] [--count 60] [--seed 0] [--megabytes 50] [--tries 8]
                               [--seconds 60] [--json FILE] [SAMPLE...]

DIR is a checkout of GraphNet with its samples. Without SAMPLEs, `--count` of them are drawn evenly over its families.
Its `graph_net_bench/torch/utils.py` is imported, which executes its samples' `weight_meta.py`: use your own checkout.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import multiprocessing
import random
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import backprint as bp
from backprint.common.formats import has_graphnet
from backprint.graph.nouns import Capture
from backprint.graph.verdicts import Power
from backprint.prove.power import power_of
from backprint.sample.inputs import Inputs, held_exact, recipe_at
from backprint.tools.graphnet.read import plan_of, read_graphnet

Row = dict[str, Any]

GROUPS = 3
"""What is redrawn together, before single inputs: everything, the parameters, the buffers."""


# ------------------------------------------------------------------ which samples


def drawn(root: Path, count: int, seed: int, most: int) -> list[Path]:
    """Samples, evenly over the families, none of whose inputs take more than `most` bytes."""
    chance = random.Random(seed)
    families: dict[str, list[Path]] = {}
    for place in sorted(root.glob("**/model.py")):
        families.setdefault(place.relative_to(root).parts[0], []).append(place.parent)
    for places in families.values():
        chance.shuffle(places)
    found: list[Path] = []
    while len(found) < count and any(families.values()):
        for places in families.values():
            if (place := next(fitting(places, most), None)) is not None and len(found) < count:
                found.append(place)
    return found


SHAPE = re.compile(r"^    shape = \[([\d,\s]*)\]", re.MULTILINE)


def fitting(places: list[Path], most: int) -> Iterator[Path]:
    """Take samples off a list until one is small enough, taking every number for one of four bytes."""
    while places:
        place = places.pop()
        metas = place / "weight_meta.py"
        if has_graphnet(place) and metas.is_file():
            shapes = SHAPE.findall(metas.read_text())
            if 4 * sum(math.prod(map(int, filter(str.strip, shape.split(",")))) for shape in shapes) <= most:
                yield place


# ------------------------------------------------------------------ one sample


def regenerated(folder: Path, seed: int) -> dict[str, Tensor]:
    """A sample's inputs, by the names in its code, as GraphNet makes them."""
    import numpy

    utils = importlib.import_module("graph_net_bench.torch.utils")
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    found = {}
    for name, info in utils.load_converted_from_text(str(folder))["weight_info"].items():
        info["info"]["device"] = "cpu"
        found[name] = utils.replay_tensor(info).contiguous()
    return found


def theirs(capture: Capture, names: Mapping[str, str], values: Mapping[str, Tensor]) -> Inputs:
    """GraphNet's values under our names; tangents are ours, and what a guard holds stays as it was captured."""
    held = held_exact(capture)
    free = {raw: name for raw, name in names.items() if name in capture.recipes.recipes and name not in held}
    own = {name: values[raw] for raw, name in free.items() if raw in values}
    recipes = dict(capture.recipes.recipes) | {name: recipe_at(value, "exact", {}, 0) for name, value in own.items()}
    return Inputs(recipes, dict(capture.recipes.exact) | own, capture.seed)


def measured(folder: Path, mode: str | None, tries: int, seconds: float) -> Row:
    """Both sides of one sample."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    started = time.monotonic()
    capture = bp.capture(folder, mode=mode)
    names = {named.raw: named.name for named in plan_of(read_graphnet(folder)).inputs}
    spent = time.monotonic() - started
    ours = power_of(capture, "all", seconds=seconds, count=GROUPS + tries)
    single = tuple(trial.inputs[0] for trial in ours.trials if len(trial.inputs) == 1 and " " in trial.name)
    first, second = (theirs(capture, names, regenerated(folder, seed)) for seed in (0, 1))
    other = power_of(capture, recipes=first, only=single, fresh=second.make())
    return {"capture": spent, "engine": capture.engine, "ours": told(ours), "graphnet": told(other)}


def told(power: Power) -> Row:
    """What the table needs of a Power."""
    asked = sum(len(trial.moved) for trial in power.trials)
    return {
        "reacts": power.reacts,
        "tried": power.tried,
        "of": power.of,
        "pairs": asked,
        "weak": len(power.weak),
        "hidden": power.hidden,
        "strict": power.reacts and not power.silent,
        "dead_ports": power.dead_ports,
        "silent": power.silent,
        "untried": [(trial.name, trial.untried) for trial in power.trials if trial.untried],
    }


def child(pipe: Any, folder: Path, *options: Any) -> None:
    """One sample in a process of its own."""
    try:
        pipe.send(measured(folder, *options))
    except Exception as error:  # a row for every sample
        pipe.send({"error": f"{type(error).__name__}: {str(error)[:300]}"})


def alone(folder: Path, limit: float, *options: Any) -> Row:
    """One sample, measured in a process that may take `limit` seconds."""
    near, far = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=child, args=(far, folder, *options))
    process.start()
    far.close()
    try:
        row: Row = near.recv() if near.poll(limit) else {"error": f"no answer in {limit:.0f} s"}
    except EOFError:
        row = {"error": "its process died"}
    process.kill()
    process.join()
    return row


# ------------------------------------------------------------------ the table


def share(rows: list[Row], side: str, key: str) -> str:
    """How many samples react, of how many."""
    good = sum(row[side][key] for row in rows)
    return f"{good} of {len(rows)} ({good / max(1, len(rows)):.1%})"


def table(rows: list[Row]) -> str:
    """Both sides."""
    found = [row for row in rows if "ours" in row and row["ours"]["pairs"]]
    lines = ["| | GraphNet's regeneration | Backprint's recipes |", "|---|---|---|"]

    def line(words: str, of: Any) -> None:
        lines.append(f"| {words} | {of('graphnet')} | {of('ours')} |")

    def pairs(side: str) -> str:
        asked, weak = (sum(row[side][key] for row in found) for key in ("pairs", "weak"))
        return f"{asked - weak:,} of {asked:,} ({(asked - weak) / max(1, asked):.2%})"

    line("samples of which a check sees everything tried", lambda side: share(found, side, "reacts"))
    line("the same, if outputs alone and gradients alone have to see it", lambda side: share(found, side, "strict"))
    line("samples with something hidden", lambda side: sum(bool(row[side]["hidden"]) for row in found))
    line("samples with a port that nothing moves", lambda side: sum(bool(row[side]["dead_ports"]) for row in found))
    line("pairs of a port and an input that it depends on, that react", pairs)
    tried, of = (sum(row["ours"][key] for row in found) for key in ("tried", "of"))
    lines += ["", f"{len(found)} samples; {tried} of {of} inputs were redrawn alone."]
    errors = Counter(row["error"].partition(":")[0] for row in rows if "error" in row)
    if errors:
        lines.append("Not measured: " + ", ".join(f"{count} {name}" for name, count in errors.items()))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", nargs="*", type=Path)
    parser.add_argument("--graphnet", type=Path, required=True, help="a checkout of GraphNet")
    parser.add_argument("--mode", choices=("train", "eval"))
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=50, help="of inputs that a sample may have")
    parser.add_argument("--tries", type=int, default=8, help="inputs of a sample that are redrawn alone")
    parser.add_argument("--seconds", type=float, default=60.0, help="after which no more of them is")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one sample may take in all")
    parser.add_argument("--json", type=Path, help="a line a sample")
    given = parser.parse_args()
    sys.path.append(str(given.graphnet))
    root = given.graphnet / "samples"
    places = given.samples or drawn(root, given.count, given.seed, given.megabytes * 2**20)
    rows = []
    for place in places:
        row = {"sample": str(place.relative_to(root) if place.is_relative_to(root) else place)}
        row |= alone(place, given.limit, given.mode, given.tries, given.seconds)
        rows.append(row)
        said = row.get("error") or " ".join(f"{side}: {row[side]['reacts']}" for side in ("graphnet", "ours"))
        print(f"{len(rows)}/{len(places)} {row['sample']} {said[:160]}", flush=True)
        if given.json:
            with given.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print("\n" + table(rows))


if __name__ == "__main__":
    main()
