"""Forward-mode AD of triangular_solve takes tangents of the triangle that the operator does not read.

torch 2.13.0. It ignores `transpose` and `unitriangular` too; reverse mode is right.
"""

import torch
import torch.autograd.forward_ad as forward_ad

source = torch.Generator().manual_seed(0)
a = torch.randn(3, 3, dtype=torch.float64, generator=source)
b = torch.randn(3, 1, dtype=torch.float64, generator=source)
v = torch.ones(3, 3, dtype=torch.float64).tril(-1)


def solution(matrix: torch.Tensor) -> torch.Tensor:
    return torch.triangular_solve(b, matrix, upper=True)[0]


with forward_ad.dual_level():
    print("forward mode", forward_ad.unpack_dual(solution(forward_ad.make_dual(a, v))).tangent.flatten().tolist())
print("differences", ((solution(a + 1e-6 * v) - solution(a - 1e-6 * v)) / 2e-6).flatten().tolist())
