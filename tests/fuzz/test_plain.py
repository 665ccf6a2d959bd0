"""Whatever stands in a file in the place of a record: the record, or an error with a name that says which field.

Every record that is read with `from_plain` is drawn, and read again with each of its values changed in each way.
`make nightly` draws more of them.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backprint as bp
from face import (
    OUTCOMES,
    PARTS,
    BenchCell,
    Edge,
    KernelRow,
    Node,
    NonfiniteOrigin,
    PartRow,
    Pass,
    RefusedError,
    SampleError,
    TaskFacts,
    from_plain,
    parts_of,
    pass_as_json,
    read_facts,
    read_lines,
    read_pass,
    read_rows,
)

Place = tuple[str | int, ...]
"""Where a value lies in a record: names of fields, and numbers in lists."""

ORIGINS = "forward", "inputs", "backward", "gradients"

CHOICES: dict[tuple[type, str], Any] = {
    (BenchCell, "outcome"): OUTCOMES,
    (TaskFacts, "format"): [1],
    (Pass, "level"): ["stats"],
    (Node, "name"): ["mul"],
    (Edge, "source"): ["mul"],
    (Edge, "target"): ["mul"],
    (NonfiniteOrigin, "where"): ORIGINS,
}
"""Fields that not every text or number fits."""


def drawn(kind: Any, draw: random.Random) -> Any:
    """A value of a declared type."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return typing.cast(Any, kind)(
            **{
                field.name: draw.choice(CHOICES[kind, field.name])
                if (kind, field.name) in CHOICES
                else drawn(hints[field.name], draw)
                for field in dataclasses.fields(kind)
            }
        )
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return None if draw.random() < 0.2 else drawn(arguments[0], draw)
    if typing.get_origin(kind) is tuple:
        many = arguments[1:] == (...,)
        return tuple(drawn(each, draw) for each in (arguments[:1] * draw.randrange(1, 3) if many else arguments))
    return {
        str: lambda: draw.choice(["mul", "é", "x y"]),
        int: lambda: draw.randrange(1, 9),
        float: lambda: draw.choice([0.5, 1.0, 1e-300]),
        bool: lambda: draw.random() < 0.5,
        Any: lambda: None,
    }[kind]()


def plain_of(value: Any) -> Any:
    """A record as plain values, without the fields of a Pass that are read beside it."""
    beside = ("gradient", "origin")
    return dataclasses.asdict(
        value, dict_factory=lambda rows: {name: each for name, each in rows if name not in beside}
    )


DEEP = "a list in lists"

OTHERS: dict[str, Any] = {
    "null": None,
    "text": "nan",
    "number": 1.5,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "huge": 10**400,
    "negative": -1,
    "bool": True,
    "object": {"name": 1},
    "list": [1],
    "deep": DEEP,
}


NO_JSON = ("deep", "not a number", "infinite")
"""What a reader may refuse as text that is no JSON, before it knows of fields."""


def changed(plain: Any, share: float, draw: random.Random) -> Iterator[tuple[Place, str, Any]]:
    """Yield a share of the changes of one value of a record: where it is, what it is, and the changed record."""
    for place in places_of(plain):
        value, key = at_place(plain, place), place[-1]
        changes: list[tuple[Place, str, Any]] = [(place, name, other) for name, other in OTHERS.items()]
        if isinstance(value, dict):
            changes += ((place, "extra", {**value, "more": 1}),)
        if isinstance(value, list):
            changes += ((place, "longer", [*value, *value, None]), (place, "empty", []))
        if isinstance(key, str):
            changes += ((place, "missing", None),)
        for _, name, other in changes:
            if draw.random() < share:
                made = copy.deepcopy(plain)
                inner = at_place(made, place[:-1])
                inner[key] = other
                if name == "missing":
                    del inner[key]
                yield place, name, made


def places_of(value: Any, place: Place = ()) -> Iterator[Place]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*place, key)
        yield from places_of(item, (*place, key))


def at_place(value: Any, place: Place) -> Any:
    for key in place:
        value = value[key]
    return value


def written(plain: Any, file: Path) -> Path:
    """Write a record, with lists in lists that no recursion reaches the end of."""
    file.write_text(json.dumps(plain).replace(json.dumps(DEEP), "[" * 3_000 + "]" * 3_000))
    return file.parent


def read_parts(folder: Path) -> PartRow:
    """The first part of a run's sample, whose folders `parts_of` returns below that of the run."""
    row = parts_of(folder.parent, {"id": folder.name})[0]
    return PartRow(**{**row, "part": Path(row["part"]).name})


def read_cell(folder: Path) -> BenchCell:
    (cell,) = read_lines(folder / "cells.jsonl", failed=False)
    if isinstance(cell, str):
        raise ValueError(cell)
    assert isinstance(cell, BenchCell)
    return cell


READERS: dict[type, tuple[str, Callable[[Any], Any], Callable[[Path], Any], type[Exception]]] = {
    PartRow: (PARTS, lambda part: [plain_of(part)], read_parts, SampleError),
    KernelRow: ("kernels.jsonl", plain_of, lambda folder: next(read_rows(folder)), RefusedError),
    TaskFacts: ("task.json", plain_of, read_facts, SampleError),
    BenchCell: ("cells.jsonl", plain_of, read_cell, ValueError),
    Pass: ("graph.json", pass_as_json, read_pass, bp.errors.RegionError),
}
"""The records that have a file: its name, the plain value that is written, who reads it, and the error."""


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "kind", [PartRow, KernelRow, TaskFacts, BenchCell, Pass, bp.types.Verdict, bp.types.Power, bp.types.Derivative]
)
def test_a_changed_record_is_read_or_refused_at_its_field(kind: Any, seed: int) -> None:
    value = drawn(kind, random.Random(seed))
    plain = json.loads(json.dumps(plain_of(value)))
    value = dataclasses.replace(value, origin=None) if kind is Pass else value
    assert from_plain(kind, plain) == value
    for place, name, made in changed(plain, 1.0, random.Random(seed)):
        text = "it" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)
        inside = text.rpartition(".")[0]
        try:
            read = from_plain(kind, made)
        except ValueError as error:
            at = {"missing": f"{inside} has no {place[-1]!r}", "extra": f"{text} has 'more'"}.get(name, text)
            assert str(error).startswith(at), (place, name)  # noqa: PT017 - any other exception fails
        else:
            again = from_plain(kind, plain_of(read))
            assert repr(again) == repr(read), (place, name)
            assert name != "extra", place


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", READERS)
def test_a_changed_file_is_read_or_refused_by_name(kind: Any, seed: int, tmp_path: Path) -> None:
    file, plain_of, read, error = READERS[kind]
    value = drawn(kind, random.Random(seed))
    plain = json.loads(json.dumps(plain_of(value)))
    (tmp_path / "x").mkdir()
    assert read(written(plain, tmp_path / "x" / file)) == value
    for place, name, made in changed(plain, 0.3, random.Random(seed)):
        folder = written(made, tmp_path / "x" / file)
        try:
            read(folder)
        except error as refused:
            field = next(key for key in reversed(place) if isinstance(key, str)) if len(place) > 1 else file
            assert field in str(refused) or name in NO_JSON, (place, name, refused)  # noqa: PT017 - any other fails
