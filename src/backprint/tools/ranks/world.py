"""A World: the Captures of the ranks of one distributed step.

Words of this file:

- The ranks of a World run as threads of this process, *among each other*: what a collective returns is computed from
  what all ranks send (`Meeting`; `Among` answers one rank there). A rank can also run alone, where the collectives are
  answered as in an earlier run.
- `Call`: a model, its arguments and its keyword arguments. `Make`: a function that makes the Call of the rank in which
  it runs. `shard` is the user's function that makes a rank's Call of a copy of the whole model and its arguments.
- `Outcome`: the outputs, gradients and mutations of a step that the program ran, each by name. `Results`: results by
  `PortKey`, which is a port's role and name.
- `Exchange`: one collective of a step: what each member of a group called and sent, and what this rank received.
- A *witness* of a rank has a digest and a few numbers for each of its program's results, in the place of the tensors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from backprint.common.factories import find_factory
from backprint.common.folders import unfinished_folder
from backprint.common.formats import CAPTURE, WORLD
from backprint.errors import RanksError, SampleError, UsageError
from backprint.graph.capture_options import CaptureOptions
from backprint.graph.keys import PortKey, in_a_line, number_of
from backprint.graph.links import mutated
from backprint.graph.nouns import OUT_ROLES, Capture
from backprint.graph.verdicts import DIGESTS, PROGRAM, PortVerdict, Verdict, worst
from backprint.prove.results import (
    Results,
    compare_results,
    compare_with_rows,
    numbers_of,
    results_by_port,
    with_witness,
)
from backprint.prove.run import RunOptions
from backprint.prove.whole import replay_values
from backprint.sample.load import load
from backprint.sample.metadata import MAX_RANKS, Field, Witness, errors_with_path, read_json, write_json
from backprint.sample.place import check_place, settle
from backprint.sample.recipes import DRAWN_KINDS
from backprint.tools.export.saving import write_sample
from backprint.tools.named import is_named
from backprint.tools.ranks.meeting import Among, Meeting, check_one_step, exchanges_of_all
from backprint.tools.ranks.sharded import (
    Call,
    Make,
    call_of_result,
    captured_among_others,
    captured_without_values,
    run_in_ranks,
    sharding,
)
from backprint.tools.ranks.text import (
    difference_of_calls,
    hashes,
    ranks_in_words,
    sent_by_group,
    totals_of_traffic,
    world_text,
)
from backprint.tools.ranks.turns import RankTurns
from backprint.tools.ranks.whole import AgainstWhole, against_whole
from backprint.trace.program import Outcome
from backprint.values.exchanges import Exchange
from backprint.values.settings import preserving_random_states
from backprint.values.wrappers import is_wrapped


@dataclass(frozen=True, slots=True)
class Whole:
    """The program that was sharded: the whole model with its arguments, and the options, which say how each rank shards
    it (`shard`)."""

    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: CaptureOptions


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """The Captures of the ranks of one distributed step, by rank.

    `numbers` are the ranks that were captured, which need not be all of the `size` ranks: a World without values may be
    one rank of a thousand; `ranks` are their Captures, in that order. `outcomes` are the results of the step that the
    ranks ran among each other, before each was captured alone. A World that was loaded has digests of them instead, its
    `witnesses`, if the ranks' values were kept. `whole` is the program that was sharded; None if it is not known here.
    """

    ranks: tuple[Capture, ...]
    size: int
    numbers: tuple[int, ...]
    outcomes: tuple[Outcome, ...] = field(default=(), repr=False)
    witnesses: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    whole: Whole | None = field(default=None, repr=False)

    def rank(self, number: int) -> Capture:
        """Return the Capture of a rank; raise UsageError for one that was not captured."""
        if number not in self.numbers:
            raise UsageError(f"rank {number} was not captured: there are {ranks_in_words(self.numbers)}")
        return self.ranks[self.numbers.index(number)]

    def __dir__(self) -> list[str]:
        # What completes after a dot; the rest is what `verify` compares with.
        return [name for name in object.__dir__(self) if name not in ("outcomes", "witnesses", "whole")]

    def __deepcopy__(self, memo: object) -> World:
        return self  # it is never edited

    def __repr__(self) -> str:
        kinds = len({hashes(capture) for capture in self.ranks})
        captured = "all" if len(self.ranks) == self.size else ranks_in_words(self.numbers)
        graphs = f"one pair of graphs for {captured}" if kinds == 1 else f"{kinds} different pairs of graphs"
        return f"World({in_a_line(self.ranks[0].name)}: {number_of(self.size, 'rank')}, {graphs})"

    def __str__(self) -> str:
        return "\n".join([world_text(repr(self), self.numbers, self.ranks), *totals_of_traffic(self.ranks[0])])

    def verify(self) -> list[Verdict]:
        """Run the graphs of all ranks together, and compare each rank with the program as it ran among the others.

        No process group is needed: a rank runs until it waits for others, then these do. A World that was loaded runs
        on the inputs that its samples keep, and is compared with the digests of the program's results; it is refused if
        samples of ranks are missing, or the values. One without values is unproven.
        """
        if self.ranks[0].fake:
            return [capture.verify()[0] for capture in self.ranks]
        if self.outcomes:
            witness, replayed = PROGRAM, replay_together(self.ranks, [rank.origin.values() for rank in self.ranks])
            compared = [
                compare_results(results, _with_unwritten(capture, results_of(outcome)))
                for capture, results, outcome in zip(self.ranks, replayed, self.outcomes, strict=True)
            ]
        else:
            witness, replayed = DIGESTS, _replay_of_samples(self)
            compared = [
                _against_digests(digests, results) for digests, results in zip(self.witnesses, replayed, strict=True)
            ]
        verdicts = [
            _verdict_of_rank(number, self.rank(number), ports, witness)
            for number, ports in zip(self.numbers, compared, strict=True)
        ]
        return [
            self.with_nonfinite(number, verdict, results)
            for number, verdict, results in zip(self.numbers, verdicts, replayed, strict=True)
        ]

    def with_nonfinite(self, number: int, verdict: Verdict, results: Results) -> Verdict:
        """Return the Verdict of a rank, with where its NaN and Inf come from if its results have some: only then is the
        rank verified alone, which finds the step that made them."""
        tensors = [value for value in results.values() if isinstance(value, Tensor) and value.is_floating_point()]
        if all(bool(tensor.isfinite().all()) for tensor in tensors):
            return verdict
        return replace(verdict, nonfinite=self.rank(number).verify()[0].nonfinite)

    def against_whole(self, model: Any = None) -> AgainstWhole:
        """Compare the gradients of all ranks, put together, with those of the same model that is not sharded.

        Both run in float64, from the beginning: `shard` is called again in each rank. `model` is the whole model, if it
        is another than the one that was captured. Refuse a World without values, or one whose whole is not known here.
        """
        if self.ranks[0].fake:
            raise UsageError(
                "a World without values has no gradients to compare: capture a small version without fake=True"
            )
        if self.whole is None:
            raise UsageError(
                "the whole model is not known here: capture the World in this process, with world= and shard="
            )
        whole = self.whole
        return against_whole(
            whole.model if model is None else model, whole.args, whole.kwargs, whole.options, self.size, self.ranks
        )

    def save(self, path: str | os.PathLike[str], data: str | None = None, *, overwrite: bool = False) -> Path:
        """Write the sample of each rank, `rank_0` and so on, in one folder, and return its path.

        With `data="exact"`, the default, the ranks can be verified together from disk, too; with `"seed"`, the default
        without values, each is verified alone.
        """
        return _save_world(self, path, data or ("seed" if self.ranks[0].fake else "exact"), overwrite)


def _replay_of_samples(world: World) -> list[Results]:
    """Run the graphs of all ranks of a World that was loaded, on the inputs and with the collectives that its samples
    keep, and return the results by rank. Raise UsageError if samples of ranks or their values are missing, and
    RanksError if the samples are not of one step."""
    if len(world.ranks) < world.size:
        raise UsageError(
            f"there are samples of {ranks_in_words(world.numbers)} of {world.size}, so the ranks cannot run "
            "together: verify each alone (world.ranks[0].verify())"
        )
    if not world.witnesses:
        raise UsageError(
            "the samples do not keep the values that the ranks had in the step, so these cannot run together "
            "as they did: verify each alone (world.ranks[0].verify()); World.save(…, data='exact') and "
            "`backprint record` keep them"
        )
    inputs = [capture.inputs() for capture in world.ranks]
    exchanges = exchanges_of_all(world.ranks)
    check_one_step(world.ranks, exchanges)
    return replay_together(world.ranks, inputs, exchanges)


def results_of(outcome: Outcome) -> Results:
    """Return the results of a step that the program ran, by port."""
    return results_by_port(outcome.outputs, outcome.mutations, outcome.gradients)


def _with_unwritten(capture: Capture, results: Results) -> Results:
    """Return the program's results, and for each tensor that the graphs write and the program does not the value that
    it had before: an equal value that is written changes nothing."""
    values = capture.origin.values()
    written = {PortKey("mutation", name): values[name] for name in mutated(capture) if name in values}
    return {**written, **results}


def _against_digests(witness: Mapping[str, Any], results: Results) -> list[PortVerdict]:
    """Compare results with a witness: digests of the program's results, by port as text."""
    return compare_with_rows({PortKey.from_text(text): row for text, row in witness.items()}, results)


