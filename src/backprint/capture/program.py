"""The program as the user has it: a callable, its named tensors, and how it is called.

A Program is what every engine traces and what every proof compares with (`witness` runs it). It knows each tensor by
the program's own name, and holds the callable and the call's own arguments until it is released.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils import stateless
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from backprint.capture.custom import through
from backprint.capture.fake import World, kept_inputs, world_of
from backprint.capture.given import Given, read_given
from backprint.capture.keep import GLOBALS, SWITCHES, Picture, generator_state, kept, put_generator
from backprint.capture.reach import roots
from backprint.errors import CaptureError, ReplayError, UsageError
from backprint.settings import OWN, digest_of, foreign_states, put_foreign
from backprint.tree import bind, copy_values, name_of, ones_like, outputs_of


@dataclass(frozen=True, slots=True)
class Named:
    """One tensor of a program: its own name, its role, and whether it asks for a gradient."""

    name: str
    role: str
    requires_grad: bool
    same: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step gave: outputs by name, gradients and mutations by the program's own names.

    `tangled` are the tensors that depend on others' gradients once the program has written to them. Of the mutations,
    `made` are tensors that modules hold now and did not before, `left` gradients and the state of optimizers. `leaves`
    are those of the result, with `Tensor` in the place of each tensor.
    """

    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor | None]
    mutations: dict[str, Tensor]
    tangled: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    leaves: tuple[Any, ...] = ()


@dataclass(slots=True, eq=False)
class Chance:
    """Where random numbers that are not torch's stood when a call was read, and which of them a run drew.

    A graph cannot draw them: every run of the program has the same ones, and the graph has them as constants.
    `objects` are the generators that the program reaches and drew from, each with its state before, and `after` is
    where a forward left what holds for the process, for its backward to go on from.
    """

    states: dict[str, Any]
    drawn: set[str] = field(default_factory=set)
    objects: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)

    def pins(self) -> dict[str, str]:
        """The digest of each state that the program's numbers depend on."""
        process = {name: digest_of(self.states[name]) for name in sorted(self.drawn)}
        return process | {name: digest_of(state) for name, (_, state) in self.objects.items()}

    def now(self) -> dict[str, str]:
        """The digests of the same states as they are now."""
        process = {name: digest_of(state) for name, state in foreign_states().items() if name in self.drawn}
        return process | {name: digest_of(generator_state(source)) for name, (source, _) in self.objects.items()}


@dataclass(slots=True, eq=False)
class Held:
    """The callable and the caller's own arguments; what is to be put back while a capture or a proof goes on.

    `own` are the arguments' tensors by name; `under` what held for the process at capture, `training` which modules
    were in train mode; `reached` the tensors, by identity, that the callable leads to without its arguments. After
    `release` nothing of it is left.
    """

    target: Any
    call: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    own: dict[str, Tensor] = field(default_factory=dict)
    under: dict[str, Any] = field(default_factory=dict)
    training: tuple[tuple[nn.Module, bool], ...] = ()
    loss: Callable[[Any], Any] | None = None
    picture: Picture | None = None
    reached: frozenset[int] = frozenset()

    def __call__(self) -> Any:
        return self.target

    def release(self) -> None:
        """Let go of everything."""
        self.target, self.call, self.own, self.training, self.loss = None, ((), {}), {}, (), None


@contextlib.contextmanager
def protected(program: Program) -> Iterator[None]:
    """Everything that the program reaches as it was, whatever happens inside: remembered once, put back at the end."""
    held = program.target
    if not isinstance(held, Held) or held.picture is not None or held.target is None:
        yield
        return
    with kept(held.target, held.loss, dict(program.outside)) as picture:
        held.reached = frozenset(picture.by_id)
        picture.go_on([("", held.call)])
        picture.refuse_iterators(program.title)
        held.picture = picture
        try:
            yield
        finally:
            held.picture = None


@contextlib.contextmanager
def as_captured(program: Program) -> Iterator[None]:
    """What held at capture for the process (autocast, default dtype, …) and for the modules (train or eval mode)."""
    held = program.target
    if not isinstance(held, Held):
        yield
        return
    before = {name: GLOBALS[name][0]() for name in SWITCHES}
    flags = [(module, module.training) for module, _ in held.training]
    for module, training in held.training:
        if module.training != training:
            module.training = training
    _put_globals(held.under)
    torch.clear_autocast_cache()  # it goes by a tensor's identity, and what is in the tensor may be another now
    try:
        yield
    finally:
        torch.clear_autocast_cache()
        _put_globals(before)
        for module, training in flags:
            if module.training != training:
                module.training = training


