"""What a user installs and nothing more, and all that README and docs say of it: `make plain`.

    python scripts/plain_install.py [--torch 2.13.0] [--environment DIR] [--jobs N] [--only WORD] [--every]

A virtual environment gets torch and `pip install .`: no numpy, no extra, nothing of developers, no link to these
sources. In it every module is imported, every verb prints its help and is used, and README and every page of docs/ run:
README as a newcomer runs it, the pages in processes that are forked from one that has loaded PyTorch. Then parts of the
machine are taken away: a home to write to, a C++ compiler, Triton, a project folder to write to. Each must end well, or
with one line that says what is missing. `--every` does so with each verb, which takes some minutes more.

Ends with a table; the exit code is 1 unless all is good.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

NOT_PLAIN = ("numpy", "pyarrow", "ray", "resvg_py", "onnx", "openvino", "jax", "pytest", "hypothesis", "mypy", "ruff")
"""Packages that a plain install does not have."""

OF_EXTRAS = {
    "tools.bench.compilers.": "compilers",
    "tools.kernels.checking.interpreter": "triton, numpy",
}
"""Modules that import what an extra brings; they are imported only where it is used, and say its name."""

TRITON = {"2.13.0": "triton==3.7.1"}
"""The Triton that belongs to a torch without a GPU, which brings none; else the newest."""

WITH_MORE = ("corpora.md", "fused_neuron.md", "lowering.md")
"""Pages whose reader installs more first, as they say: Triton and numpy, as Triton's interpreter runs kernels there, or
what writes Parquet."""

RUNS_PAGES = ROOT / "tests" / "subjects" / "pages.py"

QUIET = ("-W", "error", "-W", "ignore:Failed to initialize NumPy", "-W", "ignore:Backprint was tried with torch")
"""Warnings are errors, except torch's own of numpy, and ours of a torch that nobody has tried."""

IMPORTS = """
import importlib, pkgutil, warnings
warnings.simplefilter("ignore")
import backprint
names = [module.name for module in pkgutil.walk_packages(backprint.__path__, "backprint.")]
for name in names:
    if not name.endswith("__main__"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            print("needs", name.removeprefix("backprint."), error.name)
print("imported", len(names), "from", backprint.__file__)
"""

PACKAGED = """
import json
from importlib.metadata import metadata, version
from importlib.resources import files
import backprint
folder = files("backprint")
schemas = [json.loads(place.read_text("utf-8")) for place in (folder / "schemas").iterdir()]
assert len(schemas) > 20 and all("$schema" in schema for schema in schemas), schemas
assert (folder / "py.typed").is_file()
assert version("backprint") == backprint.__version__
assert any(text.startswith("Source, https://") for text in metadata("backprint").get_all("Project-URL"))
print(f"{backprint.__version__}, py.typed, {len(schemas)} schemas of what --json prints")
"""

HELP = """
import click
from backprint.cli import main
def shown(command, path):
    with click.Context(command, info_name=path) as context:
        assert len(command.get_help(context)) > 80, path
        print("help", path)
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            shown(command.get_command(context, name), f"{path} {name}".removeprefix("backprint "))
shown(main, "backprint")
"""

DUMP = """
import torch, backprint as bp
with bp.region("dump", gradients="values"):
    torch.nn.Linear(3, 2)(torch.ones(1, 3)).sum().backward()
"""

FAILING = """
def compile(module, inputs):
    if any("relu" in str(node.target) for node in module.graph.nodes):
        raise RuntimeError("no relu here")
    return module
"""

AVERAGED = """
import torch
from torch.nn.parallel import DistributedDataParallel
def factory():
    torch.manual_seed(0)
    return DistributedDataParallel(torch.nn.Linear(4, 1)), (torch.randn(8, 4),)
"""

