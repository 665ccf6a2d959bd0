"""Captures without values: the same graphs as real ones, nothing allocated, and reading values is refused by name."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from subjects.disturbed import Busy, picture
from subjects.programs import PROGRAMS, leaf
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import backprint as bp


def facts(capture: bp.Capture) -> dict[str, Any]:
    """Everything of a capture that must not hang on values."""
    graphs = [graph for pair in capture.pairs for graph in (pair.forward, pair.backward)]
    return {
        "code": [graph and graph.code for graph in graphs],
        "hash": [graph and graph.hash() for graph in graphs],
        "signature": capture.signature,
        "guards": capture.guards,
        "opaque": capture.opaque,
    }


def both(target: Any, *args: Any, **options: Any) -> tuple[bp.Capture, bp.Capture]:
    return bp.capture(target, args=args, engine="aot", **options), bp.capture(target, args=args, **options, fake=True)


# ------------------------------------------------------------------ the same as a real capture


class Language(nn.Module):
    """A language model that takes its labels, as everyone calls one: with the words themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.words(input_ids)).flatten(0, 1), labels.flatten())


@pytest.mark.parametrize("built", [True, False])
def test_one_tensor_may_be_passed_twice(built: bool, tmp_path: Path) -> None:
    words = torch.randint(0, 11, (2, 5))
    with bp.fake():
        model, ids = Language(), torch.randint(0, 11, (2, 5))
    ids = ids if built else words
    capture = bp.capture(model, input_ids=ids, labels=ids, fake=True)
    assert capture.signature.same == (("input_ids", "labels"),)
    assert bp.verify(capture)[0].verdict == "unproven"
    real = bp.capture(Language(), input_ids=words, labels=words, engine="aot")
    assert bp.verify(real)[0].verdict == "bitwise"
    assert real.pairs[0].forward.hash() == capture.pairs[0].forward.hash()
    for data in ("seed", "none"):
        loaded = bp.load(capture.save(tmp_path / data, data))
        assert loaded.signature == capture.signature
        assert loaded.pairs[0].forward.hash() == capture.pairs[0].forward.hash()
        assert bp.verify(loaded)[0].verdict == "unproven"
        done = subprocess.run(
            [sys.executable, "-m", "backprint", "show", str(tmp_path / data)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "labels" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fake_capture_is_the_real_one(name: str) -> None:
    target, args, kwargs = PROGRAMS[name]()
    fake = bp.capture(target, args=args, kwargs=kwargs, fake=True)
    assert fake.engine == ("eager" if "checkpoint" in name else "aot")
    real = bp.capture(target, args=args, kwargs=kwargs, engine=fake.engine)
    if name == "recurrent":  # oneDNN's backward gives one tensor for both biases where it runs, two where it is fake
        assert fake.pairs[0].forward == real.pairs[0].forward
    else:
        assert facts(fake) == facts(real)
    assert fake.fake
    assert not real.fake


def test_options_mean_the_same() -> None:
    options = {"mode": "eval", "loss": lambda y: y.sum(), "partition": "default"}
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5))
    assert len({str(facts(capture)) for capture in both(model, torch.randn(5, 3), requires_grad=True, **options)}) == 1


