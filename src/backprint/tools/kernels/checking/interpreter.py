"""Triton's interpreter, patched so that it computes what a GPU computes, for a process that only checks kernels.

The interpreter of Triton 3.7 truncates float32 to bfloat16 where a GPU rounds to nearest, computes with the bits of
bfloat16 numbers as if they were integers, lacks libdevice and PTX, writes one column where the mask of an atomic
operation is broadcast, takes `not` of a block for False, and combines one pair of elements at a time in reductions that
are not sums. Reads and writes outside of a kernel's arguments raise OutsideMemoryError.

Words of this file:

- handle: a block of numbers in the interpreter (its TensorHandle): `data` is a numpy array, `dtype` Triton's, whose
  `scalar` is that of an element. The tensor of Triton's language (`tl.core.tensor`) has a handle.
- builder: the interpreter's InterpreterBuilder. A kernel's operations call its methods, `create_fabs`, …, with handles;
  METHODS replaces some, and others are wrapped. So functions here have `self` and the arguments of a method, among
  them some that change nothing here: `hints` on caches, `precision` of a product, `scope` of an atomic operation.
- short: of a dtype that numpy lacks: bfloat16, and those of 8 bits. Its bits are integers in a handle, so numbers of it
  are computed as float32, and rounded.
- active: of elements, that the mask of a load, a store or an atomic operation leaves.
- axis: of a reduction or a scan, the dimension along which it combines.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice
from triton.runtime import interpreter as triton_interpreter

from backprint.errors import RefusedError
from backprint.tools.kernels.checking.memory import check_addresses

# ------------------------------------------------------------------ libdevice and PTX, computed by torch
#
# Names that Inductor 2.13 writes have a row. Any other name raises RefusedError when a kernel calls it.


def _fused_multiply_add(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Return x * y + z, rounded once."""
    return (x.double() * y.double() + z.double()).to(z.dtype)


def exponent(x: Tensor) -> Tensor:
    """Return the exponent of a number x as an integer e: 2 ** e <= |x| < 2 ** (e + 1)."""
    return torch.frexp(x).exponent - 1


def _round_to_int64(x: Tensor) -> Tensor:
    """Return the nearest integers, of two the even one."""
    return torch.round(x).to(torch.int64)


def ldexp(x: Tensor, by: Tensor) -> Tensor:
    """Return x * 2 ** by."""
    return torch.ldexp(x.double(), by.double()).to(x.dtype)


NUMBER_FUNCTIONS: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {
        **{
            name: getattr(torch, name)
            for name in (
                "abs acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1 "
                "floor fmax fmin fmod hypot lgamma log log10 log1p log2 nextafter pow rsqrt sin sinh sqrt tan tanh "
                "trunc"
            ).split()
        },
        "fabs": torch.abs,
        "rint": torch.round,
        "nearbyint": torch.round,
        "llrint": _round_to_int64,
        "fma": _fused_multiply_add,
        "mul_rn": torch.mul,
        "add_rn": torch.add,
        "sub_rn": torch.sub,
        "div_rn": torch.div,
        "sqrt_rn": torch.sqrt,
        "fast_dividef": torch.div,
        "fast_tanhf": torch.tanh,
        "ldexp": ldexp,
        "erfcx": torch.special.erfcx,
        "cyl_bessel_i0": torch.special.i0,
        "cyl_bessel_i1": torch.special.i1,
        "j0": torch.special.bessel_j0,
        "j1": torch.special.bessel_j1,
        "y0": torch.special.bessel_y0,
        "y1": torch.special.bessel_y1,
        "normcdf": torch.special.ndtr,
        "normcdfinv": torch.special.ndtri,
    }
)
"""The names that return numbers of the dtype of their arguments, or 64-bit integers."""

INT32_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "isinf": torch.isinf,
        "isnan": torch.isnan,
        "finitef": torch.isfinite,
        "signbit": torch.signbit,
        "ilogb": exponent,
    }
)
"""The names that return 32-bit integers."""

PTX_FUNCTIONS: Mapping[str, Callable[..., Tensor]] = MappingProxyType(
    {"fma.rn.f32 $0, $1, $2, $3;": _fused_multiply_add, "rcp.approx.ftz.f32 $0, $1;": torch.reciprocal}
)
"""Lines of PTX that Inductor writes into kernels, for the arctangent."""


# ------------------------------------------------------------------ the patches

Array = Any
"""A numpy array, whose types the interpreter chooses."""

