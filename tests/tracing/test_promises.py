"""The promises of capture: the caller's things are as they were, also after a failure. A broken one fails a test."""

from __future__ import annotations

import contextlib
import copy
import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch._dynamo  # tracing imports it, and it wraps torch.manual_seed when it is first imported
import torch.nn.functional as F
from subjects.disturbed import Busy, picture
from torch import Tensor, nn

import backprint as bp


@pytest.mark.parametrize("options", [{}, {"mode": "eval", "loss": lambda y: y.sum()}])
def test_everything_is_as_it_was(options: dict[str, Any]) -> None:
    model, x, scratch = Busy(), torch.randn(4, 3), torch.zeros(2)
    before = picture(model, x, scratch)
    bp.capture(model, x, scratch, **options)
    assert picture(model, x, scratch) == before


def test_everything_is_as_it_was_after_a_failure() -> None:
    model, x, scratch = Busy(fail=True), torch.randn(4, 3), torch.zeros(2)
    before = picture(model, x, scratch)
    with pytest.raises(RuntimeError, match="on purpose"):
        bp.capture(model, x, scratch)
    assert picture(model, x, scratch) == before


def test_everything_is_as_it_was_when_tracing_fails() -> None:
    class Reads(Busy):
        def forward(self, x: Tensor, scratch: Tensor) -> Tensor:
            y = super().forward(x, scratch)
            return y * y.sum().item()

    model, x, scratch = Reads(), torch.randn(4, 3), torch.zeros(2)
    before = picture(model, x, scratch)
    with pytest.raises(bp.errors.DataDependentError, match="item"):
        bp.capture(model, x, scratch, engine="aot")
    assert picture(model, x, scratch) == before


def test_an_interrupt_leaves_everything_as_it_was() -> None:
    class Stops(Busy):
        def forward(self, x: Tensor, scratch: Tensor) -> Tensor:
            super().forward(x, scratch)
            raise KeyboardInterrupt

    model, x, scratch = Stops(), torch.randn(4, 3), torch.zeros(2)
    before = picture(model, x, scratch)
    with pytest.raises(KeyboardInterrupt):
        bp.capture(model, x, scratch)
    assert picture(model, x, scratch) == before


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_grad_mode_of_the_caller_does_not_matter(mode: Callable[[], Any]) -> None:
    model, x = nn.Linear(2, 2), torch.randn(1, 2)
    with mode():
        capture = bp.capture(model, x)
    assert capture.pairs[0].backward is not None


def test_tensors_from_outside_are_as_they_were() -> None:
    counter, norm = torch.zeros(3), nn.BatchNorm1d(3)

    def step(x: Tensor) -> Tensor:
        counter.add_(1)
        return (norm(x) * counter).sum()

    before = [tensor.clone() for tensor in (counter, norm.running_mean, norm.running_var, norm.num_batches_tracked)]
    capture = bp.capture(step, torch.randn(4, 3))
    after = [counter, norm.running_mean, norm.running_var, norm.num_batches_tracked]
    assert all(torch.equal(left, right) for left, right in zip(before, after, strict=True))
    assert {port.name for port in capture.pairs[0].forward.by_role("mutation")} == {
        "counter",
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    }


def test_gradients_of_tensors_from_outside_are_as_they_were() -> None:
    w, v = torch.randn(2).requires_grad_(), torch.randn(2).requires_grad_()
    v.grad = torch.ones(2)
    held = v.grad

    def steps(x: Tensor) -> Tensor:
        (x * w * v).sum().backward()
        return x * w

    with pytest.raises(bp.errors.CaptureError, match="runs backward itself"):
        bp.capture(steps, torch.randn(2), engine="aot")
    assert (w.grad, v.grad is held, held.tolist()) == (None, True, [1.0, 1.0])
    capture = bp.capture(steps, torch.randn(2))
    assert {port.name for port in capture.pairs[0].forward.by_role("mutation")} == {"w.grad", "v.grad"}
    assert capture.verify()[0].verdict == "bitwise"
    assert (w.grad, v.grad is held, held.tolist()) == (None, True, [1.0, 1.0])


def test_a_write_to_a_parameter_leaves_its_bytes_and_its_version() -> None:
    class Clamps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.w[:2].clamp_(-0.1, 0.1)
            outside.add_(1)
            return x * self.w + outside

    outside = torch.zeros(4)
    model, x = Clamps(), torch.randn(4)
    before = model.w.tolist(), model.w._version, outside._version
    assert bp.capture(model, x).verify()[0].verdict == "bitwise"
    assert (model.w.tolist(), model.w._version, outside._version) == before


