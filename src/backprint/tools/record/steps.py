"""Record one step of a running script, and make a Capture of it.

A dispatch mode records every operator from the end of one optimizer step to the end of the next. Nothing is restored,
because the script goes on: memory is copied before it is overwritten, and results are kept, because the step cannot be
run again. The script must not notice: an error of Backprint, or anything that cannot be followed, drops the step and
nothing else.

Words of this file:

- On the *tape* (a Tape: the recorded calls in order, each a TapedCall) a tensor is a StorageView: its storage and its
  geometry there. A *place* is a StorageView, and a *memory* the number of its storage on the tape. The key of a storage
  (`storage_id`) tells storages apart outside the tape.
- A tensor *from outside* (an external tensor) is one that the step uses and has not made: a parameter, a batch, the
  state of an optimizer. It is an input of the step, and its key on the tape is `outside 0`, `outside 1` and so on.
  Where something is counted by index, the index is this number.
- A *leaf* is a tensor from outside as the script has it. A *wrapper* is a tensor subclass around another tensor, as
  DTensor is; operators see the tensor inside, which `unwrap` returns.
- A *sum* is a call by which autograd adds to a `.grad` that exists, and a *term* what it adds.
- A *form* of a collective does the same by functional collectives, which return their result; a graph has these alone.
- A *local* is the name of a value in the text of a graph; the name of a port is that of the script's variable.
- The tape is cut into *segments*, each a forward or a backward, and a forward with the backward after it is a *group*,
  which becomes a Pair.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.distributed import (
    GROUP_POSITIONS,
    collective_name,
    form_of,
    group_of,
    is_collective,
    label_of,
    leaves_values_unread,
    name_groups_of,
    own_rank,
    results_of_work,
    sharding_text,
    why_not_recorded,
    work_of,
)
from backprint._torch.modes import (
    DisableTorchFunction,
    TorchDispatchMode,
    dispatch_modes,
    pop_mode,
    push_mode,
    without_modes,
)
from backprint._torch.operators import is_wait
from backprint._torch.tensors import storage_id
from backprint.errors import CaptureError, ReplayError, describe_error
from backprint.graph.keys import PortKey, tangent_name
from backprint.graph.nouns import (
    Capture,
    Guard,
    Link,
    Origin,
    Pair,
    Port,
    Rank,
    Ref,
    Signature,
    Spec,
    Step,
    paths_of_modules,
    refs,
)
from backprint.graph.steps import used
from backprint.tools.record.messages import Messages, empty_result
from backprint.trace import frames
from backprint.trace.assembly import Joint, Result, assemble
from backprint.trace.captured import requirements
from backprint.trace.custom import decompose_under_mode, is_composite
from backprint.trace.eager.tape import (
    PLAIN_TENSOR_TYPES,
    WITH_FAKE,
    Recorder,
    StorageView,
    Tape,
    TapedCall,
    bytes_spanned,
    iter_leaves,
)
from backprint.trace.eager.writer import Writer
from backprint.trace.edges import OpaqueEdges
from backprint.trace.external import ExternalTensors
from backprint.trace.observe import Call
from backprint.trace.program import Outcome
from backprint.trace.reach import classes_around, objects_held_by, state_of_optimizer
from backprint.trace.watch import Observations, facts_of, is_number_read, storages
from backprint.values import settings
from backprint.values.exchanges import call_of
from backprint.values.geometry import is_dense
from backprint.values.memory import has_memory
from backprint.values.tree import plain_leaves
from backprint.values.wrappers import is_wrapped, is_wrapper_class, unwrap, wait_for_collectives

# ---- Names of tensors, after the variables of the script's frames

Named = dict[int, tuple[str, Tensor]]
"""Tensors with their names, by identity; a wrapper by that of the tensor inside, which operators take."""


def _objects_in_frames(frame: Any) -> list[tuple[str, Any]]:
    """Return what the variables of the user's frames, from this one outwards, hold, and what these objects hold in
    turn, each with its dotted name."""
    roots: list[tuple[str, Any]] = []
    while frame is not None:
        if frames.is_users(frame.f_code.co_filename):
            roots += frames.variables(frame).items()
        frame = frame.f_back
    return list(_reachable_names(roots))


def _paths_of_modules(reachable: Sequence[tuple[str, Any]]) -> dict[int, str]:
    """Return the path of every module among objects with dotted names, by its id: `model.blocks.0`, as its parameters
    are named. Of several paths of a module the first counts."""
    paths: dict[int, str] = {}
    for prefix, value in reachable:
        if isinstance(value, nn.Module):
            for name, module in value.named_modules(prefix=re.sub(NOT_IN_NAMES, "_", prefix)):
                paths.setdefault(id(module), name)
    return paths


def _classes_by_path(reachable: Sequence[tuple[str, Any]]) -> dict[str, str]:
    """Return the names of the classes of all modules by the paths that `_paths_of_modules` gives them."""
    classes: dict[str, str] = {}
    for prefix, value in reachable:
        if isinstance(value, nn.Module):
            for name, module in value.named_modules(prefix=re.sub(NOT_IN_NAMES, "_", prefix)):
                classes.setdefault(name, type(module).__name__)
    return classes


NOT_IN_NAMES = r"[^\w.]+"
"""What a name cannot have: keys of dictionaries may be any text."""


def names_in_frames(frame: Any) -> Named:
    """Return the names of the tensors that the variables of the user's frames hold, as `named_tensors` chooses them."""
    return named_tensors(_objects_in_frames(frame))


def named_tensors(reachable: Sequence[tuple[str, Any]]) -> Named:
    """Return the names of the tensors among what variables hold. Of several names of one tensor the first counts: in a
    model, then in the state of an optimizer, then of a variable."""
    named: Named = {}
    for prefix, value in reachable:
        if isinstance(value, nn.Module):
            for name, tensor in (*value.named_parameters(), *value.named_buffers()):
                named.setdefault(id(unwrap(tensor)), (f"{prefix}.{name}", tensor))
    for prefix, value in reachable:
        if isinstance(value, torch.optim.Optimizer):
            for name, tensor in state_of_optimizer(value).items():
                named.setdefault(id(unwrap(tensor)), (f"{prefix}.state.{name}", tensor))
    for prefix, value in reachable:
        if isinstance(value, Tensor):
            named.setdefault(id(unwrap(value)), (prefix, value))
    return named