SHORT_DTYPES = {
    tl.bfloat16: torch.bfloat16,
    tl.float8e5: torch.float8_e5m2,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e4b8: torch.float8_e4m3fnuz,
    tl.float8e5b16: torch.float8_e5m2fnuz,
}
"""Dtypes that numpy lacks: the interpreter holds their bits as integers."""

BIT_DTYPES = {2: (np.uint16, torch.int16), 1: (np.uint8, torch.uint8)}
"""Bytes of a short dtype -> the integers in which numpy and torch hold its bits."""

Builder = triton_interpreter.InterpreterBuilder
Handle = triton_interpreter.TensorHandle


def patch_interpreter() -> None:
    """Patch the interpreter of this process, permanently: casts, reads and writes of memory, and computation with short
    dtypes in its builder; reductions, scans, and `not` in a kernel's source; and the functions of libdevice."""
    for name, function in METHODS.items():
        setattr(Builder, name, function)
    for name in ("binary_op", "ternary_op", "unary_op"):
        setattr(Builder, name, in_float32(getattr(Builder, name)))
    for name in ("create_fma", "create_idiv"):
        setattr(Builder, name, _in_float32_without_operation(getattr(Builder, name)))
    # all reductions but sums and the like, which `apply_impl` has of its own; of short dtypes, these too
    triton_interpreter.ReduceOps.generic_reduce = _reduce_by_halves
    triton_interpreter.ReduceOps.apply_impl = _unless_short(triton_interpreter.ReduceOps.apply_impl, _reduce_by_halves)
    triton_interpreter.ScanOps.generic_scan = _scan_by_doubling
    triton_interpreter.ASTTransformer.visit_UnaryOp = _visit_not
    triton_interpreter.ASTTransformer.visit_Assign = _visiting_value_first(
        triton_interpreter.ASTTransformer.visit_Assign
    )
    triton_interpreter.logical_not = logical_not
    for name in [name for name in vars(libdevice) if not name.startswith("_") and callable(getattr(libdevice, name))]:
        setattr(libdevice, name, _libdevice_by_torch(name))


# -------------------------------------------------------------- dtypes that numpy lacks


def to_array(handle: Any) -> Array:
    """Return the numbers of a handle as an array; those of short dtypes as float32, and booleans as they are."""
    short = SHORT_DTYPES.get(handle.dtype.scalar)
    if short is None or handle.data.dtype == bool:
        return handle.data
    numpy_bits, torch_bits = BIT_DTYPES[short.itemsize]
    values = np.ascontiguousarray(handle.data.astype(numpy_bits, copy=False))
    # the same bits, as integers that torch has, and then as its short dtype
    return torch.from_numpy(values.view(signed(values.dtype))).view(torch_bits).view(short).float().numpy()


def signed(dtype: Any) -> Any:
    """Return int16 for uint16, as BIT_DTYPES pairs them; another dtype as it is."""
    return np.int16 if dtype == np.uint16 else dtype


def _handle_of(values: Array, dtype: Any) -> Any:
    """Return a handle of numbers in a dtype of Triton, rounded to nearest where it is short."""
    short = SHORT_DTYPES.get(dtype.scalar)
    if short is None:
        return Handle(values.astype(triton_interpreter._get_np_dtype(dtype.scalar), copy=False), dtype.scalar)
    numpy_bits, torch_bits = BIT_DTYPES[short.itemsize]
    rounded = torch.from_numpy(np.ascontiguousarray(values)).to(short).view(torch_bits).numpy()
    return Handle(rounded.view(numpy_bits), dtype.scalar)


def cast(self: Any, source: Any, dtype: Any, *rounding: Any) -> Any:
    """Convert numbers to a dtype, in the place of the interpreter's casts, which truncate; refuse to round towards
    zero (RTZ), one of the modes that Triton has."""
    if any("RTZ" in str(mode) for mode in rounding):
        raise NotImplementedError("the interpreter of Backprint has no rounding to zero")
    with np.errstate(all="ignore"):  # a number that is too large becomes Inf, which numpy would warn of
        return _handle_of(to_array(source), dtype)


