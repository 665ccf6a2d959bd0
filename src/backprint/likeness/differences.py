"""Compare two likenesses, and say in words where they differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backprint.likeness.describe import PARTS, REACH
from backprint.likeness.texts import Like


def likeness_differences(was: Like, now: Like, path: str = "") -> Iterator[tuple[str, str]]:
    """Where two likenesses differ: the path inside the value, and both values in words."""
    if isinstance(was, str) and isinstance(now, dict) and now.get("named") == was:
        return  # of an older sample, which does not say what a class reaches
    if isinstance(was, dict) and isinstance(now, dict) and compared_kinds(was) == compared_kinds(now):
        yield from differences_inside(was, now, path)
    elif was != now:
        yield path, f"was {likeness_text(was)} at capture and is {likeness_text(now)} now"


def compared_kinds(like: Mapping[str, Like]) -> tuple[Any, ...]:
    """What must be equal before the parts of two likenesses can be compared one by one."""
    words = ("type", "object", "function", "code", "method", "node", "array", "number", "live", "named")
    names = [key for key in like if key not in ("attributes", "default", PARTS, REACH)]
    return (*names, *(like.get(word) for word in words))


def differences_inside(was: Mapping[str, Like], now: Mapping[str, Like], path: str) -> Iterator[tuple[str, str]]:
    """Where the parts of two likenesses of one kind differ."""
    for key in was:
        if key in ("tensor", PARTS, REACH):
            continue
        if key == "in tables":
            yield from named_differences(was[key], now[key], path)
        elif key == "dict":
            yield from mapping_differences(was[key], now[key], path)
        elif isinstance(was[key], list) and key != "stride":
            yield from list_differences(was[key], now[key], path)
        elif key != "attributes":
            yield from likeness_differences(was[key], now.get(key), path)
    yield from named_differences(was.get("attributes", {}), now.get("attributes", {}), path)
    if REACH in was and was[REACH] != now.get(REACH):
        parts = list(named_differences(was.get(PARTS, {}), now.get(PARTS, {}), path))
        yield from parts or [(path, OTHER_REACH.format(likeness_text(now)))]


OTHER_REACH = (
    "is not the {} of the capture, although its name is the same: what its functions or its class consist of differs, "
    "or the global variables that they name"
)


def named_differences(left: Mapping[str, Like], right: Mapping[str, Like], path: str) -> Iterator[tuple[str, str]]:
    """Where the values of two mappings by name differ."""
    for name in dict.fromkeys((*left, *right)):
        where = f"{path}.{name}"
        if name not in right:
            yield where, f"was {likeness_text(left[name])} at capture and is missing now"
        elif name not in left:
            yield where, f"was not there at capture and is {likeness_text(right[name])} now"
        else:
            yield from likeness_differences(left[name], right[name], where)


def list_differences(was: Sequence[Like], now: Sequence[Like], path: str) -> Iterator[tuple[str, str]]:
    """Where the items of two lists differ, and the items that only one has."""
    for index, (left, right) in enumerate(zip(was, now, strict=False)):
        yield from likeness_differences(left, right, f"{path}.{index}")
    for index in range(len(now), len(was)):
        yield f"{path}.{index}", f"was {likeness_text(was[index])} at capture and is missing now"
    for index in range(len(was), len(now)):
        yield f"{path}.{index}", f"was not there at capture and is {likeness_text(now[index])} now"


def mapping_differences(was: Sequence[Any], now: Sequence[Any], path: str) -> Iterator[tuple[str, str]]:
    """Where two mappings differ, in keys, in their order, and in values."""
    left = {json.dumps(key): (key, item) for key, item in was}
    right = {json.dumps(key): (key, item) for key, item in now}
    for key in dict.fromkeys((*left, *right)):
        where = f"{path}.{key_in_path((left.get(key) or right[key])[0])}"
        if key not in right:
            yield where, f"was {likeness_text(left[key][1])} at capture and is missing now"
        elif key not in left:
            yield where, f"was not there at capture and is {likeness_text(right[key][1])} now"
        else:
            yield from likeness_differences(left[key][1], right[key][1], where)
    if left.keys() == right.keys() and list(left) != list(right):
        before, after = (", ".join(key_in_path(key) for key, _ in rows) for rows in (was, now))
        yield path, f"had the keys {before} in this order at capture and has {after} now"


def key_in_path(like: Like) -> str:
    """A mapping's key as a step of a path: texts without their quotes."""
    return like[1:-1] if isinstance(like, str) and like[:1] in "'\"" else likeness_text(like)


ARRAY_FACTS = ("strides", "writeable", "a view", "shares memory with arrays", "metadata")
"""What a likeness says of a numpy array that is unusual."""


def likeness_text(like: Like) -> str:
    """A likeness in at most 80 characters."""
    if not isinstance(like, dict):
        return str(like)[:80]
    match like:
        case {"tensor": _}:
            return "a tensor"
        case {"array": text} if facts := [f"{key}: {like[key]}" for key in ARRAY_FACTS if key in like]:
            return f"a {text}, {', '.join(facts)}"
        case {"values": text} | {"array": text} | {"number": text} | {"folded": text} | {"live": text}:
            return f"a {text}"
        case {"text": text, "length": length}:
            return f"{text}… ({length} characters)"
        case {"list": items} | {"tuple": items} | {"set": items}:
            kind = next(key for key in ("list", "tuple", "set") if key in like)
            return f"a {like.get('type', kind)} of {len(items)}"
        case {"dict": rows}:
            return f"a {like.get('type', 'dict')} of {', '.join(key_in_path(key) for key, _ in rows)[:60] or 'nothing'}"
        case {"named": text}:
            return str(text)[:80]
        case {"object": kind} | {"node": kind} | {"function": kind} | {"method": kind}:
            own = ", ".join(f"{name}={likeness_text(each)}" for name, each in like.get("attributes", {}).items())
            return f"{kind}({own})"[:80]
    return str(like)[:80]


def holds_live_value(like: Like) -> bool:
    """Whether a likeness contains a value that can be compared only by identity."""
    if isinstance(like, dict):
        return "live" in like or any(map(holds_live_value, like.values()))
    return isinstance(like, list) and any(map(holds_live_value, like))


def paths_without_reach(was: Like, now: Like, path: str = "") -> Iterator[str]:
    """Where a likeness of an older sample does not say what a function or a class reaches."""
    if isinstance(now, dict):
        if REACH in now and not (isinstance(was, dict) and REACH in was):
            yield path
        elif isinstance(was, dict):
            for key in now:
                yield from paths_without_reach(was.get(key), now[key], path if key in INNER else f"{path}.{key}")
    elif isinstance(now, list) and isinstance(was, list):
        for index, (left, right) in enumerate(zip(was, now, strict=False)):
            yield from paths_without_reach(left, right, f"{path}.{index}")


INNER = ("attributes", "list", "tuple", "dict", "set", "items", "closure")
"""Keys of a likeness that are no step of a path."""
