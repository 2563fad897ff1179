"""Engines that several modules of this folder load: started once, ended with the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Program, running


@pytest.fixture(scope="package")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tuner.diagnosis.real_engine import model_folder

    return model_folder(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="package")
def engine(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Steps of some milliseconds; prompts are never reused."""
    from tests.tuner.diagnosis.real_engine import FLAGS, SMALL

    log = tmp_path_factory.mktemp("engine") / "log"
    with running("engine", "serve", "--model", str(small_model), *FLAGS, *SMALL, log=log) as small:
        yield small.url


@pytest.fixture(scope="package")
def slower_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tuner.diagnosis.real_engine import SLOWER, model_folder

    return model_folder(tmp_path_factory.mktemp("slower"), **SLOWER)


@pytest.fixture(scope="package")
def pair(
    slower_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Program, Program]]:
    """Two engines alike, of a model slow enough that a long prompt takes about a second."""
    from tests.tuner.diagnosis.real_engine import FLAGS, LARGE

    logs = tmp_path_factory.mktemp("engines")
    arguments = ("serve", "--model", str(slower_model), *FLAGS, *LARGE)
    with (
        running("engine", *arguments, log=logs / "first") as first,
        running("engine", *arguments, log=logs / "second") as second,
    ):
        yield first, second
