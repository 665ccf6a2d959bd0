"""A step with a GradScaler has a derivative and a proof, but for a scale that the script reads."""

from __future__ import annotations

from pathlib import Path

import backprint as bp
from face import verdict_text

SCRIPT = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
scales = []
for step in range(3):
    x = torch.randn(3, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(x).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
"""


def recorded(folder: Path, script: str) -> bp.Capture:
    place = folder / "train.py"
    place.write_text(script)
    (capture,) = bp.record(place)
    return capture


def test_a_step_with_a_gradscaler_is_proved(tmp_path: Path) -> None:
    capture = recorded(tmp_path, SCRIPT.replace("    scales.append(scaler.get_scale())\n", ""))
    verdict = capture.verify(derivative=True)[-1]
    assert (verdict.verdict, verdict.vacuous, verdict.proof) == ("bitwise", (), True)
    assert verdict.derivative is not None
    assert verdict.derivative.word == "derivative"


def test_a_scale_that_the_script_reads_is_said_not_to_move(tmp_path: Path) -> None:
    capture = recorded(tmp_path, SCRIPT)
    verdict = capture.verify(derivative=True)[-1]
    assert (verdict.verdict, verdict.vacuous, verdict.proof) == ("bitwise", ("mutation scaler._scale",), False)
    assert "mutation scaler._scale does not move: a guard holds all that this depends on" in verdict.detail
    assert verdict.derivative is not None
    assert verdict.derivative.word == "derivative"
    ports = len(verdict.ports)
    sample = bp.load(bp.save(capture, tmp_path / "sample"))
    text = f"bitwise, {ports - 1} of {ports} ports proved; 1 does not move (mutation scaler._scale), derivative"
    assert verdict_text(sample.verdict) == text


def test_a_step_that_the_scaler_leaves_out_is_one_of_its_own(tmp_path: Path) -> None:
    """Steps are counted as the script counts them, where scaled gradients overflow in the first three."""
    place = tmp_path / "train.py"
    place.write_text(SCRIPT.replace("256.0", "2.0**20").replace("range(3)", "range(6)"))
    kept = bp.record(place, steps=(0, 6))
    assert [capture.name for capture in kept] == [f"step_{step}" for step in range(6)]
    updated = [any(port.key.role == "mutation" and "weight" in port.name for port in outputs(step)) for step in kept]
    assert updated == sorted(updated)
    assert set(updated) == {False, True}


def outputs(capture: bp.Capture) -> list[bp.types.Port]:
    """The results of all Pairs of a step."""
    return [port for pair in capture.pairs for port in pair.forward.outputs]
