"""The structure that a program gives its outputs in, as plain JSON, and filled with tensors again."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


def filled(structure: Any, named: Mapping[str, Any]) -> Any:
    """A stored structure with these outputs in it; a constant leaf is its text where that is no plain literal."""
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
    """The plain value that a text says, or the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def key_of_text(text: str) -> Any:
    """The key of a mapping that a text says, or the text."""
    key = literal(text)
    return text if isinstance(key, (list, dict, set)) else key
