"""What steps cost, held against torch's FLOP counter, its schemas, its kernels and what autograd saves."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import given, settings
from subjects.costed import MODELS
from subjects.programs import PROGRAMS
from subjects.random_graphs import anything
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

import backprint as bp
from face import (
    DTYPES,
    FREE,
    HEADER,
    Graph,
    List,
    Pair,
    Ref,
    Step,
    StepCost,
    TensorSpec,
    Value,
    cost,
    is_view,
    memory_line,
    parse,
    specs_of,
    step_costs,
    storage_bytes,
    storages_of,
    summarize,
    total_cost,
    uses_first,
)
from face import graph_operators as operators

NAMES = (
    "batch_norm_training recurrent attention complex_numbers tied_weights in_place_on_a_view integer_inputs"
).split()
SUBJECTS = MODELS | {name: PROGRAMS[name] for name in NAMES}

aten = torch.ops.aten
ON_CPU = {
    aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda *shapes, **_: sdpa_backward_flop_count(
        *shapes[:4]
    ),
}
"""torch's counter has no formula for this kernel: these are the ones it has for the same kernel on a GPU."""


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def test_memory_spans_from_the_first_element_to_the_last() -> None:
    assert storage_bytes(TensorSpec("float32", (3, 4))) == 48
    assert storage_bytes(TensorSpec("float32", (3, 4), (8, 1))) == 80
    assert storage_bytes(TensorSpec("float32", (3, 4), (0, 1))) == 16
    assert storage_bytes(TensorSpec("float32", (0, 4), (4, 1))) == 0
    assert storage_bytes(TensorSpec("int64", (2,), (1,), 5)) == 56
    assert storage_bytes(TensorSpec("float32", (2, 2), layout="sparse_coo")) == 0


def test_views_know_their_base() -> None:
    graph = graph_of(
        "parts = aten.split.Tensor(x, 2)",
        'part: "f32[2, 8]" = parts[0]',
        'y: "f32[4, 2]" = aten.mm.default(x, w)',
        'flat: "f32[16]" = aten._unsafe_view.default(part, [16])',
        'rows: "f32[3, 8]" = aten.embedding.default(x, n)',
    )
    found, _ = storages_of(graph)
    assert found["part"] == found["flat"] == "x"
    assert found["y"] == "y"
    assert not is_view(graph.steps[2], specs_of(graph))


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_products_and_saved_bytes_are_those_of_an_eager_run(name: str) -> None:
    torch.manual_seed(0)
    program, args, kwargs = SUBJECTS[name]()
    pair = bp.capture(program, args=args, kwargs=kwargs, engine="eager").pairs[0]
    own = tensors((args, kwargs)) + (
        [*program.parameters(), *program.buffers()] if isinstance(program, nn.Module) else []
    )
    held = {tensor.untyped_storage().data_ptr() for tensor in own}
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    torch.manual_seed(0)
    forward, backward = (FlopCounterMode(display=False, custom_mapping=ON_CPU) for _ in range(2))
    with forward, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = program(*args, **kwargs)
    outputs = [tensor for tensor in tensors(result) if tensor.requires_grad]
    with backward:
        torch.autograd.backward(outputs, [torch.ones_like(tensor) for tensor in outputs])
    kept = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in saved}
    numbers = summarize(pair)
    assert numbers.forward.flops == forward.get_total_flops()
    assert numbers.backward.flops == backward.get_total_flops()
    assert numbers.saved_bytes == sum(kept[key] for key in kept.keys() - held)


@pytest.mark.slow
def test_an_input_that_is_kept_as_a_view_counts_as_kept() -> None:
    x, w = torch.randn(2, 3, 3), torch.randn(3, 4, requires_grad=True)
    numbers = summarize(bp.capture(lambda x, w: x.view(6, 3) @ w, x, w, engine="eager").pairs[0])
    assert (numbers.saved_bytes, numbers.kept_bytes) == (0, x.nbytes)
    norm, image = nn.BatchNorm2d(8), torch.randn(2, 8, 3, 3)
    numbers = summarize(bp.capture(norm, image, engine="eager", mode="train").pairs[0])
    own = (norm.weight, norm.running_mean, norm.running_var)
    assert numbers.saved_bytes == 2 * 8 * 4
    assert numbers.kept_bytes == image.nbytes + sum(each.nbytes for each in own if each is not None)


def test_what_torch_counts_twice_is_told_apart_from_the_least_work() -> None:
    """The counter takes a grouped weight gradient for one without groups; the least work does not."""
    from face import least_work

    pair = bp.capture(nn.Conv1d(4, 4, 1, groups=4), torch.randn(1, 4, 10)).pairs[0]
    assert pair.backward is not None
    assert summarize(pair).backward.flops == 2 * 10 * 4 * 4
    products = [cost for cost in step_costs(pair.backward) if cost.flops]
    assert len(products) == 1
    assert least_work(pair.backward).flops < products[0].flops


# ------------------------------------------------------------------ bytes


