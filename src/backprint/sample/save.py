"""Write a Capture as a sample: into a staging folder that is renamed at the end, so that a sample is never partial.

A sample has a folder for each Pair, and in it one for each direction, `forward` and `backward` (`side`), with its graph
as `model.py`. `inputs` are the recipes by which a reader makes the inputs again, and the *exact* data of those that no
recipe makes. A *custom* operator is one of a library, not of torch. *Claims* are what `capture.json` says of a graph,
to be compared with its file; an Exchange is what the ranks of a step sent each other in one collective.

`further_content` is what `capture.json` has besides, such as the verdict. `values_of_pairs` has for each Pair the
values of its ports, for `write_other_format`, which writes the files of another format beside each `model.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import Tensor

from backprint.common.folders import unfinished_folder
from backprint.common.formats import CAPTURE
from backprint.errors import PlaceError, RefusedError, SampleError
from backprint.graph.keys import PortValues
from backprint.graph.links import claims_of, collectives_before
from backprint.graph.nouns import Capture, Graph, InputRecipes, allowed
from backprint.graph.sizes import at_example_sizes
from backprint.graph.text import emit
from backprint.sample.ending import RUNNER, ending
from backprint.sample.exchanges import FILE, exchanges_json, known_exchanges, tensors_of_exchanges
from backprint.sample.metadata import describe, write_json
from backprint.sample.place import settle
from backprint.sample.recipes import to_json
from backprint.values.tensor_files import write_safetensors

WriteOtherFormat = Callable[[Path, Capture, str, Graph, str, PortValues], None]
"""A function that writes the files of another format into a direction's folder, beside `model.py`. Its arguments are
the folder, the Capture, a title, the Graph, the text of `model.py`, and the values of the Pair's ports."""


def write_staged(
    capture: Capture,
    path: str | os.PathLike[str],
    inputs: InputRecipes,
    further_content: Mapping[str, Any],
    values_of_pairs: Sequence[PortValues],
    write_other_format: WriteOtherFormat,
) -> Path:
    """Write a Capture as a sample to a path, and return the path. PlaceError if it cannot be written."""
    sample = Path(path)
    try:
        with unfinished_folder(sample.parent, sample.name) as staging:
            fill(staging, capture, inputs, further_content, values_of_pairs, write_other_format)
            settle(staging, sample)
    except OSError as error:
        raise PlaceError(f"{sample}: the sample could not be written: {error}") from error
    return sample


def check_custom(capture: Capture, allow: Sequence[str]) -> None:
    """Raise RefusedError if the graphs call operators that PyTorch alone does not have, unless `allow` has their
    names."""
    refused = [target for target in capture.requires if not allowed(target, allow)]
    if refused:
        name = refused[0].removeprefix("torch.ops.")
        # The capture says why it could not record the body of this operator (`trace/custom.py`).
        stays_whole = f"{name.replace('.', '::', 1).removesuffix('.default')} stays whole: "
        notes = (note for note in capture.why if note.startswith(stays_whole))
        why = next((f" ({note.removeprefix(stays_whole)})" for note in notes), "")
        raise RefusedError(
            f"the graph calls the custom operator {name}{why}, so the sample would not run with PyTorch alone: "
            f"decompose it (decompose={{torch.ops.{name}: ...}}), or allow it by name (allow=({name!r},)), "
            "so that the sample calls it and requires the library that registers it"
        )


def fill(
    folder: Path,
    capture: Capture,
    inputs: InputRecipes,
    further_content: Mapping[str, Any],
    values_of_pairs: Sequence[PortValues],
    write_other_format: WriteOtherFormat,
) -> None:
    """Write every file of a sample into an empty folder."""
    content = describe(capture)
    content["pairs"] = []
    for index, pair in enumerate(capture.pairs):
        name = f"pair_{index}"
        row: dict[str, Any] = {"folder": name, "name": pair.name}
        for side, graph in (("forward", pair.forward), ("backward", pair.backward)):
            if graph is not None:
                place = folder / name / side
                row[side] = write_side(place, capture, side, graph, values_of_pairs[index], write_other_format)
        if pair.lives:
            row["lives"] = [list(life) for life in pair.lives]
        content["pairs"].append(row)
    content |= further_content
    content["recipes"] = {name: to_json(recipe) for name, recipe in inputs.recipes.items()}
    if inputs.exact:
        write_tensors(folder / "tensors.safetensors", inputs.exact)
    # What other ranks sent is data, which a sample without data does not have.
    if (exchanges := known_exchanges(capture)) and (inputs.recipes or inputs.exact):
        content["exchanges"] = exchanges_json(exchanges)
        if len(capture.pairs) > 1:
            # How many collectives of each group come before the forward of each Pair.
            before = collectives_before(capture)
            content["exchanges_before"] = [before[index, "forward"] for index in range(len(capture.pairs))]
        write_tensors(folder / FILE, tensors_of_exchanges(exchanges))
    (folder / RUNNER).write_bytes(files("backprint").joinpath(RUNNER).read_bytes())
    write_json(folder / CAPTURE, content)


def write_side(
    folder: Path,
    capture: Capture,
    side: str,
    graph: Graph,
    values: PortValues,
    write_other_format: WriteOtherFormat,
) -> dict[str, Any]:
    """Write the folder of one direction of a Pair, `forward` or `backward` (`side`); return its entry in
    `capture.json`. `values` has the values of the Pair's ports."""
    folder.mkdir(parents=True)
    torch_version = dict(capture.environment).get("torch", "")
    title = f"{capture.name}, {side}. Captured by Backprint with engine {capture.engine}, torch {torch_version}."
    text = emit(graph, title) + "\n\n" + ending(graph)
    (folder / "model.py").write_text(text, encoding="utf-8")
    write_other_format(folder, capture, f"{capture.name}_{side}", graph, text, values)
    saved = sum(getattr(port.spec, "nbytes", 0) for port in at_example_sizes(graph).outputs if port.role == "saved")
    counts = {"steps": len(graph.steps), "inputs": len(graph.inputs), "outputs": len(graph.outputs)}
    return {**counts, "saved_bytes": saved, **claims_of(graph)}


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write exact data to a safetensors file, by the names of the tensors."""
    try:
        write_safetensors(path, tensors)
    except OSError as error:
        raise PlaceError(f"{path}: the exact data could not be written: {error}") from error
    except (ValueError, RuntimeError) as error:
        raise SampleError(f"{path}: the exact data could not be written: {error}") from error
