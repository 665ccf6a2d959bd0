"""Tensors without values: build, watch and trace a model of any size without allocating it.

A fake tensor is torch's FakeTensor: a shape, a dtype, strides and a device, but no values. A real tensor has values. A
FakeWorld is a FakeTensorMode with constant propagation: it also remembers the values of small tensors that are made
from constants alone (`torch.linspace`, `torch.arange`, `torch.tensor`, and arithmetic on these), so that code may read
them; random and large tensors have no values. Models read such values while they are built: many vision models have
drop-path rates `[x.item() for x in torch.linspace(0, rate, depth)]`. All models and inputs built under `fake()` belong
to one FakeWorld, so that they can be used together. A device that this machine does not have is replaced by the CPU
there.

The `dispatch` of a FakeTensorMode is the method that runs each operator on fake tensors. `for_program(f, ...)` calls f,
whose errors are the program's and no defects of Backprint. `plain_leaves` yields what is in nested arguments.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from backprint._torch import pytree
from backprint._torch.distributed import NAMESPACES
from backprint._torch.fake import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    grouped_mm_output,
    lists_of_fakes,
)
from backprint._torch.modes import without_modes
from backprint._torch.operators import HigherOrderOperator, schema_of
from backprint._torch.tensors import neg_view, storage_id, truncated_normals_by
from backprint.errors import CaptureError, DataDependentError, for_program
from backprint.trace import frames
from backprint.trace.custom import call_for_mode
from backprint.values import settings
from backprint.values.tree import copy_values, plain_leaves
from backprint.values.wrappers import is_wrapper_class

MAX_KNOWN_BYTES = 2**20
"""The largest storage, in bytes, of which values are remembered."""

UNKNOWN_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
"""The errors that torch raises where a result depends on values that a fake tensor does not have."""


class _Validity:
    """Whether the remembered values in one storage are still those that the program would have.

    All fake tensors whose remembered values are in that storage share one object: a write of unknown values through one
    of them makes the values of all of them unknown.
    """

    __slots__ = ("__weakref__", "is_valid")

    def __init__(self) -> None:
        self.is_valid = True


@dataclass(frozen=True, slots=True)
class KnownValues:
    """The values of a fake tensor, as a real tensor on the CPU.

    They are the tensor's values while `validity.is_valid`, and while the fake tensor's storage has the id `memory`: an
    assignment to `.data` gives the tensor another storage.
    """

    real: Tensor
    validity: _Validity
    memory: int


KNOWN_VALUES_ATTRIBUTE = "_backprint_known_values"
"""The attribute of a fake tensor that has its KnownValues.