TEXT = (
    HEADER
    + """
class GraphModule(torch.nn.Module):
    def forward(
        self,
        x: "f32[4, 8] input x",
        w: "f32[8, 2] parameter w",
        n: "i64[3] input n",
    ) -> (
        "f32[4, 2] output y",
        "f32[3, 8] output rows",
    ):
{lines}
        return (y, rows)
"""
)


def graph_of(*lines: str) -> Graph:
    """Return a graph of these steps."""
    return parse(TEXT.replace("{lines}", "\n".join(f"        {line}" for line in lines)))


def test_bytes_and_flops_of_each_step() -> None:
    graph = graph_of(
        'y: "f32[4, 2]" = aten.mm.default(x, w)',
        't: "f32[8, 4] stride=[1, 8]" = aten.t.default(x)',
        'twice: "f32[8, 4] stride=[1, 8]" = aten.mul.Tensor(t, t)',
        'half: "f32[4, 4] stride=[8, 1]" = aten.slice.Tensor(x, 1, 0, 4)',
        'total: "f32[]" = aten.sum.default(half)',
        'wide: "f32[8, 9] stride=[1, 0]" = aten.expand.default(total, [8, 9])',
        'rows: "f32[3, 8]" = aten.embedding.default(x, n)',
        'room: "f32[100]" = aten.empty.memory_format([100])',
        'zeros: "f32[4, 8]" = aten.zeros_like.default(x)',
    )
    costs = dict(zip((made.name for made in graph.steps), step_costs(graph), strict=True))
    assert costs["y"] == StepCost(2 * 4 * 8 * 2, 128 + 64, 32)
    assert costs["t"] == costs["half"] == costs["wide"] == costs["room"] == FREE
    assert costs["twice"] == StepCost(0, 128, 128)  # an argument that is passed twice is read once
    assert costs["total"] == StepCost(0, 64, 4)
    assert costs["rows"] == StepCost(0, 3 * 32 + 24, 96)
    assert costs["zeros"] == StepCost(0, 0, 128)
    assert total_cost(costs.values()).read == 192 + 128 + 64 + 120


@pytest.mark.slow
def test_a_branch_counts_as_torch_counts_it() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x, w: x @ w @ w, lambda x, w: x @ w, (x, w))

    args = torch.ones(4, 4), torch.ones(4, 4)
    pair = bp.capture(program, *args, engine="dynamo", requires_grad=False).pairs[0]
    assert summarize(pair).forward.flops == 2 * (2 * 4 * 4 * 4)


def test_numbers_that_no_table_holds_are_cut() -> None:
    assert total_cost([StepCost(2**62, 0, 0)] * 4).flops == 2**63 - 1


# ------------------------------------------------------------------ whose memory


def test_the_table_says_view_where_the_schema_does_and_it_is_always_of_the_first_argument() -> None:
    wrong = []
    for name, flags in operators().items():
        space, operator, overload = name.split(".")
        try:
            schema = getattr(getattr(getattr(torch.ops, space), operator), overload)._schema
        except (AttributeError, RuntimeError):
            continue  # of another torch
        views = not schema.is_mutable and any(part.alias_info is not None for part in schema.returns)
        of = [index for index, part in enumerate(schema.arguments) if part.alias_info is not None] if views else []
        if views != ("v" in flags) or of not in ([], [0]):
            wrong.append(name)
    assert wrong == []


class Watch(TorchDispatchMode):
    """Compares, for each call of an operator, whose memory its results use with what the text says."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.wrong: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = f"{func.namespace}.{func._schema.name.split('::')[1]}.{func._overloadname}"
        values = tensors((args, kwargs, result))
        plain = all(
            each.layout is torch.strided
            and str(each.dtype)[6:] in DTYPES
            and not each._is_zerotensor()
            and each.numel()
            for each in values
        )
        if (
            not func._schema.is_mutable
            and plain
            and tensors(result)
            and name in operators()
            and "zerotensor" not in name
        ):
            self.seen.add(name)
            if said(name, args, result) != happened(args, result):
                self.wrong.add(name)
        return result


def said(name: str, args: Any, result: Any) -> bool:
    """Whether the text says that a call returns the memory of its first argument."""
    specs: dict[str, Any] = {}

    def value(given: Any) -> Value:
        if isinstance(given, Tensor):
            specs[f"v{len(specs)}"] = spec_of(given)
            return Ref(f"v{len(specs) - 1}")
        if isinstance(given, list | tuple):
            return List(tuple(map(value, given)))
        return given if type(given) in (bool, int, float, type(None)) else None

    spec = spec_of(result) if isinstance(result, Tensor) else None
    return uses_first(Step("made", name, tuple(map(value, args)), (), spec), specs)


def happened(args: Any, result: Any) -> bool | str:
    """Whether a call's results use the memory of its first argument; a text where they share any other."""
    first = {t.untyped_storage().data_ptr() for t in args[:1] if isinstance(t, Tensor)}
    others = {t.untyped_storage().data_ptr() for t in tensors(args) if t.untyped_storage().nbytes()} - first
    found = [t.untyped_storage().data_ptr() for t in tensors(result) if t.untyped_storage().nbytes()]
    if others & set(found):
        return "of another argument"
    if found and set(found) <= first:
        return True
    return False if len(found) == len(set(found)) and not first & set(found) else "of each other"


