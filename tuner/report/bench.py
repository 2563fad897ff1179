"""The table of `tuner bench`: every figure with interval, samples and method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.units import show

if TYPE_CHECKING:
    from tuner.measure import Measurement
    from tuner.slo import Verdict
    from tuner.stats import Estimate

MARKS = {"pass": "✔", "fail": "✘", "inconclusive": "?"}


def bench_lines(made: Measurement, verdict: Verdict) -> list[str]:
    """Lines of text, at most 100 columns."""
    counts = made.counts
    lines = [
        f"{made.endpoint.base_url} · {made.endpoint.model} · {made.workload} · seed {made.seed}",
        f"window {made.duration_s:.1f} s · {counts['sent']} requests: {counts['ok']} ok, "
        f"{counts['failed']} failed, {counts['censored']} still running at cut-off · "
        f"{counts['warmup']} in warm-up and not counted",
        "",
        f"{'figure':14}{'value':>12}{'95 % interval':>26}{'n':>8}  method",
    ]
    lines += [_row(name, estimate) for name, estimate in made.summary.items()]
    lines += ["", *_server_lines(made), *_verdict_lines(made, verdict)]
    return lines


def _row(name: str, estimate: Estimate) -> str:
    if not estimate.measured:
        return f"{name:14}{'no data':>12}{'':>26}{0:>8}  {estimate.reason}"
    interval = f"{show(estimate.low, estimate.unit)} … {show(estimate.high, estimate.unit)}"
    method = estimate.method.replace("inverted empirical CDF, binomial interval", "order statistic")
    value = show(estimate.value, estimate.unit)
    return f"{name:14}{value:>12}{interval:>26}{estimate.n:>8}  {method}"


def _server_lines(made: Measurement) -> list[str]:
    server = made.server
    if server is None:
        return ["server: exports no metrics; nothing to cross-check"]
    parts = []
    if server.preemptions is not None:
        parts.append(f"{server.preemptions:.0f} preemptions")
    if server.prefix_hit_rate is not None:
        parts.append(f"prefix-cache hits {show(server.prefix_hit_rate, 'share')} of prompt tokens")
    if server.queue_mean_s is not None:
        parts.append(f"mean queue {show(server.queue_mean_s, 's')}")
    return [f"server (whole run): {' · '.join(parts) or 'exports none of the expected counters'}"]


def _verdict_lines(made: Measurement, verdict: Verdict) -> list[str]:
    lines = [f"generator lag p99 {show(made.lag_p99_s, 's')}"]
    if made.invalid_reason:
        lines.append(f"INVALID: {made.invalid_reason}")
    lines += [f"note: {note}" for note in made.notes]
    for clause in verdict.clauses:
        value = show(clause.estimate.value, clause.estimate.unit)
        reason = f" · {clause.reason}" if clause.reason else ""
        lines.append(
            f"{MARKS[clause.state]} {clause.clause.text}: {clause.state}, measured {value}{reason}"
        )
    for reason, count in made.summary_dict()["failures"]:
        lines.append(f"✘ {count} × {reason}")
    if verdict.clauses or verdict.state != "pass":
        because = f": {verdict.reason}" if verdict.reason else ""
        lines.append(f"verdict: {verdict.state}{because}")
    return lines
