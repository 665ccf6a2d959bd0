"""Reading a GraphNet folder: its program, its inputs' metadata, its facts. Nothing of it is executed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backprint.errors import GraphError, RefusedError, SampleError
from backprint.formats import is_direction
from backprint.graph.nouns import Graph
from backprint.graphnet.code import ForwardArgument, ModelProgram, read_code
from backprint.graphnet.graphs import graph_arguments, is_graph_text, read_graph_text, with_graph_dtypes
from backprint.graphnet.meta import Meta
from backprint.graphnet.metas import UNTYPED, read_sample_facts, read_sample_metas, read_sample_text
from backprint.graphnet.uses import uses_of


@dataclass(frozen=True, slots=True)
class GraphNetSample:
    """The content of a GraphNet folder.

    Where Backprint wrote `model.py`, `graph` is what it says, and `program` is None. Both are None where the parser
    refuses the file and the caller trusts it: `refused` says why, and building the sample executes the file.
    """

    path: Path
    name: str
    program: ModelProgram | None
    metas: Mapping[str, Meta]
    facts: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    refused: str = ""
    graph: Graph | None = None

    @property
    def arguments(self) -> tuple[ForwardArgument, ...]:
        """The inputs in order: those of `forward`, or where it is not parsed, those that have metadata."""
        if self.program is not None:
            return self.program.arguments
        if self.graph is not None:
            return graph_arguments(self.graph)
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
    program, graph, refused = None, None, ""
    text = read_sample_text(path / "model.py")
    try:
        if is_graph_text(text):
            graph = read_graph_text(text)
        else:
            program = read_code(text)
    except GraphError as error:
        message = re.sub(r"^line (\d+): ", rf"{path / 'model.py'}:\1: ", str(error))
        message = message if message != str(error) else f"{path / 'model.py'}: {error}"
        if not trust:
            kind = RefusedError if isinstance(error, RefusedError) else GraphError
            raise kind(f"{message}. If you trust the file, --trust (trust=True) executes it") from None
        refused = message
    if UNTYPED in notes and program is not None:
        metas = infer_dtypes(program, metas)
    elif UNTYPED in notes and graph is not None:
        metas, notes = with_graph_dtypes(graph, metas), ()
    sample = GraphNetSample(path, sample_name(path, facts), program, metas, facts, notes, refused, graph)
    check_metadata(sample)
    return sample


def check_metadata(sample: GraphNetSample) -> None:
    """Raise where an argument that is a tensor has no metadata."""
    absent = [each.name for each in sample.arguments if needs_metadata(each) and each.name not in sample.metas]
    if absent:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise SampleError(
            f"{sample.path}: no metadata says what {', '.join(absent[:3])}{more} are, which forward takes"
        )


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
