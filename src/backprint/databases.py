"""SQLite files that may come from a stranger: opened without trust, and held to the schema that this version writes.

A forged file can carry triggers and views that run with our statements, CHECK constraints, and texts in columns of
numbers. So a file is used only if it has our tables and indices, to the letter, and nothing else, and if each value
has its column's type. Both checks read the file once; the time is linear in its bytes.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from backprint.errors import SampleError

TYPES: Mapping[str, tuple[str, ...]] = {
    "TEXT": ("text",),
    "INTEGER": ("integer",),
    "REAL": ("real", "integer"),
    "": ("text",),
}
"""The types that SQLite may hold in a column of ours."""


SHOWN = 200
"""How many characters of a stranger's statement an error has."""


def distrust(connection: sqlite3.Connection) -> None:
    """Let a connection run nothing that the file's schema brings, and notice damaged pages."""
    connection.execute("pragma trusted_schema = off")
    connection.execute("pragma cell_size_check = on")


def check_schema(connection: sqlite3.Connection, place: Path | str, known: Iterable[Sequence[str]]) -> None:
    """Raise SampleError unless the file has only objects that one of these lists of statements makes."""
    there = objects_of(connection)
    schemas = [made_by(statements) for statements in known]
    if any(there.items() <= schema.items() for schema in schemas):
        return
    stranger = min(name for name in there if there[name] != schemas[0].get(name))
    kind, text = there[stranger]
    said = f"{place}: its {kind} {stranger!r} is not one that Backprint makes: {text[:SHOWN]}"
    raise SampleError(f"{said}; if the file is yours, make it anew")


def objects_of(connection: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Return name -> kind and text of the tables, indices, views and triggers of a file."""
    rows = connection.execute("select name, type, coalesce(sql, '') from main.sqlite_master").fetchall()
    return {str(name): (str(kind), " ".join(str(text).split())) for name, kind, text in rows}


def made_by(statements: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the objects that statements make in an empty file."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for statement in statements:
            connection.execute(statement)
        return objects_of(connection)


def check_types(connection: sqlite3.Connection, place: Path | str, rules: Mapping[str, str]) -> None:
    """Raise SampleError for the first row with a value of another type than its column's, or against a rule.

    `rules` are `table.column` -> an SQL condition that the column's values satisfy. The schema has been checked.
    """
    tables = [name for name, (kind, _) in objects_of(connection).items() if kind == "table"]
    for table in tables:
        for _, column, declared, required, *_ in connection.execute(f"pragma main.table_info({table})").fetchall():
            types = (*TYPES[declared.upper()], *(() if required else ("null",)))
            rule = rules.get(f"{table}.{column}")
            wrong = f"typeof({column}) not in ({', '.join(map(repr, types))})"
            if rule:
                wrong += f" or not coalesce({rule}, 1)"
            query = f"select rowid, typeof({column}) from main.{table} where {wrong} limit 1"
            for row, there in connection.execute(query):
                wanted = f"{' or '.join(types)}{f' where {rule}' if rule else ''}"
                raise SampleError(f"{place}: {column} in row {row} of {table} is of type {there}, and must be {wanted}")
