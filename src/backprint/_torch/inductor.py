"""What Inductor's code generation asks about the C++ compiler. Tried on torch 2.13.0."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock


def taken_for_gxx() -> bool:
    """Whether Inductor takes the C++ compiler for g++ and not for Microsoft's."""
    from torch._inductor import cpp_builder

    return bool(cpp_builder.is_gcc()) and not cpp_builder.is_msvc_cl()


@contextlib.contextmanager
def as_for_gxx() -> Iterator[None]:
    """Have Inductor write C++ for g++, and ask no compiler which one it is."""
    from torch._inductor import cpp_builder

    with (
        mock.patch.object(cpp_builder, "is_msvc_cl", return_value=False),
        mock.patch.object(cpp_builder, "is_gcc", return_value=True),
    ):
        yield
