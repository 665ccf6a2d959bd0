"""What the ecosystem expects of a project: pages for assistants, the action, workflows, forms, what is packaged."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from jsonschema import Draft202012Validator
from subjects import pages
from test_docs import ROOT, command_calls, commands_below, options_of, problems_of, run_page

import backprint as bp
from face import VERDICTS, main

FOR_ASSISTANTS = ("AGENTS.md", "skills/backprint/SKILL.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def read_yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


# ------------------------------------------------------------------ pages for assistants


@pytest.mark.parametrize("page", [*FOR_ASSISTANTS, "SECURITY.md"])
def test_every_command_and_option_that_an_assistant_is_told_exists(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert [wrong for call in command_calls(text) for wrong in problems_of(call)] == []
    known = {option for command in commands_below(main) for option in options_of(command)}
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= known
    assert all(len(line) <= 140 or line.startswith(("|", "description: ")) for line in text.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("page", FOR_ASSISTANTS)
def test_the_blocks_that_an_assistant_copies_run_and_print_what_is_shown(page: str, tmp_path: Path) -> None:
    blocks = [block for block in pages.blocks((ROOT / page).read_text("utf-8")) if block.runs]
    assert blocks
    done = run_page(ROOT / page, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("page", [*FOR_ASSISTANTS, "SECURITY.md"])
def test_links_of_a_page_for_assistants_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", (ROOT / page).read_text("utf-8"))
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []


def test_the_skill_is_one() -> None:
    text = (ROOT / FOR_ASSISTANTS[1]).read_text("utf-8")
    assert len(text.splitlines()) <= 150
    _, front, body = text.split("---\n", 2)
    facts = yaml.safe_load(front)
    assert set(facts) == {"name", "description"}
    assert facts["name"] == (ROOT / FOR_ASSISTANTS[1]).parent.name
    assert 0 < len(facts["description"]) <= 1024
    assert set(re.findall(r"^\| `(\w+)` \|", body.partition("## What a verdict")[2], re.MULTILINE)) == set(VERDICTS)
    codes = re.findall(r"^\| (\d) \|", body.partition("## Exit codes")[2], re.MULTILINE)
    assert codes == ["0", "1", "2", "3"]


def test_the_targets_of_make_that_a_page_names_exist() -> None:
    made = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    text = (ROOT / "AGENTS.md").read_text("utf-8") + (ROOT / ".github/PULL_REQUEST_TEMPLATE.md").read_text("utf-8")
    named = set(re.findall(r"(?:^|`)make (\w+)", text, re.MULTILINE))
    assert len(named) > 4
    assert named <= made


# ------------------------------------------------------------------ the action

ACTION = read_yaml("action.yml")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with samples: good ones, one that is wrong, one that is vacuous."""
    folder = tmp_path_factory.mktemp("repository")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    bp.save(bp.capture(model, torch.randn(2, 3), name="a|<b>"), folder / "samples" / "good")
    shutil.copytree(folder / "samples" / "good", folder / "wrong")
    code = folder / "wrong" / "pair_0" / "forward" / "model.py"
    code.write_text(code.read_text().replace("aten.tanh.default", "aten.sin.default"))
    still = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    with torch.no_grad():
        still[0].bias.fill_(-100)
    bp.save(bp.capture(still, torch.randn(3, 4), name="vacuous"), folder / "vacuous")
    (folder / "empty").mkdir()
    return folder


def step(name: str) -> Any:
    return next(step for step in ACTION["runs"]["steps"] if step.get("name") == name)


def run_step(folder: Path, place: Path, **inputs: str) -> tuple[int, str, str]:
    """Run the script of the action's step `Verify` as a runner does; return its exit code, its log and the summary."""
    chosen = {name: row["default"] for name, row in ACTION["inputs"].items()} | inputs
    given = {
        name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: chosen[match[1]], value)
        for name, value in step("Verify")["env"].items()
    }
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(place),
        "GITHUB_STEP_SUMMARY": str(place / "summary.md"),
        "GITHUB_ACTION_PATH": str(ROOT),
        **given,
    }
    (place / "step.sh").write_text(step("Verify")["run"])
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(place / "step.sh")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    summary = place / "summary.md"
    return done.returncode, done.stdout + done.stderr, summary.read_text("utf-8") if summary.exists() else ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "code", "says"),
    [
        ({}, 0, r"All is good\. 1 bitwise\n\n.*\| samples/good \| a\\\|&lt;b&gt; \| bitwise \| derivative \| yes \|"),
        ({"path": "samples\nwrong\n"}, 1, r"Not all is good\. 1 bitwise, 1 wrong"),
        ({"path": "vacuous"}, 0, r"\| vacuous \| vacuous \| bitwise \|.*\| no \|"),
        ({"path": "vacuous", "strict": "true"}, 1, r"Not all is good"),
        ({"path": "empty"}, 3, r"nothing was compared"),
        ({"path": "absent"}, 2, r"a path is not there"),
        ({"path": "$(touch run) `touch run`; touch run"}, 2, r"a path is not there"),
        ({"strict": "yes"}, 2, r"^$"),
    ],
)
def test_the_action_proves_samples_and_writes_the_summary(
    repository: Path, inputs: dict[str, str], code: int, says: str, tmp_path: Path
) -> None:
    exit_code, log, summary = run_step(repository, tmp_path, **inputs)
    assert exit_code == code, log
    assert re.search(says, summary, re.DOTALL), summary
    assert not (repository / "run").exists()
    if "strict" in inputs and not summary:
        assert "::error::strict is 'yes'" in log


