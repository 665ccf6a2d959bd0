"""Make a Capture of an engine's result: its signature, its guards, and the program behind it."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from backprint._torch import pytree
from backprint.common.text import printable
from backprint.errors import CaptureError, ReplayError
from backprint.graph.nouns import Capture, Guard, Pair, Signature, custom_operators
from backprint.graph.verdicts import PortVerdict
from backprint.tracing.program import A_TENSOR, CalledProgram, Outcome, ScoutedProgram, Slot
from backprint.tracing.reach import names_of_outside
from backprint.tracing.refusals import plain_own
from backprint.tracing.request import Made
from backprint.tracing.running import call_arguments, is_only_given, protected
from backprint.tracing.watch import SEED
from backprint.tracing.witness import run_step
from backprint.values import settings
from backprint.values.likeness import Describing, describe_value, likeness_differences
from backprint.values.memory import Overlap, has_memory, memory_spans, overlapping_pairs
from backprint.values.results import ResultTree
from backprint.values.settings import STATE_OF, outside_modes
from backprint.values.tree import alias_groups, copy_values, flatten_with_path


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


# ----------------------------------------------------------------------------
# The live side of a Capture: the program that it was traced from, run again as the oracle of its proofs.
# ----------------------------------------------------------------------------


class LiveProgram:
    """The live side of a Capture. It is mutable: a run stores its result, and `release` drops the program."""

    partial = False
    traced_here = True

    def __init__(self, made: Made, options: Mapping[str, Any]) -> None:
        self.program = made.program
        self.constants = {
            name: tensor.detach() for name, tensor in {**made.constants, **unreached(made.program)}.items()
        }
        self.tangents = made.tangents
        self.structure, self.leaves, self.names = made.tree, made.leaves, made.outputs
        self.parts = made.parts
        self.options = options
        self.joint = joint(made.program)
        self.not_bitwise: tuple[PortVerdict, ...] = ()
        self.unguarded = made.unguarded
        self.first = dict(made.outcome.outputs) if made.outcome is not None and made.program.world is None else {}
        self.gave: tuple[Any, ...] = self.fixed(made.leaves, made.tree)
        self.kept = self.gave
        self.shape = made.tree.shape

    def call(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return the callable, and the arguments and keyword arguments of the captured call."""
        return self.program.target(), *call_arguments(self.program, self.program.values)

    def doubted(self, ports: Iterable[PortVerdict]) -> LiveProgram:
        """Return the same program with the ports whose verdict was not bitwise."""
        found = copy.copy(self)
        found.not_bitwise = tuple(port for port in ports if port.verdict != "bitwise")
        found.first = {}
        return found

    def release(self) -> None:
        """Drop the program and its arguments."""
        self.program.target.release()
        self.program.outside.clear()
        self.program.chance.objects.clear()
        self.parts = ()

    def step_alone(self, values: Mapping[str, Tensor], anew: bool) -> Outcome:
        """Run one eager step in the caller's own tensors, or in others; none requires grad by default."""
        before, self.program = self.program, undefaulted(self.program)
        try:
            return self.run_step(values, None, anew)
        finally:
            self.program = before

    @property
    def aliased(self) -> bool:
        """Whether the program ran on aliases of its arguments."""
        own = self.program.own()
        return any(is_only_given(self.program, own[name]) for name in self.program.values if name in own)

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """Remember everything that the program reaches once, and restore it at the end of the block."""
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
        """Return every named tensor that has values: live state, inputs as captured, constants.

        A tensor that shares memory with an argument is returned as captured too, and shares memory with that argument.
        """
        return self.live() | self.joint

    def live(self) -> dict[str, Tensor]:
        """Return the same tensors, with all except arguments in their current state."""
        found = {name: tensor.detach() for name, tensor in self.program.known().items()}
        for name, tensor in found.items():
            if not has_memory(tensor):
                raise ReplayError(
                    f"{name!r} has a storage that was resized to less than its elements need, so it has no values: "
                    "restore them, or pass `state`"
                )
        found |= self.constants
        for named in self.program.tensors:
            if named.name in found:
                found |= dict.fromkeys(named.same, found[named.name])
        return found

    def run_step(
        self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None, anew: bool = False
    ) -> Outcome:
        """Run one eager step of the original program on these values; with `anew`, in other tensors than its own
        arguments."""
        names = {named.name for named in self.program.tensors}
        given = {name: tensor for name, tensor in values.items() if name in names}
        outcome = run_step(self.program, given, tangents, anew=anew)
        self.gave = self.fixed(outcome.leaves, outcome.tree)
        self.shape = outcome.tree.shape
        return outcome

    def objects_by_parameter(self) -> Mapping[str, Sequence[Any]]:
        """Return, by parameter, the values of the call that can be compared only by identity."""
        return self.program.given.live if self.program.given is not None else {}

    def random_state_digests(self) -> dict[str, str]:
        """Return the current digests of the states, other than torch's, that the program's numbers depend on."""
        return self.program.chance.now()

    def own_generators(self) -> str:
        """Return the program's own generators that it draws from, torch's left out; '' if there are none."""
        return ", ".join(self.program.chance.objects)

    def result_difference(self) -> str:
        """Say where the last run's result differs from the Capture's in its containers or in what is no tensor; '' if
        nowhere."""
        if self.shape != self.structure.shape:
            ours, theirs = (printable(each)[:200] for each in (self.structure.shape, self.shape))
            return f"the result is {ours}, and the program returns {theirs}"
        if len(self.gave) != len(self.kept):
            return f"the result has {len(self.kept)} leaves, and the program returns {len(self.gave)}"
        for index, (ours, theirs) in enumerate(zip(self.kept, self.gave, strict=True)):
            for path, text in likeness_differences(ours, theirs):
                return f"leaf {index} of the result, which is no tensor, differs{path and ' in ' + path[1:]}: {text}"
        return ""

    @staticmethod
    def fixed(leaves: Sequence[Any], tree: ResultTree) -> tuple[Any, ...]:
        """Return the likenesses of what a result holds besides its tensors: a replay returns it as it was."""
        state = Describing(lambda _: "")
        return tuple(describe_value(each, state, False).like for each in (*leaves, *tree.templates))

    def rebuild(self, structure: Any, named: Mapping[str, Tensor]) -> Any:
        """Return these outputs in the program's own containers."""
        names = iter(self.names)
        loss = bool(self.program.loss)
        leaves = [named[next(names)] if leaf is A_TENSOR else leaf for leaf in self.leaves]
        return self.structure.rebuilt(leaves[1:] if loss else leaves)


def unreached(program: ScoutedProgram) -> dict[str, Tensor]:
    """Return the constants that nothing the program holds leads to: it makes them itself, without an operator
    (`frombuffer`, a pool of memory), so it cannot be given other values for them."""
    names = names_of_outside(program.target()) if program.outside and program.world is None else {}
    roles = {named.name: named.role for named in program.tensors}
    return {
        name: tensor
        for name, tensor in program.outside.items()
        if program.world is None and id(tensor) not in names and roles.get(name) == "constant"
    }


def undefaulted(program: ScoutedProgram) -> ScoutedProgram:
    """Return the program without the default `requires_grad` of its arguments, which applies if no tensor requires
    grad."""
    if not program.defaulted:
        return program
    tensors = tuple(
        replace(each, requires_grad=each.requires_grad and each.name not in program.values) for each in program.tensors
    )
    return replace(program, tensors=tensors, defaulted=False)


def joint(program: ScoutedProgram) -> dict[str, Tensor]:
    """Copy the tensors that share memory with an argument but are not arguments; the copies share memory as they do."""
    own = plain_own(program)
    groups = [group for group in alias_groups(own) if 0 < len(set(group) & set(program.values)) < len(group)]
    return copy_values({name: own[name] for group in groups for name in group})
