"""Which events of a clause are bad, at which boundary they are counted, and what has no budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.sources.exposition import parse_exposition
from tests.tuner.diagnosis.engine_pages import page
from tuner.budget.buckets import boundaries_of, boundary_of, of_exposition
from tuner.budget.burn import BURN_WINDOWS, fewest_events, fires
from tuner.budget.events import slis
from tuner.diagnosis.registry import Dialect
from tuner.errors import UserError
from tuner.slo import parse_slos

FIXTURES = Path(__file__).parents[3] / "fixtures"
VLLM = of_exposition(
    parse_exposition((FIXTURES / "vllm-0.32-cpu-after-load.txt").read_text(), at_s=0.0)
)
SGLANG = of_exposition(parse_exposition(page("sglang-0.5.23", "kv-starved"), at_s=0.0))


@pytest.mark.parametrize(
    ("bound", "le", "told"),
    [
        (0.5, 0.5, "at the bucket boundary 0.5 s"),
        (0.3, 0.25, "what lies between 0.25 s and the bound of 0.3 s counts as bad"),
        (0.0005, 0.001, "the lowest bucket boundary"),
        (9000, 2560, "the next one is +Inf"),
    ],
)
def test_a_share_is_read_off_a_boundary_never_between(bound: float, le: float, told: str) -> None:
    found = boundary_of(bound, boundaries_of("vllm:time_to_first_token_seconds", None))
    assert found is not None
    assert found.le == le
    assert told in found.told


def test_a_live_servers_boundaries_count_instead_of_the_table() -> None:
    text = 'vllm:time_to_first_token_seconds_bucket{le="0.3"} 1\n' + (
        'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 1\n'
    )
    found, _ = slis(parse_slos(["ttft_p95<300ms"]), of_exposition(parse_exposition(text, 0.0)))
    assert found[0].boundary is not None
    assert found[0].boundary.exact


def test_the_table_is_what_vllm_exports() -> None:
    for name in ("vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
                 "vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds",
                 "vllm:request_queue_time_seconds"):  # fmt: skip
        assert boundaries_of(name, VLLM) == boundaries_of(name, None)


@pytest.mark.parametrize(
    ("slo", "why"),
    [
        ("output_tps>100", "no error budget"),
        ("mean(ttft)<1s", "give a percentile, ttft_p95"),
        ("attainment>99%", "ttft_p95<500ms"),
        ("ttft_p95>1s", "upper bound"),
        ("error_rate<0%", "between 0 and 100 %"),
    ],
)
def test_what_no_rule_can_watch_is_refused_with_its_reason(slo: str, why: str) -> None:
    with pytest.raises(UserError, match="no SLO that a rule can watch") as refused:
        slis(parse_slos([slo]))
    assert why in str(refused.value)


def names(terms: tuple[tuple[int, object], ...]) -> list[str]:
    return [counter.name for _, counter in terms]  # type: ignore[attr-defined]


def test_vllms_refused_and_aborted_requests_are_bad() -> None:
    [sli], _ = slis(parse_slos(["ttft_p95<500ms"]))
    *_, failed, refused = (counter for _, counter in sli.bad)
    assert (failed.name, failed.values) == ("vllm:request_success_total", ("abort", "error"))
    assert refused.name == "vllm:admission_rejections_total"


def test_sglangs_aborted_requests_are_bad_under_its_own_names() -> None:
    [sli], left_out = slis(parse_slos(["ttft_p95<500ms"]), None, "sglang")
    assert left_out == {}
    histogram = "sglang:time_to_first_token_seconds"
    aborted = "sglang:num_aborted_requests_total"
    assert names(sli.bad) == [f"{histogram}_count", f"{histogram}_bucket", aborted]
    assert names(sli.total) == [f"{histogram}_count", aborted]
    assert "SGLang does not export how many requests failed or were refused" in sli.bad_is
    assert sli.boundary is not None
    assert sli.boundary.le == 0.4


def test_sglang_has_no_budget_for_errors_that_it_does_not_count() -> None:
    with pytest.raises(UserError, match="error_rate<1%: SGLang does not export how many requests"):
        slis(parse_slos(["error_rate<1%"]), None, "sglang")


def test_a_live_sglang_tells_its_dialect_and_boundaries() -> None:
    found, left_out = slis(parse_slos(["ttft_p95<5s", "queue_p95<5s", "error_rate<1%"]), SGLANG)
    assert [sli.histogram for sli in found] == [
        "sglang:time_to_first_token_seconds", "sglang:queue_time_seconds",
    ]  # fmt: skip
    assert {sli.boundary.le for sli in found if sli.boundary} == {4.0, 5.0}
    assert list(left_out) == ["error_rate<1%"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (page("sglang-0.5.23", "unserved"), "no histogram of ttft before its first request"),
        (page("vllm-0.8.5-v0", "unserved"), "no histogram of ttft before its first request"),
        ("vllm:request_success_total 3\n", "no histogram of ttft$"),
    ],
)
def test_some_engines_export_no_histogram_before_their_first_request(text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        slis(parse_slos(["ttft_p95<5s"]), of_exposition(parse_exposition(text, at_s=0.0)))


def test_without_a_server_sglangs_queue_has_no_boundaries() -> None:
    with pytest.raises(UserError, match="with --url it is read off the server"):
        slis(parse_slos(["queue_p95<5s"]), None, "sglang")


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_gaps_have_no_failures_among_them(dialect: Dialect) -> None:
    [sli], _ = slis(parse_slos(["itl_p99<60ms"]), None, dialect)
    assert {name.rpartition("_")[0] for name in names(sli.bad)} == {
        f"{dialect}:inter_token_latency_seconds"
    }
    assert sli.events == "gaps between tokens"


def test_the_windows_are_those_of_the_workbook() -> None:
    assert [(w.factor, w.long, w.short) for w in BURN_WINDOWS] == [
        (14.4, "1h", "5m"), (6, "6h", "30m"), (3, "1d", "2h"), (1, "3d", "6h"),
    ]  # fmt: skip
    assert [w.severity for w in BURN_WINDOWS] == ["page", "page", "ticket", "ticket"]


def test_an_alert_can_always_fire() -> None:
    """14.4 times the budget of a median would be more than all requests."""
    assert all(window.limit(0.5) < 1 for window in BURN_WINDOWS)
    assert BURN_WINDOWS[0].limit(0.01) == pytest.approx(0.144)


def test_one_bad_event_is_never_the_whole_budget() -> None:
    assert fewest_events(0.01) == 100
    assert fewest_events(0.5) == 20


@pytest.mark.parametrize(
    ("long", "short", "events", "firing"),
    [(0.2, 0.2, 100, True), (0.2, 0.1, 100, False), (0.1, 0.2, 100, False), (0.2, 0.2, 99, False)],
)
def test_both_windows_and_enough_events_are_needed(
    long: float, short: float, events: float, firing: bool
) -> None:
    found = fires(BURN_WINDOWS[0], 0.01, long=long, short=short, events=events, least=100)
    assert found is firing
