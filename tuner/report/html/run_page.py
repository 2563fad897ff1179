"""The page of one run: is the SLO met, how are latencies spread, what happened when, and why.

It takes a Run, which is the same whether just measured, stored or read from a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from tuner.exchange.run import Run
from tuner.report.html import charts, series
from tuner.report.html.background import provenance_facts, server_panel
from tuner.report.html.page import (
    callout,
    document,
    head,
    in_twos,
    legend,
    panel,
    pill,
    range_text,
    section,
    stacked,
    table,
    when,
)
from tuner.report.html.series import Frame
from tuner.report.html.svg import bars
from tuner.report.words import MARKS, VERDICTS
from tuner.slo import Clause, parse_slos
from tuner.stats.estimate import Estimate
from tuner.units import noun, show

TILES = (
    ("output_tps", "Output throughput"), ("rps", "Requests per second"),
    ("error_rate", "Error rate"), ("e2e_p95", "E2E p95"), ("ttft_p50", "TTFT median"),
    ("ttft_p95", "TTFT p95"), ("tpot_p50", "TPOT median"), ("itl_p95", "ITL p95"),
)  # fmt: skip
BIG = {state: f"{MARKS[state]} SLOs {word}" for state, word in VERDICTS.items()}


def render_run_html(run: Run, extra: Sequence[tuple[str, str]] = ()) -> str:
    """extra: further (name, value) of the provenance, such as versions and hardware."""
    clauses = parse_slos([run.slos]).clauses if run.slos else ()
    frame = Frame.of(run)
    title = f"Run {run.run_id}" if run.run_id is not None else f"Run of {when(run.began_unix_s)}"
    if run.run_id is None and run.source:
        title = run.name
    body = [
        _head(run, title),
        _doubts(run),
        section("Summary", _tiles(run), _summary_lead(run)),
        section(
            "Service-level objectives", _slos(run),
            "Line: the 95 % interval; dashed: the bound. A clause is decided where its interval "
            "lies on one side of the bound; of a percentile the end that leaves 5 % beyond it.",
        ),
        section(
            "Distributions", _distributions(run, frame, clauses),
            "Cumulative share of the window's requests; failed and unfinished ones count as longer "
            "than all that is drawn. Dots: p50, p95, p99.",
        ),
        section(
            "Over time", _over_time(run, frame, clauses),
            "Seconds since the run began. Shaded: not counted (warm-up, and after the window).",
        ),
        section("Slowest requests", _slowest(run, frame), "By end-to-end latency, in the window."),
        section("Failures", _failures(run, frame)),
        section("Server-side cross-check", server_panel(run)),
        section("All figures", panel(_figures(run))),
        section("Provenance", panel(provenance_facts(run, extra))),
    ]  # fmt: skip
    return document(f"slotune · {title}", body)


def _head(run: Run, title: str) -> str:
    lines = [
        " · ".join(
            part for part in (run.model, run.url, run.study and f"study {run.study}") if part
        ),
        run.workload,
        when(run.began_unix_s),
    ]
    state = str((run.verdict or {}).get("state") or "")
    if run.state in ("failed", "invalid", "aborted"):
        badge = pill("fail", f"✘ {run.state}", big=True)
    elif run.slos and state in BIG:
        badge = pill(state, BIG[state], big=True)
    else:
        badge = pill("", "no SLO given", big=True)
    return head(title, lines, badge)


def _doubts(run: Run) -> str:
    reason = run.invalid_reason or (run.failure_reason if run.state != "ok" else "")
    invalid = [f"{run.state}: {reason.splitlines()[0]}"] if reason else []
    early = [f"ended early: {run.ended_why}"] if run.ended_why else []
    return callout("bad", invalid) + callout("warn", [*early, *run.notes])


def _summary_lead(run: Run) -> str:
    counts, sent = run.counts, run.counts.get("sent", 0)
    return (
        f"Window of {run.window_s[1] - run.window_s[0]:.1f} s: {sent:,} {noun(sent, 'request')}, "
        f"{counts.get('ok', 0):,} ok, {counts.get('failed', 0):,} failed, "
        f"{counts.get('censored', 0):,} still running at cut-off; {counts.get('warmup', 0):,} "
        "outside it and not counted. Small figures: 95 % interval and samples."
    )


def _tiles(run: Run) -> str:
    figures = run.figures
    made = []
    for key, name in TILES:
        estimate = figures.get(key)
        if estimate is None:
            continue
        value = show(estimate.value, estimate.unit) if estimate.measured else "no data"
        under = f"{range_text(estimate)} · n {estimate.n:,}" if estimate.measured else ""
        made.append(
            f'<div class="panel tile"><div class="name">{escape(name)}</div>'
            f'<div class="value">{escape(value)}</div>'
            f'<div class="range">{escape(under or estimate.reason)}</div></div>'
        )
    return f'<div class="tiles">{"".join(made)}</div>' if made else ""


def _slos(run: Run) -> str:
    told = (run.verdict or {}).get("clauses") or []
    if not told:
        return ""
    ops = {clause.text: clause for clause in parse_slos([run.slos]).clauses} if run.slos else {}
    rows = []
    for clause in told:
        estimate = Estimate.from_dict(clause["estimate"])
        known = ops.get(clause["clause"])
        drawn = charts.interval(
            estimate.value, estimate.low, estimate.high, clause["bound"],
            known is None or known.upper, estimate.unit,
        )  # fmt: skip
        value = show(estimate.value, estimate.unit)
        rows.append([
            escape(clause["clause"]), pill(clause["state"]), escape(value),
            escape(range_text(estimate)), f"{estimate.n:,}", drawn,
            escape(clause.get("reason") or ""),
        ])  # fmt: skip
    header = ("clause", "", "measured", "95 % interval", "n", "", "")
    return panel(table(header, rows, ("key", "", "num", "num dim", "num dim", "", "dim wrap")))


def _distributions(run: Run, frame: Frame, clauses: Sequence[Clause]) -> str:
    panels = []
    for metric, title in charts.LATENCIES.items():
        if metric in run.unknown:
            panels.append(panel("", title, f"not measured: {run.unknown[metric]}"))
            continue
        values = frame.latencies(metric)
        drawn = charts.distribution(metric, [("", values)], clauses)
        told = [
            f"{stat} {show(found.value, found.unit)}"
            for stat in ("p50", "p95", "p99")
            if (found := run.figures.get(f"{metric}_{stat}")) is not None and found.measured
        ]
        panels.append(panel(drawn, title, " · ".join([*told, f"n {len(values):,}"])))
    return in_twos(panels)


def _over_time(run: Run, frame: Frame, clauses: Sequence[Clause]) -> str:
    window, server = run.window_s, run.server
    many = int(np.isfinite(frame.first).sum()) > series.MOST_DOTS
    ttft = (
        [("c1", f"median and 5–95 % band of {series.BINS} slices; dots: the "
                f"{series.SLOWEST_DOTS} slowest")]
        if many
        else [("c1", "one request")]
    )  # fmt: skip
    if frame.failed.any():
        ttft.append(("cbad", "failed"))
    flying = [("c1", "in flight (client)")]
    if ((server or {}).get("series") or {}).get("at_s"):
        flying += [("c3", "running (server)"), ("c2", "waiting (server)")]
    parts = [
        panel(legend(ttft) + charts.ttft_over_time(frame, window, clauses), "Time to first token"),
        panel(charts.throughput_over_time(frame, window), "Output tokens per second"),
        panel(legend(flying) + charts.flight_over_time(frame, window, server), "Requests"),
    ]
    kv = charts.kv_over_time(frame, window, server or {})
    if kv:
        parts.append(panel(kv, "KV cache in use (server)"))
    return stacked(parts)


def _slowest(run: Run, frame: Frame) -> str:
    chosen = series.slowest(frame)
    if not len(chosen):
        return ""
    whole = float((frame.end - frame.scheduled)[chosen[0]])
    rows = []
    for i in chosen.tolist():
        scheduled, sent = float(frame.scheduled[i]), float(frame.sent[i])
        first, end = float(frame.first[i]), float(frame.end[i])
        first = end if np.isnan(first) else first
        sent = scheduled if np.isnan(sent) else sent
        phases = [
            (sent - scheduled, "phase-wait", f"waited to be sent: {show(sent - scheduled, 's')}"),
            (first - sent, "phase-first", f"to the first token: {show(first - sent, 's')}"),
            (end - first, "phase-decode", f"decoding: {show(end - first, 's')}"),
        ]
        rows.append([
            str(run.columns["index"][i]), show(scheduled, "s"), show(end - scheduled, "s"),
            show(first - scheduled, "s"), f"{frame.prompt[i]:.0f}", f"{frame.output[i]:.0f}",
            bars(phases, whole),
        ])  # fmt: skip
    key = legend([("c2", "waiting to be sent"), ("c1", "to the first token"), ("c3", "decoding")])
    header = ("request", "scheduled at", "E2E", "TTFT", "prompt tokens", "output tokens", "")
    return panel(key + table(header, rows, ("num", "num", "num", "num", "num", "num", "")))


def _failures(run: Run, frame: Frame) -> str:
    """Each reason with its count, its first time and its HTTP status; all of the run."""
    rows_of: dict[str, list[int]] = {}
    for i in np.flatnonzero(frame.failed).tolist():
        reason = str(run.columns["error"][i]) or "no reason given"
        rows_of.setdefault(reason, []).append(i)
    if not rows_of:
        return ""
    commonest = sorted(rows_of.items(), key=lambda item: -len(item[1]))
    status = run.columns.get("http_status", [0] * run.count)
    rows = [
        [
            f"{len(at):,}", escape(", ".join(sorted({str(status[i]) for i in at if status[i]}))),
            show(float(frame.scheduled[at].min()), "s"),
            show(float(frame.scheduled[at].max()), "s"), escape(reason[:400]),
        ]
        for reason, at in commonest[:12]
    ]  # fmt: skip
    if len(commonest) > 12:
        rows.append(["", "", "", "", f"and {len(commonest) - 12} other reasons"])
    header = ("requests", "HTTP", "first at", "last at", "reason")
    return panel(table(header, rows, ("num", "num", "num", "num", "wrap")))


def _figures(run: Run) -> str:
    rows = []
    for key, estimate in run.figures.items():
        if not estimate.measured:
            rows.append([key, "no data", "", "0", escape(estimate.reason)])
            continue
        rows.append([
            escape(key), show(estimate.value, estimate.unit), range_text(estimate),
            f"{estimate.n:,}", escape(estimate.method),
        ])  # fmt: skip
    return table(("figure", "value", "95 % interval", "n", "method"), rows,
                 ("key", "num", "num", "num", "dim wrap"))  # fmt: skip
