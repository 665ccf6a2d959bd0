"""What was once found silently wrong, changed its caller, or crashed: each is right, guarded or refused by name.

The numbers are those of the reproductions, by cause:

    stand-ins     01 02 03        parameters captured as copies of themselves       here
    reads         04-07 14        values read where no engine looks                 here
    signature     08              an argument in the memory of another tensor       here
                  09 10 22        arguments at replay                               replaying/test_arguments.py
    state         11 12           the caller's module and lists                     here
                  13              generators, nested lists, defaults                here, tracing/test_promises.py
    record        15 16 17        hook_optimizer, gan, workers                      tracing/test_scripts.py
                  18              checkpointed, data_assigned, lbfgs, sam           tracing/test_scripts.py
    compile       19              checkpoints with dropout                          test_backend_unchanged.py
    crashes       20 24           errors of no tree of ours; a process that ends    here
    false alarms  21 23           right, and called wrong                           here
    threads       25              what another thread does meanwhile                here
"""

from __future__ import annotations

import contextlib
import copy
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import backprint as bp

Made = tuple[Callable[..., Any], tuple[Any, ...]]
Results = tuple[list[Tensor], dict[str, Tensor | None], dict[str, Tensor]]


@dataclass(frozen=True)
class Found:
    """One program: `make` builds it and its arguments anew; `others` are arguments that a capture is also tried with.

    `refused` is what a refusal says, where refusing is right; `look` gives what else the caller must find unchanged;
    `verdicts` are those that a proof may give.
    """

    make: Callable[[], Made]
    others: tuple[tuple[Any, ...], ...] = ()
    refused: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    look: Callable[[Any], Any] = lambda fn: None
    verdicts: tuple[str, ...] = ("bitwise", "undifferentiable")


def net(forward: Callable[..., Any], init: Callable[[Any], Any] = lambda self: None) -> nn.Module:
    """A module with a weight `w` of (4, 4), and what `init` adds."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(4, 4))
            init(self)

    Net.forward = forward
    return Net()


def on(forward: Callable[..., Any], init: Callable[[Any], Any] = lambda self: None, **more: Any) -> Found:
    return Found(lambda: (net(forward, init), (torch.randn(3, 4),)), **more)


def of(fn: Callable[..., Any], *others: Any, **more: Any) -> Found:
    """A function of one positive tensor, tried on its negative too."""
    return Found(lambda: (fn, (torch.rand(3, 4) + 0.1,)), ((-torch.rand(3, 4) - 0.1,), *others), **more)


# ------------------------------------------------------------------ eager PyTorch on a fresh copy


def fresh(found: Found, args: tuple[Any, ...] | None = None) -> Made:
    torch.manual_seed(0)
    fn, own = found.make()
    return fn, own if args is None else args


def truth(fn: Callable[..., Any], args: tuple[Any, ...], asked: bool) -> Results:
    """Outputs, gradients by name and changes by name of one call; `asked`: whoever is a float asks."""
    module = program_of(fn)
    state = dict(module.state_dict(keep_vars=True)) if module is not None else {}
    if asked:
        args = tuple(arg.clone().requires_grad_() if floating(arg) else arg for arg in args)
    before = {name: value.detach().clone() for name, value in state.items()}
    torch.manual_seed(5)
    outputs = flat(fn(*args))
    leaves = {name: value for name, value in state.items() if value.requires_grad}
    leaves |= {str(n): arg for n, arg in enumerate(args) if isinstance(arg, Tensor) and arg.requires_grad}
    after = {name: value.detach().clone() for name, value in state.items() if not same(value, before[name])}
    graded = [y for y in outputs if y.requires_grad]
    given = (
        torch.autograd.grad(graded, [*leaves.values()], [torch.ones_like(y) for y in graded], allow_unused=True)
        if graded and leaves
        else ()
    )
    return [y.detach() for y in outputs], dict(zip(leaves, given, strict=False)), after


def program_of(fn: Callable[..., Any]) -> nn.Module | None:
    """The module that is called, or that a function calls."""
    return fn if isinstance(fn, nn.Module) else getattr(fn, "module", None)


def flat(outputs: Any) -> list[Tensor]:
    return [y for y in torch.utils._pytree.tree_leaves(outputs) if isinstance(y, Tensor)]


def floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def same(left: Any, right: Any) -> bool:
    return (left is None) == (right is None) and (left is None or bool(torch.equal(left, right)))


def asks(fn: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether all floats ask, because nothing else does."""
    module = program_of(fn)
    tensors = [*(module.parameters() if module is not None else ()), *(arg for arg in args if isinstance(arg, Tensor))]
    return options.get("requires_grad") is None and not any(tensor.requires_grad for tensor in tensors)


