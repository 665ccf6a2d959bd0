"""State outside Python's own objects: in C structures, descriptors of the system, other threads and processes."""

import asyncio
import codecs
import contextvars
import csv
import ctypes
import gzip
import hashlib
import heapq
import io
import mmap
import multiprocessing
import os
import pickle
import queue
import re
import socket
import sqlite3
import struct
import subprocess
import tempfile
import threading
import weakref
import xml.etree.ElementTree as ET
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from case import Case, attributes, module, program, randn
from case import many as put
from torch import nn

CONTEXT_LEVEL = contextvars.ContextVar("odd_outside_level", default=1)


def many(**builders: Any) -> None:
    """Each twice: in a closure, and in an attribute of a module."""
    for name, (make, f) in builders.items():
        put(__name__, **{f"outside_{name}": lambda make=make, f=f: kept(make, f)})


def kept(make: Callable[[], Any], f: Any, **more: Any) -> Case:
    """A function that closes over something of its own."""
    held = make()
    return Case(lambda x: f(x, held), randn(3, 4), others=[randn(3, 4, seed=5)], **more)


def owned(make: Callable[[], Any], f: Any, **more: Any) -> Case:
    """A module that has it."""
    held = make()
    return Case(
        module(lambda s: attributes(s, held=held), lambda s, x: f(x @ s.w, s.held)),
        randn(3, 4),
        others=[randn(3, 4, seed=5)],
        **more,
    )


def then(*lines: Any) -> Any:
    """The last of several values."""
    return lines[-1]


class Record(ctypes.Structure):
    """Two numbers in C."""

    _fields_ = (("count", ctypes.c_int), ("scale", ctypes.c_float))


def _ctypes_array(x: Any, a: Any) -> Any:
    a[0] += 1
    return x * a[0]


def _ctypes_record(x: Any, r: Any) -> Any:
    r.count += 1
    return x * r.count * r.scale


def _database() -> Any:
    base = sqlite3.connect(":memory:", check_same_thread=False)
    base.execute("create table steps (n integer)")
    base.execute("insert into steps values (1)")
    return base


def _database_step(x: Any, base: Any) -> Any:
    base.execute("insert into steps values (2)")
    return x * base.execute("select count(*) from steps").fetchone()[0]


def _cursor() -> Any:
    return _database().execute(
        "with recursive c(n) as (select 1 union all select n + 1 from c limit 99) select n from c"
    )


def _pipe() -> Any:
    read, write = os.pipe()
    os.write(write, bytes(range(2, 60)))
    os.close(write)
    return read


def _sockets() -> Any:
    here, there = socket.socketpair()
    here.sendall(bytes(range(2, 60)))
    return here, there


def _map_step(x: Any, m: Any) -> Any:
    m[0] += 1
    return x * m[0]


def _numpy_map() -> Any:
    with tempfile.NamedTemporaryFile() as file:
        made = np.memmap(file.name, dtype=np.float32, mode="w+", shape=(3,))
    made[:] = 2
    return made


def _numpy_step(x: Any, a: Any) -> Any:
    a += 1
    return x * float(a[0])


def _spooled() -> Any:
    file = tempfile.SpooledTemporaryFile()  # noqa: SIM115
    file.write(bytes(range(2, 60)))
    file.seek(0)
    return file


def _zipped() -> Any:
    space = io.BytesIO()
    with zipfile.ZipFile(space, "w") as archive:
        archive.writestr("a", bytes(range(2, 60)))
    return zipfile.ZipFile(space).open("a")


