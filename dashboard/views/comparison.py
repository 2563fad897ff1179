"""Baseline beside best: configuration, verdicts and every figure with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard import history, markup
from dashboard.answer import Answer, Side
from dashboard.format import interval
from dashboard.history import Estimate, Objective
from tuner.report.flags import model_note, names_no_model
from tuner.report.words import ANSWERS

OUTCOME_TONES = {
    "met": "good",
    "missed": "bad",
    "undecided": "warn",
    "unjudged": "neutral",
    "failed": "bad",
    "invalid": "neutral",
    "no result": "neutral",
}
FIGURES = {
    "output_tps": "Output tokens",
    "total_tps": "Prompt and output tokens",
    "rps": "Requests completed",
    "goodput": "Requests within the SLOs",
    "error_rate": "Errors",
    "attainment": "Share within the SLOs",
}
CHANGE = "change: of the two pooled figures, not of pairs of runs, whose gain has an interval"
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "End to end"}


def draw(answer: Answer, objective: Objective, *, running: bool, loads: int = 1) -> None:
    """loads: under how many the study is measured."""
    note = "best so far; the study is running" if running else "95 % intervals"
    if answer.base is not None and answer.best is not None:
        note += f"; {CHANGE}"
    if loads > 1:
        note += f"; each figure is the worst of its {loads} loads"
    st.html(markup.heading("Baseline and best", note))
    if answer.title:
        parts = [part for part in (answer.reason, answer.gain, answer.closest) if part]
        st.html(markup.message(answer.title, "; ".join(parts), answer.tone))
    if answer.base is None and answer.title != ANSWERS["swept"]:
        st.html(markup.message("The baseline has no result", "Nothing to compare with.", "bad"))
    sides = [("baseline", answer.base), ("best", answer.best)]
    present = [(name, side) for name, side in sides if side is not None]
    if present:
        st.html(table(present, objective.metric))
    _commands(answer)


def _commands(answer: Answer) -> None:
    called = f"To try the best candidate ({answer.doubt})" if answer.doubt else "To run it"
    for engine, command in answer.flags.items():
        st.html(f'<div class="sub">{markup.escape(f"{called} with {engine}")}:</div>')
        st.code(command, language=None, wrap_lines=True)
    if any(names_no_model(command) for command in answer.flags.values()):
        st.html(f'<div class="sub">{markup.escape(model_note(answer.model))}</div>')


def config_cell(config: Mapping[str, Any]) -> str:
    return f'<span class="mono">{markup.escape(history.config_text(config))}</span>'


def figure_cell(figure: Estimate | None, name: str) -> str:
    """`410 tok/s (385 … 435) n=310`; a dash where nothing was measured."""
    if figure is None or figure.value is None:
        return "–"
    unit = figure.unit or history.unit_of(name)
    main, _, rest = interval(figure.value, figure.low, figure.high, unit).partition(" (")
    spread = f' <span class="ci">({markup.escape(rest)}</span>' if rest else ""
    count = f' <span class="ci">n={figure.n:,}</span>' if figure.n else ""
    return f"{markup.escape(main)}{spread}{count}"


def table(sides: Sequence[tuple[str, Side]], first: str) -> str:
    """first: the figure that stands above all others."""
    rows = [
        ["Configuration", *(config_cell(side.config) for _, side in sides)],
        ["SLOs", *(_outcome_cell(side) for _, side in sides)],
        ["Measurements pooled", *(str(side.runs) for _, side in sides)],
    ]
    names = _shown([side for _, side in sides], first)
    rows += [
        [_name_cell(name), *(figure_cell(side.figures.get(name), name) for _, side in sides)]
        for name in names
    ]
    head = ["", *(name for name, _ in sides)]
    if len(sides) == 2:
        (_, base), (_, best) = sides
        changes = ["", "", "", *(_change(base, best, name) for name in names)]
        rows = [[*row, change] for row, change in zip(rows, changes, strict=True)]
        head.append("change")
    return markup.table(head, rows, numeric=(3,))


def _outcome_cell(side: Side) -> str:
    pill = markup.pill(side.outcome, OUTCOME_TONES[side.outcome])
    return f'{pill} <span class="sub">{markup.escape(side.reason)}</span>'


def _shown(sides: Sequence[Side], first: str) -> list[str]:
    """That one first, then rates, then latencies at p50, p95 and p99."""
    present = {
        name for side in sides for name, figure in side.figures.items() if figure.value is not None
    }
    latencies = [f"{name}_{stat}" for name in _LATENCIES for stat in ("p50", "p95", "p99")]
    order = [first, *FIGURES, *latencies]
    return [name for name in dict.fromkeys(order) if name in present]


def _name_cell(name: str) -> str:
    metric, _, stat = name.partition("_")
    title = FIGURES.get(name) or f"{_LATENCIES.get(metric, metric)} {stat}"
    return f'{markup.escape(title)} <span class="sub">{markup.escape(name)}</span>'


def _change(base: Side, best: Side, name: str) -> str:
    """Relative change of the values; nothing where it would divide by zero or infinity."""
    old, new = (side.figures.get(name) for side in (base, best))
    if old is None or new is None or not old.value or new.value is None:
        return ""
    if not (math.isfinite(old.value) and math.isfinite(new.value)):
        return ""
    return f"{(new.value / old.value - 1) * 100:+.1f} %".replace("-", "−")