def test_a_buffer_that_is_replaced_is_a_mutation() -> None:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("ema", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.ema = self.ema * 0.9 + x.detach().mean(0) * 0.1
            return x - self.ema

    model, x = Average(), torch.randn(5, 3).requires_grad_()
    held = model.ema
    capture = bp.capture(model, x)
    assert model.ema is held
    assert capture.verify()[0].verdict == "bitwise"
    out = bp.replay(capture, x)
    model(x)
    assert torch.equal(out.mutations["ema"], model.ema)


class Viewing:
    """Holds a part of another tensor's memory."""

    def __init__(self, whole: Tensor) -> None:
        self.part = whole[2:]


def test_a_write_to_a_tensor_from_outside_is_one_to_what_lies_in_its_memory() -> None:
    whole = torch.zeros(4)
    viewing = Viewing(whole)

    def program(x: Tensor) -> Tensor:
        whole.add_(1)
        return x * whole.sum() * (2 if viewing.part is not None else 1)

    mutations = bp.replay(bp.capture(program, torch.ones(2)), torch.ones(2)).mutations
    assert {name: tensor.tolist() for name, tensor in mutations.items()} == {
        "whole": [1.0] * 4,
        "viewing.part": [1.0] * 2,
    }


def test_gradients_in_a_bucket_are_mutations_of_a_step() -> None:
    net, bucket, x = nn.Linear(4, 2), torch.zeros(10), torch.randn(3, 4)
    net.weight.grad, net.bias.grad = bucket[:8].view(2, 4), bucket[8:]

    def step(x: Tensor) -> Tensor:
        bucket.zero_()
        net(x).square().mean().backward()
        return bucket * 2

    capture = bp.capture(step, x)
    mutations = bp.replay(capture, x).mutations
    assert not bucket.any()
    step(x)
    wanted = {"bucket": bucket, "net.weight.grad": net.weight.grad, "net.bias.grad": net.bias.grad}
    assert mutations.keys() == wanted.keys()
    assert all(torch.equal(mutations[name], tensor) for name, tensor in wanted.items())


def test_threads_take_turns() -> None:
    # made before: torch's random state belongs to the whole process, and a draw elsewhere would disturb a proof
    given = [(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), torch.randn(2, 3)) for _ in range(8)]

    def one(call: tuple[nn.Module, Tensor]) -> str:
        return bp.capture(*call).verify()[0].verdict

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(one, given)) == {"bitwise"}


@pytest.mark.slow
def test_a_capture_holds_its_program_until_it_is_released() -> None:
    model, x = nn.Linear(2, 2), torch.randn(1, 2)
    capture = bp.capture(model, x)
    watches = weakref.ref(model), weakref.ref(x)
    del model, x
    gc.collect()
    (verdict,) = capture.verify()
    assert verdict.verdict == "bitwise"
    assert {port.witness for port in verdict.ports} <= {"the program", "the program on redrawn inputs"}
    capture.release()
    gc.collect()
    assert [watch() for watch in watches] == [None, None]
    assert capture.verify()[0].verdict == "unproven"


def test_buffers_never_ask_for_gradients() -> None:
    model = nn.BatchNorm1d(3)
    capture = bp.capture(model, torch.randn(4, 3), requires_grad=True)
    assert [port.name for port in capture.pairs[0].backward.outputs] == ["weight", "bias", "input"]


# ------------------------------------------------------------------ names and options


def test_ports_carry_the_programs_own_names() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer1 = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

        def forward(self, batch: dict[str, list[Tensor]], *, scale: Tensor) -> dict[str, Tensor]:
            return {"logits": self.layer1(batch["x"][0]) * scale}

    capture = bp.capture(Model(), {"x": [torch.randn(3, 2)]}, scale=torch.ones(2))
    forward, backward = capture.pairs[0].forward, capture.pairs[0].backward
    assert [port.name for port in forward.inputs] == [
        "layer1.0.weight",
        "layer1.0.bias",
        "layer1.1.weight",
        "layer1.1.bias",
        "layer1.1.running_mean",
        "layer1.1.running_var",
        "layer1.1.num_batches_tracked",
        "batch.x.0",
        "scale",
    ]
    assert [port.role for port in forward.inputs] == ["parameter"] * 4 + ["buffer"] * 3 + ["input"] * 2
    assert [port.name for port in forward.by_role("output")] == ["output.logits"]
    assert [port.name for port in backward.outputs] == [
        "layer1.0.weight",
        "layer1.0.bias",
        "layer1.1.weight",
        "layer1.1.bias",
    ]
    assert "grad_layer1_0_weight" in backward.code
    assert "[layer1.0]" in forward.code
    assert "gradient of addmm" in backward.code


