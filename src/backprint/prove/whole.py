"""Replay a whole Capture: arguments to ports, the linked Pairs, and results back in the model's own containers.

A *Pair* is a forward Graph with its backward Graph; `index` is its place in the Capture. A *Link* says which port of
the Pair `source` is the input `name` of the Pair `target`: `feeds` yields the links to a Pair, `consumers` those from a
port, and `result_links` those whose `target` is None, to results of the whole Capture. A link whose `source` is None
starts at an input of the Capture. A port's key (PortKey) is its role and its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from backprint._torch.modes import users_dispatch_mode
from backprint._torch.tensors import storage_id
from backprint.errors import GraphError, GuardError, ReplayError
from backprint.graph.keys import PortKey, keyed, tangent_name
from backprint.graph.links import collectives_before, consumers, feeds, names_between_pairs, result_links
from backprint.graph.nouns import Capture, Guard, Link
from backprint.graph.sizes import evaluate, known, sizes_in_words
from backprint.prove.arguments import State, name_tangents, tangent_with_traced_strides, values_of
from backprint.prove.results import Results, results_by_port
from backprint.prove.run import PLAIN, RunOptions, check_saved, run_graph, sizes_of
from backprint.run_sample import digest
from backprint.values.settings import (
    OWN,
    STATE_OF,
    RandomStates,
    foreign_states,
    random_state_digest,
    random_states,
    with_settings,
)
from backprint.values.tree import copy_values, ones_tangent, strided_parts

# ---- The linked Pairs: forwards in order, with values passed over links, then backwards on demand
# A Capture of one Pair has no links. The gradient of a value is the sum that autograd computes, in its order: the
# caller's tangent, then the gradients of later Pairs, the latest first. Within one Pair the sum is computed first, so
# the gradient of a value that one Pair uses twice and a later one again may differ in the last bits.


Gradients = dict[str, "Tensor | None"]
"""Gradients by the names of the tensors that they belong to; None for one that was not computed."""


@dataclass(slots=True)
class PairRun:
    """One run of a Pair: its inputs (`values`), results and saved values, all by name, and the random states that it
    started from. `gradients` is None until the backward runs."""

    values: dict[str, Tensor]
    random: RandomStates
    outputs: dict[str, Any] = field(default_factory=dict)
    mutations: dict[str, Any] = field(default_factory=dict)
    saved: dict[str, Any] = field(default_factory=dict)
    tangents: dict[str, Tensor] = field(default_factory=dict)
    gradients: Gradients | None = None

    @property
    def backward_inputs(self) -> dict[PortKey, Any]:
        """The inputs of the backward that are known so far, by port: saved values, tangents, and constants of the
        program, which are among `values`."""
        return keyed("constant", self.values) | keyed("saved", self.saved) | keyed("tangent", self.tangents)

    @property
    def results(self) -> Results:
        """The results of the Pair, by port."""
        return results_by_port(self.outputs, self.mutations, self.gradients or {})


class CaptureRun:
    """One run of all Pairs of a Capture: `forward` runs every forward, and `gradients` the backwards.

    `values` are the program's inputs, parameters, buffers and constants, and `tangents` the caller's, by output (None:
    ones). `runs` has a PairRun for each Pair whose forward has run. `answered` has, for each graph (by Pair and
    direction), how many collectives of each group are answered before it runs.
    """

    def __init__(
        self,
        capture: Capture,
        values: Mapping[str, Tensor],
        tangents: Mapping[str, Tensor | None] | None,
        options: RunOptions = PLAIN,
    ) -> None:
        self.capture, self.values, self.tangents, self.options = capture, values, tangents or {}, options
        self.runs: list[PairRun] = []
        self.answered: Mapping[tuple[int, str], Mapping[str, int]] = {}

    def forward(self) -> None:
        """Run every forward, in order."""
        for index, pair in enumerate(self.capture.pairs):
            inputs = dict(self.values)
            for link in feeds(self.capture, index):
                inputs[link.name] = self.input_value(link)
            port_names = {port.name for graph in pair.graphs for port in graph.inputs}
            # From these random states the part of the program that the Pair was traced from can run again, for a
            # comparison with the Pair alone.
            run = PairRun({name: value for name, value in inputs.items() if name in port_names}, random_states())
            results = run_graph(pair.forward, inputs, options=self._begin_graph(index, "forward"))
            values_by_role = {"output": run.outputs, "mutation": run.mutations, "saved": run.saved}
            for port, value in zip(pair.forward.outputs, results, strict=True):
                if port.role in values_by_role:  # an edited sample may have any other role, which the proof reports
                    values_by_role[port.role][port.name] = value
            self.runs.append(run)

    def _begin_graph(self, index: int, side: str) -> RunOptions:
        """Return the options for the graph of this Pair and direction, which runs next: ranks that run at the same time
        (`options.answer`) answer its collectives, if there are any, else the Capture's peers. They are told how many
        collectives of each group come before this graph."""
        others: Any = self.options.answer or self.capture.peers  # an `Others`
        if others is None:
            return self.options
        self.answered = self.answered or collectives_before(self.capture)
        others.begin(self.answered[index, side])
        return replace(self.options, answer=others)

    def input_value(self, link: Link) -> Any:
        """Return the value of the input of a Pair to which a link goes. A Pair may take a gradient that earlier Pairs
        compute: gradients of several Pairs for one input are added, the gradient of the latest Pair first."""
        assert link.target is not None
        if link.port.role != "gradient":
            return self.source_value(link)
        # All links to this input. A link of a gradient starts at a Pair, so the `or` is for the type alone.
        same = [other for other in feeds(self.capture, link.target) if other.name == link.name]
        sources = [(other.source or 0, other.port.name) for other in same]
        terms = [self.backward(index)[name] for index, name in sorted(sources, reverse=True)]
        total = sum_in_order(terms)
        if total is None:
            raise ReplayError(f"{str(link.port)!r} of pair {link.source} is None, and pair {link.target} takes it")
        return total

    def source_value(self, link: Link) -> Any:
        """Return the value at the source port of a link."""
        if link.source is None:
            return self.values[link.port.name]
        run = self.runs[link.source]
        return (run.outputs if link.port.role == "output" else run.mutations)[link.port.name]

    def backward(self, index: int) -> Gradients:
        """Return one Pair's gradients, none if it has no backward. They are computed at the first call, after the
        gradients of the later Pairs on which they depend."""
        run, pair = self.runs[index], self.capture.pairs[index]
        if run.gradients is not None:
            return run.gradients
        run.gradients = {}  # not None from here on, so that a cycle of links ends
        if pair.backward is None:
            return run.gradients
        inputs = run.backward_inputs
        check_saved(pair.backward, inputs)
        sizes = sizes_of([(port, inputs[port.key]) for port in pair.backward.inputs if port.key in inputs])
        for port in pair.backward.by_role("tangent"):
            output = run.outputs[port.name]
            tangent = tangent_with_traced_strides(self.tangent(index, port.name), output, port.spec, sizes)
            inputs[port.key] = run.tangents[port.name] = tangent
        names = [port.name for port in pair.backward.outputs]
        # Not strict: `check_saved` has compared what the forward saved, and tangents have the forms of their outputs.
        results = run_graph(pair.backward, inputs, strict=False, options=self._begin_graph(index, "backward"))
        run.gradients = dict(zip(names, results, strict=True))
        return run.gradients

    def tangent(self, index: int, name: str) -> Tensor:
        """Return the gradient of the output `name` of Pair `index`: the caller's tangent plus the gradients of later
        Pairs that take it; zeros if there are none."""
        output = self.runs[index].outputs[name]
        if not isinstance(output, Tensor):
            raise ReplayError(f"output {name!r} must be a tensor, not a {type(output).__name__}")
        port = PortKey("output", name)
        terms = [*self.own_tangents(index, port, output)]
        for link in consumers(self.capture, index, port):
            # A Pair that takes a gradient as an input runs after this backward: it has no gradient to add yet.
            if link.target is not None and link.target < len(self.runs):
                terms.append(self.backward(link.target).get(link.name))
        total = sum_in_order(terms)
        return torch.zeros_like(output) if total is None else total

    def own_tangents(self, index: int | None, port: PortKey, output: Tensor) -> Iterable[Tensor]:
        """Yield the caller's tangents for the differentiable results of the Capture that have their value from this
        port of Pair `index`, or from an input if that is None; ones where the caller passed none. `output` is the
        value."""
        for link in result_links(self.capture):
            if (link.source, link.port) != (index, port) or link.name not in self.capture.signature.differentiable:
                continue
            tangent = self.tangents.get(link.name)
            tangent = ones_tangent(output) if tangent is None else tangent
            if tangent.shape != output.shape or tangent.layout is not output.layout:
                raise ReplayError(
                    f"the tangent of {link.name!r} is {shape_text(tangent)}, and its output is {shape_text(output)}: "
                    "pass a tangent of the output's shape and layout"
                )
            yield tangent

    def gradients(self) -> Gradients:
        """Return the gradients of the program's own tensors, in input order."""
        between_pairs = names_between_pairs(self.capture)  # values that one Pair makes and another one takes
        terms: dict[str, list[Tensor | None]] = {}
        for link in result_links(self.capture):
            # An input that is returned as it is: its gradient has the caller's tangent of this result.
            if link.source is None and link.name in self.capture.signature.differentiable:
                name = link.port.name
                terms.setdefault(name, list(self.own_tangents(None, link.port, self.values[name])))
        # Later Pairs first, in the order in which autograd adds gradients up.
        for index in reversed(range(len(self.runs))):
            linked_inputs = {link.name for link in feeds(self.capture, index)}
            for name, gradient in self.backward(index).items():
                if name not in between_pairs and name not in linked_inputs:
                    terms.setdefault(name, []).append(gradient)
        return {name: sum_in_order(terms[name]) for name in self.order() if name in terms}

    def order(self) -> list[str]:
        """Return the names of the program's tensors, in the order that `gradients` has: of one Pair in the order of its
        inputs; of several Pairs the parameters first, then the buffers, the inputs and the rest."""
        ports = [port for pair in self.capture.pairs for port in pair.forward.inputs]
        if len(self.capture.pairs) == 1:
            return [port.name for port in ports]
        rank = {"parameter": 0, "buffer": 1, "input": 2}
        return list(dict.fromkeys(port.name for port in sorted(ports, key=lambda port: rank.get(port.role, 3))))

    def mutations(self) -> dict[str, Tensor]:
        """Return the final values of the program's tensors that are written to. A tensor that several Pairs write to
        has its value after the last of them."""
        between_pairs = names_between_pairs(self.capture)
        mutated: dict[str, Tensor] = {}
        for run in self.runs:
            mutated |= {name: value for name, value in run.mutations.items() if name not in between_pairs}
        return mutated


