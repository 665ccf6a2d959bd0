"""Effects of a program that no operator shows: hooks, reads of tensor flags and of values, threads, seeds. They are
noted in the Observations of the run, which functions here take as `seen`. `paths` has the path of each module, by id.

Function modes see the functions of torch that a program calls (`_FunctionWatch`; `BodyRecorder` also records the bodies
of higher-order operators). Patches of Python and torch see the rest.

`frames.here(paths)` returns the user's line that runs now, and `frames.called_by_user()` says whether the user's code,
not torch's, called the function that a mode handles (`frames.handles_call` marks functions of ours that ask this).
`call_for_mode` calls a function from within a mode. A flag of a tensor is a fact such as `requires_grad` that a program
may branch on; FLAGS has the functions that read them. A CalledProgram is a callable with the named tensors of one call.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from backprint._torch.autograd import current_node
from backprint._torch.modes import DisableTorchFunction, hidden_from_higher_order_operators, without_modes
from backprint._torch.operators import DispatchKey, HigherOrderOperator, name_of
from backprint._torch.script import is_method, scripts_seen
from backprint._torch.tensors import (
    is_view,
    overlaps_noted,
    pack_padded,
    pad_packed,
    read_base,
    read_version,
    storage_id,
)
from backprint.errors import CaptureError
from backprint.graph.nouns import Guard, OpaqueEdge, Source
from backprint.trace import frames
from backprint.trace.custom import call_for_mode, tolist_by_items
from backprint.trace.program import CalledProgram
from backprint.trace.state.restore import keep_content_of
from backprint.trace.watch import Observations
from backprint.values.memory import has_memory
from backprint.values.tree import FLAGS, plain_leaves, strided_parts

DETACHING = (Tensor.detach_, torch.detach_)
"""Functions that detach a tensor in place without an operator."""

GRAD_FN = Tensor.grad_fn.__get__
"""The function that function modes see where a program reads a tensor's node in the autograd graph."""

SET_DATA = Tensor.data.__set__
"""The function that modes see where a program assigns to a tensor's `.data`."""

FLAG_READ_BY: dict[Any, str] = {
    Tensor.requires_grad.__get__: "requires_grad",
    Tensor.is_leaf.__get__: "is_leaf",
    Tensor.grad.__get__: "has a gradient",
    Tensor.grad_fn.__get__: "has a grad_fn",
    read_version: "version",
    read_base: "is a view",
    is_view: "is a view",
    Tensor.is_conj: "is conjugated",
    Tensor.is_neg: "is negated",
    Tensor.storage_offset: "storage offset",
    Tensor.untyped_storage: "bytes of storage",
    Tensor.storage: "bytes of storage",
    Tensor.is_shared: "is in shared memory",
}
"""The flag, a key of FLAGS (`values/tree.py`), that each of these functions reads."""

TO_NUMPY = (Tensor.numpy, Tensor.__array__)
"""Functions that pass a tensor's values to numpy."""

READS_WITHOUT_OPERATOR = (
    Tensor.tolist,
    *TO_NUMPY,
    Tensor.__repr__,
    Tensor.__format__,
    Tensor.__reduce_ex__,
    Tensor.__dlpack__,
)
"""Functions that read a tensor's values without running an operator."""

MEMORY_ACCESS = (Tensor.data_ptr, Tensor.storage, Tensor.untyped_storage)
"""Functions with which the user's code can read a tensor's memory; torch's own code calls them all the time."""

SHOWS_MEMORY = (
    *MEMORY_ACCESS,
    Tensor.is_set_to,
    Tensor.is_shared,
    is_view,
    read_base,
    Tensor.storage_offset,
    *TO_NUMPY,
    Tensor.__dlpack__,
)
"""Functions whose results show where a tensor is in memory, and so whether others share it."""