USES = {
    "doctor": "backprint doctor",
    "demo": "backprint demo && python samples/demo/gpt/pair_0/backward/model.py",
    "capture": "backprint capture backprint.examples.convnet:factory -o samples/exact --data exact",
    "verify": "backprint verify samples",
    "draw of a dump": "python dump.py && backprint draw dump -o region.svg > region.txt",
    "corpus run capture": "backprint corpus run capture samples -o captured --jobs 1",
    "corpus run verify": "backprint corpus run verify samples -o verified --jobs 1",
    "minify": "backprint minify samples/exact --compiler failing.py:compile -o smallest",
    "ranks": "backprint capture averaged.py:factory --world 2 -o world && backprint ranks world",
}
"""Verbs that no page uses, and the way that a newcomer goes, in this order."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """A command on a machine that lacks something: its exit code, and what has to be said."""

    name: str
    command: str
    code: int
    says: str
    changes: tuple[tuple[str, str], ...] = ()
    """Environment variables; `{bin}` is a folder with no compiler, and HIDE names a package that cannot be imported."""


NO_COMPILER = (("PATH", "{bin}"),)
GPU, CPU = "backprint kernels samples/exact --target cuda:90 -o gpu", "backprint kernels samples/exact -o cpu"
CASES = (
    Lacking("no home to write to", "backprint verify samples/exact", 0, "bitwise", (("HOME", "/proc/absent"),)),
    Lacking("no home to write to: kernels", CPU, 0, " kernels, ", (("HOME", "/proc/absent"),)),
    Lacking("no Triton", GPU, 1, "with triton, which is not installed: pip install triton", (("HIDE", "triton"),)),
    Lacking("no C++ compiler", "backprint verify samples/exact", 0, "bitwise", NO_COMPILER),
    Lacking("no C++ compiler: kernels", f"{CPU}_again", 1, "there is no C++ compiler here", NO_COMPILER),
    Lacking("a read-only project", "cd /sys && python -c '{capture}'", 0, "bitwise"),
    Lacking("a read-only project: capture", "cd /sys && backprint capture {model} -o s", 2, "could not be written"),
    Lacking("a read-only project: kernels", "cd /sys && backprint kernels {sample} -o k", 2, "cannot be written to"),
    Lacking(
        "a read-only project: corpus", "cd /sys && backprint corpus run backward {sample} -o c", 2, "cannot be written"
    ),
    Lacking(
        "a read-only project: minify", "cd /sys && backprint minify {sample} --compiler eager -o m", 2, "not permitted"
    ),
)
"""What a machine may lack. In /sys nobody creates files, root neither."""

TRAIN = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).square().mean().backward()
    optimizer.step()
"""

NEURON = """
import torch

def neuron(x):
    v, spikes = torch.zeros_like(x[0]), []
    for t in range(x.shape[0]):
        v = v + (x[t] - v) / 2
        spikes.append(v.sigmoid())
    return torch.stack(spikes)

def make(steps):
    return neuron, (torch.randn(steps, 4, requires_grad=True),)
"""

EVERY = {
    "doctor": "doctor",
    "capture": "capture backprint.examples.convnet:factory -o {out}/captured",
    "record": "record -o {out}/recorded {home}/train.py",
    "verify": "verify {sample}",
    "verify with power": "verify {sample} --power",
    "show of a dump": "show {home}/dump",
    "corpus": "corpus run backward {sample} -o {out}/corpus --jobs 1",
    "show": "show {sample}",
    "draw": "draw {sample} -o {out}/drawn.svg",
    "view": "view {sample} --stats -o {out}/page.html",
    "diff": "diff {sample} {sample} -o {out}/diff.html",
    "export": "export {sample} -o {out}/exported.py",
    "bench": "bench run {sample} --compiler inductor -o {out}/bench",
    "minify": "minify {sample} --compiler inductor -o {out}/small",
    "kernels": "kernels {sample} --target cpu:avx2 -o {out}/kernels",
    "kernels for a GPU": "kernels {sample} --target cuda:90 -o {out}/kernels_gpu",
    "lower": "lower {home}/neuron.py:make -o {out}/loops.py",
    "task": "task make {sample} -o {out}/task",
    "demo": "demo -o {out}/demo",
    "ranks": "ranks {home}/world",
    "fits": "fits {sample} --memory 1",
}
"""Each verb, and what it is asked on a machine that lacks something; it may write below `{out}`."""

