"""What a verification, a sweep or a search that was cut off (kill -9) has left behind: a server at
settings that are not its own, and a study that seems to run."""

from __future__ import annotations

import shlex
from typing import Any

from storage import Database, Study
from tuner.cli.common import ProgressLine
from tuner.cli.resuming import is_server_of
from tuner.report.recorded import is_verification
from tuner.search.workers import anyone_at
from tuner.targets import Target
from tuner.targets.base import Config, config_text


def put_back(
    database: Database, target: Target, line: ProgressLine, resumed: Study | None = None
) -> None:
    """Give the target, started, the settings that the last study of it found, unless that is the
    one to go on with (resumed), which knows them; what was cut off is stopped. Nobody else turns
    its knobs meanwhile: the target holds its lease. Raises TargetError, UserError, StorageError."""
    about = target.describe()
    others = [s for s in database.list_studies() if resumed is None or s.id != resumed.id]
    cut_off = [study for study in others if _is_left(database, study, about)]
    if not cut_off:
        return
    ours = bool(about.get("started_here"))
    changed = {} if ours else _changed(cut_off[-1], target)
    told = "its server has ended with it" if ours else "the server has its own settings"
    if changed:
        target.apply(changed)
        told = f"the server's own {config_text(changed)} is put back"
    for study in cut_off:
        database.update_study(study.id, state="stopped")
    names = ", ".join(study.name for study in cut_off)
    line.note(f"{names} was cut off, and is now stopped: {told}{_way_on(cut_off[-1], resumed)}")


def _is_left(database: Database, study: Study, about: dict[str, Any]) -> bool:
    """Whether it runs no more, on the server that is described, or where both start theirs."""
    begun = study.target or {}
    key = "started_here" if about.get("started_here") else "url"
    if study.state != "running" or not begun or begun.get(key) != about.get(key):
        return False
    return not anyone_at(study.name, database.optuna_storage())


def _changed(study: Study, target: Target) -> Config:
    """The server's own settings that are others now; none where it was started again since."""
    if not is_server_of(study, target):
        return {}
    present = {name: knob.value for name, knob in target.knobs().items()}
    original: Config = (study.target or {}).get("original_config") or {}
    return {name: value for name, value in original.items() if present.get(name) != value}


def _way_on(study: Study, resumed: Study | None) -> str:
    if is_verification(study):
        return ", and this one begins anew" if resumed is None else ""
    return f"; --study {shlex.quote(study.name)} goes on with it"
