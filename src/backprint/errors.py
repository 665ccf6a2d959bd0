"""Every error Backprint raises, as one tree.

    BackprintError
    ├── UsageError       the call itself is wrong                    (also a ValueError)
    ├── PlaceError       a run's own folder is gone, full or not writable, and what to do
    ├── CaptureError     this program cannot be captured, and why
    │   └── DataDependentError   it reads values that tracing does not have
    ├── GraphError       a graph is malformed, or text is not a graph
    │   └── RefusedError         a name, operator or construct outside the known ones
    ├── SampleError      a folder is not a whole, readable sample
    ├── ReplayError      a graph cannot run on these inputs
    │   └── GuardError           these inputs break a condition that the capture assumes
    ├── RegionError      a region's dump cannot be written or read
    └── PrivateApiError  this torch lacks a private name that Backprint needs

A measured difference is not an error: it is a Verdict.
"""

from __future__ import annotations

import errno

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""What the system says of a place that takes no more files."""

CLOSED = (errno.EACCES, errno.EPERM)
"""What it says of a place that this user may not write to."""


class BackprintError(Exception):
    """The root of the tree: catch this to catch all of ours."""


class UsageError(BackprintError, ValueError):
    """The call is wrong: an unknown option, a mask of the wrong length, an ambiguous name."""


class PlaceError(BackprintError):
    """A run cannot write its files: its folder was removed, or the disk is full. No sample is the cause."""


class CaptureError(BackprintError):
    """The program cannot be captured; the message names the construct and what to do.

    `every_engine` says that no other engine can capture it either.
    """

    def __init__(self, message: str = "", *, every_engine: bool = False) -> None:
        super().__init__(message)
        self.every_engine = every_engine


class DataDependentError(CaptureError):
    """The program reads a tensor's values while it is traced without values."""


class GraphError(BackprintError):
    """A graph breaks its own rules, or a text is not the text of a graph."""


class RefusedError(GraphError):
    """A name, operator or construct that the format does not know; nothing of it was run."""


class DeviceAssertError(RefusedError):
    """A call that a GPU's kernel would assert against, which ends the process's use of the GPU; it was not made."""


class SampleError(BackprintError):
    """A folder is not a readable sample: missing, truncated, forged or of a newer format."""


class ReplayError(BackprintError):
    """A graph cannot run on these inputs."""


class GuardError(ReplayError):
    """The inputs break a guard: a condition on a value or a shape that the capture assumes."""


class RegionError(BackprintError):
    """A region's dump cannot be written, or a folder is not a dump."""


class PrivateApiError(BackprintError):
    """This version of torch has no private name that Backprint uses: the message has the name and what needs it."""
