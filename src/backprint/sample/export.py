"""Write a Capture as one Python file that needs only torch: its graphs, its inputs, and the code that runs them.

The file ends with the texts of TEXTS. Exact data up to MOST_INSIDE is in the file as base64, more is in a safetensors
file beside it. No graph is run to write the file, and the text of a graph is emitted from the parsed graph.
"""

from __future__ import annotations

import base64
import os
import pprint
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from backprint.errors import PlaceError, RefusedError, UsageError
from backprint.graph.keys import is_tangent, tangent_name
from backprint.graph.links import feeds, held_exact, results
from backprint.graph.nouns import Capture, Graph, InputRecipes, TensorSpec, refuse_collectives
from backprint.graph.sizes import at_hints
from backprint.graph.text import HEADER, emit_class, title_text
from backprint.sample.generator import Recipe, restore
from backprint.sample.inputs import Inputs, fitted_facts, geometry
from backprint.sample.recipes import bases_of, derive, to_json
from backprint.sample.save import write_tensors
from backprint.sample.short import in_short
from backprint.sample.short_check import ShortFile, same_as_full
from backprint.sample.standalone import text_of

TEXTS = (
    "sample/generator.py",
    "sample/alone.py",
    "values/closeness.py",
    "sample/rerun.py",
    "sample/judged.py",
    "sample/repro.py",
)
"""The modules that make the inputs, run the graphs and compare them; each uses those before it."""

MOST_INSIDE = 64 * 1024
"""The largest exact data, in characters of base64, that is written into the file itself."""

IN_FULL = "In full: "
"""How the line of a docstring begins that says why a file has the full form, where that was not asked for."""

Graphs: TypeAlias = Mapping[str, tuple[int, Graph]]
"""Graphs by their titles (`pair_0 forward`), each with the number of its Pair."""

SIDES = ("forward", "backward")

RULE = "# --- Below: makes the inputs, runs the graphs and compares them, with torch and nothing else " + "-" * 27


def write_export(
    capture: Capture,
    path: str | os.PathLike[str],
    inputs: InputRecipes,
    backend: str | None,
    direction: str,
    about: Sequence[str] = (),
    full: bool = False,
    here: str | None = None,
) -> Path:
    """Write the file, and large exact data beside it; return its path. Its docstring has the lines `about` it.

    It is the short file if that runs and has the full one's outcome, which runs in other processes tell, else the
    full one, whose docstring says why. With `full`, it is the full one, and nothing is run. `here` is the backend's
    name where these run.
    """
    refuse_collectives(capture, "an exported file")
    place = Path(path)
    graphs = graphs_needed(capture, direction)
    shown = [title for title in graphs if direction in ("both", title.partition(" ")[2])]
    if not shown:
        raise UsageError(f"{capture.name} has no {direction}: no output of the program requires grad")
    recipes = recipes_needed(capture, graphs, inputs.recipes)
    exact = {name: inputs.exact[name] for name, recipe in recipes.items() if recipe.kind == "exact"}
    inside = 4 * sum(tensor.nbytes for tensor in exact.values()) <= 3 * MOST_INSIDE
    beside = data_beside(place)
    content = {**content_of(capture, graphs, recipes), "shown": shown}
    data = data_text(exact) if inside else repr(beside.name)
    text = "".join(file_parts(capture, graphs, content, data, backend, about))
    if not full:
        short: ShortFile | str = "its exact data are in a file beside it"
        if inside:
            forms = in_short(capture, graphs, shown, content, recipes, exact, backend, about)
            backend_options = place.name, backend and (here or backend)
            short = forms if isinstance(forms, str) else same_as_full(forms.texts, text, *backend_options)
        if isinstance(short, ShortFile):
            text = short.text
        else:
            text = "".join(file_parts(capture, graphs, content, data, backend, (*about, f"{IN_FULL}{short}")))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if not inside:
            write_tensors(beside, exact)
        put_text(place, text)
    except OSError as error:
        raise PlaceError(f"{place}: the file could not be written: {error}") from error
    return place


