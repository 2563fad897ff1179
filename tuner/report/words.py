"""What the terminal and the dashboard call a study's answer and its gain: one table for both."""

from __future__ import annotations

ANSWERS = {
    "improved": "A better configuration is confirmed",
    "keep_baseline": "Keep the baseline",
    "undecided": "Not decided yet",
    "none_feasible": "No configuration met the SLOs",
    "swept": "Swept",
}

GAINS = {
    "improved": "confirmed",
    "worse": "worse, and that is confirmed",
    "no_difference": "no difference",
    "inconclusive": "not confirmed",
}
