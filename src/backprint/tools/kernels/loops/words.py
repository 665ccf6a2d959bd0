"""How operations on elements are written in Triton, and in PyTorch.

A row has the text in Triton, and how tightly it binds, from COMPARISON to NAME_OR_CALL. Functions of CUDA's libdevice
do not run in Triton's interpreter, so they are formulas here, in FORMULAS, as far as a formula is right for every
number. The others are in LIBDEVICE: a file that calls them is compiled, not run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COMPARISON, SUM, PRODUCT, SIGN, NAME_OR_CALL = 1, 2, 3, 4, 5
"""How tightly a text binds: of two, the larger."""

INFIX: Mapping[str, tuple[str, int]] = {
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "truediv": ("/", PRODUCT),
    "lt": ("<", COMPARISON),
    "le": ("<=", COMPARISON),
    "gt": (">", COMPARISON),
    "ge": (">=", COMPARISON),
    "eq": ("==", COMPARISON),
    "ne": ("!=", COMPARISON),
}

BIT_OPERATORS: Mapping[str, str] = {
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "and_": "&",
    "or_": "|",
    "logical_and": "&",
    "logical_or": "|",
    "logical_xor": "^",
    "bitwise_left_shift": "<<",
    "bitwise_right_shift": ">>",
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
    **{name: f"{name}({{}})" for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "erfc", "signbit")},
    **{name: f"{name}({{}}, {{}})" for name in ("atan2", "copysign", "fmod", "hypot")},
    "floordiv": "floor_divide({}, {})",
    "mod": "fmod({}, {})",
    "pow": "power({}, {})",
    "round": "round_even({})",
    "trunc": "trunc({})",
    "sign": "sign({})",
    "isnan": "isnan({})",
    "isinf": "isinf({})",
    "square": "square({})",
    "reciprocal": "reciprocal({})",
    "logical_not": "({}) == 0",
    "fma": "tl.fma({}, {}, {})",
    "div_rn": "tl.div_rn({}, {})",
    "row_sum": "tl.sum(tl.where(mask, {}, 0.0), 0)",
    "row_max": "row_max({}, mask)",
    "row_min": "row_min({}, mask)",
    "row_any": "tl.max(tl.where(mask, ({}).to(tl.int32), 0), 0) != 0",
}

BINDING_OF_CALLS: Mapping[str, int] = {"log10": PRODUCT, "logical_not": COMPARISON, "row_any": COMPARISON}
"""How tightly the texts of CALLS bind that end in an operator; all others are NAME_OR_CALL."""

LIBDEVICE: dict[str, str] = {
    **{name: name for name in ("erfcx", "erfinv", "lgamma", "nextafter", "ldexp")},
    "i0": "cyl_bessel_i0",
    "modified_bessel_i0": "cyl_bessel_i0",
    "i1": "cyl_bessel_i1",
    "modified_bessel_i1": "cyl_bessel_i1",
    "bessel_j0": "j0",
    "bessel_j1": "j1",
    "bessel_y0": "y0",
    "bessel_y1": "y1",
}
"""Operations that are functions of CUDA's libdevice, by its names."""

FLOAT32_ONLY: dict[str, str] = {"erfc": "erfc", "fmod": "fmod", "mod": "fmod"}
"""Operations whose formulas are for float32, and the functions of libdevice that stand for them in float64."""

TAKES_TENSORS = frozenset(CALLS) - {"where", "maximum", "minimum", "fma", "row_sum"}
"""Operations whose numbers are written as `tl.full(...)`: the functions read the dtype of their arguments."""

