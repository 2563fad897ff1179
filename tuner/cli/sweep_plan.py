"""Which knobs a sweep turns when none is named: those that the diagnosis of the baseline names.

The baseline is measured under the sweep's own load while its metrics are read; the measurement is
stored and counts as the baseline's value of every knob.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.knobs import KNOBS
from tuner.diagnosis import Diagnosis
from tuner.diagnosis.model import Lever
from tuner.measure import Measurement
from tuner.search.axis import Axis
from tuner.search.space import parse_axis
from tuner.search.sweep import towards
from tuner.search.usual import usual_knobs
from tuner.slo import SloSet
from tuner.targets import Target
from tuner.targets.base import KnobRange, setting_text
from tuner.verify.watch import seen_while


@dataclass(frozen=True, slots=True)
class Advice:
    """axes: what to sweep, the diagnosis's own first; told: lines for a person."""

    axes: tuple[Axis, ...]
    told: tuple[str, ...]


def diagnose_baseline(
    target: Target, slos: SloSet, measure: Callable[[], Measurement | None]
) -> Diagnosis | None:
    """What binds the target while measure() loads it; None where it exports nothing to tell."""
    settings = {name: knob.value for name, knob in target.knobs().items()}
    _, seen = seen_while(target.endpoint.base_url, settings, slos, measure)
    return seen.diagnosis if seen is not None else None


def advise(diagnosis: Diagnosis | None, knobs: Mapping[str, KnobRange], points: int) -> Advice:
    """The levers of what fires that this target can turn; where there is none, the usual knobs."""
    if diagnosis is None:
        return Advice(_usual(knobs), ("  the server exports no metrics that say what binds it",))
    told = [f"  diagnosis of the baseline: {diagnosis.headline}"]
    axes: dict[str, Axis] = {}
    for node in diagnosis.causes:
        for lever in node.levers:
            axis = _axis(lever, knobs, points)
            if axis is not None and axis.name not in axes:
                axes[axis.name] = axis
                told.append(f"  {node.title}: {lever.title} – {lever.effect}; sweeping {axis}")
            elif axis is None:
                told.append(f"  {node.title}: {lever.title} – {_why_not(lever, knobs)}")
    if axes:
        return Advice(tuple(axes.values()), tuple(told))
    usual = _usual(knobs)
    if usual:
        names = ", ".join(axis.name for axis in usual)
        told.append(f"  it names no knob that can be turned here; sweeping the usual ones: {names}")
    return Advice(usual, tuple(told))


def _axis(lever: Lever, knobs: Mapping[str, KnobRange], points: int) -> Axis | None:
    if lever.knob not in knobs:
        return None
    return towards(lever.knob, knobs[lever.knob], lever.direction, points)


def _why_not(lever: Lever, knobs: Mapping[str, KnobRange]) -> str:
    if lever.knob in knobs:
        return f"it is at its bound ({setting_text(knobs[lever.knob].value)})"
    if lever.knob in KNOBS:
        return "set when a server starts: --target … --knob " + lever.knob + "=…"
    return "no knob of the server"


def _usual(knobs: Mapping[str, KnobRange]) -> tuple[Axis, ...]:
    """Each over its default range inside the target's bounds."""
    found = []
    for name in usual_knobs(knobs):
        low = max(KNOBS[name].low or 0.0, knobs[name].low)
        high = min(KNOBS[name].high or 0.0, knobs[name].high)
        if low < high:
            found.append(parse_axis(f"{name}={low:g}:{high:g}", knobs))
    return tuple(found)
