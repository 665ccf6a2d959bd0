"""Settings and random states that a replay depends on: recorded at capture, restored for a proof, named if they
differ.

A *setting* is read by a function, as a value whose `str` is recorded, and is set from that text (SETTINGS, MODES); a
*fact* can only be read (FACTS). A sample keeps the texts by name. A *foreign* random state is one that is not torch's:
Python's, or NumPy's, which is asked only where the program has imported NumPy. The lock ONE_AT_A_TIME is held by a
thread, or by a *party* of threads (`holder`), which may enter it several times (`count`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import platform
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from backprint.version import __version__

P = ParamSpec("P")
T = TypeVar("T")


class _ThreadTurns:
    """A lock that one thread holds at a time, any number of times, or the threads of one party together.

    The ranks of one distributed step, where they are threads, are a party: they take turns by themselves, as each waits
    for the others inside a proof. `holder` is a thread's number or a party, and `count` how often it has entered.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.holder: Any = None
        self.count = 0

    def __enter__(self) -> None:
        """Wait until no thread of another party holds the lock, and enter it once more."""
        with self.changed:
            self.changed.wait_for(lambda: self.holder in (None, _this_party()))
            self.holder = _this_party()
            self.count += 1

    def __exit__(self, *error: object) -> None:
        """Leave the lock once; with the last time it is free, and waiting threads are woken."""
        with self.changed:
            self.count -= 1
            if not self.count:
                self.holder = None
                self.changed.notify_all()

    def is_held_here(self) -> bool:
        """Whether this thread, or its party, holds the lock."""
        return self.count > 0 and self.holder == _this_party()


_PARTIES = threading.local()
"""`.party` is any object that the threads of one party have in common. It identifies a thread to the lock, as a
thread's number does, so it belongs to the thread and is no argument."""


def _this_party() -> Any:
    """Return the party of this thread; a thread without one is its own."""
    return getattr(_PARTIES, "party", None) or threading.get_ident()


@contextlib.contextmanager
def of_party(party: object) -> Iterator[None]:
    """Make this thread one of a party in a block."""
    before = getattr(_PARTIES, "party", None)
    _PARTIES.party = party
    try:
        yield
    finally:
        _PARTIES.party = before


ONE_AT_A_TIME = _ThreadTurns()
"""The lock of a capture or a proof: both change state that torch keeps process-wide, so threads take turns."""

Setting = tuple[Callable[[], object], Callable[[str], object]]
"""How a setting is read, and how it is set from the text of a value that was read."""


deterministic = torch.are_deterministic_algorithms_enabled


def flushes_denormals() -> bool:
    """Whether this thread rounds the smallest numbers to zero, as `torch.set_flush_denormal` has it do."""
    # Half of the smallest normal number is a denormal.
    return sys.float_info.min * 0.5 == 0.0


