"""The plan of the house: who may import whom, and that the front door is light.

ARCHITECTURE.md has a table of floors. Import statements are read wherever they stand: at the top, inside a function,
under TYPE_CHECKING. Each must lead to the same room or to a floor below.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "backprint"


def floors_in_architecture() -> dict[str, int]:
    """The floor of each room, by the table in ARCHITECTURE.md."""
    table = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").partition("\n## Floors\n")[2].split("```")[1]
    floors: dict[str, int] = {}
    for line in table.strip().splitlines():
        row = re.match(r" *(\d+)  (\S+(?:  \S+)*)(?: {3,}|$)", line)  # rooms are two spaces apart, a description more
        assert row is not None, line
        floors |= dict.fromkeys(row[2].split(), int(row[1]))
    return floors


FLOORS = floors_in_architecture()


def module_names(source: Path) -> dict[str, Path]:
    """Every module below `source`, by its dotted name inside the package; '' is the package itself."""
    modules = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def room_of(module: str) -> str:
    """The room of a module; the package itself is the room `backprint`, and a room of tools is `tools/NAME`."""
    if not module or module == "types":
        return "backprint"
    first, *rest = module.split(".")
    return f"{first}/{rest[0]}" if first == "tools" and rest else first


def imported(tree: ast.Module, package: tuple[str, ...], modules: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each module of Backprint that a module imports, or imports a name from."""
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
                while inside and inside not in modules:
                    inside = inside.rpartition(".")[0]
                yield node.lineno, inside


def without_types(tree: ast.Module) -> ast.Module:
    """A module without the blocks that only a type checker reads."""
    kept = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))]
    return ast.Module(kept, type_ignores=[])


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports_of(source: Path, types: bool = True) -> tuple[tuple[str, Path, int, str], ...]:
    """Each import of one module by another: the module, its file, the line, and the module that is imported."""
    modules = module_names(source)
    known = modules | {room.replace("/", "."): source for room in FLOORS if room != "backprint"} | {"": source}
    found = []
    for module, path in modules.items():
        package = ("backprint", *path.relative_to(source).parts[:-1])
        tree = parsed(path) if types else without_types(parsed(path))
        found += [(module, path, line, target) for line, target in imported(tree, package, known)]
    return tuple(found)


def violations(source: Path) -> list[str]:
    """One line for each room without a floor, and for each import that goes up or sideways."""
    found = []
    for module, path in module_names(source).items():
        if room_of(module) not in FLOORS:
            found.append(f"{path.relative_to(source)}: ARCHITECTURE.md has no floor for {room_of(module)}")
    for module, path, line, target in imports_of(source):
        room, below = room_of(module), room_of(target)
        if room in FLOORS and room != below and FLOORS[room] <= FLOORS[below]:
            place = f"{path.relative_to(source)}:{line}"
            found.append(f"{place}: {room} (floor {FLOORS[room]}) imports {below} (floor {FLOORS[below]})")
    return found


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import one another, directly or by way of others."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in edges.get(waiting.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        reached[start] = seen
    members = {start: sorted(one for one in seen if start in reached.get(one, ())) for start, seen in reached.items()}
    return [list(group) for group in sorted({tuple(group) for group in members.values() if group})]


