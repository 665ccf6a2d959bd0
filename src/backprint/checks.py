"""What may stand in a call of a tensor operator: what fits the types of its schema, and what its kernel may be given.

A graph of a stranger needs no code to write where it likes: kernels take an int for a dtype, and some take indices and
sizes as they are given. The arguments of each operator are held against its schema; `CHECKS` has the operators whose
kernels trust what they get. What no check makes safe is `isolated` in `graph/operators.txt`. A tensor without values
(fake, meta) reaches no kernel, so its values are not looked at.

Private torch APIs of this module, tried on torch 2.13: `torch._C.FunctionSchema`, `torch._subclasses.FakeTensor`,
`torch.utils._python_dispatch._disable_current_modes`, `torch._C._functorch.is_functorch_wrapped_tensor`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from backprint.room import too_large

Bound: TypeAlias = Mapping[str, Any]
"""A call's arguments by the schema's names, the defaults too."""

Check: TypeAlias = Callable[[Bound], str]
"""What is wrong with a call, in words; '' where nothing is."""

MOST_ROUNDS = 2**16
"""How often a kernel may go round a loop because a number among its arguments says so."""


# ------------------------------------------------------------------ the schema's types


def wrong(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Why an operator may not be called so: by its schema's types, then by its own check."""
    rows = rows_of(function)
    if len(args) > len(rows):
        return f"{len(args)} arguments where {function} takes {len(rows)}"
    given = dict(zip((name for name, *_ in rows), args, strict=False))
    for key, value in kwargs.items():
        if key in given:
            return f"{key} is given twice"
        given[key] = value
    for name, kind, fits, default in rows:
        if name not in given:
            given[name] = default
        elif not fits(given[name]):
            return f"{name}={said(given[name])} where the schema wants {kind}"
    check = check_of(function)
    try:
        return check(given) if check is not None else ""
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError) as error:
        return f"arguments that do not belong together ({type(error).__name__}: {str(error)[:120]})"


@functools.cache
def rows_of(function: Any) -> tuple[tuple[str, str, Callable[[Any], bool], Any], ...]:
    """Of each argument: its name, its type in words, what fits it, its default."""
    rows = []
    for each in function._schema.arguments:
        kind = CONSTANTS.get(each.name, str(each.real_type)) if "int" in str(each.real_type) else str(each.real_type)
        default = each.default_value if each.has_default_value() else None
        fits, count = fitting(kind), each.N or 0
        if count > 1:
            fits, kind = of_length(fits, lengths_of(each.name, count, default)), f"{kind} of {count}"
        rows.append((each.name, kind, fits, default))
    return tuple(rows)


CONSTANTS: Mapping[str, str] = {
    "dtype": "Optional[ScalarType]",
    "out_dtype": "Optional[ScalarType]",
    "output_dtype": "Optional[ScalarType]",
    "layout": "Optional[Layout]",
    "memory_format": "Optional[MemoryFormat]",
}
"""What an argument of this name is, where a schema calls it a plain int."""

SPREAD = frozenset("kernel_size stride padding dilation output_size output_padding size".split())
"""Arguments that may have one number for all dimensions."""


def lengths_of(name: str, count: int, default: Any) -> frozenset[int]:
    """How many items a list of fixed length may have."""
    none = default == [] or name == "stride"  # the stride of a pool: as long as its kernel
    return frozenset({count, *({1} if name in SPREAD else ()), *({0} if none else ())})


def of_length(fits: Callable[[Any], bool], lengths: frozenset[int]) -> Callable[[Any], bool]:
    """What says whether a value fits, and has one of these lengths if it is a list."""
    return lambda value: fits(value) and (not isinstance(value, (list, tuple)) or len(value) in lengths)


@functools.cache
def check_of(function: Any) -> Check | None:
    """The check of an operator's own."""
    return check_by_name(str(function))


def check_by_name(name: str) -> Check | None:
    """The check of the operator `namespace.name.overload`, or of the family that its name is one of."""
    packet = name.rpartition(".")[0]
    return CHECKS.get(packet) or family_check(packet)


@functools.cache
def fitting(kind: str) -> Callable[[Any], bool]:
    """What says whether a value fits a type of a schema."""
    if kind.startswith("Optional["):
        inner = fitting(kind[9:-1])
        return lambda value: value is None or inner(value)
    if kind.startswith("List["):
        item = fitting(kind[5:-1])
        lone = kind[5:-1] in ("int", "float", "bool")  # int[2] takes a number for both
        return lambda value: all(map(item, value)) if isinstance(value, (list, tuple)) else lone and item(value)
    return FITS.get(kind, lambda value: True)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number of 64 bits, or stands for one."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, (torch.SymInt, torch.SymBool)) or is_single(value)


def is_number(value: Any) -> bool:
    """Whether a value is a number, or a tensor of one."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    return isinstance(value, (float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)) or is_single(value)


def is_single(value: Any) -> bool:
    """Whether a value is a tensor of one element."""
    return isinstance(value, Tensor) and value.numel() == 1


FITS: Mapping[str, Callable[[Any], bool]] = {
    "Tensor": lambda value: isinstance(value, Tensor) or is_number(value),  # add.Tensor(x, 1)
    "ScalarType": lambda value: isinstance(value, torch.dtype),
    "Layout": lambda value: isinstance(value, torch.layout),
    "MemoryFormat": lambda value: isinstance(value, torch.memory_format),
    "Device": lambda value: isinstance(value, (torch.device, str)),
    "Generator": lambda value: isinstance(value, torch.Generator),
    "int": is_whole,
    "float": is_number,
    "number": is_number,
    "complex": is_number,
    "bool": lambda value: isinstance(value, (bool, int, torch.SymBool)) or is_single(value),
    "str": lambda value: isinstance(value, str),
}


def said(value: Any) -> str:
    """A value in a message."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {', '.join(sorted({type(item).__name__ for item in value})) or 'nothing'}"
    return f"{value!r:.40} ({type(value).__name__})"


# ------------------------------------------------------------------ arguments that kernels trust


