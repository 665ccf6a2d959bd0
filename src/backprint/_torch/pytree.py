"""Trees of containers, as torch flattens them.

`NAMES` is the table of the private names that other rooms import from here, and `NAMES["x"].value()` is torch's object
that they import as `x` (`private`). Each function under *Probes* tries what this file takes a private name to do, and
returns whether it does that on this torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backprint._torch import private
from backprint._torch.private import Private, look_up, probes_of

if TYPE_CHECKING:  # the types of what `__getattr__` returns
    from torch.utils._pytree import GetAttrKey as GetAttrKey
    from torch.utils._pytree import MappingKey as MappingKey
    from torch.utils._pytree import SequenceKey as SequenceKey
    from torch.utils._pytree import tree_flatten as tree_flatten
    from torch.utils._pytree import tree_leaves as tree_leaves
    from torch.utils._pytree import tree_map as tree_map
    from torch.utils._pytree import tree_map_only as tree_map_only
    from torch.utils._pytree import tree_structure as tree_structure
    from torch.utils._pytree import tree_unflatten as tree_unflatten

# ---- Probes


def trees_are_flattened() -> bool:
    tree = {"b": [1, (2, None)], "a": 3}
    leaves, spec = NAMES["tree_flatten"].value()(tree)
    return leaves == [1, 2, None, 3] and NAMES["tree_unflatten"].value()(leaves, spec) == tree


def nodes_of_trees_are_listed() -> bool:
    nodes = NAMES["SUPPORTED_NODES"].value()
    children, context = nodes[dict].flatten_fn({"b": 1, "a": 2})
    return list(children) == [1, 2] and list(context) == ["b", "a"]


# ---- Names

NAMES = {
    "tree_flatten": Private(
        "torch.utils._pytree.tree_flatten",
        "Return the leaves of a tree and its TreeSpec.",
        (private.REPLAY,),
        holds=trees_are_flattened,
    ),
    "tree_leaves": Private("torch.utils._pytree.tree_leaves", "Return the leaves of a tree.", (private.CAPTURE,)),
    "tree_map": Private(
        "torch.utils._pytree.tree_map", "Return a tree with a function applied to each leaf.", (private.CAPTURE,)
    ),
    "tree_map_only": Private(
        "torch.utils._pytree.tree_map_only",
        "Return a tree with a function applied to the leaves of some types.",
        (private.CAPTURE,),
    ),
    "tree_structure": Private(
        "torch.utils._pytree.tree_structure", "Return the TreeSpec of a tree.", (private.REPLAY,)
    ),
    "tree_unflatten": Private(
        "torch.utils._pytree.tree_unflatten", "Return the tree of leaves and a TreeSpec.", (private.REPLAY,)
    ),
    "GetAttrKey": Private(
        "torch.utils._pytree.GetAttrKey", "A step into an attribute, in the path of a leaf.", (private.REPLAY,)
    ),
    "MappingKey": Private(
        "torch.utils._pytree.MappingKey", "A step into a dict, in the path of a leaf.", (private.REPLAY,)
    ),
    "SequenceKey": Private(
        "torch.utils._pytree.SequenceKey", "A step into a list or tuple, in the path of a leaf.", (private.REPLAY,)
    ),
    "SUPPORTED_NODES": Private(
        "torch.utils._pytree.SUPPORTED_NODES",
        "The classes that are nodes of trees, with how to flatten each.",
        (private.REPLAY,),
        holds=nodes_of_trees_are_listed,
    ),
    "is_namedtuple_class": Private(
        "torch.utils._pytree.is_namedtuple_class", "Whether a class is a named tuple.", (private.REPLAY,)
    ),
}
"""The private names that other rooms use, by the name under which they import each."""


def __getattr__(name: str) -> Any:
    return look_up(name, NAMES, globals())


PROBES = probes_of(__name__, NAMES)
