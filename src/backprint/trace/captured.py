"""Make a Capture of an engine's result: its signature, its guards, and the program behind it.

The program behind a Capture is a LiveProgram, which proofs run again. The room `prove` calls its methods.

`program.tensors` are NamedTensors: name, role and `requires_grad` of each tensor of the call; `program.values` has the
tensors among the arguments, and `program.external_tensors` those that the program reads from outside its call. An
Outcome has the results of one run by name, and a Staged is a program that is ready to run: `leaves` are the tensors
whose gradients autograd computes, `passed` those that the program takes. A ResultTree is the structure of a result:
`tree.rebuild(leaves)` is the result with these leaves. Random generators that are not torch's (`foreign_random`) are
pinned: a capture holds only for the state that they had. A fingerprint is a description of a value as JSON.

A CalledProgram is a callable with the named tensors of one call; an ObservedProgram has the findings of a first run
too. An EngineResult has the Pairs of a program, and what a Capture needs besides. CaptureOptions are the user's options
of a capture. An error with `every_engine` says that no engine captures the program.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint._torch import pytree
from backprint._torch.distributed import own_rank
from backprint.common.text import printable
from backprint.errors import CaptureError, ReplayError, UsageError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.nouns import (
    NO_FUNCTIONS,
    Capture,
    Guard,
    Origin,
    Pair,
    Rank,
    Signature,
    custom_operators,
    paths_of_modules,
)
from backprint.graph.verdicts import PortVerdict
from backprint.trace.hooks_after import hooks_of_leaves, left_out, note_on_nodes
from backprint.trace.program import A_TENSOR, CalledProgram, ObservedProgram, Outcome, TensorSlot
from backprint.trace.reach import classes_of_modules, names_of_outside
from backprint.trace.refusals import real_own_tensors
from backprint.trace.request import EngineResult
from backprint.trace.running import (
    Staged,
    arguments_in_new_containers,
    is_reached_as_argument_only,
    restoring_state,
    run_backward,
    staged,
    with_other_arguments,
    write_parameters,
    write_value,
)
from backprint.trace.state.tensors import untraced
from backprint.trace.watch import SEED
from backprint.trace.witness import run_forward, run_step
from backprint.values import settings
from backprint.values.fingerprint import DescribeState, describe_value, fingerprint_differences
from backprint.values.memory import Overlap, has_memory, is_small, memory_spans, overlapping_pairs
from backprint.values.results import ResultTree, refusal_of_depth
from backprint.values.settings import STATE_OF, outside_modes, preserving_random_states, seed_torch
from backprint.values.tree import alias_groups, copy_values, flatten_with_path
from backprint.values.wrappers import unwrap


def capture_of(
    result: EngineResult,
    engine: str,
    options: CaptureOptions,
) -> Capture:
    """Return the Capture of the result of the engine of this name. `options` are the options of the call. Raise a
    CaptureError if the program returns no tensor and changes none. `foreign_random.pins()` has the digest of each
    generator's state that the program's numbers depend on, by the generator's name."""
    # Hooks that run after autograd has accumulated a gradient: only engine `eager` records them in its backward, and
    # not if the backward of that backward is asked for.
    if engine != "eager" or options.order == 2:
        result = leave_out_post_accumulate_hooks(result, engine, options)
    program = result.program
    if not any(pair.forward.outputs for pair in result.pairs):
        raise CaptureError(
            f"{program.title} returns no tensor and changes none, so there is nothing to capture: return its tensors "
            "in tuples, lists, dicts or objects of its own",
            every_engine=True,
        )
    signature = signature_of(result)
    return Capture(
        name=options.name or program.title,
        engine=engine,
        pairs=result.pairs,
        signature=signature,
        links=result.links,
        breaks=result.breaks,
        guards=(
            *result.guards,
            *(Guard("same", f"{left} is {right}", inputs=(left, right)) for left, right in signature.same),
            *(
                Guard("pinned", f"{name} is pinned: {WHY_GENERATOR_IS_PINNED}")
                for name in program.foreign_random.pins()
            ),
        ),
        pins=tuple((f"{STATE_OF}{name}", digest) for name, digest in program.foreign_random.pins().items()),
        opaque=result.opaque,
        meant=_check_meant(options.meant, result),
        modules=classes_of_modules(program.target(), paths_of_modules(result.pairs)),
        environment=settings.read_settings(),
        requires=tuple(sorted({target for pair in result.pairs for target in requirements(pair)})),
        seed=SEED,
        fake=program.world is not None,
        notes=(
            *result.notes,
            *note_on_nodes(_tensors_requiring_grad(program)),
            *_note_without_backward(result, options),
        ),
        rank=_rank_of(result),
        peers=program.peers,
        origin=LiveProgram(result, options),
    )


