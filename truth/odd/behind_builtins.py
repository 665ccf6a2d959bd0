"""Lists and dicts that a program changes and that only a builtin, metadata, a frame or a class leads to."""

import ctypes
import dataclasses
import functools
import inspect
import itertools
import operator
import sys
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from case import Case, attributes, bare, many, randn
from torch import nn


def behind(f: Callable[[Any], Any]) -> Case:
    """A function of a tensor, tried on another."""
    return Case(f, randn(3, 4), others=[randn(3, 4, seed=5)])


def more(items: list[int]) -> int:
    """One longer; its length."""
    items.append(1)
    return len(items)


def _getter() -> Case:
    take = operator.methodcaller("append", 1)
    items = [1]
    box = functools.partial(take, items)

    def f(x: Any) -> Any:
        box()
        return x * len(box.args[0])

    return behind(f)


def _bound_append() -> Case:
    push = [1].append

    def f(x: Any) -> Any:
        push(1)
        return x * len(push.__self__)

    return behind(f)


def _bound_update() -> Case:
    put = {"a": 1}.__setitem__

    def f(x: Any) -> Any:
        put(len(put.__self__), 1)
        return x * len(put.__self__)

    return behind(f)


def _bound_next() -> Case:
    step = iter(range(2, 90)).__next__
    return behind(lambda x: x * step())


def _cycle() -> Case:
    turns = itertools.cycle([[1]])
    return behind(lambda x: x * more(next(turns)))


def _repeated() -> Case:
    same = itertools.repeat([1], 99)
    return behind(lambda x: x * more(next(same)))


def _pointer() -> Case:
    held = ctypes.py_object([1])
    return behind(lambda x: x * more(held.value))


def _compared() -> Case:
    key = functools.cmp_to_key(lambda a, b: more(a) - 3)
    a = key([1])
    return behind(lambda x: x * (2 if a < key(0) else 3))


def _property_closure() -> Case:
    items = [1]

    class Box:
        size = property(lambda self: more(items))

    box = Box()
    return behind(lambda x: x * box.size)


def _setter() -> Case:
    items: list[Any] = [1]

    class Box:
        @property
        def size(self) -> int:
            return len(items)

        @size.setter
        def size(self, value: int) -> None:
            items.append(value)

    box = Box()

    def f(x: Any) -> Any:
        box.size = 1
        return x * box.size

    return behind(f)


def _metaclass() -> Case:
    class Meta(type):
        seen: typing.ClassVar[list] = [1]

    class Kind(metaclass=Meta):
        pass

    return behind(lambda x: x * more(Kind.seen))


def _metaclass_call() -> Case:
    class Meta(type):
        made = 1

        def __call__(cls) -> Any:
            Meta.made += 1
            return super().__call__()

    class Kind(metaclass=Meta):
        pass

    return behind(lambda x: (Kind(), x * Meta.made)[1])


def _annotations() -> Case:
    def g(v: [1]) -> None:  # type: ignore[valid-type]
        return None

    return behind(lambda x: x * more(g.__annotations__["v"]))


def _annotated() -> Case:
    class Kind:
        field: typing.Annotated[int, [1]]

    return behind(lambda x: x * more(Kind.__annotations__["field"].__metadata__[0]))


def _documented() -> Case:
    def g() -> None:
        """One"""

    def f(x: Any) -> Any:
        g.__doc__ += "a"
        return x * len(g.__doc__)

    return behind(f)


def _field_metadata() -> Case:
    @dataclasses.dataclass
    class Kind:
        a: int = dataclasses.field(default=1, metadata={"seen": [1]})

    return behind(lambda x: x * more(dataclasses.fields(Kind)[0].metadata["seen"]))


def _field_default() -> Case:
    items = [1]

    @dataclasses.dataclass
    class Kind:
        a: int = dataclasses.field(default_factory=lambda: more(items))

    return behind(lambda x: x * Kind().a)


