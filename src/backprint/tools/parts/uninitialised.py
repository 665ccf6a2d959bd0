"""Find values of a graph whose memory is not initialized: `empty` and its like, until each element is written.

Such a value has other elements in each run, so a cut graph can neither return it nor take it.
Which elements are written is followed with masks: views and writes at known places run on a mask of the tensor's shape.
Where the places of a write depend on values (`index_put`), it counts as complete if no later write fills more.

A step that computes with a tensor of which parts are not initialized is the program's own affair: its value is not
followed.

A *mask* is a tensor of bools in the shape of a value: whether each element is written. A value without a mask counts as
written. The flags of an operator (`operators()`): `m` writes to an argument, `v` returns a view. `bare_operator(step)`
is the name of an ATen operator without namespace and overload, such as `empty`. VIEW_WRITTEN_BY has operators that copy
a tensor and write to a view of the copy, such as `slice_scatter`, each with the operator of that view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from backprint.graph.depends import bare_operator
from backprint.graph.fx.values import check_call, resolve, value_evaluator
from backprint.graph.nouns import Graph, Ref, Spec, Step, TensorSpec, refs
from backprint.graph.operators import operators
from backprint.graph.steps import used

ALLOCATING = frozenset(
    "empty empty_like empty_strided empty_permuted empty_quantized new_empty new_empty_strided resize resize_ "
    "resize_as resize_as_".split()
)
"""Operators that return memory as it is; after `resize`, elements that were not there before are not initialized."""

OVERWRITING = frozenset(
    "fill zero copy bernoulli uniform normal normal_functional random exponential geometric cauchy log_normal "
    "zeros_like ones_like full_like rand_like randn_like randint_like empty_like new_zeros new_ones new_full new_empty "
    "new_empty_strided".split()
)
"""Operators that read no element of their first argument; in place, they write each."""

WRITING_AT_INDICES = frozenset(
    "index_put _index_put_impl _unsafe_index_put index_copy index_fill index_add scatter scatter_add scatter_reduce "
    "masked_fill masked_scatter masked_scatter_backward put".split()
)
"""Operators that write to their first argument, or to a copy, where other arguments say."""

MAX_ELEMENTS = 2**30
"""A tensor of more elements is not followed with a mask."""


@dataclass(frozen=True, slots=True)
class Uninitialized:
    """The values of a graph that have elements which no step has written: when they are made (`made`), and still at the
    graph's end (`left`). A value whose elements are written in several places that depend on values is in both."""

    made: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()


def uninitialized_values(graph: Graph) -> Uninitialized:
    """Return the values of a graph whose memory is not initialized: its steps are followed in order."""
    if not any(bare_operator(step) in ALLOCATING for step in graph.steps):
        return Uninitialized()
    walk = _MaskWalk({port.local: port.spec for port in graph.inputs} | {step.name: step.spec for step in graph.steps})
    made = set()
    for step in graph.steps:
        if not step.is_guard:
            walk.follow(step)
            if not is_written(walk.masks.get(step.name, ())):  # `()`, of no tensor, is written
                made.add(step.name)
    left = {name for name, mask in walk.masks.items() if not is_written(mask)}
    return Uninitialized(frozenset(made | walk.continued), frozenset(left | walk.continued))