def spec_of(tensor: Tensor) -> TensorSpec:
    return TensorSpec(str(tensor.dtype)[6:], tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


def calls() -> Iterator[Callable[[], Any]]:
    """Yield calls of each function of torch's own database, forward and backward."""
    for each in op_db:
        if not each.supports_dtype(torch.float32, "cpu") or each.name.startswith("jiterator"):
            continue
        for sample in list(each.sample_inputs("cpu", torch.float32, requires_grad=each.supports_autograd))[:1]:
            yield lambda each=each, sample=sample: tensors(each(sample.input, *sample.args, **sample.kwargs))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own samples call what is deprecated
def test_what_shares_memory_is_what_kernels_return() -> None:
    watch, failed = Watch(), 0
    with watch:
        for call in calls():
            try:
                results = [t.sum() for t in call() if t.requires_grad]
                if results:
                    torch.autograd.backward(results)
            except (RuntimeError, NotImplementedError, TypeError, ValueError):  # not of storages: a sample that raises
                failed += 1
    assert watch.wrong == set()
    assert len(watch.seen) > 400
    assert failed < 100


def test_a_view_that_the_table_does_not_know_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4)
    assert said("aten._unsafe_view.default", (x, [12]), aten._unsafe_view(x, [12])) is True
    monkeypatch.setattr(cost, "UNDECLARED", frozenset())
    with Watch() as watch:
        torch.ops.aten._unsafe_view(x, [12])
    assert watch.wrong == {"aten._unsafe_view.default"}


SOMETIMES: dict[str, Callable[[Tensor, random.Random], tuple[tuple[Any, ...], Tensor]]] = {
    "aten.reshape.default": lambda x, draw: ((x, shape := other_shape(x, draw)), x.reshape(shape)),
    "aten.flatten.using_ints": lambda x, draw: ((x, 0, 1), x.flatten(0, 1)),
    "aten.ravel.default": lambda x, draw: ((x,), x.ravel()),
    "aten.contiguous.default": lambda x, draw: ((x,), x.contiguous()),
    "aten.to.dtype": lambda x, draw: ((x, None, False, copy := draw.random() < 0.5), x.to(torch.float32, copy=copy)),
}


def other_shape(x: Tensor, draw: random.Random) -> list[int]:
    """Return a shape of as many elements."""
    sizes = [size for whole in x.shape for size in ([2, whole // 2] if whole % 2 == 0 and whole else [whole])]
    while len(sizes) > 1 and draw.random() < 0.6:
        place = draw.randrange(len(sizes) - 1)
        sizes[place : place + 2] = [sizes[place] * sizes[place + 1]]
    return sizes


@pytest.mark.parametrize("name", SOMETIMES)
def test_a_view_or_a_copy_is_decided_as_torch_decides(name: str) -> None:
    draw = random.Random(name)
    answers = set()
    for _ in range(300):
        x = torch.randn([draw.choice([1, 2, 3, 4, 0 if draw.random() < 0.1 else 6]) for _ in range(3)])
        x = x.permute(draw.sample(range(3), 3))[:: draw.choice([1, 1, 2])]
        x = x.narrow(1, 0, max(x.shape[1] - draw.choice([0, 0, 1]), 0))
        args, result = SOMETIMES[name](x, draw)
        if x.numel():
            answers.add(happened((x,), result))
            assert said(name, args, result) is happened((x,), result), (x.shape, x.stride(), result.shape)
    assert answers == {True, False}


@pytest.mark.slow
def test_a_saved_view_of_a_part_saves_the_whole() -> None:
    class Parts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a, b = (x * 2).chunk(2)
            return a.exp().sum() + b.sum()

    pair = bp.capture(lambda x: (x * 2)[:1].square().sum(), torch.randn(8, 4).requires_grad_(), engine="eager").pairs[0]
    assert summarize(pair).saved_bytes == 8 * 4 * 4
    both = bp.capture(Parts(), torch.randn(8, 4).requires_grad_(), engine="eager").pairs[0]
    assert summarize(both).saved_bytes == 4 * 4 * 4  # the result of exp; the parts are not needed


@pytest.mark.slow
def test_costs_need_no_torch_and_no_stack() -> None:
    code = "import sys, backprint.tools.cost.costs, backprint.tools.cost.costs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    line = '{0}: "f32[4, 8]" = aten.add.Tensor({1}, x)'
    lines = [line.format(f"a{index}", f"a{index - 1}" if index else "x") for index in range(28_000)]
    tail = ['y: "f32[4, 2]" = aten.mm.default(a27999, w)', 'rows: "f32[3, 8]" = aten.embedding.default(x, n)']
    graph = graph_of(*lines, *tail)
    assert len(step_costs(graph)) == 28_002


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(anything())
def test_any_graph_that_a_stranger_writes_has_numbers(graph: Graph) -> None:
    pair = Pair("pair_0", graph)
    assert all(0 <= cost.flops < 2**63 for cost in step_costs(graph))
    line = memory_line(pair)
    assert len(line.during) == len(graph.steps)
    assert repr(summarize(pair))
