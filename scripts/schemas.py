"""Write the tables of `docs/json.md` from the schemas of `src/backprint/schemas`.

    python scripts/schemas.py [--check]

What stands between `<!-- schemas -->` and `<!-- end -->` is written anew; the prose around is a person's. With
`--check` nothing is written, and the exit code is 1 if the page is not current.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import made_pages

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "json.md"
FOLDER = ROOT / "src" / "backprint" / "schemas"
PART = re.compile(r"(<!-- schemas -->\n).*?(<!-- end -->)", re.DOTALL)


def kind_of(row: Mapping[str, Any]) -> str:
    """Return the kind of a value in words: `list of text`, `number or null`."""
    if "$ref" in row:
        return named(row["$ref"].rpartition("/")[2])
    if "anyOf" in row:
        return " or ".join(dict.fromkeys(kind_of(each) for each in row["anyOf"]))
    if "enum" in row:
        return ", ".join(f"`{word}`" if word else "empty" for word in row["enum"])
    match row.get("type"):
        case [*kinds]:
            return " or ".join(kind_of({**row, "type": kind}) for kind in kinds)
        case "array":
            return f"list of {kind_of(row['items'])}"
        case "object" if row.get("additionalProperties", True) is not True:
            return f"name to {kind_of(row['additionalProperties'])}"
    return WORDS[row.get("type", "")]


WORDS = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
    "null": "null",
    "": "any",
}


def named(part: str) -> str:
    """Return how a part of a schema is called."""
    return f"*{part.replace('_', ' ')}*"


def table(part: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of an object as a table; a key that is not always there has a question mark."""
    yield "| key | value | meaning |\n|---|---|---|"
    for key, row in part["properties"].items():
        mark = "" if key in part["required"] else "?"
        yield f"| `{key}`{mark} | {kind_of(row)} | {row['description']} |"


def section(name: str, schema: Mapping[str, Any], told: set[str]) -> Iterator[str]:
    """Yield the section of a schema: its own keys, and each part that no section above has."""
    yield f"## {name.replace('-', ' ')}\n"
    yield f"`{schema['title']}`, [`{name}.json`](../src/backprint/schemas/{name}.json). {schema['description']}"
    if "anyOf" in schema:
        kinds = [named(row["$ref"].rpartition("/")[2]) for row in schema["anyOf"]]
        yield f"It is one of {', '.join(kinds)}."
    if "properties" in schema:
        yield ""
        yield from table(schema)
    parts = schema.get("$defs", {})
    above = [part for part in parts if part in told]
    for part in [part for part in parts if part not in told]:
        told.add(part)
        yield f"\n{named(part)}. {parts[part].get('description', '')}"
        if "properties" in parts[part]:
            yield ""
            yield from table(parts[part])
    if above:
        yield f"\nAs above: {', '.join(map(named, above))}."
    yield ""


def current(page: str) -> str:
    """Return the page as it has to be."""
    told: set[str] = set()
    schemas = {place.stem: json.loads(place.read_text("utf-8")) for place in sorted(FOLDER.glob("*.json"))}
    text = "\n".join(line for name, schema in schemas.items() for line in section(name, schema, told))
    return PART.sub(lambda match: f"{match[1]}\n{text}{match[2]}", page)


def main() -> None:
    made_pages.keep(PAGE, current(PAGE.read_text("utf-8")), "schemas.py")


if __name__ == "__main__":
    main()
