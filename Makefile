# Two commands do all the set-up on a fresh machine with python3 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN = .venv/bin

.PHONY: demo test lint bench clean

# A stamp per extra, so that each command installs what it needs once.
.venv/.%: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

demo: .venv/.demo
	$(BIN)/python examples/demo.py

test: .venv/.dev lint
	$(BIN)/python -m pytest

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.bench
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/categories.py
	$(BIN)/python benchmarks/engine.py

clean:
	rm -rf .venv out dist
