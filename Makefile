# `make demo` and `make test` do everything on a machine that has Python 3.11 and Java 17.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.NOTPARALLEL:

BIN := .venv/bin
READY := .venv/.ready
SEEDS ?= 1000
TIMES ?= 10
# Progress for a person, silence for a log.
QUIET := $(shell test -t 2 || echo --quiet)
# uv trusts the certificates this machine trusts, as pip does.
export UV_SYSTEM_CERTS := true

# $(call step,name,command): one line when it passes, the command's own words when it does not.
define step
	@printf '  %-12s' '$(1)'; if said=$$($(2) 2>&1); then echo ok; \
	else echo failed; printf '%s\n' "$$said"; exit 1; fi
endef

.PHONY: help setup demo test check bench soak format lock clean java

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

setup: $(READY) ## Prepare .venv with the locked dependencies
	@echo "Ready: .venv"

demo: java $(READY) ## Set up and run the number-plate demonstration
	@$(BIN)/headgate demo numberplate

test: java $(READY) ## Set up, check and run every test
	@$(BIN)/python tools/run-tests --with "make check"

check: $(READY) ## Format, lint, types, layers, registry names
	@echo "Checking"
	$(call step,format,$(BIN)/ruff format --check --output-format concise .)
	$(call step,lint,$(BIN)/ruff check .)
	$(call step,types,$(BIN)/mypy --strict src)
	$(call step,layers,$(BIN)/lint-imports)
	$(call step,registries,tools/check-registries)

bench: java $(READY) ## Run the benchmarks
	@$(BIN)/python -m benchmarks

soak: java $(READY) ## Run the long random tests: make soak SEEDS=1000 TIMES=10
	@HEADGATE_SEEDS=$(SEEDS) HEADGATE_TIMES=$(TIMES) $(BIN)/python -m pytest -m soak tests

format: $(READY) ## Format the code and apply safe fixes
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --fix --quiet .

lock: $(READY) ## Resolve requirements.in into requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
		--no-header --no-annotate --upgrade requirements.in --output-file requirements.txt

clean: ## Remove .venv and everything generated
	@rm -rf .venv dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis \
		spark-warehouse metastore_db derby.log artifacts
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@tools/check-java

# pip brings uv and setuptools at their locked hashes, uv does the rest. setuptools is there early because
# PySpark is published as source: with build isolation its build tools would arrive unchecked.
$(READY): requirements.txt pyproject.toml
	@python=; for candidate in $(PYTHON) python3.11 python3 python; do \
		if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
		then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then \
		echo "headgate: Python 3.11 is missing; install it, for example: apt-get install python3.11 python3.11-venv" >&2; \
		exit 1; fi; \
	echo "Setting up .venv with $$($$python --version) (the first time downloads about 600 MB)"; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		$$python -m venv --clear .venv >.venv.log 2>&1 || { cat .venv.log >&2; rm -rf .venv .venv.log; \
		echo "headgate: Python cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }; \
		rm -f .venv.log; fi
	@for tool in uv setuptools; do sed -n "/^$$tool==/,/[^\\\\]$$/p" requirements.txt; done >.venv/bootstrap.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .venv/bootstrap.txt
	@. $(BIN)/activate && { \
		uv pip install $(QUIET) --require-hashes --no-build-isolation-package pyspark -r requirements.txt || { \
		echo "uv did not manage; trying pip" >&2; \
		pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation -r requirements.txt; }; }
	@. $(BIN)/activate && uv pip install $(QUIET) --no-deps --no-build-isolation -e .
	@touch $@
