"""What a run leaves open: figures without data, and what is said to be needed to decide."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tuner.runs import failed, good, run, running
from tests.tuner.slo.test_judge import clause, server
from tuner.figures.samples import samples
from tuner.slo import judge, parse_slos
from tuner.slo.judge import ClauseVerdict
from tuner.slo.needs import what_is_missing
from tuner.stats import Estimate


def test_requests_without_a_token_are_no_data_and_no_zero() -> None:
    records = [running(i, 0.1 * i) for i in range(21)]
    found = clause("tpot_p95<50ms", records, end_s=10.0)
    assert not found.estimate.measured
    assert found.state == "inconclusive"
    assert found.reason == "no data: 21 unfinished requests had shown no tpot"
    made = run(records, end_s=10.0)
    for key in ("tpot_p50", "tpot_mean", "itl_p95", "output_tps", "total_tps", "rps"):
        assert not made.summary[key].measured, key
    assert "none of 21 requests had ended" in made.summary["output_tps"].reason
    assert made.summary["e2e_p50"].value == pytest.approx(9.0)  # at least


def test_half_of_the_requests_without_a_token_leave_no_p50_of_zero() -> None:
    records = [running(i, 5.0) for i in range(40)]
    records += [running(40 + i, 5.0, first_token_s=6.0) for i in range(10)]
    found = clause("tpot_p50<50ms", records, end_s=10.0)
    assert (found.estimate.measured, found.state) == (False, "inconclusive")
    assert clause("tpot_p95<50ms", records, end_s=10.0).estimate.value > 0.05
    assert clause("tpot_p50<50ms", [good(i, gap_s=0.0) for i in range(40)]).estimate.value == 0


def test_a_rate_of_failures_alone_is_zero_and_of_none_no_data() -> None:
    assert run([failed(i) for i in range(5)]).summary["rps"].value == 0
    assert not run([]).summary["rps"].measured


def test_a_price_without_tokens_is_no_data() -> None:
    made = run([running(0, 1.0)], price_per_hour=3.6)
    assert not made.summary["cost_per_mtok"].measured


def test_rates_count_the_requests_that_the_window_saw() -> None:
    """Five ended before the window, two reach into it, one is scheduled in it and ends after."""
    before = [good(i, at_s=-5.0) for i in range(5)]
    into = [good(5 + i, at_s=-0.02, ttft_s=0.01, gap_s=0.02) for i in range(2)]
    inside = [good(7 + i, at_s=i) for i in range(9)]
    after = [good(16, at_s=9.99, ttft_s=0.001, gap_s=0.2)]
    made = run([*before, *into, *inside, *after], parse_slos(["e2e_p95<75ms"]), end_s=10.0)
    assert made.counts["sent"] == 10
    assert made.summary["output_tps"].n == 12
    assert made.summary["total_tps"].n == 12
    assert made.summary["rps"].n == 11
    assert made.summary["goodput"].n == 11
    assert made.summary["rps"].value == pytest.approx(1.1)
    assert made.summary["goodput"].value == pytest.approx(0.2)


def test_one_slow_request_of_22_does_not_ask_for_thousands() -> None:
    """A p95 takes 59: that much is known, what comes then is not."""
    records = [good(i, at_s=0.1 * i, ttft_s=0.1 + 0.001 * (i * 7 % 5)) for i in range(22)]
    records[11] = good(11, at_s=1.1, ttft_s=0.6)
    found = clause("ttft_p95<500ms", records)
    assert found.reason == "1 of 22 samples miss the bound: needs at least 37 more requests"


def test_what_a_stricter_verdict_takes_is_said() -> None:
    """69 requests within half the bound bound a p95 at 95 %, not at 99 %."""
    slos = parse_slos(["ttft_p95<4s"])
    rng = np.random.default_rng(2)
    made = run([good(i, at_s=0.1 * i, ttft_s=1 + rng.random()) for i in range(69)], slos)
    assert judge(slos, made).state == "pass"
    strict = judge(slos, made, confidence=0.99).clauses[0]
    assert strict.reason == "0 of 69 samples miss the bound: needs at least 21 more requests"


def test_an_estimate_over_the_bound_names_no_number() -> None:
    rng = np.random.default_rng(4)
    slow = [good(i, at_s=0.1 * i, ttft_s=0.3 + 0.25 * rng.random()) for i in range(64)]
    found = clause("ttft_p95<540ms", slow)
    assert found.state == "inconclusive"
    assert found.reason.endswith("the p95 itself misses it, but not yet for certain")
    lost = [good(i, at_s=0.1 * i) for i in range(11)] + [failed(11, at_s=1.1)]
    found = clause("ttft_p95<500ms", lost)
    assert found.reason == (
        "1 of 12 samples miss the bound: the p95 is that of a failed request, but not yet for "
        "certain"
    )


def test_unfinished_requests_are_told_from_slow_ones() -> None:
    records = [good(i, at_s=0.1 * i) for i in range(90)] + [running(90, 9.9)]
    found = clause("ttft_p99<500ms", records)
    assert found.reason.startswith("0 of 91 samples miss the bound, 1 unfinished may: needs at ")


def test_a_number_that_is_named_does_decide() -> None:
    """In at least half of the runs of as many requests as were said to be needed."""
    rng = np.random.default_rng(6)

    def judged(count: int) -> ClauseVerdict:
        waits = 0.2 * np.exp(0.5 * rng.standard_normal(count))
        return clause("ttft_p95<550ms", [
            good(i, at_s=10 * i / count, ttft_s=float(waits[i])) for i in range(count)
        ])  # fmt: skip

    told = [one for one in (judged(70) for _ in range(40)) if "needs about" in one.reason]
    assert len(told) > 5
    more = [int(one.reason.split()[-3]) for one in told]
    passed = [judged(70 + n).state == "pass" for n in more]
    assert np.mean(passed) >= 0.5


def test_queue_counts_name_no_thousands() -> None:
    near = server(b0_1=96.0, b0_3=96.0)
    reason = clause("queue_p95<200ms", [good(0)], server=near).reason
    assert reason == "4 of 100 samples miss the bound: too close to it to decide"


@pytest.mark.parametrize("text", ["itl_p50<5ms", "itl_p95<=10ms", "itl_p95<10ms"])
def test_gaps_of_nothing_and_a_figure_on_its_bound_are_judged(text: str) -> None:
    """Tokens that are read together have no time between them."""
    waves = [good(i, at_s=0.1 * i, gap_s=0.0 if i % 8 < 5 else 0.01) for i in range(40)]
    found = clause(text, waves)
    assert found.estimate.measured
    assert found.reason or found.state != "inconclusive"


def test_what_is_missing_of_a_figure_without_distance_is_no_number() -> None:
    found = samples([good(i, at_s=0.1 * i) for i in range(60)], "itl", 10.0)
    (at_least,) = parse_slos(["itl_p50<=10ms"]).clauses
    for value in (0.0, 0.01):
        sided = Estimate(value, 0.0, 0.02, 60, "s", "made up")
        told = what_is_missing(at_least, 0.5, sided, found, 60, 0.95)
        assert "needs about" not in told
