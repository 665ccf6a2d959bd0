"""One eager run, watched: what the program takes from outside, what it changes, and where tracing has to be told.

The watcher is a dispatch mode, so it sees the operators that really run. A tensor whose memory nobody made during the
run comes from outside (a closure, a global, a plain attribute); if the program writes to it, its bytes are put back.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from backprint.capture import frames
from backprint.capture.program import Named, Outcome, Program, free_name, hooks_of, step
from backprint.capture.reach import names_of_outside, roots
from backprint.errors import CaptureError
from backprint.graph.nouns import OpaqueEdge, Source
from backprint.settings import quiet_random, seed_all
from backprint.tree import alias_groups, parts

RANDOM = "the random seed"
"""What a value hangs on when it comes from a random draw."""

SEED = 0
"""The seed that a program draws from when it is captured and proved: its guards on random values hold under it."""

SILENT_WRITERS = tuple(
    f"aten::{name}_batch_norm{rest}"
    for name, rest in (("native", ""), ("cudnn", ""), ("miopen", ""), ("_native", "_legit"), ("", "_with_update"))
)
"""Kernels that change running statistics although their schema, or the tensors' version, does not say so."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A place where the program read values: an operator whose result's value or size is not known from shapes."""

    operator: str
    source: Source | None
    inputs: tuple[str, ...]
    result: Any


@dataclass(slots=True)
class Sighting:
    """What a watched run showed."""

    outside: list[Tensor] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    opaque: list[OpaqueEdge] = field(default_factory=list)
    silent: bool = False


class Watch(TorchDispatchMode):
    """Sees every operator of a run. `known` are the program's tensors by storage, with their names."""

    def __init__(self, paths: Mapping[int, str]) -> None:
        super().__init__()
        self.seen = Sighting()
        self.paths = paths
        self.taint: dict[int, frozenset[str]] = {}
        self.alive: list[StorageWeakRef] = []
        self.callers: dict[int, Any] = {}
        self.undo: dict[int, Any] = {}
        self.versions: list[tuple[Tensor, int]] = []
        self.grads: list[tuple[Tensor, Tensor | None, Tensor | None]] = []

    def know(self, named: Mapping[str, Tensor], callers: Collection[str]) -> Watch:
        """These are the program's own tensors; those in `callers` lie in the caller's own memory."""
        for name, tensor in named.items():
            self.learn(tensor, frozenset((name,)))
            if name in callers:
                self.callers |= {storage._cdata: storage for storage in storages(tensor)}
        return self

    def learn(self, tensor: Tensor, names: frozenset[str]) -> None:
        """Remember a tensor's memory, and the inputs it hangs on."""
        storage = tensor.untyped_storage()
        self.alive.append(StorageWeakRef(storage))
        self.taint[storage._cdata] = self.taint.get(storage._cdata, frozenset()) | names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        for tensor in given:
            if not _dense(tensor):
                raise CaptureError(self.sparse(func, tensor, "takes"))
            self.meet(func, tensor)
        names = frozenset().union(*(self.taint[tensor.untyped_storage()._cdata] for tensor in given))
        if torch.Tag.nondeterministic_seeded in func.tags:
            names |= {RANDOM}
        self.judge(func, given)
        result = func(*args, **kwargs)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor) and _dense(leaf):
                self.learn(leaf, names)
            elif isinstance(leaf, Tensor):
                raise CaptureError(self.sparse(func, leaf, "gives"))
        if reads_values(func):
            self.seen.readings.append(Reading(str(func), frames.here(self.paths), tuple(sorted(names)), result))
        return result

    def sparse(self, func: Any, tensor: Tensor, verb: str) -> str:
        """Why a program with sparse tensors is refused, and where it makes one."""
        where = frames.here(self.paths)
        place = f" at {where.file}:{where.line}: {where.code!r}" if where else ""
        kind = str(tensor.layout)[6:]
        return (
            f"{func} {verb} a {kind} tensor{place}: engine 'aot' would lose its gradients; "
            "engine='eager' takes sparse tensors, or keep that part outside, or dense"
        )

    def meet(self, func: Any, tensor: Tensor) -> None:
        """A tensor of unknown memory comes from outside. The caller's memory is kept before the first write to it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.taint and func is torch.ops.aten.lift_fresh.default:
            self.learn(tensor, frozenset())  # what torch.tensor([...]) made just now
        if key not in self.taint:
            self.callers[key] = storage
            self.seen.outside.append(tensor)
            self.versions.append((tensor, tensor._version))
            if tensor.is_leaf:
                self.grads.append((tensor, tensor.grad, None if tensor.grad is None else tensor.grad.clone()))
            self.learn(tensor, frozenset((f"outside {len(self.seen.outside) - 1}",)))
        writes = func._schema.is_mutable or func._schema.name in SILENT_WRITERS
        if writes and key in self.callers and key not in self.undo:
            self.undo[key] = storage.clone()

    def judge(self, func: Any, given: list[Tensor]) -> None:
        """Note silent writers, and edges that autograd of the plain forward would not have."""
        if func._schema.name in SILENT_WRITERS:
            self.seen.silent = True
        if torch.is_grad_enabled() or func._schema.name == "aten::detach" or func._schema.is_mutable:
            return
        if any(t.requires_grad for t in given) and not self.seen.opaque:
            where = frames.here(self.paths)
            self.seen.opaque.append(OpaqueEdge("no_grad", f"{func} runs with gradients off", where))

    def judge_outputs(self, outputs: Mapping[str, Tensor]) -> None:
        """Custom autograd Functions among the nodes behind the outputs are opaque edges."""
        queue = [tensor.grad_fn for tensor in outputs.values() if tensor.grad_fn is not None]
        visited = set()
        while queue:
            node = queue.pop()
            if node in visited:
                continue
            visited.add(node)
            queue += [following for following, _ in node.next_functions if following is not None]
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                self.seen.opaque.append(OpaqueEdge("function", f"{node.name()} is a custom autograd.Function"))

    def restore(self) -> None:
        """Put back the bytes of the caller's memory that the run wrote to, and the gradients of outside tensors."""
        for key, before in self.undo.items():
            self.callers[key].copy_(before)
        for tensor, version in self.versions:
            torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))
        for tensor, gradient, content in self.grads:
            tensor.grad = gradient
            if gradient is not None and content is not None and _dense(gradient):
                gradient.data.copy_(content)
            elif gradient is not None and content is not None:
                gradient.data = content


