"""Reading a GraphNet folder: its program, its inputs' metadata, its facts. Nothing of it is executed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backprint.errors import GraphError, RefusedError, SampleError
from backprint.formats import is_direction
from backprint.graphnet.code import ForwardArgument, ModelProgram, read_code
from backprint.graphnet.meta import Meta
from backprint.graphnet.metas import UNTYPED, read_sample_facts, read_sample_metas, read_sample_text
from backprint.graphnet.uses import uses_of


@dataclass(frozen=True, slots=True)
class GraphNetSample:
    """The content of a GraphNet folder.

    `program` is None where the parser refuses `model.py` and the caller trusts it: `refused` says why, and building the
    sample executes the file.
    """

    path: Path
    name: str
    program: ModelProgram | None
    metas: Mapping[str, Meta]
    facts: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def arguments(self) -> tuple[ForwardArgument, ...]:
        """The inputs in order: those of `forward`, or where it is not parsed, those that have metadata."""
        if self.program is not None:
            return self.program.arguments
        return tuple(ForwardArgument(name, guess_annotation(name, meta), 1) for name, meta in self.metas.items())


def guess_annotation(name: str, meta: Meta) -> str:
    """Guess the annotation of an argument from its name."""
    if re.fullmatch(r"[su]\d+", name) and not meta.shape:
        return "SymInt"
    return "Parameter" if re.search(r"_parameters_|^[Ll]_(?:self|instance)_parameters_", name) else "Tensor"


def read_graphnet(path: Path | str, trust: bool = False) -> GraphNetSample:
    """Read a GraphNet sample. With `trust`, a refused `model.py` is accepted, and executed when the sample is built."""
    path = Path(path)
    if not (path / "model.py").is_file():
        raise SampleError(f"{path}: not a GraphNet sample: there is no model.py")
    if is_direction(path):
        raise SampleError(f"{path}: one direction of a sample of ours: the sample is {path.parent.parent}")
    facts = read_sample_facts(path)
    metas, notes = read_sample_metas(path)
    program, refused = None, ""
    try:
        program = read_code(read_sample_text(path / "model.py"))
    except GraphError as error:
        message = re.sub(r"^line (\d+): ", rf"{path / 'model.py'}:\1: ", str(error))
        message = message if message != str(error) else f"{path / 'model.py'}: {error}"
        if not trust:
            kind = RefusedError if isinstance(error, RefusedError) else GraphError
            raise kind(f"{message}. If you trust the file, --trust (trust=True) executes it") from None
        refused = message
    if program is not None:
        absent = [
            argument.name for argument in program.arguments if needs_metadata(argument) and argument.name not in metas
        ]
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            raise SampleError(f"{path}: no metadata says what {', '.join(absent[:3])}{more} are, which forward takes")
        if UNTYPED in notes:
            metas = infer_dtypes(program, metas)
    return GraphNetSample(path, sample_name(path, facts), program, metas, facts, notes, refused)


def infer_dtypes(program: ModelProgram, metas: Mapping[str, Meta]) -> dict[str, Meta]:
    """Fill in dtypes that metadata lacks: an input that the graph uses as an index is int64."""
    uses = uses_of(program, metas)
    return {
        name: replace(meta, dtype="int64") if name in uses and "index" in uses[name].kinds else meta
        for name, meta in metas.items()
    }


def needs_metadata(argument: ForwardArgument) -> bool:
    """Whether an argument is a tensor and so needs metadata."""
    return not argument.kind.startswith("Sym")


def sample_name(path: Path, facts: Mapping[str, Any]) -> str:
    """The sample's name from its facts, else from its folder."""
    title = facts.get("model_name")
    name = title if isinstance(title, str) and title.strip() else path.resolve().name
    return "".join(c if c.isprintable() else "_" for c in name)[:200]