A dictionary with weak references to tensors would not do: torch refuses to swap a tensor that has any
(`module.half()` swaps parameters).
"""


def _known_values_of(tensor: Tensor) -> KnownValues | None:
    """Return the KnownValues of a fake tensor, valid or not, if there are any."""
    known: KnownValues | None = tensor.__dict__.get(KNOWN_VALUES_ATTRIBUTE)
    return known


class FakeWorld:
    """A FakeTensorMode with constant propagation for small tensors.

    It is no subclass: higher-order operators recognise modes by their exact type. So the mode stays an ordinary
    FakeTensorMode, and its `dispatch` is replaced. `plain_dispatch` is the mode's `dispatch` without constant
    propagation. `validity_by_storage` has the _Validity of each storage of real values, by the storage's id.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self.plain_dispatch = dispatch_with_rules(mode)
        self.validity_by_storage: weakref.WeakValueDictionary[int, _Validity] = weakref.WeakValueDictionary()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enter the mode with constant propagation, and restore its `dispatch` afterwards."""
        with replaced_dispatch(self.mode, self.dispatch), lists_of_fakes(self.real_values), _BuildMode(), self.mode:
            yield

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Enter the mode to run a program; refuse, with its line, an operator that reads unknown values."""
        try:
            with self.entered():
                yield
        except UNKNOWN_VALUES as error:
            where = frames.place(frames.source_of_error(error, {}))
            raise DataDependentError(
                f"{error.func} reads values, which a fake capture does not have{where}. Pass small real inputs and "
                "specialize=True to take their values and keep them as guards, or capture without fake=True"
            ) from error

    # ---- Constant propagation

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator on fake tensors and, if the values of all its arguments are known, on these values too.
        Return the fake result, or a number that is read. Where a result depends on unknown values, torch's error is
        raised (UNKNOWN_VALUES)."""
        if any(map(is_wrapper_class, types)):
            return NotImplemented  # a wrapper (a DTensor) then calls operators on the tensor inside
        kwargs = kwargs or {}
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _available_device(kwargs["device"])}
        if isinstance(func, HigherOrderOperator):  # no values are remembered for its results
            return self.plain_dispatch(func, types, args, kwargs)
        is_known = self.follows_from_constants(func, plain_leaves(args, kwargs))
        try:
            result = self.plain_dispatch(func, types, args, kwargs)
        except UNKNOWN_VALUES:
            # `item`, `nonzero`, an index by a mask: the result depends on values. If they are known, the program gets
            # the number, or a fake tensor of the right size.
            if not is_known:
                raise
            real = self.run_on_real_values(func, args, kwargs)
            with self.mode:
                result = pytree.tree_map(fake_like, real)
            self.remember_results(result, real)
            return result
        # `torch.zeros(10**9)` follows from constants too, and must not be computed with values. A call that writes to
        # an argument, and is not computed with values, makes the values of that argument unknown.
        if is_known and _are_small(result):
            self.remember_results(result, self.run_on_real_values(func, args, kwargs))
        elif schema_of(func).is_mutable:
            self.invalidate_written(func, args, kwargs)
        return result

    def follows_from_constants(self, func: Any, leaves: Iterable[Any]) -> bool:
        """Whether an operator's result follows from constants alone: all tensors among its arguments have known values,
        and it draws no random numbers and exchanges nothing with other processes. `leaves` are its arguments. A storage
        among them (`set_`) may have any content."""
        if torch.Tag.nondeterministic_seeded in func.tags or func.namespace in NAMESPACES:
            return False
        return not any(
            isinstance(leaf, torch.UntypedStorage) or (isinstance(leaf, Tensor) and self.real_values(leaf) is None)
            for leaf in leaves
        )

    def real_values(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a tensor if they are known and small, else None: a real tensor itself, or the values
        that constant propagation has for a fake one.

        Values that were remembered for another storage, shape or dtype do not count: an assignment to `.data` changes
        these without an operator.
        """
        if not isinstance(tensor, FakeTensor):
            return tensor if _has_values(tensor) and nbytes(tensor) <= MAX_KNOWN_BYTES else None
        known = _known_values_of(tensor)
        if known is None or not known.validity.is_valid or known.memory != storage_id(tensor.untyped_storage()):
            return None
        real: Tensor = known.real
        return real if (real.shape, real.dtype) == (tensor.shape, tensor.dtype) else None

    def run_on_real_values(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator on the values of its arguments, all of which are known, on the CPU. Uninitialized memory is
        filled with zeros, so that the values do not differ from run to run."""
        args, kwargs = pytree.tree_map(self.real_argument, (args, kwargs))
        with without_modes(), torch.no_grad():
            result = for_program(func, *args, **kwargs)
            if func in UNINITIALIZED:
                result.zero_()
        return result

    def real_argument(self, value: Any) -> Any:
        """Return an argument with its values: a real tensor for a fake one, and the CPU for any device. Anything else
        is returned as it is."""
        if isinstance(value, FakeTensor):
            return self.real_values(value)
        if isinstance(value, torch.device):
            return torch.device("cpu")
        return value

    def content_of(self, tensor: Tensor) -> bytes | None:
        """Return the bytes of a tensor's values, in the order of its elements; None if the values are not known."""
        real = self.real_values(tensor)
        if real is None:
            return None
        with without_modes(), torch.no_grad():
            flat = real.resolve_conj().resolve_neg().contiguous().reshape(-1)
            return bytes(flat.view(torch.uint8).tolist())

    def remember_results(self, result: Any, real: Any) -> None:
        """Remember the values of an operator's results. `result` is the fake result, `real` the one with values."""
        # Not strict: a leaf without a partner has no values to remember.
        for fake, real_leaf in zip(plain_leaves(result), plain_leaves(real), strict=False):
            if isinstance(fake, FakeTensor) and isinstance(real_leaf, Tensor):
                self.remember_values(fake, real_leaf)

    def remember_values(self, fake: Tensor, real: Tensor) -> None:
        """Remember the values of a fake tensor. Real tensors in one storage share their _Validity."""
        key = storage_id(real.untyped_storage())
        validity = self.validity_by_storage.get(key) or _Validity()
        self.validity_by_storage[key] = validity
        fake.__dict__[KNOWN_VALUES_ATTRIBUTE] = KnownValues(real, validity, storage_id(fake.untyped_storage()))

    def invalidate_written(self, func: Any, args: Any, kwargs: Any) -> None:
        """Make the values of each argument that an operator writes to unknown, and with them the values of all tensors
        that share its storage: `mask[0] = x` with an unknown x."""
        # The arguments by name; the last of the schema may be left out, or be in `kwargs`.
        named = dict(zip((argument.name for argument in schema_of(func).arguments), args, strict=False)) | kwargs
        for argument in schema_of(func).arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in plain_leaves(named.get(argument.name)):
                    if isinstance(tensor, FakeTensor) and (known := _known_values_of(tensor)) is not None:
                        known.validity.is_valid = False

    def values_of(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a tensor: its own, whatever their size, or for a fake tensor those of constant
        propagation; None if it has none."""
        return tensor if _has_values(tensor) else self.real_values(tensor)

    def real_values_by_name(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the known values of these tensors by name."""
        reals = {name: self.real_values(tensor) for name, tensor in values.items()}
        return {name: real for name, real in reals.items() if real is not None}

    # ---- Fake copies of other tensors

    def fake_copies(self, values: Mapping[str, Tensor], keep: bool = False) -> dict[str, Tensor]:
        """Return new fake tensors with the same geometry (shape, strides, offset); tensors that share memory share it
        here too.

        The tensors are in `values` by name, and so are the copies. With `keep`, the copies have the known values of the
        tensors. The copy of a meta tensor has the device of the other tensors.
        """
        device = _device_for_meta_tensors(values.values())
        # Without constant propagation, which would take the content of the empty copies for known values.
        with replaced_dispatch(self.mode, self.plain_dispatch), self.mode, torch.no_grad():
            storages: dict[int, Any] = {}
            # Most tensors are alone in their storage. Their copies are made by one call of torch instead of three.
            storage_uses = Counter(storage_id(tensor.untyped_storage()) for tensor in values.values())
            copies = {
                name: _fake_like_alone(tensor)
                if storage_uses[storage_id(tensor.untyped_storage())] == 1 and _fills_its_storage(tensor)
                else _fake_copy(tensor, device, storages)
                for name, tensor in values.items()
            }
        if keep:
            for name, real in _copy_real_tensors(self.real_values_by_name(values)).items():
                self.remember_values(copies[name], real)
        return copies

    def stand_in(self, tensor: Tensor) -> Tensor:
        """Return the fake tensor that replaces a tensor that the program reads from outside its call; a fake tensor
        itself."""
        if isinstance(tensor, FakeTensor):
            return tensor
        if tensor.device.type == "meta":
            return self.fake_copies({"": tensor})[""].requires_grad_(tensor.requires_grad)
        fake: Tensor = self.mode.from_tensor(tensor.detach(), static_shapes=True)
        return fake.detach().requires_grad_(tensor.requires_grad)


def dispatch_with_rules(mode: FakeTensorMode) -> Callable[..., Any]:
    """Return a mode's own `dispatch`, with rules of ours (SHAPE_RULES) for operators whose meta function refuses valid
    arguments."""

    def dispatch(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator on fake tensors, by our rule if it has one and all tensors are fake."""
        rule = SHAPE_RULES.get(func)
        # A real tensor among the arguments is handled by torch: a rule is for fake tensors of this mode.
        if rule is None or any(isinstance(leaf, Tensor) and not mode.is_our_fake(leaf) for leaf in args):
            return FakeTensorMode.dispatch(mode, func, types, args, kwargs or {})
        with mode:
            return rule(*args, **(kwargs or {}))

    return dispatch


def _grouped_mm_rule(left: Tensor, right: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """Return the fake result of `_grouped_mm`: torch 2.13 has a rule for bfloat16 only, but kernels for the three
    dtypes here. `bias` is a parameter of the operator, and does not change the result's shape."""
    kinds = (torch.bfloat16, torch.float16, torch.float32)
    if left.dtype != right.dtype or left.dtype not in kinds:
        raise RuntimeError(f"_grouped_mm takes two matrices of {kinds}, not {left.dtype} and {right.dtype}")
    result: Tensor = grouped_mm_output(left, right, offs, out_dtype)
    return result


SHAPE_RULES: dict[Any, Callable[..., Tensor]] = {torch.ops.aten._grouped_mm.default: _grouped_mm_rule}
"""For operators whose meta function refuses valid arguments: the function that returns their fake result."""


@contextlib.contextmanager
def replaced_dispatch(mode: FakeTensorMode, dispatch: Callable[..., Any]) -> Iterator[None]:
    """Replace a mode's `dispatch`, allow real tensors beside fake ones, and restore both afterwards."""
    # `dispatch` is a method of the class. An attribute of the instance hides it. Such attributes that the mode has
    # already (in nested blocks) are put back at the end.
    own_attributes = {
        name: mode.__dict__[name] for name in ("dispatch", "allow_non_fake_inputs") if name in mode.__dict__
    }
    mode.dispatch, mode.allow_non_fake_inputs = dispatch, True
    try:
        yield
    finally:
        del mode.dispatch
        mode.__dict__.update(own_attributes)


UNINITIALIZED = frozenset(
    getattr(getattr(torch.ops.aten, name), kind)
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
    for kind in getattr(torch.ops.aten, name).overloads()
)
"""Operators that return uninitialized memory."""


def _copy_real_tensors(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy real tensors; copies share memory as the tensors do."""
    with without_modes():
        return copy_values(values)


def inputs_to_keep(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the inputs that a fake capture keeps, by name: copies of small real tensors, fake copies of large ones,
    and fake and meta tensors themselves."""
    small = _copy_real_tensors(
        {name: tensor for name, tensor in values.items() if _has_values(tensor) and nbytes(tensor) <= MAX_KNOWN_BYTES}
    )
    large = {name: tensor for name, tensor in values.items() if _has_values(tensor) and name not in small}
    return {**values, **small, **common_world().fake_copies(large)}


def _has_values(tensor: Tensor) -> bool:
    """Whether a tensor is neither fake nor on the meta device."""
    return not isinstance(tensor, FakeTensor) and tensor.device.type != "meta"


def _fills_its_storage(tensor: Tensor) -> bool:
    """Whether a tensor is contiguous, fills its storage and is not on the meta device: `_fake_like_alone` can copy
    it."""
    plain = tensor.device.type != "meta" and not (tensor.is_conj() or tensor.is_neg()) and tensor.is_contiguous()
    return plain and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size() > 0


def _fake_like_alone(tensor: Tensor) -> Tensor:
    """Return a fake tensor of the same geometry in memory of its own, when called under a FakeTensorMode."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _fake_copy(tensor: Tensor, device_of_meta: torch.device, storages: dict[int, Any]) -> Tensor:
    """Return a fake tensor of the same geometry, when called under a FakeTensorMode. The copy of a meta tensor is on
    `device_of_meta`. `storages` has the fake storage for each storage that was copied before, by its id, and gets new
    ones."""
    device = device_of_meta if tensor.device.type == "meta" else tensor.device
    storage = tensor.untyped_storage()
    if storage_id(storage) not in storages:
        storages[storage_id(storage)] = torch.empty(
            storage.nbytes(), dtype=torch.uint8, device=device
        ).untyped_storage()
    # `set_` on bytes of one fake storage keeps the aliases, offsets and lazy bits of the tensors.
    empty = torch.empty((), dtype=tensor.dtype, device=device)
    copy = empty.set_(storages[storage_id(storage)], tensor.storage_offset(), tensor.shape, tensor.stride())
    copy = copy.conj() if tensor.is_conj() else copy
    return neg_view(copy) if tensor.is_neg() else copy


def _device_for_meta_tensors(tensors: Any) -> torch.device:
    """Return the device for meta tensors: the device of all other tensors, or the CPU if they have several or there are
    none."""
    devices = {tensor.device for tensor in tensors if tensor.device.type != "meta"}
    return devices.pop() if len(devices) == 1 else torch.device("cpu")


def fake_like(value: Any) -> Any:
    """Return an empty tensor of the same shape and strides, which is fake under a FakeTensorMode; anything else
    itself."""
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def nbytes(tensor: Tensor) -> int:
    """Return the number of bytes of a tensor's storage. A tensor that is not strided, or has symbolic sizes, counts as
    too large for its values to be remembered: it has more than `MAX_KNOWN_BYTES`."""
    plain = tensor.layout is torch.strided and all(isinstance(size, int) for size in tensor.shape)
    return tensor.untyped_storage().nbytes() if plain else MAX_KNOWN_BYTES + 1


def _are_small(result: Any) -> bool:
    """Whether all tensors in an operator's result are small enough for their values to be remembered."""
    return all(nbytes(leaf) <= MAX_KNOWN_BYTES for leaf in plain_leaves(result) if isinstance(leaf, Tensor))


# ---- Devices that this machine does not have


ACCELERATORS = ("cuda", "xpu", "mps", "mtia", "hpu", "xla", "privateuseone")
"""Types of devices that a machine may lack."""


class _BuildMode(TorchFunctionMode):
    """Runs calls that name a device that this machine does not have on the CPU, and makes `deepcopy` work on fake
    tensors."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__deepcopy__ and isinstance(args[0], FakeTensor):
            return _deepcopy_fake(*args)
        func, args, kwargs = on_available_devices(func, args, kwargs or {})
        return call_for_mode(self, func, args, kwargs)


def _deepcopy_fake(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """Return a `copy.deepcopy` of a fake tensor; torch's own reads the address of its data. `memo` is that of
    `copy.deepcopy`: the copies so far, by id."""
    if id(tensor) not in memo:
        with torch.no_grad():
            copy = tensor.clone()
        requires_grad = tensor.requires_grad
        memo[id(tensor)] = (
            nn.Parameter(copy, requires_grad)
            if isinstance(tensor, nn.Parameter)
            else copy.requires_grad_(requires_grad)
        )
    copied: Tensor = memo[id(tensor)]
    return copied


def on_available_devices(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Return the call of a torch function (the function, its arguments and its keyword arguments), with the CPU in the
    place of every device that this machine does not have."""
    if func is Tensor.cuda and is_missing_device("cuda"):
        return Tensor.cpu, args[:1], {}
    if func is Tensor.to:  # which takes a device by position too
        args = (args[0], *map(_available_device, args[1:]))
    if "device" in kwargs:
        kwargs = {**kwargs, "device": _available_device(kwargs["device"])}
    return func, args, kwargs


def _available_device(value: Any) -> Any:
    """Return the CPU for a device, or the name of one, that this machine does not have; anything else itself."""
    kind = ""
    if isinstance(value, torch.device):
        kind = value.type
    elif isinstance(value, str):
        kind, _, _ = value.partition(":")  # `cuda` of `cuda:1`
    return torch.device("cpu") if is_missing_device(kind) else value


@functools.cache
def is_missing_device(kind: str) -> bool:
    """Whether this machine does not have this type of device."""
    here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return kind in ACCELERATORS and (here is None or here.type != kind)


# ---- `bp.fake()`


@functools.cache
def common_world() -> FakeWorld:
    """Return the FakeWorld of everything that is built under `fake()`."""
    world = FakeWorld(FakeTensorMode(allow_non_fake_inputs=True))
    world.mode.fake_tensor_converter.set_tensor_memo = _set_no_memo
    world.mode.dispatch = world.dispatch  # permanently, so that writes between two `with` blocks are followed too
    return world


@contextlib.contextmanager
def fake() -> Iterator[None]:
    """Build models and inputs without allocating them: `with bp.fake(): model = Big(config)`.

    Tensors made inside have a shape, a dtype and a device, but no values. Only small tensors that are made from
    constants alone keep their values, so that `.item()` and `.tolist()` work on them. Capture the model with
    `fake=True`.
    """
    with settings.ONE_AT_A_TIME, _untruncated_normals(), common_world().entered():
        try:
            yield
        except UNKNOWN_VALUES as error:
            where = frames.place(frames.source_of_error(error, {}))
            raise DataDependentError(
                f"{error.func} reads values, which tensors built under bp.fake() do not have{where}: only small ones "
                "that are made from constants alone do. Leave that out, or make its tensor before"
            ) from error


@contextlib.contextmanager
def _untruncated_normals() -> Iterator[None]:
    """Initialize fake tensors by `normal_` where a truncated normal is asked for: torch redraws that until all values
    are within bounds, which reads values."""

    def draw(plain: Any, tensor: Tensor, mean: float, std: float, *bounds: Any, **options: Any) -> Tensor:
        if not isinstance(tensor, FakeTensor):
            return plain(tensor, mean, std, *bounds, **options)
        with torch.no_grad():
            return tensor.normal_(mean, std)

    with truncated_normals_by(draw):
        yield


def _set_no_memo(meta: Tensor, fake: Tensor) -> None:
    """Do nothing, in the place of the method with which torch remembers the fake tensor of each meta tensor: that memo
    has weak references, which would prevent `module.half()` from swapping parameters."""


def world_of(tensors: Mapping[str, Tensor]) -> FakeWorld:
    """Return the FakeWorld of these tensors, which are given by name; the one of `bp.fake()` if none of them is fake.
    Refuse fake tensors of several modes, and symbolic sizes."""
    # By the id of a mode, the name of its first tensor, for the message, and the mode.
    modes: dict[int, tuple[str, FakeTensorMode]] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, FakeTensor):
            modes.setdefault(id(tensor.fake_mode), (name, tensor.fake_mode))
    if len(modes) > 1:
        (left, _), (right, _), *_ = modes.values()
        raise CaptureError(
            f"{left!r} and {right!r} are fake tensors of different FakeTensorModes: build both under bp.fake()"
        )
    for name, tensor in tensors.items():
        if any(not isinstance(size, int) for size in (*tensor.shape, *tensor.stride())):
            raise CaptureError(f"{name!r} has symbolic sizes, which fake=True does not support: give it integer sizes")
    for _, mode in modes.values():  # one at most
        if mode is not common_world().mode:
            return FakeWorld(mode)  # around a FakeTensorMode of the user's own
    return common_world()
