"""Make linked Pairs of the segments of a script's step, from the last to the first: later ones determine what is
needed."""

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
    """Segments as linked Pairs, made from the last to the first: a later one determines what it needs of those
    before."""

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
            self.changed[index + side][name] = value  # a value that a backward changes is an output of the next forward
        self.wanted: list[dict[str, None]] = [{} for _ in self.groups]
        self.roots = {step.writer.locals[key]: name for key, name in step.names.items()}
        self.fixed = step.writer.constants(step.recorder.tape, step.fresh)
        self.roles = {name: role_of(name, tensor) for name, tensor in zip(
            step.names.values(), step.recorder.seen.outside, strict=True)}  # fmt: skip

    def pairs(self) -> tuple[tuple[Pair, ...], tuple[Link, ...]]:
        """Return the Pairs that have outputs, and the links between them and to the losses."""
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
        """Return one group as a Pair, with links from the groups before it."""
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
        """Return the Joint of one group, with the outputs that later groups need."""
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
        """Return a port for each value that the group may use: the program's own tensors, and values of earlier
        groups."""
        group = self.groups[index]
        own = {step.name for segment in group for step in segment.steps}
        own |= {local for segment in group for local in segment.tangents.values()} | self.fixed.keys()
        taken = [name for segment in group for step in segment.steps for name in used(step)]
        taken += [name for _, value in results for name in refs(value)]
        taken += [name for segment in group for name in segment.gradients.values()]
        ports = [self.port(name) for name in dict.fromkeys(taken) if name not in own]
        return tuple(sorted(ports, key=lambda port: ROLES.index(port.role)))

    def port(self, name: str) -> Port:
        """Return an input port: the program's own tensor, or a value that a link brings from an earlier Pair."""
        if name in self.roots:
            own = self.roots[name]
            return Port(own, self.roles[own], self.spec(name), name)
        if name not in self.home:
            raise CaptureError(f"a later part of the step uses {name!r}, the tangent that autograd made for a backward")
        return Port(self.source_of(name)[1], "input", self.spec(name), name)

    def source_of(self, name: str) -> tuple[PortKey, str]:
        """Return the port that a value of an earlier group comes from, and its name afterwards."""
        source, side = self.home[name]
        segment = self.groups[source][1] if len(self.groups[source]) > 1 else None
        if side == 1:
            if not self.writer.is_strided(name):
                raise CaptureError("a backward returns a sparse gradient, which links between Pairs do not support")
            gradient = next((own for own, local in segment.gradients.items() if local == name), "") if segment else ""
            called = self.free(f"{gradient}.grad", source) if gradient else name
            return PortKey("gradient", gradient or name), called
        loss = next((loss for loss, local in self.losses(source).items() if local == name), name)
        own = next((own for own, local in self.changed[source].items() if local == name), None)
        return PortKey("output", loss) if own is None else PortKey("mutation", own), name

    def free(self, name: str, source: int) -> str:
        """Return a name for a gradient between Pairs that is not a tensor's own."""
        several = sum(name.removesuffix(".grad") in s.gradients for s in self.step.segments) > 1
        return f"{name}.{source}" if several or name in self.step.names.values() else name

    def losses(self, index: int) -> dict[str, str]:
        """Return the losses of a group's backward, by names that are unique in the step."""
        back = [number for number, group in enumerate(self.groups) if len(group) > 1]
        found = self.groups[index][1].losses if len(self.groups[index]) > 1 else {}
        if len(back) == 1:
            return dict(found)
        return {name.replace("loss", f"loss_{back.index(index)}", 1): local for name, local in found.items()}

    def spec(self, name: str) -> Spec:
        return self.writer.spec(name)


ROLES = ("parameter", "buffer", "input", "constant")


def role_of(name: str, tensor: Tensor) -> str:
    """Return a tensor's role: parameter, state that stays with the program (buffer), or input of this step."""
    if isinstance(tensor, nn.Parameter):
        return "parameter"
    return "input" if name.startswith("input_") or "." not in name else "buffer"
