"""Translate Dynamo's descriptions of inputs and nodes into FQNs, roles, lines of the user and module paths.

Only plain texts of Dynamo's are read (`source.name`, `stack_trace`, `nn_module_stack`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from torch import fx, nn

from backprint._torch.dynamo import TracingContext
from backprint.graph.nouns import Source
from backprint.tracing import frames

INSIDE = ("_modules", "_parameters", "_buffers", "__closure__", "cell_contents", "__dict__", "__defaults__")
"""Parts of a source that are Python's and torch's way to a tensor, and not part of its name."""

_PART = re.compile(r"\['(?P<key>(?:[^'\\]|\\.)*)'\]|\[(?P<index>[^\]]+)\]|\.(?P<attribute>\w+)|(?P<root>[LG])(?=\[)")
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")
_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)


def parts_of_source(source: str) -> list[str]:
    """Return the parts of `L['self']._modules['fc']._parameters['weight']`: `L self _modules fc _parameters weight`."""
    return [next(filter(None, found.groups()), "") for found in _PART.finditer(source)]


def name_of_source(source: str) -> str:
    """Return the program's own name of a tensor: `fc.weight` in the module itself, `model.fc.weight` elsewhere,
    `batch.x.0`."""
    root, *parts = parts_of_source(source) or [""]
    parts = [part for part in parts if part not in INSIDE]
    if parts[:1] == ["self"] and len(parts) > 1:
        parts = parts[1:]
    name = ".".join(part.strip("_") or part for part in parts[:1]) + "".join(f".{part}" for part in parts[1:])
    return name or root or "input"


def role_of_source(source: str, value: Any) -> str:
    """Return a tensor's role: `parameter`, `buffer`, `input`, or `constant` if it comes from outside."""
    parts = parts_of_source(source)
    if "_parameters" in parts or isinstance(value, nn.Parameter):
        return "parameter"
    if "_buffers" in parts:
        return "buffer"
    outside = parts[:1] == ["G"] or "__closure__" in parts or parts[1:2] == ["self"]
    return "constant" if outside else "input"


def source_of_placeholder(node: fx.Node) -> str:
    """Return Dynamo's source of a graph input, such as `L['x']`; the node's own name if there is none."""
    argument = node.meta.get("grapharg")
    found = getattr(argument, "source", None)
    return str(found.name) if found is not None else str(node.target)


def line_of(node: fx.Node) -> Source | None:
    """Return the user's line of a node of Dynamo's, with the module whose forward it is in."""
    trace, stack = node.meta.get("stack_trace"), node.meta.get("nn_module_stack")
    if trace:
        return _line(trace, module_of(node))
    found = frames.of_module(list(stack.values())[-1][1], node.target) if stack else None
    return frames.source(*found, module_of(node)) if found else None


def line_with_path(node: fx.Node, paths: Mapping[int, str]) -> Source | None:
    """Return the user's line of a node, with its module's path from `paths`, by identity."""
    stack = node.meta.get("nn_module_stack") or {}
    found = frames.parsed(node.meta.get("stack_trace") or "")
    if found is None and stack:
        found = frames.of_module(list(stack.values())[-1][1], node.target)
    if found is None:
        return None
    file, line, function = found
    module = ""
    for key, (spelled, _) in stack.items():
        number = str(key).partition("@")[0]
        module = paths.get(int(number), module) if number.isdigit() else spelled
    return frames.source(file, line, function, module)


@functools.lru_cache(maxsize=65536)
def _line(trace: str, module: str) -> Source | None:
    rows = [(found["file"], int(found["line"]), found["function"]) for found in _FRAME.finditer(trace)]
    users = [row for row in rows if frames.is_users(row[0])]
    found = users[-1] if users else frames.of_library(rows) or next(iter(reversed(rows)), None)
    if found is None:
        return None
    file, line, function = found
    return frames.source(file, line, plain_function(function), module)


def plain_function(name: str) -> str:
    """Return a function's name, also for the rest of it after a graph break."""
    found = _RESUMED.fullmatch(name)
    return plain_function(found[1]) if found else name


def qualified(name: str) -> str:
    """Return a qualified name without enclosing functions: `make.<locals>.Net.forward` is `Net.forward`."""
    return name.rpartition("<locals>.")[2].replace("<lambda>", "lambda")


def module_of(node: fx.Node) -> str:
    """Return the path of the innermost module of a node."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return ""
    path = str(stack[-1][0])
    root = path.partition("]")[0] + "]"
    inner = re.sub(r"\['?([^'\]]*)'?\]", r".\1", path.removeprefix(root)).strip(".")
    return inner if root == "L['self']" else name_of_source(root) + (f".{inner}" if inner else "")


def function_of(graph: fx.Graph) -> str:
    """Return the user's function that a graph of Dynamo's comes from: `Net.forward` while Dynamo compiles it."""
    now = TracingContext.get_traced_code() if TracingContext.try_get() else None
    if now:
        return plain_function(now[0].co_name) if _RESUMED.fullmatch(now[0].co_name) else qualified(now[0].co_qualname)
    for node in graph.nodes:
        rows = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
        if rows:
            return plain_function(rows[0]["function"])
    return "graph"
