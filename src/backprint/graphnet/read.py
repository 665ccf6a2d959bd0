"""A GraphNet folder as a plain value: its Program, its inputs' metadata, its facts. Nothing of it is executed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backprint.errors import GraphError, RefusedError, SampleError
from backprint.formats import is_direction
from backprint.graphnet.code import Argument, Program, read_code
from backprint.graphnet.meta import Meta
from backprint.graphnet.metas import UNTYPED, facts_of, metas_of, text_of
from backprint.graphnet.uses import uses_of


@dataclass(frozen=True, slots=True)
class GraphNetSample:
    """What stands in a GraphNet folder.

    `program` is None where the parser refuses `model.py` and the caller trusts it: `refused` says why, and building the
    sample executes the file.
    """

    path: Path
    name: str
    program: Program | None
    metas: Mapping[str, Meta]
    facts: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The inputs in order: those of `forward`, or where it is not parsed, those that have metadata."""
        if self.program is not None:
            return self.program.arguments
        return tuple(Argument(name, annotation(name, meta), 1) for name, meta in self.metas.items())


def annotation(name: str, meta: Meta) -> str:
    """What an argument that no annotation describes is, by its name."""
    if re.fullmatch(r"[su]\d+", name) and not meta.shape:
        return "SymInt"
    return "Parameter" if re.search(r"_parameters_|^[Ll]_(?:self|instance)_parameters_", name) else "Tensor"


def read(path: Path | str, trust: bool = False) -> GraphNetSample:
    """Read a GraphNet sample. With `trust`, a `model.py` that is refused is kept, to be executed when it is built."""
    path = Path(path)
    if not (path / "model.py").is_file():
        raise SampleError(f"{path}: no GraphNet sample: there is no model.py")
    if is_direction(path):
        raise SampleError(f"{path}: one direction of a sample of ours: the sample is {path.parent.parent}")
    facts = facts_of(path)
    metas, notes = metas_of(path)
    program, refused = None, ""
    try:
        program = read_code(text_of(path / "model.py"))
    except GraphError as error:
        said = re.sub(r"^line (\d+): ", rf"{path / 'model.py'}:\1: ", str(error))
        said = said if said != str(error) else f"{path / 'model.py'}: {error}"
        if not trust:
            kind = RefusedError if isinstance(error, RefusedError) else GraphError
            raise kind(f"{said}. If you trust the file, --trust (trust=True) executes it") from None
        refused = said
    if program is not None:
        absent = [argument.name for argument in program.arguments if needs(argument) and argument.name not in metas]
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            raise SampleError(f"{path}: no metadata says what {', '.join(absent[:3])}{more} are, which forward takes")
        if UNTYPED in notes:
            metas = typed(program, metas)
    return GraphNetSample(path, name_of(path, facts), program, metas, facts, notes, refused)


def typed(program: Program, metas: Mapping[str, Meta]) -> dict[str, Meta]:
    """Metadata without dtypes, where the graph tells them: what is an index is of whole numbers."""
    uses = uses_of(program, metas)
    return {
        name: replace(meta, dtype="int64") if name in uses and "index" in uses[name].kinds else meta
        for name, meta in metas.items()
    }


def needs(argument: Argument) -> bool:
    """Whether an argument is a tensor, and so needs metadata."""
    return not argument.kind.startswith("Sym")


def name_of(path: Path, facts: Mapping[str, Any]) -> str:
    """The sample's own name: what its facts say, else its folder's."""
    said = facts.get("model_name")
    name = said if isinstance(said, str) and said.strip() else path.resolve().name
    return "".join(c if c.isprintable() else "_" for c in name)[:200]
