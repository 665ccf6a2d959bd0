"""The parts of a short exported file (`short`): random numbers, the runs, the comparison, and the command line.

A file has those functions that its case needs, with their text as it is here, and so without types. A line that ends
with `# if: NAME` is in the file where the case needs NAME, without this comment. The comparison is that of `judged`
without the parts that a case does not need; `short_check` tries that before a file is kept. Names in capital letters,
and `make_inputs`, are the file's own. It imports only torch and the standard library.
"""

import argparse
import base64
import copy
import ctypes
import hashlib
import importlib
import inspect
import math
import re
import runpy
import traceback
from collections import Counter

import torch
from torch import inf
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

BACKEND, GRAPHS, SHOWN, SEED, NAME = None, {}, [], 0, ""


def make_inputs():
    return {}


# ------------------------------------------------------------------ inputs


def words(seed, count):
    """Random 32-bit numbers, the same on every machine: Philox4x32-10."""
    mask, k0, k1 = 0xFFFFFFFF, seed & 0xFFFFFFFF, seed >> 32
    c0 = torch.arange(-(-count // 4))
    c1 = c2 = c3 = torch.zeros_like(c0)
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32 ^ k0 ^ c1) & mask, p1 & mask, (p0 >> 32 ^ k1 ^ c3) & mask, p0 & mask
        k0, k1 = k0 + 0x9E3779B9 & mask, k1 + 0xBB67AE85 & mask
    return torch.stack((c0, c1, c2, c3), 1).flatten()[:count]


def normal(seed, shape, mean, std, low, high, dtype=torch.float32):
    """Nearly normal numbers: sums of three even ones."""
    word, wide = words(seed, math.prod(shape)), torch.float64 if dtype == torch.float64 else torch.float32
    total = (word & 0x7FF) + (word >> 11 & 0x7FF) + 2 * (word >> 22) - 3070
    return (total.to(wide) * (std * 0.000976562732830727) + mean).clamp(low, high).to(dtype).view(shape)


def uniform(seed, shape, low, high, dtype=torch.float32):
    """Numbers spread evenly from `low` to `high`."""
    word = words(seed, 2 * math.prod(shape)).view(-1, 2)
    unit = (word[:, 0] >> 8).float() * 2**-24
    if dtype == torch.float64:  # if: double
        unit = ((word[:, 0] >> 5) * 2**26 + (word[:, 1] >> 6)).double() * 2**-53  # if: double
    return (unit * (high - low) + low).clamp(low, high).to(dtype).view(shape)


def scaled(seed, count, span):
    """Random integers from 0 to `span` - 1, which is below 2**32."""
    return words(seed, 2 * count)[::2] * span >> 32 & 0xFFFFFFFF


def integers(seed, shape, low, high, dtype=torch.int64):
    """Integers from `low` to `high`."""
    return (scaled(seed, math.prod(shape), high - low + 1) + low).to(dtype).view(shape)


def choice(seed, shape, values, weights, dtype):
    """One of `values` for each element, as often as its weight says."""
    bounds = torch.tensor(weights).cumsum(0)
    index = torch.bucketize(scaled(seed, math.prod(shape), sum(weights)), bounds, right=True)
    return torch.tensor(values, dtype=dtype)[index].view(shape)


def permutation(seed, shape, low, dtype=torch.int64):
    """The integers from `low`, shuffled."""
    word = words(seed, 2 * math.prod(shape)).view(-1, 2)
    return ((word[:, 0] << 31 | word[:, 1] >> 1).argsort(stable=True) + low).to(dtype).view(shape)


def exact(text, shape, dtype=torch.float32):
    """The tensor of these bytes."""
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=dtype).view(shape)


# ------------------------------------------------------------------ runs


