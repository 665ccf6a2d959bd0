"""Load a sample as a Capture. None of its code runs: metadata is checked at once, each graph when it is first used.

This module needs no torch until tensors are read. It does not read `run_sample.py`, which is for `python model.py`.

A Field is a value of `capture.json` with its path for messages: `get` returns a field of an object, `items` those of a
list, `rows` those of an object by their keys, and `text`, `expect` and so on check the value and return it. `facts` are
what `read_facts` returned: keyword arguments of Capture, such as its `links` and `signature`. A *direction* of a Pair
is its forward or its backward, which have a folder each. A *custom* operator is one of a library, not of torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backprint.common.files import read_text
from backprint.common.formats import CAPTURE, DUMP_IS_NO_SAMPLE, WORLD, format_of, has_dump
from backprint.errors import RefusedError, SampleError
from backprint.graph.keys import tangent_name
from backprint.graph.links import check_links, tensors_in
from backprint.graph.nouns import Capture, Deferred, Graph, Pair, TensorSpec, allowed, custom_operators
from backprint.graph.text import MAX_CHARACTERS, parse, show_spec
from backprint.sample.ending import MARKER, ending
from backprint.sample.exchanges import stored_peers
from backprint.sample.kept import kept_bytes, plain_file, read_tensors
from backprint.sample.metadata import (
    Field,
    Witness,
    check_format,
    errors_with_path,
    read_claims,
    read_facts,
    read_json,
    read_verdict,
)
from backprint.values.geometry import contiguous_strides, span

if TYPE_CHECKING:
    from torch import Tensor

    from backprint.run_sample import Recipe
    from backprint.sample.inputs import Inputs


def load(path: str | os.PathLike[str], allow: Sequence[str] = ()) -> Capture:
    """Return the sample in a folder as a Capture. `allow` names the custom operators that its graphs may call.
    SampleError if it is no sample, or a field is wrong; the graphs are read and checked when they are first used."""
    folder = Path(path)
    if not folder.is_dir():
        raise SampleError(f"{folder}: no such folder" if not folder.exists() else f"{folder}: not a folder")
    place = folder / CAPTURE
    if not place.exists() and not place.is_symlink():  # a dangling link is refused below, where it is read
        if other := format_of(folder):
            raise SampleError(
                f"{folder}: {other.title}, which has no backward yet: bp.capture({str(folder)!r}) makes it"
            )
        if (folder / WORLD).is_file():
            raise SampleError(f"{folder}: a World, of which each folder rank_… is a sample; bp.load_world reads all")
        # A dump has the graphs of a region, a folder for each pass, and no program.
        why = DUMP_IS_NO_SAMPLE if has_dump(folder) else "no capture.json here, so this is not a sample"
        raise SampleError(f"{folder}: {why}")
    content = read_json(place)
    check_format(content, place)
    facts = read_facts(content, place)
    root = Field(content, "")
    with errors_with_path(place):
        rows = root.get("pairs").items(most=100_000)
        if not rows:
            raise SampleError("pairs: none are listed")
        check_folders(rows)
        check_links(facts["links"], len(rows))
        if len(rows) > 1 and not facts["links"] and any(_ports_of(facts["signature"].output)):
            raise SampleError(f"pairs: the sample has {len(rows)} pairs and no links that join them")
        pairs = tuple(_read_pair(folder, index, row, facts, allow) for index, row in enumerate(rows))
        # What is said twice is compared later: `claims` has the roles and annotations that each graph is to have.
        witnessed, verdict = root.get("witness"), read_verdict(root.get("verdict"))
        recipes = root.get("recipes", {}).rows()
        claims = tuple({side: read_claims(row.get(side)) for side in ("forward", "backward")} for row in rows)
    witness = Witness(witnessed, place) if witnessed.value is not None else None
    stored = _Stored(folder, {name: row.value for name, row in recipes.items()}, facts["seed"], pairs)
    peers = stored_peers(folder, root.get("exchanges"), facts["rank"])
    return Capture(**facts, pairs=pairs, peers=peers, claims=claims, recipes=stored, witness=witness, verdict=verdict)


def check_folders(rows: Sequence[Field]) -> None:
    """Raise if two Pairs have one folder: otherwise a short file could list any number of Pairs."""
    used_names: set[str] = set()
    for row in rows:
        name = row.get("folder").text(most=64)
        if name in used_names:
            raise SampleError(f"{row.path}.folder: {name!r} is the folder of another pair")
        used_names.add(name)


def _folder_of_pair(folder: Path, row: Field) -> Path:
    """Return the folder of a Pair, in which each direction has a folder. `row` is the Pair's entry in
    `capture.json`."""
    name = row.get("folder").text(most=64)
    if not re.fullmatch(r"pair_[0-9]{1,6}", name):
        raise SampleError(f"{row.path}.folder: {name!r} is not a folder of a pair (pair_0, pair_1, …)")
    here = folder / name
    for part in (here, here / "forward", *([here / "backward"] if "backward" in row.expect(dict) else [])):
        # A link could lead to files outside of the sample.
        if part.is_symlink() or not part.is_dir():
            raise SampleError(f"{row.path}.folder: {part} is not a folder of the sample's own")
    return here


def _read_pair(folder: Path, index: int, row: Field, facts: Mapping[str, Any], allow: Sequence[str]) -> Pair:
    """Return Pair `index` of a sample, whose graphs are read and checked when they are first used. `row` is its entry
    in `capture.json`, and `facts` is what `read_facts` returned."""
    here = _folder_of_pair(folder, row)
    requires = facts["requires"]

    def read_forward() -> Graph:
        """Return the forward, whose ports the results and links in `capture.json` must name."""
        graph = _read_graph(here / "forward" / "model.py", requires, allow)
        _check_signature(here / "forward" / "model.py", index, graph, facts)
        return graph

    # `lives`: values of the forward with the steps up to which they lived when the program ran.
    forward, lives = Deferred(read_forward), row.get("lives", []).pairs()
    if "backward" not in row.expect(dict):
        return Pair(row.get("name", here.name).text(), forward, lives=lives)

    def read_backward() -> Graph:
        """Return the backward, which may take only what the forward returns."""
        graph = _read_graph(here / "backward" / "model.py", requires, allow)
        _check_tied(here, index, forward.get(), graph, facts)
        return graph

    return Pair(row.get("name", here.name).text(), forward, Deferred(read_backward), lives=lives)


def _read_graph(path: Path, requires: Sequence[str], allow: Sequence[str]) -> Graph:
    """Return the graph in a `model.py`. The text after it, which begins with the line MARKER, must be the end that
    `ending` returns for the graph. `requires` has the custom operators that the sample names, and `allow` those that
    the user allows. RefusedError or SampleError names the file."""
    # A character has at most 4 bytes in UTF-8.
    text = read_text(path, 4 * MAX_CHARACTERS)
    body, marker, rest = text.partition(MARKER)
    if not marker:
        raise SampleError(f"{path}: truncated, or not the text of a sample: the line {MARKER[:40]!r}… is missing")
    try:
        graph = parse(body)
        check_operators(graph, requires, allow)
    except RefusedError as error:
        raise RefusedError(f"{path}: {error}") from None
    except Exception as error:  # whatever it is, the text is no graph
        raise SampleError(f"{path}: {error}") from None
    # `python model.py` runs these lines: only the known ones may stand there.
    if marker + rest != (expected := ending(graph)):
        line = body.count("\n") + 1 + _first_difference(marker + rest, expected)
        raise RefusedError(
            f"{path}: line {line}: the lines below the graph are not those that samples of this version end with; "
            "nothing was run: if another version saved it, capture the program again"
        )
    return graph


def parse_graph(text: str, allow: Sequence[str] = ()) -> Graph:
    """Return the graph of a text that may be a stranger's. `allow` names the custom operators that it may call."""
    graph = parse(text)
    for step, target in custom_operators(graph):
        if not allowed(target, allow):
            name = target.removeprefix("torch.ops.")
            raise RefusedError(
                f"step {step.name!r} calls {name}, which is not an operator of PyTorch: allow it by name "
                f"(allow=({name!r},)) to read this text"
            )
    return graph