def _reachable_names(roots: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield what variables hold, breadth first, and what that holds, by dotted names; at most 3 levels deep and 20,000
    objects, because a script may hold a whole dataset. Models and optimizers are yielded and not opened."""
    queue = [(name, value, 0) for name, value in roots if not name.startswith("__")]
    visited: set[int] = set()
    for name, value, depth in queue:  # the list grows meanwhile
        if id(value) in visited or len(visited) > 20_000:
            continue
        visited.add(id(value))
        yield name, value
        if depth < 3 and not isinstance(value, (Tensor, nn.Module, torch.optim.Optimizer, type)):
            with contextlib.suppress(Exception):  # an object of the script's may raise
                queue += [(f"{name}.{key}", child, depth + 1) for key, child in objects_held_by(value)]


def _names_of_outside_tensors(outside: Sequence[Tensor], leaves: Sequence[Tensor], known: Named) -> dict[str, str]:
    """Return a name for every tensor from outside, by its key on the tape, `outside 0` and so on: its name in the
    script; or for a gradient the name of its parameter with `.grad`; or, where it has none or another tensor has it
    already, `input_0` and so on. `known` has the names in the script, and `leaves` the tensors in their wrappers."""
    names_by_key: dict[str, str] = {}
    names_by_id = {id_: name for id_, (name, _) in known.items()}
    owners_by_id_of_grad = {
        id(unwrap(leaf.grad)): names_by_id.get(id(tensor))
        for tensor, leaf in zip(outside, leaves, strict=True)
        if leaf.is_leaf and leaf.grad is not None
    }
    taken: set[str] = set()
    count = 0
    for index, tensor in enumerate(outside):
        name = names_by_id.get(id(tensor))
        if name is None and (owner := owners_by_id_of_grad.get(id(tensor))):
            name = f"{owner}.grad"
        name = name and re.sub(NOT_IN_NAMES, "_", name)[:MAX_LENGTH_OF_NAME]
        if name is None or name in taken:
            name, count = f"input_{count}", count + 1
        taken.add(name)
        names_by_key[f"outside {index}"] = name
    return names_by_key


MAX_LENGTH_OF_NAME = 200
"""At most so many characters of a name are used: the key of a dictionary may be a whole text."""


# ---- Recording a step of a script that goes on

aten = torch.ops.aten


SETTERS = (aten.set_.source_Storage, aten.set_.source_Storage_storage_offset)
"""Operators that put a tensor on memory that no operator made, as a DataLoader does for a worker's shared memory."""

ROUNDS_OTHERWISE: dict[Any, str] = {
    **dict.fromkeys((aten.prod.default, aten.prod.dim_int), "prod"),
    aten.masked_fill.Tensor: "masked_fill",
}
"""Operators whose backward formula differs under a dispatch mode, with other rounding (`isTensorSubclassLike` in
torch's FunctionsManual.cpp). On torch 2.13 no other operator of `op_db` does."""

ROUNDS_OTHERWISE_TWICE = {aten.cumprod.default: "cumprod", aten._linalg_det.default: "det"}
"""Operators whose backward of the backward rounds otherwise under a dispatch mode."""


@dataclass(slots=True)
class Backward:
    """One `backward()` of a step: its calls on the tape, from index `begin` to before `end`, the tensors that it began
    from (`roots`) with copies of their values (`losses`), and the gradients that it computed.

    `tangents` says whether the script passed gradients of the roots; else autograd starts from ones. By the index of
    each leaf, `before` and `after` have the StorageView of its `.grad` before and after this backward, `given` has what
    this backward added to it, and `shards` says of which DTensor that is a part, as text. `terms` has what autograd
    added to each `.grad` that existed, by its StorageView.
    """

    begin: int
    roots: list[StorageView]
    losses: list[Tensor]
    tangents: bool
    before: dict[int, StorageView] = field(default_factory=dict)
    terms: dict[StorageView, Tensor] = field(default_factory=dict)
    end: int = 0
    after: dict[int, StorageView] = field(default_factory=dict)
    given: dict[int, Tensor] = field(default_factory=dict)
    shards: dict[int, str] = field(default_factory=dict)


class LiveRecorder(Recorder, TorchDispatchMode):
    """Records a step that goes on: nothing is restored, but memory is copied before it is overwritten.

    It is the mode of a script, where each call of the script's own runs as it is, whatever recording it comes to; so it
    is a mode of its own, and no observer of `ObservingMode` (the mode under which a capture runs a program).

    `paths` has the path of each module of the script, by id, and `classes` the name of its class, by path.
    `lost` says why the step was dropped, '' if it was not; from then on every operator runs as if there were no
    recorder. `backwards` has the step's backwards so far, and `messages` its collectives. `wrappers` has the leaves
    that wrap a tensor, and `shards` says, as text, of which DTensor a tensor from outside is a part: both by the id of
    the tensor inside. While a call is written in another form than it runs in, `written` is the number of memories
    before it, else None. `waits` says that the script waits for a collective now. `twice` names an operator of
    ROUNDS_OTHERWISE_TWICE that the step has called. `known` has for each memory from outside the parts of it that are
    inputs or results of calls so far, and `outside_at_begin` an alias of each tensor from outside, made when it was
    first used.

    From Recorder there are `seen` (what is noted of the step: `seen.external_tensors` are the tensors from outside),
    `external` (their memory, with its content before the first write), `edges` (the finder of opaque edges, where
    autograd of the plain forward would not give the program's gradient), `memories` (the number of each storage on the
    tape, by the storage's key) and `filled` (keys of storages that were resized from 0 bytes and not used since).
    """

    # Without this, torch would raise into the script. A higher-order operator that cannot be opened drops the step.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let the script compile: torch turns this mode off while `torch.compile` works."""
        return True

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        Recorder.__init__(self, paths={})  # `know_parameters` sets them
        self.classes: dict[str, str] = {}
        self._forget_outside()
        self.lost, self.twice = "", ""
        self.pid, self.thread = os.getpid(), threading.get_ident()
        self.backwards: list[Backward] = []
        self.outside_at_begin: list[Tensor] = []
        self.known: dict[int, list[StorageView]] = {}
        self.messages = Messages()
        self.wrappers: dict[int, Tensor] = {}
        self.shards: dict[int, str] = {}
        self.written: int | None = None
        self.waits = False

    def _forget_outside(self) -> None:
        """Forget all tensors from outside, and what was noted of the step."""
        self.seen = Observations()
        self.external = ExternalTensors(self.seen, self.paths)
        # Edges are found from the nodes behind each loss, not from calls in `no_grad` mode.
        self.edges = OpaqueEdges(self.seen, self.paths, without_grad=False)

    def drop_step(self, why: str) -> None:
        """Drop the step, and everything that was kept for it."""
        self.lost = self.lost or why
        self._forget_outside()
        self.tape, self.known, self.backwards, self.outside_at_begin = Tape(), {}, [], []
        self.messages, self.wrappers, self.shards = Messages(), {}, {}

    # ---- Operators

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator as the script calls it, and write it on the tape."""
        kwargs = kwargs or {}
        if self.waits:
            return func(*args, **kwargs)  # the backend copies what it received: no operator of the script
        if any(kind not in PLAIN_TENSOR_TYPES for kind in types):
            if WITH_FAKE.issuperset(types):
                return func(*args, **kwargs)  # DTensor learns the shapes of results: no value of the script
            if any(map(is_wrapper_class, types)):
                self.run_own_part(self.note_wrappers, args, kwargs)
            return NotImplemented  # the subclass handles the call, and calls operators on the tensors inside
        if is_number_read(func, args):
            return args[0]
        if is_composite(func, args, kwargs):
            return decompose_under_mode(self, func, args, kwargs)  # each operator that it runs as comes here
        if self.written is not None:
            return self.write_only(func, args, kwargs)
        if (form := form_of(func)) is not None:
            return self.run_and_write_form(form, func, args, kwargs)
        call = Call(func, args, kwargs)
        self.run_own_part(self.before, call)
        result = func(*args, **kwargs)  # outside `run_own_part`: errors here are the script's
        if call.kept:  # empty where `before` dropped the step
            self.run_own_part(self.after, call, result)
        return result

    def run_and_write_form(self, form: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
        """Run a collective as the script calls it and return its result; on the tape is its form."""
        calls_before, mark = len(self.tape.calls), self.messages.mark()
        # It is written first: what this rank sends is copied before the collective may overwrite it.
        foreseen = self.run_own_part(self.write_form, form, func, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except BaseException:
            self.run_own_part(self.forget_form, calls_before, mark)
            raise
        self.run_own_part(self.enter_results_of_form, foreseen, args, result)
        return result

    def run_own_part(self, act: Callable[..., Any], *args: Any) -> Any:
        """Call a function of ours and return its result; an error in it drops the step, and the result is None. It is
        not called once the step was dropped, nor in a forked child, which has no step."""
        if self.lost or os.getpid() != self.pid:
            return None
        try:
            with DisableTorchFunction():
                return act(*args)
        except Exception as error:  # the script goes on
            self.drop_step(describe_error(error))
            return None

    def before(self, call: Call) -> None:
        """Note in `call.kept` a call that is about to run, for `after`; drop the step if our mode would change what its
        backward computes."""
        func, args = call.func, call.args
        rounds_otherwise = func in ROUNDS_OTHERWISE and torch.is_grad_enabled()
        # Arguments 0 and 2: the input, and the value of `masked_fill`.
        if rounds_otherwise and any(isinstance(arg, Tensor) and arg.requires_grad for arg in (args[0], *args[2:3])):
            self.drop_step(
                f"the backward of {ROUNDS_OTHERWISE[func]} rounds differently while it is recorded{_place_of_script()}"
            )
            return
        if func in ROUNDS_OTHERWISE_TWICE:
            self.twice = ROUNDS_OTHERWISE_TWICE[func]
        # A pair for `Recorder.after`: the call as it will be on the tape (None if a graph has no step for it), and
        # contents of arguments to compare, by which it refuses silent writes: none, they are not looked for here.
        call.kept[self] = self.begun(call, facts_of(func)), ()

    def after(self, call: Call, result: Any) -> None:
        """Write a call that has run on the tape, and note what a collective sends and what is added to a gradient."""
        func, args = call.func, call.args
        if func in SETTERS and storage_id(storages(result)[-1]) not in self.memories:
            self.enter_unknown_tensor(None, args[0], writes=False)  # with its new memory it is a tensor from outside
            return
        if is_wait(func):
            self.messages.read(args[0])
        elif is_collective(func) and self.written is None:
            # The script's own call: it may still run, so what it received is copied later, when `result` is first read.
            received = torch.empty_like(result)
            self.messages.begin(call_of(collective_name(func), args, label_of), args[0], received)
            self.messages.note_copy(received, result)
        taped: TapedCall | None = call.kept[self][0]
        if taped is None:
            return
        if is_sum(taped) and taped.args[0] in self.backwards[-1].before.values():
            terms, grad, term = self.backwards[-1].terms, taped.args[0], args[1].detach()
            terms[grad] = terms[grad] + term if grad in terms else term.clone()
        if facts_of(func).counts_no_writes:
            torch.autograd.graph.increment_version(args[0])  # torch itself does not, while a mode is active
        super().after(call, result)
        for place in iter_leaves(self.tape.calls[-1].result):
            if type(place) is StorageView and place.memory in self.known:
                self.known[place.memory].append(place)  # a view of an input is derived from it on the tape

    def place_argument(self, func: Any, tensor: Tensor, writes: bool, recorded_by_autograd: bool) -> StorageView:
        """Return the StorageView of an argument, as `Recorder` does; one that is not known is entered first, and what a
        collective put there is kept, as it is about to be read."""
        if self.messages.unread and tensor.layout is torch.strided and not leaves_values_unread(func):
            self.messages.read(tensor)
        key = storage_id(storages(tensor)[-1])  # a sparse tensor has several storages, the last with its values
        if key in self.filled:  # its bytes are new: it is no longer the tensor that it was
            self.enter_unwritten(tensor, key)
        elif not self.is_known(tensor):
            self.enter_unknown_tensor(func, tensor, writes)
        return super().place_argument(func, tensor, writes, recorded_by_autograd)

    # ---- Processes: collectives, and tensors that are sharded among them

    @contextlib.contextmanager
    def waiting(self, work: Any) -> Iterator[None]:
        """Be the context of a wait for a collective, whose handle is `work`: in the step's thread, nothing is recorded
        in it, and what the collective received is kept after it; in another thread, the step is dropped if the
        collective changes a tensor of it."""
        # Autograd runs the backward of a device in a thread of its own, in which it sets the modes of this one.
        before, is_here = self.waits, self.thread == threading.get_ident() or self in dispatch_modes()
        self.waits = before or is_here
        try:
            yield
            if not is_here:
                self.run_own_part(self.note_other_thread, work)
            if is_here and not before:  # the outermost of waits that are inside each other
                with without_modes():
                    self.run_own_part(self.messages.arrived, work)
        finally:
            self.waits = before

    def note_other_thread(self, work: Any) -> None:
        """Drop the step if another thread waits for a collective that changes a tensor of the step."""
        for tensor in results_of_work(work):
            if storage_id(tensor.untyped_storage()) in self.memories:
                raise CaptureError(
                    f"another thread runs a collective on a tensor of the step, of shape {list(tensor.shape)}, which "
                    "is not seen"
                )

    def note_wrappers(self, args: Any, kwargs: Any) -> None:
        """Note the wrappers among a call's arguments that are autograd's leaves, or come from outside. The operators
        that they call on the tensors inside are recorded."""
        for argument in plain_leaves(args, kwargs):
            if not isinstance(argument, Tensor) or not is_wrapped(argument):
                continue
            inner = unwrap(argument)
            name_groups_of(argument)  # of its mesh: labels of groups on the tape are the names of dimensions
            if not self.is_known(inner):
                self.enter_unknown_tensor(None, inner, writes=False)
                self.shards[id(inner)] = sharding_text(argument)
            if argument.is_leaf and argument.requires_grad:
                self.wrappers.setdefault(id(inner), argument)

    def write_form(self, form: Callable[..., Any], func: Any, args: Any, kwargs: Any) -> Any:
        """Write a collective on the tape in its form, and return what the form returns: tensors of the right geometry,
        without the values that are received. No collective runs, and no tensor of the script's changes."""
        if str(func) in WITHOUT_INVERSE:
            raise CaptureError(f"what {func} receives is not found again in what it returns{_place_of_script()}")
        for argument in plain_leaves(args, kwargs):
            if isinstance(argument, Tensor):
                # The collective may write to it, and autograd makes no node of a collective.
                self.place_argument(func, argument, writes=True, recorded_by_autograd=False)
        self.written = self.memory_count
        try:
            with self.recording():
                return form(*args, **kwargs)
        finally:
            self.written = None

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """In this block, be active: torch has turned the mode off while it handles an operator."""
        push_mode(self)
        try:
            yield
        finally:
            pop_mode()

    def write_only(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Write a call of a form on the tape, and return its result. It runs only if it makes new tensors; the script's
        own call writes to those of the script."""
        call = Call(func, args, kwargs)
        self.before(call)
        if is_collective(func):
            size = group_of(args[GROUP_POSITIONS[collective_name(func)]]).size()
            result = empty_result(func, args, size)
            self.messages.begin(call_of(collective_name(func), args, label_of), args[0], result)
        elif is_wait(func):
            result = args[0]
        elif func is aten.copy_.default and not self.is_made_by_form(args[0]):
            # The script's own call puts there what it receives; `messages` takes it from there when it is first read.
            result = args[0]
            self.messages.note_copy(args[1], result)
        else:
            result = func(*args, **kwargs)
        if call.kept:
            self.after(call, result)
        return result

    def is_made_by_form(self, tensor: Tensor) -> bool:
        """Whether a tensor is in memory that the form of the call has made: numbers are given in order."""
        return self.memories[storage_id(tensor.untyped_storage())] >= (self.written or 0)

    def forget_form(self, calls_before: int, mark: dict[str, int]) -> None:
        """Forget what was written for a collective that has raised: the calls on the tape after the first
        `calls_before`, and the messages after a mark."""
        del self.tape.calls[calls_before:]
        self.messages.forget_after(mark)

    def enter_results_of_form(self, foreseen: Any, args: Any, result: Any) -> None:
        """Enter the tensors that a collective has returned as those that its form has on the tape (`foreseen`), and the
        handle by which the script waits for it. A tensor of the script's that it was passed and returns is on the tape
        already."""
        if (work := work_of(result)) is not None:
            tensors = [leaf for leaf in plain_leaves(args, result) if isinstance(leaf, Tensor)]
            self.messages.expect(work, tensors)
        # Not strict: a result may end with the boxed handle, and `foreseen` is None once the step was dropped.
        for expected, tensor in zip(plain_leaves(foreseen), plain_leaves(result), strict=False):
            if not isinstance(tensor, Tensor) or not isinstance(expected, Tensor):
                continue
            key, key_of_expected = (storage_id(leaf.untyped_storage()) for leaf in (tensor, expected))
            if key in self.memories:
                continue
            # The tensor takes the number of the memory of the expected one, whose value on the tape is its own.
            self.add_memory(tensor)
            self.memories[key] = self.memories[key_of_expected]
            if self.place(tensor) != self.place(expected):
                raise CaptureError(f"a collective returned {list(tensor.stride())} strides{_place_of_script()}")
            self.messages.note_copy(expected, tensor)

    def is_known(self, tensor: Tensor) -> bool:
        """Whether a tensor was made in the step, or lies in a part of memory from outside that is an input already.

        Where the step first uses a part of a batch, that part is an input, and the whole batch is not known.
        """
        if storage_id(storages(tensor)[-1]) not in self.memories:
            return False
        place = self.place(tensor)
        known = self.known.get(place.memory)
        return known is None or any(_contains_memory(known_place, place) for known_place in known)

    def enter_outside_tensor(self, func: Any, tensor: Tensor) -> str:
        """Enter a tensor as an input of the step, and return its key, `outside 0` and so on. `func` is the operator
        that is passed the tensor, None outside of a call. Refuse a tensor that is not strided, that has no memory, or
        that a collective's callback may have made."""
        if tensor.layout is not torch.strided:
            raise CaptureError(f"the step uses a {str(tensor.layout)[6:]} tensor from outside{_place_of_script()}")
        _refuse_freed("a tensor from outside", tensor)
        if func is not None and form_of(func) is None and self.messages.is_result_of_callback(tensor):
            raise CaptureError(
                f"the script uses a tensor of shape {list(tensor.shape)} that no operator of the step has made"
                f"{_place_of_script()}, and has not waited for a collective that returns such a tensor: what a "
                "callback computes of it is not seen; wait for it (work.wait()) in the step"
            )
        storage = tensor.untyped_storage()
        self.external.callers[storage_id(storage)] = storage  # its content is copied before the first write to it
        self.seen.external_tensors.append(tensor)
        self.outside_at_begin.append(tensor.detach())  # a tensor may be put on other memory while the step runs
        self.add_memory(tensor)
        place = self.place(tensor)
        self.known.setdefault(place.memory, []).append(place)
        return f"outside {len(self.seen.external_tensors) - 1}"

    def know_parameters(self, frame: FrameType) -> None:
        """Enter the script's parameters and the paths of its modules from the start, by the variables of its frames;
        refuse a kind of distributed module that is not recorded."""
        reachable = _objects_in_frames(frame)
        for _, value in reachable:
            if isinstance(value, nn.Module) and (why := why_not_recorded(value)):
                raise CaptureError(why)
        self.paths, self.classes = _paths_of_modules(reachable), _classes_by_path(reachable)
        self._forget_outside()  # `external` and `edges` are made anew, with these paths for their messages
        for _, tensor in named_tensors(reachable).values():
            if isinstance(tensor, nn.Parameter):
                self.note_wrappers((tensor,), {})
                self.place_of(unwrap(tensor))  # this enters it

    def place_of(self, tensor: Tensor) -> StorageView:
        """Return the StorageView of a tensor; one that is not known is entered first, as a tensor from outside."""
        if not self.is_known(tensor):
            self.enter_unknown_tensor(None, tensor, writes=False)
        return self.place(tensor)

    # ---- Backwards

    def leaves(self) -> list[Tensor]:
        """Return the tensors from outside, in the order of their indices, as the script has them: in wrappers, or
        not."""
        return [self.wrappers.get(id(tensor), tensor) for tensor in self.seen.external_tensors]

    def gradients(self) -> dict[int, StorageView]:
        """Return the StorageView of the `.grad` of each leaf that has one, by the leaf's index."""
        leaves = [(index, leaf) for index, leaf in enumerate(self.leaves()) if leaf.is_leaf and leaf.requires_grad]
        return {index: self.place_of(unwrap(leaf.grad)) for index, leaf in leaves if leaf.grad is not None}

    def enter_backward(self, roots: Sequence[Tensor], tangents: bool) -> None:
        """Note that an outermost call of `torch.autograd.backward` on these roots begins. `tangents` says whether the
        script passes gradients of them."""
        for root in roots:
            with self.recording():  # a root of DTensor waits for its collective, and the wait is a call of the step
                wait_for_collectives(root)
        places = [self.place_of(unwrap(root)) for root in roots]
        losses = [unwrap(root).detach().clone() for root in roots]
        mark = Backward(begin=len(self.tape.calls), roots=places, losses=losses, tangents=tangents)
        self.edges.note_edges_behind_outputs({str(index): root for index, root in enumerate(roots)})
        mark.before = self.gradients()
        self.backwards.append(mark)

    def leave_backward(self) -> None:
        """Note that the backward has ended, and keep what it computed for each leaf: its `.grad` where there was none
        before, else what it added to the `.grad` that was there (`terms`)."""
        mark = self.backwards[-1]
        mark.end, mark.after = len(self.tape.calls), self.gradients()
        leaves = self.leaves()
        for index, place in mark.after.items():
            gradient = leaves[index].grad
            assert gradient is not None
            _refuse_freed("a gradient", unwrap(gradient))
            mark.shards[index] = sharding_text(gradient)
            if index not in mark.before:
                mark.given[index] = unwrap(gradient).detach().clone()
                # A reduction of this gradient may still run: what it receives goes into the copy too.
                self.messages.also_into(mark.given[index], unwrap(gradient))
            elif place in mark.terms:
                mark.given[index] = mark.terms[place]

    def values_at_begin(self) -> list[Tensor]:
        """Return copies of the tensors from outside as they were when the step began. Memory that the step has written
        to is read from the copy that was made before its first write."""
        tensors = []
        for tensor in self.outside_at_begin:
            storage = self.external.content_before.get(storage_id(tensor.untyped_storage()))
            with torch.no_grad():
                if storage is None:  # the step has not written to it
                    tensors.append(tensor.detach().clone())
                    continue
                empty = torch.empty((), dtype=tensor.dtype, device=tensor.device)
                tensors.append(empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride()).clone())
        return tensors


WITHOUT_INVERSE = frozenset({"_dtensor.shard_dim_alltoall.default"})
"""Operators whose result is computed from what is received, so that the values received cannot be copied from it."""


def _refuse_freed(what: str, tensor: Tensor | None) -> None:
    """Refuse a tensor, which the message calls `what`, whose storage was resized to less than it needs: its values
    cannot be kept."""
    if tensor is not None and not has_memory(tensor):
        raise CaptureError(f"the step frees the memory of {what}, or begins without it{_place_of_script()}")


def is_sum(call: TapedCall) -> bool:
    """Whether a call accumulates into the gradient of a leaf: `grad.add_(term)`, called by autograd's AccumulateGrad
    (`call.sums`)."""
    is_plain_add = call.func is aten.add_.Tensor and len(call.args) == 2 and not call.kwargs
    return is_plain_add and call.sums and type(call.args[1]) is StorageView


def _contains_memory(whole: StorageView, part: StorageView) -> bool:
    """Whether every element of `part` is one of `whole`, which lies in the same memory: the first bytes and the last
    ones tell if `whole` has no gaps. A sparse tensor (no stride) is a part of itself alone."""
    if whole == part or whole.stride is None or part.stride is None:
        return whole == part
    starts_inside = whole.offset * whole.dtype.itemsize <= part.offset * part.dtype.itemsize
    ends_inside = bytes_spanned(part) <= bytes_spanned(whole)  # both are counted from the beginning of the storage
    return is_dense(whole.shape, whole.stride) and starts_inside and ends_inside


def _place_of_script() -> str:
    """Return the script's current line for a message: ` at FILE:LINE in FUNCTION: 'CODE'`."""
    return frames.place(frames.here({}))  # without the paths of modules, which this text does not have


# ---- Segments of the tape: forwards, and backwards with their gradients


@dataclass(slots=True)
class _Segment:
    """A segment of the step in one direction. A forward has steps alone.

    A backward has its `mark`, and the locals of its roots (`losses`) and of the ones that autograd starts from
    (`tangents`) by the names `loss` or `loss.0`, `loss.1`; the locals of its `gradients`, and as text of which DTensor
    each is a part (`shards`), by the names of the leaves.
    """

    steps: list[Step]
    mark: Backward | None = None
    tangents: dict[str, str] = field(default_factory=dict)
    losses: dict[str, str] = field(default_factory=dict)
    gradients: dict[str, str] = field(default_factory=dict)
    shards: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Uses:
    """Which calls of a backward accumulate into an existing gradient (`sums`), and the last call that uses each memory
    other than as the target of such a sum (`last`), by index among the calls."""

    sums: frozenset[int]
    last: dict[int, int]


def _uses_in(calls: Sequence[TapedCall], gradients: Collection[StorageView]) -> Uses:
    """Return the Uses of the calls of a backward: which of them are sums, and the last that uses each memory.
    `gradients` are those that existed before the backward."""
    sums = frozenset(index for index, call in enumerate(calls) if is_sum(call) and call.args[0] in gradients)
    last: dict[int, int] = {}
    for index, call in enumerate(calls):
        arguments = call.args[1:] if index in sums else (call.args, call.kwargs)
        last |= {leaf.memory: index for leaf in iter_leaves(*arguments) if type(leaf) is StorageView}
    return Uses(sums, last)


class _StepWriter:
    """Writes a step's tape segment by segment: calls outside a backward, a backward, calls outside, and so on.

    Where a backward adds to an existing gradient, the graph of the backward returns its own term, and the sum is in the
    next forward segment: `late` has the calls of these sums. `leaving` are the places of the values that pass from a
    backward to a later segment. `names` has the name of each tensor from outside, and `fresh` that of each constant, by
    its key on the tape.
    """

    def __init__(self, recorder: LiveRecorder, names: Mapping[str, str]) -> None:
        self.recorder, self.names = recorder, dict(names)
        tape = recorder.tape
        self.fresh = {key: f"constant_{index}" for index, key in enumerate(tape.constants)}
        # No state to start from: draws continue from the script's state, which no seed sets and no replay can have.
        self.writer = Writer(tape, self.names | self.fresh, always_ports=list(self.names), start={})
        self.segments: list[_Segment] = []
        self.late: list[TapedCall] = []
        self.leaving: set[StorageView] = set()

    # ---- Segments

    def write(self) -> None:
        """Write all segments."""
        begin = 0
        for mark in self.recorder.backwards:
            self.forward(self.recorder.tape.calls[begin : mark.begin])
            self.backward(mark)
            begin = mark.end
        self.forward(self.recorder.tape.calls[begin:])

    def forward(self, calls: Sequence[TapedCall]) -> None:
        """Write calls outside a backward; sums that the backward before them made into `.grad` come first."""
        segment = _Segment([])
        self.writer.forget_views(self.leaving)  # this graph derives views itself, except those that a backward returns
        late, self.late = self.late, []
        self.writer.write_into(segment.steps, (*late, *calls))
        self.segments.append(segment)

    def backward(self, mark: Backward) -> None:
        """Write one backward: its roots have tangents, and it returns each leaf's own gradient."""
        segment = _Segment([], mark)
        for index, place in enumerate(mark.roots):
            segment.losses["loss" if len(mark.roots) == 1 else f"loss.{index}"] = self.writer.value_at(place).name
        self.writer.write_into(segment.steps)  # all that is written from here on
        added = self.write_calls_of_backward(mark, segment)
        self.leaving |= set(mark.after.values())
        for index in mark.given:
            local = added.get(mark.after[index]) or self.writer.value_at(mark.after[index]).name
            segment.gradients[self.names[f"outside {index}"]] = local
            segment.shards[self.names[f"outside {index}"]] = mark.shards[index]
        self.segments.append(segment)

    def write_calls_of_backward(self, mark: Backward, segment: _Segment) -> dict[StorageView, str]:
        """Write the calls of a backward, except those of its tangents, and put sums off into `late` where that is
        possible. Return the local of what the backward adds to each `.grad` that existed: of the term, or of the sum of
        the terms where it adds several times."""
        added: dict[StorageView, str] = {}
        calls = self.recorder.tape.calls[mark.begin : mark.end]
        uses = _uses_in(calls, frozenset(mark.terms))
        for index, call in enumerate(calls):
            if self.is_tangent(call, mark, segment):
                continue
            if index in uses.sums:
                grad, term = call.args
                self.leaving.add(term)
                added[grad] = self.writer.add(call, added.get(grad), term)
                if uses.last.get(grad.memory, -1) < index:  # no call after it reads the sum in this backward
                    self.late.append(call)
                    continue
            self.writer.write_call(call)
        self.writer.end_calls()
        return added

    def is_tangent(self, call: TapedCall, mark: Backward, segment: _Segment) -> bool:
        """Return whether a call makes the ones that autograd starts from at a root, outside of any node. If so, they
        become the tangent of this loss, an input of the backward. There are none where the script passed gradients."""
        if mark.tangents or call.func is not aten.ones_like.default or call.node is not None:
            return False
        if call.args[0] not in mark.roots:
            return False
        name = list(segment.losses)[mark.roots.index(call.args[0])]  # `losses` is in the order of the roots
        segment.tangents[name] = self.writer.begin_value(f"tangent_{name}", call.result)
        return True

    # ---- What the step came to

    def final_values(self) -> dict[str, tuple[str, Tensor]]:
        """Return the tensors from outside that the step changed, by name: the local of the last value, and the
        value."""
        finals = {}
        for key, tensor in zip(self.names, self.recorder.seen.external_tensors, strict=True):
            value = self.writer.value_at(self.recorder.place(tensor)).name
            if value != self.writer.locals[key]:
                _refuse_freed(self.names[key], tensor)
                finals[self.names[key]] = (value, tensor.detach().clone())
        return finals

    def outcome(self, finals: Mapping[str, tuple[str, Tensor]], losses: Sequence[str]) -> Outcome:
        """Return the results of the real step: losses, gradients, and changed tensors. `finals` are those of
        `final_values`, and `losses` the names of the losses of all backwards, in order."""
        marks = self.recorder.backwards
        values = [loss for mark in marks for loss in mark.losses]
        gradients: dict[str, Tensor] = {}
        for mark in reversed(marks):  # a replay adds in this order, the latest first, and other orders round otherwise
            for index, term in mark.given.items():
                name = self.names[f"outside {index}"]
                gradients[name] = gradients[name] + term if name in gradients else term
        changed = {name: tensor for name, (_, tensor) in finals.items()}
        return Outcome(dict(zip(losses, values, strict=True)), dict(gradients), changed)


# ---- Segments as linked Pairs


class _LinkedSegments:
    """The segments as linked Pairs. They are made from the last to the first, because a later one determines which
    values it needs of those before.

    A group is a forward segment and, if one follows, the backward after it: a Pair; groups are known by their index.
    By local, `home` has the group of each value and its side in it (0 forward, 1 backward), `makers` the step that
    makes it, `roots` the name of each tensor from outside, and `fixed` each constant with its name. For each group,
    `wanted` has the locals of values that later groups need, and `changed` the local of the last value of each tensor
    that its forward returns as a mutation. By the name of each tensor from outside, `roles` has its role, and `shards`
    says as text of which DTensor it is a part. `constants`, `guards`, `links` and `tangents` (names of losses whose
    backward starts from ones) are collected while the Pairs are made. `step` has written the segments, and `finals` are
    the last values of the tensors that the step changed, as `final_values` returns them.
    """

    def __init__(self, step: _StepWriter, finals: Mapping[str, tuple[str, Tensor]]) -> None:
        self.step, self.writer = step, step.writer
        self.constants: dict[str, Tensor] = {}
        self.guards: list[Guard] = []
        self.tangents: set[str] = set()
        self.links: list[Link] = []
        self.groups = _groups_of(step.segments)
        self.home = {
            graph_step.name: (index, side)
            for index, group in enumerate(self.groups)
            for side, segment in enumerate(group)
            for graph_step in segment.steps
        }
        self.makers = {graph_step.name: graph_step for segment in step.segments for graph_step in segment.steps}
        self.changed = self._mutations_of_forwards(finals)
        self.wanted: list[dict[str, None]] = [{} for _ in self.groups]
        self.roots = {step.writer.locals[key]: name for key, name in step.names.items()}
        self.fixed = step.writer.constants(step.recorder.tape, step.fresh)
        leaves = zip(step.names.values(), step.recorder.leaves(), strict=True)
        self.roles = {name: _role_of(name, leaf) for name, leaf in leaves}
        outside = zip(step.names.values(), step.recorder.seen.external_tensors, strict=True)
        self.shards = {name: step.recorder.shards.get(id(tensor), "") for name, tensor in outside}

    def _mutations_of_forwards(self, finals: Mapping[str, tuple[str, Tensor]]) -> list[dict[str, str]]:
        """Return for each group the tensors that its forward returns as mutations: by name, the local of the last
        value."""
        changed: list[dict[str, str]] = [{} for _ in self.groups]
        for name, (local, _) in finals.items():
            # A value that no step makes, such as another input, is returned by the last group.
            index, side = self.home.get(local, (len(self.groups) - 1, 0))
            # A backward returns gradients alone: a tensor that it changes is a mutation of the forward of the group
            # after it, which there always is (`_StepWriter.write` ends with a forward).
            changed[index + side][name] = local
        return changed

    def pairs(self) -> tuple[tuple[Pair, ...], tuple[Link, ...]]:
        """Return the Pairs that have outputs, numbered anew, and the links between them and to the losses: those into
        Pairs first, then the losses."""
        pairs_made = {index: self.pair(index) for index in reversed(range(len(self.groups)))}
        with_outputs = [index for index in sorted(pairs_made) if pairs_made[index].forward.outputs]
        order = {index: number for number, index in enumerate(with_outputs)}
        pairs = tuple(Pair(f"pair_{order[i]}", pairs_made[i].forward, pairs_made[i].backward) for i in with_outputs)
        # `link.source` is a number here, never None: each of these links starts at a Pair.
        links = [
            Link(order[link.source or 0], link.port, None if link.target is None else order[link.target], link.name)
            for link in self.links
            if link.target is None or link.target in order  # a Pair without outputs may read values for its guards
        ]
        return pairs, tuple(sorted(links, key=lambda link: (link.target is None, link.target or 0, link.source or 0)))

    def pair(self, index: int) -> Pair:
        """Return one group as a Pair. Enter its constants, guards, links and tangents, and in `wanted` what it needs of
        the groups before it."""
        assembled = assemble(self.joint(index), f"pair_{index}")
        self.constants |= assembled.constants
        self.guards += assembled.guards
        for port in assembled.pair.forward.inputs:
            if port.local in self.home:
                source, _ = self.home[port.local]
                self.wanted[source][port.local] = None
                key, _ = self.source_of(port.local)
                self.links.append(Link(source, key, index, port.name))
        # Without a target: the losses are results of the Capture.
        self.links += [Link(index, PortKey("output", name), None, name) for name in self.losses(index)]
        backward = assembled.pair.backward
        self.tangents |= {port.name for port in (backward.inputs if backward else ()) if port.role == "tangent"}
        return assembled.pair

    def joint(self, index: int) -> Joint:
        """Return the Joint of one group (both directions in one namespace, before a Pair is made of them). Its forward
        returns the losses, the values that later groups take and the tensors that it changes; its backward the leaves'
        gradients, and what later groups take of it."""
        forward, *rest = self.groups[index]
        backward = rest[0] if rest else _Segment([])
        results = self.results_of_forward(index)
        name_in_step = dict(zip(backward.losses, self.losses(index), strict=True))
        return Joint(
            inputs=self.inputs(index, results),
            forward=tuple(forward.steps),
            results=tuple(results),
            tangents=tuple(
                Port(name_in_step[loss], "tangent", self.spec(local), local)
                for loss, local in backward.tangents.items()
            ),
            backward=tuple(backward.steps),
            gradients=tuple(self.results_of_backward(index, backward)),
            constants=self.fixed,
            notes=self.writer.notes,
            specs=self.writer.specs(),
            # Guards name the inputs of the step on which their value depends, through the steps of earlier groups too.
            before=self.makers,
            known=self.roots,
            keep_all_inputs=False,
        )

    def results_of_forward(self, index: int) -> list[Result]:
        """Return the losses of a group, the other values of its forward that later groups take, and the tensors that it
        changes."""
        losses, changed = self.losses(index), self.changed[index]
        returned = {*losses.values(), *changed.values()}
        for_later = [local for local in self.wanted[index] if self.home[local] == (index, 0) and local not in returned]
        return [
            *(self.result(name, "output", local) for name, local in losses.items()),
            *(self.result(local, "output", local) for local in for_later),
            *(self.result(name, "mutation", local) for name, local in changed.items()),
        ]

    def results_of_backward(self, index: int, backward: _Segment) -> list[Result]:
        """Return the gradients of the leaves, and the other values of a group's backward that later groups take."""
        locals_by_name = dict(backward.gradients)
        locals_by_name |= {
            local: local
            for local in self.wanted[index]
            if self.home[local] == (index, 1) and local not in backward.gradients.values()
        }
        return [
            self.result(name, "gradient", local, backward.shards.get(name, ""))
            for name, local in locals_by_name.items()
        ]

    def result(self, name: str, role: str, local: str, shard: str = "") -> Result:
        return Port(name, role, self.spec(local), shard=shard), Ref(local)

    # ---- What comes in

    def inputs(self, index: int, results: Sequence[Result]) -> tuple[Port, ...]:
        """Return an input port for each value that the group uses and does not make: tensors from outside, and values
        of earlier groups. `results` are those of its forward."""
        group = self.groups[index]
        own = {step.name for segment in group for step in segment.steps}
        own |= {local for segment in group for local in segment.tangents.values()} | self.fixed.keys()
        used_locals = [local for segment in group for step in segment.steps for local in used(step)]
        used_locals += [local for _, value in results for local in refs(value)]
        used_locals += [local for segment in group for local in segment.gradients.values()]
        ports = [self.port(local) for local in dict.fromkeys(used_locals) if local not in own]
        return tuple(sorted(ports, key=lambda port: ROLES.index(port.role)))

    def port(self, local: str) -> Port:
        """Return the input port of a value: of a tensor from outside, or of a value that a link brings from an earlier
        Pair. Refuse the tangent of an earlier backward, which is an input of it and no result."""
        if local in self.roots:
            name = self.roots[local]
            return Port(name, self.roles[name], self.spec(local), local, self.shards[name])
        if local not in self.home:
            raise CaptureError(
                f"a later part of the step uses {local!r}, the tangent that autograd made for a backward"
            )
        _, name = self.source_of(local)
        return Port(name, "input", self.spec(local), local)

    def source_of(self, local: str) -> tuple[PortKey, str]:
        """Return the port from which a value of an earlier group comes, and the name of the port into which it goes.
        Refuse a sparse gradient."""
        source, side = self.home[local]
        if side == 1:
            if not self.writer.is_strided(local):
                raise CaptureError("a backward returns a sparse gradient, which links between Pairs do not support")
            _, backward = self.groups[source]
            leaf = next((name for name, value in backward.gradients.items() if value == local), "")
            # A value of a backward that is no leaf's gradient is returned under its local.
            return PortKey("gradient", leaf or local), self.name_of_gradient(f"{leaf}.grad", source) if leaf else local
        loss = next((name for name, value in self.losses(source).items() if value == local), local)
        changed = next((name for name, value in self.changed[source].items() if value == local), None)
        return PortKey("output", loss) if changed is None else PortKey("mutation", changed), local

    def name_of_gradient(self, name: str, source: int) -> str:
        """Return the name of a gradient that passes between Pairs, `model.weight.grad`; with the number of the Pair
        that made it, where several make one or a tensor from outside has that name. Nothing is noted: the same gradient
        has the same name each time."""
        several = sum(name.removesuffix(".grad") in s.gradients for s in self.step.segments) > 1
        return f"{name}.{source}" if several or name in self.step.names.values() else name

    def losses(self, index: int) -> dict[str, str]:
        """Return the locals of the losses of a group, by names that are unique in the step: `loss` where the step has
        one backward, else `loss_0`, `loss_1` and so on; with several roots `loss.0`, or `loss_0.0` and so on. A group
        without a backward has none."""
        with_backward = [number for number, group in enumerate(self.groups) if len(group) > 1]
        losses = self.groups[index][1].losses if len(self.groups[index]) > 1 else {}
        if len(with_backward) == 1:
            return dict(losses)
        return {name.replace("loss", f"loss_{with_backward.index(index)}", 1): local for name, local in losses.items()}

    def spec(self, name: str) -> Spec:
        return self.writer.spec(name)


def _groups_of(segments: Sequence[_Segment]) -> list[list[_Segment]]:
    """Return segments in groups: each forward (without a mark), with the backward after it, if one follows."""
    groups: list[list[_Segment]] = []
    for segment in segments:
        if segment.mark is None:
            groups.append([segment])
        else:
            groups[-1].append(segment)
    return groups


ROLES = ("parameter", "buffer", "input", "constant")
"""The roles of the inputs of a Pair, in the order in which its forward has them."""


def _role_of(name: str, tensor: Tensor) -> str:
    """Return the role of a tensor from outside: parameter, state that stays with the script (buffer), or input of this
    step. State is what has a dotted name, `model.running_mean`; an input is a variable of its own, or is named
    `input_0` and so on."""
    if isinstance(tensor, nn.Parameter):
        return "parameter"
    return "input" if name.startswith("input_") or "." not in name else "buffer"


# ---- The Capture of one step


def capture_of_step(recorder: LiveRecorder, names: Named, title: str) -> Capture:
    """Return the Capture of a recorded step, named `title`, with the tensors that the script computed as its Origin.
    `names` are those of tensors in the script."""
    recorder.messages.read_all()  # before values are read: what was received has arrived, and nothing has read it
    step = _StepWriter(recorder, _names_of_outside_tensors(recorder.seen.external_tensors, recorder.leaves(), names))
    step.write()
    finals = step.final_values()
    at_begin = dict(zip(step.names.values(), recorder.values_at_begin(), strict=True))
    linked = _LinkedSegments(step, finals)
    pairs, links = linked.pairs()
    losses = tuple(link.name for link in links if link.target is None)
    return Capture(
        name=title,
        engine="eager",
        pairs=pairs,
        signature=Signature(
            output={"dict": {name: {"port": name} for name in losses}},
            differentiable=tuple(name for name in losses if name in linked.tangents),
            loss=losses[0] if len(losses) == 1 else "",
        ),
        links=links,
        guards=(*linked.guards, *own_tangents(linked.tangents)),
        opaque=tuple(dict.fromkeys(recorder.seen.opaque)),
        modules=classes_around(recorder.classes, paths_of_modules(pairs)),
        environment=settings.read_settings(),
        requires=tuple(sorted({target for pair in pairs for target in requirements(pair)})),
        rank=_rank_of_step(recorder),
        peers=recorder.messages.peers(recorder.tape.groups, own_rank()[0]),
        origin=_RecordedOrigin(at_begin, linked.constants, step.outcome(finals, losses), pairs),
    )


def _rank_of_step(recorder: LiveRecorder) -> Rank | None:
    """Return the place of this process among the others; None if the step has no collective and no wrapper."""
    if not recorder.tape.groups and not recorder.wrappers:
        return None
    number, size = own_rank()
    return Rank(number, size, tuple(sorted(recorder.tape.groups.items())))


def own_tangents(names: Collection[str]) -> list[Guard]:
    """Return guards for the tangents of a step: its own `backward()` gives them, so they are no inputs of it."""
    return [
        Guard("pinned", f"{name} is pinned: the step's own backward() starts with ones", (name,))
        for name in sorted(map(tangent_name, names))
    ]


@dataclass(slots=True)
class _RecordedPart:
    """What one Pair is compared with: the recorded values at its ports `keys`, which are a part of the `outcome` of the
    step. `partial` says that it runs on the recorded values alone."""

    keys: frozenset[PortKey]
    outcome: Outcome
    partial: bool = True

    def run_step(self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None) -> Outcome:
        """Return the recorded values at the ports of this Pair; the arguments are not used."""
        keys, recorded = self.keys, self.outcome
        return Outcome(
            {name: tensor for name, tensor in recorded.outputs.items() if PortKey("output", name) in keys},
            {name: tensor for name, tensor in recorded.gradients.items() if PortKey("gradient", name) in keys},
            {name: tensor for name, tensor in recorded.mutations.items() if PortKey("mutation", name) in keys},
        )


class _RecordedOrigin(Origin):
    """The Origin of a recorded Capture (its program, as far as there is one): the inputs and results of the step. It
    cannot run on other values.

    `values_at_begin` has the tensors from outside before the step, by name, and `read` names those that the Pairs read,
    and the constants. `parts` has for each of several Pairs what it is compared with.
    """

    partial = True

    def __init__(
        self,
        values_at_begin: dict[str, Tensor],
        constants: Mapping[str, Tensor],
        outcome: Outcome,
        pairs: Sequence[Pair],
    ) -> None:
        read_names = {port.name for pair in pairs for port in pair.forward.inputs}
        # A tensor that no Pair reads is only overwritten, so the Capture has no input with a gradient of it.
        gradients = {name: term for name, term in outcome.gradients.items() if name in read_names}
        self.values_at_begin, self.constants = values_at_begin, dict(constants)
        self.outcome = replace(outcome, gradients=gradients)
        self.read = read_names | self.constants.keys()
        several = len(pairs) > 1
        self.parts = tuple(_RecordedPart(self.ports(pair, pairs), outcome) for pair in pairs) if several else ()

    @staticmethod
    def ports(pair: Pair, pairs: Sequence[Pair]) -> frozenset[PortKey]:
        """Return the output ports of a Pair that no other Pair has: the values there are those of the whole step. A
        gradient that several Pairs have is in the step the sum of theirs."""

        def keys_of(one: Pair) -> frozenset[PortKey]:
            return frozenset(
                port.key for port in (*one.forward.outputs, *(one.backward.outputs if one.backward else ()))
            )

        return keys_of(pair).difference(*(keys_of(other) for other in pairs if other is not pair))

    def values(self) -> dict[str, Tensor]:
        """Return the inputs of the step."""
        return {**self.values_at_begin, **self.constants}

    def run_step(
        self, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor] | None, anew: bool = False
    ) -> Outcome:
        """Return the results of the step if these are its inputs and all tangents are ones, else refuse: it cannot run
        again. Inputs that it only overwrites may have any values. `anew` changes nothing here."""
        known = {name: tensor for name, tensor in self.values().items() if name in self.read and name in values}
        other = [name for name, tensor in known.items() if not same(values[name], tensor)]
        other += [tangent_name(name) for name, tensor in (tangents or {}).items() if not bool((tensor == 1).all())]
        if other:
            raise ReplayError(f"the step was recorded, and cannot run with another {other[0]!r}")
        return self.outcome


def same(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors are equal, with NaN equal to NaN."""
    return left.shape == right.shape and bool(((left == right) | ((left != left) & (right != right))).all())
