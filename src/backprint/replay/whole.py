"""A whole Capture, replayed: arguments to ports, forward, backward, and back to what the model would have given."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from backprint.errors import GuardError, ReplayError
from backprint.graph.nouns import Capture, Graph
from backprint.replay.run import key_of, run
from backprint.tree import name_of, ones_like, positional


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay gave: outputs as the model gives them, gradients and mutations under the program's own names."""

    outputs: Any
    gradients: dict[str, Tensor | None]
    mutations: dict[str, Tensor]
    named: dict[str, Tensor]
    saved: dict[str, Tensor]
    loss: Tensor | None = None


def replay(
    capture: Capture,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    state: Mapping[str, Tensor] | None = None,
    tangents: Sequence[Tensor | None] | None = None,
) -> Replayed:
    """Run a Capture on new arguments; random draws come from the caller's seed."""
    given = arguments(capture, args, kwargs or {})
    return replay_values(capture, with_state(capture, given, state), name_tangents(capture, tangents))


def replay_values(
    capture: Capture, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor | None] | None
) -> Replayed:
    """Run a Capture on named values."""
    if len(capture.pairs) != 1:
        raise ReplayError(f"capture {capture.name!r} has {len(capture.pairs)} pairs, which this version cannot join")
    pair = capture.pairs[0]
    forward = pair.forward
    results = dict(zip(map(key_of, forward.outputs), run(forward, values), strict=True))
    named = {port.name: results[key_of(port)] for port in forward.by_role("output")}
    saved = {port.name: results[key_of(port)] for port in forward.outputs if port.role == "saved"}
    mutations = {port.name: results[key_of(port)] for port in forward.by_role("mutation")}
    gradients: dict[str, Tensor | None] = {}
    if pair.backward is not None:
        gradients = pull(pair.backward, saved, capture, named, tangents, values)
    return Replayed(tree(capture, named), gradients, mutations, named, saved, named.get(capture.signature.loss))


def pull(
    backward: Graph,
    saved: Mapping[str, Tensor],
    capture: Capture,
    outputs: Mapping[str, Tensor],
    tangents: Mapping[str, Tensor | None] | None,
    values: Mapping[str, Tensor],
) -> dict[str, Tensor | None]:
    """The backward alone, on what its forward saved."""
    feed: dict[str, Any] = {f"constant {name}": value for name, value in values.items()}
    feed |= {f"saved {name}": value for name, value in saved.items()}
    for name in capture.signature.differentiable:
        if not isinstance(outputs[name], Tensor):
            raise ReplayError(f"output {name!r} must be a tensor, not a {type(outputs[name]).__name__}")
        tangent = (tangents or {}).get(name)
        tangent = ones_like(outputs[name]) if tangent is None else tangent
        if tangent.shape != outputs[name].shape or tangent.layout is not outputs[name].layout:
            raise ReplayError(
                f"the tangent of {name!r} is {said(tangent)}, the output {said(outputs[name])}: they must be alike"
            )
        feed[f"tangent {name}"] = tangent
    return dict(zip((port.name for port in backward.outputs), run(backward, feed, strict=False), strict=True))


def said(tensor: Tensor) -> str:
    """A tensor's shape, and its layout where that is a sparse one."""
    layout = "" if tensor.layout is torch.strided else f" {str(tensor.layout)[6:]}"
    return f"{list(tensor.shape)}{layout}"


# ------------------------------------------------------------------ arguments to ports


