"""Try a compiler on one graph in a process of its own, and say how it failed: one of FAULTS.

The process is forked from one that has loaded torch and no compiler (`children`). The inputs are as given, the random
state is a seed's, and the outputs are judged against eager and float64 (`sample/judged`).
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import os
import re
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from backprint.benching.children import in_child
from backprint.benching.cuts import CutGraph
from backprint.benching.subjects import Compile, graph_classes
from backprint.corpus.processes import status
from backprint.fx.to_fx import to_fx
from backprint.graph.nouns import Graph
from backprint.sample.judged import Eager, first_line, judged
from backprint.sample.rerun import EagerRun, copies, rebuilt

FAULTS = ("wrong", "raised", "crashed", "timeout", "out of memory")

LACKING = {
    "InvalidCxxCompiler": "Inductor compiles with a C++ compiler, and finds none here: install g++, or set CXX to one",
    "TritonMissing": "Inductor's kernels for GPUs need triton, which is not installed: pip install triton",
}
"""Errors by which a compiler says that this machine lacks something: none is a fault of the compiler's."""

LIKE = 0.5
"""How alike two messages of one exception type are, at least, where they are of one fault."""


@dataclass(frozen=True, slots=True)
class WrongOutput:
    """An output that is wrong: its name, and how far it is from eager and from float64."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class FaultTrial:
    """How one test ended: one of FAULTS, `eager failed` or `cannot run here`; the kind is '' if it ended well."""

    kind: str = ""
    detail: str = ""
    error: str = ""
    """The exception's type, where one was raised."""
    outputs: tuple[WrongOutput, ...] = ()
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The kind and the reason, in a line."""
        return f"{self.kind}: {self.detail}" if self.detail else self.kind or "every output is right"

    def same_fault(self, other: FaultTrial) -> bool:
        """Whether two tests failed in the same way: by one signal, or with one exception about one operator."""
        if self.kind != other.kind or not self.kind:
            return False
        if self.kind == "crashed":
            return self.detail == other.detail
        if self.kind != "raised":
            return True
        alike = difflib.SequenceMatcher(None, plain_message(self.detail), plain_message(other.detail)).ratio()
        return self.error == other.error and operators_in(self.detail) == operators_in(other.detail) and alike >= LIKE


def operators_in(message: str) -> set[str]:
    """Return the operators that a message names, without their overloads."""
    return set(re.findall(r"\b(?:aten|prims)(?:::|\.)(\w+)", message))


def plain_message(message: str) -> str:
    """Return a message without its numbers and the values' names."""
    return re.sub(r"\d+", "", message)


@dataclass(frozen=True)
class FaultTrials:
    """How graphs are tried: with a compiler, from a seed, and with so many bytes of memory."""

    compile: Compile
    seed: int = 0
    memory: int = 0
    """0 is as much as there is."""

    def tried(self, cut: CutGraph, limit: float) -> FaultTrial:
        """Compile and run a graph in a process of its own, for at most `limit` seconds."""
        started = time.monotonic()
        end = in_child(lambda: asdict(self.trial(cut)), limit, self.memory)
        seconds = time.monotonic() - started
        if not end.ended_well:
            kind = "eager failed" if end.cause == "raised" else end.cause
            return FaultTrial(
                kind, end.detail if kind != "timeout" else f"no answer after {limit:.3g} s", seconds=seconds
            )
        outputs = tuple(WrongOutput(**row) for row in end.value["outputs"])
        return FaultTrial(**{**end.value, "outputs": outputs, "seconds": seconds})

    def trial(self, cut: CutGraph) -> FaultTrial:
        """Compile and run a graph in this process; raise where eager does."""
        enclose_trial(self.memory)
        run = eager_run(cut.graph, cut.inputs, self.seed)
        module, inputs = to_fx(cut.graph), copies(run.inputs)
        try:
            compiled = self.compile(module, inputs)
            found = run.again(compiled)
        except Exception as error:
            cause = getattr(error, "inner_exception", None) or error
            name = type(cause).__name__
            if name in LACKING:
                return FaultTrial("cannot run here", LACKING[name])
            return FaultTrial("raised", f"{name}: {first_line(error)}", name)
        return judged_trial(Eager(run, compiled), found)


def judged_trial(eager: Eager, found: Any) -> FaultTrial:
    """Return whether one of a compiler's outputs is wrong."""
    found = found if isinstance(found, (tuple, list)) else (found,)
    wanted = eager.run.outputs
    if len(found) != len(wanted):
        return FaultTrial("wrong", f"{len(found)} outputs, and eager gives {len(wanted)}")
    words = [judged(eager, index, value) for index, value in enumerate(found)]
    wrong = tuple(
        WrongOutput(name, why) for (_, name), (word, why) in zip(wanted, words, strict=True) if word == "wrong"
    )
    if not wrong:
        return FaultTrial()
    more = f", and {len(wrong) - 1} more of {len(wanted)} outputs" if len(wrong) > 1 else ""
    return FaultTrial("wrong", f"{wrong[0].name}: {wrong[0].detail}{more}", outputs=wrong)


def eager_run(graph: Graph, inputs: Sequence[Any], seed: int) -> EagerRun:
    """Run a graph in eager, from the state of a seed."""
    [module] = graph_classes({"graph": graph}).values()
    module = rebuilt(module, inspect.getsource(module))
    outputs = [(port.role, port.name) for port in graph.outputs]
    torch.manual_seed(seed)
    run = EagerRun(module, list(inputs), (torch.get_rng_state(), ()), outputs, ())
    return replace(run, results=run.again(module()))


def enclose_trial(memory: int) -> None:
    """Silence this process, and limit it to one thread, to so much memory, and to no core file."""
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    torch.set_num_threads(1)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # read when Inductor is loaded
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:  # so that one huge allocation fails at once; what is allocated bit by bit is measured
        with contextlib.suppress(OSError, ValueError):  # a lower limit is there already
            most = status("VmData") + memory + memory // 4
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
