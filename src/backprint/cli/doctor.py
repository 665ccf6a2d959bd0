"""`backprint doctor`: check whether this machine can capture, save and prove."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from backprint.cli.say import echo


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
def command(as_json: bool) -> None:
    """Check this machine: versions, and a small capture through the whole flow."""
    rows: dict[str, str] = {}
    good = True
    for name, check in CHECKS.items():
        try:
            rows[name] = check()
        except Exception as error:  # a doctor reports whatever is wrong, by name
            rows[name] = f"not good: {type(error).__name__}: {error}"
            good = False
    for text in (
        [json.dumps({"good": good, **rows})] if as_json else [f"{name:<10} {said}" for name, said in rows.items()]
    ):
        echo(text)
    if not good:
        raise SystemExit(1)


def python_version() -> str:
    return f"{platform.python_version()} on {platform.machine()}"


def torch_version() -> str:
    """Return PyTorch's version, threads and devices."""
    import torch

    cuda = (
        f"CUDA {torch.version.cuda}, {torch.cuda.device_count()} devices"
        if torch.cuda.is_available()
        else "no CUDA device"
    )
    return f"{torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, {cuda}"


def flow() -> str:
    """Capture, save, load and verify a small model."""
    import torch

    import backprint as bp

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    with tempfile.TemporaryDirectory() as folder:
        path = bp.save(bp.capture(model, torch.ones(2, 3)), Path(folder) / "sample")
        verdict = bp.verify(bp.load(path))[0]
    if verdict.verdict != "bitwise":
        raise RuntimeError(f"{verdict.verdict}: {verdict.detail}")
    return "capture, save, load and verify: bitwise"


CHECKS: dict[str, Callable[[], str]] = {"python": python_version, "torch": torch_version, "flow": flow}
