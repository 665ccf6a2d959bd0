"""A whole Capture, replayed: arguments to ports, forward, backward, and back to what the model would have given."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from backprint.errors import GraphError, GuardError, ReplayError
from backprint.graph.links import free_ports, results
from backprint.graph.nouns import Capture, Graph, Guard
from backprint.graph.sizes import evaluate, known, said
from backprint.replay.linked import Play, Played, laid_out
from backprint.replay.run import key_of, run, sizes_of
from backprint.sample.recipes import digest
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
    parts: tuple[Played, ...] = ()


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
    hold_pins(capture, values)
    if capture.links or len(capture.pairs) != 1:
        return replay_linked(capture, values, tangents)
    pair = capture.pairs[0]
    forward = pair.forward
    hold_sizes(capture, values)
    found = dict(zip(map(key_of, forward.outputs), run(forward, values), strict=True))
    named = {port.name: found[key_of(port)] for port in forward.by_role("output")}
    saved = {port.name: found[key_of(port)] for port in forward.outputs if port.role == "saved"}
    mutations = {port.name: found[key_of(port)] for port in forward.by_role("mutation")}
    gradients: dict[str, Tensor | None] = {}
    if pair.backward is not None:
        gradients = pull(pair.backward, saved, capture, named, tangents, values)
    return Replayed(tree(capture, named), gradients, mutations, named, saved, named.get(capture.signature.loss))


def forward_results(capture: Capture, values: Mapping[str, Tensor]) -> dict[str, Any]:
    """The outputs and mutations alone, by `role name`, of the whole Capture."""
    if capture.links or len(capture.pairs) != 1:
        play = Play(capture, values, None)
        play.forward()
        named = {f"output {link.name}": play.value(link) for link in results(capture)}
        return named | {f"mutation {name}": value for name, value in play.mutations().items()}
    forward = capture.pairs[0].forward
    return dict(zip(map(key_of, forward.outputs), run(forward, values), strict=True))


def replay_linked(
    capture: Capture, values: Mapping[str, Tensor], tangents: Mapping[str, Tensor | None] | None
) -> Replayed:
    """Run a Capture of linked Pairs on named values."""
    play = Play(capture, values, tangents)
    play.forward()
    named = {link.name: play.value(link) for link in results(capture)}
    gradients = play.gradients()
    loss = named.get(capture.signature.loss)
    return Replayed(tree(capture, named), gradients, play.mutations(), named, {}, loss, tuple(play.played))


def hold_pins(capture: Capture, values: Mapping[str, Tensor]) -> None:
    """Raise unless the inputs that are pinned are what they were."""
    for name, wanted in capture.pins:
        if name in values and digest(values[name]) != wanted:
            why = next((guard for guard in capture.guards if guard.kind == "pinned" and name in guard.inputs), None)
            where = f" at {why.source.file}:{why.source.line}: {why.source.code!r}" if why and why.source else ""
            raise GuardError(
                f"input {name!r} is pinned to the values it was captured with{where}"
                f"{f' ({why.text})' if why else ''}: capture again on inputs like these"
            )


SIZE = re.compile(r"(?:(?P<name>.+)\.shape\[(?P<index>\d{1,3})\] == )?(?P<text>.+)")
"""The text of a `size` guard: a condition over symbols, or what a dimension was found to be."""


def hold_sizes(capture: Capture, values: Mapping[str, Tensor]) -> None:
    """Raise unless the conditions on sizes that tracing found hold for these inputs."""
    guards = [guard for guard in capture.guards if guard.kind == "size"]
    if not guards:
        return
    sizes = sizes_of([(port, values[port.name]) for port in capture.pairs[0].forward.inputs if port.name in values])
    for guard in guards:
        good, why = judged(guard, values, sizes)
        if not good:
            line = guard.source
            where = f" at {line.file}:{line.line}: {line.code!r}" if line else ""
            shapes = [
                f"{name} {list(values[name].shape)}" for name in guard.inputs if isinstance(values.get(name), Tensor)
            ]
            raise GuardError(
                f"guard `{guard.text}` does not hold{where}: these inputs have {', '.join(shapes)} "
                f"({said(sizes)}){why}. Capture again on inputs like these"
            )


def judged(guard: Guard, values: Mapping[str, Tensor], sizes: Mapping[str, int]) -> tuple[bool, str]:
    """Whether one condition on sizes holds, and why it has no answer where it has none."""
    try:
        return holds(guard, values, sizes), ""
    except GraphError as error:
        return False, f"; {error}"


def holds(guard: Guard, values: Mapping[str, Tensor], sizes: Mapping[str, int]) -> bool:
    """Whether one condition on sizes holds; one about a tensor that is not given holds."""
    found = SIZE.fullmatch(guard.text)
    if found is None:
        raise ReplayError(f"guard {guard.text!r:.80} is no condition on sizes")
    name, index = found["name"], int(found["index"] or 0)
    if name is None:
        return not known(guard.text, sizes) or bool(evaluate(guard.text, sizes))
    value = values.get(name)
    if not isinstance(value, Tensor):
        return True
    return index < value.dim() and value.shape[index] == evaluate(found["text"], sizes)


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
                f"the tangent of {name!r} is {told(tangent)}, the output {told(outputs[name])}: they must be alike"
            )
        feed[f"tangent {name}"] = laid_out(tangent, outputs[name])
    return dict(zip((port.name for port in backward.outputs), run(backward, feed, strict=False), strict=True))


def told(tensor: Tensor) -> str:
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
    known = {port.name for port in free_ports(capture)}
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
    return [port.name for port in free_ports(capture) if port.role == "input"]


def with_state(capture: Capture, given: Mapping[str, Tensor], state: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """The inputs with parameters, buffers and constants: as given, else the live module's, else the recipe's."""
    found = {**given, **(state or {})}
    same = {right: left for left, right in capture.signature.same}
    live: Mapping[str, Tensor] | None = None
    for port in free_ports(capture):
        if port.name in found:
            continue
        if port.name in same and same[port.name] in found:
            found[port.name] = found[same[port.name]]
            continue
        if port.role == "input":
            raise ReplayError(f"input {port.name!r} is missing; {capture.name} takes {', '.join(inputs_of(capture))}")
        if live is None:
            live = live_state(capture, {port.name for port in free_ports(capture)} - set(found))
        if port.name not in live:
            raise ReplayError(
                f"{port.role} {port.name!r} is not given, the module is gone and no recipe makes it: pass it in `state`"
            )
        found[port.name] = live[port.name]
    return found


def live_state(capture: Capture, wanted: Collection[str]) -> dict[str, Tensor]:
    """Parameters, buffers and constants: the live module's, else the recipe's. Of a fake capture only those wanted."""
    if capture.origin is not None and capture.origin.alive:
        found: dict[str, Tensor] = capture.origin.values()
        if capture.fake:
            missing = [name for name in wanted if name in capture.recipes.recipes and name not in found]
            found |= capture.recipes.make(names=missing)
        return found
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
