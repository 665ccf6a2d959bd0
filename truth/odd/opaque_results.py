"""Results whose classes decide what of them is seen: registered trees, odd attributes, identity, Python's machinery."""

import collections
import concurrent.futures
import contextlib
import contextvars
import ctypes
import dataclasses
import enum
import functools
import inspect
import io
import queue
import threading
import types
import unittest.mock
import weakref
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from case import Case, attributes, many, module, rand, randn
from torch import nn
from torch.utils import _pytree as pytree

SIDE: dict[int, Any] = {}
PRIVATE: Any = weakref.WeakKeyDictionary()
INTERNED: Any = weakref.WeakValueDictionary()
HERE = contextvars.ContextVar("odd_result", default=None)
DEAD: list[Any] = []


class Batch:
    """A registered tree that leaves a tensor out."""

    def __init__(self, x: Any, mask: Any = None, note: Any = None) -> None:
        self.x, self.mask, self.note = x, mask, note


pytree.register_pytree_node(Batch, lambda b: ([b.x], b.note), lambda v, note: Batch(*v, None, note))


class Whole:
    """A registered tree that has a number from the values in its context."""

    def __init__(self, x: Any, top: Any) -> None:
        self.x, self.top = x, top


pytree.register_pytree_node(Whole, lambda b: ([b.x], b.top), lambda v, top: Whole(v[0], top))


class Turned(list):
    """A registered list whose tree is the other way round."""


pytree.register_pytree_node(Turned, lambda b: (list(reversed(b)), None), lambda v, _: Turned(reversed(v)))


class Liar:
    """Tells another dictionary."""

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x

    @property
    def __dict__(self) -> Any:
        return {"x": 1}


class Elsewhere:
    """Keeps its tensor beside itself."""

    def __init__(self, x: Any) -> None:
        PRIVATE[self] = x

    @property
    def x(self) -> Any:
        """From the table."""
        return PRIVATE[self]


class Awkward:
    """Raises whatever it is asked."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __bool__(self) -> bool:
        raise TypeError("no truth")

    def __len__(self) -> int:
        raise TypeError("no length")

    def __iter__(self) -> Any:
        raise TypeError("no items")

    def __eq__(self, other: Any) -> bool:
        raise TypeError("no equality")

    def __hash__(self) -> int:
        raise TypeError("no hash")

    def __repr__(self) -> str:
        raise TypeError("no text")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("no pickle")

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("no copy")

    def __dir__(self) -> Any:
        raise TypeError("no names")


class Anything:
    """Has every attribute."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __getattr__(self, name: str) -> Any:
        return self


class Final:
    """Cannot be written."""

    __slots__ = ("__weakref__", "x")

    def __init__(self, x: Any) -> None:
        object.__setattr__(self, "x", x)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)


class OneCopy:
    """A copy of it is itself."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class Borg:
    """All of its objects share what they have."""

    state: ClassVar[dict] = {}

    def __init__(self, **values: Any) -> None:
        self.__dict__ = self.state
        self.state.update(values)


class Listed:
    """The class has all of its objects."""

    every: ClassVar[list] = []

    def __init__(self, x: Any) -> None:
        self.x = x
        self.every.append(x)
        self.number = len(self.every)


class Mortal:
    """Tells when it goes."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.told = len(DEAD)

    def __del__(self) -> None:
        DEAD.append(1)


class Single(type):
    """One object for each key."""

    kept: ClassVar[dict] = {}

    def __call__(cls, key: Any, x: Any) -> Any:
        if key not in cls.kept:
            cls.kept[key] = super().__call__(key, x)
        return cls.kept[key]


class Cached(metaclass=Single):
    """Made once."""

    def __init__(self, key: Any, x: Any) -> None:
        self.key, self.x, self.uses = key, x, 0


class Mode(enum.Enum):
    """A member that is written to."""

    FAST = 1
    SLOW = 2


class Defaulted(NamedTuple):
    """A named tuple whose defaults are tensors and numbers."""

    x: Any
    scale: Any = torch.tensor([2.0, 3.0, 4.0, 5.0])
    note: Any = None


@dataclasses.dataclass
class Computed:
    """Fields that are computed, of the class, and for the constructor only."""

    x: Any
    by: dataclasses.InitVar[float] = 2.0
    shared: ClassVar[Any] = None
    scaled: Any = dataclasses.field(init=False, repr=False, compare=False)
    parts: list = dataclasses.field(default_factory=list)

    def __post_init__(self, by: float) -> None:
        self.scaled = self.x * by
        self.parts.append(self.scaled.sum())
        type(self).shared = self.scaled.detach()


