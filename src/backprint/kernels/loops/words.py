"""How operations on elements are written in Triton, and in PyTorch.

A row has the text in Triton, and how tightly it binds: 5 a name or a call, 4 a sign, 3 a product, 2 a sum, 1 a
comparison. Functions of CUDA's libdevice do not run in Triton's interpreter, so they are formulas here, in FORMULAS.
"""

from __future__ import annotations

from collections.abc import Mapping

INFIX: Mapping[str, tuple[str, int]] = {
    "add": ("+", 2),
    "sub": ("-", 2),
    "mul": ("*", 3),
    "truediv": ("/", 3),
    "lt": ("<", 1),
    "le": ("<=", 1),
    "gt": (">", 1),
    "ge": (">=", 1),
    "eq": ("==", 1),
    "ne": ("!=", 1),
}

BITS: Mapping[str, str] = {
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "and_": "&",
    "or_": "|",
    "logical_and": "&",
    "logical_or": "|",
}
"""Operations on bits, whose arguments are always in brackets."""

CALLS: Mapping[str, str] = {
    "where": "tl.where({}, {}, {})",
    "exp": "tl.exp({})",
    "exp2": "tl.exp2({})",
    "log": "tl.log({})",
    "log2": "tl.log2({})",
    "sqrt": "tl.sqrt({})",
    "rsqrt": "tl.rsqrt({})",
    "sin": "tl.sin({})",
    "cos": "tl.cos({})",
    "abs": "tl.abs({})",
    "floor": "tl.floor({})",
    "ceil": "tl.ceil({})",
    "erf": "tl.erf({})",
    "sigmoid": "tl.sigmoid({})",
    "maximum": "maximum({}, {})",
    "minimum": "minimum({}, {})",
    "relu": "relu({})",
    "tanh": "tanh({})",
    "log1p": "log1p({})",
    "expm1": "expm1({})",
    "log10": "tl.log({}) * 0.4342944819032518",
    "tan": "tan({})",
    "sinh": "sinh({})",
    "cosh": "cosh({})",
    "erfc": "1.0 - tl.erf({})",
    "trunc": "trunc({})",
    "sign": "sign({})",
    "isnan": "isnan({})",
    "isinf": "isinf({})",
    "square": "square({})",
    "reciprocal": "reciprocal({})",
    "logical_not": "({}) == 0",
    "fma": "tl.fma({}, {}, {})",
    "row_sum": "tl.sum(tl.where(mask, {}, 0.0), 0)",
    "row_max": "row_max({}, mask)",
    "signbit": "({}) < 0",
}

LOOSE: Mapping[str, int] = {"log10": 3, "erfc": 2, "logical_not": 1, "signbit": 1}
"""How tightly those of CALLS bind that are no calls."""

FORMULAS: Mapping[str, str] = {
    "row_max": '''
@triton.jit
def row_max(a, mask):
    """The largest of a row; NaN if there is one, as torch.amax."""
    has_nan = tl.max(tl.where(mask & (a != a), 1, 0), 0) > 0
    return tl.where(has_nan, float("nan"), tl.max(tl.where(mask, a, float("-inf")), 0))
''',
    "maximum": '''
@triton.jit
def maximum(a, b):
    """The larger; NaN if either is NaN, as torch.maximum."""
    return tl.where((a > b) | (a != a), a, b)
''',
    "minimum": '''
@triton.jit
def minimum(a, b):
    """The smaller; NaN if either is NaN, as torch.minimum."""
    return tl.where((a < b) | (a != a), a, b)
''',
    "relu": '''
@triton.jit
def relu(a):
    """0 for what is negative; NaN stays NaN, as torch.relu."""
    return tl.where(a <= 0, 0.0, a)
''',
    "tanh": '''
@triton.jit
def tanh(a):
    """tanh; its Taylor series near 0, where the other form cancels."""
    s = a * a
    near = a + a * s * (-1 / 3 + s * (2 / 15 + s * (-17 / 315 + s * (62 / 2835 - s * (1382 / 155925)))))
    decay = tl.exp(-2.0 * tl.abs(a))
    far = (1.0 - decay) / (1.0 + decay)
    return tl.where(tl.abs(a) < 0.1, near, tl.where(a < 0, -far, far))
''',
    "log1p": '''
@triton.jit
def log1p(a):
    """log(1 + a) without the error of 1 + a (Kahan)."""
    u = 1.0 + a
    return tl.where((u == 1.0) | (u == float("inf")), a, tl.log(u) * a / tl.where(u == 1.0, 1.0, u - 1.0))
''',
    "expm1": '''
@triton.jit
def expm1(a):
    """exp(a) - 1; its Taylor series near 0, where the other form cancels."""
    near = a * (1 / 5040 + a * (1 / 40320 + a * (1 / 362880 + a / 3628800)))
    near = a + a * a * (1 / 2 + a * (1 / 6 + a * (1 / 24 + a * (1 / 120 + a * (1 / 720 + near)))))
    return tl.where(tl.abs(a) < 0.1, near, tl.exp(a) - 1.0)
''',
    "tan": '''
@triton.jit
def tan(a):
    """The tangent."""
    return tl.sin(a) / tl.cos(a)
''',
    "sinh": '''
@triton.jit
def sinh(a):
    """(exp(a) - exp(-a)) / 2; its Taylor series near 0, where that cancels."""
    s = a * a
    near = a + a * s * (1 / 6 + s * (1 / 120 + s * (1 / 5040 + s / 362880)))
    return tl.where(tl.abs(a) < 0.3, near, tl.exp(a) / 2.0 - tl.exp(-a) / 2.0)
''',
    "cosh": '''
@triton.jit
def cosh(a):
    """(exp(a) + exp(-a)) / 2."""
    return tl.exp(a) / 2.0 + tl.exp(-a) / 2.0
''',
    "trunc": '''
@triton.jit
def trunc(a):
    """The whole number next to a, towards 0."""
    return tl.where(a < 0, tl.ceil(a), tl.floor(a))
''',
    "sign": '''
@triton.jit
def sign(a):
    """-1, 0 or 1."""
    return tl.where(a > 0, 1.0, tl.where(a < 0, -1.0, a * 0.0))
''',
    "isnan": '''
@triton.jit
def isnan(a):
    """Whether a is NaN."""
    return a != a
''',
    "isinf": '''
@triton.jit
def isinf(a):
    """Whether a is inf or -inf."""
    return tl.abs(a) == float("inf")
''',
    "square": '''
@triton.jit
def square(a):
    """a * a."""
    return a * a
''',
    "reciprocal": '''
@triton.jit
def reciprocal(a):
    """1 / a."""
    return 1.0 / a
''',
}
"""Functions that a generated file defines if it calls them."""
