"""What must be so for a command to go on with a stored study."""

from __future__ import annotations

import shlex
from typing import Any

from storage import Study
from tuner.cli.common import ProgressLine
from tuner.errors import UserError
from tuner.report.recorded import is_sweep, is_verification
from tuner.targets import Target

ALIKE = (("kind", "kind of target"), ("model", "model"))
"""What every server of one study shares, by the target's description."""


def check_made_by(study: Study, command: str) -> None:
    """UserError where another command than this one, sweep or optimize, made the study."""
    made = "sweep" if is_sweep(study) else "optimize"
    if is_verification(study):
        raise UserError(
            f"study {study.name!r} is a verification, which tuner verify makes anew each time; "
            "give another --study"
        )
    if made != command:
        raise UserError(
            f"study {study.name!r} is of tuner {made}: go on with tuner {made} --study "
            f"{shlex.quote(study.name)}, or give another --study"
        )


def check_alike(study: Study | None, target: Target, line: ProgressLine) -> None:
    """That the target, started, serves what the study was begun with; another URL is told.
    UserError where its kind or its model is another."""
    if study is None or study.target is None:
        return
    begun, now = study.target, target.describe()
    for key, what in ALIKE:
        if _known(begun, key) and _known(now, key) and begun[key] != now[key]:
            raise UserError(
                f"study {study.name!r} was begun with {what} {begun[key]!r}, and this is "
                f"{now[key]!r}; give another --study"
            )
    if _known(begun, "url") and not now.get("started_here") and begun["url"] != now["url"]:
        line.note(f"study {study.name} was begun at {begun['url']}, and goes on at {now['url']}")


def _known(about: dict[str, Any], key: str) -> bool:
    return bool(about.get(key))
