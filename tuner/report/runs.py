"""Stored runs as text and JSON: the list with ids, and one run in full."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tuner.exchange.run import Run, settings_text
from tuner.printable import shortened
from tuner.report.table import aligned, figure_text
from tuner.report.words import FIGURE_HEAD, MARKS, VERDICTS, figure_line
from tuner.stats.estimate import Estimate
from tuner.units import count_text, show

if TYPE_CHECKING:
    from storage import Measurement, Study

LISTED = ("output_tps", "ttft_p95", "e2e_p95", "error_rate")
IN_LINE = LISTED[:2]


def list_lines(
    rows: Sequence[Measurement], studies: Mapping[int, Study], *, left_out: int = 0
) -> list[str]:
    """Newest last, as they were made; result: of the SLOs where there are some."""
    if not rows:
        return ["no run yet: `tuner bench`, `tuner optimize` and `tuner import` keep theirs here"]
    table = [["run", "started (UTC)", "what", "target", "workload", "result", *IN_LINE]]
    table += [_row(row, studies.get(row.study_id or 0)) for row in rows]
    lines = aligned(table)
    if left_out:
        lines.append(f"  {left_out} older ones left out: --last 0 lists all")
    return lines


def list_dict(row: Measurement, study: Study | None) -> dict[str, Any]:
    summary = row.summary or {}
    figures: Mapping[str, Any] = summary.get("figures") or {}
    return {
        "run": row.id,
        "started_at_s": row.started_at_s,
        "stage": row.stage,
        "study": study.name if study is not None else None,
        "config": row.config,
        "target": _target(row, study),
        "workload": (row.workload or {}).get("text"),
        "seed": row.seed,
        "slos": row.slos,
        "state": row.state,
        "failure_reason": row.failure_reason,
        "verdict": (row.verdict or {}).get("state"),
        "imported_from": (summary.get("source") or {}).get("format"),
        "counts": summary.get("counts"),
        "figures": {key: figures[key] for key in LISTED if key in figures},
    }


def run_lines(run: Run) -> list[str]:
    """One run: where, when, under what, every figure, the stored verdict."""
    counts = run.counts
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(run.began_unix_s))
    about = [f"{run.url or '–'}", run.model or "–", run.workload or "–"]
    lines = [
        f"{run.name} · {when} · " + " · ".join(about) + f" · seed {_or_dash(run.seed)}",
        f"window {run.window_s[1] - run.window_s[0]:.1f} s · "
        f"{count_text(counts.get('sent', 0), 'request')}: "
        f"{counts.get('ok', 0)} ok, {counts.get('failed', 0)} failed, "
        f"{counts.get('censored', 0)} still running at cut-off · {counts.get('warmup', 0)} "
        "outside the window",
    ]
    if run.window_why:
        lines.append(f"window {run.window_why}")
    if run.ended_why:
        lines.append(f"ended early: {run.ended_why}")
    if run.study:
        lines.append(f"study {run.study} · {run.stage} · {settings_text(run.config)}")
    lines += ["", FIGURE_HEAD]
    lines += [figure_line(key, estimate) for key, estimate in run.figures.items()]
    lines.append("")
    if run.invalid_reason:
        lines.append(f"INVALID: {run.invalid_reason}")
    lines += [f"note: {note}" for note in run.notes]
    lines += [f"✘ {count} × {reason}" for reason, count in run.summary.get("failures") or []]
    return lines + verdict_lines(run.verdict)


def verdict_lines(verdict: Mapping[str, Any] | None) -> list[str]:
    """A stored verdict, a clause a line."""
    if not verdict:
        return []
    lines = []
    for clause in verdict.get("clauses") or []:
        estimate = Estimate.from_dict(clause["estimate"])
        reason = f" · {clause['reason']}" if clause.get("reason") else ""
        state, measured = clause["state"], show(estimate.value, estimate.unit)
        lines.append(
            f"{MARKS[state]} {clause['clause']}: {VERDICTS[state]}, measured {measured}{reason}"
        )
    if verdict.get("clauses") or verdict.get("state") != "pass":
        because = f": {verdict['reason']}" if verdict.get("reason") else ""
        lines.append(f"verdict: {VERDICTS.get(str(verdict.get('state')), '–')}{because}")
    return lines


def _row(row: Measurement, study: Study | None) -> list[str]:
    summary = row.summary or {}
    figures: Mapping[str, Any] = summary.get("figures") or {}
    verdict = str((row.verdict or {}).get("state") or "")
    imported = (summary.get("source") or {}).get("format")
    what = f"{study.name} · {row.stage}" if study is not None else row.stage
    return [
        str(row.id),
        time.strftime("%Y-%m-%d %H:%M", time.gmtime(row.started_at_s)),
        f"imported ({imported})" if imported else what,
        _target(row, study),
        shortened(str((row.workload or {}).get("text") or "–"), 48),
        VERDICTS.get(verdict, row.state) if row.slos and row.state == "ok" else row.state,
        *(_short(figures.get(key)) for key in IN_LINE),
    ]


def _target(row: Measurement, study: Study | None) -> str:
    config, target = row.config, (study.target or {}) if study is not None else {}
    url = str(config.get("url") or target.get("url") or target.get("kind") or "")
    model = str(config.get("model") or "")
    parts = [url.removeprefix("http://"), model.rsplit("/", 1)[-1]]
    if study is not None:
        parts = [parts[0], settings_text(config)]
    return shortened(" ".join(part for part in parts if part) or "–", 60)


def _short(stored: Mapping[str, Any] | None) -> str:
    if not stored:
        return "–"
    return figure_text(Estimate.from_dict(dict(stored)))


def _or_dash(value: object) -> str:
    return "–" if value is None else str(value)
