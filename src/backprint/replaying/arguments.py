"""Bind arguments to ports, and check that a call matches the captured one.

These must match: non-tensor arguments, by value; containers with their keys and order; which tensors are the same, and
which share memory if one of them is written to; the strides of inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from torch import Tensor

from backprint.errors import GuardError, ReplayError, UsageError
from backprint.graph.links import free_ports, input_names
from backprint.graph.nouns import Argument, Capture
from backprint.likeness.describe import Describing, describe_value
from backprint.likeness.differences import (
    holds_live_value,
    likeness_differences,
    likeness_text,
    paths_without_reach,
)
from backprint.likeness.texts import Like
from backprint.replaying.sharing import check_memory, check_same, check_strides, laid_state
from backprint.replaying.state import State, check_state, check_twice, own_values, with_state
from backprint.tree import FLAGS, flatten_with_path, leaf_name, positional


def values_of(
    capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any], state: State
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the value of every port for a call, and the recipes' tangents if it runs on its own inputs."""
    check_state(capture, state)
    if not args and not kwargs:
        return own_values(capture, state)
    given = arguments(capture, args, kwargs)
    hold_flags(capture, given)
    check_twice(given, state)
    values = with_state(capture, given, state)
    check_strides(capture, {name: values[name] for name in input_names(capture) if name in values}, values)
    check_same(capture, given, values)
    check_memory(capture, values)
    return {name: values[name] for name in values} | laid_state(capture, values), {}


