"""`torch.compile(backend="backprint")`: what a program runs is on disk, and the program has noticed nothing."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import backprint as bp
from face import torch_backend_function as backend

ROOT = Path(__file__).parents[1]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.norm = nn.BatchNorm1d(4)
        self.scale = torch.tensor([2.0])

    def forward(self, x: Tensor, more: dict[str, list[Tensor]]) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return F.dropout(self.norm(x + more["shift"][0]), 0.5, self.training) * self.scale


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(target: Any, place: Path, **options: Any) -> Any:
    return torch.compile(target, backend=backend, options={"dir": str(place), **options})


def samples(place: Path) -> list[bp.Capture]:
    """The samples of a folder by Dynamo's numbers, each proved."""
    found = [bp.load(path) for path in sorted(place.iterdir())]
    for capture in found:
        (verdict,) = capture.verify()
        assert verdict.verdict in ("bitwise", "undifferentiable"), verdict.detail
        assert verdict.verdict == capture.verdict["verdict"]
    return found


def inputs(rows: int = 3) -> tuple[Tensor, dict[str, list[Tensor]]]:
    return torch.randn(rows, 4), {"shift": [torch.randn(4, requires_grad=True)]}


def steps(model: Any, plain: nn.Module, args: tuple[Any, ...]) -> list[Tensor]:
    """Two training steps from one seed: outputs, gradients and state."""
    torch.manual_seed(5)
    found: list[Tensor] = []
    for _ in range(2):
        output = model(*args)
        plain.zero_grad()
        output.square().sum().backward()
        found += [output.detach().clone(), *(p.grad.clone() for p in plain.parameters() if p.grad is not None)]
        with torch.no_grad():
            for parameter in plain.parameters():
                parameter -= 0.1 * parameter.grad
    return [*found, *(value.clone() for value in plain.state_dict().values()), torch.rand(2)]


def test_a_training_step_is_captured_and_goes_on_unchanged(tmp_path: Path) -> None:
    model, args = Net(), inputs()
    wanted = steps(twin := copy.deepcopy(model), twin, args)
    for left, right in zip(steps(compiled(model, tmp_path), model, args), wanted, strict=True):
        assert torch.equal(left, right)
    (capture,) = samples(tmp_path)
    assert capture.name == "Net_forward_0_0"
    assert capture.engine == "dynamo"
    forward, backward = capture.pairs[0].forward, capture.pairs[0].backward
    assert backward is not None
    assert {port.name for port in forward.by_role("parameter")} == set(dict(model.named_parameters()))
    assert {port.name for port in forward.by_role("buffer")} == set(dict(model.named_buffers()))
    assert [port.name for port in forward.by_role("input")] == ["x", "more.shift.0"]
    assert [port.name for port in forward.by_role("constant")] == ["scale"]
    assert {port.name for port in backward.outputs} == {*dict(model.named_parameters()), "more.shift.0"}
    (tanh,) = [step for step in forward.steps if step.name == "tanh"]
    assert tanh.source is not None
    assert (tanh.source.function, tanh.source.code) == ("forward", "x = torch.tanh(layer(x))")
    assert "layers.1" in {step.source.module for step in forward.steps if step.source}


def test_a_sample_computes_again_what_a_checkpoint_computes_again(tmp_path: Path) -> None:
    def f(x: Tensor) -> Tensor:
        return checkpoint(lambda a: F.dropout(a.sin(), 0.5) * a, x, use_reentrant=False)

    compiled(f, tmp_path)(torch.randn(50, requires_grad=True)).sum().backward()
    (capture,) = samples(tmp_path)
    assert any("run_with_rng_state" in step.target for step in capture.pairs[0].backward.steps)


def test_without_gradients_there_is_a_forward_alone(tmp_path: Path) -> None:
    model = compiled(Net().eval(), tmp_path)
    with torch.no_grad():
        model(*inputs())
    with torch.inference_mode():
        model(*inputs())
    assert {capture.pairs[0].backward for capture in samples(tmp_path)} == {None}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo's own
def test_graph_breaks_give_a_sample_each(tmp_path: Path) -> None:
    def f(x: Tensor) -> Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        return y.sin() + 1

    compiled(f, tmp_path)(torch.randn(3, requires_grad=True)).sum().backward()
    first, second = samples(tmp_path)
    assert (first.name, second.name) == ("f_0_0", "f_1_0")
    assert [step.name for step in second.pairs[0].forward.steps] == ["sin", "add"]
    assert [port.name for port in second.pairs[0].forward.inputs] == ["y"]
    assert [port.name for port in second.pairs[0].backward.outputs] == ["y"]


def test_other_sizes_give_one_more_sample_with_symbols(tmp_path: Path) -> None:
    model = Net().eval()
    run = compiled(model, tmp_path)
    for rows in (3, 5, 7, 11):
        args = inputs(rows)
        assert torch.equal(run(*args), model(*args))
    static, sized = samples(tmp_path)
    assert not static.pairs[0].forward.symbols
    assert [symbol.name for symbol in sized.pairs[0].forward.symbols] == ["s0"]
    args = inputs(23)
    got = bp.replay(sized, args[0], **{"more.shift.0": args[1]["shift"][0]}, state=dict(model.state_dict()))
    assert torch.equal(got.outputs[0], model(*args))


def test_a_size_in_the_graph_is_read_off_its_tensor(tmp_path: Path) -> None:
    def f(x: Tensor, n: int) -> Tensor:
        return x.reshape(x.shape[0] * 2, -1).sum(0) / x.shape[0] * n

    run = torch.compile(f, backend=backend, dynamic=True, options={"dir": str(tmp_path)})
    run(torch.randn(6, 4, requires_grad=True), 3)
    (capture,) = samples(tmp_path)
    x = torch.randn(10, 8, requires_grad=True)
    assert torch.equal(bp.replay(capture, x).outputs[0], f(x, 3))


