"""A sample on disk: whole or not there, read without running it, proved again from disk, and lasting."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import backprint as bp
from face import JUDGE_VERSION as VERSION
from face import generator_digest as digest
from face import metadata, verdict_text
from face import sample_save as save_module

# ------------------------------------------------------------------ what is captured


class Net(nn.Module):
    """Convolution, batch norm in training and dropout: parameters, buffers that change, random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.drop = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(torch.relu(self.bn(self.conv(x)))).sum((2, 3))


def lookup(table: Tensor, ids: Tensor, other: Tensor) -> Tensor:
    """An integer input, and an input that stands twice."""
    return (nn.functional.embedding(ids, table) * other[:3]).sum()


class Counted(nn.Module):
    """Reads a value of an input while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        return self.fc(x) * int(n.item())


class Tripled(torch.autograd.Function):
    """A backward that autograd of the forward would not give."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 3


class Edged(nn.Module):
    """A model with an opaque edge."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return Tripled.apply(x * self.w).sum()


@torch.library.custom_op("bpsample::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    """An operator that PyTorch alone does not have."""
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


twice.register_autograd(lambda ctx, grad: grad * 2)


def net() -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    return Net(), (torch.randn(2, 2, 5, 5),)


def function() -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    table = torch.randn(6, 2)
    return lookup, (table, torch.tensor([1, 3, 5]), table)


class Made:
    """A program, its inputs, its capture and its sample."""

    def __init__(self, factory: Callable[[], Any], folder: Path, **options: Any) -> None:
        torch.manual_seed(0)
        self.target, self.args = factory()
        self.capture = bp.capture(self.target, args=self.args)
        self.path = self.capture.save(folder / factory.__name__, **options)


@pytest.fixture(scope="module", params=[net, function], ids=["net", "function"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(request.param, tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(net, tmp_path_factory.mktemp("one"))


def content(sample: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((sample / "capture.json").read_text(encoding="utf-8"))
    return found


def altered(sample: Path, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a sample whose capture.json says something else."""
    shutil.copytree(sample, to)
    said = content(to)
    change(said)
    (to / "capture.json").write_text(json.dumps(said), encoding="utf-8")
    return to


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def verdict_of(path: Path, **options: Any) -> Any:
    (verdict,) = bp.verify(bp.load(path, **options))
    return verdict


# ------------------------------------------------------------------ there and back


def test_a_sample_gives_the_capture_back(made: Made) -> None:
    loaded = bp.load(made.path)
    assert loaded.pairs == made.capture.pairs
    assert loaded == made.capture
    assert [field.name for field in fields(loaded) if field.compare] == [
        *("name", "engine", "pairs", "signature", "links", "breaks", "why"),
        *("guards", "opaque", "environment", "requires", "seed", "fake", "pins", "notes", "meant", "rank"),
    ]


def test_the_verdict_is_stored_and_proved_again_from_disk(made: Made) -> None:
    loaded = bp.load(made.path)
    ports = [f"{p.role} {p.name}" for p in (*loaded.pairs[0].forward.outputs, *loaded.pairs[0].backward.outputs)]
    compared = {name for name in ports if not name.startswith("saved ")}
    assert loaded.verdict["verdict"] == "bitwise"
    assert compared <= set(loaded.verdict["ports"])
    (again,) = loaded.verify()
    assert again.verdict == "bitwise"
    assert {f"{port.role} {port.name}" for port in again.ports} == set(loaded.verdict["ports"]) == set(loaded.witness)
    assert min(again.power, loaded.verdict["power"]) > 1
    assert again.vacuous == ()


def test_two_names_of_one_tensor_stay_one(tmp_path: Path) -> None:
    loaded = bp.load(Made(function, tmp_path).path)
    assert loaded.signature.same == (("table", "other"),)
    inputs = loaded.recipes.make()
    assert inputs["other"].data_ptr() == inputs["table"].data_ptr()
    assert inputs["ids"].tolist() == [1, 3, 5]
    with pytest.raises(bp.errors.GuardError, match="one tensor at capture"):
        bp.replay(loaded, torch.randn(6, 2), torch.tensor([1, 3, 5]), torch.randn(6, 2))


