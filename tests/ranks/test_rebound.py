"""Globals in which a program keeps its groups are each rank's own; others are the process's."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import backprint as bp

if not dist.is_available():
    pytest.skip("this torch is built without torch.distributed", allow_module_level=True)

from backprint.ranks.rebound import AssignedGlobals, assigned_in, with_globals

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.distributed's own deprecations

PLACE: Any = None
"""What a rank sets up: its group, and its place in it."""

COUNT = 0


def set_up() -> None:
    global PLACE
    PLACE = dist.new_group(range(dist.get_world_size())), dist.get_rank()


class Gathered(torch.autograd.Function):
    """Gathers columns, and hands each rank the gradient of its own."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        group, _ = PLACE
        parts = [torch.empty_like(part) for _ in range(group.size())]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        group, place = PLACE
        return grad.chunk(group.size(), 1)[place].contiguous()


class Columns(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return (Gathered.apply(y) if PLACE is not None else y).square().mean()


def shard(model: Columns, x: Tensor) -> None:
    set_up()
    group, place = PLACE
    for parameter in (model.weight, model.bias):
        parameter.data = parameter.data.chunk(group.size())[place].clone()


def test_each_rank_has_the_groups_that_it_keeps_in_globals(tmp_path: Path) -> None:
    world = bp.capture(Columns(4, 6), torch.randn(3, 4), world=3, shard=shard)
    assert PLACE is None
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 3
    assert [capture.verify()[0].verdict for capture in world.ranks] == ["bitwise"] * 3
    assert world.against_whole().verdict == "equal to the whole"
    assert PLACE is None
    world.save(tmp_path / "world", data="exact")
    assert [verdict.verdict for verdict in bp.load_world(tmp_path / "world", trust=True).verify()] == ["bitwise"] * 3


def test_a_fake_rank_leaves_globals_as_they_were() -> None:
    capture = bp.capture(Columns(4, 6), torch.randn(3, 4), world=3, shard=shard, fake=True, ranks=(2,)).ranks[0]
    assert "all_gather_into_tensor" in str(capture.pairs[0].forward)
    assert PLACE is None


def module_of(text: str) -> ModuleType:
    module = ModuleType("of_a_program")
    exec(text, module.__dict__)
    return module


def test_globals_count_that_functions_assign_where_torch_distributed_is_used() -> None:
    text = """
import functools

def plain():
    global group
    group = 1

@functools.lru_cache
def cached():
    global never  # its code is not the module's own function

def wrapped(function):
    return functools.wraps(function)(lambda: function())

@wrapped
def decorated():
    def inner():
        global of_inner
        of_inner = 1

class Manager:
    @staticmethod
    def make():
        global of_static
        of_static = 1
    @property
    def place(self):
        global of_property
        of_property = 1

constant = 3
"""
    names = ["group", "of_inner", "of_static", "of_property"]
    assert assigned_in(module_of("import torch.distributed as dist" + text)) == names
    assert assigned_in(module_of("from torch.distributed import ProcessGroup" + text)) == names
    assert assigned_in(module_of("import torch\ndef use():\n    torch.distributed.barrier()\n" + text)) == names
    assert assigned_in(module_of("import torch" + text)) == []
    assert assigned_in(torch.distributed) == assigned_in(functools) == assigned_in(None) == assigned_in(object()) == []


def test_globals_that_were_not_there_are_not_there_again() -> None:
    module = module_of("import torch.distributed as dist\ndef set_up(x):\n    global group\n    group = x\n")
    sys.modules["of_a_program"] = module
    try:
        assigned = AssignedGlobals()
        before = assigned.values()
        module.set_up(3)
        after = assigned.values()
        with with_globals(before):
            assert not hasattr(module, "group")
            with with_globals(after):
                assert module.group == 3
        assert module.group == 3
    finally:
        del sys.modules["of_a_program"]
