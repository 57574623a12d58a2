# SPDX-License-Identifier: Apache-2.0
# The front door. A fresh machine needs Python >= 3.11 and make; every target does the set-up it needs by itself.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Spark starts the Java that set-up found, and its workers run in the same environment as the driver.
RUN = JAVA_HOME="$$(cat .venv/.java-home)" PATH="$$PWD/.venv/bin:$$PATH"

# The oldest Spark that pyproject.toml allows.
SPARK ?= 4.2.0

# Eight workers, also on two cores, since much of a test is waiting. Four where most tests start a Spark: with more, a
# Python of Spark's may miss the 10 s that Spark gives it to start. tests/conftest.py says what stays together in one
# worker and what begins first; xdist would begin with the groups that have the most tests.
PYTEST = $(RUN) .venv/bin/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
WORKERS = 4
test: WORKERS = 8

##@ On a fresh machine
demo:  ## run the flights job end to end: Spark, our broker, a chart (DEMO_ARGS=--chaos kills both half-way)
	@scripts/setup.sh demo
	@$(RUN) .venv/bin/python examples/flights_etl.py $(DEMO_ARGS)

test: lint  ## lint, types, every rule and machine, the Spark side, on our broker (TEST_ARGS="-k name" for some)
	@nice .venv/bin/mypy >.venv/.mypy-said 2>&1 & types=$$!; failed=0; $(PYTEST) -m "not pulsar and not programs" $(TEST_ARGS) || failed=$$?; \
	  wait $$types || failed=$$?; cat .venv/.mypy-said; exit $$failed

test-programs: setup  ## the tests that run whole programs: examples, notebooks, the jobs of the pages, rigs (TEST_ARGS)
	@$(PYTEST) -m "programs and not pulsar" $(TEST_ARGS)

test-peers: setup  ## the tests on real Apache Pulsars, with clients of Java, Go and Rust, with tools (needs Maven; TEST_ARGS)
	@$(PYTEST) -m pulsar $(TEST_ARGS)

test-all: test test-programs test-peers rigs  ## all of that

rigs: setup  ## rigs for a moment: kills, damages, mutated frames, crashes, lockstep with an Apache Pulsar, random histories
	@$(MAKE) kill KILL_ARGS="--kills 20"
	@$(MAKE) txn-kills TXN_ARGS="--transactions 500 --kills 5"
	@$(MAKE) schema-kills SCHEMA_ARGS="--kills 20"
	@$(MAKE) exactly-once-kills ONCE_ARGS="--only pulsarish --form process --kills 12"
	@$(MAKE) damage DAMAGE_ARGS="--damages 200"
	@$(MAKE) fuzz FUZZ_ARGS="--frames 4000 --commands 2000 --requests 5000"
	@$(MAKE) sim SIM_ARGS="--images 15000"
	@$(MAKE) lockstep LOCKSTEP_ARGS="--scripts 5"
	@$(MAKE) soak SOAK_ARGS="--steps 50000"

test-oldest: setup  ## the quicker tests with the oldest versions that pyproject.toml allows (TEST_ARGS as above)
	@scripts/test_oldest.sh $(TEST_ARGS)

test-spark: setup  ## the Spark suite on another Spark, in an environment of its own (SPARK=4.2.0; TEST_ARGS as above)
	@scripts/test_spark.sh $(SPARK) $(TEST_ARGS)

test-uncompiled: setup  ## the tests of wire formats over the core as Python, uncompiled (TEST_ARGS as above)
	@PULSARISH_UNCOMPILED=1 $(PYTEST) tests/wire tests/values/test_columns.py -m "not slow" $(TEST_ARGS)

test-wheel: wheel  ## the wheel in an empty environment: a broker, a producer, a consumer, the codec
	@scripts/test_wheel.sh

wheel: setup  ## a wheel for this Python and machine, with the compiled core, in dist/
	@rm -rf build/lib* && .venv/bin/python -m pip wheel --quiet --no-input --disable-pip-version-check --no-deps --wheel-dir dist .

