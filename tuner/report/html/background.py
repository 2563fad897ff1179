"""What stands behind a run's figures: the server's own account, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from tuner.exchange.run import Run, settings_text
from tuner.report.html.page import facts, panel, pill, table, when
from tuner.server_side import ServerSide, crosscheck
from tuner.units import show


def server_panel(run: Run) -> str:
    """What the server counted, beside what the load generator did."""
    server = ServerSide.from_dict(run.server)
    if server is None:
        return panel('<span class="dim">The server exported no metrics, or none were read.</span>')
    rows = [
        [
            escape(check.name), _plain(check.client, check.unit), _plain(check.server, check.unit),
            f"{100 * check.difference:+.1f} %" if np.isfinite(check.difference) else "∞",
            pill("pass", "✔ agrees") if check.agrees else pill("inconclusive", "? differs"),
            escape(check.likely_cause),
        ]
        for check in crosscheck(run.records, server)
    ]  # fmt: skip
    header = ("whole run, warm-up included", "client", "server", "difference", "", "")
    checked = table(header, rows, ("", "num", "num", "num", "", "dim wrap"))
    told = facts([
        ("preemptions", _plain(server.preemptions)),
        ("prefix-cache hits", _plain(server.prefix_hit_rate, "share")),
        ("mean queue", _plain(server.queue_mean_s, "s")),
        ("aborted by the client", _plain(server.aborted)),
        ("read from", server.source),
    ])  # fmt: skip
    return panel(checked + f'<div class="after">{told}</div>')


def _plain(value: float | None, unit: str = "") -> str:
    if value is None:
        return "" if unit != "tok" else "–"
    return show(value, unit) if unit in ("s", "share") else f"{value:,.0f}"


def provenance_facts(run: Run, extra: Sequence[tuple[str, str]]) -> str:
    source = run.source
    lag = run.lag_p99_s
    pairs: list[tuple[str, object]] = [
        ("run", run.run_id), ("study", run.study), ("stage", run.stage), ("server", run.url),
        ("model", run.model), ("settings", settings_text(run.config)), ("workload", run.workload),
        ("seed", run.seed), ("SLOs", run.slos), ("began", when(run.began_unix_s)),
        ("window", run.window_why or f"{run.window_s[0]:.1f} s to {run.window_s[1]:.1f} s"),
        ("load generator's lag p99", show(lag, "s") if not np.isnan(lag) else "not known"),
        ("imported from", f"{source['format']} {source['version']}" if source else ""),
        ("its file", source.get("file")), ("its load", source.get("load")),
        *_generator(run), *_told(run.target, "target"), *_told(run.summary.get("provenance"), ""),
        *extra,
    ]  # fmt: skip
    return facts(pairs)


def _generator(run: Run) -> list[tuple[str, object]]:
    """What the load generator's own event loops were like in the window."""
    told = run.summary.get("generator") or {}
    shown: list[tuple[str, object]] = [("load generator's processes", told.get("processes"))]
    for name, what, unit in (
        ("stall_p99_s", "event-loop delay p99", "s"),
        ("stall_max_s", "longest event-loop delay", "s"),
        ("busy_share", "busy, of a core", "share"),
    ):  # fmt: skip
        if told.get(name) is not None:
            shown.append((f"load generator's {what}", show(float(told[name]), unit)))
    return shown


def _told(values: Any, prefix: str) -> list[tuple[str, object]]:
    """A dictionary as facts, one level deep."""
    if not isinstance(values, dict):
        return []
    return [
        (f"{prefix} {name}".strip().replace("_", " "), value)
        for name, value in values.items()
        if value not in (None, "", [], {}) and name != "original_config"
    ]
