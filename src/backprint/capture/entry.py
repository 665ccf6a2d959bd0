"""`capture`: from a call to a Capture, with everything of the caller's left as it was."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from backprint import settings
from backprint.capture import derivatives
from backprint.capture.call import read_call
from backprint.capture.choice import Check, by_auto, by_engine
from backprint.capture.custom import with_bodies
from backprint.capture.cut import PARTITIONS
from backprint.capture.engines import ENGINES, check_engine, requests
from backprint.capture.facts import SEED
from backprint.capture.made import Made, Options
from backprint.capture.program import CalledProgram, Held, Outcome, ScoutedProgram, Slot
from backprint.capture.protection import protected
from backprint.capture.refusals import plain_own
from backprint.capture.stage import is_only_given
from backprint.capture.witness import second_order, step
from backprint.errors import CaptureError, UsageError
from backprint.graph.nouns import Capture, Guard, Pair, Signature, custom_operators
from backprint.memory import Overlap, memory_spans, overlapping_pairs
from backprint.settings import STATE_OF, quiet_random
from backprint.tree import alias_groups, copy_values

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
    check: Check = lambda capture: None,
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
        named = functools.partial(capture_of, name=name)
        if engine == "auto":
            capture = by_auto(program, options, requested, check, named)
        else:
            capture = by_engine(program, options, engine, check, named)
    capture.origin.asked = {"engine": engine, "mode": mode, "loss": loss, "requires_grad": requires_grad, **asked}
    return capture


def capture_of(made: Made, engine: str, why: tuple[str, ...] = (), name: str | None = None) -> Capture:
    """The Capture of what an engine made."""
    program = made.program
    if not any(pair.forward.outputs for pair in made.pairs):
        raise CaptureError(
            f"{program.title} gives no tensor and changes none, so there is nothing to capture: return its tensors in "
            "containers that torch.utils._pytree knows"
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
        origin=Origin(made),
    )


DRAWS = "the program draws from it, and the numbers that it drew are constants of the graph"
"""What is said of a generator of numbers that is not torch's."""


def check_options(target: Any, engine: str, mode: Any, partition: Any, order: int) -> None:
    """Refuse by name what cannot be asked for."""
    if order not in (1, 2):
        raise UsageError(
            f"order={order!r} is none of 1 (the backward), 2 (its backward): for more, capture a function that takes "
            "the gradients itself"
        )
    if engine not in ("auto", *ENGINES):
        raise UsageError(f"engine={engine!r} is none of auto, {', '.join(ENGINES)}")
    if mode not in MODES:
        raise UsageError(f"mode={mode!r} is none of None (as it is), 'train', 'eval'")
    if mode is not None and not isinstance(target, nn.Module):
        raise UsageError(f"mode={mode!r} needs a module; {describe_target(target)} is none")
    if isinstance(partition, str) and partition not in PARTITIONS:
        raise UsageError(f"partition={partition!r} is none of {', '.join(map(repr, PARTITIONS))}, nor a callable")
    if not callable(target):
        raise UsageError(f"{describe_target(target)} cannot be called")
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
    """A callable in a few words."""
    return getattr(target, "__name__", None) or type(target).__name__


@contextlib.contextmanager
def outside_modes() -> Any:
    """Gradients on and inference off, whatever the caller has; and the caller's modes back. One capture at a time."""
    with settings.ONE_AT_A_TIME, torch.inference_mode(False), torch.enable_grad():
        yield


