"""A Diff as text for people and as JSON.

- Left, or side 0, is the Capture before the change, and right, or side 1, the one after it.
- `StepChange`: a step that only one side has, or that differs: `before` and `after` are its numbers in the two graphs,
  None where a side does not have it, and `parts` is what differs of it. It `follows` if it differs only because a value
  that it takes has another type. A backward's step is `recomputed` if it computes a value of the forward again.
- `PortChange`: the same of an input or output of a graph.
- `GraphDiff`, `PairDiff`: one direction of a Pair, and a Pair, on both sides. The hash of a direction that a side does
  not have is ''.
- Of a Step, `spec` is the type of its result and `source` the line and the module that called it. Of a Port, `local` is
  its name in the graph.

All names come from samples, which may be a stranger's: control characters are escaped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import Any

from backprint.common.text import amount, printable, short
from backprint.graph.folding.nouns import split_numbers_of_text
from backprint.graph.keys import number_of
from backprint.graph.nouns import Capture, Graph, Port, Ref, Spec, Step, refs
from backprint.graph.steps import mapped, used
from backprint.graph.text import show, show_call, show_spec
from backprint.graph.together import guard_texts, names_together
from backprint.tools.cost.traffic import bytes_by_group, traffic_of
from backprint.tools.diff.matching import subgraphs_of
from backprint.tools.diff.nouns import Costs, Diff, Fact, GraphDiff, PairDiff, PortChange, StepChange

# ---- Differences beside the graphs: engine, versions, guards, notes


def capture_facts(before: Capture, after: Capture) -> Iterator[Fact]:
    """Yield the facts that differ, each with the lines that only one side has; with all lines of both if nothing but
    their order or number differs."""
    left, right = _capture_texts(before), _capture_texts(after)
    for name in dict.fromkeys((*left, *right)):
        lines_a, lines_b = left.get(name, ()), right.get(name, ())
        if lines_a != lines_b:
            in_a, in_b = set(lines_a), set(lines_b)
            only_a = tuple(line for line in lines_a if line not in in_b)
            only_b = tuple(line for line in lines_b if line not in in_a)
            yield Fact(name, only_a, only_b) if only_a or only_b else Fact(name, lines_a, lines_b)


def _capture_texts(capture: Capture) -> dict[str, tuple[str, ...]]:
    """Return the facts of a Capture by name, each as lines."""
    symbols = {
        f"{symbol.name} was {symbol.hint} in [{symbol.low}, {symbol.high}]": None
        for pair in capture.pairs
        for graph in pair.graphs
        for symbol in graph.symbols
    }
    return {
        "engine": (capture.engine,),
        "fake": ("yes" if capture.fake else "no",),
        **{name: (value,) for name, value in capture.environment},
        "loss": (capture.signature.loss,) if capture.signature.loss else (),
        "constants of the call": tuple(f"{name} = {value}" for name, value in capture.signature.leaves),
        "constants of the result": tuple(_result_constants(capture.signature.output)),
        "symbolic sizes": tuple(symbols),
        "guards": guard_texts(capture.guards),
        "opaque edges": tuple(f"{edge.kind}: {edge.text}" for edge in capture.opaque),
        "graph breaks": capture.breaks,
        "pinned inputs": tuple(f"{name}: {why}" for name, why in capture.pins),
        "custom operators": capture.requires,
        "notes": (*capture.why, *capture.notes),
    }


def _result_constants(tree: Any) -> Iterator[str]:
    """Yield what a program returns beside tensors, in order. `tree` is the structure of its result, as a Signature has
    it: `{"tuple": [{"port": "y"}, {"value": 3}]}`."""
    match tree:
        case {"value": value}:
            yield str(value)
        case {"dict": dict(rows)}:
            for item in rows.values():
                yield from _result_constants(item)
        case {"items": [*pairs]}:  # of a dictionary whose keys are not all texts: [key, value]
            for pair in pairs:
                yield from _result_constants({"list": pair[1:]})
        case {"list": [*items]} | {"tuple": [*items]}:
            for item in items:
                yield from _result_constants(item)


def graph_of(capture: Capture, pair: int | None, direction: str) -> Graph | None:
    """Return a direction of a Pair; None if the Capture does not have it."""
    if pair is None:
        return None
    return capture.pairs[pair].forward if direction == "forward" else capture.pairs[pair].backward


def linked_places(capture: Capture) -> list[tuple[object, ...]]:
    """Return the links of a Capture without names, so that those of two Captures can be compared: the Pair and port
    from which each comes and those to which it leads, as numbers. A Pair of None is the Capture itself."""
    places: list[tuple[object, ...]] = []
    for link in capture.links:
        source, target = link.source, link.target
        source_place = _port_place(capture, source, link.port.role, link.port.name)
        target_place = _port_place(capture, target, "", link.name) if target is not None else None
        places.append((source, link.port.role, source_place, target, target_place))
    return places


def _port_place(capture: Capture, pair: int | None, role: str, name: str) -> int | None:
    """Return the place of a Pair's port with this name and role, among its ports; with an empty `role`, of an input of
    any role."""
    if pair is None:
        return None
    graphs = [graph for graph in (capture.pairs[pair].forward, capture.pairs[pair].backward) if graph is not None]
    ports = [port for graph in graphs for port in ((*graph.outputs, *graph.inputs) if role else graph.inputs)]
    return next((place for place, port in enumerate(ports) if port.name == name and role in ("", port.role)), None)


# ---- Changes grouped by module; the same change of several modules is one group with their number
# A change is a line without names of values: a value is called by the operator that makes it, so that lines of two
# layers can be equal.

MARKS = {"added": "+", "removed": "-", "changed": "~", "renamed": "~"}
"""How a line begins."""


@dataclass(frozen=True, slots=True)
class _ChangeLine:
    """Changes of one form."""

    kind: str
    text: str
    count: int
    """In each of the modules."""


@dataclass(frozen=True, slots=True)
class _ChangeGroup:
    """What changed alike in several modules, or in one."""

    modules: tuple[str, ...]
    lines: tuple[_ChangeLine, ...]

    @property
    def name(self) -> str:
        """All of its modules as one name: `model.layers.{0..125}.mlp`."""
        return names_together(self.modules)


def change_groups(diff: GraphDiff, before: Graph, after: Graph) -> tuple[_ChangeGroup, ...]:
    """Return the changes of a graph's steps by module, apart from those that only follow from others. The steps of a
    module that only one side has are one line (WHOLE), and so are those of a layer that compute values of the forward
    again (AGAIN)."""
    writer = _ChangeWriter(diff, before, after)
    whole_modules: dict[str, dict[str, str]] = {
        "removed": _new_modules(before, after, diff, side=0),
        "added": _new_modules(after, before, diff, side=1),
        "changed": {},  # a module with such a step is there on both sides
    }
    # By module: how often it has a change of this kind and text.
    counts_by_module: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    for change in writer.in_order(diff.changes):
        whole = whole_modules[change.kind].get(writer.own_module(change))
        if change.recomputed and change.kind != "changed":
            counts_by_module[writer.layer(change)][change.kind, AGAIN] += 1
        elif not change.follows and not change.recomputed:
            text = writer.text(change) if whole is None else WHOLE
            counts_by_module[whole or writer.module(change)][change.kind, text] += 1
    rows = [
        (name, tuple(_change_line(kind, text, count) for (kind, text), count in counts.items()))
        for name, counts in counts_by_module.items()
    ]
    return _alike_rows(rows)


def _change_line(kind: str, text: str, count: int) -> _ChangeLine:
    """Return the line of a change that a module has `count` times; of AGAIN and WHOLE, the number is in the text."""
    if text in (AGAIN, WHOLE):
        return _ChangeLine(kind, text.format(number_of(count, "step")), 1)
    return _ChangeLine(kind, text, count)


AGAIN, WHOLE = "recomputes {} of the forward", "the whole module, {}"
"""The texts of changes that are counted together."""


def _new_modules(graph: Graph, other: Graph, diff: GraphDiff, side: int) -> dict[str, str]:
    """Return, for each module of `graph` that the other graph does not have, the outermost module around it that the
    other graph does not have either. A module with a matched step is there in the other graph, if under another name.
    `side` is that of `graph` in `diff.steps`, the matched steps: 0 before, 1 after."""
    matched_steps = (graph.steps[ends[side]] for ends in diff.steps)
    prefixes_of_other = {prefix for step in (*other.steps, *matched_steps) for prefix in _prefixes(_module_of(step))}
    new_prefixes = {
        name: [prefix for prefix in _prefixes(name) if prefix not in prefixes_of_other]
        for name in map(_module_of, graph.steps)
    }
    return {name: prefixes[0] for name, prefixes in new_prefixes.items() if prefixes}


def _prefixes(name: str) -> list[str]:
    """Return a module and the modules around it, the outermost first: `a`, `a.b`, `a.b.c`."""
    return list(accumulate(name.split("."), "{}.{}".format)) if name else []


def _module_of(step: Step) -> str:
    """Return the module that a step was called in; '' outside of modules."""
    return step.source.module if step.source is not None else ""


def port_groups(diff: GraphDiff, before: Graph, after: Graph) -> tuple[_ChangeGroup, ...]:
    """Return the changes of a graph's ports, one line a group. Values that are saved for the backward stand at the
    forward, each by the operator and the module that makes it."""
    writer = _ChangeWriter(diff, before, after)
    rows = []
    for change in diff.ports:
        written = writer.port(change)
        if written is not None:
            name, text = written
            rows.append((name, (_ChangeLine(change.kind, text, 1),)))
    return _alike_rows(rows)


def _alike_rows(rows: Iterable[tuple[str, tuple[_ChangeLine, ...]]]) -> tuple[_ChangeGroup, ...]:
    """Return rows (name of a module or port, lines) as groups: rows with equal lines, and with names that differ in
    nothing but numbers, are one group."""
    groups: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name, lines in rows:
        words_of_name, _ = split_numbers_of_text(name)
        groups[words_of_name, lines].append(name)
    return tuple(_ChangeGroup(tuple(names), lines) for (_, lines), names in groups.items())


class _ChangeWriter:
    """Writes steps and ports of both sides of a GraphDiff."""

    def __init__(self, diff: GraphDiff, before: Graph, after: Graph) -> None:
        self.graphs = before, after
        self.ends = dict(diff.steps)
        """The number of the second graph's step by that of the first's, for steps that both have."""
        self.same = same_values(diff, before, after)
        self.renamed = dict(diff.modules)
        """The name after the change by the name before it, of modules with other names."""
        self.modules = [{step.name: _module_of(step) for step in graph.steps} for graph in self.graphs]
        self.makers = [
            {port.local: _input_name(port) for port in graph.inputs} | {s.name: _short_target(s) for s in graph.steps}
            for graph in self.graphs
        ]
        """What each value is called: the operator that makes it, or the last part of an input's name."""

    def in_order(self, changes: Sequence[StepChange]) -> list[StepChange]:
        """Return changes in the order of the first graph; an added step stands after the last step before it that both
        graphs have."""
        step_before_by_after = {after: before for before, after in self.ends.items()}
        places, place = [], -1  # by step of the second graph: the step of the first that it, or the last one before, is
        for number in range(len(self.graphs[1].steps)):
            place = step_before_by_after.get(number, place)
            places.append(place)

        def key(change: StepChange) -> tuple[int, int, int]:
            """Return the step of the first graph, whether it was added behind that, and its own number."""
            if change.before is not None:
                return change.before, 0, 0
            assert change.after is not None  # a change has a step on one side
            return places[change.after], 1, change.after

        return sorted(changes, key=key)

    def sides(self, change: StepChange) -> list[Step | None]:
        """Return the step of a change on both sides."""
        places = zip(self.graphs, (change.before, change.after), strict=True)
        return [graph.steps[place] if place is not None else None for graph, place in places]

    def own_module(self, change: StepChange) -> str:
        """Return the module of a change, by its name in the graph that has the step; after it if both have."""
        return next(_module_of(step) for step in reversed(self.sides(change)) if step is not None)

    def module(self, change: StepChange) -> str:
        """Return the module of a change, by its name in the second graph if that has it."""
        name = self.own_module(change)
        return self.renamed.get(name, name) if change.after is None else name

    def layer(self, change: StepChange) -> str:
        """Return the outermost layer that a change is in, as `blocks.3` of `blocks.3.mlp.0`; else its module."""
        parts = self.own_module(change).split(".")
        end = next((place for place, part in enumerate(parts) if part.isdigit()), len(parts) - 1)
        return ".".join(parts[: end + 1])

    def text(self, change: StepChange) -> str:
        """Return a change in a line: a call and the type of its result, or what differs between two."""
        before, after = self.sides(change)
        if before is not None and after is not None:
            return self.change_text(before, after, set(change.parts))
        side, step = (0, before) if before is not None else (1, after)
        assert step is not None  # a change has a step on one side
        kind = f": {show_spec(step.spec)}" if step.spec is not None else ""
        return f"{_short_target(step)}{self.arguments(step, side)}{kind}"

    def change_text(self, before: Step, after: Step, parts: set[str]) -> str:
        """Return in a line what differs between two steps, of which `parts` (`nouns.PARTS`) do: the operators alone,
        the two calls, or what one takes; then other subgraphs, and the types."""
        left, right = _short_target(before), _short_target(after)
        if left == right and before.target != after.target:  # another overload
            left, right = before.target.removeprefix("aten."), after.target.removeprefix("aten.")
        texts: list[str] = []
        if parts <= {"operator", "type"} and "operator" in parts:
            texts = [f"{left} -> {right}"]
        elif parts & {"operator", "arguments"}:
            texts = [f"{left}{self.arguments(before, 0)} -> {right}{self.arguments(after, 1)}"]
        elif "inputs" in parts:
            texts = [f"{right} takes {self.inputs_text(before, after)}"]
        if "subgraphs" in parts:
            bodies_a, bodies_b = (dict(graph.subgraphs) for graph in self.graphs)
            # Not strict: two steps may call another number of subgraphs; what the longer list has more is not named.
            called = zip(subgraphs_of(before), subgraphs_of(after), strict=False)
            others = [new for old, new in called if bodies_a[old].hash() != bodies_b[new].hash()]
            texts += [f"{right} calls another {name}" for name in others]
        text = "; ".join(texts) or right
        return f"{text}: {_types_text(before.spec, after.spec)}" if "type" in parts else text

    def inputs_text(self, step_a: Step, step_b: Step) -> str:
        """Return which values a step takes now, and which it took, as far as they differ."""
        lefts, rights = used(step_a), used(step_b)
        mapped_names = [self.same.get(name) for name in lefts]  # in the second graph; None for a value that it lacks
        if None not in mapped_names and mapped_names != [*rights] and Counter(mapped_names) == Counter(rights):
            return "the same values in another order"
        texts = []
        for left, mapped_name, right in zip(lefts, mapped_names, rights, strict=False):  # the rest is counted below
            before, after = self.makers[0].get(left, left), self.makers[1].get(right, right)
            if before != after or mapped_name not in (None, right):
                texts.append(_instead(before, after))
        if len(lefts) != len(rights):
            texts.append(f"{number_of(len(rights), 'value')}, not {len(lefts)}")
        fallback = (
            "another value of the same kind" if None in mapped_names else "a value that other steps changed in place"
        )
        return "; ".join(dict.fromkeys(texts)) or fallback

    def arguments(self, step: Step, side: int) -> str:
        """Return the arguments of a call, named by the operators that make them."""
        with_makers = mapped(step, lambda name: Ref(self.makers[side].get(name, name)))
        return f"({show_call(with_makers.args, with_makers.kwargs)})"

    def port(self, change: PortChange) -> tuple[str, str] | None:
        """Return the name of a changed port and what changed; None of a value that a backward takes as it is saved,
        which is named at the forward. A saved value has the name of the module that makes it."""
        sides = [graph.inputs if change.is_input else graph.outputs for graph in self.graphs]
        places = change.before, change.after
        port_a, port_b = (side[index] if index is not None else None for side, index in zip(sides, places, strict=True))
        port = port_b or port_a
        if port is None or (change.is_input and port.role == "saved"):
            return None
        if port.role == "saved":
            side, place = (1, change.after) if change.after is not None else (0, change.before)
            assert place is not None  # a change has a port on one side
            name = next(refs(self.graphs[side].results[place]), "")
            kind = _types_text(*(port.spec for port in (port_a, port_b) if port is not None))
            return self.modules[side].get(name, ""), f"saves {self.maker(side, place)} {kind}"
        if port_a is None or port_b is None:
            return port.name, f"{port.role} {show_spec(port.spec)}"
        if change.kind == "renamed":
            return port.name, f"{port.role}, before: {_difference_of_names(port_a.name, port_b.name)}"
        texts = {
            "name": f"before: {port_a.name}",
            "role": f"before: {port_a.role}",
            "type": _types_text(port_a.spec, port_b.spec),
        }
        if "value" in change.parts:
            texts |= self.value_texts(change, port_a, port_b)
        return port.name, f"{port.role}, {'; '.join(texts[part] for part in change.parts if texts[part])}"

    def value_texts(self, change: PortChange, port_a: Port, port_b: Port) -> dict[str, str]:
        """Return what is said of an output that both sides have, with another value: which steps make it. If no step
        makes it on one side, it is a constant there, with which the types of both are written, too."""
        assert change.before is not None
        assert change.after is not None
        has_maker_a = any(refs(self.graphs[0].results[change.before]))
        has_maker_b = any(refs(self.graphs[1].results[change.after]))
        maker_a, maker_b = self.maker(0, change.before), self.maker(1, change.after)
        if has_maker_a and has_maker_b:
            return {"value": f"comes from {_instead(maker_a, maker_b)}"}
        before = f"{show_spec(port_a.spec)} from {maker_a}" if has_maker_a else maker_a
        after = f"{show_spec(port_b.spec)} from {maker_b}" if has_maker_b else maker_b
        # The value's text says the types, so "type" has none of its own.
        return {"type": "", "value": f"is {after}, before: {before}"}

    def maker(self, side: int, place: int) -> str:
        """Return what makes an output of a side: the operators of its values, or the constant that it is."""
        result = self.graphs[side].results[place]
        return ", ".join(self.makers[side].get(name, name) for name in refs(result)) or show(result)