class Lens:
    """Every read of an attribute computes."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.reads = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "x":
            object.__setattr__(self, "reads", object.__getattribute__(self, "reads") + 1)
        return object.__getattribute__(self, name)


class Tracked(torch.Tensor):
    """A tensor of an own class."""


class CacheOfLayers:
    """As the caches of generating models: grows with each call, by layer."""

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.seen = 0

    def update(self, key: Any, layer: int) -> Any:
        """The keys of a layer with the new ones."""
        if len(self.keys) <= layer:
            self.keys.append(key)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], key])
        self.seen += key.shape[0] if layer == 0 else 0
        return self.keys[layer]


def _reset() -> None:
    SIDE.clear()
    PRIVATE.clear()
    INTERNED.clear()
    HERE.set(None)
    Borg.state.clear()
    Listed.every.clear()
    Single.kept.clear()
    DEAD.clear()
    Computed.shared = None
    for member in Mode:
        member.__dict__.pop("x", None)


def of(f: Any, *others: Any, **more: Any) -> Case:
    """A function of one tensor, tried on others too; what is global begins anew."""
    _reset()
    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5), -rand(3, 4), *others], reset=_reset, **more)


def set_on(target: Any, **values: Any) -> Any:
    """The target, with attributes."""
    return attributes(target, values)


def _by_id(x: Any) -> Any:
    made = types.SimpleNamespace()
    SIDE[id(made)] = x * 2
    made.x = SIDE[id(made)]
    return made


def _interned(x: Any) -> Any:
    made = INTERNED.get("a")
    if made is None:
        made = INTERNED["a"] = Anything(x * 2)
    return [made.x, len(INTERNED)]


def _cached(x: Any) -> Any:
    made = Cached("a", x.detach() * 2)
    made.uses += 1
    return [made.x * made.uses, made.uses, x * 2]


def _member(x: Any) -> Any:
    Mode.FAST.x = x * 2
    return [Mode.FAST, Mode.FAST.x]


def _in_context(x: Any) -> Any:
    HERE.set(x * 2)
    context = contextvars.copy_context()
    return [context[HERE], context.get(HERE) * 3]


def _future(x: Any) -> Any:
    made: Any = concurrent.futures.Future()
    made.set_result(x * 2)
    return made


def _torch_future(x: Any) -> Any:
    made: Any = torch.futures.Future()
    made.set_result(x * 2)
    return [made.wait(), made.done()]


def _local(x: Any) -> Any:
    made = threading.local()
    made.x = x * 2
    return made


def _queued(x: Any) -> Any:
    made: Any = queue.Queue()
    made.put(x * 2)
    made.put(x.sin())
    return made


def _stack(x: Any) -> Any:
    made = contextlib.ExitStack()
    made.callback(torch.sin, x * 2)
    return [x * 3, made]


def _bound_arguments(x: Any) -> Any:
    return inspect.signature(lambda a, b=2: a).bind(x * 2, b=x.sum())


def _python_module(x: Any) -> Any:
    made = types.ModuleType("odd_made")
    made.x = x * 2
    return made


def _cell(x: Any) -> Any:
    return types.CellType(x * 2)


def _traceback(x: Any) -> Any:
    y = x * 2
    try:
        raise ValueError("kept")
    except ValueError as error:
        return [y, error.with_traceback(None)]


def _saved_file(x: Any) -> Any:
    space = io.BytesIO()
    torch.save(x.detach().tolist(), space)
    return [x * 2, len(space.getvalue()) > 0]


def _of_ctypes(x: Any) -> Any:
    return [x * 2, list((ctypes.c_float * 4)(*x[0].tolist()))]


def _grad_fn(x: Any) -> Any:
    y = (x * 2).sin()
    return [y, type(y.grad_fn).__name__, y.grad_fn.next_functions[0][0].name()]


def _object_array(x: Any) -> Any:
    made = np.empty(2, object)
    made[0], made[1] = x.detach().sum(), x.detach().mean()
    return [x * 2, made]


class Remember(torch.autograd.Function):
    """A function whose context is returned."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """Twice."""
        ctx.top = x.max()
        Remember.last = ctx
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Twice."""
        return grad * 2


def _context_of_function(x: Any) -> Any:
    y = Remember.apply(x)
    top = Remember.last.top
    Remember.last = None
    return [y, top]


def _dataset(x: Any) -> Any:
    return torch.utils.data.TensorDataset(x * 2, x.sum(1))


def _batches(x: Any) -> Any:
    data = torch.utils.data.TensorDataset(x.detach() * 2)
    return [x * 2, *torch.utils.data.DataLoader(data, batch_size=2)]


def _leaf_made(x: Any) -> Any:
    leaf = (x.detach() * 2).requires_grad_()
    return [leaf, (leaf * 3).sum(), x * 2]


def _generates(self: Any, x: Any, past: Any = None) -> Any:
    past = past or CacheOfLayers()
    h = x
    for layer in range(2):
        keys = past.update(h @ self.w, layer)
        h = torch.softmax(h @ keys.t(), -1) @ keys
    return {"logits": h, "past": past}


def _twice_generated(self: Any, x: Any) -> Any:
    first = _generates(self, x)
    return _generates(self, x[:1] * 2, first["past"])


def _given_past() -> Case:
    def past(seed: int, n: int) -> Any:
        made = CacheOfLayers()
        made.keys = [randn(n, 4, seed=seed), randn(n, 4, seed=seed + 1)]
        made.seen = n
        return made

    net = module(None, _generates)
    others = [(randn(1, 4, seed=5), past(20, 2)), (randn(1, 4), past(20, 5))]
    return Case(net, (randn(1, 4), past(10, 2)), others=others, gradients=False, variants=False)


