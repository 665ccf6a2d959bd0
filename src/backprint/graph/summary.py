"""The cost of a Pair, from its text: operators by kind, parameters, bytes saved by line, FLOPs. Needs no torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from backprint.graph.nouns import Capture, Graph, List, Pair, Port, Ref, Spec, Step, TensorSpec, Value, refs
from backprint.graph.sizes import at_hints


@dataclass(frozen=True, slots=True)
class SavedLine:
    """What one line of the user's program saves for the backward."""

    line: str
    bytes: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A Pair in numbers. `saved` counts intermediate values only; `kept` counts parameters and inputs that are saved
    too."""

    parameters: int
    parameter_bytes: int
    forward_ops: tuple[tuple[str, int], ...]
    backward_ops: tuple[tuple[str, int], ...]
    saved: tuple[SavedLine, ...]
    kept_bytes: int
    forward_flops: int
    backward_flops: int

    @property
    def saved_bytes(self) -> int:
        """Bytes of intermediate values that live from the forward to the backward."""
        return sum(line.bytes for line in self.saved)


def summarise(pair: Pair) -> Summary:
    """Return the numbers of a Pair, at its captured sizes."""
    forward, backward = at_hints(pair.forward), at_hints(pair.backward) if pair.backward else None
    parameters = [spec for port in forward.by_role("parameter") if isinstance(spec := port.spec, TensorSpec)]
    own = {port.local for port in forward.inputs}
    results = [
        (port, result) for port, result in zip(forward.outputs, forward.results, strict=True) if port.role == "saved"
    ]
    kept = [port for port, result in results if isinstance(result, Ref) and result.name in own]
    return Summary(
        parameters=sum(spec.numel for spec in parameters),
        parameter_bytes=sum(spec.nbytes for spec in parameters),
        forward_ops=count(forward),
        backward_ops=count(backward) if backward else (),
        saved=saved_by_line(forward, [(port, value) for port, value in results if port not in kept]),
        kept_bytes=sum(size(port.spec) for port in kept),
        forward_flops=flops(forward),
        backward_flops=flops(backward) if backward else 0,
    )


def count(graph: Graph) -> tuple[tuple[str, int], ...]:
    """Return operators by how often they are called; taking an item of a tuple does not count."""
    calls = Counter(step.target for step in graph.steps if step.target != "operator.getitem" and not step.is_guard)
    return tuple(calls.most_common())


def size(spec: Spec) -> int:
    return spec.nbytes if isinstance(spec, TensorSpec) else 0


VIEWS = (
    "view",
    "_unsafe_view",
    "t",
    "transpose",
    "permute",
    "expand",
    "unsqueeze",
    "squeeze",
    "detach",
    "alias",
    "slice",
    "select",
)


def saved_by_line(graph: Graph, saved: Sequence[tuple[Port, Value]]) -> tuple[SavedLine, ...]:
    """Return the saved values by the user's line that made them, the largest first. A view of a saved tensor is
    free."""
    steps = {step.name: step for step in graph.steps}
    inputs = {port.local for port in graph.inputs}
    lines: dict[str, list[tuple[str, int]]] = {}
    counted: set[str] = set()
    for port, value in saved:
        for name in refs(value):
            base = storage_of(name, steps)
            cost = 0 if base in counted or base in inputs else size(port.spec)
            counted.add(base)
            step = steps.get(name)
            source = step.source if step else None
            line = f"{source.file}:{source.line}: {source.code}" if source else "(no line)"
            lines.setdefault(line, []).append((name, cost))
    rows = [
        SavedLine(line, sum(cost for _, cost in found), tuple(name for name, _ in found))
        for line, found in lines.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def storage_of(name: str, steps: Mapping[str, Step]) -> str:
    """Return the value whose memory a view uses."""
    while name in steps and steps[name].target.startswith("aten.") and steps[name].target.split(".")[1] in VIEWS:
        first = next(refs(argument(steps[name], 0)), None)
        if first is None:
            break
        name = first
    return name


# ------------------------------------------------------------------ FLOPs: two for each multiply-add

Shape = tuple[int, ...]


def flops(graph: Graph) -> int:
    """Floating-point operations of the matrix products, convolutions and attentions in a graph."""
    return flops_of_steps(graph.steps, types_of_values(graph))


def types_of_values(graph: Graph) -> dict[str, Spec]:
    """Return the type of each value of a graph."""
    return {port.local: port.spec for port in graph.inputs} | {step.name: step.spec for step in graph.steps}


def flops_of_steps(steps: Iterable[Step], specs: Mapping[str, Spec]) -> int:
    """Return the same of some steps of a graph."""
    total = 0
    for step in steps:
        name = step.target.split(".")[1] if step.target.startswith("aten.") else ""
        if name in FLOPS:
            total += FLOPS[name](step, specs)
    return min(total, MOST_FLOPS)


MOST_FLOPS = 2**63 - 1
"""As many as a column of a table can count; sizes next to a size of 0 may be any."""


def argument(step: Step, index: int) -> Value:
    """Return an argument by its position; None if the call has fewer: arguments are checked when calls run."""
    return step.args[index] if index < len(step.args) else None


def shape(value: Value, specs: Mapping[str, Spec]) -> Shape:
    """Return the shape of an argument; symbolic sizes count as one."""
    spec = specs.get(value.name) if isinstance(value, Ref) else None
    return tuple(s if isinstance(s, int) else 1 for s in spec.shape) if isinstance(spec, TensorSpec) else ()


def product(left: int, right: int) -> Callable[[Step, Mapping[str, Spec]], int]:
    """Return a function for the FLOPs of a matrix product of these arguments."""

    def cost(step: Step, specs: Mapping[str, Spec]) -> int:
        a, b = shape(argument(step, left), specs), shape(argument(step, right), specs)
        return 2 * math.prod(a) * b[-1] if a and b else 0

    return cost


def convolution(step: Step, specs: Mapping[str, Spec]) -> int:
    """Count a row of the weight for each output element."""
    weight, spec = shape(argument(step, 1), specs), step.spec
    out = tuple(s if isinstance(s, int) else 1 for s in spec.shape) if isinstance(spec, TensorSpec) else ()
    if argument(step, 6) is True:  # transposed
        return 2 * math.prod(shape(step.args[0], specs)) * math.prod(weight[1:])
    return 2 * math.prod(out) * math.prod(weight[1:])


def convolution_backward(step: Step, specs: Mapping[str, Spec]) -> int:
    """Count the forward's FLOPs for each of the two gradients that is computed."""
    gradient, weight = shape(argument(step, 0), specs), shape(argument(step, 2), specs)
    mask = step.args[-1] if step.args else None
    wanted = sum(map(bool, mask.items[:2])) if isinstance(mask, List) else 0
    base = shape(step.args[1], specs) if argument(step, 7) is True else gradient
    return 2 * math.prod(base) * math.prod(weight[1:]) * wanted


