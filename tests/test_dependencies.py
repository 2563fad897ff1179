"""What is imported is declared, and what is declared is pinned: no install works by luck."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.test_architecture import ROOMS, imports, modules

ROOT = Path(__file__).parent.parent
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = CONFIG["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
LOCKED = {
    line.partition("==")[0]
    for name in ("requirements.lock", "requirements-ray.lock")
    for line in (ROOT / name).read_text().split()
}


def plain(name: str) -> str:
    """`flash_attn`, `Jinja2>=3`, `psycopg[binary]` by the name that registries compare."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", name)[0]).lower()


def declared(*extras: str) -> set[str]:
    rows = [*PROJECT["dependencies"], *(row for extra in extras for row in EXTRAS[extra])]
    return {plain(row) for row in rows}


def imported(room: str) -> set[str]:
    """Packages of other authors, by the name they are installed under."""
    owners = importlib.metadata.packages_distributions()
    tops = {name.split(".")[0] for path in modules(room) for name in imports(path)}
    others = tops - set(sys.stdlib_module_names) - set(ROOMS) - {"_typeshed"}  # types only
    return {plain(owners.get(name, [name])[0]) for name in others}


@pytest.mark.parametrize("room", ROOMS)
def test_every_import_is_declared(room: str) -> None:
    absent = {"dev"} if room == "engine" else {"dev", "engine", "gpu"}
    assert imported(room) - declared(*(set(EXTRAS) - absent)) == set()


def test_an_install_carries_every_file_that_the_code_reads() -> None:
    carried = CONFIG["tool"]["setuptools"]["package-data"]["*"]
    files = [
        path
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert len(files) > len(ROOMS)
    assert [path.name for path in files if not any(map(path.match, carried))] == []


def test_every_declared_package_is_pinned() -> None:
    """flash-attn is built against the CUDA of the machine it runs on: no one version fits."""
    wanted = declared(*EXTRAS) - {"flash-attn"}
    assert wanted - {plain(name) for name in LOCKED} == set()