def _put_globals(wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        read, put = GLOBALS[name]
        if read() != value:
            put(value)


@dataclass(slots=True, eq=False)
class Program:
    """A callable with its named tensors. `values` are the inputs as captured; a module's state is live.

    With a `world`, the program runs on fake tensors of that world. `shields` have a copy in front of them while the
    program is traced, `cloned` when it runs: arguments that require grad and are written to.
    """

    target: Callable[[], Any]
    arguments: tuple[str, ...]
    structure: Any
    leaves: tuple[Any, ...]
    leaf_names: tuple[str, ...]
    tensors: tuple[Named, ...]
    values: dict[str, Tensor]
    outside: dict[str, Tensor] = field(default_factory=dict)
    shields: frozenset[str] = frozenset()
    cloned: frozenset[str] = frozenset()
    hooks: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    mode: str | None = None
    loss: Callable[[Any], Any] | None = None
    assembled: tuple[tuple[str, ...], ...] = ()
    defaulted: bool = False
    silent: bool = False
    accumulates: bool = False
    tangents: tuple[str, ...] = ()
    changed: frozenset[str] | None = None
    chance: Chance = field(default_factory=lambda: Chance(foreign_states()))
    title: str = "program"
    world: World | None = None
    specialise: bool = False
    given: Given | None = None

    @property
    def alive(self) -> bool:
        """Whether the captured module still exists."""
        return self.target() is not None

    def state(self) -> dict[str, Tensor]:
        """The live parameters and buffers, by name."""
        target = self.target()
        if target is None:
            raise ReplayError("the captured program is gone (released): pass `state`, or capture again")
        return state_of(target) if isinstance(target, nn.Module) else {}

    def own(self) -> dict[str, Tensor]:
        """The caller's own tensors by name; of a program that has none, its values."""
        held = self.target.own if isinstance(self.target, Held) else {}
        found = {**self.state(), **self.outside, **self.values, **held}
        return {named.name: found[named.name] for named in self.tensors if named.name in found}

    def current(self, keep: bool = True) -> dict[str, Tensor]:
        """Every named tensor as it is now: live state, outside tensors, and the inputs as captured.

        In a world, fresh fake tensors in their place, whose values may be read if the program is to be specialised and
        `keep` says so.
        """
        found = self.held()
        return found if self.world is None else self.world.imitate(found, keep and self.specialise)

    def held(self) -> dict[str, Tensor]:
        """The tensors themselves, fake or real."""
        found = {**self.state(), **self.outside, **self.values}
        return {named.name: found[named.name] for named in self.tensors if named.name in found}

    def known(self) -> dict[str, Tensor]:
        """The tensors that have values: all of them, but for fake ones whose values nobody knows."""
        if self.world is None:
            return self.held()
        known = {name: self.world.values_of(tensor) for name, tensor in self.held().items()}
        return {name: tensor for name, tensor in known.items() if tensor is not None}


# ------------------------------------------------------------------ reading a call


def read_call(
    target: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    requires_grad: Any = None,
    mode: str | None = None,
    loss: Callable[[Any], Any] | None = None,
    fake: bool = False,
    specialise: bool = False,
) -> Program:
    """The Program of `target(*args, **kwargs)`; with `fake`, one that runs on tensors without values."""
    bound, arguments = bind(target, args, kwargs)
    paths, structure = pytree.tree_flatten_with_path((args, dict(kwargs)))
    names = [name_of(path, bound) for path, _ in paths]
    leaves, tensors, values = [], [], {}
    called: dict[str, Tensor] = {}
    seen: dict[int, str] = {}
    state = state_of(target) if isinstance(target, nn.Module) else {}
    buffers = {name for name, _ in target.named_buffers()} if isinstance(target, nn.Module) else set()
    by_id = {id(tensor): name for name, tensor in state.items()}
    for name, tensor in state.items():
        check_tensor(name, tensor, fake)
        tensors.append(Named(name, "buffer" if name in buffers else "parameter", tensor.requires_grad))
    for name, (_, leaf) in zip(names, paths, strict=True):
        if not isinstance(leaf, Tensor):
            leaves.append(leaf)
            continue
        check_tensor(name, leaf, fake)
        first = seen.get(id(leaf)) or by_id.get(id(leaf))
        if first is not None:
            index = next(i for i, named in enumerate(tensors) if named.name == first)
            called[twin := free_name(name, tensors)] = leaf
            tensors[index] = replace(tensors[index], same=(*tensors[index].same, twin))
            leaves.append(Slot(first))
            continue
        name = free_name(name, tensors)
        seen[id(leaf)] = name
        leaves.append(Slot(name))
        tensors.append(Named(name, "input", leaf.requires_grad))
        called[name] = values[name] = leaf
    refuse_inference({**state, **values})
    chosen = choose_gradients(tensors, {**state, **values}, requires_grad)
    modules = {id(m): m for _, root in roots(target) if isinstance(root, nn.Module) for m in root.modules()}
    held = Held(
        target,
        (tuple(args), dict(kwargs)),
        dict(values),
        {name: GLOBALS[name][0]() for name in SWITCHES},
        tuple((module, module.training) for module in modules.values()),
        loss,
    )
    return Program(
        target=(lambda: target) if fake else held,
        arguments=arguments,
        structure=structure,
        leaves=tuple(leaves),
        leaf_names=tuple(names),
        tensors=tuple(chosen),
        values=kept_inputs(values) if fake else copy_values(values),
        hooks={name: tuple(found) for name, tensor in {**state, **values}.items() if (found := hooks_of(tensor))},
        mode=mode,
        loss=loss,
        defaulted=requires_grad is None and not any(named.requires_grad for named in tensors),
        title=getattr(target, "__name__", type(target).__name__),
        world=world_of({**state, **values}) if fake else None,
        specialise=specialise,
        given=read_given(target, args, kwargs, list(called), {**state, **called}),
    )


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a tensor among a call's leaves."""

    name: str


def is_slot(leaf: Any) -> bool:
    """Whether a leaf is the place of a tensor."""
    return isinstance(leaf, Slot)


def slot(name: str) -> Any:
    """The place of a tensor by its name."""
    return Slot(name)


def hooks_of(tensor: Tensor) -> list[Any]:
    """The hooks that a user has put on a leaf tensor's gradient."""
    return list((tensor._backward_hooks or {}).values()) if tensor.is_leaf else []


def check_tensor(name: str, tensor: Tensor, fake: bool = False) -> None:
    if tensor.is_nested:
        raise CaptureError(f"input {name!r} is a nested tensor, which no engine takes; pass its values")
    if not fake and (tensor.device.type == "meta" or isinstance(tensor, FakeTensor)):
        kind = "a fake tensor" if isinstance(tensor, FakeTensor) else "on the meta device"
        raise CaptureError(
            f"input {name!r} is {kind} and has no values to run on: pass one with values, or capture with fake=True"
        )
    if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer, FakeTensor):
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        raise CaptureError(f"input {name!r} is a {kind}: tensor subclasses are not captured; pass plain tensors")
    if tensor.layout not in LAYOUTS:
        raise CaptureError(f"input {name!r} is {str(tensor.layout)[6:]}, which no engine takes; pass it dense")