setup:  ## make .venv ready (Python packages, the compiled core, a Java for Spark); quick if nothing changed
	@scripts/setup.sh

##@ While working
lint: setup  ## style: ruff check and ruff format --check
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .

format: setup  ## mend what ruff can mend
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

type: setup  ## types: mypy, strict
	@.venv/bin/mypy

proto: setup  ## generate the protocol code from pulsar_api.proto
	@.venv/bin/python -m scripts.generate_proto

docs: setup  ## generate the pages of docs/ that come from the code, and conf/
	@.venv/bin/python -m scripts.generate_docs

##@ Rigs (HACKING.md tells more)
bench: setup  ## measure this machine, with budgets; results in benchmarks/results
	@$(RUN) .venv/bin/python -m benchmarks $(BENCH_ARGS)

bench-peers: setup  ## the same Spark reads and writes on Kafka, and the ratios
	@.venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --editable '.[peers]'
	@$(RUN) .venv/bin/python -m benchmarks.peers $(BENCH_ARGS)

bench-fan-in: setup  ## 500 producers, 20 Key_Shared consumers: the highest rate that holds, here and on Apache Pulsar
	@$(RUN) .venv/bin/python -m benchmarks.fan_in $(BENCH_ARGS)

bench-commits: setup  ## transactions of 1 and of 100 messages, of 1 and of 100 clients: the time of a commit, here and on Apache Pulsar
	@$(RUN) .venv/bin/python -m benchmarks.commits $(BENCH_ARGS)

bench-compactions: setup  ## rate of a compaction, by the clock and of a CPU second, here and on Apache Pulsar
	@$(RUN) .venv/bin/python -m benchmarks.compactions $(BENCH_ARGS)

kill: setup  ## kill the real broker under load, 500 times, and compare with what it confirmed (KILL_ARGS=...)
	@$(RUN) .venv/bin/python -m tests.kill.rig $(KILL_ARGS)

queue-kills: setup  ## kill a query in queue mode at each step beside a rival consumer, on both brokers (QUEUE_KILLS_ARGS=...)
	@$(RUN) .venv/bin/python -m tests.kill.queue_rig $(QUEUE_KILLS_ARGS)

txn-kills: setup  ## kill broker and clients under transactions, look for every anomaly (TXN_ARGS="--transactions N --kills N --seed S --broker apache")
	@$(RUN) .venv/bin/python -m tests.kill.txn_rig $(TXN_ARGS)

schema-kills: setup  ## kill the broker while clients bring, read and delete schemas, 300 times, and look for every version (SCHEMA_ARGS=...)
	@$(RUN) .venv/bin/python -m tests.kill.schema_rig $(SCHEMA_ARGS)

exactly-once-kills: setup  ## kill and pause what writes exactly once at each step, on both brokers, and count rows (ONCE_ARGS=...)
	@$(RUN) .venv/bin/python -m tests.kill.once_rig $(ONCE_ARGS)

queue-share: setup  ## ten million messages shared by Spark and three clients, each processed once (QUEUE_SHARE_ARGS=...)
	@$(RUN) .venv/bin/python -m tests.kill.queue_share $(QUEUE_SHARE_ARGS)

flood: setup  ## attack a real broker; CPU of its longest turn, memory, and how others fare (FLOOD_ARGS="--only NAME --stacks")
	@$(RUN) .venv/bin/python -m tests.flood.rig $(FLOOD_ARGS)

fuzz: setup  ## random commands, mutated frames and requests to a real broker with rights (FUZZ_ARGS="--frames N --commands N --requests N --seed S")
	@$(RUN) .venv/bin/python -m tests.fuzz.rig $(FUZZ_ARGS)

fuzz-payloads: setup  ## mutated payloads of every type of schema to the decoders of values (FUZZ_ARGS="--payloads N --seed S")
	@$(RUN) .venv/bin/python -m tests.fuzz.payloads $(FUZZ_ARGS)

