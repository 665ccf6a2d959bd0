"""README and docs say what is there: every verb, option, verdict and name, and code that runs as it stands."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from subjects import forked, pages

import backprint as bp
from face import VERDICTS, main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))
OF_THE_SITE = {"index.md", "api.md", "first_steps.md"}
"""Pages that only the built site shows as they are meant."""

TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
BLOCKS = [(page, block) for page, text in TEXTS.items() for block in pages.blocks(text)]
UNTRIED = "Backprint was tried with torch"
"""How the warning begins that a torch is newer than those that were tried; pages run with it too."""
RUNNABLE = sorted({page for page, block in BLOCKS if block.runs})


# ------------------------------------------------------------------ code blocks


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE)
def test_every_block_of_a_page_runs_alone_and_prints_what_the_page_shows(page: str, tmp_path: Path) -> None:
    done = run_page(ROOT / page, tmp_path, {forked.SERVERS: pages.servers(STRICT)})
    assert (done.returncode, done.stderr) == (0, "")


STRICT = "-W", "error", "-W", f"ignore:{UNTRIED}"


def run_page(page: Path, place: Path, served: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
    """Run each block of a page, and its commands, in processes that need not load PyTorch where they are served."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **served}
    command = [sys.executable, *STRICT, pages.__file__, str(page)]
    plain: Any = dict(capture_output=True, text=True, timeout=600, check=False)
    return subprocess.run(command, cwd=place, env=environment, **plain)


def test_every_page_with_code_is_run() -> None:
    afternoons = "find_a_nan make_it_fit overnight nightly fused_neuron"
    names = "README capturing commands compilers corpora derivative diff drawing graphnet kernels lowering"
    others = "ranks recording refusals regions samples swapping tasks thousand_tasks verdicts watching"
    of_ci = "in_ci json"
    every = {*names.split(), *others.split(), *afternoons.split(), *of_ci.split()}
    assert {Path(page).stem for page in RUNNABLE} == every