def _matmul_precision() -> str:
    """Return the precision of products in float32. torch 2.13 refuses to say once one backend's own was set."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "set by backend"


SETTINGS: Mapping[str, Setting] = {
    "default_dtype": (
        lambda: str(torch.get_default_dtype())[6:],
        lambda text: torch.set_default_dtype(getattr(torch, text)),
    ),
    "threads": (torch.get_num_threads, lambda text: torch.set_num_threads(int(text))),
    "deterministic": (
        lambda: "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else deterministic(),
        lambda text: torch.use_deterministic_algorithms(text != "False", warn_only=text == "warn"),
    ),
    "flush_denormal": (flushes_denormals, lambda text: torch.set_flush_denormal(text == "True")),
    "float32_matmul_precision": (_matmul_precision, torch.set_float32_matmul_precision),
    "flash_sdp": (
        torch.backends.cuda.flash_sdp_enabled,
        lambda text: torch.backends.cuda.enable_flash_sdp(text == "True"),
    ),
    "math_sdp": (
        torch.backends.cuda.math_sdp_enabled,
        lambda text: torch.backends.cuda.enable_math_sdp(text == "True"),
    ),
    "efficient_sdp": (
        torch.backends.cuda.mem_efficient_sdp_enabled,
        lambda text: torch.backends.cuda.enable_mem_efficient_sdp(text == "True"),
    ),
    "mkldnn": (
        lambda: torch.backends.mkldnn.enabled,
        lambda text: torch.backends.mkldnn.set_flags(text == "True"),
    ),
    "cudnn_deterministic": (
        lambda: torch.backends.cudnn.deterministic,
        lambda text: setattr(torch.backends.cudnn, "deterministic", text == "True"),
    ),
}
"""Settings that a result depends on and that can be set. A sample records their values as text."""

FACTS: Mapping[str, Callable[[], object]] = {
    "backprint": lambda: __version__,
    "torch": lambda: torch.__version__,
    "python": platform.python_version,
    "machine": platform.machine,
    "cpu_capability": torch.backends.cpu.get_cpu_capability,
    "autocast": lambda: torch.is_autocast_enabled("cpu"),
    "autocast_dtypes": lambda: " ".join(f"{kind}:{dtype}" for kind, dtype in _dtypes_of_autocast().items()),
}
"""Facts that a result depends on, which are recorded and cannot be set."""


def _dtypes_of_autocast() -> dict[str, str]:
    """Return the dtype of autocast for each kind of device for which it is on: `{"cuda": "float16"}`."""
    on = [kind for kind in AUTOCAST_DEVICES if torch.is_autocast_enabled(kind)]
    return {kind: str(torch.get_autocast_dtype(kind)).removeprefix("torch.") for kind in on}


AUTOCAST_DEVICES = ("cpu", "cuda")
"""The kinds of devices whose autocast is recorded."""


def read_settings() -> tuple[tuple[str, str], ...]:
    """Read every setting and fact as it is now."""
    readers = {**FACTS, **{name: read for name, (read, _) in SETTINGS.items()}}
    return tuple((name, str(read())) for name, read in readers.items())


@contextlib.contextmanager
def with_settings(recorded: Mapping[str, str]) -> Iterator[None]:
    """Set the recorded settings, text by name, for a block, and restore the present ones after it. A value that torch
    refuses is skipped."""
    with _restoring(SETTINGS):
        for name, (read, set_value) in SETTINGS.items():
            if name in recorded and recorded[name] != str(read()):
                # A setting of another machine or torch; `settings_differences` names it.
                with contextlib.suppress(ValueError, RuntimeError):
                    set_value(recorded[name])
        with default_device("cpu"):  # graphs name the devices of what they make, and so does what we make for them
            yield


@contextlib.contextmanager
def _restoring(settings: Mapping[str, Setting]) -> Iterator[None]:
    """Restore these settings after a block; one that the block has not changed is not set."""
    before = {name: str(read()) for name, (read, _) in settings.items()}
    try:
        yield
    finally:
        for name, (read, set_value) in settings.items():
            if str(read()) != before[name]:
                set_value(before[name])


IN_WORDS: Mapping[str, str] = {
    "default_dtype": "the default dtype",
    "threads": "the number of threads",
    "deterministic": "whether algorithms are deterministic",
    "flush_denormal": "whether the smallest numbers are rounded to 0",
    "float32_matmul_precision": "the precision of products in float32",
    "mkldnn": "whether oneDNN is used",
    "cudnn_deterministic": "whether cuDNN is deterministic",
}
"""Settings as a message names them; those of attention have one name together."""

MODES: Mapping[str, Setting] = {
    "grad mode": (torch.is_grad_enabled, lambda text: torch.set_grad_enabled(text == "True")),
    "autocast": (
        lambda: torch.is_autocast_enabled("cpu"),
        lambda text: torch.set_autocast_enabled("cpu", text == "True"),
    ),
    "autocast on GPUs": (
        lambda: torch.is_autocast_enabled("cuda"),
        lambda text: torch.set_autocast_enabled("cuda", text == "True"),
    ),
    "the default device": (
        torch.get_default_device,
        lambda text: torch.set_default_device(None if text == "cpu" else text),
    ),
}
"""Modes of a thread: they are a caller's own, so no sample records them."""

TORCH_RANDOM, PYTHON_RANDOM, NUMPY_RANDOM = "torch's random state", "Python's random state", "NumPy's random state"
RANDOM_STATES = (TORCH_RANDOM, PYTHON_RANDOM, NUMPY_RANDOM)
"""The names of random states in `process_state`, and in messages."""


def process_state() -> dict[str, str]:
    """Return the settings, modes and random states of this process as texts, each under a name for people; random
    states as digests, and the settings of attention's kernels (`…_sdp`) as one."""
    state = {IN_WORDS.get(name, name): str(read()) for name, (read, _) in SETTINGS.items() if not name.endswith("_sdp")}
    kernels = [str(read()) for name, (read, _) in SETTINGS.items() if name.endswith("_sdp")]
    state["which kernels attention may use"] = " ".join(kernels)
    state |= {name: str(read()) for name, (read, _) in MODES.items()}
    cpu, cuda = random_states()
    foreign = foreign_states()
    state[TORCH_RANDOM] = " ".join(map(random_state_digest, (state_bytes(cpu), *(map(state_bytes, cuda)))))
    state[PYTHON_RANDOM] = random_state_digest(foreign["random"])
    if "numpy.random" in foreign:
        state[NUMPY_RANDOM] = random_state_digest(foreign["numpy.random"])
    return state


def keeping_settings() -> contextlib.AbstractContextManager[None]:
    """Return a context that restores the settings and modes that its block changes."""
    return _restoring({**SETTINGS, **MODES})


def default_device(wanted: str | torch.device) -> contextlib.AbstractContextManager[object]:
    """Return a context in which factories without a device make tensors on this one."""
    device = torch.device(wanted)
    return contextlib.nullcontext() if torch.get_default_device() == device else device


