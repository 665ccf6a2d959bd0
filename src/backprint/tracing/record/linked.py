"""The segments of a script's step as Pairs with Links, from the last to the first: a later one says what it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from backprint.errors import CaptureError
from backprint.graph.keys import PortKey
from backprint.graph.nouns import Guard, Link, Pair, Port, Ref, Spec, refs
from backprint.graph.steps import used
from backprint.tracing.assembly import Joint, Result, assemble
from backprint.tracing.record.segments import Segment, StepWriter


class Tied:
    """Segments as linked Pairs, from the last to the first: a later one says what it needs of those before."""

    def __init__(self, step: StepWriter, finals: Mapping[str, tuple[str, Tensor]]) -> None:
        self.step, self.writer = step, step.writer
        self.constants: dict[str, Tensor] = {}
        self.guards: list[Guard] = []
        self.tangents: set[str] = set()
        self.links: list[Link] = []
        self.groups: list[list[Segment]] = []
        for segment in step.segments:
            if segment.mark is None:
                self.groups.append([segment])
            else:
                self.groups[-1].append(segment)
        self.home = {
            each.name: (index, side)
            for index, group in enumerate(self.groups)
            for side, segment in enumerate(group)
            for each in segment.steps
        }
        self.makers = {each.name: each for segment in step.segments for each in segment.steps}
        self.changed: list[dict[str, str]] = [{} for _ in self.groups]
        for name, (value, _) in finals.items():
            index, side = self.home.get(value, (len(self.groups) - 1, 0))
            self.changed[index + side][name] = value  # what a backward changes, the forward after it hands on
        self.wanted: list[dict[str, None]] = [{} for _ in self.groups]
        self.roots = {step.writer.locals[key]: name for key, name in step.names.items()}
        self.fixed = step.writer.constants(step.recorder.tape, step.fresh)
        self.roles = {name: role_of(name, tensor) for name, tensor in zip(
            step.names.values(), step.recorder.seen.outside, strict=True)}  # fmt: skip

    def pairs(self) -> tuple[tuple[Pair, ...], tuple[Link, ...]]:
        """The Pairs that do something, and the links between them and to the losses."""
        made = {index: self.pair(index) for index in reversed(range(len(self.groups)))}
        kept = [index for index in sorted(made) if made[index].forward.outputs]
        order = {old: new for new, old in enumerate(kept)}
        pairs = tuple(Pair(f"pair_{order[i]}", made[i].forward, made[i].backward) for i in kept)
        moved = [
            Link(order[link.source or 0], link.port, None if link.target is None else order[link.target], link.name)
            for link in self.links
        ]
        return pairs, tuple(sorted(moved, key=lambda link: (link.target is None, link.target or 0, link.source or 0)))

    def pair(self, index: int) -> Pair:
        """One group as a Pair, with links from the groups before it."""
        made = assemble(self.joint(index), f"pair_{index}")
        self.constants |= made.constants
        self.guards += made.guards
        for port in made.pair.forward.inputs:
            if port.local in self.home:
                source = self.home[port.local][0]
                self.wanted[source][port.local] = None
                self.links.append(Link(source, self.source_of(port.local)[0], index, port.name))
        self.links += [Link(index, PortKey("output", name), None, name) for name in self.losses(index)]
        backward = made.pair.backward
        self.tangents |= {port.name for port in (backward.inputs if backward else ()) if port.role == "tangent"}
        return made.pair

    def joint(self, index: int) -> Joint:
        """One group, and what later groups want of it."""
        forward, *rest = self.groups[index]
        segment = rest[0] if rest else Segment([])
        losses = self.losses(index)
        changed = self.changed[index]
        passed = [name for name in self.wanted[index] if self.home[name] == (index, 0)]
        passed = [name for name in passed if name not in losses.values() and name not in changed.values()]
        results = [
            *(self.result(name, "output", local) for name, local in losses.items()),
            *(self.result(local, "output", local) for local in passed),
            *(self.result(name, "mutation", local) for name, local in changed.items()),
        ]
        given = dict(segment.gradients)
        given |= {name: name for name in self.wanted[index] if self.home[name] == (index, 1)
                  and name not in given.values()}  # fmt: skip
        titles = dict(zip(segment.losses, losses, strict=True))
        return Joint(
            inputs=self.inputs(index, results),
            forward=tuple(forward.steps),
            results=tuple(results),
            tangents=tuple(
                Port(titles[name], "tangent", self.spec(local), local) for name, local in segment.tangents.items()
            ),
            backward=tuple(segment.steps),
            gradients=tuple(self.result(name, "gradient", local) for name, local in given.items()),
            constants=self.fixed,
            notes=self.writer.notes,
            specs=self.writer.specs(),
            before=self.makers,
            known=self.roots,
            whole=False,
        )

    def result(self, name: str, role: str, local: str) -> Result:
        return Port(name, role, self.spec(local)), Ref(local)

    # -------------------------------------------------------------- what comes in

    def inputs(self, index: int, results: Sequence[Result]) -> tuple[Port, ...]:
        """A port for each value that the group may take: the program's own tensors, and what earlier groups made."""
        group = self.groups[index]
        own = {step.name for segment in group for step in segment.steps}
        own |= {local for segment in group for local in segment.tangents.values()} | self.fixed.keys()
        taken = [name for segment in group for step in segment.steps for name in used(step)]
        taken += [name for _, value in results for name in refs(value)]
        taken += [name for segment in group for name in segment.gradients.values()]
        ports = [self.port(name) for name in dict.fromkeys(taken) if name not in own]
        return tuple(sorted(ports, key=lambda port: ROLES.index(port.role)))

    def port(self, name: str) -> Port:
        """An input: the program's own tensor, or what a link brings from an earlier Pair."""
        if name in self.roots:
            own = self.roots[name]
            return Port(own, self.roles[own], self.spec(name), name)
        if name not in self.home:
            raise CaptureError(f"a later part of the step takes {name!r}, which autograd gave a backward to start from")
        return Port(self.source_of(name)[1], "input", self.spec(name), name)

    def source_of(self, name: str) -> tuple[PortKey, str]:
        """Where a value of an earlier group comes from: the key of a port there; and what it is called afterwards."""
        source, side = self.home[name]
        segment = self.groups[source][1] if len(self.groups[source]) > 1 else None
        if side == 1:
            if not self.writer.is_strided(name):
                raise CaptureError("a backward gives a sparse gradient, which no link between Pairs holds")
            gradient = next((own for own, local in segment.gradients.items() if local == name), "") if segment else ""
            called = self.free(f"{gradient}.grad", source) if gradient else name
            return PortKey("gradient", gradient or name), called
        loss = next((loss for loss, local in self.losses(source).items() if local == name), name)
        own = next((own for own, local in self.changed[source].items() if local == name), None)
        return PortKey("output", loss) if own is None else PortKey("mutation", own), name

    def free(self, name: str, source: int) -> str:
        """A name for a gradient between Pairs that is no tensor's own."""
        several = sum(name.removesuffix(".grad") in s.gradients for s in self.step.segments) > 1
        return f"{name}.{source}" if several or name in self.step.names.values() else name

    def losses(self, index: int) -> dict[str, str]:
        """The losses of a group's backward, by names of their own in the whole step."""
        back = [number for number, group in enumerate(self.groups) if len(group) > 1]
        found = self.groups[index][1].losses if len(self.groups[index]) > 1 else {}
        if len(back) == 1:
            return dict(found)
        return {name.replace("loss", f"loss_{back.index(index)}", 1): local for name, local in found.items()}

    def spec(self, name: str) -> Spec:
        return self.writer.spec(name)


ROLES = ("parameter", "buffer", "input", "constant")


def role_of(name: str, tensor: Tensor) -> str:
    """A parameter, state that stays with the program, or an input of this step."""
    if isinstance(tensor, nn.Parameter):
        return "parameter"
    return "input" if name.startswith("input_") or "." not in name else "buffer"
