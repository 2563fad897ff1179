"""An empty database per test, SQLite and (where it is installed) PostgreSQL; GPs on one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.conftest import database as database
from tests.storage.conftest import database_url as database_url
from tests.storage.conftest import postgres_server as postgres_server


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Several threads take longer over tens of points, where others use the cores too."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
