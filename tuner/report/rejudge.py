"""Runs under another SLO: a row a run, a column a clause, and why where a clause is not met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuner.exchange.run import Run, settings_text
from tuner.report.table import aligned, figure_text
from tuner.report.words import MARKS, VERDICTS
from tuner.units import count_text

if TYPE_CHECKING:
    from tuner.exchange.judging import Judged
    from tuner.slo import SloSet

Results = Sequence[tuple[Run, "Judged"]]


def rejudge_lines(results: Results, slos: SloSet) -> list[str]:
    table = [["run", "what", *(clause.text for clause in slos.clauses), "verdict", "stored"]]
    table += [_row(run, judged) for run, judged in results]
    lines = aligned(table)
    lines += ["", "  brackets: 95 % interval; n: samples; stored: its own SLOs and their verdict"]
    for run, judged in results:
        reasons = [f"{c.clause.text}: {c.reason}" for c in judged.verdict.clauses if c.reason]
        invalid = f"invalid: {judged.invalid}" if judged.invalid else judged.verdict.reason
        reasons += [invalid] if invalid else []
        lines += [f"  {run.name}: {reason}" for reason in reasons]
    states: list[str] = [judged.verdict.state for _, judged in results]
    told = ", ".join(f"{states.count(state)} {word}" for state, word in VERDICTS.items())
    return [*lines, f"  {count_text(len(states), 'run')}: {told}; nothing stored was changed"]


def rejudge_dict(results: Results, slos: SloSet) -> dict[str, Any]:
    return {
        "slos": [clause.text for clause in slos.clauses],
        "runs": [
            {
                "run": run.run_id,
                "name": run.name,
                "study": run.study or None,
                "stage": run.stage,
                "config": run.config,
                "verdict": judged.verdict.as_dict(),
                "figures": {key: found.as_dict() for key, found in judged.summary.items()},
                "stored_slos": run.slos,
                "stored_verdict": (run.verdict or {}).get("state"),
            }
            for run, judged in results
        ],
    }


def _row(run: Run, judged: Judged) -> list[str]:
    what = f"{run.stage} {settings_text(run.config)}".rstrip()
    cells = [f"{MARKS[c.state]} {figure_text(c.estimate)}" for c in judged.verdict.clauses]
    stored = VERDICTS.get(str((run.verdict or {}).get("state")), "–") if run.slos else "–"
    own = f"{run.slos}: {stored}" if run.slos else "–"
    return [run.name, what, *cells, VERDICTS[judged.verdict.state], own]
