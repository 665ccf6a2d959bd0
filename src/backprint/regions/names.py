"""Names of nodes, after the operators they stand for; names of tensors, after the user's variables around the region.

A node is named after its operator and how many of it ran before (`mul`, `mul_1`), so the same program has the same
names each time. A tensor has the name of its variable, a parameter its path in a module that the block's function can
see, and any other tensor the name of the node that made it.
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

from backprint._torch.autograd import metadata_of_inputs
from backprint.regions.nodes import NodeRecord, OperatorRun
from backprint.regions.watch import NodeTag

MOST = 2000
"""The most variables, and items of a container, that are looked at."""

OPAQUE = {
    "CompiledFunction": "compiled by torch.compile: what ran in it is not seen",
    "DifferentiableGraph": "a TorchScript graph: what ran in it is not seen",
}


def tag_of(node: Any) -> NodeTag | None:
    """The tag of a node that was made in a block."""
    found = node.metadata.get("traceback_")
    return found if type(found) is NodeTag else None


def node_kind(node: Any) -> str:
    """Autograd's name for a node, without its namespace."""
    return without_namespace(node.name())


@functools.cache
def without_namespace(name: str) -> str:
    """`CopySlices`, of torch::autograd::CopySlices."""
    return name.rsplit("::", 1)[-1]


def is_leaf(kind: str) -> bool:
    """Whether a node accumulates into a tensor."""
    return kind == "AccumulateGrad"


@functools.cache
def kind_stem(kind: str) -> str:
    """`mul`, of MulBackward0."""
    return kind.partition("Backward")[0].lower()


def operator_of(kind: str, made: NodeRecord) -> OperatorRun | None:
    """The operator that a node stands for: one that ran after the node was made, or the one just before."""
    wanted = kind_stem(kind)
    for ran in (*made.after, made.before):
        if ran is not None and ran.packet.replace("_", "").lower() == wanted:
            return ran
    if kind == "CopySlices":
        return made.before
    return None


def operator_names(kind: str, made: NodeRecord) -> tuple[str, ...]:
    """The forward operators of a node; for a node that a backward made, those of the node whose backward it was."""
    if made.of is not None:
        return operator_names(*made.of)
    if made.within:
        return tuple(ran.name for ran in made.within)
    ran = operator_of(kind, made)
    if (
        ran is None
        and made.after
        and len(made.after[0].nodes) == 1
        and kind not in ("AccumulateGrad", "AsStridedBackward0")
    ):
        ran = made.after[0]
    return (ran.name,) if ran is not None else ()


def why_opaque(kind: str) -> str:
    """Why a node's operators are unknown; '' where they are known."""
    return next((why for name, why in OPAQUE.items() if name in kind), "")


def base_title(kind: str, made: NodeRecord | None, core: int) -> tuple[str, int | None]:
    """The base of an inside node's title, and its rank among nodes of that base, where it is known."""
    ran = operator_of(kind, made) if made is not None else None
    if ran is not None and kind != "CopySlices" and core in ran.rank:
        return ran.packet, ran.rank[core]
    return kind.partition("Backward")[0] or kind, None


def unique_title(name: str, taken: dict[str, int]) -> str:
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


