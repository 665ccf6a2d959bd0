"""Objects of C types whose state is no attribute: caches, buffers, text in memory, files, queues, locks.

A ContentKind reads the state of one type, and restores it. Restoring returns '' or why the state is not as it was,
which a warning then says. Of other C types, `fingerprint` returns what pickle would keep; a change of that is in the
warning too. Nothing is known of objects that have no buffer and cannot be pickled, such as sockets and reentrant locks.

What CPython keeps in an `lru_cache` is reached with `gc.get_referents`: the dictionary of its entries. Tried on
CPython 3.11 to 3.14; where it is not found, the cache is emptied instead.
"""

from __future__ import annotations

import array
import ctypes
import decimal
import functools
import gc
import io
import itertools
import os
import pickle
import queue
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

LARGE_BUFFER = 2**26
"""Arrays and buffers of more bytes are not copied; a warning says that one has changed."""


@dataclass(frozen=True, slots=True)
class ContentKind:
    """How the state of objects of one type is read and restored, and which other objects they hold."""

    read: Callable[[Any], Any]
    restore: Callable[[Any, Any], str]
    objects_in: Callable[[Any], Iterable[Any]] = lambda value: ()


# ---- Functools.lru_cache


def cache_entries(wrapper: Any) -> dict[Any, Any] | None:
    """Return the dictionary of an `lru_cache`: results by key, or links of a list if the cache has a `maxsize`."""
    info = wrapper.cache_info()
    own = vars(wrapper)
    linked = info.maxsize is not None
    for part in gc.get_referents(wrapper):
        if type(part) is not dict or part is own or len(part) != info.currsize:
            continue
        if not linked or all(type(link).__name__ == "_lru_list_elem" for link in part.values()):
            return part
    return None


def read_cache(wrapper: Any) -> tuple[Any, int, dict[Any, Any] | None]:
    entries = cache_entries(wrapper)
    return wrapper.cache_info(), ENTRIES_REMOVED.get(wrapper, 0), None if entries is None else dict(entries)


ENTRIES_REMOVED: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
"""How many entries `restore_cache` has taken out of each cache that has a `maxsize`."""


def objects_in_cache(wrapper: Any) -> list[Any]:
    """Return the keys and results of a cache, whose links have each key before its result."""
    entries = cache_entries(wrapper) or {}
    if wrapper.cache_info().maxsize is None:
        return [*entries, *entries.values()]
    parts, keys = gc.get_referents(wrapper), {id(key) for key in entries}
    return [*entries, *(result for key, result in itertools.pairwise(parts) if id(key) in keys)]


def restore_cache(wrapper: Any, state: tuple[Any, int, dict[Any, Any] | None]) -> str:
    """Take out the entries that a run has put into a cache, and put back those that it has taken out.

    A cache with a `maxsize` reuses the link of an entry that it pushes out, so such an entry is lost.
    """
    before, removed_before, entries = state
    info, now = wrapper.cache_info(), cache_entries(wrapper)
    if now is None or entries is None:
        if info.misses != before.misses:
            wrapper.cache_clear()
        return "all of its entries were dropped" if before.currsize and info.misses != before.misses else ""
    intact = all(now.get(key) is entry for key, entry in entries.items())
    if intact and len(now) == len(entries) and (before.maxsize is None or info.misses == before.misses):
        return ""  # a link may have been used again if there were misses
    if not entries:
        wrapper.cache_clear()
        return ""
    if before.maxsize is None:
        now.clear()
        now.update(entries)
        return ""
    removed_before = ENTRIES_REMOVED.get(wrapper, 0) - removed_before
    if intact and len(entries) + info.misses - before.misses - removed_before <= before.maxsize:
        added = [key for key in now if key not in entries]
        for key in added:
            del now[key]
        ENTRIES_REMOVED[wrapper] = ENTRIES_REMOVED.get(wrapper, 0) + len(added)
        return ""
    wrapper.cache_clear()
    return "some of its entries were pushed out, so all were dropped"


# ---- Text and bytes in memory, files


def read_memory_file(file: Any) -> Any:
    return None if file.closed else file.__getstate__()[:-1]


def restore_memory_file(file: Any, state: Any) -> str:
    if state is None:
        return ""
    if file.closed:
        return "it was closed"
    if file.__getstate__()[:-1] != state:
        try:
            file.__setstate__((*state, None))
        except BufferError:
            return "it was written to while its buffer is in use"
    return ""


def read_file(file: Any) -> tuple[int, int] | None:
    """Return a file's position and, if it can be written, its size; None for one that is closed or has no position."""
    if file.closed or file in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__) or not file.seekable():
        return None
    return file.tell(), file_size(file)


def file_size(file: Any) -> int:
    if not file.writable():
        return -1
    file.flush()
    try:
        return os.fstat(file.fileno()).st_size
    except OSError:
        return -1


def restore_file(file: Any, state: tuple[int, int] | None) -> str:
    if state is None:
        return ""
    if file.closed:
        return "it was closed"
    place, size = state
    if size != (now := file_size(file)):
        return f"it has {now:,} bytes and had {size:,}"
    try:
        is_elsewhere = file.tell() != place
    except OSError:  # a text file has no position between two calls of next(); its end gives it one again
        file.seek(0, os.SEEK_END)
        next(file, None)
        is_elsewhere = True
    if is_elsewhere:
        file.seek(place)
    return ""


