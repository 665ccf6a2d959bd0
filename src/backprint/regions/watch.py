"""Seeing what is made inside open blocks: every autograd node, and every operator.

Torch asks `torch.fx.traceback.format_stack` for a text whenever a node is made while anomaly mode is on, in the thread
that makes it, and keeps what it gets in the node's metadata. While a block is open anywhere, anomaly mode is on for
that, and the function is ours: what it gives is a `Record`, by which a node is known later, wherever it is met. Users
see anomaly mode as they set it. A dispatch mode, in threads with an open block, sees the operators. Backward calls go
through `torch.autograd.graph._engine_run_backward`, which is ours as long as a recorded node lives.

The installs are for the whole process, counted, and gone with the last that needs them. Private torch APIs of this
module, tried on torch 2.11 to 2.14: `fx.traceback.format_stack` and `should_preserve_node_meta`, `set_anomaly_enabled`
and its two questions, `autograd.graph._engine_run_backward`, `Function.apply`, `_pop_mode`, `_push_mode`,
`_get_dispatch_mode`, `_DisableTorchDispatch`.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any, Protocol

import torch
import torch.autograd.graph as autograd_graph
import torch.fx.traceback as fx_traceback
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode, _pop_mode, _push_mode

from backprint.capture.frames import is_users
from backprint.regions import origins
from backprint.regions.nouns import Line

KEYS = torch._C._TorchDispatchModeKey

DEEPEST = 100
"""How many frames of a stack are kept."""

Frames = tuple[tuple[CodeType, int], ...]


class Watched(Protocol):
    """What an open block tells: a node was made, an operator ran; and what is told of it when nodes have died."""

    stacks: bool
    watches: bool

    def made(self, made: Made) -> None:
        """A node was made."""

    def ran(self, ran: Ran) -> None:
        """An operator ran."""

    def went_bad(self, ran: Ran) -> None:
        """An operator gave NaN or Inf."""

    def failed(self, error: Exception) -> None:
        """Something of ours went wrong."""

    def died(self, made: list[Made]) -> None:
        """Nodes are gone."""


class Ran:
    """An operator that ran: its name, its line, and the nodes that were made for it.

    `source` says where NaN or Inf come from that it took or gave, `gives` that it gave some; `taken` is the tensor that
    it had them from, and `title` what that was called.
    """

    __slots__ = ("frame", "gives", "name", "nodes", "rank", "source", "taken", "title", "view")

    def __init__(self, func: Any, frame: tuple[CodeType, int] | None, nodes: tuple[Made, ...]) -> None:
        self.name, self.frame, self.nodes, self.view = str(func), frame, nodes, bool(func.is_view)
        self.rank: dict[int, int] = {}
        self.source: origins.Source | None = None
        self.gives = False
        self.taken: weakref.ref[Tensor] | None = None
        self.title = ""

    @property
    def packet(self) -> str:
        """`mul`, of `aten.mul_.Tensor`."""
        return self.name.split(".")[1].rstrip("_") if "." in self.name else self.name


class Made:
    """A node that was made, without the node: its stack, and the operators that ran before, after and within it.

    `of` is the node whose backward made it, where that was recorded. `touched` says that a pass could reach it.
    """

    __slots__ = ("after", "apply", "before", "frames", "of", "outputs", "seq", "touched", "within")

    def __init__(self, seq: int, frames: Frames, before: Ran | None, of: tuple[str, Made] | None = None) -> None:
        self.seq, self.frames, self.before, self.of = seq, frames, before, of
        self.after: list[Ran] = []
        self.touched = False
        self.within: list[Ran] = []
        self.apply: FrameType | None = None
        self.outputs: dict[int, str] = {}

    @property
    def stack(self) -> tuple[Line, ...]:
        """The Python stack, outermost first."""
        return tuple(line_of(frame) for frame in reversed(self.frames))

    @property
    def line(self) -> Line | None:
        """The innermost line of the user's."""
        found = next((frame for frame in self.frames if is_users(frame[0].co_filename)), None)
        return line_of(found) if found else None


