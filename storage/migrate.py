"""Brings a database to the newest schema, or says why it cannot be used as it is.

Invariant: a migration runs in one transaction under a lock of its own, so that two processes
opening an empty database at once give one schema. Alembic is imported only when it is needed.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from storage.errors import StorageError
from storage.location import WRITES
from storage.schema import VERSION_TABLE

HEAD = "0003"
"""The newest revision, known without reading the migrations (a test compares them)."""

_DIRECTORY = Path(__file__).with_name("migrations")
_ADVISORY_LOCK = 0x510_7E4E


def current_revision(connection: Connection) -> str | None:
    """The schema's revision; None when no slotune tables are there."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if found is None else str(found)


def upgrade(engine: Engine, location: str, revision: str = HEAD) -> None:
    """Runs the migrations that are missing up to `revision`. Raises StorageError if it is newer."""
    with engine.connect() as connection:
        found = current_revision(connection)
    if found == revision:
        return
    with engine.execution_options(**{WRITES: True}).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
        _check_known(current_revision(connection), location)
        _run(connection, revision)


def check_readable(engine: Engine, location: str) -> None:
    """Raises StorageError unless the schema is exactly the newest one; changes nothing."""
    with engine.connect() as connection:
        found = current_revision(connection)
    if found == HEAD:
        return
    _check_known(found, location)
    if found is None:
        raise StorageError(f"the database {location} holds no slotune tables")
    raise StorageError(
        f"the database {location} has the older schema {found}: any command that stores something "
        "upgrades it"
    )


def known_revisions() -> list[str]:
    """All revisions, oldest first."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_DIRECTORY).replace("%", "%%"))
    script = ScriptDirectory.from_config(config)
    return [revision.revision for revision in script.walk_revisions()][::-1]


def _check_known(found: str | None, location: str) -> None:
    if found is not None and found not in known_revisions():
        raise StorageError(
            f"the database {location} has the schema {found}, which is newer than this version of "
            "slotune knows: upgrade slotune"
        )


def _run(connection: Connection, revision: str) -> None:
    import logging

    from alembic import command
    from alembic.config import Config

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(_DIRECTORY).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
