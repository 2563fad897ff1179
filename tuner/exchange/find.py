"""What a user calls a run: an id, `study:best`, `study:baseline`, a study, or a file.

Invariant: the database is opened for reading only, and only when something of it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import readable
from tuner.errors import UserError
from tuner.exchange.belonging import study_named
from tuner.exchange.read import read_file
from tuner.exchange.run import Run, from_stored
from tuner.printable import shortened
from tuner.units import count_text

if TYPE_CHECKING:
    from storage import Database, Measurement, Study

_IDS = re.compile(r"\d+(,\d+)*$")
_ROLE = re.compile(r"(.+):(best|baseline)$")
_PART = re.compile(r"(.+)#(\d+)$")
MAX_ID = 2**63 - 1
"""Of any database's rows."""

HOW = "a run's id (see `tuner runs`), STUDY:best, STUDY:baseline, or a file"


class Runs:
    """Finds runs by name; use as a context manager."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._opened: Database | None = None

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *fault: object) -> None:
        if self._opened is not None:
            self._opened.close()

    def side(self, text: str) -> list[Run]:
        """All runs of one configuration: one or several ids, a study's role, a file's runs."""
        if _IDS.match(text):
            return [self.stored(_whole(number)) for number in text.split(",")]
        file = _file_and_number(text)
        if file is not None:
            return _from_file(*file)
        role = _ROLE.match(text)
        if role is not None:
            return self._role(role[1], role[2])
        raise UserError(f"{shortened(text)!r} is no run: give {HOW}{self._hint()}")

    def one(self, text: str) -> Run:
        """Exactly one run."""
        found = self.side(text)
        if len(found) > 1:
            names = ", ".join(run.name.removeprefix("run ") for run in found)
            raise UserError(f"{text} is {len(found)} runs; name one of them: {names}")
        return found[0]

    def whole_study(self, name: str) -> list[Run] | None:
        """Every measurement of a study that has records, in order; None where there is no such."""
        if _IDS.match(name) or file_of(name) is not None or not _exists(self._location):
            return None
        study = self._database.get_study(name)
        if study is None:
            return None
        rows = self._database.list_measurements(study_id=study.id)
        runs = [self._run(row, study) for row in rows if row.summary is not None]
        if not runs:
            raise UserError(f"study {name} has no measurement with a result")
        return runs

    def stored(self, run_id: int) -> Run:
        row = self._database.get_measurement(run_id)
        if row is None:
            ids = [other.id for other in self._database.list_measurements()]
            known = f"it has {min(ids)} to {max(ids)}" if ids else "it is empty"
            raise UserError(f"there is no run {run_id} in {self._database.location}: {known}")
        study = self._database.get_study(row.study_id) if row.study_id is not None else None
        return self._run(row, study)

    @property
    def _database(self) -> Database:
        if self._opened is None:
            from storage import open_database

            self._opened = open_database(self._location, read_only=True)
        return self._opened

    def _run(self, row: Measurement, study: Study | None) -> Run:
        if row.summary is None:
            why = (row.failure_reason or row.state).splitlines()[0]
            raise UserError(f"run {row.id} ended without a result: {why}")
        columns: dict[str, Any] = {**self._database.load_records(row.id)}
        with readable(f"run {row.id}"):
            return from_stored(row, columns, study)

    def _role(self, name: str, role: str) -> list[Run]:
        study = study_named(self._database, name)
        rows = self._database.list_measurements(study_id=study.id)
        config = _config(study, rows, role)
        chosen = [row for row in rows if row.config == config and row.summary is not None]
        confirmed = [row for row in chosen if row.stage == "confirm" and row.state == "ok"]
        usable = confirmed or [row for row in chosen if row.state == "ok"] or chosen
        if not usable:
            raise UserError(f"study {name}: its {role} has no measurement with a result")
        return [self._run(row, study) for row in usable]

    def _hint(self) -> str:
        """The studies there are, for who has mistyped one."""
        if not _exists(self._location):
            return ""
        names = [study.name for study in self._database.list_studies()]
        return f"; studies: {', '.join(names[-5:])}" if names else ""


def aligned(a: Sequence[Run], b: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Both sides in the same order of seeds, those that both have first: they are pairs."""
    shared = [run.seed for run in a if run.seed in {other.seed for other in b}]

    def rank(run: Run) -> tuple[int, float]:
        at = shared.index(run.seed) if run.seed in shared else len(shared)
        return at, run.began_unix_s

    return sorted(a, key=rank), sorted(b, key=rank)


def _config(study: Study, rows: Sequence[Measurement], role: str) -> dict[str, Any]:
    result = study.result or {}
    config = (result.get(role) or {}).get("config")
    if config:
        return dict(config)
    if role == "baseline":
        first = next((row for row in rows if row.stage == "baseline"), None)
        if first is not None:
            return dict(first.config)
        raise UserError(f"study {study.name} has no baseline; name a run's id")
    if not result:
        raise UserError(f"study {study.name} has no answer yet ({study.state}); name a run's id")
    if result.get("answer") == "undecided":
        raise UserError(f"study {study.name} is undecided and names no best; name a run's id")
    raise UserError(f"study {study.name} found nothing better than its baseline: it has no best")


def file_of(text: str) -> Path | None:
    """The file that a run's name stands for; None for a name of something else."""
    file = _file_and_number(text)
    return None if file is None else file[0]


def _file_and_number(text: str) -> tuple[Path, str] | None:
    """(the file, which of its runs; "" for all)."""
    if _IDS.match(text):
        return None
    if text and _on_disk(text):
        return Path(text), ""
    part = _PART.match(text)
    return (Path(part[1]), part[2]) if part is not None and _on_disk(part[1]) else None


def _from_file(path: Path, number: str) -> list[Run]:
    runs = read_file(path)
    if not number:
        return runs
    if not 1 <= _whole(number) <= len(runs):
        raise UserError(
            f"{path} holds {count_text(len(runs), 'run')}: #{shortened(number)} is not among them"
        )
    return [runs[int(number) - 1]]


def _whole(digits: str) -> int:
    """The number; one beyond every id for more digits than one has."""
    return int(digits) if len(digits) < len(str(MAX_ID)) else MAX_ID


def _exists(location: str) -> bool:
    return "://" in location or _on_disk(location)


def _on_disk(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # longer than any file's name is
        return False
