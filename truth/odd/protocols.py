"""Values that Python reads by its protocols, outside any operator, beside guards that hold on less."""

import bisect
import collections
import contextlib
import ctypes
import datetime
import fractions
import functools
import heapq
import io
import itertools
import operator
import random
import statistics
import string
import struct
import textwrap
import time
from typing import Any

import numpy as np
import torch
from case import Case, many, module, rand, randn


def reads(f: Any, *others: Any, **more: Any) -> Case:
    """A function of a tensor, tried on several others."""
    tries = [randn(3, 4, seed=5), randn(3, 4, seed=6), -randn(3, 4), randn(3, 4).flip(0), *others]
    return Case(f, randn(3, 4), others=tries, **more)


def _inserted(x: Any) -> Any:
    ordered: list[Any] = []
    for row in x:
        bisect.insort(ordered, row.sum())
    return torch.stack(ordered) * torch.arange(3.0)


def _heaped(x: Any) -> Any:
    heap: list[Any] = []
    for i, row in enumerate(x):
        heapq.heappush(heap, (row.sum(), i))
    return x[heapq.heappop(heap)[1]] * 2


def _ordered_by(x: Any) -> Any:
    rows = list(x)
    rows.sort(key=lambda row: row.detach().norm())
    return torch.stack(rows) * torch.arange(3.0)[:, None]


def _compared_by(x: Any) -> Any:
    rows = sorted(x, key=functools.cmp_to_key(lambda a, b: -1 if a.sum() < b.sum() else 1))
    return torch.stack(rows) * torch.arange(3.0)[:, None]


def _grouped(x: Any) -> Any:
    total = 0.0
    for n, (_, group) in enumerate(itertools.groupby(x.flatten(), key=lambda v: bool(v > 0))):
        total = total + sum(group) * (n + 1)
    return total


def _index_in_list(x: Any) -> Any:
    rows = [row.max() for row in x]
    return x * (rows.index(x.max()) + 2)


def _removed(x: Any) -> Any:
    rows = [row.max() for row in x]
    rows.remove(x.max())
    return torch.stack(rows)


def _and_or(x: Any) -> Any:
    return ((x.sum() > 0) and x.sin()) if isinstance((x.sum() > 0) and 1, int) else x.cos()


def _or_zero(x: Any) -> Any:
    return (x[0, 0].relu() or x[1].sum()) * x


def _while_tensor(x: Any) -> Any:
    left = x.detach().abs().sum().round()
    steps = 0
    while left:
        left = left - 1
        steps += 1
    return x * steps


def _parsed(x: Any) -> Any:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print(f"{x.sum().item():+08.2f}")
    return x * float(text.getvalue())


def _template(x: Any) -> Any:
    return x * float(string.Template("$v").substitute(v=round(float(x.mean()), 2)))


def _by_seed(x: Any) -> Any:
    return x * random.Random(int(x.sum() * 100)).random()


def _numpy_seed(x: Any) -> Any:
    return x * float(np.random.default_rng(abs(int(x.sum() * 10))).random())


def _torch_seed(x: Any) -> Any:
    g = torch.Generator().manual_seed(abs(int(x.sum() * 10)))
    return x * torch.rand(4, generator=g)


def _dates(x: Any) -> Any:
    moment = datetime.datetime(2024, 1, 1) + datetime.timedelta(days=int(x.sum() * 10))
    return x * moment.day


def _shift(x: Any) -> Any:
    return x.roll(int(x.argmax()), 0) if bin(int(x.abs().sum())).count("1") % 2 else x


def _mapped(x: Any) -> Any:
    table: Any = collections.OrderedDict((float(v), i) for i, v in enumerate(x[0]))
    return x * (table[float(x[0].max())] + 1)


def _numbers_of_shape(x: Any) -> Any:
    picked = x[x > 0.3]
    return picked.new_ones(len(picked)) * picked.sum()