NEEDS: Mapping[str, tuple[str, ...]] = {
    "floordiv": ("floor_divide",),
    "mod": ("fmod", "copysign", "signbit"),
    "pow": ("power", "copysign", "signbit"),
    "acos": ("atan",),
    "asin": ("atan",),
    "atan2": ("atan", "copysign", "signbit"),
    "copysign": ("signbit",),
    "asinh": ("log1p", "copysign", "signbit"),
    "acosh": ("log1p",),
    "atanh": ("log1p", "copysign", "signbit"),
    "fmod": ("copysign", "signbit"),
    "round": ("round_even", "copysign", "signbit"),
}
"""The FORMULAS that the formula of an operation calls, directly or not: a file must define them too."""

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
    return tl.where(a < 0, 0.0, a)
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
    "row_min": '''
@triton.jit
def row_min(a, mask):
    """The smallest of a row; NaN if there is one, as torch.amin."""
    has_nan = tl.max(tl.where(mask & (a != a), 1, 0), 0) > 0
    return tl.where(has_nan, float("nan"), tl.min(tl.where(mask, a, float("inf")), 0))
''',
    "atan": '''
@triton.jit
def atan(a):
    """The arc tangent: of 1 / a where a is above 1, of half the angle twice, then its Taylor series."""
    m = tl.abs(a)
    x = tl.where(m > 1.0, 1.0 / m, m)
    x = x / (1.0 + tl.sqrt(1.0 + x * x))
    x = x / (1.0 + tl.sqrt(1.0 + x * x))
    s = x * x
    p = 1 / 13 - s * (1 / 15 - s * (1 / 17 - s * (1 / 19 - s * (1 / 21))))
    p = 1 / 3 - s * (1 / 5 - s * (1 / 7 - s * (1 / 9 - s * (1 / 11 - s * p))))
    angle = 4.0 * (x - x * s * p)
    angle = tl.where(m > 1.0, 1.5707963267948966 - angle, angle)
    return tl.where(m < 1e-10, a, tl.where(a < 0, -angle, angle))
''',
    "asin": '''
@triton.jit
def asin(a):
    """The arc sine."""
    return atan(a / tl.sqrt((1.0 - a) * (1.0 + a)))
''',
    "acos": '''
@triton.jit
def acos(a):
    """The arc cosine."""
    return 2.0 * atan(tl.sqrt((1.0 - a) / (1.0 + a)))
''',
    "atan2": '''
@triton.jit
def atan2(y, x):
    """The angle of the point (x, y), with the signs of zeros and at infinity as torch.atan2."""
    is_diagonal = (tl.abs(x) == float("inf")) & (tl.abs(y) == float("inf"))
    ratio = tl.where(is_diagonal, 1.0, tl.abs(y) / tl.abs(x))
    angle = tl.where(y == 0, 0.0, atan(ratio))
    angle = tl.where(signbit(x), 3.141592653589793 - angle, angle)
    return tl.where((x != x) | (y != y), float("nan"), copysign(angle, y))
''',
    "asinh": '''
@triton.jit
def asinh(a):
    """The inverse of sinh."""
    m = tl.abs(a)
    near = log1p(m + m * m / (1.0 + tl.sqrt(m * m + 1.0)))
    return copysign(tl.where(m > 1e8, tl.log(m) + 0.6931471805599453, near), a)
''',
    "acosh": '''
@triton.jit
def acosh(a):
    """The inverse of cosh."""
    off = a - 1.0
    near = tl.where(off < 0, float("nan"), log1p(off + tl.sqrt(off * (a + 1.0))))
    return tl.where(a > 1e8, tl.log(a) + 0.6931471805599453, near)
''',
    "atanh": '''
@triton.jit
def atanh(a):
    """The inverse of tanh."""
    m = tl.abs(a)
    return copysign(0.5 * log1p(2.0 * m / (1.0 - m)), a)
''',
    "erfc": '''
@triton.jit
def erfc(a):
    """1 - erf(a), where that cancels too: the fit of erfcc of Numerical Recipes, right to 7 digits."""
    m = tl.abs(a)
    t = 2.0 / (2.0 + m)
    p = 0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277)))
    p = -1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 + t * p))))
    far = t * tl.exp(p - m * m)
    return tl.where(m < 0.5, 1.0 - tl.erf(a), tl.where(a < 0, 2.0 - far, far))
''',
    "signbit": '''
@triton.jit
def signbit(a):
    """Whether the sign of a is minus: of -0.0 too."""
    if a.dtype == tl.float64:
        return a.to(tl.int64, bitcast=True) < 0
    elif a.dtype == tl.float32:
        return a.to(tl.int32, bitcast=True) < 0
    else:
        return a < 0
''',
    "copysign": '''
@triton.jit
def copysign(a, b):
    """The size of a with the sign of b."""
    return tl.abs(a) * tl.where(signbit(b), -1.0, 1.0)  # Triton's -a is 0 - a, which has no -0.0
''',
    "round_even": '''
@triton.jit
def round_even(a):
    """The whole number next to a; of two, the even."""
    below = tl.floor(a)
    off = a - below
    is_up = (off > 0.5) | ((off == 0.5) & (below - 2.0 * tl.floor(below * 0.5) == 1.0))
    return copysign(tl.where(is_up, below + 1.0, below), a)
''',
    "hypot": '''
@triton.jit
def hypot(a, b):
    """sqrt(a * a + b * b), without overflow in between."""
    large, small = tl.where(tl.abs(a) > tl.abs(b), a, b), tl.where(tl.abs(a) > tl.abs(b), b, a)
    ratio = tl.where(large == 0, 0.0, small / large)
    length = tl.abs(large) * tl.sqrt(1.0 + ratio * ratio)
    is_far = (tl.abs(a) == float("inf")) | (tl.abs(b) == float("inf"))
    return tl.where(is_far, float("inf"), tl.where((a != a) | (b != b), float("nan"), length))
''',
    "power": '''
@triton.jit
def power(a, b):
    """a ** b by float64, as torch.pow: of a negative a, for whole b."""
    x, y = a.to(tl.float64), b.to(tl.float64)
    size = tl.exp(y * tl.log(tl.abs(x)))
    is_whole = (tl.floor(y) == y) & (tl.abs(y) < float("inf"))
    is_odd = is_whole & (y - 2.0 * tl.floor(y * 0.5) == 1.0)
    is_far = (tl.abs(x) == float("inf")) | (tl.abs(y) == float("inf"))
    size = tl.where((x < 0) & ~is_whole & ~is_far, float("nan"), tl.where(is_odd, copysign(size, x), size))
    is_one = (y == 0) | (x == 1) | ((x == -1) & (tl.abs(y) == float("inf")))
    return tl.where(is_one, 1.0, size).to(a.dtype)
''',
    "fmod": '''
@triton.jit
def fmod(a, b):
    """What is left of a / b, with the sign of a, exactly: by products of float64 that do not round."""
    if a.dtype.is_int():
        return a % b
    else:
        x, y = tl.abs(a).to(tl.float64), tl.abs(b).to(tl.float64)
        is_number = (y > 0) & (x < float("inf"))
        x = tl.where(is_number, x, 0.0)
        for _ in range(12):  # each takes 24 bits of the quotient; all but one are for quotients above 2**24
            quotient = (x / y).to(tl.float32).to(tl.float64)
            x = tl.where(tl.abs(x) >= y * 16777216.0, x - quotient * y, x)
        x = tl.where(y < float("inf"), x - tl.floor(x / y) * y, x)
        x = tl.where(x < 0, x + y, tl.where(x >= y, x - y, x))
        return copysign(tl.where(is_number, x, float("nan")).to(tl.float32), a)
''',
    "floor_divide": '''
@triton.jit
def floor_divide(a, b):
    """a // b of whole numbers, rounded down as Python does: Triton rounds towards 0."""
    quotient = a // b
    return tl.where((quotient * b != a) & ((a < 0) != (b < 0)), quotient - 1, quotient)
''',
    "log1p": '''
@triton.jit
def log1p(a):
    """log(1 + a) without the error of 1 + a (Kahan)."""
    u = 1.0 + a
    return tl.where((u == 1.0) | (u == float("inf")), a, tl.log(u) * (a / tl.where(u == 1.0, 1.0, u - 1.0)))
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
    """-1, 0 or 1; 0 of NaN, as torch.sign."""
    return tl.where(a > 0, 1.0, tl.where(a < 0, -1.0, 0.0)).to(a.dtype)
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


def functions_text(names: Sequence[str]) -> str:
    """Return libdevice's names for operations, in one text for messages."""
    return ", ".join(sorted({(LIBDEVICE | FLOAT32_ONLY)[name] for name in names}))
