# Everything a developer or CI runs. Each target makes the environment it needs in .venv and .cache.

PYTHON ?= python3
OLDEST = 3.11
NEWER = 3.12 3.13
SEQUENCES ?= 200
STEPS ?= 1000000
SEED ?= 0
DURATION ?= 60
# Tests wait more than they compute: two processes for each core of a small machine.
WORKERS ?= 4
# What is said before the first run; afterwards it is what the last one took.
TEST_MINUTES = 10
LONG_MINUTES = 13
BRIEF_MINUTES = 6

IN = .venv/bin/python
MUTANTS_IN = .venv-mutants/bin/python
export PYRIGHT_PYTHON_CACHE_DIR = $(CURDIR)/.cache/pyright
export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1
export PYTHONUNBUFFERED = 1
# Tests start many programs: each of them would compile all of our modules anew.
unexport PYTHONDONTWRITEBYTECODE
MAKEFLAGS += --no-print-directory

SLOWEST = $(if $(CI),--durations=15)

.DEFAULT_GOAL = menu
.PHONY: menu env env-mutants demo unit lint test test-all $(OLDEST:%=test-%) $(NEWER:%=test-%) test-switching check oracle mutants mutants-sample simulate chaos chaos-abrupt bench clean

menu:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

env:
	@$(PYTHON) tools/env.py .venv > /dev/null

env-mutants:
	@$(PYTHON) tools/env.py .venv-mutants --group mutants > /dev/null

demo: ## add 10,000 jobs and work them off on an embedded server, in under 20 s
	@$(PYTHON) tools/env.py .venv-demo --extra anyio > /dev/null
	@.venv-demo/bin/python -m examples.demo

unit: env ## run the tests that need no server and no long search, in under 20 s
	@# Importing every client library, as test_failure.py does, takes each process seconds.
	@$(IN) -m pytest -q -n 2 -m 'not search and not slow' --ignore=tests/unit/test_failure.py tests/unit

test: env ## run all tests on one Python, every server that can be had, and Node where it is installed
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-dev} $(PYTHON) tools/took.py test $(TEST_MINUTES) $(MAKE) run-covered IN=$(IN)

test-all: $(OLDEST:%=test-%) $(NEWER:%=test-%) ## the same with more examples on Python 3.11, then what depends on Python's version on 3.12 and 3.13

$(OLDEST:%=test-%): test-%:
	@$(PYTHON) tools/env.py .venv-$* $* > /dev/null
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTHON) tools/took.py $@ $(LONG_MINUTES) $(MAKE) run-covered IN=.venv-$*/bin/python

# --brief: without what is marked any_python; what is marked any_server on the oldest server instead of the newest.
$(NEWER:%=test-%): test-%:
	@$(PYTHON) tools/env.py .venv-$* $* > /dev/null
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-dev} $(PYTHON) tools/took.py $@ $(BRIEF_MINUTES) $(MAKE) run-tests IN=.venv-$*/bin/python OPTIONS=--brief

.PHONY: run-tests run-covered
run-tests:
	@mkdir -p .cache
	@$(IN) -m tools.prepare
	$(IN) -m pytest $(SLOWEST) $(OPTIONS) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not alone'
	@# One at a time, in a process beside the one that tells of it: what hangs ends that process, and the rest goes on.
	$(IN) -m pytest $(SLOWEST) $(filter --brief,$(OPTIONS)) -n 1 -m alone tests/server tests/interop tests/chaos tests/stress

run-covered: export COVERAGE_FILE = .cache/coverage
run-covered:
	@$(MAKE) run-tests OPTIONS='--cov=bullmq_anyio --cov=bullmq_sync --cov-report= --cover-oldest'
	$(IN) -m coverage report --fail-under=80

test-switching: env ## the tests of threads as these switch every microsecond, and a stress for DURATION=60 seconds, SEED=0
	@$(IN) -m tools.prepare
	$(IN) -m pytest $(SLOWEST) --switching --brief -n $(WORKERS) --dist loadfile -m 'not alone' tests/server
	$(IN) -m tests.stress --duration $(DURATION) --seed $(SEED)

lint: env ## the quick half of check: format, lint, types, stale Lua, twins and pages
	$(IN) -m ruff format --check .
	$(IN) -m ruff check .
	$(IN) -m mypy
	$(IN) lua/build.py --check
	$(IN) tools/reference.py --check
	$(IN) tools/error_table.py --check
	$(IN) tools/twin.py --check
	$(IN) tools/acl.py --check
	$(IN) tools/public_names.py --check

check: lint ## lint, pyright, and the core's coverage by the tests without a server
	$(IN) -m pyright --pythonpath $(IN)
	@mkdir -p .cache
	HYPOTHESIS_PROFILE=dev COVERAGE_FILE=.cache/coverage-core $(IN) -m pytest -n 2 --cov --cov-report= tests/unit tests/property
	@# conformance.py is what a transport is put through: it runs in the tests with a server
	COVERAGE_FILE=.cache/coverage-core $(IN) -m coverage report --include='bullmq_protocol/*' \
	  --omit='bullmq_protocol/testing/conformance.py' --fail-under=100

oracle: env ## compare our Lua with BullMQ's own scripts; SEQUENCES=2000 for more
	@SEQUENCES=$(SEQUENCES) $(IN) -m tests.oracle

mutants: env env-mutants ## plant faults by rule in the Lua, the core and the adapters; the tests must notice them (hours)
	@$(IN) -m tools.mutants.lua
	@$(MUTANTS_IN) -m tools.mutants.python

mutants-sample: env env-mutants ## the same for a few faults, drawn by SEED (at most two minutes each)
	@$(IN) -m tools.mutants.lua --sample 400 --seed $(SEED) --seconds 100
	@$(MUTANTS_IN) -m tools.mutants.python --part core --quick --sample 400 --seed $(SEED) --seconds 60

simulate: env ## live workers in simulated time; STEPS=10000000 SEED=0 for more
	@$(IN) -m tools.simulate --steps $(STEPS) --seed $(SEED)

chaos: env ## strike all colours and Node on shared queues; DURATION=3600 SEED=1 KIND=failover for more
	@$(IN) -m tests.chaos --duration $(DURATION) --seed $(SEED) $(KIND:%=--kind %)

chaos-abrupt: env ## kill masters and promote their replicas: lost is what the replica lacked, and nothing else
	@$(IN) -m tests.chaos --abrupt --duration $(DURATION) --seed $(SEED)

bench: env ## measure, side by side with BullMQ on Node where it is installed
	@$(IN) -m bench

clean: ## remove the environments and caches
	rm -rf .venv .venv-* .cache