def readable(value: Any) -> bool:
    """Whether a tensor's values can be looked at."""
    return (
        type(value) in (Tensor, nn.Parameter)
        and not value.is_meta
        and value.layout is torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


def beyond(name: str, value: Any, low: int, high: int, also: Iterable[int] = ()) -> str:
    """What is said of a tensor that holds a number outside of [low, high)."""
    if isinstance(value, Tensor) and value.layout is not torch.strided:
        return f"{name} is a {value.layout} tensor, which holds no indices"
    if not readable(value) or value.numel() == 0:
        return ""
    with torch.no_grad(), _disable_current_modes():
        odd = (value < low) | (value != value)
        if high < 2**63:  # torch compares with what the dtype can hold
            odd |= value >= high
        for each in also:
            odd &= value != each
        if not bool(odd.any()):
            return ""
        found = value[odd].flatten()[0].item()
    return f"{name} holds {found}, which is not in [{low}, {high})"


def unlike(name: str, value: Any, shape: Sequence[int]) -> str:
    """What is said of a tensor that has another shape."""
    if not isinstance(value, Tensor) or tuple(value.shape) == tuple(shape):
        return ""
    return f"{name} has the shape {list(value.shape)}, which should be {list(shape)}"


def counted(name: str, value: Any, count: int) -> str:
    """What is said of a tensor that has another number of elements."""
    if not isinstance(value, Tensor) or value.numel() == count:
        return ""
    return f"{name} has {value.numel()} elements, which should be {count}"


def held(name: str, value: Any) -> str:
    """What is said of a tensor that a kernel reads from end to end, and whose memory is shorter (an expanded one)."""
    if not readable(value) or value.storage_offset() + value.numel() <= value.untyped_storage().nbytes() // max(
        value.element_size(), 1
    ):
        return ""
    return f"{name} has {value.numel()} elements, and memory for fewer"


def first(complaints: Iterable[str]) -> str:
    """The first complaint that says something."""
    return next((each for each in complaints if each), "")


def pooled(dims: int, low: int = 0) -> Check:
    """Of a pool's backward: each index lies in the plane that it was taken from; -1 may stand for an empty window."""

    def check(given: Bound) -> str:
        image, grad, indices = given["self"], given["grad_output"], given["indices"]
        if not all(isinstance(each, Tensor) for each in (image, grad, indices)) or image.dim() not in (
            dims + 1,
            dims + 2,
        ):
            return f"self is no image of {dims} dimensions and its channels"
        lengths = [
            name for name in ("kernel_size", "output_size") if name in given and len(given[name]) not in (1, dims)
        ]
        return first(
            (
                *(f"{name} does not have {dims} numbers" for name in lengths),
                unlike("indices", indices, grad.shape),
                unlike("grad_output", grad, (*image.shape[:-dims], *grad.shape[-dims:])),
                beyond("indices", indices, low, math.prod(image.shape[-dims:])),
                "" if dims < 3 or indices.is_contiguous() else "indices are not contiguous, as the kernel reads them",
            )
        )

    return check


def averaged(dims: int) -> Check:
    """Of an average pool's backward: a gradient with the channels of the image."""

    def check(given: Bound) -> str:
        image, grad = given["self"], given["grad_output"]
        return unlike("grad_output", grad, (*image.shape[:-dims], *grad.shape[-dims:]))

    return check


def spread(dims: int) -> Check:
    """Of adaptive pools: no more windows than a graph needs, each of which reads the image."""

    def check(given: Bound) -> str:
        sizes, plane = given["output_size"], math.prod(given["self"].shape[-dims:])
        windows = math.prod(map(int, sizes)) if isinstance(sizes, (list, tuple)) else int(sizes) ** dims
        most = 64 * plane + MOST_ROUNDS
        return (
            f"{windows:,} windows of an image of {plane:,} points; a graph may ask for {most:,}"
            if windows > most
            else ""
        )

    return check


def unpooled(dims: int) -> Check:
    """Of max_unpool: each index lies in the plane that is made."""

    def check(given: Bound) -> str:
        size, indices = given["output_size"], given["indices"]
        if len(size) != dims:
            return f"output_size has {len(size)} numbers, which should be {dims}"
        shape = unlike("indices", indices, given["self"].shape)
        return shape or beyond("indices", indices, 0, math.prod(map(int, size)))

    return check


def embedded(given: Bound) -> str:
    """Of embedding's backward: each index is a row."""
    indices, rows = given["indices"], int(given["num_weights"])
    grad = given.get("grad_output", given.get("grad"))
    if rows < 0:
        return f"num_weights={rows} is no number of rows"
    if not isinstance(grad, Tensor) or not isinstance(indices, Tensor) or grad.shape[:-1] != indices.shape:
        return "the gradient does not have the shape of the indices and one more"
    return beyond("indices", indices, 0, rows, (int(given["padding_idx"]),))


def bagged(given: Bound) -> str:
    """Of embedding_bag: indices are rows, offsets places in the indices, in order."""
    indices, offsets = given["indices"], given["offsets"]
    if not isinstance(indices, Tensor) or not isinstance(offsets, Tensor) or offsets.dim() != 1 or indices.dim() != 1:
        return "indices and offsets are no lists of numbers"
    rows = given["weight"].shape[0] if isinstance(given["weight"], Tensor) and given["weight"].dim() == 2 else 0
    weights = given.get("per_sample_weights")
    return first(
        (
            counted("per_sample_weights", weights, indices.numel()),
            beyond("indices", indices, 0, rows),
            beyond("offsets", offsets, 0, indices.numel() + 1),
            "" if rising(offsets) else "offsets go back",
        )
    )


def unbagged(given: Bound) -> str:
    """Of embedding_bag's backwards: a gradient for each bag, indices that are rows, and the bag of each."""
    grad, indices, bags = given["grad"], given["indices"], given["offset2bag"]
    if not all(isinstance(each, Tensor) for each in (grad, indices, bags)) or grad.dim() != 2 or indices.dim() != 1:
        return "grad is no table with a row for each bag, or indices is no list"
    weight, count = given.get("weight"), indices.numel()
    if isinstance(weight, Tensor) and (weight.dim() != 2 or weight.shape[1] != grad.shape[1]):
        return f"weight has the shape {list(weight.shape)}, and grad {list(grad.shape)}"
    rows = weight.shape[0] if isinstance(weight, Tensor) else int(given["num_weights"])
    derived = bags.numel() == 0 and isinstance(given.get("offsets"), Tensor)  # from the offsets, by the operator itself
    largest = given.get("maximum_indices") if int(given["mode"]) == 2 else None
    return first(
        (
            f"num_weights={rows} is no number of rows" if rows < 0 else "",
            beyond("indices", indices, 0, rows),
            placed(given.get("offsets"), grad.shape[0], count),
            "" if derived else counted("offset2bag", bags, count) or beyond("offset2bag", bags, 0, grad.shape[0]),
            "" if "bag_size" not in given else counted("bag_size", given["bag_size"], grad.shape[0]),
            counted("per_sample_weights", given.get("per_sample_weights"), count),
            unlike("maximum_indices", largest, grad.shape) or beyond("maximum_indices", largest, -1, rows),
        )
    )


