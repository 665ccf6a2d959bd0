"""Checks of the arguments of operators whose kernels trust them, by families of operators.

A check gets the arguments of a call by the schema's names, and returns a complaint, '' if there is none. A tensor
without values (fake, meta) reaches no kernel, so its values are not read.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from backprint._torch.functorch import is_functorch_tensor
from backprint._torch.modes import without_modes
from backprint._torch.tensors import check_compressed_parts, check_coo_parts
from backprint.common.memory import why_too_large

Arguments: TypeAlias = Mapping[str, Any]
"""A call's arguments by the schema's names, defaults included."""

Check: TypeAlias = Callable[[Arguments], str]
"""Returns the complaint about a call, '' if there is none."""

MOST_ROUNDS = 2**16
"""The most iterations of a kernel's loop whose count is an argument."""


@contextlib.contextmanager
def reading_values() -> Iterator[None]:
    """Read values outside of all modes and of autograd."""
    with torch.no_grad(), without_modes():
        yield


def readable(value: Any) -> bool:
    """Whether a tensor's values can be read."""
    return (
        type(value) in (Tensor, nn.Parameter)
        and not value.is_meta
        and value.layout is torch.strided
        and not is_wrapped(value)
    )


def is_wrapped(value: Tensor) -> bool:
    """Whether a function transform, such as vmap, hides a tensor's values."""
    return bool(is_functorch_tensor(value))


def index_complaint(name: str, value: Any, low: int, high: int, also: Iterable[int] = ()) -> str:
    """Return the complaint about a tensor with a number outside [low, high)."""
    if isinstance(value, Tensor) and value.layout is not torch.strided:
        return f"{name} is a {value.layout} tensor, which holds no indices"
    if not readable(value) or value.numel() == 0:
        return ""
    with reading_values():
        is_outside = (value < low) | (value != value)
        if high < 2**63:  # torch compares only with numbers of the dtype
            is_outside |= value >= high
        for value_allowed in also:
            is_outside &= value != value_allowed
        if not bool(is_outside.any()):
            return ""
        value_outside = value[is_outside].flatten()[0].item()
    return f"{name} holds {value_outside}, which is not in [{low}, {high})"


def shape_complaint(name: str, value: Any, shape: Sequence[int]) -> str:
    """Return the complaint about a tensor of another shape."""
    if not isinstance(value, Tensor) or tuple(value.shape) == tuple(shape):
        return ""
    return f"{name} has the shape {list(value.shape)}, which should be {list(shape)}"


def count_complaint(name: str, value: Any, count: int) -> str:
    """Return the complaint about a tensor with another number of elements."""
    if not isinstance(value, Tensor) or value.numel() == count:
        return ""
    return f"{name} has {value.numel()} elements, which should be {count}"


def memory_complaint(name: str, value: Any) -> str:
    """Return the complaint about a tensor with more elements than its storage has (an expanded one), if a kernel reads
    as many from its memory."""
    if not readable(value) or value.storage_offset() + value.numel() <= value.untyped_storage().nbytes() // max(
        value.element_size(), 1
    ):
        return ""
    return f"{name} has {value.numel()} elements, and memory for fewer"


def first_complaint(complaints: Iterable[str]) -> str:
    """Return the first complaint that is not ''."""
    return next((complaint for complaint in complaints if complaint), "")


def is_nondecreasing(value: Tensor) -> bool:
    """Whether a tensor's numbers never decrease along its last dimension."""
    if not readable(value):
        return True
    with reading_values():
        return bool((value[..., 1:] >= value[..., :-1]).all())


def numbers_in(value: Any) -> list[int] | None:
    """Return a list of numbers, or a tensor's; None if it has no values."""
    if isinstance(value, Tensor):
        if not readable(value):
            return None
        with reading_values():
            return [int(number) for number in value.flatten().tolist()]
    return [int(number) for number in value]


MOST_ELEMENTS = 2**40
"""More elements than fit into any machine."""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    return isinstance(value, Tensor)


# ---- Divisions that crash a process, and numbers that determine how long a kernel's loop or how large its result is

SMALLEST_INTEGERS = {torch.int32: -(2**31), torch.int64: -(2**63)}
"""The number of a dtype that the processor cannot divide by -1."""


def check_division(arguments: Arguments) -> str:
    """Check an integer division: the smallest integer divided by -1 crashes the process."""
    left, right = arguments.get("self", arguments.get("a")), arguments.get("other", arguments.get("b"))
    if not all(map(is_dividable, (left, right))):
        return ""
    if not any(isinstance(side, Tensor) for side in (left, right)):
        return ""
    lowest = SMALLEST_INTEGERS.get(torch.result_type(left, right))
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


def check_rounding_division(arguments: Arguments) -> str:
    """Check `div`, if it rounds."""
    return check_division(arguments) if arguments.get("rounding_mode") is not None else ""


def check_lcm(arguments: Arguments) -> str:
    """Check the least common multiple: the smallest integer has no absolute value, and crashes the process."""
    low = SMALLEST_INTEGERS.get(torch.result_type(arguments["self"], arguments["other"]))
    return (
        ""
        if low is None
        else first_complaint(index_complaint(name, arguments[name], low + 1, -low) for name in ("self", "other"))
    )


def is_dividable(value: Any) -> bool:
    """Whether a value is an integer, or a tensor of integers that can be read."""
    if isinstance(value, Tensor):
        return not value.dtype.is_floating_point and not value.dtype.is_complex and readable(value)
    return isinstance(value, int)


