# Everything a developer or CI runs. Each target makes the environment it needs in .venv and .cache.

PYTHON ?= python3
OLDEST = 3.11
NEWER = 3.12 3.13
SEQUENCES ?= 200
STEPS ?= 1000000
SEED ?= 0
DURATION ?= 60
MOMENTS ?= 200
TRANSACTIONS ?= 20000
KILLS ?= 50
# Tests wait more than they compute: two processes for each core of a small machine.
WORKERS ?= 4
# What is said before the first run; afterwards it is what the last one took.
TEST_MINUTES = 8
LONG_MINUTES = 10
BRIEF_MINUTES = 3

IN = .venv/bin/python
export PYRIGHT_PYTHON_CACHE_DIR = $(CURDIR)/.cache/pyright
export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1
export PYTHONUNBUFFERED = 1
# Tests start many programs: each of them would compile all of our modules anew.
unexport PYTHONDONTWRITEBYTECODE
MAKEFLAGS += --no-print-directory

SLOWEST = $(if $(CI),--durations=15)

.DEFAULT_GOAL = menu
.PHONY: menu env $(NEWER:%=env-%) env-docs environments docs demo demo-monque board server unit generated lint test test-all $(OLDEST:%=test-%) $(NEWER:%=test-%) test-switching check oracle follow mutants mutants-sample simulate conformance chaos chaos-abrupt chaos-fleet outbox-faults signals bench bench-quick bench-peers dist clean

menu:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

env:
	@$(PYTHON) tools/env.py .venv > /dev/null

# Newer Pythons run a part of the tests alone: what checks the types is not installed there, nor what the others need.
$(NEWER:%=env-%): env-%:
	@$(PYTHON) tools/env.py .venv-$* $* --group newer > /dev/null

env-docs:
	@$(PYTHON) tools/env.py .venv-docs --group docs > /dev/null

environments: ## the environments of all Pythons, and that of the site, side by side
	@$(MAKE) -j env $(NEWER:%=env-%) env-docs

docs: env-docs ## build the documentation site in .cache/site, offline, in under 3 minutes; a warning or a dead link ends it
	.venv-docs/bin/python -m sphinx -b html -j 2 -q -W --keep-going -c docs -d .cache/doctrees . .cache/site
	.venv-docs/bin/python -m tools.site .cache/site

demo: ## add 10,000 jobs and work them off on an embedded server, in under 20 s
	@$(PYTHON) tools/env.py .venv-demo --extra anyio > /dev/null
	@.venv-demo/bin/python -m examples.demo

demo-monque: env ## the same for Monque: a scheduler on the MongoDB that can be had here, in under 30 s
	@$(IN) -m examples.demo_monque

board: ## show the demo's queues in bull-board (needs Node), at http://127.0.0.1:3000 until Ctrl-C; QUEUES=mail for yours
	@$(PYTHON) tools/env.py .venv-board --extra anyio,sync > /dev/null
	@.venv-board/bin/python -m examples.board $(QUEUES)

server: ## run a Redis or Valkey server at port 6379 until Ctrl-C: that of PATH, or out of a wheel
	@$(PYTHON) tools/env.py .venv-demo --extra anyio > /dev/null
	@.venv-demo/bin/python -m examples.server

unit: env ## run the tests that need no server and no long search, in under 20 s
	@$(MAKE) -j 2 unit-a-to-h unit-i-to-z

# Each of two processes collects its own half: sharing tests out one by one takes half as long again. Importing every client library, as
# test_failure.py does, takes seconds.
.PHONY: unit-a-to-h unit-i-to-z
unit-a-to-h: HALF = $(filter-out %/test_failure.py,$(wildcard tests/unit/test_[a-h]*.py))
unit-i-to-z: HALF = $(wildcard tests/unit/test_[i-z]*.py)
unit-a-to-h unit-i-to-z:
	@$(IN) -m pytest -q -m 'not search and not slow' $(HALF)

# Not the tests marked deep, which mostly test the tests, nor the adapters' coverage: both are in test-all.
test: env ## run the tests on one Python, every server that can be had, and Node where it is installed
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-dev} $(PYTHON) tools/took.py test $(TEST_MINUTES) $(MAKE) run-tests IN=$(IN) AND='and not deep'

test-all: $(OLDEST:%=test-%) $(NEWER:%=test-%) ## the same, longer tests, more examples and coverage on Python 3.11, then what depends on Python's version on 3.12 and 3.13

# CHECKED=yes leaves out tests/unit where `make check` has run it in the same environment.
$(OLDEST:%=test-%): test-%:
	@$(PYTHON) tools/env.py .venv-$* $* > /dev/null
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(PYTHON) tools/took.py $@ $(LONG_MINUTES) $(MAKE) run-covered IN=.venv-$*/bin/python \
	  LEFT_OUT="$$(test -z '$(CHECKED)' || test ! -L .venv-$* || echo tests/unit)"

