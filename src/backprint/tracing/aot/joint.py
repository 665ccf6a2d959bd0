"""Remove our copies from AOTAutograd's joint graph, partition it, and identify its inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from backprint._torch import aot as descriptors
from backprint.errors import CaptureError
from backprint.result_tree import ResultTree
from backprint.tracing.aot import symbolic
from backprint.tracing.aot.function import TracedFunction
from backprint.tracing.aot.lines import OURS
from backprint.tracing.cut import partitioned
from backprint.tracing.watch import Reading


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced program: fx graphs, with the names of their outputs, gradients and tangents."""

    forward: torch.fx.GraphModule
    backward: torch.fx.GraphModule | None
    joint: torch.fx.GraphModule
    outputs: tuple[tuple[str, str], ...]
    gradients: tuple[str, ...]
    tangents: tuple[str, ...]
    readings: tuple[Reading, ...]
    unforeseen: tuple[str, ...]
    tree: ResultTree
    leaves: tuple[Any, ...]
    sizes: symbolic.Found
    casts: int = 0


ORDERED = (
    "{} calls an operator whose side effects must keep their order (a collective in place, a print, a script object), "
    "which engine 'aot' does not keep: use the functional form, or leave that call outside"
)


def take_out_copies(joint: torch.fx.GraphModule) -> None:
    """Remove the copies that the traced function put around its inputs and outputs, and a profiler's marks."""
    for node in reversed(list(joint.graph.nodes)):
        if getattr(node.target, "namespace", "") == "profiler" and not node.users:
            joint.graph.erase_node(node)
    for node in list(joint.graph.nodes):
        note = (node.meta.get("custom") or {}).get(OURS)
        if (
            note is True
            and node.target is torch.ops.aten.clone.default
            and node.meta.get("partitioner_tag") != "is_backward"
        ):
            node.replace_all_uses_with(node.args[0])
            joint.graph.erase_node(node)
    for node in reversed(list(joint.graph.nodes)):
        note = (node.meta.get("custom") or {}).get(OURS)
        if note is True and node.target is torch.ops.aten.detach.default and not node.users:
            joint.graph.erase_node(node)


def split_joint(run: TracedFunction, joint: torch.fx.GraphModule, partition: str | Callable[..., Any] | None) -> Traced:
    """Partition the joint graph, and identify every input and output."""
    outputs, gradients = results_of_joint(run, joint)
    tangents = tangents_of_joint(run, joint)
    forward, backward = joint, None
    if tangents:
        forward, backward = partitioned(joint, partition or "min-cut", len(outputs))
    return Traced(
        forward,
        backward,
        joint,
        outputs,
        gradients if tangents else (),
        tangents,
        tuple(run.guards),
        tuple(dict.fromkeys(run.fake.unforeseen)),
        run.tree,
        run.leaves,
        symbolic.found(run.sizes),
    )


def results_of_joint(
    run: TracedFunction, joint: torch.fx.GraphModule
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return each output of the forward by name and role, and the tensor whose gradient each other output is."""
    outputs, gradients = [], []
    for desc in joint.graph.output_node().meta["desc"]:
        match desc:
            case descriptors.PlainAOTOutput(idx=index):
                outputs.append(run.outputs[index])
            case descriptors.InputMutationAOTOutput(mutated_input=descriptors.PlainAOTInput(idx=index)):
                outputs.append((run.names[index], "mutation"))
            case descriptors.GradAOTOutput(grad_of=descriptors.PlainAOTInput(idx=index)):
                gradients.append(run.names[index])
            case None:
                gradients.append("")
            case descriptors.ForwardTokenAOTOutput() | descriptors.BackwardTokenAOTOutput():
                raise CaptureError(ORDERED.format(run.program.title))
            case _:
                raise CaptureError(f"the joint graph returns {desc.expr()}, which engine 'aot' does not support")
    return tuple(outputs), tuple(gradients)


def tangents_of_joint(run: TracedFunction, joint: torch.fx.GraphModule) -> tuple[str, ...]:
    """Return the outputs whose tangents the joint graph takes."""
    tangents = []
    for node in joint.graph.find_nodes(op="placeholder"):
        match node.meta["desc"]:
            case descriptors.TangentAOTInput(output=descriptors.PlainAOTOutput(idx=index)):
                tangents.append(run.outputs[index][0])
            case descriptors.PlainAOTInput():
                pass
            case desc:
                raise CaptureError(f"the joint graph takes {desc.expr()}, which engine 'aot' does not support")
    return tuple(tangents)