def _types_text(*specs: Spec) -> str:
    """Return a type, or both if there are two that differ; a type that is not known is called so."""
    return " -> ".join(dict.fromkeys(show_spec(spec) if spec is not None else "unknown type" for spec in specs))


def same_values(diff: GraphDiff, before: Graph, after: Graph) -> dict[str, str]:
    """Return the names of values that both graphs have, with their names in the second: steps, and inputs, by role and
    name or as `diff.ports` pairs them."""
    same = {before.steps[a].name: after.steps[b].name for a, b in diff.steps}
    local_by_key = {port.key: port.local for port in after.inputs if port.role != "saved"}
    same |= {port.local: local_by_key[port.key] for port in before.inputs if port.key in local_by_key}
    for change in diff.ports:
        if change.is_input and change.before is not None:
            local = before.inputs[change.before].local
            same.pop(local, None)
            if change.after is not None:
                same[local] = after.inputs[change.after].local
    return same


def _instead(before: str, after: str) -> str:
    """Return in words a value that stands in the place of another: `mul, not add`, or `another saved value`."""
    return f"{after}, not {before}" if before != after else f"another {after.removeprefix('a ')}"


def _input_name(port: Port) -> str:
    """Return what an input is called: the last part of its name; a saved value has none, its name is a step's."""
    if port.role == "saved":
        return "a saved value"
    name = port.name.rpartition(".")[2]
    return f"tangent of {name}" if port.role == "tangent" else name


