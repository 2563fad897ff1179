"""What of the database belongs to a study beside its measurements: findings and verifications.

A verification belongs to the study that it is, and to one on the same server whose baseline's
diagnosis proposes what it has tried.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from storage.rows import Finding, Measurement, Study, Verification
from tuner.diagnosis.stored import diagnosis_of
from tuner.errors import UserError

if TYPE_CHECKING:
    from storage import Database

MOST_NAMES = 5


def findings_in(database: Database, rows: Sequence[Measurement]) -> tuple[Finding, ...]:
    """Of the measurements, in their order; those of one in the tree's order."""
    return tuple(
        finding for row in rows for finding in database.list_findings(measurement_id=row.id)
    )


def of_first(findings: Sequence[Finding]) -> list[Finding]:
    """Those of the measurement that was diagnosed first."""
    return [one for one in findings if one.measurement_id == findings[0].measurement_id]


def verified_by_study(database: Database) -> dict[int, Verification]:
    """What each verification that came to its end answered, by its study's id."""
    rows = database.list_verifications()
    return {row.study_id: row for row in rows if row.study_id is not None}


def verifications_of(
    database: Database, study: Study, findings: Sequence[Finding]
) -> tuple[Verification, ...]:
    """Oldest first."""
    diagnosis = diagnosis_of(of_first(findings))
    causes = diagnosis.causes if diagnosis is not None else ()
    levers = {(lever.knob, lever.direction) for node in causes for lever in node.levers}
    found = []
    for row in database.list_verifications():
        if row.study_id == study.id:
            found.append(row)
        elif (row.knob, row.direction) in levers and row.study_id is not None:
            other = database.get_study(row.study_id)
            if other is not None and same_server(study.target, other.target):
                found.append(row)
    return tuple(found)


def same_server(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> bool:
    """Of the same kind with the same model, at the same address or each started for its study."""
    if not a or not b:
        return False
    place = [("here",) if one.get("started_here") else ("at", one.get("url")) for one in (a, b)]
    alike = all(a.get(name) == b.get(name) for name in ("kind", "model"))
    return alike and place[0] == place[1]


def study_named(database: Database, name: str) -> Study:
    """Raises UserError, with the names there are, for one that is none."""
    study = database.get_study(name)
    if study is None:
        raise UserError(_unknown(database, name))
    return study


def _unknown(database: Database, name: str) -> str:
    """The sentence: with those whose names begin alike or nearly so, else the newest."""
    known = [study.name for study in database.list_studies()]
    near = [one for one in known if one.startswith(name)]
    near = near or difflib.get_close_matches(name, known, n=MOST_NAMES)
    told = f"no study named {name!r} in {database.location}"
    if not known:
        return f"{told}: it holds no study"
    shown = near[-MOST_NAMES:] or known[-MOST_NAMES:]
    others = len(near or known) - len(shown)
    more = f" and {others} more (`tuner studies` lists them)" if others else ""
    listed = f"{', '.join(shown)}{more}"
    return f"{told}; did you mean {listed}?" if near else f"{told}; it has: {listed}"
