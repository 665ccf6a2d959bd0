"""The program runs as it would without a region, and nothing of a region outlives it."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.fx.traceback as fx_traceback
from torch import Tensor, nn

import backprint as bp
from face import watch


def installed() -> dict[str, Any]:
    """What of torch's a region puts its own in the place of."""
    return {
        "flags": (torch._C.is_anomaly_enabled(), torch._C.is_anomaly_check_nan_enabled()),
        "stack": fx_traceback.format_stack,
        "set": torch.set_anomaly_enabled,
        "engine": torch.autograd._engine_run_backward,
        "graph": torch.autograd.graph._engine_run_backward,
        "modes": torch._C._len_torch_dispatch_stack(),
    }


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(8 * 36, 4)
    )


def trained(block: Callable[[], Any], steps: int = 20) -> list[Tensor]:
    """Parameters, buffers and losses of a training run; `block()` is around the middle of the forward."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        x, wanted = torch.randn(4, 3, 8, 8), torch.randint(4, (4,))
        y = model[:2](x)
        with block():
            z = model[2:](y)
        loss = nn.functional.cross_entropy(z, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *model.state_dict().values()]


@pytest.mark.parametrize("gradients", ["none", "stats", "values"])
def test_training_is_bitwise_the_same_with_and_without(gradients: str, tmp_path: Path) -> None:
    plain = trained(contextlib.nullcontext)
    watched = trained(lambda: bp.region(tmp_path, gradients=gradients))
    assert all(torch.equal(left, right) for left, right in zip(plain, watched, strict=True))
    assert len(list(tmp_path.iterdir())) == 20


def test_nothing_is_left_behind() -> None:
    before = installed()
    x = torch.randn(4, requires_grad=True)
    with bp.region() as region:
        assert installed() != before
        assert not torch.is_anomaly_enabled()
        y = x * 2
    assert {**installed(), "engine": 0, "graph": 0} == {**before, "engine": 0, "graph": 0}
    y.sum().backward()
    assert len(region.passes) == 1
    del y
    assert installed() == before


def test_no_step_outside_is_taken_for_one_inside() -> None:
    model, x = net(), torch.randn(4, 3, 8, 8)
    with bp.region(gradients="stats") as region:
        loss = model(x).sum()
    loss.backward()
    for _ in range(1000):
        nn.functional.linear(torch.ones(2, 288), model[5].weight).sum().backward()
    for _ in range(20):
        model(x).sum().backward()
    assert len(region.passes) == 1


def test_nothing_is_kept_alive() -> None:
    x = torch.randn(1000, 10, requires_grad=True)
    with bp.region(gradients="values") as region:
        y = x * 2
        z = y.exp().sum()
    z.backward()
    core = weakref.ref(region._core)
    nodes = [weakref.ref(tensor) for tensor in (y, z)]
    gradient = weakref.ref(region.passes[0].edges[0].gradient)
    del y, z
    assert [each() for each in nodes] == [None, None]
    assert gradient() is not None
    del region
    gc.collect()
    assert core() is None
    assert gradient() is None


@pytest.mark.slow
def test_a_loop_of_ten_thousand_steps_stays_flat() -> None:
    x = torch.randn(4, requires_grad=True)

    def steps(count: int) -> None:
        for _ in range(count):
            with bp.region() as region:
                y = (x * 2).sin()
            y.sum().backward()
            assert len(region.passes) == 1

    steps(200)
    gc.collect()
    alive = watch._alive
    objects = len(gc.get_objects())
    steps(10_000)
    gc.collect()
    assert len(gc.get_objects()) - objects < 100
    assert watch._alive == alive


def test_a_region_around_a_loop_forgets_what_was_reached() -> None:
    x = torch.randn(4, requires_grad=True)
    with bp.region() as region:
        for _ in range(300):
            (x * 2).sin().sum().backward()
            x.cos()
    assert len(region.passes) == 300
    (op,) = region.unreached
    assert (op.name, op.count) == ("aten.cos.default", 300)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")
def test_a_user_in_anomaly_mode_keeps_it() -> None:
    x = torch.randn(4, requires_grad=True)

    def step() -> None:
        y = (x * 0).sqrt() * 0
        y.sum().backward()

    def nan_inside(block: Any) -> str:
        with pytest.raises(RuntimeError, match="returned nan values") as caught, block:
            step()
        return str(caught.value)

    with pytest.warns(UserWarning, match="Error detected in SqrtBackward0"), torch.autograd.detect_anomaly():
        plain = nan_inside(contextlib.nullcontext())
    torch.set_anomaly_enabled(True)
    with pytest.warns(UserWarning, match="Error detected in SqrtBackward0") as warned:
        watched = nan_inside(bp.region())
    assert torch.is_anomaly_enabled()
    torch.set_anomaly_enabled(False)
    assert plain == watched
    assert any("step" in str(each.message) and "sqrt" in str(each.message) for each in warned)
    with bp.region(), torch.autograd.set_detect_anomaly(True, check_nan=False):
        assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_check_nan_enabled()
    assert not torch.is_anomaly_enabled()


def test_regions_one_after_another_and_nested() -> None:
    x = torch.randn(4, requires_grad=True)
    with bp.region(name="outer") as outer:
        a = x.sin()
        with bp.region(name="inner") as inner:
            b = a.cos()
        c = b.exp()
    with bp.region(name="next") as after:
        d = c.tanh()
    d.sum().backward()

    def names(region: Any) -> list[str]:
        return [node.name for node in region.passes[0].nodes if node.inside]

    assert (names(outer), names(inner), names(after)) == (["exp", "cos", "sin"], ["cos"], ["tanh"])
    assert [node.name for node in inner.passes[0].backward.boundary] == ["ExpBackward0", "SinBackward0"]


def test_threads_have_their_own() -> None:
    wrong: list[str] = []

    def work(index: int) -> None:
        torch.manual_seed(index)
        model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(index + 1)])
        for _ in range(20):
            x = torch.randn(2, 6)
            with bp.region(gradients="values", name=f"thread{index}") as region:
                y = model(x)
            y.square().sum().backward()
            passes = region.passes
            kinds = [node.kind for node in passes[0].nodes if node.inside]
            if len(passes) != 1 or kinds.count("AddmmBackward0") != index + 1:
                wrong.append(f"{index}: {kinds}")
            for each in passes[0].inputs:
                if each.tensor.endswith("weight"):
                    parameter = dict(model.named_parameters())[each.tensor]
                    if not torch.equal(each.gradient, parameter.grad):
                        wrong.append(f"{index}: {each.tensor}")
            model.zero_grad()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_backwards_of_two_threads_over_one_graph_stay_apart() -> None:
    x = torch.randn(2000, requires_grad=True)
    for _ in range(10):
        with bp.region(gradients="values") as region:
            y = x.sin()
            for _ in range(10):
                y = y.sin()
        barrier = threading.Barrier(2)

        def run(scale: float, y: Tensor = y, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            torch.autograd.grad((y * scale).sum(), x, retain_graph=True)

        threads = [threading.Thread(target=run, args=(scale,)) for scale in (1.0, 3.0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        one, two = sorted(
            ([i.gradient for i in each.inputs if i.tensor == "y"] for each in region.passes),
            key=lambda g: float(g[0][0]),
        )
        assert (len(one), len(two)) == (1, 1)
        assert torch.equal(one[0], torch.ones(2000))
        assert torch.equal(two[0], torch.full((2000,), 3.0))
        edges = [{edge.name: edge.gradient for edge in each.edges} for each in region.passes]
        assert edges[0].keys() == edges[1].keys()


def test_a_decorated_function() -> None:
    region = bp.region(gradients="values")

    @region
    def attend(query: Tensor, key: Tensor) -> Tensor:
        return (query @ key.T).softmax(-1)

    q, k = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    for _ in range(2):
        (attend(q, k) @ k).sum().backward()
    assert len(region.passes) == 2
    tensors = {edge.tensor for edge in region.passes[0].edges}
    assert {"query", "key", "result"} <= tensors
    assert attend.__name__ == "attend"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda path: bp.region(gradients="all"), "gradients='all' is not one of 'none', 'stats', 'values'"),
        (lambda path: bp.region(path / "file"), "is a file: give bp.region a folder"),
        (lambda path: bp.region(name="a/b"), "a region's name is of letters"),
        (lambda path: bp.region(some_generator), r"write @bp\.region\(\)"),
        (lambda path: bp.region()(some_generator), "some_generator is a generator"),
        (lambda path: bp.region()(some_coroutine), "some_coroutine is an async function"),
    ],
)
def test_bad_calls_name_the_fix(call: Any, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(bp.errors.UsageError, match=said):
        call(tmp_path)


def some_generator() -> Any:
    yield 1


async def some_coroutine() -> None:
    pass


def test_a_finished_region_is_not_used_again() -> None:
    x = torch.randn(4, requires_grad=True)
    with bp.region() as region:
        y = x.sin()
        with pytest.raises(bp.errors.UsageError, match="open already"):
            region.__enter__()
    for again in (region.__enter__, lambda: region(len)):
        with pytest.raises(bp.errors.UsageError, match=r"finished: make a new bp\.region"):
            again()
    y.sum().backward()
    assert len(region.passes) == 1


def test_a_variable_that_answers_with_an_error_is_left_alone() -> None:
    class Proxy:
        @property
        def __class__(self) -> Any:  # type: ignore[override]  # as lazy objects have it
            raise RuntimeError("not now")

    proxy, x = Proxy(), torch.randn(4, requires_grad=True)
    with bp.region() as region:
        y = x.sin()
    y.sum().backward()
    assert len(region.passes) == 1
    assert type(proxy) is Proxy


@pytest.mark.parametrize("broken", ["BackwardCall.hook", "reachable_nodes"])
def test_what_goes_wrong_in_ours_is_said_and_the_backward_is_whole(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("ours")

    x = torch.randn(4, requires_grad=True)
    with bp.region(gradients="values"):
        y = x.sin()
    monkeypatch.setattr(f"backprint.tools.regions.follow.{broken}", fails)
    with pytest.warns(RuntimeWarning, match="RuntimeError: ours"):
        y.sum().backward()
    assert torch.equal(x.grad, x.detach().cos())
