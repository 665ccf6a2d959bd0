"""The canonical form of a Graph, without names: two graphs are the same program exactly when their forms are equal.

The form is a walk from the graph's roots, which are ordered: first the steps with effects (random draws, mutations,
guards) as they run, then the results, each depth first through its arguments. An ordered walk of a rooted graph has no
ties, so the numbering is canonical. It distinguishes a value used twice from one computed twice, and independent steps
may be in any order. Each read of a value that is mutated has the number of mutations before it.

A value is written by the number that the walk gives it: `%in0` is an input, `%3` the result of a step, and `%3@1` its
contents after one mutation. A symbolic size is `$0`, and a subgraph of a higher-order operator has its hash. Flags of
operators are those of `operators.txt`: `r` draws random numbers, `m` changes an argument, `v` may return a view.

Of a walk, `numbers` has the number of each value so far, by its name, and `symbols` that of each symbol, '' before the
walk reaches it; `steps` has the index of each step by its name, and `sizes` is whether sizes count.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from backprint.graph.nouns import (
    HIGHER,
    Dict,
    Graph,
    List,
    Op,
    Port,
    Ref,
    ScalarSpec,
    Size,
    Slice,
    Spec,
    Step,
    Sub,
    TensorSpec,
    Value,
    is_custom,
    leaves,
    refs,
)
from backprint.graph.operators import operators
from backprint.graph.steps import used
from backprint.graph.text import show

# Prefixes, so `auto_functionalized` stands for its version 2 as well. `cond` and the like have the effects of their
# bodies (`effects`).
EFFECTFUL_HIGHER = (
    *("run_and_save_rng_state", "run_with_rng_state", "graphsafe_run_with_rng_state"),
    *("with_effects", "auto_functionalized"),
)

_SIZED = (
    "view _unsafe_view reshape expand as_strided full empty zeros ones rand randn new_empty new_zeros new_full "
    "new_ones new_empty_strided empty_strided slice slice_backward select_backward repeat split split_with_sizes "
    "sum_to_size broadcast_to unflatten arange narrow constant_pad_nd as_strided_scatter slice_scatter randint "
    "embedding_dense_backward native_layer_norm native_layer_norm_backward unsafe_split chunk broadcast_in_dim "
    "unfold_backward index_select_backward diagonal_backward trace_backward native_group_norm "
    "native_group_norm_backward _adaptive_avg_pool2d adaptive_avg_pool2d upsample_nearest2d upsample_bilinear2d "
    "cudnn_batch_norm avg_pool2d_backward resize layer_norm group_norm empty_permuted"
)
SIZED = frozenset(_SIZED.split())
"""Operators whose integer arguments are sizes: the hash without sizes leaves their integers out."""


@dataclass(frozen=True, slots=True)
class Canonical:
    """The canonical form: a line for each input, step and output, in the order of the walk."""

    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def digest(self) -> str:
        """Return the SHA-256 of the form, which is the hash of a graph."""
        return hashlib.sha256(str(self).encode()).hexdigest()


def canonical(graph: Graph, sizes: bool = True) -> Canonical:
    """Return the canonical form of a graph; with `sizes=False`, one form for all graphs that differ only in sizes."""
    return Canonical(tuple(_Walk(graph, sizes).lines()))


def graph_hash(graph: Graph, sizes: bool = True) -> str:
    """Return the digest of a graph's canonical form."""
    return canonical(graph, sizes).digest()


def numbered_walk(graph: Graph, sizes: bool = True) -> tuple[str, dict[str, str]]:
    """Return the hash of a graph, and the number of each value in its canonical form, by the value's name. `sizes` is
    as in `canonical`.

    Graphs with one hash have the same numbers. Values that nothing needs are numbered by their calls, so several may
    have one number.
    """
    walk = _Walk(graph, sizes)
    digest = Canonical(tuple(walk.lines())).digest()
    return digest, walk.numbers


def is_effect(step: Step) -> bool:
    """Whether a step does more than compute its result, so that its place among the other effects counts."""
    if step.target in HIGHER:
        return step.target.rpartition(".")[2].startswith(EFFECTFUL_HIGHER)
    return step.is_guard or is_custom(step.target) or any(flag in "rm" for flag in operators().get(step.target, ""))