def compared(capture: bp.Capture, found: Found, own: tuple[Any, ...], args: tuple[Any, ...] | None) -> None:
    """A replay against the truth; on other arguments than the captured it may raise."""
    outputs, gradients, changes = truth(*(made := fresh(found, args)), asks(*made, found.options))
    torch.manual_seed(5)
    try:
        result = bp.replay(capture, *(own if args is None else args))
    except bp.errors.ReplayError:
        assert args is not None, "it does not run on its own inputs"
        return
    for left, right in zip(flat(result.outputs), outputs, strict=True):
        assert same(left, right), f"output: {left} where the program gives {right}"
    graded = [*result.gradients.values()] if program_of(made[0]) is None else None
    for n, (name, right) in enumerate(gradients.items()):
        left = graded[n] if graded is not None else named(result.gradients, name)
        assert same(left, right), f"gradient of {name}: {left} where autograd gives {right}"
    for name, right in changes.items():
        left = named(result.mutations, name)
        assert same(left, right), f"{name} becomes {left}, in eager {right}"


def named(results: Any, name: str) -> Any:
    """The result of this name, whatever stands before it."""
    return next(value for key, value in results.items() if key == name or key.endswith(f".{name}"))


def picture(fn: Callable[..., Any], args: tuple[Any, ...], look: Callable[[Any], Any]) -> Any:
    """What a caller can see of a program, its arguments and the random states."""
    module = program_of(fn)
    state = [*module.state_dict(keep_vars=True).items()] if module is not None else []
    tensors = [*state, *((str(n), arg) for n, arg in enumerate(args) if isinstance(arg, Tensor))]
    seen = [(name, type(value), value.is_inference() or value._version, digest(value)) for name, value in tensors]
    own = [(type(p), None if p.grad is None else digest(p.grad)) for _, p in tensors]
    randoms = (digest(torch.get_rng_state()), repr(np.random.get_state()), random.getstate())
    return seen, own, randoms, torch.get_default_dtype(), torch.is_grad_enabled(), look(fn)


def digest(tensor: Tensor) -> str:
    return repr(tensor.detach().tolist())


# ------------------------------------------------------------------ the programs


def penalised(self: Any, x: Tensor) -> Tensor:
    return (x @ self.w).square().mean() + 0.1 * sum(p.square().sum() for p in self.all)


def trains_itself(self: Any, x: Tensor) -> Tensor:
    self.optimizer.zero_grad()
    (x @ self.w).square().mean().backward()
    self.optimizer.step()
    return (x @ self.w).detach()


STAND_INS = {
    "01 a penalty over a list of parameters": on(penalised, lambda s: setattr(s, "all", [*s.parameters()])),
    "01 a parameter in a list alone": on(lambda s, x: x @ s.ws[0], lambda s: setattr(s, "ws", [s.w])),
    "01 functional_call on a dict": on(
        lambda s, x: torch.func.functional_call(s.inner, s.table, (x,)) @ s.w,
        lambda s: (setattr(s, "inner", nn.Linear(4, 4)), setattr(s, "table", dict(s.inner.named_parameters()))),
    ),
    "02 isinstance": on(lambda s, x: x @ s.w * (2 if isinstance(s.w, nn.Parameter) else 3)),
    "02 an attribute": on(lambda s, x: x @ s.w * getattr(s.w, "scale", 1.0), lambda s: setattr(s.w, "scale", 2.0)),
    "02 a dict by parameter": on(lambda s, x: x @ s.w * s.t.get(s.w, 1.0), lambda s: setattr(s, "t", {s.w: 2.0})),
    "02 a dict by id": on(lambda s, x: x @ s.w * s.t.get(id(s.w), 1.0), lambda s: setattr(s, "t", {id(s.w): 2.0})),
    "02 a gradient that is read": on(
        lambda s, x: x @ s.w + (0 if s.w.grad is None else s.w.grad.sum()),
        lambda s: setattr(s.w, "grad", torch.ones(4, 4)),
    ),
    "03 a module with its optimizer": on(
        trains_itself, lambda s: setattr(s, "optimizer", torch.optim.SGD([s.w], lr=0.1))
    ),
}