def _short_target(step: Step) -> str:
    """Return an operator without `aten.` and without its overload."""
    name = step.target.removeprefix("torch.ops.").removeprefix("aten.")
    return name.partition(".")[0] if step.target.startswith("aten.") else name


def _difference_of_names(before: str, after: str) -> str:
    """Return the part of the name `before` that is another in `after`: what both begin and end with is left out, as far
    as something stays. Of `model.attn.weight` and `model.attention.weight`: `attn`."""
    parts_a, parts_b = before.split("."), after.split(".")
    while parts_a and parts_b and parts_a[0] == parts_b[0]:
        parts_a, parts_b = parts_a[1:], parts_b[1:]
    while len(parts_a) > 1 and parts_b and parts_a[-1] == parts_b[-1]:
        parts_a, parts_b = parts_a[:-1], parts_b[:-1]
    return ".".join(parts_a) or before


# ---- Text and JSON

MOST_GROUPS, MOST_LINES = 24, 16
"""How many groups of changes are shown of a graph, and how many lines of a group."""

LONGEST = 200
"""A line of a change has at most so many characters."""


def diff_text(diff: Diff) -> str:
    """Return a Diff as text, in which long lists are cut."""
    return "\n".join(map(printable, diff_lines(diff)))


def diff_lines(diff: Diff, everything: bool = False, places: tuple[str, str] = ("", "")) -> Iterator[str]:
    """Yield the lines of a Diff: the answer, the two sides, each Pair, and what differs beside the graphs. `places` are
    the folders of its samples; with `everything` long lists are not cut."""
    yield answer_line(diff)
    for word, place, capture in zip(("before:", "after: "), places, (diff.before, diff.after), strict=True):
        yield " ".join(filter(None, (word, place, capture.name, f"({capture.engine})")))
    for pair in diff.pairs:
        yield from _pair_lines(diff, pair, everything)
    if not diff.links:
        yield "the pairs are joined in another way"
    for fact in diff.facts:
        yield from fact_lines(fact, everything)


