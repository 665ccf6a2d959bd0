"""Whether a compiled backward is the derivative of the compiled forward, in float64 and at inputs that the compiler has
not seen.

The two graphs of a Pair are compiled once more, with float64 for every floating-point dtype, and joined as a step. It
is called on inputs near the captured ones and on tangents, which are drawn anew, and `compiled` judges what it returns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from backprint.child.strangers import CompilerFailed, compiler_errors
from backprint.derive.check import MAX_DRAWS
from backprint.derive.setting import CannotTell, Setting, with_one_name
from backprint.errors import RefusedError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Capture, Graph, Pair
from backprint.graph.verdicts import CANNOT_TELL
from backprint.tools.bench.calls import CompiledCalls, NoTuple, join_forward_and_backward, results_of
from backprint.tools.bench.cells import BenchDerivative
from backprint.tools.bench.compiled import (
    CompiledDerivative,
    Returned,
    derivative_of_compiled,
    setting_for,
    values_for_pairs,
    wide_pairs,
)
from backprint.tools.bench.compilers.table import Compiler
from backprint.tools.bench.compilers.timed import compiled_now
from backprint.tools.export.rerun import EagerRun, copies
from backprint.tools.jobs.task import one_line
from backprint.tools.lowering.subjects import BenchGraph, BenchStep, current_random_state

FLOAT64 = ":float64"
"""What the name of a Pair has behind it in titles of its graphs in float64: `pair_0:float64 forward`."""


def derivative_of(capture: Capture, title: str, compiler: Compiler, caches: Path) -> BenchDerivative:
    """Return whether the backward of a step is the derivative of its forward, as a compiler compiles them in float64;
    unknown, with the reason, if it refuses or raises. `title` is the step's, `pair_0 step`, and `caches` is as in
    `compiled_now`."""
    began = time.monotonic()
    try:
        result = _judged_pair(capture, title.partition(" ")[0], compiler, caches)
    except (CannotTell, RefusedError, NoTuple) as error:
        result = CompiledDerivative(CANNOT_TELL, str(error))
    except CompilerFailed as error:
        result = CompiledDerivative(CANNOT_TELL, f"in float64 the compiler raises {error}")
    return BenchDerivative(
        result.word,
        one_line(result.detail),
        result.gap,
        result.forward,
        result.captured,
        seconds=round(time.monotonic() - began, 3),
    )


def _judged_pair(capture: Capture, name: str, compiler: Compiler, caches: Path) -> CompiledDerivative:
    """Compile a Pair in float64 for the first of several drawn inputs, and judge its gradients on the other draws: a
    compiler may have fitted its code to the inputs that it saw. `name` is the Pair's: `pair_0`."""
    number = int(name.removeprefix("pair_"))
    wide = wide_pairs(capture)[number]
    assert wide is not None  # a Pair without a backward has no step
    pair, values = with_one_name(capture.pairs[number], capture.signature.same), values_for_pairs(capture)[number]
    first, *seeds = [int.from_bytes(os.urandom(6), "little") for _ in range(1 + MAX_DRAWS)]
    compiled = _CompiledStep(wide, f"{name}{FLOAT64}", setting_for(pair, values, first, capture.seed), compiler, caches)
    return derivative_of_compiled(pair, values, capture.seed, capture.opaque, capture.meant, compiled.call, seeds)


class _CompiledStep:
    """A Pair that is compiled in float64, for the inputs of one Setting (inputs, tangents and the captured results on
    them). `pair` is in float64 already, and `name` is the beginning of its graphs' titles."""

    def __init__(self, pair: Pair, name: str, setting: Setting, compiler: Compiler, caches: Path) -> None:
        self.pair, self.name = pair, name
        step = self.step(setting)
        results, functions = [], []
        for part in (step.forward, step.backward):
            compiled = compiled_now(compiler, part, caches, cold=True)
            functions.append(compiled.function)
            _, copied_results = results_of(compiled.answer)
            results += copied_results
        with compiler_errors():
            function = join_forward_and_backward(step, *functions)
        self.calls = CompiledCalls(function, copies(step.inputs), kinds=results)

    def step(self, setting: Setting) -> BenchStep:
        """Return the step of the Pair with the inputs of a Setting."""
        assert self.pair.backward is not None
        passed = setting.backward_inputs
        forward = _bench_graph(
            f"{self.name} forward", self.pair.forward, [setting.inputs[port.name] for port in self.pair.forward.inputs]
        )
        backward = _bench_graph(
            f"{self.name} backward", self.pair.backward, [passed[port.key] for port in self.pair.backward.inputs]
        )
        return BenchStep(f"{self.name} step", forward, backward)

    def call(self, setting: Setting) -> Returned:
        """Call the compiled step on the inputs and tangents of a Setting, from its random seed; raise CannotTell for
        another number of results than the graphs have."""
        assert self.pair.backward is not None
        results = self.calls.call(self.step(setting).inputs, seed=setting.program_seed).results
        keys = [*(port.key for port in self.pair.forward.outputs), *(port.key for port in self.pair.backward.outputs)]
        if len(results) != len(keys):
            raise CannotTell(f"in float64 it returns {len(results)} results, where the graphs have {len(keys)}")
        return returned_by_port(keys, [value if isinstance(value, Tensor) else None for value in results])


def returned_by_port(keys: Sequence[PortKey], values: Sequence[Any]) -> Returned:
    """Return results in the form of `compiled`: gradients by name, all others by port."""
    pairs = list(zip(keys, values, strict=True))
    return Returned(
        {key: value for key, value in pairs if key.role != "gradient"},
        {key.name: value for key, value in pairs if key.role == "gradient"},
    )


def _bench_graph(title: str, graph: Graph, inputs: Sequence[Any]) -> BenchGraph:
    """Return a graph with its inputs, as `compiled_now` takes it. Nothing has run in eager: its EagerRun has no class
    and no results."""
    outputs = [(port.role, port.name) for port in graph.outputs]
    return BenchGraph(title, graph, EagerRun(None, list(inputs), current_random_state(), outputs, results=()))


def unknown(why: str) -> BenchDerivative:
    """Return the derivative of a step that was not compiled in float64."""
    return BenchDerivative(CANNOT_TELL, one_line(why))