@pytest.mark.parametrize("page", TEXTS)
def test_the_blocks_of_a_page_say_how_they_are_checked(page: str) -> None:
    blocks = [block for of, block in BLOCKS if of == page]
    for block in blocks:
        read = ("text", "yaml")  # YAML is what `tests/test_project.py` holds against action.yml
        assert block.runs or block.language in read or page.removeprefix("docs/") in OF_THE_SITE, block
        assert not re.search(r"^\$ ", block.text, re.MULTILINE), f"what is copied with a prompt does not run: {block}"
        if block.file:
            folder = block.file.partition("/")[0]
            assert any(folder in other.text for other in blocks if other.language == "bash"), block
        elif block.language == "python":
            assert block.printed.strip(" .\n") or "assert " in block.text, f"nothing could be wrong: {block}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        "```python\nprint(1)  # -> 2\n```\n",
        "```python\nprint(1)\n```\n",
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nimport backprint\nbackprint.absent()\n```\n",
        "```python\nimport warnings\nwarnings.warn('x')\n```\n",
        "```bash\necho 1\n```\n\n```text\n2\n```\n",
        "```bash\nbackprint absent\n```\n",
        "```bash\nbackprint absent\necho 1\n```\n",
        "```python\nx = 1\n```\n\n```python\nprint(x)  # -> 1\n```\n",
        "```bash\necho 1 > file\n```\n\n```bash\ncat file\n```\n",
    ],
)
def test_a_block_that_shows_something_else_is_noticed(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(wrong, encoding="utf-8")
    assert run_page(tmp_path / "page.md", tmp_path).returncode == 1


@pytest.mark.slow
def test_blocks_that_continue_share_names_files_and_the_folder(tmp_path: Path) -> None:
    right = (
        "```python\n# one.py\nprint('one')\n```\n\n```python\n# continues\nx = 1\n```\n\n"
        "```python\n# continues the block above\nprint(x)  # the x -> 1\nprint(x + 1)\n```\n\n```text\n2...\n```\n\n"
        "```bash\n# continues\npython one.py\n```\n\n```text\no...e\n```\n"
    )
    (tmp_path / "page.md").write_text(right, encoding="utf-8")
    done = run_page(tmp_path / "page.md", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_page_is_rewritten_where_it_shows_something_else(tmp_path: Path) -> None:
    old = "```python\nprint(1)  # -> 1\nprint(2)\n```\n\n```text\n3\n```\n\n```bash\necho 4\n```\n\n```text\n...\n```\n"
    (tmp_path / "page.md").write_text(old, encoding="utf-8")
    command = [sys.executable, pages.__file__, "page.md", "--write"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == old.replace("3\n", "2\n")


# ------------------------------------------------------------------ verbs, options, names


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    script = ROOT / "scripts" / "commands.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def command_calls(text: str) -> Iterator[list[str]]:
    """The calls of `backprint` on a page, in its blocks and between backticks, as words."""
    for line in re.findall(r"(?:^|\$ |`)backprint( [^`\n]*)", text, re.MULTILINE):
        yield shlex.split(re.split(r" {2,}| \| ", line)[0], comments=True)


def options_of(command: click.Command) -> set[str]:
    return {option for each in command.params for option in each.opts + each.secondary_opts} | {"--help"}


def commands_below(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from commands_below(below)


def problems_of(call: list[str]) -> list[str]:
    """The verbs and options of a call that the command line does not have."""
    command: click.Command = main
    words = list(call)
    while isinstance(command, click.Group) and words and words[0].islower():
        name = words.pop(0)
        found = command.get_command(click.Context(command), name)
        if found is None:
            return [name]
        command = found
    known = {option for each in commands_below(command) for option in options_of(each)}
    return [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]


@pytest.mark.parametrize("page", TEXTS)
def test_every_command_and_option_on_a_page_exists(page: str) -> None:
    assert [wrong for call in command_calls(TEXTS[page]) for wrong in problems_of(call)] == []
    assert set(re.findall(r"`(--[a-z-]+)", TEXTS[page])) <= EVERY_OPTION


def test_a_command_or_an_option_that_is_not_there_is_noticed() -> None:
    assert problems_of(["corpus", "absent", "SRC"]) == ["absent"]
    assert problems_of(["verify", "samples", "--absent", "--json"]) == ["--absent"]
    calls = list(command_calls("see `backprint show A --json`\n```text\nbackprint demo    shows --all\n```\n"))
    assert calls == [["show", "A", "--json"], ["demo"]]


EVERY_OPTION = {option for command in commands_below(main) for option in options_of(command)}


def test_the_api_reference_has_every_public_name() -> None:
    documented = re.findall(r"^\.\. auto\w+:: (?:backprint\.)?([\w.]+)$", TEXTS["docs/api.md"], re.MULTILINE)
    tools = {name: getattr(bp, name) for name in bp.__all__ if isinstance(getattr(bp, name), ModuleType)}
    public = set(bp.__all__) - {"__version__", "Capture"} - set(tools)
    for name, functions in FACES.items():
        public |= {f"{name}.{function}" for function in functions}
        assert all(hasattr(tools[name], function) for function in functions)
    public |= {f"types.{name}" for name in bp.types.__all__}
    public |= {
        f"errors.{name}"
        for name, value in vars(bp.errors).items()
        if isinstance(value, type) and issubclass(value, bp.errors.BackprintError)
    }
    assert set(tools) == {*FACES, "types", "errors"}
    assert sorted(documented) == sorted(public)


FACES = {
    "bench": ("run", "minify"),
    "corpus": ("run", "merge", "dedup", "export"),
    "kernels": ("extract", "dedup"),
    "tasks": ("make", "check", "make_set"),
    "draw": ("draw", "view"),
    "diff": ("compare",),
    "regions": ("compare",),
}
"""The functions of the tools that users call."""


def test_every_verdict_is_explained() -> None:
    short = TEXTS["README.md"].partition("## Verdicts")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", short)) == set(VERDICTS)
    assert set(re.findall(r"^\| `(\w+)` \|", TEXTS["docs/verdicts.md"], re.MULTILINE)) == set(VERDICTS)


def test_the_tables_of_options_have_every_option_of_a_capture() -> None:
    from face import DEFAULTS

    table = TEXTS["docs/capturing.md"].partition("## Options")[2].partition("\n## ")[0]
    rows = {
        name for cell in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)", cell)
    }
    assert rows == {*DEFAULTS, "device", "trust"}


def test_the_table_of_engines_is_the_engines() -> None:
    from face import ENGINES

    words = {"sparse tensors": "sparse"}
    table = TEXTS["docs/capturing.md"].partition("| option or input |")[2].partition("\n\n")[0].splitlines()
    heads = re.findall(r"`(\w+)`", table[0])
    takes: dict[str, set[str]] = {head: set() for head in heads}
    for row in table[2:]:
        name, *cells = (cell.strip(" `") for cell in row.strip("|").split("|"))
        request = words.get(name, name.partition("=")[0])
        for head, cell in zip(heads, cells, strict=True):
            takes[head] |= {request} if cell == "yes" else set()
    assert takes == {name: set(engine.takes) for name, engine in ENGINES.items()}
    assert heads == list(ENGINES)


# ------------------------------------------------------------------ the README, and links


def test_the_readme_fits_a_screen_or_two_and_the_index_leads_to_every_page() -> None:
    assert len(TEXTS["README.md"].splitlines()) <= 90
    linked = set(re.findall(r"\((\w+\.md)[)#]", TEXTS["docs/index.md"]))
    assert {page.name for page in PAGES[1:]} <= linked | OF_THE_SITE


FIRST = dict(
    part.partition("\n")[::2] for part in re.split(r"\n(?! )", pages.blocks(TEXTS["README.md"])[0].text.strip())
)
"""The first thing that README shows: calls, each with what it prints below it, indented."""


@pytest.mark.slow
@pytest.mark.parametrize("call", FIRST, ids=lambda call: call.split()[1] if call.startswith("backprint") else "check")
def test_the_first_calls_of_the_readme_print_what_it_shows(call: str, tmp_path: Path) -> None:
    setup = "import torch, torch.nn.functional as F, backprint as bp; from backprint.examples.silu import silu"
    in_python = [sys.executable, "-c", f"{setup}\n{call}"]
    command = in_python if call.startswith("bp.") else [sys.executable, "-m", *shlex.split(call, comments=True)]
    plain: Any = dict(capture_output=True, text=True, timeout=600, check=False)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shutil.copy(ROOT / "src" / "backprint" / "examples" / "train_amp.py", tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=environment, **plain)
    shown = "\n".join(f"...{line.strip()}..." for line in FIRST[call].splitlines())
    assert pages.matches(done.stdout + done.stderr, shown), done.stdout + done.stderr


def test_the_site_has_every_page() -> None:
    listed = re.findall(r"^(\w+)$", TEXTS["docs/index.md"], re.MULTILINE)
    assert {f"{name}.md" for name in listed} | {"index.md"} == {page.name for page in PAGES[1:]}


@pytest.mark.parametrize("page", TEXTS)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\((?!https?://)([^)]+)\)", pages.FENCE.sub("", TEXTS[page])):
        place, _, part = link.partition("#")
        target = (ROOT / page).parent / place if place else ROOT / page
        assert target.exists(), link
        if part:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            parts = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert part in parts, link


def test_an_error_of_rounding_on_a_page_stands_for_any_other() -> None:
    """Processors differ in it; an error that is larger is no rounding."""
    shown = "relative error at most 2.27e-16\n  eager 3.33e-08"
    assert pages.matches("relative error at most 2.13e-16\n  eager 0", shown)
    assert not pages.matches("relative error at most 2.13e-06\n  eager 0", shown)
    assert not pages.matches("relative error at most 2.27e-16\n  eager 0.1", shown)
