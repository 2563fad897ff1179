"""Judges runs again from their records: under other SLOs, alone or several as one.

Invariants: the code that judges a fresh run judges a stored or imported one; a figure whose samples
the records do not hold is not measured, so a clause on it is not met and says why; nothing stored
is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tuner.endpoint import Endpoint
from tuner.errors import UserError
from tuner.exchange.run import Columns, Run
from tuner.measure import Measurement, summarize
from tuner.server_side import ServerSide
from tuner.slo import SloSet, Verdict, judge, parse_slos
from tuner.slo.judge import by_interval
from tuner.slo.pooled import pool_runs
from tuner.stats.estimate import Estimate
from tuner.workload import Workload, parse_workload


@dataclass(frozen=True, slots=True)
class Judged:
    """The figures and the verdict of one run, or of several taken together.

    invalid: why the load generator has spoilt one run that stands alone; "" where it has not.
    """

    summary: dict[str, Estimate]
    verdict: Verdict
    runs: int
    invalid: str = ""


def measurement(run: Run, slos: SloSet, price_per_hour: float | None = None) -> Measurement:
    """The run as it was measured, summarised under slos."""
    made = _bare(run, price_per_hour)
    summarize(made, slos)
    stored = run.invalid_reason
    if stored and not made.invalid_reason and not _explained_by_records(run):
        made.invalid_reason = stored
    made.summary = known_only(made.summary, run.unknown)
    return made


def judged(runs: Sequence[Run], slos: SloSet, price_per_hour: float | None = None) -> Judged:
    """One verdict for all of runs (of one configuration), at least one."""
    unknown = {metric: why for run in runs for metric, why in run.unknown.items()}
    made = [measurement(run, slos, price_per_hour) for run in runs]
    if len(made) == 1:
        alone = made[0]
        verdict = known_verdict(judge(slos, alone), unknown)
        return Judged(alone.summary, verdict, 1, alone.invalid_reason)
    pooled = pool_runs(made, slos)
    verdict = known_verdict(pooled.verdict, unknown)
    return Judged(known_only(pooled.summary, unknown), verdict, pooled.runs)


def known_only(summary: dict[str, Estimate], unknown: dict[str, str]) -> dict[str, Estimate]:
    """The summary, without figures of metrics whose samples the records do not hold."""
    return {
        key: Estimate.missing(estimate.unit, why)
        if (why := unknown.get(key) or unknown.get(key.partition("_")[0]))
        else estimate
        for key, estimate in summary.items()
    }


def known_verdict(verdict: Verdict, unknown: dict[str, str]) -> Verdict:
    """The verdict, with clauses on such metrics not met."""
    hit = [clause for clause in verdict.clauses if clause.clause.metric in unknown]
    if not hit:
        return verdict
    clauses = tuple(
        by_interval(
            clause.clause,
            Estimate.missing(clause.estimate.unit, unknown[clause.clause.metric]),
        )
        if clause in hit
        else clause
        for clause in verdict.clauses
    )
    return Verdict("fail", clauses, verdict.reason)


def _bare(run: Run, price_per_hour: float | None) -> Measurement:
    return Measurement(
        endpoint=Endpoint(run.url, run.model),
        workload=workload_of(run.workload, run.columns),
        seed=run.seed or 0,
        window_s=run.window_s,
        began_unix_s=run.began_unix_s,
        records=run.records,
        lag_p99_s=run.lag_p99_s,
        server=ServerSide.from_dict(run.server),
        price_per_hour=price_per_hour,
        accuracy=run.figures.get("accuracy"),  # no request's record has it
    )


def _explained_by_records(run: Run) -> bool:
    """Whether the records show what made the run invalid: then they decide under other SLOs too.

    What only the running generator could see (its own stalls) stays as it was told.
    """
    again = _bare(replace(run, summary={**run.summary, "invalid_reason": ""}), None)
    summarize(again, parse_slos([run.slos] if run.slos else []))
    return bool(again.invalid_reason)


def workload_of(text: str, columns: Columns) -> Workload:
    """The workload a stored text names; where it cannot be read any more (a trace that is gone),
    one of the records' mean lengths."""
    try:
        return parse_workload(text or None)
    except UserError:
        prompt, output = (
            max(1, round(_mean(columns[name]))) for name in ("prompt_tokens", "output_tokens")
        )
        return parse_workload(f"prompt={prompt},output={output},concurrency=1")


def _mean(values: Sequence[Any]) -> float:
    positive = np.asarray(values, dtype=float)
    positive = positive[positive > 0]
    return float(positive.mean()) if len(positive) else 1.0
