"""What every node is built with: the case at hand and one way to turn readings into a result.

Invariant: a node whose required reading has no value can never be ok: no traffic makes it
not_applicable, everything else cant_tell with the missing metric and how to get it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from storage.sources.base import Outcome, Reading
from tuner.diagnosis import levers
from tuner.diagnosis.model import Lever, NodeResult, State
from tuner.diagnosis.registry import how_to_get, min_samples, observed
from tuner.diagnosis.signals import Signals
from tuner.diagnosis.thresholds import Thresholds
from tuner.slo.grammar import Clause

LOOK_AT_ONE = "look at one replica at a time, by its own --url or --label instance=NAME"
LOOK_FOR_IT = "check that the target exports it and that the source scrapes it"
_SERVED = ("running", "waiting", "finished", "generated", "prompted", "ttft")
SAMPLES = "samples"
"""Name of the evidence that says how few samples there were."""


@dataclass(frozen=True, slots=True)
class Case:
    """One evaluation's input. best_hit_rate: before the prefix cache began to thrash, where that
    was seen and goes on."""

    s: Signals
    t: Thresholds
    clauses: tuple[Clause, ...] = ()
    best_hit_rate: float | None = None

    def clauses_for(self, *metrics: str) -> tuple[Clause, ...]:
        return tuple(clause for clause in self.clauses if clause.metric in metrics)

    @property
    def age_s(self) -> float | None:
        return self.s.status.age_s

    @property
    def traffic(self) -> str:
        """ "traffic", "no_traffic" or "unknown"."""
        gauges = [self.s.value(n) for n in ("running", "waiting")]
        counts = [self.s.value(n) for n in ("finished", "generated", "preemptions", "rejections")]
        if any(value for value in (*gauges, *counts)):
            return "traffic"
        known = self.unserved or any(value is not None for value in gauges)
        return "no_traffic" if known and self.s.status.up else "unknown"

    @property
    def unserved(self) -> bool:
        """Only settings are exported: vLLM's V0 engine and SGLang add the rest with their first
        request."""
        absent = all(self.s[name].outcome is Outcome.NO_DATA for name in _SERVED)
        return absent and bool(self.s.config) and self.s.status.up

    @property
    def replicas(self) -> int:
        """How many engines the figures are of; 1 where they are not told apart."""
        return max(1, len(self.s.of("running_by_replica")), len(self.s.config_by_replica))

    def waiting(self) -> float:
        """Requests waiting: the greater of now and the window's mean."""
        return max(self.s.value("waiting") or 0.0, self.s.value("waiting_mean") or 0.0)

    def running(self) -> float:
        return max(self.s.value("running") or 0.0, self.s.value("running_mean") or 0.0)

    def running_each(self) -> float:
        """Requests that run on one engine, on average: a step holds no others."""
        return self.running() / self.replicas

    def cap(self) -> float | None:
        """How many may run: max_num_seqs of every replica; None where it is not known."""
        each = self.s.numbers("max_num_seqs")
        return None if each is None else sum(each) * self.replicas / len(each)

    def of_cap(self, running: float, cap: float) -> str:
        """`4 of 8 run`. The window may hold the time before the cap was turned down."""
        if running > cap:
            return f"{running:.3g} ran in the window, the cap is now {cap:.0f}"
        return f"{running:.0f} of {cap:.0f} run"

    def kv_usage(self) -> float:
        return max(self.s.value("kv_usage") or 0.0, self.s.value("kv_usage_mean") or 0.0)

    def hit_rate_before(self) -> float | None:
        """Before the window, and while the cache thrashes before that began; None if not seen."""
        seen = (self.s.value("hit_rate_before"), self.best_hit_rate)
        return max((rate for rate in seen if rate is not None), default=None)

    def pool_tokens(self) -> float | None:
        """Tokens that one engine's KV pool holds, the smallest of several; None where it does not
        tell its size."""
        pools = self._pools()
        return None if pools is None else min(pools)

    def pools_tokens(self) -> float | None:
        """Tokens that the pools of all engines hold."""
        pools = self._pools()
        return None if pools is None else sum(pools) * self.replicas / len(pools)

    def _pools(self) -> list[float] | None:
        blocks, sizes = self.s.numbers("num_kv_blocks"), self.s.numbers("block_size")
        if blocks is None or sizes is None:
            return None
        return [count * size for count, size in zip(blocks, sizes, strict=True)]


@dataclass(frozen=True, slots=True)
class Check:
    """A result before hysteresis. exact: measured, not inferred from averages; guess: something
    else looks the same, so that it is possible at most; by_past: held against better times, which
    are then to be remembered."""

    node: NodeResult
    exact: bool = True
    guess: bool = False
    by_past: bool = False

    @property
    def key(self) -> str:
        return self.node.key

    @property
    def firing(self) -> bool:
        return self.node.firing


def level(value: float, warning: float, critical: float | None = None) -> State:
    """warning and critical are inclusive: a value at its threshold has reached it."""
    if critical is not None and value >= critical:
        return State.CRITICAL
    return State.WARNING if value >= warning else State.OK