class Origin:
    """The live side of a Capture: the program it came from, the constants its ports need, and what was asked for."""

    def __init__(self, made: Made) -> None:
        self.program = made.program
        self.constants = {name: tensor.detach() for name, tensor in made.constants.items()}
        self.tangents = made.tangents
        self.structure, self.leaves, self.names = made.tree, made.leaves, made.outputs
        self.parts = made.parts
        self.asked: dict[str, Any] = {}
        self.joint = joint(made.program)
        self.proof: Any = None
        self.unheld = made.unheld
        self.gave: tuple[Any, ...] = made.leaves

    def release(self) -> None:
        """Let go of the program and of its arguments."""
        if isinstance(self.program.target, Held):
            self.program.target.release()
        else:
            self.program.target = _nothing
        self.program.outside.clear()
        self.program.chance.objects.clear()
        self.parts = ()

    def step_alone(self, values: Mapping[str, Tensor], anew: bool) -> Outcome:
        """One eager step in the caller's very tensors, or in others; none is asked for a gradient by default."""
        before, self.program = self.program, undefaulted(self.program)
        try:
            return self.step(values, None, anew)
        finally:
            self.program = before

    @property
    def aliased(self) -> bool:
        """Whether the program ran on aliases of its arguments."""
        own = self.program.own()
        return any(is_only_given(self.program, own[name]) for name in self.program.values if name in own)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """While the program runs, everything that it reaches is remembered once, and put back at the end."""
        with outside_modes():
            if self.alive:
                with protected(self.program):
                    yield
            else:
                yield

    @property
    def alive(self) -> bool:
        """Whether the captured program still exists."""
        return self.program.alive

    def values(self) -> dict[str, Tensor]:
        """Every named tensor that has values: live state, inputs as captured, constants.

        What shares memory with an argument is as captured too, and shares it with that.
        """
        return self.live() | self.joint

    def live(self) -> dict[str, Tensor]:
        """The same, with all that is no argument as it is now."""
        found = {name: tensor.detach() for name, tensor in self.program.known().items()}
        found |= self.constants
        for named in self.program.tensors:
            if named.name in found:
                found |= dict.fromkeys(named.same, found[named.name])
        return found

    def step(self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None, anew: bool = False) -> Outcome:
        """One eager step of the original program on these values; `anew`, in other tensors than its own arguments."""
        names = {named.name for named in self.program.tensors}
        given = {name: tensor for name, tensor in values.items() if name in names}
        outcome = step(self.program, given, tangents, anew=anew)
        self.gave = outcome.leaves
        return outcome

    def chance(self) -> dict[str, str]:
        """The digests, as they are now, of the states that the program's numbers depend on beside torch's."""
        return self.program.chance.now()

    def drawn_from(self) -> str:
        """The generators of its own that the program draws from, beside torch's; '' where there are none."""
        return ", ".join(self.program.chance.objects)

    def differs(self) -> str:
        """Where the last run gave something else than a tensor that is not what the Capture gives; '' where nowhere."""
        if len(self.gave) != len(self.leaves):
            return f"the result has {len(self.leaves)} leaves, and the program gives {len(self.gave)}"
        for index, (ours, theirs) in enumerate(zip(self.leaves, self.gave, strict=True)):
            if ours is not theirs and type(ours) in PLAIN and repr(ours) != repr(theirs):
                return f"leaf {index} of the result is {ours!r:.80} where the program gives {theirs!r:.80}"
        return ""

    def rebuild(self, named: Mapping[str, Tensor]) -> Any:
        """The program's own containers around these outputs."""
        names = iter(self.names)
        loss = bool(self.program.loss)
        leaves = [named[next(names)] if leaf is Tensor else leaf for leaf in self.leaves]
        return pytree.tree_unflatten(leaves[1:] if loss else leaves, self.structure)


def undefaulted(program: ScoutedProgram) -> ScoutedProgram:
    """The program without the gradients that nobody asked for: those of its arguments where nothing asks for any."""
    if not program.defaulted:
        return program
    tensors = tuple(
        replace(each, requires_grad=each.requires_grad and each.name not in program.values) for each in program.tensors
    )
    return replace(program, tensors=tensors, defaulted=False)


PLAIN = (bool, int, float, complex, str, type(None))
"""Kinds of leaves that are compared by what they are."""


def _nothing() -> None:
    """The target of a program that is gone."""


def joint(program: ScoutedProgram) -> dict[str, Tensor]:
    """Copies of the tensors that share memory with an argument and are no arguments themselves, sharing it again."""
    own = plain_own(program)
    groups = [group for group in alias_groups(own) if 0 < len(set(group) & set(program.values)) < len(group)]
    return copy_values({name: own[name] for group in groups for name in group})


def aliases_of(program: ScoutedProgram, same: Sequence[tuple[str, str]]) -> tuple[Overlap, ...] | None:
    """The tensors of a call that share memory with others, or with what the program takes from outside."""
    if program.given is None:
        return None
    found = overlapping_pairs({**program.given.memory, **memory_spans(program.outside)})
    return tuple(each for each in found if each[:2] not in same)


def constant_leaves(program: CalledProgram) -> tuple[tuple[str, str], ...]:
    """The non-tensor leaves of the call, by name: the capture took them as they are."""
    return tuple(
        (name, repr(leaf)[:200])
        for name, leaf in zip(program.leaf_names, program.leaves, strict=True)
        if not isinstance(leaf, Slot)
    )


def output_tree(tree: Any, leaves: Sequence[Any], names: Sequence[str], loss: bool) -> Any:
    """A result's structure as JSON: `{"port": name}` and `{"value": text}` inside lists and objects."""
    ports = iter(names)
    marked = [{"port": next(ports)} if leaf is Tensor else {"value": repr(leaf)[:200]} for leaf in leaves]
    if loss:
        marked = marked[1:]
    try:
        wrapped = pytree.tree_unflatten([_Leaf(item) for item in marked], tree)
    except (AttributeError, TypeError, ValueError):  # a container that takes tensors alone, as a PackedSequence does
        return {"tuple": marked}
    return _plain_tree(wrapped)


def described_key(key: Any) -> str:
    """A key of a mapping as text; a plain literal's text gives it back."""
    return repr(key)[:200]


class _Leaf:
    """Wraps a leaf's description, so that it is no container while the tree is walked."""

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
    """The operators of libraries that running these graphs needs."""
    graphs = [graph for graph in (pair.forward, pair.backward) if graph is not None]
    return tuple(sorted({target for graph in graphs for _, target in custom_operators(graph)}))