def _first_difference(text: str, expected: str) -> int:
    """Return the number of the first line, from 0, in which two texts differ; if one begins with the other, the last
    line of the shorter one."""
    # A shorter text has fewer lines.
    for number, (left, right) in enumerate(zip(text.split("\n"), expected.split("\n"), strict=False)):
        if left != right:
            return number
    return min(text.count("\n"), expected.count("\n"))


def check_operators(graph: Graph, requires: Sequence[str], allow: Sequence[str]) -> None:
    """Refuse a custom operator, called or passed as an argument, that is not in `requires` of the sample or that the
    user does not allow."""
    for step, target in custom_operators(graph):
        name = target.removeprefix("torch.ops.")
        problem = f"step {step.name!r} calls {name}, which is not an operator of PyTorch"
        if target not in requires:
            raise RefusedError(f"{problem} and not among the sample's requirements")
        if not allowed(target, allow):
            raise RefusedError(f"{problem}: allow it by name (allow=({name!r},)) to read this sample")


def _check_signature(path: Path, index: int, forward: Graph, facts: Mapping[str, Any]) -> None:
    """Raise unless the results, arguments and links in capture.json, which `facts` has, name ports of `forward`, the
    forward of Pair `index`. `path` is its file."""
    signature, links = facts["signature"], facts["links"]
    outputs = {port.name for port in forward.by_role("output")}
    inputs = {port.name for port in forward.inputs}
    # Each claim is a field of capture.json, a name in it, and the names that may stand there.
    claims: list[tuple[str, str, set[str]]] = []
    for link in links:
        role = link.port.role
        if link.source == index and role in ("output", "mutation"):
            claims.append((f"links ({role})", link.port.name, {port.name for port in forward.by_role(role)}))
        if link.target == index:
            claims.append(("links (input)", link.name, inputs))
    # The signature names results of the whole Capture. Links say which they are; without links, they are the outputs of
    # its only forward.
    known = {link.name for link in links if link.target is None} if links else outputs
    claims += [("signature.differentiable", name, known) for name in signature.differentiable]
    claims += [("signature.output", name, known) for name in _ports_of(signature.output)]
    claims += [("signature.loss", signature.loss, known)] if signature.loss else []
    if not links:
        claims += [("signature.same", name, inputs) for pair in signature.same for name in pair]
        claims += [("signature.call", name, inputs) for row in signature.call or () for name in tensors_in(row.like)]
    for field, name, known_names in claims:
        if name not in known_names:
            raise SampleError(
                f"{path}: capture.json's {field} names {name!r:.80}, which is not such a port of this forward"
            )


