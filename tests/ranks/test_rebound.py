"""What a program assigns and changes where it sets up its groups is each rank's own; the rest is the process's."""

from __future__ import annotations

import functools
import re
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

from backprint.ranks.rebound import AssignedGlobals, ClassAttributes, Global, Items, places_in, with_globals

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

    def assigned_in(beginning: str) -> list[str]:
        return [place.name for place in places_in(module_of(beginning + text)) if isinstance(place, Global)]

    assert assigned_in("import torch.distributed as dist") == names
    assert assigned_in("from torch.distributed import ProcessGroup") == names
    assert assigned_in("import torch\ndef use():\n    torch.distributed.barrier()\n") == names
    assert assigned_in("import torch") == []
    assert places_in(torch.distributed) == places_in(functools) == places_in(None) == places_in(object()) == []


def test_what_globals_hold_counts_in_a_programs_own_module() -> None:
    text = """
import torch.distributed as dist
from collections import defaultdict
STATE, NAMES, MANY = {"inside": {"deeper": []}}, {1}, list(range(1000))
BY_NAME = defaultdict(list)

class Parallel:
    group = None
    def of_pair(self):
        return self.group

class Manager:
    def __init__(self):
        self.groups = {}

MANAGER, SIZE, NAME = Manager(), 3, "x"
"""
    module: Any = module_of(text)
    places = places_in(module)
    held = [place.container for place in places if isinstance(place, Items)]
    known = (module.STATE, module.STATE["inside"], module.STATE["inside"]["deeper"], module.NAMES, module.BY_NAME)
    for container in (*known, vars(module.MANAGER), module.MANAGER.groups):
        assert sum(other is container for other in held) == 1, container
    assert len(held) == 7
    classes = [place for place in places if isinstance(place, ClassAttributes)]
    assert [(place.kind, place.read()) for place in classes] == [
        (module.Parallel, [("group", None)]),
        (module.Manager, []),
    ]
    before = [(place, place.read()) for place in places]
    module.STATE["inside"]["deeper"].append(module.NAMES)
    module.STATE["tp"] = 1
    module.NAMES |= {2, 3}
    module.Parallel.group, module.Parallel.new = 1, 2
    module.MANAGER.groups["dp"] = module.MANAGER.rank = 4
    with with_globals(before):
        assert module.STATE == {"inside": {"deeper": []}}
        assert not module.NAMES - {1}
        assert module.Parallel.group is None
        assert not hasattr(module.Parallel, "new")
        assert vars(module.MANAGER) == {"groups": {}}
    assert dict(module.STATE) == {"inside": {"deeper": [{1, 2, 3}]}, "tp": 1}
    assert (module.Parallel.group, module.Parallel.new) == (1, 2)
    assert vars(module.MANAGER) == {"groups": {"dp": 4}, "rank": 4}


STATE: dict[str, Any] = {}


class Held(nn.Linear):
    """The rank of a process, and its group, are in a dictionary."""

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        if STATE:
            y = y * (STATE["place"] + 1)
            dist.all_reduce(y.detach(), group=STATE["group"])
        return y.square().mean()


def keep_in_a_dictionary(model: Held, x: Tensor) -> None:
    STATE["place"] = dist.get_rank()
    for members in ((0, 1), (2, 3)):
        group = dist.new_group(list(members), group_desc="pair")
        if STATE["place"] in members:
            STATE["group"] = group


def test_each_rank_has_what_it_keeps_in_a_dictionary() -> None:
    world = bp.capture(Held(3, 3), torch.randn(2, 3), world=4, shard=keep_in_a_dictionary)
    assert STATE == {}
    factors = [re.search(r"mul.Tensor\(addmm, (\d)\)", str(capture.pairs[0].forward)) for capture in world.ranks]
    assert [factor and factor[1] for factor in factors] == ["1", "2", "3", "4"]
    assert [capture.rank.groups for capture in world.ranks if capture.rank] == [
        (("pair", (0, 1)),),
        (("pair", (0, 1)),),
        (("pair", (2, 3)),),
        (("pair", (2, 3)),),
    ]
    assert [verdict.verdict for verdict in world.verify()] == ["bitwise"] * 4
    assert [capture.verify()[0].verdict for capture in world.ranks] == ["bitwise"] * 4
    assert not world.against_whole().unknown
    assert STATE == {}


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