def _note_without_backward(result: EngineResult, options: CaptureOptions) -> tuple[str, ...]:
    """Return a note on why a capture has no backward; no note if it has one, or if its caller asked for none."""
    # `requires_grad` is False, or an empty list of names, or has False for each input.
    asked_for_none = options.requires_grad is False or (
        isinstance(options.requires_grad, (tuple, list, set, frozenset)) and not any(options.requires_grad)
    )
    if asked_for_none or any(pair.backward is not None for pair in result.pairs):
        return ()
    requiring_grad = [named.name for named in result.program.tensors if named.requires_grad]
    shared = sorted({name for group in result.program.written_alias_groups for name in group})
    if not requiring_grad and shared and options.requires_grad is None:
        return (
            f"{', '.join(shared[:4])} share memory that the program writes to, so they do not require grad by default, "
            "and nothing else requires grad: the forward alone was captured",
        )
    if not requiring_grad:
        return ("nothing requires grad: the forward alone was captured",)
    more = f" and {len(requiring_grad) - 3} more" if len(requiring_grad) > 3 else ""
    first_names = f"{', '.join(requiring_grad[:3])}{more}"
    verb = "require" if len(requiring_grad) > 1 else "requires"
    return (
        f"{first_names} {verb} grad, but no output depends on it in a way that autograd records (torch.no_grad, "
        "detach): the forward alone was captured",
    )


def leave_out_post_accumulate_hooks(result: EngineResult, engine: str, options: CaptureOptions) -> EngineResult:
    """Return the result of an engine that records no post-accumulate-grad hooks. If the program has some, proofs run it
    without them, and a note says so. A program whose gradients are only in `.grad` (`accumulates_gradients`) is left as
    it is: hooks that reduce gradients among ranks are a part of its step."""
    program = result.program
    hooks = hooks_of_leaves(_tensors_requiring_grad(program))
    if not hooks or program.accumulates_gradients:
        return result
    who = "with order=2" if options.order == 2 else f"by engine {engine!r}, but by 'eager'"
    note = left_out(hooks, f"is not captured {who}")
    return replace(result, program=replace(program, runs_post_accumulate_hooks=False), notes=(*result.notes, note))


def _tensors_requiring_grad(program: CalledProgram) -> dict[str, Tensor]:
    """Return the program's own tensors that require grad."""
    tensors = {**program.wrapped_state(), **program.external_tensors, **program.own_tensors()}
    return {named.name: tensors[named.name] for named in program.tensors if named.requires_grad}


def _rank_of(result: EngineResult) -> Rank | None:
    """Return the rank of the captured process; None if the program ran no collective and has no sharded tensor."""
    if not result.groups and not result.program.wrappings:
        return None
    number, size = own_rank()
    return Rank(number, size, tuple(sorted(result.groups.items())))


def _check_meant(names: Sequence[str], result: EngineResult) -> tuple[str, ...]:
    """Return `names`, the value of the option `meant=`: the custom autograd.Functions, or places of another kind
    (NO_FUNCTIONS), whose backward is meant not to be the derivative of their forward. Raise for any other name."""
    known = dict.fromkeys([*(edge.function for edge in result.opaque if edge.function), *NO_FUNCTIONS])
    for name in names:
        if name not in known:
            raise UsageError(
                f"meant={name!r} is no custom autograd.Function that {result.program.title} calls: it may be one of "
                f"{', '.join(known)}"
            )
    return tuple(names)


