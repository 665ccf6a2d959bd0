"""Names: of nodes by the operators they stand for, of tensors by what the user calls them where the region stands.

A node is called after its operator and how many of it ran before (`mul`, `mul_1`), so the same program gives the same
names again. A tensor has the name of the variable it is in, a parameter its path in the module that the block's
function can see, and anything else that of the node that made it. Private torch APIs, tried on torch 2.13:
`Node._input_metadata`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from backprint.regions.watch import Made, Ran, Record

MOST = 2000
"""How many variables, and items of containers, are looked at."""

OPAQUE = {
    "CompiledFunction": "compiled by torch.compile: what ran in it is not seen",
    "DifferentiableGraph": "a TorchScript graph: what ran in it is not seen",
}


def record_of(node: Any) -> Record | None:
    """What we keep of a node, if it was made in a block."""
    found = node.metadata.get("traceback_")
    return found if type(found) is Record else None


def kind_of(node: Any) -> str:
    """Autograd's name for a node, without its namespace."""
    return short(node.name())


@functools.cache
def short(name: str) -> str:
    """`CopySlices`, of torch::autograd::CopySlices."""
    return name.rsplit("::", 1)[-1]


def is_leaf(kind: str) -> bool:
    """Whether a node accumulates into a tensor."""
    return kind == "AccumulateGrad"


@functools.cache
def stem(kind: str) -> str:
    """`mul`, of MulBackward0."""
    return kind.partition("Backward")[0].lower()


def op_of(kind: str, made: Made) -> Ran | None:
    """The operator that a node stands for: the one that ran for it, or, of one that came after, the one before."""
    wanted = stem(kind)
    for ran in (*made.after, made.before):
        if ran is not None and ran.packet.replace("_", "").lower() == wanted:
            return ran
    if kind == "CopySlices":
        return made.before
    return None


def ops_of(kind: str, made: Made) -> tuple[str, ...]:
    """What ran in the forward for a node; for one that a backward made, what the node of that backward stands for."""
    if made.of is not None:
        return ops_of(*made.of)
    if made.within:
        return tuple(ran.name for ran in made.within)
    ran = op_of(kind, made)
    if (
        ran is None
        and made.after
        and len(made.after[0].nodes) == 1
        and kind not in ("AccumulateGrad", "AsStridedBackward0")
    ):
        ran = made.after[0]
    return (ran.name,) if ran is not None else ()


def opaque(kind: str) -> str:
    """Why a node cannot be looked into."""
    return next((why for name, why in OPAQUE.items() if name in kind), "")


def base(kind: str, made: Made | None, core: int) -> tuple[str, int | None]:
    """What to call a node inside, and which of these it is, where that is known."""
    ran = op_of(kind, made) if made is not None else None
    if ran is not None and kind != "CopySlices" and core in ran.rank:
        return ran.packet, ran.rank[core]
    return kind.partition("Backward")[0] or kind, None


def unique(name: str, taken: dict[str, int]) -> str:
    """`name`, or `name_1` and so on where it is taken."""
    if name not in taken:
        taken[name] = 0
        return name
    while True:
        taken[name] += 1
        found = f"{name}_{taken[name]}"
        if found not in taken:
            taken[found] = 0
            return found


# ------------------------------------------------------------------ the user's names


class Names:
    """What the user calls tensors and modules, held weakly."""

    def __init__(self) -> None:
        self.tensors: dict[str, weakref.ref[Tensor]] = {}
        self.modules: dict[str, weakref.ref[nn.Module]] = {}
        self.parameters: dict[int, tuple[weakref.ref[Tensor], str]] = {}

    def look(self, variables: Mapping[str, Any]) -> dict[str, Tensor]:
        """Take names from variables; gives the tensors among them that ask for gradients."""
        found: dict[str, Tensor] = {}
        for name, value in leaves(variables):
            if issubclass(type(value), nn.Module):
                self.module(name, value)
            elif value.requires_grad and name not in found:
                found[name] = value
        return found

    def module(self, name: str, module: nn.Module) -> None:
        """A module that the block can see."""
        if all(each() is not module for each in self.modules.values()):
            self.modules[name] = weakref.ref(module)

    def keep(self, tensors: Mapping[str, Tensor]) -> None:
        """Tensors from outside, by name; the first one of a name keeps it."""
        for name, tensor in tensors.items():
            self.tensors.setdefault(name, weakref.ref(tensor))

    def parameter(self, tensor: Tensor) -> str:
        """A parameter's path in its module, or ''."""
        held = self.parameters.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else ""

    def settle(self) -> None:
        """The paths of parameters, once all modules are known: these may be gone when a pass comes."""
        self.parameters.update(self.paths())

    def paths(self) -> Iterator[tuple[int, tuple[weakref.ref[Tensor], str]]]:
        """Every parameter with its path; with the module's name before it where several modules have one so called."""
        modules = [(name, module) for name, each in self.modules.items() if (module := each()) is not None]
        inner = {id(part) for _, module in modules for part in module.modules() if part is not module}
        modules = [(name, module) for name, module in modules if id(module) not in inner]
        for name, module in reversed(modules):
            head = "" if len(modules) == 1 or name == "self" else f"{name}."
            for path, parameter in module.named_parameters():
                yield id(parameter), (weakref.ref(parameter), head + path)

    def here(self) -> dict[tuple[int, int], str]:
        """The names of tensors that are alive: by their node and its output, or by themselves."""
        found: dict[tuple[int, int], str] = {}
        for name, held in self.tensors.items():
            tensor = held()
            if tensor is None:
                continue
            key = (id(tensor), -1) if tensor.grad_fn is None else (id(tensor.grad_fn), tensor.output_nr)
            found.setdefault(key, name)
        return found


def leaves(variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Variables and what lies in lists, tuples and dicts of them; of an object called `self`, its modules."""
    count = 0
    for name, value in list(variables.items()):
        if name.startswith("_") and len(name) > 1:
            continue
        for path, leaf in inner(name, value, 0):
            count += 1
            if count > MOST:
                return
            yield path, leaf


def inner(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """One variable's."""
    kind = type(value)  # and not isinstance, which asks the value itself: a proxy may answer with an error
    if issubclass(kind, (Tensor, nn.Module)):
        yield name, value
    elif depth < 2 and kind in (list, tuple) and len(value) <= MOST:
        for index, item in enumerate(value):
            yield from inner(f"{name}.{index}", item, depth + 1)
    elif depth < 2 and kind is dict and len(value) <= MOST:
        for key, item in list(value.items()):
            if isinstance(key, (str, int)):
                yield from inner(f"{name}.{key}", item, depth + 1)
    elif name == "self" and "__dict__" in dir(kind):
        for key, item in list(vars(value).items()):
            if issubclass(type(item), nn.Module):
                yield key, item


def variables(frame: FrameType) -> dict[str, Any]:
    """What the code of a frame can see: its own variables, and the globals that it names."""
    found = {name: frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals}
    return found | locals_of(frame)


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A frame's variables. Before Python 3.13 a function's frame keeps what is asked for here, and so would keep
    tensors alive: it is made to forget."""
    found = frame.f_locals
    copy = dict(found)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        found.clear()
    return copy


def metadata(node: Any) -> Sequence[Any]:
    """What a node knows of its inputs: shape, dtype and device."""
    return tuple(node._input_metadata)


@functools.cache
def plain(dtype: torch.dtype) -> str:
    """`float32`."""
    return str(dtype)[6:]