def mutated(step: Step) -> list[str]:
    """Return the names, among the arguments of a step, of the values whose memory it may change. A custom operator may
    change any of them."""
    if step.target in HIGHER:
        # Some call an operator that is an argument (`run_with_rng_state`), on the arguments after it.
        for place, value in enumerate(step.args):
            if isinstance(value, Op):
                return mutated(replace(step, target=value.target, args=step.args[place + 1 :]))
        return []
    if "m" not in operators().get(step.target, ""):
        return list(used(step)) if is_custom(step.target) else []
    name = step.target.split(".")[-2]  # `add_` of `aten.add_.Tensor`
    # An in-place operator writes its first argument: a tensor, or a list for `_foreach_add_`. `_fused_adam_` writes the
    # gradients and moments too, so all its arguments count, as below.
    if name.endswith("_") and not name.startswith("_fused_") and step.args:
        return list(refs(step.args[0]))
    # An `out=` overload writes its keyword arguments. The others write some of their positional ones, such as the
    # running statistics of `_native_batch_norm_legit`.
    return [name for _, value in step.kwargs for name in refs(value)] or list(used(step))


def versions(graph: Graph) -> dict[tuple[int, str], int]:
    """Return, for each (index of a step, name that it reads), how often the memory of that value was changed before.

    Reads without an earlier mutation are left out. The results of the graph are read at the index after the last step.
    """
    changes = [mutated(step) for step in graph.steps]
    reads: dict[tuple[int, str], int] = {}
    if not any(changes):
        return reads
    # Values that share memory have one owner, so a write through a view counts for its base. `count` has for each owner
    # how often its memory was changed.
    owner: dict[str, str] = {port.local: port.local for port in graph.inputs}
    count: dict[str, int] = {}

    def note_reads(index: int, names: Iterable[str]) -> None:
        """Enter the reads of these names by the step of an index, where their memory was changed before."""
        for name in names:
            if times := count.get(owner[name], 0):
                reads[index, name] = times

    for index, (step, changed) in enumerate(zip(graph.steps, changes, strict=True)):
        # Before the count: a step reads its arguments as they were before it writes them.
        note_reads(index, used(step))
        for name in {owner[name] for name in changed}:
            count[name] = count.get(name, 0) + 1
        shares = "v" in operators().get(step.target, "") or step.target == "operator.getitem"
        # An in-place operator returns what it changed, and a view is one of the first value that it takes.
        shared = changed or (list(used(step)) if shares else [])
        owner[step.name] = owner[shared[0]] if shared else step.name
    for result in graph.results:
        note_reads(len(graph.steps), refs(result))
    return reads