def placed(offsets: Any, bags: int, count: int) -> str:
    """What is said of offsets that are no places in the indices, in order, one for each bag or one more."""
    if not isinstance(offsets, Tensor):
        return ""
    if offsets.dim() != 1 or offsets.numel() not in (bags, bags + 1):
        return f"offsets has the shape {list(offsets.shape)}, and there are {bags} bags"
    complaint = beyond("offsets", offsets, 0, count + 1) or ("" if rising(offsets) else "offsets go back")
    return complaint or beyond("the first offset", offsets[:1], 0, 1)


def rising(value: Tensor) -> bool:
    """Whether a tensor's numbers never fall along its last dimension."""
    if not readable(value):
        return True
    with torch.no_grad(), _disable_current_modes():
        return bool((value[..., 1:] >= value[..., :-1]).all())


def classed(given: Bound) -> str:
    """Of nll_loss's backward: each target is a class."""
    scores, target = given["self"], given["target"]
    if not isinstance(scores, Tensor) or not isinstance(target, Tensor) or not 1 <= scores.dim() <= 4:
        return "self are no scores of classes"
    classes = scores.shape[1 if scores.dim() > 1 else 0]
    return first(
        (
            counted("target", target, scores.numel() // max(classes, 1)),
            counted("weight", given["weight"], classes),
            beyond("target", target, 0, classes, (int(given["ignore_index"]),)),
        )
    )


def margined(given: Bound) -> str:
    """Of the margin losses' backwards: targets are classes, and a gradient for the loss or for each row."""
    scores, target, grad = given["self"], given["target"], given["grad_output"]
    if not all(isinstance(each, Tensor) for each in (scores, target, grad)) or not scores.dim() <= 2:
        return "self are no scores of classes"
    classes = scores.shape[-1] if scores.dim() else 1
    rows = scores.shape[0] if scores.dim() == 2 else 1
    labels = "is_target" in given
    return first(
        (
            unlike("target", target, scores.shape) if labels else counted("target", target, rows),
            unlike("is_target", given.get("is_target"), target.shape),
            beyond("target", target, -1 if labels else 0, classes),
            counted("grad_output", grad, 1 if int(given["reduction"]) else rows),
            counted("weight", given.get("weight"), classes),
        )
    )


def aligned(given: Bound) -> str:
    """Of ctc_loss and its backward: targets are classes, lengths lengths, and what a forward saved fits both."""
    scores, targets = given["log_probs"], given["targets"]
    if not isinstance(scores, Tensor) or not isinstance(targets, Tensor) or scores.dim() not in (2, 3):
        return "log_probs are no scores of classes over time"
    times, batch = scores.shape[0], scores.shape[1] if scores.dim() == 3 else 1
    inputs, lengths = numbers(given["input_lengths"]), numbers(given["target_lengths"])
    if inputs is None or lengths is None:
        return ""
    if len(inputs) != batch or len(lengths) != batch or not all(0 <= each <= times for each in inputs):
        return f"input_lengths and target_lengths are no {batch} lengths of up to {times}"
    used, why = spelled(targets, lengths)
    if why:
        return why
    if not 0 <= int(given["blank"]) < scores.shape[-1]:
        return f"blank={int(given['blank'])} is no class"
    complaint = first(beyond("targets", part, 0, scores.shape[-1]) for part in used)
    if complaint or "log_alpha" not in given:
        return complaint
    return first(
        (
            counted("neg_log_likelihood", given["neg_log_likelihood"], batch),
            counted("grad", given["grad"], batch),
            unlike("log_alpha", given["log_alpha"], (batch, times, 2 * max(lengths, default=0) + 1)),
        )
    )


def spelled(targets: Tensor, lengths: Sequence[int]) -> tuple[list[Tensor], str]:
    """The parts of the targets that are read, and what is wrong with their lengths."""
    if any(each < 0 for each in lengths):
        return [], "target_lengths holds a negative length"
    if targets.dim() == 1:
        total = sum(lengths)
        return [targets[:total]], f"target_lengths add up to {total}, and targets has {targets.numel()}" * (
            total > targets.numel()
        )
    if targets.dim() != 2 or targets.shape[0] != len(lengths) or max(lengths, default=0) > targets.shape[1]:
        return [], "targets is no table with a row for each length"
    return [row[:length] for row, length in zip(targets, lengths, strict=True)], ""


def numbers(value: Any) -> list[int] | None:
    """A list of numbers, or a tensor of them; None where it has no values."""
    if isinstance(value, Tensor):
        if not readable(value):
            return None
        with torch.no_grad(), _disable_current_modes():
            return [int(each) for each in value.flatten().tolist()]
    return [int(each) for each in value]


def rows_to_places(given: Bound) -> str:
    """Of `_convert_indices_from_coo_to_csr`: each index is a row."""
    if int(given["size"]) < 0 or int(given["size"]) > MOST_ELEMENTS:
        return f"size={int(given['size'])} is no number of rows"
    return beyond("self", given["self"], 0, int(given["size"]))


def places_to_rows(given: Bound) -> str:
    """Of `_convert_indices_from_csr_to_coo`: each place is one in the columns, in order."""
    places, columns = given["crow_indices"], given["col_indices"]
    if (
        not isinstance(places, Tensor)
        or not isinstance(columns, Tensor)
        or places.dim() != columns.dim()
        or not places.dim()
    ):
        return "crow_indices and col_indices do not belong together"
    if places.shape[:-1] != columns.shape[:-1] or places.dtype != columns.dtype:
        return "crow_indices and col_indices do not belong together"
    complaint = beyond("crow_indices", places, 0, columns.shape[-1] + 1)
    return complaint or ("" if rising(places) else "crow_indices go back")


MOST_ELEMENTS = 2**40
"""A number of elements that no machine holds."""


def segmented(given: Bound) -> str:
    """Of segment_reduce and its backward: lengths add up to the data's, offsets are places in it."""
    data, axis = given["data"], int(given["axis"])
    if not isinstance(data, Tensor) or not 0 <= axis < data.dim():
        return f"axis={axis} is none of the data's"
    lengths, offsets, size = given["lengths"], given["offsets"], data.shape[axis]
    if given.get("indices") is not None:
        return "indices are not supported by segment_reduce"
    parts = lengths if isinstance(lengths, Tensor) else offsets
    if not isinstance(parts, Tensor) or parts.dim() != axis + 1 or parts.shape[:-1] != data.shape[:axis]:
        return f"lengths or offsets do not have the shape of the data's first {axis} dimensions and one more"
    if not readable(parts):
        return ""
    complaint = beyond("lengths" if lengths is parts else "offsets", parts, 0, size + 1)
    with torch.no_grad(), _disable_current_modes():
        if not complaint and lengths is parts and bool((parts.sum(-1) != size).any()):
            complaint = f"lengths do not add up to {size}"
        if not complaint and offsets is parts and not rising(parts):
            complaint = "offsets go back"
    return complaint or back_segmented(given, data, axis, parts.shape[-1] - (offsets is parts))


def back_segmented(given: Bound, data: Tensor, axis: int, count: int) -> str:
    """Of segment_reduce's backward: the gradient is that of as many segments."""
    if "grad" not in given:
        return ""
    shape = (*data.shape[:axis], count, *data.shape[axis + 1 :])
    return first((unlike("grad", given["grad"], shape), unlike("output", given["output"], shape)))


TRAPS = {torch.int32: -(2**31), torch.int64: -(2**63)}
"""The number of a dtype that the processor cannot divide by -1."""


def divided(given: Bound) -> str:
    """Of a division of whole numbers: the smallest one by -1 ends the process."""
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
    with torch.no_grad(), _disable_current_modes():
        if bool((torch.as_tensor(left == lowest) & torch.as_tensor(right == -1)).any()):
            return f"{lowest} by -1 has no result, and ends the process"
    return ""


def rounded(given: Bound) -> str:
    """Of `div`, which rounds where it is asked to."""
    return divided(given) if given.get("rounding_mode") is not None else ""


def factored_whole(given: Bound) -> str:
    """Of the least common multiple: the smallest whole number has no absolute value, and ends the process."""
    low = TRAPS.get(torch.result_type(given["self"], given["other"]))
    return "" if low is None else first(beyond(name, given[name], low + 1, -low) for name in ("self", "other"))


def finite(given: Bound) -> str:
    """Of what hands a matrix to LAPACK unseen: finite numbers."""
    matrix = given["self"]
    with torch.no_grad(), _disable_current_modes():
        good = not readable(matrix) or bool(torch.isfinite(matrix).all())
    return "" if good else "self holds NaN or Inf, which ends the process in LAPACK"


def windowed(given: Bound) -> str:
    """Of pools that add up sizes without looking: windows of no odd size."""
    for name in ("kernel_size", "stride", "padding", "dilation"):
        for size in given[name] if isinstance(given[name], (list, tuple)) else [given[name]]:
            if not 0 <= int(size) < 2**31:
                return f"{name}={int(size)} is no size of a window"
    return ""


def is_dividable(value: Any) -> bool:
    """Whether a value is a whole number, or a tensor of them that can be looked at."""
    if isinstance(value, Tensor):
        return not value.dtype.is_floating_point and not value.dtype.is_complex and readable(value)
    return isinstance(value, int)


def normed(given: Bound) -> str:
    """Of batch norms: a number for each channel."""
    x = given.get("input")
    if not isinstance(x, Tensor):
        return ""
    if x.dim() < 2:
        return f"input has {x.dim()} dimensions, and no channels"
    rows = ("weight", "bias", "running_mean", "running_var", "save_mean", "save_invstd", "save_var", "mean", "invstd")
    saved = [name for name in rows if isinstance(given.get(name), Tensor)]
    for name in saved:
        complaint = counted(name, given[name], x.shape[1])
        if complaint and not (name.startswith("save") and given[name].numel() == 0 and not is_training(given)):
            return complaint
    grad = given.get("grad_out", given.get("grad_output"))
    return unlike("grad_out", grad, x.shape) or unkept(given)


TRAINING = ("train", "training", "update")
"""What batch norms call the flag that says whether they train."""


def is_training(given: Bound) -> bool:
    """Whether a batch norm trains."""
    return any(given.get(name) for name in TRAINING)


def unkept(given: Bound) -> str:
    """Of a batch norm: its backward reads in training what the forward saved; all else reads running statistics."""
    if not any(name in given for name in TRAINING) and (
        "eps" not in given or "running_mean" not in given or "count" in given or "counts" in given
    ):
        return ""
    train = is_training(given)
    if train and "save_mean" not in given:
        return ""
    saved = ("save_mean", "save_invstd" if "save_invstd" in given else "save_var")
    names = saved if train else ("running_mean", "running_var")
    absent = [name for name in names if not isinstance(given.get(name), Tensor)]
    return f"{absent[0]} is not there, which the kernel reads" if absent else ""


def layered(given: Bound) -> str:
    """Of layer norms' backwards: a mean and a deviation for each row."""
    x, shape = given["input"], [int(each) for each in given["normalized_shape"]]
    if not isinstance(x, Tensor) or not shape or list(x.shape[-len(shape) :]) != shape:
        return "input does not end in normalized_shape"
    rows, row = math.prod(x.shape[: -len(shape)]), math.prod(shape)
    return first(
        (
            unlike("grad_out", given["grad_out"], x.shape),
            *(counted(name, given[name], rows) for name in ("mean", "rstd") if name in given),
            *(counted(name, given[name], row) for name in ("weight", "bias") if name in given),
        )
    )


def grouped(given: Bound) -> str:
    """Of group norms: sizes that make up the input, groups that divide the channels."""
    x, n, c, plane, group = given["input"], *(int(given[name]) for name in ("N", "C", "HxW", "group"))
    if min(n, c, plane) < 0 or group < 1 or c % group or not isinstance(x, Tensor) or x.numel() != n * c * plane:
        return f"N={n}, C={c}, HxW={plane}, group={group} do not make up the input"
    return first(
        (
            unlike("grad_out", given.get("grad_out"), x.shape),
            *(held(name, given.get(name)) for name in ("input", "grad_out")),
            *(counted(name, given.get(name), c) for name in ("weight", "bias")),
            *(counted(name, given.get(name), n * group) for name in ("mean", "rstd")),
        )
    )


def attended(given: Bound) -> str:
    """Of flash attention on CPU: queries, keys and values of one batch, and what the forward saved of them."""
    query, key, value = (given[name] for name in ("query", "key", "value"))
    if not all(isinstance(each, Tensor) and each.dim() == 4 for each in (query, key, value)):
        return "query, key and value do not have four dimensions"
    batch, heads, length, _ = query.shape
    same = key.shape[:3] == value.shape[:3] and key.shape[0] == batch and key.shape[3] == query.shape[3]
    if not same or not key.shape[1] or heads % key.shape[1]:
        return "query, key and value do not belong together"
    made = (batch, heads, length, value.shape[3])
    return first(
        (
            unlike("grad_out", given.get("grad_out"), made),
            unlike("out", given.get("out"), made),
            unlike("logsumexp", given.get("logsumexp"), (batch, heads, length)),
            masked(given.get("attn_mask"), (batch, heads, length, key.shape[2])),
        )
    )


def masked(mask: Any, shape: Sequence[int]) -> str:
    """What is said of a mask that does not broadcast to the scores."""
    if not isinstance(mask, Tensor):
        return ""
    pairs = zip(reversed(mask.shape), reversed(shape), strict=False)
    good = mask.dim() <= 4 and all(size in (1, wanted) for size, wanted in pairs)
    return "" if good else f"attn_mask has the shape {list(mask.shape)}, which does not broadcast to {list(shape)}"


def sampled(given: Bound) -> str:
    """Of grid_sampler's backward: a gradient for each point of the grid."""
    image, grid, grad = (given[name] for name in ("input", "grid", "grad_output"))
    if not all(isinstance(each, Tensor) and each.dim() == image.dim() >= 4 for each in (image, grid, grad)):
        return "input, grid and grad_output do not belong together"
    return unlike("grad_output", grad, (*image.shape[:2], *grid.shape[1:-1]))


def unfolded(given: Bound) -> str:
    """Of unfold's backward: a gradient of as many windows as there are."""
    sizes, dim, size, step = ([int(n) for n in given["input_sizes"]], *(int(given[k]) for k in ("dim", "size", "step")))
    if not sizes:
        return ""
    if not -len(sizes) <= dim < len(sizes) or step < 1 or not 0 <= size <= sizes[dim] or min(sizes) < 0:
        return f"dim={dim}, size={size}, step={step} are no windows of {sizes}"
    shape = list(sizes)
    shape[dim] = (sizes[dim] - size) // step + 1
    return unlike("grad_in", given["grad_in"], (*shape, size))


def transformed(given: Bound) -> str:
    """Of Fourier transforms: dimensions that are there, each once."""
    x, dims = given["self"], [int(each) for each in given["dim"]]
    rank = x.dim() if isinstance(x, Tensor) else 0
    if any(not 0 <= each < rank for each in dims) or len(set(dims)) != len(dims):  # kernels do not count from the end
        return f"dim={dims} are no dimensions of a tensor that has {rank}"
    if "last_dim_size" in given and (not dims or not 1 <= int(given["last_dim_size"]) <= MOST_ELEMENTS):
        return "there is no last dimension of this size"
    if "last_dim_size" in given and x.shape[dims[-1]] < int(given["last_dim_size"]) // 2 + 1:
        return f"last_dim_size={int(given['last_dim_size'])} is more than the tensor has"
    return ""


def spanned(given: Bound) -> str:
    """Of an alias with other sizes and strides: it stays in the storage."""
    x, sizes, strides = given["self"], *([int(n) for n in given[name]] for name in ("size", "stride"))
    if not isinstance(x, Tensor) or x.layout is not torch.strided or len(sizes) != len(strides):
        return "sizes and strides do not belong together"
    if min((*sizes, *strides), default=0) < 0:
        return "a size or a stride is negative"
    last = x.storage_offset() + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    if 0 not in sizes and last >= x.untyped_storage().nbytes() // x.element_size():
        return f"sizes {sizes} and strides {strides} lead out of the tensor's storage"
    return ""


def coo(given: Bound) -> str:
    """Of a sparse tensor: indices that lie in its sizes."""
    return refusal(
        lambda: torch._validate_sparse_coo_tensor_args(
            given["indices"], given["values"], given["size"], given.get("is_coalesced")
        ),
        given,
    )


def compressed(layout: torch.layout | None, outer: str, inner: str) -> Check:
    """Of a compressed sparse tensor: indices that lie in its sizes."""

    def check(given: Bound) -> str:
        kind = layout or given["layout"]
        if kind is None:
            return "layout is not said"
        return refusal(
            lambda: torch._validate_sparse_compressed_tensor_args(
                given[outer], given[inner], given["values"], [int(n) for n in given["size"]], kind
            ),
            given,
        )

    return check


def refusal(validate: Callable[[], Any], given: Bound) -> str:
    """What torch's own validation says, where there are values."""
    if not all(readable(each) for each in given.values() if isinstance(each, Tensor)):
        return ""
    try:
        with torch.no_grad(), _disable_current_modes():
            validate()
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return str(error).splitlines()[0]
    return ""


def recurrent(given: Bound) -> str:
    """Of oneDNN's recurrent layers: weights and states of one hidden size. Each layer and direction is a call."""
    x, hidden = given["input"], int(given["hidden_size"])
    names = ("weight0", "weight1", "weight2", "weight3")
    names = names if "weight0" in given else ("weight1", "weight2", "weight3", "weight4")
    if not isinstance(x, Tensor) or x.dim() != 3 or hidden < 1 or not 1 <= int(given["num_layers"]) <= MOST_ROUNDS:
        return "input, hidden_size and num_layers are those of no layer"
    gates = {2: 4, 3: 3}.get(int(given["mode"]), 1) * hidden
    wide, deep, *biases = (given[name] for name in names)
    states = [given[name] for name in ("hx_", "cx_", "cx_tmp", "hy_", "cy_", "grad_hy", "grad_cy") if name in given]
    batch = x.shape[1]
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor) and name != "workspace"}
    read = {name: each for name, each in tensors.items() if not name.startswith("grad_")}  # those the kernel copies
    return first(
        (
            *(
                f"{name} is {each.dtype}, and input {x.dtype}" * (each.dtype != x.dtype)
                for name, each in tensors.items()
            ),
            *(held(name, each) for name, each in read.items()),
            unlike(names[0], wide, (gates, x.shape[2])),
            unlike(names[1], deep, (gates, hidden)),
            *(counted(name, bias, gates) for name, bias in zip(names[2:], biases, strict=True) if given["has_biases"]),
            *(counted("a state", state, batch * hidden) for state in states),
            *(unlike(name, given.get(name), (*x.shape[:2], hidden)) for name in ("output", "grad_output")),
        )
    )


