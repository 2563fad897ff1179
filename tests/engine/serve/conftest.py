from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.fake_runner import FakeRunner
from tests.engine.serve.harness import RunningServer, running


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A fast server, shared by the tests of a module."""
    with running() as running_server:
        yield running_server


@pytest.fixture(scope="module")
def slow_server() -> Iterator[RunningServer]:
    """A server whose steps take long enough to act in the middle of an answer."""
    with running(runner=FakeRunner(step_s=0.02)) as running_server:
        yield running_server
