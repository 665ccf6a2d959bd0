"""The program as the user has it: a callable, its named tensors, and how it is called.

A CalledProgram describes a call. `read_call` makes it before the program runs, because the program may change its
arguments. An ObservedProgram adds the findings of a first run: which tensors the program reads from outside, and which
it changes. Every engine traces an ObservedProgram, and every proof compares its results with those of the program
itself, which `witness.py` runs. Both are immutable. The callable and the objects that the caller passed are in a
HeldTarget, which drops them when the capture is done.

The caller is the user's code that calls `bp.capture`. The caller's own tensors are the very objects that it passed, and
not copies. A program without values is captured with `fake=True`: it runs on fake tensors.

A wrapper is a tensor around another one (a DTensor); `unwrap` returns the tensor inside, and a Wrapping says how to
wrap it again. A FakeWorld is a FakeTensorMode that knows the values of small constants. ForeignRandomStates are the
states of random generators that are not torch's (`random`, numpy).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backprint._torch.distributed import reduces_gradients
from backprint._torch.fake import FakeTensor
from backprint._torch.tensors import backward_hooks
from backprint.common import names
from backprint.common.text import printable
from backprint.errors import CaptureError, ReplayError, UsageError
from backprint.graph.capture_options import roles_with_grad
from backprint.graph.nouns import Argument
from backprint.trace.fake import FakeWorld, inputs_to_keep, world_of
from backprint.trace.reach import roots
from backprint.trace.state.process import GLOBALS, SWITCHES
from backprint.trace.state.restore import ForeignRandomStates
from backprint.trace.state.snapshot import Snapshot
from backprint.values.exchanges import Others
from backprint.values.fingerprint import (
    DescribeState,
    Like,
    describe_value,
    holds_live_value,
    rest_by_name,
    rest_in_order,
)
from backprint.values.memory import MemorySpan, has_memory, memory_spans
from backprint.values.results import NO_RESULT, ResultTree
from backprint.values.tree import bind_names, copy_values, flatten_with_path, leaf_name
from backprint.values.wrappers import Wrapping, is_wrapped, unwrap, wrapping_of


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """One tensor of a program: its name, its role, and whether it requires grad.

    A tensor that was passed for several parameters has the name of the first as `name`, and the others as
    `other_names`.
    """

    name: str
    role: str
    requires_grad: bool
    other_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """Stands for a tensor among the pytree leaves of a call. `name` is the name of the tensor."""

    name: str


A_TENSOR = TensorSlot(name="")
"""Stands for a tensor among the pytree leaves of a result. It has no name: the leaves are in the order of the
outputs."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of one run of a program, forward and backward: outputs, gradients and mutations, each by name.

    Mutations are the tensors that the run wrote to, made or left behind. `written_with_grad` names the tensors that the
    program wrote to and that require grad after the run. Two kinds of mutations are named apart: `new_state` are
    tensors that modules and containers hold after the run and did not hold before it, and `left_behind` are gradients
    and optimizer states that the run has set. A gradient is None where the outputs do not depend on the tensor.
    `leaves` are the pytree leaves of the program's result, with `A_TENSOR` in the place of each tensor, and `tree` is
    the structure of the result.
    """

    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor | None]
    mutations: dict[str, Tensor]
    written_with_grad: frozenset[str] = frozenset()
    new_state: frozenset[str] = frozenset()
    left_behind: frozenset[str] = frozenset()
    leaves: tuple[Any, ...] = ()
    tree: ResultTree = NO_RESULT


# ---- The callable, which is held until the capture is done


@dataclass(slots=True, eq=False)
class HeldTarget:
    """Holds the callable of a program until `release` is called; calling the HeldTarget returns the callable, or None.

    While the program runs, `snapshot` is a Snapshot: the state of all objects that the callable can reach, as it was
    when `restoring_state` (`running.py`) was entered, which restores them.
    """

    target: Any
    snapshot: Snapshot | None = None

    def __call__(self) -> Any:
        return self.target

    def release(self) -> None:
        """Drop all references to the user's objects."""
        self.target = None