def test_a_buffer_that_is_written_in_place_and_one_that_is_replaced_are_mutations() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros(()))
            self.register_buffer("ema", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.steps += 1
            self.ema = 0.9 * self.ema + 0.1 * x.detach().mean(0)
            return x * self.ema

    real, fake = both(Counts(), leaf(2, 3))
    assert facts(fake) == facts(real)
    assert {port.name for port in fake.pairs[0].forward.by_role("mutation")} == {"steps", "ema"}


def test_an_outside_tensor_that_is_written_stays_as_it_was_and_has_its_name() -> None:
    counter = torch.zeros(3)

    def f(x: Tensor) -> Tensor:
        counter.add_(1)
        return x * counter

    real, fake = both(f, leaf(3))
    assert facts(fake) == facts(real)
    assert counter.tolist() == [0, 0, 0]
    assert counter._version == 0
    assert [port.name for port in fake.pairs[0].forward.by_role("mutation")] == ["counter"]


# ------------------------------------------------------------------ values


def test_reading_values_of_an_input_is_refused_with_its_line() -> None:
    def f(x: Tensor) -> Tensor:
        return x * x.sum().item()

    with pytest.raises(
        bp.errors.DataDependentError, match=r"_local_scalar_dense.*test_fake\.py:\d+ in f.*depends on x"
    ):
        bp.capture(f, leaf(3), fake=True)


def test_a_size_that_hangs_on_values_is_refused_with_its_line() -> None:
    with pytest.raises(bp.errors.DataDependentError, match=r"aten\.index.*test_fake\.py.*depends on x"):
        bp.capture(lambda x: x[x > 0].sum(), leaf(3), fake=True)


def test_a_random_value_is_refused() -> None:
    with pytest.raises(bp.errors.DataDependentError, match="the random seed"):
        bp.capture(lambda x: x * torch.rand(1).item(), leaf(3), fake=True)


def test_an_operator_without_a_fake_kernel_is_refused_by_name() -> None:
    library = torch.library.Library("backprint_fake_test", "FRAGMENT")
    library.define("thrice(Tensor x) -> Tensor")
    library.impl("thrice", lambda x: torch.from_numpy(x.numpy() * 3), "CPU")
    with pytest.raises(
        bp.errors.CaptureError, match=r"backprint_fake_test\.thrice.* has no fake kernel at .*test_fake\.py"
    ):
        bp.capture(lambda x: torch.ops.backprint_fake_test.thrice(x), torch.ones(2), fake=True)


def test_constants_may_be_read_while_it_runs() -> None:
    def f(x: Tensor) -> Tensor:
        rates = [rate.item() for rate in torch.linspace(0, 1, 3)]
        table = torch.arange(4) * 2 + torch.tensor([0, 0, 1, 1])
        if (table > 3).all():
            return x
        return x * rates[1] * float(table.sum()) + torch.nonzero(table > 3).sum()

    real, fake = both(f, leaf(4))
    assert facts(fake) == facts(real)
    assert ", 14.0)" in fake.pairs[0].forward.code


def test_a_small_real_input_is_specialized_on_as_in_a_real_capture() -> None:
    def f(x: Tensor, lengths: Tensor) -> Tensor:
        return torch.stack([part.sum() for part in x.split([length.item() for length in lengths])])

    real, fake = both(f, leaf(5), torch.tensor([2, 3]), specialize=True)
    assert facts(fake) == facts(real)
    assert len(fake.guards) == 2


def test_a_write_of_unknown_values_makes_a_constant_unknown_also_through_a_view() -> None:
    with bp.fake():
        table = torch.zeros(4)
        view = table[:2]
        assert table.sum().item() == 0
        view.normal_()
        with pytest.raises(torch._subclasses.fake_tensor.DataDependentOutputException):
            table[3].item()


# ------------------------------------------------------------------ building


class Drops(nn.Module):
    """What models do while they are built: read rates, fill tables, initialise."""

    def __init__(self, width: int = 8, depth: int = 3, device: Any = None) -> None:
        super().__init__()
        self.rates = [x.item() for x in torch.linspace(0, 0.3, depth)]
        self.layers = nn.ModuleList(nn.Linear(width, width, device=device) for _ in self.rates)
        self.norm = nn.LayerNorm(width, device=device)
        self.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(0, width, 2).float() / width))
        self.register_buffer("mask", torch.tril(torch.ones(4, 4, dtype=torch.bool)))
        nn.init.trunc_normal_(self.layers[0].weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        for rate, layer in zip(self.rates, self.layers, strict=True):
            x = F.dropout(layer(x), rate, self.training)
        return self.norm(x) * torch.cat([self.inv_freq, self.inv_freq])


def test_a_model_is_built_without_values_and_captured_as_the_real_one() -> None:
    with bp.fake():
        model, x = Drops(), torch.randn(2, 8)
    assert all(isinstance(tensor, FakeTensor) for tensor in model.state_dict().values())
    assert all(isinstance(parameter, nn.Parameter) for parameter in model.parameters())
    assert model.rates == pytest.approx([0, 0.15, 0.3])
    fake = bp.capture(model, x, fake=True)
    assert facts(fake) == facts(bp.capture(Drops(), torch.randn(2, 8), engine="aot"))


def test_building_from_random_values_is_refused_with_its_line() -> None:
    def build() -> nn.Module:
        with bp.fake():
            return nn.Linear(2, int(torch.rand(3).sum()))

    with pytest.raises(
        bp.errors.DataDependentError, match=r"_local_scalar_dense.*test_fake\.py:\d+ in build: 'return nn\.Lin"
    ):
        build()


def test_constants_keep_their_values_into_the_recipes() -> None:
    with bp.fake():
        model, x = Drops(), torch.randn(2, 8)
    recipes = bp.capture(model, x, fake=True).recipes
    made = recipes.make(names=["inv_freq", "norm.weight", "mask"])
    real = Drops()
    assert torch.equal(made["inv_freq"], real.inv_freq)
    assert torch.equal(made["norm.weight"], real.norm.weight)
    assert recipes.recipes["layers.0.weight"].kind == "normal"


def test_a_fake_module_is_cast() -> None:
    with bp.fake():
        model = nn.Sequential(Drops(), nn.Embedding(4, 4)).bfloat16()
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert all(isinstance(parameter, nn.Parameter) for parameter in model.parameters())


def test_the_default_dtype_counts() -> None:
    torch.set_default_dtype(torch.bfloat16)
    try:
        with bp.fake():
            model, x = nn.Linear(4, 4), torch.randn(2, 4)
    finally:
        torch.set_default_dtype(torch.float32)
    capture = bp.capture(model, x, fake=True)
    assert "bf16[4, 4] parameter weight" in capture.pairs[0].forward.code


def test_a_device_that_is_not_here_stands_for_the_cpu() -> None:
    class Moves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Drops(device="cuda")
            self.more = nn.Linear(8, 8, device=torch.device("cuda", 0)).cuda().to("cuda:0")

        def forward(self, x: Tensor) -> Tensor:
            return self.more(self.inner(x.to("cuda"))) + torch.ones(8, device="cuda").cuda()

    with bp.fake(), torch.device("cuda"):
        model, x = Moves(), torch.randn(2, 8)
    with torch.device("cuda"), bp.fake():
        y = torch.randn(2, 8)
    here = "cuda" if torch.cuda.is_available() else "cpu"
    assert {tensor.device.type for tensor in (*model.state_dict().values(), x, y)} == {here}
    capture = bp.capture(model, x, fake=True)
    ports = (*capture.pairs[0].forward.inputs, *capture.pairs[0].forward.outputs)
    assert {port.spec.device.partition(":")[0] for port in ports} == {here}
    assert ("torch.device('cuda" in capture.pairs[0].forward.code) == (here == "cuda")
    assert capture.pairs[0].backward is not None


@pytest.mark.slow
def test_a_copied_module_is_captured() -> None:
    def make() -> nn.Module:
        return nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
        )

    with bp.fake():
        model, x = make(), torch.randn(1, 3, 8)
    assert facts(bp.capture(model, x, fake=True)) == facts(bp.capture(make(), torch.randn(1, 3, 8), engine="aot"))