def _ports_of(tree: Any) -> Iterator[str]:
    """Yield the names of ports in the structure of a result (`Signature.output`): objects with one key each."""
    match tree:
        case {"port": name}:
            yield name
        case {"dict": rows}:
            for item in rows.values():
                yield from _ports_of(item)
        case {"items": pairs}:
            for _, item in pairs:
                yield from _ports_of(item)
        case {"list": items} | {"tuple": items}:
            for item in items:
                yield from _ports_of(item)


def _check_tied(folder: Path, index: int, forward: Graph, backward: Graph, facts: Mapping[str, Any]) -> None:
    """Raise unless the forward of Pair `index` returns every saved value that the backward takes, and every output
    whose tangent the backward takes. `facts` has the links and the signature."""
    saved_names = {port.name for port in forward.outputs if port.role == "saved"}
    outputs = {port.name for port in forward.outputs if port.role == "output"}
    if not facts["links"]:
        # With links, an output may have a tangent from a later Pair, though it is no result of the whole Capture.
        outputs &= set(facts["signature"].differentiable)
    gradients = {port.name for port in backward.outputs}
    for link in facts["links"]:
        if link.source == index and link.port.role == "gradient" and link.port.name not in gradients:
            raise SampleError(
                f"{folder}: a link takes the gradient of {link.port.name!r:.80}, which the backward does not have"
            )
    for port in backward.inputs:
        if port.role == "saved" and port.name not in saved_names:
            raise SampleError(
                f"{folder}: the backward takes the saved value {port.name!r}, which the forward does not return"
            )
        if port.role == "tangent" and port.name not in outputs:
            raise SampleError(
                f"{folder}: the backward takes a tangent of {port.name!r}, which is not a differentiable output"
            )
        if port.role not in ("saved", "tangent", "constant"):
            raise SampleError(
                f"{folder}: the backward takes the {port.role} {port.name!r}; "
                "it may take saved values, tangents and constants"
            )