MACHINES: dict[str, tuple[dict[str, str], str]] = {
    "no home": ({"HOME": "/proc/absent"}, "triton"),
    "no Triton": ({"HIDE": "triton"}, "triton"),
    "no compiler": ({"PATH": "{bin}"}, "c[+][+] compiler|triton|every output is right"),
    "read-only": (
        {},
        "not permitted|permission denied|cannot be written|could not be written|triton|every output is right",
    ),
}
"""What a machine lacks, and the words of which one has to be said by a verb that does not end with 0. A GPU's kernels
need Triton, which torch's build for a CPU does not bring; a right compiler leaves nothing to minify."""

CAPTURE = (
    "import torch, backprint as bp; print(bp.verify(bp.capture(torch.nn.Linear(2, 2), torch.ones(1, 2)))[0].verdict)"
)


@dataclass(frozen=True, slots=True)
class Row:
    """What was tried, and what came of it; `detail` is the end of what a failure printed."""

    name: str
    good: bool
    seconds: float
    detail: str


# ------------------------------------------------------------------ the environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default="2.13.0", help="the version of torch (2.13.0)")
    parser.add_argument("--environment", type=Path, help="one that has torch; Backprint is installed into it")
    parser.add_argument("--jobs", type=int, default=2, help="what runs at the same time (2)")
    parser.add_argument("--only", default="", help="only what has this word in its name")
    parser.add_argument("--every", action="store_true", help="each verb on each machine that lacks something, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="backprint_plain_") as folder:
        place = Path(folder)
        python = installed(options.environment or place / "environment", options.torch)
        rows = [row for row in tried(python, place, options.jobs, options.only) if options.only in row.name]
        rows += with_more(python, place, options.torch, options.jobs, options.only)
        if options.every:
            rows += [row for row in every(python, place / "home") if options.only in row.name]
    if not rows:
        parser.error(f"nothing that is tried has {options.only!r} in its name")
    width = max(len(row.name) for row in rows)
    for row in rows:
        outcome = f"good      {row.seconds:5.1f} s  {row.detail}" if row.good else f"NOT GOOD  {row.seconds:5.1f} s"
        print(f"{row.name:<{width}}  {outcome}".rstrip())
    bad = [row for row in rows if not row.good]
    for row in bad:
        print(f"\n== {row.name}\n{row.detail[-3000:]}")
    print(f"plain install: {len(rows) - len(bad)} good, {len(bad)} not")
    sys.exit(bool(bad))


def installed(home: Path, torch: str) -> Path:
    """Return the Python of an environment with torch and Backprint; what pip needs to build comes from pip too."""
    python = home / "bin" / "python"
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    if not python.exists():
        venv.create(home, with_pip=True)
        subprocess.run([*pip, f"torch=={torch}"], check=True, stderr=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as copy:  # pip would leave a folder `build` beside the sources
        source = Path(copy) / "backprint"
        shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "node_modules", "__pycache__"))
        subprocess.run([*pip[:-1], "wheel", "--no-deps", "--wheel-dir", copy, str(source)], check=True)
        (wheel,) = map(str, Path(copy).glob("*.whl"))
        subprocess.run([*pip, "--force-reinstall", "--no-deps", wheel], check=True)
        subprocess.run([*pip, wheel], check=True)
    return python


# ------------------------------------------------------------------ what is tried


def tried(python: Path, place: Path, jobs: int, only: str) -> Iterator[Row]:
    """Yield a row for each thing that is tried; pages need nothing of one another, verbs come in their order."""
    home = place / "home"
    home.mkdir()
    with pages_served(python, home) as served, ThreadPoolExecutor(jobs) as pool:
        plain = [path for path in PAGES if has_code(path) and path.name not in WITH_MORE]
        pages = [pool.submit(page, python, path, place, served) for path in plain if only in path.name]
        yield from installation(python, home)
        yield from verbs(python, home)
        yield from (future.result() for future in pages)


