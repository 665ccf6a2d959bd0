"""The plan of the house: who may import whom, and that the front door is light.

Import statements are read, wherever they stand: at the top, inside a function, under TYPE_CHECKING. Modules named in
strings (importlib) are not; only the public face has reason to use those.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "backprint"

GROUND = (
    "_torch",
    "errors",
    "defects",
    "version",
    "tree",
    "result_tree",
    "settings",
    "likeness",
    "memory",
    "plain",
    "choices",
    "formats",
    "tried",
    "checks",
    "growth",
    "room",
    "results",
    "closeness",
    "web_page",
    "whole_file",
    "databases",
    "typed",
    "strangers_file",
    "tensor_stats",
    "tensor_files",
    "amounts",
    "collector",
)
ROOMS = (*GROUND, "graph", "fx", "tracing", "sample", "graphnet", "replaying")
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "_torch": ("errors",),
    "errors": (),
    "defects": ("errors",),
    "version": (),
    "tried": (),
    "tree": ("_torch", "errors"),
    "result_tree": ("_torch", "errors", "tree", "likeness"),
    "likeness": ("_torch",),
    "memory": ("_torch", "tree"),
    "plain": (),
    "choices": ("errors",),
    "formats": (),
    "settings": ("version",),
    "checks": ("_torch", "room"),
    "growth": (),
    "room": (),
    "closeness": (),
    "collector": (),
    "amounts": (),
    "results": ("_torch", "room", "tree"),
    "examples": (),
    "web_page": ("errors", "whole_file"),
    "whole_file": ("errors",),
    "databases": ("errors",),
    "typed": (),
    "strangers_file": ("errors", "plain"),
    "tensor_stats": (),
    "tensor_files": (),
    "graph": ("errors", "collector", "web_page"),
    "drawing": (*GROUND, "graph"),
    "drawings": ("calls", "plain", "web_page", "graph", "drawing", "replaying"),
    "fx": (*GROUND, "graph"),
    "tracing": (*GROUND, "graph", "fx"),
    "sample": (*GROUND, "graph", "fx"),
    "graphnet": (*GROUND, "graph", "fx", "sample"),
    "replaying": (*GROUND, "graph", "fx", "sample.load", "sample.recipes", "sample.redraws"),
    "regions": (*GROUND, "graph", "drawing", "tracing.frames", "replaying.compare"),
    "differing": ("amounts", "plain", "web_page", "graph", "drawing"),
    "parts": (*GROUND, "graph", "fx", "tracing.entry", "tracing.program", "sample", "replaying"),
    "extracting": (*ROOMS, "target", "corpora", "corpus", "report", "benching", "__init__"),
    "kernel_sets": ("errors", "graph", "api", "extracting"),
    "differences": ("errors", "collector", "graph", "api", "differing"),
    "calls": ("errors", "choices", "graph"),
    "api": (
        *ROOMS,
        "regions",
        "parts",
        "target",
        "calls",
        "saving",
    ),  # bp.capture("folder") reads a TARGET
    "saving": ROOMS,
    "target": (*ROOMS, "api"),
    "corpus": (
        *GROUND,
        "graph",
        "fx",
        "sample",
        "graphnet",
        "replaying",
        "parts",
        "api",
        "saving",
        "target",
        "__init__",
    ),
    "corpora": ("errors", "choices", "graph", "corpus", "extracting"),
    "report": (
        "errors",
        "plain",
        "formats",
        "whole_file",
        "graph",
        "corpus.ledger",
        "corpus.groups",
        "corpus.find",
        "corpus.dedup",
    ),
    "benching": (*ROOMS, "target", "corpora", "corpus", "report", "__init__"),
    "benches": ("choices", "corpora", "corpus", "benching"),
    "torch_backend": (*ROOMS, "api"),
    "__init__": (
        *ROOMS,
        "regions",
        "api",
        "drawings",
        "corpora",
        "differences",
        "differing",
        "benches",
        "benching.cells",
        "benching.runs",
        "benching.minify_sample",
        "kernel_sets",
        "extracting",
    ),
    "cli": (
        *ROOMS,
        "regions",
        "parts",
        "api",
        "drawing",
        "drawings",
        "saving",
        "target",
        "corpora",
        "differences",
        "differing",
        "benches",
        "corpus",
        "report",
        "benching",
        "extracting",
        "__init__",
    ),
    "__main__": ("cli",),
}


def allows(entries: tuple[str, ...], target: str) -> bool:
    """Whether a dotted name inside the package is, or is in, one of the entries; what is in no room is the face's."""
    if target.split(".")[0] not in MAY_IMPORT:
        target = "__init__"
    return any(f"{target}.".startswith(f"{entry}.") for entry in entries)