def test_sums_of_gradients_name_the_value_used_twice() -> None:
    def residual(x: Tensor, w: Tensor) -> Tensor:
        h = x @ w
        return (h + h.relu() + h.sin()).sum()

    backward = bp.capture(residual, torch.randn(2, 2), torch.randn(2, 2).requires_grad_()).pairs[0].backward
    echoes = [step.echo for step in backward.steps if step.echo and step.echo.kind == "sum of gradients of"]
    assert echoes
    assert {echo.names for echo in echoes} == {("mm",)}


def test_loss_makes_one_tangent_and_keeps_the_outputs() -> None:
    model = nn.Linear(2, 3)
    capture = bp.capture(model, torch.randn(4, 2), loss=lambda y: y.square().mean())
    assert capture.signature.differentiable == ("loss",)
    out = bp.replay(capture, x := torch.randn(4, 2))
    assert torch.equal(out.outputs, model(x))
    assert torch.equal(out.loss, model(x).square().mean())
    model(x).square().mean().backward()
    assert torch.equal(out.gradients["weight"], model.weight.grad)


def test_mode_changes_the_capture_and_not_the_module() -> None:
    model = nn.Dropout(0.5)
    assert "dropout" in bp.capture(model, torch.randn(3), mode="train").pairs[0].forward.code
    assert "native_dropout" not in bp.capture(model, torch.randn(3), mode="eval").pairs[0].forward.code
    assert model.training


@pytest.mark.parametrize("partition", ["min-cut", "default"])
def test_partitions(partition: str) -> None:
    capture = bp.capture(nn.Sequential(nn.Linear(3, 3), nn.GELU()), torch.randn(2, 3), partition=partition)
    assert capture.verify()[0].verdict == "bitwise"


def test_decompose_takes_operators_apart() -> None:
    table = torch._decomp.get_decompositions([torch.ops.aten.addmm])
    capture = bp.capture(nn.Linear(2, 2), torch.randn(1, 2), decompose=table)
    assert "addmm" not in {step.target for step in capture.pairs[0].forward.steps}


def test_requires_grad_by_name_mask_and_mapping() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum()

    args = (torch.randn(2), torch.randn(2))
    for asked in (["y"], [False, True], {"y": True, "x": False}):
        capture = bp.capture(f, *args, requires_grad=asked)
        assert [port.name for port in capture.pairs[0].backward.outputs] == ["y"]


def test_requires_grad_by_any_name_of_a_tensor_that_is_passed_twice() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    x, number = torch.randn(2), torch.arange(2)
    for asked in (["y"], {"y": True}, {"x": True}):
        assert bp.capture(f, x, x, requires_grad=asked).pairs[0].backward is not None
    assert bp.capture(f, x.requires_grad_(), x, requires_grad={"y": False}).pairs[0].backward is None
    with pytest.raises(bp.errors.UsageError, match="says True and False of one tensor, which was passed as 'x'"):
        bp.capture(f, x, x, requires_grad={"x": True, "y": False})
    with pytest.raises(bp.errors.UsageError, match="names 'y', a int64 tensor"):
        bp.capture(f, number, number, requires_grad=["y"])


def test_requires_grad_by_role() -> None:
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    model.register_buffer("scale", torch.ones(2))
    model.forward = lambda x, n: model.scale * nn.functional.linear(x, model.weight, model.bias) + n  # type: ignore[method-assign,operator]
    args = (torch.randn(4, 3), torch.ones(2, dtype=torch.int64))
    wanted = {"inputs": ["x"], "parameters": ["weight", "bias"], "all": ["weight", "bias", "x"]}
    for word, names in wanted.items():
        capture = bp.capture(model, *args, requires_grad=word, engine="eager")
        assert [port.name for port in capture.pairs[0].backward.outputs] == names
        assert capture.verify()[0].verdict == "bitwise"


# ------------------------------------------------------------------ refusals


