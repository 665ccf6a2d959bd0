"""`python model.py` in a sample's folder needs torch alone and gives the bits that Backprint gives."""

from __future__ import annotations

import ast
import inspect
import json
import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from subjects.forked import run_python

import backprint as bp
from face import (
    MARKER,
    Graph,
    Port,
    Recipe,
    Ref,
    ScalarSpec,
    Step,
    TensorSpec,
    ending,
    exact_data,
    fit,
    fit_all,
    make_all,
    parse,
    run_sample,
    to_json,
)
from face import generator_digest as digest

END = ending(Graph((), (), (), ()))
HEADER = "import torch\nfrom torch import inf, nan\naten = torch.ops.aten\n\n\n"

FORWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        w: "f32[3, 4] parameter lin.weight",
        x: "f32[2, 4] stride=[1, 2] input x",
        odd: "f32[5] constant my input.saved name",
    ) -> (
        "f32[2, 3] output output",
        "f32[5] mutation bn1.running_mean",
        "f32[2, 3] saved mm",
        "SymInt(s0) saved size",
    ):
        mm = x @ w.t()
        noise = torch.rand(2, 3)
        return (mm + noise, odd * 2, mm, 3)


"""
BACKWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        x: "f32[2, 4] input x",
        mm: "f32[2, 3] saved mm",
        size: "SymInt(s0) saved size",
        tangent_output: "f32[2, 3] tangent output",
    ) -> ("f32[3, 4] gradient lin.weight",):
        return ((tangent_output * mm * size).t() @ x,)


"""


def write(folder: Path, recipes: dict[str, Recipe], exact: dict[str, torch.Tensor], **graphs: str) -> None:
    """A sample's folder, as far as `run_sample.py` looks at it."""
    rows = {name: to_json(recipe) for name, recipe in recipes.items()}
    (folder / "capture.json").write_text(json.dumps({"seed": 7, "recipes": rows}, allow_nan=False))
    if exact:
        save_file(exact, folder / "tensors.safetensors")
    for direction, graph in graphs.items():
        (folder / "pair_0" / direction).mkdir(parents=True)
        (folder / "pair_0" / direction / "model.py").write_text(HEADER + graph + END)
    shutil.copyfile(run_sample.__file__, folder / "run_sample.py")


def play(folder: Path, direction: str = "forward") -> Any:
    """`python -I model.py`, elsewhere: no path, no environment and no package of ours helps it."""
    path = folder / "pair_0" / direction / "model.py"
    return run_python([path], flags=["-I"], cwd="/")


def identity(recipes: dict[str, Recipe]) -> str:
    """A forward whose outputs are its inputs, one for each recipe."""
    ports = "".join(f'        a{i}: "? input {name}",\n' for i, name in enumerate(recipes))
    results = "".join(f'        "? output {name}",\n' for name in recipes)
    values = ", ".join(f"a{i}" for i in range(len(recipes)))
    return (
        "class GraphModule(torch.nn.Module):\n"
        f"    def forward(\n        self,\n{ports}    ) -> (\n{results}    ):\n        return ({values},)\n\n\n"
    )


