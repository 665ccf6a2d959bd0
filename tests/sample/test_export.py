"""An exported file runs in an empty folder with torch alone, gives the sample's bits, and tells right from wrong."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from subjects.broken import BROKEN
from subjects.forked import run_python
from torch import Tensor, nn

import backprint as bp
from face import (
    Eager,
    EagerRun,
    checked_run,
    draw_from_recipes,
    judged,
    main,
    printed_line,
    rebuilt,
    settings,
    unguarded,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "format_4"


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.first(x)).relu())


def guarded(x: Tensor) -> Tensor:
    return x * x.sum().item() if x.mean() < 100 else x


def capture(kind: str) -> bp.Capture:
    torch.manual_seed(0)
    if kind in BROKEN:
        target, args = BROKEN[kind]()
        return bp.capture(target, args=args, engine="dynamo", name=kind)
    match kind:
        case "dropout":
            return bp.capture(Dropping(), torch.randn(3, 4))
        case "dynamic":
            return bp.capture(nn.Linear(4, 3), torch.randn(5, 4), dynamic=True)
        case "complex":
            values = torch.randn(8), torch.randn(8, dtype=torch.complex64)
            return bp.capture(lambda x, w: (torch.fft.fft(x) * w).abs().sum(), *values, requires_grad=True)
        case "sparse":
            eye = torch.eye(3).to_sparse().coalesce()
            return bp.capture(lambda s, d: torch.sparse.mm(s, d), eye, torch.randn(3, 4), requires_grad=True)
        case "guarded":
            return bp.capture(guarded, torch.randn(3), requires_grad=True)
        case "norm":
            return bp.capture(nn.BatchNorm1d(4), torch.randn(6, 4))
    return bp.capture(f"backprint.examples.{kind}:factory")


def alone(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -I FILE` in an empty folder: no path, no environment and no package of ours helps it."""
    here = file.parent / "empty"
    here.mkdir(exist_ok=True)
    return run_python([file, *arguments], flags=["-W", SPARSE, "-I"], cwd=here, env={})


def of_graphs(text: str) -> dict[str, list[str]]:
    """The lines below each graph's title."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("# pair_"):
            found[line.removeprefix("# ")] = lines = []
        elif not line.startswith("#"):
            lines.append(line)
    return found


def of_verify(capture: bp.Capture) -> dict[str, list[str]]:
    """What the replay of the sample's own verify gives at each port."""
    with settings.preserving_random_states(), settings.with_settings(dict(capture.environment)):
        parts = checked_run(capture, draw_from_recipes(capture, "recipe", None)).replayed.parts
    found = {}
    for pair, played in zip(capture.pairs, parts, strict=True):
        values: dict[str, Any] = {"output": played.outputs, "mutation": played.mutations, "saved": played.saved}
        values["gradient"] = played.gradients
        for side, graph in (("forward", pair.forward), ("backward", pair.backward)):
            if graph is not None:
                ports = graph.outputs
                found[f"{pair.name} {side}"] = [printed_line(p.role, p.name, values[p.role][p.name]) for p in ports]
    return found


# ------------------------------------------------------------------ the sample's bits

SPARSE = "ignore:Sparse invariant checks"  # of torch 2.11 itself, on sparse tensors
KINDS = ("convnet", "dropout", "dynamic", "complex", "sparse", "guarded")
LINKED = ("a_weight_in_several_pairs", "a_buffer_changed_in_one_and_read_in_another")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *LINKED])
def test_a_file_gives_the_bits_of_the_sample(kind: str, tmp_path: Path) -> None:
    sample = capture(kind).save(tmp_path / "sample", power="none")
    loaded = bp.load(sample)
    done = alone(bp.export(sample, tmp_path / "repro.py"))
    assert (done.returncode, done.stderr) == (0, "")
    assert of_graphs(done.stdout) == of_verify(loaded)


def test_its_digests_are_those_that_the_sample_keeps_of_the_program(tmp_path: Path) -> None:
    sample = capture("dropout").save(tmp_path / "sample")
    witness = json.loads((sample / "capture.json").read_text())["witness"]
    lines = [line for lines in of_graphs(alone(bp.export(sample, tmp_path / "r.py")).stdout).values() for line in lines]
    found = {" ".join(line.split()[:2]): line.split()[-1] for line in lines}
    assert {key: found[key] for key in witness} == {key: row["digest"] for key, row in witness.items()}


