# Everything a developer or CI runs. Each target makes the environment it needs in .venv and .cache.

PYTHON ?= python3
VERSIONS = 3.11 3.12 3.13
SEQUENCES ?= 200
STEPS ?= 1000000
SEED ?= 0

IN = .venv/bin/python
export PYRIGHT_PYTHON_CACHE_DIR = $(CURDIR)/.cache/pyright
export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1
export PYTHONUNBUFFERED = 1
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL = menu
.PHONY: menu env demo test test-all $(VERSIONS:%=test-%) check oracle simulate bench clean

menu:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

env:
	@$(PYTHON) tools/env.py .venv > /dev/null

demo: env ## add 10,000 jobs and work them off on an embedded server
	@$(IN) -m examples.demo

test: env ## run all tests on one Python, every server that can be had, and Node where it is installed
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-dev} COVERAGE_FILE=.cache/coverage $(MAKE) run-tests IN=$(IN)

test-all: $(VERSIONS:%=test-%) ## the same on Python 3.11, 3.12 and 3.13, with more examples

$(VERSIONS:%=test-%): test-%:
	@$(PYTHON) tools/env.py .venv-$* $* > /dev/null
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} COVERAGE_FILE=.cache/coverage-$* $(MAKE) run-tests IN=.venv-$*/bin/python

.PHONY: run-tests
run-tests:
	@mkdir -p .cache
	$(IN) -m coverage run -m pytest
	$(IN) -m coverage report --include='bullmq_anyio/*,bullmq_sync/*' --fail-under=80

check: env ## format, lint, types, stale Lua and pages, and the core's coverage by the tests without a server
	$(IN) -m ruff format --check .
	$(IN) -m ruff check .
	$(IN) -m mypy
	$(IN) -m pyright --pythonpath $(IN)
	$(IN) lua/build.py --check
	$(IN) tools/reference.py --check
	$(IN) tools/twin.py --check
	@mkdir -p .cache
	COVERAGE_FILE=.cache/coverage-core $(IN) -m coverage run -m pytest tests/unit tests/property
	@# conformance.py is what a transport is put through: it runs in the tests with a server
	COVERAGE_FILE=.cache/coverage-core $(IN) -m coverage report --include='bullmq_protocol/*' \
	  --omit='bullmq_protocol/testing/conformance.py' --fail-under=100

oracle: env ## compare our Lua with BullMQ's own scripts; SEQUENCES=2000 for more
	@SEQUENCES=$(SEQUENCES) $(IN) -m tests.oracle

simulate: env ## live workers in simulated time; STEPS=10000000 SEED=0 for more
	@$(IN) -m tools.simulate --steps $(STEPS) --seed $(SEED)

bench: env ## measure, side by side with BullMQ on Node where it is installed
	@$(IN) -m bench

clean: ## remove the environments and caches
	rm -rf .venv .venv-* .cache
