"""Trees as GraphNet's own backward extractor lays them out: `train_forward/`, `train_backward/` and `eval_forward/`.

Each tree has the sample under its own relative path, and several Pairs as `subgraph_0`, `subgraph_1`. These are plain
GraphNet samples: sizes are the captured numbers, every input and output is a tensor with elements, and devices are
written so that GraphNet's tools can move them. A tree is complete or absent: it is written beside its place, with
`graph_net.json` last, which GraphNet's tools take for the mark of a complete sample.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from backprint.errors import PlaceError, SampleError, UsageError
from backprint.graph.fixed import at_capture, contiguous_inputs, tensors_alone
from backprint.graph.keys import PortValues
from backprint.graph.nouns import Capture, Graph
from backprint.graph.text import emit
from backprint.graphnet.graphs import with_movable_devices, without_saved
from backprint.graphnet.write import DirectionRunner, inputs_to_keep, write_graphnet

TREES = ("train_forward", "train_backward", "eval_forward")


def write_trees(
    capture: Capture,
    out: str | os.PathLike[str],
    relative: str,
    values: Sequence[PortValues],
    *,
    evaluation: tuple[Capture, Sequence[PortValues]] | None = None,
    source: Path | None = None,
    run: DirectionRunner | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write a Capture's graphs below `out`, each tree's folder at `relative`; returns the folders by tree.

    `values` has the values of each Pair's ports. The tree of eval mode is a copy of the GraphNet sample in `source`, or
    the forward of `evaluation`, a Capture in eval mode with its values; without either there is no such tree.
    """
    root = Path(out)
    place = checked_relative_path(relative)
    finals = {tree: root / tree / place for tree in TREES}
    root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=root))
    try:
        written = write_each_tree(staging, capture, values, place.name, evaluation, source, run)
        for tree in TREES:
            if finals[tree].exists():
                if not overwrite:
                    raise UsageError(f"{finals[tree]} exists already: pass overwrite=True, or choose another place")
                shutil.rmtree(finals[tree])
        for tree in written:
            finals[tree].parent.mkdir(parents=True, exist_ok=True)
            (staging / tree).chmod(0o755)
            os.replace(staging / tree, finals[tree])
    except OSError as error:
        raise PlaceError(f"{root}: the trees could not be written: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return {tree: finals[tree] for tree in written}


def checked_relative_path(relative: str) -> PurePosixPath:
    """Check a relative path: it stays inside the tree, and GraphNet's tools can paste it into commands."""
    place = PurePosixPath(relative)
    if place.is_absolute() or not place.parts or any(part in ("..", ".") for part in place.parts):
        raise UsageError(f"{relative!r:.80} is not a path below a tree")
    if not re.fullmatch(r"[\w.@+,=/-]+", relative, re.ASCII):
        raise UsageError(f"{relative!r:.80}: GraphNet's tools take letters, digits and . _ - @ + , = in a path alone")
    return place


def write_each_tree(
    staging: Path,
    capture: Capture,
    values: Sequence[PortValues],
    name: str,
    evaluation: tuple[Capture, Sequence[PortValues]] | None,
    source: Path | None,
    run: DirectionRunner | None,
) -> list[str]:
    """Write every tree of one sample; returns the trees that it has."""
    forwards = [pair.forward for pair in capture.pairs]
    backwards = [pair.backward for pair in capture.pairs]
    written = [write_one_tree(staging / "train_forward", capture, f"{name}_train_forward", forwards, values, run)]
    written.append(
        write_one_tree(staging / "train_backward", capture, f"{name}_train_backward", backwards, values, run)
    )
    there = staging / "eval_forward"
    if source is not None:
        copy_sample(source, there)
        written.append(True)
    elif evaluation is not None:
        made, theirs = evaluation
        inference = [without_saved(pair.forward) for pair in made.pairs]
        written.append(write_one_tree(there, made, f"{name}_eval_forward", inference, theirs, run))
    return [tree for tree, is_there in zip(TREES, written, strict=False) if is_there]


def write_one_tree(
    folder: Path,
    capture: Capture,
    name: str,
    graphs: Sequence[Graph | None],
    values: Sequence[PortValues],
    run: DirectionRunner | None,
) -> bool:
    """Write a sample's folder in one tree, a `subgraph_N` for each of several graphs; returns whether it has any."""
    rows = [(index, graph) for index, graph in enumerate(graphs) if graph is not None]
    rows = [
        (index, plain)
        for index, graph in rows
        if (plain := contiguous_inputs(tensors_alone(at_capture(graph)))).outputs
    ]
    for index, graph in rows:
        place = folder / f"subgraph_{index}" if len(graphs) > 1 else folder
        place.mkdir(parents=True)
        text = movable_model_text(capture, name, graph)
        (place / "model.py").write_text(text, encoding="utf-8")
        write_graphnet(place, name, graph, text, values[index], inputs_to_keep(capture, graph), run)
    return bool(rows)


def movable_model_text(capture: Capture, name: str, graph: Graph) -> str:
    """The text of `model.py`: the graph alone, its devices written as GraphNet's tools find them."""
    return with_movable_devices(emit(graph, f"{name}. Captured by Backprint with engine {capture.engine}."))


def copy_sample(source: Path, there: Path) -> None:
    """Copy a GraphNet sample, and complete missing files and attributes."""
    if not any(source.rglob("model.py")):
        raise SampleError(f"{source}: no model.py in it or below, so this is not a GraphNet sample")
    apart = (source / "model.py").is_file()

    def left(folder: str, names: list[str]) -> list[str]:
        below = [name for name in names if apart and any((Path(folder) / name).rglob("model.py"))]
        return [*uncopied_names(folder, names), *below]  # other samples, which have trees of their own

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


def uncopied_names(folder: str, names: list[str]) -> list[str]:
    """The names in a folder that are not copied: hidden files, caches, and links, which may lead anywhere."""
    return [name for name in names if name[0] in "._" or (Path(folder) / name).is_symlink()]


EMPTY = """dynamic_dim_constraint_symbols = []

dynamic_dim_constraint_symbol2example_value = {}

dynamic_dim_constraint_relations = []

dynamic_dim_constraint_input_shapes = []
"""