# ---- The answer: what changed, in one line

FEW_WORDS = 60
"""A change of at most so many characters stands in the answer itself."""


def answer_line(diff: Diff) -> str:
    """Return what changed in one line: bytes that are saved, FLOPs, and the steps of each direction."""
    if diff.same:
        has_renamed = any(graph.modules for pair in diff.pairs for graph in pair.graphs)
        renamed = "; modules have other names" if has_renamed else ""
        return f"no differences between the graphs (equal hashes){renamed}"
    totals = [f"{name} {_costs_text(cost, text)}" for name, cost, text in cost_rows(diff)]
    if len(diff.pairs) > 1:
        differing = sum(not pair.same for pair in diff.pairs)
        steps = [f"{differing} of {number_of(len(diff.pairs), 'pair')} differ" if differing else ""]
    else:
        steps = [
            f"{graph.direction} {_change_in_words(diff, graph)}" for graph in diff.pairs[0].graphs if not graph.same
        ]
    links = "" if diff.links else "the pairs are joined in another way"
    return "; ".join(filter(None, (", ".join(totals), *steps, links)))


def cost_rows(diff: Diff) -> Iterator[tuple[str, Costs, Callable[[int], str]]]:
    """Yield (name, costs, function that writes a number) for each cost of the whole training step that changed."""
    costs = (
        ("saved for backward", [pair.saved_bytes for pair in diff.pairs], amount),
        ("FLOPs", [graph.flops for pair in diff.pairs for graph in pair.graphs], short),
        *((f"sent over {group}", [cost], amount) for group, cost in bytes_sent_by_group(diff).items()),
    )
    for name, rows, text in costs:
        cost = Costs(sum(row.before for row in rows), sum(row.after for row in rows))
        if cost.before != cost.after:
            yield name, cost, text


