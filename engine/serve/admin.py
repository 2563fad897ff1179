"""The live knobs and the admin endpoint.

Owns the bounds fixed at start-up and the current values. Invariant: a change is applied whole,
between two steps, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engine.errors import RequestError, shown
from engine.knobs import KNOBS, LIVE_KNOBS


class Reconfigurable(Protocol):
    """The part of the scheduler that live changes reach."""

    def reconfigure(
        self,
        *,
        max_num_seqs: int | None = None,
        chunk_size: int | None = None,
        kv_blocks_cap: int | None = None,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a live value may be, both ends included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class KnobValues:
    """The values in force."""

    max_num_seqs: int
    chunk_size: int
    gpu_memory_utilization: float


class LiveKnobs:
    """Reads and changes the knobs of a running scheduler."""

    def __init__(
        self,
        scheduler: Reconfigurable,
        values: KnobValues,
        bounds: Mapping[str, Bounds],
        kv_blocks_at: Callable[[float], int],
    ) -> None:
        self._scheduler = scheduler
        self._bounds = dict(bounds)
        self._kv_blocks_at = kv_blocks_at
        self.on_change: Callable[[KnobValues, int], None] = lambda values, cap: None
        self.values = values
        self.kv_blocks_cap = kv_blocks_at(values.gpu_memory_utilization)

    def describe(self) -> dict[str, dict[str, Any]]:
        """name → value, low, high, live."""
        return {
            name: {
                "value": getattr(self.values, name),
                "low": self._bounds[name].low,
                "high": self._bounds[name].high,
                "live": True,
            }
            for name in LIVE_KNOBS
        }

    def checked(self, change: Mapping[str, Any]) -> KnobValues:
        """The values after a change; RequestError names the knob that is out of range."""
        if not change:
            raise RequestError(f"name at least one knob of {', '.join(LIVE_KNOBS)}")
        for name, value in change.items():
            self._check_one(name, value)
        return replace(self.values, **change)

    def apply(self, values: KnobValues) -> None:
        """Put checked values in force, or raise RequestError where the scheduler refuses them
        together; call between two steps."""
        cap = self._kv_blocks_at(values.gpu_memory_utilization)
        self._scheduler.reconfigure(
            max_num_seqs=values.max_num_seqs, chunk_size=values.chunk_size, kv_blocks_cap=cap
        )
        self.values, self.kv_blocks_cap = values, cap
        self.on_change(values, cap)

    def _check_one(self, name: str, value: Any) -> None:
        bounds = self._bounds.get(name)
        if bounds is None:
            raise RequestError(
                f"unknown knob {shown(name)}; live knobs are {', '.join(LIVE_KNOBS)}",
                param=name,
                code="unknown_parameter",
            )
        whole = KNOBS[name].kind == "int"
        is_number = type(value) is int or (not whole and type(value) is float)
        if not is_number:
            kind = "an integer" if whole else "a number"
            raise RequestError(
                f"{name} must be {kind}, got {shown(value)}", param=name, code="invalid_type"
            )
        if not bounds.low <= value <= bounds.high:
            raise RequestError(
                f"{name} must be between {bounds.low:g} and {bounds.high:g} (the bounds this "
                f"engine was started with), got {value}",
                param=name,
            )
