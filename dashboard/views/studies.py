"""Studies: what was tried, what it gave, what to run. Reads only; a running study is shown live.

The page never holds a session open between ticks, so it cannot be in a running study's way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard import charts, history, markup
from dashboard.connect import Unavailable, database
from dashboard.format import duration, interval, quantity
from dashboard.history import Objective, Point
from storage import Database, Study

STATE_TONES = {"running": "info", "done": "good", "stopped": "warn", "failed": "bad"}
OUTCOME_TONES = {
    "feasible": "good",
    "infeasible": "bad",
    "inconclusive": "warn",
    "unjudged": "neutral",
    "failed": "bad",
    "invalid": "neutral",
}
RUNNING_REFRESH_S = 3.0
IDLE_REFRESH_S = 15.0
FIGURES = {
    "output_tps": "Output tokens",
    "total_tps": "Prompt and output tokens",
    "rps": "Requests completed",
    "goodput": "Requests within the SLOs",
    "error_rate": "Errors",
    "attainment": "Share within the SLOs",
}


def page() -> None:
    opened = database()
    if isinstance(opened, Unavailable):
        st.html(markup.heading("Studies"))
        st.html(markup.message(opened.title, opened.hint))
        return
    st.fragment(_list, run_every=IDLE_REFRESH_S)(opened)
    studies = _newest_first(opened.list_studies())
    if not studies:
        return
    names = [study.name for study in studies]
    asked = st.query_params.get("study")
    chosen = st.selectbox(
        "Study shown below",
        names,
        index=names.index(asked) if asked in names else 0,
        key="study",
        width=460,
        label_visibility="collapsed",
    )
    study = next(study for study in studies if study.name == chosen)
    st.query_params["study"] = chosen
    beat_s = RUNNING_REFRESH_S if study.state == "running" else None
    st.fragment(_study, run_every=beat_s)(opened, study.id)


def _newest_first(studies: Sequence[Study]) -> list[Study]:
    return sorted(studies, key=lambda study: -study.created_at_s)


def _list(opened: Database) -> None:
    studies = _newest_first(opened.list_studies())
    st.html(markup.heading("Studies", f"{len(studies)} in the database"))
    if not studies:
        st.html(
            markup.message(
                "No study yet",
                'Run `tuner optimize --slo "ttft_p95<500ms"` or `tuner sweep`; '
                "it appears here as soon as it starts.",
            )
        )
        return
    head = ["Study", "state", "started", "took", "measured", "objective", "SLOs", "result"]
    rows = [_list_row(opened, study) for study in studies]
    st.html(markup.table(head, rows, numeric=(3, 4)))


def _list_row(opened: Database, study: Study) -> list[str]:
    objective = history.parse_objective(study.objective)
    found = history.points(opened.list_measurements(study_id=study.id), objective)
    without = sum(point.objective.value is None for point in found)
    failed = f' <span class="sub">{without} failed</span>' if without else ""
    end_s = time.time() if study.state == "running" else study.updated_at_s
    return [
        f"<b>{markup.escape(study.name)}</b>",
        markup.pill(study.state, STATE_TONES.get(study.state, "neutral")),
        time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(study.created_at_s)),
        duration(end_s - study.created_at_s),
        f"{len(found)}{failed}",
        markup.escape(study.objective or "–"),
        markup.escape(slo_text(study.slos) or "–"),
        _outcome_text(study, found, objective),
    ]


def _outcome_text(study: Study, found: Sequence[Point], objective: Objective) -> str:
    best = history.best_so_far(found, objective)
    if best is None:
        return '<span class="sub">no configuration met the SLOs</span>' if found else "–"
    figure = quantity(best.objective.value, objective.unit)
    word = "best so far" if study.state == "running" else "best"
    return (
        f'{markup.escape(figure)} <span class="sub">{word}: '
        f"{markup.escape(history.config_text(best.config))}</span>"
    )


def slo_text(slos: Any) -> str:
    return slos if isinstance(slos, str) else ", ".join(slos or ())


def _study(opened: Database, study_id: int) -> None:
    study = next((s for s in opened.list_studies() if s.id == study_id), None)
    if study is None:
        st.html(markup.message("This study is gone", "It was deleted from the database.", "warn"))
        return
    objective = history.parse_objective(study.objective)
    found = history.points(opened.list_measurements(study_id=study.id), objective)
    st.html('<div class="stack">' + _facts(study) + "</div>")
    if not found:
        text = (
            "The first measurement is running." if study.state == "running" else "It ended empty."
        )
        st.html(markup.message("No measurement yet", text, "info"))
        return
    _chart(found, objective)
    _comparison(study, found, objective)
    _without_result(found)
    _all_measurements(found, objective)


def _facts(study: Study) -> str:
    pairs = [
        ("objective", markup.escape(study.objective or "–")),
        ("SLOs", markup.escape(slo_text(study.slos) or "–")),
        ("seed", markup.escape(str(study.seed if study.seed is not None else "–"))),
        ("searched", markup.escape(_space_text(study.space))),
    ]
    state = markup.pill(study.state, STATE_TONES.get(study.state, "neutral"))
    line = f'<div class="statusline">{state}{markup.definition(pairs)}</div>'
    if study.command:
        line += f'<div class="cmd">$ {markup.escape(study.command)}</div>'
    return line


def _space_text(space: Any) -> str:
    if not isinstance(space, dict) or not space:
        return "–"
    parts = []
    for name, bounds in space.items():
        if isinstance(bounds, dict) and "low" in bounds:
            parts.append(f"{name} {bounds['low']:g}…{bounds['high']:g}")
        elif isinstance(bounds, (list, tuple)):
            parts.append(f"{name} {', '.join(str(value) for value in bounds)}")
        else:
            parts.append(str(name))
    return " · ".join(parts)


def _chart(found: Sequence[Point], objective: Objective) -> None:
    base = history.baseline(found)
    failed = sum(point.objective.value is None for point in found)
    note = "line: best that meets the SLOs so far; dashed: baseline; bars: 95 % interval"
    if failed:
        note += f"; {failed} without a result lie on the axis"
    st.html(markup.heading("History", note))
    with st.container(border=True, key="panel-history"):
        st.altair_chart(
            charts.study_history(found, objective, base.objective.value if base else None),
            width="stretch",
            key="history",
        )


def _comparison(study: Study, found: Sequence[Point], objective: Objective) -> None:
    base = history.baseline(found)
    best = chosen(study, found, objective)
    st.html(markup.heading("Baseline and best", _comparison_note(study)))
    if base is None:
        st.html(markup.message("The baseline has no result", "Nothing to compare with.", "bad"))
        return
    if best is None:
        st.html(
            markup.message(
                "No configuration met the SLOs",
                "The table shows the baseline; loosen an SLO, lower the load or widen the search.",
                "warn",
            )
        )
    columns = [base] + ([best] if best is not None and best is not base else [])
    st.html(_figure_table(columns, objective))
    flags = flag_lines(study)
    for title, line in flags.items():
        st.caption(title)
        st.code(line, language="bash", wrap_lines=True)


def chosen(study: Study, found: Sequence[Point], objective: Objective) -> Point | None:
    """The measurement that stands for the study's answer; while it runs, the best so far."""
    config = (study.result or {}).get("best", {}).get("config") if study.result else None
    if config:
        matching = history.same_config(found, config)
        confirmed = [p for p in matching if p.stage == "confirm" and p.objective.value is not None]
        if confirmed or matching:
            return (confirmed or matching)[-1]
    return history.best_so_far(found, objective)


