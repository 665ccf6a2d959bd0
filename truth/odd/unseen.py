"""Reads where no engine looks, with a guard beside them: a number that is guarded hides what else was read."""

import array
import base64
import collections
import contextlib
import copy
import csv
import decimal
import hashlib
import io
import json
import logging
import math
import pickle
import pprint
import statistics
import struct
import sys
import tempfile
import warnings
import zlib
from typing import Any

import numpy as np
import torch
from case import Case, attributes, many, module, randn
from torch import nn

FIRST = torch.tensor([2.0, 0.5, -1.0, 0.25])
LIKE = torch.tensor([2.0, -3.0, 4.0, 1.5])  # another, whose first value is the same
SUM = torch.tensor([2.0, 1.5, -2.0, 0.25])  # another, whose sum and first value are the same
AWAY = torch.tensor([-1.0, 0.5, 2.0, 0.25])


def beside(read: Any, *others: Any, **more: Any) -> Case:
    """An unseen read beside an exact guard on the first value; others with the same first value, and without."""

    def f(x):
        by = x[0].item()
        return x * by + float(read(x.detach()))

    return Case(f, FIRST.clone(), others=[LIKE.clone(), SUM.clone(), AWAY.clone(), *others], **more)


def after_branch(read: Any) -> Case:
    """The same, beside a guard on a comparison, and the read decides what is done."""

    def f(x):
        if x.sum() > 1.5:
            return x * 2 if read(x.detach()) else x * 3
        return x.sin()

    return Case(f, FIRST.clone(), others=[LIKE.clone(), SUM.clone(), AWAY.clone()])


def before_guard(read: Any) -> Case:
    """The read comes first."""

    def f(x):
        scale = float(read(x.detach()))
        return x * scale if x[0].item() > 0 else x.sin()

    return Case(f, FIRST.clone(), others=[LIKE.clone(), SUM.clone(), AWAY.clone()])


def printed(x: Any) -> str:
    """What is printed, read back."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        print(x[1:])
    return text.getvalue()


def complained(x: Any) -> str:
    """The same, of the other stream."""
    with contextlib.redirect_stderr(io.StringIO()) as text:
        print(x[1:], file=sys.stderr)
    return text.getvalue()


def written(x: Any) -> str:
    """By a file's own method."""
    file = io.StringIO()
    file.write(repr(x[1:]))
    return file.getvalue()


def saved(x: Any) -> bytes:
    """As a file."""
    file = io.BytesIO()
    torch.save(x, file)
    return file.getvalue()


def loaded(x: Any) -> Any:
    """By a file and back."""
    file = io.BytesIO(saved(x))
    return torch.load(file)


def logged(x: Any) -> str:
    """By a logger."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logger = logging.Logger("odd.unseen")
    logger.addHandler(handler)
    logger.warning("value %s", x[1])
    return text.getvalue()


def warned(x: Any) -> str:
    """By a warning."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn(f"value {x[1]}", stacklevel=1)
    return str(seen[0].message)


def by_temporary_file(x: Any) -> float:
    """By the disk."""
    with tempfile.TemporaryFile() as file:
        np.save(file, x.numpy())
        file.seek(0)
        return float(np.load(file)[1])


def by_table(x: Any) -> float:
    """By a table of text."""
    file = io.StringIO()
    csv.writer(file).writerow(x.tolist())
    return float(file.getvalue().split(",")[1])


def digits(text: Any) -> float:
    """A number of a text that depends on all of it."""
    text = text if isinstance(text, bytes) else str(text).encode()
    return zlib.crc32(text) % 17


def sum_of(values: Any) -> float:
    """The sum of a few numbers."""
    return float(sum(values))


def raised(x: Any) -> str:
    """By an exception's text."""
    try:
        raise ValueError(f"no {x[1]}")
    except ValueError as error:
        return str(error)