def on_devices(module: nn.DataParallel, devices: list[int]) -> nn.DataParallel:
    """The module as it would be on a machine that has these devices."""
    module.device_ids = devices
    return module


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a mask of the wrong length": (
        lambda: bp.capture(torch.mul, torch.ones(2), torch.ones(2), requires_grad=[True]),
        bp.errors.UsageError,
        "1 entries for 2 tensor inputs",
    ),
    "an unknown name": (
        lambda: bp.capture(torch.sin, torch.ones(2), requires_grad=["nope"]),
        bp.errors.UsageError,
        "'nope'",
    ),
    "a text that is no word": (
        lambda: bp.capture(torch.sin, torch.ones(2), requires_grad="input"),
        bp.errors.UsageError,
        r"requires_grad='input' is a text, and none of 'inputs', 'parameters', 'all'",
    ),
    "an integer that asks": (
        lambda: bp.capture(lambda n: n, torch.ones(2, dtype=torch.int64), requires_grad=["n"]),
        bp.errors.UsageError,
        "int64 tensor",
    ),
    "an unknown engine": (lambda: bp.capture(torch.sin, torch.ones(2), engine="magic"), bp.errors.UsageError, "magic"),
    "an unknown mode": (lambda: bp.capture(nn.ReLU(), torch.ones(2), mode="fast"), bp.errors.UsageError, "fast"),
    "a mode for a function": (
        lambda: bp.capture(torch.sin, torch.ones(2), mode="train"),
        bp.errors.UsageError,
        "needs a module",
    ),
    "an unknown partition": (
        lambda: bp.capture(torch.sin, torch.ones(2), partition="x"),
        bp.errors.UsageError,
        "min-cut",
    ),
    "a call that does not fit": (lambda: bp.capture(lambda x: x, 1, 2), bp.errors.UsageError, "cannot be called"),
    "an option that is a parameter": (
        lambda: bp.capture(lambda x, name: x, torch.ones(2), name="a"),
        bp.errors.UsageError,
        "args=",
    ),
    "a loss that is not a number": (
        lambda: bp.capture(nn.Linear(2, 2), torch.ones(1, 2), loss=lambda y: y),
        bp.errors.UsageError,
        "one element",
    ),
    "values that are read": (
        lambda: bp.capture(lambda x: x * x.sum().item(), torch.ones(2), engine="aot"),
        bp.errors.DataDependentError,
        "specialize=True",
    ),
    "a size that hangs on values": (
        lambda: bp.capture(lambda x: x[x > 0], torch.ones(2), specialize=False),
        bp.errors.DataDependentError,
        "nonzero|index",
    ),
    "a sparse input": (
        lambda: bp.capture(lambda x: x, torch.eye(2).to_sparse(), engine="aot"),
        bp.errors.UsageError,
        "does not take sparse_coo tensors",
    ),
    "a sparse tensor inside": (
        lambda: bp.capture(lambda x: x.to_sparse().to_dense(), torch.eye(2).requires_grad_(), engine="aot"),
        bp.errors.CaptureError,
        "to_sparse",
    ),
    "a lazy module": (lambda: bp.capture(nn.LazyLinear(2), torch.ones(1, 2)), bp.errors.CaptureError, "no shape yet"),
    "a data-parallel module": (
        lambda: bp.capture(on_devices(nn.DataParallel(nn.Linear(2, 2)), [0, 1]), torch.ones(1, 2)),
        bp.errors.CaptureError,
        r"\.module",
    ),
    "a seed inside": (
        lambda: bp.capture(lambda x: (torch.manual_seed(3), x * torch.rand(2))[1], torch.ones(2), engine="aot"),
        bp.errors.CaptureError,
        "manual_seed",
    ),
    "shared memory, changed and asking": (
        lambda: bp.capture(
            lambda a, b: (a.mul_(2), b.sum())[1],
            *(lambda base: (base[:3], base[1:].requires_grad_()))(torch.ones(4)),
            engine="aot",
        ),
        bp.errors.CaptureError,
        "share memory",
    ),
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    call, kind, text = REFUSED[name]
    with pytest.raises(kind, match=text):
        call()


def test_args_and_kwargs_are_always_unambiguous() -> None:
    capture = bp.capture(lambda x, name: x * 2, args=(torch.ones(2),), kwargs={"name": "a"})
    assert capture.signature.leaves == (("name", "'a'"),)


