"""Which operators graphs call, on which dtypes, and how often. Needs no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from backprint.graph.graphs import Graph, Step
from backprint.graph.specs import Spec, TensorSpec
from backprint.graph.values import refs

NO_TENSOR = "no tensor"
"""What a call that takes and returns numbers alone has for dtypes."""

NOT_CALLS = ("operator.getitem",)
"""Taking one result of several is no call, as in a summary."""


def operator_calls(graph: Graph) -> Counter[tuple[str, str]]:
    """Count the calls of a graph by operator and dtypes: `("aten.gt.Scalar", "float32 -> bool")`."""
    specs: dict[str, Spec] = {port.local: port.spec for port in graph.inputs}
    found: Counter[tuple[str, str]] = Counter()
    for step in graph.steps:
        specs[step.name] = step.spec
        if not step.is_guard and step.target not in NOT_CALLS:
            found[step.target, dtypes_of_call(step, specs)] += 1
    return found


def dtypes_of_call(step: Step, specs: Mapping[str, Spec]) -> str:
    """Return the dtypes of a call's tensors, each once; `float32 -> bool` where it returns others than it takes."""
    values = (*step.args, *(value for _, value in step.kwargs))
    taken = dict.fromkeys(dtype for value in values for name in refs(value) for dtype in dtypes_of(specs.get(name)))
    made = dict.fromkeys(dtypes_of(step.spec))
    if not taken or not made or taken == made:
        return ", ".join(made or taken) or NO_TENSOR
    return f"{', '.join(taken)} -> {', '.join(made)}"


def dtypes_of(spec: Spec) -> Iterator[str]:
    """Yield the dtypes of the tensors of a spec."""
    match spec:
        case TensorSpec():
            yield spec.dtype
        case tuple():
            for part in spec:
                yield from dtypes_of(part)


def usage_of(sides: Mapping[str, Iterable[Graph]]) -> dict[str, int]:
    """Return how often graphs call each operator, by side, operator and dtypes: `forward aten.mm.default float32`."""
    found: Counter[str] = Counter()
    for side, graphs in sides.items():
        for graph in graphs:
            for (target, dtypes), count in operator_calls(graph).items():
                found[f"{side} {target} {dtypes}"] += count
    return dict(found)
