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
from tuner.search.margin import FEWEST_RUNS, safely_above, safely_below
from tuner.server_side import together
from tuner.slo import Clause, ClauseVerdict, SloSet, Verdict, VerdictState, judge
from tuner.slo.judge import by_interval
from tuner.stats import CONFIDENCE, Estimate, mean_of_runs
from tuner.trial import Outcome

COST = "cost_per_mtok"


@dataclass(frozen=True, slots=True)
class Pooled:
    """All usable outcomes of a configuration: their figures, their verdict, how many runs.

    by_load: the same of each load alone, by its text, where a trial measures several.
    """

    runs: int
    summary: dict[str, Estimate]
    verdict: Verdict
    by_load: tuple[tuple[str, Pooled], ...] = ()


def pool(
    outcomes: Sequence[Outcome], slos: SloSet, confidence: float = CONFIDENCE
) -> Pooled | None:
    """None when no outcome has a result. The summary's intervals are of 95 %; confidence is that
    of the verdict, one-sided: who looks several times or at several candidates asks for more."""
    made = [o.measurement for o in outcomes if o.ok and o.measurement is not None]
    if not made:
        return None
    whole = _joined(made, slos)
    summary = dict(whole.summary)
    for key in (*RATES, COST):
        if key in summary:
            summary[key] = mean_of_runs([m.summary[key] for m in made])
    verdict = judge(slos, whole)
    clauses = tuple(_between_runs(v, made, whole, summary, slos, confidence)
                    for v in verdict.clauses)  # fmt: skip
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
    verdict: ClauseVerdict,
    made: Sequence[Measurement],
    whole: Measurement,
    summary: dict[str, Estimate],
    slos: SloSet,
    confidence: float,
) -> ClauseVerdict:
    """A clause judged by the interval that contains the spread between runs.

    Percentiles are decided one-sided, as those of a single run: by the ends of the two-sided
    interval that leaves as much on each side. With several runs half of the error goes to that, the
    other half to the distance from the bound (tuner.search.margin).
    """
    clause = verdict.clause
    if clause.key not in summary or not verdict.estimate.measured:
        return verdict
    if clause.metric in RATES or clause.metric == COST:
        interval = mean_of_runs([_again(one, clause, slos, confidence) for one in made], confidence)
    elif clause.metric in SHARES or clause.stat == "mean":
        interval = _again(whole, clause, slos, confidence)
    elif clause.quantile is not None:
        if len(made) >= FEWEST_RUNS:
            confidence = 1 - (1 - confidence) / 2
            if safely_below(made, clause, confidence):
                return ClauseVerdict(clause, "pass", summary[clause.key], verdict.margin_log)
            if safely_above(made, clause, confidence):
                return ClauseVerdict(clause, "fail", summary[clause.key], verdict.margin_log)
        interval = _again(whole, clause, slos, 2 * confidence - 1)
    else:
        return verdict
    return replace(by_interval(clause, interval), estimate=summary[clause.key])


def _again(made: Measurement, clause: Clause, slos: SloSet, confidence: float) -> Estimate:
    """The clause's figure with an interval of this confidence."""
    return figure(
        made.records, made.window_s, clause.key, slos,
        price_per_hour=made.price_per_hour, run_ends_s=made.run_ends_s, confidence=confidence,
    )  # fmt: skip


def _state(clauses: Sequence[ClauseVerdict], verdict: Verdict) -> VerdictState:
    states = {clause.state for clause in clauses}
    if "fail" in states or verdict.reason == "every request failed":
        return "fail"
    return "inconclusive" if verdict.reason or "inconclusive" in states else "pass"
