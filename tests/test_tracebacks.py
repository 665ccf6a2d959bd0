"""An error of the user's program is shown with the program's lines and torch's, and a defect of ours whole."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import backprint as bp
from face import OURS, is_defect, main


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(main, list(map(str, arguments)))


def own_lines(error: BaseException) -> list[str]:
    return [name for frame in traceback.extract_tb(error.__traceback__) if (name := frame.filename).startswith(OURS)]


def wrong_shape(x: Tensor) -> Tensor:
    return x @ torch.ones(7, 7)


MODEL = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


@pytest.mark.parametrize(
    "run",
    [
        lambda: bp.capture(MODEL, torch.randn(3, 5)),
        lambda: bp.capture(wrong_shape, torch.randn(3, 5)),
        lambda: bp.derivative(wrong_shape, torch.randn(3, 5)),
        lambda: bp.check(wrong_shape, torch.randn(3, 5)),
        lambda: bp.inference_graph(MODEL, (torch.randn(3, 5),)),
    ],
    ids=["module", "function", "derivative", "check", "inference_graph"],
)
def test_an_error_of_the_program_is_shown_without_our_frames(run: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        run()
    assert not is_defect(caught.value)
    assert len(own_lines(caught.value)) == 1  # the call itself
    files = [os.path.basename(frame.filename) for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files[-1] in ("linear.py", "test_tracebacks.py")


def test_a_defect_of_ours_is_shown_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[str, Any] = {}
    exec(compile("def planted(*_):\n    return {}['absent']\n", os.path.join(OURS, "planted.py"), "exec"), space)
    monkeypatch.setattr("backprint.prove.capturing.requests_of_call", space["planted"])
    with pytest.raises(KeyError) as caught:
        bp.capture(wrong_shape, torch.randn(3, 7))
    assert len(own_lines(caught.value)) > 3


def test_the_command_shows_the_lines_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def factory():\n    return {}['data']\n")
    shown = call("capture", f"{tmp_path / 'bad.py'}:factory", "-o", tmp_path / "sample")
    assert shown.exit_code == 1
    lines = shown.stderr.strip().splitlines()
    assert "the program itself raised KeyError:" in lines[0]
    assert [line for line in lines if "File " in line] == [f'  File "{tmp_path / "bad.py"}", line 2, in factory']


def test_a_file_with_relative_imports_is_imported_as_of_its_package(tmp_path: Path) -> None:
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "layers.py").write_text("from torch import nn\n\ndef net():\n    return nn.Linear(4, 2)\n")
    (package / "train.py").write_text(
        "import torch\nfrom .layers import net\n\ndef factory():\n    return net(), (torch.randn(3, 4),)\n"
    )
    shown = call("capture", f"{package / 'train.py'}:factory", "-o", tmp_path / "sample")
    assert shown.exit_code == 0, shown.stderr
