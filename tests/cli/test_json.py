"""What `--json` prints is what its schema says: each command, each kind of line, and no key beside."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import backprint as bp
from face import main

PROGRAMS = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos() * 1.5


def good():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), (torch.randn(3, 4),)


def wrong():
    return lambda x: Scaled.apply(x * 2).exp(), (torch.randn(3, requires_grad=True),)


def infinite():
    return lambda x: (x - x).sqrt().log(), (torch.randn(3, requires_grad=True),)


def broken():
    def program(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos() * 2

    return program, (torch.randn(3, requires_grad=True),)


def ranked():
    torch.manual_seed(0)
    x = torch.randn(8, 4).chunk(dist.get_world_size())[dist.get_rank()]
    return DistributedDataParallel(nn.Linear(4, 1)), (x,)


def shifted(module, inputs):
    return lambda *values: tuple(result + 0.1 for result in module(*values))


ALL = {"good": good, "absent": lambda: {}["absent"]}
"""

CALLS = """
0 doctor
0 capture programs.py:good -o {out}/good
1 capture programs.py:wrong -o {out}/wrong
0 capture programs.py:infinite -o {out}/infinite
0 capture programs.py:broken -o {out}/broken --engine dynamo
0 capture programs.py:good -o {out}/fake --fake
0 capture programs.py:good -o {out}/trees --layout graphnet
1 capture programs.py:ALL -o {out}/all
0 capture graphnet/train_forward/Sequential -o {out}/again
0 capture programs.py:ranked -o {out}/world --world 2
0 show samples/good
0 show samples/broken
0 show samples/infinite
0 show fake
0 show world/rank_0
0 show graphnet/eval_forward/Sequential
0 show dump
0 show dump --bad
1 verify samples
1 verify samples --power
1 verify spoiled
0 diff samples/good samples/good
1 diff samples/good samples/wrong
1 diff samples/broken samples/wrong
0 diff dump dump
1 diff world/rank_0 world/rank_1
0 fits samples/good --memory 1
1 fits world --memory 0.0000001
0 ranks world
0 ranks world --flops 1T --bytes 1T --link world=1G
1 corpus run verify samples -o {out}/run --jobs 1
0 corpus run backward graphnet/train_forward -o {out}/run --jobs 1
1 corpus run split samples -o {out}/split --by module --jobs 1
0 corpus run export run -o {out}/export
0 corpus run tasks samples/good -o {out}/tasks
0 corpus status run
0 corpus status failed
0 corpus report run
0 corpus report failed
0 corpus dedup samples -o {out}/kept
0 corpus merge {out}/merged shards/1 shards/2
0 bench run samples/good --compiler aot_eager --derivative -o {out}/bench
1 bench run samples/good --compiler programs.py:shifted --no-timing -o {out}/bench
0 bench report bench
0 bench report bench bench2
0 kernels samples/good -o {out}/kernels
0 lower samples/good -o {out}/lowered.py --check
0 task make samples/good -o {out}/task
1 task check task task/solution.py
0 task check task right.py
0 minify samples/good --compiler programs.py:shifted -o {out}/small
0 minify samples/wrong --derivative -o {out}/small
3 minify samples/good --compiler aot_eager -o {out}/small
"""
"""The exit code, and the command: each is run with `--json`, and all that it prints is held against its schema."""

SLOW = re.compile(
    r"corpus run|corpus dedup|bench run|kernels|minify|lower|task check task right|--world|doctor|--power"
)


def name_of_schema(command: str) -> str:
    """Return the name of the schema of a command; verbs of `corpus run` with a line for each sample share one."""
    own = {"corpus run split", "corpus run export", "corpus run tasks"}
    command = "corpus run" if command.startswith("corpus run ") and command not in own else command
    return command.replace(" ", "-")


def commands_with_json(group: click.Group, before: str = "") -> Iterator[str]:
    """Yield the commands that have `--json`."""
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            if isinstance(command, click.Group):
                yield from commands_with_json(command, f"{before}{name} ")
            elif any("--json" in option.opts for option in command.params):
                yield f"{before}{name}"