def bytes_sent_by_group(diff: Diff) -> dict[str, Costs]:
    """Return the bytes that a rank sends over each group, before and after."""
    before, after = (bytes_by_group(traffic_of(capture)) for capture in (diff.before, diff.after))
    return {group: Costs(before.get(group, 0), after.get(group, 0)) for group in dict.fromkeys((*before, *after))}


def _change_in_words(diff: Diff, graph: GraphDiff) -> str:
    """Return a graph's change in the answer: the change itself, if there is one line of change and it is short; else
    how many steps changed."""
    before, after = graphs_of(diff, diff.pairs[0], graph.direction)
    if before is not None and after is not None and all(graph.hashes):
        groups = change_groups(graph, before, after)
        lines = [line for group in groups for line in group.lines]
        if (
            len(lines) == 1
            and not lines[0].text.startswith(AGAIN.partition(" ")[0])  # `recomputes`: `_counts_text` says more
            and len(lines[0].text) <= FEW_WORDS
        ):
            where = f" in {groups[0].name}" if groups[0].name else ""
            return f"{MARKS[lines[0].kind]} {lines[0].text}{where}{times_text(len(groups[0].modules) * lines[0].count)}"
    return _counts_text(graph, before, after)


def _pair_lines(diff: Diff, pair: PairDiff, everything: bool) -> Iterator[str]:
    """Yield the lines of a Pair: one, if only one side has it; else those of each direction that changed, and the bytes
    that are kept for the backward. The answer says what is saved if there is one Pair."""
    several = len(diff.pairs) > 1
    if pair.before is None or pair.after is None:
        only, number = ("before", pair.before) if pair.after is None else ("after", pair.after)
        steps = sum(len(graph.changes) for graph in pair.graphs)
        yield f"pair {number}: only {only}, {number_of(steps, 'step')}"
        return
    for graph in pair.graphs:
        where = f"pair {pair.before} -> {pair.after}, {graph.direction}" if several else graph.direction
        first = pair.graphs[0]  # the forward, which shows what is renamed in both directions
        forward_shown = first if graph is not first and all(first.hashes) else None
        before, after = graphs_of(diff, pair, graph.direction)
        lines = list(_graph_lines(graph, before, after, forward_shown, everything))
        if lines or not graph.same:
            yield f"{where}: {headline(graph, before, after)}"
            yield from lines
    for name, cost in (("saved for backward", pair.saved_bytes), ("parameters and inputs kept", pair.kept_bytes)):
        if cost.before != cost.after and (several or cost is pair.kept_bytes):
            yield f"{name}: {_costs_text(cost, amount)}"