def attention(times: int, query: int) -> Callable[[Step, Mapping[str, Spec]], int]:
    """Count two matrix products forward, five backward, of queries with keys and values."""

    def cost(step: Step, specs: Mapping[str, Spec]) -> int:
        q, k, v = (shape(argument(step, query + index), specs) for index in range(3))
        if not (q and v and len(k) > 1):
            return 0
        scores = math.prod(q[:-1]) * k[-2]
        return times * scores * (q[-1] + v[-1])

    return cost


ATTENTIONS = tuple(
    f"_scaled_dot_product_{kind}"
    for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
)

FLOPS: Mapping[str, Callable[[Step, Mapping[str, Spec]], int]] = {
    "mm": product(0, 1),
    "bmm": product(0, 1),
    "addmm": product(1, 2),
    "baddbmm": product(1, 2),
    "convolution": convolution,
    "convolution_backward": convolution_backward,
    **{name: attention(2, 0) for name in ATTENTIONS},
    **{f"{name}_backward": attention(5, 1) for name in ATTENTIONS},
}
"""What counts as arithmetic, as PyTorch's own FLOP counter counts it."""


def summarise_all(capture: Capture) -> tuple[Summary, ...]:
    """A Summary for each Pair."""
    return tuple(map(summarise, capture.pairs))