def with_more(python: Path, place: Path, torch: str, jobs: int, only: str) -> Iterator[Row]:
    """Yield a row for each page that needs more than what a user installs, once that is there."""
    pages = [path for path in PAGES if path.name in WITH_MORE and only in path.name]
    if pages:
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        subprocess.run([*pip, TRITON.get(torch, "triton"), "numpy", "pyarrow"], check=True)
        with pages_served(python, place) as served, ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(lambda path: page(python, path, place, served), pages)


def has_code(path: Path) -> bool:
    """Whether a page has code that runs."""
    return re.search(r"^```(python|bash)$", path.read_text(encoding="utf-8"), re.MULTILINE) is not None


@contextlib.contextmanager
def pages_served(python: Path, folder: Path) -> Iterator[dict[str, str]]:
    """Start what pages and their commands are forked from, until the block ends; give the environment variable that
    says where it is."""
    environment, pipe = environment_of_a_user(python), subprocess.PIPE
    command = [python, *QUIET, RUNS_PAGES, "--serve"]
    serving = subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe)
    with serving:
        assert serving.stdout is not None
        yield {"BACKPRINT_FORKED": serving.stdout.readline().decode().strip()}


def page(python: Path, path: Path, place: Path, served: Mapping[str, str]) -> Row:
    """Run a page as the tests do, which compare each block with what the page shows."""
    folder = place / "pages" / path.stem
    folder.mkdir(parents=True)
    return row(str(path.relative_to(ROOT)), [python, *QUIET, RUNS_PAGES, path], folder, python, changes=served)


def installation(python: Path, home: Path) -> Iterator[Row]:
    """Yield what is installed, and that it can be imported."""
    there = [name for name in NOT_PLAIN if run([python, "-c", f"import {name}"], home, python).returncode == 0]
    yield Row("nothing but what a user installs", not there, 0.0, f"{', '.join(there)} is there" if there else "")
    imports = row("every module is imported", [python, "-c", IMPORTS], home, python, whole=True)
    needing = dict(re.findall(r"^needs (\S+) (\S+)$", imports.detail, re.MULTILINE))
    odd = [name for name in needing if not name.startswith(tuple(OF_EXTRAS))]
    count = re.search(r"^imported (\d+) from .*site-packages", imports.detail, re.MULTILINE)
    said = "; ".join(f"{name} needs {package}" for name, package in needing.items())
    good = imports.good and not odd and count is not None
    yield Row(imports.name, good, imports.seconds, f"{count[1]}; {said}" if good and count else imports.detail)
    helped = row("every verb has help", [python, "-c", HELP], home, python, whole=True)
    yield Row(
        helped.name, helped.good, helped.seconds, f"{helped.detail.count('help ')}" if helped.good else helped.detail
    )
    packaged = row("what is packaged", [python, "-c", PACKAGED], home, python, whole=True)
    yield Row(packaged.name, packaged.good, packaged.seconds, packaged.detail.strip())


def verbs(python: Path, home: Path) -> Iterator[Row]:
    """Yield the verbs in use, and what becomes of them where a part of the machine is missing."""
    (home / "dump.py").write_text(DUMP, encoding="utf-8")
    (home / "failing.py").write_text(FAILING, encoding="utf-8")
    (home / "averaged.py").write_text(AVERAGED, encoding="utf-8")
    for name, command in USES.items():
        yield row(f"backprint {name}", ["bash", "-c", command], home, python)
    bare = home / "bin"
    bare.mkdir()
    (bare / "backprint").symlink_to(python.parent / "backprint")
    for tool in ("bash", "env"):
        (bare / tool).symlink_to(shutil.which(tool) or tool)
    for lacking in CASES:
        yield case(lacking, home, python)


