"""Pools, resizing, windows and grids: indices are in the image, gradients have its channels."""

from __future__ import annotations

import math

from torch import Tensor

from backprint.checks.looking import MOST_ROUNDS, Bound, Check, beyond, first, unlike


def pooled(dims: int, low: int = 0) -> Check:
    """Return a check of a pool's backward: each index is in the plane that it was taken from; -1 may mark an empty
    window."""

    def check(given: Bound) -> str:
        image, grad, indices = given["self"], given["grad_output"], given["indices"]
        if not all(isinstance(each, Tensor) for each in (image, grad, indices)) or image.dim() not in (
            dims + 1,
            dims + 2,
        ):
            return f"self is not an image of {dims} dimensions and its channels"
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
    """Return a check of an average pool's backward: the gradient has the channels of the image."""

    def check(given: Bound) -> str:
        image, grad = given["self"], given["grad_output"]
        return unlike("grad_output", grad, (*image.shape[:-dims], *grad.shape[-dims:]))

    return check


def adaptive_windows(dims: int) -> Check:
    """Return a check of adaptive pools: the number of windows, each of which reads the image, is limited."""

    def check(given: Bound) -> str:
        sizes, plane = given["output_size"], math.prod(given["self"].shape[-dims:])
        windows = math.prod(map(int, sizes)) if isinstance(sizes, (list, tuple)) else int(sizes) ** dims
        most = 64 * plane + MOST_ROUNDS
        return (
            f"{windows:,} windows of an image of {plane:,} points; a graph may have {most:,}" if windows > most else ""
        )

    return check


def unpooled(dims: int) -> Check:
    """Return a check of max_unpool: each index is in the plane that is made."""

    def check(given: Bound) -> str:
        size, indices = given["output_size"], given["indices"]
        if len(size) != dims:
            return f"output_size has {len(size)} numbers, which should be {dims}"
        shape = unlike("indices", indices, given["self"].shape)
        return shape or beyond("indices", indices, 0, math.prod(map(int, size)))

    return check


def windowed(given: Bound) -> str:
    """Check pools that add sizes without an overflow check: the window's sizes are reasonable."""
    for name in ("kernel_size", "stride", "padding", "dilation"):
        for size in given[name] if isinstance(given[name], (list, tuple)) else [given[name]]:
            if not 0 <= int(size) < 2**31:
                return f"{name}={int(size)} is not a size of a window"
    return ""


def sampled(given: Bound) -> str:
    """Check grid_sampler's backward: there is a gradient for each point of the grid."""
    image, grid, grad = (given[name] for name in ("input", "grid", "grad_output"))
    if not all(isinstance(each, Tensor) and each.dim() == image.dim() >= 4 for each in (image, grid, grad)):
        return "input, grid and grad_output do not belong together"
    return unlike("grad_output", grad, (*image.shape[:2], *grid.shape[1:-1]))


def unfolded(given: Bound) -> str:
    """Check unfold's backward: the gradient has as many windows as there are."""
    sizes, dim, size, step = ([int(n) for n in given["input_sizes"]], *(int(given[k]) for k in ("dim", "size", "step")))
    if not sizes:
        return ""
    if not -len(sizes) <= dim < len(sizes) or step < 1 or not 0 <= size <= sizes[dim] or min(sizes) < 0:
        return f"dim={dim}, size={size}, step={step} are not windows of {sizes}"
    shape = list(sizes)
    shape[dim] = (sizes[dim] - size) // step + 1
    return unlike("grad_in", given["grad_in"], (*shape, size))


def convolved(given: Bound) -> str:
    """Check convolutions with an argument for the size of their kernel: it is that of the weight."""
    weight, sizes = given["weight"], given["kernel_size"]
    sizes = [int(each) for each in sizes] if isinstance(sizes, (list, tuple)) else [int(sizes)]
    if not isinstance(weight, Tensor) or weight.dim() < 3:
        return "weight has no kernels"
    kernel = list(weight.shape[2:])
    sizes = sizes * len(kernel) if len(sizes) == 1 else sizes
    return "" if sizes == kernel else f"kernel_size={sizes}, and the kernels of weight are {kernel}"


def resized(given: Bound) -> str:
    """Check resizing with antialiasing: a scale does not lead out of the image."""
    x = given.get("self")
    before = [int(each) for each in given.get("input_size") or (x.shape if isinstance(x, Tensor) else ())][2:]
    after, scales = given["output_size"], [given.get(f"scales{side}") for side in ("_h", "_w")]
    if after is None or len(before) != len(after) or "scale_factors" in given:
        return ""
    for now, then, scale in zip(before, map(int, after), scales, strict=False):
        if isinstance(scale, (int, float)) and not (scale > 0 and then - now * scale <= 1.000001):
            return f"a scale of {scale} makes no {then} of {now}"
    return ""
