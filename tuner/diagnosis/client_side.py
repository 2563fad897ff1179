"""What clients saw, from the newest run that `tuner bench` kept of the same server (node 3e).

A server cannot know it; the run's cross-check holds both sides' mean TTFT over the same requests.
Invariant: a run of another server, or one too old to speak for now, gives a reading without a value
that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from storage.sources.base import Outcome, Reading
from tuner.endpoint import base_url
from tuner.errors import UserError
from tuner.records import RequestRecord
from tuner.server_side import ServerSide, crosscheck

if TYPE_CHECKING:
    from storage import Database

MAX_AGE_S = 900.0
"""A run that ended longer ago says nothing of the network now."""

NAMES = ("client_ttft", "client_server_ttft")
"""Mean TTFT as the run's clients saw it, and as the server counted it for the same requests."""


def client_readings(database: Database, url: str, at_s: float) -> dict[str, Reading]:
    """Readings of NAMES for the server at url at Unix time at_s. Raises StorageError."""
    from tuner.exchange.run import from_stored

    runs = [
        row
        for row in database.list_measurements(stage="bench")
        if row.summary is not None and row.server and _same(row.config.get("url", ""), url)
    ]
    if not runs:
        return _without("no run of this server with its counters is kept in the database")
    newest = runs[-1]
    ended_s = newest.started_at_s + (newest.duration_s or 0.0)
    if (age_s := at_s - ended_s) > MAX_AGE_S:
        return _without(f"the newest run of this server, {newest.id}, is {age_s / 60:.0f} min old")
    columns: dict[str, Any] = {**database.load_records(newest.id)}
    run = from_stored(newest, columns)
    return _of(run.records, ServerSide.from_dict(run.server), newest.id, ended_s)


def _of(
    records: Sequence[RequestRecord], server: ServerSide | None, run_id: int, ended_s: float
) -> dict[str, Reading]:
    made = {check.name: check for check in crosscheck(records, server)}
    ttft, requests = made.get("mean TTFT"), made.get("requests")
    if ttft is None:
        return _without(f"run {run_id} holds no TTFT of the server's")
    if requests is not None and not requests.agrees:
        why = requests.likely_cause or "the counts of requests differ"
        return _without(f"run {run_id} cannot be compared: {why}")
    reading = Reading(
        Outcome.VALUE, ttft.client, f"cross-check of run {run_id}", samples=ttft.n, at_s=ended_s
    )
    return {NAMES[0]: reading, NAMES[1]: replace(reading, value=ttft.server)}


def _same(mine: str, theirs: str) -> bool:
    try:
        return base_url(mine) == base_url(theirs)
    except UserError:
        return False


def _without(reason: str) -> dict[str, Reading]:
    return {name: Reading(Outcome.NO_DATA, query=name, reason=reason) for name in NAMES}
