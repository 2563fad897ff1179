"""What clients saw, of a load that the tuner has sent to the same server (node 3e).

A server cannot know it; a load's cross-check holds both sides' mean TTFT over the same requests:
of a run just made, or of the newest one that a database keeps. Invariant: a run of another server,
or one too old to speak for now, gives a reading without a value that says so.
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
    from storage import Measurement as StoredMeasurement
    from tuner.measure import Measurement

MAX_AGE_S = 900.0
"""A run that ended longer ago says nothing of the network now."""

NAMES = ("client_ttft", "client_server_ttft")
"""Mean TTFT in seconds as the load's clients saw it, and as the server counted it for the same
requests; samples are those requests, window_s the load up to its last send, warm-up included."""


def readings_of(made: Measurement) -> dict[str, Reading]:
    """Readings of NAMES of the load that has just been sent."""
    began_s, took_s = made.began_unix_s, made.window_s[1]
    return _of(made.records, made.server, "the load just sent", began_s, took_s)


def client_readings(database: Database, url: str, at_s: float) -> dict[str, Reading]:
    """Readings of NAMES for the server at url at Unix time at_s, of the newest load that is kept.
    Raises StorageError."""
    from tuner.exchange.run import from_stored

    runs = _kept(database, url, at_s)
    if not runs:
        return _without("no run of this server with its counters is kept in the database")
    newest = max(runs, key=_ended_s)
    if (age_s := at_s - _ended_s(newest)) > MAX_AGE_S:
        return _without(f"the newest run of this server, {newest.id}, is {age_s / 60:.0f} min old")
    columns: dict[str, Any] = {**database.load_records(newest.id)}
    run = from_stored(newest, columns)
    server = ServerSide.from_dict(run.server)
    return _of(run.records, server, f"run {newest.id}", run.began_unix_s, run.window_s[1])


def pooled_client_readings(
    database: Database, urls: Sequence[str], at_s: float
) -> dict[str, Reading]:
    """As client_readings, over the replicas of one target: both sides' means over all requests of
    the newest load of each. A replica that no load was sent to is not in it, and is named."""
    each = {url: client_readings(database, url, at_s) for url in urls}
    told = {url: found for url, found in each.items() if all(r.ok for r in found.values())}
    if len(each) == 1 or not told:
        return each[urls[0]]
    silent = [url for url in urls if url not in told]
    of = f" (none of {', '.join(silent)})" if silent else ""
    return {name: _pooled([found[name] for found in told.values()], of) for name in NAMES}


def _pooled(each: Sequence[Reading], of: str) -> Reading:
    """Means weighed by the requests they are of; as old as the oldest."""
    samples = sum(one.samples for one in each)
    value = sum((one.value or 0.0) * one.samples for one in each) / samples
    return Reading(
        Outcome.VALUE, value, f"{', '.join(one.query for one in each)}{of}",
        max(one.window_s for one in each), samples, min(one.at_s for one in each),
    )  # fmt: skip


def _kept(database: Database, url: str, at_s: float) -> list[StoredMeasurement]:
    """The runs of that server: of `tuner bench`, and of studies that measured it until lately."""
    rows = [
        row
        for row in database.list_measurements(stage="bench")
        if _same(row.config.get("url"), url)
    ]  # fmt: skip
    for study in database.list_studies():
        if at_s - study.updated_at_s <= MAX_AGE_S and _same((study.target or {}).get("url"), url):
            rows += database.list_measurements(study_id=study.id)
    return [row for row in rows if row.summary is not None and row.server]


def _ended_s(row: StoredMeasurement) -> float:
    return row.started_at_s + (row.duration_s or 0.0)


def _of(
    records: Sequence[RequestRecord],
    server: ServerSide | None,
    what: str,
    began_s: float,
    took_s: float,
) -> dict[str, Reading]:
    made = {check.name: check for check in crosscheck(records, server)}
    ttft, requests = made.get("mean TTFT"), made.get("requests")
    if ttft is None:
        return _without(f"{what} holds no TTFT of the server's")
    if requests is not None and not requests.agrees:
        why = requests.likely_cause or "the counts of requests differ"
        return _without(f"{what} cannot be compared: {why}")
    seen = Reading(
        Outcome.VALUE, ttft.client, f"cross-check of {what}", took_s, ttft.n, began_s + took_s
    )
    return {NAMES[0]: seen, NAMES[1]: replace(seen, value=ttft.server)}


def _same(mine: str | None, theirs: str) -> bool:
    try:
        return base_url(mine or "") == base_url(theirs)
    except UserError:
        return False


def _without(reason: str) -> dict[str, Reading]:
    return {name: Reading(Outcome.NO_DATA, query=name, reason=reason) for name in NAMES}
