"""A minified graph as a Capture, as a sample, and as one file that shows the fault.

The Capture has one Pair without a backward: the graph is its forward, whichever direction it was cut from. Its witness
is an eager run of this graph; its inputs are the values that the whole graph had, drawn again where the fault stays.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from backprint.benching.cuts import CutGraph, record_values
from backprint.benching.fault_trials import FaultTrials, eager_run
from backprint.benching.minify import MinifiedGraph
from backprint.fx.convert import spec_of
from backprint.graph.keys import PortKey, PortValues
from backprint.graph.nouns import Capture, Graph, Pair, Port, Ref, Signature, Value, custom_operators
from backprint.graph.steps import mapped
from backprint.graph.verdicts import Verdict
from backprint.graphnet.write import graphnet_writer
from backprint.replaying.attest import attest, verdict_json
from backprint.replaying.digests import numbers_of
from backprint.sample.export import write_export
from backprint.sample.fit import exact_data, fit_all
from backprint.sample.inputs import Inputs
from backprint.sample.save import write_staged

FEW = 32
"""Inputs of so many elements are kept as they are."""


@dataclass(frozen=True, slots=True)
class MinifiedCase:
    """A minified graph as a Capture, with the compiler and its versions."""

    found: MinifiedGraph
    capture: Capture
    compiler: str
    versions: str

    @property
    def about(self) -> list[str]:
        """What was found, as lines for a bug report."""
        found = self.found
        lines = [
            f"{self.compiler} ({self.versions}): {found.last.text}",
            *(f"    {each.name}: {each.detail}" for each in found.last.outputs[1:8]),
            f"It is {self.capture.why[0]}.",
            f"All of that graph: {found.first.text}" if found.first.text != found.last.text else "",
        ]
        return list(filter(None, lines))

    def row(self, reproduced: bool | None) -> dict[str, Any]:
        """Return the case as plain values."""
        found = self.found
        return {
            "graph": found.title,
            "compiler": self.compiler,
            "versions": self.versions,
            "kind": found.last.kind,
            "detail": found.last.detail,
            "outputs": {each.name: each.detail for each in found.last.outputs},
            "before": found.operators,
            "after": found.cut.operators,
            "calls": [step.target for step in found.cut.graph.steps],
            "tests": found.tests,
            "seconds": round(found.seconds, 2),
            "others": dict(found.others),
            "complete": found.complete,
            "reproduced": reproduced,
            "text": found.text,
        }


def case_of(found: MinifiedGraph, whole: Capture, inputs: Inputs, compiler: str, versions: str) -> MinifiedCase:
    """Return a minified graph as a Capture with these inputs, and digests of its results on them."""
    made = inputs.make()
    graph = found.cut.graph
    values = tuple(made[port.local] for port in graph.inputs)
    run = eager_run(graph, values, whole.seed)
    seen = record_values(graph, run).values
    noted = replace(graph, steps=tuple(replace(step, spec=spec_of(seen[step.name])) for step in graph.steps))
    names = [port.name for port in graph.outputs]
    place = f"cut from {found.title} of {whole.name}: {found.cut.operators} of its {found.operators} operators"
    capture = Capture(
        name=f"{whole.name}.minified",
        engine=whole.engine,
        pairs=(Pair("minified", noted),),
        signature=Signature(
            arguments=tuple(port.name for port in graph.inputs), output={"tuple": [{"port": name} for name in names]}
        ),
        why=(place, "its witness is an eager run of this graph"),
        environment=whole.environment,
        requires=tuple(sorted({target for _, target in custom_operators(graph)})),
        seed=whole.seed,
        recipes=inputs,
        witness={
            str(PortKey("output", name)): numbers_of(value) for name, value in zip(names, run.results, strict=True)
        },
    )
    return MinifiedCase(found, capture, compiler, versions)


def as_program(cut: CutGraph) -> CutGraph:
    """Return a graph as one of tensors alone: numbers are written into it, each tensor is returned once, and every
    port is an input or an output named by its value."""
    given = list(zip(cut.graph.inputs, cut.inputs, strict=True))
    numbers = {port.local: value for port, value in given if not isinstance(value, Tensor)}

    def value_of(name: str) -> Value:
        return numbers.get(name, Ref(name))

    steps = tuple(mapped(step, value_of) for step in cut.graph.steps)
    made = {step.name: step.spec for step in steps}
    shown = [result.name for result in cut.graph.results if isinstance(result, Ref) and result.name in made]
    shown = list(dict.fromkeys(shown))
    inputs = tuple(Port(port.local, "input", spec_of(value), port.local) for port, value in given)
    outputs = tuple(Port(name, "output", made[name]) for name in shown)
    graph = Graph(inputs, steps, outputs, tuple(map(Ref, shown)), cut.graph.subgraphs)
    return CutGraph(graph, tuple(value for _, value in given)).with_outputs(shown)


def exact_inputs(cut: CutGraph, seed: int) -> Inputs:
    """Return inputs that keep every value."""
    values = named_inputs(cut)
    recipes = fit_all(values, seed, list(values))
    return Inputs(recipes, exact_data(values, recipes), seed)


def drawn_inputs(cut: CutGraph, seed: int) -> Inputs | None:
    """Return inputs of which the larger ones are drawn anew, by recipes fitted to them; None if all are small."""
    values = named_inputs(cut)
    small = [name for name, value in values.items() if value.numel() <= FEW]
    if len(small) == len(values):
        return None
    recipes = fit_all(values, seed, small)
    return Inputs(recipes, exact_data(values, recipes), seed)


def inputs_for(found: MinifiedGraph, trials: FaultTrials, limit: float) -> Inputs:
    """Return drawn inputs if the graph fails on them in the same way; else the values themselves."""
    drawn = drawn_inputs(found.cut, trials.seed)
    if drawn is not None:
        made = drawn.make()
        cut = replace(found.cut, inputs=tuple(made[port.local] for port in found.cut.graph.inputs))
        if trials.tried(cut, limit).same_fault(found.first):
            return drawn
    return exact_inputs(found.cut, trials.seed)


def named_inputs(cut: CutGraph) -> dict[str, Tensor]:
    """Return the inputs by name."""
    return {port.local: value for port, value in zip(cut.graph.inputs, cut.inputs, strict=True)}


# ------------------------------------------------------------------ on disk


def write_case(
    case: MinifiedCase, folder: Path, name: str, backend: str | None, proven: bool, here: str | None = None
) -> Path:
    """Write the case into a folder, as the sample NAME and the file NAME.py; return the file's path. `here` is the
    backend's name in this process's folder.

    Without `proven`, which takes some seconds, the sample's verdict is `unproven`, and the file is the full one.
    """
    capture = case.capture
    kept = verdict_json(Verdict("unproven", capture.name, "saved while it was minified"))
    values: Sequence[PortValues] = ({},)
    if proven:
        proof = attest(capture)
        kept, values = verdict_json(proof.verdict, proof.power), proof.values
    both = {"witness": capture.witness, "verdict": kept}
    write_staged(capture, folder / name, capture.recipes, both, values, graphnet_writer(None))
    place = folder / f"{name}.py"
    return write_export(capture, place, capture.recipes, backend, "both", case.about, full=not proven, here=here)


def shows_fault(file: Path, backend: str, kind: str, limit: float) -> bool:
    """Run an exported file with a backend; return whether it ends as the fault wants."""
    command = [sys.executable, str(file), "--backend", backend]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, cwd=file.parent)
    except subprocess.TimeoutExpired:
        return kind == "timeout"
    if kind in ("crashed", "out of memory"):
        return done.returncode < 0
    word = {"wrong": "wrong", "raised": "failed"}.get(kind, "")
    return done.returncode == 1 and bool(word) and re.search(rf"^# .*\d+ {word}\b", done.stdout, re.M) is not None
