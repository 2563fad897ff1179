"""Several measurements of one configuration taken together: more samples, one verdict.

Latencies and shares are judged over the requests of all windows, rates averaged over the runs (a
request that crosses a window's edge would else be half lost). Either way the spread between runs is
in the interval: many requests of two runs that differ are not many samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.figures import RATES, SHARES, figure
from tuner.measure import Measurement, summarize
from tuner.samples import joined
from tuner.server_side import together
from tuner.slo import ClauseVerdict, SloSet, Verdict, VerdictState, judge
from tuner.slo.judge import by_interval
from tuner.stats import CONFIDENCE, Estimate, mean_of_runs
from tuner.trial import Outcome


@dataclass(frozen=True, slots=True)
class Pooled:
    """All usable outcomes of a configuration: their figures, their verdict, how many runs."""

    runs: int
    summary: dict[str, Estimate]
    verdict: Verdict


def pool(outcomes: Sequence[Outcome], slos: SloSet) -> Pooled | None:
    """None when no outcome has a result."""
    made = [o.measurement for o in outcomes if o.ok and o.measurement is not None]
    if not made:
        return None
    joined = _joined(made, slos)
    summary = dict(joined.summary)
    for key in RATES:
        if key in summary:
            summary[key] = mean_of_runs([m.summary[key] for m in made])
    verdict = judge(slos, joined)
    clauses = tuple(_between_runs(v, joined, summary, slos) for v in verdict.clauses)
    return Pooled(len(made), summary, Verdict(_state(clauses, verdict), clauses, verdict.reason))


def _joined(made: Sequence[Measurement], slos: SloSet) -> Measurement:
    """One measurement whose window is all windows end to end."""
    records, window_s, run_ends_s = joined([(one.records, one.window_s) for one in made])
    whole = replace(
        made[0],
        window_s=window_s,
        run_ends_s=run_ends_s,
        saturation=next((one.saturation for one in made if one.saturation is not None), None),
        records=records,
        lag_p99_s=max(one.lag_p99_s for one in made),
        summary={},
        counts={},
        chosen=None,
        stalls=None,
        server=together([one.server for one in made]),
    )
    return summarize(whole, slos)


def _between_runs(
    verdict: ClauseVerdict, whole: Measurement, summary: dict[str, Estimate], slos: SloSet
) -> ClauseVerdict:
    """A clause judged by the interval that contains the spread between runs.

    Percentiles are decided one-sided at 95 %, as those of a single run: by the ends of the 90 %
    interval.
    """
    clause = verdict.clause
    if clause.key not in summary or not verdict.estimate.measured:
        return verdict
    if clause.metric in RATES or clause.metric in SHARES or clause.stat == "mean":
        return by_interval(clause, summary[clause.key])
    if clause.quantile is None:
        return verdict
    one_sided = figure(
        whole.records, whole.window_s, clause.key, slos,
        run_ends_s=whole.run_ends_s, confidence=2 * CONFIDENCE - 1,
    )  # fmt: skip
    return replace(by_interval(clause, one_sided), estimate=summary[clause.key])


def _state(clauses: Sequence[ClauseVerdict], verdict: Verdict) -> VerdictState:
    states = {clause.state for clause in clauses}
    if "fail" in states or verdict.reason == "every request failed":
        return "fail"
    return "inconclusive" if verdict.reason or "inconclusive" in states else "pass"
