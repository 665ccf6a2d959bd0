"""On a GPU: captures of programs whose tensors are there, kept, checked elsewhere and recorded. Skipped without one."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import backprint as bp
from face import torch_backend_function as backend

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    # torch's own: autograd's thread meets cuBLAS first; torch.jit; cuDNN on weights that were put in by a trace
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk"),
]
ENGINES = ("aot", "dynamo", "eager")
HERE = Path(__file__).resolve().parent


class Block(nn.Module):
    """One transformer block with dropout and scaled_dot_product_attention."""

    def __init__(self, width: int = 64, heads: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


def convolutions() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(8 * 8 * 8, 10))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


MODELS: dict[str, Any] = {
    "linear": lambda: (nn.Linear(8, 4), (16, 8)),
    "convolutions": lambda: (convolutions(), (4, 3, 16, 16)),
    "attention": lambda: (Block(), (2, 16, 64)),
    "dropout": lambda: (Block(dropout=0.1), (2, 16, 64)),
    "lstm": lambda: (Recurrent(), (2, 5, 8)),
}


def made(name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, shape = MODELS[name]()
    return model.to("cuda", dtype), torch.randn(*shape, device="cuda", dtype=dtype)


def gradients(model: nn.Module, x: Tensor, seed: int = 3) -> tuple[Tensor, dict[str, Tensor]]:
    """The output and the gradients of plain PyTorch, for tangents of one."""
    torch.manual_seed(seed)
    out = model(x)
    found = torch.autograd.grad(out, list(model.parameters()), torch.ones_like(out))
    return out.detach(), dict(zip([name for name, _ in model.named_parameters()], found, strict=True))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_a_program_on_the_gpu_is_captured_kept_and_proved(
    name: str, dtype: torch.dtype, engine: str, tmp_path: Path
) -> None:
    model, x = made(name, dtype)
    if (name, engine) in NOT_TRACED:
        with pytest.raises(bp.errors.CaptureError):
            bp.capture(model, x, engine=engine)
        return
    state = copy.deepcopy(model.state_dict())
    random = torch.cuda.get_rng_state()
    capture = bp.capture(model, x, engine=engine)
    assert torch.equal(torch.cuda.get_rng_state(), random)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert "@cuda:0" in capture.pairs[0].forward.code
    good = (
        {"bitwise"} if engine == "eager" else {"bitwise", "close"}
    )  # cuDNN rounds otherwise when it is called otherwise
    assert {v.verdict for v in capture.verify()} <= good

    expected, grads = gradients(copy.deepcopy(model), x)
    torch.manual_seed(3)
    result = bp.replay(capture, x)
    same = torch.equal if engine == "eager" else partial(torch.allclose, rtol=1e-3, atol=1e-3)
    assert same(result.outputs, expected)
    for key, value in grads.items():
        assert torch.allclose(result.gradients[key], value, rtol=1e-3 if dtype is torch.float32 else 2e-2, atol=1e-2), (
            key
        )

    capture.save(tmp_path / "sample")
    loaded = bp.load(tmp_path / "sample")
    # saving corrects what fake tensors say of devices, and meta kernels of the dtype of a batch norm's statistics
    assert (engine, dtype) != ("eager", torch.float32) or loaded.pairs == capture.pairs
    assert {v.verdict for v in loaded.verify()} <= good


NOT_TRACED = {("lstm", "aot"), ("lstm", "dynamo")}
"""cuDNN's LSTM looks where its weights lie, which fake tensors do not: engine `eager` alone captures it."""


