"""Which of a Capture's results depend on which of its inputs, by reachability: a path of values, not of shapes alone.

A path is necessary for dependence and not sufficient: `x - x` depends on `x` here. Where it matters, a port that does
not move is tried with numbers (`prove/power.py`).

Inputs are the Capture's own: what a caller passes, and the tangents (gradients of outputs) that the backward starts
with. A Capture of several Pairs has Links, which join a port of one Pair to an input of a later one: `feeds` has those
that end at a Pair, `consumers` those that start at a port, and `result_links` those that end at a result of the whole
Capture. A set of inputs is a number, in which each input has one bit (`bits`, by its name): `|` joins two sets. The
walk keeps what the ports of each graph depend on in `sides`, by the number of its Pair and its direction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from backprint.graph.keys import PortKey, tangent_name
from backprint.graph.links import FREE, consumers, feeds, names_between_pairs, result_links
from backprint.graph.nouns import Capture, Graph, Port, Ref, Step, Value, refs
from backprint.graph.operators import operators
from backprint.graph.steps import used

Sets = dict[PortKey, int]
"""For each port, a set of inputs, as the bits of a number."""

SHAPE_ONLY = {
    "zeros_like",
    "ones_like",
    "empty_like",
    "rand_like",
    "randn_like",
    "randint_like",
    "full_like",
    "new_empty",
    "new_empty_strided",
    "new_full",
    "new_ones",
    "new_zeros",
    "sym_size",
    "sym_stride",
    "sym_numel",
    "sym_storage_offset",
    "_assert_tensor_metadata",
    "is_same_size",
}
"""Operators that read only the shape of their first argument."""

TAKEN: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    "convolution_backward": {0: (0, 2), 1: (0, 1), 2: (0,)},
    "native_layer_norm_backward": {0: (0, 1, 3, 4, 5), 1: (0, 1, 3, 4), 2: (0,)},
    "native_group_norm_backward": {0: (0, 1, 2, 3, 4), 1: (0, 1, 2, 3), 2: (0,)},
    "native_batch_norm_backward": {0: (0, 1, 2, 3, 4, 5, 6), 1: (0, 1, 3, 4, 5, 6), 2: (0,)},
    "max_pool2d_with_indices": {0: (0,), 1: (0,)},
}
"""Operators with several results of which some do not depend on every argument: for each result, the indexes of the
arguments that it depends on. The gradient of a bias, for example, does not depend on the weight."""


class _Dependence(Mapping[PortKey, frozenset[str]]):
    """For each result, the inputs that it depends on; a tangent's name is `tangent y`.

    `bits` has for each input a number with one bit set, and `sets` for each result the number with the bits of the
    inputs that it depends on. Questions about many results are asked in such numbers: names of thousands of inputs for
    each of thousands of results would take gigabytes.
    """

    def __init__(self, bits: Mapping[str, int], sets: Sets) -> None:
        self.bits, self.sets = bits, sets

    def __getitem__(self, key: PortKey) -> frozenset[str]:
        return self.names_of(self.sets[key])

    def __iter__(self) -> Iterator[PortKey]:
        return iter(self.sets)

    def __len__(self) -> int:
        return len(self.sets)

    def set_of(self, names: Iterable[str]) -> int:
        """Return the set of these inputs, as bits; a name that is no input adds nothing."""
        inputs = 0
        for name in names:
            inputs |= self.bits.get(name, 0)
        return inputs

    def names_of(self, inputs: int) -> frozenset[str]:
        """Return the names of the inputs in a set of bits."""
        return frozenset(name for name, bit in self.bits.items() if bit & inputs)


def dependence(capture: Capture) -> _Dependence:
    """Return, for each of the Capture's own results, the inputs that it depends on."""
    walk = _DependenceWalk(capture)
    sets = walk.results()
    return _Dependence(walk.bits, sets)


