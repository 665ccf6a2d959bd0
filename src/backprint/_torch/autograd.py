"""Autograd: nodes and backwards that run, sequence numbers, version counters, hooks on saved tensors, anomaly mode.

A *node* is a `grad_fn`. A sequence number is what autograd counts up with each node of a thread; a version counter
counts the writes to a tensor in place.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x`. `@uses` says which other private names a function needs, and `needed_by` for which commands: a
call raises PrivateApiError if this torch lacks one (`private`). Each function under *Probes* tries what this file takes
a private name to do, and returns whether it does that on this torch.
"""

from __future__ import annotations

import functools
from operator import methodcaller
from types import ModuleType
from typing import Any

import torch
import torch.autograd.graph

from backprint._torch import private
from backprint._torch.private import Private, Probe, look_up, probes_of, uses

sequence_number: Any = methodcaller("_sequence_nr")
"""Return the sequence number of a node: nodes that are made later in a thread have larger ones."""


@uses("torch.autograd.function.BackwardCFunction", needed_by=(private.CAPTURE,))
def function_class(node: Any) -> Any:
    """Return the custom autograd.Function whose backward a node runs; None if it does not say."""
    return getattr(type(node), "_forward_cls", None)


@uses("torch._library.autograd", needed_by=(private.CAPTURE,))
def is_own_function(function: Any) -> bool:
    """Whether a custom autograd.Function is PyTorch's own. The Functions of custom operators do not count."""
    module = str(getattr(function, "__module__", ""))
    return module.startswith("torch.") and module != "torch._library.autograd"


@functools.cache
def load_tangent_decompositions() -> None:
    """Load the decompositions that forward-mode AD loads at its first use, without torch's warning about torch."""
    private.imported("torch._decomp.decompositions_for_jvp")


def metadata_of_inputs(node: Any) -> tuple[Any, ...]:
    """Return the shape, dtype and device of each of a node's inputs."""
    return tuple(node._input_metadata)


ENGINES: tuple[ModuleType, ...] = (torch.autograd, torch.autograd.graph)
"""The modules whose functions begin a backward."""


@uses("torch.autograd._engine_run_backward", "torch.autograd.graph._engine_run_backward", needed_by=(private.REGIONS,))
def engine_of(module: Any) -> Any:
    """Return the function by which a module of ENGINES runs a backward."""
    return module._engine_run_backward


def set_engine_of(module: Any, engine: Any) -> None:
    """Have a module of ENGINES run backwards by `engine` from now on."""
    module._engine_run_backward = engine


# ---- Probes


def in_backward(read: Any) -> Any:
    """Return what `read()` returns in a hook of a node that a backward calls."""
    seen: list[Any] = []
    leaf = torch.ones(1, requires_grad=True)
    with torch.enable_grad():
        result = leaf * 2
    result.grad_fn.register_hook(lambda *gradients: seen.append(read()))
    result.backward()
    return seen[0]


def current_node_is_known() -> bool:
    current = NAMES["current_node"].value()
    return current() is None and in_backward(current) is not None


def current_backward_is_known() -> bool:
    current = NAMES["current_backward"].value()
    return current() == -1 and in_backward(current) >= 0


def sequence_numbers_are_read() -> bool:
    number = NAMES["next_sequence_number"].value()()
    with torch.enable_grad():
        node = torch.ones(1, requires_grad=True).sin().grad_fn
    return bool(sequence_number(node) >= number)


def inputs_of_nodes_are_described() -> bool:
    with torch.enable_grad():
        node = torch.ones(2, requires_grad=True).sin().grad_fn
    return [tuple(metadata.shape) for metadata in metadata_of_inputs(node)] == [(2,)]


def version_counters_are_set() -> bool:
    tensor = torch.zeros(1)
    NAMES["set_version_counters"].value()((tensor,), (7,))
    return tensor._version == 7


def saved_tensor_hooks_are_read() -> bool:
    """Whether the active pair of hooks on saved tensors is read."""
    read = NAMES["saved_tensor_hooks"].value()

    def pack(tensor: Any) -> Any:
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, pack):
        return read(False) == (pack, pack)


def anomaly_mode_is_read() -> bool:
    return (NAMES["anomaly_mode"].value()(), NAMES["anomaly_mode_checks_nan"].value()()) == (
        torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(),
    )


def engines_are_called() -> bool:
    """Whether `backward` and `torch.autograd.grad` each run by the engine that is set for their modules."""
    called: list[bool] = []
    before = [engine_of(module) for module in ENGINES]  # the same function in each

    def noted(*args: Any, **kwargs: Any) -> Any:
        called.append(True)
        return before[0](*args, **kwargs)

    try:
        for module in ENGINES:
            set_engine_of(module, noted)
        leaf = torch.ones(1, requires_grad=True)
        with torch.enable_grad():
            leaf.sin().backward()
            torch.autograd.grad(leaf.sin(), leaf)
    finally:
        for module, engine in zip(ENGINES, before, strict=True):
            set_engine_of(module, engine)
    return called == [True, True]


# ---- Names

NAMES = {
    "current_node": Private(
        "torch._C._current_autograd_node",
        "Return the node of a backward that runs in this thread; None outside of a backward.",
        (private.CAPTURE,),
        holds=current_node_is_known,
    ),
    "current_backward": Private(
        "torch._C._current_graph_task_id",
        "Return the number of the backward that runs in this thread; -1 outside of one.",
        (private.REGIONS,),
        holds=current_backward_is_known,
    ),
    "next_sequence_number": Private(
        "torch._C._autograd._get_sequence_nr",
        "Return the sequence number that autograd gives to the next node of this thread.",
        (private.CAPTURE,),
        holds=sequence_numbers_are_read,
    ),
    "set_version_counters": Private(
        "torch._C._autograd._unsafe_set_version_counter",
        "Set the version counters of tensors.",
        (private.CAPTURE,),
        holds=version_counters_are_set,
    ),
    "saved_tensor_hooks": Private(
        "torch._C._autograd._top_saved_tensors_default_hooks",
        "Return the pair of hooks on saved tensors that is active, or None.",
        (private.CAPTURE,),
        holds=saved_tensor_hooks_are_read,
    ),
    "set_anomaly_mode": Private(
        "torch._C.set_anomaly_enabled",
        "Turn anomaly mode on or off, whatever stands for `torch.set_anomaly_enabled`.",
        (private.REGIONS,),
        holds=anomaly_mode_is_read,
    ),
    "anomaly_mode": Private(
        "torch._C.is_anomaly_enabled",
        "Whether anomaly mode is on, whatever stands for `torch.is_anomaly_enabled`.",
        (private.REGIONS,),
        holds=anomaly_mode_is_read,
    ),
    "anomaly_mode_checks_nan": Private(
        "torch._C.is_anomaly_check_nan_enabled",
        "Whether anomaly mode checks gradients for NaN.",
        (private.REGIONS,),
        holds=anomaly_mode_is_read,
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(
    __name__,
    NAMES,
    Probe("torch.autograd.graph.Node._sequence_nr", sequence_numbers_are_read, (private.CAPTURE,)),
    Probe("torch.autograd.graph.Node._input_metadata", inputs_of_nodes_are_described, (private.REGIONS,)),
    Probe("torch.autograd.graph._engine_run_backward", engines_are_called, (private.REGIONS,)),
)
