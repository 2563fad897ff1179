"""What the terminal and the dashboard call answers, gains and verdicts: one table for both."""

from __future__ import annotations

ANSWERS = {
    "improved": "A better configuration is confirmed",
    "keep_baseline": "Keep the baseline",
    "undecided": "Not decided yet",
    "none_feasible": "No configuration met the SLOs",
    "swept": "Swept",
}

VERDICTS = {"pass": "met", "fail": "missed", "inconclusive": "undecided"}

GAINS = {
    "improved": "confirmed",
    "worse": "worse, and that is confirmed",
    "no_difference": "no difference",
    "inconclusive": "not confirmed",
}


def load_text(workload: object, seed: int, window_s: float, warmup_s: float) -> str:
    """Under what load and over which window a study's figures were measured."""
    return (
        f"load {workload} · seed {seed} · each measurement {window_s:.3g} s after at least "
        f"{warmup_s:.3g} s of warm-up"
    )