def shape_text(tensor: Tensor) -> str:
    """Return a tensor's shape, and its layout if it is sparse."""
    layout = "" if tensor.layout is torch.strided else f" {str(tensor.layout)[6:]}"
    return f"{list(tensor.shape)}{layout}"


def sum_in_order(terms: Iterable[Tensor | None]) -> Tensor | None:
    """Return the sum of the terms that are not None, added from left to right; None if there are none."""
    total: Tensor | None = None
    for term in terms:
        if term is not None:
            total = term if total is None else total + term
    return total


# ---- A replay, from the arguments to the results


@dataclass(frozen=True, slots=True)
class Replayed:
    """The results of a replay: outputs in the model's containers, gradients and mutations by the program's own names.

    `named` has the output tensors by name, `loss` the one that is the loss, if the capture was of one, and `parts` the
    run of each Pair.
    """

    outputs: Any
    gradients: dict[str, Tensor | None]
    mutations: dict[str, Tensor]
    named: dict[str, Tensor]
    loss: Tensor | None = None
    parts: tuple[PairRun, ...] = ()

    @property
    def results(self) -> Results:
        """All results of the replay, by port."""
        return results_by_port(self.named, self.mutations, self.gradients)


def replay(
    capture: Capture,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    state: State = None,
    tangents: Sequence[Tensor | None] | None = None,
    options: RunOptions = PLAIN,
) -> Replayed:
    """Run a Capture on new arguments; without arguments, on its own inputs, from the capture or from the recipes.

    Random operators draw from the generators as the caller has seeded them. Meanwhile the process has the settings of
    the capture: with another default dtype, this would be another program.
    """
    refuse_users_mode("replay")
    with with_settings(dict(capture.environment)):
        named_tangents = name_tangents(capture, tangents)
        values, recipe_tangents = values_of(capture, args, kwargs or {}, state)
        if named_tangents is None and recipe_tangents:  # those of the recipes, unless the caller passes some
            named_tangents = {**recipe_tangents}
        # Without arguments the numbers that were drawn at capture belong to these inputs, whatever state a generator
        # has now.
        if (args or kwargs) and state != "recipe":
            _check_random_states(capture)
        return replay_values(capture, values, named_tangents, options)


