"""The memory time line, held step by step against a run that drops values after their last use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from subjects.costed import MODELS
from subjects.programs import PROGRAMS
from torch import Tensor

import backprint as bp
from face import (
    Graph,
    LiveSpan,
    MemoryLine,
    Pair,
    Port,
    Ref,
    TensorSpec,
    cost,
    feed,
    memory_line,
    perform_steps,
    refs,
    subgraphs,
    used,
)

SUBJECTS = MODELS | PROGRAMS


def memory(values: Iterable[Any]) -> dict[int, int]:
    """Return the storages of some values by their address, with their bytes."""
    found = [leaf for leaf in pytree.tree_leaves(list(values)) if isinstance(leaf, Tensor)]
    strided = [leaf.untyped_storage() for leaf in found if leaf.layout is torch.strided]
    return {storage.data_ptr(): storage.nbytes() for storage in strided if storage.nbytes()}


class Run:
    """Runs a Pair and writes down how many bytes live during and after each step."""

    def __init__(self, pair: Pair, inputs: Mapping[str, Any]) -> None:
        self.during: list[int] = []
        self.after: list[int] = []
        self.held = memory(inputs.values())
        self.kept: list[Any] = []
        forward, env = pair.forward, {}
        results = self.graph(forward, dict(inputs), (), env)
        if pair.backward is not None:
            ends = dict(zip(forward.outputs, results, strict=True))
            self.kept = [value for port, value in ends.items() if port.role == "output"]
            saved = {port.name: value for port, value in ends.items() if port.role == "saved"}
            given = {port.name: inputs[port.local] for port in forward.inputs}
            values = {port.local: self.value(port, saved, given) for port in pair.backward.inputs}
            self.kept += [values[port.local] for port in pair.backward.inputs if port.role == "tangent"]
            mortal = [port.local for port in pair.backward.inputs if port.role == "saved"]
            del results, ends, saved
            env.clear()
            self.graph(pair.backward, values, mortal, env)

    def value(self, port: Port, saved: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        """Return an input of the backward; what the forward has not, such as a constant, is the caller's."""
        if port.role == "saved" and port.name in saved:
            return saved[port.name]
        if port.role != "tangent" and port.name in given:
            return given[port.name]
        made = made_up(port)
        if port.role != "tangent":
            self.held |= memory([made])
        return made

    def graph(self, graph: Graph, given: dict[str, Any], mortal: Iterable[str], env: dict[str, Any]) -> list[Any]:
        """Run a graph; of its inputs, those that are mortal are dropped after their last use too."""
        env |= feed(graph, given, False)
        given.clear()
        lasts = dict.fromkeys(mortal, -1)
        for index, made in enumerate(graph.steps):
            lasts |= dict.fromkeys([*used(made), *([] if made.is_guard else [made.name])], index)
        stay = {name for result in graph.results for name in refs(result)}
        stay |= {port.local for port in graph.inputs} - set(mortal)
        drops = defaultdict(list)
        for name, index in lasts.items():
            if name not in stay:
                drops[index].append(name)
        for name in drops[-1]:
            del env[name]

        def settle(index: int, made: Any) -> None:
            self.during.append(self.living(env))
            for name in drops[index]:
                del env[name]
            self.after.append(self.living(env))

        make = perform_steps(graph.steps, env, subgraphs(graph), after=settle)
        return [make(result) for result in graph.results]

    def living(self, env: Mapping[str, Any]) -> int:
        return sum(size for key, size in memory([*env.values(), *self.kept]).items() if key not in self.held)


def made_up(port: Port) -> Any:
    """Return a tensor of a port's type."""
    spec = port.spec
    assert isinstance(spec, TensorSpec)
    strides = torch.empty(spec.shape, device="meta").stride() if spec.stride is None else spec.stride
    return torch.empty_strided(spec.shape, strides, dtype=getattr(torch, spec.dtype)).fill_(1)


def differs(pair: Pair, inputs: Mapping[str, Any]) -> str:
    """Return the first step where the text and a run differ; '' if there is none."""
    line, run = memory_line(pair), Run(pair, inputs)
    steps = (*pair.forward.steps, *(pair.backward.steps if pair.backward else ()))
    assert len(steps) == len(line.during) == len(line.after) == len(run.during)
    between = line.forward_steps - 1  # then the caller writes mutations back, which a run of the graph holds until then
    for index, made in enumerate(steps):
        if line.during[index] != run.during[index]:
            return f"while {made.name} ({made.target}) runs: {line.during[index]} bytes, not {run.during[index]}"
        if index != between and line.after[index] != run.after[index]:
            return f"after {made.name} ({made.target}): {line.after[index]} bytes, not {run.after[index]}"
    return ""


