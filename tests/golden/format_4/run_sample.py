"""Run a graph of a sample alone, with PyTorch and nothing of Backprint: make its inputs, run it, and print its results.

A copy of this file is in the folder of every sample, beside `capture.json`. `python pair_0/backward/model.py` executes
it there and calls `main`. So it imports only torch and the standard library, and an input that cannot be made ends the
program with one line. Backprint makes the inputs of samples by the same functions, and exported files have parts of
this text (`tools/export/export.py`). Which recipe fits a tensor, and which recipes are valid, is said in `sample/`.

Bits are the same on any machine and torch version, because only integer operations, tables, and single IEEE additions
and multiplications are used: no log, no sin, no fused multiply-add, no reduction. Every draw runs on the CPU. A digest
reads memory as it is, so it is the same on every little-endian machine, which all of torch's releases are for.

Speed: about 0.15 s for 11.7 million float32 normals (ResNet-18) on one core, nine tenths of it the hundred int64
operations of ten Philox rounds. CHUNK keeps a round's tensors in the L2 cache, and each just below the size at which
torch wakes its threads: these are short operations, and waiting for threads on a busy machine costs ten times as much
as the second core gains.
"""

import ctypes
import hashlib
import importlib.util
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

# No `from __future__ import annotations`: executed by a `model.py`, this file is no module of `sys.modules`, and there
# `dataclass` cannot look up annotations that are texts.

# ---- Tensors of recipes: Philox4x32-10, the draws, and their place in storage

MASK = 0xFFFFFFFF  # the low 32 bits: a Philox word lives in an int64
CHUNK = 2**15  # counters a step, any number gives the same bits
PARTS = {"complex64": "float32", "complex128": "float64"}  # a complex number is two real draws
TEXTS = ("of", "why", "layout")  # facts that are no numbers
SPELLED = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
IRWIN_HALL = 0.000976562732830727  # 1 / the deviation of the sum of two 11-bit numbers and twice a 10-bit one


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a tensor is made: `extent` elements of `kind` in storage, seen through shape, stride and offset.

    A sparse one is joined from tensors that are made under names of their own.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str = "cpu"
    extent: int = 0
    offset: int = 0
    seed: int = 0
    facts: tuple[tuple[str, Any], ...] = ()


def parse(row: Mapping[str, Any]) -> Recipe:
    """The Recipe of its JSON object, unchecked. JSON has no inf and nan, so these are strings in it."""
    facts = [(name, _said(value) if name in TEXTS else _plain(value)) for name, value in sorted(row["facts"].items())]
    return Recipe(**{**row, "shape": tuple(row["shape"]), "stride": tuple(row["stride"]), "facts": tuple(facts)})


def _said(value: Any) -> Any:
    """A fact of JSON as a text or a tuple of texts."""
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """A fact of JSON as a number or a tuple of numbers."""
    return tuple(map(_plain, value)) if isinstance(value, list) else SPELLED.get(value, value)


Words = tuple[Any, Any, Any, Any]


def philox(c0: Any, c1: Any, c2: Any, c3: Any, seed: Any) -> Words:
    """Four tensors of 32-bit words for four of counters; a product's wrapped sign bits fall to the mask.

    `seed` is a number, or an int64 tensor with one for each counter, its upper half negative.
    """
    k0, k1 = seed & MASK, seed >> 32 & MASK
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        high0, high1 = p0 >> 32, p1 >> 32  # written to in place: allocating costs as much as computing
        c0, c2 = high1.bitwise_xor_(k0) ^ c1, high0.bitwise_xor_(k1) ^ c3
        c0, c1, c2, c3 = c0.bitwise_and_(MASK), p1, c2.bitwise_and_(MASK), p0
        k0, k1 = k0 + 0x9E3779B9 & MASK, k1 + 0xBB67AE85 & MASK
    return c0, c1 & MASK, c2, c3 & MASK


WORDS = {"normal": 1, "uniform": 2, "integers": 2, "choice": 2, "permutation": 2}  # an element, by kind


