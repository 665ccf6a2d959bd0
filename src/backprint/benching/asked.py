"""The compiler of a name, for `minify`, and whether an exported file can ask it too."""

from __future__ import annotations

from backprint.benching.compilers.table import compiled_by, compiler_named, torch_backends, versions_of
from backprint.benching.subjects import Compile


def compile_function(name: str) -> Compile:
    """Return the function that compiles with this name; raise UsageError if there is none, or a package is missing."""
    return compiled_by(compiler_named(name))


def backend_in_file(name: str) -> str | None:
    """Return the backend with which an exported file can show what this compiler does; None if torch.compile cannot."""
    own = compiler_named(name).build == name
    return name if own or name in torch_backends() else None


def compiler_versions(name: str) -> str:
    """Return the versions of torch and of the packages of a compiler, as text."""
    return ", ".join(f"{package} {version}" for package, version in versions_of(compiler_named(name)).items())