class UserNames:
    """The user's names of tensors and modules, which are held weakly."""

    def __init__(self) -> None:
        self.tensors: dict[str, weakref.ref[Tensor]] = {}
        self.modules: dict[str, weakref.ref[nn.Module]] = {}
        self.parameters: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self.places: dict[int, tuple[weakref.ref[nn.Module], str]] = {}

    def look(self, variables: Mapping[str, Any]) -> dict[str, Tensor]:
        """Take names from variables; returns the tensors among them that require grad."""
        found: dict[str, Tensor] = {}
        for name, value in leaves_of_variables(variables):
            if issubclass(type(value), nn.Module):
                self.module(name, value)
            elif value.requires_grad and name not in found:
                found[name] = value
        return found

    def module(self, name: str, module: nn.Module) -> None:
        """Keep a module that the block can see."""
        if all(each() is not module for each in self.modules.values()):
            self.modules[name] = weakref.ref(module)

    def keep(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep the names of tensors from outside; the first tensor of a name keeps it."""
        for name, tensor in tensors.items():
            self.tensors.setdefault(name, weakref.ref(tensor))

    def parameter(self, tensor: Tensor) -> str:
        """A parameter's path in its module, or ''."""
        held = self.parameters.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else ""

    def settle(self) -> None:
        """Keep the paths of all parameters and modules now: the modules may be gone when a pass comes."""
        for head, module in self.roots():
            for path, parameter in module.named_parameters():
                self.parameters[id(parameter)] = (weakref.ref(parameter), head + path)
            for path, part in module.named_modules():
                held = weakref.ref(part)  # Python has one such reference to an object, also when the object is gone
                self.places[id(held)] = (held, (head + path).rstrip("."))

    def roots(self) -> Iterator[tuple[str, nn.Module]]:
        """The outermost modules, and what the paths in them begin with: their names where there are several."""
        modules = [(name, module) for name, each in self.modules.items() if (module := each()) is not None]
        inner = {id(part) for _, module in modules for part in module.modules() if part is not module}
        modules = [(name, module) for name, module in modules if id(module) not in inner]
        for name, module in reversed(modules):
            yield "" if len(modules) == 1 or name == "self" else f"{name}.", module

    def place_of_node(self, made: NodeRecord) -> str:
        """The path of the innermost known module whose forward made a node, or ''."""
        return next((self.places[id(each)][1] for each in made.modules if id(each) in self.places), "")

    def here(self) -> dict[tuple[int, int], str]:
        """The names of living tensors: by grad_fn and output number, or by the tensor itself."""
        found: dict[tuple[int, int], str] = {}
        for name, held in self.tensors.items():
            tensor = held()
            if tensor is None:
                continue
            key = (id(tensor), -1) if tensor.grad_fn is None else (id(tensor.grad_fn), tensor.output_nr)
            found.setdefault(key, name)
        return found


def leaves_of_variables(variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The tensors and modules in variables and in lists, tuples and dicts of them; of `self`, its modules."""
    count = 0
    for name, value in list(variables.items()):
        if name.startswith("_") and len(name) > 1:
            continue
        for path, leaf in leaves_of_variable(name, value, 0):
            count += 1
            if count > MOST:
                return
            yield path, leaf


def leaves_of_variable(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """The tensors and modules in one variable."""
    kind = type(value)  # not isinstance, which reads `__class__` of the value: a proxy may raise
    if issubclass(kind, (Tensor, nn.Module)):
        yield name, value
    elif depth < 2 and kind in (list, tuple) and len(value) <= MOST:
        for index, item in enumerate(value):
            yield from leaves_of_variable(f"{name}.{index}", item, depth + 1)
    elif depth < 2 and kind is dict and len(value) <= MOST:
        for key, item in list(value.items()):
            if isinstance(key, (str, int)):
                yield from leaves_of_variable(f"{name}.{key}", item, depth + 1)
    elif name == "self" and "__dict__" in dir(kind):
        for key, item in list(vars(value).items()):
            if issubclass(type(item), nn.Module):
                yield key, item


def visible_variables(frame: FrameType) -> dict[str, Any]:
    """The variables that a frame's code can see: its own, and the globals that it names."""
    found = {name: frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals}
    return found | locals_of(frame)


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A copy of a frame's variables. Before Python 3.13 the frame caches this dictionary and would keep tensors alive,
    so the cache is cleared."""
    found = frame.f_locals
    copy = dict(found)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        found.clear()
    return copy


def input_metadata(node: Any) -> Sequence[Any]:
    """The shape, dtype and device of each of a node's inputs."""
    return metadata_of_inputs(node)


@functools.cache
def dtype_text(dtype: torch.dtype) -> str:
    """`float32`."""
    return str(dtype)[6:]
