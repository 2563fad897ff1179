"""What `tuner bench` prints: every figure with interval, samples and method, and what to doubt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tuner.report.words import FIGURE_HEAD, MARKS, VERDICTS, figure_line
from tuner.server_side import Check, crosscheck
from tuner.units import count_text, show

if TYPE_CHECKING:
    from tuner.measure import Measurement
    from tuner.slo import Verdict


def bench_lines(made: Measurement, verdict: Verdict) -> list[str]:
    """Lines of text, at most about 100 columns."""
    return [
        *_head_lines(made),
        "",
        FIGURE_HEAD,
        *(figure_line(key, estimate) for key, estimate in made.summary.items()),
        "",
        *_generator_lines(made),
        *_server_lines(made),
        *_crosscheck_lines(made),
        *_verdict_lines(made, verdict),
    ]


def _head_lines(made: Measurement) -> list[str]:
    counts = made.counts
    lines = [
        f"{made.endpoint.base_url} · {made.endpoint.model} · {made.workload} · seed {made.seed}",
        f"measured {made.duration_s:.1f} s · {count_text(counts['sent'], 'request')}: "
        f"{counts['ok']} ok, {counts['failed']} failed, "
        f"{counts['censored']} still running at cut-off · "
        f"{counts['warmup']} outside the window and not counted",
    ]
    if made.chosen is not None:
        lines.append(f"window {made.chosen.why}")
    if made.ended_why:
        lines.append(f"ended early: {made.ended_why}")
    return lines


def _generator_lines(made: Measurement) -> list[str]:
    parts = [f"own lag p99 {show(made.lag_p99_s, 's')}"]
    if made.stalls is not None:
        stalls = made.stalls.within(*made.window_s)
        parts.append(
            f"event-loop delay p99 {show(stalls.p99_s, 's')}, most {show(stalls.max_s, 's')}"
        )
        parts.append(f"busy {show(stalls.busy_share, 'share')} of a core")
    parts.append(count_text(made.processes, "process", "processes"))
    return [f"generator (window): {' · '.join(parts)}"]


def _server_lines(made: Measurement) -> list[str]:
    server = made.server
    if server is None:
        return ["server: no metrics of it were found; nothing to cross-check"]
    if server.restarted:
        return ["server: restarted during the run; its counters began anew and tell nothing"]
    parts = []
    if server.preemptions is not None:
        parts.append(count_text(round(server.preemptions), "preemption"))
    if server.prefix_hit_rate is not None:
        parts.append(f"prefix-cache hits {show(server.prefix_hit_rate, 'share')} of prompt tokens")
    if server.queue_mean_s is not None:
        parts.append(f"mean queue {show(server.queue_mean_s, 's')}")
    if server.series is not None:
        known = [v for v in server.series.kv_usage if v is not None and math.isfinite(v)]
        if known:
            parts.append(f"KV cache at most {show(max(known), 'share')} full")
    return [f"server (whole run): {' · '.join(parts) or 'exports none of the expected counters'}"]


def _crosscheck_lines(made: Measurement) -> list[str]:
    checks = crosscheck(made.records, made.server)
    if not checks:
        return []
    texts = [f"{check.name} {_difference(check)}" for check in checks]
    lines = [f"cross-check (client against server, whole run): {' · '.join(texts)}"]
    lines += [
        f"note: {check.name}: client {show(check.client, check.unit)}, server "
        f"{show(check.server, check.unit)} – {check.likely_cause}"
        for check in checks
        if not check.agrees
    ]
    return lines


def _difference(check: Check) -> str:
    return "equal" if check.client == check.server else f"{check.difference:+.1%}"


def _verdict_lines(made: Measurement, verdict: Verdict) -> list[str]:
    lines = [f"INVALID: {made.invalid_reason}"] if made.invalid_reason else []
    lines += [f"note: {note}" for note in made.notes]
    for clause in verdict.clauses:
        value = show(clause.estimate.value, clause.estimate.unit)
        reason = f" · {clause.reason}" if clause.reason else ""
        lines.append(
            f"{MARKS[clause.state]} {clause.clause.text}: {VERDICTS[clause.state]}, "
            f"measured {value}{reason}"
        )
    for reason, count in made.summary_dict()["failures"]:
        lines.append(f"✘ {count} × {reason}")
    if verdict.clauses or verdict.state != "pass":
        because = f": {verdict.reason}" if verdict.reason else ""
        lines.append(f"verdict: {VERDICTS[verdict.state]}{because}")
    return lines