@pytest.mark.parametrize("data", ["seed", "exact", "none"])
def test_data_is_kept_as_asked(data: str, tmp_path: Path) -> None:
    args = inputs()
    compiled(Net(), tmp_path, data=data)(*args)
    (path,) = tmp_path.iterdir()
    capture = bp.load(path)
    if data == "exact":
        assert torch.equal(capture.recipes.make()["x"], args[0])
    assert ("x" in capture.recipes.missing) == (data == "none")


@pytest.mark.parametrize(
    ("options", "mode", "said"),
    [
        ({"colour": 1}, None, "has no option 'colour'; it has dir, data"),
        ({"data": "all"}, None, "data='all' is not one of"),
        ({}, "max-autotune", "has no modes, so mode='max-autotune'"),
        ({"dir": ""}, None, "needs a folder: set BACKPRINT_DIR"),
    ],
)
def test_unknown_options_are_refused_by_name(
    options: dict[str, Any], mode: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BACKPRINT_DIR", raising=False)
    with pytest.raises(bp.errors.UsageError, match=said):
        backend(torch.fx.symbolic_trace(nn.Linear(2, 2)), [], options={"dir": str(tmp_path), **options}, mode=mode)


def test_an_unknown_option_stops_the_program(tmp_path: Path) -> None:
    model = compiled(nn.Linear(2, 2), tmp_path, colour=1)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="has no option 'colour'"):
        model(torch.randn(1, 2))
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_cannot_be_kept_is_warned_of_once_and_runs(tmp_path: Path) -> None:
    with torch.library._scoped_library("bptest", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: torch.from_numpy(x.numpy() * 2), "CompositeExplicitAutograd")
        library._register_fake("twice", torch.empty_like)

        def f(x: Tensor) -> Tensor:
            return torch.ops.bptest.twice(x) + 1

        with pytest.warns(
            UserWarning,
            match=r"the graph of f is not kept: RefusedError: .*bptest\.twice.*leaves torch by Tensor\.numpy",
        ):
            assert torch.equal(compiled(f, tmp_path)(torch.ones(2)), torch.full((2,), 3.0))
        assert list(tmp_path.iterdir()) == []
        torch._dynamo.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compiled(f, tmp_path)(torch.ones(2))
        torch._dynamo.reset()
        compiled(f, tmp_path, allow=("bptest::twice",))(torch.ones(2))
        assert len(list(tmp_path.iterdir())) == 1


class Masked(torch.autograd.Function):
    """Drops gradients at random in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * torch.rand_like(gradient)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo does that
def test_a_function_may_draw_in_its_backward(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)

    def f(x: Tensor) -> Tensor:
        return Masked.apply(F.dropout(model(x)))  # type: ignore[no-any-return, no-untyped-call]

    compiled(f, tmp_path)(torch.randn(3, 4)).sum().backward()
    (capture,) = samples(tmp_path)
    assert [s.target for s in capture.pairs[0].backward.steps if "rand" in s.target] == ["aten.rand_like.default"]


class Precise(nn.Module):
    """Turns autocast off for a part of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.weight = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        with torch.autocast("cpu", enabled=False):
            return y.float() @ self.weight


@pytest.mark.parametrize("inside", [False, True])
def test_a_sample_of_a_program_under_autocast_is_proved_in_and_outside_of_it(inside: bool, tmp_path: Path) -> None:
    model, x = Precise(), torch.randn(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = compiled(model, tmp_path)(x)
    wanted.sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
        (capture,) = samples(tmp_path)
        own = {f"s.{name}": value for name, value in model.state_dict().items()}
        state = {port.name: own.get(port.name, own.get(f"s.{port.name}")) for port in capture.pairs[0].forward.inputs}
        got = bp.replay(capture, x, state={name: value for name, value in state.items() if value is not None})
    assert torch.equal(got.outputs[0], wanted)


SCRIPT = """
import sys, torch
from torch import nn
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
step = torch.compile(lambda x: model(x).square().mean(), backend="backprint")
step(torch.randn(5, 3)).backward()
assert model[0].weight.grad is not None
assert "backprint" in torch._dynamo.list_backends()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a process needs to find the entry point, whether or not the package is installed."""
    rows = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["torch_dynamo_backends"]
    installed = tmp_path / "site" / "backprint_here-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: backprint_here\nVersion: 0\n")
    lines = [f"{name} = {place}" for name, place in rows.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[torch_dynamo_backends]", *lines, ""]))
    path = os.pathsep.join([str(ROOT / "src"), str(installed.parent)])
    return {**os.environ, "PYTHONPATH": path, "BACKPRINT_DIR": str(tmp_path / "out")}


@pytest.mark.slow
def test_a_script_needs_the_environment_variable_alone(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, tmp_path / "train.py"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (capture,) = samples(tmp_path / "out")
    assert "model.0.weight" in {port.name for port in capture.pairs[0].forward.inputs}
    assert {step.source.file for step in capture.pairs[0].forward.steps if step.source} == {"train.py"}


@pytest.mark.slow
def test_several_processes_share_a_folder(environment: dict[str, str], tmp_path: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in running:
        _, said = process.communicate()
        assert process.returncode == 0, said
    found = samples(tmp_path / "out")
    assert len(found) == 3
    assert len({json.dumps(capture.verdict) for capture in found}) == 1
