"""The page of a comparison: every figure of A and B, their ratio with its interval, both curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from tuner.exchange.run import Run, settings_text
from tuner.report.compare import Compared, answer, ratio_text
from tuner.report.html import charts
from tuner.report.html.page import (
    MARKS,
    callout,
    document,
    facts,
    head,
    in_twos,
    legend,
    panel,
    pill,
    range_text,
    section,
    table,
    when,
)
from tuner.report.html.series import Frame
from tuner.report.words import OUTCOMES
from tuner.slo import SloSet
from tuner.stats import Comparison
from tuner.stats.estimate import Estimate
from tuner.units import show

MOST_REACH = 4.0


def _verdict(compared: Compared) -> str:
    """Of all that decides together; no difference only where every figure shows that."""
    found = {compared.outcome(key) for key in compared.deciding}
    if compared.worse:
        return "worse"
    if "improved" in found:
        return "improved"
    return "no_difference" if found == {"no_difference"} else "inconclusive"


def render_compare_html(compared: Compared, slos: SloSet) -> str:
    verdict = _verdict(compared)
    badge = pill(verdict, f"{MARKS.get(verdict, '')} B {OUTCOMES[verdict]}".strip(), big=True)
    title = f"{compared.name_a} against {compared.name_b}"
    body = [
        head(
            title, [f"A  {_side(compared.a)}", f"B  {_side(compared.b)}", answer(compared)], badge
        ),
        callout("warn", list(compared.warnings)),
        section(
            "Figures", panel(_figures(compared)),
            "B / A with its 95 % interval; the mark's line is 1, no difference. For shares the "
            "difference in percentage points.",
        ),
        section(
            "Distributions", _distributions(compared, slos),
            "Cumulative share of all windows' requests; failed and unfinished ones count as longer "
            "than all that is drawn. Dots: p50, p95, p99.",
        ),
        section("The two sides", in_twos([_about("A", compared.a), _about("B", compared.b)])),
    ]  # fmt: skip
    return document(f"slotune · {title}", body)


def _figures(compared: Compared) -> str:
    reach = reach_of(list(compared.figures.values()))
    rows = []
    for key, found in compared.figures.items():
        ratio, interval = ratio_text(found)
        drawn = "" if found.difference is not None else charts.forest(
            found.ratio, found.low, found.high, reach, found.outcome
        )  # fmt: skip
        deciding = key in compared.deciding
        name = f"<b>{escape(key)}</b>" if deciding else escape(key)
        rows.append([
            name, _figure(found.a), _figure(found.b), escape(ratio), escape(interval), drawn,
            pill(found.outcome),
        ])  # fmt: skip
    header = ("figure", "A", "B", "B / A", "95 % interval", "", "")
    return table(header, rows, ("key", "num", "num", "num", "num dim", "", ""))


def _figure(estimate: Estimate | None) -> str:
    if estimate is None or not estimate.measured:
        return "–"
    value = escape(show(estimate.value, estimate.unit))
    return f'{value}<br><span class="dim">{escape(range_text(estimate))} · n {estimate.n:,}</span>'


def reach_of(figures: Sequence[Comparison]) -> float:
    """How far the common axis reaches: the widest finite interval, within bounds."""
    ends = [
        max(abs(math.log(end)) for end in (f.low, f.high) if 0 < end < math.inf)
        for f in figures
        if f.difference is None and any(0 < end < math.inf for end in (f.low, f.high))
    ]
    return max(1.1, min(MOST_REACH, math.exp(1.1 * max(ends, default=0.1))))


def _distributions(compared: Compared, slos: SloSet) -> str:
    frames = {name: [Frame.of(run) for run in runs]
              for name, runs in (("A", compared.a), ("B", compared.b))}  # fmt: skip
    unknown = {metric for run in (*compared.a, *compared.b) for metric in run.unknown}
    panels = []
    for metric, title in charts.LATENCIES.items():
        if metric in unknown:
            continue
        sides = [
            (name, np.concatenate([frame.latencies(metric) for frame in found]))
            for name, found in frames.items()
        ]
        drawn = charts.distribution(metric, sides, slos.clauses)
        key = legend([
            (f"c{number}", f"{name}: {charts.quantile_line(values)}")
            for number, (name, values) in enumerate(sides, 1)
        ])  # fmt: skip
        panels.append(panel(key + drawn, title))
    return in_twos(panels)


def _about(name: str, runs: Sequence[Run]) -> str:
    first = runs[0]
    return panel(
        facts([
            ("runs", ", ".join(run.name for run in runs)), ("study", first.study),
            ("server", first.url), ("model", first.model),
            ("settings", settings_text(first.config)), ("workload", first.workload),
            ("seeds", ", ".join(str(run.seed) for run in runs if run.seed is not None)),
            ("began", when(first.began_unix_s)),
            ("windows", ", ".join(f"{r.window_s[1] - r.window_s[0]:.1f} s" for r in runs)),
            ("imported from", first.source.get("format")),
        ]),
        name,
    )  # fmt: skip


def _side(runs: Sequence[Run]) -> str:
    first = runs[0]
    names = ", ".join(run.name for run in runs)
    return " · ".join(part for part in (names, first.model, first.workload) if part)
