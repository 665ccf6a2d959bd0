"""A GraphNet sample whose code has lines of a test."""

from __future__ import annotations

from pathlib import Path

MODEL = """
import torch
{before}

class GraphModule(torch.nn.Module):
    def forward(self, L_x_ : torch.Tensor, L_self_modules_fc_parameters_weight_ : torch.nn.parameter.Parameter):
        l_x_ = L_x_
        weight = L_self_modules_fc_parameters_weight_
        {within}
        linear = torch._C._nn.linear(l_x_, weight, None);  l_x_ = weight = None
        gelu = torch._C._nn.gelu(linear);  linear = None
        return (gelu,)
"""

META = """
class Program_weight_tensor_meta_{name}:
    name = "{name}"
    shape = {shape}
    dtype = "torch.{dtype}"
    device = "cuda:0"
    mean = 0.010
    std = 0.500
    data = None
"""

X, WEIGHT = "L_x_", "L_self_modules_fc_parameters_weight_"


def graphnet(folder: Path, before: str = "", within: str = "", rows: int = 4, code: str | None = None) -> Path:
    """Write a GraphNet sample with lines of the test in its code."""
    folder.mkdir(parents=True)
    text = MODEL.format(before=before, within=within or "pass") if code is None else code
    (folder / "model.py").write_text(text.replace("        pass\n", ""))
    shapes = {X: [rows, 8], WEIGHT: [6, 8]}
    metas = [META.format(name=name, shape=shape, dtype="float32") for name, shape in shapes.items()]
    (folder / "weight_meta.py").write_text("\n".join(metas))
    (folder / "graph_net.json").write_text('{"framework": "torch", "model_name": "' + folder.name.split("\n")[0] + '"}')
    (folder / "input_meta.py").write_text("")
    (folder / "graph_hash.txt").write_text("0" * 64)
    return folder


ONE_BY_ONE = "import os, sys, time, ctypes\n"