@pytest.mark.parametrize("spell", [Path, str, lambda path: f"{path}/"], ids=["Path", "str", "trailing slash"])
def test_a_place_may_be_spelled_in_any_way(spell: Callable[[Path], Any], tmp_path: Path, one: Made) -> None:
    path = one.capture.save(spell(tmp_path / "deep" / "sample"))
    assert path == tmp_path / "deep" / "sample"
    assert bp.load(spell(path)) == one.capture
    assert sorted(os.listdir(tmp_path / "deep")) == ["sample"]


@pytest.mark.slow
@pytest.mark.parametrize("side", ["forward", "backward"])
def test_each_model_py_runs_with_torch_alone_and_gives_the_programs_bits(made: Made, side: str) -> None:
    """`-I`: no path and no environment helps it; and Backprint, which is installed here, is not imported."""
    script = made.path / "pair_0" / side / "model.py"
    code = (
        f"import runpy, sys; sys.argv = [{str(script)!r}]; runpy.run_path({str(script)!r}, run_name='__main__'); "
        "assert not any(name.startswith(('backprint', 'safetensors')) for name in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd="/", capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(" ") for line in done.stdout.splitlines()]
    printed = {f"{row[0]} {row[1]}": row[-1] for row in rows if row[0] != "saved"}
    witness = {name: row["digest"] for name, row in content(made.path)["witness"].items()}
    assert printed
    assert printed == {name: witness[name] for name in printed}
    roles = {"forward": {"output", "mutation"}, "backward": {"gradient"}}[side]
    assert set(printed) == {name for name in witness if name.split(" ")[0] in roles}


# ------------------------------------------------------------------ data


def test_exact_data_gives_the_captured_bytes_back(made: Made, tmp_path: Path) -> None:
    path = made.capture.save(tmp_path / "exact", "exact")
    given = made.capture.origin.values()
    values = {name: tensor for name, tensor in bp.load(path).recipes.make().items() if not name.startswith("tangent ")}
    assert values.keys() == given.keys()
    for name, tensor in values.items():
        assert digest(tensor) == digest(given[name])
        assert tensor.stride() == given[name].stride()
    assert verdict_of(path).verdict == "bitwise"


def test_exact_data_can_be_read_by_whoever_can_read_the_sample(made: Made, tmp_path: Path) -> None:
    path = made.capture.save(tmp_path / "exact", "exact")
    modes = {file.stat().st_mode & 0o777 for file in path.rglob("*") if file.is_file()}
    assert len(modes) == 1


def test_no_data_keeps_nothing_and_proves_nothing(made: Made, tmp_path: Path) -> None:
    path = made.capture.save(tmp_path / "none", "none")
    loaded, said = bp.load(path), content(path)
    assert loaded.verdict["verdict"] == "bitwise"
    assert said["witness"] is None
    assert {row["kind"] for row in said["recipes"].values()} == {"none"}
    assert all(not row["facts"] for row in said["recipes"].values())
    assert not (path / "tensors.safetensors").exists()
    assert "data = [" not in (path / "pair_0" / "forward" / "weight_meta.py").read_text()
    assert verdict_of(path).verdict == "unproven"
    with pytest.raises(bp.errors.ReplayError, match=r"is missing|no recipe makes it"):
        bp.replay(loaded)
    assert verdict_of(made.path).verdict == "bitwise"


def test_no_data_keeps_nothing_of_a_program_that_is_gone(tmp_path: Path) -> None:
    capture = bp.capture(nn.Linear(2, 2), torch.randn(1, 2))
    capture.release()
    assert not capture.origin.alive
    rows = content(capture.save(tmp_path / "none", "none"))["recipes"].values()
    assert {row["kind"] for row in rows} == {"none"}


def test_an_unknown_kind_of_data_is_refused(one: Made, tmp_path: Path) -> None:
    with pytest.raises(bp.errors.UsageError, match="data='all' is not one of 'seed', 'exact', 'none'"):
        one.capture.save(tmp_path / "sample", "all")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ its place


def test_saving_over_a_sample_needs_to_be_asked_for(one: Made, tmp_path: Path) -> None:
    other = bp.capture(lambda x: x.sin().sum(), torch.randn(3), name="other")
    path = one.capture.save(tmp_path / "sample")
    before = snapshot(tmp_path)
    with pytest.raises(bp.errors.UsageError, match="exists already: pass overwrite=True"):
        other.save(path)
    assert snapshot(tmp_path) == before
    other.save(path, overwrite=True)
    assert bp.load(path) == other
    assert os.listdir(tmp_path) == ["sample"]
    assert not (path / "tensors.safetensors").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_sample_is_never_replaced(overwrite: bool, one: Made, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "file").write_text("more")
    for name in ("thesis", "file"):
        with pytest.raises(bp.errors.UsageError, match=f"{name} exists and is not a sample"):
            one.capture.save(tmp_path / name, overwrite=overwrite)
    assert snapshot(tmp_path) == {"thesis/chapter.tex": b"years of work", "file": b"more"}


def test_an_empty_folder_becomes_the_sample(one: Made, tmp_path: Path) -> None:
    (tmp_path / "sample").mkdir()
    assert bp.load(one.capture.save(tmp_path / "sample")) == one.capture


class Full(Exception):
    """What a disk that is full raises here."""


@pytest.mark.parametrize("stop", ["write_json", "write_side", "settle"])
def test_a_sample_is_there_whole_or_not_at_all(
    stop: str, one: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = one.capture.save(tmp_path / "sample")
    before = snapshot(tmp_path)

    actual = getattr(save_module, stop)

    def fail(*arguments: Any) -> None:
        if stop != "settle":
            actual(*arguments)  # so that it stops half-way
        assert snapshot(tmp_path).keys() > before.keys()
        raise Full

    monkeypatch.setattr(save_module, stop, fail)
    with pytest.raises(Full):
        one.capture.save(tmp_path / "new")
    with pytest.raises(Full):
        one.capture.save(path, overwrite=True)
    assert snapshot(tmp_path) == before
    assert os.listdir(tmp_path) == ["sample"]


def test_the_old_sample_comes_back_when_the_new_one_cannot_take_its_place(
    one: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = one.capture.save(tmp_path / "sample")
    before, replace = snapshot(tmp_path), os.replace

    def fail(source: Any, target: Any) -> None:
        if str(source).endswith(".part"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(bp.errors.PlaceError, match=r"sample: the sample could not be written: .*No space left"):
        one.capture.save(path, overwrite=True)
    assert snapshot(tmp_path) == before
    assert os.listdir(tmp_path) == ["sample"]


def test_a_place_that_cannot_be_written_is_named(one: Made, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(bp.errors.PlaceError, match=r"file/sample: the sample could not be written"):
        one.capture.save(tmp_path / "file" / "sample")


# ------------------------------------------------------------------ reading


def test_what_is_no_sample_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, why in (("no", "no such folder"), ("file", "not a folder"), ("", "no capture.json here")):
        with pytest.raises(bp.errors.SampleError, match=f"{tmp_path / name}.*: {why}"):
            bp.load(tmp_path / name)


@pytest.mark.parametrize(("other", "advice"), [(1, "use a newer Backprint"), (-1, "capture the program again")])
def test_another_format_is_refused_by_name(one: Made, tmp_path: Path, other: int, advice: str) -> None:
    number = metadata.FORMAT + other
    path = altered(one.path, tmp_path / "other", lambda said: said.update(format=number))
    said = f"format {number}, and this Backprint reads format {metadata.FORMAT}: {advice}"
    with pytest.raises(bp.errors.SampleError, match=said):
        bp.load(path)


LISTING = """
import sys, time
import backprint as bp
from pathlib import Path
began = time.perf_counter()
rows = [bp.load(path) for path in sorted(Path(sys.argv[1]).iterdir())]
assert {(row.name, row.verdict["verdict"], len(row.pairs)) for row in rows} == {("Net", "bitwise", 1)}
assert "torch" not in sys.modules, "listing samples imported torch"
print(len(rows), time.perf_counter() - began)
"""


def test_listing_two_hundred_samples_needs_no_torch(one: Made, tmp_path: Path) -> None:
    for index in range(200):
        shutil.copytree(one.path, tmp_path / f"sample_{index:03}", copy_function=os.link)
    done = subprocess.run([sys.executable, "-c", LISTING, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    count, took = done.stdout.split()
    assert int(count) == 200
    assert float(took) < 20


def test_what_an_argument_calls_itself_may_have_lines(tmp_path: Path) -> None:
    class Odd:
        def __repr__(self) -> str:
            return "Odd(\n  1,\n)"

    path = bp.capture(lambda x, odd: x.sin().sum(), torch.randn(3), Odd()).save(tmp_path / "sample")
    assert bp.load(path).signature.leaves == (("odd", "Odd(\n  1,\n)"),)


# ------------------------------------------------------------------ what is tampered with is noticed


def test_another_number_in_model_py_is_wrong(one: Made, tmp_path: Path) -> None:
    shutil.copytree(one.path, tmp_path / "sample")
    model = tmp_path / "sample" / "pair_0" / "forward" / "model.py"
    text = model.read_text()
    assert text.count("1e-05") == 1
    model.write_text(text.replace("1e-05", "0.5"))
    assert bp.load(tmp_path / "sample").pairs != one.capture.pairs
    verdict = verdict_of(tmp_path / "sample")
    assert verdict.verdict == "wrong"
    assert {"output output", "gradient conv.weight"} <= {
        f"{port.role} {port.name}" for port in verdict.ports if port.verdict == "wrong"
    }


def test_another_number_in_the_backward_is_wrong(one: Made, tmp_path: Path) -> None:
    shutil.copytree(one.path, tmp_path / "sample")
    model = tmp_path / "sample" / "pair_0" / "backward" / "model.py"
    text = model.read_text()
    assert text.count("threshold_backward.default(mul_1, relu, 0)") == 1
    model.write_text(text.replace("(mul_1, relu, 0)", "(mul_1, relu, 1)"))
    verdict = verdict_of(tmp_path / "sample")
    assert verdict.verdict == "wrong"
    assert {port.role for port in verdict.ports if port.verdict == "wrong"} == {"gradient"}


def test_another_digest_in_the_witness_is_no_longer_bitwise(one: Made, tmp_path: Path) -> None:
    def change(said: dict[str, Any]) -> None:
        said["witness"]["output output"]["digest"] = "0" * 16

    verdict = verdict_of(altered(one.path, tmp_path / "sample", change))
    assert verdict.verdict == "close"
    assert "output output" in verdict.detail
    assert f"is not {'0' * 16}" in verdict.detail


@pytest.mark.parametrize("field", ["norm", "max", "leading", "dtype", "shape", "none"])
def test_other_numbers_in_the_witness_are_wrong(field: str, one: Made, tmp_path: Path) -> None:
    def change(said: dict[str, Any]) -> None:
        row = said["witness"]["gradient conv.weight"]
        row["digest"] = "0" * 16
        match field:
            case "leading":
                row["leading"][3] += 1
            case "dtype":
                row["dtype"] = "float64"
            case "shape":
                row["shape"] = [3, 2, 9]
            case "none":
                said["witness"]["gradient conv.weight"] = {"none": True}
            case _:
                row[field] += 1

    verdict = verdict_of(altered(one.path, tmp_path / "sample", change))
    assert (verdict.verdict, "gradient conv.weight" in verdict.detail) == ("wrong", True)


def test_a_port_more_or_less_in_the_witness_is_wrong(one: Made, tmp_path: Path) -> None:
    def add(said: dict[str, Any]) -> None:
        said["witness"]["gradient z"] = said["witness"]["gradient bn.bias"]

    less = altered(one.path, tmp_path / "less", lambda said: said["witness"].pop("gradient bn.bias"))
    more = altered(one.path, tmp_path / "more", add)
    assert (verdict_of(less).verdict, verdict_of(more).verdict) == ("wrong", "wrong")


def test_a_wrong_result_beside_an_infinity_is_wrong(tmp_path: Path) -> None:
    def masked(x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, x * 2.5, torch.inf)

    path = bp.capture(masked, torch.randn(40), torch.arange(40) % 3 == 0).save(tmp_path / "sample")
    assert verdict_of(path).verdict == "bitwise"
    model = path / "pair_0" / "forward" / "model.py"
    model.write_text(model.read_text().replace("2.5", "7.5"))
    ports = {f"{port.role} {port.name}": port.verdict for port in verdict_of(path).ports}
    assert ports["output output"] == "wrong"


def test_an_ending_of_another_version_is_refused(one: Made, tmp_path: Path) -> None:
    shutil.copytree(one.path, tmp_path / "sample")
    for side in ("forward", "backward"):
        model = tmp_path / "sample" / "pair_0" / side / "model.py"
        text = model.read_text()
        assert text.endswith('names["main"](GraphModule, __file__)\n')
        model.write_text(text.replace("(GraphModule, __file__)", "(GraphModule, __file__)  # as it was"))
    with pytest.raises(
        bp.errors.RefusedError, match=r"model\.py: line \d+: the lines below .*capture the program again"
    ):
        bp.load(tmp_path / "sample").pairs[0].forward  # noqa: B018  # reading it is what is refused


# ------------------------------------------------------------------ guards


def test_what_a_guard_hangs_on_is_kept_exact(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Counted()
    capture = bp.capture(model, torch.randn(2, 3), torch.tensor(4), specialize=True)
    path = capture.save(tmp_path / "sample")
    loaded = bp.load(path)
    kinds = {name: recipe.kind for name, recipe in loaded.recipes.recipes.items()}
    assert kinds["n"] == "exact"
    assert kinds["x"] != "exact"
    assert [(guard.kind, guard.inputs) for guard in loaded.guards] == [("value", ("n",))]
    assert loaded.recipes.make(seed=1)["n"].item() == 4
    assert verdict_of(path).verdict == "bitwise"
    for made in (capture, loaded):
        with pytest.raises(
            bp.errors.GuardError, match=r"== 4` does not hold at .*test_sample\.py:\d+: .*n\.item\(\).*give 5"
        ):
            bp.replay(made, torch.randn(2, 3), torch.tensor(5), state=model.state_dict())


# ------------------------------------------------------------------ operators of libraries


def test_a_custom_operator_is_kept_only_when_allowed_by_name(tmp_path: Path) -> None:
    capture = bp.capture(lambda x: twice(x.sin()).sum(), torch.randn(4), allow=("bpsample::twice",))
    assert bp.verify(capture)[0].verdict == "bitwise"
    with pytest.raises(
        bp.errors.RefusedError, match=r"custom operator bpsample\.twice\.default.*allow=\('bpsample\.twice"
    ):
        capture.save(tmp_path / "sample")
    assert list(tmp_path.iterdir()) == []
    path = capture.save(tmp_path / "sample", allow=("bpsample::twice",))
    assert content(path)["requires"] == ["torch.ops.bpsample.twice.default"]
    loaded = bp.load(path)
    assert loaded.requires == ("torch.ops.bpsample.twice.default",)
    with pytest.raises(
        bp.errors.RefusedError, match=r"forward/model\.py: step 'twice' calls bpsample\.twice\.default.*allow"
    ):
        loaded.pairs[0].forward  # noqa: B018  # reading it is what is refused


@pytest.mark.parametrize("name", ["bpsample::twice", "bpsample.twice", "bpsample.twice.default"])
def test_an_operator_is_allowed_by_any_of_its_names(name: str, tmp_path: Path) -> None:
    capture = bp.capture(lambda x: twice(x.sin()).sum(), torch.randn(4), allow=(name,))
    assert capture.requires == ("torch.ops.bpsample.twice.default",)
    path = capture.save(tmp_path / "sample", allow=(name,))
    assert bp.load(path, allow=(name,)) == capture
    assert verdict_of(path, allow=(name,)).verdict == "bitwise"


def test_a_custom_operator_that_is_not_among_the_requirements_is_refused_all_the_same(tmp_path: Path) -> None:
    capture = bp.capture(lambda x: twice(x.sin()).sum(), torch.randn(4), allow=("bpsample::twice",))
    path = capture.save(tmp_path / "sample", allow=("bpsample::twice",))
    altered(path, tmp_path / "forged", lambda said: said.update(requires=[]))
    with pytest.raises(bp.errors.RefusedError, match="not among the sample's requirements"):
        bp.load(tmp_path / "forged", allow=("bpsample::twice",)).pairs[0].forward  # noqa: B018  # as above


# ------------------------------------------------------------------ without the program


def test_a_released_capture_has_autograd_of_its_forward_for_gradients_and_nothing_for_outputs() -> None:
    torch.manual_seed(0)
    capture = bp.capture(Net(), torch.randn(2, 2, 5, 5))
    capture.release()
    (verdict,) = capture.verify()
    assert verdict.verdict == "unproven"
    assert "the program is gone" in verdict.detail
    found = {(port.role, port.verdict, port.witness) for port in verdict.ports}
    assert ("gradient", "bitwise", "autograd of the forward") in found
    assert ("output", "unproven", "") in found
    assert not {port for port in found if port[0] != "gradient" and port[1] != "unproven"}


def test_a_capture_with_an_opaque_edge_whose_model_is_gone_is_unproven() -> None:
    model = Edged()
    capture = bp.capture(model, torch.randn(3))
    assert capture.verify()[0].verdict == "bitwise"
    capture.release()
    (verdict,) = capture.verify()
    assert verdict.verdict == "unproven"
    assert "no reference" in verdict.detail


def test_a_sample_with_an_opaque_edge_is_proved_by_its_witness(tmp_path: Path) -> None:
    model = Edged()
    path = bp.capture(model, torch.randn(3)).save(tmp_path / "sample")
    del model
    gc.collect()
    assert bp.load(path).opaque
    assert verdict_of(path).verdict == "bitwise"


@pytest.mark.parametrize("data", ["seed", "exact"])
def test_a_loaded_sample_saved_again_is_an_equal_sample(data: str, made: Made, tmp_path: Path) -> None:
    first = made.capture.save(tmp_path / "first", data)
    second = bp.load(first).save(tmp_path / "second")
    assert bp.load(second) == bp.load(first)
    left, right = content(first), content(second)
    assert (left.pop("verdict")["verdict"], right.pop("verdict")["verdict"]) == ("bitwise", "bitwise")
    assert left == right
    files, copies = snapshot(first), snapshot(second)
    files.pop("capture.json"), copies.pop("capture.json")
    assert files == copies
    assert verdict_of(second).verdict == "bitwise"


def test_a_loaded_exact_sample_is_saved_again_as_exact(tmp_path: Path) -> None:
    first = Made(function, tmp_path, data="exact").path
    second = bp.load(first).save(tmp_path / "second", "exact")
    assert content(second)["recipes"] == content(first)["recipes"]


def test_a_loaded_sample_saved_again_keeps_its_verdict(tmp_path: Path) -> None:
    model = Edged()
    first = bp.capture(model, torch.randn(3)).save(tmp_path / "first")
    second = bp.load(first).save(tmp_path / "second")
    assert content(second)["verdict"] == content(first)["verdict"]


# ------------------------------------------------------------------ a sample that was saved once

GOLDEN = Path(__file__).parents[1] / "golden" / f"format_{metadata.FORMAT}"


def test_the_golden_sample_is_read_and_proved() -> None:
    """Where this is refused, the format or the ending of `model.py` has changed: run `python tests/golden/make.py`."""
    loaded = bp.load(GOLDEN)
    forward, backward = loaded.pairs[0].forward, loaded.pairs[0].backward
    assert loaded.name == "golden"
    assert {port.role for port in forward.inputs} == {"parameter", "buffer", "input", "constant"}
    assert {port.role for port in forward.outputs} == {"output", "mutation", "saved"}
    assert {port.name for port in backward.outputs} == {"embed.weight", "fc.weight", "fc.bias"}
    assert loaded.verdict["verdict"] == "bitwise"
    (verdict,) = bp.verify(loaded)
    assert verdict.verdict in ("bitwise", "close"), verdict.detail
    assert {port.role for port in verdict.ports} == {"output", "mutation", "gradient"}
    state = {name: value for name, value in loaded.recipes.make().items() if name not in ("ids", "x")}
    outputs = bp.replay(loaded, torch.tensor([0] * 5), torch.ones(4, 5), state=state).outputs
    assert outputs.keys() == {"logits", "loss"}


def test_a_verdict_by_another_version_of_the_judge_says_so(tmp_path: Path) -> None:
    """Such a verdict is no error: another version of the rule may give another word, and `verify` judges anew."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    file = tmp_path / "golden" / "capture.json"
    content = json.loads(file.read_text())
    assert content["verdict"]["judge"] == VERSION
    content["verdict"]["judge"] = VERSION + 1
    file.write_text(json.dumps(content))
    assert verdict_text(bp.load(GOLDEN).verdict) == "bitwise, derivative"
    other = f"bitwise, derivative, by version {VERSION + 1} of the judge, and this is version {VERSION}"
    assert verdict_text(bp.load(tmp_path / "golden").verdict) == other