def recurrent_back(given: Bound) -> str:
    """Of their backward: the workspace too, which has the size that the forward makes."""
    if complaint := recurrent(given) or ("batch_sizes are not supported" if given["batch_sizes"] else ""):
        return complaint
    x, workspace = given["input"], given["workspace"]
    if not readable(x) or not readable(workspace):
        return ""
    named = ("reverse", "mode", "hidden_size", "num_layers", "has_biases", "bidirectional", "batch_first")
    size = workspace_of(tuple(x.shape), x.dtype, *(int(given[name]) for name in named))
    if not workspace.is_contiguous() or workspace.dtype is not torch.uint8:
        return "the workspace is no block of bytes"
    return counted("the workspace", workspace, size)


@functools.lru_cache(maxsize=256)
def workspace_of(
    shape: tuple[int, ...], dtype: torch.dtype, reverse: int, mode: int, hidden: int, layers: int, biases: int,
    both: int, first_batch: int,
) -> int:  # fmt: skip
    """The bytes of the workspace of a recurrent layer, which its forward makes; -1 where it does not run."""
    times, batch, width = shape
    gates = {2: 4, 3: 3}.get(mode, 1) * hidden
    shapes = (
        (times, batch, width),
        (gates, width),
        (gates, hidden),
        (gates,),
        (gates,),
        (batch, hidden),
        (batch, hidden),
    )
    flags: tuple[Any, ...] = (
        bool(reverse),
        [],
        mode,
        hidden,
        layers,
        bool(biases),
        bool(both),
        bool(first_batch),
        True,
    )
    try:
        with torch.enable_grad(), _disable_current_modes():
            tensors = [torch.zeros(each, dtype=dtype) for each in shapes]
            made: Tensor = torch.ops.aten.mkldnn_rnn_layer(*tensors, *flags)[3]
            return made.numel()
    except RuntimeError:
        return -1


