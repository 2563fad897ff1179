"""An empty database per test, SQLite and (where it is installed) PostgreSQL."""

from __future__ import annotations

from tests.storage.conftest import database as database
from tests.storage.conftest import database_url as database_url
from tests.storage.conftest import postgres_server as postgres_server
