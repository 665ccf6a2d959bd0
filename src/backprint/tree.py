"""Names of the leaves in a call's arguments and results, and copies that keep aliasing: for capture and replay."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from backprint.errors import UsageError


def bind(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[str], tuple[str, ...]]:
    """The name of each positional argument, and the callable's parameter names."""
    function = target.forward if isinstance(target, nn.Module) else target
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        names = [f"input_{index}" if len(args) > 1 else "input" for index in range(len(args))]
        return names, tuple(names)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"{getattr(target, '__name__', type(target).__name__)}{signature} cannot be called so: {error}"
        ) from None
    arguments = tuple(_STARS.get(each.kind, "") + each.name for each in signature.parameters.values())
    return positional(arguments, len(args)), arguments


_STARS: dict[int, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def positional(arguments: Sequence[str], count: int) -> list[str]:
    """The names of the first `count` positional arguments: `x`, then `*args` as `args.0`, `args.1`."""
    names: list[str] = []
    for name in arguments:
        if len(names) >= count or name.startswith("**"):
            break
        if name.startswith("*"):
            names += [f"{name[1:]}.{index}" for index in range(count - len(names))]
        else:
            names.append(name)
    return names


def name_of(path: Sequence[Any], positional: Sequence[str]) -> str:
    """The own name of a leaf: its parameter's name, then its path inside containers."""
    where, first, *rest = map(step_of, path)
    head = positional[int(first)] if where == "0" else first
    return ".".join([head, *rest])


def step_of(key: Any) -> str:
    """One key of a tree path as text."""
    match key:
        case pytree.SequenceKey(idx=index):
            return str(index)
        case pytree.MappingKey(key=name):
            return str(name)
        case pytree.GetAttrKey(name=name):
            return str(name)
    return str(key).strip("[].'\"")


def outputs_of(result: Any) -> tuple[list[tuple[str, Any]], Any]:
    """A result's leaves under their names (`output`, `output.0`, `output.logits`), and its structure."""
    paths, structure = pytree.tree_flatten_with_path(result)
    return [(".".join(["output", *map(step_of, path)]), leaf) for path, leaf in paths], structure


def copy_values(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detached copies: same strides, and tensors that share memory share it again."""
    bases: dict[int, Any] = {}
    copies = {}
    with torch.no_grad():
        for name, tensor in values.items():
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in bases:
                bases[key] = storage.clone()
            empty = torch.empty((), dtype=tensor.dtype, device=tensor.device)
            copies[name] = empty.set_(bases[key], tensor.storage_offset(), tensor.shape, tensor.stride())
            if tensor.is_conj():
                copies[name] = copies[name].conj()
            if tensor.is_neg():
                copies[name] = torch._neg_view(copies[name])
    return copies


def plain_leaves(*values: Any) -> Iterator[Any]:
    """The leaves of an operator's arguments or results, which nest in lists, tuples and dictionaries alone."""
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from plain_leaves(*value)
        elif isinstance(value, dict):
            yield from plain_leaves(*value.values())
        else:
            yield value


def alias_groups(values: Mapping[str, Tensor]) -> list[tuple[str, ...]]:
    """The names of tensors that share memory, group by group."""
    groups: dict[int, list[str]] = {}
    for name, tensor in values.items():
        if tensor.numel():
            groups.setdefault(tensor.untyped_storage()._cdata, []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]
