"""Arguments that compare equal and are not the same to a program: what equality leaves out is read."""

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import math
import pathlib
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from case import Case, attributes, many, randn


@dataclasses.dataclass
class Options:
    """Equal by name."""

    name: str
    scale: float = dataclasses.field(default=1.0, compare=False)


@dataclasses.dataclass(frozen=True)
class Nested:
    """Equal if what it has is."""

    options: Options
    depth: int = 1


class Label(str):
    """A text that has a weight."""

    weight = 1.0


class Rate(float):
    """A number that has a decay."""

    decay = 1.0


class Width(int):
    """A whole number that has a unit."""

    unit = 1


class Shape(tuple):
    """A tuple that has a name."""

    scale = 1.0


class Filled(dict):
    """A dict that answers for keys it has not."""

    fill = 0.0

    def __missing__(self, key: Any) -> Any:
        return self.fill


class Tagged(SimpleNamespace):
    """A namespace with something computed."""

    @property
    def scale(self) -> float:
        """Of the class."""
        return 5.0


class First(NamedTuple):
    """A pair."""

    a: Any
    b: Any


class Second(NamedTuple):
    """A pair with other names."""

    b: Any
    a: Any


class Level(enum.IntEnum):
    """Equal to its number."""

    TWO = 2


class Keyed:
    """Equal by a key; what else it has lies in a slot behind a name of its own."""

    __slots__ = ("__scale", "key")

    def __init__(self, key: Any, scale: Any) -> None:
        self.key, self.__scale = key, scale

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Keyed) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def apply(self, x: Any) -> Any:
        """Scaled."""
        return x * self.__scale


DEFAULTS = (1, 2)
UNSET = object()


def told(f: Any, value: Any, other: Any, **more: Any) -> Case:
    """A function of a tensor and a value, tried with a value that equals it."""
    others = [(randn(3, 4, seed=5), value), (randn(3, 4), other)]
    return Case(f, (randn(3, 4), value), others=others, **more)


def _in(kind: Any, value: Any, **more: Any) -> Any:
    made = kind(value)
    attributes(made, more)
    return made


def _pacific(hour: int, offset: int) -> Any:
    return datetime.datetime(2024, 1, 2, hour, tzinfo=datetime.timezone(datetime.timedelta(hours=offset)))


