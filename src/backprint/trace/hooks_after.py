"""Hooks that run when autograd accumulates a gradient: which of them a capture has, and what it says of others.

Autograd calls a hook of `register_post_accumulate_grad_hook` when it has put a gradient into `.grad`. A hook that
changes `.grad` is captured with the backward. A hook that clears `.grad`, or changes a parameter, as an optimizer in
the backward does, leaves no gradient to capture. The capture then has the gradient that autograd gave the hook, and a
note. A hook that only looks is not captured.

A hook may also be registered on the node that accumulates, as some libraries for distributed training do:
`p.expand_as(p).grad_fn.next_functions[0][0].register_hook(reduce)`. PyTorch does not show the hooks of a node. But they
last only while the program keeps the node, and a node that is kept can be found.

`untraced()` turns autograd and all modes off, and `version_of` is a tensor's version counter. `same_content` compares
two tensors bit for bit.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from backprint._torch.tensors import post_accumulate_hooks, version_of
from backprint.graph.nouns import HOOKS_LEFT_OUT, NODES_LEFT_OUT, OpaqueEdge
from backprint.trace.frames import line_of_definition, place
from backprint.trace.running import same_content
from backprint.trace.state.tensors import untraced

# A place here is a hook's line as text for a message (` at FILE:LINE`), and `leaves` are leaf tensors by name.

READS = ("aten._local_scalar_dense.default", "aten.equal.default")
"""Operators that read a value as a number, which a hook may branch on."""


@dataclass(slots=True)
class HookEffects:
    """The effects of the post-accumulate-grad hooks of one backward: the place of a hook, by the name of its leaf.

    `changed` has hooks that changed `.grad`, `uncapturable` hooks that cleared it or wrote to a leaf, and `only_read`
    hooks that changed nothing and read a value as a number. `exist` says that there are hooks.
    """

    exist: bool = False
    changed: dict[str, str] = field(default_factory=dict)
    uncapturable: dict[str, str] = field(default_factory=dict)
    only_read: dict[str, str] = field(default_factory=dict)

    @property
    def are_captured(self) -> bool:
        """Whether the hooks are a part of the captured backward: if one of them cannot be captured, none is."""
        return bool(self.changed) and not self.uncapturable

    def edges(self) -> tuple[OpaqueEdge, ...]:
        """Return the captured hooks as opaque edges."""
        changed = self.changed if self.are_captured else {}
        return tuple(OpaqueEdge("hook", f"{name} has a hook after accumulation{at}") for name, at in changed.items())

    def notes(self) -> tuple[str, ...]:
        """Return the notes of a capture whose backward does not have the hooks; none if it has them, or if they had no
        effect."""
        if self.uncapturable:
            return (left_out(self.uncapturable, "updates a parameter or clears .grad inside of the backward"),)
        if self.only_read and not self.changed:
            return (left_out(self.only_read, "reads a number and changed nothing in the captured step"),)
        return ()


def left_out(places: Mapping[str, str], reason: str) -> str:
    """Return the note of a capture whose backward does not have the hooks on these leaves, and why. `places` has the
    place of each hook, by the name of its leaf."""
    names = list(places)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{HOOKS_LEFT_OUT}: the hook on {', '.join(names[:3])}{more}{places[names[0]]} {reason}. The gradients are "
        "those that autograd gives the hook, and no verdict is about what the hook does"
    )


def hooks_of_leaves(leaves: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the names of the leaves that have post-accumulate-grad hooks, each with the place of its first hook."""
    hooks = {name: post_accumulate_hooks(leaf) if leaf.is_leaf else None for name, leaf in leaves.items()}
    return {name: place_of(next(iter(table.values()))) for name, table in hooks.items() if table}


