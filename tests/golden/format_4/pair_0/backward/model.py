"""golden, backward. Captured by Backprint with engine eager, torch 2.13.0+cpu."""

import math
import operator

import torch
from torch import inf, nan

aten, prims = torch.ops.aten, torch.ops.prims


class GraphModule(torch.nn.Module):
    def forward(
        self,
        tanh: "f32[5, 3] saved tanh",
        fc_weight: "f32[3, 4] saved fc.weight",
        add_1: "f32[5, 4] saved add_1",
        ids: "i64[5] saved ids",
        tangent_output_logits: "f32[5, 3] tangent output.logits",
        tangent_output_loss: "f32[] tangent output.loss",
        constant_0: "f32[3] constant backward.constant_0",
    ) -> (
        "f32[7, 4] gradient embed.weight",
        "f32[3, 4] gradient fc.weight",
        "f32[3] gradient fc.bias",
    ):
        # gradient of mean; make.py:32 in forward: return {"logits": hidden * scale, "loss": hidden.square().mean()}
        expand: "f32[5, 3] stride=[0, 0]" = aten.expand.default(tangent_output_loss, [5, 3])
        div: "f32[5, 3]" = aten.div.Scalar(expand, 15)
        # gradient of pow_1; make.py:32 in forward: return {"logits": hidden * scale, "loss": hidden.square().mean()}
        pow_2: "f32[5, 3]" = aten.pow.Tensor_Scalar(tanh, 1.0)
        mul_1: "f32[5, 3]" = aten.mul.Scalar(pow_2, 2.0)
        mul_2: "f32[5, 3]" = aten.mul.Tensor(div, mul_1)
        # gradient of mul; make.py:32 in forward: return {"logits": hidden * scale, "loss": hidden.square().mean()}
        mul_3: "f32[5, 3]" = aten.mul.Tensor(tangent_output_logits, constant_0)
        # sum of gradients of tanh; make.py:32 in forward: return {"logits": hidden * scale, "loss": hidden.square().mean()}
        add_2: "f32[5, 3]" = aten.add.Tensor(mul_2, mul_3)
        # gradient of tanh; make.py:31 in forward: hidden = torch.tanh(self.fc(self.embed(ids) + x.t()))
        tanh_backward: "f32[5, 3]" = aten.tanh_backward.default(add_2, tanh)
        # gradient of addmm; [fc] make.py:31 in forward: hidden = torch.tanh(self.fc(self.embed(ids) + x.t()))
        mm: "f32[5, 4]" = aten.mm.default(tanh_backward, fc_weight)
        t_3: "f32[3, 5] stride=[1, 3]" = aten.t.default(tanh_backward)
        grad_fc_weight: "f32[3, 4]" = aten.mm.default(t_3, add_1)
        sum_1: "f32[1, 3]" = aten.sum.dim_IntList(tanh_backward, [0], True)
        grad_fc_bias: "f32[3]" = aten.view.default(sum_1, [3])
        # gradient of embedding; [embed] make.py:31 in forward: hidden = torch.tanh(self.fc(self.embed(ids) + x.t()))
        grad_embed_weight: "f32[7, 4]" = aten.embedding_dense_backward.default(mm, ids, 7, -1, False)
        return (grad_embed_weight, grad_fc_weight, grad_fc_bias)


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
