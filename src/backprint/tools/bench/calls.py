"""What was compiled, called on the same tensors with other contents each time.

A call is given tensors, and says what it returned, from which random state it drew, which of its inputs it changed, and
which results have an input's memory. All calls of a graph get the same tensors, as those of a training loop do: a
compiled function that keeps results by tensor, by address or by shape is then wrong on the second contents.

Contents are one value for each input of a graph. A BenchGraph is a forward or a backward with its run in eager (`run`:
inputs, results); a BenchStep is both of a Pair as one. A place is the number of an input or of a result.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from backprint.child.strangers import compiler_errors
from backprint.errors import BackprintError
from backprint.judge.closeness import same_bits
from backprint.judge.occasions import EDGES, OCCASIONS
from backprint.tools.export.judged import one_to_the_bit
from backprint.tools.export.rerun import copies, laid_as_saved
from backprint.tools.lowering.subjects import BenchGraph, BenchStep, RandomState, inputs_of_results, state_of
from backprint.values.tree import strided_parts

T = TypeVar("T")

AnyGraph = BenchGraph | BenchStep


class NoTuple(BackprintError):
    """A compiled function returned something else than a tuple or a list of results."""


# ------------------------------------------------------------------ a forward and its backward as one function
#
# Whatever a bench puts around a compiled function is billed to its compiler: a list comprehension and a
# `tree_unflatten` take 2 to 4 µs, a fifth of a small graph's call. So the function that is timed is the compiler's own,
# or a single expression around it that is written as text, and a call costs what its statements cost.


def function_of_text(arguments: Sequence[str], body: Sequence[str], names: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function with these arguments and the statements of `body`; `names` are its globals."""
    lines = [f"def call({', '.join(arguments)}):", *(f"    {line}" for line in body)]
    namespace = dict(names)
    exec(compile("\n".join(lines), "<backprint: a call>", "exec"), namespace)
    function: Callable[..., Any] = namespace["call"]
    return function


def arguments_of(count: int) -> list[str]:
    """Return the names of `count` arguments: v0, v1, …"""
    return [f"v{place}" for place in range(count)]