def making_on_cpu(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function whose own tensors are on the CPU, whatever the caller's default device is."""

    @functools.wraps(function)
    def on_cpu(*args: P.args, **kwargs: P.kwargs) -> T:
        with default_device("cpu"):
            return function(*args, **kwargs)

    return on_cpu


@contextlib.contextmanager
def default_dtype(wanted: torch.dtype) -> Iterator[None]:
    """Set torch's default dtype in a block: floating-point tensors are of this dtype there, where a call says no
    other."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(wanted)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


@contextlib.contextmanager
def outside_modes() -> Iterator[None]:
    """Turn grad mode on and inference mode off, and make the CPU the default device, for a block; restore the caller's
    modes after it. Only one thread is in such a block at a time."""
    is_multithreaded = torch.autograd.is_multithreading_enabled()
    with (
        ONE_AT_A_TIME,
        torch.inference_mode(False),
        torch.enable_grad(),
        default_device("cpu"),
        # As before the block, because `inference_mode(False)` lets a backward run in other threads.
        torch.autograd.set_multithreading_enabled(is_multithreaded),
    ):
        yield


def draw_from_each() -> None:
    """Draw a number from each generator of the process whose state `process_state` has, except the generators of GPUs,
    so that each has another state."""
    torch.randint(2, (1,), device="cpu")
    random.random()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.random_sample()


def changed_state(before: Mapping[str, str], states: bool = True) -> str:
    """Return the differences from an earlier `process_state()`, in words; '' if there are none. With `states` False,
    the random states may differ."""
    now = process_state()
    changes = [
        name if name in RANDOM_STATES else f"{name} from {value} to {now[name]}"
        for name, value in before.items()
        if now[name] != value and (states or name not in RANDOM_STATES)
    ]
    return ", ".join(changes)


def settings_differences(recorded: Mapping[str, str]) -> list[str]:
    """Describe the settings and facts that differ now from the recorded ones. A setting among them could not be
    restored."""
    now = dict(read_settings())
    return [
        f"{name} {recorded_value}, now {now[name]}"
        for name, recorded_value in recorded.items()
        if name in now and now[name] != recorded_value
    ]


# ---- Random states


class RandomStates(NamedTuple):
    """The states of torch's generators: the CPU's, and each GPU's once CUDA is in use."""

    cpu: Tensor
    cuda: tuple[Tensor, ...] = ()


def random_states() -> RandomStates:
    """Return the states of torch's generators now."""
    # To ask whether there is a GPU would forbid forked processes to use it; this asks whether one is in use.
    in_use = torch.cuda.is_initialized()
    return RandomStates(torch.get_rng_state(), tuple(torch.cuda.get_rng_state_all()) if in_use else ())


def state_bytes(state: Tensor) -> bytes:
    """Return the bytes of a generator's state, without numpy and without a call that a dispatch mode would see."""
    return ctypes.string_at(state.data_ptr(), state.nbytes)


def set_random_states(states: RandomStates) -> None:
    """Set the states of torch's generators."""
    torch.set_rng_state(states.cpu)
    for index, state in enumerate(states.cuda):
        torch.cuda.set_rng_state(state, index)


def seed_torch(seed: int) -> None:
    """Seed torch's generators, as `torch.manual_seed` does, which formats three stack traces for devices that a torch
    for CPUs does not have: half a millisecond."""
    if torch.accelerator.current_accelerator() is None:
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def seed_all(seed: int) -> None:
    """Seed the generators of torch, of Python, and of numpy where it is imported."""
    seed_torch(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)


@contextlib.contextmanager
def preserving_random_states() -> Iterator[None]:
    """Restore every random state afterwards: torch's on every device, numpy's and Python's."""
    states = random_states()
    foreign = foreign_states()
    try:
        yield
    finally:
        set_random_states(states)
        set_foreign_states(foreign)


def foreign_states() -> dict[str, Any]:
    """Return the states of the generators that are not torch's: Python's, and numpy's where it is imported."""
    numpy = sys.modules.get("numpy")
    return {"random": random.getstate()} | ({} if numpy is None else {"numpy.random": numpy.random.get_state()})


def set_foreign_states(states: Mapping[str, Any]) -> None:
    """Set the states of Python's and numpy's random numbers, as `foreign_states` returned them."""
    random.setstate(states["random"])
    if "numpy.random" in states:
        sys.modules["numpy"].random.set_state(states["numpy.random"])


def random_state_digest(state: Any) -> str:
    """Return a random state's digest in 16 hex digits."""
    return hashlib.sha256(repr(hashable_state(state)).encode()).hexdigest()[:16]


def hashable_state(state: Any) -> Any:
    """Return a random state with its arrays as bytes. NumPy's states have arrays. Python's state is a tuple with a
    tuple of 625 integers in it, which is left as it is."""
    if isinstance(state, Mapping):
        return {key: hashable_state(item) for key, item in state.items()}
    if isinstance(state, (tuple, list)):
        return tuple([item.tobytes() if hasattr(item, "tobytes") else item for item in state])
    return state.tobytes() if hasattr(state, "tobytes") else state


STATE_OF = "the state of "
"""The prefix of a pin's name that holds a generator's state rather than an input: no port has such a name."""

OWN = "generator "
"""The prefix of the name of a generator that the program reaches itself and that lives as long as the program."""