class Signed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2 if g.sum() > 0 else g * 3


def decomposed(matrix: Tensor, x: Tensor) -> Tensor:
    try:
        torch.linalg.cholesky(matrix)
    except torch.linalg.LinAlgError:
        return x * 3
    return x * 2


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=4)[0]


PADDED = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(1))
ROW = torch.tensor([[1.0, 2, 3, 4]])


def first_of(x: Tensor) -> Tensor:
    values: list[float] = x.detach()[0].tolist()
    return x * values[0]


def scripted() -> Made:
    script = torch.jit.script(first_of)
    return lambda x: script(x), (torch.rand(3, 4) + 0.1,)


POOL = ThreadPoolExecutor(1)


def in_numpy(x: Tensor) -> Tensor:
    away, back = (lambda t: t.detach().numpy().copy()), torch.from_numpy
    with torch.autograd.graph.saved_tensors_hooks(away, back):
        return x.sin() * x.exp()


READS = {
    "05 equal": of(lambda x: x * 2 if torch.equal(x, x.abs()) else x * 3),
    "05 allclose": of(lambda x: x * 2 if torch.allclose(x, x.abs()) else x * 3),
    "06 packed lengths": Found(
        lambda: (Packed(), (PADDED, torch.tensor([4, 2, 2]))), ((PADDED, torch.tensor([4, 3, 1])),)
    ),
    "06 tensor_split": Found(
        lambda: (lambda x, n: torch.tensor_split(x, n, dim=1)[0].sum(), (ROW, torch.tensor([1]))),
        ((ROW, torch.tensor([3])),),
    ),
    "06 a tensor of a tensor": Found(
        lambda: (lambda x, a: torch.tensor([a, a * 2]).sum() * x, (ROW, torch.tensor(0.2))),
        ((ROW, torch.tensor(0.9)),),
        options={"engine": "eager"},
    ),
    "07 a kernel's exception": Found(
        lambda: (decomposed, (torch.eye(2) * 2, torch.ones(2))),
        ((torch.tensor([[1.0, 2], [2, 1]]), torch.ones(2)),),
    ),
    "07 text": of(lambda x: x * 2 if "-" in str(x) else x * 3),
    "14 dlpack": of(lambda x: x * float(np.from_dlpack(x.detach()).sum())),
    "14 TorchScript": Found(scripted, ((-torch.rand(3, 4) - 0.1,),)),
    "14 a thread": of(
        lambda x: x * POOL.submit(lambda: x.detach().sin()).result(), verdicts=("wrong",), refused="no engine captures"
    ),  # never proved: what the thread makes is a constant, and x is pinned; or the thread is seen to start
    "14 numpy in hooks on saved tensors": of(in_numpy),
}


def into_memory() -> Made:
    base = torch.randn(6)

    def f(view: Tensor) -> Tensor:
        view.mul_(2)
        return base * base.sum()

    return f, (base[:3],)


SIGNATURE = {"08 an argument in a tensor from outside": Found(into_memory, options={"requires_grad": False})}


def averages(self: Any, x: Tensor) -> Tensor:
    self.n = self.n * 0.9 + x.detach().mean(0)
    return (x @ self.w) * self.n


def inside_a_function(make: Callable[[], nn.Module]) -> Callable[[], Made]:
    def made() -> Made:
        module = make()

        def f(x: Tensor) -> Tensor:
            return module(x)

        f.module = module
        return f, (torch.randn(3, 4),)

    return made


