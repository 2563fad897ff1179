"""The diagnosis of a study's baseline: made while it is measured, stored with its measurement.

It stands between the search and what tells a person of it (Events), and around the measuring
function: the one knows which stage is measured, the other where the server is. Invariant: only one
measurement of the baseline is watched, and none of what it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from storage import Database
from storage.rows import Stage
from tuner.diagnosis import Diagnosis
from tuner.diagnosis.stored import diagnosis_of, findings_of
from tuner.endpoint import Endpoint
from tuner.measure import Measurement
from tuner.search.decide import Config
from tuner.search.pace import Pace
from tuner.search.session import Events
from tuner.search.trial import Measure, Outcome
from tuner.slo import SloSet
from tuner.verify.watch import Seen, seen_while
from tuner.workload import Workload


class BaselineDiagnosis:
    """Events of the search, passed on; `measure` is a Measure."""

    def __init__(self, database: Database, events: Events, inner: Measure, slos: SloSet) -> None:
        self._database, self._events, self._inner, self._slos = database, events, inner, slos
        self._config: Config | None = None
        self._seen: Seen | None = None

    def begin(self, stage: Stage, config: Config, pace: Pace) -> None:
        self._config = config if stage == "baseline" and self._seen is None else None
        self._events.begin(stage, config, pace)

    def done(self, outcome: Outcome) -> None:
        self._events.done(outcome)
        watched, self._config = self._config, None
        if watched is None or self._seen is None:
            return
        if not outcome.ok:
            self._seen = None
            return
        store_diagnosis(self._database, outcome, self._seen.diagnosis)
        self._events.note(f"    diagnosis of the baseline: {self._seen.diagnosis.headline}")

    def note(self, text: str) -> None:
        self._events.note(text)

    def measure(self, endpoint: Endpoint, workload: Workload, **named: Any) -> Measurement:
        if self._config is None:
            return self._inner(endpoint, workload, **named)
        made, self._seen = seen_while(
            endpoint.base_url, self._config, self._slos,
            lambda: self._inner(endpoint, workload, **named),
        )  # fmt: skip
        return made


def store_diagnosis(database: Database, outcome: Outcome, diagnosis: Diagnosis) -> None:
    """All nodes with the measurement, those that do not fire too: no finding is another thing than
    no diagnosis. Of a measurement without a result nothing is told."""
    if not outcome.ok:
        return
    database.add_findings(
        findings_of(diagnosis.nodes), target=diagnosis.target,
        measurement_id=outcome.measurement_id, at_s=diagnosis.at_s,
    )  # fmt: skip


def stored_levers(database: Database, outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """(knob, direction) of what the baseline's causes propose, whichever worker measured it."""
    for outcome in outcomes:
        if outcome.stage != "baseline" or outcome.measurement_id is None:
            continue
        found = diagnosis_of(database.list_findings(measurement_id=outcome.measurement_id))
        if found is not None:
            return [(one.knob, one.direction) for node in found.causes for one in node.levers]
    return []