# --brief: without what is marked any_python; little is left beside the tests of servers, which have all processes. Each of these has one end of the servers: 3.11 has both. One has the profile of old programs.
test-3.12: export BULLMQ_TEST_END = oldest
test-3.12: export BULLMQ_TEST_PROFILE = strict
# Time and memory are measured on the oldest and on the newest Python.
test-3.12: export NOT_ALONE = yes
test-3.13: export BULLMQ_TEST_END = newest
# trio draws for each batch of tasks in which order they run; here it does not.
test-3.12: TRIO_ORDER = kept
test-3.13: TRIO_ORDER = reversed
$(NEWER:%=test-%): test-%: env-%
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-brief} $(PYTHON) tools/took.py $@ $(BRIEF_MINUTES) $(MAKE) run-tests IN=.venv-$*/bin/python OF_SERVERS=$(WORKERS) \
	  OPTIONS='--brief --trio-order $(TRIO_ORDER)'

# Two runs side by side, since each process of a run reads all of its tests; nothing is fetched for the first tests of the second one.
# Each is empty unless make is called with it: the environment of a test, which make makes, counts for nothing.
AND =
COVERED =
LEFT_OUT =
OPTIONS =
.PHONY: run-tests run-covered tests-of-servers tests-of-others prepare-monque
# Those of servers take longer, and wait more.
run-tests: SHARE = $(shell expr \( $(WORKERS) + 1 \) / 2)
run-tests: OF_SERVERS = $(shell expr \( $(WORKERS) \* 3 + 3 \) / 4)
run-tests:
	@mkdir -p .cache
	@$(MAKE) -j 3 prepare-monque tests-of-servers tests-of-others SHARE=$(SHARE) OF_SERVERS=$(OF_SERVERS)
	@# One at a time, in a process beside the one that tells of it: what hangs ends that process, and the rest goes on.
	$(if $(NOT_ALONE),,$(IN) -m pytest $(SLOWEST) $(OPTIONS) -n 1 -m 'alone $(AND)' $$(grep -rl --include='test_*.py' 'mark\.alone' tests))