def _verdict_of_rank(rank: int, capture: Capture, ports: Sequence[PortVerdict], witness: str) -> Verdict:
    """Return the Verdict of a rank, the worst of its ports'; `witness` says what it was compared with."""
    detail = "; ".join(f"{port.role} {port.name}: {port.detail}" for port in ports if port.verdict != "bitwise")
    word = worst([port.verdict for port in ports])
    return Verdict(word, f"rank {rank} of {capture.name}", detail, tuple(with_witness(ports, witness)))


def replay_together(
    ranks: Sequence[Capture],
    values: Sequence[Mapping[str, Any]],
    arrived: Sequence[Mapping[str, Sequence[Exchange]]] | None = None,
) -> list[Results]:
    """Run the graphs of all ranks, which take turns in threads, on their input `values` by name, and return the results
    of each. Their collectives are computed where they meet. `arrived` has the collectives of the step, by rank and the
    label of the group: what arrived in one is used instead if it is the same but for rounding."""
    turns: RankTurns[Results] = RankTurns(len(ranks))
    meeting = Meeting(turns, replays=True)

    def replay_rank(rank: int) -> Results:
        capture = ranks[rank]
        groups = dict(capture.rank.groups) if capture.rank is not None else {}
        among = Among(meeting, rank, groups, arrived={} if arrived is None else arrived[rank])
        torch.manual_seed(capture.seed)
        return replay_values(capture, values[rank], tangents=None, options=RunOptions(answer=among)).results

    with preserving_random_states():
        return turns.run(replay_rank)