@dataclass(slots=True, eq=False)
class CallersObjects(HeldTarget):
    """Holds a callable and the objects that the caller passed to it. Runs of the program use these objects, not copies.

    `call` has the arguments and the keyword arguments. `argument_tensors` has the tensors among them, by name. A tensor
    that wraps another is in `wrappers`, and the tensor inside is in `argument_tensors`. `switches` has the process-wide
    settings at capture, `device` the default device at capture, and `training` each module with its training mode.
    `loss` is the function of the result that is differentiated instead of it. `reachable_ids` has the ids of the
    tensors that the callable can reach in other ways than through its arguments.
    """

    call: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    argument_tensors: dict[str, Tensor] = field(default_factory=dict)
    wrappers: dict[str, Tensor] = field(default_factory=dict)
    switches: dict[str, Any] = field(default_factory=dict)
    device: torch.device = field(default_factory=torch.get_default_device)
    training: tuple[tuple[nn.Module, bool], ...] = ()
    loss: Callable[[Any], Any] | None = None
    reachable_ids: frozenset[int] = frozenset()

    def release(self) -> None:
        self.target, self.call, self.training, self.loss = None, ((), {}), (), None
        self.argument_tensors, self.wrappers = {}, {}


# ---- The program


@dataclass(frozen=True, slots=True, eq=False)
class CalledProgram:
    """A callable with the named tensors of one call.

    `arguments` are the names of the callable's parameters. `tensors` are the tensors of the call in order: parameters,
    buffers, then inputs, which are the tensors among the arguments. `values` has copies of the inputs; parameters and
    buffers are read from the module itself whenever they are needed. `structure` and `leaves` are the pytree of the
    arguments, with a TensorSlot in the place of each tensor, and `leaf_names` the name of each leaf. `hooks` has the
    user's hooks on each tensor's gradient. `mode` is the mode, train or eval, that the modules are set to; None leaves
    each as it is. `loss` is the function of the result that is differentiated instead of it. `grad_by_default` says
    that no tensor of the call required grad, so that all floating-point and complex inputs require grad in the capture.
    `call_arguments` describes all arguments as they were passed. `tangents` names the outputs whose tangents are inputs
    too, in a program that returns its own gradients. `foreign_random` has the states of random generators that are not
    torch's, and `title` the name of the callable, for messages. With a `world` (a FakeTensorMode), the program runs on
    fake tensors of that mode; `specialize` says that it may read their values, which then become constants with guards.

    Autograd refuses in-place writes to leaves that require grad, so the program is passed clones of some tensors.
    `cloned_when_traced` names the tensors that it writes to or that have hooks. `cloned_when_eager` names the ones
    among them that are cloned in eager runs too.

    A tensor that wraps another (a DTensor) is known by the tensor inside; `wrappings` says, by name, how to wrap one
    again. A program with `peers` is one rank that runs alone: the peers, the other ranks as they were in an earlier
    run, answer its collectives. `runs_post_accumulate_hooks` says that hooks which run when a gradient is in `.grad`
    (`register_post_accumulate_grad_hook`) are a part of the program.
    """

    target: HeldTarget
    arguments: tuple[str, ...]
    structure: Any
    leaves: tuple[Any, ...]
    leaf_names: tuple[str, ...]
    tensors: tuple[NamedTensor, ...]
    values: dict[str, Tensor]
    cloned_when_traced: frozenset[str] = frozenset()
    cloned_when_eager: frozenset[str] = frozenset()
    hooks: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    mode: str | None = None
    loss: Callable[[Any], Any] | None = None
    grad_by_default: bool = False
    tangents: tuple[str, ...] = ()
    foreign_random: ForeignRandomStates = field(default_factory=ForeignRandomStates)
    title: str = "program"
    world: FakeWorld | None = None
    specialize: bool = False
    call_arguments: _CallArguments | None = None
    wrappings: Mapping[str, Wrapping] = field(default_factory=dict)
    peers: Others | None = None
    runs_post_accumulate_hooks: bool = True

    @property
    def external_tensors(self) -> dict[str, Tensor]:
        """The tensors that the program reads from outside its call; empty before its first run."""
        return {}

    @property
    def changed_names(self) -> frozenset[str]:
        """The names of tensors that the program writes to; empty before its first run."""
        return frozenset()

    @property
    def written_alias_groups(self) -> tuple[tuple[str, ...], ...]:
        """Groups of input tensors that share memory, where the program writes to it; empty before its first run."""
        return ()

    @property
    def accumulates_gradients(self) -> bool:
        """Whether the gradients are only in the `.grad` of leaf tensors, and `torch.autograd.grad` does not return
        them. The backward runs another backward inside, as reentrant checkpointing does (known after the first run), or
        the program is one rank of several, which may reduce gradients once they are accumulated."""
        return self.reduces_gradients or self.peers is not None

    @property
    def reduces_gradients(self) -> bool:
        """Whether a module of the program reduces gradients among ranks when autograd has accumulated them."""
        target = self.target()
        return isinstance(target, nn.Module) and any(map(reduces_gradients, target.modules()))

    @property
    def alive(self) -> bool:
        """Whether the callable is still held: `release` was not called."""
        return self.target() is not None

    def state(self) -> dict[str, Tensor]:
        """Return the parameters and buffers as they are now, by name; the tensor inside of each that wraps another."""
        return {name: unwrap(tensor) for name, tensor in self.wrapped_state().items()}

    def wrapped_state(self) -> dict[str, Tensor]:
        """Return the parameters and buffers as they are now, by name. A tensor that wraps another is returned as it
        is."""
        target = self.target()
        if target is None:
            raise ReplayError("the captured program is gone (released): pass `state`, or capture again")
        return state_of(target) if isinstance(target, nn.Module) else {}

    def wrappers(self) -> dict[str, Tensor]:
        """Return the caller's own tensors that wrap another, by name."""
        if not self.wrappings:
            return {}
        own = self.target.wrappers if isinstance(self.target, CallersObjects) else {}
        tensors = {**self.wrapped_state(), **own}
        return {name: tensors[name] for name in self.wrappings if name in tensors}

    def own_tensors(self) -> dict[str, Tensor]:
        """Return every named tensor: arguments as the caller's own tensors, or, if these are not held (`fake=True`, a
        graph of Dynamo's), as captured; parameters and buffers as they are now; and external tensors."""
        return self.tensors_in_order(self.target.argument_tensors if isinstance(self.target, CallersObjects) else {})

    def all_tensors(self) -> dict[str, Tensor]:
        """Return every named tensor, fake or real: parameters, buffers and external tensors as they are now, and inputs
        as captured."""
        return self.tensors_in_order({})

    def tensors_in_order(self, replacements: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return every named tensor in the order of `tensors`, with `replacements` for some of them."""
        tensors = {**self.state(), **self.external_tensors, **self.values, **replacements}
        return {named.name: tensors[named.name] for named in self.tensors if named.name in tensors}

    def current_tensors(self, keep_values: bool = True) -> dict[str, Tensor]:
        """Return every named tensor as `all_tensors` does. With a `world`, a new fake tensor replaces each.

        The new fake tensors have the values that the world knows, which the program may then read, if it is captured
        with `specialize` and `keep_values` is true.
        """
        tensors = self.all_tensors()
        return tensors if self.world is None else self.world.fake_copies(tensors, keep_values and self.specialize)

    def tensors_with_values(self) -> dict[str, Tensor]:
        """Return the tensors that have values: all except fake tensors with unknown values."""
        if self.world is None:
            return self.all_tensors()
        known = {name: self.world.values_of(tensor) for name, tensor in self.all_tensors().items()}
        return {name: tensor for name, tensor in known.items() if tensor is not None}


@dataclass(frozen=True, slots=True, eq=False)
class ObservedProgram(CalledProgram):
    """A program with the findings of its first run. Its `tensors` and `hooks` include external tensors, which
    `external_tensors` has by name. The properties of CalledProgram explain the findings."""

    external_tensors: dict[str, Tensor] = field(default_factory=dict)
    changed_names: frozenset[str] = frozenset()
    written_alias_groups: tuple[tuple[str, ...], ...] = ()
    accumulates_gradients: bool = False


def observed_program(program: CalledProgram, **findings: Any) -> ObservedProgram:
    """Return a program with the findings of a run, which are named as the fields of ObservedProgram."""
    # Not by `replace`, which returns an object of the same class. The findings are fields of ObservedProgram only:
    # CalledProgram has properties of the same names, with the answers before a run.
    values = {field_.name: getattr(program, field_.name) for field_ in fields(program)}
    return ObservedProgram(**{**values, **findings})


# ---- The tensors of a program


SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
"""Layouts of sparse tensors."""


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters, then buffers, by name. A tied weight is returned once, under its first name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def gradient_hooks_of(tensor: Tensor) -> list[Any]:
    """Return the user's hooks on a leaf tensor's gradient (`register_hook`); none for a tensor that is no leaf."""
    return list((backward_hooks(tensor) or {}).values()) if tensor.is_leaf else []


def nontensor_arguments(program: CalledProgram) -> list[Any]:
    """Return the pytree leaves of the arguments that are not tensors."""
    return [leaf for leaf in program.leaves if not isinstance(leaf, TensorSlot)]


# ---- The arguments of a call
# A fingerprint (`Like`) is a description of a value as JSON (`values/fingerprint.py`), with which a replay compares its
# own arguments. `describe_value(value, state).like` is the fingerprint of a value. The DescribeState collects what was
# seen of several values: its `name` returns the name of the tensor with an index among them, and its `identities` are
# the live values, which can be compared only by identity.


@dataclass(frozen=True, slots=True)
class _CallArguments:
    """The arguments of a call, as they were passed.

    `arguments` has the fingerprint of each parameter's value. `live` has, by parameter, the values that are kept alive,
    because they can be compared only by identity: objects, functions and classes. `memory` has the part of its storage
    that each tensor uses, parameters and buffers included.
    """

    arguments: tuple[Argument, ...] = ()
    live: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    memory: Mapping[str, MemorySpan] = field(default_factory=dict)


def _read_arguments(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], tensors: Mapping[str, Tensor]
) -> _CallArguments:
    """Return the description of a call's arguments. `names` has the names of the tensors among them, in the order of
    the pytree leaves, and `tensors` the parameters, buffers and arguments whose memory is described."""
    parameters = parameters_of(target)
    remaining_names = iter(names)
    # By parameter: the key and the fingerprint of each value that was passed for it, and the state of describing these.
    passed: dict[str, list[tuple[Any, Like]]] = {}
    states: dict[str, DescribeState] = {}
    for name, key, value in _passed_values(parameters, args, kwargs):
        # Values are described in the order of the leaves, so the next tensor has the next name.
        state = states.setdefault(name, DescribeState(name=lambda _: next(remaining_names)))
        passed.setdefault(name, []).append((key, describe_value(value, state).like))
    rows = []
    for name in dict.fromkeys((*parameters, *passed)):
        # A default may hold a tensor too, which has no name in the call.
        state = states.setdefault(name, DescribeState(name=lambda _: ""))
        rows.append(_argument_of_parameter(name, parameters.get(name), passed.get(name), state))
    # The values among the arguments that can be compared only by identity.
    live_values = {name: state.identities for name, state in states.items() if state.identities}
    return _CallArguments(
        tuple(argument for argument in rows if argument is not None), live_values, memory_spans(tensors)
    )


def parameters_of(target: Any) -> dict[str, inspect.Parameter]:
    """Return a callable's parameters by name, `*args` and `**kwargs` with their stars; an empty dict if Python cannot
    tell its signature."""
    try:
        signature = inspect.signature(target.forward if isinstance(target, nn.Module) else target)
    except (TypeError, ValueError):
        return {}
    return {STARS.get(parameter.kind, "") + parameter.name: parameter for parameter in signature.parameters.values()}


STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
"""The stars before the name of a parameter, by its kind."""

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
"""Kinds of parameters that accept a positional argument."""


class _PassedValue(NamedTuple):
    """A value of a call: the name of its parameter, its key in `*args` or `**kwargs` (None for any other parameter),
    and the value."""

    parameter: str
    key: int | str | None
    value: Any


def _passed_values(
    parameters: Mapping[str, inspect.Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[_PassedValue]:
    """Yield the values of a call, in the order in which they are passed, each with its parameter. A value that no
    parameter takes (the signature is not known) has a name such as `input_0`, or its keyword."""
    # The names of `*args` and `**kwargs`, with their stars; '' if the callable has none.
    var_positional = next(
        (name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_POSITIONAL), ""
    )
    var_keyword = next((name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_KEYWORD), "")
    positional = [name for name, parameter in parameters.items() if parameter.kind in POSITIONAL]
    for index, value in enumerate(args):
        if index < len(positional):
            yield _PassedValue(positional[index], None, value)
        else:
            yield _PassedValue(var_positional or input_name(index, len(args)), index, value)
    for key, value in kwargs.items():
        is_named = key in parameters or not var_keyword
        yield _PassedValue(key, None, value) if is_named else _PassedValue(var_keyword, key, value)


def input_name(index: int, count: int) -> str:
    """Return the name of the argument at an index, of `count`, for a callable whose parameter names are not known."""
    return f"input_{index}" if count > 1 else "input"


def _argument_of_parameter(
    name: str, parameter: inspect.Parameter | None, passed: list[tuple[Any, Like]] | None, state: DescribeState
) -> Argument | None:
    """Return the Argument (name, fingerprint, whether the captured value is the default, whether it can be passed only
    by name) of one parameter; None if it was not passed and has no default.

    `name` has the stars of `*args` and `**kwargs`. `passed` has the key (in `*args` or `**kwargs`) and the fingerprint
    of each value that was passed for it (None: it was not passed), and `state` is the DescribeState of these. A
    parameter that was not passed has the fingerprint of its default.
    """
    if name.startswith("**"):
        return Argument(name, rest_by_name(passed or ()))
    if name.startswith("*"):
        return Argument(name, rest_in_order(passed or ()))
    keyword_only = parameter is not None and parameter.kind is inspect.Parameter.KEYWORD_ONLY
    default = None
    if parameter is not None and parameter.default is not inspect.Parameter.empty:
        # A default that was not used is described apart, so that no live value of it is kept.
        default_state = state if passed is None else DescribeState(name=lambda _: "")
        default = describe_value(parameter.default, default_state, argument=False).like
    if passed is None:
        return None if default is None else Argument(name, default, optional=True, keyword=keyword_only)
    _, like = passed[0]
    # Live values are compared by identity, so one that is passed is not known to be the default.
    is_default = default is not None and default == like and not holds_live_value(like)
    return Argument(name, like, optional=is_default, keyword=keyword_only)


# ---- Reading a call: its tensors under the program's own names, and which of them require grad


def read_call(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    requires_grad: Any = None,
    mode: str | None = None,
    loss: Callable[[Any], Any] | None = None,
    fake: bool = False,
    specialize: bool = False,
    peers: Others | None = None,
) -> CalledProgram:
    """Return the program of the call `target(*args, **kwargs)`, which does not run here. With `fake`, it is a program
    that runs on tensors without values. The other parameters are options of a capture: `requires_grad` says which
    tensors require grad in it (`choose_requires_grad`), and the rest are fields of CalledProgram. Refuse tensors that
    no engine captures."""
    # Name the pytree leaves of the arguments by the parameters that they are passed for. `arguments` are the names of
    # the callable's parameters.
    positional_names, arguments = bind_names(target, args, kwargs)
    leaves_with_paths, structure = flatten_with_path((args, dict(kwargs)))
    names = tuple(leaf_name(path, positional_names) for path, _ in leaves_with_paths)
    state = state_of(target) if isinstance(target, nn.Module) else {}
    # The reader starts with the module's own tensors: a parameter that is passed as an argument keeps its name.
    reader = _ArgumentReader(
        tensors=_state_tensors(target, state, fake),
        name_of_id={id(tensor): name for name, tensor in state.items()},
        fake=fake,
    )
    leaves = tuple(reader.read_leaf(name, leaf) for name, (_, leaf) in zip(names, leaves_with_paths, strict=True))
    values = {name: unwrap(tensor) for name, tensor in reader.values.items()}
    tensors = {**state, **reader.values}
    wrappings = {name: wrapping for name, tensor in tensors.items() if (wrapping := wrapping_of(tensor)) is not None}
    # From here on a tensor that wraps another (a DTensor) is known by the tensor inside.
    unwrapped = {name: unwrap(tensor) for name, tensor in tensors.items()}
    _refuse_inference_tensors(unwrapped)
    return CalledProgram(
        target=HeldTarget(target) if fake else _hold_callers_objects(target, args, kwargs, reader.values, loss),
        arguments=arguments,
        structure=structure,
        leaves=leaves,
        leaf_names=names,
        tensors=tuple(choose_requires_grad(reader.tensors, tensors, requires_grad)),
        values=inputs_to_keep(values) if fake else copy_values(values),
        hooks={name: tuple(hooks) for name, tensor in tensors.items() if (hooks := gradient_hooks_of(tensor))},
        mode=mode,
        loss=loss,
        grad_by_default=requires_grad is None and not any(named.requires_grad for named in reader.tensors),
        title=printable(str(getattr(target, "__name__", type(target).__name__)))[:4096],
        world=world_of(unwrapped) if fake else None,
        specialize=specialize,
        call_arguments=_read_arguments(
            target,
            args,
            kwargs,
            list(reader.by_passed_name),
            {name: unwrap(tensor) for name, tensor in {**state, **reader.by_passed_name}.items()},
        ),
        wrappings=wrappings,
        peers=peers,
    )


def _state_tensors(target: Any, state: Mapping[str, Tensor], fake: bool) -> list[NamedTensor]:
    """Return the NamedTensors of `state`, the parameters and buffers of the module `target`; refuse a tensor that no
    engine captures. `fake` allows tensors without values."""
    buffers = {name for name, _ in target.named_buffers()} if isinstance(target, nn.Module) else set()
    for name, tensor in state.items():
        check_tensor(name, tensor, fake)
    return [
        NamedTensor(name, "buffer" if name in buffers else "parameter", tensor.requires_grad)
        for name, tensor in state.items()
    ]


@dataclass(slots=True)
class _ArgumentReader:
    """Reads the pytree leaves of a call in order.

    `tensors` begins as the module's own tensors, and gets those among the leaves. `name_of_id` has the name of each
    tensor read so far, by the tensor's id. `fake` allows tensors without values. `by_passed_name` has a tensor under
    every name for which it was passed. `values` has the tensors that are neither parameters nor buffers of the module.
    """

    tensors: list[NamedTensor]
    name_of_id: dict[int, str]
    fake: bool
    by_passed_name: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)

    def read_leaf(self, name: str, leaf: Any) -> Any:
        """Return a leaf, or for a tensor a TensorSlot. A tensor that was read before, or is a parameter or buffer, gets
        `name` as one of its other names."""
        if not isinstance(leaf, Tensor):
            return leaf
        check_tensor(name, leaf, self.fake)
        name = free_name(name, self.tensors)
        self.by_passed_name[name] = leaf
        first_name = self.name_of_id.setdefault(id(leaf), name)
        if first_name == name:
            self.tensors.append(NamedTensor(name, "input", leaf.requires_grad))
            self.values[name] = leaf
        else:
            index = next(i for i, named in enumerate(self.tensors) if named.name == first_name)
            self.tensors[index] = replace(self.tensors[index], other_names=(*self.tensors[index].other_names, name))
        return TensorSlot(first_name)


def _hold_callers_objects(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values: Mapping[str, Tensor],
    loss: Callable[[Any], Any] | None,
) -> CallersObjects:
    """Return the callable and its arguments as they are, with the settings of the process and the training mode of
    every module that the callable reaches as they are now. `values` are the tensors among the arguments."""
    modules = {
        id(module): module for _, root in roots(target) if isinstance(root, nn.Module) for module in root.modules()
    }
    return CallersObjects(
        target,
        call=(tuple(args), dict(kwargs)),
        argument_tensors={name: unwrap(tensor) for name, tensor in values.items()},
        wrappers={name: tensor for name, tensor in values.items() if is_wrapped(tensor)},
        switches={name: GLOBALS[name][0]() for name in SWITCHES},  # the first function of each reads it
        training=tuple((module, module.training) for module in modules.values()),
        loss=loss,
    )


def check_tensor(name: str, tensor: Tensor, fake: bool = False) -> None:
    """Refuse a tensor of a call that no engine can capture. With `fake`, it may be without values. `name` is its name
    in the message."""
    tensor = unwrap(tensor)
    if tensor.is_nested:
        raise CaptureError(f"input {name!r} is a nested tensor, which no engine takes; pass its parts as tensors")
    if not fake and (tensor.device.type == "meta" or isinstance(tensor, FakeTensor)):
        kind = "a fake tensor" if isinstance(tensor, FakeTensor) else "on the meta device"
        raise CaptureError(
            f"input {name!r} is {kind} and has no values to run on: pass one with values, or capture with fake=True"
        )
    if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer, FakeTensor):
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        raise CaptureError(
            f"input {name!r} is a {kind}: of tensor subclasses, only those that wrap one tensor are captured "
            "(DTensor); pass plain tensors"
        )
    if not has_memory(tensor):
        raise CaptureError(
            f"input {name!r} has a storage that was resized to less than its elements need, so it has no values: "
            "restore them first, as FSDP does before it runs a module"
        )
    if tensor.layout not in LAYOUTS:
        raise CaptureError(f"input {name!r} is {str(tensor.layout)[6:]}, which no engine takes; pass it dense")


def _refuse_inference_tensors(values: Mapping[str, Tensor]) -> None:
    """Refuse tensors that were made in inference mode: they cannot require grad, and cannot be restored."""
    for name, tensor in values.items():
        if tensor.is_inference():
            raise CaptureError(
                f"{name!r} was made in inference mode, so autograd cannot follow it: make it outside, or pass .clone()"
            )


LAYOUTS = (torch.strided, *SPARSE)
"""Layouts that engines support; `aot` supports strided tensors only."""


def free_name(name: str, tensors: Sequence[NamedTensor]) -> str:
    """Return a name in printable characters, with a number appended if one of these tensors has it."""
    used = {known for named in tensors for known in (named.name, *named.other_names)}
    name = "".join(c if c.isprintable() else "_" for c in name) or "input"
    return names.free_name(name, used, "{}~{}", 2)


def choose_requires_grad(
    tensors: Sequence[NamedTensor], values: Mapping[str, Tensor], requires_grad: Any
) -> list[NamedTensor]:
    """Return the tensors with the `requires_grad` that they have in the capture. `values` has the tensor of each, by
    name.

    The option `requires_grad` names those that require grad, or is a word for roles ("inputs"), True or False,
    a flag for each input, or a flag by name. Without it (None), the tensors that require grad already do, or, if there
    are none, every floating-point and complex input. Raise a UsageError for a name that is no tensor of the call, a
    tensor whose dtype has no gradients, or another number of flags than of inputs.
    """
    inputs = {named.name for named in tensors if named.role == "input" and can_require_grad(values[named.name])}
    # The parameters and buffers that require grad, which True and flags for the inputs leave so.
    state = {named.name for named in tensors if named.role != "input" and named.requires_grad}
    if requires_grad is None:
        return list(tensors) if any(named.requires_grad for named in tensors) else _with_requires_grad(tensors, inputs)
    if isinstance(requires_grad, bool):
        return _with_requires_grad(tensors, inputs | state if requires_grad else set())
    if isinstance(requires_grad, str):
        roles = roles_with_grad(requires_grad)
        names_of_roles = {
            named.name for named in tensors if named.role in roles and can_require_grad(values[named.name])
        }
        return _with_requires_grad(tensors, names_of_roles)
    # Any name of a tensor that was passed several times stands for it.
    first_name_by_name = {alias: named.name for named in tensors for alias in (named.name, *named.other_names)}
    if isinstance(requires_grad, Mapping):
        flags = _flags_by_first_name(requires_grad, first_name_by_name)
        # A tensor that the mapping does not name stays as it is.
        names_with_grad = {named.name for named in tensors if flags.get(named.name, named.requires_grad)}
        given_names = [name for name, flag in requires_grad.items() if flag]
    elif all(isinstance(item, bool) for item in requires_grad):
        names_with_grad = _inputs_by_position(tensors, requires_grad) | state
        given_names = list(names_with_grad)
    else:
        given_names = list(requires_grad)
        for name in given_names:
            _check_tensor_name(name, first_name_by_name)
        names_with_grad = {first_name_by_name[name] for name in given_names}
    for name in given_names:
        tensor = values[first_name_by_name[name]]
        if not can_require_grad(tensor):
            raise UsageError(
                f"requires_grad names {name!r}, a {str(tensor.dtype)[6:]} tensor: "
                "only floating-point and complex tensors have gradients"
            )
    return _with_requires_grad(tensors, names_with_grad)


def _flags_by_first_name(requires_grad: Mapping[str, Any], first_name_by_name: Mapping[str, str]) -> dict[str, bool]:
    """Return the flag of each tensor that a mapping names, by the tensor's first name. Refuse a name that is no
    tensor's, and two flags for one tensor."""
    flags: dict[str, bool] = {}
    for name, flag in requires_grad.items():
        _check_tensor_name(name, first_name_by_name)
        first_name = first_name_by_name[name]
        if flags.setdefault(first_name, bool(flag)) != bool(flag):
            raise UsageError(
                f"requires_grad says True and False of one tensor, which was passed as {first_name!r} and under other "
                f"names, {name!r} among them: give one of them"
            )
    return flags


def can_require_grad(tensor: Tensor) -> bool:
    """Whether a tensor's dtype can require grad."""
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _with_requires_grad(tensors: Sequence[NamedTensor], wanted: Collection[str]) -> list[NamedTensor]:
    """Return the tensors; only those in `wanted` require grad."""
    return [replace(named, requires_grad=named.name in wanted) for named in tensors]


def _inputs_by_position(tensors: Sequence[NamedTensor], flags: Sequence[bool]) -> set[str]:
    """Return the names of the tensor inputs whose flag is True; there must be one flag for each input."""
    inputs = [named.name for named in tensors if named.role == "input"]
    if len(flags) != len(inputs):
        raise UsageError(
            f"requires_grad has {len(flags)} entries for {len(inputs)} tensor inputs "
            f"({', '.join(inputs) or 'none'}): give one True or False for each"
        )
    return {name for name, flag in zip(inputs, flags, strict=True) if flag}


def _check_tensor_name(name: str, known: Mapping[str, str]) -> None:
    """Refuse a name in `requires_grad` that is not a key of `known`: any name of a tensor of the call."""
    if name not in known:
        raise UsageError(
            f"requires_grad names {name!r}, which is not a tensor of this call; there are: {', '.join(known)}"
        )
