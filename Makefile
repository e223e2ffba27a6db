# Every target sets up what it needs in .venv first; when nothing has changed, that costs a moment.

# What set-up installs beside the core: extras of pyproject.toml.
EXTRAS ?= s3,sql,sqlalchemy,graph,spark,server,client,dev
# Targets that start Spark, and so need Java.
SPARK_TARGETS := demo test bench
JOBS ?= 2
# Bytecode is kept, or each of the hundreds of processes that tests start would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE
PY := .venv/bin/python
PYTEST := $(PY) -m pytest -q -n $(JOBS) --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help setup java postgres demo demo-seam test test-fast differential tools lint bench mutants docs constraints clean

help:    ## this list
	@sed -nE 's/^([a-z-]+):[a-z ]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup:  ## install everything into .venv, and nothing else
	@tools/setup $(EXTRAS)

java:
	@tools/need-java

postgres:
	@tools/need-postgres

test differential: postgres

ifneq ($(SPARK_TARGETS),)
$(SPARK_TARGETS): java
endif

demo: setup  ## see it work: a shop from its deliveries to its totals; ARGS="--rows 1000000" for more of it
	@$(PY) examples/shop/demo.py $(ARGS)

demo-seam: setup  ## the layer below at work: write, branch, read the past, crash, recover
	@$(PY) examples/seam/demo.py

test: setup  ## all tests
	@$(PYTEST) $(ARGS)

test-fast: setup  ## the tests for working: no slow ones, under two minutes
	@$(PYTEST) -m "not slow" --hypothesis-profile=quick $(ARGS)

differential: setup  ## compare many more random SQL statements with PostgreSQL; DIFFERENTIAL=20000, DIFFERENTIAL_SEED=…
	@DIFFERENTIAL=$(or $(DIFFERENTIAL),5000) $(PYTEST) tests/sql/test_differential.py $(ARGS)

# dbt and DuckDB's extension need other versions of packages that we have, so each gets an environment of its own.
tools: EXTRAS := $(EXTRAS),tools
tools: setup  ## Python tools that are too large for every set-up: Polars, Django, ibis, dbt, DuckDB's ATTACH
	@tools/uv venv --quiet --clear .cache/dbt && tools/uv pip install --quiet --python .cache/dbt/bin/python \
	  dbt-core==1.11.16 dbt-postgres==1.11.0
	@tools/uv venv --quiet --clear .cache/duckdb && tools/uv pip install --quiet --python .cache/duckdb/bin/python \
	  duckdb-extension-postgres-scanner==1.5.5
	@$(PYTEST) tests/sql/test_python_tools.py tests/server/pg/test_python_tools.py $(ARGS)

lint: setup  ## ruff, mypy strict, and which way imports point
	@$(PY) -m ruff check --quiet .
	@$(PY) -m mypy --no-error-summary
	@told=$$(.venv/bin/lint-imports --no-logo --cache-dir .cache/imports) || { echo "$$told"; exit 1; }
	@for script in tools/* .ci/run; do bash -n $$script || exit 1; done

bench: EXTRAS := $(EXTRAS),bench
bench: setup  ## every benchmark, or one: make bench BENCH=storage
	@for script in benchmarks/$(or $(BENCH),[a-z]*).py; do echo "== $$script"; $(PY) $$script || exit 1; done

mutants: EXTRAS := $(EXTRAS),mutants
mutants: setup  ## change the modules that hold rules and see whether tests notice; ARGS="patches" for some
	@$(PY) tests/mutants.py $(ARGS)

# Without --quiet, under which mkdocs counts no warnings and --strict finds nothing.
docs: setup  ## build the site into site/
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

constraints: setup  ## pin the newest versions that pyproject.toml allows
	@tools/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --group setup \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make constraints" \
	  pyproject.toml -o constraints.txt

clean:  ## remove what the targets made
	@rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache dist site
	@find src tests benchmarks examples tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