def captured_with_inputs(name: str, engine: str) -> tuple[Pair, dict[str, Any]]:
    """Return the Pair of a program, and its inputs by their names in the text."""
    torch.manual_seed(0)
    program, args, kwargs = SUBJECTS[name]()
    try:
        capture = bp.capture(program, args=args, kwargs=kwargs, engine=engine)
    except bp.errors.BackprintError as error:
        pytest.skip(f"engine {engine} refuses it: {error}")
    if len(capture.pairs) != 1:
        pytest.skip("it is captured as several Pairs, and a time line is that of one Pair")
    given, pair = capture.inputs(), capture.pairs[0]
    return pair, {port.local: given[port.name] for port in pair.forward.inputs}


@pytest.fixture(scope="module")
def gpt() -> tuple[Pair, dict[str, Any]]:
    return captured_with_inputs("gpt", "eager")


WORKSPACE = ("recurrent", "aot")
"""oneDNN's LSTM takes a workspace that its fake kernel does not have, so the text has not either."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *((name, "eager") for name in SUBJECTS),
        *((name, "aot") for name in ("gpt", "convnet", "checkpoint_without_reentry", "recurrent", "dropout_in_order")),
    ],
)
def test_each_step_holds_what_a_run_holds(name: str, engine: str) -> None:
    pair, inputs = captured_with_inputs(name, engine)
    found = differs(pair, inputs)
    assert ("mkldnn_rnn_layer" in found) if (name, engine) == WORKSPACE else (found == "")


def test_so_with_another_partition() -> None:
    torch.manual_seed(0)
    program, args, kwargs = MODELS["gpt"]()
    capture = bp.capture(program, args=args, kwargs=kwargs, engine="aot", partition="default")
    pair, given = capture.pairs[0], capture.inputs()
    assert differs(pair, {port.local: given[port.name] for port in pair.forward.inputs}) == ""


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (cost, {"UNDECLARED": frozenset()}, "_unsafe_view"),
        (cost, {"is_view": lambda made, specs: False}, "aten."),
        (cost, {"used": lambda made: ()}, "bytes, not"),
        (cost.Lives, {"use": lambda *_: None}, "bytes, not"),
    ],
)
def test_a_wrong_time_line_is_seen(
    monkeypatch: pytest.MonkeyPatch, gpt: tuple[Pair, dict[str, Any]], place: Any, value: dict[str, Any], said: str
) -> None:
    pair, inputs = gpt
    for name, broken in value.items():
        monkeypatch.setattr(place, name, broken)
    assert said in differs(pair, inputs)


def test_spans_roles_and_holders() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w).exp().sum()

    pair = bp.capture(program, torch.ones(4, 4), torch.ones(4, 4).requires_grad_(), engine="eager").pairs[0]
    line = memory_line(pair)
    spans = {(span.direction, span.value): span for span in line.spans}
    assert [made.target.split(".")[1] for made in pair.forward.steps] == ["mm", "exp", "sum"]
    assert spans["forward", "mm"] == LiveSpan("mm", "forward", 64, 0, 1, "temporary")
    saved = spans["forward", "exp"]
    assert (saved.role, saved.bytes, saved.first) == ("saved", 64, 1)
    assert saved.last >= line.forward_steps
    result = spans["forward", pair.forward.steps[2].name]
    assert (result.role, result.first, result.last) == ("output", 2, len(line.during))
    assert {span.role for span in line.spans} == {"temporary", "saved", "output", "tangent", "gradient"}
    assert {(span.value, span.role, span.bytes) for span in line.held} == {("x", "input", 64), ("w", "input", 64)}
    assert line.held_bytes == 128
    assert line.during[0] == 64
    assert line.during[1] == line.after[0] + 64
    assert line.after[-1] == 4 + 4 + 64
    assert sum(span.bytes for span in line.holders(line.peak)) == line.peak_bytes == max(line.during)
    assert line.holders(line.peak)[0].bytes == 64


def test_a_forward_alone_and_a_graph_without_steps() -> None:
    alone = bp.capture(lambda n: n * 2 + 1, torch.arange(4)).pairs[0]
    line = memory_line(alone)
    assert line.during == (32, 64)
    assert [span.role for span in line.spans] == ["temporary", "output"]
    port = Port("x", "input", TensorSpec("float32", (2,)), "x")
    same = Graph((port,), (), (Port("y", "output", TensorSpec("float32", (2,))),), (Ref("x"),))
    empty = memory_line(Pair("pair_0", same))
    assert empty == MemoryLine(0, (), (LiveSpan("x", "forward", 8, 0, 0, "input"),), (), ())
    assert (empty.peak, empty.peak_bytes, empty.holders(0)) == (0, 0, ())
