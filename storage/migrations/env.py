"""Alembic's entry: migrates over the connection that storage/migrate.py holds open.

The transaction is the caller's. Optuna's tables and its `alembic_version` are left alone.
"""

from typing import Any

from alembic import context

from storage.schema import VERSION_TABLE, Base


def ours(item: Any, name: str | None, kind: str, reflected: bool, compared: Any) -> bool:
    return kind != "table" or name in Base.metadata.tables


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    include_object=ours,
    render_as_batch=True,
    transactional_ddl=False,  # the caller's transaction spans all revisions
)
context.run_migrations()
