"""A Snapshot of everything that a program can reach, with how each thing is restored.

It searches everything that a callable, its arguments, its closure and the globals that it names lead to, in its own
module and in others of the user's. It remembers the content of plain containers and of numpy arrays, the attributes of
objects and of the user's classes, every tensor (its memory, its content, its gradient, its hooks) and the state of
every random generator. `Snapshot.restore` restores all of it, and touches only what differs.

A Place is where a program keeps a value: an attribute table, a list, an array. It can read the value and write it back:
its classes say what it is of (`Content` a tensor, `Array` a NumPy array, `Generator` a random generator, `Attributes`
an object, `Unseen` an object of a C type whose state cannot be read). `place.owner` is that object, and `place.name`
its name in messages. `untraced()` turns autograd and all modes off.

Anything else that a run changes is the program's own: a capture runs it several times. Where such a change is cheap to
see (`named`), it is in `Snapshot.lost`. Left out are threads, sockets, logging, and objects behind the modules of
installed packages; of containers with more than `MAX_ELEMENTS` elements, only the elements themselves are kept.

A program that holds an iterator is refused before it runs: each run uses it up, and Python cannot set it back.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from backprint._torch.distributed import resharding
from backprint.errors import CaptureError
from backprint.trace.state.named import named_kind
from backprint.trace.state.tensors import TensorSnapshot, untraced
from backprint.values.objects import (
    CACHE,
    Array,
    Attributes,
    Content,
    Generator,
    Place,
    Unseen,
    Walk,
    class_of,
    is_iterator,
    module_of,
)

LARGE_ARRAY = 2**26
"""NumPy arrays of more bytes are compared, not copied."""

STATELESS = frozenset(("backprint", "enum", "typing", "inspect", "re", "logging", "numpy", "_pytest", "pytest"))
"""Packages whose objects are never named as possibly changed."""

MAX_SUSPECTS = 8
"""The most objects that are named as possibly changed."""


class Snapshot:
    """Everything that was reachable from the roots, as it was. A root is an object with its name in messages.

    `walk` has the objects that were found. `places` and `tensors` are restored one by one; `tensors_by_id` has the
    latter by the tensor's id. `copied_storages` are the storages whose content is kept, by identity. `generators` are
    random generators with their names, and `arrays` NumPy arrays. `undo` are functions that restore state which no
    Place describes. `iterators` are the iterators that were reached. `checks` compare state that is not restored, and
    `lost` describes the changes that they found, by the object's id. `suspects` are objects, with their names, whose
    state cannot even be compared.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]]) -> None:
        """Remember everything that the roots lead to. A root is an object after its name in messages."""
        self.walk = Walk()
        self.places: list[Place] = []
        self.undo: list[Callable[[], Any]] = []
        self.tensors: list[TensorSnapshot] = []
        self.tensors_by_id: dict[int, TensorSnapshot] = {}
        self.copied_storages: set[int] = set()
        self.generators: list[tuple[str, Any]] = []
        self.arrays: list[Any] = []
        self.iterators: list[tuple[str, Any]] = []
        self.checks: list[Callable[[], None]] = []
        self.lost: dict[int, str] = {}
        self.suspects: dict[int, str] = {}
        self.search(roots)

    def search(self, roots: Iterable[tuple[str, Any]]) -> None:
        """Remember everything that these roots lead to as well."""
        with untraced():
            for place in self.walk.places(roots):
                self.enter(place)
            self.copy_small()

    def enter(self, place: Place) -> None:
        """Remember the value of a Place; of one that cannot be restored, what is needed to see a change."""
        match place:
            case Content(owner=tensor, name=name):
                self.add_tensor(name, tensor)
                return
            case Unseen(owner=value, name=name):
                self.enter_unseen(name, value)
                return
            case Array(owner=array, name=name):
                self.arrays.append(array)
                # Neither the program nor `restore` can write to a read-only array.
                if not array.flags.writeable:
                    return
                # The layout (shape, strides, dtype) cannot be restored; the elements of a large array are only
                # compared, by a checksum of its bytes in the order of memory ("A").
                self.check(name, array, lambda _: place.layout(), "its layout was changed")
                if array.nbytes > LARGE_ARRAY:
                    self.check(name, array, lambda array: zlib.crc32(array.tobytes("A")), "it was changed")
                    return
            case Generator(owner=source, name=name):
                self.generators.append((name, source))
            # By `type`: `isinstance` would ask an object for its `__class__`, which may run code of the user's.
            case Attributes(owner=module) if issubclass(type(module), nn.Module):
                # Of a module of FSDP2, the function that shards its parameters again.
                if (reshard := resharding(module)) is not None:
                    self.undo.append(reshard)
        place.value()  # the Place remembers the value that it has read
        self.places.append(place)

    def enter_unseen(self, name: str, value: Any) -> None:
        """Remember what can be known of an Unseen, an object of a C type that is not restored: the state that can be
        read and compared at the end, else only that the object is there (a suspect)."""
        if is_iterator(value):
            self.iterators.append((name, value))
        elif isinstance(value, CACHE):
            self.enter_cache(name, value)
        elif (kind := named_kind(class_of(value))) is not None:
            self.check(name, value, kind.read, kind.change)
        else:
            self.note_suspect(name, value)

    def enter_cache(self, name: str, cache: Any) -> None:
        """Remember how often an `lru_cache` was filled. A cache that a run has filled is emptied, because the new
        entries may be tensors of a trace."""
        before = cache.cache_info()
        # Each miss makes an entry. `restore` may run several times: `misses[-1]` is the counter of misses after the
        # last time, which `cache_clear` sets to 0. It is a list, so that `undo` can change it.
        misses = [before.misses]

        def undo() -> None:
            if cache.cache_info().misses != misses[-1]:
                cache.cache_clear()
                misses.append(0)
                if before.currsize:
                    self.note_lost(name, cache, "it was emptied, as the runs had put entries there")

        self.undo.append(undo)

    def add_tensor(self, name: str, tensor: Tensor) -> None:
        """Remember a tensor, but not yet its content."""
        kept_tensor = TensorSnapshot(name, tensor)
        self.tensors.append(kept_tensor)
        self.tensors_by_id[id(tensor)] = kept_tensor

    def add(self, name: str, tensor: Tensor, whole: bool = False) -> TensorSnapshot:
        """Remember a tensor under its name in messages, if it is not yet; with `whole`, also its content, whatever its
        size. Return its state."""
        if id(tensor) not in self.tensors_by_id:
            self.add_tensor(name, tensor)
        kept = self.tensors_by_id[id(tensor)]
        if whole and kept.memory not in self.copied_storages:
            self.copied_storages.add(kept.memory)
            kept.copy()
        return kept

    def copy_small(self) -> None:
        """Keep the content of all tensors but large parameters, each storage once. A large parameter is copied when it
        is known to be written (`add`)."""
        for tensor in self.tensors:
            # A write through a NumPy array bumps no version counter, so content that an array shares is always kept.
            if tensor.memory not in self.copied_storages and (
                not tensor.is_large or tensor.uses_memory_of(self.arrays)
            ):
                self.copied_storages.add(tensor.memory)
                tensor.copy()

    def restore(self) -> None:
        """Restore everything."""
        with untraced():
            # `undo` first: resharding may replace the parameters of a module, which are restored below.
            for undo in self.undo:
                undo()
            for place in self.places:
                try:
                    place.restore()  # writes the value back if it is another
                except BufferError:
                    # A bytearray cannot be resized while a memoryview or an array uses its buffer.
                    self.note_lost(place.name, place.owner, "its length was changed while its buffer is in use")
            for tensor in self.tensors:
                tensor.restore()
                if tensor.address_now() != tensor.address:
                    self.note_lost(
                        tensor.name, tensor.tensor, "its storage was freed; its values are back at another address"
                    )

    def close(self) -> None:
        """Compare the state that is not restored, and note what has changed in `lost`."""
        for check in self.checks:
            check()

    def refuse_iterators(self, title: str) -> None:
        """Refuse the program `title` if it holds an iterator."""
        for name, value in self.iterators[:1]:
            raise CaptureError(
                f"{title} holds an iterator ({' '.join((type(value).__name__, name)).strip()}), which each run uses "
                f"up, and Python cannot set it back: pass its items as an argument",
                every_engine=True,
            )

    # ---- What is not restored

    def check(self, name: str, value: Any, read: Callable[[Any], Any], change: str) -> None:
        """Read a part of an object that is not restored, and compare it at the end (`close`); `change` is what to say
        of the object if it differs then."""
        before = read(value)
        self.checks.append(lambda: None if read(value) == before else self.note_lost(name, value, change))

    def note_lost(self, name: str, value: Any, why: str) -> None:
        """Note a change that is not restored."""
        self.lost[id(value)] = f"{name} ({type(value).__name__}): {why}".lstrip()

    def note_suspect(self, name: str, value: Any) -> None:
        """Note an object whose state cannot be compared: it is named where a program does not repeat its results."""
        kind = type(value)
        is_known = _is_immutable(kind) or module_of(kind).partition(".")[0] in STATELESS
        if len(self.suspects) < MAX_SUSPECTS and not is_known:
            self.suspects[id(value)] = f"{name} ({kind.__module__}.{kind.__qualname__})".lstrip()

    def note_suspects_as_lost(self) -> None:
        """Note in `lost` every object whose state cannot be compared, as perhaps changed.

        For a program that does not repeat its results: a run has changed one of these objects, or a file, or something
        else outside of Python.
        """
        for key, text in self.suspects.items():
            self.lost.setdefault(key, f"{text}: perhaps, its state cannot be compared")
        if not self.lost:
            used = ", ".join(sorted(self.walk.libraries - {"backprint"})[:MAX_SUSPECTS])
            # No object has the id 0.
            self.lost[0] = f"something that Backprint does not see, perhaps a file{used and ', or in ' + used}"


def _is_immutable(kind: Any) -> bool:
    """Whether objects of a C type have no state that anyone could change, as far as is known."""
    return kind is object or kind.__module__ in ("types", "torch") or issubclass(kind, BaseException)