def too_few(few: str) -> tuple[tuple[str, str], ...]:
    """Evidence of a node that fires on fewer samples than a critical finding takes."""
    return ((SAMPLES, f"{few}: possible, not more"),) if few else ()


@dataclass(frozen=True, slots=True)
class Frame:
    """A node's fixed part: who it is, what it must read, what to do when it fires."""

    key: str
    title: str
    parent: str = ""
    uses: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    unit: str = ""
    levers: tuple[Lever, ...] = ()
    will_not_help: tuple[str, ...] = ()
    exact: bool = True

    def readings(self, case: Case) -> list[Reading]:
        """Readings behind the node, breakdowns included; those without a question are left out."""
        found: list[Reading] = []
        for name in (*self.uses, *self.also):
            parts = case.s.breakdowns.get(name)
            found += parts.values() if parts else [case.s[name]]
        return found

    def seen_over(self, case: Case) -> tuple[int, str]:
        """(how many, of what): a histogram's observations, the fewest of those used; for what is
        read off gauges and counters, the requests that finished meanwhile."""
        seen = [(case.s[n].samples, observed(n)) for n in self.uses if observed(n) and case.s[n].ok]
        finished = case.s.value("finished")
        if seen or finished is None or not (self.uses or self.also):
            return min(seen, default=(0, ""))
        return round(finished), "requests"

    def few(self, case: Case) -> str:
        """Which of the signals used has fewer samples than a critical finding takes, in words."""
        for name in self.uses:
            parts, least = case.s.breakdowns.get(name), min_samples(name)
            seen = case.s[name].samples if parts is None else round(sum(case.s.of(name).values()))
            if seen < least:
                return f"{seen} of the {least} that {name} takes"
        return ""

    def blank(self, case: Case, state: State, summary: str) -> NodeResult:
        readings = self.readings(case)
        queries = tuple(dict.fromkeys(r.query for r in readings if r.query and r.ok))
        samples, counted = self.seen_over(case)
        return NodeResult(
            self.key, self.title, state, summary, self.parent, unit=self.unit,
            window_s=case.s.window_s, samples=samples, counted=counted, age_s=case.age_s,
            will_not_help=self.will_not_help, queries=queries,
        )  # fmt: skip

    def unread(self, case: Case) -> Check | None:
        """The result when a required reading has no value; None when all have one."""
        bad = [
            (name, case.s[name])
            for name in self.uses
            if name not in case.s.breakdowns and not case.s[name].ok
        ]
        empty = [name for name in self.uses if case.s.breakdowns.get(name) == {}]
        if not bad and not empty:
            return None
        hard = [(name, r) for name, r in bad if r.outcome is not Outcome.NO_TRAFFIC]
        if not hard and not empty:
            summary = "nothing was measured in the window"
            return Check(self.blank(case, State.NOT_APPLICABLE, summary))
        missing = (*(r.query or name for name, r in hard), *empty)
        reasons = dict.fromkeys([*(r.reason or r.outcome.value for _, r in hard)])
        how = next((h for name in (*(n for n, _ in hard), *empty) if (h := how_to_get(name))), "")
        why = "; ".join(reasons) or f"{', '.join(empty)} is not exported"
        node = self.blank(case, State.CANT_TELL, why)
        how = how or LOOK_FOR_IT
        return Check(replace(node, missing=tuple(missing), how_to_get=how))

    def cant_tell(self, case: Case, why: str, missing: Iterable[str], how: str) -> Check:
        node = self.blank(case, State.CANT_TELL, why)
        return Check(replace(node, missing=tuple(missing), how_to_get=how))

    def unset(self, case: Case, knob: str) -> Check:
        """A setting the server does not tell, or that is another at each."""
        if (differing := self.differs(case, knob)) is not None:
            return differing
        how = f"give it with --set {knob}=N, or --settings FILE with the server's flags"
        return self.cant_tell(case, f"{knob} is not known", (knob,), how)

    def differs(self, case: Case, knob: str) -> Check | None:
        """The result of a node that takes one value of a knob where replicas have several."""
        told = case.s.differing().get(knob)
        why, missing = f"{knob} differs: {told}", (f"one {knob} for all replicas",)
        return None if told is None else self.cant_tell(case, why, missing, LOOK_AT_ONE)

    def not_applicable(self, case: Case, why: str) -> Check:
        return Check(self.blank(case, State.NOT_APPLICABLE, why))

    def judge(
        self,
        case: Case,
        value: Callable[[], float],
        warning: float,
        critical: float | None = None,
        *,
        says: Callable[[float], str],
        when: bool = True,
        evidence: tuple[tuple[str, str], ...] = (),
        comparison: str = "≥",
    ) -> Check:
        """Compare value() with its thresholds; `when` False keeps the node ok whatever it is."""
        if (unread := self.unread(case)) is not None:
            return unread
        number, few = value(), self.few(case)
        state = level(number, warning, None if few else critical) if when else State.OK
        evidence += too_few(few if state.firing else "")
        node = replace(
            self.blank(case, state, says(number)),
            value=number,
            threshold=critical if state is State.CRITICAL else warning,
            comparison=comparison,
            levers=levers.here(self.levers, case.s.config) if state.firing else (),
            evidence=evidence,
        )
        return Check(node, self.exact, guess=bool(few))