def counters(recipe: Recipe) -> int:
    """How many counters a recipe's draw takes: one has the words of four elements or two."""
    return -(-recipe.extent * (2 if recipe.dtype in PARTS else 1) * WORDS[recipe.kind] // 4)


def draw(recipe: Recipe, turn: Callable[..., Any], drawn: Words | None = None, dtype: str = "") -> Any:
    """The flat storage: `turn` makes each element of its words; `drawn` are those of all counters, if known."""
    part, zero = PARTS.get(recipe.dtype), torch.zeros(1, dtype=torch.int64, device="cpu")
    rows, words = counters(recipe), WORDS[recipe.kind]
    table = torch.empty(rows, 4 // words, dtype=getattr(torch, dtype or part or recipe.dtype), device="cpu")
    if drawn is not None:
        table.copy_(turn(*(torch.stack(drawn[word::words], 1) for word in range(words))))
    for start in range(0, rows if drawn is None else 0, CHUNK):
        block = torch.arange(start, min(start + CHUNK, rows), device="cpu")
        four = philox(block & MASK, block >> 32, zero, zero, recipe.seed)
        for column in range(4 // words):
            table[start : start + CHUNK, column] = turn(*four[column * words : (column + 1) * words])
    flat = table.flatten()[: recipe.extent * (2 if part else 1)]
    return torch.view_as_complex(flat.view(-1, 2)) if part else flat


def _real(recipe: Recipe) -> Any:
    """The dtype that floats are computed in, before the one rounding to their own."""
    return torch.float64 if recipe.dtype in ("float64", "complex128") else torch.float32


def _scaled(a: Any, b: Any, span: int) -> Any:
    """The 64-bit number a:b scaled to 0 .. span - 1, for a span up to 2**64, by the high words of products."""
    high, low = span >> 32, span & MASK
    return a * high + (a * low >> 32 & MASK) + (b * high >> 32 & MASK)


def normal(recipe: Recipe, drawn: Words | None, mean: float, std: float, low: float, high: float) -> Any:
    """Irwin-Hall: a sum of three numbers of 11, 11 and 10 bits, centred, times `std`, plus `mean`, in [low, high]."""

    def turn(a: Any) -> Any:
        total = (a & 0x7FF).add_(a >> 11 & 0x7FF).add_(a >> 22, alpha=2).sub_(3070)
        return total.to(_real(recipe)).mul_(std * IRWIN_HALL).add_(mean).clamp_(low, high)

    return draw(recipe, turn, drawn)


def uniform(recipe: Recipe, drawn: Words | None, low: float, high: float) -> Any:
    """Even over [low, high]: 24 random bits an element, 53 for float64."""

    def turn(a: Any, b: Any) -> Any:
        wide = _real(recipe) is torch.float64
        unit = ((a >> 5) * 2**26 + (b >> 6)).double() * 2**-53 if wide else (a >> 8).float() * 2**-24
        return unit.mul_(high - low).add_(low).clamp_(low, high)

    return draw(recipe, turn, drawn)


def integers(recipe: Recipe, drawn: Words | None, low: int, high: int) -> Any:
    """Even over low .. high, both included."""
    return draw(recipe, lambda a, b: _scaled(a, b, high - low + 1) + low, drawn)


def choice(recipe: Recipe, drawn: Words | None, values: tuple[Any, ...], weights: tuple[int, ...]) -> Any:
    """One of `values`, as often as its integer weight says."""
    table = torch.tensor(values, dtype=getattr(torch, PARTS.get(recipe.dtype, recipe.dtype)), device="cpu")
    bounds = torch.tensor(weights, dtype=torch.int64, device="cpu").cumsum(0)
    return draw(recipe, lambda a, b: table[torch.bucketize(_scaled(a, b, sum(weights)), bounds, right=True)], drawn)


def permutation(recipe: Recipe, drawn: Words | None, low: int) -> Any:
    """low .. low + extent - 1, shuffled."""
    order = draw(recipe, lambda a, b: a << 31 | b >> 1, drawn, "int64").argsort(stable=True) + low
    return order.to(getattr(torch, recipe.dtype))


def constant(recipe: Recipe, value: Any, imag: float = 0.0) -> Any:
    """The same value everywhere; `imag` is a complex one's imaginary part."""
    fill = complex(value, imag) if recipe.dtype in PARTS else value
    return torch.full((recipe.extent,), fill, dtype=getattr(torch, recipe.dtype), device="cpu")


def arange(recipe: Recipe, start: Any, step: Any, period: int) -> Any:
    """start, start + step, ... and again from `start` after `period` elements."""
    index = torch.arange(recipe.extent, device="cpu") % period
    index = index.to(_real(recipe)) if "float" in recipe.dtype else index
    return (index * step).add_(start).to(getattr(torch, recipe.dtype))


def tril(recipe: Recipe, rows: int, cols: int, diagonal: int, inside: Any, outside: Any) -> Any:
    """Matrices of rows x cols: `inside` up to `diagonal`, `outside` above it."""
    below = torch.arange(cols, device="cpu") - torch.arange(rows, device="cpu")[:, None] <= diagonal
    table = torch.tensor([outside, inside], dtype=getattr(torch, recipe.dtype), device="cpu")
    return table[below.long()].flatten().repeat(recipe.extent // (rows * cols))


def values(recipe: Recipe, values: tuple[int, ...]) -> Any:
    """The elements themselves, in storage order."""
    return torch.tensor(values, dtype=getattr(torch, recipe.dtype), device="cpu")


DRAWS: dict[str, Callable[..., Any]] = {
    "normal": normal,
    "uniform": uniform,
    "integers": integers,
    "choice": choice,
    "permutation": permutation,
    "constant": constant,
    "arange": arange,
    "tril": tril,
    "values": values,
}


def restore(recipe: Recipe, data: Any) -> Any:
    """Flat storage of kept data: the tensor by its shape, or all `extent` elements of its storage in a row."""
    if data is None:
        raise ValueError("its exact data is not there")
    data = torch.view_as_complex(data) if recipe.dtype in PARTS and not data.is_complex() else data
    if str(data.dtype) != f"torch.{recipe.dtype}" or tuple(data.shape) not in (recipe.shape, (recipe.extent,)):
        raise ValueError(f"its data is {data.dtype} {list(data.shape)}, not {recipe.dtype} {list(recipe.shape)}")
    data = data.cpu().clone(memory_format=torch.contiguous_format)
    rows = data.reshape(-1, 1).view(torch.uint8)  # as bytes, so that any dtype can be placed
    row_major = data.stride() == recipe.stride and data.numel() == recipe.extent
    if not row_major and data.shape != (recipe.extent,):
        index = torch.arange(recipe.extent, device="cpu").as_strided(recipe.shape, recipe.stride, recipe.offset)
        flat = torch.zeros(recipe.extent, rows.shape[1], dtype=torch.uint8, device="cpu")
        rows = flat.index_copy_(0, index.flatten(), rows)
    return rows.view(data.dtype).flatten()


def sparse(recipe: Recipe, bases: Mapping[str, Any], layout: str, of: tuple[str, ...], coalesced: int) -> Any:
    """A sparse tensor of its parts, which were made before it: indices, then values; it shares their memory."""
    given = [bases[name] for name in of]
    options: dict[str, Any] = dict(dtype=given[-1].dtype, device=given[-1].device, check_invariants=True)
    try:
        if layout == "sparse_coo":
            return torch.sparse_coo_tensor(*given, recipe.shape, is_coalesced=bool(coalesced), **options)
        return torch.sparse_compressed_tensor(*given, recipe.shape, layout=getattr(torch, layout), **options)
    except RuntimeError as cause:
        raise ValueError(f"its parts do not make a {layout} tensor of {list(recipe.shape)}: {cause}") from cause


def make(recipe: Recipe, exact: Any = None, bases: Mapping[str, Any] | None = None, drawn: Words | None = None) -> Any:
    """The tensor of a recipe on its device: `exact` is its kept data, `bases` has the tensors that it is made of.

    `drawn` are the random words of its counters, if they were drawn with those of other recipes.
    """
    facts = dict(recipe.facts)
    if recipe.kind == "view":
        return torch.as_strided((bases or {})[facts["of"]], recipe.shape, recipe.stride, recipe.offset)
    if recipe.kind == "sparse":
        return sparse(recipe, bases or {}, **facts)
    if recipe.kind == "none":
        raise ValueError(f"no recipe: {facts.get('why', 'its values were never seen')}")
    if recipe.kind == "exact":
        flat = restore(recipe, exact)
    else:
        flat = DRAWS[recipe.kind](recipe, *([drawn] if recipe.kind in WORDS else []), **facts)
    return flat.to(recipe.device).as_strided(recipe.shape, recipe.stride, recipe.offset)


def parts(tensor: Any) -> tuple[Any, ...]:
    """A sparse tensor's indices and values."""
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


def digest(tensor: Any) -> str:
    """16 hex digits of sha256 over dtype, shape and the contiguous bytes: -0.0 and a NaN's payload count.

    A sparse tensor's is over its layout and its parts' digests.
    """
    head = f"{tensor.dtype} {list(tensor.shape)}".removeprefix("torch.")
    if tensor.layout is not torch.strided:
        coalesced = tensor.layout is torch.sparse_coo and tensor.is_coalesced()
        text = " ".join([head, str(tensor.layout), str(coalesced), *map(digest, parts(tensor))])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
    tensor = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    state = hashlib.sha256(head.encode())
    state.update(ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.numel() else b"")
    return state.hexdigest()[:16]


# ---- Files and annotations of a sample

SAFE_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "C64": "complex64", "U16": "uint16", "U32": "uint32",
    "U64": "uint64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
PORT = re.compile(r"(.*?) (parameter|buffer|input|constant|saved|tangent|rng|output|mutation|gradient) (.*)", re.DOTALL)
RANKS = {"view": 1, "sparse": 2}  # what is made of others is made after them


def ports(annotations: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return (spec, role, name) of each annotation."""
    found = map(PORT.fullmatch, annotations)
    return [(port[1], port[2], port[3]) for port in found]  # type: ignore[index]  # each annotation is a port's


def printed_line(role: str, name: str, value: Any) -> str:
    """Return the line to print for an output: with the digest of a tensor, or with any other value itself."""
    if isinstance(value, torch.Tensor):
        return f"{role} {name} {str(value.dtype).removeprefix('torch.')}{list(value.shape)} {digest(value)}"
    return f"{role} {name} {type(value).__name__} {value}"


def read_safetensors(path: Path) -> dict[str, Any]:
    """Return name -> tensor: 8 bytes of header size, a JSON header, then the bytes that its offsets count from."""
    if not path.exists():
        return {}
    raw = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, row in header.items():
        (begin, end), dtype = row["data_offsets"], getattr(torch, SAFE_DTYPES[row["dtype"]])
        count = math.prod(row["shape"])
        if not 0 <= begin <= end <= len(raw) - start or end - begin != count * dtype.itemsize:
            raise ValueError(f"{path.name} is damaged: {name!r} lies outside of it or has the wrong length")
        place: dict[str, Any] = dict(dtype=dtype, count=count, offset=start + begin)
        flat = torch.frombuffer(raw, **place) if count else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(row["shape"])
    return tensors


def make_inputs(recipes: Mapping[str, Any], names: Collection[str], exact: Mapping[str, Any]) -> dict[str, Any]:
    """Return name -> tensor for these names; a view's base and a sparse tensor's parts are made with it."""
    wanted = list(names)
    made: dict[str, Any] = {}
    for name in wanted:
        of = recipes[name]["facts"].get("of", ())
        wanted += [base for base in ((of,) if isinstance(of, str) else of) if base not in wanted]
    for name in sorted(dict.fromkeys(wanted), key=lambda name: RANKS.get(recipes[name]["kind"], 0)):
        try:
            made[name] = make(parse(recipes[name]), exact.get(name), made)
        except ValueError as cause:
            raise SystemExit(f"input {name!r} cannot be made: {cause}") from None
    return made


# ---- The graph of a `model.py`, on the inputs of its sample

ALONE = """{} is not there: model.py takes its inputs from the sample that it is part of.
Run it in the sample's folder, SAMPLE/pair_0/forward/model.py, copied as a whole, or make one file that runs anywhere:
    backprint export SAMPLE -o repro.py"""


def main(graph: Any, file: str) -> None:
    """Run the class of a graph, which is in this `model.py`; print a line for each output.

    Results are not compared with the digests of the capture: `backprint verify` does that.
    """
    for role, name, value in _results(graph, Path(file).resolve().parent):
        print(printed_line(role, name, value))


def _results(graph: Any, side: Path) -> list[tuple[str, str, Any]]:
    """Return (role, name, value) of each output of the graph in the folder `side`, on the sample's own inputs.

    A backward takes what its forward saves when that runs on these inputs.
    """
    folder, forward = side.parent.parent, side.parent / "forward" / "model.py"
    for path in [folder / "capture.json", *([forward] if side.name == "backward" else [])]:
        if not path.exists():
            raise SystemExit(ALONE.format(path))
    capture = json.loads((folder / "capture.json").read_text(encoding="utf-8"))
    environment = capture.get("environment", {})
    torch.set_num_threads(int(environment.get("threads", torch.get_num_threads())))
    torch.set_default_dtype(getattr(torch, environment.get("default_dtype", "float32")))
    torch.set_flush_denormal(environment.get("flush_denormal") == "True")
    torch.set_float32_matmul_precision(environment.get("float32_matmul_precision", "highest"))
    deterministic = environment.get("deterministic", "False")
    torch.use_deterministic_algorithms(deterministic != "False", warn_only=deterministic == "warn")
    if side.name == "backward":
        saved = {name: value for role, name, value in _results(_graph_of(forward), forward.parent) if role == "saved"}
        torch.manual_seed(capture["seed"])
        return _run(graph, folder, capture, {}, saved)
    if capture.get("rank"):
        torch.ops.__dict__["_c10d_functional"] = _OtherRanks(folder, capture)
    torch.manual_seed(capture["seed"])
    return _run(graph, folder, capture, _linked_inputs(folder, capture, side.parent.name), {})


def _graph_of(path: Path) -> Any:
    """Return the class of the graph in another `model.py` of the sample."""
    spec = importlib.util.spec_from_file_location("other_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module.GraphModule


def _run(
    graph: Any, folder: Path, capture: Mapping[str, Any], known: Mapping[str, Any], saved: Mapping[str, Any]
) -> list[tuple[str, str, Any]]:
    """Return (role, name, value) of each output, on what is known and, for the rest, on the sample's own inputs."""
    # The last `GraphModule` of a file may be one for GraphNet's tools, without annotations, and is then of the graph's.
    graph = next(kind for kind in graph.__mro__ if kind.forward.__annotations__)
    annotations = dict(graph.forward.__annotations__)
    outputs = ports(annotations.pop("return"))
    inputs = ports(annotations.values())
    keys = [f"tangent {name}" if role == "tangent" else name for _, role, name in inputs]
    fresh = [key for key, (_, role, _) in zip(keys, inputs, strict=True) if role != "saved" and key not in known]
    missing = [key for key in fresh if key not in capture["recipes"]]
    missing += [name for _, role, name in inputs if role == "saved" and name not in saved]
    if missing:
        raise SystemExit(f"capture.json and the forward say nothing of the inputs {', '.join(map(repr, missing))}")
    made = {**known, **make_inputs(capture["recipes"], fresh, read_safetensors(folder / "tensors.safetensors"))}
    given = [saved[key] if role == "saved" else made[key] for key, (_, role, _) in zip(keys, inputs, strict=True)]
    values = graph()(*(number_or_tensor(spec, value) for (spec, _, _), value in zip(inputs, given, strict=True)))
    for (spec, role, name), value in zip(outputs, values, strict=True):
        dtype = spec.partition("[")[0]
        if isinstance(value, torch.Tensor) and dtype != spec and dtype != _short(value.dtype):
            raise SystemExit(f"{role} {name!r} was {spec} at capture and is {value.dtype} here")
    return [(role, name, value) for (_, role, name), value in zip(outputs, values, strict=True)]


def number_or_tensor(spec: str, value: Any) -> Any:
    """Return an input as its port expects it: the recipe of a number makes a tensor."""
    return value.item() if spec.startswith("Sym") and isinstance(value, torch.Tensor) else value


def _short(dtype: Any) -> str:
    """Return a dtype as annotations have it: f32, bf16, i64, b8."""
    name, bits = re.fullmatch(r"torch\.([a-z]+)(.*)", str(dtype)).groups()  # type: ignore[union-attr]  # each matches
    return "b8" if name == "bool" else ("bf" if name == "bfloat" else name[0]) + bits.replace("_", "")


def _linked_inputs(folder: Path, capture: Mapping[str, Any], own: str) -> dict[str, Any]:
    """Return name -> value of the inputs that links bring to a Pair.

    The forwards of the Pairs before it run here, in order: so guards on these values hold. A gradient that a link
    brings has a recipe instead.
    """
    links = capture.get("links", [])
    if not links:
        return {}
    given: dict[tuple[int, str], Any] = {}

    def fed(number: int) -> dict[str, Any]:
        return {
            name: given[source, port]
            for source, port, target, name in links
            if target == number and (source, port) in given
        }

    folders = [pair["folder"] for pair in capture["pairs"]]
    number = folders.index(own)
    for index, name in enumerate(folders[:number]):
        _go_to_collectives(capture, index)
        graph = _graph_of(folder / name / "forward" / "model.py")
        for role, port, value in _run(graph, folder, capture, fed(index), {}):
            given[index, f"{role} {port}"] = value
    _go_to_collectives(capture, number)
    return fed(number)


# ---- A rank of several, alone


def _go_to_collectives(capture: Mapping[str, Any], number: int) -> None:
    """Continue at the collectives of a Pair: those of the Pairs before it have been answered in the step."""
    if capture.get("rank") and "exchanges_before" in capture:
        before = capture["exchanges_before"][number]
        torch.ops._c10d_functional.counts = {group: count - 1 for group, count in before.items()}


class _OtherRanks:
    """In the place of torch's collectives: the other ranks answer with what they sent when this one was captured, or,
    if that was not kept, with what this one received then."""

    def __init__(self, folder: Path, capture: Mapping[str, Any]) -> None:
        self.rank, self.known = capture["rank"], capture.get("exchanges", {})
        self.counts: dict[str, int] = {}
        self.tensors = read_safetensors(folder / "exchanges.safetensors")
        self.wait_tensor = _Operator(torch.ops._c10d_functional.wait_tensor.default)

    def __getattr__(self, kind: str) -> Any:
        return _Operator(lambda sent, *options: self.answer(kind, sent, options[-1]))

    def answer(self, kind: str, sent: Any, group: str) -> Any:
        """Return what this rank receives in the next collective of a group."""
        number = self.counts[group] = self.counts.get(group, -1) + 1
        if number >= len(self.known.get(group, [])) or self.known[group][number][0] != kind:
            raise SystemExit(f"collective {number + 1} of {group!r} is {kind} here, and no such one was kept")
        members = self.rank["groups"][group]
        place = members.index(self.rank["number"])
        names = [*(f"sent by {index}" for index in range(len(members))), "received"]
        kept = [self.tensors.get(f"{group} {number} {name}") for name in names]
        *everyone, received = [None if tensor is None else tensor.to(sent.device) for tensor in kept]
        if received is not None and (torch.equal(everyone[place], sent) or any(other is None for other in everyone)):
            return received.clone()
        everyone[place] = sent
        return received_by(place, kind, self.known[group][number][1], everyone)


class _Operator:
    """An operator as a graph calls it: `operator.default(...)`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.default = function


REDUCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": torch.add, "avg": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum,
    "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor,
}  # fmt: skip


def _reduced(reduction: str, tensors: Sequence[Any]) -> Any:
    """Return the reduction of tensors, from the first to the last."""
    total = tensors[0].clone(memory_format=torch.contiguous_format)
    for tensor in tensors[1:]:
        total = REDUCTIONS[reduction](total, tensor)
    return total / len(tensors) if reduction == "avg" else total


def received_by(index: int, kind: str, options: Sequence[Sequence[Any]], sent: Sequence[Any]) -> Any:
    """Return what a member receives, by its place in the group; `options` and `sent` have a row of each member."""
    tensors = [tensor.detach() for tensor in sent]
    own = options[index]
    if kind == "all_reduce":
        return _reduced(own[0], tensors)
    if kind == "all_gather_into_tensor":
        return torch.cat([tensor if tensor.dim() else tensor.reshape(1) for tensor in tensors])
    if kind == "reduce_scatter_tensor":
        return _reduced(own[0], tensors).chunk(len(tensors))[index].clone()
    if kind == "broadcast":
        return tensors[own[0]].clone(memory_format=torch.contiguous_format)
    if kind == "all_to_all_single":
        parts = [tensor.split(list(row[1]))[index] for row, tensor in zip(options, tensors, strict=True)]
        return torch.cat(parts)
    raise ValueError(f"{kind} is not a collective that is known here")
