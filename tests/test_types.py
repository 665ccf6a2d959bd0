"""The face as type checkers see it from a user's file: mypy, and pyright, each with real types and with errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

HEAD = """
import torch
import backprint as bp
x = torch.randn(4, 3)
cap = bp.capture(torch.nn.Linear(3, 2), x, requires_grad=("input",), dynamic={"input": {0: "batch"}}, engine="aot")
out = bp.replay(cap, x, state={"weight": x}, tangents=[x])
sure: bp.types.Verdict = cap.verify()[0]
port: bp.types.PortVerdict = sure.ports[0]
again: bp.types.Replayed = out
with bp.region("dump") as region:
    seen: bp.types.Region = region
"""

TYPES = {
    "cap": "Capture",
    "cap.pairs[0]": "Pair",
    "cap.pairs[0].backward": "Graph | None",
    "cap.pairs[0].forward.inputs[0]": "Port",
    "cap.links[0].port.role": "str",
    "cap.backward": "Graph | None",
    "cap.inputs()": "dict[str, Tensor]",
    "cap.recipes.make()": "dict[str, Tensor]",
    "cap.save('x')": "Path",
    "cap.verify()": "list[Verdict]",
    "out": "Replayed",
    "out.gradients": "dict[str, Tensor | None]",
    "out.mutations": "dict[str, Tensor]",
    "sure.good": "bool",
    "port.witness": "str",
    "bp.power(cap)": "Power",
    "bp.check(torch.sin, x, like=torch.sin)": "CheckReport",
    "bp.power(cap).trials[0].weak": "tuple[str, ...]",
    "bp.save(cap, 'x')": "Path",
    "bp.export(cap, 'x.py', backend='inductor')": "Path",
    "bp.load('x')": "Capture",
    "bp.record('train.py')": "list[Capture]",
    "bp.region()": "Region",
}
"""What an expression is. Values of operators, and what a program gives, may be anything: nothing is said of them."""

ERRORS = {
    "out.gradiants": "gradiants",
    "sure.verdikt": "verdikt",
    "bp.capture(torch.nn.Linear(3, 2), x, engine=3)": "engine",
    "bp.capture(torch.nn.Linear(3, 2), x, engine='eger')": "engine",
    "cap.save('x', data='bytes')": "data",
    "bp.replay('samples/x', x)": "Capture",
    "bp.replay(cap, x, state=3)": "state",
    "bp.export('samples/x', 'x.py', backend=3)": "backend",
    "bp.load(3)": "PathLike",
    "bp.power(cap, seconds='2')": "seconds",
    "bp.power(cap).powr": "powr",
    "cap.save(cap)": "PathLike",
    "cap.release().passes": "passes",
}
"""What no checker lets pass, and the word that its message names."""

Told = dict[int, str]
"""Of each line of the user's file, what a checker says."""


def user_file(folder: Path) -> tuple[Path, dict[int, tuple[str, str]], dict[int, tuple[str, str]]]:
    """A user's file, and by line its expressions with their types, and its errors."""
    lines = HEAD.splitlines()
    start = len(lines) + 1
    rows = {start + index: row for index, row in enumerate(TYPES.items())}
    wrong = {start + len(rows) + index: row for index, row in enumerate(ERRORS.items())}
    lines += [f"reveal_type({expression})" for expression in TYPES] + list(ERRORS)
    place = folder / "user.py"
    place.write_text("\n".join(lines) + "\n")
    return place, rows, wrong


def by_mypy(place: Path) -> Told:
    """What mypy says. It is spared torch's own sources, which take it a minute: a Tensor is then `Any`."""
    config = place.with_name("mypy.ini")
    lines = ("[mypy]", "ignore_missing_imports = true", "[mypy-torch.*]", "follow_imports = skip")
    config.write_text("\n".join((*lines, "follow_imports_for_stubs = true", "")))
    command = [sys.executable, "-m", "mypy", "--config-file", config.name, "--cache-dir", "cache", place.name]
    environment = {**os.environ, "MYPYPATH": str(SOURCE)}
    done = subprocess.run(command, cwd=place.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    found: Told = {}
    for number, text in re.findall(rf"^{place.name}:(\d+): (?:error|note): (.*)$", done.stdout, re.M):
        found[int(number)] = f"{found.get(int(number), '')} {text}"
    return found


def by_pyright(place: Path) -> Told:
    """What pyright says."""
    config = {"include": [place.name], "extraPaths": [str(SOURCE)], "typeCheckingMode": "standard"}
    place.with_name("pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", "."]
    done = subprocess.run(command, cwd=place.parent, capture_output=True, text=True, check=False)
    found: Told = {}
    for row in json.loads(done.stdout)["generalDiagnostics"]:
        number = row["range"]["start"]["line"] + 1
        found[number] = f"{found.get(number, '')} {row['message']}"
    return found


CHECKERS: dict[str, Callable[[Path], Told]] = {"mypy": by_mypy, "pyright": by_pyright}


def type_in(text: str) -> str:
    """The type that a checker reveals, without the modules of its names."""
    found = re.search(r'is "([^"]*)"$', text)
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", found[1]) if found else text


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_a_checker_sees_the_types_of_the_face_and_its_misuse(checker: str, tmp_path: Path) -> None:
    pytest.importorskip(checker, reason=f"{checker} is not installed: pip install -e .[dev] brings it")
    place, rows, wrong = user_file(tmp_path)
    told = CHECKERS[checker](place)
    wanted = {name: kind.replace("Tensor", "Any") if checker == "mypy" else kind for name, kind in TYPES.items()}
    assert {name: type_in(told.get(line, "")) for line, (name, _) in rows.items()} == wanted
    missed = {name: told.get(line, "") for line, (name, word) in wrong.items() if word not in told.get(line, "")}
    assert missed == {}
    assert set(told) == {*rows, *wrong}, "nothing else in the file is wrong"
