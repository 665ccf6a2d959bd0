"""Write the Steps of a graph: each under a free name, with the line and the echo of its call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from backprint.fx.convert import Names, pack, target_name
from backprint.graph.nouns import Ref, Step, Value
from backprint.tracing.assembly import Note
from backprint.tracing.eager.echoes import Echoes
from backprint.tracing.eager.foresight import Foresight
from backprint.tracing.eager.forms import BUILTINS, stem
from backprint.tracing.eager.placement import Placement, placement_spec
from backprint.tracing.eager.tape import TapedCall


class Page:
    """Writes Steps, for one call of the tape after another.

    `steps` is the direction that is being written and `call` the call; both change while a tape is written. `places`
    has the Placement of every value by name, `notes` what the text of a step does not show.
    """

    def __init__(self, names: Names, echoes: Echoes) -> None:
        self.names, self.echoes = names, echoes
        self.steps: list[Step] = []
        self.notes: dict[str, Note] = {}
        self.places: dict[str, Placement] = {}
        self.foresight = Foresight(self.places)
        self.call: TapedCall | None = None
        self.last = ""

    def turn_to(self, call: TapedCall | None) -> None:
        """The following steps belong to this call."""
        self.call, self.last = call, ""

    def put(self, step: Step) -> None:
        """Append a step, with the line and the echo of its call."""
        if self.call is not None and step.source is None and step.echo is None:
            source, echo = self.echoes.origin(self.call)
            if source is not None or echo is not None:
                step = replace(step, source=source, echo=echo)
        self.echoes.note_birth(step.name, self.call)
        self.steps.append(step)

    def emit(
        self, func: Any, args: Sequence[Any], kwargs: Sequence[tuple[str, Any]] = (), place: Placement | None = None
    ) -> str:
        """Append a step of ours; without a Placement, that of its result is computed on meta tensors."""
        place = place or self.foresight.placement(func, args, dict(kwargs))
        name = self.names.free(stem(func), avoid=BUILTINS)
        packed = tuple([pack(value) for value in args])
        named = tuple([(key, pack(value)) for key, value in kwargs])
        self.put(Step(name, target_name(func), packed, named, placement_spec(place)))
        self.places[name] = place
        return name

    def put_item(self, name: str, index: int, item: Any) -> str:
        """Append a step that takes an item of another step's tuple."""
        local = self.names.free(f"{name}_{index}")
        self.put(Step(local, "operator.getitem", (Ref(name), index), (), placement_spec(item)))
        if type(item) is Placement:
            self.places[local] = item
        return local

    def put_items(self, name: str, found: Any) -> list[tuple[str, Any]]:
        """Return a name for each tensor among a step's results, lists included; '' for other values."""
        if type(found) is Placement:
            return [(name, found)]
        made: list[tuple[str, Any]] = []
        for index, item in enumerate(found):
            if type(item) is Placement:
                made.append((self.put_item(name, index, item), item))
            elif isinstance(item, tuple):
                inner = self.put_item(name, index, item)
                made += [(self.put_item(inner, i, each), each) for i, each in enumerate(item)]
            else:
                made.append(("", None))
        return made

    def put_guard(self, target: str, *args: Value, structure: bool = False) -> None:
        """Append a guard on a value; `structure` if it is about how a sparse tensor is built."""
        name = self.names.free("guard")
        self.put(Step(name, target, args))
        if structure:
            self.mark(name, structure=True)

    def mark(self, name: str, **fields: Any) -> None:
        """Add to the note of a step."""
        self.notes[name] = replace(self.notes.get(name, Note()), **fields)

    def amend(self, **fields: Any) -> None:
        """Replace fields of the last step."""
        self.steps[-1] = replace(self.steps[-1], **fields)

    def take_back(self, count: int) -> None:
        """Drop the notes of all steps after the first `count`: they failed, and dead code is removed later."""
        for tried in self.steps[count:]:
            self.notes.pop(tried.name, None)