# ---- Arrays and queues


def restore_array(value: Any, state: Any) -> str:
    if value.tobytes() != state.tobytes():
        try:
            value[:] = state
        except BufferError:
            return "its length changed while its buffer is in use"
    return ""


def queue_items(value: Any) -> list[Any]:
    """Return what a queue holds; it is put in again."""
    items = []
    while True:
        try:
            items.append(value.get_nowait())
        except queue.Empty:
            break
    for item in items:
        value.put(item)
    return items


def restore_queue(value: Any, state: list[Any]) -> str:
    now = queue_items(value)
    if len(now) != len(state) or any(left is not right for left, right in zip(now, state, strict=True)):
        for _ in now:
            value.get_nowait()
        for item in state:
            value.put(item)
    return ""


def restore_memory(value: Any, state: bytes) -> str:
    if ctypes.sizeof(value) != len(state):
        return "its size changed"
    ctypes.memmove(ctypes.addressof(value), state, len(state))
    return ""


def read_storage(storage: torch.UntypedStorage) -> torch.UntypedStorage | None:
    """Return a copy of a storage's bytes; None if they are many, or if it is on no device that has any."""
    return storage.clone() if storage.nbytes() <= LARGE_BUFFER and storage.device.type != "meta" else None


def restore_storage(storage: torch.UntypedStorage, content: torch.UntypedStorage | None) -> str:
    if content is not None:
        if storage.nbytes() != content.nbytes():
            storage.resize_(content.nbytes())
        storage.copy_(content)
    return ""


# ---- Locks and decimal contexts


def restore_lock(lock: Any, locked: bool) -> str:
    """Release a lock that the run took, or take one that it released, unless other threads run, which may have it."""
    if lock.locked() != locked:
        if other_threads_run():
            return "it was taken or released, while other threads ran"
        if locked:
            lock.acquire(blocking=False)
        else:
            lock.release()
    return ""


def other_threads_run() -> bool:
    """Whether a thread is at work that is not this one. Workers of an executor that wait for work are not: a compiler
    leaves such threads in a process that has compiled."""
    others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
    return any(not waits_for_work(frame) for ident, frame in sys._current_frames().items() if ident in others)


def waits_for_work(frame: types.FrameType) -> bool:
    """Whether a thread whose innermost frame this is waits for what is submitted to its executor."""
    return (frame.f_globals.get("__name__"), frame.f_code.co_name) == ("concurrent.futures.thread", "_worker")


CONTEXT_ATTRIBUTES = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def read_context(context: decimal.Context) -> tuple[Any, ...]:
    on = [tuple(name for name, is_on in table.items() if is_on) for table in (context.flags, context.traps)]
    return tuple(getattr(context, name) for name in CONTEXT_ATTRIBUTES), *on


def restore_context(context: decimal.Context, state: tuple[Any, ...]) -> str:
    for name, value in zip(CONTEXT_ATTRIBUTES, state[0], strict=True):
        setattr(context, name, value)
    for table, on in ((context.flags, state[1]), (context.traps, state[2])):
        for kind in table:
            table[kind] = kind in on
    return ""


CONTENT_KINDS: dict[Any, ContentKind] = {
    functools._lru_cache_wrapper: ContentKind(read_cache, restore_cache, objects_in_cache),
    io.StringIO: ContentKind(read_memory_file, restore_memory_file),
    io.BytesIO: ContentKind(read_memory_file, restore_memory_file),
    tempfile.SpooledTemporaryFile: ContentKind(
        lambda file: None, lambda file, state: ""
    ),  # its attributes are its state
    io.IOBase: ContentKind(read_file, restore_file),
    type(threading.Lock()): ContentKind(lambda lock: lock.locked(), restore_lock),
    decimal.Context: ContentKind(read_context, restore_context),
    torch.UntypedStorage: ContentKind(read_storage, restore_storage),
    array.array: ContentKind(lambda value: value[:], restore_array),
    queue.SimpleQueue: ContentKind(queue_items, restore_queue, queue_items),
    ctypes.c_int.__mro__[-2]: ContentKind(
        lambda value: ctypes.string_at(ctypes.addressof(value), ctypes.sizeof(value)), restore_memory
    ),
}
"""How the state of each type is kept; the first that fits counts."""


@functools.cache
def content_kind(kind: Any) -> ContentKind | None:
    """Return how objects of a type are kept; None if their attributes and elements are all of their state."""
    return next((row for base, row in CONTENT_KINDS.items() if issubclass(kind, base)), None)


# ---- Other C types


def writable_buffer(value: Any) -> memoryview | None:
    """Return the bytes of an object that others can write to (a memoryview, mmap), if it has such."""
    try:
        view = memoryview(value)
        return None if view.readonly or not view.contiguous or not view.nbytes else view.cast("B")
    except (TypeError, ValueError, BufferError):
        return None


def fingerprint(value: Any) -> Any:
    """Return what pickle would keep of an object; None if pickle cannot."""
    try:
        return pickle.dumps(value, 4)
    except Exception:  # whatever a stranger's object raises, it cannot be compared
        return None
