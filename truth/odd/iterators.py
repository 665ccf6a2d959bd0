"""Iterators that are used up or partly used: as arguments, in modules, closures, globals and defaults."""

import collections
import csv
import functools
import io
import itertools
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from case import Call, Case, attributes, bare, many, module, randn
from torch import nn

STREAM = iter([2, 3, 5])
PAST = iter([2, 3])
list(PAST)


def _streams() -> None:
    global STREAM, PAST
    STREAM, PAST = iter([2, 3, 5]), done(iter([2]))


def past(iterator: Any, steps: int = 1) -> Any:
    """The iterator, so many steps on."""
    for _ in range(steps):
        next(iterator)
    return iterator


def done(iterator: Any) -> Any:
    """The iterator, used up."""
    collections.deque(iterator, maxlen=0)
    return iterator


def given(make: Any, f: Any, *others: Any) -> Case:
    """An iterator for an argument, and other iterators for other calls."""
    return Case(f, (randn(3), make()), others=[(randn(3, seed=4), other()) for other in others], variants=False)


def closed(make: Any, f: Any) -> Case:
    """An iterator that a function closes over."""
    kept = make()
    return Case(lambda x: f(x, kept), randn(3), others=[randn(3, seed=4)])


def owned(make: Any, f: Any) -> Case:
    """An iterator that a module has."""
    return Case(
        module(lambda s: attributes(s, it=make()), lambda s, x: f(x @ s.w, s.it)),
        randn(3, 4),
        others=[randn(3, 4, seed=4)],
    )


def sums(x: Any, it: Any) -> Any:
    """All that is left."""
    return x * (1 + sum(it))


def first(x: Any, it: Any) -> Any:
    """The next one, or a hundred."""
    return x * next(it, 100)


def pairs(x: Any, it: Any) -> Any:
    """All that is left, of pairs."""
    return x * (1 + sum(a + 10 * b for a, b in it))


def tensors(x: Any, it: Any) -> Any:
    """The sum of tensors that are left."""
    return x + sum(it, torch.zeros(()))


