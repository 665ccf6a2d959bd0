"""What we write, held against what GraphNet's tools ask of a sample, in our own words.

Their tools load `weight_meta.py` as a module, draw a tensor for each class, import `model.py` under any name, call its
`GraphModule` with the tensors by keyword, and compare every result with `torch.equal` and `max(abs(a - b))`. So a
folder is right if all of that works, whatever the sample takes and gives.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from torch import Tensor, nn

import backprint as bp
from face import WRITE_TREES as TREES
from face import PlaceError, SampleError, UsageError, draw_like_graphnet, main
from face import saving_write_layout as write_layout

FILES = {
    "model.py",
    "graph_net.json",
    "weight_meta.py",
    "input_meta.py",
    "input_tensor_constraints.py",
    "graph_hash.txt",
}

# ------------------------------------------------------------------ what is captured


class Convnet(nn.Module):
    """Batch norm in training, dropout, pooling with indices, and a loss over classes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.3)
        self.fc = nn.Linear(4, 5)

    def forward(self, x: Tensor, classes: Tensor) -> Tensor:
        x = self.drop(F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)).mean((2, 3))
        return F.cross_entropy(self.fc(x), classes)


def masked(x: Tensor, keep: Tensor, causal: Tensor) -> Tensor:
    scores = (x @ x.transpose(-1, -2)).masked_fill(~keep[:, None, :], float("-inf")) + causal
    return torch.where(keep[..., None], scores.softmax(-1) @ x, 0.0)


def looked_up(table: Tensor, ids: Tensor, small: Tensor) -> Tensor:
    return F.embedding(ids, table)[:, small].sum(-1)