def _signature() -> Case:
    def g(v: Any = None) -> None:
        return None

    g.__signature__ = inspect.Signature([inspect.Parameter("v", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=[1])])
    return behind(lambda x: x * more(inspect.signature(g).parameters["v"].default))


def _generator_frame() -> Case:
    def numbers() -> Iterator[int]:
        items = [1]
        while True:
            yield more(items)

    steps = numbers()
    return behind(lambda x: x * next(steps))


def _generator_delegates() -> Case:
    items = [1]

    def inner() -> Iterator[int]:
        while True:
            yield more(items)

    def numbers() -> Iterator[int]:
        yield from inner()

    steps = numbers()
    return behind(lambda x: x * next(steps))


def _traceback() -> Case:
    def fails() -> None:
        items = [1]
        raise ValueError(str(items))

    try:
        fails()
    except ValueError as error:
        kept = error

    def f(x: Any) -> Any:
        frame = kept.__traceback__.tb_next.tb_frame
        return x * more(frame.f_locals["items"])

    return behind(f)


def _callers_frame() -> Case:
    def f(x: Any) -> Any:
        seen = sys._getframe().f_globals.setdefault("ODD_SEEN", [])
        return x * (more(seen) + 1)

    return Case(f, randn(3, 4), reset=lambda: globals().pop("ODD_SEEN", None))


def _slots() -> Case:
    class Base:
        __slots__ = ("items",)

    class Kind(Base):
        __slots__ = ()

    box = Kind()
    box.items = [1]
    take = Base.items.__get__
    return behind(lambda x: x * more(take(box)))


def _shadowed() -> Case:
    class Kind(dict):
        def __init__(self) -> None:
            super().__init__(a=1)
            self.keys = [1]

    box = Kind()
    return behind(lambda x: x * more(box.keys))


def _dict_of_class() -> Case:
    class Kind:
        pass

    Kind.table = types.MappingProxyType({"a": [1]})
    return behind(lambda x: x * more(Kind.table["a"]))


def _subclass_of_list_state() -> Case:
    class Kind(list):
        def append(self, value: Any) -> None:
            super().append(value)
            self.size = getattr(self, "size", 1) + 1

    box = Kind([1])

    def f(x: Any) -> Any:
        box.append(1)
        return x * box.size

    return behind(f)


def _key_of_dict() -> Case:
    class Key:
        n = 1

    table = {Key(): "a"}

    def f(x: Any) -> Any:
        key = next(iter(table))
        key.n += 1
        return x * key.n

    return behind(f)


def _member_of_set() -> Case:
    class Key:
        n = 1

    table = frozenset([Key()])

    def f(x: Any) -> Any:
        key = next(iter(table))
        key.n += 1
        return x * key.n

    return behind(f)


def _weak_referent() -> Case:
    class Box:
        n = 1

    box = Box()
    ref = weakref.ref(box)
    KEPT.append(box)

    def f(x: Any) -> Any:
        ref().n += 1
        return x * ref().n

    return behind(f)


def _weak_proxy() -> Case:
    class Box:
        n = 1

    box = Box()
    proxy = weakref.proxy(box)
    KEPT.append(box)

    def f(x: Any) -> Any:
        proxy.n += 1
        return x * proxy.n

    return behind(f)


KEPT: list[Any] = []


def _subclasses() -> Case:
    class Base:
        pass

    class Kind(Base):
        seen: typing.ClassVar[list] = [1]

    KEPT.append(Kind)
    return behind(lambda x: x * more(Base.__subclasses__()[0].seen))


def _found_by_collector() -> Case:
    class Box:
        def __init__(self) -> None:
            self.items = [1]

    KEPT.append(Box())
    import gc

    def f(x: Any) -> Any:
        (box,) = [o for o in gc.get_referrers(Box) if type(o) is Box]
        return x * more(box.items)

    return behind(f)