def refuse_inference(values: Mapping[str, Tensor]) -> None:
    """Refuse tensors that were made in inference mode: they cannot be asked for gradients, nor put back."""
    for name, tensor in values.items():
        if tensor.is_inference():
            raise CaptureError(
                f"{name!r} was made in inference mode, so autograd cannot follow it: make it outside, or pass .clone()"
            )


SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
LAYOUTS = (torch.strided, *SPARSE)
"""Layouts of tensors that engines take; `aot` takes strided ones alone."""


def state_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters, then buffers, by name; a tied weight once, under its first name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def free_name(name: str, tensors: Sequence[Named]) -> str:
    """The name, or with a number where another tensor has it."""
    taken = {known for named in tensors for known in (named.name, *named.same)}
    name = "".join(c if c.isprintable() else "_" for c in name) or "input"
    numbered, count = name, 1
    while numbered in taken:
        count += 1
        numbered = f"{name}~{count}"
    return numbered


def choose_gradients(tensors: Sequence[Named], values: Mapping[str, Tensor], asked: Any) -> list[Named]:
    """Which tensors ask for gradients: as asked, else as they say, else every floating-point input."""
    able = {
        named.name: values[named.name].dtype.is_floating_point or values[named.name].dtype.is_complex
        for named in tensors
    }
    inputs = [named.name for named in tensors if named.role == "input"]
    if asked is None:
        if any(named.requires_grad for named in tensors):
            return list(tensors)
        wanted = {name for name in inputs if able[name]}
    elif isinstance(asked, bool):
        wanted = {name for name in inputs if able[name]} if asked else set()
        return [
            replace(n, requires_grad=n.name in wanted if n.role == "input" else n.requires_grad and asked)
            for n in tensors
        ]
    elif isinstance(asked, Mapping):
        wanted = {named.name for named in tensors if asked.get(named.name, named.requires_grad)}
        asked = tuple(asked)
    elif all(isinstance(item, bool) for item in asked):
        if len(asked) != len(inputs):
            raise UsageError(
                f"requires_grad has {len(asked)} entries for {len(inputs)} tensor inputs "
                f"({', '.join(inputs) or 'none'}): give one True or False for each"
            )
        wanted = {name for name, on in zip(inputs, asked, strict=True) if on}
        wanted |= {named.name for named in tensors if named.role != "input" and named.requires_grad}
        asked = ()
    else:
        wanted = set(asked)
    known = {alias: named.name for named in tensors for alias in (named.name, *named.same)}
    for name in (*wanted, *(asked or ())):
        if name not in known:
            raise UsageError(
                f"requires_grad names {name!r}, which is no tensor of this call; there are: {', '.join(known)}"
            )
        if known[name] in wanted and not able[known[name]]:
            raise UsageError(
                f"requires_grad names {name!r}, a {str(values[known[name]].dtype)[6:]} tensor: "
                "only floating-point and complex tensors have gradients"
            )
    wanted = {known[name] for name in wanted}
    return [replace(named, requires_grad=named.name in wanted) for named in tensors]


