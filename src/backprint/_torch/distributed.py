"""torch.distributed: collectives as operators, the groups that they run in, and tensors that wrap others, as DTensors
do.

`torch.distributed` is imported only where a program has imported it. A group may be given by reference: as a
ProcessGroup, by the name under which it is registered, or boxed, as operators of `c10d` take it. Its *label* is its
name in graphs, which is the same in all ranks. The *handle* of a collective is its Work, by which a program waits for
it; operators return it boxed, as a ScriptObject.

A graph has functional collectives alone: operators of `_c10d_functional`, which return their result. A *form* is a
function that does what another operator of `torch.distributed` does, by functional collectives and by copies to where
that operator writes. Forms take the arguments of their operator: a group and the kind of a reduction (`operation`) are
boxed, and `*rest` are arguments that change no value, such as a timeout. A *wrapper* is a tensor subclass around
another tensor, such as a DTensor around the local shard.

`@uses` says which private names of torch a function needs, and `needed_by` for which commands: a call raises
PrivateApiError if this torch lacks one. Each function under *Probes* returns whether a private name behaves on this
torch as this file takes it to; True where torch has no distributed package.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.utils._python_dispatch
from torch import Tensor

from backprint._torch import private
from backprint._torch.modes import without_modes
from backprint._torch.operators import is_wait
from backprint._torch.private import Probe, uses
from backprint.errors import CaptureError

# ---- Groups of processes

MESH = "mesh_"
"""How the description of a group begins that is a dimension of a device mesh; the rest is the dimension's name."""

WORLD = "world"
"""The label of the group of all processes."""


def is_initialized() -> bool:
    """Whether this process has a process group. If it has not imported `torch.distributed`, it has none."""
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def own_rank() -> tuple[int, int]:
    """Return the rank of this process, and the number of processes; 0 and 1 without a process group."""
    return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if is_initialized() else (0, 1)


@uses("torch.distributed.distributed_c10d._resolve_process_group", needed_by=(private.RANKS,))
def group_of(reference: Any) -> Any:
    """Return the process group of a reference: its registered name, its boxed form in an operator's arguments, or the
    group itself."""
    from torch.distributed import distributed_c10d

    if isinstance(reference, str):
        return distributed_c10d._resolve_process_group(reference)
    if isinstance(reference, torch.ScriptObject):
        return torch.distributed.ProcessGroup.unbox(reference)
    return reference


def members_of(reference: Any) -> tuple[int, ...]:
    """Return the ranks of a group's members, in the order of the group."""
    return tuple(torch.distributed.get_process_group_ranks(group_of(reference)))


NAMED_GROUPS: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""The groups of all processes that are a dimension of a device mesh, with the name of the dimension. For such a
dimension PyTorch uses the group of all processes, whose description does not name the dimension."""


def name_groups(mesh: Any) -> None:
    """Remember the names of a mesh's dimensions that have all processes."""
    for dim, name in enumerate(mesh.mesh_dim_names or ()):
        if mesh.size(dim) == torch.distributed.get_world_size():
            NAMED_GROUPS.setdefault(mesh.get_group(dim), str(name))


def label_of(reference: Any) -> str:
    """Return a group's name in a graph: the name of its dimension of a device mesh, `world`, its description, or a name
    made of its members."""
    group = group_of(reference)
    if group in NAMED_GROUPS:
        return NAMED_GROUPS[group]
    description = str(group.group_desc)
    if description.startswith(MESH):
        return description.removeprefix(MESH)
    # `default_pg` is torch's description of the group that `init_process_group` makes.
    if description in ("default_pg", "") and group.size() == torch.distributed.get_world_size():
        return WORLD
    return description if description not in UNNAMED else label_of_members(group)


UNNAMED = ("undefined", "")
"""The descriptions of groups to which a program has given none."""


@uses("torch.distributed.distributed_c10d._world.pg_map", needed_by=(private.RANKS,))
def label_of_members(group: Any) -> str:
    """Return a name in a graph for a group without a description: its ranks, and its number among such groups of the
    same ranks. The number is the same in all ranks, because they make groups in one order. Groups that earlier runs of
    a program have made do not count."""
    from torch.distributed import distributed_c10d

    members = members_of(group)
    alike = [other for other in distributed_c10d._world.pg_map if str(other.group_desc) in UNNAMED]
    alike = [other for other in alike if other is group or other not in OF_EARLIER_RUNS]
    alike = [other for other in alike if members_of(other) == members]
    number = alike.index(group) + 1 if group in alike else 1
    return f"ranks {','.join(map(str, members))}{f' ({number})' if number > 1 else ''}"


OF_EARLIER_RUNS: weakref.WeakSet[Any] = weakref.WeakSet()
"""The groups that a program has made in a run that has ended."""


@uses("torch.distributed.distributed_c10d._world.pg_map", needed_by=(private.RANKS,))
@contextlib.contextmanager
def in_a_run() -> Iterator[None]:
    """Run a program in this block: the groups that it makes there belong to this run, and are made again in the next
    one, so they are entered into OF_EARLIER_RUNS at its end."""
    if not is_initialized():
        yield
        return
    from torch.distributed import distributed_c10d

    before = set(distributed_c10d._world.pg_map)
    try:
        yield
    finally:
        OF_EARLIER_RUNS.update(set(distributed_c10d._world.pg_map) - before)


@uses("torch.distributed.distributed_c10d._world.pg_map", needed_by=(private.RANKS,))
def groups_by_label() -> dict[str, str]:
    """Return the registered name of each group of this process, by its label."""
    if not is_initialized():
        return {}
    from torch.distributed import distributed_c10d

    # In reverse, so that of several groups with one label the first is kept.
    groups = list(distributed_c10d._world.pg_map)
    return {label_of(group): str(group.group_name) for group in reversed(groups)}


def device_of(group: Any) -> torch.device:
    """Return a device whose tensors a group can exchange: the CPU, if its backend can do that."""
    # Its text is `cpu:gloo,cuda:nccl`.
    pairs = str(torch.distributed.get_backend_config(group)).split(",")
    devices = [pair.partition(":")[0] for pair in pairs]
    return torch.device("cpu" if "cpu" in devices else devices[0])


def backend_of_world() -> str:
    """Return the name of the backend of the group of all processes; '' if there is none."""
    return str(torch.distributed.get_backend()) if is_initialized() else ""


@uses("torch.distributed.distributed_c10d._get_default_store", needed_by=(private.RANKS,))
def default_store() -> Any:
    """Return the store by which the processes of a job know each other."""
    from torch.distributed import distributed_c10d

    return distributed_c10d._get_default_store()