@pytest.mark.parametrize("name", MODELS)
def test_each_direction_runs_alone_on_the_gpu(name: str, tmp_path: Path) -> None:
    model, x = made(name)
    bp.capture(model, x).save(tmp_path / "sample")
    for direction in sorted((tmp_path / "sample").glob("pair_*/*ward")):
        done = subprocess.run(
            [sys.executable, "-I", str(direction / "model.py")], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_a_sample_of_a_gpu_says_what_it_needs_where_there_is_none(tmp_path: Path) -> None:
    model, x = made("linear")
    bp.capture(model, x).save(tmp_path / "sample")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "backprint"]
    shown = subprocess.run(
        [*command, "show", str(tmp_path / "sample")], capture_output=True, text=True, env=environment, check=False
    )
    assert shown.returncode == 0, shown.stderr
    assert "@cuda:0" in shown.stdout
    checked = subprocess.run(
        [*command, "verify", str(tmp_path / "sample")], capture_output=True, text=True, env=environment, check=False
    )
    print(checked.stdout, checked.stderr)
    assert checked.returncode != 0
    assert "Traceback" not in checked.stderr
    assert "cuda:0" in checked.stdout + checked.stderr


def test_a_sample_is_captured_again_on_the_cpu(tmp_path: Path) -> None:
    model, x = made("attention")
    bp.capture(model, x).save(tmp_path / "sample")
    again = bp.capture(tmp_path / "sample", device="cpu")
    assert "cuda" not in again.pairs[0].forward.code
    assert {v.verdict for v in again.verify()} == {"bitwise"}


def test_a_sample_of_the_cpu_is_captured_again_on_the_gpu(tmp_path: Path) -> None:
    model = Block()
    bp.capture(model, torch.randn(2, 16, 64)).save(tmp_path / "sample")
    again = bp.capture(tmp_path / "sample", device="cuda")
    assert "@cuda:0" in again.pairs[0].forward.code
    assert {v.verdict for v in again.verify()} == {"bitwise"}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype: torch.dtype, engine: str) -> None:
    model, x = made("attention")

    def loss(x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=dtype):
            return model(x).square().mean()

    capture = bp.capture(loss, x, engine=engine)
    assert str(dtype)[6:].replace("bfloat", "bf").replace("float", "f") + "[" in capture.pairs[0].forward.code
    assert {v.verdict for v in capture.verify()} == {"bitwise"}


def test_a_norm_that_has_a_kernel_on_the_gpu_alone_is_recorded_as_it_runs() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.RMSNorm(64), nn.Linear(64, 64)).cuda()
    capture = bp.capture(model, torch.randn(4, 64, device="cuda"), engine="eager")
    assert "_fused_rms_norm" in capture.pairs[0].forward.code
    assert capture.verify()[0].verdict == "bitwise"


def test_memory_that_is_pinned_is_a_copy() -> None:
    x = torch.randn(4, 3, device="cuda", requires_grad=True)
    capture = bp.capture(lambda x: x.cpu().pin_memory().cuda() * 2, x, engine="eager")
    assert "pin" not in capture.pairs[0].forward.code
    assert capture.verify()[0].verdict == "bitwise"


def test_programs_over_two_devices() -> None:
    weight = torch.randn(8, 4, requires_grad=True)

    def both(x: Tensor) -> Tensor:
        return (x.cpu() @ weight).cuda().relu()

    for engine in ("auto", *ENGINES):
        capture = bp.capture(both, torch.randn(3, 8, device="cuda"), engine=engine)
        assert {v.verdict for v in capture.verify()} == {"bitwise"}, engine


def test_torch_compile_with_our_backend(tmp_path: Path) -> None:
    model, x = made("convolutions")
    expected, grads = gradients(copy.deepcopy(model), x)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, options={"dir": str(tmp_path)})
    out, found = gradients(compiled, x)
    torch._dynamo.reset()
    assert torch.equal(out, expected)
    assert all(torch.equal(value, found[f"_orig_mod.{key}"]) for key, value in grads.items())
    (sample,) = tmp_path.iterdir()
    assert {v.verdict for v in bp.load(sample).verify()} <= {"bitwise", "close"}


@pytest.mark.parametrize("gradients", ["values", "stats"])
def test_a_region_on_the_gpu(gradients: str, tmp_path: Path) -> None:
    model, x = made("attention")
    model(x).sum().backward()
    wanted = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    with bp.region(tmp_path / "dump", gradients=gradients) as region:
        out = model(x)
    out.sum().backward()
    assert all(torch.equal(wanted[name], p.grad) for name, p in model.named_parameters())
    assert {edge.device for edge in region.passes[0].edges} == {"cuda:0"}


