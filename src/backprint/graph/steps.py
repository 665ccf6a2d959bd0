"""Functions on single steps: the values that a step uses, the steps that are needed, and a step with other values.

A *value* is known by its name: that of an input of the graph, or of the step that computes it. A Value is one argument
of a step, which may nest; its *leaves* are names (Ref), numbers, texts and constants. `refs` yields the names in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from backprint.common.names import free_name
from backprint.graph.nouns import Dict, Graph, Leaf, List, Ref, Slice, Spec, Step, TensorSpec, Value, refs
from backprint.graph.operators import operators

READING = "aten._local_scalar_dense.default"
"""The operator that reads a number from a tensor."""

SAVING = "torch.ops.higher_order.run_and_save_rng_state"
"""A random draw that returns the state of the generator and, as its second result, the drawn values."""


def used(step: Step) -> tuple[str, ...]:
    """Return the names of the values that a step uses, in order."""
    return tuple(name for value in (*step.args, *(value for _, value in step.kwargs)) for name in refs(value))


def names_behind(
    names: Iterable[str], makers: Mapping[str, Step], stops: Callable[[str], bool] = lambda name: False
) -> Iterator[str]:
    """Yield these names, and the names of all values that they are computed from, each once. `makers` has the step that
    computes a value by its name; a value without one is an input.

    Values for whose names `stops` is True are yielded, but not the values they are computed from.
    """
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        yield name
        if name in makers and not stops(name):
            waiting += used(makers[name])


def needed_steps(
    steps: Sequence[Step], wanted: Iterable[str], stays: Callable[[Step, Collection[str]], bool]
) -> list[Step]:
    """Return the steps without dead code: those that compute the `wanted` values, guards, steps for which `stays` is
    True, and what all of these need.

    `stays` is called with a step and the names of all values that are needed after it.
    """
    names, kept = set(wanted), []  # the names of the values that are needed by the steps after this one
    for step in reversed(steps):
        if step.is_guard or step.name in names or stays(step, names):
            kept.append(step)
            names.update(used(step))
    return kept[::-1]


def without_dead_code(graph: Graph) -> Graph:
    """Return the graph without dead code. A step that draws random numbers or updates a value in place stays."""
    wanted = [name for result in graph.results for name in refs(result)]
    # The flags `r` and `m` of an operator: it draws random numbers, or changes an argument.
    steps = needed_steps(
        graph.steps, wanted, lambda step, _: not set("rm").isdisjoint(operators().get(step.target, ""))
    )
    return replace(graph, steps=tuple(steps))


def free(name: str, used_names: Collection[str]) -> str:
    """Return a name that is not taken: this one, with a number appended if needed."""
    # A local has at most 256 characters: this leaves room for the number.
    return free_name(name[:240], used_names)


def mapped(step: Step, named: Callable[[str], Value]) -> Step:
    """Return a step in which `named(name)` stands for each name among its arguments."""
    return mapped_leaves(step, lambda leaf: named(leaf.name) if type(leaf) is Ref else leaf)


def among(values: Mapping[str, Value]) -> Callable[[str], Value]:
    """Return a function from a name to what stands for it among these values; any other name stands for itself."""
    return lambda name: values.get(name, Ref(name))


def with_names(value: Value, named: Callable[[str], Value]) -> Value:
    """Return a value in which `named(name)` stands for each name."""
    return with_leaves(value, lambda leaf: named(leaf.name) if type(leaf) is Ref else leaf)


def mapped_leaves(step: Step, new: Callable[[Leaf], Value]) -> Step:
    """Return a step in which `new(leaf)` stands for each leaf of its arguments."""
    args = tuple(with_leaves(argument, new) for argument in step.args)
    kwargs = tuple((key, with_leaves(argument, new)) for key, argument in step.kwargs)
    # The step itself where nothing changes: `replace` would check all of it again.
    return step if (args, kwargs) == (step.args, step.kwargs) else replace(step, args=args, kwargs=kwargs)


def with_leaves(value: Value, new: Callable[[Leaf], Value]) -> Value:
    """Return a value in which `new(leaf)` stands for each leaf: names, numbers, texts and constants."""
    match value:
        case tuple():
            return tuple([with_leaves(item, new) for item in value])
        case List(items):
            return List(tuple([with_leaves(item, new) for item in items]))
        case Slice(start, stop, step):
            return Slice(with_leaves(start, new), with_leaves(stop, new), with_leaves(step, new))
        case Dict(pairs):
            return Dict(tuple([(with_leaves(key, new), with_leaves(item, new)) for key, item in pairs]))
    return new(value)


# ---- Specs of values, and names of operators


def specs_of(graph: Graph) -> dict[str, Spec]:
    """Return the spec of each input and of the result of each step, by name."""
    return {port.local: port.spec for port in graph.inputs} | {step.name: step.spec for step in graph.steps}


def tensors_in(spec: Spec) -> Iterator[TensorSpec]:
    """Yield the specs of tensors in a spec, which is a tuple for a step with several results."""
    if isinstance(spec, TensorSpec):
        yield spec
    elif isinstance(spec, tuple):
        for part in spec:
            yield from tensors_in(part)


def operator_name(target: str) -> str:
    """Return an operator's name without its namespace and overload, the same for its in-place form (`add_`), and for
    its forms on lists (`_foreach_add`) and in `torch.special`. A custom operator's target is returned as it is."""
    space, _, rest = target.partition(".")
    # These have no overload: `operator.and_` keeps its underscore, which is no in-place form.
    if space in ("operator", "math"):
        return rest
    if target.startswith("torch.ops."):
        return target
    name = rest.split(".")[0].removeprefix("special_").removeprefix("_foreach_")
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


UNWRITTEN = frozenset("empty empty_like empty_strided empty_permuted new_empty new_empty_strided".split())
"""Operators that make a tensor, and write nothing into it."""


def is_in_own_backward(step: Step) -> bool:
    """Whether a step is of the code of a custom Function's backward; a node of torch's own has the forward's line."""
    return step.source is not None and step.source.function == "backward"