# ------------------------------------------------------------------ calling it


class Substitute(TorchFunctionMode):
    """While a program runs, puts other tensors in the place of those it takes from outside."""

    def __init__(self, table: Mapping[int, Tensor]) -> None:
        super().__init__()
        self.table = table

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        swap = functools.partial(_swapped, self.table)
        return through(self, func, _mapped(swap, args), _mapped(swap, kwargs or {}))


def with_others(table: Mapping[int, Tensor], value: Any) -> Any:
    """Nested arguments with the tensors that a table has for others."""
    return _mapped(functools.partial(_swapped, table), value)


def _swapped(table: Mapping[int, Tensor], value: Any) -> Any:
    return table.get(id(value), value)


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply to the leaves of plain nested arguments."""
    kind = type(value)
    if kind in (tuple, list):
        return kind([_mapped(function, item) for item in value])
    if kind is dict:
        return {key: _mapped(function, item) for key, item in value.items()}
    return function(value)


@contextlib.contextmanager
def training_mode(module: Any, mode: str | None) -> Iterator[None]:
    """The module in train or eval mode, and every flag back afterwards."""
    if mode is None or not isinstance(module, nn.Module):
        yield
        return
    before = [(child, child.training) for child in module.modules()]
    module.train(mode == "train")
    try:
        yield
    finally:
        for child, flag in before:
            child.training = flag


@contextlib.contextmanager
def placed(program: Program, values: Mapping[str, Tensor], table: dict[int, Tensor] | None = None) -> Iterator[None]:
    """The program's state and outside tensors with these values, as long as its forward and backward run.

    A backward may run parts of the forward again (checkpointing), so this spans both. With a `table`, the caller has a
    Substitute mode on it already.
    """
    target = program.target()
    swapped = {id(tensor): values[name] for name, tensor in program.own().items() if name in values}
    with contextlib.ExitStack() as stack:
        stack.enter_context(training_mode(target, program.mode))
        if isinstance(target, nn.Module):
            own = state_of(target)
            state = {name: tensor for name, tensor in values.items() if name in own}
            stack.enter_context(stateless._reparametrize_module(target, state, tie_weights=True))
        if table is not None:
            table.clear()
            table.update(swapped)
        elif swapped:
            stack.enter_context(Substitute(swapped))
        yield


@contextlib.contextmanager
def modes_reach_backward() -> Iterator[None]:
    """Function modes stay on while autograd runs: a backward that runs the forward again must meet them.

    `torch.autograd.grad` is itself a function that modes see, and a mode is off while it handles one.
    """
    before, ours = torch.autograd.has_torch_function, threading.get_ident()
    torch.autograd.has_torch_function = lambda given: threading.get_ident() != ours and before(given)
    try:
        yield
    finally:
        torch.autograd.has_torch_function = before


def call(program: Program, values: Mapping[str, Tensor]) -> Any:
    """The program's result on these values, once they are `placed`."""
    target = program.target()
    args, kwargs = own_arguments(program, values)
    with same_chance(program):
        return target(*args, **kwargs)