def dependence_of_parts(capture: Capture) -> tuple[_Dependence, ...]:
    """Return, for each of several Pairs, what its own results depend on of the inputs of the whole Capture; nothing for
    a Capture of one Pair, whose results are those of `dependence`."""
    if len(capture.pairs) == 1:
        return ()
    walk = _DependenceWalk(capture)
    sets = [{**walk.forward(index), **walk.backward(index)} for index in range(len(capture.pairs))]
    return tuple(_Dependence(walk.bits, sets_of_part) for sets_of_part in sets)


class _DependenceWalk:
    """Walks each of a Capture's graphs once, in the order in which they need each other. `index` is the number of a
    Pair. `bits` has the set of each input alone, `first` the first name of each tensor that was passed under two, by
    the second, and `sides` what the ports of each graph depend on, by the number of its Pair and its direction."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.first = {right: left for left, right in capture.signature.same}
        self.bits: dict[str, int] = {}
        self.sides: dict[tuple[int, str], Sets] = {}

    def bit(self, name: str) -> int:
        """Return the set of this input alone. The second name of a tensor has the bit of its first name."""
        name = self.first.get(name, name)
        if name not in self.bits:
            self.bits[name] = 1 << len(self.bits)
        return self.bits[name]

    def forward(self, index: int) -> Sets:
        """Return what each output port of a forward depends on."""
        if (index, "forward") not in self.sides:
            graph = self.capture.pairs[index].forward
            inputs = {port.local: self.of_forward_input(index, port) for port in graph.inputs}
            self.sides[index, "forward"] = _results_depend_on(graph, inputs)
        return self.sides[index, "forward"]

    def backward(self, index: int) -> Sets:
        """Return what each gradient of a backward depends on."""
        graph = self.capture.pairs[index].backward
        if graph is None:
            return {}
        if (index, "backward") not in self.sides:
            # Set first, because the walk may come back here: if a later Pair takes a gradient of this one, each of the
            # two backwards depends on the other.
            self.sides[index, "backward"] = {}
            inputs = {port.local: self.of_backward_input(index, port) for port in graph.inputs}
            self.sides[index, "backward"] = _results_depend_on(graph, inputs)
        return self.sides[index, "backward"]

    def of_forward_input(self, index: int, port: Port) -> int:
        """Return the inputs that an input of a forward depends on: itself, or the inputs that the sources of its links
        depend on."""
        links = [link for link in feeds(self.capture, index) if link.name == port.name]
        if not links:
            # A caller passes it, unless it is a number that the program drew (role `rng`).
            return self.bit(port.name) if port.role in FREE else 0
        inputs = 0
        for link in links:
            inputs |= self.source(link.source, link.port)
        return inputs

    def of_backward_input(self, index: int, port: Port) -> int:
        """Return the inputs that an input of a backward depends on, by its role."""
        if port.role == "saved":
            return self.forward(index).get(port.key, 0)
        return self.tangent(index, port.name) if port.role == "tangent" else self.of_forward_input(index, port)

    def tangent(self, index: int, name: str) -> int:
        """Return what the tangent of an output of a Pair depends on: the caller's tangent, if the output is a result of
        the whole Capture, and the gradients that later Pairs compute for it."""
        inputs = 0
        for link in result_links(self.capture):
            is_differentiable = link.name in self.capture.signature.differentiable
            if is_differentiable and (link.source, link.port) == (index, PortKey("output", name)):
                inputs |= self.bit(tangent_name(link.name))
        for link in consumers(self.capture, index, PortKey("output", name)):
            if link.target is not None:
                inputs |= self.backward(link.target).get(PortKey("gradient", link.name), 0)
        return inputs

    def source(self, index: int | None, port: PortKey) -> int:
        """Return the inputs that the value of a link depends on where the link starts; `index` is None at an input."""
        if index is None:
            return self.bit(port.name)
        side = self.backward(index) if port.role == "gradient" else self.forward(index)
        return side.get(port, 0)

    def results(self) -> Sets:
        """Return what the Capture's own results depend on: outputs, mutations, gradients."""
        inputs = {
            PortKey("output", link.name): self.source(link.source, link.port) for link in result_links(self.capture)
        }
        inner = names_between_pairs(self.capture)  # no results of the Capture, but values that Pairs hand on
        for index in range(len(self.capture.pairs)):
            for key, bits in self.forward(index).items():
                if key.role == "mutation" and key.name not in inner:
                    inputs[key] = bits
            fed = {link.name for link in feeds(self.capture, index)}  # inputs whose gradients go to other Pairs
            for key, bits in self.backward(index).items():
                if key.name not in inner and key.name not in fed:
                    # Several Pairs may have a gradient of one input: they are added.
                    inputs[key] = inputs.get(key, 0) | bits
        for link in result_links(self.capture):
            # An input that is returned as it is: its gradient includes the tangent of that output, in no graph.
            if link.source is None and link.port.role in FREE and link.name in self.capture.signature.differentiable:
                key = PortKey("gradient", link.port.name)
                inputs[key] = inputs.get(key, 0) | self.bit(tangent_name(link.name))
        return inputs


