"""Divisions that crash a process, and numbers that determine how long a kernel's loop or how large its result is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from backprint.checks.looking import (
    MOST_ROUNDS,
    Bound,
    Check,
    beyond,
    first,
    is_tensor,
    is_wrapped,
    readable,
    reading_values,
    unlike,
)
from backprint.room import why_too_large

TRAPS = {torch.int32: -(2**31), torch.int64: -(2**63)}
"""The number of a dtype that the processor cannot divide by -1."""


def divided(given: Bound) -> str:
    """Check an integer division: the smallest integer divided by -1 crashes the process."""
    left, right = given.get("self", given.get("a")), given.get("other", given.get("b"))
    if not all(map(is_dividable, (left, right))):
        return ""
    if not any(isinstance(each, Tensor) for each in (left, right)):
        return ""
    lowest = TRAPS.get(torch.result_type(left, right))
    if (
        lowest is None
        or (not isinstance(right, Tensor) and right != -1)
        or (not isinstance(left, Tensor) and left != lowest)
    ):
        return ""
    with reading_values():
        if bool((torch.as_tensor(left == lowest) & torch.as_tensor(right == -1)).any()):
            return f"{lowest} by -1 has no result, and ends the process"
    return ""


def rounded(given: Bound) -> str:
    """Check `div`, if it rounds."""
    return divided(given) if given.get("rounding_mode") is not None else ""


def factored_whole(given: Bound) -> str:
    """Check the least common multiple: the smallest integer has no absolute value, and crashes the process."""
    low = TRAPS.get(torch.result_type(given["self"], given["other"]))
    return "" if low is None else first(beyond(name, given[name], low + 1, -low) for name in ("self", "other"))


def is_dividable(value: Any) -> bool:
    """Whether a value is an integer, or a tensor of integers that can be read."""
    if isinstance(value, Tensor):
        return not value.dtype.is_floating_point and not value.dtype.is_complex and readable(value)
    return isinstance(value, int)


def paired(given: Bound) -> str:
    """Check operators on lists of tensors: the lists have one length."""
    lists = {
        name: value for name, value in given.items() if isinstance(value, (list, tuple)) and any(map(is_tensor, value))
    }
    lengths = {name: len(value) for name, value in lists.items()}
    if len(set(lengths.values())) > 1:
        return "lists of tensors of unlike lengths: " + ", ".join(f"{name} has {n}" for name, n in lengths.items())
    return ""


def sobol(given: Bound) -> str:
    """Check Sobol sequences: the state has 30 bits for each dimension."""
    dims, bits = int(given["dimension"]), 30
    state = given.get("sobolstate", given["self"])
    if not 1 <= dims <= 21201:
        return f"dimension={dims}; a sequence has 1 to 21,201"
    drawn = int(given.get("num_generated", 0)) + int(given.get("n", 0))
    if not 0 <= drawn < 2**bits or int(given.get("n", 0)) < 0 or int(given.get("num_generated", 0)) < 0:
        return f"{drawn} points; a sequence has {2**bits}"
    return first(
        (
            unlike("the state", state, (dims, bits)),
            unlike("quasi", given.get("quasi"), (dims,)),
            unlike("ltm", given.get("ltm"), (dims, bits, bits)),
            unlike("self", given["self"] if "sobolstate" in given and "quasi" not in given else None, (dims,)),
        )
    )


def some(given: Bound) -> str:
    """Check operators that stack tensors: there is at least one."""
    return "" if given["tensors"] else "no tensors to stack"


def rounds(name: str, most: int = MOST_ROUNDS) -> Check:
    """Return a check of kernels whose loop count is an argument."""

    def check(given: Bound) -> str:
        count = given[name]
        if isinstance(count, Tensor):
            if not readable(count) or not count.numel():
                return ""
            with reading_values():
                count = count.max().item()
        return f"{name}={count} iterations of a kernel's loop; a graph may have {most:,}" if count > most else ""

    return check


def pieces(given: Bound) -> str:
    """Check operators that cut a tensor into a number of pieces: that number is limited, because pieces may be
    empty."""
    return rounds("sections")(given) if isinstance(given.get("sections"), int) else ""


def ranged(given: Bound) -> str:
    """Check `range`: the step is not zero in the dtype of the result."""
    kind = given["out"].dtype if isinstance(given.get("out"), Tensor) else given.get("dtype")
    whole = kind is not None and not kind.is_floating_point and not kind.is_complex
    return f"step={given['step']!r} is 0 in {kind}" if whole and not int(given.get("step", 1)) else ""


def begun(given: Bound) -> str:
    """Check random numbers drawn from a lower bound on: floats can represent it, because the kernel loops until it is
    below the largest."""
    start = given.get("from")
    if start is None or given.get("to") is not None or abs(int(start)) <= 2**53:
        return ""
    return f"from={int(start)} without an end is more than 2^53"


def unbatched(given: Bound) -> str:
    """Check the end of a vmap: its dimension is a valid, non-negative place."""
    x, place = given["self"], int(given["out_dim"])
    batched = is_wrapped(x)
    if -(x.dim() + 1) * batched <= place <= x.dim() and int(given["batch_size"]) >= 0:
        return ""
    return f"out_dim={place} is not a place for a dimension of a tensor that has {x.dim()}"


def repeated(given: Bound) -> str:
    """Check a repetition by values: the result fits in memory."""
    counts, item = given["repeats"], given.get("self")
    if not isinstance(counts, Tensor) or not readable(counts) or counts.is_floating_point():
        return ""
    with reading_values():
        total = int(counts.clamp(min=0).to(torch.float64).sum())
    if isinstance(item, Tensor) and counts.numel():
        dim = given.get("dim")
        spread = item.numel() if dim is None else item.shape[int(dim)]
        return (
            why_too_large(total * item.nbytes // max(counts.numel() if counts.numel() > 1 else 1, 1)) if spread else ""
        )
    return why_too_large(total * counts.element_size())


def enumerated(given: Bound) -> str:
    """Check operators that make an element for each number up to the largest: the result fits in memory."""
    numbers, classes = given["self"], int(given.get("num_classes", -1))
    if not readable(numbers) or not numbers.numel() or numbers.is_floating_point() or classes >= 0:
        return ""
    with reading_values():
        largest = int(numbers.max())
    return why_too_large((largest + 1) * 8 * (numbers.numel() if "num_classes" in given else 1))


def decimal(given: Bound) -> str:
    """Check rounding to decimals: no more than a float may have. Some kernels compute their power of ten as an
    integer."""
    count = int(given.get("decimals", 0))
    return f"decimals={count}; a float has 1,100 at most" if abs(count) > 1100 else ""


def combined_all(given: Bound) -> str:
    """Check combinations: the kernel tries each of them, including those that do not count."""
    count, size = given["self"].numel(), int(given["r"])
    looked = size * count**size if size <= 64 else 2**63
    most = 2**26
    return f"r={size} of {count} reads {looked:,} numbers; a graph may have {most:,}" if looked > most else ""