def headline(graph: GraphDiff, before: Graph | None, after: Graph | None) -> str:
    """Return how many steps changed, and how many did not."""
    text = _counts_text(graph, before, after)
    same = number_of(len(graph.steps) - sum(change.kind == "changed" for change in graph.changes), "step")
    return f"{text}, {same} the same" if all(graph.hashes) and not graph.same else text


def _counts_text(graph: GraphDiff, before: Graph | None, after: Graph | None) -> str:
    """Return how many steps changed, by what became of them; of a direction that one side lacks, how many there are."""
    if not all(graph.hashes):  # a hash is '' where a side does not have the direction
        return f"only {'before' if graph.hashes[0] else 'after'}, {number_of(len(graph.changes), 'step')}"
    if graph.same:
        return "the same (equal hashes)"
    # By kind; under '' those that only follow from others.
    counts = Counter(change.kind if not change.follows else "" for change in graph.changes if not change.recomputed)
    counted = list(_recomputed_texts(graph, before, after))
    counted += [f"{counts[kind]} {kind}" for kind in ("added", "removed", "changed") if counts[kind]]
    if takers := sum(change.recomputed and change.kind == "changed" for change in graph.changes):
        counted.append(f"{takers} {'takes' if takers == 1 else 'take'} recomputed values in the place of saved ones")
    if counts[""]:
        whose = "its" if counts[""] == 1 else "their"
        counted.append(f"{counts['']} with other sizes or types because of {whose} arguments")
    prefix = "only sizes differ: " if graph.only_sizes else ""
    return f"{prefix}{', '.join(counted) or 'no step changed'}"