def _pointer(x: Any) -> Any:
    values = (ctypes.c_float * x.numel()).from_address(x.detach().contiguous().data_ptr())
    return x * 2 if values[0] > 0 else x * 3


def _set_of_rows(x: Any) -> Any:
    return x * len({tuple(row) for row in x.round().tolist()})


def _islice(x: Any) -> Any:
    return sum(itertools.islice(itertools.cycle(x), int(x.abs().sum()) % 5 + 1))


def _sleeps(x: Any) -> Any:
    time.sleep(float(x.abs().max()) * 1e-4)
    return x * 2


def _unpack(x: Any) -> Any:
    first, *rest = x[0].tolist()
    return x * first + len(rest)


def _match(x: Any) -> Any:
    match (x.detach().sign()[0]).tolist():
        case [1.0, *_]:
            return x * 2
        case [-1.0, _, 1.0, _]:
            return x * 3
        case _:
            return x * 4


def _histogram(x: Any) -> Any:
    counts, _ = np.histogram(x.detach(), bins=3, range=(-1, 1))
    return x * float(counts[1] + 1)


def _argsort_numpy(x: Any) -> Any:
    return x[:, np.argsort(x.detach().numpy()[0]).copy()] * torch.arange(4.0)


def _median_of_tensors(x: Any) -> Any:
    return statistics.median(list(x[0])) * x


def _getters(x: Any) -> Any:
    return operator.itemgetter(int(x.argmax()) % 3)(x) * 2


def _reduce_max(x: Any) -> Any:
    return functools.reduce(max, x.flatten()) * x


def _accumulated_max(x: Any) -> Any:
    return torch.stack(list(itertools.accumulate(x.flatten(), max)))


def _taken(x: Any) -> Any:
    return sum(itertools.takewhile(lambda v: v < 0.8, x.flatten())) + x.sum()


def _filtered_none(x: Any) -> Any:
    return torch.stack([x.sum(), *filter(None, x.relu().flatten())])


def _counted(x: Any) -> Any:
    return x * collections.Counter(x.sign().flatten().tolist()).most_common(1)[0][1]


def _hook_reads(x: Any) -> Any:
    scale: list[Any] = []
    y = x * 2
    y.register_hook(lambda g: scale.append(float(g.sum())) or g * (2 if scale[-1] > 0 else 3))
    return y.sin()


def _parameter_norm(self: Any, x: Any) -> Any:
    if float(self.w.detach().norm()) > 3.5:
        return (x @ self.w) * 2
    return x @ self.w


def _buffer_text(self: Any, x: Any) -> Any:
    return (x @ self.w) * float(f"{self.level}")


def _warms_up(self: Any, x: Any) -> Any:
    self.step += 1
    return (x @ self.w) * min(1.0, int(self.step) / 10)


