"""golden, forward. Captured by Backprint with engine eager, torch 2.13.0+cpu."""

import math
import operator

import torch
from torch import inf, nan

aten, prims = torch.ops.aten, torch.ops.prims


class GraphModule(torch.nn.Module):
    def forward(
        self,
        embed_weight: "f32[7, 4] parameter embed.weight",
        fc_weight: "f32[3, 4] parameter fc.weight",
        fc_bias: "f32[3] parameter fc.bias",
        seen: "i64[] buffer seen",
        ids: "i64[5] input ids",
        x: "f32[4, 5] input x",
        constant_0: "f32[3] constant constant_0",
    ) -> (
        "f32[5, 3] output output.logits",
        "f32[] output output.loss",
        "i64[] mutation seen",
        "f32[5, 3] saved tanh",
        "f32[3, 4] saved fc.weight",
        "f32[5, 4] saved add_1",
        "i64[5] saved ids",
    ):
        # make.py:29 in forward: self.seen += 1
        add: "i64[]" = aten.add.Tensor(seen, 1)
        # [embed] make.py:31 in forward: hidden = torch.tanh(self.fc(self.embed(ids) + x.t()))
        embedding: "f32[5, 4]" = aten.embedding.default(embed_weight, ids)
        # make.py:31 in forward: hidden = torch.tanh(self.fc(self.embed(ids) + x.t()))
        t: "f32[5, 4] stride=[1, 5]" = aten.t.default(x)
        add_1: "f32[5, 4]" = aten.add.Tensor(embedding, t)
        # [fc] make.py:31 in forward: hidden = torch.tanh(self.fc(self.embed(ids) + x.t()))
        t_1: "f32[4, 3] stride=[1, 4]" = aten.t.default(fc_weight)
        addmm: "f32[5, 3]" = aten.addmm.default(fc_bias, add_1, t_1)
        # make.py:31 in forward: hidden = torch.tanh(self.fc(self.embed(ids) + x.t()))
        tanh: "f32[5, 3]" = aten.tanh.default(addmm)
        # make.py:32 in forward: return {"logits": hidden * scale, "loss": hidden.square().mean()}
        mul: "f32[5, 3]" = aten.mul.Tensor(tanh, constant_0)
        pow_1: "f32[5, 3]" = aten.pow.Tensor_Scalar(tanh, 2)
        mean: "f32[]" = aten.mean.default(pow_1)
        return (mul, mean, add, tanh, fc_weight, add_1, ids)


# --- Below: runs this graph alone, with torch and nothing else: python model.py --------------------------------------

if __name__ == "__main__":
    from pathlib import Path

    runner = Path(__file__).resolve().parent.parent.parent / "run_sample.py"
    if not runner.exists():
        raise SystemExit(
            f"{runner} is not there: run model.py in its sample, copied as a whole, or make one file that runs "
            "anywhere:\n    backprint export SAMPLE -o repro.py"
        )
    exec(compile(runner.read_text(encoding="utf-8"), runner, "exec"), names := {"__name__": "run_sample"})
    names["main"](GraphModule, __file__)
