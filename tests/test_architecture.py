"""Imports run one way, and the heavy packages stay in their rooms (see docs/architecture.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("engine", "tuner", "storage", "dashboard")
MAY_IMPORT = {
    "engine": set(),
    "storage": set(),
    "tuner": {"storage", "engine"},
    "dashboard": {"tuner", "storage", "engine"},
}
ENGINE_WITHOUT_TORCH = {
    "config", "errors", "knobs", "logprobs", "metrics", "sampling_params", "sequence",
    "scheduler", "kvcache",
}  # fmt: skip


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all that a module imports, at any depth of nesting."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def importing(name: str) -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in modules(room)
        if any(found == name or found.startswith(f"{name}.") for found in imports(path))
    }


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_one_way(room: str) -> None:
    forbidden = set(ROOMS) - MAY_IMPORT[room] - {room}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(room)
        for name in imports(path)
        if name.split(".")[0] in forbidden
    ]
    assert wrong == []


@pytest.mark.parametrize("room", ["tuner", "dashboard"])
def test_only_the_torch_free_core_of_the_engine_is_used_outside(room: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(room)
        for name in imports(path)
        if name.startswith("engine.") and name.split(".")[1] not in ENGINE_WITHOUT_TORCH
    ]
    assert wrong == []


def test_streamlit_only_in_the_dashboard() -> None:
    assert {path.split("/")[0] for path in importing("streamlit")} == {"dashboard"}


def test_torch_only_below_the_scheduler() -> None:
    for path in importing("torch"):
        room, rest = path.split("/", 1)
        assert room == "engine", path
        assert rest.split("/")[0].removesuffix(".py") not in ENGINE_WITHOUT_TORCH, path


def test_only_the_command_line_imports_the_command_line() -> None:
    own = ("tuner/cli/", "tuner/__main__")
    assert [path for path in importing("tuner.cli") if not path.startswith(own)] == []


def test_optuna_only_in_search_and_storage() -> None:
    wrong = [p for p in importing("optuna") if not p.startswith(("tuner/search/", "storage/"))]
    assert wrong == []


def test_ray_only_where_the_cluster_is() -> None:
    assert importing("ray") == {"tuner/executor/cluster.py"}


@pytest.mark.parametrize(
    "statement",
    [
        "import engine, engine.config, engine.knobs, engine.core, engine.scheduler, engine.kvcache",
        "from engine.cli import main; main(['--help'])",
        "from tuner.cli import main; main(['--help'])",
        "from tuner.cli import main; main(['diagnose', '--help'])",
        "from tuner.cli import main; main(['optimize', '--help'])",
        "from tuner.cli import main; main(['bench', '--help'])",
        "from tuner.cli import main; main(['sweep', '--help'])",
        "from tuner.cli import main; main(['studies', '--help'])",
        "from tuner.cli import main; main(['report', '--help'])",
        "from tuner.cli import main; main(['rules', '--help'])",
        "from dashboard.cli import main; main(['--help'])",
    ],
)
def test_light_starts_load_nothing_heavy(statement: str) -> None:
    heavy = "('torch', 'streamlit', 'optuna', 'pandas', 'transformers', 'ray')"
    code = (
        "import sys\n"
        f"try:\n    {statement}\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"loaded = [name for name in {heavy} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-800:]
