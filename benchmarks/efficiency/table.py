"""The figures as text: one row a contestant, then the goals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.efficiency.score import ENOUGH, Summary

GRID_SHARE, RIVAL_SHARE, TRUE_SHARE = 1 / 5, 1 / 2, 0.95
"""The goals: machine time against the grid's and against TPE's, and claims that are true."""

EARLY = "… at the tuner's time"
HEAD = (
    "contestant", "machine time", "of grid", f"{ENOUGH:.0%} first claimed", "share of best", EARLY,
    "claimed", "true", "runs", "ended early",
)  # fmt: skip


def table(rows: Sequence[Summary], grid_s: float) -> list[str]:
    """Markdown; machine times are medians with their range, in minutes. Without the tuner there is
    no column of what was claimed at its time."""
    names = [name for name in HEAD if name != EARLY or any(row.share_early for row in rows)]
    lines = ["| " + " | ".join(names) + " |", "|---|" + "---:|" * (len(names) - 1)]
    cells = [dict(zip(HEAD, _cells(row, grid_s), strict=True)) for row in rows]
    return [*lines, *("| " + " | ".join(row[name] for name in names) + " |" for row in cells)]


def _cells(row: Summary, grid_s: float) -> list[str]:
    return [
        row.name,
        _minutes(row.spent_s),
        f"{row.spent_s[0] / grid_s:.0%}",
        f"{_minutes(row.enough_s)}, {row.enough} of {row.seeds}" if row.enough_s else "never",
        _shares(row.share),
        _shares(row.share_early) if row.share_early else "",
        f"{row.claimed} of {row.seeds}",
        f"{row.true} of {row.claimed}",
        f"{row.measurements:.0f}",
        f"{row.ended_early:.0f}",
    ]


def _minutes(spread_s: tuple[float, float, float]) -> str:
    median, low, high = (f"{s / 60:.1f}" if math.isfinite(s) else "never" for s in spread_s)
    return f"{median} ({low}–{high})"


def _shares(spread: tuple[float, float, float]) -> str:
    median, low, high = spread
    return f"{median:.1%} ({low:.0%}–{high:.0%})"


def goals(ours: Summary, tpe: Summary | None, grid_s: float) -> list[str]:
    """Each with what came out."""
    told = [
        (
            f"share of the best truly feasible objective ≥ {ENOUGH:.0%}",
            f"{ours.share[0]:.1%} (median)",
            ours.share[0] >= ENOUGH,
        ),
        (
            f"machine time ≤ {GRID_SHARE:.0%} of the grid's",
            f"{ours.spent_s[0] / grid_s:.1%}",
            ours.spent_s[0] <= GRID_SHARE * grid_s,
        ),
        (
            f"claims that are true ≥ {TRUE_SHARE:.0%}",
            f"{ours.true} of {ours.claimed}",
            ours.claimed > 0 and ours.true >= TRUE_SHARE * ours.claimed,
        ),
    ]
    if tpe is not None:
        ratio = ours.spent_s[0] / tpe.spent_s[0]
        text = f"whole study ≤ {RIVAL_SHARE:.0%} of that of {tpe.name}"
        told.append((text, f"{ratio:.0%}", ratio <= RIVAL_SHARE))
    if tpe is not None and tpe.enough_s is not None and ours.enough_s is not None:
        ratio = ours.enough_s[0] / tpe.enough_s[0]  # a median of "never" is no ratio that meets it
        text = (
            f"first claim of {ENOUGH:.0%} ({ours.enough} of {ours.seeds} studies) ≤ "
            f"{RIVAL_SHARE:.0%} of the time of that of {tpe.name} ({tpe.enough} of {tpe.seeds})"
        )
        told.append((text, f"{ratio:.0%}", ratio <= RIVAL_SHARE))
    if tpe is not None and tpe.enough_s is not None:
        ratio = ours.spent_s[0] / tpe.enough_s[0]
        text = f"whole study ≤ {RIVAL_SHARE:.0%} of the time until {tpe.name} claimed {ENOUGH:.0%}"
        told.append((text, f"{ratio:.0%}", ratio <= RIVAL_SHARE))
    return [f"{ours.name}: {goal}: {found} – {_met(met)}" for goal, found, met in told]


def _met(met: bool) -> str:
    return "met" if met else "not met"
