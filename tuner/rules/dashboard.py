"""A Grafana dashboard of the SLO rules and of the signals that the diagnosis reads.

Invariant: queries come from the registry of signals and the questions of storage/sources/promql,
units from the registry; a signal's older names stand behind `or`, so that a rename empties nothing;
what the engine does not export has no panel.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from storage.sources import promql
from tuner.diagnosis.registry import BREAKDOWNS, SPECS, BreakdownSpec, Dialect, SignalSpec
from tuner.rules.groups import ATTAINMENT, BAD, BUDGET_LEFT, RuleSet
from tuner.rules.scope import Scope

RATE_WINDOW = "$__rate_interval"
"""Grafana's own: at least four scrape intervals of the data source."""

_PLACEHOLDER_S = 60.0
_UNITS = {"s": "s", "share": "percentunit", "requests": "suffix:req", "tokens": "suffix:tok",
          "events": "suffix:events", "steps": "suffix:steps"}  # fmt: skip
"""Grafana's own units where it scales them, else what is written behind the number."""
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 24

_SPEC: dict[str, SignalSpec] = {spec.name: spec for spec in SPECS}
_SPLIT: dict[str, BreakdownSpec] = {spec.name: spec for spec in BREAKDOWNS}


@dataclass(frozen=True, slots=True)
class Panel:
    """signals by the registry's names; per_second: counters are shown as rates."""

    title: str
    about: str
    signals: tuple[str, ...]
    per_second: bool = False


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Latency",
        (
            Panel("TTFT", "Arrival to first token.", ("ttft_p50", "ttft_p95", "ttft_p99")),
            Panel("Inter-token latency", "Between outputs.", ("itl_p50", "itl_p95", "itl_p99")),
            Panel("Where TTFT goes", "Means: waiting, then reading the prompt.",
                  ("queue", "prefill")),
        ),
    ),
    (
        "Load",
        (
            Panel("Requests", "In the batch and waiting for a place.", ("running", "waiting")),
            Panel("Tokens", "Generated and read.", ("generated", "prompted"), per_second=True),
            Panel("Ended by reason", "abort and error count as bad.", ("finished_by",),
                  per_second=True),
        ),
    ),
    (
        "What binds",
        (
            Panel("KV cache used", "The fullest replica.", ("kv_usage",)),
            Panel("Preemptions and refusals", "Work lost, requests turned away.",
                  ("preemptions", "rejections"), per_second=True),
            Panel("Steps by binding limit", "slotune's engine only.", ("binding",),
                  per_second=True),
        ),
    ),
)  # fmt: skip


def dashboard_text(rules: RuleSet) -> str:
    return json.dumps(dashboard(rules), indent=1) + "\n"


def dashboard(rules: RuleSet) -> dict[str, Any]:
    """Grafana's JSON model."""
    panels: list[dict[str, Any]] = []
    rows = [("SLO", _slo_panels(rules))]
    rows += [(title, [*filter(None, (_panel(p, rules) for p in row))]) for title, row in ROWS]
    y = 0
    for title, row in rows:
        panels.append({"type": "row", "title": title, "collapsed": False,
                       "gridPos": {"h": 1, "w": _COLUMNS, "x": 0, "y": y}})  # fmt: skip
        for index, panel in enumerate(row):
            place = {"h": _HEIGHT, "w": _WIDTH, "x": index * _WIDTH, "y": y + 1}
            panels.append(panel | {"gridPos": place})
        y += 1 + _HEIGHT
    for number, panel in enumerate(panels, start=1):
        panel["id"] = number
    return {
        "title": "slotune", "uid": "slotune", "tags": ["llm", "slo"], "schemaVersion": 39,
        "editable": True, "refresh": "30s", "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus",
             "label": "Prometheus"},
        ]},
        "panels": panels,
    }  # fmt: skip


def _slo_panels(rules: RuleSet) -> list[dict[str, Any]]:
    own = Scope(rules.scope.labels)
    clauses = "; ".join(f"{sli.clause.text}: {sli.bad_is}" for sli in rules.slis)
    window = rules.budget_window
    return [
        _drawn(f"Attainment over {window}", clauses, "percentunit",
               [(own.series(ATTAINMENT), "{{slo}} {{model_name}}")]),
        _drawn(f"Error budget left of {window}", "Below 0 it is overspent.", "percentunit",
               [(own.series(BUDGET_LEFT), "{{slo}} {{model_name}}")]),
        _drawn("Bad events, 5 min and 1 h", "Shares; no line where there is no traffic.",
               "percentunit",
               [(own.series(f"{BAD}{w}"), f"{{{{slo}}}} {w}") for w in ("5m", "1h")]),
    ]  # fmt: skip


def _panel(panel: Panel, rules: RuleSet) -> dict[str, Any] | None:
    """None where the engine exports none of its signals."""
    dialect = rules.counters.dialect
    there = [name for name in panel.signals if _spec(name).names(dialect)]
    if not there:
        return None
    targets = [_target(name, panel, rules.scope, dialect) for name in there]
    about = f"{panel.about} Per second." if panel.per_second else panel.about
    unit = _UNITS[_spec(there[0]).unit] + ("/s" if panel.per_second else "")
    return _drawn(panel.title, about, unit, targets)


def _spec(signal: str) -> SignalSpec | BreakdownSpec:
    return _SPEC.get(signal) or _SPLIT[signal]


def _target(signal: str, panel: Panel, scope: Scope, dialect: Dialect) -> tuple[str, str]:
    """(query, legend): the registry's names in order, joined by `or`."""
    names = _spec(signal).names(dialect)
    if signal in _SPLIT:
        by = _SPLIT[signal].by
        queries = [
            f"sum by ({by}) (rate({promql.selector(name, scope.labels, _PLACEHOLDER_S)}))"
            for name in names
        ]
        legend = f"{{{{{by}}}}}"
    else:
        spec = _SPEC[signal]
        queries = [_question(spec, name, scope, panel.per_second) for name in names]
        legend = signal.replace("_", " ")
    window = promql.duration(_PLACEHOLDER_S)
    return " or ".join(queries).replace(f"[{window}]", f"[{RATE_WINDOW}]"), legend


def _question(spec: SignalSpec, name: str, scope: Scope, per_second: bool) -> str:
    labels = {**scope.labels, **spec.labels_of(name)}
    match spec.kind:
        case "gauge_sum":
            return promql.gauge(name, labels, "sum")
        case "gauge_max":
            return promql.gauge(name, labels, "max")
        case "mean":
            return promql.mean(name, _PLACEHOLDER_S, labels)
        case "quantile":
            return promql.quantile(name, spec.q or 0.5, _PLACEHOLDER_S, labels)
        case "rate_max":
            by = f"sum by ({spec.by})"
            return f"max({by} (rate({promql.selector(name, labels, _PLACEHOLDER_S)})))"
        case "rate" | "increase":
            ask = promql.rate if per_second or spec.kind == "rate" else promql.increase
            return ask(name, _PLACEHOLDER_S, labels)


def _drawn(title: str, about: str, unit: str, targets: list[tuple[str, str]]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": "timeseries", "title": title, "description": about, "datasource": source,
        "fieldConfig": {"defaults": {"unit": unit, "custom": {"spanNulls": False}},
                        "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"},
                    "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": source, "expr": expr,
             "legendFormat": legend}
            for index, (expr, legend) in enumerate(targets)
        ],
    }  # fmt: skip