def _comparison_note(study: Study) -> str:
    return "" if study.state != "running" else "best so far; the study is running"


def flag_lines(study: Study) -> dict[str, str]:
    return dict((study.result or {}).get("flags", {}))


def _figure_table(columns: Sequence[Point], objective: Objective) -> str:
    names = ["baseline", "best", "change"] if len(columns) == 2 else ["baseline"]
    rows = [
        ["Configuration", *(_config_cell(point) for point in columns)],
        ["SLOs", *(_outcome_cell(point) for point in columns)],
    ]
    rows += [
        [_figure_name(name), *(_figure_cell(point, name) for point in columns)]
        for name in _figures_shown(columns, objective)
    ]
    if len(columns) == 2:
        shown = _figures_shown(columns, objective)
        changes = ["", "", *(_change(*columns, name) for name in shown)]
        rows = [[*row, change] for row, change in zip(rows, changes, strict=True)]
    return markup.table(["", *names], rows, numeric=(3,))


def _change(base: Point, best: Point, name: str) -> str:
    """Relative change of the values; nothing where it would divide by zero or infinity."""
    old, new = (point.figures.get(name) for point in (base, best))
    if old is None or new is None or not old.value or new.value is None:
        return ""
    if not (math.isfinite(old.value) and math.isfinite(new.value)):
        return ""
    return f"{(new.value / old.value - 1) * 100:+.1f} %"


