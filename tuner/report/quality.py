"""What `tuner quality` prints: the accuracy with its interval, and what became of every item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.report.words import MARKS, VERDICTS
from tuner.units import count_text, show

if TYPE_CHECKING:
    from tuner.endpoint import Endpoint
    from tuner.quality import QualityResult
    from tuner.slo import ClauseVerdict
    from tuner.stats import Estimate

MOST_REASONS = 3


def quality_lines(
    endpoint: Endpoint, result: QualityResult, verdicts: Sequence[ClauseVerdict]
) -> list[str]:
    """Lines of text, at most 100 columns but for servers' own sentences."""
    task, items = result.task, len(result.results)
    lines = [
        f"{endpoint.base_url} · {endpoint.model} · {task.name}",
        f"{count_text(items, 'item')}: {task.num_multiple_choice} multiple-choice, "
        f"{items - task.num_multiple_choice} exact-match · {result.num_failed} failed and count as "
        f"wrong · took {show(result.took_s, 's')}",
        "",
        f"{'figure':20}{'value':>10}{'95 % interval':>22}{'items':>7}  method",
        _row("accuracy", result.accuracy),
    ]
    if task.num_multiple_choice:
        lines.append(_row("accuracy_by_length", result.accuracy_by_length))
    if task.chance is not None:
        guessed = show(task.chance, "share")
        lines += ["", f"guessing gets {guessed} of the multiple-choice items right"]
    lines += [f"failed {count} ×: {why}" for why, count in result.failures[:MOST_REASONS]]
    lines += [
        f"{MARKS[one.state]} {one.clause.text}: {VERDICTS[one.state]}{_because(one.reason)}"
        for one in verdicts
    ]
    return lines


def _row(name: str, estimate: Estimate) -> str:
    if not estimate.measured:
        return f"{name:20}{'no data':>10}{'':>22}{0:>7}  {estimate.reason}"
    interval = f"{show(estimate.low, 'share')} … {show(estimate.high, 'share')}"
    value = show(estimate.value, "share")
    return f"{name:20}{value:>10}{interval:>22}{estimate.n:>7}  {estimate.method}"


def _because(reason: str) -> str:
    return f" – {reason}" if reason else ""
