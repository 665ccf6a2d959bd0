"""The engines, the requests that each supports, and what is checked before a program is traced.

`prove/capturing` asks the engines: it has a program traced by one of them, proves the graphs, and decides whether it
asks another.

A request is an option of a call that not every engine supports (`dynamic=`, `partition=`), or `sparse` for sparse
inputs. `options.requests()` has the options among them, by name, each with its text for a message. A CalledProgram is a
callable with the named tensors of one call. CaptureOptions are the user's options of a capture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from backprint._torch.distributed import why_not_captured
from backprint._torch.modules import COMPILED
from backprint._torch.pytree import tree_leaves
from backprint.common.factories import find_factory
from backprint.common.text import check_sequence, printable
from backprint.errors import CaptureError, UsageError
from backprint.graph.calls import check_loss, unknown_loss
from backprint.graph.capture_options import CaptureOptions
from backprint.trace.custom import decompositions_of
from backprint.trace.eager.engine import by_eager
from backprint.trace.partition import PARTITIONS
from backprint.trace.program import CalledProgram
from backprint.trace.refusals import untraced_control_flow
from backprint.trace.request import EngineResult

# ---- The engines, and the requests that each supports


def by_aot(program: CalledProgram, options: CaptureOptions) -> EngineResult:
    """Trace with AOTAutograd. Its module is loaded now, because it loads Inductor and Dynamo: 2 s and 150 MiB."""
    from backprint.trace.aot import engine

    try:
        return engine.by_aot(program, options)
    except CaptureError as error:
        # A control flow operator is what `dynamo` captures and `aot` does not: the error then names that engine, and
        # the requests that `dynamo` would not take.
        lacking = [text for name, text in options.requests().items() if name not in ENGINES["dynamo"].takes]
        if not error.every_engine and (refusal := untraced_control_flow(program, lacking, error)):
            raise CaptureError(refusal) from error
        raise


def by_dynamo(program: CalledProgram, options: CaptureOptions) -> EngineResult:
    """Trace with Dynamo, which is loaded now."""
    from backprint.trace.dynamo import engine

    return engine.by_dynamo(program, options)


@dataclass(frozen=True, slots=True)
class Engine:
    """One way to trace a program: `make` is the function that traces. `takes` names the options that the engine
    supports, of those that not every engine does (`CaptureOptions.requests`), and "sparse" if inputs may be sparse
    tensors."""

    name: str
    make: Callable[[CalledProgram, CaptureOptions], EngineResult]
    takes: frozenset[str]

    def lacks(self, requested: Mapping[str, str]) -> str:
        """Return a text that says which of the requests this engine does not support, and which engines do; '' if it
        supports all. `requested` has the text of each request as a call writes it, by name (`requests_of_call`)."""
        missing = {request: needs for request, needs in requested.items() if request not in self.takes}
        if not missing:
            return ""
        needs = " with ".join(missing.values())
        return f"engine {self.name!r} does not take {needs}: {_engines_supporting(requested)}"


ENGINES: dict[str, Engine] = {
    each.name: each
    for each in (
        Engine("eager", by_eager, frozenset({"sparse", "order", "functional", "partition"})),
        Engine("aot", by_aot, frozenset({"fake", "dynamic", "decompose", "order", "partition"})),
        Engine("dynamo", by_dynamo, frozenset({"decompose", "partition"})),
    )
}
"""The engines, in the order in which engine='auto' prefers them: it first asks the first one that takes all options of
a call."""

EXCLUSIVE = (("fake", "dynamic"),)
"""Requests that no engine supports together, although one may support each."""


def requests_of_call(program: CalledProgram, options: CaptureOptions) -> dict[str, str]:
    """Return the requests of a call that not every engine supports, by name, each in the words of the call."""
    requested = options.requests()
    for name, tensor in program.all_tensors().items():
        if tensor.layout is not torch.strided:
            # Without the `torch.` of `torch.sparse_coo`.
            requested["sparse"] = f"{str(tensor.layout)[6:]} tensors (input {name!r})"
            break
    return requested


def _engines_supporting(requested: Collection[str]) -> str:
    """Return a clause that names the engines which support all of these requests."""
    names = [repr(engine.name) for engine in ENGINES.values() if engine.takes.issuperset(requested)]
    if not names:
        return "no engine does"
    *others, last = names
    return f"engines {', '.join(others)} and {last} do" if others else f"engine {last} does"


def check_engine(engine: str, requested: Mapping[str, str]) -> None:
    """Raise a UsageError if the requested engine does not support the requests, or if, with `auto`, no engine does.
    `requested` has the text of each request by name (`requests_of_call`)."""
    for left, right in EXCLUSIVE:
        if left in requested and right in requested:
            raise UsageError(
                f"no engine takes {requested[left]} with {requested[right]}: ask for one of them at a time"
            )
    if engine != "auto":
        reason = ENGINES[engine].lacks(requested)
    else:
        reasons = [candidate.lacks(requested) for candidate in ENGINES.values()]  # '' of an engine that lacks nothing
        reason = "" if "" in reasons else f"no engine takes {' with '.join(requested.values())}: ask for one at a time"
    if reason:
        raise UsageError(reason)


# ---- What is checked before a program runs

MODES = (None, "train", "eval")
"""What the option `mode` may be."""


def engine_of_ranks(program: CalledProgram, engine: str) -> str:
    """Return the engine for a program that may be one rank of several; `engine` is the one that the call asks for. A
    rank is recorded as it ran by engine `eager`, or traced without values by engine `aot`. Raise a UsageError if
    another engine is asked for."""
    # A program with a `world` has no values: each engine handles or refuses it itself.
    if program.world is not None:
        return engine
    # Gradients are reduced once autograd has accumulated them, which only engine `eager` records.
    if engine == "aot" and program.peers is not None and not program.reduces_gradients:
        return engine
    why = ""
    if program.reduces_gradients:
        why = "reduces its gradients among processes"
    elif program.peers is not None:
        why = "is a rank among others"
    elif program.wrappings:
        why = f"has {next(iter(program.wrappings))}, which wraps another tensor"
    if why and engine not in ("auto", "eager"):
        others = "" if program.reduces_gradients or program.peers is None else " (or 'aot')"
        raise UsageError(f"engine={engine!r}: {program.title} {why}, and only engine 'eager'{others} captures that")
    return "eager" if why else engine


def check_options(target: Any, options: CaptureOptions) -> None:
    """Refuse by name options and targets that are not supported: an option by a UsageError, a target that no engine
    captures by a CaptureError."""
    engine, mode, partition, order = options.engine, options.mode, options.partition, options.order
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
        raise UsageError(f"mode={mode!r} needs a module, and {_describe_target(target)} is not one")
    if isinstance(partition, str) and partition not in PARTITIONS:
        raise UsageError(f"partition={partition!r} is not one of {', '.join(map(repr, PARTITIONS))}, nor a callable")
    if not callable(target):
        raise UsageError(
            f"a target must be a module, a function or the path of a sample, and {_describe_target(target)} is not "
            "callable"
        )
    if isinstance(target, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise CaptureError(
            f"{_describe_target(target)} is TorchScript, which runs no Python: capture the module it was made from"
        )
    if hasattr(target, COMPILED):
        raise CaptureError(f"{_describe_target(target)} is compiled already: capture the module in its ._orig_mod")
    if len(getattr(target, "device_ids", None) or ()) > 1:  # as DataParallel has them
        raise CaptureError(f"{type(target).__name__} spreads a module over devices: capture its .module")
    if isinstance(target, nn.Module):
        refuse_modules(target)
        lazy = [name for name, p in (*target.named_parameters(), *target.named_buffers()) if nn.parameter.is_lazy(p)]
        if lazy:
            raise CaptureError(f"{lazy[0]} has no shape yet: run the module once, so that its lazy parameters are made")


def refuse_modules(target: nn.Module) -> None:
    """Refuse a module that has distributed modules whose step is not captured."""
    if why := next(filter(None, map(why_not_captured, target.modules())), ""):
        raise CaptureError(why, every_engine=True)


MAX_NAME_LENGTH = 4096
"""The most characters of the name of a callable in a message."""


def _describe_target(target: Any) -> str:
    """Return a callable's name, or its type's, as text that can be printed."""
    return printable(str(getattr(target, "__name__", None) or type(target).__name__))[:MAX_NAME_LENGTH]


# ---- Options that a user writes as text

LOSSES = ("sum", "mean")
"""Losses by name: methods of the first floating-point tensor of the result."""


def resolve_options(options: Mapping[str, Any]) -> CaptureOptions:
    """Return the options of a call as CaptureOptions, with losses and decompositions that are given by name looked up.
    A string instead of a sequence of names is refused."""
    check_sequence("allow", options.get("allow"))
    check_sequence("meant", options.get("meant"))
    check_sequence("decompose", options.get("decompose"))
    resolved = dict(options)
    if isinstance(resolved.get("loss"), str):
        resolved["loss"] = loss_of(resolved["loss"])
    check_loss(resolved.get("loss"))
    if isinstance(resolved.get("decompose"), (tuple, list)):
        resolved["decompose"] = decompositions_of(resolved["decompose"]) or None  # no names: no request
    return CaptureOptions(**resolved)


def loss_of(text: str | None) -> Any:
    """Return the loss of a name in LOSSES, or the user's function at `MODULE:FUNCTION` or `FILE:FUNCTION`; None for
    None. Raise a UsageError for any other text."""
    if text is None:
        return None
    if text in LOSSES:
        return lambda output: getattr(_first_tensor(output), text)()
    if ":" not in text:
        raise unknown_loss(text)
    return find_factory(text)


def _first_tensor(output: Any) -> Any:
    """Return the first floating-point or complex tensor of a result; raise a UsageError if it has none."""
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
    raise UsageError("loss: the output holds no floating-point tensor")