def signature_of(result: EngineResult) -> Signature:
    """Return the Signature of a Capture: how the program was called, and the structure of its result."""
    program = result.program
    # The pairs of names of tensors that were passed more than once.
    same = tuple((named.name, other) for named in program.tensors for other in named.other_names)
    return Signature(
        arguments=program.arguments,
        leaves=_constant_leaves(program),
        output=_output_as_json(result.tree, result.leaves, result.outputs, bool(program.loss)),
        differentiable=result.differentiable,
        same=same,
        loss="loss" if program.loss else "",
        call=program.call_arguments.arguments if program.call_arguments is not None else None,
        aliases=_aliases_of(program, same),
    )


WHY_GENERATOR_IS_PINNED = "the program draws from it, and the numbers that it drew are constants of the graph"
"""Why a generator that is not torch's is pinned."""


def _aliases_of(program: ObservedProgram, same: Sequence[tuple[str, str]]) -> tuple[Overlap, ...] | None:
    """Return the pairs of tensors that share memory, among the arguments of a call and the tensors that the program
    reads from outside; None if no call was read. `same` are the pairs of names of one tensor."""
    if program.call_arguments is None:
        return None
    overlaps = overlapping_pairs({**program.call_arguments.memory, **memory_spans(program.external_tensors)})
    # An Overlap begins with the two names.
    return tuple(overlap for overlap in overlaps if overlap[:2] not in same)


def _constant_leaves(program: CalledProgram) -> tuple[tuple[str, str], ...]:
    """Return the name and the text of each non-tensor leaf of the call: they are constants of the capture."""
    return tuple(
        (name, repr(leaf)[:200])
        for name, leaf in zip(program.leaf_names, program.leaves, strict=True)
        if not isinstance(leaf, TensorSlot)
    )


def _output_as_json(tree: ResultTree, leaves: Sequence[Any], names: Sequence[str], loss: bool) -> Any:
    """Return a result's structure as JSON: `{"port": name}` and `{"value": text}` inside lists and objects. `leaves`
    has `A_TENSOR` in the place of each tensor, and `names` the output port of each. `loss` says that the first leaf is
    the loss."""
    ports = iter(names)
    leaves_as_json = [{"port": next(ports)} if leaf is A_TENSOR else _leaf_as_json(leaf) for leaf in leaves]
    if loss:
        # The loss comes first and is no part of the program's result.
        leaves_as_json = leaves_as_json[1:]
    try:
        # Rebuild the containers with descriptions as leaves, then write the containers as JSON. `with_marks` joins the
        # descriptions of leaves of an object that is one leaf for pytree.
        wrapped = pytree.tree_unflatten([_Leaf(item) for item in tree.with_marks(leaves_as_json)], tree.spec)
    except (AttributeError, TypeError, ValueError):  # a container for tensors only, such as PackedSequence
        return {"tuple": leaves_as_json}
    return _tree_as_json(wrapped)


def _leaf_as_json(leaf: Any) -> Any:
    """Return the JSON of a leaf that is no tensor: its text, or the texts of the sizes in a torch.Size."""
    if isinstance(leaf, torch.Size):
        return {"tuple": [{"value": repr(size)} for size in leaf]}
    return {"value": repr(leaf)[:200]}


def _key_text(key: Any) -> str:
    """Return a mapping's key as text; `literal_eval` of it returns a plain literal."""
    return repr(key)[:200]


