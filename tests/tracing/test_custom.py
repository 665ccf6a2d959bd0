"""Custom operators: a body in Python is captured, forward and backward; whatever else stays whole."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from subjects.forked import run_python
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import backprint as bp
from face import FakeTensorMode, custom
from face import torch_operators as operators

ENGINES = ("auto", "aot", "dynamo", "eager")
LIBRARY = torch.library.Library("bplib", "DEF")


def registered(name: str, fake: Callable[..., Any] | None, **options: Any) -> Callable[[Any], Any]:
    """A custom operator of this module's."""

    def made(body: Callable[..., Any]) -> Any:
        operator = torch.library.custom_op(f"bpcustom::{name}", body, mutates_args=options.get("mutates", ()))
        if fake is not None:
            operator.register_fake(fake)
        if "backward" in options:
            operator.register_autograd(options["backward"], setup_context=options.get("keep"))
        return operator

    return made


def keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*(each for each in inputs if isinstance(each, Tensor)))


@registered("gated_back", lambda grad, x: grad.new_empty(x.shape[1], grad.shape[1]))
def gated_back(grad: Tensor, x: Tensor) -> Tensor:
    return torch.einsum("ij,ik->kj", grad, x) * 3


def gated_grads(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, w = ctx.saved_tensors
    return (grad.to(w.dtype) @ w.T) * 7, gated_back(grad.to(x.dtype), x)  # on purpose not what autograd would give


@registered("gated", lambda x, w: x.new_empty(x.shape[0], w.shape[1]), backward=gated_grads, keep=keep_inputs)
def gated(x: Tensor, w: Tensor) -> Tensor:
    return F.softplus(torch.matmul(x, w)) * 0.5


@registered(
    "scaled_parts",
    lambda x, ends: torch.empty_like(x),
    backward=lambda ctx, grad: (scaled_parts(grad, ctx.saved_tensors[1]) * 2, None),
    keep=keep_inputs,
)
def scaled_parts(x: Tensor, ends: Tensor) -> Tensor:
    """As `grouped_mm_fallback` of transformers does: reads where parts end, writes each into its place."""
    out, start = torch.zeros_like(x), 0
    for index, end in enumerate(ends.tolist()):
        torch.mul(x[start:end], index + 1.0, out=out[start:end])
        start = end
    return out


@registered(
    "sine",
    torch.empty_like,
    backward=lambda ctx, grad: grad * ctx.saved_tensors[0].cos(),
    keep=keep_inputs,
)
def sine(x: Tensor) -> Tensor:
    return torch.from_numpy(numpy.sin(x.numpy()))


@registered("sneaky", torch.empty_like, backward=lambda ctx, grad: grad)
def sneaky(x: Tensor) -> Tensor:
    try:
        return torch.from_numpy(x.numpy() * 2)
    except Exception:
        return x * 100


@registered("bump", None, mutates=("x",))
def bump(x: Tensor, by: int = 2) -> None:
    x.add_(by)
    x[0] = x[1] * 2


@registered("noisy", torch.empty_like, backward=lambda ctx, grad: grad * 2)
def noisy(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5, True) + torch.rand_like(x)


@registered(
    "listed",
    lambda xs, k: [torch.empty_like(x) for x in xs],
    backward=lambda ctx, grads: ([grad * 4 for grad in grads], None),
)
def listed(xs: list[Tensor], k: float) -> list[Tensor]:
    return [x.tanh() * k for x in xs]


@registered("nested", lambda x: x.new_empty(x.shape[0], x.shape[0]), backward=lambda ctx, grad: grad.sum().expand(5, 3))
def nested(x: Tensor) -> Tensor:
    y = F.linear(x, x.clone())
    y[0] += 1
    y.view(-1)[1:3].zero_()
    return gated(x, x.T.contiguous()) + y


@registered(
    "cube",
    torch.empty_like,
    backward=lambda ctx, grad: grad * ctx.saved_tensors[0] ** 2 * 3,
    keep=keep_inputs,
)
def cube(x: Tensor) -> Tensor:
    return x.pow(3)


WEIGHTS = torch.randn(3)


@registered("weighed", torch.empty_like, backward=lambda ctx, grad: grad * WEIGHTS * 2)
def weighed(x: Tensor) -> Tensor:
    return x * WEIGHTS


@torch.library.triton_op("bpcustom::shifted", mutates_args=())
def shifted(x: Tensor) -> Tensor:
    return x.sin() + 1


shifted.register_autograd(lambda ctx, grad: grad * 5)


class Exponential(torch.autograd.Function):
    """A Python formula under the key Autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.bplib.exponential(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.saved_tensors[0].cos()


LIBRARY.define("exponential(Tensor x) -> Tensor")
LIBRARY.impl("exponential", lambda x: x.exp() * 3, "CPU")
LIBRARY.impl("exponential", torch.empty_like, "Meta")
LIBRARY.impl("exponential", Exponential.apply, "Autograd")


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return gated(x, self.w).sum(1)


class Autocast(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu"):
            return gated(x, self.w).float().sum()


class Island(Weighted):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            cut = gated(x, self.w)
        return cut.mean() * x.sum() + self.w.sum()


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            bump(self.seen, 3)
        return (x * self.seen).sum()


def filled(x: Tensor) -> Tensor:
    y = x.detach().clone()
    bump(y)
    return (x * y).sum()


PROGRAMS: dict[str, Callable[[], Any]] = {
    "a parameter": Weighted,
    "autocast": Autocast,
    "no_grad": Island,
    "a buffer that changes": Counting,
    "a copy that changes": lambda: filled,
    "random": lambda: lambda x: noisy(x * 2).sum(),
    "lists": lambda: lambda x: sum(t.sum() for t in listed([x * 2, x + 1], 0.3)),
    "one inside another": lambda: lambda x: nested(x * 2).sum(),
    "triton_op": lambda: lambda x: shifted(x * 2).sum(),
    "Library.impl": lambda: lambda x: torch.ops.bplib.exponential(x * 2).sum(),
    "checkpoint": lambda: (
        lambda x: checkpoint(lambda y: gated(y, torch.ones(3, 4)).sin(), x * 2, use_reentrant=False).sum()
    ),
    "twice": lambda: lambda x: (gated(x, x.T) + gated(x, x.T * 2)).sum(),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *((name, engine) for name in PROGRAMS for engine in ("aot", "eager")),
        *((name, "dynamo") for name in ("a buffer that changes", "lists", "one inside another", "checkpoint")),
    ],
)
def test_the_body_is_captured_with_the_backward_that_is_registered(name: str, engine: str, tmp_path: Path) -> None:
    program, x = PROGRAMS[name](), torch.randn(5, 3, requires_grad=True)
    module = program if isinstance(program, nn.Module) else nn.Module()
    parameters = dict(module.named_parameters())
    buffers = {key: each.clone() for key, each in module.named_buffers()}
    capture = bp.capture(program, x, engine=engine)
    assert capture.requires == ()
    assert bp.verify(capture)[-1].verdict == "bitwise"
    torch.manual_seed(capture.seed)
    got = bp.replay(capture, x)
    torch.manual_seed(capture.seed)
    want = program(x)
    wanted = torch.autograd.grad(want, [x, *parameters.values()], torch.ones_like(want), allow_unused=True)
    assert torch.equal(got.outputs, want)
    for key, gradient in zip(["x", *parameters], wanted, strict=True):
        assert torch.equal(got.gradients[key], gradient)
    for key, before in buffers.items():
        assert torch.equal(got.mutations[key], module.get_buffer(key))
        module.get_buffer(key).copy_(before)
    capture.save(tmp_path / "sample")
    assert bp.verify(bp.load(tmp_path / "sample"))[-1].verdict == "bitwise"
    assert leftovers() == []


def leftovers() -> list[str]:
    """Kernels of ours that still stand in front of operators."""
    return [entry for entry in torch.library._impls if entry.startswith("bp") and entry.endswith("/Python")]


def test_without_values_the_body_is_captured_too() -> None:
    x = torch.randn(5, 3)
    real, fake = bp.capture(Weighted(), x, engine="aot"), bp.capture(Weighted(), x, fake=True)
    assert fake.requires == ()
    assert fake.pairs[0].forward.code == real.pairs[0].forward.code
    assert fake.pairs[0].backward.code == real.pairs[0].backward.code


def test_steps_have_the_bodys_own_lines() -> None:
    capture = bp.capture(Weighted(), torch.randn(5, 3))
    lines = {step.source.code for step in capture.pairs[0].forward.steps if step.source}
    assert "return F.softplus(torch.matmul(x, w)) * 0.5" in lines


def test_a_script_that_is_recorded_has_the_body(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import torch\nfrom test_custom import gated\n"
        "w = torch.nn.Parameter(torch.ones(3, 4))\nsgd = torch.optim.SGD([w], 0.1)\n"
        "for _ in range(2):\n    sgd.zero_grad()\n    gated(torch.ones(2, 3), w).sum().backward()\n    sgd.step()\n"
    )
    (capture,) = bp.record(script, [str(Path(__file__).parent)])
    assert capture.requires == ()
    assert bp.verify(capture)[-1].verdict == "bitwise"
    assert leftovers() == []


def test_the_backend_of_torch_compile_saves_the_body(tmp_path: Path) -> None:
    torch._dynamo.reset()
    options = {"dir": str(tmp_path)}
    x = torch.randn(5, 3, requires_grad=True)
    torch.compile(lambda y: gated(y, torch.ones(3, 4)).sum(), backend="backprint", options=options)(x).backward()
    (sample,) = tmp_path.iterdir()
    assert bp.load(sample).requires == ()
    assert bp.verify(bp.load(sample))[-1].verdict == "bitwise"


# ------------------------------------------------------------------ values that a body reads


@pytest.mark.parametrize("engine", ENGINES)
def test_values_that_a_body_reads_are_guards(engine: str, tmp_path: Path) -> None:
    x, ends = torch.randn(5, 3, requires_grad=True), torch.tensor([2, 2, 5])
    capture = bp.capture(lambda x, ends: scaled_parts(x * 2, ends).sum(), x, ends, engine=engine, specialize=True)
    assert capture.requires == ()
    assert bp.verify(capture)[-1].verdict == "bitwise"
    capture.save(tmp_path / "sample")
    for made in (capture, bp.load(tmp_path / "sample")):
        with pytest.raises(bp.errors.GuardError, match=r"test_custom\.py"):
            bp.replay(made, x, torch.tensor([1, 2, 5]))


def test_a_body_that_reads_is_refused_where_no_value_may_be_taken_for_granted() -> None:
    with pytest.raises(bp.errors.DataDependentError, match=r"test_custom\.py.*allow=\('bpcustom::scaled_parts',\)"):
        bp.capture(scaled_parts, torch.randn(5, 3), torch.tensor([2, 5]), engine="aot", specialize=False)


def test_a_body_that_needs_values_stays_whole_where_there_are_none(tmp_path: Path) -> None:
    x, ends = torch.randn(5, 3), torch.tensor([2, 5])
    with bp.fake():
        ends = ends + torch.zeros(2, dtype=torch.long).random_()
    capture = bp.capture(scaled_parts, x, ends, fake=True)
    assert capture.requires == ("torch.ops.bpcustom.scaled_parts.default",)
    assert any("does not run without values" in said for said in capture.why)
    with pytest.raises(bp.errors.RefusedError, match=r"bpcustom\.scaled_parts.*does not run without values"):
        capture.save(tmp_path / "sample")


# ------------------------------------------------------------------ operators that stay whole


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("operator", [sine, sneaky])
def test_a_body_that_leaves_torch_stays_whole(operator: Any, engine: str, tmp_path: Path) -> None:
    x = torch.randn(4, requires_grad=True)
    capture = bp.capture(lambda x: operator(x * 2).sum(), x, engine=engine)
    name = operator._qualname
    assert capture.requires == (f"torch.ops.{name.replace('::', '.')}.default",)
    assert any(said.startswith(f"{name} stays whole: its body leaves torch by Tensor.numpy") for said in capture.why)
    assert bp.verify(capture)[-1].verdict == "bitwise"
    other = torch.randn(4)
    assert torch.equal(bp.replay(capture, other).outputs, operator(other * 2).sum())
    with pytest.raises(bp.errors.RefusedError, match=r"leaves torch by Tensor\.numpy at .*test_custom\.py.*allow="):
        capture.save(tmp_path / "sample")
    capture.save(tmp_path / "sample", allow=(name,))
    assert bp.verify(bp.load(tmp_path / "sample", allow=(name,)))[-1].verdict == "bitwise"


@pytest.mark.parametrize("engine", ENGINES)
def test_an_operator_that_is_allowed_stays_whole_and_its_backward_does_not(engine: str) -> None:
    module = Weighted()
    capture = bp.capture(module, torch.randn(5, 3), engine=engine, allow=("bpcustom::gated",))
    assert capture.requires == ("torch.ops.bpcustom.gated.default",)
    assert not any("stays whole" in said for said in capture.why)
    assert bp.verify(capture)[-1].verdict == "bitwise"


@pytest.mark.parametrize("options", [{}, {"engine": "eager"}, {"fake": True}])
def test_an_operator_that_changes_its_argument_may_be_allowed(options: dict[str, Any]) -> None:
    capture = bp.capture(filled, torch.randn(5, 3), allow=("bpcustom.bump",), **options)
    assert capture.requires == ("torch.ops.bpcustom.bump.default",)
    assert bp.verify(capture)[-1].verdict == ("unproven" if options.get("fake") else "bitwise")


def test_a_decomposition_that_is_asked_for_is_taken() -> None:
    capture = bp.capture(
        lambda x: shifted(x).sum(),
        torch.randn(3),
        decompose={torch.ops.bpcustom.shifted.default: lambda x: torch.sin(x) + 1.0},
    )
    assert capture.requires == ()
    assert bp.verify(capture)[-1].verdict == "bitwise"


def test_an_operator_without_python_is_refused_at_save(tmp_path: Path) -> None:
    x, w = torch.randn(2, 3), torch.randn(4, 3)
    capture = bp.capture(
        lambda x, w: torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], ""), x, w, requires_grad=False
    )
    assert capture.requires == ("torch.ops.mkldnn._linear_pointwise.default",)
    with pytest.raises(bp.errors.RefusedError, match=r"custom operator mkldnn\._linear_pointwise\.default, so"):
        capture.save(tmp_path / "sample")


# ------------------------------------------------------------------ everything as it was


class Log(TorchDispatchMode):
    """What a thread's own mode sees."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_another_thread_has_the_operator_whole_meanwhile(tmp_path: Path) -> None:
    place = tmp_path / "seen"

    def elsewhere() -> None:
        x, w = torch.ones(2, 3), torch.ones(3, 2)
        with Log() as log:
            gated(x, w)
        place.write_text(" ".join(log.names))

    def program(x: Tensor) -> Tensor:
        if not place.exists():
            other = threading.Thread(target=elsewhere)
            other.start()
            other.join()
        return gated(x, torch.ones(3, 2)).sum()

    capture = bp.capture(program, torch.randn(2, 3), engine="eager")
    assert place.read_text() == "bpcustom.gated.default"
    assert capture.requires == ()


@contextlib.contextmanager
def raising() -> Iterator[None]:
    with pytest.raises(ZeroDivisionError):
        yield


def test_nothing_stands_in_front_of_operators_after_an_error() -> None:
    def program(x: Tensor) -> Tensor:
        return gated(x, torch.ones(3, 2)).sum() / (1 // 0)

    for engine in ("aot", "eager"):
        with raising():
            bp.capture(program, torch.randn(2, 3), engine=engine)
    assert leftovers() == []
    x, w = torch.ones(2, 3), torch.ones(3, 2)
    with Log() as log:
        gated(x, w)
    assert log.names == ["bpcustom.gated.default"]


def test_a_sample_of_a_body_runs_with_torch_alone(tmp_path: Path) -> None:
    capture = bp.capture(Weighted(), torch.randn(5, 3))
    capture.save(tmp_path / "sample")
    model = tmp_path / "sample" / "pair_0" / "forward" / "model.py"
    assert "bpcustom" not in "".join(line for line in model.read_text().splitlines() if "torch.ops" in line)
    assert run_python([model], flags=["-I"]).returncode == 0


# ------------------------------------------------------------------ order=2


@pytest.mark.parametrize("engine", ["aot", "eager"])
def test_a_second_order_goes_through_a_formula_that_has_a_derivative(engine: str) -> None:
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    capture = bp.capture(lambda x: cube(x).sum(), x, order=2, engine=engine)
    assert capture.requires == ()
    assert bp.verify(capture)[-1].verdict == "bitwise"


def test_a_formula_without_a_derivative_is_refused_by_name_with_its_line() -> None:
    with pytest.raises(
        bp.errors.CaptureError, match=r"order=2.*bpcustom\.gated_back.*test_custom\.py.*register_autograd"
    ):
        bp.capture(Weighted(), torch.randn(5, 3), order=2)


def test_an_operator_that_the_program_registers_while_it_runs_has_a_body_too() -> None:
    with torch.library._scoped_library("bplate", "DEF") as library:

        def program(x: Tensor) -> Tensor:
            if not hasattr(torch.ops.bplate, "double"):
                library.define("double(Tensor x) -> Tensor")
                library.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
                library._register_fake("double", torch.empty_like)
            return torch.ops.bplate.double(x)

        capture = bp.capture(program, torch.randn(3), requires_grad=False)
        assert capture.requires == ()
        assert bp.verify(capture)[-1].verdict == "undifferentiable"


def test_a_tensor_that_a_body_takes_from_outside_is_an_input() -> None:
    capture = bp.capture(lambda x: weighed(x * 2).sum(), torch.randn(3, requires_grad=True))
    assert [port.role for port in capture.pairs[0].forward.inputs] == ["input", "constant"]
    assert bp.verify(capture)[-1].verdict == "bitwise"


@registered(
    "picked",
    lambda x, n: torch.empty_like(x),
    backward=lambda ctx, grad: (grad * ctx.n.tolist()[1], None),
    keep=lambda ctx, inputs, output: setattr(ctx, "n", inputs[1]),
)
def picked(x: Tensor, n: Tensor) -> Tensor:
    return x * n[0].item()


def test_a_value_that_the_backward_alone_reads_is_not_taken_for_one_that_the_forward_checks() -> None:
    x, n = torch.randn(3, requires_grad=True), torch.tensor([2, 3])
    capture = bp.capture(lambda x, n: picked(x * 2, n).sum(), x, n)
    assert capture.engine == "eager"
    assert bp.verify(capture)[-1].verdict == "bitwise"
    with pytest.raises(bp.errors.GuardError):
        bp.replay(capture, x, torch.tensor([2, 4]))
    traced = bp.capture(lambda x, n: picked(x * 2, n).sum(), x, n, engine="aot", specialize=True)
    assert any(guard.kind == "pinned" for guard in traced.guards)
    with pytest.raises(bp.errors.GuardError):
        bp.replay(traced, x, torch.tensor([2, 4]))


# ------------------------------------------------------------------ the mark of a thread


def test_a_mark_that_another_thread_ends_is_gone_from_the_thread_that_began_it() -> None:
    begun, ended, seen = threading.Event(), threading.Event(), []
    mark = custom.marking_thread(True)

    def begin() -> None:
        mark.__enter__()
        seen.append(custom.is_marked())
        begun.set()
        ended.wait(10)
        seen.append(custom.is_marked())

    thread = threading.Thread(target=begin)
    thread.start()
    assert begun.wait(10)
    mark.__exit__(None, None, None)
    ended.set()
    thread.join()
    assert seen == [True, False]
    assert not custom.is_marked()


def test_a_thread_of_autograds_has_the_mark_of_the_thread_that_called_it() -> None:
    """A hook in a context of its own sees what a thread of autograd's sees: only what autograd hands on."""
    seen: list[tuple[bool, bool]] = []

    def hook(gradient: Tensor) -> None:
        seen.append((operators.callers_context() is not None, contextvars.Context().run(custom.is_marked)))

    y = torch.ones(2, requires_grad=True) * 2
    y.register_hook(hook)
    with custom.marking_thread(True):
        y.sum().backward()
    ((handed, marked),) = seen
    assert marked == handed
    assert handed or torch.__version__ < "2.12"


def test_an_operator_that_has_a_kernel_for_a_device_alone_is_whole_there(monkeypatch: pytest.MonkeyPatch) -> None:
    func, plain = torch.ops.aten._fused_rms_norm.default, torch.ops.aten.matmul.default
    has_kernel = custom.has_kernel
    kernels = {("aten::_fused_rms_norm", "CUDA")}
    monkeypatch.setattr(custom, "has_kernel", lambda name, key: (name, key) in kernels or has_kernel(name, key))
    here = torch.randn(3, 4)
    with FakeTensorMode():
        there = torch.empty(3, 4, device="cuda")
    for tensor, composite in ((here, True), (there, False)):
        assert custom.is_composite(func, (tensor, [4], None, None), {}) is composite
        assert custom.is_composite(plain, (tensor, tensor), {})