def capture_world(
    target: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: CaptureOptions
) -> World:
    """Capture every rank of a step: all run it among each other, then each is captured alone. With `options.fake`, the
    ranks that `options.ranks` names are captured without values. Refuse a model that is sharded already."""
    for name, tensor in target.named_parameters() if isinstance(target, nn.Module) else ():
        if is_wrapped(tensor):
            raise UsageError(
                f"{name} is sharded already, for the process groups of this process: pass the whole model, and shard "
                "it in each rank with shard="
            )
    make = sharding(target, args, kwargs, options.shard, options.fake)
    if options.fake:
        return fake_world(make, options)
    size = options.world or 1  # not None here: the `or` is for the type alone
    captured = run_in_ranks(size, make, lambda place: captured_among_others(place, options), loss=options.loss)
    return world_of(captured, Whole(target, tuple(args), dict(kwargs), options))


def world_of(captured: Sequence[tuple[Outcome, Capture]], whole: Whole | None = None) -> World:
    """Return the World of all ranks, from the results of each rank's step and its Capture, by rank."""
    ranks = tuple(capture for _, capture in captured)
    outcomes = tuple(outcome for outcome, _ in captured)
    return World(ranks, size=len(ranks), numbers=tuple(range(len(ranks))), outcomes=outcomes, whole=whole)


def fake_world(make: Make, options: CaptureOptions) -> World:
    """Capture some ranks of a step without values, rank 0 by default. No rank runs among others: what a collective
    returns has a shape, which follows from the rank's own call."""
    size = options.world or 1  # not None here: the `or` is for the type alone
    numbers = tuple(options.ranks) if options.ranks is not None else (0,)
    world = World(tuple(captured_without_values(number, size, make, options) for number in numbers), size, numbers)
    _check_same_collectives(world)
    return world