class _Leaf:
    """Wraps the JSON of a leaf, so that `_tree_as_json` does not walk it as a container."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _tree_as_json(value: Any) -> Any:
    """Return containers with `_Leaf` objects in them as JSON. A mapping whose keys are plain texts is a `dict`, any
    other `items`; a NamedTuple, and a container that is registered with pytree, is a `dict` too."""
    if isinstance(value, _Leaf):
        return value.value
    if isinstance(value, Mapping):
        # These keys can be read back as names from a sample's JSON (`Field.rows`).
        if all(type(key) is str and key.isprintable() and len(key) <= 4096 for key in value):
            return {"dict": {key: _tree_as_json(item) for key, item in value.items()}}
        return {"items": [[_key_text(key), _tree_as_json(item)] for key, item in value.items()]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"dict": {key: _tree_as_json(item) for key, item in zip(value._fields, value, strict=True)}}
    if isinstance(value, (list, tuple)):
        kind = type(value).__name__ if type(value) in (list, tuple) else "tuple"
        return {kind: [_tree_as_json(item) for item in value]}
    # A container that is registered with pytree has its leaves by path; any other object is its own only leaf.
    children, _ = flatten_with_path(value)
    leaves = [leaf for _, leaf in children]
    if len(leaves) == 1 and leaves[0] is value:
        return {"value": repr(value)[:200]}
    return {"dict": {".".join(map(str, path)): _tree_as_json(leaf) for path, leaf in children}}


def requirements(pair: Pair) -> tuple[str, ...]:
    """Return the operators of libraries, not of torch, that the graphs of a Pair call."""
    graphs = list(pair.graphs)
    return tuple(sorted({target for graph in graphs for _, target in custom_operators(graph)}))


# ---- The program behind a Capture


@dataclass(frozen=True, slots=True)
class _ProgramCalls:
    """A program that is ready to be called several times. Before each call, torch's generators are seeded with
    `seed`."""

    stage: Staged
    seed: int

    @property
    def leaves(self) -> Mapping[str, Tensor]:
        """The leaf tensors that require grad, by name."""
        return {name: leaf for name, leaf in self.stage.leaves.items() if leaf.is_leaf and leaf.requires_grad}

    def __call__(self, arguments: Mapping[str, Tensor] | None = None) -> _ProgramCall:
        """Call the program. If values of arguments are passed, the call has new tensors with these values."""
        stage = self.stage if arguments is None else with_other_arguments(self.stage, arguments)
        seed_torch(self.seed)
        return _ProgramCall(stage.program, stage.leaves, run_forward(stage).tensors)

    def call_twice_in_same_memory(
        self, arguments: Mapping[str, Tensor], values: Mapping[str, Tensor]
    ) -> Iterator[_ProgramCall]:
        """Call the program with these arguments in new tensors. Then write other values into the same tensors, and call
        it again: the second call's arguments have the addresses of the first's. Yield both calls; the values are
        written when the second is asked for."""
        stage = with_other_arguments(self.stage, arguments)
        seed_torch(self.seed)
        yield _ProgramCall(stage.program, stage.leaves, run_forward(stage).tensors)
        with untraced():
            for name, tensor in stage.passed.items():
                # Only into the tensors that `with_other_arguments` has made: the others are the caller's own.
                if tensor is not self.stage.passed[name]:
                    # The program may take a clone of the leaf, which has memory of its own: both get the value.
                    for written in (stage.leaves.get(name, tensor), tensor):
                        write_value(written.detach(), values[name])
        seed_torch(self.seed)
        yield _ProgramCall(stage.program, stage.leaves, run_forward(stage).tensors)

    @contextlib.contextmanager
    def frozen(self, names: Sequence[str]) -> Iterator[None]:
        """Let the leaves of these names not require grad inside of the block, as frozen parameters do."""
        leaves = [self.stage.leaves[name] for name in names]
        for leaf in leaves:
            leaf.requires_grad_(False)
        try:
            yield
        finally:
            for leaf in leaves:
                leaf.requires_grad_(True)

    def write(self, parameters: Mapping[str, Tensor]) -> None:
        """Write values into the program's small parameters, as a step of an optimizer does between two calls."""
        write_parameters(self.stage, parameters)


