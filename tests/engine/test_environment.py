"""The thread and allocator environment is set before torch reads it, and only then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

SHOW = (
    "import json, os; print(json.dumps({k: os.environ.get(k) for k in "
    "('OMP_NUM_THREADS', 'GOMP_SPINCOUNT')}))"
)


def prepared(call: str, **environment: str) -> dict[str, Any]:
    """The variables after running call in a fresh process."""
    kept = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT")}
    done = subprocess.run(
        [sys.executable, "-c", f"from engine import environment\n{call}\n{SHOW}"],
        env={**kept, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def test_threads_spin_briefly_by_default() -> None:
    assert prepared("environment.prepare()") == {
        "OMP_NUM_THREADS": None,
        "GOMP_SPINCOUNT": "20000",
    }


def test_the_flag_sets_the_threads() -> None:
    assert prepared("environment.prepare(3)", OMP_NUM_THREADS="9")["OMP_NUM_THREADS"] == "3"


def test_what_the_user_set_stays() -> None:
    assert prepared("environment.prepare()", GOMP_SPINCOUNT="7")["GOMP_SPINCOUNT"] == "7"


def test_too_late_means_nothing_happens() -> None:
    done = prepared("import torch\nenvironment.prepare(3)", OMP_NUM_THREADS="1")
    assert done == {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": None}


@pytest.mark.parametrize("module", ["engine", "engine.environment", "engine.models.locate"])
def test_importing_it_does_not_import_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
