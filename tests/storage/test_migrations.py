"""Models and migrations describe one schema, and every earlier revision reaches it."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from storage import StorageError, location, migrate, open_database
from storage.migrations.versions import __name__ as versions_package
from storage.schema import VERSION_TABLE, Base

REVISIONS = migrate.known_revisions()
TABLES = [table.name for table in reversed(Base.metadata.sorted_tables)]


def engine_of(url: str) -> Engine:
    return location.connect(location.parse(url), read_only=False)


def differences(engine: Engine) -> list[Any]:
    def ours(item: Any, name: str, kind: str, reflected: bool, other: Any) -> bool:
        return kind != "table" or name in Base.metadata.tables

    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "include_object": ours}
        )
        return list(compare_metadata(context, Base.metadata))


def test_head_is_the_newest_revision() -> None:
    assert REVISIONS[-1] == migrate.HEAD
    assert versions_package == "storage.migrations.versions"


def test_migrations_make_the_models(database_url: str) -> None:
    engine = engine_of(database_url)
    migrate.upgrade(engine, "here")
    assert differences(engine) == []
    engine.dispose()


def test_checks_are_the_models_checks(database_url: str) -> None:
    """Autogenerate does not compare checks: the names must at least be those of the models."""
    open_database(database_url).close()
    engine = engine_of(database_url)
    for table in Base.metadata.sorted_tables:
        wanted = {str(c.name) for c in table.constraints if str(c.name).startswith("ck_")}
        found = {str(c["name"]) for c in inspect(engine).get_check_constraints(table.name)}
        assert found == wanted
    engine.dispose()


@pytest.mark.parametrize("revision", REVISIONS)
def test_upgrade_from_each_revision(database_url: str, revision: str) -> None:
    engine = engine_of(database_url)
    migrate.upgrade(engine, "here", revision)
    engine.dispose()
    with open_database(database_url) as database:
        database.create_study("a")
        assert differences(database._engine) == []


def test_upgrade_leaves_optuna_alone(database_url: str) -> None:
    with open_database(database_url) as database:
        storage = database.optuna_storage()
        assert differences(database._engine) == []
        assert storage.get_current_version() == storage.get_head_version()
        with database._write() as session:
            for table in (*TABLES, VERSION_TABLE):
                session.execute(text(f"DROP TABLE {table}"))
    with open_database(database_url) as database:
        assert database.optuna_storage().get_current_version()
        assert differences(database._engine) == []


def test_a_failed_migration_leaves_nothing_behind(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = migrate._run

    def half(connection: Any, revision: str) -> None:
        run(connection, revision)
        raise StorageError("the power failed")

    monkeypatch.setattr(migrate, "_run", half)
    with pytest.raises(StorageError, match="power"):
        open_database(database_url)
    engine = engine_of(database_url)
    assert inspect(engine).get_table_names() == []
    engine.dispose()