@dataclass(frozen=True, slots=True)
class _ProgramCall:
    """A forward of a program that has run. `leaves` are the tensors that gradients are computed for, and `tensors`
    those that the program returned, by name."""

    program: CalledProgram
    leaves: Mapping[str, Tensor]
    tensors: Mapping[str, Tensor]

    def outputs(self) -> dict[str, Tensor]:
        """Return copies of the outputs by name."""
        return {name: unwrap(tensor).detach().clone() for name, tensor in self.tensors.items()}

    def gradients(
        self, tangents: Mapping[str, Tensor | None] | None = None, again: bool = False
    ) -> dict[str, Tensor | None]:
        """Return copies of the gradients for these tangents (None: ones), by name. An output whose tangent is None
        takes no part, like an output that a loss does not depend on. `again` says that another backward follows."""
        with preserving_random_states(), torch.enable_grad():  # each backward begins with the same random numbers
            gradients = run_backward(self.program, self.leaves, self.tensors, tangents, retain_graph=again)
        return {name: None if gradient is None else gradient.clone() for name, gradient in gradients.items()}


class LiveProgram(Origin):
    """The program that a Capture was traced from, which runs again as the reference of proofs. `Origin` documents what
    every such program has.

    `shared_with_arguments` has copies of the tensors that share memory with an argument. It is mutable: a run stores
    its result in `last_leaves` and `result_summary`, and `release` drops the program. `structure`, `leaves` and `names`
    describe the captured result: its ResultTree, its leaves with `A_TENSOR` in the place of each tensor, and its output
    ports. `captured_leaves` and `last_leaves` are fingerprints of the leaves that are no tensors, of the captured run
    and of the last one. `unguarded` are reads of values that no guard checks. `first_outputs` are the outputs of the
    run that the engine recorded, if it recorded one with values. `parts` has the program of each Pair, if there are
    several.
    """

    def __init__(self, result: EngineResult, options: CaptureOptions) -> None:
        """Keep of an engine's result what proofs need: the program, its constants, and the result of the captured run.
        `options` are the user's options of the capture."""
        self.program = result.program
        # Among them those that the program makes itself, without an operator (`frombuffer`).
        constants = {**result.constants, **_unreachable_constants(result.program)}
        self.constants = {name: self.keep_values_of_rank(tensor.detach()) for name, tensor in constants.items()}
        self.tangents = result.tangents
        self.structure, self.leaves, self.names = result.tree, result.leaves, result.outputs
        self.parts = result.parts
        self.options = options
        self.shared_with_arguments = shared_with_arguments(result.program)
        self.not_bitwise: tuple[PortVerdict, ...] = ()
        self.unguarded = result.unguarded
        # `world` is the fake mode of a program without values: None for one with values.
        self.first_outputs = (
            dict(result.outcome.outputs) if result.outcome is not None and result.program.world is None else {}
        )
        self.last_leaves: tuple[Any, ...] = self.describe_leaves(result.leaves, result.tree)
        self.captured_leaves = self.last_leaves
        self.result_summary = result.tree.summary

    def call(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """Return the callable, and the arguments and keyword arguments of the captured call."""
        return self.program.target(), *arguments_in_new_containers(self.program, self.program.values)

    def with_not_bitwise_ports(self, ports: Iterable[PortVerdict]) -> LiveProgram:
        """Return a copy of this program that has, in `not_bitwise`, those of the ports whose verdict was not
        bitwise."""
        copy_of_self = copy.copy(self)
        copy_of_self.not_bitwise = tuple(port for port in ports if port.verdict != "bitwise")
        copy_of_self.first_outputs = {}  # only the proof at the capture compares them, and it is done
        return copy_of_self

    def release(self) -> None:
        """Drop the program and its arguments."""
        self.program.target.release()
        self.program.external_tensors.clear()
        self.program.foreign_random.objects.clear()
        self.parts = ()

    def run_step_without_default_grad(self, values: Mapping[str, Tensor], anew: bool) -> Outcome:
        """Run one eager step on these values, with `anew` in other tensors than the caller's arguments. Arguments that
        require grad only by the default of a capture do not require grad here."""
        # For the time of the run, because `run_step` reads the program from `self`.
        before, self.program = self.program, _without_default_gradients(self.program)
        try:
            return self.run_step(values, tangents=None, anew=anew)
        finally:
            self.program = before

    @property
    def ran_on_aliases(self) -> bool:
        """Whether the program ran on aliases of some of its arguments: other tensors in the same memory."""
        own = self.program.own_tensors()
        return any(is_reached_as_argument_only(self.program, own[name]) for name in self.program.values if name in own)

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """Remember everything that the program reaches once, and restore it at the end of the block."""
        with outside_modes():
            if self.alive:
                with restoring_state(self.program):
                    yield
            else:
                yield

    @property
    def alive(self) -> bool:
        """Whether the captured program still exists."""
        return self.program.alive

    def values(self) -> dict[str, Tensor]:
        """Return every named tensor that has values: parameters and buffers as they are now, inputs as captured, and
        constants.

        Any tensor that shares memory with an argument is returned as captured too: a copy, which shares its memory with
        the copy of that argument.
        """
        return self.live() | self.shared_with_arguments

    def live(self) -> dict[str, Tensor]:
        """Return every named tensor in its current state: parameters, buffers, constants, and inputs as captured. Raise
        a ReplayError for a tensor whose storage is freed."""
        # Ranks of one process share its tensors. `place` lets this rank's values be in them.
        with contextlib.nullcontext() if self.program.peers is None else self.program.peers.place():
            tensors = {name: tensor.detach() for name, tensor in self.program.tensors_with_values().items()}
            tensors |= {
                name: self.keep_values_of_rank(tensors[name])
                for name in self.program.external_tensors
                if name in tensors
            }
        for name, tensor in tensors.items():
            if not has_memory(tensor):
                raise ReplayError(
                    f"{name!r} has a storage that was resized to less than its elements need, so it has no values: "
                    "restore them, or pass `state`"
                )
        tensors |= self.constants
        for named in self.program.tensors:
            if named.name in tensors:
                tensors |= dict.fromkeys(named.other_names, tensors[named.name])
        return tensors

    def keep_values_of_rank(self, tensor: Tensor) -> Tensor:
        """Return an external tensor, or a copy of it, that keeps the values of this rank. Ranks that run in one process
        share that process's tensors. When it is a rank's turn to run, its values are put into the small ones, so small
        tensors are copied here. The values of larger tensors are not exchanged."""
        return tensor.clone() if self.program.peers is not None and is_small(tensor) else tensor

    def run_step(
        self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None, anew: bool = False
    ) -> Outcome:
        """Run one eager step of the original program on these values, by name; with `anew`, in other tensors than the
        caller's arguments. Without tangents, the backward starts from ones."""
        # `values` may have tensors of the Capture that are none of the program's, such as constants of its graphs.
        names = {named.name for named in self.program.tensors}
        program_values = {name: tensor for name, tensor in values.items() if name in names}
        outcome = run_step(self.program, program_values, tangents, anew=anew)
        self.last_leaves = self.describe_leaves(outcome.leaves, outcome.tree)
        self.result_summary = outcome.tree.summary
        return outcome

    @contextlib.contextmanager
    def calls(self, values: Mapping[str, Tensor], seed: int) -> Iterator[_ProgramCalls]:
        """Prepare the original program to be called several times on these values, under one seed. The changes that the
        calls make are restored at the end of the block."""
        names = {named.name for named in self.program.tensors}
        program_values = {name: tensor for name, tensor in values.items() if name in names}
        with preserving_random_states(), staged(self.program, program_values) as stage:
            yield _ProgramCalls(stage, seed)

    def objects_by_parameter(self) -> Mapping[str, Sequence[Any]]:
        """Return, by parameter, the values of the call that can be compared only by identity."""
        return self.program.call_arguments.live if self.program.call_arguments is not None else {}

    def random_state_digests(self) -> dict[str, str]:
        """Return the current digests of the states, other than torch's, that the program's numbers depend on."""
        return self.program.foreign_random.current_digests()

    def own_generators(self) -> str:
        """Return the program's own generators that it draws from, except torch's; '' if there are none."""
        return ", ".join(self.program.foreign_random.objects)

    def result_difference(self) -> str:
        """Return how the last run's result differs from the Capture's in its containers or its leaves that are no
        tensors; '' if it does not."""
        if self.result_summary != self.structure.summary:
            ours, theirs = (printable(summary)[:200] for summary in (self.structure.summary, self.result_summary))
            return f"the result is {ours}, and the program returns {theirs}"
        if len(self.last_leaves) != len(self.captured_leaves):
            return f"the result has {len(self.captured_leaves)} leaves, and the program returns {len(self.last_leaves)}"
        for index, (ours, theirs) in enumerate(zip(self.captured_leaves, self.last_leaves, strict=True)):
            for path, text in fingerprint_differences(ours, theirs):  # the first difference is enough
                # The path begins with a dot; it is '' where the leaf itself differs.
                return f"leaf {index} of the result, which is no tensor, differs{path and ' in ' + path[1:]}: {text}"
        return ""

    @staticmethod
    def describe_leaves(leaves: Sequence[Any], tree: ResultTree) -> tuple[Any, ...]:
        """Return fingerprints (descriptions that can be compared) of all that a result holds besides tensors: a replay
        returns these parts as captured. `leaves` has `A_TENSOR` in the place of each tensor, and the templates of
        `tree` are the objects that were opened, without their tensors."""
        state = DescribeState(name=lambda _: "")  # tensors among the leaves have no name here
        try:
            # Tensors are described by their values (`argument=False`): a result's have no place in the call.
            return tuple(describe_value(value, state, argument=False).like for value in (*leaves, *tree.templates))
        except RecursionError:
            raise refusal_of_depth() from None

    def rebuild(self, structure: Any, named: Mapping[str, Tensor]) -> Any:
        """Return the outputs in `named` in the containers of the captured result. `structure` is that of a Capture's
        signature, which this class does not need."""
        names = iter(self.names)
        loss = bool(self.program.loss)
        leaves = [named[next(names)] if leaf is A_TENSOR else leaf for leaf in self.leaves]
        return self.structure.rebuild(leaves[1:] if loss else leaves)


def _unreachable_constants(program: ObservedProgram) -> dict[str, Tensor]:
    """Return the external tensors of role `constant` that cannot be reached from the program; none without values. The
    program makes them without an operator (`frombuffer`, a pool of memory), so a run on other values cannot replace
    them."""
    if program.world is not None or not program.external_tensors:
        return {}
    reachable = names_of_outside(program.target())  # the names of all tensors that can be reached, by id
    roles = {named.name: named.role for named in program.tensors}
    return {
        name: tensor
        for name, tensor in program.external_tensors.items()
        if id(tensor) not in reachable and roles.get(name) == "constant"
    }


def _without_default_gradients(program: ObservedProgram) -> ObservedProgram:
    """Return the program without the default `requires_grad` of its arguments. That default applies to a call none of
    whose tensors requires grad: its floating-point and complex inputs then do."""
    if not program.grad_by_default:
        return program
    tensors = tuple(
        replace(named, requires_grad=named.requires_grad and named.name not in program.values)
        for named in program.tensors
    )
    return replace(program, tensors=tensors, grad_by_default=False)


def shared_with_arguments(program: ObservedProgram) -> dict[str, Tensor]:
    """Return copies of the tensors that share memory with an argument without being one, and of these arguments, which
    share memory as the originals do."""
    own = real_own_tensors(program)
    # `values` are the arguments: these groups of tensors in one memory have some arguments and some others.
    groups = [group for group in alias_groups(own) if 0 < len(set(group) & set(program.values)) < len(group)]
    return copy_values({name: own[name] for group in groups for name in group})
