"""Settings of the process are part of every run, and results are held against their ports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from subjects.forked import run_python
from torch import Tensor

import backprint as bp
from face import default_dtype, read_settings, with_settings


def program(x: Tensor) -> Tensor:
    return x * (torch.arange(4) * 0.1) + torch.zeros(4)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tensor, Tensor, bp.Capture, Path]:
    """A float32 input, what the program gives with default dtype float64, its capture there, and the sample."""
    x = torch.randn(3, 4)
    with default_dtype(torch.float64):
        wanted, cap = program(x), bp.capture(program, x)
    path = tmp_path_factory.mktemp("settings") / "s"
    cap.save(path, data="exact")
    return x, wanted, cap, path


@pytest.mark.slow
def test_replay_and_verify_take_the_default_dtype_of_the_capture(
    wide: tuple[Tensor, Tensor, bp.Capture, Path],
) -> None:
    x, wanted, cap, path = wide
    loaded = bp.load(path)
    for capture in (cap, loaded):
        found = bp.replay(capture, x)
        assert found.outputs.dtype == torch.float64
        assert torch.equal(found.outputs, wanted)
        assert capture.verify()[0].verdict == "bitwise"
    assert torch.get_default_dtype() == torch.float32


def test_a_graph_alone_takes_what_its_steps_say(wide: tuple[Tensor, Tensor, bp.Capture, Path]) -> None:
    x, wanted, cap, _ = wide
    assert torch.equal(bp.run(cap.pairs[0].forward, {"x": x})[0], wanted)
    narrow = bp.capture(program, x)
    with default_dtype(torch.float64):
        assert bp.run(narrow.pairs[0].forward, {"x": x})[0].dtype == torch.float32
        assert bp.replay(narrow, x).outputs.dtype == torch.float32


def test_model_py_sets_what_it_needs(wide: tuple[Tensor, Tensor, bp.Capture, Path]) -> None:
    file = wide[3] / "pair_0" / "forward" / "model.py"
    found = run_python([file], flags=["-I"])
    assert "output output float64[3, 4]" in found.stdout
    other = (wide[3] / "capture.json").read_text().replace('"default_dtype": "float64"', '"default_dtype": "float32"')
    (wide[3] / "capture.json").write_text(other)
    found = run_python([file], flags=["-I"])
    assert found.returncode == 1
    assert "'output' was f64[3, 4] at capture and is torch.float32 here" in found.stderr


def test_a_result_is_held_against_its_port() -> None:
    cap = bp.capture(lambda x: x * 2, torch.randn(3))
    forward = cap.pairs[0].forward
    port = forward.outputs[0]
    for spec in (
        replace(port.spec, dtype="float64"),
        replace(port.spec, shape=(4,)),
        replace(port.spec, device="cuda"),
    ):
        lying = replace(forward, outputs=(replace(port, spec=spec), *forward.outputs[1:]))
        with pytest.raises(
            bp.errors.ReplayError, match=r"output 'output' was f.*\[[34]\].* at capture and is f32\[3\] now"
        ):
            bp.run(lying, {"x": torch.ones(3)})


@pytest.fixture
def meta() -> Iterator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@pytest.mark.slow
@pytest.mark.usefixtures("meta")
def test_another_default_device_changes_nothing(tmp_path: Path) -> None:
    x = torch.randn(3, 4, device="cpu")
    cap = bp.capture(lambda x: x * torch.rand(3, 4, device="cpu"), x)
    assert [verdict.verdict for verdict in cap.verify()] == ["bitwise"]
    assert bp.replay(cap, x).outputs.device.type == "cpu"
    cap.save(tmp_path / "s")
    assert [verdict.verdict for verdict in bp.load(tmp_path / "s").verify()] == ["bitwise"]
    assert torch.get_default_device().type == "meta"


def test_a_sample_is_saved_under_another_default_device(tmp_path: Path) -> None:
    cap = bp.capture(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)), torch.randn(3, 4))
    with torch.device("meta"):
        cap.save(tmp_path / "s")
    assert [verdict.verdict for verdict in bp.verify(bp.load(tmp_path / "s"))] == ["bitwise"]


@pytest.mark.slow
def test_a_capture_keeps_the_default_device_of_its_program() -> None:
    cap = bp.capture(lambda x: x * torch.ones(3), torch.randn(3))
    torch.set_default_device("meta")
    try:
        assert [verdict.verdict for verdict in cap.verify()] == ["bitwise"]
        assert bp.replay(cap, torch.ones(3, device="cpu")).outputs.device.type == "cpu"
    finally:
        torch.set_default_device(None)


def test_settings_are_recorded_and_restored() -> None:
    before = dict(read_settings())
    with with_settings({"flush_denormal": "True", "deterministic": "warn", "efficient_sdp": "False"}):
        inside = dict(read_settings())
        assert inside["flush_denormal"] == "True"
        assert inside["deterministic"] == "warn"
        assert inside["efficient_sdp"] == "False"
    assert dict(read_settings()) == before


def test_denormals_are_flushed_as_at_capture() -> None:
    tiny = torch.full((3,), 1e-39)
    torch.set_flush_denormal(True)
    try:
        cap = bp.capture(lambda x: x * 0.5 + 0, torch.ones(3))
    finally:
        torch.set_flush_denormal(False)
    assert not bp.replay(cap, tiny).outputs.any()
    assert (tiny * 0.5).any()
