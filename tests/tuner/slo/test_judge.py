"""Verdicts on records made by hand: failures, censoring, too few samples, margins."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.tuner.runs import failed, good, run, running
from tuner.server_side import ServerSide
from tuner.slo import judge, parse_slos
from tuner.slo.judge import MARGIN_LIMIT
from tuner.stats import Estimate


def verdict(text: str, records: list, **given: object):
    slos = parse_slos([text])
    made = run(records, slos, **given)
    return judge(slos, made)


def clause(text: str, records: list, **given: object):
    return verdict(text, records, **given).clauses[0]


def test_all_failed_is_infeasible_and_never_fast() -> None:
    found = verdict("ttft_p95<500ms", [failed(i) for i in range(80)])
    assert found.state == "fail"
    assert found.clauses[0].estimate.value == math.inf
    assert found.margins == [MARGIN_LIMIT]


def test_all_failed_fails_without_clauses_too() -> None:
    made = run([failed(i) for i in range(5)])
    assert judge(parse_slos([]), made).state == "fail"


def test_no_request_is_not_measured_and_not_met() -> None:
    found = verdict("ttft_p95<500ms", [])
    assert found.state == "fail"
    assert "not measured" in found.clauses[0].reason
    assert found.margins == [MARGIN_LIMIT]


def test_p95_takes_59_good_samples() -> None:
    assert clause("ttft_p95<500ms", [good(i, ttft_s=0.1) for i in range(59)]).state == "pass"
    few = clause("ttft_p95<500ms", [good(i, ttft_s=0.1) for i in range(20)])
    assert few.state == "inconclusive"
    assert "more requests" in few.reason
    assert few.margin_log < 0


def test_p99_takes_299() -> None:
    records = [good(i, ttft_s=0.1) for i in range(299)]
    assert clause("ttft_p99<500ms", records).state == "pass"
    assert clause("ttft_p99<500ms", records[:298]).state == "inconclusive"


def test_failures_count_against_the_percentile() -> None:
    records = [good(i, ttft_s=0.1) for i in range(80)] + [failed(80 + i) for i in range(20)]
    found = clause("ttft_p95<500ms", records)
    assert found.state == "fail"
    assert found.estimate.value == math.inf


def test_failures_count_against_gaps_with_all_they_owed() -> None:
    records = [good(i, output=20, gap_s=0.01) for i in range(70)]
    records += [failed(70 + i, wanted=20) for i in range(30)]
    found = clause("itl_p90<50ms", records)
    assert found.state == "fail"
    assert found.estimate.value == math.inf


def test_gaps_are_judged() -> None:
    records = [good(i, output=20, gap_s=0.01) for i in range(40)]
    assert clause("itl_p99<50ms", records).state == "pass"
    assert clause("itl_p99<5ms", records).state == "fail"


def test_gaps_of_few_slow_requests_are_few_samples() -> None:
    """All slow gaps in one of ten requests: 9 in 10 gaps are fast, yet ten requests decide it."""
    records = [good(i, output=20, gap_s=0.01) for i in range(9)] + [good(9, output=20, gap_s=0.1)]
    assert clause("itl_p80<50ms", records).state == "inconclusive"


def test_running_requests_fail_the_clause_once_they_are_over_the_bound() -> None:
    records = [good(i, ttft_s=0.1) for i in range(60)] + [running(60 + i, 5.0) for i in range(15)]
    found = clause("ttft_p95<500ms", records, end_s=10.0)
    assert found.state == "fail"
    assert "unfinished" in found.estimate.method
    assert found.estimate.high == math.inf


def test_running_requests_below_the_bound_leave_it_open() -> None:
    records = [good(i, ttft_s=0.1) for i in range(60)] + [running(60 + i, 9.9) for i in range(15)]
    assert clause("ttft_p95<500ms", records, end_s=10.0).state == "inconclusive"
    assert clause("ttft_max<500ms", records, end_s=10.0).state == "inconclusive"


def test_running_request_with_a_first_token_has_its_ttft() -> None:
    records = [good(i, ttft_s=0.1) for i in range(58)]
    records.append(running(58, 9.0, first_token_s=9.1))
    assert clause("ttft_p95<500ms", records, end_s=10.0).state == "pass"


def test_lower_bounds_are_judged_too() -> None:
    records = [good(i, ttft_s=0.1) for i in range(60)]
    assert clause("ttft_p50>50ms", records).state == "pass"
    assert clause("ttft_p50>500ms", records).state == "fail"
    assert clause("ttft_p50>50ms", records[:2]).state == "inconclusive"


def test_mean_min_and_max() -> None:
    records = [good(i, ttft_s=0.1 + 0.001 * (i % 5)) for i in range(50)]
    assert clause("ttft_mean<500ms", records).state == "pass"
    assert clause("ttft_mean<50ms", records).state == "fail"
    assert clause("ttft_max<500ms", records).state == "pass"
    assert clause("ttft_min>200ms", records).state == "fail"
    assert clause("ttft_mean<500ms", [*records, failed(60)]).state == "fail"


def test_ttfat_fails_when_no_answer_ever_came() -> None:
    thoughts = [good(i) for i in range(70)]
    for record in thoughts:
        record.first_answer_token_s = math.nan
    found = clause("ttfat_p95<500ms", thoughts)
    assert found.state == "fail"
    assert found.estimate.value == math.inf
    assert clause("ttft_p95<500ms", thoughts).state == "pass"


def test_answers_cut_off_in_thought_are_not_left_out_of_ttfat() -> None:
    records = [good(i) for i in range(80)]
    for record in records[10:]:
        record.first_answer_token_s = math.nan
    found = verdict("ttfat_p50<500ms, attainment>50%", records)
    assert [one.state for one in found.clauses] == ["fail", "fail"]
    assert found.clauses[0].estimate.n == 80


def test_server_that_hangs_does_not_pass_for_want_of_clauses() -> None:
    found = judge(parse_slos([]), run([running(i, 0.0) for i in range(5)]))
    assert (found.state, found.reason) == ("inconclusive", "no request ended before the cut-off")
    assert judge(parse_slos([]), run([running(0, 0.0), good(1)])).state == "pass"


def test_running_request_has_waited_until_its_own_cut_off() -> None:
    """Not until the end of the window, nor of other runs that are judged together with it."""
    records = [running(i, 9.9) for i in range(60)]
    for record in records:
        record.end_s = 14.0
    assert clause("ttft_p50<2s", records, end_s=10.0).state == "fail"
    records.append(good(60, at_s=8.0, ttft_s=90.0))
    found = clause("e2e_p50<9s", records, end_s=10.0)
    assert found.state == "inconclusive"
    assert found.estimate.value == pytest.approx(4.1)


def test_throughput_is_of_good_requests() -> None:
    steady = [good(i, at_s=i * 0.1, output=10) for i in range(100)]
    assert clause("output_tps>50", steady, end_s=10.0).state == "pass"
    broken = [*steady[::2], *(failed(i, at_s=i * 0.1) for i in range(1, 100, 2))]
    assert clause("output_tps>60", broken, end_s=10.0).state == "fail"


def test_error_rate_and_attainment() -> None:
    records = [good(i, ttft_s=0.1) for i in range(400)]
    assert clause("error_rate<1%", records).state == "pass"
    assert clause("error_rate<=0%", records).state == "pass"
    assert clause("error_rate<1%", records[:50]).state == "inconclusive"
    slow = [good(i, ttft_s=0.9) for i in range(100)]
    found = verdict("attainment>90%, ttft_p50<500ms", records[:100] + slow)
    assert found.clauses[0].estimate.value == pytest.approx(0.5)
    assert found.state == "fail"


def test_goodput_counts_requests_within_the_bounds() -> None:
    records = [good(i, at_s=i * 0.1, ttft_s=0.05 if i % 2 else 0.7) for i in range(80)]
    found = verdict("goodput>1, ttft_p50<500ms", records, end_s=10.0)
    assert found.clauses[0].estimate.value == pytest.approx(4.0)


def test_cost() -> None:
    records = [good(i, at_s=i * 0.1, output=10) for i in range(100)]
    unpriced = clause("cost_per_mtok<$1", records, end_s=10.0)
    assert "--price-per-hour" in unpriced.reason
    priced = clause("cost_per_mtok<$10", records, end_s=10.0, price_per_hour=0.36)
    assert priced.state == "pass"
    assert priced.estimate.value == pytest.approx(1.0, rel=0.1)
    idle = clause("cost_per_mtok<$10", [failed(0)], price_per_hour=0.36)
    assert idle.estimate.value == math.inf


def test_accuracy_only_when_given() -> None:
    slos = parse_slos(["accuracy>90%"])
    made = run([good(0)], slos)
    assert "not measured" in judge(slos, made).clauses[0].reason
    score = Estimate(0.95, 0.93, 0.97, 500, "share", "exact match")
    assert judge(slos, replace(made, accuracy=score)).state == "pass"


def server(**buckets: float) -> ServerSide:
    bounds = tuple((float(k[1:].replace("_", ".")), v) for k, v in buckets.items())
    return ServerSide(None, None, None, None, None, 0.05, (*bounds, (math.inf, 100.0)))


def test_queue_is_judged_by_whole_buckets() -> None:
    records = [good(i) for i in range(70)]
    fast = server(b0_1=100.0, b0_3=100.0)
    assert clause("queue_p95<100ms", records, server=fast).state == "pass"
    assert clause("queue_p95<200ms", records, server=fast).state == "pass"
    slow = server(b0_1=50.0, b0_3=60.0)
    found = clause("queue_p95<200ms", records, server=slow)
    assert found.state == "fail"
    assert found.estimate.value == math.inf
    between = server(b0_1=80.0, b0_3=100.0)
    assert clause("queue_p95<200ms", records, server=between).state == "inconclusive"
    assert clause("queue_mean<100ms", records, server=fast).state == "pass"
    assert "no queue time" in clause("queue_p95<200ms", records).reason


def test_margins_are_log_ratios_clipped() -> None:
    records = [good(i, ttft_s=0.25) for i in range(60)]
    assert clause("ttft_p95<500ms", records).margin_log == pytest.approx(math.log(0.5))
    assert clause("ttft_p95<125ms", records).margin_log == pytest.approx(math.log(2))
    assert clause("ttft_p95<1ns", records).margin_log == MARGIN_LIMIT
    assert clause("ttft_p95<1m", records).margin_log == -MARGIN_LIMIT
    assert clause("ttft_p95>500ms", records).margin_log == pytest.approx(math.log(2))


def test_late_generator_invalidates_a_pass_but_not_a_fail() -> None:
    late = [good(i, ttft_s=0.1, lag_s=0.08) for i in range(70)]
    found = verdict("ttft_p95<500ms", late)
    assert found.state == "inconclusive"
    assert "generator" in found.reason
    assert verdict("ttft_p95<10ms", late).state == "fail"
    assert verdict("tpot_p95<100ms", late).state == "pass"


def test_verdict_is_json() -> None:
    import json

    text = json.dumps(verdict("ttft_p95<500ms, itl_p99<1s", [failed(0)]).as_dict())
    assert "NaN" not in text
    assert "Infinity" not in text


def drifting(count: int = 133) -> list:
    """First tokens from 0.3 to 0.6 s: a machine that gets slower."""
    return [good(i, at_s=0.1 * i, ttft_s=0.3 * (1 + i / count)) for i in range(count)]


def test_a_verdict_is_never_beside_an_interval_that_denies_it() -> None:
    for bound in range(300, 1500, 50):
        found = clause(f"ttft_p95<{bound}ms", drifting(), end_s=20.0)
        if found.state == "pass":
            assert found.estimate.value < bound / 1e3
            assert math.isfinite(found.estimate.high)
        if found.state == "fail":
            assert found.estimate.value > bound / 1e3
            assert found.estimate.low > 0


def test_raw_counts_alone_pass_nothing_that_drifts() -> None:
    """None of 133 requests missed 610 ms, which would do if they were independent."""
    found = clause("ttft_p95<610ms", drifting(), end_s=20.0)
    assert found.state == "inconclusive"
    assert found.reason.startswith("0 of 133 samples miss the bound: needs about ")
    assert found.reason.endswith(" more requests")
    assert clause("ttft_p95<5s", drifting(), end_s=20.0).state == "pass"


def test_what_is_needed_grows_with_the_nearness_of_the_bound() -> None:
    def needed(bound_ms: int) -> int:
        return int(clause(f"ttft_p95<{bound_ms}ms", drifting(), end_s=20.0).reason.split()[-3])

    assert needed(650) > needed(800) > 0
    near = clause("ttft_p95<586ms", drifting(), end_s=20.0)
    assert near.state == "inconclusive"


def test_requests_that_hang_fail_the_clause_whatever_their_order() -> None:
    """30 of 130 in a row: hardly more than one independent event, and yet no p95 to be had."""
    records = [good(i, at_s=0.1 * i, ttft_s=0.1) for i in range(100)]
    records += [running(100 + i, 10.0 + 0.1 * i) for i in range(30)]
    found = clause("ttft_p95<500ms", records, end_s=20.0)
    assert found.state == "fail"
    assert found.reason == ""
    assert found.estimate.high == math.inf
