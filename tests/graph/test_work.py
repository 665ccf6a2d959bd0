"""The least work of graphs: counted by hand, and held against PyTorch's FLOP counter."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import (
    FlopCounterMode,
    conv_flop_count,
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

import backprint as bp
from face import (
    CAUSAL,
    FLOPS,
    PICKED,
    PLAIN_TARGETS,
    UNREAD,
    Graph,
    Port,
    Ref,
    Step,
    Sub,
    TensorSpec,
    Work,
    flops_of,
    graph_flops,
    least_flops,
    least_step_work,
    least_work,
    operator_name,
    parse,
    read_spec,
    specs_of,
)
from face import graph_operators as operators

HEAD = """
import math
import operator

import torch
from torch import inf, nan

aten, prims = torch.ops.aten, torch.ops.prims


class GraphModule(torch.nn.Module):
"""


def graph_of(inputs: str, outputs: str, *lines: str) -> Graph:
    """Parse a graph of inputs `x: f32[4]; y: f32[3]`, of outputs `y: f32[4]`, and of its steps."""
    given = [port.split(": ") for port in inputs.split("; ")]
    shown = [port.split(": ") for port in outputs.split("; ")]
    text = [*HEAD.strip("\n").split("\n"), "    def forward(", "        self,"]
    text += [f'        {name}: "{spec} input {name}",' for name, spec in given]
    text += ["    ) -> (", *(f'        "{spec} output out{place}",' for place, (_, spec) in enumerate(shown)), "    ):"]
    text += [f"        {line}" for line in lines]
    names = ", ".join(name for name, _ in shown)
    return parse("\n".join([*text, f"        return ({names},)"]) + "\n")


def captured(module: nn.Module, *inputs: Any) -> Any:
    (pair,) = bp.capture(module, *inputs, mode="train").pairs
    return pair


class Function(nn.Module):
    """A function of an input and of a parameter."""

    def __init__(self, function: Any, parameter: torch.Tensor) -> None:
        super().__init__()
        self.function, self.parameter = function, nn.Parameter(parameter)

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs, self.parameter)


def test_a_linear_layer_is_as_counted_by_hand() -> None:
    pair = captured(nn.Linear(8, 3), torch.randn(4, 8))
    x, w, b, y = 4 * 8 * 4, 3 * 8 * 4, 3 * 4, 4 * 3 * 4
    assert least_work(pair.forward) == Work(2 * 4 * 8 * 3, x + w + b + y)
    assert least_work(pair.backward) == Work(192, x + y + w + b)
    # x, w, b and the tangent are read once; the output and two gradients are written
    assert least_step_work(pair.forward, pair.backward) == Work(384, x + w + b + 2 * y + w + b)


def test_saved_values_do_not_leave_a_step() -> None:
    pair = captured(Function(lambda x, w: (x * w).sin().exp(), torch.randn(100)), torch.randn(100))
    assert least_work(pair.forward).bytes == 400 * 4  # x and w in; the product and exp out, which is saved too
    assert least_work(pair.backward).bytes == 400 * 5  # the tangent, exp, the product and x in; the gradient out
    assert least_step_work(pair.forward, pair.backward).bytes == 400 * 5  # x, w, tangent; output, gradient


@pytest.mark.parametrize(
    ("moved", "outputs", "lines"),
    [
        (0, "x: f32[8, 4]", []),
        (0, "v: f32[32]", ['v: "f32[32]" = aten.view.default(x, [32])']),
        (256, "a: f32[8, 4]", ['a: "f32[8, 4]" = aten.add.Tensor(x, x)']),
        (256, "a: f32[8, 4]; a: f32[8, 4]", ['a: "f32[8, 4]" = aten.relu.default(x)']),
        (
            256,
            "a: f32[8, 4]; v: f32[32]",
            ['a: "f32[8, 4]" = aten.relu.default(x)', 'v: "f32[32]" = aten.view.default(a, [32])'],
        ),
        (
            128 + 16,
            "s: f32[4]",
            ['a: "f32[8, 4]" = aten.relu.default(x)', 's: "f32[4]" = aten.select.int(a, 0, 1)'],
        ),
        (
            16 + 16,
            "a: f32[4]",
            ['s: "f32[4] offset=4" = aten.select.int(x, 0, 1)', 'a: "f32[4]" = aten.relu.default(s)'],
        ),
        (
            128 + 2 * 112,  # two slices that overlap count no more than the tensor
            "a: f32[7, 4]; b: f32[7, 4]",
            [
                's: "f32[7, 4]" = aten.slice.Tensor(x, 0, 0, 7)',
                't: "f32[7, 4] offset=4" = aten.slice.Tensor(x, 0, 1, 8)',
                'a: "f32[7, 4]" = aten.relu.default(s)',
                'b: "f32[7, 4]" = aten.relu.default(t)',
            ],
        ),
        (
            16 + 32,  # one slice, read twice
            "a: f32[4]; b: f32[4]",
            [
                's: "f32[4]" = aten.select.int(x, 0, 0)',
                'a: "f32[4]" = aten.relu.default(s)',
                'b: "f32[4]" = aten.neg.default(s)',
            ],
        ),
        (128, "z: f32[8, 4]", ['z: "f32[8, 4]" = aten.zeros_like.default(x)']),
        (0, "x: f32[8, 4]", ['dead: "f32[8, 4]" = aten.relu.default(x)']),
        (
            128 + 16,  # an output with strides of 0 has the memory that it has
            "e: f32[8, 4] stride=[0, 1]",
            [
                's: "f32[4]" = aten.sum.dim_IntList(x, [0])',
                'e: "f32[8, 4] stride=[0, 1]" = aten.expand.default(s, [8, 4])',
            ],
        ),
        (
            128 + 2 * 64,
            "a: f32[4, 4]; b: f32[4, 4]",
            [
                'p: "(f32[4, 4], f32[4, 4] offset=16)" = aten.split.Tensor(x, 4)',
                'p_0: "f32[4, 4]" = p[0]',
                'p_1: "f32[4, 4] offset=16" = p[1]',
                'a: "f32[4, 4]" = aten.relu.default(p_0)',
                'b: "f32[4, 4]" = aten.relu.default(p_1)',
            ],
        ),
    ],
)
def test_bytes_of_one_input_of_128(moved: int, outputs: str, lines: list[str]) -> None:
    assert least_work(graph_of("x: f32[8, 4]", outputs, *lines)).bytes == moved


def test_an_expanded_input_has_the_memory_that_it_has() -> None:
    line = 'a: "f32[8, 4]" = aten.relu.default(x)'
    assert least_work(graph_of("x: f32[8, 4] stride=[0, 1]", "a: f32[8, 4]", line)).bytes == 16 + 128
    assert least_work(graph_of("x: f32[8, 4] stride=[0, 9]", "a: f32[8, 4]", line)).bytes == 16 + 128
    assert least_work(graph_of("x: f32[8, 4] stride=[1, 1]", "a: f32[8, 4]", line)).bytes == 11 * 4 + 128


def test_rows_are_read_where_only_rows_are_used() -> None:
    rows = 'e: "f32[6, 4]" = aten.embedding.default(w, i)'
    ports = "w: f32[1000, 4]; i: i64[6]"
    assert least_work(graph_of(ports, "e: f32[6, 4]", rows)) == Work(0, 6 * 8 + 2 * 6 * 16)
    both = least_work(
        graph_of(ports, "e: f32[6, 4]; r: f32[1000, 4]", rows, 'r: "f32[1000, 4]" = aten.relu.default(w)')
    )
    assert both.bytes == 48 + 96 + 16000 + 16000
    few = graph_of("w: f32[2, 4]; i: i64[6]", "e: f32[6, 4]", rows)
    assert least_work(few).bytes == 32 + 48 + 96  # no more than the table


def test_a_loss_reads_its_targets_alone_and_its_gradient_reads_no_scores() -> None:
    pair = captured(Function(lambda y, w: F.nll_loss(w, y), torch.randn(50, 20)), torch.randint(0, 20, (50,)))
    forward, backward = least_work(pair.forward), least_work(pair.backward)
    assert forward.bytes == 50 * 8 + 50 * 4 + 4 + 4  # the targets, one score each; the loss and the total weight
    assert backward.bytes == 50 * 8 + 4 + 4 + 50 * 20 * 4


@pytest.mark.parametrize(("mask", "read"), [((True, False), "wg"), ((False, True), "xg"), ((True, True), "xwg")])
def test_a_convolutions_gradients_read_and_cost_what_the_mask_says(mask: tuple[bool, bool], read: str) -> None:
    x, w, g = "f32[2, 4, 8, 8]", "f32[6, 4, 3, 3]", "f32[2, 6, 6, 6]"
    size = {"x": 4 * 512, "w": 4 * 216, "g": 4 * 432}
    names = [name for name, wanted in zip(("dx", "dw"), mask, strict=True) if wanted]
    specs = [each if wanted else "?" for each, wanted in zip((x, w), mask, strict=True)]
    lines = [
        f'c: "({specs[0]}, {specs[1]}, ?)" = aten.convolution_backward.default('
        f"g, x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [{mask[0]}, {mask[1]}, False])",
        *([f'dx: "{x}" = c[0]'] if mask[0] else []),
        *([f'dw: "{w}" = c[1]'] if mask[1] else []),
    ]
    outputs = "; ".join(f"{name}: {x if name == 'dx' else w}" for name in names)
    work = least_work(graph_of(f"g: {g}; x: {x}; w: {w}", outputs, *lines))
    assert work.flops == sum(mask) * conv_flop_count([2, 4, 8, 8], [6, 4, 3, 3], [2, 6, 6, 6])
    assert work.bytes == sum(size[name] for name in read) + sum(size[name[1]] for name in names)


class ConvNet(nn.Module):
    """Convolutions of several kinds, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 4, 3, stride=2, padding=1, dilation=2),
            nn.GELU(),
            nn.ConvTranspose2d(4, 6, 3, stride=2),
            nn.Flatten(),
            nn.LazyLinear(5),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