def refuse_users_mode(verb: str) -> None:
    """Refuse to run a Capture where a dispatch mode of the user's may change what its operators compute."""
    if (mode := users_dispatch_mode()) is not None:
        raise ReplayError(
            f"the dispatch mode {mode} is active, and may change what operators compute: {verb} outside of it, or run "
            "the graphs under it with bp.run"
        )


def replay_values(
    capture: Capture,
    values: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor | None] | None,
    options: RunOptions = PLAIN,
) -> Replayed:
    """Run a Capture on values by name, after a check of the pins (inputs that may have their captured values only) and
    of the guards on sizes. Outputs without a tangent get ones."""
    _check_pins(capture, values)
    _check_tangents(capture, tangents or {})
    check_sizes(capture, values)
    run = CaptureRun(capture, values, tangents, options)
    run.forward()
    named = {link.name: run.source_value(link) for link in result_links(capture)}
    gradients = run.gradients()
    named = _without_memory_of(capture.origin.constants, named)
    loss = named.get(capture.signature.loss)
    return Replayed(
        capture.origin.rebuild(capture.signature.output, named),  # in the containers that the program returns
        gradients,
        run.mutations(),
        named,
        loss,
        tuple(run.runs),
    )


def _without_memory_of(constants: Mapping[str, Tensor], named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the outputs, with a copy in the place of each that shares memory with a constant of the Capture: the
    caller may write to what a replay returns."""
    memories = {
        storage_id(part.untyped_storage()) for constant in constants.values() for part in strided_parts(constant)
    }
    shared = {
        name: tensor
        for name, tensor in named.items()
        if memories and any(storage_id(part.untyped_storage()) in memories for part in strided_parts(tensor))
    }
    return {**named, **copy_values(shared)}


def _check_pins(capture: Capture, values: Mapping[str, Tensor]) -> None:
    """Raise unless the inputs that are pinned, which a Capture runs on at their captured values only, have these."""
    for name, captured_digest in capture.pins:
        if name in values and digest(values[name]) != captured_digest:
            guard = next((guard for guard in capture.guards if guard.kind == "pinned" and name in guard.inputs), None)
            source = guard.source if guard is not None else None
            where = f" at {source.at}: {source.code!r}" if source else ""
            raise GuardError(
                f"input {name!r} is pinned to the values it was captured with{where}"
                f"{f' ({guard.text})' if guard else ''}: capture again on inputs like these"
            )


def _check_tangents(capture: Capture, tangents: Mapping[str, Tensor | None]) -> None:
    """Raise unless the tangents that are pinned are ones."""
    pinned = {name for guard in capture.guards if guard.kind == "pinned" for name in guard.inputs}
    for name, tangent in tangents.items():
        if tangent_name(name) in pinned and tangent is not None and not bool((tangent == 1).all()):
            raise GuardError(
                f"{tangent_name(name)} is pinned to ones: a recorded step's own backward() starts with them, and the "
                "step was proved on them alone. Without tangents=, the replay starts with ones too"
            )


def _check_random_states(capture: Capture) -> None:
    """Raise unless the generators, other than torch's, that the program draws from have the states that they had at
    capture. These are pins too, whose names begin with STATE_OF."""
    captured_states = {name.removeprefix(STATE_OF): state for name, state in capture.pins if name.startswith(STATE_OF)}
    if not captured_states:
        return
    now = {name: random_state_digest(state) for name, state in foreign_states().items()}
    now |= capture.origin.random_state_digests() if capture.origin.alive else {}
    for name, state in captured_states.items():
        # A generator of the program's own (OWN) cannot be looked up when the program is gone, and is then not checked.
        if name not in now and name.startswith(OWN):
            continue
        if now.get(name) != state:
            raise GuardError(
                f"the program draws from {name}, whose state is not as at capture, and the numbers that it "
                "drew are constants of the graph: restore its state, or use torch's generator in the program. "
                "Without arguments, and with state='recipe', the numbers are those of the capture"
            )


SIZE = re.compile(r"(?:(?P<name>.+)\.shape\[(?P<index>\d{1,3})\] == )?(?P<text>.+)")
"""The text of a `size` guard: a condition over symbols, or the value of a dimension."""


def check_sizes(capture: Capture, values: Mapping[str, Tensor]) -> None:
    """Raise unless the conditions on sizes that tracing found hold for these inputs."""
    guards = [guard for guard in capture.guards if guard.kind == "size"]
    if not guards:
        return
    sizes = sizes_of([(port, values[port.name]) for port in capture.pairs[0].forward.inputs if port.name in values])
    for guard in guards:
        does_hold, why = _holds_condition(guard, values, sizes)
        if not does_hold:
            line = guard.source
            where = f" at {line.file}:{line.line}: {line.code!r}" if line else ""
            shapes = [
                f"{name} {list(values[name].shape)}" for name in guard.inputs if isinstance(values.get(name), Tensor)
            ]
            raise GuardError(
                f"guard `{guard.text}` does not hold{where}: these inputs have {', '.join(shapes)} "
                f"({sizes_in_words(sizes)}){why}. Capture again on inputs like these"
            )


def _holds_condition(guard: Guard, values: Mapping[str, Tensor], sizes: Mapping[str, int]) -> tuple[bool, str]:
    """Return whether a condition on sizes holds; if it cannot be evaluated, False and the reason as the end of a
    message."""
    try:
        return guard_holds(guard, values, sizes), ""
    except GraphError as error:
        return False, f"; {error}"


def guard_holds(guard: Guard, values: Mapping[str, Tensor], sizes: Mapping[str, int]) -> bool:
    """Whether a `size` guard (a condition on symbols, or `x.shape[0] == s0`) holds at these `sizes`. A guard about a
    tensor that is not among `values` holds, and so does a condition without a tensor whose symbols are not all known:
    then nothing refutes it. GraphError says that a condition cannot be evaluated."""
    match = SIZE.fullmatch(guard.text)
    if match is None:
        raise ReplayError(f"guard {guard.text!r:.80} is not a condition on sizes")
    name, index = match["name"], int(match["index"] or 0)
    if name is None:
        return not known(guard.text, sizes) or bool(evaluate(guard.text, sizes))
    value = values.get(name)
    if not isinstance(value, Tensor):
        return True
    if not sizes and not known(match["text"], sizes):  # the graphs of a part of a Capture have numbers as sizes
        return True
    return index < value.dim() and value.shape[index] == evaluate(match["text"], sizes)
