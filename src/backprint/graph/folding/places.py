"""The places of a step at which iterations of a loop differ: names, whole numbers, and where the program called it.

A place has a name: `name`, `args.0.2`, `kwargs.dim`, `source.module`, `echo.names.1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from backprint.graph.nouns import Dict, List, Ref, Slice, Spec, Step, TensorSpec, Value

NUMBERS = (int, float)
"""What may differ in the arguments of two iterations, beside names."""

SOURCE = ("file", "line", "function", "code", "module")


def places_of(step: Step) -> Iterator[tuple[str, Any]]:
    """Yield the places of a step and what stands there; of a name in an argument, the name."""
    yield "name", step.name
    for count, value in enumerate(step.args):
        yield from places_of_value(value, f"args.{count}")
    for key, value in step.kwargs:
        yield from places_of_value(value, f"kwargs.{key}")
    yield from places_of_spec(step.spec, "spec")
    if step.source is not None:
        for part in SOURCE:
            yield f"source.{part}", getattr(step.source, part)
    if step.echo is not None:
        yield "echo.kind", step.echo.kind
        for count, name in enumerate(step.echo.names):
            yield f"echo.names.{count}", name


def places_of_spec(spec: Spec, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the places of a type that may differ: where in its memory a tensor begins."""
    match spec:
        case TensorSpec():
            yield f"{place}.offset", spec.offset
        case tuple():
            for count, part in enumerate(spec):
                yield from places_of_spec(part, f"{place}.{count}")


def places_of_value(value: Value, place: str) -> Iterator[tuple[str, Any]]:
    """Yield the places of an argument that may differ: names and numbers."""
    if type(value) is Ref:
        yield place, value.name
    elif type(value) in NUMBERS:
        yield place, value
    else:
        for key, part in parts_within(value):
            yield from places_of_value(part, f"{place}.{key}")


def parts_within(value: Value) -> Iterator[tuple[str, Value]]:
    """Yield the parts of a value that has some, each with a key."""
    match value:
        case tuple():
            yield from ((str(count), part) for count, part in enumerate(value))
        case List(items):
            yield from ((str(count), part) for count, part in enumerate(items))
        case Slice(start, stop, step):
            yield from (("start", start), ("stop", stop), ("step", step))
        case Dict(items):
            for count, (key, part) in enumerate(items):
                yield f"key{count}", key
                yield f"value{count}", part


def with_places(step: Step, given: Mapping[str, Any]) -> Step:
    """Return a step with other things in some of its places."""
    if not given:
        return step
    tops = {place.partition(".")[0] for place in given}
    changes: dict[str, Any] = {}
    if "name" in tops:
        changes["name"] = given["name"]
    if "args" in tops:
        changes["args"] = tuple(with_value(value, f"args.{count}", given) for count, value in enumerate(step.args))
    if "kwargs" in tops:
        changes["kwargs"] = tuple((key, with_value(value, f"kwargs.{key}", given)) for key, value in step.kwargs)
    if "spec" in tops:
        changes["spec"] = with_spec(step.spec, "spec", given)
    if "source" in tops and step.source is not None:
        changes["source"] = replace(step.source, **parts_given(given, "source."))
    if "echo" in tops and step.echo is not None:
        names = tuple(given.get(f"echo.names.{count}", name) for count, name in enumerate(step.echo.names))
        changes["echo"] = replace(step.echo, kind=given.get("echo.kind", step.echo.kind), names=names)
    return replace(step, **changes)


def with_spec(spec: Spec, place: str, given: Mapping[str, Any]) -> Spec:
    """Return a type with other offsets."""
    match spec:
        case TensorSpec() if f"{place}.offset" in given:
            return replace(spec, offset=given[f"{place}.offset"])
        case tuple():
            return tuple(with_spec(part, f"{place}.{count}", given) for count, part in enumerate(spec))
    return spec


def without_offsets(spec: Spec) -> Spec:
    """Return a type without where in its memory a tensor begins."""
    match spec:
        case TensorSpec(offset=offset) if offset != 0:
            return replace(spec, offset=0)
        case tuple():
            return tuple(map(without_offsets, spec))
    return spec


def parts_given(given: Mapping[str, Any], top: str) -> dict[str, Any]:
    """Return what is given for the parts of one field."""
    return {place.removeprefix(top): value for place, value in given.items() if place.startswith(top)}


def with_value(value: Value, place: str, given: Mapping[str, Any]) -> Value:
    """Return an argument with other things in some of its places."""
    if type(value) is Ref:
        return Ref(given[place]) if place in given else value
    if type(value) in NUMBERS:
        return given.get(place, value)
    match value:
        case tuple():
            return tuple(with_value(part, f"{place}.{key}", given) for key, part in parts_within(value))
        case List():
            return List(tuple(with_value(part, f"{place}.{key}", given) for key, part in parts_within(value)))
        case Slice():
            return Slice(*(with_value(part, f"{place}.{key}", given) for key, part in parts_within(value)))
        case Dict():
            parts = [with_value(part, f"{place}.{key}", given) for key, part in parts_within(value)]
            return Dict(tuple(zip(parts[::2], parts[1::2], strict=True)))
    return value


def skeleton(value: Value) -> Any:
    """Return a value without the names and numbers in it."""
    if type(value) is Ref:
        return "*"
    if type(value) in NUMBERS:
        return type(value)
    match value:
        case tuple():
            return (tuple, *map(skeleton, value))
        case List(items):
            return (List, *map(skeleton, items))
        case Slice(start, stop, step):
            return (Slice, skeleton(start), skeleton(stop), skeleton(step))
        case Dict(items):
            return (Dict, *((skeleton(key), skeleton(part)) for key, part in items))
    return type(value), repr(value)