class HookWatch(TorchFunctionMode):
    """Sees a program put hooks on its tensors: what they do to gradients is not in the plain forward."""

    def __init__(self, seen: Sighting, paths: Mapping[int, str], rewrite: bool = True) -> None:
        super().__init__()
        self.seen, self.paths, self.rewrite = seen, paths, rewrite

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.register_hook:
            self.seen.opaque.append(OpaqueEdge("hook", "a tensor hook", frames.here(self.paths)))
        if self.rewrite:
            args, kwargs = rewritten(func, args, kwargs)
        return func(*args, **(kwargs or {}))


def rewritten(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a torch function as tracing can take them: the lengths of `ctc_loss` as tensors, not lists."""
    kwargs = dict(kwargs or {})
    if func not in CTC_LOSSES:
        return args, kwargs
    made = [
        torch.tensor(value) if index in (2, 3) and isinstance(value, (list, tuple)) else value
        for index, value in enumerate(args)
    ]
    for name in ("input_lengths", "target_lengths"):
        if isinstance(kwargs.get(name), (list, tuple)):
            kwargs[name] = torch.tensor(kwargs[name])
    return tuple(made), kwargs


CTC_LOSSES = (torch.ctc_loss, torch.nn.functional.ctc_loss)


def storages(tensor: Tensor) -> list[Any]:
    """The storages that a tensor's elements lie in: a sparse one has several, that of its values last."""
    return [part.untyped_storage() for part in parts(tensor)]


def _dense(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided


@functools.cache
def reads_values(func: Any) -> bool:
    """Whether an operator's result is not known from its arguments' shapes."""
    return torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags


def scout(program: Program) -> tuple[Program, Sighting]:
    """Run the program once on copies of its own values; the Program with its outside tensors, and what was seen."""
    try:
        watch, outcome = watched(program)
    except RuntimeError as error:
        if "leaf Variable" not in str(error):
            raise
        watch, outcome = watched(
            replace(program, shields=frozenset(n.name for n in program.tensors if n.requires_grad))
        )
    found = with_outside(program, watch.seen.outside)
    refuse_layouts(program, outcome.outputs)
    called = {f"outside {index}": named.name for index, named in enumerate(found.tensors[len(program.tensors) :])}
    watch.seen.readings = [
        replace(reading, inputs=tuple(called.get(name, name) for name in reading.inputs))
        for reading in watch.seen.readings
    ]
    watch.seen.opaque += [OpaqueEdge("hook", f"{name} has a gradient hook") for name in found.hooks]
    asking = {named.name for named in found.tensors if named.requires_grad}
    shared = {name for group in alias_groups(program.values) if set(group) & set(outcome.mutations) for name in group}
    if shared & asking:
        raise CaptureError(
            f"inputs {', '.join(sorted(shared))} share memory, one is changed in place and one asks for a gradient: "
            "pass copies, or leave requires_grad off for them"
        )
    changed = frozenset(name for name in outcome.mutations if name in asking)
    found = replace(
        found,
        shields=changed | outcome.tangled | frozenset(found.hooks),
        silent=watch.seen.silent,
        changed=frozenset(outcome.mutations),
        assembled=_groups(program, shared),
    )
    return found, watch.seen


def watched(program: Program) -> tuple[Watch, Outcome]:
    """One watched run, and the outside tensors as they were."""
    paths = module_paths(program)
    watch = Watch(paths)
    try:
        with quiet_random(), HookWatch(watch.seen, paths):
            seed_all(SEED)
            parameters = {named.name for named in program.tensors if named.role == "parameter"}
            still = replace(program, changed=frozenset())
            with no_seeding(program):
                return watch, step(still, program.current(), watch=lambda ready: watch.know(ready, parameters))
    finally:
        watch.restore()


def refuse_layouts(program: Program, outputs: Mapping[str, Tensor]) -> None:
    """Refuse outputs that are no plain strided tensors."""
    for name, tensor in outputs.items():
        if tensor.is_nested or tensor.layout is not torch.strided or type(tensor) not in (Tensor, nn.Parameter):
            kind = str(tensor.layout)[6:] if tensor.layout is not torch.strided else type(tensor).__name__
            raise CaptureError(
                f"{program.title} gives {name} as a {kind} tensor: engine 'aot' keeps plain strided tensors; "
                "return its values"
            )


@contextlib.contextmanager
def no_seeding(program: Program) -> Iterator[None]:
    """Refuse a program that seeds random numbers itself: its graph draws from the caller's seed."""

    def refuse(seed: int) -> None:
        raise CaptureError(
            f"{program.title} calls torch.manual_seed({seed}) while it runs: a graph draws from its caller's seed. "
            "Seed outside of the captured call"
        )

    before = torch.manual_seed, torch.random.manual_seed
    torch.manual_seed = torch.random.manual_seed = refuse
    try:
        yield
    finally:
        torch.manual_seed, torch.random.manual_seed = before


def _groups(program: Program, names: set[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(group for group in alias_groups(program.values) if set(group) & names)


def with_outside(program: Program, outside: list[Tensor]) -> Program:
    """The Program with these tensors among its named ones."""
    tensors, held = list(program.tensors), dict(program.outside)
    if program.defaulted and any(tensor.requires_grad for tensor in outside):
        tensors = [replace(named, requires_grad=False) for named in tensors]
    names = names_of_outside(program.target())
    modules = [value for _, value in roots(program.target()) if isinstance(value, nn.Module)]
    buffers = {id(buffer) for module in modules for buffer in module.buffers()}
    for tensor in outside:
        name = free_name(names.get(id(tensor), f"constant_{len(held)}"), tensors)
        role = "parameter" if isinstance(tensor, nn.Parameter) else "buffer" if id(tensor) in buffers else "constant"
        tensors.append(Named(name, role, tensor.requires_grad))
        held[name] = tensor
    hooks = {**program.hooks, **{name: tuple(hooks_of(tensor)) for name, tensor in held.items() if hooks_of(tensor)}}
    return replace(program, tensors=tuple(tensors), outside=held, hooks=hooks)


# ------------------------------------------------------------------ names of what stands outside


def module_paths(program: Program) -> dict[int, str]:
    """The path of every submodule that the program can run, by identity."""
    found: dict[int, str] = {}
    for root, value in roots(program.target()):
        if isinstance(value, nn.Module):
            for path, module in value.named_modules():
                found.setdefault(id(module), ".".join(part for part in (root, path) if part))
    return found