def test_the_steps_of_the_action_take_inputs_from_the_environment_alone() -> None:
    """An expression inside a script would be a stranger's text in a shell."""
    steps = ACTION["runs"]["steps"]
    assert ACTION["runs"]["using"] == "composite"
    assert [each["shell"] for each in steps if "run" in each] == ["bash", "bash"]
    assert all("${{" not in each.get("run", "") for each in steps)
    used = {name for each in steps for name in re.findall(r"inputs\.(\w+)", json.dumps(each))}
    assert used == set(ACTION["inputs"])
    for each in steps:
        if "run" in each:
            subprocess.run(["bash", "-n", "-c", each["run"]], check=True)


def test_the_page_of_the_action_says_what_it_takes() -> None:
    page = (ROOT / "docs" / "in_ci.md").read_text("utf-8")
    block = next(block for block in pages.blocks(page) if block.language == "yaml")
    workflow = yaml.safe_load(block.text)
    assert len(block.text.strip().splitlines()) <= 20
    (job,) = workflow["jobs"].values()
    (call,) = (each for each in job["steps"] if each["uses"].startswith("backprint/"))
    assert call["uses"] == f"backprint/backprint@v{bp.__version__}"
    assert set(call["with"]) <= set(ACTION["inputs"])
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| `([^`]*)` \|$", page, re.MULTILINE))
    assert rows == {name: row["default"] for name, row in ACTION["inputs"].items()}


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, without the settings of whoever runs the tests; return what it prints."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", *who, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


FACTORY = """
import torch

def factory():
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.{act}()), (torch.ones(2, 3),)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "head", "code", "says"),
    [
        ("Tanh", "GELU", 0, r"^\*\*forward 1 added, .*\| backward \| `1` \| \+ `gelu_backward"),
        ("Tanh", "Tanh", 0, r"^\*\*no differences between the graphs"),
        ("", "Tanh", 0, r"^`model.py:factory` has no good capture on the base: nothing was compared."),
        ("Tanh", "absent", 1, r"^$"),
    ],
)
def test_the_recipe_for_pull_requests_diffs_the_base_and_the_head(
    base: str, head: str, code: int, says: str, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "in_ci.md").read_text("utf-8")
    workflow = yaml.safe_load([block for block in pages.blocks(page) if block.language == "yaml"][1].text)
    job = workflow["jobs"]["diff"]
    (diff,) = (each for each in job["steps"] if each.get("name") == "Diff")
    assert "${{" not in diff["run"], "an expression inside a script is a stranger's text in a shell"
    assert set(diff["env"]) == {"BASE"}
    folder, place = tmp_path / "repository", tmp_path / "runner"
    folder.mkdir()
    place.mkdir()
    git(folder, "init", "--quiet")
    for act in (base, head):
        (folder / "model.py").write_text(FACTORY.format(act=act) if act else "")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", "a")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(place),
        "GITHUB_STEP_SUMMARY": str(place / "summary.md"),
        "BASE": git(folder, "rev-parse", "HEAD~1"),
        **job["env"],
    }
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", diff["run"]]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    summary = place / "summary.md"
    text = summary.read_text("utf-8") if summary.exists() else ""
    assert re.search(says, text, re.DOTALL), text
    assert str(tmp_path) not in text


SUMMARY = ROOT / "scripts" / "summary.py"


def test_a_text_of_a_sample_is_no_markdown_of_the_summary() -> None:
    spec = importlib.util.spec_from_file_location("summary", SUMMARY)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    row = dict(sample="s", name="![x](http://a)\n| **<img src=x>** @all #1", verdict="failed", derivative=None)
    row |= dict(proof=False, detail="d" * 400, nonfinite="")
    *_, line = script.summary([json.dumps(row)], "1")
    assert len(re.findall(r"(?<!\\)\|", line)) == 7
    assert r"\!\[x\](http://a) \| \*\*&lt;img src=x&gt;\*\* \@all \#1" in line
    assert len(line) < 450