def arguments(capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors among these arguments by port name; what the capture took for granted is checked."""
    signature = capture.signature
    names = positional(signature.arguments, len(args))
    if len(names) < len(args):
        raise ReplayError(
            f"{capture.name} takes {', '.join(signature.arguments) or 'no arguments'}; {len(args)} were given"
        )
    paths, _ = pytree.tree_flatten_with_path((tuple(args), dict(kwargs)))
    constants = dict(signature.leaves)
    known = {port.name for port in capture.pairs[0].forward.inputs}
    values: dict[str, Tensor] = {}
    for path, leaf in paths:
        name = name_of(path, names)
        if isinstance(leaf, Tensor):
            if name not in known:
                raise ReplayError(f"the capture has no input {name!r}; it takes {', '.join(inputs_of(capture))}")
            values[name] = leaf
        elif name in constants and repr(leaf)[:200] != constants[name]:
            raise GuardError(
                f"argument {name!r} was {constants[name]} at capture and is {leaf!r:.80} now: capture again with it"
            )
        elif name not in constants and leaf is not None:
            raise GuardError(f"argument {name!r} = {leaf!r:.80} was not given at capture: capture again with it")
    for left, right in signature.same:
        if left in values and right in values and values[left] is not values[right]:
            raise GuardError(
                f"{left!r} and {right!r} were one tensor at capture: pass one tensor for both, or capture again"
            )
    return values


def inputs_of(capture: Capture) -> list[str]:
    """The names of a capture's inputs."""
    return [port.name for port in capture.pairs[0].forward.inputs if port.role == "input"]


def with_state(capture: Capture, given: Mapping[str, Tensor], state: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """The inputs with parameters, buffers and constants: as given, else the live module's, else the recipe's."""
    ports = [
        port
        for graph in graphs(capture)
        for port in graph.inputs
        if port.role in ("parameter", "buffer", "constant", "input")
    ]
    found = {**given, **(state or {})}
    same = {right: left for left, right in capture.signature.same}
    live: Mapping[str, Tensor] | None = None
    for port in ports:
        if port.name in found:
            continue
        if port.name in same and same[port.name] in found:
            found[port.name] = found[same[port.name]]
            continue
        if port.role == "input":
            raise ReplayError(f"input {port.name!r} is missing; {capture.name} takes {', '.join(inputs_of(capture))}")
        if live is None:
            live = live_state(capture)
        if port.name not in live:
            raise ReplayError(
                f"{port.role} {port.name!r} is not given, the module is gone and no recipe makes it: pass it in `state`"
            )
        found[port.name] = live[port.name]
    return found


def graphs(capture: Capture) -> Iterator[Graph]:
    """Every graph of a capture, in order."""
    for pair in capture.pairs:
        yield pair.forward
        if pair.backward is not None:
            yield pair.backward


def live_state(capture: Capture) -> dict[str, Tensor]:
    """Parameters, buffers and constants: the live module's, else the recipe's."""
    if capture.origin is not None and capture.origin.alive:
        return capture.origin.values()
    if capture.recipes is not None:
        made: dict[str, Tensor] = capture.recipes.make()
        return made
    return dict(capture.origin.constants) if capture.origin is not None else {}


def name_tangents(capture: Capture, tangents: Sequence[Tensor | None] | None) -> dict[str, Tensor | None] | None:
    """The tangents by output name."""
    names = capture.signature.differentiable
    if tangents is None:
        return None
    if len(tangents) != len(names):
        raise ReplayError(
            f"{len(tangents)} tangents for {len(names)} differentiable outputs ({', '.join(names) or 'none'})"
        )
    return dict(zip(names, tangents, strict=True))


# ------------------------------------------------------------------ results


def tree(capture: Capture, named: Mapping[str, Tensor]) -> Any:
    """The outputs as the model gives them: its own containers while it lives, plain ones from disk."""
    if capture.origin is not None and capture.origin.rebuild is not None:
        return capture.origin.rebuild(named)
    return plain(capture.signature.output, named)


def plain(shape: Any, named: Mapping[str, Tensor]) -> Any:
    """A stored structure filled with tensors; a constant leaf comes back as its text where it is no plain literal."""
    match shape:
        case {"port": name}:
            return named[name]
        case {"value": text}:
            try:
                return ast.literal_eval(text)
            except (ValueError, SyntaxError):
                return text
        case {"dict": items}:
            return {key: plain(item, named) for key, item in items.items()}
        case {"list": items}:
            return [plain(item, named) for item in items]
        case {"tuple": items}:
            return tuple(plain(item, named) for item in items)
    return None