def _results_depend_on(graph: Graph, inputs: Mapping[str, int]) -> Sets:
    """Return what each output port of a graph depends on, if its inputs depend on these sets. A value that two sets
    reach has the union of both, the `|` of their numbers."""
    if any("m" in operators().get(step.target, "") for step in graph.steps):
        env = _with_changes_in_place(graph, inputs)
    else:
        # `parts` has, for a step with several results in TAKEN, what each of them depends on.
        env, parts = dict(inputs), dict[str, dict[int, int]]()
        for step in graph.steps:
            if step.is_guard:
                continue
            env[step.name] = taken(step, env, parts)
            if (arguments_of := TAKEN.get(bare_operator(step))) is not None:
                parts[step.name] = {
                    index: union(tuple(step.args[place] for place in places), env)
                    for index, places in arguments_of.items()
                }
    return {port.key: union(value, env) for port, value in zip(graph.outputs, graph.results, strict=True)}


def _with_changes_in_place(graph: Graph, inputs: Mapping[str, int]) -> dict[str, int]:
    """Return what each value depends on in a graph whose steps change arguments in place.

    Values that may share memory have one set: `y.add_(x)` changes each view of `y`, also those taken before.
    """
    group_of = {name: name for name in inputs}  # a group is called by the name of its first value
    for step in graph.steps:
        # The flags `m` and `v` of an operator: it changes an argument, or returns a view.
        shares = set("mv") & set(operators().get(step.target, ""))
        # A view, and the result of an in-place operator, join the group of the first tensor that they take.
        taken_names = [name for name in refs(step.args) if name in group_of] if shares else []
        group_of[step.name] = group_of[taken_names[0]] if taken_names else step.name
    env = dict(inputs)
    for step in graph.steps:
        if not step.is_guard:
            seen = {name: env.get(group_of.get(name, name), 0) for name in used(step)}
            # The old set stays: a write through a view overwrites only a part of the memory of its group.
            # Without parts: of several results, each depends here on all that the step takes.
            env[group_of[step.name]] = env.get(group_of[step.name], 0) | taken(step, seen, parts={})
    return {name: env.get(group, 0) for name, group in group_of.items()}


def bare_operator(step: Step) -> str:
    """Return the name of an ATen operator without namespace and overload; '' for any other target."""
    return step.target.split(".")[1] if step.target.startswith(("aten.", "prims.")) else ""


def taken(step: Step, env: Mapping[str, int], parts: Mapping[str, Mapping[int, int]]) -> int:
    """Return what the result of a step depends on, if the values that it takes depend on the sets in `env`. `parts`
    has, by the name of a step with several results, what each of these depends on: `operator.getitem` takes one of
    them."""
    match step.target, step.args:
        case "operator.getitem", (Ref(name), int(index)) if index in parts.get(name, {}):
            return parts[name][index]
    # A call of such an operator has the tensor first, and numbers, such as a fill value, after it.
    args = step.args[1:] if bare_operator(step) in SHAPE_ONLY else step.args
    return union((args, *(value for _, value in step.kwargs)), env)


def union(value: Value, env: Mapping[str, int]) -> int:
    """Return the union of what the names in a value depend on, by `env`; a name that is not there adds nothing."""
    inputs = 0
    for name in refs(value):
        inputs |= env.get(name, 0)
    return inputs
