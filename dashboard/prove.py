"""The command that would prove a lever: a sweep of that one knob around its present value, and the
server that it would be tried on.

Pure text for the user to copy; the page itself starts nothing. Ranges and types come from the one
table of knobs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.settings import Settings
from engine.knobs import KNOB_ALIASES, KNOBS, Knob
from storage.sources.targets import instances
from tuner.diagnosis import Diagnosis
from tuner.diagnosis.proof import whom
from tuner.diagnosis.render import URL_TO_GIVE

FACTORS = {"up": (1.0, 1.5, 2.0), "down": (1.0, 0.75, 0.5)}
STEPS = {"up": (0.0, 0.03, 0.06), "down": (0.0, -0.05, -0.1)}
MODEL = "MODEL"
"""Stands for the model that the watched server serves."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The server that advice would be put to the test on, and its settings. url: None where only a
    Prometheus tells of it."""

    url: str | None
    config: Mapping[str, str]

    @property
    def changeable(self) -> bool:
        """Whether its knobs can be changed while it runs (--enable-admin)."""
        return bool(self.url) and self.config.get("admin") == "True"


def subject_of(settings: Settings, diagnosis: Diagnosis) -> Subject:
    """The one that is watched; of several the first whose knobs can be changed, else the first."""
    if not settings.urls:
        return Subject(settings.url, diagnosis.config)
    named = zip(settings.urls, instances(settings.urls), strict=True)
    each = [Subject(url, {**diagnosis.config, **_own(diagnosis, name)}) for url, name in named]
    return next((one for one in each if one.changeable), each[0])


def _own(diagnosis: Diagnosis, instance: str) -> dict[str, str]:
    """Of the instance, or of the first of its engines; {} where it gives no metrics."""
    mine = (
        dict(own)
        for name, own in diagnosis.config_by_replica.items()
        if f"{name}/".startswith(f"{instance}/")
    )
    return next(mine, {})


def sweep_command(
    knob_name: str,
    direction: str,
    config: Mapping[str, str],
    *,
    url: str | None,
    slos: Sequence[str],
    engine: str = "slotune",
) -> str | None:
    """`tuner sweep …` for a numeric knob of the table; None for levers that no sweep can turn.

    What the engine (slotune, vllm, sglang) takes at its start only is swept on one that the tuner
    starts. Without a known present value the knob's default stands in for it.
    """
    knob = KNOBS.get(KNOB_ALIASES.get(knob_name, knob_name))
    if knob is None or knob.kind not in ("int", "float") or direction not in FACTORS:
        return None
    present = _present(knob, config)
    if present is None:
        return None
    values = _values(knob, direction, present)
    if len(values) < 2:
        return None
    words = ["tuner", "sweep", *_whom(knob, url, engine)]
    words += ["--knob", f"{knob.name}={','.join(values)}"]
    for slo in slos:
        words += ["--slo", slo]
    return " ".join(shlex.quote(word) if word != URL_TO_GIVE else word for word in words)


def _whom(knob: Knob, url: str | None, engine: str) -> list[str]:
    model = [] if engine == "slotune" else ["--model", MODEL]
    return [*whom(knob, engine, url or URL_TO_GIVE), *model]


def _present(knob: Knob, config: Mapping[str, str]) -> float | None:
    """None where the server does not tell and works its default out by itself."""
    try:
        return float(config[knob.name])
    except (KeyError, ValueError):
        return None if isinstance(knob.default_cpu, str) else float(knob.default_cpu)


def _values(knob: Knob, direction: str, present: float) -> list[str]:
    """Inside the knob's usual range, and the present value wherever it lies."""
    if knob.kind == "float":
        found = [round(present + step, 3) for step in STEPS[direction]]
    else:
        found = [float(round(present * factor)) for factor in FACTORS[direction]]
    low = min(present, knob.low) if knob.low is not None else float("-inf")
    high = max(present, knob.high) if knob.high is not None else float("inf")
    kept = dict.fromkeys(min(max(value, low), high) for value in found)
    return [f"{value:g}" if knob.kind == "float" else str(int(value)) for value in kept]
