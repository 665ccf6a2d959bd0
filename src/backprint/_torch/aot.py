"""AOTAutograd: joint graphs, the descriptors of their inputs and outputs, partitions.

To import a name of this module loads AOTAutograd.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x`. `@uses` says which other private names a function needs, and `needed_by` for which commands: a
call raises PrivateApiError if this torch lacks one (`private`). Each function under *Probes* tries what this file takes
a private name to do, and returns whether it does that on this torch.
"""

from __future__ import annotations

from typing import Any

import torch

from backprint._torch import private
from backprint._torch.private import Private, Probe, look_up, probes_of, takes, uses


@uses("torch._functorch.aot_autograd.aot_export_joint_with_descriptors", needed_by=(private.AOT,))
def export_joint(stack: Any, module: torch.nn.Module, inputs: Any, decompositions: dict[Any, Any]) -> Any:
    """Trace the forward and backward of a module as one graph, whose inputs and outputs have descriptors, without the
    torch function mode that AOTAutograd would add. `stack` is an ExitStack, which keeps the contexts of the tracing
    open.
    """
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    return aot_export_joint_with_descriptors(
        stack, module, inputs, decompositions=decompositions, _disable_torch_fn_metadata_mode=True
    )


EXPORT = "torch._functorch.aot_autograd.aot_export_joint_with_descriptors"

# ---- Probes


def joint_graphs_are_exported() -> bool:
    return takes(private.at_path(EXPORT, (private.AOT,)), ("decompositions", "_disable_torch_fn_metadata_mode"))


def settings_are_patched() -> bool:
    config = NAMES["config"].value()
    with config.patch(graphsafe_rng_functionalization=False):
        return hasattr(config, "activation_memory_budget") and hasattr(config, "joint_custom_pass")


# ---- Names

NAMES = {
    "config": Private(
        "torch._functorch.config", "The settings of AOTAutograd.", (private.CAPTURE,), holds=settings_are_patched
    ),
    "default_partition": Private(
        "torch._functorch.partitioners.default_partition",
        "Partition a joint graph: save what the forward has.",
        (private.CAPTURE,),
        passed=("num_fwd_outputs",),
    ),
    "min_cut_partition": Private(
        "torch._functorch.partitioners.min_cut_rematerialization_partition",
        "Partition a joint graph: save as little as a minimal cut says.",
        (private.CAPTURE,),
        passed=("num_fwd_outputs",),
    ),
    "from_functional": Private(
        "torch._functorch._aot_autograd.functional_utils.from_fun",
        "Return the tensor inside a FunctionalTensor.",
        (private.AOT,),
    ),
    "PlainAOTInput": Private(
        "torch._functorch._aot_autograd.descriptors.PlainAOTInput",
        "Describes an input of the traced function; its `idx` is the place.",
        (private.AOT,),
    ),
    "PlainAOTOutput": Private(
        "torch._functorch._aot_autograd.descriptors.PlainAOTOutput",
        "Describes an output of the traced function; its `idx` is the place.",
        (private.AOT,),
    ),
    "TangentAOTInput": Private(
        "torch._functorch._aot_autograd.descriptors.TangentAOTInput",
        "Describes the tangent of an output.",
        (private.AOT,),
    ),
    "InputMutationAOTOutput": Private(
        "torch._functorch._aot_autograd.descriptors.InputMutationAOTOutput",
        "Describes an output that is the new value of an input.",
        (private.AOT,),
    ),
    "GradAOTOutput": Private(
        "torch._functorch._aot_autograd.descriptors.GradAOTOutput",
        "Describes an output that is the gradient of an input; its `grad_of` is the input.",
        (private.AOT,),
    ),
    "ForwardTokenAOTOutput": Private(
        "torch._functorch._aot_autograd.descriptors.ForwardTokenAOTOutput",
        "Describes a token of an effect of the forward.",
        (private.AOT,),
    ),
    "BackwardTokenAOTOutput": Private(
        "torch._functorch._aot_autograd.descriptors.BackwardTokenAOTOutput",
        "Describes a token of an effect of the backward.",
        (private.AOT,),
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(__name__, NAMES, Probe(EXPORT, joint_graphs_are_exported, (private.AOT,)))
