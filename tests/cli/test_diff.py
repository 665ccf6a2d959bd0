"""`backprint diff A B`: the text, the JSON and the exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import backprint as bp
from face import main


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("samples")
    x = torch.ones(2, 3, requires_grad=True)
    for name, fn in (("sin", torch.sin), ("cos", torch.cos)):
        bp.capture(fn, x, name=name).save(folder / name)
    return {name: folder / name for name in ("sin", "cos")}


def call(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["diff", *map(str, arguments)])


def test_a_pipe_that_is_cut_off_does_not_cost_the_page(places: dict[str, Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "backprint", "diff", places["sin"], places["cos"], "-o", tmp_path / "page.html"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.close()  # as `| head -0` does
    assert (tmp_path / "page.html").read_text().endswith("</html>\n")


def test_a_sample_that_cannot_be_read_is_not_one_that_differs(places: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "capture.json").write_text("{")
    result = call(places["sin"], tmp_path)
    assert result.exit_code == 3
    assert "nothing was compared: SampleError: " in result.stderr


def test_it_needs_no_torch(places: dict[str, Path]) -> None:
    code = (
        "import sys; from backprint.cli import run_command\n"
        f"try: run_command(['diff', {str(places['sin'])!r}, {str(places['cos'])!r}])\n"
        "except SystemExit as ended: assert ended.code == 1\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_other_constants_are_told_and_exit_with_0(tmp_path: Path) -> None:
    for last in (3.0, 4.0):
        capture = bp.capture(lambda x, last=last: x * torch.tensor([1.0, 2.0, last]), torch.ones(3), name="scaled")
        capture.save(tmp_path / str(last))
    result = call(tmp_path / "3.0", tmp_path / "4.0")
    assert result.exit_code == 0
    assert "values of constant constant_0: [1.0, 2.0, 3.0] -> [1.0, 2.0, 4.0]\n" in result.output