class _Stored:
    """The inputs of a sample, an InputRecipes: recipes are checked and data is read when first used. `rows` has the
    recipes as JSON by name."""

    def __init__(self, folder: Path, rows: Mapping[str, Any], seed: int, pairs: Sequence[Pair]) -> None:
        self.folder, self.rows, self.pairs = folder, rows, pairs
        self.seed = seed

    @cached_property
    def inputs(self) -> Inputs:
        """The recipes and the exact data, checked. An error names the file, and in it the recipe."""
        from backprint.sample.inputs import Inputs
        from backprint.sample.recipes import from_json

        recipes = {}
        for name, row in self.rows.items():
            with errors_with_path(self.folder / "capture.json"), errors_with_path(Path(f"recipes[{name!r:.80}]")):
                recipes[name] = from_json(row)
        graphs = [graph for pair in self.pairs for graph in pair.graphs]
        with errors_with_path(self.folder / "capture.json"):
            _check_recipes(recipes, graphs)
        return Inputs(recipes, read_tensors(self.folder / "tensors.safetensors"), self.seed)

    @property
    def recipes(self) -> Mapping[str, Recipe]:
        """Recipes by port name."""
        return self.inputs.recipes

    @property
    def exact(self) -> Mapping[str, Tensor]:
        """The data of the exact recipes."""
        return self.inputs.exact

    def data(self, name: str) -> bytes | None:
        """Return the data of an exact recipe as bytes; needs no torch."""
        place = self.folder / "tensors.safetensors"
        return kept_bytes(plain_file(place), name) if place.exists() or place.is_symlink() else None

    @property
    def missing(self) -> tuple[str, ...]:
        """The inputs that no recipe makes."""
        return self.inputs.missing

    @property
    def complete(self) -> bool:
        """Whether the recipes make every input."""
        return self.inputs.complete

    def make(self, seed: int | None = None, names: Collection[str] | None = None) -> dict[str, Tensor]:
        """Return every input, or the named ones, by name; with a seed, drawn with other seeds than the recipes' own."""
        return self.inputs.make(seed, names)


def _check_recipes(recipes: Mapping[str, Recipe], graphs: Sequence[Graph]) -> None:
    """Raise unless each recipe makes what its port takes, and allocates no more storage than its tensor and the views
    of it use."""
    spans: dict[str, int] = {}  # how many elements of storage are used, by the name of the base
    for name, recipe in recipes.items():
        base = str(dict(recipe.facts)["of"]) if recipe.kind == "view" else name  # `of`: the base of a view
        spans[base] = max(spans.get(base, 0), recipe.offset + span(recipe.shape, recipe.stride))
    for name, recipe in recipes.items():
        # An extent is memory that is allocated: a short file must not ask for more than its tensors use.
        if recipe.kind != "view" and recipe.extent > spans[name]:
            problem = f"an extent of {recipe.extent} elements, of which only {spans[name]} are used"
            raise SampleError(f"recipes[{name!r:.80}]: {problem}")
    for graph in graphs:
        for port in graph.inputs:
            key, spec = tangent_name(port.name) if port.role == "tangent" else port.name, port.spec
            stored = recipes.get(key)
            # A saved value is made by the forward, and may have the name of an input.
            if stored is None or port.role == "saved" or not isinstance(spec, TensorSpec):
                continue
            # A symbolic size may be any.
            same = len(stored.shape) == len(spec.shape) and all(
                size in (own, str(size)) for size, own in zip(spec.shape, stored.shape, strict=True)
            )
            layout = dict(stored.facts)["layout"] if stored.kind == "sparse" else "strided"
            if stored.dtype != spec.dtype or not same or (layout != spec.layout and stored.kind != "none"):
                kind = f" {layout}" if layout != "strided" else ""
                problem = (
                    f"makes {stored.dtype}{list(stored.shape)!s:.80}{kind} where the graph takes {show_spec(spec):.80}"
                )
                raise SampleError(f"recipes[{key!r:.80}]: {problem}")
            if not graph.symbols and stored.kind not in ("none", "sparse") and not _lies_as(stored, spec):
                strides_text = f"{list(stored.stride)} on {stored.device}"
                problem = f"makes strides {strides_text} where the graph takes {show_spec(spec):.80}"
                raise SampleError(f"recipes[{key!r:.80}]: {problem}")


def _lies_as(recipe: Recipe, spec: TensorSpec) -> bool:
    """Whether a recipe makes a tensor on the device and with the strides that the spec of its port has."""
    wanted = spec.stride if spec.stride is not None else contiguous_strides(recipe.shape)
    rows = zip(recipe.shape, recipe.stride, wanted, strict=True)
    return recipe.device == spec.device and (0 in recipe.shape or all(n <= 1 or now == then for n, now, then in rows))
