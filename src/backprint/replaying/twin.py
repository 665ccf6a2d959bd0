"""A fake Capture beside a small twin of the same program: what the twin proves, and where the two have the same steps.

Two graphs are alike when their hashes without sizes are equal, or, where the twin has fewer layers, when each layer's
steps are those of some layer of the other, and so is what stands outside of layers; what follows on itself counts once,
as a loop over layers does. A layer is a module path up to its last number: `model.layers.17`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from backprint.graph.nouns import Capture, Graph, Spec, Step, TensorSpec
from backprint.graph.verdicts import Verdict
from backprint.replaying.verify import FAKE

Row = tuple[str, str, str]
"""A step without its sizes: its module below the layer, its operator, and what it gives."""

LOOSE = "sums of gradients"
"""Steps that belong to no line of the program."""

LAYER = re.compile(r"(.*\.)?\d+(?=\.|$)")


def beside(large: Capture, small: Capture, proven: Sequence[Verdict]) -> list[Verdict]:
    """The Verdict of a fake Capture with a twin, then the twin's own."""
    found = "; ".join(f"its twin is {verdict.verdict}" for verdict in proven)
    first = Verdict("unproven", large.name, f"{FAKE}; {found}, and {likeness(large, small)}")
    return [first, *(replace(verdict, name=f"{verdict.name} (twin)") for verdict in proven)]


def likeness(large: Capture, small: Capture) -> str:
    """How far the graphs of two Captures are the same, in words."""
    if len(large.pairs) != len(small.pairs):
        return f"has {len(small.pairs)} pairs where this has {len(large.pairs)}"
    said = []
    for left, right in zip(large.pairs, small.pairs, strict=True):
        for side in ("forward", "backward"):
            ours, theirs = getattr(left, side), getattr(right, side)
            if (ours is None) != (theirs is None):
                return f"is built differently: only one of them has a {side}"
            if ours is None or ours.hash(sizes=False) == theirs.hash(sizes=False):
                continue
            if odd := difference(ours, theirs):
                traced = (
                    "" if large.engine == small.engine else f" (capture the twin with engine={large.engine!r}, too)"
                )
                return f"is built differently{traced}: {side}, {odd}"
            said.append(counts(ours, theirs))
    return f"has the same steps layer by layer ({said[0]})" if said else "has the same graphs but for sizes"


def difference(large: Graph, small: Graph) -> str:
    """The first layers of two graphs whose steps are not the same; empty where all are."""
    left, right = layers(large), layers(small)
    for family in dict.fromkeys([*left, *right]):
        ours, theirs = (set(map(folded, side.get(family, {}).values())) for side in (left, right))
        if ours != theirs:
            where = family or "outside of layers"
            return f"{where}: {shown(ours)} here, {shown(theirs)} in the twin"
    return ""


LONGEST = 64
"""How many steps the body of a loop over layers may have outside of the layers."""


def folded(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The steps with what follows on itself once."""
    kept = list(rows)
    for size in range(1, min(LONGEST, len(kept) // 2) + 1):
        made: list[Row] = []
        for index in range(len(kept)):
            made.append(kept[index])
            if made[-size:] == made[-2 * size : -size]:
                del made[-size:]
        kept = made
    return tuple(kept)


def shown(kinds: set[tuple[Row, ...]]) -> str:
    """How many kinds of a layer there are, and of how many steps."""
    sizes = ", ".join(str(len(kind)) for kind in sorted(kinds, key=len))
    return f"{len(kinds)} kinds of {sizes} steps" if kinds else "none"


def counts(large: Graph, small: Graph) -> str:
    """How many layers of each kind two graphs have."""
    left, right = layers(large), layers(small)
    families = [family for family in left if family not in ("", LOOSE)]
    return ", ".join(f"{family}: {len(left[family])} here, {len(right[family])} there" for family in families)


def layers(graph: Graph) -> dict[str, dict[str, list[Row]]]:
    """The steps of a graph by family of layers and layer; those of no layer stand under the empty name.

    Sums of gradients belong to no line of the program, so of these only the kinds count.
    """
    found: dict[str, dict[str, list[Row]]] = {}
    loose: set[Row] = set()
    for step in graph.steps:
        if step.source is None:
            loose.add(row(step, ""))
            continue
        layer = LAYER.match(step.source.module)
        name = layer[0] if layer else ""
        rows = found.setdefault(re.sub(r"\d+", "*", name), {}).setdefault(name, [])
        rows.append(row(step, step.source.module[len(name) :]))
    return found | {LOOSE: {"": sorted(loose)}}


def row(step: Step, module: str) -> Row:
    """A step without its sizes."""
    return module, step.target, spec_kind(step.spec)


def spec_kind(spec: Spec) -> str:
    """What a step gives, without sizes."""
    if isinstance(spec, TensorSpec):
        return f"{spec.dtype}[{len(spec.shape)}] {spec.device}"
    return " ".join(map(spec_kind, spec)) if isinstance(spec, tuple) else "?"