def paired(given: Bound) -> str:
    """Of operators on lists of tensors: lists of one length."""
    lists = {
        name: value for name, value in given.items() if isinstance(value, (list, tuple)) and any(map(is_tensor, value))
    }
    lengths = {name: len(value) for name, value in lists.items()}
    if len(set(lengths.values())) > 1:
        return "lists of tensors of unlike lengths: " + ", ".join(f"{name} has {n}" for name, n in lengths.items())
    return ""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Tensor)


def factored(given: Bound) -> str:
    """Of what takes an LU factorisation: each pivot is a row."""
    matrix = given.get("LU", given.get("LU_data"))
    pivots = given.get("pivots", given.get("LU_pivots"))
    if not isinstance(matrix, Tensor) or not isinstance(pivots, Tensor) or matrix.dim() < 2:
        return "LU and pivots are no factorisation"
    rows, columns = matrix.shape[-2:]
    if pivots.dim() < 1 or pivots.shape[-1] != min(rows, columns):
        return f"pivots has the shape {list(pivots.shape)}, and LU {list(matrix.shape)}"
    return unlike("pivots", pivots, (*matrix.shape[:-2], min(rows, columns))) or beyond("pivots", pivots, 1, rows + 1)


def factored_symmetric(given: Bound) -> str:
    """Of what takes an LDL factorisation: each pivot is a row, negative ones stand in pairs."""
    matrix, pivots = given["LD"], given["pivots"]
    if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        return "LD is no square matrix"
    rows = matrix.shape[-1]
    complaint = unlike("pivots", pivots, matrix.shape[:-1]) or beyond("pivots", pivots, -rows, rows + 1)
    if complaint or not readable(pivots):
        return complaint
    with torch.no_grad(), _disable_current_modes():
        for row in pivots.reshape(-1, max(rows, 1)).tolist():
            runs = [len(list(run)) for negative, run in itertools.groupby(row, lambda pivot: pivot < 0) if negative]
            if 0 in row or any(length % 2 for length in runs):
                return "pivots holds a 0, or a negative number without its other half"
    return ""


