"""Functions and classes that are alike by name or code and are not the same: passed for arguments, and exchanged."""

import functools
import operator
import types
from typing import Any

import torch
from case import Case, attributes, bare, many, module, rand, randn
from torch import nn


def swapped(f: Any, make: Any, *others: Any, **more: Any) -> Case:
    """A function of a tensor and of something else, which other calls exchange."""
    return Case(f, (randn(3), make()), others=[(randn(3), other()) for other in others], variants=False, **more)


def called(make: Any, *others: Any) -> Case:
    """Something that is called with a tensor."""
    return swapped(lambda x, k: k(x), make, *others)


def made(make: Any, *others: Any) -> Case:
    """A class of which an object is made."""
    return swapped(lambda x, k: k(2).scale(x), make, *others)


def in_globals(text: str, **names: Any) -> Any:
    """A lambda whose globals are its own."""
    return eval(text, dict(torch=torch, __name__="odd.callables", **names))


def executed(text: str, name: str = "f", **names: Any) -> Any:
    """What a piece of source defines."""
    space = dict(torch=torch, __name__="odd.callables", **names)
    exec(text, space)
    return space[name]


def closing(n: Any) -> Any:
    """A function with a cell."""

    def f(x):
        return x * n

    return f


def closing_twice(n: Any) -> Any:
    """The cell is two levels down."""

    def f(x):
        def g(v):
            return v * n

        return g(x)

    return f


def closing_over_function(g: Any) -> Any:
    """The cell has a function."""
    return lambda x: g(x) + 1


def defaulting(n: Any) -> Any:
    """A default argument."""

    def f(x, by=n):
        return x * by

    return f


def defaulting_keyword(n: Any) -> Any:
    """A default of a keyword."""

    def f(x, *, by=n):
        return x * by

    return f


def attributed(n: Any) -> Any:
    """A function's attribute."""

    def f(x):
        return x * f.by

    f.by = n
    return f


def labelled(n: Any) -> Any:
    """An attribute that the caller reads."""

    def f(x):
        return x * 2

    f.by = n
    return f


def decorated(n: Any) -> Any:
    """Wrapped, and named as what it wraps."""

    def scaled(g):
        @functools.wraps(g)
        def wrapper(x):
            return g(x) * n

        return wrapper

    @scaled
    def f(x):
        return x.sin()

    return f


def dispatched(n: Any) -> Any:
    """A function that is chosen by a type."""

    @functools.singledispatch
    def f(x):
        return x * 2

    if n != 2:

        @f.register
        def _(x: torch.Tensor) -> Any:
            return x * n

    return f


def cached(n: Any) -> Any:
    """A function that remembers numbers."""

    @functools.lru_cache
    def by(size):
        return size * n

    return lambda x: x * by(x.shape[0])


def documented(n: Any) -> Any:
    """A function that reads its own text."""

    def f(x):
        return x * len(f.__doc__)

    f.__doc__ = "a" * n
    return f


def named(n: Any) -> Any:
    """A function that reads its own name."""

    def f(x):
        return x * len(f.__name__)

    f.__name__ = "f" * n
    return f


def annotated(n: Any) -> Any:
    """What the annotations are is read."""

    def f(x):
        return x * f.__annotations__["by"]

    f.__annotations__ = {"by": n}
    return f


def varying(n: int) -> Any:
    """The same but for a constant in the code."""
    return executed(f"def f(x):\n    return x * {n}")


class Scaler:
    """Scales, by methods of several kinds."""

    by = 2

    def __init__(self, n: Any) -> None:
        self.n = n

    def scale(self, x: Any) -> Any:
        """By what it has."""
        return x * self.n

    def __call__(self, x: Any) -> Any:
        return x * self.n

    @classmethod
    def shared(cls, x: Any) -> Any:
        """By what the class has."""
        return x * cls.by

    @staticmethod
    def fixed(x: Any) -> Any:
        """By nothing of its own."""
        return x * 7


class SlottedScaler:
    """Without a dictionary."""

    __slots__ = ("n",)

    def __init__(self, n: Any) -> None:
        self.n = n

    def __call__(self, x: Any) -> Any:
        return x * self.n