class Run:
    """A graph that ran in eager: its inputs, the random state, and its results by role and name."""

    def __init__(self, graph, values):
        port = r".*? ((?:parameter|buffer|input|constant|saved|tangent|rng|output|mutation|gradient) .*)"
        hints = dict(graph.forward.__annotations__)
        self.outputs = [re.fullmatch(port, text)[1] for text in hints.pop("return")]
        given = [values[re.fullmatch(port, text)[1]] for text in hints.values()]
        self.graph, self.given, self.state = graph, copy.deepcopy(given), torch.get_rng_state()
        self.results = graph()(*given)
        values.update(zip(self.outputs, self.results, strict=True))

    def again(self, function, change=lambda value: value, seed=None):
        """The results on the same inputs, or on changed ones, from the same random state."""
        torch.set_rng_state(self.state)
        if seed is not None:  # if: draws
            torch.manual_seed(seed)  # if: draws
        return function(*map(change, copy.deepcopy(self.given)))

    def run_references(self):
        """Run what results are compared with beside eager's."""
        graph = self.graph()  # if: floats
        graph = in_float64(self.graph)()  # if: dtypes
        self.wide = self.again(graph, lambda value: value.double() if value.is_floating_point() else value)  # if: wide
        self.rounded = [self.again(OtherRounding(seed).around(self.graph())) for seed in range(3)]  # if: rounded
        self.reseeded = [self.again(self.graph(), seed=seed) for seed in range(1, 5)]  # if: draws


def in_float64(graph):
    """A graph's class in which every floating-point dtype is float64."""
    text, space = inspect.getsource(graph), dict(globals())
    exec(re.sub(r"torch\.(float32|float16|bfloat16)\b", "torch.float64", text), space)
    return space[graph.__name__]


# ------------------------------------------------------------------ comparison

TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 5e-3, "bfloat16": 4e-2}


def kind(value):
    """A tensor's dtype and shape."""
    return f"{str(value.dtype)[6:]}{list(value.shape)}"


def digest(value):
    """A digest of a tensor's dtype, shape and bytes."""
    value = value.resolve_conj().resolve_neg().cpu().contiguous()
    raw = ctypes.string_at(value.data_ptr(), value.nbytes) if value.numel() else b""
    return hashlib.sha256(f"{str(value.dtype)[6:]} {list(value.shape)}".encode() + raw).hexdigest()[:16]


def apart(found, wanted):
    """The largest difference over the largest value; inf where NaN or Inf are in different places."""
    if not wanted.is_floating_point():
        return 0.0 if torch.equal(found, wanted) else inf
    found, wanted = found.double(), wanted.double()
    finite, same = found.isfinite() & wanted.isfinite(), (found == wanted) | (found.isnan() & wanted.isnan())
    if not (finite | same).all():
        return inf
    found, wanted = found[finite], wanted[finite]
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-30)) if wanted.numel() else 0.0


def judged(run, index, found, compiled):
    """Whether a result is bitwise, close or wrong, and how far it is from eager's and from float64's."""
    wanted = run.results[index]
    if kind(found) != kind(wanted):
        return f"wrong ({kind(found)} where eager gives {kind(wanted)})"
    if digest(found) == digest(wanted):
        return "bitwise"
    error = apart(found, wanted)
    close, text = error <= TOLERANCE.get(str(wanted.dtype)[6:], 0.0), f"relative error {error:.3g}"
    drawn = any(apart(other[index], wanted) for other in run.reseeded)  # if: draws
    if drawn and not close and found.isfinite().all() and not draws_alike(run, index, compiled):  # if: draws
        return f"random ({text}; it depends on random numbers, which are not eager's)"  # if: draws
    if not drawn:  # if: drawnwide
        its, own = apart(found, run.wide[index]), apart(wanted, run.wide[index])  # if: drawnwide
        close, text = close or its <= 4 * own, f"{text}; from float64: {its:.3g}, eager {own:.3g}"  # if: drawnwide
    its, own = apart(found, run.wide[index]), apart(wanted, run.wide[index])  # if: surewide
    close, text = close or its <= 4 * own, f"{text}; from float64: {its:.3g}, eager {own:.3g}"  # if: surewide
    close = close or error <= 4 * max(apart(other[index], wanted) for other in run.rounded) < inf  # if: rounded
    if close:
        return f"close ({text})"
    place = int((found.double() - wanted.double()).abs().nan_to_num(inf, inf).argmax())
    return f"wrong ({text}; at {place}: {wanted.flatten()[place]} expected, {found.flatten()[place]} came)"