def averaged() -> Made:
    model = nn.Linear(4, 1)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))

    def f(x: Tensor) -> Tensor:
        average.update_parameters(model)
        return average(x)

    f.module = average
    return f, (torch.randn(3, 4),)


def clamped(self: Any, x: Tensor) -> Tensor:
    self.w.data.renorm_(2, 0, 0.5)
    return x @ self.w


def doubled(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        self.row.mul_(2)
    return x @ self.w


def counted(self: Any, x: Tensor) -> Tensor:
    self.log["h"].append(1)
    return x @ self.w * len(self.log["h"])


def kept(make: Callable[[], Any], number: Callable[[Any], Any]) -> Callable[[], Made]:
    """A function with a generator of its own."""

    def made() -> Made:
        source = make()

        def f(x: Tensor) -> Tensor:
            return x * number(source)

        f.source = source
        return f, (torch.randn(3, 4),)

    return made


STATE = {
    "11 a buffer that is replaced": Found(
        inside_a_function(lambda: net(averages, lambda s: s.register_buffer("n", torch.zeros(4))))
    ),
    "11 an averaged model": Found(averaged),
    "11 a list that hooks fill": on(
        lambda s, x: s.inner(x) @ s.w,
        lambda s: (
            setattr(s, "inner", nn.Linear(4, 4)),
            setattr(s, "seen", []),
            s.inner.register_forward_hook(lambda m, i, o: s.seen.append(o)),
        ),
        look=lambda fn: len(fn.seen),
    ),
    "12 p.data in place": on(clamped),
    "12 an alias of a parameter": on(doubled, lambda s: setattr(s, "row", s.w.detach()[0])),
    "13 torch's generator": Found(
        kept(lambda: torch.Generator().manual_seed(1), lambda g: torch.rand(4, generator=g)),
        look=lambda f: digest(f.source.get_state()),
    ),
    "13 numpy's generator": Found(
        kept(lambda: np.random.default_rng(0), lambda g: g.random()), look=lambda f: repr(f.source.bit_generator.state)
    ),
    "13 Python's generator": Found(
        kept(lambda: random.Random(0), lambda g: g.random()), look=lambda f: f.source.getstate()
    ),
    "13 a list in a dict": on(counted, lambda s: setattr(s, "log", {"h": []}), look=lambda fn: len(fn.log["h"])),
}


class PackedOut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 4)

    def forward(self, x: Tensor) -> Any:
        return self.gru(nn.utils.rnn.pack_padded_sequence(x, [5, 3], batch_first=True))[0]


class Unpacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 4)

    def forward(self, *xs: Tensor) -> Any:
        return nn.utils.rnn.unpack_sequence(self.gru(nn.utils.rnn.pack_sequence(xs, enforce_sorted=False))[0])


def inferred() -> Made:
    with torch.inference_mode():
        return nn.Linear(4, 4), (torch.randn(3, 4),)


def reads_inferred() -> Made:
    with torch.inference_mode():
        outside = torch.ones(4)
    return lambda x: x + outside, (torch.randn(3, 4),)


def drawn(fn: Callable[[Tensor], Tensor]) -> Found:
    return Found(lambda: (fn, (torch.randn(4, 4),)), options={"engine": "eager"})


def nested(x: Tensor) -> Tensor:
    return torch.nested.nested_tensor([x[:1], x]).to_padded_tensor(0.0).sum() * x