def gather_bytes(meta: bytes, tensor: Tensor, group: Any, wait: Callable[[Any], None]) -> list[tuple[bytes, Tensor]]:
    """Send `meta` and a tensor of any shape to all members of a group; return the bytes and the tensor that each member
    has sent, in the order of the members. `wait` is called with the Work of each collective, and waits for it."""
    device, size = tensor.device, group.size()
    # What this rank sends: the bytes of `meta`, then those of the tensor. `frombuffer` refuses an empty buffer.
    parts = [torch.frombuffer(bytearray(meta), dtype=torch.uint8).to(device)] if meta else []
    parts += [tensor.detach().contiguous().reshape(-1).view(torch.uint8)] if tensor.numel() else []
    own = torch.cat(parts) if parts else torch.empty(0)
    # First a header from each member: the lengths of its two parts in bytes, its dtype and its shape.
    facts = [len(meta), own.numel() - len(meta), DTYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
    header = torch.tensor([*facts, *[0] * (HEADER - len(facts))], device=device)
    headers = [torch.empty_like(header) for _ in range(size)]
    wait(torch.distributed.all_gather(headers, header, group=group, async_op=True))
    facts_of_members = [header_of_member.tolist() for header_of_member in headers]
    # Then the bytes, padded to the longest, because all_gather takes tensors of one shape.
    longest = max(meta_length + count for meta_length, count, *_ in facts_of_members)
    padded = torch.zeros(max(longest, 1), dtype=torch.uint8, device=device)
    padded[: own.numel()] = own
    gathered_bytes = [torch.empty_like(padded) for _ in range(size)]
    wait(torch.distributed.all_gather(gathered_bytes, padded, group=group, async_op=True))
    sent_by_members = []
    for (meta_length, count, dtype, dims, *shape), data in zip(facts_of_members, gathered_bytes, strict=True):
        # A copy, because `view` of a dtype takes bytes that begin at a multiple of its size.
        values = data[meta_length : meta_length + count].clone().view(DTYPES[dtype]).reshape(shape[:dims])
        sent_by_members.append((bytes(data[:meta_length].cpu().tolist()), values))
    return sent_by_members


HEADER = 32
"""How many numbers a header of `gather_bytes` has, whatever is left being 0: all_gather takes tensors of one shape."""

DTYPES = tuple(sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str))
"""All dtypes, in one order in every process, so that the place of a dtype stands for it in a header."""


def members_by_label() -> dict[str, tuple[int, ...]]:
    """Return the members of each group of this process, by its label."""
    return {label: members_of(name) for label, name in groups_by_label().items()}


# ---- Collectives
# `_c10d_functional` has operators that return their result; a graph has these alone. `c10d` and `fsdp` have operators
# that write into their arguments. FORMS has a function for each of them, which takes the operator's own arguments,
# calls functional operators, copies their results to where the operator writes, and returns what the operator returns.

FUNCTIONAL = "_c10d_functional"

GROUP_POSITIONS: Mapping[str, int] = {
    "all_reduce": 2,
    "all_gather_into_tensor": 2,
    "reduce_scatter_tensor": 3,
    "all_to_all_single": 3,
    "broadcast": 2,
}
"""The collectives that a graph has, each with the position of its group among the arguments."""


def is_collective(operator: Any) -> bool:
    """Whether an operator is a collective that returns its result."""
    return operator.namespace == FUNCTIONAL and collective_name(operator) in GROUP_POSITIONS


def collective_name(operator: Any) -> str:
    """Return an operator's name without its namespace and overload."""
    return str(operator).split(".")[1]


def functional() -> Any:
    """Return the operators of functional collectives, which return their result; the import registers them."""
    import torch.distributed._functional_collectives

    return torch.ops._c10d_functional


def group_name(reference: Any) -> str:
    """Return the name of a group, as functional operators take it."""
    return str(group_of(reference).group_name)


REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
"""The reductions, as functional operators take them, in the order of their numbers."""


def as_reduced(tensor: Tensor, boxed: Any) -> tuple[Tensor, str]:
    """Return the tensor that a rank sends for a reduction (`boxed`, a ReduceOp as operators take it), and the
    reduction's name as functional operators take it.

    NCCL's PREMUL_SUM, by which FSDP2 divides by a factor of the user's, multiplies the tensor of each rank before the
    sum. `boxed` does not tell its factor: it is looked up in the frame of the Python function, such as
    `dist.all_reduce`, from which the operator was called. A factor that is a tensor, or of a caller that is not in
    Python, is refused.
    """
    number = boxed.op()  # of the kind of reduction, by torch's enum; PREMUL_SUM is after those of REDUCTIONS
    if number < len(REDUCTIONS):
        return tensor, REDUCTIONS[number]
    factor = factor_of_call()
    if not isinstance(factor, float | int):
        kind = torch.distributed.ReduceOp.RedOpType(number)
        by = "a tensor" if isinstance(factor, Tensor) else "a number that its caller does not have"
        raise CaptureError(
            f"a collective reduces by {kind}, which scales by {by} as it sums, and a graph has no such collective: "
            "scale before or after the reduction",
            every_engine=True,
        )
    return tensor.mul(factor), "sum"


@uses("torch._C._distributed_c10d.ReduceOp.__getstate__", needed_by=(private.RANKS,))
def factor_of_call() -> Any:
    """Return the factor of PREMUL_SUM in the options of the function of `torch.distributed` that is calling a
    collective now, the innermost on the stack; None if there is no such function. The operator itself is passed the
    factor in a form that nothing reads."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != torch.distributed.distributed_c10d.__name__:
        frame = frame.f_back
    # Such as AllreduceOptions, a local of `all_reduce`; the state of its ReduceOp is the kind and the factor.
    options = [value for value in frame.f_locals.values() if hasattr(type(value), "reduceOp")] if frame else []
    return options[-1].reduceOp.__getstate__()[1] if options else None


@uses("torch._C._distributed_c10d._create_work_from_future", needed_by=(private.RANKS,))
def finished_work(result: Any) -> Any:
    """Return the handle (a Work) of a collective that has ended with this result, boxed as operators return it."""
    from torch._C import _distributed_c10d as c10d

    future: Any = torch.futures.Future()
    future.set_result(result)
    return c10d._create_work_from_future(future).boxed()


@functools.cache
def awaited_class() -> type[Any]:
    """Return a class of handles for collectives that have ended. A handle calls `waited` when the program waits for it,
    asks whether it has ended, or asks for its result or its future, and then answers as the real handle `work` does.

    It is made at the first call, because `torch.distributed` may not be imported.
    """

    class Awaited(torch.distributed.Work):
        def __init__(self, work: Any, waited: Callable[[], None]) -> None:
            super().__init__()
            self.work, self.waited = work, waited

        def asked(self) -> Any:
            """Say that the program has waited, and return the real handle."""
            self.waited()
            return self.work

        def wait(self, *args: Any, **kwargs: Any) -> bool:
            return bool(self.asked().wait(*args, **kwargs))

        def is_completed(self) -> bool:
            return bool(self.asked().is_completed())

        def is_success(self) -> bool:
            return bool(self.asked().is_success())

        def synchronize(self) -> None:
            self.asked()

        def block_current_stream(self) -> None:
            self.asked()

        def result(self) -> Any:
            return self.asked().result()

        def get_future(self) -> Any:
            return self.asked().get_future()

    return Awaited


def awaited(result: Any, work: Any, waited: Callable[[], None]) -> tuple[Any, Any]:
    """Return an operator's result with a handle of `awaited_class` in the place of its own, `work`, and this handle.
    The handle is the last item of a result, or the whole result."""
    handle = awaited_class()(work, waited)
    return ((*result[:-1], handle.boxed()) if isinstance(result, (tuple, list)) else handle.boxed()), handle


class PythonCall(NamedTuple):
    """How torch.distributed's Python has called an operator. `functions` has the names of its functions on the stack,
    the innermost first; there are none if C++ has called it, as in DDP. `gives_handle` says whether the program gets
    the handle of the collective, and waits by it itself."""

    functions: tuple[str, ...]
    gives_handle: bool


def python_call() -> PythonCall:
    """Return how the operator that runs now was called, from the stack."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(BETWEEN):
        frame = frame.f_back
    # From here on, as long as they are torch.distributed's, frames are of the functions that the program has called.
    names: list[str] = []
    gives_handle = False
    while frame is not None and frame.f_globals.get("__name__") in ("torch.distributed.distributed_c10d", DECORATOR):
        if not names:
            # A function without `async_op` always returns the handle.
            gives_handle = frame.f_locals.get("async_op") is not False
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return PythonCall(tuple(names), gives_handle)