READS: dict[str, Any] = dict(
    printed=lambda x: digits(printed(x)),
    printed_to_stderr=lambda x: digits(complained(x)),
    written=lambda x: digits(written(x)),
    text=lambda x: digits(str(x)),
    represented=lambda x: digits(repr(x)),
    formatted=lambda x: digits(f"{x[1]:.3f}"),
    formatted_whole=lambda x: digits(f"{x}"),
    percent=lambda x: digits("%s" % x),  # noqa: UP031 - this is what is tried
    pretty=lambda x: digits(pprint.pformat({"x": x})),
    listed=lambda x: x.tolist()[1],
    listed_sum=lambda x: sum_of(x.tolist()),
    numpy=lambda x: x.numpy()[1],
    numpy_mean=lambda x: np.mean(x.numpy()),
    numpy_function=lambda x: np.exp(x)[1],
    numpy_asarray=lambda x: np.asarray(x)[1],
    numpy_array_method=lambda x: x.__array__()[1],
    numpy_stacked=lambda x: np.stack([x, x])[0, 1],
    numpy_from_dlpack=lambda x: np.from_dlpack(x)[1],
    numpy_frombuffer=lambda x: np.frombuffer(x.numpy(), np.float32)[1],
    numpy_sorted=lambda x: np.argsort(x.numpy())[0],
    pickled=lambda x: digits(pickle.dumps(x)[-40:]) + pickle.loads(pickle.dumps(x))[1].item(),
    pickled_module=lambda x: digits(str(pickle.loads(pickle.dumps(nn.Parameter(x))).tolist())),
    saved=lambda x: digits(saved(x.clone())[-900:]),
    loaded=lambda x: loaded(x)[1],
    hashed=lambda x: int(hashlib.sha1(x.numpy().tobytes()).hexdigest(), 16) % 13,
    hashed_bytes=lambda x: hash(x.numpy().tobytes()) % 1 + zlib.adler32(x.numpy().tobytes()) % 13,
    crc=lambda x: zlib.crc32(memoryview(x.numpy())) % 13,
    encoded=lambda x: digits(base64.b64encode(x.numpy().tobytes())),
    bytes_read=lambda x: bytes(x.numpy())[7],
    storage_bytes=lambda x: bytes(x.untyped_storage())[7],
    storage_list=lambda x: x.untyped_storage().tolist()[7],
    storage_item=lambda x: x.untyped_storage()[7],
    unpacked=lambda x: struct.unpack("4f", x.numpy().tobytes())[1],
    in_array=lambda x: array.array("f", x.tolist())[1],
    memory=lambda x: memoryview(x.numpy())[1],
    pointed=lambda x: _pointed(x),
    json_text=lambda x: json.loads(json.dumps(x.tolist()))[1],
    csv_text=by_table,
    decimal_number=lambda x: decimal.Decimal(str(x.tolist()[1])) * 2,
    statistics_mean=lambda x: statistics.fmean(x.tolist()),
    math_sum=lambda x: math.fsum(x),
    math_hypot=lambda x: math.hypot(*x[1:]),
    maximum_of_iteration=lambda x: max(x),
    sorted_iteration=lambda x: sorted(x)[0],
    set_of_values=lambda x: len({v.item() for v in x.round()}),
    counted_values=lambda x: collections.Counter(x.sign().tolist())[1.0],
    equality=lambda x: 2.0 if torch.equal(x, x.abs()) else 3.0,
    closeness=lambda x: 2.0 if torch.allclose(x[1:], FIRST[1:]) else 3.0,
    membership=lambda x: 2.0 if 0.5 in x else 3.0,
    list_membership=lambda x: 2.0 if 0.5 in x.tolist() else 3.0,
    truth=lambda x: 2.0 if (x[1] > 0) else 3.0,
    all_of=lambda x: 2.0 if all(v > -2 for v in x) else 3.0,
    any_of=lambda x: 2.0 if any((x > 3).tolist()) else 3.0,
    count_of_nonzero=lambda x: x.round().count_nonzero(),
    length_of_nonzero=lambda x: len(x[x > 0]),
    unique_values=lambda x: len(x.round().unique()),
    index_of_maximum=lambda x: x.argmax(),
    index_by_value=lambda x: [2, 3, 5, 7][x.argmax()],
    range_by_value=lambda x: len(range(int(x[1].abs() * 4))),
    rounded=lambda x: round(float(x[1]), 1),
    floored=lambda x: math.floor(x[1]),
    float_of=lambda x: float(x[1]),
    int_of=lambda x: int(x[1] * 4),
    complex_of=lambda x: complex(x[1]).real,
    deep_copied=lambda x: copy.deepcopy(x).tolist()[1],
    logged=lambda x: digits(logged(x)),
    warned=lambda x: digits(warned(x)),
    raised=lambda x: digits(raised(x)),
    temporary_file=by_temporary_file,
    histogram=lambda x: torch.histc(x, 4)[1],
    to_list_of_view=lambda x: x[1:].tolist()[0],
    item_of_view=lambda x: x.view(2, 2)[0, 1].item(),
    data_item=lambda x: x.data[1].item(),
    shared_numpy=lambda x: _through_numpy(x),
    scripted=lambda x: _scripted()(x),
    number_of_characters=lambda x: len(str(x[1:].tolist())),
    printed_short=lambda x: digits(torch._tensor_str._tensor_str(x, 0)),
    of_module_repr=lambda x: digits(nn.ParameterList([nn.Parameter(x)])[0].__repr__()),
)
"""Reads of a tensor's later values, as numbers."""

