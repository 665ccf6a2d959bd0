"""A sample to a Capture. Nothing of the sample is run: the metadata is checked now, each graph when first asked for.

Needs no torch until someone asks for tensors.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.errors import RefusedError, SampleError
from backprint.graph.nouns import Capture, Graph, Later, Pair, is_custom
from backprint.graph.text import MAX_CHARACTERS, parse
from backprint.sample.metadata import Field, check_format, read_facts, read_json
from backprint.sample.standalone import FOOTER, MARKER

if TYPE_CHECKING:
    from torch import Tensor

    from backprint.sample.inputs import Inputs


def load(path: str | os.PathLike[str], allow: Sequence[str] = ()) -> Capture:
    """Read a sample. `allow` names the custom operators that its graphs may call."""
    folder = Path(path)
    if not folder.is_dir():
        raise SampleError(f"{folder}: no such folder" if not folder.exists() else f"{folder}: not a folder")
    place = folder / "capture.json"
    if not place.exists():
        raise SampleError(f"{folder}: no capture.json here, so this is no sample")
    content = read_json(plain_file(place))
    check_format(content, place)
    facts = read_facts(content, place)
    rows = Field(content, "").get("pairs").items(100_000)
    pairs = tuple(read_pair(folder, row, facts, allow) for row in rows)
    if not pairs:
        raise SampleError(f"{place}: pairs: none are listed")
    stored = Stored(folder, content)
    return Capture(**facts, pairs=pairs, recipes=stored, witness=read_witness(content), verdict=content.get("verdict"))


def plain_file(path: Path) -> Path:
    """The path, if it is a regular file and no link: a sample's files lie in its own folder."""
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        raise SampleError(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "no regular file"
        raise SampleError(f"{path}: is {kind}; a sample's files are its own")
    return path


def read_pair(folder: Path, row: Field, facts: Mapping[str, Any], allow: Sequence[str]) -> Pair:
    """One Pair, its graphs still on disk."""
    name = row.get("folder").text(64)
    if not re.fullmatch(r"pair_\d{1,6}", name):
        raise SampleError(f"{row.path}.folder: {name!r} is no folder of a pair (pair_0, pair_1, …)")
    here = folder / name
    for part in (here, here / "forward", *([here / "backward"] if "backward" in row.expect(dict) else [])):
        if part.is_symlink() or not part.is_dir():
            raise SampleError(f"{part}: is no folder of its own")
    requires = facts["requires"]
    forward = Later(lambda: read_graph(here / "forward" / "model.py", requires, allow))
    if "backward" not in row.expect(dict):
        return Pair(row.get("name", name).text(), forward)

    def backward() -> Graph:
        graph = read_graph(here / "backward" / "model.py", requires, allow)
        check_tied(here, forward.get(), graph, facts)
        return graph

    return Pair(row.get("name", name).text(), forward, Later(backward))


def read_graph(path: Path, requires: Sequence[str], allow: Sequence[str]) -> Graph:
    """The graph in a `model.py`; what follows it must be the lines that every sample ends with."""
    size = plain_file(path).stat().st_size
    if size > 4 * MAX_CHARACTERS:
        raise RefusedError(f"{path}: {size:,} bytes; a graph's text has at most {4 * MAX_CHARACTERS:,}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SampleError(f"{path}: cannot be read: {error}") from None
    body, marker, rest = text.partition(MARKER)
    if not marker:
        raise SampleError(f"{path}: truncated, or no text of a sample: the line {MARKER[:40]!r}… is missing")
    if marker + rest != FOOTER:
        line = body.count("\n") + 1 + first_difference(marker + rest)
        raise RefusedError(f"{path}: line {line}: the lines below the graph are not those that samples end with; nothing was run")
    try:
        graph = parse(body)
        check_operators(graph, requires, allow)
    except RefusedError as error:
        raise RefusedError(f"{path}: {error}") from None
    except Exception as error:
        raise SampleError(f"{path}: {error}") from None
    return graph


def first_difference(found: str) -> int:
    """The line, counted from the marker, where the ending is not what it should be."""
    for number, (left, right) in enumerate(zip(found.split("\n"), FOOTER.split("\n"), strict=False)):
        if left != right:
            return number
    return min(found.count("\n"), FOOTER.count("\n"))


def check_operators(graph: Graph, requires: Sequence[str], allow: Sequence[str]) -> None:
    """Refuse a custom operator that the sample does not require or the user did not allow."""
    for step in graph.steps:
        if not is_custom(step.target):
            continue
        name = step.target.removeprefix("torch.ops.")
        if step.target not in requires:
            raise RefusedError(f"step {step.name!r} calls {name}, which is no operator of PyTorch and not among the sample's requirements")
        if not {name, name.rpartition(".")[0]} & set(allow):
            raise RefusedError(f"step {step.name!r} calls the custom operator {name}: allow it by name (allow=({name!r},)) to read this sample")
    for _, sub in graph.subgraphs:
        check_operators(sub, requires, allow)


def check_tied(folder: Path, forward: Graph, backward: Graph, facts: Mapping[str, Any]) -> None:
    """Every saved value and tangent that the backward takes must be one that the forward gives."""
    given = {port.name for port in forward.outputs if port.role == "saved"}
    outputs = {port.name for port in forward.outputs if port.role == "output"} & set(facts["signature"].differentiable)
    for port in backward.inputs:
        if port.role == "saved" and port.name not in given:
            raise SampleError(f"{folder}: the backward takes the saved value {port.name!r}, which the forward does not give")
        if port.role == "tangent" and port.name not in outputs:
            raise SampleError(f"{folder}: the backward takes a tangent of {port.name!r}, which is no differentiable output")
        if port.role not in ("saved", "tangent", "constant"):
            raise SampleError(f"{folder}: the backward takes the {port.role} {port.name!r}; it may take saved values, tangents and constants")


def read_witness(content: Mapping[str, Any]) -> Any:
    """The witness rows, checked: what the original program gave on the recipe's inputs."""
    rows = content.get("witness")
    if rows is None:
        return None
    found = Field(rows, "witness")
    for key in found.expect(dict):
        row = found.get(key)
        if row.expect(dict).get("none") is True:
            continue
        row.get("digest").text(64)
        row.get("dtype").text(32)
        shape = [size.expect(int) for size in row.get("shape").items(64)]
        if any(size < 0 for size in shape):
            raise SampleError(f"{row.path}.shape: a size is negative")
        for number in (row.get("norm"), row.get("max"), *row.get("leading").items(8)):
            if not (type(number.value) in (int, float) or number.value in ("inf", "-inf", "nan")):
                raise SampleError(f"{number.path}: expected a number, found {str(number.value)[:40]!r}")
    return rows


class Stored:
    """A sample's inputs, still on disk: recipes are checked and data is read when first asked for."""

    def __init__(self, folder: Path, content: Mapping[str, Any]) -> None:
        self.folder = folder
        self.rows = content.get("recipes", {})
        self.seed = content.get("seed", 0)

    @cached_property
    def inputs(self) -> Inputs:
        """The recipes and the exact data."""
        from backprint.sample.inputs import Inputs
        from backprint.sample.recipes import from_json

        rows = Field(self.rows, "recipes").expect(dict)
        recipes = {}
        for name, row in rows.items():
            try:
                recipes[name] = from_json(row)
            except SampleError as error:
                raise SampleError(f"{self.folder / 'capture.json'}: recipes[{name!r:.80}]: {error}") from None
        return Inputs(recipes, read_tensors(self.folder / "tensors.safetensors"), self.seed)

    @property
    def recipes(self) -> Any:
        """Recipes by port name."""
        return self.inputs.recipes

    @property
    def exact(self) -> Any:
        """The data of the exact recipes."""
        return self.inputs.exact

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs that no recipe makes."""
        return self.inputs.missing

    def make(self, seed: int | None = None) -> dict[str, Tensor]:
        """Every input, made again; with a seed, a fresh draw."""
        return self.inputs.make(seed)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The exact data of a sample; none where there is no file."""
    if not path.exists() and not path.is_symlink():
        return {}
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(str(plain_file(path)))
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        raise SampleError(f"{path}: forged or damaged: {error}") from None
