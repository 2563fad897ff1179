"""Overview: what the engine does now, in one screen, every figure with window and samples.

Figures tick in one fragment, charts in another with a slower beat; neither reruns the page.
"""

from __future__ import annotations

import time

import streamlit as st

from dashboard import live, markup
from dashboard.budget_watch import FIRST_BEAT_S
from dashboard.connect import budget_watch, metric_source
from dashboard.format import duration, number, provenance, scaled, show
from dashboard.judge import LatencySlo, latency_slos, unjudged
from dashboard.live import Snapshot
from dashboard.settings import current
from dashboard.views import budget, live_charts
from storage.sources.base import MetricSource, Outcome, Reading
from tuner.units import noun

WINDOWS_S = {
    "1 min": 60.0, "5 min": 300.0, "15 min": 900.0, "1 h": 3600.0, "6 h": 21_600.0,
    "1 d": 86_400.0, "3 d": 259_200.0,
}  # fmt: skip
"""Those beyond 15 min are the windows of burn rates, from the history or a Prometheus."""

LATENCY_NAMES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2e": "End to end",
    "queue": "Queue",
    "prefill": "Prefill",
}
LATENCY_MEANING = {
    "ttft": "arrival → first token",
    "tpot": "per request, after the first token",
    "itl": "between consecutive tokens",
    "e2e": "arrival → end",
    "queue": "queued → first scheduled",
    "prefill": "first scheduled → first token",
}
LIMITS = {
    "kv_pressure": ("s0", "KV cache: preempting, or nearly full with requests waiting"),
    "seq_cap": ("s1", "max_num_seqs: every slot taken with requests waiting"),
    "token_budget": ("s2", "chunk_size: the step's token budget is used up"),
    "deferred": ("s3", "deferred: waiting for adapters, transfers or grammars"),
    "underloaded": ("s4", "no limit of the scheduler holds a request back"),
    "other": ("neutral", "none of the known limits"),
}
LIMIT_NAMES = {"underloaded": "no limit binds"}
"""How a reason is shown: without a limit a device may yet be busy, and requests may wait."""


def page() -> None:
    source = metric_source()
    if source is None:
        st.html(
            markup.message(
                "No target",
                "Start with `dashboard serve --url http://127.0.0.1:8000` to watch an engine, or "
                "with --prometheus URL. Studies are shown without a target.",
            )
        )
        return
    window_s = _window(source)
    st.fragment(_figures, run_every=current().refresh_s)(source, window_s)
    if (watch := budget_watch()) is not None:
        st.fragment(budget.draw, run_every=FIRST_BEAT_S)(watch)
    st.fragment(live_charts.draw, run_every=max(5.0, current().refresh_s))(source, window_s)


def _window(source: MetricSource) -> float:
    """The window the user chose, never shorter than four scrapes."""
    bar = st.container(
        horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"
    )
    title = bar.empty()
    chosen = bar.segmented_control(
        "Window",
        list(WINDOWS_S),
        default="1 min",
        label_visibility="collapsed",
        key="window",
        width="content",
    )
    window_s = max(WINDOWS_S[chosen or "1 min"], 4 * source.scrape_interval_s)
    title.html(markup.heading("Overview", f"rates and latencies over at most {duration(window_s)}"))
    return window_s


def _figures(source: MetricSource, window_s: float) -> None:
    snapshot = live.take(source, window_s)
    blocks = [_status_line(snapshot)]
    if not snapshot.status.up:
        blocks.append(_down(snapshot))
    blocks += [markup.tiles(_tiles(snapshot)), _binding(snapshot), _latency_table(snapshot)]
    st.html('<div class="stack">' + "".join(blocks) + "</div>")


def _status_line(snapshot: Snapshot) -> str:
    status, identity = snapshot.status, snapshot.identity
    state = markup.pill("up", "good") if status.up else markup.pill("down", "bad")
    pairs = [("target", f'<span class="mono">{markup.escape(current().target)}</span>')]
    for name, known in (("engine", identity.engine), ("model", ", ".join(identity.models))):
        if known or status.up:
            pairs.append((name, markup.escape(known or "unknown")))
    if status.process_start_s:
        pairs.append(("running for", duration(snapshot.at_s - status.process_start_s)))
    age = "–" if status.age_s is None else duration(status.age_s)
    stale = status.age_s is not None and status.age_s > 3 * status.scrape_interval_s
    pairs.append(("data age", markup.pill(age, "warn") if stale else markup.escape(age)))
    pairs.append(("read every", duration(status.scrape_interval_s)))
    pairs.append(("at", time.strftime("%H:%M:%S UTC", time.gmtime(snapshot.at_s))))
    return f'<div class="statusline">{state}{markup.definition(pairs)}</div>'


def _down(snapshot: Snapshot) -> str:
    reason = snapshot.status.reason or "the last read failed"
    return markup.message(
        "The target does not answer",
        f"{markup.sentence(reason)} Reading goes on; figures return by themselves when it does.",
        "bad",
    )