class OtherRounding(TorchDispatchMode):
    """Moves the results of each operator by about as much as another order of its sums does."""

    def __init__(self, seed):
        super().__init__()
        self.source = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = terms = function(*args, **(kwargs or {}))
        if any(each.alias_info for each in function._schema.returns):
            return found
        if re.search(r"sum|mean|mm|conv|linear", function._schema.name):
            terms = function(*tree_map(lambda each: each.abs() if is_float(each) else each, args), **(kwargs or {}))
        return tree_map(self.moved, found, terms)

    def around(self, graph):
        def run(*given):
            with self:
                return graph(*given)

        return run

    def moved(self, value, terms):
        if not is_float(value):
            return value
        by, unit = 2 * torch.rand(value.shape, generator=self.source).to(value.device) - 1, torch.finfo(value.dtype).eps
        sums = 16 * value.double().square().mean().sqrt() + 4 * terms.double().abs()
        return (value + by * (value.double().abs() * unit + sums * min(unit, 2**-23))).to(value.dtype)


def is_float(value):
    """Whether a value is a tensor of floats."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def draws_alike(run, index, compiled):
    """Whether the compiled graph draws eager's random numbers: from equal seeds results nearly agree."""
    wanted = [results[index] for results in run.reseeded]
    same = sum(apart(run.again(compiled, seed=1 + n)[index], each) for n, each in enumerate(wanted))
    return same < 0.1 * sum(map(apart, wanted, [*wanted[1:], wanted[0]]))


# ------------------------------------------------------------------ the command line


def backend_named(name):
    """A backend of torch.compile, or the function of file.py:function or module:function."""
    place, _, function = name.rpartition(":")
    if not place:
        return name
    loaded = runpy.run_path(place) if place.endswith(".py") else vars(importlib.import_module(place))
    return loaded[function]


def main():
    """Run every graph in eager, and compare what a backend makes of it; exit with 1 where that is wrong."""
    reader = argparse.ArgumentParser()
    reader.add_argument("--backend", default=BACKEND, help="NAME, package.module:function or file.py:function")
    name = reader.parse_args().backend
    if name and ":" not in name and name not in torch.compiler.list_backends(exclude_tags=()):
        reader.error(f"torch.compile has no backend {name!r}")
    backend, options = name and backend_named(name), {"fallback_random": True} if name == "inductor" else None
    print(f"# {NAME}, runs with torch {torch.__version__}")
    torch.manual_seed(SEED)
    values, counts = make_inputs(), Counter()
    for title, run in [(title, Run(graph, values)) for title, graph in GRAPHS.items()]:
        if title not in SHOWN:  # if: hidden
            continue  # if: hidden
        print(f"# {title}")
        found, verdicts, failed = [], [""] * len(run.results), []
        try:
            if name:
                torch.compiler.reset()
                compiled = torch.compile(run.graph(), backend=backend, fullgraph=True, dynamic=False, options=options)
                found = run.again(compiled)
        except Exception as error:  # whatever a backend raises is a result of its graph, and is shown
            traceback.print_exc()
            cause = getattr(error, "inner_exception", error)
            failed = [f"failed: {name} raised {type(cause).__name__}: {str(cause).strip().partition(chr(10))[0][:200]}"]
        if found:
            run.run_references()
            verdicts = [judged(run, index, value, compiled) for index, value in enumerate(found)]
        lines = zip(run.outputs, run.results, verdicts, strict=True)
        lines = [f"{port} {kind(value)} {digest(value)} {verdict}".rstrip() for port, value, verdict in lines]
        print("\n".join(lines + failed), flush=True)
        counts.update(verdict.split()[0].rstrip(":") for verdict in [*verdicts, *failed] if verdict)
    if counts:
        print("#", ", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    raise SystemExit(1 if counts["wrong"] or counts["failed"] else 0)