many(
    __name__,
    protocol_insort=lambda: reads(_inserted),
    protocol_heap_of_tensors=lambda: reads(_heaped),
    protocol_sorted_by_norm=lambda: reads(_ordered_by),
    protocol_sorted_by_comparison=lambda: reads(_compared_by),
    protocol_groups=lambda: reads(_grouped),
    protocol_index_in_list=lambda: reads(_index_in_list),
    protocol_removed_from_list=lambda: reads(_removed),
    protocol_and=lambda: reads(_and_or),
    protocol_or=lambda: reads(_or_zero),
    protocol_while=lambda: reads(_while_tensor),
    protocol_printed_and_parsed=lambda: reads(_parsed),
    protocol_template=lambda: reads(_template),
    protocol_seed_of_python=lambda: reads(_by_seed),
    protocol_seed_of_numpy=lambda: reads(_numpy_seed),
    protocol_seed_of_torch=lambda: reads(_torch_seed),
    protocol_dates=lambda: reads(_dates),
    protocol_bits_of_number=lambda: reads(_shift),
    protocol_dictionary_of_floats=lambda: reads(_mapped),
    protocol_length_of_mask=lambda: reads(_numbers_of_shape),
    protocol_pointer=lambda: reads(_pointer),
    protocol_set_of_rows=lambda: reads(_set_of_rows),
    protocol_islice=lambda: reads(_islice),
    protocol_sleeps=lambda: reads(_sleeps),
    protocol_unpacked_list=lambda: reads(_unpack),
    protocol_match_list=lambda: reads(_match),
    protocol_histogram_numpy=lambda: reads(_histogram),
    protocol_argsort_numpy=lambda: reads(_argsort_numpy),
    protocol_median_of_tensors=lambda: reads(_median_of_tensors),
    protocol_item_getter=lambda: reads(_getters),
    protocol_reduce_max=lambda: reads(_reduce_max),
    protocol_accumulated_max=lambda: reads(_accumulated_max),
    protocol_taken_while=lambda: reads(_taken),
    protocol_filtered_none=lambda: reads(_filtered_none),
    protocol_most_common=lambda: reads(_counted),
    protocol_backward_hook_float=lambda: reads(_hook_reads),
    protocol_packed_float=lambda: reads(lambda x: x * struct.unpack("f", struct.pack("f", x.sum()))[0]),
    protocol_fraction=lambda: reads(lambda x: x * float(fractions.Fraction(float(x.sum())).limit_denominator(3))),
    protocol_hexadecimal=lambda: reads(lambda x: x * len(float(x.sum()).hex())),
    protocol_is_integer=lambda: reads(lambda x: x * (2 if x.round().sum().item().is_integer() else 3)),
    protocol_rounded_tensor=lambda: reads(lambda x: x * round(float(x.sum()), 1)),
    protocol_text_justified=lambda: reads(lambda x: x * len("a".ljust(int(x.abs().sum())))),
    protocol_text_wrapped=lambda: reads(lambda x: x * len(textwrap.wrap("a b c d e f", abs(int(x.sum())) + 1))),
    protocol_repeated_list=lambda: reads(lambda x: x * len([0] * x.abs().sum().int())),
    protocol_range=lambda: reads(lambda x: sum(x * i for i in range(x.abs().sum().int() % 4 + 1)) + x),
    protocol_text_indexed=lambda: reads(lambda x: x * float("23456789"[x.abs().sum().long() % 8])),
    protocol_bytes_of_tensor=lambda: reads(lambda x: x * (bytes(x.detach().numpy().astype("u1"))[0] % 5 + 1)),
    protocol_chained_comparison=lambda: reads(lambda x: x * 2 if -1 < x.sum() < 3 else x * 3),
    protocol_divmod=lambda: reads(lambda x: x * divmod(float(x.sum()), 0.7)[0]),
    protocol_operator_index=lambda: reads(lambda x: x[operator.index(x.sum(1).argmax())] * 2),
    protocol_format_of_integer=lambda: reads(lambda x: x * len(format(x.abs().sum().int(), "b"))),
    protocol_allclose_numpy=lambda: reads(lambda x: x * (2 if np.allclose(x.detach(), 0, atol=1.5) else 3)),
    protocol_any_of_rows=lambda: reads(lambda x: x * (2 if any(row.sum() > 2 for row in x) else 3)),
    protocol_minimum_of_pairs=lambda: reads(lambda x: min((row.sum(), i) for i, row in enumerate(x))[0] * x),
    protocol_parameter_norm=lambda: Case(module(None, _parameter_norm), randn(3, 4), others=[randn(3, 4, seed=5)]),
    protocol_buffer_text=lambda: Case(
        module(lambda s: s.register_buffer("level", torch.tensor(2.5)), _buffer_text), randn(3, 4)
    ),
    protocol_buffer_warms_up=lambda: Case(
        module(lambda s: s.register_buffer("step", torch.tensor(0)), _warms_up), randn(3, 4), others=[rand(3, 4)]
    ),
)