def test_without_values() -> None:
    with bp.fake():
        model = Block().cuda()
        x = torch.randn(2, 16, 64, device="cuda")
    capture = bp.capture(model, x, fake=True)
    assert "@cuda:0" in capture.pairs[0].forward.code


def test_a_capture_leaves_no_memory_behind() -> None:
    model, x = made("convolutions")
    for _ in range(2):
        bp.capture(model, x).verify()  # libraries take their workspaces
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        bp.capture(model, x).verify()
    assert torch.cuda.memory_allocated() <= before + 2**16


def test_values_that_a_kernel_would_assert_against_are_not_run() -> None:
    def loss(x: Tensor) -> Tensor:
        return F.binary_cross_entropy(x, torch.full_like(x, 0.5))

    def pick(x: Tensor, table: Tensor) -> Tensor:
        return table[(x * 4).long()].sum() + x.sum()

    x = torch.rand(4, device="cuda") * 0.9
    for capture in (bp.capture(loss, x), bp.capture(pick, x, torch.randn(4, 3, device="cuda"))):
        assert {v.verdict for v in capture.verify()} <= {"bitwise", "unproven"}
    with pytest.raises(bp.errors.ReplayError, match="this process could use the GPU no more"):
        bp.replay(bp.capture(loss, x), x + 2)
    assert torch.ones(1, device="cuda").item() == 1


@pytest.mark.parametrize("engine", ["auto", "eager"])
def test_recomputed_dropout_draws_the_same(engine: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).cuda()

    def recomputed(x: Tensor) -> Tensor:
        first = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
        return first + torch.rand_like(first)

    capture = bp.capture(recomputed, torch.randn(4, 8, device="cuda"), engine=engine)
    assert {v.verdict for v in capture.verify()} == {"bitwise"}


def test_ctc_loss_with_lengths_on_the_cpu() -> None:
    def loss(x: Tensor) -> Tensor:
        lengths = torch.tensor([8, 6]), torch.tensor([3, 2])
        return F.ctc_loss(x.log_softmax(-1), torch.tensor([[1, 2, 1], [2, 1, 0]], device="cuda"), *lengths)

    capture = bp.capture(loss, torch.randn(8, 2, 4, device="cuda"))
    assert {v.verdict for v in capture.verify()} == {"bitwise"}


SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.RMSNorm(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for step in range(4):
    x, y = torch.randn(32, 8, device="cuda"), torch.randint(4, (32,), device="cuda")
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
print(f"{loss.item():.9f}")
"""


def test_a_training_script_on_the_gpu_is_recorded(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    plain = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    command = [
        sys.executable,
        "-m",
        "backprint",
        "record",
        "--steps",
        "2:4",
        "-o",
        str(tmp_path / "steps"),
        str(script),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert plain.strip() in done.stdout
    samples = [path.parent for path in (tmp_path / "steps").rglob("capture.json")]
    assert samples
    for sample in samples:
        assert {v.verdict for v in bp.load(sample).verify()} <= {"bitwise", "undifferentiable"}


def test_a_corpus_on_the_gpu(tmp_path: Path) -> None:
    for number in range(3):
        bp.capture(nn.Sequential(nn.Linear(8, 4 + number), nn.ReLU()), torch.randn(5, 8)).save(
            tmp_path / f"in/{number}"
        )
    command = [sys.executable, "-m", "backprint", "corpus", "run", "backward", str(tmp_path / "in"), "-o"]
    done = subprocess.run(
        [*command, str(tmp_path / "out"), "--device", "cuda"], capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    samples = sorted(path.parent for path in (tmp_path / "out").rglob("capture.json"))
    assert len(samples) == 3
    for sample in samples:
        assert "@cuda:0" in bp.load(sample).pairs[0].forward.code