def distant(given: Bound) -> str:
    """Of the backwards of pdist and cdist: a gradient for each distance."""
    grad = given["grad"] if "grad" in given else given["grad_output"]  # as torch 2.14 calls it
    if "pdist" in given:
        count = given["self"].shape[0]
        pairs = count * (count - 1) // 2
        if not given["self"].numel():
            return "self has no points"
        return counted("grad", grad, pairs) or counted("pdist", given["pdist"], pairs)
    sizes = [given["x1"].shape[-2], given["x2"].shape[-2]]
    if list(grad.shape[-2:]) != sizes:
        return f"grad has the shape {list(grad.shape)}, which should end in {sizes}"
    return unlike("cdist", given["cdist"], grad.shape)


def scaled_weight(given: Bound) -> str:
    """Of weight norm: a scale for each row or column of a weight that has some."""
    weight = given.get("v", given.get("saved_v"))
    if not isinstance(weight, Tensor) or not weight.numel() or int(given["dim"]) not in (0, weight.dim() - 1):
        return "the weight is empty, or dim is neither its first nor its last dimension"
    rows = weight.shape[int(given["dim"])]
    names = ("g", "saved_g", "saved_norms")
    return first(
        (*(counted(name, given.get(name), rows) for name in names), unlike("grad_w", given.get("grad_w"), weight.shape))
    )


def softened(given: Bound) -> str:
    """Of a softmax's backward: a gradient for each number of its output."""
    output = given["output"]
    return unlike("grad_output", given.get("grad_output", given.get("grad")), output.shape)


