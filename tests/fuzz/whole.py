"""The whole loader: all that Backprint does with a stranger's folder before anything of it runs.

`look` finds the sample as a corpus does, reads it, parses every graph, and asks all that `show`, a run's row and a
capture ask of it. It gives the stage that refused the sample, or `loaded`. What it raises is a finding, if it is not an
error of Backprint's.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from seeds import OPERATOR

import backprint as bp
from backprint.cli import show
from backprint.errors import BackprintError, GraphError
from backprint.graph.links import contradictions
from backprint.graph.text import parse
from backprint.tools.graphnet import emit, read_graphnet
from backprint.tools.graphnet.build import module_with_state, number_candidates, recipe_notes, recipes_from_metas
from backprint.tools.graphnet.emit import compile_program
from backprint.tools.graphnet.metas import KnownInput, Use, listed_bytes, read_symbol_examples
from backprint.tools.graphnet.read import plan_of
from backprint.tools.jobs import ledger
from backprint.tools.jobs.find import find
from backprint.tools.jobs.verbs import capture_columns

STAGES = (
    "files",
    "JSON",
    "Python",
    "characters",
    "metadata",
    "fields",
    "grammar",
    "graph",
    "ports",
    "sizes",
    "witness",
    "recipes",
    "inputs",
    "row",
    "function",
    "loaded",
)
"""Where a sample can end, in the order in which it is read."""

SHALLOW = ("files", "JSON", "Python", "characters")
"""Stages that look at no word of a sample."""


class Broken(Exception):
    """Something that must hold of every sample that is read does not."""


class At:
    """The stage that a sample is at."""

    stage = "files"


def look(source: Path, number: int = 0) -> str:
    """Where the loader refuses the one sample below `source`, or `loaded`.

    `number` shares out what takes long and is much the same as something else: what is printed is looked at for every
    sixteenth, the numbers of `show` and a run's row for every other.
    """
    at, found = At(), "files"
    for job in find(source):
        json.dumps([job.id, job.family, job.kind, job.detail]).encode()
        if not job.cause and job.kind:
            found = deeper(found, ended(source / job.path, job.kind, at, number))
    return found


def deeper(left: str, right: str) -> str:
    """The later of two stages."""
    return max(left, right, key=STAGES.index)


def ended(folder: Path, kind: str, at: At, number: int) -> str:
    """The stage that one sample ends at."""
    try:
        (ours if kind == "backprint" else graphnet)(folder, at, number)
    except BackprintError as error:
        str(error).encode("utf-8", "surrogatepass")
        return stage_of(at.stage, error)
    return "loaded"


SAID = (
    ("Python", r"not Python|nested too deeply to be a graph|truncated, or not|lines below the graph|are read$"),
    ("characters", r"cannot stand in a graph's text|a comment beside code|outside a string"),
    ("JSON", r"cannot be read as JSON|not JSON"),
    ("files", r"is a symbolic link|is not a regular file|No such file|no folder of the sample's own|cannot be read:"),
    ("ports", r"capture\.json's|the backward takes|a link takes"),
)
"""Stages that the words of a refusal tell."""


def stage_of(stage: str, error: BackprintError) -> str:
    """The stage at which a sample was refused: as its message says, else the one that it was at."""
    said = str(error)
    for found, words in SAID:
        if re.search(words, said):
            return found
    return "grammar" if stage == "graph" and isinstance(error, GraphError) and "line " in said else stage


# ------------------------------------------------------------------ samples of ours


def ours(folder: Path, at: At, number: int) -> None:
    """Read one of ours, whole."""
    at.stage = "fields"
    capture = bp.load(folder, allow=(OPERATOR,))
    at.stage = "graph"
    graphs = [graph for pair in capture.pairs for graph in (pair.forward, pair.backward) if graph is not None]
    at.stage = "sizes"
    if number % 2 == 0:
        json.dumps(show.capture_numbers(capture, folder)).encode()
    at.stage = "witness"
    list(map(str, contradictions(capture)))
    at.stage = "recipes"
    recipes = capture.recipes
    assert recipes.missing is not None
    at.stage = "inputs"
    assert recipes.exact is not None
    at.stage = "row"
    if number % 2 or number == 0:
        json.dumps(ledger.row_or_failure({"verdict": "unproven", **capture_columns(capture)})).encode()
    at.stage = "function"
    if number % 16 == 0:
        read_back(graphs)
        printed(show.show_command, folder, "--allow", OPERATOR)
        for graph in graphs:
            graph.to_fx()


def read_back(graphs: list[Any]) -> None:
    """A graph that was read is the graph of its own text."""
    for graph in graphs:
        if parse(graph.code) != graph and "nan" not in graph.code:
            raise Broken("the text of a graph that was read is another graph")


def printed(command: Any, *arguments: Any, exits: bool = False) -> None:
    """What a verb prints, as it goes to a terminal; with `exits` it may exit with 1."""
    content = io.BytesIO()
    out = io.TextIOWrapper(content, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            command.main([*map(str, arguments)], standalone_mode=False)
        except SystemExit as error:
            if not exits or error.code != 1:
                raise
    for line in content.getvalue().decode().split("\n"):
        if not line.replace("\t", "").isprintable():
            raise Broken(f"what cannot be printed was: {line!r:.200}")


# ------------------------------------------------------------------ samples of GraphNet


def graphnet(folder: Path, at: At, number: int) -> None:
    """Read one of GraphNet's, whole, up to the module that would run."""
    at.stage = "metadata"
    listed_bytes(folder)
    with grammar(at):
        sample = read_graphnet(folder)
    at.stage = "ports"
    if number % 8 == 0:
        json.dumps(show.sample_numbers(folder)).encode()
    plan, program = plan_of(sample), sample.program
    assert program is not None
    static = {size for each in sample.metas.values() for size in each.shape}
    for argument in program.arguments:
        if argument.kind.startswith("Sym"):
            number_candidates(argument, program.arguments, sample.metas, read_symbol_examples(folder), static)
    at.stage = "recipes"
    known = [
        KnownInput(each.name, each.role, plan.metas[each.raw], plan.uses.get(each.raw, Use()))
        for each in plan.inputs
        if each.raw in plan.metas
    ]
    recipes_from_metas(known, 0, "cpu")
    recipe_notes(known)
    at.stage = "function"
    names = {each.raw: each.name for each in plan.inputs if each.role == "input"}
    state = {each.raw: each.name for each in plan.inputs if each.role != "input"}
    changed, _ = emit.rewrite_mode(program, ("eval", "train")[number % 2], ())
    forward = compile_program(changed, names, state, str(folder / "model.py"), "cpu")
    made = {
        each.name: torch.empty(each.meta.shape, dtype=getattr(torch, each.meta.dtype), device="meta") for each in known
    }
    module_with_state(sample.name, forward, plan.inputs, made, {name for name, _ in plan.with_grad})
    if number % 16 == 0:
        printed(show.show_command, folder)


@contextlib.contextmanager
def grammar(at: At) -> Iterator[None]:
    """A refusal of a GraphNet sample's code, and not of what stands beside it, is one of its grammar."""
    try:
        yield
    except GraphError as error:
        at.stage = "grammar" if "model.py" in str(error).partition(": ")[0] else "metadata"
        raise
