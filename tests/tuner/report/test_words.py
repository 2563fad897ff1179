"""One word for one meaning: met, missed and undecided, wherever a verdict is shown."""

from __future__ import annotations

import math
import typing

import pytest

from tuner.report import words
from tuner.report.compare import ratio_text
from tuner.report.html.page import pill
from tuner.report.runs import verdict_lines
from tuner.report.table import factor_text
from tuner.report.verify import realised_text
from tuner.slo import VERDICTS, VerdictState
from tuner.stats import Comparison
from tuner.stats.compare import Outcome
from tuner.units import signed_digits


def test_every_state_and_every_outcome_has_its_word_and_mark() -> None:
    states = set(typing.get_args(VerdictState))
    assert set(VERDICTS) == set(words.MARKS) == states
    assert set(words.OUTCOMES) == set(words.GAINS) == set(typing.get_args(Outcome))
    assert words.OUTCOMES["inconclusive"] == VERDICTS["inconclusive"] == "undecided"


@pytest.mark.parametrize(
    ("state", "word"), [("pass", "met"), ("fail", "missed"), ("inconclusive", "undecided")]
)
def test_a_stored_verdict_and_its_pill_say_the_word(state: str, word: str) -> None:
    estimate = {"value": 0.3, "low": 0.2, "high": 0.4, "n": 70, "unit": "s", "method": "m"}
    clause = {"clause": "ttft_p95<500ms", "state": state, "estimate": estimate}
    first, last = verdict_lines({"state": state, "clauses": [clause]})
    assert f"ttft_p95<500ms: {word}, measured 300 ms" in first
    assert last == f"verdict: {word}"
    assert f" {word}</span>" in pill(state)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "text"),
    [
        (1.312, 1.2249, 1.4051, "× 1.31 [1.22, 1.41]"),
        (12_345.6, 1_000.4, 99_999.0, "× 12346 [1000, 99999]"),
        (3e-7, 1e-7, 0.5, "× < 0.0001 [< 0.0001, 0.5]"),
        (1.5, 0.0, float("inf"), "× 1.5 [0, ∞]"),
        (1.5, float("nan"), float("nan"), "× 1.5"),
    ],
)
def test_a_ratio_has_its_interval_and_no_exponent(
    ratio: float, low: float, high: float, text: str
) -> None:
    assert factor_text(ratio, low, high) == text
    if not math.isnan(low):
        found = {"ratio": ratio, "low": low, "high": high, "pairs": 3, "confidence": 0.99,
                 "outcome": "inconclusive"}  # fmt: skip
        assert realised_text("rps", found) == (
            f"rps {text} (99 % interval, 3 interleaved pairs, same arrivals and prompts): undecided"
        )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "+0.5"), (-12.34, "-12.3"), (0.0, "0"), (1e-7, "< 0.0001"), (1234.0, "+1234")],
)
def test_a_difference_has_its_sign(value: float, text: str) -> None:
    assert signed_digits(value) == text
    shown, _ = ratio_text(
        Comparison(float("nan"), 0.0, 1.0, 3, "no_difference", "m",
                   difference=(value / 100, 0.0, 0.0))
    )  # fmt: skip
    assert shown == f"{text} points"