schemathesis: setup  ## requests that Schemathesis makes from docs/openapi.json, for several roles (SCHEMATHESIS_ARGS="--examples N")
	@test -d .venv/schemathesis || .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --target .venv/schemathesis 'schemathesis>=4.32,<5'
	@PYTHONPATH="$$PWD/.venv/schemathesis" .venv/bin/python -m tests.fuzz.schemathesis_rig $(SCHEMATHESIS_ARGS)

damage: setup  ## damage data directories at random, thousands of times; every loss must be told (DAMAGE_ARGS="--damages N --seed S")
	@$(RUN) .venv/bin/python -m tests.damage.rig $(DAMAGE_ARGS)

sim: setup  ## crash the storage on the simulated disk, thousands of images (SIM_ARGS="--images N --seed S")
	@$(RUN) .venv/bin/python -m tests.storage.sim $(SIM_ARGS)

clients: setup  ## the behaviours with older and newer official clients, and the table (CLIENTS_ARGS="--only java-4.0.8")
	@$(RUN) .venv/bin/python -m tests.behaviour.versions $(CLIENTS_ARGS)

clients-secure: setup  ## the behaviours with TLS, certificates, tokens, passwords, and the table (CLIENTS_ARGS="--only java-mtls")
	@$(RUN) .venv/bin/python -m tests.behaviour.accesses $(CLIENTS_ARGS)

stalls: setup  ## run tests while threads are held up at random places (STALLS_SEED=1 TEST_ARGS="tests/client")
	@STALLS_SEED=$${STALLS_SEED:-1} PYTHONPATH="$$PWD/tests/stalls" $(PYTEST) -p sitecustomize -n 10 $(TEST_ARGS)

soak: setup  ## random histories of all state machines, millions of steps (SOAK_ARGS="--steps N --seed S --only NAME")
	@$(RUN) .venv/bin/python -m tests.soak $(SOAK_ARGS)

lockstep: setup  ## random scripts on our broker and on an Apache Pulsar, which must do the same (LOCKSTEP_ARGS="--scripts N")
	@$(RUN) .venv/bin/python -m tests.lockstep $(LOCKSTEP_ARGS)

routing: setup  ## where the official Java, Python and Go clients send keys, and we (ROUTING_ARGS=--write stores it)
	@$(RUN) .venv/bin/python -m tests.routing.rig $(ROUTING_ARGS)

cluster: setup  ## Spark on a cluster of two Apache Pulsar brokers: moved bundles, killed brokers (CLUSTER_ARGS=...)
	@$(RUN) .venv/bin/python -m tests.spark.takeover $(CLUSTER_ARGS)

notebooks: setup  ## make the examples' notebooks from their scripts and run them (NOTEBOOKS_ARGS="late_sessions" for some)
	@$(RUN) .venv/bin/python -m tests.examples.notebooks $(NOTEBOOKS_ARGS)

rules: setup  ## list the rules of docs/semantics.md that no test cites (RULES_ARGS="--of 2.6.2" for a rule's tests)
	@.venv/bin/python -m tests.rules $(RULES_ARGS)

comparison: setup  ## check that the tests that docs/comparison.md names exist, and run them
	@$(RUN) .venv/bin/python -m tests.comparison --run

clean:  ## remove everything that set-up, tests and rigs made here
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis benchmarks/results spark-warehouse metastore_db derby.log
	@rm -f broker_core/wire/core/*.so broker_core/wire/core/*.pyd
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: demo test test-programs test-peers test-all rigs test-oldest test-spark test-uncompiled test-wheel wheel setup lint format type proto docs bench bench-peers bench-fan-in bench-commits bench-compactions kill queue-kills txn-kills schema-kills queue-share flood fuzz fuzz-payloads schemathesis damage sim clients clients-secure stalls soak lockstep routing cluster notebooks rules comparison clean help
