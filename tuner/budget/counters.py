"""Which counters of an engine tell how its requests ended; names are those of the signal registry.

A request that was refused, failed or aborted enters no latency histogram, or enters it as a fast
one: it is counted by these and always bad. Engines differ in what they count at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.budget.buckets import Exports
from tuner.diagnosis.registry import BREAKDOWNS, SPECS, BreakdownSpec, Dialect, SignalSpec

FAILED_REASONS = ("abort", "error")
"""Of `finished_reason`."""

ENGINE_NAMES: dict[str, str] = {"slotune": "slotune's engine", "vllm": "vLLM", "sglang": "SGLang"}

_SIGNALS: dict[str, SignalSpec | BreakdownSpec] = {
    **{spec.name: spec for spec in SPECS},
    **{split.name: split for split in BREAKDOWNS},
}


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter's events: all, or those whose label `by` has one of `values`.

    sparse: exported only once such an event has happened, or by newer versions; absent, it is 0.
    """

    name: str
    by: str = ""
    values: tuple[str, ...] = ()
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class Counters:
    """Of one engine. within: ended badly and among `finished`; beside: ended badly and counted
    nowhere else. running: a gauge; generated: tokens, counted as they come."""

    dialect: Dialect
    finished: Counter
    within: tuple[Counter, ...]
    beside: tuple[Counter, ...]
    running: str
    generated: Counter

    @property
    def engine(self) -> str:
        return ENGINE_NAMES[self.dialect]

    @property
    def ended_badly(self) -> tuple[Counter, ...]:
        return (*self.within, *self.beside)

    @property
    def bad_are(self) -> str:
        """What ended badly, for a person."""
        return "aborted, failed or refused requests" if self.within else "aborted requests"

    @property
    def unseen(self) -> str:
        """What the engine counts nowhere, for a person; "" where it counts all."""
        if self.within:
            return ""
        return f"{self.engine} does not export how many requests failed or were refused"


def counters_of(dialect: Dialect, exported: Exports | None = None) -> Counters:
    """By the names exported now, or without them by the newest names."""

    def named(signal: str) -> str:
        names = _SIGNALS[signal].names(dialect)
        if not names:
            return ""
        return exported.resolve(names) if exported is not None else names[0]

    by_reason = named("finished_by")
    within = (Counter(by_reason, "finished_reason", FAILED_REASONS, sparse=True),)
    beside = [Counter(name, sparse=True) for s in ("rejections", "aborted") if (name := named(s))]
    return Counters(
        dialect, Counter(named("finished")), within if by_reason else (), tuple(beside),
        named("running"), _counter("generated", named("generated")),
    )  # fmt: skip


def _counter(signal: str, name: str) -> Counter:
    """Of a signal's series that count."""
    spec = _SIGNALS[signal]
    only = spec.only.get(name, {}) if isinstance(spec, SignalSpec) else {}
    return next((Counter(name, by, (value,)) for by, value in only.items()), Counter(name))