DECORATOR = "torch.distributed.c10d_logger"
"""The module of the decorator of functions of torch.distributed."""

OF_OBJECTS = frozenset(
    "all_gather_object broadcast_object_list gather_object scatter_object_list _object_to_tensor".split()
)
"""Functions of torch.distributed that exchange objects, as bytes whose number differs."""

BETWEEN = ("backprint.", "torch._dynamo", "torch._compile", "torch._ops", "torch.utils")
"""How the names of modules begin whose functions are on the stack between torch.distributed's Python and this module,
which a dispatch mode of ours calls: they are passed over."""


@functools.cache
def leaves_values_unread(func: Any) -> bool:
    """Whether an operator reads nothing but its arguments' shapes: a view, a new tensor of the same shape, a wait, or
    one that returns the tensor that it takes."""
    name = str(func).split(".")[1]
    is_like = func.namespace == "aten" and (name.endswith("_like") or name.startswith("new_"))
    return bool(func.is_view or is_like or is_wait(func) or passes_on(str(func)))


def results_of_work(work: Any) -> list[Tensor]:
    """Return the tensors to which a collective that has ended has written; none if its backend does not say."""
    try:
        values = work.get_future().value()
    except RuntimeError:
        return []
    return [value for value in (values if isinstance(values, list) else [values]) if isinstance(value, Tensor)]


