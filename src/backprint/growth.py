"""How far plain values may grow where a sample is run: numbers, lists and texts that arithmetic makes larger.

Python's own arithmetic has no limit: `operator.pow(3, 10**8)` and a list that is doubled line by line fill the memory.
What would pass a limit is refused by name before it is made. Sizes of tensors are not watched here: their memory is the
limit of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

MOST_BITS = 4096
"""The most bits of an integer that a graph computes."""

MOST_ITEMS = 2**16
"""The most items of a list that a graph makes; items of nested lists count as often as they occur."""


def growth_complaint(target: str, args: Sequence[Any]) -> str:
    """Say why a call of plain arithmetic is refused: its number, list or text could have any size. '' if it may run."""
    for argument in args:
        if isinstance(argument, str) and target in GROWS:
            return f"a text cannot be an operand of {target} in a graph"
        if isinstance(argument, (list, tuple, dict)) and tree_size(argument) > MOST_ITEMS:
            return f"a list of more than {MOST_ITEMS:,} items; no graph needs one"
    return GROWS[target](*args) if target in GROWS and len(args) == 2 else ""


def tree_size(value: Any) -> int:
    """Count the items of a nested value, each as often as it is reached; stops at MOST_ITEMS + 1."""
    if isinstance(value, (list, tuple)) and not any(isinstance(item, (list, tuple, dict)) for item in value):
        return len(value) + 1
    return _tree_size(value, {})


def _tree_size(value: Any, known: dict[int, int]) -> int:
    if not isinstance(value, (list, tuple, dict)):
        return 1
    found = known.get(id(value))
    if found is None:
        known[id(value)] = MOST_ITEMS + 1  # what holds itself is endless
        items: Iterable[Any] = (*value, *value.values()) if isinstance(value, dict) else value
        found = min(1 + sum(_tree_size(item, known) for item in items), MOST_ITEMS + 1)
        known[id(value)] = found
    return found


def sum_growth(left: Any, right: Any) -> str:
    """The complaint about `left + right`."""
    if isinstance(left, (list, tuple)) and tree_size(left) + tree_size(right) > MOST_ITEMS:
        return f"a list of more than {MOST_ITEMS:,} items; no graph needs one"
    return ""


def product_growth(left: Any, right: Any) -> str:
    """The complaint about `left * right`."""
    for items, times in ((left, right), (right, left)):
        if isinstance(items, (list, tuple)) and isinstance(times, int) and tree_size(items) * times > MOST_ITEMS:
            return f"a list of {len(items):,} items {times:,} times: more than {MOST_ITEMS:,} items; no graph needs one"
    if isinstance(left, int) and isinstance(right, int):
        return bits_complaint(left.bit_length() + right.bit_length(), "a product")
    return ""


def power_growth(left: Any, right: Any) -> str:
    """The complaint about `left ** right`."""
    if isinstance(left, int) and isinstance(right, int):
        return bits_complaint(left.bit_length() * abs(right), "a power")
    return ""


def shift_growth(left: Any, right: Any) -> str:
    """The complaint about `left << right`."""
    if isinstance(left, int) and isinstance(right, int):
        return bits_complaint(left.bit_length() + max(right, 0), "a shift")
    return ""


def bits_complaint(bits: int, what: str) -> str:
    """The complaint about an integer of that many bits."""
    return f"{what} of {bits:,} bits; a graph's numbers have at most {MOST_BITS:,}" if bits > MOST_BITS else ""


GROWS: Mapping[str, Callable[[Any, Any], str]] = {
    "operator.add": sum_growth,
    "operator.mul": product_growth,
    "operator.pow": power_growth,
    "operator.lshift": shift_growth,
    "operator.mod": lambda left, right: "",
}