def counted(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    return x[mask].exp(), x[: int(mask.sum())].sum(0) * 2


def odd_results(x: Tensor, w: Tensor, u: Tensor, empty: Tensor) -> tuple[Tensor, Tensor]:
    return (x * w).sum() + torch.cat([x, empty]).sum(), x.detach() * u.detach()


def of_all_kinds(x: Tensor, half: Tensor, wave: Tensor, flags: Tensor, pixels: Tensor) -> tuple[Tensor, ...]:
    return (x.double() * half.double()).sum(), (wave * x).abs(), torch.where(flags, x, -x) * pixels.float() / 255


def shaped(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return x.view(x.shape[0], -1, 2).repeat(1, x.shape[0], 1).cumsum(1), x @ w.reshape(x.shape[1], -1)


def determinant(x: Tensor) -> Tensor:
    return torch.logdet(x @ x.mT + torch.eye(9, dtype=x.dtype))


def recurrent() -> tuple[Any, tuple[Tensor, ...]]:
    lstm = nn.LSTM(4, 4, batch_first=True)
    return (lambda x: lstm(x)[0]), (torch.randn(2, 5, 4),)


def turned(x: Tensor, w: Tensor) -> Tensor:
    return (x.transpose(1, 2) @ w).transpose(1, 2).reshape(2, -1).sin() * x.transpose(1, 2).view(2, -1)[:, :1]


def strided(x: Tensor, e: Tensor) -> Tensor:
    return (x.t() @ e).unfold(0, 2, 1).sum(-1)


Program = tuple[Any, tuple[Tensor, ...], dict[str, Any]]
PROGRAMS: dict[str, Callable[[], Program]] = {
    "convnet": lambda: (Convnet().train(), (torch.randn(4, 3, 12, 12), torch.tensor([0, 4, 2, 1])), {}),
    "encoder": lambda: (
        nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True).train(),
        (torch.randn(2, 5, 8),),
        {},
    ),
    "masked": lambda: (
        masked,
        (torch.randn(2, 9, 8), torch.arange(9) < torch.tensor([[9], [5]]), torch.full((9, 9), -torch.inf).triu(1)),
        {},
    ),
    "looked_up": lambda: (
        looked_up,
        (torch.randn(50, 6), torch.randint(0, 50, (12, 20)), torch.tensor([3, 0, 1])),
        {},
    ),
    "counted": lambda: (counted, (torch.randn(90, 3), torch.arange(90) % 3 != 0), {}),
    "odd_results": lambda: (
        odd_results,
        (torch.randn(4, 5), torch.randn(4, 5), torch.randn(4, 5), torch.randn(0, 5)),
        {},
    ),
    "of_all_kinds": lambda: (
        of_all_kinds,
        (
            torch.randn(9, 9),
            torch.randn(9, 9).bfloat16(),
            torch.randn(9, 9, dtype=torch.complex64),
            torch.randn(9, 9) > 0,
            torch.randint(0, 256, (9, 9)).to(torch.uint8),
        ),
        {},
    ),
    "shaped": lambda: (shaped, (torch.randn(6, 12), torch.randn(24, 2)), {"dynamic": True}),
    "determinant": lambda: (determinant, (torch.randn(9, 9, dtype=torch.float64),), {}),
    "recurrent": lambda: (*recurrent(), {}),
    "turned": lambda: (turned, (torch.randn(2, 5, 4).transpose(1, 2), torch.randn(4, 4)), {}),
    "strided": lambda: (strided, (torch.randn(4, 6).t(), torch.randn(1, 5).expand(6, 5)), {}),
}


# ------------------------------------------------------------------ what their tools do


def imported(path: Path) -> Any:
    """A file as a module, under a name that is not its own."""
    spec = importlib.util.spec_from_file_location("unnamed", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["unnamed"] = module  # a dataclass looks its module up
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """What the classes of `weight_meta.py` say, by tensor name, as their loader takes it."""
    classes = [one for _, one in inspect.getmembers(imported(folder / "weight_meta.py"), inspect.isclass)]
    found = [{key: value for key, value in vars(one).items() if not key.startswith("__")} for one in classes]
    for row in found:
        assert row["dtype"].startswith("torch.")
        assert isinstance(getattr(torch, row["dtype"][6:]), torch.dtype)
        assert {"name", "shape", "dtype", "device", "mean", "std"} <= row.keys()
        assert not isinstance(row.get("data"), str)  # "Unimplemented", they say
        ranged = row.get("min_val") is not None and not getattr(torch, row["dtype"][6:]).is_floating_point
        assert not (ranged and row.get("data"))  # their range would win over the data
    return {row["name"]: row for row in found}


def by_name(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows by the program's own names."""
    return {row["original_name"]: row for row in rows(folder).values()}


def runs(folder: Path, seed: int) -> tuple[Tensor, ...]:
    """The results of a graph on what they would draw, and that their comparison gets along with them."""
    model = imported(folder / "model.py").GraphModule()
    given = {name: draw_like_graphnet(row, seed) for name, row in rows(folder).items()}
    assert set(inspect.signature(model.forward).parameters) == set(given)
    torch.manual_seed(0)
    found = model(**given)
    assert type(found) is tuple
    assert found
    for one in found:
        assert torch.equal(one.to("cpu"), one) or torch.isnan(one).any()
        torch.max(torch.abs(one - one if one.is_complex() else one.float() - one.float()))  # raises where one is empty
    return found


def check_folder(folder: Path) -> None:
    """One graph folder, as every tool of theirs takes it."""
    assert {path.name for path in folder.iterdir()} == FILES
    facts = json.loads((folder / "graph_net.json").read_text())
    assert facts["framework"] == "torch"
    assert facts["num_devices_required"] == facts["num_nodes_required"] == 1
    assert {"model_name", "dynamic"} <= facts.keys()
    assert "unsound" not in facts
    text = (folder / "model.py").read_text()
    assert (folder / "graph_hash.txt").read_text() == hashlib.sha256(text.encode()).hexdigest()
    limits = imported(folder / "input_tensor_constraints.py")
    names = {name for _, name in limits.dynamic_dim_constraint_input_shapes}
    assert names <= rows(folder).keys()
    for seed in range(2):
        for one in runs(folder, seed):
            assert not one.is_floating_point() or not torch.isnan(one).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_samples_folders_and_its_trees_run_under_graphnets_rules(name: str, tmp_path: Path) -> None:
    model, args, options = PROGRAMS[name]()
    cap = bp.capture(model, *args, name=name, **options)
    path = bp.save(cap, tmp_path / name)
    check_folder(path / "pair_0" / "forward")
    check_folder(path / "pair_0" / "backward")
    trees = write_layout(path, tmp_path / "trees", f"ours/{name}")
    assert set(trees) == {"train_forward", "train_backward"}
    for tree, folder in trees.items():
        assert folder == tmp_path / "trees" / tree / "ours" / name
        check_folder(folder)
        assert "Sym" not in (folder / "model.py").read_text()


@pytest.mark.slow
def test_a_mask_an_index_and_a_count_stay_what_they_are(tmp_path: Path) -> None:
    model, args, _ = PROGRAMS["masked"]()
    drawn = by_name(bp.save(bp.capture(model, *args), tmp_path / "masked") / "pair_0" / "forward")
    assert torch.equal(draw_like_graphnet(drawn["causal"]), args[2])
    assert torch.equal(draw_like_graphnet(drawn["keep"]), args[1])
    model, args, _ = PROGRAMS["looked_up"]()
    drawn = by_name(bp.save(bp.capture(model, *args), tmp_path / "looked_up") / "pair_0" / "forward")
    assert draw_like_graphnet(drawn["ids"]).min() >= 0
    assert draw_like_graphnet(drawn["ids"]).max() < 50
    assert torch.equal(draw_like_graphnet(drawn["small"]), args[2])
    assert drawn["table"]["min_val"] < drawn["table"]["max_val"]


def rising(x: Tensor) -> Tensor:
    return x.diff().log() + x[1:]


def test_values_that_no_draw_gives_are_written_out(tmp_path: Path) -> None:
    path = bp.save(bp.capture(rising, torch.arange(1.0, 100.0)), tmp_path / "x")
    [row] = rows(path / "pair_0" / "forward").values()
    assert row["data"] == list(range(1, 100))
    check_folder(path / "pair_0" / "forward")


def test_what_cannot_be_drawn_at_all_is_said(tmp_path: Path) -> None:
    path = bp.save(bp.capture(rising, torch.arange(1.0, 2.0**17)), tmp_path / "x")
    facts = json.loads((path / "pair_0" / "forward" / "graph_net.json").read_text())
    assert facts["unsound"] == "NaN or infinities in output"


# ------------------------------------------------------------------ trees


@pytest.mark.slow
def test_the_command_line_writes_three_trees_of_which_one_is_in_eval_mode(tmp_path: Path) -> None:
    factory = tmp_path / "factory.py"
    factory.write_text(
        "import torch\nfrom torch import nn\ndef factory():\n"
        "    return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).train(), (torch.randn(2, 4),)\n"
    )
    out = tmp_path / "out"
    arguments = ["capture", f"{factory}:factory", "-o", str(out), "--layout", "graphnet", "--name", "net", "--json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["verdict"] == "bitwise"
    assert set(answer["trees"]) == set(TREES)
    for tree in TREES:
        check_folder(out / tree / "net")
    assert "aten.bernoulli" in (out / "train_forward/net/model.py").read_text()
    assert "aten.bernoulli" not in (out / "eval_forward/net/model.py").read_text()
    assert " saved " not in (out / "eval_forward/net/model.py").read_text()
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 2
    assert "exists already" in again.output
    assert CliRunner().invoke(main, [*arguments, "--overwrite"]).exit_code == 0


@pytest.mark.slow
def test_several_pairs_are_numbered_subgraphs(tmp_path: Path) -> None:
    def broken(x: Tensor) -> Tensor:
        y = (x * 2).sin()
        torch._dynamo.graph_break()
        return (y * x).cos()

    cap = bp.capture(broken, torch.randn(3, 4), engine="dynamo")
    assert len(cap.pairs) == 2
    trees = write_layout(cap, tmp_path, "broken")
    for tree in ("train_forward", "train_backward"):
        assert [path.name for path in sorted(trees[tree].iterdir())] == ["subgraph_0", "subgraph_1"]
        check_folder(trees[tree] / "subgraph_0")
        check_folder(trees[tree] / "subgraph_1")


def test_a_graphnet_source_is_copied_as_it_came_and_completed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "model.py").write_text("class GraphModule: pass\n")
    (source / "graph_net.json").write_text('{"framework": "torch", "source": "timm"}')
    (source / "link").symlink_to("/etc/hostname")
    trees = write_layout(bp.capture(nn.Linear(2, 2), torch.randn(1, 2)), tmp_path / "out", "a/b", source)
    found = trees["eval_forward"]
    assert {path.name for path in found.iterdir()} == FILES
    assert (found / "model.py").read_text() == "class GraphModule: pass\n"
    facts = json.loads((found / "graph_net.json").read_text())
    assert facts["source"] == "timm"
    assert facts["num_devices_required"] == 1
    with pytest.raises(SampleError, match=r"no model\.py"):
        write_layout(bp.capture(nn.Linear(2, 2), torch.randn(1, 2)), tmp_path / "out", "c", tmp_path / "out" / "none")


def test_trees_are_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from face import write

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(write, "write_graphnet", full)
    with pytest.raises(PlaceError, match="no space left"):
        write_layout(bp.capture(nn.Linear(2, 2), torch.randn(1, 2)), tmp_path, "net")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("relative", ["../out", "/abs", "a b", "", "a;rm"])
def test_a_place_that_their_tools_cannot_take_is_refused(relative: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a path below a tree|in a path alone"):
        write_layout(bp.capture(nn.Linear(2, 2), torch.randn(1, 2)), tmp_path, relative)


def test_devices_are_written_so_that_their_tools_move_them(tmp_path: Path) -> None:
    def made(x: Tensor) -> Tensor:
        return x * torch.arange(4, device=x.device)

    trees = write_layout(bp.capture(made, torch.randn(3, 4)), tmp_path, "made")
    text = (trees["train_forward"] / "model.py").read_text()
    assert 'device=device(type="cpu")' in text
    assert "torch.device(" not in text
    check_folder(trees["train_forward"])


def test_a_check_of_ours_notices_what_their_tools_would(tmp_path: Path) -> None:
    path = bp.save(bp.capture(nn.Linear(2, 2), torch.randn(1, 2)), tmp_path / "x") / "pair_0" / "forward"
    meta = path / "weight_meta.py"
    whole = meta.read_text()
    meta.write_text(whole.replace('name = "input"', 'name = "other"', 1))
    with pytest.raises(AssertionError):
        check_folder(path)
    meta.write_text(whole.replace("shape = [1, 2]", "shape = [1, 3]", 1))
    with pytest.raises(RuntimeError):
        check_folder(path)