@contextlib.contextmanager
def waiting_in(around: Callable[[Any], contextlib.AbstractContextManager[Any]]) -> Iterator[None]:
    """In this block, `Work.wait` runs inside of the context `around(work)`, which can hide what runs there: Gloo copies
    the parts of a reduce-scatter while its caller waits, by operators that are none of the program's."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available():
        yield
        return
    before = distributed.Work.wait

    @functools.wraps(before)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        with around(work):
            return before(work, *args, **kwargs)

    distributed.Work.wait = wait
    try:
        yield
    finally:
        distributed.Work.wait = before


def work_of(result: Any) -> Any:
    """Return the handle by which a program waits for a collective, from the result of its operator: the whole result,
    or its last item. None if there is none. Unboxing returns the same Python object for a collective as long as
    somebody holds it."""
    boxed = result[-1] if isinstance(result, (tuple, list)) and result else result
    return torch.distributed.Work.unbox(boxed) if isinstance(boxed, torch.ScriptObject) else None


def in_group(name: str, sent: Tensor, options: Sequence[Any], group: str) -> Tensor:
    """Run the collective of this name in a process group, and wait for it. `sent` is the tensor that this rank sends,
    `options` the operator's arguments between the tensor and the group without the group's size, and `group` the name
    of the group."""
    size, on_device = group_of(group).size(), sent.device.type != "cpu"
    resizes = name in ("all_gather_into_tensor", "reduce_scatter_tensor")
    if resizes and on_device and "gloo" in str(torch.distributed.get_backend_config(group_of(group))):
        return in_gloo_on_device(name, sent, options, group_of(group))
    # These two operators take the size of the group too.
    sized = {"all_gather_into_tensor": (size,), "reduce_scatter_tensor": (*options, size)}
    ops = functional()
    # The operators take lists, and `options` has tuples, which can be hashed and compared.
    lists = (list(option) if isinstance(option, tuple) else option for option in sized.get(name, tuple(options)))
    return ops.wait_tensor(getattr(ops, name)(sent, *lists, group))


def in_gloo_on_device(name: str, sent: Tensor, options: Sequence[Any], group: Any) -> Tensor:
    """Run an all-gather or a reduce-scatter of a tensor on a device in a group of Gloo, whose functional collective
    crashes there. `options` of the reduce-scatter begin with the reduction's name."""
    # The results are joined along the first dimension, which a scalar does not have.
    sent = sent if sent.dim() else sent.reshape(1)
    size, (rows, *rest) = group.size(), sent.shape
    if name == "all_gather_into_tensor":
        received = sent.new_empty((size * rows, *rest))
        torch.distributed.all_gather_into_tensor(received, sent, group=group)
    else:
        received = sent.new_empty((rows // size, *rest))
        reduction = getattr(torch.distributed.ReduceOp, options[0].upper())
        torch.distributed.reduce_scatter_tensor(received, sent, reduction, group=group)
    return received


def reduced(tensor: Tensor, reduction: str, group: str) -> Tensor:
    """Return the reduction of the tensors of all members."""
    ops = functional()
    return ops.wait_tensor(ops.all_reduce(tensor, reduction, group))


def gathered(tensor: Tensor, group: str, size: int) -> Tensor:
    """Return the tensors of all members, one after the other along the first dimension."""
    ops = functional()
    return ops.wait_tensor(ops.all_gather_into_tensor(tensor, size, group))


def scattered(tensor: Tensor, reduction: str, group: str, size: int) -> Tensor:
    """Return this rank's part, along the first dimension, of the reduction of the tensors of all members."""
    ops = functional()
    return ops.wait_tensor(ops.reduce_scatter_tensor(tensor, reduction, size, group))


def exchanged(tensor: Tensor, outgoing: Sequence[int], incoming: Sequence[int], group: str) -> Tensor:
    """Send a part of a tensor to each member, and return what they send to this rank, joined. `outgoing` and `incoming`
    have the number of rows for each member."""
    ops = functional()
    return ops.wait_tensor(ops.all_to_all_single(tensor, list(incoming), list(outgoing), group))


def all_reduce_in_place(tensors: Any, group: Any, operation: Any, *rest: Any) -> Any:
    """Reduce each tensor over the members, in place."""
    for tensor in tensors:
        tensor.copy_(reduced(*as_reduced(tensor, operation), group_name(group)))
    return tensors, finished_work(tensors)


def all_reduce_coalesced_in_place(tensors: Any, group: Any, operation: Any, *rest: Any) -> Any:
    """Reduce each tensor over the members, in place; the operator returns the handle alone."""
    return all_reduce_in_place(tensors, group, operation)[1]


def broadcast_in_place(tensors: Any, group: Any, root: int, root_tensor: int = 0, *rest: Any) -> Any:
    """Write the root's tensor into the tensor of each member. `root_tensor` says which of the tensors to send; there is
    one alone."""
    ops = functional()
    for tensor in tensors:
        tensor.copy_(ops.wait_tensor(ops.broadcast(tensor, root, group_name(group))))
    return tensors, finished_work(tensors)


def gather_into(output: Any, tensor: Any, group: Any, *rest: Any) -> Any:
    """Gather the tensors of all members into one."""
    output.copy_(gathered(tensor, group_name(group), group_of(group).size()).view(output.shape))
    return output, finished_work([output])


def gather_lists(outputs: Any, tensors: Any, group: Any, *rest: Any) -> Any:
    """Gather into lists of tensors, one for each member; gloo lets them have shapes of their own."""
    size, name = group_of(group).size(), group_name(group)
    for parts, tensor in zip(outputs, tensors, strict=True):
        if any(part.shape != tensor.shape for part in parts):
            # An all-gather takes one shape. By an all-to-all, every member is sent the whole tensor.
            counts = [part.numel() for part in parts]
            outgoing = [tensor.numel()] * size
            pieces = exchanged(tensor.reshape(-1).repeat(size), outgoing, counts, name).split(counts)
        else:
            pieces = gathered(tensor.reshape(1, *tensor.shape), name, size).unbind(0)
        for part, piece in zip(parts, pieces, strict=True):
            part.copy_(piece.view(part.shape))
    return outputs, finished_work(outputs)


def gather_lists_coalesced(outputs: Any, tensors: Any, group: Any, *rest: Any) -> Any:
    """Gather as `gather_lists`; the operator returns the handle alone."""
    return gather_lists(outputs, tensors, group)[1]


def gather_into_coalesced(outputs: Any, tensors: Any, group: Any, *rest: Any) -> Any:
    """Gather several tensors, each into one of its own."""
    for output, tensor in zip(outputs, tensors, strict=True):
        gather_into(output, tensor, group)
    return finished_work(outputs)


def scatter_into(output: Any, tensor: Any, group: Any, operation: Any, *rest: Any) -> Any:
    """Reduce a tensor over the members, and write this rank's part into `output`."""
    size = group_of(group).size()
    # The functional collective scatters along the first dimension, and the tensor may have a part in each of its rows.
    rows = tensor.view(size * output.shape[0], *output.shape[1:]) if output.dim() else tensor
    output.copy_(scattered(*as_reduced(rows, operation), group_name(group), size).view(output.shape))
    return output, finished_work([output])


def scatter_into_coalesced(outputs: Any, tensors: Any, group: Any, operation: Any, *rest: Any) -> Any:
    """Reduce several tensors over the members, and keep this rank's part of each."""
    for output, tensor in zip(outputs, tensors, strict=True):
        scatter_into(output, tensor, group, operation)
    return finished_work(outputs)


def scatter_lists(outputs: Any, tensors: Any, group: Any, operation: Any, *rest: Any) -> Any:
    """Reduce lists of tensors, one tensor for each member, and write this rank's into its output. Refuse tensors of
    several shapes."""
    for output, parts in zip(outputs, tensors, strict=True):
        if any(part.shape != output.shape for part in parts):
            raise CaptureError(
                f"reduce_scatter of parts of different shapes ({[list(part.shape) for part in parts]}), which a graph "
                "has no collective for: pad them to one shape",
                every_engine=True,
            )
        scatter_into(output, torch.stack(list(parts)), group, operation)
    return outputs, finished_work(outputs)


def exchange_into(output: Any, tensor: Any, group: Any, incoming: Any, outgoing: Any, *rest: Any) -> Any:
    """Send a part of a tensor to each member, and join what they send (all-to-all)."""
    size = group_of(group).size()
    # Without sizes, `all_to_all_single` exchanges parts of one size.
    incoming = incoming or [output.shape[0] // size] * size
    outgoing = outgoing or [tensor.shape[0] // size] * size
    output.copy_(exchanged(tensor, outgoing, incoming, group_name(group)))
    return finished_work([output])


def exchange_lists(outputs: Any, tensors: Any, group: Any, *rest: Any) -> Any:
    """Send a tensor to each member, and receive one from each (all-to-all); they may have any shapes."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    incoming = [output.numel() for output in outputs]
    received = exchanged(flat, [tensor.numel() for tensor in tensors], incoming, group_name(group))
    for output, part in zip(outputs, received.split(incoming), strict=True):
        output.copy_(part.view(output.shape))
    return outputs, finished_work(outputs)


def scatter_from_root(outputs: Any, tensors: Any, group: Any, root: int, *rest: Any) -> Any:
    """Scatter from one member, the root: it sends a part of its list (`tensors[0]`) to each, and the others, whose
    `tensors` are empty, send nothing."""
    size, name, [output] = group_of(group).size(), group_name(group), outputs
    is_root = group_of(group).rank() == root
    # An all-to-all in which the root alone sends: no functional collective has a root but `broadcast`.
    sent = torch.cat([part.reshape(-1) for part in tensors[0]]) if is_root else output.new_empty(0)
    outgoing = [output.numel() if is_root else 0] * size  # parts of a scatter have one shape
    incoming = [output.numel() if member == root else 0 for member in range(size)]
    received = exchanged(sent, outgoing, incoming, name)
    output.copy_(received.view(output.shape))
    return outputs, finished_work(outputs)


def gather_to_root(outputs: Any, tensors: Any, group: Any, root: int, *rest: Any) -> Any:
    """Gather to one member, the root: into its list (`outputs[0]`). `outputs` of the other members are empty."""
    size, name, [tensor] = group_of(group).size(), group_name(group), tensors
    is_root = group_of(group).rank() == root
    parts = outputs[0] if is_root else ()
    # An all-to-all in which all members send to the root alone.
    incoming = [part.numel() for part in parts] if is_root else [0] * size
    outgoing = [tensor.numel() if member == root else 0 for member in range(size)]
    received = exchanged(tensor.reshape(-1), outgoing, incoming, name)
    # Not strict: a member that is not the root receives empty pieces, and has no parts.
    for part, piece in zip(parts, received.split(incoming), strict=False):
        part.copy_(piece.view(part.shape))
    return finished_work(outputs)


def reduce_to(tensors: Any, group: Any, operation: Any, root: int, *rest: Any) -> Any:
    """Reduce to one member, the root; the tensors of the other members stay as they are."""
    for tensor in tensors:
        total = reduced(*as_reduced(tensor, operation), group_name(group))
        if group_of(group).rank() == root:
            tensor.copy_(total)
    return finished_work(tensors)


def refuse_messages(*args: Any) -> Any:
    """Refuse a message from one rank to one other."""
    raise CaptureError(
        "the program sends to one rank or receives from one (`send`, `recv`, a pipeline schedule), which is not "
        "captured: capture the module of each stage with its own arguments",
        every_engine=True,
    )


def meet(tensor: Any, group: Any, *rest: Any) -> Any:
    """A barrier: it moves no value, so a graph has no step for it."""
    return finished_work([tensor])


def meet_monitored(*args: Any) -> None:
    """A barrier whose error names the ranks that did not come: it moves no value either."""


# The next ones are forms of operators of `_c10d_functional` that write into a tensor, or take several. They return
# results that are not waited for yet, as the operators do.


def all_reduce_and_write(tensor: Tensor, reduction: str, group: Any) -> Tensor:
    return tensor.copy_(functional().all_reduce(tensor, reduction, group))


def all_reduce_all_and_write(tensors: Any, reduction: str, group: Any) -> Any:
    return [all_reduce_and_write(tensor, reduction, group) for tensor in tensors]


def all_reduce_each(tensors: Any, reduction: str, group: Any) -> Any:
    return [functional().all_reduce(tensor, reduction, group) for tensor in tensors]


def broadcast_and_write(tensor: Tensor, source: int, group: Any) -> Tensor:
    return tensor.copy_(functional().broadcast(tensor, source, group))


def gather_and_write(tensor: Tensor, size: int, group: Any, *, out: Tensor) -> Tensor:
    return out.copy_(functional().all_gather_into_tensor(tensor, size, group))


def gather_each(tensors: Any, size: int, group: Any) -> Any:
    return [functional().all_gather_into_tensor(tensor, size, group) for tensor in tensors]


def scatter_and_write(tensor: Tensor, reduction: str, size: int, group: Any, *, out: Tensor) -> Tensor:
    return out.copy_(functional().reduce_scatter_tensor(tensor, reduction, size, group))


def scatter_each(tensors: Any, reduction: str, size: int, group: Any) -> Any:
    return [functional().reduce_scatter_tensor(tensor, reduction, size, group) for tensor in tensors]


def exchange_dims(tensor: Tensor, gather_dim: int, shard_dim: int, group: Any) -> Tensor:
    """Return this rank's shard of a tensor that is sharded in `shard_dim` from now on, and was in `gather_dim`: each
    member sends each other a part, as DTensor does. Refuse parts of unequal sizes."""
    size = group_of(group).size()
    pieces = torch.stack([part.contiguous() for part in tensor.chunk(size, shard_dim)])
    if len(pieces) != size or any(part.shape != pieces[0].shape for part in pieces):
        raise CaptureError("parts of unequal sizes are exchanged between two dimensions", every_engine=True)
    name = group if isinstance(group, str) else group_name(group)
    received = exchanged(pieces, [1] * size, [1] * size, name)  # one row of `pieces` to each, and one from each
    return torch.cat(list(received.unbind(0)), gather_dim)


def copy_in(inputs: Any, output: Tensor, sizes: Any, count: int, rank: int) -> Any:
    """FSDP2 copies its shards, of these sizes, next to each other into this rank's part of the gathered buffer, which
    has `count` elements; return that part and the buffer."""
    part = output.narrow(0, count * rank, count)
    for piece, tensor in zip(torch.split(part, list(sizes)), inputs, strict=True):
        piece.copy_(tensor)
    return part, output


def copy_out(gathered_tensor: Tensor, sizes: Any, dim: int = 0, *, out: Any) -> None:
    """FSDP2 copies the gathered shards, of these sizes along a dimension, to the unsharded parameters `out`."""
    for part, target in zip(torch.split(gathered_tensor, list(sizes), dim), out, strict=True):
        target.copy_(part)


def cat_of_chunks(tensors: Any, dim: int, count: int, *, out: Tensor) -> None:
    """FSDP2 copies gradients, each cut in `count` chunks, into the buffer `out` that is reduced and scattered: first
    the first chunks of all, then the second ones, and so on."""
    out.copy_(torch._chunk_cat(list(tensors), dim, count).view(out.shape))


def copy_data(tensor: Tensor, data: Tensor) -> None:
    """FSDP2 copies data into a tensor."""
    tensor.copy_(data)


FORMS: Mapping[str, Callable[..., Any]] = {
    "c10d.allreduce_.default": all_reduce_in_place,
    "c10d.allreduce_coalesced_.default": all_reduce_coalesced_in_place,
    "c10d.broadcast_.default": broadcast_in_place,
    "c10d._allgather_base_.default": gather_into,
    "c10d.allgather_.default": gather_lists,
    "c10d.allgather_coalesced_.default": gather_lists_coalesced,
    "c10d.allgather_into_tensor_coalesced_.default": gather_into_coalesced,
    "c10d._reduce_scatter_base_.default": scatter_into,
    "c10d.reduce_scatter_.default": scatter_lists,
    "c10d.reduce_scatter_tensor_coalesced_.default": scatter_into_coalesced,
    "c10d.alltoall_base_.default": exchange_into,
    "c10d.alltoall_.default": exchange_lists,
    "c10d.scatter_.default": scatter_from_root,
    "c10d.gather_.default": gather_to_root,
    "c10d.reduce_.default": reduce_to,
    "c10d.barrier.default": meet,
    "c10d.monitored_barrier_.default": meet_monitored,
    "c10d.send.default": refuse_messages,
    "c10d.recv_.default": refuse_messages,
    "c10d.recv_any_source_.default": refuse_messages,
    "_c10d_functional.isend.default": refuse_messages,
    "_c10d_functional.irecv.default": refuse_messages,
    "_c10d_functional.batch_p2p_ops.default": refuse_messages,
    "_c10d_functional.all_reduce_.default": all_reduce_and_write,
    "_c10d_functional.all_reduce_coalesced.default": all_reduce_each,
    "_c10d_functional.all_reduce_coalesced_.default": all_reduce_all_and_write,
    "_c10d_functional.broadcast_.default": broadcast_and_write,
    "_c10d_functional.all_gather_into_tensor_out.default": gather_and_write,
    "_c10d_functional.all_gather_into_tensor_coalesced.default": gather_each,
    "_c10d_functional.reduce_scatter_tensor_out.default": scatter_and_write,
    "_c10d_functional.reduce_scatter_tensor_coalesced.default": scatter_each,
    "_dtensor.shard_dim_alltoall.default": exchange_dims,
    "fsdp.all_gather_copy_in.default": copy_in,
    "fsdp.split_with_sizes_copy.default": copy_out,
    "fsdp.chunk_cat.default": cat_of_chunks,
    "fsdp.copy_.default": copy_data,
}
"""Operators of `torch.distributed` that a graph does not have, each with a function that does the same by operators
that a graph has."""

NAMESPACES = frozenset({"c10d", FUNCTIONAL, "fsdp", "_dtensor"})
"""The namespaces of the operators of `torch.distributed`."""

PASSING = frozenset({"_c10d_functional._wrap_tensor_autograd.default"})
"""Operators that return the tensor that they take."""


def passes_on(target: str) -> bool:
    """Whether an operator, as a graph calls it, returns the tensor that it takes."""
    return target.removeprefix("torch.ops.") in PASSING


def form_of(operator: Any) -> Callable[..., Any] | None:
    """Return the function that replaces an operator of `torch.distributed` by operators that a graph has; None if there
    is none."""
    return FORMS.get(str(operator)) if operator.namespace in NAMESPACES else None


def reduces_gradients(module: Any) -> bool:
    """Whether a module reduces its gradients among processes once autograd has accumulated them: DDP, FSDP2, and what
    `torch.distributed._composable.replicate` makes."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # a module of FSDP2 has loaded it
    return (
        isinstance(module, torch.nn.parallel.DistributedDataParallel)
        or (fsdp is not None and isinstance(module, fsdp.FSDPModule))
        or any(kind.__module__.startswith("torch.distributed._composable") for kind in type(module).__mro__)
    )


def why_not_recorded(module: Any) -> str:
    """Return why the step of a distributed module is neither recorded nor captured, and what to do; '' if it is."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and isinstance(module, fsdp.FullyShardedDataParallel):
        return "FullyShardedDataParallel (FSDP1) is not captured: shard the module with fully_shard"
    return ""


@uses("torch.distributed.fsdp.FSDPModule._get_fsdp_state", needed_by=(private.RANKS,))
def switch_that_keeps_gradients(module: Any) -> str:
    """Return the method that has told FSDP2 not to reduce the gradients of a module; '' if it reduces them."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None or not isinstance(module, fsdp.FSDPModule):
        return ""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)  # one alone before torch 2.13
    for group in [state._fsdp_param_group] if groups is None else groups:
        if group is not None and not group.reduce_grads:
            return "set_requires_gradient_sync"
        if group is not None and not group.all_reduce_grads:
            return "set_requires_all_reduce"
    return ""


def resharding(module: Any) -> Callable[[], None] | None:
    """Return the function that shards a module of FSDP2 again after a step, if it is sharded now, else None. Where
    `set_reshard_after_backward(False)` was called, a step leaves its parameters gathered."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None or not isinstance(module, fsdp.FSDPModule):
        return None
    if not any(map(is_wrapper, module.parameters())):  # gathered: sharded parameters are DTensors
        return None
    reshard: Callable[[], None] = module.reshard
    return reshard


def why_not_captured(module: Any) -> str:
    """Return why the step of a distributed module is not captured, and what to do; '' if it is."""
    if why := why_not_recorded(module):
        return why
    if isinstance(module, torch.nn.parallel.DistributedDataParallel) and module.static_graph:
        return (
            "DistributedDataParallel(static_graph=True) is not captured: its first steps differ; leave static_graph out"
        )
    if switch := switch_that_keeps_gradients(module):
        return (
            f"FSDP2 keeps the gradients of {type(module).__name__} to itself, not reduced ({switch}(False)), so a step "
            "leaves none: capture one that reduces them, such as a module whose forward runs all micro-batches and "
            "their backward"
        )
    return ""


# ---- Wrappers


@uses("torch.utils._python_dispatch.is_traceable_wrapper_subclass", needed_by=(private.RANKS,))
def is_wrapper(tensor: Tensor) -> bool:
    """Whether a tensor says by `__tensor_flatten__` which tensors it holds."""
    return bool(torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor))


def tensors_inside(tensor: Any) -> list[str]:
    """Return the attributes of a wrapper that hold tensors."""
    return [name for name in tensor.__tensor_flatten__()[0] if isinstance(getattr(tensor, name), Tensor)]


Remake = Callable[[Tensor, bool], Tensor]
"""`remake(inner, tangent)` returns a wrapper around `inner`, like the wrapper that the function was made for; with
`tangent`, like a tangent of this wrapper, which has other placements where the wrapper is a partial sum."""


def remaker(tensor: Any) -> Remake:
    """Return a function that makes a wrapper like this one, which wraps one tensor, around another tensor."""
    if as_sharded(tensor) is not None:
        return sharded_remaker(tensor)
    attributes, context = tensor.__tensor_flatten__()
    [inside] = tensors_inside(tensor)
    others = {name: getattr(tensor, name) for name in attributes if name != inside}
    kind, size, stride = type(tensor), tensor.size(), tensor.stride()

    def remake(inner: Tensor, tangent: bool) -> Tensor:  # a tangent is wrapped in the same way
        made: Tensor = kind.__tensor_unflatten__({inside: inner, **others}, context, size, stride)
        return made.detach()

    return remake


@uses("torch.distributed.tensor.DTensor._spec", needed_by=(private.RANKS,))
def sharded_remaker(tensor: Any) -> Remake:
    """Return the `remaker` of a DTensor. Where a DTensor is a partial sum, its tangent is replicated: each rank's
    summand has the tangent of the sum."""
    from torch.distributed.tensor import DTensor, Replicate

    spec = tensor._spec
    name_groups(spec.mesh)  # for the labels of its groups in graphs
    placements = tuple(Replicate() if place.is_partial() else place for place in spec.placements)
    of_tangent = type(spec)(spec.mesh, placements, tensor_meta=spec.tensor_meta)

    def remake(inner: Tensor, tangent: bool) -> Tensor:
        return DTensor(inner, of_tangent if tangent else spec, requires_grad=False)

    return remake


@uses("torch.distributed._functional_collectives.AsyncCollectiveTensor", needed_by=(private.RANKS,))
def awaits_collective(tensor: Any) -> bool:
    """Whether a tensor is the result of a collective that waits for it at its first use."""
    module = sys.modules.get("torch.distributed._functional_collectives")
    return module is not None and isinstance(tensor, module.AsyncCollectiveTensor)


def wait_for(tensor: Any) -> None:
    """Wait for the collective of a tensor that awaits it."""
    tensor.trigger_wait()


def as_sharded(tensor: Tensor) -> Any:
    """Return a tensor if it is a DTensor, else None. A program that has DTensors has loaded their module."""
    module = sys.modules.get("torch.distributed.tensor")
    return tensor if module is not None and isinstance(tensor, module.DTensor) else None


def sharded_like(tensor: Tensor, other: Any) -> Tensor:
    """Return a DTensor redistributed to the placements of another, which adds up partial sums where the other has none;
    a tensor as it is if one of the two is no DTensor."""
    given, wanted = as_sharded(tensor), as_sharded(other)
    if given is None or wanted is None or given.placements == wanted.placements:
        return tensor
    return given.redistribute(placements=wanted.placements)


def whole_tensor(tensor: Tensor) -> Tensor:
    """Return the tensor of which a DTensor is a shard; any other as it is."""
    sharded = as_sharded(tensor)
    return tensor if sharded is None else sharded.full_tensor()


def mesh_dim_label(mesh: Any, dim: int) -> str:
    """Return the name of a dimension of a device mesh in texts."""
    names = mesh.mesh_dim_names
    return str(names[dim]) if names else f"dim_{dim}"


def name_groups_of(tensor: Tensor) -> None:
    """Remember the names of the dimensions of the mesh that a DTensor is on."""
    if (sharded := as_sharded(tensor)) is not None:
        name_groups(sharded.device_mesh)


def sharding_text(tensor: Tensor) -> str:
    """Return the shape and the placements of a DTensor as text, `[64, 8] on tp: Shard(0)`; '' for any other tensor."""
    sharded = as_sharded(tensor)
    if sharded is None:
        return ""
    mesh, placements = sharded.device_mesh, sharded.placements
    places = ", ".join(f"{mesh_dim_label(mesh, dim)}: {placement_text(place)}" for dim, place in enumerate(placements))
    return f"{list(sharded.shape)} on {places}"


def placement_text(placement: Any) -> str:
    """Return a placement in a word: `Shard(0)`, `Replicate`, `Partial(sum)`. It is `StridedShard(0, 2)` where FSDP
    shards a dimension that is already sharded in two."""
    if hasattr(placement, "split_factor"):  # torch's class `_StridedShard`, which is a Shard in some versions
        return f"StridedShard({placement.dim}, {placement.split_factor})"
    if placement.is_shard():
        return f"Shard({placement.dim})"
    if placement.is_replicate():
        return "Replicate"
    return f"Partial({placement.reduce_op})" if placement.is_partial() else "other"


# ---- Ranks in threads of this process
# Each rank has process groups of its own, on a backend that moves nothing; the collectives are answered by a mode.


class ThreadGroups:
    """The process groups of one rank that runs in a thread, and the groups that its program makes while it runs.

    `rank` is its number among `size` ranks. `data` is torch.distributed's state of the rank (a WorldData), None until
    it first runs (`in_rank`). `number` tells its device meshes from those of other ranks.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.data: Any = None
        self.number = next(_NUMBERS)


class RankOfMesh:
    """A descriptor in the place of the attribute `DeviceMesh._thread_id`, which takes part in the equality of meshes:
    it is the number of the rank's ThreadGroups, so a mesh that a rank makes differs from the same mesh of another rank.

    Otherwise they were equal, and DTensor, which caches results by mesh, would return those of another rank.
    """

    def __get__(self, mesh: Any, kind: Any = None) -> Any:
        return self if mesh is None else mesh.__dict__["_thread_id"]

    def __set__(self, mesh: Any, value: Any) -> None:
        groups = getattr(_HERE, "groups", None)  # None in a thread that is no rank, where torch's own value stays
        mesh.__dict__["_thread_id"] = value if groups is None else groups.number


_THREAD_GROUPS_OPEN = [0]
"""How many blocks of `in_rank` are open, in all threads."""

_LOCK = threading.RLock()
"""Is held while the state of `torch.distributed` is replaced or put back."""

_NUMBERS = itertools.count(1)
_HERE = threading.local()
"""`groups` is the ThreadGroups of the rank that this thread is, if it is one."""


@uses(
    "torch.distributed.distributed_c10d._world",
    "torch.distributed.distributed_c10d._new_process_group_helper",
    "torch.distributed.device_mesh.DeviceMesh",
    "torch._C._distributed_c10d._set_thread_isolation_mode",
    "torch._C._distributed_c10d._register_process_group",
    "torch._C._distributed_c10d._unregister_process_group",
    needed_by=(private.RANKS,),
)
@contextlib.contextmanager
def in_rank(groups: ThreadGroups) -> Iterator[None]:
    """Be this rank in this thread: `torch.distributed` answers with its process groups. The backward runs in this
    thread too, for all devices, because another thread would be no rank. Blocks may be inside each other: the thread is
    afterwards the rank that it was before, or none."""
    from torch.testing._internal.distributed import multi_threaded_pg

    _replace_state()
    local = multi_threaded_pg.ThreadLocalWorld._world  # a `threading.local`, whose `world` is the state of this thread
    before = getattr(local, "world", None)
    if before is not None and before is groups.data:  # the thread is this rank already
        try:
            yield
        finally:
            _put_state_back()
        return
    groups_before = getattr(_HERE, "groups", None)
    _HERE.groups = groups
    try:
        if groups.data is None:  # the rank has not run yet
            local.__dict__.pop("world", None)
            _make_fake_world(groups.rank, groups.size)
            groups.data = local.world
        else:
            local.world = groups.data
            _register_groups(groups.data)
        with torch.autograd.set_multithreading_enabled(False):
            yield
    finally:
        _HERE.groups = groups_before
        if groups.data is not None:  # None if its groups could not be made
            _unregister_groups(groups.data)
        local.__dict__.pop("world", None)
        if before is not None:
            local.world = before
            _register_groups(before)
        _put_state_back()


def _replace_state() -> None:
    """Enter a block of `in_rank`: the first one replaces the state of `torch.distributed` by one for each thread."""
    from torch._C import _distributed_c10d as c10d
    from torch.distributed import device_mesh, distributed_c10d
    from torch.testing._internal.distributed import multi_threaded_pg

    with _LOCK:
        if not _THREAD_GROUPS_OPEN[0]:
            plain = distributed_c10d._new_process_group_helper
            _BEFORE[:] = [distributed_c10d._world, plain]
            distributed_c10d._new_process_group_helper = without_messages(plain)
            device_mesh.DeviceMesh._thread_id = RankOfMesh()  # so that meshes of two ranks are unequal
            distributed_c10d._world = multi_threaded_pg.ThreadLocalWorld()
            c10d._set_thread_isolation_mode(True)  # the names of groups in C++ are those of each thread
        _THREAD_GROUPS_OPEN[0] += 1


def _put_state_back() -> None:
    """Leave a block of `in_rank`: the last one puts back what the first has replaced."""
    from torch._C import _distributed_c10d as c10d
    from torch.distributed import device_mesh, distributed_c10d

    with _LOCK:
        _THREAD_GROUPS_OPEN[0] -= 1
        if not _THREAD_GROUPS_OPEN[0]:
            c10d._set_thread_isolation_mode(False)
            distributed_c10d._world, distributed_c10d._new_process_group_helper = _BEFORE
            del device_mesh.DeviceMesh._thread_id


_BEFORE: list[Any] = []
"""What `_replace_state` has replaced: torch's state `_world`, and its function that makes process groups."""


def _make_fake_world(rank: int, size: int) -> None:
    """Make the group of all processes for a rank, on a backend that moves nothing."""
    from torch.testing._internal.distributed import fake_pg

    store, hook = fake_pg.FakeStore(), sys.excepthook
    torch.distributed.init_process_group("fake", store=store, rank=rank, world_size=size)
    sys.excepthook = hook  # torch's own hook would name this rank in every error from here on


def _register_groups(world: Any) -> None:
    """Register the groups of a rank's state under their names, by which operators find them."""
    from torch._C import _distributed_c10d as c10d

    for group, name in world.pg_names.items():
        c10d._register_process_group(name, group)


def _unregister_groups(world: Any) -> None:
    """Undo `_register_groups`, so that the names are free for the groups of another rank."""
    from torch._C import _distributed_c10d as c10d

    for name in set(world.pg_names.values()):
        c10d._unregister_process_group(name)


def without_messages(make_group: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that makes process groups, changed for ranks in threads: whatever backend they ask for, they
    get groups that move nothing, because there is nobody whom gloo or NCCL could reach."""
    signature = inspect.signature(make_group)

    @functools.wraps(make_group)
    def made(*args: Any, **kwargs: Any) -> Any:
        if getattr(_HERE, "groups", None) is None:  # this thread is no rank
            return make_group(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.arguments |= {"backend": "fake", "backend_options": None}
        return make_group(*bound.args, **bound.kwargs)

    return made


def handlers_of_operators() -> dict[Any, Any]:
    """Return DTensor's table of operators with handlers of their own. Blocks such as `loss_parallel` change it, for the
    whole process."""
    module = sys.modules.get("torch.distributed.tensor")
    return {} if module is None else module.DTensor._op_dispatcher._custom_op_handlers


SHAPES = "_propagate_tensor_meta_non_cached"
"""The method by which DTensor runs an operator on fake tensors of the global shapes, the first time that it meets
it."""


@uses(
    f"torch.distributed.tensor._sharding_prop.ShardingPropagator.{SHAPES}",
    needed_by=(private.RANKS,),
)
@contextlib.contextmanager
def shapes_computed_apart() -> Iterator[None]:
    """In this block, let DTensor, if it is loaded, compute the shapes of results out of sight of all modes. The
    operators that it runs for them are not the program's, and run the first time only."""
    module = sys.modules.get("torch.distributed.tensor._sharding_prop")
    if module is None:
        yield
        return
    kind = module.ShardingPropagator
    before = getattr(kind, SHAPES)

    @functools.wraps(before)
    def apart(*args: Any) -> Any:
        with without_modes():
            return before(*args)

    setattr(kind, SHAPES, apart)
    try:
        yield
    finally:
        setattr(kind, SHAPES, before)


# ---- Probes


def forms_have_operators() -> bool:
    """Whether torch has the operators of FORMS that it registers without an import."""
    if not torch.distributed.is_available():
        return True
    functional()  # its import registers some of them
    known = {schema.name.replace("::", ".") for schema in torch._C._jit_get_all_schemas()}
    # Not all versions have operators for messages; FSDP2 and DTensor register theirs only when they are imported.
    always_there = [
        name
        for name, form in FORMS.items()
        if form is not refuse_messages and not name.startswith(("fsdp", "_dtensor"))
    ]
    return all(name.removesuffix(".default") in known for name in always_there)


def reductions_are_numbered() -> bool:
    if not torch.distributed.is_available():
        return True
    kinds = torch.distributed.ReduceOp.RedOpType
    return all(int(getattr(kinds, name.upper())) == number for number, name in enumerate(REDUCTIONS))


def handlers_are_a_table() -> bool:
    if not torch.distributed.is_available():
        return True
    from torch.distributed.tensor import DTensor  # `handlers_of_operators` reads this module only once it is loaded

    return DTensor is not None and type(handlers_of_operators()) is dict and bool(handlers_of_operators())


def meshes_have_a_thread() -> bool:
    """Whether the equality of device meshes reads `_thread_id`, which RankOfMesh stands for."""
    if not torch.distributed.is_available():
        return True
    from torch.distributed.device_mesh import DeviceMesh

    return "_thread_id" in DeviceMesh.__eq__.__code__.co_names


def finished_work_has_a_result() -> bool:
    if not torch.distributed.is_available():
        return True
    work = torch.distributed.Work.unbox(finished_work([torch.zeros(1)]))
    return bool(work.wait()) and len(work.get_future().wait()) == 1


def reductions_tell_their_factor() -> bool:
    """Whether the state of a PREMUL_SUM has its factor, where this torch can make one."""
    if not torch.distributed.is_available():
        return True
    from torch._C import _distributed_c10d as c10d

    make = getattr(c10d, "_make_nccl_premul_sum", None) or c10d.ReduceOp.PREMUL_SUM
    if not callable(make):  # before torch 2.13, without NCCL
        return True
    options = c10d.AllreduceOptions()
    options.reduceOp = make(0.25)
    return bool(options.reduceOp.__getstate__()[1] == 0.25)


def groups_are_made_for_a_backend() -> bool:
    """Whether the function that makes groups takes a backend and its options by name."""
    if not torch.distributed.is_available():
        return True
    from torch.distributed import distributed_c10d

    return {"backend", "backend_options"} <= set(
        inspect.signature(distributed_c10d._new_process_group_helper).parameters
    )


def fsdp_has_switches() -> bool:
    """Whether FSDP2's own switch writes the attributes that `switch_that_keeps_gradients` reads."""
    if not torch.distributed.is_available():
        return True
    from torch.distributed.fsdp import FSDPModule

    written = FSDPModule.set_requires_gradient_sync.__code__.co_names
    return {"reduce_grads", "all_reduce_grads"} <= set(written)


PROBES = (
    Probe("torch.distributed.fsdp.FSDPParamGroup.reduce_grads", fsdp_has_switches, (private.RANKS,)),
    Probe("torch.distributed.tensor.DTensor._op_dispatcher", handlers_are_a_table, (private.RANKS,)),
    Probe("torch.distributed.device_mesh.DeviceMesh._thread_id", meshes_have_a_thread, (private.RANKS,)),
    Probe("torch.ops.c10d", forms_have_operators, (private.RANKS,)),
    Probe("torch.distributed.ReduceOp.RedOpType", reductions_are_numbered, (private.RANKS,)),
    Probe("torch._C._distributed_c10d._create_work_from_future", finished_work_has_a_result, (private.RANKS,)),
    Probe("torch._C._distributed_c10d.ReduceOp.__getstate__", reductions_tell_their_factor, (private.RANKS,)),
    Probe(
        "torch.distributed.distributed_c10d._new_process_group_helper", groups_are_made_for_a_backend, (private.RANKS,)
    ),
)
