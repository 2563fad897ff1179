"""Several measurements of one configuration taken together: more samples, one verdict.

Latencies and shares are judged over the requests of all windows. Rates are averaged over the runs
(a request that crosses a window's edge would else be half lost), with an interval from the spread
between runs where there are two or more.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t

from tuner.measure import Measurement, summarize
from tuner.records import RequestRecord
from tuner.server_side import together
from tuner.slo import ClauseVerdict, SloSet, Verdict, VerdictState, judge
from tuner.slo.judge import by_interval
from tuner.stats import Estimate
from tuner.trial import Outcome

RATES = ("output_tps", "total_tps", "rps", "goodput")
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Pooled:
    """All usable outcomes of a configuration: their figures, their verdict, how many runs."""

    runs: int
    summary: dict[str, Estimate]
    verdict: Verdict

    @property
    def requests(self) -> int:
        return self.summary["ttft_p95"].n if "ttft_p95" in self.summary else 0


def pool(outcomes: Sequence[Outcome], slos: SloSet) -> Pooled | None:
    """None when no outcome has a result."""
    made = [o.measurement for o in outcomes if o.ok and o.measurement is not None]
    if not made:
        return None
    joined = _joined(made, slos)
    summary = dict(joined.summary)
    for key in RATES:
        if key in summary:
            summary[key] = _mean_of_runs([m.summary[key] for m in made])
    verdict = judge(slos, joined)
    clauses = tuple(
        by_interval(v.clause, summary[v.clause.key]) if v.clause.metric in RATES else v
        for v in verdict.clauses
    )
    return Pooled(len(made), summary, Verdict(_state(clauses, verdict), clauses, verdict.reason))


def _joined(made: Sequence[Measurement], slos: SloSet) -> Measurement:
    """One measurement whose window is all windows end to end."""
    records: list[RequestRecord] = []
    offset_s = 0.0
    for one in made:
        shift_s = offset_s - one.window_s[0]
        records += [_shifted(record, shift_s) for record in one.in_window]
        offset_s += one.duration_s
    whole = replace(
        made[0],
        window_s=(0.0, offset_s),
        records=records,
        lag_p99_s=max(one.lag_p99_s for one in made),
        summary={},
        counts={},
        server=together([one.server for one in made]),
    )
    return summarize(whole, slos)


def _shifted(record: RequestRecord, by_s: float) -> RequestRecord:
    moved = copy.copy(record)
    for name in (
        "scheduled_s", "sent_s", "first_byte_s", "first_token_s", "first_answer_token_s", "end_s",
    ):  # fmt: skip
        setattr(moved, name, getattr(record, name) + by_s)
    moved.chunk_times_s = [at_s + by_s for at_s in record.chunk_times_s]
    return moved


def _mean_of_runs(estimates: Sequence[Estimate]) -> Estimate:
    first = estimates[0]
    if len(estimates) == 1:
        return first
    values = np.array([estimate.value for estimate in estimates])
    n = len(values)
    half = float(t.ppf(1 - (1 - CONFIDENCE) / 2, n - 1) * values.std(ddof=1) / math.sqrt(n))
    mean = float(values.mean())
    total = sum(estimate.n for estimate in estimates)
    method = f"mean of {n} runs, Student interval"
    return Estimate(mean, max(0.0, mean - half), mean + half, total, first.unit, method)


def _state(clauses: Sequence[ClauseVerdict], verdict: Verdict) -> VerdictState:
    states = {clause.state for clause in clauses}
    if "fail" in states or verdict.reason == "every request failed":
        return "fail"
    return "inconclusive" if verdict.reason or "inconclusive" in states else "pass"
