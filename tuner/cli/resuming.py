"""What must be so for a command to go on with a stored study."""

from __future__ import annotations

import shlex
from typing import Any

from storage import Study
from tuner.cli.common import ProgressLine
from tuner.errors import UserError
from tuner.report.recorded import is_sweep, is_verification
from tuner.targets import Target
from tuner.targets.base import Setting

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
            f"study {study.name!r} was made by tuner {made}: go on with tuner {made} --study "
            f"{shlex.quote(study.name)}, or give another --study"
        )


def original_config(study: Study | None) -> dict[str, Setting] | None:
    """The server's own settings as the first sitting of the study found them; None before it."""
    target = study.target if study is not None else None
    return dict(target["original_config"]) if target else None


def is_server_of(study: Study | None, target: Target) -> bool:
    """Whether the study, if it is begun, found the target's very server, which has not been started
    again since."""
    begun = (study.target if study is not None else None) or {}
    now = target.describe()
    return not begun or all(begun.get(key) == now.get(key) for key in ("url", "instance_id"))


def config_to_leave(study: Study | None, target: Target) -> dict[str, Setting]:
    """What a server that stays up is left at: as the study found it; another one, or one that was
    started again since, as it is now."""
    original = original_config(study)
    if original is not None and is_server_of(study, target):
        return original
    return {name: knob.value for name, knob in target.knobs().items()}


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