class Worker:
    """A thread that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: Any = queue.Queue()
        self.told: Any = queue.Queue()
        threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        """Answers with a number that grows."""
        count = 1
        while self.asked.get() is not None:
            count += 1
            self.told.put(count)

    def ask(self) -> int:
        """The next number."""
        self.asked.put(1)
        return self.told.get()


def _child() -> Any:
    script = "i=1; while read line; do i=$((i+1)); echo $i; done"
    return subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _child_step(x: Any, child: Any) -> Any:
    child.stdin.write(b"a\n")
    child.stdin.flush()
    return x * int(child.stdout.readline())


def _shared_step(x: Any, v: Any) -> Any:
    v.value += 1
    return x * v.value


def _element_step(x: Any, e: Any) -> Any:
    e.append(ET.Element("n"))
    e.set("count", str(len(e)))
    return x * float(e.get("count"))


def _pickles() -> Any:
    return pickle.Unpickler(io.BytesIO(b"".join(pickle.dumps(n) for n in range(2, 30))))


def _future_step(x: Any, f: Any) -> Any:
    if f.done():
        return x * 3
    f.set_result(2)
    return x * (f.value() if isinstance(f, torch.futures.Future) else f.result())


def _finalizer() -> Any:
    class Owner:
        pass

    owner = Owner()
    return owner, weakref.finalize(owner, int)


def _finalizer_step(x: Any, pair: Any) -> Any:
    scale = 2 if pair[1].alive else 3
    pair[1]()
    return x * scale


def _coroutine() -> Any:
    class Wait:
        def __await__(self) -> Any:
            yield from range(2, 40)

    async def work() -> Any:
        await Wait()

    return work()


def _async_generator() -> Any:
    async def numbers() -> Any:
        for n in range(2, 40):
            yield n

    return numbers()


def _asked(generator: Any) -> Any:
    try:
        generator.__anext__().send(None)
    except StopIteration as stop:
        return stop.value


def _context_step(x: Any, context: Any) -> Any:
    context.run(lambda: CONTEXT_LEVEL.set(CONTEXT_LEVEL.get() + 1))
    return x * context[CONTEXT_LEVEL]


def _context() -> Any:
    made = contextvars.Context()
    made.run(CONTEXT_LEVEL.set, 1)
    return made


def _released(x: Any, view: Any) -> Any:
    try:
        scale = view[0]
    except ValueError:
        return x * 9
    view.release()
    return x * scale


def _script_list_step(x: Any, numbers: Any) -> Any:
    numbers.append(3)
    return x * len(numbers)


def _storage_step(x: Any, s: Any) -> Any:
    s[0] = s[0] + 1
    return x * s[0]


def _seeds_step(x: Any, seeds: Any) -> Any:
    child = seeds.spawn(1)[0]
    return x * float(child.generate_state(1)[0] % 7 + 1) + child.spawn_key[0]


def _flat_step(x: Any, flat: Any) -> Any:
    return x * float(next(flat))


def _decoder_step(x: Any, decoder: Any) -> Any:
    return x * (len(decoder.decode(b"\xe2\x82\xac"[:2])) + 2) + len(decoder.decode(b"\xac"))


def _half_decoded(x: Any, decoder: Any) -> Any:
    said = decoder.decode(b"\xe2")
    return x * (2 + decoder.getstate()[0].__len__() + len(said))


def _inflated() -> Any:
    made = zlib.decompressobj()
    return made, zlib.compress(bytes(range(2, 60)))


def _inflate_step(x: Any, pair: Any) -> Any:
    inflating, packed = pair
    taken = inflating.decompress(inflating.unconsumed_tail or packed, 1)
    return x * taken[0]


def _text_over_bytes() -> Any:
    return io.TextIOWrapper(io.BytesIO("\n".join(map(str, range(2, 40))).encode()))


def _buffered() -> Any:
    return io.BufferedReader(io.BytesIO(bytes(range(2, 60))))


def _gzipped() -> Any:
    return gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(bytes(range(2, 60)))))


def _folder() -> Any:
    folder = tempfile.mkdtemp()
    for name in "ab":
        with open(os.path.join(folder, name), "w") as file:
            file.write(name)
    return os.scandir(folder)


many(
    ctypes_array=(lambda: (ctypes.c_int * 2)(1, 2), _ctypes_array),
    ctypes_record=(lambda: Record(1, 2.0), _ctypes_record),
    ctypes_text=(
        lambda: ctypes.create_string_buffer(b"\x02\x03"),
        lambda x, b: then(setattr(b, "raw", bytes(v + 1 for v in b.raw)), x * b.raw[0]),
    ),
    hash_object=(hashlib.sha1, lambda x, h: then(h.update(b"a"), x * (h.digest()[0] % 7 + 1))),
    database=(_database, _database_step),
    database_cursor=(_cursor, lambda x, c: x * c.fetchone()[0]),
    pipe=(_pipe, lambda x, fd: x * os.read(fd, 1)[0]),
    socket=(_sockets, lambda x, s: x * s[1].recv(1)[0]),
    memory_map=(lambda: mmap.mmap(-1, 16), _map_step),
    memory_map_position=(
        lambda: then(m := mmap.mmap(-1, 16), m.write(b"abcdefgh"), m.seek(0), m),
        lambda x, m: x * (m.read_byte() - 95),
    ),
    numpy_map=(_numpy_map, _numpy_step),
    spooled_file=(_spooled, lambda x, f: x * f.read(1)[0]),
    text_over_bytes=(_text_over_bytes, lambda x, f: x * int(f.readline())),
    buffered_reader=(_buffered, lambda x, f: x * f.read(1)[0]),
    gzip_file=(_gzipped, lambda x, f: x * f.read(1)[0]),
    zip_member=(_zipped, lambda x, f: x * f.read(1)[0]),
    csv_reader=(lambda: csv.reader(["2,3", "4,5", "6,7"] * 9), lambda x, r: x * float(next(r)[0]) + r.line_num),
    unpacked=(lambda: struct.iter_unpack("B", bytes(range(2, 60))), lambda x, i: x * next(i)[0]),
    matches=(lambda: re.finditer(r"\d", "23456789" * 4), lambda x, i: x * int(next(i).group())),
    scanner=(lambda: re.compile(r"\d").scanner("23456789" * 4), lambda x, s: x * int(s.match().group())),
    scanned_folder=(_folder, lambda x, i: x * (2 if next(i, None) is not None else 3)),
    numpy_flat=(lambda: np.arange(2.0, 50.0).flat, _flat_step),
    numpy_enumerated=(lambda: np.ndenumerate(np.arange(2.0, 50.0)), lambda x, i: x * float(next(i)[1])),
    numpy_nditer=(lambda: np.nditer(np.arange(2.0, 50.0)), lambda x, i: x * float(next(i))),
    numpy_broadcast=(lambda: np.broadcast(np.arange(2.0, 50.0), 3.0), lambda x, i: x * float(next(i)[0])),
    merged=(lambda: heapq.merge([2, 4, 6, 8, 10, 12], [3, 5, 7, 9, 11]), lambda x, i: x * next(i)),
    seed_sequence=(lambda: np.random.SeedSequence(3), _seeds_step),
    spawning_generator=(lambda: np.random.default_rng(3), lambda x, g: x * float(g.spawn(1)[0].random())),
    asyncio_queue=(
        lambda: then(q := asyncio.Queue(), [q.put_nowait(n) for n in range(2, 30)], q),
        lambda x, q: x * q.get_nowait(),
    ),
    thread=(Worker, lambda x, w: x * w.ask()),
    child=(_child, _child_step),
    shared_value=(lambda: multiprocessing.Value("i", 1), _shared_step),
    raw_shared_array=(lambda: multiprocessing.RawArray("i", [1, 2]), _ctypes_array),
    element=(lambda: ET.Element("root"), _element_step),
    pickles=(_pickles, lambda x, u: x * u.load()),
    torch_future=(torch.futures.Future, _future_step),
    python_future=(lambda: asyncio.new_event_loop().create_future(), _future_step),
    finalizer=(_finalizer, _finalizer_step),
    coroutine=(_coroutine, lambda x, c: x * c.send(None)),
    async_generator=(_async_generator, lambda x, g: x * _asked(g)),
    context=(_context, _context_step),
    view_released=(lambda: memoryview(bytearray(b"\x02\x03")), _released),
    script_list=(lambda: torch.jit.script([1, 2]), _script_list_step),
    script_dict=(lambda: torch.jit.script({"a": 1}), lambda x, d: then(d.__setitem__("a", d["a"] + 1), x * d["a"])),
    storage_held=(lambda: torch.UntypedStorage(4).fill_(1), _storage_step),
    half_decoded=(lambda: codecs.getincrementaldecoder("utf-8")(), _half_decoded),
    inflating=(_inflated, _inflate_step),
)

put(
    __name__,
    outside_owned_database=lambda: owned(_database, _database_step),
    outside_owned_record=lambda: owned(lambda: Record(1, 2.0), _ctypes_record),
    outside_owned_map=lambda: owned(lambda: mmap.mmap(-1, 16), _map_step),
    outside_owned_hash=lambda: owned(hashlib.sha1, lambda x, h: then(h.update(b"a"), x * (h.digest()[0] % 7 + 1))),
    outside_owned_shared_value=lambda: owned(lambda: multiprocessing.Value("i", 1), _shared_step),
)


@program
def outside_script_module_state() -> Case:
    """A scripted module that counts in a buffer and in an attribute."""

    class Counts(nn.Module):
        calls: int

        def __init__(self) -> None:
            super().__init__()
            self.calls = 1
            self.register_buffer("total", torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.total += x.detach().sum(0)
            return x * self.calls * self.total

    scripted = torch.jit.script(Counts())
    return Case(module(lambda s: attributes(s, inner=scripted), lambda s, x: s.inner(x @ s.w)), randn(3, 4))