class _MaskWalk:
    """Follows which elements are written: a mask for each value of uninitialized memory, views of it included (a tuple
    of masks for a step that returns several). A view's mask is a view of the other mask, so that writes show in both.
    `specs` are those of all values.

    `written_at_indices` are values written at places that depend on values, which count as complete, and `continued`
    those of them that a later write fills further.
    """

    def __init__(self, specs: Mapping[str, Spec]) -> None:
        self.specs = specs
        self.masks: dict[str, Any] = {}
        self.written_at_indices: set[str] = set()
        self.continued: set[str] = set()

    def follow(self, step: Step) -> None:
        """Note what one step allocates, views or writes.

        Of `a = empty(2)`, `b = a[0]`, `b.fill_(1)`: the mask of `a` is [no, no], that of `b` the first element of it in
        the same memory, and after the third step the mask of `a` is [yes, no].
        """
        operator, flags = bare_operator(step), operators().get(step.target, "")
        is_in_place, is_view = "m" in flags, "v" in flags or step.target == "operator.getitem"
        if is_in_place:
            self.fill_named_arguments(step)
        first = step.args[0].name if step.args and isinstance(step.args[0], Ref) else ""
        if operator in ALLOCATING:
            self.allocate(step, first, is_in_place)
        elif first not in self.masks:
            return
        elif is_view:
            self.masks[step.name] = self.mask_of_view(step)
        elif operator.removesuffix("_") in OVERWRITING:
            if is_in_place:  # else the result is new memory, all of it written
                self.masks[step.name] = self.masks[first].fill_(True)
        elif operator in VIEW_WRITTEN_BY:
            self.note_continued(first)
            self.masks[step.name] = self.mask_of_scatter(step, first)
        elif operator.removesuffix("_") in WRITING_AT_INDICES:
            self.note_continued(first)
            mask = self.masks[first] if is_in_place else self.masks[first].clone()
            self.masks[step.name] = mask.fill_(True)
            self.written_at_indices.add(step.name)
        elif is_in_place:  # it computes with elements that are there, such as `add_`: none is written first
            self.masks[step.name] = self.masks[first]

    def fill_named_arguments(self, step: Step) -> None:
        """Note that a step writes all of the tensors that it gets by name, as `out=`."""
        for name in refs(tuple(value for _, value in step.kwargs)):
            if name in self.masks:
                self.masks[name].fill_(True)

    def allocate(self, step: Step, first: str, in_place: bool) -> None:
        """Note the new memory of a step, under its name, and `in_place` under that of its first argument too. A resized
        tensor keeps its elements. Memory whose size is not known is not followed."""
        mask = _unwritten_mask(step.spec)
        if mask is None:
            return
        if "resize" in step.target:  # elements that were there before are written, or as far as they were
            before = numel_of(self.specs.get(first))
            mask.view(-1)[:before] = self.masks[first].reshape(-1)[: mask.numel()] if first in self.masks else True
        self.masks |= dict.fromkeys((step.name, first) if in_place else (step.name,), mask)

    def mask_of_view(self, step: Step) -> Any:
        """Return the mask of a view: the view of the mask. Where that would be another, as a view in another dtype has
        other elements, it says of each whether every element of the base is written."""
        masks = {name: self.masks.get(name) for value in (*step.args, step.kwargs) for name in refs(value)}
        if step.target not in DTYPE_CHANGING_VIEWS and all(mask is not None for mask in masks.values()):
            return _run_on_masks(step, masks)
        mask = _unwritten_mask(step.spec)
        # Without a mask of its own, a value counts as written.
        return torch.ones(()) if mask is None else mask.fill_(is_written(self.masks[used(step)[0]]))

    def note_continued(self, name: str) -> None:
        """Note that a value gets a further write, if the one before was at places that depend on values."""
        if name in self.written_at_indices:
            self.continued.add(name)

    def mask_of_scatter(self, step: Step, first: str) -> Any:
        """Return the mask of a copy of a tensor (`first`) in which a part is written, by an operator of
        VIEW_WRITTEN_BY."""
        shape = part_of(step, self.masks[first]).shape
        source, written = step.args[1], torch.ones(shape, dtype=torch.bool)
        if isinstance(source, Ref) and source.name in self.masks:  # what is copied in may be uninitialized itself
            written = self.masks[source.name].reshape(shape)
        return _run_on_masks(step, {**dict.fromkeys(refs(source), written), first: self.masks[first]})


DTYPE_CHANGING_VIEWS = frozenset(
    ("aten.view.dtype", "aten.view_as_real.default", "aten.view_as_complex.default", "aten.real.default")
)
"""Views whose elements are not those of a mask."""


def is_written(mask: Any) -> bool:
    """Whether every element is written; of several tensors, each."""
    return bool(mask.all()) if isinstance(mask, Tensor) else all(map(is_written, mask))


def numel_of(spec: Spec | None) -> int:
    """Return how many elements a tensor has; 0 for what is no tensor, or has symbolic sizes."""
    return spec.numel if isinstance(spec, TensorSpec) and all(type(size) is int for size in spec.shape) else 0


def _unwritten_mask(spec: Spec) -> Tensor | None:
    """Return a mask without a written element for a tensor of this type; None for what is no tensor, or if its sizes
    are symbols, or too large."""
    if (
        not isinstance(spec, TensorSpec)
        or not all(type(size) is int for size in spec.shape)
        or spec.numel > MAX_ELEMENTS
    ):
        return None
    return torch.zeros([int(size) for size in spec.shape], dtype=torch.bool)


VIEW_WRITTEN_BY = {
    "select_scatter": "aten.select.int",
    "slice_scatter": "aten.slice.Tensor",
    "diagonal_scatter": "aten.diagonal.default",
    "as_strided_scatter": "aten.as_strided.default",
}
"""Operators that copy their first argument and write to a view of the copy: that view."""


def part_of(step: Step, mask: Tensor) -> Any:
    """Return the part of a mask that a step of VIEW_WRITTEN_BY writes. The arguments of such a step are the tensor, the
    source that is written, and then those of the view."""
    return _run_on_masks(
        replace(step, target=VIEW_WRITTEN_BY[bare_operator(step)], args=(step.args[0], *step.args[2:])),
        {used(step)[0]: mask},
    )


def _run_on_masks(step: Step, masks: Mapping[str, Any]) -> Any:
    """Run one step on the masks of its arguments, by name. Raise RefusedError for a call that torch does not take."""
    evaluate = value_evaluator(masks, subgraphs={})
    args, kwargs = tuple(map(evaluate, step.args)), {key: evaluate(value) for key, value in step.kwargs}
    function = resolve(step.target)
    check_call(step.target, function, args, kwargs)
    return function(*args, **kwargs)
