"""Whether a compiled backward is the derivative of the compiled forward, in float64 and at inputs that the compiler has
not seen.

The compiler's process compiles the two graphs of a Pair once more, with float64 for every floating-point dtype, and
joins them as a step. The judging process draws inputs near the captured ones and tangents, from seeds that no other
process has, sends them as contents of a call, and judges what comes back (`compiled`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from backprint.child.ends import ChildDied
from backprint.child.tensors import UnsentValue
from backprint.derive.check import DRAWS
from backprint.derive.setting import CannotTell, Setting, with_one_name
from backprint.errors import RefusedError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Capture, Graph, Pair
from backprint.graph.verdicts import CANNOT_TELL
from backprint.tools.bench.asking import CompilerProcess
from backprint.tools.bench.cells import BenchDerivative
from backprint.tools.bench.compiled import (
    CompiledDerivative,
    Returned,
    derivative_of_compiled,
    setting_for,
    values_for_pairs,
    wide_pairs,
)
from backprint.tools.bench.contents import ALL
from backprint.tools.bench.examine import inputs_of, step_told
from backprint.tools.export.rerun import EagerRun
from backprint.tools.jobs.task import one_line
from backprint.tools.lowering.subjects import BenchGraph, BenchStep, random_now
from backprint.tools.measuring.asking import CompilerFailed
from backprint.tools.measuring.clocks import CheatFound

FLOAT64 = ":float64"
"""What the name of a Pair has behind it in titles of its graphs in float64."""


def _wide_title(title: str) -> str:
    """Return the title of a graph, or of a step, in float64."""
    pair, _, direction = title.partition(" ")
    return f"{pair}{FLOAT64} {direction}"


class WideGraphs:
    """The Pairs of a Capture in float64. They are made before the compiler's process is forked, which has them too."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.pairs = wide_pairs(capture)

    @property
    def by_title(self) -> dict[str, Graph]:
        """The graphs by title."""
        graphs = {}
        for number, pair in enumerate(self.pairs):
            if pair is not None and pair.backward is not None:
                graphs[f"pair_{number}{FLOAT64} forward"] = pair.forward
                graphs[f"pair_{number}{FLOAT64} backward"] = pair.backward
        return graphs

    def judged(self, process: CompilerProcess, title: str) -> tuple[BenchDerivative, bool]:
        """Return the derivative of a step, and whether the compiler's process died over it."""
        began, died = time.monotonic(), False
        try:
            result = self.judged_pair(process, int(title.partition(" ")[0].removeprefix("pair_")), _wide_title(title))
        except (CannotTell, RefusedError) as error:
            result = CompiledDerivative(CANNOT_TELL, str(error))
        except CompilerFailed as error:
            result = CompiledDerivative(CANNOT_TELL, f"in float64 the compiler raises {error}")
        except CheatFound as error:
            result = CompiledDerivative(CANNOT_TELL, f"in float64 {error}")
        except ChildDied as error:
            died, result = True, CompiledDerivative(CANNOT_TELL, f"in float64 the compiler's process ended: {error}")
        return _derivative_of_cell(result, time.monotonic() - began), died

    def judged_pair(self, process: CompilerProcess, number: int, title: str) -> CompiledDerivative:
        """Compile a Pair in float64, and judge its gradients."""
        capture, wide = self.capture, self.pairs[number]
        assert wide is not None
        pair, values = with_one_name(capture.pairs[number], capture.signature.same), values_for_pairs(capture)[number]
        first, *seeds = [int.from_bytes(os.urandom(6), "little") for _ in range(1 + DRAWS)]
        compiled = _CompiledStep(process, wide, title, setting_for(pair, values, first, capture.seed))
        return derivative_of_compiled(pair, values, capture.seed, capture.opaque, capture.meant, compiled.call, seeds)


class _CompiledStep:
    """A Pair that the compiler's process has compiled in float64, for the inputs of one Setting."""

    def __init__(self, process: CompilerProcess, pair: Pair, title: str, setting: Setting) -> None:
        self.process, self.pair, self.title = process, pair, title
        step = self.step(setting)
        for part in (step.forward, step.backward):
            self.begin(part)
            process.request("compile", cold=True, opened=False)
            process.request("end")
        self.begin(step)
        process.request("join", forward=step.forward.title, backward=step.backward.title, step=step_told(step))

    def begin(self, graph: BenchGraph | BenchStep) -> None:
        """Make a graph the active one of the compiler's process. Its inputs are not varied there."""
        inputs = self.process.send_inputs(inputs_of(graph))
        plan: Mapping[str, Any] = {"pieces": [], "seed": 0, "ways": [ALL], "rewritten": []}
        self.process.request("begin", title=graph.title, inputs=inputs, **plan, step=step_told(graph))

    def step(self, setting: Setting) -> BenchStep:
        """Return the step of the Pair with the inputs of a Setting."""
        assert self.pair.backward is not None
        passed = setting.backward_inputs
        name = self.title.partition(" ")[0]
        forward = _bench_graph(
            f"{name} forward", self.pair.forward, [setting.inputs[port.name] for port in self.pair.forward.inputs]
        )
        backward = _bench_graph(
            f"{name} backward", self.pair.backward, [passed[port.key] for port in self.pair.backward.inputs]
        )
        return BenchStep(self.title, forward, backward)

    def call(self, setting: Setting) -> Returned:
        """Call the compiled step on the inputs and tangents of a Setting."""
        contents = self.process.send_inputs(self.step(setting).inputs)
        options = {"number": None, "seed": setting.chance, "pause": 0.0, "opened": False, "grad": True}
        answer = self.process.request("call", contents=contents, **options)
        assert self.pair.backward is not None
        keys = [*(port.key for port in self.pair.forward.outputs), *(port.key for port in self.pair.backward.outputs)]
        results = [] if "other" in answer else self.process.results_in(answer)
        if len(results) != len(keys):
            count = answer.get("other") or f"{len(results)} results"
            raise CannotTell(f"in float64 it returns {count}, where the graphs have {len(keys)}")
        return returned(keys, [None if isinstance(value, UnsentValue) else value for value in results])


def returned(keys: Sequence[PortKey], values: Sequence[Any]) -> Returned:
    """Return results by port."""
    pairs = list(zip(keys, values, strict=True))
    return Returned(
        {key: value for key, value in pairs if key.role != "gradient"},
        {key.name: value for key, value in pairs if key.role == "gradient"},
    )


def _bench_graph(title: str, graph: Graph, inputs: Sequence[Any]) -> BenchGraph:
    """Return a graph with its inputs, as the compiler's process is told of it; nothing has run."""
    outputs = [(port.role, port.name) for port in graph.outputs]
    return BenchGraph(title, graph, EagerRun(None, list(inputs), random_now(), outputs, ()))


def _derivative_of_cell(result: CompiledDerivative, seconds: float) -> BenchDerivative:
    """Return what a cell keeps."""
    return BenchDerivative(
        result.word, one_line(result.detail), result.gap, result.forward, result.captured, round(seconds, 3)
    )


def unknown(why: str) -> BenchDerivative:
    """Return the derivative of a step that was not compiled in float64."""
    return BenchDerivative(CANNOT_TELL, one_line(why))