CRASHES = {
    "20 a packed sequence as output": Found(lambda: (PackedOut(), (torch.randn(2, 5, 3),)), refused="PackedSequence"),
    "20 unpack_sequence": Found(lambda: (Unpacked(), (torch.randn(3, 3), torch.randn(5, 3))), refused="Unpacked"),
    "20 a nested tensor inside": Found(lambda: (nested, (torch.randn(3, 4),)), refused="nested"),
    "20 rrelu": drawn(lambda x: F.rrelu(x, training=True)),
    "20 gumbel_softmax": drawn(F.gumbel_softmax),
    "20 alpha_dropout": drawn(lambda x: F.alpha_dropout(x, 0.5)),
    "20 fractional_max_pool2d": drawn(lambda x: F.fractional_max_pool2d(x.view(1, 1, 4, 4), 2, output_size=(2, 2))),
    "20 a model made in inference mode": Found(inferred, refused="inference"),
    "20 a tensor of a closure made in inference mode": Found(reads_inferred, refused="made in inference mode"),
    "20 a dict by parameter": on(lambda s, x: x @ s.w * s.t[s.w], lambda s: setattr(s, "t", {s.w: 2.0})),
}


def aliased(self: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        self.w.mul_(2)
    return x @ self.w + self.alias.sum()


def doubles(x: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    try:
        return x * torch.ones(4)
    finally:
        torch.set_default_dtype(torch.float32)


def grown(x: Tensor) -> Tensor:
    y = x.detach().clone()
    y.resize_(5, 4)
    y[3:] = 1
    return y.sum() * x


def written(x: Tensor) -> Tensor:
    y = x.detach().clone()
    y.numpy()[:] += 1
    return x * y


def normed(x: Tensor) -> Tensor:
    y = x * 1
    y.register_hook(lambda g: g / g.norm().item())
    return y * 2


def rerun(x: Tensor) -> Tensor:
    return checkpoint(lambda a: F.dropout(a, 0.5) * a, x, use_reentrant=False, preserve_rng_state=False)


FALSE_ALARMS = {
    "21 an alias of a parameter": on(aliased, lambda s: setattr(s, "alias", s.w.data)),
    "23 a default dtype inside": Found(
        lambda: (doubles, (torch.randn(3, 4),)), options={"engine": "eager"}, refused="program returns float64"
    ),
    "23 resize_": of(grown, refused="resize_"),
    "23 a write through numpy": of(written, refused="numpy"),
    "23 a hook that reads": of(normed),
    "23 a checkpoint that draws anew": of(rerun, refused="checkpoint"),
    "23 paths that are spelled alike": of(lambda x: {"a.b": x * 2, "a": {"b": x * 3}}),
}

CAUSES = {
    "stand-ins": STAND_INS,
    "reads": READS,
    "signature": SIGNATURE,
    "state": STATE,
    "crashes": CRASHES,
    "false alarms": FALSE_ALARMS,
}
ROWS = {f"{cause}: {name}": found for cause, table in CAUSES.items() for name, found in table.items()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ROWS)
def test_right_guarded_or_refused(name: str) -> None:
    found = ROWS[name]
    fn, args = fresh(found)
    before = picture(fn, args, found.look)
    try:
        capture = bp.capture(fn, *args, **found.options)
    except bp.errors.BackprintError as error:
        if not (found.refused and re.search(found.refused, str(error))):
            raise
        return
    finally:
        assert picture(fn, args, found.look) == before, "the capture changed its caller"
    verdict = capture.verify()[-1]
    assert verdict.verdict in found.verdicts, verdict
    assert picture(fn, args, found.look) == before, "verify changed its caller"
    for other in (None, *found.others):
        compared(capture, found, args, other)


# ------------------------------------------------------------------ what is more than a call


@pytest.mark.parametrize("data", ["seed", "exact"])
def test_04_a_value_read_in_a_backward(data: str, tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    capture = bp.capture(Signed.apply, x)
    assert capture.verify()[-1].verdict == "bitwise"
    sample = bp.load(capture.save(tmp_path / "sample", data=data))
    ran = 0
    for tangent in (torch.ones(3, 4), -torch.ones(3, 4)):
        for kept in (capture, sample):
            leaf = x.clone().requires_grad_()
            (right,) = torch.autograd.grad(Signed.apply(leaf), leaf, tangent)
            with contextlib.suppress(bp.errors.GuardError):
                (left,) = bp.replay(kept, x, tangents=[tangent]).gradients.values()
                assert torch.equal(left, right)
                ran += 1
    assert ran == 2


@pytest.mark.parametrize("engine", ["auto", "dynamo"])
def test_12_a_refused_engine_leaves_parameters(engine: str) -> None:
    model, x = net(clamped), torch.randn(3, 4)
    before = model.w.detach().clone()
    with contextlib.suppress(bp.errors.CaptureError):
        bp.capture(model, x, engine=engine)
    assert torch.equal(before, model.w)


def test_13_a_default_dtype_is_put_back() -> None:
    def f(x: Tensor) -> Tensor:
        torch.set_default_dtype(torch.float64)
        return x * 2

    with contextlib.suppress(bp.errors.CaptureError):
        bp.capture(f, torch.randn(3)).verify()
    assert torch.get_default_dtype() is torch.float32


def test_20_a_conjugate_view_is_proved() -> None:
    capture = bp.capture(lambda x: torch.complex(x, -x).conj(), torch.randn(3, 4))
    assert capture.verify()[-1].verdict == "bitwise"


def test_20_in_inference_mode() -> None:
    model, x = nn.Linear(4, 4), torch.randn(3, 4)
    with torch.inference_mode():
        assert bp.capture(model, x).verify()[-1].verdict == "bitwise"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_21_an_observer_that_changes_its_own_buffers() -> None:
    model, x = torch.ao.quantization.FusedMovingAvgObsFakeQuantize(), torch.randn(3, 4)
    capture, other = bp.capture(model, x), copy.deepcopy(model)
    found, right = bp.replay(capture, x), other(x)
    assert torch.equal(found.outputs, right)
    assert torch.equal(found.mutations["scale"], other.scale)
    assert capture.verify()[-1].verdict == "bitwise"


def test_21_a_mode_that_the_model_has_left() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    capture = bp.capture(model, torch.randn(3, 4))
    model.eval()
    assert capture.verify()[-1].verdict == "bitwise"
    assert not model.training


def test_21_an_autocast_that_is_over() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        capture = bp.capture(nn.Linear(4, 4), torch.randn(3, 4))
    assert capture.verify()[-1].verdict == "bitwise"


def test_23_lengths_in_lists() -> None:
    scores, targets = torch.randn(8, 2, 5).log_softmax(-1), torch.randint(1, 5, (2, 4))

    def loss(scores: Tensor, targets: Tensor) -> Tensor:
        return F.ctc_loss(scores, targets, (8, 6), (4, 3))

    with pytest.raises(bp.errors.CaptureError, match="does not compute what the program computes"):
        bp.capture(loss, scores, targets, engine="eager")
    capture = bp.capture(loss, scores, targets)
    assert capture.verify()[-1].verdict == "bitwise"


TYPED_STORAGE = """
import warnings, torch, backprint as bp
warnings.simplefilter("ignore")
def f(x): return x * float(x.detach().storage()[0])
x = torch.rand(3, 4)
capture = bp.capture(f, x)
print(capture.verify()[-1].verdict, torch.equal(bp.replay(capture, x).outputs, f(x)))
"""


@pytest.mark.slow
def test_24_a_storage_that_is_read_does_not_end_the_process() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", TYPED_STORAGE], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "bitwise True\n"), ran.stderr[-500:]


@contextlib.contextmanager
def meanwhile(work: Callable[[], Any]) -> Iterator[list[str]]:
    """Another thread that does some work over and over; what it raises."""
    errors: list[str] = []
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            try:
                work()
            except BaseException as error:
                errors.append(f"{type(error).__name__}: {error}")
            time.sleep(0.01)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield errors
    finally:
        over.set()
        thread.join()


def test_25_another_thread_goes_on_as_it_would() -> None:
    ran: list[int] = []

    def work() -> None:
        torch.manual_seed(3)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            torch.ones(3, requires_grad=True).exp().sum().backward()
        ran.append(1)

    def slow(x: Tensor) -> Tensor:
        time.sleep(0.1)
        return x.sin()

    with meanwhile(work) as errors:
        capture = bp.capture(slow, torch.randn(3, 4))
    assert not errors, set(errors)
    assert len(ran) > 5
    assert capture.verify()[-1].verdict == "bitwise"