CONSTRUCTORS = (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
"""Functions that read the tensors inside a list below all modes."""

KERNELS_READ_INTEGERS = (
    torch.tensor_split,
    Tensor.tensor_split,
    torch.lstm,
    torch.gru,
    torch.rnn_tanh,
    torch.rnn_relu,
    pack_padded,
    pad_packed,
    torch.hsplit,
    torch.vsplit,
    torch.dsplit,
)
"""Functions whose kernels read integers (lengths, indices, batch sizes) from tensors."""

CTC_LOSSES = (torch.ctc_loss, torch.nn.functional.ctc_loss)
"""Functions whose kernels take lengths on the CPU, also for an input on a GPU."""


class _FunctionWatch(TorchFunctionMode):
    """Notes where a program registers hooks, reads flags of tensors, and reads values without an operator. With
    `rewrite`, some functions are called in a form that can be traced (`rewrite_for_tracing`)."""

    def __init__(self, seen: Observations, paths: Mapping[int, str], rewrite: bool = True) -> None:
        super().__init__()
        self.seen, self.paths, self.rewrite = seen, paths, rewrite

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a torch function, and note in `seen` what no operator shows of it: hooks, flags and memory that it
        reads, values that it reads without an operator. Some functions are called in a form whose operators modes
        see."""
        # `==`, because each access to `__set__` or `__get__` makes a new method object.
        if func == SET_DATA:
            self.seen.assigned.append(frames.here(self.paths))
        if func is Tensor.register_hook:
            self.seen.opaque.append(OpaqueEdge("hook", "a tensor hook", frames.here(self.paths)))
        if func in DETACHING and args[0].requires_grad:
            self.seen.opaque.append(OpaqueEdge("detach", "a tensor is detached in place", frames.here(self.paths)))
        self.seen.reads_grad_fn |= func == GRAD_FN
        if func in FLAG_READ_BY and id(args[0]) in self.seen.names_by_id and frames.called_by_user():
            self.note_flag(FLAG_READ_BY[func], args[0])
        if func in SHOWS_MEMORY and frames.called_by_user() and not frames.printing():
            note_memory(self.seen, [arg for arg in args if isinstance(arg, Tensor)], func, frames.here(self.paths))
        if tensors_read := values_read_without_operator(func, args, kwargs):
            self.seen.reads_without_operator.append((func.__name__, frames.here(self.paths)))
            # The program may write to memory that it has read in this way, unseen: its content is restored.
            for tensor in tensors_read:
                keep_content_of(tensor)
        # The call itself, some functions in a form whose operators modes see.
        if func is Tensor.__deepcopy__:
            return _deepcopy_by_operators(*args)
        if self.rewrite:
            func, args, kwargs = rewrite_for_tracing(func, args, kwargs)
        if func in CTC_LOSSES:
            # Without cuDNN, whose kernel `ctc_loss` would choose for lengths on a GPU, as they are moved here.
            with torch.backends.cudnn.flags(enabled=False):
                return call_for_mode(self, func, *_lengths_on_input_device(args, kwargs or {}))
        return call_for_mode(self, func, args, kwargs or {})

    def note_flag(self, flag: str, tensor: Tensor) -> None:
        """Note that the user's code reads a flag of one of the program's tensors, with the flag's value. A guard is
        about the arguments of a call, so the value from before the run counts, where the run may have changed it."""
        tensor_and_flag = self.seen.names_by_id[id(tensor)], flag
        with DisableTorchFunction():
            value = (
                self.seen.flags_before[tensor_and_flag]
                if tensor_and_flag in self.seen.flags_before
                else FLAGS[flag](tensor)
            )
        self.seen.flags.setdefault(tensor_and_flag, (value, frames.here(self.paths)))

    def read_by_script(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """Note a TorchScript function that reads values with `tolist`, and return the tensors among its arguments.
        Refuse a method of a scripted module: it reads the module's tensors too, which are no arguments."""
        if is_method(function):
            where = frames.place(frames.here(self.paths))
            raise CaptureError(
                f"{function.name} of a scripted module reads values with tolist{where}, "
                "where no operator shows it: capture the module as it was before torch.jit.script",
                every_engine=True,
            )
        self.seen.reads_without_operator.append((f"tolist in {function.name}, by torch.jit", frames.here(self.paths)))
        tensors = [leaf for leaf in plain_leaves(args, kwargs) if isinstance(leaf, Tensor)]
        for tensor in tensors:
            keep_content_of(tensor)
        return tensors


class BodyRecorder(_FunctionWatch):
    """The function mode of engine `eager`. It runs higher-order operators as their bodies, above autograd, and turns
    reads of values without an operator into operators, which the engine records."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a torch function: a higher-order operator as its body, whose functions this mode sees, and a read of
        values without an operator with a comparison before it, which becomes a guard."""
        body = None
        if isinstance(func, HigherOrderOperator):
            # The kernel that runs the operator's Python function eagerly.
            body = func.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
        if func is Tensor.tolist:
            func = tolist_by_items  # it calls `item`, an operator, for each number
        else:
            for tensor in values_read_without_operator(func, args, kwargs):
                self.record_values(func, tensor)
        if body is None:
            return super().__torch_function__(func, types, args, kwargs)
        self.seen.opened.append((name_of(func), frames.here(self.paths)))
        # Torch disables a mode while it handles a call. This one must see the functions of the body.
        with hidden_from_higher_order_operators(), self:
            return body(*args, **(kwargs or {}))

    def read_by_script(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        """Do the same as `_FunctionWatch`, and record the values of the tensors that are returned."""
        tensors = super().read_by_script(function, args, kwargs)
        for tensor in tensors:
            self.record_values(function, tensor)
        return tensors

    def record_values(self, func: Any, tensor: Tensor) -> None:
        """Run a comparison of a tensor with the values that it has now. The recorder sees that operator, and it becomes
        a guard of the graph. `func` is the function that reads the values."""
        if current_node() is not None and func in TO_NUMPY:
            raise CaptureError(
                f"a backward computes through {func.__name__}{frames.place(frames.here(self.paths))}, which a "
                "graph cannot hold: write it with torch, or as a custom operator (torch.library)"
            )
        if not has_memory(tensor):
            return  # its storage was resized to 0: there are no values that anyone could read
        with torch.no_grad():
            # The copy is no operator of the program, so modes do not see it. They see the comparison.
            with without_modes():
                copy_ = tensor.detach().clone()
            torch.equal(tensor.detach(), copy_)


def _deepcopy_by_operators(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """Return a `copy.deepcopy` of a tensor that is made by operators, so that it is in the graph. `memo` is that of
    `copy.deepcopy`: the copies so far, by id."""
    if id(tensor) in memo:
        return memo[id(tensor)]
    # Torch's own `deepcopy` refuses or handles these.
    if (
        not tensor.is_leaf
        or type(tensor) not in (Tensor, nn.Parameter, nn.Buffer)
        or tensor.layout is not torch.strided
        or not has_memory(tensor)
    ):
        return Tensor.__deepcopy__(tensor, memo)
    copied = tensor.detach().clone()
    copied = nn.Parameter(copied, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else copied
    copied.requires_grad_(tensor.requires_grad)
    copied.__dict__.update(copy.deepcopy(tensor.__dict__, memo))
    if tensor.grad is not None:
        copied.grad = _deepcopy_by_operators(tensor.grad, memo)
    memo[id(tensor)] = copied
    return copied


def note_memory(seen: Observations, tensors: Iterable[Tensor], func: Any, where: Source | None) -> None:
    """Note that the program reads by the function `func`, at the line `where`, where these tensors are in memory. It is
    noted for all of the program's tensors in the same storages."""
    with DisableTorchFunction():
        keys = [storage_id(part.untyped_storage()) for tensor in tensors for part in strided_parts(tensor)]
    for name in dict.fromkeys(name for key in keys for name in seen.memory.get(key, ())):
        seen.flags.setdefault((name, MEMORY), (_name_read(func), where))


def _name_read(func: Any) -> str:
    """Return the name of a function of tensors; of the one that reads an attribute (`Tensor._base.__get__`), the name
    of the attribute."""
    return str(func.__self__.__name__ if func.__name__ == "__get__" else func.__name__)


MEMORY = "memory"
"""A flag beside those of FLAGS. Its value is the name of the function by which the program has read where a tensor is
in memory."""


def flag_guards(
    program: CalledProgram, flags: Mapping[tuple[str, str], tuple[Any, Source | None]]
) -> tuple[Guard, ...]:
    """Return guards on the flags that the user's code has read: on the flags of arguments, and on where any tensor of
    the program is in memory. `flags` has the value and the line by tensor name and flag; the value of MEMORY is the
    name of the function that read it."""
    return tuple(
        Guard("memory", f"{name}: {value} reads where it is in memory", (name,), source)
        if flag == MEMORY
        else Guard("flag", f"{name}: {flag} == {value!r}", (name,), source)
        for (name, flag), (value, source) in flags.items()
        if name in program.values or flag == MEMORY
    )


@frames.handles_call
def values_read_without_operator(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the tensors whose values a call of a torch function reads without an operator; none if the values are only
    printed."""
    if func in READS_WITHOUT_OPERATOR or (func in MEMORY_ACCESS and (frames.called_by_user() or frames.pickling())):
        return [] if frames.printing() else [args[0]]
    # A tensor that is passed itself is copied by an operator; one inside of a list is read below all modes.
    if func in CONSTRUCTORS:
        nested = args[1:2] if func is Tensor.new_tensor else args[:1]
        return [leaf for leaf in plain_leaves(*nested) if isinstance(leaf, Tensor) and leaf is not nested[0]]
    if func in KERNELS_READ_INTEGERS:
        leaves = plain_leaves(args, kwargs or {})
        return [leaf for leaf in leaves if isinstance(leaf, Tensor) and not leaf.is_floating_point()]
    return []


def rewrite_for_tracing(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Return the call of a torch function (the function, its arguments and its keyword arguments) in a form that can be
    traced.

    The lengths of `ctc_loss` become tensors instead of lists, and `tolist` reads one number at a time, as tracing does.
    """
    kwargs = dict(kwargs or {})
    if func is Tensor.tolist:
        return tolist_by_items, args, kwargs
    if func not in CTC_LOSSES:
        return func, args, kwargs
    # The lengths are the third and the fourth parameter.
    new_args = [
        torch.tensor(value) if index in (2, 3) and isinstance(value, (list, tuple)) else value
        for index, value in enumerate(args)
    ]
    for name in LENGTHS:
        if isinstance(kwargs.get(name), (list, tuple)):
            kwargs[name] = torch.tensor(kwargs[name])
    return func, tuple(new_args), kwargs


LENGTHS = ("input_lengths", "target_lengths")
"""The parameters of `ctc_loss` that are lengths, the third and the fourth."""


def _lengths_on_input_device(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of `ctc_loss` with its lengths on the device of its input. Nothing is moved if the input is
    a keyword argument.

    Its kernels take lengths on the CPU, but below a dispatch mode `ctc_loss` calls an operator that wants all tensors
    on one device.
    """
    if not args:
        return args, kwargs
    device = args[0].device
    # The lengths are the third and the fourth parameter.
    args = [arg.to(device) if index in (2, 3) and isinstance(arg, Tensor) else arg for index, arg in enumerate(args)]
    moved_kwargs = {name: kwargs[name].to(device) for name in LENGTHS if isinstance(kwargs.get(name), Tensor)}
    return tuple(args), {**kwargs, **moved_kwargs}


# ---- Patches of Python and torch while a program runs


@contextlib.contextmanager
def watching_program(
    program: CalledProgram, seen: Observations, paths: Mapping[int, str], compiled: bool
) -> Iterator[None]:
    """Watch all effects of a run that are no operators; the observers of a dispatch mode see the operators. `compiled`
    says that a part of the program is compiled with `torch.compile`; it then runs eagerly."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(frames.noting_prints())
        function_watch = stack.enter_context(_FunctionWatch(seen, paths))
        stack.enter_context(scripts_seen(function_watch.read_by_script))
        stack.enter_context(_noting_saved_tensor_hooks(seen, paths))
        stack.enter_context(noting_threads(seen, paths))
        stack.enter_context(noting_overlap_checks(seen, paths))
        if compiled:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        if program.world is not None:
            stack.enter_context(program.world.entered())
        stack.enter_context(refuse_seeding(program))
        yield


@contextlib.contextmanager
def noting_threads(seen: Observations, paths: Mapping[int, str]) -> Iterator[None]:
    """Note where a program starts threads, in `seen.threads`."""
    original, thread_id = threading.Thread.start, threading.get_ident()

    def start(self: threading.Thread) -> None:
        # A thread that another thread of the process starts is not the program's.
        if threading.get_ident() == thread_id:
            seen.threads.append(frames.here(paths))
        original(self)

    with _replaced(threading.Thread, start=start):
        yield


@contextlib.contextmanager
def noting_overlap_checks(seen: Observations, paths: Mapping[int, str]) -> Iterator[None]:
    """Note where a program checks whether tensors overlap in memory, as reads of where they are (`note_memory`)."""
    with overlaps_noted(lambda tensors, function: note_memory(seen, tensors, function, frames.here(paths))):
        yield


@contextlib.contextmanager
def _noting_saved_tensor_hooks(seen: Observations, paths: Mapping[int, str]) -> Iterator[None]:
    """Note where a program enters `saved_tensors_hooks`, in `seen.packs`. The hooks of a checkpoint are left out there.
    `seen.checkpoints` is set for any."""
    hooks_class = torch.autograd.graph.saved_tensors_hooks
    original, thread_id = hooks_class.__enter__, threading.get_ident()

    def entered(self: Any) -> Any:
        # What another thread of the process enters is not the program's.
        if threading.get_ident() == thread_id and not type(self).__module__.startswith("torch.utils.checkpoint"):
            seen.packs.append(frames.here(paths))
        seen.checkpoints = True
        return original(self)

    with _replaced(hooks_class, __enter__=entered):
        yield


@contextlib.contextmanager
def refuse_seeding(program: CalledProgram) -> Iterator[None]:
    """Refuse a program that sets or reads the seed: a graph draws from its caller's seed."""

    set_seed, read_seed = torch.manual_seed, torch.initial_seed
    thread_id = threading.get_ident()

    def refuse_seed(seed: int) -> Any:
        if threading.get_ident() != thread_id:  # another thread of the process, which is not the program's
            return set_seed(seed)
        raise CaptureError(
            f"{program.title} calls torch.manual_seed({seed}) while it runs: a graph draws from its caller's seed. "
            "Seed outside of the captured call"
        )

    def refuse_read() -> int:
        if threading.get_ident() != thread_id:
            return read_seed()
        raise CaptureError(
            f"{program.title} reads torch.initial_seed() while it runs: a graph draws from its caller's seed, and "
            "does not know it. Pass the number as an argument"
        )

    refusals = dict(manual_seed=refuse_seed, initial_seed=refuse_read)
    with _replaced(torch, **refusals), _replaced(torch.random, **refusals):  # both modules have both functions
        yield


@contextlib.contextmanager
def _replaced(owner: Any, **replacements: Any) -> Iterator[None]:
    """Have other values for attributes of a module or a class, and put back its own at the end."""
    originals = {name: getattr(owner, name) for name in replacements}
    for name, value in replacements.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in originals.items():
            setattr(owner, name, value)
