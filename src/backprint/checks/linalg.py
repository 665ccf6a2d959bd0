"""Factorisations, Fourier transforms, distances and sums of matrices."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from backprint.checks.looking import MOST_ELEMENTS, Bound, beyond, counted, readable, reading_values, unlike


def finite_matrix(given: Bound) -> str:
    """Check operators that pass a matrix to LAPACK unchecked: its numbers are finite."""
    matrix = given["self"]
    with reading_values():
        good = not readable(matrix) or bool(torch.isfinite(matrix).all())
    return "" if good else "self holds NaN or Inf, which ends the process in LAPACK"


def transformed(given: Bound) -> str:
    """Check Fourier transforms: the dimensions exist, and each occurs once."""
    x, dims = given["self"], [int(each) for each in given["dim"]]
    rank = x.dim() if isinstance(x, Tensor) else 0
    if any(not 0 <= each < rank for each in dims) or len(set(dims)) != len(dims):  # kernels need positive ones
        return f"dim={dims} are not dimensions of a tensor that has {rank}"
    if "last_dim_size" in given and (not dims or not 1 <= int(given["last_dim_size"]) <= MOST_ELEMENTS):
        return "there is no last dimension of this size"
    if "last_dim_size" in given and x.shape[dims[-1]] < int(given["last_dim_size"]) // 2 + 1:
        return f"last_dim_size={int(given['last_dim_size'])} is more than the tensor has"
    return ""


def factored(given: Bound) -> str:
    """Check operators that take an LU factorisation: each pivot is a row."""
    matrix = given.get("LU", given.get("LU_data"))
    pivots = given.get("pivots", given.get("LU_pivots"))
    if not isinstance(matrix, Tensor) or not isinstance(pivots, Tensor) or matrix.dim() < 2:
        return "LU and pivots are not a factorisation"
    rows, columns = matrix.shape[-2:]
    if pivots.dim() < 1 or pivots.shape[-1] != min(rows, columns):
        return f"pivots has the shape {list(pivots.shape)}, and LU {list(matrix.shape)}"
    return unlike("pivots", pivots, (*matrix.shape[:-2], min(rows, columns))) or beyond("pivots", pivots, 1, rows + 1)


def factored_symmetric(given: Bound) -> str:
    """Check operators that take an LDL factorisation: each pivot is a row, and negative ones come in pairs."""
    matrix, pivots = given["LD"], given["pivots"]
    if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        return "LD is not a square matrix"
    rows = matrix.shape[-1]
    complaint = unlike("pivots", pivots, matrix.shape[:-1]) or beyond("pivots", pivots, -rows, rows + 1)
    if complaint or not readable(pivots):
        return complaint
    with reading_values():
        for row in pivots.reshape(-1, max(rows, 1)).tolist():
            runs = [len(list(run)) for negative, run in itertools.groupby(row, lambda pivot: pivot < 0) if negative]
            if 0 in row or any(length % 2 for length in runs):
                return "pivots holds a 0, or a negative number without its other half"
    return ""


def distant(given: Bound) -> str:
    """Check the backwards of pdist and cdist: there is a gradient for each distance."""
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


def combined(given: Bound) -> str:
    """Check a sum of matrices with coefficients: there is a coefficient for each matrix, of its dtype."""
    matrices, factors = given["input"], given["coefficients"]
    if matrices.dim() < 1 or factors.dim() != 2 or factors.shape[1] != matrices.shape[0]:
        return f"coefficients have the shape {list(factors.shape)}, and input {list(matrices.shape)}"
    return f"coefficients are {factors.dtype}, and input {matrices.dtype}" * (factors.dtype != matrices.dtype)
