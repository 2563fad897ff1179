"""What the pages read from, opened once per process: the metric source and the database.

Pages open the database read-only, so that none can create, migrate or lock it; only the history of
what is scraped is written, a point a minute, to a place of its own. A fault is a sentence for the
page (`Unavailable`), never an exception that reaches the user.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import streamlit as st

from dashboard.budget_watch import BudgetWatch
from dashboard.evaluator import Evaluator
from dashboard.settings import Settings, current
from storage import Database, StorageError, open_database
from storage.location import parse
from storage.sources import open_source
from storage.sources.base import MetricSource, Reading
from tuner.diagnosis.client_side import pooled_client_readings
from tuner.diagnosis.server_info import info_by_instance


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Why there is nothing to show, and the command or step that changes it."""

    title: str
    hint: str


def metric_source() -> MetricSource | None:
    """The live source of this process; None when no target was given."""
    settings = current()
    if not settings.target:
        return None
    return _source(settings)


@st.cache_resource(show_spinner=False, on_release=lambda source: source.close())
def _source(settings: Settings) -> MetricSource:
    return open_source(
        url=settings.watched,
        prometheus=settings.prometheus,
        scrape_interval_s=settings.refresh_s,
        labels=dict(settings.labels) or None,
        database=settings.database if settings.keep_history else None,
    )


def evaluator() -> Evaluator | None:
    """The diagnosis of the watched target; None when no target was given."""
    settings = current()
    source = metric_source()
    return None if source is None else _evaluator(settings, source)


@st.cache_resource(show_spinner=False)
def _evaluator(settings: Settings, _source: MetricSource) -> Evaluator:
    urls = settings.watched
    return Evaluator(
        _source,
        target=settings.target,
        slos=settings.slos,
        settings=dict(settings.knobs),
        info_by_instance=partial(info_by_instance, urls),
        client=partial(_client_side, urls) if urls else dict,
    )


def budget_watch() -> BudgetWatch | None:
    """The error budgets of the watched target; None without a target or an SLO."""
    settings = current()
    source = metric_source()
    return _budget_watch(settings, source) if source is not None and settings.slos else None


@st.cache_resource(show_spinner=False)
def _budget_watch(settings: Settings, _source: MetricSource) -> BudgetWatch:
    return BudgetWatch(_source, settings.slos)


def _client_side(urls: Sequence[str]) -> dict[str, Reading]:
    """What clients saw in the newest run kept of each; {} where the database cannot be read."""
    opened = database()
    if isinstance(opened, Unavailable):
        return {}
    try:
        return pooled_client_readings(opened, urls, time.time())
    except StorageError:
        return {}


def database() -> Database | Unavailable:
    settings = current()
    try:
        return _database(settings.database, _identity(settings))
    except StorageError as fault:
        if _file(settings.database) is not None and _identity(settings) is None:
            return Unavailable(
                "No database yet",
                f"{settings.database} does not exist. `tuner bench`, `tuner sweep` and "
                "`tuner optimize` create it; this page finds it by itself.",
            )
        return Unavailable("The database cannot be read", str(fault))


@st.cache_resource(show_spinner=False, max_entries=4, on_release=lambda opened: opened.close())
def _database(location: str, identity: tuple[int, int] | None) -> Database:
    return open_database(location, read_only=True)


def _identity(settings: Settings) -> tuple[int, int] | None:
    """(device, inode) of a database file, so that a replaced file is opened anew."""
    path = _file(settings.database)
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _file(location: str) -> Path | None:
    """The file behind a path or a sqlite URL; None for a database server."""
    return parse(location).path