# ------------------------------------------------------------------ what is specialized on


def test_specialize_keeps_values_as_guards() -> None:
    def f(x: Tensor, n: Tensor) -> Tensor:
        count = int(n.item())
        return x[:count].sum() * x[x > 0].sum()

    x = torch.tensor([1.0, -2.0, 3.0])
    capture = bp.capture(f, x, torch.tensor(2), specialize=True)
    assert [guard.kind for guard in capture.guards] == ["value", "shape"]
    assert capture.guards[0].inputs == ("n",)
    assert "int(n.item())" in capture.guards[0].source.code
    assert capture.verify()[0].verdict == "bitwise"
    assert bp.replay(capture, x * 2, torch.tensor(2)).outputs == f(x * 2, torch.tensor(2))
    with pytest.raises(bp.errors.GuardError, match=r"test_promises\.py:.*took 2, these inputs give 1"):
        bp.replay(capture, x, torch.tensor(1))
    with pytest.raises(bp.errors.GuardError, match="shape"):
        bp.replay(capture, -x, torch.tensor(2))


def test_a_changed_argument_breaks_its_guard() -> None:
    capture = bp.capture(lambda x, flag: x * 2 if flag else x, torch.ones(2), True)
    with pytest.raises(bp.errors.GuardError, match="'flag' was True"):
        bp.replay(capture, torch.ones(2), False)


def test_one_tensor_given_twice_is_a_guard() -> None:
    x = torch.ones(2).requires_grad_()
    capture = bp.capture(lambda a, b: (a * b).sum(), x, x)
    y = torch.full((2,), 3.0)
    out = bp.replay(capture, y, y)
    assert out.gradients["a"].tolist() == out.gradients["b"].tolist() == [6.0, 6.0]
    with pytest.raises(bp.errors.GuardError, match="one tensor at capture"):
        bp.replay(capture, y, y.clone())


def test_state_that_steers_a_program_is_as_it_was_in_each_of_its_runs() -> None:
    class Warm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.calls = nn.Parameter(torch.randn(3)), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.weight * (2 if self.calls > 1 else 1)

    model = Warm()
    (verdict,) = bp.capture(model, torch.randn(3)).verify()
    assert verdict.verdict == "bitwise"
    assert model.calls == 0


def test_numbers_from_numpy_and_python_are_the_same_in_every_run_and_a_guard() -> None:
    def f(x: Tensor) -> Tensor:
        return x * random.random() + torch.from_numpy(numpy.random.rand(3)).float()

    capture = bp.capture(f, torch.randn(3))
    before = random.getstate(), numpy.random.get_state()[1].tobytes(), numpy.random.get_state()[2]
    assert capture.verify()[0].verdict == "bitwise"
    assert before == (random.getstate(), numpy.random.get_state()[1].tobytes(), numpy.random.get_state()[2])
    said = [guard.text for guard in capture.guards]
    drawn = "is pinned: the program draws from it, and the numbers that it drew are constants of the graph"
    assert said == [f"{name} {drawn}" for name in ("numpy.random", "random")]
    assert not bp.capture(lambda x: x * 2, torch.randn(3)).guards


@pytest.mark.parametrize(
    ("draw", "name"), [(lambda: numpy.random.rand(), "numpy.random"), (lambda: random.random(), "random")]
)
def test_a_replay_is_refused_where_numbers_of_the_process_would_be_other_ones(
    draw: Callable[[], float], name: str, tmp_path: Path
) -> None:
    x = torch.randn(3)
    model = nn.Linear(3, 3)

    def f(x: Tensor) -> Tensor:
        return model(x) * draw()

    capture = bp.capture(f, x)
    capture.save(tmp_path / "sample")
    sample = bp.load(tmp_path / "sample")
    state = {"model.weight": model.weight.detach(), "model.bias": model.bias.detach()}
    replayed = bp.replay(capture, 2 * x), bp.replay(sample, 2 * x, state=state)
    wanted = f(2 * x)
    assert all(torch.equal(each.outputs, wanted) for each in replayed)
    for each, given in ((capture, None), (sample, state)):
        with pytest.raises(
            bp.errors.GuardError, match=f"draws from {name}, whose state is not as at capture.*use torch"
        ):
            bp.replay(each, x, state=given)
    assert torch.equal(bp.replay(sample, x, state="recipe").outputs, bp.replay(sample, x, state="recipe").outputs)
    bp.replay(sample)
    assert capture.verify()[0].verdict == sample.verify()[0].verdict == "bitwise"