def own_arguments(program: Program, values: Mapping[str, Tensor]) -> Any:
    """The call's own containers, if what is in them are these very tensors; else new ones."""
    held = program.target
    if isinstance(held, Held):
        found, structure = pytree.tree_flatten(held.call)
        wanted = [values[leaf.name] if isinstance(leaf, Slot) else leaf for leaf in program.leaves]
        if structure == program.structure and len(found) == len(wanted) and all(map(operator.is_, found, wanted)):
            return held.call
    return call_arguments(program, values)


def call_arguments(program: Program, values: Mapping[str, Tensor]) -> Any:
    """The arguments and keyword arguments of the program's call, with these values."""
    leaves = [values[leaf.name] if isinstance(leaf, Slot) else leaf for leaf in program.leaves]
    return pytree.tree_unflatten(leaves, program.structure)


def shielded(program: Program, values: Mapping[str, Tensor], mark: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Copies in front of the tensors that the program changes in place or that carry hooks: leaves stay leaves."""
    ready = dict(values)
    for name in program.shields:
        ready[name] = mark(values[name])
        for hook in program.hooks.get(name, ()):
            if ready[name].requires_grad:
                ready[name].register_hook(hook)
    return ready


def with_loss(program: Program, result: Any) -> Any:
    """The loss first and the result, cut off from it, second; without a loss, the result."""
    if program.loss is None:
        return result
    loss = check_loss(program.loss(result))
    cut = pytree.tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, result)
    return {"loss": loss, "output": cut}


def check_loss(loss: Any) -> Tensor:
    """A loss, which must be one number."""
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise UsageError(f"loss must give one number as a tensor, not {describe(loss)}")
    return loss


def describe(value: Any) -> str:
    """A value in a few words, for messages."""
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def result_of(program: Program, ready: Mapping[str, Tensor]) -> Any:
    """The program's result, its loss with it, and for a second order the gradients of both too."""
    result = with_loss(program, call(program, ready))
    if not program.tangents:
        return result
    named, _ = named_outputs(replace(program, tangents=()), result)
    given = {name: ready[f"tangent.{name}"] for name in program.tangents}
    roots = {name: leaf for name, leaf in named if isinstance(leaf, Tensor) and leaf.requires_grad}
    wanted = [each.name for each in program.tensors if each.requires_grad and not each.name.startswith("tangent.")]
    found = torch.autograd.grad(
        list(roots.values()),
        [ready[name] for name in wanted],
        [given[name] for name in roots],
        create_graph=True,
        allow_unused=True,
    )
    gradients = dict(zip(wanted, found, strict=True))
    if program.loss is not None:
        return {**result, "gradient": gradients}
    return {"output": result, "gradient": gradients}


def named_outputs(program: Program, result: Any) -> tuple[list[tuple[str, Any]], Any]:
    """`outputs_of` for a program's result; a loss is called `loss`, gradients `gradient.NAME`."""
    if program.tangents:
        named, _ = named_outputs(
            replace(program, tangents=()), result if program.loss is not None else result["output"]
        )
        named += [(f"gradient.{name}", gradient) for name, gradient in result["gradient"].items()]
        return named, pytree.tree_structure({"output": result["output"], "gradient": result["gradient"]})
    if program.loss is None:
        return outputs_of(result)
    named, structure = outputs_of(result["output"])
    return [("loss", result["loss"]), *named], structure


def leaf_values(program: Program, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fresh leaves with these values, asking for gradients as the program's tensors do.

    All are copies, but for parameters that the scouting run saw unchanged, and for fake tensors, which are fresh.
    """
    still = {name for name, tensor in values.items() if isinstance(tensor, FakeTensor)}
    if program.changed is not None:
        still |= {named.name for named in program.tensors if named.role == "parameter"} - program.changed
    copies = copy_values({name: tensor for name, tensor in values.items() if name not in still})
    leaves = {name: values[name].data if name in still else copies[name] for name in values}
    for named in program.tensors:
        if named.name in leaves and named.requires_grad:
            leaves[named.name].requires_grad_(True)
    return leaves


def pull_back(
    program: Program, leaves: Mapping[str, Tensor], outputs: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None
) -> dict[str, Tensor | None]:
    """Autograd's own gradients of the outputs that have any, with these tangents (None: ones)."""
    asking = [named for named in program.tensors if named.requires_grad]
    wanted = [named for named in asking if leaves[named.name].requires_grad]  # a program may freeze its own parameters
    roots = {name: tensor for name, tensor in outputs.items() if tensor.requires_grad}
    if not roots or not wanted:
        return {}
    known = tangents or {}
    pulls = [known[name] if name in known else ones_like(tensor) for name, tensor in roots.items()]
    with modes_reach_backward(), same_chance(program, backward=True):
        found = _pulled(program, list(roots.values()), [leaves[named.name] for named in wanted], pulls)
    if found is None:
        return {}
    given = dict(zip((named.name for named in wanted), found, strict=True))
    gradients = {}
    for named in asking:
        gradient = given.get(named.name)
        for name in (named.name, *named.same):
            gradients[name] = gradient.detach() if gradient is not None else None
    return gradients


def _pulled(
    program: Program, roots: list[Tensor], leaves: list[Tensor], tangents: list[Tensor]
) -> Sequence[Tensor | None] | None:
    """The leaves' gradients; None where the program has gone backward from these outputs itself."""
    try:
        if not program.accumulates:
            return torch.autograd.grad(roots, leaves, tangents, allow_unused=True)
        before = [leaf.grad for leaf in leaves]
        for leaf in leaves:
            leaf.grad = None
        torch.autograd.backward(roots, tangents)
        found = [leaf.grad for leaf in leaves]
        for leaf, gradient in zip(leaves, before, strict=True):
            leaf.grad = gradient
        return found
    except RuntimeError as error:
        if "backward through the graph a second time" in str(error):
            return None
        raise


# ------------------------------------------------------------------ random numbers that are not torch's


@contextlib.contextmanager
def same_chance(program: Program, backward: bool = False) -> Iterator[None]:
    """Random numbers that are not torch's as a call found them, or as its forward left them; what was drawn is noted.

    Those of the process are the caller's again afterwards; generators that the program reaches are put back with it.
    """
    chance = program.chance
    callers = foreign_states()
    begun = (backward and chance.after) or chance.states
    put_foreign(begun)
    for source, state in () if backward else chance.objects.values():
        put_generator(source, state)
    before = generators_of(program)
    try:
        yield
        chance.after = foreign_states()
        chance.drawn.update(name for name, state in begun.items() if digest_of(state) != digest_of(chance.after[name]))
        for name, source, state in before:
            if digest_of(state) != digest_of(generator_state(source)):
                chance.objects.setdefault(name, (source, state))
    finally:
        put_foreign(callers)


def generators_of(program: Program) -> list[tuple[str, Any, Any]]:
    """The generators of Python's and numpy's kinds that the program reaches, with their states; not the process's."""
    picture = program.target.picture if isinstance(program.target, Held) else None
    numpy = sys.modules.get("numpy")
    known = (random._inst, numpy.random.mtrand._rand if numpy else None)
    found = [
        (name, source)
        for name, source, _ in (picture.generators if picture is not None else ())
        if not isinstance(source, torch.Generator) and all(source is not each for each in known)
    ]
    return [
        (f"{OWN}{index} ({type(source).__name__}{name and f' {name}'})", source, generator_state(source))
        for index, (name, source) in enumerate(found)
    ]