# ------------------------------------------------------------------ where a model may come from


def test_a_module_on_the_meta_device_takes_the_inputs_device() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    fake = bp.capture(model, torch.randn(5, 3), fake=True)
    real = bp.capture(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), torch.randn(5, 3), engine="aot")
    assert facts(fake) == facts(real)
    assert facts(bp.capture(model, torch.empty(5, 3, device="meta"), fake=True)) == facts(real)


def test_fake_tensors_of_the_users_own_mode_are_taken_and_the_mode_is_as_it_was() -> None:
    mode = FakeTensorMode()
    with mode:
        model, x = nn.Linear(3, 2), torch.randn(4, 3)
    before = mode.allow_non_fake_inputs
    assert facts(bp.capture(model, x, fake=True)) == facts(bp.capture(nn.Linear(3, 2), torch.randn(4, 3), engine="aot"))
    assert mode.allow_non_fake_inputs is before
    assert "dispatch" not in mode.__dict__


def test_fake_tensors_of_two_modes_are_refused() -> None:
    with FakeTensorMode():
        model = nn.Linear(3, 2)
    with FakeTensorMode():
        x = torch.randn(4, 3)
    with pytest.raises(
        bp.errors.CaptureError, match=r"'weight' and 'input' are fake tensors of different FakeTensorModes"
    ):
        bp.capture(model, x, fake=True)


@pytest.mark.parametrize("device", ["meta", "fake"])
def test_without_fake_such_tensors_are_refused_with_what_to_do(device: str) -> None:
    with bp.fake() if device == "fake" else torch.device("meta"):
        model = nn.Linear(3, 2)
    with pytest.raises(bp.errors.CaptureError, match="fake=True"):
        bp.capture(model, torch.randn(4, 3))


def test_an_engine_that_needs_values_is_refused() -> None:
    with pytest.raises(bp.errors.UsageError, match="engine 'eager' does not take fake=True: engine 'aot' does"):
        bp.capture(torch.sin, torch.ones(2), engine="eager", fake=True)


# ------------------------------------------------------------------ promises


def test_everything_is_as_it_was() -> None:
    model, x, scratch = Busy(), torch.randn(4, 3), torch.zeros(2)
    before = picture(model, x, scratch), gc.isenabled()
    bp.capture(model, x, scratch, mode="eval", loss=lambda y: y.sum(), fake=True)
    assert (picture(model, x, scratch), gc.isenabled()) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_everything_is_as_it_was_after_a_failure(error: type[BaseException]) -> None:
    class Stops(Busy):
        def forward(self, x: Tensor, scratch: Tensor) -> Tensor:
            super().forward(x, scratch)
            raise error("on purpose")

    model, x, scratch = Stops(), torch.randn(4, 3), torch.zeros(2)
    before = picture(model, x, scratch), gc.isenabled()
    with pytest.raises(error):
        bp.capture(model, x, scratch, fake=True)
    assert (picture(model, x, scratch), gc.isenabled()) == before
    bp.capture(Busy(), x, scratch, fake=True)


