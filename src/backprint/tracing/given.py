"""Record a call as the caller made it: each parameter by name with a likeness of its value, and its tensors' memory.

The call is read before the program runs, because the program may change its arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from backprint.graph.nouns import Argument
from backprint.likeness.describe import Describing, describe_value
from backprint.likeness.differences import holds_live_value
from backprint.likeness.texts import Like
from backprint.memory import MemorySpan, memory_spans


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a call; `live` has, by parameter, the values that can be compared only by identity."""

    arguments: tuple[Argument, ...] = ()
    live: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    memory: Mapping[str, MemorySpan] = field(default_factory=dict)


def read_given(
    target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], names: Sequence[str], tensors: Mapping[str, Tensor]
) -> Given:
    """Read a call whose tensors, in the order of pytree, have these names in the capture."""
    parameters = parameters_of(target)
    rest = iter(names)
    found: dict[str, list[tuple[Any, Like]]] = {}
    states: dict[str, Describing] = {}
    for name, key, value in bound(parameters, args, kwargs):
        state = states.setdefault(name, Describing(lambda _: next(rest)))
        found.setdefault(name, []).append((key, describe_value(value, state).like))
    rows = [row(name, parameters.get(name), found.get(name)) for name in dict.fromkeys((*parameters, *found))]
    held = {name: (*state.live, *state.reached) for name, state in states.items() if state.live or state.reached}
    return Given(tuple(each for each in rows if each is not None), held, memory_spans(tensors))


def parameters_of(target: Any) -> dict[str, inspect.Parameter]:
    """Return a callable's parameters, `*args` and `**kwargs` with their stars; none where Python has no signature."""
    try:
        signature = inspect.signature(target.forward if isinstance(target, nn.Module) else target)
    except (TypeError, ValueError):
        return {}
    return {STARS.get(each.kind, "") + each.name: each for each in signature.parameters.values()}


STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
"""Kinds of parameters that accept a positional argument."""


def bound(
    parameters: Mapping[str, inspect.Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield, for each value of a call, its parameter, its key in `*args` or `**kwargs`, and the value."""
    star = next((name for name, each in parameters.items() if each.kind is each.VAR_POSITIONAL), "")
    double = next((name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD), "")
    ahead = [name for name, each in parameters.items() if each.kind in PLACED]
    for index, value in enumerate(args):
        if index < len(ahead):
            yield ahead[index], None, value
        else:
            yield star or input_name(index, len(args)), index, value
    for key, value in kwargs.items():
        yield (key, None, value) if key in parameters or not double else (double, key, value)


def input_name(index: int, count: int) -> str:
    """Return the name of an argument of a callable without parameter names."""
    return f"input_{index}" if count > 1 else "input"


def row(name: str, parameter: inspect.Parameter | None, given: list[tuple[Any, Like]] | None) -> Argument | None:
    """Return one parameter as an Argument; None if it was not passed and has no default."""
    if name.startswith("**"):
        return Argument(name, {"dict": [[repr(key), like] for key, like in given or ()]})
    if name.startswith("*"):
        return Argument(name, {"tuple": [like for _, like in given or ()]})
    keyword = parameter is not None and parameter.kind is inspect.Parameter.KEYWORD_ONLY
    default = None
    if parameter is not None and parameter.default is not inspect.Parameter.empty:
        default = describe_value(parameter.default, Describing(lambda _: ""), False).like
    if given is None:
        return None if default is None else Argument(name, default, True, keyword)
    like = given[0][1]
    return Argument(name, like, default is not None and default == like and not holds_live_value(like), keyword)