many(
    __name__,
    equal_uncompared_field=lambda: told(lambda x, o: x * o.scale, Options("a", 2.0), Options("a", 3.0)),
    equal_uncompared_nested=lambda: told(
        lambda x, o: x * o.options.scale, Nested(Options("a", 2.0)), Nested(Options("a", 3.0))
    ),
    equal_uncompared_in_list=lambda: told(lambda x, o: x * o[0].scale, [Options("a", 2.0)], [Options("a", 3.0)]),
    equal_key_with_attribute=lambda: told(
        lambda x, o: x * next(iter(o)).weight, {Label("a"): 1}, {_in(Label, "a", weight=4.0): 1}
    ),
    equal_key_hidden_slot=lambda: told(lambda x, o: o.apply(x), Keyed("k", 2.0), Keyed("k", 3.0)),
    equal_text_with_attribute=lambda: told(
        lambda x, s: x * s.weight, _in(Label, "a", weight=2.0), _in(Label, "a", weight=3.0)
    ),
    equal_float_with_attribute=lambda: told(
        lambda x, r: x * r * r.decay, _in(Rate, 0.5, decay=2.0), _in(Rate, 0.5, decay=3.0)
    ),
    equal_whole_with_attribute=lambda: told(lambda x, n: x * n * n.unit, _in(Width, 2, unit=3), _in(Width, 2, unit=7)),
    equal_tuple_with_attribute=lambda: told(
        lambda x, t: x * t[0] * t.scale, _in(Shape, (2,), scale=2.0), _in(Shape, (2,), scale=5.0)
    ),
    equal_dict_with_missing=lambda: told(
        lambda x, d: x * d["a"] + d["b"], _in(Filled, {"a": 2.0}, fill=1.0), _in(Filled, {"a": 2.0}, fill=4.0)
    ),
    equal_default_factory=lambda: told(
        lambda x, d: x * d.copy()["absent"],
        collections.defaultdict(lambda: 2.0, a=1),
        collections.defaultdict(lambda: 3.0, a=1),
    ),
    equal_default_factory_filled=lambda: told(
        lambda x, d: x * d["absent"], collections.defaultdict(lambda: 2.0), collections.defaultdict(lambda: 3.0)
    ),
    equal_counter_with_zero=lambda: told(
        lambda x, c: x * len(c), collections.Counter(a=1), collections.Counter(a=1, b=0)
    ),
    equal_deque_bound=lambda: told(
        lambda x, d: x * (d.maxlen or 5), collections.deque([1, 2], maxlen=2), collections.deque([1, 2])
    ),
    equal_ranges=lambda: told(lambda x, r: x * r.stop, range(0, 3, 2), range(0, 4, 2)),
    equal_empty_ranges=lambda: told(lambda x, r: x * (r.start + 2), range(0), range(4, 4)),
    equal_decimals=lambda: told(lambda x, d: x * len(str(d)), decimal.Decimal("1.5"), decimal.Decimal("1.50")),
    equal_fraction_or_float=lambda: told(
        lambda x, v: x * v if isinstance(v, float) else x * 7 * float(v), 0.5, fractions.Fraction(1, 2)
    ),
    equal_number_or_numpy=lambda: told(
        lambda x, v: x * v * (3 if isinstance(v, np.floating) else 1), 2.0, np.float32(2.0)
    ),
    equal_zero_in_tuple=lambda: told(lambda x, v: x * math.copysign(2.0, v[0]), (0.0,), (-0.0,)),
    equal_zero_of_complex=lambda: told(
        lambda x, v: x * math.copysign(2.0, v.imag), complex(1.0, 0.0), complex(1.0, -0.0)
    ),
    equal_one_or_true_deep=lambda: told(lambda x, v: x * (2 if v["a"][0] is True else 3), {"a": [1]}, {"a": [True]}),
    equal_moments=lambda: told(lambda x, d: x * d.hour, _pacific(12, 0), _pacific(14, 2)),
    equal_arrays_of_types=lambda: told(lambda x, a: x * a.itemsize, array.array("i", [1, 2]), array.array("d", [1, 2])),
    equal_bytes_or_bytearray=lambda: told(
        lambda x, b: x * (2 if isinstance(b, bytes) else 3) * b[0], b"\x02", bytearray(b"\x02")
    ),
    equal_views_of_formats=lambda: told(
        lambda x, m: x * m.itemsize, memoryview(array.array("i", [1, 2])), memoryview(array.array("q", [1, 2]))
    ),
    equal_pairs_of_classes=lambda: told(lambda x, p: x * p.a, First(2, 3), Second(2, 3)),
    equal_member_or_number=lambda: told(lambda x, v: x * v * (2 if isinstance(v, Level) else 1), 2, Level.TWO),
    equal_size_or_tuple=lambda: told(
        lambda x, s: x * (s.numel() if isinstance(s, torch.Size) else 5), torch.Size([2]), (2,)
    ),
    equal_chain_maps=lambda: told(
        lambda x, c: x * c.maps[-1]["a"],
        collections.ChainMap({"a": 2}, {"a": 3}),
        collections.ChainMap({"a": 2}, {"a": 5}),
    ),
    equal_namespace_subclass=lambda: told(lambda x, s: x * getattr(s, "scale", 2.0), SimpleNamespace(a=1), Tagged(a=1)),
    equal_array_strides=lambda: told(
        lambda x, a: x * a.strides[0], np.ones((3, 4), np.int8), np.asfortranarray(np.ones((3, 4), np.int8))
    ),
    equal_array_byte_orders=lambda: told(
        lambda x, a: x * a.view(np.uint8)[0].item(), np.array([1], "<i2"), np.array([1], ">i2")
    ),
    equal_array_masked=lambda: told(
        lambda x, a: x * float(a.sum()), np.ma.array([1.0, 2.0], mask=[0, 1]), np.ma.array([1.0, 2.0], mask=[0, 0])
    ),
    equal_array_writable=lambda: told(
        lambda x, a: x * (2 if a.flags.writeable else 3), np.ones(2), _locked(np.ones(2))
    ),
    equal_sets_in_order=lambda: told(lambda x, s: x * (next(iter(s)) + 1), set([0, 8]), set([8, 0])),  # noqa: C405
    equal_frozen_sets_in_order=lambda: told(lambda x, s: x * (next(iter(s)) + 1), frozenset([0, 8]), frozenset([8, 0])),
    equal_proxies_in_order=lambda: told(
        lambda x, d: x * next(iter(d.values())),
        MappingProxyType({"a": 2, "b": 3}),
        MappingProxyType({"b": 3, "a": 2}),
    ),
    equal_path_classes=lambda: told(
        lambda x, p: x * (2 if isinstance(p, pathlib.Path) else 3), pathlib.Path("a"), pathlib.PurePath("a")
    ),
    equal_text_or_user_text=lambda: told(
        lambda x, s: x * (2 if isinstance(s, str) else 3), "a", collections.UserString("a")
    ),
    equal_but_not_the_default=lambda: told(lambda x, v: x * (2 if v is DEFAULTS else 3), DEFAULTS, tuple([1, 2])),  # noqa: C409
    equal_sentinel_or_another=lambda: told(lambda x, v: x * (2 if v is UNSET else 3), UNSET, object()),
    equal_same_list_twice=lambda: (lambda a: told(lambda x, p: x * (2 if p[0] is p[1] else 3), (a, a), ([1], [1])))(
        [1]
    ),
)


def _locked(values: Any) -> Any:
    values.flags.writeable = False
    return values
