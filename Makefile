# Everything a fresh machine needs is installed into .venv by the first target that wants it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := requirements-dev.txt
SITE := build/site-venv

# Tests start many processes, and each would compile streamkit again if bytecode were not kept.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: archive conformance demo test long quick check lint types bench mutants simulate fleet migrate migration models stops aws lock page pages hooks site clean help
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

demo: $(STAMP) ## process 20,000 writes on the local engine, with a split and a kill, and check the result
	@$(BIN)/streamkit demo

test: $(STAMP) ## the tests, all but those of tests/long.txt, in the same order of sets each time
	PYTHONHASHSEED=0 $(BIN)/pytest -q -n auto --dist worksteal $$(sed 's/^/--deselect /' tests/long.txt)

long: $(STAMP) ## the tests of tests/long.txt: costs, scale, upgrades, packages, whole pages, the models themselves
	PYTHONHASHSEED=0 $(BIN)/pytest -q -n auto --dist worksteal @tests/long.txt

quick: $(STAMP) ## the tests of tests/quick.txt, for every commit: most of what a mistake breaks
	PYTHONHASHSEED=0 $(BIN)/pytest -q -n auto --dist worksteal @tests/quick.txt

check: lint types long test ## what CI runs

lint: $(STAMP) ## ruff, the linter and the formatter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy (strict) on the code, pyright on the typed use of the public API
	$(BIN)/mypy
	$(BIN)/pyright

bench: $(STAMP) ## speeds, as ratios measured side by side: ROWS="aggregate pages" for some, RECORD=1 to keep them
	$(BIN)/python -m tests.benchmarks $(ROWS) $(if $(RECORD),--record --growth)

archive: $(STAMP) ## read a long archive from a directory: speed, and memory that stays flat: CHANGES=10000000
	$(BIN)/python -m tests.benchmarks.long_archive --changes $(or $(CHANGES),10000000)

mutants: $(STAMP) ## deliberate bugs, each of which the tests must catch (half an hour; goes on where it stopped)
	$(BIN)/python -m tests.mutants.run

simulate: $(STAMP) ## fleets under every trouble: SEEDS=1000, SEEDS=200-400 or SEED=17
	$(BIN)/python -m tests.simulation.simulate $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000))

fleet: $(STAMP) ## how a large fleet shares many shards, and its cost: SHARDS=1000 WORKERS=20
	$(BIN)/python -m tests.simulation.balance $(or $(SHARDS),1000) $(or $(WORKERS),20)

migrate: $(STAMP) ## migrations of many items under fire, compared one by one: ITEMS=20000 SEED=1
	$(BIN)/python -m tests.simulation.migrate_many --items $(or $(ITEMS),20000) --seed $(or $(SEED),1)

migration: $(STAMP) ## one process migrates many items, and its memory stays flat: ITEMS=1000000 MODE=rekey
	$(BIN)/python -m tests.benchmarks.long_migration --items $(or $(ITEMS),1000000) --mode $(or $(MODE),in_place)

conformance: $(STAMP) ## every handler kind in every host, moves between them, and other long runs: SEEDS=50
	PYTHONHASHSEED=0 CONFORMANCE_SEEDS=$(or $(SEEDS),50) $(BIN)/pytest -q -o faulthandler_timeout=0 -n auto --dist worksteal $$(grep -rl "^from tests.seeds import" --include="*.py" tests)

stops: $(STAMP) ## every process killed and frozen at every one of its calls, and not at a sample of them
	EVERY_CALL=1 PYTHONHASHSEED=0 $(BIN)/pytest -q -o faulthandler_timeout=0 -n auto --dist worksteal tests/simulation -k "any_call"

models: $(STAMP) ## the models of the protocols, explored to larger bounds, and more of their traces replayed (minutes)
	EVERY_WORLD=1 PYTHONHASHSEED=0 $(BIN)/pytest -q -o faulthandler_timeout=0 -n auto --dist worksteal tests/models

lock: $(STAMP) ## write the versions for development anew, as far as pyproject.toml asks for it; UPGRADE=1: all of them
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --extra rich --group test --group lint $(if $(UPGRADE),--upgrade) pyproject.toml -o $(LOCK)
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	  --group pyproject.toml:docs $(if $(UPGRADE),--upgrade) -o requirements-docs.txt

aws: $(STAMP) ## the acceptance suite and a small fleet in an account of AWS: says the cost first, SPEND=dollars agrees to it; deletes all
	@$(BIN)/python -m tests.acceptance.account $(if $(SPEND),--spend $(SPEND)) $(if $(CLEAN),--clean)

page: $(STAMP) ## the status page in a browser, from a phone to a large screen, light and dark; pictures in build/page (needs Chromium)
	$(BIN)/pytest -q tests/browser/looks.py

pages: $(STAMP) ## write the pages that follow from the code: docs/logs.md
	$(BIN)/python -m tests.log_reference

site: ## build the site of all pages into build/site: strict, with a search that works without a network
	@test -x $(SITE)/bin/zensical || { $(PYTHON) -m venv $(SITE) && \
	  $(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-docs.txt; }
	$(SITE)/bin/python docs/site.py build/pages
	$(SITE)/bin/zensical build --strict --config-file mkdocs.yml

hooks: $(STAMP) ## let git run before each commit what CI runs
	$(BIN)/pre-commit install

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMP): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "streamkit needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "This Python lacks venv. On Debian or Ubuntu: sudo apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)