def _config_cell(point: Point) -> str:
    return f'<span class="mono">{markup.escape(history.config_text(point.config))}</span>'


def _outcome_cell(point: Point) -> str:
    pill = markup.pill(point.outcome, OUTCOME_TONES[point.outcome])
    return f'{pill} <span class="sub">{markup.escape(point.reason)}</span>'


def _figures_shown(columns: Sequence[Point], objective: Objective) -> list[str]:
    """The objective first, then rates, then latencies at p50, p95 and p99."""
    present = {name for point in columns for name in point.figures}
    latencies = [
        f"{name}_{stat}"
        for name in ("ttft", "tpot", "itl", "e2e")
        for stat in ("p50", "p95", "p99")
    ]
    order = [objective.metric, *FIGURES, *latencies]
    return [name for name in dict.fromkeys(order) if name in present]


def _figure_name(name: str) -> str:
    metric, _, stat = name.partition("_")
    title = FIGURES.get(name) or f"{metric.upper() if metric != 'e2e' else 'End to end'} {stat}"
    return f'{markup.escape(title)} <span class="sub">{markup.escape(name)}</span>'


def _figure_cell(point: Point, name: str) -> str:
    figure = point.figures.get(name)
    if figure is None:
        return "–"
    unit = figure.unit or history.UNITS.get(name, "s")
    text = interval(figure.value, figure.low, figure.high, unit)
    main, _, rest = text.partition(" (")
    spread = f' <span class="ci">({markup.escape(rest)}</span>' if rest else ""
    count = f' <span class="ci">n={figure.n:,}</span>' if figure.n else ""
    return f"{markup.escape(main)}{spread}{count}"


def _without_result(found: Sequence[Point]) -> None:
    failed = [point for point in found if point.objective.value is None]
    if not failed:
        return
    st.html(markup.heading("Without a result", "never scored; each with its reason"))
    rows = [
        [
            str(point.order),
            point.stage,
            _config_cell(point),
            markup.pill(point.outcome, OUTCOME_TONES[point.outcome]),
            markup.escape(point.reason or "no figure for the objective"),
        ]
        for point in failed
    ]
    st.html(markup.table(["#", "stage", "configuration", "state", "reason"], rows, numeric=(0,)))


def _all_measurements(found: Sequence[Point], objective: Objective) -> None:
    with st.expander(f"All {len(found)} measurements", key="all-measurements"):
        head = ["#", "stage", "at", "took", "configuration", objective.metric, "SLOs", "reason"]
        rows = [
            [
                str(point.order),
                point.stage,
                time.strftime("%H:%M:%S", time.gmtime(point.started_at_s)),
                "–" if point.duration_s is None else duration(point.duration_s),
                _config_cell(point),
                _figure_cell(point, objective.metric),
                markup.pill(point.outcome, OUTCOME_TONES[point.outcome]),
                f'<span class="sub">{markup.escape(point.reason)}</span>',
            ]
            for point in found
        ]
        st.html(markup.table(head, rows, numeric=(0, 3)))