def _kind_of_layers(names: Sequence[str]) -> str:
    """Return what layers are called, with their names: `blocks (model.blocks.{0..11})`."""
    words = {".".join(name.split(".")[:-1]).rpartition(".")[2] for name in names}
    word = words.pop() if len(words) == 1 else ""
    return f"{word if word.isidentifier() else 'modules'} ({names_together(names)})"


def _recomputed_texts(graph: GraphDiff, before: Graph | None, after: Graph | None) -> Iterator[str]:
    """Yield how many steps of the forward a backward computes again, that the other one does not: in all, or in each
    layer if that is the same number."""
    if before is None or after is None:
        return
    shown = _ChangeWriter(graph, before, after)
    for kind, verb in (("added", "recomputes"), ("removed", "no longer recomputes")):
        layers = Counter(shown.layer(change) for change in graph.changes if change.recomputed and change.kind == kind)
        if not layers:
            continue
        steps, names = set(layers.values()), [name for name in layers if name]
        if len(steps) == 1 and len(names) == len(layers) > 1:
            yield f"{verb} {number_of(min(steps), 'step')} of each of {len(names)} {_kind_of_layers(names)}"
        else:
            yield f"{verb} {number_of(layers.total(), 'step')} of the forward"


def _graph_lines(
    graph: GraphDiff, before: Graph | None, after: Graph | None, forward_shown: GraphDiff | None, everything: bool
) -> Iterator[str]:
    """Yield the lines of a graph that both sides have, and of its subgraphs; none if one side does not have it. Names
    that `forward_shown`, the forward's diff, has shown as renamed are left out."""
    if before is None or after is None:
        return
    yield from group_lines(change_groups(graph, before, after), everything)
    ports = port_groups(graph, before, after)
    if forward_shown is not None:
        ports = tuple(group for group in ports if group.lines[0].kind != "renamed")
    yield from port_lines(ports, everything)
    yield from (f"  ! {order}" for order in graph.orders)
    modules = [row for row in graph.modules if forward_shown is None or row not in forward_shown.modules]
    for left, right in renamed_together(modules):
        yield f"  ~ module {right}, before: {left}"
    for count, singular, several in (
        (graph.moved, "stands in another order", "stand in another order"),
        (graph.lines, "is of another line of the program", "are of other lines of the program"),
    ):
        if count and not graph.same:
            yield f"  ({number_of(count, 'common step')} {singular if count == 1 else several})"
    if graph.flops.before != graph.flops.after:
        yield f"  FLOPs: {_costs_text(graph.flops, short)}"
    for sub in graph.subgraphs:
        left, right = sub.names
        bodies = dict(before.subgraphs)[left], dict(after.subgraphs)[right]
        yield f"  in {right}{f', before: {left}' if left != right else ''}: {headline(sub, *bodies)}"
        for line in _graph_lines(sub, *bodies, forward_shown=None, everything=everything):
            yield f"  {line}"


def graphs_of(diff: Diff, pair: PairDiff, direction: str) -> tuple[Graph | None, Graph | None]:
    """Return a direction of a Pair on both sides; None if a side does not have it."""
    return graph_of(diff.before, pair.before, direction), graph_of(diff.after, pair.after, direction)


def group_lines(groups: Sequence[_ChangeGroup], everything: bool) -> Iterator[str]:
    """Yield the lines of changed steps, below their modules."""
    most = len(groups) if everything else MOST_GROUPS
    for group in groups[:most]:
        where = f"in {group.name}{times_text(len(group.modules))}" if group.name else "outside of modules"
        yield f"  {where}:"
        shown = group.lines if everything else group.lines[:MOST_LINES]
        for line in shown:
            yield f"    {MARKS[line.kind]} {shortened(line.text)}{times_text(line.count)}"
        if len(shown) < len(group.lines):
            yield f"    … and {number_of(sum(line.count for line in group.lines[len(shown) :]), 'step')} more"
    if len(groups) > most:
        yield f"  … and {number_of(sum(len(group.modules) for group in groups[most:]), 'module')} more"


def port_lines(groups: Sequence[_ChangeGroup], everything: bool) -> Iterator[str]:
    """Yield the lines of changed ports; a group has one line (`port_groups`)."""
    most = len(groups) if everything else MOST_GROUPS
    for group in groups[:most]:
        line, count = group.lines[0], times_text(len(group.modules))
        text = f"{group.name}{count}: {shortened(line.text)}" if group.name else f"{shortened(line.text)}{count}"
        yield f"  {MARKS[line.kind]} {text}"
    if len(groups) > most:
        yield f"  … and {number_of(sum(len(group.modules) for group in groups[most:]), 'port')} more"


def times_text(count: int) -> str:
    """Return how often something is there, if it is more than once."""
    return f" (× {count})" if count > 1 else ""