TRAIN = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    model(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_recorded_step_hands_its_gradients_to_the_update(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    [step] = bp.record(tmp_path / "train.py")
    loaded = bp.load(step.save(tmp_path / "sample"))
    assert any(link.port.role == "gradient" for link in loaded.links)
    wanted = of_verify(loaded)
    assert of_graphs(alone(bp.export(loaded, tmp_path / "repro.py")).stdout) == wanted
    forwards = of_graphs(alone(bp.export(loaded, tmp_path / "forward.py", direction="forward")).stdout)
    assert forwards == {title: lines for title, lines in wanted.items() if title.endswith("forward")}


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_one_direction_alone(direction: str, tmp_path: Path) -> None:
    sample = capture("dropout").save(tmp_path / "sample", power="none")
    file = bp.export(sample, tmp_path / "repro.py", direction=direction)
    assert ("class Backward(" in file.read_text()) == (direction == "backward")
    wanted = of_verify(bp.load(sample))
    assert of_graphs(alone(file).stdout) == {f"pair_0 {direction}": wanted[f"pair_0 {direction}"]}


# ------------------------------------------------------------------ inputs


@pytest.mark.slow
def test_exact_data_is_inside_up_to_a_size_and_beside_above_it(tmp_path: Path) -> None:
    for width, beside in ((8, False), (200, True)):
        folder = tmp_path / str(width)
        sample = bp.capture(nn.Linear(width, 100), torch.randn(2, width)).save(folder / "s", data="exact")
        file = bp.export(sample, folder / "repro.py")
        assert (folder / "repro.safetensors").exists() is beside
        done = alone(file)
        assert of_graphs(done.stdout) == of_verify(bp.load(sample)), done.stderr
    (folder / "repro.safetensors").unlink()
    done = alone(file)
    assert done.returncode == 2
    assert "repro.safetensors is not there: it has the exact data" in done.stderr
    drawn_again = bp.export(sample, folder / "drawn.py", data="seed")
    assert not (folder / "drawn.safetensors").exists()
    assert alone(drawn_again).returncode == 0


@pytest.mark.slow
def test_a_live_capture_has_the_inputs_that_its_sample_would_have(tmp_path: Path) -> None:
    live = capture("dropout")
    sample = live.save(tmp_path / "sample", power="none")
    made, kept = (alone(bp.export(each, tmp_path / f"{n}.py")) for n, each in enumerate((live, sample)))
    assert made.stdout == kept.stdout != ""
    exact = bp.export(live, tmp_path / "exact.py", data="exact")
    assert alone(exact).stdout != made.stdout
    drawn = [line for line in exact.read_text().splitlines() if "make(Recipe('normal'" in line]
    assert [line.split(" = ")[0].strip() for line in drawn] == ["made['tangent output']"]


def test_what_cannot_run_alone_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "repro.py"
    nothing = capture("norm").save(tmp_path / "nothing", data="none")
    with pytest.raises(bp.errors.RefusedError, match=r"no recipe makes 'weight' .*data='seed'"):
        bp.export(nothing, file)
    with pytest.raises(bp.errors.UsageError, match="data='none' keeps no inputs"):
        bp.export(capture("norm"), file, data="none")
    with pytest.raises(bp.errors.UsageError, match="has no backward"):
        bp.export(bp.capture(torch.sin, torch.randn(2), requires_grad=False), file, direction="backward")
    with pytest.raises(bp.errors.UsageError, match="'sideways' is not one of"):
        bp.export(nothing, file, direction="sideways")
    with pytest.raises(bp.errors.UsageError, match="repro is not the name of a Python file"):
        bp.export(nothing, tmp_path / "repro")
    with pytest.raises(bp.errors.UsageError, match=r"bp\.export takes a Capture, not a tensor"):
        bp.export(torch.ones(2), file)  # type: ignore[arg-type]
    assert not file.exists()
    file.write_text("mine")
    with pytest.raises(bp.errors.UsageError, match="exists already: pass overwrite=True"):
        bp.export(capture("norm"), file)
    assert file.read_text() == "mine"


@pytest.mark.slow
def test_a_custom_operator_is_refused_or_asked_for_where_the_file_runs(tmp_path: Path) -> None:
    @torch.library.custom_op("exported::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    made = bp.capture(lambda x: twice(x), torch.randn(2), requires_grad=False, allow=("exported::twice",))
    with pytest.raises(bp.errors.RefusedError, match=r"custom operator exported\.twice"):
        bp.export(made, tmp_path / "repro.py")
    done = alone(bp.export(made, tmp_path / "repro.py", allow=("exported::twice",)))
    assert done.returncode == 2
    assert "exported.twice.default is not an operator of PyTorch: import the library" in done.stderr


# ------------------------------------------------------------------ strangers


def test_no_code_of_a_stranger_gets_into_the_file(tmp_path: Path) -> None:
    sample = capture("norm").save(tmp_path / "sample", power="none")
    place, evil = sample / "capture.json", '"""; raise SystemExit(99); """'
    content = json.loads(place.read_text())
    place.write_text(json.dumps({**content, "name": evil, "environment": {**content["environment"], "torch": evil}}))
    done = alone(bp.export(sample, tmp_path / "repro.py"))
    assert (done.returncode, done.stderr) == (0, "")
    model = sample / "pair_0" / "forward" / "model.py"
    model.write_text(model.read_text().replace("        return (", "        print(1)\n        return (", 1))
    with pytest.raises(bp.errors.RefusedError):
        bp.export(sample, tmp_path / "other.py")
    assert not (tmp_path / "other.py").exists()


def test_a_file_imports_torch_and_the_standard_library_alone(tmp_path: Path) -> None:
    tree = ast.parse(bp.export(capture("dropout"), tmp_path / "repro.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"torch"}


def test_a_model_that_is_copied_elsewhere_says_what_to_do(tmp_path: Path) -> None:
    sample = capture("norm").save(tmp_path / "sample", power="none")
    for side in ("forward", "backward"):
        shutil.copy(sample / "pair_0" / side / "model.py", tmp_path / "model.py")
        done = alone(tmp_path / "model.py")
        assert (done.returncode, done.stdout) == (1, "")
        assert "run_sample.py is not there" in done.stderr
        assert "backprint export SAMPLE -o repro.py" in done.stderr
        assert "Traceback" not in done.stderr


# ------------------------------------------------------------------ the command line


def test_the_command_line_writes_what_python_writes(tmp_path: Path) -> None:
    sample = capture("dropout").save(tmp_path / "sample", power="none")
    command = ["export", str(sample), "-o", str(tmp_path / "a" / "repro.py"), "--backend", "aot_eager"]
    result = CliRunner().invoke(main, [*command, "--direction", "backward", "--data", "seed"])
    assert result.exit_code == 0, result.output
    assert "Dropping" in result.output
    written = bp.export(sample, tmp_path / "b" / "repro.py", backend="aot_eager", direction="backward", data="seed")
    assert (tmp_path / "a" / "repro.py").read_text() == written.read_text()
    assert "\nBACKEND = 'aot_eager'\n" in written.read_text()
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 2
    assert "--overwrite" in again.output


# ------------------------------------------------------------------ a backend

BACKENDS = """
import torch

def changed(change):
    def backend(gm, inputs):
        def play(*values):
            found = gm(*values)
            floats = [isinstance(each, torch.Tensor) and each.is_floating_point() and each.numel() for each in found]
            return tuple(change(each) if is_float else each for each, is_float in zip(found, floats))
        return play
    return backend

def one_element(tensor):
    flat = tensor.clone().view(-1)
    flat[flat.abs().argmax()] *= 1.01
    return flat.view(tensor.shape)

right = changed(torch.clone)
rounded = changed(lambda tensor: tensor * (1 + 2e-7))
wrong = changed(one_element)
narrow = changed(torch.Tensor.double)

def reversed_indices(gm, inputs):
    def play(*values):
        found = gm(*values)
        return tuple(each.flip(0) if each.dtype == torch.int64 and each.dim() else each for each in found)
    return play

def refuses(gm, inputs):
    raise NotImplementedError("not today")
"""


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dropping")
    (folder / "backends.py").write_text(BACKENDS)
    return bp.export(capture("dropout"), folder / "repro.py", backend=f"{folder / 'backends.py'}:wrong")


@pytest.fixture(scope="module")
def plain(dropping: Path) -> dict[str, list[str]]:
    return of_graphs(alone(dropping, "--backend", "").stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "code", "last"),
    [
        ("right", 0, "# 9 bitwise"),
        ("rounded", 0, "close"),
        ("wrong", 1, "7 wrong"),
        ("narrow", 1, "wrong"),
        ("refuses", 1, "# 2 failed"),
    ],
)
def test_a_backend_is_told_right_from_wrong(
    backend: str, code: int, last: str, dropping: Path, plain: dict[str, list[str]]
) -> None:
    done = alone(
        dropping, *([] if backend == "wrong" else ["--backend", f"{dropping.parent / 'backends.py'}:{backend}"])
    )
    assert done.returncode == code, done.stderr
    assert last in done.stdout.splitlines()[-1], done.stdout
    assert ("raised NotImplementedError: not today" in done.stdout) == (backend == "refuses")
    assert ("float64[3, 1] where eager gives float32[3, 1]" in done.stdout) == (backend == "narrow")
    for title, lines in of_graphs(done.stdout).items():
        assert all(line.startswith(short) for line, short in zip(lines, plain[title], strict=False))


def test_a_file_has_only_what_it_needs(tmp_path: Path) -> None:
    plain = bp.export(capture("norm"), tmp_path / "norm.py").read_text()
    linked = bp.export(capture(LINKED[0]), tmp_path / "linked.py").read_text()
    custom, beside = "def need_operator(", "def read_safetensors("
    for part in ("class Program:", custom, beside, "def received_by(", "def permutation("):
        assert (part in linked) == (part == "class Program:")
        assert part not in plain
    assert "backprint." not in plain.partition("# --- Below")[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the program was run and has changed what cannot be restored")  # fresh memory
@pytest.mark.parametrize("kind", ["unwritten", "lstm", "indices"])
def test_a_right_backend_is_not_accused_and_a_wrong_one_is_seen(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    match kind:
        case "unwritten":  # its first result differs in each run
            made = bp.capture(lambda x: (torch.empty_like(x), x * 2), torch.randn(64, 64), requires_grad=True)
        case "lstm":  # some of its kernels have no float64 form
            made = bp.capture(nn.LSTM(4, 5), torch.randn(3, 2, 4))
        case "indices":
            made = bp.capture(lambda x: (x @ x.T).topk(3), torch.randn(6, 10), requires_grad=True)
    (tmp_path / "backends.py").write_text(BACKENDS)
    file = bp.export(made, tmp_path / "repro.py")
    for backend, code in {"right": 0, "rounded": 0, "wrong": 1, "reversed_indices": int(kind == "indices")}.items():
        done = alone(file, "--backend", f"{tmp_path / 'backends.py'}:{backend}")
        assert done.returncode == code, (backend, done.stdout, done.stderr)
        assert (" wrong (" in done.stdout) == bool(code)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["guarded", "sparse"])
def test_a_compiler_of_pytorch_is_right(kind: str, tmp_path: Path) -> None:
    done = alone(bp.export(capture(kind), tmp_path / "repro.py"), "--backend", "aot_eager")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("Dynamo cuts this graph" in done.stdout) == (kind == "sparse")


def test_an_unknown_backend_has_a_near_name(dropping: Path) -> None:
    done = alone(dropping, "--backend", "aot_eagre")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no backend 'aot_eagre': did you mean aot_eager?" in done.stderr


# ------------------------------------------------------------------ verdicts


class Nothing(nn.Module):
    """A gradient that would be 0 if numbers were exact, a large one, and whether numbers are positive."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        centred = x - x.mean()
        return centred.sum(), x * 2, centred > 0


def eager_runs(seed: int, compiled: Any) -> Eager:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(seed))
    module = rebuilt(Nothing, "import torch\n" + unguarded("class Nothing(torch.nn.Module):\n" + FORWARD))
    keys = [("gradient", "bias"), ("gradient", "weight"), ("output", "mask")]
    run = EagerRun(module, [values], (torch.get_rng_state(), ()), keys, Nothing()(values))
    return Eager(run, compiled)


def verdicts(change: Any) -> list[str]:
    """The verdicts on results that another order of the same sums gives, and that are changed then."""

    def compiled(x: Tensor) -> tuple[Tensor, ...]:
        centred = x - x.flip(0).cumsum(0)[-1] / len(x)
        return tuple(change([centred.cumsum(0)[-1], x * 2, centred > 0]))

    eager = eager_runs(0, compiled)
    return [judged(eager, index, value)[0] for index, value in enumerate(compiled(*eager.run.inputs))]


FORWARD = """    def forward(self, x):
        centred = x - x.mean()
        return centred.sum(), x * 2, centred > 0
"""


def test_rounding_of_what_would_be_nothing_is_close_and_more_is_wrong() -> None:
    assert verdicts(lambda found: found) == ["close", "bitwise", "bitwise"]
    assert verdicts(lambda found: [found[0] + 1e-2, found[1], found[2]]) == ["wrong", "bitwise", "bitwise"]
    assert verdicts(lambda found: [found[0], found[1] * (1 + 1e-2), ~found[2]]) == ["close", "wrong", "wrong"]


def test_a_lucky_eager_run_is_no_measure_where_its_inputs_move_it_farther() -> None:
    for seed in range(200):
        eager = eager_runs(seed, Nothing())
        wanted = eager.run.results[0]
        moved = max(float((run[0] - wanted).abs()) for run in eager.nudged)
        if moved > 3 * float((wanted - eager.wide[0]).abs()):
            break
    assert judged(eager, 0, wanted + 2.5 * moved)[0] == "close"
    assert judged(eager, 0, wanted + 1e-2)[0] == "wrong"