def imported(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and dotted name, inside backprint, of everything a module imports from it."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                targets = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                start = package[: len(package) - level + 1] if level else ()
                base = ".".join((*start, *([module] if module else [])))
                targets = [f"{base}.{alias.name}" for alias in names]
            case _:
                continue
        for target in targets:
            root, _, inside = target.partition(".")
            if root == "backprint":
                yield node.lineno, inside


def violations(source: Path) -> list[str]:
    """One line for each import in the package at `source` that goes up or sideways."""
    found = []
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source)
        room = place.parts[0].removesuffix(".py")
        if room not in MAY_IMPORT:
            found.append(f"{place}: no floor is known for {room}; give it a row in MAY_IMPORT")
            continue
        allowed = (room, *MAY_IMPORT[room])
        for line, target in imported(ast.parse(path.read_text()), ("backprint", *place.parts[:-1])):
            if not allows(allowed, target):
                found.append(f"{place}:{line}: imports backprint.{target}; {room} may import {', '.join(allowed)}")
    return found


def test_rooms_import_only_from_floors_below() -> None:
    assert list(SOURCE.rglob("*.py")), f"no module found under {SOURCE}"
    assert violations(SOURCE) == []


@pytest.mark.parametrize(
    ("place", "text", "culprit"),
    [
        ("errors.py", "from backprint.graph import Graph", "backprint.graph.Graph"),
        ("graph/text.py", "import backprint.tracing.aot", "backprint.tracing.aot"),
        ("graph/text.py", "from ..sample.save import write", "backprint.sample.save.write"),
        ("graph/text.py", "from backprint.tree import bind_names", "backprint.tree.bind_names"),
        ("tree.py", "from backprint.graph.nouns import Graph", "backprint.graph.nouns.Graph"),
        ("graph/__init__.py", "from .. import replaying", "backprint.replaying"),
        ("graph/text.py", "import backprint as bp", "backprint."),
        ("graph/text.py", "from backprint import load", "backprint.load"),
        ("tracing/aot.py", "def f():\n    from backprint.sample import recipes", "backprint.sample.recipes"),
        ("sample/load.py", "if TYPE_CHECKING:\n    from backprint.replaying import run", "backprint.replaying.run"),
        ("replaying/verify.py", "from backprint.sample.save import write", "backprint.sample.save.write"),
        ("replaying/verify.py", "from backprint.sample import recipes, save", "backprint.sample.save"),
        ("replaying/verify.py", "from backprint.sample.recipe_json import read", "backprint.sample.recipe_json.read"),
        ("replaying/verify.py", "from backprint.sample.loader import load", "backprint.sample.loader.load"),
        ("api.py", "from backprint.cli import main", "backprint.cli.main"),
    ],
)
def test_an_import_upwards_or_sideways_is_caught(tmp_path: Path, place: str, text: str, culprit: str) -> None:
    plant(tmp_path, place, text)
    [violation] = violations(tmp_path)
    assert violation.startswith(f"{place}:{text.count(chr(10)) + 1}: imports {culprit};")


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("graph/text.py", "import ast, torch.fx\nfrom backprint.errors import GraphError\nfrom .port import Port"),
        (
            "replaying/verify.py",
            "from backprint.sample import load, recipes\nfrom backprint.sample.recipes import digest",
        ),
        ("tracing/aot.py", "from backprint.tree import bind_names\nfrom .. import tree"),
        ("api.py", "from backprint import errors, graph, replaying, sample, tracing"),
        ("cli/show.py", "import backprint as bp\nfrom backprint import load\nfrom backprint.api import save"),
    ],
)
def test_imports_from_below_are_let_be(tmp_path: Path, place: str, text: str) -> None:
    plant(tmp_path, place, text)
    assert violations(tmp_path) == []


def test_a_room_without_a_floor_is_named(tmp_path: Path) -> None:
    plant(tmp_path, "attic/box.py", "")
    assert violations(tmp_path) == ["attic/box.py: no floor is known for attic; give it a row in MAY_IMPORT"]


def plant(source: Path, place: str, text: str) -> None:
    path = source / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


HELP = "from backprint.cli import main; main(['--help'], standalone_mode=False)"


def loads_torch(statement: str) -> bool:
    """Whether a fresh Python that runs this statement ends with torch imported."""
    code = f"import sys\n{statement}\nsys.exit(3 if 'torch' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode == 3


@pytest.mark.parametrize(
    "statement", ["import backprint", "import backprint.torch_backend", HELP], ids=["import", "backend", "help"]
)
def test_the_front_door_is_light(statement: str) -> None:
    assert not loads_torch(statement)


def test_a_heavy_front_door_is_noticed() -> None:
    assert loads_torch("import torch")