many(
    __name__,
    opaque_tree_leaves_out=lambda: of(lambda x: Batch(x * 2, x.sign(), "a")),
    opaque_tree_context_value=lambda: of(lambda x: Whole(x * 2, int((x > 0).sum()))),
    opaque_tree_context_tensor=lambda: of(lambda x: Whole(x * 2, x.sum())),
    opaque_tree_turned=lambda: of(lambda x: Turned([x * 2, x.sum(), x.sin()])),
    opaque_tree_in_object=lambda: of(lambda x: types.SimpleNamespace(b=Batch(x, x * 3, x.mean()))),
    opaque_mock=lambda: of(lambda x: unittest.mock.Mock(x=x * 2)),
    opaque_liar=lambda: of(lambda x: [x * 2, Liar(x)]),
    opaque_elsewhere=lambda: of(lambda x: (lambda o: [o.x, o])(Elsewhere(x * 2))),
    opaque_awkward=lambda: of(lambda x: Awkward(x * 2)),
    opaque_awkward_beside=lambda: of(lambda x: {"a": x.sin(), "b": Awkward([x * 2])}),
    opaque_anything=lambda: of(lambda x: Anything(x * 2)),
    opaque_final=lambda: of(lambda x: Final(x * 2)),
    opaque_one_copy=lambda: of(lambda x: OneCopy(x * 2)),
    opaque_borg=lambda: of(lambda x: Borg(x=x * 2)),
    opaque_borg_twice=lambda: of(lambda x: [Borg(x=x * 2), Borg(y=x.sin())]),
    opaque_listed=lambda: of(lambda x: Listed(x * 2)),
    opaque_listed_number=lambda: of(lambda x: x * Listed(x.detach()).number),
    opaque_mortal=lambda: of(lambda x: (lambda o: o.x * (o.told + 1))(Mortal(x * 2))),
    opaque_cached_object=lambda: of(_cached),
    opaque_interned=lambda: of(_interned),
    opaque_member_written=lambda: of(_member, gradients=False),
    opaque_named_defaults=lambda: of(lambda x: Defaulted(x * 2)),
    opaque_named_replaced=lambda: of(lambda x: Defaulted(x)._replace(note=x.sum(), scale=x[0])),
    opaque_computed_fields=lambda: of(lambda x: Computed(x * 2, by=3.0)),
    opaque_lens=lambda: of(lambda x: Lens(x * 2)),
    opaque_by_id=lambda: of(_by_id),
    opaque_in_context=lambda: of(_in_context),
    opaque_future=lambda: of(_future),
    opaque_torch_future=lambda: of(_torch_future),
    opaque_thread_local=lambda: of(_local),
    opaque_queue=lambda: of(_queued),
    opaque_exit_stack=lambda: of(_stack),
    opaque_bound_arguments=lambda: of(_bound_arguments),
    opaque_python_module=lambda: of(_python_module),
    opaque_cell=lambda: of(_cell),
    opaque_exception_without_trace=lambda: of(_traceback),
    opaque_saved_bytes=lambda: of(_saved_file),
    opaque_ctypes_values=lambda: of(_of_ctypes),
    opaque_names_of_nodes=lambda: of(_grad_fn),
    opaque_array_of_objects=lambda: of(_object_array),
    opaque_function_context=lambda: of(_context_of_function),
    opaque_dataset=lambda: of(_dataset),
    opaque_batches=lambda: of(_batches),
    opaque_leaf_made=lambda: of(_leaf_made, gradients=False),
    opaque_own_tensor_class=lambda: of(lambda x: [x * 2, (x * 3).as_subclass(Tracked)]),
    opaque_cached_partial=lambda: of(lambda x: functools.partial(Defaulted, x * 2, note=x.mean())),
    opaque_quantized=lambda: of(lambda x: [x * 2, torch.quantize_per_tensor(x.detach(), 0.1, 0, torch.qint8)]),
    opaque_compressed=lambda: of(lambda x: [x * 2, x.detach().relu().to_sparse_csr()]),
    opaque_parameter_dict=lambda: of(
        lambda x: [x * 2, nn.ParameterDict({"a": nn.Parameter(x.detach() * 3)})], gradients=False
    ),
    opaque_meta=lambda: of(lambda x: [x * 2, torch.empty_like(x, device="meta")]),
    opaque_optimizer=lambda: of(
        lambda x: [x * 2, torch.optim.SGD([nn.Parameter(x.detach() * 2)], lr=0.1)], gradients=False
    ),
    opaque_chain_of_maps=lambda: of(lambda x: collections.ChainMap({"a": x}, collections.UserDict(b=x * 2))),
    opaque_cache_of_layers=lambda: Case(module(None, _generates), randn(3, 4), others=[randn(3, 4, seed=5)]),
    opaque_cache_generated_twice=lambda: Case(
        module(None, _twice_generated), randn(3, 4), others=[randn(3, 4, seed=5)]
    ),
    opaque_cache_given=lambda: _given_past(),
)