def _tiles(snapshot: Snapshot) -> list[str]:
    cap = snapshot.identity.max_num_seqs
    of_cap = "" if cap is None else f'<span class="of">of {cap:,.0f}</span>'

    def tile(
        label: str,
        reading: Reading,
        unit: str,
        note: str = "",
        extra: str = "",
        of: str = "",
        rate: bool = False,
    ) -> str:
        told_above = reading.outcome is Outcome.UNREACHABLE
        provided = "" if told_above else provenance(reading, of=of, rate=rate)
        text = f"{provided} · {note}" if note and reading.ok else provided
        extra = extra if reading.ok else ""
        hover = reading.query if reading.ok else f"{reading.reason} {reading.query}".strip()
        return markup.tile(label, show(reading, unit), text, hover, extra)  # type: ignore[arg-type]

    return [
        tile("Running", snapshot.running, "seq", extra=of_cap),
        tile("Waiting", snapshot.waiting, "req"),
        tile("KV cache in use", snapshot.kv_usage, "ratio", _kv_size(snapshot)),
        tile("Requests finished", snapshot.finished, "req/s", of="request", rate=True),
        tile("Prompt tokens", snapshot.prompt_rate, "tok/s", of="token", rate=True),
        tile("Generated tokens", snapshot.generation_rate, "tok/s", of="token", rate=True),
        tile("Prefix cache hits", snapshot.prefix_hit_rate, "ratio", of="looked-up token"),
        tile("Preemptions", snapshot.preemptions, "events"),
    ]


def _kv_size(snapshot: Snapshot) -> str:
    tokens = snapshot.identity.kv_tokens
    return "" if tokens is None else f"of {number(tokens)} tok"


def _binding(snapshot: Snapshot) -> str:
    meanings = {LIMIT_NAMES.get(name, name): text for name, (_, text) in LIMITS.items()}
    shares = live.binding_shares(snapshot.binding)
    window = f"share of steps, last {duration(snapshot.window_s)}"
    if not snapshot.binding:
        text = (
            "not exported by this engine (slotune:step_binding_limit); the diagnosis page infers it"
            if snapshot.status.up
            else "no data"
        )
        return _panel("Binding limit", window, f'<span class="sub">{text}</span>')
    if not shares:
        return _panel("Binding limit", window, '<span class="sub">no traffic: no step ran</span>')
    shares = [(LIMIT_NAMES.get(name, name), share) for name, share in shares]
    name, share = shares[0]
    meaning = meanings.get(name, name)
    steps = sum(reading.value or 0 for reading in snapshot.binding.values() if reading.ok)
    tones = {LIMIT_NAMES.get(reason, reason): tone for reason, (tone, _) in LIMITS.items()}
    body = (
        f"<div><b>{markup.escape(name)}</b> {share * 100:.0f} % "
        f'<span class="sub">{markup.escape(meaning)}</span></div>'
        + markup.stacked_bar(shares, tones)
    )
    return _panel("Binding limit", f"{window} · n={steps:,.0f} {noun(round(steps), 'step')}", body)


def _panel(title: str, note: str, body: str) -> str:
    return (
        f'<div class="panel"><div class="head"><b>{markup.escape(title)}</b>'
        f'<span class="sub">{markup.escape(note)}</span></div>{body}</div>'
    )


def _latency_table(snapshot: Snapshot) -> str:
    slos = latency_slos(current().slos)
    head = ["Latency, by the engine", "mean", "p50", "p95", "p99", "n", "SLO", "attained", "now"]
    rows = [_latency_row(latency, slos) for latency in snapshot.latencies.values()]
    left_out = unjudged(current().slos)
    note = (
        f'<div class="sub">Not judged from live metrics: {markup.escape(", ".join(left_out))}. '
        "<code>tuner bench</code> judges every clause per request.</div>"
        if left_out
        else ""
    )
    told = (
        '<div class="sub">n: observations of the window; brackets: 95 % interval of the share, by '
        "the buckets that divide it</div>"
    )
    return markup.table(head, rows, numeric=(1, 2, 3, 4, 5, 7)) + told + note


def _latency_row(latency: live.Latency, slos: list[LatencySlo]) -> list[str]:
    name = LATENCY_NAMES[latency.name]
    meaning = LATENCY_MEANING[latency.name]
    mine = [slo for slo in slos if slo.name == latency.name]
    cells = [f'{name} <span class="sub">{meaning}</span>', markup.shown(show(latency.mean, "s"))]
    cells.extend(
        markup.shown(show(reading, "s")) if latency.mean.ok else ""
        for reading in latency.quantiles.values()
    )
    cells.append(f"{latency.mean.samples:,}" if latency.mean.ok else "–")
    cells.append(
        "<br>".join(markup.escape(slo.text) for slo in mine) or '<span class="sub">–</span>'
    )
    cells.append("<br>".join(_attained(latency, slo) for slo in mine))
    cells.append("<br>".join(markup.pill(*slo.verdict(latency)) for slo in mine))
    return cells


def _attained(latency: live.Latency, slo: LatencySlo) -> str:
    share = live.attainment(latency.buckets, slo.bound_s)
    if share is None:
        return "–"
    low, high = (scaled(edge, "ratio")[0] for edge in share)
    text = f"{low} %" if low == high else f"{low}–{high} %"
    ends = slo.attained_interval(latency)
    if ends is None:
        return text
    start, end = (scaled(edge, "ratio")[0] for edge in ends)
    return f'{text} <span class="ci nowrap">({start} … {end})</span>'
