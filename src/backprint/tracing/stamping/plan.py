"""Find the lists of equal layers in a module: the same classes, tensors of the same shapes, and the same attributes,
except for whole numbers that count the layers.

Equal layers are only worth a try: whether their number is all that matters is decided by traces and by a run.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.modules import BUFFERS, PARAMETERS, own_modules
from backprint.fx.convert import tensor_spec
from backprint.graph.specs import TensorSpec
from backprint.tracing.reach import roots

LEAST = 12
"""The fewest layers that are worth two traces with four and five: with twelve, both ways take about as long."""


@dataclass(frozen=True, slots=True)
class LayerRun:
    """Equal layers that follow one another in a list of modules."""

    place: str
    holder: nn.Module
    start: int
    count: int

    def __str__(self) -> str:
        end = self.start + self.count
        whole = end == len(own_modules(self.holder)) == self.count
        return self.place if whole else f"{self.place}[{self.start}:{end}]"


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs of layers to cut, which all have one length; none, and why."""

    runs: tuple[LayerRun, ...] = ()
    why: str = ""

    @property
    def depth(self) -> int:
        """How many layers each run has."""
        return self.runs[0].count


def plan_of(target: Any) -> Plan:
    """Return the runs of equal layers that a callable reaches; of several lengths, those with the most layers."""
    found: list[LayerRun] = []
    whys: list[str] = []
    modules = [(name, value) for name, value in roots(target) if isinstance(value, nn.Module)]
    for name, module in modules:
        for run in runs_in(module, name, whys):
            found.append(run)
    if not found:
        return Plan(why=whys[0] if whys else "")
    lengths = [run.count for run in found]
    depth = max(lengths, key=lambda length: (length * lengths.count(length), length))
    runs = tuple(run for run in found if run.count == depth)
    why = shared_by(modules, runs)
    return Plan(why=why) if why else Plan(runs)


@contextlib.contextmanager
def cut_to(plan: Plan, layers: int) -> Iterator[None]:
    """Leave this many layers of each run in the caller's own lists, and put all back at the end."""
    before = [own_modules(run.holder) for run in plan.runs]
    try:
        for run, all_of in zip(plan.runs, before, strict=True):
            kept = list(all_of.values())
            del kept[run.start + layers : run.start + run.count]
            run.holder.__dict__["_modules"] = {str(place): layer for place, layer in enumerate(kept)}
        yield
    finally:
        for run, all_of in zip(plan.runs, before, strict=True):
            run.holder.__dict__["_modules"] = all_of


# ------------------------------------------------------------------ runs


def runs_in(module: nn.Module, path: str, whys: list[str]) -> Iterator[LayerRun]:
    """Yield the outermost runs below a module; `whys` gets why a long list has none."""
    inside = range(0)
    children = [child for child in own_modules(module).values() if child is not None]
    numbered = list(own_modules(module)) == [str(place) for place in range(len(children))]
    if isinstance(module, (nn.ModuleList, nn.Sequential)) and numbered and len(children) >= LEAST:
        inside, why = longest_run(children)
        if len(inside) >= LEAST:
            yield LayerRun(path, module, inside.start, len(inside))
        elif why:
            whys.append(f"{path}: {why}")
    for place, (name, child) in enumerate(own_modules(module).items()):
        if child is not None and (len(inside) < LEAST or place not in inside):
            yield from runs_in(child, f"{path}.{name}" if path else name, whys)


def longest_run(children: list[nn.Module]) -> tuple[range, str]:
    """Return the longest run of equal modules, and the first difference between two of one class."""
    best, start, why = range(1), 0, ""
    for place in range(1, len(children)):
        if said := unlike(children[place - 1], children[place], set()):
            start = place
            if not why and type(children[place - 1]) is type(children[place]):
                why = f"layers {place - 1} and {place} differ: {said}"
        if place + 1 - start > len(best):
            best = range(start, place + 1)
    return best, why


def shared_by(modules: list[tuple[str, nn.Module]], runs: tuple[LayerRun, ...]) -> str:
    """Say which tensor or module belongs to two layers, or to a layer and the rest; '' if none."""
    homes = {f"{run.place}.{place}".strip(".") for run in runs for place in range(run.start, run.start + run.count)}
    owner: dict[int, tuple[str | None, str]] = {}
    for root, module in modules:
        every = (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
            *module.named_modules(remove_duplicate=False),
        )
        for name, each in every:
            path = ".".join(part for part in (root, name) if part)
            home = next((start for start in prefixes(path) if start in homes), None)
            before, first = owner.setdefault(id(each), (home, path))
            if before != home:
                return f"{first} and {path} are one"
    return ""