def why_full(place: Path) -> str:
    """Return why an exported file has the full form; '' if it has the short one, or the full one was asked for."""
    _, *lines = place.read_text("utf-8").partition('"""')[2].partition('"""')[0].splitlines()  # first is the name
    return next((line.removeprefix(IN_FULL) for line in lines if line.startswith(IN_FULL)), "")


def check_export(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Refuse a path that is not a Python file's, or an existing one unless `overwrite`."""
    place = Path(path)
    if place.suffix != ".py" or place.is_dir():
        raise UsageError(f"{place} is not the name of a Python file: write repro.py")
    for file in (place, data_beside(place)):
        if file.exists() and not overwrite:
            raise UsageError(f"{file} exists already: pass overwrite=True (--overwrite), or choose another path")


def data_beside(place: Path) -> Path:
    """Return the path of exact data that is too large for the file."""
    return place.with_suffix(".safetensors")


def put_text(place: Path, text: str) -> None:
    """Write a file completely or not at all."""
    handle, staging = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".part", dir=place.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(staging, 0o644)
        os.replace(staging, place)
    except BaseException:
        os.unlink(staging)
        raise


# ---- What is in it


def graphs_needed(capture: Capture, direction: str) -> dict[str, tuple[int, Graph]]:
    """Return title -> (number of the Pair, Graph). Forwards alone need backwards if a link passes a gradient."""
    both = direction != "forward" or any(
        link.port.role == "gradient" and link.target is not None for link in capture.links
    )
    graphs: dict[str, tuple[int, Graph]] = {}
    for index, pair in enumerate(capture.pairs):
        for side, graph in zip(SIDES, (pair.forward, pair.backward), strict=True):
            if graph is not None and (both or side == "forward"):
                graphs[f"pair_{index} {side}"] = index, graph
    return graphs


def recipes_needed(capture: Capture, graphs: Graphs, known: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """Return the recipes of free inputs and of the tangents of results; refuse an input without one."""
    wanted: list[str] = []
    for index, graph in graphs.values():
        fed = {link.name for link in feeds(capture, index)}
        own = [port.name for port in graph.inputs if port.role not in ("saved", "tangent")]
        wanted += [name for name in own if name not in fed]
    if any(title.endswith("backward") for title in graphs):
        wanted += map(tangent_name, capture.signature.differentiable)
    recipes: dict[str, Recipe] = {}
    for name in wanted:
        if name not in known or known[name].kind == "none":
            why = f" ({dict(known[name].facts).get('why', 'saved without data')})" if name in known else ""
            raise RefusedError(
                f"no recipe makes {name!r}{why}, so no file can run {capture.name} alone: save it with data='seed' or "
                "data='exact', and export that"
            )
        wanted += [base for base in bases_of(known[name]) if base not in recipes and base not in wanted]
        recipes[name] = known[name]
    return {name: known[name] for name in known if name in recipes}


def content_of(capture: Capture, graphs: Graphs, recipes: Mapping[str, Recipe]) -> dict[str, Any]:
    """Return what the file contains besides its graphs and its exact data."""
    links = [*(link for link in capture.links if link.target is not None), *results(capture)]
    environment = dict(capture.environment)
    return {
        "name": title_text(capture.name),
        "torch": environment.get("torch", ""),
        "seed": capture.seed,
        "environment": environment,
        "requires": [target.removeprefix("torch.ops.") for target in capture.requires],
        "pairs": [f"pair_{index}" for index in range(len(capture.pairs))],
        "links": [[link.source, link.port.role, link.port.name, link.target, link.name] for link in links],
        "differentiable": list(capture.signature.differentiable),
        "strides": dict(tangent_strides(graphs)),
        "recipes": {name: to_json(recipe) for name, recipe in recipes.items()},
    }


def tangent_strides(graphs: Graphs) -> Iterator[tuple[str, list[int]]]:
    """Yield the strides that the backwards expect of their tangents, at the sizes of the capture."""
    for index, graph in graphs.values():
        for port in at_hints(graph).by_role("tangent"):
            spec = port.spec
            if isinstance(spec, TensorSpec) and all(type(n) is int for n in (*spec.shape, *(spec.stride or ()))):
                yield f"{index} {port.name}", list(geometry(spec)[1])


# ---- As text


def file_parts(
    capture: Capture,
    graphs: Graphs,
    content: Mapping[str, Any],
    data: str,
    backend: str | None,
    about: Sequence[str],
) -> Iterator[str]:
    """Yield the text of the file in parts."""
    yield head(capture, backend, about) + HEADER
    names = {title: title.title().replace("_", "").replace(" ", "") for title in graphs}
    for title, (_, graph) in graphs.items():
        yield "\n\n" + "\n".join(emit_class(graph, names[title], "")) + "\n"
    yield "\n\nGRAPHS = {" + ", ".join(f"{title!r}: {name}" for title, name in names.items()) + "}\n"
    yield f"CAPTURE = (\n{pprint.pformat(content, width=118, compact=True, sort_dicts=False)}\n)\n"
    yield f"DATA = {data}\nBACKEND = {backend!r}\n\n{RULE}\n"
    for module in TEXTS:
        yield f"\n{text_of(module)}\n"
    yield '\nif __name__ == "__main__":\n    run_file(CAPTURE, GRAPHS, DATA, BACKEND, __file__)\n'


def head(capture: Capture, backend: str | None, about: Sequence[str]) -> str:
    """Return the docstring of the file."""
    torch_version = dict(capture.environment).get("torch", "")
    title = f"{capture.name}. Captured by Backprint with engine {capture.engine}, torch {torch_version}"
    option = title_text(f"--backend {backend or 'inductor'}")
    lines = "".join(f"{title_text(line)}\n" for line in (*about, *([""] if about else [])))
    return (
        f'"""{title_text(title)}; runs with torch alone.\n\n'
        f"{lines}"
        f"    python FILE {'':<{len(option)}}   runs the graphs, and prints a digest of each output\n"
        f"    python FILE {option}   runs each through torch.compile too: bitwise, close or wrong\n"
        '"""\n\n'
    )


def data_text(exact: Mapping[str, Tensor]) -> str:
    """Return exact data as a dictionary's text: dtype, shape and bytes of each tensor."""
    rows = [f"    {name!r}: {tensor_text(tensor)},\n" for name, tensor in exact.items()]
    return "{\n" + "".join(rows) + "}" if rows else "{}"


def tensor_text(tensor: Tensor) -> str:
    """Return a tensor as the text of a tuple."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    raw = bytes(tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8).tolist())
    text = base64.b64encode(raw).decode("ascii")
    lines = [f'        "{text[start : start + 100]}"' for start in range(0, len(text), 100)]
    return f"({str(tensor.dtype)[6:]!r}, {list(tensor.shape)}, (\n" + "\n".join(lines or ['        ""']) + "\n    ))"


# ---- Less of it


def without_exact(capture: Capture) -> Inputs:
    """Return a sample's inputs with recipes fitted to exact data, except constants, indices and inputs of guards."""
    recipes, exact = capture.recipes.recipes, capture.recipes.exact
    held = held_exact(capture) | {port.name for pair in capture.pairs for port in pair.forward.by_role("constant")}
    held |= {base for name in held & set(recipes) for base in bases_of(recipes[name])}
    held |= {part for recipe in recipes.values() if recipe.kind == "sparse" for part in bases_of(recipe)[:-1]}
    drawn = {
        name: described(recipe, exact[name], derive(capture.seed, name))
        for name, recipe in recipes.items()
        if recipe.kind == "exact" and name not in held and not is_tangent(name)
    }
    all_recipes = {**recipes, **drawn}
    return Inputs(all_recipes, {name: exact[name] for name in exact if all_recipes[name].kind == "exact"}, capture.seed)


def described(recipe: Recipe, data: Tensor, seed: int) -> Recipe:
    """Return a recipe that describes the values of an exact one."""
    flat = restore(recipe, data)
    kind, facts = fitted_facts(flat)
    return replace(recipe, kind=kind, seed=seed, facts=tuple(sorted(facts.items())))