@functools.lru_cache(maxsize=4096)
def line_of(frame: tuple[CodeType, int]) -> Line:
    """Where a frame was."""
    code, place = frame
    line = next((line for start, end, line in code.co_lines() if start <= place < end and line), code.co_firstlineno)
    return Line(code.co_filename, line, code.co_qualname)


class Record(list[str]):
    """What torch keeps in a node's metadata for us. It is a list of texts, as anomaly mode prints it."""

    __slots__ = ("cores", "made")

    def __init__(self, made: Made, cores: tuple[Watched, ...], texts: Iterable[str]) -> None:
        super().__init__(texts)
        self.made, self.cores = made, cores

    def __del__(self) -> None:
        _dead.append((self.made, self.cores))
        bury()


class Here(threading.local):
    """What is open in this thread, and what was last seen in it."""

    def __init__(self) -> None:
        self.open: list[Watched] = []
        self.mode: Mode | None = None
        self.last: Ran | None = None
        self.group: list[Made] = []
        self.used = False
        self.deriving: tuple[tuple[Watched, ...], tuple[str, Made]] | None = None
        self.applying: list[Made] = []
        self.busy = 0


here = Here()
_count = itertools.count()
_lock = threading.Lock()
_blocks = 0
_alive = 0
_dead: collections.deque[tuple[Made, tuple[Watched, ...]]] = collections.deque()
_held: dict[str, Any] = {}
_users = (False, True)
_runner: Callable[..., Any] | None = None


# ------------------------------------------------------------------ blocks


def enter(core: Watched) -> None:
    """A block opens in this thread."""
    global _blocks
    with _lock:
        _blocks += 1
        if _blocks == 1:
            install()
        install_runner()
    here.open.append(core)
    if here.mode is None:
        here.mode = Mode()
        here.mode.__enter__()
    here.group, here.last = [], None


def leave(core: Watched) -> None:
    """It closes."""
    global _blocks
    here.open.remove(core)
    here.group, here.applying = [], []
    if not here.open and here.mode is not None:
        here.mode.__exit__(None, None, None)
        here.mode = None
    with _lock:
        _blocks -= 1
        if not _blocks:
            uninstall()
    bury()


def abandon(core: Watched) -> None:
    """A block that was never left, and whose thread may be gone, is closed."""
    global _blocks
    if core in here.open:
        leave(core)
        return
    with _lock:
        _blocks -= 1
        if not _blocks:
            uninstall()


def bury() -> None:
    """Tell cores of the nodes that have died. From a destructor, so never waiting: who holds the lock does it then."""
    global _alive
    while _dead and _lock.acquire(blocking=False):
        gone: dict[int, tuple[Watched, list[Made]]] = {}
        try:
            while _dead:
                made, cores = _dead.popleft()
                _alive -= 1
                for core in cores:
                    gone.setdefault(id(core), (core, []))[1].append(made)
            if not _alive and not _blocks:
                uninstall_runner()
        finally:
            _lock.release()
        for core, mades in gone.values():
            core.died(mades)


# ------------------------------------------------------------------ nodes


def told() -> list[str]:
    """In the place of `format_stack`: a node is being made."""
    if here.busy or not torch.is_grad_enabled() or tracing():  # without gradients no pass can reach it
        return plain()
    if here.deriving is not None:
        return derived(*here.deriving)
    if not here.open:
        return plain()
    frame: FrameType | None = sys._getframe(1)
    apply = frame if frame is not None and frame.f_code in APPLY else None
    cores = tuple(here.open)
    made = Made(next(_count), frames_of(frame, any(core.stacks for core in cores)), here.last)
    if here.used:
        here.group, here.used = [], False
    here.group.append(made)
    if apply is not None:
        made.apply = apply
        here.applying.append(made)
    return recorded(made, cores)


def recorded(made: Made, cores: tuple[Watched, ...]) -> Record:
    """What torch is to keep of a node, once its cores know of it."""
    global _alive
    with _lock:
        _alive += 1
    for core in cores:
        core.made(made)
    texts = plain()
    if not texts and made.line is not None:
        line = made.line
        texts = [f'  File "{line.file}", line {line.line}, in {line.function}\n']
    return Record(made, cores, texts)