BRANCHES: dict[str, Any] = dict(
    printed=lambda x: "-" in printed(x),
    numpy=lambda x: x.numpy()[1] > 0,
    numpy_any=lambda x: bool(np.any(np.asarray(x) > 3)),
    pickled=lambda x: pickle.loads(pickle.dumps(x))[1] > 0,
    hashed=lambda x: hashlib.sha1(x.numpy().tobytes()).digest()[0] % 2,
    listed=lambda x: x.tolist()[1] > 0,
    saved=lambda x: loaded(x)[1] > 0,
    equality=lambda x: torch.equal(x, FIRST),
    bytes=lambda x: x.numpy().tobytes() == FIRST.numpy().tobytes(),
    memory=lambda x: memoryview(x.numpy())[1] > 0,
    storage=lambda x: list(x.untyped_storage()) == list(FIRST.untyped_storage()),
    same_numpy=lambda x: np.array_equal(x.numpy(), FIRST.numpy()),
    close_numpy=lambda x: np.allclose(x, FIRST),
    compared_lists=lambda x: x.tolist() == FIRST.tolist(),
    compared_tuples=lambda x: tuple(x.tolist()) < (2.0, 0.0),
    dictionary=lambda x: x.tolist()[1] in {0.5: 1},
    matched=lambda x: _matches(x.tolist()),
    tested=lambda x: _asserted(x),
)
"""Questions about a tensor's later values."""

many(
    __name__,
    **{f"unseen_{name}": lambda read=read: beside(read) for name, read in READS.items()},
    **{f"unseen_branch_{name}": lambda read=read: after_branch(read) for name, read in BRANCHES.items()},
    **{
        f"unseen_first_{name}": lambda read=READS[name]: before_guard(read)
        for name in (
            "printed",
            "text",
            "numpy",
            "pickled",
            "saved",
            "hashed",
            "memory",
            "pointed",
            "storage_item",
            "logged",
        )
    },
    unseen_in_module=lambda: Case(
        module(lambda s: attributes(s, log=io.StringIO()), _module_prints), randn(3, 4), others=[randn(3, 4, seed=5)]
    ),
    unseen_parameter_text=lambda: Case(
        module(None, lambda s, x: x @ s.w * s.w[0, 0].item() + digits(str(s.w.detach()))), randn(3, 4)
    ),
    unseen_buffer_numpy=lambda: Case(
        module(
            lambda s: s.register_buffer("n", FIRST.clone()),
            lambda s, x: x @ s.w * float(s.n.numpy()[1]) * s.n[0].item(),
        ),
        randn(3, 4),
    ),
    unseen_closure_numpy=lambda: _closed_over(),
    unseen_mask_count=lambda: Case(_mask_count, FIRST.clone(), others=[LIKE.clone(), SUM.clone(), AWAY.clone()]),
    unseen_two_guards=lambda: Case(_two_guards, FIRST.clone(), others=[LIKE.clone(), SUM.clone(), AWAY.clone()]),
    unseen_guard_of_sum=lambda: Case(
        lambda x: x * x.sum().item() + float(x.detach().numpy()[3]), FIRST.clone(), others=[SUM.clone(), AWAY.clone()]
    ),
    unseen_guard_of_shape=lambda: Case(
        lambda x: x * len(x) + digits(printed(x.detach())), FIRST.clone(), others=[LIKE.clone(), AWAY.clone()]
    ),
    unseen_intermediate=lambda: Case(_intermediate, FIRST.clone(), others=[LIKE.clone(), AWAY.clone()]),
    unseen_of_second=lambda: Case(
        lambda x, y: x * x[0].item() + digits(str(y)),
        (FIRST.clone(), randn(3)),
        others=[(FIRST.clone(), randn(3, seed=3))],
    ),
    unseen_in_backward=lambda: Case(_in_backward, FIRST.clone(), others=[LIKE.clone(), AWAY.clone()]),
    unseen_in_hook=lambda: Case(_in_hook, FIRST.clone(), others=[LIKE.clone(), AWAY.clone()]),
    unseen_in_result_text=lambda: Case(
        lambda x: (x * x[0].item(), str(x.detach()[1:])), FIRST.clone(), others=[LIKE.clone(), AWAY.clone()]
    ),
    unseen_early_stop=lambda: Case(_early_stop, FIRST.clone(), others=[LIKE.clone(), SUM.clone(), AWAY.clone()]),
    unseen_beside_argmax=lambda: Case(
        _beside_argmax, FIRST.clone(), others=[torch.tensor([2.0, 1.0, 0.0, -4.0]), AWAY.clone()]
    ),
    unseen_of_random=lambda: Case(_of_random, FIRST.clone(), others=[LIKE.clone()]),
    unseen_of_dropout=lambda: Case(_of_dropout, FIRST.clone(), others=[LIKE.clone()]),
    unseen_of_integers=lambda: Case(
        lambda x, i: x * i[0].item() + sum(i.tolist()),
        (randn(3), torch.tensor([1, 2, 3])),
        others=[(randn(3), torch.tensor([1, 5, 3])), (randn(3), torch.tensor([2, 2, 3]))],
    ),
    unseen_of_booleans=lambda: Case(
        lambda x, m: x * (2 if m[0] else 3) + sum(m.tolist()),
        (randn(3), torch.tensor([True, False, True])),
        others=[(randn(3), torch.tensor([True, True, True])), (randn(3), torch.tensor([False, False, True]))],
    ),
    unseen_by_aot=lambda: beside(READS["numpy"], options=dict(engine="aot")),
    unseen_by_aot_specialized=lambda: beside(READS["numpy"], options=dict(engine="aot", specialize=True)),
    unseen_by_dynamo=lambda: beside(READS["numpy"], options=dict(engine="dynamo")),
    unseen_by_dynamo_printed=lambda: beside(READS["printed"], options=dict(engine="dynamo")),
)


