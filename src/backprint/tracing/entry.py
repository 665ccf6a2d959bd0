"""`capture`: make a Capture of a call, and restore everything of the caller's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from backprint import settings
from backprint.errors import CaptureError, UsageError
from backprint.graph.nouns import Capture, Guard, Pair, Signature, custom_operators
from backprint.memory import Overlap, memory_spans, overlapping_pairs
from backprint.settings import STATE_OF, outside_modes, quiet_random
from backprint.tracing import derivatives
from backprint.tracing.call import read_call
from backprint.tracing.choice import Check, by_auto, by_engine
from backprint.tracing.custom import with_bodies
from backprint.tracing.cut import PARTITIONS
from backprint.tracing.engines import ENGINES, check_engine, requests
from backprint.tracing.facts import SEED
from backprint.tracing.made import Made, Options
from backprint.tracing.origin import LiveProgram
from backprint.tracing.program import CalledProgram, ScoutedProgram, Slot
from backprint.tracing.protection import protected
from backprint.tracing.witness import second_order

MODES = (None, "train", "eval")


@with_bodies
def capture_call(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    engine: str = "auto",
    mode: str | None = None,
    loss: Callable[[Any], Any] | None = None,
    requires_grad: Any = None,
    order: int = 1,
    name: str | None = None,
    check: Check = lambda capture, program: None,
    **asked: Any,
) -> Capture:
    """Capture the forward and backward of `target(*args, **kwargs)`; `asked` are the fields of Options."""
    options = Options(**asked)
    check_options(target, engine, mode, options.partition, order)
    specialise = bool(options.specialise)
    program = read_call(target, args, kwargs, requires_grad, mode, loss, options.fake, specialise)
    requested = requests(program, options, order)
    check_engine(engine, requested)
    with quiet_random(), outside_modes(), protected(program), derivatives.explained(lambda: program):
        if order == 2:
            program = second_order(program)
        call = {"engine": engine, "mode": mode, "loss": loss, "requires_grad": requires_grad, **asked}
        named = functools.partial(capture_of, name=name, asked=call)
        if engine == "auto":
            capture = by_auto(program, options, requested, check, named)
        else:
            capture = by_engine(program, options, engine, check, named)
    return capture


def capture_of(
    made: Made,
    engine: str,
    why: tuple[str, ...] = (),
    name: str | None = None,
    asked: Mapping[str, Any] = MappingProxyType({}),
) -> Capture:
    """Return the Capture of an engine's result; `asked` are the options of the call."""
    program = made.program
    if not any(pair.forward.outputs for pair in made.pairs):
        raise CaptureError(
            f"{program.title} returns no tensor and changes none, so there is nothing to capture: return its tensors "
            "in tuples, lists, dicts or containers that are registered with torch.utils._pytree",
            every_engine=True,
        )
    same = tuple((named.name, other) for named in program.tensors for other in named.same)
    signature = Signature(
        arguments=program.arguments,
        leaves=constant_leaves(program),
        output=output_tree(made.tree, made.leaves, made.outputs, bool(program.loss)),
        differentiable=made.differentiable,
        same=same,
        loss="loss" if program.loss else "",
        call=program.given.arguments if program.given is not None else None,
        aliases=aliases_of(program, same),
    )
    return Capture(
        name=name or program.title,
        engine=engine,
        pairs=made.pairs,
        signature=signature,
        links=made.links,
        breaks=made.breaks,
        why=why,
        guards=(
            *made.guards,
            *(Guard("same", f"{left} is {right}", (left, right)) for left, right in same),
            *(Guard("pinned", f"{name} is pinned: {DRAWS}") for name in program.chance.pins()),
        ),
        pins=tuple((f"{STATE_OF}{name}", digest) for name, digest in program.chance.pins().items()),
        opaque=made.opaque,
        environment=settings.read_settings(),
        requires=tuple(sorted({target for pair in made.pairs for target in requirements(pair)})),
        seed=SEED,
        fake=program.world is not None,
        origin=LiveProgram(made, asked),
    )


DRAWS = "the program draws from it, and the numbers that it drew are constants of the graph"
"""Why a generator that is not torch's is pinned."""