def in_float32(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of the interpreter's builder that computes in float32 where an operand has a short dtype, and
    rounds the result to it; comparisons give booleans. The last argument of the method is the operation."""

    def computed(self: Any, *args: Any) -> Any:
        """Call the method; or, where an operand is short, the operation, a function of arrays, on float32. The result
        has the dtype of the last short operand."""
        *handles, operation = args
        short = next((handle.dtype.scalar for handle in reversed(handles) if handle.dtype.scalar in SHORT_DTYPES), None)
        with np.errstate(all="ignore"):
            # a comparison's result has booleans and no bits; of three operands, the first is the condition of a `where`
            if short is None or (handles[0].data.dtype == bool and len(handles) < 3):
                return method(self, *args)
            result = operation(*map(to_array, handles))
        return Handle(result, tl.int1) if result.dtype == bool else _handle_of(result, short)

    return computed


def _in_float32_without_operation(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return `in_float32` of a method that has its operation inside, and takes none."""

    def computed(self: Any, *handles: Any) -> Any:
        """Call the method; where an operand is short, on handles of float32, and round its result."""
        short = next((handle.dtype.scalar for handle in reversed(handles) if handle.dtype.scalar in SHORT_DTYPES), None)
        with np.errstate(all="ignore"):
            if short is None:
                return method(self, *handles)
            wide = method(self, *(Handle(to_array(handle), tl.float32) for handle in handles))
        return _handle_of(wide.data, short)

    return computed


def absolute(self: Any, source: Any) -> Any:
    """Return absolute values."""
    return _handle_of(np.abs(to_array(source)), source.dtype)


def dot(self: Any, left: Any, right: Any, added: Any, *precision: Any) -> Any:
    """Return the matrix product of two blocks, plus a third: added up in float32 if that is short."""
    matrix = np.matmul(
        to_array(left), to_array(right), dtype=np.float32 if added.dtype.scalar in SHORT_DTYPES else None
    )
    return _handle_of(matrix + to_array(added), added.dtype)


def _bfloat16_constant(self: Any, value: float) -> Any:
    """Return the handle of a number in bfloat16."""
    return _handle_of(np.array([value], dtype=np.float32), tl.bfloat16)


# -------------------------------------------------------------- masked loads, stores and atomics


def _size_of_element(pointers: Any) -> int:
    """Return the bytes of what pointers point to."""
    return max(1, pointers.get_element_ty().primitive_bitwidth // 8)


def _load_masked(self: Any, pointers: Any, mask: Any, other: Any, *hints: Any) -> Any:
    """Read the elements that a mask leaves, after a check of their addresses; `other`, or 0 if it is None, elsewhere.
    What it reads are bits in memory, so a short dtype needs no rounding."""
    element = pointers.get_element_ty()
    dtype = triton_interpreter._get_np_dtype(element)
    addresses, active = broadcast_mask(pointers.data, mask.data)
    check_addresses(addresses, active, _size_of_element(pointers), "reads")
    otherwise = np.zeros(1, dtype=dtype) if other is None else other.data.astype(dtype, copy=False)
    return Handle(
        triton_interpreter._interpreter.load(addresses, active, _contiguous_array(otherwise, addresses.shape), dtype),
        element,
    )


def _store_masked(self: Any, pointers: Any, value: Any, mask: Any, *hints: Any) -> Any:
    """Write the elements that a mask leaves, after a check of their addresses."""
    addresses, active = broadcast_mask(pointers.data, mask.data)
    check_addresses(addresses, active, _size_of_element(pointers), "writes")
    dtype = triton_interpreter._get_np_dtype(pointers.get_element_ty())
    return triton_interpreter._interpreter.store(
        addresses, _contiguous_array(value.data.astype(dtype, copy=False), addresses.shape), active
    )


def _atomic_read_modify_write(
    self: Any, operation: Any, pointers: Any, value: Any, mask: Any, order: Any, scope: Any
) -> Any:
    """Run an atomic operation on the elements that a mask leaves, after a check of their addresses; return their old
    values. Of half-precision numbers, `_atomic_add_rounded` adds them."""
    addresses, active = broadcast_mask(pointers.data, mask.data)
    check_addresses(addresses, active, _size_of_element(pointers), "changes")
    values = _contiguous_array(value.data, addresses.shape)
    if value.dtype.scalar in SHORT_DTYPES or value.dtype.scalar == tl.float16:
        return _atomic_add_rounded(self, operation, addresses, active, Handle(values, value.dtype.scalar))
    own_operation = self.ir_rmw_op_to_interpreter_rmw_op[operation]  # the interpreter's word for it
    own_order = self.ir_sem_to_interpreter_sem[order]
    old_values = triton_interpreter._interpreter.atomic_rmw(own_operation, addresses, values, active, own_order)
    return Handle(old_values, value.dtype.scalar)


def _atomic_add_rounded(self: Any, operation: Any, addresses: Array, active: Array, value: Any) -> Any:
    """Add half-precision numbers in memory one by one, each sum rounded, as a GPU does; return the old values."""
    if "FADD" not in str(operation):
        raise NotImplementedError(f"the interpreter has no atomic {operation} of {value.dtype}")
    old_values, dtype = np.zeros_like(value.data), triton_interpreter._get_np_dtype(value.dtype.scalar)
    addends, always = to_array(value).astype(np.float32).reshape(-1), np.ones(1, dtype=bool)  # a mask for one element
    # several lanes may have one address: so one after another
    for index in np.flatnonzero(active):
        address = addresses.reshape(-1)[index : index + 1]
        old = Handle(
            triton_interpreter._interpreter.load(address, always, np.zeros(1, dtype), dtype), value.dtype.scalar
        )
        old_values.reshape(-1)[index] = old.data[0]
        new = _handle_of(to_array(old).astype(np.float32) + addends[index], value.dtype)
        triton_interpreter._interpreter.store(address, new.data, always)
    return Handle(old_values, value.dtype.scalar)


def broadcast_mask(pointers: Array, mask: Array) -> tuple[Array, Array]:
    """Return pointers and their mask as arrays of one shape."""
    shape = np.broadcast_shapes(pointers.shape, mask.shape)
    return _contiguous_array(pointers, shape), _contiguous_array(mask, shape)


def _contiguous_array(values: Array, shape: Sequence[int]) -> Array:
    """Return values as an array of a shape that lies in memory without gaps and may be written."""
    if values.shape == shape and values.flags.c_contiguous and values.flags.writeable:
        return values
    return np.array(np.broadcast_to(values, shape), order="C")


def _run_assembly(self: Any, text: str, constraints: str, values: Sequence[Any], *rest: Any) -> Any:
    """Run a line of PTX by the function in PTX_FUNCTIONS that computes the same; refuse any other line. Return an
    object with `get_result`, what Triton asks of the operation that it made. `constraints`, on registers, do not matter
    here."""
    if (function := PTX_FUNCTIONS.get(text)) is None:
        raise RefusedError(f"Triton's interpreter runs no PTX, and Backprint has no function for {text!r}")
    arrays = np.broadcast_arrays(*map(to_array, values))
    result_values = function(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))
    result = _handle_of(result_values.numpy(), values[0].dtype)
    return SimpleNamespace(get_result=lambda place: result)


METHODS: dict[str, Callable[..., Any]] = {
    "cast_impl": cast,
    "create_fp_to_fp": cast,
    "create_fabs": absolute,
    "create_dot": dot,
    "get_bf16": _bfloat16_constant,
    "create_masked_load": _load_masked,
    "create_masked_store": _store_masked,
    "create_atomic_rmw": _atomic_read_modify_write,
    "create_inline_asm": _run_assembly,
}

# -------------------------------------------------------------- the language


def _visit_not(self: Any, node: ast.UnaryOp) -> ast.expr:
    """Replace `not x` by `logical_not(x)` in a kernel: Python's own takes the truth value of the whole block, which is
    True."""
    self.generic_visit(node)
    if not isinstance(node.op, ast.Not):
        return node
    return ast.Call(ast.Name(logical_not.__name__, ast.Load()), [node.operand], [])


def logical_not(value: Any) -> Any:
    """Return `not value`, as Triton has it: of a block, for each element."""
    return value == 0 if isinstance(value, tl.core.tensor) else not value


def _visiting_value_first(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return Triton's `visit_Assign`, a `method` of the class that rewrites a kernel's source, which visits the value
    of an assignment first: Triton passes over it, and a `not` in it would stay."""

    def visited(self: Any, node: ast.Assign) -> Any:
        node.value = self.visit(node.value)
        return method(self, node)

    return visited


# -------------------------------------------------------------- reductions and scans


def to_block(values: Array, dtype: Any) -> Any:
    """Return an array as a tensor of Triton."""
    return tl.core.tensor(Handle(values, dtype.scalar), tl.block_type(dtype.scalar, list(values.shape)))


def _combine_arrays(function: Any, left: Sequence[Array], right: Sequence[Array], dtypes: Sequence[Any]) -> list[Array]:
    """Combine arrays element by element with a kernel's function of two sides, each of one number an array: an argmax
    has a value and an index on each side. The function is a jitted one; `rewrite` makes it one of the interpreter."""
    both = [to_block(values, dtype) for side in (left, right) for values, dtype in zip(side, dtypes, strict=True)]
    outcome = function.rewrite()(*both)
    results = outcome if isinstance(outcome, (tuple, list)) else (outcome,)
    return [
        np.broadcast_to(result.handle.data, left[0].shape).astype(values.dtype, copy=False)
        for result, values in zip(results, left, strict=True)
    ]


def _reduce_by_halves(self: Any, operands: Any) -> list[Any]:
    """Reduce by combining neighbors until one element is left, all pairs at once: [a, b, c, d] -> [ab, cd] -> [abcd]. A
    GPU combines in some such tree too. `self` is Triton's reduction: `combine_fn` combines two elements, `axis` is None
    for all dimensions (`unravel` makes them one), and `operands` are tensors that are reduced together."""
    shape = operands[0].handle.data.shape
    operands_on_axis, axis = self.unravel(operands, self.axis)
    values = [operand.handle.data for operand in operands_on_axis]
    dtypes = [operand.dtype for operand in operands_on_axis]
    while (count := values[0].shape[axis]) > 1:
        if count % 2:
            raise NotImplementedError(f"the interpreter reduces powers of two, not {count} elements")
        even, odd = ([np.take(array, range(first, count, 2), axis) for array in values] for first in (0, 1))
        values = _combine_arrays(self.combine_fn, even, odd, dtypes)
    results = []
    for array, dtype in zip(values, dtypes, strict=True):
        reduced = array if self.keep_dims and self.axis is not None else np.squeeze(array, axis)
        if self.axis is None:
            reduced = reduced.reshape((1,) * len(shape)) if self.keep_dims else reduced.item()
        results.append(self.to_tensor(reduced, dtype))
    return results


def _scan_by_doubling(self: Any, operands: Any) -> list[Any]:
    """Combine each element with all before it, by steps of 1, 2, 4, …: after the step of 2, an element has the 4 up to
    itself. `self` is Triton's scan: `combine_fn` combines two elements, along `axis`."""
    values = [operand.handle.data for operand in operands]
    dtypes = [operand.dtype for operand in operands]
    count, step = values[0].shape[self.axis], 1
    shape = [1] * values[0].ndim
    shape[self.axis] = count  # of a mask along the axis, to broadcast
    while step < count:
        # what comes around the end has no partner
        shifted = [np.roll(array, step, self.axis) for array in values]
        has_partner = np.arange(count).reshape(shape) >= step
        combined = _combine_arrays(self.combine_fn, shifted, values, dtypes)
        values = [np.where(has_partner, new, old) for new, old in zip(combined, values, strict=True)]
        step *= 2
    return [self.to_tensor(array, dtype) for array, dtype in zip(values, dtypes, strict=True)]


def _unless_short(method: Callable[..., Any], otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return `method` for the dtypes that numpy has, and `otherwise` for the short ones."""

    def reduced(self: Any, operands: Any) -> Any:
        short = any(operand.dtype.scalar in SHORT_DTYPES for operand in operands)
        return otherwise(self, operands) if short else method(self, operands)

    return reduced


# -------------------------------------------------------------- functions of libdevice


def _libdevice_by_torch(name: str) -> Callable[..., Any]:
    """Return a function of libdevice that torch computes by NUMBER_FUNCTIONS or INT32_FUNCTIONS; if it has no row, a
    call raises RefusedError."""
    function = NUMBER_FUNCTIONS.get(name) or INT32_FUNCTIONS.get(name)

    def called(*args: Any, **kwargs: Any) -> Any:
        """Return the value of the function for arguments of Triton: blocks, or numbers."""
        if function is None:
            raise RefusedError(f"Triton's interpreter has no libdevice.{name}, and Backprint has no function for it")
        tensors = [argument for argument in args if isinstance(argument, tl.core.tensor)]
        dtype = tensors[0].dtype.scalar  # one argument at least is a tensor of Triton
        arrays = [
            to_array(argument.handle) if isinstance(argument, tl.core.tensor) else _number_as_array(argument, dtype)
            for argument in args
        ]
        values = [torch.from_numpy(np.ascontiguousarray(argument)) for argument in arrays]
        result_tensor = function(*values)
        if name in INT32_FUNCTIONS:
            kind = tl.int32
        else:
            kind = tl.int64 if result_tensor.dtype == torch.int64 else dtype
        result = _handle_of(result_tensor.numpy(), kind)
        is_block = any(argument.type.is_block() for argument in tensors)
        return tl.core.tensor(result, tl.block_type(kind, list(result.data.shape)) if is_block else kind)

    return called


def _number_as_array(value: Any, dtype: Any) -> Array:
    """Return a number in a kernel's text as an array of one: float64 beside arguments of float64, else float32 or
    int32."""
    number = getattr(value, "value", value)  # of a tl.constexpr
    kind = np.float64 if dtype == tl.float64 else np.float32 if isinstance(number, float) else np.int32
    return np.array([number], dtype=kind)
