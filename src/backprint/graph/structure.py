"""The structure of a program's outputs as plain JSON, and filled with tensors again."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


def filled(structure: Any, named: Mapping[str, Any]) -> Any:
    """Return a stored structure filled with these outputs; a constant leaf is its text if that is not a plain
    literal."""
    match structure:
        case {"port": name}:
            return named[name]
        case {"value": text}:
            return literal(text)
        case {"items": rows}:
            return {key_of_text(key): filled(item, named) for key, item in rows}
        case {"dict": items}:
            return {key: filled(item, named) for key, item in items.items()}
        case {"list": items}:
            return [filled(item, named) for item in items]
        case {"tuple": items}:
            return tuple(filled(item, named) for item in items)
    return None


def literal(text: str) -> Any:
    """Return the plain value of a text, or the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def key_of_text(text: str) -> Any:
    """Return the mapping key of a text, or the text."""
    key = literal(text)
    return text if isinstance(key, (list, dict, set)) else key
