"""The seam to torch: no other room says a private name, each probe holds here, and a name that is gone is named."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch.distributions import Distribution

import backprint as bp
from face import (
    FEATURES,
    PROBES,
    Private,
    PrivateApiError,
    aot,
    autograd,
    broken_probes,
    dynamo,
    fake,
    functorch,
    graphs,
    inductor,
    look_up,
    main,
    modes,
    modules,
    private,
    pytree,
    shapes,
    stopped_by,
    stopped_features,
    tensors,
)
from face import torch_operators as operators

SOURCE = Path(bp.__file__).parent
TABLES = (
    aot,
    autograd,
    dynamo,
    fake,
    functorch,
    graphs,
    inductor,
    modes,
    modules,
    operators,
    pytree,
    shapes,
    tensors,
)

# ------------------------------------------------------------------ who says a private name

RUNS_ALONE = "its text is a part of exported files, which import only torch and the standard library"
NAMES_IN_SAMPLES = "names that GraphNet's samples call"
WORDS = "a text that users read"

ALLOWED = {
    "tools/bench/compilers/experimental.py": "an option of ExecuTorch",
    "tools/graphnet/code.py": NAMES_IN_SAMPLES,
    "tools/graphnet/emit.py": NAMES_IN_SAMPLES,
    "tools/graphnet/read.py": NAMES_IN_SAMPLES,
    "tools/kernels/checking/interpreter.py": "parts of Triton's interpreter",
    "tools/kernels/compilers.py": WORDS,
    "tools/kernels/inductor.py": "a symbol of torch's C++ library",
    "tools/export/exported.py": RUNS_ALONE,
    "run_sample.py": RUNS_ALONE,
    "values/objects.py": "the beginnings of the names of torch's modules",
    "values/rounding.py": RUNS_ALONE,
    "trace/state/restore.py": "numpy's own generator",
}
"""The files of other rooms that say private names, with the reason."""

OF_PYTHON = {"_replace", "_fields", "_asdict", "_make", "_value_", "_is_owned"}
"""Attributes of named tuples, enums and locks."""

SAYING = ("torch._", "torch.utils._", "torch.fx.experimental")
READING = {"getattr", "hasattr", "setattr", "delattr"}


def is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def is_private_path(path: str) -> bool:
    """Whether a dotted name is private to torch; the names of operators are not."""
    parts = path.split(".")
    if parts[0] != "torch" or parts[1:2] == ["ops"]:
        return False
    return any(map(is_private, parts)) or path.startswith("torch.fx.experimental")


def private_names(text: str) -> Iterator[str]:
    """Yield the private names of torch that a file says, each with its line."""
    tree = ast.parse(text)
    imported: dict[str, str] = {}
    own: set[str] = set()
    words: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                imported |= {
                    name.asname or name.name.partition(".")[0]: (name.asname and name.name)
                    or name.name.partition(".")[0]
                    for name in names
                }
                yield from (f"{node.lineno}: import {name.name}" for name in names if is_private_path(name.name))
            case ast.ImportFrom(module=str(module), names=names):
                paths = {name.asname or name.name: f"{module}.{name.name}" for name in names}
                imported |= paths
                yield from (f"{node.lineno}: import {path}" for path in paths.values() if is_private_path(path))
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                own.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name):
                own.add(name)
            case ast.Expr(value=ast.Constant(value=str()) as constant):
                words.add(id(constant))
    inner: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if id(node) not in inner:
                yield from (f"{node.lineno}: {name}" for name in said_by(node, imported, own, inner))
            case ast.Constant(value=str(said)) if id(node) not in words and any(start in said for start in SAYING):
                yield f"{node.lineno}: {said!r}"
            case ast.Call(func=ast.Name(id=reader), args=[_, ast.Constant(value=str(name)), *_]) if (
                reader in READING and is_private(name) and name not in own | OF_PYTHON
            ):
                yield f"{node.lineno}: {reader} of {name}"
            case ast.keyword(arg=str(name)) if is_private(name):
                yield f"{node.value.lineno}: {name}="


def said_by(node: ast.Attribute, imported: dict[str, str], own: set[str], inner: set[int]) -> Iterator[str]:
    """Yield the private name that a chain of attributes says; `inner` gets the parts of the chain."""
    parts: list[str] = []
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        inner.add(id(value))
        parts.insert(0, value.attr)
        value = value.value
    root = imported.get(value.id, "") if isinstance(value, ast.Name) else ""
    path = ".".join((root, *parts))
    if is_private_path(path):
        yield path
    known = {root.partition(".")[0]} & {"torch", "backprint", "numpy", *sys.stdlib_module_names}
    if not known and not (isinstance(value, ast.Name) and value.id in ("aten", "self", "cls")):
        yield from (ast.unparse(node) for part in parts if is_private(part) and part not in own | OF_PYTHON)


@pytest.mark.slow
def test_no_other_room_says_a_private_name() -> None:
    said: dict[str, list[str]] = {}
    for place in sorted(SOURCE.rglob("*.py")):
        file = place.relative_to(SOURCE).as_posix()
        if not file.startswith("_torch/") and (names := list(private_names(place.read_text("utf-8")))):
            said[file] = names
    assert {file: names for file, names in said.items() if file not in ALLOWED} == {}
    assert set(ALLOWED) <= set(said), "these files say none: take them out of ALLOWED"


@pytest.mark.parametrize(
    "text",
    [
        "import torch._dynamo",
        "from torch._ops import OpOverload",
        "from torch.utils import _pytree",
        "from torch.fx.experimental.proxy_tensor import make_fx",
        "import torch\ntorch._C._current_autograd_node()",
        "import torch as t\nt._C.DispatchKey",
        "from torch import nn\nnn.init._no_grad_trunc_normal_",
        "def version(tensor):\n    return tensor._version",
        "def schema(func):\n    return getattr(func, '_schema', None)",
        "import importlib\nimportlib.import_module('torch._inductor.config')",
        "def trace(function):\n    return function(_quiet=True)",
    ],
)
def test_the_reader_sees_a_private_name(text: str) -> None:
    assert len(list(private_names(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        '"""About torch._dynamo."""',
        "import torch\ntorch.ops.aten._to_copy.default, torch.__version__",
        "import torch\naten = torch.ops.aten\naten._conj.default",
        "class Own:\n    _kept = 1\n\ndef kept(own):\n    return own._kept",
        "def moved(place):\n    return place._replace(offset=0)",
    ],
)
def test_the_reader_sees_none_where_none_is(text: str) -> None:
    assert list(private_names(text)) == []


# ------------------------------------------------------------------ probes


def test_each_probe_holds() -> None:
    for name, probe in PROBES.items():
        assert probe.holds(), name
        assert set(probe.needed_by) <= set(FEATURES), name
        assert probe.needed_by, name


def test_probes_leave_no_trace() -> None:
    before = Distribution._validate_args, torch.hub._hub_dir, copy.deepcopy(dict(torch._dynamo.utils.counters))
    assert broken_probes() == {}
    assert (Distribution._validate_args, torch.hub._hub_dir, dict(torch._dynamo.utils.counters)) == before


OF_C = {"torch.Tensor._indices", "torch.Tensor._is_view", "torch.Tensor._values"}
"""Methods of a class in C++, which `Tensor` inherits: they cannot be taken away."""


def hideable() -> list[str]:
    """Return the paths of the tables of names that a test can hide: modules stay in sys.modules."""
    rows = [row for module in TABLES for row in module.NAMES.values() if row.of is None]
    shown = [row for row in rows if not row.path.endswith("__get__")]
    return sorted({row.path for row in shown if not isinstance(row.value(), types.ModuleType)} - OF_C)


def hide(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a private name away, under each of the paths by which its row knows it."""
    rows = [row for module in TABLES for row in module.NAMES.values() if row.path == path]
    others = {other for row in rows for other in row.other_paths}
    for known in {path, *others}:
        home, _, name = known.rpartition(".")
        try:
            module = private.at_path(home, ())
        except PrivateApiError:
            assert others, f"{home} is not in this torch, and {path} has no other path"
            continue  # a newer torch has the name there
        monkeypatch.delattr(module, name, raising=not others)