class EqualScaler(Scaler):
    """All of them are equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualScaler)

    def __hash__(self) -> int:
        return 1


def class_of(by: Any, **more: Any) -> type:
    """A class of one name, with a method that closes over a number."""

    class Made:
        def __init__(self, n):
            self.n = n

        def scale(self, x):
            return x * self.n * by

    for key, value in more.items():
        setattr(Made, key, value)
    return Made


def with_base(by: Any) -> type:
    """A class whose base is another."""

    class Base:
        factor = by

        def __init__(self, n):
            self.n = n

        def scale(self, x):
            return x * self.n * self.factor

    class Made(Base):
        pass

    return Made


def with_bases(first: bool) -> type:
    """A class whose bases stand in another order."""

    class A:
        def __init__(self, n):
            self.n = n

        def scale(self, x):
            return x * self.n * 5

    class B:
        def __init__(self, n):
            self.n = n

        def scale(self, x):
            return x * self.n * 7

    class C(*((A, B) if first else (B, A))):
        pass

    return C


def with_meta(by: Any) -> type:
    """A class whose metaclass makes it another."""

    class Meta(type):
        @property
        def factor(cls):
            return by

    class Made(metaclass=Meta):
        def __init__(self, n):
            self.n = n

        def scale(self, x):
            return x * self.n * type(self).factor

    return Made


def with_property(by: Any) -> type:
    """A property with another body."""

    class Made:
        def __init__(self, n):
            self.n = n

        @property
        def factor(self):
            return self.n * by

        def scale(self, x):
            return x * self.factor

    return Made


def with_getattr(by: Any) -> type:
    """Attributes that are not there."""

    class Made:
        def __init__(self, n):
            self.n = n

        def __getattr__(self, name):
            return by

        def scale(self, x):
            return x * self.factor

    return Made


def with_descriptor(by: Any) -> type:
    """A descriptor with a state."""

    class Number:
        def __init__(self, n):
            self.n = n

        def __get__(self, instance, owner=None):
            return self.n

    class Made:
        factor = Number(by)

        def __init__(self, n):
            self.n = n

        def scale(self, x):
            return x * self.factor

    return Made


def with_static(by: Any) -> type:
    """A static method with another body."""

    class Made:
        def __init__(self, n):
            self.n = n

        @staticmethod
        def factor():
            return by

        def scale(self, x):
            return x * self.factor()

    return Made


def with_operator(by: Any) -> type:
    """Arithmetic of its own."""

    class Made:
        def __init__(self, n):
            self.n = n

        def __rmul__(self, x):
            return x * by

        def __mul__(self, x):
            return x * by

        def scale(self, x):
            return self * x

    return Made


def layer(by: Any) -> type:
    """A module class of one name."""

    class Layer(nn.Module):
        def forward(self, x):
            return x * by

    return Layer


def inheriting(by: Any) -> type:
    """A module class whose parent has another forward."""

    class Parent(nn.Module):
        def forward(self, x):
            return x * by

    class Layer(Parent):
        pass

    return Layer


def function_of(by: Any) -> Any:
    """A custom autograd Function of one name."""

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * by

    return Scale


def patched(n: Any) -> Any:
    """A method that is replaced on the object."""
    scaler = Scaler(2)
    if n != 2:
        scaler.scale = lambda x: x * n
    return scaler


def hooked(n: Any) -> Any:
    """A module with a hook."""
    net = nn.ReLU()
    net.register_forward_hook(lambda m, i, o: o * n)
    return net


def with_weight(n: Any) -> Any:
    """A module with a parameter."""
    net = nn.Linear(3, 3)
    nn.init.constant_(net.weight, n)
    nn.init.zeros_(net.bias)
    return net


def partly(n: Any) -> Any:
    """A partial of a lambda."""
    return functools.partial(lambda k, x: x * k, n)


METHOD = Scaler(2)
TABLE = {"two": lambda x: x * 2, "three": lambda x: x * 3}


def three(make: Any) -> tuple:
    """The same, twice, and two others."""
    return lambda: make(2), lambda: make(3), lambda: make(2), lambda: make(2.0)


many(
    __name__,
    callee_global_number=lambda: called(
        lambda: in_globals("lambda x: x * K", K=2),
        lambda: in_globals("lambda x: x * K", K=3),
        lambda: in_globals("lambda x: x * K", K=2),
    ),
    callee_global_function=lambda: called(
        lambda: in_globals("lambda x: g(x)", g=torch.sin), lambda: in_globals("lambda x: g(x)", g=torch.cos)
    ),
    callee_global_tensor=lambda: called(
        lambda: in_globals("lambda x: x * K", K=torch.ones(3)), lambda: in_globals("lambda x: x * K", K=torch.zeros(3))
    ),
    callee_global_module=lambda: called(
        lambda: in_globals("lambda x: m.f(x)", m=types.SimpleNamespace(f=torch.sin)),
        lambda: in_globals("lambda x: m.f(x)", m=types.SimpleNamespace(f=torch.cos)),
    ),
    callee_global_list=lambda: called(
        lambda: in_globals("lambda x: x * L[0]", L=[2]), lambda: in_globals("lambda x: x * L[0]", L=[3])
    ),
    callee_global_of_callee=lambda: called(
        lambda: executed("def g(x):\n    return x * K\ndef f(x):\n    return g(x)", K=2),
        lambda: executed("def g(x):\n    return x * K\ndef f(x):\n    return g(x)", K=3),
    ),
    callee_global_absent=lambda: called(
        lambda: in_globals("lambda x: x * (K if 'K' in globals() else 2)"),
        lambda: in_globals("lambda x: x * (K if 'K' in globals() else 2)", K=3),
    ),
    callee_builtins=lambda: called(
        lambda: in_globals("lambda x: x * len('ab')"), lambda: in_globals("lambda x: x * len('ab')", len=lambda s: 3)
    ),
    callee_closure=lambda: called(*three(closing)),
    callee_closure_of_tensor=lambda: called(
        lambda: closing(torch.ones(3)), lambda: closing(torch.zeros(3)), lambda: closing(torch.ones(3))
    ),
    callee_closure_of_list=lambda: called(
        lambda: (lambda ns: lambda x: x * ns[0])([2]), lambda: (lambda ns: lambda x: x * ns[0])([3])
    ),
    callee_closure_deep=lambda: called(*three(closing_twice)),
    callee_closure_of_function=lambda: called(
        lambda: closing_over_function(closing(2)), lambda: closing_over_function(closing(3))
    ),
    callee_closure_of_object=lambda: called(
        lambda: (lambda s: lambda x: s.scale(x))(Scaler(2)), lambda: (lambda s: lambda x: s.scale(x))(Scaler(3))
    ),
    callee_default=lambda: called(*three(defaulting)),
    callee_default_tensor=lambda: called(lambda: defaulting(torch.ones(3)), lambda: defaulting(torch.zeros(3))),
    callee_default_keyword=lambda: called(*three(defaulting_keyword)),
    callee_attribute=lambda: called(*three(attributed)),
    callee_attribute_read=lambda: swapped(lambda x, k: k(x) * k.by, *three(labelled)),
    callee_decorated=lambda: called(*three(decorated)),
    callee_wrapped_read=lambda: swapped(lambda x, k: k.__wrapped__(x) + k(x), *three(decorated)),
    callee_dispatched=lambda: called(*three(dispatched)),
    callee_cached=lambda: called(*three(cached)),
    callee_lru_cached_itself=lambda: swapped(
        lambda x, k: x * k(3),
        lambda: functools.lru_cache(closing(2)),
        lambda: functools.lru_cache(closing(3)),
    ),
    callee_documented=lambda: called(*(lambda n=n: documented(n) for n in (2, 3, 2))),
    callee_named=lambda: called(*(lambda n=n: named(n) for n in (2, 3, 2))),
    callee_annotated=lambda: called(*three(annotated)),
    callee_constant=lambda: called(*(lambda n=n: varying(n) for n in (2, 3, 2))),
    callee_constant_float=lambda: called(*(lambda n=n: varying(n) for n in (0.0, -0.0, 0))),
    callee_names_alike=lambda: called(
        lambda: executed("def f(x):\n    return torch.sin(x)"), lambda: executed("def f(x):\n    return torch.cos(x)")
    ),
    callee_inner_code=lambda: called(
        lambda: executed("def f(x):\n    return (lambda v: v * 2)(x)"),
        lambda: executed("def f(x):\n    return (lambda v: v * 3)(x)"),
    ),
    callee_generator=lambda: swapped(
        lambda x, k: x * sum(k()),
        lambda: executed("def f():\n    yield 2\n    yield K", K=5),
        lambda: executed("def f():\n    yield 2\n    yield K", K=6),
    ),
    callee_flags=lambda: called(
        lambda: executed("def f(*x):\n    return x[0] * len(x)"),
        lambda: executed("def f(x):\n    return x[0] * len(x)"),
    ),
    callee_partial=lambda: called(*three(partly)),
    callee_partial_keyword=lambda: called(
        lambda: functools.partial(torch.add, other=1, alpha=2), lambda: functools.partial(torch.add, other=1, alpha=3)
    ),
    callee_partial_of_partial=lambda: called(
        lambda: functools.partial(partly(2)), lambda: functools.partial(partly(3)), lambda: partly(2)
    ),
    callee_partial_of_method=lambda: called(
        lambda: functools.partial(Scaler(2).scale), lambda: functools.partial(Scaler(3).scale)
    ),
    callee_partial_method=lambda: called(lambda: _with_partial_method(2), lambda: _with_partial_method(3)),
    callee_bound=lambda: called(lambda: Scaler(2).scale, lambda: Scaler(3).scale, lambda: Scaler(2).scale),
    callee_bound_to_equal=lambda: called(lambda: EqualScaler(2).scale, lambda: EqualScaler(3).scale),
    callee_bound_class_method=lambda: called(lambda: _subclass(2).shared, lambda: _subclass(3).shared),
    callee_static=lambda: called(lambda: Scaler.fixed, lambda: Scaler(3).fixed, lambda: Scaler(2).shared),
    callee_unbound=lambda: swapped(
        lambda x, k: k(METHOD, x), lambda: Scaler.scale, lambda: Scaler.__call__, lambda: lambda s, x: x * 9
    ),
    callee_bound_by_hand=lambda: called(
        lambda: types.MethodType(lambda s, x: x * s, 2), lambda: types.MethodType(lambda s, x: x * s, 3)
    ),
    callee_bound_of_module=lambda: called(lambda: with_weight(2).forward, lambda: with_weight(3).forward),
    callee_bound_of_tensor=lambda: called(
        lambda: torch.ones(3).mul, lambda: torch.zeros(3).mul, lambda: torch.ones(3).add
    ),
    callee_bound_of_list=lambda: swapped(lambda x, k: x * k(0), lambda: [2].__getitem__, lambda: [3].__getitem__),
    callee_bound_of_dict=lambda: swapped(lambda x, k: x * k("a", 5), lambda: {"a": 2}.get, lambda: {}.get),
    callee_object=lambda: called(*three(Scaler)),
    callee_object_slots=lambda: called(*three(SlottedScaler)),
    callee_object_equal=lambda: called(*three(EqualScaler)),
    callee_object_other_class=lambda: called(lambda: Scaler(2), lambda: EqualScaler(2), lambda: SlottedScaler(2)),
    callee_patched=lambda: swapped(lambda x, k: k.scale(x), *three(patched)),
    callee_operator=lambda: swapped(
        lambda x, k: k(x, 2), lambda: operator.mul, lambda: operator.add, lambda: torch.mul
    ),
    callee_item_getter=lambda: swapped(
        lambda x, k: x * k([2, 3]), lambda: operator.itemgetter(0), lambda: operator.itemgetter(1)
    ),
    callee_attribute_getter=lambda: swapped(
        lambda x, k: x * k(METHOD), lambda: operator.attrgetter("n"), lambda: operator.attrgetter("by")
    ),
    callee_method_caller=lambda: swapped(
        lambda x, k: k(x), lambda: operator.methodcaller("mul", 2), lambda: operator.methodcaller("mul", 3)
    ),
    callee_builtin=lambda: swapped(lambda x, k: x * k(2, 3), lambda: max, lambda: min, lambda: pow),
    callee_of_aten=lambda: called(
        lambda: torch.ops.aten.sin.default, lambda: torch.ops.aten.cos.default, lambda: torch.ops.aten.sin
    ),
    callee_in_table=lambda: swapped(lambda x, k: k["f"](x), lambda: {"f": closing(2)}, lambda: {"f": closing(3)}),
    callee_in_list=lambda: swapped(
        lambda x, k: k[1](k[0](x)), lambda: [closing(2), torch.sin], lambda: [closing(3), torch.sin]
    ),
    callee_in_object=lambda: swapped(
        lambda x, k: k.f(x), lambda: types.SimpleNamespace(f=closing(2)), lambda: types.SimpleNamespace(f=closing(3))
    ),
    callee_of_table=lambda: called(lambda: TABLE["two"], lambda: TABLE["three"]),
    callee_compared=lambda: swapped(
        lambda x, k: x * (2 if k is torch.relu else 3), lambda: torch.relu, lambda: nn.ReLU()
    ),
    callee_in_set=lambda: swapped(
        lambda x, k: x * (2 if k in {torch.sin} else 3), lambda: torch.sin, lambda: torch.cos
    ),
    callee_recursive=lambda: called(lambda: _recursive(2), lambda: _recursive(3)),
    callee_mutual=lambda: called(lambda: _mutual(2), lambda: _mutual(3)),
    callee_coroutine_closed=lambda: swapped(lambda x, k: x * _awaited(k), lambda: closing(2), lambda: closing(3)),
    callee_custom_function=lambda: swapped(lambda x, k: k.apply(x), *(lambda n=n: function_of(n) for n in (2, 3, 2))),
    callee_module=lambda: called(*(lambda n=n: with_weight(n) for n in (2, 3, 2))),
    callee_module_hooked=lambda: called(*three(hooked)),
    callee_module_class=lambda: swapped(lambda x, k: k()(x), *three(layer)),
    callee_module_of_class=lambda: called(*(lambda n=n: layer(n)() for n in (2, 3, 2))),
    callee_module_inherited=lambda: called(*(lambda n=n: inheriting(n)() for n in (2, 3, 2))),
    callee_module_patched=lambda: called(lambda: nn.ReLU(), lambda: attributes(nn.ReLU(), forward=lambda x: x * 3)),
    callee_module_mode=lambda: called(lambda: nn.Dropout(0.5).eval(), lambda: nn.Dropout(0.5)),
    callee_module_setting=lambda: called(lambda: nn.LeakyReLU(0.1), lambda: nn.LeakyReLU(0.2), lambda: nn.ReLU()),
    callee_vmapped=lambda: called(lambda: torch.vmap(closing(2)), lambda: torch.vmap(closing(3))),
    callee_graded=lambda: called(
        lambda: torch.func.grad(lambda x: closing(2)(x).sum()), lambda: torch.func.grad(lambda x: closing(3)(x).sum())
    ),
    callee_class_of_closure=lambda: made(*(lambda n=n: class_of(n) for n in (5, 7, 5))),
    callee_class_attribute=lambda: swapped(
        lambda x, k: x * k.level,
        lambda: class_of(1, level=2),
        lambda: class_of(1, level=3),
        lambda: class_of(1, level=2),
    ),
    callee_class_attribute_of_object=lambda: swapped(
        lambda x, k: x * k.level, lambda: class_of(1, level=2)(0), lambda: class_of(1, level=3)(0)
    ),
    callee_class_attribute_tensor=lambda: swapped(
        lambda x, k: x * k.level, lambda: class_of(1, level=torch.ones(3)), lambda: class_of(1, level=torch.zeros(3))
    ),
    callee_class_base=lambda: made(*(lambda n=n: with_base(n) for n in (5, 7, 5))),
    callee_class_bases_in_order=lambda: made(lambda: with_bases(True), lambda: with_bases(False)),
    callee_class_meta=lambda: made(*(lambda n=n: with_meta(n) for n in (5, 7, 5))),
    callee_class_property=lambda: made(*(lambda n=n: with_property(n) for n in (5, 7, 5))),
    callee_class_getattr=lambda: made(*(lambda n=n: with_getattr(n) for n in (5, 7, 5))),
    callee_class_descriptor=lambda: made(*(lambda n=n: with_descriptor(n) for n in (5, 7, 5))),
    callee_class_static=lambda: made(*(lambda n=n: with_static(n) for n in (5, 7, 5))),
    callee_class_operator=lambda: made(*(lambda n=n: with_operator(n) for n in (5, 7, 5))),
    callee_class_dynamic=lambda: swapped(
        lambda x, k: x * k().n, lambda: type("Made", (), {"n": 2}), lambda: type("Made", (), {"n": 3})
    ),
    callee_class_dynamic_method=lambda: swapped(
        lambda x, k: k().run(x),
        lambda: type("Made", (), {"run": lambda s, x: x * 2}),
        lambda: type("Made", (), {"run": lambda s, x: x * 3}),
    ),
    callee_class_executed=lambda: swapped(
        lambda x, k: k().run(x),
        lambda: executed("class f:\n    def run(self, x):\n        return x * K", K=2),
        lambda: executed("class f:\n    def run(self, x):\n        return x * K", K=3),
    ),
    callee_class_named=lambda: swapped(
        lambda x, k: x * len(k.__name__),
        lambda: type("Ab", (), {}),
        lambda: type("Abc", (), {}),
        lambda: type("Cd", (), {}),
    ),
    callee_class_checked=lambda: swapped(
        lambda x, k: x * (2 if isinstance(METHOD, k) else 3), lambda: Scaler, lambda: EqualScaler, lambda: object
    ),
    callee_class_subclasses=lambda: swapped(
        lambda x, k: x * (1 + len(k.__mro__)), lambda: Scaler, lambda: EqualScaler, lambda: SlottedScaler
    ),
    callee_class_object_of_dynamic=lambda: swapped(
        lambda x, k: k.run(x),
        lambda: type("Made", (), {"run": lambda s, x: x * 2})(),
        lambda: type("Made", (), {"run": lambda s, x: x * 3})(),
    ),
    callee_class_equal_objects=lambda: swapped(
        lambda x, k: k.scale(x), lambda: EqualScaler(2), lambda: EqualScaler(3), lambda: EqualScaler(2)
    ),
    callee_class_enum_made=lambda: swapped(lambda x, k: x * k.A.value, lambda: _enum(2), lambda: _enum(3)),
    callee_class_enum_member=lambda: swapped(lambda x, k: x * k.value, lambda: _enum(2).A, lambda: _enum(3).A),
    callee_class_named_tuple=lambda: swapped(
        lambda x, k: x * k(2, 3).a, lambda: _named_tuple("a b"), lambda: _named_tuple("b a")
    ),
    callee_class_dataclass=lambda: swapped(lambda x, k: x * k().n, lambda: _dataclass(2), lambda: _dataclass(3)),
    callee_class_dataclass_object=lambda: swapped(
        lambda x, k: x * k.n, lambda: _dataclass(2)(), lambda: _dataclass(3)()
    ),
    callee_class_exception=lambda: swapped(_by_exception, lambda: KeyError, lambda: ValueError, lambda: LookupError),
    owner_function_exchanged=lambda: Case(
        bare(lambda s: attributes(s, f=closing(2)), lambda s, x: s.f(x)), randn(3), others=[randn(3, seed=4)]
    ),
    owner_functions_in_list=lambda: Case(
        module(lambda s: attributes(s, fs=[closing(n) for n in (2, 3, 5)]), lambda s, x: sum(f(x @ s.w) for f in s.fs)),
        randn(3, 4),
    ),
    owner_lambda_loop=lambda: Case(
        lambda x: sum(f(x) for f in [lambda v, n=n: v * n for n in (2, 3)] + [lambda v: v * 5]), randn(3)
    ),
    owner_late_binding=lambda: Case(lambda x: sum(f(x) for f in [lambda v: v * n for n in (2, 3)]), randn(3)),  # noqa: B023
    owner_class_changes=lambda: Case(_changes_class(), randn(3)),
    owner_becomes_other_class=lambda: Case(_changes_own_class(), randn(3)),
    owner_function_by_value=lambda: Case(
        lambda x: (torch.sin if x.sum() > 0 else torch.cos)(x), rand(3), others=[-rand(3)]
    ),
    owner_function_of_shape=lambda: Case(
        lambda x: {1: torch.sin, 2: torch.cos}[x.dim()](x), rand(3), others=[rand(3, 4)], variants=False
    ),
)


def _with_partial_method(n: Any) -> Any:
    class Made:
        def scale(self, k, x):
            return x * k

        run = functools.partialmethod(scale, n)

    return Made().run


def _subclass(n: Any) -> Any:
    return type("Scaled", (Scaler,), {"by": n})


def _recursive(n: Any) -> Any:
    def f(x, depth=3):
        return x * n if depth == 0 else f(x, depth - 1) + 1

    return f


def _mutual(n: Any) -> Any:
    def even(x, depth=4):
        return x * n if depth == 0 else odd(x, depth - 1)

    def odd(x, depth):
        return even(x, depth - 1) + 1

    return even


def _awaited(k: Any) -> Any:
    async def run():
        return k(1)

    try:
        run().send(None)
    except StopIteration as end:
        return end.value


def _enum(n: Any) -> Any:
    import enum

    return enum.Enum("Mode", {"A": n, "B": 9})


def _named_tuple(names: str) -> Any:
    import collections

    return collections.namedtuple("Pair", names)


def _dataclass(n: Any) -> Any:
    import dataclasses

    return dataclasses.make_dataclass("Options", [("n", int, n)])


def _by_exception(x: Any, k: Any) -> Any:
    try:
        raise KeyError("a")
    except k:
        return x * 2
    except Exception:
        return x * 3


def _changes_class() -> Any:
    class Holder:
        n = 2

    def f(x):
        Holder.n += 1
        return x * Holder.n

    return f


def _changes_own_class() -> Any:
    class First:
        n = 2

    class Second:
        n = 3

    holder = First()

    def f(x):
        y = x * holder.n
        holder.__class__ = Second
        return y

    return f