def convolved(given: Bound) -> str:
    """Of convolutions that are told the size of their kernel: it is that of the weight."""
    weight, sizes = given["weight"], given["kernel_size"]
    sizes = [int(each) for each in sizes] if isinstance(sizes, (list, tuple)) else [int(sizes)]
    if not isinstance(weight, Tensor) or weight.dim() < 3:
        return "weight has no kernels"
    kernel = list(weight.shape[2:])
    sizes = sizes * len(kernel) if len(sizes) == 1 else sizes
    return "" if sizes == kernel else f"kernel_size={sizes}, and the kernels of weight are {kernel}"


def sobol(given: Bound) -> str:
    """Of Sobol's sequences: a state of 30 bits for each dimension."""
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


def headed(given: Bound) -> str:
    """Of attention's heads: one or more."""
    return "" if int(given["num_heads"]) > 0 else f"num_heads={given['num_heads']}"


def some(given: Bound) -> str:
    """Of what stacks tensors: one or more."""
    return "" if given["tensors"] else "no tensors to stack"


def rounds(name: str, most: int = MOST_ROUNDS) -> Check:
    """Of kernels that go round a loop as often as an argument says."""

    def check(given: Bound) -> str:
        count = given[name]
        if isinstance(count, Tensor):
            if not readable(count) or not count.numel():
                return ""
            with torch.no_grad(), _disable_current_modes():
                count = count.max().item()
        return f"{name}={count} rounds of a kernel's loop; a graph may ask for {most:,}" if count > most else ""

    return check


def pieces(given: Bound) -> str:
    """Of what cuts a tensor into as many pieces as it is told, empty ones too."""
    return rounds("sections")(given) if isinstance(given.get("sections"), int) else ""


def combined(given: Bound) -> str:
    """Of a sum of matrices with coefficients: a coefficient for each matrix, of its dtype."""
    matrices, factors = given["input"], given["coefficients"]
    if matrices.dim() < 1 or factors.dim() != 2 or factors.shape[1] != matrices.shape[0]:
        return f"coefficients have the shape {list(factors.shape)}, and input {list(matrices.shape)}"
    return f"coefficients are {factors.dtype}, and input {matrices.dtype}" * (factors.dtype != matrices.dtype)


def ranged(given: Bound) -> str:
    """Of `range`: a step that is not nothing in the dtype of the result."""
    kind = given["out"].dtype if isinstance(given.get("out"), Tensor) else given.get("dtype")
    whole = kind is not None and not kind.is_floating_point and not kind.is_complex
    return f"step={given['step']!r} is 0 in {kind}" if whole and not int(given.get("step", 1)) else ""


def begun(given: Bound) -> str:
    """Of numbers drawn from one on: one that floats know, as the kernel goes on until it is below the largest."""
    start = given.get("from")
    if start is None or given.get("to") is not None or abs(int(start)) <= 2**53:
        return ""
    return f"from={int(start)} without an end is more than 2^53"


def resized(given: Bound) -> str:
    """Of resizing with antialiasing: scales that lead from the one size to the other."""
    x = given.get("self")
    before = [int(each) for each in given.get("input_size") or (x.shape if isinstance(x, Tensor) else ())][2:]
    after, scales = given["output_size"], [given.get(f"scales{side}") for side in ("_h", "_w")]
    if after is None or len(before) != len(after) or "scale_factors" in given:
        return ""
    for now, then, scale in zip(before, map(int, after), scales, strict=False):
        if isinstance(scale, (int, float)) and not (scale > 0 and abs(now * scale - then) <= 1.000001):
            return f"a scale of {scale} does not make {then} of {now}"
    return ""


def unbatched(given: Bound) -> str:
    """Of the end of a vmap: a place for its dimension, which is not counted from the end where there is none."""
    x, place = given["self"], int(given["out_dim"])
    batched = torch._C._functorch.is_functorch_wrapped_tensor(x)
    if -(x.dim() + 1) * batched <= place <= x.dim() and int(given["batch_size"]) >= 0:
        return ""
    return f"out_dim={place} is no place for a dimension of a tensor that has {x.dim()}"


