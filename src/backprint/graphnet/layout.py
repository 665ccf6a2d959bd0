"""Trees as GraphNet's own backward extractor lays them out: `train_forward/`, `train_backward/` and `eval_forward/`.

Below each stands the sample under its own relative path, and several Pairs as `subgraph_0`, `subgraph_1`. These are
GraphNet samples alone: sizes are the numbers they were, every input and output is a tensor with elements, devices are
written so that its tools can move them, and the graph stands by itself. A tree is there whole or not at all: all is
written beside its place, and `graph_net.json` last, which is what its tools take for the mark of a whole one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from backprint.errors import SampleError, UsageError
from backprint.graph.fixed import at_capture, contiguous_inputs, tensors_alone
from backprint.graph.nouns import Capture, Graph
from backprint.graph.steps import live
from backprint.graph.text import emit
from backprint.graphnet.write import Run, undrawable, write_graphnet

TREES = ("train_forward", "train_backward", "eval_forward")


def write_trees(
    capture: Capture,
    out: str | os.PathLike[str],
    relative: str,
    values: Sequence[Mapping[str, Any]],
    *,
    evaluation: tuple[Capture, Sequence[Mapping[str, Any]]] | None = None,
    source: Path | None = None,
    run: Run | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write a Capture's graphs below `out`, each tree's folder at `relative`; the folders by tree.

    `values` has what stood on each Pair's ports. What a program is in eval mode is the GraphNet sample in `source`, as
    it came, or the forward of `evaluation`, a Capture in that mode and its values; else there is no such tree.
    """
    root = Path(out)
    place = placed(relative)
    finals = {tree: root / tree / place for tree in TREES}
    root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=root))
    try:
        written = fill(staging, capture, values, place.name, evaluation, source, run)
        for tree in TREES:
            if finals[tree].exists():
                if not overwrite:
                    raise UsageError(f"{finals[tree]} is there already: pass overwrite=True, or choose another place")
                shutil.rmtree(finals[tree])
        for tree in written:
            finals[tree].parent.mkdir(parents=True, exist_ok=True)
            (staging / tree).chmod(0o755)
            os.replace(staging / tree, finals[tree])
    except OSError as error:
        raise SampleError(f"{root}: the trees could not be written: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return {tree: finals[tree] for tree in written}


def placed(relative: str) -> PurePosixPath:
    """A relative path that stays inside, and that GraphNet's tools, which paste it into commands, can take."""
    place = PurePosixPath(relative)
    if place.is_absolute() or not place.parts or any(part in ("..", ".") for part in place.parts):
        raise UsageError(f"{relative!r:.80} is no path below a tree")
    if not re.fullmatch(r"[\w.@+,=/-]+", relative, re.ASCII):
        raise UsageError(f"{relative!r:.80}: GraphNet's tools take letters, digits and . _ - @ + , = in a path alone")
    return place


def fill(
    staging: Path,
    capture: Capture,
    values: Sequence[Mapping[str, Any]],
    name: str,
    evaluation: tuple[Capture, Sequence[Mapping[str, Any]]] | None,
    source: Path | None,
    run: Run | None,
) -> list[str]:
    """Every tree of one sample; which there are."""
    forwards = [pair.forward for pair in capture.pairs]
    backwards = [pair.backward for pair in capture.pairs]
    written = [side(staging / "train_forward", capture, f"{name}_train_forward", forwards, values, run)]
    written.append(side(staging / "train_backward", capture, f"{name}_train_backward", backwards, values, run))
    there = staging / "eval_forward"
    if source is not None:
        copied(source, there)
        written.append(True)
    elif evaluation is not None:
        made, theirs = evaluation
        inference = [outputs_alone(pair.forward) for pair in made.pairs]
        written.append(side(there, made, f"{name}_eval_forward", inference, theirs, run))
    return [tree for tree, is_there in zip(TREES, written, strict=False) if is_there]


def outputs_alone(graph: Graph) -> Graph:
    """An inference graph: no value saved for a backward."""
    kept = [(p, r) for p, r in zip(graph.outputs, graph.results, strict=True) if p.role != "saved"]
    return live(replace(graph, outputs=tuple(port for port, _ in kept), results=tuple(result for _, result in kept)))


def side(
    folder: Path,
    capture: Capture,
    name: str,
    graphs: Sequence[Graph | None],
    values: Sequence[Mapping[str, Any]],
    run: Run | None,
) -> bool:
    """One tree's folder of a sample: one graph, or a `subgraph_N` for each; whether there was any."""
    rows = [(index, graph) for index, graph in enumerate(graphs) if graph is not None]
    rows = [
        (index, plain)
        for index, graph in rows
        if (plain := contiguous_inputs(tensors_alone(at_capture(graph)))).outputs
    ]
    for index, graph in rows:
        place = folder / f"subgraph_{index}" if len(graphs) > 1 else folder
        place.mkdir(parents=True)
        text = model_text(capture, name, graph)
        (place / "model.py").write_text(text, encoding="utf-8")
        write_graphnet(place, name, graph, text, values[index], undrawable(capture, graph), run)
    return bool(rows)


DEVICE = re.compile(r"torch\.device\('([a-z]+)(?::(\d+))?'\)")


def model_text(capture: Capture, name: str, graph: Graph) -> str:
    """`model.py`: the graph alone, with devices as GraphNet's tools look for them, to move them."""
    text = emit(graph, f"{name}. Captured by Backprint with engine {capture.engine}.")
    text = DEVICE.sub(lambda found: f'device(type="{found[1]}"' + (f", index={found[2]})" if found[2] else ")"), text)
    return text.replace("from torch import inf, nan\n", "from torch import device, inf, nan\n", 1)


def copied(source: Path, there: Path) -> None:
    """A GraphNet sample as it came, completed where files or attributes are missing."""
    if not any(source.rglob("model.py")):
        raise SampleError(f"{source}: no model.py in it or below, so this is no GraphNet sample")
    apart = (source / "model.py").is_file()

    def left(folder: str, names: list[str]) -> list[str]:
        below = [name for name in names if apart and any((Path(folder) / name).rglob("model.py"))]
        return [*left_out(folder, names), *below]  # other samples, which have trees of their own

    shutil.copytree(source, there, ignore=left)
    for model in sorted(there.rglob("model.py")):
        folder = model.parent
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        made = {
            "weight_meta.py": "",
            "input_meta.py": "",
            "input_tensor_constraints.py": EMPTY,
            "graph_hash.txt": digest,
        }
        for file, text in made.items():
            if not (folder / file).exists():
                (folder / file).write_text(text, encoding="utf-8")
        facts = folder / "graph_net.json"
        known = json.loads(facts.read_text(encoding="utf-8")) if facts.exists() else {}
        defaults = {
            "framework": "torch", "model_name": there.name, "num_devices_required": 1, "num_nodes_required": 1,
            "dynamic": False,
        }  # fmt: skip
        if not isinstance(known, dict):
            raise SampleError(f"{source}: graph_net.json: expected an object, found {type(known).__name__}")
        if defaults.keys() - known.keys():
            facts.write_text(
                json.dumps({**known, **{k: v for k, v in defaults.items() if k not in known}}, indent=4) + "\n"
            )


def left_out(folder: str, names: list[str]) -> list[str]:
    """What of a folder is not copied: hidden files, caches, and links, which may lead anywhere."""
    return [name for name in names if name[0] in "._" or (Path(folder) / name).is_symlink()]


EMPTY = """dynamic_dim_constraint_symbols = []

dynamic_dim_constraint_symbol2example_value = {}

dynamic_dim_constraint_relations = []

dynamic_dim_constraint_input_shapes = []
"""
