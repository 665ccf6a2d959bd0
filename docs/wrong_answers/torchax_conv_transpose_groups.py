"""torchax computes a transposed convolution wrong if its groups have several channels each.

torch 2.13.0, torchax 0.0.13, jax 0.10.2: relative error 0.85. One group, or one channel in each group: right.
"""

import jax
import torch

from backprint.tools.bench.compilers.xla import declare_named_overloads

declare_named_overloads()  # torch 2.13 dropped names that torchax 0.0.13 needs when it is imported
from torchax.export import exported_program_to_jax  # noqa: E402

torch.manual_seed(0)
layer, x = torch.nn.ConvTranspose2d(4, 6, 3, groups=2).eval(), torch.randn(2, 4, 5, 5)
states, function = exported_program_to_jax(torch.export.export(layer, (x,)))
(found,) = jax.jit(function)(states, (jax.dlpack.from_dlpack(x),))
expected = layer(x).detach()
print("relative error", float((torch.from_dlpack(found) - expected).abs().max() / expected.abs().max()))
