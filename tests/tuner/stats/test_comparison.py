"""Two runs against each other: true differences found, equal runs left alone, pairs used."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.tuner.stats.load import ar1, request, run_of
from tuner.figures.comparison import Run, compare_runs
from tuner.slo import parse_slos

SLOS = parse_slos(["ttft_p95<300ms"])


def pair(seed: int, *, factor: float = 1.0, phi: float = 0.5, same: bool = True) -> list[Run]:
    """The same 300 requests on both sides; B's first tokens take factor times as long."""
    rng = np.random.default_rng(seed)
    at_s = np.cumsum(rng.exponential(0.05, 300))
    shared, *own = 0.5 * ar1(rng, 3, 300, phi)
    sides = []
    for side, scale in enumerate((1.0, factor)):
        ttft_s = 0.1 * scale * np.exp(shared + 0.4 * own[side])
        sides.append(run_of(at_s, ttft_s, 0 if same else 1_000 * side))
    return sides


def test_a_true_gain_is_found_in_latencies_and_goodput() -> None:
    a, b = pair(1, factor=0.6)
    found = compare_runs([a], [b], ["ttft_p50", "ttft_mean", "ttft_p95", "attainment"], SLOS)
    assert [one.outcome for one in found.values()] == ["improved"] * 4
    assert found["ttft_p50"].low < 0.6 < found["ttft_p50"].high
    assert "paired by request" in found["ttft_p50"].method
    assert found["ttft_p95"].a is not None
    assert found["ttft_p95"].a.value > 0.1
    back = compare_runs([b], [a], ["ttft_mean", "attainment"], SLOS)
    assert [one.outcome for one in back.values()] == ["worse"] * 2


@pytest.mark.parametrize("phi", [0.0, 0.8])
def test_equal_sides_are_called_different_as_rarely_as_said(phi: float) -> None:
    keys = ["ttft_p50", "ttft_p95", "ttft_mean"]
    wrong = dict.fromkeys(keys, 0)
    for seed in range(100):
        a, b = pair(seed, phi=phi)
        for key, one in compare_runs([a], [b], keys, SLOS).items():
            wrong[key] += one.outcome in ("improved", "worse")
    assert max(wrong.values()) <= 10  # 5 expected; 11 or more come by chance once in 90 times


def test_pairing_narrows_what_both_sides_share() -> None:
    paired = compare_runs(*[[side] for side in pair(3)], ["ttft_mean"], SLOS)["ttft_mean"]
    apart = compare_runs(*[[side] for side in pair(3, same=False)], ["ttft_mean"], SLOS)[
        "ttft_mean"
    ]
    assert "not paired" in apart.method
    assert math.log(paired.high / paired.low) < 0.9 * math.log(apart.high / apart.low)


def test_a_side_against_itself_is_no_difference() -> None:
    a, _ = pair(4)
    keys = ["ttft_p95", "ttft_mean", "itl_p99", "output_tps", "total_tps", "rps", "goodput"]
    found = compare_runs([a], [a], keys, SLOS)
    assert {one.outcome for one in found.values()} == {"no_difference"}
    assert all(one.ratio == 1 for one in found.values())


def test_half_the_throughput_is_worse() -> None:
    a, _ = pair(5)
    slow = ([r for r in a[0] if r.index % 2], a[1])
    found = compare_runs([a], [slow], ["output_tps", "rps"], SLOS)
    assert [one.outcome for one in found.values()] == ["worse"] * 2
    assert found["output_tps"].ratio == pytest.approx(0.5, abs=0.02)


def test_errors_are_compared_by_their_difference() -> None:
    a, b = pair(6)
    broken = [
        replace(r, state="failed", chunk_times_s=[], chunk_tokens=[]) if r.index % 5 == 0 else r
        for r in b[0]
    ]
    found = compare_runs([a], [(broken, b[1])], ["error_rate", "ttft_mean", "ttft_p50"], SLOS)
    assert found["error_rate"].outcome == "worse"
    assert found["error_rate"].difference is not None
    assert found["error_rate"].difference[0] == pytest.approx(0.2, abs=0.01)
    assert math.isnan(found["error_rate"].ratio)  # to no error at all
    assert "failed request makes the mean infinite" in found["ttft_mean"].method
    assert math.isfinite(found["ttft_p50"].ratio)
    none = compare_runs([a], [b], ["error_rate"], SLOS)["error_rate"]
    assert none.outcome == "inconclusive"  # 300 requests do not show less than 1 % either way