def test_a_name_that_is_gone_breaks_its_probe() -> None:
    version = torch.__version__.partition("+")[0]
    for path in hideable():
        with pytest.MonkeyPatch.context() as patch:
            hide(path, patch)
            with pytest.raises(PrivateApiError, match=f"torch {version}.* has no {path}, which"):
                PROBES[path].holds()


def test_a_renamed_name_is_found_under_its_other_path() -> None:
    row = Private("torch.no_such_name", "", (private.EAGER,), other_paths=("torch.nor_this", "torch.neg"))
    assert row.value() is torch.neg
    assert row.probe().holds()
    with pytest.raises(PrivateApiError, match=r"has no torch\.no_such_name, which engine eager needs"):
        Private("torch.no_such_name", "", (private.EAGER,), other_paths=("torch.nor_this",)).value()


def test_every_name_is_used_outside() -> None:
    said = "\n".join(place.read_text("utf-8") for place in SOURCE.rglob("*.py") if place.parent != SOURCE / "_torch")
    unused = [f"{module.__name__}.{name}" for module in TABLES for name in module.NAMES if name not in said]
    assert unused == []


def passed_by_name() -> dict[tuple[str, str], set[str]]:
    """Return the arguments that other rooms pass by name to a name of a table, by its module and name."""
    passed: dict[tuple[str, str], set[str]] = {}
    for place in SOURCE.rglob("*.py"):
        tree = ast.parse(place.read_text("utf-8"))
        imported = {
            name.asname or name.name: (node.module.rpartition(".")[2], name.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("backprint._torch.") and node.module
            for name in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in imported:
                names = {keyword.arg for keyword in node.keywords if keyword.arg}
                passed.setdefault(imported[node.func.id], set()).update(names)
    return passed


@pytest.mark.slow
def test_what_is_passed_by_name_is_probed() -> None:
    tables = {module.__name__.rpartition(".")[2]: module.NAMES for module in TABLES}
    for (module, name), names in passed_by_name().items():
        if name in tables.get(module, {}):
            assert names <= set(tables[module][name].passed), f"{module}.{name} is called with {sorted(names)}"


# ------------------------------------------------------------------ a name that is gone


def doctor() -> dict[str, Any]:
    """Return what `backprint doctor --json` says in this process."""
    result = CliRunner().invoke(main, ["doctor", "--json"])
    return dict(json.loads(result.output), exit_code=result.exit_code)


@pytest.mark.parametrize(
    ("path", "stops", "works"),
    [
        ("torch._dynamo.pgo._CODE_STATE", [private.DYNAMO], [private.CAPTURE, private.EAGER, private.RECORD]),
        ("torch._inductor.graph.GraphLowering", [private.KERNELS], [private.DYNAMO, private.BENCH]),
        ("torch.autograd.graph._engine_run_backward", [private.REGIONS], [private.CAPTURE, private.DYNAMO]),
        ("torch._C._current_autograd_node", [private.CAPTURE, private.EAGER], [private.REPLAY, private.SAMPLES]),
        ("torch._neg_view", [private.REPLAY, private.CAPTURE, private.BENCH], [private.SAMPLES, private.REGIONS]),
    ],
)
def test_the_doctor_names_what_is_gone_and_what_it_stops(
    path: str, stops: list[str], works: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(path, monkeypatch)
    monkeypatch.setattr("backprint.cli.doctor.CHECKS", checks())
    said = doctor()
    assert said["exit_code"] == 1
    assert path in said["internals"] or path.rpartition(".")[2] in said["internals"]
    stopped, _, living = said["features"].partition("; works: ")
    assert all(f"{feature} (for" in stopped for feature in stops), stopped
    assert all(feature in living.split(", ") for feature in works), living
    assert not set(stops) & set(living.split(", "))


def checks() -> dict[str, Any]:
    """Return the doctor's checks of private names alone."""
    from face import CHECKS

    return {name: CHECKS[name] for name in ("internals", "features")}


GONE = """
import importlib, sys
from dataclasses import replace
import torch
import backprint as bp
names = importlib.import_module(f"backprint._torch.{sys.argv[1]}").NAMES
names[sys.argv[2]] = replace(names[sys.argv[2]], path=sys.argv[3])
for engine in ("eager", "aot", "dynamo"):
    try:
        print(engine, bp.capture(lambda x: x.sin() * x, torch.ones(3), engine=engine).verify()[-1].verdict)
    except bp.errors.BackprintError as error:
        print(engine, f"{type(error).__name__}: {error}")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "path", "engines"),
    [
        ("dynamo", "optimize", "torch._dynamo.run_under_dynamo", {"dynamo"}),
        ("aot", "PlainAOTOutput", "torch._functorch._aot_autograd.descriptors.Output", {"aot", "dynamo"}),
    ],
)
def test_a_name_that_torch_has_renamed_stops_only_what_needs_it(
    module: str, name: str, path: str, engines: set[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GONE, module, name, path], capture_output=True, text=True, timeout=300, check=False
    )
    said = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    assert set(said) == {"eager", "aot", "dynamo"}, done.stderr[-2000:]
    for engine, outcome in said.items():
        assert (f"has no {path}" in outcome) == (engine in engines), said
        assert engine in engines or outcome == "bitwise", said


def test_what_stands_for_an_absent_name_raises_at_any_use() -> None:
    row = Private("torch._no_such_thing", "Nothing.", (private.DYNAMO,))
    absent = look_up("thing", {"thing": row}, {})
    message = "has no torch._no_such_thing, which engine dynamo needs"
    for use in (
        lambda: absent(),
        lambda: absent.name,
        lambda: isinstance(1, absent),
        lambda: type("Own", (absent,), {}),
    ):
        with pytest.raises(PrivateApiError, match=message):
            use()
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        look_up("other", {"thing": row}, {"__name__": "names"})


def test_a_function_says_which_of_its_names_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("torch._dynamo.pgo._CODE_STATE")
    with (
        pytest.raises(PrivateApiError, match=r"has no torch\._dynamo\.pgo\._CODE_STATE, which engine dynamo needs"),
        dynamo.counts_restored(),
    ):
        pass


def test_a_name_is_a_plain_alias() -> None:
    assert autograd.current_node is torch._C._current_autograd_node
    assert operators.OpOverload is torch._ops.OpOverload


def test_an_engine_that_others_use_stops_them_too() -> None:
    assert stopped_by([private.AOT]) == (private.DYNAMO, private.AOT, private.FAKE)
    assert stopped_features({"torch._dynamo.pgo._CODE_STATE": ""}) == {
        private.DYNAMO: ("torch._dynamo.pgo._CODE_STATE",)
    }


@pytest.mark.slow
def test_probes_hold_in_a_process_that_has_imported_nothing_else() -> None:
    code = "from backprint._torch.probes import broken_probes; print(broken_probes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{}"
