"""Which part of a run counts, why, and what makes it invalid as a whole."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.tuner.runs import failed, good, run, running
from tuner.load.stalls import BEAT_S, LoopStalls
from tuner.measure import Measurement, summarize
from tuner.measure.cautions import GeneratorLoop
from tuner.measure.window import choose_window, saturation_of
from tuner.records import RequestRecord
from tuner.slo import judge, parse_slos
from tuner.workload import parse_workload
from tuner.workload.arrivals import Arrivals

CLOSED = parse_workload("prompt=8,output=4,concurrency=4").arrivals
OPEN = parse_workload("prompt=8,output=4,rate=20").arrivals


def cold_start(slow_s: float = 5.0, count: int = 600, span_s: float = 30.0) -> list[RequestRecord]:
    """TTFT begins at 1 s and falls to 50 ms within about slow_s."""
    rng = np.random.default_rng(1)
    at_s = np.sort(rng.uniform(0, span_s, count))
    ttft_s = 0.05 * np.exp(0.2 * rng.normal(size=count) + 3 * np.exp(-3 * at_s / slow_s))
    return [
        good(i, at_s=float(at), ttft_s=float(took))
        for i, (at, took) in enumerate(zip(at_s, ttft_s, strict=True))
    ]


def test_a_cold_start_is_left_out_and_said() -> None:
    chosen = choose_window(cold_start(), OPEN, least_s=0.5, end_s=30.0)
    assert 2.0 < chosen.window_s[0] < 12.0
    assert chosen.steady.reached
    assert "settled by then (MSER-5)" in chosen.why
    assert chosen.as_dict()["start_s"] == chosen.window_s[0]


def test_the_warm_up_asked_for_is_never_shortened() -> None:
    assert choose_window(cold_start(), OPEN, least_s=14.0, end_s=30.0).window_s == (14.0, 30.0)


def test_no_steady_state_is_a_caution_and_trims_nothing() -> None:
    rng = np.random.default_rng(2)
    records = [
        good(i, at_s=i * 0.05, ttft_s=0.05 * (1 + i / 20) * float(np.exp(0.1 * rng.normal())))
        for i in range(600)
    ]
    made = run(records, end_s=30.0)
    made.chosen = choose_window(records, CLOSED, least_s=1.0, end_s=30.0)
    assert made.chosen.window_s == (1.0, 30.0)
    assert any("no steady state was reached" in note for note in summarize(made, None).notes)


def test_few_requests_keep_the_warm_up_asked_for() -> None:
    chosen = choose_window(cold_start(count=60), OPEN, least_s=1.0, end_s=30.0)
    assert (chosen.window_s[0], chosen.steady.reached) == (1.0, None)


@pytest.mark.parametrize(
    ("arrivals", "says"),
    [(Arrivals("at_once", 50), "at once"),
     (Arrivals("trace", 5, recorded_s=np.arange(9.0)), "trace")],
)  # fmt: skip
def test_loads_without_a_steady_state_of_their_own(arrivals: Arrivals, says: str) -> None:
    """Every request is given: a warm-up would leave some of them out."""
    chosen = choose_window(cold_start(), arrivals, least_s=3.0, end_s=30.0)
    assert chosen.window_s[0] == 0.0
    assert says in chosen.why


def test_a_load_that_changes_by_plan_keeps_its_warm_up() -> None:
    ramp = parse_workload("prompt=8,output=4,concurrency=1..8").arrivals
    assert choose_window(cold_start(), ramp, least_s=3.0, end_s=30.0).window_s[0] == 3.0


def test_the_drain_after_the_last_send_does_not_count() -> None:
    """Rates end with the last send; the last request belongs to the window."""
    records = [good(i, at_s=0.1 * i, ttft_s=2.0) for i in range(100)]
    chosen = choose_window(records, CLOSED, least_s=0.0, end_s=12.0, load_ended=True)
    assert chosen.window_s[1] == pytest.approx(9.9)
    assert records[-1].scheduled_s < chosen.window_s[1]
    assert chosen.cut_s == pytest.approx(2.1)
    assert "2.1 s of cool-down" in chosen.why


def test_arrivals_that_ended_before_time_are_noticed_without_being_told() -> None:
    records = [good(i, at_s=0.1 * i) for i in range(100)]
    assert choose_window(records, OPEN, least_s=0, end_s=11.0).cut_s == 0
    assert choose_window(records, OPEN, least_s=0, end_s=15.0).cut_s == pytest.approx(5.1)


def test_a_load_that_is_mostly_drain_is_kept_whole() -> None:
    records = [good(i, ttft_s=0.2 * i) for i in range(50)]
    whole = choose_window(records, Arrivals("at_once", 50), least_s=0, end_s=10, load_ended=True)
    assert whole.window_s == (0.0, 10)


def overload() -> Measurement:
    """12 requests per second at a server that serves 8, for 30 s."""
    records = []
    for i in range(360):
        at_s, end_s = i / 12, (i + 1) / 8
        ends = end_s < 30
        records.append(good(i, at_s=at_s, ttft_s=end_s - at_s, gap_s=0) if ends
                       else running(i, at_s))  # fmt: skip
    return run(records, end_s=30.0, workload="prompt=8,output=4,rate=12")


def test_over_saturation_is_no_steady_state_and_passes_nothing() -> None:
    made = overload()
    assert made.saturation is not None
    assert "offered 12 req/s, completed 7.97 req/s" in made.invalid_reason
    assert "backlog grew by 12" in made.invalid_reason
    easy = judge(parse_slos(["ttft_p50<1m"]), made)
    assert (easy.state, easy.reason) == ("inconclusive", made.invalid_reason)
    assert judge(parse_slos(["ttft_p50<100ms"]), made).state == "fail"
    assert made.summary_dict()["saturation"]["grown_by"] == made.saturation.grown_by


def test_a_closed_loop_is_never_over_saturated() -> None:
    made = overload()
    assert saturation_of(made.records, CLOSED, made.window_s) is None


def stalls(late_s: float, busy: float) -> LoopStalls:
    at_s = np.arange(0, 10, BEAT_S)
    return LoopStalls(
        at_s, np.full(len(at_s), late_s), np.full(len(at_s), busy), np.zeros(len(at_s), dtype=int)
    )


@pytest.mark.parametrize(
    ("late_s", "busy", "says"),
    [(0.0, 0.95, "busy 95% of the window"), (0.06, 0.5, "stalled: p99 60.0 ms exceeds 50.0 ms"),
     (0.01, 0.5, "")],
)  # fmt: skip
def test_a_closed_loop_that_its_generator_limits_is_invalid(
    late_s: float, busy: float, says: str
) -> None:
    slos = parse_slos(["ttft_p95<500ms"])
    made = run([good(i, at_s=0.1 * i) for i in range(90)], slos)
    made.stalls = stalls(late_s, busy)
    summarize(made, slos)
    assert (says in made.invalid_reason) if says else (made.invalid_reason == "")
    assert judge(slos, made).state == ("inconclusive" if says else "pass")


def test_a_stored_run_keeps_what_its_generator_was_like() -> None:
    slos = parse_slos(["ttft_p95<500ms"])
    made = run([good(i, at_s=0.1 * i) for i in range(90)], slos)
    made.stalls = stalls(0.0, 0.95)
    kept = summarize(made, slos).summary_dict()["generator"]
    again = run(made.records, slos)
    assert again.summary_dict()["generator"] == {"processes": 1}  # nobody watched
    again.loop = GeneratorLoop.from_dict(kept)
    assert summarize(again, slos).invalid_reason == made.invalid_reason != ""
    assert again.summary_dict()["generator"] == kept
    assert GeneratorLoop.from_dict({"processes": 2}) is None


def test_an_open_loop_is_judged_by_its_lag() -> None:
    made = run([good(i, at_s=0.1 * i) for i in range(90)], workload="prompt=8,output=4,rate=10")
    made.stalls = stalls(1.0, 1.0)
    assert summarize(made, None).invalid_reason == ""


def test_a_server_that_only_fails_has_no_steady_state_to_find() -> None:
    chosen = choose_window([failed(i, at_s=0.1 * i) for i in range(200)], OPEN, least_s=1, end_s=20)
    assert (chosen.window_s, chosen.steady.reached) == ((1, 20), None)
    assert not math.isnan(chosen.window_s[0])


def test_requests_longer_than_the_window_are_told_as_that() -> None:
    """Eight clients whose requests of the warm-up take until after the window opens."""
    records = [good(i, at_s=0.0, ttft_s=11.0 + i / 10) for i in range(7)] + [running(7, 0.0)]
    made = run(records, workload="prompt=8,output=4,concurrency=8")
    made.window_s = (1.0, 9.0)
    reason = summarize(made, None).invalid_reason
    assert "8 of 8 sent before it took until after its start, up to 11.6 s each" in reason
    assert "measure for several times as long" in reason
    assert "shorten it" not in reason
    over = run([good(i, at_s=0.1 * i) for i in range(4)])
    over.window_s = (5.0, 9.0)
    assert "all 4 fell into the warm-up; shorten it" in summarize(over, None).invalid_reason


def test_a_load_sent_at_once_says_what_its_intervals_leave_out() -> None:
    records = [good(i, ttft_s=2.0 * (1 + i // 20)) for i in range(80)]
    at_once = run(records, workload="prompt=8,output=4,rate=inf,requests=80")
    assert any("served in a few batches" in note for note in at_once.notes)
    assert not any("batches" in note for note in run(records).notes)
