"""Names of the leaves in a call's arguments and results, and copies that keep aliasing: tensors that share memory have
copies that share memory.

A sparse tensor is taken as its parts, which are strided tensors: indices and values, or compressed indices, plain
indices and values.

The *structure* of nested arguments is pytree's TreeSpec; a *path* is the keys of pytree from the whole to one leaf.
"""

from __future__ import annotations

import inspect
from collections import deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch import pytree
from backprint._torch.tensors import is_view, neg_view, sparse_indices, sparse_values, storage_id, version_of
from backprint.common.names import free_name
from backprint.errors import UsageError


def with_distinct_tensors(arguments: Any) -> Any:
    """Return nested arguments in which each occurrence of a tensor after its first is a copy. They are examples, of
    which only shapes count."""
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor)]
    if len(set(map(id, tensors))) == len(tensors):
        return arguments
    seen: set[int] = set()

    def distinct(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        copies = copy_values({"leaf": leaf.detach()})
        return copies["leaf"].requires_grad_(leaf.requires_grad)

    return pytree.tree_map(distinct, arguments)


def bind_names(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[str], tuple[str, ...]]:
    """Return the name of each positional argument of a call, and the callable's parameter names, `*args` and `**kwargs`
    with their stars; of a callable without a signature, made-up names for both. UsageError if the callable does not
    take these arguments."""
    function = target.forward if isinstance(target, nn.Module) else target
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        names = [f"input_{index}" if len(args) > 1 else "input" for index in range(len(args))]
        return names, tuple(names)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"{getattr(target, '__name__', type(target).__name__)}{signature} cannot be called so: {error}"
        ) from None
    arguments = tuple(_STARS.get(parameter.kind, "") + parameter.name for parameter in signature.parameters.values())
    return positional(arguments, len(args)), arguments