def join_forward_and_backward(
    step: BenchStep, forward: Callable[..., Any], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a forward and its backward as one function of the step's inputs. It returns the forward's results, and
    then the gradients, so that both can be judged.

    The backward takes the saved values in the strides that it was compiled for. Which of them the forward saves with
    other strides is found here, by one call of the forward, so that no timed call has to look. `step.sources` says of
    each input of the backward whether it is a result of the forward, and its place there or among the step's inputs.
    """
    # def call(v0, v1): r = forward(v0); return (*r, *backward(v1, r[1], laid(r[2], s2)))
    names, forward_count = arguments_of(len(step.inputs)), len(step.forward.graph.inputs)
    results = forward(*copies(step.forward.run.inputs))
    namespace: dict[str, Any] = {"forward": forward, "backward": backward, "laid": laid_as_saved}
    backward_arguments = []
    for place, (saved, source) in enumerate(step.sources):
        argument = f"r[{source}]" if saved else names[source]
        stride = step.strides.get(place)  # only saved values have one
        if stride is not None and results[source].stride() != stride:
            namespace[f"s{place}"] = stride
            argument = f"laid({argument}, s{place})"
        backward_arguments.append(argument)
    body = [
        f"r = forward({', '.join(names[:forward_count])})",
        f"return (*r, *backward({', '.join(backward_arguments)}))",
    ]
    return function_of_text(names, body, namespace)


# ------------------------------------------------------------------ calls


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a compiled function. `inputs` are copies of what it was called on, `returned` its results as they
    are, and `results` copies that were made when it had returned. `random` is the random state that it drew from.
    `changed` are places of inputs that it wrote into and eager does not; `shared` has, for a result with an input's
    memory, the place of that input. `device_bytes` is the peak of the GPU memory that it allocated; None on a CPU."""

    inputs: list[Any]
    returned: list[Any]
    results: list[Any]
    random: RandomState
    changed: list[int]
    shared: Mapping[int, int]
    device_bytes: int | None = None

    def fault_of_memory(self) -> str:
        """Return why what was returned is no longer what it was when the call ended, or an empty text. A result with an
        input's memory does not count: other contents are written into the inputs for the next call."""
        for place, (value, before) in enumerate(zip(self.returned, self.results, strict=True)):
            if place not in self.shared and isinstance(value, Tensor) and not one_to_the_bit(value, before):
                return "its results change after it returned: they are written late, or their memory is used again"
        return ""


@dataclass(slots=True)
class CompiledCalls:
    """A compiled function and the tensors that all its calls get (why the same ones: the module's docstring)."""

    function: Callable[..., Any]
    values: list[Any]
    kinds: Sequence[Any]
    """Results of the kinds that the function returns, such as eager's: free memory of their sizes is filled before each
    call."""
    written: Sequence[int] = ()
    """The places of inputs that eager writes into."""
    chance: random.Random = field(default_factory=lambda: random.Random(os.urandom(32)))
    """Draws the seeds of calls, and the order of programs when they are timed."""

    def put(self, contents: Sequence[Any]) -> None:
        """Write contents into the tensors."""
        for value, other in zip(self.values, contents, strict=True):
            if isinstance(value, Tensor):
                _copy_contents(value, other)

    def call(self, contents: Sequence[Any], grad: bool = True, seed: int | None = None) -> Call:
        """Call the function once on contents, from the random state of a seed, a drawn one if it is None; with `grad`
        in the mode in which autograd records. Raise CompilerFailed if the function raises, or NoTuple."""
        self.put(contents)
        fill_free_memory(self.kinds)
        state = state_of(self.chance.getrandbits(62) if seed is None else seed)
        with compiler_errors(), torch.set_grad_enabled(grad):
            answer, device_bytes = with_device_bytes(partial(self.function, *self.values), on_gpu(self.values))
        returned, results = results_of(answer)
        changed = [place for place in changed_places(self.values, contents) if place not in self.written]
        shared = inputs_of_results(returned, self.values)
        return Call(copies(contents), returned, results, state, changed, shared, device_bytes)


def on_gpu(values: Sequence[Any]) -> bool:
    """Whether one of the values is a tensor on a GPU."""
    return any(isinstance(value, torch.Tensor) and value.is_cuda for value in values)


def with_device_bytes(call: Callable[[], T], gpu: bool) -> tuple[T, int | None]:
    """Return the results of a call, and the peak of the GPU memory that it allocated; None on a CPU."""
    if not gpu:
        return call(), None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    results = call()
    torch.cuda.synchronize()
    return results, torch.cuda.max_memory_allocated() - before


def results_of(answer: Any) -> tuple[list[Any], list[Any]]:
    """Return what a compiled function returned, as a list without the graph that autograd may have recorded, and
    copies of it; raise NoTuple for anything but a tuple or a list."""
    if not isinstance(answer, (tuple, list)):
        raise NoTuple(f"a {type(answer).__name__} where eager gives a tuple")
    # A subclass of Tensor stays as it is, so that the judge sees it (`PartJudge.wrong_kind`).
    returned = [value.detach() if type(value) in (Tensor, torch.nn.Parameter) else value for value in answer]
    return returned, [value.clone() if isinstance(value, Tensor) else value for value in returned]


FEW_BYTES, TRACES = 2**16, 8
"""For a result of fewer bytes, so many tensors are filled and freed: it may get any of several free blocks."""


def fill_free_memory(results: Sequence[Any]) -> None:
    """Leave NaN, or ones in integers, in memory that is free and of the sizes of these results: a result that the
    compiled function does not write then shows. Without this, the memory might still have eager's results. Small
    results get several tensors each (TRACES)."""
    plain = [value for value in results if isinstance(value, Tensor) and value.layout is torch.strided]
    freed = [
        torch.full_like(value, math.nan if value.is_floating_point() or value.is_complex() else 1)
        for value in plain
        if not (value.is_meta or value.is_quantized)
        for _ in range(TRACES if value.nbytes < FEW_BYTES else 1)
    ]
    del freed


# ------------------------------------------------------------------ contents of tensors


def contents_that_fit(inputs: Sequence[Any], others: Sequence[Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Yield those of other inputs that can be put into these: equal numbers, tensors of the same kind and place."""
    for contents in others:
        if len(inputs) == len(contents) and all(map(_fits, inputs, contents)):
            yield contents


def _fits(value: Any, other: Any) -> bool:
    """Whether `_copy_contents` can copy `other` into the input `value`. Numbers must be equal. It copies elements one
    by one, or, where elements of the input share memory, the memory as it is, which must then be laid out alike."""
    if not isinstance(value, Tensor) or not isinstance(other, Tensor):
        return type(value) is type(other) and (value == other or value != value)  # NaN fits
    if (value.dtype, value.shape, value.layout, value.device) != (other.dtype, other.shape, other.layout, other.device):
        return False
    if value.layout is not torch.strided:
        return value.layout is torch.sparse_coo  # its `copy_` takes another number of elements
    if has_distinct_elements(value):
        return True
    return (
        value.stride() == other.stride()
        and value.untyped_storage().nbytes() == other.untyped_storage().nbytes()
        and value.storage_offset() == other.storage_offset()
    )


def has_distinct_elements(tensor: Tensor) -> bool:
    """Whether every element of a tensor has memory of its own, by its strides; False also where they do not show it.
    Shape (2, 3): strides (3, 1) -> True, strides (0, 1), as `expand` gives, -> False."""
    extent = 1  # the elements that the dimensions seen so far, from the smallest stride on, reach over
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < extent:
                return False
            extent = stride * size
    return True


def _copy_contents(tensor: Tensor, other: Tensor) -> None:
    """Copy a tensor's contents into another; where elements share memory, copy the memory as it is."""
    with torch.no_grad():
        if tensor.layout is torch.strided and not has_distinct_elements(tensor):
            tensor.untyped_storage().copy_(other.untyped_storage())
        else:
            tensor.copy_(other)


AT_EDGES = ("zeros", "NaN", "inf")
"""The occasions (`judge/occasions`) at which a forward is called once more."""


def contents_at_edges(graph: BenchGraph, held_by_guards: Collection[str]) -> Iterator[tuple[str, list[Any]]]:
    """Yield (words, contents) for a forward with edge values among its inputs: zeros in all floats, and NaN or infinity
    in the first one alone, because two may leave nothing that is a number. Parameters stay as they are, and so do
    inputs that a guard holds (`held_by_guards`). A backward, or a forward without such floats, has none."""
    inputs = graph.run.inputs
    places = [
        place
        for place, (port, value) in enumerate(zip(graph.graph.inputs, inputs, strict=True))
        if port.role == "input"
        and port.name not in held_by_guards
        and isinstance(value, Tensor)
        and value.is_floating_point()
        and value.layout is torch.strided
        and value.numel()
        and has_distinct_elements(value)
    ]
    for edge in AT_EDGES if places and graph.direction == "forward" else ():
        contents = copies(inputs)
        changed = places if math.isfinite(EDGES[edge]) else places[:1]
        for place in changed:
            contents[place].copy_(OCCASIONS[edge].make(contents[place]))
        names = ", ".join(graph.graph.inputs[place].name for place in changed[:3])
        yield f"{edge} in {names}", contents


def changed_places(values: Sequence[Any], before: Sequence[Any]) -> list[int]:
    """Return the places of the values that differ in any bit from what they were `before`."""
    return [place for place, pair in enumerate(zip(values, before, strict=True)) if not _unchanged(*pair)]


def _unchanged(value: Any, before: Any) -> bool:
    """Whether two values are the same tensor to the bit, or the same number."""
    if not isinstance(value, Tensor):
        return type(value) is type(before) and (value == before or value != value)  # NaN is the same as NaN
    if value.dtype != before.dtype or value.shape != before.shape:
        return False
    pairs = zip(strided_parts(value.detach()), strided_parts(before.detach()), strict=True)
    return all(
        same_bits(left.resolve_conj().resolve_neg(), right.resolve_conj().resolve_neg()) for left, right in pairs
    )


def inputs_of(graph: AnyGraph) -> list[Any]:
    """Return the inputs of a graph, or of a step: its forward's, and then those that only its backward has."""
    return graph.inputs if isinstance(graph, BenchStep) else list(graph.run.inputs)
