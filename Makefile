# Two commands do all the set-up on a fresh machine with python3 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo demo-joint test test-floors lint bench reproduce docs dist clean

# A stamp per extra, so that each command installs what it needs once.
.venv/.%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

demo: .venv/.demo
	$(BIN)/python examples/demo.py

# The extra of the tests is the one with torch at the version they ran with, and scikit-learn for its digits.
demo-joint: .venv/.dev
	$(BIN)/python examples/joint_training.py

# Several processes run the tests, and more threads than cores would wait for each other.
test: .venv/.dev lint
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

# The quick tests with the oldest libraries that are supported, in an environment of their own; those of PyTorch are skipped.
FLOORS = .venv-floors/bin/python
test-floors: .venv-floors/.stamp
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(FLOORS) -m pytest -m "not slow"

.venv-floors/.stamp: pyproject.toml .ci/floors.py
	test -x $(FLOORS) || $(PYTHON) -m venv .venv-floors
	$(FLOORS) .ci/floors.py > .venv-floors/constraints.txt
	$(FLOORS) -m pip install --quiet --disable-pip-version-check --constraint .venv-floors/constraints.txt \
		--editable '.[cli,dask,optuna,pandas,sklearn]' hypothesis pytest pytest-xdist
	touch $@

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.bench
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/categories.py
	$(BIN)/python benchmarks/engine.py

# The paper's searches, into out/reproduction; hours. WORDS, such as `WORDS="alpha --max-n 100"`, does a part.
WORDS ?= all
reproduce: .venv/.reproduction
	$(BIN)/python -m reproduction $(WORDS)

# The site, into site/. With --quiet, warnings would not be errors.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

# Wheel and sdist, each tried in an environment that has nothing but what it asks for.
dist: .venv/.dist
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python tests/smoke.py dist/*

clean:
	rm -rf .venv .venv-floors out dist site
