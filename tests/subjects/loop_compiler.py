"""Compilers of kernels for the tests: one writes C++, the others do what a compiler must not do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

KERNEL = """
#include <cmath>
extern "C" void kernel(PARAMETERS, float* out)
{
    for (long i = 0; i < COUNT; i++) out[i] = EXPRESSION;
}
"""

WRAPPER = """
import torch
from torch._inductor.async_compile import AsyncCompile

async_compile = AsyncCompile()
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
cpp_one_loop = async_compile.cpp_pybinding(TYPES, KERNEL)
async_compile.wait(globals())

def call(args):
    INPUTS, = args
    out = empty_strided_cpu(SHAPE, STRIDE, torch.float32)
    cpp_one_loop(INPUTS, out)
    return (RESULTS,)
"""

FORMS = {
    "aten.mul.Tensor": "({} * {})",
    "aten.add.Tensor": "({} + {})",
    "aten.sin.default": "std::sin({})",
    "aten.cos.default": "std::cos({})",
}


def filled(text: str, **parts: str) -> str:
    """A text with its words in capitals replaced."""
    for name, part in parts.items():
        text = text.replace(name.upper(), part)
    return text


def one_loop(module: fx.GraphModule, inputs: Sequence[Any], target: str) -> str:
    """Pointwise operators on tensors of one shape, with one result that is computed: one loop in C++."""
    texts: dict[fx.Node, str] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            texts[node] = f"{node.name}[i]"
        elif node.op == "call_function":
            values = [texts[value] if isinstance(value, fx.Node) else repr(value) for value in node.args]
            texts[node] = FORMS[str(node.target)].format(*values)
    names = [node.name for node in texts if node.op == "placeholder"]
    results = [node for node in module.graph.output_node().args[0] if isinstance(node, fx.Node)]
    (made,) = [node for node in results if node.op == "call_function"]
    value = made.meta["val"]
    kernel = filled(
        KERNEL,
        parameters=", ".join(f"const float* {name}" for name in names),
        count=str(value.numel()),
        expression=texts[made],
    )
    return filled(
        WRAPPER,
        types=repr(["const float*"] * len(names) + ["float*"]),
        kernel=repr(kernel),
        inputs=", ".join(names),
        shape=repr(tuple(value.shape)),
        stride=repr(tuple(value.stride())),
        results=", ".join("out" if node is made else node.name for node in results),
    )


def wrong(module: fx.GraphModule, inputs: Sequence[Any], target: str) -> str:
    return one_loop(module, inputs, target).replace("std::sin", "std::tan").replace(" * ", " + ")


def broken(module: fx.GraphModule, inputs: Sequence[Any], target: str) -> str:
    return "call = 3"


def nothing(module: fx.GraphModule, inputs: Sequence[Any], target: str) -> None:
    return None


def failing(module: fx.GraphModule, inputs: Sequence[Any], target: str) -> str:
    raise KeyError("aten.sin.default")