class Countdown:
    """An iterator of one's own."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> "Countdown":
        return self

    def __next__(self) -> int:
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Slots:
    """One that keeps its place in a slot."""

    __slots__ = ("at", "values")

    def __init__(self, values: Any) -> None:
        self.values, self.at = values, 0

    def __iter__(self) -> "Slots":
        return self

    def __next__(self) -> Any:
        if self.at >= len(self.values):
            raise StopIteration
        self.at += 1
        return self.values[self.at - 1]


class Indexed:
    """Iterated by index."""

    def __getitem__(self, i: int) -> int:
        if i > 3:
            raise IndexError
        return i


def numbers(n: int) -> Iterator[int]:
    """A generator."""
    for i in range(n):
        yield i + 2


def sends() -> Any:
    """A generator that is told things."""
    total = 1
    while True:
        total += (yield total) or 1


def delegating(n: int) -> Iterator[int]:
    """A generator in a generator."""
    yield from numbers(n)
    yield 100


def started() -> Any:
    """Ready to be told."""
    made = sends()
    next(made)
    return made


def tee_second() -> Any:
    """One of two that share a source; the other is ahead."""
    a, b = itertools.tee(iter([2, 3, 5, 7]))
    past(a, 3)
    return b


def ordered() -> Any:
    """An ordered dict."""
    return collections.OrderedDict(a=2, b=3, c=5)


def batches() -> Any:
    """Three tensors."""
    return [randn(3, seed=i) for i in (6, 7, 8)]


STARTS: dict[str, Any] = dict(
    list=lambda: iter([2, 3, 5]),
    tuple=lambda: iter((2, 3, 5)),
    range=lambda: iter(range(2, 6)),
    dict=lambda: iter({2: "a", 3: "b", 5: "c"}),
    values=lambda: iter({"a": 2, "b": 3, "c": 5}.values()),
    ordered=lambda: iter(ordered().values()),
    set=lambda: iter({2, 3, 5}),
    deque=lambda: iter(collections.deque([2, 3, 5])),
    bytes=lambda: iter(b"\x02\x03\x05"),
    reversed=lambda: reversed([2, 3, 5]),
    map=lambda: map(int, "235"),
    filter=lambda: filter(lambda v: v > 1, [1, 2, 3, 5]),
    chain=lambda: itertools.chain([2], (3, 5)),
    islice=lambda: itertools.islice(itertools.count(2), 3),
    takewhile=lambda: itertools.takewhile(lambda v: v < 6, itertools.count(2)),
    dropwhile=lambda: itertools.dropwhile(lambda v: v < 2, [0, 2, 3]),
    starmap=lambda: itertools.starmap(pow, [(2, 1), (3, 1), (2, 3)]),
    accumulate=lambda: itertools.accumulate([2, 3, 5]),
    compress=lambda: itertools.compress([2, 3, 5], [1, 0, 1]),
    repeat=lambda: itertools.repeat(3, 3),
    tee=lambda: itertools.tee([2, 3, 5])[0],
    tee_second=tee_second,
    generator=lambda: numbers(3),
    generator_in_generator=lambda: delegating(2),
    expression=lambda: (v * 2 for v in [1, 2, 3]),
    own=lambda: Countdown(4),
    slots=lambda: Slots([2, 3, 5]),
    indexed=lambda: iter(Indexed()),
    sentinel=lambda: iter(functools.partial(next, iter([2, 3, 0, 5])), 0),
    array=lambda: iter(np.array([2, 3, 5])),
)
"""Iterators over numbers, by what they are made of."""

PAIRED: dict[str, Any] = dict(
    zip=lambda: zip([1, 2, 3], [4, 5, 6], strict=True),
    enumerate=lambda: enumerate([4, 5, 6]),
    items=lambda: iter({1: 4, 2: 5}.items()),
    product=lambda: itertools.product([1, 2], [3, 4]),
    permutations=lambda: itertools.permutations([1, 2, 3], 2),
    combinations=lambda: itertools.combinations([1, 2, 3], 2),
    zip_longest=lambda: itertools.zip_longest([1, 2], [3], fillvalue=0),
    pairwise=lambda: itertools.pairwise([1, 2, 4]),
)

many(
    __name__,
    **{
        f"argument_{n}_partly": lambda m=m: given(lambda: past(m()), sums, m, lambda: done(m()))
        for n, m in STARTS.items()
    },
    **{
        f"argument_{n}_done": lambda m=m: given(lambda: done(m()), sums, m, lambda: past(m()))
        for n, m in STARTS.items()
    },
    **{
        f"argument_{n}_pairs": lambda m=m: given(lambda: past(m()), pairs, m, lambda: done(m()))
        for n, m in PAIRED.items()
    },
    **{f"closure_{n}_done": lambda m=m: closed(lambda: done(m()), sums) for n, m in STARTS.items()},
    **{f"closure_{n}_pairs": lambda m=m: closed(lambda: past(m()), pairs) for n, m in PAIRED.items()},
    **{f"owned_{n}_partly": lambda m=m: owned(lambda: past(m()), first) for n, m in STARTS.items()},
    argument_zip_of_tensors=lambda: given(lambda: past(zip(batches(), batches(), strict=True)), _products),
    argument_iterator_of_tensors=lambda: given(lambda: iter(batches()), tensors, lambda: past(iter(batches()))),
    argument_iterator_of_tensors_done=lambda: given(lambda: done(iter(batches())), tensors, lambda: iter(batches())),
    argument_map_of_tensors=lambda: given(lambda: past(map(torch.sin, batches())), tensors),
    argument_generator_of_tensors=lambda: given(lambda: past(_batched(batches())), tensors),
    argument_tensor_iterator=lambda: given(lambda: past(iter(randn(3, 3))), tensors, lambda: iter(randn(3, 3))),
    argument_loader=lambda: given(lambda: past(iter(_loader())), _takes, lambda: iter(_loader())),
    argument_loader_done=lambda: given(lambda: done(iter(_loader())), lambda x, it: x * (1 + len(list(it)))),
    argument_in_list=lambda: Case(
        lambda x, box: x * sum(box[0]),
        (randn(3), [past(iter([2, 3, 5]))]),
        others=[(randn(3), [iter([2, 3, 5])])],
        variants=False,
    ),
    argument_in_dict=lambda: Case(
        lambda x, box: x * (1 + sum(box["it"])),
        (randn(3), {"it": done(iter([2, 3]))}),
        others=[(randn(3), {"it": iter([2, 3])})],
        variants=False,
    ),
    argument_in_object=lambda: Case(
        lambda x, box: x * next(box.it, 9),
        (randn(3), SimpleNamespace(it=past(iter([2, 3])))),
        others=[(randn(3), SimpleNamespace(it=iter([2, 3])))],
        variants=False,
    ),
    argument_same_twice=lambda: Case(
        _both, (randn(3), *_twice()), others=[(randn(3), iter([2, 3]), iter([2, 3]))], variants=False
    ),
    argument_by_keyword=lambda: Case(
        lambda x, *, it: x * (1 + sum(it)),
        randn(3),
        dict(it=done(iter([2, 3]))),
        others=[Call((randn(3),), dict(it=iter([2, 3])))],
        variants=False,
    ),
    argument_of_stars=lambda: Case(
        lambda x, *its: x * (1 + sum(sum(it) for it in its)),
        (randn(3), past(iter([2, 3])), done(iter([5]))),
        others=[(randn(3), iter([2, 3]), iter([5]))],
        variants=False,
    ),
    argument_partly_read=lambda: given(
        lambda: iter([2, 3, 5]), _peeks, lambda: iter([2, 3, 7]), lambda: iter([2, 4, 5])
    ),
    argument_length_hinted=lambda: given(
        lambda: past(iter([2, 3, 5])), lambda x, it: x * it.__length_hint__(), lambda: iter([2, 3, 5])
    ),
    argument_told=lambda: given(started, lambda x, g: x * g.send(5)),
    argument_asked_whether_open=lambda: given(
        lambda: done(numbers(2)), lambda x, g: x * (2 if g.gi_frame is None else 3), lambda: numbers(2)
    ),
    argument_closed_by_program=lambda: given(lambda: numbers(3), lambda x, g: (x * next(g), g.close())[0]),
    argument_text_lines=lambda: given(lambda: past(io.StringIO("2\n3\n5\n")), _lines, lambda: io.StringIO("2\n3\n5\n")),
    argument_text_read_to_end=lambda: given(lambda: _read(io.StringIO("2\n3")), _lines, lambda: io.StringIO("2\n3")),
    argument_rows_of_table=lambda: given(
        lambda: past(csv.reader(io.StringIO("1,2\n3,4\n"))), lambda x, r: x * float(next(r)[0])
    ),
    argument_matches=lambda: given(
        lambda: past(re.finditer(r"\d", "2a3b5")), lambda x, m: x * (1 + sum(int(v.group()) for v in m))
    ),
    argument_grouped=lambda: given(
        lambda: past(itertools.groupby([1, 1, 2, 2, 2])), lambda x, g: x * (1 + sum(k * len(list(v)) for k, v in g))
    ),
    argument_string=lambda: given(
        lambda: past(iter("abc")), lambda x, it: x * len("".join(it)), lambda: iter("abc"), lambda: iter("xbc")
    ),
    argument_cycle=lambda: given(lambda: past(itertools.cycle([2, 3, 5])), first, lambda: itertools.cycle([2, 3, 5])),
    argument_count=lambda: given(lambda: past(itertools.count(2)), first, lambda: itertools.count(2)),
    argument_count_of_floats=lambda: given(
        lambda: itertools.count(0.5, 0.25), first, lambda: itertools.count(0.5, 0.5)
    ),
    argument_parameters=lambda: given(lambda: past(nn.Linear(3, 3).parameters()), tensors),
    argument_named_parameters=lambda: given(
        lambda: nn.Linear(3, 1).named_parameters(), lambda x, it: x * len(next(it)[0])
    ),
    global_partly=lambda: Case(lambda x: x * next(STREAM, 100), randn(3), reset=_reset_streams()),
    global_done=lambda: Case(lambda x: x * (1 + sum(PAST)), randn(3), reset=_reset_streams()),
    global_looped=lambda: Case(lambda x: x * sum(STREAM), randn(3), reset=_reset_streams()),
    default_partly=lambda: Case(_with_default(past(iter([2, 3, 5]))), randn(3)),
    default_done=lambda: Case(_with_default(done(iter([2, 3]))), randn(3)),
    default_keyword=lambda: Case(_with_keyword(past(iter([2, 3]))), randn(3)),
    attribute_of_function=lambda: Case(_with_function_attribute(), randn(3)),
    attribute_of_class=lambda: Case(_with_class_attribute(), randn(3)),
    partial_of_iterator=lambda: Case(functools.partial(lambda it, x: x * next(it, 9), past(iter([2, 3]))), randn(3)),
    method_of_iterator_owner=lambda: Case(Owner(past(iter([2, 3]))).run, randn(3)),
    method_next=lambda: Case((lambda step: lambda x: x * step())(past(iter([2, 3, 5])).__next__), randn(3)),
    owned_loader=lambda: Case(
        bare(lambda s: attributes(s, it=past(iter(_loader())), l=nn.Linear(3, 3)), lambda s, x: s.l(x + next(s.it)[0])),
        randn(3),
    ),
    owned_restarting=lambda: Case(module(lambda s: attributes(s, it=done(iter([2]))), _restarts), randn(3, 4)),
    owned_dict_of_iterators=lambda: owned(
        lambda: {"a": past(iter([2, 3])), "b": done(iter([5]))}, lambda x, d: x * next(d["a"]) + sum(d["b"])
    ),
    owned_queue_of_iterators=lambda: owned(
        lambda: collections.deque([past(iter([2, 3])), iter([7])]), lambda x, q: x * sum(next(it) for it in q)
    ),
    owned_iterator_of_layers=lambda: Case(
        bare(lambda s: attributes(s, ls=nn.ModuleList([nn.Linear(4, 4), nn.Tanh()]), it=None), _layer_by_layer),
        randn(3, 4),
    ),
    owned_round_robin=lambda: Case(
        bare(
            lambda s: attributes(s, ls=nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), n=itertools.cycle([0, 1])),
            lambda s, x: s.ls[next(s.n)](x),
        ),
        randn(3, 4),
    ),
    hook_steps_iterator=lambda: Case(_hooked(), randn(3, 4)),
    backward_steps_iterator=lambda: Case(_hooked_gradient(), randn(3)),
    branch_on_end=lambda: closed(lambda: done(iter([2])), _else_branch),
    branch_on_end_argument=lambda: given(lambda: done(iter([2])), _else_branch, lambda: iter([2])),
    filter_of_values=lambda: Case(lambda x: x * sum(filter(lambda v: v > 0, x.tolist())), randn(4), others=[-randn(4)]),
    map_over_items=lambda: Case(lambda x: x * max(map(float, x)), randn(4), others=[-randn(4)]),
    zip_over_lists=lambda: Case(
        lambda x, y: x * sum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True)),
        (randn(3), randn(3, seed=2)),
        others=[(randn(3, seed=5), randn(3))],
    ),
    generator_inside=lambda: Case(lambda x: sum(v * i for i, v in enumerate(x.unbind())), randn(3, 4)),
    generator_of_generators_inside=lambda: Case(lambda x: torch.stack(list(_rolled(x))).sum(0), randn(3, 4)),
    iterator_kept_over_calls=lambda: Case(module(lambda s: attributes(s, it=None), _opens_once), randn(3, 4)),
    reader_kept_over_calls=lambda: Case(
        module(lambda s: attributes(s, f=io.StringIO("2\n3\n5\n7\n")), _reads), randn(3, 4)
    ),
    sampler_kept=lambda: owned(
        lambda: past(iter(torch.utils.data.BatchSampler(range(6), 2, False))), lambda x, it: x * sum(next(it))
    ),
    random_sampler_kept=lambda: owned(
        lambda: past(iter(torch.utils.data.RandomSampler(range(6), generator=torch.Generator().manual_seed(2)))), first
    ),
    schedule_kept=lambda: owned(lambda: past(_annealed()), first),
)


def _products(x: Any, it: Any) -> Any:
    return x + sum(a * b for a, b in it)


def _batched(values: Any) -> Iterator[Any]:
    for value in values:
        yield value * 2


def _loader() -> Any:
    data = torch.utils.data.TensorDataset(randn(5, 3, seed=3))
    return torch.utils.data.DataLoader(data, batch_size=2)


def _takes(x: Any, it: Any) -> Any:
    (batch,) = next(it)
    return x + batch.sum(0)


def _twice() -> tuple:
    it = iter([2, 3, 5, 7])
    return it, it


def _both(x: Any, a: Any, b: Any) -> Any:
    return x * next(a) + next(b)


def _peeks(x: Any, it: Any) -> Any:
    return x * next(it) * next(it)


def _lines(x: Any, file: Any) -> Any:
    return x * (1 + sum(float(line) for line in file))


def _read(file: Any) -> Any:
    file.read()
    return file


def _reset_streams() -> Any:
    _streams()
    return _streams


def _with_default(kept: Any) -> Any:
    def f(x, it=kept):
        return x * (1 + next(it, 50))

    return f


def _with_keyword(kept: Any) -> Any:
    def f(x, *, it=kept):
        return x * (1 + sum(it))

    return f


def _with_function_attribute() -> Any:
    def f(x):
        return x * next(f.it, 50)

    f.it = past(iter([2, 3]))
    return f


def _with_class_attribute() -> Any:
    class Holder:
        it = past(iter([2, 3]))

    return lambda x: x * next(Holder.it, 50)


class Owner:
    """Has an iterator."""

    def __init__(self, it: Any) -> None:
        self.it = it

    def run(self, x: Any) -> Any:
        """By the next."""
        return x * next(self.it, 50)


def _restarts(self: Any, x: Any) -> Any:
    try:
        by = next(self.it)
    except StopIteration:
        self.it = iter([7, 11])
        by = next(self.it)
    return x @ self.w * by


def _layer_by_layer(self: Any, x: Any) -> Any:
    self.it = self.it or iter(self.ls)
    layer = next(self.it, None)
    return x * 3 if layer is None else layer(x)


def _hooked() -> nn.Module:
    steps = past(iter([2, 3, 5, 7, 11, 13]))
    net = nn.Linear(4, 4)
    net.register_forward_hook(lambda m, i, o: o * next(steps))
    return net


def _hooked_gradient() -> Any:
    steps = past(iter([2, 3, 5, 7, 11, 13]))

    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * next(steps, 1))
        return y.sin()

    return f


def _else_branch(x: Any, it: Any) -> Any:
    for v in it:
        return x * v
    else:
        return x.sin()


def _rolled(x: Any) -> Iterator[Any]:
    for i in range(3):
        yield from (row.roll(i) for row in x)


def _opens_once(self: Any, x: Any) -> Any:
    if self.it is None:
        self.it = iter([2, 3, 5])
    return x @ self.w * next(self.it, 100)


def _reads(self: Any, x: Any) -> Any:
    return x @ self.w * float(self.f.readline() or 100)


def _annealed() -> Iterator[float]:
    rate = 1.0
    while True:
        yield rate
        rate *= 0.5
