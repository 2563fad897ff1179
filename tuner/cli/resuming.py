"""What must be so for a command to go on with a stored study."""

from __future__ import annotations

import shlex

from storage import Study
from tuner.errors import UserError
from tuner.report.recorded import is_sweep


def check_made_by(study: Study, command: str) -> None:
    """UserError where another command than this one, sweep or optimize, made the study."""
    made = "sweep" if is_sweep(study) else "optimize"
    if "pairs" in (study.budget or {}):
        raise UserError(
            f"study {study.name!r} is a verification, which tuner verify makes anew each time; "
            "give another --study"
        )
    if made != command:
        raise UserError(
            f"study {study.name!r} is of tuner {made}: go on with tuner {made} --study "
            f"{shlex.quote(study.name)}, or give another --study"
        )
