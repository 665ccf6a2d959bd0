"""A Graph without its names: two graphs are the same program exactly when their canonical forms are equal.

The form is a walk from the graph's roots, which are ordered: first the steps with effects (random draws, mutations,
guards) as they run, then the results, each depth first through its arguments. An ordered walk of a rooted graph has no
ties, so the numbering is canonical, it tells a value shared from one computed twice, and independent steps may stand in
any order. Reads of a value that is mutated carry how many mutations they come after.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from backprint.graph.nouns import (
    Dict,
    Graph,
    List,
    Port,
    Ref,
    ScalarSpec,
    Slice,
    Spec,
    Step,
    Sub,
    TensorSpec,
    Value,
    operators,
    refs,
)
from backprint.graph.text import show, show_spec

EFFECTFUL_HIGHER = ("run_and_save_rng_state", "run_with_rng_state", "with_effects", "auto_functionalized")

SIZED = frozenset(
    (
        "view _unsafe_view reshape expand as_strided full empty zeros ones rand randn new_empty new_zeros new_full "
        "new_ones new_empty_strided empty_strided slice slice_backward select_backward repeat split split_with_sizes "
        "sum_to_size broadcast_to unflatten arange narrow constant_pad_nd as_strided_scatter slice_scatter randint "
        "embedding_dense_backward native_layer_norm native_layer_norm_backward unsafe_split chunk broadcast_in_dim "
        "unfold_backward index_select_backward diagonal_backward trace_backward native_group_norm "
        "native_group_norm_backward _adaptive_avg_pool2d adaptive_avg_pool2d upsample_nearest2d upsample_bilinear2d "
        "cudnn_batch_norm avg_pool2d_backward resize layer_norm group_norm empty_permuted"
    ).split()
)
"""Operators whose integer arguments are sizes: the hash without sizes leaves their integers out."""


@dataclass(frozen=True, slots=True)
class Canonical:
    """The canonical form, a line a node in the order of the walk."""

    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def digest(self) -> str:
        """Sixty-four hex digits."""
        return hashlib.sha256(str(self).encode()).hexdigest()


def canonical(graph: Graph, sizes: bool = True) -> Canonical:
    """The canonical form of a graph; with `sizes=False`, of all graphs that differ in sizes alone."""
    return Canonical(tuple(_Walk(graph, sizes).lines()))


def graph_hash(graph: Graph, sizes: bool = True) -> str:
    """The digest of a graph's canonical form."""
    return canonical(graph, sizes).digest()


def is_effect(step: Step) -> bool:
    """Whether a step does more than compute its result: its place among the other effects then counts."""
    if step.is_guard:
        return True
    if step.target.startswith("torch.ops.higher_order."):
        return step.target.split(".")[3].startswith(EFFECTFUL_HIGHER)
    flags = operators().get(step.target)
    return flags is None and step.target.startswith("torch.ops.") or any(flag in "rm" for flag in flags or "")


def versions(graph: Graph) -> dict[tuple[int, str], int]:
    """For each (step index, name it reads): how many mutations of that value's memory came before. Zeros left out."""
    owner: dict[str, str] = {}
    count: dict[str, int] = {}
    found: dict[tuple[int, str], int] = {}

    def root(name: str) -> str:
        while owner.get(name, name) != name:
            name = owner[name]
        return name

    if not any("m" in operators().get(step.target, "") for step in graph.steps):
        return found
    for index, step in enumerate(graph.steps):
        flags = operators().get(step.target, "")
        names = list(_names(step))
        for name in names:
            if count.get(root(name)):
                found[index, name] = count[root(name)]
        if ("v" in flags or "m" in flags) and names:
            owner[step.name] = root(names[0])
        if "m" in flags and names:
            count[root(names[0])] = count.get(root(names[0]), 0) + 1
    for result in graph.results:
        for name in refs(result):
            if count.get(root(name)):
                found[len(graph.steps), name] = count[root(name)]
    return found


def _names(step: Step) -> Iterator[str]:
    for value in (step.args, *(value for _, value in step.kwargs)):
        yield from refs(value)


