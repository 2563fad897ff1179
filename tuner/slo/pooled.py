"""Several runs of one configuration taken together: more samples, one verdict.

Latencies and shares are judged over the requests of all windows, rates averaged over the runs (a
request that crosses a window's edge would else be half lost). Either way the noise between runs is
in the interval: many requests of two runs that differ are not many samples. That noise is one for
all configurations of a study, learned from each that was measured in whole more than once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.figures import RATES, figure
from tuner.figures.samples import joined
from tuner.measure import Measurement, summarize
from tuner.measure.cautions import GeneratorLoop
from tuner.server_side import together
from tuner.slo import ClauseVerdict, SloSet, Verdict, VerdictState, judge
from tuner.slo.judge import by_interval, no_data
from tuner.stats import CONFIDENCE, Estimate, RunNoise, mean_of_runs

COST = "cost_per_mtok"


@dataclass(frozen=True, slots=True)
class Pooled:
    """All usable runs of a configuration: their figures, their verdict, how many runs.

    by_load: the same of each load alone, by its text, where a trial measures several.
    """

    runs: int
    summary: dict[str, Estimate]
    verdict: Verdict
    by_load: tuple[tuple[str, Pooled], ...] = ()


def pool_runs(
    made: Sequence[Measurement],
    slos: SloSet,
    confidence: float = CONFIDENCE,
    noise: Mapping[str, RunNoise] | None = None,
) -> Pooled:
    """At least one run. The summary's intervals are of 95 %; confidence is that of the verdict,
    one-sided: who looks several times or at several candidates asks for more. noise: between the
    runs of a study (tuner.search.pool.noise_of); without it, several runs are judged by their own
    spread and the default."""
    known = noise or {}
    whole = _joined(made, slos, known)
    summary = dict(whole.summary)
    for key in (*RATES, COST):
        if key in summary:
            summary[key] = mean_of_runs([m.summary[key] for m in made], noise=known.get(key))
    verdict = judge(slos, whole, noise=known, confidence=confidence)
    clauses = tuple(
        _rate_of_runs(clause, made, summary, slos, confidence, known) for clause in verdict.clauses
    )
    state = _state(clauses, verdict)
    if any(one.saturation is not None and judge(slos, one).state == "fail" for one in made):
        state = "fail"  # it only gets worse the longer such a load lasts: other runs excuse nothing
    return Pooled(len(made), summary, Verdict(state, clauses, verdict.reason))


def _joined(
    made: Sequence[Measurement], slos: SloSet, noise: Mapping[str, RunNoise]
) -> Measurement:
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
        loop=_busiest([one.generator for one in made]),
        server=together([one.server for one in made]),
        accuracy=next((one.accuracy for one in made if one.accuracy is not None), None),
    )
    return summarize(whole, slos, noise)


def _busiest(loops: Sequence[GeneratorLoop | None]) -> GeneratorLoop | None:
    """The worst of each figure; None where no run was watched."""
    watched = [loop for loop in loops if loop is not None]
    if not watched:
        return None
    return GeneratorLoop(
        max(loop.stall_p99_s for loop in watched),
        max(loop.stall_max_s for loop in watched),
        max(loop.busy_share for loop in watched),
    )


def _rate_of_runs(
    verdict: ClauseVerdict,
    made: Sequence[Measurement],
    summary: Mapping[str, Estimate],
    slos: SloSet,
    confidence: float,
    noise: Mapping[str, RunNoise],
) -> ClauseVerdict:
    """A clause on a rate, judged by the mean of the runs; any other as it is."""
    clause = verdict.clause
    if clause.metric not in (*RATES, COST) or not verdict.estimate.measured:
        return verdict
    each = [
        figure(
            one.records, one.window_s, clause.key, slos,
            price_per_hour=one.price_per_hour, confidence=confidence,
        )
        for one in made
    ]  # fmt: skip
    mean = mean_of_runs(each, confidence, noise=noise.get(clause.key))
    decided = by_interval(clause, mean) if mean.measured else no_data(clause, mean)
    return replace(decided, estimate=summary[clause.key])


def _state(clauses: Sequence[ClauseVerdict], verdict: Verdict) -> VerdictState:
    states = {clause.state for clause in clauses}
    if "fail" in states or verdict.reason == "every request failed":
        return "fail"
    return "inconclusive" if verdict.reason or "inconclusive" in states else "pass"