def repeated(given: Bound) -> str:
    """Of a repetition by values: there is room for as many."""
    counts, item = given["repeats"], given.get("self")
    if not isinstance(counts, Tensor) or not readable(counts) or counts.is_floating_point():
        return ""
    with torch.no_grad(), _disable_current_modes():
        total = int(counts.clamp(min=0).to(torch.float64).sum())
    if isinstance(item, Tensor) and counts.numel():
        dim = given.get("dim")
        spread = item.numel() if dim is None else item.shape[int(dim)]
        return too_large(total * item.nbytes // max(counts.numel() if counts.numel() > 1 else 1, 1)) if spread else ""
    return too_large(total * counts.element_size())


def enumerated(given: Bound) -> str:
    """Of what makes a place for each number up to the largest: there is room for them."""
    numbers, classes = given["self"], int(given.get("num_classes", -1))
    if not readable(numbers) or not numbers.numel() or numbers.is_floating_point() or classes >= 0:
        return ""
    with torch.no_grad(), _disable_current_modes():
        largest = int(numbers.max())
    return too_large((largest + 1) * 8 * (numbers.numel() if "num_classes" in given else 1))


def decimal(given: Bound) -> str:
    """Of rounding to decimals: as many as a float may have. Their power of ten is a whole number to some kernels."""
    count = int(given.get("decimals", 0))
    return f"decimals={count}; a float has 1,100 at most" if abs(count) > 1100 else ""


def combined_all(given: Bound) -> str:
    """Of combinations: each of so many is looked at, also those that are none."""
    count, size = given["self"].numel(), int(given["r"])
    looked = size * count**size if size <= 64 else 2**63
    most = 2**26
    return f"r={size} of {count} looks at {looked:,} numbers; a graph may ask for {most:,}" if looked > most else ""


def every(check: Check, names: str) -> dict[str, Check]:
    """Rows for operators that have one check."""
    return dict.fromkeys(names.split(), check)


CHECKS: dict[str, Check] = {
    "aten.max_pool2d_with_indices_backward": pooled(2, -1),
    "aten.max_pool3d_with_indices_backward": pooled(3, -1),
    "aten.adaptive_max_pool2d_backward": pooled(2),
    "aten.adaptive_max_pool3d_backward": pooled(3),
    "aten.fractional_max_pool2d_backward": pooled(2),
    "aten.fractional_max_pool3d_backward": pooled(3),
    "aten._adaptive_avg_pool2d_backward": averaged(2),
    "aten._adaptive_avg_pool3d_backward": averaged(3),
    "aten.adaptive_max_pool2d": spread(2),
    "aten.adaptive_max_pool3d": spread(3),
    "aten.max_unpool2d": unpooled(2),
    "aten.max_unpool3d": unpooled(3),
    "aten.embedding_dense_backward": embedded,
    "aten.embedding_sparse_backward": embedded,
    "aten.embedding_backward": embedded,
    "aten._embedding_bag": bagged,
    "aten._embedding_bag_forward_only": bagged,
    "aten.nll_loss_backward": classed,
    "aten.nll_loss2d_backward": classed,
    "aten._ctc_loss": aligned,
    "aten.ctc_loss": aligned,
    "aten._ctc_loss_backward": aligned,
    "aten._convert_indices_from_coo_to_csr": rows_to_places,
    "aten._convert_indices_from_csr_to_coo": places_to_rows,
    "aten.segment_reduce": segmented,
    "aten._segment_reduce_backward": segmented,
    "aten.native_layer_norm_backward": layered,
    "aten._fused_rms_norm_backward": layered,
    "aten.native_group_norm": grouped,
    "aten.native_group_norm_backward": grouped,
    "aten._scaled_dot_product_flash_attention_for_cpu": attended,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": attended,
    "aten.grid_sampler_2d_backward": sampled,
    "aten.grid_sampler_3d_backward": sampled,
    "aten._grid_sampler_2d_cpu_fallback_backward": sampled,
    "aten.unfold_backward": unfolded,
    "aten._fft_c2c": transformed,
    "aten._fft_c2r": transformed,
    "aten._fft_r2c": transformed,
    "prims.fft_c2c": transformed,
    "prims.fft_c2r": transformed,
    "prims.fft_r2c": transformed,
    "aten._reshape_alias": spanned,
    "aten._reshape_alias_copy": spanned,
    "aten._sparse_coo_tensor_unsafe": coo,
    "aten._sparse_coo_tensor_with_dims_and_tensors": coo,
    "aten._sparse_compressed_tensor_unsafe": compressed(None, "compressed_indices", "plain_indices"),
    "aten._sparse_csr_tensor_unsafe": compressed(torch.sparse_csr, "crow_indices", "col_indices"),
    "aten._sparse_csc_tensor_unsafe": compressed(torch.sparse_csc, "ccol_indices", "row_indices"),
    "aten._sparse_bsr_tensor_unsafe": compressed(torch.sparse_bsr, "crow_indices", "col_indices"),
    "aten._sparse_bsc_tensor_unsafe": compressed(torch.sparse_bsc, "ccol_indices", "row_indices"),
    "aten.mkldnn_rnn_layer": recurrent,
    "aten.mkldnn_rnn_layer_backward": recurrent_back,
    "aten.linalg_ldl_solve": factored_symmetric,
    "aten._embedding_bag_backward": unbagged,
    "aten._embedding_bag_dense_backward": unbagged,
    "aten._embedding_bag_sparse_backward": unbagged,
    "aten._embedding_bag_per_sample_weights_backward": unbagged,
    "aten.multi_margin_loss_backward": margined,
    "aten.multilabel_margin_loss_backward": margined,
    "aten.lu_unpack": factored,
    "aten.linalg_lu_solve": factored,
    "aten.lu_solve": factored,
    "aten._pdist_backward": distant,
    "aten._cdist_backward": distant,
    "aten._weight_norm": scaled_weight,
    "aten._weight_norm_interface": scaled_weight,
    "aten._weight_norm_interface_backward": scaled_weight,
    "aten._transform_bias_rescale_qkv": headed,
    "aten._softmax_backward_data": softened,
    "aten._log_softmax_backward_data": softened,
    "aten.lcm": factored_whole,
    "aten.lcm_": factored_whole,
    "aten.gcd": factored_whole,
    "aten.gcd_": factored_whole,
    "aten._linalg_eigvals": finite,
    "aten.linalg_eigvals": finite,
    "aten.max_pool1d": windowed,
    "aten.max_pool1d_with_indices": windowed,
    "aten._stack": some,
    "aten._remove_batch_dim": unbatched,
    "aten.repeat_interleave": repeated,
    "aten.bincount": enumerated,
    "aten.one_hot": enumerated,
    **every(decimal, "aten.round aten.round_ aten.special_round"),
    "aten.range": ranged,
    "aten.random": begun,
    "aten.random_": begun,
    "aten._compute_linear_combination": combined,
    "aten.mvlgamma": rounds("p"),
    "aten.mvlgamma_": rounds("p"),
    "aten.special_multigammaln": rounds("p"),
    "aten.combinations": combined_all,
    "aten._ncf_unsqueeze": rounds("ndim", 64),
    **every(pieces, "aten.tensor_split aten.hsplit aten.vsplit aten.dsplit"),
    **every(rounded, "aten.div aten.div_ aten.divide aten.divide_"),
    **every(divided, "aten.floor_divide aten.floor_divide_ aten.remainder aten.remainder_ aten.fmod aten.fmod_"),
    **every(divided, "prims.div prims.remainder prims.fmod"),
    **every(convolved, "aten.slow_conv_transpose2d aten.slow_conv_transpose3d aten.slow_conv_dilated2d"),
    **every(convolved, "aten.slow_conv_dilated3d aten.slow_conv3d aten.slow_conv3d_forward aten.conv_depthwise3d"),
    **every(convolved, "aten._conv_depthwise2d aten.thnn_conv2d aten._slow_conv2d_forward"),
}
"""The check of an operator, by its name without the overload."""


def family_check(packet: str) -> Check | None:
    """The check that a family of operators has by its name."""
    if "batch_norm" in packet:
        return normed
    if packet.startswith("aten._foreach_"):
        return paired
    if packet.startswith("aten._sobol_engine_"):
        return sobol
    if packet.endswith("_window"):
        return rounds("window_length", 2**26)
    if packet.startswith("aten._upsample_") and "_aa" in packet:
        return resized
    if packet.startswith("aten.special_") and "polynomial" in packet:
        return rounds("n")
    return None
