"""Let Inductor believe in a GPU that is not there, as long as it writes code and runs none.

A build of PyTorch without CUDA has no device guard for it, so an operator on a fake CUDA tensor raises: the guard of
the meta device, which does nothing, is registered in its place. Nothing may run backward on such tensors: autograd
would ask for the device's streams, and end the process.

The table is `c10::impl::device_guard_impl_registry` of torch's C++ library, tried on torch 2.13.
"""

from __future__ import annotations

import contextlib
import ctypes
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from backprint._torch.inductor import cuda_is_compiled
from backprint.errors import RefusedError
from backprint.extracting.targets import GPUS, KernelTarget

CUDA, META = 1, 14
"""The places of devices in the registry of guards: values of c10::DeviceType."""

RANDOM_STATE = 16
"""The bytes of a GPU's random state."""

WRITING = {
    "compile_threads": 1,
    "fx_graph_cache": False,
    "shape_padding": False,
    "joint_graph_constant_folding": False,
    "triton.cudagraphs": False,
}
"""Settings of Inductor for code that is only written: padding and folding would run operators on the GPU."""


def allow_fake_cuda() -> None:
    """Register a guard for CUDA that does nothing, in a build without CUDA."""
    if cuda_is_compiled():
        return
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        guards = (ctypes.c_void_p * 22).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
        allow = library._ZN3c104impl24ensureCUDADeviceGuardSetEv
    except (OSError, ValueError, AttributeError) as error:
        raise RefusedError(
            f"this build of PyTorch {torch.__version__} has no CUDA, and its tables of devices are not where they are "
            f"in torch 2.13 ({error}): install a build with CUDA; no GPU is needed"
        ) from error
    if guards[CUDA] is None:
        guards[CUDA] = guards[META]
    allow.restype = None
    allow()


def properties(target: KernelTarget) -> Any:
    """Return what `torch.cuda.get_device_properties` would."""
    facts = GPUS[target.capability]
    return types.SimpleNamespace(
        name=target.name,
        major=target.capability // 10,
        minor=target.capability % 10,
        multi_processor_count=facts.multiprocessors,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=facts.threads_of_multiprocessor,
        max_threads_per_block=1024,
        warp_size=32,
        total_memory=facts.memory,
        L2_cache_size=facts.cache,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=facts.shared_of_block,
        shared_memory_per_multiprocessor=facts.shared_of_multiprocessor,
        gcnArchName="",
        clock_rate=1_980_000,
        memory_clock_rate=2_619_000,
        memory_bus_width=5120,
        is_integrated=False,
    )


@contextlib.contextmanager
def pretended(target: KernelTarget) -> Iterator[None]:
    """While this lasts, torch says that there is one such GPU."""
    from backprint._torch.inductor import CudaInterface, DeviceProperties, triton_support
    from backprint._torch.inductor import config as settings

    allow_fake_cuda()
    found, capability = properties(target), divmod(target.capability, 10)
    answers: dict[Any, dict[str, Any]] = {
        torch.cuda: {
            "get_device_properties": lambda *args, **kwargs: found,
            "get_device_capability": lambda *args, **kwargs: capability,
            "current_device": lambda: 0,
            "device_count": lambda: 1,
            "get_rng_state": lambda *args, **kwargs: torch.empty(RANDOM_STATE, dtype=torch.uint8),
        },
        CudaInterface: {
            "get_device_properties": staticmethod(lambda *args, **kwargs: found),
            "current_device": staticmethod(lambda: 0),
            "device_count": staticmethod(lambda: 1),
            "is_available": staticmethod(lambda: True),
            "get_compute_capability": staticmethod(lambda *args, **kwargs: target.capability),
        },
        CudaInterface.Worker: {"get_device_properties": staticmethod(lambda *args, **kwargs: found)},
        triton_support: {"triton_hash_with_backend": lambda: "none"},
    }
    caches = (DeviceProperties.create, triton_support.has_triton)
    with contextlib.ExitStack() as held:
        for place, names in answers.items():
            for name, value in names.items():
                held.enter_context(mock.patch.object(place, name, value))
        held.enter_context(settings.patch(WRITING))
        for cache in caches:
            held.callback(cache.cache_clear)
            cache.cache_clear()
        yield