class _Walk:
    """One walk over one graph. `numbers` has the number of each value so far, as `%3`, and `symbols` that of each
    symbol, '' before the walk reaches it. Without `sizes`, numbers that are sizes are left out. `steps` has the index
    of each step by its name, `subs` the hash of each subgraph, and `versions` how often a value was mutated before a
    read (the function `versions`)."""

    def __init__(self, graph: Graph, sizes: bool) -> None:
        self.graph, self.sizes = graph, sizes
        self.steps = {step.name: index for index, step in enumerate(graph.steps) if not step.is_guard}
        self.numbers = {port.local: f"%in{index}" for index, port in enumerate(graph.inputs)}
        self.subs = {name: graph_hash(sub, sizes) for name, sub in graph.subgraphs}
        self.symbols = dict.fromkeys((symbol.name for symbol in graph.symbols), "")
        self.versions = versions(graph)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the canonical form."""
        graph = self.graph
        for index, port in enumerate(graph.inputs):
            yield f"%in{index} = {self.port(port)}"
        for order, index in enumerate(effects(graph)):
            yield from self.visit(index, f"effect {order} ")
        for result in graph.results:
            for name in refs(result):
                if name not in self.numbers:
                    yield from self.visit(self.steps[name])
        for port, result in zip(graph.outputs, graph.results, strict=True):
            yield f"return {self.port(port)} {self.value(result, len(graph.steps), sized=False)}"
        # Sorted by text: dead steps have no order of their own.
        yield from sorted(self.dead())

    def visit(self, root: int, prefix: str = "") -> Iterator[str]:
        """Number the step of index `root` after the steps it needs, and yield the line of each; the line of the root
        begins with `prefix`. A stack takes the place of recursion, for graphs deeper than Python's limit."""
        stack = [(root, False)]  # with whether the arguments of the step are numbered
        while stack:
            index, ready = stack.pop()
            step = self.graph.steps[index]
            # A guard has no value, so its name may be that of one.
            if step.name in self.numbers and not step.is_guard:
                continue
            if not ready:
                stack.append((index, True))
                # Reversed, because the last one pushed is visited first: arguments are numbered from left to right.
                waiting = [self.steps[name] for name in used(step) if name not in self.numbers]
                stack += [(needed, False) for needed in reversed(waiting)]
                continue
            call = self.call(step, index)
            if not step.is_guard:
                self.numbers[step.name] = f"%{len(self.numbers)}"
                call = f"{self.numbers[step.name]} = {call}"
            yield prefix + call if index == root else call

    def dead(self) -> Iterator[str]:
        """Yield the steps that nothing needs. They have no order, so each is named by a digest of its call."""
        # A symbol that only dead steps have cannot be numbered in their order, as they have none.
        self.symbols = {name: number or "$?" for name, number in self.symbols.items()}
        for index, step in enumerate(self.graph.steps):
            if step.name not in self.numbers and not step.is_guard:
                call = self.call(step, index)
                self.numbers[step.name] = "#" + hashlib.sha256(call.encode()).hexdigest()
                yield f"dead {call}"

    def call(self, step: Step, index: int) -> str:
        """Return the call of the step of an index as text, with numbers for the values that it takes."""
        # Whether its integers are sizes: by `view` of `aten.view.default`; a target as `assert_shape` has no such part.
        sized = not self.sizes and not SIZED.isdisjoint(step.target.split(".")[1:2])
        args = [self.value(value, index, sized) for value in step.args]
        kwargs = [f"{key}={self.value(value, index, sized)}" for key, value in step.kwargs]
        return f"{step.target}({', '.join(args + kwargs)}) {self.spec(step.spec)}"

    def value(self, value: Value, index: int, sized: bool) -> str:
        """Return a value that the step of an index reads as text; with `sized`, integers are sizes, and `_` stands for
        each."""

        def several(values: tuple[Value, ...]) -> str:
            return ", ".join([self.value(item, index, sized) for item in values])

        match value:
            case Ref(name):
                version = self.versions.get((index, name), 0)
                return self.numbers[name] + (f"@{version}" if version else "")
            case Sub(name):
                return f"sub:{self.subs[name]}"
            case List(items):
                return f"[{several(items)}]"
            case tuple():
                return f"({several(value)})"
            case Dict(pairs):
                return f"{{{several(pairs)}}}"
            case Slice(start, stop, step):
                return f"slice({several((start, stop, step))})"
        # `type`: True is an int for isinstance, and a flag such as `keepdim` is no size.
        return "_" if sized and type(value) is int else show(value)

    def port(self, port: Port) -> str:
        """Return a port without its name."""
        return f"{port.role} {self.spec(port.spec)}"

    def spec(self, spec: Spec) -> str:
        """Return a spec as text, with numbers for symbols; without `sizes`, what is left of it."""
        match spec:
            case tuple():
                return f"({', '.join(map(self.spec, spec))})"
            case ScalarSpec(kind, expression):
                return f"{kind}({self.size(expression)})" if self.sizes else kind
            # Without sizes the rank stays: another rank is another program.
            case TensorSpec(dtype, shape, _, _, device, layout) if not self.sizes:
                return f"{dtype}[{len(shape)}] {device} {layout}"
            case TensorSpec(dtype, shape, stride, offset, device, layout):
                strides = "" if stride is None else f" stride=[{', '.join(map(self.size, stride))}]"
                return f"{dtype}[{', '.join(map(self.size, shape))}]{strides} +{self.size(offset)} {device} {layout}"
        return "?"

    def size(self, size: Size) -> str:
        """Return a size as text, with symbols named `$0`, `$1`, … in the order in which the walk reaches them."""

        def rename(match: re.Match[str]) -> str:
            """Return the number of a symbol, which gets the next one if it has none; any other name as it is."""
            name = match[0]
            if self.symbols.get(name) == "":
                self.symbols[name] = f"${sum(map(bool, self.symbols.values()))}"  # how many have a number already
            return self.symbols.get(name, name)

        return re.sub(r"[A-Za-z_]\w*", rename, size) if isinstance(size, str) else str(size)


def effects(graph: Graph) -> list[int]:
    """Return the indexes of the steps that have effects, in order. A step has the effects of its subgraphs."""
    subs_with_effects = {name for name, sub in graph.subgraphs if effects(sub)}

    def takes_such_subgraph(step: Step) -> bool:
        # Most graphs have no such subgraph: then no argument has to be looked at.
        values = (step.args, *(value for _, value in step.kwargs)) if subs_with_effects else ()
        return any(type(leaf) is Sub and leaf.name in subs_with_effects for value in values for leaf in leaves(value))

    return [index for index, step in enumerate(graph.steps) if is_effect(step) or takes_such_subgraph(step)]
