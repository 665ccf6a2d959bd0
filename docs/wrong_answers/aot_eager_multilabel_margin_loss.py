"""torch's decomposition of multilabel_margin_loss reads targets beyond the first -1, where a row's targets end.

torch 2.13.0, backend aot_eager.
"""

import torch
import torch.nn.functional as F

x, target = torch.randn(2, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([[3, 0, -1, 1], [1, -1, 2, 0]])
print("eager", float(F.multilabel_margin_loss(x, target)))
print("aot_eager", float(torch.compile(F.multilabel_margin_loss, backend="aot_eager")(x, target)))