def _check_same_collectives(world: World) -> None:
    """Raise if two ranks of one group that were captured do not call the same collectives in it: they would wait for
    each other. Each rank is compared with the first of its group."""
    calls_by_rank = {number: sent_by_group(world.rank(number)) for number in world.numbers}
    groups = {group for capture in world.ranks if capture.rank is not None for group in capture.rank.groups}
    for label, members in sorted(groups):
        captured = [number for number in world.numbers if number in members]
        for number in captured[1:]:
            first_calls, calls = (calls_by_rank[rank].get(label, []) for rank in (captured[0], number))
            if problem := difference_of_calls(first_calls, calls):
                raise RanksError(
                    f"ranks {captured[0]} and {number} do not call the same collectives over {label!r}: {problem}"
                )


def capture_world_of_factory(text: str, options: CaptureOptions) -> World:
    """Capture every rank of the step that a factory makes, `file.py:factory`: it is called in each rank, as the
    training script of a rank is run, and returns the rank's own model and arguments. Refuse a folder, the name of a
    model, and a factory that returns anything else. The World has no `whole`, as no rank has the whole model."""
    if Path(text).is_dir():
        raise UsageError(f"{text}: world= takes a factory (file.py:factory), which is called in each rank")
    if is_named(text):
        raise UsageError(f"{text}: world= takes a factory (file.py:factory), which shards the model in each rank")
    factory = find_factory(text)

    def make() -> Call:
        result = factory()
        if not isinstance(result, tuple) or len(result) not in (2, 3):
            raise UsageError(f"{text}: the factory must return (model, args) or (model, args, kwargs)")
        return call_of_result(result, (result[0], (), {}))

    if options.fake:
        return fake_world(make, options)
    size = options.world or 1  # not None here: the `or` is for the type alone
    return world_of(run_in_ranks(size, make, lambda place: captured_among_others(place, options), loss=options.loss))


# ---- On disk: a folder with a sample of each rank, and `world.json`

FORMAT = 2
"""The version of `world.json`; another one is refused by name."""


def _folder_of_rank(folder: Path, rank: int) -> Path:
    """Return the folder of a rank's sample."""
    return folder / f"rank_{rank}"


def _save_world(world: World, path: str | os.PathLike[str], data: str, overwrite: bool) -> Path:
    """Write the sample of each rank and `world.json`, in a folder of a temporary name that is renamed when it is
    complete, and return its path. `data` says how inputs are kept, as of `bp.save`; the program's results are kept only
    with `exact`, as only then do the samples make what ran. Refuse a path that is not free."""
    place = Path(path)
    check_place(place, overwrite, WORLD)
    with unfinished_folder(place.parent, place.name) as staging:
        for number, capture in zip(world.numbers, world.ranks, strict=True):
            folder = _folder_of_rank(staging, number)
            write_sample(capture, folder, data, allow=(), overwrite=False, power="quick")
        content = {
            "format": FORMAT,
            "name": world.ranks[0].name,
            "size": world.size,
            "ranks": list(world.numbers),
            "witness": digests_of(world) if data == "exact" else [],
        }
        write_json(staging / WORLD, content)
        settle(staging, place)
    return place


def load_world(path: str | os.PathLike[str], allow: Sequence[str] = ()) -> World:
    """Read the samples of all ranks of a step, as `World.save` or each rank's process has written them (these without
    a `world.json`). Run none of their code, and refuse custom operators that `allow` does not name."""
    folder = Path(path)
    if not is_world(folder):
        inside = sorted(str(place) for place in folder.glob("*") if place.is_dir() and is_world(place))
        rest = f"each of {', '.join(inside[:4])} is one" if inside else "bp.load reads the sample of one rank"
        raise SampleError(
            f"{folder}: not the folder of a World: it has no {WORLD} and no {_folder_of_rank(folder, 0).name}; {rest}"
        )
    if not (folder / WORLD).is_file():
        return _world_of_samples(folder, allow)
    facts = _read_world_json(folder / WORLD)
    ranks = tuple(_loaded_rank(_folder_of_rank(folder, rank), rank, allow) for rank in facts.numbers)
    return World(ranks, facts.size, facts.numbers, witnesses=facts.witnesses)


class _WorldFacts(NamedTuple):
    """What `world.json` says of a World, as fields of World."""

    size: int
    numbers: tuple[int, ...]
    witnesses: tuple[Witness, ...]