def _pointed(x: Any) -> float:
    import ctypes

    return ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))[1]


def _through_numpy(x: Any) -> float:
    values = x.clone().numpy()
    values += 1
    return float(values[1])


@torch.jit.script
def _second(x: torch.Tensor) -> float:
    values: list[float] = x.tolist()
    return values[1]


def _scripted() -> Any:
    return _second


def _matches(values: Any) -> bool:
    match values:
        case [_, second, *_] if second > 0:
            return True
    return False


def _asserted(x: Any) -> bool:
    try:
        torch.testing.assert_close(x, FIRST)
    except AssertionError:
        return False
    return True


def _module_prints(self: Any, x: Any) -> Any:
    print(x.detach()[1], file=self.log)
    return x @ self.w * x[0, 0].item() + digits(self.log.getvalue())


def _closed_over() -> Case:
    c = FIRST.clone()
    return Case(lambda x: x * c[0].item() + float(c.numpy()[1]), randn(3), others=[randn(3, seed=4)])


def _mask_count(x: Any) -> Any:
    picked = x[x > 0]
    return picked * picked.detach().numpy().sum()


def _two_guards(x: Any) -> Any:
    a, b = x[0].item(), x.numel()
    c = json.dumps(x.detach().tolist())
    return x * a + b + len(c)


def _intermediate(x: Any) -> Any:
    y = x.sin()
    y[0].item()
    return y * float(y.detach().numpy().min())


class Reads(torch.autograd.Function):
    """Reads the gradient unseen."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        """As it is."""
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        """By a guarded value, and by an unseen one."""
        (x,) = ctx.saved_tensors
        return g * x[0].item() + digits(str(x.tolist()[1]))


def _in_backward(x: Any) -> Any:
    return Reads.apply(x) * 2


def _in_hook(x: Any) -> Any:
    y = x * 2
    if y.requires_grad:
        y.register_hook(lambda g: g * x[0].item() * float(x.detach().numpy()[1]))
    return y


def _early_stop(x: Any) -> Any:
    y = x
    for value in x.detach().numpy():
        if value < 0:
            break
        y = y * 2
    return y * x[0].item()


def _beside_argmax(x: Any) -> Any:
    return x[x.argmax().item()] * float(x.detach().numpy().min())


def _of_random(x: Any) -> Any:
    noise = torch.rand(4)
    return x * x[0].item() + noise * float(noise.numpy()[1])


def _of_dropout(x: Any) -> Any:
    y = nn.functional.dropout(x, 0.5)
    return y * x[0].item() + len(str(y.detach().tolist()))
