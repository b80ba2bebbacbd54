# Two commands do all the set-up on a fresh machine with python3 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo demo-joint test lint bench docs dist clean

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

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.bench
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/categories.py
	$(BIN)/python benchmarks/engine.py

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
	rm -rf .venv out dist site
