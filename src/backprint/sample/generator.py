"""Make inputs again bit for bit: Philox4x32-10, the draws, their place in storage, and the digest of a tensor.

This file's text also ends every `model.py` (see `standalone`), so it imports only torch and the standard library and
raises plain ValueErrors. It neither chooses a recipe (`recipes`) nor checks one (`recipe_json`). A digest reads memory
as it is, so it is the same on every little-endian machine, which all of torch's releases are for.

Bits are the same on any machine and torch version, because only integer operations, tables, and single IEEE additions
and multiplications are used: no log, no sin, no fused multiply-add, no reduction. Every draw runs on the CPU.

Speed: about 0.15 s for 11.7 million float32 normals (ResNet-18) on one core, nine tenths of it the hundred int64
operations of ten Philox rounds. CHUNK keeps a round's tensors in the L2 cache, and each just below the size at which
torch wakes its threads: these are short operations, and waiting for threads on a busy machine costs ten times as much
as the second core gains.
"""

import ctypes
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

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
    facts = [(name, said(value) if name in TEXTS else plain(value)) for name, value in sorted(row["facts"].items())]
    return Recipe(**{**row, "shape": tuple(row["shape"]), "stride": tuple(row["stride"]), "facts": tuple(facts)})


def said(value: Any) -> Any:
    """A fact of JSON as a text or a tuple of texts."""
    return tuple(value) if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """A fact of JSON as a number or a tuple of numbers."""
    return tuple(map(plain, value)) if isinstance(value, list) else SPELLED.get(value, value)


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


def real(recipe: Recipe) -> Any:
    """The dtype that floats are computed in, before the one rounding to their own."""
    return torch.float64 if recipe.dtype in ("float64", "complex128") else torch.float32


def scaled(a: Any, b: Any, span: int) -> Any:
    """The 64-bit number a:b scaled to 0 .. span - 1, for a span up to 2**64, by the high words of products."""
    high, low = span >> 32, span & MASK
    return a * high + (a * low >> 32 & MASK) + (b * high >> 32 & MASK)


def normal(recipe: Recipe, drawn: Words | None, mean: float, std: float, low: float, high: float) -> Any:
    """Irwin-Hall: a sum of three numbers of 11, 11 and 10 bits, centred, times `std`, plus `mean`, in [low, high]."""

    def turn(a: Any) -> Any:
        total = (a & 0x7FF).add_(a >> 11 & 0x7FF).add_(a >> 22, alpha=2).sub_(3070)
        return total.to(real(recipe)).mul_(std * IRWIN_HALL).add_(mean).clamp_(low, high)

    return draw(recipe, turn, drawn)


def uniform(recipe: Recipe, drawn: Words | None, low: float, high: float) -> Any:
    """Even over [low, high]: 24 random bits an element, 53 for float64."""

    def turn(a: Any, b: Any) -> Any:
        wide = real(recipe) is torch.float64
        unit = ((a >> 5) * 2**26 + (b >> 6)).double() * 2**-53 if wide else (a >> 8).float() * 2**-24
        return unit.mul_(high - low).add_(low).clamp_(low, high)

    return draw(recipe, turn, drawn)


def integers(recipe: Recipe, drawn: Words | None, low: int, high: int) -> Any:
    """Even over low .. high, both included."""
    return draw(recipe, lambda a, b: scaled(a, b, high - low + 1) + low, drawn)


def choice(recipe: Recipe, drawn: Words | None, values: tuple[Any, ...], weights: tuple[int, ...]) -> Any:
    """One of `values`, as often as its integer weight says."""
    table = torch.tensor(values, dtype=getattr(torch, PARTS.get(recipe.dtype, recipe.dtype)), device="cpu")
    bounds = torch.tensor(weights, dtype=torch.int64, device="cpu").cumsum(0)
    return draw(recipe, lambda a, b: table[torch.bucketize(scaled(a, b, sum(weights)), bounds, right=True)], drawn)


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
    index = index.to(real(recipe)) if "float" in recipe.dtype else index
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