FOLDER = files("backprint") / "schemas"
SCHEMAS = {
    place.name.removesuffix(".json"): json.loads(place.read_text("utf-8"))
    for place in sorted(FOLDER.iterdir(), key=lambda place: place.name)
}
COMMANDS = list(commands_with_json(main))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands are given."""
    folder = tmp_path_factory.mktemp("json")
    (folder / "programs.py").write_text(PROGRAMS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, options in (("good", ""), ("wrong", ""), ("infinite", ""), ("broken", "--engine dynamo")):
            said(f"capture programs.py:{name} -o samples/{name} {options}")
        said("capture programs.py:good -o fake --fake")
        said("capture programs.py:good -o graphnet --layout graphnet")
        said("capture programs.py:ranked -o world --world 2")
        (folder / "spoiled").mkdir()
        (folder / "spoiled" / "capture.json").write_text("{")
        model, x = torch.nn.Linear(3, 3), torch.randn(2, 3)
        with bp.region("dump", gradients="stats"):
            loss = (model(x) - model(x)).sqrt().sum()
            loss.backward()
        said("corpus run backward graphnet/train_forward -o run --jobs 1")
        said("corpus run verify spoiled -o failed --jobs 1")
        for shard in "12":
            said(f"corpus run verify samples -o shards/{shard} --shard {shard}/2 --jobs 1")
        said("bench run samples/good --compiler aot_eager --no-timing -o bench")
        said("bench run samples/good --compiler aot_eager --no-timing -o bench2")
        said("task make samples/good -o task")
        (folder / "right.py").write_text((folder / "task" / "reference.py").read_text())
    return folder


def said(call: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it printed to standard output."""
    done = CliRunner().invoke(main, call.split())
    assert isinstance(done.exception, SystemExit | None), done.exception
    return done.exit_code, done.stdout


def called(call: str) -> str:
    """Return the command of a call without its arguments."""
    return max((name for name in COMMANDS if call.startswith(f"{name} ") or call == name), key=len)


def not_json(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.parametrize(
    "call",
    [pytest.param(call, marks=[pytest.mark.slow] if SLOW.search(call) else []) for call in CALLS.strip().splitlines()],
)
def test_what_a_command_prints_is_what_its_schema_says(
    place: Path, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    code, command = call.split(" ", 1)
    exit_code, printed = said(f"{command.replace('{out}', str(tmp_path))} --json")
    assert exit_code == int(code), printed
    schema = Draft202012Validator(SCHEMAS[name_of_schema(called(command))])
    lines = [json.loads(line, parse_constant=not_json) for line in printed.splitlines()]
    assert lines
    for line in lines:
        assert list(schema.iter_errors(line)) == []
    for line in with_a_key_more(lines[0]):
        assert not schema.is_valid(line)


def with_a_key_more(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield copies of a line: one with a key that nobody has described, and one without its first."""
    yield {**copy.deepcopy(line), "undescribed": 1}
    yield dict(list(line.items())[1:])


def test_each_command_with_json_has_a_schema_and_is_tried() -> None:
    assert sorted(SCHEMAS) == sorted({name_of_schema(name) for name in COMMANDS})
    tried = {name_of_schema(called(call.split(" ", 1)[1])) for call in CALLS.strip().splitlines()}
    assert tried == set(SCHEMAS)


def objects_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield each part of a schema that describes an object."""
    if isinstance(schema, dict):
        if "properties" in schema and isinstance(schema["properties"], dict):
            yield schema
        for part in schema.values():
            yield from objects_of(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects_of(part)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one_and_describes_each_key(name: str) -> None:
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"backprint {name.replace('-', ' ')} --json".replace("corpus run -", "corpus run VERB -")
    for part in objects_of(schema):
        assert part["additionalProperties"] is False
        assert set(part["required"]) <= set(part["properties"])
        undescribed = [key for key, row in part["properties"].items() if not row.get("description", "").endswith(".")]
        assert undescribed == []
    used = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert used == set(schema.get("$defs", {}))


def test_what_several_schemas_have_is_the_same_in_all() -> None:
    parts: dict[str, Any] = {}
    for schema in SCHEMAS.values():
        for name, part in schema.get("$defs", {}).items():
            assert parts.setdefault(name, part) == part, name


def test_the_page_of_json_is_what_the_schemas_say() -> None:
    script = Path(__file__).parents[2] / "scripts" / "schemas.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