def check_options(target: Any, engine: str, mode: Any, partition: Any, order: int) -> None:
    """Refuse by name options and targets that are not supported."""
    if order not in (1, 2):
        raise UsageError(
            f"order={order!r} is not one of 1 (the backward), 2 (its backward): for a higher order, capture a function "
            "that calls torch.autograd.grad itself"
        )
    if engine not in ("auto", *ENGINES):
        raise UsageError(f"engine={engine!r} is not one of auto, {', '.join(ENGINES)}")
    if mode not in MODES:
        raise UsageError(f"mode={mode!r} is not one of None (as it is), 'train', 'eval'")
    if mode is not None and not isinstance(target, nn.Module):
        raise UsageError(f"mode={mode!r} needs a module, and {describe_target(target)} is not one")
    if isinstance(partition, str) and partition not in PARTITIONS:
        raise UsageError(f"partition={partition!r} is not one of {', '.join(map(repr, PARTITIONS))}, nor a callable")
    if not callable(target):
        raise UsageError(
            f"a target must be a module, a function or the path of a sample, and {describe_target(target)} is not "
            "callable"
        )
    if isinstance(target, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise CaptureError(
            f"{describe_target(target)} is TorchScript, which runs no Python: capture the module it was made from"
        )
    if hasattr(target, "_orig_mod"):
        raise CaptureError(f"{describe_target(target)} is compiled already: capture the module in its ._orig_mod")
    if isinstance(target, nn.parallel.DistributedDataParallel) or len(getattr(target, "device_ids", None) or ()) > 1:
        raise CaptureError(f"{type(target).__name__} spreads a module over devices: capture its .module")
    if isinstance(target, nn.Module):
        lazy = [name for name, p in (*target.named_parameters(), *target.named_buffers()) if nn.parameter.is_lazy(p)]
        if lazy:
            raise CaptureError(f"{lazy[0]} has no shape yet: run the module once, so that its lazy parameters are made")


def describe_target(target: Any) -> str:
    """Return a callable's name, or its type's."""
    return getattr(target, "__name__", None) or type(target).__name__


def aliases_of(program: ScoutedProgram, same: Sequence[tuple[str, str]]) -> tuple[Overlap, ...] | None:
    """Return the tensors of a call that share memory with others, or with tensors that the program reads from
    outside."""
    if program.given is None:
        return None
    found = overlapping_pairs({**program.given.memory, **memory_spans(program.outside)})
    return tuple(each for each in found if each[:2] not in same)


def constant_leaves(program: CalledProgram) -> tuple[tuple[str, str], ...]:
    """Return the non-tensor leaves of the call by name: they are constants of the capture."""
    return tuple(
        (name, repr(leaf)[:200])
        for name, leaf in zip(program.leaf_names, program.leaves, strict=True)
        if not isinstance(leaf, Slot)
    )


def output_tree(tree: Any, leaves: Sequence[Any], names: Sequence[str], loss: bool) -> Any:
    """Return a result's structure as JSON: `{"port": name}` and `{"value": text}` inside lists and objects."""
    ports = iter(names)
    marked = [{"port": next(ports)} if leaf is Tensor else {"value": repr(leaf)[:200]} for leaf in leaves]
    if loss:
        marked = marked[1:]
    try:
        wrapped = pytree.tree_unflatten([_Leaf(item) for item in marked], tree)
    except (AttributeError, TypeError, ValueError):  # a container for tensors only, such as PackedSequence
        return {"tuple": marked}
    return _plain_tree(wrapped)


def described_key(key: Any) -> str:
    """Return a mapping's key as text; `literal_eval` of it returns a plain literal."""
    return repr(key)[:200]


class _Leaf:
    """Wraps a leaf's description, so that it is not walked as a container."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _plain_tree(value: Any) -> Any:
    if isinstance(value, _Leaf):
        return value.value
    if isinstance(value, Mapping):
        if all(type(key) is str and key.isprintable() and len(key) <= 4096 for key in value):
            return {"dict": {key: _plain_tree(item) for key, item in value.items()}}
        return {"items": [[described_key(key), _plain_tree(item)] for key, item in value.items()]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"dict": {key: _plain_tree(item) for key, item in zip(value._fields, value, strict=True)}}
    if isinstance(value, (list, tuple)):
        return {
            type(value).__name__ if type(value) in (list, tuple) else "tuple": [_plain_tree(item) for item in value]
        }
    children = pytree.tree_flatten_with_path(value)[0]
    if len(children) == 1 and children[0][1] is value:
        return {"value": repr(value)[:200]}
    return {"dict": {".".join(map(str, path)): _plain_tree(leaf) for path, leaf in children}}


def requirements(pair: Pair) -> tuple[str, ...]:
    """Return the operators of libraries that these graphs call."""
    graphs = [graph for graph in (pair.forward, pair.backward) if graph is not None]
    return tuple(sorted({target for graph in graphs for _, target in custom_operators(graph)}))
