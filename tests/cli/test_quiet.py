"""A command does not begin with what torch warns of itself, where NumPy is not installed or TorchScript is old."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner

from face import main

SOURCES = Path(__file__).parents[2] / "src"

JIT = "`torch.jit.script_method` is deprecated. Please switch to `torch.compile` or `torch.export`."


def without_numpy(folder: Path) -> dict[str, str]:
    """The environment of a Python, started with -S, that has all installed packages but NumPy."""
    for package in Path(torch.__file__).parents[1].iterdir():
        if not package.name.startswith(("numpy", "__editable__")) and package.suffix != ".pth":
            (folder / package.name).symlink_to(package)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(SOURCES), str(folder)))}


@pytest.mark.slow
def test_a_command_does_not_begin_with_a_warning_of_numpy(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    environment = without_numpy(tmp_path / "packages")
    arguments = ["capture", "backprint.examples.convnet:factory", "-o", "sample"]
    command = [sys.executable, "-S", "-m", "backprint", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "verdict: bitwise, derivative" in done.stdout
    in_python = "import torch, backprint as bp; bp.capture(torch.sin, torch.ones(2, requires_grad=True))"
    command = [sys.executable, "-S", "-c", in_python]
    plain = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "Failed to initialize NumPy" in plain.stderr, "the filter is that of the command line alone"


def test_only_torchs_own_warnings_are_kept_back() -> None:
    @click.command("warns")
    def warns() -> None:
        warnings.warn_explicit(JIT, DeprecationWarning, "mkldnn.py", 1, module="torch.utils.mkldnn")
        warnings.warn("Failed to initialize NumPy: No module named 'numpy' (Triggered internally)", stacklevel=1)
        warnings.warn_explicit(JIT, DeprecationWarning, "program.py", 1, module="program")
        warnings.warn("Failed to initialize NumPy: _ARRAY_API not found", stacklevel=1)

    before = list(warnings.filters)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as seen:
        patch.setattr(type(main), "get_command", lambda self, ctx, name: warns)
        warnings.simplefilter("always")
        assert CliRunner().invoke(main, ["warns"]).exit_code == 0
    assert [warning.filename for warning in seen] == ["program.py", __file__]
    assert list(warnings.filters) == before