def arguments(capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors among these arguments by port name; compare all other arguments with the captured call."""
    signature = capture.signature
    if signature.call is None:
        return by_path(capture, args, kwargs)
    rows = {row.name: row for row in signature.call}
    ports = {port.name for port in free_ports(capture)}
    found: dict[str, list[tuple[Any, Any]]] = {}
    values: dict[str, Tensor] = {}
    for name, key, value in bound(capture, rows, args, kwargs):
        if name in rows:
            found.setdefault(name, []).append((key, value))
        elif isinstance(value, Tensor) and name in ports:
            values[name] = value
        elif isinstance(value, Tensor):
            raise ReplayError(
                f"the capture has no input {name!r}; it takes {', '.join(input_names(capture)) or 'none'}"
            )
        elif value is not None:
            raise GuardError(f"argument {name!r} = {value!r:.80} was not given at capture: capture again with it")
    live = capture.origin.objects()
    for row in signature.call:
        if row.name not in found and row.name[:1] != "*":
            check_missing(row, values)
        else:
            values |= matched(row, found.get(row.name, []), live.get(row.name, ()))
    return values


def bound(
    capture: Capture, rows: Mapping[str, Argument], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield, for each value of a call, its parameter, its key in `*args` or `**kwargs`, and the value."""
    ahead = [name for name, row in rows.items() if not name.startswith("*") and not row.keyword]
    star = next((name for name in rows if name.startswith("*") and not name.startswith("**")), "")
    double = next((name for name in rows if name.startswith("**")), "")
    if len(args) > len(ahead) and not star:
        takes = ", ".join(capture.signature.arguments) or "no arguments"
        raise ReplayError(f"{capture.name} takes {takes}; {len(args)} were given")
    for index, value in enumerate(args):
        yield (ahead[index] if index < len(ahead) else star), index, value
    for key, value in kwargs.items():
        if key in ahead[: len(args)]:
            raise ReplayError(f"{capture.name} is given {key!r} twice: by its place and by its name")
        yield (key, key, value) if key in rows or not double else (double, key, value)


def check_missing(row: Argument, values: Mapping[str, Tensor]) -> None:
    """Raise if a required non-tensor argument is missing."""
    if row.optional or (isinstance(row.like, dict) and "tensor" in row.like):
        return
    if has_tensors(row.like):
        return  # each of its tensors may be given by the name of its port
    raise GuardError(f"argument {row.name!r} was {likeness_text(row.like)} at capture and is missing now: pass it too")


def has_tensors(like: Like) -> bool:
    """Whether a likeness contains tensors of the call."""
    if isinstance(like, dict):
        return "tensor" in like or any(map(has_tensors, like.values()))
    return isinstance(like, list) and any(map(has_tensors, like))


def matched(row: Argument, given: Sequence[tuple[Any, Any]], live: Sequence[Any]) -> dict[str, Tensor]:
    """Return the tensors in a parameter's value; everything else in it must be as at capture."""
    state = Describing(lambda index: index)
    likes = [
        (key, describe_value(value, state, not row.optional or has_tensors(row.like)).like) for key, value in given
    ]
    if row.name.startswith("**"):
        now: Like = {"dict": [[repr(key), like] for key, like in likes]}
    elif row.name.startswith("*"):
        now = {"tuple": [like for _, like in likes]}
    else:
        now = likes[0][1]
    bare = row.name.lstrip("*")
    for path, what in likeness_differences(row.like, now, bare):
        name = path.removeprefix(f"{bare}.") if row.name.startswith("**") else path
        raise GuardError(f"argument {name!r} {what}: capture again with it")
    for path in islice(paths_without_reach(row.like, now, bare), 1):
        warnings.warn(
            f"argument {path!r} has the name that it had at capture. Whether its functions and classes reach what they "
            "reached then is not known, because an earlier Backprint saved the sample: capture again to compare them",
            stacklevel=2,
        )
    if live or holds_live_value(row.like):
        check_live(row, [*state.live, *(state.reached if live else ())], live)
    return dict(zip(tensor_names(row.like), (state.tensors[index] for index in tensor_names(now)), strict=True))


def tensor_names(like: Like) -> Iterator[Any]:
    """Yield the names of the tensors in a likeness, in order."""
    if isinstance(like, dict):
        if "tensor" in like:
            yield like["tensor"]
        else:
            for each in like.values():
                yield from tensor_names(each)
    elif isinstance(like, list):
        for each in like:
            yield from tensor_names(each)


def check_live(row: Argument, now: Sequence[Any], then: Sequence[Any]) -> None:
    """Raise unless values that can be compared only by identity are those of the captured call."""
    for index, value in enumerate(now):
        if index >= len(then):
            raise GuardError(
                f"argument {row.name!r} has a {type(value).__name__} in it, which can be compared only with the one "
                "that the program was captured with, and that is gone: capture again with this one"
            )
        if value is not then[index]:
            raise GuardError(
                f"argument {row.name!r} has another {type(value).__name__} in it than at capture: pass the same one, "
                "or capture again with it"
            )


def by_path(capture: Capture, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors by their paths, where only the leaves' texts of the captured call are known."""
    signature = capture.signature
    names = positional(signature.arguments, len(args))
    if len(names) < len(args):
        raise ReplayError(
            f"{capture.name} takes {', '.join(signature.arguments) or 'no arguments'}; {len(args)} were given"
        )
    paths, _ = flatten_with_path((tuple(args), dict(kwargs)))
    constants = dict(signature.leaves)
    ports = {port.name for port in free_ports(capture)}
    values: dict[str, Tensor] = {}
    seen = set()
    for path, leaf in paths:
        seen.add(name := leaf_name(path, names))
        if isinstance(leaf, Tensor):
            if name not in ports:
                raise ReplayError(f"the capture has no input {name!r}; it takes {', '.join(input_names(capture))}")
            values[name] = leaf
        elif name in constants and repr(leaf)[:200] != constants[name]:
            raise GuardError(
                f"argument {name!r} was {constants[name]} at capture and is {leaf!r:.80} now: capture again with it"
            )
        elif name not in constants and leaf is not None:
            raise GuardError(f"argument {name!r} = {leaf!r:.80} was not given at capture: capture again with it")
    own = {name.lstrip("*") for name in signature.arguments}
    for name, text in constants.items():
        if name not in seen and name.partition(".")[0] in own:
            raise GuardError(f"argument {name!r} was {text} at capture and is missing now: pass it too")
    return values


def hold_flags(capture: Capture, given: Mapping[str, Tensor]) -> None:
    """Raise unless the flags that the program read of its arguments are as at capture."""
    for guard in capture.guards:
        name, _, rest = guard.text.partition(": ")
        key, _, wanted = rest.partition(" == ")
        if guard.kind != "flag" or name not in given or key not in FLAGS:
            continue
        found = repr(FLAGS[key](given[name]))
        if found != wanted:
            where = f" at {guard.source.file}:{guard.source.line}: {guard.source.code!r}" if guard.source else ""
            raise GuardError(
                f"the program checks {key!r} of its argument {name!r}{where}: {wanted} at capture, {found} here. "
                "Capture again on arguments like these"
            )


def name_tangents(capture: Capture, tangents: Any) -> dict[str, Tensor | None] | None:
    """Return the tangents by output name."""
    names = capture.signature.differentiable
    if tangents is None:
        return None
    if isinstance(tangents, (Tensor, str, Mapping)) or not isinstance(tangents, Sequence):
        wanted = ", ".join(names) or "none here"
        spelled = "tangents=[tangent]" if isinstance(tangents, Tensor) else "tangents=[first, second]"
        raise UsageError(
            f"tangents is a list with a tensor (or None, for ones) for each differentiable output ({wanted}), not "
            f"a {type(tangents).__name__}: write {spelled}"
        )
    if len(tangents) != len(names):
        raise ReplayError(
            f"{len(tangents)} tangents for {len(names)} differentiable outputs ({', '.join(names) or 'none'})"
        )
    return dict(zip(names, tangents, strict=True))
