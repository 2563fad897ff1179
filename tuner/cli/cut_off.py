"""What a verification that was cut off (kill -9) has left behind: a server at settings that are not
its own, and a study that seems to run."""

from __future__ import annotations

from typing import Any

from storage import Database, Study
from tuner.cli.common import ProgressLine
from tuner.targets import Target
from tuner.targets.base import Config, config_text


def put_back(database: Database, target: Target, line: ProgressLine) -> None:
    """Give the target, started, the settings that the last verification of it found. Nobody else
    turns its knobs meanwhile: the target holds its lease. Raises TargetError, UserError."""
    about = target.describe()
    if about.get("started_here"):
        return
    cut_off = [s for s in database.list_studies() if _is_left(s, str(about.get("url")))]
    if not cut_off:
        return
    changed = _changed(cut_off[-1].target or {}, target)
    told = "the server has its own settings"
    if changed:
        target.apply(changed)
        told = f"the server's own {config_text(changed)} is put back"
    for study in cut_off:
        database.update_study(study.id, state="stopped")
    names = ", ".join(study.name for study in cut_off)
    line.note(f"{names} was cut off, and is now stopped: {told}, and this one begins anew")


def _is_left(study: Study, url: str) -> bool:
    verifies = "pairs" in (study.budget or {})
    return study.state == "running" and verifies and (study.target or {}).get("url") == url


def _changed(found: dict[str, Any], target: Target) -> Config:
    """The server's own settings that are others now; none where it was started again since."""
    if found.get("instance_id") != target.describe().get("instance_id"):
        return {}
    present = {name: knob.value for name, knob in target.knobs().items()}
    original: Config = found.get("original_config") or {}
    return {name: value for name, value in original.items() if present.get(name) != value}
