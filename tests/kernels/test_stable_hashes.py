"""Equal programs give equal hashes: in another process, captured again, with parameters of other names."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_models import MODELS
from test_extract_kernels import HAS_TRITON
from torch import Tensor, nn

import backprint as bp
from face import extract_kernels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),  # torch's own, of Inductor's import
]

FIVE = "mlp", "convolutions", "transformer_block", "embedding_loss", "guarded"

TARGETS = ("cpu:avx2", "cuda:90") if HAS_TRITON else ("cpu:avx2",)

Hashes = list[list[str]]
"""Of each graph of a model, those of its kernels."""

PROGRAM = """
import json, sys
from test_stable_hashes import TARGETS, hashes_of, made
found = {f"{name} {target}": hashes_of(*made(name), target) for name in sys.argv[1:] for target in TARGETS}
print(json.dumps(found))
"""


def made(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return MODELS[name]()


def hashes_of(model: nn.Module, inputs: tuple[Tensor, ...], target: str) -> Hashes:
    found = extract_kernels(bp.capture(model, *inputs), target)
    assert not found.refused
    return [[kernel.hash for kernel in graph.kernels] for graph in found.graphs]


@functools.cache
def known(name: str, target: str) -> Hashes:
    found = hashes_of(*made(name), target)
    assert len(found) == 2
    assert all(found)
    return found


class Renamed(nn.Module):
    """A model whose parameters all have other names."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.zz_inner = model

    def forward(self, *values: Tensor) -> Tensor:
        return self.zz_inner(*values)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", FIVE[:3])
def test_names_of_parameters_do_not_count(name: str, target: str) -> None:
    model, inputs = made(name)
    assert hashes_of(Renamed(model), inputs, target) == known(name, target)


def test_other_sizes_count() -> None:
    """What is compared above can differ."""
    model, inputs = made("mlp")
    assert hashes_of(model, (inputs[0][:2],), "cpu:avx2") != known("mlp", "cpu:avx2")


@pytest.mark.slow
@pytest.mark.parametrize("names", [FIVE[:2], FIVE[2:]], ids=lambda names: "-".join(names))
def test_another_process_has_the_same_hashes(names: tuple[str, ...]) -> None:
    """Its seed of Python's hashes is another one, too: that of this process is random."""
    path = os.pathsep.join([str(Path(bp.__file__).parents[1]), *map(str, Path(__file__).parents[:2])])
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *names]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found == {f"{name} {target}": known(name, target) for name in names for target in TARGETS}


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="Inductor's Triton kernels need triton: pip install triton")
@pytest.mark.parametrize("name", FIVE)
def test_kernels_are_the_same_for_an_a100_and_an_h100(name: str) -> None:
    assert hashes_of(*made(name), "cuda:80") == known(name, "cuda:90")