def test_a_failure_while_a_model_is_built_leaves_no_mode_behind() -> None:
    def stacks() -> tuple[int, int]:
        return torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()

    before = stacks()
    with pytest.raises(ZeroDivisionError), bp.fake():
        1 / 0  # noqa: B018  # whatever the user's code raises
    assert stacks() == before
    assert type(torch.ones(2)) is Tensor


def test_a_fake_parameter_is_as_it_was() -> None:
    with bp.fake():
        model, x = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.randn(4, 3)
    tensors = {n: (id(t), t._version, t.grad) for n, t in model.state_dict(keep_vars=True).items()}
    bp.capture(model, x, fake=True)
    assert tensors == {n: (id(t), t._version, t.grad) for n, t in model.state_dict(keep_vars=True).items()}


# ------------------------------------------------------------------ memory

HUGE = """
import resource, sys
import torch
import backprint as bp
torch.set_num_threads(1)
class Huge(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32768, 32768) for _ in range(4))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x.sum()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with bp.fake():
    model, x = Huge(), torch.randn(4096, 32768)
capture = bp.capture(model, x, fake=True)
bp.save(capture, sys.argv[1])
loaded = bp.load(sys.argv[1])
verdicts = bp.verify(loaded)
parameters = sum(p.numel() * p.element_size() for p in model.parameters())
print(parameters, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, verdicts[0].verdict)
"""


@pytest.mark.slow
def test_nothing_of_a_model_is_allocated(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", HUGE, str(tmp_path / "huge")], capture_output=True, text=True, check=True
    )
    parameters, peak, verdict = run.stdout.split()
    assert int(parameters) > 16 * 2**30
    assert int(peak) < 512 * 2**20
    assert verdict == "unproven"


REAL = """
import resource
import torch
import backprint as bp
torch.set_num_threads(1)
with torch.device("meta"):
    model = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192) for _ in range(4)))
model = model.to_empty(device="cpu")
for parameter in model.parameters():
    torch.nn.init.zeros_(parameter)
bp.capture(torch.nn.Linear(2, 2), torch.ones(1, 2), fake=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
capture = bp.capture(model, torch.empty(2**15, 8192), fake=True)
print(before * 1024, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
assert model[0].weight[0, 0] == 0 and capture.pairs[0].backward is not None
"""


@pytest.mark.slow
def test_of_a_real_model_nothing_is_allocated_again_nor_of_a_large_input() -> None:
    run = subprocess.run([sys.executable, "-c", REAL], capture_output=True, text=True, check=True)
    before, more = map(int, run.stdout.split())
    assert before > 2**30
    assert more < 128 * 2**20


# ------------------------------------------------------------------ where torch's own shape rule refuses what runs

LAYOUTS = {
    "2d 3d": ((8, 8), (3, 8, 16)),
    "2d 2d": ((8, 16), (16, 8)),
    "3d 2d": ((3, 8, 16), (16, 24)),
    "3d 3d": ((3, 8, 16), (3, 16, 8)),
}
ENDS = {"2d 3d": [2, 5, 8], "2d 2d": [8, 8, 16], "3d 2d": [8, 16, 24], "3d 3d": None}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_grouped_product_has_the_shape_that_its_kernel_gives(layout: str) -> None:
    left, right = (torch.randn(shape).half() for shape in LAYOUTS[layout])
    ends = ENDS[layout]
    offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    wanted = torch._grouped_mm(left, right, offsets)
    capture = bp.capture(torch._grouped_mm, left, right, offsets, fake=True, requires_grad=False)
    spec = capture.pairs[0].forward.outputs[0].spec
    assert (spec.shape, spec.dtype) == (tuple(wanted.shape), "float16")
    assert spec.stride in (None, tuple(wanted.stride()))


def test_a_mixture_of_experts_is_one_pair_that_any_routing_fits() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.route, self.up = nn.Linear(8, 3), nn.Parameter(torch.randn(3, 8, 4))

        def forward(self, x: Tensor) -> Tensor:
            chosen = self.route(x).argmax(1)
            order = chosen.argsort()
            ends = (chosen.unsqueeze(1) == torch.arange(3)).sum(0).cumsum(0).to(torch.int32)
            return torch._grouped_mm(x[order], self.up, ends).square().sum()

    model, x = Experts(), torch.randn(12, 8)
    capture = bp.capture(model, x, engine="aot", specialize=True)
    assert bp.verify(capture)[-1].verdict == "bitwise"
    other = torch.randn(12, 8)
    assert torch.equal(bp.replay(capture, other).outputs, model(other))
