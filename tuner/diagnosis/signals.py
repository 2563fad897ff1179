"""Signals: everything the tree may look at, read once, with the outcome of each reading.

Invariant: a signal is never absent. What could not be read is a Reading whose outcome says why, so
that the tree can tell no traffic, no data, stale and unreachable apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.knobs import KNOBS
from storage.sources.base import Outcome, Reading, SourceStatus


@dataclass(frozen=True, slots=True)
class Signals:
    """One look at one target.

    readings by signal name (the registry's), breakdowns by signal name then label value, config the
    server's settings by our knob names, of several replicas those that are alike;
    config_by_replica: each one's own. at_s is Unix seconds, window_s what rates cover.
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
    config_by_replica: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

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
        """A numeric setting of the server, of several where it is the same; None where it does not
        tell (or says "None")."""
        return _number(self.config.get(name))

    def number_at(self, name: str, replica: str) -> float | None:
        """As number, of one replica; one that does not tell is as the others where these agree."""
        own = self.config_by_replica.get(replica, {})
        return _number(own.get(name, self.config.get(name)))

    def numbers(self, name: str) -> list[float] | None:
        """As number_at, of every replica in turn; of the only one as number. None where it is not
        known of one."""
        found = [self.number_at(name, replica) for replica in self.config_by_replica or ("",)]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else None

    def differing(self) -> dict[str, str]:
        """Knobs, and the device, that are not the same everywhere: `64 at a, c; 8 at b`."""
        found = {}
        for name in (*KNOBS, "device"):
            at: dict[str, list[str]] = {}
            for replica, settings in self.config_by_replica.items():
                if name in settings:
                    at.setdefault(settings[name], []).append(replica)
            if len(at) > 1:
                found[name] = "; ".join(f"{value} at {', '.join(of)}" for value, of in at.items())
        return found


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