def shortened(text: str) -> str:
    """Return a text in one line of limited length."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def renamed_together(modules: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield renamed modules (name before, name after), those that differ in numbers alone as one."""
    families: dict[tuple[Any, Any], list[tuple[str, str]]] = {}
    for left, right in modules:
        words_of_left, _ = split_numbers_of_text(left)
        words_of_right, _ = split_numbers_of_text(right)
        families.setdefault((words_of_left, words_of_right), []).append((left, right))
    for rows in families.values():
        yield names_together([left for left, _ in rows]), names_together([right for _, right in rows])


def fact_lines(fact: Fact, everything: bool) -> Iterator[str]:
    """Yield the lines of a fact: one, if each side has one line or none; else each side's lines below its name."""
    if len(fact.before) <= 1 and len(fact.after) <= 1:
        left, right = (side[0] if side else "none" for side in (fact.before, fact.after))
        yield f"{fact.name}: {shortened(left)} -> {shortened(right)}"
        return
    yield f"{fact.name}:"
    rows = [*(f"  - {line}" for line in fact.before), *(f"  + {line}" for line in fact.after)]
    shown = rows if everything else rows[:MOST_LINES]
    yield from map(shortened, shown)
    if len(shown) < len(rows):
        yield f"  … and {len(rows) - len(shown)} more"


def _costs_text(costs: Costs, text: Callable[[int], str]) -> str:
    """Return what something costs before and after, and by how much it grew or shrank."""
    return f"{text(costs.before)} -> {text(costs.after)} ({grown_text(costs)})"


def grown_text(costs: Costs) -> str:
    """Return by how much something grew or shrank."""
    return f"{100 * (costs.after - costs.before) / costs.before:+.1f} %" if costs.before else "new"


# ---- JSON


def diff_json(diff: Diff) -> dict[str, Any]:
    """Return a Diff as plain data."""
    return {
        "same": diff.same,
        "before": {"name": diff.before.name, "engine": diff.before.engine},
        "after": {"name": diff.after.name, "engine": diff.after.engine},
        "same_links": diff.links,
        "facts": [asdict(fact) for fact in diff.facts],
        "sent": {group: asdict(cost) for group, cost in bytes_sent_by_group(diff).items()},
        "pairs": [_pair_json(diff, pair) for pair in diff.pairs],
    }


def _pair_json(diff: Diff, pair: PairDiff) -> dict[str, Any]:
    """Return a Pair as plain data."""
    return {
        "same": pair.same,
        "before": pair.before,
        "after": pair.after,
        "saved_bytes": asdict(pair.saved_bytes),
        "kept_bytes": asdict(pair.kept_bytes),
        **{graph.direction: _graph_json(graph, *graphs_of(diff, pair, graph.direction)) for graph in pair.graphs},
    }


def _graph_json(graph: GraphDiff, before: Graph | None, after: Graph | None) -> dict[str, Any]:
    """Return a graph as plain data: groups for people, steps and ports by number for programs. A graph that one side
    lacks has no groups."""
    steps: tuple[_ChangeGroup, ...] = ()
    ports: tuple[_ChangeGroup, ...] = ()
    if before is not None and after is not None:
        steps, ports = change_groups(graph, before, after), port_groups(graph, before, after)
    return {
        "same": graph.same,
        "only_sizes": graph.only_sizes,
        "hashes": {"before": graph.hashes[0] or None, "after": graph.hashes[1] or None},
        "steps": [len(side.steps) if side is not None else None for side in (before, after)],
        "matched": graph.steps,
        "changes": [asdict(change) | {"kind": change.kind} for change in graph.changes],
        "ports": [asdict(change) | {"kind": change.kind} for change in graph.ports],
        "groups": list(map(_group_json, steps)),
        "port_groups": list(map(_group_json, ports)),
        "orders": graph.orders,
        "renamed_modules": graph.modules,
        "moved": graph.moved,
        "lines": graph.lines,
        "flops": asdict(graph.flops),
        "subgraphs": list(_subgraphs_json(graph, before, after)),
    }


def _subgraphs_json(graph: GraphDiff, before: Graph | None, after: Graph | None) -> Iterator[dict[str, Any]]:
    """Yield the subgraphs that differ as plain data, with their names."""
    if before is not None and after is not None:
        lefts, rights = dict(before.subgraphs), dict(after.subgraphs)
        for sub in graph.subgraphs:
            left, right = sub.names
            yield {"names": {"before": left, "after": right}} | _graph_json(sub, lefts[left], rights[right])


def _group_json(group: _ChangeGroup) -> dict[str, Any]:
    """Return a group of changes as plain data."""
    return asdict(group) | {"name": group.name}