def note_on_nodes(leaves: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the note on leaves whose accumulating node the program keeps: it may have hooks."""
    names = nodes_kept(leaves)
    if not names:
        return ()
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{NODES_LEFT_OUT}: the program keeps the AccumulateGrad node of {', '.join(names[:3])}{more}, which may have "
        "hooks. The gradients are those that autograd gives the node; to capture what such a hook does, register it on "
        "the tensor, by register_hook or register_post_accumulate_grad_hook",
    )


def nodes_kept(leaves: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the leaves whose AccumulateGrad node an object or a running function refers to."""
    with untraced(), torch.enable_grad():  # autograd makes a node only with gradients on
        # A node that somebody keeps has one more Python reference than the node of a new tensor. So has a node of an
        # autograd graph that is alive, and one that DistributedDataParallel keeps in C++. Only then are all Python
        # objects searched, which takes longer.
        references_of_new_node = sys.getrefcount(_node_of(torch.zeros(1, requires_grad=True)))
        plain = {
            name: leaf
            for name, leaf in leaves.items()
            if type(leaf) in (Tensor, nn.Parameter)
            and leaf.is_leaf
            and leaf.requires_grad
            and leaf.layout is torch.strided
        }
        nodes = {
            name: _node_of(leaf)
            for name, leaf in plain.items()
            if sys.getrefcount(_node_of(leaf)) > references_of_new_node
        }
    if not nodes:
        return []
    kept: set[int] = set()  # the ids of all objects that a referrer of a node, or a running function, refers to
    for referrer in gc.get_referrers(*nodes.values()):
        if referrer is not nodes:
            # A referrer refers to at least one of the nodes. Its own references show which.
            kept.update(map(id, gc.get_referents(referrer)))
    # The locals of running functions are no referrers that the collector knows.
    frame = sys._getframe(1)
    while frame is not None:
        kept.update(map(id, frame.f_locals.values()))
        frame = frame.f_back  # type: ignore[assignment]  # None above the outermost
    return [name for name, node in nodes.items() if id(node) in kept]


def _node_of(leaf: Tensor) -> Any:
    """Return the AccumulateGrad node of a leaf that requires grad: `next_functions` of any node that uses the leaf has
    it. Autograd returns the same node as long as somebody keeps it."""
    node: Any = leaf.view_as(leaf).grad_fn
    return node.next_functions[0][0]


def place_of(hook: Any) -> str:
    """Return ` at FILE:LINE` of a hook; '' if it has no code of the user's."""
    return place(line_of_definition(getattr(hook, "__func__", hook)))


@contextlib.contextmanager
def watching_hooks(leaves: Mapping[str, Tensor], calls: Sequence[Any]) -> Iterator[HookEffects]:
    """Note the effects of the post-accumulate-grad hooks of these leaves while a backward runs. Each hook is replaced
    by one that calls it and compares. `calls` is the list that the recorder of the backward appends operator calls
    to."""
    tables = {name: table for name, leaf in leaves.items() if leaf.is_leaf and (table := post_accumulate_hooks(leaf))}
    effects = HookEffects(bool(tables))
    # By the leaf's name: its hooks, each by the number that `register_post_accumulate_grad_hook` gave it.
    originals = {name: dict(table) for name, table in tables.items()}
    for name, table in tables.items():
        for key, hook in originals[name].items():
            table[key] = watched(hook, name, leaves, effects, calls)
    try:
        yield effects
    finally:
        for name, table in tables.items():
            # A hook may have removed itself meanwhile.
            table.update({key: hook for key, hook in originals[name].items() if key in table})


def watched(
    hook: Callable[[Tensor], object],
    name: str,
    leaves: Mapping[str, Tensor],
    effects: HookEffects,
    calls: Sequence[Any],
) -> Callable[[Tensor], object]:
    """Return a hook that calls `hook` and notes its effects in `effects`. `name` is the name of its leaf, and `calls`
    is as for `watching_hooks`.

    A hook that cleared `.grad`, or changed any leaf, cannot be captured. Otherwise, it has changed `.grad`, or it has
    only read a number, or it had no effect.
    """

    def watching(leaf: Tensor) -> object:
        """Call the hook, and compare the gradient and all leaves with what they were before."""
        # The state before the hook runs: of the gradient, and of all leaves.
        with untraced():
            gradient, versions = leaf.grad, {key: version_of(other) for key, other in leaves.items()}
            gradient_before, content_before = (t if t is None else t.detach().clone() for t in (gradient, leaf))
            gradient_version = None if gradient is None else version_of(gradient)
            calls_before = len(calls)
        result: object = hook(leaf)  # autograd refuses a hook that returns a value
        with untraced():
            others_changed = any(version_of(other) != versions[key] for key, other in leaves.items())
            # a write through .data counts no version, so contents are compared too
            if leaf.grad is None or others_changed or not same_content(leaf, content_before):
                effects.uncapturable[name] = place_of(hook)
            elif (
                leaf.grad is not gradient
                or version_of(gradient) != gradient_version
                or not same_content(gradient, gradient_before)
            ):
                effects.changed[name] = place_of(hook)
            elif any(str(call.func) in READS for call in calls[calls_before:]):
                effects.only_read[name] = place_of(hook)
        return result

    return watching