@pytest.mark.parametrize("source", [numpy.random.default_rng(0), random.Random(0)])
def test_numbers_of_a_generator_that_the_program_reaches_pin_it_and_the_inputs(source: Any, tmp_path: Path) -> None:
    def g(x: Tensor) -> Tensor:
        return x * source.random()

    x = torch.randn(3)
    capture = bp.capture(g, x)
    capture.save(tmp_path / "sample")
    sample = bp.load(tmp_path / "sample")
    got = bp.replay(capture, x).outputs
    assert torch.equal(got, g(x))
    with pytest.raises(
        bp.errors.GuardError, match=r"draws from generator 0 \(\w+ source\), whose state is not as at capture"
    ):
        bp.replay(capture, x)
    assert torch.equal(bp.replay(sample, x).outputs, got)
    with pytest.raises(bp.errors.GuardError, match=r"'x' is pinned .*the program draws from generator 0"):
        bp.replay(sample, 2 * x)
    assert capture.verify()[0].verdict == sample.verify()[0].verdict == "bitwise"


def test_a_program_without_inputs_that_draws_is_guarded_by_its_generator_alone() -> None:
    class Scaled(nn.Linear):
        source = random.Random(0)

        def forward(self) -> Tensor:  # type: ignore[override]  # it takes no inputs
            return self.weight * self.source.random()

    [guard] = bp.capture(Scaled(2, 2)).guards
    assert guard.text.startswith("generator 0 (Random source) is pinned")