def test_a_graph_of_guards_alone_runs_alone(tmp_path: Path) -> None:
    port = Port("x", "input", TensorSpec("int64", (2,)), "x")
    step = Step("read", "aten.sum.default", (Ref("x"),))
    graph = Graph((port,), (step, Step("guard_0", "assert_equal", (Ref("read"), 3))), (), ())
    text = graph.code.partition("class ")[2]
    assert parse(graph.code) == graph
    write(tmp_path, fit_all({"x": torch.tensor([1, 2])}, 0), {}, forward=f"class {text}")
    done = play(tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    base = torch.randn(100)
    return {
        "lin.weight": torch.randn(30, 40),
        "half": torch.randn(30, 40).bfloat16(),
        "uniform": torch.rand(77, dtype=torch.float64),
        "complex": torch.randn(9, dtype=torch.complex128),
        "ids": torch.randint(0, 50_000, (2, 64)),
        "mask": torch.where(torch.rand(9, 9) < 0.5, -math.inf, math.nan),
        "causal": torch.full((16, 16), -math.inf).triu(1).expand(2, 16, 16),
        "positions": torch.arange(128).expand(2, 128),
        "shuffled": torch.randperm(100),
        "step": torch.tensor(3),
        "few": torch.tensor([2**62, -1]),
        "image": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "empty": torch.empty(0, 3),
        "tail": base[40:],
        "head": base[:60],
        "kept": torch.randn(4, 5).t(),
        "kept complex": torch.randn(3, dtype=torch.complex64),
        "kept eight": torch.randn(4).to(torch.float8_e4m3fn),
        "kept bool": torch.rand(5) < 0.5,
        "kept none": torch.empty(0, dtype=torch.int64),
        "kept one": torch.tensor(1.5).half(),
    }


def test_a_sample_alone_makes_the_same_bits_as_backprint(tensors, tmp_path):
    recipes = fit_all(tensors, 0, exact=[name for name in tensors if name.startswith("kept")])
    exact = exact_data(tensors, recipes)
    write(tmp_path, recipes, exact, forward=identity(recipes))
    done = play(tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    expected = [
        f"output {name} {str(made.dtype).removeprefix('torch.')}{list(made.shape)} {digest(made)}"
        for name, made in make_all(recipes, exact).items()
    ]
    assert done.stdout.splitlines() == expected


@pytest.fixture
def pair(tmp_path):
    """A sample of two directions, its inputs, and what its forward's random numbers are."""
    torch.manual_seed(0)
    tensors = {
        "lin.weight": torch.randn(3, 4),
        "x": torch.randn(4, 2).t(),
        "my input.saved name": torch.randn(5),
        "tangent output": torch.randn(2, 3),
    }
    recipes = fit_all(tensors, 0)
    write(tmp_path, recipes, {}, forward=FORWARD, backward=BACKWARD)
    made = make_all(recipes, {})
    torch.manual_seed(7)
    return tmp_path, made, torch.rand(2, 3)


def test_a_forward_runs_under_the_seed_and_prints_a_line_for_each_output(pair):
    folder, made, noise = pair
    mm = made["x"] @ made["lin.weight"].t()
    assert play(folder).stdout.splitlines() == [
        f"output output float32[2, 3] {digest(mm + noise)}",
        f"mutation bn1.running_mean float32[5] {digest(made['my input.saved name'] * 2)}",
        f"saved mm float32[2, 3] {digest(mm)}",
        "saved size int 3",
    ]


def test_a_backward_takes_its_saved_values_from_the_forward_beside_it(pair):
    folder, made, _ = pair
    mm = made["x"] @ made["lin.weight"].t()
    gradient = (made["tangent output"] * mm * 3).t() @ made["x"]
    done = play(folder, "backward")
    assert (done.stderr, done.stdout) == ("", f"gradient lin.weight float32[3, 4] {digest(gradient)}\n")


def test_an_input_without_a_recipe_is_named(tmp_path):
    recipes = {"x": fit(torch.randn(3), 0), "the state": fit(torch.empty(2, device="meta"), 0)}
    write(tmp_path, recipes, {}, forward=identity(recipes))
    done = play(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "input 'the state' cannot be made: no recipe: captured without values\n"


def test_an_input_that_nothing_speaks_of_is_named(tmp_path):
    write(tmp_path, {"x": fit(torch.randn(3), 0)}, {}, forward=identity(dict.fromkeys(("x", "y z"))))
    done = play(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "say nothing of the inputs 'y z'" in done.stderr


def test_a_view_is_made_with_its_base_even_if_the_graph_has_only_the_view(tmp_path):
    base = torch.randn(100)
    recipes = fit_all({"base": base, "view": base[10:20]}, 0)
    write(tmp_path, recipes, {}, forward=identity({"view": recipes["view"]}))
    assert play(tmp_path).stdout.split()[-1] == digest(make_all(recipes, {})["view"])


@pytest.mark.parametrize("damage", ["missing", "short", "forged"])
def test_damaged_exact_data_is_refused(damage, tmp_path):
    tensors = {"w": torch.randn(100)}
    recipes = fit_all(tensors, 0, exact=["w"])
    write(tmp_path, recipes, exact_data(tensors, recipes), forward=identity(recipes))
    path = tmp_path / "tensors.safetensors"
    whole = path.read_bytes()
    broken = {"missing": None, "short": whole[:-4], "forged": whole.replace(b"[0,400]", b"[0,396]")}[damage]
    path.unlink() if broken is None else path.write_bytes(broken)
    done = play(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "'w'" in done.stderr
    assert ("its exact data is not there" if broken is None else "tensors.safetensors is damaged") in done.stderr


def test_the_runner_imports_torch_and_the_standard_library_alone() -> None:
    tree = ast.parse(Path(run_sample.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"torch"}


def test_every_sample_has_the_runner_as_it_is_here(tmp_path: Path) -> None:
    path = bp.capture(torch.sin, torch.randn(3), requires_grad=True).save(tmp_path / "sample", power="none")
    assert (path / "run_sample.py").read_bytes() == Path(run_sample.__file__).read_bytes()


def test_two_samples_run_in_one_process(pair, tmp_path_factory) -> None:
    """Each `model.py` executes the runner of its own sample, and no module is left behind."""
    other = tmp_path_factory.mktemp("other")
    recipes = fit_all({"x": torch.randn(3)}, 0)
    write(other, recipes, {}, forward=identity(recipes))
    places = [str(folder / "pair_0" / "forward" / "model.py") for folder in (pair[0], other)]
    code = "import runpy, sys\nfor place in sys.argv[1:]: runpy.run_path(place, run_name='__main__')"
    done = run_python(["-c", code, *places], flags=["-I"], cwd="/")
    assert done.stdout == play(pair[0]).stdout + play(other).stdout, done.stderr
    assert len(done.stdout.splitlines()) == 5
    assert not [*pair[0].rglob("*.pyc"), *other.rglob("*.pyc")]


def test_reading_a_sample_neither_runs_nor_asks_for_the_runner(tmp_path: Path) -> None:
    path = bp.capture(torch.sin, torch.randn(3), requires_grad=True).save(tmp_path / "sample", power="none")
    for text in ("raise SystemExit(99)", "this is not Python"):
        (path / "run_sample.py").write_text(text)
        assert bp.verify(bp.load(path))[0].verdict == "bitwise"
    (path / "run_sample.py").unlink()
    assert bp.verify(bp.load(path))[0].verdict == "bitwise"


NUMBERS = (
    Port("x", "input", TensorSpec("float32", (2, 3), (1, 2)), "x"),
    Port("n", "input", ScalarSpec("SymInt", "s0"), "n"),
)


def test_the_end_of_a_graph_is_python_with_what_tools_need_that_know_tensors_alone() -> None:
    for inputs in ((), NUMBERS):
        end = ending(Graph(inputs, (), (), ()))
        assert end.startswith(MARKER + "\n")
        assert end.count(MARKER) == 1
        ast.parse(end)
        assert all(len(line) <= 120 for line in end.splitlines())
        assert ("class GraphModule(GraphModule)" in end) == bool(inputs)
    many = tuple(replace(NUMBERS[1], name=f"number_{i}", local=f"number_{i}") for i in range(60))
    ast.parse(end := ending(Graph(many, (), (), ())))
    assert all(len(line) <= 120 for line in end.splitlines())


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_folder_of_its_own_runs_under_other_tools(dynamic: bool, tmp_path: Path) -> None:
    """A direction that was copied out of its sample: what GraphNet imports needs no other file."""
    x = torch.randn(4, 6).t()
    capture = bp.capture(lambda x: x.sin().reshape(-1) * x.shape[0], x, requires_grad=True, dynamic=dynamic)
    path = capture.save(tmp_path / "sample", power="none")
    text = (path / "pair_0" / "backward" / "model.py").read_text()
    assert "class GraphModule(GraphModule)" in text
    space: dict[str, Any] = {"__name__": "model"}
    exec(text, space)  # their loader sets no __file__
    names = inspect.signature(space["GraphModule"].forward).parameters
    numbers = [port for port in capture.pairs[0].backward.inputs if isinstance(port.spec, ScalarSpec)]
    given = {port.local: torch.tensor({"s0": 6, "s1": 4}[port.spec.expression]) for port in numbers}
    given |= {"x": x.contiguous(), "tangent_output": torch.ones(24)}
    assert set(names) == {"self", *given}
    [gradient] = space["GraphModule"]()(**given)
    assert torch.equal(gradient, x.cos() * 6)
