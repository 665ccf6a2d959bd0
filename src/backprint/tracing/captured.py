"""Make a Capture of an engine's result: its signature, its guards, and the program behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from backprint import settings
from backprint._torch import pytree
from backprint.errors import CaptureError
from backprint.graph.nouns import Capture, Guard, Pair, Signature, custom_operators
from backprint.memory import Overlap, memory_spans, overlapping_pairs
from backprint.result_tree import ResultTree
from backprint.settings import STATE_OF
from backprint.tracing.facts import SEED
from backprint.tracing.made import Made
from backprint.tracing.origin import LiveProgram
from backprint.tracing.program import A_TENSOR, CalledProgram, ScoutedProgram, Slot
from backprint.tree import flatten_with_path


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
            "in tuples, lists, dicts or objects of its own",
            every_engine=True,
        )
    signature = signature_of(made)
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
            *(Guard("same", f"{left} is {right}", (left, right)) for left, right in signature.same),
            *(Guard("pinned", f"{name} is pinned: {DRAWS}") for name in program.chance.pins()),
        ),
        pins=tuple((f"{STATE_OF}{name}", digest) for name, digest in program.chance.pins().items()),
        opaque=made.opaque,
        environment=settings.read_settings(),
        requires=tuple(sorted({target for pair in made.pairs for target in requirements(pair)})),
        seed=SEED,
        fake=program.world is not None,
        notes=made.notes,
        origin=LiveProgram(made, asked),
    )


def signature_of(made: Made) -> Signature:
    """Return how the program was called, and the structure of its result."""
    program = made.program
    same = tuple((named.name, other) for named in program.tensors for other in named.same)
    return Signature(
        arguments=program.arguments,
        leaves=constant_leaves(program),
        output=output_tree(made.tree, made.leaves, made.outputs, bool(program.loss)),
        differentiable=made.differentiable,
        same=same,
        loss="loss" if program.loss else "",
        call=program.given.arguments if program.given is not None else None,
        aliases=aliases_of(program, same),
    )


DRAWS = "the program draws from it, and the numbers that it drew are constants of the graph"
"""Why a generator that is not torch's is pinned."""


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


def output_tree(tree: ResultTree, leaves: Sequence[Any], names: Sequence[str], loss: bool) -> Any:
    """Return a result's structure as JSON: `{"port": name}` and `{"value": text}` inside lists and objects."""
    ports = iter(names)
    marked = [{"port": next(ports)} if leaf is A_TENSOR else value_mark(leaf) for leaf in leaves]
    if loss:
        marked = marked[1:]
    try:
        wrapped = pytree.tree_unflatten([_Leaf(item) for item in tree.marked(marked)], tree.spec)
    except (AttributeError, TypeError, ValueError):  # a container for tensors only, such as PackedSequence
        return {"tuple": marked}
    return _plain_tree(wrapped)


def value_mark(leaf: Any) -> Any:
    """Return what a sample keeps of a leaf that is no tensor."""
    if isinstance(leaf, torch.Size):
        return {"tuple": [{"value": repr(size)} for size in leaf]}
    return {"value": repr(leaf)[:200]}


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
    children = flatten_with_path(value)[0]
    if len(children) == 1 and children[0][1] is value:
        return {"value": repr(value)[:200]}
    return {"dict": {".".join(map(str, path)): _plain_tree(leaf) for path, leaf in children}}


def requirements(pair: Pair) -> tuple[str, ...]:
    """Return the operators of libraries that these graphs call."""
    graphs = [graph for graph in (pair.forward, pair.backward) if graph is not None]
    return tuple(sorted({target for graph in graphs for _, target in custom_operators(graph)}))
