"""The rule groups of an SLO line: recorded shares, burn-rate alerts, and what makes both blind.

Invariants: a share is a ratio of sums of counted events and NaN without traffic, so that no alert
fires on nothing; a series that is missing, and a server that stands still, have alerts of their
own, since no counter of events shows either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.budget.burn import BURN_WINDOWS, WINDOW_S, BurnWindow, fewest_events
from tuner.budget.counters import Counter, Counters
from tuner.budget.events import Sli
from tuner.rules.scope import Scope, matcher

BAD_RATE = "slotune_slo:bad_events:rate"
RATE = "slotune_slo:events:rate"
BAD = "slotune_slo:bad_events:ratio_rate"
ATTAINMENT = "slotune_slo:attainment:ratio"
BUDGET_LEFT = "slotune_slo:error_budget_left:ratio"

BURNS, MISSING, STALLED = "BudgetBurn", "SloMetricMissing", "EngineStalled"
EVALUATED_EVERY = "1m"
MISSING_FOR = "15m"

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """What the rules are made for. budget_window: what the error budget is spread over ("30d").

    least_events: in the long window, for an alert; None: enough that one bad event is not the
    whole budget.
    """

    slis: Sequence[Sli]
    scope: Scope
    budget_window: str = "30d"
    least_events: int | None = None
    stall_window: str = "1m"
    alert_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def counters(self) -> Counters:
        """Of the engine that all are for."""
        return self.slis[0].counters

    def least(self, sli: Sli) -> int:
        return self.least_events if self.least_events is not None else fewest_events(sli.budget)

    def groups(self) -> dict[str, Any]:
        """The content of a rules file."""
        groups = [
            {
                "name": f"slotune-slo-{sli.key}",
                "interval": EVALUATED_EVERY,
                "rules": [*self._recorded(sli), *(self.alert(sli, w) for w in BURN_WINDOWS)],
            }
            for sli in self.slis
        ]
        watch = {"name": "slotune-slo-blind", "interval": EVALUATED_EVERY, "rules": self._blind()}
        return {"groups": [*groups, watch]}

    def labels(self, sli: Sli) -> dict[str, str]:
        """What tells the recorded series of this clause from others'."""
        return {"slo": sli.key, **self.scope.labels}

    def _recorded(self, sli: Sli) -> list[Rule]:
        labels = self.labels(sli)
        own = _matching(labels)
        rules: list[Rule] = []
        for window in (*WINDOW_S, self.budget_window):
            share = f"\n{BAD_RATE}{window}{own}\n/ {RATE}{window}{own}"
            rules += [
                _record(f"{BAD_RATE}{window}", labels, self._sum(sli, sli.bad, window)),
                _record(f"{RATE}{window}", labels, self._sum(sli, sli.total, window)),
                _record(f"{BAD}{window}", labels, f"clamp_max({share}, 1\n)"),
            ]
        overall = f"{BAD}{self.budget_window}{own}"
        return [
            *rules,
            _record(ATTAINMENT, labels, f"1 - {overall}"),
            _record(BUDGET_LEFT, labels, f"1 - {overall} / {sli.budget:g}"),
        ]

    def _sum(self, sli: Sli, terms: Sequence[tuple[int, Counter]], window: str) -> str:
        return self.scope.sum_of(terms, window, known=sli.known)

    def alert(self, sli: Sli, window: BurnWindow) -> Rule:
        """Both windows burn too fast, and the long one holds enough events to tell."""
        own = _matching(self.labels(sli))
        limit = f"{window.limit(sli.budget):.6g}"
        return {
            "alert": alert_name(sli),
            "expr": (
                f"{BAD}{window.long}{own} > {limit}\n"
                f"and {BAD}{window.short}{own} > {limit}\n"
                f"and {RATE}{window.long}{own} * {WINDOW_S[window.long]} >= {self.least(sli)}"
            ),
            "labels": {
                "severity": window.severity, "window": window.long, **self.alert_labels,
            },
            "annotations": self.annotations(sli, window),
        }  # fmt: skip

    def annotations(self, sli: Sli, window: BurnWindow) -> dict[str, str]:
        limit = window.limit(sli.budget)
        factor = limit / sli.budget
        return {
            "summary": (
                f"{sli.clause.text}: more than {limit:.3g} of {sli.events} are bad over "
                f"{window.long} and {window.short}; the error budget burns {factor:.3g} times "
                "faster than it lasts"
            ),
            "description": (
                f"Target: {1 - sli.budget:.6g} good. {sli.bad_is[:1].upper()}{sli.bad_is[1:]}. "
                f"Fires from {self.least(sli)} {sli.events} in {window.long} on. "
                f'To see what binds: tuner diagnose --url URL --slo "{sli.clause.text}"'
            ),
        }

    def _blind(self) -> list[Rule]:
        needs = dict.fromkeys(need for sli in self.slis for need in sli.needs)
        return [*(self.missing(counter) for counter in needs), self.stalled()]

    def missing(self, counter: Counter) -> Rule:
        name = counter.name
        series = Scope(self.scope.labels).series(name, matcher(counter))
        return {
            "alert": MISSING,
            "expr": f"absent({series})",
            "for": MISSING_FOR,
            "labels": {"severity": "ticket", "series": name, **self.alert_labels},
            "annotations": {
                "summary": f"{name} is not exported: SLO alerts that need it cannot fire",
                "description": (
                    f"Nothing matches {series}. The server is down, {self._silent}its metric was "
                    "renamed, or the bucket boundary is not one of its own: make the rules anew "
                    "with tuner rules --url URL"
                ),
            },
        }

    @property
    def _silent(self) -> str:
        first = self.counters.dialect == "sglang"
        return "it has served no request since its start, " if first else ""

    def stalled(self) -> Rule:
        running = self.scope.gauge(self.counters.running)
        generated = self.scope.rate(self.counters.generated, self.stall_window)
        return {
            "alert": STALLED,
            "expr": f"{running} > 0\nand {generated} == 0",
            "for": "1m",
            "labels": {"severity": "page", **self.scope.labels, **self.alert_labels},
            "annotations": {
                "summary": "requests run, but no token comes",
                "description": (
                    "Requests that never end stand in no counter, so that the shares of the SLO "
                    "rules look as before. See the server's log; tuner diagnose names what waits"
                ),
            },
        }


def alert_name(sli: Sli) -> str:
    """TtftP95BudgetBurn: each clause has its own, so that one can be silenced alone."""
    words = re.split(r"[_.]", sli.key)
    return "".join(word.capitalize() for word in words) + BURNS


def _record(name: str, labels: Mapping[str, str], expr: str) -> Rule:
    return {"record": name, "expr": expr, "labels": dict(labels)}


def _matching(labels: Mapping[str, str]) -> str:
    return Scope(labels).series("")