def check_copied_list(arguments: Arguments) -> str:
    """Check a copy of a list of tensors into another: both have one length, also where one is empty."""
    targets, sources = arguments["self"], arguments["src"]
    lengths = [len(value) if isinstance(value, (list, tuple)) else 0 for value in (targets, sources)]
    unlike = f"lists of tensors of unlike lengths: self has {lengths[0]}, src has {lengths[1]}"
    return "" if lengths[0] == lengths[1] else unlike


def check_list_lengths(arguments: Arguments) -> str:
    """Check operators on lists of tensors: the lists have one length."""
    lists = {
        name: value
        for name, value in arguments.items()
        if isinstance(value, (list, tuple)) and any(map(is_tensor, value))
    }
    lengths = {name: len(value) for name, value in lists.items()}
    if len(set(lengths.values())) > 1:
        return "lists of tensors of unlike lengths: " + ", ".join(f"{name} has {n}" for name, n in lengths.items())
    return ""


def check_sobol(arguments: Arguments) -> str:
    """Check Sobol sequences: the state has 30 bits for each dimension."""
    dims, bits = int(arguments["dimension"]), 30
    state = arguments.get("sobolstate", arguments["self"])
    if not 1 <= dims <= 21201:
        return f"dimension={dims}; a sequence has 1 to 21,201"
    drawn = int(arguments.get("num_generated", 0)) + int(arguments.get("n", 0))
    if not 0 <= drawn < 2**bits or int(arguments.get("n", 0)) < 0 or int(arguments.get("num_generated", 0)) < 0:
        return f"{drawn} points; a sequence has {2**bits}"
    return first_complaint(
        (
            shape_complaint("the state", state, (dims, bits)),
            shape_complaint("quasi", arguments.get("quasi"), (dims,)),
            shape_complaint("ltm", arguments.get("ltm"), (dims, bits, bits)),
            shape_complaint(
                "self", arguments["self"] if "sobolstate" in arguments and "quasi" not in arguments else None, (dims,)
            ),
        )
    )


def check_not_empty(arguments: Arguments) -> str:
    """Check operators that stack tensors: there is at least one."""
    return "" if arguments["tensors"] else "no tensors to stack"


def loop_count_check(name: str, most: int = MOST_ROUNDS) -> Check:
    """Return a check of kernels whose loop count is an argument."""

    def check(arguments: Arguments) -> str:
        count = arguments[name]
        if isinstance(count, Tensor):
            if not readable(count) or not count.numel():
                return ""
            with reading_values():
                count = count.max().item()
        return f"{name}={count} iterations of a kernel's loop; a graph may have {most:,}" if count > most else ""

    return check


def check_number_of_pieces(arguments: Arguments) -> str:
    """Check operators that cut a tensor into a number of pieces: that number is limited, because pieces may be
    empty."""
    return loop_count_check("sections")(arguments) if isinstance(arguments.get("sections"), int) else ""


def check_range(arguments: Arguments) -> str:
    """Check `range`: the step is not zero in the dtype of the result."""
    kind = arguments["out"].dtype if isinstance(arguments.get("out"), Tensor) else arguments.get("dtype")
    whole = kind is not None and not kind.is_floating_point and not kind.is_complex
    return f"step={arguments['step']!r} is 0 in {kind}" if whole and not int(arguments.get("step", 1)) else ""


def check_lower_bound(arguments: Arguments) -> str:
    """Check random numbers drawn from a lower bound on: floats can represent it, because the kernel loops until it is
    below the largest."""
    start = arguments.get("from")
    if start is None or arguments.get("to") is not None or abs(int(start)) <= 2**53:
        return ""
    return f"from={int(start)} without an end is more than 2^53"


def check_vmap_dim(arguments: Arguments) -> str:
    """Check the end of a vmap: its dimension is a valid, non-negative place."""
    x, place = arguments["self"], int(arguments["out_dim"])
    batched = is_wrapped(x)
    if -(x.dim() + 1) * batched <= place <= x.dim() and int(arguments["batch_size"]) >= 0:
        return ""
    return f"out_dim={place} is not a place for a dimension of a tensor that has {x.dim()}"