def _module_getattr() -> Case:
    made = types.ModuleType("odd_scratch_lazy")
    items = [1]
    made.__getattr__ = lambda name: more(items)  # type: ignore[method-assign]
    return behind(lambda x: x * made.size)


def _cell_of_another() -> Case:
    def make() -> Any:
        items = [1]
        return (lambda: more(items)), (lambda: len(items))

    push, size = make()

    def f(x: Any) -> Any:
        push.__closure__[0].cell_contents.append(1)
        return x * size()

    return behind(f)


def _node_hook() -> Case:
    seen = [1]

    def f(x: Any) -> Any:
        y = x * len(seen)
        if y.requires_grad:
            y.grad_fn.register_hook(lambda *_: seen.append(1))
        return y

    return behind(f)


def _module_dict_key() -> Case:
    net = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})

    def forward(self: Any, x: Any) -> Any:
        first = next(iter(self.net))
        self.net[first] = self.net.pop(first)
        return self.net[next(iter(self.net))](x)

    return Case(bare(lambda s: attributes(s, net=net), forward), randn(3, 4), others=[randn(3, 4, seed=5)])


def _parameter_attribute() -> Case:
    def forward(self: Any, x: Any) -> Any:
        self.layer.weight.seen.append(1)
        return self.layer(x) * len(self.layer.weight.seen)

    def init(self: Any) -> None:
        self.layer = nn.Linear(4, 4)
        self.layer.weight.seen = [1]

    return Case(bare(init, forward), randn(3, 4), others=[randn(3, 4, seed=5)])


def _buffers_attribute() -> Case:
    def forward(self: Any, x: Any) -> Any:
        self.n.info["k"] = self.n.info.get("k", 1) + 1
        return x * self.n * self.n.info["k"]

    def init(self: Any) -> None:
        self.register_buffer("n", torch.ones(4))
        self.n.info = {}

    return Case(bare(init, forward), randn(3, 4), others=[randn(3, 4, seed=5)])


def _group_of_optimizer() -> Case:
    p = nn.Parameter(torch.ones(4))
    opt = torch.optim.SGD([p], lr=1.0)

    def f(x: Any) -> Any:
        opt.param_groups[0]["lr"] *= 0.5
        opt.defaults["lr"] += 1
        return x * opt.param_groups[0]["lr"] * opt.defaults["lr"]

    return behind(f)


many(
    __name__,
    behind_method_caller=_getter,
    behind_bound_append=_bound_append,
    behind_bound_item=_bound_update,
    behind_bound_next=_bound_next,
    behind_cycle=_cycle,
    behind_repeat=_repeated,
    behind_pointer=_pointer,
    behind_comparison_key=_compared,
    behind_property=_property_closure,
    behind_setter=_setter,
    behind_metaclass=_metaclass,
    behind_metaclass_call=_metaclass_call,
    behind_annotation=_annotations,
    behind_annotated=_annotated,
    behind_documentation=_documented,
    behind_field_metadata=_field_metadata,
    behind_field_factory=_field_default,
    behind_signature=_signature,
    behind_generator_frame=_generator_frame,
    behind_generator_delegated=_generator_delegates,
    behind_traceback=_traceback,
    behind_frame_globals=_callers_frame,
    behind_slot_of_base=_slots,
    behind_shadowed_method=_shadowed,
    behind_class_proxy=_dict_of_class,
    behind_list_subclass=_subclass_of_list_state,
    behind_key_of_dict=_key_of_dict,
    behind_member_of_set=_member_of_set,
    behind_weak_reference=_weak_referent,
    behind_weak_proxy=_weak_proxy,
    behind_subclasses=_subclasses,
    behind_collector=_found_by_collector,
    behind_module_getattr=_module_getattr,
    behind_cell=_cell_of_another,
    behind_node_hook=_node_hook,
    behind_module_order=_module_dict_key,
    behind_parameter_attribute=_parameter_attribute,
    behind_buffer_attribute=_buffers_attribute,
    behind_optimizer_group=_group_of_optimizer,
)
