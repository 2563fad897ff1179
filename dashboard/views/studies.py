"""Studies: what was tried, what it gave, what to run. Reads only; a running study is shown live.

The page never holds a session open between ticks, so it cannot be in a running study's way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from dashboard import charts, history, markup
from dashboard.answer import answer_of, verified_answer
from dashboard.chart_intervals import CUT_OFF
from dashboard.connect import Unavailable, database
from dashboard.format import duration, quantity
from dashboard.history import Objective, Point
from dashboard.views import comparison, front, measurements, runs, sweep, verified
from storage import Database, StorageError, Study, Verification
from tuner.exchange.belonging import verified_by_study
from tuner.report.recorded import is_verification

STATE_TONES = {"running": "info", "done": "good", "stopped": "warn", "failed": "bad"}
RUNNING_REFRESH_S = 3.0
IDLE_REFRESH_S = 15.0
UNAVAILABLE_REFRESH_S = 3.0


def page() -> None:
    look = _look()
    st.fragment(_list, run_every=_beat_s(look))(look)
    if isinstance(look, Unavailable) or not look.studies:
        return
    names = [study.name for study in look.studies]
    asked = st.query_params.get("study")
    chosen = st.selectbox(
        "Study shown below",
        names,
        index=names.index(asked) if asked in names else 0,
        key="study",
        width=460,
        label_visibility="collapsed",
    )
    study = next(study for study in look.studies if study.name == chosen)
    st.query_params["study"] = chosen
    beat_s = RUNNING_REFRESH_S if study.state == "running" else None
    st.fragment(_study, run_every=beat_s)(study.id)


@dataclass(frozen=True, slots=True)
class Look:
    """The database and its studies, newest first, as one tick found them."""

    opened: Database
    studies: list[Study]


def _look() -> Look | Unavailable:
    """A database that is lost between two ticks is a sentence on the page, never a fault of it."""
    opened = database()
    if isinstance(opened, Unavailable):
        return opened
    try:
        return Look(opened, _newest_first(opened.list_studies()))
    except StorageError as fault:
        return _lost(fault)


def _lost(fault: StorageError) -> Unavailable:
    return Unavailable("The database cannot be read", f"{fault}. This page keeps trying.")


def _say_lost(fault: StorageError) -> None:
    told = _lost(fault)
    st.html(markup.message(told.title, told.hint, "bad"))


def _beat_s(look: Look | Unavailable) -> float:
    return UNAVAILABLE_REFRESH_S if isinstance(look, Unavailable) else IDLE_REFRESH_S


def _signature(look: Look | Unavailable) -> tuple[object, ...]:
    """What the page around the list depends on: another one and the page is drawn anew."""
    if isinstance(look, Unavailable):
        return ()
    return tuple((study.id, study.name, study.state == "running") for study in look.studies) or (0,)


def _newest_first(studies: Sequence[Study]) -> list[Study]:
    return sorted(studies, key=lambda study: -study.created_at_s)


def _list(drawn: Look | Unavailable) -> None:
    look = _look()
    if _signature(look) != _signature(drawn):
        st.rerun()
    if isinstance(look, Unavailable):
        st.html(markup.heading("Studies"))
        st.html(markup.message(look.title, look.hint))
        return
    try:
        _tables(look)
    except StorageError as fault:
        _say_lost(fault)


def _tables(look: Look) -> None:
    studies = look.studies
    st.html(markup.heading("Studies", f"{len(studies)} in the database"))
    if not studies:
        st.html(
            markup.message(
                "No study yet",
                'Run `tuner optimize --url http://127.0.0.1:8000 --slo "ttft_p95<500ms"`, or '
                "`tuner sweep`; it appears here as soon as it starts.",
            )
        )
    else:
        head = [
            "Study", "state", "started (UTC)", "took", "measured", "objective", "SLOs", "result",
        ]  # fmt: skip
        kept = verified_by_study(look.opened)
        rows = [_list_row(look.opened, study, kept.get(study.id)) for study in studies]
        st.html(markup.table(head, rows, numeric=(3, 4)))
    runs.draw(look.opened, expanded=not studies)


def _list_row(opened: Database, study: Study, kept: Verification | None) -> list[str]:
    objective = history.parse_objective(study.objective, study.workload)
    found = history.points(opened.list_measurements(study_id=study.id), objective)
    without = history.without_result(found)
    failed = f' <span class="sub">{without}</span>' if without else ""
    end_s = time.time() if study.state == "running" else study.updated_at_s
    began = time.strftime("%Y-%m-%d %H:%M", time.gmtime(study.created_at_s))
    return [
        f'<b class="nowrap">{markup.escape(study.name)}</b>',
        markup.pill(study.state, STATE_TONES.get(study.state, "neutral")),
        f'<span class="nowrap">{began}</span>',
        duration(end_s - study.created_at_s),
        f"{len(found)}{failed}",
        markup.escape(history.objectives_text(study) or "–"),
        markup.escape(study.slos or "–"),
        _answer_text(study, found, objective, kept),
    ]


def _answer_text(
    study: Study, found: Sequence[Point], objective: Objective, kept: Verification | None
) -> str:
    answer = verified_answer(kept) if kept else answer_of(study, found, objective)
    if study.result or kept:
        config = answer.best.config if answer.best else {}
        text = markup.escape(history.config_text(config) if config else answer.reason)
        return f'{markup.pill(answer.title, answer.tone)} <span class="sub">{text}</span>'
    if is_verification(study):
        return f'<span class="sub">no answer{" yet" if study.state == "running" else ""}</span>'
    if len(loads := history.loads_of(study)) > 1:
        return f'<span class="sub">under {len(loads)} loads: open it for what each gave</span>'
    best = history.best_so_far(found, objective)
    if best is None:
        so_far = " so far" if study.state == "running" else ""
        text = f"nothing meets the SLOs{so_far}" if found else "–"
        if study.state == "failed" and found and found[-1].outcome in ("failed", "invalid"):
            text = found[-1].reason
        return f'<span class="sub">{markup.escape(text)}</span>'
    return (
        f"{markup.escape(quantity(best.objective.value, objective.unit))} "
        f'<span class="sub">best so far: {markup.escape(history.config_text(best.config))}</span>'
    )


def _study(study_id: int) -> None:
    opened = database()
    try:
        if isinstance(opened, Database):
            _draw_study(opened, study_id)
    except StorageError as fault:
        _say_lost(fault)


def _draw_study(opened: Database, study_id: int) -> None:
    study = opened.get_study(study_id)
    if study is None:
        st.html(markup.message("This study is gone", "It was deleted from the database.", "warn"))
        return
    objective = history.parse_objective(study.objective, study.workload)
    found = history.points(opened.list_measurements(study_id=study.id), objective)
    st.html('<div class="stack">' + _facts(study) + "</div>")
    if not found:
        text = (
            "The first measurement is running." if study.state == "running" else "It ended empty."
        )
        st.html(markup.message("No measurement yet", text, "info"))
        return
    loads = history.loads_of(study)
    for load in loads if len(loads) > 1 else ("",):
        _chart([p for p in found if p.load == load] if load else found, objective, load)
    front.draw((study.result or {}).get("front") or ())
    _draw_answer(opened, study, found, objective)
    measurements.draw(found, objective)


def _draw_answer(
    opened: Database, study: Study, found: Sequence[Point], objective: Objective
) -> None:
    swept = sweep.report_of(opened, study, len(found))
    if swept is not None and swept.found:
        sweep.draw(swept)
        return
    proved = verified.report_of(opened, study, len(found))
    if proved is not None:
        verified.draw(proved)
        return
    if is_verification(study):
        st.html(markup.message("No answer yet", "Pairs are being measured.", "info"))
        return
    answer, loads = answer_of(study, found, objective), len(history.loads_of(study))
    if study.result or loads <= 1:  # one load's figures are not the study's
        comparison.draw(answer, objective, running=study.state == "running", loads=loads)
    if study.result and answer.base is not None and answer.best is not None:
        runs.compare_hint(study.name)


def _facts(study: Study) -> str:
    pairs = [
        ("objective", markup.escape(history.objectives_text(study) or "–")),
        ("SLOs", markup.escape(study.slos or "–")),
        ("workload", markup.escape(" and ".join(history.loads_of(study)) or "–")),
        ("seed", markup.escape(str(study.seed if study.seed is not None else "–"))),
        ("searched", markup.escape(_space_text(study.space))),
    ]
    if budget := (study.budget or {}).get("text"):
        pairs.append(("budget", markup.escape(str(budget))))
    state = markup.pill(study.state, STATE_TONES.get(study.state, "neutral"))
    line = f'<div class="statusline">{state}{markup.definition(pairs)}</div>'
    if study.command:
        line += f'<div class="cmd">$ {markup.escape(study.command)}</div>'
    return line


def _space_text(space: Mapping[str, Any] | None) -> str:
    """`max_num_seqs=4:256:log chunk_size=64:4096:log`, as --knob takes them."""
    return " ".join(str(axis) for axis in (space or {}).get("axes", ())) or "–"


def _chart(found: Sequence[Point], objective: Objective, load: str) -> None:
    """load: of these measurements, where the study has others too; "" where it has one."""
    title = f"History under {load}" if load else "History"
    if not found:
        st.html(markup.heading(title, "not measured yet"))
        return
    base = None if objective.is_capacity else history.baseline(found)
    failed = sum(point.objective.value is None for point in found)
    note = (
        f"each measurement at the level that it offered ({objective.unit}); "
        "line: the highest met so far"
        if objective.is_capacity
        else "line: best that meets the SLOs so far, each configuration as measured last; "
        f"dashed: baseline; bars: 95 % interval, {CUT_OFF}"
    )
    if failed:
        note += f"; {failed} without a result lie on the axis"
    key = f"history-{load}" if load else "history"
    st.html(markup.heading(title, note))
    with st.container(border=True, key=f"panel-{key}"):
        st.altair_chart(
            charts.study_history(found, objective, base.objective.value if base else None),
            width="stretch",
            key=key,
        )