def _read_world_json(path: Path) -> _WorldFacts:
    """Read `world.json`. Raise SampleError, with the path, for another format or for content that does not fit."""
    content = read_json(path)
    with errors_with_path(path):
        root: Any = Field(content, "")
        number = root.get("format").whole()
        if number != FORMAT:
            raise SampleError(f"format {number}, and this Backprint reads format {FORMAT}: capture the World again")
        size = root.get("size").whole(MAX_RANKS)
        numbers = tuple(item.whole(MAX_RANKS) for item in root.get("ranks").items(size))
        if not numbers or len(set(numbers)) < len(numbers) or max(numbers) >= size:
            raise SampleError(f"ranks: {list(numbers)} are not some of {size} ranks")
        witnesses = tuple(Witness(row, path) for row in root.get("witness", []).items(size))
        if witnesses and len(witnesses) != len(numbers):
            raise SampleError(f"witness: has the results of {len(witnesses)} ranks, and there are {len(numbers)}")
    return _WorldFacts(size, numbers, witnesses)


def _loaded_rank(place: Path, number: int, allow: Sequence[str]) -> Capture:
    """Read the sample of a rank; refuse one of another rank."""
    capture = load(place, allow)
    if capture.rank is not None and capture.rank.number != number:
        raise SampleError(f"{place}: is the sample of rank {capture.rank.number}")
    return capture


def is_world(folder: Path) -> bool:
    """Whether a folder has the samples of ranks."""
    return (folder / WORLD).is_file() or any(True for _ in _numbered_samples(folder))


def _numbered_samples(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield the samples of ranks in a folder, each after the rank's number; nothing if it is no folder."""
    for place in folder.glob("rank_*") if folder.is_dir() else ():
        _, _, number = place.name.rpartition("_")
        if number.isdecimal() and len(number) < 8 and (place / CAPTURE).is_file():
            yield int(number), place


def _world_of_samples(folder: Path, allow: Sequence[str]) -> World:
    """Return the World of samples that each rank's process has written: `record` or `Capture.save` under torchrun.
    Raise SampleError if they are of steps of different numbers of ranks. Without the values that ran, it has no
    witnesses."""
    places = dict(sorted(_numbered_samples(folder)))
    ranks = {number: _loaded_rank(place, number, allow) for number, place in places.items()}
    sizes = {capture.rank.size if capture.rank is not None else len(ranks) for capture in ranks.values()}
    if len(sizes) > 1 or max(ranks) >= max(sizes):
        raise SampleError(f"{folder}: has samples of steps of {' and '.join(map(str, sorted(sizes)))} ranks")
    witnesses = tuple(_digests_of_program(capture) for capture in ranks.values())
    return World(
        tuple(ranks.values()),
        sizes.pop(),
        tuple(ranks),
        witnesses=witnesses if all(map(_makes_what_ran, ranks.values())) else (),
    )


def _makes_what_ran(capture: Capture) -> bool:
    """Whether a sample has the values that its rank had in the step, and digests of what these came to: none of its
    inputs is drawn from a seed, but for those that another Pair feeds."""
    fed_by_links = {link.name for link in capture.links}
    drawn = {name for name, recipe in capture.recipes.recipes.items() if recipe.kind in DRAWN_KINDS}
    return capture.witness is not None and drawn <= fed_by_links


def _digests_of_program(capture: Capture) -> Mapping[str, Any]:
    """Return the digests of the program's results from a sample's witness, by port as text; {} without a witness. It
    may have other rows, such as of inputs."""
    rows = capture.witness or {}
    return {text: rows[text] for text in rows if PortKey.from_text(text).role in OUT_ROLES}


def digests_of(world: World) -> list[dict[str, Any]]:
    """Return the digests of the results of the step that the ranks ran among each other, by rank and by port as text:
    of the results themselves, or, of a World that was loaded, those that its samples keep."""
    if world.outcomes:
        results_by_rank = [
            _with_unwritten(capture, results_of(outcome))
            for capture, outcome in zip(world.ranks, world.outcomes, strict=True)
        ]
        return [{str(key): numbers_of(value) for key, value in results.items()} for results in results_by_rank]
    return [dict(witness) for witness in world.witnesses]
