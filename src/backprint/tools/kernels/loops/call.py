"""The arguments of a program at a length, and its inputs by port: by the name that a Capture gives an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from backprint.graph.nouns import Capture
from backprint.prove.arguments import arguments
from backprint.values.tree import with_distinct_tensors


@dataclass(frozen=True, slots=True)
class Call:
    """Positional and keyword arguments."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def call_of(inputs: Any) -> Call:
    """Return the arguments that `inputs` means: a tuple of them, a dict of keywords, or one alone. A tensor that is
    passed twice becomes two tensors: as inputs are examples, that they share memory is chance."""
    inputs = with_distinct_tensors(inputs)
    if isinstance(inputs, Mapping):
        return Call((), inputs)
    return Call(tuple(inputs), {}) if isinstance(inputs, (tuple, list)) else Call((inputs,), {})


def inputs_by_port(
    function: Any, capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Return what a program is called with by port name: arguments, parameters, buffers and constants, which are the
    tensors that the program has without being passed them, as those of a closure."""
    # `arguments` of `prove` gives the tensors of a call the names of the ports of the Capture
    named = dict(capture.origin.constants) | arguments(capture, args, kwargs)
    if isinstance(function, nn.Module):
        named |= {**dict(function.named_parameters()), **dict(function.named_buffers())}
    return named
