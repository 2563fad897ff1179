"""Alembic environment and revisions of our tables; run by storage/migrate.py."""