def every(python: Path, home: Path) -> Iterator[Row]:
    """Yield each verb on each machine that lacks something: it works, or a line says what is missing."""
    (home / "train.py").write_text(TRAIN, encoding="utf-8")
    (home / "neuron.py").write_text(NEURON, encoding="utf-8")
    for machine, (lacks, words) in MACHINES.items():
        out = "." if machine == "read-only" else str(home / machine.replace(" ", "_"))
        for verb, command in EVERY.items():
            filled = command.format(home=home, sample=home / "samples" / "exact", out=out)
            begun = time.monotonic()
            where = Path("/sys") if machine == "read-only" else home
            done = run([python, "-m", "backprint", *filled.split()], where, python, changed(lacks, home))
            output = done.stdout + done.stderr
            said = [line for line in output.splitlines() if re.search(words, line, re.IGNORECASE)]
            good = "Traceback" not in output and (done.returncode == 0 or (done.returncode in (1, 2, 3) and bool(said)))
            detail = (said[-1][-150:] if done.returncode else "") if good else f"exit {done.returncode}\n{output}"
            yield Row(f"{machine}: {verb}", good, time.monotonic() - begun, detail.strip())


def changed(lacks: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment variables of a machine that lacks something."""
    changes = {name: value.replace("{bin}", str(home / "bin")) for name, value in lacks.items()}
    if hidden := changes.pop("HIDE", ""):
        (home / "hidden").mkdir(exist_ok=True)
        (home / "hidden" / "sitecustomize.py").write_text(HIDING.replace("NAME", hidden), encoding="utf-8")
        changes["PYTHONPATH"] = str(home / "hidden")
    return changes


def case(lacking: Lacking, home: Path, python: Path) -> Row:
    """Run a command on a machine that lacks something: it works, or one line says what is missing."""
    begun = time.monotonic()
    changes = changed(dict(lacking.changes), home)
    command = lacking.command.replace("{sample}", str(home / "samples" / "exact")).replace("{capture}", CAPTURE)
    command = command.replace("{model}", "backprint.examples.convnet:factory")
    done = run([shutil.which("bash") or "bash", "-c", command], home, python, changes)
    output = done.stdout + done.stderr
    good = done.returncode == lacking.code and lacking.says in output and "Traceback" not in output
    line = next((line for line in output.splitlines() if lacking.says in line), "")
    detail = line[-150:].strip() if good else f"exit {done.returncode}, and not {lacking.code}\n{output}"
    return Row(lacking.name, good, time.monotonic() - begun, detail)


HIDING = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "NAME":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
import importlib.util
plain = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "NAME" else plain(name, package)
sys.meta_path.insert(0, Hidden())
"""


def row(
    name: str,
    command: Sequence[object],
    folder: Path,
    python: Path,
    whole: bool = False,
    changes: Mapping[str, str] | None = None,
) -> Row:
    """Run a command that must end well."""
    begun = time.monotonic()
    done = run(command, folder, python, changes)
    good = done.returncode == 0 and "Traceback" not in done.stderr
    detail = done.stdout if whole else ""
    return Row(
        name, good, time.monotonic() - begun, detail if good else f"exit {done.returncode}\n{done.stdout}{done.stderr}"
    )


def environment_of_a_user(python: Path) -> dict[str, str]:
    """The environment variables of a process that uses a virtual environment."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return {
        **{name: os.environ[name] for name in os.environ if name != "PYTHONPATH"},
        "PATH": path,
        "OMP_NUM_THREADS": "1",
    }


def run(
    command: Sequence[object],
    folder: Path,
    python: Path,
    changes: Mapping[str, str] | None = None,
    timeout: float = 900,
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user of the environment; one that does not end has the exit code 124."""
    environment = {**environment_of_a_user(python), **(changes or {})}
    text = [str(word) for word in command]
    how = {"capture_output": True, "text": True, "check": False, "timeout": timeout, "stdin": subprocess.DEVNULL}
    try:
        return subprocess.run(text, cwd=folder, env=environment, **how)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(text, 124, "", f"no end after {timeout} s\n")


if __name__ == "__main__":
    main()