SHARED = $(IN) -m pytest $(SLOWEST) $(OPTIONS) -n $(SHARE) --dist loadfile --no-loadscope-reorder -m 'not alone $(AND)'
QUICK = $(filter-out $(LEFT_OUT),tests/unit tests/property)
OTHERS = $(filter-out server unit property,$(notdir $(patsubst %/,%,$(sort $(dir $(wildcard tests/*/test_*.py))))))

prepare-monque:
	@$(IN) -m tools.prepare --monque

tests-of-servers:
	@$(IN) -m tools.prepare
	$(SHARED) -n $(OF_SERVERS) $(COVERED) tests/server

tests-of-others:
	@# What fails in the first ones is no reason to leave out the others.
	@failed=0; $(SHARED) $(QUICK) || failed=1; \
	$(IN) -m tools.prepare && $(IN) -m tools.prepare --monque && $(SHARED) $(OTHERS:%=tests/%) && exit $$failed

# The adapters' lines are counted in tests/server alone.
run-covered: export COVERAGE_FILE = .cache/coverage
run-covered:
	@$(MAKE) run-tests COVERED='--cov=bullmq_anyio --cov=bullmq_sync --cov-report= --cover-once'
	$(IN) -m coverage report --fail-under=80

# What threads of ours do to each other does not depend on the server.
test-switching: export BULLMQ_TEST_END = newest
test-switching: env ## the tests of threads as these switch every microsecond, and a stress for DURATION=60 seconds, SEED=0
	@$(IN) -m tools.prepare
	$(IN) -m pytest $(SLOWEST) --switching --brief -n $(WORKERS) --dist loadfile -m 'not alone' tests/server
	$(IN) -m tests.stress --duration $(DURATION) --seed $(SEED)

.PHONY: pyright
pyright: env
	$(IN) -m pyright --pythonpath $(IN)

# What others read comes before them: scripts, twins, pages, and last the names of all that.
GENERATORS = lua/build.py $(addprefix tools/,twin.py anchors.py reference.py error_table.py acl.py drawings.py conformance_page.py public_names.py)
define LINE


endef

generated: env ## write whatever is made from other files: packed Lua, twins, reference, lists of names and anchors, drawings
	$(foreach each,$(GENERATORS),$(IN) $(each)$(LINE)	)@git status --short

lint: env ## the quick half of check: format, lint, types, and whether what is generated is stale
	$(IN) -m ruff format --check .
	$(IN) -m ruff check .
	$(IN) -m mypy
	$(foreach each,$(GENERATORS),$(IN) $(each) --check$(LINE)	)

check: ON_TRIO = $(shell grep -lE '\["asyncio", "trio"|"anyio_backend", \["trio"\]|trio_order' tests/unit/test_*.py)
check: env ## lint, pyright, and the core's coverage by the tests without a server
	@$(MAKE) -j 2 lint pyright
	@mkdir -p .cache
	HYPOTHESIS_PROFILE=brief COVERAGE_FILE=.cache/coverage-core $(IN) -m pytest -n 2 --cov=bullmq_protocol --cov=monque_protocol --cov-report= tests/unit tests/property
	@# Those on trio in both orders in which it runs tasks that are due together.
	for order in kept reversed; do $(IN) -m pytest -q -p no:cacheprovider --trio-order $$order -k 'trio or order' $(ON_TRIO) || exit 1; done
	@# conformance.py is what a transport is put through, the others start servers: they run in the tests with a server
	COVERAGE_FILE=.cache/coverage-core $(IN) -m coverage report --include='bullmq_protocol/*,monque_protocol/*' \
	  --omit='bullmq_protocol/testing/conformance.py,bullmq_protocol/testing/_append_only.py,bullmq_protocol/testing/_docker.py,bullmq_protocol/testing/server.py' --fail-under=100

oracle: env ## compare our Lua with BullMQ's own scripts; PROFILE=fleet, BULLMQ=6.7.0 for others, SEQUENCES=2000 for more
	@SEQUENCES=$(SEQUENCES) PROFILE=$(PROFILE) BULLMQ=$(BULLMQ) $(IN) -m tests.oracle

conformance: env ## compare this library's scripts and clients, and BullMQ's Python port, with BullMQ on Node; SEQUENCES=50 SEED=0, and write docs/conformance-results.md
	@# The 200 sequences of the oracle are more than this needs.
	@$(IN) -m tools.conformance $(if $(filter file,$(origin SEQUENCES)),,--sequences $(SEQUENCES)) --seed $(SEED)

follow: env ## report on one page how another version of BullMQ differs; VERSION=6.7.0, BASE=6.5.4 to compare with another than the previous pin
	@$(IN) -m tools.follow $(VERSION) $(BASE:%=--base %)

mutants: env ## plant faults by rule in the Lua, the core and the adapters; the tests must notice them (hours)
	@# All of them, also after one that fails.
	@lua=0; for profile in strict 5.81 6.7 fleet; do $(IN) -m tools.mutants.lua --profile $$profile || lua=1; done; \
	$(IN) -m tools.mutants.python && exit $$lua

mutants-sample: env ## the same for a few faults, drawn by SEED (a minute)
	@$(MAKE) -j 2 mutants-of-lua mutants-of-core

# Each keeps one core busy.
.PHONY: mutants-of-lua mutants-of-core
mutants-of-lua:
	@$(IN) -m tools.mutants.lua --sample 300 --seed $(SEED) --seconds 35
mutants-of-core:
	@$(IN) -m tools.mutants.python --part core --quick --sample 400 --seed $(SEED) --seconds 25

simulate: env ## live workers in simulated time; STEPS=10000000 SEED=0 for more
	@$(IN) -m tools.simulate --steps $(STEPS) --seed $(SEED)

chaos: env ## strike all adapters and Node on shared queues; DURATION=3600 SEED=1 KIND=failover for more
	@$(IN) -m tests.chaos --duration $(DURATION) --seed $(SEED) $(KIND:%=--kind %)

chaos-abrupt: env ## kill masters and promote their replicas: lost is what the replica lacked, and nothing else
	@$(IN) -m tests.chaos --abrupt --duration $(DURATION) --seed $(SEED)

chaos-fleet: env ## BullMQ 5.62, 5.81 and 6.7 on Node, its Python port and ours on shared queues; DURATION=600 SEED=1 for more
	@$(IN) -m tests.chaos.fleet --duration $(DURATION) --seed $(SEED)

outbox-faults: env ## commit and roll back TRANSACTIONS=20000 beside jobs, while relays and Redis are killed KILLS=50 times; SEED=1
	@$(IN) -m tests.stress.outbox --transactions $(TRANSACTIONS) --kills $(KILLS) --seed $(SEED) $(KIND)

signals: env ## send bullmq-worker signals at MOMENTS=200 moments, drawn by SEED: no job may be lost
	@CLI_MOMENTS=$(MOMENTS) CLI_SEED=$(SEED) $(IN) -m pytest -q -n $(WORKERS) -k at_any_moment tests/server/test_cli_worker.py

bench: env ## measure, side by side with BullMQ on Node where it is installed; RESUME=yes goes on where it ended
	@$(IN) -m bench $(if $(RESUME),--resume)

bench-quick: env ## the main ratios alone, in under 4 minutes
	@$(IN) -m bench --short --json .cache/bench-quick.json

bench-peers: env ## other queues for Python beside ours alone, which are part of the bench, too
	@$(IN) -m bench --only add,process,latency,memory --sides asyncio,trio,threads,peers --soak 200000 --json .cache/bench-peers.json $(if $(RESUME),--resume)

dist: ## build wheel and sdist twice, and hold them to what a user does with them, in about 4 minutes
	@$(PYTHON) tools/env.py .venv-release --group release > /dev/null
	@.venv-release/bin/python tools/release.py $(if $(ONLY),--only $(ONLY))

clean: ## remove the environments and caches
	rm -rf .venv .venv-* .cache