def prefixes(path: str) -> Iterator[str]:
    """Yield the beginnings of a path."""
    parts = path.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


# ------------------------------------------------------------------ whether two layers are equal


Met = set[tuple[int, int]]
"""The values that are being compared, by identity: they may refer to each other."""

INTERNAL = frozenset(vars(nn.Module())) - {"training"}
"""The attributes of every module that are compared otherwise."""

HOOKS = tuple(name for name in INTERNAL if "hooks" in name and not name.endswith(("_with_kwargs", "_always_called")))
"""The attributes of a module in which hooks are."""

PLAIN = (
    bool, str, bytes, complex, type(None), type, enum.Enum, torch.dtype, torch.device, torch.layout,
    torch.memory_format, frozenset, set, range, types.ModuleType, types.BuiltinFunctionType,
)  # fmt: skip
"""Types of values that `==` compares."""


def unlike(left: nn.Module, right: nn.Module, met: Met) -> str:
    """Say in what two modules differ; '' if in nothing but an index."""
    if type(left) is not type(right):
        return f"a {type(left).__name__} and a {type(right).__name__}"
    for name in HOOKS:
        if getattr(left, name, None) or getattr(right, name, None):
            return f"a {type(left).__name__} has hooks"
    for kind in (PARAMETERS, BUFFERS):
        if said := unlike_items(tensor_kinds(getattr(left, kind)), tensor_kinds(getattr(right, kind)), met):
            return said
    ours, theirs = ({key: value for key, value in vars(each).items() if key not in INTERNAL} for each in (left, right))
    return unlike_items(ours, theirs, met) or unlike_items(own_modules(left), own_modules(right), met)


def tensor_kinds(tensors: Mapping[str, Tensor | None]) -> dict[str, tuple[TensorSpec, bool] | None]:
    """Return what is compared of tensors."""
    return {
        name: None if tensor is None else (tensor_spec(tensor), tensor.requires_grad)
        for name, tensor in tensors.items()
    }


def unlike_items(left: Mapping[Any, Any], right: Mapping[Any, Any], met: Met) -> str:
    """Say in what two mappings differ; '' if in nothing."""
    if list(left) != list(right):
        return f"{', '.join(map(str, left))} and {', '.join(map(str, right))}"[:200]
    for key, value in left.items():
        if said := unlike_values(value, right[key], met):
            return f"{key}{'.' if isinstance(value, nn.Module) else ': '}{said}"
    return ""


def unlike_values(left: Any, right: Any, met: Met) -> str:
    """Say in what two values differ; '' if in nothing."""
    if left is right or (id(left), id(right)) in met:
        return ""
    if type(left) is not type(right):
        return f"{left!r:.60} and {right!r:.60}"
    met.add((id(left), id(right)))
    same: bool | None = None
    match left:
        case nn.Module():
            return unlike(left, right, met)
        case Tensor():
            same = (tensor_spec(left), left.requires_grad) == (tensor_spec(right), right.requires_grad)
        case int() if not isinstance(left, bool | enum.Enum):
            same = right in (left, left + 1)
        case float():
            same = repr(left) == repr(right)
        case list() | tuple():
            return unlike_items(dict(enumerate(left)), dict(enumerate(right)), met)
        case dict():
            return unlike_items(left, right, met)
        case types.MethodType():
            same = left.__func__ is right.__func__ and not unlike_values(left.__self__, right.__self__, met)
        case functools.partial():
            return unlike_values((left.func, left.args, left.keywords), (right.func, right.args, right.keywords), met)
        case TensorSpec():
            same = left == right
    if same is None and isinstance(left, PLAIN):
        same = left == right
    if same is None and hasattr(left, "__dict__") and not isinstance(left, types.FunctionType):
        return unlike_items(vars(left), vars(right), met)
    if same is None:
        return f"values of type {type(left).__name__} cannot be compared"
    return "" if same else f"{left!r:.60} and {right!r:.60}"
