"""The names of nodes and tensors.

A node is named after its operator and how many of it ran before (`mul`, `mul_1`), so the same program has the same
names each time. A tensor has the name of its variable, a parameter its path in a module that the block's function can
see, and any other tensor the name of the node that made it.

Words of this file: a kind is autograd's name for a node (`MulBackward0`). An OperatorRun is a forward operator that
ran; its `packet` is the operator's plain name (`mul`), and its `rank` has for each region how many of that name ran
before it. A NodeRecord says how the forward made a node: the operators that ran just `before` and `after` it was made,
and, of a custom function, `within` its forward.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from torch import Tensor, nn

from backprint.common.names import free_name
from backprint.tools.regions.records import NodeRecord, OperatorRun
from backprint.trace import frames
from backprint.trace.reach import objects_held_by

# ---- Nodes

MOST = 2000
"""With so many of the user's values seen, UserNames opens no more containers."""

OPAQUE = {
    "CompiledFunction": "compiled by torch.compile: what ran in it is not seen",
    "DifferentiableGraph": "a TorchScript graph: what ran in it is not seen",
}


def node_kind(node: Any) -> str:
    """Autograd's name for a node, without its namespace: `CopySlices`, of torch::autograd::CopySlices."""
    return str(node.name()).rsplit("::", 1)[-1]


def is_leaf(kind: str) -> bool:
    """Whether a node accumulates into a tensor."""
    return kind == "AccumulateGrad"


@functools.cache
def _kind_stem(kind: str) -> str:
    """`mul`, of MulBackward0."""
    return kind.partition("Backward")[0].lower()


def operator_of(kind: str, record: NodeRecord) -> OperatorRun | None:
    """Return the operator that a node stands for, by its name: `mul` for MulBackward0. It ran after the node was made,
    or just before. None if no operator of this name did."""
    wanted = _kind_stem(kind)
    for ran in (*record.after, record.before):
        if ran is not None and ran.packet.replace("_", "").lower() == wanted:
            return ran
    if kind == "CopySlices":  # made for a tensor when an operator has changed a view of it
        return record.before
    return None


def operator_names(kind: str, record: NodeRecord) -> tuple[str, ...]:
    """Return the names of the forward operators that a node stands for; empty if it stands for none.

    Of a custom function's node, these are the operators that ran in the forward. A node that a backward made, under
    `create_graph`, has those of the node whose backward it was.
    """
    if record.of is not None:
        kind_of_forward_node, record_of_forward_node = record.of
        return operator_names(kind_of_forward_node, record_of_forward_node)
    if record.within:
        return tuple(ran.name for ran in record.within)
    ran = operator_of(kind, record)
    # An operator of another name than the node counts if it ran next and this is the only node that was made for it.
    # AccumulateGrad stands for no operator, and neither does the AsStridedBackward0 that autograd makes itself for a
    # view that was changed in place.
    if (
        ran is None
        and record.after
        and len(record.after[0].nodes) == 1
        and kind not in ("AccumulateGrad", "AsStridedBackward0")
    ):
        ran = record.after[0]
    return (ran.name,) if ran is not None else ()


def why_opaque(kind: str) -> str:
    """Return why a node's operators are unknown; '' where they are known."""
    return next((why for name, why in OPAQUE.items() if name in kind), "")


def title_of(kind: str, record: NodeRecord | None, core: int) -> str:
    """Return the title of a node in a region: its operator, numbered in the region's forward (`mul`, `mul_1`), or, if
    its operator is not known, its kind without `Backward`. `core` is the id of the region's RegionCore, the key of
    `rank`. A CopySlices is named so, because the operator is the one that changed a view and has a node of its own."""
    ran = operator_of(kind, record) if record is not None else None
    if ran is not None and kind != "CopySlices" and core in ran.rank:
        return f"{ran.packet}_{ran.rank[core]}" if ran.rank[core] else ran.packet
    return kind.partition("Backward")[0] or kind


def unique_title(name: str, used_names: dict[str, int]) -> str:
    """Return `name`, or `name_1`, `name_2` and so on where it is taken, and note both in `used_names`.

    The value of a name there is how often it was wanted after the first time, so that the search for a free number
    begins behind those that are known to be taken.
    """
    title = free_name(name, used_names, first=used_names.get(name, 0) + 1)
    used_names[name] = used_names.get(name, -1) + 1
    used_names.setdefault(title, 0)
    return title


# ---- The user's names