def check_repeat_interleave(arguments: Arguments) -> str:
    """Check a repetition by values: the result fits in memory."""
    counts, repeated = arguments["repeats"], arguments.get("self")
    if not isinstance(counts, Tensor) or not readable(counts) or counts.is_floating_point():
        return ""
    with reading_values():
        total = int(counts.clamp(min=0).to(torch.float64).sum())
    if isinstance(repeated, Tensor) and counts.numel():
        dim = arguments.get("dim")
        spread = repeated.numel() if dim is None else repeated.shape[int(dim)]
        return (
            why_too_large(total * repeated.nbytes // max(counts.numel() if counts.numel() > 1 else 1, 1))
            if spread
            else ""
        )
    return why_too_large(total * counts.element_size())


def check_size_from_largest_value(arguments: Arguments) -> str:
    """Check operators that make an element for each number up to the largest: the result fits in memory."""
    numbers, classes = arguments["self"], int(arguments.get("num_classes", -1))
    if not readable(numbers) or not numbers.numel() or numbers.is_floating_point() or classes >= 0:
        return ""
    with reading_values():
        largest = int(numbers.max())
    return why_too_large((largest + 1) * 8 * (numbers.numel() if "num_classes" in arguments else 1))


def check_decimals(arguments: Arguments) -> str:
    """Check rounding to decimals: no more than a float may have. Some kernels compute their power of ten as an
    integer."""
    count = int(arguments.get("decimals", 0))
    return f"decimals={count}; a float has 1,100 at most" if abs(count) > 1100 else ""


def check_combinations(arguments: Arguments) -> str:
    """Check combinations: the kernel tries each of them, including those that do not count."""
    count, size = arguments["self"].numel(), int(arguments["r"])
    looked = size * count**size if size <= 64 else 2**63
    most = 2**26
    return f"r={size} of {count} reads {looked:,} numbers; a graph may have {most:,}" if looked > most else ""


# ---- Sparse tensors, segments and aliases: indices are within the sizes, sizes and strides within the storage


def check_coo_to_csr(arguments: Arguments) -> str:
    """Check `_convert_indices_from_coo_to_csr`: each index is a row."""
    if int(arguments["size"]) < 0 or int(arguments["size"]) > MOST_ELEMENTS:
        return f"size={int(arguments['size'])} is not a number of rows"
    return index_complaint("self", arguments["self"], 0, int(arguments["size"]))


def check_csr_to_coo(arguments: Arguments) -> str:
    """Check `_convert_indices_from_csr_to_coo`: each pointer is a position among the columns, in order."""
    places, columns = arguments["crow_indices"], arguments["col_indices"]
    if (
        not isinstance(places, Tensor)
        or not isinstance(columns, Tensor)
        or places.dim() != columns.dim()
        or not places.dim()
    ):
        return "crow_indices and col_indices do not belong together"
    if places.shape[:-1] != columns.shape[:-1] or places.dtype != columns.dtype:
        return "crow_indices and col_indices do not belong together"
    complaint = index_complaint("crow_indices", places, 0, columns.shape[-1] + 1)
    return complaint or ("" if is_nondecreasing(places) else "crow_indices go back")


def check_segment_reduce(arguments: Arguments) -> str:
    """Check segment_reduce and its backward: lengths add up to no more than the data's, offsets are positions in it."""
    data, axis = arguments["data"], int(arguments["axis"])
    if not isinstance(data, Tensor) or not 0 <= axis < data.dim():
        return f"axis={axis} is not one of the data's"
    lengths, offsets, size = arguments["lengths"], arguments["offsets"], data.shape[axis]
    if arguments.get("indices") is not None:
        return "indices are not supported by segment_reduce"
    parts = lengths if isinstance(lengths, Tensor) else offsets
    if not isinstance(parts, Tensor) or parts.dim() != axis + 1 or parts.shape[:-1] != data.shape[:axis]:
        return f"lengths or offsets do not have the shape of the data's first {axis} dimensions and one more"
    if not readable(parts):
        return ""
    complaint = index_complaint("lengths" if lengths is parts else "offsets", parts, 0, size + 1)
    with reading_values():
        if not complaint and lengths is parts and bool((parts.sum(-1) > size).any()):
            complaint = f"lengths add up to more than {size}"
        if not complaint and offsets is parts and not is_nondecreasing(parts):
            complaint = "offsets go back"
    return complaint or segment_gradient_complaint(arguments, data, axis, parts.shape[-1] - (offsets is parts))


def segment_gradient_complaint(arguments: Arguments, data: Tensor, axis: int, count: int) -> str:
    """Check segment_reduce's backward: the gradient has as many segments."""
    if "grad" not in arguments:
        return ""
    shape = (*data.shape[:axis], count, *data.shape[axis + 1 :])
    return first_complaint(
        (shape_complaint("grad", arguments["grad"], shape), shape_complaint("output", arguments["output"], shape))
    )


def check_as_strided(arguments: Arguments) -> str:
    """Check an alias with other sizes and strides: it stays in the storage."""
    x, sizes, strides = arguments["self"], *([int(n) for n in arguments[name]] for name in ("size", "stride"))
    if not isinstance(x, Tensor) or x.layout is not torch.strided or len(sizes) != len(strides):
        return "sizes and strides do not belong together"
    if min((*sizes, *strides), default=0) < 0:
        return "a size or a stride is negative"
    last = x.storage_offset() + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    if 0 not in sizes and last >= x.untyped_storage().nbytes() // x.element_size():
        return f"sizes {sizes} and strides {strides} lead out of the tensor's storage"
    return ""


def check_coo(arguments: Arguments) -> str:
    """Check a sparse tensor: indices are within its sizes."""
    return validation_complaint(
        lambda: check_coo_parts(
            arguments["indices"], arguments["values"], arguments["size"], arguments.get("is_coalesced")
        ),
        arguments,
    )


def compressed_check(layout: torch.layout | None, outer: str, inner: str) -> Check:
    """Return a check of a compressed sparse tensor: indices are within its sizes."""

    def check(arguments: Arguments) -> str:
        kind = layout or arguments["layout"]
        if kind is None:
            return "layout is not said"
        return validation_complaint(
            lambda: check_compressed_parts(
                arguments[outer], arguments[inner], arguments["values"], [int(n) for n in arguments["size"]], kind
            ),
            arguments,
        )

    return check


def validation_complaint(validate: Callable[[], Any], arguments: Arguments) -> str:
    """Return the error of torch's own validation, if there are values."""
    if not all(readable(item) for item in arguments.values() if isinstance(item, Tensor)):
        return ""
    try:
        with reading_values():
            validate()
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        return str(error).splitlines()[0]
    return ""


# ---- Norms, softmax and attention: statistics, scales and gradients of the right number and shape


def check_batch_norm(arguments: Arguments) -> str:
    """Check batch norms: there is a number for each channel."""
    x = arguments.get("input")
    if not isinstance(x, Tensor):
        return ""
    if x.dim() < 2:
        return f"input has {x.dim()} dimensions, and no channels"
    rows = ("weight", "bias", "running_mean", "running_var", "save_mean", "save_invstd", "save_var", "mean", "invstd")
    saved = [name for name in rows if isinstance(arguments.get(name), Tensor)]
    for name in saved:
        complaint = count_complaint(name, arguments[name], x.shape[1])
        if complaint and not (name.startswith("save") and arguments[name].numel() == 0 and not is_training(arguments)):
            return complaint
    grad = arguments.get("grad_out", arguments.get("grad_output"))
    return shape_complaint("grad_out", grad, x.shape) or saved_statistics_complaint(arguments)


TRAINING = ("train", "training", "update")
"""The names of batch norms' training flag."""


def is_training(arguments: Arguments) -> bool:
    return any(arguments.get(name) for name in TRAINING)


def saved_statistics_complaint(arguments: Arguments) -> str:
    """Check a batch norm's backward: in training it reads values that the forward saved, else the running
    statistics."""
    if not any(name in arguments for name in TRAINING) and (
        "eps" not in arguments or "running_mean" not in arguments or "count" in arguments or "counts" in arguments
    ):
        return ""
    train = is_training(arguments)
    if train and "save_mean" not in arguments:
        return ""
    saved = ("save_mean", "save_invstd" if "save_invstd" in arguments else "save_var")
    names = saved if train else ("running_mean", "running_var")
    absent = [name for name in names if not isinstance(arguments.get(name), Tensor)]
    return f"{absent[0]} is not there, which the kernel reads" if absent else ""


def check_layer_norm_backward(arguments: Arguments) -> str:
    """Check layer norms' backwards: there is a mean and a deviation for each row."""
    x, shape = arguments["input"], [int(item) for item in arguments["normalized_shape"]]
    if not isinstance(x, Tensor) or not shape or list(x.shape[-len(shape) :]) != shape:
        return "input does not end in normalized_shape"
    rows, row = math.prod(x.shape[: -len(shape)]), math.prod(shape)
    return first_complaint(
        (
            shape_complaint("grad_out", arguments["grad_out"], x.shape),
            *(count_complaint(name, arguments[name], rows) for name in ("mean", "rstd") if name in arguments),
            *(count_complaint(name, arguments[name], row) for name in ("weight", "bias") if name in arguments),
        )
    )


def check_group_norm(arguments: Arguments) -> str:
    """Check group norms: the sizes make up the input, and the groups divide the channels."""
    x, n, c, plane, group = arguments["input"], *(int(arguments[name]) for name in ("N", "C", "HxW", "group"))
    if min(n, c, plane) < 0 or group < 1 or c % group or not isinstance(x, Tensor) or x.numel() != n * c * plane:
        return f"N={n}, C={c}, HxW={plane}, group={group} do not make up the input"
    return first_complaint(
        (
            shape_complaint("grad_out", arguments.get("grad_out"), x.shape),
            *(memory_complaint(name, arguments.get(name)) for name in ("input", "grad_out")),
            *(count_complaint(name, arguments.get(name), c) for name in ("weight", "bias")),
            *(count_complaint(name, arguments.get(name), n * group) for name in ("mean", "rstd")),
        )
    )


def check_flash_attention(arguments: Arguments) -> str:
    """Check flash attention on CPU: queries, keys and values have one batch, and match the forward's saved values."""
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    if not all(isinstance(item, Tensor) and item.dim() == 4 for item in (query, key, value)):
        return "query, key and value do not have four dimensions"
    batch, heads, length, _ = query.shape
    same = key.shape[:3] == value.shape[:3] and key.shape[0] == batch and key.shape[3] == query.shape[3]
    if not same or not key.shape[1] or heads % key.shape[1]:
        return "query, key and value do not match"
    expected = (batch, heads, length, value.shape[3])
    return first_complaint(
        (
            shape_complaint("grad_out", arguments.get("grad_out"), expected),
            shape_complaint("out", arguments.get("out"), expected),
            shape_complaint("logsumexp", arguments.get("logsumexp"), (batch, heads, length)),
            mask_complaint(arguments.get("attn_mask"), (batch, heads, length, key.shape[2])),
        )
    )


def mask_complaint(mask: Any, shape: Sequence[int]) -> str:
    """Return the complaint about a mask that does not broadcast to the scores."""
    if not isinstance(mask, Tensor):
        return ""
    pairs = zip(reversed(mask.shape), reversed(shape), strict=False)
    good = mask.dim() <= 4 and all(size in (1, wanted) for size, wanted in pairs)
    return "" if good else f"attn_mask has the shape {list(mask.shape)}, which does not broadcast to {list(shape)}"


def check_weight_norm(arguments: Arguments) -> str:
    """Check weight norm: there is a scale for each row or column of a weight that has some."""
    weight = arguments.get("v", arguments.get("saved_v"))
    if not isinstance(weight, Tensor) or not weight.numel() or int(arguments["dim"]) not in (0, weight.dim() - 1):
        return "the weight is empty, or dim is neither its first nor its last dimension"
    rows = weight.shape[int(arguments["dim"])]
    names = ("g", "saved_g", "saved_norms")
    return first_complaint(
        (
            *(count_complaint(name, arguments.get(name), rows) for name in names),
            shape_complaint("grad_w", arguments.get("grad_w"), weight.shape),
        )
    )


def check_softmax_backward(arguments: Arguments) -> str:
    """Check a softmax's backward: there is a gradient for each number of its output."""
    output = arguments["output"]
    return shape_complaint("grad_output", arguments.get("grad_output", arguments.get("grad")), output.shape)


def check_attention_heads(arguments: Arguments) -> str:
    """Check attention's heads: there is at least one."""
    return "" if int(arguments["num_heads"]) > 0 else f"num_heads={arguments['num_heads']}"


# ---- Pools, resizing, windows and grids: indices are in the image, gradients have its channels


def pool_backward_check(dims: int, low: int = 0) -> Check:
    """Return a check of a pool's backward: each index is in the plane that it was taken from; -1 may mark an empty
    window."""

    def check(arguments: Arguments) -> str:
        image, grad, indices = arguments["self"], arguments["grad_output"], arguments["indices"]
        if not all(isinstance(item, Tensor) for item in (image, grad, indices)) or image.dim() not in (
            dims + 1,
            dims + 2,
        ):
            return f"self is not an image of {dims} dimensions and its channels"
        lengths = [
            name
            for name in ("kernel_size", "output_size")
            if name in arguments and len(arguments[name]) not in (1, dims)
        ]
        return first_complaint(
            (
                *(f"{name} does not have {dims} numbers" for name in lengths),
                shape_complaint("indices", indices, grad.shape),
                shape_complaint("grad_output", grad, (*image.shape[:-dims], *grad.shape[-dims:])),
                index_complaint("indices", indices, low, math.prod(image.shape[-dims:])),
                "" if dims < 3 or indices.is_contiguous() else "indices are not contiguous, as the kernel reads them",
            )
        )

    return check


def average_pool_backward_check(dims: int) -> Check:
    """Return a check of an average pool's backward: the gradient has the channels of the image."""

    def check(arguments: Arguments) -> str:
        image, grad = arguments["self"], arguments["grad_output"]
        return shape_complaint("grad_output", grad, (*image.shape[:-dims], *grad.shape[-dims:]))

    return check


def adaptive_pool_check(dims: int) -> Check:
    """Return a check of adaptive pools: the number of windows, each of which reads the image, is limited."""

    def check(arguments: Arguments) -> str:
        sizes, plane = arguments["output_size"], math.prod(arguments["self"].shape[-dims:])
        windows = math.prod(map(int, sizes)) if isinstance(sizes, (list, tuple)) else int(sizes) ** dims
        most = 64 * plane + MOST_ROUNDS
        return (
            f"{windows:,} windows of an image of {plane:,} points; a graph may have {most:,}" if windows > most else ""
        )

    return check


def max_unpool_check(dims: int) -> Check:
    """Return a check of max_unpool: each index is in the plane that is made."""

    def check(arguments: Arguments) -> str:
        size, indices = arguments["output_size"], arguments["indices"]
        if len(size) != dims:
            return f"output_size has {len(size)} numbers, which should be {dims}"
        shape = shape_complaint("indices", indices, arguments["self"].shape)
        return shape or index_complaint("indices", indices, 0, math.prod(map(int, size)))

    return check


def check_pool_window(arguments: Arguments) -> str:
    """Check pools that add sizes without an overflow check: the window's sizes are reasonable."""
    for name in ("kernel_size", "stride", "padding", "dilation"):
        for size in arguments[name] if isinstance(arguments[name], (list, tuple)) else [arguments[name]]:
            if not 0 <= int(size) < 2**31:
                return f"{name}={int(size)} is not a size of a window"
    return ""


def check_grid_sampler_backward(arguments: Arguments) -> str:
    """Check grid_sampler's backward: there is a gradient for each point of the grid."""
    image, grid, grad = (arguments[name] for name in ("input", "grid", "grad_output"))
    if not all(isinstance(item, Tensor) and item.dim() == image.dim() >= 4 for item in (image, grid, grad)):
        return "input, grid and grad_output do not belong together"
    return shape_complaint("grad_output", grad, (*image.shape[:2], *grid.shape[1:-1]))


def check_unfold_backward(arguments: Arguments) -> str:
    """Check unfold's backward: the gradient has as many windows as there are."""
    sizes, dim, size, step = (
        [int(n) for n in arguments["input_sizes"]],
        *(int(arguments[k]) for k in ("dim", "size", "step")),
    )
    if not sizes:
        return ""
    if not -len(sizes) <= dim < len(sizes) or step < 1 or not 0 <= size <= sizes[dim] or min(sizes) < 0:
        return f"dim={dim}, size={size}, step={step} are not windows of {sizes}"
    shape = list(sizes)
    shape[dim] = (sizes[dim] - size) // step + 1
    return shape_complaint("grad_in", arguments["grad_in"], (*shape, size))


def check_convolution_kernel_size(arguments: Arguments) -> str:
    """Check convolutions with an argument for the size of their kernel: it is that of the weight."""
    weight, sizes = arguments["weight"], arguments["kernel_size"]
    sizes = [int(item) for item in sizes] if isinstance(sizes, (list, tuple)) else [int(sizes)]
    if not isinstance(weight, Tensor) or weight.dim() < 3:
        return "weight has no kernels"
    kernel = list(weight.shape[2:])
    sizes = sizes * len(kernel) if len(sizes) == 1 else sizes
    return "" if sizes == kernel else f"kernel_size={sizes}, and the kernels of weight are {kernel}"


def check_antialiased_resize(arguments: Arguments) -> str:
    """Check resizing with antialiasing: a scale does not lead out of the image."""
    x = arguments.get("self")
    before = [int(item) for item in arguments.get("input_size") or (x.shape if isinstance(x, Tensor) else ())][2:]
    after, scales = arguments["output_size"], [arguments.get(f"scales{side}") for side in ("_h", "_w")]
    if after is None or len(before) != len(after) or "scale_factors" in arguments:
        return ""
    for now, then, scale in zip(before, map(int, after), scales, strict=False):
        if isinstance(scale, (int, float)) and not (scale > 0 and then - now * scale <= 1.000001):
            return f"a scale of {scale} makes no {then} of {now}"
    return ""


# ---- Factorisations, Fourier transforms, distances and sums of matrices


def check_finite_matrix(arguments: Arguments) -> str:
    """Check operators that pass a matrix to LAPACK unchecked: its numbers are finite."""
    matrix = arguments["self"]
    with reading_values():
        good = not readable(matrix) or bool(torch.isfinite(matrix).all())
    return "" if good else "self holds NaN or Inf, which ends the process in LAPACK"


def check_fft(arguments: Arguments) -> str:
    """Check Fourier transforms: the dimensions exist, and each occurs once."""
    x, dims = arguments["self"], [int(item) for item in arguments["dim"]]
    rank = x.dim() if isinstance(x, Tensor) else 0
    if any(not 0 <= item < rank for item in dims) or len(set(dims)) != len(dims):  # kernels need positive ones
        return f"dim={dims} are not dimensions of a tensor that has {rank}"
    if "last_dim_size" in arguments and (not dims or not 1 <= int(arguments["last_dim_size"]) <= MOST_ELEMENTS):
        return "there is no last dimension of this size"
    if "last_dim_size" in arguments and x.shape[dims[-1]] < int(arguments["last_dim_size"]) // 2 + 1:
        return f"last_dim_size={int(arguments['last_dim_size'])} is more than the tensor has"
    return ""


def check_lu(arguments: Arguments) -> str:
    """Check operators that take an LU factorisation: each pivot is a row."""
    matrix = arguments.get("LU", arguments.get("LU_data"))
    pivots = arguments.get("pivots", arguments.get("LU_pivots"))
    if not isinstance(matrix, Tensor) or not isinstance(pivots, Tensor) or matrix.dim() < 2:
        return "LU and pivots are not a factorisation"
    rows, columns = matrix.shape[-2:]
    if pivots.dim() < 1 or pivots.shape[-1] != min(rows, columns):
        return f"pivots has the shape {list(pivots.shape)}, and LU {list(matrix.shape)}"
    return shape_complaint("pivots", pivots, (*matrix.shape[:-2], min(rows, columns))) or index_complaint(
        "pivots", pivots, 1, rows + 1
    )


def check_ldl(arguments: Arguments) -> str:
    """Check operators that take an LDL factorisation: each pivot is a row, and negative ones come in pairs."""
    matrix, pivots = arguments["LD"], arguments["pivots"]
    if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        return "LD is not a square matrix"
    rows = matrix.shape[-1]
    complaint = shape_complaint("pivots", pivots, matrix.shape[:-1]) or index_complaint(
        "pivots", pivots, -rows, rows + 1
    )
    if complaint or not readable(pivots):
        return complaint
    with reading_values():
        for row in pivots.reshape(-1, max(rows, 1)).tolist():
            runs = [len(list(run)) for negative, run in itertools.groupby(row, lambda pivot: pivot < 0) if negative]
            if 0 in row or any(length % 2 for length in runs):
                return "pivots holds a 0, or a negative number without its other half"
    return ""


def check_distance_backward(arguments: Arguments) -> str:
    """Check the backwards of pdist and cdist: there is a gradient for each distance."""
    grad = arguments["grad"] if "grad" in arguments else arguments["grad_output"]  # as torch 2.14 calls it
    if "pdist" in arguments:
        count = arguments["self"].shape[0]
        pairs = count * (count - 1) // 2
        if not arguments["self"].numel():
            return "self has no points"
        return count_complaint("grad", grad, pairs) or count_complaint("pdist", arguments["pdist"], pairs)
    sizes = [arguments["x1"].shape[-2], arguments["x2"].shape[-2]]
    if list(grad.shape[-2:]) != sizes:
        return f"grad has the shape {list(grad.shape)}, which should end in {sizes}"
    return shape_complaint("cdist", arguments["cdist"], grad.shape)


def check_sum_of_matrices(arguments: Arguments) -> str:
    """Check a sum of matrices with coefficients: there is a coefficient for each matrix, of its dtype."""
    matrices, factors = arguments["input"], arguments["coefficients"]
    if matrices.dim() < 1 or factors.dim() != 2 or factors.shape[1] != matrices.shape[0]:
        return f"coefficients have the shape {list(factors.shape)}, and input {list(matrices.shape)}"
    return f"coefficients are {factors.dtype}, and input {matrices.dtype}" * (factors.dtype != matrices.dtype)


# ---- Losses: targets are classes, lengths are valid


def check_nll_loss_backward(arguments: Arguments) -> str:
    """Check nll_loss's backward: each target is a class."""
    scores, target = arguments["self"], arguments["target"]
    if not isinstance(scores, Tensor) or not isinstance(target, Tensor) or not 1 <= scores.dim() <= 4:
        return "self are not scores of classes"
    classes = scores.shape[1 if scores.dim() > 1 else 0]
    return first_complaint(
        (
            count_complaint("target", target, scores.numel() // max(classes, 1)),
            count_complaint("weight", arguments["weight"], classes),
            index_complaint("target", target, 0, classes, (int(arguments["ignore_index"]),)),
        )
    )


def check_margin_loss_backward(arguments: Arguments) -> str:
    """Check the margin losses' backwards: targets are classes, and there is a gradient for the loss or for each row."""
    scores, target, grad = arguments["self"], arguments["target"], arguments["grad_output"]
    if not all(isinstance(item, Tensor) for item in (scores, target, grad)) or not scores.dim() <= 2:
        return "self are not scores of classes"
    classes = scores.shape[-1] if scores.dim() else 1
    rows = scores.shape[0] if scores.dim() == 2 else 1
    labels = "is_target" in arguments
    return first_complaint(
        (
            shape_complaint("target", target, scores.shape) if labels else count_complaint("target", target, rows),
            shape_complaint("is_target", arguments.get("is_target"), target.shape),
            index_complaint("target", target, -1 if labels else 0, classes),
            count_complaint("grad_output", grad, 1 if int(arguments["reduction"]) else rows),
            count_complaint("weight", arguments.get("weight"), classes),
        )
    )


def check_ctc_loss(arguments: Arguments) -> str:
    """Check ctc_loss and its backward: targets are classes, lengths are valid, and the forward's saved values match
    both."""
    scores, targets = arguments["log_probs"], arguments["targets"]
    if not isinstance(scores, Tensor) or not isinstance(targets, Tensor) or scores.dim() not in (2, 3):
        return "log_probs are not scores of classes over time"
    times, batch = scores.shape[0], scores.shape[1] if scores.dim() == 3 else 1
    inputs, lengths = numbers_in(arguments["input_lengths"]), numbers_in(arguments["target_lengths"])
    if inputs is None or lengths is None:
        return ""
    if len(inputs) != batch or len(lengths) != batch or not all(0 <= length <= times for length in inputs):
        return f"input_lengths and target_lengths are no {batch} lengths of up to {times}"
    used, why = targets_and_complaint(targets, lengths)
    if why:
        return why
    if not 0 <= int(arguments["blank"]) < scores.shape[-1]:
        return f"blank={int(arguments['blank'])} is not a class"
    complaint = first_complaint(index_complaint("targets", part, 0, scores.shape[-1]) for part in used)
    if complaint or "log_alpha" not in arguments:
        return complaint
    return first_complaint(
        (
            count_complaint("neg_log_likelihood", arguments["neg_log_likelihood"], batch),
            count_complaint("grad", arguments["grad"], batch),
            shape_complaint("log_alpha", arguments["log_alpha"], (batch, times, 2 * max(lengths, default=0) + 1)),
        )
    )


def targets_and_complaint(targets: Tensor, lengths: Sequence[int]) -> tuple[list[Tensor], str]:
    """Return the parts of the targets that are read, and what is wrong with their lengths."""
    if any(length < 0 for length in lengths):
        return [], "target_lengths holds a negative length"
    if targets.dim() == 1:
        total = sum(lengths)
        return [targets[:total]], f"target_lengths add up to {total}, and targets has {targets.numel()}" * (
            total > targets.numel()
        )
    if targets.dim() != 2 or targets.shape[0] != len(lengths) or max(lengths, default=0) > targets.shape[1]:
        return [], "targets is not a table with a row for each length"
    return [row[:length] for row, length in zip(targets, lengths, strict=True)], ""


# ---- Embeddings and bags of them: indices are rows, offsets are positions among the indices


def check_embedding_backward(arguments: Arguments) -> str:
    """Check embedding's backward: each index is a row."""
    indices, rows = arguments["indices"], int(arguments["num_weights"])
    grad = arguments.get("grad_output", arguments.get("grad"))
    if rows < 0:
        return f"num_weights={rows} is not a number of rows"
    if not isinstance(grad, Tensor) or not isinstance(indices, Tensor) or grad.shape[:-1] != indices.shape:
        return "the gradient does not have the shape of the indices and one more"
    return index_complaint("indices", indices, 0, rows, (int(arguments["padding_idx"]),))


def check_embedding_bag(arguments: Arguments) -> str:
    """Check embedding_bag: indices are rows, offsets are positions among the indices, in order."""
    indices, offsets = arguments["indices"], arguments["offsets"]
    if not isinstance(indices, Tensor) or not isinstance(offsets, Tensor) or offsets.dim() != 1 or indices.dim() != 1:
        return "indices and offsets are not lists of numbers"
    rows = (
        arguments["weight"].shape[0]
        if isinstance(arguments["weight"], Tensor) and arguments["weight"].dim() == 2
        else 0
    )
    weights = arguments.get("per_sample_weights")
    return first_complaint(
        (
            count_complaint("per_sample_weights", weights, indices.numel()),
            index_complaint("indices", indices, 0, rows),
            index_complaint("offsets", offsets, 0, indices.numel() + 1),
            "" if is_nondecreasing(offsets) else "offsets go back",
        )
    )


def check_embedding_bag_backward(arguments: Arguments) -> str:
    """Check embedding_bag's backwards: there is a gradient for each bag, indices are rows, and each has its bag."""
    grad, indices, bags = arguments["grad"], arguments["indices"], arguments["offset2bag"]
    if not all(isinstance(item, Tensor) for item in (grad, indices, bags)) or grad.dim() != 2 or indices.dim() != 1:
        return "grad is not a table with a row for each bag, or indices is not a list"
    weight, count = arguments.get("weight"), indices.numel()
    if isinstance(weight, Tensor) and (weight.dim() != 2 or weight.shape[1] != grad.shape[1]):
        return f"weight has the shape {list(weight.shape)}, and grad {list(grad.shape)}"
    rows = weight.shape[0] if isinstance(weight, Tensor) else int(arguments["num_weights"])
    derived = bags.numel() == 0 and isinstance(
        arguments.get("offsets"), Tensor
    )  # from the offsets, by the operator itself
    largest = arguments.get("maximum_indices") if int(arguments["mode"]) == 2 else None
    return first_complaint(
        (
            f"num_weights={rows} is not a number of rows" if rows < 0 else "",
            index_complaint("indices", indices, 0, rows),
            offsets_complaint(arguments.get("offsets"), grad.shape[0], count),
            ""
            if derived
            else count_complaint("offset2bag", bags, count) or index_complaint("offset2bag", bags, 0, grad.shape[0]),
            "" if "bag_size" not in arguments else count_complaint("bag_size", arguments["bag_size"], grad.shape[0]),
            count_complaint("per_sample_weights", arguments.get("per_sample_weights"), count),
            shape_complaint("maximum_indices", largest, grad.shape)
            or index_complaint("maximum_indices", largest, -1, rows),
        )
    )


def offsets_complaint(offsets: Any, bags: int, count: int) -> str:
    """Return the complaint about offsets that are not positions among the indices, in order, one for each bag or one
    more."""
    if not isinstance(offsets, Tensor):
        return ""
    if offsets.dim() != 1 or offsets.numel() not in (bags, bags + 1):
        return f"offsets has the shape {list(offsets.shape)}, and there are {bags} bags"
    complaint = index_complaint("offsets", offsets, 0, count + 1) or (
        "" if is_nondecreasing(offsets) else "offsets go back"
    )
    return complaint or index_complaint("the first offset", offsets[:1], 0, 1)


# ---- oneDNN's recurrent layers: weights, states and a workspace of one hidden size


def check_recurrent_layer(arguments: Arguments) -> str:
    """Check oneDNN's recurrent layers: weights and states have one hidden size. Each layer and direction is a call."""
    x, hidden = arguments["input"], int(arguments["hidden_size"])
    names = ("weight0", "weight1", "weight2", "weight3")
    names = names if "weight0" in arguments else ("weight1", "weight2", "weight3", "weight4")
    if not isinstance(x, Tensor) or x.dim() != 3 or hidden < 1 or not 1 <= int(arguments["num_layers"]) <= MOST_ROUNDS:
        return "input, hidden_size and num_layers are those of no layer"
    gates = {2: 4, 3: 3}.get(int(arguments["mode"]), 1) * hidden
    wide, deep, *biases = (arguments[name] for name in names)
    states = [
        arguments[name] for name in ("hx_", "cx_", "cx_tmp", "hy_", "cy_", "grad_hy", "grad_cy") if name in arguments
    ]
    batch = x.shape[1]
    tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor) and name != "workspace"}
    read = {name: tensor for name, tensor in tensors.items() if not name.startswith("grad_")}  # those the kernel copies
    return first_complaint(
        (
            *(
                f"{name} is {tensor.dtype}, and input {x.dtype}" * (tensor.dtype != x.dtype)
                for name, tensor in tensors.items()
            ),
            *(memory_complaint(name, tensor) for name, tensor in read.items()),
            shape_complaint(names[0], wide, (gates, x.shape[2])),
            shape_complaint(names[1], deep, (gates, hidden)),
            *(
                count_complaint(name, bias, gates)
                for name, bias in zip(names[2:], biases, strict=True)
                if arguments["has_biases"]
            ),
            *(count_complaint("a state", state, batch * hidden) for state in states),
            *(shape_complaint(name, arguments.get(name), (*x.shape[:2], hidden)) for name in ("output", "grad_output")),
        )
    )