def derived(cores: tuple[Watched, ...], of: tuple[str, Made]) -> Record:
    """A node is made by the backward of one in a region, as with `create_graph`: it belongs there too."""
    return recorded(Made(next(_count), of[1].frames, None, of), cores)


def plain() -> list[str]:
    """What torch would keep: the stack where the user asked for anomaly mode, or torch traces; else nothing."""
    if not (_users[0] or fx_traceback.should_preserve_node_meta):
        return []
    texts: list[str] = _held["format_stack"]()
    return [text for text in texts if __file__ not in text]


def frames_of(frame: FrameType | None, whole: bool) -> Frames:
    """A stack, innermost first; or its innermost frames to the first of the user's."""
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < DEEPEST:
        code = frame.f_code
        found.append((code, frame.f_lasti))
        if not whole and is_users(code.co_filename):
            break
        frame = frame.f_back
    return tuple(found)


# ------------------------------------------------------------------ operators


class Mode(TorchDispatchMode):
    """Sees the operators of a thread with an open block."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled functions run as they do without us."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if here.open and not here.busy and not asks(func) and not tracing():
            ran = saw(func, sys._getframe(1))
            if any(core.watches for core in here.open):
                return looked(ran, func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def looked(ran: Ran, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator, and look at what it takes and gives. What goes wrong in ours never stops the program."""
    cores = tuple(core for core in here.open if core.watches)
    look = None
    with failing(cores):
        look = origins.Look(func, args, kwargs)
    result = func(*args, **kwargs)
    if look is not None:
        with failing(cores):
            ran.source, ran.gives = look.source(result, cores, ran.frame)
            if look.same is not None and ran.source is not None:
                ran.taken, ran.title = weakref.ref(look.same), origins.called(look.same, sys._getframe(2))
                if not ran.source.born and ran.source.taken is None:
                    ran.source.taken, ran.source.title = ran.taken, ran.title
            if ran.gives:
                for core in cores:
                    core.went_bad(ran)
    return result


class failing:
    """While this runs, what is computed is ours, no mode of the user's sees it, and an error is told to the cores."""

    def __init__(self, cores: tuple[Watched, ...]) -> None:
        self.cores: tuple[Watched, ...] = cores
        self.quiet: Any = None

    def __enter__(self) -> None:
        here.busy += 1
        self.quiet = torch._C._DisableTorchDispatch()  # which begins as it is made
        self.quiet.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        self.quiet.__exit__(kind, error, trace)
        here.busy -= 1
        if not isinstance(error, Exception):
            return False
        for core in self.cores:
            core.failed(error)
        return True


def tracing() -> bool:
    """Whether a compiler traces here: what it makes for itself is not the program's."""
    mode = torch._C._get_dispatch_mode
    return mode(KEYS.PROXY) is not None or mode(KEYS.FUNCTIONAL) is not None


def asks(func: Any) -> bool:
    """Whether an operator only asks for a size or a device."""
    return func.namespace == "prim" or func._schema.name.startswith("aten::sym_")


def saw(func: Any, frame: FrameType | None) -> Ran:
    """An operator runs now, for the nodes made since the last one; within a custom function, for its node."""
    if not torch._C.is_anomaly_enabled():  # something that was on before us went off
        torch._C.set_anomaly_enabled(True, _users[0] and _users[1])
    owner = applying(frame)
    grads = torch.is_grad_enabled()
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    place = (frame.f_code, frame.f_lasti) if frame is not None else None
    inner = owner is not None and not grads
    ran = Ran(func, place, (owner,) if inner and owner else tuple(here.group) if grads else ())
    if inner and owner is not None:
        owner.within.append(ran)
    elif grads:
        for made in here.group:
            made.after.append(ran)
    here.used = True
    here.last = ran
    for core in here.open:
        core.ran(ran)
    return ran


def applying(frame: FrameType | None) -> Made | None:
    """The innermost custom function that is running its forward now, if any."""
    while here.applying:
        made = here.applying[-1]
        each = frame
        while each is not None:
            if each is made.apply:
                return made
            each = each.f_back
        made.apply = None
        here.applying.pop()
    return None