class UserNames:
    """The user's names of tensors and modules, which are held weakly.

    `tensors` and `modules` are by the names of variables. `parameters` has the path of each parameter by its id, and
    `places` that of each module by the id of the weak reference to it, which is what a NodeRecord holds.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, weakref.ref[Tensor]] = {}
        self.modules: dict[str, weakref.ref[nn.Module]] = {}
        self.parameters: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self.places: dict[int, tuple[weakref.ref[nn.Module], str]] = {}

    def keep_modules(self, variables: Mapping[str, Any]) -> dict[str, Tensor]:
        """Keep the names of the modules among variables, and return the tensors that require grad, by name. The names
        of the tensors are not kept: the caller calls `keep` for those that no node of the region made."""
        tensors: dict[str, Tensor] = {}
        for name, value in _tensors_and_modules(variables):
            if issubclass(type(value), nn.Module):
                self.module(name, value)
            elif value.requires_grad and name not in tensors:
                tensors[name] = value
        return tensors

    def module(self, name: str, module: nn.Module) -> None:
        """Keep a module that the block can see, by the first name that it has."""
        if all(reference() is not module for reference in self.modules.values()):
            self.modules[name] = weakref.ref(module)

    def keep(self, tensors: Mapping[str, Tensor]) -> None:
        """Keep the names of tensors from outside of the region; of several tensors with one name, the first has it."""
        for name, tensor in tensors.items():
            self.tensors.setdefault(name, weakref.ref(tensor))

    def parameter(self, tensor: Tensor) -> str:
        """Return a parameter's path in its module, or ''."""
        held = self.parameters.get(id(tensor))
        return held[1] if held is not None and held[0]() is tensor else ""

    def keep_paths(self) -> None:
        """Keep the paths of all parameters and modules now: the modules may be gone when a pass comes."""
        for head, module in self.roots():
            for path, parameter in module.named_parameters():
                self.parameters[id(parameter)] = (weakref.ref(parameter), head + path)
            for path, part in module.named_modules():
                # Python makes one weak reference to an object, so this is the one that a NodeRecord holds. Its id still
                # finds the path when the module is gone.
                held = weakref.ref(part)
                self.places[id(held)] = (held, (head + path).rstrip("."))

    def roots(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield each module that is in no other, with what the paths in it begin with: '' if it is the only one or
        `self`, else the name of its variable and a dot."""
        modules = [(name, module) for name, reference in self.modules.items() if (module := reference()) is not None]
        inner = {id(part) for _, module in modules for part in module.modules() if part is not module}
        outermost = [(name, module) for name, module in modules if id(module) not in inner]
        # The first comes last, because `keep_paths` keeps the last path of a parameter that two modules share.
        for name, module in reversed(outermost):
            yield "" if len(outermost) == 1 or name == "self" else f"{name}.", module

    def module_of_node(self, record: NodeRecord) -> str:
        """Return the path of the innermost module whose forward made a node, among the modules that the block can see;
        '' if it sees none of them."""
        return next((self.places[id(caller)][1] for caller in record.modules if id(caller) in self.places), "")

    def living_tensor_names(self) -> dict[tuple[int, int], str]:
        """Return the names of the kept tensors that still live. The key is the id of the grad_fn and the output number;
        of a leaf, which has no grad_fn, it is the id of the tensor and -1, which is no output number."""
        names: dict[tuple[int, int], str] = {}
        for name, held in self.tensors.items():
            tensor = held()
            if tensor is None:
                continue
            key = (id(tensor), -1) if tensor.grad_fn is None else (id(tensor.grad_fn), tensor.output_nr)
            names.setdefault(key, name)
        return names


def _tensors_and_modules(variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and modules in variables, by name, and those in containers up to two deep: `layers.0`. Of a
    `self` that is no module, the modules among its attributes are yielded.

    Variables that begin with `_` are left out as private, but for `_` itself. With MOST values in the queue, no more
    containers are opened.
    """
    queue = [(name, value, 0) for name, value in variables.items() if name == "_" or not name.startswith("_")]
    for name, value, depth in queue:  # the loop goes on to what it appends
        kind = type(value)  # not isinstance, which reads `__class__` of the value: a proxy may raise
        if issubclass(kind, (Tensor, nn.Module)):
            yield name, value
        elif kind in (list, tuple, dict) and depth < 2 and len(queue) < MOST:
            queue += [(f"{name}.{key}", item, depth + 1) for key, item in objects_held_by(value)]
        elif name == "self":
            with contextlib.suppress(Exception):  # an object of the program's may raise
                held = list(objects_held_by(value))
                yield from ((key, item) for key, item in held if issubclass(type(item), nn.Module))


def visible_variables(frame: FrameType) -> dict[str, Any]:
    """Return the variables that a frame's code can see: its own, and the globals that it names."""
    names = frame.f_code.co_names
    return {name: frame.f_globals[name] for name in names if name in frame.f_globals} | frames.variables(frame)