def check_recurrent_layer_backward(arguments: Arguments) -> str:
    """Check the backward of oneDNN's recurrent layers: also the workspace, which has the size that the forward
    makes."""
    if complaint := check_recurrent_layer(arguments) or (
        "batch_sizes are not supported" if arguments["batch_sizes"] else ""
    ):
        return complaint
    x, workspace = arguments["input"], arguments["workspace"]
    if not readable(x) or not readable(workspace):
        return ""
    named = ("reverse", "mode", "hidden_size", "num_layers", "has_biases", "bidirectional", "batch_first")
    size = workspace_nbytes(tuple(x.shape), x.dtype, *(int(arguments[name]) for name in named))
    if not workspace.is_contiguous() or workspace.dtype is not torch.uint8:
        return "the workspace is not a block of bytes"
    return count_complaint("the workspace", workspace, size)


@functools.lru_cache(maxsize=256)
def workspace_nbytes(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    reverse: int,
    mode: int,
    hidden: int,
    layers: int,
    biases: int,
    both: int,
    first_batch: int,
) -> int:
    """Return the bytes of the workspace that a recurrent layer's forward makes; -1 if it does not run."""
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
        with reading_values(), torch.enable_grad():
            tensors = [torch.zeros(shape, dtype=dtype) for shape in shapes]
            workspace: Tensor = torch.ops.aten.mkldnn_rnn_layer(*tensors, *flags)[3]
            return workspace.numel()
    except RuntimeError:
        return -1