SUBJECTS = {
    "convnet": (ConvNet, (2, 3, 16, 16)),
    "transformer": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_products_are_those_of_pytorchs_counter(name: str) -> None:
    make, size = SUBJECTS[name]
    module, x = make(), torch.randn(size)
    module(x)
    counter = FlopCounterMode(display=False)
    with counter:
        result = module(x)
    forward = counter.get_total_flops()
    with counter:  # starts anew
        result.sum().backward()
    pair = captured(module, x)
    assert forward > 0
    assert (known_flops(pair.forward), known_flops(pair.backward)) == (forward, counter.get_total_flops())


def known_flops(graph: Graph) -> int:
    """Return the operations of the operators that PyTorch's counter knows."""
    known = {str(packet).removeprefix("aten.") for packet in flop_registry}
    steps = [each for each in graph.steps if operator_name(each.target) in known]
    return sum(least_flops(each, specs_of(graph)) for each in steps)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_counts_the_keys_that_each_query_meets(causal: bool) -> None:
    module = Function(lambda x, w: F.scaled_dot_product_attention(x * w, x, x, is_causal=causal), torch.randn(8))
    pair = captured(module, torch.randn(2, 3, 4, 8))
    size = (2, 3, 4, 8)
    met = 10 / 16 if causal else 1  # of 4 queries and 4 keys
    graphs = [(pair.forward, sdpa_flop_count(size, size, size))]
    graphs += [(pair.backward, sdpa_backward_flop_count(size, size, size, size))]
    for graph, every in graphs:
        (attention,) = (each for each in graph.steps if "dot_product" in each.target)
        assert flops_of(attention, specs_of(graph)) == every
        assert graph_flops(graph) == every * met


@pytest.mark.parametrize(
    ("target", "args", "result", "flops"),
    [
        ("aten.mm.default", ("a", "b"), "c64[4, 4]", 2 * 64),
        ("aten.addmm.default", ("v", "m", "m"), "f32[4, 4]", 128),
        ("aten.mul.Tensor", ("a", "b"), "c64[4, 4]", 0),
        ("aten.sum.default", ("m",), "f32[]", 0),
        ("torch.ops.mylib.mm.default", ("m", "m"), "f32[4, 4]", 0),
    ],
)
def test_formulas(target: str, args: tuple[Any, ...], result: str, flops: float) -> None:
    given = {"a": "c64[4, 4]", "b": "c64[4, 4]", "m": "f32[4, 4]", "v": "f32[4]"}
    specs = {name: read_spec(text) for name, text in given.items()}

    def named(value: Any) -> Any:
        return tuple(map(named, value)) if isinstance(value, tuple) else Ref(value) if value in specs else value

    made = Step("y", target, tuple(map(named, args)), (), read_spec(result))
    assert flops_of(made, specs) == flops


def test_an_operator_of_ones_own_counts_its_bytes() -> None:
    line = 'a: "f32[8, 4]" = torch.ops.mylib.f.default(x)'
    assert least_work(graph_of("x: f32[8, 4]", "a: f32[8, 4]", line)) == Work(0, 256)


def test_a_sparse_tensor_counts_no_bytes() -> None:
    line = 'a: "f32[8]" = aten.mv.default(x, y)'
    assert least_work(graph_of("x: f32[8, 4] sparse_csr; y: f32[4]", "a: f32[8]", line)).bytes == 16 + 32


def test_sizes_are_those_of_the_capture() -> None:
    module = nn.Linear(8, 3)
    dynamic = bp.capture(module, torch.randn(4, 8), mode="train", dynamic={"input": {0: "n"}})
    assert dynamic.pairs[0].forward.symbols
    fixed = captured(module, torch.randn(4, 8))
    assert least_work(dynamic.pairs[0].forward).flops == least_work(fixed.forward).flops
    assert least_work(dynamic.pairs[0].backward).bytes == least_work(fixed.backward).bytes


def test_what_may_not_run_counts_nothing_and_a_scan_each_slice() -> None:
    spec = TensorSpec("float32", (4, 4))
    some = graph_of("x: f32[4, 4]", "a: f32[4, 4]", 'a: "f32[4, 4]" = aten.mm.default(x, x)')
    less = graph_of("x: f32[4, 4]", "a: f32[4, 4]", 'a: "f32[4, 4]" = aten.relu.default(x)')

    def flops(target: str, *subs: str) -> int:
        call = Step("y", f"torch.ops.higher_order.{target}", (Ref("x"), *map(Sub, subs)), (), spec)
        ports = (Port("x", "input", spec, "x"),), (Port("output", "output", spec),)
        return graph_flops(Graph(ports[0], (call,), ports[1], (Ref("y"),), (("some", some), ("less", less))))

    assert flops("invoke_subgraph", "some") == 128
    assert flops("scan", "some") == 4 * 128
    assert flops("cond", "some", "less") == flops("while_loop", "some", "less") == 0


def test_each_operator_of_the_tables_exists() -> None:
    known = {operator_name(target) for target in (*operators(), *PLAIN_TARGETS)}
    assert {*FLOPS, *UNREAD, *PICKED} - known == {"flex_attention", "flex_attention_backward"}
    assert CAUSAL.keys() < FLOPS.keys()


def test_torchs_counter_has_no_operator_that_is_not_counted() -> None:
    known = {str(packet).removeprefix("aten.") for packet in flop_registry}
    assert known - FLOPS.keys() == set()
    assert FLOPS.keys() - known == {f"_scaled_dot_product_flash_attention_for_cpu{end}" for end in ("", "_backward")}


def test_work_needs_no_torch() -> None:
    code = "import sys, backprint.tools.cost.work; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
