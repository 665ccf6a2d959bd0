"""Operators in a loop over time: all of FlexSN's, and what it refuses."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from loop_operators import FLEXSN, OTHERS, InLoop, inputs

import backprint as bp
from face import CALLS, FORMULAS, NEEDS, RefusedError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),  # torch's own, of Inductor's import
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton kernels need triton: pip install triton"
    ),
]


def outcomes(names: Sequence[str]) -> dict[str, str]:
    """Return whether loops of operators are right, run in a process with Triton's interpreter."""
    script = Path(__file__).parent / "loop_operators.py"
    done = subprocess.run([sys.executable, str(script), *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {name: verdict for _, name, _, verdict in rows}


@pytest.mark.slow
def test_operators_whose_gradient_is_zero_and_of_rows() -> None:
    names = ["floor.default", "sign.default", "threshold_backward.default", "row_mean", "row_any", "remainder.Tensor"]
    assert outcomes(names) == dict.fromkeys(names, "right")


@pytest.mark.slow
def test_all_operators_of_flexsn_are_right() -> None:
    assert len(FLEXSN) == 72
    assert outcomes(list(FLEXSN)) == dict.fromkeys(FLEXSN, "right")


@pytest.mark.slow
def test_operators_that_flexsn_refuses_are_right() -> None:
    compiled = {"erfinv", "i0", "lgamma", "nextafter"}
    verdicts = outcomes(list(OTHERS))
    assert verdicts == {name: "compiled" if name in compiled else "right" for name in OTHERS}


def test_an_operation_calls_formulas_that_are_there() -> None:
    assert {name for names in NEEDS.values() for name in names} <= set(FORMULAS)
    assert set(NEEDS) <= set(CALLS)


# ------------------------------------------------------------------ formulas


FORMULAS_ALONE = '''
import os
os.environ["TRITON_INTERPRET"] = "1"
import importlib.util, sys
import numpy, torch
from backprint.tools.kernels.loops.words import FORMULAS
numpy.seterr(all="ignore")
torch.manual_seed(0)
ONE = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erfc", "expm1", "isinf", "isnan", "log1p", "relu",
       "reciprocal", "round_even", "sign", "signbit", "sinh", "square", "tan", "tanh", "trunc"]
TWO = ["atan2", "copysign", "fmod", "hypot", "maximum", "minimum", "power"]
TORCH = {"round_even": "round", "power": "pow"}
source = ["import triton", "import triton.language as tl", *FORMULAS.values()]
source += [f"""
@triton.jit
def call_{name}(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    e = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + e, e < n)
    b = tl.load(b_ptr + e, e < n)
    tl.store(out_ptr + e, {name}({"a" if name in ONE else "a, b"}), e < n)
""" for name in [*ONE, *TWO]]
open(sys.argv[1], "w").write("\\n".join(source))
spec = importlib.util.spec_from_file_location("formulas", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
numbers = [0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-5, -1e-5, 1e-20, 3.3, -7.7, 50, 88, -88, 1e10, -1e10, 1e20,
           3e38, float("inf"), -float("inf"), float("nan"), 0.999999, -0.999999, 0.05, 0.25, 0.4999999, 2, 3, -3, 8.5]
for dtype, allowed in ((torch.float32, 3e-6), (torch.float64, 1e-12)):
    a = torch.cat([torch.tensor(numbers, dtype=dtype), 3 * torch.randn(50, dtype=dtype)])
    for name in [*ONE, *TWO]:
        if name in ("erfc", "fmod") and dtype == torch.float64:
            continue  # libdevice has these
        x, y = (a, a) if name in ONE else (a.repeat_interleave(len(a)), a.repeat(len(a)))
        eager = getattr(torch, TORCH.get(name, name))(*((x,) if name in ONE else (x, y)))
        out = torch.empty_like(eager)
        getattr(module, f"call_{name}")[(1,)](x, y, out, len(x), BLOCK=1 << (len(x) - 1).bit_length())
        same = (out == eager) | ((out != out) & (eager != eager))
        size = eager.double().abs().clamp(min=torch.finfo(dtype).tiny)  # a subnormal number has fewer digits
        error = torch.where(same, 0.0, (out.double() - eager.double()).abs() / size)
        worst = error.nan_to_num(9e9).argmax()
        assert error[worst] <= allowed, (name, dtype, x[worst], y[worst], out[worst], eager[worst])
        if name in ("atan2", "copysign", "fmod", "power", "round_even", "trunc"):
            zeros = same & (eager == 0)
            assert torch.equal(out[zeros].signbit(), eager[zeros].signbit()), (name, dtype)
print("right")
'''


@pytest.mark.slow
def test_formulas_are_right_at_special_numbers(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", FORMULAS_ALONE, str(tmp_path / "formulas.py")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.stdout == "right\n", done.stderr


# ------------------------------------------------------------------ libdevice


@pytest.fixture(scope="module")
def erfinv() -> bp.types.LoweredLoop:
    return bp.lower(OTHERS["erfinv"], inputs, name="erfinv")


@pytest.mark.slow
def test_a_function_of_libdevice_is_computed_by_torch_in_a_check(erfinv: bp.types.LoweredLoop) -> None:
    assert "from triton.language.extra import libdevice\n" in erfinv.source
    assert "calls erfinv of CUDA's libdevice" in erfinv.explain()
    assert erfinv.check((7,)).ok


@pytest.mark.slow
def test_a_function_of_libdevice_is_compiled(erfinv: bp.types.LoweredLoop) -> None:
    assert [kernel.spilled for kernel in erfinv.build(90)] in ([0, 0], [None, None])


@pytest.mark.slow
def test_formulas_for_float32_are_libdevice_in_float64() -> None:
    lowered = bp.lower(OTHERS["erfc"], lambda T: [tensor.detach().double() for tensor in inputs(T)])
    assert "libdevice.erfc(" in lowered.source
    assert "libdevice" not in bp.lower(OTHERS["erfc"], inputs).source


def test_an_operation_of_neither_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"digamma.*is no function of Triton or libdevice"):
        bp.lower(InLoop(lambda a, b: torch.lgamma(a) * b), inputs)