_STARS: dict[int, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
"""The stars of a parameter by its kind."""


def positional(arguments: Sequence[str], count: int) -> list[str]:
    """Return the names of the first `count` positional arguments of a callable with these parameters: `x` for `x`, then
    `args.0`, `args.1` for `*args`."""
    names: list[str] = []
    for name in arguments:
        if len(names) >= count or name.startswith("**"):
            break
        if name.startswith("*"):
            names += [f"{name[1:]}.{index}" for index in range(count - len(names))]
        else:
            names.append(name)
    return names


def flatten_with_path(value: Any) -> tuple[list[tuple[tuple[Any, ...], Any]], Any]:
    """Return the leaves of a value, each as a pair of its path and itself, and the structure of the value."""
    leaves, structure = pytree.tree_flatten(value)
    return list(zip(leaf_paths(value, leaves), leaves, strict=True)), structure


def leaf_paths(value: Any, leaves: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the path of each leaf of a value, as keys of pytree. `leaves` are the value's leaves, as pytree returned
    them. A node of a kind that names no children numbers them."""
    return list(_paths(value, path=(), leaves=deque(leaves)))


def _paths(value: Any, path: tuple[Any, ...], leaves: deque[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the leaves in a value, which itself is at `path`. `leaves` has the leaves that are still to
    come: each is taken out when its path is yielded, and a value is a leaf if it is the first of them."""
    kind = namedtuple if pytree.is_namedtuple_class(type(value)) else type(value)  # pytree knows all of these as one
    node_type = pytree.SUPPORTED_NODES.get(kind)
    # A container may be among `leaves`, because a predicate of the caller's made it a leaf for pytree.
    if node_type is None or (leaves and value is leaves[0]):
        leaves.popleft()
        yield path
        return
    if node_type.flatten_with_keys_fn is None:
        children = [(pytree.SequenceKey(index), child) for index, child in enumerate(node_type.flatten_fn(value)[0])]
    else:
        children = node_type.flatten_with_keys_fn(value)[0]
    for key, child in children:
        yield from _paths(child, (*path, key), leaves)


def leaf_name(path: Sequence[Any], positional: Sequence[str]) -> str:
    """Return the name of a leaf of a call: its parameter's name, then its path inside containers.

    A call is flattened as `(args, kwargs)`. So a path begins with 0 and the place of an argument in `positional`, the
    names of the positional arguments, or with 1 and the name of a keyword."""
    where, argument, *rest = map(key_text, path)
    head = positional[int(argument)] if where == "0" else argument
    return ".".join([head, *rest])


def key_text(key: Any) -> str:
    """Return a key of a pytree path as text."""
    match key:
        case pytree.SequenceKey(idx=index):
            return str(index)
        case pytree.MappingKey(key=name):
            return str(name)
        case pytree.GetAttrKey(name=name):
            return str(name)
    return str(key).strip("[].'\"")


def number_duplicates(names: Sequence[str]) -> list[str]:
    """Return the names, numbered where one occurs twice: `{"a.b": x, "a": {"b": y}}` yields `a.b` and `a.b~2`."""
    numbered_names: list[str] = []
    taken = set(names)  # from the start: a number must not make a name that another leaf has by itself
    seen: set[str] = set()
    for name in names:
        numbered = free_name(name, taken, numbered="{}~{}", first=2) if name in seen else name
        seen.add(name)
        taken.add(numbered)
        numbered_names.append(numbered)
    return numbered_names


def printable_name(name: str) -> str:
    """Return the name with `_` in the place of characters that are not printable, which a port's name cannot have."""
    return name if name.isprintable() else "".join(c if c.isprintable() else "_" for c in name)


def copy_values(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return detached copies of tensors with the same strides, by the same names; copies share memory as the tensors
    do, parts of sparse ones included."""
    bases: dict[int, Any] = {}
    with torch.no_grad():
        return {name: _copy_value(tensor, bases) for name, tensor in values.items()}


def _copy_value(tensor: Tensor, bases: dict[int, Any]) -> Tensor:
    """Return a copy of a tensor in copied memory. `bases` has the copies of storages so far, by the id of the
    storage."""
    if tensor.layout is not torch.strided:
        return join_sparse(tensor, [_copy_value(part, bases) for part in strided_parts(tensor)])
    storage = tensor.untyped_storage()
    if storage_id(storage) not in bases:
        bases[storage_id(storage)] = storage.clone()
    # `set_` puts the copy at the same place in the copied storage, so copies overlap as the tensors do.
    empty = torch.empty((), dtype=tensor.dtype, device=tensor.device)
    copy = empty.set_(bases[storage_id(storage)], tensor.storage_offset(), tensor.shape, tensor.stride())
    copy = copy.conj() if tensor.is_conj() else copy
    return neg_view(copy) if tensor.is_neg() else copy


ROWS = (torch.sparse_csr, torch.sparse_bsr)
"""Compressed sparse layouts whose rows are compressed. In the other ones, csc and bsc, the columns are."""


def strided_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the tensor itself, or the strided parts of a sparse tensor, its values last and detached."""
    if tensor.layout is torch.strided:
        return (tensor,)
    with torch.no_grad():
        tensor = tensor.detach()
        if tensor.layout is torch.sparse_coo:
            return sparse_indices(tensor), sparse_values(tensor)
        if tensor.layout in ROWS:
            return tensor.crow_indices(), tensor.col_indices(), tensor.values()
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


def join_sparse(like: Tensor, parts: Sequence[Tensor]) -> Tensor:
    """Return a sparse tensor with the shape, layout and dtype of `like`, made of strided parts, whose memory it
    shares."""
    # By operators that do not check the indices: they are those of a sparse tensor already.
    aten = torch.ops.aten
    joined: Tensor
    if like.layout is torch.sparse_coo:
        joined = aten._sparse_coo_tensor_unsafe(*parts, like.shape, is_coalesced=like.is_coalesced())
    else:
        joined = aten._sparse_compressed_tensor_unsafe(
            *parts, like.shape, dtype=like.dtype, layout=like.layout, device=like.device
        )
    return joined


def ones_tangent(tensor: Tensor) -> Tensor:
    """Return the default tangent of an output: ones; for a sparse tensor, ones at its own indices."""
    if tensor.layout is torch.strided:
        return torch.ones_like(tensor)
    *indices, values = strided_parts(tensor)
    return join_sparse(tensor, [*(index.clone() for index in indices), torch.ones_like(values)])


def plain_leaves(*values: Any) -> Iterator[Any]:
    """Yield the leaves of an operator's arguments or results, which nest in lists, tuples and dictionaries alone."""
    for value in values:
        if type(value) is Tensor:
            yield value
        elif isinstance(value, (tuple, list)):
            yield from plain_leaves(*value)
        elif isinstance(value, dict):
            yield from plain_leaves(*value.values())
        else:
            yield value


def alias_groups(values: Mapping[str, Tensor]) -> list[tuple[str, ...]]:
    """Return the names of tensors that share memory, group by group. Of a sparse tensor the memory of its values
    counts."""
    groups: dict[int, list[str]] = {}
    for name, tensor in values.items():
        memory = strided_parts(tensor)[-1]
        if memory.numel():
            groups.setdefault(storage_id(memory.untyped_storage()), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


FLAGS: Mapping[str, Callable[[Tensor], Any]] = {
    "requires_grad": lambda tensor: tensor.requires_grad,
    "is_leaf": lambda tensor: tensor.is_leaf,
    "has a gradient": lambda tensor: tensor.is_leaf and tensor.grad is not None,
    "has a grad_fn": lambda tensor: tensor.grad_fn is not None,
    "version": lambda tensor: version_of(tensor),
    "is a view": lambda tensor: is_view(tensor),
    "is conjugated": lambda tensor: tensor.is_conj(),
    "is negated": lambda tensor: tensor.is_neg(),
    "storage offset": lambda tensor: tensor.storage_offset(),
    "bytes of storage": lambda tensor: tensor.untyped_storage().nbytes(),
    "is in shared memory": lambda tensor: tensor.is_shared(),
}
"""The flags of an argument: facts that a program can read besides its values, shape and strides, and how they are
read."""


def strided_tensors(*values: Any) -> list[Any]:
    """Return the strided tensors among models and arguments, each once. Of a module, these are its parameters and
    buffers."""
    leaves = pytree.tree_leaves(values)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    for leaf in leaves:
        if isinstance(leaf, torch.nn.Module):
            tensors += [*leaf.parameters(), *leaf.buffers()]
    return list({id(tensor): tensor for tensor in tensors if tensor.layout is torch.strided}.values())