@functools.cache
def lines_at_the_top(path: Path) -> set[int]:
    """The lines of a module that run while it is imported: those outside of its functions."""
    inside = {
        line
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return set(range(1, len(path.read_text().splitlines()) + 1)) - inside


def module_edges(source: Path) -> dict[str, set[str]]:
    """What each module imports while it is imported itself. A method of a noun may import the module of its room that
    does the work when it is called: that is no circle."""
    edges: dict[str, set[str]] = {module: set() for module in module_names(source)}
    for module, path, line, target in imports_of(source, types=False):
        if target != module and line in lines_at_the_top(path):
            edges[module].add(target)
    return edges


@pytest.mark.slow
def test_rooms_import_only_from_floors_below() -> None:
    assert violations(SOURCE) == []


@pytest.mark.slow
def test_no_modules_import_one_another() -> None:
    assert circles(module_edges(SOURCE)) == []


def test_every_floor_of_the_table_is_used() -> None:
    rooms = {room_of(module) for module in module_names(SOURCE)}
    assert sorted(FLOORS) == sorted(rooms)
    assert sorted(set(FLOORS.values())) == list(range(max(FLOORS.values()) + 1))
    pairs = {(room_of(module), room_of(target)) for module, _, _, target in imports_of(SOURCE)}
    needed = dict.fromkeys(FLOORS, 0)
    for _ in FLOORS:
        for room, below in pairs:
            if room != below:
                needed[room] = max(needed[room], needed[below] + 1)
    assert max(needed.values()) == max(FLOORS.values()), "a table with fewer floors would do"


def test_the_docstring_of_a_package_names_its_files() -> None:
    unnamed = []
    for path in SOURCE.rglob("__init__.py"):
        names = {one.stem for one in path.parent.glob("*.py")} - {"__init__", "__main__"}
        names |= {one.parent.name for one in path.parent.glob("*/__init__.py")}
        if path.parent in (SOURCE, SOURCE / "cli", SOURCE / "examples") or not names:
            continue
        docstring = ast.get_docstring(parsed(path)) or ""
        mentioned = {word.rstrip("/") for word in re.findall(r"`([\w/]+)`", docstring)}
        unnamed += [f"{path.parent.name}/{name}" for name in sorted(names - mentioned)]
    assert unnamed == []


@pytest.mark.parametrize(
    ("place", "text", "culprit"),
    [
        ("errors.py", "from backprint.graph import Graph", "graph (floor"),
        ("graph/text.py", "import backprint.trace.aot", "trace (floor"),
        ("graph/text.py", "from ..sample.save import write", "sample (floor"),
        ("common/text.py", "from backprint.values.tree import bind_names", "values (floor"),
        ("graph/__init__.py", "from .. import prove", "prove (floor"),
        ("graph/text.py", "import backprint as bp", "backprint (floor"),
        ("trace/aot.py", "def f():\n    from backprint.prove import run", "prove (floor"),
        ("sample/load.py", "if TYPE_CHECKING:\n    from backprint.prove import run", "prove (floor"),
        ("tools/corpus/run.py", "from backprint.tools.kernels.nouns import Kernel", "tools/kernels (floor"),
        ("derive/duals.py", "from backprint.tools.lowering import operators", "tools/lowering (floor"),
        ("api.py", "from backprint.cli import main", "cli (floor"),
    ],
)
def test_an_import_upwards_or_sideways_is_caught(tmp_path: Path, place: str, text: str, culprit: str) -> None:
    plant(tmp_path, place, text)
    [violation] = violations(tmp_path)
    assert violation.startswith(f"{place}:{text.count(chr(10)) + 1}: ")
    assert f"imports {culprit}" in violation


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("graph/text.py", "import ast, torch.fx\nfrom backprint.errors import GraphError\nfrom .port import Port"),
        (
            "prove/verify.py",
            "from backprint.sample import load, recipes\nfrom backprint.sample.recipes import make",
        ),
        ("trace/aot.py", "from backprint.values.tree import bind_names\nfrom .. import values"),
        ("api.py", "from backprint import errors, graph, prove, sample, trace"),
        ("cli/show.py", "import backprint as bp\nfrom backprint import load\nfrom backprint.api import save"),
    ],
)
def test_imports_from_below_are_let_be(tmp_path: Path, place: str, text: str) -> None:
    plant(tmp_path, place, text)
    assert violations(tmp_path) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [["b", "c"]]


def test_a_room_without_a_floor_is_named(tmp_path: Path) -> None:
    plant(tmp_path, "attic/box.py", "")
    assert violations(tmp_path) == ["attic/box.py: ARCHITECTURE.md has no floor for attic"]


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
    "statement", ["import backprint", "import backprint.tools.torch_backend", HELP], ids=["import", "backend", "help"]
)
def test_the_front_door_is_light(statement: str) -> None:
    assert not loads_torch(statement)


@pytest.mark.slow
def test_a_heavy_front_door_is_noticed() -> None:
    assert loads_torch("import torch")