class _Walk:
    """One walk over one graph: what is numbered so far."""

    def __init__(self, graph: Graph, sizes: bool) -> None:
        self.graph, self.sizes = graph, sizes
        self.steps = {step.name: index for index, step in enumerate(graph.steps)}
        self.numbers: dict[str, str] = {port.local: f"%in{index}" for index, port in enumerate(graph.inputs)}
        self.subs = {name: graph_hash(sub, sizes) for name, sub in graph.subgraphs}
        self.symbols: dict[str, str] = {symbol.name: "" for symbol in graph.symbols}
        self.versions = versions(graph)
        self.numbers.update({symbol.name: f"%{symbol.name}" for symbol in graph.symbols})

    def lines(self) -> Iterator[str]:
        for index, port in enumerate(self.graph.inputs):
            yield f"%in{index} = {self.port(port)}"
        effects = [step for step in self.graph.steps if is_effect(step)]
        for order, step in enumerate(effects):
            yield from self.visit(step.name, f"effect {order} ")
        for result in self.graph.results:
            for name in refs(result):
                yield from self.visit(name)
        end = len(self.graph.steps)
        for port, result in zip(self.graph.outputs, self.graph.results, strict=True):
            yield f"return {self.port(port)} {self.value(result, end, False)}"
        dead = [step.name for step in self.graph.steps if step.name not in self.numbers]
        for name in dead:
            yield from self.visit(name, "dead ")

    def visit(self, name: str, prefix: str = "") -> Iterator[str]:
        """Number a value after the values it needs; a loop with its own stack, for graphs deeper than Python's."""
        stack = [(name, False)]
        while stack:
            current, ready = stack.pop()
            if current in self.numbers:
                continue
            index = self.steps[current]
            step = self.graph.steps[index]
            if ready:
                self.numbers[current] = f"%{len(self.numbers)}"
                yield (prefix if current == name else "") + self.line(step, index)
                continue
            stack.append((current, True))
            stack += [(used, False) for used in reversed(list(_names(step))) if used not in self.numbers]

    def line(self, step: Step, index: int) -> str:
        sized = not self.sizes and step.target.split(".")[1:2] and step.target.split(".")[1] in SIZED
        args = ", ".join(self.value(value, index, bool(sized)) for value in step.args)
        kwargs = "".join(f", {key}={self.value(value, index, bool(sized))}" for key, value in step.kwargs)
        return f"{self.numbers[step.name]} = {step.target}({args}{kwargs}) {self.spec(step.spec)}"

    def value(self, value: Value, index: int, sized: bool) -> str:
        match value:
            case Ref(name):
                version = self.versions.get((index, name), 0)
                return self.numbers[name] + (f"@{version}" if version else "")
            case Sub(name):
                return f"sub:{self.subs[name]}"
            case List(items):
                return "[" + ", ".join(self.value(item, index, sized) for item in items) + "]"
            case tuple():
                return "(" + ", ".join(self.value(item, index, sized) for item in value) + ")"
            case Dict(pairs):
                return "{" + ", ".join(f"{self.value(k, index, sized)}: {self.value(v, index, sized)}" for k, v in pairs) + "}"
            case Slice(start, stop, step):
                return f"slice({', '.join(self.value(part, index, sized) for part in (start, stop, step))})"
            case int() if sized and type(value) is int:
                return "_"
        return show(value)

    def port(self, port: Port) -> str:
        return f"{port.role} {self.spec(port.spec)}"

    def spec(self, spec: Spec) -> str:
        match spec:
            case TensorSpec() if not self.sizes:
                return f"{spec.dtype}[{len(spec.shape)}] {spec.device} {spec.layout}"
            case tuple() if not self.sizes:
                return "(" + ", ".join(map(self.spec, spec)) + ")"
            case ScalarSpec() if not self.sizes:
                return spec.kind
        return self.renamed(show_spec(spec)) if self.symbols else show_spec(spec)

    def renamed(self, text: str) -> str:
        """The text with symbols called by the order in which the walk meets them."""

        def rename(found: re.Match[str]) -> str:
            name = found[0]
            if name not in self.symbols:
                return name
            if not self.symbols[name]:
                self.symbols[name] = f"S{sum(map(bool, self.symbols.values()))}"
            return self.symbols[name]

        return re.sub(r"[A-Za-z_]\w*", rename, text)