# ------------------------------------------------------------------ workflows and forms


def test_the_workflow_runs_what_ci_runs() -> None:
    workflow = read_yaml(".github/workflows/ci.yml")
    jobs = workflow["jobs"]
    runs = {name: [each["run"] for each in job["steps"] if "run" in each] for name, job in jobs.items()}
    assert runs["all"] == [".ci/run"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    made = set(re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    (tests,) = runs["tests"]
    assert {*tests.split()} - {"make"} <= made
    versions = {each.get("with", {}).get("python-version") for each in jobs["all"]["steps"]} - {None}
    versions |= set(jobs["tests"]["strategy"]["matrix"]["python"])
    classified = {name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if ":: 3." in name}
    assert versions == classified
    (called,) = (each for each in jobs["action"]["steps"] if each["uses"] == "./")
    assert (ROOT / called["with"]["path"]).is_dir()
    assert set(called["with"]) <= set(ACTION["inputs"])
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in jobs.values())


FORMS = sorted(path.stem for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


@pytest.mark.parametrize("form", FORMS)
def test_a_form_asks_for_what_is_needed(form: str) -> None:
    content = read_yaml(f".github/ISSUE_TEMPLATE/{form}.yml")
    assert set(content) == {"name", "description", "labels", "body"}
    ids = [row["id"] for row in content["body"]]
    assert len(ids) == len(set(ids))
    for row in content["body"]:
        assert set(row) <= {"type", "id", "attributes", "validations"}
        assert row["type"] in ("textarea", "input", "dropdown", "checkboxes")
        assert row["attributes"]["label"]
    needed = {row["id"] for row in content["body"] if row.get("validations", {}).get("required")}
    assert "doctor" in needed
    text = json.dumps(content)
    assert "backprint doctor --json" in text
    assert "backprint export DIR -o repro.py" in text
    assert [wrong for call in command_calls(text) for wrong in problems_of(call)] == []


def test_there_is_a_form_for_each_fault() -> None:
    assert FORMS == ["capture_refused", "crash", "wrong_verdict"]


CFF = {
    "type": "object",
    "required": ["authors", "cff-version", "message", "title"],
    "additionalProperties": False,
    "properties": {
        "cff-version": {"const": "1.2.0"},
        "message": {"type": "string", "minLength": 1},
        "title": {"type": "string", "minLength": 1},
        "type": {"enum": ["dataset", "software"]},
        "abstract": {"type": "string", "minLength": 1},
        "version": {"type": "string", "minLength": 1},
        "license": {"type": "string"},
        "repository-code": {"type": "string", "pattern": "^https://"},
        "keywords": {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "string", "minLength": 1}},
        "authors": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        },
    },
}
"""The keys of the Citation File Format 1.2.0 that the file has, as its schema says them."""


def test_the_citation_is_of_this_version() -> None:
    citation = read_yaml("CITATION.cff")
    assert list(Draft202012Validator(CFF).iter_errors(citation)) == []
    assert citation["version"] == bp.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    assert citation["repository-code"] == PROJECT["project"]["urls"]["Source"]


def addresses() -> Iterator[str]:
    yield from PROJECT["project"]["urls"].values()
    for path in ("SECURITY.md", "CITATION.cff", "docs/in_ci.md", ".github/ISSUE_TEMPLATE/config.yml"):
        yield from re.findall(r"https://github\.com/[^\s)\"]+", (ROOT / path).read_text("utf-8"))


def test_the_project_has_one_address() -> None:
    source = PROJECT["project"]["urls"]["Source"]
    assert [
        address
        for address in addresses()
        if not (address.startswith((f"{source}/", f"{source}@")) or address == source)
    ] == []
    for address in addresses():
        _, found, path = address.partition("/blob/main/")
        assert not found or (ROOT / path).is_file()


def test_the_supported_version_is_this_one() -> None:
    rows = re.findall(r"^\| (\d+\.\d+) \| yes \|$", (ROOT / "SECURITY.md").read_text("utf-8"), re.MULTILINE)
    assert rows == [bp.__version__.rpartition(".")[0]]


# ------------------------------------------------------------------ what is packaged


def test_the_sdist_has_what_belongs_to_the_project() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    listed = {name.strip("/") for name in included}
    assert listed >= {"src", "tests", "docs", "skills", ".github", "action.yml", "CITATION.cff", "*.md", "scripts"}
    assert [name for name in listed if not any(ROOT.glob(name))] == []