def test_unfinished_requests_claim_nothing_they_do_not_show() -> None:
    """Half of B is still running after the shortest time: it may be fast or never end."""
    a, b = pair(7)
    cut = [
        replace(r, state="censored", first_token_s=math.nan, chunk_times_s=[], chunk_tokens=[],
                end_s=r.scheduled_s + 0.001) if r.index % 2 else r
        for r in b[0]
    ]  # fmt: skip
    found = compare_runs([a], [(cut, b[1])], ["ttft_p50", "ttft_mean"], SLOS)
    assert {one.outcome for one in found.values()} == {"inconclusive"}
    assert found["ttft_p50"].high == math.inf


def test_runs_that_scatter_decide_less_than_one_of_them_claims() -> None:
    """B's runs are 30 % faster, 30 % slower and the same: each differs, together they do not."""
    sides = [pair(8 + i, factor=factor) for i, factor in enumerate((0.7, 1.3, 1.0))]
    one = compare_runs([sides[0][0]], [sides[0][1]], ["ttft_mean"], SLOS)["ttft_mean"]
    together = compare_runs(
        [side[0] for side in sides], [side[1] for side in sides], ["ttft_mean"], SLOS
    )["ttft_mean"]
    assert one.outcome == "improved"
    assert together.outcome == "inconclusive"
    assert "spread of 3 pairs" in together.method
    agree = [pair(20 + i, factor=0.7) for i in range(3)]
    same = compare_runs([s[0] for s in agree], [s[1] for s in agree], ["ttft_mean"], SLOS)
    assert same["ttft_mean"].outcome == "improved"


def test_what_cannot_be_compared_is_said() -> None:
    a, b = pair(9)
    with pytest.raises(ValueError, match="at least one run"):
        compare_runs([], [b], ["rps"], SLOS)
    with pytest.raises(ValueError, match="accuracy is no figure"):
        compare_runs([a], [b], ["accuracy"], SLOS)
    assert compare_runs([a], [b], ["ttft_max"], SLOS)["ttft_max"].outcome == "inconclusive"
    single = ([request(0, 0.0, 0.1, output=1)], (0.0, 1.0))
    assert (
        "a side has no tpot" in compare_runs([single], [b], ["tpot_p50"], SLOS)["tpot_p50"].method
    )


def cut(side: Run, count: int) -> Run:
    return side[0][:count], side[1]


def test_a_percentile_of_few_requests_is_as_open_in_a_ratio_as_alone() -> None:
    """B takes a tenth of A's time, yet the slowest of 40 requests bound no p95."""
    a, b = pair(11, factor=0.1)
    few = compare_runs([cut(a, 40)], [cut(b, 40)], ["ttft_p95", "ttft_p50"], SLOS)
    assert few["ttft_p95"].a is not None
    assert few["ttft_p95"].a.high == math.inf
    assert (few["ttft_p95"].low, few["ttft_p95"].high) == (0, math.inf)
    assert few["ttft_p95"].outcome == "inconclusive"
    assert "40 requests leave an end of a p95 open" in few["ttft_p95"].method
    assert few["ttft_p50"].outcome == "improved"
    lone = compare_runs([cut(a, 40)], [b], ["ttft_p95"], SLOS)["ttft_p95"]
    assert (lone.low, lone.outcome) == (0, "improved")  # A's p95 can only be larger
    assert compare_runs([a], [b], ["ttft_p95"], SLOS)["ttft_p95"].low > 0


def test_requests_of_other_lengths_are_no_pairs() -> None:
    a, b = pair(12)
    longer = ([replace(r, wanted_prompt_tokens=4 * r.wanted_prompt_tokens) for r in b[0]], b[1])
    method = compare_runs([a], [longer], ["ttft_p50"], SLOS)["ttft_p50"].method
    assert "not paired" in method


def test_a_side_without_an_answer_is_no_rate_of_zero_to_compare_with() -> None:
    a, b = pair(13)
    hung = [
        replace(r, state="censored", first_token_s=math.nan, chunk_times_s=[], chunk_tokens=[],
                end_s=b[1][1]) for r in b[0]
    ]  # fmt: skip
    found = compare_runs([a], [(hung, b[1])], ["output_tps", "rps", "tpot_p95"], SLOS)
    assert {one.outcome for one in found.values()} == {"inconclusive"}
    assert "a side has no output_tps" in found["output_tps"].method
