"""Signals: everything the tree may look at, read once, with the outcome of each reading.

Invariant: a signal is never absent. What could not be read is a Reading whose outcome says why, so
that the tree can tell no traffic, no data, stale and unreachable apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storage.sources.base import Outcome, Reading, SourceStatus


@dataclass(frozen=True, slots=True)
class Signals:
    """One look at one target.

    readings by signal name (the registry's), breakdowns by signal name then label value, config the
    server's settings by our knob names. at_s is Unix seconds, window_s what rates cover.
    """

    target: str
    dialect: str
    at_s: float
    window_s: float
    status: SourceStatus
    readings: Mapping[str, Reading] = field(default_factory=dict)
    breakdowns: Mapping[str, Mapping[str, Reading]] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Reading:
        missing = Reading(Outcome.NO_DATA, query=name, reason=f"{name} was not collected")
        return self.readings.get(name, missing)

    def value(self, name: str) -> float | None:
        """The signal's value, or None for any other outcome."""
        return self[name].value if self[name].ok else None

    def of(self, name: str) -> dict[str, float]:
        """Value per label value of a breakdown; label values without a value are left out."""
        parts = self.breakdowns.get(name, {})
        return {k: r.value for k, r in parts.items() if r.ok and r.value is not None}

    def number(self, name: str) -> float | None:
        """A numeric setting of the server, None where it does not tell (or says "None")."""
        try:
            return float(self.config[name])
        except (KeyError, ValueError):
            return None