class Noisy(torch.autograd.Function):
    """Draws from numpy in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * numpy.random.rand()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * numpy.random.rand()


def test_numbers_that_a_backward_draws_are_those_of_the_program() -> None:
    def f(x: Tensor) -> Tensor:
        return Noisy.apply(x)  # type: ignore[no-any-return, no-untyped-call]

    x = torch.randn(3, requires_grad=True)
    capture = bp.capture(f, x)
    numpy.random.rand(5)
    assert capture.verify()[0].verdict == "bitwise"
    numpy.random.set_state(capture.origin.program.foreign_random.states["numpy.random"])
    got = bp.replay(capture, x)
    out = f(x)
    assert torch.equal(got.outputs, out)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(got.gradients["x"], x.grad)


def test_a_default_dtype_that_the_program_sets_is_written_at_what_took_it() -> None:
    def f(x: Tensor) -> Tensor:
        low = torch.ones(3)
        torch.set_default_dtype(torch.float64)
        try:
            high = torch.ones(3)
        finally:
            torch.set_default_dtype(torch.float32)
        return x * low + high

    capture = bp.capture(f, torch.randn(3))
    assert "dtype=torch.float64" in capture.pairs[0].forward.code
    assert capture.verify()[0].verdict == "bitwise"


def test_values_told_to_tracing_reach_the_operators_after_them() -> None:
    def f(logits: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
        real = labels > 0
        scores = F.log_softmax(logits, -1).transpose(0, 1)
        return F.ctc_loss(scores, labels.masked_select(real), lengths, real.sum(-1))

    labels = torch.tensor([[1, 2, 3, 0], [3, 2, 0, 0]])
    capture = bp.capture(f, torch.randn(2, 12, 9), labels, torch.tensor([12, 9]), specialize=True)
    assert capture.verify()[0].verdict == "bitwise"


@pytest.mark.parametrize("engine", ["auto", "dynamo"])
def test_what_an_update_ties_to_the_run_is_untied(engine: str) -> None:
    total, rows = torch.zeros(3), torch.zeros(2, 3)

    def f(x: Tensor) -> Tensor:
        total.add_(x)
        rows[0].add_(x)
        return (total * rows * x).sum()

    capture = bp.capture(f, torch.randn(3, requires_grad=True), engine=engine)
    assert {verdict.verdict for verdict in capture.verify()} == {"bitwise"}
    for tensor in (total, rows):
        assert (tensor.grad_fn, tensor.requires_grad, int(tensor.count_nonzero())) == (None, False, 0)


@pytest.mark.parametrize("engine", ["auto", "aot"])
def test_what_another_thread_makes_is_refused_by_name(engine: str) -> None:
    def f(x: Tensor) -> Tensor:
        found: list[Tensor] = []
        thread = threading.Thread(target=lambda: found.append((x * 3).sum()))
        thread.start()
        thread.join()
        return found[0] + x.sum()

    start = threading.Thread.start
    with pytest.raises(bp.errors.CaptureError, match="starts a thread at test_promises"):
        bp.capture(f, torch.randn(3, requires_grad=True), engine=engine)
    assert threading.Thread.start is start


def test_a_copy_of_a_module_made_inside_is_captured() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return (copy.deepcopy(self.fc)(x) * self.fc(x)).sum()

    capture = bp.capture(Twice(), torch.randn(2, 3))
    assert capture.engine == "eager"
    assert capture.verify()[0].verdict == "bitwise"


@contextlib.contextmanager
def entered() -> Iterator[None]:
    yield


@entered()
def decorated(x: Tensor) -> Tensor:
    return x * 2


def test_a_context_manager_that_decorates_a_function_is_no_iterator_that_is_used_up() -> None:
    capture = bp.capture(lambda x: decorated(x).sum(), torch.randn(3))
    assert bp.verify(capture)[-1].verdict == "bitwise"


def test_a_counter_that_an_installed_package_keeps_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "counting-1.0.dist-info").mkdir()
    (tmp_path / "counting.py").write_text(
        "import itertools\nNUMBERS = itertools.count()\n"
        "def double(x):\n    if x is None:\n        next(NUMBERS)\n    return x * 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from counting import double

    capture = bp.capture(lambda x: double(x).sum(), torch.randn(3))
    assert bp.verify(capture)[-1].verdict == "bitwise"


@pytest.mark.parametrize(("engine", "threads"), [("auto", False), ("auto", True), ("aot", True)])
def test_a_program_that_knows_its_argument_by_identity_is_refused(engine: str, threads: bool) -> None:
    x = torch.randn(3)
    table = {id(x): 2.0}
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    if threads:  # then an alias stands for an argument that gets a gradient by default
        other.start()
    try:
        with pytest.raises(bp.errors.CaptureError, match=r"tells arguments apart by identity.*by their values"):
            bp.capture(lambda x: x * table.get(id(x), 3.0), x, engine=engine)
        assert bp.capture(lambda x: x * (2 if id(x) else 3), x, engine=engine).verify()[0].verdict == "bitwise"
    finally:
        done.set()
        if threads:
            other.join()


def test_an_argument_known_by_its_version_or_its_history_is_no_identity() -> None:
    x = torch.randn(3)
    x += 1

    def f(x: Tensor) -> Tensor:
        return x * (2 + x._version) if x.is_leaf else x * x.untyped_storage().nbytes()

    bases = x, torch.randn(6, requires_grad=True) * 2, torch.randn(6)[1:4]
    assert [bp.capture(f, each).verify()[0].verdict for each in bases] == ["bitwise"] * 3


class Written(nn.Module):
    """Writes to its parameter through numpy."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.weight
        self.weight.detach().numpy()[0, 0] += 1
        return y


@pytest.mark.parametrize(("engine", "size"), [("auto", 4), ("auto", 600), ("aot", 4), ("dynamo", 4)])
def test_what_a_program_writes_through_numpy_is_put_back(engine: str, size: int) -> None:
    model = Written(size)
    before = model.weight.detach().clone()
    with pytest.raises(bp.errors.CaptureError):
        bp.capture(model, torch.randn(2, size), engine=engine)
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("size", [4, 600])
def test_what_a_program_writes_through_an_array_that_it_holds_is_put_back(size: int) -> None:
    weight, calls = nn.Parameter(torch.randn(size, size)), numpy.zeros(2)
    array = weight.detach().numpy()

    def f(x: Tensor) -> Tensor:
        y = x @ weight
        array[0, 0] += 1
        return y

    def g(x: Tensor) -> Tensor:
        calls[0] += 1
        return x * 2

    before = weight.detach().clone()
    with pytest.raises(bp.errors.CaptureError):
        bp.capture(f, torch.randn(2, size))
    assert torch.equal(weight, before)
    bp.capture(g, torch.randn(2)).verify()
    assert not calls.any()


def test_an_address_that_the_program_reads_is_a_guard_with_its_line() -> None:
    capture = bp.capture(lambda x: x * (x.data_ptr() % 2 + 1), torch.randn(3), engine="eager")
    assert [(guard.kind, guard.source is not None) for guard in capture.guards] == [("value", True), ("memory", True)]