@contextlib.contextmanager
def making(wanted: bool) -> Iterator[None]:
    """While this runs, nodes that are made are seen, if that is wanted."""
    global _blocks
    if not wanted:
        yield
        return
    with _lock:
        _blocks += 1
        if _blocks == 1:
            install()
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                uninstall()


class aside:
    """While this runs, what is computed in this thread is ours, and not the program's."""

    def __enter__(self) -> None:
        here.busy += 1

    def __exit__(self, *_: object) -> None:
        here.busy -= 1


class without_mode:
    """While this runs our mode is off, where it is the innermost: torch asks for modes in a few backward formulas."""

    def __init__(self) -> None:
        self.mode: Any = None

    def __enter__(self) -> None:
        if here.mode is not None and _get_current_dispatch_mode() is here.mode:
            self.mode = _pop_mode()

    def __exit__(self, *_: object) -> None:
        if self.mode is not None:
            _push_mode(self.mode)


# ------------------------------------------------------------------ the installs


def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
    """In the place of `Function.apply` where that is a builtin (torch 2.14), which has no frame to be known by."""
    return BUILTIN.__get__(None, function)(*args, **kwargs)


BUILTIN: Any = None if hasattr(torch.autograd.Function.apply, "__code__") else vars(torch.autograd.Function)["apply"]
OURS: Any = classmethod(apply)
APPLY = (apply.__code__, getattr(torch.autograd.Function.apply, "__code__", None))
"""The code of a frame in which a custom function's node is made, and its forward runs."""


def install() -> None:
    """Ours in the place of torch's: the text of a stack, and what users see of anomaly mode."""
    global _users
    _users = (torch._C.is_anomaly_enabled(), torch._C.is_anomaly_check_nan_enabled())
    ours = {
        "set_anomaly_enabled": set_users,
        "is_anomaly_enabled": lambda: _users[0],
        "is_anomaly_check_nan_enabled": lambda: _users[1],
    }
    for name, function in ours.items():
        _held[name] = (getattr(torch, name), function)
        setattr(torch, name, function)
    _held["format_stack"] = fx_traceback.format_stack
    fx_traceback.format_stack = told
    if BUILTIN is not None:
        torch.autograd.Function.apply = OURS
    torch._C.set_anomaly_enabled(True, _users[0] and _users[1])


def set_users(enabled: bool, check_nan: bool = True) -> None:
    """What a user's `set_anomaly_enabled` does while a block is open."""
    global _users
    _users = (bool(enabled), bool(check_nan))
    torch._C.set_anomaly_enabled(True, _users[0] and _users[1])


def uninstall() -> None:
    """Torch's own again, unless someone else has put theirs there since."""
    torch._C.set_anomaly_enabled(*_users)
    if fx_traceback.format_stack is told:
        fx_traceback.format_stack = _held["format_stack"]
    if vars(torch.autograd.Function).get("apply") is OURS:
        torch.autograd.Function.apply = BUILTIN
    for name in ("set_anomaly_enabled", "is_anomaly_enabled", "is_anomaly_check_nan_enabled"):
        theirs, ours = _held.pop(name)
        if getattr(torch, name) is ours:
            setattr(torch, name, theirs)


def install_runner() -> None:
    """Backward calls go through us."""
    for module in (torch.autograd, autograd_graph):
        key = f"run {module.__name__}"
        if key not in _held:
            _held[key] = module._engine_run_backward
            module._engine_run_backward = running(_held[key])


def uninstall_runner() -> None:
    """And no more."""
    for module in (torch.autograd, autograd_graph):
        key = f"run {module.__name__}"
        if key in _held and getattr(module._engine_run_backward, "is_backprints", False):
            module._engine_run_backward = _held.pop(key)


def running(engine: Callable[..., Any]) -> Callable[..., Any]:
    """A backward call, followed if it reaches a node of ours."""

    def run(roots: Any, *args: Any, **kwargs: Any) -> Any:
        if _runner is None or here.busy:
            return engine(roots, *args, **kwargs)
        return _runner(engine, roots, *args, **kwargs)

    run.is_backprints = True  # type: ignore[attr-defined]  # so that another's patch over it is left alone
    return run


def follow_with(runner: Callable[..., Any]) -> None:
    """What a followed backward call is run with."""
    global _runner
    _runner = runner
