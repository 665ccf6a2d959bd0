"""A deep picture of everything a program can reach, and of the process around it: tensors by name, and what changed."""

import array
import atexit
import collections
import contextvars
import decimal
import enum
import functools
import gc
import hashlib
import inspect
import io
import itertools
import locale
import logging
import os
import queue
import random
import signal
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

LIMIT = 30_000  # objects in one picture
PRIMITIVES = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size, torch.layout)
OWN = ("odd", "case", "__main__")  # modules whose functions and classes are looked into
REGISTER = ("put", "many")  # functions of `case` that keep all programs: a method of a queue is named so too
SCRATCH = "odd_scratch"  # how the names of modules begin that programs write, and import when they run
# what these keep is torch's own
QUIET = ("torch._dynamo", "torch.amp.autocast", "torch.autograd.grad_mode", "torch._ops")
LAZY = (  # what `functools` keeps for itself, which no result depends on
    "dispatch_cache",
    "cache_token",
)


Roots = list[tuple[str, Any]]


def signature_names(fn: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Roots:
    """The arguments of a call with the names that the signature gives them; `xs.0` of `*xs`."""
    try:
        target = fn.forward if isinstance(fn, nn.Module) else fn
        signature = inspect.signature(target)
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        return [*((f"args.{i}", a) for i, a in enumerate(args)), *kwargs.items()]
    named: Roots = []
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named += [(f"{name}.{i}", v) for i, v in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named += value.items()
        else:
            named.append((name, value))
    return named


def join(path: str, key: Any) -> str:
    """The path of a part."""
    return f"{path}.{key}" if path else str(key)


def parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of one object with their paths; none where it has none worth looking into."""
    if isinstance(value, nn.Module):
        for key, part in value.__dict__.items():
            if key in ("_parameters", "_buffers", "_modules"):
                yield join(path, f"<order of {key}>"), repr([k for k, _ in part.items()])
                yield from ((join(path, k), v) for k, v in part.items())
            else:
                yield join(path, key), part
        yield from class_parts(path, type(value))
    elif isinstance(value, Tensor):
        if value.is_leaf and value.grad is not None:
            yield join(path, "grad"), value.grad
        own = getattr(value, "__dict__", {}).items()
        yield from ((join(path, k), v) for k, v in own if not k.startswith("_dynamo"))  # torch's own marks
        for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if getattr(value, hooks, None):
                yield join(path, hooks), dict(getattr(value, hooks))
    elif isinstance(value, (dict, types.MappingProxyType)):
        for i, (key, part) in enumerate(list(value.items())):
            plain = isinstance(key, (str, int, bool, float, tuple, type(None)))
            yield join(path, key if plain else i), part
            if not plain:
                yield join(path, f"<key {i}>"), key
        yield from attribute_parts(path, value)
    elif isinstance(value, (list, tuple, collections.deque, set, frozenset)):
        yield from ((join(path, i), part) for i, part in enumerate(value))
        yield from attribute_parts(path, value)
    elif isinstance(value, types.GeneratorType):
        if value.gi_frame is not None:
            yield from ((join(path, k), v) for k, v in list(value.gi_frame.f_locals.items()))
    elif is_iterator(value):
        yield from ((join(path, f"<{i}>"), part) for i, part in enumerate(left_of(value)))
    elif isinstance(value, contextvars.ContextVar):
        yield join(path, "<value>"), value.get(None)
    elif isinstance(value, functools._lru_cache_wrapper):
        yield path, value.__wrapped__
    elif isinstance(value, logging.Logger):
        yield join(path, "handlers"), value.handlers
        yield join(path, "filters"), value.filters
        yield join(path, "level"), (value.level, value.disabled, value.propagate)
    elif isinstance(value, types.ModuleType) and value.__name__.startswith(SCRATCH):
        yield from ((join(path, k), v) for k, v in list(vars(value).items()) if not k.startswith("__"))
    elif isinstance(value, functools.partial):
        yield path, value.func
        yield from ((join(path, f"args.{i}"), part) for i, part in enumerate(value.args))
        yield from ((join(path, k), part) for k, part in value.keywords.items())
    elif isinstance(value, types.MethodType):
        yield path, value.__self__
        yield path, value.__func__
    elif isinstance(value, types.FunctionType):
        yield from function_parts(path, value)
    elif isinstance(value, weakref.ref):
        yield path, value()
    elif isinstance(value, type):
        yield from class_parts(path, value)
    elif isinstance(value, (property, staticmethod, classmethod)):
        inner = value.fget if isinstance(value, property) else value.__func__
        yield path, inner
    elif isinstance(value, PurePath) or type(value).__module__.startswith(QUIET):
        return
    elif not isinstance(value, (types.ModuleType, enum.Enum, torch.Generator, random.Random, np.random.Generator)):
        yield from attribute_parts(path, value)
        if type(value).__module__.startswith(OWN):
            yield from class_parts(path, type(value))


def attribute_parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What an object keeps in its slots and in its dictionary."""
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for key in (slots,) if isinstance(slots, str) else slots:
            name = f"_{cls.__name__.lstrip('_')}{key}" if key.startswith("__") and not key.endswith("__") else key
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield join(path, name), getattr(value, name)
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield from ((join(path, k), v) for k, v in list(attributes.items()))


def is_iterator(value: Any) -> bool:
    """Whether an object is one of Python's own iterators; generators and files are none of these."""
    kind = type(value)
    return kind.__module__ in ("builtins", "itertools", "collections", "_collections") and hasattr(kind, "__next__")


def left_of(value: Any) -> tuple[Any, ...]:
    """What one of Python's own iterators still has, and where it stands, without a step of it."""
    if getattr(value, "__length_hint__", lambda: None)() == 0:
        return ()
    try:
        reduced = value.__reduce__()
    except TypeError:
        return ()
    return () if isinstance(reduced, str) else (reduced[1], *reduced[2:])


def class_parts(path: str, cls: type) -> Iterator[tuple[str, Any]]:
    """What the classes of a program's own keep in themselves."""
    for base in cls.__mro__:
        if base.__module__.startswith(OWN):
            for key, part in base.__dict__.items():
                if not (key.startswith("__") and key.endswith("__")) or isinstance(part, types.FunctionType):
                    yield (join(path, key) if not isinstance(part, types.FunctionType) else path), part


def function_parts(path: str, fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function closes over, its defaults, its attributes and the globals that its code names."""
    if not fn.__module__ or not fn.__module__.startswith(OWN):
        return
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        if name in LAZY:
            continue
        try:
            yield join(path, name), cell.cell_contents
        except ValueError:
            continue
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    defaults = fn.__defaults__ or ()
    yield from ((join(path, n), v) for n, v in zip(names[len(names) - len(defaults) :], defaults, strict=True))
    yield from ((join(path, n), v) for n, v in (fn.__kwdefaults__ or {}).items())
    yield from ((join(path, n), v) for n, v in fn.__dict__.items())
    codes = [fn.__code__]
    while codes:
        code = codes.pop()
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        for name in code.co_names:
            value = fn.__globals__.get(name)
            if name in fn.__globals__ and getattr(value, "__name__", "") not in REGISTER:
                yield name, value


def walk(roots: Roots) -> Iterator[tuple[str, Any]]:
    """Every object below the roots with its path; tensors under each path they have, other objects once."""
    seen: set[int] = set()
    keep: list[Any] = []  # so that no id is given twice
    queue: collections.deque[tuple[str, Any]] = collections.deque(roots)
    while queue and len(keep) < LIMIT:
        path, value = queue.popleft()
        keep.append(value)
        yield path, value
        if isinstance(value, PRIMITIVES) or id(value) in seen:
            continue
        seen.add(id(value))
        queue.extend(parts(path, value))


def roots_of(fn: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Roots:
    """Where a walk begins: what is called, under no name, and its arguments under the signature's."""
    return [*signature_names(fn, args, kwargs), ("", fn)]


def tensors(roots: Roots) -> dict[str, Tensor]:
    """Every tensor that can be reached, by path; where two have one path, each has a name that nobody else gives it."""
    found: dict[str, list[Tensor]] = {}
    for path, value in walk(roots):
        if isinstance(value, Tensor):
            here = found.setdefault(path, [])
            if not any(value is other for other in here):
                here.append(value)
    named: dict[str, Tensor] = {}
    for path, here in found.items():
        named.update({path if len(here) == 1 else f"{path} ({i})": t for i, t in enumerate(here)})
    return named


def content(tensor: Tensor) -> str:
    """A digest of a tensor's values."""
    try:
        with torch.no_grad():
            plain = tensor.detach()
            if plain.layout is not torch.strided:
                plain = plain.to_dense()
            if plain.is_quantized:
                plain = plain.int_repr()
            flat = plain.resolve_conj().resolve_neg().cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
            return hashlib.sha1(flat.view(torch.uint8).numpy().tobytes()).hexdigest()[:12] if flat.numel() else "empty"
    except Exception as error:
        return f"unreadable {type(error).__name__}"


def digest(value: Any) -> str:
    """One object in a line, without its parts; what compares equal is as it was."""
    if isinstance(value, nn.parameter.UninitializedTensorMixin):
        return f"{type(value).__name__} {id(value)}"
    if isinstance(value, Tensor):
        kind = type(value).__name__
        place = (tuple(value.shape), value.dtype, value.requires_grad, value.is_leaf, content(value))
        try:
            place += (value.stride(), value.data_ptr() if value.layout is torch.strided else 0)
        except Exception as error:
            place += (type(error).__name__,)
        return f"{kind} {id(value)} {place}"
    if isinstance(value, float) or value is None or isinstance(value, PRIMITIVES):
        return repr(value)
    if isinstance(value, torch.Generator):
        return f"Generator {content(value.get_state())}"
    if isinstance(value, np.random.Generator):
        return f"numpy Generator {value.bit_generator.state}"
    if isinstance(value, np.random.RandomState):
        return f"RandomState {hash(str(value.get_state()))}"
    if isinstance(value, random.Random):
        return f"Random {hash(value.getstate())}"
    if isinstance(value, np.ndarray):
        plain = value.view(np.ndarray)  # a masked array's own `tobytes` sets its fill value
        return f"ndarray {value.shape} {value.dtype} {hashlib.sha1(plain.tobytes()).hexdigest()[:12]}"
    if isinstance(value, types.GeneratorType):
        return f"generator at {value.gi_frame.f_lasti if value.gi_frame else 'end'}"
    if isinstance(value, (itertools.count, itertools.repeat, range)):
        return repr(value)
    if is_iterator(value):
        return f"{type(value).__name__} {getattr(value, '__length_hint__', int)()}"
    if isinstance(value, (dict, types.MappingProxyType)):
        order = [key if isinstance(key, (str, int, float, type(None))) else type(key).__name__ for key in value]
        return f"{type(value).__name__} of {len(value)} {hash(str(order))}"
    if isinstance(value, collections.deque):
        return f"deque of {len(value)}, at most {value.maxlen}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, (bytearray, memoryview, array.array)):
        released = isinstance(value, memoryview) and not _alive(value)
        return f"{type(value).__name__} {id(value)} {'released' if released else bytes(value)!r}"
    if isinstance(value, queue.SimpleQueue):
        return f"SimpleQueue {id(value)} of {value.qsize()}"
    if isinstance(value, io.IOBase):
        return f"{type(value).__name__} {id(value)} {_place(value)}"
    if isinstance(value, functools._lru_cache_wrapper):
        info = value.cache_info()  # what it has; the counts of hits and misses are statistics, which stay as they run
        return f"lru_cache {id(value)} {info.currsize} of {info.maxsize}"
    if isinstance(value, types.FunctionType):
        return f"function {id(value)} {hash(value.__code__)}"
    if isinstance(value, PurePath):
        return repr(value)
    if isinstance(value, decimal.Context):
        return f"decimal {id(value)} {_arithmetic(value)}"
    return f"{type(value).__module__}.{type(value).__qualname__}" + ("" if _fleeting(value) else f" {id(value)}")


def _alive(view: memoryview) -> bool:
    try:
        return view.nbytes >= 0
    except ValueError:
        return False


def _arithmetic(context: decimal.Context) -> str:
    """How decimals are computed; not the flags, which every division sets."""
    return f"{context.prec} {context.rounding} {context.Emin} {context.Emax} {sorted(map(str, context.traps.items()))}"


def _place(file: Any) -> str:
    """Where a file stands, and what one in memory has."""
    if file.closed:
        return "closed"
    try:
        return f"at {file.tell()} {file.getvalue() if isinstance(file, (io.StringIO, io.BytesIO)) else file.name!r}"
    except (OSError, AttributeError) as error:
        return type(error).__name__


def _fleeting(value: Any) -> bool:
    """Whether an object is made anew each time one asks for it, so that its identity says nothing."""
    return isinstance(value, (types.MethodType, weakref.ref, types.MappingProxyType, types.BuiltinFunctionType))


class Picture:
    """Everything below some roots and in the process, as it is now."""

    def __init__(self, roots: Roots) -> None:
        self.imported = sorted(name for name in list(sys.modules) if name.startswith(SCRATCH))
        found = list(walk([*roots, *((f"<{name}>", sys.modules[name]) for name in self.imported)]))
        self.keep = found
        self.lines: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        for path, value in found:
            self.lines.setdefault(path, digest(value))
            if isinstance(value, Tensor):
                try:
                    self.versions.setdefault(path, value._version)
                except Exception:
                    self.versions.setdefault(path, -1)
        self.lines.update({f"process: {key}": text for key, text in surroundings().items()})

    def changes(self, later: "Picture") -> list[str]:
        """What is not as it was in a later picture, a line each."""
        lines = []
        late = tuple(f"<{name}>" for name in later.imported if name not in self.imported)
        for path in sorted({*self.lines, *later.lines}):
            before, after = self.lines.get(path), later.lines.get(path)
            if before != after and not path.startswith(late):  # what an import brings was nowhere before
                lines.append(f"{path or 'the callable'}: {_short(before)} -> {_short(after)}")
        return lines

    def version_changes(self, later: "Picture") -> list[str]:
        """Tensors whose values are as they were, but whose version counter has moved."""
        moved = [p for p, v in self.versions.items() if later.versions.get(p, v) != v]
        return [f"{p}: version {self.versions[p]} -> {later.versions[p]}" for p in moved]


def _short(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) < 130 else text[:60] + "…" + text[-60:]


MODULE_HOOKS = [name for name in vars(nn.modules.module) if name.startswith("_global_") and name.endswith("_hooks")]
OPTIMIZERS = sys.modules[torch.optim.Optimizer.__module__]
OPTIMIZER_HOOKS = [name for name in vars(OPTIMIZERS) if name.startswith("_global_optimizer_")]


def _own_modules() -> list[tuple[str, Any]]:
    return [(name, module) for name, module in list(sys.modules.items()) if name.startswith(OWN)]


def _named(value: Any) -> str:
    """A function by its name and identity, anything else by its text."""
    return f"{getattr(value, '__qualname__', '')} {id(value)}" if callable(value) else repr(value)


def surroundings() -> dict[str, str]:
    """The state of the process that a capture has to leave alone."""
    state = dict(
        torch_rng=content(torch.get_rng_state()),
        cuda_rng=content(torch.cuda.get_rng_state()) if torch.cuda.is_initialized() else "",
        numpy_rng=hashlib.sha1(str(np.random.get_state()).encode()).hexdigest(),
        python_rng=hashlib.sha1(str(random.getstate()).encode()).hexdigest(),
        default_dtype=torch.get_default_dtype(),
        default_device=torch.get_default_device(),
        grad_mode=torch.is_grad_enabled(),
        inference_mode=torch.is_inference_mode_enabled(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        deterministic_warn=torch.is_deterministic_algorithms_warn_only_enabled(),
        autocast=(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()),
        cuda_autocast=(torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")),
        threads=torch.get_num_threads(),
        anomaly=torch.is_anomaly_enabled(),
        precision=torch.get_float32_matmul_precision(),
        mkldnn=torch.backends.mkldnn.enabled,
        flush_denormal=bool(torch.tensor([1e-40], dtype=torch.float32, device="cpu").mul(1.0).item() == 0.0),
        fill_uninitialised=torch.utils.deterministic.fill_uninitialized_memory,
        function_modes=torch._C._len_torch_function_stack(),
        dispatch_modes=torch._C._len_torch_dispatch_stack(),
        saved_hooks=torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
        warnings=len(warnings.filters),
        gc=gc.isenabled(),
        folder=os.getcwd(),
        trace=(sys.gettrace(), sys.getprofile()),
        output=(id(sys.stdout), id(sys.stderr)),
        excepthook=id(sys.excepthook),
        recursion=sys.getrecursionlimit(),
        decimal=_arithmetic(decimal.getcontext()),
        numpy_errors=np.geterr(),
        numpy_print=hash(str(np.get_printoptions())),
        locale=locale.setlocale(locale.LC_ALL),
        path=hash(str(sys.path)),
        signals=[(s, _named(signal.getsignal(s))) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)],
        at_exit=atexit._ncallbacks(),
        gc_callbacks=[_named(callback) for callback in gc.callbacks],
        gc_thresholds=gc.get_threshold(),
        display=id(sys.displayhook),
        integer_digits=sys.get_int_max_str_digits(),
        switch_interval=sys.getswitchinterval(),
        warned=sum(len({*getattr(m, "__warningregistry__", ())} - {"version"}) for n, m in _own_modules()),
        warns_always=torch.is_warn_always_enabled(),
        logging=(logging.root.level, len(logging.root.handlers), logging.root.manager.disable),
        module_hooks=[[*map(_named, getattr(nn.modules.module, name).values())] for name in MODULE_HOOKS],
        optimizer_hooks=[len(getattr(OPTIMIZERS, name)) for name in OPTIMIZER_HOOKS],
        parametrize=(torch.nn.utils.parametrize._cache_enabled, len(torch.nn.utils.parametrize._cache)),
        validates=torch.distributions.Distribution._validate_args,
        attention=(
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.mem_efficient_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
        ),
        conversion=(
            torch.__future__.get_overwrite_module_params_on_conversion(),
            torch.__future__.get_swap_module_params_on_conversion(),
        ),
        multithreading=torch.autograd.is_multithreading_enabled(),
        view_replay=torch._C._is_view_replay_enabled(),
        context=sorted((v.name, _named(v.get(None))) for v in contextvars.copy_context() if v.name.startswith("odd")),
    )
    return {key: str(value) for key, value in state.items()}
